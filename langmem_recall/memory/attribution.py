"""Who said a text: `user_stated` only what the words of a human carry.

Wrongly saying "the user stated it" lends a text full trust, wrongly saying "inferred" costs a
little rank. So every doubt counts against: only the user's own part of a message counts, words in
order and without gaps, no word before them, no word after them that turns their meaning.
What is told again in other words, in other languages too, restating.py knows. The words are in
attribution.toml.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from typing import NamedTuple

from langmem_recall.memory import foreign
from langmem_recall.memory.foreign import LONGEST, Parts, parts_of, pattern, tables
from langmem_recall.memory.restating import restates
from langmem_recall.types import Source

MOST = 100_000
"""Characters of a thread that are taken apart, the latest messages first."""
MOST_OUTPUT = 400_000
"""The same of what tools and memories said: what is missed here would be trusted too much."""
MOST_RETOLD = 400
"""Sentences of a thread, the latest, that a text may tell again in other words."""
LONGEST_WORD = 64
"""Characters of a word; what is longer is a blob."""
LONG_WORD = 5
"""Longer words than this are never part of a contraction."""
MOST_SENTENCES = 20
"""Sentences of a text that is one memory; a longer one is no statement."""
REACH = 24
"""Clauses that one statement may run through."""

SELF = "the user"
NOT = "not"

_FOREIGN = re.compile(r"```.*?(?:```|\Z)|^[ \t]*>[^\n]*", re.DOTALL | re.MULTILINE)
_IDEOGRAPHIC = re.compile("[\u3001\u3002]")
_DASHES = re.compile(r"[\u2013\u2014]+|[^\S\n]-+\s")
_OPENERS, _CLOSERS = "([{<\"'“«*", ")]}>\"'”».,;:!?…*\u3001\u3002"


@cache
def _lexicon(*names: str) -> frozenset[str]:
    """The words of attribution.toml under some names."""
    words = tables("attribution")["words"]
    return frozenset(" ".join(words[name] for name in names).split())


@cache
def _subjects() -> frozenset[str]:
    return _lexicon("self", "third_person", "other_subjects") | {SELF}


class _Word(NamedTuple):
    """A word as it is compared."""

    text: str
    inflects: bool = False
    """Whether it may be an inflection; names, numbers and identifiers are none."""


class _Clause(NamedTuple):
    """Words up to the next comma, full stop or joint."""

    words: tuple[_Word, ...]
    opens: bool
    """Whether a statement may begin here."""
    asks: bool


def source_of(text: str, human_texts: Sequence[str | Parts], untrusted_output: bool) -> Source:
    """Where a text comes from.

    Args:
        text: What is to be remembered.
        human_texts: What humans wrote in the thread, without blocks of recalled memories: texts,
            or the parts of messages that have several blocks.
        untrusted_output: Whether unvouched words were seen in this turn.
    """
    messages: list[Parts] = []
    left = MOST
    for message in reversed(human_texts):
        if left <= 0:
            break
        messages.append(parts_of(message) if isinstance(message, str) else message)
        left -= len(messages[-1].own) + sum(map(len, messages[-1].foreign))
    if is_told(text, [message.own for message in messages]):
        return "user_stated"
    shown = [part for message in messages for part in message.foreign]
    if untrusted_output or any(_carried_sentences(text, shown)):
        return "external"
    return "agent_inferred"


def is_carried(text: str, texts: Sequence[str], most: int = MOST) -> bool:
    """Whether each sentence of a text is said, in other words at most, by one of some texts."""
    carried = _carried_sentences(text, texts, most)
    return bool(carried) and all(carried)


def is_told(text: str, texts: Sequence[str]) -> bool:
    """Whether each sentence of a text is said by one of some texts, or told again of it."""
    carried = _carried_sentences(text, texts)
    if not carried or all(carried):
        return bool(carried)
    said = [part for each in texts for part in _sentences(each[:LONGEST])][-MOST_RETOLD:]
    # Split like the text of a message, so that both count the same sentences.
    pairs = zip(_sentences(text), carried, strict=True)
    return all(is_said or restates(pattern("user_said").sub("", it), said) for it, is_said in pairs)


def _carried_sentences(text: str, texts: Sequence[str], left: int = MOST) -> list[bool]:
    """For each sentence of a text whether one of some texts says it; a text said whole is one."""
    if not text.strip() or len(text) > LONGEST:
        return []
    plain = _plain(unicodedata.normalize("NFKC", text).casefold())
    wanted, beginnings, free = [], [], _lexicon("free")
    for sentence in _sentences(text):
        statement = pattern("user_said").sub("", sentence)
        words = [word for part in _segments(statement) for word in part if word.text not in free]
        # Where the sentence names the user "they" may be "I".
        about_user = statement != sentence or any(word.text == SELF for word in words)
        wanted.append((words, about_user))
        longer = (word.text for word in words if word.text not in _subjects())
        beginnings.append([each[:3] for each in longer if len(each) > LONG_WORD])
    carried = [False] * len(wanted)
    for each in reversed(texts):
        each = each[:LONGEST]
        folded = unicodedata.normalize("NFKC", each).casefold()
        if _plain(folded) == plain:
            return [True]
        if left <= 0 or len(wanted) > MOST_SENTENCES or all(carried):
            continue
        # A quick look, since taking a text apart takes a while: inflection keeps beginnings. Only
        # what passes it counts as read, so that much other output does not hide what was said.
        near = [all(start in folded for start in starts) for starts in beginnings]
        if any(near):
            each = each[:left]
            left -= len(each)
            clauses = [clause for part in _sentences(each) for clause in _clauses(part)]
            for i, (words, about_user) in enumerate(wanted):
                is_said = near[i] and _states(clauses, words, about_user)
                carried[i] = carried[i] or is_said
    return [] if len(wanted) > MOST_SENTENCES else carried


def _plain(folded: str) -> str:
    return " ".join(folded.split()).rstrip(".! ")


# --- From text to clauses ---


def _sentences(text: str) -> Iterator[str]:
    """Sentences with their ends; quotations as one word, and without what somebody else wrote."""
    text = unicodedata.normalize("NFKC", _FOREIGN.sub("\n", text))
    text = foreign.join_quotations(foreign.APOSTROPHES.sub("'", text)).replace("`", "'")
    text = _IDEOGRAPHIC.sub(r"\g<0> ", text)
    for line in _DASHES.sub(" , ", text).splitlines():
        for sentence in foreign.SENTENCE_END.split(line):
            if any(map(str.isalnum, sentence)):
                yield sentence.strip()


def _clauses(sentence: str) -> Iterator[_Clause]:
    """The clauses of a sentence, each with whether a statement may begin there."""
    statement = pattern("to_remember").sub("", sentence)
    ends_in_question = statement.rstrip(_CLOSERS.replace("?", "")).endswith("?")
    is_question = statement == sentence and ends_in_question
    free, light = _lexicon("free") | {NOT}, _lexicon("free", "breaks", "joints")
    segments = [words for words in _segments(statement) if words]
    lead_is_free, is_distant = True, False
    for place, words in enumerate(segments):
        texts = [word.text for word in words]
        is_distant = is_distant or not _lexicon("distances").isdisjoint(texts)
        has_subject = next((text for text in texts if text not in light), "") in _subjects()
        begins = lead_is_free or (texts[0] != "that" and has_subject)
        asks = is_question and (place == len(segments) - 1 or texts[0] in _lexicon("asks"))
        yield _Clause(tuple(words), begins and not is_distant, asks)
        lead_is_free = lead_is_free and free.issuperset(texts)
        is_distant = is_distant or (texts[-1] == ":" and not lead_is_free)


def _segments(sentence: str) -> Iterator[list[_Word]]:
    """The words between commas and the like, and from each joint on that a subject follows."""
    words: list[_Word] = []
    chunks = [chunk for chunk in sentence.split() if any(map(str.isalnum, chunk)) or chunk == ","]
    for place, chunk in enumerate(chunks):
        core = chunk.lstrip(_OPENERS).rstrip(_CLOSERS)
        folded = core.casefold()
        follower = chunks[place + 1].casefold() if place + 1 < len(chunks) else ""
        is_joint = folded in _lexicon("joints") and follower.split("'")[0] in _subjects()
        if chunk[0] in "([" or is_joint or folded in _lexicon("breaks"):
            yield words
            words = []
        words += _words(core, is_first=place == 0)
        if chunk[-1] == ":":
            words.append(_Word(":"))
        if chunk[-1] in ",;:)]\u3001":
            yield words
            words = []
    yield words


def _words(core: str, is_first: bool) -> tuple[_Word, ...]:
    """The words in a chunk between spaces: contractions taken apart."""
    # The same few words make up a text, and no blob enters the cache.
    read = _cached_words if len(core) <= LONGEST_WORD else _read_words
    return read(core, is_first)


def _read_words(core: str, is_first: bool) -> tuple[_Word, ...]:
    folded, negated = core.casefold(), tables("attribution")["negated"]
    if not folded:
        return ()
    if folded in negated or folded.endswith("n't"):
        return (*_words(negated.get(folded, folded[:-3]), is_first), _Word(NOT))
    for suffix, meaning in tables("attribution")["suffixes"].items():
        if folded.endswith(suffix) and len(folded) > len(suffix):
            return (*_words(core[: -len(suffix)], is_first), *_words(meaning, is_first=False))
    if folded in _lexicon("self", "not"):
        return (_Word(SELF if folded in _lexicon("self") else NOT),)
    is_name = not folded.isalpha() or (core[0].isupper() and not is_first)
    return (_Word(folded, not is_name),)


_cached_words = lru_cache(maxsize=4_096)(_read_words)


@lru_cache(maxsize=4_096)
def _forms(word: _Word) -> frozenset[str]:
    """A word and what it may be the plural, third person or -ing form of; never of a past form."""
    text, root, forms = word.text, word.text[:-3], {word.text}
    if not word.inflects:
        return frozenset(forms)
    if text.endswith("ies") and len(text) > 4:
        forms.add(root + "y")
    elif text.endswith(("ses", "xes", "zes", "ches", "shes", "oes")):
        forms |= {text[:-2], text[:-1]}
    elif text.endswith("s") and not text.endswith(("ss", "us", "is")) and len(text) > 3:
        forms.add(text[:-1])
    elif text.endswith("ing") and re.search("[aeiouy]", root) and len(text) > 5:
        if root[-1] == root[-2]:
            forms |= {root, root[:-1]}
        elif re.search("[^aeiou][aeiou][^aeiouwxy]$", root) and len(root) <= 4:
            # A short verb would have doubled its last letter: hik-ing is from hike.
            forms.add(root + "e")
        else:
            forms |= {root, root + "e"}
    return frozenset(forms)


# --- Whether clauses state some words ---


def _states(clauses: Sequence[_Clause], words: Sequence[_Word], about_user: bool) -> bool:
    """Whether clauses say these words of a sentence; a single word is only named."""
    if len(words) == 1 and words[0].text != SELF:
        text = words[0].text
        turns = _lexicon("turns") - {text}
        said = [{word.text for word in clause.words} for clause in clauses if not clause.asks]
        # A quotation names a text and says nothing of what it says.
        is_said = any(text in texts and turns.isdisjoint(texts) for texts in said)
        return is_said and foreign.JOINER not in text
    if all(word.text == SELF for word in words):
        return False
    return any(
        clause.opens and _matches(clauses[place : place + REACH], words, about_user)
        for place, clause in enumerate(clauses)
    )


def _matches(clauses: Sequence[_Clause], wanted: Sequence[_Word], about_user: bool) -> bool:
    """Whether clauses begin with these words, in order, with nothing of weight in between."""
    skipped = _lexicon("free", "breaks", "joints") | {SELF}
    place, knows_user = 0, False
    for clause in clauses:
        for number, word in enumerate(clause.words):
            is_skipped = word.text in skipped
            names_user = place < len(wanted) and wanted[place].text == SELF
            # A summary may name the user again where the message goes on without "I".
            if knows_user and names_user and not is_skipped:
                place += 1
            if place == len(wanted):
                may_end = is_skipped or word.text in _lexicon("follows")
                rest = (each.text for each in clause.words[number:])
                return may_end and not clause.asks and _lexicon("turns").isdisjoint(rest)
            if word.text == SELF and wanted[place].text in _lexicon("third_person"):
                is_same = about_user
            else:
                is_same = not _forms(wanted[place]).isdisjoint(_forms(word))
            if is_same:
                place, knows_user = place + 1, knows_user or word.text == SELF
            elif not is_skipped:
                return False
        if place == len(wanted) or clause.asks:
            return not clause.asks
    return False
