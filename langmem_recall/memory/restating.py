"""Whether a text tells again, in other words, what a human message states.

A model notes "The user's family moved to Ghent in the spring" of "We moved to Ghent last spring".
Every word of weight in the note must be in one statement of the message, and every one of the
statement in the note, but for where and since when; or the note stands there word for word. Names,
numbers, other persons, negation and whatever makes a guess or a plan of a statement are the same in
both. The words are in restating.toml, in six languages.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, lru_cache
from itertools import combinations
from typing import NamedTuple

from langmem_recall.memory.foreign import APOSTROPHES, JOINER, pattern
from langmem_recall.text.tokens import word_lists

LONGEST_STATEMENT = 60
"""Words of a sentence that is one statement; a longer one is told again by no other."""
MOST_LEFT_OUT = 5  # words of weight in one phrase that a note may leave out
MOST_CLAUSES = 8
MOST_TAKEN_APART = 200
"""Sentences that have all words of a note and are read clause by clause, which takes a while."""

_CHUNK = re.compile(r"(?:[^\s,;()\[\]\"“”„«»…\u2013\u2014]|(?<=\d),(?=\d))+")
_CLAUSE_END = re.compile(r"\s*(?:[;()\u2013\u2014]|(?<!\d),|,(?!\d))\s*|\s+-+\s+|:\s+")
# "Ma" begins a French clause about something of mine.
_JOINT = re.compile(
    r"(?:^\s*(?:and|but|und|aber|et|mais|pero)|\s+(?:and|but|und|aber|et|mais|y|pero|e|ma|mas))\s+",
    re.IGNORECASE,
)
_ELISION = re.compile(r"(?i)^(qu|dell|all|nell|dall|sull|un|[jldnmtsc])'(?=\w)")
_IN_NUMBERS = re.compile(r"(?<=\d)(?:[,.'\u202f\u00a0](?=\d{3}(?!\d))|(?:st|nd|rd|th)$|(k)$)")
_MONEY = re.compile(r"([€$£])\s?(\d[\d.,]*\d|\d)")
_CURRENCIES = {"€": "euros", "$": "dollars", "£": "pounds"}
_PREFERS = frozenset({"pref", "préf", "lieb"})
_PREFERRED_TO = frozenset({"to", "a", "al", "à", "au", "aux", "ao", "als"})
_PLURAL_WE = re.compile(r"\w{2,}(?:amos|emos|imos|iamo)$")
_BRITISH = re.compile(r"(?<=\w{2})our(?=s?$)")
_FIRST_PERSON = ("o", "é", "í", "ei", "i")
WEIGHT = frozenset({"word", "person", "turn"})  # roles of words that must be in both
SUBJECTS = frozenset({"subject", "group", "first", "user"})
OPENERS = frozenset({"place", "contrast", "not", "subject", "group"})
"""Roles of words that a phrase begins with."""
AGAINST = frozenset({"contrast", "not"})


class Word(NamedTuple):
    """A word of a statement, and what it does in it."""

    text: str
    role: str
    senses: frozenset[str]  # rows of words that it is in
    is_fixed: bool  # a name, a number or an identifier, which has no other form
    is_against: bool
    """Whether what it stands for is held against what is meant: "from Berlin", "not cats"."""
    phrase: int  # number of the phrase that it is in


class _Statement(NamedTuple):
    words: tuple[Word, ...]
    weighty: tuple[Word, ...]
    """What must be told, hedges of the whole sentence included: they make a guess of any clause."""
    roles: frozenset[str]
    optional: frozenset[int]  # phrases that say where and since when, which a note may leave out
    is_group: bool  # whether it says "we"
    is_directive: bool
    is_cut: bool  # whether other clauses of its sentence stand before it
    drops_subjects: bool  # whether its language tells by the verb alone who is meant


class _Lexicon:
    """The words of restating.toml."""

    def __init__(self) -> None:
        table = word_lists("memory/restating")
        # Roles of a word in a language; the rows that a word is in, and its languages.
        self.roles = defaultdict[tuple[str, str], set[str]](set)
        self.senses = defaultdict[str, set[str]](set)
        self.languages = defaultdict[str, set[str]](set)
        for role, language, word in _entries(table["roles"]):
            self.roles[language, word].add(role)
            self.languages[word].add(language)
        for sense, language, word in _entries(table["concepts"]):
            self.senses[word].add(sense)
            self.languages[word].add(language)
        self.numbers = {word: digits for digits, _, word in _entries(table["numbers"])}
        self.phrases = re.compile(rf"\b(?:{'|'.join(map(re.escape, table['phrases']))})\b")
        # Words that phrases and signs count as.
        self.replacing = {*" ".join([*table["phrases"].values(), *_CURRENCIES.values()]).split()}
        self.endings = {frozenset(pair.split("/")) for pair in table["forms"]["endings"].split()}
        self.order = {side: roles.split() for side, roles in table["order"].items()}


_lexicon = cache(_Lexicon)


def _entries(table: dict[str, str]) -> Iterator[tuple[str, str, str]]:
    """The rows of a table, each with a language and a word of it: "en: i me de: ich"."""
    for row, words in table.items():
        language = ""
        for word in words.split():
            if word.endswith(":"):
                language = word[:-1]
            else:
                yield row, language, word.casefold()


class Note:
    """A sentence that may tell again what somebody said."""

    def __init__(self, sentence: str) -> None:
        statement = pattern("user_said").sub("", sentence)
        chunks = _chunks(statement)
        self._plain, self._tries = plain(sentence), MOST_TAKEN_APART
        self._words: list[Word] = []
        if len(chunks) <= LONGEST_STATEMENT:
            self._words = _read(chunks, "told", statement != sentence)
        self._weighty = [word for word in self._words if word.role in WEIGHT]
        # Other forms of a word have its beginning; what counts as another word need not be there.
        own = (word.text for word in self._weighty if not word.senses and word.text.isalpha())
        self._beginnings = [text[:3] for text in own if text not in _lexicon().replacing]
        parts = [part for part in _JOINT.split(statement) if part.strip()]
        self._parts = [Note(part) for part in parts] if 1 < len(parts) <= MOST_CLAUSES else []

    def is_near(self, folded: str) -> bool:
        """A quick look, since taking a text apart takes a while."""
        return all(start in folded for start in self._beginnings)

    def is_told(self, said: Sequence[str]) -> bool:
        """Whether sentences of its subject state it: one all of it, or each half of it one."""
        return any(map(self._is_told_by, said)) or (
            bool(self._parts) and all(part.is_told(said) for part in self._parts)
        )

    def is_mentioned(self, said: Iterable[str]) -> bool:
        """Whether one of some sentences has all its words, whatever it says of them."""
        return any(map(self._is_mentioned_by, said))

    def _is_mentioned_by(self, sentence: str) -> bool:
        if not self.is_near(sentence.casefold()):
            return False
        words = _words(sentence)
        return plain(sentence) == self._plain or (
            bool(self._weighty)
            and all(any(_alike(word, other) for other in words) for word in self._weighty)
        )

    def _is_told_by(self, sentence: str) -> bool:
        if not self._is_mentioned_by(sentence):
            return False
        if plain(sentence) == self._plain and JOINER not in sentence:
            return True
        if len(_words(sentence)) > LONGEST_STATEMENT or not self._tries:
            return False
        self._tries -= 1
        return any(_tells(self._words, statement) for statement in _statements(sentence))


def plain(text: str) -> str:
    """A text as it is compared word for word."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split()).strip(" .!-\u3002")


def read_roles(text: str, is_head: bool = True) -> list[Word]:
    """The words of a statement, by whomever; `is_head`: its first capital makes no name."""
    chunks = _chunks(text, is_head)
    for place in range(len(chunks) - 1):
        if chunks[place][0] in ("'m", "'re"):
            # Where nothing but the verb tells what is said, it stands behind its subject.
            chunks[place : place + 2] = [chunks[place + 1], ("am", False)]
    return _read(chunks, "stated")


# --- From sentences to words with their roles ---


@lru_cache(maxsize=2_048)
def _words(sentence: str) -> tuple[Word, ...]:
    """The words of a sentence that somebody said."""
    return tuple(_read(_chunks(pattern("to_remember").sub("", sentence)), "said"))


@lru_cache(maxsize=256)
def _statements(sentence: str) -> tuple[_Statement, ...]:
    """Runs of clauses of a sentence; of a question those before the last that tell something."""
    statement = pattern("to_remember").sub("", sentence)
    languages = _languages(_chunks(statement))
    hedges = tuple(word for word in _words(sentence) if word.role == "hedge")
    parts = [part for clause in _CLAUSE_END.split(statement) for part in _JOINT.split(clause)]
    clauses = [part for part in parts if part.strip()][:MOST_CLAUSES]
    asks = statement == sentence and sentence.rstrip(" .!)\"'").endswith("?")
    heads = [_read(_chunks(clause), "said") for clause in clauses]
    found: list[_Statement] = []
    for start, stop in combinations(range(len(clauses) + 1 - asks), 2):
        run = _chunks(" , ".join(clauses[start:stop]), is_head=start == 0)
        head = heads[start]
        if asks and head and head[0].role not in ("subject", "self"):
            continue
        begins = next((_roles(word.text, languages) for word in head if word.role != "not"), ())
        # "Call me Jo", "please always use dark mode": what is wanted, without a word for it.
        is_directive = "directive" in begins and not any(word.role in SUBJECTS for word in head)
        words = tuple(_read(run, "said"))
        drops = languages <= {"es", "it", "pt"}
        weighty = (*(word for word in words if word.role in WEIGHT), *hedges)
        roles = frozenset(word.role for word in words)
        optional = frozenset(word.phrase for word in words if word.role in ("place", "contrast"))
        is_group = "group" in roles or any(_PLURAL_WE.match(word.text) for word in words)
        is_cut = start > 0
        found.append(
            _Statement(words, weighty, roles, optional, is_group, is_directive, is_cut, drops)
        )
    return tuple(found)


def _chunks(text: str, is_head: bool = True) -> list[tuple[str, bool]]:
    """The words of a text, each with whether it is a name; endings stand before their word."""
    text = APOSTROPHES.sub("'", unicodedata.normalize("NFKC", text))
    text = _MONEY.sub(lambda found: f"{found[2]} {_CURRENCIES[found[1]]}", text)
    table = word_lists("memory/restating")
    text = _lexicon().phrases.sub(lambda found: table["phrases"][found[0]], text)
    negated, suffixes = table["negated"], table["suffixes"]
    chunks: list[tuple[str, bool]] = []
    for match in _CHUNK.finditer(text):
        core = match.group().strip(".:!?'*_`<>")
        if not core.strip("-"):
            # The mark of a list; before a number it is a sign.
            continue
        while elided := _ELISION.match(core):
            chunks.append((elided[1].lower(), False))
            core = core[elided.end() :]
        is_name = core[:1].isupper() and (bool(chunks) or not is_head)
        folded = core.casefold()
        if folded in negated or folded.endswith("n't"):
            chunks.append(("not", False))
            folded = negated.get(folded, folded.removesuffix("n't"))
        ending = next((each for each in suffixes if folded.endswith(each)), "")
        if ending and len(folded) > len(ending):
            folded = folded.removesuffix(ending)
            chunks.append((suffixes[ending] or ending, False))
        is_fixed = is_name or JOINER in folded or any(map(str.isdigit, folded))
        pieces = folded.split("-") if folded.replace("-", "").isalpha() else [folded]
        chunks += [(piece, is_fixed) for piece in pieces if piece]
    return chunks


def _languages(chunks: Iterable[tuple[str, bool]]) -> frozenset[str]:
    """The languages that most of the words are of."""
    known = _lexicon().languages
    counts = Counter(language for word, _ in chunks for language in known.get(word, ()))
    most = max(counts.values(), default=0)
    return frozenset(language for language, count in counts.items() if count == most)


def _roles(text: str, languages: Iterable[str]) -> frozenset[str]:
    roles = _lexicon().roles
    return frozenset[str]().union(*(roles.get((each, text), ()) for each in languages))


def _read(chunks: Sequence[tuple[str, bool]], side: str, names_user: bool = False) -> list[Word]:
    """The words of a note ("told"), or of a message ("said"), with what each does in it."""
    lexicon, languages, read = _lexicon(), _languages(chunks), list[Word]()
    phrase, is_against = 0, False
    for place, (text, is_fixed) in enumerate(chunks):
        if text.startswith("'"):
            continue
        text = _IN_NUMBERS.sub(lambda sign: "000" if sign[1] else "", text)
        text = lexicon.numbers.get(text, _BRITISH.sub("or", text))
        # In May something is, and may not be.
        found = _roles(text, languages) if not is_fixed or text != "may" else frozenset[str]()
        role = next((each for each in lexicon.order[side] if each in found), "word")
        if side == "told" and role in ("subject", "object", "self"):
            names_user = names_user or role != "self"
            role = "owner" if role == "self" else "user"
        elif role == "again" and not names_user:
            role = "person"
        elif role == "user":
            before = [each for each, _ in chunks[max(place - 2, 0) : place]]
            is_hers = before[-1:] == ["der"] and text.endswith("in")
            is_owner = is_hers or before[-1:] == ["'s"]
            is_owner = is_owner or any("of" in _roles(it, languages) for it in before)
            role, names_user = "owner" if is_owner else "user", True
        elif text in _PREFERRED_TO and any(it.text[:4] in _PREFERS for it in read):
            role = "contrast"
        if role in OPENERS:
            phrase, is_against = phrase + 1, role in AGAINST
        senses = frozenset(lexicon.senses.get(text, ()))
        if side != "told":
            implied = word_lists("memory/restating")["implied"].items()
            senses |= {row for row, by in implied if by in senses}
        is_fixed = is_fixed or any(map(str.isdigit, text))
        read.append(Word(text, role, senses, is_fixed, is_against, phrase))
    return read


# --- Whether a note tells a statement ---


def _tells(told: Sequence[Word], said: _Statement) -> bool:
    """Whether all that has weight in a note is in a statement, and the other way round."""
    if sum(word.role == "not" for word in (*told, *said.words)) % 2:
        return False
    left, pairs, is_wish = [*said.weighty], list[tuple[Word, Word]](), False
    for word in told:
        if word.role not in WEIGHT and word.role not in ("wish", "hedge", "company"):
            continue
        match = next((other for other in left if _alike(word, other)), None)
        if match is not None:
            left.remove(match)
            pairs.append((word, match))
        elif word.role in ("wish", "hedge") and said.is_directive:
            is_wish = True
        elif not (word.role == "company" and said.is_group):
            return False
    # The verb of an instruction: "use" in "please always use dark mode".
    left = left[1:] if is_wish and left and left[0].phrase == 0 else left
    # Only whole phrases may be left out.
    optional = said.optional.difference(other.phrase for _, other in pairs)
    may_go = (word.role in ("word", "person") and word.phrase in optional for word in left)
    # All but the verb, which stands before a negation in one language and behind it in another.
    is_turned = any(word.is_against != other.is_against for word, other in pairs[1:])
    is_told = len(left) <= MOST_LEFT_OUT and all(may_go) and not is_turned
    return is_told and _same_subject([word.role for word in told], said, pairs)


def _same_subject(told: list[str], said: _Statement, pairs: list[tuple[Word, Word]]) -> bool:
    """Whether a note that speaks of the user tells what the message says of its writer."""
    named = [role for role in told if role in ("user", "owner", "word", "person")]
    verbs = (other.text for word, other in pairs if not other.is_fixed and word.text != other.text)
    is_first_person = not SUBJECTS.isdisjoint(said.roles - {"group"}) or (
        said.drops_subjects and any(verb.endswith(_FIRST_PERSON) for verb in verbs)
    )
    if "user" in named:
        if said.is_group and not is_first_person and "company" not in told:
            return False
        if named[0] != "user":
            return "object" in said.roles or said.is_directive
        is_own = is_first_person or "self" in said.roles or said.is_directive
        return is_own or (said.is_group and "company" in told)
    is_own = not {"self", "object", "owner"}.isdisjoint(said.roles)
    is_own = is_own or is_first_person or said.is_group
    if "owner" in named:
        return is_own
    # Without a subject of its own, the clause may be about whatever stands before it.
    return is_own or (len(pairs) > 1 and (said.is_directive or not said.is_cut))


def _alike(one: Word, other: Word) -> bool:
    """Whether two words are the same, forms of the same, or of the same row."""
    if one.text == other.text or one.senses & other.senses:
        return True
    if one.is_fixed or other.is_fixed or min(len(one.text), len(other.text)) < 3:
        return False
    short, long = sorted((one.text, other.text), key=len)
    if long == f"{short}{short[-1]}ing":
        return True
    letters = zip(short, long, strict=False)
    same = next((place for place, (a, b) in enumerate(letters) if a != b), len(short))
    return same >= 3 and frozenset((short[same:], long[same:])) in _lexicon().endings
