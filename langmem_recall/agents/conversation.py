"""What a conversation tells about a text: who said it, and what the model has seen of late."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from langmem_recall.agents.placement import message_keys
from langmem_recall.agents.turn import RecallRecord, artifact_of, digest, memories_in
from langmem_recall.cue import is_human, latest_human, texts_of, words_of
from langmem_recall.memory.attribution import is_carried, is_mentioned, source_of
from langmem_recall.memory.foreign import Parts, parts_of
from langmem_recall.types import TRUST, MemoryId, Namespace, Source

_OWN_BLOCKS = frozenset({"tool_call", "function_call", "invalid_tool_call"})
"""What looks like the result of a provider's own tool and is a call of ours."""
_VOICES = frozenset({"audio", "input_audio"})


@dataclass(frozen=True, slots=True)
class Conversation:
    """The messages of a thread, and the memories that were shown in it."""

    messages: Sequence[BaseMessage]
    records: Sequence[RecallRecord]
    trusted: frozenset[str]
    """Names of the memory tools, and of others whose output is as good as the user's word."""

    @property
    def turn(self) -> str | None:
        """Key of the human message that began the turn."""
        place = latest_human(self.messages)
        return None if place is None else message_keys(self.messages)[place]

    def source_of(self, text: str) -> Source:
        """Who said it; what only a memory or a tool says is trusted no more than these."""
        humans = (_parts(message) for message in reversed(self.messages) if is_human(message))
        source = source_of(text, humans, self.is_untrusted)
        if source != "agent_inferred":
            return source
        others = [other for other, said in self._others().items() if is_mentioned(text, said)]
        same = (shown for shown in memories_in(self.records) if shown["digest"] == digest(text))
        others += [_source(shown["source"]) for shown in same]
        return min(("recalled", *others), key=TRUST.__getitem__) if others else source

    def attributed(self, text: str, quote: str) -> tuple[Source, bool]:
        """Who said a text, by the words quoted for it; and whether they are the user's own.

        A quote that no message has makes it an inference. Without a quote the content tells.
        """
        place = self._place_of(quote)
        if place is None:
            source = self.source_of(text)
            if source == "user_stated" and quote.strip():
                source = "agent_inferred"
            is_doubtful = source == "agent_inferred" and self.saw_untrusted()
            return ("external" if is_doubtful else source), source == "user_stated"
        later = self.messages[place + 1 :]
        following = (at for at, said in enumerate(later) if is_human(said))
        end = place + 1 + next(following, len(later))
        turn = Conversation(self.messages[:end], self.records, self.trusted)
        message = self.messages[place]
        if is_human(message):
            is_own = _plain(quote) in _plain(_parts(message).own)
            return (turn.source_of(text) if is_own else "external"), is_own
        if isinstance(message, ToolMessage):
            if turn._foreign_results([message]):
                return "external", False
            return ("tool_verified" if is_carried(text, [quote]) else "agent_inferred"), False
        return ("external" if turn.is_untrusted else "agent_inferred"), False

    def saw_untrusted(self) -> bool:
        """Whether any turn of the conversation has seen words of an untrusted source."""
        starts = [at for at, said in enumerate(self.messages) if is_human(said)]
        ends = [*starts[1:], len(self.messages)]
        turns = (Conversation(self.messages[:end], self.records, self.trusted) for end in ends)
        return any(turn.is_untrusted for turn in turns)

    def _place_of(self, quote: str) -> int | None:
        """The latest message that has these words; the user's own before all others."""
        words = _plain(quote)
        if not words:
            return None
        holding = [at for at, said in enumerate(self.messages) if words in _plain(words_of(said))]
        humans = [at for at in holding if is_human(self.messages[at])]
        own = [at for at in humans if words in _plain(_parts(self.messages[at]).own)]
        return next(reversed(own or humans or holding), None)

    def memory_named(self, name: str, home: Namespace) -> MemoryId:
        """The memory, at or below `home`, that the model was shown under a key or a handle."""
        in_results = [shown for message in self.messages for shown in artifact_of(message)]
        for shown in reversed([*memories_in(self.records), *in_results]):
            namespace = tuple(shown["namespace"])
            if name in (shown["key"], shown.get("handle")) and namespace[: len(home)] == home:
                return namespace, shown["key"]
        return home, name

    @property
    def is_untrusted(self) -> bool:
        """Whether this turn has seen words of an untrusted source."""
        place, turn = latest_human(self.messages), self.turn
        since = self.messages[0 if place is None else place + 1 :]
        in_results = [shown for message in since for shown in artifact_of(message)]
        in_blocks = memories_in(record for record in self.records if record["turn"] == turn)
        return (
            (place is not None and _shows_foreign(self.messages[place]))
            or any(self._foreign_results(since))
            or any(map(_has_server_results, since))
            or any(shown["source"] == "external" for shown in (*in_results, *in_blocks))
        )

    def _foreign_results(self, among: Sequence[BaseMessage]) -> list[ToolMessage]:
        """Results of tools that are not trusted."""
        # By the call, because a tool may give its message any name.
        called = {
            call["id"]: call["name"]
            for message in self.messages
            if isinstance(message, AIMessage)
            for call in message.tool_calls
        }
        results = (message for message in among if isinstance(message, ToolMessage))
        return [said for said in results if called.get(said.tool_call_id) not in self.trusted]

    def _others(self) -> dict[Source, list[str]]:
        """What memories and untrusted tools said in this thread, by its source."""
        said = defaultdict[Source, list[str]](list)
        said["external"] += map(words_of, self._foreign_results(self.messages))
        for message in self.messages:
            sources = {shown["key"]: shown["source"] for shown in artifact_of(message)}
            lines = words_of(message).splitlines() if sources else []
            for line in filter(lambda line: line.startswith("{"), lines):
                with suppress(ValueError):
                    memory = json.loads(line)
                    source = _source(sources.get(memory.get("id")))
                    said[source].append(str(memory.get("text", "")))
        return said


def messages_of(state: Any) -> list[BaseMessage]:
    """The messages in a graph's state: a mapping, an object, or a bare list of messages."""
    found = state.get("messages") if isinstance(state, Mapping) else state
    if not isinstance(found, list | tuple):
        found = getattr(found, "messages", None) or ()
    return [message for message in found if isinstance(message, BaseMessage)]


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


def _has_server_results(message: BaseMessage) -> bool:
    """Whether the provider ran a tool itself: its results are blocks of the model's message."""
    if not isinstance(message, AIMessage) or isinstance(message.content, str):
        return False
    kinds = {str(block.get("type")) for block in message.content if isinstance(block, dict)}
    return any(kind.endswith(("_result", "_call", "_output")) for kind in kinds - _OWN_BLOCKS)


def _plain(text: str) -> str:
    return " ".join(text.casefold().split()).strip(" .!?\"'")


def _source(found: Any) -> Source:
    return found if found in TRUST else "recalled"
