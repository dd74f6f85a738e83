import contextvars
import threading

import pytest
from langgraph.store.base import PutOp

from langmem_recall import deadline as module
from langmem_recall import embeddings as embeddings_module
from langmem_recall.deadline import CallProgress, loading, watch
from langmem_recall.embeddings import LocalEmbeddings
from langmem_recall.stores.local import view as local_view
from langmem_recall.stores.local.store import LocalStore

NS = ("users", "ann")


@pytest.fixture
def monotonic(monkeypatch):
    """A clock that is set by hand."""
    time = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: time[0])
    return time


def in_fresh_context(call):
    return contextvars.Context().run(call)


def test_a_load_is_seen_while_it_lasts():
    def story():
        progress = watch()
        before = progress.is_loading
        with loading():
            during = progress.is_loading
        return before, during, progress.is_loading

    assert in_fresh_context(story) == (False, True, False)


def test_nothing_happens_where_nobody_watches():
    def story():
        with loading():
            return "loaded"

    assert in_fresh_context(story) == "loaded"


def test_a_load_that_fails_is_over():
    progress = watch()
    with pytest.raises(OSError, match="gone"), loading():
        raise OSError("gone")
    assert not progress.is_loading


def test_a_new_watch_does_not_see_older_loads():
    older = watch()
    with loading():
        newer = watch()
        assert (older.is_loading, newer.is_loading) == (True, False)
    assert (older.is_loading, newer.is_loading) == (False, False)


def test_loads_of_several_threads_count_until_the_last_one_ends():
    progress = watch()
    inside, leave = threading.Barrier(3), threading.Event()

    def load():
        with loading():
            inside.wait()
            leave.wait()

    contexts = [contextvars.copy_context() for _ in range(2)]
    threads = [threading.Thread(target=context.run, args=(load,)) for context in contexts]
    for thread in threads:
        thread.start()
    with loading():
        inside.wait()
    assert progress.is_loading
    leave.set()
    for thread in threads:
        thread.join()
    assert not progress.is_loading


def test_time_spent_loading_counts_overlapping_loads_once(monotonic):
    def story() -> tuple[CallProgress, float]:
        progress = watch()
        with loading():
            monotonic[0] += 2.0
            with loading():
                monotonic[0] += 3.0
            so_far = progress.load_seconds
        monotonic[0] += 10.0
        with loading():
            monotonic[0] += 0.5
        return progress, so_far

    progress, so_far = in_fresh_context(story)
    assert so_far == 5.0
    assert progress.load_seconds == 5.5


def test_the_first_use_of_the_model_is_a_load_and_the_second_is_not(monkeypatch):
    progress = watch()
    seen = []
    model = embeddings_module._MODELS["wordllama"]
    marked = model._replace(load=lambda path: seen.append(progress.is_loading) or model.load(path))
    monkeypatch.setattr(embeddings_module, "_loaded", {})
    monkeypatch.setitem(embeddings_module._MODELS, "wordllama", marked)
    LocalEmbeddings().embed_query("tea")
    spent = progress.load_seconds
    LocalEmbeddings().embed_query("tea")
    assert seen == [True]
    assert spent > 0
    assert progress.load_seconds == spent


def test_the_first_read_of_a_namespace_is_a_load_and_the_second_is_not(monkeypatch, tmp_path):
    seen = []
    load = local_view._load_contents
    progress = watch()
    monkeypatch.setattr(
        local_view, "_load_contents", lambda *args: seen.append(progress.is_loading) or load(*args)
    )
    with LocalStore(tmp_path / "m.db") as store:
        store.batch([PutOp(NS, "a", {"content": "tea"})])
        store.search(NS, query="tea")
        spent = progress.load_seconds
        store.search(NS, query="tea")
    assert seen == [True]
    assert progress.load_seconds == spent


async def test_a_load_of_an_async_read_is_seen_from_the_loop(monkeypatch, tmp_path):
    seen = []
    load = local_view._load_contents
    progress = watch()
    monkeypatch.setattr(
        local_view, "_load_contents", lambda *args: seen.append(progress.is_loading) or load(*args)
    )
    with LocalStore(tmp_path / "m.db") as store:
        await store.asearch(NS, query="tea")
    assert seen == [True]
    assert not progress.is_loading


def test_who_waits_for_another_threads_load_counts_as_loading(monkeypatch, tmp_path):
    loads, inside, go_on = [], threading.Event(), threading.Event()
    load = local_view._load_contents

    def slow_load(*args):
        loads.append(args[1])
        inside.set()
        go_on.wait()
        return load(*args)

    monkeypatch.setattr(local_view, "_load_contents", slow_load)
    with LocalStore(tmp_path / "m.db") as store:
        followed = []

        def read():
            followed.append(watch())
            store.shelf(NS)

        threads = [threading.Thread(target=read) for _ in range(2)]
        threads[0].start()
        inside.wait()
        threads[1].start()
        try:
            while (
                len(followed) < 2 or not followed[1].is_loading or followed[1].load_seconds < 1e-4
            ):
                threads[1].join(0.001)
            assert [progress.is_loading for progress in followed] == [True, True]
        finally:
            go_on.set()
            for thread in threads:
                thread.join()
    assert loads == [NS]
    assert [progress.is_loading for progress in followed] == [False, False]
