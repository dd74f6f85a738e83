"""`langmem-recall sweep` and `reindex`: what becomes of old memories, and all vectors anew."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, cast

import typer

from langmem_recall.cli.inputs import (
    EVERYTHING,
    EmbeddingsChoice,
    PolicyChoice,
    Target,
    Whose,
    embeddings_option,
    load_embedder,
    namespace_text,
    open_recall_store,
    open_store,
    parse_namespace,
    shown,
)
from langmem_recall.cli.output import BAD_NEWS, AsJson, Output, deliver, note, progress
from langmem_recall.errors import InputError, RecallError, StoreError
from langmem_recall.memory.upkeep import STEPS, Step, SweepReport, check_steps, counts_of

MOST_DAYS = 36_500


def sweep_command(
    store: Target,
    namespace: Whose,
    apply: Annotated[bool, typer.Option("--apply", help="Do it; a dry run without it.")] = False,
    steps: Annotated[
        str,
        typer.Option(
            metavar="STEP,STEP",
            help="expire: remove what is past its end, but the user's own words. decay: remove "
            "unconfirmed inferences that have faded and are not in use. merge: make one of "
            "near-duplicates.",
        ),
    ] = ",".join(STEPS),
    cold_after: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MOST_DAYS,
            metavar="DAYS",
            help="Also list what was neither used nor written for so long; nothing is done to it.",
        ),
    ] = None,
    purge_history_before: Annotated[
        datetime | None,
        typer.Option(
            metavar="DATE", help="Also delete what was superseded before then: 2026-01-31, in UTC."
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option(min=1, max=EVERYTHING, help="Memories looked at in one go.")
    ] = 1_000,
    after: Annotated[
        int, typer.Option(min=0, max=EVERYTHING, help="Go on where a former sweep stopped.")
    ] = 0,
    to_the_end: Annotated[
        bool, typer.Option("--all", help="Go on until every memory was looked at.")
    ] = False,
    policy: PolicyChoice = None,
    embeddings: EmbeddingsChoice = None,
    as_json: AsJson = False,
    output: Output = None,
) -> None:
    """Say what is to become of the memories of a namespace and why; with --apply, do it.

    Without --apply nothing is changed. The policy is the one named, else the one stored for the
    namespace, else the default; it says which kinds of memory never fade.
    """
    prefix = parse_namespace(namespace)
    # An empty list leaves what is only listed.
    chosen = tuple(step.strip() for step in steps.split(",") if step.strip())
    check_steps(chosen)
    reports: list[SweepReport] = []
    place: int | None = after
    with (
        open_recall_store(
            store, embeddings, policy, writes="--apply" if apply else None
        ) as sweeper,
        progress("sweeping") as tick,
    ):
        while place is not None and (to_the_end or not reports):
            report = sweeper.sweep(
                prefix,
                apply=apply,
                steps=cast("tuple[Step, ...]", chosen),
                cold_after=None if cold_after is None else timedelta(days=cold_after),
                purge_history_before=purge_history_before,
                limit=limit,
                after=place,
            )
            reports.append(report)
            place = report.next
            tick(sum(each.examined for each in reports), None)
    rows = tuple(row for report in reports for row in report.rows)
    whole = SweepReport(prefix, apply, rows, sum(report.examined for report in reports), place)
    record = {
        "store": shown(store),
        "namespace": namespace_text(prefix),
        "applied": apply,
        "examined": whole.examined,
        "next": place,
        "counts": counts_of(row.action for row in rows),
        "rows": [
            {"action": action, "namespace": list(home), "key": key, "reason": reason}
            for action, (home, key), reason in rows
        ],
    }
    deliver(record, str(whole), as_json, output)
    if place is not None:
        note(f"There are more memories: go on with --after {place}, or use --all.")
    if rows and not apply:
        note("This was a dry run: nothing was changed. Add --apply to do it.")


def reindex_command(
    store: Target,
    embeddings: Annotated[str, embeddings_option],
    as_json: AsJson = False,
    output: Output = None,
) -> None:
    """Embed everything in a store anew with the embedder that is named.

    Texts, use and history stay as they are. Stopped at any point, the same command goes on from
    there. Exit code 1 when the embedder left some texts without a vector.
    """
    from langmem_recall.embeddings import embedder_identity
    from langmem_recall.stores.backend import reindex

    embedder, waiting = load_embedder(embeddings), 0
    if not embedder:
        raise InputError("reindex needs an embedder. Name one with --embeddings.")
    try:
        with open_store(store, embedder) as opened, progress("embedding") as tick:

            def count(done: int, total: int) -> None:
                nonlocal waiting
                waiting = total - done
                tick(done, total)

            embedded = reindex(opened, count)
    except RecallError:
        raise
    except Exception as error:
        raise StoreError(
            f"Embedding stopped ({type(error).__name__}: {error}). What was embedded is kept; run "
            "the command again to go on."
        ) from error
    name, identity = shown(store), embedder_identity(embedder)
    record = {"store": name, "embedder": identity, "embedded": embedded, "waiting": waiting}
    line = f"{embedded:,} texts of {name} were embedded by {identity}."
    deliver(record, line, as_json, output)
    if waiting:
        note(f"{waiting:,} texts still wait for the embedder. Run the command again to go on.")
        raise typer.Exit(BAD_NEWS)
