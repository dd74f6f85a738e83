"""How `RecallStore` keeps house: sweeps of a namespace, and forgetting all of it, as plans."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from langgraph.store.base import (
    Item,
    ListNamespacesOp,
    MatchCondition,
    PutOp,
    SearchOp,
)

from langmem_recall.errors import InputError, StoreError, described
from langmem_recall.flows.candidates import PAGE, memory_of
from langmem_recall.flows.duplicates import DuplicateFinder, Match
from langmem_recall.flows.effects import Call, Ops, Plan
from langmem_recall.memory.conflicts import is_same
from langmem_recall.memory.sweep import (
    LEAST_CONFIDENCE,
    STEPS,
    Forgotten,
    Row,
    SweepReport,
    check_steps,
    coldness,
    expiry,
    faded_confidence,
    is_in_force,
    keeps,
    merged,
    purge,
)
from langmem_recall.memory.value import revised_value
from langmem_recall.policy import RecallPolicy
from langmem_recall.ranking.signals import RECENCY, STRENGTH, signal_table
from langmem_recall.stores.bookkeeping import Bookkeeper, Write, check_namespace
from langmem_recall.types import (
    SIDECAR_ROOT,
    Candidate,
    Evidence,
    Memory,
    MemoryId,
    Namespace,
    Usage,
)

logger = logging.getLogger(__name__)


class SweepRequest(NamedTuple):
    """What a caller asks of a sweep."""

    namespace: Namespace
    apply: bool = False
    steps: Sequence[str] = STEPS
    cold_after: timedelta | None = None
    purge_history_before: datetime | None = None
    limit: int = 1_000
    after: int | None = None

    def check(self) -> None:
        """Refuse what cannot be meant, before anything is read."""
        check_namespace(self.namespace)
        check_steps(self.steps)
        for name, held, least in (("limit", self.limit, 1), ("after", self.after or 0, 0)):
            if isinstance(held, bool) or not isinstance(held, int) or held < least:
                raise InputError(f"{name} must be a whole number from {least}, got {held!r:.80}.")
        cold, before = self.cold_after, self.purge_history_before
        if cold is not None and not (isinstance(cold, timedelta) and cold > timedelta()):
            raise InputError(f"cold_after must be a timedelta above 0, got {cold!r:.80}.")
        if before is not None and not isinstance(before, datetime):
            raise InputError(f"purge_history_before must be a datetime, got {before!r:.80}.")


@dataclass(slots=True)
class SweepPlan:
    """What a sweep has decided so far about the memories it looks at."""

    memories: dict[MemoryId, Memory]
    rows: list[Row] = field(default_factory=list)
    changes: dict[MemoryId, dict[str, Any]] = field(default_factory=dict)
    gone: set[MemoryId] = field(default_factory=set)
    heirs: dict[MemoryId, MemoryId] = field(default_factory=dict)
    """Which memory takes the place of one that was merged into it."""

    def remove(self, row: Row) -> None:
        """A memory is to go."""
        self.rows.append(row)
        self.gone.add(row.id)
        self.changes.pop(row.id, None)

    def change(self, memory: Memory, changes: Mapping[str, Any]) -> None:
        """Some fields of a memory are to change."""
        if changes:
            self.changes.setdefault(memory.id, {}).update(changes)
        self.memories[memory.id] = replace(memory, **changes)

    def left(self) -> list[Memory]:
        """The memories that stay, as they will be."""
        return [memory for memory in self.memories.values() if memory.id not in self.gone]


class Sweeper:
    """The housekeeping half of a `RecallStore`; plans only, carried out by its owner."""

    def __init__(
        self,
        keeper: Bookkeeper,
        twins: DuplicateFinder,
        merge_similarity: float,
    ) -> None:
        self._keeper = keeper
        self._twins = twins
        self._quarantine = keeper.quarantine
        self._ledger = keeper.ledger
        self._merge_similarity = merge_similarity

    def sweep(self, ask: SweepRequest, policy: RecallPolicy) -> Plan[SweepReport]:
        """Look at some memories, say what is to become of them, and do it where asked to."""
        now, offset = self._keeper.clock(), ask.after or 0
        items, places = yield from self._page(ask.namespace, offset, ask.limit)
        memories = {memory.id: memory for memory in map(memory_of, items)}
        for barred in (yield from self._quarantine.barred(memories.values(), now.timestamp())):
            if memories[barred].status == "active":
                memories[barred] = replace(memories[barred], status="quarantined")
        findings = SweepPlan(memories)
        _age(findings, ask, policy, now)
        if "merge" in ask.steps and self._merge_similarity <= 1:
            yield from self._merge(findings, ask, now)
        usages = yield from self._usages(findings, ask, now)
        if ask.cold_after is not None:
            findings.rows += _cold(findings.left(), usages, ask.cold_after, policy, now)
        if ask.apply:
            yield from self._apply(findings, usages)
        removed = len(findings.gone) if ask.apply else 0
        more = places == ask.limit
        return SweepReport(
            namespace=ask.namespace,
            applied=ask.apply,
            rows=tuple(findings.rows),
            examined=len(items),
            # What was removed no longer takes up a place in the listing.
            next=offset + places - removed if more else None,
        )

    def forget_namespace(self, namespace: Namespace) -> Plan[Forgotten]:
        """Delete all memories at or below a namespace and all that is kept about them."""
        check_namespace(namespace)
        count = yield from self._erase(namespace, sidecar=False)
        traces = yield from self._ledger.forget_below(namespace)
        for beside in (yield from self._beside(namespace)):
            traces += yield from self._erase(beside, sidecar=True)
        self._quarantine.reset()
        compacted: bool = yield Call(self._compact)
        return Forgotten(namespace, count, traces, compacted)

    def _page(self, namespace: Namespace, offset: int, limit: int) -> Plan[tuple[list[Item], int]]:
        """Memories in some places of an order by name, in which what a sweep writes stays put.

        In a store's own listing it would not: that one begins with what was written last, and
        leaves open which of two written together comes first.
        """
        return self._keeper.backend.items_below(namespace, offset, limit)

    def _merge(self, findings: SweepPlan, ask: SweepRequest, now: datetime) -> Plan[None]:
        usable = [memory for memory in findings.left() if is_in_force(memory, now)]
        twins = yield from self._twins.of_memories(ask.namespace, usable)
        others = [twin.memory for lot in twins for twin in lot]
        barred = set((yield from self._quarantine.barred(others, now.timestamp())))
        barred |= {memory.id for memory in others if not is_in_force(memory, now)}
        for memory, near in zip(usable, twins, strict=True):
            _merge_one(findings, memory.id, near, barred, self._merge_similarity)

    def _usages(
        self, findings: SweepPlan, ask: SweepRequest, now: datetime
    ) -> Plan[dict[MemoryId, Usage]]:
        if ask.cold_after is None and not (ask.apply and findings.heirs):
            return {}
        ids = list(findings.memories)
        usages = yield from self._ledger.usages(ask.namespace, ids, now.timestamp(), 0.0)
        return dict(zip(ids, usages, strict=True))

    def _apply(self, findings: SweepPlan, usages: Mapping[MemoryId, Usage]) -> Plan[None]:
        """Writes before deletions: stopped at any point, nothing is lost."""
        writes = [
            Write(memory_id, revised_value(findings.memories[memory_id], **changes))
            for memory_id, changes in sorted(findings.changes.items())
        ]
        yield from self._keeper.put(writes)
        for merged_id, heir in findings.heirs.items():
            self._ledger.hand_over(usages.get(merged_id, Usage()), _last_heir(findings, heir))
        if findings.heirs:
            yield from self._ledger.flush()
        yield from self._keeper.remove(sorted(findings.gone))
        indexed = yield from self._keeper.catch_up()
        findings.rows += [Row("index", one, "the embedder works again") for one in indexed]

    def _erase(self, namespace: Namespace, sidecar: bool) -> Plan[int]:
        """Delete everything at or below a namespace of either store; returns how many items."""
        backend = self._keeper.sidecar if sidecar else self._keeper.backend
        count = yield from backend.erase(namespace)
        if count is not None:
            return count
        erased: set[MemoryId] = set()
        while True:
            op = SearchOp(namespace, None, PAGE, 0, None, refresh_ttl=False)
            (page,) = yield Ops([op], sidecar=sidecar)
            inside = (one for one in page if one.namespace[: len(namespace)] == namespace)
            ids = sorted((one.namespace, one.key) for one in inside)
            if not ids:
                return len(erased)
            if erased.issuperset(ids):
                raise StoreError(
                    f"The store keeps {len(ids)} items of {namespace!r} that were deleted from it. "
                    "Look for a process that writes them anew, and forget again."
                )
            yield Ops([PutOp(*one, None) for one in ids], sidecar=sidecar, as_batch=True)
            erased.update(ids)
            for one in ids:
                self._keeper.backend.note_delete(*one)

    def _beside(self, namespace: Namespace) -> Plan[list[Namespace]]:
        """Namespaces of the side-car that hold something about this one, whatever put it there."""
        path = (SIDECAR_ROOT, "*", *namespace)
        depth, found, offset = len(path), set(), 0
        while True:
            op = ListNamespacesOp((MatchCondition("prefix", path),), depth, PAGE, offset)
            (page,) = yield Ops([op], sidecar=True)
            offset += len(page)
            # Label by label, because one of the namespace's own may be an asterisk too.
            found |= {one for one in page if one[0] == SIDECAR_ROOT and one[2:depth] == namespace}
            if len(page) < PAGE:
                return sorted(found)

    def _compact(self) -> bool:
        both = (self._keeper.backend, self._keeper.sidecar)
        backends = {id(backend): backend for backend in both}.values()
        try:
            done = [backend.compact() for backend in backends]
            return all(done)
        except StoreError as error:
            told = described(error)
            logger.warning("The store could not be compacted; compact it later: %s", told)
            return False


def _age(findings: SweepPlan, ask: SweepRequest, policy: RecallPolicy, now: datetime) -> None:
    """What time alone decides: history that is old, memories past their end, inferences fading."""
    before = ask.purge_history_before
    if before is not None and before.tzinfo is None:
        before = before.replace(tzinfo=UTC)
    for memory in list(findings.memories.values()):
        if reason := purge(memory, before):
            findings.remove(Row("purge", memory.id, reason))
        elif memory.status == "superseded":
            continue
        elif "expire" in ask.steps and (reason := expiry(memory, now)):
            findings.remove(Row("expire", memory.id, reason))
        elif "decay" in ask.steps:
            _fade(findings, memory, policy)


def _fade(findings: SweepPlan, memory: Memory, policy: RecallPolicy) -> None:
    left = faded_confidence(memory, policy.durable_kinds)
    if left is None:
        return
    told = f"unconfirmed inference: confidence {memory.confidence:.2f} -> {left:.2f}"
    if left < LEAST_CONFIDENCE:
        findings.remove(Row("remove", memory.id, f"{told}, below {LEAST_CONFIDENCE:g}"))
    else:
        findings.rows.append(Row("decay", memory.id, told))
        findings.change(memory, {"confidence": left})


def _merge_one(
    findings: SweepPlan,
    memory_id: MemoryId,
    near: Sequence[Match],
    barred: set[MemoryId],
    least: float,
) -> None:
    """Merge a memory into a better one that says the same.

    Only the memory itself may go: one that lies outside this sweep goes when its turn comes.
    """
    memory = findings.memories[memory_id]
    for twin in near:
        other = findings.memories.get(twin.memory.id, twin.memory)
        if other.id in findings.gone or other.id in barred or keeps(memory, other):
            continue
        if is_same(memory, other, twin.likeness, least):
            findings.change(other, merged(other, memory))
            findings.heirs[memory_id] = other.id
            findings.remove(Row("merge", memory_id, f"says the same as {other.key}"))
            return


def _last_heir(findings: SweepPlan, heir: MemoryId) -> MemoryId:
    while heir in findings.heirs:
        heir = findings.heirs[heir]
    return heir


def _cold(
    memories: Sequence[Memory],
    usages: Mapping[MemoryId, Usage],
    cold_after: timedelta,
    policy: RecallPolicy,
    now: datetime,
) -> list[Row]:
    """Candidates for eviction by the signals that recall uses, the weakest first."""
    candidates = [Candidate(one, Evidence(), usages.get(one.id, Usage())) for one in memories]
    table, _, _ = signal_table(candidates, policy, now.timestamp())
    signals = list(zip(table[STRENGTH].tolist(), table[RECENCY].tolist(), strict=True))
    cold = []
    for candidate, both in zip(candidates, signals, strict=True):
        idle = _idle(candidate, now)
        reason = coldness(candidate.memory, idle, cold_after, policy.durable_kinds, both)
        if reason:
            cold.append((both, Row("cold", candidate.memory.id, reason)))
    return [row for _, row in sorted(cold, key=lambda pair: pair[0])]


def _idle(candidate: Candidate, now: datetime) -> timedelta | None:
    times = (candidate.usage.last_used, candidate.memory.written_ts)
    known = [time for time in times if time is not None and time == time]
    return timedelta(seconds=now.timestamp() - max(known)) if known else None
