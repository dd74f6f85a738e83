"""LangGraph's Postgres stores from within: several statements in one round trip."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from langgraph.store.base import BaseStore
from langgraph.store.base.batch import AsyncBatchedBaseStore

from langmem_recall.drive import Call
from langmem_recall.types import Namespace

Rows = list[tuple[Any, ...]]
UNDEFINED_TABLE = "42P01"


class Statement(NamedTuple):
    """SQL and its parameters."""

    sql: str
    params: tuple[Any, ...] = ()


class Database:
    """The connections of a Postgres store: a pool, one connection or a pipeline, sync or async.

    Statements that are asked together travel together and share a transaction, so a setting made
    for the transaction by one of them holds for the next.
    """

    def __init__(self, store: Any) -> None:
        self.store = store
        self._is_async = isinstance(store, AsyncBatchedBaseStore)

    def ask(self, *statements: Statement) -> Call:
        """The rows of each statement, in one round trip."""
        if self._is_async:
            return Call(partial(self._run_elsewhere, statements), partial(self._arun, statements))
        return Call(partial(self._run, statements))

    def _run(self, statements: Sequence[Statement]) -> list[Rows]:
        with self.store._cursor(pipeline=True) as cursor:
            cursors = [cursor.connection.cursor(binary=True, row_factory=_plain_row)]
            cursors += [cursor.connection.cursor(binary=True, row_factory=_plain_row) for _ in statements[1:]]
            for one, statement in zip(cursors, statements, strict=True):
                one.execute(statement.sql, statement.params)
            return [one.fetchall() if one.description else [] for one in cursors]
