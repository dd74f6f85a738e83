"""Writing behind: tried again until it works, written on closing, never in the loop's way."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from bench import ADA, CUE, MEAL, SEAT, SLACK_S, threads_left
from conftest import Call, Clock
from faulty import HANG_S, INNER, Fault, FaultyEmbeddings
from tenacity import RetryCallState, Retrying, wait_fixed

from langmem_recall import Caching, RecallStore
from langmem_recall.stores import flusher

MEMORY = (ADA, "seat")


@pytest.fixture
def fault() -> Iterator[Fault]:
    """What hangs is released in the end, so that no thread outlives its test."""
    fault = Fault("raises")
    yield fault
    fault.lift()


@pytest.fixture(params=["local", "in memory"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flusher, "PATIENCE", wait_fixed(0.005))


def opened(kind: str, part: str, fault: Fault, **options: Any) -> RecallStore:
    """A store with a memory, of which one part fails on command."""
    embeddings = FaultyEmbeddings(fault if part == "embedder" else Fault("idle"))
    store = RecallStore(INNER[kind](part, fault, embeddings), clock=Clock(), **options)
    store.remember(ADA, SEAT, key="seat")
    return store


def until(is_so: Callable[[], bool]) -> bool:
    """Wait until something is so, at most as long as a hang."""
    waited = threading.Event()
    for _ in range(int(HANG_S / 0.005)):
        if is_so():
            return True
        waited.wait(0.005)
    return False


def test_closing_writes_what_is_pending_and_leaves_no_thread(
    kind: str, call: Call, fault: Fault
) -> None:
    before = threading.enumerate()
    store = opened(kind, "feedback", fault)
    store.recall(ADA, CUE)
    assert any(isinstance(thread, threading.Timer) for thread in threading.enumerate())
    assert store.inner.uses(MEMORY)[0] == 0
    call(store, "close")
    assert store.inner.uses(MEMORY)[0] == 1
    store.inner.close()
    assert threads_left(before) == []


async def test_closing_on_a_loop_leaves_no_task(kind: str, fault: Fault) -> None:
    store = opened(kind, "feedback", fault, caching=Caching(flush_interval=0.0))
    fault.strike()
    await store.afeedback(ADA, "seat")
    assert await asyncio.to_thread(fault.wait_for_hits, 1)
    fault.lift()
    await store.aclose()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    await asyncio.wait_for(asyncio.gather(*others, return_exceptions=True), SLACK_S)
    assert store.inner.uses(MEMORY) == (0, 1)
    assert asyncio.all_tasks() == {asyncio.current_task()}


def test_a_flush_that_fails_is_tried_again_until_it_works(
    kind: str, fault: Fault, impatient: None
) -> None:
    store = opened(kind, "feedback", fault, caching=Caching(flush_interval=0.005))
    store.recall(ADA, CUE, record=False)
    fault.strike()
    store.feedback(ADA, "seat")
    assert fault.wait_for_hits(3)
    assert store.inner.uses(MEMORY) == (0, 0)
    fault.lift()
    assert until(lambda: store.inner.uses(MEMORY) == (0, 1))
    store.close()
    assert store.inner.uses(MEMORY) == (0, 1)


async def test_a_flush_that_fails_on_a_loop_is_tried_again_until_it_works(
    kind: str, fault: Fault, impatient: None
) -> None:
    store = opened(kind, "feedback", fault, caching=Caching(flush_interval=0.005))
    fault.strike()
    await store.afeedback(ADA, "seat")
    assert await asyncio.to_thread(fault.wait_for_hits, 3)
    fault.lift()
    assert await asyncio.to_thread(until, lambda: store.inner.uses(MEMORY) == (0, 1))
    await store.aclose()
    assert store.inner.uses(MEMORY) == (0, 1)


def test_one_thread_tries_again_however_much_there_is_to_write(
    fault: Fault, impatient: None
) -> None:
    before = threading.enumerate()
    store = opened("local", "feedback", fault, caching=Caching(flush_interval=0.0))
    fault.strike()
    for _ in range(20):
        store.feedback(ADA, "seat")
        assert fault.wait_for_hits(1)
    assert len([one for one in threading.enumerate() if one not in before]) <= 1
    fault.lift()
    store.close()
    # From -5 to 5 in all.
    assert store.inner.uses(MEMORY) == (0, 5)


def test_what_comes_while_a_flush_is_under_way_is_written_too(
    fault: Fault, impatient: None
) -> None:
    fault.kind = "hangs"
    store = opened("local", "feedback", fault, caching=Caching(flush_interval=0.0))
    fault.strike()
    store.feedback(ADA, "seat")
    assert fault.wait_for_hits(1)
    store.feedback(ADA, "seat")
    fault.lift()
    assert until(lambda: store.inner.uses(MEMORY) == (0, 2))
    store.close()


def test_closing_while_a_store_is_down_says_so_and_loses_nothing(
    kind: str, call: Call, fault: Fault
) -> None:
    before = threading.enumerate()
    store = opened(kind, "feedback", fault)
    store.recall(ADA, CUE)
    fault.strike()
    with pytest.raises(OSError, match="it is gone"):
        call(store, "close")
    fault.lift()
    assert call(store, "flush") == 1
    assert store.inner.uses(MEMORY)[0] == 1
    store.inner.close()
    assert threads_left(before) == []


def test_leaving_a_store_closes_the_inner_one_although_the_flush_fails(
    fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[str] = []

    def left() -> None:
        with opened("local", "feedback", fault) as store:
            monkeypatch.setattr(store.inner, "close", lambda: closed.append("sync"))
            store.recall(ADA, CUE)
            fault.strike()

    async def aleft() -> None:
        async with opened("local", "feedback", fault) as store:
            monkeypatch.setattr(store.inner, "close", lambda: closed.append("async"))
            await store.arecall(ADA, CUE)
            fault.strike()

    with pytest.raises(OSError, match="it is gone"):
        left()
    fault.is_on = False
    with pytest.raises(OSError, match="it is gone"):
        asyncio.run(aleft())
    assert closed == ["sync", "async"]


def test_after_a_loop_has_ended_the_next_read_is_written_behind_all_the_same(
    fault: Fault,
) -> None:
    store = opened("in memory", "feedback", fault, caching=Caching(flush_interval=0.005))

    async def last_words() -> None:
        await store.afeedback(ADA, "seat")

    asyncio.run(last_words())
    store.feedback(ADA, "seat")
    assert until(lambda: store.inner.uses(MEMORY) == (0, 2))
    store.close()


def test_waits_between_tries_grow_differ_and_have_an_end() -> None:
    wait = flusher.PATIENCE
    state = RetryCallState(Retrying(), None, (), {})

    def waits(attempt: int) -> set[float]:
        state.attempt_number = attempt
        return {wait(state) for _ in range(20)}

    for attempt, least in ((1, 0.5), (2, 1.0), (4, 4.0), (7, 30.0), (99, 30.0)):
        drawn = waits(attempt)
        assert least <= min(drawn) <= max(drawn) <= least + 0.5
        assert len(drawn) > 1


# --- the event loop ---

CALLS: dict[str, tuple[str, Callable[[RecallStore], Any]]] = {
    "a first load": ("lexical", lambda store: store.arecall(ADA, CUE)),
    "the embedder": ("embedder", lambda store: store.aremember(ADA, MEAL)),
    "reading": ("reading", lambda store: store.asearch(ADA, query=CUE)),
    "writing": ("writing", lambda store: store.aremember(ADA, MEAL)),
    "a flush": ("feedback", lambda store: store.aflush()),
}


@pytest.mark.parametrize("what", CALLS)
async def test_the_event_loop_goes_on_while_something_hangs(what: str, fault: Fault) -> None:
    part, ask = CALLS[what]
    fault.kind = "hangs"
    store = opened("local", part, fault, caching=Caching(flush_interval=HANG_S))
    store.feedback(ADA, "seat")
    fault.strike()
    asked = asyncio.create_task(ask(store))
    assert await asyncio.to_thread(fault.wait_for_hits, 1)
    beats = 0
    while beats < 5:
        await asyncio.sleep(0.002)
        beats += 1
    assert not asked.done()
    fault.lift()
    await asyncio.wait_for(asked, HANG_S)
    await store.aclose()
    assert store.inner.uses(MEMORY)[1] == 1
