"""`evaluate`: policies compared on cases, every search and recall through `RecallStore`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from langchain_core.embeddings import Embeddings
from langgraph.store.base import BaseStore

from langmem_recall.evaluation.cases import Case, CaseSet
from langmem_recall.evaluation.metrics import (
    Estimate,
)
from langmem_recall.policy import RecallPolicy
from langmem_recall.ranking.arrays import FloatArray
from langmem_recall.stores.recall import RecallStore
from langmem_recall.types import Cue, Namespace

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


PER_CASE = ("recall", "hit", "ndcg", "mrr", "duplicates", "tokens", "injected", "ms")


@dataclass(frozen=True, slots=True)
class Measured:
    """One policy's numbers, a value per case; NaN where a metric does not apply."""

    name: str
    values: Mapping[str, FloatArray]
    relevance: FloatArray
    score: FloatArray


@dataclass(frozen=True, slots=True)
class Row:
    """One policy's metrics."""

    policy: str
    estimates: Mapping[str, Estimate]

    def __getitem__(self, metric: str) -> Estimate:
        return self.estimates[metric]


@dataclass(frozen=True, slots=True)
class Report:
    """Policies compared on cases; the first one is what the others are tested against."""

    cases: CaseSet
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
        labels = [getattr(case, facet) for case in self.cases.cases]
        # Off-topic cases without a category stand against every category.
        shared = np.array(
            [label is None and not _answerable(case) for label, case in self._zip(labels)]
        )
        return {
            label: _rows(
                self.measured,
                self.cases,
                self.k,
                shared | np.array([one == label for one in labels]),
            )
            for label in sorted({label for label in labels if label is not None})
        }

    def _zip(self, labels: Sequence[Any]) -> Iterator[tuple[Any, Case]]:
        return zip(labels, self.cases.cases, strict=True)
