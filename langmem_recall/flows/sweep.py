"""How `RecallStore` keeps house: sweeps of a namespace, and forgetting all of it, as plans."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import repeat
from operator import itemgetter
from typing import Any

from langgraph.store.base import ListNamespacesOp, MatchCondition, PutOp, SearchOp

from langmem_recall.errors import InputError, StoreError, check_whole, described
from langmem_recall.flows.bookkeeping import Bookkeeper, Write, check_namespace, resembling_memories
from langmem_recall.flows.candidates import PAGE, id_of, memory_of
from langmem_recall.flows.effects import Call, Ops, Plan
from langmem_recall.memory import upkeep as rules
from langmem_recall.memory.conflicts import is_same
from langmem_recall.memory.upkeep import Action, Forgotten, Row, SweepReport
from langmem_recall.memory.value import revised_value
from langmem_recall.policy import RecallPolicy
from langmem_recall.ranking.signals import RECENCY, STRENGTH, signal_table
from langmem_recall.types import (
    SIDECAR_ROOT,
    USERS_OWN,
    Candidate,
    Evidence,
    Memory,
    MemoryId,
    Namespace,
    Status,
    Usage,
    aware,
)

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class SweepPlan:
    """What a sweep has decided so far about the memories it looks at."""

    memories: dict[MemoryId, Memory]
    usages: Mapping[MemoryId, Usage]
    policy: RecallPolicy
    now: datetime
    rows: list[Row] = field(default_factory=list)
    changes: dict[MemoryId, dict[str, Any]] = field(default_factory=dict)
    gone: set[MemoryId] = field(default_factory=set)
    heirs: dict[MemoryId, MemoryId] = field(default_factory=dict)
    """Which memory takes the place of one that was merged into it."""

    def remove(self, action: Action, memory: Memory, reason: str) -> None:
        """A memory is to go."""
        self.rows.append(Row(action, memory.id, reason))
        self.gone.add(memory.id)
        self.changes.pop(memory.id, None)

    def left(self) -> list[Memory]:
        """The memories that stay, as they will be."""
        return [memory for memory in self.memories.values() if memory.id not in self.gone]

    def age(self, steps: Sequence[str], before: datetime | None) -> None:
        """What time alone decides: history that is old, what is past its end, fading inferences."""
        for memory in list(self.memories.values()):
            if reason := rules.purge(memory, aware(before)):
                self.remove("purge", memory, reason)
            elif memory.status == "superseded":
                continue
            elif "expire" in steps and (reason := rules.expiry(memory, self.now)):
                if memory.source in USERS_OWN:
                    self.rows.append(Row("propose", memory.id, f"{reason}; {rules.USERS_WORDS}"))
                else:
                    self.remove("expire", memory, reason)
            elif "decay" in steps:
                self._fade(memory)

    def _fade(self, memory: Memory) -> None:
        """What time has left of an inference, and whether that is too little for one not in use."""
        left = rules.faded_confidence(memory, self.policy.durable_kinds, self.now)
        if left is None:
            return
        reason = f"unconfirmed inference: confidence {memory.confidence:.2f} -> {left:.2f}"
        usage = self.usages[memory.id]
        idle_s = self.now.timestamp() - (usage.last_used or -math.inf)
        # What an answer has rested on is a fact to somebody, however long ago.
        is_in_use = usage.merit > 0 or idle_s <= self.policy.half_life_hours * 3_600
        if left < rules.LEAST_CONFIDENCE and not is_in_use:
            self.remove("remove", memory, f"{reason}, below {rules.LEAST_CONFIDENCE:g}")
        else:
            in_use = "; in use" if left < rules.LEAST_CONFIDENCE else ""
            self.rows.append(Row("decay", memory.id, reason + in_use))

    def list_cold(self, cold_after: timedelta) -> None:
        """Candidates for eviction by the signals that recall uses, the weakest first."""
        memories, at = self.left(), self.now.timestamp()
        usages = [self.usages.get(memory.id, Usage()) for memory in memories]
        candidates = list(map(Candidate, memories, repeat(Evidence()), usages))
        table, _, _ = signal_table(candidates, self.policy, at)
        signals = zip(table[STRENGTH].tolist(), table[RECENCY].tolist(), strict=True)
        cold: list[tuple[tuple[float, float], Row]] = []
        for memory, usage, signal in zip(memories, usages, signals, strict=True):
            times = (usage.last_used, memory.written_ts)
            known = [time for time in times if time is not None and not math.isnan(time)]
            idle = timedelta(seconds=at - max(known)) if known else None
            durable = self.policy.durable_kinds
            if reason := rules.coldness(memory, idle, cold_after, durable, signal):
                cold.append((signal, Row("cold", memory.id, reason)))
        self.rows += [row for _, row in sorted(cold, key=itemgetter(0))]


class Sweeper:
    """The housekeeping half of a `RecallStore`; plans only, carried out by its owner."""

    def __init__(self, keeper: Bookkeeper, merge_similarity: float) -> None:
        self._keeper = keeper
        self._backend = keeper.backend
        self._quarantine = keeper.quarantine
        self._ledger = keeper.ledger
        self._merge_similarity = merge_similarity

    def sweep(
        self,
        namespace: Namespace,
        reading_policy: Plan[RecallPolicy],
        apply: bool,
        steps: Sequence[str],
        cold_after: timedelta | None,
        purge_before: datetime | None,
        limit: int,
        after: int | None,
    ) -> Plan[SweepReport]:
        """Look at some memories, say what is to become of them, and do it where it is to be."""
        check_namespace(namespace)
        rules.check_steps(steps)
        check_whole("limit", limit, 1)
        check_whole("after", after or 0, 0)
        if cold_after is not None and not (
            isinstance(cold_after, timedelta) and cold_after > timedelta()
        ):
            raise InputError(f"cold_after must be a timedelta above 0, got {cold_after!r:.80}.")
        if purge_before is not None and not isinstance(purge_before, datetime):
            raise InputError(f"purge_history_before must be a datetime, got {purge_before!r:.80}.")
        policy = yield from reading_policy
        now, offset = self._keeper.clock(), after or 0
        at = now.timestamp()
        # By name, where what a sweep writes stays put. In a store's own listing it would not: that
        # begins with what was written last, and leaves open which of two written together is first.
        items, places = yield from self._backend.items_below(namespace, offset, limit)
        memories = {memory.id: memory for memory in map(memory_of, items)}
        barred = yield from self._quarantine.barred(memories.values(), at)
        for memory_id, decision in barred.items():
            status: Status = "masked" if decision.masks else "quarantined"
            if memories[memory_id].status == "active":
                memories[memory_id] = replace(memories[memory_id], status=status)
        usages = yield from self._ledger.usages(namespace, [*memories], at, 0.0)
        plan = SweepPlan(memories, dict(zip(memories, usages, strict=True)), policy, now)
        plan.age(steps, purge_before)
        if "merge" in steps and self._merge_similarity <= 1:
            yield from self._merge(plan, namespace)
        if cold_after is not None:
            plan.list_cold(cold_after)
        if apply:
            yield from self._apply(plan)
            # Here, and wherever below a memory was looked at.
            for home in sorted({namespace, *(home for home, _ in memories)}):
                indexed = yield from self._keeper.catch_up(home)
                plan.rows += [Row("index", one, "the embedder works again") for one in indexed]
            # What was removed no longer takes up a place in the listing.
            offset -= len(plan.gone)
        further = offset + places if places == limit else None
        return SweepReport(namespace, apply, tuple(plan.rows), len(items), further)

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

    def _merge(self, plan: SweepPlan, namespace: Namespace) -> Plan[None]:
        """Merge each swept memory into a better one, swept now or not, that says the same."""
        now = plan.now
        usable = [memory for memory in plan.left() if rules.is_in_force(memory, now)]
        found = yield from resembling_memories(self._backend, namespace, usable)
        others = [match for matches in found for match, _ in matches]
        excluded = set((yield from self._quarantine.barred(others, now.timestamp())))
        excluded |= {memory.id for memory in others if not rules.is_in_force(memory, now)}
        for swept, matches in zip(usable, found, strict=True):
            # As it is after others were merged into it.
            memory = plan.memories[swept.id]
            for match, likeness in matches:
                other = plan.memories.get(match.id, match)
                if other.id in plan.gone or other.id in excluded or rules.keeps(memory, other):
                    continue
                if is_same(memory, other, likeness, self._merge_similarity):
                    changes = rules.merged(other, memory)
                    if changes:
                        plan.changes.setdefault(other.id, {}).update(changes)
                    plan.memories[other.id] = replace(other, **changes)
                    plan.heirs[memory.id] = other.id
                    plan.remove("merge", memory, f"says the same as {other.key}")
                    break

    def _apply(self, plan: SweepPlan) -> Plan[None]:
        """Writes before deletions: stopped at any point, nothing is lost."""
        writes = [
            Write(one, revised_value(plan.memories[one], **changes), stored=plan.memories[one])
            for one, changes in sorted(plan.changes.items())
        ]
        yield from self._keeper.put(writes)
        for merged_id, heir in plan.heirs.items():
            while heir in plan.heirs:
                heir = plan.heirs[heir]
            self._ledger.hand_over(plan.usages[merged_id], heir)
        if plan.heirs:
            yield from self._ledger.flush()
        yield from self._keeper.remove(sorted(plan.gone))

    def _erase(self, namespace: Namespace, sidecar: bool) -> Plan[int]:
        """Delete everything at or below a namespace of either store; returns how many items."""
        backend = self._keeper.sidecar if sidecar else self._backend
        count = yield from backend.erase(namespace)
        if count is not None:
            return count
        erased: set[MemoryId] = set()
        while True:
            op = SearchOp(namespace, None, PAGE, 0, None, refresh_ttl=False)
            (page,) = yield Ops([op], sidecar=sidecar)
            inside = (item for item in page if item.namespace[: len(namespace)] == namespace)
            ids = sorted(map(id_of, inside))
            if not ids:
                return len(erased)
            if erased.issuperset(ids):
                raise StoreError(
                    f"The store keeps {len(ids)} items of {namespace!r} that were deleted from it. "
                    "Look for a process that writes them anew, and forget again."
                )
            deletions = [PutOp(*memory_id, None) for memory_id in ids]
            yield Ops(deletions, sidecar=sidecar, as_batch=True)
            erased.update(ids)
            for memory_id in ids:
                self._backend.note_delete(*memory_id)

    def _beside(self, namespace: Namespace) -> Plan[list[Namespace]]:
        """Namespaces of the side-car that hold something about this one, whatever put it there."""
        path, own = (SIDECAR_ROOT, "*", *namespace), (SIDECAR_ROOT, *namespace)
        depth, found, offset = len(path), set[Namespace](), 0
        while True:
            op = ListNamespacesOp((MatchCondition("prefix", path),), depth, PAGE, offset)
            (page,) = yield Ops([op], sidecar=True)
            offset += len(page)
            # Label by label, because one of the namespace's own may be an asterisk too.
            found |= {home for home in page if (home[0], *home[2:depth]) == own}
            if len(page) < PAGE:
                return sorted(found)

    def _compact(self) -> bool:
        backends = {id(backend): backend for backend in (self._backend, self._keeper.sidecar)}
        try:
            # Each of them, whatever the first one says.
            done = [backend.compact() for backend in backends.values()]
            return all(done)
        except StoreError as error:
            reason = described(error)
            logger.warning("The store could not be compacted; compact it later: %s", reason)
            return False
