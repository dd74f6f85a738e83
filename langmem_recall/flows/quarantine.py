"""What the guard decided about each text: one decision, wherever the text is read."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import json
import logging
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from operator import itemgetter
from typing import Any, NamedTuple

from langgraph.store.base import GetOp, Item, PutOp, validate_op_namespace

from langmem_recall.deadline import Deadline
from langmem_recall.errors import described
from langmem_recall.flows.candidates import listing
from langmem_recall.flows.effects import CALLS, Call, Ops, Plan, run
from langmem_recall.guard.judge import (
    ACTIONS,
    OWN_SOURCES,
    AnyGuard,
    RuleGuard,
    Span,
    Verdict,
    allow_all,
    ask,
)
from langmem_recall.memory.value import DEEPEST, content_of, labels_of, masked, read_memory
from langmem_recall.text.invisible import strip_hidden
from langmem_recall.types import (
    QUARANTINE,
    SIDECAR_ROOT,
    GuardEvent,
    Memory,
    MemoryId,
    Namespace,
    Source,
    Status,
    read_spans,
)

logger = logging.getLogger(__name__)

VERDICT = (SIDECAR_ROOT, "verdict")
WITHHELD = "[withheld: quarantined]"
"""What a reader gets in place of words that the guard bars."""
MOST_DECISIONS = 50_000
"""Decisions kept in memory, with what they are about, before the looking up starts afresh."""
MOST_REVIEWED = 10_000
JUDGE_LIMIT = Deadline(10.0, first_load=30.0)
"""How long a guard that is not made of rules may take over one text."""


class Decision(NamedTuple):
    """What was decided about an item's text; another text under its key is not meant."""

    action: str
    """allow, mask, quarantine, reject or approve."""
    reasons: tuple[str, ...]
    digest: str
    former: str | None = None
    """Key of the value that stays in force while this one waits."""
    spans: tuple[Span, ...] = ()
    """What is withheld where the action is mask."""
    has_failed: bool = False
    """Whether the guard only failed: then it is asked again at the next read."""

    @property
    def bars(self) -> bool:
        """Whether readers must not see the text."""
        return self.action not in ("allow", "approve", "mask")

    @property
    def masks(self) -> bool:
        """Whether readers see the text with parts withheld."""
        return self.action == "mask"

    @property
    def withholds(self) -> bool:
        """Whether readers must not see all of the text."""
        return self.action not in ("allow", "approve")

    def to_dict(self) -> dict[str, Any]:
        """As a store and an export keep it."""
        record = {"action": self.action, "reasons": list(self.reasons), "digest": self.digest}
        record |= {"former": self.former} if self.former else {}
        return record | ({"spans": [list(span) for span in self.spans]} if self.spans else {})

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Decision:
        """Read a decision; what is malformed bars nothing, because it matches no text."""
        reasons, former = value.get("reasons"), value.get("former")
        return cls(
            str(value.get("action")),
            tuple(map(str, reasons)) if isinstance(reasons, list | tuple) else (),
            str(value.get("digest")),
            former if isinstance(former, str) else None,
            tuple(Span(*place) for place in read_spans(value.get("spans"))),
        )


Decisions = dict[MemoryId, Decision]


class Quarantine:
    """The guard of a store and its decisions, kept in the side-car and never in an item.

    A decision is written before the item it is about, and looked up after the item was read: no
    worker can see a text before it can see what was decided about it.
    """

    def __init__(self, guard: AnyGuard, max_age_s: float) -> None:
        self._guard = guard
        self.is_on = guard is not allow_all
        """Whether there is a guard, and its decisions bar."""
        # Rules say the same again at no cost; what a model has said is kept.
        self._keeps_all = not isinstance(guard, RuleGuard)
        self._max_age_s = max_age_s
        self._lock = threading.Lock()
        self._cache: dict[MemoryId, tuple[Decision, float, Memory]] = {}
        """A decision, when it was read, and what it is about: compared faster than digests."""
        self._allowed: dict[int, Memory] = {}
        """The memories of these that are allowed, by `id`: found faster than by name, and no other
        object's while they are here."""
        self._reviewed: OrderedDict[MemoryId, str] = OrderedDict()
        self.sink: Callable[[GuardEvent], None] | None = None
        """Called with every verdict on a text that is written, or first seen and withheld."""

    def verdict_on(self, memory: Memory) -> Plan[Verdict]:
        """What the guard says of a new memory's text and of the labels that go with it."""
        if not self.is_on:
            return Verdict()
        verdict, has_failed = yield from self._verdict(memory)
        self._tell(memory, verdict, has_failed)
        return verdict

    def keep(self, memory: Memory, verdict: Verdict) -> Plan[None]:
        """Keep a verdict on what is about to be stored, where asking again is not for nothing."""
        # Allowed with a reason is what a guard that failed lets pass: it has decided nothing.
        if not self.is_on or not self._keeps_all or (verdict.action == "allow" and verdict.reasons):
            return
        before = (yield from self.stored([memory.id])).get(memory.id)
        former, digest = before and before.former, digest_of(memory)
        decision = Decision(verdict.action, verdict.reasons, digest, former, verdict.spans)
        yield from self.write({memory.id: decision})

    def _tell(self, memory: Memory, verdict: Verdict | Decision, has_failed: bool) -> None:
        """Hand a verdict to the sink, without the words it is about."""
        if self.sink is not None:
            rules = (rule for span in verdict.spans for rule in span.rule.split("; "))
            chars = sum(span.end - span.start for span in verdict.spans)
            chars = chars if verdict.action == "mask" else len(memory.text)
            chars = 0 if verdict.action in ("allow", "approve") else chars
            about = memory.namespace, memory.key, memory.source, verdict.action
            self.sink(GuardEvent(*about, tuple(dict.fromkeys(rules)), chars, has_failed))

    def _verdict(self, memory: Memory) -> Plan[tuple[Verdict, bool]]:
        """The verdict on a text and on what is said beside it, and whether the guard failed."""
        texts: list[tuple[str, Source]] = [(memory.text, memory.source)]
        if beside := words_beside(memory):
            # Labels and phrasings are not the user's words, whoever said the text.
            is_own = memory.source in OWN_SOURCES
            texts.append((beside, "agent_inferred" if is_own else memory.source))
        verdict, has_failed = Verdict(), False
        for text, source in texts:
            try:
                answer: Verdict = yield self._ask(text, source)
                problem = f"it said {getattr(answer, 'action', answer)!r:.80}"
                has_failed = not (isinstance(answer, Verdict) and answer.action in ACTIONS)
            except Exception as error:
                problem, has_failed = described(error), True
            if has_failed:
                passes = source in OWN_SOURCES
                outcome = "the user's own words pass" if passes else "the text is quarantined"
                logger.warning("The guard failed (%s); %s.", problem, outcome)
                reasons = (f"the guard failed ({problem:.100})",)
                answer = Verdict("allow" if passes else "quarantine", reasons)
            else:
                answer = settled(answer, text)
            if text is memory.text:
                verdict = answer
            elif answer.action != "allow":
                # The text itself is not to be lost for what is said beside it.
                verdict = Verdict("quarantine", answer.reasons, verdict.text)
            if has_failed or verdict.action not in ("allow", "mask"):
                break
        return verdict, has_failed

    def _ask(self, text: str, source: Source) -> Call:
        """Asks the guard about a text, whether it answers at once or is to be awaited."""

        async def judged() -> Verdict:
            verdict = await asyncio.to_thread(ask, self._guard, text, source)
            return await verdict if inspect.isawaitable(verdict) else verdict

        def judge() -> Verdict:
            verdict = ask(self._guard, text, source)
            return asyncio.run(_awaited(verdict)) if inspect.isawaitable(verdict) else verdict

        # Rules take no time; a guard that asks a model may take all there is.
        return Call(judge, judged, JUDGE_LIMIT) if self._keeps_all else Call(judge)

    def allows(self, memories: Sequence[Memory]) -> bool:
        """Whether all of some memories were allowed before, and are the very same."""
        return not self.is_on or all(map(self._allowed.__contains__, map(id, memories)))

    def barred(
        self, memories: Iterable[Memory], now: float, notes: list[str] | None = None
    ) -> Plan[Decisions]:
        """Decisions about those of some memories that no reader may see, or not all of them.

        That decisions cannot be read is added to `notes`.
        """
        if not self.is_on:
            return {}
        allowed = self._allowed
        unknown: dict[MemoryId, Memory] = {}
        barred: Decisions = {}
        # Most were allowed before, and are the very same that was read then.
        for memory in [it for it in memories if id(it) not in allowed]:
            entry = self._cache.get(memory.id)
            decision, read_at, known = entry or (None, now, memory)
            # A barred one may have been approved since.
            is_old = decision and decision.withholds and now - read_at >= self._max_age_s
            if decision is None or is_old or _words_of(known) != _words_of(memory):
                unknown[memory.id] = memory
            elif decision.withholds:
                barred[memory.id] = decision
            else:
                with self._lock:
                    # Another thread may have learned otherwise meanwhile.
                    if self._cache.get(memory.id) is entry:
                        self._keep(memory.id, (decision, read_at, memory))
        if unknown:
            decided = yield from self._decide(unknown, now, [] if notes is None else notes)
            barred |= {name: decision for name, decision in decided.items() if decision.withholds}
        return barred

    def judge(self, puts: Iterable[PutOp]) -> Plan[tuple[Decisions, Decisions]]:
        """Decisions about values that are to be put, and those stored about the same names."""
        memories: dict[MemoryId, Memory] = {}
        for op in puts:
            if isinstance(op.value, Mapping) and op.namespace[:1] != (SIDECAR_ROOT,):
                # The put will refuse a malformed namespace, so nothing may be kept of it either.
                validate_op_namespace(op)
                memory = read_memory(op.namespace, str(op.key), op.value)
                memories[memory.id] = memory
        if not self.is_on or not memories:
            return {}, {}
        stored = yield from self.stored(memories)
        decisions = yield from self._judge(memories.values())
        for memory_id, decision in decisions.items():
            self._tell(memories[memory_id], decision, decision.has_failed)
        for memory_id, before in stored.items():
            # A text that was approved stays so.
            if before.action == "approve" and before.digest == decisions[memory_id].digest:
                decisions[memory_id] = before
        return decisions, stored

    def is_lasting(self, decision: Decision, before: Decision | None) -> bool:
        """Whether a decision is to be written down: what rules allow they allow again."""
        # An approval is kept beside what is allowed anyway: the text may come back.
        is_approved = before is not None and before.action == "approve"
        return decision.withholds or (self._keeps_all and not is_approved)

    def stored(self, ids: Iterable[MemoryId]) -> Plan[Decisions]:
        """Decisions about these items as the side-car has them, whatever text they are about."""
        wanted = sorted(ids)
        gets = [GetOp((*VERDICT, *namespace), key, refresh_ttl=False) for namespace, key in wanted]
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

    def write(self, decisions: Mapping[MemoryId, Decision | None]) -> Plan[None]:
        """Keep decisions for good and for every worker; None drops the one about an item."""
        # Sorted, because unsorted batches dead-lock on Postgres.
        puts = [
            PutOp((*VERDICT, *namespace), key, decision and decision.to_dict(), index=False)
            for (namespace, key), decision in sorted(decisions.items(), key=itemgetter(0))
        ]
        if puts:
            yield Ops(puts, sidecar=True)
        with self._lock:
            for memory_id in decisions:
                self._keep(memory_id, None)

    def reset(self) -> None:
        """Look every decision up anew from now on."""
        with self._lock:
            self._cache.clear()
            self._allowed.clear()

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

    def _decide(
        self, unknown: Mapping[MemoryId, Memory], now: float, notes: list[str]
    ) -> Plan[Decisions]:
        """Decisions from the side-car; the guard judges what it has not judged before."""
        judged = Decisions()
        # Rules go first, and of what they bar approvals are read: the rest costs no round trip.
        if not self._keeps_all:
            judged = yield from self._judge(unknown.values())
        wanted = [name for name in unknown if name not in judged or judged[name].withholds]
        try:
            stored = yield from self.stored(wanted)
        except Exception as error:
            # Judged here and now nothing is shown that should not be; approvals have to wait.
            logger.warning("The guard's decisions cannot be read (%s).", described(error))
            notes.append(f"the guard's decisions cannot be read ({described(error)}); judged anew")
            stored = {}
        valid = {name: it for name, it in stored.items() if it.digest == digest_of(unknown[name])}
        missing = [name for name in wanted if name not in valid]
        if self._keeps_all and missing:
            judged = yield from self._judge([unknown[name] for name in missing])
        lasting = Decisions()
        for name in missing:
            decision, before = judged[name], stored.get(name)
            if decision.withholds:
                self._tell(unknown[name], decision, decision.has_failed)
            if not decision.has_failed and self.is_lasting(decision, before):
                lasting[name] = decision._replace(former=before and before.former)
        try:
            yield from self.write(lasting)
        except Exception as error:
            logger.warning("The guard's decisions cannot be kept (%s).", described(error))
        decisions = judged | lasting | valid
        if len(self._cache) > MOST_DECISIONS:
            self.reset()
        sure = {name: decision for name, decision in decisions.items() if not decision.has_failed}
        with self._lock:
            for name, decision in sure.items():
                self._keep(name, (decision, now, unknown[name]))
        return decisions

    def _keep(self, name: MemoryId, entry: tuple[Decision, float, Memory] | None) -> None:
        """Keep a decision in this process, None for none; the caller holds the lock."""
        if former := self._cache.pop(name, None):
            self._allowed.pop(id(former[2]), None)
        if entry:
            self._cache[name] = entry
            if not entry[0].withholds:
                self._allowed[id(entry[2])] = entry[2]

    def _judge(self, memories: Collection[Memory]) -> Plan[Decisions]:
        """What the guard decides about each memory."""
        if not self._keeps_all:
            judged: Decisions = yield Call(
                lambda: {memory.id: run(self.decide(memory), CALLS) for memory in memories}
            )
            return judged
        decisions = Decisions()
        for memory in memories:
            decisions[memory.id] = yield from self.decide(memory)
        return decisions

    def decide(self, memory: Memory) -> Plan[Decision]:
        """The decision about a memory."""
        if _has_constructor(memory.value, DEEPEST):
            # LangChain's loader would take it for an object to construct.
            return Decision("quarantine", ("serialised object",), digest_of(memory))
        verdict, has_failed = yield from self._verdict(memory)
        action, spans, content = verdict.action, verdict.spans, content_of(memory.value)
        is_put_together = isinstance(content, Mapping) and memory.text not in content.values()
        if action == "mask" and memory.value and is_put_together:
            # A text made of several fields reads differently when a database gives them back in
            # another order or form: a span would withhold other words than were meant.
            action, spans = "quarantine", ()
        return Decision(action, verdict.reasons, digest_of(memory), None, spans, has_failed)


async def _awaited(verdict: Awaitable[Verdict]) -> Verdict:
    return await verdict


def settled(verdict: Verdict, text: str) -> Verdict:
    """A verdict whose action and spans agree: no span left out, none where all is withheld."""
    clean = strip_hidden(text)
    spans = tuple(span for span in sorted(verdict.spans) if 0 <= span.start < span.end)
    if verdict.action == "allow" and spans:
        verdict = verdict._replace(action="mask")
    if verdict.action != "mask":
        return verdict
    is_rewritten = verdict.text is not None and verdict.text != clean
    covered = sum(min(span.end, len(clean)) - min(span.start, len(clean)) for span in spans)
    if is_rewritten or not spans or covered >= len(clean.strip()):
        return verdict._replace(action="quarantine")
    return verdict._replace(spans=spans)


def as_shown(memory: Memory, decision: Decision | None) -> Memory:
    """A memory as readers get it: with what its value or a decision withholds left out."""
    own = memory.withheld_spans
    found = decision.spans if decision is not None and decision.masks else ()
    spans = sorted({*own, *((span.start, span.end) for span in found)})
    return masked(memory, spans) if spans else memory


def withheld(memory: Memory) -> Memory:
    """A memory that no reader may see: its name and times, none of its words."""
    nothing: dict[str, Any] = dict.fromkeys(("entities", "tags", "asked_as"), ())
    nothing |= {"turn": None, "speaker": None, "pinned": False, "value": {}}
    return replace(memory, text=WITHHELD, status="quarantined", **nothing)


def words_beside(memory: Memory) -> str:
    """What is judged apart from the text: labels, and each phrasing as a sentence of its own."""
    # Else the end of a line, such as "nothing", would be read together with the next one.
    return ".\n".join(filter(None, (labels_of(memory), *memory.asked_as)))


def digest_of(memory: Memory) -> str:
    """What a decision is bound to: all words of a memory, however a store rewrites the value."""
    content, labels = content_of(memory.value), labels_of(memory)
    phrasings = memory.asked_as
    if not memory.value.keys() - {QUARANTINE}:
        content = memory.text
    if not isinstance(content, str) or labels or phrasings:
        words = [_canonical(content, DEEPEST), labels, *phrasings]
        content = json.dumps(words, sort_keys=True)
    return hashlib.blake2b(content.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def quarantined_value(
    value: Mapping[str, Any],
    reasons: Sequence[str],
    status: Status = "quarantined",
    spans: Sequence[Span] = (),
    **pending: Any,
) -> dict[str, Any]:
    """A value that waits for approval, with the reasons and what it would change."""
    pending["spans"] = [list(span) for span in spans]
    changes = {name: change for name, change in pending.items() if change}
    return {**value, "status": status, QUARANTINE: {"reasons": list(reasons), **changes}}


def pending_of(memory: Memory) -> Mapping[str, Any]:
    """What a quarantined memory's value says of why it waits and what it would change."""
    pending = memory.value.get(QUARANTINE)
    return pending if isinstance(pending, Mapping) else {}


def _words_of(memory: Memory) -> tuple[Any, ...]:
    is_own = memory.source in OWN_SOURCES
    return memory.text, memory.speaker, memory.turn, memory.tags, memory.asked_as, is_own


def _has_constructor(value: Any, depth: int) -> bool:
    """Whether some part has the mark of a serialised object."""
    if not depth or not isinstance(value, Mapping | list | tuple):
        return False
    if isinstance(value, Mapping) and "lc" in value:
        return True
    parts = value.values() if isinstance(value, Mapping) else value
    return any(_has_constructor(part, depth - 1) for part in parts)


def _canonical(value: Any, depth: int) -> Any:
    """A value as every store gives it back: jsonb re-orders keys and rewrites numbers."""
    if not depth or value is None or isinstance(value, bool | str):
        return value if depth else "…"
    if isinstance(value, float) and value - value == 0:
        number = Decimal(repr(value))
        return hex(int(number)) if number == number.to_integral_value() else repr(value)
    if isinstance(value, int):
        # In hexadecimal, because Python refuses to write out very long numbers otherwise.
        return hex(value)
    if isinstance(value, Mapping):
        # Named as JSON names them.
        names = (n if isinstance(n, str) else json.dumps(n, default=str) for n in value)
        parts = (_canonical(part, depth - 1) for part in value.values())
        return dict(zip(names, parts, strict=True))
    if isinstance(value, list | tuple):
        return [_canonical(part, depth - 1) for part in value]
    return str(value)
