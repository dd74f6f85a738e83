"""Which namespaces of a LocalStore are in memory."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable

from langmem_recall.stores.local.view import LocalView
from langmem_recall.types import Namespace


class ViewCache:
    """Shelves by prefix; the longest unused go when together they hold too much."""

    def __init__(self, make: Callable[[Namespace], LocalView], limit_bytes: int) -> None:
        self._make = make
        self._limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._shelves: OrderedDict[Namespace, LocalView] = OrderedDict()
        self._sizes: dict[Namespace, int] = {}
        self._total = 0

    @property
    def prefixes(self) -> list[Namespace]:
        """The prefixes in memory, longest unused first."""
        with self._lock:
            return list(self._shelves)

    def get(self, prefix: Namespace) -> LocalView:
        """The shelf of a prefix, loaded and up to date."""
        with self._lock:
            shelf = self._shelves.pop(prefix, None) or self._make(prefix)
            self._shelves[prefix] = shelf
        # Not under the cache's lock: loading one namespace must not hold up the others.
        shelf.refresh()
        with self._lock:
            self._weigh(prefix, shelf.nbytes)
        return shelf

    def _weigh(self, prefix: Namespace, size: int) -> None:
        if prefix not in self._shelves:
            return
        self._total += size - self._sizes.get(prefix, 0)
        self._sizes[prefix] = size
        while self._total > self._limit_bytes and len(self._shelves) > 1:
            oldest, _ = self._shelves.popitem(last=False)
            self._total -= self._sizes.pop(oldest, 0)
