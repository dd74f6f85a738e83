"""Writing to a LocalStore: everything slow first, then one short transaction."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from langgraph.store.base import PutOp

from langmem_recall.errors import InputError
from langmem_recall.memory.value import read_memory
from langmem_recall.ranking.catalog import TRAITS_VERSION, Traits
from langmem_recall.stores.local.embedder import (
    Embedder,
    IndexSetting,
    digest_texts,
    joined_vectors,
)
from langmem_recall.stores.local.file import LocalFile
from langmem_recall.stores.local.rows import (
    check_key,
    delete_ids,
    encode_namespace,
    encode_value,
    find_records,
    read_meta,
    readable,
    take_seqs,
    to_datetime,
    write_meta,
)
from langmem_recall.stores.local.terms import TraitsWriter, Vocabulary, digest_memory
from langmem_recall.types import Memory, MemoryId, Namespace

MINUTE = 60_000_000
_MAX_TTL_MINUTES = 10**9
_CHUNK = 500


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

    def memory(self, created_at: int) -> Memory:
        """The memory as recall will read it."""
        return read_memory(self.namespace, self.key, self.value, to_datetime(created_at))

    def derive(self, embedder: Embedder | None) -> None:
        """Find what is to be embedded, and the traits."""
        memory = self.memory(self.created_at)
        self.texts = embedder.texts(memory, self.indexed) if embedder else []
        self.digest = digest_texts(self.texts) if self.texts else None
        self.traits = digest_memory(memory)
        # Imported vectors of other fields than this store embeds would be found by wrong words.
        if self.vectors and len(self.vectors) != 4 * (self.dims or 0) * len(self.texts):
            self.vectors = None


class Stored(NamedTuple):
    """What the file already knows of a memory."""

    id: int
    created_at: int
    digest: bytes | None
    has_vectors: bool


def new_put(op: PutOp, now: int) -> Put:
    """Read a put; InputError for what cannot be stored."""
    check_key(op.key)
    text = encode_value(op.value)
    return Put(
        namespace=tuple(op.namespace),
        key=op.key,
        value=json.loads(text),
        json=text,
        indexed=_checked_index(op.index),
        ttl_minutes=_checked_ttl(op.ttl),
        created_at=now,
        updated_at=now,
        expires_at=None if op.ttl is None else now + int(op.ttl * MINUTE),
    )


def find_stored(connection: sqlite3.Connection, memory_id: MemoryId) -> Stored | None:
    """What the file knows of a memory."""
    found = connection.execute(
        "SELECT i.id, i.created_at, v.digest, v.vectors IS NOT NULL FROM items i "
        "LEFT JOIN vectors v ON v.id = i.id WHERE i.namespace = ? AND i.key = ?",
        (encode_namespace(memory_id[0]), memory_id[1]),
    ).fetchone()
    return Stored(*found) if found else None


def prepare(
    connection: sqlite3.Connection, puts: Sequence[Put], embedder: Embedder | None
) -> list[Put]:
    """Derive texts and traits; returns the puts whose texts are not embedded yet."""
    unknown = []
    for put in puts:
        stored = find_stored(connection, put.id)
        if stored and not put.is_import:
            put.created_at = stored.created_at
        put.derive(embedder)
        is_known = stored and stored.has_vectors and stored.digest == put.digest
        if put.texts and put.vectors is None and not is_known:
            unknown.append(put)
    return unknown


def embed(puts: Sequence[Put], embedder: Embedder, meta: Mapping[str, Any]) -> None:
    """Give the puts their vectors, where the embedder works."""
    embedder.check(meta)
    texts = [text for put in puts for text in put.texts]
    vectors = embedder.documents(texts, meta.get("dims"))
    for put in puts:
        put.vectors = joined_vectors(put.texts, vectors)
        put.dims = len(put.vectors) // (4 * len(put.texts)) if put.vectors else None


def write(
    connection: sqlite3.Connection,
    vocabulary: Vocabulary,
    puts: Sequence[Put],
    deleted: Sequence[MemoryId],
) -> None:
    """All puts and deletions, inside the caller's transaction."""
    vocabulary.catch_up(connection)
    gone = [find_stored(connection, memory_id) for memory_id in deleted]
    delete_ids(connection, [stored.id for stored in gone if stored])
    if puts:
        _write_puts(connection, vocabulary, puts)


def note_embedder(
    connection: sqlite3.Connection, embedder: Embedder, meta: Mapping[str, Any], dims: int
) -> None:
    """Let the first vectors decide which embedder the file belongs to."""
    embedder.check(meta, dims)
    if "dims" not in meta:
        write_meta(connection, embedder=embedder.identity, dims=dims)
    if "fingerprint" not in meta and embedder.fingerprint:
        write_meta(connection, fingerprint=embedder.fingerprint)


def _write_puts(
    connection: sqlite3.Connection, vocabulary: Vocabulary, puts: Sequence[Put]
) -> None:
    seq = take_seqs(connection, len(puts))
    traits = TraitsWriter(connection, vocabulary)
    items, vectors, unembedded = [], [], []
    for place, put in enumerate(puts, seq):
        stored = find_stored(connection, put.id)
        item_id = stored.id if stored else place
        # Since it was prepared another writer may have made or deleted the memory.
        if stored and stored.created_at != put.created_at and not put.is_import:
            put.created_at = stored.created_at
            put.traits = None
        items.append(_item_row(item_id, place, put))
        traits.add(item_id, put.traits or digest_memory(put.memory(put.created_at)))
        if put.digest is None:
            unembedded.append((item_id,))
        elif put.vectors is not None or not _has_current_vectors(stored, put):
            vectors.append((item_id, put.digest, put.vectors))
    connection.executemany(
        "INSERT OR REPLACE INTO items VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", items
    )
    traits.write()
    connection.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?)", vectors)
    connection.executemany("DELETE FROM vectors WHERE id = ?", unembedded)


def _has_current_vectors(stored: Stored | None, put: Put) -> bool:
    return stored is not None and stored.has_vectors and stored.digest == put.digest


def _item_row(item_id: int, seq: int, put: Put) -> tuple[Any, ...]:
    return (
        item_id,
        seq,
        encode_namespace(put.namespace),
        put.key,
        put.created_at,
        put.updated_at,
        put.expires_at,
        put.ttl_minutes,
        json.dumps(put.indexed if put.indexed is None else put.indexed or False),
        put.json,
    )


def _checked_index(index: Any) -> IndexSetting:
    if index is None or index is False:
        return index
    if isinstance(index, list | tuple) and all(isinstance(path, str) for path in index):
        return list(index)
    raise InputError(
        f'index must be None, False or a list of paths, got {index!r:.80}. Write index=["content"].'
    )


def _checked_ttl(ttl: Any) -> float | None:
    if ttl is None:
        return None
    if (
        isinstance(ttl, bool)
        or not isinstance(ttl, int | float)
        or not 0 <= ttl <= _MAX_TTL_MINUTES
    ):
        raise InputError(f"ttl must be minutes from 0 to {_MAX_TTL_MINUTES}, got {ttl!r:.80}.")
    return float(ttl)


def renew_traits(file: LocalFile) -> None:
    """Derive all traits anew if another version of the library wrote them."""
    with file.reading() as connection:
        if _has_current_traits(connection):
            return
    with file.writing() as connection:
        # Another process may have been faster while we waited for the lock.
        if _has_current_traits(connection):
            return
        connection.execute("DELETE FROM vocabulary")
        connection.execute("DELETE FROM traits")
        traits = TraitsWriter(connection, Vocabulary())
        ids = [row[0] for row in connection.execute("SELECT id FROM items ORDER BY id")]
        for start in range(0, len(ids), _CHUNK):
            records = find_records(connection, ids[start : start + _CHUNK])
            for record, value in readable(records.values()):
                created_at = to_datetime(record.created_at)
                memory = read_memory(*record.memory_id, value, created_at)
                traits.add(record.id, digest_memory(memory))
        traits.write()
        take_seqs(connection, 1)


def _has_current_traits(connection: sqlite3.Connection) -> bool:
    return bool(read_meta(connection).get("traits", TRAITS_VERSION) == TRAITS_VERSION)
