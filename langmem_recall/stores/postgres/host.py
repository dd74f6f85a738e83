"""Carrying effects out on Postgres where it may only be read, and saying why it refuses others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from langgraph.store.base import BaseStore, GetOp, PutOp, SearchOp

from langmem_recall.errors import StoreError
from langmem_recall.flows.effects import Effect, Host, Ops, Plan, arun, run
from langmem_recall.stores.postgres.database import Database, database_of, is_missing_table
from langmem_recall.stores.postgres.search import PostgresReads
from langmem_recall.types import SIDECAR_ROOT

READ_ONLY, NO_RIGHT = "25006", "42501"


class PostgresHost(Host):
    """Reads without a trace what may only be read: LangGraph's own reads have an UPDATE in them."""

    __slots__ = ()

    def perform(self, effect: Effect) -> Any:
        """Carry one effect out and wait for it."""
        with explained():
            try:
                return super().perform(effect)
            except Exception as error:
                plan = self._plain_read(effect, error)
            return run(plan, self._plain)

    async def aperform(self, effect: Effect) -> Any:
        """Carry one effect out without blocking the event loop."""
        with explained():
            try:
                return await super().aperform(effect)
            except Exception as error:
                plan = self._plain_read(effect, error)
            return await arun(plan, self._plain)

    @property
    def _plain(self) -> Host:
        return Host(self.store, self.sidecar, self.embeddings)

    def _plain_read(self, effect: Effect, error: Exception) -> Plan[list[Any]]:
        """The effect in plain statements, where it reads and was refused as a write."""
        is_refused = getattr(error, "sqlstate", None) in (READ_ONLY, NO_RIGHT)
        if not is_refused or not isinstance(effect, Ops):
            raise error
        database = database_of(self._store_of(effect))
        if database is None or any(isinstance(op, PutOp) for op in effect.ops):
            raise error
        return _read_plainly(effect, database)


@contextmanager
def explained() -> Iterator[None]:
    """Say in our words what Postgres refuses for want of tables or rights."""
    try:
        yield
    except Exception as error:
        told = _explanation(error)
        if told is None:
            raise
        raise StoreError(told) from error


def host_of(store: BaseStore, sidecar: BaseStore, **more: Any) -> Host:
    """What carries the effects of a store and its side-car out."""
    is_postgres = database_of(store) or database_of(sidecar)
    return (PostgresHost if is_postgres else Host)(store, sidecar, **more)


def _read_plainly(effect: Ops, database: Database) -> Plan[list[Any]]:
    """What is asked for, without refreshing times to live."""
    gets = [op for op in effect.ops if isinstance(op, GetOp)]
    others = [
        op._replace(refresh_ttl=False) if isinstance(op, SearchOp) else op
        for op in effect.ops
        if not isinstance(op, GetOp)
    ]
    items = iter((yield from PostgresReads(database).items(gets)))
    answers = iter((yield Ops(others, effect.sidecar)))
    return [next(items if isinstance(op, GetOp) else answers) for op in effect.ops]


def _explanation(error: Exception) -> str | None:
    state = getattr(error, "sqlstate", None)
    told = getattr(getattr(error, "diag", None), "message_primary", None) or str(error)
    if state == READ_ONLY:
        return (
            "This Postgres may only be read; nothing was written. Write through an address that "
            "may be written to; RecallStore(record=False) counts no uses."
        )
    if state == NO_RIGHT:
        return (
            f"The role of this connection lacks a right in Postgres: {told}. Grant it, or let an "
            "owner run setup() once; an extension is made by a superuser, with CREATE EXTENSION "
            "vector."
        )
    if is_missing_table(error) and SIDECAR_ROOT not in told:
        return f"The database is not set up: {told}. Call setup() of the RecallStore once."
    return None
