"""`Monitor`: the health of recall, always on."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict, deque
from itertools import pairwise
from typing import TypeVar

from langmem_recall.errors import ConfigurationError
from langmem_recall.observe.health import (
    FAILED,
    NO_CANDIDATE,
    NOT_CLEARED,
    NOTHING_STORED,
    OTHERWISE_DROPPED,
    RECALLED,
    HealthWarning,
    MonitorReport,
    RecallStats,
    report_of,
)
from langmem_recall.policy import RecallPolicy
from langmem_recall.types import RELEVANCE_GATES, MemoryId, Namespace, Recall, Scored

__all__ = ["HealthWarning", "Monitor", "MonitorReport"]

MOVED_BELOW = 0.2
"""Cues that share less of their words than this are about something else."""
SAME_FROM = 0.8
"""Sets of memories that share this much are the same."""
ALIKE_FROM = 0.8
"""Chosen memories that share this much of their words say the same."""
LONGEST_TEXT = 1_000
"""Characters of a cue or a memory that are compared."""
LONGEST_NOTE = 100

_Words = frozenset[str]
_Held = TypeVar("_Held")


class _WindowState:
    """A window of recalls, and what the next one is compared with."""

    def __init__(self, window: int) -> None:
        self.glances: deque[RecallStats] = deque(maxlen=window)
        self.feedback: deque[bool] = deque(maxlen=window)
        self.cue: _Words = frozenset()
        self.recalled: frozenset[MemoryId] = frozenset()


class Monitor:
    """A sink for `RecallStore(traces=...)` that keeps the vital signs of the latest recalls.

    Args:
        window: Recalls that a report looks back on, in all and for each namespace.
        namespaces: Namespaces that are watched one by one; the longest unused makes room.
        policy: The policy in force, for the numbers that warnings advise.
    """

    def __init__(
        self,
        window: int = 1000,
        *,
        namespaces: int = 100,
        policy: RecallPolicy | None = None,
    ) -> None:
        for name, held in (("window", window), ("namespaces", namespaces)):
            if isinstance(held, bool) or not isinstance(held, int) or held < 1:
                raise ConfigurationError(
                    f"{name} must be a whole number of at least 1, got {held!r}."
                )
        self._window = window
        self._most = namespaces
        self._policy = policy or RecallPolicy.default()
        self._lock = threading.Lock()
        self._all = _WindowState(window)
        self._watches: OrderedDict[Namespace, _WindowState] = OrderedDict()

    def __call__(self, recall: Recall) -> None:
        """Take note of a recall."""
        with self._lock:
            watches = [self._watch(namespace) for namespace in recall.trace.namespaces]
            glance = _glance(recall, watches[0] if watches else self._all)
            for watch in (self._all, *watches):
                watch.glances.append(glance)

    def feedback(self, namespace: Namespace, key: str, good: bool) -> None:
        """Take note of what came of a memory that was recalled; `RecallStore.feedback` calls it."""
        with self._lock:
            for watch in (self._all, self._watch(namespace)):
                watch.feedback.append(good)

    def report(self, namespace: Namespace | None = None) -> MonitorReport:
        """The health of all recalls in the window, or of one namespace's."""
        with self._lock:
            watch = self._all if namespace is None else self._watches.get(namespace)
            glances = list(watch.glances) if watch else []
            feedback = list(watch.feedback) if watch else []
        return report_of(glances, feedback, self._policy, namespace)

    @property
    def namespaces(self) -> tuple[Namespace, ...]:
        """The namespaces that are watched, the latest last."""
        with self._lock:
            return tuple(self._watches)

    def erase(self, namespace: Namespace, key: str | None = None) -> int:
        """Forget a namespace and all below it, or that a memory was recalled."""
        with self._lock:
            below = [held for held in self._watches if held[: len(namespace)] == namespace]
            for held in below:
                if key is None:
                    del self._watches[held]
                else:
                    self._watches[held].recalled = frozenset()
        return len(below)

    def _watch(self, namespace: Namespace) -> _WindowState:
        watch = self._watches.get(namespace)
        if watch is None:
            watch = self._watches[namespace] = _WindowState(self._window)
            if len(self._watches) > self._most:
                self._watches.popitem(last=False)
        self._watches.move_to_end(namespace)
        return watch


def _glance(recall: Recall, watch: _WindowState) -> RecallStats:
    """What is kept of a recall; the watch remembers it for the next one."""
    trace, chosen = recall.trace, recall.chosen
    gates = [drop.gate for drop in recall.dropped]
    has_moved, is_stuck = _compared(recall, watch)
    return RecallStats(
        outcome=_outcome(recall),
        best=0.0 if chosen else _best(recall),
        searched=trace.searched,
        dense=trace.channels.get("dense"),
        words=trace.channels.get("words"),
        chosen=len(chosen),
        duplicates=gates.count("duplicate"),
        alike=_alike(chosen),
        is_pressed=bool(trace.compacted) or "budget" in gates,
        seconds=sum(trace.timings.values()) if trace.timings else math.nan,
        degraded=tuple(note.partition(" (")[0][:LONGEST_NOTE] for note in trace.degraded),
        has_moved=has_moved,
        is_stuck=is_stuck,
        salience=_salience(recall),
    )


def _outcome(recall: Recall) -> str:
    if recall.chosen:
        return RECALLED
    if not recall.dropped:
        if recall.trace.searched:
            return NO_CANDIDATE
        # Where nothing could be read, nobody knows what is stored.
        return FAILED if recall.trace.degraded else NOTHING_STORED
    gates = {drop.gate for drop in recall.dropped}
    return NOT_CLEARED if gates.intersection(RELEVANCE_GATES) else OTHERWISE_DROPPED


def _best(recall: Recall) -> float:
    return max((drop.scored.signals.relevance for drop in recall.dropped), default=0.0)


def _compared(recall: Recall, watch: _WindowState) -> tuple[bool, bool]:
    """Whether the cue moved since the last recall that brought something, and the memories not."""
    # What is pinned comes whatever is asked.
    recalled = frozenset(one.memory.id for one in recall.chosen if not one.memory.pinned)
    if not recalled:
        return False, False
    cue, before, last_cue = _words(recall.trace.cue.words), watch.recalled, watch.cue
    watch.recalled, watch.cue = recalled, cue
    has_choice = not 0 < recall.trace.searched <= 2 * len(recalled)
    has_moved = bool(before) and has_choice and _overlap(cue, last_cue) < MOVED_BELOW
    return has_moved, has_moved and _overlap(recalled, before) >= SAME_FROM


def _words(text: str) -> _Words:
    """The words of a text; pairs of letters where the script may have no spaces."""
    folded = text[:LONGEST_TEXT].casefold()
    if folded.isascii():
        return frozenset(folded.split())
    return frozenset(map("".join, pairwise(folded)))


def _overlap(one: frozenset[_Held], other: frozenset[_Held]) -> float:
    return len(one & other) / len(one | other) if one or other else 1.0


def _alike(chosen: tuple[Scored, ...]) -> int:
    """Chosen memories that say what the one before them says: like texts have like scores."""
    words = [_words(scored.memory.text) for scored in chosen]
    return sum(_overlap(one, other) >= ALIKE_FROM for one, other in pairwise(words))


def _salience(recall: Recall) -> tuple[float, float] | None:
    every = [one.memory.salience for one in recall.chosen]
    every += [drop.memory.salience for drop in recall.dropped]
    return (min(every), max(every)) if every else None
