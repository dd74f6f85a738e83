"""What an embedder says about unrelated texts: the yardstick that makes cosines comparable."""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

NEED_WEIGHT, LEAST_NEED, MOST_NEED = 0.4, -3.0, 1.0
"""How much the log-odds that memories are for a cue count, and how far they are believed: more
against a memory than for it."""
BREADTH, MOST_BREADTH = 3.0, 4.5
"""How far a recall reaches beside the best memory, under an embedder that is not measured or tells
little, and at most: what lies just behind the best is the likelier right the better one tells."""


class NullDistribution(NamedTuple):
    """Similarity of unrelated pairs under one embedder."""

    mean: float
    sd: float
    measured: bool = True
    center: Sequence[float] = ()
    """Mean of the panel's statements, each of length 1; empty where it is not known."""
    asked: float = 0.0
    """How much nearer a memory is to any cue for being embedded with how it will be asked for."""
    quick: bool = False
    """Whether the embedder takes next to no time for a text."""
    apart: float = 0.0
    """How far texts on one subject lie above unrelated ones, in standard deviations of those."""
    need: Sequence[float] = ()
    """A direction in which cues that memories are for lie apart from small talk, common knowledge
    and the like, and last a constant: of a cue they make log-odds. Empty where it is not known."""

    def of_cue(self, vector: ArrayLike) -> tuple[float, float]:
        """What a cue with this vector, () where it is not known, has with unrelated statements.

        And what it adds to the log-odds of any memory, by what it is for. Some cues are near to
        anything, questions to other questions and first person to first person: measured by the
        mean of all, those would always find something.
        """
        numbers = np.asarray(vector, np.float64)
        norm, mean, need = math.sqrt(numbers @ numbers), self.mean, 0.0
        if 0.0 < norm < math.inf:
            if len(self.center) == len(numbers):
                mean = float(numbers @ np.asarray(self.center)) / norm
            if len(self.need) == len(numbers) + 1:
                direction = np.asarray(self.need)
                need = float(numbers @ direction[:-1] / norm + direction[-1])
        return mean, NEED_WEIGHT * min(max(need, LEAST_NEED), MOST_NEED)

    @property
    def breadth(self) -> float:
        """How far a recall reaches beside the best memory (`RecallPolicy.breadth`)."""
        return min(max(2.0 + self.apart / 2.0, BREADTH), MOST_BREADTH)


DEFAULT_NULL = NullDistribution(mean=0.10, sd=0.08, measured=False)
"""For stores that hide their embedder: between WordLlama (0.01, 0.07), MiniLM (0.03, 0.07) and
the wider OpenAI-like models. `doctor` says when it is in force."""

_ASSUMED = (
    ("ada-002", NullDistribution(mean=0.72, sd=0.03, measured=False)),
    ("e5-", NullDistribution(mean=0.74, sd=0.03, measured=False)),
    ("MiniLM", NullDistribution(mean=0.03, sd=0.07, measured=False)),
    ("wordllama", NullDistribution(mean=0.01, sd=0.07, measured=False)),
)
"""By a part of the model's name. The first two find any two texts alike."""


def assumed_null(identity: str) -> NullDistribution:
    """What is taken for an embedder's kind until it is measured."""
    return next((null for name, null in _ASSUMED if name in identity), DEFAULT_NULL)


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


CUES: Mapping[str, tuple[str, ...]] = {
    kind: tuple(cues)
    for kind, cues in json.loads(
        files("langmem_recall.ranking").joinpath("cues.json").read_text("utf-8")
    ).items()
}
"""Cues that somebody's memories are for ("wanted"), and others ("idle"); as many of each."""


def measure_need(wanted: ArrayLike, idle: ArrayLike) -> Sequence[float]:
    """`NullDistribution.need` from vectors of the two sorts of `CUES`; empty where they are no use.

    The line through both means, and normal log-odds of places along it. Each cue's place is that on
    the line of all others: its own mean would draw it there.
    """
    try:
        with np.errstate(all="ignore"):
            arrays = [np.asarray(vectors, np.float64) for vectors in (wanted, idle)]
            units = [each / np.linalg.norm(each, axis=1, keepdims=True) for each in arrays]
            means = [each.mean(axis=0) for each in units]
            own = [
                (len(each) * (each @ mean) - 1.0) / (len(each) - 1)
                for each, mean in zip(units, means, strict=True)
            ]
            above, below = own[0] - units[0] @ means[1], units[1] @ means[0] - own[1]
            spread = float(above.var() + below.var()) / 2.0
    except ValueError:
        return ()
    if not math.isfinite(spread) or spread <= MINIMUM_SD**2:
        return ()
    slope = float(above.mean() - below.mean()) / spread
    middle = float(above.mean() + below.mean()) / 2.0
    # Arrays, here and below, because every recall reads them: a tuple would be copied each time.
    return array("d", [*(slope * (means[0] - means[1])).tolist(), -slope * middle])


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
    unmatched = ~np.eye(len(cosines), dtype=bool)
    unrelated = cosines[unmatched]
    mean, sd = float(unrelated.mean()), float(unrelated.std())
    if sd <= MINIMUM_SD or mean >= 1.0 - MINIMUM_SD:
        return None
    # A statement embedded with its question lies between the two; where they are opposite it is
    # nowhere, and nearer to nothing.
    joined = units[0] + units[1]
    lengths = np.maximum(np.linalg.norm(joined, axis=1, keepdims=True), MINIMUM_SD)
    asked = float((units[0] @ (joined / lengths).T)[unmatched].mean()) - mean
    return NullDistribution(
        mean,
        sd,
        center=array("d", units[1].mean(axis=0).tolist()),
        asked=asked,
        apart=(float(cosines.diagonal().mean()) - mean) / sd,
    )
