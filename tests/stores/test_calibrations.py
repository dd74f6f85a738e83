from __future__ import annotations

import threading
from collections.abc import Iterable

import pytest
from conftest import Call, CountingEmbeddings
from langgraph.store.base import Op, Result
from langgraph.store.memory import InMemoryStore

from langmem_recall import Caching
from langmem_recall.deadline import loading
from langmem_recall.flows import calibrations
from langmem_recall.flows.calibrations import CALIBRATION
from langmem_recall.ranking.calibration import PANELS
from langmem_recall.stores.recall_store import RecallStore

NS = ("memories", "ada")
CUE = "Which seat should I book for my flight?"
PANEL = len(PANELS["en"])


@pytest.fixture(autouse=True)
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrations, "SLOW_S", -1.0)


@pytest.fixture
def inner(embeddings: CountingEmbeddings) -> InMemoryStore:
    store = InMemoryStore(index={"dims": 256, "embed": embeddings, "fields": ["content"]})
    store.put(NS, "seat", {"content": "I always book an aisle seat on flights"})
    return store


def relevance(call: Call, inner: InMemoryStore) -> float:
    (scored,) = call(RecallStore(inner, record=False), "recall", NS, CUE).chosen
    return float(scored.signals.relevance)


def asked(embeddings: CountingEmbeddings) -> int:
    """Questions of the panel that were embedded since the last look, all as documents."""
    questions = {question for question, _ in PANELS["en"]}
    assert not questions & set(embeddings.queries)
    count = len(set(embeddings.documents) & questions)
    embeddings.documents.clear()
    return count


def test_a_second_process_reads_what_the_first_one_measured(
    call: Call, inner: InMemoryStore, embeddings: CountingEmbeddings
) -> None:
    first = relevance(call, inner)
    assert asked(embeddings) == PANEL
    assert relevance(call, inner) == first
    # One text tells whether an embedder without a name is still the same.
    assert asked(embeddings) == 1


def test_what_was_measured_of_a_model_that_has_a_name_is_taken_at_its_word(
    call: Call, embeddings: CountingEmbeddings
) -> None:
    embeddings.identity = "a model of ours"
    inner = InMemoryStore(index={"dims": 256, "embed": embeddings, "fields": ["content"]})
    inner.put(NS, "seat", {"content": "I always book an aisle seat on flights"})
    first = relevance(call, inner)
    assert asked(embeddings) == PANEL
    assert relevance(call, inner) == first
    assert asked(embeddings) == 0


def test_a_quick_embedder_is_measured_and_nothing_is_stored(
    call: Call,
    inner: InMemoryStore,
    embeddings: CountingEmbeddings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(calibrations, "SLOW_S", 1e9)
    assert relevance(call, inner) == relevance(call, inner)
    assert inner.search(CALIBRATION) == []


def test_loading_a_model_does_not_make_it_slow(
    call: Call,
    inner: InMemoryStore,
    embeddings: CountingEmbeddings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(calibrations, "SLOW_S", 0.5)
    plain = embeddings.embed_documents

    def load_and_embed(texts: list[str]) -> list[list[float]]:
        with loading():
            threading.Event().wait(0.6)
        return plain(texts)

    monkeypatch.setattr(embeddings, "embed_documents", load_and_embed)
    assert relevance(call, inner) > 0.5
    assert inner.search(CALIBRATION) == []


def test_another_model_under_the_same_name_is_measured_anew(
    call: Call, inner: InMemoryStore, embeddings: CountingEmbeddings
) -> None:
    relevance(call, inner)
    asked(embeddings)
    embeddings.spoil = lambda vector: vector[::-1]
    inner.put(NS, "seat", {"content": "I always book an aisle seat on flights"})
    relevance(call, inner)
    assert asked(embeddings) == PANEL


@pytest.mark.parametrize("damage", [{}, {"mean": "x", "sd": 1, "probe": []}, {"probe": None}])
def test_a_damaged_record_is_measured_anew(
    call: Call, inner: InMemoryStore, embeddings: CountingEmbeddings, damage: dict[str, object]
) -> None:
    first = relevance(call, inner)
    (kept,) = inner.search(CALIBRATION)
    inner.put(CALIBRATION, kept.key, damage, index=False)
    asked(embeddings)
    assert relevance(call, inner) == first
    assert asked(embeddings) == PANEL


def test_a_sidecar_that_fails_leaves_the_measuring(
    call: Call, inner: InMemoryStore, embeddings: CountingEmbeddings
) -> None:
    class Broken(InMemoryStore):
        def batch(self, ops: Iterable[Op]) -> list[Result]:
            held = list(ops)
            if any(getattr(op, "namespace", ())[:2] == CALIBRATION for op in held):
                raise ConnectionError("no calibration")
            return super().batch(held)

        async def abatch(self, ops: Iterable[Op]) -> list[Result]:
            return self.batch(ops)

    store = RecallStore(inner, record=False, caching=Caching(usage_store=Broken()))
    assert call(store, "recall", NS, CUE).memories
    assert asked(embeddings) == PANEL
