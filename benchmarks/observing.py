"""What looking on costs: recalls with `TraceLog` and `Monitor` beside recalls without, in one run.

Run with `make bench` or `python benchmarks/observing.py`. Recalls of both kinds take turns over one
LocalStore. The log is written by a thread at quiet times, as while a model answers; what that
costs is measured apart, because no recall waits for it.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from langgraph.store.base import PutOp
from overhead import NAMESPACE, sentences, side_by_side

from langmem_recall import LocalStore, RecallStore
from langmem_recall.observe.log import TraceLog, both
from langmem_recall.observe.monitor import Monitor


def filled(count: int) -> LocalStore:
    """A store with that many memories."""
    store = LocalStore()
    texts = sentences(count)
    store.batch([PutOp(NAMESPACE, f"m{i}", {"content": text}) for i, text in enumerate(texts)])
    return store


def writing_ms(log: TraceLog, store: RecallStore, cues: list[str]) -> float:
    """Milliseconds of processor time that writing the trace of one recall takes."""
    log.flush()
    for cue in cues:
        store.recall(NAMESPACE, cue)
    start = time.thread_time()
    log.flush()
    return (time.thread_time() - start) * 1e3 / len(cues)


def measure(count: int, rounds: int, folder: Path) -> None:
    """Print one line: recalls without and with onlookers, and the writing behind."""
    inner = filled(count)
    log = TraceLog(folder / f"{count}.jsonl")
    plain = RecallStore(inner, record=False)
    watched = RecallStore(inner, record=False, traces=both(log, Monitor()))
    cues = sentences(rounds, seed=11)
    for cue in cues[:20]:
        plain.recall(NAMESPACE, cue)
        watched.recall(NAMESPACE, cue)
    ours, theirs, ratio = side_by_side(
        lambda cue: watched.recall(NAMESPACE, cue), lambda cue: plain.recall(NAMESPACE, cue), cues
    )
    writing = statistics.median(writing_ms(log, watched, cues[:20]) for _ in range(5))
    print(
        f"{count:>7,} memories: recall {theirs:.2f} ms, watched {ours:.2f} ms, "
        f"ratio {ratio:.3f}; written behind {writing:.3f} ms ({writing / theirs:.1%})"
    )
    log.close()


def main() -> None:
    """Measure small and large namespaces."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--counts", type=int, nargs="+", default=[100, 1_000, 10_000])
    told = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for count in told.counts:
            measure(count, told.rounds, Path(folder))


if __name__ == "__main__":
    main()
