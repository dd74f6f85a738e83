"""When a LocalStore embeds what, and what it does with an embedder that fails."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, cast

import numpy as np
from langchain_core.embeddings import Embeddings
from langgraph.store.base import IndexConfig, ensure_embeddings, get_text_at_path, tokenize_path

from langmem_recall.embeddings import DIMS, LocalEmbeddings, embedder_identity, names_model
from langmem_recall.errors import InputError, RecallError, StoreError, described
from langmem_recall.stores.local.vectors import normalised
from langmem_recall.types import Memory

logger = logging.getLogger(__name__)

BATCH = 256
"""Texts per call of the embedder."""

IndexSetting = Literal[False] | Sequence[str] | None
"""What `put(index=...)` was given: the store's default, nothing, or paths."""

_PROBE = "a plain sentence about nothing in particular"
SAME_COSINE = 0.98
"""Vectors of one text that are closer than this are one embedder's: floats are not exact."""


class Embedder:
    """A LangChain embedder whose answers are checked before they are believed."""

    def __init__(self, embeddings: Embeddings, config: Mapping[str, Any]) -> None:
        self.embeddings = embeddings
        self.identity = embedder_identity(embeddings)
        self.fingerprint: bytes | None = None
        """The vector of one fixed text, for an embedder whose identity does not name its model."""
        self._is_named = names_model(embeddings)
        self.declared_dims: int | None = config.get("dims")
        # "text_fields" is how SqliteStore spells it.
        self._fields = _as_list(config.get("fields") or config.get("text_fields"))

    def texts(self, memory: Memory, index: IndexSetting) -> list[str]:
        """What of a memory is embedded: its text, or what the paths lead to."""
        if index is False:
            return []
        paths = self._fields if index is None else _as_list(index)
        if paths is None:
            return [memory.text]
        return [text for path in paths for text in _at_path(memory.value, path)]

    def query(self, text: str) -> list[float]:
        """The vector of a query; the embedder's own error where it fails."""
        vector: list[float] = _called(self.embeddings, "query", text)
        return vector

    def documents(self, texts: Sequence[str], dims: int | None) -> dict[str, bytes]:
        """Vectors by text, as float32; texts the embedder failed on are left out."""
        distinct = list(dict.fromkeys(texts))
        vectors: dict[str, bytes] = {}
        for start in range(0, len(distinct), BATCH):
            some = distinct[start : start + BATCH]
            if self._lacks_fingerprint:
                # Along with what is asked anyway: no request of its own.
                some = list(dict.fromkeys([*some, _PROBE]))
            vectors.update(self._checked(some, self._tried(some), dims or self.declared_dims))
            if self._lacks_fingerprint:
                self.fingerprint = vectors.get(_PROBE)
            dims = dims or next((len(blob) // 4 for blob in vectors.values()), None)
        return vectors

    def measure(self) -> None:
        """Ask for one vector, the fingerprint; the embedder's own error where it fails."""
        (vector,) = _called(self.embeddings, "documents", [_PROBE])
        array = _as_array(vector)
        if array is None:
            raise StoreError(
                f"{self.identity} must give finite numbers for a text, got {vector!r:.80}. Nothing "
                "was changed; check the embedder."
            )
        if not self._is_named:
            self.fingerprint = array.tobytes()

    def check(self, meta: Mapping[str, Any], dims: int | None = None) -> None:
        """Refuse vectors of another embedder or of other dimensions than the stored ones."""
        if not self.is_owner(meta):
            stored = meta["embedder"]
            different = " too, but gives other vectors" if stored == self.identity else ""
            raise StoreError(
                f"The stored vectors were made by {stored} ({meta.get('dims')} dimensions), the "
                f"configured embedder is {self.identity}{different}. Nothing was changed; "
                "configure the former one, or call reindex() to embed everything anew."
            )
        self._check_dims(self.declared_dims, meta.get("dims"))
        self._check_dims(dims, meta.get("dims"))

    def check_query(self, meta: Mapping[str, Any]) -> None:
        """The same before a comparison, for which an unnamed embedder is measured once."""
        if "fingerprint" in meta and self._lacks_fingerprint:
            self.measure()
        self.check(meta)

    def is_owner(self, meta: Mapping[str, Any]) -> bool:
        """Whether the stored vectors are this embedder's, as far as is known."""
        if meta.get("embedder", self.identity) != self.identity:
            return False
        stored, own = meta.get("fingerprint"), self.fingerprint
        return stored is None or own is None or _are_same(stored, own)

    @property
    def _lacks_fingerprint(self) -> bool:
        return not self._is_named and self.fingerprint is None

    def _check_dims(self, got: int | None, wanted: int | None) -> None:
        if got and wanted and got != wanted:
            raise StoreError(
                f"The store holds vectors of {wanted} dimensions, {self.identity} is configured "
                f"for or returns {got}. Nothing was changed; configure the embedder that wrote "
                "them, or call reindex() to embed everything anew."
            )

    def _tried(self, texts: list[str]) -> list[Any]:
        try:
            vectors = list(_called(self.embeddings, "documents", texts))
        except RecallError:
            raise
        except Exception as error:
            told = described(error)
            logger.warning("The embedder failed; %d texts wait for it: %s", len(texts), told)
            return []
        if len(vectors) != len(texts):
            logger.warning("The embedder gave %d vectors for %d texts.", len(vectors), len(texts))
            return []
        return vectors

    def _checked(self, texts: list[str], vectors: list[Any], dims: int | None) -> dict[str, bytes]:
        arrays = {text: _as_array(vector) for text, vector in zip(texts, vectors, strict=False)}
        sizes = {array.size for array in arrays.values() if array is not None}
        wanted = dims or (min(sizes) if len(sizes) == 1 else None)
        if len(sizes) == 1 and sizes != {wanted}:
            self._check_dims(self._probed_dims(), wanted)
        return {
            text: array.tobytes()
            for text, array in arrays.items()
            if array is not None and array.size == wanted
        }

    def _probed_dims(self) -> int | None:
        """Tells an embedder of other dimensions from one that stumbled over a text."""
        probed = [_as_array(vector) for vector in self._tried([_PROBE])]
        return probed[0].size if probed and probed[0] is not None else None


class Pending:
    """Which stored texts to embed next, after the embedder failed on them."""

    def __init__(self) -> None:
        self.is_possible = True
        """Whether some may be waiting; other processes may have left some behind."""
        self._size = BATCH
        self._failures: Counter[int] = Counter()
        self._fruitless = 0
        self._skips = 0

    def is_due(self) -> bool:
        """Whether to try now: after some fruitless tries, only now and then."""
        if self._skips:
            self._skips -= 1
            return False
        return self.is_possible

    def choose(self, ids: Sequence[int]) -> list[int]:
        """The next few, those that failed least first, so that a bad text cannot block the rest."""
        self.is_possible = bool(ids)
        return sorted(ids, key=lambda item_id: self._failures[item_id])[: self._size]

    def note(self, tried: Sequence[int], done: Sequence[int]) -> None:
        """Narrow down on a text that spoils its batch."""
        self._failures.update(set(tried) - set(done))
        self._size = min(2 * self._size, BATCH) if done else max(self._size // 2, 1)
        self._fruitless = 0 if done else self._fruitless + 1
        self._skips = 0 if self._fruitless < 3 else min(2 ** (self._fruitless - 2), BATCH)


def make_embedder(
    embeddings: Embeddings | None, index: IndexConfig | Literal[False] | None
) -> tuple[Embedder | None, dict[str, Any] | None]:
    """The embedder and the index configuration that a store shows."""
    if index is False:
        return None, None
    if index is not None and not isinstance(index, Mapping):
        raise InputError(
            f"index must be a LangGraph IndexConfig, False or None, got {index!r:.80}. "
            'Write index={"embed": ..., "dims": ...}.'
        )
    config: dict[str, Any] = dict(index or {})
    source = embeddings if embeddings is not None else config.get("embed")
    made = LocalEmbeddings() if source is None else ensure_embeddings(source)
    config["embed"] = made
    if isinstance(made, LocalEmbeddings):
        config.setdefault("dims", DIMS)
    return Embedder(made, config), config


def digest_texts(texts: Sequence[str]) -> bytes:
    """Tells whether the embedded texts of a memory have changed."""
    hashed = hashlib.blake2b(digest_size=16)
    for text in texts:
        encoded = text.encode("utf-8", "surrogatepass")
        hashed.update(len(encoded).to_bytes(8, "big") + encoded)
    return hashed.digest()


def joined_vectors(texts: Sequence[str], vectors: Mapping[str, bytes]) -> bytes | None:
    """All vectors of one memory; None as long as one is missing."""
    if not all(text in vectors for text in texts):
        return None
    return b"".join(vectors[text] for text in texts)


def _called(embeddings: Embeddings, what: str, argument: Any) -> Any:
    if hasattr(embeddings, "afunc") and not hasattr(embeddings, "func"):
        # LangGraph's wrapper of an async function cannot be called from sync code.
        call: Callable[[Any], Any] = getattr(embeddings, f"aembed_{what}")
        return asyncio.run(cast(Any, call(argument)))
    return getattr(embeddings, f"embed_{what}")(argument)


def _as_array(vector: Any) -> Any:
    """A float32 vector, or None for anything that is not one."""
    try:
        array = np.asarray(vector, np.float32)
    except (TypeError, ValueError):
        return None
    return array if array.ndim == 1 and array.size and np.isfinite(array).all() else None


def _are_same(one: bytes, other: bytes) -> bool:
    """Whether two vectors of one text point the same way."""
    if one == other or len(one) != len(other):
        return one == other
    units = normalised(np.stack([np.frombuffer(each, np.float32) for each in (one, other)]))
    return float(units[0] @ units[1]) >= SAME_COSINE


def _as_list(fields: Any) -> list[str] | None:
    return [fields] if isinstance(fields, str) else list(fields) if fields is not None else None


def _at_path(value: Any, path: str) -> list[str]:
    found = get_text_at_path(value, path if path == "$" else tokenize_path(path))
    return [text for text in found if text]
