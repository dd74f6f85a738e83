"""Who said a text: `user_stated` only what the words of a human carry.

Wrongly saying "the user stated it" lends a text full trust, wrongly saying "inferred" costs a
little rank. So every doubt counts against: only the user's own part of a message counts, words in
order and without gaps, no word before them, no word after them that turns their meaning.
Paraphrases are understood in English only; in any other language a sentence is carried as it
stands.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from langmem_recall.memory.foreign import JOINER, LONGEST, Parts, join_quotations, parts_of
from langmem_recall.types import Source

MOST = 100_000
"""Characters of a thread that are looked at, the latest messages first."""
LONG_WORD = 5
"""Longer words than this are never part of a contraction."""
MOST_SENTENCES = 20
"""Sentences of a text that is one memory; a longer one is nobody's statement."""
REACH = 24
"""Clauses that one statement may run through."""

SELF = "the user"
NOT = "not"


def _lexicon(words: str) -> frozenset[str]:
    return frozenset(words.split())


_SELF = _lexicon("i me my mine myself im user")
_NOT = _lexicon("not no never none nor neither without nobody nothing")
_THIRD_PERSON = _lexicon(
    "he she they him her them his hers their theirs himself herself themselves"
)
_SUBJECTS = _SELF | _THIRD_PERSON | _lexicon("we our it you") | {SELF}
# Words that a summary may add or leave out without saying anything else.
_FREE = _lexicon(
    "a an the this that these those of in on at for with by as and is are am be been being do does "
    "have has it its there here very really just so too also quite well oh hi hello hey ok okay "
    "yes yeah please actually btw fyi currently now definitely totally thanks :"
)
# With these a new clause begins: always, or where a subject follows.
_BREAKS = _lexicon("but however whereas although though yet")
_JOINTS = _BREAKS | _lexicon("and so because plus while")
_LIGHT = _FREE | _JOINTS
# What turns a statement it stands behind into another one.
_TURNS = _lexicon(
    "not if unless until except than rarely hardly barely seldom anymore less only or instead once"
)
# What makes the rest of a sentence a supposition, or the words of somebody else.
_DISTANCES = _lexicon("if unless suppose supposing imagine wish says said wrote claims claimed")
# What may stand right behind a statement without being part of its last name or noun.
_FOLLOWS = _lexicon(
    "to from into since because when where who which while before after during near last next "
    "yesterday today tomorrow recently every"
)
_ASKS = _lexicon(
    "do does did is are am was were can could should would will have has what who why how when "
    "where which"
)
_NEGATED = {"can't": "can", "won't": "will", "shan't": "shall", "cannot": "can", "cant": "can"} | {
    f"{verb}nt": verb for verb in _lexicon("do does did is are was were have has would")
}
_SUFFIXES = {"'s": "", "'m": "", "'re": "", "'ve": "", "'d": "would", "'ll": "will"}

_FOREIGN = re.compile(r"```.*?(?:```|\Z)|^[ \t]*>[^\n]*", re.DOTALL | re.MULTILINE)
_APOSTROPHES = re.compile("[\u2018\u2019\u201a\u201b\u02bc\u00b4]")
_IDEOGRAPHIC = re.compile("[\u3001\u3002]")
_DASHES = re.compile(r"[\u2013\u2014]+|[^\S\n]-+\s")
_SENTENCE_END = re.compile(r"(?<=[.!?…;\u3002])\s+")
_OPENERS, _CLOSERS = "([{<\"'“«*", ")]}>\"'”».,;:!?…*\u3001\u3002"
_REQUEST = re.compile(
    r"^(?:(?:please|kindly|hey|hi|hello|ok|okay|and|also|so|just|now|(?:can|could|will|would) you"
    r"|i(?:'d like| want| need) you to)[,\s]+){0,6}"
    r"(?:remember|note|save|memori[sz]e|record|keep in mind|(?:don't|do not) forget|make a note"
    r"|for the record|(?:just )?so you know|for your information|by the way"
    r"|as i (?:already )?(?:said|mentioned|wrote|told you))\b"
    r"(?:[,:\s]+(?:that|this)\b)?[,:\s]*",
    re.IGNORECASE,
)
_REPORT = re.compile(
    r"^(?:the )?user (?:said|says|stated|states|mentioned|mentions|noted|notes|confirmed|told me)"
    r"(?: that)?\s+",
    re.IGNORECASE,
)


class _Word(NamedTuple):
    """A word as it is compared."""

    text: str
    forms: frozenset[str]
    """What it may be an inflection of; itself alone for names, numbers and identifiers."""


class _Clause(NamedTuple):
    """Words up to the next comma, full stop or joint."""

    words: tuple[_Word, ...]
    opens: bool
    """Whether a statement may begin here."""
    asks: bool


class _Wanted(NamedTuple):
    """The words of a sentence that must be said."""

    words: tuple[_Word, ...]
    about_user: bool
    """Whether the sentence names the user, so that "they" may be "I"."""


def source_of(text: str, human_texts: Sequence[str | Parts], untrusted_output: bool) -> Source:
    """Where a text comes from.

    Args:
        text: What is to be remembered.
        human_texts: What humans wrote in the thread, without blocks of recalled memories: texts,
            or the parts of messages that have several blocks.
        untrusted_output: Whether words that nobody vouches for were seen in this turn.
    """
    messages = list(_parts_of_latest(human_texts))
    if is_carried(text, [message.own for message in messages]):
        return "user_stated"
    foreign = [part for message in messages for part in message.foreign]
    if untrusted_output or any(_carried_sentences(text, foreign)):
        return "external"
    return "agent_inferred"


def is_carried(text: str, texts: Sequence[str]) -> bool:
    """Whether each sentence of a text is said, in other words at most, by one of some texts."""
    carried = _carried_sentences(text, texts)
    return bool(carried) and all(carried)


def _carried_sentences(text: str, texts: Sequence[str]) -> list[bool]:
    """For each sentence of a text whether one of some texts says it; a text said whole is one."""
    if not text.strip() or len(text) > LONGEST:
        return []
    looked_at = _latest(texts)
    if any(_plain(text) == _plain(each) for each in looked_at):
        return [True]
    wanted = [_wanted(sentence) for sentence in _sentences(text)]
    if len(wanted) > MOST_SENTENCES:
        return []
    near = [each for each in looked_at if any(_has_long_words(each, one) for one in wanted)]
    said = [_said(each) for each in near]
    return [any(_states(clauses, sentence) for clauses in said) for sentence in wanted]


def _parts_of_latest(texts: Sequence[str | Parts]) -> Iterator[Parts]:
    """The parts of as much of a thread as is looked at."""
    left = MOST
    for text in reversed(texts):
        if left <= 0:
            return
        parts = parts_of(text) if isinstance(text, str) else text
        left -= len(parts.own) + sum(map(len, parts.foreign))
        yield parts


def _latest(texts: Sequence[str]) -> list[str]:
    """As much of a thread as is looked at: the cost of a hostile one is bounded."""
    looked_at, left = list[str](), MOST
    for text in reversed(texts):
        looked_at.append(text[: min(LONGEST, left)])
        left -= len(looked_at[-1])
    return looked_at


def _plain(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split()).rstrip(".! ")


# --- From text to clauses ---


def _sentences(text: str) -> Iterator[str]:
    """Sentences with their ends; quotations as one word, and without what somebody else wrote."""
    text = unicodedata.normalize("NFKC", _FOREIGN.sub("\n", text))
    text = join_quotations(_APOSTROPHES.sub("'", text)).replace("`", "'")
    text = _IDEOGRAPHIC.sub(r"\g<0> ", text)
    for line in _DASHES.sub(" , ", text).splitlines():
        for sentence in _SENTENCE_END.split(line):
            if any(char.isalnum() for char in sentence):
                yield sentence.strip()


def _said(text: str) -> tuple[_Clause, ...]:
    """What a message says, clause by clause."""
    return tuple(clause for sentence in _sentences(text) for clause in _clauses(sentence))


def _clauses(sentence: str) -> Iterator[_Clause]:
    """The clauses of a sentence, each with whether a statement may begin there."""
    told = _REQUEST.sub("", sentence)
    is_question = told == sentence and told.rstrip(_CLOSERS.replace("?", "")).endswith("?")
    lots = [words for words in _lots(told) if words]
    lead_is_free, is_distant = True, False
    for place, words in enumerate(lots):
        texts = [word.text for word in words]
        is_distant = is_distant or not _DISTANCES.isdisjoint(texts)
        begins = lead_is_free or (texts[0] != "that" and _has_subject(words))
        asks = is_question and (place == len(lots) - 1 or texts[0] in _ASKS)
        yield _Clause(tuple(words), begins and not is_distant, asks)
        lead_is_free = lead_is_free and all(_is_free(word) or word.text == NOT for word in words)
        is_distant = is_distant or (texts[-1] == ":" and not lead_is_free)


def _lots(sentence: str) -> Iterator[list[_Word]]:
    """The words between commas and the like, and from each joint on that a subject follows."""
    lot: list[_Word] = []
    chunks = [chunk for chunk in sentence.split() if any(map(str.isalnum, chunk)) or chunk == ","]
    for place, chunk in enumerate(chunks):
        core = chunk.lstrip(_OPENERS).rstrip(_CLOSERS)
        follower = chunks[place + 1] if place + 1 < len(chunks) else ""
        if chunk[0] in "([" or _is_joint(core.casefold(), follower.casefold()):
            yield lot
            lot = []
        lot += _words(core, is_first=place == 0)
        if chunk[-1] == ":":
            lot.append(_Word(":", frozenset(":")))
        if chunk[-1] in ",;:)]\u3001":
            yield lot
            lot = []
    yield lot


def _is_joint(word: str, follower: str) -> bool:
    return word in _BREAKS or (word in _JOINTS and follower.split("'")[0] in _SUBJECTS)


def _words(core: str, is_first: bool) -> Iterator[_Word]:
    """The words in a chunk between spaces: contractions taken apart, inflections noted."""
    folded = core.casefold()
    if not folded:
        return
    if folded in _NEGATED or folded.endswith("n't"):
        yield from _words(_NEGATED.get(folded, folded[:-3]), is_first)
        yield _Word(NOT, frozenset((NOT,)))
        return
    for suffix, meant in _SUFFIXES.items():
        if folded.endswith(suffix) and len(folded) > len(suffix):
            yield from _words(core[: -len(suffix)], is_first)
            yield from _words(meant, is_first=False)
            return
    yield _word(core, folded, is_first)


def _word(core: str, folded: str, is_first: bool) -> _Word:
    if folded in _SELF:
        return _Word(SELF, frozenset((SELF,)))
    if folded in _NOT:
        return _Word(NOT, frozenset((NOT,)))
    is_name = not folded.isalpha() or (core[0].isupper() and not is_first)
    return _Word(folded, frozenset((folded,)) if is_name else _forms(folded))


def _forms(word: str) -> frozenset[str]:
    """A word and what it may be the plural, third person or -ing form of; never of a past form."""
    forms = {word}
    if word.endswith("ies") and len(word) > 4:
        forms.add(word[:-3] + "y")
    elif word.endswith(("ses", "xes", "zes", "ches", "shes", "oes")):
        forms |= {word[:-2], word[:-1]}
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")) and len(word) > 3:
        forms.add(word[:-1])
    elif word.endswith("ing") and re.search("[aeiouy]", word[:-3]) and len(word) > 5:
        forms |= _ing_roots(word[:-3])
    return frozenset(forms)


def _ing_roots(root: str) -> set[str]:
    if root[-1] == root[-2]:
        return {root, root[:-1]}
    if re.search("[^aeiou][aeiou][^aeiouwxy]$", root):
        # A short verb would have doubled its last letter: hik-ing is from hike, car-ing from care.
        return {root + "e"} | ({root} if len(root) > 4 else set())
    return {root, root + "e"}


# --- Whether clauses state some words ---


def _wanted(sentence: str) -> _Wanted:
    plain = _REPORT.sub("", sentence)
    words = tuple(word for lot in _lots(plain) for word in lot if not _is_free(word))
    return _Wanted(words, plain != sentence or any(word.text == SELF for word in words))


def _is_free(word: _Word) -> bool:
    return word.text in _FREE


def _has_subject(words: Sequence[_Word]) -> bool:
    """Whether a clause begins with who it is about."""
    return next((word.text for word in words if word.text not in _LIGHT), "") in _SUBJECTS


def _has_long_words(text: str, wanted: _Wanted) -> bool:
    """A quick look, since taking a long thread apart takes a while: inflection keeps beginnings."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    texts = (word.text for word in wanted.words if word.text not in _SUBJECTS)
    return all(each[:3] in folded for each in texts if len(each) > LONG_WORD)


def _states(clauses: Sequence[_Clause], wanted: _Wanted) -> bool:
    words, about_user = wanted
    if len(words) == 1 and words[0].text != SELF:
        return any(_mentions(clause, words[0]) for clause in clauses)
    if not any(word.text != SELF for word in words):
        return False
    return any(
        clause.opens and _matches(clauses[place : place + REACH], words, about_user)
        for place, clause in enumerate(clauses)
    )


def _mentions(clause: _Clause, word: _Word) -> bool:
    texts = {each.text for each in clause.words}
    # Who quotes a text has named it, and said nothing of what it says.
    is_quoted = JOINER in word.text
    is_said = word.text in texts and not clause.asks and not is_quoted
    return is_said and texts.isdisjoint(_TURNS - {word.text})


def _matches(clauses: Sequence[_Clause], wanted: Sequence[_Word], about_user: bool) -> bool:
    """Whether clauses begin with these words, in order, with nothing of weight in between."""
    place, knows_user = 0, False
    for clause in clauses:
        for number, word in enumerate(clause.words):
            if place < len(wanted) and knows_user and _is_repeated(wanted[place], word):
                place += 1
            if place == len(wanted):
                return not clause.asks and _may_end(clause.words[number:])
            if _same(wanted[place], word, about_user):
                place, knows_user = place + 1, knows_user or word.text == SELF
            elif not _is_skipped(word):
                return False
        if place == len(wanted) or clause.asks:
            return not clause.asks
    return False


def _is_skipped(word: _Word) -> bool:
    return word.text == SELF or word.text in _LIGHT


def _is_repeated(wanted: _Word, word: _Word) -> bool:
    """A summary may name the user again where the message goes on without "I"."""
    return wanted.text == SELF and word.text != SELF and not _is_skipped(word)


def _same(wanted: _Word, word: _Word, about_user: bool) -> bool:
    if word.text == SELF and wanted.text in _THIRD_PERSON:
        return about_user
    return not wanted.forms.isdisjoint(word.forms)


def _may_end(rest: Sequence[_Word]) -> bool:
    """Whether a statement may end before these words of its clause."""
    first = rest[0]
    fits = _is_skipped(first) or first.text in _FOLLOWS
    return fits and _TURNS.isdisjoint(word.text for word in rest)
