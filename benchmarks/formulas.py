"""Relevance by other formulas, for the rows beside ours: version 0.1's and the reference.

The reference (numpy, one namespace) is a file that is not part of this project: where it is absent
its rows are left out, and so are those of version 0.1, which is written here in its terms.
"""

from __future__ import annotations

import importlib.util
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from langchain_core.embeddings import Embeddings
from numpy.typing import NDArray

from langmem_recall.memory.value import read_memory
from langmem_recall.ranking.calibration import PANELS
from langmem_recall.ranking.catalog import NUMBERED, TIMED, traits_of
from langmem_recall.stores.recall_store import RecallStore
from langmem_recall.text.tokens import STOP_WORDS, tokens
from langmem_recall.types import Cue, Namespace

REFERENCE = Path(__file__).resolve().parents[2] / "shared" / "reference" / "relevance.py"
TOP = 10


@dataclass(frozen=True)
class Formula:
    """All memories of a namespace by one of the two formulas, under an embedder."""

    name: str
    module: Any
    embeddings: Embeddings
    is_landed: bool
    built: dict[int, tuple[RecallStore, list[str], Any, NDArray[Any], Any]] = field(
        default_factory=dict
    )
    """By the identity of the store, which is kept so that no other one gets it."""

    def __call__(
        self, store: RecallStore, namespace: Namespace, cue: Cue, k: int
    ) -> list[tuple[str, float]]:
        """The best k keys with their relevance."""
        keys, _, score = self.score(store, namespace, cue.words)
        order = np.argsort(-score, kind="stable")[:k]
        return [(keys[row], float(_sigmoid(score[row]))) for row in order]

    def recalled(
        self, store: RecallStore, namespace: Namespace, cue: str
    ) -> tuple[set[str], float]:
        """What would be injected, and the best relevance."""
        keys, index, score = self.score(store, namespace, cue)
        if self.is_landed:
            order = np.argsort(-score, kind="stable")[:TOP]
            relevance = _sigmoid(score[order])
            rows = order[relevance >= 0.3] if relevance[0] >= 0.5 else []
        else:
            rows, _ = index.recall(score, TOP)
        return {keys[row] for row in rows}, float(_sigmoid(score.max()))

    def score(
        self, store: RecallStore, namespace: Namespace, cue: str
    ) -> tuple[list[str], Any, NDArray[Any]]:
        """Keys, the reference's index, and the log-odds of every memory."""
        if id(store) not in self.built:
            self.built[id(store)] = store, *self._build(store, namespace)
        _, keys, index, vectors, panel = self.built[id(store)]
        read = terms, weights, who, dense_text = index.read(cue)
        vector = _units([self.embeddings.embed_query(dense_text)])[0]
        cosines = vectors @ vector
        if not self.is_landed:
            return keys, index, index.score(cue, panel.standardise(cosines, vector), read)
        # Version 0.1: a neutral cosine a quarter of the way to identity, all words of the cue
        # expected, a price for each further memory.
        neutral = 0.25 * (1.0 - panel.mean) / panel.sd
        z = panel.standardise(cosines) - neutral
        own, near = index.cover(terms, weights)
        alone = 0.5 * z + 5.0 * own
        best = np.maximum.reduceat(alone, index.starts)[index.part]
        score = 0.5 * index.with_neighbours(z) + 5.0 * near + 0.45 * best
        score -= 0.4 + 0.5 * math.log(max(index.n, 1))
        if who is not None:
            score -= 2.5 * (index.speaker != who)
        wrong = (bool(self.module.WHEN.search(cue)) & ~index.timed) | (
            bool(self.module.COUNT.search(cue)) & ~index.numbered
        )
        return keys, index, (score - 1.5 * wrong) / 2.0

    def _build(
        self, store: RecallStore, namespace: Namespace
    ) -> tuple[list[str], Any, NDArray[Any], Any]:
        items = store.inner.search(namespace, limit=100_000)
        memories = [
            read_memory(item.namespace, item.key, item.value, item.created_at) for item in items
        ]
        memories.sort(key=lambda one: (one.written_at, one.thread_id or "", one.turn or 0))
        texts = [memory.text for memory in memories]
        flags = {memory.text: traits_of(memory).flags for memory in memories}
        is_threaded = all(memory.thread_id for memory in memories)
        index = self.module.Index(
            texts,
            lambda text: list(tokens(text)),
            STOP_WORDS,
            lambda text: bool(flags[text] & TIMED),
            lambda text: bool(flags[text] & NUMBERED),
            thread=[memory.thread_id for memory in memories] if is_threaded else None,
            speaker=[memory.speaker or "" for memory in memories] if is_threaded else None,
            dates=[memory.written_at for memory in memories] if is_threaded else None,
        )
        questions, statements = zip(*PANELS["en"], strict=True)
        panel = self.module.Panel(
            _units(self.embeddings.embed_documents(list(questions))),
            _units(self.embeddings.embed_documents(list(statements))),
        )
        keys = [memory.key for memory in memories]
        return keys, index, _units(self.embeddings.embed_documents(texts)), panel


def formulas(embeddings: Embeddings, path: Path = REFERENCE) -> list[Formula]:
    """Version 0.1's and the reference's; none where the reference is absent."""
    spec = importlib.util.spec_from_file_location("reference_relevance", path)
    if not path.exists() or spec is None or spec.loader is None:
        return []
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    names = {"landed in 0.1": True, "reference": False}
    return [Formula(name, module, embeddings, is_landed) for name, is_landed in names.items()]


def _units(vectors: Any) -> NDArray[Any]:
    array = np.asarray(vectors, np.float64)
    return array / np.maximum(np.linalg.norm(array, axis=1, keepdims=True), 1e-12)


def _sigmoid(score: Any) -> Any:
    return 1.0 / (1.0 + np.exp(-np.clip(score, -60, 60)))
