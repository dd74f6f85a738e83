"""The file of a LocalStore: connections, schema, transactions, and errors that say what to do."""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from importlib.resources import files
from pathlib import Path
from sqlite3 import SQLITE_CANTOPEN, SQLITE_READONLY

from langmem_recall.errors import InputError, StoreError

logger = logging.getLogger(__name__)

MEMORY = ":memory:"
APPLICATION_ID = 0x4C4D5243
"""Marks a file as ours; "LMRC" in its header."""
SCHEMA_VERSION = 2
BUSY_SECONDS = 30.0

_SCHEMA = files(__package__).joinpath("schema.sql").read_text("utf-8")
_MIGRATIONS = {1: "ALTER TABLE usage ADD COLUMN merit INTEGER NOT NULL DEFAULT 0"}
"""What brings a file from a schema version to the next; nothing stored is lost."""


class LocalFile:
    """One SQLite file: a writer, a reader beside it, and whole-file snapshots for loading."""

    def __init__(self, path: str | Path) -> None:
        self.is_memory = str(path) == MEMORY
        # A process may change its folder; the file stays where it was opened.
        self.path = MEMORY if self.is_memory else os.path.abspath(path)
        self.is_read_only = False
        self._is_immutable = False
        self._closed = False
        self._seen = -1
        self._commits = 0
        if not self.is_memory:
            # One that exists keeps its mode; why one cannot be made, SQLite says below.
            with suppress(OSError):
                _create_private(self.path)
        # Before SQLite opens it: a file that is replaced in between is refused, not mistaken.
        self._stamp = self._read_stamp()
        self._write_lock = self._read_lock = threading.RLock()
        with _translated(self.path):
            self._writer = self._reader = self._open()
            if not self.is_memory:
                self._reader = _connect(self.path, self._is_immutable)
                self._read_lock = threading.RLock()

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction that sees the latest state and is on disk when this returns."""
        self._check_open()
        with self._write_lock, _translated(self.path):
            if self.is_read_only:
                raise sqlite3.OperationalError("it is open as a readonly database")
            with _transaction(self._writer, "BEGIN IMMEDIATE"):
                self.check()
                yield self._writer
            self._commits += 1
            # A file that went meanwhile took the write along: that must not pass for written.
            self.check()

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """One snapshot for a few short queries."""
        self._check_open()
        with self._read_lock, _translated(self.path):
            is_nested = self._reader.in_transaction
            with nullcontext() if is_nested else _transaction(self._reader, "BEGIN"):
                yield self._reader

    @contextmanager
    def loading(self) -> Iterator[sqlite3.Connection]:
        """One snapshot for a long read, which other readers do not wait for."""
        if self.is_memory:
            with self.reading() as connection:
                yield connection
            return
        with _translated(self.path):
            self.check()
            connection = _connect(self.path, self._is_immutable)
            with closing(connection), _transaction(connection, "BEGIN"):
                yield connection

    def vacuum(self) -> bool:
        """Rewrite the file without its free space and empty its log; False: a reader held it up."""
        # Readers go on meanwhile: they see the file as it was until it is rewritten.
        with self._write_lock, _translated(self.path):
            self.check()
            self._writer.execute("VACUUM")
            # Waits for those still at it, in any process, as long as a write waits for a lock.
            busy = self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
            self._commits += 1
        return not busy

    def backup(self, target: str | Path) -> None:
        """Copy the file as it stands at one moment; others may go on writing."""
        path = os.path.abspath(target)
        try:
            _create_private(path)
        except OSError as error:
            raise InputError(
                f"A backup cannot be made at {path}: {error.strerror}. Nothing is overwritten; "
                "name a new file in a folder that this process may write to."
            ) from error
        try:
            with self.loading() as source, _translated(path), closing(_connect(path)) as copy:
                source.backup(copy)
        except BaseException:
            os.unlink(path)
            raise

    def version(self) -> tuple[int, int]:
        """Changes with every commit of this and of other processes."""
        self.check()
        with self._read_lock, _translated(self.path):
            (self._seen,) = self._reader.execute("PRAGMA data_version").fetchone()
        return self.seen_version

    @property
    def seen_version(self) -> tuple[int, int]:
        """The version when it was last looked at, but for what this process has written since."""
        return self._seen, self._commits

    def close(self) -> None:
        """Release the file; a second call does nothing."""
        with self._write_lock, self._read_lock:
            self._closed = True
            self._reader.close()
            self._writer.close()

    def check(self) -> None:
        """Refuse a file that was closed, or is no longer the one at its path."""
        self._check_open()
        if self._read_stamp() != self._stamp:
            raise StoreError(
                f"{self.path} was removed, or replaced by another file, after it was opened. What "
                "is read and written here would not be in the file that is there now; close this "
                "store, open it again, and repeat what failed."
            )

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError(f"{self.path} was closed and cannot be used. Open a new LocalStore.")

    def _read_stamp(self) -> tuple[int, ...] | None:
        """What tells the file from another one at its path."""
        try:
            found = os.stat(self.path)
        except OSError:
            return None
        # SQLite does not look for changes in what it was told is immutable.
        contents = (found.st_mtime_ns, found.st_size) if self._is_immutable else ()
        return found.st_dev, found.st_ino, *contents

    def _open(self) -> sqlite3.Connection:
        try:
            connection = self._prepare()
            uses_effective = os.access in os.supports_effective_ids
            is_writable = os.access(self.path, os.W_OK, effective_ids=uses_effective)
            self.is_read_only = not (self.is_memory or is_writable)
        except sqlite3.OperationalError as error:
            is_refused = error.sqlite_errorcode & 0xFF in (SQLITE_READONLY, SQLITE_CANTOPEN)
            # All that was written must be in the file, and nothing left in a log.
            if not (is_refused and _size(self.path) and not _size(f"{self.path}-wal")):
                raise
            # In a folder that takes no log SQLite reads only what it is told never changes.
            self.is_read_only = self._is_immutable = True
            self._stamp = self._read_stamp()
            connection = self._prepare()
        if self.is_read_only:
            logger.warning("%s is open for reading only; uses are not counted.", self.path)
        return connection

    def _prepare(self) -> sqlite3.Connection:
        """A connection to a file that has this version's schema."""
        connection = _connect(self.path, self._is_immutable)
        try:
            is_current = _schema_version(connection, self.path) == SCHEMA_VERSION
            if not self._is_immutable:
                _use_wal(connection)
            if not is_current:
                with _transaction(connection, "BEGIN IMMEDIATE"):
                    # Read again under the lock: another process may have been faster.
                    version = _schema_version(connection, self.path)
                    missing = range(version, SCHEMA_VERSION)
                    steps = [_MIGRATIONS[n] for n in missing] if version else _SCHEMA.split(";")
                    for statement in steps:
                        connection.execute(statement)
                    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        except BaseException:
            connection.close()
            raise
        return connection


def _create_private(path: str) -> None:
    """Make a file that only its owner may read, and SQLite's log with it; it must be new."""
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def _size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:
        return 0


def _connect(path: str, is_immutable: bool = False) -> sqlite3.Connection:
    # Never made anew: a file that is gone must not be mistaken for an empty one.
    how = "immutable=1" if is_immutable else "mode=rw"
    uri = path if path == MEMORY else f"{Path(path).as_uri()}?{how}"
    connection = sqlite3.connect(
        uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
    )
    # FULL, so that an acknowledged write outlives a power cut too: in WAL mode it costs one
    # fsync a transaction, and a batch is one transaction.
    connection.execute("PRAGMA synchronous = FULL")
    # What is deleted is overwritten at once; what the log still holds goes with `vacuum`.
    connection.execute("PRAGMA secure_delete = ON")
    return connection


def _schema_version(connection: sqlite3.Connection, path: str) -> int:
    """The version of our schema, 0 for an empty file; refuses what is not ours."""
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if application == APPLICATION_ID:
        if version > SCHEMA_VERSION:
            raise StoreError(
                f"{path} was written by a newer langmem-recall: schema version {version}, this one "
                f"reads up to {SCHEMA_VERSION}. It was left as it is; upgrade langmem-recall."
            )
        return version
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if application or version or tables:
        raise StoreError(
            f"{path} is not a LocalStore file: another program's SQLite database "
            f"(application id {application}, {tables} tables). It was left as it is; choose "
            "another path."
        )
    return 0


def _use_wal(connection: sqlite3.Connection) -> None:
    """Readers then never wait for the writer; the mode is kept in the file."""
    for attempts_left in range(50, -1, -1):
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            # Changing the mode does not wait for other processes by itself.
            if not attempts_left or "locked" not in str(error):
                raise
            time.sleep(0.02)


@contextmanager
def _transaction(connection: sqlite3.Connection, begin: str) -> Iterator[None]:
    connection.execute(begin)
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # SQLite has rolled back by itself after some errors, a full disk among them.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextmanager
def _translated(path: str) -> Iterator[None]:
    """Turn SQLite's errors into ours: what, got, do."""
    try:
        yield
    except sqlite3.Error as error:
        other = "{path} could not be used: {problem}. Nothing was changed; check the file."
        advice = next((text for mark, text in _ADVICE.items() if mark in str(error)), other)
        raise StoreError(advice.format(path=path, problem=error)) from error


_ADVICE = {
    "not a database": (
        "{path} is not a LocalStore file: {problem}. It was left as it is; choose another path."
    ),
    "malformed": (
        "{path} is not a LocalStore file that can be read: {problem}. It was left as it is; "
        "restore it from a copy or an export."
    ),
    "full": (
        "{path} has no room: {problem}. The write was rolled back and nothing is lost; free "
        "disk space and write again."
    ),
    "readonly": (
        "{path} cannot be written: {problem}. Nothing was changed; give this process write "
        "access to the file and its folder, which SQLite needs for its log."
    ),
    "unable to open": (
        "{path} cannot be opened: {problem}. Create its folder, or give this process access to it "
        "and to the file, and to the log beside it if there is one."
    ),
    "locked": (
        "{path} is busy: {problem} for over 30 s. Nothing was changed; look for a process that "
        "holds it open in a transaction."
    ),
}
