"""The files of a log: appended to, rotated, read and rewritten, with a lock between processes."""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from glob import escape
from pathlib import Path
from typing import Any

from langmem_recall.observe.records import FEEDBACK
from langmem_recall.types import Namespace

try:
    import fcntl
except ImportError:  # Windows has no such locks: let one process at a time write a log there.
    fcntl = None  # type: ignore[assignment]

logger = logging.getLogger(__name__)

FORGOTTEN = "a forgotten memory"
"""Stands in a reason where the key of an erased memory stood."""


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Whoever changes a log's files holds this, in any process."""
    if fcntl is None:
        yield
        return
    lock = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def append(path: Path, lines: deque[bytes], max_bytes: int, keep: int) -> None:
    """Move lines into the file, each by one write; rotate where it grows beyond its size."""
    while lines:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            size = _mended_size(file)
            while lines and (not size or size + len(lines[0]) <= max_bytes):
                _write(file, lines[0], size)
                size += len(lines.popleft())
        finally:
            os.close(file)
        if lines:
            _rotate(path, keep)


def _mended_size(file: int) -> int:
    """The file's size, after ending a line that a killed process left unfinished."""
    size = os.lseek(file, 0, os.SEEK_END)
    if size:
        os.lseek(file, size - 1, os.SEEK_SET)
        if os.read(file, 1) != b"\n":
            size += os.write(file, b"\n")
    return size


def _write(file: int, line: bytes, size: int) -> None:
    written = os.write(file, line)
    if written < len(line):
        os.ftruncate(file, size)
        raise OSError(f"only {written} of {len(line)} bytes could be written")


def _rotate(path: Path, keep: int) -> None:
    if not keep:
        path.unlink()
        return
    for number in range(keep - 1, 0, -1):
        held = _rotated(path, number)
        if held.exists():
            held.replace(_rotated(path, number + 1))
    path.replace(_rotated(path, 1))


def _rotated(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")


def files(path: Path) -> list[Path]:
    """The files of a log that exist, the oldest first."""
    endings = (file.name.rpartition(".")[2] for file in path.parent.glob(f"{escape(path.name)}.*"))
    numbers = sorted((int(ending) for ending in endings if ending.isdecimal()), reverse=True)
    return [*(_rotated(path, number) for number in numbers), *([path] if path.exists() else [])]


def records(path: Path) -> Iterator[dict[str, Any]]:
    """What a log's files hold, the oldest first; a warning says how many lines were unreadable."""
    bad = 0
    for file in files(path):
        with open(file, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                record = _parsed(line)
                if record is not None:
                    yield record
                elif line.strip():
                    bad += 1
    if bad:
        logger.warning("%d lines of %s could not be read and were left out.", bad, path)


def _parsed(line: str) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


# --- erasing --------------------------------------------------------------------------------------


def rewrite(file: Path, namespace: Namespace, key: str | None) -> int:
    """Replace a file by one without a namespace or a memory; returns how many records changed."""
    kept, changed = [], 0
    with open(file, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            record = _parsed(line)
            # What cannot be read might hold what is to be erased.
            left = None if record is None else _without(record, namespace, key)
            changed += left is not record or record is None
            if left is not None:
                kept.append(line if left is record else f"{json.dumps(left)}\n")
    if changed:
        _replace(file, "".join(kept))
    return changed


def _replace(file: Path, text: str) -> None:
    fresh = file.with_name(f"{file.name}.new")
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    shutil.copymode(file, fresh)
    fresh.replace(file)


def _without(
    record: dict[str, Any], namespace: Namespace, key: str | None
) -> dict[str, Any] | None:
    """The record itself where it holds nothing of it, None where nothing is left of it."""
    if key is None:
        return None if any(_is_below(held, namespace) for held in _namespaces(record)) else record
    if record.get("kind") == FEEDBACK:
        return None if _is_memory(record, namespace, key) else record
    candidates = record.get("candidates", [])
    left = [held for held in candidates if not _is_memory(held, namespace, key)]
    if len(left) == len(candidates):
        return record
    name = [list(namespace), key]
    return {
        **{field: held for field, held in record.items() if field != "block"},
        "candidates": [_reworded(held, key) for held in left],
        "compacted": [held for held in record.get("compacted", []) if held != name],
        "conflicts": [held for held in record.get("conflicts", []) if name not in held],
    }


def _namespaces(record: Mapping[str, Any]) -> Iterator[Any]:
    yield record.get("namespace")
    yield from record.get("namespaces", ())
    yield from (held.get("namespace") for held in record.get("candidates", ()))


def _is_below(held: Any, namespace: Namespace) -> bool:
    return isinstance(held, list) and tuple(held[: len(namespace)]) == namespace


def _is_memory(held: Mapping[str, Any], namespace: Namespace, key: str) -> bool:
    return held.get("namespace") == list(namespace) and held.get("key") == key


def _reworded(held: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Reasons name other memories by their keys."""
    told = {
        name: held[name].replace(key, FORGOTTEN) for name in ("reason", "standing") if name in held
    }
    return {**held, **told}
