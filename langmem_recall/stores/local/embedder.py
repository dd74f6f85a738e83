"""When a LocalStore embeds what, and what it does with an embedder that fails."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from http.client import BAD_REQUEST
from typing import Any, Literal

import numpy as np
from langchain_core.embeddings import Embeddings
from langgraph.store.base import IndexConfig, ensure_embeddings, get_text_at_path, tokenize_path
from numpy.typing import NDArray

from langmem_recall.embeddings import LocalEmbeddings, embedder_identity, names_model
from langmem_recall.errors import InputError, RecallError, StoreError, described
from langmem_recall.memory.value import searched_text, windows_of
from langmem_recall.models import named_embeddings
from langmem_recall.types import Memory

logger = logging.getLogger(__name__)

Floats = NDArray[np.float32]

BATCH = 256
"""Texts per call of the embedder."""

IndexSetting = Literal[False] | Sequence[str] | None
"""What `put(index=...)` was given: the store's default, nothing, or paths."""

_PROBE = "a plain sentence about nothing in particular"
SAME_COSINE = 0.98
"""Vectors of one text that are closer than this are one embedder's: floats are not exact."""


class Embedder:
    """A LangChain embedder whose answers are checked before they are believed."""

    def __init__(self, embeddings: Embeddings | str | None, index: IndexConfig | None) -> None:
        if index is not None and not isinstance(index, Mapping):
            raise InputError(
                f"index must be a LangGraph IndexConfig, False or None, got {index!r:.80}. "
                'Write index={"embed": ..., "dims": ...}.'
            )
        self.config: dict[str, Any] = dict(index or {})
        source = embeddings if embeddings is not None else self.config.get("embed")
        if isinstance(source, str):
            source = named_embeddings(source)
        self.embeddings = LocalEmbeddings() if source is None else ensure_embeddings(source)
        self.config["embed"] = self.embeddings
        if isinstance(self.embeddings, LocalEmbeddings):
            self.config.setdefault("dims", self.embeddings.dims)
        self.identity = embedder_identity(self.embeddings)
        self.fingerprint: bytes | None = None
        """The vector of one fixed text, for an embedder whose identity does not name its model."""
        self._is_named = names_model(self.embeddings)
        self._declared_dims: int | None = self.config.get("dims")
        # "text_fields" is how SqliteStore spells it.
        self._fields = self.config.get("fields") or self.config.get("text_fields")

    def texts(self, memory: Memory, index: IndexSetting) -> list[str]:
        """What of a memory is embedded, each by itself: text with phrasings, or what paths lead to.

        Of a long text its pieces too; the nearest counts.
        """
        if index is False:
            return []
        fields = self._fields if index is None else index
        if fields is None:
            text = searched_text(memory)
            return [text, *windows_of(text)]
        paths = [fields] if isinstance(fields, str) else fields
        steps = (path if path == "$" else tokenize_path(path) for path in paths)
        return [text for step in steps for text in get_text_at_path(memory.value, step) if text]

    def documents(
        self, groups: Sequence[Sequence[str]], meta: Mapping[str, Any]
    ) -> list[bytes | None]:
        """The float32 vectors of each group of texts, joined; None where the embedder failed."""
        self.check(meta)
        dims = meta.get("dims") or self._declared_dims
        distinct = list(dict.fromkeys(text for texts in groups for text in texts))
        vectors: dict[str, bytes] = {}
        for start in range(0, len(distinct), BATCH):
            batch = distinct[start : start + BATCH]
            if self._lacks_fingerprint:
                # Along with what is embedded anyway: no request of its own.
                batch = list(dict.fromkeys([*batch, _PROBE]))
            arrays = self._try(batch)
            sizes = {array.size for array in arrays.values()}
            if len(sizes) == 1:
                dims = dims or min(sizes)
                if sizes != {dims}:
                    # Tells an embedder of other dimensions from one that stumbled over a text.
                    probed = self._try([_PROBE]).get(_PROBE)
                    self._check_dims(None if probed is None else probed.size, dims)
            arrays = {text: array for text, array in arrays.items() if array.size == dims}
            vectors.update((text, array.tobytes()) for text, array in arrays.items())
            if self._lacks_fingerprint:
                self.fingerprint = vectors.get(_PROBE)
        return [
            b"".join(vectors[text] for text in texts) if vectors.keys() >= set(texts) else None
            for texts in groups
        ]

    def measure(self) -> None:
        """Ask for one vector, the fingerprint; the embedder's own error where it fails."""
        (vector,) = self.call("documents", [_PROBE])
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
        self._check_dims(self._declared_dims, meta.get("dims"))
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
        if stored is None or own is None or stored == own:
            return True
        if len(stored) != len(own):
            return False
        units = normalised(np.stack([np.frombuffer(blob, np.float32) for blob in (stored, own)]))
        return float(units[0] @ units[1]) >= SAME_COSINE

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

    def _try(self, texts: list[str]) -> dict[str, Floats]:
        """Vectors by text; none where the embedder fails, which the log then says."""
        try:
            vectors = list(self.call("documents", texts))
        except RecallError:
            raise
        except Exception as error:
            if len(texts) > 1 and getattr(error, "status_code", None) == BAD_REQUEST:
                # One text that is refused, for its length say, must not cost the others theirs.
                middle = len(texts) // 2
                return self._try(texts[:middle]) | self._try(texts[middle:])
            problem = described(error)
            logger.warning("The embedder failed; %d texts wait for it: %s", len(texts), problem)
            return {}
        if len(vectors) != len(texts):
            logger.warning("The embedder gave %d vectors for %d texts.", len(vectors), len(texts))
            return {}
        arrays = {text: _as_array(vector) for text, vector in zip(texts, vectors, strict=True)}
        return {text: array for text, array in arrays.items() if array is not None}

    def call(self, kind: Literal["query", "documents"], argument: Any) -> Any:
        """What the embedder answers; its own error where it fails."""
        embeddings = self.embeddings
        if hasattr(embeddings, "afunc") and not hasattr(embeddings, "func"):
            # LangGraph's wrapper of an async function cannot be called from sync code.
            return asyncio.run(getattr(embeddings, f"aembed_{kind}")(argument))
        return getattr(embeddings, f"embed_{kind}")(argument)


def _as_array(vector: Any) -> Floats | None:
    """A float32 vector, or None for anything that is not one."""
    try:
        array = np.asarray(vector, np.float32)
    except (TypeError, ValueError):
        return None
    return array if array.ndim == 1 and array.size and np.isfinite(array).all() else None


def normalised(vectors: Floats) -> Floats:
    """Rows of unit length; rows that are zero or not finite become zero."""
    with np.errstate(over="ignore", invalid="ignore"):
        lengths = np.sqrt((vectors * vectors).sum(axis=1, keepdims=True))
    usable = (lengths > 0) & (lengths < np.inf)
    units: Floats = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=usable)
    return units
