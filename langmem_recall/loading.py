"""Tells a waiting caller that a call is loading something, which takes long but ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class Cell:
    """The loads of one call, in whichever threads and tasks it runs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loads = 0
        self._began = 0.0
        self._seconds = 0.0

    @property
    def active(self) -> bool:
        """Whether a load is under way."""
        with self._lock:
            return self._loads > 0

    @property
    def seconds(self) -> float:
        """How long loads have taken so far; those at the same time count once."""
        with self._lock:
            return self._seconds + (time.monotonic() - self._began if self._loads else 0.0)

    def _begin(self) -> None:
        with self._lock:
            if not self._loads:
                self._began = time.monotonic()
            self._loads += 1

    def _end(self) -> None:
        with self._lock:
            self._loads -= 1
            if not self._loads:
                self._seconds += time.monotonic() - self._began


_watched: ContextVar[Cell | None] = ContextVar("langmem_recall_loading", default=None)


def watch() -> Cell:
    """A fresh cell that sees the loads of the current context and of copies made from now on."""
    cell = Cell()
    _watched.set(cell)
    return cell


@contextmanager
def loading() -> Iterator[None]:
    """Mark a finite first load; nothing happens where no caller watches."""
    cell = _watched.get()
    if cell is None:
        yield
        return
    cell._begin()
    try:
        yield
    finally:
        cell._end()
