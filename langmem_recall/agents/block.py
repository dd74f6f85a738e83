"""From what was recalled to the block within its budget: whole, shortened or summarised lines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple

from langmem_recall.agents.compaction import CompactionError, shorten
from langmem_recall.agents.records import (
    DENIED,
    RecallRecord,
    ShownMemory,
    digest,
    is_unchanged,
    shown_id,
)
from langmem_recall.agents.turn import ModelCall, Turn
from langmem_recall.cue import words_of
from langmem_recall.memory.conflicts import is_denied
from langmem_recall.rendering import SENTENCE, Entry, label, line_of
from langmem_recall.types import Drop, Memory, MemoryId, Recall, Scored, View

Count = Callable[[str], int]
Renderer = Callable[[Sequence[Entry], str, datetime], str]
"""Makes the block from its lines, its nonce and the time of the recall."""

LEAST_TEXT = 60
"""Characters of a memory that are worth showing."""
SHORTENED = "shortened"
_FRAME = f'<recalled-memories id="{"0" * 16}">\n{SENTENCE}\n</recalled-memories id="{"0" * 16}">'


class Draft(NamedTuple):
    """Lines that fit the budget, and what becomes of the others."""

    entries: list[Entry]
    """Every line, shortened where it had to be."""
    rooms: dict[str, int]
    """Tokens that each shortened line may use, by its handle."""
    dropped: list[Scored]


def draft(recall: Recall, first: int, budget: int, count: Count, said: Sequence[str] = ()) -> Draft:
    """Fit a recall into its budget, the best memories whole before the others.

    Args:
        recall: What was recalled.
        first: Number of the first handle.
        budget: Tokens for the whole block.
        count: Counts tokens.
        said: What humans have said in the conversation, which wins over what was stored.
    """
    at, shared = recall.trace.at, _is_shared(recall)
    ordered = _newest_first(recall)
    entries = [
        Entry(scored.memory, f"m{number}") for number, scored in enumerate(ordered, start=first)
    ]
    entries = [_denied(entry, said) for entry in _with_conflicts(entries, recall)]

    def cost(entry: Entry) -> int:
        return count(line_of(entry, at, shared=shared)) + 1

    whole = [cost(entry) for entry in entries]
    least = [cost(entry._replace(text=entry.memory.text[:LEAST_TEXT])) for entry in entries]
    packing = pack(whole, least, max(budget - count(_FRAME), 0))
    rooms = {entries[i].handle: room for i, room in packing.shortened.items()}
    kept = [entry for i, entry in enumerate(entries) if i not in packing.dropped]
    lines = [
        _shortened(entry, rooms[entry.handle], recall.trace.cue.words, cost)
        if entry.handle in rooms
        else entry
        for entry in kept
    ]
    shown = [line for line in lines if line.text != ""]
    held = {line.handle for line in shown}
    dropped = [
        scored for entry, scored in zip(entries, ordered, strict=True) if entry.handle not in held
    ]
    return Draft(shown, {one: room for one, room in rooms.items() if one in held}, dropped)


def shortened(entry: Entry, room: int, at: datetime, shared: bool, count: Count) -> Entry:
    """A line shortened again to the room it had, when its cue is no longer known."""
    return _shortened(entry, room, "", lambda line: count(line_of(line, at, shared=shared)) + 1)


def _shortened(entry: Entry, room: int, cue_words: str, cost: Callable[[Entry], int]) -> Entry:
    noted = entry._replace(notes=(*entry.notes, SHORTENED))
    text = shorten(
        entry.memory.text, cue_words, lambda text: cost(noted._replace(text=text)) <= room
    )
    return noted._replace(text=text)


def _is_shared(recall: Recall) -> bool:
    return len(recall.trace.namespaces) > 1


def with_homes(entries: Sequence[Entry], several: bool) -> Sequence[Entry]:
    """Lines that tell their namespace where several were asked and only one answered."""
    if not several or len({entry.memory.namespace for entry in entries}) > 1:
        return entries
    home = f"from {'/'.join(entries[0].memory.namespace)}"
    return [entry._replace(notes=(home, *entry.notes)) for entry in entries]


def _newest_first(recall: Recall) -> list[Scored]:
    """The chosen in their order; of two that contradict each other the newer takes the lead."""
    ordered = list(recall.chosen)
    for newer, older in recall.trace.conflicts:
        places = {scored.memory.id: place for place, scored in enumerate(ordered)}
        if newer in places and older in places and places[older] < places[newer]:
            ordered.insert(places[older], ordered.pop(places[newer]))
    return ordered


def _with_conflicts(entries: Sequence[Entry], recall: Recall) -> list[Entry]:
    handles = {entry.memory.id: entry.handle for entry in entries}
    older = {old: handles[new] for new, old in recall.trace.conflicts if new in handles}
    return [
        entry._replace(notes=(f"older than {older[entry.memory.id]} which may contradict it",))
        if entry.memory.id in older
        else entry
        for entry in entries
    ]


def _denied(entry: Entry, said: Sequence[str]) -> Entry:
    if not is_denied(entry.memory, said):
        return entry
    return entry._replace(notes=(*entry.notes, DENIED))


def with_summary(drafted: Draft, summary: str, recall: Recall) -> list[Entry]:
    """The lines with all shortened ones as a single summary that keeps handles and labels."""
    whole = [entry for entry in drafted.entries if entry.handle not in drafted.rooms]
    return [*whole, _summary_line(drafted, summary, recall)]


def _summary_line(drafted: Draft, summary: str, recall: Recall) -> Entry:
    first, *rest = [entry for entry in drafted.entries if entry.handle in drafted.rooms]
    handles = ", ".join(entry.handle for entry in (first, *rest))
    at, shared = recall.trace.at, _is_shared(recall)
    labels = [f"{entry.handle}: {label(entry.memory, at, shared)}" for entry in rest]
    # A note each, because a long one would be cut.
    notes = [item for told in labels for item in told.split(", ")]
    return Entry(first.memory, handles, summary, ("summary", *notes))


def summary_room(drafted: Draft, recall: Recall, count: Count) -> tuple[int, Count]:
    """Tokens that the words of a summary may use, and how they count in their line."""

    def cost(words: str) -> int:
        line = line_of(_summary_line(drafted, words, recall), recall.trace.at, shared=shared)
        return count(line) + 1

    shared = _is_shared(recall)
    empty = cost("")
    room = sum(drafted.rooms.values()) - empty
    if room <= 0:
        raise CompactionError("The labels leave no room for a summary.")
    return room, lambda words: cost(words) - empty


def packed(recall: Recall, drafted: Draft, budget: int, tokens: int) -> Recall:
    """The recall as it is shown: what did not fit is dropped, what was shortened is named."""
    gone = {scored.memory.id for scored in drafted.dropped}
    reason = f"its label alone does not fit the budget of {budget:,} tokens"
    compacted: Sequence[MemoryId] = [
        entry.memory.id for entry in drafted.entries if entry.handle in drafted.rooms
    ]
    trace = replace(recall.trace, budget_tokens=budget, tokens=tokens, compacted=tuple(compacted))
    return Recall(
        tuple(scored for scored in recall.chosen if scored.memory.id not in gone),
        (*recall.dropped, *(Drop(scored, "budget", reason) for scored in drafted.dropped)),
        trace,
    )


def scores_of(recall: Recall) -> Mapping[MemoryId, Scored]:
    """The chosen by their ids."""
    return {scored.memory.id: scored for scored in recall.chosen}


def view_of(
    scene: ModelCall,
    turn: Turn,
    shown: Sequence[RecallRecord],
    old: Sequence[RecallRecord],
    found: Sequence[Memory | None],
) -> View:
    """What the model sees before this turn's block: earlier messages and blocks that stand."""
    before = scene.messages[: max(turn.place, 0)]
    fetched = [one for record in old for one in record["memories"]]
    changed = {
        shown_id(one)
        for one, memory in zip(fetched, found, strict=True)
        if not is_unchanged(one, memory)
    }
    ids = {shown_id(one) for record in shown for one in record["memories"]}
    return View(
        texts=tuple(filter(None, map(words_of, before))),
        ids=frozenset(ids - changed),
        thread_id=turn.thread_id,
        turns=frozenset(turn.keys[: max(turn.place, 0)]),
    )


def record_of(
    turn: Turn, cue: str, after: str | None, recall: Recall, drafted: Draft
) -> RecallRecord:
    """The record of a recall, but for the tokens that its block turns out to use."""
    scores = scores_of(recall)
    at = recall.trace.at.isoformat()
    memories = [_shown_memory(entry, scores, drafted) for entry in drafted.entries]
    told = repr((turn.thread_id, turn.key, cue, after, at, [one["key"] for one in memories]))
    return RecallRecord(
        id=digest(told),
        turn=turn.key,
        cue=cue,
        after=after,
        at=at,
        memories=memories,
        dropped=recall.drop_counts(),
        reason=recall.reason,
        tokens=0,
        budget=0,
        degraded=list(recall.trace.degraded),
    )


def failed_record(turn: Turn, recall: Recall) -> RecallRecord:
    """One for each turn, the latest: an outage must not crowd out what was recalled before it."""
    record = record_of(turn, "", None, recall, Draft([], {}, []))
    return {**record, "id": digest(repr((turn.thread_id, turn.key, "failed")))}


def _shown_memory(entry: Entry, scores: Mapping[MemoryId, Any], drafted: Draft) -> ShownMemory:
    memory, scored = entry.memory, scores[entry.memory.id]
    return ShownMemory(
        handle=entry.handle,
        namespace=list(memory.namespace),
        key=memory.key,
        source=memory.source,
        score=round(scored.score, 6),
        relevance=round(scored.signals.relevance, 6),
        digest=digest(memory.text),
        notes=[note for note in entry.notes if note != SHORTENED],
        room=drafted.rooms.get(entry.handle),
        verified=not memory.needs_verification,
    )


class Packing(NamedTuple):
    """What becomes of each line, by its index."""

    whole: list[int]
    shortened: dict[int, int]
    """Tokens that a line may use."""
    dropped: list[int]


def pack(whole: Sequence[int], least: Sequence[int], budget: int) -> Packing:
    """Fit lines into a budget, the best first.

    Args:
        whole: Tokens of each line in full, in rank order.
        least: Tokens of each line with as little text as makes sense.
        budget: Tokens for all lines together.
    """
    floors = [min(pair) for pair in zip(whole, least, strict=True)]
    # One that could not stay even alone must not take the others with it.
    fitting = [i for i, floor in enumerate(floors) if floor <= budget]
    spare = budget - sum(floors[i] for i in fitting)
    while fitting and spare < 0:
        spare += floors[fitting.pop()]
    in_full: list[int] = []
    shortened: dict[int, int] = {}
    for i in fitting:
        if whole[i] - floors[i] <= spare:
            spare -= whole[i] - floors[i]
            in_full.append(i)
        else:
            shortened[i] = floors[i]
    for best in list(shortened)[:1]:
        # It can use all of it: had that been enough to be whole, it would be.
        shortened[best] += spare
    return Packing(in_full, shortened, sorted(set(range(len(floors))) - set(fitting)))
