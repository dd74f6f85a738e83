"""A suite about change: facts that newer statements supersede."""

from __future__ import annotations

import random
from typing import NamedTuple

from langmem_recall.evaluation.cases import Case, CaseSet
from langmem_recall.types import Cue
from suites.backdrop import NOW, PEOPLE, Notebook

PERSONAS = 4
TOPICS_PER_PERSONA = 10
SCENES_PER_PERSONA = 80

_NOW_WORDS = (
    "{present} now?",
    "{present} these days?",
    "{present} at the moment?",
    "Currently, {present}?",
)
_FIRST_WORDS = (
    "{past} originally?",
    "{past} at first?",
    "{past} in the beginning?",
    "Initially, {past}?",
)


class Topic(NamedTuple):
    """Something about a person that changes; any statement can stand at any time."""

    present: str
    past: str
    values: tuple[str, ...]
    plain: tuple[str, ...]
    changed: tuple[str, ...]
    """Wordings that tell of a change; never the first of a history."""


_TOPICS = (
    Topic(
        "how do I take my coffee",
        "how did I take my coffee",
        ("black", "with oat milk", "with two sugars", "with cream", "as a cortado"),
        ("I drink my coffee {v}.", "My coffee is best {v}.", "Coffee for me: {v}, please."),
        ("I switched to having my coffee {v}.", "I take coffee {v} after trying it at work."),
    ),
    Topic(
        "how do I get to work",
        "how did I get to work",
        ("by tram", "by bicycle", "on the 14 bus", "in a car share", "by train"),
        ("I get to work {v}.", "My way to work: {v}.", "I travel to the office {v}."),
        ("I changed my commute and go to work {v}.", "Going to work {v} turned out faster."),
    ),
    Topic(
        "which editor do I write code in",
        "which editor did I write code in",
        ("Emacs", "VS Code", "Helix", "PyCharm", "Neovim", "Zed"),
        ("I write my code in {v}.", "My code editor is {v}.", "{v} is what I edit code with."),
        ("I moved my code editing over to {v}.", "Dropped the old editor, writing code in {v}."),
    ),
    Topic(
        "who is my manager",
        "who was my manager",
        PEOPLE[:8],
        ("My manager is {v}.", "I report to {v}, my manager.", "{v} manages our team and me."),
        ("{v} took over as my manager.", "After the reshuffle my manager is {v}."),
    ),
    Topic(
        "which city do I live in",
        "which city did I live in",
        ("Ghent", "Porto", "Leeds", "Graz", "Tartu", "Malmo"),
        ("I live in the city of {v}.", "My home city is {v}.", "I rent a flat in {v}, a city."),
        ("I moved house to the city of {v}.", "We packed up and live in {v}, a new city."),
    ),
    Topic(
        "what time is our stand-up meeting",
        "what time was our stand-up meeting",
        ("9:15", "9:45", "10:30", "11:00", "14:00"),
        ("The stand-up meeting is at {v}.", "Our stand-up meeting starts at {v}."),
        ("The team moved the stand-up meeting to {v}.", "Stand-up meeting rescheduled to {v}."),
    ),
    Topic(
        "which running shoes do I wear",
        "which running shoes did I wear",
        ("Brooks", "Hoka", "Saucony", "Asics", "Mizuno"),
        ("I wear {v} running shoes.", "My running shoes are {v}."),
        ("I bought new running shoes, {v}.", "Retired the old running shoes, wearing {v}."),
    ),
    Topic(
        "which bank is my salary paid into",
        "which bank was my salary paid into",
        ("Nordbank", "Triodos", "Revolut", "Santander", "Monzo"),
        ("My salary is paid into {v}.", "{v} is the bank my salary goes to."),
        ("I opened an account at {v} and my salary is paid there.", "Salary moved to {v}, a bank."),
    ),
    Topic(
        "what does the cat eat",
        "what did the cat eat",
        ("salmon tins", "dry kibble", "chicken pouches", "turkey pate", "sardines"),
        ("The cat eats {v}.", "For the cat we buy {v}.", "{v} are what the cat likes to eat."),
        ("The vet put the cat on {v}.", "The cat refuses the old food and eats {v}."),
    ),
    Topic(
        "which language am I learning",
        "which language was I learning",
        ("Portuguese", "Finnish", "Turkish", "Welsh", "Arabic", "Greek"),
        ("I am learning {v}, a language.", "My language lessons are in {v}."),
        (
            "I gave up the old language and started learning {v}.",
            "Language course switched to {v}.",
        ),
    ),
    Topic(
        "when do I go to bed",
        "when did I go to bed",
        ("at ten", "at half past eleven", "after midnight", "at nine", "around eleven"),
        ("I go to bed {v}.", "My bedtime is {v}.", "Lights out and in bed {v}."),
        ("Since the new shift I go to bed {v}.", "I shifted my bedtime, in bed {v}."),
    ),
    Topic(
        "which database does the project use",
        "which database did the project use",
        ("MySQL", "Postgres", "MongoDB", "CockroachDB", "MariaDB"),
        ("The project uses {v} as its database.", "Our project's database is {v}."),
        ("We migrated the project's database to {v}.", "The project dropped its database for {v}."),
    ),
    Topic(
        "what diet am I on",
        "what diet was I on",
        ("vegan", "low-carb", "vegetarian", "Mediterranean", "gluten-free", "pescatarian"),
        ("I am on a {v} diet.", "My diet is {v}.", "I eat {v}, that is my diet."),
        ("I changed my diet to {v}.", "My doctor suggested a {v} diet and I follow it."),
    ),
    Topic(
        "where do we buy groceries",
        "where did we buy groceries",
        ("Lidl", "the farmers' market", "Waitrose", "the co-op", "Aldi"),
        ("We buy our groceries at {v}.", "Groceries come from {v}.", "Our groceries: {v}."),
        ("We started getting groceries at {v}.", "Groceries from {v} since the old shop closed."),
    ),
    Topic(
        "which phone do I have",
        "which phone did I have",
        ("a Pixel", "an iPhone", "a Fairphone", "a Galaxy", "a Nokia"),
        ("I have {v} as my phone.", "My phone is {v}.", "I carry {v}, my only phone."),
        ("My old phone broke and I have {v}.", "I traded my phone in for {v}."),
    ),
    Topic(
        "who is my dentist",
        "who was my dentist",
        ("Dr Halloran", "Dr Ferreira", "Dr Okafor", "Dr Lindqvist", "Dr Brandt"),
        ("My dentist is {v}.", "I see {v}, a dentist.", "{v} is the dentist I go to."),
        ("My dentist retired and I see {v}.", "I transferred to {v} as my dentist."),
    ),
    Topic(
        "which day do I swim",
        "which day did I swim",
        ("Mondays", "Tuesdays", "Thursdays", "Saturdays", "Sundays"),
        ("I swim on {v}.", "My swim day: {v}.", "{v} are when I go for a swim."),
        ("The pool changed its hours, so I swim on {v}.", "I moved my swim to {v}."),
    ),
    Topic(
        "where does the service get deployed",
        "where did the service get deployed",
        ("Heroku", "Fly", "a bare server in Helsinki", "Kubernetes", "Render"),
        ("The service is deployed to {v}.", "We deploy the service on {v}."),
        ("We moved the deployed service over to {v}.", "The service was redeployed to {v}."),
    ),
    Topic(
        "which car do we drive",
        "which car did we drive",
        ("a Skoda", "a Volvo", "a Dacia", "an old Saab", "a Renault"),
        ("We drive {v}.", "Our car is {v}.", "The car we drive: {v}."),
        ("We sold the car and drive {v}.", "Leasing ended and the new car is {v}."),
    ),
    Topic(
        "which newspaper do I read",
        "which newspaper did I read",
        ("the Courier", "the Gazette", "the Herald", "the Tribune", "the Observer"),
        ("I read {v} as my newspaper.", "My newspaper is {v}.", "{v} is the newspaper I read."),
        ("I cancelled my newspaper and read {v}.", "I subscribed to {v}, another newspaper."),
    ),
)


def drift(seed: int = 0) -> CaseSet:
    """Facts superseded by newer statements, without any status: the newest, or the first, counts.

    Categories: "neutral" and "current" cues want the newest, "first" cues the oldest.
    """
    rng = random.Random(f"drift {seed}")
    notebooks, cases = [], []
    for number in range(PERSONAS):
        notebook = Notebook(f"drift-{number}", rng)
        for topic in rng.sample(_TOPICS, TOPICS_PER_PERSONA):
            cases += _history(notebook, topic, rng)
        notebook.add_scenes(SCENES_PER_PERSONA)
        notebooks.append(notebook.collection())
    return CaseSet("drift", tuple(notebooks), tuple(cases))


def _history(notebook: Notebook, topic: Topic, rng: random.Random) -> list[Case]:
    values = rng.sample(topic.values, 3)
    # The second wording of a change must not give the newest away: plain ones come last as often.
    wordings = [rng.choice(topic.plain), *rng.sample((*topic.plain, *topic.changed), 2)]
    ages = (rng.uniform(220, 350), rng.uniform(90, 180), rng.uniform(3, 60))
    first, _, newest = (
        notebook.add(_capitalised(wording.format(v=value)), age)
        for wording, value, age in zip(wordings, values, ages, strict=True)
    )
    asked = (
        (f"{topic.present}?", newest, "neutral"),
        (rng.choice(_NOW_WORDS).format(present=topic.present), newest, "current"),
        (rng.choice(_FIRST_WORDS).format(past=topic.past), first, "first"),
    )
    return [
        Case(notebook.name, Cue(_capitalised(cue)), frozenset({key}), NOW, category=category)
        for cue, key, category in asked
    ]


def _capitalised(text: str) -> str:
    return text[0].upper() + text[1:]
