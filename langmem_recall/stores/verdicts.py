"""What the guard said: of a text before it is stored, and of items that are put as they are."""

from __future__ import annotations

import hashlib
import logging
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from langgraph.store.base import GetOp, Item, PutOp, validate_op_namespace

from langmem_recall.drive import Call, Ops, Plan
from langmem_recall.errors import described
from langmem_recall.lifecycle.provenance import text_of
from langmem_recall.lifecycle.verdict import Guard, Verdict, allow_all
from langmem_recall.stores.ledger import listing
from langmem_recall.types import SIDECAR_ROOT, Candidate, MemoryId, Namespace

logger = logging.getLogger(__name__)

VERDICT = (SIDECAR_ROOT, "verdict")
QUARANTINE = "quarantine"
"""Field of a quarantined memory's value: the guard's reasons, and what it is to supersede."""
MOST_NAMESPACES = 256
"""Namespaces whose rulings are kept in memory; the one read longest ago goes first."""
DEEPEST = 20
"""Levels of a value that are looked through for serialised objects."""


class Ruling(NamedTuple):
    """What was said of an item, and of which text; another text under its key is not meant."""

    action: str
    """quarantine, reject or approve."""
    reasons: tuple[str, ...]
    digest: str

    def bars(self, text: str) -> bool:
        """Whether an item with this text is kept from readers."""
        return self.action != "approve" and self.digest == _digest(text)


Rulings = dict[MemoryId, Ruling]


class Verdicts:
    """The guard of a store and its rulings, kept in the side-car and never in an item."""

    def __init__(self, guard: Guard, max_age_s: float) -> None:
        self._guard = None if guard is allow_all else guard
        self._max_age_s = max_age_s
        self._lock = threading.Lock()
        self._known: OrderedDict[Namespace, tuple[float, Rulings]] = OrderedDict()
        self._notes = 0
        """Times that own rulings changed: a reading that they overtook is not kept."""

    @property
    def is_on(self) -> bool:
        """Whether there is a guard, and its rulings bar."""
        return self._guard is not None

    def of_text(self, text: str) -> Plan[Verdict]:
        """What the guard says of a text; off the event loop, because it may ask a model."""
        guard = self._guard
        if guard is None:
            return Verdict()
        verdict: Verdict = yield Call(lambda: judge_text(guard, text))
        return verdict

    def judge(self, puts: Iterable[PutOp]) -> Plan[None]:
        """Keep what the guard says of values about to be put; the values stay as they are."""
        guard = self._guard
        if guard is None:
            return
        judged = [op for op in puts if op.value is not None and op.namespace[:1] != (SIDECAR_ROOT,)]
        if not judged:
            return
        rulings: Rulings = yield Call(lambda: _flagged(guard, judged))
        if rulings:
            yield from self._write(rulings)

    def applied(
        self, prefix: Namespace, lots: Sequence[list[Candidate]], now: float
    ) -> Plan[Sequence[list[Candidate]]]:
        """Candidates with those that a ruling bars marked as quarantined."""
        if self._guard is None:
            return lots
        rulings = yield from self._current(prefix, now)
        if not rulings:
            return lots
        return [[_marked(candidate, rulings) for candidate in lot] for lot in lots]

    def below(self, prefix: Namespace) -> Plan[Rulings]:
        """Every ruling at or below a namespace, as the side-car has it now."""
        return _rulings((yield from listing((*VERDICT, *prefix), sidecar=True)))

    def of_item(self, memory_id: MemoryId) -> Plan[Ruling | None]:
        """The ruling on one item."""
        (item,) = yield Ops([_get(memory_id)], sidecar=True)
        return None if item is None else _ruling(item.value)

    def approve(self, memory_id: MemoryId, ruling: Ruling) -> Plan[None]:
        """Let readers see an item; the same text put again stays approved."""
        approved = ruling._replace(action="approve")
        yield Ops([_put(memory_id, approved)], sidecar=True)
        self._note({memory_id: approved})

    def hand_down(self, memory_id: MemoryId, former_id: MemoryId, text: str) -> Plan[None]:
        """Bar the former value of an item too, where its text is barred."""
        ruling = yield from self.of_item(memory_id) if self.is_on else _no_ruling()
        if ruling is not None and ruling.bars(text):
            yield from self._write({former_id: ruling})

    def forget(self, ids: Sequence[MemoryId]) -> Plan[None]:
        """Drop the rulings on these items."""
        ops = [PutOp((*VERDICT, *namespace), key, None) for namespace, key in sorted(ids)]
        yield Ops(ops, sidecar=True)
        with self._lock:
            for _, rulings in self._known.values():
                for memory_id in ids:
                    rulings.pop(memory_id, None)

    def reset(self) -> None:
        """Read rulings anew from now on."""
        with self._lock:
            self._notes += 1
            self._known.clear()

    def _write(self, rulings: Rulings) -> Plan[None]:
        ids = sorted(rulings)
        held: list[Item | None] = yield Ops([_get(memory_id) for memory_id in ids], sidecar=True)
        kept = {
            memory_id: ruling
            for memory_id, item in zip(ids, held, strict=True)
            if (ruling := rulings[memory_id]) and not _is_approved(item, ruling)
        }
        yield Ops([_put(memory_id, ruling) for memory_id, ruling in kept.items()], sidecar=True)
        self._note(kept)

    def _current(self, prefix: Namespace, now: float) -> Plan[Rulings]:
        with self._lock:
            read_at, rulings = self._known.get(prefix, (None, {}))
            notes = self._notes
        if read_at is None or now - read_at >= self._max_age_s:
            rulings = yield from self.below(prefix)
            self._keep(prefix, rulings, now, notes)
        return rulings

    @property
    def notes(self) -> int:
        """How often own rulings have changed; read it before `take`'s items are read."""
        return self._notes

    def take(self, prefix: Namespace, items: Iterable[Item], now: float, notes: int) -> None:
        """Keep the rulings on a namespace that were read together with its memories."""
        self._keep(prefix, _rulings(items), now, notes)

    def _keep(self, prefix: Namespace, rulings: Rulings, now: float, notes: int) -> None:
        with self._lock:
            if notes == self._notes:
                self._known[prefix] = now, rulings
                self._known.move_to_end(prefix)
            while len(self._known) > MOST_NAMESPACES:
                self._known.popitem(last=False)

    def _note(self, rulings: Mapping[MemoryId, Ruling]) -> None:
        """Own rulings are in force at once; those of other processes when they are read anew."""
        with self._lock:
            self._notes += 1
            for prefix, (_, known) in self._known.items():
                known.update(
                    (memory_id, ruling)
                    for memory_id, ruling in rulings.items()
                    if memory_id[0][: len(prefix)] == prefix
                )


def _no_ruling() -> Plan[Ruling | None]:
    return None
    yield


def _rulings(items: Iterable[Item]) -> Rulings:
    return {(item.namespace[len(VERDICT) :], item.key): _ruling(item.value) for item in items}


def judge_text(guard: Guard, text: str) -> Verdict:
    """The guard's verdict; a guard that fails quarantines, because nobody has looked."""
    try:
        verdict = guard(text)
        if verdict.action in ("allow", "quarantine", "reject"):
            return verdict
        problem = f"it said {verdict.action!r}"
    except Exception as error:
        problem = described(error)
        logger.warning("The guard failed; the text is quarantined: %s", problem)
    return Verdict("quarantine", (f"the guard failed ({problem:.100})",))


def judge_value(guard: Guard, value: Mapping[str, Any]) -> Verdict:
    """The guard's verdict on a stored value; one that poses as a serialised object is suspect."""
    if _has_constructor(value, DEEPEST):
        return Verdict("quarantine", ("serialised object",))
    return judge_text(guard, text_of(value))


def quarantined_value(
    value: Mapping[str, Any], verdict: Verdict, supersedes: Sequence[str] = ()
) -> dict[str, Any]:
    """A value that waits for approval, with the guard's reasons and what it is to supersede."""
    held = {"reasons": list(verdict.reasons), "supersedes": list(supersedes)}
    return {**value, "status": "quarantined", QUARANTINE: held}


def _flagged(guard: Guard, puts: Sequence[PutOp]) -> Rulings:
    rulings: Rulings = {}
    for op in puts:
        value = op.value or {}
        if not isinstance(value, Mapping):
            continue
        verdict = judge_value(guard, value)
        if verdict.action != "allow":
            # The put will refuse a malformed namespace, so nothing may be kept of it either.
            validate_op_namespace(op)
            digest = _digest(text_of(value))
            rulings[op.namespace, str(op.key)] = Ruling(verdict.action, verdict.reasons, digest)
    return rulings


def _has_constructor(held: Any, depth: int) -> bool:
    """Whether LangChain's loader would take some part for an object to construct."""
    if not depth:
        return False
    if isinstance(held, Mapping):
        return "lc" in held or any(_has_constructor(part, depth - 1) for part in held.values())
    if isinstance(held, list | tuple):
        return any(_has_constructor(part, depth - 1) for part in held)
    return False


def _marked(candidate: Candidate, rulings: Rulings) -> Candidate:
    memory = candidate.memory
    ruling = rulings.get(memory.id)
    if ruling is None or not ruling.bars(memory.text):
        return candidate
    return candidate._replace(memory=replace(memory, status="quarantined"))


def _is_approved(item: Item | None, ruling: Ruling) -> bool:
    if item is None:
        return False
    held = _ruling(item.value)
    return held.action == "approve" and held.digest == ruling.digest


def _get(memory_id: MemoryId) -> GetOp:
    return GetOp((*VERDICT, *memory_id[0]), memory_id[1], refresh_ttl=False)


def _put(memory_id: MemoryId, ruling: Ruling) -> PutOp:
    namespace, key = memory_id
    value = {**ruling._asdict(), "reasons": list(ruling.reasons)}
    return PutOp((*VERDICT, *namespace), key, value, index=False)


def _ruling(value: Mapping[str, Any]) -> Ruling:
    reasons = tuple(str(reason) for reason in value.get("reasons", ()))
    return Ruling(str(value.get("action")), reasons, str(value.get("digest")))


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
