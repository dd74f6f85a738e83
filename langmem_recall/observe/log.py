"""A log of recalls as JSON lines: written behind, rotated, and erased with the memories.

Not through `logging.handlers`: a QueueListener works as soon as a recall has come, and so holds up
the next one (1.9 ms became 3.2 ms), and a RotatingFileHandler knows neither other processes nor
file modes.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import shutil
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path
from typing import Any

from langmem_recall.errors import ConfigurationError, InputError, check_whole, described
from langmem_recall.observe.show import ANSWER, FEEDBACK, VERDICT, VERSION, recall_id, to_json
from langmem_recall.types import Answer, GuardEvent, MemoryId, Namespace, Recall

logger = logging.getLogger(__name__)

try:
    import fcntl
except ImportError:  # Windows has no such locks: let one process at a time write a log there.
    fcntl = None  # type: ignore[assignment]

Sink = Callable[[Recall], None]
Record = dict[str, Any]

FORGOTTEN = "a forgotten memory"  # stands in a reason where the key of an erased memory stood
TICK_S = 0.5  # traces wait so long before they are written: by then the model thinks
MOST_PENDING = 1024  # beyond so many traces the disk does not keep up, and what comes is lost
MOST_BROUGHT = 10_000  # memories whose latest recall is known to feedback
LONGEST_ANSWER = 8_000  # characters of an answer that are recorded


class TraceLog:
    """A sink for `RecallStore(traces=...)` that appends every recall to a file of JSON lines.

    Traces are written by a thread a moment after the recall; `flush`, `close` and the end of the
    process write what is pending. A fault never reaches the recall: it is counted in `lost`.

    Args:
        path: The file; what is rotated out lies beside it as `.1` (the latest), `.2` ...
        with_text: False leaves out all words of memories, cues and answers; keys and namespaces
            stay.
        max_bytes: Size beyond which the file is rotated out.
        keep: How many rotated files are kept.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        with_text: bool = True,
        max_bytes: int = 10_000_000,
        keep: int = 3,
    ) -> None:
        check_whole("max_bytes", max_bytes, 1, ConfigurationError)
        check_whole("keep", keep, 0, ConfigurationError)
        self.path = Path(path).absolute()
        if not self.path.parent.is_dir() or self.path.is_dir():
            raise ConfigurationError(
                f"A log of traces needs a file in a folder that exists, got {self.path}. "
                "Make the folder."
            )
        self.lost = 0  # traces that could not be written
        self._with_text, self._max_bytes, self._keep = with_text, max_bytes, keep
        self._closed = False
        self._start_afresh()
        _open_logs.add(self)

    def _start_afresh(self) -> None:
        """Nothing pending and no thread yet: for a new log, and for a copy in a forked process."""
        self._pending: deque[Callable[[], str]] = deque()
        self._brought: OrderedDict[MemoryId, str] = OrderedDict()
        self._writing, self._starting = threading.Lock(), threading.Lock()
        self._has_pending = threading.Event()
        self._thread: threading.Thread | None = None

    def __call__(self, recall: Recall) -> None:
        """Append a recall."""

        def line() -> str:
            # Which recall brought a memory is noted for feedback.
            name = recall_id(recall) if recall.chosen else ""
            for memory in recall.memories:
                self._brought[memory.id] = name
                self._brought.move_to_end(memory.id)
            while len(self._brought) > MOST_BROUGHT:
                self._brought.popitem(last=False)
            return to_json(recall, with_text=self._with_text)

        self._append(line)

    def feedback(self, namespace: Namespace, key: str, good: bool) -> None:
        """Append what came of a memory that was recalled; `RecallStore.feedback` calls it."""
        # Looked up when it is written: by then the recall before it has been written too.
        told = {"namespace": namespace, "key": key, "good": good}
        self._append(
            lambda: _record_line(FEEDBACK, {"recall": self._brought.get((namespace, key))} | told)
        )

    def verdict(self, event: GuardEvent) -> None:
        """Append what the guard withheld of a text, without its words; what it allowed is not."""
        if event.action != "allow" or event.has_failed:
            self._append(lambda: _record_line(VERDICT, event._asdict()))

    def answer(self, answer: Answer) -> None:
        """Append what a model answered, but for a log without words; agents call it."""
        if self._with_text:
            cut = answer._replace(text=answer.text[:LONGEST_ANSWER])
            self._append(lambda: _record_line(ANSWER, cut._asdict()))

    def flush(self) -> None:
        """Write what is pending now."""
        with self._writing:
            lines: deque[bytes] = deque()
            for _ in range(len(self._pending)):
                make_line = self._pending.popleft()
                try:
                    lines.append(f"{make_line()}\n".encode("ascii"))
                except Exception as error:
                    self._lose(1, error)
            if not lines:
                return
            try:
                with _locked(self.path):
                    _append_lines(self.path, lines, self._max_bytes, self._keep)
            except Exception as error:
                self._lose(len(lines), error)

    def erase(self, namespace: Namespace, key: str | None = None) -> int:
        """Remove what is recorded of a namespace or of one memory; see the function `erase`."""
        changed = erase(self.path, namespace, key)
        with self._writing:
            for place, name in list(self._brought):
                if place[: len(namespace)] == namespace and key in (None, name):
                    del self._brought[place, name]
        return changed

    def close(self) -> None:
        """Write what is pending; whatever comes later is lost."""
        self._closed = True
        self._has_pending.set()
        self.flush()
        _open_logs.discard(self)

    def __enter__(self) -> TraceLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _append(self, make_line: Callable[[], str]) -> None:
        """Queue a line that the thread will make and write."""
        if self._closed or len(self._pending) >= MOST_PENDING:
            why = "the log is closed" if self._closed else "the disk does not keep up"
            self._lose(1, RuntimeError(why))
            return
        with self._starting:
            self._pending.append(make_line)
            self._has_pending.set()
            if self._thread is None:
                thread = threading.Thread(target=self._run, daemon=True, name="recall-traces")
                # Where no thread can be had, `flush` and the end of the process write.
                with suppress(RuntimeError):
                    thread.start()
                    self._thread = thread

    def _run(self) -> None:
        """Write what has come, a moment later: until the log is closed."""
        while not self._closed:
            self._has_pending.wait()
            time.sleep(TICK_S)
            self._has_pending.clear()
            self.flush()

    def _lose(self, count: int, error: Exception) -> None:
        with self._starting:
            is_first = not self.lost
            self.lost += count
        if is_first:
            logger.warning(
                "Traces cannot be written to %s (%s). Recalls go on; TraceLog.lost counts.",
                *(self.path, described(error)),
            )


def _record_line(kind: str, fields: Record) -> str:
    return json.dumps({"version": VERSION, "kind": kind, **fields})


_open_logs: set[TraceLog] = set()


@atexit.register
def _flush_open(path: Path | None = None) -> None:
    """Write what is pending in this process, for one file or for all."""
    for log in list(_open_logs):
        if path in (None, log.path):
            log.flush()


def _forget_pending() -> None:
    # The parent writes what was pending; its threads and whatever they had locked stay with it.
    for log in _open_logs:
        log._start_afresh()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pending)


def both(*sinks: Sink) -> Fan:
    """One sink that hands every recall to several."""
    return Fan(sinks)


class Fan:
    """Several sinks as one; a fault of one does not keep a recall from the others."""

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self._sinks = sinks
        self._failed = list[Sink]()

    def __call__(self, recall: Recall) -> None:
        """Hand a recall to every sink."""
        for sink in self._sinks:
            try:
                sink(recall)
            except Exception as fault:
                if sink not in self._failed:
                    self._failed.append(sink)
                    logger.warning("A sink of traces failed; recalls go on: %s", described(fault))

    def __getattr__(self, method: str) -> Callable[..., int]:
        """`feedback`, `verdict`, `answer` and `erase` go to every sink that takes them."""
        if method.startswith("_"):
            raise AttributeError(method)
        takers = [getattr(sink, method) for sink in self._sinks if hasattr(sink, method)]
        return lambda *told: sum(take(*told) or 0 for take in takers)


# --- files ----------------------------------------------------------------------------------------


def read_log(path: str | Path) -> Iterator[Record]:
    """The records of a log and of what was rotated out, the oldest first.

    Lines that cannot be read are left out, and a warning says how many.

    Raises:
        InputError: There is no such log.
    """
    source = Path(path).absolute()
    _flush_open(source)
    if not files(source):
        raise InputError(f"There is no log of traces at {source}. Check the path.")

    def records() -> Iterator[Record]:
        bad = 0
        for file in files(source):
            with open(file, encoding="utf-8", errors="replace") as lines:
                for line in filter(str.strip, lines):
                    if (record := _parsed(line)) is not None:
                        yield record
                    else:
                        bad += 1
        if bad:
            logger.warning("%d lines of %s could not be read and were left out.", bad, source)

    return records()


def _parsed(line: str) -> Record | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def files(path: Path) -> list[Path]:
    """The files of a log that exist, the oldest first."""
    endings = (file.name.rpartition(".")[2] for file in path.parent.glob(f"{escape(path.name)}.*"))
    numbers = sorted((int(ending) for ending in endings if ending.isdecimal()), reverse=True)
    return [*(_rotated(path, number) for number in numbers), *([path] if path.exists() else [])]


def _rotated(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}") if number else path


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """A lock on a log's files against other processes."""
    if fcntl is None:
        yield
        return
    lock = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _append_lines(path: Path, lines: deque[bytes], max_bytes: int, keep: int) -> None:
    """Move lines into the file, each by one write; rotate where it would grow beyond its size."""
    while lines:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            size = os.lseek(file, 0, os.SEEK_END)
            # A killed process may have left a line unfinished.
            if size:
                os.lseek(file, size - 1, os.SEEK_SET)
                if os.read(file, 1) != b"\n":
                    size += os.write(file, b"\n")
            while lines and (not size or size + len(lines[0]) <= max_bytes):
                written = os.write(file, lines[0])
                if written < len(lines[0]):
                    os.ftruncate(file, size)
                    raise OSError(f"only {written} of {len(lines[0])} bytes could be written")
                size += len(lines.popleft())
        finally:
            os.close(file)
        if lines:
            for number in range(keep - 1, -1, -1):
                if (older := _rotated(path, number)).exists():
                    older.replace(_rotated(path, number + 1))
            path.unlink(missing_ok=True)


# --- erasing --------------------------------------------------------------------------------------


def erase(path: str | Path, namespace: Namespace, key: str | None = None) -> int:
    """Remove what a log holds of a namespace and all below it, or of one memory.

    Of a namespace every trace that looked into it goes. Of one memory only what the traces say of
    it goes, and the blocks and answers it may be in. Each file is replaced as a whole. Lines that
    cannot be read go too: what is in them is unknown.

    Returns:
        How many records were removed or changed.
    """
    source = Path(path).absolute()
    _flush_open(source)
    with _locked(source):
        return sum(_erase_in(file, tuple(namespace), key) for file in files(source))


def _erase_in(file: Path, namespace: Namespace, key: str | None) -> int:
    """Replace a file by one without a namespace or a memory; returns how many records changed."""
    left, changed = [], 0
    with open(file, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            record = _parsed(line)
            # What cannot be read might hold what is to be erased.
            rest = None if record is None else _without(record, namespace, key)
            changed += rest is not record or record is None
            if rest is not None:
                left.append(line if rest is record else f"{json.dumps(rest)}\n")
    if changed:
        fresh = file.with_name(f"{file.name}.new")
        handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(handle, "w", encoding="utf-8") as out:
            out.writelines(left)
            out.flush()
            os.fsync(out.fileno())
        shutil.copymode(file, fresh)
        fresh.replace(file)
    return changed


def _without(record: Record, namespace: Namespace, key: str | None) -> Record | None:
    """The record itself where it holds nothing of it, None where nothing is left of it."""
    candidates = record.get("candidates", [])
    if key is None:
        places = [record.get("namespace"), *record.get("namespaces", ())]
        places += [candidate.get("namespace") for candidate in candidates]
        lists = (place for place in places if isinstance(place, list))
        is_below = any(tuple(place[: len(namespace)]) == namespace for place in lists)
        return None if is_below else record
    erased = [list(namespace), key]
    # Feedback and verdicts name one memory, answers those that the model was shown.
    if erased in (_name(record), *record.get("memories", ())):
        return None
    left = [candidate for candidate in candidates if _name(candidate) != erased]
    if len(left) == len(candidates):
        return record
    # Reasons may name it by its key.
    reworded = [
        {
            field: text.replace(key, FORGOTTEN) if field in ("reason", "standing") else text
            for field, text in candidate.items()
            if (field, text) != ("twin", erased)
        }
        for candidate in left
    ]
    return {
        **{field: content for field, content in record.items() if field != "block"},
        "candidates": reworded,
        "compacted": [other for other in record.get("compacted", []) if other != erased],
        "conflicts": [pair for pair in record.get("conflicts", []) if erased not in pair],
    }


def _name(record: Record) -> list[Any]:
    return [record.get("namespace"), record.get("key")]
