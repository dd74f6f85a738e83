from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langmem_recall.errors import InputError
from langmem_recall.memory.upkeep import (
    Forgotten,
    Row,
    SweepReport,
    check_steps,
    coldness,
    expiry,
    faded_confidence,
    is_in_force,
    keeps,
    merged,
    purge,
)
from langmem_recall.types import TRUST, Memory

NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)
DAY = timedelta(days=1)


def memory(key: str = "k", **fields: Any) -> Memory:
    return Memory(namespace=("u",), key=key, text="t", **fields)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, None),
        ({"valid_until": NOW + DAY}, None),
        ({"valid_until": NOW}, "valid until 2026-03-04 12:00"),
        ({"valid_until": NOW - DAY}, "valid until 2026-03-03 12:00"),
    ],
    ids=repr,
)
def test_a_memory_expires_at_its_end(fields, expected):
    assert expiry(memory(**fields), NOW) == expected
    assert is_in_force(memory(**fields), NOW) is (expected is None)


@pytest.mark.parametrize("status", ["quarantined", "superseded"])
def test_only_active_memories_are_in_force(status):
    assert not is_in_force(memory(status=status), NOW)


def test_a_memory_whose_time_has_not_come_is_not_in_force():
    assert not is_in_force(memory(valid_from=NOW + DAY), NOW)
    assert is_in_force(memory(valid_from=NOW), NOW)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, 0.55),
        ({"confidence": 1.0}, 0.95),
        ({"confidence": 0.02}, 0.0),
        ({"written_at": NOW - 6 * DAY}, None),
        ({"written_at": NOW - 21 * DAY}, 0.45),
        ({"written_at": None}, None),
        ({"source": "user_stated"}, None),
        ({"confirmed_at": NOW}, None),
        ({"pinned": True}, None),
        ({"kind": "procedural"}, None),
        ({"status": "quarantined"}, None),
        ({"status": "superseded"}, None),
    ],
    ids=repr,
)
def test_unconfirmed_inferences_fade(fields, expected):
    written = NOW - 7 * DAY
    held = memory(
        **{"source": "agent_inferred", "confidence": 0.6, "written_at": written, **fields}
    )

    assert faded_confidence(held, ("procedural",), NOW) == expected


def test_an_inference_lasts_seven_weeks_however_often_it_is_swept():
    held = memory(source="agent_inferred", confidence=0.6, written_at=NOW)
    after = [held.confidence_at(NOW + timedelta(weeks=weeks)) for weeks in (6, 6, 7, 20)]

    # 0.30 is left after six weeks and stays; the seventh leaves 0.25.
    assert after == [0.3, 0.3, 0.25, 0.0]


@pytest.mark.parametrize("source", sorted(TRUST))
def test_only_unconfirmed_inferences_lose_confidence_by_time(source):
    held = memory(source=source, confidence=0.9, written_at=NOW)
    later = NOW + 365 * DAY

    assert held.confidence_at(later) == (0.0 if source == "agent_inferred" else 0.9)
    assert replace(held, confirmed_at=NOW).confidence_at(later) == 0.9


@pytest.mark.parametrize(
    ("fields", "before", "expected"),
    [
        ({"superseded_at": NOW - DAY}, NOW, "superseded on 2026-03-03"),
        ({"superseded_at": NOW}, NOW, None),
        ({"superseded_at": NOW - DAY}, None, None),
        ({"superseded_at": NOW - DAY, "status": "active"}, NOW, None),
        ({"updated_at": NOW - 2 * DAY}, NOW, "superseded on 2026-03-02"),
        ({}, NOW, None),
    ],
    ids=repr,
)
def test_history_is_purged_by_when_it_was_superseded(fields, before, expected):
    assert purge(memory(**{"status": "superseded", **fields}), before) == expected


@pytest.mark.parametrize(
    ("fields", "idle", "expected"),
    [
        ({}, 40 * DAY, "unused for 40 days (strength 0.25, recency 0.12)"),
        ({}, 29 * DAY, None),
        ({}, None, None),
        ({"pinned": True}, 40 * DAY, None),
        ({"kind": "procedural"}, 40 * DAY, None),
        ({"status": "quarantined"}, 40 * DAY, None),
    ],
    ids=repr,
)
def test_what_lay_idle_for_long_is_cold(fields, idle, expected):
    found = coldness(memory(**fields), idle, 30 * DAY, ("procedural",), (0.25, 0.123))

    assert found == expected


def test_the_better_source_is_kept_then_the_confirmed_then_the_earlier():
    stated, inferred = memory(source="user_stated"), memory(source="agent_inferred")
    confirmed = memory(source="agent_inferred", confirmed_at=NOW)
    early, late = memory(written_at=NOW - DAY), memory(written_at=NOW)

    assert keeps(stated, inferred)
    assert not keeps(inferred, stated)
    assert keeps(confirmed, inferred)
    assert keeps(early, late)
    assert keeps(late, memory(written_at=None))


def test_a_merged_memory_keeps_the_provenance_of_both():
    kept = memory(
        source="user_stated",
        confidence=0.9,
        written_at=NOW,
        entities=("Ada",),
        tags=("a", "b"),
        derived_from=("x",),
        valid_until=NOW + DAY,
    )
    dropped = memory(
        source="external",
        confidence=1.0,
        salience=0.9,
        written_at=NOW - DAY,
        confirmed_at=NOW,
        entities=("Bob",),
        tags=("b", "c"),
        derived_from=("y",),
        pinned=True,
        supersedes=("old",),
    )

    assert merged(kept, dropped) == {
        "written_at": NOW - DAY,
        "confirmed_at": NOW,
        "salience": 0.9,
        "pinned": True,
        "valid_until": None,
        "entities": ("Ada", "Bob"),
        "tags": ("a", "b", "c"),
        "derived_from": ("x", "y"),
        "supersedes": ("old",),
    }


def test_confidence_is_raised_by_a_source_as_good_only():
    kept = memory(source="user_stated", confidence=0.6)

    assert merged(kept, memory(source="user_correction", confidence=0.8)) == {"confidence": 0.8}
    assert merged(kept, memory(source="external", confidence=0.8)) == {}


def test_what_stands_by_itself_does_not_fall_with_what_another_was_derived_from():
    assert merged(memory(), memory(derived_from=("x",))) == {}


memories = st.builds(
    memory,
    st.text(min_size=1, max_size=3),
    source=st.sampled_from(list(TRUST)),
    confidence=st.floats(0, 1),
    written_at=st.none() | st.sampled_from([NOW, NOW - DAY, NOW + DAY]),
    pinned=st.booleans(),
    tags=st.lists(st.text(max_size=2), max_size=3, unique=True).map(tuple),
)


@given(memories, memories)
def test_of_two_memories_one_is_kept_and_nothing_is_lost(one, other):
    kept, dropped = (one, other) if keeps(one, other) else (other, one)
    changes = merged(kept, dropped)

    assert keeps(one, other) or keeps(other, one)
    assert kept.trust >= dropped.trust
    assert set(changes.get("tags", kept.tags)) == {*one.tags, *other.tags}
    assert changes.get("pinned", kept.pinned) is (one.pinned or other.pinned)
    assert changes.get("confidence", kept.confidence) >= kept.confidence


def test_a_step_that_is_none_is_named():
    check_steps(("expire", "decay", "merge"))
    check_steps(())
    with pytest.raises(InputError, match=r"expire, decay, merge, got 'explode'"):
        check_steps(("expire", "explode"))
    with pytest.raises(InputError, match="got 'a'"):
        check_steps("a")


def test_a_report_reads_as_what_was_done_to_what_and_why():
    rows = (
        Row("expire", (("u", "ada"), "a"), "valid until 2026-03-01 12:00"),
        Row("cold", (("u", "ada"), "b"), "unused for 40 days"),
    )
    report = SweepReport(("u",), applied=False, rows=rows, examined=7, next=7)

    assert str(report).splitlines() == [
        "dry run of u: 7 examined, 1 expire, 1 cold; go on with after=7",
        "  expire  u/ada a: valid until 2026-03-01 12:00",
        "  cold    u/ada b: unused for 40 days",
    ]
    assert report.removed == ((("u", "ada"), "a"),)
    done = SweepReport(("u",), applied=True, rows=(), examined=0, next=None)
    assert str(done) == "sweep of u: 0 examined, nothing to do"


def test_what_was_forgotten_is_told():
    assert str(Forgotten(("u",), 3, 2, True)) == "forgot 3 memories and 2 records about them"
    assert "until it is compacted" in str(Forgotten(("u",), 3, 2, False))
