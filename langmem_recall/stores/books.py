"""Which book keeps the usage of a store, and what is made for it in a database."""

from __future__ import annotations

from collections.abc import Awaitable
from inspect import isawaitable
from typing import Any

from langgraph.store.base import BaseStore

from langmem_recall.flows.effects import Plan
from langmem_recall.sources import UsageTable
from langmem_recall.stores.ledger import SidecarBook, TableBook, UsageBook
from langmem_recall.stores.postgres.database import database_of
from langmem_recall.stores.postgres.host import explained
from langmem_recall.stores.postgres.usage import PostgresBook
from langmem_recall.stores.postgres.vectors import claim


def prepare(store: BaseStore) -> Any:
    """Set a store up, where it needs that; what it returns is to be awaited where that is async."""
    set_up = getattr(store, "setup", None)
    with explained():
        prepared = set_up() if set_up else None
    return _explained(prepared) if isawaitable(prepared) else prepared


async def _explained(prepared: Awaitable[Any]) -> Any:
    with explained():
        return await prepared


def make_tables(book: UsageBook, inner: BaseStore) -> Plan[None]:
    """What we keep in Postgres: the usage table, and whose vectors the memories have."""
    if isinstance(book, PostgresBook):
        yield from book.set_up()
    database = database_of(inner)
    if database is not None:
        yield from claim(database)


def has_tables(book: UsageBook, inner: BaseStore) -> bool:
    """Whether `make_tables` has anything to do."""
    return isinstance(book, PostgresBook) or database_of(inner) is not None


def book_of(store: BaseStore) -> UsageBook:
    """A table where the store has one or can have one, else items beside the memories."""
    if isinstance(store, UsageTable):
        return TableBook(store)
    database = database_of(store)
    return SidecarBook() if database is None else PostgresBook(database)
