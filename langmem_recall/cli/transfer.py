"""`langmem-recall export` and `import`: memories as JSON lines and back."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, cast

import typer

from langmem_recall.cli.inputs import (
    EmbeddingsChoice,
    Target,
    Within,
    all_items,
    load_embedder,
    open_store,
    parse_namespace,
    shown,
)
from langmem_recall.cli.output import AsJson, Tick, deliver, note, progress, replaced
from langmem_recall.errors import InputError
from langmem_recall.types import SIDECAR_ROOT, Namespace

if TYPE_CHECKING:
    from langgraph.store.base import BaseStore

PUTS_PER_BATCH = 256


def export_command(
    store: Target,
    namespace: Within = None,
    vectors: Annotated[
        bool, typer.Option("--vectors", help="Also write vectors (LocalStore only).")
    ] = False,
    as_json: AsJson = False,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="JSONL to write; stdout without it."),
    ] = None,
) -> None:
    """Write all memories as JSON lines, sorted by namespace and key.

    A file is complete or not there at all. How often memories were used is not exported.
    """
    prefix = parse_namespace(namespace)
    if output is not None and Path(store).exists() and output.resolve() == Path(store).resolve():
        raise InputError(f"{output} is the store itself. Name another file to export to.")
    with open_store(store) as opened, progress("exporting") as tick:
        if output is None:
            _export(opened, sys.stdout, prefix, vectors, tick)
            return
        with replaced(output) as fresh, fresh.open("w", encoding="utf-8", newline="\n") as lines:
            count = _export(opened, lines, prefix, vectors, tick)
    record = {"store": shown(store), "memories": count, "output": str(output)}
    line = f"{count:,} memories of {shown(store)} are in {output}."
    deliver(record, lambda screen: screen.print(line, soft_wrap=True), as_json)


def import_command(
    source: Annotated[
        str, typer.Argument(metavar="FILE", help="What export wrote; - reads from stdin.")
    ],
    store: Target,
    embeddings: EmbeddingsChoice = None,
    create: Annotated[
        bool, typer.Option("--create", help="Make the store where there is none.")
    ] = False,
    judge_anew: Annotated[
        bool,
        typer.Option("--judge-anew", help="Take no decisions and approvals over from the file."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Read memories from JSON lines; one of the same namespace and key is replaced.

    A line that cannot be read stops the import before anything is stored. Texts without vectors are
    embedded.
    """
    try:
        text = sys.stdin.read() if source == "-" else Path(source).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{source} cannot be read: {error}. Pass what export wrote.") from error
    embedder = load_embedder(embeddings)
    with open_store(store, embedder, create) as opened, progress("importing") as tick:
        count = _import(opened, text.split("\n"), not judge_anew, tick)
    record = {"store": shown(store), "memories": count, "input": source}
    line = f"{count:,} memories were imported into {shown(store)}."
    deliver(record, lambda screen: screen.print(line, soft_wrap=True), as_json)


def _export(
    store: BaseStore, target: IO[str], namespace: Namespace, vectors: bool, tick: Tick
) -> int:
    from langmem_recall.stores.local.store import LocalStore
    from langmem_recall.stores.transfer import export_jsonl

    lines = _CountedLines(target, tick)
    if isinstance(store, LocalStore):
        return export_jsonl(store, cast(IO[str], lines), namespace, vectors)
    if vectors:
        raise InputError("--vectors is for the file of a LocalStore. Leave it out: import embeds.")
    from langmem_recall.flows.effects import Host, run
    from langmem_recall.flows.quarantine import Quarantine
    from langmem_recall.guard.judge import default_guard

    decisions = run(Quarantine(default_guard, 0.0).below(namespace), Host(store, store))
    memories = sorted(all_items(store, namespace), key=lambda item: (item.namespace, item.key))
    for item in memories:
        record = item.dict()
        record.pop("score", None)
        if decision := decisions.get((item.namespace, item.key)):
            record["decision"] = decision.to_dict()
        lines.write(json.dumps(record, ensure_ascii=False, sort_keys=True) + "\n")
    return len(memories)


class _CountedLines:
    """A file that reports how many lines were written to it."""

    def __init__(self, target: IO[str], tick: Tick) -> None:
        self._target, self._tick, self._written = target, tick, 0

    def write(self, line: str) -> None:
        """Write a line."""
        self._target.write(line)
        self._written += 1
        self._tick(self._written, None)


def _import(store: BaseStore, lines: Sequence[str], decisions: bool, tick: Tick) -> int:
    from langgraph.store.base import PutOp

    from langmem_recall.guard.judge import default_guard
    from langmem_recall.memory.value import TEXT_FIELDS
    from langmem_recall.stores.local.store import LocalStore
    from langmem_recall.stores.transfer import import_jsonl, read_jsonl

    source = cast(IO[str], iter(lines))
    if isinstance(store, LocalStore):
        return import_jsonl(store, source, decisions=decisions)
    with LocalStore(index=False) as scratch:
        # Every line is checked before the first is stored.
        read = read_jsonl(scratch, source, default_guard, decisions).values()
    puts, count = [], 0
    # Decisions before the memories that they are about.
    for put in sorted(read, key=lambda put: put.namespace[0] != SIDECAR_ROOT):
        index = put.indexed
        if index is not False:
            # The field a memory's text is in; None leaves the choice to the store.
            texts = [name for name in TEXT_FIELDS if isinstance(put.value.get(name), str)]
            index = list(index or texts[:1]) or None
        puts.append(PutOp(put.namespace, put.key, dict(put.value), index, put.ttl_minutes))
        count += put.namespace[0] != SIDECAR_ROOT
    for start in range(0, len(puts), PUTS_PER_BATCH):
        store.batch(puts[start : start + PUTS_PER_BATCH])
        tick(min(start + PUTS_PER_BATCH, len(puts)), len(puts))
    note("This store keeps its own times of creation; written_at is kept where a memory has it.")
    return count
