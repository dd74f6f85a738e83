"""Usage in a Postgres table of its own: counts that stay exact across processes."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from importlib.resources import files
from typing import TypeVar

from langmem_recall.errors import StoreError
from langmem_recall.flows.effects import Plan
from langmem_recall.flows.usage import UsageBackend, UsageBatch
from langmem_recall.memory.upkeep import MOST_MERIT, SECONDS_PER_DAY
from langmem_recall.stores.postgres.database import (
    UNDEFINED_TABLE,
    Database,
    Rows,
    Statement,
    below,
    bounds,
    columns,
    namespace_of,
    path_of,
)
from langmem_recall.stores.postgres.schema import LOTS_TABLE, USAGE_TABLE, set_up
from langmem_recall.types import MemoryId, Namespace, Usage

logger = logging.getLogger(__name__)

T = TypeVar("T")

MOST_ROWS = 50_000
"""Usage records of a namespace that are read at once; beyond it they are read by id."""
VANISHED = 1e-150
"""A share or count this small is none; the server refuses what underflows."""
MOST_DOUBT = "30 days"
"""How long a batch that was written is known as such."""

_RECORD = ", ".join(Usage._fields)
_IDS = "unnest(%s::text[], %s::text[])"
_READ = f"""
SELECT {_RECORD} FROM {_IDS} WITH ORDINALITY AS asked (prefix, key, place)
LEFT JOIN {USAGE_TABLE} USING (prefix, key) ORDER BY place"""
_READ_BELOW = f"SELECT prefix, key, {_RECORD} FROM {USAGE_TABLE} WHERE {below('prefix')} LIMIT %s"


def _drop_where(condition: str) -> str:
    # Locked in order, like additions: otherwise the two dead-lock.
    return f"""
WITH gone AS (
    SELECT prefix, key FROM {USAGE_TABLE} WHERE {condition} ORDER BY prefix, key FOR UPDATE
), dropped AS (
    DELETE FROM {USAGE_TABLE} AS stored USING gone
    WHERE stored.prefix = gone.prefix AND stored.key = gone.key RETURNING 1
)
SELECT count(*) FROM dropped"""


_DROP = _drop_where(f"(prefix, key) IN (SELECT * FROM {_IDS})")
_DROP_BELOW = _drop_where(below("prefix"))


def _faded(row: str) -> str:
    """`memory.upkeep.faded` of a row's count, from its last use to the latest of both rows."""
    days = (
        f"((greatest(stored.last_used, excluded.last_used) - {row}.last_used) / {SECONDS_PER_DAY})"
    )
    return f"""CASE WHEN {row}.decayed < {VANISHED} OR {days} > %s::double precision THEN 0
        ELSE {row}.decayed * power(%s::double precision, {days}) END"""


# One statement, so that a second try of a batch waits for the first try and then adds nothing.
_ADD = files(__package__).joinpath("add_usage.sql").read_text("utf-8")
_ADD = _ADD.format(
    batches=LOTS_TABLE,
    usage=USAGE_TABLE,
    record=_RECORD,
    faded_stored=_faded("stored"),
    faded_added=_faded("excluded"),
    most_merit=MOST_MERIT,
)
_READ_AFTER = f"""
SELECT prefix, key, {_RECORD} FROM {USAGE_TABLE} WHERE (prefix, key) IN (SELECT * FROM {_IDS})"""
_BOUND_MERIT = f"""
UPDATE {USAGE_TABLE} SET merit = {MOST_MERIT} * sign(merit)
WHERE abs(merit) > {MOST_MERIT} AND (prefix, key) IN (SELECT * FROM {_IDS})"""

_PRUNE = f"""
DELETE FROM {LOTS_TABLE} WHERE ledger IN (
    SELECT ledger FROM {LOTS_TABLE} WHERE written_at < now() - interval '{MOST_DOUBT}'
    FOR UPDATE SKIP LOCKED
)"""


class PostgresUsage(UsageBackend):
    """Usage in the table that `RecallStore.setup` makes; in the side-car where it was not made."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._sidecar = UsageBackend()
        self._is_missing = False

    def set_up(self) -> Plan[None]:
        """Make the table, and take over what the side-car holds."""
        yield from set_up(self._database)
        self._is_missing = False

    def read(self, ids: Sequence[MemoryId]) -> Plan[list[Usage]]:
        """Usage of these memories, one round trip."""
        sidecar = self._sidecar.read(ids)
        if not ids:
            return sidecar
        return self._ask([Statement(_READ, columns(ids))], _in_order, sidecar)

    def read_below(self, prefix: Namespace) -> Plan[dict[MemoryId, Usage] | None]:
        """Usage of every memory below a namespace; None where that is too much to hold."""
        # A table is not read as a whole.
        most = MOST_ROWS + 1 if prefix else 0
        statement = Statement(_READ_BELOW, (*bounds(prefix), most))

        def found(rows: Rows) -> dict[MemoryId, Usage] | None:
            return _by_id(rows) if len(rows) < most else None

        return self._ask([statement], found, self._sidecar.read_below(prefix))

    def add(self, batch: UsageBatch, fade_per_day: float) -> Plan[dict[MemoryId, Usage]]:
        """Add uses atomically and read the records as they then stand, one round trip.

        The answer to a commit may be lost with the connection: a batch that is there is not added
        again.
        """
        ids = sorted(batch.touches, key=lambda one: (path_of(one[0]), one[1]))
        added = [batch.touches[memory_id] for memory_id in ids]
        most_days = math.inf
        if fade_per_day < 1:
            # Days after which nothing is left of a count.
            most_days = math.log(VANISHED) / math.log(fade_per_day) if fade_per_day > 0 else 0.0
        fade = (most_days, fade_per_day)
        counts = (
            # Without a time of use there are only outcomes, and nothing is counted.
            [0 if delta.last is None else delta.uses for delta in added],
            [delta.last for delta in added],
            [delta.before for delta in added],
            [max(-2 * MOST_MERIT, min(delta.merit, 2 * MOST_MERIT)) for delta in added],
        )
        params = (batch.ledger, batch.number, *columns(ids), *counts, *fade, *fade)
        statements = [Statement(_ADD, params, returns=False)]
        if batch.number == 1:
            statements.insert(0, Statement(_PRUNE, returns=False))
        if any(abs(delta.merit) > MOST_MERIT for delta in added):
            statements.append(Statement(_BOUND_MERIT, columns(ids), returns=False))
        statements.append(Statement(_READ_AFTER, columns(ids)))
        return self._ask(statements, _by_id, self._sidecar.add(batch, fade_per_day))

    def drop(self, ids: Sequence[MemoryId]) -> Plan[None]:
        """Forget the usage of these memories."""
        statement = Statement(_DROP, columns(ids))
        return self._ask([statement], lambda _: None, self._sidecar.drop(ids))

    def drop_below(self, prefix: Namespace) -> Plan[int]:
        """Forget all usage at or below a namespace; returns of how many memories."""
        statement = Statement(_DROP_BELOW, bounds(prefix))
        return self._ask(
            [statement], lambda rows: int(rows[0][0]), self._sidecar.drop_below(prefix)
        )

    def _ask(
        self, statements: Sequence[Statement], read: Callable[[Rows], T], sidecar: Plan[T]
    ) -> Plan[T]:
        """What the last statement gives; what the side-car does where there is no table."""
        if not self._is_missing:
            try:
                answers: list[Rows] = yield self._database.ask(*statements)
                return read(answers[-1])
            except Exception as error:
                if getattr(error, "sqlstate", None) != UNDEFINED_TABLE:
                    raise
                # The first table that is missing is named; there may be none at all.
                exists = Statement("SELECT to_regclass(%s) IS NOT NULL", (USAGE_TABLE,))
                if LOTS_TABLE in str(error) and (yield self._database.ask(exists))[0][0][0]:
                    raise StoreError(
                        f"The tables for usage are of an older version: there is no {LOTS_TABLE}. "
                        "Call RecallStore.setup again."
                    ) from error
            self._is_missing = True
            logger.info("No table for usage yet, it goes to the side-car: call RecallStore.setup.")
        return (yield from sidecar)


def _by_id(rows: Rows) -> dict[MemoryId, Usage]:
    return {(namespace_of(path), key): Usage(*record) for path, key, *record in rows}


def _in_order(rows: Rows) -> list[Usage]:
    return [Usage() if row[0] is None else Usage(*row) for row in rows]
