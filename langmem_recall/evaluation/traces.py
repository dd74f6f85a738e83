"""Cases from recorded traces: measuring and tuning on what users really asked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from langmem_recall.errors import InputError
from langmem_recall.evaluation.cases import Case, CaseSet, Collection
from langmem_recall.memory.value import write_value
from langmem_recall.observe.show import FEEDBACK, check_record, from_dict
from langmem_recall.types import Cue, Memory, MemoryId, Namespace

Feedback = Mapping[str, Iterable[str]]
"""Keys of memories that proved right, by the id of the recall that brought them."""
_Namespaces = tuple[Namespace, ...]


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
    good = {recall_id: set(keys) for recall_id, keys in (feedback or {}).items()}
    recalls: list[tuple[str, _Namespaces, Cue, datetime]] = []
    seen: dict[_Namespaces, dict[MemoryId, Memory]] = {}
    without_text = 0
    for record in records:
        if isinstance(record, Mapping) and record.get("kind") == FEEDBACK:
            check_record(record, FEEDBACK)
            recall_id, key = record.get("recall"), record.get("key")
            if record.get("good") is True and isinstance(recall_id, str) and isinstance(key, str):
                good.setdefault(recall_id, set()).add(key)
            continue
        recall = from_dict(record)
        memories = (*recall.memories, *(drop.memory for drop in recall.dropped))
        if not all(memory.text for memory in memories):
            without_text += 1
            continue
        trace = recall.trace
        seen.setdefault(trace.namespaces, {}).update((memory.id, memory) for memory in memories)
        cue = Cue(trace.cue.text, trace.cue.parts, trace.cue.task)
        recalls.append((str(record.get("id")), trace.namespaces, cue, trace.at))
    collections = {namespaces: _collect(namespaces, found) for namespaces, found in seen.items()}
    cases = []
    for recall_id, namespaces, cue, at in recalls:
        collection, names = collections[namespaces]
        relevant = {label for key in good.get(recall_id, ()) for label in names.get(key, ())}
        if relevant:
            cases.append(Case(collection.name, cue, frozenset(relevant), at))
    if not cases:
        raise InputError(
            f"None of {len(recalls)} traces has good feedback on a memory it brought. "
            "Report outcomes with RecallStore.feedback, or pass feedback={recall id: [keys]}."
        )
    wanted = {case.collection for case in cases}
    left_out = {
        "recorded without text": without_text,
        "without good feedback": len(recalls) - len(cases),
    }
    return CaseSet(
        name,
        tuple(collection for collection, _ in collections.values() if collection.name in wanted),
        tuple(cases),
        tuple(f"{count} traces left out: {why}" for why, count in left_out.items() if count),
    )


def _collect(
    namespaces: _Namespaces, found: Mapping[MemoryId, Memory]
) -> tuple[Collection, dict[str, list[str]]]:
    """All memories seen in some namespaces under names of their own, and those names by key."""
    has_one_home = len({namespace for namespace, _ in found}) == 1
    names: dict[str, list[str]] = {}
    memories = []
    for memory in found.values():
        label = memory.key if has_one_home else _join((*memory.namespace, memory.key))
        names.setdefault(memory.key, []).append(label)
        memories.append((label, write_value(memory)))
    return Collection(" + ".join(map(_join, namespaces)) or "all", tuple(memories)), names


def _join(labels: Namespace) -> str:
    """Labels as one name, from which they could be told apart again."""
    return "/".join(label.replace("%", "%25").replace("/", "%2F") for label in labels)
