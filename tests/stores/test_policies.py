"""Policies stored for namespaces and picked up by whoever reads there."""

from __future__ import annotations

import pytest
from conftest import Call, Clock
from langgraph.store.base import SearchOp
from langgraph.store.memory import InMemoryStore

from langmem_recall import Caching
from langmem_recall.errors import PolicyError
from langmem_recall.policy import RecallPolicy
from langmem_recall.stores.local.store import LocalStore
from langmem_recall.stores.recall_store import RecallStore

NS = ("users", "ada")
STRICT = RecallPolicy.default(name="strict", trigger=1.0)


@pytest.fixture(params=["memory", "local"])
def store(request: pytest.FixtureRequest, inner: InMemoryStore, clock: Clock) -> RecallStore:
    held = inner if request.param == "memory" else LocalStore()
    return RecallStore(held, stored_policies=True, clock=clock)


def test_a_stored_policy_is_in_force_for_its_namespace_and_below(
    store: RecallStore, call: Call
) -> None:
    call(store, "set_policy", ("users", "ada"), STRICT)
    assert call(store, "policy_for", ("users", "ada")) == STRICT
    assert call(store, "policy_for", ("users", "ada", "work")) == STRICT
    assert call(store, "policy_for", ("users", "adam")) == RecallPolicy.default()
    assert call(store, "policy_for", ("users",)) == RecallPolicy.default()


def test_the_nearest_policy_wins_and_none_takes_it_away(store: RecallStore, call: Call) -> None:
    call(store, "set_policy", ("users",), RecallPolicy.coding())
    call(store, "set_policy", NS, STRICT)
    assert call(store, "policy_for", NS) == STRICT
    call(store, "set_policy", NS, None)
    assert call(store, "policy_for", NS) == RecallPolicy.coding()


def test_recall_search_and_explain_use_it_and_a_call_overrides_it(
    store: RecallStore, call: Call
) -> None:
    store.remember(NS, "I always book an aisle seat on flights", key="seat")
    cue = "Which seat for my flight?"
    assert len(call(store, "recall", NS, cue).chosen) == 1
    call(store, "set_policy", NS, STRICT)
    recall = call(store, "recall", NS, cue)
    assert recall.chosen == ()
    assert recall.trace.policy == f"strict {STRICT.fingerprint}"
    assert "trigger" in call(store, "explain", NS, "seat", cue).reason
    assert len(call(store, "recall", NS, cue, policy=RecallPolicy.default()).chosen) == 1
    call(store, "set_policy", NS, RecallPolicy.similarity())
    (item,) = call(store, "search", NS, query=cue)
    assert item.score == pytest.approx(store.inner.search(NS, query=cue)[0].score)


def test_it_is_opt_in(inner: InMemoryStore) -> None:
    store = RecallStore(inner)
    store.set_policy(NS, STRICT)
    assert store.policy_for(NS) == RecallPolicy.default()


def test_another_process_picks_a_policy_up_when_its_reading_is_old(
    inner: InMemoryStore, clock: Clock, call: Call
) -> None:
    one = RecallStore(inner, stored_policies=True, clock=clock)
    other = RecallStore(inner, stored_policies=True, clock=clock, caching=Caching(max_age=30))
    assert call(other, "policy_for", NS) == RecallPolicy.default()
    one.set_policy(NS, STRICT)
    assert call(other, "policy_for", NS) == RecallPolicy.default()
    clock.turn(seconds=31)
    assert call(other, "policy_for", NS) == STRICT


def test_stored_policies_are_no_memories(store: RecallStore) -> None:
    open_to_all = RecallStore(store.inner, stored_policies=True, allow_empty_namespace=True)
    open_to_all.set_policy(NS, STRICT)
    assert open_to_all.list_namespaces() == []
    assert open_to_all.search(()) == []


def test_a_batch_ranks_by_the_policy_that_is_stored(inner: InMemoryStore, call: Call) -> None:
    store = RecallStore(inner, stored_policies=True)
    for n in range(4):
        store.put(NS, f"k{n}", {"content": f"jazz record {n}"})
    store.set_policy(NS, RecallPolicy.similarity())
    alone = call(store, "search", NS, query="jazz record 2")
    (batched,) = call(store, "batch", [SearchOp(NS, query="jazz record 2")])
    assert [item.dict() for item in batched] == [item.dict() for item in alone]
    assert [type(item) for item in batched] == [type(item) for item in alone]


def test_a_spoilt_policy_is_named_as_such(inner: InMemoryStore) -> None:
    store = RecallStore(inner, stored_policies=True)
    spoilt = ("langmem_recall", "policy", *NS)
    inner.put(spoilt, "policy", {"trigger": 7}, index=False)
    with pytest.raises(PolicyError, match="trigger must be a number from 0 to 1, got 7"):
        store.recall(NS, "anything")
