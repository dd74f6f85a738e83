"""What ranking must know of every memory in reach: its words, thread, speaker and standing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from langmem_recall.ranking.arrays import BoolArray, Column
from langmem_recall.ranking.lexical import LexicalIndex, PoolIndex
from langmem_recall.ranking.threads import Links, ThreadOrder, lay_out, make_links
from langmem_recall.text.temporal import MONTHS
from langmem_recall.text.tokens import is_identifier, tokens
from langmem_recall.types import Memory, MemoryId, Namespace

TRAITS_VERSION = 9
"""Raised whenever `traits_of` reads a text differently, so that persisted traits are made anew."""

LARGEST_TURN = 2**53
"""Beyond it floats no longer tell neighbours apart."""
TIMED, NUMBERED, PINNED, CODED, PHRASED = 1, 2, 4, 8, 16
WORDS_REACH = 100_000
"""Characters of a text whose words are read: all that `remember` stores unless told otherwise."""

DATE_TERMS = frozenset(
    [*tokens(" ".join(MONTHS)), *map(str, range(1, 32)), *map(str, range(1900, 2100))]
)
"""Days, months and years as terms."""

_WEEKDAY = "(?:mon|tues|wednes|thurs|fri|satur|sun)day"
_MONTH = (
    "january|february|april|june|july|august|september|october|november|december"
    # These two are also a verb and a walk.
    r"|(?:in|on|of|since|last|next|this)\s+(?:march|may)"
)
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
    *MONTHS,
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
    """TIMED, NUMBERED, CODED: whether it speaks of a time, a number, an identifier; PINNED;
    PHRASED: whether it is embedded with how it will be asked for."""
    supersedes: tuple[MemoryId, ...] = ()
    """Ids that this memory supersedes; its own id when it is itself superseded."""


def traits_of(memory: Memory) -> Traits:
    """Digest a memory once, when it is written or first seen."""
    text, when = memory.open_text[:WORDS_REACH], memory.written_at
    # A memory is also found by names and tags, as asked, and by its date, where it is declared.
    terms = tokens(" ".join([text, *memory.entities, *memory.tags, *memory.asked_as]))
    date = f"{when.day} {MONTHS[when.month - 1]} {when.year}" if memory.dated and when else ""
    terms = [*dated_terms(tokens(date)), *terms, *dated_terms(DATE_TERMS.intersection(terms))]
    # What claims to supersede itself would never be in force.
    superseded = [(memory.namespace, key) for key in memory.supersedes if key != memory.key]
    if memory.status == "superseded":
        superseded.append(memory.id)
    position = when.timestamp() if when else 0.0
    if memory.thread_id is not None and isinstance(memory.turn, int):
        position = float(min(max(memory.turn, -LARGEST_TURN), LARGEST_TURN))
    return Traits(
        terms=terms,
        # With the namespace, so that equal thread names of two users stay apart.
        thread=None if memory.thread_id is None else repr((memory.namespace, memory.thread_id)),
        position=position,
        speaker=memory.speaker.casefold() if memory.speaker else None,
        flags=TIMED * is_timed(text)
        | NUMBERED * bool(_NUMBER.search(text))
        | PINNED * memory.pinned
        | CODED * any(map(is_identifier, terms))
        | PHRASED * bool(memory.asked_as),
        supersedes=tuple(superseded),
    )


def dated_terms(terms: Iterable[str]) -> list[str]:
    """The terms of dates as they are found in when a memory was written too, not in its text alone.

    "Due in March?" is no question for all that was written in March.
    """
    return [f"@{term}" if term in DATE_TERMS else term for term in terms]


def is_timed(text: str) -> bool:
    """Whether a text speaks of a time."""
    if text.isascii():
        folded = text.lower()
        if not any(hint in folded for hint in _TIME_HINTS):
            return bool(_DIGIT_TIME.search(folded))
    return bool(_TIME.search(text))


class Catalog:
    """Rows of memories under one namespace prefix. Not thread-safe: the owner locks."""

    def __init__(self) -> None:
        self.lexical = LexicalIndex()
        self.rows = 0
        """Rows handed out, dead ones included."""
        self.size = 0
        """Live memories."""
        self.version = 0
        """Grows with every change."""
        self.speakers: dict[str, int] = {}
        self.speaker = Column(np.int32)
        """Number of who speaks in each row; -1 where that is not known."""
        self.flags = Column(np.uint8)
        """What `Traits.flags` says of each row."""
        self.flags_seen = 0
        """Flags that any row ever had."""
        self.spellings: dict[str, str] = {}
        """What cues have misspelt, by terms of the memories as they are now."""
        self._ids: list[MemoryId] = []
        self._row_of: dict[MemoryId, int] = {}
        self._threads: dict[str, int] = {}
        self._thread = Column(np.int32)
        self._homes: dict[Namespace, int] = {}
        self._home = Column(np.int32)
        self._position = Column(np.float64)
        self._supersedes: dict[int, tuple[MemoryId, ...]] = {}
        self._superseders: dict[MemoryId, set[int]] = {}
        self._coherence: dict[str, tuple[int, bool]] = {}
        self._order: ThreadOrder | None = None
        self._links: tuple[tuple[float, float], Links] | None = None

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
        catalog._append(ids, threads, positions, speakers, flags, supersedes)
        return catalog

    @classmethod
    def of(cls, traits: Mapping[MemoryId, Traits], is_pool: bool = False) -> Catalog:
        """Many memories at once, from their traits; a pool is read once and not kept."""
        if not traits:
            return cls()
        terms, threads, positions, speakers, flags, supersedes = zip(*traits.values(), strict=True)
        lexical = (PoolIndex if is_pool else LexicalIndex).from_documents(terms)
        return cls.from_columns(
            list(traits), lexical, threads, positions, speakers, flags, enumerate(supersedes)
        )

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
        terms, thread, position, speaker, flags, supersedes = traits
        row = self.lexical.add(terms)
        self._append([memory_id], [thread], [position], [speaker], [flags], [(row, supersedes)])
        return row

    def _append(
        self,
        ids: Sequence[MemoryId],
        threads: Sequence[str | None],
        positions: Sequence[float],
        speakers: Sequence[str | None],
        flags: Sequence[int],
        supersedes: Iterable[tuple[int, tuple[MemoryId, ...]]],
    ) -> None:
        def numbers(known: dict[str, int], names: Sequence[str | None]) -> list[int]:
            return [-1 if name is None else known.setdefault(name, len(known)) for name in names]

        self._row_of.update(zip(ids, range(self.rows, self.rows + len(ids)), strict=True))
        self._ids.extend(ids)
        self._home.extend([self._homes.setdefault(home, len(self._homes)) for home, _ in ids])
        self._thread.extend(numbers(self._threads, threads))
        self._position.extend(positions)
        self.speaker.extend(numbers(self.speakers, speakers))
        self.flags.extend(flags)
        self.flags_seen |= int(np.bitwise_or.reduce(np.asarray(flags, np.uint8), initial=0))
        for row, superseded in supersedes:
            if superseded:
                self._supersedes[row] = superseded
            for memory_id in superseded:
                self._superseders.setdefault(memory_id, set()).add(row)
        self._changed()

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

    def _changed(self) -> None:
        self.rows, self.size = self.lexical.rows, self.lexical.size
        self.version += 1
        self.spellings.clear()
        self._order = None
        self._links = None

    def pinned(self) -> list[int]:
        """Live rows of the memories that are always recalled."""
        if not self.flags_seen & PINNED:
            return []
        return np.flatnonzero(self.alive & (self.flags.values & PINNED > 0)).tolist()

    @property
    def supersedes_any(self) -> bool:
        """Whether any memory was ever superseded."""
        return bool(self._superseders)

    def is_superseded(self, memory_id: MemoryId) -> bool:
        """Whether a live memory supersedes this one, or it says so itself."""
        return bool(self._superseders.get(memory_id))

    def superseders(self, memory_id: MemoryId) -> tuple[MemoryId, ...]:
        """The live memories that supersede this one, itself where it says so."""
        return tuple(self._ids[row] for row in sorted(self._superseders.get(memory_id, ())))

    def thread_order(self) -> ThreadOrder:
        """The layout by threads; computed on first use after a write."""
        if self._order is None:
            columns = (self._thread, self._home, self._position, self.speaker)
            thread, home, position, speaker = (column.values for column in columns)
            phrased = self.flags.values & PHRASED > 0
            self._order = lay_out(
                thread, home, position, speaker, phrased, self.lexical, self._coherence
            )
        return self._order

    def links(self, previous: float, following: float) -> Links:
        """How much neighbours share when all are known; computed on first use after a write."""
        if self._links is None or self._links[0] != (previous, following):
            follows = self.thread_order().follows
            self._links = (previous, following), make_links(follows, None, previous, following)
        return self._links[1]
