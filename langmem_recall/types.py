"""Records that flow through a recall: plain, immutable, free of stores and models."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import repeat
from typing import Any, Literal, NamedTuple, TypeVar, get_args

R = TypeVar("R", bound=tuple[Any, ...])

Namespace = tuple[str, ...]
MemoryId = tuple[Namespace, str]  # a namespace and a key: what names one memory in a store

SIDECAR_ROOT = "langmem_recall"  # root label of everything we keep in a store that is not a memory

Kind = Literal["semantic", "episodic", "procedural", "reflection"]
Source = Literal[
    "user_stated",
    "user_correction",
    "tool_verified",
    "agent_inferred",
    "recalled",
    "unknown",
    "external",
]
Status = Literal["active", "masked", "quarantined", "superseded"]

KINDS: tuple[Kind, ...] = get_args(Kind)
STATUSES: tuple[Status, ...] = get_args(Status)
TRUST: Mapping[str, float] = {
    "user_stated": 1.0,
    "user_correction": 1.0,
    "tool_verified": 0.9,
    "agent_inferred": 0.6,
    "recalled": 0.5,
    "unknown": 0.5,
    "external": 0.3,
}
"""How far each source is believed, in [0, 1]."""
NO_AUTHORITY = frozenset({"external", "agent_inferred"})
"""Sources whose memories never lead over a trusted one, and fill a part of a block at most."""
PHRASING_SOURCES = frozenset({"user_stated", "user_correction", "tool_verified", "agent_inferred"})
"""Sources that may say how a memory will be asked for: phrasings decide when it surfaces."""
VERIFIED_TRUST = 0.7
"""What comes from a source trusted less needs verification, and vouches for nothing."""
DEFAULT_SALIENCE = 0.5
FADE_PER_WEEK, WEEK = 0.05, timedelta(days=7)
"""Confidence that an inference loses while nothing confirms it."""
USERS_OWN = frozenset({"user_stated", "user_correction"})
"""Sources that are the user's own words: no sweep removes what they said."""
QUARANTINE = "quarantine"
"""Field of a value that waits for approval, or parts of it: reasons, spans, what it replaces."""
WITHHELD_SPAN = "[withheld: looks like an instruction]"
"""What a reader gets in place of a part that the guard objects to."""


def aware(moment: datetime | None) -> datetime | None:
    """A time with its zone; naive times are UTC."""
    return moment.replace(tzinfo=UTC) if moment is not None and moment.tzinfo is None else moment


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """One stored item as recall reads it."""

    namespace: Namespace
    key: str
    text: str
    kind: Kind = "semantic"
    source: Source = "unknown"
    confidence: float = 1.0
    salience: float = DEFAULT_SALIENCE
    written_at: datetime | None = None
    """When it was said or learned; the item's creation time where the value does not tell."""
    confirmed_at: datetime | None = None
    thread_id: str | None = None
    turn: int | str | None = None
    speaker: str | None = None
    entities: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    valid_from: datetime | None = None
    valid_until: datetime | None = None
    supersedes: tuple[str, ...] = ()
    derived_from: tuple[str, ...] = ()
    asked_as: tuple[str, ...] = ()
    """How it will be asked for, in a few short phrasings: searched, never shown."""
    pinned: bool = False
    status: Status = "active"
    superseded_at: datetime | None = None
    """When another memory took its place."""
    dated: bool = False
    """Whether `written_at` was declared in the value, so that its date is worth searching."""
    value: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """The stored value this was read from."""
    created_at: datetime | None = field(default=None, compare=False)
    updated_at: datetime | None = field(default=None, compare=False)
    id: MemoryId = field(init=False, repr=False, compare=False)
    """The namespace and key that name this memory."""
    written_ts: float = field(init=False, repr=False, compare=False)
    """`written_at` in epoch seconds; NaN when unknown."""
    is_plain: bool = field(init=False, repr=False, compare=False)
    """Whether it is active at any time, whatever becomes of other memories."""

    def __post_init__(self) -> None:
        written = math.nan if self.written_at is None else self.written_at.timestamp()
        limits = self.valid_from or self.valid_until or self.derived_from
        object.__setattr__(self, "id", (self.namespace, self.key))
        object.__setattr__(self, "written_ts", written)
        object.__setattr__(self, "is_plain", self.status == "active" and not limits)

    @property
    def in_force(self) -> bool:
        """Whether readers get it, whole or with parts withheld."""
        return self.status in ("active", "masked")

    @property
    def withheld_spans(self) -> tuple[tuple[int, int], ...]:
        """The parts of the text that its value says are withheld, in order."""
        pending = self.value.get(QUARANTINE) if self.status != "quarantined" else None
        spans = pending.get("spans") if isinstance(pending, Mapping) else None
        return read_spans(spans)

    @property
    def open_text(self) -> str:
        """The text but for what is withheld of it: what the memory is found by."""
        return without_spans(self.text, self.withheld_spans, " ")

    @property
    def trust(self) -> float:
        """How far its source is believed, in [0, 1]."""
        return TRUST[self.source]

    def confidence_at(self, now: datetime) -> float:
        """How sure it is by now: an unconfirmed inference loses 0.05 a week, nothing else does."""
        if self.source != "agent_inferred" or self.confirmed_at or self.written_at is None:
            return self.confidence
        weeks = max((now - self.written_at) // WEEK, 0)
        # Rounded, because seven times 0.05 off 0.6 is not 0.25 in floats.
        return max(round(self.confidence - FADE_PER_WEEK * weeks, 6), 0.0)

    @property
    def authority(self) -> float:
        """The trust that another source needs to put it out of force."""
        return self.trust if self.confirmed_at is None else 1.0

    @property
    def lacks_authority(self) -> bool:
        """Whether it rests on an unconfirmed inference or on unconfirmed external text."""
        return self.source in NO_AUTHORITY and self.confirmed_at is None

    @property
    def needs_verification(self) -> bool:
        """Whether it comes from a source of little trust and is unconfirmed."""
        return self.trust < VERIFIED_TRUST and self.confirmed_at is None


class GuardEvent(NamedTuple):
    """What a guard said of a text, without its words; sinks of traces may take it as `verdict`."""

    namespace: Namespace
    key: str
    source: Source
    action: str  # allow, mask, quarantine or reject
    rules: tuple[str, ...] = ()
    withheld_chars: int = 0
    has_failed: bool = False


def read_spans(spans: Any) -> tuple[tuple[int, int], ...]:
    """Places in a text as JSON has them, in order; what is malformed is left out."""
    rows = spans if isinstance(spans, list | tuple) else ()
    places = (tuple(row[:2]) for row in rows if isinstance(row, list | tuple) and len(row) >= 2)
    return tuple(sorted(place for place in places if all(type(it) is int for it in place)))


def without_spans(text: str, spans: Sequence[tuple[int, int]], mark: str) -> str:
    """The text with a mark in place of each span."""
    parts, end = list[str](), 0
    for start, stop in spans:
        if start < stop and end <= start < len(text):
            parts += (text[end:start], mark)
        end = max(end, stop) if start < stop else end
    return "".join((*parts, text[end:])) if parts else text


TemporalMode = Literal["current", "past", "first", "window"]


@dataclass(frozen=True, slots=True)
class Temporal:
    """What a cue says about time: now, formerly, at first, or within a window."""

    mode: TemporalMode
    start: datetime | None = None
    end: datetime | None = None
    asked: bool = False
    """Whether the cue asks for what is of then: where that answers it, nothing else is recalled."""
    alone: bool = False
    """Whether it asks for nothing but the time: nothing else answers it."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "start", aware(self.start))
        object.__setattr__(self, "end", aware(self.end))

    def includes(self, moment: datetime | None) -> bool:
        """Whether a time lies within the window; False where either is not known."""
        if moment is None or (self.start is None and self.end is None):
            return False
        is_late_enough = self.start is None or moment >= self.start
        return is_late_enough and (self.end is None or moment < self.end)


@dataclass(frozen=True, slots=True)
class Cue:
    """What we search by: short texts searched apart, and what is known of the asking."""

    text: str = ""
    """The literal words; used as the only part when `parts` is empty."""
    parts: tuple[str, ...] = ()
    """Short texts (goal, sub-task, latest words ...), each searched on its own."""
    task: str | None = None
    """Tag of the task at hand; policies with `task_filter` look only at memories that carry it."""
    temporal: Temporal | None = None
    """Overrides what is read from the words."""
    at: datetime | None = None
    """Time of asking; the store's clock when absent."""
    as_of: datetime | None = None
    """What was believed then: later memories do not count, what they superseded does."""
    reasons: tuple[str, ...] = field(default=(), compare=False)
    """Why each of the parts is there, in their order; says nothing of what is searched."""

    def __post_init__(self) -> None:
        if self.at is not None or self.as_of is not None:
            object.__setattr__(self, "at", aware(self.at))
            object.__setattr__(self, "as_of", aware(self.as_of))

    @property
    def searched(self) -> tuple[str, ...]:
        """The parts that are searched, without repetition; one empty part when there are none."""
        texts = self.parts or (self.text,)
        return tuple(dict.fromkeys(text for text in texts if text.strip())) or ("",)

    @property
    def words(self) -> str:
        """All the cue's words in one text."""
        return self.text or "\n".join(self.parts)


@dataclass(frozen=True, slots=True)
class View:
    """What the model can see already, so that nothing is shown to it twice."""

    texts: tuple[str, ...] = ()  # the words of the conversation, message by message
    ids: frozenset[MemoryId] = frozenset()  # memories in blocks that stay in view
    thread_id: str | None = None
    turns: frozenset[str] = frozenset()
    """Turns of this thread that are in view: what was noted in one of them is no news."""


class Usage(NamedTuple):
    """What reads have left behind about one memory: stored beside it, never in it."""

    uses: int = 0  # uses counted so far, exact
    decayed: float = 0.0  # uses as of `last_used`, each fading with time
    last_used: float | None = None  # epoch seconds of the latest use
    before: float | None = None  # epoch seconds of the use before the latest one
    merit: int = 0  # good outcomes less bad ones, from -5 to 5


class UsageDelta(NamedTuple):
    """Uses and outcomes of one memory that a ledger has still to add."""

    uses: int
    last: float | None = None
    """Epoch seconds of the latest of them; None where there are only outcomes."""
    before: float | None = None  # epoch seconds of the one before it, where there are several
    merit: int = 0  # good outcomes less bad ones


class Evidence(NamedTuple):
    """Raw findings about one candidate; None where a channel has nothing to say."""

    dense: float | None = None
    """Cosine with the best part of the cue."""
    coverage: float = 0.0
    """Share of the cue's IDF mass that the memory contains, its thread's words included."""
    bm25: float | None = None
    """BM25Plus score; None when no term matched."""
    entity: float = 0.0
    """Share of the cue's names, identifiers and numbers that the memory contains."""
    episode: float = 0.0
    """What the rest of the thread adds to the evidence."""
    relevance: float = 0.0
    """All of it as one absolute number in [0, 1]."""
    alone: int = 0
    """For a memory without neighbours the part of the cue, from 1, that it fits best; else 0."""


class Candidate(NamedTuple):
    """A memory with its raw evidence, before any judgement."""

    memory: Memory
    evidence: Evidence
    usage: Usage = Usage()
    dense_rank: int | None = None
    lexical_rank: int | None = None
    similarity: float | None = None  # cosine of the literal cue, or None where it was not measured
    standing: str | None = None  # why other memories put this one out of force, or None
    blockers: tuple[MemoryId, ...] = ()  # the memories that do so
    found_as: str | None = None
    """The phrasing by whose words a chosen memory was found, where its text lacks them."""


class Signals(NamedTuple):
    """One number in [0, 1] per quality of a candidate; higher is better."""

    relevance: float
    similarity: float
    recency: float
    importance: float
    strength: float
    trust: float


def record_all(record: type[R], *columns: Iterable[Any]) -> list[R]:
    """Named tuples by their columns, up to the shortest: all at once, without a call for each."""
    return list(map(tuple.__new__, repeat(record), zip(*columns, strict=False)))


class Scored(NamedTuple):
    """A candidate with its signals and the blended score."""

    candidate: Candidate
    signals: Signals
    score: float

    @property
    def memory(self) -> Memory:
        """The memory that was scored."""
        return self.candidate.memory

    @property
    def evidence(self) -> Evidence:
        """The findings behind the score."""
        return self.candidate.evidence


HARD_GATES = ("tenant", "status", "validity", "expired", "confidence", "task", "time")
"""Applied to every read, in this order, before anything is scored: what they drop has no rank."""
RELEVANCE_GATES = ("trigger", "floor", "composite")
"""Gates that a memory passes by being relevant enough."""
GATE_WORDS: Mapping[str, str] = {
    "tenant": "outside the namespace",
    "status": "out of force",
    "validity": "not valid yet",
    "confidence": "not sure enough",
    "task": "off task",
    "time": "outside the time asked for",
    "trigger": "below trigger",
    "floor": "below floor",
    "composite": "below the composite floor",
    "visible": "already visible",
    "top_k": "beyond the count",
    "authority": "beyond the share of unverified ones",
    "budget": "beyond the budget",
}
"""How a line of trace says that a gate dropped something; other gates by their own name."""


ASKED = "asked of "
"""How the name of a policy begins under which a model asked by tool: what comes is no injection."""


class Drop(NamedTuple):
    """A rejected candidate, the gate that rejected it and the reason."""

    scored: Scored
    gate: str
    reason: str
    twin: MemoryId | None = None  # the chosen memory that a near-duplicate repeats

    @property
    def memory(self) -> Memory:
        """The memory that was rejected."""
        return self.scored.candidate.memory


@dataclass(frozen=True, slots=True)
class Trace:
    """What happened on the way from cue to recall."""

    cue: Cue
    namespaces: tuple[Namespace, ...]
    policy: str
    """Name and fingerprint of the policy in force."""
    at: datetime
    thread_id: str | None = None
    """The conversation that asked, where an agent did."""
    turn: str | None = None
    """Key of the human message that began the turn of it."""
    searched: int = 0
    """Memories the namespaces hold, as far as known."""
    channels: Mapping[str, int] = field(default_factory=dict)
    """Candidates that each channel brought."""
    degraded: tuple[str, ...] = ()
    """What did not work and what was done instead."""
    timings: Mapping[str, float] = field(default_factory=dict, compare=False)
    """Seconds that each stage took."""
    budget_tokens: int | None = None
    """Tokens that all memory in the call may use; None where no block is made."""
    tokens: int = 0
    """Tokens that all memory in the call uses: the block and those of past turns."""
    gave_way: int = 0
    """Blocks of past turns that were taken out of the call for the budget."""
    profile: tuple[MemoryId, ...] = ()
    """Memories that the turn began with whatever its cue: neither recalled nor dropped."""
    compacted: tuple[MemoryId, ...] = ()
    """Memories that were shortened to fit the budget."""
    conflicts: tuple[tuple[MemoryId, MemoryId], ...] = ()
    """Pairs of chosen memories that contradict each other, the newer first."""
    knobs: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """All knobs of the policy in force."""
    block: str = field(default="", repr=False, compare=False)
    """What the model was shown, where an agent showed it."""


class Answer(NamedTuple):
    """What a model answered at the end of a turn."""

    text: str
    thread_id: str | None
    turn: str  # as in the traces of the turn's recalls
    namespaces: tuple[Namespace, ...]
    memories: tuple[MemoryId, ...]  # what it had been shown, and may have repeated


@dataclass(frozen=True, slots=True)
class Recall:
    """The outcome of a recall: what was chosen, what was dropped and why."""

    chosen: tuple[Scored, ...]
    dropped: tuple[Drop, ...]
    trace: Trace

    @property
    def memories(self) -> tuple[Memory, ...]:
        """The chosen memories, best first."""
        return tuple(scored.memory for scored in self.chosen)

    @property
    def reason(self) -> str:
        """Why the recall is empty, or how much was recalled, in one line."""
        if self.chosen:
            gone = self.trace.gave_way
            said = f"; past blocks that gave way to the budget: {gone}" if gone else ""
            return f"{len(self.chosen)} recalled{said}"
        if not self.dropped:
            if self.trace.degraded and not self.trace.searched:
                return self.trace.degraded[0]
            return "nothing stored" if not self.trace.searched else "no candidate found"

        def nearness(drop: Drop) -> tuple[bool, bool, float]:
            # What is in the prompt was found; what a relevance gate dropped was otherwise fit.
            in_prompt, is_far = drop.gate == "visible", drop.gate in RELEVANCE_GATES
            return in_prompt, is_far, drop.scored.signals.relevance

        nearest = max(self.dropped, key=nearness)
        in_prompt = nearest.gate == "visible"
        return f"already in the prompt: {nearest.reason}" if in_prompt else nearest.reason

    def drop_counts(self) -> dict[str, int]:
        """How many candidates each gate dropped, in the order of the gates."""
        return dict(Counter(drop.gate for drop in self.dropped))

    def __str__(self) -> str:
        """The funnel in one line: `candidates 30 -> 18 below floor (best 0.31) -> 3 recalled`."""
        if not self.chosen and not self.dropped:
            return f"{self.reason} -> 0 recalled"
        drops = []
        for gate, count in self.drop_counts().items():
            words = f"{count} {GATE_WORDS.get(gate, gate)}"
            if gate in RELEVANCE_GATES:
                dropped = (drop.scored for drop in self.dropped if drop.gate == gate)
                by_score = gate == "composite"
                best = max(each.score if by_score else each.signals.relevance for each in dropped)
                words = f"{words} (best {best:.2f})"
            drops.append(words)
        spent = ""
        if self.trace.budget_tokens is not None:
            spent = f", {self.trace.tokens:,} of {self.trace.budget_tokens:,} tokens"
            spent += f", past blocks out: {self.trace.gave_way}" if self.trace.gave_way else ""
        candidates = len(self.chosen) + len(self.dropped)
        funnel = f"candidates {candidates} -> {', '.join(drops) or 'none dropped'}"
        return f"{funnel} -> {len(self.chosen)} recalled{spent}"

    def _repr_html_(self) -> str | None:
        """What a notebook shows: the funnel, the chosen with their signals, the dropped."""
        return html_renderer(self) if html_renderer else None


html_renderer: Callable[[Recall], str] | None = None
"""Draws a recall for a notebook; set by the package, as records know nothing of how they look."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why one memory was or was not recalled for a cue."""

    key: str
    recalled: bool
    reason: str
    rank: int | None = None
    scored: Scored | None = None

    def __str__(self) -> str:
        verdict = "recalled" if self.recalled else "not recalled"
        return f"{self.key}: {verdict}: {self.reason}"
