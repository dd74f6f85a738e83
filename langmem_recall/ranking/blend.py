"""Blends: the only place where a score is made."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from langmem_recall.policy import RecallPolicy, Weights
from langmem_recall.ranking.arrays import BoolArray, FloatArray
from langmem_recall.ranking.signals import (
    IMPORTANCE,
    RECENCY,
    RELEVANCE,
    SIMILARITY,
    STRENGTH,
    TRUST,
    recency_of_writing,
)
from langmem_recall.types import Candidate, Temporal

RRF_K = 60
HOURS_PER_DAY = 24.0


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
        base = (
            signals[RELEVANCE] if policy.ordering == "relevance" else reciprocal_ranks(candidates)
        )
        if temporal is not None and temporal.mode == "current":
            signals = signals.copy()
            signals[RECENCY] = recency_of_writing(candidates, ages_hours, policy)
        scores = bounded(
            base, signals, _weights(candidates, policy), policy, _timing(candidates, temporal)
        )
        return apply_feedback(scores, candidates, policy.feedback_step)
    if policy.blend == "linear":
        return linear(signals, _weights(candidates, policy))
    if policy.blend == "minmax":
        return minmaxed(signals, _weights(candidates, policy))
    if policy.blend == "product":
        return np.asarray(signals[SIMILARITY] + signals[IMPORTANCE] * signals[RECENCY])
    if policy.blend == "interpolated":
        return interpolated(
            reciprocal_ranks(candidates),
            signals[IMPORTANCE],
            ages_hours,
            uses,
            policy.interpolation,
        )
    return cosines(candidates)


def cosines(candidates: Sequence[Candidate]) -> FloatArray:
    """The store's own scores; a memory without one comes after all that have one."""
    found = [(candidate.evidence.dense, candidate.evidence.relevance) for candidate in candidates]
    return np.array([relevance - 3.0 if dense is None else dense for dense, relevance in found])


def bounded(
    base: FloatArray,
    signals: FloatArray,
    weights: FloatArray,
    policy: RecallPolicy,
    timing: tuple[str, BoolArray] | None,
) -> FloatArray:
    """Relevance x (1 + boosts): what is relevant is re-ordered, what is not is never rescued."""
    boosts = weights[RECENCY : TRUST + 1] * signals[RECENCY : TRUST + 1]
    if timing is not None:
        mode, meant = timing
        fresh = signals[RECENCY] if mode == "current" else 1.0 - signals[RECENCY]
        raised = policy.current_recency * weights[RECENCY] * fresh
        boosts[0] = raised if mode in ("current", "first") else policy.window_boost * meant
    return np.asarray(base * (1.0 + boosts.sum(axis=0)))


def apply_feedback(
    scores: FloatArray, candidates: Sequence[Candidate], feedback_step: float
) -> FloatArray:
    """Scores moved by what came of using a memory: a step for each net outcome, within bounds."""
    if not any(candidate.usage.merit for candidate in candidates):
        return scores
    merits = np.array([candidate.usage.merit for candidate in candidates])
    return np.asarray(scores * (1.0 + feedback_step * merits))


def linear(signals: FloatArray, weights: FloatArray) -> FloatArray:
    """Weighted mean of the signals."""
    used = weights[: TRUST + 1]
    total = used.sum(axis=0)
    summed = (used * signals[: TRUST + 1]).sum(axis=0)
    return np.asarray(np.divide(summed, total, out=np.zeros_like(summed), where=total > 0))


def minmaxed(signals: FloatArray, weights: FloatArray) -> FloatArray:
    """Weighted sum of signals stretched over the candidates; a constant one counts 0.5."""
    return np.asarray((weights[: TRUST + 1] * min_max(signals[: TRUST + 1])).sum(axis=0))


def min_max(signals: FloatArray) -> FloatArray:
    """Each row min-maxed to [0, 1]; 0.5 throughout where all values are the same."""
    if not signals.shape[1]:
        return signals
    low = signals.min(axis=1, keepdims=True)
    mmr_order = signals.max(axis=1, keepdims=True) - low
    return np.where(mmr_order > 0, (signals - low) / np.where(mmr_order > 0, mmr_order, 1.0), 0.5)


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
    channels = [
        [candidate.dense_rank for candidate in candidates],
        [candidate.lexical_rank for candidate in candidates],
    ]
    ranked = [ranks for ranks in channels if any(rank is not None for rank in ranks)]
    best = len(ranked) / (RRF_K + 1)
    sums = [
        sum(1.0 / (RRF_K + ranks[i]) for ranks in ranked if ranks[i] is not None)  # type: ignore[operator]
        for i in range(len(candidates))
    ]
    return np.array(sums) / best if ranked else np.zeros(len(candidates))


def _weights(candidates: Sequence[Candidate], policy: RecallPolicy) -> FloatArray:
    """A weight per signal (row) and candidate (column); tiers by kind."""
    if not policy.tiers:
        return _row(policy.weights)[:, None]
    rows = {kind: _row(weights) for kind, weights in policy.tiers.items()}
    usual = _row(policy.weights)
    columns = [rows.get(candidate.memory.kind, usual) for candidate in candidates]
    return np.array(columns).T if columns else usual[:, None]


def _row(weights: Weights) -> FloatArray:
    row = np.zeros(TRUST + 1)
    row[SIMILARITY] = weights.similarity
    row[RECENCY] = weights.recency
    row[IMPORTANCE] = weights.importance
    row[STRENGTH] = weights.strength
    row[TRUST] = weights.trust
    return row


def _timing(
    candidates: Sequence[Candidate], temporal: Temporal | None
) -> tuple[str, BoolArray] | None:
    """What the cue says about time, and which candidates were written when it means."""
    if temporal is None:
        return None
    return temporal.mode, np.array([_is_within(candidate, temporal) for candidate in candidates])


def _is_within(candidate: Candidate, temporal: Temporal) -> bool:
    written = candidate.memory.written_at
    if written is None or (temporal.start is None and temporal.end is None):
        return False
    after = temporal.start is None or written >= temporal.start
    return after and (temporal.end is None or written < temporal.end)
