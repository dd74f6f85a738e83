"""What is kept beside memories, in tables of our own: each record on the shard of its memory."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, cast

from langgraph.store.base import GetOp, ListNamespacesOp, Op, PutOp, SearchItem, SearchOp

from langmem_recall.flows.effects import Ops, Plan
from langmem_recall.flows.usage import USAGE, usage_of
from langmem_recall.stores.postgres.database import (
    UNDEFINED_TABLE,
    Database,
    Rows,
    Statement,
    below,
    bounds,
    namespace_of,
    path_of,
    within,
)
from langmem_recall.stores.postgres.homes import KnownHomes
from langmem_recall.stores.postgres.schema import RECORDS_TABLE, SETTINGS_TABLE
from langmem_recall.stores.postgres.usage import upsert
from langmem_recall.types import SIDECAR_ROOT, Namespace, Usage

logger = logging.getLogger(__name__)

MOST_ROWS = 1_000
"""Rows that one statement writes; it may have 65,535 parameters."""
_DROP = f"DELETE FROM {RECORDS_TABLE} WHERE prefix = %s AND kind = %s AND key = %s"
_DROP_SETTING = f"DELETE FROM {SETTINGS_TABLE} WHERE name = %s"
_GET = f"""
SELECT kind, prefix, key, value FROM {RECORDS_TABLE}
WHERE prefix = %s AND kind = ANY(%s) AND key = ANY(%s)"""
_GET_SETTINGS = f"SELECT NULL, '', name, value FROM {SETTINGS_TABLE} WHERE name = ANY(%s)"
_KINDS_BELOW = f"SELECT DISTINCT kind FROM {RECORDS_TABLE} WHERE {below('prefix')}"
_ERASE = f"DELETE FROM {RECORDS_TABLE} WHERE kind = %s AND {below('prefix')} RETURNING 1"
_LEFT = f"SELECT prefix, key, value FROM store WHERE {below('prefix')} LIMIT %s"
_DROP_LEFT = "DELETE FROM store WHERE prefix = %s AND key = ANY(%s)"
_ERASE_LEFT = f"DELETE FROM store WHERE {below('prefix')} RETURNING 1"

Name = tuple[str | None, str, str]
"""Kind, path and key of a record; what belongs to no namespace has no kind of its own."""


class PostgresRecords:
    """The side-car of a Postgres store: what items of it hold elsewhere, in rows.

    A record about a memory has the memory's own prefix, so that it lies on the same shard; what is
    about no namespace goes to the settings, of which every server has a copy. Where
    `RecallStore.setup` has not made the tables it all goes to items of the store.
    """

    def __init__(self, database: Database, homes: KnownHomes) -> None:
        self._database = database
        self._homes = homes
        self.is_missing = False
        """Whether the tables were looked for and not found."""

    def perform(self, effect: Ops) -> Plan[list[Any]]:
        """Carry operations on the side-car out; `effect` is what any store would be given."""
        if not self.is_missing and effect.ops:
            try:
                results = yield from self._read(effect)
                puts = [op for op in effect.ops if isinstance(op, PutOp)]
                writes = write_records((_named(op.namespace, op.key), op.value) for op in puts)
                if writes:
                    yield self._database.ask(*writes, together=len(writes) > 1)
                return results
            except Exception as error:
                # Our own error about tables that are not there has the server's behind it.
                causes = (error, error.__cause__)
                if UNDEFINED_TABLE not in (getattr(one, "sqlstate", None) for one in causes):
                    raise
            self.is_missing = True
            logger.info("No table for records yet, they go to the store: call RecallStore.setup.")
        answers: list[Any] = yield effect
        return answers

    def erase(self, namespace: Namespace) -> Plan[int | None]:
        """Delete what there is of a kind at or below a namespace, in the table and in the store."""
        if self.is_missing:
            return None
        _, kind, *home = namespace
        gone = yield self._database.ask(
            Statement(_ERASE, (kind, *bounds(tuple(home)))),
            Statement(_ERASE_LEFT, bounds(namespace)),
        )
        return sum(map(len, gone))

    def _read(self, effect: Ops) -> Plan[list[Any]]:
        """The answers to what only reads; None for the rest."""
        ops = effect.ops
        gets = _gets([_named(op.namespace, op.key) for op in ops if isinstance(op, GetOp)])
        looks = [self._look(op, effect.exact) for op in ops if not isinstance(op, GetOp | PutOp)]
        statements = [*gets, *looks]
        answers: list[Rows] = (yield self._database.ask(*statements)) if statements else []
        found = {tuple(name): value for rows in answers[: len(gets)] for *name, value in rows}
        looked = iter(answers[len(gets) :])
        results: list[Any] = []
        for op in ops:
            answer: Any = None
            if isinstance(op, GetOp):
                value = found.get(_named(op.namespace, op.key))
                answer = None if value is None else _item(op.namespace, op.key, value)
            elif isinstance(op, SearchOp):
                kind = op.namespace_prefix[1]
                answer = [
                    _item((SIDECAR_ROOT, kind, *namespace_of(path)), key, value)
                    for _, path, key, value in next(looked)
                ]
            elif isinstance(op, ListNamespacesOp):
                home = _listed(op)[2:]
                # What was written before there was a table may still be in the store.
                (others,) = yield Ops([op], sidecar=True)
                own = {(SIDECAR_ROOT, kind, *home) for (kind,) in next(looked)}
                answer = sorted({*own, *others})
            results.append(answer)
        return results

    def _look(self, op: Op, exact: bool) -> Statement:
        if isinstance(op, ListNamespacesOp):
            return Statement(_KINDS_BELOW, bounds(_listed(op)[2:]))
        search: SearchOp = cast(SearchOp, op)
        _, kind, *rest = search.namespace_prefix
        home = tuple(rest)
        homes = (path_of(home),) if exact else self._homes.of(home)
        place, params = within("prefix", home, homes) if home else ("true", ())
        sql = f"""
SELECT kind, prefix, key, value FROM {RECORDS_TABLE} WHERE kind = %s AND {place}
ORDER BY prefix, key LIMIT %s OFFSET %s"""
        return Statement(sql, (kind, *params, search.limit, search.offset))


def write_records(
    records: Iterable[tuple[Name, Any]], conflict: str = "DO UPDATE SET value = excluded.value"
) -> list[Statement]:
    """Statements that write records, or drop those without a value; one for each path."""
    from psycopg.types.json import Jsonb

    statements: list[Statement] = []
    written: dict[str | None, list[tuple[Any, ...]]] = {}
    for (kind, path, key), value in records:
        if value is None:
            drop, name = (_DROP_SETTING, (key,)) if kind is None else (_DROP, (path, kind, key))
            statements.append(Statement(drop, name, returns=False))
        elif kind is None:
            written.setdefault(None, []).append((key, Jsonb(value)))
        else:
            written.setdefault(path, []).append((path, kind, key, Jsonb(value)))
    for home, rows in written.items():
        names = "name" if home is None else "prefix, kind, key"
        table = SETTINGS_TABLE if home is None else RECORDS_TABLE
        for start in range(0, len(rows), MOST_ROWS):
            some = rows[start : start + MOST_ROWS]
            values = ", ".join([f"({', '.join(['%s'] * len(rows[0]))})"] * len(some))
            sql = f"INSERT INTO {table} ({names}, value) VALUES {values} ON CONFLICT ({names})"
            params = tuple(part for row in some for part in row)
            statements.append(Statement(f"{sql} {conflict}", params, returns=False))
    return statements


def take_over(database: Database) -> Plan[None]:
    """Move what the side-car has in items of the store to the tables; may be repeated.

    Row by row through this process: between shards a statement cannot move them.
    """
    exists = Statement("SELECT to_regclass('store') IS NOT NULL")
    if not (yield database.ask(exists))[0][0][0]:
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
        statements += [Statement(_DROP_LEFT, one, returns=False) for one in sorted(left.items())]
        yield database.ask(*statements, together=True)


def _gets(names: Iterable[Name]) -> list[Statement]:
    """One statement for each path, and one for what belongs to none."""
    settings = [key for kind, _, key in names if kind is None]
    by_path: dict[str, tuple[dict[str, None], dict[str, None]]] = {}
    for kind, path, key in names:
        if kind is not None:
            kinds, keys = by_path.setdefault(path, ({}, {}))
            kinds[kind] = keys[key] = None
    statements = [
        Statement(_GET, (path, list(kinds), list(keys))) for path, (kinds, keys) in by_path.items()
    ]
    return [*statements, Statement(_GET_SETTINGS, (settings,))] if settings else statements


def _named(namespace: Namespace, key: str) -> Name:
    _, kind, *home = namespace
    return (kind, path_of(tuple(home)), key) if home else (None, "", f"{kind}/{key}")


def _listed(op: ListNamespacesOp) -> Namespace:
    """The one path whose namespaces are asked for."""
    conditions: Sequence[Any] = op.match_conditions or ()
    return tuple(conditions[0].path)


def _item(namespace: Namespace, key: str, value: Any) -> SearchItem:
    now = datetime.now(UTC)
    return SearchItem(namespace, key, value, now, now)
