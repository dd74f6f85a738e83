"""From what was recalled to the block within its budget: whole, shortened or summarised lines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple

from langchain_core.language_models import BaseChatModel

from langmem_recall.agents.options import Count
from langmem_recall.agents.shorten import shorten
from langmem_recall.agents.summarize import CompactionError, summarize
from langmem_recall.agents.turn import (
    CONTRADICTED,
    DENIED,
    ModelCall,
    RecallRecord,
    ShownMemory,
    digest,
)
from langmem_recall.deadline import Deadline
from langmem_recall.flows.effects import Call
from langmem_recall.memory.conflicts import is_denied
from langmem_recall.rendering import SENTENCE, Entry, label, line_of
from langmem_recall.types import Drop, Recall, Scored

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

    Handles are numbered from `first`; what humans have `said` wins over what was stored.
    """
    ordered = list(recall.chosen)
    for newer, older in recall.trace.conflicts:
        places = {scored.memory.id: place for place, scored in enumerate(ordered)}
        if newer in places and older in places and places[older] < places[newer]:
            ordered.insert(places[older], ordered.pop(places[newer]))
    handles = {scored.memory.id: f"m{number}" for number, scored in enumerate(ordered, first)}
    newer_of = {older: handles[new] for new, older in recall.trace.conflicts if new in handles}
    entries = []
    for memory in (scored.memory for scored in ordered):
        notes = [CONTRADICTED.format(newer_of[memory.id])] if memory.id in newer_of else []
        if is_denied(memory, said):
            notes.append(DENIED)
        entries.append(Entry(memory, handles[memory.id], notes=tuple(notes)))
    cost = line_cost(count, recall.trace.at, len(recall.trace.namespaces) > 1)
    whole = [cost(entry) for entry in entries]
    least = [cost(entry._replace(text=entry.memory.text[:LEAST_TEXT])) for entry in entries]
    packing = pack(whole, least, max(budget - count(_FRAME), 0))
    drafted = Draft([], {}, [])
    for i, (entry, scored) in enumerate(zip(entries, ordered, strict=True)):
        room = packing.shortened.get(i)
        if room is not None:
            entry = shorten_line(entry, room, recall.trace.cue.words, cost)
        if i in packing.dropped or entry.text == "":
            drafted.dropped.append(scored)
            continue
        drafted.entries.append(entry)
        if room is not None:
            drafted.rooms[entry.handle] = room
    return drafted


def line_cost(count: Count, at: datetime, shared: bool) -> Callable[[Entry], int]:
    """How many tokens a line of a block takes."""
    return lambda entry: count(line_of(entry, at, shared=shared)) + 1


def shorten_line(entry: Entry, room: int, cue_words: str, cost: Callable[[Entry], int]) -> Entry:
    """A line within its room; without words of the cue where it is no longer known."""
    noted = entry._replace(notes=(*entry.notes, SHORTENED))
    text = shorten(
        entry.memory.text, cue_words, lambda text: cost(noted._replace(text=text)) <= room
    )
    return noted._replace(text=text)


def with_homes(entries: Sequence[Entry], several: bool) -> Sequence[Entry]:
    """Lines that name their namespace where several were searched and only one answered."""
    if not several or len({entry.memory.namespace for entry in entries}) > 1:
        return entries
    home = f"from {'/'.join(entries[0].memory.namespace)}"
    return [entry._replace(notes=(home, *entry.notes)) for entry in entries]


def summary_call(
    drafted: Draft, recall: Recall, model: BaseChatModel, count: Count, limit: Deadline
) -> Call:
    """The call that answers with one text for all shortened lines, within their room."""
    line = line_cost(count, recall.trace.at, len(recall.trace.namespaces) > 1)

    def cost(words: str) -> int:
        return line(with_summary(drafted, words, recall)[-1])

    empty = cost("")
    room = sum(drafted.rooms.values()) - empty
    if room <= 0:
        raise CompactionError("The labels leave no room for a summary.")
    short = [entry for entry in drafted.entries if entry.handle in drafted.rooms]
    texts = [(entry.handle, entry.memory.text) for entry in short]
    words = recall.trace.cue.words
    return summarize(texts, words, model, room, lambda text: cost(text) - empty, limit)


def with_summary(drafted: Draft, summary: str, recall: Recall) -> list[Entry]:
    """The lines with all shortened ones as a single last one that keeps handles and labels."""
    at, shared = recall.trace.at, len(recall.trace.namespaces) > 1
    whole = [entry for entry in drafted.entries if entry.handle not in drafted.rooms]
    first, *rest = [entry for entry in drafted.entries if entry.handle in drafted.rooms]
    labels = [f"{entry.handle}: {label(entry.memory, at, shared)}" for entry in rest]
    # A note for each item, because a long one would be cut.
    notes = [item for words in labels for item in words.split(", ")]
    handles = ", ".join(drafted.rooms)
    return [*whole, Entry(first.memory, handles, summary, ("summary", *notes))]


def packed(recall: Recall, drafted: Draft, budget: int, **trace: Any) -> Recall:
    """The recall as it is shown: what did not fit is dropped, what was shortened is named."""
    gone = {scored.memory.id for scored in drafted.dropped}
    reason = f"its label alone does not fit the budget of {budget:,} tokens"
    short = (entry.memory.id for entry in drafted.entries if entry.handle in drafted.rooms)
    return Recall(
        tuple(scored for scored in recall.chosen if scored.memory.id not in gone),
        (*recall.dropped, *(Drop(scored, "budget", reason) for scored in drafted.dropped)),
        replace(recall.trace, budget_tokens=budget, compacted=tuple(short), **trace),
    )


def record_of(
    call: ModelCall, cue: str, after: str | None, recall: Recall, drafted: Draft
) -> RecallRecord:
    """What the state keeps of a recall, but for the tokens that its block turns out to use."""
    scores = {scored.memory.id: scored for scored in recall.chosen}
    memories = [
        ShownMemory(
            handle=entry.handle,
            namespace=list(entry.memory.namespace),
            key=entry.memory.key,
            source=entry.memory.source,
            score=round(scores[entry.memory.id].score, 6),
            relevance=round(scores[entry.memory.id].signals.relevance, 6),
            digest=digest(entry.memory.text),
            notes=[note for note in entry.notes if note != SHORTENED],
            room=drafted.rooms.get(entry.handle),
            verified=not entry.memory.needs_verification,
        )
        for entry in drafted.entries
    ]
    at = recall.trace.at.isoformat()
    # Of failed ones only the latest in a turn: an outage must not crowd out what came before it.
    rest = (cue, after, at, [shown["key"] for shown in memories]) if cue else ("failed",)
    return RecallRecord(
        id=digest(repr((call.thread_id, call.turn, *rest))),
        turn=call.turn,
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
