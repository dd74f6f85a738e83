"""`langmem-recall doctor` and `stats`: is a store fit for production, and what does it hold?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from langmem_recall.cli import inputs
from langmem_recall.cli.inputs import namespace_text
from langmem_recall.cli.output import Result, progress, save_policy, table
from langmem_recall.errors import InputError
from langmem_recall.policy import RecallPolicy
from langmem_recall.types import Cue, Namespace, Trace

if TYPE_CHECKING:
    from langgraph.store.base import BaseStore

    from langmem_recall.observe.doctor import Diagnosis
    from langmem_recall.observe.monitor import MonitorReport

COSINES = "Cosines of unrelated texts, by language"
MARKS = {"alarm": "ALARM", "warn": "warning", "pass": "pass", "unknown": "unknown"}


def doctor_command(
    store: str,
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
    if target_rate is not None and cues is None:
        raise InputError("--target-rate needs recorded cues. Pass them with --cues.")
    if output and target_rate is None:
        raise InputError(
            "--output is the policy file of --target-rate. Name a rate, or use > FILE."
        )
    from langmem_recall.evaluation.evaluate import set_injection_rate
    from langmem_recall.observe.doctor import Facts, calibration_of, diagnose, survey
    from langmem_recall.stores.recall_store import RecallStore

    traces, prefix = inputs.read_traces(cues) if cues else [], inputs.parse_namespace(namespace)
    chosen = inputs.load_policy(policy) if policy else None
    reaches = list[float]()
    with inputs.open_store(store, inputs.load_embedder(embeddings)) as opened:
        used = chosen or RecallStore(opened, stored_policies=True).policy_for(prefix)
        known, items = calibration_of(opened), inputs.all_items(opened, prefix)
        facts = survey(Facts(used, known), opened, prefix, items)
        if traces and not facts.calibration.is_foreign:
            report, reaches = _ask(opened, traces, prefix, used)
            facts = facts._replace(report=report)
    has_budget = all(trace.budget_tokens is not None for trace in traces) if traces else None
    is_chosen = bool(chosen) or used != RecallPolicy.default()
    diagnosis = diagnose(facts._replace(is_chosen=is_chosen, has_budget=has_budget))
    record, line = diagnosis.to_dict(), ""
    if target_rate is not None and reaches:
        fitted = set_injection_rate(reaches, target_rate, used).replace(name="calibrated")
        expected = sum(it >= max(fitted.trigger, fitted.floor) for it in reaches) / len(reaches)
        record["target"] = {"policy": fitted.to_dict(), "target": target_rate, "expected": expected}
        gates = f"trigger {fitted.trigger:.2f}, floor {fitted.floor:.2f}"
        line = f"\nFor a rate of {target_rate:.0%}: {gates} (gives {expected:.0%})."
        if output:
            save_policy(fitted, output)

    def show(screen: Console) -> None:
        _show_diagnosis(screen, diagnosis)
        if line:
            screen.print(line)

    return Result(record, show, is_bad=diagnosis.is_alarming)


def _ask(
    store: BaseStore, traces: Sequence[Trace], namespace: Namespace, policy: RecallPolicy
) -> tuple[MonitorReport, list[float]]:
    """Ask the cues again without leaving a trace: what a monitor says, and what each reached.

    Each is asked of the namespace given, else of where its trace was made.
    """
    from langmem_recall.evaluation.evaluate import best_relevance
    from langmem_recall.observe.monitor import Monitor
    from langmem_recall.stores.recall_store import RecallStore

    reader, reaches = RecallStore(store, policy=policy, record=False), list[float]()
    monitor = Monitor(len(traces), policy=policy)
    with reader.quiet(), progress("recalling") as tick:
        for done, trace in enumerate(traces, start=1):
            cue = Cue(trace.cue.text, trace.cue.parts, trace.cue.task)
            recall = reader.recall((namespace,) if namespace else trace.namespaces, cue)
            monitor(recall)
            reaches.append(best_relevance(recall))
            tick(done, len(traces))
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


def stats_command(store: str, namespace: str | None = None) -> Result:
    """Count memories by namespace, kind, source and status.

    Nothing is changed: reads of this command count as no use and extend no time to live.
    """
    prefix, shown = inputs.parse_namespace(namespace), inputs.shown(store)
    with inputs.open_store(store) as opened, progress("reading"):
        memories = inputs.all_memories(opened, prefix)
    counts: dict[str, Counter[str]] = {
        "namespaces": Counter(namespace_text(memory.namespace) for memory in memories),
        "kinds": Counter(memory.kind for memory in memories),
        "sources": Counter(memory.source for memory in memories),
        "statuses": Counter(memory.status for memory in memories),
    }
    by_count = {name: dict(found.most_common()) for name, found in counts.items()}
    record = {"store": shown, "namespace": namespace_text(prefix), "memories": len(memories)}
    rows = [
        (name, label, f"{count:,}")
        for name, found in by_count.items()
        for label, count in found.items()
    ]
    title = f"{len(memories):,} memories"
    return Result(
        record | by_count,
        lambda screen: screen.print(table(title, rows, ("by", "", "memories"), labels=2)),
    )
