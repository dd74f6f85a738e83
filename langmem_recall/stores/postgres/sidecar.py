"""What is kept beside memories, in tables of our own: usage, with exact counts, and records."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import wraps
from importlib.resources import files
from itertools import chain, groupby
from operator import itemgetter
from typing import Any, Concatenate, ParamSpec, TypeVar

from langgraph.store.base import GetOp, ListNamespacesOp, Op, PutOp, SearchItem, SearchOp
from psycopg.types.json import Jsonb

from langmem_recall.flows.effects import Ops, Plan
from langmem_recall.flows.usage import USAGE, UsageBackend, UsageBatch, usage_of
from langmem_recall.memory.upkeep import MOST_MERIT, SECONDS_PER_DAY
from langmem_recall.stores.postgres.database import (
    TAKEN,
    UNDEFINED_TABLE,
    Database,
    Rows,
    Statement,
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
from langmem_recall.types import SIDECAR_ROOT, MemoryId, Namespace, Usage

logger = logging.getLogger(__name__)

T = TypeVar("T")
P = ParamSpec("P")

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
    return Statement(sql, tuple(chain(*((path, key, *usage) for path, key, usage in rows))))


def _number(value: float) -> str:
    return f"'{float(value)!r}'::double precision"


def in_tables(
    in_items: Callable[Concatenate[Any, P], Plan[T]],
) -> Callable[[Callable[Concatenate[Any, P], Plan[T]]], Callable[Concatenate[Any, P], Plan[T]]]:
    """Makes a plan of one that needs our tables, and of one that does without until `setup`."""

    def wrapped(own: Callable[Concatenate[Any, P], Plan[T]]) -> Callable[..., Plan[T]]:
        @wraps(own)
        def plan(self: PostgresSidecar, /, *args: P.args, **kwargs: P.kwargs) -> Plan[T]:
            if not self.is_missing:
                try:
                    return (yield from own(self, *args, **kwargs))
                except Exception as error:
                    # Our own error about tables that are not there has the server's behind it.
                    causes = (error, error.__cause__)
                    if UNDEFINED_TABLE not in (getattr(one, "sqlstate", None) for one in causes):
                        raise
                self.is_missing = True
                logger.info("No tables of ours yet, items take their place: call setup.")
            return (yield from in_items(self, *args, **kwargs))

        return plan

    return wrapped


def _perform_in_items(_: PostgresSidecar, effect: Ops) -> Plan[list[Any]]:
    answers: list[Any] = yield effect
    return answers


class PostgresSidecar(UsageBackend):
    """Usage and records in tables of their own; in items of the store where there are none yet.

    A record about a memory has the memory's own prefix, so that it lies on the same shard; what is
    about no namespace goes to the settings, of which every server has a copy.
    """

    is_missing = False
    """Whether the tables were looked for and not found."""

    def __init__(self, database: Database) -> None:
        self._database, self._homes = database, database.homes

    @in_tables(UsageBackend.read)
    def read(self, ids: Sequence[MemoryId]) -> Plan[list[Usage]]:
        """Usage of these memories, one round trip."""
        known = (yield from self._read(ids)) if ids else {}
        return [known.get(memory_id, Usage()) for memory_id in ids]

    @in_tables(UsageBackend.read_below)
    def read_below(self, prefix: Namespace) -> Plan[dict[MemoryId, Usage] | None]:
        """Usage of every memory below a namespace; None where that is too much to hold."""
        # A table is not read as a whole.
        most = MOST_USAGES + 1 if prefix else 0
        place, params = within("prefix", prefix, self._homes.of(prefix))
        sql = f"SELECT prefix, key, {_RECORD} FROM {USAGE_TABLE} WHERE {place} LIMIT %s"
        answers = yield self._database.ask(Statement(sql, (*params, most)))
        return _by_id(answers) if len(answers[0]) < most else None

    def is_sharded(self) -> Plan[bool]:
        """Whether Citus has put namespaces on servers of their own."""
        return self._database.is_sharded()

    @in_tables(UsageBackend.add)
    def add(self, batch: UsageBatch, fade_per_day: float) -> Plan[dict[MemoryId, Usage]]:
        """Add uses atomically and give the records as they then stand, one round trip.

        The answer to a commit may be lost with the connection: a batch that is there is not added
        again.
        """
        written_at = datetime.now(UTC)
        statements: list[Statement] = []
        for path, keys in keys_by_path(batch.touches).items():
            taken = (path, batch.ledger, batch.number)
            statements.append(Statement(_TAKE, (*taken, written_at)))
            if batch.number % KEPT == 1:
                # What went before is known to be written, and what is this old is in no doubt.
                statements.append(Statement(_PRUNE, (*taken, written_at - MOST_DOUBT)))
            rows: list[tuple[str, str, Usage]] = []
            for key in keys:
                uses, last, before, merit = batch.touches[namespace_of(path), key]
                # Without a time of use there are only outcomes.
                uses = 0 if last is None else uses
                merit = max(-2 * MOST_MERIT, min(merit, 2 * MOST_MERIT))
                rows.append((path, key, Usage(uses, float(uses), last, before, merit)))
            for start in range(0, len(rows), MOST_ROWS):
                statements.append(upsert(rows[start : start + MOST_ROWS], fade_per_day))
            if any(abs(usage.merit) > MOST_MERIT for *_, usage in rows):
                statements.append(Statement(_BOUND_MERIT, (path, keys)))
        if not statements:
            return {}
        try:
            return _by_id((yield self._database.ask(*statements, together=True)))
        except Exception as error:
            if getattr(error, "sqlstate", None) != TAKEN:
                raise
        return (yield from self._read(batch.touches))

    @in_tables(UsageBackend.drop)
    def drop(self, ids: Sequence[MemoryId]) -> Plan[None]:
        """Forget the usage of these memories."""
        names = keys_by_path(ids).items()
        statements = [Statement(sql, one) for one in names for sql in (_LOCK, _DROP)]
        if statements:
            yield self._database.ask(*statements, together=True)

    @in_tables(UsageBackend.drop_below)
    def drop_below(self, prefix: Namespace) -> Plan[int]:
        """Forget all usage at or below a namespace; returns of how many memories."""
        (rows,) = yield self._database.ask(Statement(_LIST_BELOW, bounds(prefix)))
        yield from self.drop([(namespace_of(path), key) for path, key in rows])
        yield self._database.ask(Statement(_DROP_BATCHES_BELOW, bounds(prefix)))
        return len(rows)

    def _read(self, ids: Iterable[MemoryId]) -> Plan[dict[MemoryId, Usage]]:
        statements = [Statement(_READ, one) for one in keys_by_path(ids).items()]
        return _by_id((yield self._database.ask(*statements)))

    @in_tables(_perform_in_items)
    def perform(self, effect: Ops) -> Plan[list[Any]]:
        """Carry operations on the side-car out: what is read, then what is written."""
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


def _by_id(answers: list[Rows]) -> dict[MemoryId, Usage]:
    return {
        (namespace_of(path), key): Usage(*record) for rows in answers for path, key, *record in rows
    }


def write_records(
    records: Iterable[tuple[Name, Any]], conflict: str = "DO UPDATE SET value = excluded.value"
) -> list[Statement]:
    """Statements that write records, or drop those without a value."""
    statements: list[Statement] = []
    for (kind, path, key), value in records:
        table, columns = SETTINGS_TABLE, ["name"]
        name: list[Any] = [key]
        if kind is not None:
            table, columns, name = RECORDS_TABLE, ["prefix", "kind", "key"], [path, kind, key]
        sql = f"DELETE FROM {table} WHERE {' AND '.join(f'{it} = %s' for it in columns)}"
        if value is not None:
            unique, marks = ", ".join(columns), "%s, " * len(columns)
            sql = f"""
INSERT INTO {table} ({unique}, value) VALUES ({marks}%s) ON CONFLICT ({unique}) {conflict}"""
            name.append(Jsonb(value))
        statements.append(Statement(sql, tuple(name)))
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
    statements: list[Statement] = []
    for path, some in groupby(sorted(names, key=itemgetter(1)), itemgetter(1)):
        kinds, _, keys = map(list, map(dict.fromkeys, zip(*some, strict=True)))
        get = Statement(_GET, (path, kinds, keys)) if path else Statement(_GET_SETTINGS, (keys,))
        statements.append(get)
    return statements


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
