from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from langchain_core.embeddings import Embeddings
from langgraph.store.base import (
    BaseStore,
    GetOp,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchOp,
)
from langgraph.store.memory import InMemoryStore

from langmem_recall.flows.effects import Call, Embed, Host, Ops, Plan, arun, run

SPACE = ("u",)


class RecordingStore(BaseStore):
    """A store that notes by which method each operation came."""

    supports_ttl = True

    def __init__(self) -> None:
        self.inner = InMemoryStore()
        self.calls: list[tuple[str, Any]] = []

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        held = list(ops)
        self.calls.append(("batch", held))
        return self.inner.batch(held)

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        held = list(ops)
        self.calls.append(("abatch", held))
        return await self.inner.abatch(held)

    async def aget(self, namespace, key, **options):
        self.calls.append(("aget", (namespace, key, options)))
        return await self.inner.aget(namespace, key)

    async def asearch(self, namespace_prefix, /, **options):
        self.calls.append(("asearch", (namespace_prefix, options)))
        return await self.inner.asearch(namespace_prefix, limit=options["limit"])

    async def aput(self, namespace, key, value, index=None, *, ttl=None):
        self.calls.append(("aput", (namespace, key, value, index, ttl)))
        await self.inner.aput(namespace, key, value)

    async def adelete(self, namespace, key):
        self.calls.append(("adelete", (namespace, key)))
        await self.inner.adelete(namespace, key)

    async def alist_namespaces(self, **options):
        self.calls.append(("alist_namespaces", options))
        return await self.inner.alist_namespaces(**options)


class RecordingEmbeddings(Embeddings):
    """The length of a text as its vector; notes which method was asked."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []

    def embed_query(self, text: str) -> list[float]:
        self.calls.append(("query", text))
        return [float(len(text))]

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.calls.append(("documents", texts))
        return [[float(len(text)), 1.0] for text in texts]


@pytest.fixture
def host() -> Host:
    return Host(RecordingStore(), RecordingStore(), RecordingEmbeddings())


Driver = Callable[[Plan[Any], Host], Any]


@pytest.fixture(params=["run", "arun"])
def drive(request) -> Driver:
    if request.param == "run":
        return run
    return lambda plan, host: asyncio.run(arun(plan, host))


def put(key: str, **value: Any) -> PutOp:
    return PutOp(SPACE, key, value)


def test_plan_without_effects_returns_its_result(drive, host):
    def plan() -> Plan[str]:
        return "done"
        yield Ops([])

    assert drive(plan(), host) == "done"


def test_answers_come_in_the_order_of_the_operations(drive, host):
    def plan() -> Plan[list[Any]]:
        written = yield Ops([put("a", n=1), put("b", n=2), put("c", n=3)])
        found = yield Ops([GetOp(SPACE, key) for key in ("c", "missing", "a", "b")])
        return [written, [item and item.value["n"] for item in found]]

    assert drive(plan(), host) == [[None, None, None], [3, None, 1, 2]]


def test_effects_are_carried_out_one_after_the_other(drive, host):
    seen: list[str] = []

    def plan() -> Plan[list[str]]:
        for name in ("first", "second", "third"):
            seen.append(name)
            answer = yield Call(lambda name=name: f"{name} done")
            seen.append(answer)
        return seen

    assert drive(plan(), host) == [
        *("first", "first done", "second", "second done", "third", "third done")
    ]


def test_no_operations_give_no_results_and_reach_no_store(drive, host):
    def plan() -> Plan[Any]:
        return (yield Ops([]))

    assert drive(plan(), host) == []
    assert host.store.calls == []


def test_no_operations_of_a_callers_batch_give_no_results(drive, host):
    def plan() -> Plan[Any]:
        return (yield Ops([], as_batch=True))

    assert drive(plan(), host) == []


@pytest.mark.parametrize(
    "effect",
    [
        Call(lambda: 1 / 0),
        Ops([put("a")]),
        Ops([put("a")], sidecar=True),
        Ops([put("a")], as_batch=True),
        Embed(["a"]),
        Embed(["a"], as_queries=False),
    ],
    ids=["call", "operations", "side-car", "batch", "queries", "documents"],
)
def test_error_of_an_effect_can_be_caught_in_the_plan(drive, effect):
    class Broken(BaseStore, Embeddings):
        def batch(self, ops):
            raise ZeroDivisionError

        async def abatch(self, ops):
            raise ZeroDivisionError

        def embed_query(self, text):
            raise ZeroDivisionError

        def embed_documents(self, texts):
            raise ZeroDivisionError

    broken = Broken()

    def plan() -> Plan[str]:
        try:
            yield effect
        except ZeroDivisionError:
            answer = yield Call(lambda: "went on")
            return f"caught and {answer}"
        return "nothing thrown"

    assert drive(plan(), Host(broken, broken, broken)) == "caught and went on"


def test_error_that_the_plan_does_not_catch_reaches_the_caller(drive, host):
    tidied: list[str] = []

    def plan() -> Plan[None]:
        try:
            yield Call(lambda: {}["missing"])
        finally:
            tidied.append("yes")

    with pytest.raises(KeyError, match="missing"):
        drive(plan(), host)
    assert tidied == ["yes"]


def test_second_error_is_thrown_like_the_first(drive, host):
    def plan() -> Plan[list[str]]:
        caught = []
        for divisor in (0, 1, 0):
            try:
                yield Call(lambda divisor=divisor: 1 / divisor)
            except ZeroDivisionError:
                caught.append(f"by {divisor}")
        return caught

    assert drive(plan(), host) == ["by 0", "by 0"]


def test_error_made_in_the_plan_reaches_the_caller(drive, host):
    def plan() -> Plan[None]:
        yield Call(lambda: None)
        raise LookupError("from the plan")

    with pytest.raises(LookupError, match="from the plan"):
        drive(plan(), host)


def test_plan_within_a_plan_is_driven_too(drive, host):
    def inner(key: str) -> Plan[Any]:
        (item,) = yield Ops([GetOp(SPACE, key)])
        return item.value["n"]

    def outer() -> Plan[int]:
        yield Ops([put("a", n=2), put("b", n=3)])
        one = yield from inner("a")
        other = yield from inner("b")
        return one * other

    assert drive(outer(), host) == 6


def test_side_car_is_another_store(drive, host):
    def plan() -> Plan[Any]:
        yield Ops([put("a", n=1)], sidecar=True)
        memory = yield Ops([GetOp(SPACE, "a")])
        usage = yield Ops([GetOp(SPACE, "a")], sidecar=True)
        return memory[0], usage[0].value

    assert drive(plan(), host) == (None, {"n": 1})
    assert len(host.store.calls) == 1
    assert len(host.sidecar.calls) == 2


MIXED = [
    PutOp(SPACE, "a", {"n": 1}, index=["n"], ttl=5.0),
    PutOp(SPACE, "b", None),
    GetOp(SPACE, "a", refresh_ttl=False),
    SearchOp(SPACE, {"n": 1}, 7, 2, "tea", False),
    ListNamespacesOp(
        (MatchCondition("prefix", ("u",)), MatchCondition("suffix", ("x",))), 3, limit=5, offset=1
    ),
]


def test_sync_driver_sends_one_batch(host):
    def plan() -> Plan[Any]:
        return (yield Ops(MIXED))

    run(plan(), host)

    assert host.store.calls == [("batch", MIXED)]


def test_async_driver_calls_the_methods_of_the_same_names(host):
    def plan() -> Plan[Any]:
        return (yield Ops(MIXED))

    asyncio.run(arun(plan(), host))

    assert host.store.calls == [
        ("aput", (SPACE, "a", {"n": 1}, ["n"], 5.0)),
        ("adelete", (SPACE, "b")),
        ("aget", (SPACE, "a", {"refresh_ttl": False})),
        (
            "asearch",
            (
                SPACE,
                {
                    "query": "tea",
                    "filter": {"n": 1},
                    "limit": 7,
                    "offset": 2,
                    "refresh_ttl": False,
                },
            ),
        ),
        (
            "alist_namespaces",
            {"prefix": ("u",), "suffix": ("x",), "max_depth": 3, "limit": 5, "offset": 1},
        ),
    ]


def test_listing_that_no_method_can_say_goes_as_a_batch(host):
    twice = ListNamespacesOp((MatchCondition("prefix", ("u",)), MatchCondition("prefix", ("v",))))

    def plan() -> Plan[Any]:
        return (yield Ops([twice]))

    assert asyncio.run(arun(plan(), host)) == [[]]
    assert host.store.calls == [("abatch", [twice])]


@pytest.mark.parametrize("method", ["batch", "abatch"])
def test_batch_of_a_caller_stays_a_batch(host, method):
    ops = [GetOp(SPACE, "a"), put("a", n=1)]

    def plan() -> Plan[Any]:
        return (yield Ops(ops, as_batch=True))

    found = run(plan(), host) if method == "batch" else asyncio.run(arun(plan(), host))

    assert found == [None, None]
    assert host.store.calls == [(method, ops)]


def test_queries_are_embedded_one_by_one(drive, host):
    def plan() -> Plan[Any]:
        return (yield Embed(["tea", "green"]))

    assert drive(plan(), host) == [[3.0], [5.0]]
    assert sorted(host.embeddings.calls) == [("query", "green"), ("query", "tea")]


def test_documents_are_embedded_together(drive, host):
    def plan() -> Plan[Any]:
        return (yield Embed(("tea", "green"), as_queries=False))

    assert drive(plan(), host) == [[3.0, 1.0], [5.0, 1.0]]
    assert host.embeddings.calls == [("documents", ["tea", "green"])]


def test_embedding_without_an_embedder_says_so(drive):
    def plan() -> Plan[Any]:
        return (yield Embed(["tea"]))

    with pytest.raises(LookupError, match="no embedder"):
        drive(plan(), Host(InMemoryStore(), InMemoryStore()))


def identify() -> Plan[int]:
    return (yield Call(threading.get_ident))


def test_call_stays_in_its_thread_under_the_sync_driver(host):
    assert run(identify(), host) == threading.get_ident()


def test_call_leaves_the_event_loop_under_the_async_driver(host):
    async def both() -> tuple[int, int]:
        return await arun(identify(), host), threading.get_ident()

    worker, loop = asyncio.run(both())
    assert worker != loop


def test_operations_of_one_effect_run_together_under_the_async_driver():
    """Each of two reads waits until the other has begun: in a row they would never end."""

    class Meeting(RecordingStore):
        def __init__(self) -> None:
            super().__init__()
            self.barrier: asyncio.Barrier | None = None

        async def aget(self, namespace, key, **options):
            self.barrier = self.barrier or asyncio.Barrier(2)
            await self.barrier.wait()
            return key

    def plan() -> Plan[Any]:
        return (yield Ops([GetOp(SPACE, "a"), GetOp(SPACE, "b")]))

    store = Meeting()

    assert asyncio.run(arun(plan(), Host(store, store))) == ["a", "b"]


class TornStore(InMemoryStore):
    """Reads that are interrupted a few times by a write of another thread."""

    def __init__(self, times: int, message: str) -> None:
        super().__init__()
        self.left, self.message = times, message

    def _filter_items(self, op: SearchOp) -> Any:
        self.left -= 1
        if self.left >= 0:
            raise RuntimeError(self.message)
        return super()._filter_items(op)


TORN = "dictionary changed size during iteration"


@pytest.mark.parametrize(
    ("times", "message", "as_batch", "is_read"),
    [
        (3, TORN, False, True),
        (3, TORN, True, True),
        (4, TORN, False, False),
        (1, "no", True, False),
    ],
)
def test_reads_that_a_write_of_another_thread_interrupts_are_sent_again(
    drive: Callable[..., Any], times: int, message: str, as_batch: bool, is_read: bool
) -> None:
    store = TornStore(times, message)
    store.put(SPACE, "a", {"text": "tea"})

    def plan() -> Plan[list[str]]:
        (found,) = yield Ops([SearchOp(SPACE)], as_batch=as_batch)
        return [item.key for item in found]

    if is_read:
        assert drive(plan(), Host(store, store)) == ["a"]
    else:
        with pytest.raises(RuntimeError, match=message):
            drive(plan(), Host(store, store))
