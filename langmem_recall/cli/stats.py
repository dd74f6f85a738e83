"""`langmem-recall stats`: what a store holds, at a glance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from langmem_recall.cli.output import AsJson, Output, deliver, listing, progress, table
from langmem_recall.cli.stores import (
    Target,
    Within,
    all_memories,
    is_postgres,
    open_store,
    parse_namespace,
    shown,
    told_namespace,
    usages_of,
)

if TYPE_CHECKING:
    from langmem_recall.types import Memory, Usage

SHOWN = 20
"""Labels of one kind in the table; all are in the JSON."""
COUNTED = ("namespaces", "kinds", "sources", "statuses", "ages", "uses", "last_used")
UNKNOWN = "unknown"
AGES = (("under 1 day", 1), ("1 to 7 days", 7), ("7 to 30 days", 30), ("30 to 90 days", 90))
OLDEST = "over 90 days"
USES = (("never used", 0), ("1 to 4 times", 4), ("5 to 19 times", 19))
MOST = "20 times or more"
_SECONDS_PER_DAY = 86_400


def stats_command(
    store: Target, namespace: Within = None, as_json: AsJson = False, output: Output = None
) -> None:
    """Count memories by namespace, kind, source, status, age and use.

    Nothing is changed: reads of this command count as no use and extend no time to live.
    """
    prefix = parse_namespace(namespace)
    with open_store(store) as opened, progress("reading"):
        memories = all_memories(opened, prefix)
        usages = usages_of(opened, memories)
    record = {
        "store": shown(store),
        "namespace": told_namespace(prefix),
        "bytes": None if is_postgres(store) else _size(store),
        "memories": len(memories),
        **_counts(memories, usages, datetime.now(UTC)),
    }
    deliver(record, lambda screen: _show(screen, record), as_json, output)


def _size(target: str) -> int:
    """Of the file and of the log beside it, in which SQLite keeps the latest writes."""
    files = (Path(target), Path(f"{target}-wal"))
    return sum(file.stat().st_size for file in files if file.exists())


def _counts(
    memories: Sequence[Memory], usages: Sequence[Usage], now: datetime
) -> dict[str, dict[str, int]]:
    used = [usage.last_used for usage in usages if usage.last_used is not None]
    return {
        "namespaces": _by_count(told_namespace(memory.namespace) for memory in memories),
        "kinds": _by_count(memory.kind for memory in memories),
        "sources": _by_count(memory.source for memory in memories),
        "statuses": _by_count(memory.status for memory in memories),
        "ages": _in_order((_age(memory, now) for memory in memories), AGES, (OLDEST, UNKNOWN)),
        "uses": _in_order((_use(usage) for usage in usages), USES, (MOST,)),
        "last_used": _in_order((_age_label(last, now) for last in used), AGES, (OLDEST,)),
    }


def _by_count(labels: Iterable[str]) -> dict[str, int]:
    counted = Counter(labels)
    return dict(sorted(counted.items(), key=lambda pair: (-pair[1], pair[0])))


def _in_order(
    labels: Iterable[str], bounds: Sequence[tuple[str, int]], rest: Sequence[str]
) -> dict[str, int]:
    counted = Counter(labels)
    return {label: counted[label] for label in (*dict(bounds), *rest) if counted[label]}


def _age(memory: Memory, now: datetime) -> str:
    return UNKNOWN if memory.written_at is None else _age_label(memory.written_ts, now)


def _age_label(moment: float, now: datetime) -> str:
    days = (now.timestamp() - moment) / _SECONDS_PER_DAY
    return next((label for label, bound in AGES if days < bound), OLDEST)


def _use(usage: Usage) -> str:
    return next((label for label, bound in USES if usage.uses <= bound), MOST)


def _show(screen: Console, record: Mapping[str, Any]) -> None:
    size = record["bytes"]
    head = [("store", record["store"]), ("memories", f"{record['memories']:,}")]
    head += [] if size is None else [("size", f"{size / 1e6:,.1f} MB")]
    screen.print(listing(None, head))
    rows = [row for name in COUNTED for row in _rows(name.replace("_", " "), record[name])]
    if rows:
        screen.print(table(None, ("by", "", "memories"), rows, labels=2))


def _rows(name: str, counts: Mapping[str, int]) -> Iterator[tuple[str, str, str]]:
    """The largest counts, the rest in one; the name stands before the first."""
    first, rest = list(counts.items())[:SHOWN], list(counts.values())[SHOWN:]
    for label, count in first:
        yield name, label, f"{count:,}"
        name = ""
    if rest:
        yield name, f"{len(rest):,} others", f"{sum(rest):,}"
