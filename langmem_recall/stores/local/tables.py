"""How memories lie in the tables of a LocalStore: names, times, values, words, usage, changes."""

from __future__ import annotations

import json
import logging
import sqlite3
import threading
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from sys import maxsize
from typing import Any, NamedTuple

import numpy as np
from langgraph.store.base import Item, SearchItem

from langmem_recall.errors import StoreError
from langmem_recall.memory.value import read_memory
from langmem_recall.ranking.catalog import TRAITS_VERSION, Traits
from langmem_recall.types import Memory, MemoryId, Namespace, Usage

logger = logging.getLogger(__name__)

MAX_TOMBSTONES = 50_000
"""Deletions that slow readers can still catch up on; beyond it they load anew."""

BELOW = "namespace >= ? AND namespace < ?"
"""What lies within the `bounds` of a prefix."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CHUNK = 500
"""Below the number of parameters that any SQLite takes."""
_parse = json.JSONDecoder().raw_decode
# The value as bytes: text that is no UTF-8 would fail the whole query.
_FIELDS = (
    "id, namespace, key, CAST(value AS BLOB), created_at, updated_at, expires_at, ttl_minutes, "
    "indexed"
)
_UNEXPIRED = "(? IS NULL OR expires_at IS NULL OR expires_at > ?)"


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

    def memory(self, value: dict[str, Any]) -> Memory:
        """The memory with this value."""
        times = to_datetime(self.created_at), to_datetime(self.updated_at)
        return read_memory(*self.memory_id, value, *times)

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
        times = to_datetime(self.created_at), to_datetime(self.updated_at)
        return SearchItem(*self.memory_id, value, *times, score)


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
    return (moment - _EPOCH) // timedelta(microseconds=1)


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


def read_meta(connection: sqlite3.Connection) -> dict[str, Any]:
    """What the file says of itself: seq, pruned, embedder, dims, fingerprint, traits."""
    return dict(connection.execute("SELECT name, value FROM meta").fetchall())


def write_meta(connection: sqlite3.Connection, **facts: Any) -> None:
    """Set facts about the file."""
    connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", facts.items())


def find_record(
    connection: sqlite3.Connection, namespace: Namespace, key: str, expired_by: int | None
) -> Record | None:
    """The record of that name, unless it has expired by then, if given."""
    found = connection.execute(
        f"SELECT {_FIELDS} FROM items WHERE namespace = ? AND key = ? AND {_UNEXPIRED}",
        (encode_namespace(namespace), key, expired_by, expired_by),
    ).fetchone()
    return Record(*found) if found else None


def find_records(connection: sqlite3.Connection, ids: Sequence[int]) -> dict[int, Record]:
    """The records with these ids that still exist."""
    found: dict[int, Record] = {}
    for start in range(0, len(ids), _CHUNK):
        chunk = ids[start : start + _CHUNK]
        marks = ",".join("?" * len(chunk))
        rows = connection.execute(f"SELECT {_FIELDS} FROM items WHERE id IN ({marks})", chunk)
        found.update((row[0], Record(*row)) for row in rows)
    return found


def list_records(
    connection: sqlite3.Connection, prefix: Namespace, expired_by: int | None
) -> Iterator[Record]:
    """Records under a prefix, latest update first; without those expired by then, if given."""
    ids = connection.execute(
        f"SELECT id FROM items WHERE {BELOW} AND {_UNEXPIRED} ORDER BY updated_at DESC, id",
        (*bounds(prefix), expired_by, expired_by),
    )
    # Values are read a chunk at a time: sorting them along would drag every text through memory.
    while chunk := [row[0] for row in ids.fetchmany(_CHUNK)]:
        found = find_records(connection, chunk)
        yield from (found[item_id] for item_id in chunk if item_id in found)


def list_namespaces(connection: sqlite3.Connection, expired_by: int | None) -> list[Namespace]:
    """Every namespace that has items; only those not expired by then, if given."""
    # Without a condition the index alone answers.
    where = "" if expired_by is None else "WHERE expires_at IS NULL OR expires_at > :by"
    codes = connection.execute(f"SELECT DISTINCT namespace FROM items {where}", {"by": expired_by})
    return [decode_namespace(code) for (code,) in codes]


def expired_ids(connection: sqlite3.Connection, prefix: Namespace, by: int) -> list[int]:
    """Ids under a prefix whose time is up."""
    rows = connection.execute(
        "SELECT id FROM items WHERE expires_at IS NOT NULL AND expires_at <= ? "
        "AND +namespace >= ? AND +namespace < ?",
        (by, *bounds(prefix)),
    )
    return [row[0] for row in rows]


def next_expiry(connection: sqlite3.Connection, after: int) -> int:
    """When the next item of the file expires."""
    found = connection.execute("SELECT min(expires_at) FROM items WHERE expires_at > ?", (after,))
    return found.fetchone()[0] or maxsize


def delete_ids(connection: sqlite3.Connection, ids: Sequence[int]) -> int:
    """Delete items with what belongs to them, log it for other processes; returns how many."""
    if not ids:
        return 0
    connection.executemany(
        "INSERT INTO tombstones SELECT ?, namespace, key FROM items WHERE id = ?",
        enumerate(ids, take_seqs(connection, len(ids))),
    )
    for table in ("items", "traits", "vectors"):
        connection.executemany(f"DELETE FROM {table} WHERE id = ?", ((item,) for item in ids))
    surplus = connection.execute(
        "SELECT seq FROM tombstones ORDER BY seq DESC LIMIT 1 OFFSET ?", (MAX_TOMBSTONES,)
    ).fetchone()
    if surplus:
        connection.execute("DELETE FROM tombstones WHERE seq <= ?", surplus)
        write_meta(connection, pruned=surplus[0])
    return len(ids)


def take_seqs(connection: sqlite3.Connection, count: int) -> int:
    """Reserve numbers in the order of all writes; returns the first."""
    first = int(read_meta(connection).get("seq", 0)) + 1
    write_meta(connection, seq=first + count - 1)
    return first


def find_usage(connection: sqlite3.Connection, memory_id: MemoryId) -> Usage:
    """What reads have left behind about a memory; an empty record for one never used."""
    found = connection.execute(
        "SELECT uses, decayed, last_used, before, merit FROM usage WHERE namespace = ? AND key = ?",
        (encode_namespace(memory_id[0]), memory_id[1]),
    ).fetchone()
    return Usage(*found) if found else Usage()


class Vocabulary:
    """The terms of the file that are committed; a term's number is its place, for good."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self.terms: list[str] = []
        self.numbers: dict[str, int] = {}
        self._scrubs = 0

    def catch_up(self, connection: sqlite3.Connection) -> None:
        """Read the terms that were added since."""
        with self._lock:
            meta = read_meta(connection)
            version = meta.get("traits", TRAITS_VERSION)
            if version != TRAITS_VERSION:
                raise StoreError(
                    f"Another langmem-recall has rewritten the word index: its version is "
                    f"{version}, this process knows {TRAITS_VERSION}. Nothing is lost; run one "
                    "version on one file."
                )
            scrubs = int(meta.get("scrubs", 0))
            terms, numbers = self.terms, self.numbers
            # Only ever forwards: an older snapshot would bring back terms that were taken out.
            if scrubs > self._scrubs:
                terms, numbers = [], {}
            new = "SELECT term FROM vocabulary WHERE id >= ? ORDER BY id"
            for (term,) in connection.execute(new, (len(terms),)):
                numbers[term] = len(terms)
                terms.append(term)
            # All at once: other threads decode without the lock.
            self.terms, self.numbers = terms, numbers
            self._scrubs = max(scrubs, self._scrubs)

    def decode(self, *columns: Any) -> Traits:
        """A row of traits behind its id as ranking reads it, each term as often as it occurs."""
        thread, position, speaker, flags, supersedes, stored = columns
        pairs = np.frombuffer(stored, np.int32).reshape(-1, 2).tolist()
        terms = [self.terms[number] for number, count in pairs for _ in range(count)]
        return Traits(terms, thread, position, speaker, flags, decode_ids(supersedes))


def decode_ids(stored: str | None) -> tuple[MemoryId, ...]:
    """The ids of memories that another one supersedes."""
    return tuple((tuple(namespace), key) for namespace, key in json.loads(stored or "[]"))


def write_traits(
    connection: sqlite3.Connection, vocabulary: Vocabulary, traits: Iterable[tuple[int, Traits]]
) -> None:
    """Write traits by item id, terms as int32 pairs of a term's number and its count.

    New terms are not in the vocabulary until they are committed.
    """
    new: dict[str, int] = {}
    rows = []
    for item_id, found in traits:
        pairs = array("i")
        for term, count in Counter(found.terms).items():
            number = vocabulary.numbers.get(term)
            if number is None:
                number = new.setdefault(term, len(vocabulary.terms) + len(new))
            pairs.extend((number, count))
        supersedes = json.dumps(found.supersedes) if found.supersedes else None
        known = (found.thread, found.position, found.speaker, found.flags, supersedes)
        rows.append((item_id, *known, pairs.tobytes()))
    connection.executemany("INSERT INTO vocabulary (term, id) VALUES (?, ?)", new.items())
    connection.executemany("INSERT OR REPLACE INTO traits VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
    write_meta(connection, traits=TRAITS_VERSION)


def scrub(connection: sqlite3.Connection) -> None:
    """Take out the terms that no memory has any more, and the names of deleted memories.

    A term's number keeps its place, because other processes hold on to the numbers. They see by
    `scrubs` that terms went, and by `pruned` that the log no longer tells them what was deleted.
    """
    (count,) = connection.execute("SELECT count(*) FROM vocabulary").fetchone()
    is_used = np.zeros(count, np.bool_)
    for (terms,) in connection.execute("SELECT terms FROM traits"):
        is_used[np.frombuffer(terms, np.int32)[::2]] = True
    # What begins with a space stands in for a term that went: no term has a space in it.
    connection.executemany(
        "UPDATE vocabulary SET term = ? WHERE id = ?",
        [(f" {number}", number) for number in np.flatnonzero(~is_used).tolist()],
    )
    connection.execute("DELETE FROM tombstones")
    meta = read_meta(connection)
    write_meta(connection, scrubs=meta.get("scrubs", 0) + 1, pruned=meta.get("seq", 0))
