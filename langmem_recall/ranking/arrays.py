"""Array types of the ranking room, and a column that grows."""

from collections.abc import Sequence
from math import isqrt
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int32]
BoolArray: TypeAlias = NDArray[np.bool_]

FEW = 600
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
    few, rows = values, None
    # Groups of this size take least: more peaks to sort out, or more rows behind each.
    size = isqrt(total) // 2
    if total > FEW and (width := total // size) > count:
        # In each of `width` groups is one as large as the group's peak: none of the largest is
        # smaller than the last of as many peaks.
        peaks = values[: size * width].reshape(size, width).max(axis=0)
        peaks.partition(width - count)
        rows = (values >= peaks[width - count] - margin).nonzero()[0]
        few = values[rows]
    least = np.partition(few, len(few) - count)[len(few) - count] - margin
    among: NDArray[np.intp] = (few >= least).nonzero()[0]
    return among if rows is None else rows[among]
