"""`langmem-recall stats`: what a store holds, at a glance."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from time import time
from typing import Any

from rich.console import Console

from langmem_recall.cli.inputs import (
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
from langmem_recall.cli.output import AsJson, Output, deliver, listing, progress, table

SHOWN = 20
"""Labels of one kind in the table; all are in the JSON."""
COUNTED = ("namespaces", "kinds", "sources", "statuses", "ages", "uses", "last_used")
UNKNOWN = "unknown"
AGES = {
    "under 1 day": 1,
    "1 to 7 days": 7,
    "7 to 30 days": 30,
    "30 to 90 days": 90,
    "over 90 days": math.inf,
}
USES = {"never used": 1, "1 to 4 times": 5, "5 to 19 times": 20, "20 times or more": math.inf}
_SECONDS_PER_DAY = 86_400


def stats_command(
    store: Target, namespace: Within = None, as_json: AsJson = False, output: Output = None
) -> None:
    """Count memories by namespace, kind, source, status, age and use.

    Nothing is changed: reads of this command count as no use and extend no time to live.
    """
    prefix, now = parse_namespace(namespace), time()
    with open_store(store) as opened, progress("reading"):
        memories = all_memories(opened, prefix)
        usages = usages_of(opened, memories)
    # SQLite keeps the latest writes in a log beside the file.
    files = [path for path in (Path(store), Path(f"{store}-wal")) if path.exists()]
    used = [usage.last_used for usage in usages if usage.last_used is not None]
    record = {
        "store": shown(store),
        "namespace": told_namespace(prefix),
        "bytes": None if is_postgres(store) else sum(file.stat().st_size for file in files),
        "memories": len(memories),
        "namespaces": _by_count(told_namespace(memory.namespace) for memory in memories),
        "kinds": _by_count(memory.kind for memory in memories),
        "sources": _by_count(memory.source for memory in memories),
        "statuses": _by_count(memory.status for memory in memories),
        "ages": in_ranges(
            ((now - memory.written_ts) / _SECONDS_PER_DAY for memory in memories), AGES
        ),
        "uses": in_ranges((usage.uses for usage in usages), USES),
        "last_used": in_ranges(((now - last) / _SECONDS_PER_DAY for last in used), AGES),
    }
    deliver(record, lambda screen: _show(screen, record), as_json, output)


def _by_count(labels: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(labels).items(), key=lambda pair: (-pair[1], pair[0])))


def in_ranges(numbers: Iterable[float], ranges: Mapping[str, float]) -> dict[str, int]:
    """How many numbers lie below each bound and not below the one before; NaN is unknown."""
    counts = Counter(
        next((label for label, bound in ranges.items() if number < bound), UNKNOWN)
        for number in numbers
    )
    return {label: counts[label] for label in (*ranges, UNKNOWN) if counts[label]}


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
