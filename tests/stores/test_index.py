from __future__ import annotations

from typing import Any

import pytest
from conftest import Clock, CountingEmbeddings
from langgraph.store.memory import InMemoryStore

from langmem_recall.stores import backend as backend_module
from langmem_recall.stores.recall_store import RecallStore


@pytest.fixture
def store(embeddings: CountingEmbeddings, clock: Clock) -> RecallStore:
    inner = InMemoryStore(index={"dims": 256, "embed": embeddings, "fields": ["content"]})
    for user in ("ann", "bob", "cat"):
        for n in range(10):
            inner.put(("memories", user), f"n{n}", {"content": f"{user}'s note {n} about tea"})
    return RecallStore(inner, clock=clock)


def held(store: RecallStore) -> dict[str, int]:
    indexes: Any = store._backend._indexes
    return {prefix[1]: index.catalog.size for prefix, index in indexes.items()}


def test_indexes_searched_longest_ago_make_room_when_all_hold_too_much(
    store: RecallStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend_module, "MOST_MEMORIES", 20)
    for user in ("ann", "bob", "ann", "cat"):
        assert len(store.search(("memories", user), query="tea", limit=20)) == 10
    assert held(store) == {"ann": 10, "cat": 10}


def test_one_index_may_hold_more_than_all_should(
    store: RecallStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend_module, "MOST_MEMORIES", 5)
    for user in ("ann", "bob"):
        store.search(("memories", user), query="tea")
    assert held(store) == {"bob": 10}
