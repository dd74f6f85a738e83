"""Blends: the only place where a score is made."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

import numpy as np

from langmem_recall.policy import HOURS_PER_DAY, RecallPolicy
from langmem_recall.ranking.arrays import FloatArray
from langmem_recall.ranking.signals import (
    IMPORTANCE,
    RECENCY,
    RELEVANCE,
    SIMILARITY,
    TRUST,
    recency_of_writing,
)
from langmem_recall.types import Candidate, Temporal

RRF_K = 60


def blend(
    candidates: Sequence[Candidate],
    signals: FloatArray,
    ages_hours: FloatArray,
    uses: FloatArray,
    policy: RecallPolicy,
    temporal: Temporal | None = None,
) -> FloatArray:
    """The score of each candidate under the policy's formula."""
    if policy.blend == "bounded":
        return bounded(candidates, signals, ages_hours, policy, temporal)
    if policy.blend == "product":
        return np.asarray(signals[SIMILARITY] + signals[IMPORTANCE] * signals[RECENCY])
    if policy.blend == "interpolated":
        ranks = reciprocal_ranks(candidates)
        return interpolated(ranks, signals[IMPORTANCE], ages_hours, uses, policy.interpolation)
    if policy.blend == "similarity":
        # The store's own scores; a memory without one comes after all that have one.
        found = [(each.evidence.dense, each.evidence.relevance) for each in candidates]
        return np.array([relevance - 3.0 if dense is None else dense for dense, relevance in found])
    weights, signals = _weights(candidates, policy), signals[: TRUST + 1]
    if policy.blend == "minmax":
        return np.asarray((weights * min_max(signals)).sum(axis=0))
    total, summed = weights.sum(axis=0), (weights * signals).sum(axis=0)
    return np.asarray(np.divide(summed, total, out=np.zeros_like(summed), where=total > 0))


def bounded(
    candidates: Sequence[Candidate],
    signals: FloatArray,
    ages_hours: FloatArray,
    policy: RecallPolicy,
    temporal: Temporal | None,
) -> FloatArray:
    """Relevance x (1 + boosts): what is relevant is re-ordered, what is not is never rescued."""
    base = signals[RELEVANCE] if policy.ordering == "relevance" else reciprocal_ranks(candidates)
    weights = _weights(candidates, policy)
    boosts = weights[RECENCY:] * signals[RECENCY : TRUST + 1]
    if temporal is not None and temporal.mode == "current":
        fresh = recency_of_writing(candidates, ages_hours, policy)
        boosts[0] = policy.current_recency * weights[RECENCY] * fresh
    elif temporal is not None and temporal.mode == "first":
        boosts[0] = policy.current_recency * weights[RECENCY] * (1.0 - signals[RECENCY])
    elif temporal is not None:
        meant = [_is_within(candidate, temporal) for candidate in candidates]
        boosts[0] = policy.window_boost * np.array(meant)
    scores = np.asarray(base * (1.0 + boosts.sum(axis=0)))
    # What came of using a memory moves its score: a step for each net outcome, within bounds.
    merits = [candidate.usage.merit for candidate in candidates]
    return scores * (1.0 + policy.feedback_step * np.array(merits)) if any(merits) else scores


def min_max(signals: FloatArray) -> FloatArray:
    """Each row min-maxed to [0, 1]; 0.5 throughout where all values are the same."""
    if not signals.shape[1]:
        return signals
    low = signals.min(axis=1, keepdims=True)
    span = signals.max(axis=1, keepdims=True) - low
    return np.where(span > 0, (signals - low) / np.where(span > 0, span, 1.0), 0.5)


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


def reciprocal_ranks(candidates: Sequence[Candidate]) -> FloatArray:
    """RRF over the channels that ranked anything, as a share of the best sum possible."""
    sums, channels = np.zeros(len(candidates)), 0
    for ranks in (
        [candidate.dense_rank for candidate in candidates],
        [candidate.lexical_rank for candidate in candidates],
    ):
        if any(ranks):
            sums += [0.0 if rank is None else 1.0 / (RRF_K + rank) for rank in ranks]
            channels += 1
    return sums / (channels / (RRF_K + 1)) if channels else sums


def _weights(candidates: Sequence[Candidate], policy: RecallPolicy) -> FloatArray:
    """A weight per signal (row) and candidate (column); tiers by kind."""
    # In the order of the table's columns.
    row = attrgetter("similarity", "recency", "importance", "strength", "trust")
    if not policy.tiers or not candidates:
        return np.array(row(policy.weights))[:, None]
    tiers, usual = policy.tiers, policy.weights
    return np.array([row(tiers.get(each.memory.kind, usual)) for each in candidates]).T


def _is_within(candidate: Candidate, temporal: Temporal) -> bool:
    written, start, end = candidate.memory.written_at, temporal.start, temporal.end
    if written is None or (start is None and end is None):
        return False
    return (start is None or written >= start) and (end is None or written < end)
