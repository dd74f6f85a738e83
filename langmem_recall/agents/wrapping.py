"""Any store of a run as a `RecallStore`, wrapped once for as long as the store lives."""

from __future__ import annotations

import copy
import threading
import weakref
from typing import Any, cast

from langgraph.store.base import BaseStore

from langmem_recall.errors import ConfigurationError, StoreError
from langmem_recall.stores.recall_store import RecallStore


def recall_store(given: BaseStore | None, runtime_store: BaseStore | None) -> RecallStore:
    """The store that recalls in this run.

    Args:
        given: The store the agent part was made with.
        runtime_store: The store of the run, as the platform or `compile(store=...)` set it; used
            where none was given.

    Returns:
        A `RecallStore` as it is; any other store wrapped, with the same index, usage and caches
        for the same store however often it is asked for.
    """
    store = runtime_store if given is None else given
    if store is None:
        raise ConfigurationError(
            "Recall has no store. Compile the graph with store=..., or pass store=... to the "
            "middleware, node or tools."
        )
    if isinstance(store, RecallStore):
        return store
    if not isinstance(store, BaseStore):
        raise ConfigurationError(
            f"The store must be a LangGraph BaseStore, got {type(store).__name__}. "
            "Pass RecallStore(...), LocalStore(...) or any other BaseStore."
        )
    return _wrappers.around(store)


class _Wrappers:
    """One wrapper for each living store, by identity.

    What a wrapper is made of refers to the store weakly, so that this cache keeps no store alive;
    what is handed out refers to it strongly, so that a store lives while it is used.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._kept: dict[int, tuple[weakref.ref[BaseStore], RecallStore]] = {}

    def around(self, store: BaseStore) -> RecallStore:
        """A wrapper around this very store."""
        with self._lock:
            held, kept = self._kept.get(id(store), (None, None))
            if held is None or kept is None or held() is not store:
                kept = RecallStore(cast(BaseStore, _Weakly(store)))
                self._kept[id(store)] = (weakref.ref(store, self._dropping(id(store))), kept)
        wrapper = copy.copy(kept)
        wrapper._inner = store
        return wrapper

    def _dropping(self, place: int) -> Any:
        """Called when a store dies, maybe amid any other call: takes no lock, touches no other."""
        kept = self._kept

        def drop(dead: weakref.ref[BaseStore]) -> None:
            if place in kept and kept[place][0] is dead:
                del kept[place]

        return drop


class _Weakly:
    """Stands for a store in every respect and does not keep it alive."""

    __slots__ = ("__weakref__", "_hash", "_store")

    def __init__(self, store: BaseStore) -> None:
        object.__setattr__(self, "_store", weakref.ref(store))
        object.__setattr__(self, "_hash", _identity(store))

    def __getattribute__(self, name: str) -> Any:
        store = object.__getattribute__(self, "_store")()
        if store is None:
            raise StoreError("The store of an earlier run is gone. Keep a reference to the store.")
        return getattr(store, name)

    # Locks and caches kept by store must find the same entry through this one.
    def __hash__(self) -> int:
        return cast(int, object.__getattribute__(self, "_hash"))

    def __eq__(self, other: object) -> bool:
        store = object.__getattribute__(self, "_store")()
        if type(other) is _Weakly:
            other = object.__getattribute__(other, "_store")()
        return store is not None and store is other


def _identity(store: BaseStore) -> int:
    """The store's own hash; its address where it has none."""
    try:
        return hash(store)
    except TypeError:
        return id(store)


_wrappers = _Wrappers()
