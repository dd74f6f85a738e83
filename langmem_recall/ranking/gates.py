"""Gates: yes or no with a reason; never a change of score."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import NamedTuple

from langmem_recall.policy import RecallPolicy
from langmem_recall.types import Candidate, Drop, Memory, Namespace, Scored


class Moment(NamedTuple):
    """What hard gates judge by."""

    now: datetime
    boundaries: tuple[Namespace, ...]
    """Namespaces the reader may see, each with all below it."""
    task: str | None = None
    """Only memories with this tag, where a task filter is on."""


HardGate = Callable[[Candidate, Moment], str | None]


def outside_tenant(candidate: Candidate, moment: Moment) -> str | None:
    """A memory that is not below a namespace asked for, element by element."""
    held = candidate.memory.namespace
    for boundary in moment.boundaries:
        if held[: len(boundary)] == boundary:
            return None
    return "outside the namespace asked for"


def out_of_force(candidate: Candidate, _: Moment) -> str | None:
    """Quarantined, superseded, or derived from something superseded."""
    status = candidate.memory.status
    return candidate.standing if status == "active" else status


def outside_validity(candidate: Candidate, moment: Moment) -> str | None:
    """Not valid yet."""
    start = candidate.memory.valid_from
    return f"valid from {start:%Y-%m-%d}" if start and moment.now < start else None


def expired(candidate: Candidate, moment: Moment) -> str | None:
    """No longer valid."""
    end = candidate.memory.valid_until
    return f"expired on {end:%Y-%m-%d}" if end and moment.now >= end else None


def off_task(candidate: Candidate, moment: Moment) -> str | None:
    """Not tagged with the task at hand."""
    if moment.task is None or moment.task in candidate.memory.tags:
        return None
    return f"not tagged {moment.task!r}"


HARD_GATES: tuple[tuple[str, HardGate], ...] = (
    ("tenant", outside_tenant),
    ("status", out_of_force),
    ("validity", outside_validity),
    ("expired", expired),
    ("task", off_task),
)
"""Applied to every read, in this order."""


def hard_drop(candidate: Candidate, moment: Moment) -> tuple[str, str] | None:
    """The first hard gate that rejects a candidate, with its reason."""
    gates = HARD_GATES[:1] if _is_plain(candidate.memory, candidate, moment) else HARD_GATES
    for gate, judge in gates:
        reason = judge(candidate, moment)
        if reason is not None:
            return gate, reason
    return None


def _is_plain(memory: Memory, candidate: Candidate, moment: Moment) -> bool:
    """Whether only the tenant boundary is to be judged, as for most memories."""
    return (
        memory.valid_from is None
        and memory.valid_until is None
        and memory.status == "active"
        and candidate.standing is None
        and moment.task is None
    )


def recall_gates(ranked: Sequence[Scored], policy: RecallPolicy) -> tuple[list[Scored], list[Drop]]:
    """Trigger, then floor, then composite floor; pinned memories pass them all."""
    best = max((scored.signals.relevance for scored in ranked), default=0.0)
    kept, dropped = [], []
    for scored in ranked:
        rejection = _soft_rejection(scored, best, policy)
        if rejection is None:
            kept.append(scored)
        else:
            dropped.append(Drop(scored, *rejection))
    return kept, dropped


def _soft_rejection(scored: Scored, best: float, policy: RecallPolicy) -> tuple[str, str] | None:
    relevance = scored.signals.relevance
    if scored.memory.pinned:
        return None
    if best < policy.trigger:
        return "trigger", f"best relevance {best:.2f} is below the trigger {policy.trigger:g}"
    if relevance < policy.floor:
        return "floor", f"relevance {relevance:.2f} is below the floor {policy.floor:g}"
    if scored.score < policy.composite_floor:
        return "composite", f"score {scored.score:.2f} is below {policy.composite_floor:g}"
    return None
