import io
import json

import pytest
from langchain_core.embeddings import Embeddings

from langmem_recall.errors import InputError, StoreError
from langmem_recall.flows.calibrations import CALIBRATION
from langmem_recall.guard.judge import Verdict, allow_all
from langmem_recall.stores.local.store import LocalStore
from langmem_recall.stores.recall_store import SECRET, RecallStore
from langmem_recall.stores.transfer import export_jsonl, import_jsonl

ANN, BOB = ("users", "ann"), ("users", "bob")


class Axes(Embeddings):
    identity = "axes"

    def __init__(self):
        self.embedded = []

    def embed_documents(self, texts):
        self.embedded += texts
        return [[float(text.count(axis)) for axis in "xyz"] for text in texts]

    def embed_query(self, text):
        return [float(text.count(axis)) for axis in "xyz"]


class OtherAxes(Axes):
    identity = "other axes"


@pytest.fixture
def now():
    return [1_700_000_000.123456]


@pytest.fixture
def store(now):
    with LocalStore(embeddings=Axes(), clock=lambda: now[0]) as opened:
        opened.put(BOB, "b", {"content": "y", "tags": ["ü", None, 1.5]})
        opened.put(ANN, "z", {"content": "x"}, index=False)
        opened.put(ANN, "a", {"title": "x", "body": "y"}, index=["title", "body"], ttl=30)
        now[0] += 1
        opened.put(BOB, "b", {"content": "yy", "tags": ["ü", None, 1.5]})
        yield opened


def exported(store, **how):
    target = io.StringIO()
    count = export_jsonl(store, target, **how)
    return count, target.getvalue()


def test_export_is_sorted_readable_and_one_memory_a_line(store):
    count, text = exported(store)
    told = [json.loads(line) for line in text.splitlines()]
    assert count == 3
    assert [(one["namespace"][-1], one["key"]) for one in told] == [
        ("ann", "a"),
        ("ann", "z"),
        ("bob", "b"),
    ]
    assert text.splitlines()[1] == (
        '{"created_at": "2023-11-14T22:13:20.123456+00:00", "index": false, "key": "z", '
        '"namespace": ["users", "ann"], "updated_at": "2023-11-14T22:13:20.123456+00:00", '
        '"value": {"content": "x"}}'
    )
    assert '"ü"' in text


def test_labels_sort_as_labels(store):
    store.put(("users", "ann b"), "k", {"content": "x"})
    names = [json.loads(line)["namespace"][1] for line in exported(store)[1].splitlines()]
    assert names == ["ann", "ann", "ann b", "bob"]


def test_export_of_a_namespace_holds_what_lies_at_or_below_it(store):
    assert exported(store, namespace=ANN)[0] == 2
    assert exported(store, namespace=("users",))[0] == 3
    assert exported(store, namespace=("user",))[0] == 0


@pytest.mark.parametrize("vectors", [True, False])
def test_import_brings_everything_back(store, vectors, tmp_path):
    path = tmp_path / "export.jsonl"
    assert export_jsonl(store, path, vectors=vectors) == 3
    with LocalStore(tmp_path / "copy.db", embeddings=Axes()) as copy:
        assert import_jsonl(copy, str(path)) == 3
        assert copy.embeddings.embedded == ([] if vectors else ["x", "y", "yy"])
        assert exported(copy, vectors=True) == exported(store, vectors=True)
        assert copy.search((), query="x") == store.search((), query="x")
        assert [item.score for item in copy.search(ANN, query="x")] == [
            item.score for item in store.search(ANN, query="x")
        ]
        assert copy.get(BOB, "b").created_at < copy.get(BOB, "b").updated_at


def test_imported_time_to_live_goes_on(store, now):
    text = exported(store)[1]
    with LocalStore(embeddings=Axes(), clock=lambda: now[0]) as copy:
        import_jsonl(copy, io.StringIO(text))
        now[0] += 30 * 60
        assert copy.sweep_ttl() == 1
        assert copy.get(ANN, "a") is None


def test_import_replaces_memories_of_the_same_name(store):
    text = exported(store)[1]
    store.put(BOB, "b", {"content": "changed"})
    store.put(BOB, "more", {"content": "stays"})
    assert import_jsonl(store, io.StringIO(text)) == 3
    assert store.get(BOB, "b").value["content"] == "yy"
    assert store.get(BOB, "more") is not None
    assert exported(store, namespace=ANN)[0] == 2


def test_vectors_of_another_embedder_are_refused_before_anything_is_written(store):
    text = exported(store, vectors=True)[1]
    with LocalStore(embeddings=OtherAxes()) as copy:
        with pytest.raises(StoreError, match=r"vectors of axes \(3 dimensions\).*other axes"):
            import_jsonl(copy, io.StringIO(text))
        assert copy.list_namespaces() == []
        assert import_jsonl(copy, io.StringIO(exported(store)[1])) == 3


def test_store_without_embedder_refuses_vectors(store):
    with LocalStore(index=False) as copy, pytest.raises(StoreError, match="None"):
        import_jsonl(copy, io.StringIO(exported(store, vectors=True)[1]))


def test_vectors_of_other_fields_are_made_anew(store):
    text = exported(store, namespace=BOB, vectors=True)[1]
    with LocalStore(index={"embed": Axes(), "fields": ["content", "tags[0]"]}) as copy:
        import_jsonl(copy, io.StringIO(text))
        assert copy.embeddings.embedded == ["yy", "ü"]


GOOD = (
    '{"namespace": ["a"], "key": "k", "value": {"content": "x"}, '
    '"created_at": "2026-01-01T00:00:00+00:00", "updated_at": "2026-01-01T00:00:00+00:00"}'
)


@pytest.mark.parametrize(
    "line",
    [
        "{broken",
        "[1, 2]",
        "{}{}",
        '{"key": "no namespace"}',
        GOOD.replace('["a"]', '["a.b"]'),
        GOOD.replace('["a"]', "7"),
        GOOD.replace('"k"', "7"),
        GOOD.replace('{"content": "x"}', '"text"'),
        GOOD.replace("2026-01-01T00:00:00+00:00", "yesterday"),
        GOOD.replace('"key"', '"ttl_minutes": -1, "key"'),
    ],
)
def test_malformed_line_is_reported_by_number_and_nothing_comes_in(line):
    with LocalStore(embeddings=Axes()) as copy:
        with pytest.raises(InputError, match="Line 3"):
            import_jsonl(copy, io.StringIO("\n".join([GOOD, "", line])))
        assert copy.list_namespaces() == []


@pytest.mark.parametrize("vectors", ["AAAA", "not base64!", ""])
def test_malformed_vectors_are_reported_by_line(store, vectors):
    header, *lines = exported(store, vectors=True)[1].splitlines()
    told = json.loads(lines[0]) | {"vectors": vectors}
    with LocalStore(embeddings=Axes()) as copy, pytest.raises(InputError, match="Line 2"):
        import_jsonl(copy, io.StringIO("\n".join([header, json.dumps(told)])))


def test_export_of_a_newer_version_is_refused(store):
    header = json.dumps({"format": "langmem-recall", "version": 9})
    with pytest.raises(StoreError, match="version 9"):
        import_jsonl(store, io.StringIO(header))


def test_empty_store_exports_and_imports_nothing():
    with LocalStore(embeddings=Axes()) as empty:
        count, text = exported(empty, vectors=True)
        assert count == 0
        assert import_jsonl(empty, io.StringIO(text)) == 0


# --- the guard ------------------------------------------------------------------------------------


def odd(text):
    return Verdict("reject", ("oddness",)) if "odd" in text else Verdict()


def test_what_the_guard_does_not_allow_comes_in_quarantined(now):
    moment = "2023-11-14T22:13:20+00:00"
    lines = [
        {"content": "x odd", "env": "prod"},
        {"content": "x fine"},
        {"content": "x odd history", "status": "superseded", "superseded_at": moment},
        {"content": "x", "more": {"lc": 1, "type": "constructor"}},
    ]
    told = "".join(
        json.dumps(
            {
                "namespace": list(ANN),
                "key": str(number),
                "value": value,
                "created_at": moment,
                "updated_at": moment,
            }
        )
        + "\n"
        for number, value in enumerate(lines)
    )
    with LocalStore(embeddings=Axes()) as copy:
        assert import_jsonl(copy, io.StringIO(told), guard=odd) == 4
        assert [copy.get(ANN, str(number)).value for number in range(4)] == lines
        store = RecallStore(copy, guard=odd)
        first, last = store.quarantined(ANN)
        assert (first.key, first.value["quarantine"]) == ("0", {"reasons": ["oddness"]})
        assert (last.key, last.value["quarantine"]) == ("3", {"reasons": ["serialised object"]})
        assert [item.key for item in store.search(ANN)] == ["1"]
        assert store.approve(ANN, "0").status == "active"
        assert {item.key for item in store.search(ANN)} == {"0", "1"}
    with LocalStore(embeddings=Axes()) as copy:
        import_jsonl(copy, io.StringIO(told), guard=allow_all)
        assert [copy.get(ANN, str(number)).value for number in range(4)] == lines


def test_what_belongs_to_the_store_alone_stays_there(store):
    whole = exported(store)
    for home in (SECRET, CALIBRATION):
        store.put(home, "own", {"hex": "00"}, index=False)
    assert exported(store) == whole
