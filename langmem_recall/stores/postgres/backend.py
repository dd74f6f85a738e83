"""LangGraph's Postgres stores as a backend: few round trips, exact counts, plain reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langgraph.store.base import BaseStore, GetOp, Item, PutOp, SearchOp

from langmem_recall.errors import InputError
from langmem_recall.flows.backend import OnProgress
from langmem_recall.flows.candidates import ReadRequest, id_of, listing
from langmem_recall.flows.effects import Effect, Ops, Plan
from langmem_recall.stores.backend import (
    Clock,
    Fetched,
    GenericBackend,
    NamespaceIndex,
    fetch_with_ops,
)
from langmem_recall.stores.postgres.database import (
    NO_RIGHT,
    READ_ONLY,
    Database,
    Statement,
    below,
    bounds,
    explained,
    namespace_of,
)
from langmem_recall.stores.postgres.schema import is_set_up
from langmem_recall.stores.postgres.search import PostgresReads
from langmem_recall.stores.postgres.usage import PostgresUsage
from langmem_recall.stores.postgres.vectors import check_owner, embed_anew
from langmem_recall.types import Namespace

_IDS_BELOW = f"""
SELECT prefix, key FROM store WHERE {below("prefix")}
ORDER BY prefix COLLATE "C", key COLLATE "C" LIMIT %s OFFSET %s"""


class PostgresBackend(GenericBackend):
    """A Postgres store: statements of our own beside the store's."""

    makes_tables = True
    most_searches = None

    def __init__(self, store: BaseStore, clock: Clock, index_limit: int, max_age_s: float) -> None:
        super().__init__(store, clock, index_limit, max_age_s)
        # More than there are connections would only wait for one.
        self.at_a_time = getattr(getattr(store, "conn", None), "max_size", 1)
        self._database = Database(store)
        self._reads = PostgresReads(self._database)
        self.usage = PostgresUsage(self._database)
        self._is_unchecked = True

    def settle(self) -> Plan[None]:
        """End what a store in pipeline mode has left open, whose clock stands still until then."""
        return self._database.settle()

    def items_below(
        self, prefix: Namespace, offset: int, limit: int
    ) -> Plan[tuple[list[Item], int]]:
        """Some items at or below a namespace by name, and how many places they took."""
        statement = Statement(_IDS_BELOW, (*bounds(prefix), limit, offset))
        (rows,) = yield self._database.ask(statement)
        gets = [GetOp(namespace_of(path), key, refresh_ttl=False) for path, key in rows]
        found: list[Item | None] = yield Ops(gets)
        return [item for item in found if item is not None], len(rows)

    def check_vectors(self) -> Plan[None]:
        """Before the first write: refuse to add vectors of one embedder to those of another."""
        if self._is_unchecked:
            yield from check_owner(self._database)
            self._is_unchecked = False

    def set_up(self) -> Plan[None]:
        """Note whose vectors the store has."""
        return check_owner(self._database, claim=True)

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
        others = [
            op._replace(refresh_ttl=False) if isinstance(op, SearchOp) else op
            for op in effect.ops
            if not isinstance(op, GetOp)
        ]
        with explained():
            items = iter((yield from self._reads.items(gets)))
            answers = iter((yield Ops(others, effect.sidecar)))
        return [next(items if isinstance(op, GetOp) else answers) for op in effect.ops]

    def _fetch(
        self,
        searches: Sequence[SearchOp],
        gets: Sequence[GetOp],
        index: NamespaceIndex,
        request: ReadRequest,
    ) -> Plan[Fetched]:
        if not self._reads.can_search(searches):
            return fetch_with_ops(searches, gets)
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
        fetched = yield from fetch_with_ops([listed], gets)
        if index.catalog.size or not request.prefix:
            return fetched
        texts, most = request.cue.searched, request.policy.pool
        found = yield from self._reads.worded(request.prefix, texts, most)
        return fetched._replace(items={**fetched.items, **{id_of(item): item for item in found}})

    def _changes(
        self, prefix: Namespace, index: NamespaceIndex
    ) -> Plan[tuple[list[Item], int]] | None:
        newest = index.newest if prefix else None
        return None if newest is None else self._reads.changes(prefix, newest)

    def _list(self, prefix: Namespace) -> Plan[list[Item]]:
        limit = self._index_limit
        return self._reads.listing(prefix, limit) if prefix else listing(prefix, limit)
