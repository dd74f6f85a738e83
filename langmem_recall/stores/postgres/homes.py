"""Where the items of a namespace lie, so that a statement need not look on every shard for them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

from langmem_recall.flows.effects import Plan
from langmem_recall.stores.postgres.database import Database, Homes, Statement, path_of
from langmem_recall.types import Namespace

HOMES_AGE_S = 600.0
"""Seconds after which what lies below a namespace is looked up again: others may write there."""
RETRY_S = 60.0
"""The same where not all servers have answered."""
MOST_KNOWN = 100_000
"""Namespaces whose homes are remembered."""
MOST_HOMES = 1_000
"""Homes of a namespace beyond which to name them all costs more than it saves."""

HAS_CITUS = "to_regclass('pg_dist_partition') IS NOT NULL"
IS_PARTED = "coalesce((SELECT relkind = 'p' FROM pg_class WHERE oid = to_regclass('store')), false)"


class KnownHomes:
    """The homes of namespaces as listings have found them.

    Asked for only where the tables are split, by Citus or into partitions: on one table a range
    finds as quickly what another process has put below a namespace a moment ago.
    """

    def __init__(self, nested: bool = True, clock: Callable[[], float] = time.monotonic) -> None:
        self._nested = nested
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[Namespace, tuple[Homes, float]] = {}
        self.missed: dict[Namespace, str] = {}
        """Namespaces of which only known homes could be read, and why."""
        self.has_citus: bool | None = None
        self._is_parted = False

    def learn(self, has_citus: bool, is_parted: bool) -> None:
        """Whether and how the tables are split."""
        self.has_citus, self._is_parted = has_citus, is_parted

    @property
    def is_split(self) -> bool:
        """Whether the tables are split, as far as that is known."""
        return bool(self.has_citus) or self._is_parted

    def is_sharded(self, database: Database) -> Plan[bool]:
        """Whether namespaces may lie on servers of their own; looked up once."""
        if self.has_citus is None:
            (((has_citus, is_parted),),) = yield database.ask(
                Statement(f"SELECT {HAS_CITUS}, {IS_PARTED}")
            )
            self.learn(has_citus, is_parted)
        return bool(self.has_citus)

    def of(self, prefix: Namespace) -> Homes | None:
        """Paths of all at or below a namespace; None where that is not known."""
        if prefix and not self._nested:
            return (path_of(prefix),)
        known = self._known.get(prefix) if self.is_split else None
        return None if known is None or len(known[0]) > MOST_HOMES else known[0]

    def is_due(self, prefix: Namespace) -> bool:
        """Whether what lies below a namespace is to be looked up, for the first time or again."""
        if prefix and not self._nested:
            return False
        _, known_at = self._known.get(prefix, ((), -HOMES_AGE_S))
        return not self.is_split or self._clock() - known_at >= HOMES_AGE_S

    def note(self, prefix: Namespace, paths: Iterable[str], missed: str | None = None) -> None:
        """A look at all below a namespace has found these; in itself more may come at any time.

        `missed`: why it was not a look at all of it.
        """
        age = 0.0 if missed is None else HOMES_AGE_S - RETRY_S
        with self._lock:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
                self.missed.clear()
            homes = tuple(dict.fromkeys((path_of(prefix), *paths)))
            self._known[prefix] = homes, self._clock() - age
            self.missed.pop(prefix, None)
            if missed is not None:
                self.missed[prefix] = missed

    def note_put(self, namespace: Namespace) -> None:
        """Something was put into a namespace, which is a home of those above it from now on."""
        path = path_of(namespace)
        with self._lock:
            for depth in range(len(namespace)):
                known = self._known.get(namespace[:depth])
                if known is not None and path not in known[0]:
                    self._known[namespace[:depth]] = (*known[0], path), known[1]
