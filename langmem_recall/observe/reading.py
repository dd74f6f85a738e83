"""Records of recalls read back: what ranking needs, with the digits that were recorded."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, get_args

from langmem_recall.errors import InputError
from langmem_recall.observe.records import RECALL, VERSION
from langmem_recall.types import (
    KINDS,
    STATUSES,
    TRUST,
    Candidate,
    Cue,
    Drop,
    Evidence,
    Memory,
    MemoryId,
    Namespace,
    Recall,
    Scored,
    Signals,
    Temporal,
    TemporalMode,
    Trace,
    Usage,
    aware,
)


def from_dict(record: Mapping[str, Any]) -> Recall:
    """The recall that `to_dict` recorded, to six digits.

    Raises:
        InputError: The record is of another version, of another kind, or damaged.
    """
    check_record(record)
    with _readable(record.get("id")):
        held = record["candidates"]
        placed = sorted((one for one in held if "place" in one), key=lambda one: one["place"])
        dropped = (one for one in held if "place" not in one)
        return Recall(
            tuple(map(_scored, placed)),
            tuple(Drop(_scored(one), _text(one["gate"]), _text(one["reason"])) for one in dropped),
            _trace(record),
        )


def check_record(record: Any, kind: str = RECALL) -> None:
    """Refuse what is no record of this kind and version."""
    if not isinstance(record, Mapping):
        raise InputError(f"A trace is a JSON object, got {record!r:.80}. Pass what to_dict made.")
    version = record.get("version")
    if version != VERSION or isinstance(version, bool):
        raise InputError(
            f"The trace has version {version!r:.40}, this langmem-recall reads {VERSION}. "
            "Read it with the langmem-recall that wrote it, or record it again."
        )
    if record.get("kind", RECALL) != kind:
        raise InputError(
            f"The record is of kind {record.get('kind')!r:.40}, expected {kind!r}. "
            "Sort a log's records by their kind first."
        )


@contextmanager
def _readable(name: Any) -> Iterator[None]:
    """Whatever a damaged record runs into is said in our words."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise InputError(
            f"The trace {name!r:.40} is damaged: {type(error).__name__} {error!s:.120}. "
            "Leave it out, or record it again."
        ) from error


def _trace(record: Mapping[str, Any]) -> Trace:
    used = record["policy"]
    return Trace(
        cue=_cue(record["cue"]),
        namespaces=tuple(_namespace(held) for held in record["namespaces"]),
        policy=f"{_text(used['name'])} {_text(used['fingerprint'])}",
        at=_moment(record["at"]),
        searched=int(record["searched"]),
        channels={_text(name): int(count) for name, count in record["channels"].items()},
        degraded=_texts(record["degraded"]),
        timings={_text(name): _number(ms) / 1e3 for name, ms in record["timings"].items()},
        budget_tokens=None if record["budget"] is None else int(record["budget"]),
        tokens=int(record["tokens"]),
        compacted=tuple(_memory_id(held) for held in record["compacted"]),
        conflicts=tuple(_pair(held) for held in record["conflicts"]),
    )


def _cue(held: Mapping[str, Any]) -> Cue:
    temporal = held.get("temporal")
    return Cue(
        text=_text(held["text"]),
        parts=_texts(held["parts"]),
        task=_optional_text(held.get("task")),
        temporal=None if temporal is None else _temporal(temporal),
        at=_optional_moment(held.get("at")),
        as_of=_optional_moment(held.get("as_of")),
    )


def _temporal(held: Mapping[str, Any]) -> Temporal:
    mode = _choice(held["mode"], get_args(TemporalMode))
    start, end = _optional_moment(held.get("start")), _optional_moment(held.get("end"))
    return Temporal(mode, start, end)


def _scored(held: Mapping[str, Any]) -> Scored:
    candidate = Candidate(
        read_candidate_memory(held),
        _evidence(held["evidence"]),
        _usage(held["usage"]),
        _optional_whole(held.get("dense_rank")),
        _optional_whole(held.get("lexical_rank")),
        _optional_number(held.get("similarity")),
        _optional_text(held.get("standing")),
    )
    signals = Signals(*(_number(held["signals"][name]) for name in Signals._fields))
    return Scored(candidate, signals, _number(held["score"]))


def read_candidate_memory(held: Mapping[str, Any]) -> Memory:
    """The memory of a recorded candidate; its text is empty where none was recorded."""
    return Memory(
        namespace=_namespace(held["namespace"]),
        key=_text(held["key"]),
        text=_text(held.get("text", "")),
        kind=_choice(held["kind"], KINDS),
        source=_choice(held["source"], tuple(TRUST)),
        confidence=_number(held["confidence"]),
        salience=_number(held["salience"]),
        written_at=_optional_moment(held["written_at"]),
        confirmed_at=_optional_moment(held.get("confirmed_at")),
        thread_id=_optional_text(held.get("thread_id")),
        turn=held.get("turn"),
        speaker=_optional_text(held.get("speaker")),
        entities=_texts(held.get("entities", ())),
        tags=_texts(held.get("tags", ())),
        valid_from=_optional_moment(held.get("valid_from")),
        valid_until=_optional_moment(held.get("valid_until")),
        supersedes=_texts(held.get("supersedes", ())),
        derived_from=_texts(held.get("derived_from", ())),
        pinned=held.get("pinned") is True,
        status=_choice(held["status"], STATUSES),
        superseded_at=_optional_moment(held.get("superseded_at")),
        dated=held.get("dated") is True,
    )


def _evidence(held: Mapping[str, Any]) -> Evidence:
    return Evidence(
        dense=_optional_number(held["dense"]),
        coverage=_number(held["coverage"]),
        bm25=_optional_number(held["bm25"]),
        entity=_number(held["entity"]),
        episode=_number(held["episode"]),
        relevance=_number(held["relevance"]),
    )


def _usage(held: Mapping[str, Any]) -> Usage:
    return Usage(
        uses=int(held["uses"]),
        decayed=_number(held.get("decayed", 0.0)),
        last_used=_optional_number(held.get("last_used")),
        before=_optional_number(held.get("before")),
        merit=int(held.get("merit", 0)),
    )


def _memory_id(held: Sequence[Any]) -> MemoryId:
    namespace, key = held
    return _namespace(namespace), _text(key)


def _pair(held: Sequence[Any]) -> tuple[MemoryId, MemoryId]:
    newer, older = held
    return _memory_id(newer), _memory_id(older)


def _namespace(held: Any) -> Namespace:
    if not isinstance(held, list | tuple):
        raise TypeError(f"a namespace is a list of labels, got {held!r:.40}")
    return tuple(_text(label) for label in held)


def _texts(held: Any) -> tuple[str, ...]:
    if not isinstance(held, list | tuple):
        raise TypeError(f"expected a list of texts, got {held!r:.40}")
    return tuple(_text(one) for one in held)


def _text(held: Any) -> str:
    if not isinstance(held, str):
        raise TypeError(f"expected a text, got {held!r:.40}")
    return held


def _optional_text(held: Any) -> str | None:
    return None if held is None else _text(held)


def _number(held: Any) -> float:
    """A number; null is what stands for NaN in a record."""
    if held is None:
        return math.nan
    if isinstance(held, bool) or not isinstance(held, int | float):
        raise TypeError(f"expected a number, got {held!r:.40}")
    return float(held)


def _optional_number(held: Any) -> float | None:
    return None if held is None else _number(held)


def _optional_whole(held: Any) -> int | None:
    return None if held is None else int(held)


def _moment(held: Any) -> datetime:
    moment = datetime.fromisoformat(_text(held))
    return aware(moment) or moment


def _optional_moment(held: Any) -> datetime | None:
    return None if held is None else _moment(held)


def _choice(held: Any, allowed: Sequence[Any]) -> Any:
    if held not in allowed:
        raise ValueError(f"{held!r:.40} is none of {', '.join(allowed)}")
    return held
