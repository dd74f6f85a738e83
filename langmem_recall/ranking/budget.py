"""Budget: which lines of a recall stay whole, which are shortened and which must go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Packing(NamedTuple):
    """What becomes of each line, by its index."""

    whole: list[int]
    shortened: dict[int, int]
    """Tokens that a line may use."""
    dropped: list[int]


def pack(whole: Sequence[int], least: Sequence[int], budget: int) -> Packing:
    """Fit lines into a budget, the best first.

    Args:
        whole: Tokens of each line in full, in rank order.
        least: Tokens of each line with as little text as makes sense.
        budget: Tokens for all lines together.
    """
    floors = [min(pair) for pair in zip(whole, least, strict=True)]
    kept = _kept(floors, budget)
    spare = budget - sum(floors[i] for i in kept)
    in_full: list[int] = []
    shortened: dict[int, int] = {}
    for i in kept:
        if whole[i] - floors[i] <= spare:
            spare -= whole[i] - floors[i]
            in_full.append(i)
        else:
            shortened[i] = floors[i]
    for best in list(shortened)[:1]:
        # It can use all of it: had that been enough to be whole, it would be.
        shortened[best] += spare
    return Packing(in_full, shortened, sorted(set(range(len(floors))) - set(kept)))


def _kept(floors: Sequence[int], budget: int) -> list[int]:
    """The lines whose floors fit together: the lowest-ranked go first."""
    # One that could not stay even alone must not take the others with it.
    kept = [i for i, floor in enumerate(floors) if floor <= budget]
    total = sum(floors[i] for i in kept)
    while kept and total > budget:
        total -= floors[kept.pop()]
    return kept
