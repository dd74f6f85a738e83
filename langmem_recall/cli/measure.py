"""`langmem-recall eval`, `tune`, `doctor` and `stats`: what a policy and a store are worth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langmem_recall.cli import inputs
from langmem_recall.cli.inputs import namespace_text
from langmem_recall.cli.output import Part, Result, progress, save_policy, table
from langmem_recall.errors import InputError
from langmem_recall.policy import RecallPolicy
from langmem_recall.types import Cue, Namespace, Trace

if TYPE_CHECKING:
    from langmem_recall.observe.doctor import Diagnosis
    from langmem_recall.observe.monitor import Monitor
    from langmem_recall.stores.recall_store import RecallStore

COSINES = "Cosines of unrelated texts, by language"
MARKS = {"alarm": "ALARM", "warn": "warning", "pass": "pass", "unknown": "unknown"}


def evaluate_command(
    cases: str,
    cues: Path | None = None,
    policy: list[str] | None = None,
    embeddings: str | None = None,
    k: int = 10,
) -> Result:
    """Compare policies on cases, through the same code as production.

    Cases are JSON lines: memories as {"key": "m1", "content": ...} and cues with the keys they
    should find as {"cue": ..., "relevant": ["m1"]}; an empty list means nothing should be recalled.
    What export wrote are memories, too: add --cues with what is to be found in them.
    """
    policies = [inputs.load_policy(name) for name in policy or ["default"]]
    stores, case_set = _stores(embeddings), inputs.load_case_set(cases, cues)
    from langmem_recall.evaluation.evaluate import evaluate

    with progress(case_set.name) as tick:
        report = evaluate(case_set, policies, k=k, progress=tick, **stores)
    return Result(report.to_dict(), str(report))


def _stores(name: str | None) -> dict[str, Any]:
    """What makes the stores of collections: with an embedder, the default one, or no vectors."""
    from langmem_recall.stores.local.store import LocalStore

    embedder = inputs.load_embedder(name)
    make = (lambda _: LocalStore(index=False)) if embedder is False else None
    return {"embeddings": embedder or None, "store": make}


def tune_command(
    cases: str,
    policy: str | None = None,
    embeddings: str | None = None,
    folds: int = 5,
    seed: int = 0,
    store: str | None = None,
    namespace: str | None = None,
    output: Path | None = None,
) -> Result:
    """Fit weights, half-life, trigger and floor to cases, or refuse where nothing is gained.

    Every knob is fitted on some of the cases and judged on the others. A refusal is an answer: the
    policy that was started from stays the best there is, and the exit code is 0.
    """
    from langmem_recall.evaluation.tune import tune
    from langmem_recall.stores.recall_store import RecallStore

    base, stores = inputs.load_policy(policy or "default"), _stores(embeddings)
    if (store is None) != (namespace is None):
        raise InputError("--store and --namespace go together: which namespace of which store.")
    case_set = inputs.load_case_set(cases)
    with ExitStack() as opened:
        # Opened before the work, so that a wrong path does not cost minutes.
        inner = opened.enter_context(inputs.open_store(store)) if store else None
        with progress("tuning") as tick:
            tuned = tune(case_set, base=base, folds=folds, seed=seed, progress=tick, **stores)
        if output:
            save_policy(tuned.policy, output)
        notes = [f"{inputs.shown(store)} was left as it is."] if store else []
        if inner and store and tuned.is_better:
            with closing(RecallStore(inner)) as target:
                target.set_policy(inputs.parse_namespace(namespace), tuned.policy)
            place = f"on {inputs.shown(store)} uses it for {namespace}"
            notes = [f"RecallStore(..., stored_policies=True) {place}."]
    return Result({"accepted": tuned.is_better, **tuned.to_dict()}, str(tuned), notes)


# --- doctor ---------------------------------------------------------------------------------------


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
    from langmem_recall.observe.doctor import diagnose, facts_of
    from langmem_recall.observe.monitor import Monitor
    from langmem_recall.stores.recall_store import RecallStore

    traces, prefix = inputs.read_traces(cues) if cues else [], inputs.parse_namespace(namespace)
    chosen, reaches = inputs.load_policy(policy) if policy else None, list[float]()
    with inputs.open_store(store, embeddings) as opened:
        used = chosen or RecallStore(opened, stored_policies=True).policy_for(prefix)
        facts = facts_of(opened, used, prefix, inputs.all_items(opened, prefix))
        # With another embedder's vectors every recall would fail.
        if traces and not (facts.problem and facts.nulls):
            monitor = Monitor(len(traces), policy=used)
            reader = RecallStore(opened, policy=used, record=False)
            reaches = _ask(reader, traces, prefix, monitor)
            facts = facts._replace(report=monitor.report())
    diagnosis = diagnose(
        facts._replace(
            is_chosen=bool(chosen) or used != RecallPolicy.default(),
            has_budget=all(trace.budget_tokens is not None for trace in traces) if traces else None,
        )
    )
    record, parts = diagnosis.to_dict(), _parts(diagnosis)
    if target_rate is not None and reaches:
        fitted, expected = _calibrated(reaches, target_rate, used)
        record["target"] = {"policy": fitted.to_dict(), "target": target_rate, "expected": expected}
        gates = f"trigger {fitted.trigger:.2f}, floor {fitted.floor:.2f}"
        parts.append(f"\nFor a rate of {target_rate:.0%}: {gates} (gives {expected:.0%}).")
        if output:
            save_policy(fitted, output)
    return Result(record, parts, is_bad=diagnosis.is_alarming)


def _ask(
    reader: RecallStore, traces: Sequence[Trace], namespace: Namespace, monitor: Monitor
) -> list[float]:
    """Ask the cues again, of the namespace given, else of where each trace was made.

    Gives the best relevance that each reached.
    """
    from langmem_recall.evaluation.evaluate import best_relevance

    reaches = list[float]()
    with reader.quiet(), progress("recalling") as tick:
        for trace in traces:
            cue = Cue(trace.cue.text, trace.cue.parts, trace.cue.task)
            recall = reader.recall((namespace,) if namespace else trace.namespaces, cue)
            monitor(recall)
            reaches.append(best_relevance(recall))
            tick(len(reaches), len(traces))
    return reaches


def _calibrated(
    reaches: Sequence[float], target: float, base: RecallPolicy
) -> tuple[RecallPolicy, float]:
    """The policy with gates for a rate of injection, and the rate that they give."""
    from langmem_recall.evaluation.evaluate import set_injection_rate

    fitted = set_injection_rate(reaches, target, base).replace(name="calibrated")
    gate = max(fitted.trigger, fitted.floor)
    return fitted, sum(reach >= gate for reach in reaches) / len(reaches)


def _parts(diagnosis: Diagnosis) -> list[Part]:
    readings = [(name.replace("_", " "), _text(it)) for name, it in diagnosis.readings.items()]
    panels = [[*map(_text, panel.values())] for panel in diagnosis.panels]
    checks = [(MARKS[state], name, text) for name, state, text in diagnosis.checks]
    warnings = [(MARKS[level], name, message) for name, level, message in diagnosis.warnings]
    return [
        table("Readings", readings),
        "",
        table(COSINES, panels, [*diagnosis.panels[0]]),
        "",
        table("Production checklist", checks),
        "",
        table("Warnings", warnings) if warnings else "No warnings.",
    ]


def _text(reading: Any) -> str:
    match reading:
        case bool():
            return "yes" if reading else "no"
        case int():
            return f"{reading:,}"
        case float():
            return f"{reading:.3g}"
        case list():
            return "; ".join(reading) or "none"
    return "-" if reading is None else str(reading)


# --- stats ----------------------------------------------------------------------------------------


def stats_command(store: str, namespace: str | None = None) -> Result:
    """Count memories by namespace, kind, source and status.

    Nothing is changed: reads of this command count as no use and extend no time to live.
    """
    prefix = inputs.parse_namespace(namespace)
    with inputs.open_store(store) as opened, progress("reading"):
        memories = inputs.all_memories(opened, prefix)
    labels: dict[str, list[str]] = {
        "namespaces": [namespace_text(memory.namespace) for memory in memories],
        "kinds": [memory.kind for memory in memories],
        "sources": [memory.source for memory in memories],
        "statuses": [memory.status for memory in memories],
    }
    counts = {name: dict(Counter(found).most_common()) for name, found in labels.items()}
    record = {"store": inputs.shown(store), "namespace": namespace_text(prefix)}
    rows = [
        (name, label, f"{count:,}")
        for name, found in counts.items()
        for label, count in found.items()
    ]
    made = table(f"{len(memories):,} memories", rows, ("by", "", "memories"), labels=2)
    return Result({**record, "memories": len(memories), **counts}, [made])
