"""`langmem-recall reindex`: every vector of a store anew, after its embedder has changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from langmem_recall.cli.inputs import EMBEDDINGS_HELP, load_embedder
from langmem_recall.cli.output import BAD_NEWS, AsJson, Output, deliver, note, progress
from langmem_recall.cli.stores import Target, open_store, shown
from langmem_recall.errors import InputError, RecallError, StoreError

if TYPE_CHECKING:
    from langchain_core.embeddings import Embeddings


def reindex_command(
    store: Target,
    embeddings: Annotated[
        str, typer.Option("--embeddings", "-e", metavar="NAME", help=EMBEDDINGS_HELP)
    ],
    as_json: AsJson = False,
    output: Output = None,
) -> None:
    """Embed everything in a store anew with the embedder that is named.

    Texts, use and history stay as they are. Stopped at any point, the same command goes on from
    there. Exit code 1 when the embedder left some texts without a vector.
    """
    from langmem_recall.embeddings import embedder_identity

    embedder = load_embedder(embeddings)
    if not embedder:
        raise InputError("reindex needs an embedder. Name one with --embeddings.")
    embedded, waiting = _reindexed(store, embedder)
    record = {
        "store": shown(store),
        "embedder": embedder_identity(embedder),
        "embedded": embedded,
        "waiting": waiting,
    }
    deliver(record, lambda screen: _show(screen, record), as_json, output)
    if waiting:
        note(f"{waiting:,} texts still wait for the embedder. Run the command again to go on.")
        raise typer.Exit(BAD_NEWS)


def _reindexed(store: str, embedder: Embeddings) -> tuple[int, int]:
    """How many texts were embedded, and how many the embedder left."""
    from langmem_recall.stores.reindexing import reindex

    left = 0
    try:
        with open_store(store, embedder) as opened, progress("embedding") as tick:

            def told(done: int, total: int) -> None:
                nonlocal left
                left = total - done
                tick(done, total)

            return reindex(opened, told), left
    except RecallError:
        raise
    except Exception as error:
        raise StoreError(
            f"Embedding stopped ({type(error).__name__}: {error}). What was embedded is kept; run "
            "the command again to go on."
        ) from error


def _show(screen: Console, record: Mapping[str, Any]) -> None:
    told = f"{record['embedded']:,} texts of {record['store']} were embedded"
    screen.print(f"{told} by {record['embedder']}.", soft_wrap=True)
