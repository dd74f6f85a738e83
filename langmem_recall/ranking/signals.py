"""Signals: one number in [0, 1] per candidate and quality, higher is better."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from langmem_recall.policy import RecallPolicy
from langmem_recall.ranking.arrays import FloatArray
from langmem_recall.types import TRUST as TRUST_BY_SOURCE
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


def _refreshed_at(usage: Usage) -> float | None:
    """Under LRU-2 a lone use does not refresh: the one before it must be within 24 hours."""
    if usage.last_used is None or usage.before is None:
        return None
    return usage.last_used if usage.last_used - usage.before <= LRU2_SECONDS else None


def _seen_at(candidate: Candidate, policy: RecallPolicy) -> float:
    """When a memory was last used, else written, in epoch seconds; NaN when unknown."""
    usage = candidate.usage
    used = _refreshed_at(usage) if policy.lru2 else usage.last_used
    return candidate.memory.written_ts if used is None else used


def is_lasting(candidate: Candidate, policy: RecallPolicy) -> bool:
    """Whether time takes nothing from a memory."""
    return candidate.memory.pinned or candidate.memory.kind in policy.durable_kinds


def recency_of_writing(
    candidates: Sequence[Candidate], ages_hours: FloatArray, policy: RecallPolicy
) -> FloatArray:
    """Recency by age since writing: what holds now was said last, not read last."""
    idle = [
        (_seen_at(candidate, policy) - candidate.memory.written_ts) / 3600.0
        for candidate in candidates
    ]
    lasting = [is_lasting(candidate, policy) for candidate in candidates]
    fresh = recency(ages_hours + np.array(idle), policy.half_life_hours)
    return np.where(lasting, 1.0, fresh)


def signal_table(
    candidates: Sequence[Candidate], policy: RecallPolicy, now: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Signals (a column per candidate), ages in hours and decayed uses."""
    raw = np.array([_raw(candidate, policy) for candidate in candidates]).reshape(-1, 8).T
    similarity, relevance, salience, trust, seen, decayed, used, lasting = raw
    idle_days = np.nan_to_num(np.maximum(now - used, 0.0)) / 86_400.0
    uses = decayed * policy.count_fade_per_day**idle_days
    ages = (now - seen) / 3600.0
    half_life = policy.half_life_hours * (1.0 + uses if policy.ebbinghaus else 1.0)
    table = np.empty((6, len(candidates)))
    table[SIMILARITY] = similarity
    table[RECENCY] = np.where(lasting, 1.0, recency(ages, half_life))
    table[IMPORTANCE] = importance(salience, uses, policy.use_boost)
    table[STRENGTH] = strength(uses)
    table[TRUST] = trust
    table[RELEVANCE] = relevance
    return table, ages, uses


def _raw(candidate: Candidate, policy: RecallPolicy) -> tuple[float, ...]:
    """What the signals of one candidate are made of; NaN for an unknown time."""
    memory, evidence, usage = candidate[:3]
    dense = evidence.dense
    # Without a cosine the lexical evidence speaks, through relevance.
    similarity = evidence.relevance if dense is None else min(max(dense, 0.0), 1.0)
    seen = _seen_at(candidate, policy)
    last = np.nan if usage.last_used is None else usage.last_used
    lasting = is_lasting(candidate, policy)
    return (
        similarity,
        evidence.relevance,
        memory.salience,
        TRUST_BY_SOURCE[memory.source],
        seen,
        usage.decayed,
        last,
        lasting,
    )
