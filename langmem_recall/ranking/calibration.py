"""What an embedder says about unrelated texts: the yardstick that makes cosines comparable."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from langmem_recall.ranking.arrays import FloatArray


class NullDistribution(NamedTuple):
    """Similarity of unrelated pairs under one embedder."""

    mean: float
    sd: float
    measured: bool = True

    @property
    def cap(self) -> float:
        """Standardised similarity of a text with itself: how far this embedder can reach."""
        return (1.0 - self.mean) / self.sd

    def standardise(self, cosine: FloatArray) -> FloatArray:
        """Cosines in standard deviations above chance."""
        return (cosine - self.mean) / self.sd


DEFAULT_NULL = NullDistribution(mean=0.10, sd=0.08, measured=False)
"""For stores that hide their embedder: between WordLlama (0.08, 0.07), MiniLM (0.03, 0.07) and
the wider OpenAI-like models. `doctor` says when it is in force."""

MINIMUM_SD = 1e-4


def measure(questions: ArrayLike, statements: ArrayLike) -> NullDistribution | None:
    """The null distribution from a panel: vectors of question i and statement i share a topic.

    None when the vectors cannot be used (NaN, ragged, all zero, or all alike).
    """
    asked, said = _unit(questions), _unit(statements)
    if asked is None or said is None or asked.shape != said.shape or len(asked) < 2:
        return None
    cosines = asked @ said.T
    unrelated = cosines[~np.eye(len(cosines), dtype=bool)]
    mean, sd = float(unrelated.mean()), float(unrelated.std())
    return NullDistribution(mean, sd) if sd > MINIMUM_SD and mean < 1.0 - MINIMUM_SD else None


def _unit(vectors: ArrayLike) -> FloatArray | None:
    try:
        matrix = np.asarray(vectors, dtype=np.float64)
    except ValueError:
        return None
    if matrix.ndim != 2 or not np.isfinite(matrix).all():
        return None
    norms = np.linalg.norm(matrix, axis=1, keepdims=True)
    return matrix / norms if (norms > 0).all() else None
