"""`RecallStore` over LocalStore: every memory is weighed, usage lives in the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from conftest import START, Call, Clock, CountingEmbeddings
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.embeddings import Embeddings

from langmem_recall.policy import RecallPolicy
from langmem_recall.stores.local import tables
from langmem_recall.stores.local.store import LocalStore
from langmem_recall.stores.recall_store import Caching, RecallStore
from langmem_recall.types import UsageDelta

NS = ("memories", "ada")


@pytest.fixture
def local(embeddings: CountingEmbeddings) -> LocalStore:
    return LocalStore(embeddings=embeddings)


@pytest.fixture
def store(local: LocalStore, clock: Clock) -> RecallStore:
    return RecallStore(local, clock=clock)


def fill(store: Any, count: int) -> None:
    topics = ("tomatoes in the garden", "the bus to work", "paint for the kitchen", "jazz records")
    for i in range(count):
        store.put(NS, f"n{i}", {"content": f"note {i} about {topics[i % len(topics)]}"})


def test_every_memory_is_weighed_not_only_a_pool(store: RecallStore, call: Call) -> None:
    fill(store, 200)
    store.put(NS, "seat", {"content": "I prefer aisle seats on flights"})
    recall = call(store, "recall", NS, "which seat should I book on the plane?")
    assert [memory.key for memory in recall.memories] == ["seat"]
    assert recall.trace.searched == 201
    assert recall.trace.channels["dense"] == 201


def test_the_same_question_gets_the_same_scores_as_over_a_generic_store(
    store: RecallStore, inner: Any, clock: Clock, call: Call
) -> None:
    generic = RecallStore(inner, clock=clock, policy=RecallPolicy.default(pool=100))
    for target in (store, generic):
        for i, text in enumerate(["My sister lives in Oslo", "I am allergic to nuts", "I ski"]):
            target.put(NS, str(i), {"content": text, "written_at": START.isoformat()})
    ours = call(store, "search", NS, query="where does my sister live?")
    theirs = call(generic, "search", NS, query="where does my sister live?")
    assert [item.key for item in ours] == [item.key for item in theirs]
    assert [item.score for item in ours] == pytest.approx([item.score for item in theirs], abs=1e-5)


def test_a_warm_read_asks_the_file_for_nothing_but_its_version(
    tmp_path: Path,
    embeddings: CountingEmbeddings,
    clock: Clock,
    call: Call,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with LocalStore(tmp_path / "memory.db", embeddings=embeddings) as local:
        store = RecallStore(local, clock=clock, caching=Caching(flush_interval=3600))
        fill(store, 40)
        queries: dict[str, Any] = {"search": {"query": "tomatoes?"}, "recall": {"cue": "tomatoes?"}}
        cold = {name: call(store, name, NS, **query) for name, query in queries.items()}
        statements, parsed = list[str](), list[bytes]()
        for connection in (local._file._reader, local._file._writer):
            connection.set_trace_callback(statements.append)
        monkeypatch.setattr(tables, "decode_value", parsed.append)
        warm = {name: call(store, name, NS, **query) for name, query in queries.items()}
        assert set(statements) == {"PRAGMA data_version"}
        assert parsed == []
    assert [item.key for item in warm["search"]] == [item.key for item in cold["search"]]
    assert warm["recall"].memories == cold["recall"].memories


def test_what_another_opener_writes_and_counts_is_seen_by_the_next_read(
    tmp_path: Path, embeddings: CountingEmbeddings, clock: Clock, call: Call
) -> None:
    path = tmp_path / "memory.db"
    with (
        LocalStore(path, embeddings=embeddings) as local,
        LocalStore(path, embeddings=embeddings) as other,
    ):
        store = RecallStore(local, clock=clock, caching=Caching(flush_interval=3600))
        store.put(NS, "seat", {"content": "I prefer aisle seats", "salience": 0.2})
        query = {"query": "which seats?"}
        for _ in range(2):
            (first,) = call(store, "search", NS, **query)
        other.add_usage({(NS, "seat"): UsageDelta(30, clock().timestamp())}, 1.0)
        (used,) = call(store, "search", NS, **query)
        # Thirty uses and the one that this store has pending.
        assert first.signals.strength == pytest.approx(1 / 4)
        assert used.signals.strength == pytest.approx(31 / 34)
        other.put(NS, "seat", {"content": "I prefer window seats", "salience": 0.9})
        (changed,) = call(store, "search", NS, **query)
        assert changed.value["content"] == "I prefer window seats"
        assert changed.signals.importance > used.signals.importance
        changed.value["content"] = "spoilt"
        assert call(store, "search", NS, **query)[0].value["content"] == "I prefer window seats"


def test_one_query_embedding_per_read_and_no_document(
    store: RecallStore, embeddings: CountingEmbeddings, clock: Clock
) -> None:
    fill(store, 30)
    store.search(NS, query="the calibration panel is embedded once")
    embeddings.queries.clear()
    embeddings.documents.clear()
    for i in range(200):
        clock.turn(minutes=1)
        store.search(NS, query=f"jazz {i % 5}")
    assert len(embeddings.queries) == 200
    assert embeddings.documents == []


def test_reads_leave_items_as_they_were(
    tmp_path: Path, embeddings: CountingEmbeddings, clock: Clock
) -> None:
    local = LocalStore(tmp_path / "memory.db", embeddings=embeddings)
    store = RecallStore(local, clock=clock)
    fill(store, 20)
    before = [item.dict() for item in local.search(NS, limit=100)]
    for _ in range(20):
        clock.turn(minutes=2)
        store.recall(NS, "tell me about the jazz records")
    store.close()
    assert [item.dict() for item in local.search(NS, limit=100)] == before
    assert local.list_namespaces() == [NS]


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data(), count=st.integers(0, 60), limit=st.integers(1, 9))
def test_quiet_paging_of_a_local_store_returns_every_item_once(
    call: Call, data: st.DataObject, count: int, limit: int
) -> None:
    store = RecallStore(LocalStore(), policy=RecallPolicy.default(pool=10, rescues=5))
    fill(store, count)
    store.put(NS, "unindexed", {"content": "jazz without a vector"}, index=False)
    pages = data.draw(st.permutations(list(range(0, count + 1 + limit, limit))))
    with store.quiet():
        found = [
            item.key
            for offset in pages
            for item in call(store, "search", NS, query="jazz records", limit=limit, offset=offset)
        ]
    assert sorted(found) == sorted(["unindexed", *(f"n{i}" for i in range(count))])


def test_an_embedder_that_fails_leaves_the_words_here_too(
    store: RecallStore, embeddings: CountingEmbeddings, call: Call
) -> None:
    fill(store, 20)
    store.put(NS, "seat", {"content": "I prefer aisle seats on flights"})
    embeddings.fault = TimeoutError("no answer")
    recall = call(store, "recall", NS, "which seats on flights?")
    assert recall.memories[0].key == "seat"
    assert recall.trace.degraded == ("the embedder failed (TimeoutError); lexical only",)


class TightBand(Embeddings):
    """Squeezes real cosines into 0.7-0.9, as some large models do."""

    def __init__(self) -> None:
        self.inner = CountingEmbeddings()

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [[2.0, *vector] for vector in self.inner.embed_documents(texts)]

    def embed_query(self, text: str) -> list[float]:
        return [2.0, *self.inner.embed_query(text)]


def test_a_tight_band_embedder_still_tells_relevant_from_not(clock: Clock, call: Call) -> None:
    store = RecallStore(LocalStore(embeddings=TightBand()), clock=clock)
    fill(store, 40)
    store.put(NS, "seat", {"content": "I prefer aisle seats on flights"})
    found = call(store, "search", NS, query="which seat should I book on the plane?", limit=41)
    assert all(0.7 < item.similarity < 1.0 for item in found)
    recall = call(store, "recall", NS, "which seat should I book on the plane?")
    assert [memory.key for memory in recall.memories] == ["seat"]
    assert call(store, "recall", NS, "who composed the opera Tosca?").chosen == ()


def test_what_a_long_memory_says_at_its_end_is_found(call: Call) -> None:
    minutes = "The board talked about budgets, rooms and the new coffee machine at length. " * 40
    with LocalStore() as local:
        store = RecallStore(local)
        store.remember(NS, f"{minutes}I am allergic to penicillin.", key="long")
        store.remember(NS, minutes, key="other")
        (first, second) = call(store, "search", NS, query="Which medicine am I allergic to?")
        # The whole is about the board: alone it would hardly tell the two apart.
        assert (first.key, first.similarity > 0.4) == ("long", True)
        assert second.similarity < 0.3
