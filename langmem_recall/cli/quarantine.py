"""`langmem-recall quarantine`: what the guard withholds, to be looked at, approved or rejected."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.text import Text

from langmem_recall.cli.inputs import (
    EmbeddingsChoice,
    Target,
    load_embedder,
    open_store,
    parse_namespace,
    shown,
    told_namespace,
)
from langmem_recall.cli.output import AsJson, Output, deliver, note, table
from langmem_recall.errors import InputError
from langmem_recall.observe.show import printable

if TYPE_CHECKING:
    from langmem_recall.stores.recall_store import RecallStore
    from langmem_recall.types import Memory

Action = Literal["list", "show", "approve", "reject"]
EXCERPT = 100
"""Characters of a text in the table."""


def quarantine_command(
    action: Annotated[
        Action,
        typer.Argument(
            help="list: all that waits. show: one text with its spans marked. approve: let it be "
            "recalled whole. reject: delete it.",
        ),
    ],
    store: Target,
    key: Annotated[
        str | None, typer.Argument(metavar="KEY", help="Which memory; not for list.")
    ] = None,
    namespace: Annotated[
        str | None,
        typer.Option(
            "--namespace",
            "-n",
            metavar="A/B",
            help="Whose memories, with all below; a JSON list where a label has a slash in it.",
        ),
    ] = None,
    embeddings: EmbeddingsChoice = None,
    as_json: AsJson = False,
    output: Output = None,
) -> None:
    """Look at what the guard withholds, whole texts and parts of them, and decide about it.

    approve takes the words as they are now: nothing is approved that changed meanwhile. reject
    deletes the memory; what it would have replaced stays in force.
    """
    if (key is None) != (action == "list"):
        problem = "takes no key" if key else "needs the key of a memory, as list shows it"
        raise InputError(f"quarantine {action} {problem}.")
    prefix = parse_namespace(namespace)
    with _opened(store, embeddings) as opened:
        waiting = _waiting(opened, prefix)
        if action == "list":
            record = {"store": shown(store), "waiting": [_record_of(memory) for memory in waiting]}
            deliver(record, lambda screen: _show_list(screen, record), as_json, output)
            return
        memory = _named(waiting, str(key), prefix)
        if action == "approve":
            opened.approve(memory.namespace, memory.key, text=memory.text)
        elif action == "reject":
            opened.delete(memory.namespace, memory.key)
    record = _record_of(memory) | {"action": action, "text": memory.text}
    deliver(record, lambda screen: _show_memory(screen, memory), as_json, output)
    if action != "show":
        note(f"{memory.key} is {'approved' if action == 'approve' else 'deleted'}.")


@contextmanager
def _opened(store: str, embeddings: str | None) -> Iterator[RecallStore]:
    from langmem_recall.stores.recall_store import RecallStore

    with (
        open_store(store, load_embedder(embeddings)) as inner,
        closing(RecallStore(inner, allow_empty_namespace=True)) as opened,
    ):
        yield opened


def _waiting(store: RecallStore, prefix: tuple[str, ...]) -> list[Memory]:
    if prefix:
        return store.quarantined(prefix)
    roots = dict.fromkeys(place[:1] for place in store.list_namespaces(max_depth=1))
    return [memory for root in roots for memory in store.quarantined(root)]


def _named(waiting: Sequence[Memory], key: str, prefix: tuple[str, ...]) -> Memory:
    """The one memory of that key; InputError where there is none, or more than one."""
    found = [memory for memory in waiting if memory.key == key]
    if len(found) == 1:
        return found[0]
    if found:
        places = ", ".join(told_namespace(memory.namespace) for memory in found)
        raise InputError(f"{key!r} waits in several namespaces: {places}. Name one with -n.")
    where = f" in {told_namespace(prefix)}" if prefix else ""
    raise InputError(f"No memory {key!r} waits for approval{where}. `quarantine list` shows them.")


def _record_of(memory: Memory) -> dict[str, Any]:
    pending = memory.value.get("quarantine")
    pending = pending if isinstance(pending, Mapping) else {}
    return {
        "namespace": list(memory.namespace),
        "key": memory.key,
        "status": memory.status,
        "source": memory.source,
        "reasons": list(pending.get("reasons", ())),
        "spans": [list(span) for span in pending.get("spans", ())],
        "replaces": pending.get("replaces"),
    }


def _show_list(screen: Console, record: Mapping[str, Any]) -> None:
    rows = [
        (
            row["status"],
            told_namespace(tuple(row["namespace"])),
            row["key"],
            row["source"].replace("_", " "),
            "; ".join(row["reasons"])[:EXCERPT],
        )
        for row in record["waiting"]
    ]
    title = f"{len(rows):,} wait for approval" if rows else "Nothing waits for approval"
    header = ("status", "namespace", "memory", "source", "why")
    screen.print(table(title, header, rows, labels=4) if rows else title)


def _show_memory(screen: Console, memory: Memory) -> None:
    """The text with what the guard objects to in reverse and between marks."""
    record = _record_of(memory)
    where = told_namespace(memory.namespace)
    screen.print(f"{where} {memory.key}: {memory.status}, {memory.source.replace('_', ' ')}")
    for reason in record["reasons"]:
        screen.print(f"  {printable(reason)}")
    words, end = Text(), 0
    for start, stop, *_ in sorted(record["spans"]):
        words.append(printable(memory.text[end:start]))
        words.append(f">>>{printable(memory.text[start:stop])}<<<", style="reverse")
        end = stop
    words.append(printable(memory.text[end:]))
    screen.print(words)
