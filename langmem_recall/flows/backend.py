"""What an engine gives the flows; `stores.backend` makes one of any store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from langchain_core.embeddings import Embeddings
from langgraph.store.base import BaseStore, Item, SearchItem

from langmem_recall.flows.candidates import (
    Gate,
    NamespaceView,
    ReadRequest,
    ReadResult,
)
from langmem_recall.flows.effects import MOST_AT_A_TIME, Effect, Ops, Plan
from langmem_recall.flows.usage import UsageBackend
from langmem_recall.ranking.calibration import NullDistribution
from langmem_recall.types import MemoryId, Namespace

Null = Callable[[], Plan[NullDistribution]]
"""Gets what unrelated texts have under the store's embedder."""
ENOUGH = 0.75
"""Of the time that a turn has left, what it waits for meaning; the rest is for the words."""
OnProgress = Callable[[int, int], None]
"""Called after each batch with how many are done and how many there are."""


class Backend(Protocol):
    """One engine: a store, and what is done with it in another way than with any other store."""

    store: BaseStore
    usage: UsageBackend
    """Where usage is kept when this is the store of the side-car."""
    at_a_time: int = MOST_AT_A_TIME
    """Reads of turns that are under way at a time; more would only take longer each."""
    in_thread: tuple[type, ...] = ()
    """Effects that it carries out in a thread under a loop, too."""
    has_vectors: bool
    """Whether it can search by meaning, as far as it tells."""
    needs_loop: bool
    """Whether it answers only while its event loop runs."""
    queries_as_documents: bool = True
    """Whether it embeds queries as if they were documents, as most stores do."""
    holds_words: bool = False
    """Whether it has the words of a namespace of any size."""
    embeds_phrasings: bool = False
    """Whether it embeds a memory's phrasings with its text by itself; others embed by field."""
    takes_vectors: bool = False
    """Whether an import can write times and vectors as they were exported."""
    makes_tables: bool = False
    """Whether `set_up` has anything to do."""
    records: Callable[[Ops], Plan[list[Any]]] | None = None
    """Where the side-car is kept, when this is its store, instead of in items."""

    @property
    def embeddings(self) -> Embeddings | None:
        """The embedder that the store has now, where it shows one."""

    @property
    def refreshes_ttl(self) -> bool:
        """Whether a read may start a memory's time to live again."""

    def view(self, prefix: Namespace) -> Plan[NamespaceView]:
        """The words of a namespace and, where they are held, its vectors."""

    def find(self, request: ReadRequest, view: Any, null: Null, gate: Gate) -> Plan[ReadResult]:
        """Candidates with evidence; `view` is what `view` gave, None where words cannot be read.

        What the gate keeps out takes no place among them. The null distribution is asked for when
        all else is there: it may be on its way.
        """

    def note_put(
        self, namespace: Namespace, key: str, value: Mapping[str, Any], now: datetime
    ) -> None:
        """An item was written through this process."""

    def note_delete(self, namespace: Namespace, key: str) -> None:
        """An item was deleted through this process."""

    def items_below(
        self, prefix: Namespace, offset: int, limit: int
    ) -> Plan[tuple[list[Item], int]]:
        """Some items at or below a namespace by name, and how many places they took."""

    def settle(self) -> Plan[None]:
        """Let the clock of the store's next statement be right."""

    def check_vectors(self) -> Plan[None]:
        """Before the first write: whether the vectors that are there are of the same embedder."""

    def without_vectors(
        self, prefix: Namespace, probe: Sequence[float]
    ) -> Plan[list[MemoryId] | None]:
        """Memories that no vector is kept of; None where a store does not tell."""

    def reindex(self, progress: OnProgress | None, batch: int) -> Plan[int]:
        """Make every vector anew; returns how many were made."""

    def set_up(self, distribute: bool | None = None) -> Plan[None]:
        """Make what is kept in the store besides its items, after its own `setup`."""

    def is_set_up(self) -> Plan[bool | None]:
        """Whether `set_up` has been done in the newest version; None where it does nothing."""

    def misplaced(self) -> Plan[list[str] | None]:
        """What is wrong with where the tables lie, a sentence each; None where nothing is split."""

    def nearest(self, namespace: Namespace, text: str, limit: int) -> Plan[list[SearchItem]]:
        """The memories of a namespace, and perhaps of those below it, nearest to a text."""

    def erase(self, prefix: Namespace) -> Plan[int | None]:
        """Delete all below a namespace, expired items too; None where that goes item by item."""

    def compact(self) -> bool:
        """Rewrite the store without what was deleted; False where it cannot, or not now."""

    def recover(self, effect: Effect, error: Exception) -> Plan[Any]:
        """Another way to an effect that failed; raises what callers are to see."""
