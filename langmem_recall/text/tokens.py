"""Words of a text and their lexical terms; cues and memories go through the same functions."""

import re
import threading
import tomllib
import unicodedata
from collections.abc import Callable, Iterator
from functools import cache, lru_cache, wraps
from importlib.resources import files
from itertools import chain, pairwise
from string import ascii_lowercase
from typing import Any, NamedTuple, TypeVar

from snowballstemmer.english_stemmer import EnglishStemmer


@cache
def word_lists(path: str) -> dict[str, Any]:
    """What a data file of the package holds, by its path without the ending."""
    return tomllib.loads(files("langmem_recall").joinpath(f"{path}.toml").read_text("utf-8"))


T = TypeVar("T")

# A turn reads its cue several times, for each namespace and call; of longer texts nothing is kept.
MOST_READ, LONGEST_READ = 1_024, 1_000


def read_once(reader: Callable[[str], T]) -> Callable[[str], T]:
    """What a reader makes of the texts that were read last, kept."""
    kept = lru_cache(maxsize=MOST_READ)(reader)

    @wraps(reader)
    def reading(text: str) -> T:
        return kept(text) if len(text) <= LONGEST_READ else reader(text)

    return reading


# Read with the module, not at first use: that would be a file opened on the event loop.
_WORDS = word_lists("text/words")
STOP_WORDS = frozenset(_WORDS["stop"].split())
_IRREGULAR = {
    form: base
    for base, *forms in map(str.split, _WORDS["irregular"].splitlines())
    for form in forms
}
"""Forms that no stemmer knows (went, children) and the word they are of."""

# A word this long is a blob, and neither the stemmer nor the cache may pay for it.
LONGEST_WORD = 64
# In a shorter word a letter makes another word.
SHORTEST_MISSPELT = 5
# UAX #15 calls a text with at most this many marks in a row stream-safe.
MOST_MARKS = 30
# More changes between letters and digits than this means a hash, whose pieces say nothing.
MOST_RUNS = 3

_JOINT = r"(?:://|__|[-._/\\@:'&]|(?<=\d),(?=\d{3}(?!\d)))"
_ASCII_CHUNK = re.compile(
    rf"\.net\b|[a-z0-9]+(?:{_JOINT}[a-z0-9]+)*(?:(?:\+\+?|#)(?![a-z0-9+]))?",
    re.IGNORECASE | re.ASCII,
)
_CJK = (
    "\u1100-\u11ff\u3005-\u3007\u3021-\u3029\u3038-\u303b\u3041-\u3096\u3099\u309a\u309d-\u309f"
    "\u30a1-\u30fa\u30fc-\u30ff\u3105-\u312f\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f"
    "\uac00-\ud7ff\uf900-\ufaff\U00020000-\U000323af"
)
# Joiners and selectors change how a word is drawn, not which word it is.
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u200c\u200d\u2060\u20e3\ufe00-\ufe0f\ufeff\U000e0100-\U000e01ef]"
)
_LATIN_ACCENTS = re.compile("([A-Za-z])[\u0300-\u036f]+")
_PLAIN_FORMS = {
    "\u2019": "'", "\u2010": "-", "\u2011": "-", "ł": "l", "Ł": "L", "ø": "o", "Ø": "O",
    "đ": "d", "Đ": "D", "æ": "ae", "Æ": "AE", "œ": "oe", "Œ": "OE", "\u0131": "i",
}  # fmt: skip
_UNDECOMPOSED = re.compile(f"[{''.join(_PLAIN_FORMS)}]")
# Every combining mark is in such a run, and what else is in one is punctuation.
_LONG_MARK_RUN = re.compile(rf"([^\w\x00-\u02ff]{{{MOST_MARKS}}})[^\w\x00-\u02ff]+")

_CJK_RUN = re.compile(f"([{_CJK}]+)")
_JOINTS = "-._/\\@:'&,"
_WEB_ADDRESS = re.compile(r"https?://(?:www\.)?", re.IGNORECASE)
_IDENTIFIER = re.compile(r"[_./\\@:+#&\d]")
# The T of an ISO timestamp would otherwise glue the day to the hour.
_OUTER_JOINT = re.compile(r"[/\\@:]+|(?<=\d)T(?=\d\d:)")
# A dot between digits stays: the parts of 3.5 or 1.2.3 mean nothing alone.
_INNER_JOINT = re.compile(r"[-_'&+#]+|\.(?!\d)|(?<!\d)\.")
_RUN = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+(?:\.\d+)*")
_PLURAL_ACRONYM = re.compile(r"[A-Z]{2,}s")
_WORD = re.compile(r"[^\W_]+(?:[-'\u2019][^\W_]+)*")
_POSSESSIVE = re.compile("['\u2019]s?$")

# Not by the factory, which takes another implementation where there is one: terms are stored.
_stemmer = EnglishStemmer()
_stemmer_lock = threading.Lock()

_CODE = re.compile(
    r"\d{5,}"  # an order number
    r"|\d+(?:\.\d+){2,}\w*"  # a version
    r"|(?=\D*\d)[^\W\d_][\w.+#&-]*"  # QX-48213, db-03
    r"|(?=\w*[a-f])\d[0-9a-f]{6,}"  # a hash
    r"|(?=.*[^\W\d])\w[\w.-]*(?:[_/\\@]+[\w.-]+)+"  # ERR_TIMEOUT, src/core/client.py
)


class Word(NamedTuple):
    """One word of a cue."""

    text: str
    start: int
    folded: str  # without a possessive ending, case-folded
    is_capital: bool  # capitalised, and not only because a sentence begins there


def read_words(text: str) -> list[Word]:
    """The words of a cue in order, with what tells names from other words."""
    words = []
    for match in _WORD.finditer(text):
        word, start = match.group(), match.start()
        folded = (word if word.isalnum() else _POSSESSIVE.sub("", word)).casefold()
        is_capital = word[0].isupper()
        if is_capital:
            before = text[max(start - 8, 0) : start].rstrip(" \t\n\"'([*-")
            is_capital = before[-1:] not in ("", ".", "!", "?", ":")
        words.append(Word(word, start, folded, is_capital))
    return words


def is_identifier(term: str) -> bool:
    """Whether a term names one thing only: a code, a version, a path, a long number."""
    return not term.isalpha() and _CODE.fullmatch(term) is not None


def tokens(text: str) -> list[str]:
    """The terms of a text in order, repeated as often as they occur."""
    if not text.isascii():
        text = _folded(text)
    chunks = (_ASCII_CHUNK if text.isascii() else _wide_chunk()).findall(text)
    # A text with a blob in it does not enter the cache.
    longest = max(map(len, chunks), default=0)
    lookup = _cached_terms if longest <= LONGEST_WORD else _terms_of
    return list(chain.from_iterable(map(lookup, chunks)))


def _terms_of(chunk: str) -> tuple[str, ...]:
    """The terms of one unbroken chunk of text."""
    if chunk.lower() in STOP_WORDS:
        return ()
    if not chunk.isascii() and _CJK_RUN.search(chunk):
        terms: list[str] = []
        for place, part in enumerate(_CJK_RUN.split(chunk)):
            if place % 2:
                # Overlapping pairs of characters: these scripts put no spaces between words.
                terms += [first + second for first, second in pairwise(part)] or [part]
            else:
                terms += _terms_of(part.strip(_JOINTS))
        return tuple(terms)
    if chunk.isalnum():
        return tuple(_word_terms(chunk))
    return tuple(_compound_terms(_WEB_ADDRESS.sub("", chunk, count=1).replace(",", "")))


_cached_terms = lru_cache(maxsize=65536)(_terms_of)


def _compound_terms(chunk: str) -> Iterator[str]:
    """The whole identifier, then its segments (a file name, a host), then their words."""
    segments = _OUTER_JOINT.split(chunk)
    if len(segments) > 1:
        yield chunk.casefold()
    for segment in segments:
        words = [word for word in _INNER_JOINT.split(segment) if word]
        if words != [segment] and _IDENTIFIER.search(segment):
            # "E-17" is also written "E17".
            code = segment.replace("-", "")
            yield (code if code == "".join(words) and code[0].isalpha() else segment).casefold()
        for word in words:
            yield from _word_terms(word)
        if len(words) == 2 and "-" in segment and all(map(str.isalpha, words)):
            # "e-mail" is also written "email", and "check-up" "checkup".
            yield _stem("".join(words).casefold())


def _word_terms(word: str) -> Iterator[str]:
    """A word without joints: its stem, or the whole and the pieces of camelCase and utf8."""
    if _PLURAL_ACRONYM.fullmatch(word):
        # The stemmer leaves the s where no vowel stands before it, as in PDFs.
        word = word[:-1]
    folded = word.casefold()
    if folded in STOP_WORDS:
        return
    pieces = _pieces(word)
    if pieces or not folded.isalpha():
        yield folded
    if folded.isalpha() and not (pieces and _stem(folded) == folded):
        # A cue with "iphone" for "iPhone" has the stem.
        yield _stem(folded)
    yield from (_stem(piece) for piece in pieces if piece not in STOP_WORDS)


def _pieces(word: str) -> list[str]:
    """The folded parts of a mixed word; none for a plain word, a blob or a hash."""
    is_plain = word.isalpha() and (word.islower() or word.isupper() or word.istitle())
    if not word.isascii() or len(word) > LONGEST_WORD or is_plain:
        return []
    runs = [run.lower() for run in _RUN.findall(word)]
    if word.isalpha():
        return runs
    words = runs[1:] if runs[0] == "v" else runs
    # Few and long enough to be words and numbers, not shreds of a hash.
    is_hash = len(words) > MOST_RUNS or any(len(run) == 1 and run.isalpha() for run in words)
    return [] if is_hash or words == [word] else words


@lru_cache(maxsize=65536)
def _stem(word: str) -> str:
    """The English stem of a folded word; anything else comes back as it is."""
    if not (word.isascii() and word.isalpha()) or len(word) > LONGEST_WORD:
        return word
    # The stemmer keeps the word it works on in itself.
    with _stemmer_lock:
        return str(_stemmer.stemWord(_IRREGULAR.get(word, word)))


@lru_cache(maxsize=4096)
def near_spellings(term: str) -> frozenset[str]:
    """What a term may be a slip of: a letter changed, swapped, left out or doubled, not the first.

    A letter too many counts only where it doubles its neighbour: else planets would be plants.
    """
    if len(term) < SHORTEST_MISSPELT or not (term.isascii() and term.isalpha()):
        return frozenset()
    cuts = [(term[:place], term[place:]) for place in range(1, len(term) + 1)]
    return frozenset(
        chain(
            (head + rest[1] + rest[0] + rest[2:] for head, rest in cuts if len(rest) > 1),
            (head + letter + rest[1:] for head, rest in cuts if rest for letter in ascii_lowercase),
            (head + letter + rest for head, rest in cuts for letter in ascii_lowercase),
            (head + rest[1:] for head, rest in cuts if head[-1:] == rest[:1]),
        )
    ) - {term}


def _folded(text: str) -> str:
    """NFKC without Latin accents; the marks of other scripts are part of their letters."""
    # Normalisation sorts marks in quadratic time, so a hostile run of them is cut first.
    safe = _LONG_MARK_RUN.sub(r"\1", _INVISIBLE.sub("", text))
    decomposed = unicodedata.normalize("NFKD", safe)
    plain = _UNDECOMPOSED.sub(lambda found: _PLAIN_FORMS[found[0]], decomposed)
    return unicodedata.normalize("NFKC", _LATIN_ACCENTS.sub(r"\1", plain))


@cache
def _wide_chunk() -> re.Pattern[str]:
    """Words of any script with their joints."""
    # ``re`` has no class for marks; above the BMP its sets turn slow and the scripts are dead.
    marks = "".join(
        char
        for char in map(chr, range(0x300, 0x10000))
        if unicodedata.category(char).startswith("M") and not char.isalnum()
    )
    word = rf"[^\W_]+(?:[{marks}]+[^\W_]*)*"
    tail = r"(?:(?:\+\+?|#)(?![^\W_]|\+))?"
    return re.compile(rf"(?i:\.net\b)|{word}(?:{_JOINT}{word})*{tail}")


# --- Language ---

_SCRIPTS = (
    ("ko", re.compile("[\u1100-\u11ff\uac00-\ud7af]")),
    ("ja", re.compile("[\u3041-\u3096\u30a1-\u30fa]")),
    ("zh", re.compile("[\u4e00-\u9fff\u3400-\u4dbf]")),
    ("ru", re.compile("[\u0400-\u04ff]")),
)
"""Kana before Han: Japanese uses both, Chinese only the latter."""

_LETTERS = re.compile(r"[^\W\d_]+")
_LANGUAGES: dict[str, frozenset[str]] = {
    name: frozenset(words.split()) for name, words in _WORDS["function"].items()
}


@read_once
def language_of(text: str) -> str:
    """The language with a panel of its own that a text is most likely in; English in doubt."""
    for name, script in () if text.isascii() else _SCRIPTS:
        if script.search(text):
            return name
    said = _LETTERS.findall(text.casefold())
    counts = {name: sum(map(words.__contains__, said)) for name, words in _LANGUAGES.items()}
    # Of equals the first, which is English.
    return max(counts, key=counts.__getitem__)
