"""The flows of a read, written once: what to ask a store for and what to make of the answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from itertools import repeat
from typing import Any, NamedTuple, Protocol

import numpy as np
from langgraph.store.base import GetOp, Item, Op, SearchItem, SearchOp

from langmem_recall.drive import Call, Embed, Ops, Plan
from langmem_recall.filters import matches as filter_matches
from langmem_recall.lifecycle.provenance import read_memory
from langmem_recall.pipeline import Likeness
from langmem_recall.policy import RecallPolicy
from langmem_recall.ranking.arrays import FloatArray
from langmem_recall.ranking.calibration import Null, measure
from langmem_recall.ranking.catalog import Catalog
from langmem_recall.ranking.evidence import (
    EvidenceTable,
    Part,
    Wording,
    match_words,
    read_part,
    weigh,
)
from langmem_recall.ranking.panel import PANEL
from langmem_recall.sources import Shelf
from langmem_recall.types import (
    SIDECAR_ROOT,
    Candidate,
    Cue,
    Evidence,
    Memory,
    MemoryId,
    Namespace,
    Usage,
)

NEVER_USED = Usage()
COSINE_LIMIT = 1.001
"""A score beyond this is no cosine, whatever the store calls it."""


class Ask(NamedTuple):
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


class Found(NamedTuple):
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


def joint_likeness(finds: Sequence[Found]) -> Likeness:
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


class Index(Protocol):
    """Catalog and memories of a namespace, kept in this process."""

    @property
    def lock(self) -> AbstractContextManager[Any]:
        """Held by readers and writers."""

    @property
    def catalog(self) -> Catalog:
        """Words, threads and speakers by row."""

    def memory(self, item: Item) -> Memory:
        """The memory of an item just read."""

    def note_delete(self, memory_id: MemoryId) -> None:
        """A memory turned out to be gone."""


class Matched(NamedTuple):
    """A cue read against a catalog."""

    parts: list[Part]
    wordings: list[Wording]
    catalog: Catalog
    version: int

    def holds_for(self, catalog: Catalog) -> bool:
        """Whether the rows still mean what they meant when the words were matched."""
        return self.catalog is catalog and self.version == catalog.version


def calibrate(queries_as_documents: bool) -> Plan[Null | None]:
    """Measure the embedder on the built-in panel; None when it gives nothing usable."""
    questions, statements = zip(*PANEL, strict=True)
    try:
        asked = yield Embed(questions, as_queries=not queries_as_documents)
        said = yield Embed(statements, as_queries=False)
    except Exception:
        return None
    return measure(asked, said)


def match(ask: Ask, catalog: Catalog) -> Matched:
    """Read the cue's parts and match their words."""
    model, strip = ask.policy.relevance, ask.policy.strip_names
    parts = [read_part(text, catalog, model, strip) for text in ask.cue.searched]
    wordings = [match_words(catalog, part, model) for part in parts]
    return Matched(parts, wordings, catalog, catalog.version)


# --- any store: `search` for the dense channel, the in-process index for the rest -------------


def find_by_search(ask: Ask, index: Index, null: Null, has_vectors: bool) -> Plan[Found]:
    """One round trip: a search per part, and the memories that the words point to."""
    with index.lock:
        matched = match(ask, index.catalog)
        fetch = _to_fetch(ask, index.catalog, matched.wordings)
    answers = yield from _search(ask, matched.parts, fetch, has_vectors)
    with index.lock:
        return _assemble(ask, index, matched, null, answers)


def _to_fetch(ask: Ask, catalog: Catalog, wordings: Sequence[Wording]) -> list[MemoryId]:
    rows = _rescued(catalog, wordings, ask.policy.rescues)
    pinned = catalog.pinned() if ask.with_pinned else []
    return list(dict.fromkeys([*ask.required, *(catalog.id(row) for row in (*pinned, *rows))]))


def _rescued(catalog: Catalog, wordings: Sequence[Wording], count: int) -> list[int]:
    """Live rows whose words cover the cue best, whatever their cosine may be."""
    if not wordings or not count or not catalog.rows:
        return []
    coverage = wordings[0].coverage
    for wording in wordings[1:]:
        coverage = np.maximum(coverage, wording.coverage)
    coverage = np.where(catalog.alive, coverage, 0.0)
    return [row for row in _top(coverage, count) if coverage[row] > 0]


def _top(values: FloatArray, count: int) -> list[int]:
    """Indices of the largest values, largest first, ties in order."""
    if count < len(values):
        edge = np.partition(values, len(values) - count)[len(values) - count]
        rows = np.flatnonzero(values >= edge)
    else:
        rows = np.arange(len(values))
    best: list[int] = rows[np.argsort(-values[rows], kind="stable")][:count].tolist()
    return best


Pages = list[list[SearchItem]]


class Answers(NamedTuple):
    """What a store answered: a page for each part, and the items asked for by id."""

    pages: Pages
    fetched: dict[MemoryId, Item | None]
    exhausted: bool
    degraded: list[str]


def _search(
    ask: Ask, parts: Sequence[Part], fetch: Sequence[MemoryId], has_vectors: bool
) -> Plan[Answers]:
    """The dense pages and the fetched items; a listing stands in when the dense channel fails."""
    gets: list[Op] = [GetOp(namespace, key, refresh_ttl=False) for namespace, key in fetch]
    listing = SearchOp(
        ask.prefix,
        dict(ask.filter) if ask.filter else None,
        max(ask.policy.pool, ask.wanted),
        0,
        None,
        refresh_ttl=False,
    )
    degraded: list[str] = []
    if has_vectors:
        searches = [listing._replace(query=part.dense_text) for part in parts]
        try:
            results = yield Ops([*searches, *gets])
            return _answers(listing, results, len(searches), fetch, degraded)
        except Exception as error:
            degraded.append(f"dense search failed ({type(error).__name__}: {error}); lexical only")
    results = yield Ops([listing, *gets])
    return _answers(listing, results, 1, fetch, degraded)


def _answers(
    asked: SearchOp,
    results: Sequence[Any],
    pages: int,
    fetch: Sequence[MemoryId],
    degraded: list[str],
) -> Answers:
    found: Pages = list(results[:pages])
    exhausted = all(len(page) < asked.limit for page in found)
    if not asked.namespace_prefix:
        found = [[item for item in page if item.namespace[0] != SIDECAR_ROOT] for page in found]
    return Answers(found, dict(zip(fetch, results[pages:], strict=True)), exhausted, degraded)


def _assemble(ask: Ask, index: Index, matched: Matched, null: Null, answers: Answers) -> Found:
    pool, degraded = ask.policy.pool, answers.degraded
    # Only the head's own evidence may be read: the same head for every page.
    pools = [page[:pool] for page in answers.pages]
    items: dict[MemoryId, Item] = {_id(item): item for page in pools for item in page}
    dense_count = len(items)
    for memory_id, item in answers.fetched.items():
        if item is None:
            index.note_delete(memory_id)
        elif passes(item, ask):
            items.setdefault(memory_id, item)
    memories = [index.memory(item) for item in items.values()]
    catalog = index.catalog
    if not matched.holds_for(catalog):
        matched = match(ask, catalog)
    cosines, unseen = _cosines(catalog, pools, len(matched.parts), pool, degraded)
    table = _weighed(ask, catalog, matched, cosines, null, unseen)
    rows = [_row(catalog, memory.id) for memory in memories]
    tail = [item for item in answers.pages[0][pool:] if _id(item) not in items]
    return Found(
        candidates=_candidates(catalog, matched.parts, table, rows, memories),
        tail=[
            _beyond(catalog, item, item.score if is_literal(matched.parts) else None)
            for item in tail
        ],
        items=items | {_id(item): item for item in tail},
        exhausted=answers.exhausted,
        searched=catalog.size,
        channels={
            "dense": 0 if cosines is None else dense_count,
            "words": len(items) - dense_count,
        },
        likeness=lambda ids: _overlap(index, ids),
        degraded=tuple(degraded),
    )


def passes(item: Item, ask: Ask) -> bool:
    """Whether a fetched item lies within the namespace and passes the filter."""
    inside = item.namespace[: len(ask.prefix)] == ask.prefix
    return inside and (not ask.filter or filter_matches(item.value, ask.filter))


def _row(catalog: Catalog, memory_id: MemoryId) -> int:
    row = catalog.row(memory_id)
    if row is None:
        raise KeyError(memory_id)
    return row


def _id(item: Item) -> MemoryId:
    return item.namespace, item.key


def _cosines(
    catalog: Catalog, pools: Pages, parts: int, pool: int, degraded: list[str]
) -> tuple[FloatArray | None, float | None]:
    """Scores as a row per part, and the least of a full pool: no unseen memory has more."""
    scores = [item.score for page in pools for item in page if item.score is not None]
    finite = [score for score in scores if score == score]
    if len(finite) < len(scores):
        degraded.append("the embedder gave NaN; those memories have no dense evidence")
    if not finite or len(pools) != parts:
        return None, None
    if max(map(abs, finite)) > COSINE_LIMIT:
        degraded.append("the store's scores are no cosines; lexical only")
        return None, None
    table = np.full((parts, catalog.rows), np.nan)
    for part, page in enumerate(pools):
        for item in page:
            if item.score is not None:
                table[part, _row(catalog, _id(item))] = item.score
    is_full = all(len(page) >= pool for page in pools)
    return table, min(finite) if is_full else None


def _weighed(
    ask: Ask,
    catalog: Catalog,
    matched: Matched,
    cosines: FloatArray | None,
    null: Null,
    unseen: float | None,
) -> EvidenceTable:
    model = ask.policy.relevance
    return weigh(catalog, matched.parts, matched.wordings, cosines, null, model, unseen)


def _overlap(index: Index, ids: Sequence[MemoryId]) -> FloatArray:
    with index.lock:
        return index.catalog.lexical.overlap([_row(index.catalog, memory_id) for memory_id in ids])


# --- a store that lays a namespace open: every memory is a candidate --------------------------


def find_on_shelf(ask: Ask, shelf: Shelf, null: Null, has_vectors: bool) -> Plan[Found]:
    """Match the words, embed the parts, then weigh every memory at once."""
    matched: Matched = yield Call(lambda: _match_on(ask, shelf))
    vectors: Sequence[Sequence[float]] | None = None
    degraded: list[str] = []
    if has_vectors:
        try:
            vectors = yield Embed([part.dense_text for part in matched.parts])
        except Exception as error:
            degraded.append(f"the embedder failed ({type(error).__name__}: {error}); lexical only")
    found: Found = yield Call(lambda: _lay_open(ask, shelf, matched, vectors, null, degraded))
    return found


def _match_on(ask: Ask, shelf: Shelf) -> Matched:
    with shelf.lock:
        return match(ask, shelf.catalog)


def _lay_open(
    ask: Ask,
    shelf: Shelf,
    matched: Matched,
    vectors: Sequence[Sequence[float]] | None,
    null: Null,
    degraded: list[str],
) -> Found:
    with shelf.lock:
        catalog = shelf.catalog
        if not matched.holds_for(catalog):
            matched = match(ask, catalog)
        cosines = None if vectors is None else shelf.cosines(vectors)
        if cosines is not None and np.isnan(cosines).all():
            cosines = None
        table = _weighed(ask, catalog, matched, cosines, null, None)
        open_rows = shelf.matching(ask.filter)
        head = _head(ask, catalog, matched, table, open_rows)
        order = _tail_order(table, open_rows, head, ask.wanted - len(head))
        rows = [*head, *order]
        held = dict(zip(rows, shelf.items(rows), strict=True))
        live = [row for row in head if held[row] is not None]
        memories = [memory_of(item) for row in live if (item := held[row]) is not None]
        candidates = _candidates(catalog, matched.parts, table, live, memories)
        literal = is_literal(matched.parts)
        tail = [
            _beyond(catalog, item, table.dense[row] if literal else None)
            for row in order
            if (item := held[row]) is not None
        ]
    return Found(
        candidates=candidates,
        tail=tail,
        items={_id(item): item for item in held.values() if item is not None},
        exhausted=int(open_rows.sum()) <= len(rows),
        searched=catalog.size,
        channels={
            "dense": 0 if cosines is None else int(open_rows.sum()),
            "words": int(table.matched.sum()),
        },
        likeness=lambda ids: _similarity_on(shelf, ids),
        degraded=tuple(degraded),
    )


def _head(
    ask: Ask, catalog: Catalog, matched: Matched, table: EvidenceTable, open_rows: Any
) -> list[int]:
    """The rows that are ranked: best by what the blend reads, and best by words."""
    policy = ask.policy
    key = table.relevance if policy.blend == "bounded" else _similarities(table)
    best = [row for row in _top(np.where(open_rows, key, -np.inf), policy.pool) if open_rows[row]]
    words = [row for row in _rescued(catalog, matched.wordings, policy.rescues) if open_rows[row]]
    pinned = catalog.pinned() if ask.with_pinned else []
    required = [row for row in map(catalog.row, ask.required) if row is not None]
    return list(dict.fromkeys([*best, *words, *pinned, *required]))


def _tail_order(table: EvidenceTable, open_rows: Any, head: Iterable[int], count: int) -> list[int]:
    if count <= 0:
        return []
    rest = np.array(open_rows)
    rest[list(head)] = False
    key = np.where(rest, _similarities(table), -np.inf)
    return [row for row in _top(key, min(count, len(key))) if rest[row]]


def _similarities(table: EvidenceTable) -> FloatArray:
    """Cosines; memories without one come after all that have one, by relevance."""
    return np.where(np.isnan(table.dense), table.relevance - 3.0, table.dense)


def _similarity_on(shelf: Shelf, ids: Sequence[MemoryId]) -> FloatArray:
    with shelf.lock:
        rows = [_row(shelf.catalog, memory_id) for memory_id in ids]
        cosine = shelf.similarity(rows)
        return np.where(np.isnan(cosine), shelf.catalog.lexical.overlap(rows), cosine)


# --- both ---------------------------------------------------------------------------------------


def memory_of(item: Item) -> Memory:
    """The memory in an item."""
    return read_memory(item.namespace, item.key, item.value, item.created_at, item.updated_at)


def is_literal(parts: Sequence[Part]) -> bool:
    """Whether cosines are those of the literal cue: one part, nothing stripped from it."""
    return len(parts) == 1 and parts[0].dense_text == parts[0].text


def _beyond(catalog: Catalog, item: Item, cosine: float | None) -> Candidate:
    memory = memory_of(item)
    known = float(cosine) if cosine is not None and cosine == cosine else None
    return Candidate(memory, Evidence(), similarity=known, standing=_standing(catalog, memory))


def _candidates(
    catalog: Catalog,
    parts: Sequence[Part],
    table: EvidenceTable,
    rows: Sequence[int],
    memories: Sequence[Memory],
) -> list[Candidate]:
    if not rows:
        return []
    taken = np.array(rows)
    dense, coverage, bm25, matched, entity, episode, relevance = (
        column[taken].tolist() for column in table
    )
    cosines = [None if value != value else value for value in dense]
    scores = [score if hit else None for score, hit in zip(bm25, matched, strict=True)]
    standing = [_standing(catalog, memory) for memory in memories]
    return list(
        map(
            Candidate,
            memories,
            map(Evidence, cosines, coverage, scores, entity, episode, relevance),
            repeat(NEVER_USED),
            _ranks(cosines),
            _ranks(scores),
            cosines if is_literal(parts) else repeat(None),
            standing,
        )
    )


def _ranks(values: Sequence[float | None]) -> list[int | None]:
    """Rank from 1 by falling value; None stays None."""
    ranks: list[int | None] = [None] * len(values)
    measured = [(-value, i) for i, value in enumerate(values) if value is not None]
    for rank, (_, i) in enumerate(sorted(measured), start=1):
        ranks[i] = rank
    return ranks


def _standing(catalog: Catalog, memory: Memory) -> str | None:
    if catalog.is_superseded(memory.id):
        return "superseded"
    for parent in memory.derived_from:
        if catalog.is_superseded((memory.namespace, parent)):
            return f"derived from {parent}, which is superseded"
    return None


def with_usage(candidates: Iterable[Candidate], usages: Iterable[Usage]) -> list[Candidate]:
    """The candidates with what reads have left behind about them."""
    pairs = zip(candidates, usages, strict=True)
    return [
        candidate._replace(usage=usage) if usage.uses else candidate for candidate, usage in pairs
    ]
