from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from langmem_recall.policy import RecallPolicy
from langmem_recall.ranking.diversity import mmr, without_duplicates
from langmem_recall.types import Candidate, Evidence, Memory, Scored, Signals

POLICY = RecallPolicy(duplicate_similarity=0.9)


def scored(text: str, key: str = "k", *, pinned: bool = False) -> Scored:
    memory = Memory(namespace=("u",), key=key, text=text, pinned=pinned)
    return Scored(Candidate(memory, Evidence()), Signals(*[0.5] * 6), 0.5)


def alike(*pairs: tuple[int, int, float], count: int) -> np.ndarray:
    matrix = np.eye(count)
    for one, other, likeness in pairs:
        matrix[one, other] = matrix[other, one] = likeness
    return matrix


def test_mmr_is_greedy_against_what_is_selected():
    scores = np.array([0.9, 0.8, 0.7])
    likeness = alike((0, 1, 0.9), (0, 2, 0.1), (1, 2, 0.3), count=3)

    # First the best, 0. Then 1: 0.5 x 0.8 - 0.5 x 0.9 = -0.05; 2: 0.5 x 0.7 - 0.5 x 0.1 = 0.30.
    assert mmr(scores, likeness, 0.5) == [0, 2, 1]
    # At 0.9: 1: 0.72 - 0.09 = 0.63 against 2: 0.63 - 0.01 = 0.62.
    assert mmr(scores, likeness, 0.9) == [0, 1, 2]


def test_mmr_ignores_likeness_to_what_is_not_selected():
    scores = np.array([0.9, 0.5, 0.45, 0.1])
    # 1 is like 3, which comes last whatever happens; it must not be punished for that.
    likeness = alike((1, 3, 1.0), count=4)

    # 1: 0.25 - 0; 2: 0.225 - 0; then 3: 0.05 - 0.5.
    assert mmr(scores, likeness, 0.5) == [0, 1, 2, 3]


def test_mmr_remembers_the_nearest_of_all_selected():
    scores = np.array([1.0, 0.9, 0.8, 0.7])
    likeness = alike((0, 2, 0.8), (1, 3, 0.1), (1, 2, 0.0), (0, 3, 0.0), count=4)

    # After 0 and 1: 2: 0.4 - 0.4 = 0.0; 3: 0.35 - 0.05 = 0.30.
    assert mmr(scores, likeness, 0.5) == [0, 1, 3, 2]


def test_mmr_at_zero_looks_at_novelty_alone():
    # All start at 0; then what is least like the first.
    likeness = alike((0, 1, 0.9), (0, 2, 0.5), (1, 2, 0.1), count=3)

    assert mmr(np.array([0.9, 0.8, 0.1]), likeness, 0.0) == [0, 2, 1]


def test_unknown_likeness_counts_as_none():
    likeness = alike((0, 1, np.nan), count=2)

    assert mmr(np.array([0.9, 0.8]), likeness, 0.5) == [0, 1]
    assert without_duplicates([scored("a"), scored("b")], likeness, POLICY) == ([0, 1], [])


@given(st.lists(st.floats(0, 3), max_size=8, unique=True), st.floats(0, 1))
def test_mmr_gives_every_index_once_and_at_one_the_order_of_scores(scores, balance):
    held = np.array(scores)
    likeness = np.ones((len(held), len(held)))

    assert sorted(mmr(held, likeness, balance)) == list(range(len(held)))
    assert mmr(held, likeness, 1.0) == np.argsort(-held).tolist()


def test_near_duplicate_of_a_better_memory_is_dropped_with_the_reason():
    ranked = [scored("likes tea", "better"), scored("likes a tea", "worse"), scored("runs")]
    kept, dropped = without_duplicates(ranked, alike((0, 1, 0.95), count=3), POLICY)

    assert kept == [0, 2]
    assert [(drop.memory.key, drop.gate, drop.reason) for drop in dropped] == [
        ("worse", "duplicate", "0.95 like better")
    ]


@pytest.mark.parametrize(("likeness", "kept"), [(0.9, [0]), (0.8999, [0, 1])])
def test_likeness_counts_from_the_knob_on(likeness, kept):
    pair = [scored("likes tea"), scored("likes a tea")]

    assert without_duplicates(pair, alike((0, 1, likeness), count=2), POLICY)[0] == kept


def test_memory_like_a_dropped_one_only_is_kept():
    # 1 is like 0 and goes; 2 is like 1 but not like 0 and stays.
    ranked = [scored("a"), scored("b"), scored("c")]
    likeness = alike((0, 1, 0.95), (1, 2, 0.95), (0, 2, 0.5), count=3)

    assert without_duplicates(ranked, likeness, POLICY)[0] == [0, 2]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("the budget is 5,000 euros", "the budget is 7,000 euros"),
        ("upgraded to v1.2.3 today", "upgraded to v1.2.4 today"),
        ("sister of Anna in town", "sister of Bella in town"),
        ("meets on 3 May", "meets on 4 May"),
        ("the cat of Élodie sleeps", "the cat of Ángela sleeps"),
        ("friend (Anna) called", "friend (Bella) called"),
        ("Anna is allergic to nuts", "Bella is allergic to nuts"),
    ],
)
def test_names_and_numbers_tell_memories_apart(one, other):
    pair = [scored(one), scored(other)]

    assert without_duplicates(pair, alike((0, 1, 0.99), count=2), POLICY)[0] == [0, 1]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("budget is 5,000.", "the budget: 5,000"),
        ("The tea is green", "A tea that is green"),
        ("went with Anna, twice", "twice went with Anna"),
    ],
)
def test_same_names_and_numbers_in_other_words_are_duplicates(one, other):
    pair = [scored(one), scored(other)]

    assert without_duplicates(pair, alike((0, 1, 0.99), count=2), POLICY)[0] == [0]


def test_pinned_memory_is_never_dropped_and_its_duplicate_is():
    ranked = [scored("tea"), scored("tea", pinned=True), scored("tea")]
    kept, dropped = without_duplicates(ranked, np.ones((3, 3)), POLICY)

    # A copy that ranks higher is no news either.
    assert kept == [1]
    assert [drop.scored for drop in dropped] == [ranked[0], ranked[2]]


@given(st.integers(0, 7), st.lists(st.booleans(), min_size=7, max_size=7), st.data())
def test_duplicates_and_kept_make_up_the_whole(count, pins, data):
    ranked = [scored("tea", str(i), pinned=pins[i]) for i in range(count)]
    values = data.draw(st.lists(st.floats(0, 1), min_size=count**2, max_size=count**2))
    half = np.tril(np.array(values).reshape(count, count))
    kept, dropped = without_duplicates(ranked, half + half.T, POLICY)

    assert sorted([*kept, *(int(drop.memory.key) for drop in dropped)]) == list(range(count))
    assert not any(drop.memory.pinned for drop in dropped)
    assert not count or any(pins[:count]) or kept[0] == 0
