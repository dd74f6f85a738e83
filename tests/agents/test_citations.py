from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import Call
from langchain_core.messages import AIMessage, HumanMessage
from scripted import (
    ADA,
    BOB,
    FLIGHT_WORDS,
    OFF_TOPIC,
    PEANUT_WORDS,
    Chat,
    agent_of,
    calls,
    facts,
    model_of,
    recalled,
    shape,
)

from langmem_recall import LocalStore, RecallPolicy, RecallStore
from langmem_recall.agents.streaming import without_handles

ALL = RecallPolicy.default(trigger=0.0, floor=0.0)


def merits(store: RecallStore, namespace: tuple[str, ...] = ADA) -> dict[str, int]:
    """Net outcomes of each memory, read without leaving a trace."""
    with store.quiet():
        chosen = store.recall(namespace, FLIGHT_WORDS, policy=ALL).chosen
    return {one.memory.key: one.candidate.usage.merit for one in chosen}


def test_a_cited_memory_gets_credit_once_however_often_the_answer_cites_it(call: Call) -> None:
    store = facts()
    model = model_of(AIMessage("Aisle [m1]. As you said [m1], always the aisle [m1, m1]."))
    out = call(Chat(agent_of(model, store)), "say", FLIGHT_WORDS)
    assert merits(store) == {"seat": 1, "peanuts": 0}
    assert out["messages"][-1].text.startswith("Aisle [m1].")


def test_feedback_costs_no_model_call(call: Call) -> None:
    model = model_of(AIMessage("Aisle [m1]."))
    call(Chat(agent_of(model, facts())), "say", FLIGHT_WORDS)
    assert len(model.seen) == 1


def test_credit_is_written_when_the_run_ends(call: Call, tmp_path: Path) -> None:
    store = facts(inner=LocalStore(tmp_path / "memory.db"))
    call(Chat(agent_of(model_of(AIMessage("Aisle [m1].")), store)), "say", FLIGHT_WORDS)
    (usage,) = LocalStore(tmp_path / "memory.db").read_usage([(ADA, "seat")])
    assert (usage.uses, usage.merit) == (1, 1)


@pytest.mark.parametrize("answer", ["Aisle.", "Aisle [m2].", "Aisle [m0] [x1] m1", "`[m1]`", ""])
def test_what_cites_no_memory_that_was_shown_gives_no_credit(call: Call, answer: str) -> None:
    store = facts()
    call(Chat(agent_of(model_of(AIMessage(answer)), store)), "say", FLIGHT_WORDS)
    assert merits(store) == {"seat": 0, "peanuts": 0}


def test_feedback_can_be_switched_off(call: Call) -> None:
    store = facts()
    model = model_of(AIMessage("Aisle [m1]."))
    call(Chat(agent_of(model, store, feedback=False)), "say", FLIGHT_WORDS)
    assert merits(store) == {"seat": 0, "peanuts": 0}


def test_a_handle_means_the_same_memory_in_every_later_turn(call: Call) -> None:
    store = facts()
    script = ["I see.", "No peanuts [m2].", "As I said, the aisle [m1]."]
    chat = Chat(agent_of(model_of(*map(AIMessage, script)), store))
    for words in (FLIGHT_WORDS, PEANUT_WORDS, OFF_TOPIC):
        call(chat, "say", words)
    assert merits(store) == {"seat": 1, "peanuts": 1}


def test_cited_memories_get_credit_in_order_each_once(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, credited = facts(), []
    monkeypatch.setattr(store, "feedback", lambda *memory: credited.append(memory))
    text = "See [m2] and [m1; m9], or [m2]."
    answer = AIMessage([{"type": "text", "text": text}])
    chat = Chat(agent_of(model_of(AIMessage("I see."), answer), store))
    for words in (FLIGHT_WORDS, PEANUT_WORDS):
        call(chat, "say", words)
    assert credited == [(ADA, "peanuts"), (ADA, "seat")]


def test_citations_beside_tool_calls_count_as_well(call: Call) -> None:
    store = facts()
    model = model_of(calls("1", text="As you like the aisle [m1], I look."), AIMessage("Done."))
    call(Chat(agent_of(model, store)), "say", FLIGHT_WORDS)
    assert merits(store)["seat"] == 1


def test_a_user_s_answer_gives_no_credit_to_another_s_memory(call: Call) -> None:
    store = facts()
    model = model_of(AIMessage("Aisle."), AIMessage("Like before [m1]."))
    chat = Chat(agent_of(model, store), user="ada")
    call(chat, "say", FLIGHT_WORDS)
    call(replace(chat, user="bob"), "say", OFF_TOPIC)
    assert recalled(model.seen[1]) == []
    assert merits(store) == {"seat": 0, "peanuts": 0}
    assert merits(store, BOB) == {"seat": 0}


def test_handles_are_stripped_from_the_answer_by_choice(call: Call) -> None:
    store = facts()
    model = model_of(AIMessage("Take the aisle [m1], please."), AIMessage("Yes."))
    chat = Chat(agent_of(model, store, keep_citations=False))
    out = call(chat, "say", FLIGHT_WORDS)
    assert out["messages"][-1].text == "Take the aisle, please."
    assert merits(store)["seat"] == 1
    call(chat, "say", OFF_TOPIC)
    assert "ai: Take the aisle, please." in shape(model.seen[1])


def test_a_failing_feedback_does_not_break_the_turn(
    call: Call, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*args: Any, **kwargs: Any) -> None:
        raise OSError("disk full")

    store = facts()
    monkeypatch.setattr(store, "feedback", fail)
    out = call(Chat(agent_of(model_of(AIMessage("Aisle [m1].")), store)), "say", FLIGHT_WORDS)
    assert out["messages"][-1].text == "Aisle [m1]."
    assert "could not be written: OSError" in caplog.text


# --- the functions ---


def test_handles_leave_text_blocks_and_nothing_else() -> None:
    image = {"type": "image_url", "image_url": {"url": "https://example.org/[m1].png"}}
    answer = AIMessage(["So [m1].", {"type": "text", "text": "And [m2] so."}, image])
    assert without_handles(answer).content == ["So.", {"type": "text", "text": "And so."}, image]
    human = HumanMessage("What is [m1]?")
    assert without_handles(human) is human


def test_tool_calls_survive_the_stripping() -> None:
    answer = without_handles(calls("1", text="By [m1]"))
    assert isinstance(answer, AIMessage)
    assert (answer.content, answer.tool_calls[0]["id"]) == ("By", "1")
