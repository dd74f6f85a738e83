"""A balance of recency and use that each namespace finds for itself."""

from __future__ import annotations

import pytest
from conftest import Clock
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore

from langmem_recall.flows.usage import BALANCE, BALANCE_KEY
from langmem_recall.policy import RecallPolicy, Weights
from langmem_recall.stores.local.store import LocalStore
from langmem_recall.stores.recall_store import Caching, RecallStore
from langmem_recall.types import ASKED, Recall

DESK = ("notes", "ada")
CUE = "Which notes are on the desk?"
TEXTS = {
    "often": "Note on the desk about the amber anchor",
    "lately": "Note on the desk about the basil bridge",
    "new": "Note on the desk about the cedar candle",
}
ADAPTIVE = RecallPolicy.adaptive(top_k=1, trigger=0.0, floor=0.0, duplicate_similarity=2.0)


@pytest.fixture(params=["local", "memory"])
def held(request: pytest.FixtureRequest, inner: InMemoryStore) -> BaseStore:
    return LocalStore() if request.param == "local" else inner


@pytest.fixture
def store(held: BaseStore, clock: Clock) -> RecallStore:
    """One note that was asked for four times a month ago, one that was asked for once just now."""
    store = RecallStore(held, policy=ADAPTIVE, clock=clock)
    for key in ("often", "lately"):
        store.remember(DESK, TEXTS[key], key=key)
    for _ in range(4):
        clock.turn(hours=1)
        look_up(store, "often")
    clock.turn(days=30)
    look_up(store, "lately")
    clock.turn(hours=1)
    return store


def look_up(store: RecallStore, key: str) -> None:
    text = TEXTS[key]
    store.search(DESK, query=text, filter={"content": text}, limit=1)


def shown(recall: Recall) -> tuple[list[str], str]:
    """What a recall shows, and the policy in its trace."""
    return [memory.key for memory in recall.memories], recall.trace.policy.rpartition(" ")[0]


def test_what_was_cut_and_then_asked_for_moves_the_balance_to_its_side(store, call, clock):
    assert shown(call(store, "recall", DESK, CUE)) == (["lately"], "adaptive 0.50")
    # Use alone would have shown it. A step is one place of the recall, here all there is: the
    # share of recency goes from 0.5 to its bound.
    look_up(store, "often")
    assert shown(call(store, "recall", DESK, CUE)) == (["often"], "adaptive 0.10")
    clock.turn(days=9)
    look_up(store, "lately")
    assert shown(call(store, "recall", DESK, CUE)) == (["often"], "adaptive 0.10")
    clock.turn(hours=1)
    look_up(store, "lately")
    assert shown(call(store, "recall", DESK, CUE)) == (["lately"], "adaptive 0.90")


def test_the_trace_tells_the_weights_in_force(store, call):
    call(store, "recall", DESK, CUE)
    look_up(store, "often")
    weights = call(store, "recall", DESK, CUE).trace.knobs["weights"]

    # A tenth and nine tenths of 0.25 + 0.25.
    assert (weights["recency"], weights["strength"]) == pytest.approx((0.05, 0.45))
    assert (weights["importance"], weights["trust"]) == (0.3, 0.06)


def test_a_balance_is_kept_beside_the_memories_for_other_processes(store, call, clock, held):
    call(store, "recall", DESK, CUE)
    look_up(store, "often")
    call(store, "flush")
    assert held.get((*BALANCE, *DESK), BALANCE_KEY).value == {"recency": 0.1}

    other = RecallStore(held, policy=ADAPTIVE, clock=clock)
    assert shown(call(other, "recall", DESK, CUE)) == (["often"], "adaptive 0.10")
    assert shown(call(other, "recall", ("notes", "bob"), CUE))[1] == "adaptive 0.50"
    call(other, "forget_namespace", DESK)
    assert held.get((*BALANCE, *DESK), BALANCE_KEY) is None
    assert shown(call(other, "recall", DESK, CUE)) == ([], "adaptive 0.50")


@pytest.mark.parametrize("stored", [{"recency": "much"}, {"recency": 7}, {}])
def test_a_damaged_balance_is_none(store, call, held, stored):
    held.put((*BALANCE, *DESK), BALANCE_KEY, stored, index=False)

    assert shown(call(store, "recall", DESK, CUE))[1] == "adaptive 0.50"


def test_the_policy_says_where_a_balance_begins(store, call):
    weights = Weights(recency=0.1, strength=0.4)

    assert ADAPTIVE.replace(weights=weights).balance == pytest.approx(0.2)
    recall = call(store, "recall", DESK, CUE, policy=ADAPTIVE.replace(weights=weights))
    assert shown(recall) == (["often"], "adaptive 0.20")
    assert ADAPTIVE.replace(weights=Weights()).balance == 0.5


def test_what_was_never_asked_for_before_leaves_no_ghost(store, call):
    store.remember(DESK, TEXTS["new"], key="new")
    # Only recency would show it, and it is cut; then it is wanted for the first time.
    use_counts = ADAPTIVE.balanced(0.1).replace(name="adaptive")
    call(store, "recall", DESK, CUE, policy=use_counts)
    look_up(store, "new")

    assert shown(call(store, "recall", DESK, CUE, policy=use_counts))[1] == "adaptive 0.10"


def test_what_is_only_shown_is_no_use_and_what_is_cited_is(store, call, clock):
    def strength() -> float:
        with store.quiet():
            (item,) = store.search(DESK, query=CUE, filter={"content": TEXTS["lately"]}, limit=1)
        return item.signals.strength

    before = strength()
    for _ in range(3):
        clock.turn(minutes=5)
        assert shown(call(store, "recall", DESK, CUE))[0] == ["lately"]
    # Used once: 1 / (1 + 3), but for the fading of minutes.
    assert strength() == pytest.approx(before, abs=1e-3) == pytest.approx(0.25, abs=1e-3)
    # Twice in one answer is one use: 2 / (2 + 3).
    call(store, "feedback", DESK, "lately")
    call(store, "feedback", DESK, "lately")
    assert strength() == pytest.approx(0.4, abs=1e-3)


def test_what_a_model_asks_for_by_tool_moves_the_balance(store, call):
    call(store, "recall", DESK, CUE)
    asked = ADAPTIVE.replace(name=f"{ASKED}adaptive", top_k=2)
    call(store, "recall", DESK, TEXTS["often"], policy=asked)

    assert shown(call(store, "recall", DESK, CUE)) == (["often"], "adaptive 0.10")


def test_quiet_reads_leave_no_ghosts_and_wake_none(store, call):
    with store.quiet():
        call(store, "recall", DESK, CUE)
    look_up(store, "often")
    call(store, "recall", DESK, CUE)
    with store.quiet():
        look_up(store, "often")

    assert shown(call(store, "recall", DESK, CUE))[1] == "adaptive 0.50"


class Gone(InMemoryStore):
    """A side-car that does not answer."""

    def batch(self, ops: object) -> list[object]:
        raise ConnectionError("gone")

    async def abatch(self, ops: object) -> list[object]:
        raise ConnectionError("gone")


def test_a_balance_that_cannot_be_read_costs_no_recall(store, call, clock, held):
    caching = Caching(usage_store=Gone())
    other = RecallStore(held, policy=ADAPTIVE, clock=clock, caching=caching)
    recall = call(other, "recall", DESK, CUE)

    assert len(recall.chosen) == 1
    assert recall.trace.policy.rpartition(" ")[0] == "adaptive"
    assert "usage cannot be read (ConnectionError); ranked without it" in recall.trace.degraded


def test_no_other_policy_has_a_balance(store, call, held):
    fixed = ADAPTIVE.replace(adapts=False)
    assert shown(call(store, "recall", DESK, CUE, policy=fixed)) == (["lately"], "adaptive")
    look_up(store, "often")
    call(store, "flush")

    assert held.get((*BALANCE, *DESK), BALANCE_KEY) is None
