"""`langmem-recall doctor`: is this embedder, policy and store fit for production?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer
from rich.console import Console

from langmem_recall.cli.inputs import (
    EmbeddingsChoice,
    PolicyChoice,
    RecordedCue,
    Within,
    all_items,
    load_embedder,
    load_policy,
    open_store,
    parse_namespace,
    read_cues,
    told_namespace,
)
from langmem_recall.cli.output import (
    BAD_NEWS,
    AsJson,
    deliver,
    listing,
    progress,
    save_policy,
    table,
)
from langmem_recall.errors import InputError
from langmem_recall.policy import RecallPolicy
from langmem_recall.types import Namespace

if TYPE_CHECKING:
    from langgraph.store.base import BaseStore, Item

    from langmem_recall.observe.doctor import Answer, Diagnosis, Panel

COSINES = "Cosines by language: unrelated (chance, sd), saying nothing, reaching a gate alone"
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
    namespace: Within = None,
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
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="With --target-rate the policy file to write, else the report.",
        ),
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
    from langmem_recall.observe.doctor import Facts, calibration_of, diagnose, survey
    from langmem_recall.stores.recall_store import RecallStore

    recorded, prefix = read_cues(cues) if cues else [], parse_namespace(namespace)
    chosen, embedder = load_policy(policy) if policy else None, load_embedder(embeddings)
    with open_store(store or ":memory:", embedder, create=store is None) as opened:
        used = chosen or RecallStore(opened, stored_policies=True).policy_for(prefix)
        is_chosen = bool(chosen) or used != RecallPolicy.default()
        facts = Facts(used, calibration_of(opened), is_chosen=is_chosen)
        if store is not None:
            items = all_items(opened, prefix)
            facts = survey(facts, opened, prefix, items)
            if not facts.calibration.is_foreign:
                facts = facts._replace(answers=_ask(opened, recorded, prefix, used))
            budgets = [cue.budget_tokens for cue in recorded if cue.is_trace]
            has_budget = all(budget is not None for budget in budgets) if budgets else None
            facts = facts._replace(has_budget=has_budget)
    diagnosis = diagnose(facts)
    fitted = None if target_rate is None else _fit(facts.answers, target_rate, used)
    record = diagnosis.to_dict()
    if fitted:
        record["target"] = {**fitted._asdict(), "policy": fitted.policy.to_dict()}
    report = output if target_rate is None else None
    deliver(record, lambda screen: _show(screen, diagnosis, fitted), as_json, report)
    if fitted and output:
        save_policy(fitted.policy, output)
    if diagnosis.is_alarming:
        raise typer.Exit(BAD_NEWS)


def _ask(
    store: BaseStore, cues: Sequence[RecordedCue], namespace: Namespace, policy: RecallPolicy
) -> list[Answer]:
    """Recall for every cue, one at a time, without leaving a trace.

    Each is asked of the namespace given, else of where its trace was made, else of the only one.
    """
    from langmem_recall.observe.doctor import answer_of
    from langmem_recall.stores.recall_store import RecallStore

    default = namespace
    if not namespace and not all(cue.namespaces for cue in cues):
        default = _only_namespace(all_items(store))
    reader, answers = RecallStore(store, policy=policy, record=False), []
    with reader.quiet(), progress("recalling") as tick:
        for cue in cues:
            places = cue.namespaces if cue.namespaces and not namespace else (default,)
            answers.append(answer_of(reader.recall(places, cue.cue)))
            tick(len(answers), len(cues))
    return answers


def _only_namespace(items: Sequence[Item]) -> Namespace:
    found = sorted({item.namespace for item in items})
    if len(found) == 1:
        return found[0]
    if not found:
        raise InputError("The store holds no memories, so no cue can find one. Add some first.")
    named = ", ".join(map(told_namespace, found[:NAMED])) + (" ..." if found[NAMED:] else "")
    raise InputError(
        f"The cues do not say which of {len(found)} namespaces they are asked of. Name one with "
        f"--namespace: {named}"
    )


class _Fitted(NamedTuple):
    """A policy set to a target injection rate."""

    policy: RecallPolicy
    target: float
    expected: float


def _fit(answers: Sequence[Answer], target: float, policy: RecallPolicy) -> _Fitted | None:
    from langmem_recall.evaluation.evaluate import set_injection_rate

    if not answers:
        return None
    reaches = [answer.reach for answer in answers]
    fitted = set_injection_rate(reaches, target, policy).replace(name="calibrated")
    gate = max(fitted.trigger, fitted.floor)
    return _Fitted(fitted, target, sum(reach >= gate for reach in reaches) / len(reaches))


def _show(screen: Console, diagnosis: Diagnosis, fitted: _Fitted | None) -> None:
    readings = [(reading.name.replace("_", " "), reading.text) for reading in diagnosis.readings]
    screen.print(listing("Readings", readings))
    header = ("language", "chance", "sd", "cap", "neutral", "trigger", "floor")
    rows = [_panel_cells(panel) for panel in diagnosis.panels]
    screen.print("", table(COSINES, header, rows), sep="\n")
    checks = [(MARKS[check.state], check.name, check.text) for check in diagnosis.checks]
    screen.print(listing("Production checklist", checks), "", sep="\n")
    warnings = [(MARKS[level], name, message) for name, level, message in diagnosis.warnings]
    screen.print(listing("Warnings", warnings) if warnings else "No warnings.")
    if fitted:
        gates = f"trigger {fitted.policy.trigger:.2f}, floor {fitted.policy.floor:.2f}"
        screen.print(f"\nFor a rate of {fitted.target:.0%}: {gates} (gives {fitted.expected:.0%}).")


def _panel_cells(panel: Panel) -> list[str]:
    null = panel.null
    language = panel.language if null.measured else f"{panel.language} (assumed)"
    numbers = [f"{null.mean:.3f}", f"{null.sd:.3f}", f"{null.cap:.1f}", f"{panel.neutral:.2f}"]
    for cosine in (panel.trigger, panel.floor):
        reached = "needs words" if cosine is None or cosine > 1.0 else f"{cosine:.2f}"
        numbers.append("off" if cosine is None else reached)
    return [language, *numbers]
