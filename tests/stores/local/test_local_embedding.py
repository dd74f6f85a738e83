import hashlib
import sqlite3

import pytest
from langchain_core.embeddings import Embeddings

from langmem_recall import RecallStore
from langmem_recall.embeddings import LocalEmbeddings, names_model
from langmem_recall.errors import StoreError
from langmem_recall.stores.local.store import LocalStore

NS = ("users", "ann")
DIMS = 32


class Function:
    """A function by its seed: all have one name, and the same dimensions."""

    def __init__(self, seed, noise=0.0):
        self.seed = seed
        self.noise = noise
        self.requests = []
        self.breaks = False

    def __call__(self, texts):
        if self.breaks:
            raise ConnectionError("embedder is down")
        self.requests.append(texts)
        return [self.vector(text) for text in texts]

    def vector(self, text):
        numbers = hashlib.sha256(f"{self.seed}{text}".encode()).digest()
        return [byte - 127.5 + self.noise for byte in numbers]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "m.db"


def open_store(path, function):
    return LocalStore(path, index={"embed": function, "dims": DIMS})


def meta(path):
    connection = sqlite3.connect(path)
    found = dict(connection.execute("SELECT name, value FROM meta"))
    connection.close()
    return found


def edit_meta(path, statement):
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(statement)
    connection.close()


def fill(path, function, *texts):
    with open_store(path, function) as store:
        for text in texts:
            store.put(NS, text, {"content": text})


@pytest.mark.parametrize(
    "use",
    [
        lambda call, store: call(store, "search", NS, query="cat"),
        lambda call, store: call(store, "put", NS, "new", {"content": "dog"}),
    ],
)
def test_another_function_of_the_same_name_is_refused_until_reindexed(path, call, use):
    fill(path, Function("one"), "cat")
    with open_store(path, Function("two")) as store:
        assert call(store, "get", NS, "cat") is not None
        for _ in range(2):
            with pytest.raises(StoreError, match=r"too, but gives other vectors.*reindex"):
                use(call, store)
        assert store.get(NS, "new") is None
        assert call(store, "reindex") == 1
        use(call, store)
        assert call(store, "search", NS, query="cat")[0].score == pytest.approx(1.0)
    with (
        open_store(path, Function("one")) as store,
        pytest.raises(StoreError, match="too, but gives other vectors"),
    ):
        call(store, "search", NS, query="cat")


def test_recall_goes_by_words_with_another_function_of_the_same_name(path, call):
    fill(path, Function("one"), "my cat is called Mia")
    with open_store(path, Function("two")) as local:
        recall = call(RecallStore(local), "recall", NS, "my cat")
        assert [memory.key for memory in recall.memories] == ["my cat is called Mia"]
        assert "StoreError: The stored vectors were made by" in recall.trace.degraded[0]


def test_process_that_still_has_the_former_function_is_refused_after_a_reindex(path, call):
    fill(path, Function("one"), "cat", "dog")
    with open_store(path, Function("one")) as former, open_store(path, Function("two")) as later:
        assert former.search(NS, query="cat")[0].score == pytest.approx(1.0)
        call(later, "reindex")
        for use in (
            lambda: call(former, "search", NS, query="cat"),
            lambda: call(former, "put", NS, "new", {"content": "tea"}),
        ):
            with pytest.raises(StoreError, match="gives other vectors"):
                use()
        assert len(call(later, "search", NS, query="cat")) == 2


def test_same_function_with_other_last_digits_is_the_same(path, call):
    fill(path, Function("one"), "cat")
    with open_store(path, Function("one", noise=0.01)) as store:
        call(store, "put", NS, "new", {"content": "dog"})
        assert len(call(store, "search", NS, query="cat")) == 2


def test_fingerprint_costs_no_request_of_its_own_but_before_a_first_query(path, call):
    first, second = Function("one"), Function("one")
    with open_store(path, first) as store:
        assert first.requests == []
        call(store, "put", NS, "a", {"content": "cat"})
        call(store, "put", NS, "b", {"content": "dog"})
        call(store, "search", NS, query="cat")
    probe = first.requests[0][1]
    assert first.requests == [["cat", probe], ["dog"], ["cat"]]
    with open_store(path, second) as store:
        for _ in range(2):
            call(store, "search", NS, query="cat")
    assert second.requests == [["cat"], [probe], ["cat"]]


def test_embedder_that_names_its_model_is_asked_for_nothing_else(path):
    function = Function("one")

    class Named(Embeddings):
        model = "text-embedding-3-small"

        def embed_documents(self, texts):
            return function(texts)

        def embed_query(self, text):
            return function([text])[0]

    with LocalStore(path, embeddings=Named()) as store:
        store.put(NS, "a", {"content": "cat"})
        assert len(store.search(NS, query="cat")) == 1
    assert function.requests == [["cat"], ["cat"]]
    assert "fingerprint" not in meta(path)


@pytest.mark.parametrize(
    ("attributes", "is_named"),
    [
        ({"identity": "mine-v1"}, True),
        ({"model_name": "all-MiniLM-L6-v2"}, True),
        ({"size": 384}, False),
        ({"model": object()}, False),
        ({"func": len, "model": "x"}, False),
        ({}, False),
    ],
)
def test_what_says_enough_of_a_model(attributes, is_named):
    kind = type("Some", (LocalEmbeddings,), {"identity": None, **attributes})
    assert names_model(kind()) is is_named


def test_file_without_a_fingerprint_gets_one_with_the_next_vectors(path, call):
    fill(path, Function("one"), "cat")
    edit_meta(path, "DELETE FROM meta WHERE name = 'fingerprint'")
    with open_store(path, Function("one")) as store:
        assert call(store, "search", NS, query="cat")[0].score == pytest.approx(1.0)
        assert "fingerprint" not in meta(path)
        call(store, "put", NS, "new", {"content": "dog"})
        assert len(call(store, "search", NS, query="cat")) == 2
    with (
        open_store(path, Function("two")) as store,
        pytest.raises(StoreError, match="gives other vectors"),
    ):
        call(store, "search", NS, query="cat")


def test_embedder_that_is_down_at_first_is_measured_when_it_works(path, call):
    function = Function("one")
    function.breaks = True
    with open_store(path, function) as store:
        call(store, "put", NS, "a", {"content": "cat"})
        assert "fingerprint" not in meta(path)
        function.breaks = False
        call(store, "put", NS, "b", {"content": "dog"})
        assert len(meta(path)["fingerprint"]) == 4 * DIMS
        function.breaks = True
    with open_store(path, function) as store, pytest.raises(ConnectionError):
        call(store, "search", NS, query="cat")


def test_reindex_that_was_stopped_begins_again_for_another_function(path, call):
    fill(path, Function("one"), *(f"text {n}" for n in range(600)))

    def stop(done, of):
        if done:
            raise KeyboardInterrupt

    with open_store(path, Function("two")) as store, pytest.raises(KeyboardInterrupt):
        store.reindex(stop)
    with open_store(path, Function("three")) as store:
        assert call(store, "reindex") == 600
        assert call(store, "search", NS, query="text 7")[0].key == "text 7"
    with open_store(path, Function("four")) as store, pytest.raises(KeyboardInterrupt):
        store.reindex(stop)
    with open_store(path, Function("four")) as store:
        assert 0 < call(store, "reindex") < 600


def test_reindex_with_an_embedder_that_fails_leaves_the_vectors(path, call):
    function = Function("one")
    fill(path, function, "cat")
    with open_store(path, function) as store:
        function.breaks = True
        with pytest.raises(ConnectionError):
            call(store, "reindex")
        function.breaks = False
        function.vector = lambda _: [float("nan")] * DIMS
        with pytest.raises(StoreError, match="finite numbers"):
            call(store, "reindex")
        del function.vector
        assert call(store, "search", NS, query="cat")[0].score == pytest.approx(1.0)
