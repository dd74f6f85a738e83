"""`page`: recorded recalls as one HTML file that needs no network and runs no text of theirs.

Of the records the page holds memories once, turns as rows and candidates as columns.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import math
from array import array
from collections import deque
from collections.abc import Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any

from pydantic import TypeAdapter

from langmem_recall import types
from langmem_recall.errors import InputError
from langmem_recall.observe import show
from langmem_recall.observe.monitor import Monitor
from langmem_recall.policy import PRESETS, RecallPolicy
from langmem_recall.types import GuardEvent, Memory, Usage, aware

Record = Mapping[str, Any]
TITLE = "Recall inspector"
SIGNALS = ("relevance", "recency", "strength")  # with all digits: what-if reads them
FINDINGS = ("coverage", "bm25", "entity", "episode")  # only shown, but for the entities' ranks
SCALES = {
    **dict.fromkeys(("memory", "place", "gate", "reason", "twin", "usage"), 1),
    **dict.fromkeys(("dense_rank", "lexical_rank", "alone"), 1),
    **dict.fromkeys((*SIGNALS, "importance_lift", "dense"), 10**6),
    "score": 10**4,
    **dict.fromkeys(FINDINGS, 10**2),
    "entity": 10**6,
}
"""What is kept of every candidate, as whole multiples of 1 / scale. Trust is kept with the memory,
importance as what it has above the memory's salience, ranks where the policy reads them;
similarity follows from the others."""
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
_LARGEST = 2**31 - 2

_read_event = TypeAdapter(GuardEvent).validate_python
_SCRIPTS = ("unpack", "whatif", "dom", "controls", "turn", "turns", "memories", "health", "app")
"""In the order in which they need each other."""


def page(
    records: Iterable[Record], memories: Iterable[tuple[Memory, Usage]] = (), title: str = TITLE
) -> str:
    """One page of what `read_log` gives and what a store holds."""
    data = PageData()
    for record in records:
        data.add(record)
    for memory, usage in memories:
        data.add_memory(memory, usage)
    return render_page(data, title)


def render_page(data: PageData, title: str = TITLE, live: str = "") -> str:
    """The page that holds the data; with a tag, it asks its server for those of another tag."""
    template, style, script = _assets()
    style_hash, script_hash = (
        f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
        for text in (style, script)
    )
    # Nothing is loaded, nothing runs but our own script, and no text becomes markup.
    policy = (
        f"default-src 'none'; script-src {script_hash}; style-src {style_hash}; base-uri 'none'; "
        "form-action 'none'; require-trusted-types-for 'script'"
        + ("; connect-src 'self'" if live else "")
    )
    # The data are Base64: nothing in them can end the element or the page.
    parts = {"style": style, "script": script, "data": data.packed(title, live)}
    return template.format(policy=policy, title=escape(title), **parts)


@cache
def _assets() -> tuple[str, str, str]:
    """The page's frame, its style and its script."""
    folder = files("langmem_recall.observe.inspector")
    names = ("page.html", "style.css", *(f"script/{name}.js" for name in _SCRIPTS))
    template, style, *scripts = (folder.joinpath(name).read_text("utf-8") for name in names)
    return template, style, '"use strict";\n(() => {\n' + "\n".join(scripts) + "\n})();\n"


class _Places(dict[Any, int]):
    """Rows that are kept once, each with its place."""

    def __missing__(self, row: Hashable) -> int:
        self[row] = len(self)
        return self[row]


class PageData:
    """What the page holds, gathered record by record."""

    def __init__(self) -> None:
        self.memories = _Places()  # a row for each wording, namespace and key first
        self._usages, self._reasons = _Places(), _Places()
        self._namespaces, self._gates = _Places(), _Places({"": 0})
        self._policies: list[dict[str, Any]] = []
        self._policy_places = _Places()
        self.turns: list[dict[str, Any]] = []
        self._columns = {name: array("d") for name in SCALES}
        self._feedback: list[list[Any]] = []
        self._verdicts: deque[GuardEvent] = deque(maxlen=HEALTH_WINDOW)
        self._by_turn: dict[Hashable, list[dict[str, Any]]] = {}  # their answer is one
        self._stored: list[list[int]] = []
        self._latest: deque[Record] = deque(maxlen=HEALTH_WINDOW)
        self.unreadable = 0  # records that could not be read

    def add(self, record: Record) -> bool:
        """Take a record of a recall, an answer or feedback; False where it cannot be read."""
        kind = record.get("kind", show.RECALL) if isinstance(record, Mapping) else show.RECALL
        try:
            match kind:
                case show.FEEDBACK:
                    show.check_record(record, kind)
                    place, key = self._namespace(record["namespace"]), str(record["key"])
                    recall, good = str(record["recall"] or ""), record["good"] is True
                    self._feedback.append([recall, place, key, good])
                case show.VERDICT:
                    show.check_record(record, kind)
                    fields = {name: record[name] for name in GuardEvent._fields}
                    self._verdicts.append(_read_event(fields))
                case show.ANSWER:
                    show.check_record(record, kind)
                    for turn in self._by_turn.get((record["thread_id"], record["turn"]), ()):
                        turn["answer"] = str(record["text"])
                case _:
                    show.check_record(record)
                    self._add_recall(record)
        except (InputError, *show.DAMAGE):
            self.unreadable += 1
            return False
        return True

    def _add_recall(self, record: Record) -> None:
        policy, candidates = self._policy(record["policy"]), record["candidates"]
        turn, has_ranks = self._turn(record, policy), self._policies[policy]["fusesRanks"]
        # All of them first: nothing is added of a record that is damaged half-way.
        rows = [self._candidate(candidate, candidates, has_ranks) for candidate in candidates]
        for row in rows:
            for column, number in zip(self._columns.values(), row, strict=True):
                column.append(number)
        self.turns.append(turn)
        if record.get("turn"):
            self._by_turn.setdefault((turn["thread"], record["turn"]), []).append(turn)
        self._latest.append(record)

    def add_memory(self, memory: Memory, usage: Usage) -> None:
        """Take a memory as it is stored."""
        moments = {name: getattr(memory, name) for name in TIME_FIELDS}
        record = {name: getattr(memory, name) for name in ("namespace", "key", *PLAIN_FIELDS)}
        record |= {name: moment and moment.isoformat() for name, moment in moments.items()}
        self._stored.append([self._memory(record), self._usage(usage._asdict())])

    def packed(self, title: str, live: str) -> str:
        """All of it as one compressed text."""
        monitor, namespaces = Monitor(HEALTH_WINDOW), list(self._namespaces)
        for record in self._latest:
            with suppress(InputError):
                monitor(show.from_dict(record))
        for _, place, key, good in self._feedback[-HEALTH_WINDOW:]:
            monitor.feedback(namespaces[place], key, good)
        for event in self._verdicts:
            monitor.verdict(event)
        header = {
            **{"title": title, "live": live, "unreadable": self.unreadable},
            **{"memoryFields": MEMORY_FIELDS, "memories": list(self.memories)},
            "turnFields": list(self.turns[0]) if self.turns else [],
            "turns": [list(turn.values()) for turn in self.turns],
            **{"stored": self._stored, "usages": list(self._usages), "feedback": self._feedback},
            **{"reasons": list(self._reasons), "policies": self._policies},
            **{"namespaces": namespaces, "gates": list(self._gates), "asked": types.ASKED},
            "gateWords": dict(types.GATE_WORDS),
            "unrankedGates": sorted(types.HARD_GATES),
            "verdicts": [
                [list(it.namespace), it.key, it.source, it.action, list(it.rules)]
                for it in list(self._verdicts)[-SHOWN_VERDICTS:]
            ],
            "defaultKnobs": RecallPolicy.default().to_dict(),
            "lineTokens": LINE_TOKENS,
            "health": monitor.report().to_dict(),
        }
        return pack(header, self._columns, SCALES)

    def _turn(self, record: Record, policy: int) -> dict[str, Any]:
        cue, temporal = record["cue"], record["cue"].get("temporal")
        places: dict[Hashable, int] = {}
        # Few turns need to know where each candidate stands.
        if record["compacted"] or record["conflicts"]:
            for place, candidate in enumerate(record["candidates"]):
                places[*candidate["namespace"], candidate["key"]] = place
        compacted = [(*namespace, key) for namespace, key in record["compacted"]]
        return {
            "id": str(record["id"]),
            "at": _seconds(record["at"]),
            "judged_at": _seconds(cue.get("as_of") or record["at"]),
            "text": str(cue["text"]),
            "parts": [str(part) for part in cue["parts"]],
            "temporal": temporal
            and [str(temporal["mode"]), _seconds(temporal["start"]), _seconds(temporal["end"])],
            "namespaces": [self._namespace(namespace) for namespace in record["namespaces"]],
            "thread": record.get("thread_id") and str(record["thread_id"]),
            "policy": policy,
            "searched": int(record["searched"]),
            "channels": {str(name): int(count) for name, count in record["channels"].items()},
            "budget": record["budget"] and int(record["budget"]),
            "tokens": int(record["tokens"]),
            "compacted": [places[name] for name in compacted if name in places],
            "conflicts": [
                [places.get((*namespace, key), -1) for namespace, key in pair]
                for pair in record["conflicts"]
            ],
            "timings": {str(stage): float(ms) for stage, ms in record["timings"].items()},
            "degraded": [str(note) for note in record["degraded"]],
            "funnel": str(record["funnel"]),
            "block": None if record.get("block") is None else str(record["block"]),
            "answer": None,
            "count": len(record["candidates"]),
        }

    def _candidate(self, record: Record, others: Sequence[Record], has_ranks: bool) -> list[float]:
        """The numbers of a candidate, in the order of the columns; NaN where one is not known."""
        gate, reason = str(record.get("gate", "")), str(record.get("reason", ""))
        if not gate and (phrasing := record.get("found_as")) is not None:
            reason = f"found as asked: {phrasing}"
        signals, evidence = record["signals"], record["evidence"]
        ranks = (record.get("dense_rank"), record.get("lexical_rank")) if has_ranks else (0, 0)
        numbers = (
            self._memory(record),
            record.get("place", 0),
            self._gates[gate],
            self._reasons[reason],
            _twin(record, others) if gate == "duplicate" else -1,
            self._usage(record["usage"]),
            *(rank or 0 for rank in ranks),
            evidence.get("alone", 0),
            *(signals[name] for name in SIGNALS),
            signals["importance"] - record["salience"],
            evidence["dense"],
            record["score"],
            *(evidence[name] for name in FINDINGS),
        )
        return [math.nan if number is None else float(number) for number in numbers]

    def _memory(self, record: Record) -> int:
        plain = [record.get(name) for name in PLAIN_FIELDS]
        text = plain[0] if isinstance(plain[0], str) else ""
        row = (
            self._namespace(record["namespace"]),
            str(record["key"]),
            *(tuple(field) if isinstance(field, list) else field for field in plain),
            *(_seconds(record.get(name)) for name in TIME_FIELDS),
            types.TRUST[record["source"]],
            LINE_TOKENS + text_tokens(text),
        )
        return self.memories[row]

    def _usage(self, record: Record) -> int:
        return self._usages[tuple(record.get(name) for name in Usage._fields)]

    def _namespace(self, labels: Sequence[str]) -> int:
        return self._namespaces[tuple(map(str, labels))]

    def _policy(self, record: Record) -> int:
        name, fingerprint = str(record["name"]), str(record["fingerprint"])
        recorded = record.get("knobs")
        identity = (name, fingerprint, recorded is None)
        if identity not in self._policy_places:
            # Read as a policy, so that the page meets no knob it does not know.
            presets = (getattr(RecallPolicy, preset)() for preset in PRESETS)
            known = (preset for preset in presets if preset.fingerprint == fingerprint)
            policy = RecallPolicy.from_dict(recorded) if recorded else next(known, None)
            self._policies.append(
                {
                    **{"name": name, "fingerprint": fingerprint},
                    "knobs": policy and policy.to_dict(),
                    "fusesRanks": policy is None or policy.fuses_ranks,
                }
            )
        return self._policy_places[identity]


def text_tokens(text: str) -> int:
    """About how many tokens a text costs."""
    plain = sum(map(str.isascii, text)) if not text.isascii() else len(text)
    return math.ceil(plain / CHARS_PER_TOKEN) + len(text) - plain


def _twin(record: Record, others: Sequence[Record]) -> int:
    """The place of the memory that a duplicate is like, among the candidates; -1 if unknown."""
    # Version 0.1 named it in the reason alone.
    unnamed = record["namespace"], record["reason"].partition(" like ")[2]
    namespace, key = record.get("twin") or unnamed
    same = [i for i, other in enumerate(others) if other["key"] == key]
    return next((i for i in same if others[i]["namespace"] == namespace), (same or [-1])[0])


def _seconds(moment: Any) -> float | None:
    """A time as epoch seconds."""
    known = None if moment is None else aware(datetime.fromisoformat(moment))
    return None if known is None else known.timestamp()


def pack(
    header: dict[str, Any], columns: Mapping[str, array[float]], scales: Mapping[str, int]
) -> str:
    """A header and columns, compressed, as Base64: small, and quick to unpack.

    4 bytes give the length of the header, which is JSON. Of every column come the lowest bytes of
    all numbers, then the next higher ones, which compresses best; 0 is a number not known.
    """
    import numpy as np  # with the first page: the help of the command line does without it

    layout, planes = [], []
    for name, numbers in columns.items():
        whole = np.clip(np.rint(np.array(numbers) * scales[name]), -_LARGEST, _LARGEST)
        known = whole[~np.isnan(whole)]
        base = int(known.min()) - 1 if len(known) else 0
        counted = np.nan_to_num(whole - base).astype("<u8")
        width = (int(counted.max(initial=0)).bit_length() + 7) // 8
        planes.append(counted.view(np.uint8).reshape(-1, 8)[:, :width].T.tobytes())
        layout.append({"name": name, "scale": scales[name], "base": base, "width": width})
    text = json.dumps(header | {"columns": layout}, separators=(",", ":"), allow_nan=False)
    head = text.encode("ascii")
    body = b"".join([len(head).to_bytes(4, "little"), head, *planes])
    # No time of making: the same traces give the same page.
    return base64.b64encode(gzip.compress(body, 6, mtime=0)).decode("ascii")
