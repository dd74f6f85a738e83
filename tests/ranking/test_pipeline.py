from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langmem_recall.policy import RecallPolicy, Weights
from langmem_recall.ranking.pipeline import DIVERSITY_REACH, mmr_order, rank, select
from langmem_recall.types import (
    Candidate,
    Cue,
    Evidence,
    Memory,
    MemoryId,
    Scored,
    Signals,
    Temporal,
)

NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)
HOME = (("u",),)
PLAIN = RecallPolicy(weights=Weights(), trigger=0.5, floor=0.15, top_k=3)
"""No boosts: the score is the relevance."""


def candidate(
    key: str, relevance: float = 0.5, *, dense: float | None = 0.5, days: float = 0.0, **fields: Any
) -> Candidate:
    held = {"namespace": ("u",), "text": f"memory {key}", **fields}
    memory = Memory(key=key, written_at=NOW - timedelta(days=days), **held)
    return Candidate(memory, Evidence(dense=dense, relevance=relevance))


def strangers(ids: Sequence[MemoryId]) -> np.ndarray:
    return np.eye(len(ids))


def twins(*keys: str, likeness: float = 0.95):
    """A likeness under which the memories of these keys are alike."""

    def judge(ids: Sequence[MemoryId]) -> np.ndarray:
        member = np.array([key in keys for _, key in ids])
        return np.where(np.eye(len(ids), dtype=bool), 1.0, likeness * np.outer(member, member))

    return judge


def keys(memories: Sequence[Any]) -> list[str]:
    return [held.memory.key for held in memories]


def ranked(candidates: Sequence[Candidate], policy: RecallPolicy = PLAIN) -> list[Scored]:
    return rank(Cue("x"), candidates, policy, NOW, HOME).ranked


def outcome(candidates: Sequence[Candidate], policy: RecallPolicy = PLAIN, likeness=strangers):
    chosen, dropped = select(ranked(candidates, policy), policy, likeness)
    return keys(chosen), [(drop.memory.key, drop.gate, drop.reason) for drop in dropped]


def test_ranking_is_best_first_with_scores_and_signals():
    found = ranked([candidate("low", 0.2), candidate("high", 0.9), candidate("mid", 0.6)])

    assert keys(found) == ["high", "mid", "low"]
    assert [scored.score for scored in found] == [0.9, 0.6, 0.2]
    assert [scored.signals.relevance for scored in found] == [0.9, 0.6, 0.2]


def test_signals_of_a_record_are_under_their_names():
    policy = PLAIN.replace(half_life_hours=24.0, use_boost=0.0)
    one = candidate("a", 0.9, dense=0.3, days=1, salience=0.7, source="external")
    signals = ranked([one], policy)[0].signals

    assert signals._asdict() == pytest.approx(
        {
            "relevance": 0.9,
            "similarity": 0.3,
            "recency": 0.5,
            "importance": 0.7,
            "strength": 0.0,
            "trust": 0.3,
        }
    )


def test_equal_scores_are_ordered_by_relevance():
    policy = RecallPolicy.weighted()
    pair = [candidate("less", 0.1), candidate("more", 0.8)]

    assert keys(ranked(pair, policy)) == ["more", "less"]


def test_hard_gates_drop_before_anything_is_scored():
    found = rank(
        Cue("x"),
        [
            candidate("fine", 0.5),
            candidate("foreign", 1.0, namespace=("v",)),
            candidate("held back", 1.0, status="quarantined"),
            candidate("early", 1.0, valid_from=NOW + timedelta(days=1)),
            candidate("late", 1.0, valid_until=NOW),
        ],
        PLAIN,
        NOW,
        HOME,
    )

    assert keys(found.ranked) == ["fine"]
    assert [(drop.memory.key, drop.gate, drop.reason) for drop in found.dropped] == [
        ("foreign", "tenant", "outside the namespace asked for"),
        ("held back", "status", "quarantined"),
        ("early", "validity", "valid from 2026-03-05"),
        ("late", "expired", "expired on 2026-03-04"),
    ]
    assert {drop.scored.score for drop in found.dropped} == {0.0}


def test_dropped_memory_does_not_stretch_the_others():
    # Were the expired one stretched along, similarity would run from 0.0 to 1.0, not 0.4 to 0.6.
    held = [candidate("a", dense=0.4), candidate("b", dense=0.6)]
    gone = candidate("gone", dense=1.0, valid_until=NOW)
    policy = RecallPolicy.generative_agents()
    with_it = rank(Cue("x"), [*held, gone], policy, NOW, HOME).ranked

    # similarity 1 and 0, recency and importance alike: 0.5 each
    assert [scored.score for scored in with_it] == [2.0, 1.0]
    assert with_it == ranked(held, policy)


def test_planning_filters_by_task_before_it_stretches():
    candidates = [
        candidate("a", dense=0.4, tags=("move",)),
        candidate("b", dense=0.6, tags=("move",)),
        candidate("c", dense=1.0, tags=("tax",)),
        candidate("d", dense=0.0),
    ]
    found = rank(Cue("x", task="move"), candidates, RecallPolicy.planning(), NOW, HOME)

    assert keys(found.ranked) == ["b", "a"]
    assert [scored.score for scored in found.ranked] == [2.0, 1.0]
    assert [(drop.memory.key, drop.gate, drop.reason) for drop in found.dropped] == [
        ("c", "task", "not tagged 'move'"),
        ("d", "task", "not tagged 'move'"),
    ]


@pytest.mark.parametrize(
    ("cue", "policy"),
    [(Cue("x"), RecallPolicy.planning()), (Cue("x", task="move"), RecallPolicy.default())],
    ids=["no task in the cue", "no filter in the policy"],
)
def test_task_filter_needs_both_a_task_and_the_knob(cue, policy):
    assert len(rank(cue, [candidate("a")], policy, NOW, HOME).ranked) == 1


def test_time_in_the_cue_reorders():
    policy = RecallPolicy(weights=Weights(recency=0.1), half_life_hours=24.0, current_recency=4.0)
    candidates = [candidate("old", 0.6, days=10), candidate("new", 0.5)]

    def order(mode: Any) -> list[str]:
        return keys(rank(Cue("x", temporal=Temporal(mode)), candidates, policy, NOW, HOME).ranked)

    # current: 0.5 x 1.4 = 0.70 against 0.6 x 1.0004; first: 0.5 against 0.6 x 1.4.
    assert order("current") == ["new", "old"]
    assert order("first") == ["old", "new"]


def test_nothing_in_is_nothing_out():
    nothing = rank(Cue("x"), [], PLAIN, NOW, HOME)

    assert (nothing.ranked, nothing.dropped) == ([], [])
    assert select([], PLAIN, strangers) == ([], [])
    assert mmr_order([], PLAIN.replace(mmr_lambda=0.5), strangers) == []


def test_recall_is_empty_when_the_best_is_not_good_enough():
    reason = "best relevance 0.40 is below the trigger 0.5"

    assert outcome([candidate("a", 0.4), candidate("b", 0.3)]) == (
        [],
        [("a", "trigger", reason), ("b", "trigger", reason)],
    )


def test_each_gate_of_a_recall_leaves_its_reason_in_order():
    candidates = [
        candidate("best", 0.9, text="likes tea"),
        candidate("twin", 0.8, text="likes the tea"),
        candidate("good", 0.7),
        candidate("fair", 0.6),
        candidate("fifth", 0.5),
        candidate("weak", 0.1),
    ]

    assert outcome(candidates, likeness=twins("best", "twin")) == (
        ["best", "good", "fair"],
        [
            ("weak", "floor", "relevance 0.10 is below the floor 0.15"),
            ("twin", "duplicate", "0.95 like best"),
            ("fifth", "top_k", "beyond the best 3"),
        ],
    )


def test_weighted_floors_the_score_and_not_the_relevance():
    # 0.6 x 0.3 + 0.25 + 0.15 x 0.5 = 0.505; 0.6 x 0 + 0.25 x 0.0625 + 0.075 = 0.0906
    policy = RecallPolicy.weighted()
    pair = [candidate("near", 0.0, dense=0.3), candidate("far", 0.0, dense=0.0, days=28)]

    assert outcome(pair, policy) == (["near"], [("far", "composite", "score 0.09 is below 0.35")])


def test_pinned_memory_is_recalled_first_whatever_its_relevance():
    candidates = [candidate(name, 0.9 - i / 10) for i, name in enumerate("abc")]
    chosen, dropped = outcome([*candidates, candidate("pin", 0.0, pinned=True)])

    assert chosen == ["pin", "a", "b"]
    assert [(key, gate) for key, gate, _ in dropped] == [("c", "top_k")]


def test_pinned_memory_is_recalled_where_nothing_else_is():
    chosen, _ = outcome([candidate("pin", 0.0, pinned=True), candidate("a", 0.4)])

    assert chosen == ["pin"]


def test_all_pinned_memories_are_recalled_even_beyond_the_count():
    pins = [candidate(f"pin {i}", 0.0, pinned=True) for i in range(5)]
    chosen, dropped = outcome([*pins, candidate("a", 0.9)])

    assert sorted(chosen) == [f"pin {i}" for i in range(5)]
    assert [(key, gate) for key, gate, _ in dropped] == [("a", "top_k")]


def test_pinned_twin_is_not_dropped_and_the_other_one_is():
    pair = [candidate("a", 0.9, text="tea"), candidate("pin", 0.1, text="tea", pinned=True)]

    assert outcome(pair, likeness=twins("a", "pin"))[0] == ["pin"]


def test_mmr_changes_what_is_chosen_where_asked_for():
    candidates = [candidate("a", 0.9), candidate("b", 0.8), candidate("c", 0.7)]
    likeness = twins("a", "b", likeness=0.8)
    policy = PLAIN.replace(top_k=2)

    # After a: b 0.5 x 0.8 - 0.5 x 0.8 = 0, c 0.5 x 0.7 - 0 = 0.35.
    assert outcome(candidates, policy, likeness)[0] == ["a", "b"]
    assert outcome(candidates, policy.replace(mmr_lambda=0.5), likeness)[0] == ["a", "c"]
    assert keys(mmr_order(ranked(candidates), policy.replace(mmr_lambda=0.5), likeness)) == [
        *("a", "c", "b")
    ]
    assert keys(mmr_order(ranked(candidates), policy, likeness)) == ["a", "b", "c"]


def test_likeness_is_asked_of_the_head_only():
    asked: list[int] = []

    def likeness(ids: Sequence[MemoryId]) -> np.ndarray:
        asked.append(len(ids))
        return strangers(ids)

    many = [candidate(str(i), 0.5 + i / 100) for i in range(30)]
    chosen, dropped = outcome(many, PLAIN.replace(top_k=3), likeness)

    assert asked == [DIVERSITY_REACH * 3]
    assert len(chosen) + len(dropped) == 30


def test_likeness_is_not_asked_of_a_lone_memory():
    def unwanted(ids: Sequence[MemoryId]) -> np.ndarray:
        raise AssertionError(f"asked about {len(ids)}")

    assert outcome([candidate("a", 0.9)], likeness=unwanted)[0] == ["a"]


def test_similarity_preset_recalls_two_memories_of_the_same_words():
    pair = [candidate("a", dense=0.9, text="tea"), candidate("b", dense=0.8, text="tea")]

    # "no gates": not even for exact duplicates.
    assert outcome(pair, RecallPolicy.similarity(), twins("a", "b", likeness=1.0))[0] == ["a", "b"]


POLICIES = [
    RecallPolicy.default(),
    RecallPolicy.weighted(),
    RecallPolicy.generative_agents(),
    RecallPolicy.product(),
    RecallPolicy.default(mmr_lambda=0.5),
]


@settings(deadline=None)
@given(
    st.lists(st.integers(1, 999), min_size=1, max_size=8, unique=True),
    st.sampled_from(POLICIES),
    st.randoms(),
)
def test_order_of_candidates_does_not_matter_where_scores_differ(parts, policy, random):
    held = [candidate(str(part), part / 1000, dense=part / 1000) for part in parts]
    shuffled = random.sample(held, len(held))

    assert outcome(held, policy) == outcome(shuffled, policy)


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(0, 1), st.booleans(), st.sampled_from(["active", "quarantined"])),
        max_size=12,
    ),
    st.sampled_from(POLICIES),
)
def test_every_candidate_is_either_chosen_or_dropped_with_a_reason(parts, policy):
    held = [
        candidate(str(i), relevance, pinned=pinned, status=status)
        for i, (relevance, pinned, status) in enumerate(parts)
    ]
    ranking = rank(Cue("x"), held, policy, NOW, HOME)
    chosen, dropped = select(ranking.ranked, policy, strangers)

    everyone = [*keys(chosen), *keys(dropped), *keys(ranking.dropped)]
    assert sorted(everyone) == sorted(str(i) for i in range(len(held)))
    assert all(drop.reason for drop in [*dropped, *ranking.dropped])


def test_three_lone_memories_that_are_not_sure_are_chosen_and_one_more_for_a_second_part() -> None:
    def lone(number: int, part: int, relevance: float) -> Scored:
        memory = Memory(namespace=("u",), key=f"{part}-{number}", text=f"note {number}")
        found = Candidate(memory, Evidence(relevance=relevance, alone=part))
        return Scored(found, Signals(relevance, 0.0, 0.0, 0.0, 0.0, 0.0), relevance)

    def chosen(ranked: list[Scored]) -> list[str]:
        best, dropped = select(ranked, policy, lambda ids: np.eye(len(ids)))
        assert {drop.gate for drop in dropped} == {"top_k"}
        return [one.memory.key for one in best]

    policy = RecallPolicy.default(top_k=20)
    assert chosen([lone(n, 1, 0.7 - n / 100) for n in range(6)]) == ["1-0", "1-1", "1-2"]
    both = [lone(number, part, 0.7 - number / 100) for number in range(6) for part in (1, 2)]
    assert chosen(both) == ["1-0", "2-0", "1-1", "2-1"]
    # Of a part that is behind its best comes in any case.
    assert chosen([*(lone(n, 1, 0.8) for n in range(6)), lone(0, 2, 0.6)])[-1] == "2-0"
    sure = [lone(number, 1, 0.95) for number in range(6)]
    assert len(select(sure, policy, lambda ids: np.eye(len(ids)))[0]) == 6
