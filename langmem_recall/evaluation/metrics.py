"""Metrics of rankings and recalls, with bootstrap intervals and paired tests; plain numpy."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from langmem_recall.ranking.arrays import FloatArray
from langmem_recall.text.tokens import tokens

RESAMPLES = 1_000
SEED = 20_240_817
CONFIDENCE = 0.95
NEAR_DUPLICATE = 0.8  # share of terms in common from which two memories say the same


class Estimate(NamedTuple):
    """A mean over cases with its confidence interval."""

    mean: float
    low: float
    high: float
    n: int
    p: float | None = None
    """Chance of a difference from the first policy at least this large, were there none."""

    @property
    def is_significant(self) -> bool:
        """Whether it differs from the first policy's by more than chance."""
        return self.p is not None and self.p < 1.0 - CONFIDENCE


NO_ESTIMATE = Estimate(math.nan, math.nan, math.nan, 0)


# --- one ranking, one recall ----------------------------------------------------------------------


def judge_ranking(ranking: Sequence[str], relevant: Collection[str], k: int) -> dict[str, float]:
    """How well the first k find what is relevant; NaN where nothing is, `mrr` in all of them."""
    if not relevant:
        return dict.fromkeys(("recall", "hit", "ndcg", "mrr"), math.nan)
    ranks = [rank for rank, key in enumerate(ranking, start=1) if key in relevant]
    first = [rank for rank in ranks if rank <= k]
    gains = [1.0 / math.log2(rank + 1) for rank in range(1, k + 1)]
    return {
        "recall": len(first) / len(relevant),
        "hit": float(bool(first)),
        # Discounted gain, as a share of the best order's.
        "ndcg": sum(gains[rank - 1] for rank in first) / sum(gains[: len(relevant)]),
        "mrr": 1.0 / ranks[0] if ranks else 0.0,
    }


def near_duplicate_share(texts: Sequence[str]) -> float:
    """Share of the texts that repeat an earlier one, nearly in the same words."""
    terms = [frozenset(tokens(text)) for text in texts]
    repeats = sum(
        any(len(mine & earlier) / len(mine | earlier) >= NEAR_DUPLICATE for earlier in terms[:i])
        for i, mine in enumerate(terms)
        if mine
    )
    return repeats / len(texts) if texts else 0.0


# --- many cases -----------------------------------------------------------------------------------


def auc(positives: FloatArray, negatives: FloatArray) -> float:
    """Chance that a positive has more than a negative, a tie counting half; NaN without both."""
    if not len(positives) or not len(negatives):
        return math.nan
    ordered = np.sort(negatives)
    below = np.searchsorted(ordered, positives, "left")
    not_above = np.searchsorted(ordered, positives, "right")
    return float((below + not_above).mean() / (2 * len(negatives)))


def mean_estimate(values: FloatArray, first: FloatArray | None = None) -> Estimate:
    """The mean over cases; tested against the first policy's values for the same cases."""
    if not len(values):
        return NO_ESTIMATE
    resampled = _draw_counts(len(values), SEED) @ values / len(values)
    # A metric that does not apply to one of the two policies cannot be compared.
    p = None if first is None or len(first) != len(values) else randomisation_p(values, first)
    return _estimate(float(np.mean(values)), resampled, len(values), p)


def auc_estimate(positives: FloatArray, negatives: FloatArray) -> Estimate:
    """The AUC, both sides resampled; its interval is all that is said of chance."""
    if not len(positives) or not len(negatives):
        return NO_ESTIMATE
    resampled, n = resampled_aucs(positives, negatives), len(positives) + len(negatives)
    return _estimate(auc(positives, negatives), resampled, n)


def _estimate(mean: float, resampled: FloatArray, n: int, p: float | None = None) -> Estimate:
    tail = (1.0 - CONFIDENCE) / 2
    low, high = np.quantile(resampled, (tail, 1.0 - tail)).tolist()
    # Rounding, or a resample of very few cases, must not put the mean outside.
    return Estimate(mean, min(low, mean), max(high, mean), n, p)


def resampled_aucs(positives: FloatArray, negatives: FloatArray) -> FloatArray:
    """AUCs of cases drawn with replacement on both sides."""
    order = np.argsort(negatives)
    drawn = np.cumsum(_draw_counts(len(negatives), SEED + 1)[:, order], axis=1)
    # With a column of zeros in front: how many were drawn of the lowest 0, 1, 2 ... negatives.
    lowest = np.pad(drawn, ((0, 0), (1, 0)))
    sides = (np.searchsorted(negatives[order], positives, side) for side in ("left", "right"))
    below, not_above = (lowest[:, side] for side in sides)
    won = _draw_counts(len(positives), SEED) * (below + not_above)
    return np.asarray(won.sum(axis=1) / (2 * len(positives) * len(negatives)))


@lru_cache(maxsize=4)
def _draw_counts(cases: int, seed: int) -> FloatArray:
    """How often each case was drawn, a row per resample; the same draws for every policy."""
    rng = np.random.default_rng(seed)
    return rng.multinomial(cases, np.full(cases, 1.0 / cases), RESAMPLES).astype(np.float64)


def randomisation_p(values: FloatArray, others: FloatArray) -> float:
    """Fisher's randomisation test of paired values: how often random signs do as much."""
    differences = values - others
    if not differences.any():
        return 1.0
    # Sums of the same numbers in another order differ by rounding alone.
    observed = abs(differences.sum()) * (1.0 - 1e-9)
    reached = np.abs(_signs(len(differences)) @ differences) >= observed
    return float((1 + reached.sum()) / (1 + RESAMPLES))


@lru_cache(maxsize=4)
def _signs(cases: int) -> FloatArray:
    return np.random.default_rng(SEED).choice((-1.0, 1.0), (RESAMPLES, cases))


# --- policies compared ----------------------------------------------------------------------------

DIGITS = {"tokens": 0, "ms": 2}  # decimals in a table; three for shares


@dataclass(frozen=True, slots=True)
class Row:
    """One policy's metrics."""

    policy: str
    estimates: Mapping[str, Estimate]
    values: Mapping[str, FloatArray] = field(default_factory=dict, repr=False)
    """The numbers case by case; NaN where a metric does not apply."""

    def __getitem__(self, metric: str) -> Estimate:
        return self.estimates[metric]

    def numbers(self) -> dict[str, Any]:
        """Plain JSON types by metric; None where there is no number."""
        return {
            metric: {name: None if it != it else it for name, it in estimate._asdict().items()}
            for metric, estimate in self.estimates.items()
        }


def table_of(
    rows: Sequence[Row],
    metrics: Sequence[str] = (),
    intervals: bool = False,
    titles: Mapping[str, str] | None = None,
) -> str:
    """Rows as aligned plain text; a star where a policy differs from the first."""
    metrics, titles = metrics or [*rows[0].estimates], titles or {}
    lines = [["policy", *(f"{titles.get(metric, metric)} " for metric in metrics)]]
    for row in rows:
        cells = (_cell(row[metric], DIGITS.get(metric, 3), intervals) for metric in metrics)
        lines.append([row.policy, *cells])
    first, *others = (max(map(len, column)) for column in zip(*lines, strict=True))
    aligned = ([line[0].ljust(first), *map(str.rjust, line[1:], others)] for line in lines)
    return "\n".join("  ".join(cells).rstrip() for cells in aligned)


def _cell(estimate: Estimate, digits: int, intervals: bool) -> str:
    """The mean and a star where it differs; the column of stars is kept free without one."""
    if math.isnan(estimate.mean):
        return "- "
    mark = "*" if estimate.is_significant else " "
    span = f" [{estimate.low:.{digits}f}, {estimate.high:.{digits}f}]" if intervals else ""
    return f"{estimate.mean:.{digits}f}{span}{mark}"
