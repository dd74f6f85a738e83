"""Memories of other systems as lines that `import_jsonl` reads."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from string import Formatter
from typing import Any

from langmem_recall.errors import InputError
from langmem_recall.memory.value import check_name, read_memory
from langmem_recall.types import KINDS, TRUST, Source, aware

LISTS = ("results", "memories", "items", "data")
"""Where an export in one piece has its records."""
TEXTS = ("memory", "content", "text", "fact", "page_content")
"""Fields that hold what is to be remembered, in order of preference."""
TIMES = ("written_at", "created_at", "timestamp", "date")


def converted(text: str, namespace: Sequence[str], source: Source = "unknown") -> Iterator[str]:
    """The records of another system's export, such as mem0's, as lines for `import_jsonl`.

    Args:
        text: One JSON value, with the records in it, or one record a line.
        namespace: Where they go; "{user_id}" and the like are filled from each record.
        source: Who vouches for the records; one that names a less trusted source keeps that.
    """
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
    if not isinstance(record, Mapping):
        raise InputError(f"Record {number} must be an object, got {type(record).__name__}.")
    beside = record.get("metadata")
    fields = {**(beside if isinstance(beside, Mapping) else {}), **record}
    texts = (field for field in map(fields.get, TEXTS) if isinstance(field, str))
    words = next(filter(str.strip, texts), None)
    if words is None:
        raise InputError(
            f"Record {number} has no text in any of {', '.join(TEXTS)}; it has "
            f"{', '.join(map(str, record))[:200]}. Rename the field that holds it."
        )
    written = next(filter(None, map(_time, map(fields.get, TIMES))), None)
    kind = str(fields.get("kind") or fields.get("type"))
    claimed, tags = fields.get("source"), fields.get("tags") or fields.get("categories")
    # A file may say that less is to be believed, never that more is.
    is_less = isinstance(claimed, str) and TRUST.get(claimed, 1.0) < TRUST[source]
    ratings = {name: fields.get(name) for name in ("salience", "importance")}
    value: dict[str, Any] = {
        "content": words,
        "kind": kind if kind in KINDS else "semantic",
        "source": claimed if is_less else source,
        "tags": sorted(map(str, tags)) if isinstance(tags, list) else None,
        "salience": read_memory((), "", ratings).salience if any(ratings.values()) else None,
        "written_at": written,
        # mem0 calls a session a run.
        "thread_id": _label(fields.get("run_id") or fields.get("thread_id")),
        "speaker": _label(fields.get("speaker")),
    }
    digest = hashlib.sha256(f"{namespace}{words}".encode()).hexdigest()[:32]
    name = str(fields.get("id") or fields.get("key") or digest)
    check_name(f"The id of record {number}", name)
    now = datetime.now(UTC).isoformat()
    return {
        "namespace": [_filled(label, fields, number) for label in namespace],
        "key": name,
        "value": {part: it for part, it in value.items() if it is not None},
        "created_at": written or now,
        "updated_at": _time(fields.get("updated_at")) or written or now,
    }


def _filled(label: str, fields: Mapping[str, Any], number: int) -> str:
    """A label of the namespace with its variables filled from a record."""
    known = {name: _label(field) for name, field in fields.items()}
    for _, name, _, _ in Formatter().parse(label):
        if name and not known.get(name):
            raise InputError(
                f"Record {number} has no {name!r} for the label {label} of the namespace. Name one "
                "without variables."
            )
    # A dot would end the label in most stores.
    return label.format_map(known).replace(".", "%2E")


def _label(field: Any) -> str | None:
    is_number = isinstance(field, int) and not isinstance(field, bool)
    return str(field) if is_number or (isinstance(field, str) and field.strip()) else None


def _time(field: Any) -> str | None:
    """A time as ISO, from ISO or from seconds since 1970; None for all else."""
    try:
        if isinstance(field, str):
            zoned = aware(datetime.fromisoformat(field))
            return zoned.isoformat() if zoned else None
        return datetime.fromtimestamp(field, UTC).isoformat()
    except (TypeError, ValueError, OverflowError, OSError):
        return None
