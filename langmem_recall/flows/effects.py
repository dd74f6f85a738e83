"""Plans are generators of effects; `run` and `arun` carry the effects out."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

from langchain_core.embeddings import Embeddings
from langgraph.store.base import BaseStore, GetOp, ListNamespacesOp, Op, PutOp, SearchOp
from langgraph.store.base.batch import AsyncBatchedBaseStore

from langmem_recall.deadline import (
    MOST_HUNG,
    CallProgress,
    Deadline,
    Gate,
    Pending,
    TooLate,
    detached,
    limited,
    start,
    start_task,
    waiting_for,
)

T = TypeVar("T")

MOST_TEXTS, TEXT_AGE_S = 128, 60.0
"""Cues whose vectors are kept, and for how long: about a turn with its tool calls."""
MOST_EMBEDDING = 32
"""Turns that wait for the embedder at a time."""
MOST_TORN = 3
"""Times that operations are sent again which another thread's write has interrupted."""
MOST_AT_A_TIME = 32
"""Effects of turns that a store carries out at a time, where nothing else is known of it."""


@dataclass(frozen=True, slots=True)
class Ops:
    """Store operations, carried out together; the answer is the list of their results."""

    ops: Sequence[Op]
    sidecar: bool = False
    """Whether they go to the store that holds usage rather than to the one with memories."""
    as_batch: bool = False
    """Whether they are a caller's own batch, whose reads come before its writes."""
    exact: bool = False
    """Whether searches are for their namespace alone; a store may give what lies below it too."""


@dataclass(frozen=True, slots=True)
class Embed:
    """Texts to embed; the answer is a list of vectors."""

    texts: Sequence[str]
    as_queries: bool = True
    """Each in a request of its own, as a query; else all in one, as documents."""


@dataclass(frozen=True, slots=True)
class Call:
    """A function that may touch files or take its time; the answer is what it returns."""

    function: Callable[[], Any]
    coroutine: Callable[[], Awaitable[Any]] | None = None
    """The same for the event loop; None: the function in a thread."""
    limit: Deadline | None = None
    """How long to wait for it; past that the plan gets an error and goes on."""
    is_pause: bool = False
    """Whether it only waits for another call of ours, for which it must make room."""

    def perform(self) -> Any:
        """Make the call and wait for it."""
        return self.function() if self.limit is None else self.limit.run(self.function)

    async def aperform(self) -> Any:
        """Make the call without blocking the event loop."""
        call = self.coroutine or partial(_in_thread, self.function)
        return await (call() if self.limit is None else self.limit.arun(call))


def pause(seconds: float = 0.002) -> Call:
    """A moment, for what another call of ours is doing."""
    return Call(partial(time.sleep, seconds), partial(asyncio.sleep, seconds), is_pause=True)


@dataclass(frozen=True, slots=True)
class Detach:
    """A plan that goes on whatever becomes of this one; the answer is what `Await` takes."""

    plan: Plan[Any]


@dataclass(frozen=True, slots=True)
class Await:
    """What was begun before; the answer is its own."""

    pending: Pending


Effect = Ops | Embed | Call | Detach | Await
Plan = Generator[Effect, Any, T]


async def _in_thread(function: Callable[[], T]) -> T:
    # Not the loop's own executor, whose few threads a store that hangs would take from others.
    call = partial(contextvars.copy_context().run, function)
    return await asyncio.wrap_future(start(call))


class _Embedded(NamedTuple):
    """Where the vector of a text is, or will be."""

    answer: Pending
    place: int
    asked_at: float


class _Late:
    """Calls that turns went on without: where many still hang, no further one is made."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: list[Pending] = []

    def check(self) -> None:
        """`TooLate` where another call would only hang like the others."""
        with self._lock:
            self._calls = [call for call in self._calls if not call.done()]
            if len(self._calls) >= MOST_HUNG:
                raise TooLate(f"{MOST_HUNG} earlier calls are still without an answer")

    def add(self, calls: Sequence[Pending]) -> None:
        with self._lock:
            self._calls += calls


class Vectors:
    """What turns have lately had embedded, by text; answers that are under way among them.

    One that came too late for its turn serves the next call that asks for the same text.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._texts: OrderedDict[tuple[str, bool], _Embedded] = OrderedDict()
        self._late = _Late()

    def ask(self, embed: Embed, begin: Callable[[list[str]], Pending]) -> list[_Embedded]:
        """Where the vectors are; requests are made for those that nobody has asked for."""
        with self._lock:
            now = time.monotonic()
            missing = [one for one in dict.fromkeys(embed.texts) if not self._has(embed, one, now)]
            if missing:
                self._late.check()
            groups = [[text] for text in missing] if embed.as_queries else [missing]
            for group in filter(None, groups):
                answer = begin(group)
                for place, text in enumerate(group):
                    self._texts[text, embed.as_queries] = _Embedded(answer, place, now)
            found = [self._texts[text, embed.as_queries] for text in embed.texts]
            while len(self._texts) > MOST_TEXTS:
                self._texts.popitem(last=False)
            return found

    def note_late(self, asked: Sequence[_Embedded], progress: CallProgress) -> None:
        """The call goes on without these; whoever made it is told what to look out for."""
        late = list({id(one.answer): one.answer for one in asked}.values())
        progress.late += late
        self._late.add(late)

    def _has(self, embed: Embed, text: str, now: float) -> bool:
        known = self._texts.get((text, embed.as_queries))
        if known is None or now - known.asked_at > TEXT_AGE_S:
            return False
        try:
            # An embedder that failed, or answered with something else, is asked again.
            return not known.answer.done() or len(known.answer.result()[known.place]) > 0
        except Exception:
            return False


@dataclass(frozen=True, slots=True)
class Host:
    """Where effects are carried out.

    Those of a turn line up before the store, so that no more are under way than help, and what
    the turn can do without is given up before its time is.
    """

    store: BaseStore
    sidecar: BaseStore
    embeddings: Embeddings | None = None
    recover: Callable[[Effect, Exception], Plan[Any]] | None = None
    """Another way to an effect that failed; raises what callers are to see where there is none."""
    gate: Gate = field(default_factory=partial(Gate, MOST_AT_A_TIME))
    embedding: Gate = field(default_factory=partial(Gate, MOST_EMBEDDING))
    vectors: Vectors = field(default_factory=Vectors)
    late: _Late = field(default_factory=_Late)
    in_thread: tuple[type, ...] = ()
    """Effects that are carried out in a thread in any case, so that a loop has no part in them."""
    records: Callable[[Ops], Plan[list[Any]]] | None = None
    """Where the side-car is kept instead of in items of its store."""

    def perform(self, effect: Effect) -> Any:
        """Carry one effect out and wait for it."""
        progress = limited()
        if isinstance(effect, Detach):
            call = partial(detached().run, run, effect.plan, self)
            # Outside a turn here and now: in another thread a store that lives in this one's event
            # loop would be waited for for ever.
            return Pending(start(call) if progress else _done(call))
        if isinstance(effect, Await):
            return effect.pending.wait(progress.part_patience if progress else _for_ever)
        waiting_for("the embedder" if isinstance(effect, Embed) else "the store")
        try:
            if isinstance(effect, Ops) and effect.sidecar and self.records is not None:
                return run(self.records(effect), replace(self, records=None))
            return self._perform(effect) if progress is None else self._in_turn(effect, progress)
        except Exception as error:
            if self.recover is None:
                raise
            plan = self.recover(effect, error)
        return run(plan, replace(self, recover=None))

    async def aperform(self, effect: Effect) -> Any:
        """Carry one effect out without blocking the event loop."""
        progress = limited()
        if isinstance(effect, Detach):
            task = start_task(partial(arun, effect.plan, self), detached())
            if progress is None:
                await asyncio.wait([task])
            return Pending(task)
        if isinstance(effect, Await):
            return await effect.pending.awaited(progress.part_patience if progress else _for_ever)
        waiting_for("the embedder" if isinstance(effect, Embed) else "the store")
        try:
            if isinstance(effect, Ops) and effect.sidecar and self.records is not None:
                return await arun(self.records(effect), replace(self, records=None))
            if progress is None:
                return await self._aperform(effect)
            return await self._ain_turn(effect, progress)
        except Exception as error:
            if self.recover is None:
                raise
            plan = self.recover(effect, error)
        return await arun(plan, replace(self, recover=None))

    def _in_turn(self, effect: Effect, progress: CallProgress) -> Any:
        """Carry an effect out in its place in the queue, and no longer than it may take."""
        if isinstance(effect, Embed):
            return self._embed(effect, progress)
        if isinstance(effect, Call) and effect.is_pause:
            progress.step_aside()
            return effect.perform()
        with self._line(effect).enter(progress):
            if not progress.is_part:
                return self._perform(effect)
            # The rest of the plan goes on without it when it takes too long.
            self.late.check()
            call = partial(contextvars.copy_context().run, self._perform, effect)
            pending = Pending(start(call))
            try:
                return pending.wait(progress.part_patience)
            except TooLate:
                self.late.add([pending])
                raise

    async def _ain_turn(self, effect: Effect, progress: CallProgress) -> Any:
        """The same without blocking the event loop."""
        if isinstance(effect, Embed):
            return await self._aembed(effect, progress)
        if isinstance(effect, Call) and effect.is_pause:
            progress.step_aside()
            return await effect.aperform()
        async with self._line(effect).aenter(progress):
            if not progress.is_part:
                return await self._aperform(effect)
            self.late.check()
            context = contextvars.copy_context()
            pending = Pending(start_task(partial(self._aperform, effect), context))
            try:
                return await pending.awaited(progress.part_patience)
            except TooLate:
                self.late.add([pending])
                raise

    def runs_in_thread(self, effect: Effect) -> bool:
        """Whether an effect of a turn needs no loop; then nor does what the plan does with it."""
        is_plain = isinstance(effect, Call) and effect.coroutine is None and effect.limit is None
        return is_plain or isinstance(effect, self.in_thread)

    def _line(self, effect: Effect) -> Gate:
        # What has a limit of its own is no store.
        is_other = isinstance(effect, Embed) or (isinstance(effect, Call) and effect.limit)
        return self.embedding if is_other and not isinstance(effect, self.in_thread) else self.gate

    def _perform(self, effect: Effect) -> Any:
        if isinstance(effect, Ops):
            store = self.sidecar if effect.sidecar else self.store
            loop = store._loop if isinstance(store, AsyncBatchedBaseStore) else None
            if loop and not effect.as_batch and asyncio._get_running_loop() is not loop:
                # Through its queue as well: beside it, reads that refresh times dead-lock.
                return asyncio.run_coroutine_threadsafe(self._aperform(effect), loop).result()
            for _ in range(MOST_TORN if effect.ops else 0):
                with _passing_over_torn():
                    return store.batch(list(effect.ops))
            return store.batch(list(effect.ops)) if effect.ops else []
        if isinstance(effect, Embed):
            embeddings = _needed(self.embeddings)
            if effect.as_queries:
                return [embeddings.embed_query(text) for text in effect.texts]
            return embeddings.embed_documents(list(effect.texts))
        assert isinstance(effect, Call)
        return effect.perform()

    async def _aperform(self, effect: Effect) -> Any:
        if isinstance(effect, Ops):
            store = self.sidecar if effect.sidecar else self.store
            for _ in range(MOST_TORN if effect.ops else 0):
                with _passing_over_torn():
                    return await _asend_all(store, effect)
            return await _asend_all(store, effect)
        if isinstance(effect, Embed):
            embeddings = _needed(self.embeddings)
            if effect.as_queries:
                queries = (embeddings.aembed_query(text) for text in effect.texts)
                return await asyncio.gather(*queries)
            return await embeddings.aembed_documents(list(effect.texts))
        assert isinstance(effect, Call)
        return await effect.aperform()

    def _embed(self, embed: Embed, progress: CallProgress) -> list[Any]:
        def begin(texts: list[str]) -> Pending:
            return Pending(
                start(partial(detached().run, self._perform, replace(embed, texts=texts)))
            )

        with self._line(embed).enter(progress):
            asked = self.vectors.ask(embed, begin)
            try:
                for one in asked:
                    one.answer.wait(progress.part_patience)
            except TooLate:
                self.vectors.note_late(asked, progress)
                raise
        return [one.answer.result()[one.place] for one in asked]

    async def _aembed(self, embed: Embed, progress: CallProgress) -> list[Any]:
        def begin(texts: list[str]) -> Pending:
            call = partial(self._aperform, replace(embed, texts=texts))
            return Pending(start_task(call, detached()))

        async with self._line(embed).aenter(progress):
            asked = self.vectors.ask(embed, begin)
            try:
                for one in asked:
                    await one.answer.awaited(progress.part_patience)
            except TooLate:
                self.vectors.note_late(asked, progress)
                raise
        return [one.answer.result()[one.place] for one in asked]


def _for_ever() -> float:
    return float("inf")


def _done(call: Callable[[], Any]) -> Future[Any]:
    """A call made here and now."""
    answer: Future[Any] = Future()
    try:
        answer.set_result(call())
    except Exception as error:
        answer.set_exception(error)
    return answer


CALLS = Call
"""Where plans are carried out that only make calls: each carries itself out."""


def run(plan: Generator[Any, Any, T], host: Host | type[Call]) -> T:
    """Drive a plan to its result: one effect per yield, its errors thrown back into the plan."""
    answer: Any = None
    error: Exception | None = None
    try:
        while True:
            effect = plan.send(answer) if error is None else plan.throw(error)
            answer = error = None
            try:
                answer = host.perform(effect)
            except Exception as fault:
                error = fault
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    finally:
        # Cancelled or interrupted between two effects, a plan still lets go of what it holds.
        plan.close()


async def arun(plan: Generator[Any, Any, T], host: Host | type[Call]) -> T:
    """The same, awaiting each effect.

    What needs no loop a thread carries out, and goes on with the plan until something does: where
    many turns share a loop, each way back to it is a wait.
    """
    answer: Any = None
    error: Exception | None = None
    try:
        while True:
            effect = plan.send(answer) if error is None else plan.throw(error)
            answer = error = None
            progress = limited()
            if progress is not None and isinstance(host, Host) and host.runs_in_thread(effect):
                async with host.gate.aenter(progress):
                    effect, result = await _in_thread(partial(_drive, plan, effect, host, progress))
                if effect is None:
                    return result  # type: ignore[no-any-return]
            try:
                answer = await host.aperform(effect)
            except Exception as fault:
                error = fault
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    finally:
        # A thread that is still at it closes the plan itself.
        with suppress(ValueError):
            plan.close()


def _drive(
    plan: Generator[Any, Any, Any], effect: Effect, host: Host, progress: CallProgress
) -> tuple[Effect | None, Any]:
    """Carry a plan on from an effect to the first that needs the loop, or None and its result."""
    try:
        while host.runs_in_thread(effect):
            try:
                answer, error = host.perform(effect), None
            except Exception as fault:
                answer, error = None, fault
            if progress.is_over:
                plan.close()
            effect = plan.send(answer) if error is None else plan.throw(error)
        return effect, None
    except StopIteration as done:
        return None, done.value
    finally:
        progress.step_aside()


def _needed(embeddings: Embeddings | None) -> Embeddings:
    if embeddings is None:
        raise LookupError("The store has no embedder, so nothing can be embedded.")
    return embeddings


@contextmanager
def _passing_over_torn() -> Iterator[None]:
    """Pass over what a store in memory raises when a thread of ours writes while it reads.

    All of it can be done again: a put that is repeated changes nothing.
    """
    try:
        yield
    except RuntimeError as error:
        if "during iteration" not in str(error):
            raise


async def _asend_all(store: BaseStore, effect: Ops) -> list[Any]:
    if effect.as_batch and effect.ops:
        return await store.abatch(list(effect.ops))
    return list(await asyncio.gather(*(_asend(store, op) for op in effect.ops)))


async def _asend(store: BaseStore, op: Op) -> Any:
    """An operation as the same-named call, so that a store's own queue batches and orders it."""
    if isinstance(op, GetOp):
        return await store.aget(op.namespace, op.key, refresh_ttl=op.refresh_ttl)
    if isinstance(op, SearchOp):
        return await store.asearch(
            op.namespace_prefix,
            query=op.query,
            filter=op.filter,
            limit=op.limit,
            offset=op.offset,
            refresh_ttl=op.refresh_ttl,
        )
    if isinstance(op, PutOp):
        if op.value is None:
            return await store.adelete(op.namespace, op.key)
        return await store.aput(op.namespace, op.key, op.value, index=op.index, ttl=op.ttl)
    if isinstance(op, ListNamespacesOp):
        paths = {condition.match_type: condition.path for condition in op.match_conditions or ()}
        if len(paths) == len(op.match_conditions or ()):
            return await store.alist_namespaces(
                prefix=paths.get("prefix"),
                suffix=paths.get("suffix"),
                max_depth=op.max_depth,
                limit=op.limit,
                offset=op.offset,
            )
    return (await store.abatch([op]))[0]
