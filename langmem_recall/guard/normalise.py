"""What a text says once disguises are off: hidden characters, look-alikes, encodings."""

from __future__ import annotations

import base64
import codecs
import html
import re
import unicodedata
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote

from langmem_recall.text.invisible import CONTROL, INVISIBLE, REGIONS, is_plain, strip_hidden

# --- Hidden characters: out of the text, and what they say of it ---

_GAPS = re.compile("[\u2800\u3164\uffa0\ufff9-\ufffb]")
_CONCEAL = re.compile("\x1b\\[[0-9;]*8m")
_RIDDLED = re.compile(f"(?:[A-Za-z][{CONTROL}{INVISIBLE}]+){{3,}}")
"""Hidden characters behind letter after letter, which no hyphenation explains."""
_TAGS = re.compile("[\U000e0020-\U000e007e]{3,}")
_SELECTORS = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]{4,}")
_OVERRIDE = re.compile("\u202e([^\u202c\u202e\n]{2,4096})")


class Hidden(NamedTuple):
    """A text without its hidden characters, and what they were for."""

    text: str
    readable: str
    """The text for judging: what looks like a gap between words is one."""
    message: str = ""
    """What is spelt in tag characters or variation selectors."""
    reversed: str = ""
    """What a right-to-left override shows: its letters in the order of reading."""
    is_concealing: bool = False
    """Whether hidden characters cover something up, rather than having been pasted along."""


def find_hidden(text: str) -> Hidden:
    """The text without its hidden characters, and what they were for."""
    if is_plain(text):
        return Hidden(text, text)
    shown = strip_hidden(text)
    readable = strip_hidden(_GAPS.sub(" ", text)) if _GAPS.search(text) else shown
    if shown == text:
        return Hidden(text, readable)
    tags = ("".join(chr(ord(char) - 0xE0000) for char in run) for run in _TAGS.findall(text))
    spelt = " ".join(tag for tag in tags if tag not in REGIONS)
    # The first sixteen variation selectors stand apart from the others.
    selected = (
        bytes(ord(char) - (0xFE00 if char < "\U000e0000" else 0xE0100 - 16) for char in run)
        for run in _SELECTORS.findall(text)
    )
    message = " ".join(filter(None, (spelt, *(run.decode("utf-8", "replace") for run in selected))))
    turned = " ".join(strip_hidden(run)[::-1] for run in _OVERRIDE.findall(text))
    is_concealing = bool(message or turned or _RIDDLED.search(text) or _CONCEAL.search(text))
    return Hidden(shown, readable, message, turned, is_concealing)


# --- Look-alikes: the letters a reader sees ---

_MARKS = re.compile(
    "[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20f0\ufe20-\ufe2f]+"
)
_ALIKE = {
    **dict(zip("аеорсухіјѕһԁԛԝӏьгкмтнвпи", "aeopcyxijshdqwlbrkmthbnu", strict=True)),
    **dict(zip("АВЕКМНОРСТХУІЈЅԌԚԜӀЗ", "ABEKMHOPCTXYIJSGQWI3", strict=True)),
    **dict(zip("αεικνορτυχωηγβ", "aeikvoptuxwnyb", strict=True)),
    **dict(zip("ΑΒΕΖΗΙΚΜΝΟΡΤΥΧ", "ABEZHIKMNOPTYX", strict=True)),  # noqa: RUF001
    **dict(zip("օսհոցԱՍՏ", "ouhngUUS", strict=True)),
}
"""Letters of other alphabets that pass for Latin ones beside Latin ones."""
_DRESSED = {
    **dict(zip("ᴀʙᴄᴅᴇꜰɢʜɪᴊᴋʟᴍɴᴏᴘʀꜱᴛᴜᴠᴡʏᴢ", "abcdefghijklmnoprstuvwyz", strict=True)),
    **dict(zip("ɑɡıȷłøđħɩʋɯⱥɨᵻꞮ", "agijlodhivwaiiI", strict=True)),
    **{chr(0x1F1E6 + n): chr(97 + n) for n in range(26)},
    **{chr(0x1F150 + n): chr(97 + n) for n in range(26)},
    **{chr(0x1F170 + n): chr(97 + n) for n in range(26)},
    **dict(zip("‘’‛ʼ′“”„«»‐‑–—", "'''''\"\"\"\"\"----", strict=True)),  # noqa: RUF001
}
"""Letters in fancy dress that NFKC leaves as they are."""
_LIGATURES = str.maketrans("\ufdfa\ufdfb", "  ")
"""Whole sentences in one character, with which a short text could be made a long one."""
_UNDRESS, _UNMASK = str.maketrans(_DRESSED), str.maketrans(_ALIKE)
_LIKE = "".join(_ALIKE)
_NOT_ASCII = re.compile("[^\x00-\x7f]{1,64}")
_LOOKALIKE = re.compile(f"[{_LIKE}]")
_MASKED = re.compile(f"[A-Za-z][{_LIKE}]|[{_LIKE}][A-Za-z]")
_WORD = re.compile(r"\w+")


def fold(text: str) -> str:
    """The text for matching: compatible forms and accents folded, look-alikes read as Latin."""
    if text.isascii():
        return text.lower()
    # Most texts have no look-alike, which the simpler pattern finds out sooner.
    if _LOOKALIKE.search(text) and _MASKED.search(text):
        text = _WORD.sub(_unmasked, text)
    return _NOT_ASCII.sub(lambda run: _plain(run.group()), text).lower()


@lru_cache(maxsize=8_192)
def _plain(run: str) -> str:
    bare = _MARKS.sub("", unicodedata.normalize("NFKD", run.translate(_LIGATURES)))
    return unicodedata.normalize("NFC", bare).translate(_UNDRESS)


def _unmasked(word: re.Match[str]) -> str:
    """A word whose every letter could be Latin, read as Latin; any other stays."""
    read = word.group().translate(_UNMASK)
    return read if read.isascii() else word.group()


_SPACED = re.compile(r"(?<!\w)[^\W_]([ ._*|/-])(?:[^\n]\1){3,}[^\s]")


def close_up(text: str) -> str:
    """Words whose letters stand apart, "i g n o r e" or "i.g.n.o.r.e", closed up again."""
    return _SPACED.sub(lambda run: run.group()[::2], text)


_LEET = tuple(str.maketrans("0134578@$!|", f"o{one}eastbasii") for one in "il")


def unleet(word: str) -> tuple[str, ...]:
    """What a word with digits for letters may spell."""
    return tuple(word.translate(table) for table in _LEET)


# --- Encodings: taken off once ---

_ESCAPE = re.compile(r"(?:\\u[0-9A-Fa-f]{4}|\\u\{[0-9A-Fa-f]{1,6}\}|\\x[0-9A-Fa-f]{2})+")
_HEX_PAIRS, _BASE64_CHARS = 12, 16
"""Shortest runs that are decoded: shorter ones hold no order."""
_HEX = re.compile(rf"\b(?:(?:0x)?[0-9A-Fa-f]{{2}}[ :,-]?){{{_HEX_PAIRS},}}")
_RUN64 = rf"[A-Za-z0-9+/]{{{_BASE64_CHARS},}}"
_BASE64 = re.compile(rf"{_RUN64}(?:\s{{1,2}}{_RUN64})*={{0,2}}")
_TELLING = (
    "ignore", "instruct", "prompt", "system", "assistant", "forget", "http", " the ", " you ",
    "your ",
)  # fmt: skip
"""Words that an order is likely to have one of."""
_NO_TEXT = re.compile(f"[{CONTROL}\ufffd]")
_GARBLED = 0.1
"""Share of a text that may be garbled where a run was cut."""


class Encoded(NamedTuple):
    """A run of a text that says something else once it is decoded."""

    encoding: str
    start: int
    end: int
    plain: str


def decodings(text: str) -> Iterator[Encoded]:
    """What is encoded in a text, run by run."""
    for encoding, signs, fewest, pattern, decode in _RUNS:
        if sum(map(text.count, signs)) >= fewest:
            for run in pattern.finditer(text):
                if plain := decode(run.group()):
                    yield Encoded(encoding, *run.span(), plain)
    lower = text.lower()
    for encoding, turn in _TURNED:
        if any(word in lower for word in _TURNED_WORDS[encoding]):
            for line in re.finditer(r"[^\n]+", text):
                if any(word in line.group().lower() for word in _TURNED_WORDS[encoding]):
                    yield Encoded(encoding, *line.span(), turn(line.group()))


def _from_escape(run: re.Match[str]) -> str:
    codes = (int(code, 16) for code in re.findall("[0-9A-Fa-f]+", run.group()))
    return "".join(chr(code) if code <= 0x10FFFF else "\ufffd" for code in codes)


def _from_hex(run: str) -> str:
    digits = re.sub("0x|[^0-9A-Fa-f]", "", run)
    return _as_text(bytes.fromhex(digits[: len(digits) // 2 * 2]))


def _from_base64(run: str) -> str:
    """The text in a run; it may begin with up to three characters that do not belong to it."""
    if run in (run.lower(), run.upper()) or run.isalpha():
        return ""
    digits = re.sub(r"[\s=]", "", run)
    for start in range(4):
        whole = digits[start : start + (len(digits) - start) // 4 * 4]
        rest = digits[start + len(whole) :]
        padded = whole + (rest + "=" * (4 - len(rest)) if len(rest) > 1 else "")
        if plain := _as_text(base64.b64decode(padded)):
            return plain
    return ""


def _as_text(data: bytes) -> str:
    """Bytes as text when they are one, else nothing: a hash or an image says nothing."""
    plain = data.decode("utf-8", "replace")
    return plain if len(_NO_TEXT.findall(plain)) <= _GARBLED * len(plain) else ""


_RUNS: tuple[tuple[str, str, int, re.Pattern[str], Callable[[str], str]], ...] = (
    (
        "percent",
        "%",
        6,
        re.compile(r"(?:[\w.,+-]{0,12}%[0-9A-Fa-f]{2}){6,}[\w.,+-]{0,40}"),
        unquote,
    ),
    ("entities", "&", 6, re.compile(r"(?:&#?\w{1,8};\s?){6,}"), html.unescape),
    (
        *("escapes", "\\", 6, re.compile(rf"(?:{_ESCAPE.pattern[:-1]} ?){{6,}}")),
        lambda run: _ESCAPE.sub(_from_escape, run),
    ),
    # Letters are 6x and 7x in hex.
    ("hex", "67", _HEX_PAIRS // 2, _HEX, _from_hex),
    ("base64", "", 0, _BASE64, _from_base64),
)
"""Each encoding: of which signs a text must have how many, what a run looks like and what it says.
Links and names have fewer than six codes in a row."""
_TURNED: tuple[tuple[str, Callable[[str], str]], ...] = (
    ("rot13", lambda line: codecs.encode(line, "rot13")),
    ("backwards", lambda line: line[::-1]),
)
"""Ways of writing whole lines that are undone as they are done."""
_TURNED_WORDS = {encoding: tuple(map(turn, _TELLING)) for encoding, turn in _TURNED}
