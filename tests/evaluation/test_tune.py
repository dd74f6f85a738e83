from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore

from langmem_recall import Caching
from langmem_recall.embeddings import LocalEmbeddings
from langmem_recall.errors import InputError
from langmem_recall.evaluation.cases import OFF_TOPIC, Case, CaseSet, Collection
from langmem_recall.evaluation.evaluate import (
    NAMESPACE,
    best_relevance,
    evaluate,
    set_injection_rate,
)
from langmem_recall.evaluation.tune import Tuned, ask, deal_folds, tune
from langmem_recall.policy import RecallPolicy, Weights
from langmem_recall.ranking.pipeline import rank
from langmem_recall.stores.local.store import LocalStore
from langmem_recall.stores.recall_store import RecallStore
from langmem_recall.types import Cue

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
PLACES = (
    *("bakery", "garage", "library", "dentist", "florist", "gym", "tailor", "cinema", "butcher"),
    *("barber", "pharmacy", "bookshop", "museum", "bank", "brewery", "optician"),
)
OFF_TOPIC_CUES = (
    "How do I sort a linked list in Rust?",
    "What is the boiling point of nitrogen?",
    "Write a haiku on compilers",
    "Convert 12 miles to kilometres",
    "Which planet has the most moons?",
    "Explain the derivative of a cosine",
    "Who composed the Brandenburg Concertos?",
    "What does HTTP status 418 mean?",
)


def told(text: str, days_ago: float, **fields: Any) -> dict[str, Any]:
    return {
        "content": text,
        "written_at": (NOW - timedelta(days=days_ago)).isoformat(),
        **fields,
    }


def moving_town(wants: Callable[[int], str], off_topic: bool = False) -> CaseSet:
    """Each place has moved: the old address is told in the cue's own words, the new one is not."""
    memories, cases = [], []
    for i, place in enumerate(PLACES):
        old, new = f"{place}-old", f"{place}-new"
        memories += [
            (old, told(f"Our {place} is found in the street number {i + 11}", 300 + i)),
            (
                new,
                told(
                    f"Since the flood the {place} is over by the river, number {i + 41}", 1 + i / 10
                ),
            ),
        ]
        key = {"old": old, "new": new}[wants(i)]
        cases.append(Case("town", Cue(f"In which street is our {place} found?"), {key}, at=NOW))
    if off_topic:
        cases += [Case("town", Cue(text), at=NOW, group=OFF_TOPIC) for text in OFF_TOPIC_CUES]
    return CaseSet("town", (Collection("town", tuple(memories)),), tuple(cases))


@pytest.fixture(scope="module")
def newest_wanted() -> Tuned:
    return tune(moving_town(lambda i: "new"))


# --- ranking --------------------------------------------------------------------------------------


def test_recency_rises_where_the_newest_statement_is_the_one_wanted(newest_wanted: Tuned) -> None:
    assert newest_wanted.policy.weights.recency > RecallPolicy.default().weights.recency
    assert newest_wanted.is_better
    assert newest_wanted.policy.name == "tuned"
    assert newest_wanted.reason == "ranking: fitted; gates: left alone, as no case is off-topic"
    gained = newest_wanted.after["ndcg@10"].mean - newest_wanted.before["ndcg@10"].mean
    assert gained > 0.15
    assert newest_wanted.after["ndcg@10"].is_significant


def test_knobs_that_no_case_speaks_of_stay_as_they_are(newest_wanted: Tuned) -> None:
    # No memory is more salient or more used than another, and no cue means a time.
    assert set(newest_wanted.changes) <= {"weights.recency", "half_life_hours"}
    assert newest_wanted.policy.trigger == RecallPolicy.default().trigger


def test_what_was_estimated_holds_through_the_store(newest_wanted: Tuned) -> None:
    cases = moving_town(lambda i: "new")
    base, tuned = evaluate(cases, [RecallPolicy.default(), newest_wanted.policy]).rows
    for metric in ("ndcg@10", "recall@10", "injected"):
        assert newest_wanted.before[metric].mean == pytest.approx(base[metric].mean)
    assert tuned["ndcg@10"].mean == pytest.approx(newest_wanted.after["ndcg@10"].mean, abs=0.1)


def test_tuning_is_refused_when_the_base_is_right_already() -> None:
    base = RecallPolicy.default(weights=Weights(importance=0.3))
    found = tune(moving_town(lambda i: "old"), base=base)
    assert found.policy is found.base is base
    assert found.reason == "no significant gain over the default"
    assert not found.is_better
    assert found.changes == {}


def test_tuning_is_refused_when_only_chance_tells_old_from_new() -> None:
    found = tune(moving_town(lambda i: "old" if i % 3 else "new"))
    assert found.policy is found.base
    assert found.reason == "no significant gain over the default"


def test_a_refusal_names_the_policy_that_was_not_beaten() -> None:
    found = tune(moving_town(lambda i: "old"), base=RecallPolicy.similarity())
    assert found.reason == "no significant gain over similarity"


def test_importance_rises_where_salience_tells_what_is_wanted() -> None:
    memories, cases = [], []
    for i, place in enumerate(PLACES):
        memories += [
            (f"{i}a", told(f"Anything to know about the {place} is here", 5, salience=0.1)),
            (f"{i}b", told(f"To know about the {place}: it gives me a rash", 5, salience=1.0)),
        ]
        cue = Cue(f"Anything to know about the {place}?")
        cases.append(Case("town", cue, {f"{i}b"}, at=NOW))
    town = CaseSet("town", (Collection("town", tuple(memories)),), tuple(cases))
    base = RecallPolicy.default(weights=Weights(recency=0.06, importance=0.0))
    found = tune(town, base=base)
    assert found.policy.weights.importance > 0.0
    assert found.policy.weights.recency == 0.06


def test_the_same_seed_gives_the_same_result(newest_wanted: Tuned) -> None:
    again = tune(moving_town(lambda i: "new"), seed=0)
    assert again.to_dict() == newest_wanted.to_dict()


def test_each_case_is_kept_back_once_and_another_seed_deals_anew() -> None:
    town = moving_town(lambda i: "old")
    dealt = deal_folds(town, 5, seed=0).tolist()
    assert [dealt.count(fold) for fold in range(5)] == [4, 3, 3, 3, 3]
    assert deal_folds(town, 5, seed=1).tolist() != dealt


def test_a_collection_is_kept_back_as_a_whole() -> None:
    town = moving_town(lambda i: "old")
    # The second collection goes by a name of its own, and asks only half as much.
    village = Collection("village", town.collections[0].memories)
    asked = (Case("village", case.cue, case.relevant, case.at) for case in town.cases[:8])
    both = CaseSet("both", (*town.collections, village), (*town.cases, *asked))
    dealt = deal_folds(both, 5, seed=0).tolist()
    assert sorted((dealt.count(0), dealt.count(1))) == [8, 16]


# --- ranking again what was found -----------------------------------------------------------------

POLICIES = [
    RecallPolicy.default(pool=8, rescues=4),
    RecallPolicy.default(ordering="rrf"),
    RecallPolicy.generative_agents(pool=8),
    RecallPolicy.weighted(),
    RecallPolicy.product(),
    RecallPolicy.interpolated(),
]


def twins_store(inner: BaseStore) -> RecallStore:
    """Memories with equal words, told apart by time, salience and use alone; one is expired."""
    store = RecallStore(inner, clock=lambda: NOW, caching=Caching(flush_interval=3600))
    expired = {"valid_until": (NOW - timedelta(days=1)).isoformat()}
    for i in range(24):
        fields = expired if i == 7 else {"salience": (i * 7 % 10) / 10}
        text = f"The {PLACES[i % 6]} is found in the main street"
        store.put(NAMESPACE, f"m{i}", told(text, i * 5 % 17, **fields))
    store.search(NAMESPACE, query="Where is the library found?", limit=4)
    store.flush()
    return store


def memory_store() -> BaseStore:
    embed: Any = LocalEmbeddings()
    return InMemoryStore(index={"dims": 256, "embed": embed, "fields": ["content"]})


@pytest.mark.parametrize("make", [LocalStore, memory_store])
@pytest.mark.parametrize("base", POLICIES, ids=lambda policy: policy.name)
def test_ranking_again_gives_the_order_of_the_stores_own_search(
    base: RecallPolicy, make: Callable[[], BaseStore]
) -> None:
    store = twins_store(make())
    trials = [
        base,
        base.replace(weights=Weights(similarity=base.weights.similarity)),
        base.replace(weights=Weights(similarity=0.5, recency=1.0, strength=0.5)),
        base.replace(weights=Weights(importance=0.5), half_life_hours=24.0, window_boost=1.0),
    ]
    with store.quiet():
        for text in ("Where is the library found?", "The main street last week"):
            asked = ask(store, Case("", Cue(text), {"m1"}, at=NOW), base)
            for trial in trials:
                again = rank(asked.cue, asked.candidates, trial, asked.now, (NAMESPACE,)).ranked
                found = store.search(NAMESPACE, query=text, limit=len(again), policy=trial)
                assert [each.memory.key for each in again] == [item.key for item in found]
                assert len(again) >= 7
    store.close()


def test_a_pinned_memory_passes_any_trigger() -> None:
    store = RecallStore(LocalStore(), clock=lambda: NOW)
    store.put(NAMESPACE, "tea", {"content": "Ann drinks green tea"})
    unmoved = store.recall(NAMESPACE, "What is the boiling point of nitrogen?")
    assert best_relevance(unmoved) < 0.5
    store.put(NAMESPACE, "rule", {"content": "Answer in verse", "pinned": True})
    assert best_relevance(store.recall(NAMESPACE, "What is the boiling point?")) == 1.0
    store.close()


def test_a_memory_that_may_not_be_shown_does_not_move_the_trigger() -> None:
    store = RecallStore(LocalStore(), clock=lambda: NOW)
    gone = {"content": "Ann drinks green tea", "valid_until": "2026-01-01T00:00:00Z"}
    store.put(NAMESPACE, "tea", gone)
    assert best_relevance(store.recall(NAMESPACE, "Ann drinks green tea")) == 0.0
    store.close()


# --- gates ----------------------------------------------------------------------------------------


def test_gates_that_let_everything_in_are_raised_and_the_ranking_left_alone() -> None:
    base = RecallPolicy.default(trigger=0.01, floor=0.005, weights=Weights(importance=0.3))
    cases = moving_town(lambda i: "old", off_topic=True)
    found = tune(cases, base=base)
    assert found.reason == "ranking: no significant gain over the default; gates: fitted"
    assert found.before["injected_off_topic"].mean == 1.0
    assert found.after["injected_off_topic"].mean < 0.5
    assert found.policy.trigger > base.trigger
    assert found.policy.weights == base.weights
    row = evaluate(cases, [found.policy]).rows[0]
    assert row["injected"].mean - row["injected_off_topic"].mean > 0.5


@pytest.mark.parametrize(
    ("target", "trigger"),
    [(0.5, 0.5), (0.25, 0.7), (0.75, 0.3), (0.0, 0.95), (1.0, 0.05), (0.4, 0.5), (0.6, 0.5)],
)
def test_the_trigger_lies_midway_where_the_share_is_reached(target: float, trigger: float) -> None:
    found = set_injection_rate([0.8, 0.2, 0.6, 0.4], target, RecallPolicy.default())
    assert found.trigger == pytest.approx(trigger)


def test_the_floor_keeps_its_distance_in_log_odds() -> None:
    # Odds of 1 and 1/4, a ratio of 4; a trigger of 0.8 has odds of 4, so the floor has 1.
    base = RecallPolicy.default(trigger=0.5, floor=0.2)
    found = set_injection_rate([0.7, 0.9], 0.5, base)
    assert found.trigger == pytest.approx(0.8)
    assert found.floor == pytest.approx(0.5)


def test_a_floor_without_a_trigger_never_rises_above_the_new_one() -> None:
    off = RecallPolicy.default(trigger=0.0, floor=0.0)
    assert set_injection_rate([0.7, 0.9], 0.5, off).floor == 0.0
    lone = RecallPolicy.default(trigger=0.0, floor=0.9)
    assert set_injection_rate([0.2, 0.4], 0.5, lone).floor == pytest.approx(0.3)


def test_a_gate_on_scores_gives_way_to_the_trigger() -> None:
    assert RecallPolicy.weighted().composite_floor > 0
    assert set_injection_rate([0.2, 0.4], 0.5, RecallPolicy.weighted()).composite_floor == 0.0


def test_cues_that_are_alike_get_the_nearest_share_there_is() -> None:
    # Either all three alike are let through, 3 of 4, or none of them, 0 of 4.
    alike = [0.5, 0.5, 0.5, 0.1]
    assert set_injection_rate(alike, 0.5, RecallPolicy.default()).trigger == pytest.approx(0.3)
    assert set_injection_rate(alike, 0.3, RecallPolicy.default()).trigger == pytest.approx(0.95)


# --- what is told, and what is refused ------------------------------------------------------------


def test_the_tuned_policy_is_the_same_after_saving_and_loading(
    newest_wanted: Tuned, tmp_path: Path
) -> None:
    for ending in ("toml", "json"):
        target = tmp_path / f"policy.{ending}"
        newest_wanted.policy.save(target)
        assert RecallPolicy.load(target) == newest_wanted.policy


def test_the_table_shows_before_and_after_and_the_knobs_moved(newest_wanted: Tuned) -> None:
    lines = str(newest_wanted).splitlines()
    assert lines[0].startswith("5 folds, ")
    assert lines[1].startswith("policy")
    assert lines[2].startswith("default")
    assert lines[3].startswith("fitted, held out")
    level = newest_wanted.policy.weights.recency
    before = RecallPolicy.default().weights.recency
    assert f"weights.recency {before:g} -> {level:g}" in lines
    assert lines[-1] == newest_wanted.reason


def test_the_result_is_valid_json(newest_wanted: Tuned) -> None:
    plain = json.loads(json.dumps(newest_wanted.to_dict(), allow_nan=False))
    assert RecallPolicy.from_dict(plain["policy"]) == newest_wanted.policy
    assert plain["after"]["injected_off_topic"]["mean"] is None
    assert plain["folds"] == 5
    assert plain["trials"] == newest_wanted.trials


def test_progress_counts_up_to_the_total() -> None:
    seen: list[tuple[int, int]] = []
    tune(moving_town(lambda i: "old"), folds=3, progress=lambda *step: seen.append(step))
    # 16 cases asked, 3 folds and the fit to all of them.
    assert seen == [(step, 20) for step in range(1, 21)]


@pytest.mark.parametrize("folds", [1, True])
def test_a_fold_must_be_kept_back(folds: int) -> None:
    with pytest.raises(InputError, match="folds must be"):
        tune(moving_town(lambda i: "new"), folds=folds)


def test_cases_that_cannot_be_fitted_to_are_refused() -> None:
    nothing: Any = []
    with pytest.raises(InputError, match="needs a CaseSet"):
        tune(nothing)
    town = moving_town(lambda i: "new")
    with pytest.raises(InputError, match="at least 2 cases"):
        tune(CaseSet("one", town.collections, town.cases[:1]))
    off_topic = (Case("town", Cue("Hi?"), group=OFF_TOPIC), Case("town", Cue("Ho?"), group="far"))
    with pytest.raises(InputError, match="no answerable case"):
        tune(CaseSet("silent", town.collections, off_topic))
