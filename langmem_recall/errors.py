"""Errors a user can meet: each says what is wrong, what we got and what to do."""

import re
from collections.abc import Sequence
from typing import Any

LONGEST_DESCRIPTION = 200
_PACKAGE = __name__.partition(".")[0]
_CODES = ("sqlstate", "sqlite_errorname", "status_code", "errno")
"""Attributes by which drivers and clients number their faults."""


class RecallError(Exception):
    """Base of every error raised by `langmem_recall`."""


class InputError(RecallError, ValueError):
    """An argument cannot be used; nothing was read or written."""


class PolicyError(RecallError, ValueError):
    """A policy has a knob outside its range."""


class ConfigurationError(RecallError, ValueError):
    """Something is wired up wrongly; raised at once, never treated as a fault of a turn."""


class RejectedError(RecallError):
    """The guard rejects a text: nothing was stored, and the words are in `text`.

    Args:
        text: The words that were to be stored.
        reasons: What the guard found.
    """

    def __init__(self, text: str, reasons: Sequence[str]) -> None:
        self.text, self.reasons = text, tuple(reasons)
        super().__init__(
            f"The guard rejected this memory: {', '.join(reasons) or 'no reason given'}. Nothing "
            "was stored. If the words are as they should be, remember them through a RecallStore "
            'with Writing(on_bad="quarantine"), and approve them. '
            f"The words (whole in `.text`): {text[:500]}"
        )


class MissingExtraError(RecallError, ImportError):
    """An optional dependency is not installed; the message names the exact `pip install`."""


class StoreError(RecallError):
    """A store file or its contents cannot be used as they are; nothing was changed."""


def check_whole(
    name: str, number: object, least: int, error: type[RecallError] = InputError
) -> None:
    """Refuse what is no whole number, or one that is too small."""
    if isinstance(number, bool) or not isinstance(number, int) or number < least:
        raise error(f"{name} must be a whole number of at least {least}, got {number!r:.80}.")


def first_problem(error: Any) -> str:
    """Where a pydantic `ValidationError` found the first fault, and what it is."""
    first = error.errors()[0]
    place, problem = ".".join(map(str, first["loc"])), first["msg"].removeprefix("Value error, ")
    return f"{place}: {problem:.120}" if place else str(problem)


def described(fault: BaseException) -> str:
    """A fault without the words of memories or cues: fit for traces and logs.

    An embedder, a driver or a model may quote what it was given, so of their faults only type and
    code are repeated. Our own messages quote nothing but what an InputError got.
    """
    kind = type(fault).__name__
    if type(fault).__module__.partition(".")[0] == _PACKAGE:
        message = str(fault)
        if isinstance(fault, RejectedError):
            return kind
        if isinstance(fault, InputError):
            message = message.partition(", got ")[0]
        return f"{kind}: {message}"[:LONGEST_DESCRIPTION]
    codes = (str(getattr(fault, name, None) or "") for name in _CODES)
    code = next((code for code in codes if re.fullmatch(r"\w{1,40}", code)), None)
    return f"{kind} {code}" if code else kind
