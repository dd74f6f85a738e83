"""`langmem-recall recall`, `explain`, `remember`, `mcp` and `demo`: a store asked and told."""

from __future__ import annotations

from typing import Any

from rich.text import Text

from langmem_recall.cli.inputs import namespace_text, open_recall_store, parse_namespace, shown
from langmem_recall.cli.output import UNBOUNDED, Result
from langmem_recall.types import Kind, Source


def recall_command(
    store: str, cue: str, namespace: str, policy: str | None = None, embeddings: str | None = None
) -> Result:
    """Show what would be recalled for a cue, what would not, and why.

    Nothing is changed: this counts as no use, and a store that may only be read will do.
    """
    from langmem_recall.observe.show import table, to_dict

    prefix = parse_namespace(namespace)
    with open_recall_store(store, embeddings, policy, record=False) as reader, reader.quiet():
        recall = reader.recall(prefix, cue)
    record = {"recalled": [memory.key for memory in recall.memories], **to_dict(recall)}
    # What is too long for the terminal ends there.
    return Result(record, [Text(table(recall, UNBOUNDED), no_wrap=True, overflow="ellipsis")])


def explain_command(
    store: str,
    key: str,
    cue: str,
    namespace: str,
    policy: str | None = None,
    embeddings: str | None = None,
) -> Result:
    """Say why one memory is, or is not, recalled for a cue.

    Nothing is changed: this counts as no use.
    """
    prefix = parse_namespace(namespace)
    with open_recall_store(store, embeddings, policy, record=False) as reader:
        why = str(reader.explain(prefix, key, cue))
    record = {"namespace": namespace_text(prefix), "key": key, "cue": cue, "explanation": why}
    return Result(record, why)


def remember_command(
    store: str,
    text: str,
    namespace: str,
    key: str | None = None,
    kind: Kind = "semantic",
    source: Source = "user_stated",
    pinned: bool = False,
    create: bool = False,
    embeddings: str | None = None,
) -> Result:
    """Store one memory, as an agent would: judged by the guard, merged with what says the same.

    Exit code 1 when the guard keeps it aside.
    """
    prefix, name = parse_namespace(namespace), shown(store)
    fields: Any = {"key": key, "kind": kind, "source": source, "pinned": pinned}
    with open_recall_store(store, embeddings, create=create, writes="remember") as writer:
        memory = writer.remember(prefix, text, **fields)
    record = {"store": name, "namespace": namespace_text(prefix), "key": memory.key}
    record["status"] = memory.status
    line = f"{memory.key} ({memory.kind}, {memory.source}) is {memory.status} in {name}."
    aside = ["The guard keeps it aside: it is not recalled until a person approves it."]
    is_bad = memory.status == "quarantined"
    return Result(record, line, aside if is_bad else (), is_bad)


def mcp_command(
    store: str,
    namespace: str,
    read_only: bool = False,
    create: bool = False,
    policy: str | None = None,
    embeddings: str | None = None,
) -> None:
    """Serve the memories of a namespace to an MCP host, over stdin and stdout.

    The host gets the tools remember, recall and explain. It sees no namespace; what it remembers
    counts as inferred. Needs the extra mcp.
    """
    from langmem_recall.interfaces.mcp import mcp_server

    prefix, writes = parse_namespace(namespace), None if read_only else "mcp"
    with open_recall_store(store, embeddings, policy, create=create, writes=writes) as served:
        mcp_server(served, prefix, read_only=read_only).run()


# --- demo -----------------------------------------------------------------------------------------

NAMESPACE = ("memories", "ada")
MEMORIES: tuple[tuple[str, str, Source], ...] = (
    ("seat", "I always book an aisle seat on flights, near the front.", "user_stated"),
    ("peanuts", "I am allergic to peanuts, please never suggest satay.", "user_stated"),
    ("sister", "My sister Mia lives in Bergen.", "user_stated"),
    ("deploy", "Deploying the shop failed with ERR_SSL_VERSION_MISMATCH.", "tool_verified"),
    ("gym", "Ada seems to go to the gym on Tuesdays.", "agent_inferred"),
)
CUES = (
    "Which seat should you book on my flight?",
    "What was that ERR_SSL_VERSION_MISMATCH about?",
    "Where does my sister live?",
    "Who composed the opera Tosca?",
)


def demo_command() -> Result:
    """Remember five things, ask four, and see what is recalled and why.

    All of it happens in memory: no key, no server, no file.
    """
    from langmem_recall.stores.local.store import LocalStore
    from langmem_recall.stores.recall_store import RecallStore

    with RecallStore(LocalStore()) as store:
        for key, text, source in MEMORIES:
            store.remember(NAMESPACE, text, key=key, source=source)
        recalls = [(cue, store.recall(NAMESPACE, cue)) for cue in CUES]
        why_not = str(store.explain(NAMESPACE, "gym", CUES[0]))
    record: dict[str, Any] = {
        "memories": [dict(zip(("key", "text", "source"), each, strict=True)) for each in MEMORIES],
        "recalls": [],
        "why_not": why_not,
    }
    lines = ["Remembered:", *(f"  {source:15} {text}" for _, text, source in MEMORIES)]
    for cue, recall in recalls:
        keys = [memory.key for memory in recall.memories]
        record["recalls"].append({"cue": cue, "recalled": keys, "trace": str(recall)})
        lines += ["", f"> {cue}"]
        for scored in recall.chosen:
            lines.append(f"  relevance {scored.signals.relevance:.2f}  {scored.memory.text}")
        lines.append(f"  {recall}")
    lines += ["", f"Why not the gym?  {why_not}", ""]
    lines.append("Next: RecallStore(LocalStore('memory.db')) keeps it; langmem-recall --help.")
    return Result(record, "\n".join(lines))
