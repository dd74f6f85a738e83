"""Setting up, reindexing and flushing on Citus, tried on a stand-in for its catalogue."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from conftest import Call, Clock, CountingEmbeddings
from langgraph.store.base import PutOp
from langgraph.store.postgres import PostgresStore

from langmem_recall import Caching, Cue, RecallPolicy
from langmem_recall.errors import ConfigurationError
from langmem_recall.flows.effects import Host, run
from langmem_recall.guard.judge import Verdict
from langmem_recall.observe.doctor import diagnose, facts_of
from langmem_recall.stores.backend import backend_of, reindex
from langmem_recall.stores.postgres.citus import (
    COPIED,
    DISTRIBUTED,
    AsyncCitusStore,
    CitusStore,
)
from langmem_recall.stores.postgres.database import Database
from langmem_recall.stores.postgres.schema import (
    BATCHES_TABLE,
    RECORDS_TABLE,
    SETTINGS_TABLE,
    USAGE_TABLE,
)
from langmem_recall.stores.postgres.search import Survey
from langmem_recall.stores.recall_store import RecallStore

ADA, BOB = ("memories", "ada"), ("memories", "bob")
EVERY_USE = RecallPolicy.default().replace(refresh_floor=0.0)


class Named(CountingEmbeddings):
    """An embedder with a name."""

    def __init__(self, identity: str) -> None:
        super().__init__()
        self.identity = identity


def index_of(name: str) -> Any:
    return {"dims": 256, "embed": Named(name), "fields": ["content"]}


def rows(uri: str, sql: str, *params: Any) -> list[Any]:
    with psycopg.connect(uri, autocommit=True) as connection:
        return connection.execute(sql, params).fetchall()


def places(uri: str) -> dict[str, str]:
    found = rows(uri, "SELECT logicalrelid::text, partmethod::text FROM pg_dist_partition")
    return dict(found)


@pytest.fixture
def store(cluster: str, clock: Clock) -> Iterator[RecallStore]:
    with CitusStore.from_conn_string(cluster, index=index_of("old")) as inner:
        made = RecallStore(
            inner, clock=clock, policy=EVERY_USE, caching=Caching(flush_interval=3_600)
        )
        made.setup(distribute=True)
        yield made


def test_every_table_is_put_where_it_belongs_and_may_be_again(cluster: str, call: Call) -> None:
    with CitusStore.from_conn_string(cluster, index=index_of("old")) as inner:
        store = RecallStore(inner)
        store.setup()
        assert places(cluster) == {}
        for distribute in (True, True, None):
            call(store, "setup", distribute)
            assert places(cluster) == dict.fromkeys(DISTRIBUTED, "h") | dict.fromkeys(COPIED, "n")


async def test_an_async_store_is_distributed_too(cluster: str) -> None:
    async with AsyncCitusStore.from_conn_string(cluster, index=index_of("old")) as inner:
        await RecallStore(inner).setup(distribute=True)
    assert places(cluster) == dict.fromkeys(DISTRIBUTED, "h") | dict.fromkeys(COPIED, "n")


def test_several_workers_may_distribute_at_once(cluster: str) -> None:
    with CitusStore.from_conn_string(cluster, index=index_of("old")) as inner:
        RecallStore(inner).setup()
    faults: list[Exception] = []

    def prepare() -> None:
        try:
            with CitusStore.from_conn_string(cluster, index=index_of("old")) as inner:
                RecallStore(inner).setup(distribute=True)
        except Exception as fault:
            faults.append(fault)

    threads = [threading.Thread(target=prepare) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
    assert places(cluster).keys() == {*DISTRIBUTED, *COPIED}


def test_a_table_that_is_missing_among_distributed_ones_follows_them(
    store: RecallStore, cluster: str
) -> None:
    rows(cluster, "DELETE FROM pg_dist_partition WHERE partmethod <> 'n' RETURNING 1")
    rows(
        cluster, "INSERT INTO pg_dist_partition VALUES ('store', 'h', 'prefix', 1, 's') RETURNING 1"
    )
    store.setup()
    assert places(cluster).keys() == {*DISTRIBUTED, *COPIED}


def test_without_citus_nothing_is_distributed_and_the_error_says_what_to_do(
    postgres: str, call: Call
) -> None:
    with CitusStore.from_conn_string(postgres) as inner:
        with pytest.raises(ConfigurationError, match="CREATE EXTENSION citus"):
            call(RecallStore(inner), "setup", True)
        call(RecallStore(inner), "setup")


def test_a_store_whose_statements_citus_refuses_is_refused_before_anything_is_distributed(
    cluster: str,
) -> None:
    refused = pytest.raises(ConfigurationError, match="CitusStore")
    with PostgresStore.from_conn_string(cluster) as inner, refused:
        RecallStore(inner).setup(distribute=True)
    assert places(cluster) == {}


def test_other_stores_cannot_be_distributed(call: Call) -> None:
    from langgraph.store.memory import InMemoryStore

    store = RecallStore(InMemoryStore())
    with pytest.raises(ConfigurationError, match="got InMemoryStore"):
        call(store, "setup", True)
    assert call(store, "setup") is None


MISPLACED = {
    (USAGE_TABLE, "DELETE FROM pg_dist_partition"): "is on the coordinator alone",
    ("store_vectors", "UPDATE pg_dist_partition SET colocationid = 7"): (
        "is not on the shards of store"
    ),
    (SETTINGS_TABLE, "DELETE FROM pg_dist_partition"): "has no copy on every server",
}


@pytest.mark.parametrize(("table", "change"), MISPLACED)
def test_doctor_names_every_table_that_is_not_where_it_should_be(
    store: RecallStore, cluster: str, table: str, change: str
) -> None:
    def examine() -> Any:
        return diagnose(facts_of(store.inner, RecallPolicy.default(), ADA))

    sound = examine()
    assert sound.readings["misplaced_tables"] == []
    assert "shards" not in [warning.name for warning in sound.warnings]
    rows(cluster, f"{change} WHERE logicalrelid = '{table}'::regclass RETURNING 1")
    found = examine()
    assert found.is_alarming
    (told,) = [one.message for one in found.warnings if one.name == "shards"]
    assert f"{table} {MISPLACED[table, change]}" in told


def test_a_server_of_its_own_has_no_shards_to_speak_of(postgres: str) -> None:
    with PostgresStore.from_conn_string(postgres) as inner:
        RecallStore(inner).setup()
        assert run(backend_of(inner).misplaced(), Host(inner, inner)) is None


def test_reindex_distributes_before_it_fills_and_the_cascade_lives(
    store: RecallStore, cluster: str, clock: Clock
) -> None:
    store.batch([PutOp(ADA, f"n{n}", {"content": f"note {n} about jazz"}) for n in range(30)])
    with CitusStore.from_conn_string(cluster, index=index_of("new")) as inner:
        new = RecallStore(inner, clock=clock)
        filled: list[bool] = []

        def watch(done: int, total: int) -> None:
            filled.append("langmem_recall_vectors" in places(cluster))
            if done == 10:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            reindex(new, watch, batch=10)
        assert reindex(new, watch, batch=7) == 20
        assert filled == [True] * len(filled)
        assert places(cluster)["store_vectors"] == "h"
        # Whose they are now is in a table, which every server has.
        assert rows(cluster, f"SELECT name, value FROM {SETTINGS_TABLE}") == [("embedder", "new")]
        new.forget(ADA, "n3")
        kept = rows(cluster, "SELECT count(*) FROM store_vectors WHERE key = 'n3'")
        assert (kept, new.recall(ADA, "note 5 about jazz").trace.degraded) == ([(0,)], ())
        new.close()
    recall = store.recall(ADA, "note 5 about jazz")
    assert "made by new, the configured embedder is old" in recall.trace.degraded[0]


def test_settings_of_the_index_are_for_the_transaction_and_reach_the_shards(
    store: RecallStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []
    real = Database._run

    def recording(self: Any, statements: Any) -> Any:
        asked.append([statement.sql for statement in statements])
        return real(self, statements)

    monkeypatch.setattr(Database, "_run", recording)
    monkeypatch.setattr(Survey, "exact_up_to", lambda *_: 0.0)
    store.put(ADA, "k", {"content": "note about jazz"})
    store.search(ADA, query="jazz", limit=70)
    (look,) = [sqls for sqls in asked if any("hnsw.ef_search" in sql for sql in sqls)]
    assert look[:3] == [
        "BEGIN",
        "SET LOCAL citus.propagate_set_commands = 'local'",
        "SET LOCAL hnsw.ef_search = '140'",
    ]


def test_a_warm_recall_is_one_statement_whatever_it_looks_for(
    store: RecallStore, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.batch([PutOp(ADA, f"n{n}", {"content": f"note {n} about jazz"}) for n in range(80)])
    cue = Cue("note 7 about jazz", parts=("note 7", "the notes about jazz"))
    first = call(store, "recall", ADA, cue)
    asked: list[str] = []
    real = Database._run

    def recording(self: Any, statements: Any) -> Any:
        asked.extend(statement.sql for statement in statements)
        return real(self, statements)

    monkeypatch.setattr(Database, "_run", recording)
    again = call(store, "recall", ADA, cue)
    assert len(asked) == 1
    assert [one.memory.key for one in again.chosen] == [one.memory.key for one in first.chosen]


def break_down(monkeypatch: pytest.MonkeyPatch, tenant: str) -> None:
    """Every statement that is for a tenant fails, as if its shard's server were gone."""
    real = Database._run

    def refuse(self: Any, statements: Any) -> Any:
        if any(tenant in str(statement.params) for statement in statements):
            raise ConnectionError("the server of that shard is gone")
        return real(self, statements)

    monkeypatch.setattr(Database, "_run", refuse)


def test_tenants_of_living_shards_are_recalled_though_not_all_shards_can_be_looked_at(
    store: RecallStore, clock: Clock, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    for tenant in (ADA, BOB):
        store.put(tenant, "tea", {"content": "green tea in the morning"})
    fresh = RecallStore(store.inner, clock=clock, caching=Caching(flush_interval=3_600))
    with monkeypatch.context() as patch:
        # A range is looked for on every server, and one of them is gone.
        break_down(patch, "memories.bob")
        break_down(patch, "memories.ada/")
        for _ in range(2):
            recall = call(fresh, "recall", ADA, "which tea in the morning?")
            assert [memory.key for memory in recall.memories] == ["tea"]
            (note,) = recall.trace.degraded
            assert note.startswith("what lies below the namespace cannot be read (ConnectionError")
            with pytest.raises(ConnectionError):
                call(fresh, "recall", BOB, "which tea in the morning?")
            clock.turn(seconds=31)
    assert call(fresh, "recall", BOB, "which tea in the morning?").chosen
    monkeypatch.setattr("langmem_recall.stores.postgres.database.RETRY_S", 0.0)
    monkeypatch.setattr("langmem_recall.stores.postgres.database.HOMES_AGE_S", 0.0)
    clock.turn(seconds=31)
    recall = call(fresh, "recall", ADA, "which tea in the morning?")
    assert (len(recall.chosen), recall.trace.degraded) == (1, ())


def uses(uri: str) -> dict[str, int]:
    return dict(rows(uri, f"SELECT prefix, sum(uses)::int FROM {USAGE_TABLE} GROUP BY prefix"))


def test_a_dead_shard_holds_back_only_the_uses_of_its_own_tenants(
    store: RecallStore, cluster: str, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for tenant in (ADA, BOB):
        store.put(tenant, "tea", {"content": "green tea in the morning"})
        store.recall(tenant, "which tea in the morning?")
    with monkeypatch.context() as patch:
        break_down(patch, "memories.ada")
        with pytest.raises(ConnectionError):
            store.flush()
        assert uses(cluster) == {"memories.bob": 1}
        clock.turn(hours=1)
        store.recall(BOB, "which tea in the morning?")
        store.feedback(ADA, "tea")
        with pytest.raises(ConnectionError):
            store.flush()
        assert uses(cluster) == {"memories.bob": 2}
    assert store.flush() == 1
    assert uses(cluster) == {"memories.ada": 1, "memories.bob": 2}
    numbers = rows(cluster, f"SELECT prefix, number FROM {BATCHES_TABLE} ORDER BY 1, 2")
    own, other = "memories.ada", "memories.bob"
    assert numbers == [(own, 1), (own, 3), (other, 1), (other, 2)]


def test_a_batch_whose_answer_was_lost_is_not_counted_again_after_another_tenants(
    store: RecallStore, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for tenant in (ADA, BOB):
        store.put(tenant, "tea", {"content": "green tea in the morning"})
        store.recall(tenant, "which tea in the morning?")
    real = Database._run

    def lose(self: Any, statements: Any) -> Any:
        answers = real(self, statements)
        if any("memories.ada" in str(one.params) for one in statements):
            raise ConnectionError("the answer was lost")
        return answers

    with monkeypatch.context() as patch:
        patch.setattr(Database, "_run", lose)
        with pytest.raises(ConnectionError):
            store.flush()
    assert store.flush() == 1
    assert uses(cluster) == {"memories.ada": 1, "memories.bob": 1}


def test_a_recall_whose_decisions_cannot_be_read_says_so(
    store: RecallStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def guard(text: str) -> Verdict:
        return Verdict("quarantine", ("odd",)) if "odd" in text else Verdict()

    guarded = RecallStore(store.inner, guard=guard, caching=Caching(flush_interval=3_600))
    guarded.put(ADA, "tea", {"content": "green tea in the morning"})
    guarded.put(ADA, "odd", {"content": "odd green tea in the morning"})
    real = Database._run

    def refuse(self: Any, statements: Any) -> Any:
        if any(RECORDS_TABLE in statement.sql for statement in statements):
            raise ConnectionError("the server of that shard is gone")
        return real(self, statements)

    fresh = RecallStore(store.inner, guard=guard, caching=Caching(flush_interval=3_600))
    with monkeypatch.context() as patch:
        patch.setattr(Database, "_run", refuse)
        recall = fresh.recall(ADA, "which green tea in the morning?")
    assert [memory.key for memory in recall.memories] == ["tea"]
    (note,) = recall.trace.degraded
    assert note.startswith("the guard's decisions cannot be read (ConnectionError")
    assert fresh.recall(ADA, "which green tea in the morning?").trace.degraded == ()


def test_what_items_of_the_store_held_is_taken_over_each_time(postgres: str, clock: Clock) -> None:
    def guard(text: str) -> Verdict:
        return Verdict("quarantine", ("odd",)) if "odd" in text else Verdict()

    with PostgresStore.from_conn_string(postgres, index=index_of("old")) as inner:
        inner.setup()
        for part in range(2):
            former = RecallStore(inner, guard=guard, clock=clock, policy=EVERY_USE)
            former._backend.usage.is_missing = True
            former.put(ADA, f"odd{part}", {"content": f"odd words number {part}"})
            former.approve(ADA, f"odd{part}")
            former.set_policy((*ADA, str(part)), RecallPolicy.weighted())
            former.put(ADA, "tea", {"content": "green tea in the morning"})
            former.search(ADA, query="green tea")
            former.secret()
            former.close()
            clock.turn(days=1)
            assert rows(postgres, "SELECT count(*) FROM store WHERE prefix LIKE 'langmem_recall%%'")
            store = RecallStore(inner, guard=guard, clock=clock, stored_policies=True)
            store.setup()
            left = "SELECT prefix FROM store WHERE prefix LIKE 'langmem_recall%%'"
            assert rows(postgres, left) == []
            assert f"odd{part}" in {item.key for item in store.search(ADA, query="odd words")}
            assert store.policy_for((*ADA, str(part))).name == "weighted"
            store.close()
    kinds = rows(postgres, f"SELECT kind, count(*)::int FROM {RECORDS_TABLE} GROUP BY 1 ORDER BY 1")
    # What a guard of one's own allows is kept too: of both odd ones and of the tea.
    assert kinds == [("policy", 2), ("verdict", 3)]
    used = f"SELECT uses::int FROM {USAGE_TABLE} WHERE key = 'tea'"
    assert rows(postgres, used)[0][0] >= 2


def test_a_tables_mark_of_an_earlier_version_is_taken_over(postgres: str) -> None:
    with PostgresStore.from_conn_string(postgres, index=index_of("old")) as inner:
        RecallStore(inner).setup()
        inner.put(ADA, "tea", {"content": "green tea in the morning"})
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("COMMENT ON TABLE store_vectors IS 'langmem_recall embedder: old'")
        connection.execute(f"DROP TABLE {SETTINGS_TABLE}")
        connection.execute("DELETE FROM langmem_recall_versions WHERE version >= 10")
    with PostgresStore.from_conn_string(postgres, index=index_of("old")) as inner:
        RecallStore(inner).setup()
    with PostgresStore.from_conn_string(postgres, index=index_of("new")) as inner:
        recall = RecallStore(inner).recall(ADA, "which tea in the morning?")
        assert "made by old, the configured embedder is new" in recall.trace.degraded[0]
    assert rows(postgres, f"SELECT name, value FROM {SETTINGS_TABLE}") == [("embedder", "old")]
