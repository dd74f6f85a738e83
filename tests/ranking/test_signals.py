from __future__ import annotations

from datetime import UTC, datetime, timedelta
from math import log
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langmem_recall.policy import RecallPolicy
from langmem_recall.ranking.signals import (
    IMPORTANCE,
    RECENCY,
    RELEVANCE,
    SIMILARITY,
    STRENGTH,
    TRUST,
    importance,
    recency,
    signal_table,
    strength,
)
from langmem_recall.types import TRUST as TRUST_BY_SOURCE
from langmem_recall.types import Candidate, Evidence, Memory, Usage

NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)
TODAY = NOW.timestamp()
DAY = 86_400.0
UNUSED = Usage()


def candidate(
    dense: float | None = 0.5,
    relevance: float = 0.5,
    age_days: float | None = 0.0,
    usage: Usage = UNUSED,
    **fields: Any,
) -> Candidate:
    written = None if age_days is None else NOW - timedelta(days=age_days)
    memory = Memory(namespace=("u",), key="k", text="t", written_at=written, **fields)
    return Candidate(memory, Evidence(dense=dense, relevance=relevance), usage)


def used(days_ago: float, count: float = 1.0, before_days_ago: float | None = None) -> Usage:
    before = None if before_days_ago is None else TODAY - before_days_ago * DAY
    return Usage(round(count), count, TODAY - days_ago * DAY, before)


def signal(row: int, one: Candidate, **knobs: Any) -> float:
    table, _, _ = signal_table([one], RecallPolicy(**knobs), TODAY)
    return float(table[row, 0])


@pytest.mark.parametrize(
    ("age_hours", "expected"),
    [(0.0, 1.0), (24.0, 0.5), (48.0, 0.25), (72.0, 0.125), (-5.0, 1.0), (np.nan, 0.5)],
)
def test_recency_halves_with_every_half_life(age_hours, expected):
    assert recency(np.array([age_hours]), 24.0) == pytest.approx([expected])


@pytest.mark.parametrize(
    ("salience", "uses", "expected"),
    [
        (0.5, 0.0, 0.5),
        (0.5, 1.0, 0.5 + 0.05 * log(2)),
        (0.5, 3.0, 0.5 + 0.05 * log(4)),
        # 0.99 + 0.05 ln 10 = 1.105 is cut at 1.
        (0.99, 9.0, 1.0),
    ],
)
def test_importance_is_salience_lifted_by_the_log_of_use(salience, uses, expected):
    assert importance(np.array([salience]), np.array([uses]), 0.05) == pytest.approx([expected])


@pytest.mark.parametrize(("uses", "expected"), [(0.0, 0.0), (3.0, 0.5), (9.0, 0.75)])
def test_strength_rises_from_zero_to_one_with_use(uses, expected):
    assert strength(np.array([uses])) == pytest.approx([expected])


@pytest.mark.parametrize(
    ("dense", "relevance", "expected"),
    [(0.7, 0.1, 0.7), (-0.4, 0.9, 0.0), (1.000001, 0.1, 1.0), (None, 0.3, 0.3)],
    ids=["cosine", "below zero", "above one", "no cosine: relevance speaks"],
)
def test_similarity_is_the_cosine_within_zero_and_one(dense, relevance, expected):
    assert signal(SIMILARITY, candidate(dense, relevance)) == pytest.approx(expected)


@pytest.mark.parametrize("source", TRUST_BY_SOURCE)
def test_trust_comes_from_the_source(source):
    assert signal(TRUST, candidate(source=source)) == TRUST_BY_SOURCE[source]


def test_relevance_is_passed_on_untouched():
    assert signal(RELEVANCE, candidate(relevance=0.37)) == 0.37


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (candidate(age_days=7), 0.5),
        (candidate(age_days=21), 0.125),
        (candidate(age_days=70, usage=used(7)), 0.5),
        (candidate(age_days=None), 0.5),
        (candidate(age_days=None, usage=used(14)), 0.25),
        (candidate(age_days=-3), 1.0),
        (candidate(age_days=7, usage=used(-2)), 1.0),
    ],
    ids=[
        "written a half-life ago",
        "written three half-lives ago",
        "use counts, not writing",
        "time unknown",
        "written at an unknown time, used",
        "written in the future",
        "used in the future",
    ],
)
def test_recency_is_by_last_use_or_else_by_writing(one, expected):
    assert signal(RECENCY, one, half_life_hours=7 * 24.0) == pytest.approx(expected)


def test_time_takes_nothing_from_durable_kinds_and_pinned_memories():
    knobs = {"half_life_hours": 24.0, "durable_kinds": ("procedural",)}

    assert signal(RECENCY, candidate(age_days=3), **knobs) == pytest.approx(0.125)
    assert signal(RECENCY, candidate(age_days=3, kind="procedural"), **knobs) == 1.0
    assert signal(RECENCY, candidate(age_days=3, pinned=True), **knobs) == 1.0
    assert signal(RECENCY, candidate(age_days=None, kind="procedural"), **knobs) == 1.0


def test_half_life_grows_with_use_under_ebbinghaus():
    # n = 3 as of the last use, none of it faded: half-life 7 x (1 + 3) = 28 days, so 0.5 at 28.
    one = candidate(usage=used(28, count=3.0))
    knobs = {"half_life_hours": 7 * 24.0, "count_fade_per_day": 1.0}

    assert signal(RECENCY, one, ebbinghaus=True, **knobs) == pytest.approx(0.5)
    assert signal(RECENCY, one, ebbinghaus=False, **knobs) == pytest.approx(1 / 16)


def test_more_use_never_makes_a_memory_fade_faster_under_ebbinghaus():
    values = [
        signal(RECENCY, candidate(usage=used(10, count=count)), ebbinghaus=True)
        for count in (0.0, 1.0, 4.0, 20.0)
    ]

    assert values == sorted(values)


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (used(0, before_days_ago=0.5), 1.0),
        (used(0, before_days_ago=1.0), 1.0),
        (used(0, before_days_ago=1.01), 0.25),
        (used(0), 0.25),
        (Usage(), 0.25),
    ],
    ids=["12 hours apart", "24 hours apart", "over 24 hours apart", "used once", "never used"],
)
def test_lru2_lets_a_use_refresh_only_soon_after_the_one_before(usage, expected):
    # Written 14 days ago: two half-lives of 7 days, 0.25 unless refreshed.
    one = candidate(age_days=14, usage=usage)

    assert signal(RECENCY, one, lru2=True, half_life_hours=7 * 24.0) == pytest.approx(expected)


def test_uses_fade_by_a_hundredth_a_day():
    # 4 uses, 10 days idle: 4 x 0.99^10 = 3.6175.
    _, _, uses = signal_table([candidate(usage=used(10, count=4.0))], RecallPolicy(), TODAY)

    assert uses == pytest.approx([4 * 0.99**10])
    assert signal(IMPORTANCE, candidate(usage=used(10, count=4.0))) == pytest.approx(
        0.5 + 0.05 * log(1 + 4 * 0.99**10)
    )


def test_use_in_the_future_does_not_grow():
    _, _, uses = signal_table([candidate(usage=used(-10, count=4.0))], RecallPolicy(), TODAY)

    assert uses == pytest.approx([4.0])


def test_count_without_a_time_of_use_leaves_signals_finite():
    table, _, uses = signal_table([candidate(usage=Usage(2, 2.0))], RecallPolicy(), TODAY)

    assert np.isfinite(table).all()
    assert np.isfinite(uses).all()


def test_table_of_nothing_is_empty():
    table, ages, uses = signal_table([], RecallPolicy(), TODAY)

    assert table.shape == (6, 0)
    assert len(ages) == len(uses) == 0


shares = st.floats(0, 1)
usages = st.builds(
    lambda count, last, gap: Usage(int(count), count, last, None if gap is None else last - gap),
    st.floats(0, 1e6),
    st.floats(0, 4e9),
    st.none() | st.floats(0, 1e9),
)
candidates = st.builds(
    candidate,
    dense=st.none() | st.floats(-1, 1),
    relevance=shares,
    age_days=st.none() | st.floats(-3000, 20_000),
    usage=st.just(Usage()) | usages,
    salience=shares,
    source=st.sampled_from(list(TRUST_BY_SOURCE)),
)


@settings(deadline=None)
@given(st.lists(candidates, max_size=5), st.booleans(), st.booleans(), st.floats(1e-6, 1e6))
def test_every_signal_lies_between_zero_and_one(held, ebbinghaus, lru2, half_life):
    policy = RecallPolicy(ebbinghaus=ebbinghaus, lru2=lru2, half_life_hours=half_life)
    table, _, uses = signal_table(held, policy, TODAY)

    assert ((table >= 0) & (table <= 1)).all()
    assert (uses >= 0).all()
    assert (table[STRENGTH] < 1).all()
