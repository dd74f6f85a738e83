"""How a store is read: pages of a ranking, recalls and explanations, each as a plan."""

from __future__ import annotations

import logging
import math
from collections import ChainMap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from copy import deepcopy
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from itertools import chain
from operator import attrgetter
from time import perf_counter
from types import NoneType
from typing import Any, cast

import numpy as np
from langgraph.store.base import (
    GetOp,
    ListNamespacesOp,
    PutOp,
    SearchItem,
    SearchOp,
    validate_op_namespace,
)

from langmem_recall.deadline import at_most
from langmem_recall.errors import InputError, RecallError, check_whole, described
from langmem_recall.filters import check_filter
from langmem_recall.flows.backend import Null
from langmem_recall.flows.bookkeeping import Bookkeeper
from langmem_recall.flows.calibrations import Calibrations
from langmem_recall.flows.candidates import (
    ReadRequest,
    ReadResult,
    id_of,
    memories_at,
    memory_of,
)
from langmem_recall.flows.effects import Call, Ops, Plan
from langmem_recall.flows.quarantine import Decisions, as_shown, withheld
from langmem_recall.flows.rerank import Reranker
from langmem_recall.memory.conflicts import conflicts
from langmem_recall.memory.value import phrasing_found, plain_numbers
from langmem_recall.policy import RecallPolicy
from langmem_recall.ranking.arrays import FloatArray
from langmem_recall.ranking.calibration import NullDistribution
from langmem_recall.ranking.gates import GateContext, as_believed_at, hard_drops, outside
from langmem_recall.ranking.pipeline import Likeness, mmr_order, rank, select
from langmem_recall.ranking.pool import Pool
from langmem_recall.text.temporal import read_as_of, read_temporal, searched_for
from langmem_recall.types import (
    ASKED,
    SIDECAR_ROOT,
    STATUSES,
    WITHHELD_SPAN,
    Answer,
    Candidate,
    Cue,
    Drop,
    Evidence,
    Explanation,
    Memory,
    MemoryId,
    Namespace,
    Recall,
    Scored,
    Signals,
    Trace,
    Usage,
    View,
)

logger = logging.getLogger(__name__)

Namespaces = Namespace | Sequence[Namespace]

POLICIES = (SIDECAR_ROOT, "policy")
POLICY_KEY = "policy"
MOST_POLICIES = 10_000
"""Namespaces whose policy is held in memory before the reading starts afresh."""

HALF = 0.5
"""Of the time that a turn has left, what it waits for one part that it can do without."""

_quiet: ContextVar[bool] = ContextVar("langmem_recall_quiet", default=False)


@contextmanager
def quiet() -> Iterator[None]:
    """Reads within leave no trace: no usage, no refreshed time to live, no monitor."""
    token = _quiet.set(True)
    try:
        yield
    finally:
        _quiet.reset(token)


class RankedItem(SearchItem):
    """A `SearchItem` with what its score is made of."""

    __slots__ = ("signals", "similarity")

    similarity: float | None
    """Cosine of the literal query, or None where it was not measured."""
    signals: Signals | None
    """The signals behind the score; None beyond the re-ranked head."""

    def __init__(
        self,
        memory: Any,
        similarity: float | None,
        signals: Signals | None = None,
        score: float | None = None,
    ) -> None:
        # What the bases do besides is to read times from texts.
        self.namespace, self.key = memory.id
        self.created_at, self.updated_at = memory.created_at, memory.updated_at
        self.score, self.similarity, self.signals = score, similarity, signals
        # A copy, because it may be the very value that a store or an index keeps.
        is_flat = _PLAIN.issuperset(map(type, memory.value.values()))
        value = memory.value
        self.value = dict(value) if is_flat else {name: _copied(value[name]) for name in value}


@dataclass(eq=False)
class Reader:
    """The reading half of a `RecallStore`; plans only, carried out by its owner."""

    keeper: Bookkeeper
    nudge: Callable[[], None]
    policy: RecallPolicy
    max_age_s: float
    """Seconds after which usage and stored policies are read again."""
    allow_empty_namespace: bool = False
    stored_policies: bool = False
    record_uses: bool = True
    reranker: Reranker | None = None
    traces: Callable[[Recall], None] | None = None

    def __post_init__(self) -> None:
        self._backend, self._ledger = self.keeper.backend, self.keeper.ledger
        self._clock = self.keeper.clock
        self._calibrations = Calibrations()
        self._policies: dict[Namespace, tuple[RecallPolicy | None, float]] = {}
        """The policy read for a namespace, None where none is stored, and when it was read."""
        self._degraded: tuple[str, ...] = ()
        self._last_policy: tuple[RecallPolicy, str, dict[str, Any]] | None = None
        """The policy of the last recall with its name and knobs, as traces record them."""

    def search(
        self, op: SearchOp, policy: RecallPolicy | None, include: Collection[str] | str = ()
    ) -> Plan[list[SearchItem]]:
        """One page: of the ranking where there is a query, else of the store's own listing."""
        shown = _statuses(include) if include else frozenset[str]()
        if not isinstance(op.namespace_prefix, tuple):
            # Callers write lists too, as the stores let them.
            op = op._replace(namespace_prefix=tuple(op.namespace_prefix))
        policy = yield from self._policy_in_force(op.namespace_prefix, policy)
        if not op.query or policy.blend == "similarity":
            op = op._replace(refresh_ttl=op.refresh_ttl and not _quiet.get())
            items = yield from self._plain_search(op, shown)
            if op.query:
                self._note_use(items, policy, refresh_ttl=False)
            return items
        check_whole("limit", op.limit, 0)
        check_whole("offset", op.offset, 0)
        if op.filter is not None:
            check_filter(op.filter)
        if not isinstance(op.query, str):
            raise InputError(f"query must be a text, got {op.query!r}.")
        self._check_prefix(op.namespace_prefix)
        if not op.limit:
            return []
        now = self._clock()
        temporal = read_temporal(op.query, now)
        # A time is preferred and leaves nothing out: a page keeps the meaning of its limit.
        temporal = temporal and replace(temporal, asked=False, alone=False)
        cue = Cue(op.query, temporal=temporal)
        prefix, end = op.namespace_prefix, op.offset + op.limit
        request = ReadRequest(
            prefix, cue, policy, now, op.filter, end, include=shown, detailed=policy.fuses_ranks
        )
        found = yield from self._gather(request)
        ranking, degraded = rank(cue, found.head, policy, now, (prefix,), shown), found.degraded
        if self.reranker is None and policy.mmr_lambda >= 1.0:
            places: list[tuple[Any, ...]] = [*ranking.best(end)]
        else:
            ranked = ranking.ranked
            if self.reranker is not None:
                ranked, failed = yield from self.reranker.reordered(ranked, cue)
                degraded = (*degraded, *failed)
            ordered = mmr_order(ranked, policy, found.likeness)
            places = [(one.memory, one.candidate.similarity, *one[1:]) for one in ordered]
        # A search has no trace, so the log says what it did without; once, while that lasts.
        if degraded and degraded != self._degraded:
            logger.warning("A search went without a part: %s", "; ".join(degraded))
        self._degraded = degraded
        # What lies beyond the head has no score.
        places += [(candidate.memory, candidate.similarity) for candidate in found.tail]
        page: list[SearchItem] = [RankedItem(*place) for place in places[op.offset : end]]
        self._note_use(page, policy, op.refresh_ttl)
        return page

    def recall(
        self,
        namespace: Namespaces,
        cue: Cue,
        policy: RecallPolicy | None = None,
        view: View | None = None,
        record: bool = True,
        required: tuple[MemoryId, ...] = (),
    ) -> Plan[Recall]:
        """The whole read path over one or several namespaces."""
        namespaces = _checked_namespaces(namespace)
        policy = yield from self._policy_in_force(namespaces[0], policy)
        for prefix in namespaces:
            self._check_prefix(prefix)
        now = cue.at or self._clock()
        cue = _with_time(cue, now)
        began = perf_counter()
        finds: list[ReadResult] = []
        for prefix in namespaces:
            request = ReadRequest(prefix, cue, policy, now, required=required, with_pinned=True)
            finds.append((yield from self._gather(request)))
        found_at = perf_counter()
        admitted = finds[0].head
        if len(finds) > 1:
            # A namespace and one above it have memories in common.
            every = chain.from_iterable(found.head.candidates() for found in finds)
            admitted = Pool.of(list({one.memory.id: one for one in every}.values()))
        if cue.as_of is not None:
            admitted = Pool.of(as_believed_at(admitted.candidates(), cue.as_of))
        ranking = rank(cue, admitted, policy, cue.as_of or now, tuple(namespaces))
        ranked, failed = ranking.ranked, list[str]()
        if self.reranker is not None:
            best = max((scored.signals.relevance for scored in ranked), default=0.0)
            if best >= policy.trigger:
                ranked, failed = yield from self.reranker.reordered(ranked, cue)
        ranked_at = perf_counter()
        breadth = policy.breadth or self._calibrations.breadth(cue.words)
        likeness = finds[0].likeness if len(finds) == 1 else _joint_likeness(finds)

        def choose() -> tuple[list[Scored], list[Drop], list[tuple[int, int]]]:
            chosen, dropped = select(ranked, policy, likeness, view, breadth)
            chosen = [_found_as_asked(scored, cue.words) for scored in chosen]
            memories = [scored.memory for scored in chosen]
            return chosen, dropped, conflicts(memories) if len(memories) > 1 else []

        # A conversation may be long, and is read for what the model sees already.
        chosen, dropped, conflicting = choose() if view is None else (yield Call(choose))
        ids = [scored.memory.id for scored in chosen]
        names = dict.fromkeys(name for found in finds for name in found.channels)
        notes = dict.fromkeys(note for found in finds for note in found.degraded)
        name, knobs = self._described(policy)
        trace = Trace(
            cue=cue,
            namespaces=tuple(namespaces),
            policy=name,
            at=now,
            searched=sum(found.searched for found in finds),
            channels={name: sum(found.channels.get(name, 0) for found in finds) for name in names},
            degraded=(*notes, *failed),
            knobs={**knobs, "breadth": breadth},
            timings={
                "find": found_at - began,
                "rank": ranked_at - found_at,
                "select": perf_counter() - ranked_at,
            },
            conflicts=tuple((ids[newer], ids[older]) for newer, older in conflicting),
        )
        recall = Recall(tuple(chosen), (*ranking.dropped, *dropped), trace)
        if record:
            self.record(recall, policy)
        return recall

    def explain(
        self, memory_id: MemoryId, cue: Cue, policy: RecallPolicy | None
    ) -> Plan[Explanation]:
        """Why a memory is or is not recalled for a cue."""
        namespace, key = memory_id
        plan = self.recall([namespace], cue, policy, record=False, required=(memory_id,))
        recall = yield from plan
        for place, scored in enumerate(recall.chosen, start=1):
            if scored.memory.id == memory_id:
                signals = scored.signals
                reason = (
                    f"ranked {place} with score {scored.score:.2f} "
                    f"(relevance {signals.relevance:.2f}, recency {signals.recency:.2f}, "
                    f"importance {signals.importance:.2f})"
                )
                if scored.candidate.found_as is not None:
                    reason = f"{reason}, found as asked: {scored.candidate.found_as}"
                return Explanation(key, True, reason, place, scored)
        for drop in recall.dropped:
            if drop.memory.id == memory_id:
                return Explanation(key, False, f"{drop.gate}: {drop.reason}", scored=drop.scored)
        return Explanation(key, False, "no such memory in this namespace")

    def record(self, recall: Recall, policy: RecallPolicy | None) -> None:
        """Count what a recall chose as used, and hand the recall to `traces`."""
        is_shown = recall.trace.knobs.get("adapts") and not recall.trace.policy.startswith(ASKED)
        if is_shown and not _quiet.get():
            self._ledger.balances.note(recall)
        policy = policy or self.policy
        self._note_use(recall.memories, policy, refresh_ttl=True, is_use=not is_shown)
        if self.traces and not _quiet.get():
            try:
                self.traces(recall)
            except Exception as fault:
                # A sink must not break what it records.
                logger.warning("A trace could not be handed on: %s", described(fault))

    def record_answer(self, answer: Answer) -> None:
        """Hand what a model answered to `traces`, where that takes answers."""
        forward = getattr(self.traces, "answer", None)
        if forward is not None and not _quiet.get():
            forward(answer)

    def memories(self, ids: Sequence[MemoryId]) -> Plan[list[Memory | None]]:
        """Memories by their names; None for one that is gone, or that no reader may see."""
        found = yield from memories_at(ids)
        barred = yield from self._barred(found.values())
        readable = list[Memory | None]()
        for one in ids:
            memory, decision = found.get(one), barred.get(one)
            if memory and (memory.status == "quarantined" or (decision and decision.bars)):
                memory = None
            readable.append(memory and as_shown(memory, decision))
        return readable

    def namespaces(self, op: ListNamespacesOp) -> Plan[list[Namespace]]:
        """Namespaces as the inner store lists them, without our side-car."""
        end, fetch = op.offset + op.limit, op.offset + op.limit + 1
        while True:
            (found,) = yield Ops([op._replace(offset=0, limit=fetch)])
            visible = [namespace for namespace in found if namespace[:1] != (SIDECAR_ROOT,)]
            if len(visible) >= end or len(found) < fetch:
                return visible[op.offset : end]
            fetch = 2 * fetch + len(found) - len(visible)

    def policy_at(self, namespace: Namespace, given: RecallPolicy | None) -> Plan[RecallPolicy]:
        """The call's policy, else the nearest one stored at or above, else the store's own."""
        if given is not None or not self.stored_policies:
            return given or self.policy
        now = self._clock().timestamp()
        stored, read_at = self._policies.get(namespace, (None, -math.inf))
        if not 0 <= now - read_at < self.max_age_s:
            above = [namespace[:depth] for depth in range(len(namespace), 0, -1)]
            gets = [GetOp((*POLICIES, *home), POLICY_KEY, refresh_ttl=False) for home in above]
            try:
                items = yield Ops(gets, sidecar=True)
            except Exception as error:
                # That of a namespace above may be on a server that is down when this one's is not.
                logger.warning("Stored policies cannot be read (%s).", described(error))
                return stored or self.policy
            nearest = next((item for item in items if item is not None), None)
            stored = (
                None if nearest is None else RecallPolicy.from_dict(plain_numbers(nearest.value))
            )
            if len(self._policies) >= MOST_POLICIES:
                self._policies.clear()
            self._policies[namespace] = stored, now
        return stored or self.policy

    def _policy_in_force(
        self, namespace: Namespace, given: RecallPolicy | None
    ) -> Plan[RecallPolicy]:
        """The policy for a read, at the namespace's balance where it adapts."""
        policy = given or self.policy
        if given is None and self.stored_policies:
            policy = yield from self.policy_at(namespace, None)
        if not policy.adapts:
            return policy
        now, balances = self._clock().timestamp(), self._ledger.balances
        # Where the side-car does not answer it begins anew, and the trace says so of the usage.
        with suppress(Exception):
            policy = yield from balances.apply(namespace, policy, now, self.max_age_s)
        return policy

    def _described(self, policy: RecallPolicy) -> tuple[str, dict[str, Any]]:
        """Name and knobs of a policy for a trace."""
        last = self._last_policy
        if last is None or last[0] is not policy:
            last = policy, f"{policy.name} {policy.fingerprint}", policy.to_dict()
            self._last_policy = last
        return last[1:]

    def set_policy(self, namespace: Namespace, policy: RecallPolicy | None) -> Plan[None]:
        """Store a policy for a namespace and all below it; None takes it away."""
        value = None if policy is None else policy.to_dict()
        op = PutOp((*POLICIES, *namespace), POLICY_KEY, value, index=False)
        validate_op_namespace(op._replace(namespace=namespace))
        yield Ops([op], sidecar=True)
        self._policies.clear()

    def _plain_search(self, op: SearchOp, include: frozenset[str]) -> Plan[list[SearchItem]]:
        """The inner store's own answer, without our side-car and what no reader may see."""
        prefix, end = op.namespace_prefix, op.offset + op.limit
        self._check_prefix(prefix)
        if op.refresh_ttl:
            yield from self._backend.settle()
        fetch, context = end, GateContext(self._clock(), (prefix,), include=include)
        # Earlier pages are fetched again to count what is left out; they must not live longer.
        refresh = op.refresh_ttl and not op.offset
        while True:
            (items,) = yield Ops([op._replace(offset=0, limit=fetch, refresh_ttl=refresh)])
            # Element by element, whatever the store returned.
            inside = [
                item
                for item in items
                if item.namespace[: len(prefix)] == prefix and item.namespace[0] != SIDECAR_ROOT
            ]
            found = [Candidate(memory_of(item), Evidence()) for item in inside]
            judged = yield from self.judged(found, include)
            drops = hard_drops(Pool.of(judged), context)
            # A listing has what is not valid now, too.
            visible = [
                _shown_item(item, candidate)
                for place, (item, candidate) in enumerate(zip(inside, judged, strict=True))
                if place not in drops or (not op.query and drops[place][0] in _OF_TIME)
            ]
            if len(visible) >= end or len(items) < fetch:
                break
            fetch = 2 * fetch + len(items) - len(visible)
        page = visible[op.offset : end]
        if op.refresh_ttl and not refresh and page:
            yield Ops([GetOp(*one, refresh_ttl=True) for one in sorted(map(id_of, page))])
        return page

    def _gather(self, request: ReadRequest) -> Plan[ReadResult]:
        """Candidates with evidence and usage, as they stand."""
        backend, notes = self._backend, list[str]()
        null = yield from self._calibrations.begin(backend, request.cue.words)
        if request.policy.name.startswith(ASKED):
            # What a model asks of a tool asks for memories, whatever it sounds like.
            null = partial(_without_need, null)
        try:
            with at_most(HALF):
                view = yield from backend.view(request.prefix)
        except RecallError:
            raise
        except Exception as error:
            view = None
            notes.append(f"words cannot be read ({described(error)}); dense only")
        gate = _HardGate(self, request, notes)
        found = yield from backend.find(request, view, null, gate)
        notes += found.degraded
        now = self._clock().timestamp()
        ids = [memory.id for memory in found.head.memories]
        usages: list[Usage] | None = None
        try:
            with at_most(HALF):
                usages = yield from self._ledger.usages(request.prefix, ids, now, self.max_age_s)
        except Exception as error:
            notes.append(f"usage cannot be read ({described(error)}); ranked without it")
        head, tail, count = found.head, found.tail, len(ids)
        if usages is not None:
            head = head._replace(usages=usages)
        if not (found.is_judged and gate.has_passed):
            memories = [*head.memories, *(one.memory for one in tail)]
            have_standing = head.standings is not None or any(one.standing for one in tail)
            if not gate.passes_all(memories, have_standing):
                both = [*head.candidates(), *tail]
                judged = yield from self.judged(both, request.include, notes)
                head, tail = Pool.of(judged[:count]), judged[count:]
        return found._replace(head=head, tail=tail, degraded=tuple(dict.fromkeys(notes)))

    def judged(
        self,
        candidates: list[Candidate],
        include: frozenset[str],
        notes: list[str] | None = None,
    ) -> Plan[list[Candidate]]:
        """Candidates as they stand: what the guard bars without its words, the rest in force."""
        memories = [candidate.memory for candidate in candidates]
        is_plain = not [
            one
            for one in candidates
            if one.standing or not (one.memory.is_plain or _stands_alone(one.memory))
        ]
        if is_plain and not (yield from self._barred(memories, notes)):
            return candidates
        known = {memory.id: memory for memory in memories}
        blockers = {one for candidate in candidates for one in candidate.blockers}
        for memory in memories:
            blockers |= {(memory.namespace, parent) for parent in memory.derived_from}
        if unknown := sorted(blockers - known.keys()):
            known |= yield from memories_at(unknown)
        barred = yield from self._barred(known.values(), notes)
        return _judged(candidates, known, barred, include)

    def _barred(
        self, memories: Iterable[Memory], notes: list[str] | None = None
    ) -> Plan[Decisions]:
        unjudged = [memory for memory in memories if memory.status != "quarantined"]
        return self.keeper.quarantine.barred(unjudged, self._clock().timestamp(), notes)

    def _note_use(
        self,
        used: Sequence[Memory | SearchItem],
        policy: RecallPolicy,
        refresh_ttl: bool,
        is_use: bool = True,
    ) -> None:
        if _quiet.get() or not used:
            return
        ids = [(memory.namespace, memory.key) for memory in used]
        if self.record_uses and is_use:
            self._ledger.balances.asked(ids)
            self._ledger.record(ids, self._clock().timestamp(), policy.refresh_floor)
        if refresh_ttl and self._backend.refreshes_ttl:
            self._ledger.refresh_ttl(ids)
        if self._ledger.has_pending:
            self.nudge()

    def _check_prefix(self, prefix: Namespace) -> None:
        """Refuse to read all tenants at once, unless the store was made for that."""
        if not prefix and not self.allow_empty_namespace:
            raise InputError(
                "The empty namespace means every tenant's memories. Name a namespace, or make "
                "the store with allow_empty_namespace=True."
            )


def _without_need(null: Null) -> Plan[NullDistribution]:
    return (yield from null())._replace(need=())


class _HardGate:
    """The hard gates of one read, which its backend applies while it looks for candidates."""

    def __init__(self, reader: Reader, request: ReadRequest, notes: list[str]) -> None:
        cue, prefix = request.cue, request.prefix
        self._reader, self._request, self._notes = reader, request, notes
        now = cue.as_of or request.now
        self._context = GateContext.of(cue, request.policy, now, (prefix,), request.include)
        # Then nothing but a memory itself can keep it out; below the empty namespace are also
        # records of our own.
        is_inside = bool(prefix) and prefix[0] != SIDECAR_ROOT
        self._is_open = self._context.is_open and cue.as_of is None and is_inside
        self.has_passed = True
        """Whether all that it was asked about stands as it was found."""

    def passes_all(self, memories: Sequence[Memory], have_standing: bool) -> bool:
        """Whether it is known without asking that none of some memories is kept out."""
        boundaries = self._context.boundaries
        return (
            self._is_open
            and not have_standing
            and all(map(_IS_PLAIN, memories))
            and not any(outside(each, boundaries) for each in set(map(_NAMESPACE, memories)))
            and self._reader.keeper.quarantine.allows(memories)
        )

    def judge(self, candidates: list[Candidate]) -> Plan[set[MemoryId]]:
        """Which of some memories are kept out.

        What is said of those that do not stand as found is to be found out again, of what is
        ranked.
        """
        ids = (one.memory.id for one in candidates)
        own = {memory_id for memory_id in ids if memory_id[0][0] == SIDECAR_ROOT}
        if own:
            candidates = [one for one in candidates if one.memory.id not in own]
        as_of = self._request.cue.as_of
        judged = yield from self._reader.judged(candidates, self._request.include, self._notes)
        self.has_passed = self.has_passed and judged is candidates
        judged = as_believed_at(judged, as_of) if as_of else judged
        drops = hard_drops(Pool.of(judged), self._context)
        return own | {judged[place].memory.id for place in drops}


def _with_time(cue: Cue, now: datetime) -> Cue:
    """The cue with what its words say about time, and without the words that say only that."""
    as_of = cue.as_of or read_as_of(cue.words, now)
    temporal = cue.temporal or read_temporal(cue.words, now)
    if temporal and temporal.asked and cue.temporal is None:
        sought = [searched_for(part, now) for part in cue.searched]
        if as_of or not all(sought):
            # What was believed then, or what another part asks for, may be older.
            temporal = replace(temporal, asked=False, alone=False)
        else:
            parts = tuple(chain.from_iterable(sought))
            reasons = ("of the time asked for",) * len(parts)
            cue = replace(cue, text=cue.words, parts=parts, reasons=reasons)
    return replace(cue, as_of=as_of, temporal=temporal) if as_of or temporal else cue


def _checked_namespaces(namespace: Namespaces) -> list[Namespace]:
    """One namespace, or several."""
    if isinstance(namespace, str):
        raise InputError(f"A namespace must be a tuple of labels, got {namespace!r}.")
    is_one = isinstance(namespace, tuple) and all(isinstance(label, str) for label in namespace)
    given: Sequence[Any] = [namespace] if is_one else namespace
    namespaces = [tuple(each) if isinstance(each, list) else each for each in given]
    if not namespaces:
        raise InputError("recall needs a namespace, got none. Pass a tuple of labels.")
    for labels in namespaces:
        if not isinstance(labels, tuple) or not all(
            isinstance(label, str) and label for label in labels
        ):
            raise InputError(
                f"A namespace must be a tuple of non-empty labels, got {labels!r}. "
                'Write ("memories", user_id).'
            )
    return cast(list[Namespace], namespaces)


def _statuses(include: Collection[str] | str) -> frozenset[str]:
    """The statuses that a search shows besides "active"."""
    named = frozenset([include] if isinstance(include, str) else include)
    if unknown := named - set(STATUSES):
        raise InputError(
            f"include names statuses: {', '.join(STATUSES)}; got {sorted(map(str, unknown))}. "
            'Write include=("quarantined", "superseded").'
        )
    return named


def _stands_alone(memory: Memory) -> bool:
    return memory.status not in ("quarantined", "masked") and not memory.derived_from


def _judged(
    candidates: Sequence[Candidate],
    memories: Mapping[MemoryId, Memory],
    barred: Decisions,
    include: frozenset[str],
) -> list[Candidate]:
    """Candidates as they stand: what the guard bars without its words, the rest in force."""

    def blocks(blocker: MemoryId, memory: Memory) -> bool:
        # Only what is neither barred nor less trusted puts a memory out of force.
        other = memories.get(blocker)
        decision = barred.get(blocker)
        if other is None or other.status == "quarantined" or (decision and decision.bars):
            return False
        return blocker == memory.id or other.authority >= memory.authority

    judged = []
    for candidate in candidates:
        memory = candidate.memory
        decision = barred.get(memory.id)
        if memory.status == "quarantined" or (decision and decision.bars):
            is_wanted = "quarantined" in include
            hidden = replace(memory, status="quarantined") if is_wanted else withheld(memory)
            judged.append(candidate._replace(memory=hidden))
            continue
        if candidate.standing and not any(blocks(one, memory) for one in candidate.blockers):
            candidate = candidate._replace(standing=None, blockers=())
        if candidate.standing is None and (parent := _corrected_parent(memory, memories)):
            reason = f"derived from {parent}, which was corrected since"
            candidate = candidate._replace(standing=reason, blockers=())
        shown = as_shown(memory, decision)
        judged.append(candidate if shown is memory else candidate._replace(memory=shown))
    return judged


def _corrected_parent(memory: Memory, known: Mapping[MemoryId, Memory]) -> str | None:
    """The memory that this one was derived from and that has another text since, or None."""
    for key in memory.derived_from:
        parent = known.get((memory.namespace, key))
        is_known = parent is not None and parent.in_force and parent.supersedes
        # NaN compares with nothing: without times it is not known which came first.
        if is_known and parent is not None and parent.written_ts > memory.written_ts:
            return key
    return None


def _found_as_asked(scored: Scored, words: str) -> Scored:
    """The same with the phrasing that shares most words with a cue, if that is how it was found."""
    phrasing = phrasing_found(scored.memory, words) if scored.memory.asked_as else None
    if phrasing is None:
        return scored
    return scored._replace(candidate=scored.candidate._replace(found_as=phrasing))


_NAMESPACE, _IS_PLAIN = attrgetter("namespace"), attrgetter("is_plain")
_OF_TIME = ("validity", "expired")
_PLAIN = frozenset({str, int, float, bool, NoneType})


def _shown_item(item: SearchItem, candidate: Candidate) -> SearchItem:
    """A listed item, with parts withheld where the candidate has them withheld."""
    if WITHHELD_SPAN not in candidate.memory.text:
        return item
    value, times = dict(candidate.memory.value), (item.created_at, item.updated_at)
    return SearchItem(item.namespace, item.key, value, *times, item.score)


def _copied(part: Any) -> Any:
    try:
        return deepcopy(part)
    except RecursionError:
        # Nested deeper than `put` lets in: handed out as it is rather than not at all.
        return part


def _joint_likeness(finds: Sequence[ReadResult]) -> Likeness:
    """Likeness within each namespace; across namespaces only equal words are alike."""

    def likeness(ids: Sequence[MemoryId]) -> FloatArray:
        texts = [{one.id: one.text for one in found.head.memories} for found in finds]
        known = ChainMap(*texts)
        words = np.array([known[memory_id].casefold() for memory_id in ids])
        alike = (words[:, None] == words[None, :]).astype(np.float64)
        for found, own_texts in zip(finds, texts, strict=True):
            own = [i for i, memory_id in enumerate(ids) if memory_id in own_texts]
            if own:
                alike[np.ix_(own, own)] = found.likeness([ids[i] for i in own])
        return np.asarray(alike)

    return likeness
