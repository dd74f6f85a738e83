"""Recall as a LangChain retriever: the memories that clear the gates, as documents."""

from __future__ import annotations

from typing import Any

from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from pydantic import ConfigDict

from langmem_recall.policy import RecallPolicy
from langmem_recall.stores.recall_store import RecallStore


class RecallRetriever(BaseRetriever):
    """Gives chains what `RecallStore.recall` gives agents; no document is an answer, too.

    Args:
        store: Where the memories are.
        namespace: Labels, or several tuples of them to be ranked together.
        policy: How to rank; the store's own policy when absent.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    store: RecallStore
    namespace: tuple[Any, ...]
    policy: RecallPolicy | None = None

    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        """The memories of a recall, best first, each with what it was chosen by."""
        documents = []
        for scored in self.store.recall(self.namespace, query, policy=self.policy).chosen:
            memory, written = scored.memory, scored.memory.written_at
            metadata = {
                "namespace": list(memory.namespace),
                "key": memory.key,
                "kind": memory.kind,
                "source": memory.source,
                "written_at": written and written.isoformat(),
                "relevance": scored.signals.relevance,
                "score": scored.score,
            }
            name = "/".join((*memory.namespace, memory.key))
            documents.append(Document(memory.text, id=name, metadata=metadata))
        return documents
