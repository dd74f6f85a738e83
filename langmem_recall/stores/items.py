"""Search results that say why they are where they are."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from langgraph.store.base import Item, SearchItem

from langmem_recall.types import Candidate, Scored, Signals

_PLAIN = (str, int, float, type(None))


class RankedItem(SearchItem):
    """A `SearchItem` with what its score is made of."""

    __slots__ = ("signals", "similarity")

    similarity: float | None
    """Cosine of the literal query, or None where it was not measured."""
    signals: Signals | None
    """The signals behind the score; None beyond the re-ranked head."""


def ranked_item(item: Item, candidate: Candidate, scored: Scored | None) -> RankedItem:
    """A result from a stored item; without a score where it lies beyond the head."""
    result = RankedItem(
        namespace=item.namespace,
        key=item.key,
        # A copy, because it may be the very value that a store or an index keeps.
        value={name: _copied(held) for name, held in item.value.items()},
        created_at=item.created_at,
        updated_at=item.updated_at,
        score=scored.score if scored else None,
    )
    result.similarity = candidate.similarity
    result.signals = scored.signals if scored else None
    return result


def _copied(held: Any) -> Any:
    """Plain texts and numbers, of which most values consist, cannot be changed by anyone."""
    if isinstance(held, _PLAIN):
        return held
    try:
        return deepcopy(held)
    except RecursionError:
        # Nested deeper than `put` lets in: handed out as it is rather than not at all.
        return held
