"""Array types of the ranking room, and a column that grows."""

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int32]
BoolArray: TypeAlias = NDArray[np.bool_]

BLOCK = 64
"""At most so many values of which one is looked at first, where the largest of many are wanted."""
FEW = 20_000
"""Of so many values it takes no longer to look at them all."""


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
    total = len(values)
    if count >= total:
        return np.arange(total)
    # There are then about as many blocks as values in those that are looked at.
    block = min(math.isqrt(total // count), BLOCK)
    if total < FEW or block < 2:
        least = np.partition(values, total - count)[total - count] - margin
        rows: NDArray[np.intp] = (values >= least).nonzero()[0]
        return rows
    # Each of them is in one of as many blocks with the largest maxima: the others are read once.
    width = total // block
    blocks, rest = values[: block * width].reshape(block, width), values[block * width :]
    peaks = blocks.max(axis=0)
    best = peaks.argpartition(width - count)[width - count :]
    few = np.concatenate((blocks[:, best].ravel(), rest))
    few.partition(len(few) - count)
    least = few[len(few) - count] - margin
    columns = (peaks >= least).nonzero()[0]
    places, within = (blocks[:, columns] >= least).nonzero()
    rows = places * width + columns[within]
    if len(rest):
        rows = np.concatenate((rows, block * width + (rest >= least).nonzero()[0]))
    return rows
