import pytest
from hypothesis import given
from hypothesis import strategies as st

from langmem_recall.errors import InputError
from langmem_recall.filters import OPERATORS, check_filter, matches

VALUE = {
    "kind": "semantic",
    "score": 4.5,
    "count": 10,
    "level": "9",
    "when": "2026-03-04T10:00:00",
    "pinned": True,
    "none": None,
    "tags": ["a", "b"],
    "user": {"name": "Ann", "age": 30, "access-level": "staff"},
    "dotted.key": "literal",
}


@pytest.mark.parametrize(
    ("filter", "expected"),
    [
        ({}, True),
        ({"kind": "semantic"}, True),
        ({"kind": "episodic"}, False),
        ({"kind": "semantic", "count": 11}, False),
        ({"missing": "x"}, False),
        ({"missing": None}, True),
        ({"none": None}, True),
        ({"count": 10.0}, True),
        ({"pinned": True}, True),
        ({"pinned": 1}, False),
        ({"count": True}, False),
        ({"tags": ["a", "b"]}, True),
        ({"tags": ("a", "b")}, True),
        ({"tags": ["b", "a"]}, False),
        ({"tags": ["a"]}, False),
        ({"tags": "a"}, False),
        ({"user": {"name": "Ann"}}, True),
        ({"user": {"name": "Ann", "age": {"$gt": 29}}}, True),
        ({"user": {"name": "Bob"}}, False),
        ({"kind": {"name": "Ann"}}, False),
        ({"user.name": "Ann"}, True),
        ({"user.access-level": "staff"}, True),
        ({"user.name.first": "Ann"}, False),
        ({"dotted.key": "literal"}, True),
        ({"kind": {"$eq": "semantic"}}, True),
        ({"kind": {"$ne": "episodic"}}, True),
        ({"missing": {"$ne": "x"}}, True),
        ({"user": {"$eq": {"name": "Ann"}}}, False),
        ({"tags": {"$eq": ("a", "b")}}, True),
        ({"count": {"$gt": 9}}, True),
        ({"count": {"$gt": "9"}}, True),
        ({"count": {"$gt": 10}}, False),
        ({"count": {"$gte": 10}}, True),
        ({"count": {"$lt": 10**100}}, True),
        ({"count": {"$lt": float("inf"), "$gt": float("-inf")}}, True),
        ({"count": {"$eq": float("nan")}}, False),
        ({"count": {"$lt": float("nan")}}, False),
        ({"level": {"$lt": 10}}, True),
        ({"level": {"$lt": "10"}}, True),
        ({"score": {"$gte": 4, "$lte": 4.5}}, True),
        ({"when": {"$gte": "2026-03-01", "$lt": "2026-04-01"}}, True),
        ({"when": {"$gt": "2026-04-01"}}, False),
        ({"when": {"$gt": 5}}, False),
        ({"missing": {"$gt": 0}}, False),
        ({"none": {"$lt": 0}}, False),
        ({"tags": {"$gt": 0}}, False),
        ({"kind": {"$gt": 1}}, False),
    ],
)
def test_filter_decides_as_documented(filter, expected):
    check_filter(filter)
    assert matches(VALUE, filter) is expected


def test_no_filter_matches_everything():
    check_filter(None)
    assert matches({}, None)


@pytest.mark.parametrize(
    "filter",
    [
        {"count": {"$regex": "x"}},
        {"count": {"$gt": 1, "other": 2}},
        {"$or": [{"a": 1}]},
        {"access') = 'public' OR '1'='1": "x"},
        {"": 1},
        {7: 1},
        {"user": {"na\x00me": 1}},
        ["count"],
        "count",
    ],
)
def test_filter_that_cannot_be_meant_is_refused(filter):
    with pytest.raises(InputError):
        check_filter(filter)


def test_endless_nesting_is_refused():
    filter = {"a": 1}
    for _ in range(50):
        filter = {"a": filter}
    with pytest.raises(InputError, match="32 deep"):
        check_filter(filter)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda parts: st.lists(parts, max_size=3) | st.dictionaries(st.text("abc"), parts, max_size=3),
    max_leaves=8,
)


@given(json_values, st.sampled_from(OPERATORS), json_values)
def test_no_value_makes_a_checked_filter_raise(held, operator, wanted):
    filter = {"field": {operator: wanted}}
    try:
        check_filter(filter)
    except InputError:
        return
    assert matches({"field": held}, filter) in (True, False)


@given(st.integers(), st.integers())
def test_whole_numbers_compare_as_numbers(held, wanted):
    assert matches({"n": held}, {"n": {"$gt": wanted}}) is (held > wanted)
    assert matches({"n": held}, {"n": {"$lte": wanted}}) is (held <= wanted)
