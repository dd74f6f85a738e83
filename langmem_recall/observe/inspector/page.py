"""`page`: recorded recalls as one HTML file that needs no network and runs no text of theirs.

Of the records the page holds memories once, turns as rows and candidates as columns.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import math
from collections import deque
from collections.abc import Hashable, Iterable, Mapping
from datetime import datetime
from functools import cache
from importlib.resources import files
from operator import attrgetter
from typing import Any

from pydantic import TypeAdapter

from langmem_recall import types
from langmem_recall.errors import InputError
from langmem_recall.observe import show
from langmem_recall.observe.monitor import Monitor
from langmem_recall.policy import PRESETS, RecallPolicy
from langmem_recall.types import Drop, GuardEvent, Memory, Recall, Scored, Trace, Usage

Record = Mapping[str, Any]
SIGNALS = ("relevance", "recency", "importance", "strength")  # the others follow from them
FINDINGS = ("dense", "coverage", "bm25", "entity", "episode", "alone")
RANKS = ("dense_rank", "lexical_rank")
COLUMNS = (
    *("memory", "place", "gate", "reason", "twin", "usage", "score"),
    *(*SIGNALS, *FINDINGS, *RANKS),
)
"""What is kept of every candidate; what-if reads the signals, entities and ranks."""
DIGITS = {"score": 4, "coverage": 2, "bm25": 2, "episode": 2}  # of what is only shown; others: six
PLAIN_FIELDS = (
    *("text", "kind", "source", "status", "salience", "confidence", "pinned"),
    *("speaker", "thread_id", "turn", "tags", "supersedes", "derived_from"),
)
TIME_FIELDS = ("written_at", "confirmed_at", "valid_from", "valid_until", "superseded_at")
MEMORY_FIELDS = ("namespace", "key", *PLAIN_FIELDS, *TIME_FIELDS, "trust", "tokens")

LINE_TOKENS = 30  # about what a label and the marks around a text cost
CHARS_PER_TOKEN = 4  # of plain ASCII; any other character counts as a token
SHOWN_VERDICTS = 50  # texts, the latest, of which the page says what the guard withheld
HEALTH_WINDOW = 1000  # recalls, the latest, that the health report looks at

_read_event = TypeAdapter(GuardEvent).validate_python
_plain, _moments = attrgetter(*PLAIN_FIELDS), attrgetter(*TIME_FIELDS)
_signals, _findings, _ranks = attrgetter(*SIGNALS), attrgetter(*FINDINGS), attrgetter(*RANKS)
_SCRIPTS = ("unpack", "whatif", "dom", "turns", "memories", "health", "app")
"""In the order in which they need each other."""


def page(records: Iterable[Record]) -> str:
    """One page of what `read_log` gives."""
    data = PageData()
    for record in records:
        data.add(record)
    return data.html()


class _Places(dict[Any, int]):
    """Rows that are kept once, each with its place."""

    def __missing__(self, row: Hashable) -> int:
        self[row] = len(self)
        return self[row]


class PageData:
    """What the page holds, gathered record by record."""

    def __init__(self) -> None:
        self.memories = _Places()  # a row for each wording, namespace and key first
        self.turns: list[dict[str, Any]] = []
        self.unreadable = 0  # records that could not be read
        self._candidates: list[tuple[float | None, ...]] = []  # in the order of the columns
        self._usages, self._reasons = _Places(), _Places()
        self._namespaces, self._gates = _Places(), _Places({"": 0})
        self._policies: dict[tuple[str, bool], dict[str, Any]] = {}
        self._by_turn: dict[Hashable, list[dict[str, Any]]] = {}  # their answer is one
        self._feedback: list[list[Any]] = []
        self._stored: list[list[int]] = []
        self._latest: deque[Recall] = deque(maxlen=HEALTH_WINDOW)
        self._verdicts: deque[GuardEvent] = deque(maxlen=HEALTH_WINDOW)

    def add(self, record: Record) -> bool:
        """Take a record of a recall, an answer or feedback; False where it cannot be read."""
        try:
            # An infinite number, which JSON has not, would keep the whole page from being made.
            json.dumps(record, allow_nan=False)
            match show.kind_of(record):
                case show.FEEDBACK:
                    place, key = self._namespaces[tuple(record["namespace"])], str(record["key"])
                    recall, is_good = str(record["recall"] or ""), record["good"] is True
                    self._feedback.append([recall, place, key, is_good])
                case show.VERDICT:
                    fields = {name: record[name] for name in GuardEvent._fields}
                    self._verdicts.append(_read_event(fields))
                case show.ANSWER:
                    for turn in self._by_turn.get((record["thread_id"], record["turn"]), ()):
                        turn["answer"] = str(record["text"])
                case _:
                    self._add_recall(str(record["id"]), show.from_dict(record))
        except (InputError, *show.DAMAGE):
            self.unreadable += 1
            return False
        return True

    def add_memory(self, memory: Memory, usage: Usage) -> None:
        """Take a memory as it is stored."""
        self._stored.append([self._memory(memory), self._usages[usage]])

    def _add_recall(self, recall_id: str, recall: Recall) -> None:
        trace, policy = recall.trace, self._policy(recall.trace)
        self._latest.append(recall)
        dropped: list[tuple[Scored, Drop | None]] = [(drop.scored, drop) for drop in recall.dropped]
        seen = [*((scored, None) for scored in recall.chosen), *dropped]
        places = {scored.memory.id: place for place, (scored, _) in enumerate(seen)}
        for place, (scored, drop) in enumerate(seen, start=1):
            candidate, score = scored.candidate, scored.score
            found = f"found as asked: {candidate.found_as}" if candidate.found_as else ""
            gate, reason, twin = drop[1:] if drop else ("", found, None)
            row = (
                *(self._memory(scored.memory), 0 if drop else place),
                *(self._gates[gate], self._reasons[reason]),
                *(None if twin is None else places.get(twin), self._usages[candidate.usage], score),
                *(*_signals(scored.signals), *_findings(candidate.evidence)),
                *(_ranks(candidate) if policy["fusesRanks"] else (None, None)),
            )
            self._candidates.append(row)
        cue, temporal = trace.cue, trace.cue.temporal
        turn = {
            "id": recall_id,
            "at": _seconds(trace.at),
            "judged_at": _seconds(cue.as_of or trace.at),
            "text": cue.text,
            "parts": cue.parts,
            "temporal": temporal
            and (temporal.mode, _seconds(temporal.start), _seconds(temporal.end)),
            "namespaces": [self._namespaces[namespace] for namespace in trace.namespaces],
            "thread": trace.thread_id,
            "policy": policy["place"],
            "searched": trace.searched,
            "channels": trace.channels,
            "budget": trace.budget_tokens,
            "tokens": trace.tokens,
            "compacted": [places[each] for each in trace.compacted if each in places],
            "conflicts": [[places.get(each, -1) for each in pair] for pair in trace.conflicts],
            "timings": {stage: round(1e3 * s, 6) for stage, s in trace.timings.items()},
            "degraded": trace.degraded,
            "funnel": str(recall),
            "block": trace.block or None,
            "answer": None,
            "count": len(seen),
        }
        self.turns.append(turn)
        if trace.turn:
            self._by_turn.setdefault((trace.thread_id, trace.turn), []).append(turn)

    def _memory(self, memory: Memory) -> int:
        row = (
            *(self._namespaces[memory.namespace], memory.key, *_plain(memory)),
            *map(_seconds, _moments(memory)),
            *(types.TRUST[memory.source], LINE_TOKENS + text_tokens(memory.text)),
        )
        return self.memories[row]

    def _policy(self, trace: Trace) -> dict[str, Any]:
        """The policy in force and its place, with all its knobs where they are known."""
        identity = (trace.policy, bool(trace.knobs))
        if identity not in self._policies:
            name, _, fingerprint = trace.policy.rpartition(" ")
            # Read as a policy, so that the page meets no knob it does not know.
            presets = (getattr(RecallPolicy, preset)() for preset in PRESETS)
            known = (preset for preset in presets if preset.fingerprint == fingerprint)
            policy = RecallPolicy.from_dict(trace.knobs) if trace.knobs else next(known, None)
            self._policies[identity] = {
                **{"place": len(self._policies), "name": name, "fingerprint": fingerprint},
                "knobs": policy and policy.to_dict(),
                "fusesRanks": policy is None or policy.fuses_ranks,
            }
        return self._policies[identity]

    def html(self, live: str = "") -> str:
        """The page; with a tag, it asks its server for what there is under another tag."""
        template, style, script = _assets()
        style_hash, script_hash = (
            f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
            for text in (style, script)
        )
        # Nothing is loaded, nothing runs but our own script, and no text becomes markup.
        policy = (
            f"default-src 'none'; script-src {script_hash}; style-src {style_hash}; "
            "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'"
            + ("; connect-src 'self'" if live else "")
        )
        text = json.dumps(self._contents(live), separators=(",", ":"), allow_nan=False)
        # No time of making: the same traces give the same page.
        packed = gzip.compress(text.encode("ascii"), 6, mtime=0)
        # Base64: nothing in the data can end the element or the page.
        parts = {"style": style, "script": script, "data": base64.b64encode(packed).decode()}
        return template.format(policy=policy, **parts)

    def _contents(self, live: str) -> dict[str, Any]:
        """What the script finds in the page."""
        monitor, namespaces = Monitor(HEALTH_WINDOW), list(self._namespaces)
        for recall in self._latest:
            monitor(recall)
        for _, place, key, good in self._feedback[-HEALTH_WINDOW:]:
            monitor.feedback(namespaces[place], key, good)
        for event in self._verdicts:
            monitor.verdict(event)
        columns = {
            name: [None if n is None or n != n else round(n, DIGITS.get(name, 6)) for n in column]
            for name, *column in zip(COLUMNS, *self._candidates, strict=True)
        }
        return {
            **{"live": live, "unreadable": self.unreadable},
            **{"memoryFields": MEMORY_FIELDS, "memories": list(self.memories)},
            "turnFields": list(self.turns[0]) if self.turns else [],
            "turns": [list(turn.values()) for turn in self.turns],
            **{"columns": columns, "usages": list(self._usages), "stored": self._stored},
            **{"reasons": list(self._reasons), "gates": list(self._gates)},
            **{"policies": list(self._policies.values()), "namespaces": namespaces},
            "feedback": self._feedback,
            **{"asked": types.ASKED, "gateWords": dict(types.GATE_WORDS)},
            "unrankedGates": sorted(types.HARD_GATES),
            "verdicts": [
                [event.namespace, event.key, event.source, event.action, event.rules]
                for event in list(self._verdicts)[-SHOWN_VERDICTS:]
            ],
            "defaultKnobs": RecallPolicy.default().to_dict(),
            "lineTokens": LINE_TOKENS,
            "health": monitor.report().to_dict(),
        }


@cache
def _assets() -> tuple[str, str, str]:
    """The page's frame, its style and its script."""
    folder = files("langmem_recall.observe.inspector")
    names = ("page.html", "style.css", *(f"script/{name}.js" for name in _SCRIPTS))
    template, style, *scripts = (folder.joinpath(name).read_text("utf-8") for name in names)
    return template, style, '"use strict";\n(() => {\n' + "\n".join(scripts) + "\n})();\n"


def text_tokens(text: str) -> int:
    """About how many tokens a text costs."""
    plain = sum(map(str.isascii, text)) if not text.isascii() else len(text)
    return math.ceil(plain / CHARS_PER_TOKEN) + len(text) - plain


def _seconds(moment: datetime | None) -> float | None:
    """A time as epoch seconds."""
    known = types.aware(moment)
    return None if known is None else known.timestamp()
