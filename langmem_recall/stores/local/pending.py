"""Embedding later what could not be embedded when it was written."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import NamedTuple

from langmem_recall.memory.value import read_memory
from langmem_recall.stores.local.embedder import (
    BATCH,
    Embedder,
    Pending,
    digest_texts,
    joined_vectors,
)
from langmem_recall.stores.local.file import LocalFile
from langmem_recall.stores.local.rows import (
    Record,
    decode_value,
    find_records,
    read_meta,
    take_seqs,
    write_meta,
)
from langmem_recall.stores.local.writer import note_embedder


class _Waiting(NamedTuple):
    id: int
    digest: bytes
    """As stored: a memory that was written again meanwhile has another."""
    texts: list[str]


def embed_pending(file: LocalFile, embedder: Embedder, pending: Pending) -> int:
    """Embed one batch of waiting texts; returns how many memories got their vectors."""
    with file.reading() as connection:
        meta = read_meta(connection)
        waiting = _choose(connection, embedder, pending)
    if not waiting:
        return 0
    embedder.check(meta)
    texts = [text for one in waiting for text in one.texts]
    vectors = embedder.documents(texts, meta.get("dims"))
    done = {one.id: joined_vectors(one.texts, vectors) for one in waiting}
    ready = [one for one in waiting if done[one.id] is not None]
    pending.note([one.id for one in waiting], [one.id for one in ready])
    if ready:
        with file.writing() as connection:
            for vector in list(vectors.values())[:1]:
                note_embedder(connection, embedder, read_meta(connection), len(vector) // 4)
            _write(connection, [(one, done[one.id] or b"") for one in ready])
    return len(ready)


def begin_reindex(connection: sqlite3.Connection, embedder: Embedder) -> int:
    """Let all texts wait for the embedder, unless they do so already; returns how many wait."""
    meta = read_meta(connection)
    if meta.get("reindexing") != embedder.identity or not embedder.is_owner(meta):
        _mark_all_pending(connection, embedder)
        write_meta(connection, reindexing=embedder.identity)
    return _waiting(connection)


def end_reindex(connection: sqlite3.Connection) -> None:
    """Note that nothing is left to embed anew, if so."""
    if not _waiting(connection):
        connection.execute("DELETE FROM meta WHERE name = 'reindexing'")


def _waiting(connection: sqlite3.Connection) -> int:
    waiting = connection.execute("SELECT count(*) FROM vectors WHERE vectors IS NULL").fetchone()
    return int(waiting[0])


def _mark_all_pending(connection: sqlite3.Connection, embedder: Embedder) -> None:
    """Drop every vector and let the texts wait for the configured embedder."""
    connection.execute("DELETE FROM vectors")
    connection.execute("DELETE FROM meta WHERE name IN ('dims', 'embedder', 'fingerprint')")
    ids = [row[0] for row in connection.execute("SELECT id FROM items ORDER BY id")]
    for start in range(0, len(ids), BATCH):
        records = find_records(connection, ids[start : start + BATCH])
        texts = {one.id: _texts(one, embedder) for one in records.values()}
        rows = [(item_id, digest_texts(some), None) for item_id, some in texts.items() if some]
        connection.executemany("INSERT INTO vectors VALUES (?, ?, ?)", rows)
    # Shelves see by the number that something happened, and by the embedder that all of it is new.
    take_seqs(connection, 1)


def _choose(connection: sqlite3.Connection, embedder: Embedder, pending: Pending) -> list[_Waiting]:
    rows = connection.execute(
        "SELECT id, digest FROM vectors WHERE vectors IS NULL ORDER BY id LIMIT ?", (4 * BATCH,)
    )
    digests = dict(rows.fetchall())
    records = find_records(connection, pending.choose(list(digests)))
    return [_Waiting(one.id, digests[one.id], _texts(one, embedder)) for one in records.values()]


def _texts(record: Record, embedder: Embedder) -> list[str]:
    value = decode_value(record.value)
    if value is None:
        # Damaged: there is nothing to embed, and the rest must not wait for it.
        return []
    memory = read_memory(*record.memory_id, value)
    return embedder.texts(memory, json.loads(record.indexed))


def _write(connection: sqlite3.Connection, ready: Sequence[tuple[_Waiting, bytes]]) -> None:
    seq = take_seqs(connection, len(ready))
    for place, (one, vectors) in enumerate(ready, seq):
        changed = connection.execute(
            "UPDATE vectors SET digest = ?, vectors = ? "
            "WHERE id = ? AND digest = ? AND vectors IS NULL",
            (digest_texts(one.texts), vectors, one.id, one.digest),
        )
        if changed.rowcount:
            connection.execute("UPDATE items SET seq = ? WHERE id = ?", (place, one.id))
