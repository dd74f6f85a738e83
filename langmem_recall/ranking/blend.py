"""Blends: the only place where a score is made."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from operator import attrgetter

import numpy as np

from langmem_recall.policy import HOURS_PER_DAY, RecallPolicy
from langmem_recall.ranking.arrays import FloatArray
from langmem_recall.ranking.pool import Pool
from langmem_recall.ranking.signals import (
    IMPORTANCE,
    RECENCY,
    RELEVANCE,
    SIMILARITY,
    recency_of_writing,
)
from langmem_recall.types import Candidate, Temporal

RRF_K = 60
_ROW = attrgetter("similarity", "recency", "importance", "strength", "trust")
"""Weights in the order of a signal table, from similarity on."""
LEAST_SPREAD = 1e-4
"""Signals that differ by less say the same: stretched to 0 and 1, noise would decide."""
MOMENT_HOURS = 1 / 60
"""Memories written or used within this time are equally recent, whatever the half-life."""


def blend(
    candidates: Pool | Sequence[Candidate],
    signals: FloatArray,
    ages_hours: FloatArray,
    uses: FloatArray,
    policy: RecallPolicy,
    temporal: Temporal | None = None,
) -> FloatArray:
    """The score of each candidate under the policy's formula, moved by what came of its use."""
    pool = Pool.of(candidates)
    if policy.blend == "similarity":
        # The store's own scores; a memory without one comes after all that have one.
        dense: FloatArray = pool.evidence.dense
        return np.where(np.isnan(dense), signals[RELEVANCE] - 3.0, dense)
    if policy.blend == "bounded":
        scores = bounded(pool, signals, ages_hours, policy, temporal)
    elif policy.blend == "product":
        scores = signals[SIMILARITY] + signals[IMPORTANCE] * signals[RECENCY]
    elif policy.blend == "interpolated":
        ranks = reciprocal_ranks(pool)
        scores = interpolated(ranks, signals[IMPORTANCE], ages_hours, uses, policy.interpolation)
    else:
        # The weights as given: a floor on the sum means what the user wrote.
        weighed = signals[SIMILARITY:]
        if policy.blend == "minmax":
            weighed = min_max(weighed, policy.half_life_hours)
        scores = (_weights(pool, policy) * weighed).sum(axis=0)
    # A step for each net outcome, within bounds.
    merits = [usage.merit for usage in pool.usages]
    if any(merits):
        scores = scores * (1.0 + policy.feedback_step * np.array(merits))
    return scores


def bounded(
    pool: Pool,
    signals: FloatArray,
    ages_hours: FloatArray,
    policy: RecallPolicy,
    temporal: Temporal | None,
) -> FloatArray:
    """Relevance x (1 + boosts): what is relevant is re-ordered, what is not is never rescued."""
    base = signals[RELEVANCE] if policy.ordering == "relevance" else reciprocal_ranks(pool)
    weights = _weights(pool, policy)[RECENCY - SIMILARITY :]
    boosts = weights * signals[RECENCY:]
    if temporal is not None and temporal.mode == "current":
        fresh = recency_of_writing(pool, ages_hours, policy)
        boosts[0] = policy.current_recency * weights[0] * fresh
    elif temporal is not None and temporal.mode == "first":
        boosts[0] = policy.current_recency * weights[0] * (1.0 - signals[RECENCY])
    elif temporal is not None:
        meant = [temporal.includes(memory.written_at) for memory in pool.memories]
        boosts[0] = policy.window_boost * np.array(meant)
    return np.asarray(base * (1.0 + boosts.sum(axis=0)))


def min_max(signals: FloatArray, half_life_hours: float) -> FloatArray:
    """Each row, from similarity on, min-maxed to [0, 1]; 0.5 where its values are all but equal."""
    if not signals.shape[1]:
        return signals
    low = signals.min(axis=1, keepdims=True)
    spread = signals.max(axis=1, keepdims=True) - low
    least = np.full_like(spread, LEAST_SPREAD)
    # Ten facts written in a burst are told apart by nothing but the clock's last digits.
    least[RECENCY - SIMILARITY] = max(LEAST_SPREAD, 1.0 - 0.5 ** (MOMENT_HOURS / half_life_hours))
    return np.where(spread > least, (signals - low) / np.maximum(spread, least), 0.5)


def interpolated(
    rrf: FloatArray, importance: FloatArray, ages_hours: FloatArray, uses: FloatArray, w: float
) -> FloatArray:
    """Reciprocal ranks, decay, decaying importance and log use, shifted by `w` towards decay."""
    ages_days = np.where(np.isnan(ages_hours), 0.0, np.maximum(ages_hours, 0.0)) / HOURS_PER_DAY
    decay = np.where(np.isnan(ages_hours), 0.5, np.exp(-ages_days / (1.0 + uses)))
    most = np.log1p(uses.max()) if len(uses) else 0.0
    frequency = np.log1p(uses) / most if most > 0 else np.zeros_like(uses)
    return np.asarray(
        (0.70 - 0.30 * w) * rrf
        + 0.40 * w * decay
        + (0.20 - 0.10 * w) * importance * decay
        + 0.10 * frequency
    )


def reciprocal_ranks(candidates: Pool | Sequence[Candidate]) -> FloatArray:
    """RRF over the channels that ranked anything, as a share of the best sum possible."""
    pool = Pool.of(candidates)
    sums, channels = np.zeros(len(pool.memories)), 0
    # Shares of the cue's names: many memories have all of them, and all of those are first.
    named = pool.evidence.entity.tolist()
    shares = np.sort(-pool.evidence.entity)
    by_name = [int(np.searchsorted(shares, -share)) + 1 if share > 0 else None for share in named]
    for column in (*pool.ranks, by_name):
        ranks = list(islice(column, len(sums)))
        if any(ranks):
            sums += [0.0 if rank is None else 1.0 / (RRF_K + rank) for rank in ranks]
            channels += 1
    return sums / (channels / (RRF_K + 1)) if channels else sums


def _weights(pool: Pool, policy: RecallPolicy) -> FloatArray:
    """A weight per signal (row) and candidate (column); tiers by kind."""
    if not policy.tiers or not pool.memories:
        return np.array(_ROW(policy.weights))[:, None]
    tiers, usual = policy.tiers, policy.weights
    return np.array([_ROW(tiers.get(memory.kind, usual)) for memory in pool.memories]).T
