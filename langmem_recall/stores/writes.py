"""How `RecallStore` writes: remember, correct, forget and history, each as a plan."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from langgraph.store.base import BaseStore, GetOp, Item, PutOp, validate_op_namespace

from langmem_recall.drive import Ops, Plan
from langmem_recall.errors import InputError, RecallError
from langmem_recall.lifecycle.guard import Guard
from langmem_recall.lifecycle.provenance import new_memory, write_value
from langmem_recall.plans.asks import memory_of
from langmem_recall.stores.index import IndexShelf
from langmem_recall.stores.ledger import Ledger
from langmem_recall.types import Memory, Namespace, Status

FORMER = "@"
"""A former value of `key` is kept under `key@1`, `key@2` and so on."""


class Writer:
    """The writing half of a `RecallStore`; plans only, carried out by its owner."""

    def __init__(
        self,
        inner: BaseStore,
        guard: Guard,
        clock: Callable[[], datetime],
        ledger: Ledger,
        indexes: IndexShelf,
    ) -> None:
        self._inner = inner
        self._guard = guard
        self._clock = clock
        self._ledger = ledger
        self._indexes = indexes

    def remember(
        self,
        namespace: Namespace,
        text: str,
        key: str | None,
        ttl: timedelta | None,
        fields: Mapping[str, Any],
    ) -> Plan[Memory]:
        """Guard, provenance, put."""
        now = self._clock()
        given: dict[str, Any] = {"written_at": now, **fields}
        if ttl is not None:
            given["valid_until"] = now + ttl
        memory = new_memory(namespace, key or uuid.uuid4().hex, text, **given)
        memory = replace(memory, status=self._judged(text))
        yield from self._put([memory])
        return memory

    def correct(self, namespace: Namespace, key: str, text: str) -> Plan[Memory]:
        """The corrected memory under its old key, the former one as history beside it."""
        current = yield from self._required(namespace, key)
        former = replace(current, key=_next_former(current), status="superseded")
        corrected = replace(
            new_memory(namespace, key, text),
            kind=current.kind,
            salience=current.salience,
            source="user_correction",
            confidence=1.0,
            written_at=self._clock(),
            thread_id=current.thread_id,
            speaker=current.speaker,
            entities=current.entities,
            tags=current.tags,
            pinned=current.pinned,
            supersedes=(former.key,),
            status=self._judged(text),
        )
        yield from self._put([former, corrected])
        return corrected

    def forget(self, namespace: Namespace, key: str) -> Plan[bool]:
        """Delete a memory, the values it had before, and their usage."""
        chain = yield from self.history(namespace, key)
        if not chain:
            return False
        yield Ops([PutOp(namespace, memory.key, None) for memory in chain], as_batch=True)
        for memory in chain:
            self._indexes.note_delete(namespace, memory.key)
        yield from self._ledger.forget([memory.id for memory in chain])
        return True

    def history(self, namespace: Namespace, key: str) -> Plan[list[Memory]]:
        """A memory and the values it had before, newest first."""
        chain: list[Memory] = []
        keys = [key]
        while keys:
            items: list[Item | None] = yield Ops(
                [GetOp(namespace, each, refresh_ttl=False) for each in keys]
            )
            found = [memory_of(item) for item in items if item is not None]
            chain += found
            seen = {memory.key for memory in chain}
            keys = [each for memory in found for each in memory.supersedes if each not in seen]
        return chain

    def _required(self, namespace: Namespace, key: str) -> Plan[Memory]:
        (item,) = yield Ops([GetOp(namespace, key, refresh_ttl=False)])
        if item is None:
            raise InputError(
                f"No memory {key!r} in {namespace!r}. Use `remember` for a new one, or search "
                "for the key of the one you mean."
            )
        return memory_of(item)

    def _judged(self, text: str) -> Status:
        verdict = self._guard(text)
        if verdict.action == "reject":
            reasons = ", ".join(verdict.reasons) or "no reason given"
            raise RecallError(f"The guard rejected this memory: {reasons}. Nothing was stored.")
        return "quarantined" if verdict.action == "quarantine" else "active"

    def _put(self, memories: Sequence[Memory]) -> Plan[None]:
        ttl = (self._inner.ttl_config or {}).get("default_ttl")
        values = [write_value(memory) for memory in memories]
        ops = [
            # What is superseded is never recalled, so it needs no vector.
            PutOp(
                m.namespace,
                m.key,
                value,
                index=False if m.status == "superseded" else None,
                ttl=ttl,
            )
            for m, value in zip(memories, values, strict=True)
        ]
        for op in ops:
            validate_op_namespace(op)
        yield Ops(ops, as_batch=True)
        for op in ops:
            self._indexes.note_put(op.namespace, op.key, op.value or {}, self._clock())


def _next_former(current: Memory) -> str:
    """The key of the value that a correction puts aside."""
    prefix = f"{current.key}{FORMER}"
    numbers = [
        int(key.removeprefix(prefix))
        for key in current.supersedes
        if key.startswith(prefix) and key.removeprefix(prefix).isdigit()
    ]
    return f"{prefix}{max(numbers, default=0) + 1}"
