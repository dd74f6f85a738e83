"""A turn's model calls: what one is made from, and what it leaves in the state: never a text."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Annotated, Any

from langchain_core.messages import BaseMessage
from langgraph.config import get_config
from langgraph.runtime import Runtime
from pydantic import AfterValidator, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from langmem_recall.agents.namespace import NamespaceTemplate
from langmem_recall.agents.options import Options, budget_tokens, recall_store
from langmem_recall.agents.placement import message_keys
from langmem_recall.cue import CueState, latest_human
from langmem_recall.deadline import Breaker, Pending
from langmem_recall.rendering import cited
from langmem_recall.types import Memory, MemoryId

# The notes that a label may have.
DENIED = "the user has said otherwise in this conversation which wins"
CONTRADICTED = "older than {} which may contradict it"
PROFILE = "part of the profile"
_NOTE = f"^(?:{PROFILE}|{DENIED}|{CONTRADICTED.format('m[1-9][0-9]*')})$"
CITED = "langmem_recall_cited"
"""Where a message tells what it cited before that was taken out; sent to no provider."""
MOST_RECORDS = 200  # in a state; older ones belong to turns that no model sees any more
KEPT_SHARE = 0.5  # of the budget, what is left in use when past blocks give way


class ShownMemory(TypedDict):
    """One memory of a block."""

    handle: Annotated[str, Field(pattern="^m[1-9][0-9]{0,8}$")]
    namespace: list[str]
    key: str
    source: str
    score: float
    relevance: float
    digest: str  # of its text, which may be another by now
    notes: list[Annotated[str, Field(pattern=_NOTE)]]
    # Which places of its text a shortened line shows; none for a whole one.
    spans: list[Annotated[list[int], Field(min_length=2, max_length=2)]]
    verified: bool  # whether a trusted source or a person vouches for it


class RecallRecord(TypedDict):
    """One recall of a turn."""

    id: str
    turn: str  # key of the human message that began it
    cue: str  # its fingerprint; empty for a recall that failed and is to be tried again
    after: str | None  # key of the message its block comes after; None: as the placement says
    at: Annotated[str, AfterValidator(lambda time: datetime.fromisoformat(time) and time)]
    memories: list[ShownMemory]
    dropped: dict[str, int]  # how many candidates each gate dropped
    reason: str
    tokens: int  # of all memory in the call that it was made for: its block and past ones
    budget: int
    degraded: list[str]
    block_tokens: int  # of its own block, with the message around it
    profile: list[ShownMemory]  # what the turn began with whatever its cue: not recalled
    by: str  # name of the middleware or node that made it, where it has one
    gone: list[str]  # ids of records whose blocks gave way to this one's


_RECORD: TypeAdapter[RecallRecord] = TypeAdapter(RecallRecord)


def add_records(
    old: Sequence[RecallRecord] | None, new: Sequence[RecallRecord] | None
) -> list[RecallRecord]:
    """The reducer of the state: new records after old ones, the same one once, not too many."""
    # Whatever a client writes into the state, the thread goes on: readers drop what is no record.
    records = {_name(record): record for record in (*(old or ()), *(new or ()))}
    return list(records.values())[-MOST_RECORDS:]


class RecallState(CueState, total=False):
    """Mix this into the state of a graph that has a recall node."""

    recalls: Annotated[list[RecallRecord], add_records]


def read_records(state: Any) -> tuple[list[RecallRecord], list[str]]:
    """The records in a state, and the names of entries that are none of ours or are damaged."""
    found = state.get("recalls") if isinstance(state, Mapping) else getattr(state, "recalls", None)
    sound, damaged = list[RecallRecord](), list[str]()
    for entry in found if isinstance(found, list | tuple) else ():
        try:
            _RECORD.validate_python(entry)
            sound.append(entry)
        except ValidationError:
            damaged.append(_name(entry))
    return sound, damaged


def _name(entry: Any) -> str:
    name = entry.get("id") if isinstance(entry, Mapping) else entry
    return name if isinstance(name, str) else f"{name!r:.40}"


def shown_within(
    records: Sequence[RecallRecord], more: int, budget: int, turn: str
) -> list[RecallRecord]:
    """The records whose blocks stay when `more` tokens are added: the oldest give way first.

    Where one has to go, so many go that the next turns have room: what stands before a block is
    read anew by the provider each time one goes, and no dearer for several than for one.
    """
    total = sum(record["block_tokens"] for record in records) + more
    if total <= budget:
        return list(records)
    stay: list[RecallRecord] = []
    for record in records:
        # Blocks of the turn itself stay as long as there is room at all.
        most = budget if record["turn"] == turn else budget * KEPT_SHARE
        if record["block_tokens"] and total > most:
            total -= record["block_tokens"]
        else:
            stay.append(record)
    return stay


def thread_of(config: Mapping[str, Any]) -> str | None:
    """The thread of a run, if it has one."""
    thread_id = (config.get("configurable") or {}).get("thread_id")
    return None if thread_id is None else str(thread_id)


Place = tuple[int, str | None, str]  # a turn of a thread over a store


@dataclass(slots=True)
class Turn:
    """What a process remembers of a turn: records that no state has yet, and what is late."""

    records: list[RecallRecord] = field(default_factory=list)
    late: dict[str, list[Pending]] = field(default_factory=dict)  # by cue
    # One wait a turn, however many calls its tool loop makes.
    waiting: Breaker = field(default_factory=partial(Breaker, failures=1))


class ModelCall:
    """A model call: all that it is made from, where its conversation stands, what it is given."""

    def __init__(
        self,
        state: Any,
        messages: Sequence[BaseMessage],
        runtime: Runtime[Any],
        model: Any,
        template: NamespaceTemplate,
        options: Options,
        turns: MutableMapping[Place, Turn],
    ) -> None:
        self.messages, self.keys = messages, message_keys(messages)
        self.name, self.config = options.name, get_config()
        self.write = runtime.stream_writer
        self.budget = budget_tokens(options.budget, model)
        self.namespaces = template.resolve(runtime.context, self.config)
        self.store = recall_store(options.store, runtime.store)
        self.thread_id = thread_of(self.config)
        # What nonces are drawn from; where none was given, known once the store was read.
        secret = options.secret
        self.secret = secret.encode() if isinstance(secret, str) else secret
        self.saved, self.damaged = read_records(state)
        human = latest_human(messages)
        # Summarised away in mid-turn, the human's message still began this turn.
        lost = self.saved[-1]["turn"] if self.saved else "no human message"
        self.turn = lost if human is None else self.keys[human]
        self.index = -1 if human is None else human
        self.place: Place = (id(self.store.inner), self.thread_id, self.turn)
        self.remembered = turns.setdefault(self.place, Turn())
        # Those made moments ago are not in the state yet.
        recent = (turns.get((*self.place[:2], key)) for key in (*self.keys, self.turn))
        unsaved = (record for turn in recent if turn is not None for record in turn.records)
        standing = [record for record in unsaved if record["after"] in (None, *self.keys)]
        self.records = add_records(self.saved, standing)
        # Ours, and only what was shown at or below the namespaces of this run.
        self.readable = [
            record
            for record in self.records
            if record["by"] == options.name
            and all(
                any(tuple(shown["namespace"][: len(ns)]) == ns for ns in self.namespaces)
                for shown in memories_in([record])
            )
        ]
        begun = {self.turn, *(self.keys if options.replay else ())}
        gone = {name for record in self.readable for name in record["gone"]}
        current = (record for record in self.readable if record["turn"] in begun)
        in_view = [record for record in current if record["id"] not in gone]
        # A model with a smaller window than the one before it sees fewer of them.
        self.shown = shown_within(in_view, 0, self.budget, self.turn)
        self.gave_way = len(in_view) - len(self.shown)
        self.profile: list[Memory] = []  # what the turn begins with, whatever its cue
        self.late: list[Pending] = []  # what came too late for the recall of this call
        self.new: list[RecallRecord] = []  # what was recalled for it
        self.prompt: list[BaseMessage] = []  # what the model is given
        self.unverified: list[str] = []  # memories in its blocks and tool results

    @property
    def update(self) -> list[RecallRecord]:
        """Of the blocks in the prompt, what the state does not have yet."""
        saved = {record["id"] for record in self.saved}
        return [record for record in (*self.shown, *self.new) if record["id"] not in saved]

    def key(self, record: RecallRecord) -> tuple[Any, str]:
        """What a record's block is kept under: whatever a state says, no other tenant finds it."""
        return self.namespaces, record["id"]


def digest(text: str) -> str:
    """A short digest of a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def memories_in(records: Iterable[RecallRecord]) -> list[ShownMemory]:
    """All memories that these records show, those of a profile included."""
    return [shown for record in records for shown in (*record["profile"], *record["memories"])]


def shown_id(shown: ShownMemory) -> MemoryId:
    """The memory that was shown."""
    return tuple(shown["namespace"]), shown["key"]


def is_unchanged(shown: ShownMemory, memory: Memory | None) -> bool:
    """Whether a memory that was shown still says the same and is in force."""
    return memory is not None and memory.in_force and digest(memory.text) == shown["digest"]


def artifact(memories: Sequence[Memory]) -> list[dict[str, Any]]:
    """What the `recall` tool leaves beside its answer, unseen by the model."""
    return [
        {
            "namespace": list(memory.namespace),
            "key": memory.key,
            "source": memory.source,
            "verified": not memory.needs_verification,
        }
        for memory in memories
    ]


def artifact_of(message: BaseMessage) -> list[dict[str, Any]]:
    """What a message of the `recall` tool carries of the memories it shows."""
    found = getattr(message, "artifact", None)
    needed = {"namespace", "key", "source", "verified"}
    entries = found if isinstance(found, list) else []
    return [entry for entry in entries if isinstance(entry, dict) and needed <= entry.keys()]


def handles_of(answer: BaseMessage) -> list[str]:
    """What an answer cites, taken out of it or not."""
    noted = answer.response_metadata.get(CITED)
    known = [each for each in noted if isinstance(each, str)] if isinstance(noted, list) else []
    return [*known, *cited(answer.text)]
