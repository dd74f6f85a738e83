"""A year of use with a sweep every night: what counts stays, what does not is bounded."""

from __future__ import annotations

import random

from conftest import Clock

from langmem_recall import Caching, LocalStore, RecallStore, learn
from langmem_recall.agents.learning import Notes, Observation

NS = ("memories", "ada")
TURNS, DAYS = 1_000, 365
THINGS = (
    "kayak",
    "violin",
    "tent",
    "drone",
    "loom",
    "scooter",
    "telescope",
    "piano",
    "kiln",
    "sled",
)
CITIES = ("Ghent", "Oslo", "Porto", "Turin", "Graz", "Lyon", "Cork", "Bonn", "Malmo", "Delft")


def noted(text: str, quote: str, kind: str = "user_stated_preference") -> Observation:
    return Observation(
        text=text, observation=kind, quote=quote, confidence=1.0, asked_as=[], corrects=""
    )


def test_no_fact_that_was_stated_cited_or_confirmed_is_removed_in_a_year(clock: Clock) -> None:
    store = RecallStore(LocalStore(), clock=clock, caching=Caching(flush_interval=10_000))
    chance, stated, confirmed, cited = random.Random(19), set[str](), set[str](), set[str]()
    sizes: dict[str, int] = {}
    turns_a_day = [TURNS // DAYS + (day % DAYS < TURNS % DAYS) for day in range(DAYS)]
    assert sum(turns_a_day) == TURNS
    number = 0
    for count in turns_a_day:
        for _ in range(count):
            number += 1
            play(store, chance, number, stated, confirmed, cited)
        clock.turn(days=1)
        report = store.sweep(NS, apply=True, limit=10_000)
        gone = {key for _, key in report.removed}
        assert gone.isdisjoint(stated | confirmed | cited)
        in_store = {item.key: item.value for item in store.search(NS, limit=10_000)}
        guesses = [v for v in in_store.values() if v["source"] == "agent_inferred"]
        for kind in ("inferences", "episodes", "summaries"):
            present = [one for one in guesses if is_of(kind, one)]
            sizes[kind] = max(sizes.get(kind, 0), len(present))
    texts = {item.value["content"] for item in store.search(NS, limit=10_000)}
    # Every fact is there, word for word, the first of the year too.
    assert texts >= FACTS
    assert len(FACTS) == 100
    # One turn in five leaves a guess, one an event: 0.55 a day for the seven weeks until 0.6 has
    # faded below 0.3 is 27 of each; twenty guesses were confirmed and stay, as does what is in use.
    # A summary lasts thirty days, and there is about one a week.
    assert sizes["inferences"] <= 60
    assert sizes["episodes"] <= 60
    assert 4 <= sizes["summaries"] <= 6


FACTS = {f"The user owns a {thing} in {city}" for thing in THINGS for city in CITIES}
ORDERED = sorted(FACTS)


def is_of(kind: str, value: dict[str, object]) -> bool:
    if "session_summary" in (value.get("tags") or ()):  # type: ignore[operator]
        return kind == "summaries"
    return kind == ("episodes" if value["kind"] == "episodic" else "inferences")


def play(
    store: RecallStore,
    chance: random.Random,
    number: int,
    stated: set[str],
    confirmed: set[str],
    cited: set[str],
) -> None:
    """One turn: something is said, guessed or done; something is asked for, cited, confirmed."""
    fact = ORDERED[(number - 1) // 5] if number <= 500 else None
    if fact is not None and number % 5 == 1:
        said = fact.replace("The user owns", "I own")
        week = number // 20
        notes = Notes(
            observations=[noted(fact, said)], summary=f"In week {week} things were owned."
        )
        learned = learn(
            store,
            NS,
            [("user", said)],
            extractor=lambda _: notes,
            thread_id=f"week {week}-{number}",
        )
        stated.update(one.key for one in learned.writes if one.source == "user_stated" and one.key)
        summary = next(one for one in learned.writes if one.observation == "session_summary")
        if number % 20 != 1:
            # One summary a week is enough for this year.
            store.forget(NS, summary.key or "")
    elif number % 5 == 2:
        text = f"The user might think about trip {number} to {chance.choice(CITIES)}"
        guess = store.remember(NS, text, source="agent_inferred")
        if number % 50 == 2:
            store.confirm(NS, guess.key)
            confirmed.add(guess.key)
    elif number % 5 == 3:
        text = f"Task {number} about the {chance.choice(THINGS)} was done"
        store.remember(NS, text, source="agent_inferred", kind="episodic")
    recall = store.recall(NS, f"Does the user own a {chance.choice(THINGS)}?")
    for memory in recall.memories[:1]:
        store.feedback(NS, memory.key)
        cited.add(memory.key)
