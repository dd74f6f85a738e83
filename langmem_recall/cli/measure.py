"""`langmem-recall eval` and `tune`: policies compared on cases, and fitted to them."""

from __future__ import annotations

from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from langmem_recall.cli.inputs import (
    CasesSource,
    EmbeddingsChoice,
    PolicyChoice,
    PolicyChoices,
    load_case_set,
    load_embedder,
    load_policy,
    namespace_option,
    open_store,
    parse_namespace,
    shown,
)
from langmem_recall.cli.output import (
    AsJson,
    Output,
    deliver,
    note,
    output_option,
    progress,
    save_policy,
)
from langmem_recall.errors import InputError

if TYPE_CHECKING:
    from langchain_core.embeddings import Embeddings

    from langmem_recall.evaluation.evaluate import StoreFactory


def evaluate_command(
    cases: CasesSource,
    cues: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="JSONL of cues, where CASES are memories alone."),
    ] = None,
    policy: PolicyChoices = None,
    embeddings: EmbeddingsChoice = None,
    k: Annotated[int, typer.Option("--k", min=1, help="Memories a ranking is judged by.")] = 10,
    by: Annotated[
        Literal["category", "group", "collection"] | None,
        typer.Option(help="Also break the table down."),
    ] = None,
    intervals: Annotated[bool, typer.Option("--intervals", help="Show 95 % intervals.")] = False,
    as_json: AsJson = False,
    output: Output = None,
) -> None:
    """Compare policies on cases, through the same code as production.

    Cases are JSON lines: memories as {"key": "m1", "content": ...} and cues with the keys they
    should find as {"cue": ..., "relevant": ["m1"]}; an empty list means nothing should be recalled.
    What export wrote are memories, too: add --cues with what is to be found in them.
    """
    policies = [load_policy(name) for name in policy or ["default"]]
    embedder, make = _load_embedder(embeddings)
    case_set = load_case_set(cases, cues)
    from langmem_recall.evaluation.evaluate import evaluate

    with progress(case_set.name) as tick:
        report = evaluate(case_set, policies, embeddings=embedder, store=make, k=k, progress=tick)
    record = report.to_dict()
    if by:
        parts = report.by(by).items()
        record["by"] = {label: [row.to_dict() for row in rows] for label, rows in parts}
    deliver(record, report.text(by, intervals), as_json, output)


def _load_embedder(name: str | None) -> tuple[Embeddings | None, StoreFactory | None]:
    """The embedder, and where there is to be none what makes stores without vectors."""
    from langmem_recall.stores.local.store import LocalStore

    embedder = load_embedder(name)
    return embedder or None, (lambda _: LocalStore(index=False)) if embedder is False else None


def tune_command(
    cases: CasesSource,
    policy: PolicyChoice = None,
    embeddings: EmbeddingsChoice = None,
    folds: Annotated[int, typer.Option(min=2, help="Parts that are each kept back once.")] = 5,
    seed: Annotated[int, typer.Option(help="Deals the cases into the parts.")] = 0,
    store: Annotated[
        str | None, typer.Option(metavar="STORE", help="Also save the policy in this store.")
    ] = None,
    namespace: Annotated[str | None, namespace_option("Of that store: where it applies")] = None,
    as_json: AsJson = False,
    output: Annotated[Path | None, output_option("Policy file to write, .toml or .json.")] = None,
) -> None:
    """Fit weights, half-life, trigger and floor to cases, or refuse where nothing is gained.

    Every knob is fitted on some of the cases and judged on the others. A refusal is an answer: the
    policy that was started from stays the best there is, and the exit code is 0.
    """
    from langmem_recall.evaluation.tune import tune
    from langmem_recall.stores.recall_store import RecallStore

    base, (embedder, make) = load_policy(policy or "default"), _load_embedder(embeddings)
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
                embeddings=embedder,
                store=make,
                folds=folds,
                seed=seed,
                progress=tick,
            )
        record = {"accepted": tuned.is_better, **tuned.to_dict()}
        deliver(record, str(tuned), as_json)
        if output:
            save_policy(tuned.policy, output)
        if inner and store and tuned.is_better:
            with closing(RecallStore(inner)) as target:
                target.set_policy(parse_namespace(namespace), tuned.policy)
            place = f"on {shown(store)} uses it for {namespace}"
            note(f"RecallStore(..., stored_policies=True) {place}.")
        elif store:
            note(f"{shown(store)} was left as it is.")
