from __future__ import annotations

import threading

import pytest

from langmem_recall.flows.effects import Host, run
from langmem_recall.flows.usage import Ledger
from langmem_recall.stores.local.backend import LocalUsage
from langmem_recall.stores.local.store import LocalStore

TEA = (("memories", "ada"), "tea")
FLOOR_S = 60.0


@pytest.fixture
def local() -> LocalStore:
    return LocalStore(index=False)


def test_a_reading_from_before_a_flush_does_not_undo_what_the_flush_left(
    local: LocalStore,
) -> None:
    ledger = Ledger(LocalUsage(local), 0.99, threading.Lock())
    host = Host(local, local)
    ledger.record([TEA], 100.0, FLOOR_S)
    reading = ledger.usages(TEA[0], [TEA], 100.0, 30.0)
    read_too_early = host.perform(next(reading))
    assert run(ledger.flush(), host) == 1
    with pytest.raises(StopIteration) as ended:
        reading.send(read_too_early)
    assert [usage.uses for usage in ended.value.value] == [1]
    # Within the floor of the use that was flushed: no second one.
    ledger.record([TEA], 130.0, FLOOR_S)
    assert not ledger.has_pending
    assert [usage.uses for usage in local.read_usage([TEA])] == [1]
