"""Usage in a Postgres table of its own: counts that stay exact across processes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from itertools import chain

from langmem_recall.errors import StoreError
from langmem_recall.flows.effects import Plan
from langmem_recall.flows.usage import UsageBackend, UsageBatch
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
    within,
)
from langmem_recall.stores.postgres.schema import BATCHES_TABLE, USAGE_TABLE
from langmem_recall.types import MemoryId, Namespace, Usage, UsageDelta

MOST_ROWS = 50_000
"""Usage records of a namespace that are read at once; beyond it they are read by id."""
VANISHED = 1e-150
"""A share or count this small is none; the server refuses what underflows."""
MOST_ADDED = 1_000
"""Rows that one statement adds; it may have 65,535 parameters."""
KEPT = 8
"""Batches of a ledger after which former ones are dropped; each time would be one more command."""
MOST_DOUBT = timedelta(days=30)
"""How long a batch that was written is known as such."""

_RECORD = ", ".join(Usage._fields)
_ROW = "(%s, %s, %s, %s, %s, %s, %s)"
_FLOATS = "%s::double precision[]"
_ARRAYS = f"""
SELECT * FROM unnest(
    %s::text[], %s::text[], %s::bigint[], {_FLOATS}, {_FLOATS}, {_FLOATS}, %s::integer[]
)"""
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


def upsert(
    rows: Sequence[tuple[str, str, Usage]], fade_per_day: float, from_arrays: bool = False
) -> Statement:
    """Add records to those that are there, in the order of the rows; gives what they come to.

    Nothing but columns and numbers in what updates, and rows of values: Citus takes no other. One
    server takes many rows several times as fast `from_arrays`, which are the same few parameters.
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
        rows=_ARRAYS if from_arrays else f"VALUES {', '.join([_ROW] * len(rows))}",
        faded_stored=faded("stored"),
        faded_added=faded("excluded"),
        most_merit=MOST_MERIT,
    )
    flat = [(path, key, *usage) for path, key, usage in rows]
    if from_arrays:
        return Statement(sql, tuple(map(list, zip(*flat, strict=True))))
    return Statement(sql, tuple(chain.from_iterable(flat)))


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
            most = MOST_ROWS + 1 if prefix else 0
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
            for start in range(0, len(rows), MOST_ADDED):
                some = rows[start : start + MOST_ADDED]
                statements.append(upsert(some, fade_per_day, self._homes.has_citus is False))
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
