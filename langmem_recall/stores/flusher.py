"""Write-behind: pending usage is written a moment later, off the caller's path."""

from __future__ import annotations

import asyncio
import atexit
import logging
import threading
import weakref
from collections.abc import Coroutine
from typing import Any, Protocol

logger = logging.getLogger(__name__)


class Flushable(Protocol):
    """A store with usage to write."""

    @property
    def needs_loop(self) -> bool:
        """Whether it can only be written while an event loop runs."""

    def flush(self) -> int:
        """Write it now."""

    def aflush(self) -> Coroutine[Any, Any, int]:
        """Write it now, without blocking the loop."""


class Flusher:
    """One flush at most every interval: by a timer thread, or by a task where a loop runs."""

    def __init__(self, owner: Flushable, interval_s: float) -> None:
        self._owner = weakref.ref(owner)
        self._interval_s = interval_s
        self._lock = threading.Lock()
        self._timer: threading.Timer | asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        _open_stores.add(owner)

    def nudge(self) -> None:
        """There is something to write."""
        with self._lock:
            if self._timer is not None:
                return
            try:
                loop = asyncio.get_running_loop()
            except RuntimeError:
                self._timer = threading.Timer(self._interval_s, self._flush)
                self._timer.daemon = True
                self._timer.start()
            else:
                self._timer = loop.call_later(self._interval_s, self._flush_on, loop)

    def stop(self) -> None:
        """Nothing more will be written behind."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
        owner = self._owner()
        if owner is not None:
            _open_stores.discard(owner)

    def _rest(self) -> Flushable | None:
        with self._lock:
            self._timer = None
        return self._owner()

    def _flush(self) -> None:
        owner = self._rest()
        if owner is not None:
            _quietly(owner)

    def _flush_on(self, loop: asyncio.AbstractEventLoop) -> None:
        owner = self._rest()
        if owner is not None:
            # The loop holds tasks weakly; without a reference this one could vanish.
            self._task = loop.create_task(_aquietly(owner))


def _quietly(owner: Flushable) -> None:
    try:
        owner.flush()
    except Exception:
        logger.warning("Usage could not be written; it stays pending.", exc_info=True)


async def _aquietly(owner: Flushable) -> None:
    try:
        await owner.aflush()
    except Exception:
        logger.warning("Usage could not be written; it stays pending.", exc_info=True)


_open_stores: weakref.WeakSet[Any] = weakref.WeakSet()


@atexit.register
def _flush_all() -> None:
    for owner in list(_open_stores):
        # Its loop is gone by now, and a sync call would wait for it for ever.
        if not owner.needs_loop:
            _quietly(owner)
