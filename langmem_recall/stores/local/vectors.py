"""Unit vectors of a namespace in one contiguous block, so that a search is one matrix product."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from langmem_recall.ranking.arrays import Column

Floats = NDArray[np.float32]


class VectorMatrix:
    """Row r belongs to memory r: its first vector or zeros; more vectors lie in a side block."""

    def __init__(self, dims: int, room: int = 16) -> None:
        self.dims = dims
        self._main = Column(np.float32, dims, room=room)
        self._more = Column(np.float32, dims, room=0)
        self._owner = Column(np.int32)
        self._has = Column(np.bool_)
        self._missing = 0

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return self._main.nbytes + self._more.nbytes

    def extend(self, blobs: Sequence[bytes | None]) -> None:
        """Add memories by their stored vectors; None: no vector."""
        size = 4 * self.dims
        if blobs and all(blob is not None and len(blob) == size for blob in blobs):
            joined = b"".join(blob for blob in blobs if blob)
            self._add(np.frombuffer(joined, np.float32).reshape(-1, self.dims))
            return
        for blob in blobs:
            units = normalised(np.frombuffer(blob or b"", np.float32).reshape(-1, self.dims or 1))
            # A zero vector is no evidence, so it must not stand in for one that is.
            units = units[units.any(axis=1)][:, : self.dims]
            row = len(self._has.values)
            self._add(units[:1] if len(units) else np.zeros((1, self.dims), np.float32))
            self._more.extend(units[1:])
            self._owner.extend(np.full(max(len(units) - 1, 0), row, np.int32))

    def cosines(self, queries: Floats) -> Floats:
        """Cosine of each unit query (rows of the result) with each memory; NaN: no vector."""
        # One query is a plain product with a vector: no transposed copy, no gather.
        scores = _product(self._main.values, queries)
        if len(self._owner.values):
            more = _product(self._more.values, queries)
            for row, extra in zip(scores, more, strict=True):
                np.maximum.at(row, self._owner.values, extra)
        if self._missing:
            scores[:, ~self._has.values] = np.nan
        return np.clip(scores, -1.0, 1.0, out=scores)

    def similarity(self, rows: Sequence[int]) -> Floats:
        """Cosine between each two memories by their first vectors; NaN: no vector."""
        chosen = np.asarray(rows, np.intp)
        vectors = self._main.values[chosen]
        alike: Floats = np.clip(vectors @ vectors.T, -1.0, 1.0)
        without = ~self._has.values[chosen]
        alike[without, :] = np.nan
        alike[:, without] = np.nan
        return alike

    def _add(self, vectors: Floats) -> None:
        units = normalised(vectors)
        has: NDArray[np.bool_] = np.asarray(units.any(axis=1))
        self._main.extend(units)
        self._has.extend(has)
        self._missing += int(len(has) - has.sum())


def normalised(vectors: Floats) -> Floats:
    """Rows of unit length; rows that are zero or not finite become zero."""
    with np.errstate(over="ignore", invalid="ignore"):
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    usable = np.isfinite(lengths) & (lengths > 0)
    units: Floats = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=usable)
    return units


def _product(rows: Floats, queries: Floats) -> Floats:
    if len(queries) == 1:
        return np.asarray(rows @ queries[0])[None, :]
    return np.ascontiguousarray((rows @ queries.T).T)
