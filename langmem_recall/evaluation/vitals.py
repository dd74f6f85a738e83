"""What `doctor` judges by: the embedder's null, what a store holds, what recorded cues recall."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from langmem_recall.evaluation.gating import best_relevance
from langmem_recall.evaluation.metrics import Estimate, mean_estimate, near_duplicate_share
from langmem_recall.policy import RecallPolicy, RelevanceModel
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
    """Whether somebody chose the policy, rather than nobody."""
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
                "raise index_limit, or split the namespace"
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
