"""Signals: one number in [0, 1] per candidate and quality, higher is better."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from langmem_recall.policy import RecallPolicy
from langmem_recall.ranking.arrays import FloatArray
from langmem_recall.ranking.pool import Pool
from langmem_recall.types import TRUST as TRUST_BY_SOURCE
from langmem_recall.types import Candidate

NEUTRAL = 0.5
"""What a signal says when nothing is known."""
LRU2_SECONDS = 24 * 3600.0
HALF_STRENGTH_USES = 3.0
"""Decayed uses at which strength is 0.5."""

RELEVANCE, SIMILARITY, RECENCY, IMPORTANCE, STRENGTH, TRUST = range(6)
"""Columns of a signal table, in the order of `Signals`."""


def recency(age_hours: FloatArray, half_life_hours: FloatArray | float) -> FloatArray:
    """1.0 for a memory touched now or in the future, 0.5 after one half-life or at unknown age."""
    faded = np.exp2(-np.maximum(age_hours, 0.0) / half_life_hours)
    return np.where(np.isnan(age_hours), NEUTRAL, faded)


def importance(salience: FloatArray, uses: FloatArray, use_boost: float) -> FloatArray:
    """Salience plus a bounded logarithmic lift from decayed uses."""
    return np.minimum(salience + use_boost * np.log1p(uses), 1.0)


def strength(uses: FloatArray) -> FloatArray:
    """0.0 for a memory never used, towards 1.0 with decayed uses."""
    return uses / (uses + HALF_STRENGTH_USES)


def signal_table(
    candidates: Pool | Sequence[Candidate], policy: RecallPolicy, now: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Signals (a column per candidate), ages in hours and decayed uses."""
    pool = Pool.of(candidates)
    memories, dense, relevance = pool.memories, pool.evidence.dense, pool.evidence.relevance
    decayed, used, seen, lasting = _times(pool, policy)
    # A memory never used has no time of use, and no uses that could fade.
    idle_days = np.fmax(now - used, 0.0) / 86_400.0
    uses = decayed * policy.count_fade_per_day**idle_days
    ages = (now - seen) / 3600.0
    half_life = policy.half_life_hours * (1.0 + uses if policy.ebbinghaus else 1.0)
    table = np.empty((6, len(memories)))
    table[RELEVANCE] = relevance
    # Without a cosine the lexical evidence speaks, through relevance.
    shown = np.minimum(np.maximum(dense, 0.0), 1.0)
    table[SIMILARITY] = np.where(np.isnan(dense), relevance, shown)
    table[RECENCY] = recency(ages, half_life)
    if lasting:
        table[RECENCY, lasting] = 1.0
    salience = np.array([memory.salience for memory in memories])
    table[IMPORTANCE] = importance(salience, uses, policy.use_boost)
    table[STRENGTH] = strength(uses)
    table[TRUST] = [TRUST_BY_SOURCE[memory.source] for memory in memories]
    return table, ages, uses


def recency_of_writing(pool: Pool, ages_hours: FloatArray, policy: RecallPolicy) -> FloatArray:
    """Recency by age since writing: what holds now was said last, not read last."""
    _, _, seen, lasting = _times(pool, policy)
    written = np.array([memory.written_ts for memory in pool.memories])
    fresh = recency(ages_hours + (seen - written) / 3600.0, policy.half_life_hours)
    fresh[lasting] = 1.0
    return fresh


def _times(
    pool: Pool, policy: RecallPolicy
) -> tuple[FloatArray, FloatArray, FloatArray, list[int]]:
    """Decayed uses, time of the last, time of the last refresh, and places time does not touch."""
    memories = pool.memories
    if not memories:
        return np.empty(0), np.empty(0), np.empty(0), []
    _, decayed, uses, earlier, _ = zip(*pool.usages, strict=True)
    used = seen = np.array(uses, np.float64)
    if policy.lru2:
        # A lone use does not refresh: the one before it must be within 24 hours.
        seen = np.where(used - np.array(earlier, np.float64) <= LRU2_SECONDS, used, np.nan)
    seen = np.where(np.isnan(seen), [memory.written_ts for memory in memories], seen)
    durable = policy.durable_kinds
    # Time takes nothing from a pinned memory or a durable kind.
    lasting = [i for i, memory in enumerate(memories) if memory.pinned or memory.kind in durable]
    return np.array(decayed), used, seen, lasting
