"""What the guard decided about each text: one decision, wherever the text is read."""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any, NamedTuple

from langgraph.store.base import GetOp, Item, PutOp, validate_op_namespace

from langmem_recall.errors import described
from langmem_recall.flows.candidates import listing
from langmem_recall.flows.effects import Call, Ops, Plan
from langmem_recall.guard.judge import ACTIONS, Guard, RuleGuard, Verdict, allow_all
from langmem_recall.memory.value import DEEPEST, content_of, labels_of, read_memory
from langmem_recall.types import SIDECAR_ROOT, Memory, MemoryId, Namespace

logger = logging.getLogger(__name__)

VERDICT = (SIDECAR_ROOT, "verdict")
QUARANTINE = "quarantine"
"""Field of a quarantined memory's value: the reasons, and what it is to take the place of."""
WITHHELD = "[withheld: quarantined]"
"""What a reader gets in place of words that the guard bars."""
MOST_DECISIONS = 100_000
"""Decisions kept in memory before the looking up starts afresh."""
MOST_REVIEWED = 10_000


class Decision(NamedTuple):
    """What was decided about an item, and about which text: another one under its key is not meant.

    An item that never got a decision is judged when it is first read.
    """

    action: str
    """allow, quarantine, reject or approve."""
    reasons: tuple[str, ...]
    digest: str
    former: str | None = None
    """Key of the value that stays in force while this one waits."""

    @property
    def bars(self) -> bool:
        """Whether readers must not see the text."""
        return self.action not in ("allow", "approve")

    def to_dict(self) -> dict[str, Any]:
        """As a store and an export keep it."""
        told = {"action": self.action, "reasons": list(self.reasons), "digest": self.digest}
        return told | ({"former": self.former} if self.former else {})

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Decision:
        """Read a decision; what is malformed bars nothing, because it matches no text."""
        reasons = value.get("reasons")
        former = value.get("former")
        return cls(
            str(value.get("action")),
            tuple(map(str, reasons)) if isinstance(reasons, list | tuple) else (),
            str(value.get("digest")),
            former if isinstance(former, str) else None,
        )


Decisions = dict[MemoryId, Decision]


class _Known(NamedTuple):
    """A decision as this process knows it."""

    decision: Decision
    at: float
    words: tuple[Any, ...]
    """What it is about: compared faster than digests are made."""


def _words_of(memory: Memory) -> tuple[Any, ...]:
    return memory.text, memory.speaker, memory.turn, memory.tags


class Quarantine:
    """The guard of a store and its decisions, kept in the side-car and never in an item.

    A decision is written before the item it is about, and looked up after the item was read: no
    worker can see a text before it can see what was decided about it.
    """

    def __init__(self, guard: Guard, max_age_s: float) -> None:
        self._guard = None if guard is allow_all else guard
        # Rules say the same again at no cost; what a model has said is kept.
        self._keeps_all = not isinstance(guard, RuleGuard)
        self._max_age_s = max_age_s
        self._lock = threading.Lock()
        self._known: dict[MemoryId, _Known] = {}
        self._reviewed: OrderedDict[MemoryId, str] = OrderedDict()

    @property
    def is_on(self) -> bool:
        """Whether there is a guard, and its decisions bar."""
        return self._guard is not None

    def of_text(self, text: str) -> Plan[Verdict]:
        """What the guard says of a text; off the event loop, because it may ask a model."""
        guard = self._guard
        if guard is None:
            return Verdict()
        verdict: Verdict = yield Call(lambda: judge_text(guard, text))
        return verdict

    def of_memory(self, memory: Memory) -> Plan[Verdict]:
        """What the guard says of a new memory: of its text, else of its labels."""
        verdict = yield from self.of_text(memory.text)
        labels = labels_of(memory)
        if verdict.action != "allow" or not labels:
            return verdict
        of_labels = yield from self.of_text(labels)
        if of_labels.action == "allow":
            return verdict
        # The text itself is not to be lost for what is said beside it.
        return Verdict("quarantine", of_labels.reasons, verdict.text)

    def barred(self, memories: Iterable[Memory], now: float) -> Plan[Decisions]:
        """Decisions about those of some memories that no reader may see."""
        if self._guard is None:
            return {}
        decisions, unknown = self._look_up(memories, now)
        if unknown:
            decisions |= yield from self._decide(unknown, now)
        return {memory_id: one for memory_id, one in decisions.items() if one.bars}

    def judge(self, puts: Iterable[PutOp]) -> Plan[tuple[Decisions, Decisions]]:
        """Decisions about values that are about to be put, and those kept about the same names.

        A text that was approved stays so; what is put stays as it is.
        """
        judged = {
            (op.namespace, str(op.key)): _checked_memory(op)
            for op in puts
            if isinstance(op.value, Mapping) and op.namespace[:1] != (SIDECAR_ROOT,)
        }
        if self._guard is None or not judged:
            return {}, {}
        kept = yield from self.kept(judged)
        said: dict[MemoryId, tuple[Decision, bool]] = yield Call(
            lambda: self._judge_all(judged.values())
        )
        decisions = {memory_id: decision for memory_id, (decision, _) in said.items()}
        for memory_id, before in kept.items():
            is_meant = before.digest == decisions[memory_id].digest
            if before.action == "approve" and is_meant:
                decisions[memory_id] = before
        return decisions, kept

    def is_lasting(self, decision: Decision, before: Decision | None) -> bool:
        """Whether a decision is to be written down: what rules allow they allow again.

        An approval is kept beside what is allowed anyway: the text may come back.
        """
        is_approved = before is not None and before.action == "approve"
        return decision.bars or (self._keeps_all and not is_approved)

    def kept(self, ids: Iterable[MemoryId]) -> Plan[Decisions]:
        """Decisions about these items as the side-car has them, whatever text they are about."""
        wanted = sorted(ids)
        gets = [GetOp((*VERDICT, *one[0]), one[1], refresh_ttl=False) for one in wanted]
        items: list[Item | None] = yield Ops(gets, sidecar=True)
        return {
            memory_id: Decision.from_dict(item.value)
            for memory_id, item in zip(wanted, items, strict=True)
            if item is not None
        }

    def below(self, prefix: Namespace) -> Plan[Decisions]:
        """Every decision at or below a namespace, as the side-car has it now."""
        items = yield from listing((*VERDICT, *prefix), sidecar=True)
        return {
            (item.namespace[len(VERDICT) :], item.key): Decision.from_dict(item.value)
            for item in items
        }

    def write(self, decisions: Decisions) -> Plan[None]:
        """Keep decisions for good, and for every worker."""
        # Sorted, because unsorted batches dead-lock on Postgres.
        puts = [
            PutOp((*VERDICT, *namespace), key, decisions[namespace, key].to_dict(), index=False)
            for namespace, key in sorted(decisions)
        ]
        if puts:
            yield Ops(puts, sidecar=True)
        self._drop(decisions)

    def forget(self, ids: Sequence[MemoryId]) -> Plan[None]:
        """Drop the decisions about these items."""
        ops = [PutOp((*VERDICT, *namespace), key, None) for namespace, key in sorted(ids)]
        yield Ops(ops, sidecar=True)
        self._drop(ids)

    def _drop(self, ids: Iterable[MemoryId]) -> None:
        """Look these up anew from now on."""
        with self._lock:
            for memory_id in ids:
                self._known.pop(memory_id, None)

    def reset(self) -> None:
        """Look every decision up anew from now on."""
        with self._lock:
            self._known.clear()

    def show_to_reviewer(self, memories: Iterable[Memory]) -> None:
        """Note which texts were listed for review: no other text may be approved in their place."""
        with self._lock:
            for memory in memories:
                self._reviewed[memory.id] = digest_of(memory)
                self._reviewed.move_to_end(memory.id)
            while len(self._reviewed) > MOST_REVIEWED:
                self._reviewed.popitem(last=False)

    def is_as_reviewed(self, memory: Memory) -> bool:
        """Whether a text is the one that was listed for review; also where none was listed."""
        return self._reviewed.get(memory.id, digest := digest_of(memory)) == digest

    def _look_up(
        self, memories: Iterable[Memory], now: float
    ) -> tuple[Decisions, dict[MemoryId, Memory]]:
        """What is known here, and what is not; somebody may have approved what is barred."""
        decisions: Decisions = {}
        unknown: dict[MemoryId, Memory] = {}
        for memory in memories:
            known = self._known.get(memory.id)
            if (
                known is None
                or known.words != _words_of(memory)
                or (known.decision.bars and now - known.at >= self._max_age_s)
            ):
                unknown[memory.id] = memory
            else:
                decisions[memory.id] = known.decision
        return decisions, unknown

    def _decide(self, unknown: Mapping[MemoryId, Memory], now: float) -> Plan[Decisions]:
        """Decisions from the side-car; the guard judges what nobody has judged before.

        Rules are asked first, and the side-car whether somebody approved what they bar: what they
        allow costs no round trip.
        """
        said: dict[MemoryId, tuple[Decision, bool]] = {}
        if not self._keeps_all:
            said = yield Call(lambda: self._judge_all(unknown.values()))
        asked = [one for one in unknown if one not in said or said[one][0].bars]
        try:
            kept = yield from self.kept(asked)
        except Exception as error:
            # Judged here and now nothing is shown that should not be; approvals have to wait.
            logger.warning("The guard's decisions cannot be read (%s).", described(error))
            kept = {}
        known = {one: kept[one] for one in kept if kept[one].digest == digest_of(unknown[one])}
        missing = [unknown[one] for one in asked if one not in known]
        if self._keeps_all and missing:
            said = yield Call(lambda: self._judge_all(missing))
        lasting = {
            memory.id: said[memory.id][0]._replace(former=kept[memory.id].former)
            if memory.id in kept
            else said[memory.id][0]
            for memory in missing
            # A guard that failed has decided nothing: the next reader asks it again.
            if not said[memory.id][1] and self.is_lasting(said[memory.id][0], kept.get(memory.id))
        }
        try:
            yield from self.write(lasting)
        except Exception as error:
            logger.warning("The guard's decisions cannot be kept (%s).", described(error))
        decided = {one: decision for one, (decision, _) in said.items()} | lasting | known
        with self._lock:
            if len(self._known) > MOST_DECISIONS:
                self._known.clear()
            for memory_id, decision in decided.items():
                self._known[memory_id] = _Known(decision, now, _words_of(unknown[memory_id]))
        return decided

    def _judge_all(self, memories: Iterable[Memory]) -> dict[MemoryId, tuple[Decision, bool]]:
        guard = self._guard or allow_all
        return {memory.id: decide(guard, memory) for memory in memories}


def withheld(memory: Memory) -> Memory:
    """A memory that no reader may see: its name and times, none of its words."""
    return replace(
        memory,
        text=WITHHELD,
        status="quarantined",
        turn=None,
        speaker=None,
        entities=(),
        tags=(),
        pinned=False,
        value={},
    )


def judge_text(guard: Guard, text: str) -> Verdict:
    """The guard's verdict; a guard that fails quarantines, because nobody has looked."""
    return _ask(guard, text)[0]


def judge_memory(guard: Guard, memory: Memory) -> tuple[Verdict, bool]:
    """The guard's verdict on what a store holds, and whether the guard failed."""
    if _has_constructor(memory.value, DEEPEST):
        # LangChain's loader would take it for an object to construct.
        return Verdict("quarantine", ("serialised object",)), False
    verdict, has_failed = _ask(guard, memory.text)
    labels = labels_of(memory)
    if verdict.action == "allow" and labels:
        return _ask(guard, labels)
    return verdict, has_failed


def decide(guard: Guard, memory: Memory) -> tuple[Decision, bool]:
    """The decision about a memory, and whether it is only that the guard failed."""
    verdict, has_failed = judge_memory(guard, memory)
    return Decision(verdict.action, verdict.reasons, digest_of(memory)), has_failed


def digest_of(memory: Memory) -> str:
    """What a decision is bound to: text and labels, however a store rewrites the value."""
    content, labels = content_of(memory.value), labels_of(memory)
    if not memory.value:
        content = memory.text
    if not isinstance(content, str) or labels:
        content = json.dumps([_canonical(content, DEEPEST), labels], sort_keys=True)
    return hashlib.blake2b(content.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def quarantined_value(
    value: Mapping[str, Any], reasons: Sequence[str], **pending: Any
) -> dict[str, Any]:
    """A value that waits for a person's word, with the reasons and what it would change."""
    held = {"reasons": list(reasons), **{name: one for name, one in pending.items() if one}}
    return {**value, "status": "quarantined", QUARANTINE: held}


def pending_of(memory: Memory) -> Mapping[str, Any]:
    """What a quarantined memory's value says of why it waits and what it would change."""
    held = memory.value.get(QUARANTINE)
    return held if isinstance(held, Mapping) else {}


def _ask(guard: Guard, text: str) -> tuple[Verdict, bool]:
    try:
        verdict = guard(text)
        if verdict.action in ACTIONS:
            return verdict, False
        problem = f"it said {verdict.action!r}"
    except Exception as error:
        problem = described(error)
        logger.warning("The guard failed (%s); the text is quarantined.", problem)
    return Verdict("quarantine", (f"the guard failed ({problem:.100})",)), True


def _checked_memory(op: PutOp) -> Memory:
    # The put will refuse a malformed namespace, so nothing may be kept of it either.
    validate_op_namespace(op)
    return read_memory(op.namespace, str(op.key), op.value or {})


def _has_constructor(held: Any, depth: int) -> bool:
    """Whether some part has the mark of a serialised object."""
    if not depth:
        return False
    if isinstance(held, Mapping):
        return "lc" in held or any(_has_constructor(part, depth - 1) for part in held.values())
    if isinstance(held, list | tuple):
        return any(_has_constructor(part, depth - 1) for part in held)
    return False


def _canonical(held: Any, depth: int) -> Any:
    """A value as every store gives it back: jsonb re-orders keys and rewrites numbers."""
    if not depth or held is None or isinstance(held, bool | str):
        return held if depth else "…"
    if isinstance(held, float) and held - held == 0:
        number = Decimal(repr(held))
        return hex(int(number)) if number == number.to_integral_value() else repr(held)
    if isinstance(held, int):
        # In hexadecimal, because Python refuses to write out very long numbers otherwise.
        return hex(held)
    if isinstance(held, Mapping):
        return {_json_name(name): _canonical(part, depth - 1) for name, part in held.items()}
    if isinstance(held, list | tuple):
        return [_canonical(part, depth - 1) for part in held]
    return str(held)


def _json_name(name: Any) -> str:
    """The name that JSON gives a key."""
    return name if isinstance(name, str) else json.dumps(name, default=str)
