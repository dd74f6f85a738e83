"""A LocalStore as JSON lines and back: readable, one memory a line, nothing lost."""

from __future__ import annotations

import base64
import json
import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import numpy as np
from langgraph.store.base import PutOp

from langmem_recall.errors import InputError, StoreError
from langmem_recall.flows.quarantine import (
    VERDICT,
    Decision,
    decide,
    digest_of,
    quarantined_value,
)
from langmem_recall.flows.read import POLICIES
from langmem_recall.guard.judge import Guard, allow_all, default_guard
from langmem_recall.stores.local.ops import check_op
from langmem_recall.stores.local.rows import (
    Record,
    bounds,
    decode_namespace,
    find_records,
    read_meta,
    to_datetime,
    to_microseconds,
)
from langmem_recall.stores.local.store import LocalStore
from langmem_recall.stores.local.writer import Put, new_put
from langmem_recall.stores.writes import WAITING
from langmem_recall.types import SIDECAR_ROOT, MemoryId, Namespace

FORMAT = "langmem-recall"
VERSION = 1
_CHUNK = 500

PathOrFile = str | Path | IO[str]


def export_jsonl(
    store: LocalStore,
    target: PathOrFile,
    namespace: Namespace | None = None,
    vectors: bool = False,
) -> int:
    """Write all memories at or below a namespace, sorted by name; returns how many.

    What the guard bars is written too, each with the decision about it.

    Args:
        store: The store to read, as it stands at one moment.
        target: A path or an open text file.
        namespace: None: the whole store.
        vectors: Also write vectors, with a first line that names their embedder.
    """
    prefix = tuple(namespace or ())
    with store._file.loading() as connection, _opened(target, "w") as lines:
        if vectors:
            lines.write(_line(_header(read_meta(connection))))
        decisions = {
            (decode_namespace(record.namespace)[len(VERDICT) :], record.key): record.decoded()
            for record in _sorted_records(connection, (*VERDICT, *prefix))
        }
        count = 0
        for record in _sorted_records(connection, prefix):
            home = decode_namespace(record.namespace)
            # The secret of nonces and what the embedder measures stay with the store; decisions go
            # with the memories they are about.
            if home[:1] == (SIDECAR_ROOT,) and home[: len(POLICIES)] != POLICIES:
                continue
            told = _told(record) | _told_vectors(connection, record, vectors)
            if decision := decisions.get((home, record.key)):
                told["decision"] = decision
            lines.write(_line(told))
            count += home[:1] != (SIDECAR_ROOT,)
    return count


def import_jsonl(
    store: LocalStore,
    source: PathOrFile,
    guard: Guard = default_guard,
    *,
    decisions: bool = True,
) -> int:
    """Read what `export_jsonl` wrote, all or nothing; returns how many memories came in.

    A memory of the same namespace and key is replaced, unless the guard bars the new text: that
    one waits beside it. Vectors are taken over when their embedder is the store's, and refused
    otherwise; without vectors the texts are embedded.

    Args:
        store: The store to write to.
        source: A path or an open text file.
        guard: Judges every text about which the file brings no decision. What it does not allow
            comes in quarantined, so that nothing is lost.
        decisions: Take over what was decided and approved where the file was written. False for a
            file that you do not trust as you trust the store: everything is judged anew.
    """
    puts = read_jsonl(store, source, guard, decisions)
    store._commit(list(puts.values()), [])
    return sum(home[:1] != (SIDECAR_ROOT,) for home, _ in puts)


def read_jsonl(
    store: LocalStore, source: PathOrFile, guard: Guard, decisions: bool = True
) -> dict[MemoryId, Put]:
    """What an import would write; InputError for a line that cannot be read."""
    dims: int | None = None
    told: dict[MemoryId, tuple[int, dict[str, Any]]] = {}
    with _opened(source, "r") as lines:
        for number, line in enumerate(lines, 1):
            record = _parsed(line, number)
            if number == 1 and record.get("format") == FORMAT:
                dims = _accepted_dims(store, record)
            elif record:
                told[_id(record, number)] = number, record
    puts: dict[MemoryId, Put] = {}
    for memory_id, (number, record) in told.items():
        home, key = memory_id
        if home[: len(VERDICT)] == VERDICT:
            continue
        if home[:1] == (SIDECAR_ROOT,) and home[: len(POLICIES)] != POLICIES:
            raise _malformed(number, f"{home!r} is the store's own and cannot be imported")
        put = _read_put(record, number, dims)
        puts[memory_id] = put
        if home[:1] != (SIDECAR_ROOT,) and guard is not allow_all:
            # Version 0.1 wrote decisions as lines of their own.
            _, apart = told.get(((*VERDICT, *home), key), (0, {}))
            brought = record.get("decision", apart.get("value")) if decisions else None
            _judge(put, brought, guard, store, puts)
    return puts


def _judge(
    put: Put, brought: Any, guard: Guard, store: LocalStore, puts: dict[MemoryId, Put]
) -> None:
    """Add the decision about a memory; a barred one waits beside the memory it would replace."""
    memory = put.memory(put.created_at)
    decision = Decision.from_dict(brought) if isinstance(brought, Mapping) else None
    if decision is None or decision.digest != digest_of(memory):
        decision, _ = decide(guard, memory)
    present = store.get(put.namespace, put.key, refresh_ttl=False) if decision.bars else None
    if present is not None and present.value != put.value:
        del puts[put.id]
        number = 1
        while (home := (put.namespace, f"{put.key}{WAITING}{number}")) in puts or store.get(*home):
            number += 1
        value = quarantined_value(put.value, decision.reasons, replaces=put.key)
        waiting = new_put(PutOp(*home, value, False), put.updated_at)
        waiting.is_import = True
        puts[home] = waiting
    elif decision.bars or brought is not None:
        op = PutOp((*VERDICT, *put.namespace), put.key, decision.to_dict(), False)
        puts[op.namespace, op.key] = new_put(op, put.updated_at)


def _id(told: dict[str, Any], number: int) -> MemoryId:
    try:
        return tuple(told["namespace"]), told["key"]
    except (KeyError, TypeError) as error:
        raise _malformed(number, error) from error


def _sorted_records(connection: sqlite3.Connection, prefix: Namespace) -> Iterator[Record]:
    rows = connection.execute(
        "SELECT namespace, key, id FROM items WHERE namespace >= ? AND namespace < ?",
        bounds(prefix),
    )
    # Sorted as labels: the encoded form has quotes in it, which sort differently.
    named = ((decode_namespace(code), key, item_id) for code, key, item_id in rows)
    names = sorted(named)
    for start in range(0, len(names), _CHUNK):
        some = [name[2] for name in names[start : start + _CHUNK]]
        found = find_records(connection, some)
        yield from (found[item_id] for item_id in some)


def _header(meta: dict[str, Any]) -> dict[str, Any]:
    known = {name: meta.get(name) for name in ("dims", "embedder")}
    return {"format": FORMAT, "version": VERSION, **known}


def _told(record: Record) -> dict[str, Any]:
    told: dict[str, Any] = {
        "namespace": list(decode_namespace(record.namespace)),
        "key": record.key,
        "value": record.decoded(),
        "created_at": to_datetime(record.created_at).isoformat(),
        "updated_at": to_datetime(record.updated_at).isoformat(),
    }
    if record.expires_at is not None:
        told["expires_at"] = to_datetime(record.expires_at).isoformat()
    if record.ttl_minutes is not None:
        told["ttl_minutes"] = record.ttl_minutes
    if record.indexed != "null":
        told["index"] = json.loads(record.indexed)
    return told


def _told_vectors(
    connection: sqlite3.Connection, record: Record, is_wanted: bool
) -> dict[str, str]:
    if not is_wanted:
        return {}
    row = connection.execute("SELECT vectors FROM vectors WHERE id = ?", (record.id,)).fetchone()
    return {"vectors": base64.b64encode(row[0]).decode()} if row and row[0] else {}


def _line(told: dict[str, Any]) -> str:
    return json.dumps(told, ensure_ascii=False, sort_keys=True) + "\n"


def _parsed(line: str, number: int) -> dict[str, Any]:
    if not line.strip():
        return {}
    try:
        told = json.loads(line)
    except ValueError as error:
        raise _malformed(number, error) from error
    if not isinstance(told, dict):
        raise _malformed(number, f"got {type(told).__name__} instead of an object")
    return told


def _accepted_dims(store: LocalStore, header: dict[str, Any]) -> int | None:
    if header.get("version") != VERSION:
        raise StoreError(
            f"The export has version {header.get('version')}, this langmem-recall reads {VERSION}. "
            "Nothing was imported; upgrade langmem-recall."
        )
    embedder, dims = header.get("embedder"), header.get("dims")
    configured = store._embedder.identity if store._embedder else None
    if embedder is None:
        return None
    if embedder != configured or not isinstance(dims, int) or dims < 1:
        raise StoreError(
            f"The export has vectors of {embedder} ({dims} dimensions), the store's embedder is "
            f"{configured}. Nothing was imported; open the store with that embedder, or export "
            "without vectors."
        )
    return dims


def _read_put(told: dict[str, Any], number: int, dims: int | None) -> Put:
    try:
        op = PutOp(tuple(told["namespace"]), told["key"], told["value"], told.get("index"))
        check_op(op)
        put = new_put(op._replace(ttl=told.get("ttl_minutes")), now=0)
        put.created_at = _moment(told["created_at"])
        put.updated_at = _moment(told["updated_at"])
        put.expires_at = _moment(told["expires_at"]) if "expires_at" in told else None
        put.is_import = True
        if dims and "vectors" in told:
            put.dims = dims
            put.vectors = _read_vectors(told["vectors"], dims)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise _malformed(number, error) from error
    return put


def _moment(told: str) -> int:
    moment = datetime.fromisoformat(told)
    return to_microseconds(moment if moment.tzinfo else moment.replace(tzinfo=UTC))


def _read_vectors(told: str, dims: int) -> bytes:
    blob = base64.b64decode(told, validate=True)
    if not blob or len(blob) % (4 * dims) or not np.isfinite(np.frombuffer(blob, "<f4")).all():
        raise ValueError(f"vectors must be finite float32 in multiples of {dims}")
    return blob


def _malformed(number: int, problem: object) -> InputError:
    return InputError(
        f"Line {number} cannot be read as a memory: {problem!r:.200}. Nothing was imported; "
        "correct the line or leave it out."
    )


@contextmanager
def _opened(path: PathOrFile, mode: str) -> Iterator[IO[str]]:
    if isinstance(path, str | Path):
        # A new file is its owner's alone, as the store is.
        def private(name: str, flags: int) -> int:
            return os.open(name, flags, 0o600)

        with open(path, mode, encoding="utf-8", newline="\n", opener=private) as lines:
            yield lines
    else:
        yield path
