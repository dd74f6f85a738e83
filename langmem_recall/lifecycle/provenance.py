"""Between a stored value and a `Memory`: who said it, when, in which thread."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, get_args

from langmem_recall.errors import InputError
from langmem_recall.types import KINDS, STATUSES, Memory, Namespace, Source, aware

TEXT_FIELDS = ("content", "text", "memory")
"""Fields that may hold a memory's text, in order of preference."""

MEMORY_FIELDS = (
    "content",
    "kind",
    "source",
    "confidence",
    "salience",
    "written_at",
    "confirmed_at",
    "thread_id",
    "turn",
    "speaker",
    "entities",
    "tags",
    "valid_from",
    "valid_until",
    "supersedes",
    "derived_from",
    "pinned",
    "status",
)
"""The flat JSON of a memory in the store."""

LARGEST = 1e18
"""A number beyond it was never meant as one."""

SOURCES: tuple[Source, ...] = get_args(Source)


def read_memory(
    namespace: Namespace,
    key: str,
    value: Mapping[str, Any],
    created_at: datetime | None = None,
    updated_at: datetime | None = None,
) -> Memory:
    """Read any stored value as a memory; what is absent or malformed gets its default."""
    declared = _time(value.get("written_at"))
    return Memory(
        namespace=namespace,
        key=key,
        text=text_of(value),
        kind=_choice(value.get("kind"), KINDS, "semantic"),
        source=_choice(value.get("source"), SOURCES, "unknown"),
        confidence=_share(value.get("confidence"), 1.0),
        salience=_salience(value),
        written_at=declared or aware(created_at),
        confirmed_at=_time(value.get("confirmed_at")),
        thread_id=_text(value.get("thread_id")),
        turn=_turn(value.get("turn")),
        speaker=_text(value.get("speaker")),
        entities=_texts(value.get("entities")),
        tags=_texts(value.get("tags")),
        valid_from=_time(value.get("valid_from")),
        valid_until=_time(value.get("valid_until")),
        supersedes=_texts(value.get("supersedes")),
        derived_from=_texts(value.get("derived_from")),
        pinned=value.get("pinned") is True,
        status=_choice(value.get("status"), STATUSES, "active"),
        dated=declared is not None,
        value=value,
        created_at=aware(created_at),
        updated_at=aware(updated_at),
    )


def text_of(value: Mapping[str, Any]) -> str:
    """The words of a stored value: its text field, langmem's nested content, else all of it."""
    for name in TEXT_FIELDS:
        held = value.get(name)
        if isinstance(held, str):
            return held
        if isinstance(held, Mapping):
            return _nested_text(held)
    return json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)


def write_value(memory: Memory) -> dict[str, Any]:
    """The flat JSON of a memory; defaults that say nothing are left out."""
    value: dict[str, Any] = {"content": memory.text}
    for name in MEMORY_FIELDS[1:]:
        held = getattr(memory, name)
        if held is None or held == () or held is False:
            continue
        value[name] = _plain(held)
    return value


def new_memory(namespace: Namespace, key: str, text: str, **fields: Any) -> Memory:
    """A memory from what a caller says of it; raises InputError for what cannot be meant."""
    if not isinstance(text, str) or not text.strip():
        raise InputError(f"A memory needs text, got {text!r}. Pass the words to remember.")
    for name, check in _CHECKS.items():
        if fields.get(name) is not None:
            check(name, fields[name])
    given = {name: _tidy(name, held) for name, held in fields.items() if held is not None}
    start, end = given.get("valid_from"), given.get("valid_until")
    if start and end and start >= end:
        raise InputError(f"valid_from {start} must lie before valid_until {end}.")
    return Memory(namespace=namespace, key=key, text=text, dated="written_at" in given, **given)


def _nested_text(held: Mapping[str, Any]) -> str:
    """Langmem's manager nests the content, or stores any schema's fields there."""
    inner = held.get("content")
    if isinstance(inner, str):
        return inner
    return ". ".join(f"{name}: {part}" for name, part in held.items() if part not in (None, ""))


def _choice(held: Any, allowed: tuple[Any, ...], default: Any) -> Any:
    return held if held in allowed else default


def _salience(value: Mapping[str, Any]) -> float:
    """The salience, else the importance, which others give as a whole number from 1 to 10."""
    held = value.get("salience")
    if held is None:
        held = value.get("importance")
        if isinstance(held, int) and not isinstance(held, bool) and 1 <= held <= 10:
            return held / 10
    return _share(held, 0.5)


def _share(held: Any, default: float) -> float:
    """A number in [0, 1]; beyond 1 it is taken for one of a scale to 10."""
    if isinstance(held, bool) or not isinstance(held, int | float) or not abs(held) < LARGEST:
        return default
    return min(held / 10, 1.0) if held > 1 else float(max(held, 0))


def _text(held: Any) -> str | None:
    return held if isinstance(held, str) and held else None


def _turn(held: Any) -> int | str | None:
    return held if isinstance(held, int | str) and not isinstance(held, bool) else None


def _texts(held: Any) -> tuple[str, ...]:
    if isinstance(held, str):
        return (held,)
    return tuple(str(part) for part in held) if isinstance(held, list | tuple) else ()


def _time(held: Any) -> datetime | None:
    if isinstance(held, datetime):
        return aware(held)
    if not isinstance(held, str):
        return None
    try:
        return aware(datetime.fromisoformat(held))
    except ValueError:
        return None


def _plain(held: Any) -> Any:
    if isinstance(held, datetime):
        return held.isoformat()
    return list(held) if isinstance(held, tuple) else held


def _tidy(name: str, held: Any) -> Any:
    if isinstance(held, datetime):
        return aware(held)
    if isinstance(held, str) and _CHECKS.get(name) is _check_texts:
        return (held,)
    return tuple(held) if isinstance(held, list | set | frozenset) else held


def _check_choice(allowed: tuple[str, ...]) -> Callable[[str, Any], None]:
    def check(name: str, held: Any) -> None:
        if held not in allowed:
            raise InputError(f"{name} must be one of {', '.join(allowed)}, got {held!r}.")

    return check


def _check_share(name: str, held: Any) -> None:
    if isinstance(held, bool) or not isinstance(held, int | float) or not 0 <= held <= 1:
        raise InputError(f"{name} must be a number from 0 to 1, got {held!r}.")


def _check_text(name: str, held: Any) -> None:
    if not isinstance(held, str):
        raise InputError(f"{name} must be a text, got {held!r}.")


def _check_texts(name: str, held: Any) -> None:
    parts = held if isinstance(held, list | tuple | set | frozenset) else (held,)
    if not all(isinstance(part, str) for part in parts):
        raise InputError(f"{name} must be a list of texts, got {held!r}.")


def _check_turn(name: str, held: Any) -> None:
    if isinstance(held, bool) or not isinstance(held, int | str):
        raise InputError(f"{name} must be a whole number or a text, got {held!r}.")


def _check_flag(name: str, held: Any) -> None:
    if not isinstance(held, bool):
        raise InputError(f"{name} must be True or False, got {held!r}.")


def _check_time(name: str, held: Any) -> None:
    if not isinstance(held, datetime):
        raise InputError(f"{name} must be a datetime, got {held!r}.")


_CHECKS: dict[str, Callable[[str, Any], None]] = {
    "kind": _check_choice(KINDS),
    "source": _check_choice(SOURCES),
    "status": _check_choice(STATUSES),
    "pinned": _check_flag,
    "turn": _check_turn,
    **dict.fromkeys(("confidence", "salience"), _check_share),
    **dict.fromkeys(("thread_id", "speaker"), _check_text),
    **dict.fromkeys(("entities", "tags", "supersedes", "derived_from"), _check_texts),
    **dict.fromkeys(("written_at", "confirmed_at", "valid_from", "valid_until"), _check_time),
}
