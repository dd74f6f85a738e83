"""One namespace of a LocalStore in memory: vectors, catalog, and how they follow the file."""

from __future__ import annotations

import json
import sqlite3
import threading
from array import array
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from langmem_recall.deadline import loading
from langmem_recall.errors import StoreError
from langmem_recall.filters import check_filter, matches
from langmem_recall.ranking.arrays import BoolArray, Column, FloatArray
from langmem_recall.ranking.catalog import Catalog
from langmem_recall.ranking.lexical import LexicalIndex
from langmem_recall.stores.local import tables
from langmem_recall.stores.local.embedder import Embedder, Floats, normalised
from langmem_recall.stores.local.file import LocalFile
from langmem_recall.stores.local.tables import Record, Vocabulary
from langmem_recall.types import Memory, MemoryId, Namespace

MAX_RECORDS = 4_096
MAX_MEMORIES = 16_384
"""Memories that a view keeps read, some two kilobytes each."""
MAX_MASKS = 8
MAX_DEAD_ROWS = 64
"""Up to this many dead rows, building anew is not worth it."""
_CHUNK = 2_048

_SELECT = (
    "SELECT i.namespace, i.key, v.vectors, t.id, t.thread, t.position, t.speaker, t.flags, "
    "t.supersedes, t.terms FROM items i {index} CROSS JOIN traits t ON t.id = i.id "
    "LEFT JOIN vectors v ON v.id = i.id WHERE {where}"
)
_ALL = _SELECT.format(index="INDEXED BY items_name", where=tables.BELOW)
_NEW = _SELECT.format(
    index="INDEXED BY items_seq",
    where="i.seq > ? AND +i.namespace >= ? AND +i.namespace < ? ORDER BY i.seq",
)
_COUNT = f"SELECT count(*) FROM items WHERE {tables.BELOW}"
_DELETED = f"SELECT namespace, key FROM tombstones WHERE seq > ? AND {tables.BELOW}"


class LocalView:
    """Everything at or below one namespace. Rows keep their meaning while `lock` is held."""

    def __init__(
        self,
        file: LocalFile,
        embedder: Embedder | None,
        vocabulary: Vocabulary,
        clock: Callable[[], int],
        prefix: Namespace,
    ) -> None:
        self.prefix = prefix
        self.lock = threading.RLock()
        """Held by readers and by the refresh that brings the view up to date."""
        self.catalog = Catalog()
        """Words, threads and speakers by row."""
        self.counted_bytes = 0
        """What the store last counted for it."""
        self._vectors = VectorMatrix(0)
        self._ids = Column(np.int64)
        self._meta: dict[str, Any] = {}
        self._file = file
        self._embedder = embedder
        self._vocabulary = vocabulary
        self._clock = clock
        self._version: tuple[int, int] | None = None
        # What a row holds never changes, so records, memories and filters' masks stay true.
        self._records: dict[int, Record] = {}
        self._memories: dict[int, Memory] = {}
        self._masks: dict[str, BoolArray] = {}
        self._expired: tuple[Any, int, int, list[int]] = (None, 0, 0, [])
        """What has expired: in which version of the file, from when and until when it is so."""

    @property
    def nbytes(self) -> int:
        """About how much memory it takes: vectors exactly, the rest by the row."""
        rows, memories = self.catalog.rows, len(self._memories)
        return self._vectors.nbytes + 1_000 * rows + 2_000 * memories + 16_384

    def refresh(self) -> None:
        """Follow the file: load it at first, then read what changed, in any process."""
        # Marked before the lock: waiting for another thread's load is waiting for a load.
        with loading() if self._version is None else nullcontext(), self.lock:
            version = self._file.version()
            if version == self._version:
                return
            known, self._version = self._version, None
            # Forgotten until it is done: what stopped half-way is loaded anew the next time.
            if known is None or not self._catch_up():
                with self._file.loading() as connection:
                    self._vocabulary.catch_up(connection)
                    contents = _load_contents(connection, self.prefix, self._vocabulary)
                self.catalog, self._vectors, self._ids, self._meta = contents
                self._records.clear()
                self._memories.clear()
                self._masks.clear()
            self._version = version

    @property
    def vector_count(self) -> int:
        """How many vectors could be near by chance: of a long memory several."""
        return self.catalog.size + self._vectors.more

    def cosines(self, vectors: Sequence[Sequence[float]] | FloatArray) -> Floats:
        """Similarity of each query vector with each memory; NaN: no vector on either side."""
        dims = self._vectors.dims
        if not dims:
            return np.full((len(vectors), self.catalog.rows), np.nan, np.float32)
        if self._embedder:
            self._embedder.check_query(self._meta)
        queries = np.asarray(vectors, np.float32)
        if queries.ndim != 2 or queries.shape[1] != dims:
            raise StoreError(
                f"Query vectors must have {dims} numbers like the stored ones, got shape "
                f"{queries.shape}. Use the embedder that wrote {self._file.path}."
            )
        units = normalised(queries)
        cosines = self._vectors.cosines(units)
        directed = units.any(axis=1)
        if not directed.all():
            # A query without direction is no evidence rather than similarity 0.
            cosines[~directed] = np.nan
        return cosines

    def matching(self, filter: Mapping[str, Any] | None, *, omit_expired: bool = True) -> BoolArray:
        """Which rows are live, not expired unless those count too, and pass the filter."""
        matching = self.catalog.alive.copy()
        if omit_expired and (expired := self._expired_ids()):
            matching &= ~np.isin(self._ids.values, expired)
        if filter:
            check_filter(filter)
            name = json.dumps(filter, sort_keys=True, default=repr)
            known = self._masks.pop(name, np.empty(0, np.bool_))
            new = self._ids.values[len(known) :]
            passing: list[int] = []
            for start in range(0, len(new), _CHUNK):
                with self._file.reading() as connection:
                    found = tables.find_records(connection, new[start : start + _CHUNK].tolist())
                values = tables.readable(found.values())
                passing += [record.id for record, value in values if matches(value, filter)]
            if len(self._masks) >= MAX_MASKS:
                del self._masks[next(iter(self._masks))]
            mask = np.concatenate([known, np.isin(new, passing)]) if len(new) else known
            self._masks[name] = mask
            matching &= mask
        return matching

    def similarity(self, rows: Sequence[int]) -> FloatArray:
        """Cosine between each two of these memories; NaN where one has no vector."""
        return self._vectors.similarity(rows).astype(np.float64)

    def records(self, rows: Sequence[int]) -> list[Record | None]:
        """The records at these rows; None for one gone or damaged, which then leaves the view."""
        if len(self._records) > MAX_RECORDS:
            self._records.clear()
        self._records.update((row, record) for row, record, _ in self._read(rows, self._records))
        return [self._records.get(row) for row in rows]

    def memories(self, rows: Sequence[int]) -> dict[int, Memory]:
        """The memories at these rows, read once, without what `records` has None for."""
        known = self._memories
        try:
            # Most were read before.
            return {row: known[row] for row in rows}
        except KeyError:
            if len(known) > MAX_MEMORIES:
                known.clear()
            for row, record, value in self._read(rows, known):
                known[row] = record.memory(value)
            return {row: known[row] for row in rows if row in known}

    def _read(
        self, rows: Sequence[int], known: Mapping[int, Any]
    ) -> list[tuple[int, Record, dict[str, Any]]]:
        """Records and values of rows that are not known yet."""
        unknown = [row for row in rows if row not in known]
        if not unknown:
            return []
        missing = {int(self._ids.values[row]): row for row in unknown}
        with self._file.reading() as connection:
            found = tables.find_records(connection, list(missing))
        read = [(missing.pop(it.id), it, value) for it, value in tables.readable(found.values())]
        for row in missing.values():
            # What is gone or damaged must not take up a place in the next answer.
            self.catalog.remove(self.catalog.id(row))
        return read

    def nearest(
        self, vector: Sequence[float], visible: BoolArray, offset: int, limit: int
    ) -> list[tuple[int, float | None]]:
        """One page of rows: by cosine, then those without one; equals in the order of writing."""
        # The last bit of a product depends on a row's place; rounded, equal texts stay equal.
        cosines = np.round(self.cosines([vector])[0], 6)
        # No cosine ranks below every cosine.
        ranked = np.where(np.isnan(cosines), -2.0, cosines)
        ranked[~visible] = -np.inf
        count = min(int(visible.sum()), offset + limit)
        if not count:
            return []
        # All that tie with the last one compete, so that a page never depends on the partition.
        rows = np.flatnonzero(ranked >= np.partition(ranked, -count)[-count])
        best = rows[np.lexsort((self._ids.values[rows], -ranked[rows]))][offset:count].tolist()
        return [(row, None if np.isnan(cosines[row]) else float(cosines[row])) for row in best]

    def _expired_ids(self) -> list[int]:
        """Items whose time is up; asked for again when the file changed or the next one expires."""
        version, since, until, expired = self._expired
        now = self._clock()
        if version != self._version or not since <= now < until:
            with self._file.reading() as connection:
                expired = tables.expired_ids(connection, self.prefix, now)
                until = tables.next_expiry(connection, now)
            self._expired = self._version, now, until, expired
        return expired

    def _catch_up(self) -> bool:
        """Apply what was written since; False when loading anew is the better way."""
        catalog, meta = self.catalog, self._meta
        with self._file.reading() as connection:
            latest = tables.read_meta(connection)
            seq = meta.get("seq", 0)
            if latest.get("seq", 0) == seq:
                return True
            fixed = ("dims", "embedder", "fingerprint", "traits")
            if any(latest.get(name) != meta.get(name) for name in fixed):
                return False
            self._vocabulary.catch_up(connection)
            where = (seq, *tables.bounds(self.prefix))
            for namespace, key in connection.execute(_DELETED, where):
                catalog.remove((tables.decode_namespace(namespace), key))
            # The cursor is read row by row, or a large change would be in memory twice.
            for namespace, key, blob, item_id, *traits in connection.execute(_NEW, where):
                name = (tables.decode_namespace(namespace), key)
                catalog.put(name, self._vocabulary.decode(*traits))
                self._ids.append(item_id)
                self._vectors.extend([blob])
            if latest.get("pruned", 0) > seq:
                # The log does not reach back so far: by their number nothing else was deleted here.
                total = connection.execute(_COUNT, tables.bounds(self.prefix)).fetchone()[0]
                if total != catalog.size:
                    return False
        meta.update(latest)
        return catalog.rows - catalog.size <= max(MAX_DEAD_ROWS, catalog.rows // 4)


def _load_contents(
    connection: sqlite3.Connection, prefix: Namespace, vocabulary: Vocabulary
) -> tuple[Catalog, VectorMatrix, Column, dict[str, Any]]:
    """Catalog, vectors and item ids, which share row numbers, and what the file says of itself."""
    meta, where = tables.read_meta(connection), tables.bounds(prefix)
    (count,) = connection.execute(_COUNT, where).fetchone()
    # Room to grow: it is not resident before it is used, and saves a copy at the next write.
    vectors = VectorMatrix(meta.get("dims", 0), count + count // 8 + 16)
    # Gathered by columns: the rows of 100,000 memories would outweigh their index.
    ids, positions, flags, sizes = Column(np.int64), array("d"), array("B"), array("i")
    names: list[MemoryId] = []
    threads: list[str | None] = []
    speakers: list[str | None] = []
    supersedes: list[tuple[int, tuple[MemoryId, ...]]] = []
    joined = bytearray()
    cursor = connection.execute(_ALL, where)
    # In chunks, so that the blobs are never all in memory beside the matrix.
    while chunk := cursor.fetchmany(_CHUNK):
        vectors.extend([row[2] for row in chunk])
        ids.extend([row[3] for row in chunk])
        for namespace, key, _, _, thread, position, speaker, flag, superseded, terms in chunk:
            if superseded:
                supersedes.append((len(names), tables.decode_ids(superseded)))
            names.append((tables.decode_namespace(namespace), key))
            threads.append(thread)
            positions.append(position)
            speakers.append(speaker)
            flags.append(flag)
            sizes.append(len(terms) // 8)
            joined += terms
    pairs = np.frombuffer(joined, np.int32).reshape(-1, 2)
    starts = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(sizes, out=starts[1:])
    running = np.zeros(len(pairs) + 1, np.int64)
    np.cumsum(pairs[:, 1], out=running[1:])
    # The file's numbers without gaps, so that a small namespace has a small vocabulary.
    is_used = np.zeros(int(pairs[:, 0].max()) + 1 if len(pairs) else 0, np.bool_)
    is_used[pairs[:, 0]] = True
    places = np.cumsum(is_used, dtype=np.int32) - 1
    lexical = LexicalIndex.from_counts(
        [vocabulary.terms[number] for number in np.flatnonzero(is_used).tolist()],
        np.diff(running[starts]).astype(np.int32),
        starts,
        places[pairs[:, 0]].astype(np.int32),
        np.ascontiguousarray(pairs[:, 1]),
    )
    catalog = Catalog.from_columns(names, lexical, threads, positions, speakers, flags, supersedes)
    return catalog, vectors, ids, meta


class VectorMatrix:
    """Row r belongs to memory r: its first vector or zeros; more vectors lie in a side block."""

    def __init__(self, dims: int, room: int = 16) -> None:
        self.dims = dims
        self._main = Column(np.float32, dims, room=room)
        self._more = Column(np.float32, dims, room=0)
        self._owner = Column(np.int32)
        self._has = Column(np.bool_)

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return self._main.nbytes + self._more.nbytes

    @property
    def more(self) -> int:
        """Vectors beyond the first of each memory."""
        return len(self._owner.values)

    def extend(self, blobs: Sequence[bytes | None]) -> None:
        """Add memories by their stored vectors; None: no vector."""
        size = 4 * self.dims
        if blobs and all(blob is not None and len(blob) == size for blob in blobs):
            joined = b"".join(blob for blob in blobs if blob)
            self._add(np.frombuffer(joined, np.float32).reshape(-1, self.dims))
            return
        for blob in blobs:
            units = normalised(np.frombuffer(blob or b"", np.float32).reshape(-1, self.dims or 1))
            # A zero vector is no evidence, so it must not stand in for one that is.
            units = units[units.any(axis=1)][:, : self.dims]
            row = len(self._has.values)
            self._add(units[:1] if len(units) else np.zeros((1, self.dims), np.float32))
            self._more.extend(units[1:])
            self._owner.extend(np.full(max(len(units) - 1, 0), row, np.int32))

    def cosines(self, queries: Floats) -> Floats:
        """Cosine of each unit query (rows of the result) with each memory; NaN: no vector."""
        # One query is a plain product with a vector: no transposed copy, no gather.
        scores = _product(self._main.values, queries)
        if len(self._owner.values):
            more = _product(self._more.values, queries)
            for row, extra in zip(scores, more, strict=True):
                np.maximum.at(row, self._owner.values, extra)
        if not self._has.values.all():
            scores[:, ~self._has.values] = np.nan
        np.minimum(scores, 1.0, out=scores)
        return np.maximum(scores, -1.0, out=scores)

    def similarity(self, rows: Sequence[int]) -> Floats:
        """Cosine between each two memories by their first vectors; NaN: no vector."""
        chosen = np.asarray(rows, np.intp)
        vectors = self._main.values[chosen]
        alike: Floats = np.clip(vectors @ vectors.T, -1.0, 1.0)
        without = ~self._has.values[chosen]
        alike[without, :] = np.nan
        alike[:, without] = np.nan
        return alike

    def _add(self, vectors: Floats) -> None:
        units = normalised(vectors)
        self._main.extend(units)
        self._has.extend(np.asarray(units.any(axis=1)))


def _product(rows: Floats, queries: Floats) -> Floats:
    if len(queries) == 1:
        return np.asarray(rows @ queries[0])[None, :]
    return np.ascontiguousarray((rows @ queries.T).T)
