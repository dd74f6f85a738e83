"""Custom stores for `"store": {"path": ...}`: async context managers that the platform enters.

It does so once for each thread that runs an event loop. So memories belong in a file or a database,
never in the process.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from langgraph.store.base import BaseStore

from langmem_recall import LocalEmbeddings, LocalStore, RecallStore

embeddings = LocalEmbeddings()
"""Also for the platform's own store, by `"embed": "./store.py:embeddings"`."""


@asynccontextmanager
async def local_store() -> AsyncIterator[BaseStore]:
    """One file, MEMORY_FILE or memory.db: for one machine and any number of processes."""
    path = os.environ.get("MEMORY_FILE", "memory.db")
    # Opening a file blocks, which an event loop must not.
    opened = await asyncio.to_thread(LocalStore, path, embeddings=embeddings)
    async with RecallStore(opened) as store:
        yield store


@asynccontextmanager
async def postgres_store() -> AsyncIterator[BaseStore]:
    """The database at MEMORY_URI: for any number of machines."""
    from langgraph.store.postgres import AsyncPostgresStore

    async with AsyncPostgresStore.from_conn_string(
        os.environ["MEMORY_URI"],
        pool_config={"min_size": 1, "max_size": 10},
        index={"dims": 256, "embed": embeddings, "fields": ["content"]},
    ) as inner:
        store = RecallStore(inner)
        await store.asetup()
        try:
            yield store
        finally:
            await store.aclose()
