"""How long a turn waits for its memories, and when it stops asking for them."""

from __future__ import annotations

import asyncio
import contextvars
import math
import os
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from functools import cache, partial
from typing import Any, Literal, TypeVar

from langmem_recall.errors import ConfigurationError

T = TypeVar("T")

_LOOK_AGAIN = 0.01
"""Seconds after which a load that is under way is looked at again."""


class TooLate(Exception):
    """The answer was not there in time; the turn goes on without it."""


class CallProgress:
    """What one call does, in whichever threads and tasks it runs: loads, and what it waits for."""

    def __init__(self) -> None:
        self.component: str | None = None
        """The component that the call waits for, as a user calls it."""
        self._lock = threading.Lock()
        self._loads = 0
        self._began = 0.0
        self._seconds = 0.0

    @property
    def is_loading(self) -> bool:
        """Whether a load is under way."""
        with self._lock:
            return self._loads > 0

    @property
    def load_seconds(self) -> float:
        """How long loads have taken so far; those at the same time count once."""
        with self._lock:
            return self._seconds + (time.monotonic() - self._began if self._loads else 0.0)

    @contextmanager
    def load(self) -> Iterator[None]:
        """Count a load for as long as it lasts."""
        with self._lock:
            if not self._loads:
                self._began = time.monotonic()
            self._loads += 1
        try:
            yield
        finally:
            with self._lock:
                self._loads -= 1
                if not self._loads:
                    self._seconds += time.monotonic() - self._began


# A context variable, because what loads (an embedder, a store's index) lies below interfaces of
# LangChain and LangGraph that carry no argument of ours.
_progress: ContextVar[CallProgress | None] = ContextVar("langmem_recall_progress", default=None)


def watch() -> CallProgress:
    """Follow the calls of the current context and of copies made from now on."""
    progress = CallProgress()
    _progress.set(progress)
    return progress


def loading() -> AbstractContextManager[None]:
    """Mark a finite first load; nothing happens where no caller waits."""
    progress = _progress.get()
    return nullcontext() if progress is None else progress.load()


def waiting_for(component: str) -> None:
    """Name the component that this call waits for next, where a caller waits."""
    progress = _progress.get()
    if progress is not None:
        progress.component = component


class Deadline:
    """Carries calls out and waits for them only so long.

    Args:
        seconds: How long to wait; None or infinity: as long as it takes, in the caller's thread.
        first_load: How long to wait in all while the call loads a model or an index.
        workers: Threads that calls may keep busy at the same time.
    """

    def __init__(
        self, seconds: float | None = 0.25, first_load: float = 5.0, workers: int = 8
    ) -> None:
        self.seconds = math.inf if seconds is None else _checked("deadline", seconds, above=True)
        self.first_load = _checked("first_load", first_load)
        if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
            raise ConfigurationError(f"workers must be a whole number >= 1, got {workers!r}.")
        self._size = workers

    def run(self, call: Callable[[], T]) -> T:
        """The answer of a call in a thread of its own; `TooLate` when it does not come in time.

        The call is then left to finish by itself and its outcome is thrown away.
        """
        if self.seconds == math.inf:
            return call()
        began = time.monotonic()
        context = contextvars.copy_context()
        progress = context.run(watch)
        workers = _workers(self._size)
        answer: Future[T] = workers.start(partial(context.run, call), self.seconds)
        try:
            while not answer.done():
                wait([answer], self._patience(began, progress))
            return answer.result()
        finally:
            workers.leave(answer)

    async def arun(self, call: Callable[[], Awaitable[T]]) -> T:
        """The answer of a call as a task; `TooLate` when it does not come in time.

        The task is then cancelled, or left to finish by itself while it is loading.
        """
        if self.seconds == math.inf:
            return await call()
        began = time.monotonic()
        context = contextvars.copy_context()
        progress = context.run(watch)
        task = asyncio.get_running_loop().create_task(_awaited(call), context=context)
        try:
            while not task.done():
                # Not wait_for, which waits for a task that does not heed its cancellation.
                await asyncio.wait([task], timeout=self._patience(began, progress))
        except BaseException as reason:
            if not (isinstance(reason, TooLate) and progress.is_loading):
                task.cancel()
            raise
        finally:
            _background.add(task)
            task.add_done_callback(_forget)
        if task.cancelled():
            # Passed on as it is, it would look like a cancellation of the turn.
            raise RuntimeError("The call was cancelled from within.")
        return task.result()

    def _patience(self, began: float, progress: CallProgress) -> float:
        """Seconds to wait before looking again; loading does not use up the normal deadline."""
        waited, is_loading = time.monotonic() - began, progress.is_loading
        left = self.seconds + progress.load_seconds - waited
        if is_loading:
            left = max(left, _LOOK_AGAIN)
        left = min(left, max(self.seconds, self.first_load) - waited)
        if left <= 0:
            doing = "still loading" if is_loading else "no answer"
            component = f", waiting for {progress.component}" if progress.component else ""
            raise TooLate(f"{doing} after {waited:.2f} s{component}")
        return left


class Breaker:
    """Stops asking after some failures in a row, and tries again after a rest, one at a time.

    Args:
        failures: How many failures in a row open it.
        rest: Seconds until a probe is let through.
        clock: Seconds that only go up.
    """

    def __init__(
        self, failures: int = 3, rest: float = 30.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        if isinstance(failures, bool) or not isinstance(failures, int) or failures < 1:
            raise ConfigurationError(f"failures must be a whole number >= 1, got {failures!r}.")
        self._most = failures
        self._rest = _checked("rest", rest)
        self._clock = clock
        self._lock = threading.Lock()
        self._failures = 0
        self._since: float | None = None
        self._probing = False

    @property
    def state(self) -> Literal["closed", "open", "half-open"]:
        """Closed: all pass; open: none; half-open: one may probe, or is doing so."""
        with self._lock:
            if self._since is None:
                return "closed"
            return "half-open" if self._probing or self._has_rested(self._since) else "open"

    def allows(self) -> bool:
        """Whether to make the call; the caller then reports how it went."""
        with self._lock:
            if self._since is None:
                return True
            if not self._has_rested(self._since):
                return False
            # From here the rest begins anew, so that a probe that never reports is replaced.
            self._since, self._probing = self._clock(), True
            return True

    def succeeded(self) -> None:
        """A call went well: closed."""
        with self._lock:
            self._failures, self._since, self._probing = 0, None, False

    def failed(self) -> None:
        """A call failed: open when it was one too many, or the probe."""
        with self._lock:
            self._failures += 1
            is_first = self._since is None and self._failures >= self._most
            if is_first or self._probing:
                self._since, self._probing = self._clock(), False

    def _has_rested(self, since: float) -> bool:
        return self._clock() - since >= self._rest


class _Workers:
    """At most so many daemon threads at once: the interpreter does not wait for them at exit."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._changed = threading.Condition()
        self._running: set[Future[Any]] = set()
        self._hung: set[Future[Any]] = set()

    def start(self, call: Callable[[], T], patience: float) -> Future[T]:
        """Run a call in a thread; where all are at work, wait for one, but never for hung ones."""
        answer: Future[T] = Future()
        with self._changed:
            self._changed.wait_for(
                lambda: len(self._running) < self._size or len(self._hung) >= self._size, patience
            )
            if len(self._running) >= self._size:
                raise TooLate("all workers are busy")
            self._running.add(answer)
        # A thread a call, not a queue before idle ones: those would be missing after a fork.
        work = partial(self._work, answer, call)
        try:
            threading.Thread(target=work, name="langmem-recall", daemon=True).start()
        except BaseException:
            self._end(answer)
            raise
        return answer

    def leave(self, answer: Future[Any]) -> None:
        """The answer is no longer waited for: if it is not there, its thread hangs."""
        with self._changed:
            if not answer.done():
                self._hung.add(answer)
                self._changed.notify_all()

    def _work(self, answer: Future[T], call: Callable[[], T]) -> None:
        try:
            answer.set_result(call())
        except BaseException as error:
            answer.set_exception(error)
        finally:
            self._end(answer)

    def _end(self, answer: Future[Any]) -> None:
        with self._changed:
            self._running.discard(answer)
            self._hung.discard(answer)
            self._changed.notify_all()


_workers = cache(_Workers)
"""Shared by the process, so that many agents over one hanging store do not add up their threads."""
if hasattr(os, "register_at_fork"):
    # A forked process has none of the threads that these say are running.
    os.register_at_fork(after_in_child=_workers.cache_clear)

_background: set[asyncio.Task[Any]] = set()
"""Tasks that are no longer waited for; the loop itself holds them only weakly."""


def _forget(task: asyncio.Task[Any]) -> None:
    _background.discard(task)
    if not task.cancelled():
        # Looked at, so that the loop does not report it as never retrieved.
        task.exception()


async def _awaited(call: Callable[[], Awaitable[T]]) -> T:
    return await call()


def _checked(name: str, seconds: Any, *, above: bool = False) -> float:
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not is_number or not (seconds > 0 if above else seconds >= 0):
        raise ConfigurationError(
            f"{name} must be a number of seconds {'>' if above else '>='} 0, got {seconds!r}."
        )
    return float(seconds)
