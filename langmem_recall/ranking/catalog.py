"""What ranking must know of every memory in reach: its words, thread, speaker and standing."""

from __future__ import annotations

import calendar
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from langmem_recall.ranking.arrays import BoolArray, Column, FloatArray, IntArray
from langmem_recall.ranking.lexical import LexicalIndex
from langmem_recall.text.tokens import tokens
from langmem_recall.types import Memory, MemoryId, Namespace

TRAITS_VERSION = 2
"""Raised whenever `traits_of` reads a text differently, so that persisted traits are made anew."""

LARGEST_TURN = 2**53
"""Beyond it floats no longer tell neighbours apart."""
EPISODE_GAP_S = 3600.0
"""Memories without a thread that were written further apart are no neighbours."""
COHERENT_FROM = 30
"""Fewer pairs of neighbours do not show whether their order means anything."""
COHERENCE_SAMPLE = 5_000
COHERENT_SIGMAS = 5.0
COHERENT_SURPLUS = 0.5
"""Neighbours must share a word so much more often than chance: conversations do two to five times
as often and by 7 sigmas and more, unrelated notes about as often and within 3 sigmas."""
TIMED = 1
NUMBERED = 2
PINNED = 4
WORDS_REACH = 100_000
"""Characters of a text whose words are read: all that `remember` stores unless told otherwise."""

_WEEKDAY = "(?:mon|tues|wednes|thurs|fri|satur|sun)day"
_MONTH = (
    "january|february|april|june|july|august|september|october|november|december"
    # These two are also a verb and a walk.
    r"|(?:in|on|of|since|last|next|this)\s+(?:march|may)"
)
_MONTH_TERMS = frozenset(tokens(" ".join(calendar.month_name)))
_SPAN = "night|morning|evening|week|weekend|month|year|summer|winter|spring|autumn|fall"
_DIGITS = r"(?:19|20)\d\d|\d{1,2}:\d\d|\d{1,2}(?:st|nd|rd|th)"
_TIME = re.compile(
    rf"\b(?:yesterday|today|tonight|tomorrow|ago|recently|(?:last|next|this|past)\s+(?:few\s+)?"
    rf"(?:{_SPAN})s?|weekends?|{_WEEKDAY}s?|{_MONTH}|(?:year|month|week|day|hour|minute|morning|"
    rf"evening|night)s?|{_DIGITS})\b",
    re.IGNORECASE,
)
_DIGIT_TIME = re.compile(rf"\b(?:{_DIGITS})\b")
_TIME_HINTS = (
    *("day", "night", "morning", "evening", "week", "month", "year", "hour", "minute", "ago"),
    *("tomorrow", "recently", "summer", "winter", "spring", "autumn", "fall"),
    *(name.lower() for name in calendar.month_name if name),
)
"""A text with none of these speaks of a time in digits or not at all: looking for them is quicker
than reading the text by the whole pattern."""
_NUMBER = re.compile(
    r"\d|\b(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|dozen|hundred|"
    r"thousand|million|once|twice|thrice|both|couple|several|few|many|pair|half|first|second|"
    r"third)\b",
    re.IGNORECASE,
)


class Traits(NamedTuple):
    """The digest of one memory that relevance is computed from."""

    terms: Sequence[str]
    thread: str | None = None
    position: float = 0.0
    """Place within the thread."""
    speaker: str | None = None
    flags: int = 0
    """TIMED, NUMBERED: whether the text speaks of a time, of a number; PINNED."""
    supersedes: tuple[MemoryId, ...] = ()
    """Ids this memory puts out of force; its own id when it is itself superseded."""


def traits_of(memory: Memory) -> Traits:
    """Digest a memory once, when it is written or first seen."""
    superseded = [(memory.namespace, key) for key in memory.supersedes]
    if memory.status == "superseded":
        superseded.append(memory.id)
    return Traits(
        terms=tokens(lexical_text(memory)),
        thread=thread_of(memory),
        position=position_of(memory),
        speaker=memory.speaker.casefold() if memory.speaker else None,
        flags=_flags(memory),
        supersedes=tuple(superseded),
    )


def _flags(memory: Memory) -> int:
    text = memory.text[:WORDS_REACH]
    numbered = NUMBERED * bool(_NUMBER.search(text))
    return TIMED * is_timed(text) | numbered | PINNED * memory.pinned


def is_timed(text: str) -> bool:
    """Whether a text speaks of a time."""
    if text.isascii():
        folded = text.lower()
        if not any(hint in folded for hint in _TIME_HINTS):
            return bool(_DIGIT_TIME.search(folded))
    return bool(_TIME.search(text))


def lexical_text(memory: Memory) -> str:
    """The words a memory can be found by: its date, names and tags beside its text."""
    when = memory.written_at
    date = f"{when.day} {when:%B %Y}" if memory.dated and when else ""
    text = memory.text[:WORDS_REACH]
    return " ".join(part for part in (date, text, *memory.entities, *memory.tags) if part)


def thread_of(memory: Memory) -> str | None:
    """The thread within its namespace, so that equal thread names of two users stay apart."""
    if memory.thread_id is None:
        return None
    return repr((memory.namespace, memory.thread_id))


def position_of(memory: Memory) -> float:
    """The turn of its thread where it is a number, else the time of writing."""
    if memory.thread_id is not None and isinstance(memory.turn, int):
        return float(min(max(memory.turn, -LARGEST_TURN), LARGEST_TURN))
    return memory.written_at.timestamp() if memory.written_at else 0.0


class ThreadOrder(NamedTuple):
    """Live and dead rows laid out thread by thread, in the order of their turns."""

    rows: IntArray
    """Row at each place."""
    place: IntArray
    """Place of each row."""
    thread: IntArray
    """Thread number at each place; memories without a thread have one of their own."""
    starts: IntArray
    """Place where each thread begins."""
    thread_at: IntArray
    """Index into `starts` of the thread at each place."""
    follows: BoolArray
    """Whether the place before belongs to the same thread."""
    implied: BoolArray
    """Whether the place's thread is only known from the order of writing."""

    @property
    def has_neighbours(self) -> bool:
        """Whether any thread has more than one memory."""
        return len(self.starts) < len(self.rows)


class Links(NamedTuple):
    """What each place takes from the one before and the one after it, and what to divide by."""

    before: FloatArray
    after: FloatArray
    scale: FloatArray


def make_links(
    follows: BoolArray, known: BoolArray | None, previous: float, following: float
) -> Links:
    """Links between neighbours of a thread, where they are known."""
    linked = follows[1:]
    before, after = np.zeros(len(follows)), np.zeros(len(follows))
    before[1:] = previous * (linked if known is None else linked & known[:-1])
    after[:-1] = following * (linked if known is None else linked & known[1:])
    # Neighbours agree by a quarter even when nothing is asked, so their sum is scaled down by more.
    scale = np.sqrt(1 + before**2 + after**2 + 0.5 * (before + after + before * after))
    return Links(before, after, scale)


class Catalog:
    """Rows of memories under one namespace prefix. Not thread-safe: the owner locks."""

    def __init__(self) -> None:
        self.lexical = LexicalIndex()
        self.speakers: dict[str, int] = {}
        self.speaker = Column(np.int32)
        self.flags = Column(np.uint8)
        self._ids: list[MemoryId] = []
        self._row_of: dict[MemoryId, int] = {}
        self._threads: dict[str, int] = {}
        self._thread = Column(np.int32)
        self._homes: dict[Namespace, int] = {}
        self._home = Column(np.int32)
        self._position = Column(np.float64)
        self._supersedes: dict[int, tuple[MemoryId, ...]] = {}
        self._superseders: dict[MemoryId, set[int]] = {}
        self._order: ThreadOrder | None = None
        self._coherence: dict[str, tuple[int, bool]] = {}
        """Whether the order of some rows tells anything, and of how many rows that was said."""
        self._links: tuple[tuple[float, float], Links] | None = None
        self.version = 0
        """Grows with every change."""

    @classmethod
    def from_columns(
        cls,
        ids: Sequence[MemoryId],
        lexical: LexicalIndex,
        threads: Sequence[str | None],
        positions: Sequence[float],
        speakers: Sequence[str | None],
        flags: Sequence[int],
        supersedes: Iterable[tuple[int, tuple[MemoryId, ...]]],
    ) -> Catalog:
        """Load many memories at once; `lexical` holds them in the same order."""
        catalog = cls()
        catalog.lexical = lexical
        catalog._ids = list(ids)
        catalog._row_of = {memory_id: row for row, memory_id in enumerate(ids)}
        catalog._thread.extend([_number(catalog._threads, name) for name in threads])
        homes = catalog._homes
        catalog._home.extend([homes.setdefault(home, len(homes)) for home, _ in ids])
        catalog._position.extend(positions)
        catalog.speaker.extend([_number(catalog.speakers, name) for name in speakers])
        catalog.flags.extend(flags)
        for row, superseded in supersedes:
            catalog._supersede(row, superseded)
        return catalog

    @classmethod
    def of(cls, traits: Mapping[MemoryId, Traits]) -> Catalog:
        """Many memories at once, from their traits."""
        held = list(traits.values())
        return cls.from_columns(
            list(traits),
            LexicalIndex.from_documents(one.terms for one in held),
            [one.thread for one in held],
            [one.position for one in held],
            [one.speaker for one in held],
            [one.flags for one in held],
            [(row, one.supersedes) for row, one in enumerate(held)],
        )

    @property
    def rows(self) -> int:
        """Rows handed out, dead ones included."""
        return len(self._ids)

    @property
    def size(self) -> int:
        """Live memories."""
        return len(self._row_of)

    @property
    def alive(self) -> BoolArray:
        """Which rows are live."""
        return self.lexical.alive

    def row(self, memory_id: MemoryId) -> int | None:
        """The live row of a memory."""
        return self._row_of.get(memory_id)

    def id(self, row: int) -> MemoryId:
        """The memory at a row."""
        return self._ids[row]

    def ids(self) -> list[MemoryId]:
        """Ids of the live memories."""
        return list(self._row_of)

    def put(self, memory_id: MemoryId, traits: Traits) -> int:
        """Add a memory, or replace the one of that id; returns its new row."""
        self.remove(memory_id)
        row = self.lexical.add(traits.terms)
        self._ids.append(memory_id)
        self._row_of[memory_id] = row
        self._thread.append(_number(self._threads, traits.thread))
        self._home.append(self._homes.setdefault(memory_id[0], len(self._homes)))
        self._position.append(traits.position)
        self.speaker.append(_number(self.speakers, traits.speaker))
        self.flags.append(traits.flags)
        self._supersede(row, traits.supersedes)
        self._changed()
        return row

    def remove(self, memory_id: MemoryId) -> bool:
        """Forget a memory; False when it was not there."""
        row = self._row_of.pop(memory_id, None)
        if row is None:
            return False
        self.lexical.remove(row)
        for superseded in self._supersedes.pop(row, ()):
            self._superseders[superseded].discard(row)
        # Dead rows must not stand between living neighbours of a thread.
        self._thread.values[row] = -1
        self._changed()
        return True

    def pinned(self) -> list[int]:
        """Live rows of the memories that are always recalled."""
        return np.flatnonzero(self.alive & (self.flags.values & PINNED > 0)).tolist()

    @property
    def supersedes_any(self) -> bool:
        """Whether any memory was ever put out of force."""
        return bool(self._superseders)

    def is_superseded(self, memory_id: MemoryId) -> bool:
        """Whether a live memory puts this one out of force, or it says so itself."""
        return bool(self._superseders.get(memory_id))

    def superseders(self, memory_id: MemoryId) -> tuple[MemoryId, ...]:
        """The live memories that put this one out of force, itself where it says so."""
        return tuple(self._ids[row] for row in sorted(self._superseders.get(memory_id, ())))

    def thread_order(self) -> ThreadOrder:
        """The layout by threads; computed on first use after a write."""
        if self._order is None:
            thread = self._thread.values.copy()
            loose = self._in_order(thread < 0, self._home.values)
            runs = self._runs(loose)
            # Who speaks in a thread takes part in a conversation; notes may have nothing in common.
            noted = self._in_order((thread >= 0) & (self.speaker.values < 0), thread)
            if not self._order_tells("noted", noted, thread[noted]):
                thread[noted] = -1
            tells = self._order_tells("loose", loose, runs)
            self._order = _lay_out(thread, self._position.values, loose, runs if tells else None)
        return self._order

    def _in_order(self, chosen: BoolArray, groups: IntArray) -> IntArray:
        """Live rows by group, then by position."""
        rows = np.flatnonzero(chosen & self.alive).astype(np.int32)
        return rows[np.lexsort((self._position.values[rows], groups[rows]))]

    def _order_tells(self, sort: str, rows: IntArray, runs: IntArray) -> bool:
        """Whether what is written in a row speaks of the same; judged anew as memories come."""
        judged_at, tells = self._coherence.get(sort, (0, False))
        if not judged_at or not 0.9 * judged_at < len(rows) < 1.1 * judged_at:
            sample = slice(-COHERENCE_SAMPLE, None)
            tells = is_coherent(self.lexical, rows[sample], runs[sample])
            self._coherence[sort] = len(rows), tells
        return tells

    def _runs(self, loose: IntArray) -> IntArray:
        """A number for each memory without a thread: the stretch of writing it belongs to."""
        home, written = self._home.values[loose], self._position.values[loose]
        breaks = (np.diff(home) != 0) | (np.diff(written) > EPISODE_GAP_S)
        return np.concatenate([[0] * len(loose[:1]), np.cumsum(breaks)]).astype(np.int32)

    def links(self, previous: float, following: float) -> Links:
        """How much neighbours share when all are known; computed on first use after a write."""
        if self._links is None or self._links[0] != (previous, following):
            follows = self.thread_order().follows
            self._links = (previous, following), make_links(follows, None, previous, following)
        return self._links[1]

    def _changed(self) -> None:
        self._order = None
        self._links = None
        self.version += 1

    def _supersede(self, row: int, superseded: tuple[MemoryId, ...]) -> None:
        if superseded:
            self._supersedes[row] = superseded
            for memory_id in superseded:
                self._superseders.setdefault(memory_id, set()).add(row)


def _number(names: dict[str, int], name: str | None) -> int:
    return -1 if name is None else names.setdefault(name, len(names))


def is_coherent(lexical: LexicalIndex, rows: IntArray, runs: IntArray) -> bool:
    """Whether neighbours in this order share words clearly more often than chance has it.

    Neighbours are rows of one run. Numbers and months do not count: a memory's date is among its
    words, and neighbours in time share it whatever they speak of.
    """
    linked = np.diff(runs) == 0
    if linked.sum() < COHERENT_FROM:
        return False
    terms, places = lexical.distinct_terms(rows)
    told = ~np.isin(terms, _dates_among(lexical.vocabulary))
    terms, places = terms[told], places[told]
    order = np.lexsort((places, terms))
    terms, places = terms[order], places[order]
    shared = (np.diff(terms) == 0) & (np.diff(places) == 1) & linked[places[1:] - 1]
    counts = np.bincount(terms).astype(np.float64)
    by_chance = float((counts * (counts - 1)).sum() / len(rows) * linked.mean())
    surplus = float(shared.sum()) - by_chance
    return bool(surplus > max(COHERENT_SIGMAS * by_chance**0.5, COHERENT_SURPLUS * by_chance))


def _dates_among(vocabulary: Sequence[str]) -> IntArray:
    found = [i for i, term in enumerate(vocabulary) if term.isdigit() or term in _MONTH_TERMS]
    return np.array(found, np.int32)


def _lay_out(
    thread: IntArray, position: FloatArray, loose: IntArray, runs: IntArray | None
) -> ThreadOrder:
    count = len(thread)
    loners = thread < 0
    first = int(thread.max()) + 1 if count else 0
    # A memory without a thread is a thread of one, numbered past the real ones and the runs.
    numbers = np.where(loners, np.arange(count) + first + len(loose), thread)
    implied = np.zeros(count, np.bool_)
    if runs is not None:
        numbers[loose] = first + runs
        implied[loose] = True
    rows = np.lexsort((position, numbers)).astype(np.int32)
    place = np.empty(count, np.int32)
    place[rows] = np.arange(count, dtype=np.int32)
    ordered = numbers[rows].astype(np.int32)
    follows = np.diff(ordered, prepend=-1) == 0
    thread_at = np.cumsum(~follows, dtype=np.int32) - 1
    starts = np.flatnonzero(~follows).astype(np.int32)
    return ThreadOrder(rows, place, ordered, starts, thread_at, follows, implied[rows])
