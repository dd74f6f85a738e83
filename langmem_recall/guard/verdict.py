"""What a guard is and what it says of a text."""

from __future__ import annotations

from typing import Literal, NamedTuple, Protocol

Action = Literal["allow", "quarantine", "reject"]


class Verdict(NamedTuple):
    """What a guard says of a text."""

    action: Action = "allow"
    reasons: tuple[str, ...] = ()
    text: str | None = None
    """The text without its hidden characters; None when it had none, or was not read."""


class Guard(Protocol):
    """Anything that judges a text before it is stored: rules, a model, another library."""

    def __call__(self, text: str, /) -> Verdict:
        """The verdict on a text."""


def allow_all(_: str) -> Verdict:
    """The guard that lets every text pass."""
    return Verdict()
