"""Citations taken out of an answer, and of the token stream before it; what they were is kept."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGenerationChunk

from langmem_recall.agents.turn import CITED
from langmem_recall.rendering import cited, without_citations

M = TypeVar("M")
N = TypeVar("N", bound=BaseMessage)

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
    cleaner, latest = _ChunkCleaner(), None
    for chunk in stream(*args, **kwargs):
        if latest is not None:
            yield latest
        latest = cleaner.feed(chunk)
    if latest is not None:
        yield cleaner.finish(latest)


async def _aclean(stream: Any, *args: Any, **kwargs: Any) -> AsyncIterator[ChatGenerationChunk]:
    cleaner, latest = _ChunkCleaner(), None
    async for chunk in stream(*args, **kwargs):
        if latest is not None:
            yield latest
        latest = cleaner.feed(chunk)
    if latest is not None:
        yield cleaner.finish(latest)


_CLEANING: dict[str, Any] = {"_stream": _clean, "_astream": _aclean}
_BASE = {name: getattr(BaseChatModel, name) for name in _CLEANING}


class _ChunkCleaner:
    """The chunks of one answer; each of its blocks of text is read apart."""

    def __init__(self) -> None:
        self._filters: dict[Any, CitationFilter] = {}

    def feed(self, chunk: ChatGenerationChunk) -> ChatGenerationChunk:
        """The chunk with what can be said after it."""

        def feed(text: str, block: Any) -> str:
            return self._filters.setdefault(block, CitationFilter()).feed(text)

        content = chunk.message.content
        if isinstance(content, str):
            return _with_content(chunk, feed(content, None)) if content else chunk
        blocks: list[Any] = []
        for block in content:
            if isinstance(block, dict) and isinstance(block.get("text"), str):
                block = {**block, "text": feed(block["text"], block.get("index", 0))}
            blocks.append(block)
        return _with_content(chunk, blocks)

    def finish(self, chunk: ChatGenerationChunk) -> ChatGenerationChunk:
        """The last chunk, with what was waiting, and the handles of all that was cited."""
        rests = {block: rest.finish() for block, rest in self._filters.items()}
        handles = [handle for each in self._filters.values() for handle in each.handles]
        if handles:
            chunk = ChatGenerationChunk(
                message=_citing(chunk.message, handles), generation_info=chunk.generation_info
            )
        content: Any = chunk.message.content
        if isinstance(content, str) and set(rests) <= {None}:
            return _with_content(chunk, content + rests.get(None, ""))
        blocks = [content] if isinstance(content, str) and content else [*content]
        blocks += [
            {"type": "text", "text": rest, "index": block} for block, rest in rests.items() if rest
        ]
        return _with_content(chunk, blocks)


def _with_content(chunk: ChatGenerationChunk, content: Any) -> ChatGenerationChunk:
    message = chunk.message.model_copy(update={"content": content})
    return ChatGenerationChunk(message=message, generation_info=chunk.generation_info)


# --- whole answers ---


def without_handles(message: BaseMessage) -> BaseMessage:
    """An answer without its citations, which are noted beside it; other messages as they are."""
    if not isinstance(message, AIMessage):
        return message

    def strip(block: Any) -> Any:
        if isinstance(block, str):
            return without_citations(block)
        if isinstance(block, dict) and isinstance(block.get("text"), str):
            return {**block, "text": without_citations(block["text"])}
        return block

    handles, content = cited(message.text), message.content
    stripped = strip(content) if isinstance(content, str) else [strip(block) for block in content]
    message = message.model_copy(update={"content": stripped})
    return _citing(message, handles) if handles else message


def _citing(message: N, handles: Sequence[str]) -> N:
    noted = message.response_metadata.get(CITED)
    known = [*(noted if isinstance(noted, list) else ()), *handles]
    metadata = {**message.response_metadata, CITED: list(dict.fromkeys(known))}
    return message.model_copy(update={"response_metadata": metadata})
