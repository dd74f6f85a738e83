"""Gates: yes or no with a reason; never a change of score."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import repeat
from operator import attrgetter
from typing import NamedTuple

from langmem_recall.policy import RecallPolicy
from langmem_recall.ranking.calibration import BREADTH
from langmem_recall.ranking.pool import Pool
from langmem_recall.text.temporal import names_time_within
from langmem_recall.types import (
    Candidate,
    Cue,
    Drop,
    Memory,
    MemoryId,
    Namespace,
    Scored,
    Temporal,
    View,
    record_all,
)

SURE = 0.9
"""Relevance from which a memory that stands alone is recalled however many others are."""
ANSWERING_SHARE = 0.5
"""A memory of the time asked for answers when it has this share of the best relevance of any time:
with no trigger, as for a tool, a chance match of then must not hide what is plainly meant."""

_WORDS = re.compile(r"\w+")
_NAMESPACE = attrgetter("namespace")


class GateContext(NamedTuple):
    """What hard gates judge by."""

    now: datetime
    boundaries: tuple[Namespace, ...]
    """Namespaces the reader may see, each with all below it."""
    task: str | None = None
    """Only memories with this tag, where a task filter is on."""
    include: frozenset[str] = frozenset()
    """Statuses besides "active" that the reader asked for."""
    min_confidence: float = 0.0

    @classmethod
    def of(
        cls,
        cue: Cue,
        policy: RecallPolicy,
        now: datetime,
        boundaries: tuple[Namespace, ...],
        include: frozenset[str],
    ) -> GateContext:
        """What the reads for a cue are judged by."""
        task = cue.task if policy.task_filter else None
        return cls(now, boundaries, task, include, policy.min_confidence)

    @property
    def is_open(self) -> bool:
        """Whether nothing is asked of a memory but that it is in force, valid and within bounds."""
        return self.task is None and not self.min_confidence


def hard_drops(pool: Pool, context: GateContext) -> dict[int, tuple[str, str]]:
    """Places of the candidates that a hard gate rejects, with the gate and its reason."""
    memories, standings = pool.memories, pool.standings
    places: Iterable[int] = range(len(memories))
    namespaces = set(map(_NAMESPACE, memories))
    if context.is_open and not any(outside(each, context.boundaries) for each in namespaces):
        # Most memories are such that no gate looks at anything else.
        places = [
            i
            for i, one in enumerate(memories)
            if not one.is_plain or (standings and standings[i][0])
        ]
    records = pool.candidates() if places else ()
    found = ((place, hard_drop(records[place], context)) for place in places)
    return {place: rejection for place, rejection in found if rejection is not None}


def outside(namespace: Namespace, boundaries: tuple[Namespace, ...]) -> bool:
    """Whether a namespace lies in none of those that a reader may see."""
    # Element by element: a namespace that only begins with the same letters is another one.
    return all(namespace[: len(boundary)] != boundary for boundary in boundaries)


def hard_drop(candidate: Candidate, context: GateContext) -> tuple[str, str] | None:
    """The first hard gate that rejects a candidate, with its reason."""
    memory, standing = candidate.memory, candidate.standing
    status = memory.status
    if outside(memory.namespace, context.boundaries):
        return "tenant", "outside the namespace asked for"
    if not memory.in_force and status not in context.include:
        return "status", status
    # Superseded, or derived from something superseded.
    if memory.in_force and standing is not None and "superseded" not in context.include:
        return "status", standing
    if memory.valid_from is not None and context.now < memory.valid_from:
        return "validity", f"valid from {memory.valid_from:%Y-%m-%d}"
    if memory.valid_until is not None and context.now >= memory.valid_until:
        return "expired", f"expired on {memory.valid_until:%Y-%m-%d}"
    if context.min_confidence and not memory.pinned:
        confidence = memory.confidence_at(context.now)
        if confidence < context.min_confidence:
            return "confidence", f"confidence {confidence:.2f} is below {context.min_confidence:g}"
    if context.task is not None and context.task not in memory.tags:
        return "task", f"not tagged {context.task!r}"
    return None


def time_drops(
    candidates: Sequence[Candidate], window: Temporal, trigger: float
) -> dict[MemoryId, str]:
    """What a cue that asks for a time leaves out, with reasons, where something of then answers it.

    A memory is of the time when it was written and of those that it names. Where none of then is
    relevant enough nothing is left out: what happened then may have been written at another time.
    """
    outside, best, best_of_then = dict[MemoryId, str](), 0.0, 0.0
    for memory, evidence in ((each.memory, each.evidence) for each in candidates):
        written, best = memory.written_at, max(best, evidence.relevance)
        if written is None:
            continue
        if window.includes(written) or names_time_within(memory.text, written, window):
            best_of_then = max(best_of_then, evidence.relevance)
        elif not memory.pinned:
            outside[memory.id] = f"written on {written:%Y-%m-%d}, outside the time asked for"
    is_answered = best_of_then >= max(trigger, ANSWERING_SHARE * best)
    return outside if is_answered or window.alone else {}


def as_believed_at(candidates: Sequence[Candidate], as_of: datetime) -> list[Candidate]:
    """The candidates as they stood at a time: later ones inactive, what they superseded active.

    When a memory was superseded it says itself, or the candidate that superseded it does; where
    neither does, it counts as superseded all along.
    """
    since: dict[MemoryId, datetime] = {}
    for candidate in candidates:
        memory, written = candidate.memory, candidate.memory.written_at
        for superseded in ((memory.namespace, key) for key in memory.supersedes):
            if written is not None:
                since[superseded] = min(written, since.get(superseded, written))
    for candidate in candidates:
        if candidate.memory.superseded_at is not None:
            since[candidate.memory.id] = candidate.memory.superseded_at

    def as_it_stood(candidate: Candidate) -> Candidate:
        memory = candidate.memory
        if memory.written_at is not None and memory.written_at > as_of:
            return candidate._replace(standing="written later")
        is_active = memory.in_force and candidate.standing is None
        if is_active or memory.status == "quarantined":
            return candidate
        parents = ((memory.namespace, key) for key in memory.derived_from)
        ends = [since[memory_id] for memory_id in (memory.id, *parents) if memory_id in since]
        if not ends or min(ends) <= as_of:
            return candidate
        return candidate._replace(memory=replace(memory, status="active"), standing=None)

    return [as_it_stood(candidate) for candidate in candidates]


def reach(policy: RecallPolicy, breadth: float | None) -> tuple[int, float]:
    """How far a recall reaches among memories that stand alone and are not sure.

    How many of them are recalled, and how many times better the odds of the best may be.
    """
    wide = policy.breadth or breadth or BREADTH
    return round(wide), max(0.8 * wide - 0.6, 1.0)


def recall_gates(
    ranked: Sequence[Scored],
    policy: RecallPolicy,
    view: View | None = None,
    breadth: float | None = None,
) -> tuple[list[Scored], list[Drop]]:
    """Trigger, floor, composite floor, already visible; pinned memories need not be relevant.

    Memories that stand alone are judged by the best for the same part of the cue: notes on its
    subject that do not answer it lie just beyond `margin`.
    """
    _, margin = reach(policy, breadth)
    found = [(candidate.evidence.alone, signals.relevance) for candidate, signals, _ in ranked]
    # The last of each part is its best.
    best = dict(sorted(found))
    late = {
        part: f"best relevance {value:.2f} is below the trigger {policy.trigger:g}"
        for part, value in best.items()
        if value < policy.trigger
    }
    conversation = " \n ".join(map(_plain_words, view.texts)) if view else ""
    below = f"is below the floor {policy.floor:g}"
    behind = {part: f"is far behind the best, {value:.2f}" for part, value in best.items()}
    passed, dropped, gates, reasons = list[Scored](), list[Scored](), list[str](), list[str]()
    for scored, (part, relevance) in zip(ranked, found, strict=True):
        memory, rejection = scored[0].memory, None
        if memory.pinned:
            pass
        elif part in late:
            rejection = "trigger", late[part]
        elif relevance < policy.floor:
            rejection = "floor", f"relevance {relevance:.2f} {below}"
        else:
            top = best[part]
            # Odds, not shares: 0.88 is as far from 0.73 as 0.6 from 0.35.
            is_far = relevance < SURE and relevance * (1.0 - top) * margin < top * (1.0 - relevance)
            if is_far and part and policy.trigger:
                rejection = "floor", f"relevance {relevance:.2f} {behind[part]}"
            elif scored.score < policy.composite_floor:
                below_it = f"score {scored.score:.2f} is below {policy.composite_floor:g}"
                rejection = "composite", below_it
        if rejection is None and view and (reason := _seen_in(view, conversation, memory)):
            rejection = "visible", reason
        if rejection is None:
            passed.append(scored)
        else:
            dropped.append(scored)
            gates.append(rejection[0])
            reasons.append(rejection[1])
    return passed, record_all(Drop, dropped, gates, reasons, repeat(None))


def _seen_in(view: View, conversation: str, memory: Memory) -> str | None:
    """Why a memory need not be shown again, or None."""
    if memory.id in view.ids:
        return "in a block that is still in view"
    here = memory.thread_id is not None and memory.thread_id == view.thread_id
    if here and str(memory.turn) in view.turns:
        return "noted in this conversation"
    words = _plain_words(memory.text)
    return "said in this conversation" if words.strip() and words in conversation else None


def _plain_words(text: str) -> str:
    """Words without case, punctuation and spacing, each between spaces."""
    return f" {' '.join(_WORDS.findall(text.casefold()))} "
