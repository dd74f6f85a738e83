"""`RecallStore` over LocalStore: every memory is weighed, usage lives in the file."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from conftest import START, Call, Clock, CountingEmbeddings
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.embeddings import Embeddings

from langmem_recall import Caching
from langmem_recall.policy import RecallPolicy
from langmem_recall.stores.local.store import LocalStore
from langmem_recall.stores.recall_store import RecallStore
from langmem_recall.types import Usage

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


def test_use_counts_are_exact_under_threads_and_two_wrappers(
    local: LocalStore, clock: Clock
) -> None:
    policy = RecallPolicy.default(refresh_floor=0)
    stores = [
        RecallStore(local, policy=policy, clock=clock, caching=Caching(flush_interval=0.01))
        for _ in range(2)
    ]
    stores[0].put(NS, "seat", {"content": "I prefer aisle seats"})

    def recall(reader: RecallStore) -> None:
        for _ in range(50):
            assert reader.recall(NS, "which seats do I prefer?").chosen

    threads = [threading.Thread(target=recall, args=(stores[i % 2],)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for store in stores:
        store.close()
    assert local.read_usage([(NS, "seat")])[0].uses == 400


def test_forget_drops_the_usage_row(store: RecallStore, local: LocalStore, call: Call) -> None:
    store.remember(NS, "I prefer aisle seats", key="seat")
    call(store, "search", NS, query="seats")
    call(store, "flush")
    assert local.read_usage([(NS, "seat")])[0].uses == 1
    assert call(store, "forget", NS, "seat")
    assert local.read_usage([(NS, "seat")]) == [Usage()]


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


def test_filters_and_prefixes_hold(store: RecallStore, call: Call) -> None:
    for user in ("ada", "adam"):
        for i in range(3):
            value = {"content": f"{user} likes jazz record {i}", "stars": i}
            store.put(("memories", user), str(i), value)
    found = call(store, "search", ("memories", "ada"), query="jazz", filter={"stars": {"$gte": 1}})
    assert {(item.namespace[1], item.key) for item in found} == {("ada", "1"), ("ada", "2")}
    assert len(call(store, "search", ("memories",), query="jazz")) == 6


def test_an_embedder_that_fails_leaves_the_words_here_too(
    store: RecallStore, embeddings: CountingEmbeddings, call: Call
) -> None:
    fill(store, 20)
    store.put(NS, "seat", {"content": "I prefer aisle seats on flights"})
    embeddings.fault = TimeoutError("no answer")
    recall = call(store, "recall", NS, "which seats on flights?")
    assert recall.memories[0].key == "seat"
    assert recall.trace.degraded == ("the embedder failed (TimeoutError); lexical only",)


def test_explain_and_correct_work_here_too(store: RecallStore, call: Call) -> None:
    fill(store, 80)
    store.remember(NS, "My sister lives in Oslo", key="sister")
    call(store, "correct", NS, "sister", "My sister lives in Bergen")
    cue = "where does my sister live?"
    assert call(store, "explain", NS, "sister", cue).recalled
    assert call(store, "explain", NS, "sister@1", cue).reason == "status: superseded"
    assert call(store, "explain", NS, "n7", cue).reason.startswith("floor: relevance 0.")
    assert call(store, "explain", NS, "nobody", cue).reason == "no such memory in this namespace"


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
