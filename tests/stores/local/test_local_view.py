import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.embeddings import Embeddings
from langgraph.store.base import PutOp

from langmem_recall.errors import InputError, StoreError
from langmem_recall.stores.local import tables as local_tables
from langmem_recall.stores.local import view as local_view
from langmem_recall.stores.local.store import LocalStore
from langmem_recall.stores.local.view import VectorMatrix

NS = ("users", "ann")


class Axes(Embeddings):
    """ "x", "y" and "z" are axes; a text sums those it names."""

    def embed_documents(self, texts):
        return [[float(text.count(axis)) for axis in "xyz"] for text in texts]

    def embed_query(self, text):
        return self.embed_documents([text])[0]


@pytest.fixture
def store(tmp_path):
    with LocalStore(tmp_path / "m.db", embeddings=Axes()) as opened:
        yield opened


def fill(store, **texts):
    store.batch([PutOp(NS, key, {"content": text}) for key, text in texts.items()])


def by_key(view, values):
    return {view.catalog.id(row)[1]: values[row] for row in np.flatnonzero(view.catalog.alive)}


def test_cosines_of_several_queries_at_once(store):
    fill(store, a="x", b="xy", none="-")
    view = store.shelf(NS)
    with view.lock:
        found = view.cosines([[2.0, 0.0, 0.0], [0.0, 3.0, 4.0]])
        first, second = by_key(view, found[0]), by_key(view, found[1])
        assert found.dtype == np.float32
    assert first["a"] == pytest.approx(1.0)
    assert first["b"] == pytest.approx(math.sqrt(0.5))
    # cos((0, 3, 4), (1, 1, 0)) = 3 / (5 sqrt(2))
    assert second["b"] == pytest.approx(3 / (5 * math.sqrt(2)))
    assert math.isnan(first["none"])
    assert math.isnan(second["none"])


@pytest.mark.parametrize("vector", [[0.0, 0.0, 0.0], [math.nan, 1.0, 0.0], [math.inf, 0.0, 0.0]])
def test_query_without_direction_is_no_evidence(store, vector):
    fill(store, a="x")
    view = store.shelf(NS)
    with view.lock:
        assert np.isnan(view.cosines([vector, [1.0, 0.0, 0.0]])).tolist() == [[True], [False]]


def test_query_of_other_dimensions_is_refused(store):
    fill(store, a="x")
    view = store.shelf(NS)
    with view.lock, pytest.raises(StoreError, match="3 numbers"):
        view.cosines([[1.0, 0.0]])


def test_view_without_vectors_has_no_dense_evidence(store):
    store.put(NS, "a", {"content": "x"}, index=False)
    view = store.shelf(NS)
    with view.lock:
        assert np.isnan(view.cosines([[1.0, 0.0, 0.0]])).all()
        assert np.isnan(view.similarity([0])).all()


def test_best_of_several_vectors_counts(store):
    store.put(NS, "k", {"one": "x", "two": "y", "none": "-"}, index=["none", "one", "two"])
    view = store.shelf(NS)
    with view.lock:
        found = view.cosines([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    assert found[:, 0].tolist() == pytest.approx([1.0, 1.0, 0.0])


def test_similarity_compares_memories_in_pairs(store):
    fill(store, a="x", b="xy", c="none")
    view = store.shelf(NS)
    with view.lock:
        rows = [view.catalog.row((NS, key)) for key in "abc"]
        found = view.similarity(rows)
    assert found[:2, :2].ravel().tolist() == pytest.approx([1.0, 0.5**0.5, 0.5**0.5, 1.0])
    assert np.isnan(found[2]).all()
    assert np.isnan(found[:, 2]).all()


def test_matching_knows_life_expiry_and_filter(tmp_path):
    now = [1000.0]
    with LocalStore(tmp_path / "m.db", embeddings=Axes(), clock=lambda: now[0]) as store:
        store.put(NS, "kept", {"content": "x", "n": 1})
        store.put(NS, "short", {"content": "x", "n": 1}, ttl=1)
        store.put(NS, "other", {"content": "x", "n": 2})
        store.put(NS, "deleted", {"content": "x", "n": 1})
        store.shelf(NS)
        store.delete(NS, "deleted")
        view = store.shelf(NS)
        with view.lock:
            assert set(np.flatnonzero(view.matching(None))) == {
                view.catalog.row((NS, key)) for key in ("kept", "short", "other")
            }
            now[0] += 60
            passing = view.matching({"n": 1})
            assert by_key(view, passing) == {"kept": True, "short": False, "other": False}


def test_filter_sees_what_was_written_since_it_was_last_used(store):
    fill(store, a="x")
    for number in range(3):
        store.put(NS, f"n{number}", {"content": "x", "n": number})
        view = store.shelf(NS)
        with view.lock:
            assert int(view.matching({"n": {"$gte": 0}}).sum()) == number + 1
    with view.lock, pytest.raises(InputError):
        view.matching({"n": {"$nope": 0}})


def test_memories_are_read_once_and_left_out_when_gone(store):
    fill(store, a="x", b="y")
    view = store.shelf(NS)
    with view.lock:
        rows = [view.catalog.row((NS, key)) for key in "ab"]
        store.delete(NS, "b")
        found = view.memories([*rows, rows[0]])
        assert list(found) == rows[:1]
        assert found[rows[0]] is view.memories(rows)[rows[0]]
    assert found[rows[0]].value == {"content": "x"}


def test_prefix_holds_everything_below_it(store):
    for namespace in [("a",), ("a", "b"), ("ab",)]:
        store.put(namespace, "k", {"content": "x"})
    view = store.shelf(("a",))
    with view.lock:
        assert sorted(view.catalog.ids()) == [(("a",), "k"), (("a", "b"), "k")]
    assert store.shelf(("a",)) is view


def test_dead_rows_are_cleared_away(store, monkeypatch):
    monkeypatch.setattr(local_view, "MAX_DEAD_ROWS", 4)
    fill(store, a="x", b="y")
    for number in range(30):
        store.put(NS, "a", {"content": "x" * (number + 1)})
        view = store.shelf(NS)
        with view.lock:
            assert view.catalog.size == 2
            assert view.catalog.rows <= 2 + 5
            assert by_key(view, view.cosines([[1.0, 0.0, 0.0]])[0]) == {"a": 1.0, "b": 0.0}


def test_view_loads_anew_when_the_log_no_longer_reaches_back(store, monkeypatch):
    monkeypatch.setattr(local_tables, "MAX_TOMBSTONES", 2)
    fill(store, **{f"k{number}": "x" for number in range(8)})
    store.shelf(NS)
    for number in range(6):
        store.delete(NS, f"k{number}")
    with store._file.reading() as connection:
        assert connection.execute("SELECT count(*) FROM tombstones").fetchone() == (2,)
    view = store.shelf(NS)
    with view.lock:
        assert sorted(key for _, key in view.catalog.ids()) == ["k6", "k7"]


def test_oldest_namespaces_are_let_go_and_come_back(tmp_path):
    # an empty view counts 16 kB, so that three do not fit
    with LocalStore(tmp_path / "m.db", embeddings=Axes(), cache_mb=0.04) as store:
        for user in ("a", "b", "c"):
            store.put((user,), "k", {"content": "x"})
            assert len(store.search((user,), query="x")) == 1
        assert list(store._views) == [("b",), ("c",)]
        assert store.search(("a",), query="x")[0].score == pytest.approx(1.0)
        assert list(store._views) == [("c",), ("a",)]


def test_words_threads_and_speakers_survive_a_load(tmp_path):
    value = {
        "content": "Paint the fence on Monday",
        "thread_id": "t1",
        "turn": 3,
        "speaker": "Ann",
        "supersedes": ["old"],
    }
    with LocalStore(tmp_path / "m.db", embeddings=Axes()) as store:
        store.put(NS, "old", {"content": "Paint the wall", "thread_id": "t1", "turn": 2})
        store.shelf(NS)
        store.put(NS, "new", value)
        assert _contents(store) == _contents_of_a_fresh_store(tmp_path / "m.db")
        view = store.shelf(NS)
        with view.lock:
            assert view.catalog.is_superseded((NS, "old"))
            assert not view.catalog.is_superseded((NS, "new"))
            assert set(view.catalog.speakers) == {"ann"}


def test_matrix_grows_past_its_room_and_keeps_extra_vectors_with_their_owner():
    matrix = VectorMatrix(2, room=1)
    two = np.array([[0, 5], [3, 0]], np.float32).tobytes()
    one = np.array([1, 1], np.float32).tobytes()
    matrix.extend([one])
    matrix.extend([None, two, one])
    matrix.extend([one, one])
    found = matrix.cosines(np.array([[1, 0]], np.float32))[0].tolist()
    assert [found[row] for row in (0, 3, 4, 5)] == pytest.approx([math.sqrt(0.5)] * 4)
    assert math.isnan(found[1])
    assert found[2] == pytest.approx(1.0)


keys = st.sampled_from("abcd")
steps = st.lists(
    st.tuples(keys, st.sampled_from(["x", "xy", "zz blue", "red none", None]), st.booleans()),
    max_size=25,
)


@settings(max_examples=40, deadline=None)
@given(steps)
def test_view_kept_current_equals_one_loaded_from_disk(tmp_path_factory, changes):
    path = tmp_path_factory.mktemp("view") / "m.db"
    with LocalStore(path, embeddings=Axes()) as store:
        for key, text, is_looked_at in changes:
            store.batch([PutOp(NS, key, text and {"content": text, "speaker": text[0]})])
            if is_looked_at:
                store.shelf(NS)
        assert _contents(store) == _contents_of_a_fresh_store(path)


def _contents_of_a_fresh_store(path):
    with LocalStore(path, embeddings=Axes()) as fresh:
        return _contents(fresh)


def _contents(store):
    """All a view says, by key, rounded so that summation order does not matter."""
    view = store.shelf(NS)
    with view.lock:
        catalog = view.catalog
        rows = [catalog.row(memory_id) for memory_id in sorted(catalog.ids())]
        dense = view.cosines([[1.0, 2.0, 0.0]])[0]
        terms = ["x", "blue", "paint", "fenc"]
        words = catalog.lexical.vocabulary
        bm25 = catalog.lexical.bm25(dict.fromkeys(terms, 1), catalog.lexical.scan(terms))
        speakers = {number: name for name, number in catalog.speakers.items()}
        return [
            (
                catalog.id(row),
                None if math.isnan(dense[row]) else round(float(dense[row]), 5),
                round(float(bm25[row]), 6),
                {words[term] for term in catalog.lexical.distinct_terms([row])[0]},
                speakers.get(int(catalog.speaker.values[row])),
                int(catalog.flags.values[row]),
                item.value,
            )
            for row, item in view.memories(rows).items()
        ]
