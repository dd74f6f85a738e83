"""Numbers of many candidates as columns of bytes: small once compressed, quick to unpack."""

from __future__ import annotations

import base64
import gzip
import json
import sys
from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

NONE = -(2**31)
"""Stands for a number that is not known."""
_LARGEST = 2**31 - 2


class Column(NamedTuple):
    """One number a candidate, kept as whole multiples of 1 / scale."""

    name: str
    scale: int = 1


def to_whole(number: float | None, scale: int) -> int:
    """The number as a whole multiple, within 32 bits."""
    if number is None or number != number:
        return NONE
    return max(-_LARGEST, min(_LARGEST, round(number * scale)))


def new_column() -> array[int]:
    """A column of whole numbers."""
    return array("i")


def packed(header: dict[str, Any], columns: Sequence[tuple[Column, array[int]]]) -> str:
    """A header and columns, compressed, as Base64.

    The bytes are: the length of the header in 4 bytes, the header as JSON, and of every column
    the lowest bytes of all its numbers, then the next higher ones, for as many bytes as it needs:
    low bytes are noise and high ones nearly all alike, which compresses best apart. Numbers are
    counted from the column's base; 0 is one that is not known.
    """
    layout, body = [], []
    for column, numbers in columns:
        base = min((number for number in numbers if number != NONE), default=1) - 1
        width, planes = _planes(numbers, base)
        layout.append({"name": column.name, "scale": column.scale, "base": base, "width": width})
        body.append(planes)
    text = json.dumps(header | {"columns": layout}, separators=(",", ":"), allow_nan=False)
    head = text.encode("ascii")
    raw = b"".join([len(head).to_bytes(4, "little"), head, *body])
    # No time of making: the same traces give the same page.
    return base64.b64encode(gzip.compress(raw, 6, mtime=0)).decode("ascii")


def _planes(numbers: array[int], base: int) -> tuple[int, bytes]:
    counted = array("Q", [0 if number == NONE else number - base for number in numbers])
    width = (max(counted, default=0).bit_length() + 7) // 8
    if sys.byteorder == "big":
        counted.byteswap()
    raw = counted.tobytes()
    return width, b"".join(raw[place :: counted.itemsize] for place in range(width))
