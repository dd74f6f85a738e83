"""How memories lie in the tables of a LocalStore: names, times, values, and the change log."""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, NamedTuple

from langgraph.store.base import Item, SearchItem

from langmem_recall.errors import InputError, StoreError
from langmem_recall.memory.value import check_value
from langmem_recall.types import MemoryId, Namespace

logger = logging.getLogger(__name__)

TOMBSTONES_KEPT = 50_000
"""Deletions that slow readers can still catch up on; beyond it they load anew."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_CHUNK = 500
_parse = json.JSONDecoder().raw_decode
# As bytes: text that is no UTF-8 would fail the whole query.
_VALUE = "CAST(value AS BLOB)"
_FIELDS = f"id, namespace, key, {_VALUE}, created_at, updated_at, expires_at, ttl_minutes, indexed"


class Record(NamedTuple):
    """One row of the table of items; times are microseconds since 1970."""

    id: int
    namespace: str
    key: str
    value: bytes
    created_at: int
    updated_at: int
    expires_at: int | None
    ttl_minutes: float | None
    indexed: str

    @property
    def memory_id(self) -> MemoryId:
        """Namespace and key."""
        return decode_namespace(self.namespace), self.key

    def decoded(self) -> dict[str, Any]:
        """The value, fresh; StoreError where the row is damaged."""
        value = decode_value(self.value)
        if value is None:
            raise StoreError(_damage(self.namespace, self.key))
        return value

    def item(self) -> Item:
        """A fresh item that the caller may change."""
        return Item(
            value=self.decoded(),
            key=self.key,
            namespace=decode_namespace(self.namespace),
            created_at=to_datetime(self.created_at),
            updated_at=to_datetime(self.updated_at),
        )

    def search_item(self, value: dict[str, Any], score: float | None) -> SearchItem:
        """A search result with this value."""
        return SearchItem(
            decode_namespace(self.namespace),
            self.key,
            value,
            to_datetime(self.created_at),
            to_datetime(self.updated_at),
            score,
        )


@lru_cache(maxsize=65_536)
def encode_namespace(namespace: Namespace) -> str:
    """Each label as JSON with a comma behind it: what starts with a parent's code lies below it."""
    return "".join(f"{json.dumps(label, ensure_ascii=False)}," for label in namespace)


@lru_cache(maxsize=65_536)
def decode_namespace(code: str) -> Namespace:
    """The labels of an encoded namespace."""
    return tuple(json.loads(f"[{code[:-1]}]"))


def bounds(prefix: Namespace) -> tuple[str, str]:
    """The half-open range of codes at or below a namespace, compared by bytes, exactly."""
    low = encode_namespace(prefix)
    # "-" is the byte after ",": no code below the prefix sorts behind it, and nothing else before.
    return (low, f"{low[:-1]}-") if low else ("", "\U0010ffff")


@lru_cache(maxsize=65_536)
def to_datetime(microseconds: int) -> datetime:
    """An aware UTC time."""
    return _EPOCH + timedelta(microseconds=microseconds)


def to_microseconds(moment: datetime) -> int:
    """Microseconds since 1970; exact."""
    return (moment - _EPOCH) // _MICROSECOND


def encode_value(value: Any) -> str:
    """A value as readable JSON; InputError for what JSON cannot hold."""
    check_value(value)
    return json.dumps(dict(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def decode_value(stored: bytes) -> dict[str, Any] | None:
    """A stored value, fresh; None for what is no JSON object: it was damaged, or edited by hand."""
    try:
        text = stored.decode().strip()
        value, end = _parse(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) and end == len(text) else None


def readable(records: Iterable[Record]) -> Iterator[tuple[Record, dict[str, Any]]]:
    """Records with their values; those that are damaged are left out, and the log says so."""
    for record in records:
        value = decode_value(record.value)
        if value is None:
            _report_damage(record.namespace, record.key, record.updated_at)
        else:
            yield record, value


@lru_cache(maxsize=1_024)
def _report_damage(namespace: str, key: str, updated_at: int) -> None:
    """Say it once, not with every search: what was called before is cached."""
    logger.warning("%s Searches leave it out.", _damage(namespace, key))


def _damage(namespace: str, key: str) -> str:
    return (
        f"The memory {key!r} in {decode_namespace(namespace)} is damaged: its value is no JSON "
        "object. Nothing was changed; put it anew, delete it, or take it from a backup."
    )


def check_key(key: Any) -> None:
    """Refuse a key that the table cannot hold as it is."""
    try:
        key.encode()
    except (AttributeError, UnicodeEncodeError) as error:
        raise InputError(f"A key must be text, got {key!r:.80}. Use letters or a UUID.") from error


def read_meta(connection: sqlite3.Connection) -> dict[str, Any]:
    """What the file says of itself: seq, pruned, embedder, dims, fingerprint, traits."""
    return dict(connection.execute("SELECT name, value FROM meta").fetchall())


def write_meta(connection: sqlite3.Connection, **facts: Any) -> None:
    """Set facts about the file."""
    connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", facts.items())


def find_record(connection: sqlite3.Connection, namespace: Namespace, key: str) -> Record | None:
    """The record of that name."""
    found = connection.execute(
        f"SELECT {_FIELDS} FROM items WHERE namespace = ? AND key = ?",
        (encode_namespace(namespace), key),
    ).fetchone()
    return Record(*found) if found else None


def find_records(connection: sqlite3.Connection, ids: Sequence[int]) -> dict[int, Record]:
    """The records with these ids that still exist."""
    found: dict[int, Record] = {}
    for start in range(0, len(ids), _CHUNK):
        some = ids[start : start + _CHUNK]
        marks = ",".join("?" * len(some))
        rows = connection.execute(f"SELECT {_FIELDS} FROM items WHERE id IN ({marks})", some)
        found.update((row[0], Record(*row)) for row in rows)
    return found


def find_values(connection: sqlite3.Connection, ids: Sequence[int]) -> dict[int, dict[str, Any]]:
    """Only the values, for looking through many; without what is damaged."""
    found: dict[int, dict[str, Any]] = {}
    for start in range(0, len(ids), _CHUNK):
        some = ids[start : start + _CHUNK]
        marks = ",".join("?" * len(some))
        rows = connection.execute(f"SELECT id, {_VALUE} FROM items WHERE id IN ({marks})", some)
        values = ((item_id, decode_value(stored)) for item_id, stored in rows)
        found.update((item_id, value) for item_id, value in values if value is not None)
    return found


def list_records(
    connection: sqlite3.Connection, prefix: Namespace, expired_by: int | None
) -> Iterator[Record]:
    """Records under a prefix, latest update first; without those expired by then, if given."""
    ids = connection.execute(
        "SELECT id FROM items WHERE namespace >= ? AND namespace < ? "
        "AND (expires_at IS NULL OR expires_at > ?) ORDER BY updated_at DESC, id",
        (*bounds(prefix), -1 if expired_by is None else expired_by),
    )
    # Values are read a chunk at a time: sorting them along would drag every text through memory.
    while some := [row[0] for row in ids.fetchmany(_CHUNK)]:
        found = find_records(connection, some)
        yield from (found[item_id] for item_id in some if item_id in found)


def list_codes(connection: sqlite3.Connection, expired_by: int | None) -> list[str]:
    """Every namespace that holds something, encoded."""
    if expired_by is None:
        rows = connection.execute("SELECT DISTINCT namespace FROM items")
    else:
        rows = connection.execute(
            "SELECT DISTINCT namespace FROM items WHERE expires_at IS NULL OR expires_at > ?",
            (expired_by,),
        )
    return [row[0] for row in rows]


def expired_ids(connection: sqlite3.Connection, prefix: Namespace, by: int) -> list[int]:
    """Ids under a prefix whose time is up."""
    rows = connection.execute(
        "SELECT id FROM items WHERE expires_at IS NOT NULL AND expires_at <= ? "
        "AND +namespace >= ? AND +namespace < ?",
        (by, *bounds(prefix)),
    )
    return [row[0] for row in rows]


def refresh_expiry(connection: sqlite3.Connection, ids: Iterable[int], now: int) -> None:
    """Start the time to live of these items again."""
    connection.executemany(
        "UPDATE items SET expires_at = ? + CAST(ttl_minutes * 60000000 AS INTEGER) "
        "WHERE id = ? AND ttl_minutes IS NOT NULL",
        [(now, item_id) for item_id in sorted(ids)],
    )


def delete_ids(connection: sqlite3.Connection, ids: Sequence[int]) -> None:
    """Delete items with all that belongs to them, and log it for processes that loaded them."""
    if not ids:
        return
    names = [(record.namespace, record.key) for record in find_records(connection, ids).values()]
    first = take_seqs(connection, len(names))
    connection.executemany(
        "INSERT INTO tombstones VALUES (?, ?, ?)",
        [(first + place, *name) for place, name in enumerate(names)],
    )
    for table in ("items", "traits", "vectors"):
        connection.executemany(f"DELETE FROM {table} WHERE id = ?", [(one,) for one in ids])
    _prune(connection)


def take_seqs(connection: sqlite3.Connection, count: int) -> int:
    """Reserve numbers in the order of all writes; returns the first."""
    found = connection.execute("SELECT value FROM meta WHERE name = 'seq'").fetchone()
    first = int(found[0]) + 1 if found else 1
    write_meta(connection, seq=first + count - 1)
    return first


def _prune(connection: sqlite3.Connection) -> None:
    found = connection.execute(
        "SELECT seq FROM tombstones ORDER BY seq DESC LIMIT 1 OFFSET ?", (TOMBSTONES_KEPT,)
    ).fetchone()
    if found:
        connection.execute("DELETE FROM tombstones WHERE seq <= ?", found)
        write_meta(connection, pruned=found[0])
