"""What is kept beside memories, in tables of our own: usage, with exact counts, and records."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from itertools import chain
from typing import Any

from langgraph.store.base import GetOp, ListNamespacesOp, Op, PutOp, SearchItem, SearchOp

from langmem_recall.errors import StoreError
from langmem_recall.flows.effects import Ops, Plan
from langmem_recall.flows.usage import USAGE, UsageBackend, UsageBatch, usage_of
from langmem_recall.memory.upkeep import MOST_MERIT, SECONDS_PER_DAY
from langmem_recall.stores.postgres.database import (
    TAKEN,
    UNDEFINED_TABLE,
    Database,
    KnownHomes,
    Rows,
    Statement,
    Tables,
    below,
    bounds,
    keys_by_path,
    namespace_of,
    path_of,
    within,
)
from langmem_recall.stores.postgres.schema import (
    BATCHES_TABLE,
    RECORDS_TABLE,
    SETTINGS_TABLE,
    USAGE_TABLE,
)
from langmem_recall.types import SIDECAR_ROOT, MemoryId, Namespace, Usage, UsageDelta

MOST_ROWS = 1_000
"""Rows that one statement writes; it may have 65,535 parameters."""
MOST_USAGES = 50_000
"""Usage records of a namespace that are read at once; beyond it they are read by id."""
VANISHED = 1e-150
"""A share or count this small is none; the server refuses what underflows."""
KEPT = 8
"""Batches of a ledger after which former ones are dropped; each time would be one more command."""
MOST_DOUBT = timedelta(days=30)
"""How long a batch that was written is known as such."""

_RECORD = ", ".join(Usage._fields)
_ROW = "(%s, %s, %s, %s, %s, %s, %s)"
_THESE = "prefix = %s AND key = ANY(%s)"
_READ = f"SELECT prefix, key, {_RECORD} FROM {USAGE_TABLE} WHERE {_THESE}"
# Locked in order, like additions: otherwise the two dead-lock.
_LOCK = f'SELECT 1 FROM {USAGE_TABLE} WHERE {_THESE} ORDER BY key COLLATE "C" FOR UPDATE'
_DROP = f"DELETE FROM {USAGE_TABLE} WHERE {_THESE}"
_LIST_BELOW = f"SELECT prefix, key FROM {USAGE_TABLE} WHERE {below('prefix')}"
_DROP_BATCHES_BELOW = f"DELETE FROM {BATCHES_TABLE} WHERE {below('prefix')}"
# A batch that is there is not added again: then the row of its number is taken, and a second try
# waits until it is known whether the first one took it.
_TAKE = f"INSERT INTO {BATCHES_TABLE} (prefix, ledger, number, written_at) VALUES (%s, %s, %s, %s)"
_PRUNE = f"""
DELETE FROM {BATCHES_TABLE}
WHERE prefix = %s AND ((ledger = %s AND number < %s) OR written_at < %s)"""
_BOUND_MERIT = f"""
UPDATE {USAGE_TABLE} SET merit = {MOST_MERIT} * sign(merit)
WHERE {_THESE} AND abs(merit) > {MOST_MERIT} RETURNING prefix, key, {_RECORD}"""
_UPSERT = files(__package__).joinpath("add_usage.sql").read_text("utf-8")
_GET = f"""
SELECT kind, prefix, key, value FROM {RECORDS_TABLE}
WHERE prefix = %s AND kind = ANY(%s) AND key = ANY(%s)"""
_GET_SETTINGS = f"SELECT NULL, '', name, value FROM {SETTINGS_TABLE} WHERE name = ANY(%s)"
_LEFT = f"SELECT prefix, key, value FROM store WHERE {below('prefix')} LIMIT %s"

Name = tuple[str | None, str, str]
"""Kind, path and key of a record; what belongs to no namespace has no kind of its own."""


def upsert(rows: Sequence[tuple[str, str, Usage]], fade_per_day: float) -> Statement:
    """Add records to those that are there, in the order of the rows; gives what they come to.

    Nothing but columns and numbers in what updates, and rows of values: Citus takes no other.
    """
    most_days = math.inf
    if fade_per_day < 1:
        # Days after which nothing is left of a count.
        most_days = math.log(VANISHED) / math.log(fade_per_day) if fade_per_day > 0 else 0.0

    def faded(row: str) -> str:
        """`memory.upkeep.faded` of a row's count, from its last use to the latest of both rows."""
        latest = "greatest(stored.last_used, excluded.last_used)"
        days = f"(({latest} - {row}.last_used) / {SECONDS_PER_DAY})"
        return f"""CASE WHEN {row}.decayed < {VANISHED} OR {days} > {_number(most_days)} THEN 0
        ELSE {row}.decayed * power({_number(fade_per_day)}, {days}) END"""

    sql = _UPSERT.format(
        usage=USAGE_TABLE,
        record=_RECORD,
        rows=", ".join([_ROW] * len(rows)),
        faded_stored=faded("stored"),
        faded_added=faded("excluded"),
        most_merit=MOST_MERIT,
    )
    return Statement(
        sql, tuple(chain.from_iterable((path, key, *usage) for path, key, usage in rows))
    )


def _number(value: float) -> str:
    return f"'{float(value)!r}'::double precision"


class PostgresUsage(Tables, UsageBackend):
    """Usage in the table that `RecallStore.setup` makes; in the side-car where it was not made."""

    def __init__(self, database: Database, homes: KnownHomes) -> None:
        self._database = database
        self._homes = homes
        self._sidecar = UsageBackend()

    def read(self, ids: Sequence[MemoryId]) -> Plan[list[Usage]]:
        """Usage of these memories, one round trip."""

        def own() -> Plan[list[Usage]]:
            known = (yield from self._read(ids)) if ids else {}
            return [known.get(memory_id, Usage()) for memory_id in ids]

        return self.in_tables(own(), self._sidecar.read(ids))

    def read_below(self, prefix: Namespace) -> Plan[dict[MemoryId, Usage] | None]:
        """Usage of every memory below a namespace; None where that is too much to hold."""

        def own() -> Plan[dict[MemoryId, Usage] | None]:
            # A table is not read as a whole.
            most = MOST_USAGES + 1 if prefix else 0
            place, params = within("prefix", prefix, self._homes.of(prefix))
            sql = f"SELECT prefix, key, {_RECORD} FROM {USAGE_TABLE} WHERE {place} LIMIT %s"
            answers = yield self._database.ask(Statement(sql, (*params, most)))
            return _by_id(answers) if len(answers[0]) < most else None

        return self.in_tables(own(), self._sidecar.read_below(prefix))

    def is_sharded(self) -> Plan[bool]:
        """Whether Citus has put namespaces on servers of their own."""
        return self._homes.is_sharded(self._database)

    def add(self, batch: UsageBatch, fade_per_day: float) -> Plan[dict[MemoryId, Usage]]:
        """Add uses atomically and give the records as they then stand, one round trip.

        The answer to a commit may be lost with the connection: a batch that is there is not added
        again.
        """
        own = self._add(batch, fade_per_day)
        return self.in_tables(own, self._sidecar.add(batch, fade_per_day))

    def _add(self, batch: UsageBatch, fade_per_day: float) -> Plan[dict[MemoryId, Usage]]:
        written_at = datetime.now(UTC)
        statements: list[Statement] = []
        for path, keys in keys_by_path(batch.touches).items():
            home = namespace_of(path)
            rows = [(path, key, _record_of(batch.touches[home, key])) for key in keys]
            taken = (path, batch.ledger, batch.number)
            statements.append(Statement(_TAKE, (*taken, written_at)))
            if batch.number % KEPT == 1:
                # What went before is known to be written, and what is this old is in no doubt.
                known = (*taken, written_at - MOST_DOUBT)
                statements.append(Statement(_PRUNE, known))
            for start in range(0, len(rows), MOST_ROWS):
                some = rows[start : start + MOST_ROWS]
                statements.append(upsert(some, fade_per_day))
            if any(abs(batch.touches[home, key].merit) > MOST_MERIT for key in keys):
                statements.append(Statement(_BOUND_MERIT, (path, keys)))
        if not statements:
            return {}
        try:
            return _by_id((yield self._database.ask(*statements, together=True)))
        except Exception as error:
            state = getattr(error, "sqlstate", None)
            # The first table that is missing is named; there may be none at all.
            is_newer = state == UNDEFINED_TABLE and BATCHES_TABLE in str(error)
            if is_newer and (yield from self._database.has_table(USAGE_TABLE)):
                raise StoreError(
                    f"The tables for usage are of an older version: there is no {BATCHES_TABLE}. "
                    "Call RecallStore.setup again."
                ) from None
            if state != TAKEN:
                raise
        return (yield from self._read(batch.touches))

    def drop(self, ids: Sequence[MemoryId]) -> Plan[None]:
        """Forget the usage of these memories."""

        def own() -> Plan[None]:
            names = keys_by_path(ids).items()
            statements = [Statement(sql, one) for one in names for sql in (_LOCK, _DROP)]
            if statements:
                yield self._database.ask(*statements, together=True)

        return self.in_tables(own(), self._sidecar.drop(ids))

    def drop_below(self, prefix: Namespace) -> Plan[int]:
        """Forget all usage at or below a namespace; returns of how many memories."""

        def own() -> Plan[int]:
            (rows,) = yield self._database.ask(Statement(_LIST_BELOW, bounds(prefix)))
            yield from self.drop([(namespace_of(path), key) for path, key in rows])
            return len(rows)

        count = yield from self.in_tables(own(), self._sidecar.drop_below(prefix))
        if not self.is_missing:
            yield self._database.ask(Statement(_DROP_BATCHES_BELOW, bounds(prefix)))
        return count

    def _read(self, ids: Iterable[MemoryId]) -> Plan[dict[MemoryId, Usage]]:
        statements = [Statement(_READ, one) for one in keys_by_path(ids).items()]
        return _by_id((yield self._database.ask(*statements)))


def _record_of(delta: UsageDelta) -> Usage:
    """What a batch adds to a memory; without a time of use there are only outcomes."""
    uses = 0 if delta.last is None else delta.uses
    merit = max(-2 * MOST_MERIT, min(delta.merit, 2 * MOST_MERIT))
    return Usage(uses, float(uses), delta.last, delta.before, merit)


def _by_id(answers: list[Rows]) -> dict[MemoryId, Usage]:
    return {
        (namespace_of(path), key): Usage(*record) for rows in answers for path, key, *record in rows
    }


class PostgresRecords(Tables):
    """The side-car of a Postgres store: what items of it hold elsewhere, in rows.

    A record about a memory has the memory's own prefix, so that it lies on the same shard; what is
    about no namespace goes to the settings, of which every server has a copy. Where
    `RecallStore.setup` has not made the tables it all goes to items of the store.
    """

    def __init__(self, database: Database, homes: KnownHomes) -> None:
        self._database = database
        self._homes = homes

    def perform(self, effect: Ops) -> Plan[list[Any]]:
        """Carry operations on the side-car out; `effect` is what any store would be given."""

        def in_items() -> Plan[list[Any]]:
            answers: list[Any] = yield effect
            return answers

        return self.in_tables(self._perform(effect), in_items())

    def erase(self, namespace: Namespace) -> Plan[int | None]:
        """Delete what there is of a kind at or below a namespace, in the table and in the store."""
        if self.is_missing:
            return None
        _, kind, *home = namespace
        place = below("prefix")
        own = f"DELETE FROM {RECORDS_TABLE} WHERE kind = %s AND {place} RETURNING 1"
        gone = yield self._database.ask(
            Statement(own, (kind, *bounds(tuple(home)))),
            Statement(f"DELETE FROM store WHERE {place} RETURNING 1", bounds(namespace)),
        )
        return sum(map(len, gone))

    def _perform(self, effect: Ops) -> Plan[list[Any]]:
        """What is read, then what is written; None for that."""
        ops = effect.ops
        gets = _gets([_named(op.namespace, op.key) for op in ops if isinstance(op, GetOp)])
        looks = [self._look(op, effect.exact) for op in ops if not isinstance(op, GetOp | PutOp)]
        answers: list[Rows] = (yield self._database.ask(*gets, *looks)) if gets or looks else []
        found = {tuple(name): value for rows in answers[: len(gets)] for *name, value in rows}
        looked = iter(answers[len(gets) :])
        results: list[Any] = []
        for op in ops:
            answer: Any = None
            if isinstance(op, GetOp):
                value = found.get(_named(op.namespace, op.key))
                answer = None if value is None else _item(op.namespace, op.key, value)
            elif isinstance(op, SearchOp):
                answer = [
                    _item((SIDECAR_ROOT, kind, *namespace_of(path)), key, value)
                    for kind, path, key, value in next(looked)
                ]
            elif isinstance(op, ListNamespacesOp):
                # What was written before there was a table may still be in the store.
                (others,) = yield Ops([op], sidecar=True)
                own = {(SIDECAR_ROOT, kind, *_listed(op)) for (kind,) in next(looked)}
                answer = sorted({*own, *others})
            results.append(answer)
        puts = (op for op in ops if isinstance(op, PutOp))
        writes = write_records((_named(op.namespace, op.key), op.value) for op in puts)
        if writes:
            yield self._database.ask(*writes, together=len(writes) > 1)
        return results

    def _look(self, op: Op, exact: bool) -> Statement:
        if isinstance(op, ListNamespacesOp):
            sql = f"SELECT DISTINCT kind FROM {RECORDS_TABLE} WHERE {below('prefix')}"
            return Statement(sql, bounds(_listed(op)))
        assert isinstance(op, SearchOp)
        kind, home = op.namespace_prefix[1], op.namespace_prefix[2:]
        homes = (path_of(home),) if exact else self._homes.of(home)
        place, params = within("prefix", home, homes) if home else ("true", ())
        sql = f"""
SELECT kind, prefix, key, value FROM {RECORDS_TABLE} WHERE kind = %s AND {place}
ORDER BY prefix, key LIMIT %s OFFSET %s"""
        return Statement(sql, (kind, *params, op.limit, op.offset))


def write_records(
    records: Iterable[tuple[Name, Any]], conflict: str = "DO UPDATE SET value = excluded.value"
) -> list[Statement]:
    """Statements that write records, or drop those without a value; one for each path."""
    from psycopg.types.json import Jsonb

    statements: list[Statement] = []
    written: dict[tuple[str, ...], Rows] = {}
    for (kind, path, key), value in records:
        table, columns, name = SETTINGS_TABLE, ["name"], [key]
        if kind is not None:
            table, columns, name = RECORDS_TABLE, ["prefix", "kind", "key"], [path, kind, key]
        if value is None:
            drop = f"DELETE FROM {table} WHERE {' AND '.join(f'{it} = %s' for it in columns)}"
            statements.append(Statement(drop, tuple(name)))
        else:
            written.setdefault((path, table, *columns), []).append((*name, Jsonb(value)))
    for (_, table, *names), rows in written.items():
        unique = ", ".join(names)
        for start in range(0, len(rows), MOST_ROWS):
            some = rows[start : start + MOST_ROWS]
            values = ", ".join([f"({', '.join(['%s'] * len(rows[0]))})"] * len(some))
            sql = f"INSERT INTO {table} ({unique}, value) VALUES {values} ON CONFLICT ({unique})"
            params = tuple(part for row in some for part in row)
            statements.append(Statement(f"{sql} {conflict}", params))
    return statements


def take_over(database: Database) -> Plan[None]:
    """Move what the side-car has in items of the store to the tables; may be repeated.

    Row by row through this process: between shards a statement cannot move them.
    """
    if not (yield from database.has_table("store")):
        return
    while True:
        (rows,) = yield database.ask(Statement(_LEFT, (*bounds((SIDECAR_ROOT,)), MOST_ROWS)))
        if not rows:
            return
        usages: list[tuple[str, str, Usage]] = []
        records: list[tuple[Name, Any]] = []
        left: dict[str, list[str]] = {}
        for path, key, value in rows:
            namespace = namespace_of(path)
            left.setdefault(path, []).append(key)
            if namespace[: len(USAGE)] != USAGE:
                records.append((_named(namespace, key), value))
            elif "uses" in value:
                usages.append((path_of(namespace[len(USAGE) :]), key, usage_of(value, key)))
        # What a table has already is newer.
        statements = write_records(sorted(records, key=lambda one: str(one[0])), "DO NOTHING")
        for path in sorted({path for path, *_ in usages}):
            statements.append(upsert([one for one in sorted(usages) if one[0] == path], 1.0))
        drop = "DELETE FROM store WHERE prefix = %s AND key = ANY(%s)"
        statements += [Statement(drop, one) for one in sorted(left.items())]
        yield database.ask(*statements, together=True)


def _gets(names: Iterable[Name]) -> list[Statement]:
    """One statement for each path, and one for what belongs to none."""
    by_path: dict[str, tuple[dict[str | None, None], dict[str, None]]] = {}
    for kind, path, key in names:
        kinds, keys = by_path.setdefault(path, ({}, {}))
        kinds[kind] = keys[key] = None
    return [
        Statement(_GET, (path, list(kinds), list(keys)))
        if path
        else Statement(_GET_SETTINGS, (list(keys),))
        for path, (kinds, keys) in by_path.items()
    ]


def _named(namespace: Namespace, key: str) -> Name:
    _, kind, *home = namespace
    return (kind, path_of(tuple(home)), key) if home else (None, "", f"{kind}/{key}")


def _listed(op: ListNamespacesOp) -> Namespace:
    """The one namespace about which records are asked for."""
    conditions: Any = op.match_conditions
    return tuple(conditions[0].path[2:])


def _item(namespace: Namespace, key: str, value: Any) -> SearchItem:
    now = datetime.now(UTC)
    return SearchItem(namespace, key, value, now, now)
