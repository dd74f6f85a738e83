"""A few rows of a catalog with their whole threads: all that their evidence depends on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from langmem_recall.ranking.arrays import Column, IntArray
from langmem_recall.ranking.catalog import Catalog, Links, ThreadOrder
from langmem_recall.ranking.evidence import LexicalMatch


class Window:
    """Stands in for a catalog where the evidence of only some rows is wanted.

    Reading a whole catalog for thirty memories of a hundred thousand pays for the rest.
    """

    def __init__(self, catalog: Catalog, rows: Sequence[int]) -> None:
        whole = catalog.thread_order()
        places = _thread_places(whole, np.array(rows, np.int32))
        self.held: IntArray = whole.rows[places]
        """The row of the catalog at each row of the window."""
        self.rows = len(places)
        self.size = catalog.size
        self.speaker = _taken(catalog.speaker, self.held)
        self.flags = _taken(catalog.flags, self.held)
        self._row_of = {row: place for place, row in enumerate(self.held.tolist())}
        self._order = _cut(whole, places)
        self._places = places
        self._catalog = catalog

    def row(self, row: int) -> int:
        """The window's row of a row of the catalog that it was made for."""
        return self._row_of[row]

    def wording(self, wording: LexicalMatch) -> LexicalMatch:
        """What words find, for these rows."""
        return LexicalMatch._make(column[self.held] for column in wording)

    def thread_order(self) -> ThreadOrder:
        """The layout of the rows, which the window has in the order of their threads."""
        return self._order

    def links(self, previous: float, following: float) -> Links:
        """How much neighbours share when all are known."""
        links = self._catalog.links(previous, following)
        return Links(*(column[self._places] for column in links))


def _thread_places(order: ThreadOrder, rows: IntArray) -> IntArray:
    """The places of these rows and of all that share a thread with them, in order."""
    places = order.place[rows]
    if not order.has_neighbours:
        return np.unique(places)
    threads = np.unique(order.thread_at[places])
    ends = np.append(order.starts, len(order.rows))
    spans = [np.arange(ends[thread], ends[thread + 1]) for thread in threads.tolist()]
    return np.concatenate([*spans, np.zeros(0, np.int64)]).astype(np.int32)


def _cut(order: ThreadOrder, places: IntArray) -> ThreadOrder:
    follows = order.follows[places]
    own = np.arange(len(places), dtype=np.int32)
    return ThreadOrder(
        rows=own,
        place=own,
        thread=order.thread[places],
        starts=np.flatnonzero(~follows).astype(np.int32),
        thread_at=np.cumsum(~follows, dtype=np.int32) - 1,
        follows=follows,
        implied=order.implied[places],
    )


def _taken(column: Column, rows: IntArray) -> Column:
    taken = Column(column.values.dtype)
    taken.extend(column.values[rows])
    return taken
