"""Citus: tables distributed by namespace, and LangGraph's store in statements that Citus takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from langgraph.store.base import PutOp
from langgraph.store.postgres import AsyncPostgresStore, PostgresStore
from langgraph.store.postgres.base import BasePostgresStore

from langmem_recall.errors import ConfigurationError
from langmem_recall.flows.effects import Plan
from langmem_recall.stores.postgres.database import HAS_CITUS, Database, Statement
from langmem_recall.stores.postgres.schema import (
    BATCHES_TABLE,
    RECORDS_TABLE,
    SETTINGS_TABLE,
    USAGE_TABLE,
    VERSIONS_TABLE,
)

DISTRIBUTED = ("store", "store_vectors", USAGE_TABLE, BATCHES_TABLE, RECORDS_TABLE)
"""Tables with a row for each memory, or about one: on the shard of its namespace."""
COPIED = (SETTINGS_TABLE, VERSIONS_TABLE, "store_migrations", "vector_migrations")
"""Tables that every server has a copy of, so that each can be asked without another."""

_SEQUENTIAL = Statement("SET LOCAL citus.multi_shard_modify_mode = 'sequential'")
_PLACES = """
SELECT wanted.name, to_regclass(wanted.name) IS NOT NULL, place.partmethod::text,
    place.repmodel::text, place.colocationid,
    CASE WHEN place.partmethod = 'h'
        THEN column_to_column_name(place.logicalrelid, place.partkey::text) END
FROM unnest(%s::text[]) AS wanted (name)
LEFT JOIN pg_dist_partition place ON place.logicalrelid = to_regclass(wanted.name)"""

_REFRESHED = "NOW() + (s.ttl_minutes || ' minutes')::interval"
_BY_NUMBERS = "to_timestamp(extract(epoch FROM NOW())::double precision + s.ttl_minutes * 60)"
_UPDATED, _UPDATED_BY_ROW = "updated_at = CURRENT_TIMESTAMP", "updated_at = EXCLUDED.updated_at"


def _translated(query: Any) -> Any:
    sql, *rest = query
    return sql.replace(_UPDATED, _UPDATED_BY_ROW).replace(_REFRESHED, _BY_NUMBERS), *rest


class _CitusStatements(BasePostgresStore[Any]):
    """Three statements of LangGraph's in terms that Citus can send to a shard as they are.

    In an update on conflict it takes no function of the time, and in any update none that depends
    on settings, as a sum with an interval made of a text does.
    """

    def _prepare_batch_PUT_queries(self, put_ops: Any) -> Any:
        queries, embedding = super()._prepare_batch_PUT_queries(put_ops)
        return [*map(_translated, queries)], embedding and _translated(embedding)

    def _get_batch_GET_ops_queries(self, get_ops: Any) -> Any:
        return [*map(_translated, super()._get_batch_GET_ops_queries(get_ops))]

    def _prepare_batch_search_queries(self, search_ops: Any) -> Any:
        queries, embeddings = super()._prepare_batch_search_queries(search_ops)
        return [*map(_translated, queries)], embeddings


class CitusStore(_CitusStatements, PostgresStore):
    """LangGraph's `PostgresStore` for a database that Citus distributes."""


class AsyncCitusStore(_CitusStatements, AsyncPostgresStore):
    """LangGraph's `AsyncPostgresStore` for a database that Citus distributes."""


def refuses(store: Any) -> bool:
    """Whether Citus refuses a store's statements."""
    (query, *_), _ = store._prepare_batch_PUT_queries([(0, PutOp(("a",), "k", {}, index=False))])
    return _UPDATED in query[0]


class _Place(NamedTuple):
    """Where a table lies."""

    name: str
    exists: bool
    method: str | None
    model: str | None
    group: int | None
    column: str | None

    @property
    def is_by_prefix(self) -> bool:
        return self.method == "h" and self.column == "prefix"


def distribute(
    database: Database, wanted: bool | None, names: Sequence[str] = (*DISTRIBUTED, *COPIED)
) -> Plan[None]:
    """Put the tables where they belong, those that are not there; may be repeated at any time.

    None: only where `store` is distributed already, so that newer tables follow it.
    """
    places = yield from _places(database, ["store"])
    if places is None and wanted:
        raise ConfigurationError(
            "setup(distribute=True) needs Citus, and this database has no such extension. Run "
            "CREATE EXTENSION citus on it and on its workers, or call setup() without it."
        )
    if places is None or not (wanted or places["store"].is_by_prefix):
        return
    for name in names:
        place = ((yield from _places(database, [name])) or {})[name]
        if not place.exists or place.method is not None:
            continue
        beside = "" if name == "store" else ", colocate_with => 'store'"
        call = f"create_distributed_table('{name}', 'prefix'{beside})"
        if name in COPIED:
            call = f"create_reference_table('{name}')"
        try:
            yield database.ask(Statement(f"SELECT {call}"))
        except Exception:
            # Another process may have been quicker.
            again = (yield from _places(database, [name])) or {}
            if again[name].method is None:
                raise


def one_by_one(database: Database) -> Plan[list[Statement]]:
    """What begins a transaction that changes several distributed tables, where there are such."""
    return [] if (yield from _places(database, ["store"])) is None else [_SEQUENTIAL]


def misplaced(database: Database) -> Plan[list[str] | None]:
    """What is wrong with where the tables lie; None where `store` is on this server alone."""
    places = yield from _places(database, (*DISTRIBUTED, *COPIED))
    if places is None or places["store"].method is None:
        return None
    store, *others = (places[name] for name in (*DISTRIBUTED, *COPIED) if places[name].exists)
    if store.method == "n":
        # One schema on one server, all of its tables with it.
        apart = [one.name for one in others if one.group != store.group]
        return [f"{name} does not lie beside store: use citus_schema_distribute" for name in apart]
    faults: list[str] = []
    if not store.is_by_prefix:
        faults.append(f"store is distributed by {store.column}, not by prefix")
    for place in others:
        if place.name in COPIED:
            if (place.method, place.model) != ("n", "t"):
                faults.append(f"{place.name} has no copy on every server")
        elif place.method is None:
            faults.append(f"{place.name} is on the coordinator alone")
        elif not place.is_by_prefix or place.group != store.group:
            faults.append(f"{place.name} is not on the shards of store")
    return faults


def _places(database: Database, names: Sequence[str]) -> Plan[dict[str, _Place] | None]:
    """Where tables lie; None without Citus."""
    if not (yield database.ask(Statement(f"SELECT {HAS_CITUS}")))[0][0][0]:
        return None
    (rows,) = yield database.ask(Statement(_PLACES, (list(names),)))
    return {row[0]: _Place(*row) for row in rows}
