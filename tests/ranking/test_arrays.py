"""The largest of many values, found by groups."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from langmem_recall.ranking.arrays import top_rows


@given(
    size=st.integers(1, 10_000),
    count=st.integers(1, 60),
    kinds=st.sampled_from([2, 50, 10**6]),
    seed=st.integers(0, 2**32 - 1),
)
def test_the_largest_are_those_of_a_full_sort(size, count, kinds, seed):
    values = np.random.default_rng(seed).integers(0, kinds, size).astype(np.float64)
    values[:: max(size // 3, 1)] = -np.inf
    count = min(count, size)

    found = top_rows(values, count)

    # All that tie with the last one are among them.
    assert found.tolist() == np.flatnonzero(values >= np.sort(values)[size - count]).tolist()


# Of 1,000 values 66 groups of 15 are made, and ten are left over.
@pytest.mark.parametrize("place", [0, 500, 989, 990, 999])
def test_one_that_is_larger_than_all_is_found_wherever_it_stands(place):
    values = np.zeros(1_000)
    values[place] = 1.0

    assert place in top_rows(values, 1)


def test_what_is_within_the_margin_of_the_largest_is_among_them():
    assert top_rows(np.array([0.5, 0.9, 0.89, 0.1]), 1, margin=0.02).tolist() == [1, 2]
