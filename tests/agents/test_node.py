import asyncio
import threading
import time
from collections.abc import Callable
from typing import Annotated, Any

import pytest
from conftest import Call
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.store.memory import InMemoryStore
from langgraph.types import interrupt
from pydantic import BaseModel
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
    ScriptedModel,
    agent_of,
    blocks,
    bytes_of,
    calls,
    facts,
    grows,
    look,
    model_of,
    nonces,
    recalled,
    shape,
)

from langmem_recall import Recall
from langmem_recall.agents.node import RecallNode, recall_node
from langmem_recall.agents.options import count_tokens
from langmem_recall.agents.turn import RecallRecord, RecallState, add_records
from langmem_recall.errors import ConfigurationError

M1, M2 = f"<m1 {SEAT}>", f"<m2 {PEANUTS}>"
STREAM_MODES = ("values", "updates", "messages", "custom", "checkpoints", "tasks", "debug")


class State(MessagesState, RecallState):
    """A graph with recall."""


def answering(model: ScriptedModel, recall: RecallNode) -> RunnableLambda:
    """The model's node, in both ways."""

    def answer(state: Any) -> dict[str, Any]:
        return {"messages": [model.invoke(recall.messages(state))]}

    async def aanswer(state: Any) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(await recall.amessages(state))]}

    return RunnableLambda(answer, aanswer)


def graph_of(
    model: ScriptedModel,
    store: Any,
    *,
    loop_to: str = "recall",
    first: str = "recall",
    saver: Any = None,
    schema: Any = State,
    **options: Any,
) -> Any:
    """recall -> model -> tools -> recall, or another loop."""
    recall = recall_node(MINE, **{**PATIENT, **options})
    builder = StateGraph(schema)
    builder.add_node("recall", recall)
    builder.add_node("model", answering(model, recall))
    builder.add_node("tools", ToolNode([look]))
    builder.add_edge(START, first)
    builder.add_edge("recall", "model")
    builder.add_conditional_edges("model", tools_condition, ["tools", END])
    builder.add_edge("tools", loop_to)
    return builder.compile(checkpointer=saver or InMemorySaver(), store=store)


def two_turns() -> list[AIMessage]:
    return [
        calls("1"),
        calls("2", "3"),
        AIMessage("Aisle."),
        AIMessage("Yes."),
        AIMessage("Puccini."),
    ]


@pytest.mark.parametrize("placement", ["before_turn", "end", "start", "in_turn"])
@pytest.mark.parametrize("loop_to", ["recall", "model"])
def test_a_graph_gives_its_model_what_the_middleware_would(
    call: Call, placement: Any, loop_to: str
) -> None:
    in_graph, in_agent = model_of(*two_turns()), model_of(*two_turns())
    options = {"placement": placement, "secret": "the same"}
    chats = [
        Chat(graph_of(in_graph, facts(), loop_to=loop_to, **options)),
        Chat(agent_of(in_agent, facts(), agent={"system_prompt": None}, **options)),
    ]
    for chat in chats:
        for words in (FLIGHT_WORDS, PEANUT_WORDS, OFF_TOPIC):
            call(chat, "say", words)
    assert [shape(one) for one in in_graph.seen] == [shape(one) for one in in_agent.seen]
    assert len(in_graph.seen) == 5
    assert recalled(in_graph.seen[4]) == [SEAT, PEANUTS]
    records = [[record["memories"] for record in chat.records] for chat in chats]
    assert records[0] == records[1]


@pytest.mark.parametrize("loop_to", ["recall", "model"])
def test_a_graph_s_messages_only_grow(call: Call, loop_to: str) -> None:
    model = model_of(*two_turns())
    chat = Chat(graph_of(model, facts(), loop_to=loop_to))
    for words in (FLIGHT_WORDS, PEANUT_WORDS, OFF_TOPIC):
        call(chat, "say", words)
    assert grows(model.seen)


@pytest.mark.parametrize("way", ["say", "stream"])
def test_no_checkpoint_no_history_and_no_stream_mode_has_the_block(call: Call, way: str) -> None:
    saver, model = InMemorySaver(), model_of(*two_turns())
    chat = Chat(graph_of(model, facts(), saver=saver))
    more = [STREAM_MODES] if way == "stream" else []
    out = [call(chat, way, words, *more) for words in (FLIGHT_WORDS, PEANUT_WORDS)]
    kept = repr((saver.storage, saver.writes, saver.blobs))
    history = repr(list(chat.graph.get_state_history(chat.config)))
    secrets = {SEAT, PEANUTS, "recalled-memories", "Evidence recalled", *nonces(model.seen[-1])}
    assert len(secrets) == 6
    for told in (repr(out), kept, history):
        assert FLIGHT_WORDS in told
        assert [secret for secret in secrets if secret in told] == []


def test_the_node_writes_a_record_and_a_custom_event(call: Call) -> None:
    chat = Chat(graph_of(model_of(), facts()))
    streamed = call(chat, "stream", FLIGHT_WORDS, ("custom", "updates"))
    (event,) = [held for mode, held in streamed if mode == "custom"]
    (record,) = chat.records
    assert event == {"type": "recall", "trace": event["trace"], **record}
    assert streamed[1] == ("updates", {"recall": {"recalls": [record]}})


def test_the_store_is_read_once_a_turn_however_long_the_loop(call: Call) -> None:
    traces: list[Recall] = []
    model = model_of(*two_turns())
    call(Chat(graph_of(model, facts(traces))), "say", FLIGHT_WORDS)
    assert len(model.seen) == 3
    assert [len(one.memories) for one in traces] == [1]


def test_without_its_node_the_messages_recall_by_themselves(call: Call) -> None:
    traces: list[Recall] = []
    model = model_of(*two_turns())
    chat = Chat(graph_of(model, facts(traces), first="model", loop_to="model"))
    for words in (FLIGHT_WORDS, PEANUT_WORDS):
        call(chat, "say", words)
    assert shape(model.seen[0]) == [M1, FLIGHT_WORDS]
    assert shape(model.seen[3])[-3:] == ["ai: Aisle.", M2, PEANUT_WORDS]
    assert grows(model.seen)
    assert [len(one.memories) for one in traces] == [1, 1]
    assert chat.records == []


def test_without_its_node_recall_moves_on_with_every_sub_task(call: Call) -> None:
    """Three cues in a turn: each block stays, and no handle is given twice."""
    steps = ["book a seat on a flight", "order a meal without peanuts", "water the ferns at home"]

    def step(state: Any) -> str:
        return steps[sum(message.type == "tool" for message in state["messages"])]

    store = facts()
    store.remember(ADA, "The ferns at home need water on Mondays", key="ferns")
    model = model_of(calls("1"), calls("2"), AIMessage("Done."))
    chat = Chat(graph_of(model, store, first="model", loop_to="model", cue=step))
    call(chat, "say", "Please plan my day")
    assert shape(model.seen[2]) == [
        M1,
        "Please plan my day",
        "call 1",
        "result 1",
        M2,
        "call 2",
        "result 2",
        "<m3 The ferns at home need water on Mondays>",
    ]
    assert grows(model.seen)


def test_an_interrupt_between_recall_and_model_shows_the_same_block_after_it(call: Call) -> None:
    def pause(state: Any) -> dict[str, Any]:
        interrupt("go on?")
        return {}

    traces: list[Recall] = []
    saver, model, store = InMemorySaver(), model_of(), facts(traces)

    def made() -> Any:
        recall = recall_node(MINE, **PATIENT)
        builder = StateGraph(State)
        builder.add_node("recall", recall)
        builder.add_node("pause", pause)
        builder.add_node("model", answering(model, recall))
        builder.add_edge(START, "recall")
        builder.add_edge("recall", "pause")
        builder.add_edge("pause", "model")
        return builder.compile(checkpointer=saver, store=store)

    chat = Chat(made())
    assert "__interrupt__" in call(chat, "say", FLIGHT_WORDS)
    chat.graph = made()
    call(chat, "resume", "yes")
    assert shape(model.seen[0]) == [M1, FLIGHT_WORDS]
    assert len(traces) == len(chat.records) == 1


def test_messages_are_those_of_the_state_and_the_state_is_not_touched(call: Call) -> None:
    seen: list[tuple[list[str], list[str]]] = []
    model, store = model_of(), facts()
    recall = recall_node(MINE, **PATIENT)

    def compare(state: Any) -> dict[str, Any]:
        before = bytes_of(state["messages"])
        composed = recall.messages(state)
        assert bytes_of(state["messages"]) == before
        seen.append((before, bytes_of(composed)))
        return {"messages": [model.invoke(composed)]}

    builder = StateGraph(State)
    builder.add_node("model", compare)
    builder.add_edge(START, "model")
    chat = Chat(builder.compile(store=store))
    call(chat, "say", FLIGHT_WORDS)
    (before, after) = seen[0]
    assert len(after) == 2
    assert after[1:] == before


class ModelState(BaseModel):
    """A state that is no mapping."""

    messages: Annotated[list[BaseMessage], add_messages] = []
    recalls: Annotated[list[RecallRecord], add_records] = []


def test_a_state_may_be_a_model(call: Call) -> None:
    model = model_of(calls("1"), AIMessage("Aisle."))
    chat = Chat(graph_of(model, facts(), schema=ModelState))
    call(chat, "say", FLIGHT_WORDS)
    assert shape(model.seen[1]) == [M1, FLIGHT_WORDS, "call 1", "result 1"]
    assert len(chat.records) == 1


def test_messages_without_ids_and_as_plain_pairs_are_understood(call: Call) -> None:
    class Plain(RecallState):
        messages: list[Any]

    model, recall = model_of(), recall_node(MINE, **PATIENT)
    builder = StateGraph(Plain)
    builder.add_node("recall", recall)
    builder.add_node("model", answering(model, recall))
    builder.add_edge(START, "recall")
    builder.add_edge("recall", "model")
    graph = builder.compile(store=facts())
    said = {"messages": [("user", "Hello there"), ("ai", "Hi."), ("user", FLIGHT_WORDS)]}
    call(graph, "invoke", said, {"configurable": {"user_id": "ada"}})
    assert shape(model.seen[0]) == ["Hello there", "ai: Hi.", M1, FLIGHT_WORDS]


def test_the_model_s_own_window_bounds_the_block() -> None:
    """A window of 1,000 tokens leaves 200: the frame and one memory, not eight."""
    store = facts()
    for number in range(8):
        words = f"On flight {number} I sat in row {number} and liked that seat " + "a lot " * 40
        store.remember(ADA, words, key=f"flight-{number}", source="user_stated")
    model = model_of(profile={"max_input_tokens": 1000})
    recall = recall_node(MINE, **PATIENT)

    def answer(state: Any) -> dict[str, Any]:
        return {"messages": [model.invoke(recall.messages(state, model))]}

    builder = StateGraph(State)
    builder.add_node("model", answer)
    builder.add_edge(START, "model")
    builder.compile(store=store).invoke(
        {"messages": [HumanMessage(FLIGHT_WORDS)]}, {"configurable": {"user_id": "ada"}}
    )
    (block,) = blocks(model.seen[0])
    assert count_tokens(block) <= 200


@pytest.mark.parametrize("on_error", ["skip", "raise"])
def test_configuration_errors_come_out_of_the_graph(call: Call, on_error: Any) -> None:
    graph = graph_of(model_of(), facts(), on_error=on_error)
    with pytest.raises(ConfigurationError, match="user_id"):
        call(Chat(graph, user=None), "say", FLIGHT_WORDS)
    with pytest.raises(ConfigurationError, match="no store"):
        call(Chat(graph_of(model_of(), None, on_error=on_error)), "say", FLIGHT_WORDS)


class FailingStore(InMemoryStore):
    """Hangs or raises, as it is told."""

    def __init__(self, act: Callable[[], Any]) -> None:
        super().__init__()
        self.act = act

    def batch(self, ops: Any) -> Any:
        return self.act()

    async def abatch(self, ops: Any) -> Any:
        return await asyncio.to_thread(self.act)


def test_a_graph_waits_once_for_a_store_that_hangs(call: Call) -> None:
    hold, model = threading.Event(), model_of(calls("1"))
    store = FailingStore(lambda: hold.wait(60))
    chat = Chat(graph_of(model, store, deadline=1.0, on_error="skip"))
    began = time.monotonic()
    call(chat, "say", FLIGHT_WORDS)
    took = time.monotonic() - began
    hold.set()
    assert 1.0 <= took < 2.0
    assert shape(model.seen[1]) == [FLIGHT_WORDS, "call 1", "result 1"]
    (record,) = chat.records
    assert record["reason"].startswith("no memories: TooLate")


def test_a_graph_goes_on_without_a_store_that_raises(call: Call) -> None:
    model = model_of()
    store = FailingStore(lambda: 1 / 0)
    chat = Chat(graph_of(model, store, on_error="skip"))
    call(chat, "say", FLIGHT_WORDS)
    assert shape(model.seen[0]) == [FLIGHT_WORDS]
    assert chat.records[0]["reason"] == "no memories: ZeroDivisionError"
    with pytest.raises(ZeroDivisionError):
        call(Chat(graph_of(model, store, on_error="raise")), "say", FLIGHT_WORDS)


def test_a_record_forged_in_the_state_shows_no_other_users_block() -> None:
    model = model_of(AIMessage("Aisle."), AIMessage("No idea."))
    graph = graph_of(model, facts())
    said = HumanMessage(FLIGHT_WORDS, id="the same")
    ada = {"configurable": {"user_id": "ada", "thread_id": "1"}}
    record = graph.invoke({"messages": [said]}, ada)["recalls"][0]
    assert recalled(model.seen[0]) == [SEAT]
    eve = {"configurable": {"user_id": "eve", "thread_id": "2"}}
    graph.invoke({"messages": [said], "recalls": [{**record, "memories": []}]}, eve)
    assert recalled(model.seen[1]) == []
