"""The in-process index of a generic store: the words of each namespace that is searched."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any

import numpy as np
from langgraph.store.base import Item

from langmem_recall.flows.candidates import id_of
from langmem_recall.memory.value import read_memory
from langmem_recall.ranking.arrays import FloatArray
from langmem_recall.ranking.catalog import Catalog, traits_of
from langmem_recall.types import Memory, MemoryId, Namespace

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

    def known(self, memory_id: MemoryId) -> Memory | None:
        """What is known of a memory without reading it."""
        return self._memories.get(memory_id)

    def similarity(self, rows: Sequence[int]) -> FloatArray:
        """Not known: the vectors stay in the store."""
        return np.full((len(rows), len(rows)), np.nan)

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
        is_same = known is not None and known.value == item.value
        if known is not None and is_same and known.updated_at == item.updated_at:
            return known
        memory = _memory_of(item)
        self._memories[memory.id] = memory
        # The same value under other times: its words need not be read again.
        if not is_same:
            self.catalog.put(memory.id, traits_of(memory))
        return memory

    def note_put(
        self, namespace: Namespace, key: str, value: Mapping[str, Any], now: datetime
    ) -> None:
        """A write through the wrapper; the item's own times are learned when it is next read."""
        with self.lock:
            if self._written_during_fill is not None:
                self._written_during_fill.add((namespace, key))
            known = self._memories.get((namespace, key))
            memory = read_memory(namespace, key, dict(value), known.created_at if known else now)
            self._memories[memory.id] = memory
            self.catalog.put(memory.id, traits_of(memory))

    def note_delete(self, memory_id: MemoryId) -> None:
        """A deletion through the wrapper, or one elsewhere that came to light."""
        with self.lock:
            if self._written_during_fill is not None:
                self._written_during_fill.add(memory_id)
            self._drop(memory_id)

    @property
    def newest(self) -> datetime | None:
        """When the memory written last was written, as the store has it; None before a fill."""
        if self.filled_at is None or self.too_large:
            return None
        with self.lock:
            times = [memory.updated_at for memory in self._memories.values() if memory.updated_at]
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
            self._end(now)
            return True

    def end_fill(self, items: Iterable[Item], now: float) -> None:
        """Take in a whole listing: new and changed memories in, vanished ones out."""
        with self.lock:
            written = self._written_during_fill or set()
            listed = {id_of(item): item for item in items}
            fresh = [item for memory_id, item in listed.items() if memory_id not in written]
            self.memories(fresh)
            for memory_id in self._memories.keys() - listed.keys() - written:
                self._drop(memory_id)
            self._end(now)

    def _drop(self, memory_id: MemoryId) -> None:
        self._memories.pop(memory_id, None)
        self.catalog.remove(memory_id)

    def _end(self, now: float) -> None:
        self.filled_at = now
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
