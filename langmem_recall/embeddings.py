"""An embedder that needs no key and no network, and names for telling embedders apart."""

from __future__ import annotations

import asyncio
import logging
import threading
from pathlib import Path
from typing import Any, cast

import numpy as np
from langchain_core.embeddings import Embeddings

from langmem_recall.deadline import loading
from langmem_recall.errors import MissingExtraError

DIMS = 256
MODEL = "l2_supercat"

LONG_CHARS = 2_000
"""Texts beyond this are embedded alone: a batch is padded to its longest text."""
MAX_CHARS = 100_000
"""A mean over more words than this does not move, but it would cost a kilobyte a word."""

_MODEL = ("model", "model_name", "model_id", "repo_id", "deployment")
_IDENTIFYING = (*_MODEL, "dimensions", "dims", "size")

_lock = threading.Lock()
_model: Any = None


class LocalEmbeddings(Embeddings):
    """WordLlama's 256 numbers a text, unit length, from weights that come with the wheel.

    A text without words gets the zero vector, which means "no evidence": it is similar to nothing.
    The model is loaded on first use, once per process.
    """

    @property
    def identity(self) -> str:
        """Names the model and its dimensions, so that stored vectors can be matched to it."""
        return f"wordllama-{MODEL}-{DIMS}"

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """One vector a text."""
        readable = [_readable(text) for text in texts]
        vectors = np.zeros((len(texts), DIMS), np.float32)
        short = [place for place, text in enumerate(readable) if 0 < len(text) <= LONG_CHARS]
        if short:
            vectors[short] = _loaded().embed([readable[place] for place in short], batch_size=32)
        for place, text in enumerate(readable):
            if len(text) > LONG_CHARS:
                vectors[place] = _loaded().embed([text])[0]
        vectors = np.nan_to_num(vectors, posinf=0.0, neginf=0.0)
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        units = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
        return cast(list[list[float]], units.tolist())

    def embed_query(self, text: str) -> list[float]:
        """The vector of one text."""
        return self.embed_documents([text])[0]

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        """One vector a text, off the event loop."""
        return await asyncio.to_thread(self.embed_documents, texts)

    async def aembed_query(self, text: str) -> list[float]:
        """The vector of one text, off the event loop."""
        return await asyncio.to_thread(self.embed_query, text)


def embedder_identity(embeddings: Embeddings) -> str:
    """A name that stays the same for the same model and changes with it."""
    identity, _ = _identify(embeddings)
    return identity


def names_model(embeddings: Embeddings) -> bool:
    """Whether the identity says which model it is, rather than only what class or function."""
    _, is_model = _identify(embeddings)
    return is_model


def _identify(embeddings: Embeddings) -> tuple[str, bool]:
    declared = getattr(embeddings, "identity", None)
    if declared and isinstance(declared, str):
        return declared, True
    kind = type(embeddings).__name__
    # The function that LangGraph has made an embedder of.
    wrapped = getattr(embeddings, "func", None) or getattr(embeddings, "afunc", None)
    if wrapped is not None:
        return f"{kind}({getattr(wrapped, '__qualname__', type(wrapped))})", False
    found = ((name, getattr(embeddings, name, None)) for name in _IDENTIFYING)
    marks = {name: mark for name, mark in found if isinstance(mark, str | int) and mark}
    listed = ", ".join(f"{name}={mark}" for name, mark in marks.items())
    return f"{kind}({listed})", not marks.keys().isdisjoint(_MODEL)


def _readable(text: str) -> str:
    """The text as the tokenizer can read it: no lone surrogates, nothing when it is blank."""
    readable = text[:MAX_CHARS].encode("utf-8", "replace").decode("utf-8")
    return readable if readable.strip() else ""


def _loaded() -> Any:
    """The model; its inference only reads, so threads share it."""
    global _model
    if _model is None:
        # Marked before the lock: waiting for another thread's load is waiting for a load.
        with loading(), _lock:
            if _model is None:
                _model = _load()
    return _model


def _load() -> Any:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        import wordllama
    except ImportError as error:
        raise MissingExtraError(
            "LocalEmbeddings needs the package wordllama, which is not installed. Run "
            'pip install "langmem-recall[local]", or pass embeddings= of your own.'
        ) from error
    finally:
        # Importing it calls logging.basicConfig: that is the application's decision.
        root.handlers[:], root.level = handlers, level
    # The weights lie in the wheel: pointing the cache there keeps it off the network.
    home = Path(wordllama.__file__).parent
    return wordllama.WordLlama.load(config=MODEL, dim=DIMS, disable_download=True, cache_dir=home)
