"""Whether two memories say the same, or different things about the same matter."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from difflib import SequenceMatcher
from functools import cache, lru_cache
from itertools import combinations, product, starmap
from math import isnan
from typing import NamedTuple

from langmem_recall.memory.restating import WEIGHT, Word, read_roles
from langmem_recall.text.tokens import tokens, word_lists
from langmem_recall.types import Memory

SHORT_WORDS = 6
"""In a text of more words one of them moves the likeness less, so more likeness is needed."""
READ_CHARS = 10_000  # texts are compared by their beginnings

_WORD = re.compile(r"\w+(?:[.,:'\u2019-]\w+)*")
_SENTENCE = re.compile(r"[^.!?\n]+[.!?]*")


def same_particulars(one: str, other: str) -> bool:
    """Whether names, numbers and negation agree, names and numbers in the same order too.

    "Ada owes Bob 5" and "Bob owes Ada 5" have the same words, and to many an embedder the same
    meaning.
    """
    texts = _words(one), _words(other)
    weighty = (word for words in texts for word in words if word.role in WEIGHT)
    named = {word.text for word in weighty if word.is_fixed}
    ordered = [[word.text for word in words if word.text in named] for words in texts]
    denials = [sum(word.role == "not" for word in words) for words in texts]
    # Two denials affirm.
    return ordered[0] == ordered[1] and denials[0] % 2 == denials[1] % 2


@lru_cache(maxsize=64)
def _words(text: str) -> list[Word]:
    return read_roles(text[:READ_CHARS], is_head=False)


def is_same(one: Memory, other: Memory, likeness: float, least: float) -> bool:
    """Whether one of two memories is enough: the same kind, speaker, particulars and meaning."""
    if (one.kind, one.speaker) != (other.kind, other.speaker) or least > 1:
        return False
    ours, theirs = ([word.text for word in _words(each.text)] for each in (one, other))
    if ours == theirs:
        return True
    needed = 1 - (1 - least) * min(1.0, SHORT_WORDS / max(len(ours), len(theirs)))
    if likeness < needed or not same_particulars(one.text, other.text):
        return False
    # A store may keep the vector of a text that was there before: then no word is in common.
    first, second = (set(tokens(each.text[:READ_CHARS])) for each in (one, other))
    return not (first and second) or not first.isdisjoint(second)


def conflicts(memories: Sequence[Memory]) -> list[tuple[int, int]]:
    """Pairs (newer, older), by their places, that say different things of the same.

    Two episodes are two events, so they never conflict.
    """
    pairs, read = list[tuple[int, int]](), [_facts(memory.text) for memory in memories]
    for (i, one), (j, other) in combinations(enumerate(memories), 2):
        is_alike = (one.kind, one.speaker) == (other.kind, other.speaker)
        if is_alike and one.kind != "episodic" and _clash(read[i], read[j]):
            # An unknown time is the older one, and of equals the first is newer.
            is_newer = isnan(other.written_ts) or one.written_ts >= other.written_ts
            pairs.append((i, j) if is_newer else (j, i))
    return pairs


def denied(memories: Sequence[Memory], said: Sequence[str]) -> list[bool]:
    """For each memory whether something said states otherwise of the same."""
    stored = [_facts(memory.text) if memory.kind != "episodic" else [] for memory in memories]
    wanted = _beginnings(word for facts in stored for fact in facts for word in fact.words)
    verbs = {fact.words[fact.verb] for facts in stored for fact in facts if fact.verb > 0}
    wanted |= _beginnings(form for form, verb in _meanings().items() if verb in verbs - {BE, HAVE})
    stated = [fact for text in said for fact in _facts(text, wanted)]
    return [bool(facts and stated) and _clash(facts, stated) for facts in stored]


def share_subject(one: str, other: str) -> bool:
    """Whether a word of two texts, or what it implies, tells that they may be of the same."""
    subjects = list[set[str]]()
    for text in (one, other):
        words = [word for word in read_roles(text[:READ_CHARS]) if word.role in WEIGHT]
        found = {sense for word in words for sense in word.senses}
        subjects.append(found.union(*(tokens(word.text) for word in words)))
    return not subjects[0].isdisjoint(subjects[1])


def _beginnings(words: Iterable[str]) -> set[str]:
    """What forms of these words begin with."""
    return {word[:4] for word in words if len(word) > 2 and word != USER}


# --- What a statement says of what: subject and attribute, then a value ---

USER, PLACE, NOT, NOTHING, BE, HAVE, USE = "user", "~", "not", "", "be", "have", "use"
"""What words are read as: who speaks, any preposition, a denial, nothing, and three verbs."""
_ROLES = {
    **dict.fromkeys(("subject", "user", "group", "object", "first"), USER),
    **dict.fromkeys(("self", "ours", "owner", "free"), NOTHING),
    "place": PLACE,
}
"""What words of other roles are read as."""
MOST_FACTS = 40  # clauses of a text that are compared
MOST_WORDS = 40  # words of a clause that is a statement
_TITLE = re.compile(r"\b(?:Mrs?|Ms|Dr|Prof|St|Hr|Fr)\.\s")
_CLAUSE = re.compile(r"(?<!\d)[,;](?!\d)|[,;](?!\d)|\s[\u2013\u2014-]+\s")


class _Fact(NamedTuple):
    words: tuple[str, ...]
    verb: int  # place of the verb that gives what stands before it one value; -1: it has none
    is_negated: bool


def _facts(text: str, wanted: Collection[str] | None = None) -> list[_Fact]:
    """The statements in a text: its sentences, and the clauses of each; no questions.

    Of a long conversation only sentences with a number or with a word that is `wanted`, by its
    beginning: taking one apart takes a while.
    """
    found: list[_Fact] = []
    for sentence in _SENTENCE.findall(_TITLE.sub("", text[:READ_CHARS])):
        if sentence.rstrip().endswith("?"):
            continue
        if wanted is not None and not any(map(str.isdigit, sentence)):
            begun = {word[:4] for word in _WORD.findall(sentence.casefold())}
            if begun.isdisjoint(wanted):
                continue
        for clause in dict.fromkeys([sentence, *_CLAUSE.split(sentence)]):
            fact = _fact(clause) if len(found) < MOST_FACTS else None
            if fact is not None:
                found.append(fact)
    return found


@lru_cache(maxsize=4_096)
def _fact(clause: str) -> _Fact | None:
    """What a clause states; None where it states nothing, or too much."""
    words, denials = list[str](), 0
    for word in read_roles(clause[:READ_CHARS]):
        meaning = _meanings().get(word.text, _ROLES.get(word.role))
        if word.role == "not" or meaning == NOT:
            denials += 1
        elif meaning is None:
            words.append(word.text if word.is_fixed else (tokens(word.text) or [word.text])[0])
        elif meaning:
            words.append(meaning)
    if not 1 < len(words) <= MOST_WORDS:
        return None
    verbs = word_lists("memory/conflicts")["verbs"]
    places = (place for place, word in enumerate(words) if word in verbs and place)
    # Two denials affirm.
    return _Fact(tuple(words), next(places, -1), denials % 2 == 1)


@cache
def _meanings() -> dict[str, str]:
    """What the words of conflicts.toml are read as."""
    lists = word_lists("memory/conflicts")
    rows = [(PLACE, lists["phrases"]), *lists["verbs"].items()]
    rows += [(NOTHING, lists["harmless"]), (NOT, lists["ends"])]
    return {word: meaning for meaning, words in rows for word in words.split()}


def _clash(ours: Sequence[_Fact], theirs: Sequence[_Fact]) -> bool:
    """Whether two texts give the same attribute of the same subject another value."""
    return any(starmap(_differ, product(ours, theirs)))


def _differ(one: _Fact, other: _Fact) -> bool:
    if one.is_negated != other.is_negated:
        denial, claim = (one, other) if one.is_negated else (other, one)
        # "Does not like tea" denies nothing of coffee.
        is_about_it = denial.words[0] == claim.words[0]
        return is_about_it and {*denial.words} - {PLACE} <= {*claim.words}
    if one.is_negated or one.verb < 1 or one.words[: one.verb + 1] != other.words[: one.verb + 1]:
        return False
    matched = SequenceMatcher(None, one.words, other.words, autojunk=False).get_opcodes()
    changed = [code for code in matched if code[0] == "replace"]
    if len(changed) != 1 or matched[0][0] != "equal" or matched[1] is not changed[0]:
        return False
    _, start, stop, other_start, other_stop = changed[0]
    values = one.words[start:stop], other.words[other_start:other_stop]
    # Another preposition in both is another attribute: tea in the morning, coffee after lunch.
    if all(PLACE in value[1:] for value in values) or start <= one.verb:
        return False
    are_numbers = all(any(map(str.isdigit, value[0])) for value in values)
    verb, subject = one.words[one.verb], one.words[: one.verb]
    if verb == HAVE:
        return are_numbers
    if verb == USE:
        return matched[-1][0] == "equal"
    between = one.words[one.verb + 1 : start]
    if not set(tokens(word_lists("memory/conflicts")["many"])).isdisjoint(between):
        return False
    # A person is many things, of one age and in one place.
    return verb != BE or subject != (USER,) or are_numbers or between == (PLACE,)
