"""How the guard reads: a text becomes a string with one letter a word, a signal a pattern over it.

Marks of syntax, signals and findings are in rules.toml, the words in words.toml.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator
from functools import cache, lru_cache, partial, reduce
from operator import or_
from pathlib import Path
from string import punctuation
from typing import Any, Literal, NamedTuple

from langmem_recall.guard.normalise import close_up, fold, unleet

Severity = Literal["medium", "high"]
Scope = Literal["own", "others", "encoded"]
"""Whose words are judged: the user's own, anybody else's, or what stood there in disguise."""

CARRIED = {
    "addressed_before": "addressed",
    "authority_before": "i_authority",
    "frame_before": "system_line|turn_token|end_mark|close_tag|heading|role_tag",
}
"""Signals of a sentence that the next ones have too, and what makes them."""
FILLER = "\u00b7"
END, QUOTE = ".", '"'
_SIGNS = dict.fromkeys(".!?\u3002", END) | dict.fromkeys("\"'`", QUOTE)
_FIRST_CODE = 0x100
"""Above every sign, and small enough for sets of codes to be the bits of a number."""
_ACTING = "harm"
"""Words that make an identifier the name of a function that acts."""
_JOINED = 10
"""Letters from which a Latin word may be known words and nothing else."""
_GLUED = 20
"""Letters from which a Latin word may be several written as one."""
_NO_SPACES = "\u2e80"
"""Scripts from here on do without spaces between words."""
QUOTED_WORDS = 6
"""Longest quotation that is only a mention."""
_ORNAMENTS = 40
"""Characters before a mark that may be ornaments of the line it begins."""

# Controls never stand in a text that was stripped; those that count as a space are left out.
_MARK_SIGNS = "".join(map(chr, (*range(0x01, 0x09), *range(0x0E, 0x1C), *range(0x86, 0xA0))))
_TOKEN = re.compile(f"\\w{{1,64}}|[.!?](?!\\w)|[{_MARK_SIGNS}:\"'`\u3002]")
_WORD = re.compile(r"\w+")
_SPACES = str.maketrans(dict.fromkeys(punctuation.replace("_", ""), " "))
_APOSTROPHE = re.compile(r"'(?<=\w')(?=\w)")
_CALLING = re.compile("(?<![a-z])(?:[a-z]{1,12} ){1,2}$")
"""Words before the name of somebody who is called out to."""
_CODE = "```", '"""', "'''"
"""What begins and ends a block of code."""
_LETTERS_APART = bytes([1] * 6)
"""Lengths of tokens where the letters of a word may stand apart."""
_AT_LETTERS = re.compile(r"@(?<=[a-z]@)(?=[a-z])|\$(?=[a-z])")


@cache
def tables(name: str) -> dict[str, Any]:
    """What the data file of that name holds."""
    return tomllib.loads(Path(__file__).with_name(f"{name}.toml").read_text("utf-8"))


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    """A pattern, compiled once: there are more of them than `re` remembers."""
    return re.compile(pattern, re.DOTALL)


# --- Words ---


class Vocabulary(NamedTuple):
    """Every known word, sign and mark with its code; a code stands for one set of sorts."""

    codes: dict[str, str]
    stems: dict[str, list[tuple[str, str]]]
    """Beginnings of words by their first three letters."""
    starts: dict[str, list[str]]
    """Words that can be found within others, by their first two letters, the longest first."""
    members: dict[str, str]
    """All codes of a sort."""


@cache
def vocabulary() -> Vocabulary:
    """All words, signs and marks as codes."""
    sorts: dict[str, set[str]] = {}
    for sort, words in tables("words")["words"].items():
        for word in words.split():
            sorts.setdefault(fold(word), set()).add(sort)
    # Sorts that show in a token's form: a function that acts, a long number, a colon.
    sorts |= {f"\0{name}": {name} for name in ("fn", "number")} | {":": {"colon"}}
    for row in tables("rules")["marks"]:
        sorts[_mark_signs()[row["name"]]] = {row["name"], row.get("is_also", row["name"])}
    sets = sorted({tuple(sorted(names)) for names in sorts.values()})
    code_of = {names: chr(_FIRST_CODE + place) for place, names in enumerate(sets)}
    codes = {word: code_of[tuple(sorted(names))] for word, names in sorts.items()}
    stems: dict[str, list[tuple[str, str]]] = {}
    for word, code in codes.items():
        if word.endswith("*"):
            stems.setdefault(word[:3], []).append((word[:-1], code))
    starts: dict[str, list[str]] = {}
    for word in sorted(codes, key=len, reverse=True):
        if (len(word) >= 3 and word[0] != "\0") or word[-1] > _NO_SPACES:
            starts.setdefault(word[:2], []).append(word)
    names = sorted({name for group in sets for name in group})
    members = {name: "".join(code_of[group] for group in sets if name in group) for name in names}
    return Vocabulary(codes | _SIGNS, stems, starts, members)


def encode(tokens: list[str]) -> str:
    """The tokens as codes, one or more for each."""
    return "".join(map(codes_of, tokens))


@lru_cache(maxsize=16_384)
def codes_of(token: str) -> str:
    """The codes of a token: one, or several where it is several words written as one."""
    known = vocabulary()
    if token in known.codes:
        return known.codes[token]
    for stem, code in known.stems.get(token[:3], ()):
        if token.startswith(stem):
            return code
    if "_" in token.strip("_"):
        codes = "".join(codes_of(piece) for piece in token.split("_") if piece)
        return known.codes["\0fn"] if set(codes) & set(known.members[_ACTING]) else codes
    if not token.isalpha():
        spelt = filter(None, map(known.codes.get, unleet(token)))
        return next(spelt, known.codes["\0number"] if sum(map(str.isdigit, token)) >= 4 else FILLER)
    has_no_spaces = len(token) >= _GLUED or max(token) > _NO_SPACES
    codes = _inner_codes(token) if has_no_spaces or len(token) >= _JOINED else FILLER
    return codes if has_no_spaces or FILLER not in codes else FILLER


def _inner_codes(word: str) -> str:
    """The codes of known words within a word, and of what is between them."""
    known, codes, place = vocabulary(), "", 0
    while place < len(word):
        starts = known.starts.get(word[place : place + 2], ())
        found = next((start for start in starts if word.startswith(start, place)), "")
        codes += known.codes[found] if found else FILLER * (codes[-1:] != FILLER)
        place += len(found) or 1
    return codes


# --- Marks of syntax and turns of phrase ---


Replacement = str | Callable[[re.Match[str]], str]


@cache
def _mark_signs() -> dict[str, str]:
    names = dict.fromkeys(row["name"] for row in tables("rules")["marks"])
    return dict(zip(names, _MARK_SIGNS[: len(names)], strict=True))


@cache
def _marks() -> tuple[list[tuple[str, Replacement]], dict[str, int], dict[str, dict[str, int]]]:
    """Patterns with what replaces them; the bits of those that need a word, or another literal.

    Literals stand under their rarest character.
    """
    data, rows = tables("rules"), list[tuple[str, Replacement, list[str], list[str]]]()
    fragments = {name: each.replace("\n", "") for name, each in data["fragments"].items()}
    for row in data["marks"]:
        sign, pattern = _mark_signs()[row["name"]], row["pattern"].replace("\n", "")
        for name, fragment in fragments.items():
            pattern = pattern.replace(f"{{{name}}}", fragment)
        replacement: Replacement = f" {sign} " if row.get("replaces") else rf" {sign} \g<0>"
        if "check" in row:
            replacement = partial(_checked, row["check"], sign)
        words = re.split(r"[\s|]+", row.get("words", "").format(**fragments))
        rows.append((pattern, replacement, words, row.get("literals", [])))
    for word, phrases in tables("words")["phrases"].items():
        for phrase in (phrase.replace("'", " ") for phrase in phrases):
            words = sorted(_WORD.findall(phrase), key=len)[-1:] if phrase.isascii() else []
            # Not within a longer word: "many more" has no "any more" in it.
            rest = re.escape(phrase[1:]).replace(r"\ ", r"\s+")
            pattern = rf"{phrase[0]}(?<![a-z\"'].){rest}(?![a-z])"
            rows.append((pattern, word, words, [] if words else [phrase]))
    by_word: dict[str, int] = {}
    by_char: dict[str, dict[str, int]] = {}
    for place, (_, _, words, literals) in enumerate(rows):
        for word in words:
            by_word[word] = by_word.get(word, 0) | 1 << place
        for literal in literals:
            bits = by_char.setdefault(re.sub("[a-z ]", "", literal)[:1] or literal[-1], {})
            bits[literal] = bits.get(literal, 0) | 1 << place
    return [row[:2] for row in rows], by_word, by_char


def _checked(check: str, sign: str, match: re.Match[str]) -> str:
    """What was found, with its sign before it where it counts."""
    before = match.string[: match.start()]
    if check == "unopened":
        is_meant = "<" + match.group()[2:] not in before
    elif check == "bare" and (
        before.endswith(('"', "'", "`")) or any(before.count(each) % 2 for each in _CODE)
    ):
        is_meant = False
    else:
        if check == "called_out":
            before = _CALLING.sub("", before[-2 * _ORNAMENTS :])
        lead = before[-_ORNAMENTS:].rstrip(" \t>*#[<({|=\"'-")
        is_meant = lead[-1:] in ("", "\n", ".", "!", "?", "\u3002")
    return f" {sign} {match.group()}" if is_meant else match.group()


def tokens_of(text: str) -> list[str]:
    """Words, marks and the signs that matter, in order."""
    tokens = _tokens(text)
    if _LETTERS_APART in bytes(map(len, tokens)) and (closed := close_up(text)) != text:
        return _tokens(closed)
    return tokens


def _tokens(text: str) -> list[str]:
    if "'" in text:
        text = _APOSTROPHE.sub(" ", text.replace("n't", " not").replace("'re ", " are "))
    # Most texts are ASCII, of which the words are found sooner without a pattern.
    words = set(text.translate(_SPACES).split() if text.isascii() else _WORD.findall(text))
    bits, (rows, by_word, by_char) = 0, _marks()
    for word in by_word.keys() & words:
        bits |= by_word[word]
    for char, literals in by_char.items():
        if char in text:
            for literal, its_bits in literals.items():
                bits |= its_bits if literal in text else 0
    while bits:
        pattern, replacement = rows[(bits & -bits).bit_length() - 1]
        text = compiled(pattern).sub(replacement, text)
        bits &= bits - 1
    if "@" in text or "$" in text:
        text = _AT_LETTERS.sub(lambda sign: "a" if sign.group() == "@" else "s", text)
    return _TOKEN.findall(text)


# --- Signals and what they add up to ---


class Signal(NamedTuple):
    """One way in which a signal is said: a pattern over codes, and what it cannot do without."""

    name: str
    bit: int
    pattern: str
    """Compiled when it is first needed: most texts need few of them."""
    needs: tuple[int, ...]
    """Sets of codes of each of which a text must have one."""


def compile_signal(name: str, terms: str) -> Signal:
    """A signal from its terms, one after the other; rules.toml says how they read."""
    known, parts, needs = vocabulary(), [], []
    negation = known.members["not"]
    for term in terms.split():
        if term == "^":
            parts.append(rf"(?:\A|(?<=\{END}))")
        elif term[0] == "~":
            parts.append(f"[^{END}]{{0,{term[1:]}}}?")
        else:
            members = "".join(known.members[sort] for sort in term.strip("!?").split("|"))
            word = f"[{members}]"
            if term[0] == "!":
                word = f"(?<![{negation}])(?<![{negation}].){word}(?![{negation}])"
            elif term[-1] == "?":
                word += "?"
            parts.append(word)
            if term[-1] != "?":
                needs.append(sum(1 << ord(code) for code in set(members)))
    needs.sort(key=int.bit_count)
    return Signal(name, bits_of(name), "".join(parts), tuple(needs))


ByNeed = list[tuple[int, list[Signal]]]
"""Signals by the smallest set of codes that each of them needs."""


@cache
def _all_signals() -> tuple[dict[str, int], ByNeed]:
    """The bits of the signals that a word makes by itself, and all others."""
    by_code: dict[str, int] = {}
    by_need: dict[int, list[Signal]] = {}
    for name, lines in tables("rules")["signals"].items():
        for line in filter(None, lines.splitlines()):
            if not line.replace("|", "").isidentifier():
                signal = compile_signal(name, line)
                by_need.setdefault(signal.needs[0], []).append(signal)
                continue
            for code in "".join(vocabulary().members[sort] for sort in line.split("|")):
                by_code[code] = by_code.get(code, 0) | bits_of(name)
    return by_code, list(by_need.items())


def _possible(by_need: ByNeed, codes: str) -> tuple[int, ByNeed]:
    """The signals that some codes make alone, and others for each of whose terms there is one."""
    by_code, _ = _all_signals()
    present = made = 0
    for code in set(codes):
        present |= 1 << ord(code)
        made |= by_code.get(code, 0)
    possible = []
    # No generators here: they would take most of the guard's time.
    for rarest, signals in by_need:
        if present & rarest:
            some = []
            for signal in signals:
                for need in signal.needs:
                    if not present & need:
                        break
                else:
                    some.append(signal)
            if some:
                possible.append((rarest, some))
    return made, possible


def signals_of(codes: str, scope: Scope | None = None) -> Iterator[tuple[int, int]]:
    """The place and the signals of each sentence that has any; with a scope, those that add up."""
    made, by_need = _possible(_all_signals()[1], codes)
    if scope:
        wanted = made
        for _, signals in by_need:
            for signal in signals:
                wanted |= signal.bit
        wanted = _wanted(wanted, scope)
        if not wanted:
            return
        by_need = [(need, [one for one in some if one.bit & wanted]) for need, some in by_need]
    start = 0
    for place, sentence in enumerate(codes.split(END)):
        found, possible = _possible(by_need, sentence)
        end = start + len(sentence)
        for _, signals in possible:
            for signal in signals:
                if not signal.bit & found and _is_said(signal, codes, start, end):
                    found |= signal.bit
        if found:
            yield place, found
        start = end + 1


def _is_said(signal: Signal, codes: str, start: int, end: int) -> bool:
    matches = compiled(signal.pattern).finditer(codes, start, end)
    if not signal.name.startswith("over"):
        return next(matches, None) is not None
    return not all(map(_is_quoted, matches))


def _is_quoted(match: re.Match[str]) -> bool:
    """Whether the words are a short quotation: then a text has them to speak of them."""
    codes, (start, end) = match.string, match.span()
    before = codes.rfind(QUOTE, max(0, start - 2), start)
    after = codes.find(QUOTE, end, end + QUOTED_WORDS)
    return before >= 0 <= after and after - before <= QUOTED_WORDS + end - start


@cache
def bits_of(names: str) -> int:
    """Signals, named with a bar between them, as the bits of a number."""
    every = [*tables("rules")["signals"], *CARRIED]
    return sum(1 << every.index(name) for name in set(filter(None, names.split("|"))))


Finding = tuple[str, Severity, list[int], int]
"""A rule, how bad it is, of each group of signals the bits, of which a sentence must have one, and
the bits of those that it must not have."""


@cache
def _findings(scope: Scope) -> list[Finding]:
    """What signals add up to, in words of that sort."""
    rows: list[Finding] = []
    for rule, table in tables("rules")["findings"].items():
        if scope in table.get("scopes", ("others", "encoded")):
            for line in filter(None, table["when"].splitlines()):
                terms = [term.strip() for term in line.split("&")]
                groups = [bits_of(term) for term in terms if term[0] != "!"]
                excluded = bits_of("|".join(term[1:] for term in terms if term[0] == "!"))
                rows.append((rule, table["severity"], groups, excluded))
    return rows


@lru_cache(maxsize=4_096)
def _wanted(possible: int, scope: Scope) -> int:
    """Of the signals that a text may have, those on which a finding depends."""
    wanted = 0
    for name, makers in CARRIED.items():
        possible |= bits_of(name) if possible & bits_of(makers) else 0
    for _, _, groups, excluded in _findings(scope):
        if all(possible & group for group in groups):
            wanted |= reduce(or_, groups, excluded)
    for name, makers in CARRIED.items():
        wanted |= bits_of(makers) if wanted & bits_of(name) else 0
    return wanted | bits_of("talk|dialogue") if wanted else 0


@lru_cache(maxsize=4_096)
def rules_of(present: int, scope: Scope) -> tuple[tuple[str, Severity], ...]:
    """The rules that a sentence with those signals breaks."""
    rules = {
        (rule, severity): None
        for rule, severity, groups, excluded in _findings(scope)
        if not present & excluded and all(present & group for group in groups)
    }
    return tuple(rules)
