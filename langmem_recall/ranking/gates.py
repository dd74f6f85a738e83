"""Gates: yes or no with a reason; never a change of score."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import NamedTuple

from langmem_recall.policy import RecallPolicy
from langmem_recall.types import Candidate, Drop, Memory, MemoryId, Namespace, Scored, View

_WORDS = re.compile(r"\w+")
_NEVER = datetime.max.replace(tzinfo=UTC)


class GateContext(NamedTuple):
    """What hard gates judge by."""

    now: datetime
    boundaries: tuple[Namespace, ...]
    """Namespaces the reader may see, each with all below it."""
    task: str | None = None
    """Only memories with this tag, where a task filter is on."""
    include: frozenset[str] = frozenset()
    """Statuses besides "active" that the reader asked for."""


HardGate = Callable[[Candidate, GateContext], str | None]


def outside_tenant(candidate: Candidate, moment: GateContext) -> str | None:
    """A memory that is not below a namespace asked for, element by element."""
    held = candidate.memory.namespace
    for boundary in moment.boundaries:
        if held[: len(boundary)] == boundary:
            return None
    return "outside the namespace asked for"


def out_of_force(candidate: Candidate, moment: GateContext) -> str | None:
    """Quarantined, superseded, or derived from something superseded, and not asked for."""
    status = candidate.memory.status
    if status != "active":
        return None if status in moment.include else status
    return None if "superseded" in moment.include else candidate.standing


def outside_validity(candidate: Candidate, moment: GateContext) -> str | None:
    """Not valid yet."""
    start = candidate.memory.valid_from
    return f"valid from {start:%Y-%m-%d}" if start and moment.now < start else None


def expired(candidate: Candidate, moment: GateContext) -> str | None:
    """No longer valid."""
    end = candidate.memory.valid_until
    return f"expired on {end:%Y-%m-%d}" if end and moment.now >= end else None


def off_task(candidate: Candidate, moment: GateContext) -> str | None:
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


def hard_drop(candidate: Candidate, moment: GateContext) -> tuple[str, str] | None:
    """The first hard gate that rejects a candidate, with its reason."""
    gates = HARD_GATES[:1] if _is_plain(candidate.memory, candidate, moment) else HARD_GATES
    for gate, judge in gates:
        reason = judge(candidate, moment)
        if reason is not None:
            return gate, reason
    return None


def _is_plain(memory: Memory, candidate: Candidate, moment: GateContext) -> bool:
    """Whether only the tenant boundary is to be judged, as for most memories."""
    return (
        memory.valid_from is None
        and memory.valid_until is None
        and memory.status == "active"
        and candidate.standing is None
        and moment.task is None
    )


def as_believed_at(candidates: Sequence[Candidate], as_of: datetime) -> list[Candidate]:
    """The candidates as they stood at a time: later ones out of force, what they superseded in it.

    When a memory was superseded it says itself, or the candidate that superseded it does; where
    neither does, it counts as superseded all along.
    """
    since: dict[MemoryId, datetime] = {}
    for candidate in candidates:
        memory = candidate.memory
        for superseded in ((memory.namespace, key) for key in memory.supersedes):
            if memory.written_at is not None:
                since[superseded] = min(memory.written_at, since.get(superseded, _NEVER))
    for candidate in candidates:
        if candidate.memory.superseded_at is not None:
            since[candidate.memory.id] = candidate.memory.superseded_at
    return [_as_it_stood(candidate, as_of, since) for candidate in candidates]


def _as_it_stood(
    candidate: Candidate, as_of: datetime, since: Mapping[MemoryId, datetime]
) -> Candidate:
    memory = candidate.memory
    if memory.written_at is not None and memory.written_at > as_of:
        return candidate._replace(standing="written later")
    if memory.status == "quarantined" or (memory.status, candidate.standing) == ("active", None):
        return candidate
    parents = ((memory.namespace, key) for key in memory.derived_from)
    ends = [since[memory_id] for memory_id in (memory.id, *parents) if memory_id in since]
    if not ends or min(ends) <= as_of:
        return candidate
    return candidate._replace(memory=replace(memory, status="active"), standing=None)


def recall_gates(
    ranked: Sequence[Scored], policy: RecallPolicy, view: View | None = None
) -> tuple[list[Scored], list[Drop]]:
    """Trigger, floor, already visible, composite floor; pinned memories need not be relevant."""
    best = max((scored.signals.relevance for scored in ranked), default=0.0)
    seen = _visibility(view) if view else None
    kept, dropped = [], []
    for scored in ranked:
        rejection = _soft_rejection(scored, best, policy)
        if rejection is None and seen and (reason := seen(scored.memory)):
            rejection = "visible", reason
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


def _visibility(view: View) -> Callable[[Memory], str | None]:
    """Tells why a memory need not be shown again, or None."""
    conversation = " \n ".join(map(_plain_words, view.texts))

    def seen(memory: Memory) -> str | None:
        if memory.id in view.ids:
            return "in a block that is still in view"
        here = memory.thread_id is not None and memory.thread_id == view.thread_id
        if here and str(memory.turn) in view.turns:
            return "noted in this conversation"
        words = _plain_words(memory.text)
        return "said in this conversation" if words.strip() and words in conversation else None

    return seen


def _plain_words(text: str) -> str:
    """Words without case, punctuation and spacing, each between spaces."""
    return f" {' '.join(_WORDS.findall(text.casefold()))} "
