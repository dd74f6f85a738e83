"""What uses, outcomes and repetition do to a memory and to its usage record."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from langmem_recall.types import DEFAULT_SALIENCE, VERIFIED_TRUST, Memory, Usage, UsageDelta

SECONDS_PER_DAY = 86_400.0
MOST_MERIT = 5
"""Outcomes count up to this many net steps either way."""


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
        # No end is later than any.
        "valid_until": None if None in ends else max(filter(None, ends)),
    }
    return {name: new for name, new in changes.items() if new != getattr(stored, name)}


def union(one: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...]:
    """The labels of both, each once."""
    return tuple(dict.fromkeys((*one, *other)))
