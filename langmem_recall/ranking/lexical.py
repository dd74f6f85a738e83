"""An inverted index that grows and shrinks one memory at a time."""

from __future__ import annotations

import math
from array import array
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from rank_bm25 import BM25Plus

from langmem_recall.ranking.arrays import BoolArray, Column, FloatArray, IntArray

NOTHING: IntArray = np.empty(0, dtype=np.int32)
K1, B, DELTA = 1.5, 0.75, 1.0
"""Of BM25+: the defaults of `rank_bm25.BM25Plus`, whose scores an index here gives too."""


class Scan(NamedTuple):
    """Live postings of several terms, in all rows or in a window of them."""

    rows: IntArray
    counts: IntArray
    term_of: IntArray
    """Which of the terms each posting is of."""
    sizes: NDArray[np.intp]
    """How many postings each of the terms has in all rows."""
    places: IntArray
    """The place in the window of each posting; its row where that is all rows."""
    window: IntArray | None = None


class LexicalIndex:
    """BM25+ over term lists; not thread-safe, so its owner holds a lock around every call.

    Rows are handed out as 0, 1, 2, ... and never reused: a removed row stays behind, dead, until
    the owner builds a new index.
    """

    def __init__(self) -> None:
        self.rows = 0
        """How many rows were handed out, dead ones included."""
        self.size = 0
        """How many documents are live."""
        self.vocabulary: list[str] = []
        """Every term ever seen, at the place of its id."""
        self._ids: dict[str, int] = {}
        self._document_frequencies: list[int] = []
        self._alive = Column(np.bool_)
        self._lengths = Column(np.int32)
        self._live_tokens = 0
        self.longest = 0
        """Terms of the longest document so far."""
        # The distinct terms of each row up to its stop.
        self._stops = Column(np.int32)
        self._forward_ids = Column(np.int32)
        # Rows and counts of each term: those of the bulk load, then those added one by one, for
        # which an ``array`` appends faster than numpy can.
        self._bulk_starts = array("i", [0])
        self._bulk_rows = NOTHING
        self._bulk_counts = NOTHING
        self._tails: dict[int, tuple[array[int], array[int]]] = defaultdict(
            lambda: (array("i"), array("i"))
        )

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
        columns = (np.array(column, np.int32) for column in (lengths, starts, term_ids, counts))
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
        postings = int(starts[-1]) if len(starts) else -1
        if len(starts) != len(lengths) + 1 or not postings == len(term_ids) == len(counts):
            raise ValueError(
                f"Columns disagree: {len(lengths)} lengths, {len(starts)} starts ending at "
                f"{postings}, {len(term_ids)} term ids, {len(counts)} counts. Rebuild the index "
                "from its texts."
            )
        if postings and not 0 <= int(term_ids.min()) <= int(term_ids.max()) < len(vocabulary):
            raise ValueError(
                f"Term ids must lie in the vocabulary of {len(vocabulary)}, got {term_ids.min()} "
                f"to {term_ids.max()}. Rebuild the index from its texts."
            )
        index = cls()
        index.rows = index.size = len(lengths)
        index.vocabulary = list(vocabulary)
        index._ids = {term: term_id for term_id, term in enumerate(vocabulary)}
        index._alive.extend(np.ones(len(lengths), dtype=np.bool_))
        index._lengths.extend(lengths)
        index._live_tokens = int(lengths.sum())
        index.longest = int(lengths.max(initial=0))
        index._stops.extend(starts[1:])
        index._forward_ids.extend(term_ids)
        # A stable order by term keeps the rows of each term ascending.
        order = np.argsort(term_ids, kind="stable")
        index._bulk_rows = np.repeat(np.arange(len(lengths), dtype=np.int32), np.diff(starts))[
            order
        ]
        index._bulk_counts = counts[order]
        frequencies = np.bincount(term_ids, minlength=len(vocabulary))
        index._document_frequencies = frequencies.tolist()
        index._bulk_starts = array("i", [0, *accumulate(index._document_frequencies)])
        return index

    def add(self, terms: Sequence[str]) -> int:
        """Add a document and return its row."""
        row = self.rows
        frequencies = Counter(terms)
        ids: list[int] = []
        for term, count in frequencies.items():
            term_id = self._ids.setdefault(term, len(self.vocabulary))
            if term_id == len(self.vocabulary):
                self.vocabulary.append(term)
                self._document_frequencies.append(0)
            self._document_frequencies[term_id] += 1
            rows, counts = self._tails[term_id]
            rows.append(row)
            counts.append(count)
            ids.append(term_id)
        self._forward_ids.extend(ids)
        self._stops.append(len(self._forward_ids.values))
        self._lengths.append(len(terms))
        self._alive.append(True)
        self._live_tokens += len(terms)
        self.longest = max(self.longest, len(terms))
        self.rows += 1
        self.size += 1
        return row

    def remove(self, row: int) -> None:
        """Take a live row out of every statistic; its slot stays."""
        for term_id in self.distinct_terms([row])[0].tolist():
            self._document_frequencies[term_id] -= 1
        self._alive.values[row] = False
        self._live_tokens -= int(self._lengths.values[row])
        self.size -= 1

    @property
    def alive(self) -> BoolArray:
        """Which rows are live; valid until the next change."""
        alive = self._alive.values.view()
        alive.flags.writeable = False
        return alive

    @property
    def lengths(self) -> IntArray:
        """How many terms each row has; valid until the next change."""
        return self._lengths.values

    def document_frequency(self, term: str) -> int:
        """How many live documents have the term."""
        term_id = self._ids.get(term)
        return 0 if term_id is None else self._document_frequencies[term_id]

    def most_frequent(self, terms: Collection[str]) -> str | None:
        """Of some terms the one that most live documents have, of equals the first by name."""
        if self._ids.keys().isdisjoint(terms):
            return None
        # In order, or each process would read a cue in its own way: terms come as a set.
        found = sorted(filter(self.document_frequency, terms))
        return max(found, key=self.document_frequency, default=None)

    def idfs(self, terms: Iterable[str]) -> list[float]:
        """How rare terms are; one that no document has is as rare as one that a single one has."""
        most, frequencies = self.size + 1, self._document_frequencies
        ids = [self._ids.get(term) for term in terms]
        counts = [1 if term_id is None else frequencies[term_id] or 1 for term_id in ids]
        return [math.log(most / count) for count in counts]

    def scan(self, terms: Iterable[str]) -> Scan:
        """Live postings of several terms in one, those of each term by ascending rows."""
        rows, counts, sizes = [NOTHING], [NOTHING], list[int]()
        starts, loaded = self._bulk_starts, len(self._bulk_starts) - 1
        for term in terms:
            term_id, size = self._ids.get(term, -1), 0
            if 0 <= term_id < loaded:
                start, stop = starts[term_id], starts[term_id + 1]
                rows.append(self._bulk_rows[start:stop])
                counts.append(self._bulk_counts[start:stop])
                size = stop - start
            if term_id in self._tails:
                # A copy, because an ``array`` cannot grow while numpy looks at it.
                added, times = (np.array(tail, np.int32) for tail in self._tails[term_id])
                rows.append(added)
                counts.append(times)
                size += len(added)
            sizes.append(size)
        of_all, times = np.concatenate(rows), np.concatenate(counts)
        term_of = np.arange(len(sizes), dtype=np.int32).repeat(sizes)
        if self.size < self.rows:
            live = self._alive.values[of_all]
            of_all, times, term_of = of_all[live], times[live], term_of[live]
            sizes = np.bincount(term_of, minlength=len(sizes)).tolist()
        return Scan(of_all, times, term_of, np.array(sizes, np.intp), of_all)

    def cut(self, scan: Scan, window: IntArray) -> Scan:
        """The postings in some rows."""
        place_of = np.full(self.rows, -1, np.int32)
        place_of[window] = np.arange(len(window), dtype=np.int32)
        places = place_of[scan.rows]
        inside = np.flatnonzero(places >= 0)
        return Scan(
            scan.rows[inside],
            scan.counts[inside],
            scan.term_of[inside],
            scan.sizes,
            places[inside],
            window,
        )

    def bm25(self, repeats: Mapping[str, int], scan: Scan) -> FloatArray:
        """The BM25+ score of every row scanned for these terms; dead rows get 0.0."""
        alive = self._alive.values if scan.window is None else self._alive.values[scan.window]
        if not scan.sizes.any():
            return np.zeros(len(alive))
        weights = np.array(self.idfs(repeats)) * list(repeats.values())
        lengths = self.lengths[scan.rows]
        norms = K1 * (1.0 - B) + (K1 * B / (self._live_tokens / self.size)) * lengths
        saturated = scan.counts * (K1 + 1.0) / (norms + scan.counts)
        parts = weights.take(scan.term_of) * saturated
        # BM25+ grants the delta of a known term even to documents without it.
        granted = DELTA * weights[scan.sizes > 0].sum()
        scores: FloatArray = np.bincount(scan.places, parts, len(alive)) + granted
        if self.size < self.rows:
            scores[~alive] = 0.0
        return scores

    def coverage(self, weights: Mapping[str, float]) -> FloatArray:
        """The share of the weighted IDF of the given terms that each live row has, in [0, 1]."""
        masses = [
            idf * weights[term] for term, idf in zip(weights, self.idfs(weights), strict=True)
        ]
        total = sum(masses)
        if total <= 0.0:
            return np.zeros(self.rows)
        found = self.scan(weights)
        share = np.bincount(found.rows, np.array(masses)[found.term_of], self.rows) / total
        # Sums in two orders may differ in the last bit.
        return np.minimum(share, 1.0)

    def distinct_terms(self, rows: Sequence[int] | IntArray) -> tuple[IntArray, IntArray]:
        """Ids of the distinct terms of live rows, and the place in `rows` that each is of."""
        chosen = np.asarray(rows, np.int32)
        live = (chosen >= 0) & (chosen < self.rows)
        live[live] = self._alive.values[chosen[live]]
        if not live.all():
            row = chosen[~live][0]
            raise KeyError(f"Row {row} is not live: it was removed or never handed out.")
        starts = np.where(chosen > 0, self._stops.values[chosen - 1], 0)
        sizes = self._stops.values[chosen] - starts
        places = np.repeat(np.arange(len(chosen), dtype=np.int32), sizes)
        offsets = np.arange(len(places)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return self._forward_ids.values[np.repeat(starts, sizes) + offsets], places

    def overlap(self, rows: Sequence[int]) -> FloatArray:
        """How alike live rows are in pairs: IDF-weighted Jaccard of their distinct terms."""
        ids, owners = self.distinct_terms(rows)
        distinct, places = np.unique(ids, return_inverse=True)
        frequencies = [self._document_frequencies[term_id] for term_id in distinct.tolist()]
        weights = np.log((self.size + 1) / np.array(frequencies, dtype=np.float64))
        shared = np.zeros((len(rows), len(rows)))
        # A matrix product would do, but BLAS wakes all its threads for so small a one.
        for row in range(len(rows)):
            mine = places[owners == row]
            own = np.zeros(len(distinct))
            own[mine] = weights[mine]
            shared[row] = np.bincount(owners, own[places], len(rows))
        # The two halves were summed in different orders.
        shared = (shared + shared.T) / 2.0
        masses = shared.diagonal()
        union = masses[:, None] + masses[None, :] - shared
        alike = np.divide(shared, union, out=np.zeros_like(shared), where=union > 0.0)
        np.fill_diagonal(alike, 1.0)
        return np.minimum(alike, 1.0)


class PoolIndex(LexicalIndex):
    """The words of one pool, gone with its recall: scored by `rank_bm25`, nothing is kept."""

    def __init__(self) -> None:
        super().__init__()
        self._documents: list[Sequence[str]] = []

    @classmethod
    def from_documents(cls, documents: Iterable[Sequence[str]]) -> PoolIndex:
        """Take the documents of a pool in order."""
        index = cls()
        for terms in documents:
            index.add(terms)
        return index

    def add(self, terms: Sequence[str]) -> int:
        """Add a document and return its row."""
        self._documents.append(terms)
        return super().add(terms)

    def bm25(self, repeats: Mapping[str, int], scan: Scan) -> FloatArray:
        """The BM25+ score of every row; 0.0 where no row has any of the terms."""
        scores = np.zeros(self.rows)
        if scan.sizes.any():
            live = np.flatnonzero(self.alive)
            ranked = BM25Plus([self._documents[row] for row in live])
            known = [term for term in repeats if self.document_frequency(term)]
            scores[live] = ranked.get_scores([t for t in known for _ in range(repeats[t])])
        return scores if scan.window is None else scores[scan.window]
