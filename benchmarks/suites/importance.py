"""Suites about weight: what is critical, and what is used every day."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import NamedTuple

from langchain_core.embeddings import Embeddings
from langgraph.store.base import BaseStore, PutOp

from langmem_recall.evaluation.cases import Case, CaseSet
from langmem_recall.evaluation.evaluate import NAMESPACE, StoreFactory
from langmem_recall.policy import RecallPolicy
from langmem_recall.stores.local.store import LocalStore
from langmem_recall.stores.recall_store import RecallStore
from langmem_recall.types import Cue
from suites.backdrop import NOW, PEOPLE, Notebook, shuffled

PERSONAS = 4
SCENES = 80


class Stake(NamedTuple):
    """A situation in which one fact must not be missed; {p} is whom it is about.

    Neither the critical facts nor the trifles share more than that name with the cues.
    """

    cues: tuple[str, ...]
    critical: tuple[str, ...]
    trivial: tuple[str, ...]


_STAKES = (
    Stake(
        ("What should I cook for {p} tonight?", "Which dinner would suit {p}?"),
        ("{p} goes into shock from a trace of peanuts.", "{p} carries an EpiPen for shellfish."),
        (
            "{p} praised my soup last week.",
            "{p} owns copper pans.",
            "{p} ate three pancakes.",
            "{p} likes folded napkins.",
            "{p} hums while washing plates.",
        ),
    ),
    Stake(
        ("Book a flight for {p}.", "Which seat should I reserve for {p} on the plane?"),
        (
            "{p} has a clot risk and must be able to stretch the legs.",
            "{p} may not enter the United States: visa refused.",
        ),
        (
            "{p} collects boarding passes.",
            "{p} liked the window view once.",
            "{p} bought a neck pillow.",
            "{p} packs light.",
            "{p} naps at airports.",
        ),
    ),
    Stake(
        ("Can {p} take this cold medicine?", "What may {p} take for a headache?"),
        ("{p} is on blood thinners.", "{p} has a severe penicillin allergy."),
        (
            "{p} keeps tissues in every coat.",
            "{p} sneezes in threes.",
            "{p} drinks ginger tea.",
            "{p} prefers capsules in bright colours.",
            "{p} had a fever in autumn.",
        ),
    ),
    Stake(
        ("Draft a message to {p} about the project.", "What should I write to {p}?"),
        (
            "Legal hold: all contact with {p} goes through counsel.",
            "{p} is leaving the firm and nobody else may know.",
        ),
        (
            "{p} answers with emojis.",
            "{p} signs mails with initials.",
            "{p} keeps lines short.",
            "{p} enjoys puns in subject lines.",
            "{p} replies after lunch.",
        ),
    ),
    Stake(
        ("Restart the server of {p}'s team.", "Can I reboot the machine {p} works on?"),
        (
            "Never power-cycle {p}'s host by day: it runs the hospital feed.",
            "{p}'s box lost data at every unplanned shutdown.",
        ),
        (
            "{p} named the rack after a cartoon.",
            "{p} put a sticker on the laptop.",
            "{p} likes dark terminal themes.",
            "{p} once tidied the cables.",
            "{p} keeps a spare keyboard.",
        ),
    ),
    Stake(
        ("Plan a birthday surprise for {p}.", "How shall we celebrate {p}'s birthday?"),
        (
            "{p}'s brother died on that date; no parties.",
            "{p} has epilepsy: flashing lights are dangerous.",
        ),
        (
            "{p} kept the ribbon of a gift.",
            "{p} likes blue balloons.",
            "{p} sang at the last one.",
            "{p} guessed a present before.",
            "{p} prefers cards with animals.",
        ),
    ),
    Stake(
        ("Transfer the invoice amount to {p}.", "Pay {p} for the work."),
        (
            "Fraud warning: {p}'s bank details were forged by e-mail.",
            "A court order freezes every payout to {p}.",
        ),
        (
            "{p} uses a green letterhead.",
            "{p} rounds sums up.",
            "{p} staples receipts.",
            "{p} sends parcels on Fridays.",
            "{p} thanked us last time.",
        ),
    ),
    Stake(
        ("Take the kids to {p}'s house.", "Can the kids play at {p}'s place?"),
        ("{p}'s dog bit a child in May.", "{p}'s pool has no fence."),
        (
            "{p} has a striped sofa.",
            "{p} painted the door red.",
            "{p} keeps board games.",
            "{p} offers lemonade.",
            "{p}'s nephews are fond of trains.",
        ),
    ),
    Stake(
        ("Delete the old records of {p}.", "Clean up {p}'s files."),
        (
            "Retention duty: nothing about {p} may be erased before 2030.",
            "{p}'s folder is the only backup of the tax audit.",
        ),
        (
            "{p} titles papers in capitals.",
            "{p} likes serif fonts.",
            "{p} sorts folders by colour.",
            "{p} scans everything twice.",
            "{p} has a tidy desktop.",
        ),
    ),
    Stake(
        ("Go running with {p} on Saturday.", "Which training route would suit {p}?"),
        ("{p} had a heart attack in spring.", "{p}'s cardiologist forbids climbs."),
        (
            "{p} jogs in yellow socks.",
            "{p} counts steps.",
            "{p} likes the river path.",
            "{p} listens to podcasts.",
            "{p} owns two stopwatches.",
        ),
    ),
    Stake(
        ("Deploy {p}'s branch today.", "Can we release what {p} finished?"),
        (
            "{p}'s change drops the payments table.",
            "Audit freeze covers everything of {p}'s.",
            "{p} leaked a signing key in that patch.",
        ),
        (
            "{p} names everything after rivers.",
            "{p} squashes commits.",
            "{p} writes long comments.",
            "{p} reviewed a patch once.",
            "{p} did a tutorial.",
        ),
    ),
    Stake(
        ("Invite {p} to the meeting with the supplier.", "Should {p} join the supplier call?"),
        (
            "{p} is married to their owner: conflict of interest.",
            "{p} has signed no confidentiality agreement.",
        ),
        (
            "{p} brings biscuits.",
            "{p} phones from the balcony.",
            "{p} doodles while listening.",
            "{p} likes the big screen.",
            "{p} shakes hands firmly.",
        ),
    ),
)


def importance(seed: int = 0) -> CaseSet:
    """One critical fact (salience 0.9 and up) that shares few words with the cue, among trifles."""
    rng = random.Random(f"importance {seed}")
    notebooks, cases = [], []
    for number in range(PERSONAS):
        notebook = Notebook(f"importance-{number}", rng)
        for stake, person in zip(shuffled(rng, _STAKES), shuffled(rng, PEOPLE), strict=False):
            critical = rng.choice(stake.critical).format(p=person)
            key = notebook.add(critical, salience=round(rng.uniform(0.9, 1.0), 2))
            for trifle in stake.trivial:
                notebook.add(trifle.format(p=person), salience=round(rng.uniform(0.1, 0.3), 2))
            cue = rng.choice(stake.cues).format(p=person)
            cases.append(Case(notebook.name, Cue(cue), frozenset({key}), NOW))
        notebook.add_scenes(SCENES, salience=0.3)
        notebooks.append(notebook.collection())
    return CaseSet("importance", tuple(notebooks), tuple(cases))


# --- use ------------------------------------------------------------------------------------------

HOT = "hot"
COLD = "cold"
DAYS = 30

_KINDS: tuple[tuple[str, str], ...] = (
    ("café", "has good cakes"),
    ("bakery", "opens early"),
    ("taxi firm", "comes quickly"),
    ("plumber", "is reliable"),
    ("bookshop", "orders anything"),
    ("barber", "takes walk-ins"),
    ("playlist", "is good for focus"),
    ("podcast", "is about history"),
    ("yoga class", "suits beginners"),
    ("dashboard", "shows the error rates"),
    ("runbook", "covers database failover"),
    ("meeting room", "has a whiteboard"),
    ("pharmacy", "opens on Sundays"),
    ("park", "has shade and benches"),
    ("cinema", "shows old films"),
    ("bike shop", "fixes brakes"),
    ("test suite", "covers the checkout"),
    ("hotel", "is near the station"),
    ("florist", "delivers"),
    ("tailor", "shortens trousers"),
)
_NAMES = (
    *("Lantern", "Copperfield", "Juniper", "Marlow", "Quill", "Saffron", "Thistle", "Umber"),
    *("Verity", "Willow", "Yarrow", "Zephyr", "Alder", "Bramble", "Cinder", "Drift"),
    *("Elm", "Falcon", "Garnet", "Hazel", "Indigo", "Jasper", "Kestrel", "Larkspur"),
    *("Meadow", "Nettle", "Orchid", "Pebble", "Quartz", "Rowan", "Sorrel", "Tamarind"),
    *("Ursa", "Violet", "Wren", "Xylo", "Yonder", "Zinnia", "Acorn", "Basalt"),
)
_WANTED = ("Which {kind} should I choose?", "Suggest a {kind}.", "I need a {kind}, any idea?")


def use(seed: int = 0) -> CaseSet:
    """Pairs alike in all but name, one asked for daily by name, the other never.

    To be run over a store made by `after_use`. Cases of the category "hot" want the used one of
    two that are equally relevant; those of "cold" name the unused one, which must still win.
    """
    rng = random.Random(f"use {seed}")
    notebook = Notebook("use", rng)
    cases = []
    names = shuffled(rng, _NAMES)
    for (kind, merit), hot, cold in zip(_KINDS, names[::2], names[1::2], strict=True):
        keys = {
            label: notebook.add(f"{name} is a {kind} that {merit}.", rng.uniform(100, 300))
            for label, name in shuffled(rng, [(HOT, hot), (COLD, cold)])
        }
        asked = [(cue.format(kind=kind), HOT) for cue in rng.sample(_WANTED, 2)]
        asked.append((f"What was it about {cold}, the {kind}?", COLD))
        cases += [
            Case(notebook.name, Cue(cue), frozenset({keys[label]}), NOW, category=label)
            for cue, label in asked
        ]
    notebook.add_scenes(SCENES)
    return CaseSet("use", (notebook.collection(),), tuple(cases))


def simulate_use(
    store: BaseStore, cases: CaseSet, policy: RecallPolicy | None = None, days: int = DAYS
) -> None:
    """Fill a store with the memories of `use` and replay days of recalls up to the asking.

    Every day each hot name is recalled once, under the policy given; what the policy injects
    beside it counts as used too, as it does in production.
    """
    (collection,) = cases.collections
    clock = _Clock(NOW - timedelta(days=days))
    reader = RecallStore(store, policy=policy, clock=clock)
    reader.batch([PutOp(NAMESPACE, key, dict(value)) for key, value in collection.memories])
    cues = list(_hot_cues(cases))
    for _ in range(days):
        for cue in cues:
            reader.recall(NAMESPACE, cue)
            clock.now += timedelta(minutes=5)
        clock.now += timedelta(days=1) - len(cues) * timedelta(minutes=5)
    reader.close()


def after_use(cases: CaseSet, policy: RecallPolicy | None = None) -> StoreFactory:
    """Makes stores that have seen a month of use, to pass to `evaluate` as `store`."""

    def make(embeddings: Embeddings | None) -> BaseStore:
        store = LocalStore(":memory:", embeddings=embeddings)
        simulate_use(store, cases, policy)
        return store

    return make


class _Clock:
    def __init__(self, now: datetime) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now


def _hot_cues(cases: CaseSet) -> Iterator[str]:
    (collection,) = cases.collections
    texts = {key: str(value["content"]) for key, value in collection.memories}
    hot = {key for case in cases.cases if case.category == HOT for key in case.relevant}
    for key in sorted(hot):
        yield f"Is {texts[key].split()[0]} any good today?"
