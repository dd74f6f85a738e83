"""LangGraph's Postgres stores from within: statements in one round trip, and where rows lie."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import lru_cache, partial
from time import monotonic
from typing import Any, Literal, NamedTuple, TypeVar

from langgraph.store.base.batch import AsyncBatchedBaseStore
from psycopg.rows import tuple_row

from langmem_recall.errors import StoreError
from langmem_recall.flows.effects import Call, Plan
from langmem_recall.types import SIDECAR_ROOT, MemoryId, Namespace

T = TypeVar("T")
Rows = list[tuple[Any, ...]]
UNDEFINED_TABLE, READ_ONLY, NO_RIGHT, TAKEN = "42P01", "25006", "42501", "23505"

HOMES_AGE_S = 600.0
"""Seconds after which what lies below a namespace is looked up again: others may write there."""
RETRY_S = 60.0
"""The same where not all servers have answered."""
MOST_KNOWN = 100_000
"""Namespaces whose homes are remembered."""
MOST_HOMES = 1_000
"""Homes of a namespace beyond which to name them all costs more than it saves."""
HAS_CITUS = "to_regclass('pg_dist_partition') IS NOT NULL"
IS_PARTED = "coalesce((SELECT relkind = 'p' FROM pg_class WHERE oid = to_regclass('store')), false)"


class Statement(NamedTuple):
    """SQL and its parameters."""

    sql: str
    params: tuple[Any, ...] = ()

    @property
    def returns(self) -> bool:
        """Whether it gives rows."""
        return self.sql.lstrip().startswith(("SELECT ", "WITH ")) or "RETURNING " in self.sql


BEGIN = Statement("BEGIN")
"""Before statements that are one transaction to every server."""


class Database:
    """The connections of a Postgres store: a pool, one connection or a pipeline, sync or async.

    Statements that are asked together travel together and share a transaction, so what one of
    them sets for the transaction holds for the next.
    """

    def __init__(self, store: Any, nested: bool = True) -> None:
        self.store = store
        self.homes = KnownHomes(nested)
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
        return self._call(partial(self._arun if self._is_async else self._run, statements))

    def has_table(self, name: str) -> Plan[bool]:
        """Whether there is a table, or an index, of that name."""
        found = yield self.ask(Statement("SELECT to_regclass(%s) IS NOT NULL", (name,)))
        return bool(found[0][0][0])

    def is_sharded(self) -> Plan[bool]:
        """Whether namespaces may lie on servers of their own; looked up once."""
        if self.homes.has_citus is None:
            ((how,),) = yield self.ask(Statement(f"SELECT {HAS_CITUS}, {IS_PARTED}"))
            self.homes.learn(*how)
        return bool(self.homes.has_citus)

    def settle(self) -> Plan[None]:
        """End what a store in pipeline mode has left open, whose clock stands still until then.

        Its sweeper leaves a transaction open: a time to live refreshed in it would end too early.
        """
        if self.store.pipe is not None:
            yield self._call(self.store.pipe.sync)

    def _call(self, work: Callable[[], Any]) -> Call:
        # A sync call waits in any thread but the one of the store's loop.
        return Call(lambda: self._wait(work()), work) if self._is_async else Call(work)

    def _run(self, statements: Sequence[Statement]) -> list[Rows]:
        with explained(), self.store._cursor(pipeline=True) as lead:
            connection, (whole, asked, prepare) = lead.connection, _read(statements)
            with connection.transaction() if whole else nullcontext():
                cursors = [connection.cursor(binary=True, row_factory=tuple_row) for _ in asked]
                for cursor, statement in zip(cursors, asked, strict=True):
                    cursor.execute(statement.sql, statement.params, prepare=prepare)
                if prepare is False:
                    with connection.pipeline() as pipe:
                        pipe.sync()
                    connection.execute("SELECT 1", prepare=False)
                pairs = zip(cursors, asked, strict=True)
                return [cursor.fetchall() if one.returns else [] for cursor, one in pairs]

    async def _arun(self, statements: Sequence[Statement]) -> list[Rows]:
        with explained():
            async with self._gate, self.store._cursor(pipeline=True) as lead:
                connection, (whole, asked, prepare) = lead.connection, _read(statements)
                async with connection.transaction() if whole else nullcontext():
                    cursors = [connection.cursor(binary=True, row_factory=tuple_row) for _ in asked]
                    for cursor, statement in zip(cursors, asked, strict=True):
                        await cursor.execute(statement.sql, statement.params, prepare=prepare)
                    if prepare is False:
                        async with connection.pipeline() as pipe:
                            await pipe.sync()
                        await connection.execute("SELECT 1", prepare=False)
                    pairs = zip(cursors, asked, strict=True)
                    return [await cursor.fetchall() if one.returns else [] for cursor, one in pairs]

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        loop = self.store.loop
        if asyncio._get_running_loop() is loop:
            work.close()
            raise asyncio.InvalidStateError(
                "A sync call would wait for the very loop it blocks. Await the `a` twin instead."
            )
        return asyncio.run_coroutine_threadsafe(work, loop).result()


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


# --- Namespaces as paths, and where they lie ---


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


class KnownHomes:
    """The homes of namespaces as listings have found them.

    Asked for only where the tables are split, by Citus or into partitions: on one table a range
    finds as quickly what another process has put below a namespace a moment ago.
    """

    def __init__(self, nested: bool = True) -> None:
        self._nested = nested
        self._lock = threading.Lock()
        self._known: dict[Namespace, tuple[Homes, float]] = {}
        self.missed: dict[Namespace, str] = {}
        """Namespaces of which only known homes could be read, and why."""
        self.has_citus: bool | None = None
        self.is_split = False
        """Whether the tables are split, as far as that is known."""

    def learn(self, has_citus: bool, is_parted: bool) -> None:
        """Whether and how the tables are split."""
        self.has_citus, self.is_split = has_citus, has_citus or is_parted

    def of(self, prefix: Namespace) -> Homes | None:
        """Paths of all at or below a namespace; None where that is not known."""
        if prefix and not self._nested:
            return (path_of(prefix),)
        known = self._known.get(prefix) if self.is_split else None
        return None if known is None or len(known[0]) > MOST_HOMES else known[0]

    def is_due(self, prefix: Namespace) -> bool:
        """Whether what lies below a namespace is to be looked up, for the first time or again."""
        if prefix and not self._nested:
            return False
        _, known_at = self._known.get(prefix, ((), -HOMES_AGE_S))
        return not self.is_split or monotonic() - known_at >= HOMES_AGE_S

    def note(self, prefix: Namespace, paths: Iterable[str], missed: str | None = None) -> None:
        """A look at all below a namespace has found these; in itself more may come at any time.

        `missed`: why it was not a look at all of it.
        """
        age = 0.0 if missed is None else HOMES_AGE_S - RETRY_S
        with self._lock:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
                self.missed.clear()
            homes = tuple(dict.fromkeys((path_of(prefix), *paths)))
            self._known[prefix] = homes, monotonic() - age
            self.missed.pop(prefix, None)
            if missed is not None:
                self.missed[prefix] = missed

    def note_put(self, namespace: Namespace) -> None:
        """Something was put into a namespace, which is a home of those above it from now on."""
        path = path_of(namespace)
        with self._lock:
            for depth in range(len(namespace)):
                known = self._known.get(namespace[:depth])
                if known is not None and path not in known[0]:
                    self._known[namespace[:depth]] = (*known[0], path), known[1]
