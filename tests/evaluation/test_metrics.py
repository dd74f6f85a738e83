from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from langmem_recall.evaluation.metrics import (
    auc,
    auc_estimate,
    judge_ranking,
    mean_estimate,
    near_duplicate_share,
    randomisation_p,
    resampled_aucs,
)

RANKING = ["a", "b", "c", "d", "e"]
keys = st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=8)
shares = st.lists(st.floats(0, 1), min_size=1, max_size=30).map(np.array)


def recall_at(ranking: Any, relevant: Any, k: int) -> float:
    return judge_ranking(ranking, relevant, k)["recall"]


def hit_at(ranking: Any, relevant: Any, k: int) -> float:
    return judge_ranking(ranking, relevant, k)["hit"]


def ndcg_at(ranking: Any, relevant: Any, k: int) -> float:
    return judge_ranking(ranking, relevant, k)["ndcg"]


def reciprocal_rank(ranking: Any, relevant: Any) -> float:
    return judge_ranking(ranking, relevant, 1)["mrr"]


def test_recall_is_the_share_of_the_relevant_among_the_first_k() -> None:
    assert recall_at(RANKING, {"b", "e", "z"}, 4) == pytest.approx(1 / 3)
    assert recall_at(RANKING, {"b", "e", "z"}, 5) == pytest.approx(2 / 3)


def test_a_hit_needs_one_relevant_memory_among_the_first_k() -> None:
    assert hit_at(RANKING, {"c", "z"}, 3) == 1.0
    assert hit_at(RANKING, {"c", "z"}, 2) == 0.0


def test_ndcg_discounts_by_the_logarithm_of_the_rank() -> None:
    # Relevant at ranks 2 and 4: 1/log2(3) + 1/log2(5); the best order has ranks 1 and 2.
    gained = 0.6309297535714575 + 0.43067655807339306
    assert ndcg_at(RANKING, {"b", "d"}, 5) == pytest.approx(gained / 1.6309297535714575)


def test_ndcg_is_one_when_k_is_full_of_relevant_memories() -> None:
    assert ndcg_at(RANKING, set(RANKING) | {"f", "g"}, 3) == pytest.approx(1.0)


def test_reciprocal_rank_is_of_the_first_relevant_memory() -> None:
    assert reciprocal_rank(RANKING, {"c", "e"}) == pytest.approx(1 / 3)
    assert reciprocal_rank(RANKING, {"z"}) == 0.0


def test_ranking_metrics_do_not_apply_without_relevant_memories() -> None:
    found = [recall_at([], (), 5), hit_at([], (), 5), ndcg_at([], (), 5), reciprocal_rank([], ())]
    assert all(math.isnan(value) for value in found)


@given(keys, keys.filter(bool), st.integers(1, 9))
def test_ranking_metrics_lie_between_zero_and_one(ranking: Any, relevant: Any, k: int) -> None:
    recall = recall_at(ranking, relevant, k)
    ndcg = ndcg_at(ranking, relevant, k)
    assert 0 <= recall <= hit_at(ranking, relevant, k) <= 1
    assert 0 <= ndcg <= 1 + 1e-12
    assert 0 <= reciprocal_rank(ranking, relevant) <= 1


@given(keys, keys.filter(bool), st.randoms())
def test_the_order_of_the_relevant_keys_does_not_matter(
    ranking: Any, relevant: Any, random: Any
) -> None:
    shuffled = random.sample(relevant, len(relevant))
    assert ndcg_at(ranking, relevant, 5) == ndcg_at(ranking, shuffled, 5)
    assert recall_at(ranking, relevant, 5) == recall_at(ranking, shuffled, 5)


def test_a_text_that_repeats_an_earlier_one_is_a_near_duplicate() -> None:
    texts = [
        "Ann likes strong green tea without sugar",
        "Ann likes strong green tea, without any sugar!",
        "The dog sleeps in the kitchen",
    ]
    assert near_duplicate_share(texts) == pytest.approx(1 / 3)
    assert near_duplicate_share([]) == 0.0
    assert near_duplicate_share(["...", "..."]) == 0.0


def test_auc_counts_ties_half() -> None:
    # Of six pairs four are won, one is tied, one is lost.
    found = auc(np.array([0.9, 0.5]), np.array([0.1, 0.5, 0.7]))
    assert found == pytest.approx((4 + 0.5) / 6)


def test_auc_needs_both_sides() -> None:
    assert math.isnan(auc(np.array([]), np.array([0.5])))
    assert auc_estimate(np.array([0.5]), np.array([])).n == 0


@given(shares, shares)
def test_auc_turned_round_is_one_minus_itself(first: Any, second: Any) -> None:
    assert auc(first, second) == pytest.approx(1 - auc(second, first))


@given(shares, shares)
def test_resampled_aucs_centre_on_the_auc_and_stay_in_range(first: Any, second: Any) -> None:
    resampled = resampled_aucs(first, second)
    assert resampled.min() >= -1e-12
    assert resampled.max() <= 1 + 1e-12
    assert resampled.mean() == pytest.approx(auc(first, second), abs=0.1)


@given(shares)
def test_the_interval_holds_the_mean_and_stays_in_range(values: Any) -> None:
    found = mean_estimate(values)
    assert found.n == len(values)
    assert -1e-9 <= found.low <= found.mean <= found.high <= 1 + 1e-9


@given(shares, st.randoms())
def test_the_mean_does_not_depend_on_the_order_of_cases(values: Any, random: Any) -> None:
    shuffled = np.array(random.sample(values.tolist(), len(values)))
    assert mean_estimate(shuffled).mean == pytest.approx(mean_estimate(values).mean)


def test_the_interval_of_a_coin_is_as_wide_as_theory_says() -> None:
    # 100 cases, half of them 1: standard error 0.05, so 0.5 -+ 0.098.
    found = mean_estimate(np.array([0.0, 1.0] * 50))
    assert found.low == pytest.approx(0.402, abs=0.02)
    assert found.high == pytest.approx(0.598, abs=0.02)


def test_the_same_values_give_the_same_interval() -> None:
    values = np.linspace(0, 1, 17)
    assert mean_estimate(values) == mean_estimate(values.copy())


def test_no_cases_give_no_number() -> None:
    assert math.isnan(mean_estimate(np.array([])).mean)


def test_equal_policies_do_not_differ() -> None:
    values = np.array([0.0, 1.0, 1.0])
    assert randomisation_p(values, values) == 1.0


def test_a_policy_that_always_wins_differs_and_one_win_in_a_few_does_not() -> None:
    assert randomisation_p(np.ones(20), np.zeros(20)) < 0.01
    # Four wins of four: all signs alike in 2 of 16 ways.
    assert randomisation_p(np.ones(4), np.zeros(4)) == pytest.approx(2 / 16, abs=0.03)


@given(shares)
def test_the_test_is_the_same_from_either_side(values: Any) -> None:
    others = np.zeros_like(values)
    assert randomisation_p(values, others) == randomisation_p(others, values)


def drawn(seed: int) -> tuple[dict[str, list[str]], dict[str, set[str]]]:
    rng = np.random.default_rng(seed)
    names = [f"d{n}" for n in range(40)]
    rankings = {f"q{n}": rng.permutation(names)[:20].tolist() for n in range(25)}
    relevant = {q: set(rng.choice(names, rng.integers(1, 8))) for q in rankings}
    return rankings, relevant


def test_ranking_metrics_agree_with_trec_eval() -> None:
    reason = "pytrec_eval is not installed (pip install pytrec_eval-terrier)"
    pytrec_eval = pytest.importorskip("pytrec_eval", reason=reason)
    rankings, relevant = drawn(5)
    measures = {"recall.10", "ndcg_cut.10", "success.10", "recip_rank"}
    gold = {q: {str(key): 1 for key in held} for q, held in relevant.items()}
    runs = {q: {k: -float(i) for i, k in enumerate(found)} for q, found in rankings.items()}
    for q, told in pytrec_eval.RelevanceEvaluator(gold, measures).evaluate(runs).items():
        assert recall_at(rankings[q], gold[q], 10) == pytest.approx(told["recall_10"])
        assert ndcg_at(rankings[q], gold[q], 10) == pytest.approx(told["ndcg_cut_10"])
        assert hit_at(rankings[q], gold[q], 10) == told["success_10"]
        assert reciprocal_rank(rankings[q], gold[q]) == pytest.approx(told["recip_rank"])


def test_ranking_metrics_agree_with_ranx() -> None:
    ranx = pytest.importorskip("ranx", reason="ranx is not installed (pip install ranx)")
    rankings, relevant = drawn(6)
    gold = ranx.Qrels({q: {str(key): 1 for key in held} for q, held in relevant.items()})
    run = ranx.Run(
        {q: {k: 100.0 - i for i, k in enumerate(found)} for q, found in rankings.items()}
    )
    told = ranx.evaluate(gold, run, ["recall@10", "ndcg@10", "hit_rate@10", "mrr"])
    pairs = [(rankings[q], relevant[q]) for q in rankings]
    assert np.mean([recall_at(*pair, 10) for pair in pairs]) == pytest.approx(told["recall@10"])
    assert np.mean([ndcg_at(*pair, 10) for pair in pairs]) == pytest.approx(told["ndcg@10"])
    assert np.mean([hit_at(*pair, 10) for pair in pairs]) == pytest.approx(told["hit_rate@10"])
    assert np.mean([reciprocal_rank(*pair) for pair in pairs]) == pytest.approx(told["mrr"])
