"""What every way of reading shares: the request, the result, and candidates from evidence."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from itertools import repeat
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from langgraph.store.base import GetOp, Item, SearchOp
from numpy.typing import NDArray

from langmem_recall.deadline import loading
from langmem_recall.flows.effects import Ops, Plan
from langmem_recall.memory.value import read_memory
from langmem_recall.policy import RecallPolicy
from langmem_recall.ranking.arrays import BoolArray, FloatArray, top_rows
from langmem_recall.ranking.catalog import Catalog, dated_terms
from langmem_recall.ranking.evidence import (
    EvidenceTable,
    LexicalMatch,
    Part,
    match_words,
    read_part,
)
from langmem_recall.ranking.pipeline import Likeness
from langmem_recall.ranking.pool import Pool, Standing, ranks_of
from langmem_recall.text.temporal import without_time
from langmem_recall.types import (
    Candidate,
    Cue,
    Evidence,
    Memory,
    MemoryId,
    Namespace,
    Usage,
    record_all,
)

T = TypeVar("T")

COSINE_LIMIT = 1.001
"""A score beyond this is no cosine, whatever the store calls it."""
NO_EVIDENCE, NEVER = Evidence(), Usage()
PAGE = 1_000
EVERYTHING = 10_000_000


class NamespaceView(Protocol):
    """What is known of the memories below a namespace. Rows keep their meaning under `lock`."""

    @property
    def lock(self) -> AbstractContextManager[Any]:
        """Held by readers and writers."""

    @property
    def catalog(self) -> Catalog:
        """Words, threads and speakers by row."""

    def similarity(self, rows: Sequence[int]) -> FloatArray:
        """Cosine between each two of these memories; NaN where one has no vector."""


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

    head: Pool
    """As they stand, with how they were used."""
    tail: Sequence[Candidate]
    """Beyond the head; what they have of evidence is not read."""
    searched: int
    channels: dict[str, int]
    likeness: Likeness
    degraded: tuple[str, ...] = ()
    is_judged: bool = False
    """Whether the gate has seen each of them, as it is."""


class Gate(Protocol):
    """The hard gates of a read."""

    def passes_all(self, memories: Sequence[Memory], have_standing: bool) -> bool:
        """Whether it is known without asking that none of some memories is kept out.

        `have_standing` says whether other memories may have put one of them out of force.
        """

    def judge(self, candidates: list[Candidate]) -> Plan[set[MemoryId]]:
        """Which of some memories are kept out."""


def is_short(
    rankings: Sequence[tuple[int, Sequence[Memory]]], barred: Collection[MemoryId], scale: int
) -> bool:
    """Whether of some ranking fewer passed than are wanted, and there may be more further down.

    Rankings are `scale` times as long as wanted, where so many were found.
    """
    return any(
        len(ranking) >= scale * wanted
        and sum(memory.id not in barred for memory in ranking) < wanted
        for wanted, ranking in rankings
    )


def pool_of(ranking: Sequence[T], wanted: int, barred: Collection[T]) -> list[T]:
    """The first that are not barred; what is, among the first of all, only to leave its reason."""
    if not barred:
        return list(ranking[:wanted])
    free = set([one for one in ranking if one not in barred][:wanted])
    return [one for place, one in enumerate(ranking) if one in free or place < wanted]


class MatchedCue(NamedTuple):
    """A cue read against a catalog."""

    parts: list[Part]
    wordings: list[LexicalMatch]
    catalog: Catalog
    version: int
    """Of the catalog: at another one its rows have another meaning."""
    is_literal: bool
    """Whether cosines are those of the literal cue: one part, nothing stripped from it."""


def match(request: ReadRequest, catalog: Catalog) -> MatchedCue:
    """Read the cue's parts and match their words."""
    strip = request.policy.strip_names
    parts = [read_part(text, catalog, strip) for text in request.cue.searched]
    if request.cue.temporal is not None and request.cue.temporal.mode == "window":
        parts = [_found_by_date(part, request.now, strip) for part in parts]
    wordings = [match_words(catalog, part) for part in parts]
    is_literal = len(parts) == 1 and parts[0].dense_text == parts[0].text
    return MatchedCue(parts, wordings, catalog, catalog.version, is_literal)


def _found_by_date(part: Part, now: datetime, strip_names: bool) -> Part:
    """The part with its dates looked for in when a memory was written, too."""

    def dated(counts: dict[str, Any]) -> dict[str, Any]:
        return dict(zip(dated_terms(counts), counts.values(), strict=True))

    return part._replace(
        dense_text=without_time(part.dense_text, now) if strip_names else part.dense_text,
        repeats=dated(part.repeats),
        weights=dated(part.weights),
        names=dated(part.names),
    )


def best_by_words(wordings: Sequence[LexicalMatch], among: BoolArray, count: int) -> list[int]:
    """Rows among some whose words cover the cue best, whatever their cosine may be."""
    if not wordings or not count or not len(among):
        return []
    first, *others = (wording.coverage for wording in wordings)
    if not others and first is wordings[0].own:
        # Words lend nothing to neighbours: only the rows that have some need be looked at.
        rows = wordings[0].worded
    else:
        first = np.maximum.reduce([first, *others])
        rows = np.flatnonzero(first > 0.0)
    if not among.all():
        rows = rows[among[rows]]
    best: list[int] = rows[top(first[rows], count)].tolist()
    return best


def top(values: NDArray[Any], count: int) -> list[int]:
    """Indices of the largest values, largest first, ties in order."""
    rows = top_rows(values, count)
    best: list[int] = rows[(-values[rows]).argsort(kind="stable")][:count].tolist()
    return best


def likeness_in(view: NamespaceView, ids: Sequence[MemoryId]) -> FloatArray:
    """How alike memories are, by vectors or else by words; one that is gone is unlike any other."""
    with view.lock:
        rows = [view.catalog.row(memory_id) for memory_id in ids]
        places = [place for place, row in enumerate(rows) if row is not None]
        live = [row for row in rows if row is not None]
        alike = np.eye(len(ids))
        if live:
            cosines, overlap = view.similarity(live), view.catalog.lexical.overlap(live)
            alike[np.ix_(places, places)] = np.where(np.isnan(cosines), overlap, cosines)
        return alike


def id_of(item: Item) -> MemoryId:
    """Namespace and key of an item."""
    return item.namespace, item.key


def memory_of(item: Item) -> Memory:
    """The memory in an item."""
    return read_memory(item.namespace, item.key, item.value, item.created_at, item.updated_at)


def unscored(
    memories: Sequence[Memory],
    standings: Sequence[Standing] | None,
    similarity: Sequence[float | None] | None = None,
) -> list[Candidate]:
    """Memories without evidence, which only hard gates judge."""
    standing: tuple[Iterable[Any], ...] = repeat(None), repeat(())
    if standings:
        standing = tuple(zip(*standings, strict=True))
    ranks, cosines = (repeat(None), repeat(None)), similarity or repeat(None)
    columns = repeat(NO_EVIDENCE), repeat(NEVER), *ranks, cosines, *standing, repeat(None)
    return record_all(Candidate, memories, *columns)


def cosine_of(score: float | None) -> float | None:
    """A cosine that was measured, or None."""
    return None if score is None or score != score else float(score)


def make_pool(
    matched: MatchedCue,
    table: EvidenceTable,
    rows: Sequence[int] | NDArray[np.intp],
    memories: Sequence[Memory],
    standings: Sequence[Standing] | None,
    detailed: bool,
) -> Pool:
    """The memories at these rows of the table with their evidence."""
    if not memories:
        return Pool.of(())
    places = np.asarray(rows)
    found = EvidenceTable._make([column[places] for column in table])
    evidence = Evidence._make((*found[:5], found.relevance, found.alone))
    similarity = found.dense if matched.is_literal else None
    pool = Pool(memories, evidence, [NEVER] * len(memories), similarity, standings=standings)
    return pool._replace(ranks=(ranks_of(found.dense), ranks_of(found.bm25))) if detailed else pool


def standings(catalog: Catalog, memories: Iterable[Memory]) -> list[Standing] | None:
    """What other memories put each of these out of force; None where no memory does."""
    return [_standing(memory, catalog) for memory in memories] if catalog.supersedes_any else None


def _standing(memory: Memory, catalog: Catalog) -> Standing:
    """Why others put a memory, or what it was derived from, out of force, and which."""
    if blockers := catalog.superseders(memory.id):
        return "superseded", blockers
    for parent in memory.derived_from:
        if blockers := catalog.superseders((memory.namespace, parent)):
            return f"derived from {parent}, which is superseded", blockers
    return None, ()


def memories_at(ids: Sequence[MemoryId]) -> Plan[dict[MemoryId, Memory]]:
    """The memories that a store has under these names."""
    items: list[Item | None] = yield Ops([GetOp(*one, refresh_ttl=False) for one in ids])
    return {(item.namespace, item.key): memory_of(item) for item in items if item is not None}


def listing(
    prefix: Namespace,
    most: int | None = None,
    sidecar: bool = False,
    filter: dict[str, Any] | None = None,
) -> Plan[list[Any]]:
    """Every item below a namespace, or one more than `most` of them."""
    op = SearchOp(prefix, filter, PAGE, 0, None, refresh_ttl=False)
    (items,) = yield Ops([op], sidecar=sidecar)
    if len(items) == PAGE:
        # A store that has answered once is loading, not hanging. All in one go: between pages,
        # rows written at the same time change places on Postgres.
        everything = EVERYTHING if most is None else most + 1
        with loading():
            (items,) = yield Ops([op._replace(limit=everything)], sidecar=sidecar)
    return [item for item in items if item.namespace[: len(prefix)] == prefix]
