"""What all suites share: a notebook that dates and names memories, and a life to hide them in."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from langmem_recall.evaluation.cases import Collection

NOW = datetime(2026, 6, 17, 10, tzinfo=UTC)
"""When every cue is asked; a Wednesday."""
DAYS_PER_YEAR = 365

PEOPLE = (
    *("Priya", "Marcus", "Elena", "Tobias", "Yuki", "Fatima", "Declan", "Ingrid", "Rafael"),
    *("Noor", "Stellan", "Maeve", "Kofi", "Beatriz", "Anselm", "Leila", "Hugo", "Saskia"),
    *("Dmitri", "Amara", "Jonas", "Rosalind", "Pavel", "Ximena", "Callum", "Thandi"),
)
ADJECTIVES = (
    *("quiet", "crowded", "dusty", "bright", "crooked", "narrow", "splendid", "drab", "windy"),
    *("charming", "noisy", "muddy", "pale", "sturdy", "shabby", "golden", "damp", "odd"),
)
SEASONS = ("spring", "summer", "autumn", "winter")
_BIRDS = (
    *("kingfisher", "heron", "goldcrest", "buzzard", "wagtail", "nuthatch", "jay", "siskin"),
    *("woodpecker", "dunnock", "redstart", "swift", "owl", "lapwing", "curlew", "linnet"),
)
_TITLES = (
    *("The Salt Road", "A Winter Ledger", "Northern Lamps", "The Glass Orchard", "Low Tide"),
    *("Seven Bridges", "The Clockmaker's Debt", "Ash and Ember", "Hollow Hill", "Paper Boats"),
    *("The Last Ferryman", "Blue Harbour", "Small Gods of Tin", "An Empty Chair", "Foxglove"),
)
_THINGS = (
    *("umbrella", "lantern", "ladder", "wheelbarrow", "rucksack", "violin", "telescope"),
    *("typewriter", "rug", "mirror", "birdhouse", "kettle drum", "sledge", "easel", "globe"),
    *("hammock", "music stand", "chest of drawers", "weather vane", "rocking chair"),
)
_SPOTS = (
    *("town hall", "old quarry", "canal bridge", "village green", "cinema foyer", "bandstand"),
    *("lighthouse", "chapel yard", "allotment", "boathouse", "market cross", "skate park"),
    *("reading room", "bowling green", "water tower", "bus depot", "orchard gate"),
)
_GAMES = ("chess", "dominoes", "backgammon", "draughts", "bridge", "charades", "table football")
_CRAFTS = ("pottery", "weaving", "origami", "bookbinding", "calligraphy", "quilting", "whittling")

_SCENES = (
    "Saw a {adjective} {bird} near the {spot}.",
    "{person} lent me the novel {title}.",
    "Finished reading {title}; the ending felt {adjective}.",
    "The {thing} in the attic belongs to {person}.",
    "{person} plays {game} at the {spot} most Sundays.",
    "We watched {title} at the open-air screen by the {spot}.",
    "{person} gave a {adjective} talk about {craft}.",
    "Took up {craft} with {person} for a {season}.",
    "The {spot} looked {adjective} after the storm.",
    "Lost a round of {game} to {person} again.",
    "Found a {adjective} {thing} at the flea market.",
    "{person} photographed a {bird} from the {spot}.",
    "A {bird} nests above the {spot} every {season}.",
    "The choir sang at the {spot} and {person} had a solo.",
    "{person} dreamed of a {adjective} {thing}.",
    "The film of {title} has a {adjective} soundtrack.",
    "Sketched the {spot} in charcoal one {season} morning.",
    "{person} is knitting a scarf the colour of a {bird}.",
    "Walked past the {spot} and heard {person} practising.",
    "The {craft} fair at the {spot} was {adjective} this {season}.",
    "{person} and {other} argued about {title} over {game}.",
    "Helped {person} carry a {thing} to the {spot}.",
    "{other} says {person} once raced a {thing} down to the {spot}.",
    "Snow lay on the {thing} by the {spot} until late {season}.",
)


def scene(rng: random.Random) -> str:
    """One thing that happened to somebody, of no use to any cue."""
    person, other = rng.sample(PEOPLE, 2)
    return rng.choice(_SCENES).format(
        person=person,
        other=other,
        adjective=rng.choice(ADJECTIVES),
        bird=rng.choice(_BIRDS),
        title=rng.choice(_TITLES),
        thing=rng.choice(_THINGS),
        spot=rng.choice(_SPOTS),
        game=rng.choice(_GAMES),
        craft=rng.choice(_CRAFTS),
        season=rng.choice(SEASONS),
    )


def scenes(rng: random.Random, count: int) -> Iterator[str]:
    """So many different scenes."""
    told: set[str] = set()
    while len(told) < count:
        text = scene(rng)
        if text not in told:
            told.add(text)
            yield text


def shuffled(rng: random.Random, held: Sequence[Any]) -> list[Any]:
    """The same in another order."""
    return rng.sample(held, len(held))


class Notebook:
    """Collects the memories of one collection, each under a key of its own."""

    def __init__(self, name: str, rng: random.Random) -> None:
        self.name = name
        self._rng = rng
        self._written: list[tuple[datetime, str, dict[str, Any]]] = []

    def add(self, text: str, days_ago: float | None = None, **fields: Any) -> str:
        """Write a memory down, some time within a year where it is not told; returns its key."""
        if days_ago is None:
            days_ago = self._rng.uniform(1, DAYS_PER_YEAR)
        at = NOW - timedelta(days=days_ago)
        key = f"{self.name}-{len(self._written)}"
        value = {"content": text, "written_at": at.isoformat(timespec="seconds"), **fields}
        self._written.append((at, key, value))
        return key

    def add_scenes(self, count: int, **fields: Any) -> None:
        """Surround what matters with so many memories that do not."""
        for text in scenes(self._rng, count):
            self.add(text, **fields)

    def collection(self) -> Collection:
        """All of it, in the order of writing."""
        ordered = sorted(self._written, key=lambda entry: entry[:2])
        return Collection(self.name, tuple((key, value) for _, key, value in ordered))
