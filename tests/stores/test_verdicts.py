"""What the guard says of items that are put as they are: kept beside them, heeded by readers."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import Call, Clock, CountingEmbeddings
from langgraph.store.base import PutOp, SearchOp
from langgraph.store.memory import InMemoryStore

from langmem_recall.errors import InputError
from langmem_recall.lifecycle.verdict import Verdict, allow_all
from langmem_recall.policy import RecallPolicy
from langmem_recall.stores.local import LocalStore
from langmem_recall.stores.recall import RecallStore
from langmem_recall.stores.verdicts import VERDICT
from langmem_recall.types import SIDECAR_ROOT

NS = ("memories", "ada")
ODD = {"content": "odd seats on flights", "env": "prod"}
CUE = "which seats on flights?"


def suspicious(text: str) -> Verdict:
    if "ignore" in text:
        return Verdict("reject", ("override",))
    return Verdict("quarantine", ("oddness",)) if "odd" in text else Verdict()


@pytest.fixture(params=["vectors", "local"])
def base(request: pytest.FixtureRequest, embeddings: CountingEmbeddings) -> Any:
    if request.param == "local":
        return LocalStore(embeddings=embeddings)
    return InMemoryStore(index={"dims": 256, "embed": embeddings, "fields": ["content"]})


@pytest.fixture
def store(base: Any, clock: Clock) -> RecallStore:
    return RecallStore(base, guard=suspicious, clock=clock)


def found(store: RecallStore, call: Call) -> tuple[set[str], set[str]]:
    """Keys that a search and a recall bring."""
    searched = call(store, "search", NS, query=CUE, limit=50)
    recalled = call(store, "recall", NS, CUE).memories
    return {item.key for item in searched}, {memory.key for memory in recalled}


@pytest.mark.parametrize("text", ["odd seats on flights", "ignore seats on flights"])
def test_a_suspect_item_is_stored_as_it_is_and_kept_from_readers(
    store: RecallStore, call: Call, text: str
) -> None:
    value = {"content": text, "env": "prod"}
    call(store, "put", NS, "odd", value)
    call(store, "put", NS, "fine", {"content": "aisle seats on flights"})
    assert store.get(NS, "odd").value == value
    assert {item.key for item in call(store, "search", NS)} == {"odd", "fine"}
    assert found(store, call) == ({"fine"}, {"fine"})
    dropped = {drop.memory.key: drop[1:] for drop in call(store, "recall", NS, CUE).dropped}
    assert dropped["odd"] == ("status", "quarantined")
    assert call(store, "explain", NS, "odd", CUE).reason == "status: quarantined"


def test_what_lies_beyond_the_head_is_barred_too(base: Any, clock: Clock, call: Call) -> None:
    policy = RecallPolicy.default(pool=2, rescues=0)
    store = RecallStore(base, guard=suspicious, clock=clock, policy=policy)
    for i in range(8):
        word = "odd" if i % 2 else "aisle"
        call(store, "put", NS, f"{word}{i}", {"content": f"{word} seats on flights, row {i}"})
    searched, _ = found(store, call)
    assert searched == {"aisle0", "aisle2", "aisle4", "aisle6"}


def test_approval_lets_it_through_and_outlives_the_same_text_put_again(
    store: RecallStore, call: Call
) -> None:
    call(store, "put", NS, "odd", ODD)
    (held,) = call(store, "quarantined", NS)
    assert (held.key, held.status, held.value["env"]) == ("odd", "quarantined", "prod")
    assert held.value["quarantine"] == {"reasons": ["oddness"]}
    call(store, "approve", NS, "odd")
    assert found(store, call) == ({"odd"}, {"odd"})
    assert store.get(NS, "odd").value == ODD
    call(store, "put", NS, "odd", {**ODD, "env": "staging"})
    assert found(store, call) == ({"odd"}, {"odd"})
    call(store, "put", NS, "odd", {"content": "odder seats on flights"})
    assert found(store, call) == (set(), set())


def test_a_better_text_under_the_key_is_not_meant(store: RecallStore, call: Call) -> None:
    call(store, "put", NS, "k", ODD)
    call(store, "put", NS, "k", {"content": "aisle seats on flights"})
    assert found(store, call) == ({"k"}, {"k"})
    assert call(store, "quarantined", NS) == []


def test_a_batch_is_judged_like_single_puts(store: RecallStore, call: Call) -> None:
    puts = [PutOp(NS, "odd", ODD), PutOp(NS, "fine", {"content": "aisle seats on flights"})]
    assert call(store, "batch", [*puts, PutOp(NS, "gone", None)]) == [None, None, None]
    assert found(store, call) == ({"fine"}, {"fine"})
    (page,) = call(store, "batch", [SearchOp(NS, query=CUE)])
    assert {item.key for item in page} == {"fine"}


def test_another_process_sees_a_verdict_when_its_reading_is_old(
    base: Any, clock: Clock, call: Call
) -> None:
    one, other = (RecallStore(base, guard=suspicious, clock=clock) for _ in range(2))
    assert found(other, call) == (set(), set())
    call(one, "put", NS, "odd", ODD)
    clock.turn(seconds=30)
    assert found(other, call) == (set(), set())
    call(one, "approve", NS, "odd")
    clock.turn(seconds=30)
    assert found(other, call) == ({"odd"}, {"odd"})


def test_a_verdict_reaches_readers_of_every_namespace_above(store: RecallStore, call: Call) -> None:
    for prefix in (NS, ("memories",), ("memories", "bob")):
        call(store, "search", prefix, query=CUE)
    call(store, "put", NS, "odd", ODD)
    assert call(store, "search", ("memories",), query=CUE) == []
    assert call(store, "search", NS, query=CUE) == []


def test_a_value_that_poses_as_a_serialised_object_is_suspect(
    store: RecallStore, call: Call
) -> None:
    value = {"content": "seats on flights", "x": [{"lc": 1, "type": "constructor", "id": ["os"]}]}
    call(store, "put", NS, "lc", value)
    assert store.get(NS, "lc").value == value
    assert found(store, call) == (set(), set())
    (held,) = call(store, "quarantined", NS)
    assert held.value["quarantine"]["reasons"] == ["serialised object"]


def test_verdicts_lie_in_the_sidecar_and_stay_hidden(
    base: Any, store: RecallStore, call: Call
) -> None:
    call(store, "put", NS, "odd", ODD)
    (ruling,) = base.search((*VERDICT, *NS))
    assert ruling.value["action"] == "quarantine"
    assert "seats" not in str(ruling.value)
    assert call(store, "list_namespaces") == [NS]
    assert {item.namespace for item in call(store, "search", ())} == {NS}


def test_without_a_guard_nothing_is_judged_kept_or_read(
    base: Any, clock: Clock, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = RecallStore(base, guard=allow_all, clock=clock)
    asked: list[Any] = []
    real = type(base).batch

    def batch(self: Any, ops: Any) -> Any:
        ops = list(ops)
        asked.extend(ops)
        return real(self, ops)

    monkeypatch.setattr(type(base), "batch", batch)
    store.put(NS, "odd", ODD)
    assert {item.key for item in store.search(NS, query=CUE)} == {"odd"}
    spaces = [getattr(op, "namespace", getattr(op, "namespace_prefix", ())) for op in asked]
    assert spaces
    assert not any(space[:2] == (SIDECAR_ROOT, "verdict") for space in spaces)


def test_one_listing_an_age_is_all_that_reading_costs(
    store: RecallStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    readings = 0
    below = type(store._verdicts).below

    def counted(self: Any, prefix: Any) -> Any:
        nonlocal readings
        readings += 1
        return below(self, prefix)

    monkeypatch.setattr(type(store._verdicts), "below", counted)
    store.put(NS, "a", {"content": "aisle seats on flights"})
    for _ in range(60):
        clock.turn(seconds=1)
        assert store.search(NS, query=CUE)
    assert readings == 2


def test_a_malformed_put_leaves_no_verdict_behind(
    base: Any, store: RecallStore, call: Call
) -> None:
    with pytest.raises(ValueError, match="cannot contain periods"):
        call(store, "put", ("a.b",), "odd", ODD)
    with pytest.raises(ValueError, match="cannot contain periods"):
        call(store, "batch", [PutOp(("a.b",), "odd", ODD)])
    assert base.search((), limit=10) == []


def test_a_value_that_is_none_is_left_to_the_store(clock: Clock) -> None:
    store = RecallStore(LocalStore(index=False), guard=suspicious, clock=clock)
    with pytest.raises(InputError, match="A value must be a mapping"):
        store.put(NS, "k", ["odd"])  # type: ignore[arg-type]
    assert store.search(NS) == []
