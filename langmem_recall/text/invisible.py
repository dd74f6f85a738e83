"""Characters that cannot be seen: which they are, and which of them shape what can."""

from __future__ import annotations

import re
import unicodedata

INVISIBLE = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U00013430-\U0001343f"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""As the inside of a character class."""
CONTROL = "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"
"""Control characters but for tabs and line ends, as the inside of a character class."""
_TERMINAL = r"\x1b\[[0-?]*[ -/]*[@-~]"
_HIDDEN = re.compile(f"[{CONTROL}{INVISIBLE}]")
_HIDDEN_RUN = re.compile(f"(?:{_TERMINAL}|[{CONTROL}{INVISIBLE}])+")
REGIONS = ("gbeng", "gbsct", "gbwls")
"""England, Scotland and Wales: a flag of any other region would be a place to hide letters."""
_EMOJI = re.compile(
    "[\u00a9\u00ae\u203c\u2049\u2122\u2139\u2194-\u21aa\u231a-\u23ff\u24c2\u25aa-\u27bf\u2934\u2935"
    "\u2b05-\u2b55\u3030\u303d\u3297\u3299\U0001f000-\U0001faff]"
)
# Arabic to Myanmar, Khmer, Mongolian, the later Brahmic blocks, Arabic forms, Adlam.
_JOINING_SCRIPTS = re.compile(
    "[\u0600-\u109f\u1780-\u18af\u1a20-\u1cff\ua800-\uabff\ufb50-\ufdff\ufe70-\ufefe"
    "\U00010d00-\U00010d3f\U00011000-\U00011fff\U0001e900-\U0001e95f]"
)
_MONGOLIAN = re.compile("[\u1820-\u18aa]")
_MONGOLIAN_SHAPES = "\u180b\u180c\u180d\u180e\u180f"
_ZWNJ, _ZWJ = "\u200c", "\u200d"
_TEXT_STYLE, _EMOJI_STYLE = "\ufe0e", "\ufe0f"
_KEYCAP = "\u20e3"
_VIRAMA_CLASS = 9
_BLACK_FLAG = "\U0001f3f4"
_FLAG_TAGS = tuple(
    "".join(chr(0xE0000 + ord(letter)) for letter in region) + "\U000e007f" for region in REGIONS
)


def strip_hidden(text: str) -> str:
    """The text without control and invisible characters; what shapes emoji and scripts stays."""
    if is_plain(text) or not _HIDDEN.search(text):
        return text
    return _HIDDEN_RUN.sub(shaping, text)


def is_plain(text: str) -> bool:
    """Whether a text is printable ASCII, as most are, in a tenth of a pattern's time."""
    return text.isascii() and text.replace("\n", "").replace("\t", "").isprintable()


def shaping(run: re.Match[str]) -> str:
    """What a run of invisible characters may do to its neighbours."""
    hidden = run.group()
    before, after = neighbours(run)
    if _EMOJI.match(before):
        if before == _BLACK_FLAG and hidden.startswith(_FLAG_TAGS):
            return hidden[: len(_FLAG_TAGS[0])]
        style = hidden[0] if hidden[0] in (_TEXT_STYLE, _EMOJI_STYLE) else ""
        return style + _ZWJ if _ZWJ in hidden and _EMOJI.match(after) else style
    if after == _KEYCAP and _EMOJI_STYLE in hidden and before in tuple("0123456789#*"):
        return _EMOJI_STYLE
    if _MONGOLIAN.match(before) and hidden[0] in _MONGOLIAN_SHAPES:
        return hidden[0]
    # The first joiner, between letters of a script that has joiners or after a virama.
    joiner = next((char for char in hidden if char in (_ZWNJ, _ZWJ)), "")
    if not joiner or not before:
        return ""
    if joiner == _ZWJ and unicodedata.combining(before) == _VIRAMA_CLASS:
        return joiner
    are_words = after and all(unicodedata.category(char)[0] in "LMN" for char in (before, after))
    joins = _JOINING_SCRIPTS.match(before) or _JOINING_SCRIPTS.match(after)
    return joiner if are_words and joins else ""


def neighbours(match: re.Match[str]) -> tuple[str, str]:
    """The characters before and after a match; empty at the ends of the text."""
    start, end = match.span()
    return match.string[max(start - 1, 0) : start], match.string[end : end + 1]
