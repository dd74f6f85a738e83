"""What uses, outcomes, repetition and sweeps do to a memory and to its usage record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import isnan
from typing import Any, Literal, NamedTuple, get_args

from langmem_recall.errors import InputError
from langmem_recall.memory.value import MOST_PHRASINGS
from langmem_recall.types import (
    DEFAULT_SALIENCE,
    VERIFIED_TRUST,
    Memory,
    MemoryId,
    Namespace,
    Usage,
    UsageDelta,
)

SECONDS_PER_DAY = 86_400.0
MOST_MERIT = 5  # outcomes count up to this many net steps either way


def faded(count: float, seconds: float, fade_per_day: float) -> float:
    """A use count after some time: each day leaves `fade_per_day` of it."""
    return count * float(fade_per_day ** (max(seconds, 0.0) / SECONDS_PER_DAY))


def reinforced(usage: Usage, delta: UsageDelta, fade_per_day: float) -> Usage:
    """The usage record after some more uses and outcomes."""
    merit = max(-MOST_MERIT, min(usage.merit + delta.merit, MOST_MERIT))
    if delta.last is None:
        return usage._replace(merit=merit)
    if usage.last_used is None:
        return Usage(delta.uses, float(delta.uses), delta.last, delta.before, merit)
    latest = max(usage.last_used, delta.last)
    decayed = faded(usage.decayed, latest - usage.last_used, fade_per_day)
    added = faded(float(delta.uses), latest - delta.last, fade_per_day)
    earlier = (delta.before, min(usage.last_used, delta.last), usage.before)
    before = max(time for time in earlier if time is not None)
    return Usage(usage.uses + delta.uses, decayed + added, latest, before, merit)


def pooled(pending: UsageDelta | None, delta: UsageDelta) -> UsageDelta:
    """Uses and outcomes added to those that are pending; opposite outcomes cancel out."""
    if pending is None:
        return delta
    times = (pending.last, delta.last, pending.before, delta.before)
    known = sorted((time for time in times if time is not None), reverse=True)
    latest, before = [*known, None, None][:2]
    return UsageDelta(pending.uses + delta.uses, latest, before, pending.merit + delta.merit)


def counts_as_use(usage: Usage, now: float, refresh_floor: float) -> bool:
    """Whether a use at `now` is far enough from the last one; 0 counts every use."""
    if usage.last_used is None or refresh_floor <= 0:
        return True
    return now - usage.last_used >= refresh_floor


def restated(stored: Memory, said: Memory, now: datetime) -> dict[str, Any]:
    """What changes in a memory when the same is said again.

    Only a source that needs no verification vouches for it: an agent that repeats what it was
    shown neither confirms it nor raises its trust.
    """
    # The default says nothing of how much it matters.
    said_salience = said.salience if said.salience > DEFAULT_SALIENCE else 0.0
    changes: dict[str, Any] = {"salience": max(stored.salience, said_salience)}
    threads = {stored.thread_id, said.thread_id} - {None}
    if said.source == stored.source == "agent_inferred" and len(threads) == 2:
        # Each of two was sure by itself; half of the second one counts, as both read one user.
        both = 1 - (1 - stored.confidence) * (1 - said.confidence / 2)
        changes["confidence"] = max(stored.confidence, min(round(both, 2), MOST_BY_REPETITION))
    if said.trust >= VERIFIED_TRUST:
        changes["confirmed_at"] = now
        changes["confidence"] = max(stored.confidence, said.confidence)
        if said.trust > stored.trust:
            changes["source"] = said.source
    return combined(stored, said, **changes)


def combined(stored: Memory, other: Memory, **changes: Any) -> dict[str, Any]:
    """What these changes, and all that two memories of the same say, change in the first."""
    ends = (stored.valid_until, other.valid_until)
    changes |= {
        "pinned": stored.pinned or other.pinned,
        "tags": union(stored.tags, other.tags),
        "entities": union(stored.entities, other.entities),
        "asked_as": union(stored.asked_as, other.asked_as)[:MOST_PHRASINGS],
        # No end is later than any.
        "valid_until": None if None in ends else max(filter(None, ends)),
    }
    return {name: new for name, new in changes.items() if new != getattr(stored, name)}


def union(one: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...]:
    """The labels of both, each once."""
    return tuple(dict.fromkeys((*one, *other)))


# --- Sweeps: which memories expire, fade, merge, lie idle, or are old history ---

Step = Literal["expire", "decay", "merge"]
Action = Literal["expire", "decay", "merge", "remove", "propose", "cold", "purge", "index"]

STEPS: tuple[Step, ...] = get_args(Step)
REMOVALS: tuple[Action, ...] = ("expire", "merge", "remove", "purge")
"""Actions after which a memory is gone."""
LEAST_CONFIDENCE = 0.3  # an unconfirmed inference below it is removed, unless it is in use
USERS_WORDS = "the user's own words stay until a person forgets them"
CONTRADICTED = 0.5  # what a contradiction leaves of a confidence
MOST_BY_REPETITION = 0.75
"""Confidence that independent inferences of the same may reach: no more than a doubt less."""


class Row(NamedTuple):
    """One thing a sweep does, or would do, and why."""

    action: Action
    id: MemoryId
    reason: str


def counts_of(actions: Iterable[Action]) -> dict[str, int]:
    """How often each occurs, in the order in which a sweep takes them."""
    found = Counter(actions)
    return {action: found[action] for action in get_args(Action) if found[action]}


@dataclass(frozen=True, slots=True)
class SweepReport:
    """What a sweep did to a namespace, or would do."""

    namespace: Namespace
    applied: bool
    """False: a dry run; nothing was changed."""
    rows: tuple[Row, ...]
    examined: int
    next: int | None
    """Pass it as `after` to go on where this call stopped; None at the end."""

    @property
    def removed(self) -> tuple[MemoryId, ...]:
        """Memories that are gone, or would be."""
        return tuple(row.id for row in self.rows if row.action in REMOVALS)

    def __str__(self) -> str:
        counts = counts_of(row.action for row in self.rows)
        done = ", ".join(f"{count} {action}" for action, count in counts.items()) or "nothing to do"
        more = "" if self.next is None else f"; go on with after={self.next}"
        lines = [f"{'sweep' if self.applied else 'dry run'} of {'/'.join(self.namespace)}: "]
        lines[0] += f"{self.examined} examined, {done}{more}"
        for action, (namespace, key), reason in self.rows:
            lines.append(f"  {action:<7} {'/'.join(namespace)} {key}: {reason}")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What forgetting a namespace removed."""

    namespace: Namespace
    count: int
    """Memories, history included."""
    traces: int
    """Records about them: usage, verdicts and whatever else was stored beside the memories."""
    compacted: bool
    """Whether the store's file was rewritten, so that no byte of them is left in it."""

    def __str__(self) -> str:
        left = "" if self.compacted else "; the store may keep deleted bytes until it is compacted"
        return f"forgot {self.count} memories and {self.traces} records about them{left}"


def check_steps(steps: Sequence[str]) -> None:
    """Refuse what is no step of a sweep."""
    for step in [steps] if isinstance(steps, str) else steps:
        if step not in STEPS:
            raise InputError(f"A sweep has the steps {', '.join(STEPS)}, got {step!r}.")


def is_in_force(memory: Memory, now: datetime) -> bool:
    """Whether a memory can be recalled whole: active, and valid by now."""
    has_begun = memory.valid_from is None or memory.valid_from <= now
    return memory.status == "active" and has_begun and expiry(memory, now) is None


def expiry(memory: Memory, now: datetime) -> str | None:
    """Why a memory expires, or None."""
    end = memory.valid_until
    return f"valid until {end:%Y-%m-%d %H:%M}" if end is not None and now >= end else None


def faded_confidence(memory: Memory, durable_kinds: Collection[str], now: datetime) -> float | None:
    """The confidence that time has left of an unconfirmed inference; None for all else."""
    left = memory.confidence_at(now)
    return left if left < memory.confidence and not _is_exempt(memory, durable_kinds) else None


def _is_exempt(memory: Memory, durable_kinds: Collection[str]) -> bool:
    """Whether time takes nothing from a memory."""
    return memory.status != "active" or memory.pinned or memory.kind in durable_kinds


def purge(memory: Memory, before: datetime | None) -> str | None:
    """Why an item of history is old enough to go, or None."""
    is_history = memory.superseded_at is not None or memory.status == "superseded"
    if before is None or memory.in_force or not is_history:
        return None
    # What was superseded without a note of when was rewritten as such at its last update.
    when = memory.superseded_at or memory.updated_at
    return f"superseded on {when:%Y-%m-%d}" if when is not None and when < before else None


def coldness(
    memory: Memory,
    idle: timedelta | None,
    cold_after: timedelta,
    durable_kinds: Collection[str],
    signals: tuple[float, float],
) -> str | None:
    """Why a memory is a candidate for eviction, by its strength and recency, or None."""
    if idle is None or idle < cold_after or _is_exempt(memory, durable_kinds):
        return None
    strength, recency = signals
    return f"unused for {idle.days} days (strength {strength:.2f}, recency {recency:.2f})"


def keeps(one: Memory, other: Memory) -> bool:
    """Whether, of two memories that say the same, the first is the one to keep."""

    def worth(memory: Memory) -> tuple[float, bool, bool, float, str]:
        # The better source first, then what was confirmed, pinned, written earlier.
        earlier = float("-inf") if isnan(memory.written_ts) else -memory.written_ts
        return memory.trust, memory.confirmed_at is not None, memory.pinned, earlier, memory.key

    return worth(one) >= worth(other)


def merged(stored: Memory, dropped: Memory) -> dict[str, Any]:
    """What changes in the memory that stays, so that the provenance of both does."""
    both = (stored, dropped)
    return combined(
        *both,
        written_at=min(filter(None, (one.written_at for one in both)), default=None),
        confirmed_at=max(filter(None, (one.confirmed_at for one in both)), default=None),
        # Raised by a source as good, never by a lesser one.
        confidence=max(stored.confidence, dropped.confidence * (dropped.trust >= stored.trust)),
        salience=max(stored.salience, dropped.salience),
        # What stands by itself does not fall with what the other one was derived from.
        derived_from=stored.derived_from and union(stored.derived_from, dropped.derived_from),
        supersedes=union(stored.supersedes, dropped.supersedes),
    )
