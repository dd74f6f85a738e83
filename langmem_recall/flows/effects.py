"""Plans are generators of effects; `run` and `arun` carry the effects out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from langchain_core.embeddings import Embeddings
from langgraph.store.base import BaseStore, GetOp, ListNamespacesOp, Op, PutOp, SearchOp

from langmem_recall.deadline import Deadline, waiting_for

T = TypeVar("T")


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


@dataclass(frozen=True, slots=True)
class Call:
    """A function that may touch files or take its time; the answer is what it returns."""

    function: Callable[[], Any]
    coroutine: Callable[[], Awaitable[Any]] | None = None
    """The same for the event loop; None: the function in a thread."""
    limit: Deadline | None = None
    """How long to wait for it; past that the plan gets an error and goes on."""

    def perform(self) -> Any:
        """Make the call and wait for it."""
        return self.function() if self.limit is None else self.limit.run(self.function)

    async def aperform(self) -> Any:
        """Make the call without blocking the event loop."""
        call = self.coroutine or partial(asyncio.to_thread, self.function)
        return await (call() if self.limit is None else self.limit.arun(call))


Effect = Ops | Embed | Call
Plan = Generator[Effect, Any, T]


@dataclass(frozen=True, slots=True)
class Host:
    """Where effects are carried out."""

    store: BaseStore
    sidecar: BaseStore
    embeddings: Embeddings | None = None
    recover: Callable[[Effect, Exception], Plan[Any]] | None = None
    """Another way to an effect that failed; raises what callers are to see where there is none."""
    records: Callable[[Ops], Plan[list[Any]]] | None = None
    """Where the side-car is kept instead of in items of its store."""

    def perform(self, effect: Effect) -> Any:
        """Carry one effect out and wait for it."""
        waiting_for("the embedder" if isinstance(effect, Embed) else "the store")
        try:
            if isinstance(effect, Ops):
                if effect.sidecar and self.records is not None:
                    return run(self.records(effect), replace(self, records=None))
                store = self.sidecar if effect.sidecar else self.store
                return store.batch(list(effect.ops)) if effect.ops else []
            if isinstance(effect, Call):
                return effect.perform()
            embeddings = _needed(self.embeddings)
            if effect.as_queries:
                return [embeddings.embed_query(text) for text in effect.texts]
            return embeddings.embed_documents(list(effect.texts))
        except Exception as error:
            if self.recover is None:
                raise
            plan = self.recover(effect, error)
        return run(plan, replace(self, recover=None))

    async def aperform(self, effect: Effect) -> Any:
        """Carry one effect out without blocking the event loop."""
        waiting_for("the embedder" if isinstance(effect, Embed) else "the store")
        try:
            if isinstance(effect, Ops):
                if effect.sidecar and self.records is not None:
                    return await arun(self.records(effect), replace(self, records=None))
                store = self.sidecar if effect.sidecar else self.store
                if effect.as_batch and effect.ops:
                    return await store.abatch(list(effect.ops))
                return list(await asyncio.gather(*(_asend(store, op) for op in effect.ops)))
            if isinstance(effect, Call):
                return await effect.aperform()
            embeddings = _needed(self.embeddings)
            if effect.as_queries:
                queries = (embeddings.aembed_query(text) for text in effect.texts)
                return await asyncio.gather(*queries)
            return await embeddings.aembed_documents(list(effect.texts))
        except Exception as error:
            if self.recover is None:
                raise
            plan = self.recover(effect, error)
        return await arun(plan, replace(self, recover=None))


class Calls:
    """Where plans are carried out that only make calls."""

    perform = staticmethod(Call.perform)
    aperform = staticmethod(Call.aperform)


CALLS = Calls()


def run(plan: Generator[Any, Any, T], host: Host | Calls) -> T:
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


async def arun(plan: Generator[Any, Any, T], host: Host | Calls) -> T:
    """The same, awaiting each effect."""
    answer: Any = None
    error: Exception | None = None
    try:
        while True:
            effect = plan.send(answer) if error is None else plan.throw(error)
            answer = error = None
            try:
                answer = await host.aperform(effect)
            except Exception as fault:
                error = fault
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    finally:
        # Cancelled or interrupted between two effects, a plan still lets go of what it holds.
        plan.close()


def _needed(embeddings: Embeddings | None) -> Embeddings:
    if embeddings is None:
        raise LookupError("The store has no embedder, so nothing can be embedded.")
    return embeddings


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
