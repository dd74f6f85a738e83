"""A LocalStore as a backend: a namespace lies open in memory, so every memory is a candidate."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from langmem_recall.errors import described
from langmem_recall.flows.backend import OnProgress
from langmem_recall.flows.candidates import (
    MatchedCue,
    NamespaceView,
    ReadRequest,
    ReadResult,
    best_by_words,
    beyond,
    id_of,
    likeness_in,
    make_candidates,
    match,
    memory_of,
    top,
)
from langmem_recall.flows.effects import Call, Embed, Plan
from langmem_recall.flows.usage import UsageBackend, UsageBatch, checked_usage
from langmem_recall.ranking.arrays import FloatArray
from langmem_recall.ranking.calibration import NullDistribution
from langmem_recall.ranking.evidence import score_evidence
from langmem_recall.stores.backend import Clock, GenericBackend
from langmem_recall.stores.local.store import LocalStore
from langmem_recall.stores.local.view import LocalView
from langmem_recall.types import SIDECAR_ROOT, MemoryId, Namespace, Usage


class LocalUsage(UsageBackend):
    """Usage kept by the store itself, with atomic additions."""

    def __init__(self, store: LocalStore) -> None:
        self._store = store

    def read(self, ids: Sequence[MemoryId]) -> Plan[list[Usage]]:
        """Usage of these memories."""
        found: list[Usage] = yield Call(lambda: self._store.read_usage(ids))
        return [checked_usage(usage, key) for (_, key), usage in zip(ids, found, strict=True)]

    def read_below(self, prefix: Namespace) -> Plan[dict[MemoryId, Usage] | None]:
        """A table answers by id, always up to date with other processes."""
        yield from ()
        return None

    def add(self, batch: UsageBatch, fade_per_day: float) -> Plan[dict[MemoryId, Usage]]:
        """Add uses in one transaction."""
        ids = list(batch.touches)
        write = partial(self._store.add_usage, batch.touches, fade_per_day)
        yield Call(lambda: batch.write_once(write))
        after = yield from self.read(ids)
        return dict(zip(ids, after, strict=True))

    def drop(self, ids: Sequence[MemoryId]) -> Plan[None]:
        """Forget the usage of these memories."""
        yield Call(lambda: self._store.drop_usage(ids))

    def drop_below(self, prefix: Namespace) -> Plan[int]:
        """Forget all usage at or below a namespace."""
        count: int = yield Call(lambda: self._store.drop_usage_below(prefix))
        return count


class LocalBackend(GenericBackend):
    """A LocalStore: all words and vectors of a namespace in memory, usage in its own table."""

    queries_as_documents = False
    holds_words = True
    embeds_phrasings = True
    takes_vectors = True
    store: LocalStore

    def __init__(self, store: LocalStore, clock: Clock, index_limit: int, max_age_s: float) -> None:
        super().__init__(store, clock, index_limit, max_age_s)
        self.usage = LocalUsage(store)

    def view(self, prefix: Namespace) -> Plan[NamespaceView]:
        """Everything at or below a namespace, loaded and up to date."""
        view: LocalView = yield Call(lambda: self.store.shelf(prefix))
        return view

    def find(self, request: ReadRequest, view: Any, null: NullDistribution) -> Plan[ReadResult]:
        """Match the words, embed the parts, then score every memory at once."""
        if view is None:
            return (yield from super().find(request, view, null))
        matched: MatchedCue = yield Call(partial(_match, request, view))
        vectors: Sequence[Sequence[float]] | None = None
        degraded: list[str] = []
        if self.has_vectors:
            try:
                vectors = yield Embed([part.dense_text for part in matched.parts])
            except Exception as error:
                degraded.append(f"the embedder failed ({described(error)}); lexical only")
        score = partial(_score_all, request, view, matched, vectors, null, degraded)
        found: ReadResult = yield Call(score)
        return found

    def without_vectors(
        self, prefix: Namespace, probe: Sequence[float]
    ) -> Plan[list[MemoryId] | None]:
        """Memories that the embedder has failed on so far."""
        view: Any = yield from self.view(prefix)
        with view.lock:
            bare = np.flatnonzero(view.catalog.alive & np.isnan(view.cosines([probe])[0]))
            ids = [view.catalog.id(row) for row in bare.tolist()]
        return [memory_id for memory_id in ids if memory_id[0][0] != SIDECAR_ROOT]

    def reindex(self, progress: OnProgress | None, batch: int) -> Plan[int]:
        """Make every vector anew; the store itself chooses how many at a time."""
        count: int = yield Call(lambda: self.store.reindex(progress))
        return count

    def erase(self, prefix: Namespace) -> Plan[int | None]:
        """Delete everything at or below a namespace, expired items too."""
        count: int = yield Call(lambda: self.store.erase(prefix))
        return count

    def compact(self) -> bool:
        """Rewrite the file without what was deleted; False when a reader stood in the way."""
        return self.store.compact()


def _match(request: ReadRequest, view: LocalView) -> MatchedCue:
    with view.lock:
        return match(request, view.catalog)


def _score_all(
    request: ReadRequest,
    view: LocalView,
    matched: MatchedCue,
    vectors: Sequence[Sequence[float]] | None,
    null: NullDistribution,
    degraded: list[str],
) -> ReadResult:
    with view.lock:
        catalog = view.catalog
        if matched.version != catalog.version or matched.catalog is not catalog:
            # The rows no longer mean what they meant when the words were matched.
            matched = match(request, catalog)
        cosines = None if vectors is None else _cosines(view, vectors, degraded)
        model = request.policy.relevance
        table = score_evidence(catalog, matched.parts, matched.wordings, cosines, null, model)
        visible = view.matching(request.filter)
        if not request.prefix:
            # Only the empty namespace has records of our own below it.
            roots = (catalog.id(row)[0][0] for row in range(catalog.rows))
            visible &= np.fromiter((root != SIDECAR_ROOT for root in roots), np.bool_, catalog.rows)
        # Memories without a cosine come after all that have one, by relevance.
        similarities = np.where(np.isnan(table.dense), table.relevance - 3.0, table.dense)
        # The rows that are ranked: best by what the blend reads, and best by words.
        policy = request.policy
        key = table.relevance if policy.blend == "bounded" else similarities
        best = top(np.where(visible, key, -np.inf), policy.pool)
        best += best_by_words(catalog, matched.wordings, policy.rescues)
        pinned = catalog.pinned() if request.with_pinned else []
        required = [row for row in map(catalog.row, request.required) if row is not None]
        shown = [row for row in best if visible[row]]
        head = list(dict.fromkeys([*shown, *pinned, *required]))
        rest = np.array(visible)
        rest[head] = False
        wanted = request.wanted - len(head)
        beyond_head = top(np.where(rest, similarities, -np.inf), wanted) if wanted > 0 else []
        order = [row for row in beyond_head if rest[row]]
        items = zip([*head, *order], view.items([*head, *order]), strict=True)
        live = {row: item for row, item in items if item is not None}
        rows = [row for row in head if row in live]
        memories = [memory_of(live[row]) for row in rows]
        dense = 0 if cosines is None else int(visible.sum())
        return ReadResult(
            candidates=make_candidates(request, matched, table, rows, memories),
            tail=[
                beyond(catalog, live[row], table.dense[row] if matched.is_literal else None)
                for row in order
                if row in live
            ],
            items={id_of(item): item for item in live.values()},
            exhausted=int(visible.sum()) <= len(head) + len(order),
            searched=catalog.size,
            channels={"dense": dense, "words": int(table.matched.sum())},
            likeness=partial(likeness_in, view),
            degraded=tuple(degraded),
        )


def _cosines(
    view: LocalView, vectors: Sequence[Sequence[float]], degraded: list[str]
) -> FloatArray | None:
    """Cosines of every memory; None, and why, where the vectors are of no use."""
    try:
        is_finite = bool(np.isfinite(np.asarray(vectors, np.float64)).all())
        cosines = view.cosines(vectors)
    except Exception as error:
        degraded.append(f"the embedder's vectors are of no use ({described(error)}); lexical only")
        return None
    if not is_finite:
        degraded.append("the embedder gave NaN or infinity; no dense evidence from that")
    return None if np.isnan(cosines).all() else cosines
