"""What `doctor` finds: readings, warnings that each say what to change, a production checklist."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from langmem_recall.evaluation.evaluate import best_relevance
from langmem_recall.evaluation.metrics import Estimate, mean_estimate, near_duplicate_share
from langmem_recall.observe.monitor import (
    BLIND,
    ENOUGH_RECALLS,
    HALF_LIFE_DAYS,
    HEALTHY_INJECTION,
    LEAST_INJECTION,
    MOST_INJECTION,
    SPARSE,
    STEP,
    VERY_BLIND,
)
from langmem_recall.policy import HOURS_PER_DAY, RecallPolicy, RelevanceModel
from langmem_recall.ranking.calibration import DEFAULT_NULL, NullDistribution
from langmem_recall.types import Recall

EXAMPLE_MEMORIES = 100
"""What the gates are explained for where there is no store."""
GATES = ("trigger", "floor", "composite_floor")


class Calibration(NamedTuple):
    """What is known of an embedder."""

    identity: str | None = None
    """None: the store shows no embedder."""
    nulls: Mapping[str, NullDistribution | None] = {}
    """By language; None where the vectors were of no use."""
    problem: str | None = None
    """Why the embedder, or the stored vectors, cannot be used."""


class Survey(NamedTuple):
    """What a store holds."""

    memories: int
    searched: int
    """Memories that one recall looks through: of the namespace asked for, else of the largest."""
    saliences: frozenset[float] = frozenset()
    has_words: bool = True
    """Whether the words of so many memories are kept, so that the lexical arm can work."""
    without_vectors: int | None = None
    """None where the store does not tell."""
    is_set_up: bool | None = None
    """Whether the tables of `RecallStore.setup` are there; None where none are needed."""


class Answer(NamedTuple):
    """What the recall for one recorded cue came to."""

    reach: float
    """The highest trigger that would let something through."""
    is_injected: bool
    has_memories: bool = True
    """Whether anything was stored that could have been recalled."""
    duplicates: float = 0.0
    """Share of what was recalled that repeats another memory."""


def answer_of(recall: Recall) -> Answer:
    """What of a recall the findings rest on."""
    return Answer(
        best_relevance(recall),
        bool(recall.chosen),
        recall.trace.searched > 0,
        near_duplicate_share([memory.text for memory in recall.memories]),
    )


class Facts(NamedTuple):
    """All that is judged."""

    policy: RecallPolicy
    calibration: Calibration
    survey: Survey | None = None
    """None without a store."""
    answers: Sequence[Answer] = ()
    is_chosen: bool = False
    """Whether the policy was chosen, rather than taken by default."""
    has_budget: bool | None = None
    """Whether the recorded recalls had a budget; None when that is not known."""

    @property
    def injection(self) -> Estimate:
        """Share of the cues for which something is recalled."""
        return mean_estimate(np.array([float(one.is_injected) for one in self.answers]))

    @property
    def blindness(self) -> Estimate:
        """Share of empty recalls among those that had memories to choose from."""
        met = [one for one in self.answers if one.has_memories]
        return mean_estimate(np.array([float(not one.is_injected) for one in met]))

    @property
    def searched(self) -> int:
        """Memories that one recall looks through."""
        return self.survey.searched if self.survey else EXAMPLE_MEMORIES

    @property
    def gates(self) -> dict[str, float]:
        """The gates that are on, each with its level."""
        levels = {name: float(getattr(self.policy, name)) for name in GATES}
        return {name: level for name, level in levels.items() if level}

    @property
    def lexical_fault(self) -> str | None:
        """Why words do not count, and what to do about it; None where they do."""
        if self.policy.blend == "similarity":
            return "the policy's blend is similarity, which reads no words; choose another policy"
        if not self.policy.relevance.coverage:
            return "RelevanceModel.coverage is 0; its default is 5"
        if self.survey and not self.survey.has_words:
            return (
                f"{self.survey.searched:,} memories are more than RecallStore keeps the words of; "
                "raise Caching(index_limit=...), or split the namespace"
            )
        return None

    def weighs(self, signal: str) -> bool:
        """Whether the policy's formula reads a signal, recency by its half-life."""
        policy = self.policy
        if policy.blend in ("bounded", "linear", "minmax"):
            held = (policy.weights, *policy.tiers.values())
            return any(getattr(weights, signal) for weights in held)
        if policy.blend == "interpolated":
            return signal == "importance"
        return policy.blend == "product"


class Panel(NamedTuple):
    """An embedder's null distribution in one language, and what it makes of the gates."""

    language: str
    null: NullDistribution
    neutral: float
    """The cosine that says neither yes nor no."""
    trigger: float | None
    """The cosine that alone reaches the trigger; above 1, words must agree; None: it is off."""
    floor: float | None
    """The same for the floor."""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types; None where no number can be given."""
        mean, sd, is_measured = self.null
        told = self._asdict() | {"mean": mean, "sd": sd, "cap": self.null.cap}
        del told["null"]
        known = {name: None if _is_infinite(held) else held for name, held in told.items()}
        return known | {"measured": is_measured}


def panels_of(facts: Facts) -> Iterator[Panel]:
    """The null distribution by language; the assumed one where none was measured."""
    policy, model = facts.policy, facts.policy.relevance
    for language, measured in (facts.calibration.nulls or {"any": None}).items():
        null = measured or DEFAULT_NULL
        reached = [
            cosine_alone(level, facts.searched, null, model) if level else None
            for level in (policy.trigger, policy.floor)
        ]
        yield Panel(language, null, neutral_cosine(null, model), *reached)


def neutral_cosine(null: NullDistribution, model: RelevanceModel) -> float:
    """The cosine that says neither yes nor no."""
    return null.mean + model.neutral * (1.0 - null.mean)


def cosine_alone(
    relevance: float, memories: int, null: NullDistribution, model: RelevanceModel
) -> float:
    """The cosine at which a memory without a thread or a word in common has this relevance."""
    if relevance >= 1.0 or not model.dense:
        return math.inf
    log_odds = math.log(relevance / (1.0 - relevance))
    chance = model.bias + model.crowding * math.log(max(memories, 1))
    # With nothing beside it in a thread, a memory is its own thread's best evidence.
    own = (model.softness * log_odds + chance) / (1.0 + model.thread)
    return null.mean + null.sd * (own / model.dense + model.neutral * null.cap)


def _is_infinite(held: Any) -> bool:
    return isinstance(held, float) and not math.isfinite(held)


REPETITIVE = 0.10
"""Share of near-duplicates in recalls from which diversity is worth a comparison."""

Level = Literal["warn", "alarm"]
State = Literal["pass", "warn", "unknown"]


class Reading(NamedTuple):
    """One line of the report."""

    name: str
    value: Any
    """Plain JSON types."""
    text: str


class Finding(NamedTuple):
    """Something to change."""

    level: Level
    about: str
    text: str
    """What is wrong, and what to do."""


class Check(NamedTuple):
    """One item of the production checklist."""

    name: str
    state: State
    text: str


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All that doctor found."""

    readings: tuple[Reading, ...]
    panels: tuple[Panel, ...]
    warnings: tuple[Finding, ...]
    checks: tuple[Check, ...]

    @property
    def is_alarming(self) -> bool:
        """Whether something must be changed before this goes on."""
        return any(finding.level == "alarm" for finding in self.warnings)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain JSON types."""
        return {
            "alarming": self.is_alarming,
            "readings": {reading.name: reading.value for reading in self.readings},
            "panels": [panel.to_dict() for panel in self.panels],
            "warnings": [finding._asdict() for finding in self.warnings],
            "checks": [check._asdict() for check in self.checks],
        }


def diagnose(facts: Facts) -> Diagnosis:
    """Judge how recall will do, from what is known of embedder, policy, store and cues."""
    return Diagnosis(
        tuple(_readings(facts)),
        tuple(panels_of(facts)),
        tuple(finding for judge in _JUDGES for finding in judge(facts)),
        tuple(check(facts) for check in _CHECKS),
    )


# --- readings -------------------------------------------------------------------------------------


def _readings(facts: Facts) -> Iterator[Reading]:
    policy, survey, fault = facts.policy, facts.survey, facts.lexical_fault
    identity = facts.calibration.identity
    yield Reading("embedder", identity, identity or "none that the store shows")
    yield Reading("policy", policy.name, f"{policy.name} ({policy.fingerprint})")
    for name in GATES:
        level = getattr(policy, name)
        yield Reading(name, level, f"{level:g}" if level else "off")
    yield Reading("half_life_days", _days(facts), f"{_days(facts):.3g}")
    yield Reading("lexical_arm", fault is None, "active" if fault is None else f"off: {fault}")
    if survey:
        yield Reading("memories", survey.memories, f"{survey.memories:,}")
        yield _vectors_reading(survey)
        if survey.is_set_up is not None:
            told = "of the newest version" if survey.is_set_up else "missing or old"
            yield Reading("usage_tables", survey.is_set_up, told)
    example = "" if survey else ", as an example"
    yield Reading("searched", facts.searched, f"{facts.searched:,} in one recall{example}")
    if facts.answers:
        yield Reading("cues", len(facts.answers), f"{len(facts.answers):,}")
        yield Reading("injection_rate", facts.injection.to_dict(), _told(facts.injection))
        yield Reading("blindness_rate", facts.blindness.to_dict(), _told(facts.blindness))


def _vectors_reading(survey: Survey) -> Reading:
    lacking = survey.without_vectors
    if lacking is None:
        return Reading("without_vectors", None, "not told by this store")
    share = lacking / survey.memories if survey.memories else 0.0
    return Reading("without_vectors", lacking, f"{lacking:,} ({share:.0%})")


def _told(rate: Estimate) -> str:
    if not rate.n:
        return "nothing was stored"
    few = (
        ""
        if rate.n >= ENOUGH_RECALLS
        else f", from only {rate.n} recalls ({ENOUGH_RECALLS} are needed)"
    )
    return f"{rate.mean:.0%} [{rate.low:.0%}, {rate.high:.0%}]{few}"


def _days(facts: Facts) -> float:
    return facts.policy.half_life_hours / HOURS_PER_DAY


# --- warnings -------------------------------------------------------------------------------------


def _embedder_warnings(facts: Facts) -> Iterator[Finding]:
    calibration = facts.calibration
    unusable = [language for language, null in calibration.nulls.items() if null is None]
    if calibration.problem:
        yield Finding("alarm", "embedder", calibration.problem)
    elif calibration.identity is None:
        yield Finding(
            "warn",
            "embedder",
            "The store shows no embedder: recall rests on words, and cosines, where there are "
            f"any, are read with an assumed null of {DEFAULT_NULL.mean:g} +- {DEFAULT_NULL.sd:g}. "
            "Name the embedder with --embeddings.",
        )
    elif unusable:
        yield Finding(
            "warn",
            "embedder",
            f"{calibration.identity} finds all texts alike in {', '.join(unusable)}: an assumed "
            "null is in force there. Where cues come in such a language, choose an embedder that "
            "knows it.",
        )


def _store_warnings(facts: Facts) -> Iterator[Finding]:
    survey = facts.survey
    if survey is None:
        return
    if not survey.memories:
        yield Finding(
            "warn",
            "store",
            "No memories are stored here, so every recall is empty. Check the namespace, or "
            "remember something first.",
        )
    if survey.is_set_up is False:
        yield Finding(
            "warn",
            "usage tables",
            "The tables for usage are missing or of an older version: counts are exact in one "
            "process only, and rare words of large namespaces are not found. Call "
            "RecallStore.setup() once.",
        )
    if survey.without_vectors and facts.calibration.identity:
        yield Finding(
            "warn",
            "vectors",
            f"{survey.without_vectors:,} of {survey.memories:,} memories have no vector and are "
            "found by their words alone. Run langmem-recall reindex, unless they were stored with "
            "index=False.",
        )
    if survey.memories > 1 and len(survey.saliences) == 1 and facts.weighs("importance"):
        yield Finding(
            "warn",
            "salience",
            f"All {survey.memories:,} memories have salience {min(survey.saliences):g}, so "
            "importance tells none apart. Pass salience= to remember, or set weights.importance "
            "to 0.",
        )


def _policy_warnings(facts: Facts) -> Iterator[Finding]:
    if fault := facts.lexical_fault:
        yield Finding("warn", "lexical arm", f"The lexical arm is off: {fault}.")
    low, high = HALF_LIFE_DAYS
    if not low <= _days(facts) <= high and facts.weighs("recency"):
        yield Finding(
            "warn",
            "half-life",
            f"A half-life of {_days(facts):.3g} days lies outside {low:g} to {high:g}: recency "
            "forgets too soon, or tells too little apart. Set half_life_hours between "
            f"{low * HOURS_PER_DAY:g} and {high * HOURS_PER_DAY:g}, or let langmem-recall eval "
            "decide.",
        )
    if not facts.gates:
        yield Finding("warn", "gates", f"No gate is on: every cue injects. {_GATES_OFF}")


_GATES_OFF = "Set trigger and floor; the default has 0.5 and 0.3."


def _injection_warnings(facts: Facts) -> Iterator[Finding]:
    rate = facts.injection
    if not facts.blindness.n:
        return
    if rate.mean > MOST_INJECTION:
        told = f"Too much is injected: {_told(rate)}, above {MOST_INJECTION:.0%}."
        yield Finding("warn", "injection rate", f"{told} {_moved(facts, STEP)}")
    elif rate.mean < LEAST_INJECTION:
        told = f"Too little is injected: {_told(rate)}, under {LEAST_INJECTION:.0%}."
        yield Finding("warn", "injection rate", f"{told} {_moved(facts, -STEP)}")


def _moved(facts: Facts, step: float) -> str:
    """What to do about a rate: the gates that are on, a step further."""
    if not facts.gates:
        return _GATES_OFF
    verb = "Raise" if step > 0 else "Lower"
    moves = ", ".join(
        f"{name} {level:g} -> {min(max(level + step, 0.0), max(level, 1.0)):g}"
        for name, level in facts.gates.items()
    )
    return f"{verb} the floor by {STEP:g} ({moves}), or set the gates with --target-rate 0.45."


def _blindness_warnings(facts: Facts) -> Iterator[Finding]:
    rate = facts.blindness
    if not rate.mean > BLIND:
        return
    empty = [one.reach for one in facts.answers if one.has_memories and not one.is_injected]
    told = (
        f"Memories are stored, but recalls are empty: {_told(rate)}; the best relevance in those "
        f"is {np.median(empty):.2f} in the median."
    )
    # What is not injected is blind: with a healthy injection rate, 45 to 60 %. That is no alarm.
    is_healthy = _is_healthy(facts)
    aside = " The injection rate is healthy: if those cues were off topic, all is well."
    level: Level = "alarm" if rate.mean > VERY_BLIND and not is_healthy else "warn"
    causes = f"Look at the causes: {'; '.join(_causes(facts))}."
    yield Finding(level, "blindness", f"{told}{aside * is_healthy} {causes}")


def _is_healthy(facts: Facts) -> bool:
    low, high = HEALTHY_INJECTION
    return low <= facts.injection.mean <= high


def _causes(facts: Facts) -> Iterator[str]:
    """The four causes of blindness, each with what is known of it."""
    calibration, survey = facts.calibration, facts.survey
    levels = ", ".join(f"{name} {level:g}" for name, level in facts.gates.items())
    yield f"floor too high ({levels or 'no gate is on'})"
    yield f"lexical arm off ({facts.lexical_fault or 'no, it is active'})"
    found = f"no, it is {calibration.identity}" if calibration.identity else "yes"
    yield f"embedder missing ({'yes, it fails' if calibration.problem else found})"
    held = survey.searched if survey else 0
    yield f"store sparse ({'yes' if held < SPARSE else 'no'}, {held:,} memories)"


_JUDGES = (
    _embedder_warnings,
    _store_warnings,
    _policy_warnings,
    _injection_warnings,
    _blindness_warnings,
)


# --- the production checklist ---------------------------------------------------------------------

_NO_CUES = "not measured: pass recorded cues with --cues"


def _check_rate(facts: Facts) -> Check:
    name, rate = f"floor and injection rate over {ENOUGH_RECALLS} queries", facts.injection
    if not rate.n:
        return Check(name, "unknown", _NO_CUES)
    good = rate.n >= ENOUGH_RECALLS and LEAST_INJECTION <= rate.mean <= MOST_INJECTION
    return Check(name, "pass" if good else "warn", _told(rate))


def _check_words(facts: Facts) -> Check:
    fault = facts.lexical_fault
    if fault:
        return Check("lexical arm active", "warn", fault)
    if facts.survey is None:
        return Check("lexical arm active", "unknown", "not known without a store")
    return Check("lexical arm active", "pass", "the words of every memory are searched")


def _check_recency(facts: Facts) -> Check:
    recency = f"weight {facts.policy.weights.recency:g}, half-life {_days(facts):.3g} days"
    if facts.is_chosen:
        return Check("recency chosen", "pass", recency)
    told = f"the default's {recency}: name the policy you decided on with --policy"
    return Check("recency chosen", "unknown", told)


def _check_diversity(facts: Facts) -> Check:
    recalled = [one.duplicates for one in facts.answers if one.is_injected]
    if not recalled:
        return Check("MMR evaluated", "unknown", _NO_CUES)
    share = float(np.mean(recalled))
    told = f"{share:.0%} of what is recalled repeats another memory"
    if share <= REPETITIVE:
        return Check("MMR evaluated", "pass", told)
    cure = "compare mmr_lambda = 0.7 or a lower duplicate_similarity with langmem-recall eval"
    return Check("MMR evaluated", "warn", f"{told}: {cure}")


def _check_blindness(facts: Facts) -> Check:
    rate = facts.blindness
    if not rate.n:
        return Check("blindness baseline", "unknown", _NO_CUES)
    good = rate.mean <= BLIND or _is_healthy(facts)
    return Check("blindness baseline", "pass" if good else "warn", _told(rate))


def _check_budget(facts: Facts) -> Check:
    if facts.has_budget is None:
        told = "not known: RecallMiddleware enforces one; pass its traces with --cues"
        return Check("budget enforced", "unknown", told)
    if facts.has_budget:
        return Check("budget enforced", "pass", "every recorded recall had one")
    told = "recorded recalls had none: inject through RecallMiddleware or recall_node"
    return Check("budget enforced", "warn", told)


_CHECKS = (
    _check_rate,
    _check_words,
    _check_recency,
    _check_diversity,
    _check_blindness,
    _check_budget,
)
