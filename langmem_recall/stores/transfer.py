"""A store as JSON lines and back: readable, one memory a line; of a LocalStore nothing is lost."""

from __future__ import annotations

import base64
import json
import os
from collections import ChainMap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from itertools import chain, count
from operator import attrgetter
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
from langgraph.store.base import BaseStore, PutOp

from langmem_recall.errors import InputError, StoreError
from langmem_recall.flows.backend import OnProgress
from langmem_recall.flows.candidates import id_of, listing, memory_of
from langmem_recall.flows.effects import CALLS, Ops, run
from langmem_recall.flows.quarantine import (
    VERDICT,
    Decision,
    Quarantine,
    digest_of,
    quarantined_value,
)
from langmem_recall.flows.read import POLICIES
from langmem_recall.flows.write import WAITING
from langmem_recall.guard.judge import AnyGuard, allow_all, default_guard
from langmem_recall.memory.value import TEXT_FIELDS, fielded, plain_value
from langmem_recall.stores.backend import backend_of, opened
from langmem_recall.stores.local import tables
from langmem_recall.stores.local.store import LocalStore, check_op
from langmem_recall.stores.local.writer import Put, new_put
from langmem_recall.types import SIDECAR_ROOT, MemoryId, Namespace, aware

FORMAT = "langmem-recall"
VERSION = 1
PUTS_PER_BATCH = 256
_TIMES = ("created_at", "updated_at", "expires_at")

PathOrFile = str | Path | IO[str]


def export_jsonl(
    store: BaseStore, target: PathOrFile, namespace: Namespace | None = None, vectors: bool = False
) -> int:
    """Write all memories at or below a namespace, sorted by name; returns how many.

    What the guard bars is written too, each with the decision about it.

    Args:
        store: The store to read; a LocalStore as it stands at one moment.
        target: A path or an open text file.
        namespace: None: the whole store.
        vectors: Also write vectors, with a first line that names their embedder; of a LocalStore.
    """
    prefix, local = tuple(namespace or ()), _local(store)
    if vectors and local is None:
        raise InputError("--vectors is for the file of a LocalStore. Leave it out: import embeds.")
    records = _listed(store, prefix) if local is None else _stored(local, prefix, vectors)
    # Before the target is opened: a store that cannot be read leaves it as it was.
    records = chain([record for record in [next(records, None)] if record], records)
    exported = 0
    with _opened(target, "w") as lines:
        for record in records:
            lines.write(json.dumps(record, ensure_ascii=False, sort_keys=True) + "\n")
            exported += record.get("namespace", [SIDECAR_ROOT])[0] != SIDECAR_ROOT
    return exported


def import_jsonl(
    store: BaseStore,
    source: PathOrFile,
    guard: AnyGuard = default_guard,
    *,
    decisions: bool = True,
    progress: OnProgress | None = None,
    reading: OnProgress | None = None,
) -> int:
    """Read what `export_jsonl` wrote; returns how many memories came in.

    Every line is checked before the first is stored; a LocalStore takes all or nothing, and embeds
    afterwards: stopped in that, the same import goes on with what still waits. A memory of
    the same namespace and key is replaced, unless the guard bars the new text: that one waits
    beside it. Vectors are taken over when their embedder is that of the LocalStore, and refused
    otherwise; without vectors the texts are embedded. Other stores set times of their own.

    Args:
        store: The store to write to.
        source: A path or an open text file.
        guard: Judges every text about which the file brings no decision. What it does not allow
            comes in quarantined, so that nothing is lost.
        decisions: Take over what was decided and approved where the file was written. False for a
            file that you do not trust as you trust the store: everything is judged anew.
        progress: Called after each batch with how many are stored, of a LocalStore embedded, and of
            how many.
        reading: The same while lines are read and judged.
    """
    local = _local(store)
    puts = _read_jsonl(store, local, source, guard, decisions, reading)
    if local is not None:
        local._writer.commit(list(puts.values()), [], embed=False)
        local._writer.embed_all_pending(progress)
    else:
        # Decisions before the memories that they are about.
        ordered = sorted(puts.values(), key=lambda put: put.namespace[0] != SIDECAR_ROOT)
        ops = [_put_op(put) for put in ordered]
        backend, host = opened(store)
        host = replace(host, store=store, recover=backend.recover)
        for start in range(0, len(ops), PUTS_PER_BATCH):
            some = ops[start : start + PUTS_PER_BATCH]
            own = [op for op in some if op.namespace[0] == SIDECAR_ROOT]
            if own:
                host.perform(Ops(own, sidecar=True))
            host.perform(Ops([op for op in some if op not in own], as_batch=True))
            if progress is not None:
                progress(min(start + PUTS_PER_BATCH, len(ops)), len(ops))
    return sum(home[:1] != (SIDECAR_ROOT,) for home, _ in puts)


def _local(store: BaseStore) -> LocalStore | None:
    """The store, where it takes times and vectors as they are."""
    return cast(LocalStore, store) if backend_of(store).takes_vectors else None


def _listed(store: BaseStore, prefix: Namespace) -> Iterator[dict[str, Any]]:
    _, host = opened(store)
    decisions = run(Quarantine(default_guard, 0.0).below(prefix), host)
    for item in sorted(run(listing(prefix), host), key=id_of):
        if item.namespace[0] != SIDECAR_ROOT:
            # Without the field that only this store needs.
            fields = item.dict() | {"value": plain_value(memory_of(item))}
            fields.pop("score", None)
            decision = decisions.get(id_of(item))
            yield fields | ({"decision": decision.to_dict()} if decision else {})


def _stored(store: LocalStore, prefix: Namespace, vectors: bool) -> Iterator[dict[str, Any]]:
    """A LocalStore as it stands at one moment, with times and vectors as they are."""
    with store._file.loading() as connection:
        if vectors:
            meta = tables.read_meta(connection)
            about = {name: meta.get(name) for name in ("dims", "embedder")}
            yield {"format": FORMAT, "version": VERSION, **about}
        rulings = tables.list_records(connection, (*VERDICT, *prefix), None)
        decisions = {(it.memory_id[0][len(VERDICT) :], it.key): it.decoded() for it in rulings}
        # Sorted as labels: the encoded form has quotes in it, which sort differently.
        records = tables.list_records(connection, prefix, None)
        for record in sorted(records, key=attrgetter("memory_id")):
            home, key = record.memory_id
            # The secret of nonces and what the embedder measures stay with the store; decisions go
            # with the memories they are about.
            if home[:1] == (SIDECAR_ROOT,) and home[: len(POLICIES)] != POLICIES:
                continue
            fields: dict[str, Any] = {
                "namespace": list(home),
                "key": key,
                "value": record.decoded(),
                "ttl_minutes": record.ttl_minutes,
                "index": json.loads(record.indexed),
                "decision": decisions.get((home, key)),
            }
            for name in _TIMES:
                time = getattr(record, name)
                fields[name] = None if time is None else tables.to_datetime(time).isoformat()
            if vectors:
                query = "SELECT vectors FROM vectors WHERE id = ?"
                ((blob,),) = connection.execute(query, (record.id,)).fetchall() or [(None,)]
                fields["vectors"] = base64.b64encode(blob).decode() if blob else None
            yield {name: field for name, field in fields.items() if field is not None}


def _put_op(put: Put) -> PutOp:
    value, index = dict(put.value), put.indexed
    if index is None:
        value, index = fielded(put.memory())
    if index is not False:
        # The field a memory's text is in; None leaves the choice to the store.
        texts = [name for name in TEXT_FIELDS if isinstance(put.value.get(name), str)]
        index = list(index or texts[:1]) or None
    return PutOp(put.namespace, put.key, value, index, put.ttl_minutes)


def _read_jsonl(
    store: BaseStore,
    local: LocalStore | None,
    source: PathOrFile,
    guard: AnyGuard,
    decisions: bool,
    reading: OnProgress | None,
) -> dict[MemoryId, Put]:
    """What an import would write; InputError for a line that cannot be read."""
    dims: int | None = None
    records: dict[MemoryId, tuple[int, dict[str, Any]]] = {}
    with _opened(source, "r") as lines:
        for number, line in enumerate(lines, 1):
            with _reporting(number):
                record = json.loads(line) if line.strip() else {}
                if not isinstance(record, dict):
                    raise TypeError(f"{type(record).__name__} instead of an object")
                if number == 1 and record.get("format") == FORMAT:
                    dims = _accepted_dims(local, record)
                elif record:
                    records[tuple(record["namespace"]), record["key"]] = number, record
    puts: dict[MemoryId, Put] = {}
    taken = ChainMap[MemoryId, Any](puts, records)
    for place, ((home, key), (number, record)) in enumerate(records.items()):
        if reading is not None and place % PUTS_PER_BATCH == 0:
            reading(place, len(records))
        if home[: len(VERDICT)] == VERDICT:
            continue
        is_own = home[:1] == (SIDECAR_ROOT,)
        with _reporting(number):
            if is_own and home[: len(POLICIES)] != POLICIES:
                raise ValueError(f"{home!r} is the store's own and cannot be imported")
            put = puts[home, key] = _read_put(record, dims)
        if not is_own and guard is not allow_all:
            # Version 0.1 wrote decisions as lines of their own.
            _, apart = records.get(((*VERDICT, *home), key), (0, {}))
            brought = record.get("decision", apart.get("value")) if decisions else None
            _judge(put, brought, guard, store, taken)
    return puts


def _judge(
    put: Put, brought: Any, guard: AnyGuard, store: BaseStore, puts: ChainMap[MemoryId, Any]
) -> None:
    """Add the decision about a memory; a barred one waits beside the memory it would replace.

    Keys of lines that are still to come are in the second map of `puts`: they are not free.
    """
    memory = put.memory()
    decision = Decision.from_dict(brought) if isinstance(brought, Mapping) else None
    if decision is None or decision.digest != digest_of(memory):
        decision = run(Quarantine(guard, 0.0).decide(memory), CALLS)
    present = store.get(put.namespace, put.key, refresh_ttl=False) if decision.bars else None
    if present is not None and present.value != put.value:
        del puts[put.id]
        keys = (f"{put.key}{WAITING}{number}" for number in count(1))
        homes = ((put.namespace, key) for key in keys)
        home = next(it for it in homes if it not in puts and not store.get(*it, refresh_ttl=False))
        value = quarantined_value(put.value, decision.reasons, replaces=put.key)
        puts[home] = new_put(PutOp(*home, value, False), put.updated_at)
        puts[home].is_import = True
    elif decision.bars or decision.masks or brought is not None:
        op = PutOp((*VERDICT, *put.namespace), put.key, decision.to_dict(), False)
        puts[op.namespace, op.key] = new_put(op, put.updated_at)


def _accepted_dims(store: LocalStore | None, header: dict[str, Any]) -> int | None:
    if header.get("version") != VERSION:
        raise StoreError(
            f"The export has version {header.get('version')}, this langmem-recall reads {VERSION}. "
            "Nothing was imported; upgrade langmem-recall."
        )
    embedder, dims = header.get("embedder"), header.get("dims")
    configured = store._embedder.identity if store and store._embedder else None
    if embedder is None:
        return None
    if embedder != configured or not isinstance(dims, int) or dims < 1:
        raise StoreError(
            f"The export has vectors of {embedder} ({dims} dimensions), the store's embedder is "
            f"{configured}. Nothing was imported; open the store with that embedder, or export "
            "without vectors."
        )
    return dims


def _read_put(record: dict[str, Any], dims: int | None) -> Put:
    op = PutOp(tuple(record["namespace"]), record["key"], record["value"], record.get("index"))
    check_op(op)
    put = new_put(op._replace(ttl=record.get("ttl_minutes")), now=0)
    for name in _TIMES[: 3 if "expires_at" in record else 2]:
        time = cast(datetime, aware(datetime.fromisoformat(record[name])))
        setattr(put, name, tables.to_microseconds(time))
    put.is_import = True
    if dims and "vectors" in record:
        blob = base64.b64decode(record["vectors"], validate=True)
        if not blob or len(blob) % (4 * dims) or not np.isfinite(np.frombuffer(blob, "<f4")).all():
            raise ValueError(f"vectors must be finite float32 in multiples of {dims}")
        put.dims, put.vectors = dims, blob
    return put


@contextmanager
def _reporting(number: int) -> Iterator[None]:
    """Name the line that something is wrong with."""
    try:
        yield
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise InputError(
            f"Line {number} cannot be read as a memory: {error!r:.200}. Nothing was imported; "
            "correct the line or leave it out."
        ) from error


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
