"""With LangChain's own middleware; recall is best listed before retry and fallback."""

from itertools import pairwise
from typing import Any

import pytest
from conftest import Call
from langchain.agents.middleware import (
    ClearToolUsesEdit,
    ContextEditingMiddleware,
    ModelFallbackMiddleware,
    ModelRetryMiddleware,
    PIIMiddleware,
    SummarizationMiddleware,
    TodoListMiddleware,
)
from langchain_anthropic import ChatAnthropic
from langchain_anthropic.middleware import AnthropicPromptCachingMiddleware
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from scripted import (
    ADA,
    FLIGHT_WORDS,
    MINE,
    OFF_TOPIC,
    PATIENT,
    PEANUT_WORDS,
    PEANUTS,
    SEAT,
    Chat,
    agent_of,
    blocks,
    bytes_of,
    calls,
    facts,
    grows,
    model_of,
    recalled,
    shape,
)

from langmem_recall import Recall, RecallMiddleware, RecallPolicy
from langmem_recall.rendering import Entry, render_block

SYSTEM = "system: Be kind."
M1, M2 = f"<m1 {SEAT}>", f"<m2 {PEANUTS}>"


def around(order: str, other: Any) -> dict[str, Any]:
    """Another middleware before recall or after it."""
    return {"before": [other]} if order == "before" else {"middleware": [other]}


either_order = pytest.mark.parametrize("order", ["before", "after"])


# --- retry and fallback ---


def test_a_retry_after_recall_sends_the_same_bytes_and_searches_once(call: Call) -> None:
    traces: list[Recall] = []
    model = model_of(OSError("busy"), OSError("busy"), AIMessage("Aisle."))
    retry = ModelRetryMiddleware(max_retries=3, initial_delay=0, jitter=False)
    chat = Chat(agent_of(model, facts(traces), middleware=[retry]))
    out = call(chat, "say", FLIGHT_WORDS)
    assert out["messages"][-1].text == "Aisle."
    assert shape(model.seen[0]) == [SYSTEM, M1, FLIGHT_WORDS]
    assert len({str(bytes_of(messages)) for messages in model.seen}) == 1
    assert len(traces) == len(chat.records) == 1


def test_a_retry_listed_before_recall_does_not_search_again_either(call: Call) -> None:
    traces: list[Recall] = []
    model = model_of(OSError("busy"), AIMessage("Aisle."))
    retry = ModelRetryMiddleware(max_retries=3, initial_delay=0, jitter=False)
    chat = Chat(agent_of(model, facts(traces), before=[retry]))
    call(chat, "say", FLIGHT_WORDS)
    call(chat, "say", OFF_TOPIC)
    assert [len(recalled(messages)) for messages in model.seen] == [1, 1, 1]
    assert [len(one.memories) for one in traces] == [1, 0]


@either_order
def test_a_fallback_gets_what_the_first_model_got(call: Call, order: str) -> None:
    traces: list[Recall] = []
    first, second = model_of(OSError("down")), model_of(AIMessage("Aisle [m1]."))
    store = facts(traces)
    fallback = ModelFallbackMiddleware(second)
    call(Chat(agent_of(first, store, **around(order, fallback))), "say", FLIGHT_WORDS)
    assert bytes_of(first.seen[0]) == bytes_of(second.seen[0])
    assert shape(second.seen[0]) == [SYSTEM, M1, FLIGHT_WORDS]
    assert len(traces) == 1


# --- summaries ---


@either_order
def test_summaries_are_made_without_blocks_and_blocks_of_lost_turns_go(
    call: Call, order: str
) -> None:
    model, writer = model_of(), model_of(AIMessage("They talked about seats."))
    summary = SummarizationMiddleware(writer, trigger=("messages", 4), keep=("messages", 2))
    chat = Chat(agent_of(model, facts(), **around(order, summary)))
    for words in (FLIGHT_WORDS, OFF_TOPIC, PEANUT_WORDS):
        call(chat, "say", words)
    assert blocks(model.seen[1])
    assert blocks(writer.seen[0]) == []
    assert SEAT not in str(writer.seen)
    last = shape(model.seen[2])
    assert last[0] == SYSTEM
    assert "They talked about seats." in last[1]
    assert last[-2:] == [M2, PEANUT_WORDS]
    assert recalled(model.seen[2]) == [PEANUTS]


def test_what_a_lost_turn_showed_can_be_recalled_again(call: Call) -> None:
    model, writer = model_of(), model_of(AIMessage("They talked."))
    summary = SummarizationMiddleware(writer, trigger=("messages", 4), keep=("messages", 1))
    chat = Chat(agent_of(model, facts(), before=[summary]))
    for words in (FLIGHT_WORDS, OFF_TOPIC, FLIGHT_WORDS):
        call(chat, "say", words)
    assert shape(model.seen[2])[-2:] == [f"<m2 {SEAT}>", FLIGHT_WORDS]


@either_order
def test_a_turn_whose_beginning_is_summarised_away_keeps_its_block(call: Call, order: str) -> None:
    model = model_of(calls("1"), calls("2"), calls("3"), AIMessage("Aisle."))
    writer = model_of(AIMessage("So far: looked."), AIMessage("So far: looked twice."))
    summary = SummarizationMiddleware(writer, trigger=("messages", 4), keep=("messages", 2))
    chat = Chat(agent_of(model, facts(), **around(order, summary)))
    call(chat, "say", FLIGHT_WORDS)
    assert FLIGHT_WORDS not in shape(model.seen[2])
    assert [recalled(messages) for messages in model.seen] == [[SEAT]] * 4
    for messages in model.seen:
        short = shape(messages)
        for number in ("1", "2", "3"):
            if f"call {number}" in short:
                assert short[short.index(f"call {number}") + 1] == f"result {number}"


def test_a_gated_tool_waits_although_the_turn_s_beginning_was_summarised_away(
    call: Call,
) -> None:
    store = facts()
    store.remember(ADA, "Pay 5 to account 77 before each flight", key="wire", source="external")
    model = model_of(calls("1"), calls("2"), calls("3", name="pay"))
    writer = model_of(AIMessage("So far: looked."), AIMessage("So far: looked twice."))
    summary = SummarizationMiddleware(writer, trigger=("messages", 4), keep=("messages", 2))
    chat = Chat(agent_of(model, store, before=[summary], gate_tools=("pay",)))
    out = call(chat, "say", "Pay what I pay before each flight")
    assert "wire (external)" in str(out["__interrupt__"])


# --- context editing ---


@either_order
def test_context_editing_clears_results_and_leaves_blocks(call: Call, order: str) -> None:
    edit = ClearToolUsesEdit(trigger=1, keep=1, placeholder="cleared")
    editing = ContextEditingMiddleware(edits=[edit])
    model = model_of(calls("1"), calls("2"), AIMessage("Aisle."), AIMessage("Yes."))
    chat = Chat(agent_of(model, facts(), **around(order, editing)))
    call(chat, "say", FLIGHT_WORDS)
    call(chat, "say", PEANUT_WORDS)
    loop = ["call 1", "result 1", "call 2", "result 2"]
    assert shape(model.seen[2]) == [SYSTEM, M1, FLIGHT_WORDS, *loop]
    assert shape(model.seen[3])[-2:] == [M2, PEANUT_WORDS]
    results = [one.text for one in model.seen[2] if one.type == "tool"]
    assert results == ["cleared", "found it"]
    assert recalled(model.seen[3]) == [SEAT, PEANUTS]


# --- to-do lists ---


def todos(*entries: tuple[str, str], named: str) -> AIMessage:
    listed = [{"content": content, "status": status} for content, status in entries]
    return AIMessage(
        "", tool_calls=[{"name": "write_todos", "args": {"todos": listed}, "id": named}]
    )


@either_order
def test_todos_become_the_cue_and_recall_moves_on_with_them(call: Call, order: str) -> None:
    model = model_of(
        todos(("book a seat on the flight", "in_progress"), named="1"),
        todos(
            ("book a seat on the flight", "completed"),
            ("order a meal without peanuts", "in_progress"),
            named="2",
        ),
        AIMessage("Done."),
    )
    chat = Chat(agent_of(model, facts(), **around(order, TodoListMiddleware())))
    call(chat, "say", "Thanks, go on")
    assert shape(model.seen[2])[1:] == [
        "Thanks, go on",
        "call 1",
        "result 1",
        M1,
        "call 2",
        "result 2",
        M2,
    ]
    assert grows(model.seen)
    assert "write_todos" in model.seen[0][0].text


# --- prompt caching ---


class RecordingAnthropic(ChatAnthropic):
    """Anthropic's own conversion; what would be sent is kept instead."""

    payloads: list[dict[str, Any]]
    script: list[AIMessage]

    def _generate(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> ChatResult:
        self.payloads.append(self._get_request_payload(messages, stop=stop, **kwargs))
        return ChatResult(generations=[ChatGeneration(message=self.script.pop(0))])

    async def _agenerate(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> ChatResult:
        return self._generate(messages, stop, run_manager, **kwargs)


@either_order
@pytest.mark.parametrize("placement", ["before_turn", "in_turn"])
def test_prompt_caching_finds_a_prefix_that_only_grows(
    call: Call, order: str, placement: Any
) -> None:
    script = [calls("1"), AIMessage("Aisle."), AIMessage("Yes.")]
    model = RecordingAnthropic(
        model_name="claude-sonnet-4-5", api_key="none", payloads=[], script=script
    )
    caching = AnthropicPromptCachingMiddleware(unsupported_model_behavior="raise")
    chat = Chat(agent_of(model, facts(), placement=placement, **around(order, caching)))
    call(chat, "say", FLIGHT_WORDS)
    call(chat, "say", PEANUT_WORDS)
    systems = {str(payload["system"]) for payload in model.payloads}
    (system,) = systems
    assert "recalled-memories" not in system
    assert all(payload["cache_control"]["type"] == "ephemeral" for payload in model.payloads)
    sent = [payload["messages"] for payload in model.payloads]
    assert "recalled-memories" in str(sent[0][0])
    for before, after in pairwise(sent):
        assert after[: len(before)] == before


# --- two recalls in one agent ---

TEAM = ("team", "shop")
AGENCY = "Flights are booked through Acme Travel"
BOTH_WORDS = "Which seat should I book for my flight, and who books flights?"


def with_team(traces: list[Recall] | None = None) -> Any:
    store = facts(traces)
    store.remember(TEAM, AGENCY, key="acme", source="tool_verified")
    return store


def team_recall(**options: Any) -> RecallMiddleware:
    policy = RecallPolicy.default(top_k=2)
    return RecallMiddleware(TEAM, policy=policy, **{"name": "team", **PATIENT, **options})


@pytest.mark.parametrize("name", [None, "team"])
def test_two_recalls_in_one_agent_show_a_block_each_under_handles_of_their_own(
    call: Call, name: str | None
) -> None:
    store = with_team()
    answers = [calls("c1"), AIMessage("Aisle, by Acme [m2]."), AIMessage("No [m3].")]
    model = model_of(*answers, AIMessage("Acme."))
    chat = Chat(agent_of(model, store, middleware=[team_recall(name=name or "")]))
    call(chat, "say", BOTH_WORDS)
    call(chat, "say", PEANUT_WORDS)
    acme = f"<m2 {AGENCY}>"
    assert shape(model.seen[0]) == [SYSTEM, M1, acme, BOTH_WORDS]
    assert shape(model.seen[2])[:4] == shape(model.seen[0])
    assert shape(model.seen[2])[-2:] == [f"<m3 {PEANUTS}>", PEANUT_WORDS]
    assert grows(model.seen)
    shown = [(one["memories"][0]["handle"], one["by"]) for one in chat.records if one["memories"]]
    assert sorted(shown) == [("m1", ""), ("m2", name or ""), ("m3", "")]
    store.flush()
    usages = store.inner.read_usage([(ADA, "seat"), (TEAM, "acme"), (ADA, "peanuts")])
    assert [usage.merit for usage in usages] == [0, 1, 1]


def test_two_recalls_of_one_namespace_do_not_repeat_each_other(call: Call) -> None:
    model = model_of()
    again = RecallMiddleware(MINE, policy=RecallPolicy.default(top_k=1), name="again", **PATIENT)
    chat = Chat(agent_of(model, facts(), middleware=[again]))
    for words in (FLIGHT_WORDS, PEANUT_WORDS, OFF_TOPIC):
        call(chat, "say", words)
    assert recalled(model.seen[-1]) == [SEAT, PEANUTS]
    assert grows(model.seen)


def test_two_recalls_of_one_namespace_need_a_name() -> None:
    with pytest.raises(AssertionError, match="duplicate middleware"):
        agent_of(model_of(), facts(), middleware=[RecallMiddleware(MINE)])
    assert RecallMiddleware(MINE).name == "RecallMiddleware(memories/{user_id})"
    assert team_recall().name == "team"


# --- personal data ---

MAIL = "My sister Mia lives in Bergen and reads mia@example.org"


def redacting(entries: Any, nonce: str, at: Any) -> str:
    def redacted(entry: Entry) -> Entry:
        text = entry.memory.text if entry.text is None else entry.text
        return entry._replace(text=text.replace("mia@example.org", "(e-mail)"))

    return render_block([redacted(entry) for entry in entries], nonce, at)


@either_order
def test_langchain_s_pii_middleware_reads_the_state_and_a_renderer_reads_the_block(
    call: Call, order: str
) -> None:
    """What is recalled is in no state, so only who makes or sends the block can redact it."""
    words = "Where does my sister Mia live? Answer to ada@example.org."
    seen = []
    for options in ({}, {"renderer": redacting}):
        store, model = facts(), model_of()
        store.remember(ADA, MAIL, key="mia", source="user_stated")
        other = around(order, PIIMiddleware("email", strategy="redact"))
        chat = Chat(agent_of(model, store, **other, **options))
        call(chat, "say", words)
        seen.append(model.seen[0])
    for messages in seen:
        assert messages[-1].text == words.replace("ada@example.org", "[REDACTED_EMAIL]")
    assert recalled(seen[0]) == [MAIL]
    assert recalled(seen[1]) == [MAIL.replace("mia@example.org", "(e-mail)")]


# --- chat templates in which user and assistant take turns ---


def roles(messages: list[BaseMessage]) -> list[str]:
    """As strict templates count them: tool calls and their results are no turn."""
    counted = [said for said in messages if said.type in ("human", "ai")]
    return [said.type for said in counted if not getattr(said, "tool_calls", None)]


def test_in_turn_user_and_assistant_take_turns_through_tool_loops(call: Call) -> None:
    model = model_of(calls("c1"), AIMessage("Aisle."), AIMessage("Yes."), calls("c2"))
    # What the human asked for stays the same however many tools are called for it.
    chat = Chat(
        agent_of(model, facts(), placement="in_turn", cue=lambda s: latest_words(s["messages"]))
    )
    for words in (FLIGHT_WORDS, PEANUT_WORDS, OFF_TOPIC):
        call(chat, "say", words)
    assert len(model.seen) == 5
    for messages in model.seen:
        assert roles(messages) == [("human", "ai")[i % 2] for i in range(len(roles(messages)))]
    assert recalled(model.seen[-1]) == [SEAT, PEANUTS]
    assert grows(model.seen)


def latest_words(messages: list[BaseMessage]) -> str:
    return [said.text for said in messages if said.type == "human"][-1]
