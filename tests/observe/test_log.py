from __future__ import annotations

import json
import logging
import os
import stat
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Call
from recalls import HOME, candidate, recall_of

from langmem_recall import LocalStore, RecallStore
from langmem_recall.errors import ConfigurationError, InputError
from langmem_recall.observe import log as log_module
from langmem_recall.observe.log import TraceLog, both, erase, read_log
from langmem_recall.observe.monitor import Monitor
from langmem_recall.observe.show import recall_id, to_dict, to_json
from langmem_recall.types import Recall

TEA = recall_of([candidate("tea", 0.9, text="Ann drinks tea"), candidate("dog", 0.1)], "drink?")
BOB = ("memories", "bob")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "traces.jsonl"


def asked(words: str, namespace: tuple[str, ...] = HOME) -> Recall:
    one = candidate("a", 0.9, namespace=namespace, text=f"about {words}")
    return recall_of([one], words, namespaces=(namespace,))


def cues(path: Path) -> list[str]:
    return [record["cue"]["text"] for record in read_log(path)]


def test_recalls_are_appended_as_the_records_of_their_traces(path: Path) -> None:
    with TraceLog(path) as log:
        log(TEA)
        log(asked("second"))

    first, second = read_log(path)
    assert first == to_dict(TEA)
    assert second["cue"]["text"] == "second"
    assert log.lost == 0


def test_reading_in_the_same_process_sees_what_is_pending(path: Path) -> None:
    log = TraceLog(path)
    log(TEA)
    assert cues(path) == ["drink?"]
    log.close()


def test_a_second_log_goes_on_where_the_first_ended(path: Path) -> None:
    for words in ("first", "second"):
        with TraceLog(path) as log:
            log(asked(words))
    assert cues(path) == ["first", "second"]


def test_the_thread_writes_without_being_asked(path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(log_module, "TICK_S", 0.001)
    written = threading.Event()
    with TraceLog(path) as log:
        flush = log.flush
        monkeypatch.setattr(log, "flush", lambda: (flush(), written.set()))
        log(TEA)
        assert written.wait(10)
        assert json.loads(path.read_text())["cue"]["text"] == "drink?"


def test_text_is_left_out_on_request(path: Path) -> None:
    with TraceLog(path, with_text=False) as log:
        log(replace(TEA, trace=replace(TEA.trace, block="Ann drinks tea")))
    assert '"key": "tea"' in path.read_text()
    assert "drink" not in path.read_text()


def test_full_file_is_rotated_and_the_oldest_is_given_up(path: Path) -> None:
    size = len(to_json(asked("0"))) + 1
    with TraceLog(path, max_bytes=2 * size, keep=2) as log:
        for number in range(9):
            log(asked(str(number)))

    # Two a file: 4 to 7 lie in the rotated files, 8 in the current one, the others are given up.
    assert sorted(file.name for file in path.parent.iterdir()) == [
        "traces.jsonl",
        "traces.jsonl.1",
        "traces.jsonl.2",
        "traces.jsonl.lock",
    ]
    assert cues(path) == ["4", "5", "6", "7", "8"]


def test_without_rotated_files_the_log_starts_anew(path: Path) -> None:
    with TraceLog(path, max_bytes=1, keep=0) as log:
        log(asked("0"))
        log(asked("1"))
    assert cues(path) == ["1"]


def test_rotated_files_are_read_oldest_first_beyond_nine(path: Path) -> None:
    with TraceLog(path, max_bytes=1, keep=12) as log:
        for number in range(12):
            log(asked(str(number)))
    assert cues(path) == [str(number) for number in range(12)]


def test_bad_lines_are_left_out_and_counted(path: Path, caplog: Any) -> None:
    with TraceLog(path) as log:
        log(asked("0"))
    with path.open("ab") as file:
        file.write(b'{"torn": \n[1]\n\n\xff\xfe\n')
    with TraceLog(path) as log:
        log(asked("1"))

    with caplog.at_level(logging.WARNING):
        assert cues(path) == ["0", "1"]
    assert "3 lines" in caplog.text


def test_a_line_left_unfinished_by_a_killed_process_spoils_only_itself(path: Path) -> None:
    path.write_text('{"version": 1, "cue"')
    with TraceLog(path) as log:
        log(asked("next"))
    assert cues(path) == ["next"]


def test_a_missing_log_is_an_input_error(path: Path) -> None:
    with pytest.raises(InputError, match="no log of traces"):
        read_log(path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"max_bytes": 0}, "max_bytes must be a whole number of at least 1, got 0"),
        ({"keep": -1}, "keep must be a whole number of at least 0, got -1"),
        ({"keep": True}, "keep must be a whole number"),
    ],
)
def test_settings_that_cannot_work_are_refused_at_once(
    path: Path, change: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigurationError, match=said):
        TraceLog(path, **change)


def test_a_missing_folder_is_refused_at_once(path: Path) -> None:
    with pytest.raises(ConfigurationError, match="folder that exists"):
        TraceLog(path / "deeper" / "traces.jsonl")


def test_a_fault_of_the_disk_is_counted_and_told_once(path: Path, caplog: Any) -> None:
    log = TraceLog(path)
    path.mkdir()
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            log(TEA)
            log.flush()
    log.close()

    assert log.lost == 3
    assert caplog.text.count("Traces cannot be written") == 1


def test_a_recall_that_cannot_be_recorded_is_counted(path: Path) -> None:
    with TraceLog(path) as log:
        log(None)  # type: ignore[arg-type]
        log(TEA)
    assert log.lost == 1
    assert cues(path) == ["drink?"]


def test_what_comes_after_closing_or_beyond_the_queue_is_counted(
    path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(log_module, "MOST_PENDING", 2)
    log = TraceLog(path)
    with log._writing:  # as if the disk hung
        for _ in range(5):
            log(TEA)
    log.close()
    log(TEA)

    assert len(cues(path)) == 2
    assert log.lost == 4


def test_many_threads_lose_and_mix_nothing(path: Path) -> None:
    with TraceLog(path, max_bytes=20_000, keep=100) as log:
        threads = [
            threading.Thread(
                target=lambda name=name: [log(asked(f"{name}-{i}")) for i in range(25)]
            )
            for name in "abcd"
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert log.lost == 0
    assert sorted(cues(path)) == sorted(f"{name}-{i}" for name in "abcd" for i in range(25))


WRITER = """
import sys
sys.path.insert(0, sys.argv[3])
from recalls import candidate, recall_of
from langmem_recall.observe.log import TraceLog
with TraceLog(sys.argv[1], max_bytes=30_000, keep=100) as log:
    for i in range(40):
        log(recall_of([candidate("a", 0.9)], f"{sys.argv[2]}-{i}"))
        log.flush()
"""


def test_several_processes_lose_and_mix_nothing(path: Path) -> None:
    here = str(Path(__file__).parent)
    processes = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(path), name, here]) for name in "ab"
    ]
    assert [process.wait(60) for process in processes] == [0, 0]
    assert sorted(cues(path)) == sorted(f"{name}-{i}" for name in "ab" for i in range(40))


def test_pending_traces_are_written_at_the_end_of_the_process(path: Path) -> None:
    code = (
        WRITER.replace("with TraceLog", "if log := TraceLog")
        .replace(" as log", "")
        .replace("        log.flush()\n", "")
    )
    here = str(Path(__file__).parent)
    subprocess.run([sys.executable, "-c", code, str(path), "z", here], check=True, timeout=60)
    assert len(cues(path)) == 40


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_process_writes_its_own_traces_only(path: Path) -> None:
    log = TraceLog(path)
    with log._writing:  # held by the parent: the child must not wait for it
        log(asked("parent"))
        child = os.fork()
        if not child:
            log(asked("child"))
            log.flush()
            os._exit(0)
        os.waitpid(child, 0)
    log.close()
    assert sorted(cues(path)) == ["child", "parent"]


# --- feedback and fan -----------------------------------------------------------------------------


def test_feedback_is_a_record_of_its_own(path: Path) -> None:
    with TraceLog(path) as log:
        log(TEA)
        log.feedback(HOME, "tea", True)
        log.feedback(HOME, "cake", False)

    _, tea, cake = read_log(path)
    assert tea == {
        "version": 1,
        "kind": "feedback",
        "recall": recall_id(TEA),
        "namespace": ["memories", "ann"],
        "key": "tea",
        "good": True,
    }
    assert (cake["recall"], cake["good"]) == (None, False)


def test_what_is_told_to_a_store_reaches_all_who_look_on(path: Path, call: Call) -> None:
    monitor = Monitor()
    with TraceLog(path) as log, RecallStore(LocalStore(), traces=both(log, monitor)) as store:
        store.remember(HOME, "Ann drinks green tea", key="tea")
        found = store.recall(HOME, "Which tea does Ann drink?")
        call(store, "feedback", HOME, "tea")
        call(store, "feedback", HOME, ["tea", "gone"], good=False)

    told = [record for record in read_log(path) if record["kind"] == "feedback"]
    assert [(record["recall"], record["key"], record["good"]) for record in told] == [
        (recall_id(found), "tea", True),
        (recall_id(found), "tea", False),
        (None, "gone", False),
    ]
    assert (monitor.report(HOME).good, monitor.report(HOME).bad) == (1, 2)


def test_a_memory_that_is_erased_is_no_longer_known_to_feedback(path: Path) -> None:
    with TraceLog(path) as log:
        log(TEA)
        log.erase(HOME, "tea")
        log.feedback(HOME, "tea", True)
    assert list(read_log(path))[-1]["recall"] is None


def test_a_sink_that_cannot_take_feedback_is_left_alone(caplog: Any) -> None:
    class Deaf:
        def __call__(self, _: Recall) -> None:
            raise RuntimeError("no")

        feedback = __call__

    for sink in (None, list.append, Deaf()):
        with RecallStore(LocalStore(), traces=sink) as store:
            store.feedback(HOME, "tea")
            store.flush()
    assert "An outcome could not be handed to traces" in caplog.text


def test_a_failing_sink_keeps_nothing_from_the_others(caplog: Any) -> None:
    got: list[Recall] = []

    def broken(_: Recall) -> None:
        raise RuntimeError("no")

    sink = both(broken, got.append)
    with caplog.at_level(logging.WARNING):
        sink(TEA)
        sink(TEA)
    assert got == [TEA, TEA]
    assert caplog.text.count("A sink of traces failed") == 1


# --- erasing --------------------------------------------------------------------------------------


def test_a_namespace_is_erased_from_all_files_with_its_feedback(path: Path) -> None:
    with TraceLog(path, max_bytes=1, keep=9) as log:
        log(asked("ann's"))
        log(asked("bob's", BOB))
        log(asked("bob's work", (*BOB, "work")))
        log(asked("bobby's", ("memories", "bobby")))
        log.feedback(BOB, "a", True)
        log.feedback(HOME, "a", True)

        assert log.erase(BOB) == 3

    left = list(read_log(path))
    assert [record.get("cue", {}).get("text") for record in left] == ["ann's", "bobby's", None]
    assert "bob's" not in "".join(file.read_text() for file in path.parent.glob("*.jsonl*"))


def test_traces_over_several_namespaces_go_with_any_of_them(path: Path) -> None:
    shared = recall_of([candidate("a", 0.9)], "ours", namespaces=(HOME, ("team",)))
    wide = recall_of([candidate("a", 0.9, namespace=BOB)], "all", namespaces=(("memories",),))
    with TraceLog(path) as log:
        for recall in (shared, wide, asked("mine")):
            log(recall)

    assert erase(path, ("team",)) == 1
    assert erase(path, BOB) == 1
    assert cues(path) == ["mine"]


def test_one_memory_is_erased_from_the_traces_it_is_in(path: Path) -> None:
    twin = candidate("twin", 0.8, text="Ann drinks tea too")
    recall = recall_of(
        [candidate("secret", 0.9, text="Ann drinks tea"), twin],
        "drink?",
        likeness=lambda ids: np.full((2, 2), 0.95),
        compacted=((HOME, "secret"),),
    )
    assert recall.dropped[0].reason == "0.95 like secret"
    with TraceLog(path) as log:
        log(replace(recall, trace=replace(recall.trace, block="Ann drinks tea")))
        log(asked("other"))
        log.feedback(HOME, "secret", True)
        log.feedback(BOB, "secret", True)

    assert erase(path, HOME, "secret") == 2
    first, second, third = read_log(path)
    assert [held["key"] for held in first["candidates"]] == ["twin"]
    assert first["candidates"][0]["reason"] == "0.95 like a forgotten memory"
    assert "twin" not in first["candidates"][0]
    assert first["compacted"] == []
    assert "block" not in first
    assert second == to_dict(asked("other"))
    assert third["namespace"] == list(BOB)
    assert 'Ann drinks tea"' not in path.read_text()


def test_erasing_gives_up_what_cannot_be_read(path: Path) -> None:
    path.write_text('{"text": "Ann drinks t')
    with TraceLog(path) as log:
        log(asked("kept"))
    assert erase(path, BOB) == 1
    assert "drinks" not in path.read_text()
    assert cues(path) == ["kept"]


def test_erasing_what_is_not_there_changes_nothing(path: Path) -> None:
    with TraceLog(path) as log:
        log(TEA)
    before = path.stat()
    assert erase(path, ("nobody",)) == 0
    assert erase(path.with_name("none.jsonl"), HOME) == 0
    assert path.stat().st_ino == before.st_ino


def test_a_fan_erases_where_its_sinks_can(path: Path) -> None:
    log = TraceLog(path)
    sink = both(log, print)
    log(TEA)
    assert sink.erase(HOME) == 1
    log.close()
    assert cues(path) == []


@pytest.mark.skipif(os.name != "posix", reason="Windows has no such modes")
def test_new_files_are_their_owners_alone_and_others_keep_their_mode(path: Path) -> None:
    former = os.umask(0)
    try:
        with TraceLog(path, max_bytes=10, keep=2) as log:
            for words in ("one", "two", "three"):
                log(asked(words))
        assert {stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()} == {0o600}
        assert len(list(path.parent.glob("traces.jsonl.[12]"))) == 2
        path.chmod(0o640)
        assert erase(path, HOME) == 3
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
    finally:
        os.umask(former)
