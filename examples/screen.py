"""What the examples print: every message that the model was given, and what came of it."""

from __future__ import annotations

import json
import shutil
import textwrap
from collections.abc import Mapping
from typing import Any

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, BaseMessage
from langgraph.types import Command

from langmem_recall.types import GATE_WORDS

WIDTH = min(max(shutil.get_terminal_size((98, 24)).columns, 60), 98)
LEAD = 12
"""Columns before a text: its title."""


class Watcher(BaseCallbackHandler):
    """Keeps what a chat model was given in its latest call, whichever model it is."""

    def __init__(self) -> None:
        self._seen: list[BaseMessage] = []
        self._told: list[BaseMessage] = []

    def on_chat_model_start(
        self, serialized: dict[str, Any], messages: list[list[BaseMessage]], **_: Any
    ) -> None:
        """Called by LangChain before each call of a model."""
        self._seen = messages[0]

    def news(self, answer: BaseMessage) -> list[BaseMessage]:
        """What the model was given for this answer that was not told before, and the answer."""
        known = [message.content for message in self._told]
        is_longer = [message.content for message in self._seen[: len(known)]] == known
        self._told = [*self._seen, answer]
        return self._told[len(known) if is_longer else 0 :]


class Screen:
    """Runs the turns of an agent and prints them as the model sees them."""

    def __init__(self, agent: Any, context: Any = None, **configurable: str) -> None:
        self._agent = agent
        self._watcher = Watcher()
        self._how: dict[str, Any] = {
            "config": {"configurable": configurable, "callbacks": [self._watcher]},
            "context": context,
            "stream_mode": ["custom", "values"],
        }

    def say(self, said: str | Command[Any], **state: Any) -> bool:
        """One turn: what is new to the model, its answer, and what was recalled for it.

        Returns:
            Whether the run waits for a human.
        """
        turn = Turn()
        for mode, chunk in self._agent.stream(_given(said, state), **self._how):
            turn.add(mode, chunk)
        return self._show(turn)

    async def asay(self, said: str | Command[Any], **state: Any) -> bool:
        """The async twin of `say`."""
        turn = Turn()
        async for mode, chunk in self._agent.astream(_given(said, state), **self._how):
            turn.add(mode, chunk)
        return self._show(turn)

    def _show(self, turn: Turn) -> bool:
        show_rule()
        for message in self._watcher.news(turn.reached["messages"][-1]):
            show_message(message)
        for record in turn.recalls:
            show_row("recall", summary(record))
        asked = turn.reached.get("__interrupt__", ())
        for interrupt in asked:
            show_row("human?", interrupt.value["action_requests"][0]["description"])
        print()
        return bool(asked)


class Turn:
    """What a run streams: its recalls, and the state it reaches."""

    def __init__(self) -> None:
        self.recalls: list[Any] = []
        self.reached: dict[str, Any] = {}

    def add(self, mode: str, chunk: Any) -> None:
        """One part of the stream."""
        if mode == "values":
            self.reached |= chunk
        elif chunk.get("type") == "recall":
            self.recalls.append(chunk)


def _given(said: str | Command[Any], state: Mapping[str, Any]) -> Any:
    return said if isinstance(said, Command) else {"messages": [("user", said)], **state}


def show_message(message: BaseMessage) -> None:
    """A message by its role; tool calls as they are made."""
    if message.type == "system":
        show_row("system", textwrap.shorten(message.text, WIDTH - LEAD, placeholder=" ..."))
    elif message.text:
        show_row("assistant" if isinstance(message, AIMessage) else message.type, message.text)
    for call in message.tool_calls if isinstance(message, AIMessage) else ():
        given = ", ".join(f"{name}={json.dumps(one)}" for name, one in call["args"].items())
        show_row("calls", f"{call['name']}({given})")


def show_row(title: str, text: str) -> None:
    """A text beside its title, wrapped; lines stay lines."""
    for place, line in enumerate(text.splitlines()):
        lead = f"{title if place == 0 else '':>{LEAD - 2}}  "
        wrapped = textwrap.wrap(line, WIDTH - LEAD, break_on_hyphens=False)
        print(lead + f"\n{' ' * LEAD}".join(wrapped))


def show_rule(title: str = "") -> None:
    """A line across the screen."""
    print(f"── {title} ".ljust(WIDTH, "─") if title else "─" * WIDTH)


def summary(record: Mapping[str, Any]) -> str:
    """A recall in one line: what was shown, what was dropped, what it cost."""
    if not record["memories"]:
        return f"nothing: {record['reason']}"
    shown = ", ".join(f"{one['handle']} {one['relevance']:.2f}" for one in record["memories"])
    dropped = [f"{count} {GATE_WORDS.get(gate, gate)}" for gate, count in record["dropped"].items()]
    spent = f"{record['tokens']} of {record['budget']:,} tokens"
    return " · ".join([f"relevance {shown}", *dropped, spent])
