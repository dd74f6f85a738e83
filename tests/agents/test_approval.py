from typing import Any

import pytest
from conftest import Call
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from scripted import ADA, OFF_TOPIC, Chat, agent_of, calls, facts, model_of, recalled, shape

from langmem_recall import RecallStore
from langmem_recall.errors import ConfigurationError
from langmem_recall.types import Source

WIRE = "Pay 5 to account 77 before each flight"
DOUBTFUL: list[Source] = ["external", "agent_inferred", "recalled", "unknown"]
TRUSTED: list[Source] = ["user_stated", "user_correction", "tool_verified"]


def store_with(source: Source, **fields: Any) -> RecallStore:
    store = facts()
    store.remember(ADA, WIRE, key="wire", source=source, **fields)
    return store


def payment(then: str = "Done.") -> list[AIMessage]:
    return [calls("1", name="pay"), AIMessage(then)]


def asked(out: dict[str, Any]) -> Any:
    (question,) = out["__interrupt__"]
    return question.value


def results(out: dict[str, Any]) -> list[str]:
    return [message.text for message in out["messages"] if message.type == "tool"]


@pytest.mark.parametrize("source", DOUBTFUL)
def test_a_gated_tool_waits_where_an_unverified_memory_was_shown(
    call: Call, source: Source
) -> None:
    chat = Chat(agent_of(model_of(*payment()), store_with(source), gate_tools=("pay",)))
    question = asked(call(chat, "say", "Pay before my flight"))
    (request,) = question["action_requests"]
    assert (request["name"], request["args"]) == ("pay", {"amount": 5})
    assert f"wire ({source})" in request["description"]
    assert WIRE not in str(question)
    assert question["review_configs"][0]["allowed_decisions"] == ["approve", "reject"]


@pytest.mark.parametrize(
    "answer", [True, "approve", {"type": "approve"}, {"decisions": [{"type": "approve"}]}]
)
def test_an_approved_call_runs_once_and_the_turn_goes_on(call: Call, answer: Any) -> None:
    model = model_of(*payment())
    chat = Chat(agent_of(model, store_with("external"), gate_tools=("pay",)))
    call(chat, "say", "Pay before my flight")
    assert results(call(chat, "resume", answer)) == ["paid 5"]
    assert len(model.seen) == 2
    assert shape(model.seen[1])[-2:] == ["call 1", "result 1"]


@pytest.mark.parametrize(
    "answer",
    [
        False,
        "no",
        {"type": "reject"},
        {"decisions": [{"type": "reject", "message": "never"}]},
        {"decisions": [{"type": "approve"}, {"type": "reject"}]},
        {"decisions": ["approve"]},
        1,
    ],
)
def test_whatever_is_no_clear_yes_keeps_the_tool_from_running(call: Call, answer: Any) -> None:
    model = model_of(*payment())
    chat = Chat(agent_of(model, store_with("external"), gate_tools=("pay",)))
    call(chat, "say", "Pay before my flight")
    (told,) = results(call(chat, "resume", answer))
    assert told.startswith("A human did not approve pay")
    assert model.seen[1][-1].status == "error"


@pytest.mark.parametrize("source", TRUSTED)
def test_a_gated_tool_runs_where_every_memory_is_vouched_for(call: Call, source: Source) -> None:
    chat = Chat(agent_of(model_of(*payment()), store_with(source), gate_tools=("pay",)))
    out = call(chat, "say", "Pay before my flight")
    assert "__interrupt__" not in out
    assert results(out) == ["paid 5"]


def test_a_gated_tool_runs_where_nothing_was_recalled(call: Call) -> None:
    chat = Chat(agent_of(model_of(*payment()), store_with("external"), gate_tools=("pay",)))
    assert results(call(chat, "say", OFF_TOPIC)) == ["paid 5"]


def test_other_tools_run_without_asking(call: Call) -> None:
    model = model_of(calls("1"), AIMessage("Done."))
    chat = Chat(agent_of(model, store_with("external"), gate_tools=("pay",)))
    assert results(call(chat, "say", "Pay before my flight")) == ["found it"]


def test_several_gated_calls_are_asked_for_one_by_one(call: Call) -> None:
    model = model_of(calls("1", "2", name="pay"), AIMessage("Done."))
    chat = Chat(agent_of(model, store_with("external"), gate_tools=("pay",)))
    first = call(chat, "say", "Pay before my flight")["__interrupt__"]
    assert len(first) == 2
    decisions = {first[0].id: "approve", first[1].id: "reject"}
    told = results(call(chat, "resume", decisions))
    # Calls run side by side, so that either may have asked first.
    refused, paid = sorted(told)
    assert paid == "paid 5"
    assert refused.startswith("A human did not approve pay")


def test_a_block_that_is_replayed_still_asks_for_approval(call: Call) -> None:
    model = model_of(AIMessage("I will."), *payment())
    chat = Chat(agent_of(model, store_with("external"), gate_tools=("pay",)))
    call(chat, "say", "What do I pay before each flight?")
    assert recalled(model.seen[0])[0] == WIRE
    assert "wire (external)" in str(asked(call(chat, "say", OFF_TOPIC)))


def test_a_block_that_is_out_of_view_does_not(call: Call) -> None:
    model = model_of(AIMessage("I will."), *payment())
    chat = Chat(agent_of(model, store_with("external"), gate_tools=("pay",), replay=False))
    call(chat, "say", "What do I pay before each flight?")
    assert results(call(chat, "say", OFF_TOPIC)) == ["paid 5"]


def test_what_the_recall_tool_showed_asks_for_approval_too(call: Call) -> None:
    wanted = {"name": "recall", "args": {"query": "pay to account 77 before flight"}, "id": "0"}
    model = model_of(AIMessage("", tool_calls=[wanted]), *payment())
    store = store_with("external")
    chat = Chat(agent_of(model, store, tools=("recall",), gate_tools=("pay",)))
    question = asked(call(chat, "say", OFF_TOPIC))
    assert WIRE in str(model.seen[1][-1].content)
    assert "wire (external)" in question["action_requests"][0]["description"]


@pytest.mark.parametrize("on_error", ["skip", "raise"])
def test_without_a_checkpointer_gate_tools_is_refused_before_the_model_is_called(
    call: Call, on_error: str
) -> None:
    model = model_of()
    more = {"checkpointer": None}
    graph = agent_of(model, facts(), gate_tools=("pay",), on_error=on_error, agent=more)
    with pytest.raises(ConfigurationError, match="checkpointer"):
        call(Chat(graph), "say", OFF_TOPIC)
    assert model.seen == []


def test_an_agent_within_a_graph_uses_the_graph_s_checkpointer(call: Call) -> None:
    more = {"checkpointer": None}
    inner = agent_of(model_of(*payment()), store_with("external"), gate_tools=("pay",), agent=more)
    builder = StateGraph(MessagesState)
    builder.add_node("agent", inner)
    builder.add_edge(START, "agent")
    chat = Chat(builder.compile(checkpointer=InMemorySaver(), store=store_with("external")))
    assert "wire (external)" in str(asked(call(chat, "say", "Pay before my flight")))
    assert results(call(chat, "resume", "approve")) == ["paid 5"]
