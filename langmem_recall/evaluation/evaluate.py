"""`evaluate`: policies compared on cases, every search and recall through `RecallStore`."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from langchain_core.embeddings import Embeddings
from langgraph.store.base import BaseStore, PutOp

from langmem_recall.errors import InputError
from langmem_recall.evaluation.cases import Case, CaseSet, Collection
from langmem_recall.evaluation.metrics import (
    Measured,
    Row,
    hit_at,
    ndcg_at,
    near_duplicate_share,
    recall_at,
    reciprocal_rank,
    rows_of,
    table_of,
    token_count,
)
from langmem_recall.memory.value import text_of
from langmem_recall.policy import RecallPolicy
from langmem_recall.ranking.arrays import BoolArray, FloatArray
from langmem_recall.ranking.gates import HARD_GATES
from langmem_recall.stores.local.store import LocalStore
from langmem_recall.stores.recall_store import Caching, RecallStore
from langmem_recall.types import Cue, Namespace, Recall, Scored

LOWEST_TRIGGER, HIGHEST_TRIGGER = 0.05, 0.95


def best_relevance(recall: Recall) -> float:
    """What a trigger judges a recall by; 1.0 with a pinned memory, which passes any trigger."""
    hard = set(HARD_GATES)
    dropped = [drop.scored for drop in recall.dropped if drop.gate not in hard]
    return max(map(_reach, (*recall.chosen, *dropped)), default=0.0)


def _reach(scored: Scored) -> float:
    return 1.0 if scored.memory.pinned else scored.signals.relevance


def check_share(target: float) -> None:
    """Refuse what is no share."""
    if isinstance(target, bool) or not isinstance(target, int | float) or not 0 <= target <= 1:
        raise InputError(
            f"A target injection rate must be a share from 0 to 1, got {target!r}. Use 0.5."
        )


def set_injection_rate(
    best_relevances: Sequence[float] | FloatArray, target: float, base: RecallPolicy
) -> RecallPolicy:
    """The policy with the trigger that lets a share of recorded cues through.

    Args:
        best_relevances: Of each cue's recall, as `best_relevance` tells it.
        target: Share of the cues for which something is to be recalled. Where cues are alike or
            the trigger reaches its bounds, 0.05 and 0.95, the nearest share there is.
        base: The policy to change; its floor keeps the distance it has to the trigger.
    """
    check_share(target)
    reaches = np.sort(np.asarray(best_relevances, dtype=np.float64))
    if not len(reaches) or np.isnan(reaches).any():
        raise InputError(
            f"The best relevance of each cue is needed, got {len(reaches)} with "
            f"{int(np.isnan(reaches).sum())} NaN. Record some recalls first."
        )
    # Of cuts that give the same rate, the one nearest to the trigger in force.
    cuts = np.array(sorted(_cuts(reaches), key=lambda cut: abs(cut - base.trigger)))
    rates = 1.0 - np.searchsorted(reaches, cuts, "left") / len(reaches)
    return with_trigger(base, float(cuts[np.argmin(np.abs(rates - target))]))


def _cuts(reaches: FloatArray) -> Iterator[float]:
    """Triggers midway between neighbours, and the bounds; all that tell the cues apart."""
    distinct = np.unique(reaches)
    yield HIGHEST_TRIGGER
    yield from np.clip((distinct[1:] + distinct[:-1]) / 2, LOWEST_TRIGGER, HIGHEST_TRIGGER).tolist()
    yield LOWEST_TRIGGER


def with_trigger(base: RecallPolicy, trigger: float) -> RecallPolicy:
    """The policy with another trigger, the floor as far below it in log-odds as before.

    A gate on scores gives way, because relevance alone decides now.
    """
    if 0.0 < base.floor < 1.0 and 0.0 < base.trigger < 1.0:
        distance = _log_odds(base.trigger) - _log_odds(base.floor)
        floor = 1.0 / (1.0 + math.exp(distance - _log_odds(trigger)))
    else:
        # A gate that is off, or shuts everything out, has no distance to keep.
        floor = min(base.floor, trigger)
    return base.replace(trigger=trigger, floor=floor, composite_floor=0.0)


def _log_odds(share: float) -> float:
    return math.log(share / (1.0 - share))


NAMESPACE: Namespace = ("evaluation",)
"""Each collection has a store of its own, so that one name serves all."""
PUTS_PER_BATCH = 256

StoreFactory = Callable[[Embeddings | None], BaseStore]
Progress = Callable[[int, int], None]
Facet = Literal["category", "group", "collection"]


class Ranker(Protocol):
    """A formula of one's own, compared beside the policies: keys with scores, best first.

    It has no gates, so that nothing is said of what it would inject.
    """

    @property
    def name(self) -> str:
        """What its row is called."""

    def __call__(
        self, store: RecallStore, namespace: Namespace, cue: Cue, k: int
    ) -> Sequence[tuple[str, float]]:
        """The best k memories of a namespace for a cue."""


Contender = RecallPolicy | Ranker


class Outcome(NamedTuple):
    """What one policy made of one case."""

    ranking: Sequence[str]
    seconds: float
    """How long the search took; NaN when there was none."""
    relevance: float
    """Of the best memory, in [0, 1]; NaN when no recall was made."""
    score: float
    """Of the best memory, by the policy's own formula."""
    injected: Sequence[str] | None
    """Texts a recall would show the model; None when no recall was made."""


@dataclass(frozen=True, slots=True)
class Report:
    """Policies compared on cases; the first one is what the others are tested against."""

    cases: CaseSet = field(repr=False)
    k: int
    rows: tuple[Row, ...]
    measured: tuple[Measured, ...] = field(repr=False)
    """The numbers case by case, for breakdowns."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the metrics, in the order of the table."""
        return tuple(self.rows[0].estimates)

    def by(self, facet: Facet) -> dict[str, tuple[Row, ...]]:
        """The rows for each category, group or collection of the cases."""
        labels = np.array([str(getattr(case, facet) or "") for case in self.cases.cases])
        # Off-topic cases without a category stand against every category.
        shared = (labels == "") & ~_are_answerable(self.cases)
        return {
            label: _rows(self.measured, self.cases, self.k, (labels == label) | shared)
            for label in sorted(set(labels.tolist()) - {""})
        }

    def table(
        self,
        metrics: Sequence[str] | None = None,
        intervals: bool = False,
        titles: Mapping[str, str] | None = None,
    ) -> str:
        """The rows as aligned plain text, where asked with intervals and titles of one's own."""
        return table_of(self.rows, metrics or self.metrics, intervals, titles or {})

    def to_dict(self) -> dict[str, Any]:
        """Everything but the single cases, as plain JSON types."""
        return {
            "cases": self.cases.name,
            "counts": _counts(self.cases),
            "notes": list(self.cases.notes),
            "k": self.k,
            "rows": [
                {
                    "policy": row.policy,
                    **{metric: held.to_dict() for metric, held in row.estimates.items()},
                }
                for row in self.rows
            ],
        }

    def __str__(self) -> str:
        counts = ", ".join(f"{count} {group}" for group, count in _counts(self.cases).items())
        lines = [f"{self.cases.name}: {counts}", self.table()]
        if any(held.is_significant for row in self.rows for held in row.estimates.values()):
            lines.append(f"* differs from {self.rows[0].policy} (p < 0.05, paired test)")
        return "\n".join(lines)


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
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise InputError(f"k must be a whole number of at least 1, got {k!r}. Use 10.")
    make = store or local_store
    outcomes: dict[int, list[Outcome]] = {}
    texts = {each.name: _texts(each) for each in cases.collections}
    for collection in cases.collections:
        asked = [
            (i, case) for i, case in enumerate(cases.cases) if case.collection == collection.name
        ]
        with bench_of(collection, make(embeddings)) as bench:
            for i, case in asked:
                outcomes[i] = [bench.ask(case, policy, k) for policy in policies]
                if progress:
                    progress(len(outcomes) * len(policies), len(cases.cases) * len(policies))
    measured = tuple(
        _measured(name, cases, [outcomes[i][place] for i in range(len(cases.cases))], texts, k)
        for place, name in enumerate(_unique_names(policies))
    )
    everything = np.ones(len(cases.cases), dtype=np.bool_)
    return Report(cases, k, _rows(measured, cases, k, everything), measured)


# --- asking ---------------------------------------------------------------------------------------


class Bench:
    """One collection in its store, and a clock that tells the time of the case."""

    def __init__(self, inner: BaseStore) -> None:
        self._now = self._started = datetime.now(UTC)
        # The clock jumps from case to case; what was listed once stays listed.
        self.store = RecallStore(
            inner, record=False, clock=lambda: self._now, caching=Caching(max_age=math.inf)
        )

    def ask(self, case: Case, contender: Contender, k: int) -> Outcome:
        """Search and recall for a case."""
        self._now = case.at or self._started
        if isinstance(contender, RecallPolicy):
            return self._ask_policy(case, contender, k)
        started = time.perf_counter()
        best = list(contender(self.store, NAMESPACE, case.cue, k))[:k]
        seconds = time.perf_counter() - started
        score = best[0][1] if best else 0.0
        return Outcome([key for key, _ in best], seconds, math.nan, score, None)

    def _ask_policy(self, case: Case, policy: RecallPolicy, k: int) -> Outcome:
        ranking, seconds = self._search(case, policy, k) if case.relevant else ([], math.nan)
        recall = self.store.recall(NAMESPACE, case.cue, policy=policy)
        seen: list[Scored] = [*recall.chosen, *(drop.scored for drop in recall.dropped)]
        return Outcome(
            ranking,
            seconds,
            best_relevance(recall),
            max((scored.score for scored in seen), default=0.0),
            [memory.text for memory in recall.memories],
        )

    def _search(self, case: Case, policy: RecallPolicy, k: int) -> tuple[list[str], float]:
        started = time.perf_counter()
        found = self.store.search(NAMESPACE, query=case.cue.words, limit=k, policy=policy)
        return [item.key for item in found], time.perf_counter() - started


@contextmanager
def bench_of(collection: Collection, inner: BaseStore) -> Iterator[Bench]:
    """A filled store, closed in the end."""
    bench = Bench(inner)
    try:
        for batch in _batches(collection):
            bench.store.batch(batch)
        # The first read measures the embedder and loads the words: no policy should pay for it.
        bench.store.recall(NAMESPACE, "warm-up")
        yield bench
    finally:
        bench.store.close()
        if callable(close := getattr(inner, "close", None)):
            close()


def _batches(collection: Collection) -> Iterator[list[PutOp]]:
    """Puts in batches; InMemoryStore cannot take the same text twice in one."""
    batch: list[PutOp] = []
    texts: set[str] = set()
    for key, value in collection.memories:
        text = text_of(value)
        if text in texts or len(batch) == PUTS_PER_BATCH:
            yield batch
            batch, texts = [], set()
        batch.append(PutOp(NAMESPACE, key, dict(value)))
        texts.add(text)
    if batch:
        yield batch


def local_store(embeddings: Embeddings | None) -> BaseStore:
    """A store in memory, for one evaluation."""
    return LocalStore(":memory:", embeddings=embeddings)


def _unique_names(policies: Sequence[Contender]) -> list[str]:
    names: list[str] = []
    for policy in policies:
        name, number = policy.name, 2
        while name in names:
            name, number = f"{policy.name} {number}", number + 1
        names.append(name)
    return names


# --- from outcomes to rows ------------------------------------------------------------------------

_Texts = Mapping[str, Mapping[str, str]]


def _texts(collection: Collection) -> dict[str, str]:
    return {key: text_of(value) for key, value in collection.memories}


def _measured(
    name: str, cases: CaseSet, outcomes: Sequence[Outcome], texts: _Texts, k: int
) -> Measured:
    records = [
        _per_case(case, outcome, texts[case.collection], k)
        for case, outcome in zip(cases.cases, outcomes, strict=True)
    ]
    values = {metric: np.array([one[metric] for one in records]) for metric in records[0]}
    return Measured(name, values)


def _per_case(case: Case, outcome: Outcome, texts: Mapping[str, str], k: int) -> dict[str, float]:
    ranking, relevant = outcome.ranking, case.relevant
    shown = outcome.injected
    return {
        "recall": recall_at(ranking, relevant, k),
        "hit": hit_at(ranking, relevant, k),
        "ndcg": ndcg_at(ranking, relevant, k),
        "mrr": reciprocal_rank(ranking, relevant),
        "duplicates": near_duplicate_share([texts[key] for key in ranking[:k]]),
        "tokens": math.nan if shown is None else token_count(shown),
        "injected": math.nan if shown is None else float(bool(shown)),
        "ms": 1e3 * outcome.seconds,
        "relevance": outcome.relevance,
        "score": outcome.score,
    }


def _rows(
    measured: Sequence[Measured], cases: CaseSet, k: int, chosen: BoolArray
) -> tuple[Row, ...]:
    answerable = chosen & _are_answerable(cases)
    return rows_of(measured, answerable, _off_topic_groups(cases, chosen), k)


def _are_answerable(cases: CaseSet) -> BoolArray:
    return np.array([bool(case.relevant) for case in cases.cases])


def _counts(cases: CaseSet) -> dict[str, int]:
    return dict(Counter(case.group for case in cases.cases))


def _off_topic_groups(cases: CaseSet, chosen: BoolArray) -> dict[str, BoolArray]:
    off_topic = chosen & ~_are_answerable(cases)
    labels = np.array([case.group for case in cases.cases])
    found = dict.fromkeys(labels[off_topic].tolist())
    return {label: off_topic & (labels == label) for label in found}
