"""What a store does without, and where it says so."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import pytest
from bench import ADA, CUE, MEAL, SEAT, Bench
from conftest import Call, Clock
from faulty import Fault, FaultyEmbeddings, FaultyLocal
from langchain_core.documents import BaseDocumentCompressor, Document

from langmem_recall import RecallStore
from langmem_recall.flows.rerank import PLACE


class Backwards(BaseDocumentCompressor):
    """Names places from the end."""

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Any = None
    ) -> Sequence[Document]:
        return [Document("", metadata={PLACE: -1 - place}) for place in range(len(documents))]


def test_a_reranker_that_names_places_that_are_none_is_not_heeded(call: Call) -> None:
    store = RecallStore(
        FaultyLocal("", Fault("idle"), FaultyEmbeddings(Fault("idle"))),
        reranker=Backwards(),
        clock=Clock(),
    )
    store.remember(ADA, SEAT, key="seat")
    store.remember(ADA, MEAL, key="meal")
    recall = call(store, "recall", ADA, CUE)
    assert [memory.key for memory in recall.memories] == ["seat", "meal"]
    assert recall.trace.degraded == ("reranker failed (KeyError); blend as it is",)


def test_a_search_has_no_trace_so_the_log_says_once_what_it_went_without(
    call: Call, caplog: pytest.LogCaptureFixture
) -> None:
    fault = Fault("raises")
    store = RecallStore(FaultyLocal("", fault, FaultyEmbeddings(fault)), clock=Clock())
    store.remember(ADA, SEAT, key="seat")
    said = "A search went without a part: the embedder failed (OSError); lexical only"
    for strikes in (True, True, False, True):
        fault.is_on = strikes
        with caplog.at_level(logging.WARNING, "langmem_recall"):
            assert [item.key for item in call(store, "search", ADA, query=CUE)] == ["seat"]
    assert [record.message for record in caplog.records].count(said) == 2


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("surface", ["middleware", "node"])
def test_a_store_that_was_never_writable_still_shows_its_memories(mode: str, surface: str) -> None:
    """The nonces' secret, which the first turn keeps in the store, is then the process's own."""
    fault = Fault("raises")
    bench = Bench("writing", fault, mode, surface, "in memory")
    fault.strike()
    outcome = bench.recalls()
    assert outcome.is_shown
    assert outcome.told == ""
    assert "<recalled-memories" in str(bench.model.seen[-1])
    bench.close()
