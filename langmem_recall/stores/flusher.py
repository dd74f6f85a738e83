"""Write-behind: pending usage is written a moment later, off the caller's path."""

from __future__ import annotations

import asyncio
import atexit
import logging
import threading
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING

from tenacity import AsyncRetrying, RetryCallState, Retrying, wait_exponential, wait_random
from tenacity.nap import sleep_using_event

from langmem_recall.errors import described

if TYPE_CHECKING:
    from langmem_recall.stores.recall_store import RecallStore

logger = logging.getLogger(__name__)

PATIENCE = wait_exponential(multiplier=0.5, max=30.0) + wait_random(0, 0.5)
"""Longer between tries each time; with jitter, so that processes do not all come back at once."""


class Flusher:
    """One flush at most every interval: by a timer thread, or by a task where a loop runs.

    A flush that fails is tried again, later each time and never at the same moment as those of
    other processes; that is safe, because a ledger writes what is pending only once.
    """

    def __init__(self, owner: RecallStore, interval_s: float) -> None:
        self._owner = weakref.ref(owner)
        self._interval_s = interval_s
        self._lock = threading.Lock()
        self._turn: _Turn | None = None
        self._is_nudged_again = False
        _open_stores.add(owner)

    def nudge(self) -> None:
        """There is something to write."""
        with self._lock:
            if self._turn is not None and self._turn.is_alive:
                self._is_nudged_again = True
            else:
                self._turn = _Turn(self, self._interval_s)

    def stop(self) -> None:
        """Nothing more will be written behind."""
        with self._lock:
            turn, self._turn, self._is_nudged_again = self._turn, None, False
        if turn is not None:
            turn.stop()
        owner = self._owner()
        if owner is not None:
            _open_stores.discard(owner)

    def begin(self) -> RecallStore | None:
        """The store to flush now; None where nothing refers to it any more."""
        self._is_nudged_again = False
        return self._owner()

    def end(self, turn: _Turn) -> None:
        """A turn is over; what came in the meantime gets another one."""
        with self._lock:
            if self._turn is not turn:
                return
            self._turn = None
            again, self._is_nudged_again = self._is_nudged_again, False
        if again:
            self.nudge()


class _Turn:
    """A flush after a while with its tries: a task of a running loop, else a thread of its own."""

    def __init__(self, flusher: Flusher, interval_s: float) -> None:
        self._flusher = flusher
        self._stopped = threading.Event()
        self._is_flushing = False
        self._task: asyncio.Task[None] | None = None
        self._loop = asyncio._get_running_loop()
        if self._loop is None:
            self._thread = threading.Timer(interval_s, self._run)
            self._thread.daemon = True
            self._thread.start()
        else:
            self._timer = self._loop.call_later(interval_s, self._start)

    @property
    def is_alive(self) -> bool:
        """Whether it will still flush; not in a forked process, nor in a loop that has ended."""
        return self._thread.is_alive() if self._loop is None else self._loop.is_running()

    def stop(self) -> None:
        """Try no more; a thread that is at it is not waited for, a task is given up."""
        self._stopped.set()
        if self._loop is None:
            self._thread.cancel()
            if not self._is_flushing:
                self._thread.join()
            return
        self._timer.cancel()
        if self._task is not None:
            # The loop may be closed by now, and is maybe another thread's.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._task.cancel)

    def _run(self) -> None:
        try:
            sleep = sleep_using_event(self._stopped)
            Retrying(wait=PATIENCE, before_sleep=_say, sleep=sleep)(self._flush)
        finally:
            self._flusher.end(self)

    def _flush(self) -> None:
        # In this order: a caller that stops it sees that it flushes, or it sees that it is stopped.
        self._is_flushing = True
        try:
            owner = None if self._stopped.is_set() else self._flusher.begin()
            if owner is not None:
                owner.flush()
        finally:
            self._is_flushing = False

    def _start(self) -> None:
        # The loop holds tasks weakly; without a reference this one could vanish.
        self._task = asyncio.ensure_future(self._arun())

    async def _arun(self) -> None:
        try:
            await AsyncRetrying(wait=PATIENCE, before_sleep=_say)(self._aflush)
        finally:
            self._flusher.end(self)

    async def _aflush(self) -> None:
        owner = self._flusher.begin()
        if owner is not None:
            await owner.aflush()


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
