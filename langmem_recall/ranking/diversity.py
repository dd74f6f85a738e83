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
    distinct, dropped = list[int](), list[Drop]()
    for i, scored in enumerate(ranked):
        better = (j for j in np.flatnonzero(near[i]).tolist() if j in distinct)
        text = scored.memory.text
        match = next((j for j in better if _same_particulars(text, ranked[j].memory.text)), None)
        if match is None or scored.memory.pinned:
            distinct.append(i)
        else:
            reason = f"{likeness[i, match]:.2f} like {ranked[match].memory.key}"
            dropped.append(Drop(scored, "duplicate", reason, ranked[match].memory.id))
    return distinct, dropped


def _same_particulars(text: str, other: str) -> bool:
    """Whether names and numbers agree: "budget 5,000" and "budget 7,000" are no duplicates."""
    words, particulars = list[set[str]](), list[set[str]]()
    for found in (_WORD.findall(text), _WORD.findall(other)):
        words.append({word.casefold() for word in found})
        named = (word for word in found if word[0].isupper() or any(map(str.isdigit, word)))
        particulars.append({word.casefold() for word in named} - STOP_WORDS)
    return particulars[0] <= words[1] and particulars[1] <= words[0]


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
