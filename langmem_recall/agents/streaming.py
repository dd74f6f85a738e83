"""Citations taken out of an answer, and of the token stream before it; what they were is kept."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any, TypeVar

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGenerationChunk

from langmem_recall.agents.turn import CITED
from langmem_recall.rendering import cited, without_citations

M = TypeVar("M")

_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_FENCE = re.compile(r"[ \t]*(```+(?=[^`\n]*$)|~~~+)")
_FENCING = re.compile(r"[ \t]*(?:```|~~~|`{0,2}$|~{0,2}$)")  # a line that may begin a fenced block
_BEGINNING = re.compile(r"[ \t]*\(?$")  # what may stand before a citation
_CITING = re.compile(r"[ \t]*\(?\[[\[\]()m\d,;&and \t]*$")
"""What may yet become one, or a gap beside one: no other character is in a group of them."""


class CitationFilter:
    """Text in pieces, without its citations: `without_citations` of the whole, bit by bit.

    What could be part of a citation waits until it is clear. Lines are read apart, because no
    citation and no code but a fenced block goes beyond one.
    """

    def __init__(self) -> None:
        self._open = ""  # from the beginning of the latest line that is not in a fenced block
        self._given = 0  # how much of it was given out, without citations
        self._fence: str | None = None
        self.handles: list[str] = []

    def feed(self, piece: str) -> str:
        """What can be said after this piece of the text."""
        out = []
        for line in _LINE.findall(piece):
            self._open += line
            if line.endswith("\n"):
                out.append(self._give(len(self._open)))
                self._end_line()
            else:
                out.append(self._give(self._clear()))
        return "".join(out)

    def finish(self) -> str:
        """What was waiting at the end of the text."""
        rest = self._give(len(self._open))
        self._end_line()
        return rest

    def _give(self, end: int) -> str:
        cleaned = self._open[:end] if self._fence else without_citations(self._open[:end])
        fresh = cleaned[self._given :]
        self._given += len(fresh)
        return fresh

    def _clear(self) -> int:
        """How far the line is clear whatever follows."""
        line = self._open
        if self._fence:
            return len(line)
        if _FENCING.match(line):
            return 0
        tick = line.find("`")
        bracket = line.find("[", tick) if tick >= 0 else -1
        if bracket >= 0:
            waiting = _BEGINNING.search(line, 0, bracket)
            return bracket if waiting is None else waiting.start()
        found = _CITING.search(line) or _BEGINNING.search(line)
        return len(line) if found is None else found.start()

    def _end_line(self) -> None:
        line = self._open.rstrip("\n")
        if self._fence is None:
            self.handles += cited(line)
            opening = _FENCE.match(line)
            self._fence = opening[1] if opening else None
        elif re.fullmatch(rf"[ \t]*{re.escape(self._fence)}[`~]*[ \t]*", line):
            self._fence = None
        self._open, self._given = "", 0


def with_clean_stream(model: M) -> M:
    """The model, its stream without citations; one that does not stream as it is."""
    kind: Any = type(model)
    own = [name for name in _CLEANING if getattr(kind, name, None) is not _BASE[name]]
    if not isinstance(model, BaseChatModel) or not own:
        return model
    copy = model.model_copy()
    for name in own:
        # Past pydantic, which knows fields alone.
        object.__setattr__(copy, name, partial(_CLEANING[name], getattr(kind, name).__get__(copy)))
    return copy


def _clean(stream: Any, *args: Any, **kwargs: Any) -> Iterator[ChatGenerationChunk]:
    cleaner = _ChunkCleaner()
    for chunk in stream(*args, **kwargs):
        yield cleaner.feed(chunk)
    for chunk in cleaner.finish():
        yield chunk


async def _aclean(stream: Any, *args: Any, **kwargs: Any) -> AsyncIterator[ChatGenerationChunk]:
    cleaner = _ChunkCleaner()
    async for chunk in stream(*args, **kwargs):
        yield cleaner.feed(chunk)
    for chunk in cleaner.finish():
        yield chunk


_CLEANING: dict[str, Any] = {"_stream": _clean, "_astream": _aclean}
_BASE = {name: getattr(BaseChatModel, name) for name in _CLEANING}


class _ChunkCleaner:
    """The chunks of one answer; each of its blocks of text is read apart."""

    def __init__(self) -> None:
        self._filters: defaultdict[Any, CitationFilter] = defaultdict(CitationFilter)

    def feed(self, chunk: ChatGenerationChunk) -> ChatGenerationChunk:
        """The chunk with what can be said after it."""
        content = _cleaned(chunk.message.content, lambda text, at: self._filters[at].feed(text))
        message = chunk.message.model_copy(update={"content": content})
        return ChatGenerationChunk(message=message, generation_info=chunk.generation_info)

    def finish(self) -> list[ChatGenerationChunk]:
        """One more chunk, with what was waiting and the handles of all that was cited, if any."""
        rests = {block: each.finish() for block, each in self._filters.items()}
        handles = [handle for each in self._filters.values() for handle in each.handles]
        if not handles and not any(rests.values()):
            return []
        content: Any = rests.pop(None, "")
        blocks = [{"type": "text", "text": it, "index": at} for at, it in rests.items() if it]
        if blocks:
            content = [content, *blocks] if content else blocks
        metadata = {CITED: list(dict.fromkeys(handles))} if handles else {}
        message = AIMessageChunk(content=content, response_metadata=metadata)
        return [ChatGenerationChunk(message=message)]


def _cleaned(content: Any, clean: Callable[[str, Any], str]) -> Any:
    """A message's content with its texts cleaned, each with the number of its block or None."""
    if isinstance(content, str):
        return clean(content, None)
    blocks = []
    for block in content:
        if isinstance(block, str):
            block = clean(block, None)
        elif isinstance(block, dict) and isinstance(block.get("text"), str):
            block = {**block, "text": clean(block["text"], block.get("index", 0))}
        blocks.append(block)
    return blocks


def without_handles(message: BaseMessage) -> BaseMessage:
    """An answer without its citations, which are noted beside it; other messages as they are."""
    if not isinstance(message, AIMessage):
        return message
    update: dict[str, Any] = {
        "content": _cleaned(message.content, lambda it, _: without_citations(it))
    }
    if handles := cited(message.text):
        noted = message.response_metadata.get(CITED)
        known = [*(noted if isinstance(noted, list) else ()), *handles]
        metadata = {**message.response_metadata, CITED: list(dict.fromkeys(known))}
        update["response_metadata"] = metadata
    return message.model_copy(update=update)
