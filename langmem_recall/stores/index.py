"""The in-process index of a generic store: the words of each namespace that is searched."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from functools import partial
from typing import Any

from langgraph.store.base import Item

from langmem_recall.flows.candidates import id_of, listing
from langmem_recall.flows.effects import Call, Plan
from langmem_recall.loading import loading
from langmem_recall.memory.value import read_memory
from langmem_recall.ranking.catalog import Catalog, traits_of
from langmem_recall.stores.postgres.search import PostgresReads
from langmem_recall.types import SIDECAR_ROOT, Memory, MemoryId, Namespace

MOST_NAMESPACES = 256
"""Indexes kept in memory; the one searched longest ago goes first."""
MOST_MEMORIES = 500_000
"""Memories that all of them may hold, at two to three kilobytes each."""
LONGEST_FILL_S = 1.0
"""Seconds after which a fill is taken for hung, and another reader may begin one."""
DEAD_SHARE = 0.25
"""An index with more dead rows than this is built anew from its memories."""


class NamespaceIndex:
    """Catalog and memories below one namespace, filled by paging, kept current by writes."""

    def __init__(self) -> None:
        self.lock: AbstractContextManager[Any] = threading.RLock()
        self.catalog = Catalog()
        self.filled_at: float | None = None
        """Clock reading of the last fill that ended."""
        self.too_large = False
        self._memories: dict[MemoryId, Memory] = {}
        self._written_during_fill: set[MemoryId] | None = None
        self._filling_since: float | None = None

    def is_fresh(self, now: float, max_age_s: float) -> bool:
        """Whether the last fill is recent enough to trust."""
        return self.filled_at is not None and now - self.filled_at < max_age_s

    def held(self, memory_id: MemoryId) -> Memory | None:
        """What is known of a memory without reading it."""
        return self._memories.get(memory_id)

    def memories(self, items: Sequence[Item]) -> list[Memory]:
        """The memories of items just read; an empty index takes them in at once, not each."""
        if self._memories or not items:
            return [self.memory(item) for item in items]
        memories = [_memory_of(item) for item in items]
        self._build(memories)
        return memories

    def memory(self, item: Item) -> Memory:
        """The memory of an item just read; what the index knew otherwise is corrected."""
        known = self._memories.get((item.namespace, item.key))
        # The very same time object comes only from a store that hands out what it keeps.
        if known is not None and known.updated_at is item.updated_at is not None:
            return known
        if known is not None and known.value == item.value:
            return known if known.updated_at == item.updated_at else self._restamp(item)
        memory = _memory_of(item)
        self._hold(memory)
        return memory

    def note_put(
        self, namespace: Namespace, key: str, value: Mapping[str, Any], now: datetime
    ) -> None:
        """A write through the wrapper; the item's own times are learned when it is next read."""
        with self.lock:
            self._mark((namespace, key))
            known = self._memories.get((namespace, key))
            created = known.created_at if known else now
            self._hold(read_memory(namespace, key, dict(value), created))

    def note_delete(self, memory_id: MemoryId) -> None:
        """A deletion through the wrapper, or one elsewhere that came to light."""
        with self.lock:
            self._mark(memory_id)
            self._drop(memory_id)

    @property
    def newest(self) -> datetime | None:
        """When the memory written last was written, as the store has it; None before a fill."""
        if self.filled_at is None or self.too_large:
            return None
        with self.lock:
            times = [one.updated_at for one in self._memories.values() if one.updated_at]
        return max(times, default=None)

    def begin_fill(self) -> float | None:
        """Remember from now on which memories are written, so that the fill does not undo them.

        What it returns ends the fill; None while another one is under way that does not hang.
        """
        with self.lock:
            now = time.monotonic()
            if self._filling_since is not None and now - self._filling_since < LONGEST_FILL_S:
                return None
            self._filling_since = now
            if self._written_during_fill is None:
                self._written_during_fill = set()
            return now

    def cease_fill(self, begun: float) -> None:
        """The fill that began then is over, or was given up."""
        with self.lock:
            if self._filling_since == begun:
                self._filling_since = self._written_during_fill = None

    def take_changes(self, items: Iterable[Item], count: int, now: float) -> bool:
        """Take in what was written lately; False where deletions or the like ask for a listing."""
        with self.lock:
            written = self._written_during_fill or set()
            for item in items:
                if id_of(item) not in written:
                    self.memory(item)
            if written or len(self._memories) != count:
                return False
            self.filled_at = now
            self._compact()
            return True

    def end_fill(self, items: Iterable[Item], now: float) -> None:
        """Take in a whole listing: new and changed memories in, vanished ones out."""
        with self.lock:
            written = self._written_during_fill or set()
            seen = set(written)
            if not self._memories:
                items = list(items)
                self._build([_memory_of(item) for item in items if id_of(item) not in written])
            for item in items:
                seen.add(id_of(item))
                if id_of(item) not in written:
                    self.memory(item)
            for memory_id in self._memories.keys() - seen:
                self._drop(memory_id)
            self.filled_at = now
            self._compact()

    def _restamp(self, item: Item) -> Memory:
        """The same value under other times: its words need not be read again."""
        memory = self._memories[item.namespace, item.key] = _memory_of(item)
        return memory

    def _hold(self, memory: Memory) -> None:
        self._memories[memory.id] = memory
        self.catalog.put(memory.id, traits_of(memory))

    def _drop(self, memory_id: MemoryId) -> None:
        self._memories.pop(memory_id, None)
        self.catalog.remove(memory_id)

    def _mark(self, memory_id: MemoryId) -> None:
        if self._written_during_fill is not None:
            self._written_during_fill.add(memory_id)

    def _compact(self) -> None:
        if self.catalog.rows - self.catalog.size > DEAD_SHARE * self.catalog.rows:
            self._build(list(self._memories.values()))

    def _build(self, memories: Sequence[Memory]) -> None:
        """A catalog of all memories at once: faster to make and to read than one by one."""
        self._memories = {memory.id: memory for memory in memories}
        self.catalog = Catalog.of(
            {memory.id: traits_of(memory) for memory in self._memories.values()}
        )


def _memory_of(item: Item) -> Memory:
    # A copy, because some stores hand out the dict they keep.
    return read_memory(item.namespace, item.key, dict(item.value), item.created_at, item.updated_at)


class IndexCache:
    """The indexes of the namespaces searched lately."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._indexes: OrderedDict[Namespace, NamespaceIndex] = OrderedDict()

    def at(self, prefix: Namespace) -> NamespaceIndex:
        """The index of a namespace; an empty one when it is asked for the first time."""
        with self._lock:
            index = self._indexes.setdefault(prefix, NamespaceIndex())
            self._indexes.move_to_end(prefix)
            while len(self._indexes) > MOST_NAMESPACES:
                self._indexes.popitem(last=False)
            return index

    def trim(self) -> None:
        """Let go of the namespaces searched longest ago, where all together hold too much."""
        with self._lock:
            held = sum(index.catalog.size for index in self._indexes.values())
            while held > MOST_MEMORIES and len(self._indexes) > 1:
                _, index = self._indexes.popitem(last=False)
                held -= index.catalog.size

    def note_put(
        self, namespace: Namespace, key: str, value: Mapping[str, Any], now: datetime
    ) -> None:
        """Tell every index above this namespace of a write."""
        for index in self._above(namespace):
            index.note_put(namespace, key, value, now)

    def note_delete(self, namespace: Namespace, key: str) -> None:
        """Tell every index above this namespace of a deletion."""
        for index in self._above(namespace):
            index.note_delete((namespace, key))

    def _above(self, namespace: Namespace) -> Sequence[NamespaceIndex]:
        with self._lock:
            return [
                index
                for prefix, index in self._indexes.items()
                if namespace[: len(prefix)] == prefix
            ]


LARGE_RECHECK = 20
"""A namespace found too large is counted again after this many times the index's age limit."""
MOMENT_S = 0.002


class Filler:
    """Fills the index of a namespace; one fill at a time, however many readers wait for it."""

    def __init__(
        self,
        indexes: IndexCache,
        clock: Callable[[], datetime],
        limit: int,
        max_age_s: float,
        reads: PostgresReads | None,
    ) -> None:
        self._indexes = indexes
        self._clock = clock
        self._limit = limit
        self._max_age_s = max_age_s
        self._reads = reads

    def ready(self, prefix: Namespace) -> Plan[NamespaceIndex]:
        """The words of a namespace, listed anew when old; an empty index where none is kept."""
        if not self._limit:
            return NamespaceIndex()
        index = self._indexes.at(prefix)
        while not self._is_fresh(index):
            begun = index.begin_fill()
            if begun is not None:
                try:
                    yield from self._fill(prefix, index)
                finally:
                    index.cease_fill(begun)
                break
            if index.filled_at is not None:
                # Another reader is at it; until then the words of before will do.
                break
            # Not marked as loading: the reader that is at it may hang.
            yield Call(partial(time.sleep, MOMENT_S), partial(asyncio.sleep, MOMENT_S))
        return NamespaceIndex() if index.too_large else index

    def _is_fresh(self, index: NamespaceIndex) -> bool:
        age = LARGE_RECHECK * self._max_age_s if index.too_large else self._max_age_s
        return index.is_fresh(self._clock().timestamp(), age)

    def _fill(self, prefix: Namespace, index: NamespaceIndex) -> Plan[None]:
        now = self._clock().timestamp()
        if (yield from self._take_changes(prefix, index, now)):
            return
        items = yield from self._listed(prefix)
        visible = [item for item in items if item.namespace[0] != SIDECAR_ROOT]
        index.too_large = len(visible) > self._limit
        with loading():
            # Reading the words of thousands of memories must not hold the event loop up.
            yield Call(lambda: index.end_fill([] if index.too_large else visible, now))
        self._indexes.trim()

    def _take_changes(self, prefix: Namespace, index: NamespaceIndex, now: float) -> Plan[bool]:
        """Whether what was written lately was enough to read."""
        newest = index.newest if self._reads is not None and prefix else None
        if self._reads is None or newest is None:
            return False
        changed, count = yield from self._reads.changes(prefix, newest)
        is_whole: bool = yield Call(lambda: index.take_changes(changed, count, now))
        return is_whole and count <= self._limit

    def _listed(self, prefix: Namespace) -> Plan[list[Item]]:
        if self._reads is None or not prefix:
            return (yield from listing(prefix, self._limit))
        with loading():
            return (yield from self._reads.listing(prefix, self._limit))
