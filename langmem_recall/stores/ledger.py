"""The ledger: which memories were used, when and how often; beside them, never in them."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol
from uuid import uuid4

from langgraph.store.base import GetOp, Item, PutOp

from langmem_recall.errors import StoreError
from langmem_recall.flows.candidates import listing
from langmem_recall.flows.effects import Call, Ops, Plan
from langmem_recall.memory.usage import counts_as_use, pooled, reinforced
from langmem_recall.sources import UsageTable
from langmem_recall.types import SIDECAR_ROOT, MemoryId, Namespace, Usage, UsageDelta

USAGE = (SIDECAR_ROOT, "usage")
MOST_KEPT = 200_000
"""Usage records held in memory before the reading starts afresh."""
NEVER = Usage()


@dataclass(slots=True, eq=False)
class UsageBatch:
    """Uses that are written together: once, however often the writing is tried.

    A write whose answer is lost or not waited for may have been done all the same. So a lot is
    tried again as it is, and a book knows by its ledger and number whether it has it already.
    """

    touches: Mapping[MemoryId, UsageDelta]
    ledger: str = field(default_factory=lambda: uuid4().hex)
    number: int = 1
    """Lots of one ledger are written in this order, one after the other."""
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _is_written: bool = False

    @property
    def mark(self) -> str:
        """What tells it from every other lot."""
        return f"{self.ledger}-{self.number}"

    def write_once(self, write: Callable[[], None]) -> None:
        """Write it here, unless an abandoned thread did so before."""
        with self._lock:
            if not self._is_written:
                write()
                self._is_written = True


class UsageBook(Protocol):
    """Where usage is kept for good."""

    def read(self, ids: Sequence[MemoryId]) -> Plan[list[Usage]]:
        """Usage of these memories."""

    def read_below(self, prefix: Namespace) -> Plan[dict[MemoryId, Usage] | None]:
        """Usage of every memory below a namespace; None where reading by id is better."""

    def add(self, lot: UsageBatch, fade_per_day: float) -> Plan[dict[MemoryId, Usage]]:
        """Add uses for good, a lot at most once; the records as they now stand, where known."""

    def drop(self, ids: Sequence[MemoryId]) -> Plan[None]:
        """Forget the usage of these memories."""

    def drop_below(self, prefix: Namespace) -> Plan[int]:
        """Forget all usage at or below a namespace; returns of how many memories."""


class TableBook:
    """Usage kept by the store itself, with atomic additions."""

    def __init__(self, table: UsageTable) -> None:
        self._table = table

    def read(self, ids: Sequence[MemoryId]) -> Plan[list[Usage]]:
        """Usage of these memories."""
        found: list[Usage] = yield Call(lambda: self._table.read_usage(ids))
        return [_sound(usage, key) for (_, key), usage in zip(ids, found, strict=True)]

    def read_below(self, prefix: Namespace) -> Plan[dict[MemoryId, Usage] | None]:
        """A table answers by id, always up to date with other processes."""
        return None
        yield

    def add(self, lot: UsageBatch, fade_per_day: float) -> Plan[dict[MemoryId, Usage]]:
        """Add uses in one transaction."""
        ids = list(lot.touches)
        write = partial(self._table.add_usage, lot.touches, fade_per_day)
        yield Call(lambda: lot.write_once(write))
        kept = yield from self.read(ids)
        return dict(zip(ids, kept, strict=True))

    def drop(self, ids: Sequence[MemoryId]) -> Plan[None]:
        """Forget the usage of these memories."""
        yield Call(lambda: self._table.drop_usage(ids))

    def drop_below(self, prefix: Namespace) -> Plan[int]:
        """Forget all usage at or below a namespace."""
        count: int = yield Call(lambda: self._table.drop_usage_below(prefix))
        return count


class SidecarBook:
    """Usage as un-indexed items of any store, below a root of its own.

    Exact within a process (additions are serialised by the ledger); two processes that add to the
    same memory in the same instant may lose one of the two, because stores have no atomic add.
    """

    def read(self, ids: Sequence[MemoryId]) -> Plan[list[Usage]]:
        """Usage of these memories, one batch."""
        items = yield from self._items(ids)
        return [_usage_of(item) for item in items]

    def read_below(self, prefix: Namespace) -> Plan[dict[MemoryId, Usage] | None]:
        """Usage of every memory below a namespace, page by page."""
        items: list[Item] = yield from listing((*USAGE, *prefix), sidecar=True)
        return {(item.namespace[len(USAGE) :], item.key): _usage_of(item) for item in items}

    def add(self, lot: UsageBatch, fade_per_day: float) -> Plan[dict[MemoryId, Usage]]:
        """Read, add, write; sorted, because unsorted batches dead-lock on Postgres."""
        ids = sorted(lot.touches)
        items = yield from self._items(ids)
        after = {one: _usage_of(item) for one, item in zip(ids, items, strict=True)}
        # Stores that write one by one may have written some of a lot that failed.
        due = [one for one, item in zip(ids, items, strict=True) if not _has_lot(item, lot)]
        after |= {one: reinforced(after[one], lot.touches[one], fade_per_day) for one in due}
        yield Ops([_put(one, after[one], lot) for one in due], sidecar=True)
        return after

    def drop(self, ids: Sequence[MemoryId]) -> Plan[None]:
        """Forget the usage of these memories."""
        ops = [PutOp((*USAGE, *namespace), key, None) for namespace, key in sorted(ids)]
        yield Ops(ops, sidecar=True)

    def drop_below(self, prefix: Namespace) -> Plan[int]:
        """Forget all usage at or below a namespace."""
        known = yield from self.read_below(prefix)
        yield from self.drop(list(known or ()))
        return len(known or ())

    def _items(self, ids: Sequence[MemoryId]) -> Plan[list[Item | None]]:
        ops = [GetOp((*USAGE, *namespace), key, refresh_ttl=False) for namespace, key in ids]
        items: list[Item | None] = yield Ops(ops, sidecar=True)
        return items


def _usage_of(item: Item | None) -> Usage:
    held = {} if item is None else item.value
    if "uses" not in held:
        return NEVER
    held = {name: held[name] for name in Usage._fields if name in held}
    return _sound(Usage(**held), "" if item is None else item.key)


def _sound(usage: Usage, key: str) -> Usage:
    """The record as it is; what is no number must reach no score, and not be added to."""
    is_sound = usage == NEVER or all(
        held is None or (isinstance(held, int | float) and math.isfinite(held)) for held in usage
    )
    if not is_sound:
        raise StoreError(
            f"The usage record of {key!r} must hold numbers, got {usage!r:.120}. Nothing was "
            "changed; `forget` the memory, or delete the record."
        )
    return usage


def _has_lot(item: Item | None, lot: UsageBatch) -> bool:
    return item is not None and item.value.get("lot") == lot.mark


def _put(memory_id: MemoryId, usage: Usage, lot: UsageBatch) -> PutOp:
    namespace, key = memory_id
    record = {**usage._asdict(), "lot": lot.mark}
    if not usage.merit:
        del record["merit"]
    return PutOp((*USAGE, *namespace), key, record, index=False)


class Ledger:
    """Usage as ranking sees it: what is kept, with what is not written yet laid over it."""

    def __init__(self, book: UsageBook, fade_per_day: float, adding: threading.Lock) -> None:
        self._book = book
        self._fade_per_day = fade_per_day
        self._adding = adding
        """Held while uses are added: one addition at a time for each store in this process."""
        self._lock = threading.Lock()
        self._kept: dict[MemoryId, Usage] = {}
        self._read_at: dict[Namespace, float] = {}
        self._pending: dict[MemoryId, UsageDelta] = {}
        self._in_flight: UsageBatch | None = None
        """What is being written, or was not seen to be: then the next flush tries it again."""
        self._name = uuid4().hex
        self._lots = 0
        self._written = 0
        """Lots that were seen to be written."""
        self._refresh: set[MemoryId] = set()

    def usages(
        self, prefix: Namespace, ids: Sequence[MemoryId], now: float, max_age_s: float
    ) -> Plan[list[Usage]]:
        """Usage of these memories; read anew when the last reading is too old."""
        read_at = self._read_at.get(prefix)
        if read_at is None or now - read_at >= max_age_s:
            written = self._written
            below = yield from self._book.read_below(prefix)
            if below is None:
                kept = yield from self._book.read(ids)
                below = dict(zip(ids, kept, strict=True))
            else:
                self._read_at[prefix] = now
            self._keep(below, written)
        with self._lock:
            if not (self._kept or self._pending or self._in_flight):
                return [NEVER] * len(ids)
            return [self._overlaid(memory_id) for memory_id in ids]

    def record(self, ids: Iterable[MemoryId], now: float, refresh_floor: float) -> None:
        """Note that these memories were used; uses within the refresh floor do not count."""
        with self._lock:
            for memory_id in ids:
                if counts_as_use(self._overlaid(memory_id), now, refresh_floor):
                    pending = self._pending.get(memory_id)
                    self._pending[memory_id] = pooled(pending, UsageDelta(1, now))

    def credit(self, ids: Iterable[MemoryId], steps: int) -> None:
        """Note what came of using these memories: good outcomes less bad ones."""
        with self._lock:
            for memory_id in ids:
                pending = self._pending.get(memory_id)
                self._pending[memory_id] = pooled(pending, UsageDelta(0, merit=steps))

    def hand_over(self, usage: Usage, heir: MemoryId) -> None:
        """Note that a memory takes over what reads have left behind about one merged into it."""
        if usage == NEVER:
            return
        touch = UsageDelta(usage.uses, usage.last_used, usage.before, usage.merit)
        with self._lock:
            self._pending[heir] = pooled(self._pending.get(heir), touch)

    def refresh_ttl(self, ids: Iterable[MemoryId]) -> None:
        """Note that the time to live of these memories starts again with the next flush."""
        with self._lock:
            self._refresh.update(ids)

    @property
    def has_pending(self) -> bool:
        """Whether a flush would write anything, or wait for one that is under way."""
        return bool(self._pending or self._refresh or self._in_flight)

    def flush(self) -> Plan[int]:
        """Write what is pending; returns how many memories it concerned.

        What was recorded before is written once and for good when it returns. When it fails,
        nothing is lost and nothing will be counted twice: the next one goes on with it.
        """
        yield from self._acquire()
        try:
            written: set[MemoryId] = set()
            for _ in range(1 if self._in_flight is None else 2):
                lot = self._next_lot()
                if lot is not None:
                    yield from self._write(lot)
                    written.update(lot.touches)
            yield from self._refresh_all()
            return len(written)
        finally:
            self._adding.release()

    def forget(self, ids: Sequence[MemoryId]) -> Plan[None]:
        """Drop every trace of use of these memories."""
        # A flush under way would write back what is dropped.
        yield from self._acquire()
        try:
            self._let_go(ids)
            yield from self._book.drop(ids)
        finally:
            self._adding.release()

    def forget_below(self, prefix: Namespace) -> Plan[int]:
        """Drop every trace of use at or below a namespace; returns of how many memories."""
        yield from self._acquire()
        try:
            with self._lock:
                written = () if self._in_flight is None else self._in_flight.touches
                held = {*self._pending, *self._refresh, *self._kept, *written}
            self._let_go(one for one in held if one[0][: len(prefix)] == prefix)
            return (yield from self._book.drop_below(prefix))
        finally:
            self._adding.release()

    def _acquire(self) -> Plan[None]:
        """Wait for another add; never in a thread, where a cancelled wait would hold for ever."""
        while not self._adding.acquire(blocking=False):
            yield Call(_wait_a_moment)

    def _let_go(self, ids: Iterable[MemoryId]) -> None:
        gone = set(ids)
        with self._lock:
            for memory_id in gone:
                self._pending.pop(memory_id, None)
                self._kept.pop(memory_id, None)
            self._refresh -= gone
            lot = self._in_flight
            if lot is not None:
                # Another mapping: an abandoned thread may still read the old one.
                lot.touches = {one: lot.touches[one] for one in lot.touches if one not in gone}

    def _next_lot(self) -> UsageBatch | None:
        """The lot that a flush before did not see written, else all that is pending."""
        with self._lock:
            if self._in_flight is None and self._pending:
                self._lots += 1
                # A forked process goes on counting on its own.
                ledger = f"{self._name}-{os.getpid()}"
                self._in_flight = UsageBatch(self._pending, ledger, self._lots)
                self._pending = {}
            return self._in_flight

    def _write(self, lot: UsageBatch) -> Plan[None]:
        after = yield from self._book.add(lot, self._fade_per_day)
        # Kept before it leaves the overlay: a use in between must still see the last one.
        self._keep(after)
        with self._lock:
            self._in_flight = None
            self._written += 1

    def _refresh_all(self) -> Plan[None]:
        with self._lock:
            refresh, self._refresh = self._refresh, set()
        ops = [GetOp(namespace, key, refresh_ttl=True) for namespace, key in sorted(refresh)]
        try:
            if ops:
                yield Ops(ops)
        except BaseException:
            with self._lock:
                self._refresh |= refresh
            raise

    def _keep(self, usages: Mapping[MemoryId, Usage], written: int | None = None) -> None:
        """Keep what was read; `written`, how many lots were when the reading began."""
        with self._lock:
            if len(self._kept) > MOST_KEPT:
                self._kept.clear()
                self._read_at.clear()
            if written in (None, self._written):
                self._kept.update(usages)
            else:
                # It may be from before what has been written since, and kept then.
                self._kept = {**usages, **self._kept}

    def _overlaid(self, memory_id: MemoryId) -> Usage:
        usage = self._kept.get(memory_id, NEVER)
        written = {} if self._in_flight is None else self._in_flight.touches
        for touches in (written, self._pending):
            touch = touches.get(memory_id)
            if touch is not None:
                usage = reinforced(usage, touch, self._fade_per_day)
        return usage


def _wait_a_moment() -> None:
    time.sleep(0.002)
