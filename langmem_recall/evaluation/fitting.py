"""Fitting a few knobs to cases whose candidates are at hand."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np

from langmem_recall.evaluation.cases import Case
from langmem_recall.evaluation.evaluate import NAMESPACE
from langmem_recall.evaluation.gating import (
    HIGHEST_TRIGGER,
    LOWEST_TRIGGER,
    set_injection_rate,
    with_trigger,
)
from langmem_recall.evaluation.metrics import ndcg_at, recall_at
from langmem_recall.policy import RecallPolicy
from langmem_recall.ranking.arrays import BoolArray, FloatArray
from langmem_recall.ranking.pipeline import rank
from langmem_recall.types import Candidate, Cue

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
