"""Keeping the in-process indexes filled: listed when first searched and when they are old."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import datetime
from functools import partial

from langgraph.store.base import Item

from langmem_recall.flows.effects import Call, Plan
from langmem_recall.loading import loading
from langmem_recall.stores.index import IndexCache, NamespaceIndex
from langmem_recall.stores.ledger import listing
from langmem_recall.stores.postgres.search import PostgresReads
from langmem_recall.types import SIDECAR_ROOT, Namespace

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
