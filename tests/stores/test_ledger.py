from __future__ import annotations

import threading
from functools import partial
from pathlib import Path

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


def test_a_reading_that_may_not_be_old_sees_what_another_process_has_just_counted(
    tmp_path: Path,
) -> None:
    path = tmp_path / "memory.db"
    with LocalStore(path, index=False) as ours, LocalStore(path, index=False) as theirs:
        ledger, host = Ledger(LocalUsage(ours), 0.99, threading.Lock()), Host(ours, ours)
        other = Ledger(LocalUsage(theirs), 0.99, threading.Lock())
        read = partial(ledger.usages, TEA[0], [TEA], 100.0)
        assert [usage.uses for usage in run(read(30.0), host)] == [0]
        other.record([TEA], 100.0, FLOOR_S)
        assert run(other.flush(), Host(theirs, theirs)) == 1
        # Nothing has looked at the file since: what was read may be 30 s old, or not old at all.
        assert [usage.uses for usage in run(read(30.0), host)] == [0]
        assert [usage.uses for usage in run(read(0.0), host)] == [1]
