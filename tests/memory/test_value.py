from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langmem_recall.errors import InputError, RecallError
from langmem_recall.guard.judge import Verdict, allow_all
from langmem_recall.memory.value import (
    LONGEST_TEXT,
    MEMORY_FIELDS,
    MOST_ENTITIES,
    check_value,
    cleaned,
    find_entities,
    new_memory,
    read_memory,
    revised_value,
    text_of,
    windows_of,
    write_value,
)
from langmem_recall.types import KINDS, STATUSES, TRUST, Memory

MAY = datetime(2023, 5, 7, 9, 30, tzinfo=UTC)
JUNE = datetime(2023, 6, 1, tzinfo=UTC)


_LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary()
_VALUES = st.dictionaries(
    st.text() | st.integers(),
    st.recursive(
        _LEAVES, lambda part: st.lists(part) | st.dictionaries(st.text(), part), max_leaves=10
    ),
)


def read(value: dict[str, Any], **times: datetime) -> Memory:
    return read_memory(("u",), "k", value, **times)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"content": "likes tea"}, "likes tea"),
        ({"text": "likes tea"}, "likes tea"),
        ({"memory": "likes tea"}, "likes tea"),
        ({"content": "first", "text": "second", "memory": "third"}, "first"),
        ({"content": None, "text": "second"}, "second"),
        ({"content": ""}, ""),
        ({"kind": "Memory", "content": {"content": "likes tea"}}, "likes tea"),
        (
            {"kind": "Preference", "content": {"food": "pizza", "note": "", "times": 3}},
            "food: pizza. times: 3",
        ),
        ({"kind": "memory", "memory": "likes tea", "user": "ann"}, "likes tea"),
        ({"food": "pizza", "city": "Köln"}, '{"city": "Köln", "food": "pizza"}'),
        ({"content": ["a", 1]}, '{"content": ["a", 1]}'),
        ({"data": "likes tea"}, "likes tea"),
        ({"data": {"food": "pizza", "times": 3}}, "food: pizza. times: 3"),
        ({"content": ["# Style", "", "Be brief."], "encoding": "utf-8"}, "# Style\n\nBe brief."),
        ({}, "{}"),
    ],
    ids=[
        "content",
        "text",
        "memory",
        "content comes first",
        "None is absent",
        "empty text",
        "langmem's manager",
        "langmem with a schema",
        "langgraph-memory",
        "no memory of ours",
        "content of another shape",
        "data",
        "fields below data",
        "lines of a file",
        "nothing",
    ],
)
def test_text_is_found_in_every_shape(value, text):
    assert text_of(value) == text
    assert read(value).text == text


def test_langmems_kind_is_not_one_of_ours():
    assert read({"kind": "Memory", "content": {"content": "likes tea"}}).kind == "semantic"
    assert read({"kind": "memory", "memory": "likes tea"}).kind == "semantic"


def test_value_without_fields_gets_the_defaults():
    found = read({"content": "tea"})

    assert found == Memory(namespace=("u",), key="k", text="tea", confidence=0.5)
    assert (found.kind, found.source, found.status) == ("semantic", "unknown", "active")
    assert (found.confidence, found.salience, found.trust) == (0.5, 0.5, 0.5)
    assert not found.dated


FULL = {
    "content": "likes tea",
    "kind": "episodic",
    "source": "user_stated",
    "confidence": 0.8,
    "salience": 0.7,
    "written_at": "2023-05-07T09:30:00+00:00",
    "confirmed_at": "2023-06-01T00:00:00+00:00",
    "thread_id": "t",
    "turn": 4,
    "speaker": "Anna",
    "entities": ["Darjeeling"],
    "tags": ["drinks"],
    "valid_from": "2023-05-07T09:30:00+00:00",
    "valid_until": "2023-06-01T00:00:00+00:00",
    "supersedes": ["old"],
    "derived_from": ["a", "b"],
    "asked_as": ["what to serve"],
    "pinned": True,
    "status": "superseded",
    "superseded_at": "2023-06-01T00:00:00+00:00",
}


def test_every_field_is_read():
    assert tuple(FULL) == MEMORY_FIELDS
    assert read(FULL) == Memory(
        namespace=("u",),
        key="k",
        text="likes tea",
        kind="episodic",
        source="user_stated",
        confidence=0.8,
        salience=0.7,
        written_at=MAY,
        confirmed_at=JUNE,
        thread_id="t",
        turn=4,
        speaker="Anna",
        entities=("Darjeeling",),
        tags=("drinks",),
        valid_from=MAY,
        valid_until=JUNE,
        supersedes=("old",),
        derived_from=("a", "b"),
        asked_as=("what to serve",),
        pinned=True,
        status="superseded",
        superseded_at=JUNE,
        dated=True,
    )
    assert read(FULL).value is FULL


def test_full_value_is_written_back_as_it_was():
    assert write_value(read(FULL)) == FULL


@pytest.mark.parametrize(
    ("field", "malformed", "default"),
    [
        ("kind", ["episodic"], "semantic"),
        ("kind", "dream", "semantic"),
        ("source", 3, "unknown"),
        ("status", None, "active"),
        ("confidence", "high", 0.5),
        ("confidence", True, 0.5),
        ("confidence", float("nan"), 0.5),
        ("salience", float("inf"), 0.5),
        ("salience", -0.5, 0.0),
        ("salience", None, 0.5),
        ("salience", 10**400, 0.5),
        ("written_at", "last May", None),
        ("written_at", 1683451800, None),
        ("valid_until", [], None),
        ("valid_from", "2023-13-45", None),
        ("thread_id", 5, None),
        ("thread_id", "", None),
        ("turn", True, None),
        ("turn", 1.5, None),
        ("speaker", {"name": "Anna"}, None),
        ("entities", "Anna", ("Anna",)),
        ("entities", {"a": 1}, ()),
        ("tags", [1, "b"], ("1", "b")),
        ("supersedes", 4, ()),
        ("pinned", "yes", False),
        ("pinned", 1, False),
    ],
    ids=lambda held: repr(held)[:20],
)
def test_malformed_field_gets_its_default(field, malformed, default):
    assert getattr(read({"content": "tea", field: malformed}), field) == default


@pytest.mark.parametrize(
    ("value", "salience"),
    [
        ({"importance": 0.3}, 0.3),
        ({"importance": 7}, 0.7),
        ({"importance": 10}, 1.0),
        ({"importance": 2.5}, 0.25),
        ({"importance": 40}, 1.0),
        ({"importance": 0}, 0.0),
        ({"salience": 0.2, "importance": 9}, 0.2),
        ({"salience": 1}, 1.0),
        ({"salience": None, "importance": 7}, 0.7),
    ],
    ids=repr,
)
def test_importance_is_a_share_or_on_a_scale_to_ten(value, salience):
    assert read({"content": "tea", **value}).salience == pytest.approx(salience)


def test_least_of_a_scale_to_ten_is_below_the_next():
    one, two = (read({"content": "tea", "importance": held}).salience for held in (1, 2))

    assert one < two


def test_time_of_creation_stands_in_for_an_undeclared_time():
    found = read({"content": "tea"}, created_at=MAY, updated_at=JUNE)

    assert (found.written_at, found.created_at, found.updated_at) == (MAY, MAY, JUNE)
    assert not found.dated
    assert found.written_ts == MAY.timestamp()


def test_declared_time_wins_over_the_time_of_creation():
    found = read({"content": "tea", "written_at": "2023-05-07T09:30:00Z"}, created_at=JUNE)

    assert (found.written_at, found.dated) == (MAY, True)


@pytest.mark.parametrize(
    "held",
    [
        "2023-05-07T09:30:00",
        "2023-05-07T11:30:00+02:00",
        datetime(2023, 5, 7, 9, 30),
        datetime(2023, 5, 7, 11, 30, tzinfo=timezone(timedelta(hours=2))),
    ],
    ids=repr,
)
def test_naive_time_is_utc_and_others_keep_their_moment(held):
    found = read({"content": "tea", "written_at": held}).written_at

    assert found == MAY
    assert found.tzinfo is not None


def test_naive_time_of_creation_is_utc():
    assert read({"content": "tea"}, created_at=datetime(2023, 5, 7, 9, 30)).written_at == MAY


@pytest.mark.parametrize("text", ["", "   ", "\n", None, 5, b"tea", ["tea"]], ids=repr)
def test_new_memory_needs_text(text):
    with pytest.raises(InputError, match=r"needs text.*Pass the words"):
        new_memory(("u",), "k", text)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("kind", "dream"),
        ("kind", ["semantic"]),
        ("source", "rumour"),
        ("confidence", 1.2),
        ("confidence", -0.1),
        ("confidence", True),
        ("confidence", "0.5"),
        ("salience", float("nan")),
        ("salience", 7),
        ("written_at", "2023-05-07"),
        ("valid_from", 5),
        ("valid_until", "tomorrow"),
        ("confirmed_at", "2023-05-07"),
        ("status", "deleted"),
        ("turn", 1.5),
        ("thread_id", 5),
        ("pinned", "no"),
        ("tags", 5),
    ],
    ids=repr,
)
def test_new_memory_names_the_field_it_cannot_use(field, value):
    with pytest.raises(InputError) as caught:
        new_memory(("u",), "k", "tea", **{field: value})
    assert field in str(caught.value)
    assert repr(value) in str(caught.value)


def test_new_memory_takes_one_tag_for_a_list_of_one():
    assert new_memory(("u",), "k", "tea", tags="drinks").tags == ("drinks",)


def test_new_memory_cannot_end_before_it_begins():
    with pytest.raises(InputError, match="valid_until"):
        new_memory(("u",), "k", "tea", valid_from=JUNE, valid_until=MAY)


def test_input_error_is_ours_and_a_value_error():
    assert issubclass(InputError, RecallError)
    assert issubclass(InputError, ValueError)


def test_new_memory_leaves_out_what_is_none_and_tidies_the_rest():
    found = new_memory(
        ("u",),
        "k",
        "tea",
        kind=None,
        salience=None,
        written_at=datetime(2023, 5, 7, 9, 30),
        tags=["a", "b"],
    )

    assert (found.kind, found.salience) == ("semantic", 0.5)
    assert (found.written_at, found.dated) == (MAY, True)
    assert found.tags == ("a", "b")


def test_memory_without_a_declared_time_is_not_dated():
    assert not new_memory(("u",), "k", "tea").dated


moments = st.datetimes(
    min_value=datetime(1900, 1, 1),
    max_value=datetime(2200, 1, 1),
    timezones=st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=30))]),
)
shares = st.floats(0, 1)
names = st.lists(st.text(max_size=8), max_size=3).map(tuple)
memories = st.builds(
    lambda text, **fields: new_memory(("u",), "k", text, **fields),
    st.text(min_size=1).filter(str.strip),
    kind=st.sampled_from(KINDS),
    source=st.sampled_from(list(TRUST)),
    confidence=shares,
    salience=shares,
    written_at=st.none() | moments,
    confirmed_at=st.none() | moments,
    thread_id=st.none() | st.text(min_size=1),
    turn=st.none() | st.integers() | st.text(),
    speaker=st.none() | st.text(min_size=1),
    entities=names,
    tags=names,
    valid_from=st.none() | st.just(MAY),
    valid_until=st.none() | st.just(JUNE),
    supersedes=names,
    derived_from=names,
    pinned=st.booleans(),
    status=st.sampled_from(STATUSES),
    superseded_at=st.none() | moments,
)


@settings(deadline=None)
@given(memories)
def test_memory_survives_being_stored_as_json(held):
    value = json.loads(json.dumps(write_value(held)))

    assert read_memory(("u",), "k", value) == held
    assert set(value) <= set(MEMORY_FIELDS)


plain = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@settings(deadline=None)
@given(
    st.dictionaries(st.sampled_from([*MEMORY_FIELDS, "text", "memory", "importance", "x"]), plain)
)
def test_any_stored_value_can_be_read(value):
    found = read(value)

    assert isinstance(found.text, str)
    assert 0 <= found.salience <= 1
    assert 0 <= found.confidence <= 1
    assert found.kind in KINDS
    assert 0 <= found.trust <= 1
    assert all(isinstance(tag, str) for tag in found.tags)


@given(st.text())
def test_guard_that_allows_all_allows_all(text):
    assert allow_all(text) == Verdict("allow", ())


# --- what is cleaned, refused and found -----------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("a\x00b", "ab"),
        ("a\ud800b", "a\ufffdb"),
        ("tea \U0001f375", "tea \U0001f375"),
        ("naïve", "naïve"),
    ],
    ids=ascii,
)
def test_nul_goes_and_lone_surrogates_are_replaced(text, expected):
    assert cleaned(text) == expected
    assert new_memory(("u",), "k", text).text == expected


@given(st.text(alphabet=st.characters()))
def test_cleaned_text_can_be_stored_anywhere(text):
    assert "\x00" not in cleaned(text)
    assert cleaned(text).encode("utf-8").decode("utf-8") == cleaned(text)


def test_text_of_nothing_but_nul_is_no_text():
    with pytest.raises(InputError, match="needs text"):
        new_memory(("u",), "k", "\x00\x00")


def test_text_may_be_so_long_and_no_longer():
    assert len(new_memory(("u",), "k", "abc", max_text=3).text) == 3
    with pytest.raises(InputError, match=r"may have 3 characters, got 4.*max_text"):
        new_memory(("u",), "k", "abcd", max_text=3)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("speaker", "x" * 1_001),
        ("thread_id", "x" * 1_001),
        ("tags", ["x" * 1_001]),
        ("tags", ["x"] * 101),
        ("turn", "x" * 1_001),
        ("turn", 10**400),
    ],
    ids=lambda held: repr(held)[:20],
)
def test_oversized_metadata_is_refused(field, value):
    with pytest.raises(InputError, match=field):
        new_memory(("u",), "k", "tea", **{field: value})


def test_metadata_is_cleaned_and_has_no_repetitions():
    found = new_memory(("u",), "k", "tea", speaker="A\x00da", tags=["b", "a", "b\x00"])

    assert (found.speaker, found.tags) == ("Ada", ("b", "a"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I prefer aisle seats", ()),
        ("My sister lives in Oslo", ("Oslo",)),
        ("I met Ada Lovelace in New York, then Bob's dog", ("Ada Lovelace", "New York", "Bob")),
        ("It broke. Then Node 18.2.0 said ERR_SSL", ("Node", "18.2.0", "ERR_SSL")),
        ("call parse_config() of langGraph v2.13.1", ("parse_config", "langGraph", "v2.13.1")),
        ("the code is QX-48213, twice QX-48213", ("QX-48213",)),
        ("we paid 5,000 for it in 2024", ()),
        ("then I said I'm fine", ()),
        ("", ()),
    ],
)
def test_names_identifiers_and_versions_are_found(text, expected):
    assert find_entities(text) == expected


@settings(deadline=None)
@given(st.text())
def test_entities_are_few_short_and_in_the_text(text):
    found = find_entities(text)

    assert len(found) <= MOST_ENTITIES
    assert all(len(entity) <= 64 for entity in found)
    assert all(word in text for entity in found for word in entity.split(" "))


@pytest.mark.parametrize("unit", ["a:", "A ", "Ab Cd ", "' ", ". ", "a.", "A."])
def test_hostile_text_costs_no_more_than_its_beginning(unit):
    assert len(find_entities(unit * 500_000)) <= MOST_ENTITIES


def test_a_revised_value_keeps_what_it_does_not_change():
    memory = read({"content": {"food": "pizza"}, "env": "prod", "pinned": True}, created_at=MAY)

    assert revised_value(memory, confidence=0.5, pinned=False, tags=("a",)) == {
        "content": {"food": "pizza"},
        "env": "prod",
        # Rewriting may reset the item's time of creation, so it is spelled out.
        "written_at": "2023-05-07T09:30:00+00:00",
        "confidence": 0.5,
        "tags": ["a"],
    }
    assert memory.value == {"content": {"food": "pizza"}, "env": "prod", "pinned": True}


def _nested(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"a": value}
    return value


class Mute:
    def __str__(self) -> str:
        raise ValueError("no words")


def _circular() -> dict[str, Any]:
    value: dict[str, Any] = {}
    value["a"] = value["b"] = value
    return value


@pytest.mark.parametrize(
    "value",
    [
        _nested(100_000),
        {"content": _nested(100_000)},
        {"content": {"note": _nested(100_000)}},
        {"content": "tea", "entities": [_nested(100_000)], "tags": [10**5000, Mute()]},
        {"content": "tea", "turn": 10**5000, "salience": 10**5000, "confidence": -(10**5000)},
        {1: "a", "b": 2, None: 3, (4, 5): Mute()},
        {"content": [10**5000, float("nan"), {1, 2}, b"x"]},
        _circular(),
        {"content": _circular()},
    ],
    ids=range(9),
)
def test_any_value_is_read_within_bounds(value):
    found = read(value)
    assert len(found.text) <= LONGEST_TEXT
    assert f"{found.turn}{found.entities}{found.tags}"
    assert text_of(value) == found.text


def test_text_of_a_large_value_without_text_is_cut():
    assert len(text_of({"note": "x" * 10**6})) == LONGEST_TEXT
    assert len(text_of({"content": {"note": "x" * 10**6}})) == LONGEST_TEXT


@given(_VALUES)
def test_what_passes_as_a_value_is_the_same_after_a_round_trip(value):
    try:
        check_value(value)
    except InputError:
        return
    assert json.loads(json.dumps(value)) == value


@given(st.text(alphabet="ab. \n\u3002", min_size=1_501, max_size=4_000))
def test_the_pieces_of_a_long_text_have_all_of_its_words_in_order(text: str) -> None:
    pieces = windows_of(text)
    assert "".join("".join(pieces).split()) == "".join(text.split())
    # 400 characters and the full stop.
    assert all(0 < len(piece) <= 401 for piece in pieces)


def test_a_short_text_has_no_pieces_and_a_huge_one_not_too_many() -> None:
    assert windows_of("word " * 300) == []
    assert len(windows_of("word " * 20_000)) <= 65
    assert windows_of("A cat sat here. " * 100)[0].endswith(".")
