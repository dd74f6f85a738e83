"""Embedding everything anew after the embedder has changed."""

from __future__ import annotations

import asyncio

from langgraph.store.base import BaseStore

from langmem_recall.errors import InputError
from langmem_recall.flows.effects import Host, arun, run
from langmem_recall.stores.local.store import LocalStore
from langmem_recall.stores.postgres.database import Database, database_of
from langmem_recall.stores.postgres.vectors import Progress, embed_anew
from langmem_recall.stores.recall_store import RecallStore

BATCH = 256


def reindex(store: BaseStore, progress: Progress | None = None, *, batch: int = BATCH) -> int:
    """Make every vector of a store anew with the embedder it is configured with.

    Vectors of two embedders are never compared with each other. Stopped at any point, it goes on
    from there when it is called again.

    Args:
        store: A LocalStore or Postgres store, or a `RecallStore` around one.
        progress: Told after each batch how many are done, and of how many.
        batch: Texts that the embedder gets at a time.

    Returns:
        How many were embedded by this call.
    """
    inner = store.inner if isinstance(store, RecallStore) else store
    if isinstance(inner, LocalStore):
        return inner.reindex(progress)
    database = _database(inner)
    return run(embed_anew(database, progress, batch), _host(inner))


async def areindex(
    store: BaseStore, progress: Progress | None = None, *, batch: int = BATCH
) -> int:
    """The async twin of `reindex`."""
    inner = store.inner if isinstance(store, RecallStore) else store
    if isinstance(inner, LocalStore):
        return await asyncio.to_thread(inner.reindex, progress)
    database = _database(inner)
    return await arun(embed_anew(database, progress, batch), _host(inner))


def _database(store: BaseStore) -> Database:
    database = database_of(store)
    if database is None:
        raise InputError(
            f"reindex knows LocalStore and LangGraph's Postgres stores, got {type(store).__name__}."
            " Put its memories into a new store instead, which embeds them."
        )
    if database.store.embeddings is None:
        raise InputError("The store has no embedder, so there are no vectors. Configure `index`.")
    return database


def _host(store: BaseStore) -> Host:
    return Host(store, store, getattr(store, "embeddings", None))
