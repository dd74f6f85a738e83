"""Memories that may say the same as a text: by meaning where there are vectors, else by words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from itertools import chain
from typing import NamedTuple

from langgraph.store.base import SearchItem, SearchOp

from langmem_recall.flows.backend import Backend
from langmem_recall.flows.candidates import COSINE_LIMIT, NamespaceView, memories_at, memory_of, top
from langmem_recall.flows.effects import Call, Ops, Plan
from langmem_recall.text.tokens import tokens
from langmem_recall.types import Memory, MemoryId, Namespace

NEAREST = 20
"""Memories by meaning that are looked at."""
WORDIEST = 8
"""Memories by words that are looked at."""
LEAST_SHARED = 0.6
"""Share of a text's words that a memory must have to be worth comparing."""


class Match(NamedTuple):
    """A memory and how alike it is, from 0 to 1."""

    memory: Memory
    likeness: float


def resembling_text(backend: Backend, namespace: Namespace, text: str) -> Plan[list[Match]]:
    """Memories of a namespace that resemble a text, the most alike first."""
    items: list[SearchItem] = []
    if backend.has_vectors:
        op = SearchOp(namespace, None, NEAREST, 0, text, refresh_ttl=False)
        with suppress(Exception):
            (items,) = yield Ops([op])
    near = [
        Match(memory_of(item), float(item.score))
        for item in items
        if item.score is not None and abs(item.score) <= COSINE_LIMIT
    ]
    if not near:
        view, terms = (yield from backend.view(namespace)), tokens(text)
        ids: list[MemoryId] = yield Call(lambda: _sharing(view, terms))
        for memory in (yield from memories_at(ids)).values():
            near.append(Match(memory, _overlap(view, terms, tokens(memory.text))))
        near.sort(key=lambda match: -match.likeness)
    return [match for match in near if match.memory.namespace == namespace]


def resembling_memories(
    backend: Backend, prefix: Namespace, memories: Sequence[Memory]
) -> Plan[list[list[Match]]]:
    """For each memory others of its namespace that resemble it; embeds nothing."""
    view = yield from backend.view(prefix)
    cosines: list[dict[MemoryId, float]] = yield Call(
        lambda: [_cosines(view, memory) for memory in memories]
    )
    known = {memory.id: memory for memory in memories}
    known |= yield from memories_at(sorted({*chain(*cosines)} - known.keys()))
    found: list[list[Match]] = [[] for _ in memories]
    for memory, near, matches in zip(memories, cosines, found, strict=True):
        for other, likeness in near.items():
            if other in known:
                if math.isnan(likeness):
                    likeness = _overlap(view, tokens(memory.text), tokens(known[other].text))
                matches.append(Match(known[other], likeness))
    return found


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


def _overlap(view: NamespaceView, ours: Sequence[str], theirs: Sequence[str]) -> float:
    """IDF-weighted share of the terms of two texts that both have."""
    with view.lock:
        idf = view.catalog.lexical.idf
        shared = sum(map(idf, set(ours) & set(theirs)))
        union = sum(map(idf, set(ours) | set(theirs)))
    return shared / union if union else 0.0
