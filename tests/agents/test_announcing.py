from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from conftest import Call
from langchain_core.callbacks import AsyncCallbackHandler, BaseCallbackHandler
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tracers import LangChainTracer
from langgraph.graph import START, StateGraph
from langsmith import Client
from scripted import (
    ADA,
    FLIGHT_WORDS,
    MINE,
    OFF_TOPIC,
    PATIENT,
    SEAT,
    Chat,
    agent_of,
    facts,
    model_of,
)

from langmem_recall import Recall
from langmem_recall.agents.node import recall_node
from langmem_recall.agents.turn import RecallState
from langmem_recall.observe.log import TraceLog, read_log
from langmem_recall.observe.show import recall_id


class State(RecallState):
    messages: list[Any]


def node_graph(store: Any) -> Any:
    """A graph whose model is given messages without a node having recalled for them."""
    recall = recall_node(MINE, **PATIENT)

    def model(state: State) -> dict[str, Any]:
        return {"messages": [*recall.messages(state), AIMessage("Noted.")]}

    async def amodel(state: State) -> dict[str, Any]:
        return {"messages": [*await recall.amessages(state), AIMessage("Noted.")]}

    builder = StateGraph(State).add_node("model", RunnableLambda(model, afunc=amodel))
    return builder.add_edge(START, "model").compile(store=store)


def made(host: str, store: Any) -> Any:
    return node_graph(store) if host == "node" else agent_of(model_of(), store)


class Listener(BaseCallbackHandler):
    """Keeps the custom events of a run, or fails when it hears one."""

    raise_error = True

    def __init__(self, fault: Exception | None = None) -> None:
        self.heard: list[tuple[str, Any]] = []
        self.fault = fault

    def on_custom_event(self, name: str, data: Any, **_: Any) -> None:
        self.heard.append((name, data))
        if self.fault:
            raise self.fault


class AsyncListener(AsyncCallbackHandler):
    def __init__(self) -> None:
        self.heard: list[tuple[str, Any]] = []

    async def on_custom_event(self, name: str, data: Any, **_: Any) -> None:
        self.heard.append((name, data))


class Listened(Chat):
    """A chat whose runs have callbacks."""

    callbacks: list[Any]

    @property
    def config(self) -> dict[str, Any]:
        return {**super().config, "callbacks": self.callbacks}


def chat_with(graph: Any, *callbacks: Any) -> Listened:
    chat = Listened(graph)
    chat.callbacks = list(callbacks)
    return chat


@pytest.mark.parametrize("host", ["middleware", "node"])
def test_callbacks_hear_of_a_recall_and_find_its_trace(call: Call, host: str) -> None:
    traces: list[Recall] = []
    listener, waiting = Listener(), AsyncListener()
    call(chat_with(made(host, facts(traces)), listener, waiting), "say", FLIGHT_WORDS)
    ((name, event),) = listener.heard
    assert (name, event["type"], event["reason"]) == ("recall", "recall", "1 recalled")
    assert [memory["key"] for memory in event["memories"]] == ["seat"]
    assert event["trace"] == recall_id(traces[0])
    assert waiting.heard == listener.heard
    assert SEAT not in json.dumps(event)


@pytest.mark.parametrize("with_text", [True, False])
def test_a_log_holds_the_answer_with_the_thread_and_turn_of_its_recall(
    call: Call, with_text: bool, tmp_path: Path
) -> None:
    looked = AIMessage(
        "Let me look.", tool_calls=[{"name": "look", "args": {"what": "seats"}, "id": "1"}]
    )
    path = tmp_path / "traces.jsonl"
    with TraceLog(path, with_text=with_text) as log:
        chat = Chat(agent_of(model_of(looked, "An aisle seat [m1]."), facts(sink=log)))
        call(chat, "say", FLIGHT_WORDS)
        records = {record["kind"]: record for record in read_log(path)}
        if not with_text:
            assert "answer" not in records
            assert records["recall"].keys().isdisjoint({"thread_id", "turn"})
            return
        recall, answer = records["recall"], records["answer"]
        assert answer["text"] == "An aisle seat [m1]."
        assert (answer["thread_id"], answer["turn"]) == ("thread-1", recall["turn"])
        assert recall["thread_id"] == "thread-1"
        assert answer["memories"] == [[list(ADA), "seat"]]
        # Who forgets the memory forgets what was said of it.
        log.erase(ADA, "seat")
        assert "aisle" not in path.read_text(encoding="utf-8")


def test_an_empty_recall_is_announced_with_its_reason(call: Call) -> None:
    listener = Listener()
    call(chat_with(agent_of(model_of(), facts()), listener), "say", OFF_TOPIC)
    ((_, event),) = listener.heard
    assert event["memories"] == []
    assert "below the trigger" in event["reason"]


def test_the_reason_counts_what_is_shown_within_the_budget(call: Call) -> None:
    traces: list[Recall] = []
    store, listener = facts(traces), Listener()
    for airline in ("Lufthansa", "Finnair", "Iberia", "Swiss", "Delta"):
        store.remember(ADA, f"On {airline} flights I book a seat by the aisle", key=airline)
    call(chat_with(agent_of(model_of(), store, budget=180), listener), "say", FLIGHT_WORDS)
    ((_, event),) = listener.heard
    assert event["dropped"]["budget"] > 0
    assert len(event["memories"]) > 0
    assert event["reason"] == traces[-1].reason == f"{len(event['memories'])} recalled"


def test_a_listener_that_fails_does_not_break_the_turn(call: Call) -> None:
    listener = Listener(RuntimeError("deaf"))
    model = model_of("Aisle.")
    answer = call(chat_with(agent_of(model, facts()), listener), "say", FLIGHT_WORDS)
    assert len(listener.heard) == 1
    assert answer["messages"][-1].text == "Aisle."
    assert SEAT in repr(model.seen)


class LangSmith(ThreadingHTTPServer):
    """Speaks as much of LangSmith's protocol as its client needs to post runs one by one."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Runs)
        self.runs: dict[str, dict[str, Any]] = {}


class _Runs(BaseHTTPRequestHandler):
    server: LangSmith

    def _take(self) -> None:
        told = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        run = self.server.runs.setdefault(told.get("id") or self.path.rpartition("/")[2], {})
        run.update({name: held for name, held in told.items() if held is not None})
        self.send_response(202)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_POST = do_PATCH = _take

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def langsmith() -> Iterator[LangSmith]:
    with LangSmith() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("host", ["middleware", "node"])
def test_langsmith_has_the_recall_as_metadata_of_the_run(
    call: Call, langsmith: LangSmith, host: str
) -> None:
    url = f"http://127.0.0.1:{langsmith.server_address[1]}"
    client = Client(api_url=url, api_key="key", auto_batch_tracing=False)
    traces: list[Recall] = []
    tracer = LangChainTracer(client=client)
    call(chat_with(made(host, facts(traces)), tracer), "say", FLIGHT_WORDS)
    tracer.wait_for_futures()
    (run,) = [run for run in langsmith.runs.values() if "recall_trace" in told_of(run)]
    told = told_of(run)
    assert told["recall_trace"] == recall_id(traces[0])
    assert (told["recall_memories"], told["recall_keys"]) == (1, "seat")
    assert (told["recall_reason"], told["recall_degraded"]) == ("1 recalled", "")
    assert 0 < told["recall_tokens"] < 2000


def told_of(run: dict[str, Any]) -> dict[str, Any]:
    metadata: dict[str, Any] = run.get("extra", {}).get("metadata", {})
    return metadata
