"""`RecallStore`: any LangGraph store, with ranked, explained and remembered reads."""

from __future__ import annotations

import logging
import secrets
import threading
import weakref
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial, wraps
from inspect import isawaitable
from typing import Any, Concatenate, Literal, ParamSpec, Self, TypedDict, TypeVar, cast, overload

from langchain_core.documents import BaseDocumentCompressor
from langgraph.store.base import (
    NOT_PROVIDED,
    BaseStore,
    GetOp,
    Item,
    ListNamespacesOp,
    NotProvided,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
    validate_op_namespace,
)
from typing_extensions import Unpack

from langmem_recall.cue import as_cue
from langmem_recall.deadline import Gate
from langmem_recall.errors import ConfigurationError, InputError, described
from langmem_recall.flows.bookkeeping import Bookkeeper
from langmem_recall.flows.effects import Call, Effect, Host, Ops, Plan, arun, run
from langmem_recall.flows.quarantine import Quarantine
from langmem_recall.flows.read import Namespaces, Reader, quiet
from langmem_recall.flows.rerank import Reranker
from langmem_recall.flows.sweep import Sweeper
from langmem_recall.flows.usage import Ledger
from langmem_recall.flows.write import Writer, Writing
from langmem_recall.guard.judge import AnyGuard, default_guard
from langmem_recall.memory.upkeep import STEPS, Forgotten, Step, SweepReport
from langmem_recall.memory.value import check_value, content_of
from langmem_recall.policy import RecallPolicy
from langmem_recall.stores.backend import Clock, backend_of, utc_now
from langmem_recall.stores.flusher import Flusher
from langmem_recall.types import (
    SIDECAR_ROOT,
    Answer,
    Cue,
    Explanation,
    Kind,
    Memory,
    MemoryId,
    Namespace,
    Recall,
    Source,
    View,
)

logger = logging.getLogger(__name__)

P = ParamSpec("P")
S = TypeVar("S", bound="RecallStore")
T = TypeVar("T")
OpT = TypeVar("OpT", bound=Op)
Awaiting = Coroutine[Any, Any, T]

SECRET = (SIDECAR_ROOT, "secret")


class MemoryFields(TypedDict, total=False):
    """Provenance that `remember` takes."""

    kind: Kind
    source: Source
    confidence: float
    salience: float
    written_at: datetime
    thread_id: str
    turn: int | str
    speaker: str
    entities: Sequence[str]
    tags: Sequence[str]
    valid_from: datetime
    valid_until: datetime
    supersedes: Sequence[str]
    derived_from: Sequence[str]
    asked_as: Sequence[str]
    pinned: bool


_adding_locks: weakref.WeakKeyDictionary[BaseStore, threading.Lock] = weakref.WeakKeyDictionary()


@dataclass(frozen=True, slots=True, kw_only=True)
class Caching:
    """What a `RecallStore` keeps in its process, for how long, and where usage goes.

    Args:
        index_limit: Memories in a namespace beyond which its words are not kept in this process;
            0 keeps none: the dense pool alone is scored lexically.
        max_age: Seconds after which a namespace is listed again, because another process may have
            written. Deletions elsewhere never surface, whatever the age.
        flush_interval: Seconds between a read and the writing of its usage.
        usage_store: Holds what is kept about memories where the inner store cannot.
        nested: Whether anything may lie below a namespace that is read. False says that nothing
            does: then a Postgres that Citus or partitions split is asked in one place from the
            first look on. Otherwise that takes a listing of all places first.
    """

    index_limit: int = 100_000
    max_age: float = 30.0
    flush_interval: float = 1.0
    usage_store: BaseStore | None = None
    nested: bool = True


def _sync(plan: Callable[Concatenate[S, P], Plan[T]]) -> Callable[Concatenate[S, P], T]:
    """A method that carries a plan out and waits for each effect."""
    annotations = plan.__annotations__
    annotations["return"] = annotations["return"].removeprefix("Plan[").removesuffix("]")

    @wraps(plan)
    def method(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return run(plan(self, *args, **kwargs), self._host)

    return method


def _async(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], Awaiting[T]]:
    """The same method for the event loop: the plan that `_sync` was given, awaiting its effects."""
    plan: Callable[Concatenate[S, P], Plan[T]] = method.__wrapped__  # type: ignore[attr-defined]

    @wraps(method)
    async def amethod(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await arun(plan(self, *args, **kwargs), self._host)

    amethod.__name__ = f"a{plan.__name__}"
    amethod.__qualname__ = f"RecallStore.a{plan.__name__}"
    return amethod


class RecallStore(BaseStore):
    """Wraps any `BaseStore`: `search` re-ranks and learns from reads, `recall` gates as well.

    Args:
        inner: The store that holds the memories. All it has stays reachable through this one.
        policy: How to rank; `RecallPolicy.default()` when absent.
        guard: Judges every text given to `remember` and `correct`, by rules unless you pass a
            callable of your own: sync or async, called with the text and its source. About what is
            put as it is, or written past this store, its decision is kept beside the item; every
            read but `get`, `history`, `quarantined` and an export heeds it.
        traces: Called with every `Recall`.
        record: Whether reads count as uses.
        clock: Tells the time; for tests and simulations.
        writing: How texts are stored: write policy, summarizer, merging, length.
        caching: What is kept in this process, for how long, and where usage goes.
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
        guard: AnyGuard = default_guard,
        traces: Callable[[Recall], None] | None = None,
        reranker: BaseDocumentCompressor | Reranker | None = None,
        clock: Clock = utc_now,
        writing: Writing | None = None,
        caching: Caching | None = None,
        record: bool = True,
        allow_empty_namespace: bool = False,
        stored_policies: bool = False,
    ) -> None:
        super().__init__()
        if isinstance(inner, RecallStore) or not isinstance(inner, BaseStore):
            raise ConfigurationError(
                f"RecallStore wraps a LangGraph BaseStore, got {inner!r:.80}. Pass the store "
                "itself, such as LocalStore() or PostgresStore(...); what is wrapped already is "
                "used as it is, and a second policy goes to recall(policy=...)."
            )
        self._inner = inner
        self._traces = traces
        self._clock = clock
        self._secret: bytes | None = None
        self.policy = policy or RecallPolicy.default()
        for name, kind, given in (("writing", Writing, writing), ("caching", Caching, caching)):
            if given is not None and not isinstance(given, kind):
                raise ConfigurationError(
                    f"{name} must be a {kind.__name__}, got {given!r:.80}. "
                    f"Write {name}={kind.__name__}(...)."
                )
        writing, caching = writing or Writing(), caching or Caching()
        sidecar = caching.usage_store or inner
        backend = backend_of(
            inner, clock, caching.index_limit, caching.max_age, nested=caching.nested
        )
        beside = backend if sidecar is inner else backend_of(sidecar)
        self._backend, self._sidecar = backend, beside

        def recover(effect: Effect, error: Exception) -> Plan[Any]:
            is_beside = isinstance(effect, Ops) and effect.sidecar
            return (beside if is_beside else backend).recover(effect, error)

        self._host = Host(
            inner,
            sidecar,
            backend.embeddings,
            recover,
            Gate(backend.at_a_time),
            in_thread=backend.in_thread if sidecar is inner else (),
            records=beside.records,
        )
        adding = _adding_locks.setdefault(sidecar, threading.Lock())
        self._ledger = Ledger(beside.usage, self.policy.count_fade_per_day, adding)
        quarantine = Quarantine(guard, caching.max_age)
        quarantine.sink = partial(self._tell_traces, "verdict", "A verdict")
        self._flusher = Flusher(self, caching.flush_interval)
        keeper = Bookkeeper(backend, beside, clock, self._ledger, quarantine)
        self._reader = Reader(
            keeper,
            self._flusher.nudge,
            policy=self.policy,
            max_age_s=caching.max_age,
            allow_empty_namespace=allow_empty_namespace,
            stored_policies=stored_policies,
            record_uses=record,
            reranker=reranker if isinstance(reranker, Reranker | None) else Reranker(reranker),
            traces=traces,
        )
        self._writer = Writer(keeper, self._flusher.nudge, writing)
        self._default_source = writing.default_source
        self.write_policy = writing.write_policy
        self._upkeep = Sweeper(keeper, writing.merge_similarity)

    def __repr__(self) -> str:
        return f"RecallStore({self._inner!r}, policy={self.policy.name!r})"

    # --- the store interface ----------------------------------------------------------------

    @_sync
    def put(
        self,
        namespace: Namespace,
        key: str,
        value: Mapping[str, Any],
        index: Literal[False] | list[str] | None = None,
        *,
        ttl: float | NotProvided | None = NOT_PROVIDED,
    ) -> Plan[None]:
        """Store an item, as the inner store does."""
        op = self._with_source(PutOp(namespace, key, cast(Any, value), index))
        yield from self._before_puts([op])
        put: Any = op[:4]
        yield Call(lambda: self._inner.put(*put, ttl=ttl), lambda: self._inner.aput(*put, ttl=ttl))
        self._backend.note_put(op.namespace, str(op.key), cast(Any, op.value), self._clock())

    @_sync
    def delete(self, namespace: Namespace, key: str) -> Plan[None]:
        """Delete an item; its usage stays until `forget`."""
        yield from self._writer.forget_stand_ins([(namespace, key)])
        yield Call(
            lambda: self._inner.delete(namespace, key), lambda: self._inner.adelete(namespace, key)
        )
        self._backend.note_delete(namespace, key)

    @_sync
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
    ) -> Plan[list[SearchItem]]:
        """Ranked memories for a query, or a plain listing without one.

        Limit, offset and filter mean what they mean in any store. Results carry `.score`,
        `.similarity` and `.signals`, and count as used. What is quarantined or superseded is left
        out unless `include` names it: "quarantined", "superseded" or both.
        """
        if refresh_ttl is None:
            refresh_ttl = (self._inner.ttl_config or {}).get("refresh_on_read", True)
        op = SearchOp(namespace_prefix, filter, limit, offset, query, refresh_ttl)
        validate_op_namespace(op)
        return self._reader.search(op, policy, include)

    @_sync
    def batch(self, ops: Iterable[Op]) -> Plan[list[Result]]:
        """Several operations; reads come before writes, as in the stores this one wraps.

        Lists of namespaces, here and from `list_namespaces`, leave our side-car out.
        """
        ops = [self._with_source(op) for op in ops]
        for op in ops:
            if not isinstance(op, GetOp | PutOp | SearchOp | ListNamespacesOp):
                raise InputError(
                    f"Unknown operation {op!r}. Use GetOp, PutOp, SearchOp or ListNamespacesOp."
                )
            # Some stores check it only in `put`, and a dotted label in a batch aliased another
            # namespace.
            validate_op_namespace(op)
        found: dict[int, Any] = {}
        for i, op in enumerate(ops):
            if isinstance(op, SearchOp):
                found[i] = yield from self._reader.search(op, None)
            elif isinstance(op, ListNamespacesOp):
                found[i] = yield from self._reader.namespaces(op)
        puts = [op for op in ops if isinstance(op, PutOp)]
        yield from self._before_puts(puts)
        rest = [op for i, op in enumerate(ops) if i not in found]
        answers = iter((yield Ops(rest, as_batch=True)) if rest else ())
        for put in puts:
            if put.value is None:
                self._backend.note_delete(put.namespace, put.key)
            else:
                self._backend.note_put(put.namespace, put.key, put.value, self._clock())
        return [found[i] if i in found else next(answers) for i in range(len(ops))]

    @staticmethod
    def quiet() -> AbstractContextManager[None]:
        """Reads within leave no trace: no usage, no refreshed time to live."""
        return quiet()

    @property
    def inner(self) -> BaseStore:
        """The store that is wrapped."""
        return self._inner

    @property
    def supports_ttl(self) -> bool:  # type: ignore[override]
        """Whether the inner store knows times to live."""
        return self._inner.supports_ttl

    @property
    def ttl_config(self) -> TTLConfig | None:  # type: ignore[override]
        """The inner store's configuration of times to live."""
        return self._inner.ttl_config

    def __enter__(self) -> Self:
        if hasattr(self._inner, "__enter__"):
            self._inner.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        try:
            self.close()
        finally:
            if hasattr(self._inner, "__exit__"):
                self._inner.__exit__(*error)

    async def __aenter__(self) -> Self:
        if hasattr(self._inner, "__aenter__"):
            await self._inner.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        try:
            await self.aclose()
        finally:
            if hasattr(self._inner, "__aexit__"):
                await self._inner.__aexit__(*error)

    def __getattr__(self, name: str) -> Any:
        """Everything else the inner store has."""
        if name == "_inner":
            raise AttributeError(name)
        return getattr(self._inner, name)

    @_sync
    def get(
        self, namespace: Namespace, key: str, *, refresh_ttl: bool | None = None
    ) -> Plan[Item | None]:
        """One item, as the inner store has it."""
        inner, name = self._inner, (namespace, key)
        found: Item | None = yield Call(
            lambda: inner.get(*name, refresh_ttl=refresh_ttl),
            lambda: inner.aget(*name, refresh_ttl=refresh_ttl),
        )
        return found

    # --- recall -------------------------------------------------------------------------------

    @_sync
    def recall(
        self,
        namespace: Namespaces,
        cue: Cue | str,
        *,
        policy: RecallPolicy | None = None,
        view: View | None = None,
        record: bool = True,
    ) -> Plan[Recall]:
        """The memories that belong in front of the model now, or none, with reasons.

        Args:
            namespace: Where to look; several namespaces (user and team) are ranked together.
            cue: What is going on: a text, or a `Cue` with several parts. A text that is nothing but
                greeting or thanks asks for nothing.
            policy: In place of the store's own.
            view: What the model sees already; that is not recalled again.
            record: False leaves it to `record_recall` to count what was really shown.

        Returns:
            What was chosen, what was dropped and why, and the trace.
        """
        return self._reader.recall(namespace, as_cue(cue), policy, view, record)

    @_sync
    def set_policy(self, namespace: Namespace, policy: RecallPolicy | None) -> Plan[None]:
        """Store a policy for a namespace and all below it; None takes it away.

        Stores made with `stored_policies=True` rank by it.
        """
        return self._reader.set_policy(namespace, policy)

    @_sync
    def policy_for(self, namespace: Namespace) -> Plan[RecallPolicy]:
        """The policy in force for a namespace when a call names none."""
        return self._reader.policy_at(namespace, None)

    @_sync
    def memories(self, ids: Sequence[MemoryId]) -> Plan[list[Memory | None]]:
        """Memories by namespace and key, None for one that is gone or barred; leaves no trace."""
        return self._reader.memories(ids)

    @_sync
    def secret(self) -> Plan[bytes]:
        """Random bytes that the side-car keeps, for nonces that no writer of memories can know."""
        if self._secret is not None:
            return self._secret
        get, value = GetOp(SECRET, "nonce", refresh_ttl=False), {"hex": secrets.token_hex(32)}
        (item,) = yield Ops([get], sidecar=True)
        if item is None:
            try:
                yield Ops([PutOp(SECRET, "nonce", value, index=False)], sidecar=True)
                # Another process may have been quicker.
                (item,) = yield Ops([get], sidecar=True)
            except Exception as fault:
                # The secret is then this process's own.
                reason = described(fault)
                logger.warning("The nonces' secret could not be kept in the store: %s", reason)
        self._secret = bytes.fromhex((value if item is None else item.value)["hex"])
        return self._secret

    @_sync
    def explain(
        self, namespace: Namespace, key: str, cue: Cue | str, *, policy: RecallPolicy | None = None
    ) -> Plan[Explanation]:
        """Why a memory is, or is not, recalled for a cue; leaves no trace."""
        return self._reader.explain((namespace, key), as_cue(cue), policy)

    def record_recall(self, recall: Recall, policy: RecallPolicy | None = None) -> None:
        """Count what a recall chose as used, and hand the recall to `traces`."""
        self._reader.record(recall, policy)

    def record_answer(self, answer: Answer) -> None:
        """Hand what a model answered after a recall to `traces`, where that takes answers."""
        self._reader.record_answer(answer)

    # --- memories -----------------------------------------------------------------------------

    @_sync
    def remember(
        self,
        namespace: Namespace,
        text: str,
        *,
        key: str | None = None,
        ttl: timedelta | None = None,
        observation: str | None = None,
        **fields: Unpack[MemoryFields],
    ) -> Plan[Memory]:
        """Store a memory with its provenance, or reinforce the one that says the same.

        NUL and lone surrogates in text and names are cleaned away; text beyond the store's
        `max_text` and what cannot be meant raise InputError. Where the embedder fails the memory is
        stored all the same, and indexed by a later `remember` or `sweep`.

        Args:
            namespace: Whose memory it is.
            text: The words to remember.
            key: Its name: stored under it whatever else is there. When absent a key is made up,
                unless a memory in force says the same; then that one is reinforced and returned.
            ttl: How long it is valid; reads never extend it.
            observation: What kind of observation it is; the write policy says whether such a one
                is stored and, without `ttl` or `valid_until`, for how long.
            **fields: Provenance: kind, source, salience, speaker and the like. `supersedes` names
                memories that this one takes the place of; they become its history. `asked_as`
                needs a trusted `source`: phrasings decide when a memory surfaces.

        Returns:
            The memory as stored, with its key and status.

        Raises:
            RecallError: The guard objects to the text, which is then in the error's `text`, and
                the store has `Writing(on_bad="reject")`; or the write policy rejects the
                observation.
        """
        memory = self._writer.describe(namespace, text, key, ttl, observation, fields)
        has_entities = fields.get("entities") is not None
        return self._writer.remember(memory, key is not None, has_entities)

    @_sync
    def correct(
        self,
        namespace: Namespace,
        key: str,
        text: str,
        *,
        source: Source = "user_correction",
        asked_as: Sequence[str] = (),
    ) -> Plan[Memory]:
        """Put a corrected text in a memory's place; the former one is kept as history.

        A source that is less trusted than the memory only proposes it: what is returned then has
        the status "quarantined" and a key of its own, and `confirm` carries it out. Without
        `asked_as` the memory keeps those of its phrasings that the correction leaves valid.
        """
        return self._writer.correct(namespace, key, text, source, asked_as)

    @_sync
    def phrase(self, namespace: Namespace, key: str, asked_as: Sequence[str]) -> Plan[Memory]:
        """Note how a memory will be asked for, in place of what was noted; all else in it stays.

        Raises:
            RecallError: The guard bars text and phrasings together, or the memory is not in force
                or of a source whose phrasings are not taken. Nothing is changed then.
        """
        return self._writer.phrase(namespace, key, asked_as)

    @overload  # A text is a sequence of texts too; the first form that fits is meant.
    def confirm(self, namespace: Namespace, key: str) -> Memory: ...  # type: ignore[overload-overlap]
    @overload
    def confirm(self, namespace: Namespace, key: Sequence[str]) -> list[Memory]: ...
    @_sync  # type: ignore[misc]
    def confirm(
        self, namespace: Namespace, key: str | Sequence[str]
    ) -> Plan[Memory | list[Memory]]:
        """Vouch for a memory, or several: full confidence, and no need for verification.

        What a less trusted source proposed (`quarantined` lists it) is carried out with this. Of
        several keys all must be there, or nothing is confirmed.
        """
        keys = [key] if isinstance(key, str) else key
        confirmed = yield from self._writer.confirm(namespace, keys)
        return confirmed[0] if isinstance(key, str) else confirmed

    @_sync
    def approve(self, namespace: Namespace, key: str, *, text: str | None = None) -> Plan[Memory]:
        """Let a withheld memory be recalled whole, in the place of the one it waited beside.

        Args:
            namespace: Whose memory it is.
            key: Its key, as `quarantined` lists it.
            text: The words that were reviewed, where that happened in another process: others are
                not approved. What this process has listed it compares by itself.
        """
        return self._writer.approve(namespace, key, text)

    @_sync
    def quarantined(self, namespace: Namespace) -> Plan[list[Memory]]:
        """Memories at or below a namespace that wait for approval, whole or in part (masked).

        The guard's reasons are in `memory.value["quarantine"]["reasons"]`, what it objects to is in
        `["spans"]`: start, end, rule and severity of each.
        """
        return self._writer.quarantined(namespace)

    @_sync
    def feedback(
        self, namespace: Namespace, key: str | Sequence[str], good: bool = True
    ) -> Plan[None]:
        """Tell what came of using a memory, or several: each step moves its score a little.

        Steps count from -5 to 5 in all; `RecallPolicy.feedback_step` says how much one is worth.
        Nothing is read or written here: outcomes are written behind, like uses, and handed to
        `traces` where that takes feedback.
        """
        keys = [key] if isinstance(key, str) else list(key)
        self._writer.feedback(namespace, keys, good)
        for name in keys:
            self._tell_traces("feedback", "An outcome", namespace, name, good)
        yield from ()

    def _tell_traces(self, method: str, what: str, *about: Any) -> None:
        """Hand something to `traces`, where that takes it; a fault of the sink stays there."""
        forward = getattr(self._traces, method, None)
        try:
            if forward is not None:
                forward(*about)
        except Exception as fault:
            logger.warning("%s could not be handed to traces: %s", what, described(fault))

    @_sync
    def forget(
        self, namespace: Namespace, key: str, *, source: Source = "user_stated"
    ) -> Plan[bool]:
        """Delete a memory with its history, vectors, words and usage.

        A store's file may keep deleted bytes until it is rewritten: `compact()` of a LocalStore.

        Args:
            namespace: Whose memory it is.
            key: Its key.
            source: Who wants it forgotten. One that is less trusted than the memory only proposes
                it: `quarantined` lists the proposal, and `confirm` carries it out.

        Returns:
            Whether it was deleted: False when there was none, or it was only proposed.
        """
        gone = yield from self._writer.forget(namespace, key, source)
        if gone is not None:
            yield from self._erase_traces(namespace, key)
        return bool(gone)

    @_sync
    def history(self, namespace: Namespace, key: str) -> Plan[list[Memory]]:
        """A memory and the values it had before, newest first, each with its time and source."""
        return self._writer.history(namespace, key)

    @_sync
    def sweep(
        self,
        namespace: Namespace,
        *,
        apply: bool = False,
        steps: Sequence[Step] = STEPS,
        cold_after: timedelta | None = None,
        purge_history_before: datetime | None = None,
        limit: int = 1_000,
        after: int | None = None,
    ) -> Plan[SweepReport]:
        """Say what is to become of the memories at or below a namespace, and do it if asked to.

        Args:
            namespace: Whose memories.
            apply: False: a dry run that changes nothing.
            steps: "expire" removes what is past `valid_until`, and proposes to where it is the
                user's own words; "decay" removes unconfirmed inferences that 0.05 a week have
                brought below 0.3, unless they were cited or used within the policy's half-life;
                "merge" makes one of near-duplicates and keeps the provenance of all.
            cold_after: List what was neither used nor written for so long, coldest first, by the
                signals that recall uses. It is never deleted.
            purge_history_before: Delete what was superseded before then.
            limit: Memories that one call looks at.
            after: The `next` of a report, to go on where it stopped.

        Returns:
            What was done, or would be, to which memory and why.
        """
        policy = self._reader.policy_at(namespace, None)
        return self._upkeep.sweep(
            namespace, policy, apply, steps, cold_after, purge_history_before, limit, after
        )

    @_sync
    def forget_namespace(self, namespace: Namespace) -> Plan[Forgotten]:
        """Delete everything at or below a namespace: memories, history, vectors, usage, verdicts.

        Whatever the side-car holds about it goes too. A LocalStore is then compacted, so that no
        byte of it is left in the file.
        """
        forgotten = yield from self._upkeep.forget_namespace(namespace)
        yield from self._erase_traces(namespace)
        return forgotten

    # --- life cycle -------------------------------------------------------------------------

    def setup(self, distribute: bool | None = None) -> Any:
        """Set the inner store up, where it needs that; returns what it returns.

        On Postgres also the tables of our own; to be awaited where the inner one is. Any number of
        processes may call it, at any time.

        Args:
            distribute: True distributes all tables by namespace, on a database with Citus. None
                leaves them where they are; those that a new version adds go where `store` is.
        """
        set_up = getattr(self._inner, "setup", None)
        prepared = self._host.perform(Call(set_up)) if set_up else None
        plan = self._make_tables(prepared, distribute)
        return arun(plan, self._host) if isawaitable(prepared) else run(plan, self._host)

    async def asetup(self, distribute: bool | None = None) -> Any:
        """The async twin of `setup`."""
        set_up = getattr(self._inner, "setup", None)
        prepared = await self._host.aperform(Call(set_up)) if set_up else None
        return await arun(self._make_tables(prepared, distribute), self._host)

    def _make_tables(self, prepared: Any, distribute: bool | None) -> Plan[Any]:
        """What we keep in a database besides memories, once the inner store is set up."""
        if isawaitable(prepared):
            waiting = prepared
            prepared = yield Call(lambda: None, lambda: waiting)
        yield from self._backend.set_up(distribute)
        if self._sidecar is not self._backend:
            yield from self._sidecar.set_up(distribute if self._sidecar.makes_tables else None)
        return prepared

    @property
    def needs_loop(self) -> bool:
        """Whether usage can only be written while the store's event loop runs: then `aclose`."""
        return self._sidecar.needs_loop

    @_sync
    def flush(self) -> Plan[int]:
        """Write pending usage now; returns how many memories it concerned."""
        return (yield from self._ledger.flush()) if self._ledger.has_pending else 0

    @_sync
    def close(self) -> Plan[None]:
        """Write what is pending and stop writing behind; the inner store stays open."""
        self._flusher.stop()
        if self._ledger.has_pending:
            yield from self._ledger.flush()

    # --- the async twins ---------------------------------------------------------------------

    aget, aput, adelete = _async(get), _async(put), _async(delete)
    asearch, abatch = _async(search), _async(batch)
    arecall, aset_policy, apolicy_for = _async(recall), _async(set_policy), _async(policy_for)
    amemories, asecret, aexplain = _async(memories), _async(secret), _async(explain)
    aremember, acorrect, aphrase = _async(remember), _async(correct), _async(phrase)
    aconfirm, aapprove, aquarantined = _async(confirm), _async(approve), _async(quarantined)
    afeedback, aforget, ahistory = _async(feedback), _async(forget), _async(history)
    asweep, aforget_namespace, aflush = _async(sweep), _async(forget_namespace), _async(flush)
    aclose = _async(close)

    def _with_source(self, op: OpT) -> OpT:
        """A put of a value without a source with the one that was chosen for such; others as is."""
        if not isinstance(op, PutOp) or self._default_source is None:
            return op
        value = op.value
        if not isinstance(value, dict) or "source" in value or content_of(value) is value:
            return op
        return op._replace(value={**value, "source": self._default_source})

    def _before_puts(self, puts: Sequence[PutOp]) -> Plan[None]:
        stored = [op for op in puts if op.value is not None]
        for op in stored:
            check_value(op.value)
        if any(op.index is not False for op in stored):
            yield from self._backend.check_vectors()
        if stored:
            yield from self._writer.judge_puts(stored)
        if len(stored) < len(puts):
            deleted = [(op.namespace, op.key) for op in puts if op.value is None]
            yield from self._writer.forget_stand_ins(deleted)

    def _erase_traces(self, *what: Any) -> Plan[None]:
        """Recorded traces forget too, where they can."""
        erase = getattr(self._traces, "erase", None)
        if erase is not None:
            yield Call(lambda: erase(*what))
