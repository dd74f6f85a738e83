"""The read path from candidates to a ranking and to a recall, on one screen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from itertools import repeat
from typing import NamedTuple

import numpy as np

from langmem_recall.policy import RecallPolicy
from langmem_recall.ranking.arrays import FloatArray
from langmem_recall.ranking.blend import blend
from langmem_recall.ranking.diversity import mmr, without_duplicates
from langmem_recall.ranking.gates import (
    SURE,
    GateContext,
    hard_drops,
    reach,
    recall_gates,
    time_drops,
)
from langmem_recall.ranking.pool import Pool, known
from langmem_recall.ranking.signals import RELEVANCE, signal_table
from langmem_recall.types import (
    Candidate,
    Cue,
    Drop,
    Memory,
    MemoryId,
    Namespace,
    Scored,
    Signals,
    View,
    record_all,
)

Likeness = Callable[[Sequence[MemoryId]], FloatArray]
"""How alike each two of some memories are, in [0, 1]."""

DIVERSITY_REACH = 4
"""Near-duplicates are looked for among this many times `top_k` memories."""


class Ranking(NamedTuple):
    """Candidates with signals and scores, their order, and those a hard gate dropped."""

    pool: Pool
    signals: FloatArray
    """A column per candidate."""
    scores: FloatArray
    order: list[int]
    """Places of the candidates, best first."""
    dropped: list[Drop]

    @property
    def ranked(self) -> list[Scored]:
        """A record of each, best first."""
        candidates, order = self.pool.candidates(), self.order
        ordered = [candidates[place] for place in order]
        return record_all(Scored, ordered, self._signals(order), self.scores[order].tolist())

    def best(self, count: int) -> list[tuple[Memory, float | None, Signals, float]]:
        """Memory, cosine of the literal cue, signals and score of the first."""
        memories, similarity, order = self.pool.memories, self.pool.similarity, self.order[:count]
        cosines: Iterable[float | None] = repeat(None)
        if similarity is not None:
            cosines = known(similarity[order].tolist())
        chosen = [memories[place] for place in order]
        scores = self.scores[order].tolist()
        return list(zip(chosen, cosines, self._signals(order), scores, strict=False))

    def _signals(self, order: list[int]) -> list[Signals]:
        return record_all(Signals, *self.signals.take(order, axis=1).tolist())


def rank(
    cue: Cue,
    candidates: Pool | Sequence[Candidate],
    policy: RecallPolicy,
    now: datetime,
    boundaries: tuple[Namespace, ...],
    include: frozenset[str] = frozenset(),
) -> Ranking:
    """Hard gates, signals, blend, order: what `search` returns."""
    context = GateContext.of(cue, policy, now, boundaries, include)
    pool = Pool.of(candidates)
    drops, dropped = hard_drops(pool, context), list[Drop]()
    if cue.temporal is not None and cue.temporal.asked:
        eligible = {i: one for i, one in enumerate(pool.candidates()) if i not in drops}
        late = time_drops(list(eligible.values()), cue.temporal, policy.trigger)
        ids = ((place, one.memory.id) for place, one in eligible.items())
        drops |= {place: ("time", late[name]) for place, name in ids if name in late}
    if drops:
        records = pool.candidates()
        for place in sorted(drops):
            # What a hard gate dropped is never scored: min-max would let it move the others.
            memory, evidence = records[place].memory, records[place].evidence
            dense = evidence.dense or 0.0
            unscored = Signals(evidence.relevance, dense, 0.0, 0.0, 0.0, memory.trust)
            dropped.append(Drop(Scored(records[place], unscored, 0.0), *drops[place]))
        pool = Pool.of([one for place, one in enumerate(records) if place not in drops])
    signals, ages_hours, uses = signal_table(pool, policy, now.timestamp())
    scores = blend(pool, signals, ages_hours, uses, policy, cue.temporal)
    order: list[int] = np.lexsort((-signals[RELEVANCE], -scores)).tolist()
    if policy.blend != "similarity":
        order = demote_unverified_leader(order, pool.memories, signals[RELEVANCE])
    return Ranking(pool, signals, scores, order, dropped)


def demote_unverified_leader(
    order: list[int], memories: Sequence[Memory], relevance: Sequence[float] | FloatArray
) -> list[int]:
    """A memory without authority does not lead where a trusted one is as relevant."""
    if not order or not memories[order[0]].lacks_authority:
        return order
    # To the six digits that a trace records, so that it tells the same order.
    least = round(float(relevance[order[0]]), 6)
    for rank, place in enumerate(order):
        is_relevant = round(float(relevance[place]), 6) >= least
        if is_relevant and not memories[place].lacks_authority:
            return [place, *order[:rank], *order[rank + 1 :]]
    return order


def select(
    ranked: Sequence[Scored],
    policy: RecallPolicy,
    likeness: Likeness,
    view: View | None = None,
    breadth: float | None = None,
) -> tuple[list[Scored], list[Drop]]:
    """Recall gates, diversity, count: what a recall chooses, and what it drops with reasons."""
    passed, dropped = recall_gates(ranked, policy, view, breadth)
    near = passed[: DIVERSITY_REACH * policy.top_k]
    if len(near) > 1:
        alike = likeness([scored.memory.id for scored in near])
        distinct, duplicates = without_duplicates(near, alike, policy)
        dropped += duplicates
        varied = mmr_order(
            [near[i] for i in distinct], policy, lambda _: alike[np.ix_(distinct, distinct)]
        )
        passed = varied + passed[len(near) :]
    # The best unverified memories up to their share of the places; pinned ones are exempt.
    most = int(policy.unverified_share * policy.top_k)
    reason = f"unverified memories may take {most} of {policy.top_k} places"
    most_alone, _ = reach(policy, breadth)
    lonely = f"beyond the best {most_alone} that stand alone and are not sure"
    pinned, others, unverified, alone = list[Scored](), list[Scored](), 0, Counter[int]()
    for scored in passed:
        if scored.memory.pinned:
            pinned.append(scored)
            continue
        unverified += scored.memory.lacks_authority
        if scored.memory.lacks_authority and unverified > most and policy.blend != "similarity":
            dropped.append(Drop(scored, "authority", reason))
            continue
        part = scored.evidence.alone
        alone[part] += 1
        is_sure = scored.signals.relevance >= SURE
        # One more for each further part, and of a part at least its best.
        is_beyond = alone[part] > 1 and alone.total() >= most_alone + len(alone)
        if policy.trigger and part and is_beyond and not is_sure:
            dropped.append(Drop(scored, "top_k", lonely))
        else:
            others.append(scored)
    # Pinned memories first and all of them, the best others up to `top_k`.
    places = max(policy.top_k - len(pinned), 0)
    beyond = f"beyond the best {policy.top_k}"
    dropped += [Drop(scored, "top_k", beyond) for scored in others[places:]]
    return pinned + others[:places], dropped


def mmr_order(ranked: Sequence[Scored], policy: RecallPolicy, likeness: Likeness) -> list[Scored]:
    """The ranking in the order of greedy MMR, where the policy asks for it."""
    if policy.mmr_lambda >= 1.0 or len(ranked) < 2:
        return list(ranked)
    alike = likeness([scored.memory.id for scored in ranked])
    scores = np.array([scored.score for scored in ranked])
    # As shares of the best, so that a score weighs as much against likeness under every blend.
    shares = scores / scores.max() if scores.max() > 0 else scores
    return [ranked[i] for i in mmr(shares, alike, policy.mmr_lambda)]
