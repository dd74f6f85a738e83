from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from learning import is_conflict, is_denial, precision_and_recall, read_pairs

from langmem_recall.memory import conflicts as module
from langmem_recall.memory.conflicts import (
    conflicts,
    denied,
    is_same,
    same_particulars,
)
from langmem_recall.types import Memory

MARCH = datetime(2026, 3, 4, tzinfo=UTC)


def memory(text: str, days: float | None = 0, **fields: Any) -> Memory:
    written = None if days is None else MARCH + timedelta(days=days)
    return Memory(namespace=("u",), key=text, text=text, written_at=written, **fields)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("I like tea", "i like  tea.", True),
        ("I like tea", "I like green tea", False),
        ("don't", "DON'T!", True),
        ("5,000 euros", "5000 euros", True),
        ("It is -5 degrees", "It is 5 degrees", False),
    ],
)
def test_the_same_words_say_the_same_whatever_case_and_punctuation(one, other, same):
    assert is_same(memory(one), memory(other), likeness=0.0, least=0.95) is same


@pytest.mark.parametrize(
    ("one", "other", "agree"),
    [
        ("The user prefers dark mode", "user prefers dark mode.", True),
        ("My sister lives in Oslo", "My sister lives in Rome", False),
        ("The budget is 5,000", "The budget is 7,000", False),
        ("The budget is 5,000", "Our budget is 5,000 euros", True),
        ("Ada owes Bob 5", "Bob owes Ada 5", False),
        ("I like tea", "I don't like tea", False),
        ("I never drink tea", "I do not drink tea", True),
        ("Oslo is where she lives", "Rome is where she lives", False),
        ("deploy on Friday", "deploy on friday", True),
        ("uses Python 3.11", "uses Python 3.12", False),
    ],
)
def test_particulars_are_names_numbers_and_negation(one, other, agree):
    assert same_particulars(one, other) is agree
    assert same_particulars(other, one) is agree


@pytest.mark.parametrize(
    ("other", "likeness", "least", "same"),
    [
        ({}, 0.0, 0.95, True),  # the same words need no likeness
        ({}, 1.0, 2.0, False),  # switched off
        ({"kind": "episodic"}, 1.0, 0.95, False),
        ({"speaker": "Bob"}, 1.0, 0.95, False),
        ({"text": "the deploy freeze begins today"}, 0.95, 0.95, True),
        ({"text": "the deploy freeze begins today"}, 0.94, 0.95, False),
        ({"text": "the deploy freeze begins on Monday"}, 0.99, 0.95, False),
        ({"text": "we all like green tea"}, 1.0, 0.95, False),  # not one word in common
    ],
)
def test_one_of_two_is_enough_when_all_of_it_agrees(other, likeness, least, same):
    held = memory("the deploy freeze starts today")

    assert is_same(held, memory(**{"text": held.text, **other}), likeness, least) is same


def test_a_word_among_many_needs_more_likeness():
    # Twelve words: 1 - 0.05 x 6 / 12 = 0.975 is needed, because one word moves the mean by less.
    held = memory("always enable the cache in production for the checkout service at night")
    other = memory("always disable the cache in production for the checkout service at night")

    assert not is_same(held, other, 0.974, 0.95)
    assert is_same(held, other, 0.976, 0.95)


def test_newer_and_older_say_different_things_about_the_same_matter():
    held = [
        memory("My sister lives in Oslo", 0),
        memory("My sister lives in Rome", 5),
        memory("I am allergic to nuts", 9),
    ]

    assert conflicts(held) == [(1, 0)]


@pytest.mark.parametrize(
    ("one", "other", "pairs"),
    [
        (memory("I drink tea"), memory("I don't drink tea", 1), [(1, 0)]),
        (memory("I drink tea", 1), memory("I don't drink tea"), [(0, 1)]),
        (memory("The price is 5 euros"), memory("The price is 7 euros", 1), [(1, 0)]),
        # An addition contradicts nothing.
        (memory("She lives in Oslo"), memory("She lives in Oslo with Tom", 1), []),
        # A word at the head of a sentence is a capital only perhaps.
        (memory("Prefers tea"), memory("Likes tea", 1), []),
        (memory("She is in Oslo", speaker="A"), memory("She is in Rome", speaker="B"), []),
        (memory("She is in Oslo", kind="reflection"), memory("She is in Rome"), []),
        # Two events may both have happened.
        (memory("I flew to Oslo", kind="episodic"), memory("I flew to Rome", kind="episodic"), []),
        (memory("She is in Oslo", None), memory("She is in Rome"), [(1, 0)]),
        (memory("She is in Oslo"), memory("She is in Rome", None), [(0, 1)]),
        (memory("She is in Oslo"), memory("She is in Rome"), [(0, 1)]),
        (memory("She is in Oslo", None), memory("She is in Rome", None), [(0, 1)]),
    ],
    ids=lambda held: held.text if isinstance(held, Memory) else repr(held),
)
def test_what_contradicts_and_which_is_newer(one, other, pairs):
    assert conflicts([one, other]) == pairs


def test_nothing_and_one_memory_have_no_conflicts():
    assert conflicts([]) == []
    assert conflicts([memory("tea")]) == []


@settings(deadline=None)
@given(st.text(), st.text())
def test_agreement_is_mutual_and_a_text_agrees_with_itself(one, other):
    assert same_particulars(one, one)
    assert is_same(memory(one), memory(one), likeness=0.0, least=0.95)
    assert same_particulars(one, other) is same_particulars(other, one)
    pairs = conflicts([memory(one), memory(other, 1)])
    assert pairs in ([], [(1, 0)])


@pytest.mark.parametrize(
    ("said", "is_wrong"),
    [
        ("My sister lives in Bergen now.", True),
        ("Hello. By the way, my sister no longer lives in Oslo!", True),
        ("My sister lives in Oslo.", False),
        ("Does my sister live in Bergen?", False),
        ("My brother works in Bergen.", False),
        ("", False),
    ],
)
def test_what_the_user_says_in_the_conversation_denies_what_was_stored(said, is_wrong):
    stored = Memory(namespace=("u",), key="k", text="My sister lives in Oslo")

    episode = Memory(namespace=("u",), key="e", text=stored.text, kind="episodic")
    assert denied([stored, episode], ["Something else.", said]) == [is_wrong, False]


def test_what_was_said_is_read_once_however_many_memories_there_are(monkeypatch):
    read = []
    reading = module._facts

    def counted(text, wanted=None):
        read.append(text)
        return reading(text, wanted)

    monkeypatch.setattr(module, "_facts", counted)
    stored = [memory(f"My sister {number} lives in Oslo") for number in range(20)]
    assert not any(denied(stored, ["I like tea. You like coffee."]))
    assert len(read) == 20 + 1


@pytest.mark.parametrize("half", ["seen", "unseen"])
@pytest.mark.parametrize(
    ("name", "wanted", "judge"),
    [("conflicts", "conflict", is_conflict), ("denials", "denied", is_denial)],
)
def test_pairs_are_told_apart_in_both_halves(name, wanted, judge, half):
    precision, recall = precision_and_recall(name, wanted, judge, half)
    assert len(read_pairs(name, half)) == 30
    assert precision >= 0.95
    assert recall >= 0.8


@pytest.mark.parametrize(
    ("one", "other", "is_one"),
    [
        ("Der Nutzer wohnt in Oslo", "Der Nutzer wohnt in Bergen", True),
        ("El usuario vive en Madrid", "El usuario vive en Sevilla", True),
        ("Le budget est de 800 euros", "Le budget est de 900 euros", True),
        ("Mia wohnt in Oslo", "Tom wohnt in Bergen", False),
        ("L'utente parla tedesco", "L'utente parla inglese", False),
    ],
)
def test_other_languages_have_subjects_and_values_too(one, other, is_one):
    assert is_conflict({"one": one, "other": other}) is is_one
    assert is_conflict({"one": other, "other": one}) is is_one


def test_a_denial_is_heard_in_another_person_and_language():
    stored = [memory("The user lives in Oslo"), memory("I am allergic to nuts")]
    assert denied(stored, ["Ich wohne jetzt in Bergen."]) == [True, False]
    assert denied(stored, ["The user is not allergic to nuts."]) == [False, True]
