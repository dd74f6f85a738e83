from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langmem_recall.text.temporal import (
    names_time_within,
    read_as_of,
    read_temporal,
    searched_for,
    without_time,
)
from langmem_recall.types import Temporal

NOW = datetime(2026, 3, 4, 12, 30, tzinfo=UTC)
"""A Wednesday."""


def day(year: int, month: int, date: int) -> datetime:
    return datetime(year, month, date, tzinfo=UTC)


def window(text: str, now: datetime = NOW) -> tuple[datetime | None, datetime | None]:
    found = read_temporal(text, now)
    assert found is not None
    assert found.mode == "window"
    return found.start, found.end


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        ("Where do I live currently?", "current"),
        ("What is she working on right now", "current"),
        ("how has he felt LATELY", "current"),
        ("the latest release", "current"),
        ("her most recent job", "current"),
        ("my current address", "current"),
        ("what do I do these days", "current"),
        ("What did we originally plan?", "first"),
        ("the initial estimate", "first"),
        ("at first I liked it", "first"),
        ("the first time we met", "first"),
        ("Where did I live previously?", "past"),
        ("what I used to drink", "past"),
        ("how was it back then", "past"),
        ("the original and the current plan", "first"),
        ("what we formerly did and now do", "past"),
    ],
)
def test_words_of_time_set_the_mode(text, mode):
    assert read_temporal(text, NOW) == Temporal(mode)


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        ("Wo wohne ich derzeit?", "current"),
        ("Wo habe ich früher gewohnt?", "past"),
        ("Was war ursprünglich geplant?", "first"),
        ("Où est-ce que j'habite actuellement ?", "current"),
        ("Quel était le plan à l'origine ?", "first"),
        ("¿Dónde trabajo ahora?", "current"),
        ("¿Cuál era el plan al principio?", "first"),
    ],
)
def test_words_of_time_are_heard_in_other_languages(text, mode):
    assert read_temporal(text, NOW) == Temporal(mode)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "Where do I live?",
        "I know the answer",
        "the lasting effect",
        "may I march on",
        "she is known for it",
        "first things",
        "a week in Spain",
        "room 2023",
        "最近どう",
    ],
)
def test_nothing_said_about_time_is_none(text):
    assert read_temporal(text, NOW) is None


def test_gift_is_not_the_present_time():
    assert read_temporal("Which birthday present did Anna like?", NOW) is None


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        ("what did I eat yesterday", day(2026, 3, 3), day(2026, 3, 4)),
        ("what did I eat Today", day(2026, 3, 4), day(2026, 3, 5)),
        # The week began on Monday, 2 March.
        ("this week", day(2026, 3, 2), day(2026, 3, 9)),
        ("last week", day(2026, 2, 23), day(2026, 3, 2)),
        ("previous week", day(2026, 2, 23), day(2026, 3, 2)),
        ("this month", day(2026, 3, 1), day(2026, 4, 1)),
        ("LAST MONTH", day(2026, 2, 1), day(2026, 3, 1)),
        ("this year", day(2026, 1, 1), day(2027, 1, 1)),
        ("last year", day(2025, 1, 1), day(2026, 1, 1)),
        ("last Monday", day(2026, 3, 2), day(2026, 3, 3)),
        ("on friday", day(2026, 2, 27), day(2026, 2, 28)),
        ("last Wednesday", day(2026, 2, 25), day(2026, 2, 26)),
        ("7 May 2023", day(2023, 5, 7), day(2023, 5, 8)),
        ("the 7th of May, 2023", day(2023, 5, 7), day(2023, 5, 8)),
        ("May 7, 2023", day(2023, 5, 7), day(2023, 5, 8)),
        ("december 31st 1999", day(1999, 12, 31), day(2000, 1, 1)),
        ("in May 2023", day(2023, 5, 1), day(2023, 6, 1)),
        ("December 2024", day(2024, 12, 1), day(2025, 1, 1)),
        # No such day, so the month is what was meant.
        ("31 February 2023", day(2023, 2, 1), day(2023, 3, 1)),
        ("in May", day(2025, 5, 1), day(2025, 6, 1)),
        ("in February", day(2026, 2, 1), day(2026, 3, 1)),
        ("during march", day(2026, 3, 1), day(2026, 4, 1)),
        ("last December", day(2025, 12, 1), day(2026, 1, 1)),
        ("in 2022", day(2022, 1, 1), day(2023, 1, 1)),
        ("2026-02-28", day(2026, 2, 28), day(2026, 3, 1)),
        ("2025-12", day(2025, 12, 1), day(2026, 1, 1)),
        ("on the 3rd of February", day(2026, 2, 3), day(2026, 2, 4)),
        ("on Dec 24", day(2025, 12, 24), day(2025, 12, 25)),
        ("the day before yesterday", day(2026, 3, 2), day(2026, 3, 3)),
        ("last weekend", day(2026, 2, 28), day(2026, 3, 2)),
        ("vorgestern", day(2026, 3, 2), day(2026, 3, 3)),
        ("letzte Woche", day(2026, 2, 23), day(2026, 3, 2)),
        ("letzten Monat", day(2026, 2, 1), day(2026, 3, 1)),
        ("letzten Freitag", day(2026, 2, 27), day(2026, 2, 28)),
        ("im Mai", day(2025, 5, 1), day(2025, 6, 1)),
        ("im März 2025", day(2025, 3, 1), day(2025, 4, 1)),
        ("am 3. Februar", day(2026, 2, 3), day(2026, 2, 4)),
        ("03.02.2026", day(2026, 2, 3), day(2026, 2, 4)),
        ("avant-hier", day(2026, 3, 2), day(2026, 3, 3)),
        ("la semaine dernière", day(2026, 2, 23), day(2026, 3, 2)),
        ("vendredi dernier", day(2026, 2, 27), day(2026, 2, 28)),
        ("en février", day(2026, 2, 1), day(2026, 3, 1)),
        ("le 3 février 2026", day(2026, 2, 3), day(2026, 2, 4)),
        ("en août 2025", day(2025, 8, 1), day(2025, 9, 1)),
        ("anteayer", day(2026, 3, 2), day(2026, 3, 3)),
        ("el mes pasado", day(2026, 2, 1), day(2026, 3, 1)),
        ("el viernes pasado", day(2026, 2, 27), day(2026, 2, 28)),
        ("en mayo de 2025", day(2025, 5, 1), day(2025, 6, 1)),
        ("el 3 de febrero", day(2026, 2, 3), day(2026, 2, 4)),
    ],
)
def test_named_time_is_a_calendar_window(text, start, end):
    assert window(text) == (start, end)


@pytest.mark.parametrize(
    ("text", "from_days", "to_days"),
    [
        # N units, give or take half a unit; a whole day for days. A month has 30.44 days.
        ("two days ago", 3, 1),
        ("a day ago", 2, 0),
        ("a week ago", 10.5, 3.5),
        ("3 weeks back", 24.5, 17.5),
        ("three months ago", 3.5 * 30.44, 2.5 * 30.44),
        ("a couple of months ago", 2.5 * 30.44, 1.5 * 30.44),
        ("an  year   ago", 1.5 * 365.25, 0.5 * 365.25),
        ("the past 3 days", 3, 0),
        ("in the last two weeks", 14, 0),
        ("over the previous 12 months", 12 * 30.44, 0),
        ("three hours ago", 4 / 24, 2 / 24),
        ("20 minutes ago", 30 / 1440, 10 / 1440),
        ("vor zwei Wochen", 17.5, 10.5),
        ("vor einer Stunde", 2 / 24, 0),
        ("in den letzten drei Tagen", 3, 0),
        ("il y a deux semaines", 17.5, 10.5),
        ("les trois derniers jours", 3, 0),
        ("hace dos semanas", 17.5, 10.5),
        ("los últimos tres días", 3, 0),
    ],
)
def test_distance_in_time_is_a_window_around_it(text, from_days, to_days):
    assert window(text) == (NOW - timedelta(days=from_days), NOW - timedelta(days=to_days))


@pytest.mark.parametrize(
    ("text", "start_hour", "end_hour"),
    [
        # Hours from the midnight that began 4 March; an evening runs until five.
        ("last night", -7, 5),
        ("yesterday morning", -24, -12),
        ("this morning", 0, 12),
        ("this afternoon", 12, 18),
        ("gestern Abend", -7, 5),
        ("heute früh", 0, 12),
        ("letzte Nacht", -7, 5),
        ("hier soir", -7, 5),
        ("ce matin", 0, 12),
        ("la nuit dernière", -7, 5),
        ("anoche", -7, 5),
        ("ayer por la mañana", -24, -12),
        ("esta mañana", 0, 12),
    ],
)
def test_part_of_a_day_is_a_window_of_hours(text, start_hour, end_hour):
    midnight = day(2026, 3, 4)
    assert window(text) == (
        midnight + timedelta(hours=start_hour),
        midnight + timedelta(hours=end_hour),
    )


def test_day_begins_where_the_question_is_asked():
    # Eight in the evening in New York is one in the morning of the next day at Greenwich.
    there = timezone(timedelta(hours=-5))
    start, end = window("yesterday", datetime(2026, 3, 3, 20, tzinfo=there))

    assert start == datetime(2026, 3, 2, tzinfo=there)
    assert end == datetime(2026, 3, 3, 5, tzinfo=UTC)


ASKED = [
    "What did we decide about pricing last Tuesday?",
    "Last Tuesday, what did we decide?",
    "Could you tell me what I said about the boat on Sunday",
    "Did I mention a code this morning?",
    "What have we discussed since Monday?",
    "Who visited us in January?",
    "notes from last week",
    "What was said on 2026-02-10?",
    "Was hat Tom am Freitag gesagt?",
    "Erinnere mich daran, was wir letzten Monat vereinbart haben",
    "Worum ging es vor einer Stunde?",
    "Qu'est-ce que Paul a dit lundi ?",
    "Que s'est-il passé la semaine dernière ?",
    "¿Qué hablamos ayer?",
    "¿Dónde comimos el sábado?",
]
NAMED = [
    "I was at the dentist yesterday, can I eat nuts?",
    "Yesterday I was sick. Which doctor do I call?",
    "pricing in January",
    "What did he do the week before 3 February 2026?",
    "Gestern war ich beim Arzt. Darf ich Nüsse essen?",
    "Hier j'étais malade. Quel médecin dois-je appeler ?",
    "Ayer estuve enfermo. ¿A qué médico llamo?",
]
OF_THE_CONTENT = [
    "What is due in March?",
    "When is X due in March?",
    "When was the invoice due in February?",
    "Book a table for Friday",
    "meeting next Monday",
    "Remind me on Friday to call mom",
    "Which of my subscriptions renew in June?",
    "What did we plan for March?",
    "What do I have to do today?",
    "What time is my flight on 2026-03-10?",
    "Wann ist der Elternabend im Mai?",
    "Was ist im August 2026 fällig?",
    "Was steht am Freitag an?",
    "Reserviere einen Tisch für Samstag",
    "Quand est la réunion lundi ?",
    "Réserve une table pour vendredi prochain",
    "Quels rendez-vous ai-je en mars ?",
    "¿Cuándo es la boda en mayo?",
    "¿Qué tengo que hacer hoy?",
    "Pide la compra para el martes",
]


@pytest.mark.parametrize("text", ASKED)
def test_question_about_the_past_asks_for_its_time(text):
    found = read_temporal(text, NOW)
    assert found is not None
    assert (found.mode, found.asked) == ("window", True)


@pytest.mark.parametrize("text", NAMED)
def test_time_named_beside_what_is_asked_is_only_preferred(text):
    found = read_temporal(text, NOW)
    assert found is not None
    assert (found.mode, found.asked) == ("window", False)


@pytest.mark.parametrize("text", OF_THE_CONTENT)
def test_date_of_what_is_asked_for_says_nothing_of_when_it_was_written(text):
    assert read_temporal(text, NOW) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("What did Ana  decide last Tuesday about it?", ("What did Ana decide about it?",)),
        ("What did Ana say in January?", ("What did Ana say in January?",)),
        ("Was hat Tom am Freitag über den Vertrag gesagt?", ("tom vertrag",)),
        ("What did I tell you last night?", ("3 march 2026", "4 march 2026")),
        ("¿Qué hablamos ayer?", ("3 march 2026",)),
        ("What did we discuss in January?", ("january 2026",)),
        ("What happened in 2024?", ("2024",)),
        ("What is due in March?", ()),
        ("Where do I live?", ()),
    ],
)
def test_question_for_a_time_is_searched_by_what_else_it_says_or_by_its_dates(text, expected):
    assert searched_for(text, NOW) == expected


def test_text_without_its_time_keeps_the_rest():
    assert without_time("What did Ana do on 7 May 2023, then?", NOW) == "What did Ana do on , then?"
    assert without_time("What is due in March?", NOW) == "What is due in March?"


@pytest.mark.parametrize(
    ("text", "written", "expected"),
    [
        ("Yesterday the boiler broke", day(2026, 3, 4), True),
        ("Yesterday the boiler broke", day(2026, 3, 3), False),
        ("The dentist is on 3 March 2026", day(2026, 1, 1), True),
        # Without a year the next one may be meant as well as the last one.
        ("See the dentist on the 3rd of March", day(2026, 1, 1), True),
        ("The boiler broke", day(2026, 3, 3), False),
    ],
)
def test_text_may_name_a_time_as_of_when_it_was_written(text, written, expected):
    asked = Temporal("window", day(2026, 3, 3), day(2026, 3, 4))
    assert names_time_within(text, written, asked) == expected


def test_window_wins_over_a_word_of_time():
    assert window("what did I currently plan last year") == (day(2025, 1, 1), day(2026, 1, 1))


def test_distance_beyond_the_calendar_says_nothing():
    assert read_temporal("9999 years ago", NOW) is None


def test_since_reaches_from_then_until_now():
    start, end = window("what happened since May 2023")

    assert start == day(2023, 5, 1)
    assert end is None or end >= NOW


def test_last_month_of_this_name_is_not_the_one_we_are_in():
    assert window("last March") == (day(2025, 3, 1), day(2025, 4, 1))


@pytest.mark.parametrize(
    ("text", "now", "start"),
    [
        ("last month", datetime(2024, 3, 31, tzinfo=UTC), day(2024, 2, 1)),
        ("last year", datetime(2024, 2, 29, tzinfo=UTC), day(2023, 1, 1)),
        ("last month", datetime(2026, 1, 1, tzinfo=UTC), day(2025, 12, 1)),
        ("in february", datetime(2024, 1, 31, tzinfo=UTC), day(2023, 2, 1)),
        ("yesterday", datetime(2024, 3, 1, tzinfo=UTC), day(2024, 2, 29)),
    ],
)
def test_ends_of_months_and_years_are_crossed(text, now, start):
    assert window(text, now)[0] == start


@pytest.mark.parametrize(
    "text",
    ["last tue\u017fday", "in augu\u017ft", "\u017fix days ago", "last fr\u0131day"],
)
def test_letters_that_fold_to_others_do_no_harm(text):
    # A long s or a dotless i matches s and i where case is ignored, but is another letter.
    assert read_temporal(text, NOW) is None


@pytest.mark.parametrize(
    "text",
    [
        "last " * 20_000,
        "a" + " " * 100_000,
        "1 " * 50_000,
        "9" * 100_000,
        "in " * 33_000 + "May",
        "two days " * 11_000,
        "\n" * 100_000,
        "May 7, " * 14_000,
        "habe ge" * 15_000,
        "ge" * 50_000,
        "est-ce que a " * 8_000,
        "é" * 100_000,
    ],
    ids=lambda text: f"{text[:6]!r}...",
)
def test_hostile_text_is_read_to_its_end(text):
    assert read_temporal(text + " yesterday", NOW) == Temporal(
        "window", day(2026, 3, 3), day(2026, 3, 4)
    )


moments = st.datetimes(
    min_value=datetime(1970, 1, 2), max_value=datetime(2100, 1, 1), timezones=st.just(UTC)
)
WORDS = """
last this on in a the couple of 3 12 31 days weeks months years week month year ago back may
february 2023 friday monday now first originally used to yesterday , 7th
vor il y a hace am el im en zwei deux dos wochen semaines semanas märz août mayo lundi 2026-02-30
was habe what did que qué gesagt dit due ?
"""
words = st.sampled_from(WORDS.split())


@settings(deadline=None)
@given(st.text() | st.lists(words, max_size=8).map(" ".join), moments)
def test_reading_never_fails_and_windows_run_forward(text, now):
    found = read_temporal(text, now)

    assert found is None or found.mode in ("current", "past", "first", "window")
    if found is not None and found.mode == "window":
        assert found.start is not None
        assert found.end is not None
        assert found.start < found.end
        assert found.start.tzinfo == found.end.tzinfo == UTC


JUNE = datetime(2026, 6, 10, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("what did we believe in March?", datetime(2026, 4, 1, tzinfo=UTC)),
        ("What was the budget as of March?", datetime(2026, 4, 1, tzinfo=UTC)),
        ("what did we think about it last week", datetime(2026, 6, 8, tzinfo=UTC)),
        ("As of 2 March 2026, what was my address?", datetime(2026, 3, 3, tzinfo=UTC)),
        ("who was the lead as of 2024?", datetime(2025, 1, 1, tzinfo=UTC)),
        ("As of March I live in Rome", None),
        ("what is the plan as of June?", None),
        ("what do we know about March?", None),
        ("what did we believe?", None),
        ("what happened in March?", None),
        ("", None),
    ],
)
def test_a_cue_may_ask_for_what_was_believed_then(text, expected):
    assert read_as_of(text, JUNE) == expected


@pytest.mark.parametrize("unit", ["what ", "did ", "as of ", "was as of "])
def test_hostile_text_asks_for_nothing(unit):
    assert read_as_of(unit * 20_000, JUNE) is None
