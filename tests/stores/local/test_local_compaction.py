"""Files of a LocalStore: forgotten without a byte left, compacted in use, brought up to date."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from conftest import Call, Clock
from langchain_core.embeddings import Embeddings

from langmem_recall.guard.judge import Verdict
from langmem_recall.stores.local import file as local_file
from langmem_recall.stores.local import view as local_view
from langmem_recall.stores.local.store import LocalStore
from langmem_recall.stores.recall_store import RecallStore
from langmem_recall.types import Usage, UsageDelta

ADA, BOB = ("tenants", "ada@home"), ("tenants", "bob")
SECRETS = ("Zanzibarquux", "plughwidget", "QX-48213", "frobnicated")
SYLLABLES = [one + other for one in "bcdfgh" for other in "aeiou"]
TEXT = "My Zanzibarquux holds a plughwidget under QX-48213, frobnicated twice"


class Lengths(Embeddings):
    """The same in every process, without a model to load."""

    identity = "lengths"

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [[float(len(text)), float(sum(map(ord, text)) % 97), 1.0] for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([text])[0]


def open_store(path: Path) -> LocalStore:
    return LocalStore(path, embeddings=Lengths())


def traces_of(path: Path, words: tuple[str, ...]) -> list[tuple[str, str]]:
    """Which files beside the store still hold which words, in any case."""
    return [
        (file.name, word)
        for file in path.parent.iterdir()
        for word in words
        if word.lower().encode() in file.read_bytes().lower()
    ]


def guard(text: str) -> Verdict:
    return Verdict("quarantine", ("odd",)) if "odd" in text else Verdict()


@pytest.mark.parametrize("filler", [0, 300])
def test_forgetting_a_tenant_leaves_no_byte_in_the_file(
    tmp_path: Path, call: Call, clock: Clock, filler: int
) -> None:
    path = tmp_path / "memory.db"
    local = open_store(path)
    store = RecallStore(local, guard=guard, clock=clock)
    for i in range(filler):
        local.put(BOB, str(i), {"content": f"note {i} about tomatoes"})
    call(store, "remember", ADA, TEXT, key="Xyzzykey", speaker="Grelbspeaker")
    call(store, "remember", (*ADA, "work"), f"{TEXT}, odd", key="Xyzzykey2")
    call(store, "put", ADA, "Xyzzykey3", {"content": f"{TEXT} odd again"})
    call(store, "correct", ADA, "Xyzzykey", f"{TEXT} and once more")
    call(store, "remember", BOB, "Bob keeps tomatoes", key="kept")
    call(store, "recall", ADA, "where is my Zanzibarquux?")
    call(store, "flush")
    words = (*SECRETS, "Xyzzykey", "Grelbspeaker", "ada@home")
    assert {word for _, word in traces_of(path, words)} == set(words)
    forgotten = call(store, "forget_namespace", ADA)
    assert (forgotten.count, forgotten.compacted) == (4, True)
    assert traces_of(path, words) == []
    assert call(store, "recall", BOB, "who keeps tomatoes?").memories[0].key == "kept"
    call(store, "remember", ADA, TEXT, key="new")
    assert call(store, "recall", ADA, "where is the plughwidget?").memories[0].key == "new"
    local.close()
    with open_store(path) as again:
        recall = RecallStore(again, clock=clock).recall(ADA, "what of QX-48213?")
        assert [memory.key for memory in recall.memories] == ["new"]
        assert len(again.search(BOB, limit=1_000)) == filler + 1


def test_forgetting_one_memory_and_compacting_leaves_no_byte(
    tmp_path: Path, clock: Clock, call: Call
) -> None:
    path = tmp_path / "memory.db"
    local = open_store(path)
    store = RecallStore(local, clock=clock)
    call(store, "remember", ADA, TEXT, key="Xyzzykey")
    call(store, "correct", ADA, "Xyzzykey", f"{TEXT} indeed")
    call(store, "remember", ADA, "My tomatoes are red", key="kept")
    call(store, "recall", ADA, "what of QX-48213?")
    call(store, "flush")
    assert call(store, "forget", ADA, "Xyzzykey")
    assert call(local, "compact") is True
    assert traces_of(path, (*SECRETS, "Xyzzykey")) == []
    assert [memory.key for memory in store.recall(ADA, "red tomatoes?").memories] == ["kept"]


def test_a_vector_is_gone_with_its_text(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    with open_store(path) as local:
        local.put(ADA, "k", {"content": TEXT})
        (blob,) = local._file._reader.execute("SELECT vectors FROM vectors").fetchone()
        local._file.vacuum()
        assert blob in path.read_bytes()
        local.erase(ADA)
        assert local.compact()
        assert blob not in path.read_bytes()


def test_what_has_expired_and_is_hidden_is_forgotten_too(tmp_path: Path) -> None:
    now = [1_700_000_000.0]
    path = tmp_path / "memory.db"
    ttl: Any = {"omit_expired": True}
    local = LocalStore(path, embeddings=Lengths(), ttl=ttl, clock=lambda: now[0])
    local.put(ADA, "k", {"content": TEXT}, ttl=1)
    now[0] += 3_600
    assert local.search(ADA) == []
    assert RecallStore(local).forget_namespace(ADA).count == 1
    assert traces_of(path, SECRETS) == []


def test_compacting_shrinks_the_file_and_keeps_everything_else(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    with open_store(path) as local:
        for i in range(400):
            local.put(ADA, str(i), {"content": f"note {i} " + "x" * 2_000})
        local.add_usage({(ADA, "7"): UsageDelta(2, 100.0), (BOB, "z"): UsageDelta(1, 1.0)}, 1.0)
        for i in range(10, 400):
            local.delete(ADA, str(i))
        local._file.vacuum()
        before = [item.dict() for item in local.search(ADA, query="note 3", limit=50)]
        for i in range(400, 800):
            local.put(BOB, str(i), {"content": f"other {i} " + "x" * 2_000})
        size = path.stat().st_size
        assert local.erase(BOB) == 400
        assert local.compact()
        assert path.stat().st_size < size / 5
        assert [item.dict() for item in local.search(ADA, query="note 3", limit=50)] == before
        assert local.read_usage([(ADA, "7")])[0].uses == 2
    with open_store(path) as again:
        assert [item.dict() for item in again.search(ADA, query="note 3", limit=50)] == before


def test_a_store_in_memory_is_compacted_too(call: Call) -> None:
    local = LocalStore(embeddings=Lengths())
    local.put(ADA, "k", {"content": TEXT})
    assert local.erase(("tenants",)) == 1
    assert call(local, "compact") is True
    assert local.search(()) == []


def matched(local: LocalStore, words: str) -> set[str]:
    """Keys of the memories that share a word with a cue."""
    recall = RecallStore(local).recall(ADA, words)
    candidates = [*recall.chosen, *(drop.scored for drop in recall.dropped)]
    return {one.memory.key for one in candidates if one.evidence.bm25 is not None}


def test_another_opener_goes_on_after_words_were_taken_out(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    one, other = open_store(path), open_store(path)
    for key, text in (("a", "alpha words"), ("b", TEXT)):
        one.put(ADA, key, {"content": text})
    assert matched(other, "frobnicated plughwidget") == {"b"}
    one.delete(ADA, "b")
    assert one.compact()
    # Its vocabulary still knew the words that the file no longer has.
    other.put(ADA, "c", {"content": "a frobnicated plughwidget"})
    one.put(ADA, "d", {"content": "alpha beta"})
    for local in (one, other, open_store(path)):
        assert matched(local, "frobnicated plughwidget") == {"c"}
        assert matched(local, "alpha") == {"a", "d"}


def test_compacting_while_others_write_and_read_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    stores = [open_store(path), open_store(path)]
    faults: list[BaseException] = []

    def write(which: int) -> None:
        try:
            for i in range(30):
                stores[which].put(
                    ADA, f"{which}-{i}", {"content": f"{SYLLABLES[i]}quon of {which}"}
                )
                stores[which].search(ADA, query="word", limit=5)
                stores[which].delete(ADA, f"{which}-{i - 10}")
        except BaseException as fault:
            faults.append(fault)

    threads = [threading.Thread(target=write, args=(which,)) for which in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(5):
        stores[0].compact()
    for thread in threads:
        thread.join()
    assert faults == []
    kept = {f"{which}-{i}" for which in range(2) for i in range(20, 30)}
    assert {item.key for item in stores[1].search(ADA, limit=100)} == kept
    assert matched(stores[0], f"{SYLLABLES[25]}quon") == {"0-25", "1-25"}
    assert matched(stores[1], f"{SYLLABLES[25]}quon") == {"0-25", "1-25"}
    assert matched(open_store(path), f"{SYLLABLES[25]}quon") == {"0-25", "1-25"}


def test_other_tenants_read_on_while_one_is_forgotten(tmp_path: Path) -> None:
    with open_store(tmp_path / "memory.db") as local, RecallStore(local) as store:
        for number in range(300):
            store.put(BOB, str(number), {"content": f"note {number} about tomatoes"})
        store.put(ADA, "seat", {"content": "Ada takes window seats"})
        found = list[int]()

        def read_meanwhile() -> None:
            if not found:
                # A read that had to wait for the rewriting would never end: it waits for this.
                found.append(0)
                reader = threading.Thread(
                    target=lambda: found.append(len(store.search(BOB, query="tomatoes")))
                )
                reader.start()
                reader.join(10.0)

        vacuum = local._file.vacuum

        def watched() -> bool:
            local._file._writer.set_progress_handler(read_meanwhile, 100)
            try:
                return vacuum()
            finally:
                local._file._writer.set_progress_handler(None, 0)
                found.append(-1)

        local._file.vacuum = watched  # type: ignore[method-assign]
        assert store.forget_namespace(ADA).compacted
    # Ten were found before the rewriting ended.
    assert found == [0, 10, -1]


def test_forgetting_a_tenant_makes_nobody_else_load_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "memory.db"
    with open_store(path) as local, open_store(path) as other:
        for tenant in (ADA, BOB):
            for number in range(3):
                local.put(tenant, str(number), {"content": f"note {number}"})
        for store in (local, other):
            assert [len(store.search(tenant, query="note")) for tenant in (ADA, BOB)] == [3, 3]
            assert len(store.search(ADA[:1], query="note")) == 6
        loaded, load = list[Any](), local_view._load_contents

        def counted(connection: Any, prefix: Any, vocabulary: Any) -> Any:
            loaded.append(prefix)
            return load(connection, prefix, vocabulary)

        monkeypatch.setattr(local_view, "_load_contents", counted)
        RecallStore(local).forget_namespace(ADA)
        local.put(BOB, "new", {"content": "note 4"})
        for store in (local, other):
            assert len(store.search(BOB, query="note")) == 4
        assert loaded == []
        for store in (local, other):
            assert store.search(ADA, query="note") == []
            assert len(store.search(ADA[:1], query="note")) == 4
        assert sorted(loaded) == [ADA[:1], ADA[:1], ADA, ADA]


def test_a_reader_in_the_way_is_told_and_compacting_again_finishes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_file, "BUSY_SECONDS", 0.05)
    path = tmp_path / "memory.db"
    local = open_store(path)
    local.put(ADA, "k", {"content": TEXT})
    reader = sqlite3.connect(path)
    reader.execute("BEGIN")
    assert reader.execute("SELECT count(*) FROM items").fetchone() == (1,)
    forgotten = RecallStore(local).forget_namespace(ADA)
    assert (forgotten.count, forgotten.compacted) == (1, False)
    reader.rollback()
    reader.close()
    assert local.compact() is True
    assert traces_of(path, SECRETS) == []


# --- older files ------------------------------------------------------------------------------


def make_old(path: Path) -> None:
    """Take a file back to the first schema: a usage table without merits."""
    connection = sqlite3.connect(path)
    connection.execute("ALTER TABLE usage DROP COLUMN merit")
    connection.execute("PRAGMA user_version = 1")
    connection.commit()
    connection.close()


def test_an_older_file_keeps_its_counts_and_learns_merits(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    with open_store(path) as local:
        local.put(ADA, "k", {"content": "cat"})
        local.add_usage(
            {(ADA, "k"): UsageDelta(3, 100.0, 50.0), (BOB, "z"): UsageDelta(1, 7.0)}, 0.99
        )
    make_old(path)
    with open_store(path) as local:
        assert local.read_usage([(ADA, "k"), (BOB, "z"), (BOB, "no")]) == [
            Usage(3, 3.0, 100.0, 50.0),
            Usage(1, 1.0, 7.0),
            Usage(),
        ]
        local.add_usage({(ADA, "k"): UsageDelta(0, merit=2), (BOB, "z"): UsageDelta(1, 9.0)}, 1.0)
        assert [item.key for item in local.search(ADA, query="cat")] == ["k"]
    with open_store(path) as local:
        assert local.read_usage([(ADA, "k")]) == [Usage(3, 3.0, 100.0, 50.0, 2)]
        assert local._file._reader.execute("PRAGMA user_version").fetchone() == (2,)


def test_several_processes_may_open_an_older_file_at_once(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    with open_store(path) as local:
        local.add_usage({(ADA, "k"): UsageDelta(3, 100.0)}, 1.0)
    make_old(path)
    code = (
        "import sys; from langmem_recall.stores.local.store import LocalStore; "
        "from langmem_recall.types import UsageDelta; "
        "store = LocalStore(sys.argv[1], index=False); sys.stdin.readline(); "
        "store.add_usage({(('tenants', 'ada@home'), 'k'): UsageDelta(1, 200.0, merit=1)}, 1.0)"
    )
    openers = [
        subprocess.Popen([sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE)
        for _ in range(3)
    ]
    for opener in openers:
        opener.communicate(b"go\n", timeout=60)
    assert [opener.returncode for opener in openers] == [0, 0, 0]
    with open_store(path) as local:
        usage = local.read_usage([(ADA, "k")])[0]
    assert (usage.uses, usage.merit) == (6, 3)


def test_a_migration_that_fails_leaves_the_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "memory.db"
    with open_store(path) as local:
        local.add_usage({(ADA, "k"): UsageDelta(3, 100.0)}, 1.0)
    make_old(path)
    monkeypatch.setattr(local_file, "_MIGRATIONS", {1: "ALTER TABLE nowhere ADD COLUMN x"})
    with pytest.raises(local_file.StoreError, match="no such table"):
        open_store(path)
    monkeypatch.undo()
    with open_store(path) as local:
        assert local.read_usage([(ADA, "k")])[0].uses == 3
