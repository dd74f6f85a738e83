"""Usage: which memories were used, when and how often; beside them, never in them."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Any
from uuid import uuid4

from langgraph.store.base import GetOp, Item, PutOp

from langmem_recall.errors import StoreError
from langmem_recall.flows.balance import Balances
from langmem_recall.flows.candidates import listing
from langmem_recall.flows.effects import Ops, Plan, pause
from langmem_recall.memory.upkeep import counts_as_use, pooled, reinforced
from langmem_recall.memory.value import plain_numbers
from langmem_recall.types import SIDECAR_ROOT, MemoryId, Namespace, Usage, UsageDelta

USAGE = (SIDECAR_ROOT, "usage")
MOST_KNOWN = 200_000
"""Usage records held in memory before the reading starts afresh."""
NEVER = Usage()


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

    def read(self, ids: Sequence[MemoryId]) -> Plan[list[Usage]]:
        """Usage of these memories."""
        items: list[Item | None] = yield Ops(_gets(ids), sidecar=True)
        return [_usage_of(item) for item in items]

    def read_below(self, prefix: Namespace) -> Plan[dict[MemoryId, Usage] | None]:
        """Usage of every memory below a namespace; None where reading by id is better."""
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
        self._pending: dict[MemoryId, UsageDelta] = {}
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
        read_at = self._read_at.get(prefix)
        if read_at is None or now - read_at >= max_age_s:
            written = self._written
            below = yield from self._backend.read_below(prefix)
            if below is None:
                found = yield from self._backend.read(ids)
                below = dict(zip(ids, found, strict=True))
            else:
                self._read_at[prefix] = now
            self._take_in(below, written)
        with self._lock:
            known = self._known
            if self._in_flight or not self._pending.keys().isdisjoint(ids):
                return [self._overlaid(one) for one in ids]
            return [known.get(one, NEVER) for one in ids]

    def record(self, ids: Iterable[MemoryId], now: float, refresh_floor: float) -> None:
        """Note that these memories were used; uses within the refresh floor do not count."""
        with self._lock:
            for memory_id in ids:
                pending = self._pending.get(memory_id)
                # Within the floor most of all: read a moment ago, and not written yet.
                if pending and pending.last is not None and 0 <= now - pending.last < refresh_floor:
                    continue
                if counts_as_use(self._overlaid(memory_id), now, refresh_floor):
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
            self._take_in(after)
            with self._lock:
                self._in_flight.remove(batch)
                self._written += 1

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
                self._pending.pop(memory_id, None)
                self._known.pop(memory_id, None)
            self._refresh -= gone
            for batch in self._in_flight:
                # Another mapping: an abandoned thread may still read the old one.
                touches = batch.touches.items()
                batch.touches = {name: delta for name, delta in touches if name not in gone}

    def _add_pending(self, memory_id: MemoryId, delta: UsageDelta) -> None:
        self._pending[memory_id] = pooled(self._pending.get(memory_id), delta)

    def _take_in(self, usages: Mapping[MemoryId, Usage], written: int | None = None) -> None:
        """Note what was read; `written`, how many batches were when the reading began."""
        with self._lock:
            if len(self._known) > MOST_KNOWN:
                self._known.clear()
                self._read_at.clear()
            if written in (None, self._written):
                self._known.update(usages)
            else:
                # It may be from before what has been written since, and is known already.
                self._known = {**usages, **self._known}

    def _overlaid(self, memory_id: MemoryId) -> Usage:
        usage = self._known.get(memory_id, NEVER)
        for batch in self._in_flight:
            if (delta := batch.touches.get(memory_id)) is not None:
                usage = reinforced(usage, delta, self._fade_per_day)
        if (delta := self._pending.get(memory_id)) is not None:
            usage = reinforced(usage, delta, self._fade_per_day)
        return usage


def _set_aside(fault: BaseException, faults: list[Exception] | None) -> None:
    """Go on past a fault where others need not share it."""
    if faults is None or not isinstance(fault, Exception):
        raise fault
    faults.append(fault)
