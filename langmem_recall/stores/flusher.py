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
from tenacity.wait import wait_base

from langmem_recall.errors import described

if TYPE_CHECKING:
    from langmem_recall.stores.recall_store import RecallStore

logger = logging.getLogger(__name__)

FIRST_WAIT_S = 0.5
LONGEST_WAIT_S = 30.0
"""Seconds between two tries, while a store does not take what is pending."""


class Flusher:
    """One flush at most every interval: by a timer thread, or by a task where a loop runs.

    A flush that fails is tried again, later each time and never at the same moment as those of
    other processes; that is safe, because a ledger writes what is pending only once.
    """

    def __init__(self, owner: RecallStore, interval_s: float) -> None:
        self._owner = weakref.ref(owner)
        self._interval_s = interval_s
        self._lock = threading.Lock()
        self._turn: _ThreadTurn | _LoopTurn | None = None
        self._is_nudged_again = False
        _open_stores.add(owner)

    def nudge(self) -> None:
        """There is something to write."""
        with self._lock:
            if self._turn is not None and self._turn.is_alive:
                self._is_nudged_again = True
                return
            try:
                loop = asyncio.get_running_loop()
            except RuntimeError:
                self._turn = _ThreadTurn(self, self._interval_s)
            else:
                self._turn = _LoopTurn(self, self._interval_s, loop)

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

    def end(self, turn: _ThreadTurn | _LoopTurn) -> None:
        """A turn is over; what came in the meantime gets another one."""
        with self._lock:
            if self._turn is not turn:
                return
            self._turn = None
            again, self._is_nudged_again = self._is_nudged_again, False
        if again:
            self.nudge()


class _ThreadTurn:
    """A flush after a while in a thread of its own, with its tries."""

    def __init__(self, flusher: Flusher, interval_s: float) -> None:
        self._flusher = flusher
        self._stopped = threading.Event()
        sleep = sleep_using_event(self._stopped)
        self._tries = Retrying(wait=_patience(), before_sleep=_say, sleep=sleep)
        self._is_flushing = False
        self._timer = threading.Timer(interval_s, self._run)
        self._timer.daemon = True
        self._timer.start()

    @property
    def is_alive(self) -> bool:
        """Whether it will still flush; a forked process has none of its parent's threads."""
        return self._timer.is_alive()

    def stop(self) -> None:
        """Try no more; a try that is under way is not waited for."""
        self._stopped.set()
        self._timer.cancel()
        if not self._is_flushing:
            self._timer.join()

    def _run(self) -> None:
        try:
            self._tries(self._try)
        finally:
            self._flusher.end(self)

    def _try(self) -> None:
        # In this order: a caller that stops it sees that it flushes, or it sees that it is stopped.
        self._is_flushing = True
        try:
            owner = None if self._stopped.is_set() else self._flusher.begin()
            if owner is not None:
                owner.flush()
        finally:
            self._is_flushing = False


class _LoopTurn:
    """The same as a task of an event loop."""

    def __init__(
        self, flusher: Flusher, interval_s: float, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._flusher = flusher
        self._loop = loop
        self._tries = AsyncRetrying(wait=_patience(), before_sleep=_say)
        self._task: asyncio.Task[None] | None = None
        self._timer = loop.call_later(interval_s, self._start)

    @property
    def is_alive(self) -> bool:
        """Whether it will still flush; a loop that has ended may never go on."""
        return self._loop.is_running()

    def stop(self) -> None:
        """Try no more; a try that is under way is given up."""
        self._timer.cancel()
        if self._task is not None:
            # The loop may be closed by now, and is maybe another thread's.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._task.cancel)

    def _start(self) -> None:
        # The loop holds tasks weakly; without a reference this one could vanish.
        self._task = self._loop.create_task(self._run())

    async def _run(self) -> None:
        try:
            await self._tries(self._try)
        finally:
            self._flusher.end(self)

    async def _try(self) -> None:
        owner = self._flusher.begin()
        if owner is not None:
            await owner.aflush()


def _patience() -> wait_base:
    """Longer each time; with jitter, so that processes do not all come back at once."""
    longer = wait_exponential(multiplier=FIRST_WAIT_S, max=LONGEST_WAIT_S)
    return longer + wait_random(0, FIRST_WAIT_S)


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
