"""What a session starts with: when, of what, within which share, and where it is told."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from conftest import Clock
from langchain_core.messages import HumanMessage
from langgraph.graph import START, StateGraph
from scripted import ADA, MINE, PATIENT, Chat, ScriptedModel, agent_of, blocks, lines, model_of

from langmem_recall import (
    LocalStore,
    Monitor,
    Profile,
    RecallState,
    RecallStore,
    recall_node,
)
from langmem_recall.agents.block import profile_of
from langmem_recall.cue import asks_for_all
from langmem_recall.errors import ConfigurationError
from langmem_recall.types import Memory

HELLO = "Hello there!"


def filled(clock: Clock, **options: Any) -> RecallStore:
    store = RecallStore(LocalStore(), clock=clock, **options)
    store.remember(
        ADA, "I work as a potter in Ghent", key="job", source="user_stated", salience=0.9
    )
    store.remember(ADA, "I prefer short answers", key="short", source="user_stated", salience=0.8)
    store.remember(ADA, "The user may like jazz", key="guess", source="agent_inferred")
    store.remember(ADA, "The kiln was booked", key="event", kind="episodic", source="user_stated")
    for number, day in ((1, 1), (2, 9)):
        store.remember(
            ADA,
            f"Session {number} was about glazes.",
            key=f"session-{number}",
            kind="episodic",
            source="agent_inferred",
            tags=["session_summary"],
            written_at=clock() - timedelta(days=10 - day),
        )
    return store


def shown(model: ScriptedModel, call: int = -1) -> list[dict[str, str]]:
    return [line for block in blocks(model.seen[call]) for line in lines(block)]


@pytest.mark.parametrize("way", ["sync", "async"])
async def test_a_thread_begins_with_a_profile_that_stands_apart_from_what_is_recalled(
    clock: Clock, way: str
) -> None:
    monitor = Monitor()
    store = filled(clock, traces=monitor)
    model = model_of("Hi!", "Potter.", "Bye.")
    chat = Chat(agent_of(model, store, profile=Profile(share=0.25)))
    for said in (HELLO, "Where do I work as a potter?", "Thanks!"):
        _ = await chat.asay(said) if way == "async" else chat.say(said)
    first = shown(model, 0)
    assert [line["text"] for line in first] == [
        "I work as a potter in Ghent",
        "I prefer short answers",
        "Session 2 was about glazes.",
    ]
    assert all(line["label"].endswith("part of the profile") for line in first[:2])
    record = chat.records[0]
    assert [one["key"] for one in record["profile"]] == ["job", "short", "session-2"]
    assert record["memories"] == []
    # Once: later turns have it in its old place, byte for byte, and recall nothing of it again.
    assert blocks(model.seen[1])[:1] == blocks(model.seen[0])
    assert all(later["profile"] == [] for later in chat.records[1:])
    assert [one["key"] for later in chat.records[1:] for one in later["memories"]] == []
    # The profile itself, and a cue that it answers; "Thanks!" asks for nothing.
    report = monitor.report()
    assert report.outcomes == {"already in the prompt": 2, "nothing cleared the floor": 1}


@pytest.mark.parametrize("said", ["Tell me what you have on me", "So, where were we?"])
def test_a_cue_about_everything_gets_a_profile_without_the_option(clock: Clock, said: str) -> None:
    model = model_of("Fine.", "All of that.")
    chat = Chat(agent_of(model, filled(clock)))
    chat.say(HELLO)
    assert shown(model) == []
    ((_, event),) = chat.stream(said, ["custom"])
    assert [one["key"] for one in event["profile"]] == ["job", "short", "session-2"]
    assert event["memories"] == []
    assert len(shown(model)) == 3


def test_without_the_option_nothing_else_gets_one(clock: Clock) -> None:
    model = model_of("Hi!")
    chat = Chat(agent_of(model, filled(clock)))
    chat.say(HELLO)
    assert shown(model) == []
    assert chat.records[0]["profile"] == []


def test_what_is_recalled_for_the_cue_is_no_part_of_the_profile(clock: Clock) -> None:
    model = model_of("Potter.")
    chat = Chat(agent_of(model, filled(clock), profile=Profile()))
    chat.say("Where do I work as a potter?")
    (record,) = chat.records
    assert [one["key"] for one in record["memories"]] == ["job"]
    assert [one["key"] for one in record["profile"]] == ["short", "session-2"]
    assert [line["id"] for line in shown(model)] == ["m1", "m2", "m3"]


def test_a_profile_keeps_to_its_share_of_the_budget(clock: Clock) -> None:
    store = RecallStore(LocalStore(), clock=clock)
    for number in range(40):
        text = f"Fact {number} is a rather long statement about the pottery of the user"
        store.remember(ADA, text, key=f"{number:02}", source="user_stated")
    model = model_of("Hi!")
    chat = Chat(agent_of(model, store, profile=Profile(share=0.25, most=40), budget=800))
    chat.say(HELLO)
    (record,) = chat.records
    assert 2 <= len(record["profile"]) <= 5
    assert record["tokens"] <= 0.25 * 800 + 60


def test_a_cited_memory_of_a_profile_counts_as_useful(clock: Clock) -> None:
    store = filled(clock)
    chat = Chat(agent_of(model_of("Short, as you like it [m2]."), store, profile=Profile()))
    chat.say(HELLO)
    store.flush()
    (usage,) = store.read_usage([(ADA, "short")])
    assert (usage.uses, usage.merit) == (0, 1)


def test_the_node_begins_with_a_profile_too(clock: Clock) -> None:
    class State(RecallState):
        messages: list[Any]

    recall, seen = recall_node(MINE, profile=Profile(), **PATIENT), list[Any]()

    def answer(state: State) -> dict[str, Any]:
        seen.append(recall.messages(state))
        return {}

    graph: Any = StateGraph(State)
    graph.add_node("recall", recall)
    graph.add_node("answer", answer)
    graph.add_edge(START, "recall")
    graph.add_edge("recall", "answer")
    agent = graph.compile(store=filled(clock))
    state = agent.invoke(
        {"messages": [HumanMessage(HELLO, id="h")]}, {"configurable": {"user_id": "ada"}}
    )
    assert [one["key"] for one in state["recalls"][0]["profile"]] == ["job", "short", "session-2"]
    assert len(blocks(seen[0])) == 1


def test_pinned_comes_first_and_what_is_unsure_or_over_is_left_out(clock: Clock) -> None:
    now = clock()

    def memory(key: str, **fields: Any) -> Memory:
        given = {"source": "user_stated", "written_at": now, **fields}
        return Memory(namespace=ADA, key=key, text=key, **given)

    held = [
        memory("plain"),
        memory("salient", salience=0.9),
        memory("confirmed", source="agent_inferred", confirmed_at=now),
        memory("guess", source="agent_inferred", confidence=0.6),
        memory("contradicted", confidence=0.5),
        memory("over", valid_until=now),
        memory("gone", status="superseded"),
        memory("pinned", pinned=True, salience=0.1),
        memory("old summary", tags=("session_summary",), written_at=now - timedelta(days=2)),
        memory("summary", tags=("session_summary",), kind="episodic"),
    ]
    chosen = [one.key for one in profile_of(held, now, 5)]
    assert chosen[:2] == ["pinned", "salient"]
    assert chosen[-1] == "summary"
    assert not {"guess", "contradicted", "over", "gone"} & {*chosen}
    assert [one.key for one in profile_of(held, now, 1)] == ["summary"]


@pytest.mark.parametrize(
    ("words", "does"),
    [
        ("What do you know about me?", True),
        ("tell me what you have on me", True),
        ("Where were we?", True),
        ("Can we pick up where we left off?", True),
        ("What did we discuss last time?", True),
        ("Was weißt du über mich?", True),
        ("Wo waren wir?", True),
        ("Que sais-tu de moi ?", True),
        ("¿Qué sabes de mí?", True),
        ("Cosa sai di me?", True),
        ("O que sabes sobre mim?", True),
        ("Where do I work?", False),
        ("What do you know about kilns?", False),
        ("Where were the keys?", False),
        ("Who composed Tosca?", False),
        ("", False),
    ],
)
def test_a_question_about_everything_is_told_from_others(words: str, does: bool) -> None:
    assert asks_for_all(words) is does


@pytest.mark.parametrize("wrong", [{"share": 0}, {"share": 2}, {"share": "all"}, {"most": 0}])
def test_what_is_no_profile_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="Profile"):
        Profile(**wrong)
    with pytest.raises(ConfigurationError, match="profile must be a Profile"):
        agent_of(model_of("Hi"), RecallStore(LocalStore()), profile=True)
