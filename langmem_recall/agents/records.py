"""What a turn leaves in an agent's state about its recalls: keys and scores, never a text."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, NotRequired

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from langmem_recall.cue import CueState
from langmem_recall.types import TRUST, VERIFIED_TRUST, Cue, Memory, MemoryId, Namespace

DENIED = "the user has said otherwise in this conversation which wins"
CONTRADICTED = re.compile(r"older than m[1-9][0-9]* which may contradict it")
"""The notes that a label may have."""

MOST_RECORDS = 200
"""Records a state keeps; older ones belong to turns that no model sees any more."""


class ShownMemory(TypedDict):
    """One memory of a block."""

    handle: Annotated[str, Field(pattern=r"^m[1-9][0-9]{0,8}$")]
    namespace: list[str]
    key: str
    source: str
    score: float
    relevance: float
    digest: str
    """Tells whether the text is still the one that was shown."""
    notes: list[Annotated[str, AfterValidator(lambda note: _is_note(note))]]
    """More words of its label."""
    room: int | None
    """Tokens its line was shortened to; None for a whole one."""
    verified: NotRequired[bool]
    """Whether a trusted source or a person vouches for it; by its source alone when absent."""


class RecallRecord(TypedDict):
    """One recall of a turn."""

    id: str
    turn: str
    """Key of the human message that began the turn."""
    cue: str
    """Fingerprint of the cue; empty for a recall that failed and is to be tried again."""
    after: str | None
    """Key of the message its block comes after; None: where the placement puts it."""
    at: Annotated[str, AfterValidator(lambda told: _is_time(told))]
    memories: list[ShownMemory]
    dropped: dict[str, int]
    """How many candidates each gate dropped."""
    reason: str
    tokens: int
    budget: int
    degraded: list[str]


_RECORD: TypeAdapter[RecallRecord] = TypeAdapter(RecallRecord)


def add_records(
    held: Sequence[RecallRecord] | None, new: Sequence[RecallRecord] | None
) -> list[RecallRecord]:
    """The reducer of the state: new records after old ones, the same one once, not too many."""
    entries = (*(held or ()), *(new or ()))
    # Whatever a client writes into the state, the thread goes on: readers drop what is no record.
    records = {_name(record): record for record in entries}
    return list(records.values())[-MOST_RECORDS:]


class RecallState(CueState, total=False):
    """Mix this into the state of a graph that has a recall node."""

    recalls: Annotated[list[RecallRecord], add_records]


def fingerprint(cue: Cue, namespaces: Sequence[Namespace], policy: str) -> str:
    """Digest of all that a recall depends on, but for the memories."""
    times = [repr(time) for time in (cue.temporal, cue.at, cue.as_of)]
    told = [cue.searched, cue.text, cue.task, times, namespaces, policy]
    return digest(json.dumps(told, ensure_ascii=True))


def digest(text: str) -> str:
    """A short digest of a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def shown_id(shown: ShownMemory) -> MemoryId:
    """The memory that was shown."""
    return tuple(shown["namespace"]), shown["key"]


def is_unchanged(shown: ShownMemory, memory: Memory | None) -> bool:
    """Whether a memory that was shown still says the same and is in force."""
    if memory is None or memory.status != "active":
        return False
    return digest(memory.text) == shown["digest"]


def is_within(record: RecallRecord, namespaces: Sequence[Namespace]) -> bool:
    """Whether all that was shown lies at or below these namespaces."""
    homes = [tuple(shown["namespace"]) for shown in record["memories"]]
    return all(any(home[: len(one)] == one for one in namespaces) for home in homes)


def next_handle(records: Sequence[RecallRecord]) -> int:
    """The first number that no handle of these records has."""
    numbers = [int(shown["handle"][1:]) for record in records for shown in record["memories"]]
    return max(numbers, default=0) + 1


def records_of(state: Any) -> list[RecallRecord]:
    """The records in a state, whatever kind of object it is; damaged entries are left out."""
    return read_records(state)[0]


def read_records(state: Any) -> tuple[list[RecallRecord], list[str]]:
    """The records in a state, and the names of entries that are none of ours or are damaged."""
    held = state.get("recalls") if isinstance(state, Mapping) else getattr(state, "recalls", None)
    sound, damaged = list[RecallRecord](), list[str]()
    for entry in held if isinstance(held, list | tuple) else ():
        try:
            _RECORD.validate_python(entry)
            sound.append(entry)
        except ValidationError:
            damaged.append(_name(entry))
    return sound, damaged


def needs_verification(shown: Mapping[str, Any]) -> bool:
    """Whether nobody vouches for a memory that was shown."""
    by_source = TRUST.get(shown["source"], 0.0) >= VERIFIED_TRUST
    return not shown.get("verified", by_source)


def _name(entry: Any) -> str:
    told = entry.get("id") if isinstance(entry, Mapping) else entry
    return told if isinstance(told, str) else f"{told!r:.40}"


def _is_note(note: str) -> str:
    if note != DENIED and not CONTRADICTED.fullmatch(note):
        raise ValueError("is no note of ours")
    return note


def _is_time(told: str) -> str:
    datetime.fromisoformat(told)
    return told
