"""LangGraph's Postgres stores as a backend: few round trips, exact counts, plain reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from langgraph.store.base import BaseStore, GetOp, Item, PutOp, SearchItem, SearchOp

from langmem_recall.errors import ConfigurationError, InputError
from langmem_recall.flows.backend import OnProgress
from langmem_recall.flows.candidates import ReadRequest, id_of, listing
from langmem_recall.flows.effects import Effect, Ops, Plan
from langmem_recall.stores.backend import (
    Clock,
    Fetched,
    GenericBackend,
    NamespaceIndex,
)
from langmem_recall.stores.postgres import citus
from langmem_recall.stores.postgres.database import (
    NO_RIGHT,
    READ_ONLY,
    Database,
    explained,
)
from langmem_recall.stores.postgres.schema import is_set_up, set_up
from langmem_recall.stores.postgres.search import PostgresReads
from langmem_recall.stores.postgres.sidecar import PostgresSidecar, take_over
from langmem_recall.stores.postgres.vectors import check_owner, embed_anew
from langmem_recall.types import SIDECAR_ROOT, Namespace


class PostgresBackend(GenericBackend):
    """A Postgres store: statements of our own beside the store's."""

    makes_tables = True
    most_searches = None

    def __init__(
        self,
        store: BaseStore,
        clock: Clock,
        index_limit: int,
        max_age_s: float,
        nested: bool = True,
    ) -> None:
        super().__init__(store, clock, index_limit, max_age_s)
        self._database = Database(store, nested)
        # More would only wait for a connection.
        self.at_a_time = self._database.connections
        self._reads = PostgresReads(self._database)
        self.usage: PostgresSidecar = PostgresSidecar(self._database)
        self.records = self.usage.perform
        self._is_unchecked = True

    def settle(self) -> Plan[None]:
        """End what a store in pipeline mode has left open, whose clock stands still until then."""
        return self._database.settle()

    def items_below(
        self, prefix: Namespace, offset: int, limit: int
    ) -> Plan[tuple[list[Item], int]]:
        """Some items at or below a namespace by name, and how many places they took."""
        by_name = 's.prefix COLLATE "C", s.key COLLATE "C"'
        op = SearchOp(prefix, None, limit, offset)
        items: list[Item] = yield from self._reads.ordered(op, by_name)
        return items, len(items)

    def check_vectors(self) -> Plan[None]:
        """Before the first write: refuse to add vectors of one embedder to those of another."""
        if self._is_unchecked:
            yield from check_owner(self._database)
            self._is_unchecked = False

    def set_up(self, distribute: bool | None = None) -> Plan[None]:
        """Make our tables, distributed where they are to be, and note whose vectors there are."""
        if distribute and citus.refuses(self.store):
            raise ConfigurationError(
                f"Citus refuses statements of {type(self.store).__name__}. Open the database with "
                "CitusStore or AsyncCitusStore of langmem_recall.stores.postgres.citus; nothing "
                "was distributed."
            )
        yield from set_up(self._database)
        self.usage.is_missing = False
        yield from take_over(self._database)
        yield from check_owner(self._database, claim=True)
        yield from citus.distribute(self._database, distribute)

    def misplaced(self) -> Plan[list[str] | None]:
        """What is wrong with where Citus has the tables."""
        return citus.misplaced(self._database)

    def erase(self, prefix: Namespace) -> Plan[int | None]:
        """Delete records of the side-car; memories go item by item."""
        if prefix[0] == SIDECAR_ROOT:
            return (yield from self.usage.erase(prefix))
        return None

    def nearest(self, namespace: Namespace, text: str, limit: int) -> Plan[list[SearchItem]]:
        """The memories of this very namespace that are nearest to a text."""
        op = SearchOp(namespace, None, limit, 0, text, refresh_ttl=False)
        if not self._reads.can_search([op]):
            return (yield from super().nearest(namespace, text, limit))
        fetched = yield from self._reads.fetch([op], [], exact=True)
        return fetched.pages[0]

    def note_put(
        self, namespace: Namespace, key: str, value: Mapping[str, Any], now: datetime
    ) -> None:
        """An item was written through this process."""
        self._database.homes.note_put(namespace)
        super().note_put(namespace, key, value, now)

    def is_set_up(self) -> Plan[bool | None]:
        """Whether the database has the newest version of our tables."""
        return is_set_up(self._database)

    def reindex(self, progress: OnProgress | None, batch: int) -> Plan[int]:
        """Make every vector anew beside the old ones, then put them in place."""
        if self.embeddings is None:
            raise InputError(
                "The store has no embedder, so there are no vectors. Configure `index`."
            )
        return embed_anew(self._database, progress, batch)

    def recover(self, effect: Effect, error: Exception) -> Plan[Any]:
        """Read without a trace what may only be read: the store's own reads have an UPDATE."""
        is_refused = getattr(error, "sqlstate", None) in (READ_ONLY, NO_RIGHT)
        is_read = isinstance(effect, Ops) and not any(isinstance(op, PutOp) for op in effect.ops)
        if is_refused and is_read:
            return self._read_plainly(effect)
        with explained():
            raise error

    def _read_plainly(self, effect: Any) -> Plan[list[Any]]:
        """What is asked for, without refreshing times to live."""
        gets = [op for op in effect.ops if isinstance(op, GetOp)]
        others = [op for op in effect.ops if not isinstance(op, GetOp)]
        plain = [
            op._replace(refresh_ttl=False) if isinstance(op, SearchOp) else op for op in others
        ]
        with explained():
            items = yield from self._reads.items(gets)
            answers = iter((yield Ops(plain, effect.sidecar)))
        return [
            items[op.namespace, op.key] if isinstance(op, GetOp) else next(answers)
            for op in effect.ops
        ]

    def _unread(self, prefix: Namespace) -> list[str]:
        missed = self._database.homes.missed.get(prefix)
        note = f"what lies below the namespace cannot be read ({missed}); without it"
        return [] if missed is None else [note]

    def _fetch(
        self,
        searches: Sequence[SearchOp],
        gets: Sequence[GetOp],
        index: NamespaceIndex,
        request: ReadRequest,
    ) -> Plan[Fetched]:
        if not self._reads.can_search(searches):
            return super()._fetch(searches, gets, index, request)
        is_filled = index.filled_at is not None
        return self._reads.fetch(
            searches,
            gets,
            () if index.catalog.size else request.cue.searched,
            most=request.policy.pool,
            size=index.catalog.size if is_filled else None,
            known=index.known if is_filled else None,
        )

    def _fetch_words(
        self, listed: SearchOp, gets: Sequence[GetOp], index: NamespaceIndex, request: ReadRequest
    ) -> Plan[Fetched]:
        if not listed.namespace_prefix:
            return (yield from super()._fetch_words(listed, gets, index, request))
        page = yield from self._reads.ordered(listed, "s.updated_at DESC")
        found = yield from self._reads.items(gets)
        if not index.catalog.size:
            texts, most = request.cue.searched, request.policy.pool
            worded = yield from self._reads.worded(request.prefix, texts, most)
            found |= {id_of(item): item for item in worded}
        return Fetched([page], found)

    def _changes(
        self, prefix: Namespace, index: NamespaceIndex
    ) -> Plan[tuple[list[Item], int]] | None:
        newest = index.newest if prefix else None
        return None if newest is None else self._reads.changes(prefix, newest)

    def _list(self, prefix: Namespace) -> Plan[list[Item]]:
        limit = self._index_limit
        return self._reads.listing(prefix, limit) if prefix else listing(prefix, limit)
