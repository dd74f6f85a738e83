import os
import sqlite3
import stat
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest
from langchain_core.embeddings import Embeddings
from langgraph.store.base import PutOp

from langmem_recall import RecallStore
from langmem_recall.errors import InputError, StoreError
from langmem_recall.stores.local.store import LocalStore
from langmem_recall.stores.local.writer import Writer
from langmem_recall.stores.transfer import export_jsonl
from langmem_recall.types import UsageDelta

NS = ("users", "ann")
ALL_MAY_READ = 0o022
NOBODY = 65534

on_posix = pytest.mark.skipif(os.name != "posix", reason="Windows has no such modes")


class Constant(Embeddings):
    identity = "constant"

    def embed_documents(self, texts):
        return [[1.0, 2.0] for _ in texts]

    def embed_query(self, text):
        return [1.0, 2.0]


def open_store(path, **kwargs):
    return LocalStore(path, embeddings=Constant(), **kwargs)


@pytest.fixture
def path(tmp_path):
    """A store with one memory in it."""
    with open_store(tmp_path / "m.db") as store:
        store.put(NS, "k", {"content": "my cat is called Mia"})
    return tmp_path / "m.db"


# --- modes ----------------------------------------------------------------------------------------


@contextmanager
def umask(mask):
    former = os.umask(mask)
    try:
        yield
    finally:
        os.umask(former)


def modes(folder):
    return {file.name: stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()}


@on_posix
@pytest.mark.parametrize("mask", [0, ALL_MAY_READ, 0o077])
def test_every_file_is_its_owners_alone_whatever_the_umask(tmp_path, call, mask):
    with umask(mask), open_store(tmp_path / "m.db") as store:
        store.put(NS, "k", {"content": "cat"})
        call(store, "backup", tmp_path / "copy.db")
        export_jsonl(store, tmp_path / "out.jsonl")
        assert modes(tmp_path) == dict.fromkeys(
            ("m.db", "m.db-wal", "m.db-shm", "copy.db", "out.jsonl"), 0o600
        )


@on_posix
def test_file_that_exists_keeps_its_mode(tmp_path):
    for name in ("m.db", "out.jsonl"):
        (tmp_path / name).touch()
        (tmp_path / name).chmod(0o640)
    with open_store(tmp_path / "m.db") as store:
        store.put(NS, "k", {"content": "cat"})
        export_jsonl(store, tmp_path / "out.jsonl")
        assert set(modes(tmp_path).values()) == {0o640}


# --- read-only ------------------------------------------------------------------------------------


@pytest.fixture(params=["folder", "file"])
def sealed(request):
    """A store that can only be read: its folder takes no log, or the file alone is protected."""
    if os.name != "posix":
        pytest.skip("needs the modes of POSIX")
    is_root = os.geteuid() == 0
    # Not below pytest's folder, which only root may enter.
    with tempfile.TemporaryDirectory() as name:
        folder, path = Path(name), Path(name) / "m.db"
        with open_store(path) as store:
            store.put(NS, "k", {"content": "my cat is called Mia"}, ttl=60)
            store.put(NS, "waits", {"content": "the embedder failed on this"})
            with store._file.writing() as connection:
                connection.execute("UPDATE vectors SET vectors = NULL WHERE id = 2")
        if is_root:
            for each in (folder, path):
                os.chown(each, NOBODY, NOBODY)
        if request.param == "log":
            Path(f"{path}-wal").write_bytes(b"what a killed process left here")
        path.chmod(0o444)
        folder.chmod(0o755 if request.param == "file" else 0o555)
        if is_root:
            # Modes do not bind root.
            os.seteuid(NOBODY)
        try:
            yield path
        finally:
            if is_root:
                os.seteuid(0)
            folder.chmod(0o755)


def test_read_only_file_answers_and_refuses_writes(sealed, call, caplog):
    ttl = {"refresh_on_read": True}
    with open_store(sealed, ttl=ttl) as local:
        assert "open for reading only" in caplog.text
        store = RecallStore(local)
        assert call(store, "get", NS, "k").value["content"] == "my cat is called Mia"
        assert [item.key for item in call(store, "search", NS, query="cat")] == ["k", "waits"]
        assert "k" in [one.key for one in call(store, "recall", NS, "my cat").memories]
        assert call(store, "list_namespaces") == [NS]
        assert len(call(store, "secret")) == 32
        for write in (
            lambda: call(store, "put", NS, "new", {"content": "dog"}),
            lambda: call(store, "remember", NS, "My dog is called Rex"),
            lambda: call(store, "delete", NS, "k"),
            lambda: call(local, "compact"),
        ):
            with pytest.raises(StoreError, match=r"m\.db cannot be written.*write access"):
                write()
        call(store, "close")
        assert local.read_usage([(NS, "k")])[0].uses == 0
    with open_store(sealed) as local:
        assert local.get(NS, "k") is not None


def test_read_only_file_may_be_backed_up(sealed, call):
    with tempfile.TemporaryDirectory() as folder, open_store(sealed) as store:
        call(store, "backup", f"{folder}/copy.db")
        with open_store(f"{folder}/copy.db") as copy:
            assert copy.get(NS, "k") is not None
            copy.put(NS, "new", {"content": "dog"})


@pytest.mark.parametrize("sealed", ["folder"], indirect=True)
def test_file_that_changes_though_nobody_could_write_it_is_refused(sealed):
    with open_store(sealed) as store:
        assert store.get(NS, "k") is not None
        os.utime(sealed, (1, 1))
        with pytest.raises(StoreError, match="open it again"):
            store.get(NS, "k")


@pytest.mark.parametrize("sealed", ["folder"], indirect=True)
def test_read_only_folder_says_so_for_a_new_file(sealed):
    with pytest.raises(StoreError, match="cannot be opened"):
        open_store(sealed.with_name("new.db"))
    assert [file.name for file in sealed.parent.iterdir()] == ["m.db"]


@pytest.mark.parametrize("sealed", ["log"], indirect=True)
def test_read_only_folder_with_a_log_left_behind_is_refused(sealed):
    with pytest.raises(StoreError, match=r"cannot be opened.*log beside it"):
        open_store(sealed)


# --- a file that goes away ------------------------------------------------------------------------


def remove(path):
    path.unlink()


def restore(path):
    fresh = path.with_name("fresh.db")
    with open_store(fresh) as other:
        other.put(NS, "old", {"content": "an older state"})
    fresh.replace(path)


@on_posix
@pytest.mark.parametrize("change", [remove, restore])
def test_file_that_was_removed_or_replaced_is_refused_until_it_is_opened_again(path, call, change):
    with open_store(path) as local:
        store = RecallStore(local)
        assert call(store, "recall", NS, "my cat").memories
        call(store, "flush")
        change(path)
        for use in (
            lambda: call(store, "get", NS, "k"),
            lambda: call(store, "search", NS),
            lambda: call(local, "search", NS, query="cat"),
            lambda: call(store, "recall", NS, "my cat"),
            lambda: call(store, "put", NS, "lost", {"content": "dog"}),
            lambda: call(local, "compact"),
            lambda: call(local, "backup", path.with_name("copy.db")),
            lambda: local.add_usage({(NS, "k"): UsageDelta(1, 1.0)}, fade_per_day=1.0),
        ):
            with pytest.raises(StoreError, match=r"m\.db was removed.*open it again"):
                use()
        assert not path.with_name("copy.db").exists()
        assert path.exists() == (change is restore)
    with open_store(path) as again:
        again.put(NS, "new", {"content": "dog"})
        former = {"old"} if change is restore else set()
        assert {item.key for item in again.search(NS)} == {"new", *former}


@on_posix
def test_write_into_a_file_that_goes_away_under_it_is_not_acknowledged(path, monkeypatch):
    write = Writer._write

    def write_and_remove(*args):
        write(*args)
        path.unlink()

    monkeypatch.setattr(Writer, "_write", write_and_remove)
    with open_store(path) as store, pytest.raises(StoreError, match="repeat what failed"):
        store.put(NS, "lost", {"content": "dog"})


@on_posix
def test_process_may_change_its_folder(path, monkeypatch):
    monkeypatch.chdir(path.parent)
    with open_store(path.name) as store:
        monkeypatch.chdir("/")
        store.put(NS, "new", {"content": "dog"})
        assert len(store.search(NS, query="dog")) == 2
        assert store.path == str(path)


# --- backups --------------------------------------------------------------------------------------


def test_backup_is_a_store_of_its_own_with_all_that_was_written(path, call):
    copy = path.with_name("copy #1?.db")
    with open_store(path) as store:
        store.add_usage({(NS, "k"): UsageDelta(2, 1.0)}, fade_per_day=1.0)
        call(store, "backup", copy)
        store.put(NS, "later", {"content": "dog"})
    assert sorted(file.name for file in path.parent.iterdir()) == [copy.name, "m.db"]
    with open_store(copy) as store:
        assert [(item.key, item.score) for item in store.search(NS, query="cat")] == [
            ("k", pytest.approx(1.0))
        ]
        assert store.read_usage([(NS, "k")])[0].uses == 2


def test_backup_of_a_store_in_memory(tmp_path, call):
    with open_store(":memory:") as store:
        store.put(NS, "k", {"content": "cat"})
        call(store, "backup", tmp_path / "copy.db")
    with open_store(tmp_path / "copy.db") as copy:
        assert copy.get(NS, "k").value == {"content": "cat"}


def test_backup_overwrites_nothing(path, call):
    taken = path.with_name("taken")
    taken.write_text("mine")
    with open_store(path) as store:
        for target in (taken, path, path.parent, path.with_name("nowhere") / "copy.db"):
            with pytest.raises(InputError, match=r"backup cannot be made.*name a new file"):
                call(store, "backup", target)
        assert store.get(NS, "k") is not None
    assert taken.read_text() == "mine"


def test_backup_that_fails_leaves_no_file(path, call, monkeypatch):
    with open_store(path) as store:
        monkeypatch.setattr(
            "langmem_recall.stores.local.file._connect", lambda *_: sqlite3.connect("/")
        )
        with pytest.raises(StoreError, match="unable to open"):
            call(store, "backup", path.with_name("copy.db"))
    assert [file.name for file in path.parent.iterdir()] == ["m.db"]


def test_backup_shows_one_moment_while_others_write(path):
    """Each write puts two memories: a copy never has one without the other."""
    stop = threading.Event()

    def write():
        with open_store(path) as writer:
            n = 0
            while not stop.is_set():
                n += 1
                writer.batch([PutOp(NS, f"{half}{n}", {"content": half}) for half in "ab"])

    thread = threading.Thread(target=write)
    with open_store(path) as store:
        thread.start()
        try:
            for n in range(5):
                store.backup(path.with_name(f"copy{n}.db"))
        finally:
            stop.set()
            thread.join()
    for n in range(5):
        with open_store(path.with_name(f"copy{n}.db")) as copy:
            keys = [item.key for item in copy.search(NS, limit=10_000)]
        first, second = ({key[1:] for key in keys if key[0] == half} for half in "ab")
        assert first == second
