from __future__ import annotations

from datetime import UTC, datetime, timedelta
from math import exp, log
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import langmem_recall.policy
from langmem_recall.policy import RecallPolicy, Weights
from langmem_recall.ranking.blend import blend, min_max, reciprocal_ranks
from langmem_recall.ranking.signals import RELEVANCE, signal_table
from langmem_recall.types import KINDS, TRUST, Candidate, Evidence, Memory, Temporal, Usage

NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)
DAY = 86_400.0


def candidate(
    dense: float | None = 0.5,
    *,
    relevance: float = 0.5,
    age_days: float | None = 0.0,
    salience: float = 0.5,
    used_days: float | None = None,
    n: float = 0.0,
    ranks: tuple[int | None, int | None] = (None, None),
    **fields: Any,
) -> Candidate:
    """A candidate whose use count has faded to exactly `n` by now."""
    written = None if age_days is None else NOW - timedelta(days=age_days)
    memory = Memory(
        namespace=("u",), key="k", text="t", written_at=written, salience=salience, **fields
    )
    usage = Usage()
    if used_days is not None:
        usage = Usage(1, n / 0.99**used_days, NOW.timestamp() - used_days * DAY)
    return Candidate(memory, Evidence(dense=dense, relevance=relevance), usage, *ranks)


def scores(
    candidates: list[Candidate], policy: RecallPolicy, temporal: Temporal | None = None
) -> np.ndarray:
    signals, ages, uses = signal_table(candidates, policy, NOW.timestamp())
    return blend(candidates, signals, ages, uses, policy, temporal)


def test_weighted_is_similarity_recency_and_salience():
    found = scores(
        [
            candidate(0.8, age_days=0),
            candidate(0.5, age_days=7, salience=0.9),
            candidate(0.2, age_days=14, salience=1.0),
            candidate(-0.3, age_days=None, salience=0.0),
        ],
        RecallPolicy.weighted(),
    )

    assert found == pytest.approx(
        [
            0.6 * 0.8 + 0.25 * 1.0 + 0.15 * 0.5,  # 0.805
            0.6 * 0.5 + 0.25 * 0.5 + 0.15 * 0.9,  # 0.56
            0.6 * 0.2 + 0.25 * 0.25 + 0.15 * 1.0,  # 0.3325
            0.6 * 0.0 + 0.25 * 0.5 + 0.15 * 0.0,  # 0.125: the time is unknown
        ]
    )


def test_weighted_counts_salience_without_use():
    one = candidate(0.8, used_days=0, n=9.0)

    assert scores([one], RecallPolicy.weighted()) == pytest.approx([0.805])


def test_linear_takes_the_weights_as_they_are_given():
    policy = RecallPolicy.weighted(weights=Weights(similarity=3.0, recency=1.0))

    # 3 x 0.8 + 1 x 1.0
    assert scores([candidate(0.8)], policy) == pytest.approx([3.4])


def test_linear_without_any_weight_is_zero():
    assert scores([candidate()], RecallPolicy.weighted(weights=Weights())) == pytest.approx([0.0])


def test_generative_agents_adds_three_stretched_signals():
    found = scores(
        [
            candidate(0.9, age_days=0, salience=0.2),
            candidate(0.5, age_days=100 / 24, salience=0.5),
            candidate(0.1, age_days=200 / 24, salience=0.8),
        ],
        RecallPolicy.generative_agents(),
    )

    # r = 0.995^hours: 1, 0.6058, 0.3670; stretched 1, (0.6058 - 0.3670) / 0.6330 = 0.3772, 0.
    middle = (0.995**100 - 0.995**200) / (1 - 0.995**200)
    assert found == pytest.approx([1 + 0 + 1, middle + 0.5 + 0.5, 0 + 1 + 0])


def test_constant_signal_counts_half_for_everyone():
    # All equal: 0.5 for recency, 0.5 for importance, 0.5 for similarity.
    assert scores([candidate(), candidate()], RecallPolicy.generative_agents()) == pytest.approx(
        [1.5, 1.5]
    )
    assert min_max(np.array([[0.3, 0.3, 0.3], [0.0, 0.5, 2.0]]), 168.0) == pytest.approx(
        np.array([[0.5, 0.5, 0.5], [0.0, 0.25, 1.0]])
    )


@pytest.mark.parametrize("half_life_hours", [0.5, 168.0, 90 * 24.0])
@pytest.mark.parametrize(("seconds", "newer"), [(1, 0.5), (59, 0.5), (3600, 1.0)])
def test_memories_of_one_moment_are_equally_recent(half_life_hours, seconds, newer):
    policy = RecallPolicy.generative_agents(
        half_life_hours=half_life_hours, weights=Weights(recency=1.0)
    )
    found = scores([candidate(), candidate(age_days=seconds / DAY)], policy)

    assert found == pytest.approx([newer, 1 - newer])


def test_counts_that_only_the_clock_tells_apart_are_one_importance():
    # Both used once, a second apart: 0.05 ln 2 but for the fading of a second.
    policy = RecallPolicy.normalized(weights=Weights(importance=1.0))
    pair = [candidate(used_days=0, n=1.0), candidate(used_days=0, n=0.99 ** (1 / DAY))]

    assert scores(pair, policy) == pytest.approx([0.5, 0.5])


def test_normalized_lifts_importance_by_the_log_of_use():
    found = scores(
        [
            candidate(0.7, age_days=14),
            candidate(0.7, age_days=14, used_days=0, n=1.0),
            candidate(0.7, age_days=14, used_days=0, n=3.0),
        ],
        RecallPolicy.normalized(),
    )

    # recency 0.5, 1, 1 -> 0, 1, 1; importance 0.5 + 0.05 (0, ln 2, ln 4) -> 0, 0.5, 1;
    # similarity alike -> 0.5.
    assert found == pytest.approx([0.5, 2.0, 2.5])


@pytest.mark.parametrize(
    ("policy", "half_life_days", "expected"),
    [
        # recency 1, 1/3, 0; importance 0, 0.5, 1; similarity 0, 1, 1
        (RecallPolicy.assistant(), 7, [1.5, 0.5 + 0.5 + 1.0, 1.0 + 1.0]),
        (RecallPolicy.support(), 30, [1.0, 1 / 3 + 0.75 + 1.0, 1.5 + 1.0]),
        (RecallPolicy.coding(), 90, [0.5, 0.5 / 3 + 0.5 + 1.5, 1.0 + 1.5]),
    ],
    ids=["assistant", "support", "coding"],
)
def test_workload_preset_weighs_the_stretched_signals(policy, half_life_days, expected):
    # Recency 1, 0.5, 0.25 is stretched to 1, 1/3, 0.
    found = scores(
        [
            candidate(0.2, age_days=0, salience=0.1),
            candidate(0.6, age_days=half_life_days, salience=0.5),
            candidate(0.6, age_days=2 * half_life_days, salience=0.9),
        ],
        policy,
    )

    assert found == pytest.approx(expected)


def test_product_adds_importance_times_recency():
    found = scores(
        [
            candidate(0.9, age_days=0, salience=1.0),
            candidate(0.6, age_days=30, salience=0.5),
            candidate(0.0, age_days=60, salience=0.8),
            candidate(0.4, age_days=None, salience=0.2),
        ],
        RecallPolicy.product(half_life_hours=30 * 24.0),
    )

    assert found == pytest.approx([0.9 + 1.0, 0.6 + 0.5 * 0.5, 0.0 + 0.8 * 0.25, 0.4 + 0.2 * 0.5])


def test_interpolated_is_worked_out_as_written():
    found = scores(
        [
            candidate(age_days=0, salience=0.5, ranks=(1, 2)),
            candidate(age_days=9, salience=1.0, used_days=2, n=1.0, ranks=(2, None)),
            candidate(age_days=9, salience=0.2, used_days=3, n=3.0, ranks=(None, 1)),
        ],
        RecallPolicy.interpolated(0.3),
    )

    # Shares 0.70 - 0.09 = 0.61, 0.40 x 0.3 = 0.12, 0.20 - 0.03 = 0.17, 0.10. The best sum of two
    # lists is 2/61. Decay exp(-days / (1 + n)); use ln 1, ln 2, ln 4 over ln 4 = 0, 0.5, 1.
    best = 2 / 61
    rrf = [(1 / 61 + 1 / 62) / best, (1 / 62) / best, (1 / 61) / best]
    decay = [1.0, exp(-2 / 2), exp(-3 / 4)]
    assert found == pytest.approx(
        [
            0.61 * rrf[0] + 0.12 * decay[0] + 0.17 * 0.5 * decay[0] + 0.10 * 0.0,
            0.61 * rrf[1] + 0.12 * decay[1] + 0.17 * 1.0 * decay[1] + 0.10 * 0.5,
            0.61 * rrf[2] + 0.12 * decay[2] + 0.17 * 0.2 * decay[2] + 0.10 * 1.0,
        ]
    )


def test_names_are_a_third_list_and_equal_shares_one_rank():
    # Ranks by name 1, 1, 3 and none; the best sum of two lists is 2/61.
    shares = (1.0, 1.0, 0.5, 0.0)
    found = [candidate(ranks=(place, None)) for place in (1, 2, 3, 4)]
    named = [
        one._replace(evidence=one.evidence._replace(entity=share))
        for one, share in zip(found, shares, strict=True)
    ]

    assert reciprocal_ranks(named) == pytest.approx(
        [1.0, (1 / 62 + 1 / 61) * 61 / 2, (2 / 63) * 61 / 2, (1 / 64) * 61 / 2]
    )


def test_interpolated_with_w_zero_has_no_share_of_pure_decay():
    # 0.70 x 1 + 0 + 0.20 x 0.5 x exp(-1) + 0: the only candidate is first in the only list.
    one = candidate(age_days=1, ranks=(1, None))

    assert scores([one], RecallPolicy.interpolated(0.0)) == pytest.approx([0.7 + 0.1 * exp(-1)])


def test_interpolated_takes_an_unknown_time_as_half_faded():
    # 0.61 x 1 + 0.12 x 0.5 + 0.17 x 0.5 x 0.5
    one = candidate(age_days=None, ranks=(1, 1))

    assert scores([one], RecallPolicy.interpolated(0.3)) == pytest.approx([0.61 + 0.06 + 0.0425])


def test_interpolated_takes_a_future_time_as_now():
    one, other = candidate(age_days=-5, ranks=(1, 1)), candidate(age_days=0, ranks=(1, 1))

    found = scores([one, other], RecallPolicy.interpolated())
    assert found[0] == pytest.approx(found[1])


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [
        ([(1, 1)], [1.0]),
        ([(1, None), (2, None)], [1.0, 61 / 62]),
        ([(1, None), (None, 1)], [0.5, 0.5]),
        ([(1, 3), (2, None)], [(1 + 61 / 63) / 2, (61 / 62) / 2]),
        ([(None, None)], [0.0]),
        ([], []),
    ],
    ids=["first in both", "one list only", "one each", "no term match skipped", "none", "empty"],
)
def test_reciprocal_ranks_are_a_share_of_the_best_sum(ranks, expected):
    assert reciprocal_ranks([candidate(ranks=pair) for pair in ranks]) == pytest.approx(expected)


BOOSTED = RecallPolicy(
    weights=Weights(recency=0.1, importance=0.2, strength=0.1, trust=0.1),
    use_boost=0.0,
    half_life_hours=30 * 24.0,
    current_recency=4.0,
    window_boost=0.3,
)


def test_bounded_is_relevance_times_one_plus_boosts():
    found = scores(
        [
            # used 30 days ago: recency 0.5; n = 3: strength 0.5; user_stated: trust 1
            candidate(relevance=0.8, age_days=90, used_days=30, n=3.0, source="user_stated"),
            candidate(relevance=0.6, salience=1.0, source="external"),
            candidate(relevance=0.4, age_days=None, salience=0.0),
        ],
        BOOSTED,
    )

    assert found == pytest.approx(
        [
            0.8 * (1 + 0.1 * 0.5 + 0.2 * 0.5 + 0.1 * 0.5 + 0.1 * 1.0),  # 0.8 x 1.3
            0.6 * (1 + 0.1 * 1.0 + 0.2 * 1.0 + 0.1 * 0.0 + 0.1 * 0.3),  # 0.6 x 1.33
            0.4 * (1 + 0.1 * 0.5 + 0.2 * 0.0 + 0.1 * 0.0 + 0.1 * 0.5),  # 0.4 x 1.1
        ]
    )


def with_merit(one: Candidate, merit: int) -> Candidate:
    return one._replace(usage=one.usage._replace(merit=merit))


@pytest.mark.parametrize(
    ("merit", "step", "factor"),
    [(0, 0.05, 1.0), (1, 0.05, 1.05), (5, 0.05, 1.25), (-5, 0.05, 0.75), (-5, 0.2, 0.0), (3, 0, 1)],
)
@pytest.mark.parametrize("name", langmem_recall.policy.PRESETS)
def test_outcomes_move_the_score_of_every_preset_by_steps(name, merit, step, factor):
    plain = candidate(0.7, relevance=0.8, ranks=(1, 1))
    policy = getattr(RecallPolicy, name)(feedback_step=step)
    found = scores([plain, with_merit(plain, merit)], policy)

    # Only the inner store's own scores are left alone.
    assert found[1] == pytest.approx(found[0] * (1.0 if name == "similarity" else factor))


def test_outcomes_leave_relevance_alone():
    moved = with_merit(candidate(relevance=0.8), 5)
    signals, _, _ = signal_table([moved], BOOSTED, NOW.timestamp())

    assert signals[RELEVANCE, 0] == 0.8


def test_bounded_multiplies_reciprocal_ranks_where_the_policy_orders_by_them():
    # rrf 1 and 61/62; boosts 0.1 recency + 0.2 x 0.5 + 0.1 x 0.5 = 0.25
    found = scores(
        [candidate(relevance=0.1, ranks=(1, 1)), candidate(relevance=0.9, ranks=(2, 2))],
        BOOSTED.replace(ordering="rrf"),
    )

    assert found == pytest.approx([1.25, 1.25 * 61 / 62])


def test_tier_gives_a_kind_weights_of_its_own():
    policy = BOOSTED.replace(tiers={"episodic": Weights(recency=0.5)})
    found = scores([candidate(kind="episodic"), candidate(kind="semantic")], policy)

    # episodic 0.5 x (1 + 0.5 x 1); semantic 0.5 x (1 + 0.1 + 0.2 x 0.5 + 0.1 x 0.5)
    assert found == pytest.approx([0.75, 0.625])


def test_tiers_work_under_linear_and_stretched_blends_too():
    tiers = {"episodic": Weights(similarity=1.0)}
    pair = [candidate(0.8, kind="episodic"), candidate(0.2, salience=0.0)]

    assert scores(pair, RecallPolicy.weighted(tiers=tiers)) == pytest.approx(
        [0.8, 0.6 * 0.2 + 0.25 + 0.0]
    )
    # similarity 1 and 0, importance 1 and 0, recency alike 0.5
    assert scores(pair, RecallPolicy.generative_agents(tiers=tiers)) == pytest.approx([1.0, 0.5])


MARCH = Temporal("window", datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 4, 1, tzinfo=UTC))


@pytest.mark.parametrize(
    ("temporal", "expected"),
    [
        # Fresh: recency 1; old (30 days, 2 February): recency 0.5. Other boosts 0.1 + 0.05.
        (None, [1.25, 1.20]),
        (Temporal("current"), [1.15 + 4 * 0.1 * 1.0, 1.15 + 4 * 0.1 * 0.5]),
        (Temporal("first"), [1.15 + 4 * 0.1 * 0.0, 1.15 + 4 * 0.1 * 0.5]),
        (Temporal("past"), [1.15, 1.15]),
        (MARCH, [1.15 + 0.3, 1.15]),
        (Temporal("window", None, datetime(2026, 3, 1, tzinfo=UTC)), [1.15, 1.45]),
        (Temporal("window", datetime(2026, 1, 1, tzinfo=UTC)), [1.45, 1.45]),
        (Temporal("window"), [1.15, 1.15]),
    ],
    ids=["none", "current", "first", "past", "window", "until", "from", "window without ends"],
)
def test_time_in_the_cue_changes_what_recency_does(temporal, expected):
    pair = [candidate(relevance=1.0), candidate(relevance=1.0, age_days=30)]

    assert scores(pair, BOOSTED, temporal) == pytest.approx(expected)


def test_window_holds_its_start_and_not_its_end():
    start = NOW - timedelta(days=10)
    pair = [candidate(relevance=1.0, age_days=10), candidate(relevance=1.0, age_days=5)]
    found = scores(pair, BOOSTED, Temporal("window", start, NOW - timedelta(days=5)))

    assert found == pytest.approx([1.45, 1.15])


def test_memory_of_unknown_time_is_in_no_window():
    assert scores([candidate(relevance=1.0, age_days=None)], BOOSTED, MARCH) == pytest.approx(
        [1.15]
    )


def test_window_without_a_time_zone_is_utc():
    naive = Temporal("window", datetime(2026, 3, 1), datetime(2026, 4, 1))

    assert scores([candidate(relevance=1.0)], BOOSTED, naive) == pytest.approx([1.45])


def test_similarity_leaves_the_cosine_as_it_is():
    found = scores([candidate(0.8), candidate(0.3, salience=1.0)], RecallPolicy.similarity())

    assert found == pytest.approx([0.8, 0.3])


def test_similarity_keeps_the_order_of_cosines_below_zero():
    first, second = scores([candidate(-0.1), candidate(-0.6)], RecallPolicy.similarity())

    assert first > second


shares = st.floats(0, 1)
candidates = st.builds(
    candidate,
    st.none() | st.floats(-1, 1),
    relevance=shares,
    age_days=st.none() | st.floats(-3000, 20_000),
    salience=shares,
    used_days=st.none() | st.floats(0, 3000),
    n=st.floats(0, 1e4),
    ranks=st.tuples(st.none() | st.integers(1, 500), st.none() | st.integers(1, 500)),
    kind=st.sampled_from(KINDS),
    source=st.sampled_from(list(TRUST)),
)
moments = st.datetimes(
    min_value=datetime(1970, 1, 2), max_value=datetime(2100, 1, 1), timezones=st.just(UTC)
)
temporals = st.none() | st.builds(
    Temporal,
    st.sampled_from(["current", "past", "first", "window"]),
    st.none() | moments,
    st.none() | moments,
)
PRESETS = [
    RecallPolicy.default(),
    RecallPolicy.default(ordering="rrf", ebbinghaus=True, lru2=True),
    RecallPolicy.weighted(),
    RecallPolicy.generative_agents(),
    RecallPolicy.normalized(tiers={"episodic": Weights(recency=2.0)}),
    RecallPolicy.product(),
    RecallPolicy.interpolated(),
    RecallPolicy.similarity(),
]


@settings(deadline=None)
@given(st.lists(candidates, max_size=6), st.sampled_from(PRESETS), temporals)
def test_scores_are_finite_and_a_formula_is_never_negative(held, policy, temporal):
    found = scores(held, policy, temporal)

    assert found.shape == (len(held),)
    assert np.isfinite(found).all()
    # Only the inner store's own scores, which `similarity` leaves alone, may be negative.
    assert policy.blend == "similarity" or (found >= 0).all()


@settings(deadline=None)
@given(st.lists(candidates, min_size=1, max_size=6), temporals)
def test_bounded_never_rescues_what_is_not_relevant(held, temporal):
    irrelevant = [one._replace(evidence=one.evidence._replace(relevance=0.0)) for one in held]

    assert (scores(irrelevant, BOOSTED, temporal) == 0).all()


@settings(deadline=None)
@given(st.lists(candidates, min_size=1, max_size=6))
def test_bounded_lies_between_relevance_and_relevance_times_all_boosts(held):
    relevance = np.array([one.evidence.relevance for one in held])
    found = scores(held, BOOSTED)

    assert (found >= relevance * (1 - 1e-12)).all()
    # 1 + 0.1 + 0.2 + 0.1 + 0.1
    assert (found <= relevance * 1.5 * (1 + 1e-12)).all()


@settings(deadline=None)
@given(st.lists(candidates, min_size=2, max_size=6))
def test_stretched_scores_stay_within_the_sum_of_weights(held):
    assert (scores(held, RecallPolicy.assistant()) <= 3.5 + 1e-9).all()


def test_interpolated_log_use_is_a_share_of_the_most_used():
    # Same but for use: ln(1 + 3) / ln(1 + 8) apart in a term worth 0.10; ages all 0, so decay 1.
    pair = [candidate(used_days=0, n=3.0), candidate(used_days=0, n=8.0)]
    less, most = scores(pair, RecallPolicy.interpolated())

    assert most - less == pytest.approx(0.10 * (1 - log(4) / log(9)))
