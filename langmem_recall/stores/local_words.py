"""Traits as they lie in the file: terms are numbers into one vocabulary."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from langmem_recall.errors import InputError
from langmem_recall.ranking.arrays import IntArray
from langmem_recall.ranking.catalog import Catalog, Traits, traits_of
from langmem_recall.ranking.lexical import LexicalIndex
from langmem_recall.types import Memory, MemoryId


class TraitsRow(NamedTuple):
    """One row of the table of traits; `terms` is int32 pairs of a term's number and its count."""

    id: int
    thread: str | None
    position: float
    speaker: str | None
    flags: int
    supersedes: str | None
    terms: bytes


class Vocabulary:
    """The file's terms in memory; a term's number is its place. Grows only at its end."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._terms: list[str] = []
        self._numbers: dict[str, int] = {}

    def catch_up(self, connection: sqlite3.Connection) -> None:
        """Read the terms that were added since."""
        with self._lock:
            rows = connection.execute(
                "SELECT term FROM vocabulary WHERE id >= ? ORDER BY id", (len(self._terms),)
            )
            for (term,) in rows:
                self._add(term)

    def encode(self, connection: sqlite3.Connection, terms: Sequence[str]) -> bytes:
        """Terms as number and count pairs; new ones are written to the file."""
        counts = Counter(terms)
        with self._lock:
            new = [term for term in counts if term not in self._numbers]
            rows = [(self._add(term), term) for term in new]
            if rows:
                connection.executemany("INSERT INTO vocabulary VALUES (?, ?)", rows)
            pairs = [(self._numbers[term], count) for term, count in counts.items()]
        return np.array(pairs, np.int32).tobytes()

    def decode(self, terms: bytes) -> list[str]:
        """The terms of one memory, each as often as it occurs."""
        pairs = np.frombuffer(terms, np.int32).reshape(-1, 2).tolist()
        with self._lock:
            return [self._terms[number] for number, count in pairs for _ in range(count)]

    def terms(self, numbers: Sequence[int]) -> list[str]:
        """The terms with these numbers."""
        with self._lock:
            return [self._terms[number] for number in numbers]

    def forget(self) -> None:
        """Drop what is in memory: the transaction that wrote some of it did not happen."""
        with self._lock:
            self._terms, self._numbers = [], {}

    def _add(self, term: str) -> int:
        number = self._numbers[term] = len(self._terms)
        self._terms.append(term)
        return number


def digest_memory(memory: Memory) -> Traits:
    """The traits of a memory; InputError where its fields cannot be read."""
    try:
        return traits_of(memory)
    except (OverflowError, ValueError) as error:
        raise InputError(
            f"The memory {memory.key!r} has a field that cannot be used: {error}. "
            "Check its turn and times."
        ) from error


def traits_row(
    connection: sqlite3.Connection, vocabulary: Vocabulary, item_id: int, traits: Traits
) -> TraitsRow:
    """Traits as they are stored."""
    return TraitsRow(
        item_id,
        traits.thread,
        traits.position,
        traits.speaker,
        traits.flags,
        json.dumps(traits.supersedes) if traits.supersedes else None,
        vocabulary.encode(connection, traits.terms),
    )


def write_traits(connection: sqlite3.Connection, rows: Sequence[TraitsRow]) -> None:
    """Insert or replace traits."""
    connection.executemany("INSERT OR REPLACE INTO traits VALUES (?, ?, ?, ?, ?, ?, ?)", rows)


def stored_traits(row: TraitsRow, vocabulary: Vocabulary) -> Traits:
    """Traits as ranking reads them."""
    return Traits(
        vocabulary.decode(row.terms),
        row.thread,
        row.position,
        row.speaker,
        row.flags,
        _superseded(row.supersedes),
    )


def build_catalog(
    ids: Sequence[MemoryId], rows: Sequence[TraitsRow], vocabulary: Vocabulary
) -> Catalog:
    """Many memories at once."""
    return Catalog.from_columns(
        ids,
        _build_lexical([row.terms for row in rows], vocabulary),
        [row.thread for row in rows],
        [row.position for row in rows],
        [row.speaker for row in rows],
        [row.flags for row in rows],
        [(n, _superseded(row.supersedes)) for n, row in enumerate(rows) if row.supersedes],
    )


def _build_lexical(blobs: Sequence[bytes], vocabulary: Vocabulary) -> LexicalIndex:
    pairs = np.frombuffer(b"".join(blobs), np.int32).reshape(-1, 2)
    starts = np.zeros(len(blobs) + 1, np.int32)
    np.cumsum([len(blob) // 8 for blob in blobs], out=starts[1:])
    running = np.concatenate([[0], np.cumsum(pairs[:, 1])])
    lengths = np.diff(running[starts]).astype(np.int32)
    numbers, used = _renumbered(pairs[:, 0])
    return LexicalIndex.from_counts(
        vocabulary.terms(used), lengths, starts, numbers, np.ascontiguousarray(pairs[:, 1])
    )


def _renumbered(numbers: IntArray) -> tuple[IntArray, list[int]]:
    """The file's numbers without gaps, so that a small namespace has a small vocabulary."""
    is_used = np.zeros(int(numbers.max()) + 1 if len(numbers) else 0, np.bool_)
    is_used[numbers] = True
    places = np.cumsum(is_used, dtype=np.int32) - 1
    return places[numbers].astype(np.int32), np.flatnonzero(is_used).tolist()


def _superseded(text: str | None) -> tuple[MemoryId, ...]:
    found: list[Any] = json.loads(text) if text else []
    return tuple((tuple(namespace), key) for namespace, key in found)
