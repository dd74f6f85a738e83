"""The embedded default store: one SQLite file, exact search in memory, no server."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from sys import maxsize
from typing import Any, Literal, Self

from langchain_core.embeddings import Embeddings
from langgraph.store.base import (
    BaseStore,
    GetOp,
    IndexConfig,
    ListNamespacesOp,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
)

from langmem_recall.deadline import loading
from langmem_recall.filters import matches
from langmem_recall.stores.local import writer
from langmem_recall.stores.local.compaction import erase_below, scrub
from langmem_recall.stores.local.embedder import Pending, make_embedder
from langmem_recall.stores.local.file import MEMORY, LocalFile
from langmem_recall.stores.local.ops import check_op, last_puts, list_namespaces
from langmem_recall.stores.local.pending import begin_reindex, embed_pending, end_reindex
from langmem_recall.stores.local.rows import (
    Record,
    delete_ids,
    expired_ids,
    find_record,
    list_codes,
    list_records,
    read_meta,
    readable,
    refresh_expiry,
)
from langmem_recall.stores.local.terms import Vocabulary
from langmem_recall.stores.local.ttl import ExpirySweeper, Settled, SweeperFuture
from langmem_recall.stores.local.usage import (
    delete_usage,
    delete_usage_below,
    find_usage,
    write_usage,
)
from langmem_recall.stores.local.view import LocalView, ViewCache
from langmem_recall.types import MemoryId, Namespace, Usage, UsageDelta

SWEEP_MINUTES = 5.0
ReadResult = tuple[Record, SearchItem]


class LocalStore(BaseStore):
    """A LangGraph store in one file that any number of threads and processes may share.

    Args:
        path: The file; made when it does not exist, and only read where it cannot be written.
            ":memory:" keeps nothing.
        embeddings: What makes vectors; LocalEmbeddings when absent, loaded on first use.
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
        embeddings: Embeddings | None = None,
        index: IndexConfig | Literal[False] | None = None,
        ttl: TTLConfig | None = None,
        cache_mb: float = 1024,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._embedder, self.index_config = make_embedder(embeddings, index)
        self.embeddings = self._embedder.embeddings if self._embedder else None
        self.ttl_config = ttl
        self._file = LocalFile(path)
        self._vocabulary = Vocabulary()
        self._shelves = ViewCache(self._new_shelf, int(cache_mb * 1_000_000))
        self._sweeper = ExpirySweeper(self.sweep_ttl)
        self._clock = clock
        self._pending = Pending()
        self._pending.is_possible = not self._file.is_read_only
        self._pending_lock = threading.Lock()
        self._has_current_traits = False

    @property
    def path(self) -> str:
        """The file."""
        return self._file.path

    def setup(self) -> Settled:
        """Nothing to do: the tables are made on opening. Here because other stores have it."""
        return Settled()

    def close(self) -> None:
        """Stop the sweeper and release the file."""
        self._sweeper.stop(timeout=5.0)
        self._file.close()

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Run operations: all reads, then all writes in one transaction."""
        ops = list(ops)
        for op in ops:
            check_op(op)
        self._file.check()
        self._renew_traits()
        vectors = self._embed_queries(ops)
        touched: list[Record] = []
        results: list[Result] = [self._read(op, vectors, touched) for op in ops]
        self._refresh_expiry(touched)
        puts = [op for op in ops if isinstance(op, PutOp)]
        if puts:
            self._write(puts)
        return results

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Run operations in a thread: neither the file nor the embedder blocks the loop."""
        return await asyncio.to_thread(self.batch, list(ops))

    def shelf(self, namespace: Namespace) -> LocalView:
        """Everything at or below this namespace, loaded and up to date."""
        self._renew_traits()
        return self._shelves.get(tuple(namespace))

    def read_usage(self, ids: Sequence[MemoryId]) -> list[Usage]:
        """Usage of each memory, in order; an empty record for one never used."""
        with self._file.reading() as connection:
            return [find_usage(connection, memory_id) for memory_id in ids]

    def add_usage(self, touches: Mapping[MemoryId, UsageDelta], fade_per_day: float) -> None:
        """Add uses, durably, all or none; a file that cannot be written counts none."""
        if touches and not self._file.is_read_only:
            with self._file.writing() as connection:
                write_usage(connection, touches, fade_per_day)

    def drop_usage(self, ids: Sequence[MemoryId]) -> None:
        """Forget the usage of these memories."""
        if ids:
            with self._file.writing() as connection:
                delete_usage(connection, ids)

    def drop_usage_below(self, namespace: Namespace) -> int:
        """Forget all usage at or below a namespace; returns of how many memories."""
        with self._file.writing() as connection:
            return delete_usage_below(connection, namespace)

    def erase(self, namespace: Namespace) -> int:
        """Delete everything at or below a namespace, expired items too; returns how many items."""
        with self._file.writing() as connection:
            return erase_below(connection, namespace)

    def compact(self) -> bool:
        """Rewrite the file without a byte of what was deleted from it.

        False when a long read elsewhere held it up: the file then still has its former log, and
        compacting again later finishes it. Other processes load their namespaces anew.
        """
        with self._file.writing() as connection:
            scrub(connection)
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
        yet is found by its words. `progress` is told how many are done, and of how many.
        """
        if self._embedder is None:
            return 0
        with self._pending_lock:
            # The embedder is tried before the old vectors go.
            self._embedder.measure()
            with self._file.writing() as connection:
                waiting = begin_reindex(connection, self._embedder)
            done = 0
            if progress is not None:
                progress(done, waiting)
            while some := embed_pending(self._file, self._embedder, self._pending):
                done += some
                if progress is not None:
                    progress(done, waiting)
            with self._file.writing() as connection:
                end_reindex(connection)
        return done

    def sweep_ttl(self) -> Settled:
        """Delete what has expired; returns how many."""
        with self._file.writing() as connection:
            expired = expired_ids(connection, (), self._now())
            delete_ids(connection, expired)
        return Settled(len(expired))

    def start_ttl_sweeper(self, sweep_interval_minutes: float | None = None) -> SweeperFuture:
        """Sweep every few minutes in a thread; nothing is started without a TTL configuration."""
        if not self.ttl_config:
            future = SweeperFuture()
            future.set_result(None)
            return future
        configured = self.ttl_config.get("sweep_interval_minutes")
        return self._sweeper.start(float(sweep_interval_minutes or configured or SWEEP_MINUTES))

    def stop_ttl_sweeper(self, timeout: float | None = None) -> Settled:
        """Stop sweeping; 0 when the thread did not end in time."""
        return Settled(self._sweeper.stop(timeout))

    async def asetup(self) -> None:
        """Nothing to do, as in `setup`."""

    async def aclose(self) -> None:
        """Stop the sweeper and release the file, off the event loop."""
        await asyncio.to_thread(self.close)

    async def acompact(self) -> bool:
        """Rewrite the file without what was deleted, off the event loop."""
        return await asyncio.to_thread(self.compact)

    async def abackup(self, path: str | Path) -> None:
        """Copy everything to a new file, off the event loop."""
        await asyncio.to_thread(self.backup, path)

    async def areindex(self, progress: Callable[[int, int], None] | None = None) -> int:
        """Embed everything anew, off the event loop."""
        return await asyncio.to_thread(self.reindex, progress)

    async def asweep_ttl(self) -> int:
        """Delete what has expired, off the event loop."""
        return await asyncio.to_thread(self.sweep_ttl)

    async def astart_ttl_sweeper(
        self, sweep_interval_minutes: float | None = None
    ) -> asyncio.Future[None]:
        """Sweep every few minutes in a thread."""
        return asyncio.wrap_future(self.start_ttl_sweeper(sweep_interval_minutes))

    async def astop_ttl_sweeper(self, timeout: float | None = None) -> bool:
        """Stop sweeping, waiting off the event loop."""
        return bool(await asyncio.to_thread(self.stop_ttl_sweeper, timeout))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *failure: object) -> None:
        await self.aclose()

    def _read(self, op: Op, vectors: Mapping[str, Any], touched: list[Record]) -> Result:
        if isinstance(op, GetOp):
            record = self._get(op)
            touched += [record] if record and op.refresh_ttl else []
            return record.item() if record else None
        if isinstance(op, SearchOp):
            found = self._search(op, vectors)
            touched += [record for record, _ in found if op.refresh_ttl]
            return [item for _, item in found]
        if isinstance(op, ListNamespacesOp):
            with self._file.reading() as connection:
                return list_namespaces(op, list_codes(connection, self._expired_by()))
        return None

    def _get(self, op: GetOp) -> Record | None:
        with self._file.reading() as connection:
            record = find_record(connection, op.namespace, op.key)
        by = self._expired_by()
        if record and by is not None and record.expires_at is not None and record.expires_at <= by:
            return None
        return record

    def _search(self, op: SearchOp, vectors: Mapping[str, Any]) -> list[ReadResult]:
        prefix = tuple(op.namespace_prefix)
        vector = vectors.get(op.query or "")
        if vector is None:
            return self._list(prefix, op)
        shelf = self.shelf(prefix)
        records: list[Record | None] = [None]
        with shelf.lock:
            # What turns out to be gone or damaged leaves the shelf, and others move up.
            while None in records:
                visible = shelf.visible(op.filter, omit_expired=self._expired_by() is not None)
                page = shelf.nearest(vector, visible, op.offset, op.limit)
                records = shelf.records([row for row, _ in page])
        scored = zip(records, (score for _, score in page), strict=True)
        return [(one, one.search_item(one.decoded(), score)) for one, score in scored if one]

    def _list(self, prefix: Namespace, op: SearchOp) -> list[ReadResult]:
        with self._file.reading() as connection:
            found = readable(list_records(connection, prefix, self._expired_by()))
            if op.filter:
                found = (one for one in found if matches(one[1], op.filter))
            page = islice(found, min(op.offset, maxsize), min(op.offset + op.limit, maxsize))
            return [(record, record.search_item(value, None)) for record, value in page]

    def _embed_queries(self, ops: Sequence[Op]) -> dict[str, list[float]]:
        queries = {op.query for op in ops if isinstance(op, SearchOp) and op.query}
        if not queries or self._embedder is None:
            return {}
        vectors = {query: self._embedder.query(query) for query in queries}
        # It works again, or still: what it failed on before may go through now.
        self._embed_pending()
        return vectors

    def _write(self, ops: Sequence[PutOp]) -> None:
        last = last_puts(ops)
        now = self._now()
        puts = [writer.new_put(op, now) for op in last.values() if op.value is not None]
        deleted = [memory_id for memory_id, op in last.items() if op.value is None]
        self._commit(puts, deleted)

    def _commit(self, puts: Sequence[writer.Put], deleted: Sequence[MemoryId]) -> None:
        """Embed what is new, then write everything in one transaction."""
        with self._file.reading() as connection:
            meta = read_meta(connection)
            unknown = writer.prepare(connection, puts, self._embedder)
        if unknown and self._embedder:
            writer.embed(unknown, self._embedder, meta)
            self._pending.is_possible |= any(put.vectors is None for put in unknown)
        with self._file.writing() as connection:
            self._note_embedder(connection, puts)
            writer.write(connection, self._vocabulary, puts, deleted)
        if any(put.vectors for put in unknown):
            self._embed_pending()

    def _note_embedder(self, connection: Any, puts: Sequence[writer.Put]) -> None:
        embedded = next((put for put in puts if put.vectors), None)
        if embedded and embedded.dims and self._embedder:
            meta = read_meta(connection)
            writer.note_embedder(connection, self._embedder, meta, embedded.dims)

    def _embed_pending(self) -> None:
        """Embed a few of the texts that an embedder failed on, unless another thread does."""
        if self._embedder and self._pending.is_due() and self._pending_lock.acquire(blocking=False):
            try:
                embed_pending(self._file, self._embedder, self._pending)
            finally:
                self._pending_lock.release()

    def _refresh_expiry(self, records: Sequence[Record]) -> None:
        # As in SqliteStore, a read extends a life only where the configuration says so.
        refreshes = (self.ttl_config or {}).get("refresh_on_read", False)
        refreshes = refreshes and not self._file.is_read_only
        ids = {record.id for record in records if record.ttl_minutes is not None}
        if refreshes and ids:
            with self._file.writing() as connection:
                refresh_expiry(connection, ids, self._now())

    def _renew_traits(self) -> None:
        """Once per process: traits that another version of the library wrote are derived anew."""
        if not self._has_current_traits:
            with loading():
                writer.renew_traits(self._file)
            self._has_current_traits = True

    def _new_shelf(self, prefix: Namespace) -> LocalView:
        return LocalView(self._file, self._vocabulary, prefix, self._check_embedder, self._now)

    def _check_embedder(self, meta: Mapping[str, Any]) -> None:
        if self._embedder:
            self._embedder.check_query(meta)

    def _expired_by(self) -> int | None:
        """The time by which what has expired is hidden; None: it shows until it is swept."""
        return self._now() if (self.ttl_config or {}).get("omit_expired") else None

    def _now(self) -> int:
        return int(self._clock() * 1_000_000)
