import asyncio
import gc
import threading
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.embeddings import Embeddings
from langgraph.store.base import (
    GetOp,
    InvalidNamespaceError,
    ListNamespacesOp,
    MatchCondition,
    PutOp,
    SearchOp,
)

from langmem_recall.embeddings import LocalEmbeddings
from langmem_recall.errors import InputError, MissingExtraError, StoreError
from langmem_recall.stores.backend import backend_of
from langmem_recall.stores.local.backend import LocalBackend, LocalUsage
from langmem_recall.stores.local.store import LocalStore
from langmem_recall.types import Usage, UsageDelta

NS = ("users", "ann")
START = 1_700_000_000.0


class WordCounts(Embeddings):
    """One dimension a known word: cosines can be worked out by hand."""

    identity = "word counts"
    words = ("cat", "dog", "tea", "car")

    def __init__(self):
        self.embedded = []
        self.breaks = False

    def vector(self, text):
        return [float(text.split().count(word)) for word in self.words]

    def embed_documents(self, texts):
        if self.breaks:
            raise ConnectionError("embedder is down")
        self.embedded += texts
        return [self.vector(text) for text in texts]

    def embed_query(self, text):
        return self.vector(text)


class Clock:
    def __init__(self):
        self.now = START

    def __call__(self):
        return self.now


@pytest.fixture(params=["sync", "async"])
def call(request):
    """Calls a store's method, or its async twin on a loop of its own."""

    def run(store, name, *args, **kwargs):
        if request.param == "sync":
            return getattr(store, name)(*args, **kwargs)

        async def wait():
            return await getattr(store, f"a{name}")(*args, **kwargs)

        return asyncio.run(wait())

    return run


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture(params=["file", "memory"])
def store(request, tmp_path, clock):
    path = ":memory:" if request.param == "memory" else tmp_path / "memory.db"
    with LocalStore(path, embeddings=WordCounts(), clock=clock) as opened:
        yield opened


def keys(items):
    return [item.key for item in items]


def test_store_offers_all_its_evidence_and_a_usage_table(store):
    backend = backend_of(store)
    assert isinstance(backend, LocalBackend)
    assert isinstance(backend.usage, LocalUsage)
    assert bool(store)


def test_put_then_get_returns_the_value_and_aware_times(store, call):
    call(store, "put", NS, "k", {"content": "cat", "n": 1, "deep": {"x": [1, None, "ü"]}})
    item = call(store, "get", NS, "k")
    assert item.value == {"content": "cat", "n": 1, "deep": {"x": [1, None, "ü"]}}
    assert (item.namespace, item.key) == (NS, "k")
    assert item.created_at == item.updated_at == datetime.fromtimestamp(START, UTC)


def test_created_at_survives_an_update(store, clock, call):
    call(store, "put", NS, "k", {"content": "cat"})
    clock.now += 60
    call(store, "put", NS, "k", {"content": "dog"})
    item = call(store, "get", NS, "k")
    assert item.updated_at - item.created_at == timedelta(seconds=60)


def test_deleted_memory_is_gone_everywhere(store, call):
    call(store, "put", NS, "k", {"content": "cat"})
    call(store, "delete", NS, "k")
    call(store, "delete", NS, "never was")
    assert call(store, "get", NS, "k") is None
    assert call(store, "search", NS, query="cat") == []
    assert call(store, "list_namespaces") == []


def test_search_orders_by_cosine_and_says_it(store, call):
    call(store, "put", NS, "both", {"content": "cat dog"})
    call(store, "put", NS, "cat", {"content": "cat"})
    call(store, "put", NS, "tea", {"content": "tea"})
    found = call(store, "search", NS, query="cat")
    assert keys(found) == ["cat", "both", "tea"]
    # cos(cat, cat dog) = 1 / sqrt(2)
    assert [item.score for item in found] == pytest.approx([1.0, 0.5**0.5, 0.0], abs=1e-6)


def test_memories_without_evidence_follow_the_scored_ones_in_the_order_of_writing(store, call):
    call(store, "put", NS, "unindexed", {"content": "cat"}, index=False)
    call(store, "put", NS, "wordless", {"content": "nothing known"})
    call(store, "put", NS, "dog", {"content": "dog"})
    found = call(store, "search", NS, query="cat")
    assert [(item.key, item.score) for item in found] == [
        ("dog", 0.0),
        ("unindexed", None),
        ("wordless", None),
    ]


@pytest.mark.parametrize("query", ["unknown words", ""])
def test_query_without_direction_leaves_everything_unscored(store, query):
    for key in ("a", "b", "c"):
        store.put(NS, key, {"content": "cat"})
    found = store.search(NS, query=query)
    assert keys(found) == ["a", "b", "c"]
    assert {item.score for item in found} == {None}


def test_several_vectors_of_a_memory_count_by_the_best(store, call):
    value = {"title": "cat", "body": "dog", "notes": ["tea", "car"]}
    call(store, "put", NS, "k", value, index=["title", "body", "notes[*]"])
    for query in ("cat", "dog", "tea", "car"):
        assert call(store, "search", NS, query=query)[0].score == pytest.approx(1.0)
    assert call(store, "search", NS, query="cat dog")[0].score == pytest.approx(0.5**0.5)


def test_equal_scores_keep_the_order_of_writing(store):
    for key in ("z", "m", "a"):
        store.put(NS, key, {"content": "cat"})
    store.put(NS, "z", {"content": "cat", "edited": True})
    assert keys(store.search(NS, query="cat")) == ["z", "m", "a"]


def test_filter_narrows_search_and_listing(store, call):
    for number in range(6):
        call(store, "put", NS, f"k{number}", {"content": "cat", "n": number})
    condition = {"n": {"$gte": 2, "$lt": 4}}
    assert keys(call(store, "search", NS, query="cat", filter=condition)) == ["k2", "k3"]
    assert sorted(keys(call(store, "search", NS, filter=condition))) == ["k2", "k3"]
    call(store, "put", NS, "k9", {"content": "cat", "n": 3})
    assert keys(call(store, "search", NS, query="cat", filter=condition)) == ["k2", "k3", "k9"]


def test_listing_has_the_latest_update_first(store, clock, call):
    for key in ("a", "b", "c"):
        call(store, "put", NS, key, {"content": "cat"})
        clock.now += 1
    call(store, "put", NS, "a", {"content": "cat"})
    assert keys(call(store, "search", NS)) == ["a", "c", "b"]
    assert keys(call(store, "search", NS, limit=1, offset=1)) == ["c"]


def test_prefix_matches_whole_labels_only(store):
    for namespace in [("user", "1"), ("user", "10"), ("user", "1", "x"), ("User", "1"), ("user_",)]:
        store.put(namespace, "k", {"content": "cat"})
    for query in (None, "cat"):
        found = store.search(("user", "1"), query=query)
        assert {item.namespace for item in found} == {("user", "1"), ("user", "1", "x")}
        assert {item.namespace for item in store.search(("use",), query=query)} == set()
        assert len(store.search((), query=query)) == 5


@pytest.mark.parametrize("label", ['a","b', "%", "_", "*", "a\x1fb", 'quo"te', "ü", "a,", "a-"])
def test_odd_labels_are_literal(store, label):
    store.put((label,), "k", {"content": "cat"})
    store.put((label, "child"), "k", {"content": "cat"})
    store.put(("axb",), "k", {"content": "cat"})
    assert {item.namespace for item in store.search((label,))} == {(label,), (label, "child")}
    assert store.get((label,), "k").namespace == (label,)


def test_list_namespaces_by_condition_depth_and_page(store, call):
    for namespace in [("a", "b", "c"), ("a", "b", "d"), ("a", "x", "c"), ("z",)]:
        call(store, "put", namespace, "k", {"content": "cat"})
    assert call(store, "list_namespaces", prefix=("a", "*", "c")) == [
        ("a", "b", "c"),
        ("a", "x", "c"),
    ]
    assert call(store, "list_namespaces", suffix=("d",)) == [("a", "b", "d")]
    assert call(store, "list_namespaces", max_depth=2) == [("a", "b"), ("a", "x"), ("z",)]
    assert call(store, "list_namespaces", limit=2, offset=1) == [("a", "b", "d"), ("a", "x", "c")]


def test_reads_of_a_batch_run_before_its_writes(store, call):
    store.put(NS, "old", {"content": "cat"})
    results = call(
        store,
        "batch",
        [
            PutOp(NS, "new", {"content": "cat"}),
            PutOp(NS, "old", None),
            GetOp(NS, "new"),
            GetOp(NS, "old"),
            SearchOp(NS, query="cat"),
            ListNamespacesOp(),
        ],
    )
    assert results[:3] == [None, None, None]
    assert results[3].key == "old"
    assert keys(results[4]) == ["old"]
    assert results[5] == [NS]
    assert keys(store.search(NS)) == ["new"]


def test_last_put_of_a_key_in_a_batch_wins(store, call):
    puts = [PutOp(NS, "k", {"content": text}) for text in ("cat", "dog")]
    call(store, "batch", iter([*puts, PutOp(NS, "gone", {"content": "tea"})]))
    call(store, "batch", [PutOp(NS, "gone", {"content": "tea"}), PutOp(NS, "gone", None)])
    assert store.get(NS, "k").value == {"content": "dog"}
    assert store.get(NS, "gone") is None


@pytest.mark.parametrize(
    "op",
    [
        "not an op",
        SearchOp(NS, limit=-1),
        SearchOp(NS, offset=1.5),
        SearchOp(NS, filter={"a": {"$no": 1}}),
        PutOp(NS, 7, {"content": "x"}),
        PutOp(NS, "k", ["not a mapping"]),
        PutOp(NS, "k", {1: "x"}),
        PutOp(NS, "k", {"n": float("nan")}),
        PutOp(NS, "k", {"when": datetime(2026, 1, 1, tzinfo=UTC)}),
        PutOp(NS, "k", {"text": "\ud800"}),
        PutOp(NS, "\ud800", {"content": "x"}),
        PutOp(("\ud800",), "k", {"content": "x"}),
        PutOp(NS, "k", {"content": "x"}, index=7),
        PutOp(NS, "k", {"content": "x"}, ttl=-1),
        ListNamespacesOp((MatchCondition("middle", ("a",)),)),
    ],
)
def test_bad_operation_is_refused_and_nothing_is_written(store, op, call):
    store.put(("other",), "k", {"content": "cat"})
    with pytest.raises(InputError):
        call(store, "batch", [PutOp(NS, "first", {"content": "cat"}), op])
    assert store.search(NS) == []


def test_dotted_label_through_batch_is_refused(store):
    with pytest.raises(InvalidNamespaceError):
        store.batch([PutOp(("a.b",), "k", {"content": "x"})])


def test_what_is_handed_out_can_be_changed_without_harm(store):
    store.put(NS, "k", {"content": "cat", "tags": ["a"]})
    for _ in range(2):
        for item in (store.get(NS, "k"), store.search(NS, query="cat")[0]):
            assert item.value["tags"] == ["a"]
            item.value["tags"].append("b")


def test_unchanged_text_is_not_embedded_again(store):
    store.put(NS, "k", {"content": "cat", "seen": 1})
    store.put(NS, "k", {"content": "cat", "seen": 2})
    assert store.embeddings.embedded == ["cat"]
    assert store.search(NS, query="cat")[0].score == pytest.approx(1.0)
    store.put(NS, "k", {"content": "dog"})
    assert store.embeddings.embedded == ["cat", "dog"]
    assert store.search(NS, query="cat")[0].score == pytest.approx(0.0)


def test_equal_texts_of_a_batch_are_embedded_once(store):
    store.batch([PutOp(NS, str(n), {"content": "cat"}) for n in range(5)])
    assert store.embeddings.embedded == ["cat"]
    assert [item.score for item in store.search(NS, query="cat")] == pytest.approx([1.0] * 5)


def test_index_false_takes_the_old_vector_away(store):
    store.put(NS, "k", {"content": "cat"})
    store.put(NS, "k", {"content": "cat"}, index=False)
    assert store.search(NS, query="cat")[0].score is None


def test_text_is_kept_when_the_embedder_fails_and_embedded_when_it_works_again(store, call):
    store.embeddings.breaks = True
    call(store, "put", NS, "k", {"content": "cat"})
    assert [(i.key, i.score) for i in call(store, "search", NS, query="cat")] == [("k", None)]
    view = store.shelf(NS)
    with view.lock:
        assert view.catalog.lexical.scan(["cat"]).rows.tolist() == [0]
    store.embeddings.breaks = False
    assert call(store, "search", NS, query="cat")[0].score == pytest.approx(1.0)
    assert store.embeddings.embedded == ["cat"]


def test_next_put_embeds_what_waited(store):
    store.embeddings.breaks = True
    store.put(NS, "a", {"content": "cat"})
    store.embeddings.breaks = False
    store.put(NS, "b", {"content": "dog"})
    assert store.embeddings.embedded == ["dog", "cat"]


def test_memory_deleted_or_changed_while_it_waited_gets_no_old_vector(store):
    store.embeddings.breaks = True
    store.put(NS, "gone", {"content": "cat"})
    store.put(NS, "changed", {"content": "cat"})
    store.delete(NS, "gone")
    store.put(NS, "changed", {"content": "dog"})
    store.embeddings.breaks = False
    found = store.search(NS, query="dog")
    assert [(item.key, item.score) for item in found] == [("changed", pytest.approx(1.0))]
    assert store.embeddings.embedded == ["dog"]


@pytest.mark.parametrize("bad", [[float("nan")] * 4, [1.0], [], ["x"] * 4, None])
def test_one_bad_vector_makes_its_memory_wait_and_spares_the_others(store, monkeypatch, bad):
    good = store.embeddings.vector
    monkeypatch.setattr(
        store.embeddings, "vector", lambda text: bad if text.startswith("bad") else good(text)
    )
    store.put(NS, "first", {"content": "tea"})
    store.batch([PutOp(NS, "bad", {"content": "bad cat"}), PutOp(NS, "ok", {"content": "cat"})])
    store.put(NS, "bad alone", {"content": "bad dog"})
    assert [(item.key, item.score) for item in store.search(NS, query="cat")] == [
        ("ok", pytest.approx(1.0)),
        ("first", 0.0),
        ("bad", None),
        ("bad alone", None),
    ]
    monkeypatch.setattr(store.embeddings, "vector", good)
    assert store.search(NS, query="cat", limit=2)[1].key in ("bad", "ok")
    assert [item.score for item in store.search(NS, query="cat dog")].count(None) == 0


def test_missing_extra_is_raised_at_once_instead_of_waiting(store, monkeypatch):
    def missing(texts):
        raise MissingExtraError("pip install it")

    monkeypatch.setattr(store.embeddings, "embed_documents", missing)
    with pytest.raises(MissingExtraError):
        store.put(NS, "k", {"content": "cat"})
    assert store.get(NS, "k") is None


def test_default_embedder_is_local_and_not_loaded_by_opening(monkeypatch):
    monkeypatch.setattr(LocalEmbeddings, "encode", lambda *_: pytest.fail("loaded"))
    with LocalStore() as opened:
        assert isinstance(opened.embeddings, LocalEmbeddings)
        assert opened.index_config["dims"] == 256
        assert opened.search(NS) == []


def test_store_without_index_searches_as_a_listing():
    with LocalStore(index=False) as opened:
        opened.put(NS, "k", {"content": "cat"})
        assert opened.embeddings is None
        assert [(item.key, item.score) for item in opened.search(NS, query="cat")] == [("k", None)]


def test_langgraph_index_configuration_names_the_fields():
    index = {"embed": WordCounts(), "dims": 4, "fields": ["title", "parts[*]"]}
    with LocalStore(index=index) as opened:
        opened.put(NS, "k", {"title": "cat", "parts": ["tea"], "content": "dog"})
        assert opened.embeddings.embedded == ["cat", "tea"]
        assert opened.search(NS, query="tea")[0].score == pytest.approx(1.0)
        assert opened.search(NS, query="dog")[0].score == pytest.approx(0.0)


def test_functions_sync_and_async_serve_as_embedders(call):
    async def embed_later(texts):
        return [WordCounts().vector(text) for text in texts]

    for embed in (lambda texts: [WordCounts().vector(text) for text in texts], embed_later):
        with LocalStore(index={"embed": embed, "dims": 4}) as opened:
            call(opened, "put", NS, "k", {"content": "cat"})
            assert call(opened, "search", NS, query="cat")[0].score == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"content": "cat"}, "cat"),
        ({"text": "dog"}, "dog"),
        ({"memory": "tea"}, "tea"),
        ({"kind": "Memory", "content": {"content": "car"}}, "car"),
        ({"b": 1, "a": "cat"}, '{"a": "cat", "b": 1}'),
    ],
)
def test_what_is_embedded_is_the_text_of_the_memory(store, value, text):
    store.put(NS, "k", value)
    assert store.embeddings.embedded == [text]


def test_everything_is_there_after_opening_the_file_again(tmp_path):
    with LocalStore(tmp_path / "m.db", embeddings=WordCounts()) as opened:
        opened.put(NS, "cat", {"content": "cat"})
        opened.put(NS, "dog", {"content": "dog"}, index=False)
        before = opened.search(NS, query="cat")
    with LocalStore(tmp_path / "m.db", embeddings=WordCounts()) as opened:
        assert opened.search(NS, query="cat") == before
        assert opened.embeddings.embedded == []


def test_closed_store_says_so(tmp_path):
    opened = LocalStore(tmp_path / "m.db")
    opened.close()
    opened.close()
    with pytest.raises(StoreError, match="closed"):
        opened.get(NS, "k")


def test_async_context_closes_the_store(tmp_path):
    async def use():
        async with LocalStore(tmp_path / "m.db", embeddings=WordCounts()) as opened:
            await opened.asetup()
            await opened.aput(NS, "k", {"content": "cat"})
        return opened

    with pytest.raises(StoreError, match="closed"):
        asyncio.run(use()).get(NS, "k")


def test_async_sweeper_deletes_what_has_expired_and_ends_when_it_is_stopped(tmp_path, clock):
    async def use():
        ttl = {"default_ttl": 1, "sweep_interval_minutes": 60}
        async with LocalStore(tmp_path / "m.db", index=False, ttl=ttl, clock=clock) as opened:
            await opened.aput(NS, "k", {"content": "cat"})
            clock.now += 61
            swept = await opened.asweep_ttl()
            task = await opened.astart_ttl_sweeper()
            stopped = await opened.astop_ttl_sweeper()
            return swept, await asyncio.wait_for(task, 10), stopped

    assert asyncio.run(use()) == (1, None, True)


def test_reindex_embeds_everything_with_the_new_embedder(tmp_path, call):
    class Other(WordCounts):
        identity = "other words"
        words = ("dog", "cat", "tea")

    with LocalStore(tmp_path / "m.db", embeddings=WordCounts()) as opened:
        for number in range(300):
            opened.put(NS, str(number), {"content": f"cat {number}"})
        opened.put(NS, "not", {"content": "cat"}, index=False)
    with LocalStore(tmp_path / "m.db", embeddings=Other()) as opened:
        with pytest.raises(StoreError, match=r"word counts.*other words.*reindex"):
            opened.search(NS, query="cat")
        assert call(opened, "reindex") == 300
        found = opened.search(NS, query="cat", limit=1000)
        assert [item.score for item in found].count(None) == 1
        assert len(found) == 301


def test_traits_of_another_version_are_derived_anew(tmp_path, monkeypatch):
    path = tmp_path / "m.db"
    with LocalStore(path, embeddings=WordCounts()) as opened:
        opened.put(NS, "k", {"content": "purple teapot"})
    with LocalStore(path, embeddings=WordCounts()) as opened:
        with opened._file.writing() as connection:
            connection.execute("UPDATE meta SET value = 0 WHERE name = 'traits'")
            connection.execute("UPDATE traits SET terms = x''")
            connection.execute("DELETE FROM vocabulary")
        view = opened.shelf(NS)
        with view.lock:
            assert view.catalog.lexical.document_frequency("purpl") == 1


def test_expired_memory_shows_until_swept_unless_omitted(clock, call):
    with LocalStore(embeddings=WordCounts(), clock=clock, ttl={"default_ttl": 1}) as opened:
        call(opened, "put", NS, "short", {"content": "cat"})
        call(opened, "put", NS, "long", {"content": "cat"}, ttl=None)
        clock.now += 60
        assert call(opened, "get", NS, "short") is not None
        opened.ttl_config = {"omit_expired": True}
        assert call(opened, "get", NS, "short") is None
        assert keys(call(opened, "search", NS)) == ["long"]
        assert keys(call(opened, "search", NS, query="cat")) == ["long"]
        assert call(opened, "sweep_ttl") == 1
        opened.ttl_config = None
        assert keys(call(opened, "search", NS, query="cat")) == ["long"]


def test_expired_namespace_is_not_listed_when_omitted(clock):
    with LocalStore(clock=clock, index=False, ttl={"omit_expired": True}) as opened:
        opened.put(("gone",), "k", {"content": "cat"}, ttl=1)
        opened.put(("here",), "k", {"content": "cat"})
        clock.now += 61
        assert opened.list_namespaces() == [("here",)]


@pytest.mark.parametrize("read", ["get", "search", "list"])
def test_read_extends_a_life_only_where_configured(clock, read, call):
    def look(store, **how):
        if read == "get":
            return call(store, "get", NS, "k", **how)
        return call(store, "search", NS, query="cat" if read == "search" else None, **how)

    ttl = {"default_ttl": 1, "refresh_on_read": True}
    with LocalStore(embeddings=WordCounts(), clock=clock, ttl=ttl) as opened:
        opened.put(NS, "k", {"content": "cat"})
        clock.now += 50
        look(opened)
        clock.now += 50
        assert opened.sweep_ttl() == 0
        look(opened, refresh_ttl=False)
        clock.now += 10
        assert opened.sweep_ttl() == 1


def test_sweeper_runs_until_it_is_stopped(clock):
    swept = threading.Event()

    class Sweeping(LocalStore):
        def sweep_ttl(self):
            swept.set()
            return super().sweep_ttl()

    with Sweeping(clock=clock, index=False, ttl={"sweep_interval_minutes": 1e-5}) as opened:
        future = opened.start_ttl_sweeper()
        assert opened.start_ttl_sweeper() is not future
        assert swept.wait(10)
        assert opened.stop_ttl_sweeper(timeout=10)
        assert future.result(timeout=10) is None


def test_sweeper_ends_with_a_store_that_is_forgotten():
    opened = LocalStore(index=False, ttl={"sweep_interval_minutes": 1e-5})
    future = opened.start_ttl_sweeper()
    del opened
    gc.collect()
    assert future.result(timeout=10) is None


def test_sweeper_ends_when_its_future_is_cancelled():
    with LocalStore(index=False, ttl={"sweep_interval_minutes": 60}) as opened:
        assert opened.start_ttl_sweeper().cancel()
        opened._sweeper.join(10)
        assert not opened._sweeper.is_alive()


def test_sweeper_needs_a_ttl_configuration(store, call):
    async def start():
        return await (await store.astart_ttl_sweeper())

    assert store.start_ttl_sweeper().done()
    assert asyncio.run(start()) is None
    assert call(store, "stop_ttl_sweeper")


def test_usage_adds_up_and_can_be_dropped(store):
    one, two = (NS, "one"), (NS, "two")
    store.add_usage({one: UsageDelta(2, 100.0, 50.0), two: UsageDelta(1, 100.0)}, fade_per_day=0.5)
    store.add_usage({one: UsageDelta(1, 100.0 + 86_400)}, fade_per_day=0.5)
    # two uses fade to one in a day, one more makes two
    assert store.read_usage([two, one, (NS, "never")]) == [
        Usage(1, 1.0, 100.0, None),
        Usage(3, 2.0, 86_500.0, 100.0),
        Usage(),
    ]
    store.drop_usage([one])
    assert store.read_usage([one]) == [Usage()]


def test_threads_write_and_search_at_once(store):
    def work(worker):
        for number in range(20):
            store.put(NS, f"{worker}-{number}", {"content": "cat"})
            store.search(NS, query="cat", limit=3)
            store.add_usage({(NS, "k"): UsageDelta(1, START)}, fade_per_day=1.0)

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(store.search(NS, query="cat", limit=1000)) == 80
    assert store.read_usage([(NS, "k")])[0].uses == 80


def test_many_async_calls_at_once_all_arrive(store):
    async def work():
        await asyncio.gather(
            *(store.aput(NS, str(n), {"content": "cat"}) for n in range(50)),
            *(store.asearch(NS, query="cat") for _ in range(50)),
        )
        return await store.asearch(NS, limit=100)

    assert len(asyncio.run(work())) == 50


texts = st.sampled_from(["cat", "dog", "cat dog", "tea", "unknown"])


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(texts, st.booleans()), max_size=12),
    st.integers(1, 5),
    st.sampled_from(["cat", "tea dog", "unknown", None]),
)
def test_paging_returns_each_memory_once(memories, size, query):
    with LocalStore(embeddings=WordCounts()) as opened:
        for number, (text, is_indexed) in enumerate(memories):
            index = None if is_indexed else False
            opened.put(NS, str(number), {"content": text}, index=index)
        whole = opened.search(NS, query=query, limit=100)
        pages = [
            opened.search(NS, query=query, limit=size, offset=offset)
            for offset in range(0, len(memories) + size, size)
        ]
    assert [item for page in pages for item in page] == whole
    assert sorted(keys(whole)) == sorted(str(number) for number in range(len(memories)))
