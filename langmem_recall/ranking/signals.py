"""Signals: one number in [0, 1] per candidate and quality, higher is better."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from langmem_recall.policy import RecallPolicy
from langmem_recall.ranking.arrays import FloatArray
from langmem_recall.types import Candidate, Usage

NEUTRAL = 0.5
"""What a signal says when nothing is known."""
LRU2_SECONDS = 24 * 3600.0
HALF_STRENGTH_USES = 3.0
"""Decayed uses at which strength is 0.5."""

SIMILARITY, RECENCY, IMPORTANCE, STRENGTH, TRUST, RELEVANCE = range(6)
"""Columns of a signal table."""


def recency(age_hours: FloatArray, half_life_hours: FloatArray | float) -> FloatArray:
    """1.0 for a memory touched now or in the future, 0.5 after one half-life or at unknown age."""
    return np.where(
        np.isnan(age_hours), NEUTRAL, np.exp2(-np.maximum(age_hours, 0.0) / half_life_hours)
    )


def importance(salience: FloatArray, uses: FloatArray, use_boost: float) -> FloatArray:
    """Salience plus a bounded logarithmic lift from decayed uses."""
    return np.minimum(salience + use_boost * np.log1p(uses), 1.0)


def strength(uses: FloatArray) -> FloatArray:
    """0.0 for a memory never used, towards 1.0 with decayed uses."""
    return uses / (uses + HALF_STRENGTH_USES)


def decayed_uses(usages: Sequence[Usage], now: float, fade_per_day: float) -> FloatArray:
    """Use counts as they stand now."""
    counts = np.array([usage.decayed for usage in usages])
    last = np.array([now if usage.last_used is None else usage.last_used for usage in usages])
    return counts * fade_per_day ** (np.maximum(now - last, 0.0) / 86_400.0)


def ages_hours(candidates: Sequence[Candidate], now: float, lru2: bool) -> FloatArray:
    """Hours since the last use, else since writing; NaN where neither is known."""
    return np.array([(now - _last_seen(candidate, lru2)) / 3600.0 for candidate in candidates])


def _last_seen(candidate: Candidate, lru2: bool) -> float:
    used = _refreshed_at(candidate.usage) if lru2 else candidate.usage.last_used
    if used is not None:
        return used
    written = candidate.memory.written_at
    return np.nan if written is None else written.timestamp()


def _refreshed_at(usage: Usage) -> float | None:
    """Under LRU-2 a lone use does not refresh: the one before it must be within 24 hours."""
    if usage.last_used is None or usage.before is None:
        return None
    return usage.last_used if usage.last_used - usage.before <= LRU2_SECONDS else None


def signal_table(
    candidates: Sequence[Candidate], policy: RecallPolicy, now: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Signals (a column per candidate), ages in hours and decayed uses."""
    uses = decayed_uses(
        [candidate.usage for candidate in candidates], now, policy.count_fade_per_day
    )
    ages = ages_hours(candidates, now, policy.lru2)
    half_life = policy.half_life_hours * (1.0 + uses if policy.ebbinghaus else 1.0)
    salience = np.array([candidate.memory.salience for candidate in candidates])
    table = np.empty((6, len(candidates)))
    table[SIMILARITY] = [_similarity(candidate) for candidate in candidates]
    table[RECENCY] = recency(ages, half_life)
    table[IMPORTANCE] = importance(salience, uses, policy.use_boost)
    table[STRENGTH] = strength(uses)
    table[TRUST] = [candidate.memory.trust for candidate in candidates]
    table[RELEVANCE] = [candidate.evidence.relevance for candidate in candidates]
    return table, ages, uses


def _similarity(candidate: Candidate) -> float:
    """The cosine, at least 0; where there is none the lexical evidence speaks through relevance."""
    dense = candidate.evidence.dense
    return candidate.evidence.relevance if dense is None else min(max(dense, 0.0), 1.0)
