"""Threads that only the order of writing tells of."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
from test_catalog import MAY, catalog_of, memory, threads

from langmem_recall.ranking.catalog import Catalog
from langmem_recall.ranking.threads import is_coherent
from langmem_recall.types import Memory

TOPICS = [
    "apple",
    "bridge",
    "candle",
    "dolphin",
    "engine",
    "forest",
    "guitar",
    "harbor",
    "island",
    "jacket",
    "kettle",
    "ladder",
]


def talk(per_topic: int = 4, apart: timedelta = timedelta(minutes=1)) -> list[Memory]:
    """Notes without a thread; those that follow each other speak of the same."""
    texts = [f"{topic} of {topic}ton" for topic in TOPICS for _ in range(per_topic)]
    return [
        memory(f"k{n:02}", text, written_at=MAY + n * apart, dated=False)
        for n, text in enumerate(texts)
    ]


def interleaved(notes: list[Memory]) -> list[Memory]:
    """The same notes, no two neighbours of one topic."""
    return [notes[n] for first in range(4) for n in range(first, len(notes), 4)]


def word(number: int) -> str:
    """A word of its own for each number."""
    return "z" + "".join("bcdfghjklm"[int(digit)] + "u" for digit in str(number))


def rows(catalog: Catalog) -> np.ndarray[Any, Any]:
    return np.arange(catalog.rows, dtype=np.int32)


def one_run(catalog: Catalog) -> np.ndarray[Any, Any]:
    return np.zeros(catalog.rows, dtype=np.int32)


def test_notes_that_go_on_about_the_same_are_coherent_and_mixed_ones_are_not():
    in_order = catalog_of(*talk())
    mixed = catalog_of(*interleaved(talk()))

    assert is_coherent(in_order.lexical, rows(in_order), one_run(in_order))
    assert not is_coherent(mixed.lexical, rows(mixed), one_run(mixed))


def test_fewer_than_thirty_pairs_of_neighbours_show_no_order():
    few = catalog_of(*talk()[:30])
    enough = catalog_of(*talk()[:31])

    assert not is_coherent(few.lexical, rows(few), one_run(few))
    assert is_coherent(enough.lexical, rows(enough), one_run(enough))


def test_notes_that_come_in_pairs_on_a_subject_are_no_conversation():
    # Of 59 neighbours 20 share a word, by chance less than one would: far more, but not most.
    texts = [word(n // 2) for n in range(40)] + [word(n) for n in range(20, 40)]
    catalog = catalog_of(*(memory(f"k{n:02}", text) for n, text in enumerate(texts)))
    assert not is_coherent(catalog.lexical, rows(catalog), one_run(catalog))


def test_a_few_long_texts_do_not_make_notes_a_conversation():
    long = " ".join(map(word, range(100)))
    texts = [word(n) for n in range(100, 140)] + [f"{long} {word(n)}" for n in range(140, 150)]
    catalog = catalog_of(*(memory(f"k{n:02}", text) for n, text in enumerate(texts)))
    assert not is_coherent(catalog.lexical, rows(catalog), one_run(catalog))


def test_a_note_that_says_how_it_will_be_asked_for_stands_alone():
    notes = talk()
    asked = [
        replace(note, thread_id=thread, asked_as=("what of it",), source="user_stated")
        for note, thread in zip(notes[:4], (None, None, "t", "t"), strict=True)
    ]
    catalog = catalog_of(*asked, *notes[4:])
    assert sorted(len(thread) for thread in threads(catalog)) == [1, 1, 1, 1, 44]


def spoken(texts: list[str], per_thread: int) -> Catalog:
    """Texts with speaker and thread."""
    return catalog_of(
        *(
            memory(f"k{n:02}", text, thread_id=f"t{n // per_thread}", tags=("work",))
            for n, text in enumerate(texts)
        )
    )


def test_threads_with_speakers_are_conversations_until_ten_neighbours_show_otherwise():
    unrelated = [word(n) for n in range(12)]
    assert [len(thread) for thread in threads(spoken(unrelated[:10], 10))] == [10]
    # Eleven pairs, and the tag that all have does not count.
    assert [len(thread) for thread in threads(spoken(unrelated, 12))] == [1] * 12
    # Four of eleven share a word, then three: 36 and 27 % for the 30 % of a conversation.
    for pairs, longest in ((4, 12), (3, 1)):
        texts = [word(n // 2) for n in range(2 * pairs)] + [word(n) for n in range(50, 62)]
        assert len(threads(spoken(texts[:12], 12))[0]) == longest


def test_memories_that_share_only_their_dates_are_not_coherent():
    notes = [
        memory(f"k{n}", f"unlike{n}", written_at=MAY + timedelta(days=n // 4), dated=True)
        for n in range(200)
    ]
    catalog = catalog_of(*notes)

    assert not is_coherent(catalog.lexical, rows(catalog), one_run(catalog))


def test_coherent_notes_without_a_thread_are_neighbours_in_the_order_of_writing():
    notes = talk()
    catalog = catalog_of(*reversed(notes))

    assert threads(catalog) == [[note.key for note in notes]]
    assert catalog.thread_order().implied.all()


def test_a_long_pause_ends_a_stretch_of_writing():
    notes = talk()
    late = [
        memory(f"l{n}", note.text, written_at=note.written_at + timedelta(days=1))
        for n, note in enumerate(notes)
    ]
    catalog = catalog_of(*notes, *late)

    assert [len(thread) for thread in threads(catalog)] == [48, 48]


def test_namespaces_are_never_neighbours():
    notes = talk()
    others = [
        Memory(namespace=("v",), key=note.key, text=note.text, written_at=note.written_at)
        for note in notes
    ]
    catalog = catalog_of(*notes, *others)

    assert [len(thread) for thread in threads(catalog)] == [48, 48]


def test_incoherent_notes_without_a_thread_stay_alone():
    order = catalog_of(*interleaved(talk(apart=timedelta(0)))).thread_order()

    assert not order.has_neighbours
    assert not order.implied.any()


def test_real_threads_are_not_implied_and_keep_their_neighbours():
    notes = [*talk(), memory("a", thread_id="t", turn=1), memory("b", thread_id="t", turn=2)]
    catalog = catalog_of(*notes)
    order = catalog.thread_order()
    implied = {
        catalog.id(row)[1]: held
        for row, held in zip(order.rows.tolist(), order.implied.tolist(), strict=True)
    }

    assert ["a", "b"] in threads(catalog)
    assert (implied["a"], implied["b"], implied["k00"]) == (False, False, True)


def test_notes_of_one_thread_are_no_neighbours_unless_they_go_on_about_the_same():
    notes = [replace(memory(f"k{n}", f"unlike{n}", turn=n), thread_id="t") for n in range(6)]
    few = catalog_of(*notes)
    mixed = catalog_of(*(replace(note, thread_id="t") for note in interleaved(talk())))
    talked = catalog_of(*(replace(note, thread_id="t") for note in talk()))

    assert not few.thread_order().has_neighbours
    assert [len(thread) for thread in threads(talked)] == [48]
    assert not talked.thread_order().implied.any()
    assert [len(thread) for thread in threads(mixed)] == [48]
