"""`langmem-recall tune`: a policy fitted to cases, or the reason why not."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from langmem_recall.cli.compare import store_factory
from langmem_recall.cli.inputs import (
    CasesSource,
    EmbeddingsChoice,
    PolicyChoice,
    load_case_set,
    load_embedder,
    load_policy,
)
from langmem_recall.cli.output import AsJson, deliver, note, progress, save_policy
from langmem_recall.cli.stores import open_store, parse_namespace, shown
from langmem_recall.errors import InputError
from langmem_recall.observe.show import printable

if TYPE_CHECKING:
    from langgraph.store.base import BaseStore

    from langmem_recall.policy import RecallPolicy
    from langmem_recall.types import Namespace

PolicyFile = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="Policy file to write, .toml or .json."),
]
"""Where a command writes a policy."""


def tune_command(
    cases: CasesSource,
    policy: PolicyChoice = None,
    embeddings: EmbeddingsChoice = None,
    injection_rate: Annotated[
        float | None,
        typer.Option(min=0.0, max=1.0, help="Set the gates so that this share of cues injects."),
    ] = None,
    folds: Annotated[int, typer.Option(min=2, help="Parts that are each kept back once.")] = 5,
    seed: Annotated[int, typer.Option(help="Deals the cases into the parts.")] = 0,
    store: Annotated[
        str | None,
        typer.Option(metavar="STORE", help="Also save the policy in this store."),
    ] = None,
    namespace: Annotated[
        str | None,
        typer.Option("--namespace", "-n", metavar="A/B", help="Of that store: where it applies."),
    ] = None,
    as_json: AsJson = False,
    output: PolicyFile = None,
) -> None:
    """Fit weights, half-life, trigger and floor to cases, or refuse where nothing is gained.

    Every knob is fitted on some of the cases and judged on the others. A refusal is an answer: the
    policy that was started from stays the best there is, and the exit code is 0.
    """
    from langmem_recall.evaluation.tune import tune

    base, embedder = load_policy(policy or "default"), load_embedder(embeddings)
    if (store is None) != (namespace is None):
        raise InputError("--store and --namespace go together: which namespace of which store.")
    case_set = load_case_set(cases)
    with ExitStack() as opened:
        # Opened before the work, so that a wrong path does not cost minutes.
        inner = opened.enter_context(open_store(store)) if store else None
        with progress("tuning") as tick:
            tuned = tune(
                case_set,
                base=base,
                embeddings=embedder or None,
                store=store_factory(embedder),
                folds=folds,
                seed=seed,
                target_injection=injection_rate,
                progress=tick,
            )
        record = {"accepted": tuned.is_better, **tuned.to_dict()}
        text = "\n".join(map(printable, str(tuned).split("\n")))
        deliver(record, lambda screen: screen.print(text, soft_wrap=True), as_json)
        if output:
            save_policy(tuned.policy, output)
        if inner and store and tuned.is_better:
            _save_in_store(inner, parse_namespace(namespace), tuned.policy)
            note(
                f"RecallStore(..., stored_policies=True) on {shown(store)} uses it for {namespace}."
            )
        elif store:
            note(f"{shown(store)} was left as it is.")


def _save_in_store(inner: BaseStore, namespace: Namespace, policy: RecallPolicy) -> None:
    from langmem_recall.stores.recall_store import RecallStore

    store = RecallStore(inner)
    store.set_policy(namespace, policy)
    store.close()
