"""`langmem-recall doctor` and `stats`: is a store fit for production, and what does it hold?"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import chain, repeat
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from langmem_recall.cli import inputs
from langmem_recall.cli.inputs import (
    EmbeddingsChoice,
    PolicyChoice,
    RecordedCue,
    load_embedder,
    load_policy,
    read_cues,
)
from langmem_recall.cli.output import (
    BAD_NEWS,
    AsJson,
    Output,
    deliver,
    output_option,
    progress,
    save_policy,
    table,
)
from langmem_recall.errors import InputError
from langmem_recall.policy import RecallPolicy
from langmem_recall.types import Namespace

if TYPE_CHECKING:
    from langgraph.store.base import BaseStore

    from langmem_recall.observe.doctor import Diagnosis
    from langmem_recall.observe.monitor import MonitorReport

COSINES = (
    "Cosines by language: of unrelated texts, and those that alone reach a gate (above 1: none)"
)
MARKS = {"alarm": "ALARM", "warn": "warning", "pass": "pass", "unknown": "unknown"}
NAMED = 5
"""Namespaces that an error message lists."""


def doctor_command(
    store: Annotated[
        str | None,
        typer.Argument(
            metavar="STORE",
            help="File of a LocalStore, or a postgresql:// address; the embedder alone without it.",
        ),
    ] = None,
    namespace: inputs.Within = None,
    cues: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Recorded cues: one a line, or traces as JSON lines."),
    ] = None,
    target_rate: Annotated[
        float | None,
        typer.Option(
            min=0.0, max=1.0, help="Set trigger and floor so that this share of the cues injects."
        ),
    ] = None,
    policy: PolicyChoice = None,
    embeddings: EmbeddingsChoice = None,
    as_json: AsJson = False,
    output: Annotated[
        Path | None, output_option("With --target-rate the policy file to write, else the report.")
    ] = None,
) -> None:
    """Show how an embedder, a policy and a store will do, and what to change.

    Shows the embedder's null distribution, the gates in force, what the store lacks and, with
    recorded cues, the injection rate to expect. Exit code 1 when there is an alarm.
    """
    if store is None and cues is not None:
        raise InputError("--cues needs the store they are asked of. Name it: doctor STORE --cues.")
    if target_rate is not None and cues is None:
        raise InputError("--target-rate needs recorded cues. Pass them with --cues.")
    from langmem_recall.evaluation.evaluate import set_injection_rate
    from langmem_recall.observe.doctor import Facts, calibration_of, diagnose, survey
    from langmem_recall.stores.recall_store import RecallStore

    recorded, prefix = read_cues(cues) if cues else [], inputs.parse_namespace(namespace)
    chosen, embedder = load_policy(policy) if policy else None, load_embedder(embeddings)
    reaches: list[float] = []
    with inputs.open_store(store or ":memory:", embedder, create=store is None) as opened:
        used = chosen or RecallStore(opened, stored_policies=True).policy_for(prefix)
        is_chosen = bool(chosen) or used != RecallPolicy.default()
        facts = Facts(used, calibration_of(opened), is_chosen=is_chosen)
        if store is not None:
            items = inputs.all_items(opened, prefix)
            facts = survey(facts, opened, prefix, items)
            if recorded and not facts.calibration.is_foreign:
                places = {item.namespace for item in items}
                report, reaches = _ask(opened, recorded, prefix, places, used)
                facts = facts._replace(report=report)
            budgets = [cue.trace.budget_tokens for cue in recorded if cue.trace]
            facts = facts._replace(has_budget=None not in budgets if budgets else None)
    diagnosis, fitted, expected = diagnose(facts), None, math.nan
    record = diagnosis.to_dict()
    if target_rate is not None and reaches:
        fitted = set_injection_rate(reaches, target_rate, used).replace(name="calibrated")
        gate = max(fitted.trigger, fitted.floor)
        expected = sum(reach >= gate for reach in reaches) / len(reaches)
        target = {"policy": fitted.to_dict(), "target": target_rate, "expected": expected}
        record["target"] = target

    def show(screen: Console) -> None:
        _show_diagnosis(screen, diagnosis)
        if fitted:
            gates = f"trigger {fitted.trigger:.2f}, floor {fitted.floor:.2f}"
            screen.print(f"\nFor a rate of {target_rate:.0%}: {gates} (gives {expected:.0%}).")

    deliver(record, show, as_json, output if target_rate is None else None)
    if fitted and output:
        save_policy(fitted, output)
    if diagnosis.is_alarming:
        raise typer.Exit(BAD_NEWS)


def _ask(
    store: BaseStore,
    cues: Sequence[RecordedCue],
    namespace: Namespace,
    places: Set[Namespace],
    policy: RecallPolicy,
) -> tuple[MonitorReport, list[float]]:
    """Recall for every cue without leaving a trace: what a monitor says, and what each reached.

    Each is asked of the namespace given, else of where its trace was made, else of the only one.
    """
    from langmem_recall.evaluation.evaluate import best_relevance
    from langmem_recall.observe.monitor import Monitor
    from langmem_recall.stores.recall_store import RecallStore

    if not namespace and not all(cue.namespaces for cue in cues):
        if not places:
            raise InputError("The store holds no memories, so no cue can find one. Add some first.")
        if len(places) > 1:
            named = ", ".join(map(inputs.namespace_text, sorted(places)[:NAMED]))
            raise InputError(
                f"The cues do not say which of {len(places)} namespaces they are asked of. Name "
                f"one with --namespace: {named}{' ...' * (len(places) > NAMED)}"
            )
        (namespace,) = places
    reader, monitor = (
        RecallStore(store, policy=policy, record=False),
        Monitor(len(cues), policy=policy),
    )
    reaches = []
    with reader.quiet(), progress("recalling") as tick:
        for cue in cues:
            recall = reader.recall((namespace,) if namespace else cue.namespaces, cue.cue)
            monitor(recall)
            reaches.append(best_relevance(recall))
            tick(len(reaches), len(cues))
    return monitor.report(), reaches


def _show_diagnosis(screen: Console, diagnosis: Diagnosis) -> None:
    readings = [(name.replace("_", " "), _text(it)) for name, it in diagnosis.readings.items()]
    screen.print(table("Readings", readings))
    rows = [[*map(_text, panel.values())] for panel in diagnosis.panels]
    screen.print("", table(COSINES, rows, list(diagnosis.panels[0])), sep="\n")
    checks = [(MARKS[check.state], check.name, check.text) for check in diagnosis.checks]
    screen.print(table("Production checklist", checks), "", sep="\n")
    warnings = [(MARKS[level], name, message) for name, level, message in diagnosis.warnings]
    screen.print(table("Warnings", warnings) if warnings else "No warnings.")


def _text(reading: Any) -> str:
    if isinstance(reading, bool):
        return "yes" if reading else "no"
    if isinstance(reading, int):
        return f"{reading:,}"
    if isinstance(reading, float):
        return f"{reading:.3g}"
    if isinstance(reading, list):
        return "; ".join(reading) or "none"
    return "-" if reading is None else str(reading)


# --- stats ----------------------------------------------------------------------------------------

SHOWN = 20
"""Labels of one kind in the table; all are in the JSON."""
UNKNOWN = "unknown"
AGES = {
    "under 1 day": 1,
    "1 to 7 days": 7,
    "7 to 30 days": 30,
    "30 to 90 days": 90,
    "over 90 days": math.inf,
}
USES = {"never used": 1, "1 to 4 times": 5, "5 to 19 times": 20, "20 times or more": math.inf}
_SECONDS_PER_DAY = 86_400


def stats_command(
    store: inputs.Target,
    namespace: inputs.Within = None,
    as_json: AsJson = False,
    output: Output = None,
) -> None:
    """Count memories by namespace, kind, source, status, age and use.

    Nothing is changed: reads of this command count as no use and extend no time to live.
    """
    prefix, now = inputs.parse_namespace(namespace), time()
    with inputs.open_store(store) as opened, progress("reading"):
        memories = inputs.all_memories(opened, prefix)
        usages = inputs.usages_of(opened, memories)
    # SQLite keeps the latest writes in a log beside the file.
    files = [path for path in (Path(store), Path(f"{store}-wal")) if path.exists()]
    size = None if inputs.is_postgres(store) else sum(file.stat().st_size for file in files)
    ages = [(now - memory.written_ts) / _SECONDS_PER_DAY for memory in memories]
    lasts = [usage.last_used for usage in usages if usage.last_used is not None]
    counts = {
        "namespaces": _by_count(inputs.namespace_text(memory.namespace) for memory in memories),
        "kinds": _by_count(memory.kind for memory in memories),
        "sources": _by_count(memory.source for memory in memories),
        "statuses": _by_count(memory.status for memory in memories),
        "ages": in_ranges(ages, AGES),
        "uses": in_ranges((usage.uses for usage in usages), USES),
        "last_used": in_ranges(((now - last) / _SECONDS_PER_DAY for last in lasts), AGES),
    }
    record = {
        "store": inputs.shown(store),
        "namespace": inputs.namespace_text(prefix),
        "bytes": size,
        "memories": len(memories),
    }

    def show(screen: Console) -> None:
        head = [("store", inputs.shown(store)), ("memories", f"{len(memories):,}")]
        head += [] if size is None else [("size", f"{size / 1e6:,.1f} MB")]
        screen.print(table(None, head))
        rows: list[tuple[str, str, str]] = []
        for name, by_label in counts.items():
            cells = [(label, f"{count:,}") for label, count in by_label.items()][:SHOWN]
            if rest := list(by_label.values())[SHOWN:]:
                cells.append((f"{len(rest):,} others", f"{sum(rest):,}"))
            titles = chain([name.replace("_", " ")], repeat(""))
            rows += [(title, *pair) for title, pair in zip(titles, cells, strict=False)]
        if rows:
            screen.print(table(None, rows, ("by", "", "memories"), labels=2))

    deliver(record | counts, show, as_json, output)


def _by_count(labels: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(labels).items(), key=lambda pair: (-pair[1], pair[0])))


def in_ranges(numbers: Iterable[float], ranges: Mapping[str, float]) -> dict[str, int]:
    """How many numbers lie below each bound and not below the one before; NaN is unknown."""
    counts = Counter(
        next((label for label, bound in ranges.items() if number < bound), UNKNOWN)
        for number in numbers
    )
    return {label: counts[label] for label in (*ranges, UNKNOWN) if counts[label]}
