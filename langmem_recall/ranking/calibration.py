"""What an embedder says about unrelated texts: the yardstick that makes cosines comparable."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike


class NullDistribution(NamedTuple):
    """Similarity of unrelated pairs under one embedder."""

    mean: float
    sd: float
    measured: bool = True

    @property
    def cap(self) -> float:
        """Standardised similarity of a text with itself: how far this embedder can reach."""
        return (1.0 - self.mean) / self.sd


DEFAULT_NULL = NullDistribution(mean=0.10, sd=0.08, measured=False)
"""For stores that hide their embedder: between WordLlama (0.08, 0.07), MiniLM (0.03, 0.07) and
the wider OpenAI-like models. `doctor` says when it is in force."""

MINIMUM_SD = 1e-4


# Read with the module, not at first use: that would be a file opened on the event loop.
PANELS: Mapping[str, tuple[tuple[str, str], ...]] = {
    language: tuple((question, statement) for question, statement in pairs)
    for language, pairs in json.loads(
        files("langmem_recall.ranking").joinpath("panels.json").read_text("utf-8")
    ).items()
}
"""Questions and statements by language, because many embedders find any two texts of a language
they hardly know alike. Pair i shares a topic, two different pairs do not."""


def measure(questions: ArrayLike, statements: ArrayLike) -> NullDistribution | None:
    """The null distribution from a panel: vectors of question i and statement i share a topic.

    None when the vectors cannot be used (NaN, ragged, all zero, or all alike).
    """
    try:
        first, second = (np.asarray(vectors, np.float64) for vectors in (questions, statements))
    except ValueError:
        return None
    if first.ndim != 2 or first.shape != second.shape or len(first) < 2:
        return None
    with np.errstate(all="ignore"):
        units = [each / np.linalg.norm(each, axis=1, keepdims=True) for each in (first, second)]
    if not np.isfinite(units).all():
        return None
    cosines = units[0] @ units[1].T
    unrelated = cosines[~np.eye(len(cosines), dtype=bool)]
    mean, sd = float(unrelated.mean()), float(unrelated.std())
    return NullDistribution(mean, sd) if sd > MINIMUM_SD and mean < 1.0 - MINIMUM_SD else None
