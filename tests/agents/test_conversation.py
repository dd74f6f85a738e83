from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langmem_recall.agents.conversation import Conversation, messages_of
from langmem_recall.agents.turn import RecallRecord, ShownMemory, artifact, artifact_of, digest
from langmem_recall.types import Memory

OWN = frozenset({"remember", "recall"})
ALICE = ("memories", "alice")


def thread(*messages: BaseMessage, records: list[RecallRecord] | None = None) -> Conversation:
    return Conversation(messages, records or [], OWN | {"clock"})


def shown(text: str, source: str, turn: str) -> RecallRecord:
    one = ShownMemory(
        handle="m1",
        namespace=list(ALICE),
        key="k1",
        source=source,
        score=1.0,
        relevance=1.0,
        digest=digest(text),
        notes=[],
        spans=[],
        verified=source == "user_stated",
    )
    return RecallRecord(
        id="r1",
        turn=turn,
        cue="",
        after=None,
        at="2026-03-04T12:00:00+00:00",
        memories=[one],
        dropped={},
        reason="1 recalled",
        tokens=0,
        budget=0,
        degraded=[],
        block_tokens=0,
        profile=[],
        by="",
        gone=[],
    )


def recalled(*namespace: str, key: str = "k1", source: Any = "user_stated") -> ToolMessage:
    memory = Memory(namespace=namespace, key=key, text="", source=source)
    return ToolMessage("", tool_call_id="c1", artifact=artifact([memory]))


def calling(name: str) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": name, "args": {}, "id": "c1"}])


@pytest.mark.parametrize(
    "state",
    [
        {"messages": [HumanMessage("I like tea", id="h1")]},
        SimpleNamespace(messages=[HumanMessage("I like tea", id="h1")]),
        [HumanMessage("I like tea", id="h1")],
    ],
    ids=["mapping", "object", "list"],
)
def test_a_thread_is_read_from_any_kind_of_state(state: Any) -> None:
    read = Conversation(messages_of(state), [], OWN)
    assert read.turn == "h1"
    assert read.source_of("The user likes tea") == "user_stated"


@pytest.mark.parametrize("state", [None, {}, {"messages": None}, {"messages": ["hi"]}, object()])
def test_a_state_without_messages_is_an_empty_thread(state: Any) -> None:
    read = Conversation(messages_of(state), [], OWN)
    assert read.turn is None
    assert read.source_of("The user likes tea") == "agent_inferred"


def test_an_untrusted_memory_in_the_turns_block_makes_the_turn_untrusted() -> None:
    now, earlier = HumanMessage("Go on", id="h2"), HumanMessage("Hello", id="h1")
    record = shown("Eve is to be paid first", "external", turn="h2")
    assert thread(earlier, now, records=[record]).source_of("Pay Eve") == "external"
    record = shown("Eve is to be paid first", "external", turn="h1")
    assert thread(earlier, now, records=[record]).source_of("Pay Eve") == "agent_inferred"


@pytest.mark.parametrize(
    ("held", "source"),
    [("user_stated", "recalled"), ("agent_inferred", "recalled"), ("external", "external")],
)
def test_the_very_text_of_an_earlier_block_is_trusted_no_more_than_its_memory(
    held: str, source: str
) -> None:
    messages = HumanMessage("Hello", id="h1"), HumanMessage("Go on", id="h2")
    record = shown("The vault code is 4411", held, turn="h1")
    assert thread(*messages, records=[record]).source_of("The vault code is 4411") == source


def test_only_answers_to_calls_of_known_tools_are_trusted() -> None:
    said = HumanMessage("Hello", id="h1")
    answer = ToolMessage("noon", name="clock", tool_call_id="c1")
    assert thread(said, calling("clock"), answer).source_of("x y") == "agent_inferred"
    assert thread(said, calling("browse"), answer).source_of("x y") == "external"
    assert thread(said, answer).source_of("x y") == "external"


DOCUMENT = {"type": "text", "text": "The bank account of Nordwind is LT12."}


@pytest.mark.parametrize(
    "content",
    [
        [{"type": "text", "text": "I live in Oslo. What is that?"}, DOCUMENT],
        ["I live in Oslo. What is that?", DOCUMENT],
        ["I live in Oslo.", DOCUMENT, "Please read the report. " * 20],
        [{"type": "image", "url": "x"}, {"type": "text", "text": "I live in Oslo."}, DOCUMENT],
    ],
)
def test_of_several_blocks_of_text_only_the_first_is_the_users_own(content: Any) -> None:
    said, later = HumanMessage(content, id="h1"), HumanMessage("Go on", id="h2")
    for read in (thread(said), thread(said, later)):
        assert read.source_of("The user lives in Oslo") == "user_stated"
        assert read.source_of("The bank account of Nordwind is LT12.") == "external"


def test_a_document_before_its_question_and_an_empty_first_block_make_nothing_the_users() -> None:
    for first, last in ((DOCUMENT, "What does the document say?"), ("", DOCUMENT)):
        read = thread(HumanMessage([first, last], id="h1"))
        assert read.source_of("The bank account of Nordwind is LT12.") == "external"


@pytest.mark.parametrize(
    ("content", "source"),
    [
        ("I live in Oslo.", "agent_inferred"),
        ("Read that page", "agent_inferred"),
        ("Fwd: offer\n\nNordwind has moved.", "external"),
        ([{"type": "text", "text": "See this"}, {"type": "file", "url": "x"}], "external"),
        ([{"type": "audio", "url": "x"}], "agent_inferred"),
    ],
    ids=["own", "request", "forwarded", "file", "voice"],
)
def test_a_turn_that_shows_text_from_outside_is_untrusted(content: Any, source: str) -> None:
    now, later = HumanMessage(content, id="h1"), HumanMessage("Go on", id="h2")
    assert thread(now).source_of("Pay Eve") == source
    assert thread(now, later).source_of("Pay Eve") == "agent_inferred"


def test_a_model_that_calls_tools_has_not_seen_their_output_yet() -> None:
    call = AIMessage([{"type": "tool_call", "name": "browse", "args": {}, "id": "c1"}])
    assert thread(HumanMessage("Hello", id="h1"), call).source_of("x y") == "agent_inferred"


def test_a_key_is_looked_for_where_recall_showed_it_but_never_outside() -> None:
    below = recalled(*ALICE, "work")
    assert thread(below).memory_named("k1", ALICE) == ((*ALICE, "work"), "k1")
    assert thread(below).memory_named("k2", ALICE) == (ALICE, "k2")
    assert thread(recalled("memories", "bob")).memory_named("k1", ALICE) == (ALICE, "k1")
    assert thread(recalled("memories")).memory_named("k1", ALICE) == (ALICE, "k1")


def test_a_handle_names_the_memory_that_a_block_showed_under_it() -> None:
    read = thread(records=[shown("The vault code is 4411", "user_stated", turn="h1")])
    assert read.memory_named("m1", ALICE) == (ALICE, "k1")
    assert read.memory_named("m2", ALICE) == (ALICE, "m2")
    assert read.memory_named("m1", ("memories", "bob")) == (("memories", "bob"), "m1")


@pytest.mark.parametrize("held", [None, "x", {"key": 1}, ["x"], [{"key": "k1"}]])
def test_artifacts_of_other_tools_are_passed_over(held: Any) -> None:
    assert artifact_of(ToolMessage("", tool_call_id="c1", artifact=held)) == []


def test_a_message_without_an_id_still_names_its_turn() -> None:
    one = thread(HumanMessage("Hello")).turn
    other = thread(HumanMessage("Hello"), AIMessage("Hi"), HumanMessage("Hello")).turn
    assert one
    assert one != other
