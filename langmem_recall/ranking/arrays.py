"""Array types of the ranking room, and a column that grows."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int32]
BoolArray: TypeAlias = NDArray[np.bool_]


class Column:
    """Appending costs amortised constant time; `values` is a view of what is there."""

    def __init__(self, dtype: DTypeLike, *shape: int, room: int = 16) -> None:
        self._room: NDArray[Any] = np.empty((room, *shape), dtype)
        self._count = 0

    @property
    def values(self) -> NDArray[Any]:
        """The values so far; writes through it change the column."""
        return self._room[: self._count]

    @property
    def nbytes(self) -> int:
        """Bytes of memory, room to grow included."""
        return self._room.nbytes

    def append(self, value: float) -> None:
        """Add one value."""
        self._make_room(1)
        self._room[self._count] = value
        self._count += 1

    def extend(self, values: Sequence[float] | NDArray[Any]) -> None:
        """Add many values."""
        self._make_room(len(values))
        self._room[self._count : self._count + len(values)] = values
        self._count += len(values)

    def _make_room(self, more: int) -> None:
        needed = self._count + more
        if needed > len(self._room):
            # A new array, never a resize in place: views handed out earlier stay valid.
            shape = (max(needed, 2 * len(self._room)), *self._room.shape[1:])
            room = np.empty(shape, self._room.dtype)
            room[: self._count] = self.values
            self._room = room
