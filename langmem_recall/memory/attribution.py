"""Who said a text: `user_stated` only what the words of a human carry.

Wrongly saying "the user stated it" lends a text full trust, wrongly saying "inferred" costs a
little rank. So every doubt counts against: only the user's own part of a message counts.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence

from langmem_recall.memory import foreign
from langmem_recall.memory.foreign import LONGEST, Parts
from langmem_recall.memory.restating import Note, plain
from langmem_recall.types import Source

MOST = 100_000  # characters of a thread that are taken apart, the latest messages first
MOST_OUTPUT = 400_000
"""The same of what tools and memories said: what is missed here would be trusted too much."""
MOST_SENTENCES = 20  # sentences of a text that is one memory; a longer one is no statement

_IDEOGRAPHIC = re.compile("[\u3001\u3002]")


def source_of(text: str, said: Iterable[Parts], untrusted_output: bool) -> Source:
    """Where a text comes from, by what humans wrote in the thread, the latest message first."""
    messages, left = list[Parts](), MOST
    for message in said:
        messages.append(message)
        left -= len(message.own) + sum(map(len, message.foreign))
        if left <= 0:
            break
    messages.reverse()
    if is_carried(text, [message.own for message in messages]):
        return "user_stated"
    shown = [part for message in messages for part in message.foreign]
    if untrusted_output or any(_sentences_in(text, shown, MOST, Note.is_mentioned)):
        return "external"
    return "agent_inferred"


def is_carried(text: str, texts: Sequence[str], most: int = MOST) -> bool:
    """Whether each sentence of a text is said, in other words at most, by one of some texts."""
    carried = _sentences_in(text, texts, most, Note.is_told)
    return bool(carried) and all(carried)


def is_mentioned(text: str, texts: Sequence[str]) -> bool:
    """Whether texts from outside have all words of each sentence: what it says may be theirs."""
    mentioned = _sentences_in(text, texts, MOST_OUTPUT, Note.is_mentioned)
    return bool(mentioned) and all(mentioned)


def _sentences_in(
    text: str, texts: Sequence[str], left: int, is_in: Callable[[Note, list[str]], bool]
) -> list[bool]:
    """For each sentence of a text whether it is in one of some texts; a text said whole is one."""
    if not text.strip() or len(text) > LONGEST:
        return []
    words = plain(text)
    notes = [Note(sentence) for sentence in _sentences(text)]
    carried = [False] * len(notes)
    for each in reversed(texts):
        each = each[:LONGEST]
        folded = unicodedata.normalize("NFKC", each).casefold()
        if plain(folded) == words:
            return [True]
        if left <= 0 or len(notes) > MOST_SENTENCES or all(carried):
            continue
        # Only what passes a quick look counts as read, so that much other output does not hide
        # what was said.
        near = [place for place, note in enumerate(notes) if note.is_near(folded)]
        if near:
            said = list(dict.fromkeys(_sentences(each[:left])))
            left -= len(each)
            for place in near:
                carried[place] = carried[place] or is_in(notes[place], said)
    return [] if len(notes) > MOST_SENTENCES else carried


def _sentences(text: str) -> Iterator[str]:
    """Sentences with their ends; quotations as one word."""
    text = foreign.APOSTROPHES.sub("'", unicodedata.normalize("NFKC", text))
    text = foreign.join_quotations(text).replace("`", "'")
    for line in _IDEOGRAPHIC.sub(r"\g<0> ", text).splitlines():
        for sentence in foreign.SENTENCE_END.split(line):
            if any(map(str.isalnum, sentence)):
                yield sentence.strip()
