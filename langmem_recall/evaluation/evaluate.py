"""`evaluate`: policies compared on cases, every search and recall through `RecallStore`."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

import numpy as np
from langchain_core.embeddings import Embeddings
from langgraph.store.base import BaseStore, PutOp

from langmem_recall.errors import InputError, check_whole
from langmem_recall.evaluation.cases import Case, CaseSet, Collection
from langmem_recall.evaluation.metrics import (
    Estimate,
    Row,
    auc_estimate,
    judge_ranking,
    mean_estimate,
    near_duplicate_share,
    table_of,
)
from langmem_recall.memory.value import text_of
from langmem_recall.policy import RecallPolicy
from langmem_recall.ranking.arrays import BoolArray, FloatArray
from langmem_recall.stores.local.store import LocalStore
from langmem_recall.stores.recall_store import Caching, RecallStore
from langmem_recall.types import HARD_GATES, Cue, Namespace, Recall

LOWEST_TRIGGER, HIGHEST_TRIGGER = 0.05, 0.95
NAMESPACE: Namespace = ("evaluation",)  # one for all: each collection has its own store
PUTS_PER_BATCH = 256
AT_K = ("recall", "hit", "ndcg", "duplicates")  # metrics that read the first k of a ranking
LEGEND = """\
R, hit, nDCG, MRR: how well answerable cues find their memories. repeats: near-duplicates among \
the first.
tokens: what a recall costs. in: share of cues that recall anything. AUC: how well relevance tells \
answerable cues from others."""
TITLES = {
    **{"recall": "R@{}", "hit": "hit@{}", "ndcg": "nDCG@{}", "mrr": "MRR"},
    **{"duplicates": "repeats", "tokens": "tokens", "injected": "in", "auc": "AUC"},
}
PER_CASE = ("recall", "hit", "ndcg", "mrr", "duplicates", "tokens", "injected", "ms")

StoreFactory = Callable[[Embeddings | None], BaseStore]
Progress = Callable[[int, int], None]


# --- gates ----------------------------------------------------------------------------------------


def best_relevance(recall: Recall) -> float:
    """What a trigger judges a recall by; 1.0 with a pinned memory, which passes any trigger."""
    fit = (drop.scored for drop in recall.dropped if drop.gate not in HARD_GATES)
    seen = (*recall.chosen, *fit)
    reaches = (1.0 if each.memory.pinned else each.signals.relevance for each in seen)
    return max(reaches, default=0.0)


def set_injection_rate(
    best_relevances: Sequence[float] | FloatArray, target: float, base: RecallPolicy
) -> RecallPolicy:
    """The policy with the trigger that lets this share of recorded cues through, or the nearest."""
    reaches = np.sort(np.asarray(best_relevances, dtype=np.float64))
    # Triggers midway between neighbours, and the bounds, are all that tell the cues apart.
    distinct = np.unique(reaches)
    midways = np.clip((distinct[1:] + distinct[:-1]) / 2, LOWEST_TRIGGER, HIGHEST_TRIGGER)
    cuts = np.array([HIGHEST_TRIGGER, *midways, LOWEST_TRIGGER])
    # Of cuts that give the same rate, the one nearest to the trigger in force.
    cuts = cuts[np.argsort(np.abs(cuts - base.trigger), kind="stable")]
    rates = 1.0 - np.searchsorted(reaches, cuts, "left") / len(reaches)
    return with_trigger(base, float(cuts[np.argmin(np.abs(rates - target))]))


def with_trigger(base: RecallPolicy, trigger: float) -> RecallPolicy:
    """The policy with another trigger, the floor as far below it in log-odds as before.

    A gate on scores gives way, because relevance alone decides now.
    """

    def log_odds(share: float) -> float:
        return math.log(share / (1.0 - share))

    if 0.0 < base.floor < 1.0 and 0.0 < base.trigger < 1.0:
        distance = log_odds(base.trigger) - log_odds(base.floor)
        floor = 1.0 / (1.0 + math.exp(distance - log_odds(trigger)))
    else:
        # A gate that is off, or shuts everything out, has no distance to keep.
        floor = min(base.floor, trigger)
    return base.replace(trigger=trigger, floor=floor, composite_floor=0.0)


# --- comparing ------------------------------------------------------------------------------------


class Ranker(Protocol):
    """A formula of one's own, compared beside the policies; without gates it injects nothing."""

    name: str

    def __call__(
        self, store: RecallStore, namespace: Namespace, cue: Cue, k: int
    ) -> Sequence[tuple[str, float]]:
        """The best k memories of a namespace for a cue: keys with scores, best first."""


Contender = RecallPolicy | Ranker


@dataclass(frozen=True, slots=True)
class Report:
    """Policies compared on cases; the first one is what the others are tested against."""

    cases: CaseSet = field(repr=False)
    k: int
    rows: tuple[Row, ...]

    def table(
        self,
        metrics: Sequence[str] = (),
        intervals: bool = False,
        titles: Mapping[str, str] | None = None,
    ) -> str:
        """The rows as aligned plain text, on demand with intervals and other titles."""
        return table_of(self.rows, metrics, intervals, titles)

    def to_dict(self) -> dict[str, Any]:
        """Everything but the single cases, as plain JSON types."""
        return {
            "cases": self.cases.name,
            "counts": self._counts(),
            "notes": list(self.cases.notes),
            "k": self.k,
            "rows": [{"policy": row.policy, **row.numbers()} for row in self.rows],
        }

    def __str__(self) -> str:
        titles = dict[str, str]()
        for metric in self.rows[0].estimates:
            # As in `recall@10` or `injected_off_topic`.
            (name, _, k), (word, _, group) = metric.partition("@"), metric.partition("_")
            if name in TITLES:
                titles[metric] = TITLES[name].format(k)
            elif word in TITLES and group:
                titles[metric] = f"{TITLES[word]} {group.replace('_', '-')}"
        titles["ms"] = "ms"
        counts = ", ".join(f"{count} {group}" for group, count in self._counts().items())
        lines = [f"{self.cases.name}: {counts}", *(f"  {note}" for note in self.cases.notes)]
        lines += [self.table(list(titles), titles=titles), "", LEGEND]
        if len(self.rows) > 1:
            lines.append(f"* differs from {self.rows[0].policy} (p < 0.05, paired test)")
        return "\n".join(lines)

    def _counts(self) -> dict[str, int]:
        return dict(Counter(case.group for case in self.cases.cases))


def evaluate(
    cases: CaseSet,
    policies: Sequence[Contender],
    *,
    embeddings: Embeddings | None = None,
    store: StoreFactory | None = None,
    k: int = 10,
    progress: Progress | None = None,
) -> Report:
    """Compare policies on cases, through the store that production uses.

    Args:
        cases: What is asked of which memories.
        policies: What to compare, the first being the one the others are tested against.
        embeddings: What makes vectors; `LocalEmbeddings` when absent.
        store: Makes the store that holds a collection; an in-memory `LocalStore` when absent.
        k: How many memories a ranking is judged by.
        progress: Called with the number of searches done and of all.

    Returns:
        One row a policy, each metric with its confidence interval.
    """
    if not policies:
        raise InputError("evaluate needs a policy, got none. Pass [RecallPolicy.default()].")
    check_whole("k", k, 1)
    numbers: dict[int, list[dict[str, float]]] = {}
    for i, case, bench in each_case(cases, store, embeddings):
        numbers[i] = [bench.measure(case, policy, k) for policy in policies]
        if progress:
            progress(len(numbers) * len(policies), len(cases.cases) * len(policies))
    rows: list[Row] = []
    for place, policy in enumerate(policies):
        name, number = policy.name, 2
        while name in {row.policy for row in rows}:
            name, number = f"{policy.name} {number}", number + 1
        column = [numbers[i][place] for i in range(len(numbers))]
        values = {metric: np.array([case[metric] for case in column]) for metric in column[0]}
        compared = (values, rows[0].values) if rows else (values,)
        rows.append(Row(name, _estimates(cases, k, *compared), values))
    return Report(cases, k, tuple(rows))


def _estimates(
    cases: CaseSet, k: int, values: Mapping[str, FloatArray], *first: Mapping[str, FloatArray]
) -> dict[str, Estimate]:
    """A policy's metrics, tested against the first policy's where it is another."""
    answerable = np.array([bool(case.relevant) for case in cases.cases])
    groups = np.array([case.group for case in cases.cases])

    def known(values: Mapping[str, FloatArray], metric: str, chosen: BoolArray) -> FloatArray:
        """The numbers of some cases; none at all where the metric never applies."""
        numbers = values[metric][chosen]
        return numbers[~np.isnan(numbers)]

    def mean(metric: str, chosen: BoolArray) -> Estimate:
        return mean_estimate(*(known(each, metric, chosen) for each in (values, *first)))

    estimates = {
        f"{metric}@{k}" if metric in AT_K else metric: mean(metric, answerable)
        for metric in PER_CASE
    }
    for label in dict.fromkeys(groups[~answerable].tolist()):
        group = ~answerable & (groups == label)
        estimates[f"injected_{label}"] = mean("injected", group)
        for name, metric in (("auc", "relevance"), ("score_auc", "score")):
            sides = (known(values, metric, each) for each in (answerable, group))
            estimates[f"{name}_{label}"] = auc_estimate(*sides)
    return estimates


# --- asking ---------------------------------------------------------------------------------------


class Bench:
    """One collection in its store, and a clock that tells the time of the case."""

    def __init__(self, collection: Collection, inner: BaseStore) -> None:
        self._now = self._started = datetime.now(UTC)
        self._texts = {key: text_of(value) for key, value in collection.memories}
        # The clock jumps from case to case; what was listed once stays listed.
        self.store = RecallStore(
            inner, record=False, clock=lambda: self._now, caching=Caching(max_age=math.inf)
        )
        puts = [PutOp(NAMESPACE, key, dict(value)) for key, value in collection.memories]
        for start in range(0, len(puts), PUTS_PER_BATCH):
            self.store.batch(puts[start : start + PUTS_PER_BATCH])
        # The first read measures the embedder and loads the words: no policy should pay for it.
        self.store.recall(NAMESPACE, "warm-up")

    def measure(self, case: Case, contender: Contender, k: int) -> dict[str, float]:
        """What a policy makes of a case: its ranking, and the recall it would inject."""
        self._now = case.at or self._started
        ranking: list[str] = []
        seconds = relevance = tokens = injected = math.nan
        started = time.perf_counter()
        if not isinstance(contender, RecallPolicy):
            best = list(contender(self.store, NAMESPACE, case.cue, k))[:k]
            seconds = time.perf_counter() - started
            ranking, score = [key for key, _ in best], best[0][1] if best else 0.0
        else:
            if case.relevant:
                words = case.cue.words
                found = self.store.search(NAMESPACE, query=words, limit=k, policy=contender)
                seconds = time.perf_counter() - started
                ranking = [item.key for item in found]
            recall = self.store.recall(NAMESPACE, case.cue, policy=contender)
            seen = (*recall.chosen, *(drop.scored for drop in recall.dropped))
            score = max((each.score for each in seen), default=0.0)
            relevance = best_relevance(recall)
            # The usual rule of thumb: it only has to be the same for all policies.
            tokens = sum(math.ceil(len(memory.text) / 4) for memory in recall.memories)
            injected = float(bool(recall.chosen))
        return {
            **judge_ranking(ranking, case.relevant, k),
            "duplicates": near_duplicate_share([self._texts[key] for key in ranking[:k]]),
            "tokens": tokens,
            "injected": injected,
            "ms": 1e3 * seconds,
            "relevance": relevance,
            "score": score,
        }


def each_case(
    cases: CaseSet, make: StoreFactory | None, embeddings: Embeddings | None
) -> Iterator[tuple[int, Case, Bench]]:
    """Every case with its place and its collection in a store, one collection after another."""
    for collection in cases.collections:
        inner = make(embeddings) if make else LocalStore(":memory:", embeddings=embeddings)
        with ExitStack() as closing_time:
            if callable(close := getattr(inner, "close", None)):
                closing_time.callback(close)
            bench = Bench(collection, inner)
            closing_time.callback(bench.store.close)
            for i, case in enumerate(cases.cases):
                if case.collection == collection.name:
                    yield i, case, bench
