"""Between a stored value and a `Memory`: who said it, when, in which thread."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from itertools import chain, islice
from math import isfinite
from typing import Any, get_args

from langmem_recall.errors import InputError
from langmem_recall.types import (
    DEFAULT_SALIENCE,
    KINDS,
    STATUSES,
    Memory,
    Namespace,
    Source,
    aware,
)

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
    "superseded_at",
)
"""The flat JSON of a memory in the store."""

LARGEST = 1e18
"""A number beyond it was never meant as one."""
LONGEST_TEXT = 100_000
"""Characters a memory may have unless the store says otherwise."""
LONGEST_LABEL = 1_000
"""Characters of a key, a name, a tag or a thread."""
MOST_LABELS = 100
"""Entities, tags and the like that one memory may carry."""
MOST_ENTITIES = 16
"""Entities that are taken from a text when none are given."""
LONGEST_ENTITY = 64
ENTITY_REACH = 10_000
"""Characters of a text that are looked through for entities."""
DEEPEST = 100
"""Levels that a value may be nested: far from where any store or Python itself gives up."""
MOST_PARTS = 1_000_000
"""Texts, numbers, lists and mappings that a value may have in it."""
MOST_TOLD = 50_000
"""Parts of a value without a text field that its text is made of."""
LARGEST_WHOLE = 10**1_000
"""Whole numbers beyond it are not written and read alike everywhere."""

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
        superseded_at=_time(value.get("superseded_at")),
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
    told = json.dumps(_bounded(value), ensure_ascii=False, sort_keys=True)
    return told[:LONGEST_TEXT]


def content_of(value: Mapping[str, Any]) -> Any:
    """What the words of a stored value are made from: a text, a nested content, else all of it."""
    for name in TEXT_FIELDS:
        if isinstance(value.get(name), str | Mapping):
            return value[name]
    return value


def labels_of(memory: Memory) -> str:
    """What a writer says in other places than the text: key, speaker, turn and tags with words."""
    labels = (memory.key, memory.speaker, memory.turn, *memory.tags)
    return "\n".join(
        one for one in labels if isinstance(one, str) and (not one.isascii() or _WORDY.search(one))
    )


def write_value(memory: Memory) -> dict[str, Any]:
    """The flat JSON of a memory; defaults that say nothing are left out."""
    value: dict[str, Any] = {"content": memory.text}
    for name in MEMORY_FIELDS[1:]:
        held = getattr(memory, name)
        if held is None or held == () or held is False:
            continue
        value[name] = _plain(held)
    return value


def revised_value(memory: Memory, **changes: Any) -> dict[str, Any]:
    """The stored value with some fields changed and all else in it left as it was.

    The time of writing is spelled out, because rewriting an item may reset its creation time.
    """
    value = dict(memory.value) or write_value(memory)
    if memory.written_at is not None:
        value.setdefault("written_at", _plain(memory.written_at))
    for name, held in changes.items():
        if held is None or held == () or held is False:
            value.pop(name, None)
        else:
            value[name] = _plain(held)
    return value


def cleaned(text: str) -> str:
    """The text without NUL, which some stores refuse, and with U+FFFD for lone surrogates."""
    if text.isascii() and "\x00" not in text:
        return text
    return _LONE_SURROGATE.sub("\ufffd", text.replace("\x00", ""))


def checked_text(text: Any, max_text: int = LONGEST_TEXT) -> str:
    """The text of a memory, cleaned; InputError where there is none or too much of it."""
    if not isinstance(text, str) or not cleaned(text).strip():
        raise InputError(f"A memory needs text, got {text!r:.80}. Pass the words to remember.")
    if len(text) > max_text:
        raise InputError(
            f"A memory may have {max_text:,} characters, got {len(text):,}. Remember what matters "
            "of it, or raise Writing(max_text=...) of the RecallStore."
        )
    return cleaned(text)


def find_entities(text: str) -> tuple[str, ...]:
    """Names (capitalised within a sentence), identifiers and versions, in order of appearance."""
    found: list[str] = []
    begins, runs_on = True, False
    for match in _WORD.finditer(text[:ENTITY_REACH]):
        told, gap = match.groups()
        word = told.rstrip(_JOINTS).removesuffix("'s").removesuffix("\u2019s")
        is_other = _is_identifier(word)
        is_name = word[:1].isupper() and not (begins or is_other or word in _NO_NAMES)
        if is_name and runs_on and len(found[-1]) < LONGEST_ENTITY:
            found[-1] += f" {word}"
        elif is_name or is_other:
            found.append(word)
        begins = any(mark in _SENTENCE_ENDS for mark in told[len(word) :] + gap)
        runs_on = is_name and word == told and gap == " "
    short = (entity for entity in found if len(entity) <= LONGEST_ENTITY)
    return tuple(islice(dict.fromkeys(short), MOST_ENTITIES))


def check_name(what: str, held: Any) -> None:
    """Refuse a key or a label that not every store can hold."""
    if not isinstance(held, str) or not held or len(held) > LONGEST_LABEL or cleaned(held) != held:
        raise InputError(
            f"{what} must be a text of 1 to {LONGEST_LABEL:,} characters without NUL or lone "
            f"surrogates, got {held!r:.80}."
        )


def check_value(value: Any) -> None:
    """Refuse a value that not every store can hold and hand out again as it was."""
    if not isinstance(value, Mapping):
        raise InputError(
            f"A value must be a mapping with text keys, got {type(value).__name__}. Wrap it, as in "
            '{"content": ...}.'
        )
    level: list[Any] = [value]
    count = 0
    for _ in range(DEEPEST):
        for held in level:
            _check_part(held)
        count += len(level)
        level = [part for held in level for part in _parts(held)]
        if not level:
            return
        if count + len(level) > MOST_PARTS:
            raise InputError(
                f"A value may have {MOST_PARTS:,} parts, got more. Split it, or store a reference."
            )
    raise InputError(
        f"A value may be nested {DEEPEST} levels deep, got more. Flatten it, or store it as text."
    )


def _check_part(held: Any) -> None:
    problem = None
    if isinstance(held, Mapping) and not all(isinstance(name, str) for name in held):
        problem = "a mapping with keys that are no texts"
    elif isinstance(held, str) and cleaned(held) != held:
        problem = "a text with NUL or lone surrogates"
    elif isinstance(held, float) and not isfinite(held):
        problem = f"the number {held}"
    elif isinstance(held, int) and abs(held) >= LARGEST_WHOLE:
        problem = "a whole number of more than 1,000 digits"
    elif not isinstance(held, Mapping | list | tuple | str | int | float | None):
        problem = f"a {type(held).__name__}"
    if problem:
        raise InputError(
            f"A value must be plain JSON, got {problem} in it. Use text, finite numbers, true, "
            "false, null, lists and mappings."
        )


def _parts(held: Any) -> Iterable[Any]:
    if isinstance(held, Mapping):
        return chain(held, held.values())
    return held if isinstance(held, list | tuple) else ()


def new_memory(
    namespace: Namespace, key: str, text: str, *, max_text: int = LONGEST_TEXT, **fields: Any
) -> Memory:
    """A memory from what a caller says of it; raises InputError for what cannot be meant."""
    text = checked_text(text, max_text)
    for name, check in _CHECKS.items():
        if fields.get(name) is not None:
            check(name, fields[name])
    given = {name: _tidy(name, held) for name, held in fields.items() if held is not None}
    start, end = given.get("valid_from"), given.get("valid_until")
    if start and end and start >= end:
        raise InputError(f"valid_from {start} must lie before valid_until {end}.")
    return Memory(namespace=namespace, key=key, text=text, dated="written_at" in given, **given)


def _is_identifier(word: str) -> bool:
    """Whether a word is a version, or no plain word: digits, joints or capitals inside."""
    if not 2 <= len(word) <= LONGEST_ENTITY:
        return False
    if not word[0].isalpha():
        return bool(_VERSION.fullmatch(word))
    inner = any(letter.isupper() for letter in word[1:])
    return inner or "_" in word or any(letter.isdigit() for letter in word)


def _nested_text(held: Mapping[str, Any]) -> str:
    """Langmem's manager nests the content, or stores any schema's fields there."""
    inner = held.get("content")
    if isinstance(inner, str):
        return inner
    told = ". ".join(
        f"{name}: {part}" for name, part in _bounded(held).items() if part not in (None, "")
    )
    return told[:LONGEST_TEXT]


def _bounded(held: Any, levels: int = DEEPEST, room: Iterator[int] | None = None) -> Any:
    """What a store handed out as plain JSON of bounded depth and size, so that any can be told."""
    room = iter(range(MOST_TOLD)) if room is None else room
    is_within = bool(levels) and next(room, None) is not None
    if isinstance(held, Mapping) and is_within:
        return {_told(name): _bounded(part, levels - 1, room) for name, part in held.items()}
    if isinstance(held, list | tuple) and is_within:
        return [_bounded(part, levels - 1, room) for part in held]
    if held is None or isinstance(held, bool | float):
        return held
    if isinstance(held, int) and abs(held) < LARGEST_WHOLE:
        return held
    return _told(held) if is_within else "..."


def _told(held: Any) -> str:
    try:
        return held if isinstance(held, str) else str(held)
    except Exception:
        return type(held).__name__


def _choice(held: Any, allowed: tuple[Any, ...], default: Any) -> Any:
    return held if held in allowed else default


def _salience(value: Mapping[str, Any]) -> float:
    """The salience, else the importance, which others give as a whole number from 1 to 10."""
    held = value.get("salience")
    if held is None:
        held = value.get("importance")
        if isinstance(held, int) and not isinstance(held, bool) and 1 <= held <= 10:
            return held / 10
    return _share(held, DEFAULT_SALIENCE)


def _share(held: Any, default: float) -> float:
    """A number in [0, 1]; beyond 1 it is taken for one of a scale to 10."""
    if isinstance(held, bool) or not isinstance(held, int | float) or not abs(held) < LARGEST:
        return default
    return min(held / 10, 1.0) if held > 1 else float(max(held, 0))


def _text(held: Any) -> str | None:
    return held if isinstance(held, str) and held else None


def _turn(held: Any) -> int | str | None:
    is_number = isinstance(held, int) and not isinstance(held, bool) and abs(held) < LARGEST_WHOLE
    return held if is_number or isinstance(held, str) else None


def _texts(held: Any) -> tuple[str, ...]:
    if isinstance(held, str):
        return (held,)
    return tuple(_told(_bounded(part)) for part in held) if isinstance(held, list | tuple) else ()


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
    if _CHECKS.get(name) is _check_texts:
        parts = (held,) if isinstance(held, str) else sorted(held) if _is_set(held) else held
        return tuple(dict.fromkeys(map(cleaned, parts)))
    return cleaned(held) or None if isinstance(held, str) else held


def _is_set(held: Any) -> bool:
    return isinstance(held, set | frozenset)


def _check_choice(allowed: tuple[str, ...]) -> Callable[[str, Any], None]:
    def check(name: str, held: Any) -> None:
        if held not in allowed:
            raise InputError(f"{name} must be one of {', '.join(allowed)}, got {held!r}.")

    return check


def _check_share(name: str, held: Any) -> None:
    if isinstance(held, bool) or not isinstance(held, int | float) or not 0 <= held <= 1:
        raise InputError(f"{name} must be a number from 0 to 1, got {held!r}.")


def _check_text(name: str, held: Any) -> None:
    if not isinstance(held, str) or len(held) > LONGEST_LABEL:
        raise InputError(
            f"{name} must be a text of at most {LONGEST_LABEL:,} characters, got {held!r:.80}."
        )


def _check_texts(name: str, held: Any) -> None:
    parts = held if isinstance(held, list | tuple | set | frozenset) else (held,)
    if len(parts) > MOST_LABELS:
        raise InputError(f"{name} may have {MOST_LABELS} entries, got {len(parts):,}.")
    if not all(isinstance(part, str) and len(part) <= LONGEST_LABEL for part in parts):
        raise InputError(
            f"{name} must be a list of texts of at most {LONGEST_LABEL:,} characters, got "
            f"{held!r:.80}."
        )


def _check_turn(name: str, held: Any) -> None:
    is_number = isinstance(held, int) and not isinstance(held, bool) and abs(held) < 2**1000
    if not is_number and not (isinstance(held, str) and len(held) <= LONGEST_LABEL):
        raise InputError(f"{name} must be a whole number or a short text, got {held!r:.80}.")


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
    **dict.fromkeys(
        ("written_at", "confirmed_at", "valid_from", "valid_until", "superseded_at"), _check_time
    ),
}

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_WORDY = re.compile(r"[^\W\d_]{3,}[\W\d_].*[^\W\d_]{3,}", re.DOTALL)
"""Two words at least: an id or a single name tells a reader nothing."""
_WORD = re.compile(r"(\w[\w.:/'\u2019-]*)(\W*)")
_JOINTS = ".:/'\u2019-"
_SENTENCE_ENDS = frozenset(".!?:\n")
_VERSION = re.compile(r"v?\d{1,9}(?:\.\d{1,9}){1,4}")
_NO_NAMES = frozenset(("I", "I'm", "I've", "I'll", "I'd"))
