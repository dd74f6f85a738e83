"""Array types of the ranking room, and a column that grows."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int32]
BoolArray: TypeAlias = NDArray[np.bool_]

BLOCK = 64
"""Values of which one is looked at first, where the largest of many are wanted."""


class Column:
    """Appending costs amortised constant time; `values` is a view of what is there."""

    def __init__(self, dtype: DTypeLike, *shape: int, room: int = 16) -> None:
        self._room: NDArray[Any] = np.empty((room, *shape), dtype)
        self.values: NDArray[Any] = self._room[:0]
        """The values so far; writes through it change the column."""

    @property
    def nbytes(self) -> int:
        """Bytes of memory, room to grow included."""
        return self._room.nbytes

    def append(self, value: float) -> None:
        """Add one value."""
        count = len(self.values)
        if count == len(self._room):
            self.extend((value,))
        else:
            self._room[count] = value
            self.values = self._room[: count + 1]

    def extend(self, values: Sequence[float] | NDArray[Any]) -> None:
        """Add many values."""
        count, total = len(self.values), len(self.values) + len(values)
        if total > len(self._room):
            # A new array, never a resize in place: views handed out earlier stay valid.
            shape = (max(total, 2 * len(self._room)), *self._room.shape[1:])
            room = np.empty(shape, self._room.dtype)
            room[:count] = self.values
            self._room = room
        self._room[count:total] = values
        self.values = self._room[:total]


def top_rows(values: NDArray[Any], count: int, margin: float = 0.0) -> NDArray[np.intp]:
    """Rows of so many of the largest values, ascending, and of all within a margin of them."""
    if count >= len(values):
        return np.arange(len(values))
    width = len(values) // BLOCK
    if width <= 8 * count:
        least = np.partition(values, len(values) - count)[len(values) - count] - margin
        return np.flatnonzero(values >= least)
    # Each of them is in one of as many blocks with the largest maxima: the others are read once.
    blocks, rest = values[: BLOCK * width].reshape(BLOCK, width), values[BLOCK * width :]
    peaks = blocks.max(axis=0)
    best = np.argpartition(peaks, width - count)[width - count :]
    few = np.concatenate((blocks[:, best].ravel(), rest))
    least = np.partition(few, len(few) - count)[len(few) - count] - margin
    within = np.arange(0, BLOCK * width, width)[:, None] + np.flatnonzero(peaks >= least)
    rows = np.concatenate((within.ravel(), np.arange(BLOCK * width, len(values))))
    return np.sort(rows[values[rows] >= least])
