"""LangGraph's Postgres stores from within: several statements in one round trip."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import lru_cache, partial
from typing import Any, Literal, NamedTuple, TypeVar

from langgraph.store.base.batch import AsyncBatchedBaseStore

from langmem_recall.errors import StoreError
from langmem_recall.flows.effects import Call, Plan
from langmem_recall.types import SIDECAR_ROOT, MemoryId, Namespace

T = TypeVar("T")
Rows = list[tuple[Any, ...]]
UNDEFINED_TABLE, READ_ONLY, NO_RIGHT, TAKEN = "42P01", "25006", "42501", "23505"


class Statement(NamedTuple):
    """SQL and its parameters."""

    sql: str
    params: tuple[Any, ...] = ()
    returns: bool = True
    """Whether it gives rows."""


BEGIN = Statement("BEGIN", returns=False)
"""Before statements that are one transaction to every server."""


class Database:
    """The connections of a Postgres store: a pool, one connection or a pipeline, sync or async.

    Statements that are asked together travel together and share a transaction, so what one of
    them sets for the transaction holds for the next.
    """

    def __init__(self, store: Any) -> None:
        self.store = store
        self._is_async = isinstance(store, AsyncBatchedBaseStore)
        self.connections: int = getattr(getattr(store, "conn", None), "max_size", 1)
        # Who waits here has no time limit, and the pool's queue stays short for the store's own.
        self._gate = asyncio.Semaphore(self.connections)

    def ask(self, *statements: Statement, together: bool = False) -> Call:
        """The rows of each statement, in one round trip.

        `together` puts a BEGIN before them. A plain Postgres needs none, but to Citus each is a
        transaction of its own without it, and what one sets for the next stays behind.
        """
        statements = (BEGIN, *statements) if together else statements
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
            connection, (whole, asked, prepare) = lead.connection, _read(statements)
            with connection.transaction() if whole else nullcontext():
                cursors = [connection.cursor(binary=True, row_factory=_tuples) for _ in asked]
                for cursor, statement in zip(cursors, asked, strict=True):
                    cursor.execute(statement.sql, statement.params, prepare=prepare)
                if prepare is False:
                    with connection.pipeline() as pipe:
                        pipe.sync()
                    connection.execute("SELECT 1", prepare=False)
                return [
                    cursor.fetchall() if statement.returns else []
                    for cursor, statement in zip(cursors, asked, strict=True)
                ]

    async def _arun(self, statements: Sequence[Statement]) -> list[Rows]:
        with explained():
            async with self._gate, self.store._cursor(pipeline=True) as lead:
                connection, (whole, asked, prepare) = lead.connection, _read(statements)
                async with connection.transaction() if whole else nullcontext():
                    cursors = [connection.cursor(binary=True, row_factory=_tuples) for _ in asked]
                    for cursor, statement in zip(cursors, asked, strict=True):
                        await cursor.execute(statement.sql, statement.params, prepare=prepare)
                    if prepare is False:
                        async with connection.pipeline() as pipe:
                            await pipe.sync()
                        await connection.execute("SELECT 1", prepare=False)
                    return [
                        await cursor.fetchall() if statement.returns else []
                        for cursor, statement in zip(cursors, asked, strict=True)
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


def keys_by_path(ids: Iterable[MemoryId]) -> dict[str, list[str]]:
    """The keys under each path, both in the order of their bytes.

    A statement for each path, because that is on one shard and on one partition.
    """
    found: dict[str, list[str]] = {}
    for path, key in sorted((path_of(namespace), key) for namespace, key in ids):
        found.setdefault(path, []).append(key)
    return found


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


Homes = tuple[str, ...]
"""Paths of all that lies at or below a namespace, where they are known."""


def within(column: str, namespace: Namespace, homes: Homes | None) -> tuple[str, tuple[Any, ...]]:
    """What lies at or below a namespace: a condition on a column, and its parameters.

    Known homes are asked for by equality, which leads to their shards and partitions alone.
    """
    if homes is None:
        return below(column), bounds(namespace)
    if len(homes) == 1:
        return f"{column} = %s", homes
    return f"{column} = ANY(%s)", (list(homes),)


def _read(
    statements: Sequence[Statement],
) -> tuple[bool, Sequence[Statement], Literal[False] | None]:
    """Whether they begin a transaction, the rest, and whether they may be prepared."""
    is_whole = bool(statements) and statements[0] is BEGIN
    asked = statements[1:] if is_whole else statements
    # Over these the driver lets go of what it has prepared: in a pipeline only with the statement
    # after the answer, which must not be a prepared one itself.
    is_ddl = any(one.sql.lstrip().startswith(("ALTER ", "DROP ")) for one in asked)
    return is_whole, asked, False if is_ddl else None


def _tuples(cursor: Any) -> Any:
    from psycopg.rows import tuple_row

    return tuple_row(cursor)
