"""Whether two memories say the same, or different things about the same matter."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import chain, combinations
from typing import NamedTuple

from langmem_recall.types import Memory

SAME_MATTER = 0.75
"""Memories at least this alike speak of the same matter."""
SHORT_WORDS = 6
"""In a text of more words one of them moves the likeness less, so more likeness is asked for."""
READ_CHARS = 10_000
"""Texts are compared by their beginnings."""

Likeness = Callable[[int, int], float] | Sequence[Sequence[float]]
"""How alike two memories are, by their places."""

_WORD = re.compile(r"\w+(?:[.,:'\u2019-]\w+)*")
_SENTENCE_ENDS = frozenset(".!?:\n")
_NEGATION_LINES = """
not no never none nobody nothing nowhere neither nor without cannot cant dont doesnt didnt isnt
arent wasnt werent wont wouldnt shouldnt couldnt hasnt havent hadnt mustnt
"""
_NEGATIONS = frozenset(_NEGATION_LINES.split())
# Capitalised by habit or at the head of a sentence; they name nobody.
_COMMON_LINES = """
i i'm i've i'll i'd a an the my our your his her its their we he she it they you this that these
those there here if when while as at by for from in of on to with and but or so always never please
do does did is are was were be has have had can could will would should must may not no yes user
users
"""
_COMMON = frozenset(_COMMON_LINES.split())


def same_text(one: str, other: str) -> bool:
    """Whether two texts have the same words in the same order, whatever case and punctuation."""
    return _words(one) == _words(other)


def same_particulars(one: str, other: str) -> bool:
    """Whether names, numbers and negation agree, names and numbers in the same order too.

    "Ada owes Bob 5" and "Bob owes Ada 5" have the same words, and to many an embedder the same
    meaning.
    """
    ours, theirs = _words(one), _words(other)
    named = _particulars(one, heads=True) | _particulars(other, heads=True)
    in_order = [word for word in ours if word in named] == [
        word for word in theirs if word in named
    ]
    return in_order and _is_negated(ours) == _is_negated(theirs)


def is_same(one: Memory, other: Memory, likeness: float, least: float) -> bool:
    """Whether one of two memories is enough: the same kind, speaker, particulars and meaning."""
    if (one.kind, one.speaker) != (other.kind, other.speaker) or least > 1:
        return False
    if same_text(one.text, other.text):
        return True
    words = max(len(_words(one.text)), len(_words(other.text)), 1)
    needed = 1 - (1 - least) * min(1.0, SHORT_WORDS / words)
    return likeness >= needed and same_particulars(one.text, other.text)


def conflicts(
    memories: Sequence[Memory], likeness: Likeness, least: float = SAME_MATTER
) -> list[tuple[int, int]]:
    """Pairs (newer, older) that say different things about the same matter.

    Different: each has a name or a number that the other has not, or only one of them is negated.
    Two episodes are two events, so they never conflict.
    """
    alike = likeness if callable(likeness) else lambda i, j: likeness[i][j]
    near = [(i, j) for i, j in combinations(range(len(memories)), 2) if alike(i, j) >= least]
    read = {i: _read(memories[i].text) for i in set(chain.from_iterable(near))}
    return [
        (i, j) if _is_newer(memories[i], memories[j]) else (j, i)
        for i, j in near
        if _may_contradict(memories[i], memories[j]) and _contradict(read[i], read[j])
    ]


class _Reading(NamedTuple):
    words: frozenset[str]
    is_negated: bool
    particulars: frozenset[str]


def _read(text: str) -> _Reading:
    words = _words(text)
    particulars = frozenset(_particulars(text, heads=False))
    return _Reading(frozenset(words), _is_negated(words), particulars)


def _may_contradict(one: Memory, other: Memory) -> bool:
    return (one.kind, one.speaker) == (other.kind, other.speaker) and one.kind != "episodic"


def _contradict(one: _Reading, other: _Reading) -> bool:
    if one.is_negated != other.is_negated:
        return True
    return bool(one.particulars - other.words and other.particulars - one.words)


def _is_newer(one: Memory, other: Memory) -> bool:
    """By time of writing; an unknown time is the older one, and of equals the first is newer."""
    ours, theirs = one.written_ts, other.written_ts
    return theirs != theirs or ours >= theirs


def _words(text: str) -> list[str]:
    return [word.casefold() for word in _WORD.findall(text[:READ_CHARS])]


def _is_negated(words: Sequence[str]) -> bool:
    """Whether a text denies something; two denials affirm."""
    return sum(word in _NEGATIONS or word.endswith(("n't", "n\u2019t")) for word in words) % 2 == 1


def _particulars(text: str, heads: bool) -> set[str]:
    """Names and numbers; words at the head of a sentence are capitals only perhaps."""
    found = set()
    end = 0
    for match in _WORD.finditer(text[:READ_CHARS]):
        word, gap = match.group(), text[end : match.start()]
        begins = not end or any(mark in _SENTENCE_ENDS for mark in gap)
        end = match.end()
        is_name = word[0].isupper() and (heads or not begins)
        if is_name or any(map(str.isdigit, word)):
            found.add(word.casefold())
    return found - _COMMON


def is_denied(memory: Memory, said: Sequence[str]) -> bool:
    """Whether somebody in the conversation has said otherwise about the same matter."""
    if memory.kind == "episodic":
        return False
    stored = _read(memory.text)
    matter = stored.words - stored.particulars - _COMMON - _NEGATIONS
    sentences = (
        _read(sentence)
        for text in said
        for sentence in _SENTENCES.findall(text[:READ_CHARS])
        if not sentence.rstrip().endswith("?")
    )
    return any(_is_about(matter, one) and _contradict(stored, one) for one in sentences)


def _is_about(matter: frozenset[str], sentence: _Reading) -> bool:
    """Whether a sentence has most words of a matter, two at least."""
    shared = matter & sentence.words
    return len(shared) >= 2 and 2 * len(shared) >= len(matter)


_SENTENCES = re.compile(r"[^.!?\n]+[.!?]*")
