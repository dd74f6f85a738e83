"""A LocalStore as a backend: a namespace lies open in memory, so every memory is a candidate."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
    is_short,
    likeness_in,
    make_pool,
    match,
    pool_of,
    standings,
    top,
    unscored,
)
from langmem_recall.flows.effects import Call, Embed, Ops, Plan
from langmem_recall.flows.usage import UsageBackend, UsageBatch, checked_usage
from langmem_recall.ranking.arrays import BoolArray, FloatArray
from langmem_recall.ranking.calibration import DEFAULT_NULL
from langmem_recall.ranking.catalog import Catalog
from langmem_recall.ranking.evidence import (
    EvidenceTable,
    Window,
    rows_in_reach,
    score_evidence,
)
from langmem_recall.ranking.pool import Pool, Standing
from langmem_recall.stores.backend import Clock, GenericBackend
from langmem_recall.stores.local.embedder import Floats
from langmem_recall.stores.local.store import LocalStore
from langmem_recall.stores.local.view import LocalView
from langmem_recall.types import SIDECAR_ROOT, Memory, MemoryId, Namespace, Usage

FEW = 30_000
"""Up to so many rows it takes longer to choose which to score than to score them all."""


class LocalUsage(UsageBackend):
    """Usage kept by the store itself, with atomic additions; a table answers by id."""

    def __init__(self, store: LocalStore) -> None:
        self._store = store

    @property
    def version(self) -> object:
        """That of the file, which a read looks at when it begins."""
        return self._store.seen_version

    def read(self, ids: Sequence[MemoryId]) -> Plan[list[Usage]]:
        """Usage of these memories from the file."""
        found: list[Usage] = yield Call(lambda: self._store.read_usage(ids))
        return [checked_usage(usage, key) for usage, (_, key) in zip(found, ids, strict=True)]

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
        scale = 1
        while True:
            yield Call(partial(search.look, scale))
            looked_at, barred = list(search.live.values()), set[MemoryId]()
            if not gate.passes_all(looked_at, search.standings is not None):
                barred = yield from gate.judge(unscored(looked_at, search.standings))
            if not barred or not is_short(search.rankings(), barred, scale):
                return search.result(barred)
            scale *= 2

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
    """One read of a view: measured once, then looked at as far down as needed."""

    def __init__(self, request: ReadRequest, view: LocalView) -> None:
        self.vectors: Any = None
        self.null = DEFAULT_NULL
        self.degraded: list[str] = []
        self._request, self._view = request, view
        self.live: dict[int, Memory] = {}
        """Memories that were looked at, by row."""
        self.standings: list[Standing] | None = None
        """What others put each of them out of force; None where no memory does."""
        self._measured: tuple[Catalog, int] | None = None
        """What was measured, and its version: in another one rows have another meaning."""

    def match(self) -> None:
        """Match the words of the cue."""
        with self._view.lock:
            self.matched = match(self._request, self._view.catalog)

    def look(self, scale: int) -> None:
        """The best by what the blend reads and by words, and what a page reaches down to."""
        request, view, policy = self._request, self._view, self._request.policy
        with view.lock:
            catalog = view.catalog
            if self._measured != (catalog, catalog.version):
                self._measure()
            matched = self.matched
            visible, pool = self._visible, scale * policy.pool
            is_bounded = policy.blend == "bounded"
            # A page that the head has all of needs no rows beyond.
            reach = scale * request.wanted if request.wanted > policy.pool else 0
            nearest = self._by_similarity(reach if is_bounded else max(reach, pool))
            self._worded = best_by_words(matched.wordings, visible, scale * policy.rescues)
            pinned = catalog.pinned() if request.with_pinned else []
            required = [row for row in map(catalog.row, request.required) if row is not None]
            self._always = [*pinned, *required]
            self._best, self._nearest = nearest[:pool], nearest[:reach]
            table, rows = self._table, None
            if table is None:
                # Of memories that stand alone only those are scored that may come out on top.
                others = np.array([*nearest, *self._worded, *self._always], np.intp)
                if is_bounded:
                    parts, wordings, cosines = matched.parts, matched.wordings, self._cosines
                    reached = rows_in_reach(
                        catalog, parts, wordings, cosines, self.null, visible, pool
                    )
                    others = np.concatenate((reached, others))
                rows = np.unique(others)
                exact = self._cosines[:, rows].astype(np.float64)
                table = self._score(Window(catalog, rows), exact)
            if is_bounded:
                among = visible if rows is None else visible[rows]
                self._best = _top_among(among, table.score, pool)
                self._best = self._best if rows is None else rows[self._best].tolist()
            looked_at = {*self._best, *self._worded, *self._nearest, *self._always}
            self.live.update(view.memories(list(looked_at - self.live.keys())))
            self.standings = standings(catalog, self.live.values())
            self._scored = table, rows

    def rankings(self) -> list[tuple[int, list[Memory]]]:
        """How many are wanted of what the last look has found, best first."""
        policy, live = self._request.policy, self.live
        wanted = self._request.wanted if self._nearest else 0
        counts = (policy.pool, policy.rescues, wanted, 0)
        found = zip(counts, (self._best, self._worded, self._nearest, self._always), strict=True)
        return [(count, [live[row] for row in rows if row in live]) for count, rows in found]

    def result(self, barred: set[MemoryId]) -> ReadResult:
        """The head with its evidence, and what is beyond it."""
        policy, barred_rows = self._request.policy, set[int]()
        if barred:
            barred_rows = {row for row, memory in self.live.items() if memory.id in barred}
        best = pool_of(self._best, policy.pool, barred_rows)
        rescued = pool_of(self._worded, policy.rescues, barred_rows)
        head = dict.fromkeys([*best, *rescued, *self._always])
        tail = [row for row in self._nearest if row not in head and row not in barred_rows]
        worded = [wording.worded for wording in self.matched.wordings]
        return ReadResult(
            head=self._pool(head),
            tail=self._pool(tail).candidates() if tail else [],
            searched=self._size,
            channels={
                "dense": int(np.count_nonzero(self._visible)) if self._has_cosines else 0,
                "words": len(worded[0] if len(worded) == 1 else np.unique(np.concatenate(worded))),
            },
            likeness=partial(likeness_in, self._view),
            degraded=tuple(self.degraded),
            is_judged=True,
        )

    def _pool(self, rows: Iterable[int]) -> Pool:
        """Memories of the last look with their evidence."""
        live, (table, scored) = self.live, self._scored
        found = [row for row in rows if row in live]
        standing = self.standings and dict(zip(live, self.standings, strict=True))
        reasons = [standing[row] for row in found] if standing else None
        places: Any = found if scored is None else np.searchsorted(scored, found)
        memories = [live[row] for row in found]
        return make_pool(self.matched, table, places, memories, reasons, self._request.detailed)

    def _measure(self) -> None:
        """Cosines of every memory, and all evidence where a memory's depends on its neighbours."""
        request, view = self._request, self._view
        catalog = view.catalog
        self._measured = catalog, catalog.version
        self.live, self.standings = {}, None
        if self.matched.version != catalog.version or self.matched.catalog is not catalog:
            # The rows no longer mean what they meant when the words were matched.
            self.matched = match(request, catalog)
        self._visible, self._size = view.matching(request.filter), catalog.size
        if not request.prefix:
            # Only the empty namespace has records of our own below it.
            roots = (catalog.id(row)[0][0] for row in range(catalog.rows))
            own = np.fromiter((root == SIDECAR_ROOT for root in roots), np.bool_, catalog.rows)
            self._visible &= ~own
        cosines = None
        if self.vectors is not None:
            cosines, self.vectors = _cosines(view, self.vectors, self.degraded)
        self._has_cosines, self._table = cosines is not None, None
        self._cosines: Any = cosines
        window = Window(catalog)
        is_rough = (
            window.count > FEW
            and window.order is None
            and cosines is not None
            and not np.isnan(cosines.min())
            and all(part.repeats for part in self.matched.parts)
        )
        if not is_rough:
            exact = None if cosines is None else cosines.astype(np.float64)
            self._table = self._score(window, exact)

    def _score(self, window: Window, cosines: FloatArray | None) -> EvidenceTable:
        return score_evidence(
            window,
            self.matched.parts,
            self.matched.wordings,
            cosines,
            self.null,
            vectors=self.vectors,
            among=self._view.vector_count,
            detailed=self._request.detailed,
        )

    def _by_similarity(self, count: int) -> list[int]:
        """The most similar rows; those without a cosine after all that have one, by relevance."""
        if not count:
            return []
        if self._table is None:
            return _top_among(self._visible, self._cosines.max(axis=0), count)
        similarities = self._table.dense
        missing = np.isnan(similarities)
        if missing.any():
            similarities = np.where(missing, self._table.relevance - 3.0, similarities)
        return _top_among(self._visible, similarities, count)


def _top_among(visible: BoolArray, values: Any, count: int) -> list[int]:
    if visible.all():
        return top(values, count)
    return [row for row in top(np.where(visible, values, -np.inf), count) if visible[row]]


def _cosines(
    view: LocalView, given: Sequence[Sequence[float]], degraded: list[str]
) -> tuple[Floats | None, FloatArray | None]:
    """Cosines of every memory, and the vectors; None, and why, where those are of no use."""
    try:
        vectors = np.asarray(given, np.float64)
        cosines = view.cosines(vectors)
    except Exception as error:
        degraded.append(f"the embedder's vectors are of no use ({described(error)}); lexical only")
        return None, None
    # Where the first memory has a cosine with each, as it mostly does, each is sound.
    if cosines.size and not np.isnan(cosines[:, 0]).any():
        return cosines, vectors
    if not np.isfinite(vectors).all():
        degraded.append("the embedder gave NaN or infinity; no dense evidence from that")
    return (None, None) if np.isnan(cosines).all() else (cosines, vectors)
