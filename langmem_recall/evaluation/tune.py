"""`tune`: a few knobs fitted to cases, and refused where cases kept back do not gain."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
from langchain_core.embeddings import Embeddings
from numpy.typing import NDArray

from langmem_recall.errors import InputError
from langmem_recall.evaluation.cases import Case, CaseSet
from langmem_recall.evaluation.evaluate import (
    HIGHEST_TRIGGER,
    LOWEST_TRIGGER,
    NAMESPACE,
    Progress,
    StoreFactory,
    bench_of,
    best_relevance,
    check_share,
    local_store,
    set_injection_rate,
    with_trigger,
)
from langmem_recall.evaluation.metrics import (
    CONFIDENCE,
    Estimate,
    Row,
    mean_estimate,
    ndcg_at,
    randomisation_p,
    recall_at,
    table_of,
)
from langmem_recall.policy import RecallPolicy, Weights
from langmem_recall.ranking.arrays import BoolArray, FloatArray
from langmem_recall.ranking.pipeline import rank, select
from langmem_recall.stores.recall_store import RecallStore
from langmem_recall.types import Candidate, Cue, Memory, MemoryId

K = 10
"""Places a ranking is judged by."""
MIN_STEP = 0.001
"""A knob that gains less than this on the cases it is fitted to stays where it is."""
PASSES = 2
"""Times each knob is looked at, because the first ones depend on the later ones."""
TRIGGERS: FloatArray = np.round(np.arange(LOWEST_TRIGGER, HIGHEST_TRIGGER + 0.01, 0.05), 2)

_WEIGHTS = (0.0, 0.06, 0.12, 0.25, 0.5, 1.0)
_DAY = 24.0


class Knob(NamedTuple):
    """A number that is fitted, the levels tried and the blends that read it."""

    name: str
    levels: tuple[float, ...]
    blends: tuple[str, ...]
    speaks: Callable[[Asked], bool]
    """Whether a case can tell its levels apart; where none can, the knob stays as it is."""


class Asked(NamedTuple):
    """A case with what its search found: all that ranking and gates read."""

    case: Case
    cue: Cue
    """With what it says about time."""
    now: datetime
    candidates: tuple[Candidate, ...]
    """Left out for an off-topic case: there is no order to judge."""
    reach: float
    """The highest trigger that lets something through, in [0, 1]."""
    injected: bool
    """Whether the base policy would show the model anything."""


_LINEAR = ("bounded", "linear", "minmax")
KNOBS = (
    Knob("weights.recency", _WEIGHTS, _LINEAR, lambda asked: _differ(asked, _written)),
    Knob(
        "half_life_hours",
        (1 * _DAY, 7 * _DAY, 30 * _DAY, 90 * _DAY, 365 * _DAY),
        (*_LINEAR, "product"),
        lambda asked: _differ(asked, _written),
    ),
    Knob(
        "weights.importance",
        _WEIGHTS,
        _LINEAR,
        lambda asked: _differ(asked, lambda found: (found.memory.salience, found.usage.uses)),
    ),
    Knob(
        "weights.strength",
        _WEIGHTS,
        _LINEAR,
        lambda asked: _differ(asked, lambda found: found.usage.uses),
    ),
    Knob(
        "window_boost",
        (0.0, 0.15, 0.3, 0.6, 1.0),
        ("bounded",),
        lambda asked: asked.cue.temporal is not None and asked.cue.temporal.mode != "current",
    ),
)
"""What is fitted, in this order, and within which bounds; the present level is tried as well."""


def _differ(asked: Asked, quality: Callable[[Candidate], Any]) -> bool:
    return len(set(map(quality, asked.candidates))) > 1


def _written(candidate: Candidate) -> tuple[datetime | None, float | None]:
    return candidate.memory.written_at, candidate.usage.last_used


class Outcome(NamedTuple):
    """What a policy makes of each case."""

    ndcg: FloatArray
    """NaN for an off-topic case, as is recall."""
    recall: FloatArray
    injected: FloatArray

    @classmethod
    def blank(cls, cases: int) -> Outcome:
        """Nothing known of any case."""
        return cls(*(np.full(cases, np.nan) for _ in range(3)))

    def take(self, other: Outcome, chosen: BoolArray) -> None:
        """Fill some cases in from another outcome."""
        for mine, theirs in zip(self, other, strict=True):
            mine[chosen] = theirs[chosen]


class Fitter:
    """Fits a policy to some of the cases; every policy is tried on all of them once."""

    def __init__(self, gathered: Sequence[Asked], base: RecallPolicy, target: float | None) -> None:
        self.base = base
        self.target = target
        self.answerable = np.array([bool(asked.case.relevant) for asked in gathered])
        self._gathered = gathered
        self._reaches = np.array([asked.reach for asked in gathered])
        self._knobs = [
            knob for knob in KNOBS if base.blend in knob.blends and any(map(knob.speaks, gathered))
        ]
        self._judged: dict[RecallPolicy, tuple[FloatArray, FloatArray]] = {}

    @property
    def trials(self) -> int:
        """Policies whose ranking was judged."""
        return len(self._judged)

    def fit(self, chosen: BoolArray) -> RecallPolicy:
        """The best policy for some cases."""
        ranked, gated = self._fit_ranking(chosen & self.answerable), self._fit_gates(chosen)
        return ranked.replace(**knobs_of(gated, GATES))

    def outcome(self, policy: RecallPolicy) -> Outcome:
        """What a policy makes of every case."""
        order = policy.replace(**knobs_of(self.base, GATES))
        return Outcome(*self._judge(order), self._injected(policy))

    def _fit_ranking(self, chosen: BoolArray) -> RecallPolicy:
        """Coordinate ascent over the levels of the knobs, from the base policy."""
        best = self.base
        if not chosen.any():
            return best
        for _ in range(PASSES):
            started = best
            for knob in self._knobs:
                best = self._fit_knob(knob, best, chosen)
            if best == started:
                break
        return best

    def _fit_knob(self, knob: Knob, policy: RecallPolicy, chosen: BoolArray) -> RecallPolicy:
        present = level_of(policy, knob.name)
        nearest_first = sorted(knob.levels, key=lambda level: abs(level - present))
        tried = [_withlevel_of(policy, knob.name, level) for level in nearest_first]
        # Of equals, the first is the one that changes least.
        best = max(tried, key=lambda trial: self._ndcg(trial, chosen))
        gained = self._ndcg(best, chosen) - self._ndcg(policy, chosen)
        return best if gained >= MIN_STEP else policy

    def _ndcg(self, policy: RecallPolicy, chosen: BoolArray) -> float:
        return float(self._judge(policy)[0][chosen].mean())

    def _judge(self, policy: RecallPolicy) -> tuple[FloatArray, FloatArray]:
        if policy not in self._judged:
            pairs = [judge(asked, policy) for asked in self._gathered]
            ndcg, recall = np.array(pairs).T
            self._judged[policy] = ndcg, recall
        return self._judged[policy]

    def _fit_gates(self, chosen: BoolArray) -> RecallPolicy:
        if self.target is not None:
            return set_injection_rate(self._reaches[chosen], self.target, self.base)
        answerable = self.answerable[chosen]
        if answerable.all() or not answerable.any():
            return self.base
        nearest_first = sorted(TRIGGERS.tolist(), key=lambda level: abs(level - self.base.trigger))
        tried = [with_trigger(self.base, level) for level in nearest_first]

        def balance(policy: RecallPolicy) -> float:
            return float(signed(self._injected(policy)[chosen], answerable).mean())

        best = max(tried, key=balance)
        return best if balance(best) - balance(self.base) >= MIN_STEP else self.base

    def _injected(self, policy: RecallPolicy) -> FloatArray:
        """Whether each case would show the model anything, as 0 or 1."""
        if knobs_of(policy, GATES) == knobs_of(self.base, GATES):
            return np.array([float(asked.injected) for asked in self._gathered])
        return (self._reaches >= max(policy.trigger, policy.floor)).astype(np.float64)


def judge(asked: Asked, policy: RecallPolicy) -> tuple[float, float]:
    """Judge nDCG and recall of a case under a policy, by ranking again what its search found."""
    if not asked.case.relevant:
        return math.nan, math.nan
    ranked = rank(asked.cue, asked.candidates, policy, asked.now, (NAMESPACE,)).ranked
    keys = [scored.memory.key for scored in ranked[:K]]
    return ndcg_at(keys, asked.case.relevant, K), recall_at(keys, asked.case.relevant, K)


def signed(injected: FloatArray, answerable: BoolArray) -> FloatArray:
    """Values whose mean is the answerable share injected minus the off-topic share injected."""
    count = len(answerable)
    shares = np.where(
        answerable,
        count / max(int(answerable.sum()), 1),
        -count / max(int((~answerable).sum()), 1),
    )
    return np.asarray(injected * shares)


RANKING = ("weights", "half_life_hours", "window_boost")
GATES = ("trigger", "floor", "composite_floor")


def knobs_of(policy: RecallPolicy, names: Sequence[str]) -> dict[str, Any]:
    """Some knobs of a policy by name."""
    return {name: getattr(policy, name) for name in names}


def level_of(policy: RecallPolicy, name: str) -> float:
    """The level of a knob, "weights." before the name of a weight."""
    owner, _, knob = name.rpartition(".")
    return float(getattr(policy.weights if owner else policy, knob))


def _withlevel_of(policy: RecallPolicy, name: str, level: float) -> RecallPolicy:
    owner, _, knob = name.rpartition(".")
    if not owner:
        return policy.replace(**{knob: level})
    return policy.replace(weights=replace(policy.weights, **{knob: level}))


MIN_GAIN = 0.005
"""A gain on cases kept back that is worth a policy of one's own."""
TUNED = "tuned"


class Fold(NamedTuple):
    """Cases kept back, and what fitting to the others made of them."""

    policy: RecallPolicy
    """Fitted without these cases."""
    cases: int
    before: float
    """nDCG of the base policy on these cases; NaN where none is answerable."""
    after: float
    """nDCG of the fitted policy on them."""


@dataclass(frozen=True, slots=True)
class Tuned:
    """What tuning came to: the policy to use, and the estimates that speak for it."""

    policy: RecallPolicy
    """The base policy itself where nothing was gained."""
    base: RecallPolicy = field(repr=False)
    reason: str
    """What was accepted or refused, and why."""
    before: Row = field(repr=False)
    """The base policy's metrics."""
    after: Row = field(repr=False)
    """What fitting gave on cases it had not seen, be it accepted or refused."""
    folds: tuple[Fold, ...] = field(repr=False)
    trials: int
    """Policies that were tried."""

    @property
    def is_better(self) -> bool:
        """Whether anything but the base policy came out."""
        return self.policy is not self.base

    @property
    def changes(self) -> dict[str, tuple[float, float]]:
        """The knobs that moved, each with its level before and after."""
        return changed_knobs(self.base, self.policy)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain JSON types."""
        return {
            "reason": self.reason,
            "policy": self.policy.to_dict(),
            "base": self.base.to_dict(),
            "changes": {name: list(levels) for name, levels in self.changes.items()},
            "before": {name: held.to_dict() for name, held in self.before.estimates.items()},
            "after": {name: held.to_dict() for name, held in self.after.estimates.items()},
            "folds": [_fold_record(fold, self.base) for fold in self.folds],
            "trials": self.trials,
        }

    def __str__(self) -> str:
        rows = (self.before, self.after)
        moved = [f"{name} {was:g} -> {now:g}" for name, (was, now) in self.changes.items()]
        return "\n".join(
            [
                f"{len(self.folds)} folds, {self.trials} policies tried",
                table_of(rows, tuple(self.before.estimates), intervals=True, titles=_TITLES),
                *moved,
                self.reason,
            ]
        )


_NDCG, _RECALL, _INJECTED, _OFF_TOPIC = f"ndcg@{K}", f"recall@{K}", "injected", "injected_off_topic"
_TITLES = {_OFF_TOPIC: "off-topic injected"}


def changed_knobs(base: RecallPolicy, policy: RecallPolicy) -> dict[str, tuple[float, float]]:
    """The fitted knobs in which two policies differ, each with both levels."""
    names = (*(knob.name for knob in KNOBS), *GATES)
    levels = {name: (level_of(base, name), level_of(policy, name)) for name in names}
    return {name: held for name, held in levels.items() if held[0] != held[1]}


def _fold_record(fold: Fold, base: RecallPolicy) -> dict[str, Any]:
    told = {"cases": fold.cases, "before": fold.before, "after": fold.after}
    knobs = {name: level for name, (_, level) in changed_knobs(base, fold.policy).items()}
    return {name: None if held != held else held for name, held in told.items()} | {"knobs": knobs}


def tune(
    cases: CaseSet,
    *,
    base: RecallPolicy | None = None,
    embeddings: Embeddings | None = None,
    store: StoreFactory | None = None,
    folds: int = 5,
    seed: int = 0,
    target_injection: float | None = None,
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
        target_injection: Share of all cues for which something is to be recalled. Sets the
            trigger in place of fitting it, and is never refused.
        progress: Called with the number of steps done and of all.

    Returns:
        The policy, the base policy itself when refused, with the reason and the estimates.
    """
    _check(cases, folds, target_injection)
    start = base or RecallPolicy.default()
    dealt = _deal(cases, folds, seed)
    tick = _ticks(progress, len(cases.cases) + int(dealt.max()) + 2)
    gathered = _gather(cases, start, embeddings, store or local_store, tick)
    return _fit(Fitter(gathered, start, target_injection), dealt, tick)


def _check(cases: CaseSet, folds: int, target_injection: float | None) -> None:
    if not isinstance(cases, CaseSet):
        raise InputError(f"tune needs a CaseSet, got {cases!r:.80}. Read one with load_cases.")
    if isinstance(folds, bool) or not isinstance(folds, int) or folds < 2:
        raise InputError(f"folds must be a whole number of at least 2, got {folds!r}. Use 5.")
    if target_injection is not None:
        check_share(target_injection)
    elif not any(case.relevant for case in cases.cases):
        raise InputError(
            f"{cases.name} has no answerable case to fit to. Name relevant keys, or pass "
            "target_injection to set the gates alone."
        )
    if len(cases.cases) < 2:
        raise InputError("tune needs at least 2 cases, got 1: one is kept back to test by.")


def _ticks(progress: Progress | None, total: int) -> Callable[[], None]:
    done = iter(range(1, total + 1))
    return lambda: progress(next(done), total) if progress else None


def _deal(cases: CaseSet, folds: int, seed: int) -> NDArray[np.int_]:
    """The fold of each case; a collection stays whole where several can be answered from."""
    held = [case.collection for case in cases.cases]
    answered = {case.collection for case in cases.cases if case.relevant}
    labels = held if len(answered) > 1 else [str(i) for i in range(len(held))]
    known = {label for label, case in zip(labels, cases.cases, strict=True) if case.relevant}
    # Both sides are shuffled apart, so that every fold has its share of either.
    distinct = list(dict.fromkeys(labels))
    sides = ([each for each in distinct if each in known], [e for e in distinct if e not in known])
    rng = np.random.default_rng(seed)
    order = [str(label) for side in sides for label in rng.permutation(side)]
    folds = min(folds, len(sides[0]) if len(sides[0]) > 1 else len(order))
    fold_of = {label: place % folds for place, label in enumerate(order)}
    return np.array([fold_of[label] for label in labels])


# --- asking, once -------------------------------------------------------------------------------


def _gather(
    cases: CaseSet,
    base: RecallPolicy,
    embeddings: Embeddings | None,
    make: StoreFactory,
    tick: Callable[[], None],
) -> list[Asked]:
    gathered: dict[int, Asked] = {}
    for collection in cases.collections:
        memories: dict[MemoryId, Memory] = {}
        with bench_of(collection, make(embeddings)) as bench:
            for i, case in enumerate(cases.cases):
                if case.collection == collection.name:
                    gathered[i] = ask(bench.store, case, base, memories)
                    tick()
    return [gathered[i] for i in range(len(cases.cases))]


def ask(
    store: RecallStore, case: Case, base: RecallPolicy, memories: dict[MemoryId, Memory]
) -> Asked:
    """A case's candidates, from a recall that no gate but the hard ones narrows.

    Ranking them again gives what the store's `search` gives, up to `spread`: diversity is not
    fitted. As in any recall, pinned memories are candidates even when they lie beyond the head.
    """
    cue = replace(case.cue, at=case.cue.at or case.at)
    recall = store.recall(NAMESPACE, cue, policy=_ungated(base))
    scored = [*recall.chosen, *(drop.scored for drop in recall.dropped)]
    # Every read makes its memories anew; one of each will do.
    candidates = tuple(
        each.candidate._replace(memory=memories.setdefault(each.memory.id, each.memory))
        for each in scored
    )
    cue, now = recall.trace.cue, recall.trace.at
    chosen, _ = select(rank(cue, candidates, base, now, (NAMESPACE,)).ranked, base, _unlike)
    kept = candidates if case.relevant else ()
    return Asked(case, cue, now, kept, best_relevance(recall), bool(chosen))


def _ungated(base: RecallPolicy) -> RecallPolicy:
    """The same candidates, none dropped, in the order that breaks ties under every policy."""
    return base.replace(
        blend="bounded" if base.blend == "bounded" else "linear",
        ordering="relevance",
        weights=Weights(),
        tiers={},
        window_boost=0.0,
        trigger=0.0,
        floor=0.0,
        composite_floor=0.0,
        duplicate_similarity=2.0,
        mmr_lambda=1.0,
    )


def _unlike(ids: Sequence[MemoryId]) -> FloatArray:
    """Near-duplicates never empty a recall, so that none need be known to see if it is empty."""
    return np.zeros((len(ids), len(ids)))


# --- fitting ------------------------------------------------------------------------------------


def _fit(fitter: Fitter, dealt: NDArray[np.int_], tick: Callable[[], None]) -> Tuned:
    base, answerable = fitter.base, fitter.answerable
    before, held_out = fitter.outcome(base), Outcome.blank(len(dealt))
    folds = []
    for number in range(int(dealt.max()) + 1):
        kept_back = dealt == number
        fitted = fitter.fit(~kept_back)
        held_out.take(fitter.outcome(fitted), kept_back)
        judged = kept_back & answerable
        folds.append(
            Fold(
                fitted,
                int(kept_back.sum()),
                *(_mean(one.ndcg[judged]) for one in (before, held_out)),
            )
        )
        tick()
    policy, reason = _verdict(fitter, before, held_out)
    tick()
    rows = (
        Row(base.name, _estimates(before, answerable)),
        Row("fitted, held out", _estimates(held_out, answerable, before)),
    )
    return Tuned(policy, base, reason, *rows, tuple(folds), fitter.trials)


def _verdict(fitter: Fitter, before: Outcome, held_out: Outcome) -> tuple[RecallPolicy, str]:
    """Ranking and gates are accepted or refused each by itself."""
    base, answerable = fitter.base, fitter.answerable
    fitted = fitter.fit(np.ones(len(answerable), dtype=np.bool_))
    changes: dict[str, Any] = {}
    ranking = gates = _no_gain(base)
    if _gains(held_out.ndcg[answerable], before.ndcg[answerable]):
        ranking = "fitted"
        changes |= knobs_of(fitted, RANKING)
    if fitter.target is not None:
        gates = f"set to inject {fitter.outcome(fitted).injected.mean():.0%} of the cues"
        changes |= knobs_of(fitted, GATES)
    elif answerable.all():
        gates = "left alone, as no case is off-topic"
    elif _gains(*(signed(one.injected, answerable) for one in (held_out, before))):
        gates = "fitted"
        changes |= knobs_of(fitted, GATES)
    if base.replace(**changes) == base:
        return base, _no_gain(base)
    return base.replace(name=TUNED, **changes), f"ranking: {ranking}; gates: {gates}"


def _no_gain(base: RecallPolicy) -> str:
    than = "the default" if base.name == RecallPolicy.default().name else base.name
    return f"no significant gain over {than}"


def _gains(after: FloatArray, before: FloatArray) -> bool:
    if not len(after) or float(np.mean(after - before)) < MIN_GAIN:
        return False
    return randomisation_p(after, before) < 1.0 - CONFIDENCE


def _estimates(
    one: Outcome, answerable: BoolArray, first: Outcome | None = None
) -> Mapping[str, Estimate]:
    def estimate(place: int, chosen: BoolArray) -> Estimate:
        return mean_estimate(one[place][chosen], None if first is None else first[place][chosen])

    return {
        _NDCG: estimate(0, answerable),
        _RECALL: estimate(1, answerable),
        _INJECTED: estimate(2, answerable),
        _OFF_TOPIC: estimate(2, ~answerable),
    }


def _mean(values: FloatArray) -> float:
    return float(values.mean()) if len(values) else math.nan
