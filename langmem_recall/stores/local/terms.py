"""Traits as they lie in the file: terms are numbers into one vocabulary."""

from __future__ import annotations

import json
import sqlite3
import threading
from array import array
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from langmem_recall.errors import InputError, StoreError
from langmem_recall.ranking.arrays import IntArray
from langmem_recall.ranking.catalog import TRAITS_VERSION, Catalog, Traits, traits_of
from langmem_recall.ranking.lexical import LexicalIndex
from langmem_recall.stores.local.rows import read_meta, write_meta
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
    """The terms of the file that are committed; a term's number is its place, for good."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._terms: list[str] = []
        self._numbers: dict[str, int] = {}
        self._scrubs = 0

    def __len__(self) -> int:
        return len(self._terms)

    def catch_up(self, connection: sqlite3.Connection) -> None:
        """Read the terms that were added since."""
        with self._lock:
            scrubs = _check_traits(connection)
            terms, numbers = self._terms, self._numbers
            # Only ever forwards: an older snapshot would bring back terms that were taken out.
            if scrubs > self._scrubs:
                terms, numbers = [], {}
            rows = connection.execute(
                "SELECT term FROM vocabulary WHERE id >= ? ORDER BY id", (len(terms),)
            )
            for (term,) in rows:
                numbers[term] = len(terms)
                terms.append(term)
            # All at once: other threads decode without the lock.
            self._terms, self._numbers = terms, numbers
            self._scrubs = max(scrubs, self._scrubs)

    def number(self, term: str) -> int | None:
        """The number of a term."""
        return self._numbers.get(term)

    def decode(self, terms: bytes) -> list[str]:
        """The terms of one memory, each as often as it occurs."""
        pairs = np.frombuffer(terms, np.int32).reshape(-1, 2).tolist()
        return [self._terms[number] for number, count in pairs for _ in range(count)]

    def terms(self, numbers: Sequence[int]) -> list[str]:
        """The terms with these numbers."""
        return [self._terms[number] for number in numbers]


class TraitsWriter:
    """Writes traits in one transaction, whose new terms nobody sees unless it commits."""

    def __init__(self, connection: sqlite3.Connection, vocabulary: Vocabulary) -> None:
        self._connection = connection
        self._vocabulary = vocabulary
        self._new: dict[str, int] = {}
        self._rows: list[TraitsRow] = []

    def add(self, item_id: int, traits: Traits) -> None:
        """Take in the traits of one memory."""
        supersedes = json.dumps(traits.supersedes) if traits.supersedes else None
        self._rows.append(
            TraitsRow(
                item_id,
                traits.thread,
                traits.position,
                traits.speaker,
                traits.flags,
                supersedes,
                self._encoded(traits.terms),
            )
        )

    def write(self) -> None:
        """Write all that was taken in."""
        terms = [(number, term) for term, number in self._new.items()]
        self._connection.executemany("INSERT INTO vocabulary VALUES (?, ?)", terms)
        self._connection.executemany(
            "INSERT OR REPLACE INTO traits VALUES (?, ?, ?, ?, ?, ?, ?)", self._rows
        )
        write_meta(self._connection, traits=TRAITS_VERSION)

    def _encoded(self, terms: Sequence[str]) -> bytes:
        pairs = array("i")
        for term, count in Counter(terms).items():
            number = self._vocabulary.number(term)
            if number is None:
                number = self._new.setdefault(term, len(self._vocabulary) + len(self._new))
            pairs.extend((number, count))
        return pairs.tobytes()


def digest_memory(memory: Memory) -> Traits:
    """The traits of a memory; InputError where its fields cannot be read."""
    try:
        return traits_of(memory)
    except (OverflowError, ValueError) as error:
        raise InputError(
            f"The memory {memory.key!r} has a field that cannot be used: {error}. "
            "Check its turn and times."
        ) from error


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


class CatalogBuilder:
    """Gathers traits by columns: rows of 100,000 memories would outweigh their index."""

    def __init__(self) -> None:
        self.ids = array("q")
        self._names: list[MemoryId] = []
        self._threads: list[str | None] = []
        self._positions = array("d")
        self._speakers: list[str | None] = []
        self._flags = bytearray()
        self._supersedes: list[tuple[int, tuple[MemoryId, ...]]] = []
        self._sizes = array("i")
        self._pairs = bytearray()

    def add(self, name: MemoryId, row: TraitsRow) -> None:
        """Take in one memory."""
        if row.supersedes:
            self._supersedes.append((len(self.ids), _superseded(row.supersedes)))
        self.ids.append(row.id)
        self._names.append(name)
        self._threads.append(row.thread)
        self._positions.append(row.position)
        self._speakers.append(row.speaker)
        self._flags.append(row.flags)
        self._sizes.append(len(row.terms) // 8)
        self._pairs += row.terms

    def build(self, vocabulary: Vocabulary) -> Catalog:
        """The catalog of all that was taken in."""
        return Catalog.from_columns(
            self._names,
            self._build_lexical(vocabulary),
            self._threads,
            np.asarray(self._positions).tolist(),
            self._speakers,
            list(self._flags),
            self._supersedes,
        )

    def _build_lexical(self, vocabulary: Vocabulary) -> LexicalIndex:
        pairs = np.frombuffer(self._pairs, np.int32).reshape(-1, 2)
        starts = np.zeros(len(self._sizes) + 1, np.int32)
        np.cumsum(self._sizes, out=starts[1:])
        running = np.zeros(len(pairs) + 1, np.int64)
        np.cumsum(pairs[:, 1], out=running[1:])
        lengths = np.diff(running[starts]).astype(np.int32)
        numbers, used = _renumbered(pairs[:, 0])
        counts = np.ascontiguousarray(pairs[:, 1])
        return LexicalIndex.from_counts(vocabulary.terms(used), lengths, starts, numbers, counts)


def _renumbered(numbers: IntArray) -> tuple[IntArray, list[int]]:
    """The file's numbers without gaps, so that a small namespace has a small vocabulary."""
    is_used = np.zeros(int(numbers.max()) + 1 if len(numbers) else 0, np.bool_)
    is_used[numbers] = True
    places = np.cumsum(is_used, dtype=np.int32) - 1
    return places[numbers].astype(np.int32), np.flatnonzero(is_used).tolist()


def _superseded(text: str | None) -> tuple[MemoryId, ...]:
    found: list[Any] = json.loads(text) if text else []
    return tuple((tuple(namespace), key) for namespace, key in found)


def _check_traits(connection: sqlite3.Connection) -> int:
    """Refuse traits of another version; returns how often terms were taken out."""
    meta = read_meta(connection)
    version = meta.get("traits", TRAITS_VERSION)
    if version != TRAITS_VERSION:
        raise StoreError(
            f"Another langmem-recall has rewritten the word index: its version is {version}, this "
            f"process knows {TRAITS_VERSION}. Nothing is lost; run one version on one file."
        )
    return int(meta.get("scrubs", 0))
