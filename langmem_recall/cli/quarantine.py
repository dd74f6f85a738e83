"""`langmem-recall quarantine`: what the guard withholds, to be looked at, approved or rejected."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from langmem_recall.cli import inputs
from langmem_recall.cli.inputs import namespace_text
from langmem_recall.cli.output import Result, table
from langmem_recall.errors import InputError
from langmem_recall.observe.show import printable
from langmem_recall.types import Memory

EXCERPT = 100  # characters of a text in the table


def quarantine_command(
    action: Literal["list", "show", "approve", "reject"],
    store: str,
    key: str | None = None,
    namespace: str | None = None,
    embeddings: str | None = None,
) -> Result:
    """Look at what the guard withholds, whole texts and parts of them, and decide about it.

    approve takes the words as they are now: nothing is approved that changed meanwhile. reject
    deletes the memory; what it would have replaced stays in force.
    """
    if (key is None) != (action == "list"):
        problem = "takes no key" if key else "needs the key of a memory, as list shows it"
        raise InputError(f"quarantine {action} {problem}.")
    prefix = inputs.parse_namespace(namespace)
    with inputs.open_recall_store(store, embeddings, allow_empty_namespace=True) as opened:
        limit = inputs.EVERYTHING
        roots = [prefix] if prefix else opened.list_namespaces(max_depth=1, limit=limit)
        waiting = [memory for root in roots for memory in opened.quarantined(root)]
        if action == "list":
            rows = [_record_of(memory) for memory in waiting]
            record = {"store": inputs.shown(store), "waiting": rows}
            lines = []
            for row in rows:
                (where, source), why = _home(row), "; ".join(row["reasons"])[:EXCERPT]
                lines.append((row["status"], where, row["key"], source, why))
            header = ("status", "namespace", "memory", "source", "why")
            shown = table(f"{len(rows):,} wait for approval", lines, header, labels=4)
            return Result(record, [shown] if rows else "Nothing waits for approval")
        found = [memory for memory in waiting if memory.key == key]
        if len(found) > 1:
            places = ", ".join(namespace_text(memory.namespace) for memory in found)
            raise InputError(f"{key!r} waits in several namespaces: {places}. Name one with -n.")
        if not found:
            where = f" in {namespace_text(prefix)}" if prefix else ""
            advice = "`quarantine list` shows them."
            raise InputError(f"No memory {key!r} waits for approval{where}. {advice}")
        (memory,) = found
        if action == "approve":
            opened.approve(*memory.id, text=memory.text)
        elif action == "reject":
            opened.delete(*memory.id)
    record = _record_of(memory) | {"action": action, "text": memory.text}
    done = {"approve": [f"{key} is approved."], "reject": [f"{key} is deleted."]}
    return Result(record, _marked(record), done.get(action, ()))


def _record_of(memory: Memory) -> dict[str, Any]:
    pending = memory.value.get("quarantine")
    pending = pending if isinstance(pending, Mapping) else {}
    return {
        "namespace": list(memory.namespace),
        **{name: getattr(memory, name) for name in ("key", "status", "source")},
        "reasons": list(pending.get("reasons", ())),
        "spans": [list(span) for span in pending.get("spans", ())],
        "replaces": pending.get("replaces"),
    }


def _home(record: Mapping[str, Any]) -> tuple[str, str]:
    return namespace_text(tuple(record["namespace"])), record["source"].replace("_", " ")


def _marked(record: Mapping[str, Any]) -> str:
    """What is known of a memory, and its text with what the guard objects to between marks."""
    where, source = _home(record)
    text, words, end = record["text"], "", 0
    for start, stop, *_ in sorted(record["spans"]):
        words += f"{text[end:start]}>>>{text[start:stop]}<<<"
        end = stop
    reasons = (f"  {printable(reason)}" for reason in record["reasons"])
    head = f"{where} {record['key']}: {record['status']}, {source}"
    return "\n".join([printable(head), *reasons, printable(words + text[end:])])
