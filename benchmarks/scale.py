"""What a memory and a turn cost, measured at a few sizes, and what that comes to at larger ones.

Run `python benchmarks/scale.py`. It fills a Postgres of its own and a LocalStore with tenants of
100 memories, takes the slopes, and extrapolates them up to a million tenants of 10,000 memories.
Bytes are those of short English-like texts and 256 dimensions; for d dimensions add 8 (d - 256)
bytes a memory in Postgres (vector and index) and 4 (d - 256) in a LocalStore.
"""

from __future__ import annotations

import argparse
import gc
import math
import statistics
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import psycopg
from langgraph.store.base import PutOp
from postgres import DIMS, Vectors, cue, fill, open_store, server
from stores import text_of, use_one_thread

from langmem_recall import LocalStore
from langmem_recall.stores.recall_store import RecallStore

EACH = 100
SIZES = (10_000, 30_000, 100_000)
TABLES = ("store", "store_vectors", "langmem_recall_usage")
TARGETS = ((1_000, 100), (10_000, 1_000), (100_000, 1_000), (1_000_000, 10_000))
"""Tenants, and memories of each."""


class Point(NamedTuple):
    """What was measured with so many memories in the database."""

    memories: int
    bytes: dict[str, int]
    warm_ms: float
    cold_ms: float


def resident_mb() -> float:
    """Memory that this process has in use."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6


def table_bytes(uri: str) -> dict[str, int]:
    """Tables with their indexes."""
    with psycopg.connect(uri) as database:
        sizes = (
            database.execute("SELECT pg_total_relation_size(%s::regclass)", (table,)).fetchone()
            for table in TABLES
        )
        return {table: size[0] if size else 0 for table, size in zip(TABLES, sizes, strict=True)}


def measured(uri: str, vectors: Vectors, memories: int, rounds: int) -> Point:
    """Recalls of tenants chosen at random, first of all and then again."""
    tenants = memories // EACH
    fill(uri, vectors, [f"bench.user{n}" for n in range(tenants)], EACH)
    cold, warm = [], []
    with open_store(uri, vectors) as inner, RecallStore(inner) as store:
        for n in np.random.default_rng(3).integers(0, tenants, rounds).tolist():
            home = ("bench", f"user{n}")
            for took in (cold, warm):
                started = time.perf_counter()
                store.recall(home, cue(n))
                took.append(1e3 * (time.perf_counter() - started))
    return Point(memories, table_bytes(uri), statistics.median(warm), statistics.median(cold))


def index_slopes(uri: str, vectors: Vectors) -> tuple[float, float]:
    """Kilobytes and milliseconds that the words of one memory take in a process."""
    with open_store(uri, vectors) as inner, RecallStore(inner) as store:
        store.recall(("bench", "user0"), cue(0))
        gc.collect()
        before, started = resident_mb(), time.perf_counter()
        store.recall(("bench",), cue(1))
        took = time.perf_counter() - started
        gc.collect()
        return 1e3 * (resident_mb() - before) / SIZES[-1], 1e3 * took / SIZES[-1]


def local_slope(folder: Path) -> float:
    """Kilobytes of a LocalStore file for each memory."""
    path = folder / "memory.db"
    embedder = Vectors(512)
    with LocalStore(path, index={"dims": DIMS, "embed": embedder, "fields": ["content"]}) as store:
        for start in range(0, 10_000, 1_000):
            ops = (
                PutOp(("bench", "user"), f"m{n}", {"content": text_of(n)})
                for n in range(start, start + 1_000)
            )
            store.batch(ops)
        store.search(("bench", "user"), query=cue(1))
    return sum(file.stat().st_size for file in folder.iterdir()) / 1e3 / 10_000


def print_points(points: list[Point]) -> None:
    """What was measured."""
    print(f"{'memories':>10} {'bytes each':>11} {'warm ms':>8} {'first ms':>9}")
    for point in points:
        each = sum(point.bytes[table] for table in TABLES[:2]) / point.memories
        print(f"{point.memories:>10,} {each:>11,.0f} {point.warm_ms:>8.2f} {point.cold_ms:>9.2f}")


def print_targets(points: list[Point], index_kb: float) -> None:
    """What the slopes come to."""
    first, last = points[0], points[-1]
    stored = (sum(last.bytes.values()) - sum(first.bytes.values())) / (
        last.memories - first.memories
    )
    # Trees grow by the logarithm of what they hold.
    rise = (last.warm_ms - first.warm_ms) / math.log(last.memories / first.memories)
    heads = f"{'tenants':>10} {'each':>7} {'memories':>15} {'database':>10}"
    print(f"\n{heads} {'warm ms':>8} {'hot MB':>7}")
    for tenants, each in TARGETS:
        count = tenants * each
        warm = last.warm_ms + max(rise, 0.0) * math.log(max(count / last.memories, 1))
        print(
            f"{tenants:>10,} {each:>7,} {count:>15,} {count * stored / 1e9:>7,.0f} GB "
            f"{warm:>8.1f} {each * index_kb / 1e3:>7.1f}"
        )


def main() -> None:
    """Measure, then extrapolate."""
    use_one_thread()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=200)
    rounds = parser.parse_args().rounds
    vectors = Vectors(SIZES[-1])
    with server() as fresh, tempfile.TemporaryDirectory() as folder:
        uris = {memories: fresh(f"scale{memories}") for memories in SIZES}
        points = [measured(uri, vectors, memories, rounds) for memories, uri in uris.items()]
        print_points(points)
        index_kb, fill_ms = index_slopes(uris[SIZES[-1]], vectors)
        print(f"\nwords in process: {index_kb:.1f} kB and {fill_ms:.3f} ms a memory, once")
        print(f"LocalStore file: {local_slope(Path(folder)):.1f} kB a memory")
        print_targets(points, index_kb)


if __name__ == "__main__":
    main()
