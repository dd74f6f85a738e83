"""Whatever fails, the turn goes on in time and the trace says why it had no memories."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import pytest
from conftest import Call, CountingEmbeddings
from langchain_core.embeddings import Embeddings
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.base import BaseStore, PutOp, SearchItem
from langgraph.store.memory import InMemoryStore
from scripted import (
    ADA,
    FLIGHT_WORDS,
    MINE,
    OFF_TOPIC,
    PEANUT_WORDS,
    SEAT,
    Chat,
    agent_of,
    calls,
    facts,
    grows,
    model_of,
    recalled,
    shape,
)

from langmem_recall import Caching, LocalStore, Recall, RecallStore
from langmem_recall.agents import session as session_module
from langmem_recall.deadline import Breaker, TooLate

SYSTEM = "system: Be kind."
DEADLINE = 0.2
SLACK = 1.5
"""Seconds for all of LangGraph's and our own work on a busy machine; a hang takes 60."""
HANG = 60.0


@pytest.fixture
def hold() -> Iterator[threading.Event]:
    """What hangs waits for this; set in the end, so that no thread outlives its test."""
    event = threading.Event()
    yield event
    event.set()


# --- stores with faults ---

Act = Callable[[Sequence[Any]], Any]


class FaultyStore(InMemoryStore):
    """A store that does something else than it should, once it is told what."""

    def __init__(self, embed: Any = None) -> None:
        index = {"dims": 256, "embed": embed or CountingEmbeddings(), "fields": ["content"]}
        super().__init__(index=index)
        self.act: Act | None = None
        self.aact: Callable[[Sequence[Any]], Any] | None = None
        self.asked = 0

    def batch(self, ops: Any) -> Any:
        listed = list(ops)
        self.asked += 1
        return super().batch(listed) if self.act is None else self.act(listed)

    async def abatch(self, ops: Any) -> Any:
        listed = list(ops)
        self.asked += 1
        if self.aact is not None:
            return await self.aact(listed)
        return await super().abatch(listed) if self.act is None else self.act(listed)


def hanging(store: FaultyStore, hold: threading.Event) -> None:
    """Sync calls block their thread; async ones never end."""

    async def never(ops: Sequence[Any]) -> Any:
        await asyncio.Event().wait()

    store.act, store.aact = (lambda ops: hold.wait(HANG)), never


def stubborn(store: FaultyStore, hold: threading.Event) -> None:
    """Async calls that do not heed their cancellation."""

    async def goes_on(ops: Sequence[Any]) -> Any:
        while not hold.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                continue

    store.act, store.aact = (lambda ops: hold.wait(HANG)), goes_on


def raising(store: FaultyStore, hold: threading.Event) -> None:
    def fail(ops: Sequence[Any]) -> Any:
        raise OSError("disk gone")

    store.act = fail


def answering(answer: Callable[[Sequence[Any]], Any]) -> Callable[..., None]:
    def set_up(store: FaultyStore, hold: threading.Event) -> None:
        store.act = answer

    return set_up


def strange_item(**more: Any) -> SearchItem:
    held = {"namespace": ADA, "key": "k", "value": {"content": SEAT}, "created_at": "yesterday"}
    return SearchItem(**{**held, "updated_at": None, "score": float("nan"), **more})


GARBAGE = {
    "nothing": answering(lambda ops: None),
    "too few": answering(lambda ops: []),
    "too many": answering(lambda ops: [[]] * (len(ops) + 3)),
    "numbers": answering(lambda ops: [7] * len(ops)),
    "strings": answering(lambda ops: ["x"] * len(ops)),
    "strange items": answering(lambda ops: [[strange_item()]] * len(ops)),
    "no values": answering(lambda ops: [[strange_item(value=None)]] * len(ops)),
    "itself": answering(lambda ops: ops),
}


def told_to(
    chat: Chat, call: Call, traces: list[Recall], words: str = FLIGHT_WORDS
) -> tuple[float, Recall]:
    """A turn that has to go on; how long it took, and its trace."""
    before = len(traces)
    began = time.monotonic()
    out = call(chat, "say", words)
    took = time.monotonic() - began
    assert out["messages"][-1].text == "Noted."
    assert len(traces) == before + 1
    return took, traces[-1]


def over(store: BaseStore, traces: list[Recall]) -> RecallStore:
    return facts(traces, inner=store)


@pytest.mark.parametrize("name", ["cue", "count", "renderer"])
def test_a_function_of_the_callers_that_hangs_costs_a_turn_no_more_than_its_deadline(
    call: Call, hold: threading.Event, name: str
) -> None:
    traces: list[Recall] = []
    model, store = model_of(), facts(traces)
    store.recall(ADA, FLIGHT_WORDS)

    def hangs(*_: Any) -> Any:
        hold.wait(HANG)
        return 1

    more: Any = {name: hangs}
    chat = Chat(agent_of(model, store, deadline=DEADLINE, on_error="skip", **more))
    traces.clear()
    took, recall = told_to(chat, call, traces)
    assert took < 2 * DEADLINE + SLACK
    assert shape(model.seen[0]) == [SYSTEM, FLIGHT_WORDS]
    assert recall.trace.degraded[0].startswith("no memories: TooLate")


def test_a_renderer_that_hangs_on_an_earlier_block_costs_no_more_than_the_deadline(
    call: Call, hold: threading.Event
) -> None:
    traces: list[Recall] = []
    model, store, saver = model_of(), facts(traces), InMemorySaver()
    chat = Chat(agent_of(model, store, agent={"checkpointer": saver}))
    call(chat, "say", FLIGHT_WORDS)
    (earlier,) = chat.records
    rendered: list[str] = []

    def hangs(entries: Any, nonce: str, at: Any) -> str:
        rendered.extend(entry.memory.key for entry in entries)
        hold.wait(HANG)
        return "late"

    # Another worker has no block of the first turn, and nothing new to show in the second.
    more: Any = {"renderer": hangs, "deadline": DEADLINE, "on_error": "skip"}
    chat.graph = agent_of(model, store, agent={"checkpointer": saver}, **more)
    took, recall = told_to(chat, call, traces, OFF_TOPIC)
    assert rendered == [shown["key"] for shown in earlier["memories"]] == ["seat"]
    assert took < 2 * DEADLINE + SLACK
    assert shape(model.seen[-1]) == [SYSTEM, FLIGHT_WORDS, "ai: Noted.", OFF_TOPIC]
    assert recall.trace.degraded[0].startswith("no memories: TooLate")


@pytest.mark.parametrize("fault", [hanging, stubborn])
def test_a_hanging_store_costs_a_turn_no_more_than_its_deadline(
    call: Call, hold: threading.Event, fault: Callable[..., None]
) -> None:
    traces: list[Recall] = []
    inner, model = FaultyStore(), model_of()
    store = over(inner, traces)
    fault(inner, hold)
    chat = Chat(agent_of(model, store, deadline=DEADLINE, on_error="skip"))
    took, recall = told_to(chat, call, traces)
    assert DEADLINE <= took < DEADLINE + SLACK
    assert shape(model.seen[0]) == [SYSTEM, FLIGHT_WORDS]
    assert recall.trace.degraded[0].startswith("no memories: TooLate: no answer after 0.")
    assert recall.reason == recall.trace.degraded[0]
    assert recall.trace.namespaces == (ADA,)
    (record,) = chat.records
    assert record["degraded"] == list(recall.trace.degraded)


@pytest.mark.parametrize("fault", [hanging, stubborn])
def test_a_turn_waits_once_however_many_calls_its_tool_loop_makes(
    call: Call, hold: threading.Event, fault: Callable[..., None]
) -> None:
    traces: list[Recall] = []
    inner = FaultyStore()
    store = over(inner, traces)
    fault(inner, hold)
    model = model_of(calls("1"), calls("2"))
    chat = Chat(agent_of(model, store, deadline=1.0, on_error="skip"))
    began = time.monotonic()
    call(chat, "say", FLIGHT_WORDS)
    assert 1.0 <= time.monotonic() - began < 2.0
    assert len(model.seen) == len(traces) == 3
    assert traces[2].reason == "no memories: TooLate: recall was late in this turn already"
    assert len(chat.records) == 1


def test_a_raising_store_costs_a_turn_its_memories_only(
    call: Call, hold: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    traces: list[Recall] = []
    inner, model = FaultyStore(), model_of()
    store = over(inner, traces)
    raising(inner, hold)
    chat = Chat(agent_of(model, store, deadline=HANG, on_error="skip"))
    took, recall = told_to(chat, call, traces)
    told_to(chat, call, traces)
    assert took < SLACK
    assert shape(model.seen[0]) == [SYSTEM, FLIGHT_WORDS]
    assert recall.trace.degraded == ("no memories: OSError",)
    logged = [one for one in caplog.records if "No memories in this turn" in one.message]
    assert len(logged) == 1


@pytest.mark.parametrize("kind", GARBAGE)
def test_a_store_that_returns_garbage_costs_a_turn_its_memories_only(
    call: Call, hold: threading.Event, kind: str
) -> None:
    traces: list[Recall] = []
    inner, model = FaultyStore(), model_of()
    store = over(inner, traces)
    GARBAGE[kind](inner, hold)
    chat = Chat(agent_of(model, store, deadline=HANG, on_error="skip"))
    took, recall = told_to(chat, call, traces)
    assert took < SLACK
    assert "recalled-memories" not in str(model.seen[0])
    assert recall.chosen == ()
    assert recall.trace.degraded


def test_a_fault_that_passes_leaves_the_turn_its_memories(
    call: Call, hold: threading.Event
) -> None:
    """What could not be recalled before the first call comes after the next tool result."""
    traces: list[Recall] = []
    inner = FaultyStore()
    store = over(inner, traces)
    raising(inner, hold)

    def mends(messages: Any) -> AIMessage:
        inner.act = None
        return calls("1")

    model = model_of(mends, calls("2"))
    chat = Chat(agent_of(model, store, deadline=HANG, on_error="skip"))
    call(chat, "say", FLIGHT_WORDS)
    told = [SYSTEM, FLIGHT_WORDS, "call 1", "result 1", f"<m1 {SEAT}>", "call 2", "result 2"]
    assert [shape(messages) for messages in model.seen] == [told[:2], told[:5], told]
    assert grows(model.seen)
    assert len(traces) == 2


@pytest.mark.parametrize("fault", [hanging, raising])
def test_a_turn_that_had_memories_goes_on_when_the_store_fails_in_mid_thread(
    call: Call, hold: threading.Event, fault: Callable[..., None]
) -> None:
    traces: list[Recall] = []
    inner, model = FaultyStore(), model_of()
    store = over(inner, traces)
    chat = Chat(agent_of(model, store, deadline=HANG, on_error="skip"))
    told_to(chat, call, traces)
    chat.graph = agent_of(
        model,
        store,
        deadline=DEADLINE,
        on_error="skip",
        agent={"checkpointer": chat.graph.checkpointer},
    )
    fault(inner, hold)
    took, recall = told_to(chat, call, traces, PEANUT_WORDS)
    assert took < DEADLINE + SLACK
    assert [bool(recalled(messages)) for messages in model.seen] == [True, False]
    inner.act = inner.aact = None
    hold.set()
    told_to(chat, call, traces, OFF_TOPIC)
    assert recalled(model.seen[2]) == [SEAT]
    assert recall.chosen == ()


def test_on_error_raise_lets_faults_through(call: Call, hold: threading.Event) -> None:
    for fault, error in ((hanging, TooLate), (raising, OSError)):
        inner = FaultyStore()
        store = facts(inner=inner)
        fault(inner, hold)
        chat = Chat(agent_of(model_of(), store, deadline=DEADLINE, on_error="raise"))
        with pytest.raises(error):
            call(chat, "say", FLIGHT_WORDS)


def test_a_store_wrapped_on_the_fly_says_why_in_the_state(
    call: Call, hold: threading.Event
) -> None:
    inner = FaultyStore()
    raising(inner, hold)
    chat = Chat(agent_of(model_of(), inner, deadline=HANG, on_error="skip"))
    call(chat, "say", FLIGHT_WORDS)
    (record,) = chat.records
    assert record["reason"] == "no memories: OSError"


# --- embedders with faults ---


class FaultyEmbeddings(Embeddings):
    """Real embeddings until something is done to them."""

    def __init__(self) -> None:
        self.inner = CountingEmbeddings()
        self.act: Callable[[list[float]], Any] | None = None

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self._spoiled(vector) for vector in self.inner.embed_documents(texts)]

    def embed_query(self, text: str) -> list[float]:
        return self._spoiled(self.inner.embed_query(text))

    def _spoiled(self, vector: list[float]) -> Any:
        return vector if self.act is None else self.act(vector)


def failing(vector: list[float]) -> Any:
    raise ConnectionError("no route")


SPOILT: dict[str, Callable[[list[float]], Any]] = {
    "not a number": lambda vector: [float("nan")] * len(vector),
    "infinite": lambda vector: [float("inf")] * len(vector),
    "too short": lambda vector: vector[:7],
    "empty": lambda vector: [],
    "nothing": lambda vector: None,
    "words": lambda vector: ["x"] * len(vector),
}


def store_over(kind: str, embeddings: Embeddings) -> BaseStore:
    return LocalStore(embeddings=embeddings) if kind == "local" else FaultyStore(embeddings)


@pytest.mark.parametrize("kind", ["local", "in memory"])
@pytest.mark.parametrize("calibrated", [True, False])
def test_a_hanging_embedder_costs_a_turn_no_more_than_its_deadline(
    call: Call, hold: threading.Event, kind: str, calibrated: bool
) -> None:
    traces: list[Recall] = []
    embeddings, model = FaultyEmbeddings(), model_of()
    store = over(store_over(kind, embeddings), traces)
    if calibrated:
        store.recall(ADA, OFF_TOPIC)
        traces.clear()
    embeddings.act = lambda vector: hold.wait(HANG) and vector
    chat = Chat(agent_of(model, store, deadline=DEADLINE, on_error="skip"))
    took, recall = told_to(chat, call, traces)
    assert took < DEADLINE + SLACK
    assert recall.trace.degraded
    if not recall.chosen:
        assert "TooLate" in recall.trace.degraded[0]


@pytest.mark.parametrize("kind", ["local", "in memory"])
def test_an_embedder_that_raises_leaves_the_words(call: Call, kind: str) -> None:
    traces: list[Recall] = []
    embeddings, model = FaultyEmbeddings(), model_of()
    store = over(store_over(kind, embeddings), traces)
    embeddings.act = failing
    chat = Chat(agent_of(model, store, deadline=HANG, on_error="skip"))
    took, recall = told_to(chat, call, traces, "Do I book an aisle seat on flights?")
    assert took < SLACK
    assert SEAT in recalled(model.seen[0])
    assert recall.trace.degraded


@pytest.mark.parametrize("kind", ["local", "in memory"])
@pytest.mark.parametrize("spoilt", SPOILT)
def test_an_embedder_that_returns_garbage_costs_no_more_than_memories(
    call: Call, kind: str, spoilt: str
) -> None:
    traces: list[Recall] = []
    embeddings, model = FaultyEmbeddings(), model_of()
    store = over(store_over(kind, embeddings), traces)
    embeddings.act = SPOILT[spoilt]
    chat = Chat(agent_of(model, store, deadline=HANG, on_error="skip"))
    took, recall = told_to(chat, call, traces, "Do I book an aisle seat on flights?")
    assert took < SLACK
    assert SEAT in recalled(model.seen[0]) or recall.trace.degraded


# --- the breaker ---


class Seconds:
    """A clock that is turned by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> Seconds:
    clock = Seconds()
    monkeypatch.setattr(session_module, "Breaker", partial(Breaker, clock=clock))
    return clock


def after_three_faults(
    call: Call, hold: threading.Event, traces: list[Recall]
) -> tuple[FaultyStore, Any, Chat]:
    """A store that is left alone from now on, a model and their chat."""
    inner, model = FaultyStore(), model_of()
    chat = Chat(agent_of(model, over(inner, traces), deadline=HANG, on_error="skip"))
    raising(inner, hold)
    for _ in range(3):
        _, recall = told_to(chat, call, traces)
        assert recall.trace.degraded == ("no memories: OSError",)
    return inner, model, chat


def test_after_three_faults_the_store_is_left_alone_and_probed_after_a_rest(
    call: Call, hold: threading.Event, seconds: Seconds
) -> None:
    traces: list[Recall] = []
    inner, model, chat = after_three_faults(call, hold, traces)
    asked = inner.asked
    for now in (0.0, 29.0):
        seconds.now = now
        _, recall = told_to(chat, call, traces)
        rests = "no memories: TooLate: recall rests after repeated faults"
        assert recall.trace.degraded == (rests,)
    assert inner.asked == asked
    seconds.now = 31.0
    _, recall = told_to(chat, call, traces)
    assert recall.trace.degraded == ("no memories: OSError",)
    assert inner.asked > asked
    inner.act = None
    seconds.now = 60.0
    _, recall = told_to(chat, call, traces)
    assert recall.trace.degraded == (rests,)
    seconds.now = 62.0
    for _ in range(2):
        told_to(chat, call, traces)
        assert recalled(model.seen[-1]) == [SEAT]


def test_a_store_that_takes_longer_than_a_turn_waits_for_a_probe_is_read_again(
    call: Call, hold: threading.Event, seconds: Seconds
) -> None:
    traces: list[Recall] = []
    inner, model, chat = after_three_faults(call, hold, traces)

    # From now on it answers, but only when the turn has gone on without it.
    async def answers_late(ops: Sequence[Any]) -> Any:
        await asyncio.to_thread(hold.wait, HANG)
        return InMemoryStore.batch(inner, ops)

    inner.act = lambda ops: (hold.wait(HANG), InMemoryStore.batch(inner, ops))[1]
    inner.aact = answers_late
    seconds.now = 31.0
    took, recall = told_to(chat, call, traces)
    assert took < session_module.PROBE_S + SLACK
    assert recall.trace.degraded[0].startswith("no memories: TooLate: no answer after 0.25 s")
    assert recalled(model.seen[-1]) == []
    hold.set()
    # No further rest: the late answer is what closes the breaker.
    while not recalled(model.seen[-1]):
        told_to(chat, call, traces)
        assert len(traces) < 2_000
    assert recalled(model.seen[-1]) == [SEAT]


def test_a_hanging_store_is_left_alone_after_three_turns(call: Call, hold: threading.Event) -> None:
    traces: list[Recall] = []
    inner = FaultyStore()
    store = over(inner, traces)
    hanging(inner, hold)
    chat = Chat(agent_of(model_of(), store, deadline=DEADLINE, on_error="skip"))
    asked = []
    for _ in range(5):
        took, _ = told_to(chat, call, traces)
        assert took < DEADLINE + SLACK
        asked.append(inner.asked)
    assert asked[2] == asked[3] == asked[4]
    rests = ["rests after repeated faults" in recall.reason for recall in traces]
    assert rests == [False, False, False, True, True]


def test_a_store_that_answers_again_is_read_although_an_old_call_still_hangs(
    call: Call, hold: threading.Event
) -> None:
    traces: list[Recall] = []
    inner, model = FaultyStore(), model_of()
    store = over(inner, traces)
    hanging(inner, hold)
    chat = Chat(agent_of(model, store, deadline=1.0, on_error="skip"))
    told_to(chat, call, traces)
    inner.act = inner.aact = None
    told_to(chat, call, traces)
    assert [recalled(messages) for messages in model.seen] == [[], [SEAT]]


def test_a_store_that_answers_as_often_as_it_fails_is_asked_again_and_again(
    call: Call, hold: threading.Event, seconds: Seconds
) -> None:
    traces: list[Recall] = []
    inner = FaultyStore()
    store = over(inner, traces)
    chat = Chat(agent_of(model_of(), store, deadline=HANG, on_error="skip"))
    for act in (None, raising, None, raising, None, raising, None, raising):
        inner.act = None
        if act:
            act(inner, hold)
        _, recall = told_to(chat, call, traces)
        assert bool(recall.trace.degraded) == (act is not None)
        assert "rests" not in str(recall.trace.degraded)


# --- writing what was used ---


def putting_hangs(store: FaultyStore, hold: threading.Event) -> list[PutOp]:
    """Reads are answered, writes are not; returns what was to be written."""
    real, areal = InMemoryStore.batch, InMemoryStore.abatch
    tried: list[PutOp] = []

    def puts(ops: Sequence[Any]) -> bool:
        found = [op for op in ops if isinstance(op, PutOp)]
        tried.extend(found)
        return bool(found)

    def act(ops: Sequence[Any]) -> Any:
        return hold.wait(HANG) if puts(ops) else real(store, ops)

    async def aact(ops: Sequence[Any]) -> Any:
        return await (asyncio.Event().wait() if puts(ops) else areal(store, ops))

    store.act, store.aact = act, aact
    return tried


def test_a_store_that_cannot_write_usage_is_left_alone_after_three_turns(
    call: Call, hold: threading.Event
) -> None:
    traces: list[Recall] = []
    inner, model = FaultyStore(), model_of()
    # Nothing is written behind while this test runs.
    store = facts(traces, inner=inner, caching=Caching(flush_interval=HANG))
    store.secret()
    tried = putting_hangs(inner, hold)
    chat = Chat(agent_of(model, store, deadline=DEADLINE, first_load=HANG, on_error="skip"))
    counts = []
    for _ in range(5):
        took, _ = told_to(chat, call, traces)
        assert took < DEADLINE + SLACK
        counts.append(len(tried))
    assert 1 <= counts[2] == counts[3] == counts[4] <= 3
    assert all(recalled(messages) == [SEAT] for messages in model.seen)


def test_a_turn_waits_once_where_both_reading_and_writing_hang(
    call: Call, hold: threading.Event
) -> None:
    """What the turn before has left to write is not tried on a store that hangs."""
    traces: list[Recall] = []
    inner = FaultyStore()
    store = facts(traces, inner=inner, caching=Caching(flush_interval=HANG))
    graph = agent_of(model_of(), store, deadline=1.0, first_load=HANG, on_error="skip")
    store.recall(ADA, FLIGHT_WORDS)
    traces.clear()
    hanging(inner, hold)
    took, _ = told_to(Chat(graph), call, traces)
    assert 1.0 <= took < 2.0
    inner.act = inner.aact = None
    assert call(store, "flush") == 1


# --- faults of what one brings along ---


def broken(*args: Any, **kwargs: Any) -> Any:
    raise ZeroDivisionError("oops")


@pytest.mark.parametrize("part", ["cue", "renderer", "count"])
def test_a_part_that_raises_costs_a_turn_its_memories_only(call: Call, part: str) -> None:
    traces: list[Recall] = []
    model = model_of()
    chat = Chat(agent_of(model, facts(traces), on_error="skip", **{part: broken}))
    _, recall = told_to(chat, call, traces)
    assert recall.trace.degraded == ("no memories: ZeroDivisionError",)
    assert recall.chosen == ()
    assert shape(model.seen[0]) == [SYSTEM, FLIGHT_WORDS]


@pytest.mark.parametrize("part", ["cue", "renderer", "count"])
def test_a_part_that_raises_is_heard_where_faults_are_raised(call: Call, part: str) -> None:
    chat = Chat(agent_of(model_of(), facts(), on_error="raise", **{part: broken}))
    with pytest.raises(ZeroDivisionError):
        call(chat, "say", FLIGHT_WORDS)


def test_a_hook_for_traces_that_raises_does_not_break_the_turn(
    call: Call, caplog: pytest.LogCaptureFixture
) -> None:
    model = model_of()
    store = RecallStore(facts().inner, traces=broken)
    call(Chat(agent_of(model, store, on_error="skip")), "say", FLIGHT_WORDS)
    assert recalled(model.seen[0]) == [SEAT]
    assert "could not be handed on: ZeroDivisionError" in caplog.text


def test_the_model_s_own_fault_is_passed_on(call: Call) -> None:
    chat = Chat(agent_of(model_of(OSError("model down")), facts(), on_error="skip"))
    with pytest.raises(OSError, match="model down"):
        call(chat, "say", FLIGHT_WORDS)


def test_a_cancelled_turn_is_cancelled(hold: threading.Event) -> None:
    inner = FaultyStore()
    store = facts(inner=inner)
    hanging(inner, hold)
    chat = Chat(agent_of(model_of(), store, deadline=HANG, on_error="skip", namespace=MINE))

    async def main() -> None:
        turn = asyncio.create_task(chat.asay(FLIGHT_WORDS))
        while inner.asked < 4:
            await asyncio.sleep(0.01)
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn

    asyncio.run(main())
