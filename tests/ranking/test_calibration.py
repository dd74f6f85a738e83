from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from langmem_recall.ranking.calibration import (
    DEFAULT_NULL,
    PANELS,
    NullDistribution,
    measure,
    measure_need,
)

EAST, NORTH, WEST = [1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]


def test_null_is_mean_and_spread_of_unrelated_pairs():
    # Question 0 with statement 1: east x north = 0; question 1 with statement 0: 0.6.
    questions = [EAST, [0.6, 0.8]]
    statements = [EAST, NORTH]

    # mean (0 + 0.6) / 2 = 0.3; deviations 0.3 both ways, so sd 0.3
    found = measure(questions, statements)
    assert found is not None
    assert (found.mean, found.sd) == pytest.approx((0.3, 0.3))
    assert found.measured
    # Statement 1 with its question, (0.6, 1.8), has 0.6 / sqrt(3.6) with question 0; statement 0
    # still has 0.6 with question 1.
    assert found.asked == pytest.approx((1 / math.sqrt(10) + 0.6) / 2 - 0.3)
    # The middle of east and north; a cue to the east has 0.5 with it, one of any length.
    assert found.center == pytest.approx((0.5, 0.5))
    assert found.of_cue([3.0, 0.0]) == pytest.approx((0.5, 0.0))
    # A vector that cannot be measured has the mean of all.
    assert found.of_cue([0.0, 0.0]) == found.of_cue([1.0]) == (found.mean, 0.0)


def test_length_of_vectors_does_not_matter():
    found = measure([[5.0, 0.0], [6.0, 8.0]], [[2.0, 0.0], [0.0, 0.1]])
    assert found is not None
    assert (found.mean, found.sd, *found.center) == pytest.approx((0.3, 0.3, 0.5, 0.5))


def test_pairs_that_share_a_topic_are_left_out():
    # Diagonal 1, 1, 1; the rest 0 or -1: 0, -1, 0, 0, -1, 0: mean -1/3, sd sqrt(2/9).
    vectors = [EAST, NORTH, WEST]
    found = measure(vectors, vectors)

    assert found is not None
    assert found.mean == pytest.approx(-1 / 3)
    assert found.sd == pytest.approx(math.sqrt(2 / 9))


@pytest.mark.parametrize(
    ("questions", "statements"),
    [
        ([EAST, [math.nan, 1.0]], [EAST, NORTH]),
        ([EAST, NORTH], [EAST, [math.inf, 0.0]]),
        ([EAST, [1.0]], [EAST, NORTH]),
        ([EAST, NORTH], [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]),
        ([EAST, NORTH], [EAST, NORTH, WEST]),
        ([EAST, [0.0, 0.0]], [EAST, NORTH]),
        ([EAST, EAST], [EAST, EAST]),
        ([EAST, NORTH], [NORTH, EAST]),
        ([EAST], [EAST]),
        ([], []),
        (EAST, NORTH),
        ([["a", "b"], ["c", "d"]], [EAST, NORTH]),
    ],
    ids=[
        *("NaN", "infinite", "ragged", "other dimensions", "other count", "zero", "identical"),
        *("no spread", "one pair", "empty", "flat", "text"),
    ],
)
def test_vectors_that_measure_nothing_give_no_null(questions, statements):
    assert measure(questions, statements) is None


def test_assumed_null_says_that_it_was_not_measured():
    assert DEFAULT_NULL.measured is False
    assert (DEFAULT_NULL.mean, DEFAULT_NULL.sd) == (0.10, 0.08)


@given(st.floats(0.05, 1.0))
def test_null_of_a_narrower_embedder_is_narrower_alike(share):
    # An embedder that adds one common direction has cos' = share x cos + (1 - share).
    vectors = np.array([EAST, [0.6, 0.8], [-0.8, 0.6]])
    common = np.full((3, 1), math.sqrt(1 - share))
    narrow = np.hstack([math.sqrt(share) * vectors, common])
    wide, tight = measure(vectors, vectors), measure(narrow, narrow)

    assert wide is not None
    assert tight is not None
    assert tight.mean == pytest.approx(share * wide.mean + 1 - share)
    assert tight.sd == pytest.approx(share * wide.sd)


def test_panel_has_thirty_two_pairs_of_distinct_texts():
    pairs = PANELS["en"]
    texts = [text for pair in pairs for text in pair]

    assert len(pairs) == 32
    assert len({text.casefold() for text in texts}) == 64
    assert all(question.endswith("?") for question, _ in pairs)
    assert all(text.strip() == text and text for text in texts)


def test_what_a_cue_is_for_is_read_from_the_line_between_two_sorts_of_cues():
    # Along the first axis the sorts lie at 0.6 and -0.6, along the others anywhere.
    draw = np.random.default_rng(3)

    def cues(place: float) -> np.ndarray:
        others = draw.standard_normal((80, 15)) * 0.2
        return np.hstack([place + draw.standard_normal((80, 1)) * 0.2, others])

    need = measure_need(cues(0.6), cues(-0.6))
    null = NullDistribution(0.0, 0.1, need=need)
    wanted, idle = np.eye(16)[0], -np.eye(16)[0]
    between = np.eye(16)[1]
    # Clear cases are believed as far as any: 0.4 x 1 and 0.4 x -3.
    assert null.of_cue(wanted)[1] == pytest.approx(0.4)
    assert null.of_cue(5.0 * wanted)[1] == pytest.approx(0.4)
    assert null.of_cue(idle)[1] == pytest.approx(-1.2)
    # On neither side it says nothing, but for chance.
    assert null.of_cue(between)[1] == pytest.approx(0.0, abs=0.25)


def test_breadth_grows_with_how_well_an_embedder_tells_texts_apart():
    # The pairs are at 0.8, unrelated texts at 0 and 0.6 by turns: 0.3 and a deviation of 0.3.
    questions = [[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]]
    statements = [[0.8, 0.0, 0.6, 0.0], [0.6, 0.8, 0.0, 0.0]]
    null = measure(questions, statements)
    assert null is not None
    assert (null.mean, null.sd) == (pytest.approx(0.3), pytest.approx(0.3))
    assert null.apart == pytest.approx(5 / 3)
    # 2 + 5/6 is less than any recall has; 2 + 4/2 is between the limits; nothing beyond 4.5.
    assert null.breadth == 3.0
    assert null._replace(apart=4.0).breadth == 4.0
    assert null._replace(apart=9.0).breadth == 4.5
    assert NullDistribution(0.1, 0.1).breadth == 3.0


def test_what_cannot_be_measured_counts_for_nothing():
    null = NullDistribution(0.0, 0.1)
    assert null.of_cue([1.0, 0.0])[1] == 0.0
    known = null._replace(need=(1.0, 0.0, 0.0))
    assert known.of_cue([0.0, 0.0])[1] == 0.0
    assert known.of_cue([1.0, 0.0, 0.0])[1] == 0.0
    assert known.of_cue([math.nan, 0.0])[1] == 0.0
    assert measure_need([[1.0, 0.0]] * 4, [[1.0, 0.0]] * 4) == ()
    assert measure_need([[0.0, 0.0]] * 4, [[1.0, 0.0]] * 4) == ()
    assert measure_need([[1.0]], [[1.0, 2.0]]) == ()
    assert measure_need([[1.0, 0.0], [1.0]], [[1.0, 0.0]] * 2) == ()
