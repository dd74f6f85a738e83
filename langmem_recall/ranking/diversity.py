"""Diversity: what is already chosen makes its likes less worth choosing."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from langmem_recall.policy import RecallPolicy
from langmem_recall.ranking.arrays import FloatArray
from langmem_recall.text.tokens import STOP_WORDS
from langmem_recall.types import Drop, Scored

_WORD = re.compile(r"\w+(?:[.,:'-]\w+)*")


def without_duplicates(
    ranked: Sequence[Scored], likeness: FloatArray, policy: RecallPolicy
) -> tuple[list[int], list[Drop]]:
    """Indices of memories unlike every better one, and near-duplicates with their reason."""
    near = np.tril(likeness >= policy.duplicate_similarity, k=-1)
    kept: list[int] = []
    dropped: list[Drop] = []
    for i, scored in enumerate(ranked):
        alike = np.flatnonzero(near[i]).tolist() if near[i].any() else ()
        twin = next((j for j in alike if j in kept and _same_particulars(scored, ranked[j])), None)
        if twin is None or scored.memory.pinned:
            kept.append(i)
        else:
            reason = f"{likeness[i, twin]:.2f} like {ranked[twin].memory.key}"
            dropped.append(Drop(scored, "duplicate", reason, ranked[twin].memory.id))
    return kept, dropped


def _same_particulars(one: Scored, other: Scored) -> bool:
    """Whether names and numbers agree: "budget 5,000" and "budget 7,000" are no duplicates."""
    ours, theirs = _WORD.findall(one.memory.text), _WORD.findall(other.memory.text)
    return _particulars(ours) <= _folded(theirs) and _particulars(theirs) <= _folded(ours)


def _particulars(words: Sequence[str]) -> set[str]:
    named = (word for word in words if word[0].isupper() or any(map(str.isdigit, word)))
    return {word.casefold() for word in named} - STOP_WORDS


def _folded(words: Sequence[str]) -> set[str]:
    return {word.casefold() for word in words}


def mmr(scores: FloatArray, likeness: FloatArray, balance: float, count: int) -> list[int]:
    """Greedy maximal marginal relevance against what is selected: indices in order of choice.

    `balance` 1 is the order of the scores, 0 looks at novelty alone.
    """
    left = np.ones(len(scores), bool)
    nearest = np.zeros(len(scores))
    chosen: list[int] = []
    while len(chosen) < min(count, len(scores)):
        worth = np.where(left, balance * scores - (1.0 - balance) * nearest, -np.inf)
        pick = int(np.argmax(worth))
        chosen.append(pick)
        left[pick] = False
        nearest = np.maximum(nearest, np.nan_to_num(likeness[pick]))
    return chosen
