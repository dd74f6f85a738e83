"""A recall as a versioned record: plain JSON types, numbers rounded to six digits."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from functools import cache, lru_cache
from json.encoder import encode_basestring_ascii as quoted
from math import isfinite
from operator import attrgetter
from typing import Any

from langmem_recall.policy import PRESETS, RecallPolicy
from langmem_recall.types import Candidate, Cue, Memory, Namespace, Recall, Scored, Usage

VERSION = 1
RECALL = "recall"
FEEDBACK = "feedback"
"""Kinds of records in a log."""

UNRANKED_GATES = frozenset({"tenant", "status", "validity", "expired", "task"})
"""Gates that drop a candidate before it is scored, so that it has no rank."""

DIGITS = 6
_ID_LENGTH = 16


def to_dict(
    recall: Recall,
    *,
    with_text: bool = True,
    policy: RecallPolicy | None = None,
    block: str | None = None,
) -> dict[str, Any]:
    """The recall as plain JSON types; `from_dict` reads it back.

    Args:
        recall: What the pipeline returned.
        with_text: False leaves out all words of memories and cues, and speakers, threads, tags and
            entities; keys and namespaces stay.
        policy: The policy in force, where it is no preset: its knobs are recorded, so that the
            inspector can ask what would have been recalled under others.
        block: What the model was shown, where it is known.
    """
    record: dict[str, Any] = json.loads(
        to_json(recall, with_text=with_text, policy=policy, block=block)
    )
    return record


def to_json(
    recall: Recall,
    *,
    with_text: bool = True,
    policy: RecallPolicy | None = None,
    block: str | None = None,
) -> str:
    """The record as one line of ASCII; written out directly, because every recall pays for it."""
    trace = recall.trace
    head = {
        "version": VERSION,
        "kind": RECALL,
        "id": recall_id(recall),
        "at": trace.at.isoformat(),
        "cue": _cue_record(trace.cue if with_text else _wordless(trace.cue)),
        "namespaces": trace.namespaces,
        "searched": trace.searched,
        "channels": dict(trace.channels),
    }
    tail: dict[str, Any] = {
        "budget": trace.budget_tokens,
        "tokens": trace.tokens,
        "compacted": trace.compacted,
        "conflicts": trace.conflicts,
        "timings": {stage: round(1e3 * s, DIGITS) for stage, s in trace.timings.items()},
        "degraded": trace.degraded,
        "funnel": str(recall),
    }
    shown = block or trace.block
    if shown and with_text:
        tail["block"] = shown
    used = _policy_json(trace.policy, policy)
    if policy is None and trace.knobs:
        used = _policy_record(trace.policy, trace.knobs)
    candidates = ", ".join(_candidates(recall, with_text))
    return (
        f'{json.dumps(head)[:-1]}, "policy": {used}, "candidates": [{candidates}], '
        f"{json.dumps(tail)[1:]}"
    )


def recall_id(recall: Recall) -> str:
    """A digest of what was asked, where, when and under which policy, and of what came of it."""
    trace = recall.trace
    told = (
        *(trace.at.isoformat(), trace.cue.words, trace.namespaces, trace.policy),
        [scored.candidate.memory.id for scored in recall.chosen],
        [drop.scored.candidate.memory.id for drop in recall.dropped],
    )
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:_ID_LENGTH]


def preset_knobs(fingerprint: str) -> dict[str, Any] | None:
    """The knobs of the preset with this fingerprint, or None where it is no preset's."""
    return _presets().get(fingerprint)


@cache
def _presets() -> dict[str, dict[str, Any]]:
    made = (getattr(RecallPolicy, name)() for name in PRESETS)
    return {policy.fingerprint: policy.to_dict() for policy in made}


@lru_cache(maxsize=64)
def _policy_json(told: str, policy: RecallPolicy | None = None) -> str:
    """Name, fingerprint and, where they are known, knobs of the policy in force."""
    fingerprint = told.rpartition(" ")[2]
    return _policy_record(told, preset_knobs(fingerprint) if policy is None else policy.to_dict())


def _policy_record(told: str, knobs: Mapping[str, Any] | None) -> str:
    name, _, fingerprint = told.rpartition(" ")
    record = {"name": name, "fingerprint": fingerprint}
    return json.dumps(record | ({"knobs": dict(knobs)} if knobs else {}))


def _wordless(cue: Cue) -> Cue:
    return replace(cue, text="", parts=(), task=None)


def _cue_record(cue: Cue) -> dict[str, Any]:
    temporal = cue.temporal
    return {
        "text": cue.text,
        "parts": cue.parts,
        "task": cue.task,
        "at": _iso(cue.at),
        "as_of": _iso(cue.as_of),
        "temporal": temporal
        and {"mode": temporal.mode, "start": _iso(temporal.start), "end": _iso(temporal.end)},
    }


def _iso(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()


# --- candidates, the many -------------------------------------------------------------------------

_NUMBERS = (
    '"evidence": {"dense": %s, "bm25": %s, "coverage": %.6f, "entity": %.6f, "episode": %.6f, '
    '"relevance": %.6f}, "signals": {"relevance": %.6f, "similarity": %.6f, "recency": %.6f, '
    '"importance": %.6f, "strength": %.6f, "trust": %.6f}, "score": %.6f'
)
_UNSURE_NUMBERS = _NUMBERS.replace("%.6f", "%s")
_UNUSED = Usage()
_NO_USE = '"usage": {"uses": 0}'
_OPTIONAL = (
    *("thread_id", "turn", "speaker"),
    *("confirmed_at", "valid_from", "valid_until", "superseded_at"),
    *("tags", "entities", "supersedes", "derived_from", "pinned", "dated"),
)
"""Fields of a memory that are recorded where they say something."""
_WORDS = frozenset({"thread_id", "turn", "speaker", "tags", "entities"})
"""Those in which a user's own words may stand."""
_NOTHING = (*(None,) * 7, *((),) * 4, *(False,) * 2)
_optional = attrgetter(*_OPTIONAL)


def _candidates(recall: Recall, with_text: bool) -> Iterator[str]:
    """One JSON object each: the chosen by place, then the dropped."""
    ranks = _ranks(recall)
    for place, scored in enumerate(recall.chosen):
        yield f'{_scored(scored, ranks[place], with_text)}, "place": {place + 1}}}'
    for i, (scored, gate, reason) in enumerate(recall.dropped, start=len(recall.chosen)):
        if gate == "task" and not with_text:
            reason = "not tagged with the cue's task"
        told = f'"gate": {_name(gate)}, "reason": {quoted(reason)}'
        yield f"{_scored(scored, ranks[i], with_text)}, {told}}}"


def _merit(scored: Scored) -> tuple[float, float]:
    """What ranks go by, to the digits that are recorded."""
    return -round(scored.score, 6), -round(scored.signals.relevance, 6)


def _ranks(recall: Recall) -> list[str]:
    """Places by score among all that were scored, the chosen first and then the dropped."""
    ranked = [(*_merit(one), i) for i, one in enumerate(recall.chosen)]
    for i, drop in enumerate(recall.dropped, start=len(ranked)):
        if drop.gate not in UNRANKED_GATES:
            ranked.append((*_merit(drop.scored), i))
    ranks = ["null"] * (len(recall.chosen) + len(recall.dropped))
    for rank, (_, _, i) in enumerate(sorted(ranked), start=1):
        ranks[i] = str(rank)
    return ranks


def _scored(scored: Scored, rank: str, with_text: bool) -> str:
    """All of a candidate but its outcome, without the closing brace."""
    candidate = scored.candidate
    memory, usage = _memory(candidate.memory, with_text), _usage(candidate.usage)
    return f'{{{memory}{_found(candidate)}, {usage}, {_numbers(scored)}, "rank": {rank}'


def _memory(memory: Memory, with_text: bool) -> str:
    written = "null" if memory.written_at is None else f'"{memory.written_at.isoformat()}"'
    told = (
        f'"namespace": {_namespace(memory.namespace)}, "key": {quoted(memory.key)}, '
        f'"kind": {_name(memory.kind)}, "source": {_name(memory.source)}, '
        f'"status": {_name(memory.status)}, "confidence": {_number(memory.confidence)}, '
        f'"salience": {_number(memory.salience)}, "written_at": {written}'
    )
    if with_text:
        told = f'{told}, "text": {quoted(memory.text)}'
    held = _optional(memory)
    if held == _NOTHING:
        return told
    extras = {
        name: one
        for name, one, nothing in zip(_OPTIONAL, held, _NOTHING, strict=True)
        if one != nothing and (with_text or name not in _WORDS)
    }
    return f"{told}, {json.dumps(extras, default=datetime.isoformat)[1:-1]}" if extras else told


def _found(candidate: Candidate) -> str:
    """What a candidate has besides its evidence, where it has any of it."""
    _, _, _, dense_rank, lexical_rank, similarity, standing, _ = candidate
    told = ""
    if dense_rank is not None:
        told += f', "dense_rank": {dense_rank}'
    if lexical_rank is not None:
        told += f', "lexical_rank": {lexical_rank}'
    if similarity is not None:
        told += f', "similarity": {_number(similarity)}'
    return told if standing is None else f'{told}, "standing": {quoted(standing)}'


def _usage(usage: Usage) -> str:
    if usage == _UNUSED:
        return _NO_USE
    decayed, last_used = _number(usage.decayed), _number(usage.last_used)
    return (
        f'"usage": {{"uses": {usage.uses}, "decayed": {decayed}, "last_used": {last_used}, '
        f'"before": {_number(usage.before)}, "merit": {usage.merit}}}'
    )


def _numbers(scored: Scored) -> str:
    dense, coverage, bm25, entity, episode, relevance = scored.candidate.evidence
    sure = (coverage, entity, episode, relevance, *scored.signals, scored.score)
    if isfinite(sum(sure)):
        return _NUMBERS % (_number(dense), _number(bm25), *sure)
    return _UNSURE_NUMBERS % tuple(map(_number, (dense, bm25, *sure)))


def _number(number: float | None) -> str:
    return "null" if number is None or not isfinite(number) else f"{number:.6f}"


@lru_cache(maxsize=256)
def _name(name: str) -> str:
    return quoted(name)


@lru_cache(maxsize=256)
def _namespace(namespace: Namespace) -> str:
    return json.dumps(namespace)
