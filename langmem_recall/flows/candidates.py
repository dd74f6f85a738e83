"""What both ways of reading share: the question, the answer, and candidates from evidence."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
from langgraph.store.base import Item

from langmem_recall.flows.effects import Embed, Plan
from langmem_recall.loading import loading
from langmem_recall.memory.value import read_memory
from langmem_recall.policy import RecallPolicy
from langmem_recall.ranking.arrays import FloatArray, IntArray
from langmem_recall.ranking.calibration import PANELS, NullDistribution, measure
from langmem_recall.ranking.catalog import Catalog
from langmem_recall.ranking.evidence import (
    EvidenceTable,
    LexicalMatch,
    Part,
    match_words,
    read_part,
)
from langmem_recall.ranking.pipeline import Likeness
from langmem_recall.types import (
    Candidate,
    Cue,
    Evidence,
    Memory,
    MemoryId,
    Namespace,
    Usage,
)

NEVER_USED = Usage()


class ReadRequest(NamedTuple):
    """One read of one namespace."""

    prefix: Namespace
    cue: Cue
    policy: RecallPolicy
    now: datetime
    filter: Mapping[str, Any] | None = None
    wanted: int = 0
    """Items a page reaches down to; a recall needs no more than the head."""
    required: tuple[MemoryId, ...] = ()
    """Memories that must be among the candidates."""
    with_pinned: bool = False
    include: frozenset[str] = frozenset()
    """Statuses besides "active" that the reader asked for."""
    detailed: bool = True
    """Whether BM25 and ranks are wanted, for a trace or for rank fusion."""


class ReadResult(NamedTuple):
    """What a read brought: the head that is ranked and the rest in the store's order."""

    candidates: list[Candidate]
    tail: list[Candidate]
    """Beyond the head, without evidence."""
    items: dict[MemoryId, Item]
    exhausted: bool
    """Whether the store has nothing beyond head and tail."""
    searched: int
    channels: dict[str, int]
    likeness: Likeness
    degraded: tuple[str, ...] = ()


def joint_likeness(finds: Sequence[ReadResult]) -> Likeness:
    """Likeness within each namespace; across namespaces only equal words are alike."""
    if len(finds) == 1:
        return finds[0].likeness

    def likeness(ids: Sequence[MemoryId]) -> FloatArray:
        texts = {c.memory.id: c.memory.text for found in finds for c in found.candidates}
        words = np.array([texts[memory_id].casefold() for memory_id in ids])
        alike = (words[:, None] == words[None, :]).astype(np.float64)
        for found in finds:
            own = [i for i, memory_id in enumerate(ids) if memory_id in found.items]
            if own:
                alike[np.ix_(own, own)] = found.likeness([ids[i] for i in own])
        return np.asarray(alike)

    return likeness


class MatchedCue(NamedTuple):
    """A cue read against a catalog."""

    parts: list[Part]
    wordings: list[LexicalMatch]
    catalog: Catalog
    version: int

    def holds_for(self, catalog: Catalog) -> bool:
        """Whether the rows still mean what they meant when the words were matched."""
        return self.catalog is catalog and self.version == catalog.version


def calibrate(language: str, queries_as_documents: bool) -> Plan[NullDistribution | None]:
    """Measure the embedder on a language's panel; None when it gives nothing usable."""
    questions, statements = zip(*PANELS[language], strict=True)
    as_queries = not queries_as_documents
    try:
        first = yield Embed(questions[:1], as_queries=as_queries)
        # An embedder that has answered once is measured, not hanging.
        with loading():
            rest = yield Embed(questions[1:], as_queries=as_queries)
            said = yield Embed(statements, as_queries=False)
    except Exception:
        return None
    return measure([*first, *rest], said)


def match(ask: ReadRequest, catalog: Catalog) -> MatchedCue:
    """Read the cue's parts and match their words."""
    model, strip = ask.policy.relevance, ask.policy.strip_names
    parts = [read_part(text, catalog, model, strip) for text in ask.cue.searched]
    wordings = [match_words(catalog, part, model, ask.detailed) for part in parts]
    return MatchedCue(parts, wordings, catalog, catalog.version)


def rescued(catalog: Catalog, wordings: Sequence[LexicalMatch], count: int) -> list[int]:
    """Live rows whose words cover the cue best, whatever their cosine may be."""
    if not wordings or not count or not catalog.rows:
        return []
    coverage = wordings[0].coverage
    for wording in wordings[1:]:
        coverage = np.maximum(coverage, wording.coverage)
    rows = _above(0.25 * coverage.max(), coverage, catalog)
    if len(rows) < count:
        rows = _above(0.0, coverage, catalog)
    best: list[int] = rows[top(coverage[rows], count)].tolist()
    return best


def _above(least: float, coverage: FloatArray, catalog: Catalog) -> IntArray:
    """Live rows with more than that; of many, few have a quarter of what the best has."""
    rows = np.flatnonzero(coverage > least)
    return np.asarray(rows[catalog.alive[rows]])


def top(values: FloatArray, count: int) -> list[int]:
    """Indices of the largest values, largest first, ties in order."""
    if count < len(values):
        edge = np.partition(values, len(values) - count)[len(values) - count]
        rows = np.flatnonzero(values >= edge)
    else:
        rows = np.arange(len(values))
    best: list[int] = rows[np.argsort(-values[rows], kind="stable")][:count].tolist()
    return best


def row_of(catalog: Catalog, memory_id: MemoryId) -> int:
    """The live row of a memory that must be there."""
    row = catalog.row(memory_id)
    if row is None:
        raise KeyError(memory_id)
    return row


def likeness_by(
    measure: Callable[[list[int]], FloatArray], catalog: Catalog, ids: Sequence[MemoryId]
) -> FloatArray:
    """How alike memories are by their rows; one that is gone by now is unlike any other."""
    rows = [catalog.row(memory_id) for memory_id in ids]
    places = [place for place, row in enumerate(rows) if row is not None]
    alike = np.eye(len(ids))
    if places:
        alike[np.ix_(places, places)] = measure([row for row in rows if row is not None])
    return alike


def id_of(item: Item) -> MemoryId:
    """Namespace and key of an item."""
    return item.namespace, item.key


def memory_of(item: Item) -> Memory:
    """The memory in an item."""
    return read_memory(item.namespace, item.key, item.value, item.created_at, item.updated_at)


def is_literal(parts: Sequence[Part]) -> bool:
    """Whether cosines are those of the literal cue: one part, nothing stripped from it."""
    return len(parts) == 1 and parts[0].dense_text == parts[0].text


def beyond(catalog: Catalog, item: Item, cosine: float | None) -> Candidate:
    """An item that lies beyond the head: judged by the hard gates alone."""
    memory = memory_of(item)
    known = float(cosine) if cosine is not None and cosine == cosine else None
    candidate = Candidate(memory, Evidence(), similarity=known)
    return _with_standing(candidate, catalog) if catalog.supersedes_any else candidate


def make_candidates(
    ask: ReadRequest,
    catalog: Catalog,
    parts: Sequence[Part],
    table: EvidenceTable,
    rows: Sequence[int],
    memories: Sequence[Memory],
) -> list[Candidate]:
    """The memories at these rows with their evidence."""
    if not rows:
        return []
    taken = np.array(rows)
    dense, coverage, bm25, matched, entity, episode, relevance = (
        column[taken].tolist() for column in table
    )
    cosines = [None if value != value else value for value in dense]
    scores = [score if hit else None for score, hit in zip(bm25, matched, strict=True)]
    candidates = list(
        map(
            Candidate,
            memories,
            map(Evidence, cosines, coverage, scores, entity, episode, relevance),
            repeat(NEVER_USED),
            _ranks(cosines) if ask.detailed else repeat(None),
            _ranks(scores) if ask.detailed else repeat(None),
            cosines if is_literal(parts) else repeat(None),
        )
    )
    if catalog.supersedes_any:
        return [_with_standing(candidate, catalog) for candidate in candidates]
    return candidates


def _ranks(values: Sequence[float | None]) -> list[int | None]:
    """Rank from 1 by falling value; None stays None."""
    ranks: list[int | None] = [None] * len(values)
    measured = [(-value, i) for i, value in enumerate(values) if value is not None]
    for rank, (_, i) in enumerate(sorted(measured), start=1):
        ranks[i] = rank
    return ranks


def _with_standing(candidate: Candidate, catalog: Catalog) -> Candidate:
    """The candidate with the memories that put it, or what it was derived from, out of force."""
    memory = candidate.memory
    if blockers := catalog.superseders(memory.id):
        return candidate._replace(standing="superseded", blockers=blockers)
    for parent in memory.derived_from:
        if blockers := catalog.superseders((memory.namespace, parent)):
            reason = f"derived from {parent}, which is superseded"
            return candidate._replace(standing=reason, blockers=blockers)
    return candidate
