"""What a store may offer beyond `BaseStore`: all its evidence, a usage table, erasure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, runtime_checkable

from langgraph.store.base import Item

from langmem_recall.ranking.arrays import BoolArray, FloatArray
from langmem_recall.ranking.catalog import Catalog
from langmem_recall.types import MemoryId, Namespace, Usage, UsageDelta


class Shelf(Protocol):
    """All a store knows of the memories under one namespace. Every call needs `lock` held."""

    @property
    def lock(self) -> AbstractContextManager[Any]:
        """Held by readers and writers; rows keep their meaning only while it is held."""

    @property
    def catalog(self) -> Catalog:
        """Words, threads and speakers by row."""

    def cosines(self, vectors: Sequence[Sequence[float]]) -> FloatArray:
        """Similarity of each query vector (rows of the result) with each memory; NaN: no vector."""

    def matching(self, filter: Mapping[str, Any] | None) -> BoolArray:
        """Which rows are live, not expired, and pass the filter."""

    def items(self, rows: Sequence[int]) -> list[Item | None]:
        """The stored items at these rows; None for one that is gone."""

    def similarity(self, rows: Sequence[int]) -> FloatArray:
        """Cosine between each two of these memories; NaN where one has no vector."""


@runtime_checkable
class EvidenceSource(Protocol):
    """A store that can lay a whole namespace open, so that ranking sees every memory."""

    def shelf(self, namespace: Namespace) -> Shelf:
        """Everything at or below this namespace; loads it when it is not in memory yet."""


@runtime_checkable
class UsageTable(Protocol):
    """A store that keeps usage itself, with atomic additions."""

    def read_usage(self, ids: Sequence[MemoryId]) -> list[Usage]:
        """Usage of each memory, in order; an empty record for one never used."""

    def add_usage(self, touches: Mapping[MemoryId, UsageDelta], fade_per_day: float) -> None:
        """Add uses, durably, all or none; the count fades by `fade_per_day` for each day passed."""

    def drop_usage(self, ids: Sequence[MemoryId]) -> None:
        """Forget the usage of these memories."""

    def drop_usage_below(self, namespace: Namespace) -> int:
        """Forget all usage at or below a namespace; returns of how many memories."""


@runtime_checkable
class Erasable(Protocol):
    """A store that can delete a whole namespace and every byte that deleting leaves behind."""

    def erase(self, namespace: Namespace) -> int:
        """Delete everything at or below a namespace, expired items too; returns how many items."""

    def compact(self) -> bool:
        """Rewrite the file without what was deleted; False when a reader stood in the way."""
