import pytest
from hypothesis import given
from hypothesis import strategies as st

from langmem_recall.agents.block import pack


@pytest.mark.parametrize(
    ("whole", "least", "budget", "expected"),
    [
        pytest.param([], [], 100, {}, id="nothing to pack"),
        pytest.param([30, 40], [5, 5], 70, {0: 30, 1: 40}, id="all fit whole"),
        # 30 whole leaves 39: not 40, so 5, and 20 of the 34 left; the rest goes to the second.
        pytest.param(
            [30, 40, 20], [5, 5, 5], 69, {0: 30, 1: 19, 2: 20}, id="the second is too long"
        ),
        # 100 does not fit: 10, then 15 and 15, and the other 50 go to the first.
        pytest.param([100, 15, 15], [10, 10, 10], 90, {0: 60, 1: 15, 2: 15}, id="the best is long"),
        # None can be whole; each has its 10, and the best gets the 6.
        pytest.param(
            [50, 50, 50],
            [10, 10, 10],
            36,
            {0: 16, 1: 10, 2: 10},
            id="the rest goes to the best",
        ),
        # Whole before shortened: 50 of 60, then a sentence of the second, and the third is out.
        pytest.param([50, 50, 50], [10, 10, 10], 60, {0: 50, 1: 10}, id="whole ones first"),
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
def test_a_line_is_dropped_only_where_better_ones_leave_it_no_room(lines, budget):
    whole, least = [line[0] for line in lines], [line[1] for line in lines]
    rooms = pack(whole, least, budget)
    for i in set(range(len(lines))) - set(rooms):
        assert min(lines[i]) + sum(rooms[j] for j in rooms if j < i) > budget


@given(costs, st.integers(0, 1500))
def test_a_line_is_shortened_only_where_it_does_not_fit_whole_beside_better_ones(lines, budget):
    whole, least = [line[0] for line in lines], [line[1] for line in lines]
    rooms = pack(whole, least, budget)
    for i in (i for i in rooms if rooms[i] < whole[i]):
        assert whole[i] + sum(rooms[j] for j in rooms if j < i) > budget
