"""A suite about dates: the same kind of thing at several times."""

from __future__ import annotations

import random

from langmem_recall.evaluation.cases import Case, CaseSet
from langmem_recall.types import Cue
from suites.backdrop import NOW, PEOPLE, Notebook, shuffled

PERSONAS = 2
SCENES = 80
WINDOWS_PER_KIND = 4

_WINDOWS: tuple[tuple[tuple[str, ...], tuple[float, float]], ...] = (
    (("yesterday",), (0.6, 1.2)),
    (("last week",), (3.6, 8.4)),
    (("two weeks ago", "a couple of weeks ago"), (11.5, 15.5)),
    (("last month", "in May"), (20.0, 45.0)),
    (("in March", "three months ago"), (83.0, 100.0)),
    (("in January", "in January 2026"), (140.0, 160.0)),
    (("six months ago",), (172.0, 190.0)),
    (("in October", "in October 2025"), (235.0, 255.0)),
)
"""How a time is said, and how many days ago it may have been; no two overlap."""

_EVENTS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (
        "Where did I have dinner {when}?",
        "Had dinner at {x}{with_person}.",
        (
            "Luigi's",
            "the Jade Garden",
            "Casa Lola",
            "the Anchor",
            "Bombay Palace",
            "the Old Mill",
            "Zur Post",
            "the Olive Branch",
        ),
    ),
    (
        "Which concert did I go to {when}?",
        "Went to a concert by {x}{with_person}.",
        (
            "the Velvet Pines",
            "Nightjar",
            "the Harbour Quartet",
            "DJ Orsa",
            "Mount Levity",
            "the Paper Kings",
            "Solveig Ray",
            "Brass Monkeys",
        ),
    ),
    (
        "What did the doctor check {when}?",
        "The doctor checked my {x}.",
        (
            "knee",
            "blood pressure",
            "eyesight",
            "hearing",
            "back",
            "thyroid",
            "iron levels",
            "shoulder",
        ),
    ),
    (
        "What broke at home {when}?",
        "At home the {x} broke and needed a repair.",
        (
            "boiler",
            "dishwasher",
            "kitchen tap",
            "doorbell",
            "shower",
            "fridge",
            "toaster",
            "garage door",
        ),
    ),
    (
        "What did I present at the team review {when}?",
        "At the team review I presented {x}.",
        (
            "the churn numbers",
            "the search rewrite",
            "our hiring plan",
            "the outage report",
            "a pricing study",
            "the design system",
            "the mobile roadmap",
            "a cost breakdown",
        ),
    ),
    (
        "Who visited us {when}?",
        "{x} visited us and stayed the night.",
        PEOPLE[8:18],
    ),
    (
        "What did I buy for the garden {when}?",
        "Bought {x} for the garden.",
        (
            "a lemon tree",
            "tulip bulbs",
            "a compost bin",
            "bamboo canes",
            "a bench",
            "lavender pots",
            "a hose reel",
            "tomato seedlings",
        ),
    ),
    (
        "Which release did we ship {when}?",
        "We shipped the {x} release.",
        ("Amber", "Birch", "Cobalt", "Dune", "Ember", "Fjord", "Granite", "Heath"),
    ),
    (
        "Where did we go hiking {when}?",
        "Went hiking {x}{with_person}.",
        (
            "up Crag Fell",
            "along the Wye",
            "around Lake Bohinj",
            "in the Rhine gorge",
            "across Dartmoor",
            "on the Moselle trail",
            "up Mount Rigi",
            "by the Dunajec",
        ),
    ),
    (
        "What did the customer complain about {when}?",
        "The customer complained about {x}.",
        (
            "slow exports",
            "a double charge",
            "missing invoices",
            "broken filters",
            "confusing menus",
            "late delivery",
            "lost settings",
            "spam notifications",
        ),
    ),
    (
        "What did my daughter do at school {when}?",
        "At school my daughter {x}.",
        (
            "won a spelling prize",
            "played a tree in the play",
            "built a paper rocket",
            "learned the recorder",
            "planted beans",
            "drew a map",
            "read a poem aloud",
            "swam her first length",
        ),
    ),
    (
        "What did I train at the gym {when}?",
        "At the gym I trained {x}.",
        (
            "squats",
            "deadlifts",
            "rowing",
            "bench presses",
            "pull-ups",
            "box jumps",
            "planks",
            "kettlebell swings",
        ),
    ),
)


def temporal(seed: int = 0) -> CaseSet:
    """The same kind of event at eight dates: the one within the time the cue names counts."""
    rng = random.Random(f"temporal {seed}")
    notebooks, cases = [], []
    for number in range(PERSONAS):
        notebook = Notebook(f"temporal-{number}", rng)
        for cue, text, values in _EVENTS:
            asked = rng.sample(_WINDOWS, WINDOWS_PER_KIND)
            for window, value in zip(_WINDOWS, shuffled(rng, values), strict=False):
                said = text.format(x=value, with_person=_company(rng))
                key = notebook.add(said, rng.uniform(*window[1]))
                if window in asked:
                    words = cue.format(when=rng.choice(window[0]))
                    cases.append(Case(notebook.name, Cue(words), frozenset({key}), NOW))
        notebook.add_scenes(SCENES)
        notebooks.append(notebook.collection())
    return CaseSet("temporal", tuple(notebooks), tuple(cases))


def _company(rng: random.Random) -> str:
    return rng.choice(("", f" with {rng.choice(PEOPLE)}"))
