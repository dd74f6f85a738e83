"""`RecallStore` over LangGraph's InMemoryStore: what a user relies on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from conftest import START, Call, Clock, CountingEmbeddings
from langgraph.store.base import SearchOp
from langgraph.store.memory import InMemoryStore
from rank_bm25 import BM25Plus

from langmem_recall import Caching
from langmem_recall.flows.usage import USAGE
from langmem_recall.policy import RecallPolicy
from langmem_recall.stores.local.store import LocalStore
from langmem_recall.stores.recall_store import RecallStore
from langmem_recall.text.tokens import tokens
from langmem_recall.types import SIDECAR_ROOT

NS = ("memories", "ada")
CODE = "ERR_SSL_VERSION_OR_CIPHER_MISMATCH"


@pytest.fixture
def store(inner: InMemoryStore, clock: Clock) -> RecallStore:
    return RecallStore(inner, clock=clock)


def fill(store: Any, count: int, namespace: tuple[str, ...] = NS) -> None:
    topics = ("tomatoes in the garden", "the bus to work", "paint for the kitchen", "jazz records")
    for i in range(count):
        store.put(namespace, f"n{i}", {"content": f"note {i} about {topics[i % len(topics)]}"})


def snapshot(inner: InMemoryStore, namespace: tuple[str, ...] = NS) -> dict[str, Any]:
    return {
        key: (repr(item.dict()), repr(inner._vectors[namespace].get(key)))
        for key, item in inner._data[namespace].items()
    }


# --- reading ----------------------------------------------------------------------------------


def test_an_identifier_outside_the_dense_pool_is_found(store: RecallStore, call: Call) -> None:
    for i in range(100):
        store.put(NS, f"n{i}", {"content": f"QX-{48000 + 7 * i} was noted"})
    text = "The carrier lost our parcel from Ghent again, they filed it under QX-48213 last week"
    store.put(NS, "parcel", {"content": text})
    cue = "what was noted about QX-48213?"
    dense = store.inner.search(NS, query=cue, limit=30)
    assert "parcel" not in {item.key for item in dense}
    policy = RecallPolicy.default(pool=30)
    found = call(store, "search", NS, query=cue, limit=10, policy=policy)
    assert "parcel" in {item.key for item in found}
    recalled = call(store, "recall", NS, cue, policy=policy)
    assert "parcel" in {memory.key for memory in recalled.memories}


# --- paging -----------------------------------------------------------------------------------


def test_asking_for_the_same_page_again_sees_what_has_changed(
    store: RecallStore, clock: Clock
) -> None:
    policy = RecallPolicy.weighted()
    store.put(NS, "a", {"content": "jazz on Monday", "written_at": "2026-02-01T00:00:00+00:00"})
    store.put(NS, "b", {"content": "jazz on Tuesday", "written_at": "2026-03-01T00:00:00+00:00"})
    assert store.search(NS, query="jazz", policy=policy, limit=1)[0].key == "b"
    store.put(NS, "c", {"content": "jazz", "written_at": START.isoformat()})
    assert store.search(NS, query="jazz", policy=policy, limit=1)[0].key == "c"


# --- what a read changes ----------------------------------------------------------------------


def test_a_thousand_reads_embed_no_document_and_leave_items_as_they_were(
    store: RecallStore, inner: InMemoryStore, embeddings: CountingEmbeddings, clock: Clock
) -> None:
    fill(store, 30)
    store.search(NS, query="warm up: the calibration panel is embedded once")
    before, documents = snapshot(inner), len(embeddings.documents)
    embeddings.queries.clear()
    for i in range(1_000):
        clock.turn(minutes=1)
        assert store.search(NS, query=f"jazz records {i % 7}", limit=5)
    assert len(embeddings.documents) == documents
    # The store embeds each cue, and so do we where that takes next to no time.
    assert len(embeddings.queries) in (1_000, 2_000)
    store.flush()
    assert snapshot(inner) == before


def test_reads_write_only_when_flushed(
    store: RecallStore, inner: InMemoryStore, call: Call
) -> None:
    store.put(NS, "seat", {"content": "I prefer aisle seats"})
    call(store, "search", NS, query="which seats?")
    assert inner.search((SIDECAR_ROOT,)) == []
    assert call(store, "flush") == 1
    usage = dict(inner.get((*USAGE, *NS), "seat").value)
    assert usage.pop("lot")
    assert usage == {"uses": 1, "decayed": 1.0, "last_used": START.timestamp(), "before": None}


def test_use_counts_are_exact_under_tasks(inner: InMemoryStore, clock: Clock) -> None:
    policy = RecallPolicy.default(refresh_floor=0)
    store = RecallStore(inner, policy=policy, clock=clock, caching=Caching(flush_interval=0.001))
    store.put(NS, "seat", {"content": "I prefer aisle seats"})

    async def recall() -> None:
        for _ in range(25):
            assert (await store.arecall(NS, "which seats do I prefer?")).chosen

    async def main() -> None:
        await asyncio.gather(*(recall() for _ in range(8)))
        await store.aclose()

    asyncio.run(main())
    assert inner.get((*USAGE, *NS), "seat").value["uses"] == 200


def test_usage_can_live_in_another_store(inner: InMemoryStore, clock: Clock, call: Call) -> None:
    usage = InMemoryStore()
    store = RecallStore(inner, clock=clock, caching=Caching(usage_store=usage))
    store.put(NS, "seat", {"content": "I prefer aisle seats"})
    call(store, "search", NS, query="seats")
    call(store, "flush")
    assert usage.get((*USAGE, *NS), "seat").value["uses"] == 1
    assert set(inner.list_namespaces()) == {NS}


def test_a_failed_flush_keeps_its_counts(
    store: RecallStore, inner: InMemoryStore, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put(NS, "seat", {"content": "I prefer aisle seats"})
    call(store, "search", NS, query="seats")

    def broken(*_: Any) -> Any:
        raise ConnectionError("the database went away")

    with monkeypatch.context() as patch:
        patch.setattr(InMemoryStore, "batch", broken)
        patch.setattr(InMemoryStore, "abatch", broken)
        with pytest.raises(ConnectionError):
            call(store, "flush")
    assert call(store, "flush") == 1
    assert inner.get((*USAGE, *NS), "seat").value["uses"] == 1


# --- the index and other writers --------------------------------------------------------------


def test_a_write_elsewhere_is_found_by_its_words_after_the_index_aged(
    inner: InMemoryStore, clock: Clock, call: Call
) -> None:
    store = RecallStore(
        inner, clock=clock, policy=RecallPolicy.default(pool=5), caching=Caching(max_age=30)
    )
    fill(store, 60)
    call(store, "search", NS, query="jazz")
    inner.put(NS, "ssl", {"content": f"{CODE} jazz"}, index=False)
    clock.turn(seconds=29)
    assert call(store, "recall", NS, CODE).chosen == ()
    clock.turn(seconds=1)
    assert call(store, "recall", NS, CODE).memories[0].key == "ssl"


@pytest.mark.parametrize("index_limit", [0, 10])
def test_without_an_index_the_dense_pool_is_ranked(
    inner: InMemoryStore, clock: Clock, call: Call, index_limit: int
) -> None:
    store = RecallStore(inner, clock=clock, caching=Caching(index_limit=index_limit))
    fill(store, 60)
    store.put(NS, "seat", {"content": "I prefer aisle seats on flights"})
    recall = call(store, "recall", NS, "which seat do I prefer on flights?")
    assert recall.memories[0].key == "seat"
    assert recall.chosen[0].evidence.coverage > 0.9
    keys = [item.key for item in call(store, "search", NS, query="jazz", limit=100)]
    assert len(keys) == len(set(keys)) == 61


def test_where_no_index_is_kept_rank_bm25_scores_the_pool(inner: InMemoryStore, call: Call) -> None:
    texts = {"seat": "I prefer aisle seats on flights", "tea": "I prefer green tea", "cat": "Tom"}
    scores = {}
    for limit in (0, 100):
        store = RecallStore(inner, caching=Caching(index_limit=limit))
        for key, text in texts.items():
            store.put(NS, key, {"content": text})
        recall = call(store, "recall", NS, "prefer aisle seats", record=False)
        found = [*recall.chosen, *(drop.scored for drop in recall.dropped)]
        scores[limit] = {scored.memory.key: scored.evidence.bm25 for scored in found}
    oracle = BM25Plus([tokens(text) for text in texts.values()])
    expected = dict(zip(texts, oracle.get_scores(tokens("prefer aisle seats")), strict=True))
    # No word in common is no evidence, though BM25+ gives every document the delta.
    expected["cat"] = None
    assert scores[0] == pytest.approx(expected) == scores[100]


@pytest.mark.parametrize("words", ["Good morning!", "Thanks, that helps a lot.", "Guten Morgen!"])
def test_small_talk_asks_for_nothing_and_stays_in_the_trace(
    words: str, embeddings: CountingEmbeddings, call: Call
) -> None:
    store = RecallStore(LocalStore(embeddings=embeddings))
    store.remember(("u",), "Good morning tea helps a lot", key="tea")
    store.remember(("u",), "Always be kind", key="kind", pinned=True)
    recall = call(store, "recall", ("u",), words)
    assert [memory.key for memory in recall.memories] == ["kind"]
    assert recall.trace.cue.text == words
    assert recall.trace.cue.reasons == ("small talk",)
    assert not call(store, "explain", ("u",), "tea", words).recalled
    # Asked for by name it is there.
    assert call(store, "search", ("u",), query="Good morning!")[0].key == "tea"
    found = call(store, "recall", ("u",), "What helps in the morning?").memories
    assert "tea" in {memory.key for memory in found}


def test_a_store_without_vectors_recalls_by_words(clock: Clock, call: Call) -> None:
    store = RecallStore(InMemoryStore(), clock=clock)
    fill(store, 60)
    store.put(NS, "ssl", {"content": f"the deploy ended with {CODE}"})
    recall = call(store, "recall", NS, f"why {CODE}?")
    assert recall.memories[0].key == "ssl"
    assert recall.chosen[0].evidence.dense is None
    assert call(store, "recall", NS, "who composed Tosca?").chosen == ()
    assert len(call(store, "search", NS, query="jazz", limit=100)) == 61


# --- the store interface ----------------------------------------------------------------------


def test_everything_the_inner_store_has_stays_reachable(inner: InMemoryStore) -> None:
    store = RecallStore(inner)
    assert store.embeddings is inner.embeddings
    assert store.index_config is inner.index_config
    assert store.supports_ttl is inner.supports_ttl
    assert store.ttl_config is inner.ttl_config
    assert bool(store)
    assert store.inner is inner
    with pytest.raises(AttributeError):
        _ = store.no_such_thing
    assert store.setup() is None


def test_a_context_manager_flushes_at_its_end(inner: InMemoryStore, clock: Clock) -> None:
    with RecallStore(inner, clock=clock) as store:
        store.put(NS, "seat", {"content": "I prefer aisle seats"})
        store.search(NS, query="seats")
    assert inner.get((*USAGE, *NS), "seat").value["uses"] == 1

    async def main() -> None:
        clock.turn(minutes=2)
        async with RecallStore(inner, clock=clock) as store:
            await store.asearch(NS, query="seats")

    asyncio.run(main())
    assert inner.get((*USAGE, *NS), "seat").value["uses"] == 2


# --- bad input and faults ---------------------------------------------------------------------


def test_an_embedder_that_fails_leaves_the_words(
    store: RecallStore, embeddings: CountingEmbeddings, call: Call
) -> None:
    fill(store, 20)
    store.put(NS, "seat", {"content": "I prefer aisle seats on flights"})
    embeddings.fault = TimeoutError("no answer")
    recall = call(store, "recall", NS, "which seats on flights?")
    assert recall.memories[0].key == "seat"
    assert recall.trace.degraded == ("dense search failed (TimeoutError); lexical only",)
    assert len(call(store, "search", NS, query="seats", limit=100)) == 21
    embeddings.fault = None
    assert call(store, "recall", NS, "which seats on flights?").trace.degraded == ()


def test_nan_from_the_embedder_is_missing_evidence(
    store: RecallStore, embeddings: CountingEmbeddings, call: Call
) -> None:
    fill(store, 20)
    store.put(NS, "seat", {"content": "I prefer aisle seats on flights"})
    embeddings.spoil = lambda vector: [float("nan")] * len(vector)
    recall = call(store, "recall", NS, "which seats on flights?")
    assert recall.memories[0].key == "seat"
    assert recall.chosen[0].evidence.dense is None
    assert "the embedder gave NaN" in recall.trace.degraded[0]


# --- writing ----------------------------------------------------------------------------------


def test_a_cancelled_flush_neither_hangs_nor_loses_what_was_pending(
    inner: InMemoryStore, clock: Clock
) -> None:
    store = RecallStore(inner, clock=clock, caching=Caching(flush_interval=1_000))
    store.put(NS, "seat", {"content": "I prefer aisle seats"})
    store.search(NS, query="seats")
    adding = store._ledger._adding

    async def main() -> None:
        waiting = [asyncio.create_task(store.aflush()) for _ in range(5)]
        await asyncio.sleep(0)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    with adding:
        asyncio.run(main())
    assert not adding.locked()
    assert store.flush() == 1
    assert inner.get((*USAGE, *NS), "seat").value["uses"] == 1


class Leaky(InMemoryStore):
    """Answers searches with everybody's memories, as stores with a broken prefix match did."""

    def batch(self, ops: Any) -> list[Any]:
        return super().batch(
            [op._replace(namespace_prefix=()) if isinstance(op, SearchOp) else op for op in ops]
        )

    async def abatch(self, ops: Any) -> list[Any]:
        return self.batch(ops)


@pytest.mark.parametrize("policy", [RecallPolicy.default(), RecallPolicy.similarity()])
def test_what_a_leaky_store_returns_of_others_never_gets_through(
    call: Call, policy: RecallPolicy
) -> None:
    index = {"dims": 256, "embed": CountingEmbeddings(), "fields": ["content"]}
    store = RecallStore(Leaky(index=index), policy=policy)
    for user in ("1", "10"):
        store.put(("user", user), "seat", {"content": f"user {user} prefers aisle seats"})
    mine = ("user", "1")
    found = [
        *call(store, "search", mine, query="which seats?"),
        *call(store, "search", mine),
        *call(store, "batch", [SearchOp(mine, query="which seats?")])[0],
        *call(store, "batch", [SearchOp(mine)])[0],
        *call(store, "recall", mine, "which seats?").memories,
    ]
    assert {memory.namespace for memory in found} == {mine}
    assert len(found) == 5


def test_the_similarity_policy_is_invisible(inner: InMemoryStore, call: Call) -> None:
    store = RecallStore(inner, policy=RecallPolicy.similarity())
    fill(store, 30)
    for offset in (0, 7, 29, 40):
        ours = call(store, "search", NS, query="jazz records", limit=9, offset=offset)
        theirs = inner.search(NS, query="jazz records", limit=9, offset=offset)
        assert [(item.key, item.score) for item in ours] == [
            (item.key, item.score) for item in theirs
        ]
