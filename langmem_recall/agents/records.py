"""What a turn leaves in an agent's state about its recalls: keys and scores, never a text."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from typing_extensions import TypedDict

from langmem_recall.cue import CueState
from langmem_recall.types import Cue, Memory, MemoryId, Namespace

MOST_RECORDS = 200
"""Records a state keeps; older ones belong to turns that no model sees any more."""


class ShownMemory(TypedDict):
    """One memory of a block."""

    handle: str
    namespace: list[str]
    key: str
    source: str
    score: float
    relevance: float
    digest: str
    """Tells whether the text is still the one that was shown."""
    notes: list[str]
    """More words of its label."""
    room: int | None
    """Tokens its line was shortened to; None for a whole one."""


class RecallRecord(TypedDict):
    """One recall of a turn."""

    id: str
    turn: str
    """Key of the human message that began the turn."""
    cue: str
    """Fingerprint of the cue; empty for a recall that failed and is to be tried again."""
    after: str | None
    """Key of the message its block comes after; None: where the placement puts it."""
    at: str
    memories: list[ShownMemory]
    dropped: dict[str, int]
    """How many candidates each gate dropped."""
    reason: str
    tokens: int
    budget: int
    degraded: list[str]


def add_records(
    held: Sequence[RecallRecord] | None, new: Sequence[RecallRecord] | None
) -> list[RecallRecord]:
    """The reducer of the state: new records after old ones, the same one once, not too many."""
    records = {record["id"]: record for record in (*(held or ()), *(new or ()))}
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
    """The records in a state, whatever kind of object it is."""
    if isinstance(state, Mapping):
        return list(state.get("recalls") or ())
    return list(getattr(state, "recalls", None) or ())
