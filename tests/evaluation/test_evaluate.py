from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from langchain_core.embeddings import Embeddings
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore

from langmem_recall.errors import InputError
from langmem_recall.evaluation.cases import Case, CaseSet, Collection
from langmem_recall.evaluation.evaluate import Report, evaluate
from langmem_recall.policy import RecallPolicy
from langmem_recall.types import Cue

NOTES = {
    "tea": "Ann drinks green tea every morning before work",
    "dog": "Ann adopted a brown dog called Biscuit from the shelter",
    "dog2": "Ann adopted a brown dog called Biscuit from a shelter",
    "job": "Ann works as a surveyor for the harbour authority",
    "sea": "Ann is afraid of deep water since the ferry accident",
    "violin": "Ann plays second violin in the town orchestra",
}
MEMORIES = Collection("ann", tuple((key, {"content": text}) for key, text in NOTES.items()))
CASES = CaseSet(
    "Ann",
    (MEMORIES,),
    (
        Case("ann", Cue("Which tea does Ann drink in the morning?"), {"tea"}, category="habit"),
        Case("ann", Cue("What is the dog Biscuit like?"), {"dog", "dog2"}, category="pet"),
        Case(
            "ann", Cue("Which instrument does Ann play, the violin?"), {"violin"}, category="habit"
        ),
        Case("ann", Cue("How do I sort a linked list in Rust?"), group="far"),
        Case("ann", Cue("What is the boiling point of nitrogen?"), group="far"),
    ),
)


class Reversed:
    """A ranker that has nothing but the wrong order to offer."""

    name = "reversed"

    def __call__(self, store: Any, namespace: Any, cue: Cue, k: int) -> list[tuple[str, float]]:
        found = store.search(namespace, query=cue.words, limit=100)
        return [(item.key, float(place)) for place, item in enumerate(reversed(found))][:k]


def memory_store(embeddings: Embeddings | None) -> BaseStore:
    assert embeddings is not None
    return InMemoryStore(index={"dims": 256, "embed": embeddings, "fields": ["content"]})


@pytest.fixture(scope="module")
def report() -> Report:
    return evaluate(CASES, [RecallPolicy.default(), RecallPolicy.similarity(), Reversed()], k=2)


def test_each_policy_has_a_row_with_every_metric(report: Report) -> None:
    assert [row.policy for row in report.rows] == ["default", "similarity", "reversed"]
    assert set(report.rows[0].estimates) == {
        "recall@2", "hit@2", "ndcg@2", "mrr", "duplicates@2", "tokens", "injected", "ms",
        "injected_far", "auc_far", "score_auc_far",
    }  # fmt: skip
    assert {row["recall@2"].n for row in report.rows} == {3}


def test_the_default_finds_what_was_asked_for_and_is_silent_off_topic(report: Report) -> None:
    default = report.rows[0]
    assert default["recall@2"].mean == 1.0
    assert default["mrr"].mean == 1.0
    assert default["injected"].mean == 1.0
    assert default["injected_far"].mean == 0.0
    assert default["auc_far"].mean == 1.0


def test_a_policy_without_gates_injects_everywhere(report: Report) -> None:
    similarity = report.rows[1]
    assert similarity["injected"].mean == similarity["injected_far"].mean == 1.0
    assert similarity["tokens"].mean > report.rows[0]["tokens"].mean


def test_near_duplicates_among_the_first_k_are_counted(report: Report) -> None:
    # One question of three is answered by two texts in the same words: half of its two places.
    assert report.rows[0]["duplicates@2"].mean == pytest.approx(0.5 / 3)


def test_a_ranker_is_ranked_but_not_gated(report: Report) -> None:
    reversed_row = report.rows[2]
    assert reversed_row["recall@2"].mean == 0.0
    assert reversed_row["injected"].n == reversed_row["auc_far"].n == 0
    assert reversed_row["score_auc_far"].n == 5


def test_the_table_is_aligned_and_leaves_out_what_does_not_apply(report: Report) -> None:
    heading, *lines = str(report).splitlines()
    assert heading == "Ann: 3 answerable, 2 far"
    assert len({len(line) for line in report.table(["recall@2", "mrr"], True).splitlines()}) <= 2
    assert " - " in next(line for line in lines if line.startswith("reversed"))
    assert "[" in report.table(["recall@2"], intervals=True)
    assert "R@2" in report.table(["recall@2"], titles={"recall@2": "R@2"})


def test_the_report_is_valid_json(report: Report) -> None:
    told = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert told["k"] == 2
    assert told["counts"] == {"answerable": 3, "far": 2}
    assert told["rows"][0]["recall@2"]["mean"] == 1.0
    assert told["rows"][2]["injected"]["mean"] is None


def test_any_store_can_hold_the_collections(embeddings_for_evaluation: Embeddings) -> None:
    twins = Collection(
        "twins", (("a", {"content": "same words"}), ("b", {"content": "same words"}))
    )
    asked = Case("twins", Cue("same words"), {"a", "b"})
    cases = CaseSet("both", (MEMORIES, twins), (*CASES.cases, asked))
    found = evaluate(
        cases, [RecallPolicy.default()], embeddings=embeddings_for_evaluation, store=memory_store
    )
    assert found.rows[0]["recall@10"].mean == 1.0


@pytest.fixture
def embeddings_for_evaluation() -> Embeddings:
    from langmem_recall.embeddings import LocalEmbeddings

    return LocalEmbeddings()


def test_a_case_is_asked_at_its_own_time() -> None:
    expiring = {"content": "The code of the cellar is 4711", "valid_until": "2026-01-31T00:00:00Z"}
    cellar = Collection("cellar", (("code", expiring),))
    cue = Cue("What is the code of the cellar?")
    before, after = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 3, 1, tzinfo=UTC)
    cases = CaseSet(
        "cellar",
        (cellar,),
        (
            Case("cellar", cue, {"code"}, at=after, category="after"),
            Case("cellar", cue, {"code"}, at=before, category="before"),
        ),
    )
    (row,) = evaluate(cases, [RecallPolicy.default()]).rows
    # After, then before it expired.
    assert row.values["recall"].tolist() == row.values["injected"].tolist() == [0.0, 1.0]


def test_an_empty_collection_finds_nothing_and_breaks_nothing() -> None:
    cases = CaseSet("empty", (Collection("none", ()),), (Case("none", Cue("Hi?"), group="far"),))
    row = evaluate(cases, [RecallPolicy.default()]).rows[0]
    assert row["injected_far"].mean == 0.0
    assert row["recall@10"].n == 0


def test_policies_of_one_name_are_told_apart() -> None:
    same = [RecallPolicy.default(), RecallPolicy.default(top_k=3), RecallPolicy.default(top_k=2)]
    names = [row.policy for row in evaluate(CASES, same).rows]
    assert names == ["default", "default 2", "default 3"]


def test_progress_counts_up_to_the_total() -> None:
    seen: list[tuple[int, int]] = []
    evaluate(
        CASES,
        [RecallPolicy.default(), RecallPolicy.similarity()],
        progress=lambda done, total: seen.append((done, total)),
    )
    assert seen == [(2, 10), (4, 10), (6, 10), (8, 10), (10, 10)]


def test_reads_leave_no_trace_in_the_store() -> None:
    kept: list[InMemoryStore] = []

    def keep(embeddings: Embeddings | None) -> BaseStore:
        kept.append(InMemoryStore())
        return kept[-1]

    evaluate(CASES, [RecallPolicy.default()], store=keep)
    assert {item.namespace for item in kept[0].search((), limit=1_000)} == {("evaluation",)}


@pytest.mark.parametrize(("policies", "k"), [([], 10), ([RecallPolicy.default()], 0)])
def test_no_policy_or_no_place_to_fill_is_refused(policies: Any, k: int) -> None:
    with pytest.raises(InputError):
        evaluate(CASES, policies, k=k)
