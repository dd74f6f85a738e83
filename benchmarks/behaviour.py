"""Recall on suites of our own: what LoCoMo does not reward, one table, one run.

Run `python benchmarks/behaviour.py` (WordLlama, LocalStore). `--embeddings minilm` takes MiniLM,
`--tight-band` squeezes all cosines into 0.7 to 0.9, `--memories 50000` enlarges the haystack,
`--quick` asks fewer cases. Rankings come through `RecallStore.search`, what is injected through
`RecallStore.recall`.

drift ... large: hit@1, the share of cues whose best memory is the right one. use: after a month of
reads under the policy itself. redundancy: share of six facts among six memories recalled.
off_topic, languages_off: share of off-topic cues that get memories (lower is better), in English
and in the suite of other languages. tiny: share of cues that
recall what was asked first, or nothing where nothing fits. Best of each column: *.
"""

from __future__ import annotations

import argparse
import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

# A pool of threads costs more than it gives at this size, and makes times unsteady.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from langchain_core.embeddings import Embeddings
from langgraph.store.base import BaseStore, PutOp
from langgraph.store.memory import InMemoryStore
from suites import SUITES, TightBand, after_use, distinct_facts, large
from suites.crowded import FACTS

from langmem_recall.embeddings import LocalEmbeddings
from langmem_recall.evaluation.cases import Case, CaseSet, Collection
from langmem_recall.evaluation.evaluate import NAMESPACE, StoreFactory, evaluate
from langmem_recall.policy import RecallPolicy
from langmem_recall.stores.local.store import LocalStore
from langmem_recall.stores.recall_store import RecallStore

QUICK_CASES = 24
QUICK_MEMORIES = 1_000

Judge = Callable[[CaseSet, Case, list[str]], float]
Scores = list[float]
"""One number a policy."""


# --- measuring ------------------------------------------------------------------------------------


def hit_at_1(
    cases: CaseSet,
    policies: Sequence[RecallPolicy],
    embeddings: Embeddings,
    store: StoreFactory | None = None,
) -> Scores:
    """Share of answerable cues whose best memory is a relevant one."""
    report = evaluate(cases, policies, embeddings=embeddings, store=store)
    return [float(np.mean(held.values["mrr"] == 1.0)) for held in report.rows]


def hit_after_use(
    cases: CaseSet, policies: Sequence[RecallPolicy], embeddings: Embeddings
) -> Scores:
    """The same, each policy having made a month of recalls first."""
    return [
        score
        for policy in policies
        for score in hit_at_1(cases, [policy], embeddings, after_use(cases, policy))
    ]


def injection(cases: CaseSet, policies: Sequence[RecallPolicy], embeddings: Embeddings) -> Scores:
    """Share of off-topic cues that recall anything."""
    report = evaluate(cases, policies, embeddings=embeddings)
    return [float(np.mean(held.values["injected"])) for held in report.rows]


def judged(
    judge: Judge, cases: CaseSet, policies: Sequence[RecallPolicy], embeddings: Embeddings
) -> Scores:
    """Mean verdict on what each policy recalls."""
    verdicts: list[Scores] = []
    for collection in cases.collections:
        with filled(collection, embeddings) as store:
            verdicts += [
                [judge(cases, case, recalled(store, case, policy)) for policy in policies]
                for case in cases.cases
                if case.collection == collection.name
            ]
    return [float(score) for score in np.mean(verdicts, axis=0)]


def recalled(store: RecallStore, case: Case, policy: RecallPolicy) -> list[str]:
    """The keys a policy recalls for a case, best first."""
    cue = replace(case.cue, at=case.at)
    return [memory.key for memory in store.recall(NAMESPACE, cue, policy=policy).memories]


@contextmanager
def filled(collection: Collection, embeddings: Embeddings) -> Iterator[RecallStore]:
    """A store that holds a collection and does not learn."""
    store = RecallStore(LocalStore(embeddings=embeddings), record=False)
    store.batch([PutOp(NAMESPACE, key, dict(value)) for key, value in collection.memories])
    try:
        yield store
    finally:
        store.close()
        store.inner.close()  # type: ignore[attr-defined]


def facts_in_six(
    cases: CaseSet, policies: Sequence[RecallPolicy], embeddings: Embeddings
) -> Scores:
    """Share of six facts among at most six memories: all policies get the same room."""
    return judged(
        distinct_facts, cases, [policy.replace(top_k=FACTS) for policy in policies], embeddings
    )


def is_right(cases: CaseSet, case: Case, chosen: list[str]) -> float:
    """Whether what was asked comes first, or nothing where nothing fits."""
    return float(bool(chosen) and chosen[0] in case.relevant if case.relevant else not chosen)


Measure = Callable[[CaseSet, Sequence[RecallPolicy], Embeddings], Scores]
MEASURES: Mapping[str, Measure] = {
    "drift": hit_at_1,
    "temporal": hit_at_1,
    "importance": hit_at_1,
    "use": hit_after_use,
    "redundancy": facts_in_six,
    "identifiers": hit_at_1,
    "off_topic": injection,
    "tiny": partial(judged, is_right),
    "languages": hit_at_1,
    "languages_off": injection,
    "large": hit_at_1,
}
LOWER_IS_BETTER = {"off_topic", "languages_off"}


# --- tables ---------------------------------------------------------------------------------------


def policies() -> list[RecallPolicy]:
    """The rows of the table."""
    return [
        RecallPolicy.default(name="default (ours)"),
        RecallPolicy.similarity(name="cosine"),
        RecallPolicy.weighted(),
        RecallPolicy.generative_agents(),
        RecallPolicy.normalized(),
        RecallPolicy.assistant(),
        RecallPolicy.support(),
        RecallPolicy.coding(),
        RecallPolicy.product(),
        RecallPolicy.interpolated(),
    ]


@dataclass(frozen=True)
class Ablation:
    """Something taken out of the default, and the suite that should miss it."""

    what: str
    suite: str
    without: RecallPolicy


def without_weight(*signals: str) -> RecallPolicy:
    """The default with some signals switched off."""
    default = RecallPolicy.default()
    return default.replace(weights=replace(default.weights, **dict.fromkeys(signals, 0.0)))


def ablations() -> list[Ablation]:
    """One row each."""
    default = RecallPolicy.default()
    return [
        Ablation("recency", "drift", without_weight("recency")),
        Ablation("importance", "importance", without_weight("importance")),
        Ablation("strength", "use", without_weight("strength")),
        Ablation("recency", "use", without_weight("recency")),
        Ablation(
            "strength, recency, use_boost",
            "use",
            without_weight("strength", "recency").replace(use_boost=0.0),
        ),
        Ablation("window_boost", "temporal", default.replace(window_boost=0.0)),
        Ablation("duplicate dropping", "redundancy", default.replace(duplicate_similarity=1.0)),
        Ablation("rescues", "identifiers", default.replace(rescues=0)),
        Ablation("rescues, InMemoryStore", "identifiers", default.replace(rescues=0, pool=10)),
        Ablation("trigger and floor", "off_topic", default.replace(trigger=0.0, floor=0.0)),
    ]


def memory_store(embeddings: Embeddings | None) -> BaseStore:
    """LangGraph's own store in memory, which gives no evidence of its own."""
    if embeddings is None:
        raise SystemExit("InMemoryStore needs embeddings.")
    dims = len(embeddings.embed_query("dimensions"))
    return InMemoryStore(index={"dims": dims, "embed": embeddings, "fields": ["content"]})


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Aligned plain text, the first column to the left."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    for row in (header, *rows):
        first, *rest = (cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        print(first.strip().ljust(widths[0]), *rest, sep="  ")


def suites_table(suites: Mapping[str, CaseSet], embeddings: Embeddings) -> None:
    """Policies against suites."""
    rows = policies()
    columns = {name: MEASURES[name](cases, rows, embeddings) for name, cases in suites.items()}
    cells = [[policy.name for policy in rows]]
    for name, scores in columns.items():
        best = min(scores) if name in LOWER_IS_BETTER else max(scores)
        cells.append([f"{score:.2f}{'*' if score == best else ' '}" for score in scores])
    header = ["", *(f"{name} " for name in columns)]
    print_table(header, [*zip(*cells, strict=True)])


def ablation_table(suites: Mapping[str, CaseSet], embeddings: Embeddings) -> None:
    """The default with and without each of its parts."""
    rows = []
    for one in ablations():
        cases, measure = suites[one.suite], MEASURES[one.suite]
        whole = RecallPolicy.default(pool=one.without.pool)
        if "InMemoryStore" in one.what:
            measure = partial(hit_at_1, store=memory_store)
        with_it, without_it = measure(cases, [whole, one.without], embeddings)
        change = f"{with_it - without_it:+.2f}"
        rows.append([one.what, one.suite, f"{with_it:.2f}", f"{without_it:.2f}", change])
    print_table(["taken out", "suite", "default", "without", "worth"], rows)


def shortened(cases: CaseSet) -> CaseSet:
    """A few cases, drawn at random: a steady step would meet one kind of cue again and again."""
    count = min(QUICK_CASES, len(cases.cases))
    return replace(cases, cases=tuple(random.Random(0).sample(cases.cases, count)))


def asking(cases: CaseSet, answerable: bool = True) -> CaseSet:
    """Only the answerable cases, or only the others."""
    asked = tuple(case for case in cases.cases if bool(case.relevant) == answerable)
    return replace(cases, cases=asked)


def chosen_suites(quick: bool, memories: int) -> dict[str, CaseSet]:
    """All suites, whole or shortened."""
    suites = {name: make() for name, make in SUITES.items()}
    suites["large"] = large(memories=min(memories, QUICK_MEMORIES) if quick else memories)
    suites["languages_off"] = asking(suites["languages"], answerable=False)
    suites["languages"] = asking(suites["languages"])
    return {name: shortened(suites[name]) if quick else suites[name] for name in MEASURES}


def embeddings_named(name: str) -> Embeddings:
    """WordLlama, or MiniLM where its wheels are installed."""
    if name == "wordllama":
        return LocalEmbeddings()
    from minilm import MiniLM

    return MiniLM()


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--embeddings", choices=("wordllama", "minilm"), default="wordllama")
    parser.add_argument("--tight-band", action="store_true", help="cosines within 0.7 to 0.9")
    parser.add_argument("--memories", type=int, default=5_000, help="size of the suite large")
    parser.add_argument("--quick", action="store_true", help="fewer cases")
    chosen = parser.parse_args()
    embeddings = embeddings_named(chosen.embeddings)
    if chosen.tight_band:
        embeddings = TightBand(embeddings)
    suites = chosen_suites(chosen.quick, chosen.memories)
    counts = ", ".join(f"{name} {len(cases.cases)}" for name, cases in suites.items())
    print(f"{chosen.embeddings}{', tight band' * chosen.tight_band}, LocalStore; cases: {counts}")
    suites_table(suites, embeddings)
    print()
    ablation_table(suites, embeddings)


if __name__ == "__main__":
    main()
