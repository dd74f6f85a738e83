"""Reads that leave no trace."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_quiet: ContextVar[bool] = ContextVar("langmem_recall_quiet", default=False)


@contextmanager
def quiet() -> Iterator[None]:
    """Reads within leave no trace: no usage, no refreshed time to live, no monitor."""
    token = _quiet.set(True)
    try:
        yield
    finally:
        _quiet.reset(token)


def is_quiet() -> bool:
    """Whether the current context reads quietly."""
    return _quiet.get()
