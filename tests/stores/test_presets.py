"""What each preset promises, on real vectors and through a store."""

from __future__ import annotations

from math import exp, log

import pytest
from conftest import Call, Clock

from langmem_recall.policy import PRESETS, RecallPolicy
from langmem_recall.stores.local.store import LocalStore
from langmem_recall.stores.recall_store import RecallStore
from langmem_recall.types import Cue

ADA = ("users", "ada")
CUE = "Which editor does the user like?"
FACTS = {
    "editor": "The user's favourite editor is Neovim",
    "cat": "The user's cat is called Miso",
    "home": "The user lives in Lyon",
    "diet": "The user is vegetarian",
    "bike": "The user's bike is blue",
}
MIN_MAX = ("generative_agents", "normalized", "assistant", "support", "coding", "planning")
OPEN = {"trigger": 0.0, "floor": 0.0, "composite_floor": 0.0}


@pytest.fixture
def store(clock: Clock) -> RecallStore:
    return RecallStore(LocalStore(), clock=clock)


def preset(name: str, **changes: float) -> RecallPolicy:
    made: RecallPolicy = getattr(RecallPolicy, name)(**changes)
    return made


def found(call: Call, store: RecallStore, policy: RecallPolicy, cue: str = CUE) -> dict:
    """What a search that leaves no trace finds, by key, best first."""
    with store.quiet():
        items = call(store, "search", ADA, query=cue, policy=policy, limit=50)
    return {item.key: item for item in items}


@pytest.mark.parametrize("name", MIN_MAX)
def test_a_burst_of_facts_is_not_ranked_by_the_clock(store, call, clock, name):
    for key, text in FACTS.items():
        store.remember(ADA, text, key=key)
        clock.turn(seconds=0.13)
    items = found(call, store, preset(name))
    weights = preset(name).weights

    # Recency and importance say the same of all five: 0.5 each; similarity is stretched to 0 .. 1.
    cosines = {key: item.similarity for key, item in items.items()}
    least, most = min(cosines.values()), max(cosines.values())
    constant = 0.5 * weights.recency + 0.5 * weights.importance
    assert next(iter(items)) == "editor"
    assert {key: item.score for key, item in items.items()} == pytest.approx(
        {
            key: weights.similarity * (cosine - least) / (most - least) + constant
            for key, cosine in cosines.items()
        },
        abs=1e-5,
    )


@pytest.mark.parametrize(
    ("name", "first"), [("assistant", "new"), ("support", "weighty"), ("coding", "editor")]
)
def test_a_workload_puts_first_what_counts_most_in_it(store, call, clock, name, first):
    store.remember(ADA, FACTS["editor"], key="editor")
    store.remember(ADA, "The user is allergic to penicillin", key="weighty", salience=1.0)
    clock.turn(days=60)
    store.remember(ADA, "The user bought a lamp", key="new")

    assert next(iter(found(call, store, preset(name)))) == first


@pytest.mark.parametrize("name", ["normalized", "assistant", "support", "coding", "planning"])
def test_use_lifts_importance_by_its_logarithm(store, call, clock, name):
    for key in ("used", "unused"):
        store.remember(ADA, f"{FACTS['editor']}, said {key}", key=key)
    for _ in range(3):
        clock.turn(minutes=2)
        store.search(ADA, query="said used", policy=RecallPolicy.similarity(), limit=1)
    items = found(call, store, preset(name))

    # Three uses two minutes apart, the fading of minutes aside.
    assert items["used"].signals.importance == pytest.approx(0.5 + 0.05 * log(4), abs=1e-4)
    assert items["unused"].signals.importance == 0.5


def test_generative_agents_knows_no_use(store, call, clock):
    store.remember(ADA, FACTS["editor"], key="editor")
    store.search(ADA, query=CUE)

    assert found(call, store, preset("generative_agents"))["editor"].signals.importance == 0.5


def test_weighted_and_product_add_up_cosine_recency_and_salience(store, call, clock):
    store.remember(ADA, FACTS["editor"], key="old", salience=0.8)
    clock.turn(days=7)
    store.remember(ADA, "The user likes editors with modes", key="new", salience=0.2)
    weighted, product = (found(call, store, preset(name)) for name in ("weighted", "product"))

    for key, recency, salience in (("old", 0.5, 0.8), ("new", 1.0, 0.2)):
        cosine = weighted[key].similarity
        assert weighted[key].score == pytest.approx(
            0.6 * cosine + 0.25 * recency + 0.15 * salience, abs=1e-5
        )
        # The default's half-life of 30 days: 7 of them leave 0.5^(7 / 30).
        faded = 0.5 ** (7 / 30) if key == "old" else 1.0
        assert product[key].score == pytest.approx(cosine + salience * faded, abs=1e-5)


def test_interpolated_ranks_names_as_a_third_list(store, call, clock):
    store.remember(ADA, "The build failed with an error in the linker", key="near")
    store.remember(ADA, "LNK2019 was a missing library", key="named")
    store.remember(ADA, "The user bakes bread on Sundays", key="far")
    items = found(call, store, preset("interpolated"), "The build failed with the error LNK2019")

    # By vector near, named; by words named, near; by name only named: the best sum is 3/61. All
    # were written now and never used: 0.12 + 0.17 x 0.5 besides.
    near, named = (items[key].score - 0.205 for key in ("near", "named"))
    assert near == pytest.approx(0.61 * (1 / 61 + 1 / 62) / (3 / 61), abs=1e-4)
    assert named == pytest.approx(0.61 * (1 / 62 + 1 / 61 + 1 / 61) / (3 / 61), abs=1e-4)


def test_interpolated_counts_use_as_least_frequently_used_does(store, call, clock):
    texts = {"often": "said at breakfast", "once": "said in Portugal", "never": "said to Tom"}
    for key, words in texts.items():
        store.remember(ADA, f"{FACTS['editor']}, {words}", key=key)
    for words in ("at breakfast", "at breakfast", "in Portugal"):
        clock.turn(minutes=2)
        store.search(ADA, query=words, policy=RecallPolicy.similarity(), limit=1)
    items = found(call, store, preset("interpolated", w=1.0))
    signals = {key: item.signals for key, item in items.items()}

    assert list(items) == ["often", "once", "never"]
    # 0.10 ln(1 + n) / ln(1 + most); the other terms by hand from ranks 1 to 3 of two equal lists.
    for key, uses, minutes in (("often", 2, 2), ("once", 1, 0), ("never", 0, 6)):
        decay = exp(-minutes / 1440 / (1 + uses))
        use = 0.10 * log(1 + uses) / log(3)
        ranks = (items[key].score - 0.4 * decay - 0.1 * signals[key].importance * decay - use) / 0.4
        assert 61 / 63 - 1e-3 <= ranks <= 1 + 1e-3


@pytest.mark.parametrize("name", PRESETS)
def test_a_good_outcome_lifts_a_score_by_a_twentieth(store, call, clock, name):
    for key, text in FACTS.items():
        store.remember(ADA, text, key=key)
    before = found(call, store, preset(name))["editor"].score
    call(store, "feedback", ADA, "editor")
    after = found(call, store, preset(name))["editor"].score

    # The inner store's own scores stay as they are.
    assert after == pytest.approx(before * (1.0 if name == "similarity" else 1.05))


ROOMS = ("kitchen", "hall", "cellar", "attic", "garage", "office", "studio", "library", "bedroom")
HEATING = (
    "The heating bill for the flat came to 140 euros in January",
    "The thermostat app is called Hygge and needs a password",
    "Ada wants the house warm before she gets up at six",
    "At night the windows stay tilted open",
    "Underfloor heating is planned for the bathroom",
    "A smart meter reads the power consumption every hour",
)


@pytest.mark.parametrize("name", PRESETS)
def test_mmr_keeps_at_most_two_of_twelve_near_copies(store, call, clock, name):
    for room in (*ROOMS, "nursery", "pantry", "porch"):
        text = f"The smart thermostat in the {room} is set to 20 degrees at night, 22 by day"
        store.remember(ADA, text, key=f"copy-{room}")
    for place, text in enumerate(HEATING):
        store.remember(ADA, text, key=f"other-{place}")
    cue = "How is the smart thermostat set at night, and the heating?"

    def copies(**changes: float) -> int:
        policy = preset(name, **OPEN, **changes, top_k=5, duplicate_similarity=2.0)
        with store.quiet():
            chosen = call(store, "recall", ADA, cue, policy=policy).memories
        assert len(chosen) == 5
        return sum(memory.key.startswith("copy") for memory in chosen)

    assert copies(mmr_lambda=1.0) >= 4
    assert 1 <= copies(mmr_lambda=0.5) <= 2


def test_planning_looks_at_the_task_and_weighs_alike(store, call, clock):
    store.remember(ADA, "The venue for the fair is booked", key="venue", tags=["fair"])
    store.remember(ADA, "Posters for the fair are printed", key="posters", tags=["fair"])
    store.remember(ADA, "The venue for the wedding is booked", key="wedding", tags=["wedding"])
    cue = Cue("Which venue is booked?", task="fair")
    recall = call(store, "recall", ADA, cue, policy=preset("planning", **OPEN))

    assert [memory.key for memory in recall.memories] == ["venue", "posters"]
    # Two memories of one moment: similarity 1 and 0, recency and importance 0.5 each.
    assert [scored.score for scored in recall.chosen] == pytest.approx([2.0, 1.0])
    assert [(drop.memory.key, drop.gate) for drop in recall.dropped] == [("wedding", "task")]


def test_similarity_is_the_inner_store_as_it_is(store, call, clock):
    for key, text in FACTS.items():
        store.remember(ADA, text, key=key)
    items = found(call, store, preset("similarity"))
    plain = store.inner.search(ADA, query=CUE, limit=50)

    assert [(key, item.score) for key, item in items.items()] == [
        (item.key, item.score) for item in plain
    ]
