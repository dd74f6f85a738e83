"""What a conversation tells about a text: who said it, and what the model has seen of late."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from langmem_recall.agents.placement import message_key
from langmem_recall.agents.records import RecallRecord, digest, records_of
from langmem_recall.cue import latest_human, texts_of, words_of
from langmem_recall.memory.attribution import is_carried, source_of
from langmem_recall.memory.foreign import Parts, parts_of
from langmem_recall.types import TRUST, Memory, MemoryId, Namespace, Source

_OWN_BLOCKS = frozenset({"tool_call", "function_call", "invalid_tool_call"})
"""What looks like the result of a provider's own tool and is a call of ours."""

_VOICES = frozenset({"audio", "input_audio"})


@dataclass(frozen=True, slots=True)
class Thread:
    """The messages of a conversation, and the memories that were shown in it.

    Args:
        messages: All messages so far.
        records: What the recalls of its turns showed.
        own: Names of the memory tools.
        trusted: Names of other tools whose output is as good as the user's word.
    """

    messages: Sequence[BaseMessage]
    records: Sequence[RecallRecord]
    own: frozenset[str]
    trusted: frozenset[str]

    @property
    def turn(self) -> str | None:
        """Key of the human message that began the turn."""
        place = latest_human(self.messages)
        return None if place is None else message_key(self.messages, place)

    def source_of(self, text: str) -> Source:
        """Who said it; what only a memory or a tool says is trusted no more than these."""
        humans = [_parts(message) for message in _humans(self.messages)]
        source = source_of(text, humans[::-1], self.is_untrusted)
        if source != "agent_inferred":
            return source
        others = [other for shown, other in self._others() if is_carried(text, [shown])]
        others += [_source(one["source"]) for one in self._shown() if one["digest"] == digest(text)]
        return min(("recalled", *others), key=TRUST.__getitem__) if others else source

    def named(self, name: str, home: Namespace) -> MemoryId:
        """The memory, at or below `home`, that the model was shown under a key or a handle."""
        by_tool = [one for message in self.messages for one in artifact_of(message)]
        for one in (*reversed(by_tool), *reversed(list(self._shown()))):
            namespace = tuple(one["namespace"])
            if name in (one["key"], one.get("handle")) and namespace[: len(home)] == home:
                return namespace, one["key"]
        return home, name

    @property
    def is_untrusted(self) -> bool:
        """Whether this turn has seen words that nobody vouches for."""
        place, turn = latest_human(self.messages), self.turn
        if place is not None and _shows_foreign(self.messages[place]):
            return True
        called = _called(self.messages)
        since = self.messages[0 if place is None else place + 1 :]
        if any(
            self._is_foreign(message, called) or _has_server_results(message) for message in since
        ):
            return True
        seen = [one["source"] for message in since for one in artifact_of(message)]
        seen += [
            one["source"]
            for record in self.records
            if record["turn"] == turn
            for one in record["memories"]
        ]
        return "external" in seen

    def _is_foreign(self, message: BaseMessage, called: Mapping[str | None, str]) -> bool:
        if not isinstance(message, ToolMessage):
            return False
        # By the call, because a tool may give its message any name.
        return called.get(message.tool_call_id) not in self.own | self.trusted

    def _others(self) -> Iterator[tuple[str, Source]]:
        """What memories and untrusted tools said in this thread."""
        called = _called(self.messages)
        for message in self.messages:
            if self._is_foreign(message, called):
                yield words_of(message), "external"
            sources = {one["key"]: one["source"] for one in artifact_of(message)}
            for line in _json_lines(words_of(message)) if sources else ():
                yield str(line.get("text", "")), _source(sources.get(line.get("id")))

    def _shown(self) -> Iterator[Any]:
        for record in self.records:
            yield from record["memories"]


def thread_of(state: Any, own: frozenset[str], trusted: frozenset[str]) -> Thread:
    """The thread in a graph's state: a mapping, an object, or a bare list of messages."""
    return Thread(messages_of(state), records_of(state), own, trusted)


def messages_of(state: Any) -> list[BaseMessage]:
    """The messages in a graph's state: a mapping, an object, or a bare list of messages."""
    held = state.get("messages") if isinstance(state, Mapping) else state
    if not isinstance(held, list | tuple):
        held = getattr(held, "messages", None) or ()
    return [message for message in held if isinstance(message, BaseMessage)]


def artifact(memories: Sequence[Memory]) -> list[dict[str, Any]]:
    """What the `recall` tool leaves beside its answer, unseen by the model."""
    return [
        {
            "namespace": list(memory.namespace),
            "key": memory.key,
            "source": memory.source,
            "verified": not memory.needs_verification,
        }
        for memory in memories
    ]


def artifact_of(message: BaseMessage) -> list[dict[str, Any]]:
    """What a message of the `recall` tool carries of the memories it shows."""
    held = getattr(message, "artifact", None)
    if not isinstance(held, list):
        return []
    return [
        one
        for one in held
        if isinstance(one, dict) and {"namespace", "key", "source"} <= one.keys()
    ]


def _humans(messages: Sequence[BaseMessage]) -> Iterator[BaseMessage]:
    """What humans said, latest first."""
    place = latest_human(messages)
    while place is not None:
        yield messages[place]
        messages = messages[:place]
        place = latest_human(messages)


def _parts(message: BaseMessage) -> Parts:
    """A human message, taken apart; clients put what is attached into blocks of their own."""
    first, *attached = texts_of(message) or [""]
    return parts_of(first, *attached)


def _shows_foreign(message: BaseMessage) -> bool:
    """Whether a human message holds more than the user's own words; a voice alone is theirs."""
    kinds = [block.get("type") for block in message.content if isinstance(block, dict)]
    is_voice = len(kinds) == 1 and kinds[0] in _VOICES
    has_files = any(kind != "text" for kind in kinds) and not is_voice
    return has_files or bool(_parts(message).foreign)


def _called(messages: Sequence[BaseMessage]) -> dict[str | None, str]:
    """Names of the tools that the model called, by the id of the call."""
    return {
        call["id"]: call["name"]
        for message in messages
        if isinstance(message, AIMessage)
        for call in message.tool_calls
    }


def _has_server_results(message: BaseMessage) -> bool:
    """Whether the provider ran a tool itself: its results are blocks of the model's message."""
    if not isinstance(message, AIMessage) or isinstance(message.content, str):
        return False
    kinds = {str(block.get("type")) for block in message.content if isinstance(block, dict)}
    return any(kind.endswith(("_result", "_call", "_output")) for kind in kinds - _OWN_BLOCKS)


def _json_lines(text: str) -> Iterator[dict[str, Any]]:
    for line in text.splitlines():
        if line.startswith("{"):
            with suppress(ValueError):
                yield json.loads(line)


def _source(held: Any) -> Source:
    return held if held in TRUST else "recalled"
