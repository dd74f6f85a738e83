"""The read path from candidates to a ranking and to a recall, on one screen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import NamedTuple

import numpy as np

from langmem_recall.policy import RecallPolicy
from langmem_recall.ranking.arrays import FloatArray
from langmem_recall.ranking.blend import blend
from langmem_recall.ranking.diversity import mmr, without_duplicates
from langmem_recall.ranking.gates import GateContext, hard_drop, recall_gates
from langmem_recall.ranking.signals import (
    IMPORTANCE,
    RECENCY,
    RELEVANCE,
    SIMILARITY,
    STRENGTH,
    TRUST,
    signal_table,
)
from langmem_recall.types import (
    Candidate,
    Cue,
    Drop,
    MemoryId,
    Namespace,
    Scored,
    Signals,
    View,
)

Likeness = Callable[[Sequence[MemoryId]], FloatArray]
"""How alike each two of some memories are, in [0, 1]."""

_RECORD_ORDER = [RELEVANCE, SIMILARITY, RECENCY, IMPORTANCE, STRENGTH, TRUST]
DIVERSITY_REACH = 4
"""Near-duplicates are looked for among this many times `top_k` memories."""


class Ranking(NamedTuple):
    """Candidates best first, and those a hard gate dropped."""

    ranked: list[Scored]
    dropped: list[Drop]


def rank(
    cue: Cue,
    candidates: Sequence[Candidate],
    policy: RecallPolicy,
    now: datetime,
    boundaries: tuple[Namespace, ...],
    include: frozenset[str] = frozenset(),
) -> Ranking:
    """Hard gates, signals, blend, order: what `search` returns."""
    task = cue.task if policy.task_filter else None
    admitted, dropped = _admit(candidates, GateContext(now, boundaries, task, include))
    scored = _scored(admitted, cue, policy, now)
    return Ranking(
        scored if policy.blend == "similarity" else demote_unverified_leader(scored), dropped
    )


def select(
    ranked: Sequence[Scored], policy: RecallPolicy, likeness: Likeness, view: View | None = None
) -> tuple[list[Scored], list[Drop]]:
    """Recall gates, diversity, count: what a recall chooses, and what it drops with reasons."""
    passed, dropped = recall_gates(ranked, policy, view)
    varied, duplicates = _diversify(passed, policy, likeness)
    vouched, doubtful = _limit_unverified(varied, policy)
    chosen, beyond = _cut(vouched, policy)
    return chosen, [*dropped, *duplicates, *doubtful, *beyond]


def _admit(
    candidates: Sequence[Candidate], moment: GateContext
) -> tuple[list[Candidate], list[Drop]]:
    admitted, dropped = [], []
    for candidate in candidates:
        rejection = hard_drop(candidate, moment)
        if rejection is None:
            admitted.append(candidate)
        else:
            dropped.append(Drop(_unscored(candidate), *rejection))
    return admitted, dropped


def _unscored(candidate: Candidate) -> Scored:
    """What a hard gate dropped is never scored: min-max would let it move the others."""
    relevance = candidate.evidence.relevance
    signals = Signals(
        relevance, candidate.evidence.dense or 0.0, 0.0, 0.0, 0.0, candidate.memory.trust
    )
    return Scored(candidate, signals, 0.0)


def _scored(
    candidates: Sequence[Candidate], cue: Cue, policy: RecallPolicy, now: datetime
) -> list[Scored]:
    if not candidates:
        return []
    signals, ages_hours, uses = signal_table(candidates, policy, now.timestamp())
    scores = blend(candidates, signals, ages_hours, uses, policy, cue.temporal)
    best_first = np.lexsort((-signals[RELEVANCE], -scores))
    ordered = [candidates[i] for i in best_first.tolist()]
    records = map(Signals._make, signals[_RECORD_ORDER][:, best_first].T.tolist())
    return list(map(Scored, ordered, records, scores[best_first].tolist()))


def demote_unverified_leader(ranked: list[Scored]) -> list[Scored]:
    """A memory without authority does not lead where a trusted one is as relevant."""
    if not ranked or not ranked[0].memory.lacks_authority:
        return ranked
    # To the six digits that a trace records, so that it tells the same order.
    least = round(ranked[0].signals.relevance, 6)
    for place, scored in enumerate(ranked):
        is_relevant = round(scored.signals.relevance, 6) >= least
        if is_relevant and not scored.memory.lacks_authority:
            return [scored, *ranked[:place], *ranked[place + 1 :]]
    return ranked


def _limit_unverified(
    varied: Sequence[Scored], policy: RecallPolicy
) -> tuple[list[Scored], list[Drop]]:
    """The best unverified memories up to their share of the places; pinned ones are exempt."""
    most = int(policy.unverified_share * policy.top_k)
    reason = f"unverified memories may take {most} of {policy.top_k} places"
    kept, dropped, taken = list[Scored](), list[Drop](), 0
    for scored in varied:
        is_counted = scored.memory.lacks_authority and not scored.memory.pinned
        taken += is_counted
        if is_counted and taken > most and policy.blend != "similarity":
            dropped.append(Drop(scored, "authority", reason))
        else:
            kept.append(scored)
    return kept, dropped


def _cut(varied: Sequence[Scored], policy: RecallPolicy) -> tuple[list[Scored], list[Drop]]:
    """Pinned memories first and all of them, the best others up to `top_k`."""
    ordered = sorted(varied, key=lambda scored: not scored.memory.pinned)
    pinned = sum(scored.memory.pinned for scored in varied)
    count = max(policy.top_k, pinned)
    reason = f"beyond the best {policy.top_k}"
    return ordered[:count], [Drop(scored, "top_k", reason) for scored in ordered[count:]]


def _diversify(
    passed: Sequence[Scored], policy: RecallPolicy, likeness: Likeness
) -> tuple[list[Scored], list[Drop]]:
    near = passed[: DIVERSITY_REACH * policy.top_k]
    if len(near) < 2:
        return list(passed), []
    alike = likeness([scored.memory.id for scored in near])
    kept, duplicates = without_duplicates(near, alike, policy)
    varied = _spread([near[i] for i in kept], alike[np.ix_(kept, kept)], policy)
    return varied + list(passed[len(near) :]), duplicates


def mmr_order(ranked: Sequence[Scored], policy: RecallPolicy, likeness: Likeness) -> list[Scored]:
    """The ranking in the order of greedy MMR, where the policy asks for it."""
    if policy.mmr_lambda >= 1.0 or len(ranked) < 2:
        return list(ranked)
    return _spread(ranked, likeness([scored.memory.id for scored in ranked]), policy)


def _spread(ranked: Sequence[Scored], alike: FloatArray, policy: RecallPolicy) -> list[Scored]:
    if policy.mmr_lambda >= 1.0:
        return list(ranked)
    scores = np.array([scored.score for scored in ranked])
    return [ranked[i] for i in mmr(scores, alike, policy.mmr_lambda, len(ranked))]
