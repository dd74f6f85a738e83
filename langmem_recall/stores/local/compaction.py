"""Deleting from a LocalStore so that nothing is left: rows, words, and the log of deletions."""

from __future__ import annotations

import sqlite3

import numpy as np

from langmem_recall.stores.local.rows import bounds, delete_ids, read_meta, write_meta
from langmem_recall.types import Namespace

_CHUNK = 2_000
_GONE = " "
"""Begins what stands in for a term that was taken out: no term has a space in it."""


def erase_below(connection: sqlite3.Connection, namespace: Namespace) -> int:
    """Delete all items at or below a namespace; returns how many."""
    where = bounds(namespace)
    rows = connection.execute(
        "SELECT id FROM items WHERE namespace >= ? AND namespace < ?", where
    ).fetchall()
    for start in range(0, len(rows), _CHUNK):
        delete_ids(connection, [row[0] for row in rows[start : start + _CHUNK]])
    return len(rows)


def scrub(connection: sqlite3.Connection) -> None:
    """Take out the terms that no memory has any more, and the names of deleted memories.

    A term's number keeps its place, because other processes hold on to the numbers. They see by
    `scrubs` that terms went, and by `pruned` that the log no longer tells them what was deleted.
    """
    unused = _unused_terms(connection)
    connection.executemany(
        "UPDATE vocabulary SET term = ? WHERE id = ?",
        [(f"{_GONE}{number}", number) for number in unused],
    )
    connection.execute("DELETE FROM tombstones")
    meta = read_meta(connection)
    write_meta(connection, scrubs=meta.get("scrubs", 0) + 1, pruned=meta.get("seq", 0))


def _unused_terms(connection: sqlite3.Connection) -> list[int]:
    (count,) = connection.execute("SELECT count(*) FROM vocabulary").fetchone()
    is_used = np.zeros(count, np.bool_)
    cursor = connection.execute("SELECT terms FROM traits")
    while rows := cursor.fetchmany(_CHUNK):
        pairs = np.frombuffer(b"".join(row[0] for row in rows), np.int32).reshape(-1, 2)
        is_used[pairs[:, 0]] = True
    gone = connection.execute(
        "SELECT id FROM vocabulary WHERE term >= ? AND term < ?", (_GONE, chr(ord(_GONE) + 1))
    )
    is_used[[row[0] for row in gone]] = True
    return list(np.flatnonzero(~is_used).tolist())
