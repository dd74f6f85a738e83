"""What writing and housekeeping share: put, remove, index later, and find what says the same."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain
from typing import Any, Literal, NamedTuple

from langgraph.store.base import (
    NOT_PROVIDED,
    GetOp,
    InvalidNamespaceError,
    NotProvided,
    PutOp,
    SearchItem,
    SearchOp,
    validate_op_namespace,
)

from langmem_recall.errors import InputError, RecallError, described
from langmem_recall.flows.backend import Backend
from langmem_recall.flows.candidates import COSINE_LIMIT, NamespaceView, memories_at, memory_of, top
from langmem_recall.flows.effects import Call, Ops, Plan
from langmem_recall.flows.quarantine import Quarantine
from langmem_recall.flows.usage import Ledger
from langmem_recall.memory.value import cleaned, fielded, indexed_fields, read_memory
from langmem_recall.text.tokens import tokens
from langmem_recall.types import SIDECAR_ROOT, Memory, MemoryId, Namespace

logger = logging.getLogger(__name__)

UNINDEXED = (SIDECAR_ROOT, "unindexed")
RESERVED_ROOTS = ("langgraph", SIDECAR_ROOT)
BATCH = 50
"""Memories that are indexed later, at a time."""
MOST_INDEXED = 100_000
"""Namespaces remembered as having no memory that waits to be indexed."""
NEAREST = 20
"""Memories by meaning that are compared with a new text."""
WORDIEST = 8
"""Memories by words that are compared with a text."""
LEAST_SHARED = 0.6
"""Share of a text's words that a memory must have to be worth comparing."""

Match = tuple[Memory, float]
"""A memory and how alike it is, from 0 to 1."""


class Write(NamedTuple):
    """One memory on its way to the store."""

    id: MemoryId
    value: Mapping[str, Any]
    indexed: bool = True
    """What is never recalled as it is needs no vector."""
    stored: Memory | NotProvided | None = NOT_PROVIDED
    """What has its name in the store, None for nothing; looked up where it is not known."""


@dataclass(slots=True, eq=False)
class Bookkeeper:
    """What every flow works with, and the hands of writing and housekeeping; plans only."""

    backend: Backend
    sidecar: Backend
    clock: Callable[[], datetime]
    ledger: Ledger
    quarantine: Quarantine
    _indexed: dict[Namespace, None] = field(default_factory=dict, init=False)
    """Namespaces of which nothing waits for the embedder; others' processes may have left some."""

    def put(self, writes: Sequence[Write]) -> Plan[None]:
        """Store memories; where the embedder fails, without vectors until it works again."""
        if not writes:
            return
        for write in writes:
            check_namespace(write.id[0])
        unknown = [it.id for it in writes if it.indexed and it.stored is NOT_PROVIDED]
        present = dict[MemoryId, Memory]()
        if unknown and not self.backend.embeds_phrasings:
            present = yield from memories_at(unknown)
        ops = [self._put_op(write, write.stored or present.get(write.id)) for write in writes]
        yield from self.backend.check_vectors()
        try:
            yield Ops(ops, as_batch=True)
        except RecallError:
            raise
        except Exception as error:
            yield from self._put_unindexed(ops, error)
        for op in ops:
            self.backend.note_put(op.namespace, op.key, op.value or {}, self.clock())

    def _put_op(self, write: Write, present: Memory | None) -> PutOp:
        """The put of a memory, with its phrasings in a field of their own where that is needed."""
        store, value = self.backend.store, dict(write.value)
        index: list[str] | Literal[False] | None = None if write.indexed else False
        if write.indexed and not self.backend.embeds_phrasings:
            fields = indexed_fields(getattr(store, "index_config", None))
            value, index = fielded(read_memory(*write.id, value), present, fields)
        return PutOp(*write.id, value, index, ttl=(store.ttl_config or {}).get("default_ttl"))

    def remove(self, ids: Sequence[MemoryId]) -> Plan[None]:
        """Delete memories with their vectors, words, usage and decisions."""
        if not ids:
            return
        # Sorted, because unsorted batches dead-lock on Postgres.
        yield Ops([PutOp(*memory_id, None) for memory_id in sorted(ids)], as_batch=True)
        for memory_id in ids:
            self.backend.note_delete(*memory_id)
        yield from self.ledger.forget(ids)
        yield from self.quarantine.write(dict.fromkeys(ids))

    def catch_up(self, namespace: Namespace) -> Plan[list[MemoryId]]:
        """Index some of a namespace's memories that an embedder failed on; returns which."""
        if namespace in self._indexed:
            return []
        waiting = SearchOp((*UNINDEXED, *namespace), limit=BATCH, refresh_ttl=False)
        (marks,) = yield Ops([waiting], sidecar=True, exact=True)
        indexed: list[MemoryId] = []
        for mark in marks:
            if mark.namespace[: len(UNINDEXED)] != UNINDEXED:
                continue
            memory_id = (mark.namespace[len(UNINDEXED) :], mark.key)
            (item,) = yield Ops([GetOp(*memory_id, refresh_ttl=False)])
            if item is not None:
                put = self._put_op(Write(memory_id, item.value), memory_of(item))
                try:
                    yield Ops([put], as_batch=True)
                except Exception as error:
                    reason = described(error)
                    logger.warning("The embedder still fails; memories wait for it: %s", reason)
                    return indexed
                indexed.append(memory_id)
            yield Ops([_mark(memory_id, None)], sidecar=True)
        if len(marks) < BATCH:
            if len(self._indexed) >= MOST_INDEXED:
                self._indexed.clear()
            self._indexed[namespace] = None
        return indexed

    def _put_unindexed(self, ops: Sequence[PutOp], error: Exception) -> Plan[None]:
        """Without vectors it may go: then it was the embedder, and nothing is lost but time."""
        ids = [(op.namespace, op.key) for op in ops if op.index is not False]
        if not ids:
            raise error
        # Marked first: a mark without a memory does no harm, a memory without one stays unindexed.
        yield Ops([_mark(memory_id, {"waiting": True}) for memory_id in ids], sidecar=True)
        try:
            yield Ops([op._replace(index=False) for op in ops], as_batch=True)
        except Exception:
            yield Ops([_mark(memory_id, None) for memory_id in ids], sidecar=True)
            raise error from None
        for namespace, _ in ids:
            self._indexed.pop(namespace, None)
        logger.warning("Stored %d memories without vectors: %s", len(ids), described(error))


def check_namespace(namespace: Any) -> None:
    """Refuse a namespace that is none, or that is not for memories."""
    if not isinstance(namespace, tuple) or not namespace:
        raise InputError(
            f"A namespace must be a tuple of labels, got {namespace!r:.80}. "
            'Write ("memories", user_id).'
        )
    for label in namespace:
        if not isinstance(label, str) or not label or cleaned(label) != label:
            raise InputError(
                "A label of a namespace must be a text without NUL or lone surrogates, got "
                f"{label!r:.80}."
            )
    if namespace[0] in RESERVED_ROOTS:
        raise InputError(
            f"{namespace[0]!r} is no root for memories: it is kept for the store's own records. "
            "Choose another."
        )
    try:
        validate_op_namespace(PutOp(namespace, "key", {}))
    except InvalidNamespaceError as error:
        raise InputError(f"{error} Nothing was stored.") from error


def _mark(memory_id: MemoryId, value: dict[str, Any] | None) -> PutOp:
    namespace, key = memory_id
    return PutOp((*UNINDEXED, *namespace), key, value, index=False)


def resembling_text(backend: Backend, namespace: Namespace, text: str) -> Plan[list[Match]]:
    """Memories of a namespace that resemble a text, the most alike first."""
    items: list[SearchItem] = []
    if backend.has_vectors:
        with suppress(Exception):
            items = yield from backend.nearest(namespace, text, NEAREST)
    scores = [item.score if item.score is not None else math.inf for item in items]
    pairs = zip(map(memory_of, items), scores, strict=True)
    near: list[Match] = [
        # A vector of text and phrasings does not tell how alike the texts are; their words do.
        (memory, math.nan if memory.asked_as else score)
        for memory, score in pairs
        if abs(score) <= COSINE_LIMIT
    ]
    if not near or any(math.isnan(likeness) for _, likeness in near):
        view, terms = (yield from backend.view(namespace)), tokens(text)
        if not near:
            ids: list[MemoryId] = yield Call(lambda: _sharing(view, terms))
            near = [(memory, math.nan) for memory in (yield from memories_at(ids)).values()]
        near = [(memory, _likeness(view, cosine, terms, memory)) for memory, cosine in near]
    near.sort(key=lambda match: -match[1])
    return [match for match in near if match[0].namespace == namespace]


def resembling_memories(
    backend: Backend, prefix: Namespace, memories: Sequence[Memory]
) -> Plan[list[list[Match]]]:
    """For each memory others of its namespace that resemble it; embeds nothing."""
    view = yield from backend.view(prefix)
    found: list[dict[MemoryId, float]] = yield Call(
        lambda: [_cosines(view, memory) for memory in memories]
    )
    known = {memory.id: memory for memory in memories}
    known |= yield from memories_at(sorted({*chain(*found)} - known.keys()))
    resembling: list[list[Match]] = []
    for memory, cosines in zip(memories, found, strict=True):
        terms, matches = tokens(memory.text) if cosines else (), list[Match]()
        for other in (known[one] for one in cosines if one in known):
            cosine = math.nan if memory.asked_as or other.asked_as else cosines[other.id]
            matches.append((other, _likeness(view, cosine, terms, other)))
        resembling.append(matches)
    return resembling


def _sharing(view: NamespaceView, terms: Sequence[str]) -> list[MemoryId]:
    """Memories that have most of these terms."""
    with view.lock:
        catalog = view.catalog
        if not catalog.rows:
            return []
        shares = catalog.lexical.coverage(dict.fromkeys(terms, 1.0))
        ids = [catalog.id(row) for row in top(shares, WORDIEST) if shares[row] >= LEAST_SHARED]
        return [memory_id for memory_id in ids if not catalog.is_superseded(memory_id)]


def _cosines(view: NamespaceView, memory: Memory) -> dict[MemoryId, float]:
    """Others that have most of a memory's words, with their cosine; NaN where it is not known."""
    with view.lock:
        catalog = view.catalog
        if catalog.is_superseded(memory.id):
            return {}
        near = [
            memory_id
            for memory_id in _sharing(view, tokens(memory.text))
            if memory_id != memory.id and memory_id[0] == memory.namespace
        ]
        rows = [row for row in map(catalog.row, (memory.id, *near)) if row is not None]
        if not near or catalog.row(memory.id) is None:
            return dict.fromkeys(near, math.nan)
        return dict(zip(near, view.similarity(rows)[0, 1:].tolist(), strict=True))


def _likeness(view: NamespaceView, cosine: float, terms: Sequence[str], other: Memory) -> float:
    """The cosine where it is known, else the IDF-weighted share of terms that both texts have."""
    if not math.isnan(cosine):
        return cosine
    ours, theirs = set(terms), set(tokens(other.text))
    with view.lock:
        idfs = view.catalog.lexical.idfs
        shared, union = sum(idfs(ours & theirs)), sum(idfs(ours | theirs))
    return shared / union if union else 0.0
