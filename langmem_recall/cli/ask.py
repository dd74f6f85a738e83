"""`langmem-recall recall`, `explain`, `remember` and `mcp`: a store asked, told and served."""

from __future__ import annotations

from contextlib import closing
from enum import StrEnum
from typing import Annotated, Any

import typer

from langmem_recall.cli.inputs import (
    EmbeddingsChoice,
    PolicyChoice,
    Target,
    check_embedder,
    load_embedder,
    load_policy,
    open_store,
    parse_namespace,
    shown,
    told_namespace,
)
from langmem_recall.cli.output import BAD_NEWS, AsJson, Output, deliver, note
from langmem_recall.types import KINDS, TRUST

Whose = Annotated[
    str,
    typer.Option(
        "--namespace",
        "-n",
        metavar="A/B",
        help="Whose memories; a JSON list where a label has a slash in it.",
    ),
]
CueWords = Annotated[str, typer.Argument(metavar="CUE", help="What is asked for, in plain words.")]
KindName = StrEnum("KindName", KINDS)  # type: ignore[misc]
SourceName = StrEnum("SourceName", list(TRUST))  # type: ignore[misc]
SEMANTIC, USER = KindName("semantic"), SourceName("user_stated")


def recall_command(
    store: Target,
    cue: CueWords,
    namespace: Whose,
    policy: PolicyChoice = None,
    embeddings: EmbeddingsChoice = None,
    as_json: AsJson = False,
    output: Output = None,
) -> None:
    """Show what would be recalled for a cue, what would not, and why.

    Nothing is changed: this counts as no use, and a store that may only be read will do.
    """
    from langmem_recall.observe.show import table, to_dict
    from langmem_recall.stores.recall_store import RecallStore

    prefix, chosen = parse_namespace(namespace), load_policy(policy) if policy else None
    with open_store(store, load_embedder(embeddings)) as opened:
        reader = RecallStore(opened, policy=chosen, record=False, stored_policies=chosen is None)
        with reader.quiet():
            recall = reader.recall(prefix, cue, record=False)
    deliver(
        {"recalled": [memory.key for memory in recall.memories], **to_dict(recall)},
        lambda screen: screen.print(table(recall, screen.width), soft_wrap=True),
        as_json,
        output,
    )


def explain_command(
    store: Target,
    key: Annotated[str, typer.Argument(metavar="KEY", help="The key of the memory.")],
    cue: CueWords,
    namespace: Whose,
    policy: PolicyChoice = None,
    embeddings: EmbeddingsChoice = None,
    as_json: AsJson = False,
    output: Output = None,
) -> None:
    """Say why one memory is, or is not, recalled for a cue.

    Nothing is changed: this counts as no use.
    """
    from langmem_recall.stores.recall_store import RecallStore

    prefix, chosen = parse_namespace(namespace), load_policy(policy) if policy else None
    with open_store(store, load_embedder(embeddings)) as opened:
        reader = RecallStore(opened, policy=chosen, record=False, stored_policies=chosen is None)
        why = str(reader.explain(prefix, key, cue))
    record = {"namespace": told_namespace(prefix), "key": key, "cue": cue, "explanation": why}
    deliver(record, lambda screen: screen.print(why, soft_wrap=True), as_json, output)


def remember_command(
    store: Target,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="One statement, in full.")],
    namespace: Whose,
    key: Annotated[str | None, typer.Option(help="Its key; made up without it.")] = None,
    kind: Annotated[KindName, typer.Option(help="What kind of memory it is.")] = SEMANTIC,
    source: Annotated[SourceName, typer.Option(help="Who says so; trust follows from it.")] = USER,
    pinned: Annotated[bool, typer.Option("--pinned", help="Recall it always.")] = False,
    create: Annotated[
        bool, typer.Option("--create", help="Make the store where there is none.")
    ] = False,
    embeddings: EmbeddingsChoice = None,
    as_json: AsJson = False,
    output: Output = None,
) -> None:
    """Store one memory, as an agent would: judged by the guard, merged with what says the same.

    Exit code 1 when the guard keeps it aside.
    """
    from langmem_recall.stores.recall_store import RecallStore

    prefix, embedder = parse_namespace(namespace), load_embedder(embeddings)
    check_embedder(store, embedder, "remember")
    with open_store(store, embedder, create) as opened, closing(RecallStore(opened)) as writer:
        fields: Any = {"kind": kind.value, "source": source.value, "pinned": pinned}
        memory = writer.remember(prefix, text, key=key, **fields)
    record = {
        "store": shown(store),
        "namespace": told_namespace(prefix),
        "key": memory.key,
        "status": memory.status,
    }
    line = f"{memory.key} ({memory.kind}, {memory.source}) is {memory.status} in {shown(store)}."
    deliver(record, lambda screen: screen.print(line, soft_wrap=True), as_json, output)
    if memory.status == "quarantined":
        note("The guard keeps it aside: it is not recalled until a person approves it.")
        raise typer.Exit(BAD_NEWS)


def mcp_command(
    store: Target,
    namespace: Whose,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Offer recall and explain alone.")
    ] = False,
    create: Annotated[
        bool, typer.Option("--create", help="Make the store where there is none.")
    ] = False,
    policy: PolicyChoice = None,
    embeddings: EmbeddingsChoice = None,
) -> None:
    """Serve the memories of a namespace to an MCP host, over stdin and stdout.

    The host gets the tools remember, recall and explain. It sees no namespace; what it remembers
    counts as inferred. Needs the extra mcp.
    """
    from langmem_recall.interfaces.mcp import mcp_server
    from langmem_recall.stores.recall_store import RecallStore

    prefix, chosen = parse_namespace(namespace), load_policy(policy) if policy else None
    embedder = load_embedder(embeddings)
    if not read_only:
        check_embedder(store, embedder, "mcp")
    with (
        open_store(store, embedder, create) as opened,
        closing(RecallStore(opened, policy=chosen, stored_policies=chosen is None)) as served,
    ):
        mcp_server(served, prefix, read_only=read_only).run()
