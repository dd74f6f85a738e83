"""What is kept beside memories, in tables of our own: each record on the shard of its memory."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from langgraph.store.base import GetOp, ListNamespacesOp, Op, PutOp, SearchItem, SearchOp

from langmem_recall.flows.effects import Ops, Plan
from langmem_recall.flows.usage import USAGE, usage_of
from langmem_recall.stores.postgres.database import (
    Database,
    KnownHomes,
    Rows,
    Statement,
    Tables,
    below,
    bounds,
    namespace_of,
    path_of,
    within,
)
from langmem_recall.stores.postgres.schema import RECORDS_TABLE, SETTINGS_TABLE
from langmem_recall.stores.postgres.usage import upsert
from langmem_recall.types import SIDECAR_ROOT, Namespace, Usage

MOST_ROWS = 1_000
"""Rows that one statement writes; it may have 65,535 parameters."""
_GET = f"""
SELECT kind, prefix, key, value FROM {RECORDS_TABLE}
WHERE prefix = %s AND kind = ANY(%s) AND key = ANY(%s)"""
_GET_SETTINGS = f"SELECT NULL, '', name, value FROM {SETTINGS_TABLE} WHERE name = ANY(%s)"
_LEFT = f"SELECT prefix, key, value FROM store WHERE {below('prefix')} LIMIT %s"

Name = tuple[str | None, str, str]
"""Kind, path and key of a record; what belongs to no namespace has no kind of its own."""


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
