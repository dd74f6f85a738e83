"""A log of recalls as JSON lines: written behind, rotated, and erased with the memories."""

from __future__ import annotations

import atexit
import json
import logging
import os
import shutil
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path
from types import TracebackType
from typing import Any

from langmem_recall.errors import ConfigurationError, InputError, described
from langmem_recall.observe.records import FEEDBACK, VERSION, recall_id, to_json
from langmem_recall.policy import RecallPolicy
from langmem_recall.types import MemoryId, Namespace, Recall

logger = logging.getLogger(__name__)


try:
    import fcntl
except ImportError:  # Windows has no such locks: let one process at a time write a log there.
    fcntl = None  # type: ignore[assignment]


FORGOTTEN = "a forgotten memory"
"""Stands in a reason where the key of an erased memory stood."""


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Held while a log's files are changed, in any process."""
    if fcntl is None:
        yield
        return
    lock = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def append(path: Path, lines: deque[bytes], max_bytes: int, keep: int) -> None:
    """Move lines into the file, each by one write; rotate where it grows beyond its size."""
    while lines:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            size = _mended_size(file)
            while lines and (not size or size + len(lines[0]) <= max_bytes):
                _write(file, lines[0], size)
                size += len(lines.popleft())
        finally:
            os.close(file)
        if lines:
            _rotate(path, keep)


def _mended_size(file: int) -> int:
    """The file's size, after ending a line that a killed process left unfinished."""
    size = os.lseek(file, 0, os.SEEK_END)
    if size:
        os.lseek(file, size - 1, os.SEEK_SET)
        if os.read(file, 1) != b"\n":
            size += os.write(file, b"\n")
    return size


def _write(file: int, line: bytes, size: int) -> None:
    written = os.write(file, line)
    if written < len(line):
        os.ftruncate(file, size)
        raise OSError(f"only {written} of {len(line)} bytes could be written")


def _rotate(path: Path, keep: int) -> None:
    if not keep:
        path.unlink()
        return
    for number in range(keep - 1, 0, -1):
        held = _rotated(path, number)
        if held.exists():
            held.replace(_rotated(path, number + 1))
    path.replace(_rotated(path, 1))


def _rotated(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")


def files(path: Path) -> list[Path]:
    """The files of a log that exist, the oldest first."""
    endings = (file.name.rpartition(".")[2] for file in path.parent.glob(f"{escape(path.name)}.*"))
    numbers = sorted((int(ending) for ending in endings if ending.isdecimal()), reverse=True)
    return [*(_rotated(path, number) for number in numbers), *([path] if path.exists() else [])]


def records(path: Path) -> Iterator[dict[str, Any]]:
    """What a log's files hold, the oldest first; a warning says how many lines were unreadable."""
    bad = 0
    for file in files(path):
        with open(file, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                record = _parsed(line)
                if record is not None:
                    yield record
                elif line.strip():
                    bad += 1
    if bad:
        logger.warning("%d lines of %s could not be read and were left out.", bad, path)


def _parsed(line: str) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


# --- erasing --------------------------------------------------------------------------------------


def rewrite(file: Path, namespace: Namespace, key: str | None) -> int:
    """Replace a file by one without a namespace or a memory; returns how many records changed."""
    kept, changed = [], 0
    with open(file, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            record = _parsed(line)
            # What cannot be read might hold what is to be erased.
            left = None if record is None else _without(record, namespace, key)
            changed += left is not record or record is None
            if left is not None:
                kept.append(line if left is record else f"{json.dumps(left)}\n")
    if changed:
        _replace(file, "".join(kept))
    return changed


def _replace(file: Path, text: str) -> None:
    fresh = file.with_name(f"{file.name}.new")
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    shutil.copymode(file, fresh)
    fresh.replace(file)


def _without(
    record: dict[str, Any], namespace: Namespace, key: str | None
) -> dict[str, Any] | None:
    """The record itself where it holds nothing of it, None where nothing is left of it."""
    if key is None:
        return None if any(_is_below(held, namespace) for held in _namespaces(record)) else record
    if record.get("kind") == FEEDBACK:
        return None if _is_memory(record, namespace, key) else record
    candidates = record.get("candidates", [])
    left = [held for held in candidates if not _is_memory(held, namespace, key)]
    if len(left) == len(candidates):
        return record
    name = [list(namespace), key]
    return {
        **{field: held for field, held in record.items() if field != "block"},
        "candidates": [_reworded(held, name) for held in left],
        "compacted": [held for held in record.get("compacted", []) if held != name],
        "conflicts": [held for held in record.get("conflicts", []) if name not in held],
    }


def _namespaces(record: Mapping[str, Any]) -> Iterator[Any]:
    yield record.get("namespace")
    yield from record.get("namespaces", ())
    yield from (held.get("namespace") for held in record.get("candidates", ()))


def _is_below(held: Any, namespace: Namespace) -> bool:
    return isinstance(held, list) and tuple(held[: len(namespace)]) == namespace


def _is_memory(held: Mapping[str, Any], namespace: Namespace, key: str) -> bool:
    return held.get("namespace") == list(namespace) and held.get("key") == key


def _reworded(candidate: Mapping[str, Any], erased: list[Any]) -> dict[str, Any]:
    """The candidate without the key of an erased memory, by which its reason may name it."""
    left = {name: field for name, field in candidate.items() if (name, field) != ("twin", erased)}
    reasons = {name: left[name] for name in ("reason", "standing") if name in left}
    return left | {name: text.replace(erased[1], FORGOTTEN) for name, text in reasons.items()}


Sink = Callable[[Recall], None]

TICK_S = 0.25
"""The thread that writes looks this often: being woken by a recall would hold the recall up."""
LONGEST_WAIT = 20
"""Ticks that traces wait for one in which no recall came: while the model thinks."""
MANY_PENDING = 256
"""So many traces are written without waiting for such a tick."""
MOST_PENDING = 1024
"""Beyond so many traces the disk does not keep up, and what comes is lost."""
MOST_BROUGHT = 10_000
"""Memories whose latest recall is known to feedback."""
IDLE_TICKS = 240
"""Ticks without a trace after which the thread ends; the next trace starts another."""


class TraceLog:
    """A sink for `RecallStore(traces=...)` that appends every recall to a file of JSON lines.

    Traces are written by a thread a moment after the recall; `flush`, `close` and the end of the
    process write what is pending. A fault never reaches the recall: it is counted in `lost`.

    Args:
        path: The file; what is rotated out lies beside it as `.1` (the latest), `.2` ...
        with_text: False leaves out all words of memories and cues; keys and namespaces stay.
        max_bytes: Size beyond which the file is rotated out.
        keep: How many rotated files are kept.
        policies: Policies of one's own whose knobs are to be recorded, so that the inspector can
            start from them; presets need not be named.
    """

    _thread: threading.Thread | None

    def __init__(
        self,
        path: str | Path,
        *,
        with_text: bool = True,
        max_bytes: int = 10_000_000,
        keep: int = 3,
        policies: Iterable[RecallPolicy] = (),
    ) -> None:
        self.path = Path(path).absolute()
        _check_settings(self.path, max_bytes, keep)
        self.lost = 0
        """Traces that could not be written."""
        self._with_text = with_text
        self._max_bytes = max_bytes
        self._keep = keep
        self._policies = {policy.fingerprint: policy for policy in policies}
        self._closed = False
        self._start_afresh()
        _open_logs.add(self)

    def __call__(self, recall: Recall, *, block: str | None = None) -> None:
        """Append a recall, with the block the model was shown where it is known."""
        self._append(lambda: self._line(recall, block))

    def feedback(
        self, namespace: Namespace, key: str, good: bool, recall: str | None = None
    ) -> None:
        """Append what came of a memory that was recalled; `RecallStore.feedback` calls it.

        Args:
            namespace: Where the memory is.
            key: Its key.
            good: Whether it helped.
            recall: Id of the recall that brought it; the latest in this log that did when absent.
        """
        told = {"namespace": namespace, "key": key, "good": good}
        # Looked up when it is written: by then the recall before it has been written too.
        self._append(
            lambda: json.dumps(
                {
                    "version": VERSION,
                    "kind": FEEDBACK,
                    "recall": recall or self._brought.get((namespace, key)),
                    **told,
                }
            )
        )

    def flush(self) -> None:
        """Write what is pending now."""
        with self._writing:
            lines = self._taken_lines()
            if not lines:
                return
            try:
                with locked(self.path):
                    append(self.path, lines, self._max_bytes, self._keep)
            except Exception as error:
                self._lose(len(lines), error)

    def erase(self, namespace: Namespace, key: str | None = None) -> int:
        """Remove what is recorded of a namespace or of one memory; see the function `erase`."""
        changed = erase(self.path, namespace, key)
        with self._writing:
            for held in list(self._brought):
                if held[0][: len(namespace)] == namespace and key in (None, held[1]):
                    del self._brought[held]
        return changed

    def close(self) -> None:
        """Write what is pending; whatever comes later is lost."""
        self._closed = True
        self.flush()
        _open_logs.discard(self)

    def __enter__(self) -> TraceLog:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # --- on the thread of the recall --------------------------------------------------------

    def _append(self, make: Callable[[], str]) -> None:
        if self._closed or len(self._pending) >= MOST_PENDING:
            why = "the log is closed" if self._closed else "the disk does not keep up"
            self._lose(1, RuntimeError(why))
            return
        with self._starting:
            self._pending.append(make)
            if self._thread is None:
                thread = threading.Thread(target=self._run, daemon=True, name="recall-traces")
                # Where no thread can be had, `flush` and the end of the process write.
                with suppress(RuntimeError):
                    thread.start()
                    self._thread = thread

    # --- on the thread that writes ----------------------------------------------------------

    def _start_afresh(self) -> None:
        """Nothing pending and no thread yet: for a new log, and for a copy in a forked process."""
        self._pending: deque[Callable[[], str]] = deque()
        self._brought: OrderedDict[MemoryId, str] = OrderedDict()
        self._writing = threading.Lock()
        self._starting = threading.Lock()
        self._thread = None

    def _run(self) -> None:
        while self._write_at_quiet_times():
            pass

    def _write_at_quiet_times(self) -> bool:
        """Wait for traces and write them; False when none came for long."""
        seen = waited = idle = 0
        while waited < LONGEST_WAIT:
            time.sleep(TICK_S)
            pending = len(self._pending)
            idle, waited = (0, waited + 1) if pending else (idle + 1, 0)
            if self._closed or (idle >= IDLE_TICKS and self._ended()):
                self.flush()
                return False
            if pending and (pending == seen or pending >= MANY_PENDING):
                break
            seen = pending
        self.flush()
        return True

    def _ended(self) -> bool:
        """Whether the thread may end: nothing has come in the meantime."""
        with self._starting:
            if self._pending:
                return False
            self._thread = None
            return True

    def _taken_lines(self) -> deque[bytes]:
        lines: deque[bytes] = deque()
        for _ in range(len(self._pending)):
            make = self._pending.popleft()
            try:
                lines.append(f"{make()}\n".encode("ascii"))
            except Exception as error:
                self._lose(1, error)
        return lines

    def _line(self, recall: Recall, block: str | None) -> str:
        policy = self._policies.get(recall.trace.policy.rpartition(" ")[2])
        if recall.chosen:
            self._note_brought(recall)
        return to_json(recall, with_text=self._with_text, policy=policy, block=block)

    def _note_brought(self, recall: Recall) -> None:
        """Remember which recall brought a memory, for feedback that does not say."""
        name = recall_id(recall)
        for memory in recall.memories:
            self._brought[memory.id] = name
            self._brought.move_to_end(memory.id)
        while len(self._brought) > MOST_BROUGHT:
            self._brought.popitem(last=False)

    def _lose(self, count: int, error: Exception) -> None:
        with self._starting:
            is_first = not self.lost
            self.lost += count
        if is_first:
            logger.warning(
                "Traces cannot be written to %s (%s). Recalls go on; TraceLog.lost counts.",
                *(self.path, described(error)),
            )


def read_log(path: str | Path) -> Iterator[dict[str, Any]]:
    """The records of a log and of what was rotated out, the oldest first.

    Lines that cannot be read are left out, and a warning says how many.

    Raises:
        InputError: There is no such log.
    """
    source = Path(path).absolute()
    _flush_open(source)
    if not files(source):
        raise InputError(f"There is no log of traces at {source}. Check the path.")
    return records(source)


def erase(path: str | Path, namespace: Namespace, key: str | None = None) -> int:
    """Remove what a log holds of a namespace and all below it, or of one memory.

    Of a namespace every trace that looked into it goes. Of one memory only what the traces say of
    it goes, and the blocks it may be in. Each file is replaced as a whole. Lines that cannot be
    read go too: nobody can say what is in them.

    Returns:
        How many records were removed or changed.
    """
    source = Path(path).absolute()
    _flush_open(source)
    with locked(source):
        return sum(rewrite(file, tuple(namespace), key) for file in files(source))


def both(*sinks: Sink) -> Fan:
    """One sink that hands every recall to several."""
    return Fan(sinks)


class Fan:
    """Several sinks as one; a fault of one does not keep a recall from the others."""

    def __init__(self, sinks: Iterable[Sink]) -> None:
        self._sinks = tuple(sinks)
        self._failed: set[int] = set()

    def __call__(self, recall: Recall) -> None:
        """Hand a recall to every sink."""
        for i, sink in enumerate(self._sinks):
            try:
                sink(recall)
            except Exception as fault:
                if i not in self._failed:
                    self._failed.add(i)
                    logger.warning("A sink of traces failed; recalls go on: %s", described(fault))

    def feedback(self, namespace: Namespace, key: str, good: bool) -> None:
        """Hand what came of a memory to every sink that takes it."""
        for sink in self._sinks:
            tell = getattr(sink, "feedback", None)
            if tell is not None:
                tell(namespace, key, good)

    def erase(self, namespace: Namespace, key: str | None = None) -> int:
        """Remove what the sinks hold of a namespace or of one memory, where they can."""
        erasers = (getattr(sink, "erase", None) for sink in self._sinks)
        return sum(erase(namespace, key) for erase in erasers if erase is not None)


# --- open logs ------------------------------------------------------------------------------------


def _check_settings(path: Path, max_bytes: int, keep: int) -> None:
    for name, held, least in (("max_bytes", max_bytes, 1), ("keep", keep, 0)):
        if isinstance(held, bool) or not isinstance(held, int) or held < least:
            raise ConfigurationError(
                f"{name} must be a whole number of at least {least}, got {held!r}."
            )
    if not path.parent.is_dir() or path.is_dir():
        raise ConfigurationError(
            f"A log of traces needs a file in a folder that exists, got {path}. Make the folder."
        )


_open_logs: set[TraceLog] = set()


def _flush_open(path: Path) -> None:
    """Reading or erasing a log in this process includes what is pending."""
    for log in list(_open_logs):
        if log.path == path:
            log.flush()


@atexit.register
def _flush_all() -> None:
    for log in list(_open_logs):
        log.flush()


def _forget_pending() -> None:
    # The parent writes what was pending; its threads and whatever they had locked stay with it.
    for log in _open_logs:
        log._start_afresh()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pending)
