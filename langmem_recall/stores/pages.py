"""Pages of one ranking: reads change scores, so a ranking is kept until its pages are read."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable, Sequence

from langmem_recall.types import Scored

MOST_RANKINGS = 256
KEPT_SECONDS = 60.0


class _Kept:
    def __init__(self, ranked: Sequence[Scored], now: float, page: range) -> None:
        self.ranked = ranked
        self.since = now
        self.served = [page]


class PageKeeper:
    """Remembers the order behind the first page asked for, so that the next one continues it.

    A page that overlaps one already served starts a new ranking: whoever asks again wants to see
    what has changed.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, _Kept] = OrderedDict()

    def continued(
        self, key: Hashable, page: range, ranked: Sequence[Scored], now: float
    ) -> list[Scored]:
        """The ranking in the order its earlier pages had; memories new since then come last."""
        with self._lock:
            kept = self._kept.get(key)
            if kept is None or now - kept.since > KEPT_SECONDS or _overlaps(page, kept.served):
                self._kept[key] = _Kept(ranked, now, page)
                self._kept.move_to_end(key)
                self._forget_oldest()
                return list(ranked)
            kept.served.append(page)
        place = {scored.memory.id: i for i, scored in enumerate(kept.ranked)}
        return sorted(ranked, key=lambda scored: place.get(scored.memory.id, len(place)))

    def _forget_oldest(self) -> None:
        while len(self._kept) > MOST_RANKINGS:
            self._kept.popitem(last=False)


def _overlaps(page: range, served: Sequence[range]) -> bool:
    return any(page.start < other.stop and other.start < page.stop for other in served)
