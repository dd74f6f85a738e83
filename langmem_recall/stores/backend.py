"""Which engine is inside: `backend_of` asks it once; `GenericBackend` serves any store."""

from __future__ import annotations

import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np
from langchain_core.embeddings import Embeddings
from langgraph.store.base import BaseStore, GetOp, Item, PutOp, SearchItem, SearchOp
from langgraph.store.base.batch import AsyncBatchedBaseStore
from langgraph.store.memory import InMemoryStore

from langmem_recall.deadline import TooLate, at_most, loading
from langmem_recall.errors import ConfigurationError, InputError, described
from langmem_recall.filters import matches
from langmem_recall.flows.backend import ENOUGH, Backend, Null, OnProgress
from langmem_recall.flows.candidates import (
    COSINE_LIMIT,
    Gate,
    MatchedCue,
    NamespaceView,
    ReadRequest,
    ReadResult,
    best_by_words,
    cosine_of,
    id_of,
    is_short,
    likeness_in,
    listing,
    make_pool,
    match,
    pool_of,
    standings,
    unscored,
)
from langmem_recall.flows.effects import (
    Await,
    Call,
    Detach,
    Effect,
    Embed,
    Host,
    Ops,
    Plan,
    arun,
    pause,
    run,
)
from langmem_recall.flows.usage import UsageBackend
from langmem_recall.memory.value import PIECES, read_memory
from langmem_recall.ranking.arrays import FloatArray
from langmem_recall.ranking.calibration import DEFAULT_NULL, NullDistribution
from langmem_recall.ranking.catalog import Catalog, traits_of
from langmem_recall.ranking.evidence import Window, score_evidence
from langmem_recall.types import SIDECAR_ROOT, Memory, MemoryId, Namespace

Clock = Callable[[], datetime]

MOST_NAMESPACES = 256
"""Indexes kept in memory; the one searched longest ago goes first."""
MOST_MEMORIES = 500_000
"""Memories that all of them may hold, at two to three kilobytes each."""
LARGE_RECHECK = 20
"""A namespace found too large is counted again after this many times the index's age limit."""
LONGEST_FILL_S = 1.0
"""Seconds after which a fill is taken for hung, and another reader may begin one."""
DEAD_SHARE = 0.25
"""An index with more dead rows than this is built anew from its memories."""


def utc_now() -> datetime:
    """The time, where no other clock was given."""
    return datetime.now(UTC)


def backend_of(
    store: BaseStore,
    clock: Clock = utc_now,
    index_limit: int = 100_000,
    max_age_s: float = 30.0,
    nested: bool = True,
) -> Backend:
    """The backend of a store: of its engine where we know that, else one that fits any store.

    Args:
        store: The store.
        clock: Tells the time.
        index_limit: Memories in a namespace beyond which its words are not kept in this process.
        max_age_s: Seconds after which a namespace is listed again.
        nested: Whether anything may lie below a namespace that is read.
    """
    from langmem_recall.stores.local.backend import LocalBackend
    from langmem_recall.stores.local.store import LocalStore

    if isinstance(store, LocalStore):
        return LocalBackend(store, clock, index_limit, max_age_s)
    # Not imported where it is not used: without it there is no such store.
    postgres = sys.modules.get("langgraph.store.postgres.base")
    if postgres is not None and isinstance(store, postgres.BasePostgresStore):
        from langmem_recall.stores.postgres.backend import PostgresBackend

        return PostgresBackend(store, clock, index_limit, max_age_s, nested)
    backend = GenericBackend(store, clock, index_limit, max_age_s)
    backend.queries_as_documents = not isinstance(store, InMemoryStore)
    return backend


def reindex(store: BaseStore, progress: OnProgress | None = None, *, batch: int = 256) -> int:
    """Make every vector of a store anew with the embedder it is configured with.

    Vectors of two embedders are never compared with each other. Stopped at any point, it goes on
    from there when it is called again.

    Args:
        store: A LocalStore or Postgres store, or a `RecallStore` around one.
        progress: Called after each batch with how many are done, and of how many.
        batch: Texts that the embedder gets at a time.

    Returns:
        How many were embedded by this call.
    """
    backend, host = opened(store)
    return run(backend.reindex(progress, batch), host)


async def areindex(
    store: BaseStore, progress: OnProgress | None = None, *, batch: int = 256
) -> int:
    """The async twin of `reindex`."""
    backend, host = opened(store)
    return await arun(backend.reindex(progress, batch), host)


def opened(store: BaseStore) -> tuple[Backend, Host]:
    """The backend of a store, or of the one in a `RecallStore`, and where its plans are run."""
    from langmem_recall.stores.recall_store import RecallStore

    inner = store.inner if isinstance(store, RecallStore) else store
    backend = backend_of(inner)
    return backend, Host(inner, inner, backend.embeddings, records=backend.records)


class Fetched(NamedTuple):
    """What one read brought: a page for each search, and items by name, None for one gone."""

    pages: list[list[SearchItem]]
    items: dict[MemoryId, Item | None]
    vectors: Sequence[Sequence[float]] | None = None
    """Of the texts searched by, where they were embedded in this process."""


class NamespaceIndex:
    """Catalog and memories below one namespace, filled by paging, kept current by writes."""

    def __init__(self, is_pool: bool = False) -> None:
        self.lock: AbstractContextManager[Any] = threading.RLock()
        self._is_pool = is_pool
        self.catalog = Catalog()
        self.filled_at: float | None = None
        """Clock reading of the last fill that ended."""
        self.too_large = False
        self._memories: dict[MemoryId, Memory] = {}
        self._written_during_fill: set[MemoryId] | None = None
        self._filling_since: float | None = None
        self._counted = self.catalog, -1, 0
        """A catalog, its version, and the vectors there were in it."""

    def is_fresh(self, now: float, max_age_s: float) -> bool:
        """Whether the last fill is recent enough to trust."""
        return self.filled_at is not None and now - self.filled_at < max_age_s

    def known(self, memory_id: MemoryId) -> Memory | None:
        """What is known of a memory without reading it."""
        return self._memories.get(memory_id)

    @property
    def vector_count(self) -> int:
        """How many vectors could be near by chance: of a long memory several."""
        catalog, version, count = self._counted
        if catalog is not self.catalog or version != catalog.version:
            more = sum(len(one.value.get(PIECES, ())) for one in self._memories.values())
            count = self.catalog.size + more
            self._counted = self.catalog, self.catalog.version, count
        return count

    def similarity(self, rows: Sequence[int]) -> FloatArray:
        """Not known: the vectors stay in the store."""
        return np.full((len(rows), len(rows)), np.nan)

    def read_all(
        self, items: Sequence[Item], otherwise: Callable[[Item], Memory] | None = None
    ) -> list[Memory]:
        """The memories of items just read, as they are known where they have not changed."""
        known, other = map(self._memories.get, map(id_of, items)), otherwise or self.read
        return [
            # The very same time object comes only from a store that hands out what it keeps.
            one if one and one.updated_at is item.updated_at is not None else other(item)
            for one, item in zip(known, items, strict=True)
        ]

    def memories(self, items: Sequence[Item]) -> list[Memory]:
        """The same; what the index knew otherwise is corrected, an empty one takes all in."""
        if self._memories or not items:
            return self.read_all(items, self.memory)
        memories = [_memory_of(item) for item in items]
        self._build(memories)
        return memories

    def read(self, item: Item) -> Memory:
        """The memory of an item just read, as it is known where that has not changed."""
        known = self._memories.get((item.namespace, item.key))
        if known and known.updated_at == item.updated_at and known.value == item.value:
            return known
        return _memory_of(item)

    def memory(self, item: Item) -> Memory:
        """The same; what the index knew otherwise is corrected."""
        memory = self.read(item)
        known = self._memories.get(memory.id)
        if memory is not known:
            self._memories[memory.id] = memory
            # The same value under other times: its words need not be read again.
            if known is None or known.value != memory.value:
                self.catalog.put(memory.id, traits_of(memory))
        return memory

    def note_put(
        self, namespace: Namespace, key: str, value: Mapping[str, Any], now: datetime
    ) -> None:
        """A write through the wrapper; the item's own times are learned when it is next read."""
        with self.lock:
            if self._written_during_fill is not None:
                self._written_during_fill.add((namespace, key))
            known = self.known((namespace, key))
            memory = read_memory(namespace, key, dict(value), known.created_at if known else now)
            self._memories[memory.id] = memory
            self.catalog.put(memory.id, traits_of(memory))

    def note_delete(self, memory_id: MemoryId) -> None:
        """A deletion through the wrapper, or one elsewhere that came to light."""
        with self.lock:
            if self._written_during_fill is not None:
                self._written_during_fill.add(memory_id)
            self._drop(memory_id)

    @property
    def newest(self) -> datetime | None:
        """When the memory written last was written, as the store has it; None before a fill."""
        if self.filled_at is None or self.too_large:
            return None
        with self.lock:
            times = [memory.updated_at for memory in self._memories.values() if memory.updated_at]
        return max(times, default=None)

    def begin_fill(self) -> float | None:
        """Remember from now on which memories are written, so that the fill does not undo them.

        What it returns ends the fill; None while another one is under way that does not hang.
        """
        with self.lock:
            now = time.monotonic()
            if self._filling_since is not None and now - self._filling_since < LONGEST_FILL_S:
                return None
            self._filling_since = now
            if self._written_during_fill is None:
                self._written_during_fill = set()
            return now

    def cease_fill(self, begun: float) -> None:
        """The fill that began then is over, or was given up."""
        with self.lock:
            if self._filling_since == begun:
                self._filling_since = self._written_during_fill = None

    def take_changes(self, items: Iterable[Item], count: int, now: float) -> bool:
        """Take in what was written lately; False where deletions or the like ask for a listing."""
        with self.lock:
            written = self._written_during_fill or set()
            for item in items:
                if id_of(item) not in written:
                    self.memory(item)
            if written or len(self._memories) != count:
                return False
            self._end(now)
            return True

    def end_fill(self, items: Iterable[Item], now: float) -> None:
        """Take in a whole listing: new and changed memories in, vanished ones out."""
        with self.lock:
            written = self._written_during_fill or set()
            listed = {id_of(item): item for item in items}
            fresh = [item for memory_id, item in listed.items() if memory_id not in written]
            self.memories(fresh)
            for memory_id in self._memories.keys() - listed.keys() - written:
                self._drop(memory_id)
            self._end(now)

    def _drop(self, memory_id: MemoryId) -> None:
        self._memories.pop(memory_id, None)
        self.catalog.remove(memory_id)

    def _end(self, now: float) -> None:
        self.filled_at = now
        if self.catalog.rows - self.catalog.size > DEAD_SHARE * self.catalog.rows:
            self._build(list(self._memories.values()))

    def _build(self, memories: Sequence[Memory]) -> None:
        """A catalog of all memories at once: faster to make and to read than one by one."""
        self._memories = {memory.id: memory for memory in memories}
        traits = {name: traits_of(memory) for name, memory in self._memories.items()}
        self.catalog = Catalog.of(traits, self._is_pool)


def _memory_of(item: Item) -> Memory:
    # A copy, because some stores hand out the dict they keep.
    return read_memory(item.namespace, item.key, dict(item.value), item.created_at, item.updated_at)


class GenericBackend(Backend):
    """Any store: `search` for the dense channel, an index in this process for the words."""

    most_searches: int | None = 3
    """Parts of a cue that are searched for by meaning: each is a request to the embedder."""

    def __init__(self, store: BaseStore, clock: Clock, index_limit: int, max_age_s: float) -> None:
        self.store = store
        self.usage = UsageBackend()
        hides_index = getattr(store, "index_config", NotImplemented) is NotImplemented
        self.needs_loop = isinstance(store, AsyncBatchedBaseStore)
        self.has_vectors = self.embeddings is not None or (
            hides_index and not hasattr(store, "embeddings")
        )
        self._clock = clock
        self._index_limit = index_limit
        self._max_age_s = max_age_s
        self._lock = threading.Lock()
        self._indexes: OrderedDict[Namespace, NamespaceIndex] = OrderedDict()

    @property
    def embeddings(self) -> Embeddings | None:
        """The embedder that the store has now, where it shows one."""
        found = getattr(self.store, "embeddings", None)
        return found if isinstance(found, Embeddings) else None

    def view(self, prefix: Namespace) -> Plan[NamespaceView]:
        """The words of a namespace, listed anew when old; an empty pool where none is kept."""
        if not self._index_limit:
            return NamespaceIndex(is_pool=True)
        with self._lock:
            index = self._indexes.get(prefix)
            if index is None:
                index = self._indexes[prefix] = NamespaceIndex()
            self._indexes.move_to_end(prefix)
            while len(self._indexes) > MOST_NAMESPACES:
                self._indexes.popitem(last=False)
        now, age_s = self._clock().timestamp(), self._max_age_s
        if not index.is_fresh(now, age_s * (LARGE_RECHECK if index.too_large else 1)):
            # It goes on for the next turn where this one cannot wait for it.
            filling = yield Detach(self._fill(prefix, index, now))
            try:
                yield Await(filling)
            except TooLate:
                if index.filled_at is None:
                    raise
                # Until then the words of before will do.
        return NamespaceIndex(is_pool=True) if index.too_large else index

    def _fill(self, prefix: Namespace, index: NamespaceIndex, now: float) -> Plan[None]:
        """List a namespace anew; one at a time, however many readers wait for it."""
        age_s = self._max_age_s
        while not index.is_fresh(now, age_s * (LARGE_RECHECK if index.too_large else 1)):
            begun = index.begin_fill()
            if begun is None:
                if index.filled_at is not None:
                    # Another reader is at it; until then the words of before will do.
                    break
                # Not marked as loading: the reader that is at it may hang.
                yield pause()
                now = self._clock().timestamp()
                continue
            try:
                changes = self._changes(prefix, index)
                if changes is not None:
                    changed, count = yield from changes
                    is_whole = yield Call(partial(index.take_changes, changed, count, now))
                    if is_whole and count <= self._index_limit:
                        break
                items = yield from self._list(prefix)
                visible = [item for item in items if item.namespace[0] != SIDECAR_ROOT]
                index.too_large = len(visible) > self._index_limit
                with loading():
                    # Reading the words of thousands of memories must not hold the event loop up.
                    taken = [] if index.too_large else visible
                    yield Call(partial(index.end_fill, taken, now))
                self._trim()
                break
            finally:
                index.cease_fill(begun)

    def find(self, request: ReadRequest, view: Any, null: Null, gate: Gate) -> Plan[ReadResult]:
        """One round trip: a search per part, and the memories that the words point to."""
        index: NamespaceIndex = NamespaceIndex(is_pool=True) if view is None else view
        with index.lock:
            matched = match(request, index.catalog)
        worded = yield from self._rescues(request, index, matched, gate)
        gets = [GetOp(namespace, key, refresh_ttl=False) for namespace, key in worded]
        filter = dict(request.filter) if request.filter else None
        plain = SearchOp(request.prefix, filter, refresh_ttl=False)
        # The parts that say most come first.
        parts = matched.parts[: self.most_searches]
        searches = [plain._replace(query=each.dense_text) for each in parts]
        degraded = list[str]()
        wanted = max(request.policy.pool, request.wanted)
        # With room for what gates keep out: to search again is to embed the cue again.
        scale = 2
        while True:
            limit = scale * wanted
            fetched: Fetched | None = None
            if self.has_vectors and not degraded:
                asked = [op._replace(limit=limit) for op in searches]
                try:
                    with at_most(ENOUGH):
                        fetched = yield from self._fetch(asked, gets, index, request)
                except Exception as error:
                    degraded.append(f"dense search failed ({described(error)}); lexical only")
            if fetched is None:
                listed = plain._replace(limit=limit)
                fetched = yield from self._fetch_words(listed, gets, index, request)
            if len(fetched.pages[0]) < limit:
                yield from _add_unlisted(fetched.pages[0], limit, index, request.filter)
            with index.lock:
                rankings = [(wanted, index.read_all(page)) for page in fetched.pages]
                found = [memory for _, ranking in rankings for memory in ranking]
                passes = gate.passes_all(found, index.catalog.supersedes_any)
                candidates = [] if passes else unscored(found, standings(index.catalog, found))
            barred = set() if passes else (yield from gate.judge(candidates))
            if not barred or not is_short(rankings, barred, scale):
                break
            scale *= 2
        yardstick = DEFAULT_NULL
        if self.has_vectors and not degraded:
            yardstick = yield from null()
            if fetched.vectors is None and yardstick.quick:
                # The store made them as well; with them a cue is measured by its own mean.
                texts = [each.dense_text for each in matched.parts]
                with suppress(Exception):
                    vectors = yield Embed(texts, as_queries=not self.queries_as_documents)
                    fetched = fetched._replace(vectors=vectors)
        degraded += self._unread(request.prefix)
        with index.lock:
            return _assemble(request, index, matched, yardstick, fetched, barred, degraded)

    def _rescues(
        self, request: ReadRequest, index: NamespaceIndex, matched: MatchedCue, gate: Gate
    ) -> Plan[list[MemoryId]]:
        """Memories that are looked at in any case, and the best by words that pass the gate."""
        wanted, scale = request.policy.rescues, 1
        while True:
            with index.lock:
                catalog = matched.catalog
                rows = best_by_words(matched.wordings, catalog.alive, scale * wanted)
                worded = list(map(catalog.id, rows))
                known = [memory for memory in map(index.known, worded) if memory]
                passes = gate.passes_all(known, catalog.supersedes_any)
                candidates = [] if passes else unscored(known, standings(catalog, known))
                pinned = catalog.pinned() if request.with_pinned else []
            barred = set() if passes else (yield from gate.judge(candidates))
            if request.filter:
                barred |= {one.id for one in known if not matches(one.value, request.filter)}
            if not barred or not is_short([(wanted, known)], barred, scale):
                always = [*request.required, *map(catalog.id, pinned)]
                return list(dict.fromkeys([*always, *pool_of(worded, wanted, barred)]))
            scale *= 2

    @property
    def refreshes_ttl(self) -> bool:
        """Whether a read may start a memory's time to live again."""
        return self.store.supports_ttl

    def items_below(
        self, prefix: Namespace, offset: int, limit: int
    ) -> Plan[tuple[list[Item], int]]:
        """Some items at or below a namespace by name, and how many places they took."""
        items: list[Item] = yield from listing(prefix)
        page = sorted(items, key=id_of)[offset : offset + limit]
        return page, len(page)

    def settle(self) -> Plan[None]:
        """Let the clock of the store's next statement be right."""
        yield from ()

    def check_vectors(self) -> Plan[None]:
        """Before the first write: whether the vectors that are there are of the same embedder."""
        yield from ()

    def without_vectors(
        self, prefix: Namespace, probe: Sequence[float]
    ) -> Plan[list[MemoryId] | None]:
        """Memories that no vector is kept of; None where a store does not tell."""
        yield from ()
        return None

    def reindex(self, progress: OnProgress | None, batch: int) -> Plan[int]:
        """Make every vector anew; returns how many were made."""
        raise InputError(
            "reindex knows LocalStore and LangGraph's Postgres stores, got "
            f"{type(self.store).__name__}. Put its memories into a new store instead, which "
            "embeds them."
        )

    def set_up(self, distribute: bool | None = None) -> Plan[None]:
        """Make what is kept in the store besides its items, after its own `setup`."""
        if distribute:
            raise ConfigurationError(
                "distribute=True is for LangGraph's Postgres stores on a database with Citus, got "
                f"{type(self.store).__name__}. Call setup() without it."
            )
        yield from ()

    def is_set_up(self) -> Plan[bool | None]:
        """Whether `set_up` has been done in the newest version; None where it does nothing."""
        yield from ()
        return None

    def misplaced(self) -> Plan[list[str] | None]:
        """What is wrong with where the tables lie, a sentence each; None where nothing is split."""
        yield from ()
        return None

    def nearest(self, namespace: Namespace, text: str, limit: int) -> Plan[list[SearchItem]]:
        """The memories of a namespace, and perhaps of those below it, nearest to a text."""
        op = SearchOp(namespace, None, limit, 0, text, refresh_ttl=False)
        (items,) = yield Ops([op])
        return cast(list[SearchItem], items)

    def erase(self, prefix: Namespace) -> Plan[int | None]:
        """Delete all below a namespace, expired items too; None where that goes item by item."""
        yield from ()
        return None

    def compact(self) -> bool:
        """Rewrite the store without what was deleted; False where it cannot, or not now."""
        return False

    def note_put(
        self, namespace: Namespace, key: str, value: Mapping[str, Any], now: datetime
    ) -> None:
        """An item was written through this process."""
        for index in self._indexes_above(namespace):
            index.note_put(namespace, key, value, now)

    def note_delete(self, namespace: Namespace, key: str) -> None:
        """An item was deleted through this process."""
        for index in self._indexes_above(namespace):
            index.note_delete((namespace, key))

    def recover(self, effect: Effect, error: Exception) -> Plan[Any]:
        """Write once more, as a store wants it that has a habit of its own."""
        if isinstance(effect, Ops) and isinstance(error, TypeError) and "Decimal" in str(error):
            # DynamoDB takes no floats.
            return (yield replace(effect, ops=[_with_decimals(op) for op in effect.ops]))
        if isinstance(effect, Ops) and effect.as_batch and _EQUAL_TEXTS in str(error):
            # InMemoryStore stumbles over two equal texts in a batch, before anything is changed.
            order = sorted(range(len(effect.ops)), key=lambda i: isinstance(effect.ops[i], PutOp))
            results: list[Any] = [None] * len(order)
            for i in order:
                (results[i],) = yield Ops([effect.ops[i]], as_batch=True)
            return results
        raise error

    def _fetch(
        self,
        searches: Sequence[SearchOp],
        gets: Sequence[GetOp],
        index: NamespaceIndex,
        request: ReadRequest,
    ) -> Plan[Fetched]:
        """Pages and items; an engine may look for the words of the request itself."""
        answers: list[Any] = yield Ops([*searches, *gets])
        ids = [(op.namespace, op.key) for op in gets]
        items = dict(zip(ids, answers[len(searches) :], strict=True))
        return Fetched(answers[: len(searches)], items)

    def _fetch_words(
        self, listed: SearchOp, gets: Sequence[GetOp], index: NamespaceIndex, request: ReadRequest
    ) -> Plan[Fetched]:
        """The same without vectors: a listing in place of pages."""
        return GenericBackend._fetch(self, [listed], gets, index, request)

    def _unread(self, prefix: Namespace) -> list[str]:
        """What of a namespace could not be looked at, for the trace."""
        return []

    def _changes(
        self, prefix: Namespace, index: NamespaceIndex
    ) -> Plan[tuple[list[Item], int]] | None:
        """What was written since an index was filled, and how many items there are now."""
        return None

    def _list(self, prefix: Namespace) -> Plan[list[Item]]:
        return listing(prefix, self._index_limit)

    def _trim(self) -> None:
        """Let go of the namespaces searched longest ago, where all together hold too much."""
        with self._lock:
            size = sum(index.catalog.size for index in self._indexes.values())
            while size > MOST_MEMORIES and len(self._indexes) > 1:
                _, oldest = self._indexes.popitem(last=False)
                size -= oldest.catalog.size

    def _indexes_above(self, namespace: Namespace) -> list[NamespaceIndex]:
        with self._lock:
            known = self._indexes.items()
            return [index for prefix, index in known if namespace[: len(prefix)] == prefix]


_EQUAL_TEXTS = "Number of embeddings"


def _with_decimals(op: Any) -> Any:
    def converted(part: Any) -> Any:
        if isinstance(part, float):
            return Decimal(repr(part))
        if isinstance(part, Mapping):
            return {name: converted(each) for name, each in part.items()}
        return list(map(converted, part)) if isinstance(part, list | tuple) else part

    return op._replace(value=converted(op.value)) if isinstance(op, PutOp) else op


def _add_unlisted(
    page: list[SearchItem], limit: int, index: NamespaceIndex, filter: Mapping[str, Any] | None
) -> Plan[None]:
    """Add what a search leaves out for want of a vector, where it has nothing else to give."""
    if index.filled_at is None:
        return
    with index.lock:
        ids = sorted(set(index.catalog.ids()) - set(map(id_of, page)))
        known = [memory for one in ids if (memory := index.known(one))]
    unlisted = [one.id for one in known if not filter or matches(one.value, filter)]
    gets = [GetOp(*one, refresh_ttl=False) for one in unlisted[: limit - len(page)]]
    items: list[Item | None] = yield Ops(gets)
    page += [
        SearchItem(item.namespace, item.key, item.value, item.created_at, item.updated_at)
        for item in items
        if item is not None and (not filter or matches(item.value, filter))
    ]


def _assemble(
    request: ReadRequest,
    index: NamespaceIndex,
    matched: MatchedCue,
    null: NullDistribution,
    fetched: Fetched,
    barred: set[MemoryId],
    degraded: list[str],
) -> ReadResult:
    """Candidates from what was fetched; the caller holds the lock of the index."""
    prefix, pool = request.prefix, request.policy.pool
    pages = [
        {id_of(item): item for item in page if item.namespace[0] != SIDECAR_ROOT}
        for page in fetched.pages
    ]
    # Only the head's own evidence may be read: the same head for every page.
    pools = [{one: page[one] for one in pool_of(list(page), pool, barred)} for page in pages]
    items: dict[MemoryId, Item] = {one: item for page in pools for one, item in page.items()}
    dense_count = len(items)
    for memory_id, item in fetched.items.items():
        if item is None:
            index.note_delete(memory_id)
        elif item.namespace[: len(prefix)] == prefix and (
            not request.filter or matches(item.value, request.filter)
        ):
            items.setdefault(memory_id, item)
    word_count = len(items) - dense_count
    memories = index.memories(list(items.values()))
    catalog = index.catalog
    if matched.version != catalog.version or matched.catalog is not catalog:
        # The rows no longer mean what they meant when the words were matched.
        matched = match(request, catalog)
    found = [row for row in (catalog.row(memory.id) for memory in memories) if row is not None]
    window = Window(catalog, found)
    place_of = dict(zip(window.rows.tolist(), range(window.count), strict=True))
    rows = {one: place_of[row] for one, row in zip(items, found, strict=True)}
    cosines, unseen = _cosines(rows, pools, (len(matched.parts), window.count), pool, degraded)
    table = score_evidence(
        window,
        matched.parts,
        matched.wordings,
        cosines,
        null,
        unseen,
        fetched.vectors,
        among=index.vector_count,
        detailed=request.detailed,
    )
    # A page that the head has all of needs nothing beyond.
    beyond = pages[0].items() if request.wanted > pool else ()
    tail = [item for one, item in beyond if one not in items and one not in barred]
    others = index.read_all(tail)
    literal = [cosine_of(item.score) for item in tail] if matched.is_literal else None
    standing, detailed = standings(catalog, memories), request.detailed
    return ReadResult(
        head=make_pool(matched, table, list(rows.values()), memories, standing, detailed),
        tail=unscored(others, standings(catalog, others), literal),
        searched=catalog.size,
        channels={"dense": dense_count if cosines is not None else 0, "words": word_count},
        likeness=partial(likeness_in, index),
        degraded=tuple(degraded),
    )


def _cosines(
    rows: Mapping[MemoryId, int],
    pools: Sequence[Mapping[MemoryId, SearchItem]],
    shape: tuple[int, int],
    pool: int,
    degraded: list[str],
) -> tuple[FloatArray | None, float | None]:
    """Scores as a row per part, and the least of a full pool: no unseen memory has more."""
    found = [[item.score for item in page.values()] for page in pools]
    scores = [score for page in found for score in page if score is not None]
    finite = [score for score in scores if score == score]
    if len(finite) < len(scores):
        degraded.append("the embedder gave NaN; those memories have no dense evidence")
    if not finite or len(pools) > shape[0]:
        return None, None
    # What grows from the nearest on is a distance.
    known = [[score for score in page if score is not None and score == score] for page in found]
    grows = any(len(page) > 1 and page[0] < page[-1] and page == sorted(page) for page in known)
    if grows or max(finite) > COSINE_LIMIT or min(finite) < -COSINE_LIMIT:
        degraded.append("the store's scores are no cosines; lexical only")
        return None, None
    table = np.full(shape, np.nan)
    for part, (page, cosines) in enumerate(zip(pools, found, strict=True)):
        # None, where a memory has no vector, becomes NaN.
        table[part, [rows[one] for one in page]] = np.array(cosines, np.float64)
    is_full = all(len(page) >= pool for page in pools)
    return table, min(finite) if is_full else None
