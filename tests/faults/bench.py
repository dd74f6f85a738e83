"""Where a fault is tried out: a store with memories, behind each of the ways to reach it."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import pytest
from conftest import Clock
from faulty import INNER, Fault, FaultyEmbeddings, FaultyModel, FaultyReranker, Speaker
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph

from langmem_recall import (
    Caching,
    Recall,
    RecallMiddleware,
    RecallState,
    RecallStore,
    Writing,
    memory_tools,
    recall_node,
)
from langmem_recall.agents import session, tools
from langmem_recall.deadline import Deadline
from langmem_recall.flows import rerank, write
from langmem_recall.flows.rerank import Reranker

ADA = ("memories", "ada")
MINE = ("memories", "{user_id}")
SEAT = "I always book an aisle seat on flights"
MEAL = "I book a meal without meat on flights"
LONG = f"{SEAT}. " + " ".join(f"Seat {n} was taken on the flight of day {n}." for n in range(60))
CUE = "Do I book an aisle seat on flights?"
TOLD = "Museum in Gdansk: open from nine in the morning until six in the evening, closed Mondays."
SHORT_S = 0.6
"""Every limit there is, where something hangs; a quarter of it has to do for the words."""
TURN_S = 1.0
"""What a turn waits by default, where something is slow."""
SLACK_S = 3.0
"""Seconds for all of LangGraph's and our own work on a busy machine; a hang takes 60."""
PATIENT_S = 30.0


class Outcome(NamedTuple):
    """What came of one turn, or of one direct call."""

    took_s: float
    answer: str
    recall: Recall | None
    told: str
    """How the trace, else the tool's message, else the error names what went wrong."""

    @property
    def is_shown(self) -> bool:
        """Whether the memory that belongs there was recalled."""
        return self.recall is not None and "seat" in [one.key for one in self.recall.memories]


class State(MessagesState, RecallState):
    """A graph with recall."""


@tool
def look(what: str) -> str:
    """Look something up."""
    return TOLD


class Bench:
    """One cell of the matrix: who goes wrong, how, and who asks."""

    def __init__(self, part: str, fault: Fault, mode: str, surface: str, inner: str) -> None:
        self.part, self.kind, self.mode, self.surface = part, fault.kind, mode, surface
        self.fault = fault
        self.clock = Clock()
        self.traces: list[Recall] = []
        self.model = Speaker(script=[], seen=[])
        self.turns = 0
        idle = Fault("idle")
        self.inner = INNER[inner](
            part, self.fault, FaultyEmbeddings(self.fault if part == "embedder" else idle)
        )
        own_s = SHORT_S if fault.kind == "hangs" else PATIENT_S
        # Reranker and summarizer have limits of their own, which are to be met first.
        self.limit_s = PATIENT_S if part in ("reranker", "summarizer") else own_s
        if fault.kind == "slow" and surface in ("middleware", "node"):
            self.limit_s = PATIENT_S if part in ("reranker", "summarizer") else TURN_S
        summarizer = FaultyModel(fault=self.fault) if part == "summarizer" else None
        limit_s = SHORT_S if fault.kind == "slow" else own_s
        reranker = Reranker(FaultyReranker(fault=self.fault), limit_s=limit_s)
        self.store = RecallStore(
            self.inner,
            clock=self.clock,
            traces=self.traces.append,
            reranker=reranker if part == "reranker" else None,
            writing=Writing(summarizer=summarizer),
            caching=Caching(flush_interval=1_000),
        )
        self._runner = asyncio.Runner() if mode == "async" else None
        self._options = {
            "deadline": self.limit_s,
            "summarizer": summarizer,
            "summarizer_limit": own_s,
            "budget": 120 if summarizer else None,
        }
        self._graph = getattr(self, f"_{surface}")()
        seat = LONG if summarizer else SEAT
        self.store.remember(ADA, seat, key="seat", source="user_stated")
        self.store.remember(ADA, MEAL, key="meal", source="user_stated")

    # --- the four surfaces ---

    def _middleware(self) -> Any:
        recall = RecallMiddleware(MINE, **self._options)
        return self._agent([], [recall])

    def _node(self) -> Any:
        recall, model = recall_node(MINE, **self._options), self.model

        def answer(state: Any) -> dict[str, Any]:
            return {"messages": [model.invoke(recall.messages(state))]}

        async def aanswer(state: Any) -> dict[str, Any]:
            return {"messages": [await model.ainvoke(await recall.amessages(state))]}

        builder = StateGraph(State)
        builder.add_node("recall", recall)
        builder.add_node("model", RunnableLambda(answer, aanswer))
        builder.add_edge(START, "recall")
        builder.add_edge("recall", "model")
        builder.add_edge("model", END)
        return builder.compile(checkpointer=InMemorySaver(), store=self.store)

    def _tool(self) -> Any:
        return self._agent([look, *memory_tools(MINE, deadline=self.limit_s)], [])

    def _store(self) -> Any:
        return None

    def _agent(self, tools: Sequence[Any], middleware: Sequence[Any]) -> Any:
        return create_agent(
            self.model,
            tools=tools,
            middleware=middleware,
            store=self.store,
            checkpointer=InMemorySaver(),
        )

    # --- what is done with them ---

    def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """A method of the store, or its async twin."""
        return self._done(self.store, name, *args, **kwargs)

    def recalls(self) -> Outcome:
        """A turn in which the model is shown what is recalled, or recalls for itself."""
        self.clock.turn(hours=1)
        if self.surface == "store":
            return self._direct("recall", ADA, CUE)
        if self.surface == "tool":
            self.model.script[:] = [_calls("recall", query=CUE)]
        return self._says(CUE)

    def remembers(self, text: str, source: str = "user_stated") -> Outcome:
        """A turn in which the model remembers something, or the call that it stands for."""
        self.clock.turn(hours=1)
        if self.surface == "store":
            return self._direct("remember", ADA, text, source=source)
        self.model.script[:] = [_calls("remember", text=text)]
        if source == "external":
            self.model.script.insert(0, _calls("look", what="it"))
        return self._says("Note this.")

    def stored(self) -> dict[str, str]:
        """What the store holds for good: texts by key."""
        self.fault.is_on = False
        return {item.key: item.value["content"] for item in self.inner.search(ADA, limit=50)}

    def close(self) -> None:
        """Lift the fault, write what is pending, leave nothing running."""
        self.fault.lift()
        self.store.close()
        if self._runner is not None:
            self._runner.close()
        self.inner.close()

    def _direct(self, name: str, *args: Any, **kwargs: Any) -> Outcome:
        began = time.monotonic()
        try:
            got = self._done(self.store, name, *args, **kwargs)
        except Exception as error:
            return Outcome(time.monotonic() - began, "", None, f"{type(error).__name__}: {error}")
        recall = got if isinstance(got, Recall) else None
        told = "; ".join(recall.trace.degraded) if recall else f"remembered as {got.key}"
        return Outcome(time.monotonic() - began, "", recall, told)

    def _says(self, words: str) -> Outcome:
        self.turns += 1
        heard, config = len(self.traces), {"thread_id": f"t{self.turns}", "user_id": "ada"}
        said = {"messages": [HumanMessage(words, id=f"h{self.turns}")]}
        began = time.monotonic()
        state = self._done(self._graph, "invoke", said, config={"configurable": config})
        took_s = time.monotonic() - began
        recall = next(iter(self.traces[heard:]), None)
        results = [one.text for one in state["messages"] if isinstance(one, ToolMessage)]
        told = "; ".join(recall.trace.degraded) if recall else "; ".join(results[-1:])
        if self.surface in ("middleware", "node"):
            kept = self._graph.get_state({"configurable": config}).values["recalls"]
            assert recall is not None
            assert kept[-1]["degraded"] == list(recall.trace.degraded)
        return Outcome(took_s, state["messages"][-1].text, recall, told)

    def _done(self, host: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        if self._runner is None:
            return getattr(host, name)(*args, **kwargs)
        # An agent has limits of its own; whoever awaits a store directly sets one himself.
        limit_s = self.limit_s if host is self.store and self.fault.is_on else None

        async def main() -> Any:
            return await asyncio.wait_for(getattr(host, f"a{name}")(*args, **kwargs), limit_s)

        return self._runner.run(main())


def _calls(name: str, **args: Any) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": name, "args": args, "id": name}])


class Hurried(Deadline):
    """Heeds its limit while the fault is in force; sound turns take what a busy machine needs."""

    def __init__(self, fault: Fault, *limits: float, **more: bool) -> None:
        self._fault = fault
        super().__init__(*limits, **more)

    @property
    def seconds(self) -> float:
        return self._limit_s if self._fault.is_on else max(self._limit_s, PATIENT_S)

    @seconds.setter
    def seconds(self, limit_s: float) -> None:
        self._limit_s = limit_s


def hurry(monkeypatch: pytest.MonkeyPatch, fault: Fault) -> None:
    """Limits that are short for what hangs or is slow, and for nothing else."""
    for module in (session, tools, rerank):
        monkeypatch.setattr(module, "Deadline", partial(Hurried, fault))
    if fault.kind == "hangs":
        # No knob: a summarizer that writes has ten seconds.
        monkeypatch.setattr(write, "SUMMARY_LIMIT", Deadline(SHORT_S, SHORT_S))


def threads_left(before: Sequence[threading.Thread]) -> list[str]:
    """Names of threads that were not there before and do not end.

    A loop's own end with it, and two that read texts wait for more as long as the process lasts.
    """
    lasting = re.compile(r"asyncio|langmem-recall-text_[01]$")
    found = (one for one in threading.enumerate() if not lasting.search(one.name))
    new = [one for one in found if one not in before]
    for thread in new:
        thread.join(SLACK_S)
    return [thread.name for thread in new if thread.is_alive()]
