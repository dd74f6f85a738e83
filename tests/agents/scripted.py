"""Agents under test: a scripted model that keeps what it was given, and threads to talk in."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count, pairwise
from typing import Any

from conftest import Clock
from langchain.agents import create_agent
from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from langmem_recall import LocalStore, Recall, RecallStore
from langmem_recall.agents.middleware import RecallMiddleware
from langmem_recall.rendering import SENTENCE

ADA = ("memories", "ada")
BOB = ("memories", "bob")
MINE = ("memories", "{user_id}")
PATIENT: dict[str, Any] = {"deadline": float("inf"), "on_error": "raise"}
"""Faults are seen and nothing is late, however busy the machine."""

SEAT = "I always book an aisle seat on flights"
PEANUTS = "I am allergic to peanuts"
FLIGHT_WORDS = "Which seat should I book for my flight?"
PEANUT_WORDS = "Am I allergic to peanuts?"
OFF_TOPIC = "Who composed Tosca?"

Answer = AIMessage | Exception | Callable[[Sequence[BaseMessage]], AIMessage]


class ScriptedModel(BaseChatModel):
    """Says its lines in order, then "Noted.", and keeps the messages it was given."""

    script: list[Any]
    seen: list[list[BaseMessage]]

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self._next(messages))])

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        answer = self._next(messages)
        for word in re.findall(r"\S+\s*", str(answer.content)):
            chunk = ChatGenerationChunk(message=AIMessageChunk(word))
            if run_manager:
                run_manager.on_llm_new_token(word, chunk=chunk)
            yield chunk
        calls = [
            {"name": one["name"], "args": json.dumps(one["args"]), "id": one["id"], "index": place}
            for place, one in enumerate(answer.tool_calls)
        ]
        last = AIMessageChunk("", tool_call_chunks=calls, chunk_position="last")
        yield ChatGenerationChunk(message=last)

    def _next(self, messages: list[BaseMessage]) -> AIMessage:
        self.seen.append(list(messages))
        line = self.script.pop(0) if self.script else AIMessage("Noted.")
        if isinstance(line, Exception):
            raise line
        said = line(messages) if callable(line) else line
        return AIMessage(said) if isinstance(said, str) else said


def model_of(*script: Answer | str, **fields: Any) -> ScriptedModel:
    """A model with these lines."""
    return ScriptedModel(script=list(script), seen=[], **fields)


@tool
def look(what: str) -> str:
    """Look something up."""
    return f"found {what}"


@tool
def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


def calls(*named: str, text: str = "", name: str = "look") -> AIMessage:
    """An answer that calls a tool, once for each id."""
    args = {"look": {"what": "it"}, "pay": {"amount": 5}}[name]
    return AIMessage(text, tool_calls=[{"name": name, "args": args, "id": one} for one in named])


def facts(traces: list[Recall] | None = None, inner: Any = None, **options: Any) -> RecallStore:
    """A store in which Ada and Bob have said what they like."""
    clock = options.pop("clock", Clock())
    keep = options.pop("sink", None if traces is None else traces.append)
    store = RecallStore(inner or LocalStore(), clock=clock, traces=keep, **options)
    store.remember(ADA, SEAT, key="seat", source="user_stated")
    store.remember(ADA, PEANUTS, key="peanuts", source="user_stated")
    store.remember(BOB, "I always book a window seat on flights", key="seat", source="user_stated")
    return store


@dataclass
class Chat:
    """One thread of a graph; each method has a twin that awaits."""

    graph: Any
    user: str | None = "ada"
    thread: str | None = "thread-1"
    context: Any = None
    ids: Iterator[int] = field(default_factory=lambda: count(1))

    @property
    def config(self) -> dict[str, Any]:
        held = {"thread_id": self.thread, "user_id": self.user}
        return {"configurable": {name: told for name, told in held.items() if told is not None}}

    @property
    def more(self) -> dict[str, Any]:
        return {"config": self.config} | ({"context": self.context} if self.context else {})

    def said(self, text: str, state: dict[str, Any]) -> dict[str, Any]:
        return {"messages": [HumanMessage(text, id=f"h{next(self.ids)}")], **state}

    def say(self, text: str, **state: Any) -> Any:
        return self.graph.invoke(self.said(text, state), **self.more)

    async def asay(self, text: str, **state: Any) -> Any:
        return await self.graph.ainvoke(self.said(text, state), **self.more)

    def resume(self, answer: Any) -> Any:
        return self.graph.invoke(Command(resume=answer), **self.more)

    async def aresume(self, answer: Any) -> Any:
        return await self.graph.ainvoke(Command(resume=answer), **self.more)

    def stream(self, text: str, modes: Sequence[str]) -> list[Any]:
        return list(self.graph.stream(self.said(text, {}), stream_mode=list(modes), **self.more))

    async def astream(self, text: str, modes: Sequence[str]) -> list[Any]:
        said = self.said(text, {})
        return [one async for one in self.graph.astream(said, stream_mode=list(modes), **self.more)]

    @property
    def records(self) -> list[Any]:
        """What the thread's state holds of its recalls."""
        return list(self.graph.get_state(self.config).values.get("recalls", ()))


def agent_of(
    model: BaseChatModel,
    run_store: Any,
    *,
    middleware: Sequence[Any] = (),
    before: Sequence[Any] = (),
    agent: dict[str, Any] | None = None,
    namespace: Any = MINE,
    **options: Any,
) -> Any:
    """An agent with recall, patient unless told otherwise."""
    recall = RecallMiddleware(namespace, **{**PATIENT, **options})
    held = {"system_prompt": "Be kind.", "checkpointer": InMemorySaver(), "tools": [look, pay]}
    return create_agent(
        model,
        store=run_store,
        middleware=[*before, recall, *middleware],
        **{**held, **(agent or {})},
    )


# --- What a model was given, in short ---

_BLOCK = re.compile(
    r'<recalled-memories id="([0-9a-f]{16})">\n(.*)\n</recalled-memories id="\1">', re.S
)


def shape(messages: Sequence[BaseMessage]) -> list[str]:
    """Each message in a word or two; blocks as their handles and texts."""
    return [_short(message) for message in messages]


def _short(message: BaseMessage) -> str:
    if isinstance(message, SystemMessage):
        return f"system: {message.text}"
    if isinstance(message, ToolMessage):
        return f"result {message.tool_call_id}"
    if isinstance(message, AIMessage):
        named = ", ".join(str(call["id"]) for call in message.tool_calls)
        return f"call {named}" if named else f"ai: {message.text}"
    if isinstance(message.content, str):
        return _in_short(message.content)
    return " + ".join(_in_short(block["text"]) for block in message.content)  # type: ignore[index]


def _in_short(text: str) -> str:
    found = _BLOCK.fullmatch(text)
    if found is None:
        return text
    return "<" + " | ".join(f"{one['id']} {one['text']}" for one in lines(text)) + ">"


def lines(block: str) -> list[dict[str, str]]:
    """The memories of a block, its frame checked."""
    found = _BLOCK.fullmatch(block)
    assert found is not None, block
    sentence, *rest = found[2].split("\n")
    assert sentence == SENTENCE
    return [json.loads(line) for line in rest]


def texts(messages: Sequence[BaseMessage]) -> list[str]:
    """Every text in these messages, content blocks apart."""
    found: list[str] = []
    for message in messages:
        held = [message.content] if isinstance(message.content, str) else message.content
        found += [one if isinstance(one, str) else one.get("text", "") for one in held]
    return found


def blocks(messages: Sequence[BaseMessage]) -> list[str]:
    """The blocks in these messages."""
    return [text for text in texts(messages) if text.startswith("<recalled-memories")]


def recalled(messages: Sequence[BaseMessage]) -> list[str]:
    """The texts of all memories in these messages' blocks."""
    return [line["text"] for block in blocks(messages) for line in lines(block)]


def nonces(messages: Sequence[BaseMessage]) -> list[str]:
    """The nonces of the blocks in these messages."""
    return [block.split('"')[1] for block in blocks(messages)]


def bytes_of(messages: Sequence[BaseMessage]) -> list[str]:
    """Messages as they would be sent, byte for byte."""
    return [
        json.dumps([one.type, one.content, getattr(one, "tool_calls", None)]) for one in messages
    ]


def grows(seen: Sequence[Sequence[BaseMessage]]) -> bool:
    """Whether each call's messages begin with all messages of the call before."""
    sent = [bytes_of(messages) for messages in seen]
    return all(after[: len(before)] == before for before, after in pairwise(sent))
