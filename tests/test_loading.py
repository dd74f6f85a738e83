import contextvars
import threading

import pytest
from langgraph.store.base import PutOp

from langmem_recall import embeddings as embeddings_module
from langmem_recall import loading as module
from langmem_recall.embeddings import LocalEmbeddings
from langmem_recall.loading import Cell, loading, watch
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
        cell = watch()
        before = cell.active
        with loading():
            during = cell.active
        return before, during, cell.active

    assert in_fresh_context(story) == (False, True, False)


def test_nothing_happens_where_nobody_watches():
    def story():
        with loading():
            return "loaded"

    assert in_fresh_context(story) == "loaded"


def test_a_load_that_fails_is_over():
    cell = watch()
    with pytest.raises(OSError, match="gone"), loading():
        raise OSError("gone")
    assert not cell.active


def test_a_new_watch_does_not_see_older_loads():
    older = watch()
    with loading():
        newer = watch()
        assert (older.active, newer.active) == (True, False)
    assert (older.active, newer.active) == (False, False)


def test_loads_of_several_threads_count_until_the_last_one_ends():
    cell = watch()
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
    assert cell.active
    leave.set()
    for thread in threads:
        thread.join()
    assert not cell.active


def test_time_spent_loading_counts_overlapping_loads_once(monotonic):
    def story() -> tuple[Cell, float]:
        cell = watch()
        with loading():
            monotonic[0] += 2.0
            with loading():
                monotonic[0] += 3.0
            so_far = cell.seconds
        monotonic[0] += 10.0
        with loading():
            monotonic[0] += 0.5
        return cell, so_far

    cell, so_far = in_fresh_context(story)
    assert so_far == 5.0
    assert cell.seconds == 5.5


def test_the_first_use_of_the_model_is_a_load_and_the_second_is_not(monkeypatch):
    cell = watch()
    seen = []
    load = embeddings_module._load
    monkeypatch.setattr(embeddings_module, "_model", None)
    monkeypatch.setattr(embeddings_module, "_load", lambda: seen.append(cell.active) or load())
    LocalEmbeddings().embed_query("tea")
    spent = cell.seconds
    LocalEmbeddings().embed_query("tea")
    assert seen == [True]
    assert spent > 0
    assert cell.seconds == spent


def test_the_first_read_of_a_namespace_is_a_load_and_the_second_is_not(monkeypatch, tmp_path):
    seen = []
    load = local_view._load_contents
    cell = watch()
    monkeypatch.setattr(
        local_view, "_load_contents", lambda *args: seen.append(cell.active) or load(*args)
    )
    with LocalStore(tmp_path / "m.db") as store:
        store.batch([PutOp(NS, "a", {"content": "tea"})])
        store.search(NS, query="tea")
        spent = cell.seconds
        store.search(NS, query="tea")
    assert seen == [True]
    assert cell.seconds == spent


async def test_a_load_of_an_async_read_is_seen_from_the_loop(monkeypatch, tmp_path):
    seen = []
    load = local_view._load_contents
    cell = watch()
    monkeypatch.setattr(
        local_view, "_load_contents", lambda *args: seen.append(cell.active) or load(*args)
    )
    with LocalStore(tmp_path / "m.db") as store:
        await store.asearch(NS, query="tea")
    assert seen == [True]
    assert not cell.active


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
        cells = []

        def read():
            cells.append(watch())
            store.shelf(NS)

        threads = [threading.Thread(target=read) for _ in range(2)]
        threads[0].start()
        inside.wait()
        threads[1].start()
        try:
            while len(cells) < 2 or not cells[1].active or cells[1].seconds < 1e-4:
                threads[1].join(0.001)
            assert [cell.active for cell in cells] == [True, True]
        finally:
            go_on.set()
            for thread in threads:
                thread.join()
    assert loads == [NS]
    assert [cell.active for cell in cells] == [False, False]
