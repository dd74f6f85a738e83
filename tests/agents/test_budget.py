import pytest
from hypothesis import given
from hypothesis import strategies as st

from langmem_recall.agents.block import Packing, pack


def used(packing, whole):
    return sum(whole[i] for i in packing.whole) + sum(packing.shortened.values())


@pytest.mark.parametrize(
    ("whole", "least", "budget", "expected"),
    [
        pytest.param([], [], 100, Packing([], {}, []), id="nothing to pack"),
        pytest.param([30, 40], [5, 5], 70, Packing([0, 1], {}, []), id="all fit whole"),
        # 5 are set aside for each of the later two: 30 + 5 + 5 leaves 29 above the second's 5.
        pytest.param(
            [30, 40, 20], [5, 5, 5], 69, Packing([0, 2], {1: 19}, []), id="the second is too long"
        ),
        # 100 does not fit beside two floors of 10; 15 and 15 do, and 90 - 30 is left for the first.
        pytest.param(
            [100, 15, 15], [10, 10, 10], 90, Packing([1, 2], {0: 60}, []), id="the best is long"
        ),
        # Floors take 30 of 36; nobody can be whole, so the best gets the 6.
        pytest.param(
            [50, 50, 50],
            [10, 10, 10],
            36,
            Packing([], {0: 16, 1: 10, 2: 10}, []),
            id="the rest goes to the best",
        ),
        pytest.param(
            [50, 50, 50], [10, 10, 10], 25, Packing([], {0: 15, 1: 10}, [2]), id="lowest dropped"
        ),
        pytest.param([50, 8], [20, 8], 10, Packing([1], {}, [0]), id="one that never fits"),
        pytest.param([50, 8], [20, 8], 0, Packing([], {}, [0, 1]), id="no budget"),
        pytest.param([50, 8], [20, 8], -5, Packing([], {}, [0, 1]), id="less than none"),
        pytest.param([5], [9], 6, Packing([0], {}, []), id="a floor above the whole"),
    ],
)
def test_lines_are_packed_best_first(whole, least, budget, expected):
    assert pack(whole, least, budget) == expected


def test_costs_of_different_length_are_refused():
    with pytest.raises(ValueError, match="zip"):
        pack([1, 2], [1], 10)


costs = st.lists(st.tuples(st.integers(0, 500), st.integers(0, 120)), max_size=12)


@given(costs, st.integers(-10, 1500))
def test_the_budget_is_never_exceeded_and_every_line_accounted_for(lines, budget):
    whole, least = [line[0] for line in lines], [line[1] for line in lines]
    packing = pack(whole, least, budget)
    assert used(packing, whole) <= max(budget, 0)
    assert sorted([*packing.whole, *packing.shortened, *packing.dropped]) == list(range(len(lines)))
    for i, tokens in packing.shortened.items():
        assert least[i] <= tokens < whole[i]


@given(costs, st.integers(0, 1500))
def test_nothing_is_left_over_while_a_line_is_shortened(lines, budget):
    whole, least = [line[0] for line in lines], [line[1] for line in lines]
    packing = pack(whole, least, budget)
    if packing.shortened:
        assert used(packing, whole) == budget


@given(costs, st.integers(0, 1500))
def test_only_lowest_lines_and_those_that_never_fit_are_dropped(lines, budget):
    whole, least = [line[0] for line in lines], [line[1] for line in lines]
    packing = pack(whole, least, budget)
    kept = [*packing.whole, *packing.shortened]
    for i in packing.dropped:
        assert min(whole[i], least[i]) > budget or all(i > other for other in kept)
