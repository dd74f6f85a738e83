"""Recall on LoCoMo: our default against published formulas, one table, one run.

Run `python benchmarks/locomo.py` (turns, WordLlama, LocalStore). `--unit facts`, `--embeddings
minilm`, `--store memory` and `--metadata none` (text alone: no speaker, session or date) give the
other tables, `--default-only` their first row, `--limit-cases 100` a quick look. Every row
comes through `RecallStore`: policies through `search` and `recall`, BM25 and mem0's formula from
the evidence that a `recall` without gates returns for every memory. "into the prompt" is what
the default's `recall` chose, "LangGraph's index" an InMemoryStore whose index names no fields, by
its own search. Version 0.1's formula and the reference are rows where the latter is at hand
(formulas.py).

R@10, nDCG@10, MRR: over answerable questions. in, in hard, in far: share that gets memories of the
answerable questions, of another conversation's with the names swapped in, and of generated ones
about coding, cooking, travel and maths. AUC: how well the best memory's relevance tells them from
the answerable; own AUC: the same by the formula's own best score. ms: one search; BM25, RRF and
mem0 lay every memory's evidence open here, so theirs is the price of the comparison, not of the
formula. The published presets rank by their formula but keep our gates.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

# A pool of threads costs more than it gives at this size, and makes times unsteady.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from formulas import formulas
from langchain_core.embeddings import Embeddings
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore
from locomo_cases import load_locomo
from suites.silence import off_topic_cues

from langmem_recall.embeddings import LocalEmbeddings
from langmem_recall.evaluation.cases import FAR, Case, CaseSet
from langmem_recall.evaluation.evaluate import Contender, evaluate
from langmem_recall.memory.value import text_of
from langmem_recall.policy import RecallPolicy, Weights
from langmem_recall.stores.recall_store import RecallStore
from langmem_recall.text.tokens import tokens
from langmem_recall.types import Cue, Evidence, Namespace

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT.parent / "shared" / "data" / "locomo_dev.json"
COLUMNS = {
    "recall@10": "R@10",
    "ndcg@10": "nDCG@10",
    "mrr": "MRR",
    "ms": "ms",
    "injected": "in",
    "injected_hard": "in hard",
    "injected_far": "in far",
    "auc_hard": "AUC hard",
    "auc_far": "AUC far",
    "score_auc_hard": "own AUC",
}

FAR_DOMAINS = ("coding", "cooking", "travel", "maths")
FAR_PER_DOMAIN = 25

EVERYTHING = RecallPolicy.similarity(name="everything", pool=10_000, top_k=1)
"""No gates and no cut: a recall that lists the evidence of every memory."""


@dataclass(frozen=True)
class ByEvidence:
    """Ranks all memories by a formula over their raw evidence."""

    name: str
    formula: Callable[[Evidence, str], float]

    def __call__(
        self, store: RecallStore, namespace: Namespace, cue: Cue, k: int
    ) -> list[tuple[str, float]]:
        """The best k keys with their scores."""
        recall = store.recall(namespace, cue, policy=EVERYTHING)
        seen = [*recall.chosen, *(drop.scored for drop in recall.dropped)]
        scores = {one.memory.key: self.formula(one.evidence, cue.words) for one in seen}
        return sorted(scores.items(), key=lambda pair: -pair[1])[:k]


@dataclass(frozen=True)
class Recalled:
    """What reaches the prompt: the memories that `recall` chose."""

    name: str

    def __call__(
        self, store: RecallStore, namespace: Namespace, cue: Cue, k: int
    ) -> list[tuple[str, float]]:
        """Their keys with their scores; at most the policy's ten."""
        chosen = store.recall(namespace, cue).chosen
        return [(scored.memory.key, scored.score) for scored in chosen][:k]


@dataclass(frozen=True)
class DefaultIndex:
    """LangGraph's InMemoryStore with an index that names no fields: it embeds whole JSON values."""

    name: str
    embeddings: Embeddings
    copies: dict[int, tuple[RecallStore, InMemoryStore]] = field(default_factory=dict)
    """By the identity of the store, which is kept so that no other one gets it."""

    def __call__(
        self, store: RecallStore, namespace: Namespace, cue: Cue, k: int
    ) -> list[tuple[str, float]]:
        """The nearest k keys with their cosines."""
        if id(store) not in self.copies:
            dims = len(self.embeddings.embed_query("dimensions"))
            inner = InMemoryStore(index={"dims": dims, "embed": self.embeddings})
            items = store.inner.search(namespace, limit=100_000)
            # One at a time: it refuses equal texts in one batch.
            for item in items:
                inner.put(item.namespace, item.key, item.value)
            self.copies[id(store)] = store, inner
        _, copy = self.copies[id(store)]
        nearest = copy.search(namespace, query=cue.words, limit=k)
        return [(item.key, item.score or 0.0) for item in nearest]


def bm25(evidence: Evidence, query: str) -> float:
    """Our BM25Plus over stemmed terms, stop words out."""
    return evidence.bm25 or 0.0


MEM0_THRESHOLD = 0.1
"""Semantic score below which mem0 drops a memory before adding anything."""
MEM0_SIGMOIDS = ((3, 5.0, 0.7), (6, 7.0, 0.6), (9, 9.0, 0.5), (15, 10.0, 0.5))
"""Up to so many query terms: the sigmoid's midpoint and steepness."""


def mem0(evidence: Evidence, query: str) -> float:
    """What mem0 does: (semantic + keyword) / 2.

    mem0/utils/scoring.py: combined = (semantic + bm25 + entity boost) / the most there can be,
    where bm25 goes through a sigmoid whose midpoint grows with the query's length. The entity
    boost is left out: it needs entities extracted on writing, and mem0 damps it to nothing for a
    name that hundreds of memories share, as the speakers' names here.
    """
    semantic = evidence.dense or 0.0
    if semantic < MEM0_THRESHOLD:
        return 0.0
    count = len(tokens(query))
    midpoint, steepness = next(
        (tuple(shape) for terms, *shape in MEM0_SIGMOIDS if count <= terms), (12.0, 0.5)
    )
    raw = evidence.bm25 or 0.0
    keyword = 1.0 / (1.0 + math.exp(-steepness * (raw - midpoint))) if raw else 0.0
    return (semantic + keyword) / 2.0


def contenders(embeddings: Embeddings) -> list[Contender]:
    """The rows of the table."""
    rrf = RecallPolicy(
        name="RRF 60", ordering="rrf", weights=Weights(), strip_names=False, pool=10_000
    )
    return [
        RecallPolicy.default(name="default (ours)"),
        Recalled("into the prompt"),
        *formulas(embeddings),
        DefaultIndex("LangGraph's index", embeddings),
        RecallPolicy.similarity(name="cosine"),
        ByEvidence("BM25", bm25),
        rrf,
        ByEvidence("mem0 additive", mem0),
        RecallPolicy.weighted(),
        RecallPolicy.generative_agents(),
        RecallPolicy.interpolated(),
    ]


def memory_store(embeddings: Embeddings | None) -> BaseStore:
    """LangGraph's own store in memory: any other store looks like this to us."""
    if embeddings is None:
        raise SystemExit("InMemoryStore needs embeddings.")
    dims = len(embeddings.embed_query("dimensions"))
    return InMemoryStore(index={"dims": dims, "embed": embeddings, "fields": ["content"]})


def embeddings_named(name: str) -> Embeddings:
    """WordLlama, or where its wheels are installed MiniLM, as ours or as any embedder."""
    if name == "wordllama":
        return LocalEmbeddings()
    from minilm import MiniLM

    return MiniLM(is_known=name == "minilm")


def limited(cases: CaseSet, count: int | None) -> CaseSet:
    """At most so many cases, spread evenly over the conversations and groups."""
    if not count or count >= len(cases.cases):
        return cases
    step = len(cases.cases) / count
    return replace(cases, cases=tuple(cases.cases[int(i * step)] for i in range(count)))


def with_far(cases: CaseSet) -> CaseSet:
    """The cases and, for each conversation, questions of other domains that it cannot answer."""
    asked_at = {case.collection: case.at for case in cases.cases}
    far = [
        Case(collection, Cue(cue), at=at, group=FAR)
        for seed, (collection, at) in enumerate(asked_at.items())
        for cue, _ in off_topic_cues(random.Random(seed), FAR_PER_DOMAIN, FAR_DOMAINS)
    ]
    return replace(cases, cases=(*cases.cases, *far))


def text_alone(cases: CaseSet) -> CaseSet:
    """The same memories without speaker, session and date."""
    bare = [
        replace(
            each, memories=tuple((key, {"content": text_of(value)}) for key, value in each.memories)
        )
        for each in cases.collections
    ]
    return replace(cases, name=f"{cases.name}, text alone", collections=tuple(bare))


def arguments() -> argparse.Namespace:
    """What to run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--unit", choices=("turns", "facts"), default="turns")
    parser.add_argument("--embeddings", choices=("wordllama", "minilm"), default="wordllama")
    parser.add_argument("--store", choices=("local", "memory"), default="local")
    parser.add_argument("--metadata", choices=("full", "none"), default="full")
    parser.add_argument("--default-only", action="store_true", help="leave the other rows out")
    parser.add_argument("--limit-cases", type=int, metavar="N")
    parser.add_argument("--intervals", action="store_true", help="show confidence intervals")
    return parser.parse_args()


def show_progress(done: int, total: int) -> None:
    """A line on the terminal, rewritten; nothing in a pipe."""
    if sys.stderr.isatty() and (done % 50 == 0 or done == total):
        print(f"\r{done}/{total}", end="\n" if done == total else "", file=sys.stderr, flush=True)


def main() -> None:
    """Print the table."""
    chosen = arguments()
    if not chosen.data.exists():
        raise SystemExit(
            f"{chosen.data} is not there. Get LoCoMo's JSON from "
            "https://github.com/snap-research/locomo and pass it as --data."
        )
    loaded = load_locomo(chosen.data, chosen.unit)
    cases = limited(with_far(loaded), chosen.limit_cases)
    if chosen.metadata == "none":
        cases = text_alone(cases)
    embeddings = embeddings_named(chosen.embeddings)
    rows = contenders(embeddings)
    report = evaluate(
        cases,
        rows[:2] if chosen.default_only else rows,
        embeddings=embeddings,
        store=memory_store if chosen.store == "memory" else None,
        progress=show_progress,
    )
    counts = ", ".join(f"{count} {group}" for group, count in report.to_dict()["counts"].items())
    notes = "; ".join(cases.notes)
    print(f"{cases.name}, {chosen.embeddings}, {chosen.store} store: {counts} ({notes})")
    print(report.table(list(COLUMNS), chosen.intervals, COLUMNS))
    print("* differs from our default, p < 0.05")


if __name__ == "__main__":
    main()
