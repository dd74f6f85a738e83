"""How long a turn waits for its memories and for what, and when it stops asking for them."""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import math
import os
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext
from contextvars import Context, ContextVar
from functools import partial
from itertools import count
from queue import SimpleQueue
from typing import Any, Literal, TypeVar

from langmem_recall.errors import ConfigurationError

T = TypeVar("T")

_LOOK_AGAIN = 0.01
"""Seconds after which a load, or another loop's task, is looked at again."""
_SLICE = 0.05
"""Seconds of waiting at a time: what a wait oversleeps tells how far behind this process is."""
_WINDOW_S, _REST_S = 60.0, 30.0
"""Seconds that the outcome of a call counts, and until a breaker lets a probe through."""
MOST_HUNG = 8
"""Calls that may still hang while others are made; beyond that each would cost a thread."""


class TooLate(Exception):
    """The answer was not there in time; the turn goes on without it."""

    pending: Pending | None = None
    """What is still under way."""


class Crowded(TooLate):
    """This process had more to do than it could in time: no fault of what it would have asked."""


class _Stopwatch:
    """Seconds during which at least one of several things was under way: a block `with` it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running, self._began, self._seconds = 0, 0.0, 0.0

    @property
    def is_running(self) -> bool:
        return self._running > 0

    @property
    def seconds(self) -> float:
        with self._lock:
            return self._seconds + (time.monotonic() - self._began if self._running else 0.0)

    def __enter__(self) -> None:
        with self._lock:
            if not self._running:
                self._began = time.monotonic()
            self._running += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._running -= 1
            if not self._running:
                self._seconds += time.monotonic() - self._began


class CallProgress:
    """What one call does, in whichever threads and tasks it runs, and how long it may yet take.

    Its clock stands still while something is loaded and while the call waits for this process.
    """

    def __init__(self, limit: Deadline | None = None, parent: CallProgress | None = None) -> None:
        self.limit = limit or Deadline(None, queue=math.inf)
        self.component: str | None = None
        """The component that the call waits for, as a user calls it."""
        self.late: list[Pending] = []
        """Answers that came too late for this call and are kept for the next."""
        self.place: tuple[Gate, Future[None]] | None = None
        """Where the call stands in the queue before a store, or has passed it."""
        self.is_over = False
        """Whether nobody waits for it any more."""
        self.began = time.monotonic()
        self._loads, self.queueing = _Stopwatch(), _Stopwatch()
        self._behind = self._behind_in_queue = 0.0
        self.part_ends = math.inf
        self._parent = parent

    @property
    def is_loading(self) -> bool:
        """Whether a load is under way."""
        return self._loads.is_running

    @property
    def load_seconds(self) -> float:
        """How long loads have taken so far; those at the same time count once."""
        return self._loads.seconds

    @contextmanager
    def load(self) -> Iterator[None]:
        """Count a load for as long as it lasts; what only waits for it holds nobody else up."""
        with self._loads, self._parent.load() if self._parent else nullcontext():
            self.step_aside()
            yield

    @contextmanager
    def part(self, share: float) -> Iterator[None]:
        """Let what is done take no more than this share of what is left."""
        former, spent = self.part_ends, self.spent()
        self.part_ends = min(former, spent + share * (self.limit.seconds - spent))
        try:
            yield
        finally:
            self.part_ends = former

    @property
    def is_part(self) -> bool:
        """Whether what is done now may be left out when it takes too long."""
        return self.part_ends < math.inf

    def patience(self) -> float:
        """Seconds to wait before looking again for the whole; `TooLate` when there are none."""
        return self._left(math.inf)

    def part_patience(self) -> float:
        """The same for what is done now."""
        return self._left(self.part_ends)

    def queue_patience(self) -> float:
        """Seconds that the call may yet wait for this process; `Crowded` when there are none."""
        left = self.limit.queue + self._behind_in_queue - self.queueing.seconds
        if self.is_over or left <= 0:
            raise Crowded("too much to do at once in this process")
        return left

    def step_aside(self) -> None:
        """Leave the place that another could have."""
        if self.place is not None:
            gate, place = self.place
            gate.leave(place)

    def oversleep(self, seconds: float) -> None:
        """A wait took so much longer than asked for: this process was at something else."""
        if seconds > _LOOK_AGAIN:
            if self.queueing.is_running:
                self._behind_in_queue += seconds
            else:
                self._behind += seconds

    def spent(self) -> float:
        """Seconds that count, of those since it began."""
        uncounted = self.queueing.seconds + self._behind + self.load_seconds
        return time.monotonic() - self.began - uncounted

    def _left(self, part_ends: float) -> float:
        spent, is_loading, seconds = self.spent(), self.is_loading, self.limit.seconds
        waited, left = spent + self.load_seconds, min(part_ends, seconds) - spent
        if is_loading:
            left = max(left, _LOOK_AGAIN)
        most = max(seconds, self.limit.first_load)
        left = min(left, (most if part_ends == math.inf else most - 0.1 * seconds) - waited)
        if left <= 0:
            doing = "still loading" if is_loading else "no answer"
            component = f", waiting for {self.component}" if self.component else ""
            raise TooLate(f"{doing} after {waited:.2f} s{component}")
        return left


# A context variable, because what loads (an embedder, a store's index) lies below interfaces of
# LangChain and LangGraph that carry no argument of ours.
_progress: ContextVar[CallProgress | None] = ContextVar("langmem_recall_progress", default=None)


def watch(limit: Deadline | None = None) -> CallProgress:
    """Follow the calls of the current context and of copies made from now on."""
    progress = CallProgress(limit, _progress.get())
    _progress.set(progress)
    return progress


@contextmanager
def watching() -> Iterator[CallProgress]:
    """Follow the calls within, which have no limit."""
    outer = _progress.get()
    try:
        yield watch()
    finally:
        _progress.set(outer)


def limited() -> CallProgress | None:
    """The call that is waited for only so long; None where it may take as long as it takes."""
    progress = _progress.get()
    return progress if progress is not None and progress.limit.seconds < math.inf else None


def detached() -> Context:
    """A copy of this context for what goes on by itself; its loads are still loads of the call."""
    context = contextvars.copy_context()
    context.run(watch)
    return context


def loading() -> AbstractContextManager[None]:
    """Mark a finite first load; nothing happens where no caller waits."""
    progress = _progress.get()
    return nullcontext() if progress is None else progress.load()


def waiting_for(component: str) -> None:
    """Name the component that this call waits for next, where a caller waits."""
    progress = _progress.get()
    if progress is not None:
        progress.component = component


def at_most(share: float) -> AbstractContextManager[None]:
    """What can be done without: within, no effect takes more than this share of what is left."""
    progress = limited()
    return nullcontext() if progress is None else progress.part(share)


class Pending:
    """An answer that is under way in a thread, or as a task of a loop."""

    def __init__(self, work: Future[Any] | asyncio.Task[Any]) -> None:
        self._work = work
        self._loop = work.get_loop() if isinstance(work, asyncio.Task) else None

    def done(self) -> bool:
        """Whether it has come, or never will."""
        return self._work.done() or (self._loop is not None and self._loop.is_closed())

    def result(self) -> Any:
        """The answer, or the error that came instead."""
        if self._loop is not None and (not self._work.done() or self._work.cancelled()):
            # Passed on as it is, it would look like a cancellation of the turn.
            raise RuntimeError("The call was cancelled from within.")
        return self._work.result()

    def wait(self, patience: Callable[[], float], progress: CallProgress | None = None) -> Any:
        """The answer; what `patience` raises when it does not come in time."""
        for seconds in self._looks(patience, progress):
            if self._loop is None:
                wait([self._work], seconds)  # type: ignore[list-item]
            else:
                time.sleep(min(seconds, _LOOK_AGAIN))
        return self.result()

    async def awaited(
        self, patience: Callable[[], float], progress: CallProgress | None = None
    ) -> Any:
        """The same without blocking the event loop."""
        work: Any = self._work if self._loop is not None else asyncio.wrap_future(self._work)
        is_foreign = self._loop not in (None, asyncio.get_running_loop())
        for seconds in self._looks(patience, progress):
            if is_foreign:
                await asyncio.sleep(min(seconds, _LOOK_AGAIN))
            else:
                # Not wait_for, which waits for a task that does not heed its cancellation.
                await asyncio.wait([work], timeout=seconds)
        return self.result()

    def _looks(
        self, patience: Callable[[], float], progress: CallProgress | None
    ) -> Iterator[float]:
        """Seconds to wait, look by look, until it is done."""
        while not self.done():
            seconds = min(patience(), _SLICE)
            began = time.monotonic()
            yield seconds
            if progress is not None:
                progress.oversleep(time.monotonic() - began - seconds)


class Deadline:
    """Carries calls out and waits for them only so long.

    Args:
        seconds: How long to wait for what is asked; None or infinity: as long as it takes, in the
            caller's thread.
        first_load: How long to wait in all while the call loads a model or an index.
        queue: How long a call may wait for its turn in this process, which is not counted.
        lets_finish: Whether a call that is too late goes on under an event loop, too.
    """

    def __init__(
        self,
        seconds: float | None = 1.0,
        first_load: float = 5.0,
        queue: float = 2.0,
        lets_finish: bool = False,
    ) -> None:
        self.seconds = math.inf if seconds is None else _checked("deadline", seconds, above=True)
        self.first_load = _checked("first_load", first_load)
        self.queue = _checked("queue", queue)
        self._lets_finish = lets_finish

    def run(self, call: Callable[[], T]) -> T:
        """The answer of a call in a thread of its own; what is too late finishes by itself."""
        if self.seconds == math.inf:
            return call()
        context = contextvars.copy_context()
        progress = context.run(watch, self)
        pending = Pending(start(partial(context.run, call)))
        try:
            return pending.wait(progress.patience, progress)  # type: ignore[no-any-return]
        except TooLate as late:
            late.pending = late.pending or pending
            raise
        finally:
            _end(progress)

    async def arun(self, call: Callable[[], Awaitable[T]]) -> T:
        """The answer of a call as a task; too late it is cancelled, unless it is to go on."""
        if self.seconds == math.inf:
            return await call()
        context = contextvars.copy_context()
        progress = context.run(watch, self)
        task = start_task(call, context)
        pending = Pending(task)
        try:
            return await pending.awaited(progress.patience, progress)  # type: ignore[no-any-return]
        except BaseException as reason:
            if isinstance(reason, TooLate):
                reason.pending = reason.pending or pending
            may_go_on = self._lets_finish or progress.is_loading
            if not task.done() and not (isinstance(reason, TooLate) and may_go_on):
                task.cancel()
            raise
        finally:
            _end(progress)


def _end(progress: CallProgress) -> None:
    """Nobody waits for the call any more: what it still does takes no other call's place."""
    progress.is_over = True
    progress.step_aside()


class Breaker:
    """Stops asking where most calls fail, `failures` at least; tries again after a rest, one."""

    def __init__(self, failures: int = 3, clock: Callable[[], float] = time.monotonic) -> None:
        self._least = failures
        self._clock = clock
        self._lock = threading.Lock()
        self._outcomes: deque[tuple[float, bool]] = deque(maxlen=100)
        """When a call ended, and whether it failed."""
        self._hung: list[Pending] = []
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
            self._hung = [call for call in self._hung if not call.done()]
            if len(self._hung) >= MOST_HUNG:
                return False
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
            if self._since is not None:
                self._outcomes.clear()
            self._outcomes.append((self._clock(), False))
            self._since, self._probing = None, False

    def failed(self, pending: Pending | None = None) -> None:
        """A call failed, or hangs: open when it was one too many, or the probe."""
        with self._lock:
            now = self._clock()
            self._outcomes.append((now, True))
            if pending is not None:
                self._hung.append(pending)
            recent = [failed for at, failed in self._outcomes if now - at <= _WINDOW_S]
            failures = sum(recent)
            is_first = self._since is None and failures >= self._least
            if (is_first and 2 * failures > len(recent)) or self._probing:
                self._since, self._probing = now, False

    def _has_rested(self, since: float) -> bool:
        return self._clock() - since >= _REST_S


# --- Our own queue before a store ---


class Gate:
    """Lets so many calls through to a store at a time, of those that wait the oldest turn's first.

    Only calls of turns wait here: what this process can do at a time is its own affair, and the
    time that a call waits for it is not held against the store.
    """

    def __init__(self, size: int) -> None:
        self.lock = threading.Lock()
        self.free = size
        self._waiting: list[tuple[float, int, Future[None]]] = []
        self._within: set[Future[None]] = set()
        self._numbers = count()

    def admit(self) -> None:
        """Let those through for whom there is room; the caller holds the lock."""
        while self.free and self._waiting:
            _, _, place = heapq.heappop(self._waiting)
            if place.set_running_or_notify_cancel():
                self.free -= 1
                self._within.add(place)
                place.set_result(None)

    def leave(self, place: Future[None]) -> None:
        """Make room for the next; once for each place, however often it is called."""
        with self.lock:
            place.cancel()
            if place in self._within:
                self._within.remove(place)
                self.free += 1
            self.admit()

    @contextmanager
    def enter(self, progress: CallProgress) -> Iterator[None]:
        """Wait for room; `Crowded` when there is none in time. What is through passes again."""
        if progress.place is not None and progress.place[1] in self._within:
            yield
            return
        place = self._line_up(progress)
        try:
            with progress.queueing:
                Pending(place).wait(progress.queue_patience)
            yield
        finally:
            self.leave(place)

    @asynccontextmanager
    async def aenter(self, progress: CallProgress) -> AsyncIterator[None]:
        """The same without blocking the event loop."""
        place = self._line_up(progress)
        try:
            if not place.done():
                with progress.queueing:
                    await Pending(place).awaited(progress.queue_patience, progress)
            yield
        finally:
            self.leave(place)

    def _line_up(self, progress: CallProgress) -> Future[None]:
        progress.step_aside()
        place: Future[None] = Future()
        progress.place = self, place
        with self.lock:
            heapq.heappush(self._waiting, (progress.began, next(self._numbers), place))
            self.admit()
        return place


# --- Threads and tasks ---


_Work = tuple[Future[Any], Callable[[], Any]]
_idle: list[SimpleQueue[_Work]] = []
"""Where threads without work wait for some."""
if hasattr(os, "register_at_fork"):
    # A forked process has none of these threads.
    os.register_at_fork(after_in_child=_idle.clear)


def start(call: Callable[[], T]) -> Future[T]:
    """Begin a call in a thread of its own, which the interpreter does not wait for at exit."""
    answer: Future[T] = Future()
    try:
        inbox = _idle.pop()
    except IndexError:
        inbox = SimpleQueue()
        threading.Thread(target=_work, args=(inbox,), name="langmem-recall", daemon=True).start()
    inbox.put((answer, call))
    return answer


def _work(inbox: SimpleQueue[_Work]) -> None:
    while True:
        answer, call = inbox.get()
        if answer.set_running_or_notify_cancel():
            try:
                answer.set_result(call())
            except BaseException as error:
                answer.set_exception(error)
        # What was asked and answered must not live as long as the thread waits.
        del answer, call
        _idle.append(inbox)


_background: set[asyncio.Task[Any]] = set()
"""Tasks that may no longer be waited for; the loop itself holds them only weakly."""


def start_task(call: Callable[[], Awaitable[T]], context: Context) -> asyncio.Task[T]:
    """Begin a call as a task of the running loop, whose error is nobody's if nobody waits."""
    task = asyncio.get_running_loop().create_task(_awaited(call), context=context)
    _background.add(task)
    task.add_done_callback(_forget)
    return task


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
