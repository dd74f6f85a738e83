"""Balances: how recency weighs against use in a namespace, moved by what was cut and then wanted.

After ARC (Megiddo and Modha, 2003): a memory that only the other balance would have shown leaves a
ghost, and when it is asked for the balance moves towards the side that would have shown it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import attrgetter

from langgraph.store.base import GetOp, Item, PutOp

from langmem_recall.flows.effects import Ops, Plan
from langmem_recall.policy import RecallPolicy
from langmem_recall.types import SIDECAR_ROOT, MemoryId, Namespace, Recall

BALANCE = (SIDECAR_ROOT, "balance")
BALANCE_KEY = "balance"
LEAST = 0.1
"""Neither recency nor use ever has less than this share, so that the way back stays open."""
MOST_GHOSTS = 4
"""Ghosts of a namespace for each place of a recall; the oldest go first."""
MOST_NAMESPACES = 1_000
"""Namespaces whose ghosts are kept in this process before it starts afresh."""

_SIDES = {"recency": attrgetter("signals.recency"), "use": attrgetter("signals.strength")}


@dataclass(slots=True, eq=False)
class _Balance:
    """What is known of a namespace in this process."""

    share: float
    """Of recency, in what recency and use weigh together."""
    read_at: float
    ghosts: dict[MemoryId, str] = field(default_factory=dict)
    """The side that would have shown each memory."""
    shown: set[MemoryId] = field(default_factory=set)
    """What was shown last, and not asked for since."""
    step: float = 0.0
    """How far a ghost moves the share where both sides have as many: one place of the recall."""


class Balances:
    """One balance for each namespace that an adaptive policy reads; the side-car has them all."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[Namespace, _Balance] = {}
        self._moved: set[Namespace] = set()

    @property
    def has_pending(self) -> bool:
        """Whether a balance was moved and is not written yet."""
        return bool(self._moved)

    def apply(
        self, prefix: Namespace, policy: RecallPolicy, now: float, max_age_s: float
    ) -> Plan[RecallPolicy]:
        """The policy with the namespace's balance; read anew when the last reading is too old."""
        known = self._known.get(prefix)
        if known is None or (now - known.read_at >= max_age_s and prefix not in self._moved):
            get = GetOp((*BALANCE, *prefix), BALANCE_KEY, refresh_ttl=False)
            items: list[Item | None] = yield Ops([get], sidecar=True)
            share = items[0].value.get("recency") if items[0] else None
            if not isinstance(share, int | float) or not LEAST <= share <= 1 - LEAST:
                share = policy.balance
            with self._lock:
                if len(self._known) >= MOST_NAMESPACES:
                    self._known = {one: self._known[one] for one in self._moved}
                known = self._known.setdefault(prefix, _Balance(share, now))
                known.read_at = now
                # Moved while it was read: what is written next is newer.
                known.share = known.share if prefix in self._moved else share
        return policy.balanced(known.share)

    def note(self, recall: Recall) -> None:
        """Note what a recall showed, and what only one side alone would have shown."""
        prefix, chosen = recall.trace.namespaces[0], {one.memory.id for one in recall.chosen}
        cut = [drop.scored for drop in recall.dropped if drop.gate in ("top_k", "budget")]
        rivals = [*recall.chosen, *cut]
        # By each side alone the best would have had these places; chosen ones first among equals.
        sides = dict[MemoryId, str]()
        for side, signal in _SIDES.items():
            best = sorted(rivals, key=signal, reverse=True)[: len(chosen)]
            sides |= {one.memory.id: "" if one.memory.id in sides else side for one in best}
        with self._lock:
            known = self._known.get(prefix)
            if known is None or not chosen:
                return
            known.shown, known.step = chosen, 1 / len(chosen)
            ghosts = {one: side for one, side in known.ghosts.items() if one not in chosen}
            # Asked for again is only what was asked for before.
            for name in (one.memory.id for one in cut if one.candidate.usage.uses):
                if sides.get(name):
                    ghosts.pop(name, None)
                    ghosts[name] = sides[name]
            known.ghosts = dict(list(ghosts.items())[-MOST_GHOSTS * len(chosen) :])

    def asked(self, ids: Iterable[MemoryId]) -> list[MemoryId]:
        """Move the balances that cut these memories; returns those that were shown before."""
        shown = list[MemoryId]()
        with self._lock:
            for memory_id in ids if self._known else ():
                for prefix, known in self._known.items():
                    if memory_id in known.shown:
                        known.shown.remove(memory_id)
                        shown.append(memory_id)
                    side = known.ghosts.get(memory_id)
                    if side is not None:
                        sides = list(known.ghosts.values())
                        same = sides.count(side)
                        # As in ARC, a hit on the side with fewer ghosts tells more.
                        step = known.step * max(1.0, (len(sides) - same) / same)
                        share = known.share + (step if side == "recency" else -step)
                        known.share = round(min(max(share, LEAST), 1 - LEAST), 2)
                        del known.ghosts[memory_id]
                        self._moved.add(prefix)
        return shown

    def flush(self) -> Plan[None]:
        """Write the balances that were moved, each on its own: one may fail without the others."""
        with self._lock:
            shares = {prefix: self._known[prefix].share for prefix in sorted(self._moved)}
        faults: list[Exception] = []
        for prefix, share in shares.items():
            put = PutOp((*BALANCE, *prefix), BALANCE_KEY, {"recency": share}, index=False)
            try:
                yield Ops([put], sidecar=True)
            except Exception as fault:
                faults.append(fault)
                continue
            with self._lock:
                # What moved in the meantime is written with the next flush.
                if prefix not in self._known or self._known[prefix].share == share:
                    self._moved.discard(prefix)
        if faults:
            raise faults[0]

    def forget_below(self, prefix: Namespace) -> None:
        """Drop what is known at or below a namespace."""
        with self._lock:
            for known in [one for one in self._known if one[: len(prefix)] == prefix]:
                del self._known[known]
                self._moved.discard(known)
