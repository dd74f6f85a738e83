"""`langmem-recall sweep` and `reindex`: what becomes of old memories, and all vectors anew."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from langmem_recall.cli import inputs
from langmem_recall.cli.output import Result, progress
from langmem_recall.errors import InputError, RecallError, StoreError
from langmem_recall.memory.upkeep import STEPS, SweepReport, check_steps, counts_of


def sweep_command(
    store: str,
    namespace: str,
    apply: bool = False,
    steps: str = ",".join(STEPS),
    cold_after: int | None = None,
    purge_history_before: datetime | None = None,
    policy: str | None = None,
    embeddings: str | None = None,
) -> Result:
    """Say what is to become of the memories of a namespace and why; with --apply, do it.

    Without --apply nothing is changed. The policy is the one named, else the one stored for the
    namespace, else the default; it says which kinds of memory never fade.
    """
    prefix, writes = inputs.parse_namespace(namespace), "--apply" if apply else None
    # An empty list leaves what is only listed.
    chosen = tuple(step.strip() for step in steps.split(",") if step.strip())
    check_steps(chosen)
    wanted: Any = {
        **{"apply": apply, "steps": chosen},
        "cold_after": None if cold_after is None else timedelta(days=cold_after),
        "purge_history_before": purge_history_before,
    }
    reports: list[SweepReport] = []
    place: int | None = 0
    opening = inputs.open_recall_store(store, embeddings, policy, writes=writes)
    with opening as sweeper, progress("sweeping") as tick:
        while place is not None:
            reports.append(sweeper.sweep(prefix, after=place, **wanted))
            place = reports[-1].next
            tick(sum(report.examined for report in reports), None)
    rows = tuple(row for report in reports for row in report.rows)
    whole = SweepReport(prefix, apply, rows, sum(report.examined for report in reports), None)
    record = {
        "store": inputs.shown(store),
        "namespace": inputs.namespace_text(prefix),
        "applied": apply,
        "examined": whole.examined,
        "counts": counts_of(row.action for row in rows),
        "rows": [
            {"action": action, "namespace": list(home), "key": key, "reason": reason}
            for action, (home, key), reason in rows
        ],
    }
    dry = "This was a dry run: nothing was changed. Add --apply to do it."
    return Result(record, str(whole), [dry] if rows and not apply else ())


def reindex_command(store: str, embeddings: str) -> Result:
    """Embed everything in a store anew with the embedder that is named.

    Texts, use and history stay as they are. Stopped at any point, the same command goes on from
    there. Exit code 1 when the embedder left some texts without a vector.
    """
    from langmem_recall.embeddings import embedder_identity
    from langmem_recall.stores.backend import reindex

    embedder, name, waiting = inputs.load_embedder(embeddings), inputs.shown(store), 0
    if not embedder:
        raise InputError("reindex needs an embedder. Name one with --embeddings.")
    try:
        with inputs.open_store(store, embedder) as opened, progress("embedding") as tick:

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
    identity = embedder_identity(embedder)
    record = {"store": name, "embedder": identity, "embedded": embedded, "waiting": waiting}
    line = f"{embedded:,} texts of {name} were embedded by {identity}."
    left = f"{waiting:,} texts still wait for the embedder. Run the command again to go on."
    return Result(record, line, [left] if waiting else (), is_bad=waiting > 0)
