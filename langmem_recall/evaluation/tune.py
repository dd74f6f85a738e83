"""`tune`: a few knobs fitted to cases, and refused where cases kept back do not gain."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache
from itertools import count
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from langchain_core.embeddings import Embeddings
from numpy.typing import NDArray

from langmem_recall.errors import InputError, check_whole
from langmem_recall.evaluation.cases import Case, CaseSet
from langmem_recall.evaluation.evaluate import (
    NAMESPACE,
    Progress,
    StoreFactory,
    best_relevance,
    each_case,
    with_trigger,
)
from langmem_recall.evaluation.metrics import Row, judge_ranking, mean_estimate, table_of
from langmem_recall.policy import HOURS_PER_DAY, RecallPolicy, Weights
from langmem_recall.ranking.arrays import BoolArray, FloatArray
from langmem_recall.ranking.pipeline import rank, select
from langmem_recall.stores.recall_store import RecallStore
from langmem_recall.types import Candidate, Cue

K = 10  # places a ranking is judged by
MIN_STEP = 0.001  # a knob that gains less than this on the cases it is fitted to stays where it is
MIN_GAIN = 0.005  # a gain on cases kept back that is worth a policy of one's own
PASSES = 2  # times each knob is looked at, because the first ones depend on the later ones
TUNED = "tuned"
TRIGGERS = tuple(round(0.05 * step, 2) for step in range(1, 20))
RANKING = ("weights", "half_life_hours", "window_boost")
GATES = ("trigger", "floor", "composite_floor")
NDCG, RECALL, INJECTED = range(3)
"""Rows of a policy's outcome, which has a column per case; NaN where a metric does not apply."""


_WEIGHTS = (0.0, 0.06, 0.12, 0.25, 0.5, 1.0)
KNOBS: dict[str, tuple[float, ...]] = {
    "weights.recency": _WEIGHTS,
    "half_life_hours": tuple(days * HOURS_PER_DAY for days in (1, 7, 30, 90, 365)),
    "weights.importance": _WEIGHTS,
    "weights.strength": _WEIGHTS,
    "window_boost": (0.0, 0.15, 0.3, 0.6, 1.0),
}
"""What is fitted, in this order, and the levels that are tried beside the present one. A knob that
the blend does not read, or that no case tells apart, gains nothing and so stays as it is."""


def knobs_of(policy: RecallPolicy, names: Sequence[str]) -> dict[str, Any]:
    """Some knobs of a policy by name."""
    return {name: getattr(policy, name) for name in names}


@dataclass(frozen=True, slots=True)
class Tuned:
    """What tuning came to: the policy to use, and the estimates that speak for it."""

    policy: RecallPolicy  # the base policy itself where nothing was gained
    base: RecallPolicy = field(repr=False)
    reason: str  # what was accepted or refused, and why
    before: Row = field(repr=False)
    after: Row = field(repr=False)
    """The base policy's metrics, and what fitting gave on cases it had not seen."""
    folds: int  # parts that were each kept back once
    trials: int  # policies that were tried

    @property
    def is_better(self) -> bool:
        """Whether anything but the base policy came out."""
        return self.policy is not self.base

    @property
    def changes(self) -> dict[str, tuple[float, float]]:
        """The knobs that moved, each with its level before and after."""
        names = (*KNOBS, *GATES)
        pairs = {name: tuple(map(attrgetter(name), (self.base, self.policy))) for name in names}
        return {name: (was, now) for name, (was, now) in pairs.items() if was != now}

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain JSON types."""
        return {
            **{"reason": self.reason, "folds": self.folds, "trials": self.trials},
            **{"policy": self.policy.to_dict(), "base": self.base.to_dict()},
            "changes": {name: list(levels) for name, levels in self.changes.items()},
            **{"before": self.before.numbers(), "after": self.after.numbers()},
        }

    def __str__(self) -> str:
        titles = {"injected_off_topic": "off-topic injected"}
        lines = [f"{self.folds} folds, {self.trials} policies tried"]
        lines.append(table_of((self.before, self.after), titles=titles, intervals=True))
        lines += [f"{name} {was:g} -> {now:g}" for name, (was, now) in self.changes.items()]
        return "\n".join([*lines, self.reason])


def tune(
    cases: CaseSet,
    *,
    base: RecallPolicy | None = None,
    embeddings: Embeddings | None = None,
    store: StoreFactory | None = None,
    folds: int = 5,
    seed: int = 0,
    progress: Progress | None = None,
) -> Tuned:
    """Fit a few knobs to cases, by nDCG@10, and the gates by what they let through.

    Weights, half-life and window boost are fitted to the answerable cases. The trigger is fitted to
    let answerable cues through and off-topic ones not; the floor keeps its distance to it. Both are
    cross-validated, over collections where several can be answered from, and each is refused
    unless cases kept back gain significantly.

    Args:
        cases: What should be found; the more, the more can be told from chance.
        base: Where to start from, and what to beat; `RecallPolicy.default()` when absent.
        embeddings: What makes vectors; `LocalEmbeddings` when absent.
        store: Makes the store that holds a collection; an in-memory `LocalStore` when absent.
        folds: Parts the cases are dealt into; each is kept back once.
        seed: Deals the cases.
        progress: Called with the number of steps done and of all.

    Returns:
        The policy, the base policy itself when refused, with the reason and the estimates.
    """
    if not isinstance(cases, CaseSet):
        raise InputError(f"tune needs a CaseSet, got {cases!r:.80}. Read one with load_cases.")
    check_whole("folds", folds, 2)
    if not any(case.relevant for case in cases.cases):
        raise InputError(
            f"{cases.name} has no answerable case to fit to. Name relevant keys, or set the gates "
            "alone with langmem-recall doctor --target-rate."
        )
    if len(cases.cases) < 2:
        raise InputError("tune needs at least 2 cases, got 1: one is kept back to test by.")
    base, dealt, done = base or RecallPolicy.default(), deal_folds(cases, folds, seed), count(1)
    total = len(cases.cases) + int(dealt.max()) + 2

    def tick() -> None:
        if progress:
            progress(next(done), total)

    searches: dict[int, Search] = {}
    for i, case, bench in each_case(cases, store, embeddings):
        searches[i] = ask(bench.store, case, base)
        tick()
    fitter = _Fitter([searches[i] for i in range(len(searches))], base)
    return _cross_validate(fitter, dealt, tick)


def deal_folds(cases: CaseSet, folds: int, seed: int) -> NDArray[np.int_]:
    """The fold of each case; a collection stays whole where several can be answered from."""
    labels = [case.collection for case in cases.cases]
    if len({case.collection for case in cases.cases if case.relevant}) < 2:
        labels = [str(i) for i in range(len(labels))]
    known = {label for label, case in zip(labels, cases.cases, strict=True) if case.relevant}
    distinct = list(dict.fromkeys(labels))
    # Both sides are shuffled apart, so that every fold has its share of either.
    rng = np.random.default_rng(seed)
    answered = rng.permutation([label for label in distinct if label in known]).tolist()
    order = answered + rng.permutation([each for each in distinct if each not in known]).tolist()
    folds = min(folds, len(answered) if len(answered) > 1 else len(order))
    fold_of = {label: place % folds for place, label in enumerate(order)}
    return np.array([fold_of[label] for label in labels])


class Search(NamedTuple):
    """A case with what its search found: all that ranking and gates read."""

    case: Case
    cue: Cue  # with what it says about time
    now: datetime
    candidates: tuple[Candidate, ...]  # left out for an off-topic case: there is no order to judge
    reach: float  # the highest trigger that lets something through, in [0, 1]
    is_injected: bool  # whether the base policy would show the model anything


def ask(store: RecallStore, case: Case, base: RecallPolicy) -> Search:
    """A case's candidates, from a recall that no gate but the hard ones narrows.

    Ranking them again gives what the store's `search` gives, up to diversity, which is not
    fitted, and a time that the cue asks for, to which only a recall keeps. As in any
    recall, pinned memories are candidates even when they lie beyond the head.
    """
    # The same candidates, none dropped, in the order that breaks ties under every policy.
    ungated = base.replace(
        blend="bounded" if base.blend == "bounded" else "linear",
        ordering="relevance",
        weights=Weights(),
        tiers={},
        duplicate_similarity=2.0,
        mmr_lambda=1.0,
        **dict.fromkeys(("window_boost", *GATES), 0.0),
    )
    cue = replace(case.cue, at=case.cue.at or case.at)
    recall = store.recall(NAMESPACE, cue, policy=ungated)
    found = (*recall.chosen, *(drop.scored for drop in recall.dropped))
    candidates = tuple(scored.candidate for scored in found)
    cue, now = recall.trace.cue, recall.trace.at
    ranked = rank(cue, candidates, base, now, (NAMESPACE,)).ranked
    # Near-duplicates never empty a recall, so that none need be known to see if it is empty.
    chosen, _ = select(ranked, base, lambda ids: np.zeros((len(ids), len(ids))))
    judged = candidates if case.relevant else ()
    return Search(case, cue, now, judged, best_relevance(recall), bool(chosen))


# --- fitting ------------------------------------------------------------------------------------


class _Fitter:
    """Fits a policy to some of the cases; every policy is tried on all of them once."""

    def __init__(self, searches: list[Search], base: RecallPolicy) -> None:
        self.base = base
        self.answerable = np.array([bool(search.case.relevant) for search in searches])
        self.judge = cache(self._judge)
        self._searches = searches
        self._reaches = np.array([search.reach for search in searches])

    def fit(self, chosen: BoolArray) -> RecallPolicy:
        """The best policy for some cases: coordinate ascent over the levels of the knobs."""
        answered, answerable = chosen & self.answerable, self.answerable[chosen]

        def ndcg(policy: RecallPolicy) -> float:
            return float(self.judge(policy)[NDCG, answered].mean())

        def balance(policy: RecallPolicy) -> float:
            return float(_signed(self._injected(policy)[chosen], answerable).mean())

        best = gated = self.base
        for knob in [*KNOBS] * PASSES if answered.any() else ():
            best = _improve(best, knob, KNOBS[knob], ndcg)
        if answerable.any() and not answerable.all():
            gated = _improve(gated, "trigger", TRIGGERS, balance)
        return best.replace(**knobs_of(gated, GATES))

    def outcome(self, policy: RecallPolicy) -> FloatArray:
        """What a policy makes of every case: nDCG, recall, and whether it injects as 0 or 1."""
        order = policy.replace(**knobs_of(self.base, GATES))
        return np.vstack([self.judge(order), self._injected(policy)])

    def _judge(self, policy: RecallPolicy) -> FloatArray:
        """The nDCG and recall of every case, by ranking again what its search found."""
        pairs = []
        for case, cue, now, candidates, *_ in self._searches:
            ranked = rank(cue, candidates, policy, now, (NAMESPACE,)).ranked
            keys = [scored.memory.key for scored in ranked[:K]]
            judged = judge_ranking(keys, case.relevant, K)
            pairs.append((judged["ndcg"], judged["recall"]))
        return np.array(pairs).T

    def _injected(self, policy: RecallPolicy) -> FloatArray:
        if knobs_of(policy, GATES) == knobs_of(self.base, GATES):
            return np.array([float(search.is_injected) for search in self._searches])
        return (self._reaches >= max(policy.trigger, policy.floor)).astype(np.float64)


def _improve(
    policy: RecallPolicy, name: str, levels: Sequence[float], score: Callable[[RecallPolicy], float]
) -> RecallPolicy:
    """The policy with the best level of a knob, or as it is where too little is gained."""
    owner, _, knob = name.rpartition(".")

    def at(level: float) -> RecallPolicy:
        if name == "trigger":
            return with_trigger(policy, level)
        if owner:
            return policy.replace(weights=replace(policy.weights, **{knob: level}))
        return policy.replace(**{knob: level})

    present = attrgetter(name)(policy)
    # Of equals, the first is the one that changes least.
    best = max(map(at, sorted(levels, key=lambda level: abs(level - present))), key=score)
    return best if score(best) - score(policy) >= MIN_STEP else policy


def _signed(injected: FloatArray, answerable: BoolArray) -> FloatArray:
    """Values whose mean is the answerable share injected minus the off-topic share injected."""
    positive = len(answerable) / max(int(answerable.sum()), 1)
    negative = -len(answerable) / max(int((~answerable).sum()), 1)
    return np.asarray(injected * np.where(answerable, positive, negative))


def _cross_validate(fitter: _Fitter, dealt: NDArray[np.int_], tick: Callable[[], None]) -> Tuned:
    """Fit without each fold in turn; ranking and gates are accepted or refused each by itself."""
    base, answerable = fitter.base, fitter.answerable
    before = fitter.outcome(base)
    held_out, folds = np.full_like(before, np.nan), int(dealt.max()) + 1
    for number in range(folds):
        kept_back = dealt == number
        held_out[:, kept_back] = fitter.outcome(fitter.fit(~kept_back))[:, kept_back]
        tick()

    def gains(after: FloatArray, before: FloatArray) -> bool:
        is_significant = mean_estimate(after, before).is_significant
        return is_significant and float(np.mean(after - before)) >= MIN_GAIN

    fitted, changes = fitter.fit(np.ones_like(answerable)), dict[str, Any]()
    than = "the default" if base.name == RecallPolicy.default().name else base.name
    ranking = gates = reason = f"no significant gain over {than}"
    if gains(held_out[NDCG, answerable], before[NDCG, answerable]):
        ranking, changes = "fitted", knobs_of(fitted, RANKING)
    if answerable.all():
        gates = "left alone, as no case is off-topic"
    elif gains(*(_signed(each[INJECTED], answerable) for each in (held_out, before))):
        gates, changes = "fitted", changes | knobs_of(fitted, GATES)
    policy = base
    if base.replace(**changes) != base:
        policy = base.replace(name=TUNED, **changes)
        reason = f"ranking: {ranking}; gates: {gates}"
    tick()
    metrics = {
        f"ndcg@{K}": (NDCG, answerable),
        f"recall@{K}": (RECALL, answerable),
        "injected": (INJECTED, answerable),
        "injected_off_topic": (INJECTED, ~answerable),
    }
    first = {name: mean_estimate(before[place]) for name, place in metrics.items()}
    after = {name: mean_estimate(held_out[place], before[place]) for name, place in metrics.items()}
    rows = Row(base.name, first), Row("fitted, held out", after)
    return Tuned(policy, base, reason, *rows, folds, fitter.judge.cache_info().currsize)
