"""Gates judged and set: what a trigger reads of a recall, and the trigger for a wanted rate."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from langmem_recall.errors import InputError
from langmem_recall.policy import RecallPolicy
from langmem_recall.ranking.arrays import FloatArray
from langmem_recall.ranking.gates import HARD_GATES
from langmem_recall.types import Recall, Scored

LOWEST_TRIGGER, HIGHEST_TRIGGER = 0.05, 0.95


def best_relevance(recall: Recall) -> float:
    """What a trigger judges a recall by; 1.0 with a pinned memory, which passes any trigger."""
    hard = {gate for gate, _ in HARD_GATES}
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
