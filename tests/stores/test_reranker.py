"""A second opinion from a LangChain document compressor, and what happens when it fails."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from conftest import Call, Clock
from langchain_core.documents import BaseDocumentCompressor, Document
from langgraph.store.memory import InMemoryStore
from pydantic import Field

from langmem_recall.errors import ConfigurationError
from langmem_recall.flows.rerank import Reranker
from langmem_recall.stores.recall_store import RecallStore

NS = ("users", "ada")
CUE = "Which seat do I book on a flight?"
TEXTS = {
    "seat": "I always book an aisle seat on flights",
    "window": "On a flight at night I book a window seat",
    "front": "I book a seat on a flight near the front",
}


class Judge(BaseDocumentCompressor):
    """Orders documents by a function."""

    order: Callable[[Sequence[Document]], Sequence[Document]]
    asked: list[list[str]] = Field(default_factory=list)

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Any = None
    ) -> Sequence[Document]:
        self.asked.append([query, *(document.page_content for document in documents)])
        return self.order(documents)


def store_with(inner: InMemoryStore, clock: Clock, reranker: Any) -> RecallStore:
    store = RecallStore(inner, reranker=reranker, clock=clock)
    for key, text in TEXTS.items():
        store.remember(NS, text, key=key)
    return store


def keys(items: Sequence[Any]) -> list[str]:
    return [item.key for item in items]


def test_the_top_comes_in_the_order_of_the_reranker(
    inner: InMemoryStore, clock: Clock, call: Call
) -> None:
    plain = call(store_with(inner, clock, None), "search", NS, query=CUE)
    store = store_with(inner, clock, Judge(order=lambda documents: documents[::-1]))
    found = call(store, "search", NS, query=CUE)
    assert keys(found) == keys(plain)[::-1]
    assert {item.key: item.score for item in found} == {item.key: item.score for item in plain}
    recalled = call(store, "recall", NS, CUE)
    assert keys(recalled.memories) == keys(found)


def test_what_it_leaves_out_follows_in_the_order_of_the_blend(
    inner: InMemoryStore, clock: Clock, call: Call
) -> None:
    plain = keys(store_with(inner, clock, None).search(NS, query=CUE))
    store = store_with(inner, clock, Judge(order=lambda documents: documents[2:]))
    assert keys(call(store, "search", NS, query=CUE)) == [plain[2], plain[0], plain[1]]


def test_only_the_top_is_asked_about(inner: InMemoryStore, clock: Clock, call: Call) -> None:
    judge = Judge(order=lambda documents: documents[::-1], asked=[])
    plain = keys(store_with(inner, clock, None).search(NS, query=CUE))
    store = store_with(inner, clock, Reranker(judge, top=2))
    assert keys(call(store, "search", NS, query=CUE)) == [plain[1], plain[0], plain[2]]
    assert judge.asked == [[CUE, TEXTS[plain[0]], TEXTS[plain[1]]]]


def test_an_off_topic_cue_does_not_trouble_it(
    inner: InMemoryStore, clock: Clock, call: Call
) -> None:
    judge = Judge(order=lambda documents: documents, asked=[])
    store = store_with(inner, clock, judge)
    assert call(store, "recall", NS, "Who composed the opera Tosca?").chosen == ()
    assert judge.asked == []


def raising(_: Sequence[Document]) -> Sequence[Document]:
    raise OSError("no route")


def foreign(_: Sequence[Document]) -> Sequence[Document]:
    return [Document("something else")]


@pytest.mark.parametrize(
    ("order", "told"),
    [(raising, "(OSError)"), (foreign, "KeyError")],
    ids=["raising", "foreign"],
)
def test_when_it_fails_the_blend_stands_and_the_trace_says_so(
    inner: InMemoryStore, clock: Clock, call: Call, order: Any, told: str
) -> None:
    plain = keys(store_with(inner, clock, None).search(NS, query=CUE))
    recall = call(store_with(inner, clock, Judge(order=order)), "recall", NS, CUE)
    assert keys(recall.memories) == plain
    assert any(told in note and "blend as it is" in note for note in recall.trace.degraded)


def test_a_slow_one_is_not_waited_for(inner: InMemoryStore, clock: Clock, call: Call) -> None:
    never = threading.Event()

    def slow(documents: Sequence[Document]) -> Sequence[Document]:
        never.wait(20)
        return documents

    store = store_with(inner, clock, Reranker(Judge(order=slow), limit_s=0.05))
    recall = call(store, "recall", NS, CUE)
    never.set()
    assert len(recall.chosen) == 3
    assert any("TooLate" in note for note in recall.trace.degraded)


@pytest.mark.parametrize(
    "wrong", [lambda: Reranker("model"), lambda: Reranker(Judge(order=list), top=0)]
)
def test_a_wrong_reranker_is_refused_at_once(wrong: Callable[[], Reranker]) -> None:
    with pytest.raises(ConfigurationError, match="reranker"):
        wrong()
