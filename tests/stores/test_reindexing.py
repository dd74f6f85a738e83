"""A changed embedder is noticed, refused, and everything embedded anew, resumably."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest
from conftest import Call, Clock, CountingEmbeddings
from langgraph.store.base import PutOp
from langgraph.store.memory import InMemoryStore
from langgraph.store.postgres import AsyncPostgresStore, PostgresStore

from langmem_recall.errors import InputError, StoreError
from langmem_recall.stores.backend import areindex, reindex
from langmem_recall.stores.local.store import LocalStore
from langmem_recall.stores.recall_store import RecallStore

NS = ("memories", "ada")


class Named(CountingEmbeddings):
    """An embedder with a name; half of each vector where it is told so."""

    def __init__(self, identity: str, dims: int = 256) -> None:
        super().__init__()
        self.identity = identity
        self.spoil = lambda vector: [-x for x in vector[:dims]]
        self.most: int | None = None

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        if self.most is not None and len(self.documents) + len(texts) > self.most:
            raise RuntimeError("enough for today")
        return super().embed_documents(texts)


@pytest.fixture
def opened(postgres: str) -> Iterator[Any]:
    with ExitStack() as stack:

        def open_store(embeddings: Named, dims: int = 256) -> PostgresStore:
            index: Any = {"dims": dims, "embed": embeddings, "fields": ["content", "tags[*]"]}
            return stack.enter_context(PostgresStore.from_conn_string(postgres, index=index))

        yield open_store


def notes(count: int) -> list[PutOp]:
    values = [{"content": f"note {n} about jazz", "tags": [f"a{n}", f"b{n}"]} for n in range(count)]
    return [PutOp(NS, f"n{n}", value) for n, value in enumerate(values)]


def test_another_embedder_is_refused_and_its_vectors_never_compared(
    opened: Any, clock: Clock
) -> None:
    old = RecallStore(opened(Named("old")), clock=clock)
    old.setup()
    old.batch(notes(5))
    new = RecallStore(opened(Named("new")), clock=clock)
    with pytest.raises(StoreError, match=r"made by old, .* is new.*reindex"):
        new.setup()
    recall = new.recall(NS, "which note is about jazz?")
    assert "made by old" in recall.trace.degraded[0]
    assert all(scored.evidence.dense is None for scored in recall.chosen)
    assert old.recall(NS, "which note is about jazz?").trace.degraded == ()


@pytest.mark.parametrize("way", ["put", "batch", "remember"])
def test_vectors_of_another_embedder_are_not_added(opened: Any, call: Call, way: str) -> None:
    old = RecallStore(opened(Named("old")))
    old.setup()
    old.put(NS, "tea", {"content": "Ada drinks tea"})
    new = RecallStore(opened(Named("new")))
    asked: dict[str, Any] = {
        "put": (NS, "cake", {"content": "Ada eats cake"}),
        "batch": ([PutOp(NS, "cake", {"content": "Ada eats cake"})],),
        "remember": (NS, "Ada eats cake"),
    }
    with pytest.raises(StoreError, match="made by old, the configured embedder is new"):
        call(new, way, *asked[way])
    assert [item.key for item in old.search(NS)] == ["tea"]
    call(new, "put", NS, "bare", {"content": "no vector"}, False)
    assert {item.key for item in old.search(NS)} == {"tea", "bare"}


def test_reindex_makes_all_vectors_anew_and_takes_up_where_it_stopped(
    opened: Any, clock: Clock, postgres: str
) -> None:
    old = RecallStore(opened(Named("old")), clock=clock)
    old.setup()
    old.batch(notes(30))
    old.put(NS, "plain", {"content": "never embedded"}, index=False)
    embeddings = Named("new", dims=128)
    new = RecallStore(opened(embeddings, 128), clock=clock)
    told: list[tuple[int, int]] = []
    embeddings.most = 50
    with pytest.raises(RuntimeError, match="enough"):
        reindex(new, lambda *step: told.append(step), batch=20)
    # Half done: the old vectors serve the old embedder, and the new one has none.
    assert old.recall(NS, "note 3 about jazz").trace.degraded == ()
    assert new.recall(NS, "note 3 about jazz").trace.degraded != ()
    old.put(NS, "n0", {"content": "note 0 is about tea now"})
    embeddings.most = None
    made = reindex(new, lambda *step: told.append(step), batch=20)
    assert told[:2] == [(20, 90), (40, 90)]
    assert told[-1][0] == told[-1][1]
    assert 50 <= made <= 52
    new.setup()
    found = new.search(NS, query="note 0 is about tea now", limit=1)
    assert (found[0].key, found[0].similarity) == ("n0", pytest.approx(1, abs=1e-6))
    told = "dense search failed (DataException 22000); lexical only"
    assert told in old.recall(NS, "jazz").trace.degraded
    with psycopg.connect(postgres) as connection:
        kinds = connection.execute(
            "SELECT DISTINCT vector_dims(embedding), field_name LIKE 'tags%' FROM store_vectors"
        ).fetchall()
        indexes = connection.execute(
            "SELECT indexname FROM pg_indexes WHERE tablename = 'store_vectors' ORDER BY 1"
        ).fetchall()
    assert sorted(kinds) == [(128, False), (128, True)]
    assert [name for (name,) in indexes] == ["store_vectors_embedding_idx", "store_vectors_pkey"]
    new.delete(NS, "n3")
    found = [item.key for item in new.search(NS, query="jazz", limit=50)]
    assert (len(found), "plain" in found) == (30, True)


async def test_an_async_store_is_reindexed_too(postgres: str) -> None:
    for name in ("old", "new"):
        index: Any = {"dims": 256, "embed": Named(name), "fields": ["content"]}
        async with AsyncPostgresStore.from_conn_string(postgres, index=index) as inner:
            store = RecallStore(inner)
            if name == "old":
                await store.setup()
                await store.aput(NS, "k", {"content": "jazz"})
            else:
                assert await areindex(store) == 1
                await store.asetup()
                assert (await store.asearch(NS, query="jazz"))[0].similarity is not None
            await store.aclose()


def test_dimensions_that_the_store_is_not_configured_for_are_refused(opened: Any) -> None:
    RecallStore(opened(Named("old"))).setup()
    with pytest.raises(StoreError, match="gives 64 dimensions, the store is configured for 256"):
        reindex(opened(Named("new", dims=64)))


def test_a_local_store_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    with LocalStore(path, embeddings=Named("old")) as store:
        store.batch(PutOp(NS, f"n{n}", {"content": f"note {n}"}) for n in range(600))
    embeddings = Named("new")
    embeddings.most = 300
    with LocalStore(path, embeddings=embeddings) as store:
        assert reindex(RecallStore(store)) == 256
    embeddings.most = None
    told: list[tuple[int, int]] = []
    with LocalStore(path, embeddings=embeddings) as store:
        assert reindex(store, lambda *step: told.append(step)) == 344
        assert told[-1] == (344, 344)
        assert reindex(store) == 600


def test_other_stores_are_refused() -> None:
    with pytest.raises(InputError, match="got InMemoryStore"):
        reindex(InMemoryStore())
