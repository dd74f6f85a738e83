from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langmem_recall.memory.upkeep import (
    counts_as_use,
    faded,
    pooled,
    reinforced,
    restated,
)
from langmem_recall.types import TRUST, Memory, Usage, UsageDelta

DAY = 86_400.0


@pytest.mark.parametrize(
    ("count", "days", "fade", "expected"),
    [
        (4.0, 0, 0.99, 4.0),
        (4.0, 1, 0.99, 3.96),
        (4.0, 2, 0.99, 3.9204),
        (8.0, 3, 0.5, 1.0),
        (8.0, 0.5, 0.25, 4.0),
        (4.0, 100, 1.0, 4.0),
        (4.0, -5, 0.5, 4.0),
        (0.0, 5, 0.5, 0.0),
    ],
    ids=["now", "a day", "two days", "halving", "half a day", "no fading", "future", "none"],
)
def test_count_fades_by_the_day(count, days, fade, expected):
    assert faded(count, days * DAY, fade) == pytest.approx(expected)


def test_first_use_makes_the_record():
    assert reinforced(Usage(), UsageDelta(1, 100.0), 0.99) == Usage(1, 1.0, 100.0, None)
    assert reinforced(Usage(), UsageDelta(3, 100.0, 90.0), 0.99) == Usage(3, 3.0, 100.0, 90.0)


def test_later_use_finds_the_earlier_ones_faded():
    # 4 uses, 2 days later at 0.5 a day: 1 left, 1 more.
    found = reinforced(Usage(4, 4.0, 10 * DAY, 9 * DAY), UsageDelta(1, 12 * DAY), 0.5)

    assert found == Usage(5, 2.0, 12 * DAY, 10 * DAY)


def test_use_reported_late_fades_on_its_way():
    # Known up to day 12; a use of day 10 comes in at 0.5^2 of its worth.
    found = reinforced(Usage(1, 1.0, 12 * DAY, None), UsageDelta(2, 10 * DAY, 9 * DAY), 0.5)

    assert found == Usage(3, 1.5, 12 * DAY, 10 * DAY)


def test_two_uses_at_once_are_each_others_use_before():
    found = reinforced(Usage(1, 1.0, 2 * DAY, None), UsageDelta(2, 9 * DAY, 8 * DAY), 1.0)

    assert found == Usage(3, 3.0, 9 * DAY, 8 * DAY)


@pytest.mark.parametrize(
    ("pending", "touch", "expected"),
    [
        (None, UsageDelta(1, 5.0), UsageDelta(1, 5.0)),
        (UsageDelta(1, 5.0), UsageDelta(1, 7.0), UsageDelta(2, 7.0, 5.0)),
        (UsageDelta(1, 7.0), UsageDelta(1, 5.0), UsageDelta(2, 7.0, 5.0)),
        (UsageDelta(2, 9.0, 8.0), UsageDelta(1, 5.0), UsageDelta(3, 9.0, 8.0)),
        (UsageDelta(2, 9.0, 3.0), UsageDelta(2, 7.0, 6.0), UsageDelta(4, 9.0, 7.0)),
        (UsageDelta(1, 5.0), UsageDelta(1, 5.0), UsageDelta(2, 5.0, 5.0)),
    ],
)
def test_pooled_uses_keep_their_number_and_the_two_latest_times(pending, touch, expected):
    assert pooled(pending, touch) == expected


times = st.floats(0, 3000 * DAY)
touches = st.builds(
    lambda uses, last, gap: UsageDelta(uses, last, last - gap if uses > 1 else None),
    st.integers(1, 20),
    times,
    st.floats(0, 10 * DAY),
)


def after(held: list[UsageDelta], fade: float) -> Usage:
    usage = Usage()
    for touch in held:
        usage = reinforced(usage, touch, fade)
    return usage


@given(st.lists(touches, min_size=1, max_size=6), st.randoms(), st.floats(0.5, 1.0))
def test_uses_may_come_in_any_order(held, random, fade):
    one, other = after(held, fade), after(random.sample(held, len(held)), fade)

    assert (one.uses, one.last_used, one.before) == (other.uses, other.last_used, other.before)
    assert one.decayed == pytest.approx(other.decayed, rel=1e-9)


@given(st.lists(touches, min_size=1, max_size=6), st.floats(0.5, 1.0))
def test_faded_count_never_exceeds_the_exact_one(held, fade):
    usage = after(held, fade)

    assert usage.uses == sum(touch.uses for touch in held)
    assert 0 < usage.decayed <= usage.uses + 1e-9
    assert usage.before is None or usage.before <= usage.last_used


@given(st.lists(touches, min_size=1, max_size=6), st.randoms())
def test_pooling_in_any_order_gives_the_same_and_agrees_with_the_record(held, random):
    pending = backwards = None
    for touch in held:
        pending = pooled(pending, touch)
    for touch in random.sample(held, len(held)):
        backwards = pooled(backwards, touch)
    usage = after(held, 1.0)

    assert pending == backwards
    assert pending == (usage.uses, usage.last_used, usage.before, 0)


@pytest.mark.parametrize(
    ("last_used", "now", "floor", "counts"),
    [
        (None, 100.0, 60.0, True),
        (100.0, 159.9, 60.0, False),
        (100.0, 160.0, 60.0, True),
        (100.0, 100.0, 0.0, True),
        (100.0, 100.5, 0.0, True),
        (100.0, 99.0, 60.0, False),
        # Two processes' clocks differ a little: 0 counts every use.
        (100.0, 99.0, 0.0, True),
    ],
)
def test_use_counts_when_the_last_one_is_far_enough(last_used, now, floor, counts):
    usage = Usage() if last_used is None else Usage(1, 1.0, last_used)

    assert counts_as_use(usage, now, floor) is counts


# --- outcomes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("merit", "steps", "expected"),
    [
        (0, 1, 1),
        (0, -1, -1),
        (4, 1, 5),
        (5, 1, 5),
        (5, -1, 4),
        (-5, -3, -5),
        (-5, 1, -4),
        (3, 9, 5),
    ],
)
def test_outcomes_add_up_within_bounds(merit, steps, expected):
    held = Usage(2, 1.5, 100.0, 50.0, merit)

    assert reinforced(held, UsageDelta(0, merit=steps), 0.99) == held._replace(merit=expected)


def test_an_outcome_of_what_was_never_used_makes_a_record_without_uses():
    assert reinforced(Usage(), UsageDelta(0, merit=1), 0.99) == Usage(0, 0.0, None, None, 1)


def test_a_use_keeps_the_merit():
    assert reinforced(Usage(0, 0.0, None, None, -2), UsageDelta(1, 7.0), 0.99).merit == -2
    assert reinforced(Usage(1, 1.0, 5.0, None, 3), UsageDelta(1, 7.0), 1.0) == Usage(
        2, 2.0, 7.0, 5.0, 3
    )


def test_uses_and_outcomes_pool():
    assert pooled(UsageDelta(1, 5.0), UsageDelta(0, merit=-1)) == UsageDelta(1, 5.0, None, -1)
    assert pooled(UsageDelta(0, merit=1), UsageDelta(0, merit=1)) == UsageDelta(0, None, None, 2)
    assert pooled(UsageDelta(0, merit=1), UsageDelta(2, 9.0, 8.0, -3)) == UsageDelta(
        2, 9.0, 8.0, -2
    )


@given(st.lists(st.integers(-1, 1), max_size=4), st.randoms())
def test_outcomes_within_bounds_may_come_in_any_order(steps, random):
    usage, backwards = Usage(), Usage()
    for step in steps:
        usage = reinforced(usage, UsageDelta(0, merit=step), 0.99)
    for step in random.sample(steps, len(steps)):
        backwards = reinforced(backwards, UsageDelta(0, merit=step), 0.99)

    assert usage.merit == backwards.merit == sum(steps)


# --- said again -----------------------------------------------------------------------------------

NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)


def memory(**fields: Any) -> Memory:
    return Memory(namespace=("u",), key="k", text="t", **fields)


@pytest.mark.parametrize(
    ("held", "said", "source"),
    [
        ("agent_inferred", "user_stated", "user_stated"),
        ("external", "tool_verified", "tool_verified"),
        ("tool_verified", "user_stated", "user_stated"),
        ("user_stated", "tool_verified", "user_stated"),
        ("user_stated", "external", "user_stated"),
        ("external", "agent_inferred", "external"),
        ("external", "recalled", "external"),
        ("external", "unknown", "external"),
        ("recalled", "agent_inferred", "recalled"),
    ],
)
def test_only_a_source_that_needs_no_verification_raises_trust(held, said, source):
    changes = restated(memory(source=held, confidence=0.4), memory(source=said), NOW)

    assert changes.get("source", held) == source
    vouched = TRUST[said] >= 0.7
    assert changes.get("confirmed_at") == (NOW if vouched else None)
    assert changes.get("confidence") == (1.0 if vouched else None)


@given(st.sampled_from(list(TRUST)), st.sampled_from(list(TRUST)), st.floats(0, 1), st.floats(0, 1))
def test_saying_it_again_never_lowers_trust_or_confidence(held, said, first, second):
    changes = restated(
        memory(source=held, confidence=first), memory(source=said, confidence=second), NOW
    )

    assert TRUST[changes.get("source", held)] >= TRUST[held]
    assert changes.get("confidence", first) >= first


def test_what_is_said_again_brings_its_tags_and_stays_valid_longer():
    held = memory(tags=("a",), valid_until=NOW, salience=0.2)
    later = NOW + timedelta(days=3)
    said = memory(tags=("b", "a"), valid_until=later, pinned=True, salience=0.9)

    assert restated(held, said, NOW) == {
        "tags": ("a", "b"),
        "valid_until": later,
        "pinned": True,
        "salience": 0.9,
    }
    assert restated(held, memory(), NOW) == {"valid_until": None}
    assert restated(memory(), memory(valid_until=later), NOW) == {}
