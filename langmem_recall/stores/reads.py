"""How `RecallStore` reads: pages of a ranking, recalls and explanations, each as a plan."""

from __future__ import annotations

import json
import logging
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from copy import deepcopy
from dataclasses import replace
from datetime import datetime
from functools import partial
from time import perf_counter
from typing import Any, NamedTuple, cast

from langchain_core.embeddings import Embeddings
from langgraph.store.base import (
    BaseStore,
    GetOp,
    Item,
    ListNamespacesOp,
    SearchItem,
    SearchOp,
    validate_op_namespace,
)
from langgraph.store.memory import InMemoryStore

from langmem_recall.errors import InputError, RecallError, described
from langmem_recall.filters import check_filter
from langmem_recall.flows.candidates import (
    ReadRequest,
    ReadResult,
    id_of,
    joint_likeness,
    memories_at,
    memory_of,
)
from langmem_recall.flows.duplicates import Words
from langmem_recall.flows.effects import Call, Ops, Plan
from langmem_recall.flows.quarantine import Decisions, Quarantine, withheld
from langmem_recall.flows.rerank import Reranker
from langmem_recall.flows.search import Fetch, fetch_with_ops, find_by_search
from langmem_recall.flows.view import find_in_view
from langmem_recall.memory.conflicts import conflicts
from langmem_recall.policy import RecallPolicy
from langmem_recall.ranking.calibration import NullDistribution
from langmem_recall.ranking.gates import GateContext, as_believed_at, hard_drop
from langmem_recall.ranking.pipeline import Likeness, mmr_order, rank, select
from langmem_recall.sources import EvidenceSource, Shelf
from langmem_recall.stores.calibrations import Calibrations
from langmem_recall.stores.index import Filler, IndexCache, NamespaceIndex
from langmem_recall.stores.ledger import NEVER, Ledger
from langmem_recall.stores.postgres.database import database_of
from langmem_recall.stores.postgres.search import PostgresReads
from langmem_recall.text.language import language_of
from langmem_recall.text.temporal import read_as_of, read_temporal
from langmem_recall.types import (
    SIDECAR_ROOT,
    Candidate,
    Cue,
    Explanation,
    Memory,
    MemoryId,
    Namespace,
    Recall,
    Scored,
    Signals,
    Trace,
    View,
)

logger = logging.getLogger(__name__)


MOST_RANKINGS = 256
KEPT_SECONDS = 60.0


class _Kept:
    def __init__(self, ranked: Sequence[Scored], now: float, page: range) -> None:
        self.ranked = ranked
        self.since = now
        self.served = [page]


class PageKeeper:
    """Remembers the order behind the first page asked for, so that the next one continues it.

    A page that overlaps one already served starts a new ranking: a caller that asks again
    wants to see what has changed.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, _Kept] = OrderedDict()

    def continued(
        self, key: Hashable, page: range, ranked: Sequence[Scored], now: float
    ) -> list[Scored]:
        """The ranking in the order its earlier pages had; memories new since then come last."""
        with self._lock:
            kept = self._kept.get(key)
            if kept is None or now - kept.since > KEPT_SECONDS or _overlaps(page, kept.served):
                self._kept[key] = _Kept(ranked, now, page)
                self._kept.move_to_end(key)
                self._forget_oldest()
                return list(ranked)
            kept.served.append(page)
        place = {scored.memory.id: i for i, scored in enumerate(kept.ranked)}
        return sorted(ranked, key=lambda scored: place.get(scored.memory.id, len(place)))

    def _forget_oldest(self) -> None:
        while len(self._kept) > MOST_RANKINGS:
            self._kept.popitem(last=False)


def _overlaps(page: range, served: Sequence[range]) -> bool:
    return any(page.start < other.stop and other.start < page.stop for other in served)


_PLAIN = (str, int, float, type(None))


class RankedItem(SearchItem):
    """A `SearchItem` with what its score is made of."""

    __slots__ = ("signals", "similarity")

    similarity: float | None
    """Cosine of the literal query, or None where it was not measured."""
    signals: Signals | None
    """The signals behind the score; None beyond the re-ranked head."""


def ranked_item(item: Item, candidate: Candidate, scored: Scored | None) -> RankedItem:
    """A result from a stored item; without a score where it lies beyond the head."""
    result = RankedItem(
        namespace=item.namespace,
        key=item.key,
        # A copy, because it may be the very value that a store or an index keeps.
        value={name: _copied(held) for name, held in item.value.items()},
        created_at=item.created_at,
        updated_at=item.updated_at,
        score=scored.score if scored else None,
    )
    result.similarity = candidate.similarity
    result.signals = scored.signals if scored else None
    return result


def _copied(held: Any) -> Any:
    """Plain texts and numbers, of which most values consist, cannot be changed by anyone."""
    if isinstance(held, _PLAIN):
        return held
    try:
        return deepcopy(held)
    except RecursionError:
        # Nested deeper than `put` lets in: handed out as it is rather than not at all.
        return held


class Knobs(NamedTuple):
    """I/O knobs of a `RecallStore` that reading needs."""

    index_limit: int
    index_max_age: float
    allow_empty_namespace: bool


class Reader:
    """The reading half of a `RecallStore`; plans only, carried out by its owner."""

    def __init__(
        self,
        inner: BaseStore,
        ledger: Ledger,
        quarantine: Quarantine,
        clock: Callable[[], datetime],
        knobs: Knobs,
        reranker: Reranker | None = None,
    ) -> None:
        self._inner = inner
        self._reranker = reranker
        # Asked once: whether an object follows a protocol takes longer than ranking ten memories.
        self._source = inner if isinstance(inner, EvidenceSource) else None
        self._has_vectors = has_vectors(inner)
        self._ledger = ledger
        self._quarantine = quarantine
        self._clock = clock
        self._knobs = knobs
        self._pages = PageKeeper()
        self.indexes = IndexCache()
        database = database_of(inner)
        self._reads = None if database is None else PostgresReads(database)
        limit, max_age = knobs.index_limit, knobs.index_max_age
        self._filler = Filler(self.indexes, clock, limit, max_age, self._reads)
        self._calibrations = Calibrations()
        self._reported: tuple[str, ...] = ()

    def plain_search(self, op: SearchOp, include: frozenset[str]) -> Plan[list[SearchItem]]:
        """The inner store's own answer, without our side-car and what no reader may see."""
        self.check_prefix(op.namespace_prefix)
        if self._reads is not None and op.refresh_ttl:
            yield from self._reads.settle()
        fetch, end = op.offset + op.limit, op.offset + op.limit
        # Earlier pages are fetched again to count what is left out; they must not live longer.
        refresh = op.refresh_ttl and not op.offset
        while True:
            asked = op._replace(offset=0, limit=fetch, refresh_ttl=refresh)
            (items,) = yield Ops([asked])
            inside = within(op.namespace_prefix, items)
            visible = yield from self._readable(inside, include)
            if len(visible) >= end or len(items) < fetch:
                break
            fetch = 2 * fetch + len(items) - len(visible)
        page = visible[op.offset : end]
        if op.refresh_ttl and not refresh and page:
            yield Ops([GetOp(*one, refresh_ttl=True) for one in sorted(map(id_of, page))])
        return page

    def _readable(
        self, items: Sequence[SearchItem], include: frozenset[str]
    ) -> Plan[list[SearchItem]]:
        """Items of memories in force, and of those that the reader asked for besides."""
        memories = {id_of(item): memory_of(item) for item in items}
        barred = yield from self._barred(memories.values())
        shown = {"active", *include}
        return [
            item
            for item in items
            if ("quarantined" if id_of(item) in barred else memories[id_of(item)].status) in shown
        ]

    def memories(self, ids: Sequence[MemoryId]) -> Plan[list[Memory | None]]:
        """Memories by their names; None for one that is gone, or that no reader may see."""
        found = yield from memories_at(ids)
        barred = yield from self._barred(found.values())
        readable = (None if one in barred else found.get(one) for one in ids)
        return [one if one is None or one.status != "quarantined" else None for one in readable]

    def _barred(self, memories: Iterable[Memory]) -> Plan[Decisions]:
        waiting = [memory for memory in memories if memory.status != "quarantined"]
        return (yield from self._quarantine.barred(waiting, self._clock().timestamp()))

    def namespaces(self, op: ListNamespacesOp) -> Plan[list[Namespace]]:
        """Namespaces as the inner store lists them, without our side-car."""
        end, fetch = op.offset + op.limit, op.offset + op.limit + 1
        while True:
            (found,) = yield Ops([op._replace(offset=0, limit=fetch)])
            visible = [namespace for namespace in found if namespace[:1] != (SIDECAR_ROOT,)]
            if len(visible) >= end or len(found) < fetch:
                return visible[op.offset : end]
            fetch = 2 * fetch + len(found) - len(visible)

    def search(
        self, op: SearchOp, policy: RecallPolicy, include: frozenset[str]
    ) -> Plan[list[SearchItem]]:
        """One page of the ranking."""
        _check_search(op)
        self.check_prefix(op.namespace_prefix)
        if not op.limit:
            return []
        now = self._clock()
        cue = _timed(Cue(op.query or ""), now)
        end = wanted = op.offset + op.limit
        while True:
            ask = ReadRequest(
                op.namespace_prefix,
                cue,
                policy,
                now,
                op.filter,
                wanted,
                include=include,
                detailed=policy.fuses_ranks,
            )
            found, candidates = yield from self._gather(ask)
            ranked = rank(cue, candidates, policy, now, (ask.prefix,), include).ranked
            rest = _admitted(found.tail, ask)
            if len(ranked) + len(rest) >= end or found.exhausted:
                break
            wanted = 2 * wanted + policy.pool
        failed = list[str]()
        if self._reranker is not None:
            ranked, failed = yield from self._reranker.reordered(ranked, cue)
        self._report((*found.degraded, *failed))
        ordered = self._continued(op, policy, mmr_order(ranked, policy, found.likeness), now)
        places: list[tuple[Candidate, Scored | None]] = [
            *((scored.candidate, scored) for scored in ordered),
            *((candidate, None) for candidate in rest),
        ]
        return [
            ranked_item(found.items[candidate.memory.id], candidate, scored)
            for candidate, scored in places[op.offset : end]
        ]

    def recall(
        self,
        namespaces: Sequence[Namespace],
        cue: Cue,
        policy: RecallPolicy,
        view: View | None = None,
        required: tuple[MemoryId, ...] = (),
    ) -> Plan[Recall]:
        """The whole read path over one or several namespaces."""
        self._check_namespaces(namespaces)
        now = cue.at or self._clock()
        cue = _dated(_timed(cue, now), now)
        began = perf_counter()
        finds: list[ReadResult] = []
        candidates: dict[MemoryId, Candidate] = {}
        for prefix in namespaces:
            ask = ReadRequest(prefix, cue, policy, now, required=required, with_pinned=True)
            found, gathered = yield from self._gather(ask)
            finds.append(found)
            candidates |= {candidate.memory.id: candidate for candidate in gathered}
        found_at = perf_counter()
        stood = list(candidates.values())
        if cue.as_of is not None:
            stood = as_believed_at(stood, cue.as_of)
        ranking = rank(cue, stood, policy, cue.as_of or now, tuple(namespaces))
        ranked, failed = ranking.ranked, list[str]()
        if self._reranker is not None and _best(ranked) >= policy.trigger:
            ranked, failed = yield from self._reranker.reordered(ranked, cue)
        ranked_at = perf_counter()
        likeness = joint_likeness(finds)
        chosen, dropped = select(ranked, policy, likeness, view)
        conflicting = _conflicts(chosen, likeness)
        timings = {
            "find": found_at - began,
            "rank": ranked_at - found_at,
            "select": perf_counter() - ranked_at,
        }
        trace = _trace(cue, namespaces, policy, now, finds)
        degraded = (*trace.degraded, *failed)
        trace = replace(trace, timings=timings, conflicts=conflicting, degraded=degraded)
        return Recall(tuple(chosen), (*ranking.dropped, *dropped), trace)

    def explain(self, memory_id: MemoryId, cue: Cue, policy: RecallPolicy) -> Plan[Explanation]:
        """Why a memory is or is not recalled for a cue."""
        recall = yield from self.recall([memory_id[0]], cue, policy, required=(memory_id,))
        for place, scored in enumerate(recall.chosen, start=1):
            if scored.memory.id == memory_id:
                return Explanation(memory_id[1], True, _merits(scored, place), place, scored)
        for drop in recall.dropped:
            if drop.memory.id == memory_id:
                reason = f"{drop.gate}: {drop.reason}"
                return Explanation(memory_id[1], False, reason, scored=drop.scored)
        return Explanation(memory_id[1], False, "no such memory in this namespace")

    def _gather(self, ask: ReadRequest) -> Plan[tuple[ReadResult, list[Candidate]]]:
        found = yield from self._find(ask)
        now = self._clock().timestamp()
        used, failed = yield from self._used(ask.prefix, found.candidates, now)
        judged = yield from self._judged([*used, *found.tail], ask.include)
        head, tail = judged[: len(used)], judged[len(used) :]
        return found._replace(tail=tail, degraded=(*found.degraded, *failed)), head

    def _judged(
        self, candidates: Sequence[Candidate], include: frozenset[str]
    ) -> Plan[list[Candidate]]:
        """Candidates as they stand: what the guard bars without its words, the rest in force.

        A memory is put out of force by another one only if that one is neither barred nor less
        trusted.
        """
        memories = {one.memory.id: one.memory for one in candidates}
        blockers = {one for candidate in candidates for one in candidate.blockers}
        others = yield from memories_at(sorted(blockers - memories.keys()))
        memories |= others
        barred = yield from self._barred(memories.values())

        def blocks(blocker: MemoryId, memory: Memory) -> bool:
            other = memories.get(blocker)
            if other is None or blocker in barred or other.status == "quarantined":
                return False
            return blocker == memory.id or other.authority >= memory.authority

        judged = []
        for candidate in candidates:
            memory = candidate.memory
            if memory.id in barred or memory.status == "quarantined":
                is_wanted = "quarantined" in include
                held = replace(memory, status="quarantined") if is_wanted else withheld(memory)
                candidate = candidate._replace(memory=held)
            elif candidate.standing and not any(blocks(one, memory) for one in candidate.blockers):
                candidate = candidate._replace(standing=None, blockers=())
            judged.append(candidate)
        return judged

    def _used(
        self, prefix: Namespace, candidates: list[Candidate], now: float
    ) -> Plan[tuple[list[Candidate], list[str]]]:
        """The candidates with their usage; as if never used, and why, where it cannot be read."""
        ids = [candidate.memory.id for candidate in candidates]
        try:
            usages = yield from self._ledger.usages(prefix, ids, now, self._knobs.index_max_age)
            used = [
                candidate if usage == NEVER else candidate._replace(usage=usage)
                for candidate, usage in zip(candidates, usages, strict=True)
            ]
        except Exception as error:
            return candidates, [f"usage cannot be read ({described(error)}); ranked without it"]
        return used, []

    def words(self, prefix: Namespace) -> Plan[Words]:
        """The words of a namespace, as ranking reads them."""
        source = self._source
        if source is None:
            return (yield from self._filler.ready(prefix))
        shelf: Words = yield Call(lambda: source.shelf(prefix))
        return shelf

    def _find(self, ask: ReadRequest) -> Plan[ReadResult]:
        null = yield from self._calibrations.at(
            embeddings_of(self._inner),
            language_of(ask.cue.words),
            queries_as_documents(self._inner),
        )
        try:
            words = yield from self.words(ask.prefix)
        except RecallError:
            raise
        except Exception as error:
            found = yield from self._searched(ask, NamespaceIndex(), null)
            note = f"words cannot be read ({described(error)}); dense only"
            return found._replace(degraded=(note, *found.degraded))
        if isinstance(words, NamespaceIndex):
            return (yield from self._searched(ask, words, null))
        return (yield from find_in_view(ask, cast(Shelf, words), null, self._has_vectors))

    def _searched(
        self, ask: ReadRequest, index: NamespaceIndex, null: NullDistribution
    ) -> Plan[ReadResult]:
        """What the store's own search finds, with the words of an index."""
        look: Fetch = fetch_with_ops
        if self._reads is not None:
            is_filled = index.filled_at is not None
            look = partial(
                self._reads.look,
                size=index.catalog.size if is_filled else None,
                held=index.held if is_filled else None,
            )
        return (yield from find_by_search(ask, index, null, self._has_vectors, look))

    def _report(self, degraded: tuple[str, ...]) -> None:
        """A search has no trace, so the log says what it did without; once, while that lasts."""
        if degraded and degraded != self._reported:
            logger.warning("A search went without a part: %s", "; ".join(degraded))
        self._reported = degraded

    def _continued(
        self, op: SearchOp, policy: RecallPolicy, ranked: Sequence[Scored], now: datetime
    ) -> list[Scored]:
        filter = json.dumps(op.filter, sort_keys=True, default=repr)
        key = (op.namespace_prefix, op.query, filter, policy)
        page = range(op.offset, op.offset + op.limit)
        return self._pages.continued(key, page, ranked, now.timestamp())

    def _check_namespaces(self, namespaces: Sequence[Namespace]) -> None:
        if not namespaces:
            raise InputError("recall needs a namespace, got none. Pass a tuple of labels.")
        for namespace in namespaces:
            _check_labels(namespace)
            self.check_prefix(namespace)

    def check_prefix(self, prefix: Namespace) -> None:
        """Refuse to read all tenants at once, unless the store was made for that."""
        if not prefix and not self._knobs.allow_empty_namespace:
            raise InputError(
                "The empty namespace means every tenant's memories. Name a namespace, or make "
                "the store with allow_empty_namespace=True."
            )


def within(prefix: Namespace, items: Sequence[SearchItem]) -> list[SearchItem]:
    """Memories at or below a namespace, element by element, whatever the store returned."""
    return [
        item
        for item in items
        if item.namespace[: len(prefix)] == prefix and item.namespace[0] != SIDECAR_ROOT
    ]


def embeddings_of(store: BaseStore) -> Embeddings | None:
    """The embedder of a store, where it shows one."""
    found = getattr(store, "embeddings", None)
    return found if isinstance(found, Embeddings) else None


def has_vectors(store: BaseStore) -> bool:
    """Whether a store can search by meaning, as far as it tells."""
    if embeddings_of(store) is not None:
        return True
    return getattr(store, "index_config", NotImplemented) is NotImplemented and not hasattr(
        store, "embeddings"
    )


def queries_as_documents(store: BaseStore) -> bool:
    """Most stores embed queries as if they were documents."""
    return not isinstance(store, InMemoryStore | EvidenceSource)


def _check_labels(namespace: Namespace) -> None:
    if not isinstance(namespace, tuple) or not all(
        isinstance(label, str) and label for label in namespace
    ):
        raise InputError(
            f"A namespace must be a tuple of non-empty labels, got {namespace!r}. "
            'Write ("memories", user_id).'
        )


def _check_search(op: SearchOp) -> None:
    validate_op_namespace(op)
    for name, held in (("limit", op.limit), ("offset", op.offset)):
        if isinstance(held, bool) or not isinstance(held, int) or held < 0:
            raise InputError(f"{name} must be a whole number of at least 0, got {held!r}.")
    if not isinstance(op.query, str):
        raise InputError(f"query must be a text, got {op.query!r}.")
    check_filter(op.filter)


def _timed(cue: Cue, now: datetime) -> Cue:
    temporal = cue.temporal or read_temporal(cue.words, now)
    return replace(cue, temporal=temporal) if temporal else cue


def _dated(cue: Cue, now: datetime) -> Cue:
    as_of = cue.as_of or read_as_of(cue.words, now)
    return replace(cue, as_of=as_of) if as_of else cue


def _admitted(tail: Sequence[Candidate], ask: ReadRequest) -> list[Candidate]:
    """What lies beyond the head and no hard gate drops."""
    moment = GateContext(ask.now, (ask.prefix,), include=ask.include)
    return [candidate for candidate in tail if hard_drop(candidate, moment) is None]


def _trace(
    cue: Cue,
    namespaces: Sequence[Namespace],
    policy: RecallPolicy,
    now: datetime,
    finds: Sequence[ReadResult],
) -> Trace:
    channels: Counter[str] = Counter()
    for found in finds:
        channels.update(found.channels)
    return Trace(
        cue=cue,
        namespaces=tuple(namespaces),
        policy=f"{policy.name} {policy.fingerprint}",
        at=now,
        searched=sum(found.searched for found in finds),
        channels=dict(channels),
        degraded=tuple(dict.fromkeys(note for found in finds for note in found.degraded)),
        knobs=policy.to_dict(),
    )


def _best(ranked: Sequence[Scored]) -> float:
    return max((scored.signals.relevance for scored in ranked), default=0.0)


def _conflicts(
    chosen: Sequence[Scored], likeness: Likeness
) -> tuple[tuple[MemoryId, MemoryId], ...]:
    if len(chosen) < 2:
        return ()
    ids = [scored.memory.id for scored in chosen]
    pairs = conflicts([scored.memory for scored in chosen], likeness(ids).tolist())
    return tuple((ids[newer], ids[older]) for newer, older in pairs)


def _merits(scored: Scored, place: int) -> str:
    signals = scored.signals
    return (
        f"ranked {place} with score {scored.score:.2f} (relevance {signals.relevance:.2f}, "
        f"recency {signals.recency:.2f}, importance {signals.importance:.2f})"
    )
