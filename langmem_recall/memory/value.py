"""Between a stored value and a `Memory`: who said it, when, in which thread."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from functools import partial
from itertools import chain
from math import isfinite
from operator import is_
from typing import Any, TypeGuard, get_args

from langmem_recall.errors import InputError
from langmem_recall.text.invisible import strip_hidden
from langmem_recall.text.tokens import tokens
from langmem_recall.types import (
    DEFAULT_SALIENCE,
    KINDS,
    PHRASING_SOURCES,
    QUARANTINE,
    STATUSES,
    TRUST,
    WITHHELD_SPAN,
    Memory,
    Namespace,
    Source,
    Status,
    aware,
    without_spans,
)

TEXT_FIELDS = ("content", "text", "memory", "data")
"""Fields that may hold a memory's text, in order of preference."""

LONGEST_WHOLE, WINDOW, MOST_WINDOWS = 1_500, 400, 64
"""Characters of a text that is embedded as it is, of a piece of a longer one, and how many pieces:
a memory of 4 kB has about ten vectors more, which is what it costs."""
LARGEST = 1e18  # a number beyond it was never meant as one
LONGEST_TEXT = 100_000  # characters a memory may have unless the store says otherwise
LONGEST_LABEL = 1_000  # characters of a key, a name, a tag or a thread
MOST_LABELS = 100  # entities, tags and the like that one memory may carry
MOST_PHRASINGS = 6  # phrasings of how a memory will be asked for: with more, any cue would find it
LONGEST_PHRASING = 120
INDEXED = "indexed"  # field with a memory's text and phrasings, for stores that embed by field
PIECES = "indexed_pieces"  # field with the pieces of a long text, for the same stores
_INTERNAL = (QUARANTINE, INDEXED, PIECES)
MOST_ENTITIES = 16  # entities that are taken from a text when none are given
LONGEST_ENTITY = 64
ENTITY_REACH = 10_000  # characters of a text that are looked through for entities
DEEPEST = 100
"""Levels that a value may be nested: far from where any store or Python itself gives up."""
MOST_PARTS = 1_000_000  # texts, numbers, lists and mappings that a value may have in it
MOST_READ = 50_000  # parts of a value without a text field that its text is made of
LARGEST_WHOLE = 10**1_000  # whole numbers beyond it are not written and read alike everywhere

SOURCES: tuple[Source, ...] = get_args(Source)

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_WORDY = re.compile(r"[^\W\d_]{3,}[\W\d_].*[^\W\d_]{3,}", re.DOTALL)
"""Two words at least: an id or a single name tells a reader nothing."""
_WORD = re.compile(r"(\w[\w.:/'\u2019-]*)(\W*)")
_JOINTS = ".:/'\u2019-"
_SENTENCE_ENDS = frozenset(".!?:\n")
_VERSION = re.compile(r"v?\d{1,9}(?:\.\d{1,9}){1,4}")
_NO_NAMES = frozenset(("I", "I'm", "I've", "I'll", "I'd"))


def read_memory(
    namespace: Namespace,
    key: str,
    value: Mapping[str, Any],
    created_at: datetime | None = None,
    updated_at: datetime | None = None,
) -> Memory:
    """Read any stored value as a memory; what is absent or malformed gets its default."""
    fields = {name: read(plain_numbers(value.get(name))) for name, read in _READERS.items()}
    if value.get("salience") is None:
        importance: Any = plain_numbers(value.get("importance"))
        # Others give the importance as a whole number from 1 to 10.
        is_rating = _is_whole(importance, 11) and importance >= 1
        fields["salience"] = _share(DEFAULT_SALIENCE, importance / 10 if is_rating else importance)
    if fields["confidence"] is None:
        fields["confidence"] = TRUST[fields["source"]]
    if fields["source"] not in PHRASING_SOURCES or content_of(value) is value:
        fields["asked_as"] = ()
    dated, created = fields["written_at"] is not None, aware(created_at)
    fields["written_at"] = fields["written_at"] or created
    fields |= {"dated": dated, "created_at": created, "updated_at": aware(updated_at)}
    return Memory(namespace=namespace, key=key, text=text_of(value), value=value, **fields)


def text_of(value: Mapping[str, Any]) -> str:
    """The words of a stored value: its text field, langmem's nested content, else all of it."""
    content = content_of(value)
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        # The lines of a file, as deepagents kept them at first.
        return "\n".join(content)[:LONGEST_TEXT]
    if content is value:
        return json.dumps(_bounded(value), ensure_ascii=False, sort_keys=True)[:LONGEST_TEXT]
    # Langmem's manager nests the content, or stores any schema's fields there.
    if isinstance(content.get("content"), str):
        return str(content["content"])
    fields = ((name, part) for name, part in _bounded(content).items() if part not in (None, ""))
    return ". ".join(f"{name}: {part}" for name, part in fields)[:LONGEST_TEXT]


def content_of(value: Mapping[str, Any]) -> Any:
    """What the words of a stored value are made from: a text, a nested content, else all of it."""
    for part in map(value.get, TEXT_FIELDS):
        is_lines = isinstance(part, list) and all(isinstance(line, str) for line in part)
        if isinstance(part, str | Mapping) or (part and is_lines):
            return part
    return value


def windows_of(text: str) -> list[str]:
    """A long text in pieces of a few sentences; none of one that is short.

    What a long text says in one place drowns in a vector of the whole, and models cut off its end.
    """
    if len(text) <= LONGEST_WHOLE:
        return []
    size = max(WINDOW, -(-len(text) // MOST_WINDOWS))
    ends = rf".{{1,{size}}}(?:[.!?](?=\s|$)|[\u3002\uff01\uff1f\n])"
    pieces = re.finditer(rf"{ends}|.{{1,{size}}}(?=\s|$)|.{{1,{size}}}", text, re.DOTALL)
    return [window for piece in pieces if (window := piece.group().strip())]


def searched_text(memory: Memory) -> str:
    """What a memory is found by: its text, and below it how it will be asked for."""
    return "\n".join((memory.open_text, *memory.asked_as))


def masked(memory: Memory, spans: Sequence[tuple[int, int]]) -> Memory:
    """A copy for readers, with parts of its text withheld wherever they would show."""
    text = without_spans(strip_hidden(memory.text), spans, WITHHELD_SPAN)
    entities = tuple(entity for entity in memory.entities if entity in text)
    value = {name: part for name, part in memory.value.items() if name not in _INTERNAL}
    content = content_of(memory.value)
    if content is memory.value:
        value = {"content": text}
    else:
        name = next(name for name in TEXT_FIELDS if memory.value.get(name) is content)
        is_nested = isinstance(content, Mapping) and isinstance(content.get("content"), str)
        value[name] = {**content, "content": text} if is_nested else text
    status: Status = "masked" if memory.in_force else memory.status
    value |= {"status": status} | ({"entities": list(entities)} if memory.entities else {})
    return replace(memory, text=text, status=status, entities=entities, value=value)


def indexed_fields(config: Mapping[str, Any] | None) -> list[str]:
    """The fields that an index embeds, which are all of a value ("$") where it names none."""
    fields = (config or {}).get("fields") or "$"
    return [fields] if isinstance(fields, str) else list(fields)


def fielded(
    memory: Memory, stored: Memory | None = None, fields: Sequence[str] = ("$",)
) -> tuple[dict[str, Any], list[str] | None]:
    """A memory's value and what of it to embed, for a store that embeds by field.

    Such a store keeps vectors of fields that are embedded no more: of another text than the stored
    one all are made anew, and a text with fewer pieces fills up those of the former one. None
    leaves the fields to the store.
    """
    value, index = plain_value(memory), None
    had_field = stored is not None and INDEXED in stored.value.keys() - plain_value(stored).keys()
    field = next((name for name in TEXT_FIELDS if value.get(name) == memory.text), None)
    text = searched_text(memory)
    if memory.asked_as or had_field or memory.withheld_spans:
        value[INDEXED], index = text, [INDEXED]
    elif list(fields) == ["$"] and field is not None:
        # A vector of the whole value is one of its names, dates and braces as well: of the notes
        # asked for in other words it finds a quarter of what a vector of the text finds.
        index = [field]
    # A value without a text field is read as all that it has in it.
    pieces = [] if content_of(memory.value) is memory.value else windows_of(text)
    missing = (len(stored.value.get(PIECES, ())) if stored else 0) - len(pieces)
    # Never equal: InMemoryStore stumbles over two equal texts.
    pieces += [text + "\n" * place for place in range(1, missing + 1)]
    if pieces:
        value[PIECES], index = pieces, [*(index or fields), f"{PIECES}[*]"]
    if index and stored is not None and stored.text != memory.text:
        index = list(dict.fromkeys([*fields, *index]))
    return value, index


def plain_value(memory: Memory) -> dict[str, Any]:
    """A memory's value without the fields that are only there to be embedded."""
    value = dict(memory.value)
    value.pop(PIECES, None)
    # A field of that name may also be the writer's own.
    is_ours = memory.asked_as or memory.withheld_spans
    if value.get(INDEXED) == memory.text or (is_ours and INDEXED in value):
        del value[INDEXED]
    return value


def usable_phrasings(field: Any) -> list[str]:
    """Those of some phrasings that a memory may have, each in one line."""
    parts = filter(_is_phrasing, field if isinstance(field, list | tuple) else ())
    return list(dict.fromkeys(map(_one_line, parts)))[:MOST_PHRASINGS]


def lasting_phrasings(memory: Memory, text: str) -> list[str]:
    """The phrasings of a memory that a corrected text leaves valid.

    They are about what the former text was about: they last where most words of both texts are the
    same, and none of the words that the correction took away is in them.
    """
    before, after = set(tokens(memory.text)), set(tokens(text))
    gone = before - after
    is_alike = 2 * len(before & after) >= len(before | after)
    return [each for each in memory.asked_as if is_alike and gone.isdisjoint(tokens(each))]


def phrasing_found(memory: Memory, cue: str) -> str | None:
    """The phrasing that shares most words with a cue, of those that share what the text lacks."""
    lacking = set(tokens(cue)).difference(tokens(memory.text))
    shared = [(len(lacking.intersection(tokens(words))), words) for words in memory.asked_as]
    count, words = max(shared, key=lambda each: each[0], default=(0, None))
    return words if count else None


def labels_of(memory: Memory) -> str:
    """What a writer says in other places than the text: key, speaker, turn and tags with words."""
    labels = (memory.key, memory.speaker, memory.turn, *memory.tags)
    texts = (label for label in labels if isinstance(label, str))
    return "\n".join(text for text in texts if not text.isascii() or _WORDY.search(text))


def write_value(memory: Memory) -> dict[str, Any]:
    """The flat JSON of a memory; defaults that say nothing are left out."""
    return revised_value(replace(memory, value={}))


def revised_value(memory: Memory, **changes: Any) -> dict[str, Any]:
    """The stored value with some fields changed and all else in it left as it was.

    The time of writing is spelled out, because rewriting an item may reset its creation time.
    """
    value = dict(memory.value)
    if not value.keys() - {QUARANTINE}:
        value = {"content": memory.text, **value}
        changes = {name: getattr(memory, name) for name in MEMORY_FIELDS[1:]} | changes
    elif memory.written_at is not None:
        value.setdefault("written_at", memory.written_at.isoformat())
    if "source" in changes:
        # What a lesser source said of how it will be asked must not gain by a better one.
        changes = {"asked_as": memory.asked_as} | changes
    for name, field in changes.items():
        if field is None or field == () or field is False:
            value.pop(name, None)
        elif isinstance(field, datetime):
            value[name] = field.isoformat()
        else:
            value[name] = list(field) if isinstance(field, tuple) else field
    return value


def cleaned(text: str) -> str:
    """The text without NUL, which some stores refuse, and with U+FFFD for lone surrogates."""
    if text.isascii() and "\x00" not in text:
        return text
    return _LONE_SURROGATE.sub("\ufffd", text.replace("\x00", ""))


def checked_text(text: Any, max_text: int = LONGEST_TEXT) -> str:
    """The text of a memory, cleaned; InputError where there is none or too much of it."""
    words = cleaned(text) if isinstance(text, str) else ""
    if not words.strip():
        raise InputError(f"A memory needs text, got {text!r:.80}. Pass the words to remember.")
    if len(text) > max_text:
        raise InputError(
            f"A memory may have {max_text:,} characters, got {len(text):,}. Remember what matters "
            "of it, or raise Writing(max_text=...) of the RecallStore."
        )
    return words


def find_entities(text: str) -> tuple[str, ...]:
    """Names (capitalised within a sentence), identifiers and versions, in order of appearance."""
    found: list[str] = []
    begins, runs_on = True, False
    for match in _WORD.finditer(text[:ENTITY_REACH]):
        chunk, gap = match.groups()
        word = chunk.rstrip(_JOINTS).removesuffix("'s").removesuffix("\u2019s")
        is_identifier = _is_identifier(word)
        is_name = word[:1].isupper() and not (begins or is_identifier or word in _NO_NAMES)
        if is_name and runs_on and len(found[-1]) < LONGEST_ENTITY:
            found[-1] += f" {word}"
        elif is_name or is_identifier:
            found.append(word)
        begins = not _SENTENCE_ENDS.isdisjoint(chunk[len(word) :] + gap)
        runs_on = is_name and word == chunk and gap == " "
    short = [entity for entity in found if len(entity) <= LONGEST_ENTITY]
    return tuple(dict.fromkeys(short))[:MOST_ENTITIES]


def _is_identifier(word: str) -> bool:
    """Whether a word is a version, or no plain word: digits, joints or capitals inside."""
    if not 2 <= len(word) <= LONGEST_ENTITY:
        return False
    if not word[0].isalpha():
        return bool(_VERSION.fullmatch(word))
    return "_" in word or any(map(str.isupper, word[1:])) or any(map(str.isdigit, word))


# --- What is refused ---


def check_name(what: str, name: Any) -> None:
    """Refuse a key or a label that not every store can hold."""
    if not _is_label(name) or not name or cleaned(name) != name:
        raise InputError(
            f"{what} must be a text of 1 to {LONGEST_LABEL:,} characters without NUL or lone "
            f"surrogates, got {name!r:.80}."
        )


def check_value(value: Any) -> None:
    """Refuse a value that not every store can hold and hand out again as it was."""
    if not isinstance(value, Mapping):
        raise InputError(
            f"A value must be a mapping with text keys, got {type(value).__name__}. Wrap it, as in "
            '{"content": ...}.'
        )
    level, count = list[Any]([value]), 0
    for _ in range(DEEPEST):
        count += len(level)
        if problem := next(filter(None, map(_problem, level)), None):
            raise InputError(
                f"A value must be plain JSON, got {problem} in it. Use text, finite numbers, true, "
                "false, null, lists and mappings."
            )
        maps = (part for part in level if isinstance(part, Mapping))
        lists = (part for part in level if isinstance(part, list | tuple))
        level = [*chain.from_iterable(chain((chain(each, each.values()) for each in maps), lists))]
        if not level:
            return
        if count + len(level) > MOST_PARTS:
            raise InputError(
                f"A value may have {MOST_PARTS:,} parts, got more. Split it, or store a reference."
            )
    raise InputError(
        f"A value may be nested {DEEPEST} levels deep, got more. Flatten it, or store it as text."
    )


def _problem(part: Any) -> str | None:
    """Why a part of a value is no plain JSON."""
    match part:
        case Mapping():
            is_named = all(isinstance(name, str) for name in part)
            return None if is_named else "a mapping with keys that are no texts"
        case str():
            return None if cleaned(part) == part else "a text with NUL or lone surrogates"
        case float():
            return None if isfinite(part) else f"the number {part}"
        case int():
            is_short = abs(part) < LARGEST_WHOLE
            return None if is_short else "a whole number of more than 1,000 digits"
        case list() | tuple() | None:
            return None
    return f"a {type(part).__name__}"


def new_memory(
    namespace: Namespace, key: str, text: str, *, max_text: int = LONGEST_TEXT, **fields: Any
) -> Memory:
    """A memory from what a caller says of it; raises InputError for what cannot be meant."""
    text = checked_text(text, max_text)
    given = {name: field for name, field in fields.items() if field is not None}
    for name, field in given.items():
        is_meant, expected = _CHECKS[name]
        if name in _LISTS and (count := len(_listed(field))) > _LISTS[name]:
            raise InputError(f"{name} may have {_LISTS[name]} entries, got {count:,}.")
        if not is_meant(field):
            raise InputError(f"{name} must be {expected}, got {field!r:.80}.")
        if isinstance(field, datetime):
            given[name] = aware(field)
        elif name in _LISTS:
            parts = sorted(field) if isinstance(field, set | frozenset) else _listed(field)
            clean = _one_line if name == "asked_as" else cleaned
            given[name] = tuple(dict.fromkeys(map(clean, parts)))
        elif isinstance(field, str):
            given[name] = cleaned(field) or None
    if given.get("asked_as") and given.get("source") not in PHRASING_SOURCES:
        raise InputError(
            f"asked_as needs a source that may say how a memory is asked for, got "
            f"{given.get('source', 'unknown')}. Pass source= as one of "
            f"{', '.join(sorted(PHRASING_SOURCES))}, or leave asked_as out."
        )
    given.setdefault("confidence", TRUST[given.get("source", "unknown")])
    start, end = given.get("valid_from"), given.get("valid_until")
    if start and end and start >= end:
        raise InputError(f"valid_from {start} must lie before valid_until {end}.")
    return Memory(namespace=namespace, key=key, text=text, dated="written_at" in given, **given)


def _is_label(field: Any) -> bool:
    return isinstance(field, str) and len(field) <= LONGEST_LABEL


def _are_labels(field: Any) -> bool:
    return all(map(_is_label, _listed(field)))


def _one_line(phrasing: str) -> str:
    return " ".join(cleaned(phrasing).split())


def _is_phrasing(field: Any) -> bool:
    return isinstance(field, str) and 0 < len(_one_line(field)) <= LONGEST_PHRASING


def _is_whole(field: Any, limit: int) -> TypeGuard[int]:
    return isinstance(field, int) and not isinstance(field, bool) and abs(field) < limit


def _is_share(field: Any) -> bool:
    return isinstance(field, int | float) and not isinstance(field, bool) and 0 <= field <= 1


def _listed(field: Any) -> Collection[Any]:
    return field if isinstance(field, list | tuple | set | frozenset) else (field,)


_LABEL_LISTS = ("entities", "tags", "supersedes", "derived_from")
_LISTS = {**dict.fromkeys(_LABEL_LISTS, MOST_LABELS), "asked_as": MOST_PHRASINGS}
"""Fields with several entries, and how many they may have."""
_TIMES = ("written_at", "confirmed_at", "valid_from", "valid_until", "superseded_at")
_LABEL = f"text of at most {LONGEST_LABEL:,} characters"
_CHECKS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "kind": (KINDS.__contains__, f"one of {', '.join(KINDS)}"),
    "source": (SOURCES.__contains__, f"one of {', '.join(SOURCES)}"),
    "status": (STATUSES.__contains__, f"one of {', '.join(STATUSES)}"),
    "pinned": (lambda field: isinstance(field, bool), "True or False"),
    "turn": (lambda it: _is_label(it) or _is_whole(it, 2**1000), "a whole number or a short text"),
    **dict.fromkeys(("confidence", "salience"), (_is_share, "a number from 0 to 1")),
    **dict.fromkeys(("thread_id", "speaker"), (_is_label, f"a {_LABEL}")),
    "asked_as": (
        lambda field: all(map(_is_phrasing, _listed(field))),
        f"a list of texts of 1 to {LONGEST_PHRASING} characters, none of them blank",
    ),
    **dict.fromkeys(_LABEL_LISTS, (_are_labels, f"a list of texts, each a {_LABEL}")),
    **dict.fromkeys(_TIMES, (lambda field: isinstance(field, datetime), "a datetime")),
}


# --- What is read, whatever was stored ---


def _bounded(part: Any, levels: int = DEEPEST, room: Iterator[int] | None = None) -> Any:
    """A part of a stored value as plain JSON of bounded depth and size."""
    room = iter(range(MOST_READ)) if room is None else room
    is_within = bool(levels) and next(room, None) is not None
    if isinstance(part, Mapping) and is_within:
        return {_spelt(name): _bounded(each, levels - 1, room) for name, each in part.items()}
    if isinstance(part, list | tuple) and is_within:
        return [_bounded(each, levels - 1, room) for each in part]
    is_number = isinstance(part, float) or (isinstance(part, int) and abs(part) < LARGEST_WHOLE)
    if part is None or is_number:
        return part
    return _spelt(part) if is_within else "..."


def _spelt(part: Any) -> str:
    try:
        return part if isinstance(part, str) else str(part)
    except Exception:
        return type(part).__name__


def plain_numbers(part: Any) -> Any:
    """The same with Python's own numbers, where a store hands out Decimals."""
    if isinstance(part, Mapping):
        return {name: plain_numbers(each) for name, each in part.items()}
    if not isinstance(part, Decimal) or not part.is_finite():
        return part
    return int(part) if part == part.to_integral_value() else float(part)


def _choice(allowed: tuple[Any, ...], default: Any, field: Any) -> Any:
    return field if field in allowed else default


def _share(default: Any, field: Any) -> Any:
    """A number in [0, 1]; beyond 1 it is taken for one of a scale to 10."""
    if isinstance(field, bool) or not isinstance(field, int | float) or not abs(field) < LARGEST:
        return default
    return min(field / 10, 1.0) if field > 1 else float(max(field, 0))


def _text(field: Any) -> str | None:
    return field if isinstance(field, str) and field else None


def _texts(field: Any) -> tuple[str, ...]:
    parts = field if isinstance(field, list | tuple) else (field,) * isinstance(field, str)
    return tuple(part if isinstance(part, str) else _spelt(_bounded(part)) for part in parts)


def _time(field: Any) -> datetime | None:
    if isinstance(field, datetime):
        return aware(field)
    try:
        return aware(datetime.fromisoformat(field)) if isinstance(field, str) else None
    except ValueError:
        return None


_READERS: dict[str, Callable[[Any], Any]] = {
    "kind": partial(_choice, KINDS, "semantic"),
    "source": partial(_choice, SOURCES, "unknown"),
    "confidence": partial(_share, None),
    "salience": partial(_share, DEFAULT_SALIENCE),
    **dict.fromkeys(("written_at", "confirmed_at"), _time),
    "thread_id": _text,
    "turn": lambda it: it if isinstance(it, str) or _is_whole(it, LARGEST_WHOLE) else None,
    "speaker": _text,
    **dict.fromkeys(("entities", "tags"), _texts),
    **dict.fromkeys(("valid_from", "valid_until"), _time),
    **dict.fromkeys(("supersedes", "derived_from"), _texts),
    "asked_as": lambda field: tuple(usable_phrasings(field)),
    "pinned": partial(is_, True),
    "status": partial(_choice, STATUSES, "active"),
    "superseded_at": _time,
}
MEMORY_FIELDS = ("content", *_READERS)  # the flat JSON of a memory in the store
