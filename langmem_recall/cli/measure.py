"""`langmem-recall eval` and `tune`: policies compared on cases, and fitted to them."""

from __future__ import annotations

from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from langmem_recall.cli import inputs
from langmem_recall.cli.output import Result, progress, save_policy
from langmem_recall.errors import InputError


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
