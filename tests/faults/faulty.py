"""Real parts that go wrong on command, each in one of seven ways, until the fault is lifted."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

import httpx
import openai
from langchain_core.documents import BaseDocumentCompressor, Document
from langchain_core.embeddings import Embeddings
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.store.base import Op, PutOp, SearchItem, SearchOp
from langgraph.store.memory import InMemoryStore
from pydantic import ConfigDict

from langmem_recall import LocalEmbeddings, LocalStore
from langmem_recall.flows.usage import USAGE
from langmem_recall.types import SIDECAR_ROOT, MemoryId, Namespace, Usage, UsageDelta

KINDS = ("raises", "hangs", "slow", "garbage", "nan", "dimensions", "limited")
HANG_S = 60.0
"""Nothing waits this long: what hangs is released when its test ends."""
SLOW_S = 1.0
"""As long as a turn waits by default."""
NAN = float("nan")

Spoil = Callable[[Any], Any]


class TooManyRequests(Exception):
    """How a database says that it has had enough."""


def rate_limit() -> openai.RateLimitError:
    """What the clients of embedders and chat models raise on status 429."""
    request = httpx.Request("POST", "http://localhost/v1/embeddings")
    return openai.RateLimitError(
        "slow down", response=httpx.Response(429, request=request), body={}
    )


class Fault:
    """One way of going wrong, in force between `strike` and `lift`."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.hits = 0
        self.is_on = False
        self._released = threading.Event()
        self._hit = threading.Condition()

    def strike(self) -> None:
        self.is_on = True

    def lift(self) -> None:
        """What hangs in a thread goes on, and does late what it was asked to do."""
        self.is_on = False
        self._released.set()

    def around(self, answer: Callable[[], Any], spoil: Spoil, limited: Exception) -> Any:
        if not self.is_on:
            return answer()
        self._raise(limited)
        if self.kind in ("hangs", "slow"):
            self._released.wait(HANG_S if self.kind == "hangs" else SLOW_S)
            return answer()
        return spoil(answer())

    async def aaround(
        self, answer: Callable[[], Awaitable[Any]], spoil: Spoil, limited: Exception
    ) -> Any:
        if not self.is_on:
            return await answer()
        self._raise(limited)
        if self.kind == "hangs":
            await asyncio.Event().wait()
        if self.kind == "slow":
            await asyncio.sleep(SLOW_S)
            return await answer()
        return spoil(await answer())

    def wait_for_hits(self, count: int) -> bool:
        """Wait until so many calls have met the fault."""
        with self._hit:
            return self._hit.wait_for(lambda: self.hits >= count, HANG_S)

    def _raise(self, limited: Exception) -> None:
        with self._hit:
            self.hits += 1
            self._hit.notify_all()
        if self.kind == "raises":
            raise OSError("it is gone")
        if self.kind == "limited":
            raise limited


# --- the embedder ---

SHARED = LocalEmbeddings()


class FaultyEmbeddings(Embeddings):
    """Real vectors, spoilt on command."""

    identity = "faulty"

    def __init__(self, fault: Fault) -> None:
        self._fault = fault

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return self._fault.around(
            lambda: SHARED.embed_documents(texts), self._all_spoilt, rate_limit()
        )

    def embed_query(self, text: str) -> list[float]:
        return self._fault.around(lambda: SHARED.embed_query(text), self._spoilt, rate_limit())

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        return await self._fault.aaround(
            lambda: SHARED.aembed_documents(texts), self._all_spoilt, rate_limit()
        )

    async def aembed_query(self, text: str) -> list[float]:
        return await self._fault.aaround(
            lambda: SHARED.aembed_query(text), self._spoilt, rate_limit()
        )

    def _all_spoilt(self, vectors: list[list[float]]) -> list[Any]:
        return [self._spoilt(vector) for vector in vectors]

    def _spoilt(self, vector: list[float]) -> Any:
        kinds = {"garbage": ["x"] * len(vector), "nan": [NAN] * len(vector)}
        return kinds.get(self._fault.kind, vector[:7])


# --- stores ---


def is_struck(part: str, op: Op) -> bool:
    """Whether an operation belongs to the part of a store that goes wrong."""
    place = op.namespace_prefix if isinstance(op, SearchOp) else getattr(op, "namespace", ())
    if part == "reading":
        return not isinstance(op, PutOp)
    if part == "writing":
        return isinstance(op, PutOp)
    if part == "lexical":
        return isinstance(op, SearchOp) and op.query is None and place[:1] != (SIDECAR_ROOT,)
    return part == "feedback" and place[: len(USAGE)] == USAGE


class Spoiler:
    """Spoils what a store answers."""

    def __init__(self, part: str, fault: Fault) -> None:
        self.part, self.fault = part, fault

    def answers(self, results: list[Any]) -> list[Any]:
        if self.fault.kind == "dimensions":
            return results[:-1]
        if self.part == "feedback":
            return [self._record(held) for held in results]
        if self.fault.kind == "nan":
            return [_all_scored(held) for held in results]
        return ["x"] * len(results)

    def usages(self, usages: list[Usage]) -> list[Any]:
        kinds = {"garbage": [Usage("many")] * len(usages), "nan": [Usage(1, NAN)] * len(usages)}  # type: ignore[arg-type]
        return kinds.get(self.fault.kind, usages[:-1])

    def _record(self, held: Any) -> Any:
        if isinstance(held, list):
            return [self._record(one) for one in held]
        if held is not None:
            held = SearchItem(**{name: getattr(held, name) for name in _FIELDS})
            held.value = {**held.value, "uses": "many" if self.fault.kind == "garbage" else NAN}
        return held


_FIELDS = ("namespace", "key", "value", "created_at", "updated_at")


def _all_scored(held: Any) -> Any:
    return [_scored(one) for one in held] if isinstance(held, list) else held


def _scored(item: Any) -> SearchItem:
    return SearchItem(**{name: getattr(item, name) for name in _FIELDS}, score=NAN)


class FaultyMemory(InMemoryStore):
    """LangGraph's store, of which one part goes wrong; what it keeps is real."""

    def __init__(self, part: str, fault: Fault, embeddings: Embeddings) -> None:
        super().__init__(index={"dims": 256, "embed": embeddings, "fields": ["content"]})
        self._spoiler = Spoiler(part, fault)

    def batch(self, ops: Iterable[Op]) -> Any:
        listed, spoiler = list(ops), self._spoiler
        if not any(is_struck(spoiler.part, op) for op in listed):
            return super().batch(listed)
        answer = super().batch
        return spoiler.fault.around(lambda: answer(listed), spoiler.answers, TooManyRequests())

    async def abatch(self, ops: Iterable[Op]) -> Any:
        listed, spoiler = list(ops), self._spoiler
        if not any(is_struck(spoiler.part, op) for op in listed):
            return await super().abatch(listed)
        answer = super().abatch
        return await spoiler.fault.aaround(
            lambda: answer(listed), spoiler.answers, TooManyRequests()
        )

    def close(self) -> None:
        """Nothing to close."""

    def uses(self, memory_id: MemoryId) -> tuple[int, int]:
        """Counted uses and outcomes, as they are kept for good."""
        held = self._data[(*USAGE, *memory_id[0])].get(memory_id[1])
        return (held.value["uses"], held.value.get("merit", 0)) if held else (0, 0)


class FaultyLocal(LocalStore):
    """Our own store, of which one part goes wrong; what it keeps is real."""

    def __init__(self, part: str, fault: Fault, embeddings: Embeddings) -> None:
        super().__init__(embeddings=embeddings)
        self._spoiler = Spoiler(part, fault)
        self._own = threading.local()

    def batch(self, ops: Iterable[Op]) -> Any:
        listed = list(ops)
        self._own.is_searching = True
        try:
            return self._around(
                any(is_struck(self._spoiler.part, op) for op in listed),
                lambda: LocalStore.batch(self, listed),
                self._spoiler.answers,
            )
        finally:
            self._own.is_searching = False

    def shelf(self, namespace: Namespace) -> Any:
        is_struck = self._spoiler.part in ("reading", "lexical")
        is_own = getattr(self._own, "is_searching", False)
        return self._around(
            is_struck and not is_own, lambda: LocalStore.shelf(self, namespace), lambda _: "x"
        )

    def version(self) -> tuple[int, int]:
        """Never the same: what is held in memory is not read, and no fault could strike it."""
        return time.monotonic_ns(), 0

    def read_usage(self, ids: Sequence[MemoryId]) -> Any:
        return self._around(
            self._spoiler.part in ("reading", "feedback"),
            lambda: LocalStore.read_usage(self, ids),
            self._spoiler.usages,
        )

    def add_usage(self, touches: Mapping[MemoryId, UsageDelta], fade_per_day: float) -> None:
        self._around(
            self._spoiler.part in ("writing", "feedback"),
            lambda: LocalStore.add_usage(self, touches, fade_per_day),
            lambda answer: answer,
        )

    def uses(self, memory_id: MemoryId) -> tuple[int, int]:
        """Counted uses and outcomes, as they are kept for good."""
        (usage,) = LocalStore.read_usage(self, [memory_id])
        return usage.uses, usage.merit

    def _around(self, is_struck: bool, answer: Callable[[], Any], spoil: Spoil) -> Any:
        if not is_struck:
            return answer()
        return self._spoiler.fault.around(answer, spoil, TooManyRequests())


INNER = {"local": FaultyLocal, "in memory": FaultyMemory}


# --- models ---


class FaultyModel(BaseChatModel):
    """A summarizer: short for a text, and for memories a text that cites each of them."""

    model_config = ConfigDict(arbitrary_types_allowed=True)
    fault: Any

    @property
    def _llm_type(self) -> str:
        return "faulty"

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        return self.fault.around(lambda: _said(_short(messages)), _silence, rate_limit())

    async def _agenerate(
        self, messages: list[BaseMessage], *args: Any, **kwargs: Any
    ) -> ChatResult:
        async def answer() -> ChatResult:
            return _said(_short(messages))

        return await self.fault.aaround(answer, _silence, rate_limit())


def _short(messages: Sequence[BaseMessage]) -> str:
    lines = [line for line in messages[-1].text.split("\n") if line.startswith("{")]
    ids = [json.loads(line).get("id") for line in lines]
    return " ".join(f"In short [{one}]." for one in ids if one) or SUMMARY


SUMMARY = "The museum in Gdansk opens at nine."


def _said(text: str) -> ChatResult:
    return ChatResult(generations=[ChatGeneration(message=AIMessage(text))])


def _silence(_: Any) -> ChatResult:
    return _said("")


class FaultyReranker(BaseDocumentCompressor):
    """A reranker that agrees with the blend."""

    model_config = ConfigDict(arbitrary_types_allowed=True)
    fault: Any

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Any = None
    ) -> Sequence[Document]:
        return self.fault.around(lambda: documents, self._spoilt, rate_limit())

    async def acompress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Any = None
    ) -> Sequence[Document]:
        async def answer() -> Sequence[Document]:
            return documents

        return await self.fault.aaround(answer, self._spoilt, rate_limit())

    def _spoilt(self, documents: Sequence[Document]) -> Any:
        if self.fault.kind == "nan":
            return [
                Document(one.page_content, metadata={**one.metadata, "relevance_score": NAN})
                for one in documents
            ]
        return [*documents, *documents] if self.fault.kind == "dimensions" else ["x"]


class Speaker(BaseChatModel):
    """The agent's model: says its lines in order, then "Noted."; keeps what it was shown."""

    script: list[AIMessage]
    seen: list[list[BaseMessage]]

    @property
    def _llm_type(self) -> str:
        return "speaker"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        self.seen.append(list(messages))
        line = self.script.pop(0) if self.script else AIMessage("Noted [m1].")
        return ChatResult(generations=[ChatGeneration(message=line)])
