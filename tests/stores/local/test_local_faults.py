import sqlite3

import pytest
from langchain_core.embeddings import Embeddings
from langgraph.store.base import PutOp

from langmem_recall import RecallStore
from langmem_recall.errors import StoreError
from langmem_recall.stores.local import view as local_view
from langmem_recall.stores.local.store import LocalStore
from langmem_recall.stores.transfer import export_jsonl
from langmem_recall.types import UsageDelta

NS = ("users", "ann")


class Constant(Embeddings):
    identity = "constant"

    def __init__(self, dims=3):
        self.size = dims

    def embed_documents(self, texts):
        return [[1.0] * self.size for _ in texts]

    def embed_query(self, text):
        return [1.0] * self.size


class Renamed(Constant):
    identity = "renamed"


@pytest.fixture
def path(tmp_path):
    """A store with one memory in it."""
    with LocalStore(tmp_path / "m.db", embeddings=Constant()) as store:
        store.put(NS, "k", {"content": "cat"})
    return tmp_path / "m.db"


def still_there(path):
    with LocalStore(path, embeddings=Constant()) as store:
        return [(item.key, item.score) for item in store.search(NS, query="cat")]


@pytest.mark.parametrize("content", [b"not a database, but long enough" * 40, b"\x00" * 4096])
def test_file_of_another_kind_is_refused_and_left_as_it_is(tmp_path, content):
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    with pytest.raises(StoreError, match="not a LocalStore file"):
        LocalStore(path)
    assert path.read_bytes() == content
    assert [entry.name for entry in tmp_path.iterdir()] == ["notes.txt"]


def test_database_of_another_program_is_refused_and_left_as_it_is(tmp_path):
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE items (id INTEGER)")
    connection.close()
    content = path.read_bytes()
    with pytest.raises(StoreError, match=r"not a LocalStore file: another program"):
        LocalStore(path)
    assert path.read_bytes() == content


def test_damaged_file_is_refused_with_what_to_do(path):
    content = bytearray(path.read_bytes())
    content[100:3000] = b"\xff" * 2900
    path.write_bytes(content)
    with pytest.raises(StoreError, match="restore it from a copy"):
        LocalStore(path, embeddings=Constant()).search(NS, query="cat")
    assert path.read_bytes() == content


def test_newer_schema_is_refused_and_left_as_it_is(path):
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    content = path.read_bytes()
    with pytest.raises(StoreError, match=r"newer langmem-recall: schema version 99"):
        LocalStore(path)
    assert path.read_bytes() == content


def test_empty_file_becomes_a_store(tmp_path):
    path = tmp_path / "empty.db"
    path.touch()
    with LocalStore(path, embeddings=Constant()) as store:
        store.put(NS, "k", {"content": "cat"})
    assert still_there(path) == [("k", pytest.approx(1.0))]


def test_missing_folder_is_named(tmp_path):
    with pytest.raises(StoreError, match=r"nowhere.*Create its folder"):
        LocalStore(tmp_path / "nowhere" / "m.db")


def test_full_disk_rolls_the_batch_back_and_the_store_goes_on(path):
    with LocalStore(path, embeddings=Constant()) as store:
        pages = store._file._writer.execute("PRAGMA page_count").fetchone()[0]
        store._file._writer.execute(f"PRAGMA max_page_count = {pages + 2}")
        batch = [PutOp(NS, f"n{n}", {"content": f"word{n} " * 200}) for n in range(100)]
        with pytest.raises(StoreError, match=r"no room.*rolled back"):
            store.batch(batch)
        assert [item.key for item in store.search(NS, query="cat")] == ["k"]
        store._file._writer.execute("PRAGMA max_page_count = 1000000")
        store.batch(batch)
        assert len(store.search(NS, query="cat", limit=1000)) == 101
        view = store.shelf(NS)
        with view.lock:
            assert view.catalog.lexical.document_frequency("word7") == 1


def test_full_disk_loses_no_counts(path):
    with LocalStore(path) as store:
        store._file._writer.execute("PRAGMA max_page_count = 1")
        many = {(NS, f"key number {n}" * 20): UsageDelta(1, 1.0) for n in range(500)}
        with pytest.raises(StoreError, match="no room"):
            store.add_usage(many, fade_per_day=1.0)
        assert {usage.uses for usage in store.read_usage(list(many))} == {0}


def test_failure_in_mid_write_leaves_the_words_as_they_were(path, monkeypatch):
    with LocalStore(path, embeddings=Constant()) as store:
        with monkeypatch.context() as patched:
            patched.setattr("langmem_recall.stores.local.tables.encode_namespace", lambda _: None)
            with pytest.raises(StoreError, match="NOT NULL"):
                store.put(NS, "lost", {"content": "zebra stripes"})
        store.put(NS, "kept", {"content": "yellow submarine"})
        view = store.shelf(NS)
        with view.lock:
            row = view.catalog.row((NS, "kept"))
            rows = view.catalog.lexical.scan(["submarin"]).rows.tolist()
    assert row in rows
    assert still_there(path)[1][0] == "kept"


@pytest.mark.parametrize(
    "use",
    [
        lambda store: store.search(NS, query="cat"),
        lambda store: store.put(NS, "new", {"content": "dog"}),
        lambda store: store.shelf(NS).cosines([[1.0, 1.0, 1.0]]),
    ],
)
def test_other_embedder_than_stored_is_refused_when_a_vector_is_needed(path, use):
    with LocalStore(path, embeddings=Renamed()) as store:
        assert store.get(NS, "k").value == {"content": "cat"}
        assert len(store.search(NS)) == 1
        store.put(NS, "plain", {"content": "dog"}, index=False)
        with pytest.raises(StoreError, match=r"made by constant .*renamed.*reindex"):
            use(store)
        assert store.get(NS, "new") is None
    assert still_there(path) == [("k", pytest.approx(1.0)), ("plain", None)]


def test_other_dimensions_than_stored_are_refused(path):
    with LocalStore(path, embeddings=Constant(5)) as store:
        with pytest.raises(StoreError, match=r"vectors of 3 dimensions.*returns 5"):
            store.put(NS, "new", {"content": "dog"})
        with pytest.raises(StoreError, match="3 numbers"):
            store.search(NS, query="cat")
        assert store.get(NS, "new") is None
    assert still_there(path) == [("k", pytest.approx(1.0))]


def test_other_dimensions_than_declared_are_refused():
    with LocalStore(index={"embed": Constant(3), "dims": 4}) as store:
        with pytest.raises(StoreError, match="4 dimensions"):
            store.put(NS, "k", {"content": "cat"})
        assert store.get(NS, "k") is None


def test_word_index_of_another_version_is_refused_in_mid_flight(path):
    with LocalStore(path, embeddings=Constant()) as store:
        store.search(NS, query="cat")
        connection = sqlite3.connect(path)
        with connection:
            connection.execute("UPDATE meta SET value = 99 WHERE name = 'traits'")
            connection.execute("UPDATE meta SET value = value + 1 WHERE name = 'seq'")
        connection.close()
        with pytest.raises(StoreError, match="one version on one file"):
            store.put(NS, "new", {"content": "dog"})


@pytest.mark.parametrize("index", [True, "text", 7])
def test_index_that_is_no_configuration_is_refused(index):
    with pytest.raises(ValueError, match="IndexConfig"):
        LocalStore(index=index)


# --- damaged rows ---------------------------------------------------------------------------------

DAMAGED = [b"", b"not JSON", b'{"content": "cut', b'{"content": "cat"} and more', b"[1]", b"\xff{}"]


def edit(path, stored, key="bad"):
    """What a bad disk or an editor leaves in a row."""
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("UPDATE items SET value = CAST(? AS TEXT) WHERE key = ?", (stored, key))
    connection.close()


@pytest.fixture(params=DAMAGED, ids=repr)
def damaged(request, path):
    """A store in which the second of three memories cannot be read."""
    with LocalStore(path, embeddings=Constant()) as store:
        store.put(NS, "bad", {"content": "cat secret"})
        store.put(NS, "last", {"content": "Tom, a cat from Bergen"})
    edit(path, request.param)
    return path


def test_damaged_memory_is_named_when_it_is_read(damaged, call):
    with LocalStore(damaged, embeddings=Constant()) as store:
        with pytest.raises(StoreError, match=r"'bad' in \('users', 'ann'\) is damaged.*delete it"):
            call(store, "get", NS, "bad")
        assert call(store, "get", NS, "last") is not None
        with pytest.raises(StoreError, match=r"'bad'.*delete it"):
            call(RecallStore(store), "forget", NS, "bad")
        with pytest.raises(StoreError, match="'bad'"):
            export_jsonl(store, damaged.with_name("out.jsonl"))


def test_damaged_memory_is_left_out_and_reported_once(damaged, call, caplog):
    with LocalStore(damaged, embeddings=Constant()) as local:
        store = RecallStore(local)
        for _ in range(2):
            # Whole pages: what is damaged takes up no place.
            for query in ("cat", None):
                found = call(local, "search", NS, query=query, limit=2)
                assert {item.key for item in found} == {"k", "last"}
            listed = call(local, "search", NS, filter={"content": {"$ne": "dog"}})
            assert {item.key for item in listed} == {"k", "last"}
            filtered = call(local, "search", NS, query="cat", filter={"content": {"$ne": "dog"}})
            assert {item.key for item in filtered} == {"k", "last"}
            searched = call(store, "search", NS, query="cat", limit=2)
            assert {item.key for item in searched} == {"k", "last"}
            recalled = call(store, "recall", NS, "cat").memories
            assert {memory.key for memory in recalled} == {"k", "last"}
    (record,) = [one for one in caplog.records if "damaged" in one.message]
    assert "'bad'" in record.message
    assert "secret" not in caplog.text


def test_recall_leaves_a_damaged_memory_out_at_once(damaged, call):
    with LocalStore(damaged, embeddings=Constant()) as local:
        recalled = call(RecallStore(local), "recall", NS, "cat secret")
        assert {memory.key for memory in recalled.memories} == {"k", "last"}


@pytest.mark.parametrize(
    "mend",
    [
        lambda call, store: call(store, "put", NS, "bad", {"content": "cat"}),
        lambda call, store: call(store, "delete", NS, "bad"),
        lambda call, store: call(store, "forget_namespace", NS),
    ],
)
def test_damaged_memory_may_be_written_anew_or_deleted(damaged, call, mend):
    with LocalStore(damaged, embeddings=Constant()) as local:
        store = RecallStore(local)
        assert len(call(store, "search", NS, query="cat")) == 2
        mend(call, store)
        found = call(store, "get", NS, "bad")
        keys = [item.key for item in call(store, "search", NS, query="cat")]
        assert ("bad" in keys) == (found is not None)


def test_damaged_memory_does_not_keep_the_rest_from_being_embedded_anew(damaged, call):
    with LocalStore(damaged, embeddings=Renamed()) as store:
        call(store, "reindex")
        assert {item.key for item in store.search(NS, query="cat")} == {"k", "last"}
        assert call(store, "reindex") == 2


def test_damaged_memory_does_not_keep_words_from_being_derived_anew(damaged):
    connection = sqlite3.connect(damaged)
    with connection:
        connection.execute("UPDATE meta SET value = 0 WHERE name = 'traits'")
    connection.close()
    with LocalStore(damaged, embeddings=Constant()) as store:
        assert {item.key for item in store.search(NS, query="cat")} == {"k", "last"}
        assert store.shelf(NS).catalog.lexical.document_frequency("cat") == 2


def test_value_with_space_around_it_is_as_good_as_any(path):
    edit(path, b' {"content": "dog"}\n', key="k")
    with LocalStore(path, embeddings=Constant()) as store:
        assert store.get(NS, "k").value == {"content": "dog"}


def test_memories_are_found_when_those_in_memory_are_let_go(path, monkeypatch):
    monkeypatch.setattr(local_view, "MAX_MEMORIES", 0)
    with LocalStore(path, embeddings=Constant()) as store:
        store.put(NS, "new", {"content": "dog"})
        view = store.shelf(NS)
        with view.lock:
            assert [item.key for item in view.memories([0]).values()] == ["k"]
            assert [item.key for item in view.memories([0, 1]).values()] == ["k", "new"]
