"""What ranking costs: `RecallStore.search` beside the bare inner `search`, in one run.

Run with `make bench` or `python benchmarks/overhead.py`. The embedder is a table of fixed vectors,
so that embedding costs neither side anything.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import numpy as np
from langchain_core.embeddings import Embeddings
from langgraph.store.memory import InMemoryStore

from langmem_recall.policy import RecallPolicy
from langmem_recall.ranking.pipeline import rank, select
from langmem_recall.stores.recall_store import RecallStore
from langmem_recall.types import Candidate, Cue, Evidence, Memory, Scored, Usage

DIMS = 256
NAMESPACE = ("memories", "user")


class TableEmbeddings(Embeddings):
    """A fixed random unit vector for each text."""

    def embed_query(self, text: str) -> list[float]:
        """The vector of a text."""
        vector = np.random.default_rng(abs(hash(text)) % 2**32).normal(size=DIMS)
        return (vector / np.linalg.norm(vector)).tolist()

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """The vectors of several texts."""
        return [self.embed_query(text) for text in texts]


def sentences(count: int, seed: int = 7) -> list[str]:
    """Sentences of 12 words from a vocabulary with a long tail."""
    rng, letters = random.Random(seed), random.Random(1)
    words = ["".join(letters.choices("bcdfglmnprstvaeiou", k=7)) for _ in range(5_000)]
    weights = [1.0 / (rank + 10) for rank in range(5_000)]
    return [" ".join(rng.choices(words, weights, k=12)) for _ in range(count)]


def side_by_side(
    one: Callable[[str], object], other: Callable[[str], object], cues: list[str]
) -> tuple[float, float, float]:
    """Median milliseconds of both, taking turns, and the median of their ratios."""
    ours, theirs, ratios = [], [], []
    for turn, cue in enumerate(cues):
        if turn % 2:
            took = _timed(one, cue)
            theirs.append(_timed(other, cue))
        else:
            theirs.append(_timed(other, cue))
            took = _timed(one, cue)
        ours.append(took)
        ratios.append(took / theirs[-1])
    return statistics.median(ours), statistics.median(theirs), statistics.median(ratios)


def _timed(call: Callable[[str], object], cue: str) -> float:
    start = time.perf_counter()
    call(cue)
    return (time.perf_counter() - start) * 1e3


def store_of(count: int) -> InMemoryStore:
    """An InMemoryStore with that many memories."""
    store = InMemoryStore(index={"dims": DIMS, "embed": TableEmbeddings(), "fields": ["content"]})
    for i, text in enumerate(sentences(count)):
        value = {"content": f"{text} {i}", "thread_id": f"t{i // 20}", "turn": i % 20}
        store.put(NAMESPACE, f"m{i}", value)
    return store


def search_overhead(count: int, cues: int) -> tuple[float, float, float]:
    """Search through RecallStore and bare, at one size."""
    inner = store_of(count)
    store = RecallStore(inner)
    questions = [" ".join(text.split()[:8]) + "?" for text in sentences(cues + 3, seed=11)]
    for warm in questions[:3]:
        store.search(NAMESPACE, query=warm)
    return side_by_side(
        lambda cue: store.search(NAMESPACE, query=cue, limit=10),
        lambda cue: inner.search(NAMESPACE, query=cue, limit=10),
        questions[3:],
    )


def ranking_alone(repeats: int = 300) -> tuple[float, float]:
    """Median milliseconds over 100 candidates: ranking, and with recall gates and diversity."""
    now = datetime(2026, 1, 1, tzinfo=UTC)
    rng = random.Random(3)
    candidates = [
        Candidate(
            Memory(
                namespace=NAMESPACE,
                key=f"m{i}",
                text=f"memory {i}",
                written_at=now - timedelta(hours=rng.uniform(0, 2_000)),
            ),
            Evidence(dense=rng.random(), coverage=rng.random(), relevance=rng.random()),
            Usage(3, 2.5, now.timestamp() - rng.uniform(0, 1e6)),
        )
        for i in range(100)
    ]
    policy = RecallPolicy.default()
    alike = np.eye(100)

    def ranked(_: str) -> list[Scored]:
        return rank(Cue("anything"), candidates, policy, now, (NAMESPACE,)).ranked

    def selected(_: str) -> object:
        return select(ranked(""), policy, lambda ids: alike[: len(ids), : len(ids)])

    return (
        statistics.median(_timed(ranked, "") for _ in range(repeats)),
        statistics.median(_timed(selected, "") for _ in range(repeats)),
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cues", type=int, default=200)
    arguments = parser.parse_args()
    print("search(limit=10), InMemoryStore, median of interleaved calls")
    print(f"{'memories':>9} {'RecallStore ms':>15} {'bare ms':>9} {'ratio':>7}")
    for count in (1_000, 10_000):
        ours, theirs, ratio = search_overhead(count, arguments.cues)
        print(f"{count:>9,} {ours:>15.2f} {theirs:>9.2f} {ratio:>6.2f}x")
    alone, gated = ranking_alone()
    print(f"100 candidates: ranking alone {alone:.2f} ms, with gates and diversity {gated:.2f} ms")


if __name__ == "__main__":
    main()
