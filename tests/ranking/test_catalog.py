from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_lexical import terms_of

from langmem_recall.ranking import catalog as catalog_module
from langmem_recall.ranking.arrays import Column
from langmem_recall.ranking.catalog import (
    NUMBERED,
    PINNED,
    TIMED,
    Catalog,
    Traits,
    is_timed,
    traits_of,
)
from langmem_recall.ranking.lexical import LexicalIndex
from langmem_recall.types import Memory, MemoryId

MAY = datetime(2023, 5, 7, 9, 30, tzinfo=UTC)


def memory(key: str = "k", text: str = "green tea", **fields: Any) -> Memory:
    """A memory; what has a thread was said by somebody, unless told otherwise."""
    spoken = {"speaker": "Ann"} if fields.get("thread_id") else {}
    return Memory(**{"namespace": ("u",), "key": key, "text": text, **spoken, **fields})


def catalog_of(*memories: Memory) -> Catalog:
    catalog = Catalog()
    for one in memories:
        catalog.put(one.id, traits_of(one))
    return catalog


def key(name: str) -> MemoryId:
    return ("u",), name


def threads(catalog: Catalog) -> list[list[str]]:
    """Live keys, thread by thread in their order, longest thread first."""
    order = catalog.thread_order()
    groups: dict[int, list[str]] = {}
    for place, row in enumerate(order.rows.tolist()):
        if catalog.alive[row]:
            groups.setdefault(int(order.thread_at[place]), []).append(catalog.id(row)[1])
    return sorted(groups.values(), key=len, reverse=True)


def test_new_catalog_is_empty():
    catalog = Catalog()

    assert (catalog.rows, catalog.size, catalog.ids(), catalog.pinned()) == (0, 0, [], [])
    assert catalog.row(key("a")) is None
    assert len(catalog.thread_order().rows) == 0


def test_put_hands_out_rows_in_order():
    catalog = Catalog()

    assert [catalog.put(key(name), Traits([name])) for name in "abc"] == [0, 1, 2]
    assert [catalog.row(key(name)) for name in "abc"] == [0, 1, 2]
    assert catalog.ids() == [key(name) for name in "abc"]
    assert catalog.id(1) == key("b")


def test_put_of_a_known_id_replaces_it():
    catalog = catalog_of(memory("a", "green tea"), memory("b", "red wine"))
    row = catalog.put(key("a"), Traits(["beer"]))

    assert (row, catalog.row(key("a")), catalog.size, catalog.rows) == (2, 2, 2, 3)
    assert catalog.alive.tolist() == [False, True, True]
    assert catalog.lexical.document_frequency("tea") == 0
    assert catalog.lexical.document_frequency("beer") == 1


def test_remove_says_whether_it_was_there():
    catalog = catalog_of(memory("a"))

    assert catalog.remove(key("a")) is True
    assert catalog.remove(key("a")) is False
    assert (catalog.size, catalog.rows, catalog.ids()) == (0, 1, [])


def test_thread_is_laid_out_by_turn_however_it_was_written():
    catalog = catalog_of(
        memory("c", thread_id="t", turn=3),
        memory("x", thread_id="other", turn=2),
        memory("a", thread_id="t", turn=1),
        memory("loner"),
        memory("b", thread_id="t", turn=2),
    )

    assert threads(catalog) == [["a", "b", "c"], ["x"], ["loner"]]


def test_thread_without_turns_is_laid_out_by_time():
    catalog = catalog_of(
        memory("later", thread_id="t", written_at=MAY.replace(day=9)),
        memory("sooner", thread_id="t", written_at=MAY),
    )

    assert threads(catalog) == [["sooner", "later"]]


def test_equal_turns_keep_the_order_of_writing():
    catalog = catalog_of(*(memory(name, thread_id="t", turn=1) for name in "cab"))

    assert threads(catalog) == [["c", "a", "b"]]


def test_layout_is_made_anew_after_a_write():
    catalog = catalog_of(memory("a", thread_id="t", turn=1))
    assert threads(catalog) == [["a"]]
    catalog.put(*_with_traits(memory("b", thread_id="t", turn=0)))

    assert threads(catalog) == [["b", "a"]]


def _with_traits(one: Memory) -> tuple[MemoryId, Traits]:
    return one.id, traits_of(one)


def test_removed_memory_does_not_stand_between_its_neighbours():
    catalog = catalog_of(*(memory(name, thread_id="t", turn=i) for i, name in enumerate("abc")))
    catalog.remove(key("b"))
    order = catalog.thread_order()

    assert threads(catalog) == [["a", "c"]]
    assert order.follows[order.place[2]]
    assert order.place[2] == order.place[0] + 1


def test_two_users_with_equal_thread_names_stay_apart():
    one = memory("a", thread_id="t", turn=1)
    other = memory("b", namespace=("v",), thread_id="t", turn=2)

    assert traits_of(one).thread != traits_of(other).thread
    assert sorted(threads(catalog_of(one, other))) == [["a"], ["b"]]


def test_whether_any_thread_has_two_memories_is_known():
    assert not catalog_of(memory("a"), memory("b", thread_id="t")).thread_order().has_neighbours
    pair = (memory("a", thread_id="t"), memory("b", thread_id="t"))
    assert catalog_of(*pair).thread_order().has_neighbours


def test_superseded_memory_is_known_until_its_superseder_goes():
    catalog = catalog_of(memory("old"), memory("new", supersedes=("old",)))
    assert catalog.is_superseded(key("old"))
    assert not catalog.is_superseded(key("new"))

    catalog.remove(key("new"))
    assert not catalog.is_superseded(key("old"))


def test_memory_superseded_twice_needs_both_to_go():
    catalog = catalog_of(
        memory("old"), memory("x", supersedes=("old",)), memory("y", supersedes=("old",))
    )
    catalog.remove(key("x"))
    assert catalog.is_superseded(key("old"))
    catalog.remove(key("y"))
    assert not catalog.is_superseded(key("old"))


def test_replacing_the_superseder_by_one_that_is_none_lifts_it():
    catalog = catalog_of(memory("old"), memory("new", supersedes=("old",)))
    catalog.put(key("new"), Traits(["tea"]))

    assert not catalog.is_superseded(key("old"))


def test_memory_that_says_so_itself_is_superseded():
    assert catalog_of(memory("old", status="superseded")).is_superseded(key("old"))


def test_supersession_stays_within_the_namespace():
    catalog = catalog_of(memory("old"), memory("new", namespace=("v",), supersedes=("old",)))

    assert not catalog.is_superseded(key("old"))


def test_pinned_lists_the_live_rows_that_are():
    catalog = catalog_of(memory("a", pinned=True), memory("b"), memory("c", pinned=True))
    assert catalog.pinned() == [0, 2]
    catalog.remove(key("a"))

    assert catalog.pinned() == [2]


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        ("likes green tea", 0),
        ("met last Monday", TIMED),
        ("has two cats", NUMBERED),
        ("since 2019", TIMED | NUMBERED),
        ("at 9:30", TIMED | NUMBERED),
        ("has 3 cats", NUMBERED),
    ],
)
def test_flags_say_whether_a_text_has_a_time_and_a_number(text, flags):
    assert traits_of(memory(text=text)).flags == flags
    assert traits_of(memory(text=text, pinned=True)).flags == flags | PINNED


PIECES = "day|week|Mon|may|in|last|few|fall|ago|20|15|3|:|30|st|nd|rd|ſ|K| |x|S|May|.|March|this"


@given(st.lists(st.sampled_from(PIECES.split("|")), max_size=8))
def test_looking_for_hints_first_finds_the_same_times(pieces):
    text = "".join(pieces)
    assert is_timed(text) == bool(catalog_module._TIME.search(text))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, "green tea"),
        ({"written_at": MAY}, "green tea"),
        ({"written_at": MAY, "dated": True}, "@7 @may @2023 green tea"),
        ({"entities": ("Anna",), "tags": ("drinks",)}, "green tea anna drink"),
        # What the text says is found in the text, and where dates are looked for.
        ({"text": "tea from May"}, "tea may @may"),
    ],
    ids=["text", "date not declared", "date declared", "names and tags", "date in the text"],
)
def test_terms_are_of_the_text_its_declared_date_names_and_tags(fields, expected):
    assert traits_of(memory(**fields)).terms == expected.split()


def test_speaker_is_folded():
    catalog = catalog_of(memory("a", speaker="Anna"), memory("b", speaker="ANNA"), memory("c"))

    assert catalog.speakers == {"anna": 0}
    assert catalog.speaker.values.tolist() == [0, 0, -1]


@pytest.mark.parametrize(
    ("fields", "position"),
    [
        ({"turn": 4, "thread_id": "t", "written_at": MAY}, 4.0),
        ({"turn": 4, "written_at": MAY}, MAY.timestamp()),
        ({"turn": "msg-9", "written_at": MAY}, MAY.timestamp()),
        ({}, 0.0),
    ],
)
def test_position_is_the_turn_of_a_thread_or_else_the_time(fields, position):
    assert traits_of(memory(**fields)).position == position


def test_turn_too_large_for_a_float_does_not_break_reading():
    assert np.isfinite(traits_of(memory(turn=10**400, thread_id="t")).position)


names = st.none() | st.sampled_from(["s", "t", "u"])
memories = st.lists(
    st.builds(
        memory,
        st.sampled_from("abcdefgh"),
        st.sampled_from(["green tea", "red wine today", "two cats", ""]),
        thread_id=names,
        turn=st.none() | st.integers(0, 3),
        speaker=names,
        supersedes=st.lists(st.sampled_from("abcdefgh"), max_size=2).map(tuple),
        pinned=st.booleans(),
        status=st.sampled_from(["active", "superseded"]),
    ),
    unique_by=lambda one: one.key,
    max_size=8,
)


def loaded(held: list[Memory]) -> Catalog:
    traits = [traits_of(one) for one in held]
    return Catalog.from_columns(
        [one.id for one in held],
        LexicalIndex.from_documents([each.terms for each in traits]),
        [each.thread for each in traits],
        [each.position for each in traits],
        [each.speaker for each in traits],
        [each.flags for each in traits],
        [(row, each.supersedes) for row, each in enumerate(traits) if each.supersedes],
    )


def picture(catalog: Catalog) -> dict[str, Any]:
    order = catalog.thread_order()
    return {
        "ids": catalog.ids(),
        "rows": [catalog.row(one) for one in catalog.ids()],
        "terms": [terms_of(catalog.lexical, catalog.row(one)) for one in catalog.ids()],
        "alive": catalog.alive.tolist(),
        "order": [np.asarray(column).tolist() for column in order],
        "speakers": catalog.speakers,
        "speaker": catalog.speaker.values.tolist(),
        "flags": catalog.flags.values.tolist(),
        "superseded": [catalog.is_superseded(key(name)) for name in "abcdefgh"],
        "pinned": catalog.pinned(),
    }


@settings(deadline=None)
@given(memories, st.lists(st.sampled_from("abcdefgh"), max_size=3), memories)
def test_loading_at_once_is_like_putting_one_by_one(held, gone, added):
    bulk, grown = loaded(held), catalog_of(*held)
    assert picture(bulk) == picture(grown)
    for catalog in (bulk, grown):
        for name in gone:
            catalog.remove(key(name))
        for one in added:
            catalog.put(one.id, traits_of(one))

    assert picture(bulk) == picture(grown)


@settings(deadline=None)
@given(memories, st.lists(st.sampled_from("abcdefgh"), max_size=4))
def test_layout_holds_every_row_once_and_starts_each_thread(held, gone):
    catalog = catalog_of(*held)
    for name in gone:
        catalog.remove(key(name))
    order = catalog.thread_order()

    assert sorted(order.rows.tolist()) == list(range(catalog.rows))
    assert order.place[order.rows].tolist() == list(range(catalog.rows))
    assert order.starts.tolist() == np.flatnonzero(~order.follows).tolist()
    assert catalog.size == int(catalog.alive.sum())


@given(st.lists(st.integers(-100, 100) | st.lists(st.integers(-100, 100), max_size=40)))
def test_column_grows_and_leaves_earlier_views_alone(steps):
    column = Column(np.int32)
    expected: list[int] = []
    for step in steps:
        before, copy = column.values, column.values.copy()
        if isinstance(step, list):
            column.extend(step)
            expected += step
        else:
            column.append(step)
            expected.append(step)
        assert before.tolist() == copy.tolist()

    assert column.values.tolist() == expected
