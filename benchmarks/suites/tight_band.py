"""An embedder whose cosines all lie close together, as those of many large models do."""

from __future__ import annotations

import math

from langchain_core.embeddings import Embeddings

from langmem_recall.embeddings import embedder_identity

BASE = 0.7
"""Where a cosine of 0 goes; 1 stays 1."""


class TightBand(Embeddings):
    """Another embedder with its cosines squeezed: cos' = 0.7 + 0.3 cos.

    Unrelated texts come out near 0.7, related ones rarely above 0.9. Every unit vector gets one
    more component, the same for all; a zero vector still means "no evidence" and stays zero.
    """

    def __init__(self, inner: Embeddings, base: float = BASE) -> None:
        self._inner = inner
        self._base = base

    @property
    def identity(self) -> str:
        """Names the inner model and the squeeze."""
        return f"tight-band-{self._base:g}({embedder_identity(self._inner)})"

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """One vector a text."""
        return [self._squeezed(vector) for vector in self._inner.embed_documents(texts)]

    def embed_query(self, text: str) -> list[float]:
        """The vector of one text."""
        return self._squeezed(self._inner.embed_query(text))

    def _squeezed(self, vector: list[float]) -> list[float]:
        length = math.hypot(*vector)
        if not length:
            return [*vector, 0.0]
        own = math.sqrt(1.0 - self._base) / length
        return [*(own * number for number in vector), math.sqrt(self._base)]
