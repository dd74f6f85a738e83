"""Candidates by columns: a record of one is made only where somebody looks at it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np

from langmem_recall.ranking.arrays import FloatArray
from langmem_recall.types import Candidate, Evidence, Memory, MemoryId, Usage, record_all

Standing = tuple[str | None, tuple[MemoryId, ...]]
"""Why other memories put one out of force, or None, and which."""


class Pool(NamedTuple):
    """What is to be ranked."""

    memories: Sequence[Memory]
    evidence: Any
    """An `Evidence` whose fields are arrays, with NaN for None."""
    usages: Sequence[Usage]
    similarity: FloatArray | None = None
    """Cosines of the literal cue, NaN where one was not measured; None where none was."""
    ranks: tuple[Iterable[int | None], Iterable[int | None]] = (repeat(None), repeat(None))
    """By cosine and by words, where they are wanted."""
    standings: Sequence[Standing] | None = None
    """None where no memory puts another out of force."""
    records: Sequence[Candidate] | None = None
    """The candidates, where there are records of them already."""

    @classmethod
    def of(cls, candidates: Pool | Sequence[Candidate]) -> Pool:
        """The columns of some candidates."""
        if isinstance(candidates, Pool):
            return candidates
        if not candidates:
            return cls((), Evidence._make([np.empty(0)] * 7), (), records=())
        memories, found, usages, dense, lexical, similarity, standing, blockers, _ = zip(
            *candidates, strict=True
        )
        evidence = Evidence._make(
            np.array(column, np.float64) for column in zip(*found, strict=True)
        )
        standings = list(zip(standing, blockers, strict=True)) if any(standing) else None
        cosines = np.array(similarity, np.float64)
        return cls(memories, evidence, usages, cosines, (dense, lexical), standings, candidates)

    def candidates(self) -> Sequence[Candidate]:
        """A record of each."""
        if self.records is not None:
            return self.records
        dense, coverage, bm25, entity, episode, relevance, alone = [
            column.tolist() for column in self.evidence
        ]
        columns = known(dense), coverage, known(bm25), entity, episode, relevance, alone
        evidence, nothing = record_all(Evidence, *columns), repeat(None)
        standing: tuple[Iterable[Any], ...] = nothing, repeat(())
        if self.standings:
            standing = tuple(zip(*self.standings, strict=True))
        similarity = nothing if self.similarity is None else known(self.similarity.tolist())
        return record_all(
            Candidate,
            *(self.memories, evidence, self.usages, *self.ranks, similarity, *standing, nothing),
        )


def known(values: Iterable[float]) -> list[float | None]:
    """The same with None for NaN."""
    return [None if value != value else value for value in values]


def ranks_of(values: FloatArray) -> list[int | None]:
    """Rank from 1 by falling value; None for NaN."""
    ranks = np.empty(len(values), np.intp)
    ranks[np.argsort(-values, kind="stable")] = np.arange(1, len(values) + 1)
    return [
        None if value != value else rank
        for value, rank in zip(values.tolist(), ranks.tolist(), strict=True)
    ]
