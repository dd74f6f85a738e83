"""A thread that sweeps expired items now and then."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Generator
from concurrent.futures import Future
from typing import Any

from langmem_recall.errors import described

logger = logging.getLogger(__name__)


class Settled(int):
    """A result at hand that may also be awaited: code written for AsyncSqliteStore does so."""

    def __await__(self) -> Generator[Any, None, int]:
        return int(self)
        yield


class SweeperFuture(Future[None]):
    """Ends with the sweeper; awaiting it gives it back at once, as AsyncSqliteStore does."""

    def __await__(self) -> Generator[Any, None, SweeperFuture]:
        return self
        yield


class ExpirySweeper:
    """Calls a store's sweep at an interval until it is stopped or the store is gone."""

    def __init__(self, sweep: Callable[[], int]) -> None:
        # Weak, so that a running sweeper does not keep a forgotten store alive.
        self._sweep = weakref.WeakMethod(sweep)
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, interval_minutes: float) -> SweeperFuture:
        """Start, unless it runs already; cancelling the future stops it."""
        future = SweeperFuture()
        if self._thread is None or not self._thread.is_alive():
            self._stop = threading.Event()
            self._thread = threading.Thread(
                target=_run,
                args=(self._sweep, self._stop, interval_minutes * 60, future),
                name="langmem-recall-ttl-sweeper",
                daemon=True,
            )
            self._thread.start()
        stop = self._stop
        future.add_done_callback(lambda done: stop.set() if done.cancelled() else None)
        return future

    def stop(self, timeout: float | None) -> bool:
        """Whether it stands still now."""
        self._stop.set()
        if self._thread is None or self._thread is threading.current_thread():
            return True
        self._thread.join(timeout)
        return not self._thread.is_alive()


def _run(
    sweep: weakref.WeakMethod[Callable[[], int]],
    stop: threading.Event,
    seconds: float,
    future: Future[None],
) -> None:
    while not stop.wait(seconds):
        call = sweep()
        if call is None:
            break
        try:
            call()
        except Exception as error:
            # A busy or full disk may be better the next time.
            logger.error("Sweeping expired items failed: %s", described(error))
        del call
    if not future.cancelled():
        future.set_result(None)
