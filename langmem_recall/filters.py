"""LangGraph's search filters: equality, nesting and comparison, without ever raising on a value."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from langmem_recall.errors import InputError

MAX_DEPTH = 32
"""Deeper filters are refused: nobody means them, and recursion has an end."""

_KEY = re.compile(r"[\w .@/:+#-]+")
_MISSING = object()

_ORDERINGS: dict[str, Callable[[Any, Any], bool]] = {
    "$gt": lambda held, wanted: bool(held > wanted),
    "$gte": lambda held, wanted: bool(held >= wanted),
    "$lt": lambda held, wanted: bool(held < wanted),
    "$lte": lambda held, wanted: bool(held <= wanted),
}
OPERATORS = ("$eq", "$ne", *_ORDERINGS)


def check_filter(filter: Mapping[str, Any] | None) -> None:
    """Refuse a filter that cannot be meant; nothing was searched yet."""
    if filter is None:
        return
    if not isinstance(filter, Mapping):
        raise InputError(
            f"A filter must be a mapping of fields to values, got {type(filter).__name__}. "
            'Write {"kind": "semantic"}.'
        )
    for key, wanted in filter.items():
        _check_key(key)
        _check_wanted(wanted, depth=1)


def matches(value: Mapping[str, Any], filter: Mapping[str, Any] | None) -> bool:
    """Whether a stored value passes every condition of the filter."""
    return all(_agrees(_held(value, key), wanted) for key, wanted in (filter or {}).items())


def _check_key(key: Any) -> None:
    if not isinstance(key, str) or not _KEY.fullmatch(key):
        raise InputError(
            f"Invalid filter key: {key!r}. Use the name of a field, made of letters, digits, "
            "spaces and . _ - @ / : + # only."
        )


def _check_wanted(wanted: Any, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise InputError(f"A filter is nested more than {MAX_DEPTH} deep. Filter on fewer levels.")
    if isinstance(wanted, Mapping):
        _check_mapping(wanted, depth)
    elif isinstance(wanted, list | tuple):
        for part in wanted:
            _check_wanted(part, depth + 1)


def _check_mapping(wanted: Mapping[Any, Any], depth: int) -> None:
    compares = _is_comparison(wanted)
    for name, part in wanted.items():
        if compares and name not in OPERATORS:
            raise InputError(
                f"Unknown filter operator {name!r}. Use one of {', '.join(OPERATORS)}, "
                "and do not mix operators with fields."
            )
        if not compares:
            _check_key(name)
        _check_wanted(part, depth + 1)


def _held(value: Mapping[str, Any], key: str) -> Any:
    """The field of that name, else what a dotted path leads to."""
    if key in value or "." not in key:
        return value.get(key, _MISSING)
    held: Any = value
    for part in key.split("."):
        if not isinstance(held, Mapping):
            return _MISSING
        held = held.get(part, _MISSING)
    return held


def _agrees(held: Any, wanted: Any) -> bool:
    if isinstance(wanted, Mapping):
        return _agrees_mapping(held, wanted)
    if isinstance(wanted, list | tuple):
        return (
            isinstance(held, list | tuple)
            and len(held) == len(wanted)
            and all(_agrees(one, other) for one, other in zip(held, wanted, strict=True))
        )
    return _equal(held, wanted)


def _agrees_mapping(held: Any, wanted: Mapping[str, Any]) -> bool:
    if _is_comparison(wanted):
        return all(_compares(held, operator, other) for operator, other in wanted.items())
    if not isinstance(held, Mapping):
        return False
    return all(_agrees(held.get(name, _MISSING), part) for name, part in wanted.items())


def _compares(held: Any, operator: str, wanted: Any) -> bool:
    if operator == "$eq":
        return _equal(held, wanted)
    if operator == "$ne":
        return not _equal(held, wanted)
    return _ordered(held, _ORDERINGS[operator], wanted)


def _equal(held: Any, wanted: Any) -> bool:
    """As JSON compares: a missing field equals null, true is not 1."""
    if held is _MISSING:
        return wanted is None
    if isinstance(held, bool) is not isinstance(wanted, bool):
        return False
    if isinstance(wanted, tuple):
        wanted = list(wanted)
    return bool(held == wanted)


def _ordered(held: Any, is_ordered: Callable[[Any, Any], bool], wanted: Any) -> bool:
    numbers = _number(held), _number(wanted)
    if None not in numbers:
        return is_ordered(*numbers)
    # Two texts that are not both numbers, such as ISO dates, compare as text.
    if isinstance(held, str) and isinstance(wanted, str):
        return is_ordered(held, wanted)
    return False


def _number(held: Any) -> float | int | None:
    if isinstance(held, int | float):
        return held
    if not isinstance(held, str):
        return None
    try:
        number = float(held)
    except ValueError:
        return None
    # "nan" and "infinity" are words before they are numbers.
    return number if math.isfinite(number) else None


def _is_comparison(wanted: Mapping[Any, Any]) -> bool:
    return any(isinstance(name, str) and name.startswith("$") for name in wanted)
