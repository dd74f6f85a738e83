"""Fixtures for the whole suite: both drivers from one body, real embeddings, a clock to turn."""

from __future__ import annotations

import asyncio
import contextvars
import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from langchain_core.embeddings import Embeddings
from langgraph.store.base import BaseStore
from langgraph.store.base.batch import AsyncBatchedBaseStore
from langgraph.store.memory import InMemoryStore
from minilm import lay_out

from langmem_recall.embeddings import LocalEmbeddings

pytest_plugins = ["postgres_server"]

# A busy machine is no fault of the code: no example has a time limit. What is to land is judged by
# the same examples each time; new ones are drawn wherever else the tests run.
settings.register_profile("unhurried", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("unhurried")

START = datetime(2026, 3, 4, 12, 0, tzinfo=UTC)


@pytest.fixture(autouse=True)
def unhurried_embedder(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine any embedder is slow, and what it is measured by would be stored."""
    monkeypatch.setattr("langmem_recall.flows.calibrations.SLOW_S", 1e9)


class Clock:
    """A clock that stands still until it is turned."""

    def __init__(self, now: datetime = START) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now

    def turn(self, **by: float) -> None:
        self.now += timedelta(**by)


class CountingEmbeddings(Embeddings):
    """Real embeddings that count what they are asked for, and fail when told to."""

    def __init__(self) -> None:
        self.inner = LocalEmbeddings()
        self.documents: list[str] = []
        self.queries: list[str] = []
        self.fault: Exception | None = None
        self.spoil: Callable[[list[float]], list[float]] = list

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.documents += texts
        return [self._checked(vector) for vector in self.inner.embed_documents(texts)]

    def embed_query(self, text: str) -> list[float]:
        self.queries.append(text)
        return self._checked(self.inner.embed_query(text))

    def _checked(self, vector: list[float]) -> list[float]:
        if self.fault is not None:
            raise self.fault
        return self.spoil(vector)


class PlatformStore(AsyncBatchedBaseStore):
    """A store as a platform may own it: a queue on its loop before another store."""

    def __init__(self, behind: BaseStore) -> None:
        super().__init__()
        self.behind = behind

    def batch(self, ops: Any) -> Any:
        return self.behind.batch(ops)

    async def abatch(self, ops: Any) -> Any:
        return await self.behind.abatch(ops)


Call = Callable[..., Any]


@pytest.fixture(params=["sync", "async"])
def call(request: pytest.FixtureRequest) -> Iterator[Call]:
    """Calls a store's method by name: directly, or its `a` twin on an event loop."""
    if request.param == "sync":
        yield lambda store, name, *args, **kwargs: getattr(store, name)(*args, **kwargs)
        return
    with asyncio.Runner() as runner:

        def awaited(store: Any, name: str, *args: Any, **kwargs: Any) -> Any:
            twin = getattr(store, f"a{name}")(*args, **kwargs)
            return runner.run(twin, context=contextvars.copy_context())

        yield awaited


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="session")
def minilm_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The real MiniLM from the wheels, as `LocalEmbeddings("minilm", path=...)` reads it."""
    return lay_out(tmp_path_factory.mktemp("minilm"))


@pytest.fixture
def embeddings() -> CountingEmbeddings:
    return CountingEmbeddings()


@pytest.fixture
def inner(embeddings: CountingEmbeddings) -> InMemoryStore:
    return InMemoryStore(index={"dims": 256, "embed": embeddings, "fields": ["content"]})
