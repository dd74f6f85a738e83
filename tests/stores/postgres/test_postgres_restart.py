"""Postgres killed and restarted under load: clear errors meanwhile, then service and exact counts.

Counts are exact for acknowledged flushes: what `flush` returned for is in the table, and what it
raised for is neither lost nor counted twice, even where the commit was done and its answer lost.
SOAK=1 kills more often.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest
from conftest import Clock, CountingEmbeddings
from langchain_core.messages import HumanMessage
from langgraph.graph import MessagesState, StateGraph
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore
from langgraph.store.postgres import AsyncPostgresStore, PostgresStore
from postgres_server import PostgresServer, running

from langmem_recall import Caching
from langmem_recall.agents.node import recall_node
from langmem_recall.agents.turn import RecallState
from langmem_recall.embeddings import LocalEmbeddings
from langmem_recall.flows.usage import USAGE
from langmem_recall.policy import RecallPolicy
from langmem_recall.stores.local.store import LocalStore
from langmem_recall.stores.postgres.database import Database
from langmem_recall.stores.postgres.schema import BATCHES_TABLE, USAGE_TABLE
from langmem_recall.stores.postgres.sidecar import KEPT
from langmem_recall.stores.recall_store import RecallStore
from langmem_recall.types import MemoryId, Usage

KILLS = 25 if os.environ.get("SOAK") == "1" else 1
WORKERS = 3
"""Threads, and as many agents on an event loop."""
STEPS = 12
"""Recalls of every worker between two events."""
PATIENCE_S = 60.0
SUBJECTS = ("jazz", "aisle seats", "green tea", "the night train", "pottery", "chess openings")
NS = ("memories", "ada")
INDEX: Any = {"dims": 256, "embed": LocalEmbeddings(), "fields": ["content"]}
# A short wait, so that calls fail soon; every use counts, so that uses are what is stored.
POOL: Any = {"min_size": 2, "max_size": 4, "timeout": 0.5}
EVERY_USE = RecallPolicy.default(refresh_floor=0.0)


class MortalServer(PostgresServer):
    """A server that is killed; what it has committed it keeps."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.execute("ALTER SYSTEM SET synchronous_commit = on")
        self.execute("SELECT pg_reload_conf()")

    def kill(self) -> None:
        """Every process of it ends at once, as in a crash."""
        process = self.server.get_postmaster_info().process
        process.send_signal(signal.SIGQUIT)
        process.wait(10)

    def revive(self) -> None:
        self.server.start()


@pytest.fixture(scope="module")
def server() -> Iterator[MortalServer]:
    yield from running(MortalServer)


class Load:
    """Workers that recall and flush until told to stop, and what came of it."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.is_over = False
        self.used: Counter[MemoryId] = Counter()
        self.acknowledged: Counter[MemoryId] = Counter()
        self.steps: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.unclear: list[BaseException] = []

    def recalled(self, worker: str, ids: list[MemoryId]) -> None:
        with self.changed:
            self.used.update(ids)
            self.steps[worker] += 1
            self.changed.notify_all()

    def flushed(self, mine: Counter[MemoryId]) -> None:
        with self.changed:
            self.acknowledged.update(mine)

    def failed(self, worker: str, fault: Exception) -> None:
        with self.changed:
            self.faults[worker] += 1
            if not isinstance(fault, psycopg.Error):
                self.unclear.append(fault)
            self.changed.notify_all()

    def wait_for(self, counter: Counter[str], more: int) -> None:
        """Until every worker has so many more of these."""
        with self.changed:
            workers = [f"{kind}{n}" for kind in ("thread", "agent") for n in range(WORKERS)]
            due = {worker: counter[worker] + more for worker in workers}
            assert self.changed.wait_for(
                lambda: all(counter[worker] >= least for worker, least in due.items()), PATIENCE_S
            ), (counter, due, self.unclear)


def cue_of(step: int) -> str:
    return f"what about {SUBJECTS[step % len(SUBJECTS)]}?"


def thread(load: Load, store: RecallStore, worker: str) -> None:
    mine: Counter[MemoryId] = Counter()
    step = 0
    while not load.is_over:
        step += 1
        try:
            ids = [memory.id for memory in store.recall(NS, cue_of(step)).memories]
            mine.update(ids)
            load.recalled(worker, ids)
            if step % 3 == 0:
                store.flush()
                load.flushed(mine)
                mine.clear()
        except Exception as fault:
            load.failed(worker, fault)


async def agent(load: Load, store: RecallStore, worker: str) -> None:
    mine: Counter[MemoryId] = Counter()
    step = 0
    while not load.is_over:
        step += 1
        try:
            ids = [memory.id for memory in (await store.arecall(NS, cue_of(step))).memories]
            mine.update(ids)
            load.recalled(worker, ids)
            if step % 3 == 0:
                await store.aflush()
                load.flushed(mine)
                mine.clear()
        except Exception as fault:
            load.failed(worker, fault)


async def agents(load: Load, uri: str) -> None:
    async with AsyncPostgresStore.from_conn_string(uri, pool_config=POOL, index=INDEX) as inner:
        store = RecallStore(inner, policy=EVERY_USE, caching=Caching(flush_interval=0.05))
        await asyncio.gather(*(agent(load, store, f"agent{n}") for n in range(WORKERS)))
        await store.aclose()


def stored(uri: str) -> Counter[MemoryId]:
    with psycopg.connect(uri) as connection:
        rows = connection.execute(f"SELECT prefix, key, uses FROM {USAGE_TABLE}").fetchall()
    return Counter({(tuple(prefix.split(".")), key): uses for prefix, key, uses in rows})


def test_service_resumes_by_itself_and_no_count_is_lost_or_doubled(
    server: MortalServer, pytestconfig: pytest.Config
) -> None:
    server.execute("CREATE DATABASE killed")
    uri = server.uri("killed")
    load = Load()
    with ExitStack() as stack:
        inner = stack.enter_context(
            PostgresStore.from_conn_string(uri, pool_config=POOL, index=INDEX)
        )
        store = RecallStore(inner, policy=EVERY_USE, caching=Caching(flush_interval=0.05))
        store.setup()
        for place, subject in enumerate(SUBJECTS):
            value = {"content": f"They care a lot about {subject}, more than most"}
            store.put(NS, f"m{place}", value)
        workers = [
            threading.Thread(target=thread, args=(load, store, f"thread{n}"))
            for n in range(WORKERS)
        ]
        workers.append(threading.Thread(target=lambda: asyncio.run(agents(load, uri))))
        for worker in workers:
            worker.start()
        try:
            for _ in range(KILLS):
                load.wait_for(load.steps, STEPS)
                server.kill()
                acknowledged = load.acknowledged.copy()
                load.wait_for(load.faults, 1)
                server.revive()
                found = stored(uri)
                assert acknowledged <= found <= load.used
                load.wait_for(load.steps, STEPS)
        finally:
            load.is_over = True
            for worker in workers:
                worker.join()
        store.close()
    assert load.unclear == []
    assert stored(uri) == load.used
    pytestconfig.get_terminal_writer().line(
        f"{KILLS} kills, {load.steps.total():,} recalls, {load.faults.total():,} failed calls, "
        f"{load.used.total():,} uses counted"
    )


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_turn_goes_on_without_memories_while_postgres_is_down(
    server: MortalServer, mode: str
) -> None:
    server.execute(f"CREATE DATABASE turns_{mode}")
    uri = server.uri(f"turns_{mode}")
    seen: list[tuple[list[str], list[str]]] = []

    def graph_over(store: RecallStore) -> Any:
        graph = StateGraph(type("State", (MessagesState, RecallState), {}))
        graph.add_node("recall", recall_node(NS, deadline=2.0))
        graph.set_entry_point("recall")
        return graph.compile(store=store)

    def note(state: dict[str, Any]) -> None:
        record = state["recalls"][-1]
        seen.append(([shown["key"] for shown in record["memories"]], record["degraded"]))

    def turn() -> dict[str, Any]:
        return {"messages": [HumanMessage("which seats on flights?")]}

    def live() -> None:
        with PostgresStore.from_conn_string(uri, pool_config=POOL, index=INDEX) as inner:
            store = RecallStore(inner, policy=EVERY_USE)
            store.setup()
            store.put(NS, "seat", {"content": "I prefer aisle seats on flights"})
            graph = graph_over(store)
            note(graph.invoke(turn()))
            server.kill()
            note(graph.invoke(turn()))
            server.revive()
            until_found(lambda: bool(store.recall(NS, "which seats on flights?").memories))
            note(graph.invoke(turn()))
            store.close()

    async def alive() -> None:
        async with AsyncPostgresStore.from_conn_string(uri, pool_config=POOL, index=INDEX) as inner:
            store = RecallStore(inner, policy=EVERY_USE)
            await store.asetup()
            await store.aput(NS, "seat", {"content": "I prefer aisle seats on flights"})
            graph = graph_over(store)
            note(await graph.ainvoke(turn()))
            server.kill()
            note(await graph.ainvoke(turn()))
            server.revive()
            await asyncio.to_thread(
                until_found, lambda: bool(store.recall(NS, "which seats on flights?").memories)
            )
            note(await graph.ainvoke(turn()))
            await store.aclose()

    live() if mode == "sync" else asyncio.run(alive())
    (before, down, after) = seen
    assert before == after == (["seat"], [])
    assert down[0] == []
    assert down[1][0].startswith("no memories: ")


def until_found(recall: Callable[[], bool]) -> None:
    """Until the pool has noticed that its server is back; every try waits as long as the pool."""
    for _ in range(100):
        try:
            if recall():
                return
        except psycopg.Error:
            continue
    raise AssertionError("the pool did not come back")


# --- answers that are lost --------------------------------------------------------------------


class Lossy:
    """Carries a call out and then loses its answer, once it is told to."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.is_armed = False

    def __call__(self, *args: Any) -> Any:
        answer = self.function(*args)
        if self.is_armed:
            self.is_armed = False
            raise ConnectionError("the answer was lost")
        return answer


def used_store(inner: BaseStore, clock: Clock) -> RecallStore:
    store = RecallStore(inner, policy=EVERY_USE, clock=clock, caching=Caching(flush_interval=1_000))
    store.put(NS, "seat", {"content": "I prefer aisle seats"})
    store.search(NS, query="seats")
    return store


def test_a_commit_whose_answer_was_lost_is_not_counted_again(
    postgres: str, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with PostgresStore.from_conn_string(postgres) as inner:
        RecallStore(inner).setup()
        store = used_store(inner, clock)
        lossy = Lossy(Database._run)
        monkeypatch.setattr(Database, "_run", lambda *args: lossy(*args))
        lossy.is_armed = True
        with pytest.raises(ConnectionError):
            store.flush()
        assert stored(postgres) == {(NS, "seat"): 1}
        clock.turn(days=1)
        store.search(NS, query="seats")
        assert store.flush() == 1
        assert stored(postgres) == {(NS, "seat"): 2}
        for _ in range(KEPT):
            store.search(NS, query="seats")
            store.flush()
        store.close()
    assert stored(postgres) == {(NS, "seat"): 2 + KEPT}
    with psycopg.connect(postgres) as connection:
        lots = connection.execute(f"SELECT number FROM {BATCHES_TABLE}").fetchall()
    # Of ten flushes, the lost one among them, those since the ninth, which dropped what was before.
    assert sorted(lots) == [(KEPT + 1,), (KEPT + 2,)]


def test_a_failed_flush_that_wrote_nothing_is_made_good(
    postgres: str, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> Any:
        raise ConnectionError("nobody listens")

    with PostgresStore.from_conn_string(postgres) as inner:
        RecallStore(inner).setup()
        store = used_store(inner, clock)
        with monkeypatch.context() as patch:
            patch.setattr(Database, "_run", refuse)
            with pytest.raises(ConnectionError):
                store.flush()
        store.put(NS, "tea", {"content": "I drink green tea"})
        store.search(NS, query="green tea")
        store.forget(NS, "seat")
        store.close()
    assert stored(postgres) == {(NS, "tea"): 1}


def test_records_of_forgotten_ledgers_do_not_pile_up(postgres: str, clock: Clock) -> None:
    with PostgresStore.from_conn_string(postgres) as inner:
        RecallStore(inner).setup()
        for _ in range(3):
            used_store(inner, clock).close()
            with psycopg.connect(postgres, autocommit=True) as connection:
                connection.execute(
                    f"UPDATE {BATCHES_TABLE} SET written_at = written_at - interval '31 days'"
                )
        with psycopg.connect(postgres) as connection:
            assert connection.execute(f"SELECT count(*) FROM {BATCHES_TABLE}").fetchall() == [(1,)]
    assert stored(postgres) == {(NS, "seat"): 3}


def test_what_tables_of_an_older_version_cannot_take_waits_for_setup(
    postgres: str, clock: Clock
) -> None:
    with PostgresStore.from_conn_string(postgres) as inner:
        RecallStore(inner).setup()
        store = used_store(inner, clock)
        store.flush()
        with psycopg.connect(postgres, autocommit=True) as connection:
            connection.execute(f"DROP TABLE {BATCHES_TABLE}")
            connection.execute("DELETE FROM langmem_recall_versions WHERE version = 8")
        store.search(NS, query="seats")
        store.flush()
        store.setup()
        store.close()
    assert stored(postgres) == {(NS, "seat"): 2}


def test_a_side_car_that_answers_to_nobody_is_not_counted_twice(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = InMemoryStore()
    store = used_store(inner, clock)
    lossy = Lossy(InMemoryStore._apply_put_ops)
    monkeypatch.setattr(InMemoryStore, "_apply_put_ops", lambda *args: lossy(*args))
    lossy.is_armed = True
    with pytest.raises(ConnectionError):
        store.flush()
    store.search(NS, query="seats")
    store.close()
    assert inner.get((*USAGE, *NS), "seat").value["uses"] == 2


def test_a_local_flush_that_was_cancelled_while_it_wrote_is_not_counted_twice(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = LocalStore(embeddings=CountingEmbeddings())
    store = used_store(inner, clock)
    begun, go_on = threading.Event(), threading.Event()
    add = inner.add_usage

    def slowly(*args: Any) -> None:
        begun.set()
        assert go_on.wait(PATIENCE_S)
        add(*args)

    monkeypatch.setattr(inner, "add_usage", slowly)

    async def main() -> None:
        task = asyncio.create_task(store.aflush())
        await asyncio.to_thread(begun.wait, PATIENCE_S)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        go_on.set()
        await store.aclose()

    asyncio.run(main())
    assert inner.read_usage([(NS, "seat")]) == [Usage(1, 1.0, clock().timestamp())]
