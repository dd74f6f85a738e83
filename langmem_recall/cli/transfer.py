"""`langmem-recall export` and `import`: memories as JSON lines and back."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import IO, Any, Literal, cast

import typer

from langmem_recall.cli.inputs import open_store, parse_namespace, shown
from langmem_recall.cli.output import BAD_NEWS, Result, note, progress, replaced
from langmem_recall.errors import InputError
from langmem_recall.types import Source


def export_command(
    store: str, namespace: str | None = None, vectors: bool = False, output: Path | None = None
) -> Result | None:
    """Write all memories as JSON lines, sorted by namespace and key.

    A file is complete or not there at all. How often memories were used is not exported.
    """
    from langmem_recall.stores.transfer import export_jsonl

    prefix = parse_namespace(namespace)
    if output is not None and Path(store).exists() and output.resolve() == Path(store).resolve():
        raise InputError(f"{output} is the store itself. Name another file to export to.")
    with open_store(store) as opened, progress("exporting"):
        if output is None:
            export_jsonl(opened, sys.stdout, prefix, vectors)
            return None
        with replaced(output) as fresh, fresh.open("w", encoding="utf-8", newline="\n") as lines:
            count = export_jsonl(opened, lines, prefix, vectors)
    record = {"store": shown(store), "memories": count, "output": str(output)}
    return Result(record, f"{count:,} memories of {shown(store)} are in {output}.")


def import_command(
    source: str,
    store: str,
    embeddings: str | None = None,
    create: bool = False,
    judge_anew: bool = False,
    form: Literal["mem0", "records"] | None = None,
    namespace: str | None = None,
    vouched_by: Source = "unknown",
) -> Result:
    """Read memories from JSON lines; one of the same namespace and key is replaced.

    A line that cannot be read stops the import before anything is stored. Texts without vectors are
    embedded. What comes from another system is judged by the guard like any text. Stopped at any
    point, the same command goes on from there. Exit code 1 when it was stopped, or texts still wait
    for the embedder.
    """
    from langmem_recall.stores.backend import backend_of
    from langmem_recall.stores.takeover import converted
    from langmem_recall.stores.transfer import import_jsonl

    if (form is None) != (namespace is None):
        raise InputError("--from and --namespace go together: -n memories/{user_id}.")
    try:
        text = sys.stdin.read() if source == "-" else Path(source).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{source} cannot be read: {error}. Pass what export wrote.") from error
    found = iter(text.split("\n"))
    if form is not None and namespace is not None:
        # All of them before the store is touched.
        found = iter([*converted(text, namespace.split("/"), vouched_by)])
    count = done = 0
    is_stopped = False
    with open_store(store, embeddings, create) as opened:
        try:
            with progress("importing") as tick:

                def stored(number: int, total: int) -> None:
                    nonlocal done
                    done = number
                    tick(number, total)

                knobs: Any = {"decisions": not judge_anew, "progress": stored, "reading": tick}
                count = import_jsonl(opened, cast(IO[str], found), **knobs)
        except KeyboardInterrupt:
            is_stopped = True
        waiting = getattr(opened, "waiting", 0)
        if not backend_of(opened).takes_vectors:
            own_times = "This store keeps its own times of creation"
            note(f"{own_times}; written_at is kept where a memory has it.")
    late = f"{waiting:,} texts wait for the embedder and are found by their words until then."
    notes = [late] if waiting else []
    if is_stopped:
        kept = "All memories are stored" if waiting else f"{done:,} memories are stored"
        for text in (f"Stopped. {kept}; run the same command again to go on.", *notes):
            note(text)
        raise typer.Exit(BAD_NEWS)
    record = {"store": shown(store), "memories": count, "input": source}
    line = f"{count:,} memories were imported into {shown(store)}."
    return Result(record, line, notes, is_bad=waiting > 0)
