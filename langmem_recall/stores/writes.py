"""How `RecallStore` writes: remember, correct, confirm, approve, forget, each as a plan."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from langgraph.store.base import GetOp, Item

from langmem_recall.drive import Call, Ops, Plan
from langmem_recall.errors import ConfigurationError, InputError, RecallError
from langmem_recall.lifecycle.conflicts import is_same
from langmem_recall.lifecycle.housekeeping import is_in_force
from langmem_recall.lifecycle.provenance import (
    LONGEST_TEXT,
    MEMORY_FIELDS,
    check_name,
    checked_text,
    find_entities,
    new_memory,
    read_memory,
    revised_value,
    write_value,
)
from langmem_recall.lifecycle.reinforcement import restated
from langmem_recall.lifecycle.verdict import Verdict
from langmem_recall.plans.asks import memory_of
from langmem_recall.stores.keeping import Keeper, Write, check_namespace
from langmem_recall.stores.ledger import listing
from langmem_recall.stores.summaries import summarise
from langmem_recall.stores.twins import Twin, TwinFinder
from langmem_recall.stores.verdicts import QUARANTINE, quarantined_value
from langmem_recall.types import Candidate, Evidence, Memory, Namespace, Source
from langmem_recall.write_policy import WritePolicy

logger = logging.getLogger(__name__)

FORMER = "@"
"""A former value of `key` is kept under `key@1`, `key@2` and so on."""
LONGEST_TTL = timedelta(days=365_000)
FIELDS = frozenset(MEMORY_FIELDS) - {"content", "status", "confirmed_at", "superseded_at"}
"""What a caller may say of a memory."""


class WriteKnobs(NamedTuple):
    """What a `RecallStore` was told about writing."""

    policy: WritePolicy = WritePolicy()
    merge_similarity: float = 0.95
    summarizer: Any = None
    max_text: int = LONGEST_TEXT

    def check(self) -> None:
        """Refuse knobs that cannot be meant."""
        if not isinstance(self.policy, WritePolicy):
            raise ConfigurationError(
                f"write_policy must be a WritePolicy, got {self.policy!r:.80}."
            )
        share = self.merge_similarity
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 2:
            raise ConfigurationError(
                f"merge_similarity must be a number above 0 and up to 2, got {share!r:.80}. "
                "Use 2 to keep every memory."
            )
        if isinstance(self.max_text, bool) or not isinstance(self.max_text, int):
            raise ConfigurationError(f"max_text must be a whole number, got {self.max_text!r:.80}.")
        if self.summarizer is not None and not hasattr(self.summarizer, "invoke"):
            raise ConfigurationError(
                f"summarizer must be a chat model, got {self.summarizer!r:.80}."
            )


class Writer:
    """The writing half of a `RecallStore`; plans only, carried out by its owner."""

    def __init__(
        self,
        keeper: Keeper,
        twins: TwinFinder,
        nudge: Callable[[], None],
        knobs: WriteKnobs,
    ) -> None:
        knobs.check()
        self._keeper = keeper
        self._twins = twins
        self._verdicts = keeper.verdicts
        self._ledger = keeper.ledger
        self._clock = keeper.clock
        self._nudge = nudge
        self._knobs = knobs

    def remember(
        self,
        namespace: Namespace,
        text: str,
        key: str | None,
        ttl: timedelta | None,
        observation: str | None,
        fields: Mapping[str, Any],
    ) -> Plan[Memory]:
        """Guard, write policy, provenance, put; what is there already is reinforced instead."""
        now = self._clock()
        memory = self._told(namespace, text, key, fields, now)
        verdict = yield from self._admitted(memory.text)
        memory = replace(
            memory,
            text=_shown(verdict, memory.text),
            valid_until=self._end(memory, ttl, observation, now),
        )
        for superseded in memory.supersedes:
            yield from self._required(namespace, superseded)
        if verdict.action == "allow":
            memory = yield from self._summarised(memory)
        if fields.get("entities") is None:
            memory = replace(memory, entities=find_entities(memory.text))
        if verdict.action == "quarantine":
            return (yield from self._put_aside(memory, verdict))
        if key is None and not memory.supersedes:
            twin = yield from self._twin(memory, now)
            if twin is not None:
                return (yield from self._restate(twin, memory, now))
        return (yield from self._put(memory, now))

    def correct(self, namespace: Namespace, key: str, text: str, source: Source) -> Plan[Memory]:
        """The corrected memory under its old key, the former one as history beside it."""
        now = self._clock()
        current = yield from self._required(namespace, key)
        if current.superseded_at is not None or current.status == "superseded":
            raise InputError(f"{key!r} is history. Correct the memory that took its place.")
        told = new_memory(
            namespace, key, text, max_text=self._knobs.max_text, source=source, written_at=now
        )
        verdict = yield from self._admitted(told.text)
        if verdict.action != "allow":
            # Neither would be recalled then: a suspect text must not put a good one out of force.
            raise RecallError(
                f"The guard does not trust this correction: {_reasons(verdict)}. {key!r} stays as "
                "it was; remember the text on its own, and approve it."
            )
        former_key = yield from self._free_former(current)
        words = _shown(verdict, told.text)
        kept = tuple(entity for entity in current.entities if entity in words)
        corrected = replace(
            told,
            text=words,
            kind=current.kind,
            salience=current.salience,
            thread_id=current.thread_id,
            speaker=current.speaker,
            entities=tuple(dict.fromkeys((*kept, *find_entities(words)))),
            tags=current.tags,
            pinned=current.pinned,
            supersedes=(former_key,),
        )
        former = _put_out_of_force(current, now)
        value = write_value(corrected)
        yield from self._verdicts.hand_down(current.id, (namespace, former_key), current.text)
        yield from self._keeper.put(
            [Write((namespace, former_key), former, indexed=False), Write(corrected.id, value)]
        )
        return replace(corrected, value=value)

    def confirm(self, namespace: Namespace, key: str) -> Plan[Memory]:
        """Somebody vouches for a memory: full confidence from now on."""
        current = yield from self._required(namespace, key)
        return (yield from self._revise(current, confirmed_at=self._clock(), confidence=1.0))

    def approve(self, namespace: Namespace, key: str) -> Plan[Memory]:
        """Let a quarantined memory be recalled."""
        current = yield from self._required(namespace, key)
        ruling = yield from self._verdicts.of_item(current.id)
        if ruling is not None and ruling.bars(current.text):
            yield from self._verdicts.approve(current.id, ruling)
        if current.status != "quarantined":
            return current
        held = current.value.get(QUARANTINE)
        superseded = held.get("supersedes", ()) if isinstance(held, Mapping) else ()
        value = revised_value(
            current,
            status="active" if current.superseded_at is None else "superseded",
            supersedes=tuple(superseded) or current.supersedes,
        )
        value.pop(QUARANTINE, None)
        approved = read_memory(namespace, key, value, current.created_at)
        return (yield from self._put(approved, self._clock(), value))

    def quarantined(self, namespace: Namespace) -> Plan[list[Memory]]:
        """Memories at or below a namespace that wait for approval, by their names."""
        check_namespace(namespace)
        items = yield from listing(namespace, filter={"status": "quarantined"})
        found = {one.id: one for one in map(memory_of, items) if one.superseded_at is None}
        if self._verdicts.is_on:
            rulings = yield from self._verdicts.below(namespace)
            ids = sorted(rulings)
            put: list[Item | None] = yield Ops([GetOp(*one, refresh_ttl=False) for one in ids])
            for memory in (memory_of(item) for item in put if item is not None):
                ruling = rulings[memory.id]
                if ruling.bars(memory.text):
                    told = {**memory.value, QUARANTINE: {"reasons": list(ruling.reasons)}}
                    found[memory.id] = replace(memory, status="quarantined", value=told)
        return [found[memory_id] for memory_id in sorted(found)]

    def feedback(self, namespace: Namespace, keys: Sequence[str] | str, good: bool) -> None:
        """A step up or down for each of these memories, written behind like a use."""
        check_namespace(namespace)
        if not isinstance(good, bool):
            raise InputError(f"good must be True or False, got {good!r:.80}.")
        names = [keys] if isinstance(keys, str) else list(keys)
        for key in names:
            check_name("A key", key)
        self._ledger.credit([(namespace, key) for key in dict.fromkeys(names)], 1 if good else -1)
        if names:
            self._nudge()

    def forget(self, namespace: Namespace, key: str) -> Plan[bool]:
        """Delete a memory, the values it had before, and all that was kept about them."""
        chain = yield from self.history(namespace, key)
        if not chain:
            return False
        # Whatever else a value claims to supersede is still somebody's memory.
        gone = [memory for memory in chain if memory.key == key or memory.status != "active"]
        yield from self._keeper.remove([memory.id for memory in gone])
        return True

    def history(self, namespace: Namespace, key: str) -> Plan[list[Memory]]:
        """A memory and the values it had before, newest first."""
        check_namespace(namespace)
        chain: list[Memory] = []
        keys = [key]
        while keys:
            items: list[Item | None] = yield Ops(
                [GetOp(namespace, each, refresh_ttl=False) for each in keys]
            )
            found = [memory_of(item) for item in items if item is not None]
            chain += found
            seen = {memory.key for memory in chain}
            further = (each for memory in found for each in memory.supersedes)
            keys = [each for each in dict.fromkeys(further) if each not in seen]
        return chain

    def _told(
        self,
        namespace: Namespace,
        text: str,
        key: str | None,
        fields: Mapping[str, Any],
        now: datetime,
    ) -> Memory:
        """The memory as the caller describes it."""
        check_namespace(namespace)
        if key is not None:
            check_name("A key", key)
        unknown = fields.keys() - FIELDS
        if unknown:
            raise InputError(
                f"remember does not know {', '.join(sorted(unknown))}. It takes "
                f"{', '.join(sorted(FIELDS))}."
            )
        given = {name: held for name, held in fields.items() if held is not None}
        memory = new_memory(
            namespace,
            key or uuid.uuid4().hex,
            text,
            max_text=self._knobs.max_text,
            **{"written_at": now, **given},
        )
        if memory.key in memory.supersedes:
            raise InputError(f"{key!r} cannot supersede itself. Use `correct` for a new value.")
        return memory

    def _admitted(self, text: str) -> Plan[Verdict]:
        verdict = yield from self._verdicts.of_text(text)
        if verdict.action == "reject":
            raise RecallError(
                f"The guard rejected this memory: {_reasons(verdict)}. Nothing was stored."
            )
        return verdict

    def _end(
        self, memory: Memory, ttl: timedelta | None, observation: str | None, now: datetime
    ) -> datetime | None:
        """Until when a memory is valid: as the caller says, else as the write policy does."""
        allowed = None if observation is None else self._knobs.policy.ttl_of(observation)
        if ttl is None and memory.valid_until is not None:
            return memory.valid_until
        if ttl is not None and memory.valid_until is not None:
            raise InputError("Both ttl and valid_until are given. Pass the one that is meant.")
        if ttl is not None and not (isinstance(ttl, timedelta) and ttl > timedelta()):
            raise InputError(f"ttl must be a timedelta above 0, got {ttl!r:.80}.")
        lasts = allowed if ttl is None else ttl
        # A time that no calendar reaches is no end.
        return None if lasts is None or lasts > LONGEST_TTL else now + lasts

    def _summarised(self, memory: Memory) -> Plan[Memory]:
        """What comes from outside in fewer words; it stays external whatever they say."""
        model = self._knobs.summarizer
        if model is None or memory.source != "external":
            return memory
        summary: str | None = yield Call(lambda: summarise(model, memory.text))
        if summary is not None and len(summary) <= self._knobs.max_text:
            verdict = yield from self._verdicts.of_text(summary)
            if verdict.action == "allow":
                return replace(memory, text=summary)
        logger.warning("There is no usable summary of %r; the text is stored as it is.", memory.key)
        return memory

    def _put_aside(self, memory: Memory, verdict: Verdict) -> Plan[Memory]:
        """Store a quarantined memory; until it is approved it puts nothing out of force."""
        superseded = memory.supersedes
        memory = replace(memory, status="quarantined", supersedes=())
        value = quarantined_value(write_value(memory), verdict, superseded)
        yield from self._keeper.put([Write(memory.id, value, indexed=False)])
        return replace(memory, value=value)

    def _put(
        self, memory: Memory, now: datetime, value: Mapping[str, Any] | None = None
    ) -> Plan[Memory]:
        """Store a memory, and mark as history what it supersedes."""
        gets = [GetOp(memory.namespace, key, refresh_ttl=False) for key in memory.supersedes]
        items: list[Item | None] = yield Ops(gets)
        formers = [memory_of(item) for item in items if item is not None]
        writes = [
            Write(former.id, _put_out_of_force(former, now), indexed=False)
            for former in formers
            if former.superseded_at is None
        ]
        value = write_value(memory) if value is None else value
        indexed = memory.status == "active"
        yield from self._keeper.put([*writes, Write(memory.id, value, indexed)])
        yield from self._keeper.catch_up()
        return replace(memory, value=value)

    def _twin(self, memory: Memory, now: datetime) -> Plan[Memory | None]:
        """The memory in force that says the same already, if there is one."""
        if self._knobs.merge_similarity > 1:
            return None
        twins = yield from self._twins.of_text(memory.namespace, memory.text)
        gone = {key for twin in twins for key in twin.memory.supersedes}
        usable: list[Twin] = []
        for twin in twins:
            held = twin.memory
            is_meant = is_in_force(held, now) and held.key not in gone
            if is_meant and memory.valid_from in (None, held.valid_from):
                usable.append(twin)
        lot = [Candidate(twin.memory, Evidence()) for twin in usable]
        (judged,) = yield from self._verdicts.applied(memory.namespace, [lot], now.timestamp())
        for candidate, twin in zip(judged, usable, strict=True):
            if candidate.memory.status == "active" and is_same(
                twin.memory, memory, twin.likeness, self._knobs.merge_similarity
            ):
                return twin.memory
        return None

    def _restate(self, held: Memory, said: Memory, now: datetime) -> Plan[Memory]:
        """Reinforce a memory that is said again."""
        self._ledger.record([held.id], now.timestamp(), refresh_floor=0.0)
        self._nudge()
        changes = restated(held, said, now)
        return (yield from self._revise(held, **changes)) if changes else held

    def _revise(self, memory: Memory, **changes: Any) -> Plan[Memory]:
        value = revised_value(memory, **changes)
        indexed = memory.status == "active"
        yield from self._keeper.put([Write(memory.id, value, indexed)])
        return read_memory(*memory.id, value, memory.created_at)

    def _required(self, namespace: Namespace, key: str) -> Plan[Memory]:
        check_namespace(namespace)
        (item,) = yield Ops([GetOp(namespace, key, refresh_ttl=False)])
        if item is None:
            raise InputError(
                f"No memory {key!r} in {namespace!r}. Use `remember` for a new one, or search "
                "for the key of the one you mean."
            )
        return memory_of(item)

    def _free_former(self, current: Memory) -> Plan[str]:
        """The key for the value that a correction puts aside; history is never overwritten."""
        prefix = f"{current.key}{FORMER}"
        numbers = [
            int(key.removeprefix(prefix))
            for key in current.supersedes
            if key.startswith(prefix) and key.removeprefix(prefix).isdecimal()
        ]
        number = max(numbers, default=0) + 1
        while True:
            get = GetOp(current.namespace, f"{prefix}{number}", refresh_ttl=False)
            (taken,) = yield Ops([get])
            if taken is None:
                return f"{prefix}{number}"
            number += 1


def _put_out_of_force(memory: Memory, now: datetime) -> dict[str, Any]:
    """The value of a memory as history; a quarantined one stays so, whatever time is asked for."""
    status = "quarantined" if memory.status == "quarantined" else "superseded"
    return revised_value(memory, status=status, superseded_at=now)


def _reasons(verdict: Verdict) -> str:
    return ", ".join(verdict.reasons) or "no reason given"


def _shown(verdict: Verdict, text: str) -> str:
    """The text without hidden characters."""
    return text if verdict.text is None else checked_text(verdict.text)
