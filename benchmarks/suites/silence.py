"""Suites about silence: cues that no memory answers, and stores with next to nothing in them."""

from __future__ import annotations

import random
from collections.abc import Sequence

from langmem_recall.evaluation.cases import FAR, HARD, Case, CaseSet
from langmem_recall.types import Cue
from suites.backdrop import NOW, Notebook, shuffled

PERSONAS = 2
SCENES = 120
CUES_PER_DOMAIN = 10

FACTS: tuple[tuple[str, str], ...] = (
    ("I am allergic to walnuts.", "Which nuts am I allergic to?"),
    ("My sister Agnes lives in Trieste.", "Where does my sister live?"),
    ("I work night shifts at the hospital.", "Where do I work?"),
    ("Our dog is called Biscuit.", "What is the name of our dog?"),
    ("I prefer short answers without bullet points.", "How long should answers be for me?"),
    ("My daughter starts school in September.", "When does my daughter start school?"),
    ("I broke my left wrist skiing.", "How did I break my wrist?"),
    ("The car insurance renews in February.", "When does the car insurance renew?"),
    ("I play the clarinet in a wind band.", "Which instrument do I play?"),
    ("My landlord is called Mr Petrov.", "Who is my landlord?"),
    ("I am saving for a canoe.", "What am I saving money for?"),
    ("I get seasick on ferries.", "Do I get sick on boats or ferries?"),
    ("My partner is a glassblower.", "What does my partner do for a living?"),
    ("I vote by post.", "How do I vote?"),
    ("My grandfather was a watchmaker.", "What was my grandfather's trade?"),
    ("I have a mortgage with the Harbour Building Society.", "Who holds my mortgage?"),
    ("I donate blood every quarter.", "How often do I donate blood?"),
    ("My thesis was about lichens.", "What was my thesis about?"),
    ("I wear contact lenses, minus four.", "What strength are my contact lenses?"),
    ("I quit smoking three years ago.", "When did I quit smoking?"),
    ("My best friend Orla is moving to Perth.", "Where is Orla moving?"),
    ("I am afraid of escalators.", "What am I afraid of?"),
    ("My team at work is called Puffin.", "What is my team called?"),
    ("I share an allotment with the Hendersons.", "Who do I share the allotment with?"),
)
"""What a persona says of itself, and a cue that asks for it."""

_Domain = tuple[tuple[str, ...], Sequence[Sequence[str]]]
_LANGUAGES = ("Python", "Rust", "Go", "TypeScript", "Kotlin", "C++", "Haskell", "SQL")
_STRUCTURES = (
    "a linked list",
    "a hash map",
    "a CSV file",
    "a JSON array",
    "a binary tree",
    "a set",
)
_DISHES = ("risotto", "ramen", "shakshuka", "sourdough", "paella", "gnocchi", "hummus", "brownies")
_INGREDIENTS = ("butter", "yeast", "saffron", "buttermilk", "tofu", "cornstarch", "vinegar")
_PLACES = ("Lisbon", "Kyoto", "Marrakesh", "Reykjavik", "Cusco", "Hanoi", "Tbilisi", "Oslo")
_NUMBERS = ("17", "48", "132", "0.35", "2,500", "81", "64", "99")
_DOMAINS: dict[str, _Domain] = {
    "coding": (
        (
            "How do I sort {1} in {0}?",
            "Write a {0} function that reverses {1}.",
            "Why does my {0} compiler complain about a missing semicolon?",
            "Explain generics in {0}.",
            "What is the complexity of inserting into {1}?",
            "Refactor this {0} loop into a comprehension.",
            "How can I mock an HTTP client in {0} tests?",
            "Fix the null pointer exception when parsing {1}.",
        ),
        (_LANGUAGES, _STRUCTURES),
    ),
    "cooking": (
        (
            "How long does {0} need in the oven?",
            "Can I replace {1} in {0}?",
            "Give me a recipe for {0}.",
            "Why did my {0} turn out soggy?",
            "How much {1} goes into {0}?",
            "What wine goes with {0}?",
            "At what temperature does {1} spoil?",
        ),
        (_DISHES, _INGREDIENTS),
    ),
    "travel": (
        (
            "What are the top sights in {0}?",
            "Is it safe to drink the tap water in {0}?",
            "Which airport is closest to {0}?",
            "What is the weather like in {0} in {1}?",
            "Do tourists need a visa for {0}?",
            "How do I get from {0} to the coast by train?",
            "Recommend hostels in {0} for {1}.",
        ),
        (_PLACES, ("April", "August", "November", "June", "December")),
    ),
    "maths": (
        (
            "What is {0} divided by {1}?",
            "Solve x squared plus {0} x minus {1} equals zero.",
            "What is the derivative of sin of {0} x?",
            "Convert {0} miles to kilometres.",
            "Is {0} a prime number?",
            "What is {0} percent of {1}?",
            "Integrate the logarithm of x from 1 to {0}.",
        ),
        (_NUMBERS, _NUMBERS),
    ),
    "knowledge": (
        (
            "Who invented {0}?",
            "Summarise the history of {0} in three sentences.",
            "How does {0} work?",
            "Translate the word for {0} into {1}.",
            "What are the economic effects of {0}?",
        ),
        (
            ("the steam engine", "penicillin", "inflation", "photosynthesis", "the transistor"),
            ("Swahili", "Latin", "Hungarian", "Korean"),
        ),
    ),
    "small talk": (
        (
            "Hello there!",
            "Good morning, how are you?",
            "Tell me a joke about {0}.",
            "What can you do?",
            "You are very helpful.",
            "I am bored.",
            "Are you a robot?",
            "Nice to meet you.",
            "Write a limerick about {0}.",
            "Have a nice evening!",
            "What is the meaning of life?",
            "Who made you?",
        ),
        (("penguins", "lawyers", "Mondays", "elevators", "pirates"),),
    ),
    "follow-ups": (
        (
            "Yes please.",
            "Thanks!",
            "No, the second one.",
            "Go on.",
            "Can you make it shorter?",
            "Sounds good, do it.",
            "Why?",
            "Try again with more detail.",
            "Perfect, thank you so much.",
            "Never mind.",
            "OK, next.",
            "That is not what I meant.",
            "Continue.",
            "Sure, why not.",
            "Wait, what?",
        ),
        (),
    ),
}


def off_topic_cues(
    rng: random.Random, per_domain: int = CUES_PER_DOMAIN, domains: Sequence[str] = tuple(_DOMAINS)
) -> list[tuple[str, str]]:
    """Cues of other domains with the domain's name, no cue twice."""
    cues: list[tuple[str, str]] = []
    for domain in domains:
        templates, fillings = _DOMAINS[domain]
        told: dict[str, None] = {}
        # A domain with few templates runs dry before it has told enough.
        for _ in range(20 * per_domain):
            told.setdefault(rng.choice(templates).format(*(rng.choice(each) for each in fillings)))
            if len(told) == per_domain:
                break
        cues += [(cue, domain) for cue in told]
    return cues


def off_topic(seed: int = 0) -> CaseSet:
    """Cues of other domains, small talk and follow-ups against a persona's memories: nothing."""
    rng = random.Random(f"off_topic {seed}")
    notebooks, cases = [], []
    for number in range(PERSONAS):
        notebook = Notebook(f"off-topic-{number}", rng)
        for text, _ in FACTS:
            notebook.add(text)
        notebook.add_scenes(SCENES)
        cases += [
            Case(notebook.name, Cue(cue), at=NOW, group=FAR, category=domain)
            for cue, domain in off_topic_cues(rng)
        ]
        notebooks.append(notebook.collection())
    return CaseSet("off_topic", tuple(notebooks), tuple(cases))


# --- tiny -----------------------------------------------------------------------------------------

SIZES = (0, 1, 2, 5, 10)
STORES_PER_SIZE = 4
ASKED_PER_STORE = 3


def tiny(seed: int = 0) -> CaseSet:
    """Stores of 0 to 10 memories: what is there is found, what is not is not made up.

    Groups: "far" cues are of other domains, "hard" ones ask for facts that are not stored.
    """
    rng = random.Random(f"tiny {seed}")
    notebooks, cases = [], []
    for size in SIZES:
        for number in range(STORES_PER_SIZE):
            notebook = Notebook(f"tiny-{size}-{number}", rng)
            facts = shuffled(rng, FACTS)
            held, absent = facts[:size], facts[size:]
            keys = {text: notebook.add(text) for text, _ in held}
            cases += [
                Case(notebook.name, Cue(cue), frozenset({keys[text]}), NOW)
                for text, cue in held[:ASKED_PER_STORE]
            ]
            far = rng.sample(off_topic_cues(rng, 4), ASKED_PER_STORE)
            cases += [Case(notebook.name, Cue(cue), at=NOW, group=FAR) for cue, _ in far]
            cases.append(Case(notebook.name, Cue(absent[0][1]), at=NOW, group=HARD))
            notebooks.append(notebook.collection())
    return CaseSet("tiny", tuple(notebooks), tuple(cases))
