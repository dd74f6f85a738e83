"""What traces and logs say of a fault: never the words of memories or cues."""

from __future__ import annotations

import itertools
import json
import logging
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from conftest import Call
from langchain.agents import create_agent
from langchain_core.documents import BaseDocumentCompressor, Document
from langchain_core.embeddings import Embeddings
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore
from langgraph.store.postgres import PostgresStore

from langmem_recall import LocalEmbeddings, LocalStore, RecallMiddleware, RecallStore
from langmem_recall.deadline import TooLate
from langmem_recall.errors import LONGEST_DESCRIPTION, InputError, StoreError, described
from langmem_recall.guard.judge import Verdict
from langmem_recall.observe.log import TraceLog
from langmem_recall.types import Recall

NS = ("m", "ada")
WORDS = (
    *("zyxwvutopia", "quixoticus", "4711", "flamingo", "gnu", "zebra", "xan", "yak", "walrus"),
    *("ibis", "heron"),
)


class Numbered(Exception):
    status_code = 429


class Chatty(Exception):
    status_code = "could not embed 'tea'"


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (ValueError("could not embed 'tea'"), "ValueError"),
        (Numbered("tea"), "Numbered 429"),
        (Chatty("tea"), "Chatty"),
        (FileNotFoundError(2, "No such file", "tea.txt"), "FileNotFoundError 2"),
        (StoreError("The disk is full."), "StoreError: The disk is full."),
        (TooLate("no answer after 0.25 s"), "TooLate: no answer after 0.25 s"),
        (
            InputError("A cue must be a text, got ['tea']. Pass one."),
            "InputError: A cue must be a text",
        ),
    ],
)
def test_a_fault_is_described_without_the_words_it_was_given(fault: Exception, told: str) -> None:
    assert described(fault) == told


def test_a_fault_of_a_database_is_described_by_its_code() -> None:
    with pytest.raises(sqlite3.OperationalError) as caught:
        sqlite3.connect(":memory:").execute("SELECT tea")
    assert described(caught.value) == "OperationalError SQLITE_ERROR"


def test_a_description_is_short() -> None:
    assert len(described(StoreError("x" * 1000))) == LONGEST_DESCRIPTION


class Quoting(Embeddings):
    """Fails with the texts it was given, as clients of embedding services do."""

    is_failing = False

    def __init__(self) -> None:
        self._inner = LocalEmbeddings()

    def embed_query(self, text: str) -> list[float]:
        self._check(text)
        return self._inner.embed_query(text)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self._check(texts)
        return self._inner.embed_documents(texts)

    def _check(self, told: Any) -> None:
        if self.is_failing:
            raise ValueError(f"could not embed {told!r}")


class QuotingReranker(BaseDocumentCompressor):
    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Any = None
    ) -> Sequence[Document]:
        raise ValueError(f"could not rank {documents} for {query}")


def quoting_guard(text: str) -> Verdict:
    if "heron" in text.casefold():
        raise ValueError(f"could not judge {text}")
    return Verdict()


def quoting_sink(recall: Recall) -> None:
    raise ValueError(f"could not send {recall}, {recall.trace.cue}, {recall.memories}")


@pytest.fixture(params=["memory", "local", "postgres"])
def failing(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    embeddings = Quoting()
    index: Any = {"dims": 256, "embed": embeddings, "fields": ["content"]}
    if request.param == "memory":
        yield InMemoryStore(index=index), embeddings
    elif request.param == "local":
        yield LocalStore(tmp_path / "m.db", index=index), embeddings
    else:
        uri = request.getfixturevalue("postgres")
        with PostgresStore.from_conn_string(uri, index=index) as inner:
            RecallStore(inner).setup()
            yield inner, embeddings


def test_neither_the_log_nor_traces_without_text_hold_words(
    failing: tuple[BaseStore, Quoting],
    call: Call,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    inner, embeddings = failing
    path = tmp_path / "traces.jsonl"
    caplog.set_level(logging.DEBUG, "langmem_recall")
    degraded: list[str] = []

    with TraceLog(path, with_text=False) as log:

        def traces(recall: Recall) -> None:
            log(recall)
            degraded.extend(recall.trace.degraded)
            quoting_sink(recall)

        store = RecallStore(inner, traces=traces, reranker=QuotingReranker(), guard=quoting_guard)
        labels: dict[str, Any] = {
            **{"entities": ["Quixoticus"], "tags": ["zebra"], "speaker": "Xan"},
            **{"thread_id": "Yak"},
        }
        for key, code in (("k", "4711"), ("k2", "4712")):
            text = f"My Zyxwvutopia code for Quixoticus is {code}"
            call(store, "remember", NS, text, key=key, **labels)
        answer = AIMessage("It is 4711 [m1]")
        agent = create_agent(
            GenericFakeChatModel(messages=itertools.repeat(answer)),
            store=store,
            middleware=[RecallMiddleware(("m", "{user_id}"), deadline=None)],
        )
        config = {"configurable": {"user_id": "ada"}}
        for animal in ("Flamingo", "Gnu"):
            words = f"What is the Zyxwvutopia code of the {animal}?"
            call(agent, "invoke", {"messages": [("user", words)]}, config)
            embeddings.is_failing = True
        call(store, "recall", NS, "What is the Zyxwvutopia code of the gnu?")
        call(store, "remember", NS, "A new walrus fact")
        call(store, "remember", NS, "A heron is no fact")
        call(store, "search", NS, query="ibis")
        call(store, "close")

    assert degraded
    assert len(path.read_text().splitlines()) >= 3
    for told in (path.read_text(), caplog.text, json.dumps(degraded)):
        assert [word for word in WORDS if word in told.casefold()] == []
    assert "ValueError" in caplog.text
