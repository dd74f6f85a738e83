"""LangGraph's search filters: equality, nesting and comparison, without ever raising on a value."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

from langmem_recall.errors import InputError

MAX_DEPTH = 32  # deeper filters are refused: none is meant, and recursion has an end

_KEY = re.compile(r"[\w .@/:+#-]+")
_MISSING = object()

_ORDERINGS: dict[str, Callable[[Any, Any], bool]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}
OPERATORS = ("$eq", "$ne", *_ORDERINGS)


def check_filter(filter: Mapping[str, Any] | None) -> None:
    """Refuse a filter that cannot be meant; nothing was searched yet."""
    if filter is not None and not isinstance(filter, Mapping):
        raise InputError(
            f"A filter must be a mapping of fields to values, got {type(filter).__name__}. "
            'Write {"kind": "semantic"}.'
        )
    _check_names(filter or {})
    for wanted in (filter or {}).values():
        _check_condition(wanted, depth=1)


def matches(value: Mapping[str, Any], filter: Mapping[str, Any] | None) -> bool:
    """Whether a stored value passes every condition of the filter."""
    return all(_passes(_field(value, key), wanted) for key, wanted in (filter or {}).items())


def _check_names(fields: Mapping[Any, Any]) -> None:
    for key in fields:
        if not isinstance(key, str) or not _KEY.fullmatch(key):
            raise InputError(
                f"Invalid filter key: {key!r}. Use the name of a field, made of letters, digits, "
                "spaces and . _ - @ / : + # only."
            )


def _check_condition(wanted: Any, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise InputError(f"A filter is nested more than {MAX_DEPTH} deep. Filter on fewer levels.")
    parts = wanted if isinstance(wanted, list | tuple) else ()
    if isinstance(wanted, Mapping):
        parts = tuple(wanted.values())
        if not _is_comparison(wanted):
            _check_names(wanted)
        elif unknown := [name for name in wanted if name not in OPERATORS]:
            raise InputError(
                f"Unknown filter operator {unknown[0]!r}. Use one of {', '.join(OPERATORS)}, "
                "and do not mix operators with fields."
            )
    for part in parts:
        _check_condition(part, depth + 1)


def _field(value: Mapping[str, Any], key: str) -> Any:
    """The field of that name, else what a dotted path leads to."""
    if key in value or "." not in key:
        return value.get(key, _MISSING)
    found: Any = value
    for part in key.split("."):
        found = found.get(part, _MISSING) if isinstance(found, Mapping) else _MISSING
    return found


def _passes(stored: Any, wanted: Any) -> bool:
    if isinstance(wanted, Mapping):
        if _is_comparison(wanted):
            return all(_compares(stored, name, other) for name, other in wanted.items())
        return isinstance(stored, Mapping) and all(
            _passes(stored.get(name, _MISSING), part) for name, part in wanted.items()
        )
    if isinstance(wanted, list | tuple):
        is_alike = isinstance(stored, list | tuple) and len(stored) == len(wanted)
        return is_alike and all(map(_passes, stored, wanted))
    return _equal(stored, wanted)


def _compares(stored: Any, name: str, wanted: Any) -> bool:
    if name in ("$eq", "$ne"):
        return _equal(stored, wanted) is (name == "$eq")
    numbers = _number(stored), _number(wanted)
    if None not in numbers:
        return _ORDERINGS[name](*numbers)
    # Two texts that are not both numbers, such as ISO dates, compare as text.
    is_text = isinstance(stored, str) and isinstance(wanted, str)
    return is_text and _ORDERINGS[name](stored, wanted)


def _equal(stored: Any, wanted: Any) -> bool:
    """As JSON compares: a missing field equals null, true is not 1."""
    if stored is _MISSING:
        return wanted is None
    if isinstance(stored, bool) is not isinstance(wanted, bool):
        return False
    return bool(stored == (list(wanted) if isinstance(wanted, tuple) else wanted))


def _number(value: Any) -> float | int | None:
    if isinstance(value, int | float):
        return value
    try:
        number = float(value) if isinstance(value, str) else math.nan
    except ValueError:
        return None
    # "nan" and "infinity" are words before they are numbers.
    return number if math.isfinite(number) else None


def _is_comparison(wanted: Mapping[Any, Any]) -> bool:
    return any(isinstance(name, str) and name.startswith("$") for name in wanted)
