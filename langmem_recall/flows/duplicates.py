"""Memories that may say the same as a text: by meaning where there are vectors, else by words."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from langgraph.store.base import GetOp, Item, SearchItem, SearchOp

from langmem_recall.flows.candidates import COSINE_LIMIT, View, memory_of, top
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


class DuplicateFinder:
    """Finds what a text might repeat; embeds the text as a query at most."""

    def __init__(self, words: Callable[[Namespace], Plan[View]], has_vectors: bool) -> None:
        self._words = words
        self._has_vectors = has_vectors

    def of_text(self, namespace: Namespace, text: str) -> Plan[list[Match]]:
        """Memories of a namespace that resemble a text, the most alike first."""
        found: list[SearchItem] = []
        if self._has_vectors:
            op = SearchOp(namespace, None, NEAREST, 0, text, refresh_ttl=False)
            try:
                (found,) = yield Ops([op])
            except Exception:
                found = []
        scored = [item for item in found if _is_cosine(item.score)]
        if not scored:
            return (yield from self._by_words(namespace, text))
        twins = [Match(memory_of(item), float(item.score or 0.0)) for item in scored]
        return [twin for twin in twins if twin.memory.namespace == namespace]

    def of_memories(self, prefix: Namespace, memories: Sequence[Memory]) -> Plan[list[list[Match]]]:
        """For each memory others of its namespace that resemble it; embeds nothing."""
        words = yield from self._words(prefix)
        near: list[dict[MemoryId, float]] = yield Call(
            lambda: [_resembling(words, memory) for memory in memories]
        )
        known = {memory.id: memory for memory in memories}
        missing = sorted({memory_id for lot in near for memory_id in lot} - known.keys())
        items: list[Item | None] = yield Ops([GetOp(*one, refresh_ttl=False) for one in missing])
        known |= {(item.namespace, item.key): memory_of(item) for item in items if item is not None}
        return [
            [
                Match(known[one], _alike(words, memory, known[one], cosine))
                for one, cosine in lot.items()
                if one in known
            ]
            for memory, lot in zip(memories, near, strict=True)
        ]

    def _by_words(self, namespace: Namespace, text: str) -> Plan[list[Match]]:
        words = yield from self._words(namespace)
        terms = tokens(text)
        ids: list[MemoryId] = yield Call(lambda: _sharing(words, terms))
        gets = [GetOp(*memory_id, refresh_ttl=False) for memory_id in ids]
        items: list[Item | None] = yield Ops(gets)
        memories = [memory_of(item) for item in items if item is not None]
        near = [memory for memory in memories if memory.namespace == namespace]
        twins = [Match(memory, _overlap(words, terms, tokens(memory.text))) for memory in near]
        return sorted(twins, key=lambda twin: -twin.likeness)


def _is_cosine(score: float | None) -> bool:
    return score is not None and -COSINE_LIMIT <= score <= COSINE_LIMIT


def _sharing(words: View, terms: Sequence[str]) -> list[MemoryId]:
    """Memories that have most of these terms."""
    with words.lock:
        catalog = words.catalog
        if not catalog.rows:
            return []
        shares = catalog.lexical.coverage(dict.fromkeys(terms, 1.0))
        ids = [catalog.id(row) for row in top(shares, WORDIEST) if shares[row] >= LEAST_SHARED]
        return [memory_id for memory_id in ids if not catalog.is_superseded(memory_id)]


def _resembling(words: View, memory: Memory) -> dict[MemoryId, float]:
    """Others that have most of a memory's words, with their cosine; NaN where it is not known."""
    with words.lock:
        catalog = words.catalog
        own = catalog.row(memory.id)
        near = {
            memory_id: catalog.row(memory_id)
            for memory_id in _sharing(words, tokens(memory.text))
            if memory_id != memory.id and memory_id[0] == memory.namespace
        }
        if catalog.is_superseded(memory.id):
            return {}
        rows = [row for row in (own, *near.values()) if row is not None]
        if own is None or not near:
            return dict.fromkeys(near, math.nan)
        return dict(zip(near, words.similarity(rows)[0, 1:].tolist(), strict=True))


def _alike(words: View, one: Memory, other: Memory, cosine: float) -> float:
    if not math.isnan(cosine):
        return cosine
    return _overlap(words, tokens(one.text), tokens(other.text))


def _overlap(words: View, ours: Sequence[str], theirs: Sequence[str]) -> float:
    """IDF-weighted share of the terms of two texts that both have."""
    with words.lock:
        idf = words.catalog.lexical.idf
        shared = sum(map(idf, set(ours) & set(theirs)))
        union = sum(map(idf, set(ours) | set(theirs)))
    return shared / union if union else 0.0
