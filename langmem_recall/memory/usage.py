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


def reinforced(usage: Usage, touch: UsageDelta, fade_per_day: float) -> Usage:
    """The usage record after some more uses and outcomes."""
    merit = max(-MOST_MERIT, min(usage.merit + touch.merit, MOST_MERIT))
    if touch.last is None:
        return usage._replace(merit=merit)
    if usage.last_used is None:
        return Usage(touch.uses, float(touch.uses), touch.last, touch.before, merit)
    latest = max(usage.last_used, touch.last)
    kept = faded(usage.decayed, latest - usage.last_used, fade_per_day)
    came = faded(float(touch.uses), latest - touch.last, fade_per_day)
    earlier = (touch.before, min(usage.last_used, touch.last), usage.before)
    before = max(time for time in earlier if time is not None)
    return Usage(usage.uses + touch.uses, kept + came, latest, before, merit)


def pooled(pending: UsageDelta | None, touch: UsageDelta) -> UsageDelta:
    """Two lots of uses and outcomes as one; opposite outcomes cancel out."""
    if pending is None:
        return touch
    times = (pending.last, touch.last, pending.before, touch.before)
    known = sorted((time for time in times if time is not None), reverse=True)
    latest, before = [*known, None, None][:2]
    return UsageDelta(pending.uses + touch.uses, latest, before, pending.merit + touch.merit)


def counts_as_use(usage: Usage, now: float, refresh_floor: float) -> bool:
    """Whether a use at `now` is far enough from the last one; 0 counts every use."""
    if usage.last_used is None or refresh_floor <= 0:
        return True
    return now - usage.last_used >= refresh_floor


def restated(held: Memory, said: Memory, now: datetime) -> dict[str, Any]:
    """What changes in a memory when the same is said again.

    Only a source that needs no verification vouches for it: an agent that repeats what it was
    shown neither confirms it nor raises its trust.
    """
    changes: dict[str, Any] = {
        # The default says nothing of how much it matters.
        "salience": max(held.salience, said.salience * (said.salience > DEFAULT_SALIENCE)),
        "pinned": held.pinned or said.pinned,
        "tags": _joined(held.tags, said.tags),
        "entities": _joined(held.entities, said.entities),
        "valid_until": _later(held.valid_until, said.valid_until),
    }
    if said.trust >= VERIFIED_TRUST:
        changes["confirmed_at"] = now
        changes["confidence"] = max(held.confidence, said.confidence)
        if said.trust > held.trust:
            changes["source"] = said.source
    return {name: new for name, new in changes.items() if new != getattr(held, name)}


def _joined(one: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*one, *other)))


def _later(one: datetime | None, other: datetime | None) -> datetime | None:
    """The later end of validity; None is no end."""
    return None if one is None or other is None else max(one, other)
