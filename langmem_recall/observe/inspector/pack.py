"""From records to what the page holds: memories once, turns as rows, candidates as columns."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from langmem_recall.errors import InputError
from langmem_recall.observe.inspector.columns import Column, new_column, packed, to_whole
from langmem_recall.observe.monitor import Monitor
from langmem_recall.observe.records import (
    FEEDBACK,
    UNRANKED_GATES,
    check_record,
    from_dict,
    preset_knobs,
)
from langmem_recall.policy import RecallPolicy
from langmem_recall.types import GATE_WORDS, TRUST, Memory, Usage, aware

SIX, FOUR, TWO = 10**6, 10**4, 10**2
SIGNALS = ("relevance", "recency", "strength")
"""With the digits of the record, because what-if reads them."""
FINDINGS = ("coverage", "bm25", "entity", "episode")
"""Only shown."""
COLUMNS = (
    *(Column(name) for name in ("memory", "place", "gate", "reason", "twin", "usage")),
    *(Column(name) for name in ("dense_rank", "lexical_rank")),
    *(Column(name, SIX) for name in (*SIGNALS, "importance_lift", "dense")),
    Column("score", FOUR),
    *(Column(name, TWO) for name in FINDINGS),
)
"""What is kept of every candidate. Trust is kept with the memory, importance as what it has above
the memory's salience, ranks where the policy reads them; similarity follows from the others."""

PLAIN_FIELDS = (
    *("text", "kind", "source", "status", "salience", "confidence", "pinned"),
    *("speaker", "thread_id", "turn", "tags", "supersedes", "derived_from"),
)
TIME_FIELDS = ("written_at", "confirmed_at", "valid_from", "valid_until", "superseded_at")
MEMORY_FIELDS = ("namespace", "key", *PLAIN_FIELDS, *TIME_FIELDS, "trust", "tokens")
TURN_FIELDS = (
    *(
        "id",
        "at",
        "judged_at",
        "text",
        "parts",
        "temporal",
        "namespaces",
        "policy",
        "searched",
        "channels",
    ),
    *(
        "budget",
        "tokens",
        "compacted",
        "conflicts",
        "timings",
        "degraded",
        "funnel",
        "block",
        "count",
    ),
)

LINE_TOKENS = 30
"""About what a label and the marks around a text cost."""
CHARS_PER_TOKEN = 4
"""Of plain ASCII; any other character counts as a token."""
HEALTH_WINDOW = 1000
"""Recalls, the latest, that the health report looks at."""

_DAMAGE = (KeyError, TypeError, ValueError, AttributeError, OverflowError)

Row = list[Any]


class Interned:
    """Rows that are kept once and named by their place."""

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self._places: dict[Hashable, int] = {}

    def place(self, key: Hashable, make: Callable[[], Any]) -> int:
        """Where the row of this key is; it is made when it comes for the first time."""
        found = self._places.get(key)
        if found is None:
            row = make()
            found = self._places[key] = len(self.rows)
            self.rows.append(row)
        return found


class Gathered:
    """What the page holds, gathered record by record."""

    def __init__(self, policies: Iterable[RecallPolicy] = ()) -> None:
        self._known = {policy.fingerprint: policy.to_dict() for policy in policies}
        self._memories, self._usages, self._reasons = Interned(), Interned(), Interned()
        self._policies, self._namespaces, self._gates = Interned(), Interned(), Interned()
        self._gates.place("", str)
        self._turns: list[Row] = []
        self._columns = {column.name: new_column() for column in COLUMNS}
        self._feedback: list[Row] = []
        self._stored: list[Row] = []
        self._latest: deque[Mapping[str, Any]] = deque(maxlen=HEALTH_WINDOW)
        self._unreadable = 0

    def add(self, record: Mapping[str, Any]) -> None:
        """Take a record of a recall or of feedback; what cannot be read is counted."""
        try:
            if isinstance(record, Mapping) and record.get("kind") == FEEDBACK:
                self._add_feedback(record)
            else:
                self._add_recall(record)
        except (InputError, *_DAMAGE):
            self._unreadable += 1

    def add_memory(self, memory: Memory, usage: Usage) -> None:
        """Take a memory as it is stored."""
        told = {name: getattr(memory, name) for name in PLAIN_FIELDS}
        times = {name: _iso(getattr(memory, name)) for name in TIME_FIELDS}
        held = {"namespace": list(memory.namespace), "key": memory.key, **told, **times}
        self._stored.append([self._memory(held), self._usage(usage._asdict())])

    def packed(self, title: str) -> str:
        """All of it as one compressed text."""
        header = {
            "title": title,
            "unreadable": self._unreadable,
            "memoryFields": MEMORY_FIELDS,
            "memories": self._memories.rows,
            "stored": self._stored,
            "turnFields": TURN_FIELDS,
            "turns": self._turns,
            "usages": self._usages.rows,
            "reasons": self._reasons.rows,
            "policies": self._policies.rows,
            "namespaces": self._namespaces.rows,
            "gates": self._gates.rows,
            "gateWords": dict(GATE_WORDS),
            "unrankedGates": sorted(UNRANKED_GATES),
            "feedback": self._feedback,
            "defaultKnobs": RecallPolicy.default().to_dict(),
            "lineTokens": LINE_TOKENS,
            "health": self._health(),
        }
        return packed(header, [(column, self._columns[column.name]) for column in COLUMNS])

    def _add_feedback(self, record: Mapping[str, Any]) -> None:
        check_record(record, FEEDBACK)
        namespace = self._namespace(record["namespace"])
        self._feedback.append(
            [str(record["recall"] or ""), namespace, str(record["key"]), record["good"] is True]
        )

    def _add_recall(self, record: Mapping[str, Any]) -> None:
        check_record(record)
        turn, held = self._turn(record), record["candidates"]
        has_ranks = self._policies.rows[turn[TURN_FIELDS.index("policy")]]["fusesRanks"]
        rows = [self._candidate(one, held, has_ranks) for one in held]
        # Nothing is added of a record that turns out to be damaged half-way.
        for row in rows:
            for column, number in zip(COLUMNS, row, strict=True):
                self._columns[column.name].append(number)
        self._turns.append(turn)
        self._latest.append(record)

    def _turn(self, record: Mapping[str, Any]) -> Row:
        cue, temporal = record["cue"], record["cue"].get("temporal")
        places = _places(record)
        return [
            str(record["id"]),
            _seconds(record["at"]),
            _seconds(cue.get("as_of") or record["at"]),
            str(cue["text"]),
            [str(part) for part in cue["parts"]],
            temporal
            and [str(temporal["mode"]), _seconds(temporal["start"]), _seconds(temporal["end"])],
            [self._namespace(namespace) for namespace in record["namespaces"]],
            self._policy(record["policy"]),
            int(record["searched"]),
            {str(name): int(count) for name, count in record["channels"].items()},
            record["budget"] and int(record["budget"]),
            int(record["tokens"]),
            [places[_name(held)] for held in record["compacted"] if _name(held) in places],
            [[places.get(_name(held), -1) for held in pair] for pair in record["conflicts"]],
            {str(stage): float(ms) for stage, ms in record["timings"].items()},
            [str(note) for note in record["degraded"]],
            str(record["funnel"]),
            None if record.get("block") is None else str(record["block"]),
            len(record["candidates"]),
        ]

    def _candidate(
        self, held: Mapping[str, Any], others: Sequence[Mapping[str, Any]], has_ranks: bool
    ) -> list[int]:
        gate, reason = held.get("gate", ""), held.get("reason", "")
        signals, evidence = held["signals"], held["evidence"]
        return [
            self._memory(held),
            int(held.get("place", 0)),
            self._gates.place(gate, lambda: str(gate)),
            self._reasons.place(reason, lambda: str(reason)),
            _twin(held, others) if gate == "duplicate" else -1,
            self._usage(held["usage"]),
            int((has_ranks and held.get("dense_rank")) or 0),
            int((has_ranks and held.get("lexical_rank")) or 0),
            *(to_whole(signals[name], SIX) for name in SIGNALS),
            to_whole(signals["importance"], SIX) - to_whole(held["salience"], SIX),
            to_whole(evidence["dense"], SIX),
            to_whole(held["score"], FOUR),
            *(to_whole(evidence[name], TWO) for name in FINDINGS),
        ]

    def _memory(self, held: Mapping[str, Any]) -> int:
        plain = [held.get(name) for name in PLAIN_FIELDS]
        times = [held.get(name) for name in TIME_FIELDS]
        namespace, key = held["namespace"], held["key"]
        trust = TRUST[held["source"]]
        identity = (*namespace, key, *map(_hashable, plain), *times)

        def row() -> Row:
            text = plain[0] if isinstance(plain[0], str) else ""
            tokens = LINE_TOKENS + text_tokens(text)
            home = self._namespace(namespace)
            return [home, str(key), *plain, *map(_seconds, times), trust, tokens]

        return self._memories.place(identity, row)

    def _usage(self, held: Mapping[str, Any]) -> int:
        told = tuple(held.get(name) for name in Usage._fields)
        return self._usages.place(told, lambda: list(told))

    def _namespace(self, held: Sequence[str]) -> int:
        labels = tuple(str(label) for label in held)
        return self._namespaces.place(labels, lambda: list(labels))

    def _policy(self, held: Mapping[str, Any]) -> int:
        name, fingerprint = str(held["name"]), str(held["fingerprint"])
        given = held.get("knobs")

        def row() -> dict[str, Any]:
            knobs = given or self._known.get(fingerprint) or preset_knobs(fingerprint)
            # Read as a policy, so that the page meets no knob it does not know.
            policy = RecallPolicy.from_dict(knobs) if knobs else None
            return {
                "name": name,
                "fingerprint": fingerprint,
                "knobs": policy and policy.to_dict(),
                "fusesRanks": policy is None or policy.fuses_ranks,
            }

        return self._policies.place((name, fingerprint, given is None), row)

    def _health(self) -> dict[str, Any]:
        monitor = Monitor(HEALTH_WINDOW)
        for record in self._latest:
            try:
                monitor(from_dict(record))
            except InputError:
                continue
        for _, place, key, good in self._feedback[-HEALTH_WINDOW:]:
            monitor.feedback(tuple(self._namespaces.rows[place]), key, good)
        return monitor.report().to_dict()


def _places(record: Mapping[str, Any]) -> dict[Hashable, int]:
    """Where each candidate stands in the record, by its name; few turns need to know."""
    if not record["compacted"] and not record["conflicts"]:
        return {}
    held = enumerate(record["candidates"])
    return {_name((one["namespace"], one["key"])): i for i, one in held}


def _name(held: Sequence[Any]) -> Hashable:
    namespace, key = held
    return (*namespace, key)


def text_tokens(text: str) -> int:
    """About how many tokens a text costs."""
    plain = sum(map(str.isascii, text)) if not text.isascii() else len(text)
    return math.ceil(plain / CHARS_PER_TOKEN) + len(text) - plain


def _twin(held: Mapping[str, Any], others: Sequence[Mapping[str, Any]]) -> int:
    """The place of the memory that a duplicate is like, among the candidates; -1 if unknown."""
    # Version 0.1 named it in the reason alone.
    namespace, key = held.get("twin") or (held["namespace"], held["reason"].partition(" like ")[2])
    same = [i for i, other in enumerate(others) if other["key"] == key]
    return next((i for i in same if others[i]["namespace"] == namespace), (same or [-1])[0])


def _seconds(held: Any) -> float | None:
    """A time as epoch seconds."""
    moment = None if held is None else aware(datetime.fromisoformat(held))
    return None if moment is None else moment.timestamp()


def _iso(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()


def _hashable(held: Any) -> Hashable:
    return tuple(held) if isinstance(held, list) else held
