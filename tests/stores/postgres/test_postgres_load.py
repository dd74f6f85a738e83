"""Many agents on one Postgres at once: no error, no dead-lock, no lost count."""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
from conftest import CountingEmbeddings
from langchain.agents import create_agent
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langgraph.store.postgres import AsyncPostgresStore, PostgresStore

from langmem_recall import Caching, RecallMiddleware
from langmem_recall.policy import RecallPolicy
from langmem_recall.stores.postgres.schema import USAGE_TABLE
from langmem_recall.stores.recall_store import RecallStore

AGENTS = 32
RECALLS = 20_000 if os.environ.get("SOAK") else 320
TENANTS = 8
MOST_GROWTH_MB = 25
SUBJECTS = ("jazz", "aisle seats", "green tea", "the night train", "pottery", "chess openings")


def memory_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


async def agent(
    store: RecallStore, number: int, turns: range, uses: Counter[Any], times: list[float]
) -> None:
    """One agent's turns: a recall each, and a write now and then."""
    home = ("memories", f"user{number % TENANTS}")
    for turn in turns:
        began = time.perf_counter()
        recall = await store.arecall(home, f"what about {SUBJECTS[turn % len(SUBJECTS)]}?")
        times.append(time.perf_counter() - began)
        uses.update(memory.id for memory in recall.memories)
        if turn % 10 == 0:
            await store.aput(home, f"n{number}", {"content": f"turn {turn} of agent {number}"})


async def test_thirty_two_agents_lose_no_count_and_meet_no_deadlock(
    postgres: str, pytestconfig: pytest.Config
) -> None:
    # Every use counts, so that what was used is what the table must hold.
    policy = RecallPolicy.default(refresh_floor=0.0)
    index: Any = {"dims": 256, "embed": CountingEmbeddings(), "fields": ["content"]}
    pool: Any = {"min_size": 2, "max_size": 8}
    uses: Counter[Any] = Counter()
    times: list[float] = []
    ttl: Any = {"default_ttl": 60, "refresh_on_read": True}
    async with AsyncPostgresStore.from_conn_string(
        postgres, pool_config=pool, index=index, ttl=ttl
    ) as inner:
        # Two stores over the same tables, as two processes would have them.
        stores = [
            RecallStore(inner, policy=policy, caching=Caching(flush_interval=0.05))
            for _ in range(2)
        ]
        await stores[0].asetup()
        for tenant in range(TENANTS):
            for place, subject in enumerate(SUBJECTS):
                value = {"content": f"They care a lot about {subject}, more than most"}
                await stores[0].aput(("memories", f"user{tenant}"), f"m{place}", value)
        memory = []
        warm_up, all_turns = range(5), range(5, RECALLS // AGENTS)
        for turns in (warm_up, all_turns):
            await asyncio.gather(
                *(agent(stores[n % 2], n, turns, uses, times) for n in range(AGENTS))
            )
            gc.collect()
            memory.append(memory_mb())
        for store in stores:
            await store.aclose()
    with psycopg.connect(postgres) as connection:
        rows = connection.execute(f"SELECT prefix, key, uses FROM {USAGE_TABLE}").fetchall()
        (locks,) = connection.execute(
            "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
        ).fetchall()
    counted = {(tuple(prefix.split(".")), key): count for prefix, key, count in rows}
    assert counted == dict(uses)
    assert sum(uses.values()) >= len(times) // 2
    assert locks == (0,)
    p50, p99 = np.percentile(times, (50, 99))
    pytestconfig.get_terminal_writer().line(
        f"{len(times):,} recalls by {AGENTS} agents: p50 {1e3 * p50:.0f} ms, "
        f"p99 {1e3 * p99:.0f} ms; memory {memory[0]:.0f} -> {memory[1]:.0f} MB"
    )
    assert memory[1] - memory[0] < MOST_GROWTH_MB


def test_thirty_turns_at_once_share_two_connections_and_have_their_memories(postgres: str) -> None:
    """Waiting for a connection is this process's own affair, and no fault of the database."""
    index: Any = {"dims": 256, "embed": CountingEmbeddings(), "fields": ["content"]}
    pool: Any = {"min_size": 1, "max_size": 2}
    with PostgresStore.from_conn_string(postgres, pool_config=pool, index=index) as inner:
        store = RecallStore(inner)
        store.setup()
        store.put(
            ("memories", "ada"), "seat", {"content": "I always book an aisle seat on flights"}
        )
        model = GenericFakeChatModel(messages=repeat(AIMessage("ok")))
        # Only the queue is longer than by default, for a busy machine.
        recall = RecallMiddleware(("memories", "{user_id}"), queue=60.0)
        graph: Any = create_agent(model, store=store, middleware=[recall])

        def turn(number: int) -> bool:
            said = {"messages": [("user", f"Which aisle seat on flight {number}?")]}
            config = {"configurable": {"user_id": "ada", "thread_id": f"t{number}"}}
            (event,) = graph.stream(said, config, stream_mode="custom")
            return [shown["key"] for shown in event["memories"]] == ["seat"]

        assert turn(0)
        with ThreadPoolExecutor(30) as threads:
            found = list(threads.map(turn, range(1, 31)))
        assert sum(found) >= 29
        assert all(turn(number) for number in range(31, 34))
        store.close()


async def test_threads_that_list_and_write_at_once_do_not_dead_lock(postgres: str) -> None:
    ttl: Any = {"default_ttl": 60, "refresh_on_read": True}
    pool: Any = {"min_size": 1, "max_size": 8}
    async with AsyncPostgresStore.from_conn_string(postgres, ttl=ttl, pool_config=pool) as inner:
        store = RecallStore(inner)
        await store.setup()

        def work(number: int) -> int:
            home = ("memories", f"user{number % 2}")
            for key in range(10):
                store.put(home, f"k{(key * 7 + number) % 10}", {"content": f"note {key}"})
                store.search(("memories",))
            return len(store.search(home))

        with ThreadPoolExecutor(8) as threads:
            loop = asyncio.get_running_loop()
            found = await asyncio.gather(
                *(loop.run_in_executor(threads, work, n) for n in range(16)), return_exceptions=True
            )
        assert found == [10] * 16
        await store.aclose()
