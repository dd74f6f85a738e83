"""Embedding everything anew after the embedder has changed."""

from __future__ import annotations

from langgraph.store.base import BaseStore

from langmem_recall.flows.backend import Backend, OnProgress
from langmem_recall.flows.effects import Host, arun, run
from langmem_recall.stores.backend import backend_of
from langmem_recall.stores.recall_store import RecallStore

BATCH = 256


def reindex(store: BaseStore, progress: OnProgress | None = None, *, batch: int = BATCH) -> int:
    """Make every vector of a store anew with the embedder it is configured with.

    Vectors of two embedders are never compared with each other. Stopped at any point, it goes on
    from there when it is called again.

    Args:
        store: A LocalStore or Postgres store, or a `RecallStore` around one.
        progress: Called after each batch with how many are done, and of how many.
        batch: Texts that the embedder gets at a time.

    Returns:
        How many were embedded by this call.
    """
    backend = _backend(store)
    host = Host(backend.store, backend.store, backend.embeddings)
    return run(backend.reindex(progress, batch), host)


async def areindex(
    store: BaseStore, progress: OnProgress | None = None, *, batch: int = BATCH
) -> int:
    """The async twin of `reindex`."""
    backend = _backend(store)
    host = Host(backend.store, backend.store, backend.embeddings)
    return await arun(backend.reindex(progress, batch), host)


def _backend(store: BaseStore) -> Backend:
    return backend_of(store.inner if isinstance(store, RecallStore) else store)
