import asyncio
import builtins
import logging
import threading

import numpy as np
import pytest
from langgraph.store.base import ensure_embeddings

from langmem_recall import embeddings as module
from langmem_recall.embeddings import DIMS, LocalEmbeddings, embedder_identity
from langmem_recall.errors import MissingExtraError


def test_vectors_have_unit_length_and_256_dimensions():
    vectors = np.array(LocalEmbeddings().embed_documents(["green tea", "the cat sat", "x" * 5000]))
    assert vectors.shape == (3, 256)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx([1.0, 1.0, 1.0], abs=1e-5)


def test_query_and_document_of_the_same_text_are_alike():
    local = LocalEmbeddings()
    assert local.embed_query("green tea") == local.embed_documents(["coffee", "green tea"])[1]


@pytest.mark.parametrize("text", ["", "   ", "\n\t"])
def test_text_without_words_gets_the_zero_vector(text):
    assert LocalEmbeddings().embed_documents(["tea", text])[1] == [0.0] * DIMS


def test_no_texts_give_no_vectors():
    assert LocalEmbeddings().embed_documents([]) == []


def test_lone_surrogates_are_embedded_instead_of_raising():
    assert np.isfinite(LocalEmbeddings().embed_query("tea \ud800 cup")).all()


def test_related_texts_are_closer_than_unrelated_ones():
    cat, kitten, tax = np.array(
        LocalEmbeddings().embed_documents(["a cat", "a small kitten", "income tax law"])
    )
    assert cat @ kitten > cat @ tax + 0.2


def test_async_gives_the_same_vectors():
    local = LocalEmbeddings()

    async def both():
        return await local.aembed_query("tea"), (await local.aembed_documents(["tea"]))[0]

    query, document = asyncio.run(both())
    assert query == document == local.embed_query("tea")


def test_threads_share_one_model_and_agree(monkeypatch):
    loads = []
    load = module._load
    monkeypatch.setattr(module, "_model", None)
    monkeypatch.setattr(module, "_load", lambda: loads.append(1) or load())
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(LocalEmbeddings().embed_query("tea")))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(loads) == 1
    assert all(vector == found[0] for vector in found)


def test_missing_extra_names_the_pip_command(monkeypatch):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name == "wordllama":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(module, "_model", None)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtraError, match=r'pip install "langmem-recall\[local\]"'):
        LocalEmbeddings().embed_query("tea")


def test_loading_leaves_the_root_logger_alone(monkeypatch):
    before = logging.getLogger().handlers[:], logging.getLogger().level
    monkeypatch.setattr(module, "_model", None)
    LocalEmbeddings().embed_query("tea")
    assert (logging.getLogger().handlers[:], logging.getLogger().level) == before


class Named:
    identity = "acme-7"


class Modelled:
    model = "text-embedding-3-small"
    dimensions = 512
    api_key = "secret"


def embed_by_hand(texts):
    return [[1.0] for _ in texts]


@pytest.mark.parametrize(
    ("embeddings", "identity"),
    [
        (LocalEmbeddings(), "wordllama-l2_supercat-256"),
        (Named(), "acme-7"),
        (Modelled(), "Modelled(model=text-embedding-3-small, dimensions=512)"),
        (ensure_embeddings(embed_by_hand), "EmbeddingsLambda(embed_by_hand)"),
    ],
)
def test_identity_names_the_model_and_nothing_else(embeddings, identity):
    assert embedder_identity(embeddings) == identity
