"""A store around another one: everything the inner one has stays reachable."""

from __future__ import annotations

from typing import Any, Self

from langgraph.store.base import BaseStore, Item, TTLConfig

from langmem_recall.types import Namespace


class StoreWrapper(BaseStore):
    """Delegates what nothing is to be added to."""

    def __init__(self, inner: BaseStore) -> None:
        super().__init__()
        self._inner = inner

    @property
    def inner(self) -> BaseStore:
        """The store that is wrapped."""
        return self._inner

    @property
    def supports_ttl(self) -> bool:  # type: ignore[override]
        """Whether the inner store knows times to live."""
        return self._inner.supports_ttl

    @property
    def ttl_config(self) -> TTLConfig | None:  # type: ignore[override]
        """The inner store's configuration of times to live."""
        return self._inner.ttl_config

    def __enter__(self) -> Self:
        if hasattr(self._inner, "__enter__"):
            self._inner.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        try:
            self.close()
        finally:
            if hasattr(self._inner, "__exit__"):
                self._inner.__exit__(*error)

    async def __aenter__(self) -> Self:
        if hasattr(self._inner, "__aenter__"):
            await self._inner.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        try:
            await self.aclose()
        finally:
            if hasattr(self._inner, "__aexit__"):
                await self._inner.__aexit__(*error)

    def __getattr__(self, name: str) -> Any:
        """Everything else the inner store has."""
        if name == "_inner":
            raise AttributeError(name)
        return getattr(self._inner, name)

    def get(
        self, namespace: Namespace, key: str, *, refresh_ttl: bool | None = None
    ) -> Item | None:
        """One item, as the inner store has it."""
        return self._inner.get(namespace, key, refresh_ttl=refresh_ttl)

    async def aget(
        self, namespace: Namespace, key: str, *, refresh_ttl: bool | None = None
    ) -> Item | None:
        """One item, as the inner store has it."""
        return await self._inner.aget(namespace, key, refresh_ttl=refresh_ttl)

    def close(self) -> None:
        """Nothing of our own to close."""

    async def aclose(self) -> None:
        """Nothing of our own to close."""
