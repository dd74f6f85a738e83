"""Diversity: what is already chosen makes its likes less worth choosing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from langmem_recall.policy import RecallPolicy
from langmem_recall.ranking.arrays import FloatArray
from langmem_recall.text.tokens import STOP_WORDS
from langmem_recall.types import Drop, Scored

_WORD = re.compile(r"\w+(?:[.,:'-]\w+)*")


def without_duplicates(
    ranked: Sequence[Scored], likeness: FloatArray, policy: RecallPolicy
) -> tuple[list[int], list[Drop]]:
    """Indices of memories unlike every better one, and near-duplicates with their reason.

    A pinned memory is shown in any case, so it is better than its copies.
    """
    near = likeness >= policy.duplicate_similarity
    distinct, dropped, read = list[int](), list[Drop](), cache(_read)
    for i in sorted(range(len(ranked)), key=lambda place: not ranked[place].memory.pinned):
        scored = ranked[i]
        better = (j for j in np.flatnonzero(near[i]).tolist() if j in distinct)
        text = scored.memory.text
        match = next((j for j in better if _agree(read(text), read(ranked[j].memory.text))), None)
        if match is None or scored.memory.pinned:
            distinct.append(i)
        else:
            reason = f"{likeness[i, match]:.2f} like {ranked[match].memory.key}"
            dropped.append(Drop(scored, "duplicate", reason, ranked[match].memory.id))
    return sorted(distinct), dropped


class _Reading(NamedTuple):
    words: set[str]
    particulars: set[str]


def _read(text: str) -> _Reading:
    found = _WORD.findall(text)
    named = (word for word in found if word[0].isupper() or any(map(str.isdigit, word)))
    particulars = {word.casefold() for word in named} - STOP_WORDS
    return _Reading({word.casefold() for word in found}, particulars)


def _agree(one: _Reading, other: _Reading) -> bool:
    """Whether names and numbers agree: "budget 5,000" and "budget 7,000" are no duplicates."""
    return one.particulars <= other.words and other.particulars <= one.words


def mmr(scores: FloatArray, likeness: FloatArray, balance: float) -> list[int]:
    """Greedy maximal marginal relevance against what is selected: indices in order of choice.

    `balance` 1 is the order of the scores, 0 looks at novelty alone.
    """
    left = np.ones(len(scores), bool)
    nearest = np.zeros(len(scores))
    chosen: list[int] = []
    while len(chosen) < len(scores):
        worth = np.where(left, balance * scores - (1.0 - balance) * nearest, -np.inf)
        pick = int(np.argmax(worth))
        chosen.append(pick)
        left[pick] = False
        nearest = np.maximum(nearest, np.nan_to_num(likeness[pick]))
    return chosen
