"""An embedder far away, a store that is slow, many turns at once: what a turn has all the same."""

import asyncio
import threading
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from conftest import Call
from langchain_core.embeddings import Embeddings
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore
from scripted import (
    ADA,
    BOB,
    PEANUTS,
    SEAT,
    Chat,
    agent_of,
    blocks,
    calls,
    facts,
    grows,
    lines,
    model_of,
    recalled,
)

from langmem_recall import LocalStore, Recall, RecallStore
from langmem_recall.deadline import CallProgress, Crowded, Deadline, Gate
from langmem_recall.flows.calibrations import CALIBRATION
from langmem_recall.ranking.calibration import CUES, PANELS

DIMS = 64
BY_WORDS, BY_MEANING = "Do I book an aisle seat on flights?", "What must the kitchen leave out?"
BOTH = f"{BY_WORDS} {BY_MEANING}"
TOPICS = ((SEAT, BY_WORDS), (PEANUTS, BY_MEANING))
DEADLINE = 0.8
HANG = 60.0


class FarEmbeddings(Embeddings):
    """Counts requests, and answers none while it is held; two topics have their own direction."""

    identity = "far away"

    def __init__(self) -> None:
        self.requests: list[list[str]] = []
        self.open = threading.Event()
        self.open.set()

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.requests.append(texts)
        assert self.open.wait(HANG)
        return [_vector(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([text])[0]


class OpenAIEmbeddings(FarEmbeddings):
    """One whose class is known to embed queries as it embeds documents."""


def _vector(text: str) -> list[float]:
    drawn = np.random.default_rng(zlib.crc32(text.encode())).standard_normal(DIMS) / DIMS**0.5
    for number, texts in enumerate(TOPICS):
        if text in texts:
            drawn[number] += 2.0
    return [float(number) for number in drawn]


@pytest.fixture
def far() -> Iterator[FarEmbeddings]:
    embeddings = OpenAIEmbeddings()
    yield embeddings
    embeddings.open.set()


def inner_of(kind: str, embeddings: Embeddings) -> BaseStore:
    if kind == "local":
        return LocalStore(embeddings=embeddings)
    return InMemoryStore(index={"dims": DIMS, "embed": embeddings, "fields": ["content"]})


KINDS = pytest.mark.parametrize("kind", ["local", "in memory"])


@KINDS
def test_words_answer_where_the_embedder_is_late_and_the_trace_says_so(
    call: Call, far: FarEmbeddings, kind: str
) -> None:
    traces: list[Recall] = []
    model, store = model_of(), facts(traces, inner_of(kind, far))
    far.open.clear()
    call(Chat(agent_of(model, store, deadline=DEADLINE)), "say", BOTH)
    assert recalled(model.seen[0]) == [SEAT]
    (note,) = traces[-1].trace.degraded
    assert "TooLate: no answer after 0." in note
    assert note.endswith("lexical only")


def test_what_was_late_serves_the_next_call_of_the_turn_as_a_second_block(
    call: Call, far: FarEmbeddings
) -> None:
    traces: list[Recall] = []
    store = facts(traces, LocalStore(embeddings=far))
    store.recall(ADA, "anything")
    far.open.clear()
    far.requests.clear()

    def comes(messages: Any) -> Any:
        far.open.set()
        # The model is asked in a thread, also under a loop.
        while not all(one.answer.done() for one in store._host.vectors._texts.values()):
            threading.Event().wait(0.01)
        return calls("1")

    model = model_of(comes, calls("2"))
    chat = Chat(agent_of(model, store, deadline=DEADLINE))
    call(chat, "say", BOTH)
    first, _, third = model.seen
    assert recalled(first) == [SEAT]
    assert far.requests == [[BY_WORDS, BY_MEANING]]
    shown = [[line["text"] for line in lines(block)] for block in blocks(third)]
    assert shown == [[SEAT], [PEANUTS]]
    assert blocks(third)[0] == blocks(first)[0]
    assert grows(model.seen)
    assert [bool(recall.trace.degraded) for recall in traces[-2:]] == [True, False]


@KINDS
def test_the_first_turn_makes_two_requests_and_a_later_one_as_few_as_can_be(
    call: Call, far: FarEmbeddings, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("langmem_recall.flows.calibrations.SLOW_S", -1.0)
    store = facts(inner=inner_of(kind, far))
    graph = agent_of(model_of(), store, deadline=HANG)
    far.requests.clear()
    call(Chat(graph, thread="a"), "say", BY_MEANING)
    panel = [*(asked for asked, _ in PANELS["en"]), *(told for _, told in PANELS["en"])]
    panel += [*CUES["wanted"], *CUES["idle"]]
    assert sorted(far.requests, key=len) == [[BY_MEANING], panel]
    far.requests.clear()
    call(Chat(graph, thread="b"), "say", BOTH)
    if kind == "local":
        assert far.requests == [[BY_WORDS, BY_MEANING]]
    else:
        assert sorted(far.requests) == [[BY_WORDS], [BY_MEANING]]


def test_a_model_of_another_kind_is_asked_for_each_part_as_a_query_and_at_once(
    call: Call,
) -> None:
    embeddings = FarEmbeddings()
    store = facts(inner=LocalStore(embeddings=embeddings))
    store.recall(ADA, "anything")
    embeddings.requests.clear()
    model = model_of()
    call(Chat(agent_of(model, store, deadline=HANG)), "say", BOTH)
    assert sorted(embeddings.requests) == [[BY_WORDS], [BY_MEANING]]
    assert recalled(model.seen[0]) == [SEAT, PEANUTS]


@KINDS
def test_what_was_measured_is_there_for_the_next_process(
    call: Call, far: FarEmbeddings, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("langmem_recall.flows.calibrations.SLOW_S", -1.0)
    inner = inner_of(kind, far)
    facts(inner=inner).recall(ADA, BY_MEANING)
    assert len(inner.search(CALIBRATION)) == 1
    far.requests.clear()
    model = model_of()
    call(Chat(agent_of(model, RecallStore(inner), deadline=HANG)), "say", BY_MEANING)
    assert far.requests == [[BY_MEANING]]
    assert recalled(model.seen[0]) == [PEANUTS]


def test_two_namespaces_cost_one_request(call: Call, far: FarEmbeddings) -> None:
    store = facts(inner=LocalStore(embeddings=far))
    store.recall(ADA, "anything")
    far.requests.clear()
    graph = agent_of(model_of(), store, deadline=HANG, namespace=[ADA, BOB])
    call(Chat(graph), "say", BY_WORDS)
    assert far.requests == [[BY_WORDS]]


# --- many turns at once ---


def test_a_burst_over_a_healthy_store_has_its_memories_and_so_has_the_next_turn(
    call: Call,
) -> None:
    traces: list[Recall] = []
    store = facts(traces)
    store.recall(ADA, BY_WORDS)
    traces.clear()
    # The deadline of the default, and a queue for a busy machine.
    graph = agent_of(model_of(), store, deadline=1.0, queue=HANG, on_error="skip")

    class Burst:
        def turns(self, count: int) -> None:
            with ThreadPoolExecutor(count) as pool:
                list(pool.map(lambda n: Chat(graph, thread=f"t{n}").say(BY_WORDS), range(count)))

        async def aturns(self, count: int) -> None:
            chats = [Chat(graph, thread=f"t{n}") for n in range(count)]
            await asyncio.gather(*(chat.asay(BY_WORDS) for chat in chats))

    call(Burst(), "turns", 40)
    call(Chat(graph, thread="after"), "say", BY_WORDS)
    found = ["seat" in [memory.key for memory in recall.memories] for recall in traces]
    assert len(found) == 41
    assert sum(found) >= 39
    assert found[-1]


def test_a_hung_store_takes_nothing_from_a_healthy_one(call: Call) -> None:
    hold = threading.Event()

    class Hung(InMemoryStore):
        def batch(self, ops: Any) -> Any:
            hold.wait(HANG)
            return super().batch(ops)

        async def abatch(self, ops: Any) -> Any:
            await asyncio.Event().wait()

    model = model_of()
    healthy = agent_of(model, facts(), deadline=DEADLINE, on_error="skip")
    agents = [agent_of(model_of(), Hung(), deadline=0.1, on_error="skip") for _ in range(20)]

    class Both:
        def turns(self) -> None:
            with ThreadPoolExecutor(20) as pool:
                hung = [pool.submit(Chat(graph).say, BY_WORDS) for graph in agents]
                Chat(healthy).say(BY_WORDS)
                assert all(turn.result() for turn in hung)

        async def aturns(self) -> None:
            hung = [asyncio.create_task(Chat(graph).asay(BY_WORDS)) for graph in agents]
            await Chat(healthy).asay(BY_WORDS)
            await asyncio.gather(*hung)

    call(Both(), "turns")
    hold.set()
    assert [recalled(messages) for messages in model.seen] == [[SEAT]]


def test_a_fault_in_one_namespace_leaves_the_others_their_memories(call: Call) -> None:
    class Partly(InMemoryStore):
        is_broken = False

        def batch(self, ops: Any) -> Any:
            listed = list(ops)
            names = ("namespace_prefix", "namespace")
            places = [getattr(op, name, ()) for op in listed for name in names]
            if self.is_broken and any(place[-1:] == ("bob",) for place in places):
                raise OSError("gone")
            return super().batch(listed)

        async def abatch(self, ops: Any) -> Any:
            return self.batch(ops)

    inner, model = Partly(), model_of()
    graph = agent_of(model, facts(inner=inner), deadline=HANG, on_error="skip")
    inner.is_broken = True
    for number in range(4):
        call(Chat(graph, user="bob", thread=f"bob-{number}"), "say", BY_WORDS)
    call(Chat(graph, thread="ada"), "say", BY_WORDS)
    assert [recalled(messages) for messages in model.seen] == [[], [], [], [], [SEAT]]


def test_no_place_in_our_own_queue_is_no_fault_of_the_store(call: Call) -> None:
    traces: list[Recall] = []
    model, store = model_of(), facts(traces)
    graph = agent_of(model, store, deadline=HANG, queue=0.05, on_error="skip")
    store._host.gate.free = 0
    for number in range(5):
        call(Chat(graph, thread=f"t{number}"), "say", BY_WORDS)
    reasons = {recall.reason for recall in traces}
    assert reasons == {f"no memories: {Crowded.__name__}: too much to do at once in this process"}
    with store._host.gate.lock:
        store._host.gate.free = 2
        store._host.gate.admit()
    call(Chat(graph, thread="after"), "say", BY_WORDS)
    assert recalled(model.seen[-1]) == [SEAT]


def test_a_gate_lets_the_oldest_turn_through_first() -> None:
    gate, order = Gate(1), list[str]()
    older, newer, holder = (CallProgress(Deadline(HANG, queue=HANG)) for _ in range(3))
    inside = threading.Event()

    def passes(progress: CallProgress, name: str) -> None:
        with gate.enter(progress):
            order.append(name)

    with gate.enter(holder):
        calls_made = ((newer, "newer"), (older, "older"))
        threads = [threading.Thread(target=passes, args=one) for one in calls_made]
        for place, thread in enumerate(threads, start=1):
            thread.start()
            while len(gate._waiting) < place:
                inside.wait(0.001)
    for thread in threads:
        thread.join()
    assert order == ["older", "newer"]
    assert gate.free == 1
