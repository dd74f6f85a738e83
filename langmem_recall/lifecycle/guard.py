"""The guard decides whether a text may be stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple


class Verdict(NamedTuple):
    """What a guard says of a text."""

    action: Literal["allow", "quarantine", "reject"] = "allow"
    reasons: tuple[str, ...] = ()
    text: str | None = None
    """The text without its hidden characters; None when it had none."""


Guard = Callable[[str], Verdict]
"""Any function from a text to a verdict."""


def allow_all(_: str) -> Verdict:
    """The guard that lets every text pass."""
    return Verdict()
