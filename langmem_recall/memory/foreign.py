"""What of a human message is the user's own, and what came from outside.

Nothing tells the two apart for sure, so the user's own words are one run of sentences: from the
last sign that what came before is somebody else's, to the first sign that what comes is. Text from
outside never ends by itself, because its author would write its end as well.
The signs are patterns in foreign.toml.
"""

from __future__ import annotations

import re
import textwrap
import unicodedata
from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

from langmem_recall.text.tokens import word_lists

LONGEST = 20_000  # characters of a message that are looked at; what lies beyond carries nothing
LAST = 300
"""Characters of a block, or at the end of a too long message, that may be a request about it."""
QUOTED_WORDS = 4  # quotations of as many words are somebody's; shorter ones are names and titles
AFTERTHOUGHT = 3  # words after "says" that may still tell who says it, and not what
MOST_TO_TAKE_BACK = 10
"""Words of a sentence that takes back what was said; a longer one only begins like it."""
JOINER = "\u2423"  # stands between the words of a quotation, which counts as one word

_GAP = f" {JOINER}outside{JOINER} "
"""What takes the place of text from outside, so that its two sides do not become one statement."""

APOSTROPHES = re.compile("[\u2018\u2019\u201a\u201b\u02bc\u00b4]")
SENTENCE_END = re.compile(r"(?<=[.!?…;\u3002])\s+")
_FENCE = re.compile(r"```.*(?:```|\Z)|^[ \t]*~~~.*(?:^[ \t]*~~~|\Z)", re.DOTALL | re.MULTILINE)
# Lines that are quoted, or indented and no list.
_QUOTED_LINE = re.compile(
    r"^(?:[ \t]*(?:>|&gt;|\| )|(?:\t| {4})[ \t]*(?![-*•+\d\s]))[^\n]*", re.MULTILINE
)
# Scripts without spaces have a word in every other letter or so.
_WORDS = re.compile("[\u3040-\u9fff]{2}|[^\\s\u3040-\u9fff]+")
# A line that goes on in small letters was wrapped, unless it begins with "i".
_WRAPPED = re.compile(r"^(?!i\b)[a-zß-ÿ]")
_FULL_STOP = re.compile(r"[.!?…\u3002]\W*$")


class Parts(NamedTuple):
    """A human message, taken apart."""

    own: str  # what the user says
    foreign: tuple[str, ...]  # what the user shows, quotes, reports or supposes


class _Sentence(NamedTuple):
    text: str
    folded: str
    line: int  # number of the first sentence in its line
    after_gap: bool  # whether a blank line stands before it
    asks: bool  # whether it asks about, or shows, a text that stands beside it


def parts_of(text: str, *attached: str) -> Parts:
    """Take a human message apart; further blocks of text are from outside whatever they say."""
    read, outside = text[:LONGEST], [*attached, text[LONGEST:][:LONGEST]]
    # A request may stand behind what it is about, and so behind all that is read.
    ends = [*(each for each in attached if len(each) <= LAST), text[LONGEST:][-LAST:]]
    if any(sentence.asks for each in ends for sentence in _sentences(each)):
        return Parts("", (read, *filter(None, outside)))
    plain = textwrap.dedent(unicodedata.normalize("NFKC", read)[:LONGEST])
    rest, removed = _without_blocks(APOSTROPHES.sub("'", plain))
    sentences = list(_sentences(rest))
    mark, before, is_shown = _first_mark(sentences)
    start, meant_from = _own_start(sentences, mark, is_shown)
    stop = max(start, mark)
    own = [each.text for each in sentences[start:stop]]
    own += [before] if start <= mark else []
    texts = [each.text for each in sentences]
    if mark < len(sentences) and sentences[mark].asks:
        # The first request is about a text, and is none but for what follows its colon.
        texts[mark] = "".join(pattern("colon").split(texts[mark], maxsplit=1)[1:])
    shown = "\n".join([*texts[meant_from:start], *texts[stop:]])
    foreign = [*removed, shown, *outside]
    foreign = [each for each in foreign if any(map(str.isalnum, each))]
    if not foreign and start == 0:
        return Parts(read, ())
    return Parts("\n".join(filter(None, own)), tuple(foreign))


def join_quotations(text: str) -> str:
    """A text with each of its quotations as one word."""
    return pattern("quoted").sub(
        lambda quote: JOINER.join(quote[quote.lastindex or 0].split()), text
    )


# --- From text to sentences ---


def _without_blocks(text: str) -> tuple[str, list[str]]:
    """A message without quoted blocks, and these; quotations in it as one word each."""
    removed: list[str] = []

    def gap(block: re.Match[str]) -> str:
        removed.append(block.group().strip("`~ \n>|"))
        return _GAP

    text = _FENCE.sub(gap, text)
    tags = list(pattern("tag").finditer(text))
    shuts = [tag for tag in tags if tag["shut"] or tag["shut_2"] or tag.group() == "-->"]
    # In `list<int>` nothing is opened.
    opens = [tag for tag in tags if shuts or not text[max(0, tag.start() - 1)].isalnum()]
    if opens:
        # From the first tag to the last: a page would have closed the user's tag by itself.
        start, stop = opens[0].start(), opens[-1].end() if shuts else len(text)
        removed.append(pattern("tag").sub("\n", text[start:stop]))
        text = f"{text[:start]}{_GAP}{text[stop:]}"
    text = _QUOTED_LINE.sub(gap, text)
    quotations = (quote[quote.lastindex or 0] for quote in pattern("quoted").finditer(text))
    removed += [each for each in quotations if len(_WORDS.findall(each)) >= QUOTED_WORDS]
    return join_quotations(text), removed


def _sentences(text: str) -> Iterator[_Sentence]:
    place, after_gap = 0, False
    for line in text.splitlines():
        first = place
        for sentence in SENTENCE_END.split(line):
            if any(map(str.isalnum, sentence)) or _has("foreign_line", sentence.lower()):
                words = " ".join(sentence.split())
                # The one letter whose small form is longer, and places must fit both.
                folded = words.replace("\u0130", "I").lower()
                yield _Sentence(words, folded, first, after_gap, _asks_about_a_text(folded))
                place, after_gap = place + 1, False
        after_gap = after_gap or not line.strip()


# --- Where the user's own words begin and end ---


def _first_mark(sentences: Sequence[_Sentence]) -> tuple[int, str, bool]:
    """Where text from outside begins: the sentence, and what it says before and is the user's.

    Third, whether a text is shown to begin: no sign in it is about what stands before.
    """
    in_list, speaks = False, True
    for place, each in enumerate(sentences):
        in_list = in_list and not each.after_gap
        is_new_line = place == each.line > 0 and not _WRAPPED.search(each.text)
        # Below a line in which the user does not speak of himself anything may have been pasted.
        if is_new_line and not (speaks or in_list):
            return place, "", True
        is_own_voice = _has("speaks_of_self", each.folded) or (
            place == 0 and _has("greeting_line", each.folded)
        )
        speaks = is_own_voice or (speaks and not is_new_line and place > 0)
        report, colon = report_in(each.folded), pattern("colon").search(each.folded)
        if each.asks or _heads_a_text(sentences, place) or _has("foreign_line", each.folded):
            return place, "", True
        if report:
            return place, _clauses_before(each.text, report.start()), False
        if colon:
            # A line of a list may be "key: value" without a speaker.
            rest = each.folded[colon.end() :]
            is_field = in_list and _has("field", each.folded) and not _has("speaks_of_self", rest)
            if not is_field and not _has("own_lead", each.folded[: colon.start()]):
                return place, "", False
            in_list = True
    return len(sentences), "", False


def _own_start(sentences: Sequence[_Sentence], mark: int, is_shown: bool) -> tuple[int, int]:
    """Where the user's own words begin; and from where on what is said is meant by somebody."""
    start, meant_from = 0, 0
    for place, each in enumerate(sentences):
        is_in_text = is_shown and place > mark
        is_short = each.folded.count(" ") < MOST_TO_TAKE_BACK
        if not is_in_text and _disowns(each.folded):
            return len(sentences), meant_from
        if each.asks:
            is_last = place + 1 == len(sentences)
            is_second = is_in_text and sentences[mark].asks
            if is_second or (_has("points_on", each.folded) and not is_last):
                continue
            # What it is about may be all that stands before it, where nothing parts the two.
            is_about_all = is_last and each.line == 0 and _has("mentions_text", each.folded)
            start = max(start, place if is_about_all else each.line)
        elif is_short and place < mark and _has("takes_back", each.folded):
            start = meant_from = place + 1
    return start, meant_from


def _heads_a_text(sentences: Sequence[_Sentence], place: int) -> bool:
    """Whether a letter begins with this sentence, or it stands as a title over other lines."""
    each, below = sentences[place], sentences[place + 1 : place + 2]
    greets = _has("greeting_line", each.folded)
    # In its first line a message greets its reader.
    if place == each.line > 0 and greets:
        return True
    is_line = each.line == place and all(following.line > place for following in below)
    if not below or not is_line or JOINER in each.text or _WRAPPED.search(below[0].text):
        return False
    is_sentence = greets or _has("sentence_end", each.folded) or _has("list_item", each.folded)
    if is_sentence or _has("own_lead", each.folded):
        return False
    # A text without full stops has none at its end either.
    return _has("mentions_text", each.folded) or bool(_FULL_STOP.search(sentences[-1].text))


def _clauses_before(sentence: str, place: int) -> str:
    """The clauses before the one at a place."""
    ends = [end.start() for end in pattern("clause_end").finditer(sentence, 0, place)]
    return sentence[: ends[-1]] if ends else ""


# --- What the signs say of one folded sentence or line ---


@cache
def pattern(name: str) -> re.Pattern[str]:
    """A pattern of foreign.toml, compiled when it is first needed."""
    lists = word_lists("memory/foreign")
    source = lists["patterns"][name]
    for fragment, text in lists["fragments"].items():
        source = source.replace(f"{{{fragment}}}", text)
    return re.compile(source.replace("\n", ""))


def _has(name: str, sentence: str) -> bool:
    return pattern(name).search(sentence) is not None


def _asks_about_a_text(sentence: str) -> bool:
    """Whether a sentence asks about, or shows, a text that stands beside it."""
    if showing := pattern("showing").search(sentence):
        return not _has("of_the_user", sentence[showing.end() :])
    if _has("asks_of_text", sentence):
        return True
    if _has("begins_with_self", sentence):
        return False
    asking = pattern("asking").search(sentence) or pattern("polite").search(sentence)
    if asking is None:
        is_own = _has("courtesy", sentence) or _has("own_lead", sentence)
        return _has("speaks_of_text", sentence) and not is_own
    rest = sentence[asking.end() :].strip(" .!?:")
    around = f"{sentence[: asking.start()]} {pattern('indefinite').sub('', rest)}"
    is_about_text = _has("mentions_text", around) or " this" in asking.group()
    return not rest or (is_about_text and not _has("of_the_user", rest))


def report_in(sentence: str) -> re.Match[str] | None:
    """The word with which what somebody else says, or a supposition, begins."""
    if hearsay := pattern("hearsay").search(sentence):
        return hearsay
    for name in ("reports", "supposes"):
        for found in pattern(name).finditer(sentence):
            before = sentence[max(0, found.start() - 60) : found.start()]
            around = sentence[max(0, found.start() - 30) : found.end() + 6]
            is_participle = found.group().startswith("ge") and _has("user_has", before)
            is_users = is_participle or _has("user_does", before) or _has("said_aside", around)
            if not is_users:
                return found
    return None


def _disowns(sentence: str) -> bool:
    """Whether it tells that what was said before is somebody else's, as a signature does."""
    if _has("sign_off", sentence):
        return True
    if _has("colon", sentence):
        return False
    report = report_in(sentence)
    if _has("not_mine", sentence) or (report and _has("points_back", sentence)):
        return True
    if report is None:
        return False
    # "I pay too late, says Bob", "He said so": the speaker is named after the words.
    is_at_end = len(re.split("[,;]", sentence[report.end() :])[0].split()) <= AFTERTHOUGHT
    is_short = len(sentence.split()) <= AFTERTHOUGHT + 1
    return is_at_end and (is_short or bool(_clauses_before(sentence, report.start())))
