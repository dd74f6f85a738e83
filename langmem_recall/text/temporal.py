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


def _counted(match: re.Match[str], now: datetime) -> Span | None:
    """The last N units, or N units ago, give or take half a unit (a day for days)."""
    unit, word = _UNIT_DAYS[match["unit"].lower()], match["count"]
    count = int(word) if word.isdigit() else _NUMBERS[" ".join(word.lower().split())]
    first, last = count * unit, 0.0
    if match["ago"]:
        slack = max(unit / 2, 1.0)
        first, last = first + slack, max(first - slack, 0.0)
    try:
        return now - timedelta(days=first), now - timedelta(days=last)
    except OverflowError:
        return None


def _calendar(match: re.Match[str], now: datetime) -> Span:
    """Today, yesterday, a weekday, or this or last week, month or year, by the calendar."""
    named, today = match.groupdict(), _midnight(now)
    if "day" in named:
        back = (today.weekday() - _DAYS.index(named["day"].lower())) % 7 or 7
        return _from(today - timedelta(days=back), "day")
    if "which" not in named:
        return _from(today - timedelta(days=match.group().lower() == "yesterday"), "day")
    unit, back = named["unit"].lower(), named["which"].lower() != "this"
    if unit == "week":
        return _from(today - timedelta(days=today.weekday() + 7 * back), unit)
    if unit == "year":
        return _from(today.replace(year=today.year - back, month=1, day=1), unit)
    first = today.replace(day=1)
    return _from((first - timedelta(days=1)).replace(day=1) if back else first, unit)


def _date(match: re.Match[str], now: datetime) -> Span | None:
    """The day, month or year that is named; a month without a year is the latest one begun."""
    named, today = match.groupdict(), _midnight(now)
    if not named.get("month"):
        return _from(today.replace(year=int(named["year"]), month=1, day=1), "year")
    month = MONTHS.index(named["month"].lower()) + 1
    is_last = match.group().lower().startswith("last")
    back = month >= now.month if is_last else month > now.month
    year = int(named["year"]) if named["year"] else now.year - back
    start = today.replace(year=year, month=month, day=1)
    if not named.get("day"):
        return _from(start, "month")
    try:
        return _from(start.replace(day=int(named["day"])), "day")
    except ValueError:
        return None


def _since(match: re.Match[str], now: datetime) -> Span | None:
    """From the beginning of what is named until now."""
    span = _date(match, now)
    return (span[0], now) if span and span[0] < now else None


def _midnight(now: datetime) -> datetime:
    return now.replace(hour=0, minute=0, second=0, microsecond=0)


def _from(start: datetime, unit: str) -> Span:
    """The day, week, month or year that begins there."""
    if unit == "year":
        return start, start.replace(year=start.year + 1)
    if unit == "month":
        return start, (start + timedelta(days=32)).replace(day=1)
    return start, start + timedelta(days=7 if unit == "week" else 1)


_UNIT = r"(?P<unit>day|week|month|year)s?"
_YEAR = r"(?P<year>(?:19|20)\d\d)"
_NTH = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
_NAMED = rf"(?P<month>{_MONTH})"
_WINDOWS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str], datetime], Span | None]], ...]
_WINDOWS = tuple(
    (re.compile(pattern, re.IGNORECASE | re.ASCII), reader)
    for pattern, reader in (
        (rf"\bsince\s+{_NAMED}(?:,?\s+{_YEAR})?\b", _since),
        (rf"\bsince\s+{_YEAR}\b", _since),
        (rf"\b{_COUNT}\s+{_UNIT}\s+(?P<ago>ago|back|earlier)\b", _counted),
        (rf"\b(?:last|past|previous)\s+{_COUNT}\s+{_UNIT}\b(?P<ago>)", _counted),
        (r"\b(?:yesterday|today)\b", _calendar),
        (r"\b(?P<which>last|previous|this)\s+(?P<unit>week|month|year)\b", _calendar),
        (rf"\b(?:last|on)\s+(?P<day>{'|'.join(_DAYS)})\b", _calendar),
        (rf"\b{_NTH}\s+(?:of\s+)?{_NAMED},?\s+{_YEAR}\b", _date),
        (rf"\b{_NAMED}\s+{_NTH},?\s+{_YEAR}\b", _date),
        (rf"\b(?:(?:in|during|of|last|this)\s+)?{_NAMED},?\s+{_YEAR}\b", _date),
        (rf"\b(?:in|during|last|this)\s+{_NAMED}\b(?P<year>)", _date),
        (rf"\b(?:in|during)\s+{_YEAR}\b", _date),
    )
)
"""Most specific first."""
