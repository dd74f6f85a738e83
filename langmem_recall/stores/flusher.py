"""Write-behind: pending usage is written a moment later, off the caller's path."""

from __future__ import annotations

import asyncio
import atexit
import logging
import threading
import weakref
from typing import TYPE_CHECKING

from tenacity import RetryCallState, Retrying, wait_exponential, wait_random
from tenacity.nap import sleep_using_event

from langmem_recall.errors import described

if TYPE_CHECKING:
    from langmem_recall.stores.recall_store import RecallStore

logger = logging.getLogger(__name__)

PATIENCE = wait_exponential(multiplier=0.5, max=30.0) + wait_random(0, 0.5)
"""Longer between tries each time; with jitter, so that processes do not all come back at once."""


class Flusher:
    """One flush at most every interval, in a thread of its own: no turn, and no loop, waits for it.

    A flush that fails is tried again, later each time and never at the same moment as those of
    other processes; that is safe, because a ledger writes what is pending only once.
    """

    def __init__(self, owner: RecallStore, interval_s: float) -> None:
        self._owner = weakref.ref(owner)
        self._interval_s = interval_s
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread: threading.Timer | None = None
        self._is_nudged_again = self._is_flushing = False
        _open_stores.add(owner)

    def nudge(self) -> None:
        """There is something to write."""
        with self._lock:
            # In a forked process it is dead.
            if self._thread is not None and self._thread.is_alive():
                self._is_nudged_again = True
                return
            self._stopped, loop = threading.Event(), asyncio._get_running_loop()
            self._thread = threading.Timer(self._interval_s, self._run, (self._stopped, loop))
            self._thread.daemon = True
            self._thread.start()

    def stop(self) -> None:
        """Nothing more will be written behind; a flush under way is not waited for."""
        with self._lock:
            thread, self._thread, self._is_nudged_again = self._thread, None, False
            self._stopped.set()
        if thread is not None:
            thread.cancel()
            if not self._is_flushing:
                thread.join()
        owner = self._owner()
        if owner is not None:
            _open_stores.discard(owner)

    def _run(self, stopped: threading.Event, loop: asyncio.AbstractEventLoop | None) -> None:
        try:
            sleep = sleep_using_event(stopped)
            Retrying(wait=PATIENCE, before_sleep=_say, sleep=sleep)(self._flush, stopped, loop)
        finally:
            # What came in the meantime gets another flush.
            with self._lock:
                is_own = stopped is self._stopped
                again = is_own and self._is_nudged_again
                if is_own:
                    self._thread, self._is_nudged_again = None, False
            if again:
                self.nudge()

    def _flush(self, stopped: threading.Event, loop: asyncio.AbstractEventLoop | None) -> None:
        # In this order: a caller that stops it sees that it flushes, or it sees that it is stopped.
        self._is_flushing, self._is_nudged_again = True, False
        try:
            owner = None if stopped.is_set() else self._owner()
            # A store that lives in a loop cannot write once that has ended.
            has_ended = loop is not None and not loop.is_running()
            if owner is not None and not (owner.needs_loop and has_ended):
                owner.flush()
        finally:
            self._is_flushing = False


def _say(state: RetryCallState) -> None:
    fault = state.outcome.exception() if state.outcome else None
    reason = described(fault) if fault else ""
    logger.warning("Usage could not be written; it stays pending: %s", reason)


_open_stores: weakref.WeakSet[RecallStore] = weakref.WeakSet()


@atexit.register
def _flush_all() -> None:
    for owner in list(_open_stores):
        # Its loop is gone by now, and a sync call would wait for it for ever.
        if not owner.needs_loop:
            try:
                owner.flush()
            except Exception as fault:
                logger.warning("Usage could not be written; it is lost: %s", described(fault))
