"""Embedders that need no key, and names for telling embedders apart."""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, cast
from zlib import crc32

import numpy as np
from langchain_core.embeddings import Embeddings
from numpy.typing import NDArray

from langmem_recall.deadline import loading
from langmem_recall.errors import ConfigurationError, InputError, MissingExtraError

COMMON = 30.0
"""Of WordLlama's pieces of words, ordered by how common they are, the one that counts half: "of",
"is" and the like say little of what a text is about."""
MAX_CHARS = 100_000
"""A mean over more words than this does not move, but it would cost a kilobyte a word."""

_MODEL = ("model", "model_name", "model_id", "repo_id", "deployment")
_IDENTIFYING = (*_MODEL, "dimensions", "dims", "size")

_ALIKE = frozenset(
    {"OpenAIEmbeddings", "AzureOpenAIEmbeddings", "OllamaEmbeddings", "MistralAIEmbeddings"}
)

_BYTE = re.compile(r"<0x..>")
_FILES = (
    "model.onnx, tokenizer.json, tokenizer_config.json, config.json and special_tokens_map.json"
)

Encode = Callable[[list[str]], NDArray[np.float32]]
"""Vectors, a row a text, of texts that are not blank."""

_lock = threading.Lock()
_loaded: dict[tuple[str, str | None], Encode] = {}
"""By model and folder; inference only reads, so threads share it."""


class LocalEmbeddings(Embeddings):
    """Vectors of unit length, made on this machine by a model that is loaded on first use.

    A text without words gets the zero vector, which means "no evidence": it is similar to nothing.

    Args:
        model: "wordllama" (256 numbers, weights in its wheel, nothing is downloaded) or "minilm"
            (all-MiniLM-L6-v2, 384 numbers, finds other words for the same thing far better; the
            extra `minilm`, which downloads the weights once).
        path: A folder with MiniLM's files, for machines that cannot download them.
    """

    def __init__(
        self,
        model: str = "wordllama",
        *,
        path: str | os.PathLike[str] | None = None,
    ) -> None:
        if model not in _MODELS:
            raise InputError(
                f"LocalEmbeddings knows the models {' and '.join(_MODELS)}, got {model!r:.80}. "
                "Name one of them, or pass LangChain embeddings of your own to the store."
            )
        if path is not None and model != "minilm":
            raise InputError(
                f"path= is for minilm, got it for {model}, whose weights come with its wheel. "
                'Write LocalEmbeddings("minilm", path=...) or leave it out.'
            )
        # Not as `model`: a subclass without an identity would seem to name one.
        self._name, self._path = model, None if path is None else os.fspath(path)

    @property
    def identity(self) -> str:
        """Names the model and its dimensions, so that stored vectors can be matched to it."""
        return f"{_MODELS[self._name].name}-{_map_mark(self._name)}-{self.dims}"

    @property
    def dims(self) -> int:
        """How many numbers a vector has."""
        return _MODELS[self._name].dims

    @property
    def need(self) -> tuple[float, ...]:
        """What tells cues for memories from others in this space: `NullDistribution.need`."""
        return tuple(read_adapters()[f"{self._name}_need"].tolist())

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """One vector a text."""
        readable = [_readable(text) for text in texts]
        vectors = np.zeros((len(texts), self.dims), np.float32)
        places = [place for place, text in enumerate(readable) if text]
        if places:
            vectors[places] = self.encode([readable[place] for place in places])
        units = _units(np.nan_to_num(vectors, posinf=0.0, neginf=0.0))
        if places:
            adapters = read_adapters()
            directions, gains = adapters[self._name], adapters[f"{self._name}_gains"]
            units = _units(units + (units @ directions * gains) @ directions.T)
        return cast(list[list[float]], units.tolist())

    def embed_query(self, text: str) -> list[float]:
        """The vector of one text."""
        return self.embed_documents([text])[0]

    def encode(self, texts: list[str]) -> NDArray[np.float32]:
        """The model's own vectors of texts that are not blank, a row each."""
        key = self._name, self._path
        if key not in _loaded:
            # Marked before the lock: waiting for another thread's load is waiting for a load.
            with loading(), _lock:
                if key not in _loaded:
                    _loaded[key] = _MODELS[self._name].load(self._path)
        return _loaded[key](texts)


@cache
def read_adapters() -> dict[str, NDArray[Any]]:
    """What benchmarks/adapters.py learned from notes and cues for them in other words.

    A model says how alike two texts are, recall asks whether the one matters for the other: some
    directions of a model's space, and some of WordLlama's pieces, tell more about that.
    """
    with np.load(Path(__file__).with_name("adapters.npz")) as file:
        adapters = dict(file)
    for model in _MODELS:
        directions = adapters[model].astype(np.float32)
        adapters[model] = directions / np.linalg.norm(directions, axis=0)
    return adapters


@cache
def _map_mark(model: str) -> str:
    """What changes when the map of a model is learned again: then vectors of before do not fit."""
    return f"{crc32(read_adapters()[f'{model}_gains'].tobytes()):08x}"


def _units(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.where(lengths > 0, lengths, 1.0), np.float32)


def embedder_identity(embeddings: Embeddings) -> str:
    """A name that stays the same for the same model and changes with it."""
    identity, _ = _identify(embeddings)
    return identity


def names_model(embeddings: Embeddings) -> bool:
    """Whether the identity says which model it is, rather than only what class or function."""
    _, is_model = _identify(embeddings)
    return is_model


def embeds_alike(embeddings: Embeddings | None) -> bool:
    """Whether a query's vector is that of the same text as a document: several go in one request.

    Known of these classes; of any other it is not assumed, because many models are asked in another
    way than they are told.
    """
    return any(base.__name__ in _ALIKE for base in type(embeddings).__mro__)


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


def read_wordllama() -> tuple[Any, NDArray[np.float32]]:
    """WordLlama's tokenizer, and the vectors of its pieces of words by how common they are."""
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
    model = wordllama.WordLlama.load(
        dim=_MODELS["wordllama"].dims,
        disable_download=True,
        cache_dir=Path(wordllama.__file__).parent,
    )
    tokenizer = model.tokenizer
    tokenizer.no_padding()
    pieces = [tokenizer.id_to_token(place) or "" for place in range(len(model.embedding))]
    # Bytes, which stand for rare characters, come before the first piece that is ordered by use.
    first = 1 + max(place for place, piece in enumerate(pieces) if _BYTE.fullmatch(piece))
    ranks = np.arange(1.0, len(pieces) - first + 1)
    weights = np.concatenate([np.ones(first), ranks / (ranks + COMMON)])
    weights *= [any(map(str.isalnum, piece)) for piece in pieces]
    return tokenizer, (model.embedding * weights[:, None]).astype(np.float32)


def _load_wordllama(path: str | None) -> Encode:
    tokenizer, table = read_wordllama()
    table *= np.exp(read_adapters()["wordllama_pieces"] / np.float32(64))[:, None]

    def encode(texts: list[str]) -> NDArray[np.float32]:
        encodings = tokenizer.encode_batch(texts, add_special_tokens=False)
        return np.stack([table[encoding.ids].sum(axis=0) for encoding in encodings])

    return encode


def _load_minilm(path: str | None) -> Encode:
    try:
        from fastembed import TextEmbedding
    except ImportError as error:
        raise MissingExtraError(
            'LocalEmbeddings("minilm") needs the package fastembed, which is not installed. Run '
            'pip install "langmem-recall[minilm]", or take LocalEmbeddings(), which needs none.'
        ) from error
    try:
        model: Any = TextEmbedding(
            f"sentence-transformers/{_MODELS['minilm'].name}", specific_model_path=path
        )
        (vector,) = model.embed(["a text"])
    except Exception as error:
        reason = str(error).strip().rstrip(".")
        if path is not None:
            raise ConfigurationError(
                f"MiniLM cannot be loaded from the folder {path}: {reason}. It must have "
                f"all-MiniLM-L6-v2 as {_FILES}."
            ) from error
        # Not an error of ours: like any embedder that is out of reach, it is asked again later.
        raise ConnectionError(
            f"MiniLM could not be downloaded or loaded: {reason}. Try again with access to "
            f'huggingface.co, or pass LocalEmbeddings("minilm", path=...) a folder with {_FILES}.'
        ) from error
    if vector.size != _MODELS["minilm"].dims:
        raise ConfigurationError(
            f"{path} holds another model than all-MiniLM-L6-v2: it gives {vector.size} numbers a "
            f"text instead of {_MODELS['minilm'].dims}. Pass the folder of that model."
        )
    # One text at a time: with quantised weights a vector would depend on the texts beside it.
    return lambda texts: np.array(list(model.embed(texts, batch_size=1)), np.float32)


class _Model(NamedTuple):
    name: str
    dims: int
    load: Callable[[str | None], Encode]


_MODELS = {
    "wordllama": _Model("wordllama-l2_supercat", 256, _load_wordllama),
    "minilm": _Model("all-MiniLM-L6-v2", 384, _load_minilm),
}
