"""Stores with habits of their own: decimal numbers, scores that are no cosines, equal texts."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from conftest import Call, Clock, CountingEmbeddings
from langgraph.store.base import BaseStore, Item, Op, PutOp, SearchItem
from langgraph.store.memory import InMemoryStore

from langmem_recall import LocalStore, RecallPolicy, RecallStore, export_jsonl, import_jsonl
from langmem_recall.errors import ConfigurationError

ADA = ("memories", "ada")
SEAT, PEANUTS = "I always book an aisle seat on flights", "I am allergic to peanuts"


# --- numbers as DynamoDB has them -----------------------------------------------------------------


def to_table(part: Any) -> Any:
    """As boto3 writes: no floats, and every number is a Decimal."""
    if isinstance(part, float):
        raise TypeError("Float types are not supported. Use Decimal types instead.")
    if isinstance(part, dict):
        return {name: to_table(each) for name, each in part.items()}
    if isinstance(part, list | tuple):
        return [to_table(each) for each in part]
    return Decimal(part) if isinstance(part, int) and not isinstance(part, bool) else part


class DecimalStore(BaseStore):
    """A store whose table knows no other numbers."""

    def __init__(self) -> None:
        self.table = InMemoryStore()

    def batch(self, ops: Iterable[Op]) -> list[Any]:
        return self.table.batch(list(map(self._converted, ops)))

    async def abatch(self, ops: Iterable[Op]) -> list[Any]:
        return await self.table.abatch(list(map(self._converted, ops)))

    @staticmethod
    def _converted(op: Op) -> Op:
        return op._replace(value=to_table(op.value)) if isinstance(op, PutOp) else op


def test_a_store_of_decimals_is_written_to_and_read_like_any_other(
    call: Call, clock: Clock
) -> None:
    inner = DecimalStore()
    store = RecallStore(inner, clock=clock)
    call(store, "remember", ADA, SEAT, key="seat", salience=0.9, confidence=0.7, turn=12)
    call(store, "remember", ADA, PEANUTS, key="peanuts", source="user_stated")
    assert inner.table.get(ADA, "seat").value["salience"] == Decimal("0.9")
    clock.turn(days=1)
    (seat,) = call(store, "recall", ADA, SEAT).memories
    assert (seat.salience, seat.confidence, seat.turn) == (0.9, 0.7, 12)
    assert {type(seat.salience), type(seat.confidence)} == {float}
    assert type(seat.turn) is int
    store.feedback(ADA, "seat")
    assert call(store, "flush") == 1
    clock.turn(days=1)
    # What other processes find: nothing here comes from memory.
    fresh = RecallStore(inner, clock=clock, policy=RecallPolicy.weighted())
    found = call(fresh, "search", ADA, query=SEAT)
    assert [item.key for item in found] == ["seat", "peanuts"]
    (usage,) = call_usage(fresh, "seat")
    # The recall, and the search a day later.
    assert (usage.uses, usage.merit) == (2, 1)
    call(store, "correct", ADA, "seat", "I always book a window seat on flights")
    assert [memory.text for memory in call(fresh, "history", ADA, "seat")][1] == SEAT


def call_usage(store: RecallStore, key: str) -> list[Any]:
    with store.quiet():
        found = store.search(ADA, query=SEAT)
        chosen = store.recall(ADA, SEAT, policy=RecallPolicy.default(trigger=0.0, floor=0.0)).chosen
    assert found
    return [scored.candidate.usage for scored in chosen if scored.memory.key == key]


def test_policies_and_validity_survive_in_a_store_of_decimals(call: Call, clock: Clock) -> None:
    inner = DecimalStore()
    store = RecallStore(inner, clock=clock, stored_policies=True)
    policy = RecallPolicy.default(floor=0.2, half_life_hours=24.0)
    call(store, "set_policy", ADA, policy)
    again = RecallStore(inner, clock=clock, stored_policies=True)
    assert call(again, "policy_for", ADA) == policy
    call(store, "remember", ADA, PEANUTS, key="peanuts", ttl=timedelta(hours=1))
    clock.turn(hours=2)
    assert call(again, "recall", ADA, PEANUTS).memories == ()


# --- scores that are no cosines -------------------------------------------------------------------


class Scored(BaseStore):
    """A store that tells how near something is in another way than by its cosine."""

    def __init__(self, inner: InMemoryStore, score: Any) -> None:
        self.inner, self.score = inner, score
        self.embeddings = inner.embeddings
        self.index_config = inner.index_config

    def batch(self, ops: Iterable[Op]) -> list[Any]:
        return [self._scored(result) for result in self.inner.batch(ops)]

    async def abatch(self, ops: Iterable[Op]) -> list[Any]:
        return [self._scored(result) for result in await self.inner.abatch(ops)]

    def _scored(self, result: Any) -> Any:
        if not isinstance(result, list):
            return result
        return [self._item(item) if isinstance(item, SearchItem) else item for item in result]

    def _item(self, item: SearchItem) -> Item:
        score = None if item.score is None else self.score(item.score)
        times = (item.created_at, item.updated_at)
        return SearchItem(item.namespace, item.key, item.value, *times, score)


@pytest.mark.parametrize(
    "score",
    [
        pytest.param(lambda cosine: 1 - cosine, id="cosine distance"),
        pytest.param(lambda cosine: (2 - 2 * cosine) ** 0.5, id="Euclidean distance"),
        pytest.param(lambda cosine: 40 * cosine, id="inner product"),
        pytest.param(lambda cosine: -100 * (1 - cosine), id="negative distance"),
    ],
)
def test_scores_that_are_no_cosines_are_not_taken_for_any(
    inner: InMemoryStore, call: Call, score: Any
) -> None:
    store = RecallStore(Scored(inner, score))
    notes = {"seat": SEAT, "peanuts": PEANUTS, "cello": "I play the cello on Fridays"}
    for key, text in notes.items():
        call(store, "put", ADA, key, {"content": text})
    found = call(store, "recall", ADA, "Do I always book an aisle seat on flights?")
    assert [memory.key for memory in found.memories] == ["seat"]
    assert found.chosen[0].evidence.dense is None
    assert "no cosines; lexical only" in " ".join(found.trace.degraded)
    assert call(store, "recall", ADA, "Who composed Tosca?").memories == ()


# --- equal texts in one batch ---------------------------------------------------------------------


def test_equal_texts_may_come_in_one_batch(
    inner: InMemoryStore, embeddings: CountingEmbeddings, call: Call
) -> None:
    store = RecallStore(inner)
    call(store, "put", ADA, "old", {"content": "red wine"})
    keys = ("a", "b", "c", "b")
    texts = ("green tea", "green tea", "black tea", "black tea")
    puts = [PutOp(ADA, key, {"content": text}) for key, text in zip(keys, texts, strict=True)]
    assert call(store, "batch", puts) == [None] * 4
    assert store.get(ADA, "b").value == {"content": "black tea"}
    scores = {item.key: item.score for item in inner.search(ADA, query="black tea")}
    assert scores["b"] == scores["c"] == pytest.approx(1.0)
    assert {item.key for item in call(store, "search", ADA, query="tea")} == {"a", "b", "c", "old"}
    # Texts that differ still go to the embedder together.
    before = len(embeddings.documents)
    call(store, "batch", [PutOp(ADA, f"n{i}", {"content": f"note {i}"}) for i in range(5)])
    assert len(embeddings.documents) == before + 5


def test_equal_texts_are_imported_into_any_store(inner: InMemoryStore, tmp_path: Any) -> None:
    with LocalStore() as local:
        for key in ("a", "b"):
            local.put(ADA, key, {"content": "green tea"})
        export_jsonl(local, tmp_path / "all.jsonl")
    assert import_jsonl(inner, tmp_path / "all.jsonl") == 2
    assert {item.key for item in inner.search(ADA, query="green tea")} == {"a", "b"}


# --- what is wrapped ------------------------------------------------------------------------------


def test_a_store_is_wrapped_once() -> None:
    once = RecallStore(LocalStore())
    with pytest.raises(ConfigurationError, match="wrapped already"):
        RecallStore(once)


@pytest.mark.parametrize("inner", [None, "memory.db", {}])
def test_what_is_no_store_is_refused(inner: Any) -> None:
    with pytest.raises(ConfigurationError, match="LangGraph BaseStore, got"):
        RecallStore(inner)
