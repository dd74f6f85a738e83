"""Cases and cues from recorded traces: measuring and tuning on what users really asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from langmem_recall.errors import InputError
from langmem_recall.evaluation.cases import Case, CaseSet, Collection
from langmem_recall.memory.value import write_value
from langmem_recall.observe.records import FEEDBACK, check_record, from_dict
from langmem_recall.types import Cue, Memory, MemoryId, Namespace, Recall

Feedback = Mapping[str, Iterable[str]]
"""Keys of memories that proved right, by the id of the recall that brought them."""


def cases_from_traces(
    records: Iterable[Mapping[str, Any]],
    feedback: Feedback | None = None,
    *,
    name: str = "traces",
) -> CaseSet:
    """Cases from what `TraceLog` recorded, texts included.

    Every recall with good feedback becomes a case: its cue, its time of asking, and the memories
    that were cited or reported as good. The memories of a collection are all that were ever
    candidates in those namespaces, as they were last seen. Recalls without good feedback only
    lend their memories; the notes say how many.

    Args:
        records: Records of recalls and of feedback, as `read_log` gives them.
        feedback: Good memories that are not among the records, by the id of their recall.
        name: What the set is called.

    Raises:
        InputError: No recall has good feedback, or a record cannot be read.
    """
    read = _Read()
    for record in records:
        read.add(record)
    for recall_id, keys in (feedback or {}).items():
        read.good.setdefault(recall_id, set()).update(keys)
    return read.cases(name)


def cues_from_traces(records: Iterable[Mapping[str, Any]]) -> list[Cue]:
    """The cues of recorded recalls with their times of asking; `set_injection_rate` takes them.

    Recalls that were recorded without words have none.
    """
    recalls = (from_dict(record) for record in records if record.get("kind") != FEEDBACK)
    traces = (recall.trace for recall in recalls)
    return [replace(trace.cue, at=trace.at) for trace in traces if trace.cue.words]


@dataclass(slots=True)
class _Asked:
    recall_id: str
    namespaces: tuple[Namespace, ...]
    cue: Cue
    at: datetime


@dataclass(slots=True)
class _Read:
    """What the records hold, sorted by what it is needed for."""

    asked: list[_Asked] = field(default_factory=list)
    held: dict[tuple[Namespace, ...], dict[MemoryId, Memory]] = field(default_factory=dict)
    good: dict[str, set[str]] = field(default_factory=dict)
    """Keys of good memories by recall."""
    left_out: Counter[str] = field(default_factory=Counter)

    def add(self, record: Mapping[str, Any]) -> None:
        if isinstance(record, Mapping) and record.get("kind") == FEEDBACK:
            self._add_feedback(record)
            return
        recall = from_dict(record)
        memories = list(_memories(recall))
        if any(not memory.text for memory in memories):
            self.left_out["recorded without text"] += 1
            return
        trace = recall.trace
        held = self.held.setdefault(trace.namespaces, {})
        held |= {memory.id: memory for memory in memories}
        cue = Cue(trace.cue.text, trace.cue.parts, trace.cue.task)
        self.asked.append(_Asked(str(record.get("id")), trace.namespaces, cue, trace.at))

    def _add_feedback(self, record: Mapping[str, Any]) -> None:
        check_record(record, FEEDBACK)
        recall_id, key = record.get("recall"), record.get("key")
        if record.get("good") is True and isinstance(recall_id, str) and isinstance(key, str):
            self.good.setdefault(recall_id, set()).add(key)

    def cases(self, name: str) -> CaseSet:
        shelves = {namespaces: _Shelf(namespaces, held) for namespaces, held in self.held.items()}
        labelled: list[Case] = []
        for asked in self.asked:
            shelf = shelves[asked.namespaces]
            relevant = shelf.named(self.good.get(asked.recall_id, set()))
            if relevant:
                labelled.append(Case(shelf.name, asked.cue, relevant, asked.at))
            else:
                self.left_out["without good feedback"] += 1
        if not labelled:
            raise InputError(
                f"None of {len(self.asked)} traces has good feedback on a memory it brought. "
                "Report outcomes with RecallStore.feedback, or pass feedback={recall id: [keys]}."
            )
        wanted = {case.collection for case in labelled}
        collections = (shelf.collection for shelf in shelves.values() if shelf.name in wanted)
        notes = (f"{count} traces left out: {why}" for why, count in self.left_out.items())
        return CaseSet(name, tuple(collections), tuple(labelled), tuple(notes))


class _Shelf:
    """All memories seen in some namespaces, under names that tell them apart."""

    def __init__(self, namespaces: tuple[Namespace, ...], held: Mapping[MemoryId, Memory]) -> None:
        self.name = " + ".join(map(_joined, namespaces)) or "all"
        has_one_home = len({memory.namespace for memory in held.values()}) == 1
        self._memories = {
            memory.key if has_one_home else _joined((*memory.namespace, memory.key)): memory
            for memory in held.values()
        }

    @property
    def collection(self) -> Collection:
        """The memories as they are written to a store."""
        pairs = ((name, write_value(memory)) for name, memory in self._memories.items())
        return Collection(self.name, tuple(pairs))

    def named(self, keys: set[str]) -> frozenset[str]:
        """The names of the memories with these keys."""
        if not keys:
            return frozenset()
        return frozenset(name for name, memory in self._memories.items() if memory.key in keys)


def _joined(labels: Namespace) -> str:
    """Labels as one name, from which they could be told apart again."""
    return "/".join(label.replace("%", "%25").replace("/", "%2F") for label in labels)


def _memories(recall: Recall) -> Iterator[Memory]:
    yield from recall.memories
    yield from (drop.memory for drop in recall.dropped)
