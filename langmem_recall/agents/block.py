"""From what was recalled to the block within its budget: whole, shortened or summarised lines."""

from __future__ import annotations

import asyncio
import json
import math
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from typing import NamedTuple

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage
from langchain_core.runnables import RunnableConfig
from langgraph.constants import TAG_NOSTREAM

from langmem_recall.agents import turn
from langmem_recall.agents.options import Count
from langmem_recall.agents.turn import ModelCall, RecallRecord, ShownMemory, digest
from langmem_recall.deadline import Deadline
from langmem_recall.flows.effects import Call
from langmem_recall.memory.conflicts import denied
from langmem_recall.memory.upkeep import is_in_force
from langmem_recall.rendering import SENTENCE, Entry, label, line_of
from langmem_recall.text.tokens import is_identifier, tokens, word_lists
from langmem_recall.types import VERIFIED_TRUST, Drop, Memory, Recall

MESSAGE_TOKENS = 10  # what the message around a block costs: its role and its name
SHORTENED = "shortened"
SUMMARY_TAG = "session_summary"  # marks the summary that a session has left
SURE = 0.8  # confidence from which a memory is part of a profile
OVERRUN = 1.1  # how much longer than allowed a summary may be and still be cut, not refused
_BRACKETED, _HANDLE = re.compile(r"\[([^\[\]]+)\]"), re.compile("m[0-9]+")
_INSTRUCTIONS: str = word_lists("agents/prompts")["instructions"]["summarize"]
_FRAME = f'<recalled-memories id="{"0" * 16}">\n{SENTENCE}\n</recalled-memories id="{"0" * 16}">'


class CompactionError(Exception):
    """A model's summary cannot be used; the message says why."""


class Draft(NamedTuple):
    """Lines that fit the budget."""

    entries: list[Entry]  # every line, shortened where it had to be
    rooms: dict[str, int]  # tokens that each shortened line may use, by its handle
    spans: dict[str, list[tuple[int, int]]]  # places of the text that it shows, by its handle
    recall: Recall  # as it is shown: what did not fit is dropped, what was shortened is named
    tokens: int = 0  # that its block takes at most, with the message around it
    profile: Sequence[Entry] = ()  # what the turn begins with whatever its cue, first of all


def draft(
    recall: Recall,
    first: int,
    budget: int,
    count: Count,
    said: Sequence[str] = (),
    profile: Sequence[Memory] = (),
    profile_room: int = 0,
) -> Draft:
    """Fit a recall into its budget, the best memories whole before the others.

    Handles are numbered from `first`; what humans have `said` wins over what was stored. Of a
    profile, as many whole lines come first as there is room for.
    """
    cost = line_cost(count, recall.trace.at, len(recall.trace.namespaces) > 1)
    begun, taken = list[Entry](), 0
    for memory in profile:
        entry = Entry(memory, f"m{first}", notes=(turn.PROFILE,))
        if taken + (size := cost(entry)) <= profile_room:
            begun.append(entry)
            first, taken = first + 1, taken + size
    budget -= taken
    entries, frame = _whole_lines(recall, first, said), count(_FRAME) + MESSAGE_TOKENS
    least = whole = [cost(entry) for entry in entries]
    sentences = list[list[_Span]]()
    if sum(whole) + frame > budget:
        texts, words = [entry.memory.text for entry in entries], recall.trace.cue.words
        sentences = [ranked_sentences(text, words) for text in texts]
        best = [join(text, ranked[:1]) for text, ranked in zip(texts, sentences, strict=True)]
        least = [cost(_shortened(*pair)) for pair in zip(entries, best, strict=True)]
    rooms = pack(whole, least, max(budget - frame, 0))
    drafted, drops = Draft([], {}, {}, recall, profile=begun), list[Drop]()
    scored_of = {scored.memory.id: scored for scored in recall.chosen}
    for i, entry in enumerate(entries):
        if (room := rooms.get(i)) is None:
            reason = f"not even a sentence of it fits the budget of {budget:,} tokens"
            drops.append(Drop(scored_of[entry.memory.id], "budget", reason))
            continue
        if room < whole[i]:

            def fits(text: str, entry: Entry = entry, room: int = room) -> bool:
                return cost(_shortened(entry, text)) <= room

            spans = fitting(entry.memory.text, sentences[i], fits)
            drafted.rooms[entry.handle], drafted.spans[entry.handle] = room, spans
            entry = _shortened(entry, join(entry.memory.text, spans))
        drafted.entries.append(entry)
    gone = {drop.memory.id for drop in drops}
    short = tuple(entry.memory.id for entry in drafted.entries if entry.handle in drafted.rooms)
    packed = Recall(
        tuple(scored for scored in recall.chosen if scored.memory.id not in gone),
        (*recall.dropped, *drops),
        replace(recall.trace, compacted=short),
    )
    taken += sum(rooms.values())
    return drafted._replace(recall=packed, tokens=taken + frame if taken else 0)


def _whole_lines(recall: Recall, first: int, said: Sequence[str]) -> list[Entry]:
    """Each memory with what to note of it, the newer of two that contradict each other first."""
    memories = list(recall.memories)
    for newer, older in recall.trace.conflicts:
        places = {memory.id: place for place, memory in enumerate(memories)}
        if newer in places and older in places and places[older] < places[newer]:
            memories.insert(places[older], memories.pop(places[newer]))
    handles = {memory.id: f"m{number}" for number, memory in enumerate(memories, first)}
    newer_of = {older: handles[new] for new, older in recall.trace.conflicts if new in handles}
    entries = []
    for memory, is_denied in zip(memories, denied(memories, said), strict=True):
        notes = [turn.CONTRADICTED.format(newer_of[memory.id])] if memory.id in newer_of else []
        notes += [turn.DENIED] if is_denied else []
        entries.append(Entry(memory, handles[memory.id], notes=tuple(notes)))
    return entries


def profile_of(memories: Iterable[Memory], now: datetime, most: int) -> list[Memory]:
    """Pinned memories, then the salient and sure ones, then the newest summary of a session."""

    def is_lasting(one: Memory) -> bool:
        is_sure = one.confidence_at(now) >= SURE and one.authority >= VERIFIED_TRUST
        return one.pinned or (one.kind != "episodic" and is_sure)

    def age(one: Memory) -> float:
        return -math.inf if math.isnan(one.written_ts) else one.written_ts

    def worth(one: Memory) -> tuple[bool, float, bool, float]:
        # What somebody confirmed was asked about again, so it matters more than what was said once.
        return one.pinned, one.salience, one.confirmed_at is not None, age(one)

    in_force = [memory for memory in memories if is_in_force(memory, now)]
    newest = sorted((one for one in in_force if SUMMARY_TAG in one.tags), key=age)[-1:]
    lasting = sorted(filter(is_lasting, in_force), key=worth)[::-1]
    return [*lasting[: most - len(newest)], *newest]


def line_cost(count: Count, at: datetime, shared: bool) -> Callable[[Entry], int]:
    """How many tokens a line of a block takes."""
    return lambda entry: count(line_of(entry, at, shared=shared)) + 1


def line_again(memory: Memory, shown: ShownMemory) -> Entry:
    """A line as it was shown."""
    entry = Entry(memory, shown["handle"], notes=tuple(shown["notes"]))
    return _shortened(entry, join(memory.text, shown["spans"])) if shown["spans"] else entry


def _shortened(entry: Entry, text: str) -> Entry:
    return entry._replace(notes=(*entry.notes, SHORTENED), text=text)


def with_homes(entries: Sequence[Entry], several: bool) -> Sequence[Entry]:
    """Lines that name their namespace where several were searched and only one answered."""
    if not several or len({entry.memory.namespace for entry in entries}) > 1:
        return entries
    home = f"from {'/'.join(entries[0].memory.namespace)}"
    return [entry._replace(notes=(home, *entry.notes)) for entry in entries]


def summarize(
    drafted: Draft, model: BaseChatModel, count: Count, limit: Deadline | None = None
) -> Call:
    """The call that answers with the lines, all shortened ones as one that a model words anew.

    The last line keeps their handles and labels. It fails with a `CompactionError` where the
    model's text is empty, too long, or does not cite just these handles.
    """
    trace = drafted.recall.trace
    shared = len(trace.namespaces) > 1
    cost = line_cost(count, trace.at, shared)
    whole = [entry for entry in drafted.entries if entry.handle not in drafted.rooms]
    first, *rest = short = [entry for entry in drafted.entries if entry.handle in drafted.rooms]
    labels = [f"{entry.handle}: {label(entry.memory, trace.at, shared)}" for entry in rest]
    # A note for each item, because a long one would be cut.
    notes = ("summary", *(item for words in labels for item in words.split(", ")))
    last = Entry(first.memory, ", ".join(drafted.rooms), "", notes)
    most_tokens = sum(drafted.rooms.values()) - cost(last)
    if most_tokens <= 0:
        raise CompactionError("The labels leave no room for a summary.")
    records = [
        {"busy with": trace.cue.words},
        *({"id": entry.handle, "text": entry.memory.text} for entry in short),
    ]
    request: list[BaseMessage] = [
        SystemMessage(_INSTRUCTIONS.format(most_tokens=most_tokens)),
        HumanMessage("\n".join(map(as_data, records))),
    ]
    # The summary is no message of the agent's: its tokens stay out of the graph's stream.
    config: RunnableConfig = {"tags": [TAG_NOSTREAM], "run_name": "recall_compaction"}

    def length(text: str) -> int:
        return cost(last._replace(text=text)) - cost(last)

    def check(answer: BaseMessage) -> list[Entry]:
        if (tokens := length(answer.text)) > most_tokens * OVERRUN:
            allowed = f"where {most_tokens} were allowed"
            raise CompactionError(f"The summary has {tokens} tokens {allowed}.")
        summary = answer.text.strip()
        if length(summary) > most_tokens:
            ranked = ranked_sentences(summary, " ".join([*drafted.rooms, trace.cue.words]))
            short_enough = fitting(summary, ranked, lambda text: length(text) <= most_tokens)
            summary = join(summary, short_enough)
        if not summary:
            raise CompactionError("The summary is empty.")
        cited = set(re.split(r"[,;\s]+", ",".join(_BRACKETED.findall(summary))))
        if missing := sorted(drafted.rooms.keys() - cited):
            raise CompactionError(f"The summary does not cite {', '.join(missing)}.")
        foreign = sorted(name for name in cited - drafted.rooms.keys() if _HANDLE.fullmatch(name))
        if foreign:
            raise CompactionError(f"The summary cites {', '.join(foreign)}, which do not exist.")
        return [*whole, last._replace(text=summary)]

    async def acall() -> list[Entry]:
        return await asyncio.to_thread(check, await model.ainvoke(request, config))

    return Call(lambda: check(model.invoke(request, config)), acall, limit)


def as_data(record: Mapping[str, str]) -> str:
    """JSON in which a text cannot show a bracket, a tag or anything invisible."""

    def escape(char: str) -> str:
        if char.isprintable() and char not in "<>&[]`":
            return char
        return f"\\u{ord(char):04x}" if char.isascii() else json.dumps(char)[1:-1]

    return "".join(map(escape, json.dumps(record, ensure_ascii=False)))


def record_of(call: ModelCall, cue: str, after: str | None, drafted: Draft) -> RecallRecord:
    """What the state keeps of a recall, but for the tokens that its block uses."""
    recall = drafted.recall
    scores = {scored.memory.id: scored for scored in recall.chosen}

    def shown(entry: Entry) -> ShownMemory:
        scored = scores.get(entry.memory.id)
        return ShownMemory(
            handle=entry.handle,
            namespace=list(entry.memory.namespace),
            key=entry.memory.key,
            source=entry.memory.source,
            score=round(scored.score, 6) if scored else 0.0,
            relevance=round(scored.signals.relevance, 6) if scored else 0.0,
            digest=digest(entry.memory.text),
            notes=[note for note in entry.notes if note != SHORTENED],
            spans=[[*span] for span in drafted.spans.get(entry.handle, ())],
            verified=not entry.memory.needs_verification,
        )

    memories = [*map(shown, drafted.entries)]
    at = recall.trace.at.isoformat()
    # Of failed ones only the latest in a turn: an outage must not crowd out what came before it.
    rest = (cue, after, at, [memory["key"] for memory in memories]) if cue else ("failed",)
    name = (call.name,) if call.name else ()
    return RecallRecord(
        id=digest(repr((call.thread_id, call.turn, *rest, *name))),
        turn=call.turn,
        cue=cue,
        after=after,
        at=at,
        memories=memories,
        dropped=recall.drop_counts(),
        reason=recall.reason,
        tokens=0,
        budget=call.budget,
        degraded=list(recall.trace.degraded),
        block_tokens=0,
        profile=[*map(shown, drafted.profile)],
        by=call.name,
        gone=[],
    )


def pack(whole: Sequence[int], least: Sequence[int], budget: int) -> dict[int, int]:
    """Tokens that each line which fits may use, by its index: the best first, whole if possible.

    `whole` and `least` are the tokens of each line in full and with a single sentence.
    """
    rooms: dict[int, int] = {}
    left = budget
    for i, sizes in enumerate(zip(whole, least, strict=True)):
        if fitting := [size for size in sizes if size <= left]:
            rooms[i] = fitting[0]
            left -= fitting[0]
    best = next((i for i in rooms if rooms[i] < whole[i]), None)
    if best is not None:
        # It can use all of it: had that been enough to be whole, it would be.
        rooms[best] += left
    return rooms


# --- a shorter text for a memory that does not fit: whole sentences with the words of the cue ---

MOST_MISSES = 8  # sentences in a row that find no room before the rest is not tried any more
LONG_SENTENCE = 600  # characters from which a sentence counts as several: a log, a table
# A run of marks is taken whole and then looked at: a lookahead would scan it from each of them.
_SENTENCE_END = re.compile(
    r"[.!?…]++[\"'\u201d\u2019)\]]*+(?P<gap>\s++|$)?"
    r"|[\u3002\uff01\uff1f\uff1b\uff61]++[\u300d\u300f\u201d\u2019\uff09]*+\s*+|\n\s*+"
)
# A passage ends between words, or between characters of scripts without spaces.
_PASSAGE = re.compile(r".{200,300}(?=[^!-~]|$)|.{1,300}", re.DOTALL)
_Span = tuple[int, int]


def ranked_sentences(text: str, cue_words: str) -> list[_Span]:
    """The sentences of a text, as places in it, in the order in which they are worth showing.

    Most identifiers of the cue first, then most of its terms, then the earlier.
    """
    ends = (
        found.end()
        for found in _SENTENCE_END.finditer(text)
        if found["gap"] is not None or found.group()[0] not in ".!?…"
    )
    spans = list[_Span]()
    for start, end in pairwise(sorted({0, *ends, len(text)})):
        if end - start > LONG_SENTENCE:
            spans += (passage.span() for passage in _PASSAGE.finditer(text, start, end))
        else:
            spans.append((start, end))
    terms = frozenset(tokens(cue_words))
    names = frozenset(filter(is_identifier, terms))

    def worth(span: _Span) -> tuple[int, int]:
        found = terms.intersection(tokens(text[slice(*span)]))
        return -len(names & found), -len(found)

    return sorted((span for span in spans if text[slice(*span)].strip()), key=worth)


def fitting(text: str, ranked: Sequence[_Span], fits: Callable[[str], bool]) -> list[_Span]:
    """As many sentences of a text as fit, the best first, as places in it."""
    taken = list[_Span]()

    def has_room_for(more: Sequence[_Span]) -> bool:
        return fits(join(text, [*taken, *more]))

    # By doubling and halving, because each look costs as much as all that is taken.
    most = 1
    while most < len(ranked) and has_room_for(ranked[:most]):
        most *= 2
    sizes = range(1, min(most, len(ranked)) + 1)
    first = bisect_left(sizes, True, key=lambda size: not has_room_for(ranked[:size]))
    taken += ranked[:first]
    misses = 0
    for sentence in ranked[first:]:
        if misses == MOST_MISSES:
            break
        misses += 1
        if has_room_for([sentence]):
            taken.append(sentence)
            misses = 0
    return merge(taken)


def merge(spans: Iterable[_Span]) -> list[_Span]:
    """The same places of the text as spans in order, apart from each other."""
    merged: list[_Span] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def join(text: str, spans: Iterable[Sequence[int]]) -> str:
    """The text of some spans in order, with a mark wherever something is left out."""
    merged = merge((start, end) for start, end in spans)
    if not merged:
        return ""
    parts = [text[slice(*span)].strip() for span in merged]
    head, tail = text[: merged[0][0]].strip(), text[merged[-1][1] :].strip()
    return " … ".join([""] * bool(head) + parts + [""] * bool(tail)).strip()
