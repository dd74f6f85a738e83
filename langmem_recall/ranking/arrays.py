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


def largest(values: FloatArray, count: int) -> FloatArray:
    """That many of the largest values, in no order; there must be as many."""
    width = len(values) // BLOCK
    if width > 8 * count:
        # Each of them is in one of as many blocks with the largest maxima.
        blocks = values[: BLOCK * width].reshape(BLOCK, width)
        best = np.argpartition(blocks.max(axis=0), width - count)[width - count :]
        values = np.concatenate((blocks[:, best].ravel(), values[BLOCK * width :]))
    return np.partition(values, len(values) - count)[len(values) - count :]
