"""Memories of other systems as lines that `import_jsonl` reads."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from string import Formatter
from typing import Any, Literal, get_args

from langmem_recall.errors import InputError
from langmem_recall.memory.value import check_name
from langmem_recall.types import KINDS, TRUST, Namespace, Source, aware

Form = Literal["mem0", "records"]
FORMS: tuple[Form, ...] = get_args(Form)

LISTS = ("results", "memories", "items", "data", "records", "facts")
"""Where an export in one piece has its records."""
TEXTS = (
    *("memory", "content", "text", "fact", "page_content"),
    *("observation", "note", "statement", "value", "description"),
)
"""Fields that hold what is to be remembered, in order of preference."""
TIMES = ("written_at", "created_at", "timestamp", "createdAt", "date", "time", "updated_at")
RATINGS = ("salience", "importance", "priority")
TAGS = ("tags", "categories", "labels", "topics")
KIND_WORDS: Mapping[str, str] = {
    **{kind: kind for kind in KINDS},
    **dict.fromkeys(("event", "episode", "conversation", "interaction"), "episodic"),
    **dict.fromkeys(("procedure", "skill", "workflow", "instruction", "how-to"), "procedural"),
    **dict.fromkeys(("insight", "lesson", "summary"), "reflection"),
}
"""What others call kinds of memories; whatever else there is, is semantic."""


def converted(
    text: str, form: Form, namespace: Sequence[str], source: Source = "unknown"
) -> Iterator[str]:
    """The records of another system's export as lines for `import_jsonl`.

    Args:
        text: One JSON value, with the records in it, or one record a line.
        form: "mem0", or "records" for any objects with a text in one of the usual fields.
        namespace: Where they go; "{user_id}" and the like are filled from each record.
        source: Who vouches for the records; one that names a less trusted source keeps that.
    """
    if form not in FORMS:
        raise InputError(f"form must be one of {', '.join(FORMS)}, got {form!r:.80}.")
    if source not in TRUST:
        raise InputError(f"source must be one of {', '.join(TRUST)}, got {source!r:.80}.")
    for number, record in enumerate(_records(text), 1):
        yield json.dumps(_line(record, number, namespace, source), ensure_ascii=False)


def _records(text: str) -> list[Any]:
    """The records in a file, whether it is one JSON value or one a line."""
    try:
        whole = json.loads(text)
    except ValueError:
        try:
            return [json.loads(line) for line in text.splitlines() if line.strip()]
        except ValueError as error:
            raise InputError(f"This is neither JSON nor JSON lines: {error}.") from error
    if isinstance(whole, Mapping):
        whole = next((whole[name] for name in LISTS if isinstance(whole.get(name), list)), [whole])
    if isinstance(whole, list):
        return whole
    raise InputError(f"An export is a list of objects, got {type(whole).__name__}.")


def _line(record: Any, number: int, namespace: Sequence[str], source: Source) -> dict[str, Any]:
    if isinstance(record, str):
        record = {"text": record}
    if not isinstance(record, Mapping):
        raise InputError(f"Record {number} must be an object, got {type(record).__name__}.")
    beside = record.get("metadata")
    fields = {**(beside if isinstance(beside, Mapping) else {}), **record}
    words = _first(fields, TEXTS, lambda field: field if _is_text(field) else None)
    if words is None:
        raise InputError(
            f"Record {number} has no text in any of {', '.join(TEXTS)}; it has "
            f"{', '.join(map(str, record))[:200]}. Rename the field that holds it."
        )
    now = datetime.now(UTC).isoformat()
    written = _first(fields, TIMES, _time)
    kind = _first(fields, ("kind", "type", "memory_type"), str) or ""
    claimed = fields.get("source")
    # A file may say that less is to be believed, never that more is.
    is_less = isinstance(claimed, str) and TRUST.get(claimed, 1.0) < TRUST[source]
    value: dict[str, Any] = {
        "content": words,
        "kind": KIND_WORDS.get(kind.casefold().removesuffix("_memory"), "semantic"),
        "source": claimed if is_less else source,
        "tags": sorted({str(tag) for name in TAGS for tag in _listed(fields.get(name))})[:64],
        "salience": _first(fields, RATINGS, _rating),
        "written_at": written,
        # mem0 calls a session a run.
        "thread_id": _first(fields, ("run_id", "thread_id"), _label),
        "speaker": _first(fields, ("speaker", "actor_id"), _label),
    }
    digest = hashlib.sha256(f"{namespace}{words}".encode()).hexdigest()[:32]
    name = _first(fields, ("id", "key", "uuid"), str) or digest
    check_name(f"The id of record {number}", name)
    return {
        "namespace": list(_home(fields, number, namespace)),
        "key": name,
        "value": {part: it for part, it in value.items() if it not in (None, [])},
        "created_at": written or now,
        "updated_at": _time(fields.get("updated_at")) or written or now,
    }


def _home(fields: Mapping[str, Any], number: int, namespace: Sequence[str]) -> Namespace:
    """The namespace with its variables filled from a record."""
    labels = []
    for label in namespace:
        for _, name, _, _ in Formatter().parse(label):
            if name and not _label(fields.get(name)):
                raise InputError(
                    f"Record {number} has no {name!r} for the namespace {'/'.join(namespace)}. "
                    "Name one without variables."
                )
        known = {name: str(field) for name, field in fields.items() if _label(field)}
        # A dot would end the label in most stores.
        labels.append(label.format_map(known).replace(".", "%2E"))
    return tuple(labels)


def _first(fields: Mapping[str, Any], names: Sequence[str], read: Callable[[Any], Any]) -> Any:
    """What the first of some fields says that says anything."""
    given = (fields[name] for name in names if fields.get(name))
    return next((found for field in given if (found := read(field))), None)


def _is_text(field: Any) -> bool:
    return isinstance(field, str) and bool(field.strip())


def _label(field: Any) -> str | None:
    is_number = isinstance(field, int) and not isinstance(field, bool)
    return str(field) if is_number or _is_text(field) else None


def _listed(field: Any) -> Sequence[Any]:
    if isinstance(field, str):
        return [part.strip() for part in field.split(",") if part.strip()]
    return field if isinstance(field, list) else ()


def _rating(field: Any) -> float | None:
    """A number from 0 to 1; whole ones from 1 to 10 are a scale of ten."""
    if isinstance(field, bool) or not isinstance(field, int | float) or not 0 < field <= 10:
        return None
    return field / 10 if isinstance(field, int) or field > 1 else float(field)


def _time(field: Any) -> str | None:
    """A time as ISO, from ISO or from seconds or milliseconds since 1970; None for all else."""
    try:
        if isinstance(field, str):
            read = datetime.fromisoformat(field.replace("Z", "+00:00"))
        elif isinstance(field, int | float) and not isinstance(field, bool) and field > 0:
            read = datetime.fromtimestamp(field / 1_000 if field > 1e11 else field, UTC)
        else:
            return None
    except (ValueError, OverflowError, OSError):
        return None
    zoned = aware(read)
    return zoned.isoformat() if zoned else None
