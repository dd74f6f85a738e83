from dataclasses import replace
from typing import Any

import pytest
from conftest import Call, Clock
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from scripted import (
    ADA,
    FLIGHT_WORDS,
    OFF_TOPIC,
    PEANUT_WORDS,
    PEANUTS,
    SEAT,
    Chat,
    agent_of,
    blocks,
    calls,
    grows,
    model_of,
    recalled,
)

from langmem_recall import LocalStore, Recall, RecallPolicy, RecallStore
from langmem_recall.agents.block import MESSAGE_TOKENS
from langmem_recall.agents.options import count_tokens
from langmem_recall.agents.turn import RecallRecord, shown_within
from langmem_recall.deadline import TooLate

TOPICS = ("harbour", "violin", "bakery", "glacier", "orchid", "tractor")
SMALL: dict[str, Any] = {"profile": {"max_input_tokens": 3_000}}
"""A window whose default budget is 600 tokens."""
ONE = RecallPolicy.default(name="one", top_k=1)


class LateStore(RecallStore):
    """A store that remembers, and whose recalls are late while `is_late`."""

    is_late = False

    def recall(self, *args: Any, **kwargs: Any) -> Recall:
        if self.is_late:
            raise TooLate("no answer")
        return super().recall(*args, **kwargs)

    async def arecall(self, *args: Any, **kwargs: Any) -> Recall:
        if self.is_late:
            raise TooLate("no answer")
        return await super().arecall(*args, **kwargs)


def topics_store(traces: list[Recall] | None = None) -> LateStore:
    """A note on each topic, of which a block takes about 250 tokens."""
    store = LateStore(LocalStore(), clock=Clock(), traces=None if traces is None else traces.append)
    for topic in TOPICS:
        note = " ".join(f"The {topic} has a {topic} number {n} here." for n in range(18))
        store.remember(ADA, note, key=topic, source="user_stated")
    return store


def question(topic: str) -> str:
    return f"Which number has the {topic}?"


def memory_tokens(messages: Any) -> int:
    return sum(map(count_tokens, blocks(messages)))


def test_all_memory_in_a_call_stays_within_the_budget_and_the_records_say_how_much(
    call: Call,
) -> None:
    traces: list[Recall] = []
    model = model_of(**SMALL)
    chat = Chat(agent_of(model, topics_store(traces), policy=ONE))
    for topic in TOPICS:
        call(chat, "say", question(topic))
    used = [memory_tokens(messages) for messages in model.seen]
    assert max(used) <= 600
    assert [record["tokens"] for record in chat.records] == used
    assert [recall.trace.tokens for recall in traces] == used
    assert {recall.trace.budget_tokens for recall in traces} == {600}
    assert all(
        recall.memories[0].key == topic for recall, topic in zip(traces, TOPICS, strict=True)
    )


def test_the_oldest_blocks_give_way_in_one_step_and_it_is_said(call: Call) -> None:
    traces: list[Recall] = []
    model = model_of(**SMALL)
    chat = Chat(agent_of(model, topics_store(traces), policy=ONE))
    for topic in TOPICS[:3]:
        call(chat, "say", question(topic))
    first, second, third = chat.records
    assert len(blocks(model.seen[1])) == 2
    assert grows(model.seen[:2])
    # Three are more than 600 tokens; with two more than half of them would be in use.
    assert third["gone"] == [first["id"], second["id"]]
    assert len(blocks(model.seen[2])) == 1
    assert traces[2].trace.gave_way == 2
    assert third["reason"] == traces[2].reason
    assert third["reason"] == "1 recalled; past blocks that gave way to the budget: 2"
    assert str(traces[2]).endswith(", past blocks out: 2")


def test_what_gave_way_stays_away_in_the_tool_loop_and_in_another_process(call: Call) -> None:
    model, saver = model_of(**SMALL), InMemorySaver()
    store, agent = topics_store(), {"checkpointer": saver}
    chat = Chat(agent_of(model, store, policy=ONE, agent=agent))
    for topic in TOPICS[:2]:
        call(chat, "say", question(topic))
    model.script[:] = [calls("1"), AIMessage("Checked.")]
    call(chat, "say", question(TOPICS[2]))
    call(replace(chat, graph=agent_of(model, store, policy=ONE, agent=agent)), "say", OFF_TOPIC)
    assert [len(blocks(messages)) for messages in model.seen] == [1, 2, 1, 1, 1]
    assert grows(model.seen[2:])


def test_a_memory_whose_block_gives_way_is_recalled_again_where_it_is_asked_for(
    call: Call,
) -> None:
    model, store, agent = model_of(**SMALL), topics_store(), {"checkpointer": InMemorySaver()}
    chat = Chat(agent_of(model, store, policy=ONE, agent=agent))
    for topic in TOPICS[:2]:
        call(chat, "say", question(topic))
    two = RecallPolicy.default(name="two", top_k=2)
    chat.graph = agent_of(model, store, policy=two, agent=agent)
    call(chat, "say", f"{question(TOPICS[0])} {question(TOPICS[2])}")
    assert len(chat.records[2]["gone"]) == 2
    assert {one["key"] for one in chat.records[2]["memories"]} == {"harbour", "bakery"}
    assert memory_tokens(model.seen[2]) <= 600


def test_a_model_with_a_smaller_window_sees_fewer_past_blocks(call: Call) -> None:
    model, small, saver = model_of(**SMALL), model_of(), InMemorySaver()
    small.profile = {"max_input_tokens": 2_000}
    store, agent = topics_store(), {"checkpointer": saver}
    chat = Chat(agent_of(model, store, policy=ONE, agent=agent))
    for topic in TOPICS[:2]:
        call(chat, "say", question(topic))
    call(replace(chat, graph=agent_of(small, store, policy=ONE, agent=agent)), "say", OFF_TOPIC)
    assert memory_tokens(model.seen[1]) > 400
    assert memory_tokens(small.seen[0]) == 0
    call(chat, "say", OFF_TOPIC)
    assert len(blocks(model.seen[2])) == 2


@pytest.mark.parametrize("in_another_process", [False, True])
def test_a_late_recall_leaves_past_blocks_in_their_place_and_takes_no_room(
    call: Call, in_another_process: bool
) -> None:
    traces: list[Recall] = []
    store, model = LateStore(LocalStore(), traces=traces.append), model_of()
    store.remember(ADA, SEAT, key="seat", source="user_stated")
    store.remember(ADA, PEANUTS, key="peanuts", source="user_stated")
    agent: Any = {"on_error": "skip", "agent": {"checkpointer": InMemorySaver()}}
    chat = Chat(agent_of(model, store, **agent))
    call(chat, "say", FLIGHT_WORDS)
    if in_another_process:
        chat.graph = agent_of(model, store, **agent)
    store.is_late = True
    call(chat, "say", PEANUT_WORDS)
    store.is_late = False
    call(chat, "say", "And what am I allergic to, peanuts?")
    assert [recalled(messages) for messages in model.seen] == [[SEAT], [SEAT], [SEAT, PEANUTS]]
    assert grows(model.seen)
    first, late, _ = chat.records
    assert late["reason"].startswith("no memories: TooLate")
    assert late["tokens"] == first["tokens"] == traces[1].trace.tokens > 0
    assert (late["block_tokens"], late["gone"]) == (0, [])
    assert first["block_tokens"] == first["tokens"] + MESSAGE_TOKENS


def test_a_store_that_fails_altogether_leaves_past_blocks_in_their_place(call: Call) -> None:
    class Gone(LateStore):
        def memories(self, ids: Any) -> Any:
            if self.is_late:
                raise OSError("no disk")
            return super().memories(ids)

        async def amemories(self, ids: Any) -> Any:
            if self.is_late:
                raise OSError("no disk")
            return await super().amemories(ids)

    store, model = Gone(LocalStore()), model_of()
    store.remember(ADA, SEAT, key="seat", source="user_stated")
    chat = Chat(agent_of(model, store, on_error="skip"))
    call(chat, "say", FLIGHT_WORDS)
    store.is_late = True
    call(chat, "say", PEANUT_WORDS)
    assert recalled(model.seen[1]) == [SEAT]
    assert grows(model.seen)


# --- which records stay ---


def record(number: int, turn: str, tokens: int) -> RecallRecord:
    return RecallRecord(
        id=str(number),
        turn=turn,
        cue="c",
        after=None,
        at="2026-03-04",
        memories=[],
        dropped={},
        reason="",
        tokens=9_999,
        budget=0,
        degraded=[],
        block_tokens=tokens,
        profile=[],
        by="",
        gone=[],
    )


def test_the_turn_s_own_block_stays_before_half_of_the_budget_is_free() -> None:
    own, past = [record(2, "now", 70)], [record(0, "a", 20), record(1, "b", 20)]
    assert shown_within([*past, *own], 0, 110, "now") == [*past, *own]
    assert shown_within([*past, *own], 5, 110, "now") == own
    assert shown_within(own, 50, 110, "now") == []


@given(
    st.lists(st.integers(0, 400), max_size=12),
    st.lists(st.integers(0, 400), max_size=3),
    st.integers(0, 400),
    st.integers(1, 2_000),
)
def test_what_stays_fits_and_what_goes_is_older(
    past: list[int], own: list[int], more: int, budget: int
) -> None:
    turns = [*(f"turn {i}" for i in range(len(past))), *("now" for _ in own)]
    sizes = [*past, *own]
    records = [record(i, turns[i], size) for i, size in enumerate(sizes)]
    stay = shown_within(records, more, budget, "now")
    used = sum(one["block_tokens"] for one in stay) + more
    assert used <= max(budget, more)
    gone = [one for one in records if one not in stay]
    if gone:
        assert sum(sizes) + more > budget
        # Empty ones cost nothing and stay; of the others none that stays is older.
        newest = max(int(one["id"]) for one in gone)
        assert all(int(one["id"]) > newest for one in stay if one["block_tokens"])
        in_past = [one for one in stay if one["turn"] != "now" and one["block_tokens"]]
        assert not in_past or used <= budget / 2
