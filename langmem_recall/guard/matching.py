"""How the guard reads: a text becomes a string with one letter a word, a rule a pattern over it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache, partial
from typing import NamedTuple

from langmem_recall.guard.normalise import close_up, fold, unleet
from langmem_recall.guard.rules import LINE_STARTS, MARKS, REPLACED, RULES
from langmem_recall.guard.words import PHRASES, WORDS

FILLER = "\u00b7"
END, QUOTE = ".", '"'
_SIGNS = {**dict.fromkeys(".!?\u3002", END), **dict.fromkeys("\"'`", QUOTE)}
_FIRST_CODE = 0x4E00
_EXTRA = ("fn", "number", "colon")
"""Sorts that are told by their form: a function that acts, a long number, a colon."""
_ACTING = "deliver"
"""Words that make an identifier the name of a function that acts."""
_JOINED = 10
"""Letters from which a Latin word may be known words and nothing else."""
_GLUED = 20
"""Letters from which a Latin word may be several written as one."""
_NO_SPACES = "\u2e80"
"""Scripts from here on do without spaces between words."""


class Vocabulary(NamedTuple):
    """Every known word and mark with its code; a code stands for one set of sorts."""

    codes: dict[str, str]
    stems: dict[str, list[tuple[str, str]]]
    """Beginnings of words by their first three letters."""
    members: dict[str, str]
    """All codes of a sort."""
    bits: dict[str, int]
    """Each sort as one bit."""
    masks: dict[str, int]
    """Each code as the bits of its sorts."""


class Rule(NamedTuple):
    """A pattern over codes, and the sorts without which it cannot match."""

    reason: str
    weight: float
    source: str
    needs: tuple[int, ...]

    @property
    def pattern(self) -> re.Pattern[str]:
        """The pattern, made when first asked for: most texts need few of them."""
        return _made(self.source)


@cache
def _made(source: str) -> re.Pattern[str]:
    return re.compile(source, re.DOTALL)


@cache
def vocabulary() -> Vocabulary:
    """All words and marks as codes."""
    sorts: dict[str, set[str]] = {}
    for sort, words in WORDS.items():
        for word in words.split():
            sorts.setdefault(fold(word), set()).add(sort)
    for name in (*_EXTRA, *(name for name, *_ in MARKS)):
        sorts[f"\0{name}"] = {name, "secret"} if name == "secret_file" else {name}
    sets = sorted({tuple(sorted(held)) for held in sorts.values()})
    code_of = {held: chr(_FIRST_CODE + place) for place, held in enumerate(sets)}
    coded = {word: code_of[tuple(sorted(held))] for word, held in sorts.items()}
    stems: dict[str, list[tuple[str, str]]] = {}
    for word, code in coded.items():
        if word.endswith("*"):
            stems.setdefault(word[:3], []).append((word[:-1], code))
    names = sorted({name for held in sets for name in held})
    bits = {name: 1 << place for place, name in enumerate(names)}
    members = {name: "".join(code_of[held] for held in sets if name in held) for name in names}
    masks = {code: sum(bits[name] for name in held) for held, code in code_of.items()}
    return Vocabulary(coded, stems, members, bits, masks)


@cache
def _rules_by_need() -> list[tuple[int, list[Rule]]]:
    """The rules by the rarest sort that each of them needs."""
    by_need: dict[int, list[Rule]] = {}
    for rule in (compiled(*rule) for rule in RULES):
        by_need.setdefault(min(rule.needs, key=_words_for), []).append(rule)
    return list(by_need.items())


def _words_for(need: int) -> int:
    """How many sets of sorts could serve a need."""
    return sum(1 for mask in vocabulary().masks.values() if mask & need)


def possible_rules(codes: str) -> Iterator[Rule]:
    """The rules for each of whose terms a text has a word."""
    masks, present = vocabulary().masks, 0
    for code in set(codes):
        present |= masks.get(code, 0)
    for rarest, held in _rules_by_need():
        if present & rarest:
            yield from (rule for rule in held if all(present & need for need in rule.needs))


def compiled(reason: str, weight: float, pattern: str) -> Rule:
    """A rule from its terms, one after the other.

    `a|b` is a word of either sort, `a?` one that may be missing, `!a` one that is not negated,
    `~n` up to n words of the same sentence, `..n` up to n words, `^` a sentence's start.
    """
    known, parts, needs = vocabulary(), [], []
    for term in pattern.split():
        if term == "^":
            parts.append(rf"(?:\A|(?<=\{END}))")
        elif term[0] == "~":
            parts.append(f"[^{END}]{{0,{term[1:]}}}?")
        elif term[:2] == "..":
            parts.append(f".{{0,{term[2:]}}}?")
        else:
            names = term.strip("!?").split("|")
            parts.append(_term(term, "".join(known.members[name] for name in names)))
            if not term.endswith("?"):
                needs.append(sum(known.bits[name] for name in names))
    return Rule(reason, weight, "".join(parts), tuple(needs))


def _term(term: str, codes: str) -> str:
    not_ = vocabulary().members["not"]
    if term[0] == "!":
        return f"(?<![{not_}])(?<![{not_}].)[{codes}](?![{not_}])"
    return f"[{codes}]?" if term.endswith("?") else f"[{codes}]"


# Controls never stand in a text that was stripped; those that count as a space are left out.
_MARK_SIGNS = "".join(map(chr, (*range(0x01, 0x09), *range(0x0E, 0x1C), *range(0x86, 0xA0))))
_TOKEN = re.compile(f"\\w{{1,64}}|[.!?](?!\\w)|[{_MARK_SIGNS}:\"'`\u3002]")
_APOSTROPHE = re.compile(r"'(?<=\w')(?=\w)")
_LETTERS_APART = bytes([1] * 6)
"""Lengths of tokens where the letters of a word may stand apart."""
_AT_LETTERS = re.compile(r"@(?<=[a-z]@)(?=[a-z])|\$(?=[a-z])")


def tokens_of(text: str) -> list[str]:
    """Words, marks and the signs that matter, in order."""
    tokens = _tokens(text)
    if _LETTERS_APART in bytes(map(len, tokens)) and (closed := close_up(text)) != text:
        return _tokens(closed)
    return tokens


def _tokens(text: str) -> list[str]:
    plain = " ".join(mark(text).split())
    if "'" in plain:
        plain = _APOSTROPHE.sub(" ", plain.replace("n't", " not").replace("'re ", " are "))
    if "@" in plain or "$" in plain:
        plain = _AT_LETTERS.sub(lambda sign: "a" if sign.group() == "@" else "s", plain)
    for phrase, word in PHRASES.items():
        if phrase in plain:
            plain = plain.replace(phrase, word)
    return _TOKEN.findall(plain)


class Mark(NamedTuple):
    """A mark of syntax, ready to be looked for."""

    name: str
    sign: str
    literals: tuple[tuple[str, str], ...]
    """What a text must have one of, each after its most telling character."""
    source: str


@cache
def _marks() -> tuple[Mark, ...]:
    names = list(dict.fromkeys(name for name, *_ in MARKS))
    sign_of = dict(zip(names, _MARK_SIGNS[: len(names)], strict=True))
    return tuple(
        Mark(name, sign_of[name], tuple(map(_told, literals)), source)
        for name, literals, source in MARKS
    )


def _told(literal: str) -> tuple[str, str]:
    """A literal after its rarest character: one that is no letter, else its last."""
    return re.sub("[a-z ]", "", literal)[:1] or literal[-1], literal


@cache
def _sign_codes() -> dict[str, str]:
    codes = vocabulary().codes
    marks = {sign: codes[f"\0{name}"] for name, sign, *_ in _marks()}
    return _SIGNS | marks | {":": codes["\0colon"]}


def mark(text: str) -> str:
    """The text with a sign before, or in place of, each mark of syntax."""
    chars = set(text)
    for name, sign, literals, source in _marks():
        if _has_any(text, chars, literals):
            pattern = _made(source)
            if name in _CHECKS:
                text = pattern.sub(partial(_checked, sign, _CHECKS[name]), text)
            else:
                text = pattern.sub(f" {sign} " if name in REPLACED else rf" {sign} \g<0>", text)
    return text


def _has_any(text: str, chars: set[str], literals: tuple[tuple[str, str], ...]) -> bool:
    # No generator here: it would take most of the guard's time.
    for char, literal in literals:  # noqa: SIM110
        if char in chars and literal in text:
            return True
    return False


def _checked(sign: str, is_meant: Callable[[re.Match[str]], bool], match: re.Match[str]) -> str:
    return f" {sign} {match.group()}" if is_meant(match) else match.group()


def _is_unopened(tag: re.Match[str]) -> bool:
    """A closing tag is a forgery where nothing was opened."""
    return "<" + tag.group()[2:] not in tag.string[: tag.start()]


def _is_first_brace(end: re.Match[str]) -> bool:
    before = end.string[: end.start()]
    return "{" not in before and "}" not in before


def _is_at_start(match: re.Match[str]) -> bool:
    """Whether a line or a sentence begins here, ornaments aside."""
    before = match.string[max(match.start() - _ORNAMENTS, 0) : match.start()]
    before = before.rstrip(" \t>*#[<({|=\"'-")
    return before[-1:] in ("", "\n", ".", "!", "?")


_ORNAMENTS = 40
_CHECKS: dict[str, Callable[[re.Match[str]], bool]] = {
    "close_tag": _is_unopened,
    "broken_json": _is_first_brace,
    **dict.fromkeys(LINE_STARTS, _is_at_start),
}


def encode(tokens: list[str]) -> str:
    """The tokens as codes, one or more for each."""
    signs = _sign_codes()
    return "".join([signs.get(token) or codes_of(token) for token in tokens])


def pieces_of(tokens: Sequence[str]) -> list[str]:
    """The words behind the codes, one for each."""
    names = {sign: f"[{name.replace('_', ' ')}]" for name, sign, *_ in _marks()}
    pieces: list[str] = []
    for token in tokens:
        if token in _sign_codes():
            pieces.append(names.get(token, token))
        else:
            pieces += [piece for piece, _ in parts_of(token)]
    return pieces


@lru_cache(maxsize=16_384)
def codes_of(word: str) -> str:
    """The codes of a word: one, or several where it is several words written as one."""
    return "".join(code for _, code in parts_of(word))


def parts_of(word: str) -> list[tuple[str, str]]:
    """A token's parts with their codes."""
    if code := vocabulary().codes.get(word) or _by_stem(word):
        return [(word, code)]
    if not word.isalpha():
        return _mixed_parts(word)
    if len(word) >= _GLUED or max(word) > _NO_SPACES:
        return list(_glued_parts(word))
    if len(word) >= _JOINED and (joined := _joined_parts(word)):
        return joined
    return [(word, FILLER)]


def _by_stem(word: str) -> str | None:
    for stem, code in vocabulary().stems.get(word[:3], ()):
        if word.startswith(stem):
            return code
    return None


def _mixed_parts(word: str) -> list[tuple[str, str]]:
    """An identifier, a number, or a word with digits for letters."""
    known = vocabulary()
    if "_" in word.strip("_"):
        parts = [part for held in word.split("_") if held for part in parts_of(held)]
        if any(code in known.members[_ACTING] for _, code in parts):
            return [(word, known.codes["\0fn"])]
        return parts
    spelt = (known.codes.get(read) for read in unleet(word))
    digits = sum(map(str.isdigit, word))
    number = known.codes["\0number"] if digits >= 4 else FILLER
    return [(word, next(filter(None, spelt), number))]


@cache
def _by_start() -> dict[str, list[str]]:
    """Words that can be told within others, by their first two letters, the longest first."""
    starts: dict[str, list[str]] = {}
    for word in sorted(vocabulary().codes, key=len, reverse=True):
        if (len(word) >= 3 and word[0] != "\0") or word[-1] > _NO_SPACES:
            starts.setdefault(word[:2], []).append(word)
    return starts


def _starting(word: str, place: int) -> str | None:
    """The longest known word that begins at a place within another."""
    for held in _by_start().get(word[place : place + 2], ()):
        if word.startswith(held, place):
            return held
    return None


def _joined_parts(word: str) -> list[tuple[str, str]]:
    """Known words that make up the whole of a word; nothing when some of it is left over."""
    parts: list[tuple[str, str]] = []
    place = 0
    while place < len(word):
        if not (held := _starting(word, place)):
            return []
        parts.append((held, vocabulary().codes[held]))
        place += len(held)
    return parts


def _glued_parts(word: str) -> Iterator[tuple[str, str]]:
    """Known words within a word, and what is between them."""
    place, unknown = 0, 0
    while place < len(word):
        if not (held := _starting(word, place)):
            place += 1
            continue
        if place > unknown:
            yield word[unknown:place], FILLER
        yield held, vocabulary().codes[held]
        place += len(held)
        unknown = place
    if place > unknown:
        yield word[unknown:place], FILLER
