"""What a use does to a memory's usage record."""

from __future__ import annotations

from langmem_recall.types import Touch, Usage

SECONDS_PER_DAY = 86_400.0


def faded(count: float, seconds: float, fade_per_day: float) -> float:
    """A use count after some time: each day leaves `fade_per_day` of it."""
    return count * float(fade_per_day ** (max(seconds, 0.0) / SECONDS_PER_DAY))


def reinforced(usage: Usage, touch: Touch, fade_per_day: float) -> Usage:
    """The usage record after some more uses."""
    if usage.last_used is None:
        return Usage(touch.uses, float(touch.uses), touch.last, touch.before)
    latest = max(usage.last_used, touch.last)
    kept = faded(usage.decayed, latest - usage.last_used, fade_per_day)
    came = faded(float(touch.uses), latest - touch.last, fade_per_day)
    earlier = (touch.before, min(usage.last_used, touch.last), usage.before)
    before = max(time for time in earlier if time is not None)
    return Usage(usage.uses + touch.uses, kept + came, latest, before)


def pooled(pending: Touch | None, touch: Touch) -> Touch:
    """Two lots of uses as one."""
    if pending is None:
        return touch
    times = [pending.last, touch.last, pending.before, touch.before]
    latest, before = sorted((time for time in times if time is not None), reverse=True)[:2]
    return Touch(pending.uses + touch.uses, latest, before)


def counts_as_use(usage: Usage, now: float, refresh_floor: float) -> bool:
    """Whether a use at `now` is far enough from the last one; 0 counts every use."""
    if usage.last_used is None or refresh_floor <= 0:
        return True
    return now - usage.last_used >= refresh_floor
