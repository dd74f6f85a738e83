"""What a search, a recall, a put and an opening cost: InMemoryStore, LocalStore, a bare product.

Run `python benchmarks/stores.py` (1k and 10k memories) or with `--full` (100k as well). 256
dimensions, one namespace, search(limit=30), the embedding of queries excluded. One BLAS thread.
What is compared runs in turns, cue by cue, warm: a number is the median over cues of the best of
several rounds, for all alike, because other work on the machine only adds. A row says what cues
cost that were never seen before, beside such as were.
"""

from __future__ import annotations

import argparse
import gc
import math
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from langchain_core.embeddings import Embeddings
from langgraph.store.base import BaseStore, PutOp
from langgraph.store.memory import InMemoryStore

from langmem_recall.stores.local.store import LocalStore
from langmem_recall.stores.recall_store import RecallStore

DIMS = 256
LIMIT = 30
CUES = 32
NAMESPACE = ("bench", "user")
BATCH = 1_000
LETTERS = np.array(list("bcdfglmnprstvaeiou"))
WORDS = ["".join(word) for word in np.random.default_rng(1).choice(LETTERS, (5_000, 7))]
SHARES = 1.0 / (np.arange(len(WORDS)) + 10)
"""A vocabulary with a long tail, as texts have."""
TAIL = np.cumsum(SHARES / SHARES.sum())

Row = tuple[str, str, str, str]


class RandomVectors(Embeddings):
    """Precomputed unit vectors: text number n, or the n-th query, has vector n; others any one."""

    identity = "random vectors"
    """Without a name a store asks for the vector of a text of its own."""

    def __init__(self, count: int) -> None:
        self.dims = DIMS
        drawn = np.random.default_rng(7).standard_normal((count, DIMS)).astype(np.float32)
        self.matrix = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """The vectors by the number each text begins with."""
        firsts = [text.split(" ", 1)[0] for text in texts]
        rows = [int(word) if word.isdigit() else crc32(word.encode()) for word in firsts]
        return [self.matrix[row % len(self.matrix)].tolist() for row in rows]

    def embed_query(self, text: str) -> list[float]:
        """The vector by the number."""
        return self.embed_documents([text])[0]


class Precomputed(RandomVectors):
    """The same vectors, but a query's is made before the clock starts."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.queries = {str(n): super(Precomputed, self).embed_query(str(n)) for n in range(CUES)}

    def embed_query(self, text: str) -> list[float]:
        """Looked up."""
        known = self.queries.get(text.split(" ", 1)[0])
        return super().embed_query(text) if known is None else known


def text_of(number: int) -> str:
    """Twelve words, the first of them the number."""
    drawn = np.searchsorted(TAIL, np.random.default_rng(number).random(11))
    return " ".join([str(number), *(WORDS[place] for place in drawn)])


def puts(count: int, namespace: tuple[str, ...] = NAMESPACE, **index: Any) -> list[PutOp]:
    """Memories to write."""
    return [PutOp(namespace, f"m{n}", {"content": text_of(n)}, **index) for n in range(count)]


def fill(store: BaseStore, ops: Sequence[PutOp]) -> float:
    """Write in batches; returns the seconds."""
    started = time.perf_counter()
    for start in range(0, len(ops), BATCH):
        store.batch(ops[start : start + BATCH])
    return time.perf_counter() - started


def in_turns_ms(
    calls: Mapping[str, Callable[[str], object]], rounds: int = 15, cue_count: int = CUES
) -> dict[str, float]:
    """Milliseconds of each call: the median over cues of its best time, the calls taking turns."""
    cues = [str(number) for number in range(cue_count)]
    best = {(name, cue): math.inf for name in calls for cue in cues}
    # The first round warms up, and is not the best of any.
    for _ in range(rounds + 1):
        for cue in cues:
            for name, call in calls.items():
                started = time.perf_counter()
                call(cue)
                spent = 1_000 * (time.perf_counter() - started)
                best[name, cue] = min(spent, best[name, cue])
    return {name: statistics.median(best[name, cue] for cue in cues) for name in calls}


def reads(store: BaseStore, wrapped: RecallStore) -> dict[str, Callable[[str], object]]:
    """The bare search of a store, and a RecallStore around it with cues of eight words."""
    words = {str(n): text_of(n + 10**6).split(" ")[1:8] for n in range(CUES)}
    cues = {n: " ".join((n, *rest)) for n, rest in words.items()}
    return {
        "bare": lambda n: store.search(NAMESPACE, query=n, limit=LIMIT),
        "search": lambda n: wrapped.search(NAMESPACE, query=cues[n], limit=LIMIT),
        "recall": lambda n: wrapped.recall(NAMESPACE, cues[n]),
    }


def new_cues(wrapped: RecallStore, count: int = 400) -> dict[str, float]:
    """How many times as long a search and a recall take for words that were never asked before."""
    calls: dict[str, Callable[[str], object]] = {
        "search": lambda cue: wrapped.search(NAMESPACE, query=cue, limit=LIMIT),
        "recall": lambda cue: wrapped.recall(NAMESPACE, cue),
    }
    spent: dict[tuple[str, bool], list[float]] = defaultdict(list)
    for number in range(count):
        for place, (name, call) in enumerate(calls.items(), start=2):
            for is_new, known in ((False, number % CUES), (True, number)):
                words = text_of(place * 10**6 + known).split(" ")[1:8]
                cue = " ".join((str(number % CUES), *words))
                started = time.perf_counter()
                call(cue)
                spent[name, is_new].append(time.perf_counter() - started)
    # The first cues were new to both.
    times = {key: statistics.median(each[CUES:]) for key, each in spent.items()}
    return {name: times[name, True] / times[name, False] for name in calls}


def in_memory(count: int, vectors: Precomputed) -> InMemoryStore:
    """An InMemoryStore with that many memories."""
    store = InMemoryStore(index={"embed": vectors, "dims": DIMS, "fields": ["content"]})
    fill(store, puts(count))
    return store


def product(count: int, vectors: Precomputed) -> Callable[[str], object]:
    """A float32 product with one vector, then argpartition."""
    matrix = vectors.matrix[:count]

    def search(query: str) -> object:
        scores = matrix @ np.asarray(vectors.queries[query], np.float32)
        best = np.argpartition(scores, -LIMIT)[-LIMIT:]
        return best[np.argsort(-scores[best])]

    return search


def local_rows(count: int, vectors: Precomputed, local: LocalStore) -> list[Row]:
    """One size: LocalStore bare and in a RecallStore with its ledger, against the same vectors."""
    with RecallStore(local) as wrapped:
        calls = {"product": product(count, vectors), **reads(local, wrapped)}
        found = in_turns_ms(calls)
        anew = new_cues(wrapped)
    other = in_memory(count, vectors)
    bare_search = {"bare": lambda n: other.search(NAMESPACE, query=n, limit=LIMIT)}
    slow = in_turns_ms(bare_search, rounds=2, cue_count=4)["bare"]
    bare, size = found["bare"], f"{count:,}"
    times = f"{slow / bare:.0f}x faster than InMemoryStore, {bare / found['product']:.1f}x product"
    rows = [
        (f"search {size}", "InMemoryStore", f"{slow:.3f} ms", ""),
        (f"search {size}", "bare product", f"{found['product']:.3f} ms", ""),
        (f"search {size}", "LocalStore", f"{bare:.3f} ms", times),
    ]
    for name in ("search", "recall"):
        ratio = f"{found[name] / bare:.2f}x LocalStore, {found[name] / slow:.3f}x InMemoryStore"
        rows.append((f"{name} {size}", "RecallStore(LocalStore)", f"{found[name]:.3f} ms", ratio))
    also = f"search {anew['search']:.2f}x, recall {anew['recall']:.2f}x those of known ones"
    rows.append((f"new cues {size}", "RecallStore(LocalStore)", "", also))
    return rows


def any_store_rows(count: int, vectors: Precomputed) -> list[Row]:
    """What a RecallStore adds to a store that holds no words: InMemoryStore."""
    store = in_memory(count, vectors)
    with RecallStore(store) as wrapped:
        found = in_turns_ms(reads(store, wrapped))
    size, bare = f"{count:,}", found.pop("bare")
    return [
        (f"search {size}", "InMemoryStore", f"{bare:.3f} ms", ""),
        *(
            (
                f"{name} {size}",
                "RecallStore(InMemory)",
                f"{cost:.3f} ms",
                f"{cost / bare:.2f}x bare",
            )
            for name, cost in found.items()
        ),
    ]


def users_row(vectors: Precomputed, folder: Path) -> Row:
    """100 users with 1,000 memories each, searched in turn."""
    with LocalStore(folder / "users.db", embeddings=vectors) as store:
        users = [("bench", f"user{n}") for n in range(100)]
        for user in users:
            fill(store, puts(1_000, user))
        turn = cycle(users)
        calls = {"bare": lambda n: store.search(next(turn), query=n, limit=LIMIT)}
        cost = in_turns_ms(calls, rounds=100)["bare"]
    return ("search 100 x 1,000", "LocalStore", f"{cost:.3f} ms", "one user of a hundred, warm")


def put_row(folder: Path) -> Row:
    """Durable writes without embedding, in batches of 1,000."""
    ops = puts(20_000, index=False)
    runs = []
    for number in range(3):
        with LocalStore(folder / f"puts{number}.db") as store:
            runs.append(fill(store, ops))
    seconds = min(runs)
    return ("puts", "LocalStore", f"{len(ops) / seconds:,.0f} /s", "batches of 1,000, fsync each")


def open_row(path: Path, count: int) -> Row:
    """A new process opens the file and answers its first search; memory by what it added."""
    command = [sys.executable, __file__, "--open", str(path), "--count", str(count)]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    seconds, added_mb, raw_mb = (float(part) for part in told)
    return (
        f"open {count:,}",
        "LocalStore",
        f"{seconds:.2f} s",
        f"first search included; {added_mb:.0f} MB added, raw data {raw_mb:.0f} MB: "
        f"{added_mb / raw_mb:.2f}x",
    )


def measure_opening(path: Path, count: int) -> None:
    """Inside the new process."""
    vectors = Precomputed(CUES)
    gc.collect()
    before = resident_mb()
    started = time.perf_counter()
    with LocalStore(path, embeddings=vectors) as store:
        store.search(NAMESPACE, query="0", limit=LIMIT)
        seconds = time.perf_counter() - started
        gc.collect()
        print(seconds, resident_mb() - before, raw_mb(store, count))


def raw_mb(store: LocalStore, count: int) -> float:
    """Vectors, texts and postings (a row and a count of four bytes each), nothing else."""
    texts = sum(len(text_of(n)) for n in range(count))
    shelf = store.shelf(NAMESPACE)
    with shelf.lock:
        lexical = shelf.catalog.lexical
        postings = len(lexical.distinct_terms(range(lexical.rows))[0])
    return (4 * DIMS * count + texts + 8 * postings) / 1e6


def resident_mb() -> float:
    """Resident memory of this process now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def print_table(rows: Sequence[Row]) -> None:
    """Aligned columns."""
    widths = [max(len(row[place]) for row in rows) for place in range(4)]
    for row in rows:
        print(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        )


def run(sizes: Sequence[int]) -> list[Row]:
    """All measurements."""
    vectors = Precomputed(max(sizes))
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for count in sizes:
            with LocalStore(folder / f"{count}.db", embeddings=vectors) as store:
                fill(store, puts(count))
                rows += local_rows(count, vectors, store)
        rows += any_store_rows(600, vectors)
        rows += [users_row(vectors, folder), put_row(folder)]
        rows += [open_row(folder / f"{sizes[-1]}.db", sizes[-1])]
    return rows


def use_one_thread() -> None:
    """Start again with one BLAS thread, which must be said before numpy is loaded."""
    if os.environ.get("OPENBLAS_NUM_THREADS") != "1":
        one = {"OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **one})


def main() -> None:
    """Parse the command line and print the table."""
    use_one_thread()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="100,000 memories as well")
    parser.add_argument("--open", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--count", type=int, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.open:
        measure_opening(chosen.open, chosen.count)
        return
    print_table(run((1_000, 10_000, 100_000) if chosen.full else (1_000, 10_000)))


if __name__ == "__main__":
    main()
