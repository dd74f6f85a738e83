"""Reading any store: `search` for the dense channel, the in-process index for the rest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
from langgraph.store.base import GetOp, Item, SearchItem, SearchOp

from langmem_recall.errors import described
from langmem_recall.filters import matches as filter_matches
from langmem_recall.flows.candidates import (
    MatchedCue,
    ReadRequest,
    ReadResult,
    beyond,
    id_of,
    is_literal,
    likeness_by,
    make_candidates,
    match,
    rescued,
    row_of,
)
from langmem_recall.flows.effects import Ops, Plan
from langmem_recall.ranking.arrays import FloatArray
from langmem_recall.ranking.calibration import NullDistribution
from langmem_recall.ranking.catalog import Catalog
from langmem_recall.ranking.evidence import LexicalMatch, Part, Window, score_evidence
from langmem_recall.types import SIDECAR_ROOT, Memory, MemoryId

COSINE_LIMIT = 1.001
"""A score beyond this is no cosine, whatever the store calls it."""


class Index(Protocol):
    """Catalog and memories of a namespace, kept in this process."""

    @property
    def lock(self) -> AbstractContextManager[Any]:
        """Held by readers and writers."""

    @property
    def catalog(self) -> Catalog:
        """Words, threads and speakers by row."""

    def memories(self, items: Sequence[Item]) -> list[Memory]:
        """The memories of items just read."""

    def note_delete(self, memory_id: MemoryId) -> None:
        """A memory turned out to be gone."""


class Fetched(NamedTuple):
    """What one read brought."""

    pages: list[list[SearchItem]]
    items: list[Item | None]
    worded: Sequence[Item] = ()
    """Items that have rare words of the cue, where a store can look for them."""


class Fetch(Protocol):
    """How searches and gets of one read are carried out."""

    def __call__(
        self, searches: Sequence[SearchOp], gets: Sequence[GetOp], texts: Sequence[str]
    ) -> Plan[Fetched]:
        """A page for each search, an item for each get, and what has rare words of the texts."""


def fetch_with_ops(
    searches: Sequence[SearchOp], gets: Sequence[GetOp], texts: Sequence[str]
) -> Plan[Fetched]:
    """As any store does it, which cannot look for words."""
    answers: list[Any] = yield Ops([*searches, *gets])
    return Fetched(answers[: len(searches)], answers[len(searches) :])


def find_by_search(
    ask: ReadRequest,
    index: Index,
    null: NullDistribution,
    has_vectors: bool,
    look: Fetch = fetch_with_ops,
) -> Plan[ReadResult]:
    """One round trip: a search per part, and the memories that the words point to."""
    with index.lock:
        matched = match(ask, index.catalog)
        fetch = _to_fetch(ask, index.catalog, matched.wordings)
        texts = () if index.catalog.size else ask.cue.searched
    answers = yield from _search(ask, matched.parts, fetch, has_vectors, partial(look, texts=texts))
    with index.lock:
        return _assemble(ask, index, matched, null, answers)


def _to_fetch(
    ask: ReadRequest, catalog: Catalog, wordings: Sequence[LexicalMatch]
) -> list[MemoryId]:
    rows = rescued(catalog, wordings, ask.policy.rescues)
    pinned = catalog.pinned() if ask.with_pinned else []
    return list(dict.fromkeys([*ask.required, *(catalog.id(row) for row in (*pinned, *rows))]))


Pages = list[list[SearchItem]]


class StoreAnswer(NamedTuple):
    """What a store answered: a page for each part, and the items asked for by id."""

    pages: Pages
    fetched: dict[MemoryId, Item | None]
    exhausted: bool
    degraded: list[str]


def _search(
    ask: ReadRequest,
    parts: Sequence[Part],
    fetch: Sequence[MemoryId],
    has_vectors: bool,
    look: Callable[[Sequence[SearchOp], Sequence[GetOp]], Plan[Fetched]],
) -> Plan[StoreAnswer]:
    """The dense pages and the fetched items; a listing stands in when the dense channel fails."""
    gets = [GetOp(namespace, key, refresh_ttl=False) for namespace, key in fetch]
    listing = SearchOp(
        ask.prefix,
        dict(ask.filter) if ask.filter else None,
        max(ask.policy.pool, ask.wanted),
        0,
        None,
        refresh_ttl=False,
    )
    degraded: list[str] = []
    if has_vectors:
        searches = [listing._replace(query=part.dense_text) for part in parts]
        try:
            looked = yield from look(searches, gets)
            return _answers(listing, looked, fetch, degraded)
        except Exception as error:
            degraded.append(f"dense search failed ({described(error)}); lexical only")
    looked = yield from fetch_with_ops([listing], gets, ())
    return _answers(listing, looked, fetch, degraded)


def _answers(
    asked: SearchOp, looked: Fetched, fetch: Sequence[MemoryId], degraded: list[str]
) -> StoreAnswer:
    found: Pages = looked.pages
    exhausted = all(len(page) < asked.limit for page in found)
    if not asked.namespace_prefix:
        found = [[item for item in page if item.namespace[0] != SIDECAR_ROOT] for page in found]
    fetched = dict(zip(fetch, looked.items, strict=True))
    return StoreAnswer(
        found, fetched | {id_of(item): item for item in looked.worded}, exhausted, degraded
    )


def _assemble(
    ask: ReadRequest,
    index: Index,
    matched: MatchedCue,
    null: NullDistribution,
    answers: StoreAnswer,
) -> ReadResult:
    pool, degraded = ask.policy.pool, answers.degraded
    # Only the head's own evidence may be read: the same head for every page.
    pools = [page[:pool] for page in answers.pages]
    items: dict[MemoryId, Item] = {id_of(item): item for page in pools for item in page}
    dense_count = len(items)
    for memory_id, item in answers.fetched.items():
        if item is None:
            index.note_delete(memory_id)
        elif passes(item, ask):
            items.setdefault(memory_id, item)
    memories = index.memories(list(items.values()))
    catalog = index.catalog
    if not matched.holds_for(catalog):
        matched = match(ask, catalog)
    ids = [memory.id for memory in memories]
    held = [row_of(catalog, memory_id) for memory_id in ids]
    window = Window(catalog, held)
    rows = dict(zip(ids, map(window.row, held), strict=True))
    cosines, unseen = _cosines(rows, pools, (len(matched.parts), window.rows), pool, degraded)
    wordings = [window.wording(wording) for wording in matched.wordings]
    model = ask.policy.relevance
    table = score_evidence(window, matched.parts, wordings, cosines, null, model, unseen)
    tail = [item for item in answers.pages[0][pool:] if id_of(item) not in items]
    return ReadResult(
        candidates=make_candidates(
            ask, catalog, matched.parts, table, list(rows.values()), memories
        ),
        tail=[
            beyond(catalog, item, item.score if is_literal(matched.parts) else None)
            for item in tail
        ],
        items=items | {id_of(item): item for item in tail},
        exhausted=answers.exhausted,
        searched=catalog.size,
        channels={
            "dense": 0 if cosines is None else dense_count,
            "words": len(items) - dense_count,
        },
        likeness=lambda ids: _overlap(index, ids),
        degraded=tuple(degraded),
    )


def passes(item: Item, ask: ReadRequest) -> bool:
    """Whether a fetched item lies within the namespace and passes the filter."""
    inside = item.namespace[: len(ask.prefix)] == ask.prefix
    return inside and (not ask.filter or filter_matches(item.value, ask.filter))


def _cosines(
    rows: Mapping[MemoryId, int],
    pools: Pages,
    shape: tuple[int, int],
    pool: int,
    degraded: list[str],
) -> tuple[FloatArray | None, float | None]:
    """Scores as a row per part, and the least of a full pool: no unseen memory has more."""
    scores = [item.score for page in pools for item in page if item.score is not None]
    finite = [score for score in scores if score == score]
    if len(finite) < len(scores):
        degraded.append("the embedder gave NaN; those memories have no dense evidence")
    if not finite or len(pools) != shape[0]:
        return None, None
    if max(finite) > COSINE_LIMIT or min(finite) < -COSINE_LIMIT:
        degraded.append("the store's scores are no cosines; lexical only")
        return None, None
    table = np.full(shape, np.nan)
    for part, page in enumerate(pools):
        places = [rows[id_of(item)] for item in page]
        table[part, places] = [np.nan if item.score is None else item.score for item in page]
    is_full = all(len(page) >= pool for page in pools)
    return table, min(finite) if is_full else None


def _overlap(index: Index, ids: Sequence[MemoryId]) -> FloatArray:
    with index.lock:
        return likeness_by(index.catalog.lexical.overlap, index.catalog, ids)
