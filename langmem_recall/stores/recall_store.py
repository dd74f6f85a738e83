"""`RecallStore`: any LangGraph store, with ranked, explained and remembered reads."""

from __future__ import annotations

import threading
import weakref
from asyncio import to_thread
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from inspect import isawaitable
from typing import Any, Literal, cast

from langchain_core.documents import BaseDocumentCompressor
from langgraph.store.base import (
    NOT_PROVIDED,
    BaseStore,
    GetOp,
    ListNamespacesOp,
    MatchCondition,
    NamespacePath,
    NotProvided,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    validate_op_namespace,
)
from langgraph.store.base.batch import AsyncBatchedBaseStore

from langmem_recall.errors import InputError
from langmem_recall.flows.effects import Ops, Plan, arun, run
from langmem_recall.flows.rerank import Reranker
from langmem_recall.guard.judge import default_guard
from langmem_recall.guard.verdict import Guard
from langmem_recall.memory.value import LONGEST_TEXT, check_value
from langmem_recall.policy import RecallPolicy
from langmem_recall.stores.bookkeeping import Bookkeeper
from langmem_recall.stores.books import book_of, has_tables, make_tables, prepare
from langmem_recall.stores.duplicates import DuplicateFinder
from langmem_recall.stores.flusher import Flusher
from langmem_recall.stores.ledger import Ledger
from langmem_recall.stores.memories import MemoryMethods, UpkeepMethods
from langmem_recall.stores.policies import PolicyStore
from langmem_recall.stores.postgres.host import explained, host_of
from langmem_recall.stores.quarantine import Quarantine
from langmem_recall.stores.quiet import is_quiet, quiet
from langmem_recall.stores.reads import Knobs, Reader, embeddings_of, has_vectors
from langmem_recall.stores.recalls import RecallMethods
from langmem_recall.stores.sweep import Sweeper
from langmem_recall.stores.wrapper import StoreWrapper
from langmem_recall.stores.writes import WriteKnobs, Writer
from langmem_recall.types import (
    STATUSES,
    Memory,
    Namespace,
    Recall,
)
from langmem_recall.write_policy import WritePolicy

_adding_locks: weakref.WeakKeyDictionary[BaseStore, threading.Lock] = weakref.WeakKeyDictionary()


def _utc_now() -> datetime:
    return datetime.now(UTC)


class RecallStore(RecallMethods, MemoryMethods, UpkeepMethods, StoreWrapper):
    """Wraps any `BaseStore`: `search` re-ranks and learns from reads, `recall` gates as well.

    Args:
        inner: The store that holds the memories. All it has stays reachable through this one.
        policy: How to rank; `RecallPolicy.default()` when absent.
        guard: Judges every text given to `remember` and `correct`. About what is put as it is, or
            written past this store, its decision is kept beside the item; every read but `get`,
            `history`, `quarantined` and an export heeds it.
        write_policy: What `remember` stores when it is told the kind of observation.
        merge_similarity: How alike a text under a generated key must be to a memory to reinforce
            it instead of being stored, if names, numbers and negation agree; 2: never.
        summarizer: A chat model that condenses external text before it is stored.
        max_text: Characters that a memory may have.
        usage_store: Holds the usage records where the inner store cannot.
        traces: Called with every `Recall`.
        record: Whether reads count as uses.
        clock: Tells the time; for tests and simulations.
        index: "off" keeps no words in this process: the dense pool alone is scored lexically.
        index_limit: Memories in a namespace beyond which its words are not kept either.
        index_max_age: Seconds after which a namespace is listed again, because another process
            may have written. Deletions elsewhere never surface, whatever the age.
        flush_interval: Seconds between a read and the writing of its usage.
        allow_empty_namespace: Let `recall` and `search` read all namespaces at once.
        stored_policies: Use the policy that `set_policy` stored for a namespace, where there is
            one, in place of `policy`.
        reranker: A LangChain document compressor that orders the best 20 anew within 0.2 s, or a
            `Reranker` with numbers of its own; when it fails the blend stands.
    """

    def __init__(
        self,
        inner: BaseStore,
        *,
        policy: RecallPolicy | None = None,
        guard: Guard = default_guard,
        write_policy: WritePolicy | None = None,
        merge_similarity: float = 0.95,
        summarizer: Any = None,
        max_text: int = LONGEST_TEXT,
        usage_store: BaseStore | None = None,
        traces: Callable[[Recall], None] | None = None,
        record: bool = True,
        clock: Callable[[], datetime] = _utc_now,
        index: Literal["auto", "off"] = "auto",
        index_limit: int = 100_000,
        index_max_age: float = 30.0,
        flush_interval: float = 1.0,
        allow_empty_namespace: bool = False,
        stored_policies: bool = False,
        reranker: BaseDocumentCompressor | Reranker | None = None,
    ) -> None:
        super().__init__(inner)
        self._traces = traces
        self._record = record
        self._clock = clock
        self._secret: bytes | None = None
        self.policy = policy or RecallPolicy.default()
        sidecar = usage_store or inner
        self._book = book_of(sidecar)
        adding = _adding_locks.setdefault(sidecar, threading.Lock())
        self._ledger = Ledger(self._book, self.policy.count_fade_per_day, adding)
        self._host = host_of(inner, sidecar, embeddings=embeddings_of(inner))
        limit = index_limit if index == "auto" else 0
        knobs = Knobs(limit, index_max_age, allow_empty_namespace)
        self._quarantine = Quarantine(guard, index_max_age)
        rerank = reranker if isinstance(reranker, Reranker | None) else Reranker(reranker)
        self._reader = Reader(inner, self._ledger, self._quarantine, clock, knobs, rerank)
        self._flusher = Flusher(self, flush_interval)
        writing = WriteKnobs(write_policy or WritePolicy(), merge_similarity, summarizer, max_text)
        indexes, words = self._reader.indexes, self._reader.words
        stores = inner, sidecar
        keeper = self._keeper = Bookkeeper(stores, clock, indexes, self._ledger, self._quarantine)
        twins = DuplicateFinder(words, has_vectors(inner))
        self._writer = Writer(keeper, twins, self._flusher.nudge, writing)
        self._upkeep = Sweeper(keeper, twins, merge_similarity)
        self._stored_policies = stored_policies
        self._policies = PolicyStore(clock, index_max_age)

    def __repr__(self) -> str:
        return f"RecallStore({self._inner!r}, policy={self.policy.name!r})"

    # --- the store interface ----------------------------------------------------------------

    def put(
        self,
        namespace: Namespace,
        key: str,
        value: Mapping[str, Any],
        index: Literal[False] | list[str] | None = None,
        *,
        ttl: float | NotProvided | None = NOT_PROVIDED,
    ) -> None:
        """Store an item, as the inner store does."""
        run(self._before_puts([PutOp(namespace, key, cast(Any, value), index)]), self._host)
        with explained():
            self._inner.put(namespace, key, value, index, ttl=ttl)
        self._reader.indexes.note_put(namespace, str(key), value, self._clock())

    async def aput(
        self,
        namespace: Namespace,
        key: str,
        value: Mapping[str, Any],
        index: Literal[False] | list[str] | None = None,
        *,
        ttl: float | NotProvided | None = NOT_PROVIDED,
    ) -> None:
        """Store an item, as the inner store does."""
        await arun(self._before_puts([PutOp(namespace, key, cast(Any, value), index)]), self._host)
        with explained():
            await self._inner.aput(namespace, key, value, index, ttl=ttl)
        self._reader.indexes.note_put(namespace, str(key), value, self._clock())

    def delete(self, namespace: Namespace, key: str) -> None:
        """Delete an item; its usage stays until `forget`."""
        run(self._writer.forget_stand_ins([(namespace, key)]), self._host)
        self._inner.delete(namespace, key)
        self._reader.indexes.note_delete(namespace, key)

    async def adelete(self, namespace: Namespace, key: str) -> None:
        """Delete an item; its usage stays until `forget`."""
        await arun(self._writer.forget_stand_ins([(namespace, key)]), self._host)
        await self._inner.adelete(namespace, key)
        self._reader.indexes.note_delete(namespace, key)

    def search(
        self,
        namespace_prefix: Namespace,
        /,
        *,
        query: str | None = None,
        filter: dict[str, Any] | None = None,
        limit: int = 10,
        offset: int = 0,
        refresh_ttl: bool | None = None,
        policy: RecallPolicy | None = None,
        include: Collection[str] | str = (),
    ) -> list[SearchItem]:
        """Ranked memories for a query, or a plain listing without one.

        Limit, offset and filter mean what they mean in any store. Results carry `.score`,
        `.similarity` and `.signals`, and count as used. What is quarantined or superseded is left
        out unless `include` names it: "quarantined", "superseded" or both.
        """
        op = self._search_op(namespace_prefix, query, filter, limit, offset, refresh_ttl)
        return run(self._search(op, policy, _included(include)), self._host)

    async def asearch(
        self,
        namespace_prefix: Namespace,
        /,
        *,
        query: str | None = None,
        filter: dict[str, Any] | None = None,
        limit: int = 10,
        offset: int = 0,
        refresh_ttl: bool | None = None,
        policy: RecallPolicy | None = None,
        include: Collection[str] | str = (),
    ) -> list[SearchItem]:
        """The async twin of `search`."""
        op = self._search_op(namespace_prefix, query, filter, limit, offset, refresh_ttl)
        return await arun(self._search(op, policy, _included(include)), self._host)

    def list_namespaces(
        self,
        *,
        prefix: NamespacePath | None = None,
        suffix: NamespacePath | None = None,
        max_depth: int | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> list[Namespace]:
        """Namespaces of the inner store, without our side-car."""
        op = _list_op(prefix, suffix, max_depth, limit, offset)
        return run(self._reader.namespaces(op), self._host)

    async def alist_namespaces(
        self,
        *,
        prefix: NamespacePath | None = None,
        suffix: NamespacePath | None = None,
        max_depth: int | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> list[Namespace]:
        """The async twin of `list_namespaces`."""
        op = _list_op(prefix, suffix, max_depth, limit, offset)
        return await arun(self._reader.namespaces(op), self._host)

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Several operations; reads come before writes, as in the stores this one wraps."""
        return run(self._batch(list(ops)), self._host)

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """The async twin of `batch`."""
        return await arun(self._batch(list(ops)), self._host)

    @staticmethod
    def quiet() -> AbstractContextManager[None]:
        """Reads within leave no trace: no usage, no refreshed time to live."""
        return quiet()

    # --- life cycle -------------------------------------------------------------------------

    def setup(self) -> Any:
        """Set the inner store up, where it needs that; returns what it returns.

        On Postgres also the tables of our own; to be awaited where the inner one is.
        """
        prepared = prepare(self._inner)
        if has_tables(self._book, self._inner):
            if isawaitable(prepared):
                return self._finish_setup(prepared)
            run(make_tables(self._book, self._inner), self._host)
        return prepared

    async def asetup(self) -> Any:
        """The async twin of `setup`."""
        return await self._finish_setup(await to_thread(prepare, self._inner))

    async def _finish_setup(self, prepared: Any) -> Any:
        done = await prepared if isawaitable(prepared) else prepared
        await arun(make_tables(self._book, self._inner), self._host)
        return done

    @property
    def needs_loop(self) -> bool:
        """Whether usage can only be written while the store's event loop runs: then `aclose`."""
        return isinstance(self._host.sidecar, AsyncBatchedBaseStore)

    def flush(self) -> int:
        """Write pending usage now; returns how many memories it concerned."""
        return run(self._ledger.flush(), self._host) if self._ledger.has_pending else 0

    async def aflush(self) -> int:
        """The async twin of `flush`."""
        return await arun(self._ledger.flush(), self._host) if self._ledger.has_pending else 0

    def close(self) -> None:
        """Write what is pending and stop writing behind; the inner store stays open."""
        self._flusher.stop()
        self.flush()

    async def aclose(self) -> None:
        """The async twin of `close`."""
        self._flusher.stop()
        await self.aflush()

    # --- plans ------------------------------------------------------------------------------

    def _search(
        self,
        op: SearchOp,
        policy: RecallPolicy | None = None,
        include: frozenset[str] = frozenset(),
    ) -> Plan[list[SearchItem]]:
        # Callers write lists too, as the stores let them.
        op = op._replace(namespace_prefix=tuple(op.namespace_prefix))
        policy = yield from self._policy_at(op.namespace_prefix, policy)
        is_ranked = bool(op.query) and policy.blend != "similarity"
        if is_ranked:
            items = yield from self._reader.search(op, policy, include)
        else:
            op = op._replace(refresh_ttl=op.refresh_ttl and not is_quiet())
            items = yield from self._reader.plain_search(op, include)
        if op.query:
            self._note_use(items, policy, op.refresh_ttl and is_ranked)
        return items

    def _batch(self, ops: Sequence[Op]) -> Plan[list[Result]]:
        for op in ops:
            _check_op(op)
        results: list[Any] = [None] * len(ops)
        rest = []
        for i, op in enumerate(ops):
            if isinstance(op, SearchOp):
                results[i] = yield from self._search(op)
            elif isinstance(op, ListNamespacesOp):
                results[i] = yield from self._reader.namespaces(op)
            else:
                rest.append(i)
        if rest:
            yield from self._before_puts([op for op in ops if isinstance(op, PutOp)])
            answers = yield Ops([ops[i] for i in rest], as_batch=True)
            for i, answer in zip(rest, answers, strict=True):
                op, results[i] = ops[i], answer
                if isinstance(op, PutOp) and op.value is None:
                    self._reader.indexes.note_delete(op.namespace, op.key)
                elif isinstance(op, PutOp) and op.value is not None:
                    self._reader.indexes.note_put(op.namespace, op.key, op.value, self._clock())
        return results

    def _before_puts(self, puts: Sequence[PutOp]) -> Plan[None]:
        for op in puts:
            if op.value is not None:
                check_value(op.value)
        if any(op.value is not None and op.index is not False for op in puts):
            yield from self._keeper.check_vectors()
        yield from self._writer.judge_puts(puts)
        deleted = [(op.namespace, op.key) for op in puts if op.value is None]
        if deleted:
            yield from self._writer.forget_stand_ins(deleted)

    def _note_use(
        self, used: Sequence[Memory | SearchItem], policy: RecallPolicy, refresh_ttl: bool
    ) -> None:
        if is_quiet() or not used:
            return
        ids = [(memory.namespace, memory.key) for memory in used]
        if self._record:
            self._ledger.record(ids, self._clock().timestamp(), policy.refresh_floor)
        if refresh_ttl and self._inner.supports_ttl:
            self._ledger.refresh_ttl(ids)
        if self._ledger.has_pending:
            self._flusher.nudge()

    def _search_op(
        self,
        prefix: Namespace,
        query: str | None,
        filter: dict[str, Any] | None,
        limit: int,
        offset: int,
        refresh_ttl: bool | None,
    ) -> SearchOp:
        if refresh_ttl is None:
            refresh_ttl = (self.ttl_config or {}).get("refresh_on_read", True)
        op = SearchOp(prefix, filter, limit, offset, query, refresh_ttl)
        validate_op_namespace(op)
        return op


def _included(include: Collection[str] | str) -> frozenset[str]:
    """The statuses that a search shows besides "active"."""
    asked = frozenset([include] if isinstance(include, str) else include)
    if unknown := asked - set(STATUSES):
        raise InputError(
            f"include names statuses: {', '.join(STATUSES)}; got {sorted(map(str, unknown))}. "
            'Write include=("quarantined", "superseded").'
        )
    return asked


def _list_op(
    prefix: NamespacePath | None,
    suffix: NamespacePath | None,
    max_depth: int | None,
    limit: int,
    offset: int,
) -> ListNamespacesOp:
    starts = (MatchCondition("prefix", prefix),) if prefix else ()
    ends = (MatchCondition("suffix", suffix),) if suffix else ()
    op = ListNamespacesOp((*starts, *ends), max_depth, limit, offset)
    validate_op_namespace(op)
    return op


def _check_op(op: Any) -> None:
    if not isinstance(op, GetOp | PutOp | SearchOp | ListNamespacesOp):
        raise InputError(
            f"Unknown operation {op!r}. Use GetOp, PutOp, SearchOp or ListNamespacesOp."
        )
    # Some stores check it only in `put`, and a dotted label in a batch aliased another namespace.
    validate_op_namespace(op)
