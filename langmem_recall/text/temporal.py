"""What a cue says about time: now, formerly, at first, or within a window, in four languages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, NamedTuple

from langmem_recall.text.tokens import STOP_WORDS, read_once, word_lists
from langmem_recall.types import Temporal

# Spelled out, because the calendar module speaks the language of the machine.
MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
NAMED_REACH = 2_000  # characters of a memory in which times are looked for
CLAUSE_REACH = 300  # characters before and after a time that say what it has to do with the cue
MOST_DATES = 12  # parts that a question for a time alone becomes

# Read with the module, not at first use: that would be a file opened on the event loop.
_TABLES = word_lists("text/temporal")
_UNIT_DAYS = {"minute": 1 / 1440, "hour": 1 / 24, "day": 1.0, "week": 7.0, "month": 30.44}
_UNIT_DAYS |= {"year": 365.25, "weekend": 2.0}
_PART_HOURS = {"morning": (0, 12), "afternoon": (12, 18), "evening": (17, 29)}
_PLAIN = str.maketrans("àâáäãçéèêëíîïìñóôöòõúûüù\u2019", "aaaaaceeeeiiiinooooouuuu'")
_WORD = re.compile(r"[\w'-]+")
_PIECE = re.compile(r"\w+")
_HAS_YEAR = re.compile(r"\b(?:19|20)\d\d\b", re.ASCII)
_ISO = re.compile(r"\b(?P<year>(?:19|20)\d\d)-(?P<monthnumber>\d\d)(?:-(?P<nth>\d\d))?\b", re.ASCII)
_BREAKS = (".", "!", "?", ";", ":", ",")

Span = tuple[datetime, datetime]

_ASKING = {name: frozenset(table["asking"].split()) for name, table in _TABLES.items()}
"""Words of a question that say nothing of what it is about."""


def _time_words(table: dict[str, Any]) -> frozenset[str]:
    lists = [*table["months"], table["days"], *table["units"].values(), *table["parts"].values()]
    return frozenset(" ".join([*lists, *table["back"]]).replace("_", " ").split())


_TIME_WORDS = {name: _time_words(table) for name, table in _TABLES.items()}
"""Of each language one word of every time that it can name."""


class _Language(NamedTuple):
    """How one language says when, compiled."""

    windows: list[tuple[str, re.Pattern[str]]]  # a kind and a pattern, most specific first
    words: dict[str, dict[str, Any]]  # what months, days, numbers, units, parts and back mean
    marks: dict[str, re.Pattern[str]]


class _Said(NamedTuple):
    """A time that a text names."""

    start: datetime
    end: datetime
    language: str
    text: str  # the text in lower case, in one line
    place: tuple[int, int]  # where the time stands in it
    before: str  # what stands before it, without accents
    is_past: bool  # whether it can only be past
    is_date: bool  # whether it is a date, which memories have among their words


def read_temporal(text: str, now: datetime) -> Temporal | None:
    """The time a cue means, relative to `now`; None when it says nothing about time.

    None too where a date belongs to what is asked for, as in "what is due in March?".
    """
    for said in _times_in(text, now):
        role = _role(said)
        if role is not None:
            return Temporal("window", said.start, said.end, role, role and not _topic(said))
    mode = _mode_of(text)
    return Temporal(mode) if mode else None


@read_once
def _mode_of(text: str) -> Any:
    plain = _one_line(text).translate(_PLAIN)
    return next((mode for mode, words in _MODES.items() if words.search(plain)), None)


def searched_for(text: str, now: datetime) -> tuple[str, ...]:
    """What a question for what was written at some time searches for: its words without the time.

    The dates where nothing else is left, as in "what did I tell you last night?"; nothing where a
    text asks for no time.
    """
    said = next((each for each in _times_in(text, now) if _role(each)), None)
    if said is None:
        return ()
    topic = _topic(said)
    if not topic:
        return _dates(said.start, said.end)
    if said.language != "en":
        # The words of a question are stop words in English alone.
        return (" ".join(topic),)
    return (text if said.is_date else _without(said, text),)


def _topic(said: _Said) -> list[str]:
    """The words around a time that say what is asked for."""
    start, end = said.place
    rest, known = said.text[:start] + " " + said.text[end:], _ASKING[said.language] | STOP_WORDS
    return [word for word in _PIECE.findall(rest) if word.translate(_PLAIN) not in known]


def without_time(text: str, now: datetime) -> str:
    """A text without the time that it names; as it stands if it names none."""
    said = next((each for each in _times_in(text, now) if _role(each) is not None), None)
    return text if said is None else _without(said, text)


def _without(said: _Said, text: str) -> str:
    words = r"\s+".join(map(re.escape, said.text[slice(*said.place)].split()))
    return " ".join(re.sub(words, " ", text, count=1, flags=re.IGNORECASE).split())


def names_time_within(text: str, written: datetime, window: Temporal) -> bool:
    """Whether a text, as of when it was written, names a time that touches a window."""
    if window.start is None or window.end is None:
        return False
    return any(
        said.start < window.end and said.end > window.start
        for said in _times_in(text[:NAMED_REACH], written, either_way=True)
    )


def read_as_of(text: str, now: datetime) -> datetime | None:
    """The past time whose beliefs a cue asks for: the end of what it names; None for no such cue.

    "What was the budget as of March?", "what did we think last week?". A statement that has "as of
    March" in it asks for nothing.
    """
    dated = _AS_OF.search(text) and _PAST_QUESTION.search(text)
    if not dated and not _BELIEVED.search(text):
        return None
    meant = read_temporal(_AS_OF.sub("in ", text), now)
    return meant.end if meant and meant.end and meant.end < now else None


_AS_OF = re.compile(r"\bas\s+(?:of|at)\s+", re.IGNORECASE)
_PAST_QUESTION = re.compile(
    r"\b(?:did|was|were|had)\b[^.!\n]{0,300}\?|"
    r"^\W*(?:what|which|who|where|when|how)\b[^.!\n]{0,300}\b(?:did|was|were|had)\b",
    re.IGNORECASE,
)
_BELIEVED = re.compile(
    r"\bdid\s+(?:we|i|you|they)\s+(?:already\s+)?(?:believe|think|know|assume|expect)\b",
    re.IGNORECASE,
)


def _one_line(text: str) -> str:
    """Lower case, single spaces, lines apart by a semicolon."""
    lines = (" ".join(line.split()) for line in text.lower().splitlines())
    return "; ".join(line for line in lines if line)


# The words for at first, formerly and now, of all languages.
_MODES = {
    mode: re.compile(rf"\b(?:{'|'.join(table[key] for table in _TABLES.values())})\b", re.ASCII)
    for mode, key in (("first", "first"), ("past", "former"), ("current", "current"))
}


@cache
def _language(name: str) -> _Language:
    table = _TABLES[name]

    def meanings(lists: dict[Any, str]) -> dict[str, Any]:
        pairs = ((word, key) for key, words in lists.items() for word in words.split())
        return {word.replace("_", " "): key for word, key in pairs}

    words = {
        "month": meanings(dict(enumerate(table["months"], 1))),
        "day": {word: place for place, word in enumerate(table["days"].split())},
        "n": table["numbers"],
        "unit": meanings(table["units"]),
        "part": meanings(table["parts"]),
        "back": table["back"],
    }

    def group(key: str) -> str:
        longest_first = sorted(words[key], key=len, reverse=True)
        return rf"(?P<{key}>{'|'.join(map(re.escape, longest_first))})\b"

    slots = {key: group(key) for key in words if key != "back"}
    slots["n"] = slots["n"].replace("(?P<n>", r"(?P<n>\d{1,4}|")
    slots |= {"nth": r"(?P<nth>\d{1,2})", "year": r"(?P<year>(?:19|20)\d\d)"}

    def compiled(template: str) -> re.Pattern[str]:
        for slot, pattern in slots.items():
            template = template.replace(f"{{{slot}}}", pattern)
        return re.compile(rf"\b(?:{template})\b", re.ASCII)

    kinds = ("dated", "ago", "recent", "on_day", "last", "this", "date")
    windows = [(kind, compiled(each)) for kind in kinds for each in table[kind]]
    marks = {key: re.compile(table[key]) for key in ("asks", "past", "ahead", "due")}
    marks |= {key: re.compile(rf"\b{table[key]} $") for key in ("since", "before", "for")}
    marks["next"] = re.compile(table.get("next", "(?!)"))
    return _Language([("dated", _ISO), *windows], words, marks)


def _times_in(text: str, now: datetime, either_way: bool = False) -> Iterator[_Said]:
    """The times that a text names, most specific first; `either_way` those to come as well."""
    line, plain, likely = _languages_in(text)
    for name in likely:
        language, is_found = _language(name), False
        for kind, pattern in language.windows:
            match = pattern.search(plain)
            if match is None:
                continue
            named = {key: value for key, value in match.groupdict().items() if value}
            if (span := _span(kind, named, language, now)) is None:
                continue
            (start, end), first = span, min(map(match.start, named))
            before = plain[max(first - 40, 0) : first]
            if language.marks["since"].search(before) and start < now:
                end = now
            is_past = kind in ("ago", "recent", "last") or ("year" in named and end <= now)
            # Of what began today only the small hours belong to the night before.
            is_past = is_past or (kind == "on_day" and end <= _midnight(now) + timedelta(hours=5))
            is_date = bool(named.keys() & {"month", "year"})
            said = _Said(start, end, name, line, match.span(), before, is_past, is_date)
            yield said
            is_found = True
            if either_way and not is_past and kind in ("this", "dated", "date"):
                later = timedelta(days=7 if "day" in named else 365)
                yield said._replace(start=start + later, end=end + later)
        if is_found:
            # A text is in one language, and its words may mean something else in another.
            return


@read_once
def _languages_in(text: str) -> tuple[str, str, list[str]]:
    """A text in one line, the same without accents, and in which languages it may name a time."""
    line = _one_line(text)
    plain = line.translate(_PLAIN)
    words = set(_WORD.findall(plain))
    dated = bool(_HAS_YEAR.search(plain))
    likely = {
        name: len(words & (hints | _ASKING[name] | (STOP_WORDS if name == "en" else set())))
        for name, hints in _TIME_WORDS.items()
        if dated or not words.isdisjoint(hints)
    }
    return line, plain, sorted(likely, key=likely.__getitem__, reverse=True)


def _role(said: _Said) -> bool | None:
    """Whether a cue asks for what was written then (True) or names the time in passing (False).

    None where the time belongs to what is asked for: what is due then, meant for it, to come.
    """
    marks, (start, end) = _language(said.language).marks, said.place
    head, tail = said.text[max(start - CLAUSE_REACH, 0) : start], said.text[end:][:CLAUSE_REACH]
    # The clause around the time, or the sentence where the time stands alone in its clause.
    for breaks in (_BREAKS, _BREAKS[:-1]):
        first = max(head.rfind(f"{mark} ") for mark in breaks) + 1
        stops = [place for mark in breaks if (place := tail.find(mark)) >= 0]
        stop = min(stops, default=len(tail))
        # A mark where the time stood: "yesterday was I" tells and does not ask.
        clause = f"{head[first:]} | {tail[:stop]}".strip(" ¿¡\"'(-*").removeprefix("| ,").strip()
        if len(_WORD.findall(clause)) > 1:
            break
    plain = clause.translate(_PLAIN)
    is_due, is_told = marks["due"].search(plain), marks["past"].search(clause)
    is_meant = marks["for"].search(said.before) or marks["next"].match(tail.translate(_PLAIN))
    is_question = marks["asks"].search(plain)
    is_ahead = not is_told and (is_question or marks["ahead"].search(plain))
    if not said.is_past and (is_meant or is_due or is_ahead):
        return None
    is_beside = marks["before"].search(head.translate(_PLAIN))
    return bool(is_told and is_question and not is_due and not is_beside)


def _span(kind: str, named: dict[str, str], language: _Language, now: datetime) -> Span | None:
    """The window that a time means; None for one that no calendar has."""
    meant: dict[str, Any] = {
        key: language.words[key].get(word) for key, word in named.items() if key in language.words
    }
    today = _midnight(now)
    try:
        if "n" in named:
            unit = _UNIT_DAYS[meant["unit"]]
            far = (int(named["n"]) if named["n"].isdigit() else meant["n"]) * unit
            near = 0.0
            if kind == "ago":
                # Give or take half a unit; a day for days, an hour for hours, ten minutes.
                slack = unit / 2 if unit > 1 else max(unit, 10 / 1440)
                far, near = far + slack, max(far - slack, 0.0)
            return now - timedelta(days=far), now - timedelta(days=near)
        if "back" in named:
            part = meant.get("part") or language.words["part"].get(named["back"])
            day = today - timedelta(days=meant["back"])
            first, last = _PART_HOURS[str(part)] if part else (0, 24)
            return day + timedelta(hours=first), day + timedelta(hours=last)
        if "day" in named:
            back = (today.weekday() - meant["day"]) % 7 or 7
            return _around(today - timedelta(days=back), "day")
        if meant.get("unit") == "weekend":
            monday = _around(now, "week")[0]
            return monday - timedelta(days=2), monday
        if "unit" in named:
            this = _around(now, meant["unit"])
            return _around(this[0] - timedelta(days=1), meant["unit"]) if kind == "last" else this
        month = int(named.get("monthnumber", 0)) or meant.get("month")
        start = today.replace(year=int(named.get("year", now.year)), month=month or 1, day=1)
        start = start.replace(day=int(named.get("nth", 1)))
        # Without a year it is the latest one begun.
        if "year" not in named and (start > now or (kind == "last" and month == now.month)):
            start = start.replace(year=start.year - 1)
        return _around(start, "day" if "nth" in named else "month" if month else "year")
    except (OverflowError, ValueError):
        return None


def _around(moment: datetime, unit: str) -> Span:
    """The day, week, month or year that a time lies in."""
    start = _midnight(moment)
    if unit == "year":
        start = start.replace(month=1, day=1)
        return start, start.replace(year=start.year + 1)
    if unit == "month":
        start = start.replace(day=1)
        return start, (start + timedelta(days=32)).replace(day=1)
    if unit == "week":
        start -= timedelta(days=start.weekday())
    return start, start + timedelta(days=7 if unit == "week" else 1)


def _dates(start: datetime, end: datetime) -> tuple[str, ...]:
    """The dates of a window as a memory has them in its words: days, else months, else years."""
    end -= timedelta(microseconds=1)
    # Memories are dated where they were written: here, or by universal time.
    first = min(start.date(), start.astimezone(UTC).date())
    last = max(end.date(), end.astimezone(UTC).date())
    if (last - first).days < MOST_DATES:
        days = (first + timedelta(days=day) for day in range((last - first).days + 1))
        return tuple(f"{day.day} {MONTHS[day.month - 1]} {day.year}" for day in days)
    months = range(12 * start.year + start.month - 1, 12 * end.year + end.month)
    if len(months) < MOST_DATES:
        return tuple(f"{MONTHS[month % 12]} {month // 12}" for month in months)
    return tuple(map(str, range(start.year, end.year + 1)))[-MOST_DATES:]


def _midnight(moment: datetime) -> datetime:
    return moment.replace(hour=0, minute=0, second=0, microsecond=0)
