"""`langmem-recall doctor` and `stats`: is a store fit for production, and what does it hold?"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import chain, repeat
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Any

from rich.console import Console

from langmem_recall.cli import inputs
from langmem_recall.cli.inputs import namespace_text
from langmem_recall.cli.output import Result, progress, save_policy, table
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
NAMED = 5  # namespaces that an error message lists


def doctor_command(
    store: str | None = None,
    namespace: str | None = None,
    cues: Path | None = None,
    target_rate: float | None = None,
    policy: str | None = None,
    embeddings: str | None = None,
    output: Path | None = None,
) -> Result:
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

    recorded, prefix = inputs.read_cues(cues) if cues else [], inputs.parse_namespace(namespace)
    chosen = inputs.load_policy(policy) if policy else None
    embedder, reaches = inputs.load_embedder(embeddings), list[float]()
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
    diagnosis, line = diagnose(facts), ""
    record = diagnosis.to_dict()
    if target_rate is not None and reaches:
        fitted = set_injection_rate(reaches, target_rate, used).replace(name="calibrated")
        expected = sum(it >= max(fitted.trigger, fitted.floor) for it in reaches) / len(reaches)
        record["target"] = {"policy": fitted.to_dict(), "target": target_rate, "expected": expected}
        gates = f"trigger {fitted.trigger:.2f}, floor {fitted.floor:.2f}"
        line = f"\nFor a rate of {target_rate:.0%}: {gates} (gives {expected:.0%})."

    def show(screen: Console) -> None:
        _show_diagnosis(screen, diagnosis)
        if line:
            screen.print(line)

    if line and output:
        save_policy(fitted, output)
    path = output if target_rate is None else None
    return Result(record, show, is_bad=diagnosis.is_alarming, path=path)


def _ask(
    store: BaseStore,
    cues: Sequence[inputs.RecordedCue],
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
            named = ", ".join(map(namespace_text, sorted(places)[:NAMED]))
            raise InputError(
                f"The cues do not say which of {len(places)} namespaces they are asked of. Name "
                f"one with --namespace: {named}{' ...' * (len(places) > NAMED)}"
            )
        (namespace,) = places
    reader, reaches = RecallStore(store, policy=policy, record=False), []
    monitor = Monitor(len(cues), policy=policy)
    with reader.quiet(), progress("recalling") as tick:
        for done, cue in enumerate(cues, start=1):
            recall = reader.recall((namespace,) if namespace else cue.namespaces, cue.cue)
            monitor(recall)
            reaches.append(best_relevance(recall))
            tick(done, len(cues))
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

SHOWN = 20  # labels of one kind in the table; all are in the JSON
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


def stats_command(store: str, namespace: str | None = None) -> Result:
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
    shown = inputs.shown(store)
    ages = [(now - memory.written_ts) / _SECONDS_PER_DAY for memory in memories]
    lasts = [usage.last_used for usage in usages if usage.last_used is not None]
    counts = {
        "namespaces": _by_count(namespace_text(memory.namespace) for memory in memories),
        "kinds": _by_count(memory.kind for memory in memories),
        "sources": _by_count(memory.source for memory in memories),
        "statuses": _by_count(memory.status for memory in memories),
        "ages": in_ranges(ages, AGES),
        "uses": in_ranges((usage.uses for usage in usages), USES),
        "last_used": in_ranges(((now - last) / _SECONDS_PER_DAY for last in lasts), AGES),
    }
    record = {"store": shown, "namespace": namespace_text(prefix), "bytes": size}
    record["memories"] = len(memories)

    def show(screen: Console) -> None:
        head = [("store", shown), ("memories", f"{len(memories):,}")]
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

    return Result(record | counts, show)


def _by_count(labels: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(labels).items(), key=lambda pair: (-pair[1], pair[0])))


def in_ranges(numbers: Iterable[float], ranges: Mapping[str, float]) -> dict[str, int]:
    """How many numbers lie below each bound and not below the one before; NaN is unknown."""
    counts = Counter(
        next((label for label, bound in ranges.items() if number < bound), UNKNOWN)
        for number in numbers
    )
    return {label: counts[label] for label in (*ranges, UNKNOWN) if counts[label]}
