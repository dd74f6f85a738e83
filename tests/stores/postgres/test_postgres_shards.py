"""One namespace, one shard: what Citus would be sent, tried on a Postgres with hash partitions."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest
from conftest import Call, Clock
from langgraph.store.postgres import PostgresStore

from langmem_recall import Caching, RecallPolicy
from langmem_recall.embeddings import LocalEmbeddings
from langmem_recall.guard.judge import Verdict
from langmem_recall.stores.backend import reindex
from langmem_recall.stores.postgres.citus import DISTRIBUTED, CitusStore
from langmem_recall.stores.postgres.database import Statement
from langmem_recall.stores.recall_store import RecallStore

PARTS = 8
ADA = ("memories", "ada")
INDEX: Any = {"dims": 256, "embed": LocalEmbeddings(), "fields": ["content"]}
TOWNS = ("Bergen", "Porto", "Lyon", "Graz")


def split(uri: str) -> None:
    """Give each table that Citus would distribute hash partitions by prefix."""
    with psycopg.connect(uri, autocommit=True) as database:
        for table in DISTRIBUTED:
            if database.execute("SELECT to_regclass(%s)", (table,)).fetchone() == (None,):
                continue
            database.execute(f"ALTER TABLE {table} RENAME TO {table}_whole")
            database.execute(
                f"CREATE TABLE {table} (LIKE {table}_whole INCLUDING DEFAULTS INCLUDING INDEXES) "
                "PARTITION BY HASH (prefix)"
            )
            for part in range(PARTS):
                database.execute(
                    f"CREATE TABLE {table}_{part} PARTITION OF {table} "
                    f"FOR VALUES WITH (MODULUS {PARTS}, REMAINDER {part})"
                )
        database.execute("DROP TABLE IF EXISTS store_vectors_whole")
        for table in DISTRIBUTED:
            database.execute(f"DROP TABLE IF EXISTS {table}_whole")
        if database.execute("SELECT to_regclass('store_vectors')").fetchone() != (None,):
            database.execute(
                "ALTER TABLE store_vectors ADD FOREIGN KEY (prefix, key) "
                "REFERENCES store (prefix, key) ON DELETE CASCADE"
            )


class Recorder:
    """Every statement that reaches the server through any connection of this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.statements: dict[str, Statement] = {}
        self.is_on = True
        for cursor in (psycopg.Cursor, psycopg.AsyncCursor):
            self._record(monkeypatch, cursor)

    def _record(self, monkeypatch: pytest.MonkeyPatch, cursor: Any) -> None:
        execute = cursor.execute

        def recording(this: Any, query: Any, params: Any = None, **more: Any) -> Any:
            if self.is_on and isinstance(query, str):
                self.statements.setdefault(query, Statement(query, params or ()))
            return execute(this, query, params, **more)

        monkeypatch.setattr(cursor, "execute", recording)

    def forget(self) -> None:
        self.statements.clear()

    def fanning_out(self, uri: str) -> dict[str, dict[str, int]]:
        """Statements that scan more than one partition of a table, and how many."""
        self.is_on = False
        found: dict[str, dict[str, int]] = {}
        with psycopg.connect(uri, autocommit=True) as database:
            for statement in self.statements.values():
                if statement.sql.split()[0].upper() not in ("SELECT", "WITH", "UPDATE", "DELETE"):
                    continue
                with database.transaction(force_rollback=True):
                    cursor = psycopg.ClientCursor(database)
                    cursor.execute(f"EXPLAIN (FORMAT JSON) {statement.sql}", statement.params)
                    plan = cursor.fetchone()[0][0]["Plan"]  # type: ignore[index]
                parts: defaultdict[str, set[str]] = defaultdict(set)
                _scanned(plan, parts)
                if wide := {table: len(some) for table, some in parts.items() if len(some) > 1}:
                    found[" ".join(statement.sql.split())] = wide
        self.is_on = True
        return found


def _scanned(plan: dict[str, Any], parts: defaultdict[str, set[str]]) -> None:
    table, _, part = plan.get("Relation Name", "").rpartition("_")
    # What a cascade does has no scan of its own; the parts of an update are not all scanned.
    if table in DISTRIBUTED and part.isdigit() and plan["Node Type"] != "ModifyTable":
        parts[table].add(part)
    for child in plan.get("Plans", ()):
        _scanned(child, parts)


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    return Recorder(monkeypatch)


@pytest.fixture(params=["vectors", "words"])
def opened(request: pytest.FixtureRequest, postgres: str) -> Iterator[Any]:
    index = INDEX if request.param == "vectors" else None
    with PostgresStore.from_conn_string(postgres, index=index) as inner:
        RecallStore(inner).setup()
    split(postgres)
    with ExitStack() as stack:

        def open_store(**more: Any) -> RecallStore:
            inner = stack.enter_context(CitusStore.from_conn_string(postgres, index=index))
            return RecallStore(inner, **more)

        yield open_store


def careful(text: str) -> Verdict:
    return Verdict("quarantine", ("odd",)) if "odd" in text else Verdict()


def turns(store: RecallStore, call: Call, clock: Clock) -> None:
    """What an agent and its keeper do with a tenant's memories."""
    for n in range(12):
        text = f"Note {n}: the ticket A{n} to {TOWNS[n % 4]} is booked"
        call(store, "remember", ADA, text, key=f"k{n}")
    call(store, "remember", ADA, "My sister lives in Oslo")
    call(store, "put", ADA, "odd", {"content": "odd words about the ticket A7"})
    for _ in range(2):
        assert call(store, "search", ADA, query="the ticket A7 to Graz", limit=5)
        assert call(store, "recall", ADA, "Where does the ticket A9 go?").chosen
        store.feedback(ADA, ["k4", "k5"])
        assert call(store, "flush") >= 2
        clock.turn(seconds=31)
    call(store, "correct", ADA, "k1", "The ticket A1 to Porto is cancelled")
    assert call(store, "forget", ADA, "k3")
    call(store, "sweep", ADA, apply=True)
    assert call(store, "recall", ADA, "Where does the ticket A9 go?").chosen


@pytest.mark.parametrize("index_limit", [100_000, 0], ids=["index", "no index"])
def test_every_statement_of_a_turn_is_for_one_partition(
    opened: Any, postgres: str, recorder: Recorder, call: Call, clock: Clock, index_limit: int
) -> None:
    caching = Caching(flush_interval=3_600, nested=False, index_limit=index_limit)
    policy = RecallPolicy.default().replace(adapts=True)
    store = opened(caching=caching, clock=clock, guard=careful, policy=policy, stored_policies=True)
    recorder.forget()
    turns(store, call, clock)
    call(store, "close")
    assert len(recorder.statements) >= 15
    assert recorder.fanning_out(postgres) == {}


def test_what_lies_below_is_found_first_everywhere_and_then_where_it_is(
    opened: Any, postgres: str, recorder: Recorder, call: Call, clock: Clock
) -> None:
    store = opened(caching=Caching(flush_interval=3_600), clock=clock, guard=careful)
    recorder.forget()
    call(store, "recall", ADA, "Where does the ticket A9 go?")
    first = recorder.fanning_out(postgres)
    assert first
    assert all("~>=~" in sql for sql in first)
    recorder.forget()
    turns(store, call, clock)
    assert recorder.fanning_out(postgres) == {}
    # Its own process knows at once of another home, and asks in both.
    work = (*ADA, "work")
    call(store, "put", work, "w", {"content": "The ticket B1 to Turin is booked"})
    recorder.forget()
    found = call(store, "search", ADA, query="the ticket B1 to Turin", limit=20)
    assert {item.namespace for item in found} == {ADA, work}
    wide = recorder.fanning_out(postgres)
    assert {count for counts in wide.values() for count in counts.values()} <= {2}
    call(store, "close")


def test_a_home_that_another_process_made_is_found_when_homes_are_looked_up_again(
    opened: Any, postgres: str, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other = opened(clock=clock), opened(clock=clock)
    store.put(ADA, "k", {"content": "The ticket A1 to Graz"})
    assert len(store.search(ADA, query="the ticket to Graz")) == 1
    other.put((*ADA, "work"), "w", {"content": "The ticket B1 to Graz"})
    clock.turn(seconds=31)
    assert len(store.search(ADA, query="the ticket to Graz")) == 1
    monkeypatch.setattr("langmem_recall.stores.postgres.database.HOMES_AGE_S", 0.0)
    clock.turn(seconds=31)
    assert len(store.search(ADA, query="the ticket to Graz")) == 2


REFUSED = {
    "a function of the time in an update on conflict": r"DO UPDATE\s+SET.*(NOW\(\)|CURRENT_TIME)",
    "a parameter in an update on conflict": r"DO UPDATE\s+SET(?:(?!RETURNING).)*%s",
    "a lock without the equality": r"^(?!.*prefix = %s).*FOR UPDATE",
    "a table made in a block": r"DO \$\$.*CREATE\s+TABLE",
    "a setting that stays on the coordinator": r"set_config",
    "rows from a query instead of values": r"INSERT INTO(?:(?!VALUES|ON CONFLICT).)*SELECT",
    "a sum with an interval made of a text": r"SET expires_at = [^,]*::interval",
    "a lock, version or comment of one server": r"advisory|xmin|COMMENT ON",
}


@pytest.mark.parametrize("why", REFUSED)
def test_no_statement_is_one_that_citus_refuses(
    cluster: str, recorder: Recorder, call: Call, clock: Clock, why: str
) -> None:
    rule = re.compile(REFUSED[why], re.IGNORECASE | re.DOTALL)
    ttl: Any = {"default_ttl": 60, "refresh_on_read": True}
    with CitusStore.from_conn_string(cluster, index=INDEX, ttl=ttl) as inner:
        store = RecallStore(inner, clock=clock, guard=careful)
        store.setup(distribute=True)
        turns(store, call, clock)
        inner.search(ADA, query="ticket")
        store.forget_namespace(ADA)
        store.put(ADA, "k", {"content": "once more"})
        named = LocalEmbeddings()
        inner.index_config["embed"] = inner.embeddings = named  # type: ignore[index]
        reindex(store)
        call(store, "close")
    # What LangGraph's own setup makes in a block is the extension.
    assert [sql for sql in recorder.statements if rule.search(sql)] == []


@pytest.mark.parametrize(
    ("why", "sql"),
    [
        ("a function of the time in an update on conflict", "ON CONFLICT DO UPDATE SET a = now()"),
        ("a parameter in an update on conflict", "ON CONFLICT DO UPDATE SET a = 1, b = %s"),
        ("a lock without the equality", "SELECT 1 FROM store WHERE key = %s FOR UPDATE"),
        ("a table made in a block", "DO $$ BEGIN CREATE TABLE t (a int); END $$"),
        (
            "rows from a query instead of values",
            "INSERT INTO t (a) SELECT 1",
        ),
    ],
)
def test_the_rules_know_what_citus_refuses(why: str, sql: str) -> None:
    assert re.search(REFUSED[why], sql, re.IGNORECASE | re.DOTALL)
