import pytest
from hypothesis import given
from hypothesis import strategies as st

from langmem_recall.agents.block import pack


@pytest.mark.parametrize(
    ("whole", "least", "budget", "expected"),
    [
        pytest.param([], [], 100, {}, id="nothing to pack"),
        pytest.param([30, 40], [5, 5], 70, {0: 30, 1: 40}, id="all fit whole"),
        # 5 are set aside for each of the later two: 30 + 5 + 5 leaves 29 above the second's 5.
        pytest.param(
            [30, 40, 20], [5, 5, 5], 69, {0: 30, 1: 19, 2: 20}, id="the second is too long"
        ),
        # 100 does not fit beside two floors of 10; 15 and 15 do, and 90 - 30 is left for the first.
        pytest.param([100, 15, 15], [10, 10, 10], 90, {0: 60, 1: 15, 2: 15}, id="the best is long"),
        # Floors take 30 of 36; nobody can be whole, so the best gets the 6.
        pytest.param(
            [50, 50, 50],
            [10, 10, 10],
            36,
            {0: 16, 1: 10, 2: 10},
            id="the rest goes to the best",
        ),
        pytest.param([50, 50, 50], [10, 10, 10], 25, {0: 15, 1: 10}, id="lowest dropped"),
        pytest.param([50, 8], [20, 8], 10, {1: 8}, id="one that never fits"),
        pytest.param([50, 8], [20, 8], 0, {}, id="no budget"),
        pytest.param([50, 8], [20, 8], -5, {}, id="less than none"),
        pytest.param([5], [9], 6, {0: 5}, id="a floor above the whole"),
    ],
)
def test_lines_are_packed_best_first(whole, least, budget, expected):
    assert pack(whole, least, budget) == expected


def test_costs_of_different_length_are_refused():
    with pytest.raises(ValueError, match="zip"):
        pack([1, 2], [1], 10)


costs = st.lists(st.tuples(st.integers(0, 500), st.integers(0, 120)), max_size=12)


@given(costs, st.integers(-10, 1500))
def test_the_budget_is_never_exceeded_and_a_line_is_whole_or_has_its_least(lines, budget):
    whole, least = [line[0] for line in lines], [line[1] for line in lines]
    rooms = pack(whole, least, budget)
    assert sum(rooms.values()) <= max(budget, 0)
    assert set(rooms) <= set(range(len(lines)))
    for i, tokens in rooms.items():
        assert tokens == whole[i] or least[i] <= tokens < whole[i]


@given(costs, st.integers(0, 1500))
def test_nothing_is_left_over_while_a_line_is_shortened(lines, budget):
    whole, least = [line[0] for line in lines], [line[1] for line in lines]
    rooms = pack(whole, least, budget)
    if any(tokens < whole[i] for i, tokens in rooms.items()):
        assert sum(rooms.values()) == budget


@given(costs, st.integers(0, 1500))
def test_only_lowest_lines_and_those_that_never_fit_are_dropped(lines, budget):
    whole, least = [line[0] for line in lines], [line[1] for line in lines]
    rooms = pack(whole, least, budget)
    for i in set(range(len(lines))) - set(rooms):
        assert min(whole[i], least[i]) > budget or all(i > other for other in rooms)
