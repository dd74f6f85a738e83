"""How the guard reads: a text becomes a string with one letter a word, a signal a pattern over it.

Marks of syntax, signals and findings are in rules.toml, the words in words.toml.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator
from functools import cache, lru_cache, partial
from pathlib import Path
from string import punctuation
from typing import Any, Literal, NamedTuple

from langmem_recall.guard.normalise import close_up, fold, unleet

Severity = Literal["medium", "high"]
Scope = Literal["own", "others", "encoded"]
"""Whose words are judged: the user's own, anybody else's, or what stood there in disguise."""

CARRIED = {
    "addressed_before": ("addressed",),
    "authority_before": ("i_authority",),
    "frame_before": ("system_line", "turn_token", "end_mark", "close_tag", "heading", "role_tag"),
}
"""Signals of a sentence that the next ones have too, and what makes them."""
FILLER = "\u00b7"
END, QUOTE = ".", '"'
_SIGNS = {**dict.fromkeys(".!?\u3002", END), **dict.fromkeys("\"'`", QUOTE)}
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
_QUOTES, _CODE = tuple("\"'`"), ("```", '"""', "'''")
"""What stands before what is quoted, and what begins and ends a block of code."""
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


# --- Words and rules ---


class Phrase(NamedTuple):
    """A turn of phrase that counts as a word."""

    text: str
    meaning: str
    pattern: str
    words: frozenset[str]


class Vocabulary(NamedTuple):
    """Every known word and mark with its code; a code stands for one set of sorts."""

    codes: dict[str, str]
    stems: dict[str, list[tuple[str, str]]]
    """Beginnings of words by their first three letters."""
    starts: dict[str, list[str]]
    """Words that can be found within others, by their first two letters, the longest first."""
    members: dict[str, str]
    """All codes of a sort."""
    phrases: dict[str, list[Phrase]]
    """Turns of phrase by their first word, those of scripts without spaces under none."""


@cache
def vocabulary() -> Vocabulary:
    """All words and marks as codes."""
    sorts: dict[str, set[str]] = {}
    for sort, words in tables("words")["words"].items():
        for word in words.split():
            sorts.setdefault(fold(word), set()).add(sort)
    # Sorts that show in a token's form: a function that acts, a long number, a colon.
    sorts |= {f"\0{name}": {name} for name in ("fn", "number", "colon")}
    for row in tables("rules")["marks"]:
        sorts[f"\0{row['name']}"] = {row["name"], row.get("is_also", row["name"])}
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
    phrases: dict[str, list[Phrase]] = {"": []}
    for meaning, turns in tables("words")["phrases"].items():
        for turn in (turn.replace("'", " ") for turn in turns):
            words = frozenset(_TOKEN.findall(turn) if turn.isascii() else ())
            # Not within a longer word: "many more" has no "any more" in it.
            pattern = rf"(?<![a-z\"']){re.escape(turn)}(?![a-z])"
            start = turn.split(" ")[0].split("-")[0] if words else ""
            phrases.setdefault(start, []).append(Phrase(turn, meaning, pattern, words))
    return Vocabulary(codes, stems, starts, members, phrases)


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
    return Signal(name, bits_of([name]), "".join(parts), tuple(needs))


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
                by_code[code] = by_code.get(code, 0) | bits_of([name])
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


class Finding(NamedTuple):
    """Signals that together are an attack."""

    rule: str
    severity: Severity
    groups: tuple[int, ...]
    """Of each group, the bits of its signals, a sentence must have one."""
    excluded: int


@cache
def _signal_bits() -> dict[str, int]:
    """Every signal as a bit, and those that a sentence has from the ones before it."""
    names = (*tables("rules")["signals"], *CARRIED)
    return {name: 1 << place for place, name in enumerate(names)}


def bits_of(names: Iterable[str]) -> int:
    """The set of some signals as the bits of a number."""
    bits = 0
    for name in names:
        bits |= _signal_bits()[name]
    return bits


@cache
def carried() -> tuple[tuple[int, int], ...]:
    """The bits of each signal that is carried over, and of those that make it."""
    return tuple((bits_of([name]), bits_of(makers)) for name, makers in CARRIED.items())


@cache
def _findings(scope: Scope) -> tuple[Finding, ...]:
    """What signals add up to, in words of that sort."""
    rows = []
    for rule, table in tables("rules")["findings"].items():
        if scope not in table.get("scopes", ("others", "encoded")):
            continue
        for line in filter(None, table["when"].splitlines()):
            terms = [term.strip() for term in line.split("&")]
            groups = tuple(bits_of(term.split("|")) for term in terms if term[0] != "!")
            excluded = bits_of(term[1:] for term in terms if term[0] == "!")
            rows.append(Finding(rule, table["severity"], groups, excluded))
    return tuple(rows)


@lru_cache(maxsize=4_096)
def _wanted(possible: int, scope: Scope) -> int:
    """Of the signals that a text may have, those on which a finding depends."""
    for carried_over, makers in carried():
        possible |= carried_over if possible & makers else 0
    # No generators here: they would take most of the guard's time.
    wanted = 0
    for finding in _findings(scope):
        together = finding.excluded
        for group in finding.groups:
            if not possible & group:
                break
            together |= group
        else:
            wanted |= together
    for carried_over, makers in carried():
        wanted |= makers if wanted & carried_over else 0
    return wanted | bits_of(("talk", "dialogue")) if wanted else 0


@lru_cache(maxsize=4_096)
def rules_of(present: int, scope: Scope) -> tuple[tuple[str, Severity], ...]:
    """The rules that a sentence with those signals breaks."""
    rules = {
        (finding.rule, finding.severity): None
        for finding in _findings(scope)
        if not present & finding.excluded and all(present & group for group in finding.groups)
    }
    return tuple(rules)


# --- Marks of syntax ---


class Mark(NamedTuple):
    """A mark of syntax, ready to be looked for."""

    name: str
    sign: str
    source: str
    replacement: str | Callable[[re.Match[str]], str]


class Marks(NamedTuple):
    """All marks, and what a text must have for one to be looked for."""

    rows: tuple[Mark, ...]
    by_word: dict[str, int]
    """The bits of the marks that need a word."""
    by_char: dict[str, list[tuple[str, int]]]
    """Other literals with the bits of their marks, by their rarest character."""


@cache
def _marks() -> Marks:
    data = tables("rules")
    names = dict.fromkeys(row["name"] for row in data["marks"])
    signs = dict(zip(names, _MARK_SIGNS[: len(names)], strict=True))
    fragments = {name: each.replace("\n", "") for name, each in data["fragments"].items()}
    marks, rows = Marks((), {}, {}), []
    for place, row in enumerate(data["marks"]):
        sign, source = signs[row["name"]], row["pattern"]
        for name, fragment in fragments.items():
            source = source.replace(f"{{{name}}}", fragment)
        for word in re.split(r"[\s|]+", row.get("words", "").format(**fragments)):
            marks.by_word[word] = marks.by_word.get(word, 0) | 1 << place
        for literal in row.get("literals", ()):
            char = re.sub("[a-z ]", "", literal)[:1] or literal[-1]
            marks.by_char.setdefault(char, []).append((literal, 1 << place))
        replacement: str | Callable[[re.Match[str]], str] = rf" {sign} \g<0>"
        if row.get("replaces"):
            replacement = f" {sign} "
        elif "check" in row:
            replacement = partial(_checked, row["check"], sign)
        rows.append(Mark(row["name"], sign, source.replace("\n", ""), replacement))
    return marks._replace(rows=tuple(rows))


def _checked(check: str, sign: str, match: re.Match[str]) -> str:
    """What was found, with its sign before it where it counts."""
    before = match.string[: match.start()]
    if check == "unopened":
        is_meant = "<" + match.group()[2:] not in before
    elif check == "bare" and (before[-1:] in _QUOTES or any(before.count(each) % 2 for each in _CODE)):
        is_meant = False
    else:
        if check == "called_out":
            before = _CALLING.sub("", before[-2 * _ORNAMENTS :])
        lead = before[-_ORNAMENTS:].rstrip(" \t>*#[<({|=\"'-")
        is_meant = lead[-1:] in ("", "\n", ".", "!", "?", "\u3002")
    return f" {sign} {match.group()}" if is_meant else match.group()


def _marked(text: str, words: set[str]) -> str:
    """The text with a sign at each mark of syntax."""
    marks, bits = _marks(), 0
    for word in marks.by_word.keys() & words:
        bits |= marks.by_word[word]
    for char, literals in marks.by_char.items():
        if char in text:
            for literal, bit in literals:
                if literal in text:
                    bits |= bit
    while bits:
        _, _, source, replacement = marks.rows[(bits & -bits).bit_length() - 1]
        text = compiled(source).sub(replacement, text)
        bits &= bits - 1
    return text


@cache
def _signs() -> dict[str, tuple[str, str]]:
    """Every sign with what a reason shows of it and its code."""
    codes = vocabulary().codes
    signs = {sign: (sign, code) for sign, code in _SIGNS.items()} | {":": (":", codes["\0colon"])}
    for mark in _marks().rows:
        signs[mark.sign] = f"[{mark.name.replace('_', ' ')}]", codes[f"\0{mark.name}"]
    return signs


# --- From text to tokens, from tokens to codes ---


def tokens_of(text: str) -> list[str]:
    """Words, marks and the signs that matter, in order."""
    tokens = _tokens(text)
    if _LETTERS_APART in bytes(map(len, tokens)) and (closed := close_up(text)) != text:
        return _tokens(closed)
    return tokens


def _tokens(text: str) -> list[str]:
    # Most texts are ASCII, of which the words are found sooner without a pattern.
    words = set(text.translate(_SPACES).split() if text.isascii() else _WORD.findall(text))
    plain = _marked(text, words)
    if "'" in plain:
        plain = _APOSTROPHE.sub(" ", plain.replace("n't", " not").replace("'re ", " are "))
    if "@" in plain or "$" in plain:
        plain = _AT_LETTERS.sub(lambda sign: "a" if sign.group() == "@" else "s", plain)
    phrases = [] if plain.isascii() else [*vocabulary().phrases[""]]
    for start in vocabulary().phrases.keys() & words:
        phrases += vocabulary().phrases[start]
    # Only those of which each word is there: looking for them would take most of the guard's time.
    phrases = sorted(phrase for phrase in phrases if phrase.words <= words)
    if phrases:
        plain = " ".join(plain.split())
    for phrase in phrases:
        if phrase.text in plain:
            plain = compiled(phrase.pattern).sub(phrase.meaning, plain)
    return _TOKEN.findall(plain)


def encode(tokens: list[str]) -> str:
    """The tokens as codes, one or more for each."""
    return "".join(map(codes_of, tokens))


@lru_cache(maxsize=16_384)
def codes_of(token: str) -> str:
    """The codes of a token: one, or several where it is several words written as one."""
    return "".join([code for _, code in parts_of(token)])


def parts_of(word: str) -> list[tuple[str, str]]:
    """A token's parts with their codes."""
    known = vocabulary()
    if word in _signs():
        return [_signs()[word]]
    stems = known.stems.get(word[:3], ())
    by_stem = (code for stem, code in stems if word.startswith(stem))
    if code := known.codes.get(word) or next(by_stem, None):
        return [(word, code)]
    if not word.isalpha():
        return _mixed_parts(word)
    has_no_spaces = len(word) >= _GLUED or max(word) > _NO_SPACES
    if has_no_spaces or len(word) >= _JOINED:
        parts = list(_known_words(word))
        if has_no_spaces or all(code != FILLER for _, code in parts):
            return parts
    return [(word, FILLER)]


def _mixed_parts(word: str) -> list[tuple[str, str]]:
    """An identifier, a number, or a word with digits for letters."""
    known = vocabulary()
    if "_" in word.strip("_"):
        parts = [part for piece in word.split("_") if piece for part in parts_of(piece)]
        if any(code in known.members[_ACTING] for _, code in parts):
            return [(word, known.codes["\0fn"])]
        return parts
    spelt = (known.codes.get(read) for read in unleet(word))
    number = known.codes["\0number"] if sum(map(str.isdigit, word)) >= 4 else FILLER
    return [(word, next(filter(None, spelt), number))]


def _known_words(word: str) -> Iterator[tuple[str, str]]:
    """Known words within a word, and what is between them."""
    known = vocabulary()
    place, unknown = 0, 0
    while place < len(word):
        starts = known.starts.get(word[place : place + 2], ())
        found = next((start for start in starts if word.startswith(start, place)), None)
        if found is None:
            place += 1
            continue
        if place > unknown:
            yield word[unknown:place], FILLER
        yield found, known.codes[found]
        place += len(found)
        unknown = place
    if place > unknown:
        yield word[unknown:place], FILLER
