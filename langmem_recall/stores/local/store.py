"""The embedded default store: one SQLite file, exact search in memory, no server."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import wraps
from itertools import islice
from pathlib import Path
from sys import maxsize
from typing import Any, Concatenate, Literal, ParamSpec, Self, TypeVar

from langchain_core.embeddings import Embeddings
from langgraph.store.base import (
    BaseStore,
    GetOp,
    IndexConfig,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
    validate_op_namespace,
)

from langmem_recall.errors import InputError, check_whole, described
from langmem_recall.filters import check_filter, matches
from langmem_recall.memory.upkeep import reinforced
from langmem_recall.stores.local import tables
from langmem_recall.stores.local.embedder import Embedder
from langmem_recall.stores.local.file import MEMORY, LocalFile
from langmem_recall.stores.local.tables import Record, Vocabulary
from langmem_recall.stores.local.view import LocalView
from langmem_recall.stores.local.writer import Writer, new_put
from langmem_recall.types import MemoryId, Namespace, Usage, UsageDelta

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

SWEEP_MINUTES = 5.0


def _off_loop(
    method: Callable[Concatenate[Any, P], T],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """The same method in a thread: neither the file nor the embedder blocks the event loop."""

    @wraps(method)
    async def amethod(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.to_thread(getattr(self, method.__name__), *args, **kwargs)

    return amethod


class LocalStore(BaseStore):
    """A LangGraph store in one file that any number of threads and processes may share.

    Args:
        path: The file; made when it does not exist, and only read where it cannot be written.
            ":memory:" keeps nothing.
        embeddings: What makes vectors, or its name: "wordllama", "minilm", or provider and model
            as "openai:text-embedding-3-small". LocalEmbeddings when absent, loaded on first use.
        index: LangGraph's index configuration (`embed`, `dims`, `fields`); False: no vectors.
        ttl: LangGraph's configuration of times to live.
        cache_mb: Memory that loaded namespaces may hold together before the oldest are let go.
        clock: Seconds since 1970.

    What is embedded is the memory's text (`content`, `text`, `memory`, langmem's shapes, else the
    whole value) unless `fields` or `put(index=[...])` name paths.
    """

    supports_ttl = True

    def __init__(
        self,
        path: str | Path = MEMORY,
        *,
        embeddings: Embeddings | str | None = None,
        index: IndexConfig | Literal[False] | None = None,
        ttl: TTLConfig | None = None,
        cache_mb: float = 1024,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._embedder = None if index is False else Embedder(embeddings, index)
        self.index_config = self._embedder.config if self._embedder else None
        self.embeddings = self._embedder.embeddings if self._embedder else None
        self.ttl_config = ttl
        self._clock = clock
        self._file = LocalFile(path)
        self._vocabulary = Vocabulary()
        self._writer = Writer(self._file, self._embedder, self._vocabulary)
        # The longest unused first, which go when all together take too much memory.
        self._views: OrderedDict[Namespace, LocalView] = OrderedDict()
        self._views_lock = threading.Lock()
        self._free_bytes = int(cache_mb * 1_000_000)
        self._sweeper: threading.Thread | None = None
        self._stop_sweeping = threading.Event()

    @property
    def path(self) -> str:
        """The file."""
        return self._file.path

    @property
    def waiting(self) -> int:
        """How many texts wait for the embedder: found by their words until then."""
        return self._writer.count_pending()

    def setup(self) -> None:
        """Nothing to do: the tables are made on opening. Here because other stores have it."""

    def close(self) -> None:
        """Stop the sweeper and release the file."""
        self.stop_ttl_sweeper(timeout=5.0)
        self._file.close()

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Run operations: all reads, then all writes in one transaction."""
        ops = list(ops)
        for op in ops:
            check_op(op)
        self._file.check()
        self._writer.renew_traits()
        queries = {op.query for op in ops if isinstance(op, SearchOp) and op.query}
        vectors: dict[str, list[float]] = {}
        if queries and self._embedder:
            vectors = {query: self._embedder.call("query", query) for query in queries}
            # It works again, or still: what it failed on before may go through now.
            self._writer.embed_pending()
        touched: list[Record] = []
        results: list[Result] = [self._read(op, vectors, touched) for op in ops]
        # As in SqliteStore, a read extends a life only where the configuration says so.
        refreshes = (self.ttl_config or {}).get("refresh_on_read") and not self._file.is_read_only
        now = self._now()
        if refreshes and any(record.ttl_minutes is not None for record in touched):
            with self._file.writing() as connection:
                connection.executemany(
                    "UPDATE items SET expires_at = ? + CAST(ttl_minutes * 60000000 AS INTEGER) "
                    "WHERE id = ? AND ttl_minutes IS NOT NULL",
                    [(now, item_id) for item_id in sorted({record.id for record in touched})],
                )
        # The last write of each memory wins.
        last = {(tuple(op.namespace), op.key): op for op in ops if isinstance(op, PutOp)}
        if last:
            puts = [new_put(op, now) for op in last.values() if op.value is not None]
            deleted = [memory_id for memory_id, op in last.items() if op.value is None]
            self._writer.commit(puts, deleted)
        return results

    def shelf(self, namespace: Namespace) -> LocalView:
        """Everything at or below this namespace, loaded and up to date."""
        self._writer.renew_traits()
        prefix = tuple(namespace)
        with self._views_lock:
            view = self._views.pop(prefix, None)
            if view is None:
                view = LocalView(self._file, self._embedder, self._vocabulary, self._now, prefix)
            self._views[prefix] = view
        # Not under the lock of all: loading one namespace must not hold up the others.
        view.refresh()
        with self._views_lock:
            # Another thread may have let it go meanwhile.
            if self._views.get(prefix) is view:
                size = view.nbytes
                self._free_bytes += view.counted_bytes - size
                view.counted_bytes = size
            while self._free_bytes < 0 and len(self._views) > 1:
                self._free_bytes += self._views.popitem(last=False)[1].counted_bytes
        return view

    @property
    def seen_version(self) -> tuple[int, int]:
        """Changes with every write to the file, another process's once a read has looked at it."""
        return self._file.seen_version

    def read_usage(self, ids: Sequence[MemoryId]) -> list[Usage]:
        """Usage of each memory, in order; an empty record for one never used."""
        with self._file.reading() as connection:
            return [tables.find_usage(connection, memory_id) for memory_id in ids]

    def add_usage(self, touches: Mapping[MemoryId, UsageDelta], fade_per_day: float) -> None:
        """Add uses, durably, all or none; a file that cannot be written counts none."""
        if not touches or self._file.is_read_only:
            return
        with self._file.writing() as connection:
            for memory_id, touch in sorted(touches.items()):
                usage = reinforced(tables.find_usage(connection, memory_id), touch, fade_per_day)
                connection.execute(
                    "INSERT OR REPLACE INTO usage (namespace, key, uses, decayed, last_used, "
                    "before, merit) VALUES (?, ?, ?, ?, ?, ?, ?)",
                    (tables.encode_namespace(memory_id[0]), memory_id[1], *usage),
                )

    def drop_usage(self, ids: Sequence[MemoryId]) -> None:
        """Forget the usage of these memories."""
        if ids:
            names = [(tables.encode_namespace(namespace), key) for namespace, key in sorted(ids)]
            with self._file.writing() as connection:
                connection.executemany("DELETE FROM usage WHERE namespace = ? AND key = ?", names)

    def drop_usage_below(self, namespace: Namespace) -> int:
        """Forget all usage at or below a namespace; returns of how many memories."""
        with self._file.writing() as connection:
            delete = f"DELETE FROM usage WHERE {tables.BELOW}"
            return connection.execute(delete, tables.bounds(namespace)).rowcount

    def erase(self, namespace: Namespace) -> int:
        """Delete everything at or below a namespace, expired items too; returns how many items."""
        with self._file.writing() as connection:
            select = f"SELECT id FROM items WHERE {tables.BELOW}"
            found = connection.execute(select, tables.bounds(namespace))
            return tables.delete_ids(connection, [row[0] for row in found])

    def compact(self) -> bool:
        """Rewrite the file without a byte of what was deleted from it.

        False when a long read elsewhere held it up: the file then still has its former log, and
        compacting again later finishes it. Reads go on meanwhile, writes wait.
        """
        with self._file.writing() as connection:
            tables.scrub(connection)
        return self._file.vacuum()

    def backup(self, path: str | Path) -> None:
        """Copy everything to a new file as it stands at one moment, while others go on writing.

        Args:
            path: The copy, which a LocalStore opens like any other file; it must not exist yet.

        Raises:
            InputError: The file exists already or cannot be made.
        """
        self._file.backup(path)

    def reindex(self, progress: Callable[[int, int], None] | None = None) -> int:
        """Embed everything anew with the configured embedder; returns how many were embedded.

        Stopped at any point, it goes on from there when it is called again; what has no new vector
        yet is found by its words. `progress` gets how many are done, and of how many.
        """
        return self._writer.reindex(progress)

    def sweep_ttl(self) -> int:
        """Delete what has expired; returns how many."""
        with self._file.writing() as connection:
            expired = tables.expired_ids(connection, (), self._now())
            return tables.delete_ids(connection, expired)

    def start_ttl_sweeper(self, sweep_interval_minutes: float | None = None) -> Future[None]:
        """Sweep every few minutes in a thread; nothing is started without a TTL configuration."""
        future: Future[None] = Future()
        if not self.ttl_config:
            future.set_result(None)
            return future
        configured = self.ttl_config.get("sweep_interval_minutes")
        seconds = 60 * float(sweep_interval_minutes or configured or SWEEP_MINUTES)
        is_running = self._sweeper is not None and self._sweeper.is_alive()
        stop = self._stop_sweeping if is_running else threading.Event()
        # Weak, so that a running sweeper does not keep a forgotten store alive.
        method = weakref.WeakMethod(self.sweep_ttl)

        def sweep_until_stopped() -> None:
            while not stop.wait(seconds) and (sweep := method()):
                try:
                    sweep()
                except Exception as error:
                    # A busy or full disk may be better the next time.
                    logger.error("Sweeping expired items failed: %s", described(error))
                del sweep
            if not future.cancelled():
                future.set_result(None)

        if not is_running:
            self._stop_sweeping = stop
            self._sweeper = threading.Thread(
                target=sweep_until_stopped, name="langmem-recall-ttl-sweeper", daemon=True
            )
            self._sweeper.start()
        future.add_done_callback(lambda done: stop.set() if done.cancelled() else None)
        return future

    def stop_ttl_sweeper(self, timeout: float | None = None) -> bool:
        """Stop sweeping; False when the thread did not end in time."""
        self._stop_sweeping.set()
        if self._sweeper is None or self._sweeper is threading.current_thread():
            return True
        self._sweeper.join(timeout)
        return not self._sweeper.is_alive()

    async def astart_ttl_sweeper(
        self, sweep_interval_minutes: float | None = None
    ) -> asyncio.Future[None]:
        """Sweep every few minutes in a thread."""
        return asyncio.wrap_future(self.start_ttl_sweeper(sweep_interval_minutes))

    abatch, asetup, aclose = _off_loop(batch), _off_loop(setup), _off_loop(close)
    acompact, abackup, areindex = _off_loop(compact), _off_loop(backup), _off_loop(reindex)
    asweep_ttl, astop_ttl_sweeper = _off_loop(sweep_ttl), _off_loop(stop_ttl_sweeper)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *failure: object) -> None:
        await self.aclose()

    def _read(self, op: Op, vectors: Mapping[str, Any], touched: list[Record]) -> Result:
        """The result of a read, None for a put; adds the records whose life it may extend."""
        if isinstance(op, GetOp):
            with self._file.reading() as connection:
                record = tables.find_record(connection, op.namespace, op.key, self._expired_by())
            touched += [record] if record and op.refresh_ttl else []
            return record.item() if record else None
        if isinstance(op, SearchOp):
            vector = vectors.get(op.query or "")
            found = self._list(op) if vector is None else self._search(op, vector)
            touched += [record for record, _ in found if op.refresh_ttl]
            return [item for _, item in found]
        if isinstance(op, ListNamespacesOp):
            with self._file.reading() as connection:
                namespaces = tables.list_namespaces(connection, self._expired_by())
            matching = {
                namespace[: op.max_depth]
                for namespace in namespaces
                if all(_matches(condition, namespace) for condition in op.match_conditions or ())
            }
            return sorted(matching)[op.offset : op.offset + op.limit]
        return None

    def _search(self, op: SearchOp, vector: Sequence[float]) -> list[tuple[Record, SearchItem]]:
        view = self.shelf(op.namespace_prefix)
        records: list[Record | None] = [None]
        with view.lock:
            # What turns out to be gone or damaged leaves the view, and others move up.
            while None in records:
                visible = view.matching(op.filter, omit_expired=self._expired_by() is not None)
                page = view.nearest(vector, visible, op.offset, op.limit)
                records = view.records([row for row, _ in page])
        found = [(row, score) for row, (_, score) in zip(records, page, strict=True) if row]
        return [(record, record.search_item(record.decoded(), score)) for record, score in found]

    def _list(self, op: SearchOp) -> list[tuple[Record, SearchItem]]:
        start, stop = min(op.offset, maxsize), min(op.offset + op.limit, maxsize)
        with self._file.reading() as connection:
            listed = tables.list_records(connection, tuple(op.namespace_prefix), self._expired_by())
            found = (row for row in tables.readable(listed) if matches(row[1], op.filter))
            page = islice(found, start, stop)
            return [(record, record.search_item(value, None)) for record, value in page]

    def _expired_by(self) -> int | None:
        """The time by which what has expired is hidden; None: it shows until it is swept."""
        return self._now() if (self.ttl_config or {}).get("omit_expired") else None

    def _now(self) -> int:
        return int(self._clock() * 1_000_000)


def check_op(op: Any) -> None:
    """Refuse what cannot be run, before anything of its batch is."""
    if not isinstance(op, GetOp | SearchOp | PutOp | ListNamespacesOp):
        known = "GetOp, SearchOp, PutOp or ListNamespacesOp"
        raise InputError(f"Unknown operation {type(op).__name__}. Use {known}.")
    validate_op_namespace(op)
    names: Sequence[Any] = ()
    if isinstance(op, GetOp | PutOp):
        names = (*op.namespace, op.key)
    elif isinstance(op, SearchOp):
        names = op.namespace_prefix
        check_filter(op.filter)
    for name in ("limit", "offset"):
        check_whole(name, getattr(op, name, 0), 0)
    for name in names:
        try:
            name.encode()
        except (AttributeError, UnicodeEncodeError) as error:
            problem = f"A key must be text, got {name!r:.80}. Use letters or a UUID."
            raise InputError(problem) from error


def _matches(condition: MatchCondition, namespace: Namespace) -> bool:
    """Label by label from the start or the end; "*" stands for any one label."""
    path = tuple(condition.path)
    if condition.match_type == "suffix":
        namespace, path = namespace[::-1], path[::-1]
    elif condition.match_type != "prefix":
        raise InputError(f"Unknown match type {condition.match_type!r}. Use 'prefix' or 'suffix'.")
    pairs = zip(path, namespace, strict=False)
    return len(path) <= len(namespace) and all(wanted in ("*", label) for wanted, label in pairs)
