"""The examples' chat model: `ChatOpenAI` with a key, else one that knows its messages alone.

Told something, the scripted model calls `remember`. Told "Actually, ..." or "Forget ...", it looks
the memory up and calls `correct` or `forget`. Asked something, it answers with the memories it was
shown, each cited.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.utils.function_calling import convert_to_openai_tool

Call = tuple[str, dict[str, Any]]
"""Name of a tool and its arguments."""

SPOKEN = {
    "user stated": "You told me",
    "user correction": "You corrected me",
    "tool verified": "A tool confirmed",
    "previously inferred": "I once inferred",
    "from an external source": "I read somewhere, unverified",
}
"""How an answer says where a memory comes from, by the words in its label."""
CHANGES = (("Actually,", "correct"), ("Forget", "forget"))
"""How a message begins that changes a memory, and the tool for it."""
HANDLE = re.compile(r"m\d+")
"""What a block calls a memory; the `recall` tool tells its key."""
UNFIT = ("which may contradict it", "weak match")
"""What the label of a memory says that a newer one contradicts, or that hardly fits."""
DONE = {"remember": "Noted.", "correct": "Corrected.", "forget": "Forgotten."}


def chat_model(scripts: Mapping[str, Sequence[Call]] | None = None) -> BaseChatModel:
    """`ChatOpenAI` when OPENAI_API_KEY is set, else the scripted model."""
    if not os.environ.get("OPENAI_API_KEY"):
        return ScriptedModel(scripts=scripts or {})
    from langchain_openai import ChatOpenAI

    return ChatOpenAI(model=os.environ.get("OPENAI_MODEL", "gpt-4.1-mini"))


class ScriptedModel(BaseChatModel):
    """Answers from its messages by a few rules."""

    scripts: Mapping[str, Sequence[Call]] = {}
    """Calls to make one after the other in a turn, by a word of the message that began it."""
    tool_names: frozenset[str] = frozenset()

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], **_: Any) -> Self:
        """A model that knows these tools."""
        names = frozenset(convert_to_openai_tool(tool)["function"]["name"] for tool in tools)
        return self.model_copy(update={"tool_names": names})

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        turn = read_turn(messages)
        calls = [call for call in self._calls(turn) if call[0] in self.tool_names]
        made = [
            {"name": name, "args": args, "id": f"call-{len(messages)}-{place}"}
            for place, (name, args) in enumerate(calls)
        ]
        reply = AIMessage("", tool_calls=made) if made else AIMessage(turn.answer)
        return ChatResult(generations=[ChatGeneration(message=reply)])

    def _calls(self, turn: Turn) -> list[Call]:
        """The next tool calls of the turn; none when it is time to answer."""
        script = next((self.scripts[word] for word in self.scripts if word in turn.said), None)
        if script is not None:
            return list(script[len(turn.called) : len(turn.called) + 1])
        if turn.change:
            return turn.change_calls(turn.change)
        if turn.called:
            return []
        if not turn.is_question:
            return [("remember", {"text": sentence}) for sentence in turn.sentences]
        return [] if turn.memories else [("recall", {"query": turn.said})]


class Turn(NamedTuple):
    """What a model can read from its messages about the turn it is in."""

    said: str
    """The human's latest words."""
    memories: list[dict[str, str]]
    """Lines of blocks and of the `recall` tool since the last answer: id, label, text."""
    called: list[str]
    """Names of the tools called since then."""

    @property
    def is_question(self) -> bool:
        """Whether something is asked rather than told."""
        return self.said.endswith("?")

    @property
    def change(self) -> str:
        """The tool that a message is about which changes a memory; empty for any other."""
        return next((tool for words, tool in CHANGES if self.said.startswith(words)), "")

    @property
    def sentences(self) -> list[str]:
        """What was told, one statement each."""
        return [one for one in re.split(r"(?<=[.!])\s+", self.said) if one]

    def change_calls(self, tool: str) -> list[Call]:
        """First find the key, then change the memory that has it."""
        if not self.called:
            return [("recall", {"query": self.said})]
        keys = [one["id"] for one in self.memories if not HANDLE.fullmatch(one["id"])]
        if tool in self.called or not keys:
            return []
        key = {"key": keys[0]}
        text = self.said.removeprefix("Actually, ")
        return [(tool, key if tool == "forget" else {**key, "text": text[0].upper() + text[1:]})]

    @property
    def answer(self) -> str:
        """What was done, else what is remembered about it."""
        done = next((DONE[name] for name in reversed(self.called) if name in DONE), "")
        fit = (one for one in self.memories if not any(word in one["label"] for word in UNFIT))
        told = " ".join(map(_spoken, fit))
        return done or told or ("I remember nothing about that." if self.is_question else "Done.")


def read_turn(messages: Sequence[BaseMessage]) -> Turn:
    """The turn that the last of these messages belongs to."""
    answers = [n for n, one in enumerate(messages) if isinstance(one, AIMessage) and one.text]
    since = messages[answers[-1] + 1 if answers else 0 :]
    humans = [one for one in messages if isinstance(one, HumanMessage) and not _is_block(one)]
    shown = [one for one in since if _is_block(one) or isinstance(one, ToolMessage)]
    called = [
        call["name"] for one in since if isinstance(one, AIMessage) for call in one.tool_calls
    ]
    return Turn(humans[-1].text if humans else "", list(_lines(shown)), called)


def _is_block(message: BaseMessage) -> bool:
    return message.name == "recalled_memories"


def _lines(messages: Sequence[BaseMessage]) -> Iterator[dict[str, str]]:
    for message in messages:
        yield from (json.loads(one) for one in message.text.splitlines() if one.startswith('{"id"'))


def _spoken(memory: Mapping[str, str]) -> str:
    words = next((SPOKEN[one] for one in SPOKEN if one in memory["label"]), "I remember")
    return f'{words}: "{memory["text"]}" [{memory["id"]}]'
