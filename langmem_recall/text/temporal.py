"""What a cue says about time: now, formerly, at first, or within a window (English)."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta

from langmem_recall.types import Temporal

# Spelled out, because the calendar module speaks the language of the machine.
MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
_MONTH = "|".join(MONTHS)
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_NUMBERS = {
    **dict.fromkeys(("a", "an", "one"), 1),
    **dict.fromkeys(("two", "couple", "couple of", "a couple", "a couple of"), 2),
    **{"three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9},
    **{"ten": 10, "eleven": 11, "twelve": 12},
    **dict.fromkeys(("few", "a few", "several"), 3),
}
_COUNT = r"(?P<count>\d{1,4}|" + "|".join(sorted(_NUMBERS, key=len, reverse=True)) + ")"
_UNIT_DAYS = {"day": 1.0, "week": 7.0, "month": 30.44, "year": 365.25}

_CURRENT = re.compile(
    r"\b(?:currently|right now|at the moment|at present|these days|nowadays|lately|"
    r"(?:the )?(?:latest|most recent|newest)|as of now|up[- ]to[- ]date|"
    r"presently|recently|the other day|now(?!adays)|current)\b",
    re.IGNORECASE | re.ASCII,
)
_FIRST = re.compile(
    r"\b(?:originally|at first|initially|in the beginning|to begin with|at the outset|"
    r"(?:the )?first time|(?:the )?(?:original|initial|earliest))\b",
    re.IGNORECASE | re.ASCII,
)
_PAST = re.compile(
    r"\b(?:formerly|previously|back then|used to|in the past|once upon a time|long ago)\b",
    re.IGNORECASE | re.ASCII,
)


def read_temporal(text: str, now: datetime) -> Temporal | None:
    """The time a cue means, relative to `now`; None when it says nothing about time."""
    if not _HINT.search(text):
        return None
    for pattern, window in _WINDOWS:
        match = pattern.search(text)
        if match and (span := window(match, now)):
            return Temporal("window", *span)
    if _FIRST.search(text):
        return Temporal("first")
    if _PAST.search(text):
        return Temporal("past")
    return Temporal("current") if _CURRENT.search(text) else None


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
# Whatever the patterns below find has one of these in it; most cues have none.
_HINT = re.compile(
    rf"ago|back|earlier|last|past|previous|yesterday|today|this|on |since|{_MONTH}|in |during|"
    r"current|now|moment|present|days|late|recent|newest|date|first|origin|initial|begin|outset|"
    r"former|used to|once|other day",
    re.IGNORECASE | re.ASCII,
)

Span = tuple[datetime, datetime]


def _midnight(now: datetime) -> datetime:
    return now.replace(hour=0, minute=0, second=0, microsecond=0)


def _ago(match: re.Match[str], now: datetime) -> Span | None:
    """N units ago, give or take half a unit (a day for days)."""
    unit = _UNIT_DAYS[match["unit"].lower()]
    count = _number(match["count"])
    slack = max(unit / 2, 1.0)
    return _between(now, count * unit + slack, max(count * unit - slack, 0.0))


def _within_last(match: re.Match[str], now: datetime) -> Span | None:
    return _between(now, _number(match["count"]) * _UNIT_DAYS[match["unit"].lower()], 0.0)


def _between(now: datetime, from_days_ago: float, to_days_ago: float) -> Span | None:
    try:
        return now - timedelta(days=from_days_ago), now - timedelta(days=to_days_ago)
    except OverflowError:
        return None


def _number(word: str) -> int:
    return int(word) if word.isdigit() else _NUMBERS[" ".join(word.lower().split())]


def _day(match: re.Match[str], now: datetime) -> Span:
    start = _midnight(now) - timedelta(days=match.group().lower() == "yesterday")
    return start, start + timedelta(days=1)


def _calendar(match: re.Match[str], now: datetime) -> Span:
    """This or last week, month or year, by the calendar."""
    unit, back = match["unit"].lower(), match["which"].lower() != "this"
    today = _midnight(now)
    if unit == "week":
        start = today - timedelta(days=today.weekday() + 7 * back)
        return start, start + timedelta(days=7)
    if unit == "month":
        first = today.replace(day=1)
        return _month_of(first - timedelta(days=1) if back else first)
    return _year_of(today.year - back, now)


def _weekday(match: re.Match[str], now: datetime) -> Span:
    today = _midnight(now)
    back = (today.weekday() - _DAYS.index(match["day"].lower())) % 7 or 7
    start = today - timedelta(days=back)
    return start, start + timedelta(days=1)


def _since(match: re.Match[str], now: datetime) -> Span | None:
    """From the beginning of what is named until now."""
    span = _date(match, now) if match["month"] else _named_year(match, now)
    return (span[0], now) if span and span[0] < now else None


def _date(match: re.Match[str], now: datetime) -> Span | None:
    """A day or a month that is named; a month without a year is the latest one begun."""
    year = int(match["year"]) if match["year"] else None
    month = MONTHS.index(match["month"].lower()) + 1
    if year is None:
        is_last = match.group().lower().startswith("last")
        year = now.year - (month >= now.month if is_last else month > now.month)
    start = _midnight(now).replace(year=year, month=month, day=1)
    day = match.groupdict().get("day")
    if not day:
        return _month_of(start)
    try:
        start = start.replace(day=int(day))
    except ValueError:
        return None
    return start, start + timedelta(days=1)


def _named_year(match: re.Match[str], now: datetime) -> Span:
    return _year_of(int(match["year"]), now)


def _month_of(moment: datetime) -> Span:
    start = moment.replace(day=1)
    return start, (start + timedelta(days=32)).replace(day=1)


def _year_of(year: int, now: datetime) -> Span:
    start = _midnight(now).replace(year=year, month=1, day=1)
    return start, start.replace(year=year + 1)


def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE | re.ASCII)


_UNIT = r"(?P<unit>day|week|month|year)s?"
_YEAR = r"(?P<year>(?:19|20)\d\d)"
_WINDOWS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str], datetime], Span | None]], ...] = (
    (_compiled(rf"\bsince\s+(?P<month>{_MONTH})(?:,?\s+{_YEAR})?\b"), _since),
    (_compiled(rf"\bsince\s+(?P<month>){_YEAR}\b"), _since),
    (_compiled(rf"\b{_COUNT}\s+{_UNIT}\s+(?:ago|back|earlier)\b"), _ago),
    (_compiled(rf"\b(?:last|past|previous)\s+{_COUNT}\s+{_UNIT}\b"), _within_last),
    (_compiled(r"\b(?:yesterday|today)\b"), _day),
    (_compiled(r"\b(?P<which>last|previous|this)\s+(?P<unit>week|month|year)\b"), _calendar),
    (_compiled(rf"\b(?:last|on)\s+(?P<day>{'|'.join(_DAYS)})\b"), _weekday),
    (
        _compiled(
            rf"\b(?P<day>\d{{1,2}})(?:st|nd|rd|th)?\s+(?:of\s+)?(?P<month>{_MONTH}),?\s+{_YEAR}\b"
        ),
        _date,
    ),
    (
        _compiled(rf"\b(?P<month>{_MONTH})\s+(?P<day>\d{{1,2}})(?:st|nd|rd|th)?,?\s+{_YEAR}\b"),
        _date,
    ),
    (
        _compiled(rf"\b(?:(?:in|during|of|last|this)\s+)?(?P<month>{_MONTH}),?\s+{_YEAR}\b"),
        _date,
    ),
    (_compiled(rf"\b(?:in|during|last|this)\s+(?P<month>{_MONTH})\b(?P<year>)"), _date),
    (_compiled(rf"\b(?:in|during)\s+{_YEAR}\b"), _named_year),
)
"""Most specific first."""
