"""The usage table of a LocalStore: counts that stay exact across processes."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence

from langmem_recall.memory.usage import reinforced
from langmem_recall.stores.local.rows import bounds, encode_namespace
from langmem_recall.types import MemoryId, Namespace, Usage, UsageDelta

_FIELDS = ", ".join(Usage._fields)


def find_usage(connection: sqlite3.Connection, memory_id: MemoryId) -> Usage:
    """What reads have left behind about a memory."""
    found = connection.execute(
        f"SELECT {_FIELDS} FROM usage WHERE namespace = ? AND key = ?",
        (encode_namespace(memory_id[0]), memory_id[1]),
    ).fetchone()
    return Usage(*found) if found else Usage()


def write_usage(
    connection: sqlite3.Connection, touches: Mapping[MemoryId, UsageDelta], fade_per_day: float
) -> None:
    """Add uses inside the caller's transaction, which no other writer can enter."""
    for memory_id, touch in sorted(touches.items()):
        usage = reinforced(find_usage(connection, memory_id), touch, fade_per_day)
        connection.execute(
            f"INSERT OR REPLACE INTO usage (namespace, key, {_FIELDS}) "
            "VALUES (?, ?, ?, ?, ?, ?, ?)",
            (encode_namespace(memory_id[0]), memory_id[1], *usage),
        )


def delete_usage(connection: sqlite3.Connection, ids: Sequence[MemoryId]) -> None:
    """Forget the usage of these memories."""
    connection.executemany(
        "DELETE FROM usage WHERE namespace = ? AND key = ?",
        [(encode_namespace(namespace), key) for namespace, key in sorted(ids)],
    )


def delete_usage_below(connection: sqlite3.Connection, namespace: Namespace) -> int:
    """Forget all usage at or below a namespace."""
    return connection.execute(
        "DELETE FROM usage WHERE namespace >= ? AND namespace < ?", bounds(namespace)
    ).rowcount
