"""`langmem-recall sweep`: what has expired, faded, doubled or gone cold, and what becomes of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, cast

import typer
from rich.console import Console

from langmem_recall.cli.inputs import EmbeddingsChoice, PolicyChoice, load_embedder, load_policy
from langmem_recall.cli.output import AsJson, Output, deliver, note, progress, table
from langmem_recall.cli.stores import (
    EVERYTHING,
    Target,
    is_postgres,
    open_store,
    parse_namespace,
    shown,
    told_namespace,
)
from langmem_recall.errors import InputError
from langmem_recall.memory.sweep import STEPS, Step, check_steps, counts_of

if TYPE_CHECKING:
    from langgraph.store.base import BaseStore

    from langmem_recall.memory.sweep import Row, SweepReport
    from langmem_recall.policy import RecallPolicy
    from langmem_recall.types import Namespace

ALL_STEPS = ",".join(STEPS)
SHOWN = 200
"""Rows in the table; all are in the JSON."""
MOST_DAYS = 36_500


def sweep_command(
    store: Target,
    namespace: Annotated[
        str,
        typer.Option(
            "--namespace",
            "-n",
            metavar="A/B",
            help="Whose memories, with all below; a JSON list where a label has a slash in it.",
        ),
    ],
    apply: Annotated[bool, typer.Option("--apply", help="Do it; a dry run without it.")] = False,
    steps: Annotated[
        str,
        typer.Option(
            metavar="STEP,STEP",
            help="expire: remove what is past its end. decay: take 0.05 off the confidence of "
            "unconfirmed inferences. merge: make one of near-duplicates.",
        ),
    ] = ALL_STEPS,
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
    asked = _Asked(
        parse_namespace(namespace),
        apply,
        _parse_steps(steps),
        None if cold_after is None else timedelta(days=cold_after),
        purge_history_before,
        limit,
    )
    embedder, given = load_embedder(embeddings), load_policy(policy) if policy else None
    if apply and embedder is None and is_postgres(store):
        raise InputError(
            "--apply on Postgres needs the embedder that made its vectors. Name it with "
            "--embeddings, or pass --embeddings none where the store keeps no vectors."
        )
    reports: list[SweepReport] = []
    with open_store(store, embedder) as opened, progress("sweeping") as tick:
        for report in _swept(opened, given, asked, after):
            reports.append(report)
            tick(sum(one.examined for one in reports), None)
            if not to_the_end:
                break
    record = {"store": shown(store), **_record(reports)}
    deliver(record, lambda screen: _show(screen, record), as_json, output)
    if record["next"] is not None:
        note(f"There are more memories: go on with --after {record['next']}, or use --all.")
    if record["rows"] and not apply:
        note("This was a dry run: nothing was changed. Add --apply to do it.")


class _Asked(NamedTuple):
    """What every call of a sweep is asked."""

    namespace: Namespace
    apply: bool
    steps: Sequence[Step]
    cold_after: timedelta | None
    purge_history_before: datetime | None
    limit: int


def _parse_steps(told: str) -> tuple[Step, ...]:
    """The steps of a list with commas; none for an empty one, which leaves what is listed."""
    named = tuple(step.strip() for step in told.split(",") if step.strip())
    check_steps(named)
    return cast("tuple[Step, ...]", named)


def _swept(
    opened: BaseStore, policy: RecallPolicy | None, asked: _Asked, after: int
) -> Iterator[SweepReport]:
    """One report after another, as far as they are asked for."""
    from langmem_recall.stores.recall_store import RecallStore

    store = RecallStore(opened, policy=policy, stored_policies=policy is None)
    place: int | None = after
    namespace, *_ = asked
    settings = {name: held for name, held in asked._asdict().items() if name != "namespace"}
    try:
        while place is not None:
            report = store.sweep(namespace, after=place, **settings)
            place = report.next
            yield report
    finally:
        store.close()


def _record(reports: Sequence[SweepReport]) -> dict[str, Any]:
    last = reports[-1]
    rows = [row for report in reports for row in report.rows]
    return {
        "namespace": told_namespace(last.namespace),
        "applied": last.applied,
        "examined": sum(report.examined for report in reports),
        "next": last.next,
        "counts": counts_of(row.action for row in rows),
        "rows": [_told(row) for row in rows],
    }


def _told(row: Row) -> dict[str, Any]:
    namespace, key = row.id
    return {
        "action": row.action,
        "namespace": list(namespace),
        "key": key,
        "reason": row.reason,
    }


def _show(screen: Console, record: Mapping[str, Any]) -> None:
    rows, counts = record["rows"], record["counts"]
    kind = "Sweep" if record["applied"] else "Dry run"
    told = ", ".join(f"{count:,} {action}" for action, count in counts.items())
    head = f"{kind} of {record['namespace']}: {record['examined']:,} memories looked at"
    title = f"{head}, {told or 'nothing to do'}"
    cells = [
        (row["action"], told_namespace(tuple(row["namespace"])), row["key"], row["reason"])
        for row in rows[:SHOWN]
    ]
    header = ("what", "namespace", "memory", "why")
    screen.print(table(title, header, cells, labels=len(header)) if cells else title)
    if rows[SHOWN:]:
        screen.print(f"and {len(rows) - SHOWN:,} others; --json shows all.")
