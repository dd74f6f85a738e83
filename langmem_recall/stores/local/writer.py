"""Writing to a LocalStore: everything slow first, then one short transaction."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from langgraph.store.base import PutOp

from langmem_recall.deadline import loading
from langmem_recall.errors import InputError
from langmem_recall.memory.value import check_value, read_memory
from langmem_recall.ranking.catalog import TRAITS_VERSION, Traits, traits_of
from langmem_recall.stores.local import tables
from langmem_recall.stores.local.embedder import BATCH, Embedder, IndexSetting
from langmem_recall.stores.local.file import LocalFile
from langmem_recall.stores.local.tables import Vocabulary
from langmem_recall.types import Memory, MemoryId, Namespace

_MINUTE = 60_000_000
_MAX_TTL_MINUTES = 10**9


@dataclass(slots=True, kw_only=True)
class Put:
    """One memory on its way to the file; times are microseconds since 1970."""

    namespace: Namespace
    key: str
    value: Mapping[str, Any]
    json: str
    indexed: IndexSetting
    ttl_minutes: float | None
    created_at: int
    """Time of creation if the memory is new; a stored one keeps its own unless `is_import`."""
    updated_at: int
    expires_at: int | None
    is_import: bool = False
    texts: list[str] = field(default_factory=list)
    digest: bytes | None = None
    """Of the texts to embed; None: nothing is embedded."""
    vectors: bytes | None = None
    dims: int | None = None
    """Numbers in each of the vectors."""
    traits: Traits | None = None

    @property
    def id(self) -> MemoryId:
        """Namespace and key."""
        return self.namespace, self.key

    def memory(self) -> Memory:
        """The memory as recall will read it."""
        return read_memory(*self.id, self.value, tables.to_datetime(self.created_at))


def new_put(op: PutOp, now: int) -> Put:
    """Read a put; InputError for what cannot be stored."""
    value: Any = op.value
    check_value(value)
    text = json.dumps(dict(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    index: Any = op.index
    is_paths = isinstance(index, list | tuple) and all(isinstance(path, str) for path in index)
    if not (index is None or index is False or is_paths):
        raise InputError(
            f"index must be None, False or a list of paths, got {index!r:.80}. "
            'Write index=["content"].'
        )
    ttl: Any = op.ttl
    is_number = isinstance(ttl, int | float) and not isinstance(ttl, bool)
    if ttl is not None and not (is_number and 0 <= ttl <= _MAX_TTL_MINUTES):
        raise InputError(f"ttl must be minutes from 0 to {_MAX_TTL_MINUTES}, got {ttl!r:.80}.")
    return Put(
        namespace=tuple(op.namespace),
        key=op.key,
        value=json.loads(text),
        json=text,
        indexed=index,
        ttl_minutes=None if ttl is None else float(ttl),
        created_at=now,
        updated_at=now,
        expires_at=None if ttl is None else now + int(ttl * _MINUTE),
    )


class Writer:
    """Puts and deletions of one store, and texts that wait for an embedder that failed on them."""

    def __init__(self, file: LocalFile, embedder: Embedder | None, vocabulary: Vocabulary) -> None:
        self._file = file
        self._embedder = embedder
        self._vocabulary = vocabulary
        self._has_current_traits = False
        self._pending_lock = threading.RLock()
        # Perhaps: other processes may have left some behind.
        self._has_pending = not file.is_read_only
        self._batch_size = BATCH
        self._failures: Counter[int] = Counter()
        self._failed_batches = 0
        self._skips = 0

    def commit(self, puts: Sequence[Put], deleted: Sequence[MemoryId], embed: bool = True) -> None:
        """Embed what is new, or leave it to wait, then write everything in one transaction."""
        with self._file.reading() as connection:
            meta = tables.read_meta(connection)
            stored = [_find_stored(connection, put.id) for put in puts]
        unknown = []
        for put, known in zip(puts, stored, strict=True):
            _, created_at, digest = known or (None, put.created_at, None)
            if not put.is_import:
                put.created_at = created_at
            memory = put.memory()
            put.texts = self._embedder.texts(memory, put.indexed) if self._embedder else []
            put.digest = _digest(put.texts) if put.texts else None
            put.traits = _traits(memory)
            # Imported vectors of other fields than this store embeds would be found by wrong words.
            if put.vectors and len(put.vectors) != 4 * (put.dims or 0) * len(put.texts):
                put.vectors = None
            if put.texts and put.vectors is None and put.digest != digest:
                unknown.append(put)
        if unknown and self._embedder and not embed:
            self._embedder.check(meta)
            self._has_pending = True
        elif unknown and self._embedder:
            found = self._embedder.documents([put.texts for put in unknown], meta)
            for put, vectors in zip(unknown, found, strict=True):
                put.vectors = vectors
                put.dims = len(vectors) // (4 * len(put.texts)) if vectors else None
            self._has_pending |= None in found
        with self._file.writing() as connection:
            self._note_embedder(connection, next((put.dims for put in puts if put.vectors), None))
            self._write(connection, puts, deleted)
        if any(put.vectors for put in unknown):
            self.embed_pending()

    def _write(
        self, connection: sqlite3.Connection, puts: Sequence[Put], deleted: Sequence[MemoryId]
    ) -> None:
        """All puts and deletions, inside the caller's transaction."""
        self._vocabulary.catch_up(connection)
        gone = [_find_stored(connection, memory_id) for memory_id in deleted]
        tables.delete_ids(connection, [stored[0] for stored in gone if stored])
        if not puts:
            return
        items, traits, vectors, unembedded = [], [], [], []
        for seq, put in enumerate(puts, tables.take_seqs(connection, len(puts))):
            stored = _find_stored(connection, put.id)
            item_id, created_at, digest = stored or (seq, put.created_at, None)
            # Since it was prepared another writer may have made or deleted the memory.
            if created_at != put.created_at and not put.is_import:
                put.created_at, put.traits = created_at, None
            name = (tables.encode_namespace(put.namespace), put.key)
            times = (put.created_at, put.updated_at, put.expires_at, put.ttl_minutes)
            indexed = json.dumps(None if put.indexed is None else put.indexed or False)
            items.append((item_id, seq, *name, *times, indexed, put.json))
            traits.append((item_id, put.traits or _traits(put.memory())))
            if put.digest is None:
                unembedded.append((item_id,))
            elif put.vectors or digest != put.digest:
                vectors.append((item_id, put.digest, put.vectors))
        connection.executemany(
            "INSERT OR REPLACE INTO items VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", items
        )
        tables.write_traits(connection, self._vocabulary, traits)
        connection.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?)", vectors)
        connection.executemany("DELETE FROM vectors WHERE id = ?", unembedded)

    def _note_embedder(self, connection: sqlite3.Connection, dims: int | None) -> None:
        """Let the first vectors decide which embedder the file belongs to."""
        if not self._embedder or not dims:
            return
        meta = tables.read_meta(connection)
        self._embedder.check(meta, dims)
        if "dims" not in meta:
            tables.write_meta(connection, embedder=self._embedder.identity, dims=dims)
        if "fingerprint" not in meta and self._embedder.fingerprint:
            tables.write_meta(connection, fingerprint=self._embedder.fingerprint)

    def embed_pending(self) -> None:
        """Embed a few of the texts that an embedder failed on, unless another thread does."""
        if self._skips:
            self._skips -= 1
        elif self._embedder and self._has_pending and self._pending_lock.acquire(blocking=False):
            try:
                self._embed_batch(self._embedder)
            finally:
                self._pending_lock.release()

    def embed_all_pending(self, progress: Callable[[int, int], None] | None) -> int:
        """Embed all texts that wait, as far as the embedder goes; returns of how many memories."""
        with self._pending_lock:
            total, done = self.count_pending(), 0
            while self._embedder and (count := self._embed_batch(self._embedder)):
                done += count
                if progress is not None:
                    progress(done, total)
        return done

    def count_pending(self) -> int:
        """How many texts wait for the embedder."""
        with self._file.reading() as connection:
            pending = "SELECT count(*) FROM vectors WHERE vectors IS NULL"
            (count,) = connection.execute(pending).fetchone()
        return int(count)

    def reindex(self, progress: Callable[[int, int], None] | None) -> int:
        """Embed all texts anew, or go on with that; returns how many memories were embedded."""
        embedder = self._embedder
        if embedder is None:
            return 0
        with self._pending_lock:
            # The embedder is tried before the old vectors go.
            embedder.measure()
            with self._file.writing() as connection:
                meta = tables.read_meta(connection)
                if meta.get("reindexing") != embedder.identity or not embedder.is_owner(meta):
                    connection.execute("DELETE FROM vectors")
                    facts = "('dims', 'embedder', 'fingerprint')"
                    connection.execute(f"DELETE FROM meta WHERE name IN {facts}")
                    for record in tables.list_records(connection, (), None):
                        if texts := _texts(record, embedder):
                            row = (record.id, _digest(texts), None)
                            connection.execute("INSERT INTO vectors VALUES (?, ?, ?)", row)
                    # Views see by the number that something happened, by the embedder that all did.
                    tables.take_seqs(connection, 1)
                    tables.write_meta(connection, reindexing=embedder.identity)
            done = self.embed_all_pending(progress)
            with self._file.writing() as connection:
                connection.execute(
                    "DELETE FROM meta WHERE name = 'reindexing' "
                    "AND NOT EXISTS (SELECT 1 FROM vectors WHERE vectors IS NULL)"
                )
        return done

    def _embed_batch(self, embedder: Embedder) -> int:
        """Embed one batch of waiting texts; returns how many memories got their vectors."""
        with self._file.reading() as connection:
            meta = tables.read_meta(connection)
            pending = "SELECT id, digest FROM vectors WHERE vectors IS NULL ORDER BY id LIMIT ?"
            digests = dict(connection.execute(pending, (4 * BATCH,)).fetchall())
            self._has_pending = bool(digests)
            # Those that failed least first, so that a bad text cannot block the rest.
            ids = sorted(digests, key=lambda item_id: self._failures[item_id])
            records = list(tables.find_records(connection, ids[: self._batch_size]).values())
        if not records:
            return 0
        groups = [_texts(record, embedder) for record in records]
        found = zip(records, groups, embedder.documents(groups, meta), strict=True)
        ready = [(record.id, texts, blob) for record, texts, blob in found if blob is not None]
        self._failures.update({record.id for record in records} - {row[0] for row in ready})
        # Narrows down on a text that spoils its batch; in vain, it is tried only now and then.
        size = self._batch_size
        self._batch_size = min(2 * size, BATCH) if ready else max(size // 2, 1)
        self._failed_batches = 0 if ready else self._failed_batches + 1
        self._skips = min(2 ** (self._failed_batches - 2), BATCH) if self._failed_batches > 2 else 0
        if ready:
            with self._file.writing() as connection:
                sizes = (len(blob) // (4 * len(texts)) for _, texts, blob in ready if texts)
                self._note_embedder(connection, next(sizes, None))
                first = tables.take_seqs(connection, len(ready))
                for seq, (item_id, texts, blob) in enumerate(ready, first):
                    # A memory that was written again meanwhile has another digest.
                    changed = connection.execute(
                        "UPDATE vectors SET digest = ?, vectors = ? "
                        "WHERE id = ? AND digest = ? AND vectors IS NULL",
                        (_digest(texts), blob, item_id, digests[item_id]),
                    )
                    if changed.rowcount:
                        connection.execute("UPDATE items SET seq = ? WHERE id = ?", (seq, item_id))
        return len(ready)

    def renew_traits(self) -> None:
        """Once per process: derive all traits anew if another version of the library wrote them."""
        if self._has_current_traits:
            return
        with loading():
            with self._file.reading() as connection:
                is_current = _are_traits_current(connection)
            if not is_current:
                with self._file.writing() as connection:
                    # Another process may have been faster while this one waited for the lock.
                    if not _are_traits_current(connection):
                        connection.execute("DELETE FROM vocabulary")
                        connection.execute("DELETE FROM traits")
                        records = tables.readable(tables.list_records(connection, (), None))
                        traits = ((row.id, _traits(row.memory(value))) for row, value in records)
                        tables.write_traits(connection, Vocabulary(), traits)
                        tables.take_seqs(connection, 1)
        self._has_current_traits = True


def _find_stored(
    connection: sqlite3.Connection, memory_id: MemoryId
) -> tuple[int, int, bytes | None] | None:
    """Id, time of creation, and digest of the texts whose vectors there are."""
    found: tuple[int, int, bytes | None] | None = connection.execute(
        "SELECT i.id, i.created_at, v.digest FROM items i LEFT JOIN vectors v "
        "ON v.id = i.id AND v.vectors IS NOT NULL WHERE i.namespace = ? AND i.key = ?",
        (tables.encode_namespace(memory_id[0]), memory_id[1]),
    ).fetchone()
    return found


def _digest(texts: Sequence[str]) -> bytes:
    """Tells whether the embedded texts of a memory have changed."""
    hashed = hashlib.blake2b(digest_size=16)
    for text in texts:
        encoded = text.encode("utf-8", "surrogatepass")
        hashed.update(len(encoded).to_bytes(8, "big") + encoded)
    return hashed.digest()


def _traits(memory: Memory) -> Traits:
    """The traits of a memory; InputError where its fields cannot be read."""
    try:
        return traits_of(memory)
    except (OverflowError, ValueError) as error:
        raise InputError(
            f"The memory {memory.key!r} has a field that cannot be used: {error}. "
            "Check its turn and times."
        ) from error


def _are_traits_current(connection: sqlite3.Connection) -> bool:
    return bool(tables.read_meta(connection).get("traits", TRAITS_VERSION) == TRAITS_VERSION)


def _texts(record: tables.Record, embedder: Embedder) -> list[str]:
    value = tables.decode_value(record.value)
    # Damaged: there is nothing to embed, and the rest must not wait for it.
    return [] if value is None else embedder.texts(record.memory(value), json.loads(record.indexed))
