"""Whether two memories say the same, or different things about the same matter."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from functools import cache
from itertools import combinations
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
    ours, theirs = _read(one, heads=True), _read(other, heads=True)
    named = ours.particulars | theirs.particulars
    ordered = [[word for word in text.words if word in named] for text in (ours, theirs)]
    return ordered[0] == ordered[1] and ours.is_negated == theirs.is_negated


def is_same(one: Memory, other: Memory, likeness: float, least: float) -> bool:
    """Whether one of two memories is enough: the same kind, speaker, particulars and meaning."""
    if (one.kind, one.speaker) != (other.kind, other.speaker) or least > 1:
        return False
    ours, theirs = _read(one.text).words, _read(other.text).words
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
    read, pairs = cache(_read), []
    for (i, one), (j, other) in combinations(enumerate(memories), 2):
        is_near = likeness[i][j] >= SAME_MATTER and one.kind != "episodic"
        is_alike = (one.kind, one.speaker) == (other.kind, other.speaker)
        if is_near and is_alike and _contradict(read(one.text), read(other.text)):
            # An unknown time is the older one, and of equals the first is newer.
            is_newer = isnan(other.written_ts) or one.written_ts >= other.written_ts
            pairs.append((i, j) if is_newer else (j, i))
    return pairs


def denied(memories: Sequence[Memory], said: Sequence[str]) -> list[bool]:
    """For each memory whether something said contradicts it, on the same matter."""
    ignored = _lexicon("common") | _lexicon("negations")
    stored = [_read(memory.text) for memory in memories]
    matters = [set(reading.words) - reading.particulars - ignored for reading in stored]
    # Most words of a matter, two at least, are about it.
    needed = [max(2, (len(matter) + 1) // 2) for matter in matters]
    open_places = {i for i, memory in enumerate(memories) if memory.kind != "episodic"}
    found = [False] * len(memories)
    for text in said:
        for sentence in _SENTENCE.findall(text[:READ_CHARS]):
            if sentence.rstrip().endswith("?"):
                continue
            stated = _read(sentence)
            words = set(stated.words)
            for i in list(open_places):
                if len(matters[i] & words) >= needed[i] and _contradict(stored[i], stated):
                    open_places.remove(i)
                    found[i] = True
    return found


class _Reading(NamedTuple):
    words: list[str]
    is_negated: bool
    particulars: frozenset[str]
    """Names and numbers."""


def _read(text: str, heads: bool = False) -> _Reading:
    """Read a text; `heads` takes capitals at the head of a sentence for names too."""
    words: list[str] = []
    particulars: set[str] = set()
    end = 0
    for match in _WORD.finditer(text[:READ_CHARS]):
        word, gap = match.group(), text[end : match.start()]
        begins = not end or not _SENTENCE_ENDS.isdisjoint(gap)
        end = match.end()
        words.append(word.casefold())
        if (word[0].isupper() and (heads or not begins)) or any(map(str.isdigit, word)):
            particulars.add(words[-1])
    negations = _lexicon("negations")
    denials = [word for word in words if word in negations or word.endswith(("n't", "n\u2019t"))]
    # Two denials affirm.
    return _Reading(words, len(denials) % 2 == 1, frozenset(particulars) - _lexicon("common"))


def _contradict(one: _Reading, other: _Reading) -> bool:
    if one.is_negated != other.is_negated:
        return True
    return bool(one.particulars.difference(other.words) and other.particulars.difference(one.words))
