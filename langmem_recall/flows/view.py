"""Reading a store that lays a namespace open: every memory is a candidate."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from langmem_recall.errors import described
from langmem_recall.flows.candidates import (
    MatchedCue,
    ReadRequest,
    ReadResult,
    beyond,
    id_of,
    is_literal,
    likeness_by,
    make_candidates,
    match,
    memory_of,
    rescued,
    top,
)
from langmem_recall.flows.effects import Call, Embed, Plan
from langmem_recall.ranking.arrays import BoolArray, FloatArray
from langmem_recall.ranking.calibration import NullDistribution
from langmem_recall.ranking.catalog import Catalog
from langmem_recall.ranking.evidence import EvidenceTable, score_evidence
from langmem_recall.sources import Shelf
from langmem_recall.types import SIDECAR_ROOT, MemoryId


def find_in_view(
    ask: ReadRequest, shelf: Shelf, null: NullDistribution, has_vectors: bool
) -> Plan[ReadResult]:
    """Match the words, embed the parts, then weigh every memory at once."""
    matched: MatchedCue = yield Call(lambda: _match_on(ask, shelf))
    vectors: Sequence[Sequence[float]] | None = None
    degraded: list[str] = []
    if has_vectors:
        try:
            vectors = yield Embed([part.dense_text for part in matched.parts])
        except Exception as error:
            degraded.append(f"the embedder failed ({described(error)}); lexical only")
    found: ReadResult = yield Call(lambda: _score_all(ask, shelf, matched, vectors, null, degraded))
    return found


def _match_on(ask: ReadRequest, shelf: Shelf) -> MatchedCue:
    with shelf.lock:
        return match(ask, shelf.catalog)


def _score_all(
    ask: ReadRequest,
    shelf: Shelf,
    matched: MatchedCue,
    vectors: Sequence[Sequence[float]] | None,
    null: NullDistribution,
    degraded: list[str],
) -> ReadResult:
    with shelf.lock:
        catalog = shelf.catalog
        if not matched.holds_for(catalog):
            matched = match(ask, catalog)
        cosines = None if vectors is None else _cosines(shelf, vectors, degraded)
        model = ask.policy.relevance
        table = score_evidence(catalog, matched.parts, matched.wordings, cosines, null, model)
        open_rows = shelf.matching(ask.filter)
        if not ask.prefix:
            open_rows = open_rows & _of_memories(catalog)
        head = _head(ask, catalog, matched, table, open_rows)
        order = _tail_order(table, open_rows, head, ask.wanted - len(head))
        rows = [*head, *order]
        held = dict(zip(rows, shelf.items(rows), strict=True))
        live = [row for row in head if held[row] is not None]
        memories = [memory_of(item) for row in live if (item := held[row]) is not None]
        candidates = make_candidates(ask, catalog, matched.parts, table, live, memories)
        literal = is_literal(matched.parts)
        tail = [
            beyond(catalog, item, table.dense[row] if literal else None)
            for row in order
            if (item := held[row]) is not None
        ]
    return ReadResult(
        candidates=candidates,
        tail=tail,
        items={id_of(item): item for item in held.values() if item is not None},
        exhausted=int(open_rows.sum()) <= len(rows),
        searched=catalog.size,
        channels={
            "dense": 0 if cosines is None else int(open_rows.sum()),
            "words": int(table.matched.sum()),
        },
        likeness=lambda ids: _similarity_on(shelf, ids),
        degraded=tuple(degraded),
    )


def _of_memories(catalog: Catalog) -> BoolArray:
    """Which rows are no records of our own, which only the empty namespace has below it."""
    homes = (catalog.id(row)[0] for row in range(catalog.rows))
    return np.fromiter((home[0] != SIDECAR_ROOT for home in homes), np.bool_, catalog.rows)


def _cosines(
    shelf: Shelf, vectors: Sequence[Sequence[float]], degraded: list[str]
) -> FloatArray | None:
    """Cosines of every memory; None, and why, where the vectors are of no use."""
    try:
        is_finite = bool(np.isfinite(np.asarray(vectors, np.float64)).all())
        cosines = shelf.cosines(vectors)
    except Exception as error:
        degraded.append(f"the embedder's vectors are of no use ({described(error)}); lexical only")
        return None
    if not is_finite:
        degraded.append("the embedder gave NaN or infinity; no dense evidence from that")
    return None if np.isnan(cosines).all() else cosines


def _head(
    ask: ReadRequest,
    catalog: Catalog,
    matched: MatchedCue,
    table: EvidenceTable,
    open_rows: BoolArray,
) -> list[int]:
    """The rows that are ranked: best by what the blend reads, and best by words."""
    policy = ask.policy
    key = table.relevance if policy.blend == "bounded" else _similarities(table)
    best = [row for row in top(np.where(open_rows, key, -np.inf), policy.pool) if open_rows[row]]
    words = [row for row in rescued(catalog, matched.wordings, policy.rescues) if open_rows[row]]
    pinned = catalog.pinned() if ask.with_pinned else []
    required = [row for row in map(catalog.row, ask.required) if row is not None]
    return list(dict.fromkeys([*best, *words, *pinned, *required]))


def _tail_order(
    table: EvidenceTable, open_rows: BoolArray, head: Iterable[int], count: int
) -> list[int]:
    if count <= 0:
        return []
    rest = np.array(open_rows)
    rest[list(head)] = False
    key = np.where(rest, _similarities(table), -np.inf)
    return [row for row in top(key, min(count, len(key))) if rest[row]]


def _similarities(table: EvidenceTable) -> FloatArray:
    """Cosines; memories without one come after all that have one, by relevance."""
    return np.where(np.isnan(table.dense), table.relevance - 3.0, table.dense)


def _similarity_on(shelf: Shelf, ids: Sequence[MemoryId]) -> FloatArray:
    def measure(rows: Sequence[int]) -> FloatArray:
        cosine = shelf.similarity(rows)
        return np.where(np.isnan(cosine), shelf.catalog.lexical.overlap(rows), cosine)

    with shelf.lock:
        return likeness_by(measure, shelf.catalog, ids)
