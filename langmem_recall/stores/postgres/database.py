"""LangGraph's Postgres stores from within: several statements in one round trip."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from typing import Any, NamedTuple, TypeVar

from langgraph.store.base.batch import AsyncBatchedBaseStore

from langmem_recall.errors import StoreError
from langmem_recall.flows.effects import Call, Plan
from langmem_recall.types import SIDECAR_ROOT, MemoryId, Namespace

T = TypeVar("T")
Rows = list[tuple[Any, ...]]
UNDEFINED_TABLE, READ_ONLY, NO_RIGHT = "42P01", "25006", "42501"


class Statement(NamedTuple):
    """SQL and its parameters."""

    sql: str
    params: tuple[Any, ...] = ()
    returns: bool = True
    """Whether it gives rows."""


class Database:
    """The connections of a Postgres store: a pool, one connection or a pipeline, sync or async.

    Statements that are asked together travel together and share a transaction, so what one of
    them sets for the transaction holds for the next.
    """

    def __init__(self, store: Any) -> None:
        self.store = store
        self._is_async = isinstance(store, AsyncBatchedBaseStore)

    def ask(self, *statements: Statement) -> Call:
        """The rows of each statement, in one round trip."""
        if self._is_async:
            # A sync call waits in any thread but the one of the store's loop.
            return Call(lambda: self._wait(self._arun(statements)), partial(self._arun, statements))
        return Call(partial(self._run, statements))

    def settle(self) -> Plan[None]:
        """End what a store in pipeline mode has left open, whose clock stands still until then.

        Its sweeper leaves a transaction open: a time to live refreshed in it would end too early.
        """
        pipe = self.store.pipe
        if pipe is not None and self._is_async:
            yield Call(lambda: self._wait(pipe.sync()), pipe.sync)
        elif pipe is not None:
            yield Call(pipe.sync)

    def _run(self, statements: Sequence[Statement]) -> list[Rows]:
        with explained(), self.store._cursor(pipeline=True) as lead:
            cursors = [lead.connection.cursor(binary=True, row_factory=_tuples) for _ in statements]
            for cursor, statement in zip(cursors, statements, strict=True):
                cursor.execute(statement.sql, statement.params)
            return [
                cursor.fetchall() if statement.returns else []
                for cursor, statement in zip(cursors, statements, strict=True)
            ]

    async def _arun(self, statements: Sequence[Statement]) -> list[Rows]:
        with explained():
            async with self.store._cursor(pipeline=True) as lead:
                connection = lead.connection
                cursors = [connection.cursor(binary=True, row_factory=_tuples) for _ in statements]
                for cursor, statement in zip(cursors, statements, strict=True):
                    await cursor.execute(statement.sql, statement.params)
                return [
                    await cursor.fetchall() if statement.returns else []
                    for cursor, statement in zip(cursors, statements, strict=True)
                ]

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        loop = self.store.loop
        if asyncio._get_running_loop() is loop:
            work.close()
            raise asyncio.InvalidStateError(
                "A sync call would wait for the very loop it blocks. Await the `a` twin instead."
            )
        return asyncio.run_coroutine_threadsafe(work, loop).result()


@contextmanager
def explained() -> Iterator[None]:
    """Say in our words what Postgres refuses for want of tables or rights."""
    try:
        yield
    except Exception as error:
        state = getattr(error, "sqlstate", None)
        message = getattr(getattr(error, "diag", None), "message_primary", None) or str(error)
        if state == READ_ONLY:
            raise StoreError(
                "This Postgres may only be read; nothing was written. Write through an address "
                "that may be written to; RecallStore(record=False) counts no uses."
            ) from error
        if state == NO_RIGHT:
            raise StoreError(
                f"The role of this connection lacks a right in Postgres: {message}. Grant it, or "
                "let an owner run setup() once; an extension is made by a superuser, with CREATE "
                "EXTENSION vector."
            ) from error
        if state == UNDEFINED_TABLE and SIDECAR_ROOT not in message:
            raise StoreError(
                f"The database is not set up: {message}. Call setup() of the RecallStore once."
            ) from error
        raise


def path_of(namespace: Namespace) -> str:
    """A namespace as LangGraph writes it; labels have no dots."""
    return ".".join(namespace)


@lru_cache(maxsize=4096)
def namespace_of(path: str) -> Namespace:
    """The namespace that was written so."""
    return tuple(path.split("."))


def columns(ids: Sequence[MemoryId]) -> tuple[list[str], list[str]]:
    """Paths and keys, as the two arrays that a statement takes."""
    return [path_of(namespace) for namespace, _ in ids], [key for _, key in ids]


def bounds(namespace: Namespace) -> tuple[str, str, str]:
    """The path of a namespace, and where the paths below it begin and end, byte by byte."""
    path = path_of(namespace)
    return path, f"{path}.", f"{path}/"


def below(column: str) -> str:
    """The condition on a column that `bounds` are the parameters of.

    Compared byte by byte, which neither wildcards nor the language of the database can change,
    and which an index can answer under any plan.
    """
    return f"({column} = %s OR ({column} ~>=~ %s AND {column} ~<~ %s))"


def _tuples(cursor: Any) -> Any:
    from psycopg.rows import tuple_row

    return tuple_row(cursor)
