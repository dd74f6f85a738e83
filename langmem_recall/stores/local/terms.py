"""Traits as they lie in the file: terms are numbers into one vocabulary."""

from __future__ import annotations

import json
import sqlite3
import threading
from array import array
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from langmem_recall.errors import StoreError
from langmem_recall.ranking.catalog import TRAITS_VERSION, Catalog, Traits
from langmem_recall.ranking.lexical import LexicalIndex
from langmem_recall.stores.local.rows import read_meta, write_meta
from langmem_recall.types import MemoryId


class TraitsRow(NamedTuple):
    """One row of the table of traits; `terms` is int32 pairs of a term's number and its count."""

    id: int
    thread: str | None
    position: float
    speaker: str | None
    flags: int
    supersedes: str | None
    terms: bytes

    def superseded(self) -> tuple[MemoryId, ...]:
        """Ids that this memory supersedes."""
        pairs = json.loads(self.supersedes) if self.supersedes else []
        return tuple((tuple(namespace), key) for namespace, key in pairs)


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

    def decode(self, row: TraitsRow) -> Traits:
        """Traits as ranking reads them, each term as often as it occurs."""
        pairs = np.frombuffer(row.terms, np.int32).reshape(-1, 2).tolist()
        terms = [self.terms[number] for number, count in pairs for _ in range(count)]
        return Traits(terms, row.thread, row.position, row.speaker, row.flags, row.superseded())


def write_traits(
    connection: sqlite3.Connection, vocabulary: Vocabulary, traits: Iterable[tuple[int, Traits]]
) -> None:
    """Write traits by item id; new terms are not in the vocabulary until they are committed."""
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
        rows.append(TraitsRow(item_id, *known, pairs.tobytes()))
    connection.executemany("INSERT INTO vocabulary (term, id) VALUES (?, ?)", new.items())
    connection.executemany("INSERT OR REPLACE INTO traits VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
    write_meta(connection, traits=TRAITS_VERSION)


def read_catalog(
    rows: Iterable[tuple[MemoryId, TraitsRow]], vocabulary: Vocabulary
) -> tuple[Catalog, array[int]]:
    """The catalog of many memories and their item ids, in the order of the rows."""
    # Gathered by columns: the rows of 100,000 memories would outweigh their index.
    ids, positions, flags, sizes = array("q"), array("d"), array("B"), array("i")
    names: list[MemoryId] = []
    threads: list[str | None] = []
    speakers: list[str | None] = []
    supersedes: list[tuple[int, tuple[MemoryId, ...]]] = []
    joined = bytearray()
    for name, row in rows:
        if row.supersedes:
            supersedes.append((len(ids), row.superseded()))
        ids.append(row.id)
        names.append(name)
        threads.append(row.thread)
        positions.append(row.position)
        speakers.append(row.speaker)
        flags.append(row.flags)
        sizes.append(len(row.terms) // 8)
        joined += row.terms
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
    return catalog, ids


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
