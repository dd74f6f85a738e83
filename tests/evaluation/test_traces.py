from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from langmem_recall.errors import InputError
from langmem_recall.evaluation.cases import cases_from_traces
from langmem_recall.evaluation.evaluate import evaluate
from langmem_recall.observe.log import TraceLog, read_log
from langmem_recall.observe.show import recall_id, to_dict
from langmem_recall.policy import RecallPolicy
from langmem_recall.stores.local.store import LocalStore
from langmem_recall.stores.recall_store import RecallStore
from langmem_recall.types import (
    Candidate,
    Cue,
    Evidence,
    Memory,
    Recall,
    Scored,
    Signals,
    Trace,
)

NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)
ANN, BOB = ("memories", "ann"), ("memories", "bob")


def scored(key: str, text: str, namespace: tuple[str, ...] = ANN) -> Scored:
    memory = Memory(
        namespace=namespace, key=key, text=text, written_at=NOW - timedelta(days=2), salience=0.7
    )
    signals = Signals(0.9, 0.5, 1.0, 0.7, 0.0, 0.5)
    return Scored(Candidate(memory, Evidence(relevance=0.9)), signals, 1.0)


def recall(cue: str, *chosen: Scored, namespaces: Any = (ANN,), minutes: int = 0) -> Recall:
    at = NOW + timedelta(minutes=minutes)
    return Recall(chosen, (), Trace(Cue(cue, (cue, "part"), "trip"), namespaces, "default x", at))


DRINK = recall("What does Ann drink?", scored("tea", "Ann drinks tea"), scored("dog", "A dog"))
PET = recall("Her pet?", scored("dog", "Ann has a dog"), minutes=5)


def good(of: Recall, key: str, is_good: bool = True) -> dict[str, Any]:
    told = {"recall": recall_id(of), "namespace": list(ANN), "key": key, "good": is_good}
    return {"version": 1, "kind": "feedback", **told}


def test_recalls_with_good_feedback_become_cases() -> None:
    records = [to_dict(DRINK), to_dict(PET), good(DRINK, "tea"), good(PET, "dog", False)]
    cases = cases_from_traces(records)

    (case,) = cases.cases
    assert case.cue == Cue("What does Ann drink?", ("What does Ann drink?", "part"), "trip")
    assert case.relevant == {"tea"}
    assert case.at == NOW
    assert case.collection == "memories/ann"
    assert cases.notes == ("1 traces left out: without good feedback",)


def test_collection_holds_every_memory_seen_as_it_was_last_seen() -> None:
    cases = cases_from_traces([good(DRINK, "tea"), to_dict(DRINK), to_dict(PET)])

    (collection,) = cases.collections
    held = dict(collection.memories)
    assert held.keys() == {"tea", "dog"}
    assert held["dog"]["content"] == "Ann has a dog"
    assert held["dog"]["salience"] == 0.7
    assert held["dog"]["written_at"] == "2026-03-02T12:00:00+00:00"


def test_namespaces_are_collections_of_their_own() -> None:
    bobs = recall("Bob?", scored("tea", "Bob hates tea", BOB), namespaces=(BOB,))
    told = [good(DRINK, "tea"), good(bobs, "tea")]
    cases = cases_from_traces([to_dict(DRINK), to_dict(bobs), *told])
    assert [one.name for one in cases.collections] == ["memories/ann", "memories/bob"]


def test_same_keys_of_several_namespaces_are_told_apart() -> None:
    shared = recall(
        "Tea?",
        scored("tea", "Ann drinks tea"),
        scored("tea", "Bob hates tea", BOB),
        namespaces=(ANN, BOB),
    )
    cases = cases_from_traces([to_dict(shared), good(shared, "tea")])
    assert cases.collections[0].name == "memories/ann + memories/bob"
    assert cases.cases[0].relevant == {"memories/ann/tea", "memories/bob/tea"}


def test_traces_without_text_are_left_out_with_a_note() -> None:
    records = [to_dict(DRINK, with_text=False), to_dict(PET), good(PET, "dog")]
    assert cases_from_traces(records).notes == ("1 traces left out: recorded without text",)


@pytest.mark.parametrize(
    "records",
    [[], [to_dict(DRINK)], [to_dict(DRINK), good(DRINK, "unknown")], [good(DRINK, "tea")]],
)
def test_without_good_feedback_there_are_no_cases(records: list[dict[str, Any]]) -> None:
    with pytest.raises(InputError, match="has good feedback"):
        cases_from_traces(records)


def test_records_of_another_version_are_refused() -> None:
    with pytest.raises(InputError, match="version 9"):
        cases_from_traces([good(DRINK, "tea") | {"version": 9}])


def test_what_a_store_logged_can_be_measured(tmp_path: Path) -> None:
    with TraceLog(tmp_path / "traces.jsonl") as log:
        store = RecallStore(LocalStore(), traces=log, record=False)
        for key, text in {"tea": "Ann drinks green tea", "dog": "Ann has a dog"}.items():
            store.put(ANN, key, {"content": text})
        found = store.recall(ANN, "Which tea does Ann drink?")
        assert "tea" in {memory.key for memory in found.memories}
        store.feedback(ANN, "tea")
        store.close()

    cases = cases_from_traces(read_log(tmp_path / "traces.jsonl"))
    report = evaluate(cases, [RecallPolicy.default()])
    assert report.rows[0].estimates["recall@10"].mean == 1.0
