"""One namespace of a LocalStore in memory: vectors, catalog, and how they follow the file."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import numpy as np
from langgraph.store.base import Item

from langmem_recall.deadline import loading
from langmem_recall.errors import StoreError
from langmem_recall.filters import check_filter, matches
from langmem_recall.ranking.arrays import BoolArray, Column, FloatArray
from langmem_recall.ranking.catalog import Catalog
from langmem_recall.stores.local.file import LocalFile
from langmem_recall.stores.local.rows import (
    Record,
    bounds,
    decode_namespace,
    expired_ids,
    find_records,
    find_values,
    read_meta,
    readable,
)
from langmem_recall.stores.local.terms import CatalogBuilder, TraitsRow, Vocabulary, stored_traits
from langmem_recall.stores.local.vectors import Floats, VectorMatrix, normalised
from langmem_recall.types import MemoryId, Namespace

RECORDS_KEPT = 4_096
MASKS_KEPT = 8
FEW_ROWS = 64
"""Below this many dead rows, building anew is not worth it."""
_CHUNK = 2_048

_SELECT = (
    "SELECT i.seq, i.namespace, i.key, v.vectors, t.id, t.thread, t.position, t.speaker, t.flags, "
    "t.supersedes, t.terms FROM items i {index} CROSS JOIN traits t ON t.id = i.id "
    "LEFT JOIN vectors v ON v.id = i.id WHERE {where}"
)
_ALL = _SELECT.format(index="INDEXED BY items_name", where="i.namespace >= ? AND i.namespace < ?")
_NEW = _SELECT.format(
    index="INDEXED BY items_seq",
    where="i.seq > ? AND +i.namespace >= ? AND +i.namespace < ? ORDER BY i.seq",
)


class _Contents(NamedTuple):
    """What was loaded; catalog, vectors and item ids share their row numbers."""

    catalog: Catalog
    vectors: VectorMatrix
    ids: Column
    meta: dict[str, Any]


class LocalView:
    """Everything at or below one namespace. Rows keep their meaning while `lock` is held."""

    def __init__(
        self,
        file: LocalFile,
        vocabulary: Vocabulary,
        prefix: Namespace,
        check_embedder: Callable[[Mapping[str, Any]], None],
        clock: Callable[[], int],
    ) -> None:
        self.prefix = prefix
        self._file = file
        self._vocabulary = vocabulary
        self._check_embedder = check_embedder
        self._clock = clock
        self._lock = threading.RLock()
        self._version: tuple[int, int] | None = None
        self._contents = _Contents(Catalog(), VectorMatrix(0), Column(np.int64), {})
        self._records: dict[int, Record] = {}
        self._masks: dict[str, BoolArray] = {}

    @property
    def lock(self) -> AbstractContextManager[Any]:
        """Held by readers and by the refresh that brings the view up to date."""
        return self._lock

    @property
    def catalog(self) -> Catalog:
        """Words, threads and speakers by row."""
        return self._contents.catalog

    @property
    def nbytes(self) -> int:
        """About how much memory it holds: vectors exactly, the rest by the row."""
        return self._contents.vectors.nbytes + 1_000 * self.catalog.rows + 16_384

    def refresh(self) -> None:
        """Follow the file: load it at first, then read what changed, in any process."""
        # Marked before the lock: waiting for another thread's load is waiting for a load.
        with loading() if self._version is None else nullcontext(), self._lock:
            version = self._file.version()
            if version == self._version:
                return
            known, self._version = self._version, None
            # Forgotten until it is done: what stopped half-way is loaded anew the next time.
            if known is None or not self._catch_up():
                self._load()
            self._version = version

    def cosines(self, vectors: Sequence[Sequence[float]]) -> FloatArray:
        """Similarity of each query vector with each memory; NaN: no vector on either side."""
        return self._cosines(vectors).astype(np.float64)

    def matching(self, filter: Mapping[str, Any] | None) -> BoolArray:
        """Which rows are live, not expired, and pass the filter."""
        return self.visible(filter, omit_expired=True)

    def visible(self, filter: Mapping[str, Any] | None, *, omit_expired: bool) -> BoolArray:
        """Which rows are live and pass the filter."""
        visible = self.catalog.alive.copy()
        if omit_expired:
            self._hide_expired(visible)
        if filter:
            visible &= self._mask(filter)
        return visible

    def items(self, rows: Sequence[int]) -> list[Item | None]:
        """Fresh copies of the stored items; None for one that is gone or damaged."""
        return [record.item() if record else None for record in self.records(rows)]

    def similarity(self, rows: Sequence[int]) -> FloatArray:
        """Cosine between each two of these memories; NaN where one has no vector."""
        if not self._contents.vectors.dims:
            return np.full((len(rows), len(rows)), np.nan)
        return self._contents.vectors.similarity(rows).astype(np.float64)

    def records(self, rows: Sequence[int]) -> list[Record | None]:
        """The stored records at these rows; what a row holds never changes, so they are kept.

        None for one that is gone or damaged, which is no longer on the shelf then.
        """
        if len(self._records) > RECORDS_KEPT:
            self._records.clear()
        missing = {int(self._contents.ids.values[r]): r for r in rows if r not in self._records}
        if missing:
            with self._file.reading() as connection:
                found = find_records(connection, list(missing))
            self._records.update((missing[one.id], one) for one, _ in readable(found.values()))
            for row in missing.values():
                # What is gone or damaged must not take up a place in the next answer.
                if row not in self._records:
                    self.catalog.remove(self.catalog.id(row))
        return [self._records.get(row) for row in rows]

    def nearest(
        self, vector: Sequence[float], visible: BoolArray, offset: int, limit: int
    ) -> list[tuple[int, float | None]]:
        """One page of rows: by cosine, then those without one; equals in the order of writing."""
        # The last bit of a product depends on a row's place; rounded, equal texts stay equal.
        cosines = np.round(self._cosines([vector])[0], 6)
        ranked = np.where(visible & ~np.isnan(cosines), cosines, -np.inf)
        scored = int(np.count_nonzero(ranked > -np.inf))
        best = self._best(ranked, min(scored, offset + limit))[offset:]
        page: list[tuple[int, float | None]] = [(int(row), float(ranked[row])) for row in best]
        if len(page) < limit:
            start = max(offset - scored, 0)
            rest = self._in_order(np.flatnonzero(visible & np.isnan(cosines)))
            page += [(int(row), None) for row in rest[start : start + limit - len(page)]]
        return page

    def _best(self, ranked: Floats, count: int) -> Any:
        if not count:
            return np.empty(0, np.intp)
        # All that tie with the last one compete, so that a page never depends on the partition.
        rows = np.flatnonzero(ranked >= np.partition(ranked, -count)[-count])
        order = np.lexsort((self._contents.ids.values[rows], -ranked[rows]))
        return rows[order][:count]

    def _in_order(self, rows: Any) -> Any:
        return rows[np.argsort(self._contents.ids.values[rows], kind="stable")]

    def _cosines(self, vectors: Sequence[Sequence[float]]) -> Floats:
        matrix = self._contents.vectors
        if not matrix.dims:
            return np.full((len(vectors), self.catalog.rows), np.nan, np.float32)
        self._check_embedder(self._contents.meta)
        queries = np.asarray(vectors, np.float32)
        if queries.ndim != 2 or queries.shape[1] != matrix.dims:
            raise StoreError(
                f"Query vectors must have {matrix.dims} numbers like the stored ones, got shape "
                f"{queries.shape}. Use the embedder that wrote {self._file.path}."
            )
        units = normalised(queries)
        cosines = matrix.cosines(units)
        # A query without direction is no evidence rather than similarity 0.
        cosines[~units.any(axis=1)] = np.nan
        return cosines

    def _hide_expired(self, visible: BoolArray) -> None:
        with self._file.reading() as connection:
            expired = expired_ids(connection, self.prefix, self._clock())
        if expired:
            visible &= ~np.isin(self._contents.ids.values, expired)

    def _mask(self, filter: Mapping[str, Any]) -> BoolArray:
        """Which rows pass; computed once a row, since what a row holds never changes."""
        check_filter(filter)
        name = json.dumps(filter, sort_keys=True, default=repr)
        known = self._masks.pop(name, np.empty(0, np.bool_))
        mask = np.concatenate([known, self._passing(len(known), filter)])
        while len(self._masks) >= MASKS_KEPT:
            self._masks.pop(next(iter(self._masks)))
        self._masks[name] = mask
        return mask

    def _passing(self, start: int, filter: Mapping[str, Any]) -> BoolArray:
        ids = self._contents.ids.values[start:].tolist()
        passing = np.zeros(len(ids), np.bool_)
        for place in range(0, len(ids), _CHUNK):
            some = ids[place : place + _CHUNK]
            with self._file.reading() as connection:
                found = find_values(connection, some)
            for step, item_id in enumerate(some, place):
                passing[step] = item_id in found and matches(found[item_id], filter)
        return passing

    def _load(self) -> None:
        with self._file.loading() as connection:
            self._vocabulary.catch_up(connection)
            self._contents = _load_contents(connection, self.prefix, self._vocabulary)
        self._records.clear()
        self._masks.clear()

    def _catch_up(self) -> bool:
        """Apply what was written since; False when loading anew is the better way."""
        catalog, meta = self.catalog, self._contents.meta
        with self._file.reading() as connection:
            latest = read_meta(connection)
            if latest.get("seq") == meta.get("seq"):
                return True
            if _is_another_file(meta, latest):
                return False
            self._vocabulary.catch_up(connection)
            where = (meta.get("seq", 0), *bounds(self.prefix))
            for memory_id in _deleted(connection, where):
                catalog.remove(memory_id)
            # The cursor is read to the end, or a large change would be held twice.
            for row in connection.execute(_NEW, where):
                self._put(row)
        self._contents.meta.update(latest)
        return catalog.rows - catalog.size <= max(FEW_ROWS, catalog.rows // 4)

    def _put(self, row: tuple[Any, ...]) -> None:
        _, namespace, key, blob, *rest = row
        traits = stored_traits(TraitsRow(*rest), self._vocabulary)
        self.catalog.put((decode_namespace(namespace), key), traits)
        self._contents.ids.append(rest[0])
        self._contents.vectors.extend([blob])


def _load_contents(
    connection: sqlite3.Connection, prefix: Namespace, vocabulary: Vocabulary
) -> _Contents:
    meta, where = read_meta(connection), bounds(prefix)
    count = connection.execute(
        "SELECT count(*) FROM items WHERE namespace >= ? AND namespace < ?", where
    ).fetchone()[0]
    # Room to grow: it is not resident before it is used, and saves a copy at the next write.
    vectors = VectorMatrix(meta.get("dims", 0), count + count // 8 + 16)
    builder = CatalogBuilder()
    cursor = connection.execute(_ALL, where)
    # In chunks, so that the blobs are never all in memory beside the matrix.
    while rows := cursor.fetchmany(_CHUNK):
        vectors.extend([row[3] for row in rows])
        for row in rows:
            builder.add((decode_namespace(row[1]), row[2]), TraitsRow(*row[4:]))
    ids = Column(np.int64)
    ids.extend(np.asarray(builder.ids))
    return _Contents(builder.build(vocabulary), vectors, ids, meta)


def _deleted(connection: sqlite3.Connection, where: tuple[Any, ...]) -> list[MemoryId]:
    rows = connection.execute(
        "SELECT namespace, key FROM tombstones WHERE seq > ? AND namespace >= ? AND namespace < ?",
        where,
    )
    return [(decode_namespace(namespace), key) for namespace, key in rows]


def _is_another_file(meta: Mapping[str, Any], latest: Mapping[str, Any]) -> bool:
    """Whether the log does not reach back far enough, or all vectors or traits are new."""
    same = ("dims", "embedder", "fingerprint", "traits")
    return latest.get("pruned", 0) > meta.get("seq", 0) or any(
        latest.get(name) != meta.get(name) for name in same
    )


class ViewCache:
    """Shelves by prefix; the longest unused go when together they hold too much."""

    def __init__(self, make: Callable[[Namespace], LocalView], limit_bytes: int) -> None:
        self._make = make
        self._limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._shelves: OrderedDict[Namespace, LocalView] = OrderedDict()
        self._sizes: dict[Namespace, int] = {}
        self._total = 0

    @property
    def prefixes(self) -> list[Namespace]:
        """The prefixes in memory, longest unused first."""
        with self._lock:
            return list(self._shelves)

    def get(self, prefix: Namespace) -> LocalView:
        """The shelf of a prefix, loaded and up to date."""
        with self._lock:
            shelf = self._shelves.pop(prefix, None) or self._make(prefix)
            self._shelves[prefix] = shelf
        # Not under the cache's lock: loading one namespace must not hold up the others.
        shelf.refresh()
        with self._lock:
            self._weigh(prefix, shelf.nbytes)
        return shelf

    def _weigh(self, prefix: Namespace, size: int) -> None:
        if prefix not in self._shelves:
            return
        self._total += size - self._sizes.get(prefix, 0)
        self._sizes[prefix] = size
        while self._total > self._limit_bytes and len(self._shelves) > 1:
            oldest, _ = self._shelves.popitem(last=False)
            self._total -= self._sizes.pop(oldest, 0)
