"""A LocalStore as a backend: a namespace lies open in memory, so every memory is a candidate."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from langmem_recall.deadline import at_most
from langmem_recall.embeddings import LocalEmbeddings, embeds_alike
from langmem_recall.errors import described
from langmem_recall.flows.backend import ENOUGH, Null, OnProgress
from langmem_recall.flows.candidates import (
    Gate,
    NamespaceView,
    ReadRequest,
    ReadResult,
    best_by_words,
    likeness_in,
    look_past,
    make_candidates,
    match,
    pool_of,
    top,
)
from langmem_recall.flows.effects import Call, Embed, Ops, Plan
from langmem_recall.flows.usage import MOST_KNOWN, UsageBackend, UsageBatch, checked_usage
from langmem_recall.ranking.arrays import BoolArray, FloatArray
from langmem_recall.ranking.calibration import DEFAULT_NULL
from langmem_recall.ranking.catalog import Catalog
from langmem_recall.ranking.evidence import score_evidence
from langmem_recall.stores.backend import Clock, GenericBackend
from langmem_recall.stores.local.store import LocalStore
from langmem_recall.stores.local.view import LocalView
from langmem_recall.types import SIDECAR_ROOT, Candidate, MemoryId, Namespace, Usage


class LocalUsage(UsageBackend):
    """Usage kept by the store itself, with atomic additions."""

    def __init__(self, store: LocalStore) -> None:
        self._store = store
        self._known: tuple[Any, dict[MemoryId, Usage]] = (None, {})
        """What was read in one version of the file."""

    def read(self, ids: Sequence[MemoryId]) -> Plan[list[Usage]]:
        """Usage of these memories; from the file where that has changed in the meantime."""
        found: list[Usage] = yield Call(lambda: self._read(ids))
        return found

    def _read(self, ids: Sequence[MemoryId]) -> list[Usage]:
        version = self._store.version()
        if version != self._known[0] or len(self._known[1]) > MOST_KNOWN:
            # A new dict: another thread may still add to the former one what is no longer so.
            self._known = version, {}
        known = self._known[1]
        found = list(map(known.get, ids))
        if None in found:
            missing = [memory_id for memory_id in ids if memory_id not in known]
            for memory_id, usage in zip(missing, self._store.read_usage(missing), strict=True):
                known[memory_id] = checked_usage(usage, memory_id[1])
            found = [known[memory_id] for memory_id in ids]
        return found  # type: ignore[return-value]

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
    at_a_time = 2
    store: LocalStore

    def __init__(self, store: LocalStore, clock: Clock, index_limit: int, max_age_s: float) -> None:
        super().__init__(store, clock, index_limit, max_age_s)
        self.usage = LocalUsage(store)
        # Its own async methods are its sync ones in a thread.
        self.in_thread = (Ops, Embed) if isinstance(self.embeddings, LocalEmbeddings) else (Ops,)

    @property
    def refreshes_ttl(self) -> bool:
        """Only where its configuration says so."""
        return bool((self.store.ttl_config or {}).get("refresh_on_read"))

    def view(self, prefix: Namespace) -> Plan[NamespaceView]:
        """Everything at or below a namespace, loaded and up to date."""
        view: LocalView = yield Call(lambda: self.store.shelf(prefix))
        return view

    def find(self, request: ReadRequest, view: Any, null: Null, gate: Gate) -> Plan[ReadResult]:
        """Match the words, embed the parts, then score every memory at once."""
        if view is None:
            return (yield from super().find(request, view, null, gate))
        search = _Search(request, view)
        yield Call(search.match)
        if self.has_vectors:
            texts = [each.dense_text for each in search.matched.parts]
            as_queries = len(texts) == 1 or not embeds_alike(self.embeddings)
            try:
                with at_most(ENOUGH):
                    search.vectors = yield Embed(texts, as_queries)
            except Exception as error:
                search.degraded.append(f"the embedder failed ({described(error)}); lexical only")
        if search.vectors is not None:
            search.null = yield from null()

        def look(scale: int) -> Plan[list[tuple[int, list[Candidate]]]]:
            rankings = yield Call(partial(search.look, scale))
            return rankings  # type: ignore[no-any-return]

        barred = yield from look_past(gate, look)
        return search.result(barred)

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


class _Search:
    """One read of a view: every memory is scored once, then looked at as far down as needed."""

    def __init__(self, request: ReadRequest, view: LocalView) -> None:
        self.vectors: Sequence[Sequence[float]] | None = None
        self.null = DEFAULT_NULL
        self.degraded: list[str] = []
        self._request, self._view = request, view
        self._live: dict[int, Candidate] = {}
        """Memories that were looked at, by row."""
        self._scored: Catalog | None = None
        """What was scored; in another catalog rows have another meaning."""

    def match(self) -> None:
        """Match the words of the cue."""
        with self._view.lock:
            self.matched = match(self._request, self._view.catalog)

    def look(self, scale: int) -> list[tuple[int, list[Candidate]]]:
        """The best by what the blend reads and by words, and what a page reaches down to."""
        request, view, policy = self._request, self._view, self._request.policy
        with view.lock:
            if self._scored is not view.catalog:
                self._score()
            visible, pool = self._visible, scale * policy.pool
            is_bounded = policy.blend == "bounded"
            best = _top_among(visible, self._table.score, pool) if is_bounded else None
            self._best = self._by_similarity(pool) if best is None else best
            self._worded = best_by_words(self.matched.wordings, visible, scale * policy.rescues)
            # A page that the head has all of needs no rows beyond.
            reach = scale * request.wanted if request.wanted > policy.pool else 0
            self._nearest = self._by_similarity(reach)
            pinned = view.catalog.pinned() if request.with_pinned else []
            required = [row for row in map(view.catalog.row, request.required) if row is not None]
            self._always = [*pinned, *required]
            looked_at = {*self._best, *self._worded, *self._nearest, *self._always}
            new = list(looked_at - self._live.keys())
            read = zip(new, view.memories(new), strict=True)
            found = {row: memory for row, memory in read if memory is not None}
            made = make_candidates(self.matched, self._table, list(found), list(found.values()))
            self._live.update(zip(found, made, strict=True))
        rankings = (
            (policy.pool, self._best),
            (policy.rescues, self._worded),
            (request.wanted if reach else 0, self._nearest),
            (0, self._always),
        )
        return [
            (count, [self._live[row] for row in rows if row in self._live])
            for count, rows in rankings
        ]

    def result(self, barred: set[MemoryId]) -> ReadResult:
        """The head with its evidence, and what is beyond it."""
        live, policy = self._live, self._request.policy
        barred_rows = {row for row, one in live.items() if barred and one.memory.id in barred}
        head = dict.fromkeys(
            [
                *pool_of(self._best, policy.pool, barred_rows),
                *pool_of(self._worded, policy.rescues, barred_rows),
                *self._always,
            ]
        )
        return ReadResult(
            candidates=[live[row] for row in head if row in live],
            tail=[
                live[row]
                for row in self._nearest
                if row in live and row not in head and row not in barred_rows
            ],
            searched=self._size,
            channels={
                "dense": int(np.count_nonzero(self._visible)) if self._has_cosines else 0,
                "words": int(np.count_nonzero(self._table.matched)),
            },
            likeness=partial(likeness_in, self._view),
            degraded=tuple(self.degraded),
            is_judged=True,
        )

    def _score(self) -> None:
        request, view = self._request, self._view
        catalog = view.catalog
        if self.matched.version != catalog.version or self.matched.catalog is not catalog:
            # The rows no longer mean what they meant when the words were matched.
            self.matched = match(request, catalog)
        self._live.clear()
        matched, given = self.matched, self.vectors
        cosines, vectors = (None, None) if given is None else _cosines(view, given, self.degraded)
        table = score_evidence(
            catalog,
            matched.parts,
            matched.wordings,
            cosines,
            self.null,
            vectors=vectors,
            among=view.vector_count,
        )
        visible = view.matching(request.filter)
        if not request.prefix:
            # Only the empty namespace has records of our own below it.
            roots = (catalog.id(row)[0][0] for row in range(catalog.rows))
            visible &= np.fromiter((root != SIDECAR_ROOT for root in roots), np.bool_, catalog.rows)
        self._table, self._visible, self._has_cosines = table, visible, cosines is not None
        self._scored, self._size = catalog, catalog.size

    def _by_similarity(self, count: int) -> list[int]:
        """The most similar rows; those without a cosine after all that have one, by relevance."""
        similarities = self._table.dense
        if count and np.isnan(similarities).any():
            missing = np.isnan(similarities)
            similarities = np.where(missing, self._table.relevance - 3.0, similarities)
        return _top_among(self._visible, similarities, count)


def _top_among(visible: BoolArray, values: FloatArray, count: int) -> list[int]:
    if not count:
        return []
    if visible.all():
        return top(values, count)
    return [row for row in top(np.where(visible, values, -np.inf), count) if visible[row]]


def _cosines(
    view: LocalView, given: Sequence[Sequence[float]], degraded: list[str]
) -> tuple[FloatArray | None, FloatArray | None]:
    """Cosines of every memory, and the vectors; None, and why, where those are of no use."""
    try:
        vectors = np.asarray(given, np.float64)
        cosines = view.cosines(vectors)
    except Exception as error:
        degraded.append(f"the embedder's vectors are of no use ({described(error)}); lexical only")
        return None, None
    if not np.isfinite(vectors).all():
        degraded.append("the embedder gave NaN or infinity; no dense evidence from that")
    has_any = not np.isnan(cosines[:, :1]).all() or not np.isnan(cosines).all()
    return (cosines, vectors) if has_any else (None, None)
