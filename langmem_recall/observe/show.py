"""A recall to read: as a versioned record and back, as a table, as a fragment of a notebook.

Records are plain JSON types, numbers rounded to six digits.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from datetime import datetime
from functools import cache, lru_cache
from html import escape
from json.encoder import encode_basestring_ascii as quoted
from operator import attrgetter, itemgetter
from typing import Any

from langmem_recall.errors import InputError, first_problem
from langmem_recall.types import (
    GATE_WORDS,
    HARD_GATES,
    Drop,
    Evidence,
    Namespace,
    Recall,
    Scored,
    Signals,
    Usage,
    aware,
)

VERSION = 1
RECALL, FEEDBACK, VERDICT, ANSWER = "recall", "feedback", "verdict", "answer"  # kinds of records

DAMAGE = (KeyError, TypeError, ValueError, AttributeError, OverflowError)
"""What reading a damaged record may run into."""
_DIGITS = 6
_OPTIONAL: dict[str, Any] = {
    **dict.fromkeys(("thread_id", "turn", "speaker")),
    **dict.fromkeys(("confirmed_at", "valid_from", "valid_until", "superseded_at")),
    **dict.fromkeys(("tags", "entities", "supersedes", "derived_from"), ()),
    **dict.fromkeys(("pinned", "dated"), False),
}
_FINDINGS = dict.fromkeys(("dense_rank", "lexical_rank", "standing", "found_as"))
_FIELDS = _OPTIONAL | _FINDINGS
"""Recorded where they say something: by name what says nothing."""
_EMPTY = tuple(_FIELDS.values())
_WORDS = frozenset({"thread_id", "turn", "speaker", "tags", "entities", "found_as"})
"""Those in which a user's own words may stand."""
_UNUSED = Usage()
_NUMBERS = (
    '"confidence": %.6f, "salience": %.6f, "evidence": {{{}}}, "signals": {{{}}}, "score": %.6f'
).format(
    ", ".join(f'"{name}": %{"d" if name == "alone" else ".6f"}' for name in Evidence._fields),
    ", ".join(f'"{name}": %.6f' for name in Signals._fields),
)
"""Written in one go: rounded one by one and dumped, a record takes twice as long to write."""

_encode = json.JSONEncoder(default=datetime.isoformat).encode
_optional, _findings = attrgetter(*_OPTIONAL), attrgetter(*_FINDINGS)


def to_dict(recall: Recall, *, with_text: bool = True) -> dict[str, Any]:
    """The recall as plain JSON types; `from_dict` reads it back.

    Args:
        recall: What the pipeline returned.
        with_text: False leaves out all words of memories and cues, and speakers, threads, tags and
            entities; keys and namespaces stay.
    """
    record: dict[str, Any] = json.loads(to_json(recall, with_text=with_text))
    return record


def to_json(recall: Recall, *, with_text: bool = True) -> str:
    """The record as one line of ASCII."""
    trace = recall.trace
    cue = trace.cue if with_text else replace(trace.cue, text="", parts=(), task=None)
    name, _, fingerprint = trace.policy.rpartition(" ")
    optional = {
        "thread_id": with_text and trace.thread_id,
        "turn": with_text and trace.turn,
        "gave_way": trace.gave_way,
        "profile": trace.profile,
        "block": with_text and trace.block,
    }
    knobs = {"knobs": dict(trace.knobs)} if trace.knobs else {}
    record = {
        "version": VERSION,
        "kind": RECALL,
        "id": recall_id(recall),
        "at": trace.at,
        # Version 1 had no reasons: a cue without any is written as it was then.
        "cue": {key: part for key, part in asdict(cue).items() if part or key != "reasons"},
        "namespaces": trace.namespaces,
        "searched": trace.searched,
        "channels": dict(trace.channels),
        "policy": {"name": name, "fingerprint": fingerprint, **knobs},
        "budget": trace.budget_tokens,
        "tokens": trace.tokens,
        "compacted": trace.compacted,
        "conflicts": trace.conflicts,
        "timings": {stage: round(1e3 * s, _DIGITS) for stage, s in trace.timings.items()},
        "degraded": trace.degraded,
        "funnel": str(recall),
        **{key: part for key, part in optional.items() if part},
    }
    candidates = ", ".join(_candidates(recall, with_text))
    return f'{_encode(record)[:-1]}, "candidates": [{candidates}]}}'


def recall_id(recall: Recall) -> str:
    """A digest of what was asked, where, when and under which policy, and of what came of it."""
    trace = recall.trace
    identity = (
        *(trace.at.isoformat(), trace.cue.words, trace.namespaces, trace.policy),
        [scored.memory.id for scored in recall.chosen],
        [drop.memory.id for drop in recall.dropped],
    )
    return hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:16]


def _candidates(recall: Recall, with_text: bool) -> Iterator[str]:
    """One JSON object each: the chosen by place, then the dropped; ranks are by score."""
    chosen, dropped = recall.chosen, recall.dropped
    ranked = [None if drop.gate in HARD_GATES else drop.scored for drop in dropped]
    # To the digits that are recorded, so that a record read back gives the same ranks.
    merits = sorted(
        (-round(scored.score, _DIGITS), -round(scored.signals.relevance, _DIGITS), i)
        for i, scored in enumerate((*chosen, *ranked))
        if scored is not None
    )
    ranks = {i: rank for rank, (*_, i) in enumerate(merits, start=1)}
    for i, scored in enumerate(chosen):
        yield _candidate_json(scored, with_text, f'"rank": {ranks[i]}, "place": {i + 1}')
    for i, (scored, gate, reason, twin) in enumerate(dropped, start=len(chosen)):
        if gate == "task" and not with_text:
            reason = "not tagged with the cue's task"
        rank = ranks.get(i, "null")
        outcome = f'"rank": {rank}, "gate": {quoted(gate)}, "reason": {quoted(reason)}'
        if twin is not None:
            outcome += f', "twin": {_encode(twin)}'
        yield _candidate_json(scored, with_text, outcome)


def _candidate_json(scored: Scored, with_text: bool, outcome: str) -> str:
    candidate, memory = scored.candidate, scored.memory
    evidence = [math.nan if number is None else number for number in candidate.evidence]
    shares = (memory.confidence, memory.salience)
    numbers = _NUMBERS % (*shares, *evidence, *scored.signals, scored.score)
    numbers = numbers.replace(', "alone": 0}', "}", 1)
    if candidate.similarity is not None:
        numbers += f', "similarity": {candidate.similarity:.6f}'
    numbers = numbers.replace("nan", "null").replace("-inf", "null").replace("inf", "null")
    parts = [
        f"{_labels(memory.namespace, memory.kind, memory.source, memory.status)}, {outcome}",
        f'"key": {quoted(memory.key)}, {numbers}',
    ]
    usage = candidate.usage._asdict().items() if candidate.usage != _UNUSED else ()
    rounded = {name: n if n is None else round(n, _DIGITS) for name, n in usage}
    parts.append(f'"usage": {_encode(rounded or {"uses": 0})}')
    fields = (*_optional(memory), *_findings(candidate))
    if fields != _EMPTY:
        for name, field, empty in zip(_FIELDS, fields, _EMPTY, strict=True):
            if field != empty and (with_text or name not in _WORDS):
                parts.append(f'"{name}": {_encode(field)}')
    if with_text:
        parts.append(f'"text": {quoted(memory.text)}')
    written = "null" if memory.written_at is None else f'"{memory.written_at.isoformat()}"'
    return f'{", ".join(parts)}, "written_at": {written}}}'


@lru_cache(maxsize=256)
def _labels(namespace: Namespace, kind: str, source: str, status: str) -> str:
    labels = {"namespace": namespace, "kind": kind, "source": source, "status": status}
    return json.dumps(labels)[:-1]


# --- reading --------------------------------------------------------------------------------------


def from_dict(record: Mapping[str, Any]) -> Recall:
    """The recall that `to_dict` recorded, to six digits.

    Raises:
        InputError: The record is of another version, of another kind, or damaged.
    """
    if (kind := kind_of(record)) != RECALL:
        raise InputError(
            f"The record is of kind {kind!r:.40}, expected {RECALL!r}. "
            "Sort a log's records by their kind first."
        )
    try:
        policy = record["policy"]
        trace = {
            **record,
            "policy": f"{policy['name']} {policy['fingerprint']}",
            "knobs": policy.get("knobs", {}),
            "at": aware(datetime.fromisoformat(record["at"])),
            "timings": {stage: ms / 1e3 for stage, ms in record["timings"].items()},
            "budget_tokens": record["budget"],
        }
        chosen, dropped = [], []
        for candidate in record["candidates"]:
            if "place" in candidate:
                chosen.append((candidate["place"], _scored(candidate)))
            else:
                outcome = {name: candidate.get(name) for name in ("gate", "reason", "twin")}
                dropped.append({"scored": _scored(candidate), **outcome})
        in_order = [scored for _, scored in sorted(chosen, key=itemgetter(0))]
        return _validator()({"chosen": in_order, "dropped": dropped, "trace": trace})
    except DAMAGE as error:
        problem = f"{type(error).__name__} {error!s:.120}"
        if hasattr(error, "errors"):  # pydantic's, which says where
            problem = first_problem(error)
        raise InputError(
            f"The trace {record.get('id')!r:.40} is damaged: {problem}. "
            "Leave it out, or record it again."
        ) from error


@cache
def _validator() -> Callable[[object], Recall]:
    # Loaded with the first record that is read: commands and notebooks only show recalls.
    from pydantic import TypeAdapter

    return TypeAdapter(Recall).validate_python


def kind_of(record: Any) -> str:
    """The kind of a record; one that is of another version is refused."""
    if not isinstance(record, Mapping):
        raise InputError(f"A trace is a JSON object, got {record!r:.80}. Pass what to_dict made.")
    version = record.get("version")
    if version != VERSION or isinstance(version, bool):
        raise InputError(
            f"The trace has version {version!r:.40}, this langmem-recall reads {VERSION}. "
            "Read it with the langmem-recall that wrote it, or record it again."
        )
    return str(record.get("kind", RECALL))


def _scored(record: Mapping[str, Any]) -> dict[str, Any]:
    """A candidate's record in the shape of `Scored`; its text is empty where none was recorded."""
    evidence, signals = record["evidence"], record["signals"]
    shares = {name: _number(record[name]) for name in ("confidence", "salience")}
    return {
        "candidate": {
            "memory": {"text": ""} | dict(record) | shares,
            "evidence": {
                name: evidence[name] if name in ("dense", "bm25") else _number(evidence[name])
                for name in evidence
            },
            "usage": record["usage"],
            **{name: record.get(name) for name in ("similarity", *_FINDINGS)},
        },
        "signals": {name: _number(number) for name, number in signals.items()},
        "score": _number(record["score"]),
    }


def _number(number: float | None) -> float:
    return math.nan if number is None else number


# --- tables ---------------------------------------------------------------------------------------

_LONGEST_KEY = 12
_TITLES = ["#", "score", "relev", "recent", "import", "source", "key", "text"]


def table(recall: Recall, width: int = 100) -> str:
    """The recall for a terminal: the funnel, what was chosen, what each gate dropped and why."""
    trace, rows, gates = recall.trace, [_TITLES], dict[str, list[Drop]]()
    where = ", ".join("/".join(namespace) or "everywhere" for namespace in trace.namespaces)
    channels = ", ".join(f"{count:,} by {name}" for name, count in trace.channels.items())
    found = f" ({channels})" if channels else ""
    took = f" · {1e3 * sum(trace.timings.values()):.1f} ms" if trace.timings else ""
    lines = [
        f"cue: {printable(' | '.join(trace.cue.searched))}",
        f"in {printable(where)}: {trace.searched:,} stored{found} · {trace.policy}{took}",
    ]
    for place, (candidate, signals, score) in enumerate(recall.chosen, start=1):
        memory, key = candidate.memory, shortened(candidate.memory.key, _LONGEST_KEY)
        shares = (signals.relevance, signals.recency, signals.importance)
        numbers = [str(place), f"{score:.3f}", *(f"{share:.2f}" for share in shares)]
        rows.append([*numbers, memory.source, key, printable(memory.text)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows if recall.chosen else ():
        cells = map(str.ljust, row, widths)
        lines.append("  ".join(cells).rstrip())
    for drop in recall.dropped:
        gates.setdefault(drop.gate, []).append(drop)
    for gate, drops in gates.items():
        nearest = max(drops, key=lambda drop: drop.scored.signals.relevance)
        title, key = GATE_WORDS.get(gate, gate), shortened(nearest.memory.key, _LONGEST_KEY)
        lines.append(f"dropped {len(drops)} {title}: {printable(nearest.reason)}")
        lines.append(f"  nearest {key}: {printable(nearest.memory.text)}")
    lines += [f"degraded: {printable(note)}" for note in recall.trace.degraded]
    return "\n".join([str(recall), *(shortened(line, width) for line in lines)])


def html(recall: Recall) -> str:
    """The table for a notebook, as a fragment of HTML in which every text is escaped."""
    return f"<pre>{escape(table(recall, 200))}</pre>"


def printable(text: str) -> str:
    """The text on one line, with whatever could move a cursor or turn the writing replaced."""
    if text.isprintable():
        return text
    # Joiners and directional marks are "format" characters: unprintable, like controls.
    line = " ".join(text.split())
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in line)


def shortened(text: str, most: int) -> str:
    """The text made printable and cut to so many characters."""
    text = printable(text)
    return text if len(text) <= most else f"{text[: most - 1].rstrip()}…"
