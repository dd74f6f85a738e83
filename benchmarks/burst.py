"""Whether turns have their memories when many come at once, and afterwards.

Run with `python benchmarks/burst.py`. 100 turns at once of an agent with default settings, as tasks
of one event loop and from as many threads, over a LocalStore of 1,000, 10,000 and 50,000 memories,
and 60 over a Postgres pool of two connections. Each turn asks for one memory that is there. Shown
is the share of turns that had it, how long the burst took, and the same for single turns after it.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import logging
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langgraph.store.base import BaseStore, PutOp
from langgraph.store.postgres import PostgresStore
from langgraph.store.postgres.aio import AsyncPostgresStore
from postgres import server
from stores import text_of

from langmem_recall import LocalEmbeddings, LocalStore, RecallMiddleware, RecallStore

HOME, HOMES = ("memories", "ada"), ("memories", "{user_id}")
POOL = {"min_size": 1, "max_size": 2}


def agent_of(store: BaseStore) -> Any:
    """An agent with recall whose model says "ok"."""
    model = GenericFakeChatModel(messages=itertools.repeat(AIMessage("ok")))
    return create_agent(model, store=store, middleware=[RecallMiddleware(HOMES)])


def write(store: BaseStore, size: int) -> None:
    """So many memories, and the one that is asked for."""
    for start in range(0, size, 1_000):
        rows = range(start, min(size, start + 1_000))
        store.batch([PutOp(HOME, f"m{n}", {"content": text_of(n)}) for n in rows])
    store.put(HOME, "seat", {"content": "I always book an aisle seat on flights"})


def asked(number: int) -> tuple[Any, Any, str]:
    """The input, configuration and stream mode of a turn."""
    said = {"messages": [("user", f"Which seat do I book on flights? Trip {number}")]}
    return said, {"configurable": {"user_id": HOME[1], "thread_id": f"t{number}"}}, "custom"


def has_memory(events: Sequence[Any]) -> bool:
    """Whether the memory was shown."""
    return "seat" in [shown["key"] for event in events for shown in event["memories"]]


def turn(agent: Any, number: int) -> bool:
    """One turn."""
    said, config, mode = asked(number)
    return has_memory(list(agent.stream(said, config, stream_mode=mode)))


async def aturn(agent: Any, number: int) -> bool:
    """One turn as a task."""
    said, config, mode = asked(number)
    return has_memory([event async for event in agent.astream(said, config, stream_mode=mode)])


async def in_tasks(agent: Any, count: int) -> tuple[list[bool], float, list[bool]]:
    """A burst of tasks, how long it took, and single turns after it."""
    await aturn(agent, -1)
    began = time.perf_counter()
    burst = await asyncio.gather(*(aturn(agent, number) for number in range(count)))
    seconds = time.perf_counter() - began
    return burst, seconds, [await aturn(agent, count + number) for number in range(10)]


def in_threads(agent: Any, count: int) -> tuple[list[bool], float, list[bool]]:
    """The same from threads."""
    turn(agent, -1)
    began = time.perf_counter()
    with ThreadPoolExecutor(count) as pool:
        burst = list(pool.map(lambda number: turn(agent, number), range(count)))
    seconds = time.perf_counter() - began
    return burst, seconds, [turn(agent, count + number) for number in range(10)]


def show(name: str, measured: tuple[Sequence[bool], float, Sequence[bool]]) -> None:
    """One line of the table."""
    burst, seconds, after = measured
    print(
        f"{name:<44} {sum(burst):>4} of {len(burst):<4} {seconds:>7.2f} {sum(after):>6} of "
        f"{len(after)}",
        flush=True,
    )


async def over_postgres(uri: str, index: Any, count: int) -> tuple[list[bool], float, list[bool]]:
    """A burst over an async store."""
    async with AsyncPostgresStore.from_conn_string(uri, index=index, pool_config=POOL) as inner:
        return await in_tasks(agent_of(RecallStore(inner)), count)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="*", default=[1_000, 10_000, 50_000])
    parser.add_argument("--turns", type=int, default=100)
    parser.add_argument("--postgres-turns", type=int, default=60, help="0: no Postgres")
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    os.environ["LANGSMITH_TRACING"] = "false"
    print(f"{'':<44} {'with memory':>12} {'seconds':>7} {'afterwards':>12}")
    for size in given.sizes:
        store = RecallStore(LocalStore())
        write(store.inner, size)
        show(f"LocalStore of {size:,}, tasks", asyncio.run(in_tasks(agent_of(store), given.turns)))
        show(f"LocalStore of {size:,}, threads", in_threads(agent_of(store), given.turns))
    if not given.postgres_turns:
        return
    index: Any = {"dims": 256, "embed": LocalEmbeddings(), "fields": ["content"]}
    with server() as database:
        uri = database("burst")
        with PostgresStore.from_conn_string(uri, index=index, pool_config=POOL) as inner:
            store = RecallStore(inner)
            store.setup()
            write(inner, 1_000)
            threads = in_threads(agent_of(store), given.postgres_turns)
            show("Postgres, a pool of 2, threads", threads)
        tasks = asyncio.run(over_postgres(uri, index, given.postgres_turns))
        show("Postgres, a pool of 2, tasks", tasks)


if __name__ == "__main__":
    main()
