"""A memory deleted by somebody else while a read is under way: the read goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from conftest import Call
from langchain_core.documents import BaseDocumentCompressor, Document
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore
from langgraph.store.postgres import PostgresStore

from langmem_recall.embeddings import LocalEmbeddings
from langmem_recall.flows.rerank import Reranker
from langmem_recall.policy import RecallPolicy
from langmem_recall.stores.local.store import LocalStore
from langmem_recall.stores.recall_store import RecallStore

NS = ("m", "ada")
CUE = "Which car is blue?"
INDEX: Any = {"dims": 256, "embed": LocalEmbeddings(), "fields": ["content"]}
VARIED = RecallPolicy.default(mmr_lambda=0.7)


class Meanwhile(BaseDocumentCompressor):
    """Stands for whatever happens between finding and choosing."""

    happens: Callable[[], None]

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Any = None
    ) -> Sequence[Document]:
        self.happens()
        return documents


@pytest.fixture(params=["memory", "local", "postgres"])
def bare(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BaseStore]:
    with ExitStack() as stack:
        if request.param == "memory":
            yield InMemoryStore(index=INDEX)
        elif request.param == "local":
            yield LocalStore(tmp_path / "m.db", index=INDEX)
        else:
            uri = request.getfixturevalue("postgres")
            store = stack.enter_context(PostgresStore.from_conn_string(uri, index=INDEX))
            store.setup()
            yield store


@pytest.mark.parametrize("gone", [["k1"], ["k0", "k1", "k2", "k3"]], ids=["one", "all"])
@pytest.mark.parametrize("read", ["recall", "search"])
def test_a_candidate_that_vanishes_does_not_break_the_read(
    bare: BaseStore, call: Call, tmp_path: Path, read: str, gone: list[str]
) -> None:
    other = LocalStore(tmp_path / "m.db", index=INDEX) if isinstance(bare, LocalStore) else None

    def delete() -> None:
        for key in gone:
            if other is None:
                store.delete(NS, key)
            else:
                other.delete(NS, key)
        if isinstance(bare, LocalStore):
            # Another thread's read is what makes this process see the deletion.
            bare.shelf(NS)

    reranker = Reranker(Meanwhile(happens=delete), limit_s=60.0)
    store = RecallStore(bare, reranker=reranker, policy=VARIED, record=False)
    for i in range(4):
        store.put(NS, f"k{i}", {"content": f"the car of person {i} is blue"})
    if read == "recall":
        found = [memory.key for memory in call(store, "recall", NS, CUE).memories]
    else:
        found = [item.key for item in call(store, "search", NS, query=CUE)]
    assert set(found) >= {"k0", "k1", "k2", "k3"} - set(gone)
    with store.quiet():
        left = [item.key for item in call(store, "search", NS, query=CUE)]
    assert sorted(left) == sorted({"k0", "k1", "k2", "k3"} - set(gone))
    call(store, "close")
