"""An inverted index that grows and shrinks one memory at a time."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np

from langmem_recall.ranking.arrays import BoolArray, Column, FloatArray, IntArray

NOTHING: IntArray = np.empty(0, dtype=np.int32)


class Scan(NamedTuple):
    """Live postings of several terms."""

    rows: IntArray
    counts: IntArray
    term_of: IntArray
    """Which of the terms each posting is of."""


class LexicalIndex:
    """BM25+ over term lists; not thread-safe, so its owner holds a lock around every call.

    Rows are handed out as 0, 1, 2, ... and never reused: a removed row stays behind, dead, until
    the owner builds a new index.
    """

    def __init__(self, *, k1: float = 1.5, b: float = 0.75, delta: float = 1.0) -> None:
        self._k1, self._b, self._delta = k1, b, delta
        self._vocabulary: list[str] = []
        self._ids: dict[str, int] = {}
        self._document_frequencies: list[int] = []
        self._alive = Column(np.bool_)
        self._lengths = Column(np.int32)
        self._stops = Column(np.int32)
        self._forward_ids = Column(np.int32)
        self._forward_counts = Column(np.int32)
        self._bulk_starts = array("i", [0])
        self._bulk_rows = NOTHING
        self._bulk_counts = NOTHING
        # Rows added after the bulk load, per term: ``array`` appends faster than numpy can.
        self._tails: dict[int, tuple[array[int], array[int]]] = {}
        self._rows = 0
        self._dead = 0
        self._live_tokens = 0

    @classmethod
    def from_documents(cls, documents: Iterable[Sequence[str]]) -> LexicalIndex:
        """Index documents in order; row d is the d-th document."""
        ids: dict[str, int] = {}
        lengths, starts = array("i"), array("i", [0])
        term_ids, counts = array("i"), array("i")
        for terms in documents:
            frequencies = Counter(terms)
            term_ids.extend([ids.setdefault(term, len(ids)) for term in frequencies])
            counts.extend(frequencies.values())
            lengths.append(len(terms))
            starts.append(len(term_ids))
        columns = (
            np.array(column, dtype=np.int32) for column in (lengths, starts, term_ids, counts)
        )
        return cls.from_counts(list(ids), *columns)

    @classmethod
    def from_counts(
        cls,
        vocabulary: Sequence[str],
        lengths: IntArray,
        starts: IntArray,
        term_ids: IntArray,
        counts: IntArray,
    ) -> LexicalIndex:
        """Load documents whose distinct terms are ``term_ids[starts[d]:starts[d + 1]]``."""
        _check_counts(vocabulary, lengths, starts, term_ids, counts)
        index = cls()
        index._vocabulary = list(vocabulary)
        index._ids = {term: term_id for term_id, term in enumerate(index._vocabulary)}
        index._alive.extend(np.ones(len(lengths), dtype=np.bool_))
        index._lengths.extend(lengths)
        index._stops.extend(starts[1:])
        index._forward_ids.extend(term_ids)
        index._forward_counts.extend(counts)
        index._rows = len(lengths)
        index._live_tokens = int(lengths.sum())
        index._invert()
        return index

    def add(self, terms: Sequence[str]) -> int:
        """Add a document and return its row."""
        row = self._rows
        frequencies = Counter(terms)
        ids = [self._intern(term) for term in frequencies]
        for term_id, count in zip(ids, frequencies.values(), strict=True):
            rows, counts = self._tail(term_id)
            rows.append(row)
            counts.append(count)
            self._document_frequencies[term_id] += 1
        self._forward_ids.extend(ids)
        self._forward_counts.extend(list(frequencies.values()))
        self._stops.append(len(self._forward_ids.values))
        self._lengths.append(len(terms))
        self._alive.append(True)
        self._rows += 1
        self._live_tokens += len(terms)
        return row

    def remove(self, row: int) -> None:
        """Take a live row out of every statistic; its slot stays."""
        for term_id in self.counts_of(row)[0].tolist():
            self._document_frequencies[term_id] -= 1
        self._alive.values[row] = False
        self._dead += 1
        self._live_tokens -= int(self._lengths.values[row])

    @property
    def rows(self) -> int:
        """How many rows were handed out, dead ones included."""
        return self._rows

    @property
    def size(self) -> int:
        """How many documents are live."""
        return self._rows - self._dead

    @property
    def alive(self) -> BoolArray:
        """Which rows are live; valid until the next change."""
        alive = self._alive.values
        alive.flags.writeable = False
        return alive

    @property
    def vocabulary(self) -> Sequence[str]:
        """Every term ever seen, at the place of its id."""
        return self._vocabulary

    def term(self, term_id: int) -> str:
        """The term with this id."""
        return self._vocabulary[term_id]

    def term_id(self, term: str) -> int | None:
        """The id of a term, or None if no document ever had it."""
        return self._ids.get(term)

    def document_frequency(self, term: str) -> int:
        """How many live documents have the term."""
        term_id = self._ids.get(term)
        return 0 if term_id is None else self._document_frequencies[term_id]

    def idf(self, term: str) -> float:
        """How rare a term is; one that nobody has is as rare as one that a single document has."""
        if not self.size:
            return 0.0
        return math.log((self.size + 1) / max(self.document_frequency(term), 1))

    def postings(self, term: str) -> tuple[IntArray, IntArray]:
        """The live rows that have the term, ascending, and how often each has it."""
        rows, counts = self._raw_postings(term)
        if not self._dead:
            return rows, counts
        live = self._alive.values[rows]
        return rows[live], counts[live]

    def bm25(self, query: Sequence[str]) -> FloatArray:
        """The BM25+ score of every row, as ``rank_bm25.BM25Plus`` has it; dead rows get 0.0."""
        repeats = Counter(query)
        weights = np.array([times * self.idf(term) for term, times in repeats.items()])
        return self.bm25_of(self.scan(list(repeats)), weights)

    def bm25_of(self, scan: Scan, weights: FloatArray) -> FloatArray:
        """The same from postings already gathered, with the weight of each of their terms."""
        if not len(scan.rows):
            return np.zeros(self.rows)
        saturated = scan.counts * (self._k1 + 1.0) / (self._length_norm(scan.rows) + scan.counts)
        scores = self._summed(scan.rows, weights[scan.term_of] * saturated)
        # BM25+ grants the delta of a known term even to documents without it.
        scores += self._delta * weights[np.unique(scan.term_of)].sum()
        return self._live_only(scores)

    def scan(self, terms: Sequence[str]) -> Scan:
        """Live postings of several terms in one."""
        found = [self.postings(term) for term in terms]
        sizes = [len(rows) for rows, _ in found]
        return Scan(
            np.concatenate([NOTHING, *(rows for rows, _ in found)]),
            np.concatenate([NOTHING, *(counts for _, counts in found)]),
            np.repeat(np.arange(len(found), dtype=np.int32), sizes),
        )

    def distinct_terms(self, rows: IntArray) -> tuple[IntArray, IntArray]:
        """Ids of the distinct terms of these rows, and the place in `rows` that each is of."""
        stops = self._stops.values[rows]
        starts = np.where(rows > 0, self._stops.values[rows - 1], 0)
        sizes = stops - starts
        places = np.repeat(np.arange(len(rows), dtype=np.int32), sizes)
        offsets = np.arange(len(places)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return self._forward_ids.values[np.repeat(starts, sizes) + offsets], places

    def matches(self, query: Iterable[str]) -> BoolArray:
        """Which live rows have at least one term of the query."""
        found = np.zeros(self.rows, dtype=np.bool_)
        for term in set(query):
            found[self._raw_postings(term)[0]] = True
        return found & self._alive.values if self._dead else found

    def coverage(self, weights: Mapping[str, float]) -> FloatArray:
        """The share of the weighted IDF of the given terms that each live row has, in [0, 1]."""
        scaled = {term: weight * self.idf(term) for term, weight in weights.items()}
        total = sum(scaled.values())
        if total <= 0.0:
            return np.zeros(self.rows)
        rows, _, row_weights = self._gather(scaled)
        share = self._summed(rows, row_weights) / total
        # Sums in two orders may differ in the last bit.
        return self._live_only(np.minimum(share, 1.0))

    def terms_of(self, row: int) -> dict[str, int]:
        """The distinct terms of a live row and how often it has them."""
        ids, counts = self.counts_of(row)
        terms = [self._vocabulary[term_id] for term_id in ids.tolist()]
        return dict(zip(terms, counts.tolist(), strict=True))

    def counts_of(self, row: int) -> tuple[IntArray, IntArray]:
        """The term ids of a live row and their frequencies."""
        if not (0 <= row < self.rows and self._alive.values[row]):
            raise KeyError(f"Row {row} is not live: it was removed or never handed out.")
        start = self._stops.values[row - 1] if row else 0
        stop = self._stops.values[row]
        return (
            self._forward_ids.values[start:stop].copy(),
            self._forward_counts.values[start:stop].copy(),
        )

    def overlap(self, rows: Sequence[int]) -> FloatArray:
        """How alike live rows are in pairs: IDF-weighted Jaccard of their distinct terms."""
        shared = self._shared_idf([self.counts_of(row)[0] for row in rows])
        own = shared.diagonal()
        union = own[:, None] + own[None, :] - shared
        alike = np.divide(shared, union, out=np.zeros_like(shared), where=union > 0.0)
        np.fill_diagonal(alike, 1.0)
        return np.minimum(alike, 1.0)

    def _shared_idf(self, documents: Sequence[IntArray]) -> FloatArray:
        """The IDF that each pair of documents, given as distinct term ids, has in common."""
        flat = np.concatenate([NOTHING, *documents])
        sizes = [len(ids) for ids in documents]
        owners = np.repeat(np.arange(len(documents)), sizes)
        distinct, places = np.unique(flat, return_inverse=True)
        frequencies = [self._document_frequencies[term_id] for term_id in distinct.tolist()]
        weights = np.log((self.size + 1) / np.array(frequencies, dtype=np.float64))
        shared = np.zeros((len(documents), len(documents)))
        # A matrix product would do, but BLAS wakes all its threads for so small a one.
        for row, (start, stop) in enumerate(pairwise([0, *accumulate(sizes)])):
            own = np.zeros(len(distinct))
            own[places[start:stop]] = weights[places[start:stop]]
            shared[row] = np.bincount(owners, own[places], len(documents))
        # The two halves were summed in different orders.
        return (shared + shared.T) / 2.0

    def _intern(self, term: str) -> int:
        """The id of a term, a new one if it is new."""
        term_id = self._ids.setdefault(term, len(self._vocabulary))
        if term_id == len(self._vocabulary):
            self._vocabulary.append(term)
            self._document_frequencies.append(0)
        return term_id

    def _tail(self, term_id: int) -> tuple[array[int], array[int]]:
        """The growing end of a term's postings."""
        tail = self._tails.get(term_id)
        if tail is None:
            tail = self._tails[term_id] = (array("i"), array("i"))
        return tail

    def _invert(self) -> None:
        """Order the forward columns by term, which keeps rows ascending within each term."""
        ids = self._forward_ids.values
        order = np.argsort(ids, kind="stable")
        row_of = np.repeat(
            np.arange(self.rows, dtype=np.int32), np.diff(self._stops.values, prepend=0)
        )
        frequencies = np.bincount(ids, minlength=len(self._vocabulary))
        self._document_frequencies = frequencies.tolist()
        self._bulk_starts = array("i", [0, *accumulate(self._document_frequencies)])
        self._bulk_rows = row_of[order]
        self._bulk_counts = self._forward_counts.values[order]

    def _raw_postings(self, term: str) -> tuple[IntArray, IntArray]:
        """The rows and frequencies of a term, dead rows included."""
        term_id = self._ids.get(term)
        if term_id is None:
            return NOTHING, NOTHING
        rows, counts = self._bulk_postings(term_id)
        tail = self._tails.get(term_id)
        if tail is None:
            return rows, counts
        # A copy, because an ``array`` cannot grow while numpy looks at it.
        added = np.array(tail[0], dtype=np.int32), np.array(tail[1], dtype=np.int32)
        if not len(rows):
            return added
        return np.concatenate([rows, added[0]]), np.concatenate([counts, added[1]])

    def _bulk_postings(self, term_id: int) -> tuple[IntArray, IntArray]:
        """Views of the postings a term had at the bulk load."""
        if term_id + 1 >= len(self._bulk_starts):
            return NOTHING, NOTHING
        start, stop = self._bulk_starts[term_id], self._bulk_starts[term_id + 1]
        return self._bulk_rows[start:stop], self._bulk_counts[start:stop]

    def _gather(self, weights: Mapping[str, float]) -> tuple[IntArray, IntArray, FloatArray]:
        """All postings of the terms in one row of arrays, each with its term's weight."""
        found = [self._raw_postings(term) for term in weights]
        sizes = [len(rows) for rows, _ in found]
        return (
            np.concatenate([rows for rows, _ in found]),
            np.concatenate([counts for _, counts in found]),
            np.repeat(np.fromiter(weights.values(), dtype=np.float64), sizes),
        )

    def _length_norm(self, rows: IntArray) -> FloatArray:
        """How much longer than the average the rows are, as BM25 damps it."""
        average = self._live_tokens / self.size
        lengths = self._lengths.values[rows]
        return self._k1 * (1.0 - self._b) + (self._k1 * self._b / average) * lengths

    def _summed(self, rows: IntArray, values: FloatArray) -> FloatArray:
        """The values added up per row."""
        # bincount of nothing forgets that its weights were floats.
        return np.asarray(np.bincount(rows, values, self.rows), dtype=np.float64)

    def _live_only(self, values: FloatArray) -> FloatArray:
        """The values with 0.0 at dead rows."""
        if self._dead:
            values[~self._alive.values] = 0.0
        return values


def _check_counts(
    vocabulary: Sequence[str],
    lengths: IntArray,
    starts: IntArray,
    term_ids: IntArray,
    counts: IntArray,
) -> None:
    """Refuse columns that cannot describe one set of documents."""
    postings = int(starts[-1]) if len(starts) else -1
    if len(starts) != len(lengths) + 1 or not postings == len(term_ids) == len(counts):
        raise ValueError(
            f"Columns disagree: {len(lengths)} lengths, {len(starts)} starts ending at {postings}, "
            f"{len(term_ids)} term ids, {len(counts)} counts. Rebuild the index from its texts."
        )
    if postings and not 0 <= int(term_ids.min()) <= int(term_ids.max()) < len(vocabulary):
        raise ValueError(
            f"Term ids must lie in the vocabulary of {len(vocabulary)}, got {term_ids.min()} to "
            f"{term_ids.max()}. Rebuild the index from its texts."
        )
