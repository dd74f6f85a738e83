"""Whether two memories say the same, or different things about the same matter."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from functools import cache
from itertools import chain, combinations
from math import isnan
from pathlib import Path
from typing import NamedTuple

from langmem_recall.types import Memory

SAME_MATTER = 0.75
"""Memories at least this alike speak of the same matter."""
SHORT_WORDS = 6
"""In a text of more words one of them moves the likeness less, so more likeness is needed."""
READ_CHARS = 10_000
"""Texts are compared by their beginnings."""

_WORD = re.compile(r"\w+(?:[.,:'\u2019-]\w+)*")
_SENTENCE = re.compile(r"[^.!?\n]+[.!?]*")
_SENTENCE_ENDS = frozenset(".!?:\n")


@cache
def _lexicon(name: str) -> frozenset[str]:
    """The words of conflicts.toml under a name."""
    tables = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
    return frozenset(tables[name].split())


def same_particulars(one: str, other: str) -> bool:
    """Whether names, numbers and negation agree, names and numbers in the same order too.

    "Ada owes Bob 5" and "Bob owes Ada 5" have the same words, and to many an embedder the same
    meaning.
    """
    ours, theirs = _words(one), _words(other)
    named = _particulars(one, heads=True) | _particulars(other, heads=True)
    ordered = [[word for word in words if word in named] for words in (ours, theirs)]
    return ordered[0] == ordered[1] and _is_negated(ours) == _is_negated(theirs)


def is_same(one: Memory, other: Memory, likeness: float, least: float) -> bool:
    """Whether one of two memories is enough: the same kind, speaker, particulars and meaning."""
    if (one.kind, one.speaker) != (other.kind, other.speaker) or least > 1:
        return False
    ours, theirs = _words(one.text), _words(other.text)
    if ours == theirs:
        return True
    needed = 1 - (1 - least) * min(1.0, SHORT_WORDS / max(len(ours), len(theirs)))
    return likeness >= needed and same_particulars(one.text, other.text)


def conflicts(
    memories: Sequence[Memory], likeness: Sequence[Sequence[float]]
) -> list[tuple[int, int]]:
    """Pairs (newer, older), by their places, that say different things about the same matter.

    Different: each has a name or a number that the other has not, or only one of them is negated.
    Two episodes are two events, so they never conflict.
    """
    near = [
        (i, j)
        for i, j in combinations(range(len(memories)), 2)
        if likeness[i][j] >= SAME_MATTER
        and (memories[i].kind, memories[i].speaker) == (memories[j].kind, memories[j].speaker)
        and memories[i].kind != "episodic"
    ]
    read = {i: _read(memories[i].text) for i in set(chain.from_iterable(near))}
    pairs = []
    for i, j in near:
        if _contradict(read[i], read[j]):
            ours, theirs = memories[i].written_ts, memories[j].written_ts
            # An unknown time is the older one, and of equals the first is newer.
            pairs.append((i, j) if isnan(theirs) or ours >= theirs else (j, i))
    return pairs


def is_denied(memory: Memory, said: Sequence[str]) -> bool:
    """Whether something said in the conversation contradicts a memory about the same matter."""
    if memory.kind == "episodic":
        return False
    stored = _read(memory.text)
    matter = stored.words - stored.particulars - _lexicon("common") - _lexicon("negations")
    for text in said:
        for sentence in _SENTENCE.findall(text[:READ_CHARS]):
            if sentence.rstrip().endswith("?"):
                continue
            stated = _read(sentence)
            shared = len(matter & stated.words)
            # Most words of a matter, two at least, are about it.
            if shared >= 2 and 2 * shared >= len(matter) and _contradict(stored, stated):
                return True
    return False


class _Reading(NamedTuple):
    words: frozenset[str]
    is_negated: bool
    particulars: frozenset[str]


def _read(text: str) -> _Reading:
    words = _words(text)
    particulars = frozenset(_particulars(text, heads=False))
    return _Reading(frozenset(words), _is_negated(words), particulars)


def _contradict(one: _Reading, other: _Reading) -> bool:
    if one.is_negated != other.is_negated:
        return True
    return bool(one.particulars - other.words and other.particulars - one.words)


def _words(text: str) -> list[str]:
    return [word.casefold() for word in _WORD.findall(text[:READ_CHARS])]


def _is_negated(words: Sequence[str]) -> bool:
    """Whether a text denies something; two denials affirm."""
    negations = _lexicon("negations")
    return sum(word in negations or word.endswith(("n't", "n\u2019t")) for word in words) % 2 == 1


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
    return found - _lexicon("common")
