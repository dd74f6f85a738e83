"""Usage: which memories were used, when and how often; beside them, never in them."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby
from operator import attrgetter, itemgetter
from typing import Any, cast
from uuid import uuid4

from langgraph.store.base import GetOp, Item, PutOp

from langmem_recall.errors import StoreError
from langmem_recall.flows.candidates import NEVER, listing
from langmem_recall.flows.effects import Ops, Plan, pause
from langmem_recall.memory.upkeep import counts_as_use, pooled, reinforced
from langmem_recall.memory.value import plain_numbers
from langmem_recall.policy import RecallPolicy
from langmem_recall.types import SIDECAR_ROOT, MemoryId, Namespace, Recall, Usage, UsageDelta

USAGE = (SIDECAR_ROOT, "usage")
MOST_KNOWN = 200_000
"""Usage records held in memory before the reading starts afresh."""
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
class UsageBatch:
    """Uses that are written together: once, however often the writing is tried.

    A write whose answer is lost or not waited for may have been done all the same. So a batch is
    tried again as it is, and a backend knows by its ledger and number whether it has it already.
    """

    touches: Mapping[MemoryId, UsageDelta]
    ledger: str = field(default_factory=lambda: uuid4().hex)
    number: int = 1
    """Batches of one ledger are written in this order, one after the other."""
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _is_written: bool = False

    def write_once(self, write: Callable[[], None]) -> None:
        """Write it here, unless an abandoned thread did so before."""
        with self._lock:
            if not self._is_written:
                write()
                self._is_written = True


class UsageBackend:
    """Where usage is kept for good; as it is here, in un-indexed items of any store.

    Exact within a process (additions are serialised by the ledger); two processes that add to the
    same memory in the same instant may lose one of the two, because stores have no atomic add.
    """

    @property
    def version(self) -> object:
        """Changes with every write, where usage is read by id; None: all of it is, now and then."""
        return None

    def read(self, ids: Sequence[MemoryId]) -> Plan[list[Usage]]:
        """Usage of these memories."""
        items: list[Item | None] = yield Ops(_gets(ids), sidecar=True)
        return [_usage_of(item) for item in items]

    def read_below(self, prefix: Namespace) -> Plan[dict[MemoryId, Usage] | None]:
        """Usage of every memory below a namespace; None where that is too much to hold."""
        items = yield from listing((*USAGE, *prefix), sidecar=True)
        return {(item.namespace[len(USAGE) :], item.key): _usage_of(item) for item in items}

    def add(self, batch: UsageBatch, fade_per_day: float) -> Plan[dict[MemoryId, Usage]]:
        """Add uses for good, a batch at most once; the records as they now stand, where known."""
        # Sorted, because unsorted batches dead-lock on Postgres.
        ids, mark = sorted(batch.touches), f"{batch.ledger}-{batch.number}"
        items: list[Item | None] = yield Ops(_gets(ids), sidecar=True)
        after: dict[MemoryId, Usage] = {}
        puts = []
        for memory_id, item in zip(ids, items, strict=True):
            usage = _usage_of(item)
            # Stores that write one by one may have written some of a batch that failed.
            if item is None or item.value.get("lot") != mark:
                usage = reinforced(usage, batch.touches[memory_id], fade_per_day)
                record = {**usage._asdict(), "lot": mark}
                if not usage.merit:
                    del record["merit"]
                namespace, key = memory_id
                puts.append(PutOp((*USAGE, *namespace), key, record, index=False))
            after[memory_id] = usage
        yield Ops(puts, sidecar=True)
        return after

    def is_sharded(self) -> Plan[bool]:
        """Whether one namespace may fail without the others, so that each is written apart."""
        yield from ()
        return False

    def drop(self, ids: Sequence[MemoryId]) -> Plan[None]:
        """Forget the usage of these memories."""
        ops = [PutOp((*USAGE, *namespace), key, None) for namespace, key in sorted(ids)]
        yield Ops(ops, sidecar=True)

    def drop_below(self, prefix: Namespace) -> Plan[int]:
        """Forget all usage at or below a namespace; returns of how many memories."""
        known = list((yield from self.read_below(prefix)) or ())
        yield from self.drop(known)
        return len(known)


def _gets(ids: Sequence[MemoryId]) -> list[GetOp]:
    return [GetOp((*USAGE, *namespace), key, refresh_ttl=False) for namespace, key in ids]


def _usage_of(item: Item | None) -> Usage:
    return NEVER if item is None or "uses" not in item.value else usage_of(item.value, item.key)


def usage_of(value: Mapping[str, Any], key: str) -> Usage:
    """The record that an item of the side-car holds."""
    stored = plain_numbers(value)
    fields = {name: stored[name] for name in Usage._fields if name in stored}
    return checked_usage(Usage(**fields), key)


def checked_usage(usage: Usage, key: str) -> Usage:
    """The record as it is; what is no number must reach no score, and not be added to."""
    is_sound = usage == NEVER or all(
        part is None or (isinstance(part, int | float) and math.isfinite(part)) for part in usage
    )
    if not is_sound:
        raise StoreError(
            f"The usage record of {key!r} must hold numbers, got {usage!r:.120}. Nothing was "
            "changed; `forget` the memory, or delete the record."
        )
    return usage


class Ledger:
    """Usage as ranking sees it: what is stored, with what is not written yet laid over it."""

    def __init__(self, backend: UsageBackend, fade_per_day: float, adding: threading.Lock) -> None:
        self._backend = backend
        self._fade_per_day = fade_per_day
        self._adding = adding
        """Held while uses are added: one addition at a time for each store in this process."""
        self._lock = threading.Lock()
        self._known: dict[MemoryId, Usage] = {}
        self._read_at: dict[Namespace, float] = {}
        self._sound: tuple[object, dict[MemoryId, Usage]] = (None, {})
        """What was read by id, in one version of the store."""
        self._pending: dict[MemoryId, UsageDelta] = {}
        self._current: dict[MemoryId, Usage] = {}
        """What is known, with what is not written yet laid over it."""
        self._in_flight: list[UsageBatch] = []
        """What is being written, or was not seen to be: then the next flush tries it again."""
        self._name = uuid4().hex
        self._batches = 0
        self._written = 0
        """Batches that were seen to be written."""
        self._refresh: set[MemoryId] = set()
        self.balances = Balances()
        """Written and forgotten with the uses that move them."""

    def usages(
        self, prefix: Namespace, ids: Sequence[MemoryId], now: float, max_age_s: float
    ) -> Plan[list[Usage]]:
        """Usage of these memories; read anew when the last reading is too old."""
        version, written, read_at = self._backend.version, self._written, self._read_at.get(prefix)
        if version is not None:
            with self._lock:
                if version != self._sound[0] or not max_age_s or len(self._sound[1]) > MOST_KNOWN:
                    # A new dict: another thread may still add to the former what is no longer so.
                    self._sound = version, {}
                sound = self._sound[1]
                found = list(map(sound.get, ids))
                if all(found) and not (self._pending or self._in_flight):
                    return cast(list[Usage], found)
            missing = [one for one, usage in zip(ids, found, strict=True) if usage is None]
            if missing:
                read = dict(zip(missing, (yield from self._backend.read(missing)), strict=True))
                self._take_in(read.items(), written)
                sound |= read
        elif read_at is None or now - read_at >= max_age_s:
            below = yield from self._backend.read_below(prefix)
            if below is None:
                below = dict(zip(ids, (yield from self._backend.read(ids)), strict=True))
            else:
                self._read_at[prefix] = now
            self._take_in(below.items(), written)
        with self._lock:
            return [usage or NEVER for usage in map(self._current.get, ids)]

    def record(self, ids: Iterable[MemoryId], now: float, refresh_floor: float) -> None:
        """Note that these memories were used; uses within the refresh floor do not count."""
        with self._lock:
            for memory_id in ids:
                if counts_as_use(self._current.get(memory_id, NEVER), now, refresh_floor):
                    self._add_pending(memory_id, UsageDelta(1, now))

    def credit(self, ids: Sequence[MemoryId], steps: int, now: float) -> None:
        """Note what came of using these memories: good outcomes less bad ones."""
        if steps > 0:
            # What an adaptive recall showed is used when an answer rests on it.
            self.record(self.balances.asked(ids), now, 0.0)
        with self._lock:
            for memory_id in ids:
                self._add_pending(memory_id, UsageDelta(0, merit=steps))

    def hand_over(self, usage: Usage, heir: MemoryId) -> None:
        """Note that a memory takes over what reads have left behind about one merged into it."""
        if usage != NEVER:
            delta = UsageDelta(usage.uses, usage.last_used, usage.before, usage.merit)
            with self._lock:
                self._add_pending(heir, delta)

    def refresh_ttl(self, ids: Iterable[MemoryId]) -> None:
        """Note that the time to live of these memories starts again with the next flush."""
        with self._lock:
            self._refresh.update(ids)

    @property
    def has_pending(self) -> bool:
        """Whether a flush would write anything, or wait for one that is under way."""
        usage = self._pending or self._refresh or self._in_flight
        return bool(usage or self.balances.has_pending)

    def flush(self) -> Plan[int]:
        """Write what is pending; returns how many memories it concerned.

        What was recorded before is written once and for good when it returns. When it fails,
        nothing is lost and nothing will be counted twice: the next one goes on with it. Where
        namespaces lie on servers of their own, one that fails holds back no other.
        """
        yield from self._acquire()
        try:
            is_sharded = yield from self._backend.is_sharded()
            faults: list[Exception] | None = [] if is_sharded else None
            # First what a flush before did not see written.
            again = list(self._in_flight)
            yield from self._write(again, faults)
            with self._lock:
                batches = self._take_pending(is_sharded)
            yield from self._write(batches, faults)
            for _, named in groupby(sorted(self._refresh), itemgetter(0)):
                ids = set(named)
                with self._lock:
                    self._refresh -= ids
                try:
                    yield Ops([GetOp(*one, refresh_ttl=True) for one in sorted(ids)])
                except BaseException as fault:
                    with self._lock:
                        self._refresh |= ids
                    _set_aside(fault, faults)
            yield from self.balances.flush()
            if faults:
                raise faults[0]
            return len({one for batch in (*again, *batches) for one in batch.touches})
        finally:
            self._adding.release()

    def _take_pending(self, is_sharded: bool) -> list[UsageBatch]:
        """What is pending as batches in flight; a namespace whose last one failed has to wait."""
        waiting = {one[0] for batch in self._in_flight for one in batch.touches}
        taken: dict[Namespace | None, dict[MemoryId, UsageDelta]] = {}
        for memory_id, delta in self._pending.items():
            if memory_id[0] not in waiting:
                taken.setdefault(memory_id[0] if is_sharded else None, {})[memory_id] = delta
        self._pending = {one: delta for one, delta in self._pending.items() if one[0] in waiting}
        self._batches += bool(taken)
        # A forked process goes on counting on its own.
        ledger = f"{self._name}-{os.getpid()}"
        batches = [UsageBatch(touches, ledger, self._batches) for touches in taken.values()]
        self._in_flight += batches
        return batches

    def _write(self, batches: Sequence[UsageBatch], faults: list[Exception] | None) -> Plan[None]:
        for batch in batches:
            try:
                after = yield from self._backend.add(batch, self._fade_per_day)
            except Exception as fault:
                _set_aside(fault, faults)
                continue
            # Known before it leaves the overlay: a use in between must see the last one.
            self._take_in(after.items())
            with self._lock:
                self._in_flight.remove(batch)
                self._written += 1
                self._lay_over(batch.touches)

    def forget(self, ids: Sequence[MemoryId]) -> Plan[None]:
        """Drop every trace of use of these memories."""
        # A flush under way would write back what is dropped.
        yield from self._acquire()
        try:
            self._let_go(ids)
            yield from self._backend.drop(ids)
        finally:
            self._adding.release()

    def forget_below(self, prefix: Namespace) -> Plan[int]:
        """Drop every trace of use at or below a namespace; returns of how many memories."""
        yield from self._acquire()
        try:
            with self._lock:
                written = [one for batch in self._in_flight for one in batch.touches]
                known = {*self._pending, *self._refresh, *self._known, *written}
            self._let_go(one for one in known if one[0][: len(prefix)] == prefix)
            self.balances.forget_below(prefix)
            return (yield from self._backend.drop_below(prefix))
        finally:
            self._adding.release()

    def _acquire(self) -> Plan[None]:
        """Wait for another add; never in a thread, where a cancelled wait would hold for ever."""
        while not self._adding.acquire(blocking=False):
            yield pause()

    def _let_go(self, ids: Iterable[MemoryId]) -> None:
        gone = set(ids)
        with self._lock:
            for memory_id in gone:
                for usages in (self._pending, self._known, self._current):
                    usages.pop(memory_id, None)
            self._refresh -= gone
            for batch in self._in_flight:
                # Another mapping: an abandoned thread may still read the old one.
                touches = batch.touches.items()
                batch.touches = {name: delta for name, delta in touches if name not in gone}

    def _add_pending(self, memory_id: MemoryId, delta: UsageDelta) -> None:
        self._pending[memory_id] = pooled(self._pending.get(memory_id), delta)
        self._lay_over([memory_id])

    def _take_in(
        self, usages: Iterable[tuple[MemoryId, Usage]], written: int | None = None
    ) -> None:
        """Note what was read; `written`, how many batches were when the reading began."""
        with self._lock:
            if len(self._known) > MOST_KNOWN:
                self._known.clear()
                self._read_at.clear()
                self._current.clear()
                self._sound = (None, {})
                self._lay_over([*self._pending, *chain(*(it.touches for it in self._in_flight))])
            known = self._known
            # What has been written since, and is known already, is newer than what was read.
            is_newest = written in (None, self._written)
            changed = {
                memory_id: usage
                for memory_id, usage in usages
                if known.get(memory_id) is not usage and (is_newest or memory_id not in known)
            }
            known.update(changed)
            self._lay_over(changed)

    def _lay_over(self, ids: Iterable[MemoryId]) -> None:
        """Work out anew how these memories stand; the caller holds the lock."""
        layers = [*(batch.touches for batch in self._in_flight), self._pending]
        for memory_id in ids:
            usage = self._known.get(memory_id, NEVER)
            for touches in layers:
                if (delta := touches.get(memory_id)) is not None:
                    usage = reinforced(usage, delta, self._fade_per_day)
            self._current[memory_id] = usage


def _set_aside(fault: BaseException, faults: list[Exception] | None) -> None:
    """Go on past a fault where others need not share it."""
    if faults is None or not isinstance(fault, Exception):
        raise fault
    faults.append(fault)


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
    """How recency weighs against use in each namespace that an adaptive policy reads.

    After ARC (Megiddo and Modha, 2003): a memory that only the other balance would have shown
    leaves a ghost, and when it is asked for the balance moves towards the side that would have
    shown it. The side-car has all balances.
    """

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
