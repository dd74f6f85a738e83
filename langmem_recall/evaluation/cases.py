"""Cases: collections of memories, cues asked of them, and the memories each cue should find.

They are written by hand as JSONL, or come from recorded traces: what users really asked.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError

from langmem_recall.errors import InputError, first_problem
from langmem_recall.memory.value import TEXT_FIELDS, write_value
from langmem_recall.observe.show import ANSWER, FEEDBACK, VERDICT, from_dict, kind_of
from langmem_recall.types import SIDECAR_ROOT, Cue, Memory, MemoryId, Namespace, aware

ANSWERABLE = "answerable"
HARD = "hard"  # off-topic, but about the right people: another talk's questions, names swapped
FAR = "far"  # off-topic, from another domain altogether
OFF_TOPIC = "off_topic"
DEFAULT_COLLECTION = "default"


@dataclass(frozen=True, slots=True)
class Collection:
    """The memories of one namespace, as (key, value) pairs in the order they are written."""

    name: str
    memories: tuple[tuple[str, Mapping[str, Any]], ...]


@dataclass(frozen=True, slots=True)
class Case:
    """One cue, asked of a collection at a time, and the keys it should find."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    collection: str
    cue: Cue  # a plain text is taken as a `Cue` of that text
    relevant: frozenset[str] = frozenset()  # empty for an off-topic cue: nothing should be recalled
    at: datetime | None = None  # time of asking; the present when absent
    group: str = ANSWERABLE
    category: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.cue, str):
            object.__setattr__(self, "cue", Cue(self.cue))
        object.__setattr__(self, "relevant", frozenset(self.relevant))
        if self.group == ANSWERABLE and not self.relevant:
            raise InputError(
                f"An answerable case needs relevant keys, got none for {self.cue.words!r}. "
                f'Name them, or give it another group such as "{OFF_TOPIC}".'
            )


@dataclass(frozen=True, slots=True)
class CaseSet:
    """Collections and the cases asked of them."""

    name: str
    collections: tuple[Collection, ...]
    cases: tuple[Case, ...]
    notes: tuple[str, ...] = field(default=(), compare=False)
    """What had to be repaired or left out on loading."""

    def __post_init__(self) -> None:
        if not self.cases:
            raise InputError(f"{self.name} holds no cases. Give at least one cue to ask.")
        keys = {each.name: dict(each.memories).keys() for each in self.collections}
        if len(keys) < len(self.collections):
            raise InputError(f"{self.name} has two collections of one name. Rename one of them.")
        for case in self.cases:
            words, name = case.cue.words, case.collection
            if name not in keys:
                raise InputError(
                    f"The cue {words!r} is asked of the collection {name!r}, which has no "
                    "memories. Check its name, or declare it empty with a line that names only it."
                )
            if unknown := case.relevant - keys[name]:
                raise InputError(
                    f"The cue {words!r} names relevant keys that {name!r} does not hold: "
                    f"{', '.join(sorted(unknown))}. Check their spelling."
                )


_validate_case = TypeAdapter(Case).validate_python
Memories = defaultdict[str, dict[str, Mapping[str, Any]]]  # by collection and key


# --- JSONL ----------------------------------------------------------------------------------------


def load_cases(path: str | Path, cues: str | Path | None = None) -> CaseSet:
    """Cases from a JSONL file that can be written by hand, or from an export and cues for it.

    A line with `key` is a memory: `{"key": "m1", "content": "...", ...any memory field}`. A line
    with `cue` is a case: `{"cue": "...", "relevant": ["m1"]}`, where `at`, `group` and `category`
    may be given. Both take `collection`, to keep several namespaces in one file. A line of
    `export_jsonl` is a memory, too, in the collection of its namespace: `memories/ada`. Cues that
    name no collection are asked of the only one.

    Args:
        path: The file.
        cues: Another file of the same kind, for an export without cues.

    Raises:
        InputError: A line cannot be read, which the message names, or a cue asks for what is not
            there.
    """
    source, memories, cases = Path(path), Memories(dict), list[Case]()
    for file in (source, Path(cues)) if cues is not None else (source,):
        try:
            lines = file.read_text(encoding="utf-8-sig").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{file} cannot be read: {error}. Pass a UTF-8 JSONL file.") from error
        for number, line in enumerate(lines, start=1):
            try:
                if line.strip() and (case := _read_line(line, memories)):
                    cases.append(case)
            except InputError as error:
                raise InputError(f"{file.name}, line {number}: {error}") from error
    if len(memories) == 1:
        (only,) = memories
        cases = [
            replace(case, collection=only) if case.collection == DEFAULT_COLLECTION else case
            for case in cases
        ]
    collections = (Collection(name, tuple(members.items())) for name, members in memories.items())
    return CaseSet(source.stem, tuple(collections), tuple(cases))


def _read_line(line: str, memories: Memories) -> Case | None:
    """The case of a line, if it is one; a memory is added to those of its collection."""
    try:
        record = json.loads(line)
    except ValueError as error:
        raise InputError(f"This is not JSON ({error}). Write one object a line.") from error
    if not isinstance(record, dict):
        raise InputError(f"A line is one JSON object, got {record!r}. Write it in braces.")
    if "value" in record or "format" in record:
        _read_exported(record, memories)
        return None
    if "cue" in record:
        return _read_case(record)
    name, key = record.pop("collection", DEFAULT_COLLECTION), record.pop("key", None)
    members = memories[str(name)]
    if not record and key is None:
        return None
    if not isinstance(key, str) or not key:
        raise InputError(
            f"A line needs a key (a memory) or a cue (a case), got the key {key!r}. "
            'Write {"key": ..., "content": ...} or {"cue": ..., "relevant": [...]}.'
        )
    if key in members:
        raise InputError(f"The key {key!r} is used twice in its collection. Rename one of them.")
    if record.keys().isdisjoint(TEXT_FIELDS):
        raise InputError(f'The memory {key!r} has no text. Put the words under "content".')
    members[key] = record
    return None


def _read_exported(record: dict[str, Any], memories: Memories) -> None:
    """Add a memory that `export_jsonl` wrote; what is none, as its first line, is passed over."""
    labels, key, value = (record.get(name) for name in ("namespace", "key", "value"))
    if "format" in record or (labels and labels[0] == SIDECAR_ROOT):
        return
    is_named = isinstance(labels, list) and all(isinstance(label, str) for label in labels)
    if not is_named or not isinstance(key, str) or not isinstance(value, dict):
        raise InputError("This is no line of an export. Pass what langmem-recall export wrote.")
    memories["/".join(labels or ())][key] = value


def _read_case(record: dict[str, Any]) -> Case:
    cue = record["cue"]
    cue = {"text": cue} if isinstance(cue, str) else cue
    group = ANSWERABLE if record.get("relevant") else OFF_TOPIC
    fields = {"collection": DEFAULT_COLLECTION, "group": group, **record, "cue": cue}
    try:
        case = _validate_case(fields)
    except ValidationError as error:
        raise InputError(
            f"{first_problem(error)}. A case takes a cue (its words, or an object of text, parts, "
            "task), relevant (a list of keys), at, group, category and collection."
        ) from error
    if not case.cue.words.strip():
        raise InputError(f"A cue must be a text, got {record['cue']!r}. Write the words.")
    return replace(case, at=aware(case.at))


# --- traces ---------------------------------------------------------------------------------------


def cases_from_traces(records: Iterable[Mapping[str, Any]], *, name: str = "traces") -> CaseSet:
    """Cases from what `TraceLog` recorded, texts included.

    Every recall with good feedback becomes a case: its cue, its time of asking, and the memories
    that were cited or reported as good. The memories of a collection are all that were ever
    candidates in those namespaces, as they were last seen. Recalls without good feedback only
    lend their memories; the notes say how many.

    Args:
        records: Records of recalls and of feedback, as `read_log` gives them.
        name: What the set is called.

    Raises:
        InputError: No recall has good feedback, or a record cannot be read.
    """
    good = defaultdict[str, set[str]](set)
    recalls: list[tuple[str, tuple[Namespace, ...], Cue, datetime]] = []
    seen: dict[tuple[Namespace, ...], dict[MemoryId, Memory]] = {}
    without_text = 0
    for record in records:
        kind = kind_of(record)
        if kind == FEEDBACK and record.get("good") is True:
            good[str(record.get("recall"))].add(str(record.get("key")))
        if kind in (ANSWER, VERDICT, FEEDBACK):
            continue
        recall = from_dict(record)
        trace, memories = recall.trace, (*recall.memories, *(it.memory for it in recall.dropped))
        if not all(memory.text for memory in memories):
            without_text += 1
            continue
        seen.setdefault(trace.namespaces, {}).update((memory.id, memory) for memory in memories)
        cue = Cue(trace.cue.text, trace.cue.parts, trace.cue.task)
        recalls.append((str(record.get("id")), trace.namespaces, cue, trace.at))
    collections = {namespaces: _collect(namespaces, found) for namespaces, found in seen.items()}
    cases = []
    for recall_id, namespaces, cue, at in recalls:
        collection, names = collections[namespaces]
        relevant = {label for key in good.get(recall_id, ()) for label in names[key]}
        if relevant:
            cases.append(Case(collection.name, cue, frozenset(relevant), at))
    if not cases:
        raise InputError(
            f"None of {len(recalls)} traces has good feedback on a memory it brought. "
            "Report outcomes with RecallStore.feedback."
        )
    wanted = {case.collection for case in cases}
    used = tuple(each for each, _ in collections.values() if each.name in wanted)
    unjudged = len(recalls) - len(cases)
    left_out = {"recorded without text": without_text, "without good feedback": unjudged}
    notes = (f"{count} traces left out: {why}" for why, count in left_out.items() if count)
    return CaseSet(name, used, tuple(cases), tuple(notes))


def _collect(
    namespaces: Iterable[Namespace], found: Mapping[MemoryId, Memory]
) -> tuple[Collection, Mapping[str, list[str]]]:
    """All memories seen in some namespaces under names of their own, and those names by key."""
    is_one_home = len({namespace for namespace, _ in found}) == 1
    names, memories = defaultdict[str, list[str]](list), []
    for memory in found.values():
        label = memory.key if is_one_home else _join((*memory.namespace, memory.key))
        names[memory.key].append(label)
        memories.append((label, write_value(memory)))
    return Collection(" + ".join(map(_join, namespaces)) or "all", tuple(memories)), names


def _join(labels: Namespace) -> str:
    """Labels as one name, from which they could be told apart again."""
    return "/".join(label.replace("%", "%25").replace("/", "%2F") for label in labels)
