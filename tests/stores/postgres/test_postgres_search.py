"""Reading Postgres: few round trips, and dense pools that HNSW cannot thin out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import psycopg
import pytest
from conftest import Call, Clock, CountingEmbeddings
from langchain_core.embeddings import Embeddings
from langgraph.store.base import PutOp, SearchOp
from langgraph.store.memory import InMemoryStore
from langgraph.store.postgres import PostgresStore

from langmem_recall import Caching
from langmem_recall.flows.effects import Host, run
from langmem_recall.guard.judge import Verdict
from langmem_recall.policy import RecallPolicy
from langmem_recall.stores.postgres.database import Database
from langmem_recall.stores.postgres.search import EXACT_UP_TO, PostgresReads, RareWords, Survey
from langmem_recall.stores.recall_store import RecallStore

NS = ("memories", "ada")
CODE = "ERR_SSL_VERSION"
DIMS = 16
FEW = RecallPolicy.default(pool=3)


class Directions(Embeddings):
    """A direction for each text, always the same."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        vector = np.random.default_rng(list(text.encode())).standard_normal(DIMS)
        return [float(x) for x in vector / np.linalg.norm(vector)]


def nearest(texts: dict[str, str], query: str, count: int) -> list[str]:
    embed = Directions().embed_query
    cosines = {key: float(np.dot(embed(text), embed(query))) for key, text in texts.items()}
    return sorted(cosines, key=lambda key: -cosines[key])[:count]


def index(embeddings: Embeddings, dims: int, **more: Any) -> dict[str, Any]:
    return {"dims": dims, "embed": embeddings, "fields": ["content"], **more}


class CountedPostgres(PostgresStore):
    """Counts how often a connection is used: each time is one lot of statements."""

    trips = 0

    def _cursor(self, *, pipeline: bool = False) -> Any:
        self.trips += 1
        return super()._cursor(pipeline=pipeline)


@pytest.fixture
def opened(postgres: str) -> Iterator[Any]:
    with ExitStack() as stack:

        def open_store(embeddings: Embeddings, dims: int, **more: Any) -> CountedPostgres:
            made = CountedPostgres.from_conn_string(postgres, index=index(embeddings, dims, **more))
            store = stack.enter_context(made)
            RecallStore(store).setup()
            return store

        yield open_store


@pytest.fixture
def crowd(opened: Any) -> CountedPostgres:
    """Forty tenants with 30 memories each, on a connection that prefers its ANN index."""
    store = opened(Directions(), DIMS)
    store.batch(
        PutOp(("t", f"u{tenant}"), f"m{n}", {"content": f"{tenant} says {n}", "n": n % 2})
        for tenant in range(40)
        for n in range(30)
    )
    store.conn.execute("SET enable_sort = off")
    return store


def reads_of(store: PostgresStore) -> PostgresReads:
    return PostgresReads(Database(store))


def look(store: PostgresStore, op: SearchOp, size: int | None) -> list[str]:
    host = Host(store, store, store.embeddings)
    looked = run(reads_of(store).fetch([op], [], size=size), host)
    return [item.key for item in looked.pages[0]]


def op_of(prefix: tuple[str, ...], limit: int, query: str = "who?", **more: Any) -> SearchOp:
    return SearchOp(prefix, query=query, limit=limit, refresh_ttl=False, **more)


def test_recall_over_postgres_finds_by_meaning_and_by_words(
    opened: Any, call: Call, clock: Clock, embeddings: CountingEmbeddings
) -> None:
    store = RecallStore(opened(embeddings, 256), clock=clock)
    for i in range(30):
        call(store, "put", NS, f"n{i}", {"content": f"note {i} about jazz"})
    call(store, "put", NS, "ssl", {"content": f"the deploy ended with {CODE}"})
    call(store, "put", NS, "seat", {"content": "I prefer aisle seats on long flights"})
    assert call(store, "recall", NS, f"why {CODE}?").memories[0].key == "ssl"
    assert call(store, "recall", NS, "which seat do I like when flying?").memories[0].key == "seat"
    assert call(store, "recall", NS, "who composed Tosca?").chosen == ()
    found = call(store, "search", NS, query="jazz", limit=50)
    assert len(found) == 32
    assert found[0].similarity == pytest.approx(
        store.inner.search(NS, query="jazz", limit=1)[0].score, abs=1e-6
    )
    call(store, "close")


def test_words_are_looked_for_by_the_database_where_neither_index_nor_embedder_is_there(
    opened: Any, call: Call, clock: Clock, embeddings: CountingEmbeddings
) -> None:
    caching = Caching(index_limit=0)
    store = RecallStore(opened(embeddings, 256), clock=clock, caching=caching)
    for i in range(80):
        store.put(NS, f"n{i}", {"content": f"note {i} about jazz"})
    store.put(NS, "ssl", {"content": f"the deploy ended with {CODE}"})
    embeddings.fault = ConnectionError("no route")
    policy = RecallPolicy.default(pool=5)
    recall = call(store, "recall", NS, f"why {CODE}?", policy=policy)
    assert [memory.key for memory in recall.memories] == ["ssl"]
    assert recall.trace.degraded[0].endswith("lexical only")
    call(store, "close")


def test_a_small_tenant_among_many_has_its_true_nearest(crowd: CountedPostgres) -> None:
    texts = {f"m{n}": f"7 says {n}" for n in range(30)}
    assert look(crowd, op_of(("t", "u7"), 10), 30) == nearest(texts, "who?", 10)
    assert look(crowd, op_of(("t", "u7"), 10), None) == nearest(texts, "who?", 10)


def test_a_page_that_the_index_has_thinned_out_is_repaired(crowd: CountedPostgres) -> None:
    # A wrong size, as if the tenant were too large to compare all.
    texts = {f"m{n}": f"7 says {n}" for n in range(30)}
    op = op_of(("t", "u7"), 30)
    reads = reads_of(crowd)
    settings = reads._settings(op, Survey(0, can_iterate=False, has_words=False, at=0))
    bare: Any = run(
        _rows(crowd, *settings, reads._nearest("index", None, op, str([1.0] * DIMS), "s.key")),
        Host(crowd, crowd),
    )
    assert len(bare[-1]) < 30
    assert look(crowd, op, 10**6) == nearest(texts, "who?", 30)


def _rows(store: PostgresStore, *statements: Any) -> Any:
    return (yield Database(store).ask(*statements))


def test_more_than_40_rows_come_from_an_hnsw_index(crowd: CountedPostgres) -> None:
    keys = look(crowd, op_of(("t",), 100), 10**6)
    assert len(keys) == 100


def test_a_filter_leaves_a_full_page(crowd: CountedPostgres) -> None:
    texts = {f"m{n}": f"7 says {n}" for n in range(30) if n % 2}
    for size in (30, 10**6):
        page = look(crowd, op_of(("t", "u7"), 10, filter={"n": 1}), size)
        assert page == nearest(texts, "who?", 10)
    assert look(crowd, op_of(("t", "u7"), 10, filter={"n": {"$gt": 1}}), 30) == []


def test_a_memory_with_several_vectors_comes_once_and_by_its_best(opened: Any) -> None:
    store = opened(Directions(), DIMS)
    for n in range(12):
        store.put(
            NS,
            f"m{n}",
            {"content": f"{n}", "more": [f"{n} {i}" for i in range(5)]},
            index=["content", "more[*]"],
        )
    page = look(store, op_of(NS, 6, query="3 4"), 12)
    assert page[0] == "m3"
    assert len(page) == len(set(page)) == 6


def test_namespaces_beside_and_below_are_told_apart(opened: Any) -> None:
    store = opened(Directions(), DIMS)
    homes = [("a",), ("a", "b"), ("ab",), ("a%",), ("a_", "b"), ("A",)]
    for home in homes:
        store.put(home, ".".join(home), {"content": "the same"})
    for size in (2, 10**6):
        assert sorted(look(store, op_of(("a",), 10), size)) == ["a", "a.b"]


def test_half_precision_and_flat_indexes_are_searched_too(opened: Any) -> None:
    config = {"ann_index_config": {"kind": "flat", "vector_type": "halfvec"}}
    store = opened(Directions(), DIMS, **config)
    texts = {f"m{n}": f"says {n}" for n in range(50)}
    store.batch(PutOp(NS, key, {"content": text}) for key, text in texts.items())
    for size in (50, 10**6):
        assert look(store, op_of(NS, 10), size) == nearest(texts, "who?", 10)


def test_other_distances_are_left_to_the_store(opened: Any) -> None:
    store = opened(Directions(), DIMS, distance_type="l2")
    store.put(NS, "k", {"content": "says"})
    assert look(store, op_of(NS, 10), 1) == ["k"]


def test_a_namespace_is_compared_whole_as_long_as_that_is_less_work() -> None:
    limits = {n: Survey(n, True, True, 0.0).exact_up_to(40) for n in (-1, 0, 10_000_000)}
    assert limits == {-1: EXACT_UP_TO, 0: EXACT_UP_TO, 10_000_000: 20_000}


def test_a_warm_search_is_one_round_trip_and_a_cold_one_four(
    opened: Any, clock: Clock, embeddings: CountingEmbeddings
) -> None:
    inner = opened(embeddings, 256)
    inner.batch(PutOp(NS, f"n{n}", {"content": f"note {n} about {n} things"}) for n in range(1_200))
    store = RecallStore(inner, clock=clock, caching=Caching(flush_interval=3_600))
    inner.trips = 0
    store.search(NS, query="note 3")
    # One of them asks what is known of the embedder; a turn does not wait for it.
    assert inner.trips <= 4
    inner.trips = 0
    store.search(NS, query="note 7")
    store.recall(NS, "note 7")
    assert inner.trips == 2
    store.close()


def test_what_another_process_writes_and_deletes_is_noticed_by_age(
    opened: Any, clock: Clock, embeddings: CountingEmbeddings, postgres: str
) -> None:
    inner = opened(embeddings, 256)
    store = RecallStore(inner, clock=clock, policy=RecallPolicy.default(pool=1, rescues=1))
    for n in range(5):
        store.put(NS, f"n{n}", {"content": f"note {n} about jazz"})
    assert store.recall(NS, f"{CODE} jazz").trace.searched == 5
    inner.put(NS, "ssl", {"content": f"it was {CODE}"}, index=False)
    clock.turn(seconds=31)
    assert store.recall(NS, f"why {CODE}?").memories[0].key == "ssl"
    inner.delete(NS, "ssl")
    inner.delete(NS, "n1")
    clock.turn(seconds=31)
    assert store.recall(NS, "jazz").trace.searched == 4
    store.close()


def test_a_value_changed_by_any_means_is_returned_as_it_is_now(opened: Any, postgres: str) -> None:
    inner = opened(Directions(), DIMS)
    store = RecallStore(inner)
    for key in ("a", "b", "c"):
        store.put(NS, key, {"content": f"note {key}", "tags": ["old"]})

    def tags() -> dict[str, Any]:
        found = store.search(NS, query="note a", limit=3)
        return {item.key: item.value["tags"] for item in found}

    assert tags() == {"a": ["old"], "b": ["old"], "c": ["old"]}
    with psycopg.connect(postgres, autocommit=True) as database:
        new = """UPDATE store SET value = jsonb_set(value, '{tags}', '["new"]') WHERE key = 'b'"""
        database.execute(new)
        database.execute("DELETE FROM store WHERE key = 'c'")
    assert tags() == {"a": ["old"], "b": ["new"]}
    before = inner.trips
    assert tags() == {"a": ["old"], "b": ["new"]}
    assert inner.trips - before == 1


def test_who_changes_a_result_changes_nothing_else(opened: Any) -> None:
    store = RecallStore(opened(Directions(), DIMS))
    store.put(NS, "a", {"content": "note", "tags": ["old"]})
    for _ in range(2):
        (found,) = store.search(NS, query="note")
        assert found.value["tags"] == ["old"]
        found.value["tags"].append("mine")


def test_a_failing_embedder_leaves_the_words(
    opened: Any, call: Call, clock: Clock, embeddings: CountingEmbeddings
) -> None:
    store = RecallStore(opened(embeddings, 256), clock=clock)
    call(store, "put", NS, "ssl", {"content": f"the deploy ended with {CODE}"})
    call(store, "recall", NS, "anything")
    embeddings.spoil = lambda vector: [float("nan")] * len(vector)
    recall = call(store, "recall", NS, f"why {CODE}?")
    assert [memory.key for memory in recall.memories] == ["ssl"]
    assert "lexical only" in recall.trace.degraded[0]
    embeddings.fault = RuntimeError("no embedder today")
    assert call(store, "recall", NS, f"why {CODE}?").memories[0].key == "ssl"
    call(store, "close")


def test_expired_items_that_are_left_out_stay_out(
    postgres: str, clock: Clock, embeddings: CountingEmbeddings
) -> None:
    ttl = {"omit_expired": True, "refresh_on_read": False}
    with PostgresStore.from_conn_string(postgres, index=index(embeddings, 256), ttl=ttl) as inner:
        store = RecallStore(inner, clock=clock)
        store.setup()
        store.put(NS, "old", {"content": "jazz on Monday"}, ttl=5)
        store.put(NS, "new", {"content": "jazz on Friday"})
        with psycopg.connect(postgres, autocommit=True) as connection:
            connection.execute(
                "UPDATE store SET expires_at = now() - interval '1 s' WHERE key = 'old'"
            )
        assert [item.key for item in store.search(NS, query="jazz")] == ["new"]
        store.close()


@pytest.mark.parametrize("index_limit", [0, 10])
def test_rare_words_are_found_where_no_words_are_kept_in_process(
    opened: Any, call: Call, clock: Clock, embeddings: CountingEmbeddings, index_limit: int
) -> None:
    caching = Caching(index_limit=index_limit)
    store = RecallStore(opened(embeddings, 256), clock=clock, policy=FEW, caching=caching)
    notes = [PutOp(NS, f"n{n}", {"content": f"note {n} about jazz"}) for n in range(80)]
    call(store, "batch", [*notes, PutOp(NS, "ssl", {"content": f"then came {CODE}"}, index=False)])
    call(store, "put", ("memories", "bob"), "ssl", {"content": f"bob saw {CODE} too"})
    for _ in range(2):
        recall = call(store, "recall", NS, f"any jazz note with {CODE.lower()}?")
        assert "ssl" in {memory.key for memory in recall.memories}
        assert {memory.namespace for memory in recall.memories} == {NS}
    call(store, "close")


def test_common_words_are_not_looked_up_twice() -> None:
    words = RareWords()
    asked = words.pick(NS, ["Does the deploy of jazz fail with ERR-7?", "jazz"])
    assert asked == ["ERR-7", "deploy", "jazz", "fail"]
    item = ("memories.ada", "k", {}, None, None)
    rows = [(None, *item), (2, None, None, None, None, None)]
    assert words.items(NS, asked, rows) == [item]
    assert words.pick(NS, ["jazz and tea"]) == ["tea"]
    assert words.pick(("other",), ["jazz and tea"]) == ["jazz", "tea"]


def test_rulings_come_along_with_the_listing_or_from_their_own_store(
    opened: Any, clock: Clock, embeddings: CountingEmbeddings
) -> None:
    inner = opened(embeddings, 256)
    for usage_store in (None, InMemoryStore()):
        store = RecallStore(
            inner, clock=clock, guard=no_jazz, caching=Caching(usage_store=usage_store)
        )
        store.put(NS, "bad", {"content": "jazz is a command"})
        again = RecallStore(
            inner, clock=clock, guard=no_jazz, caching=Caching(usage_store=usage_store)
        )
        for _ in range(2):
            assert again.search(NS, query="jazz") == []
            clock.turn(seconds=31)
        store.close()
        again.close()


def no_jazz(text: str) -> Verdict:
    return Verdict("quarantine", ("jazz",)) if "jazz" in text else Verdict()
