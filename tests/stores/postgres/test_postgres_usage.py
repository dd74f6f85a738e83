"""The usage table in Postgres: exact, atomic, across processes and connections of all kinds."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from conftest import START, Clock
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langgraph.store.postgres import AsyncPostgresStore, PostgresStore

from langmem_recall.flows.effects import Host, run
from langmem_recall.flows.usage import USAGE, UsageBatch
from langmem_recall.memory.upkeep import pooled, reinforced
from langmem_recall.policy import RecallPolicy
from langmem_recall.stores.postgres.database import Database
from langmem_recall.stores.postgres.schema import (
    USAGE_TABLE,
    VERSIONS,
    VERSIONS_TABLE,
)
from langmem_recall.stores.postgres.sidecar import PostgresSidecar
from langmem_recall.stores.recall_store import RecallStore
from langmem_recall.types import Usage, UsageDelta

NS = ("memories", "ada")
DAY = 86_400.0
KINDS: dict[str, dict[str, Any]] = {
    "connection": {},
    "pipeline": {"pipeline": True},
    "pool": {"pool_config": {"min_size": 1, "max_size": 4}},
}


def rows(uri: str, sql: str) -> list[Any]:
    with psycopg.connect(uri) as connection:
        return connection.execute(sql).fetchall()


class Book:
    """A book whose plans are carried out at once."""

    def __init__(self, inner: PostgresStore) -> None:
        RecallStore(inner).setup()
        self.host = Host(inner, inner)
        self.plans = PostgresSidecar(Database(inner))

    def add(self, touches: dict[Any, UsageDelta], fade_per_day: float) -> Any:
        return run(self.plans.add(UsageBatch(touches), fade_per_day), self.host)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *args: run(getattr(self.plans, name)(*args), self.host)


@pytest.fixture
def book(postgres: str) -> Iterator[Book]:
    with PostgresStore.from_conn_string(postgres) as inner:
        yield Book(inner)


@pytest.fixture(params=list(KINDS))
def kind(request: pytest.FixtureRequest) -> dict[str, Any]:
    return KINDS[request.param]


def test_setup_is_versioned_and_may_be_repeated(postgres: str) -> None:
    with PostgresStore.from_conn_string(postgres) as inner:
        store = RecallStore(inner)
        assert store.setup() is None
        store.setup()
    applied = rows(postgres, f"SELECT version FROM {VERSIONS_TABLE} ORDER BY version")
    assert applied == [(number,) for number in range(len(VERSIONS))]


def test_several_processes_may_set_up_at_once(postgres: str) -> None:
    with PostgresStore.from_conn_string(postgres) as inner:
        inner.setup()
    faults: list[Exception] = []

    def prepare() -> None:
        try:
            with PostgresStore.from_conn_string(postgres) as inner:
                RecallStore(inner).setup()
        except Exception as fault:
            faults.append(fault)

    threads = [threading.Thread(target=prepare) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
    assert rows(postgres, f"SELECT count(*) FROM {VERSIONS_TABLE}") == [(len(VERSIONS),)]


def test_without_setup_an_outcome_goes_to_the_sidecar_though_nothing_was_read(
    postgres: str,
) -> None:
    with PostgresStore.from_conn_string(postgres) as inner:
        inner.setup()
        with RecallStore(inner) as store:
            store.put(NS, "tea", {"content": "Ada drinks tea"})
            store.feedback(NS, "tea")
            assert store.flush() == 1
        assert inner.get((*USAGE, *NS), "tea").value["merit"] == 1


def test_without_setup_usage_goes_to_the_sidecar_and_setup_takes_it_over(
    postgres: str, clock: Clock
) -> None:
    with PostgresStore.from_conn_string(postgres) as inner:
        inner.setup()
        store = RecallStore(inner, clock=clock)
        store.put(NS, "seat", {"content": "I prefer aisle seats"})
        store.search(NS, query="aisle seats")
        store.flush()
        assert inner.get((*USAGE, *NS), "seat").value["uses"] == 1
        store.setup()
        assert inner.get((*USAGE, *NS), "seat") is None
        clock.turn(days=1)
        store.search(NS, query="aisle seats")
        store.close()
    ((prefix, key, uses, decayed, last_used, before, merit),) = rows(
        postgres, f"SELECT * FROM {USAGE_TABLE}"
    )
    assert (prefix, key, uses, merit) == ("memories.ada", "seat", 2, 0)
    assert decayed == pytest.approx(1.99)
    assert (last_used, before) == (START.timestamp() + DAY, START.timestamp())


def test_a_sync_store_of_any_kind_keeps_its_ledger_in_the_table(
    postgres: str, kind: dict[str, Any], clock: Clock
) -> None:
    with PostgresStore.from_conn_string(postgres) as inner:
        RecallStore(inner).setup()
    with PostgresStore.from_conn_string(postgres, **kind) as inner:
        store = RecallStore(inner, clock=clock)
        store.put(NS, "seat", {"content": "I prefer aisle seats"})
        assert [item.key for item in store.search(NS, query="aisle seats")] == ["seat"]
        assert store.flush() == 1
        assert rows(postgres, f"SELECT key, uses FROM {USAGE_TABLE}") == [("seat", 1)]
        assert inner.search((USAGE[0],)) == []
        store.forget(NS, "seat")
        assert rows(postgres, f"SELECT key, uses FROM {USAGE_TABLE}") == []
        store.close()


async def test_an_async_store_of_any_kind_keeps_its_ledger_in_the_table(
    postgres: str, kind: dict[str, Any], clock: Clock
) -> None:
    async with AsyncPostgresStore.from_conn_string(postgres) as inner:
        await RecallStore(inner).setup()
    async with AsyncPostgresStore.from_conn_string(postgres, **kind) as inner:
        store = RecallStore(inner, clock=clock)
        await store.asetup()
        await store.aput(NS, "seat", {"content": "I prefer aisle seats"})
        found = await store.asearch(NS, query="aisle seats")
        assert [item.key for item in found] == ["seat"]
        # Another thread may use it too, its own loop's thread may not.
        await asyncio.to_thread(store.search, NS, query="aisle seats")
        with pytest.raises(asyncio.InvalidStateError):
            store.flush()
        await store.aclose()
    assert rows(postgres, f"SELECT key, uses FROM {USAGE_TABLE}") == [("seat", 1)]


touches = st.builds(
    UsageDelta,
    st.integers(1, 5),
    st.none() | st.floats(0, 400 * DAY),
    st.none(),
    st.integers(-12, 12),
)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(lots=st.lists(touches, min_size=1, max_size=5), fade=st.sampled_from([0.0, 0.5, 0.99, 1.0]))
def test_the_table_adds_as_the_arithmetic_of_reinforcement_does(
    book: Book, lots: list[UsageDelta], fade: float
) -> None:
    book.drop_below(NS)
    expected = Usage()
    for touch in lots:
        if touch.last is None:
            touch = touch._replace(uses=0)
        expected = reinforced(expected, touch, fade)
        after = book.add({(NS, "k"): touch}, fade)[NS, "k"]
        assert after._replace(decayed=0) == expected._replace(decayed=0)
        assert after.decayed == pytest.approx(expected.decayed, rel=1e-12, abs=1e-149)
    assert book.read([(NS, "k"), (NS, "never")])[1] == Usage()


def test_two_counts_fade_towards_the_later_use(book: Book) -> None:
    book.add({(NS, "k"): UsageDelta(4, 2 * DAY)}, 0.5)
    after = book.add({(NS, "k"): UsageDelta(2, DAY, merit=-7)}, 0.5)
    assert after == {(NS, "k"): Usage(6, 4 + 2 * 0.5, 2 * DAY, DAY, -5)}
    assert book.read([(NS, "k")]) == [after[NS, "k"]]


def test_a_count_that_has_faded_away_does_not_underflow(book: Book) -> None:
    book.add({(NS, "k"): UsageDelta(1, 0.0)}, 0.5)
    after = book.add({(NS, "k"): UsageDelta(1, 100_000 * DAY)}, 0.5)
    assert after[NS, "k"].decayed == 1.0


def test_usage_is_read_and_dropped_below_a_namespace_and_not_beside_it(book: Book) -> None:
    homes = [("a",), ("a", "b"), ("a%",), ("ab",), ("a_",), ("a", "b_c")]
    book.add({(home, "k"): UsageDelta(1, 1.0) for home in homes}, 1.0)
    assert set(book.read_below(("a",))) == {
        ((home), "k") for home in (("a",), ("a", "b"), ("a", "b_c"))
    }
    assert book.drop_below(("a", "b")) == 1
    assert set(book.read_below(("a",))) == {(("a",), "k"), (("a", "b_c"), "k")}
    book.drop([(("a",), "k"), (("nowhere",), "k")])
    assert set(book.read_below(("a",))) == {(("a", "b_c"), "k")}


def test_overlapping_additions_and_drops_neither_deadlock_nor_lose_a_count(postgres: str) -> None:
    ids = [(("t", f"u{n % 3}"), f"k{n}") for n in range(20)]
    faults: list[Exception] = []
    with PostgresStore.from_conn_string(
        postgres, pool_config={"min_size": 4, "max_size": 8}
    ) as inner:
        book = Book(inner)

        def add(seed: int) -> None:
            order = ids[seed:] + ids[:seed]
            try:
                for _ in range(25):
                    book.add({one: UsageDelta(1, 5.0) for one in order}, 1.0)
                    book.drop([(("t", "u0"), "none"), *((("t", f"u{n}"), "none") for n in (2, 1))])
            except Exception as fault:
                faults.append(fault)

        threads = [threading.Thread(target=add, args=(seed,)) for seed in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert faults == []
        assert {usage.uses for usage in book.read(ids)} == {200}


def test_pooled_touches_add_the_same_as_one_by_one(book: Book) -> None:
    lots = [UsageDelta(1, 5.0), UsageDelta(1, 9.0), UsageDelta(0, merit=2)]
    pool: UsageDelta | None = None
    for touch in lots:
        pool = pooled(pool, touch)
        book.add({(NS, "single"): touch}, 1.0)
    assert pool is not None
    book.add({(NS, "pool"): pool}, 1.0)
    assert book.read([(NS, "single")]) == book.read([(NS, "pool")])


def test_a_time_to_live_is_refreshed_by_the_clock_and_not_by_an_open_transaction(
    postgres: str,
) -> None:
    ttl: Any = {"default_ttl": 1, "refresh_on_read": True}
    with PostgresStore.from_conn_string(postgres) as inner:
        RecallStore(inner).setup()
    with PostgresStore.from_conn_string(postgres, ttl=ttl, pipeline=True) as inner:
        store = RecallStore(inner, policy=RecallPolicy.similarity())
        store.put(NS, "seat", {"content": "aisle"})
        inner.sweep_ttl()
        ((opened_at,),) = rows(postgres, "SELECT clock_timestamp()")
        store.search(NS, query="aisle")
        ((refreshed,),) = rows(postgres, "SELECT expires_at - interval '1 minute' FROM store")
        assert refreshed > opened_at
        store.close()
