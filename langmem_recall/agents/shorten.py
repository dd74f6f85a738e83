"""A shorter text for a memory that does not fit: what carries the words of the cue."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable
from itertools import chain, pairwise

from langmem_recall.text.tokens import tokens

MOST_MISSES = 8
"""Sentences in a row that find no room before the rest is not tried any more."""
MOST_NAMES = 64
"""Identifiers of a cue that are looked for; a pasted log must not make a search of its own."""

_CJK = "\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
# A run of marks is taken whole and then looked at: a lookahead would scan it from each of them.
_SENTENCE_END = re.compile(
    r"[.!?…]++[\"'\u201d\u2019)\]]*+(?P<gap>\s++|$)?"
    r"|[\u3002\uff01\uff1f\uff1b\uff61]++[\u300d\u300f\u201d\u2019\uff09]*+\s*+|\n\s*+"
)
_UNIT = re.compile(rf"[{_CJK}]|[^\s{_CJK}]{{1,64}}")
_WORD = re.compile(r"[a-z0-9](?:[\w./\\@:#+&-]*[a-z0-9+#])?", re.IGNORECASE | re.ASCII)
_IDENTIFYING = re.compile(r"[\d_./\\@:#+&]|[a-z][A-Z]")
_Span = tuple[int, int]


def shorten(text: str, cue_words: str, fits: Callable[[str], bool]) -> str:
    """The sentences that carry the cue's words, in their order; empty when nothing fits.

    Where the best sentence is too long, words around its evidence. Identifiers of the cue are
    kept whole, whatever else must go.
    """
    if fits(text):
        return text
    extract = _Extract(text, cue_words, fits)
    ends = [
        found.end()
        for found in _SENTENCE_END.finditer(text)
        if found["gap"] is not None or found.group()[0] not in ".!?…"
    ]
    sentences = pairwise(sorted({0, *ends, len(text)}))
    # Most identifiers of the cue first, then most of its terms, then the earlier.
    ranked = sorted(
        (span for span in sentences if text[slice(*span)].strip()),
        key=lambda span: (-len(extract.names_in(span)), -extract.count_terms(span)),
    )
    misses = 0
    for sentence in ranked:
        if extract.has_room_for([sentence]):
            taken = [sentence]
        else:
            taken = [] if extract.chosen else extract.cut(sentence)
        extract.chosen += taken
        misses = 0 if taken else misses + 1
        if misses == MOST_MISSES:
            break
    return extract.show(extract.chosen)


class _Extract:
    """What is chosen of one text, and the cue's identifiers in it, which are always shown."""

    def __init__(self, text: str, cue_words: str, fits: Callable[[str], bool]) -> None:
        self._text = text
        self._fits = fits
        self._terms = frozenset(tokens(cue_words))
        words = dict.fromkeys(filter(_IDENTIFYING.search, _WORD.findall(cue_words)))
        longest_first = sorted(list(words)[:MOST_NAMES], key=len, reverse=True)
        names = "|".join(map(re.escape, longest_first)) or "(?!)"
        # ASCII, so that an identifier among Chinese characters has an end.
        self._names = re.compile(rf"(?<!\w)(?:{names})(?!\w)", re.IGNORECASE | re.ASCII)
        self.chosen: list[_Span] = []
        self._anchors: dict[str, _Span] = {}
        firsts: dict[str, _Span] = {}
        for found in self._names.finditer(text):
            firsts.setdefault(found.group().casefold(), found.span())
        for name, span in firsts.items():
            if fits(_join(text, [*self._anchors.values(), span])):
                self._anchors[name] = span

    def names_in(self, span: _Span) -> set[str]:
        """The cue's identifiers in a span."""
        return {found.group().casefold() for found in self._names.finditer(self._text, *span)}

    def count_terms(self, span: _Span) -> int:
        """How many of the cue's terms a span has."""
        return len(self._terms.intersection(tokens(self._text[slice(*span)])))

    def show(self, spans: Iterable[_Span]) -> str:
        """The spans and the identifiers that are in none of them."""
        merged = _merge(spans)
        named = set().union(*map(self.names_in, merged))
        lone = [span for name, span in self._anchors.items() if name not in named]
        return _join(self._text, [*merged, *lone])

    def has_room_for(self, more: Iterable[_Span]) -> bool:
        """Whether these fit beside what is chosen."""
        return self._fits(self.show([*self.chosen, *more]))

    def cut(self, sentence: _Span) -> list[_Span]:
        """As many words as there is room for, from the evidence outwards.

        Single characters of scripts without spaces are words, and identifiers are whole ones.
        """
        starts: list[int] = []
        too_long: set[int] = set()
        place, end = sentence
        for found in self._names.finditer(self._text, place, end):
            starts += [unit.start() for unit in _UNIT.finditer(self._text, place, found.start())]
            starts.append(found.start())
            if found.group().casefold() not in self._anchors:
                too_long.add(found.start())
            place = found.end()
        starts += [unit.start() for unit in _UNIT.finditer(self._text, place, end)]
        units = [unit for unit in pairwise([*starts, end]) if unit[0] not in too_long]
        named = (i for i, unit in enumerate(units) if self.names_in(unit))
        carriers = (i for i, unit in enumerate(units) if self.count_terms(unit))
        start = next(chain(named, carriers), 0)
        order = sorted(range(len(units)), key=lambda i: (abs(i - start), i < start))
        spans = [units[i] for i in order]
        size = bisect_left(
            range(len(spans)), True, key=lambda last: not self.has_room_for(spans[: last + 1])
        )
        return spans[:size]


def _merge(spans: Iterable[_Span]) -> list[_Span]:
    """The same places of the text as spans in order, apart from each other."""
    merged: list[_Span] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _join(text: str, spans: Iterable[_Span]) -> str:
    """The text of some spans in order, with a mark wherever something is left out."""
    merged = _merge(spans)
    if not merged:
        return ""
    parts = [text[slice(*span)].strip() for span in merged]
    head, tail = text[: merged[0][0]].strip(), text[merged[-1][1] :].strip()
    return " … ".join([""] * bool(head) + parts + [""] * bool(tail)).strip()
