"""`langmem-recall doctor`: is this embedder, policy and store fit for production?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from rich.console import Console

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
    deliver,
    listing,
    progress,
    save_policy,
    table,
)
from langmem_recall.cli.stores import Within, open_store, parse_namespace
from langmem_recall.errors import InputError
from langmem_recall.policy import RecallPolicy

if TYPE_CHECKING:
    from langgraph.store.base import BaseStore

    from langmem_recall.cli.stores import EmbedderChoice
    from langmem_recall.evaluation.doctor import Answer, Diagnosis, Facts, Panel
    from langmem_recall.types import Namespace

IN_MEMORY = ":memory:"
COSINES = "Cosines by language: unrelated (chance, sd), saying nothing, reaching a gate alone"
CALIBRATED = "calibrated"
MARKS = {"alarm": "ALARM", "warn": "warning", "pass": "pass", "unknown": "unknown"}


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
    asked = read_cues(cues) if cues else []
    request = _Request(store, parse_namespace(namespace), asked, policy, load_embedder(embeddings))
    facts = _examined(request)
    diagnosis, fitted = _judged(facts, target_rate)
    record = diagnosis.to_dict() | ({"target": fitted.record} if fitted else {})
    report = output if target_rate is None else None
    deliver(record, lambda screen: _show(screen, diagnosis, fitted), as_json, report)
    if fitted and output:
        save_policy(fitted.policy, output)
    if diagnosis.is_alarming:
        raise typer.Exit(BAD_NEWS)


class _Request(NamedTuple):
    """What the user asked to have looked at."""

    store: str | None
    namespace: Namespace
    cues: Sequence[RecordedCue]
    policy: str | None
    embedder: EmbedderChoice


class _Fitted(NamedTuple):
    """A policy set to a target injection rate."""

    policy: RecallPolicy
    target: float
    expected: float

    @property
    def record(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {**self._asdict(), "policy": self.policy.to_dict()}


def _examined(request: _Request) -> Facts:
    from langmem_recall.cli.checkup import calibration_of, policy_in_force
    from langmem_recall.evaluation.doctor import Facts

    given = load_policy(request.policy) if request.policy else None
    is_new = request.store is None
    with open_store(request.store or IN_MEMORY, request.embedder, create=is_new) as opened:
        policy = given or policy_in_force(opened, request.namespace)
        is_chosen = bool(given) or policy != RecallPolicy.default()
        facts = Facts(policy, calibration_of(opened), is_chosen=is_chosen)
        return facts if is_new else _looked_into(opened, request, facts)


def _looked_into(store: BaseStore, request: _Request, facts: Facts) -> Facts:
    from langmem_recall.cli.checkup import survey_of, with_vectors_counted

    survey = survey_of(store, request.namespace)
    known, counted = with_vectors_counted(store, request.namespace, facts.calibration, survey)
    # Vectors of another embedder make every recall fail, an embedder that is down does not.
    can_recall = known.problem == facts.calibration.problem
    return facts._replace(
        calibration=known,
        survey=counted,
        answers=_asked(store, request, facts.policy) if can_recall else (),
        has_budget=_has_budget(request.cues),
    )


def _asked(store: BaseStore, request: _Request, policy: RecallPolicy) -> list[Answer]:
    from langmem_recall.cli.checkup import ask_cues

    answers = []
    with progress("recalling") as tick:
        for answer in ask_cues(store, request.cues, request.namespace, policy):
            answers.append(answer)
            tick(len(answers), len(request.cues))
    return answers


def _has_budget(cues: Sequence[RecordedCue]) -> bool | None:
    traces = [recorded for recorded in cues if recorded.is_trace]
    return all(trace.budget_tokens is not None for trace in traces) if traces else None


def _judged(facts: Facts, target: float | None) -> tuple[Diagnosis, _Fitted | None]:
    from langmem_recall.evaluation.doctor import diagnose
    from langmem_recall.evaluation.evaluate import set_injection_rate

    diagnosis = diagnose(facts)
    if target is None or not facts.answers:
        return diagnosis, None
    reaches = [answer.reach for answer in facts.answers]
    policy = set_injection_rate(reaches, target, facts.policy).replace(name=CALIBRATED)
    gate = max(policy.trigger, policy.floor)
    expected = sum(reach >= gate for reach in reaches) / len(reaches)
    return diagnosis, _Fitted(policy, target, expected)


# --- the report -----------------------------------------------------------------------------------


def _show(screen: Console, diagnosis: Diagnosis, fitted: _Fitted | None) -> None:
    readings = [(reading.name.replace("_", " "), reading.text) for reading in diagnosis.readings]
    screen.print(listing("Readings", readings))
    header = ("language", "chance", "sd", "cap", "neutral", "trigger", "floor")
    rows = [_panel_cells(panel) for panel in diagnosis.panels]
    screen.print("", table(COSINES, header, rows), sep="\n")
    checks = [(MARKS[check.state], check.name, check.text) for check in diagnosis.checks]
    screen.print(listing("Production checklist", checks), "", sep="\n")
    found = [(MARKS[one.level], one.about, one.text) for one in diagnosis.warnings]
    screen.print(listing("Warnings", found) if found else "No warnings.")
    if fitted:
        gates = f"trigger {fitted.policy.trigger:.2f}, floor {fitted.policy.floor:.2f}"
        screen.print(f"\nFor a rate of {fitted.target:.0%}: {gates} (gives {fitted.expected:.0%}).")


def _panel_cells(panel: Panel) -> list[str]:
    null = panel.null
    language = panel.language if null.measured else f"{panel.language} (assumed)"
    numbers = [f"{null.mean:.3f}", f"{null.sd:.3f}", f"{null.cap:.1f}", f"{panel.neutral:.2f}"]
    return [language, *numbers, *map(_cosine, (panel.trigger, panel.floor))]


def _cosine(held: float | None) -> str:
    if held is None:
        return "off"
    return f"{held:.2f}" if held <= 1.0 and not math.isinf(held) else "needs words"
