import asyncio
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore
from scripted import ScriptedModel, agent_of, blocks, calls, lines, model_of

from langmem_recall import LocalEmbeddings, LocalStore, RecallStore
from langmem_recall.agents.namespace import encoded
from langmem_recall.stores.recall_store import RecallStore as Recalling

TURNS = 200
TOPICS = ("flight seat", "allergic food", "locker code", "dog's name", "favourite tea")
QUESTIONS = (
    "Which seat do I book on a flight?",
    "Which food am I allergic to?",
    "What is my locker code?",
    "What is my dog's name?",
    "What is my favourite tea?",
)


def in_memory() -> BaseStore:
    index = {"dims": 256, "embed": LocalEmbeddings(), "fields": ["content"]}
    return InMemoryStore(index=index)


STORES: dict[str, Callable[[], BaseStore]] = {
    "local": lambda: RecallStore(LocalStore()),
    "in memory": lambda: RecallStore(in_memory()),
    "wrapped on the fly": in_memory,
}


def filled(kind: str, users: tuple[str, str]) -> BaseStore:
    """Each user has told the same things, with a word of their own in it."""
    store = STORES[kind]()
    writer = store if isinstance(store, RecallStore) else Recalling(store)
    for user in users:
        for number, topic in enumerate(TOPICS):
            told = f"My {topic} is the one called {secret(user)}"
            home = ("memories", encoded(user))
            writer.remember(home, told, key=f"fact-{number}", source="user_stated")
    return store


def secret(user: str) -> str:
    return f"secret{sum(map(ord, user))}"


def model_for(turns: int) -> ScriptedModel:
    """Every other turn looks something up first."""
    model = model_of()

    def answer(messages: Any) -> AIMessage:
        last = messages[-1]
        looks = last.type == "human" and len(messages) % 2 == 0
        return calls(f"call-{len(model.seen)}") if looks else AIMessage("Noted [m1].")

    model.script += [answer] * (turns * 2)
    return model


def assert_apart(model: ScriptedModel, users: tuple[str, str], least: int) -> None:
    """No call of one user shows a word of the other, and most show one of their own."""
    own = 0
    for messages in model.seen:
        (asking,) = {str(one.id).split("|")[0] for one in messages if "|" in str(one.id)}
        (other,) = set(users) - {asking}
        assert secret(other) not in str([one.content for one in messages])
        told = [line["text"] for block in blocks(messages) for line in lines(block)]
        assert all(secret(asking) in text for text in told)
        own += bool(told)
    assert own >= least


@pytest.mark.parametrize(
    ("kind", "users"),
    [
        ("local", ("user-1", "user-10")),
        ("in memory", ("ada@x.org", "ada@x%2Eorg")),
        ("wrapped on the fly", ("ada", "bob")),
    ],
)
async def test_two_users_in_200_interleaved_turns_never_see_each_other_s_memories(
    kind: str, users: tuple[str, str]
) -> None:
    model, dice = model_for(TURNS), random.Random(7)
    graph = agent_of(model, filled(kind, users), deadline=60, queue=60, first_load=60)

    async def turn(number: int) -> None:
        user = users[number % 2]
        # Ten threads for each, so that turns meet both fresh and long conversations.
        thread = f"{user}-{number % 20 // 2}"
        said = HumanMessage(dice.choice(QUESTIONS), id=f"{user}|{number}")
        for _ in range(dice.randrange(20)):
            await asyncio.sleep(0)
        config = {"configurable": {"thread_id": thread, "user_id": user}}
        await graph.ainvoke({"messages": [said]}, config)

    await asyncio.gather(*map(turn, range(TURNS)))
    assert len(model.seen) >= TURNS
    assert_apart(model, users, least=TURNS // 2)


def test_two_users_in_threads_never_see_each_other_s_memories() -> None:
    users = ("user-1", "user-10")
    model = model_for(60)
    graph = agent_of(model, filled("local", users), deadline=60, queue=60, first_load=60)

    def turn(number: int) -> None:
        user = users[number % 2]
        said = HumanMessage(QUESTIONS[number % 5], id=f"{user}|{number}")
        config = {"configurable": {"thread_id": f"{user}-{number % 6}", "user_id": user}}
        graph.invoke({"messages": [said]}, config)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(turn, range(60)))
    assert_apart(model, users, least=30)


@pytest.mark.parametrize("kind", STORES)
async def test_without_threads_and_with_the_same_message_ids_users_stay_apart(kind: str) -> None:
    """Nothing but the user tells these runs apart."""
    users = ("ada", "bob")
    model = model_of()
    store = filled(kind, users)
    graph = agent_of(
        model, store, agent={"checkpointer": None}, deadline=60, queue=60, first_load=60
    )

    async def turn(number: int) -> None:
        said = HumanMessage(QUESTIONS[0], id="1")
        await graph.ainvoke({"messages": [said]}, {"configurable": {"user_id": users[number % 2]}})

    await asyncio.gather(*map(turn, range(40)))
    told = [str(blocks(messages)) for messages in model.seen]
    both = [[secret(user) in one for user in users] for one in told]
    assert sorted(both) == [[False, True]] * 20 + [[True, False]] * 20
