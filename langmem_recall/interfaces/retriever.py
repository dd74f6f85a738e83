"""Recall as a LangChain retriever: the memories that clear the gates, as documents."""

from __future__ import annotations

from typing import Any

from langchain_core.callbacks import (
    AsyncCallbackManagerForRetrieverRun,
    CallbackManagerForRetrieverRun,
)
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from pydantic import ConfigDict

from langmem_recall.policy import RecallPolicy
from langmem_recall.stores.recall_store import RecallStore
from langmem_recall.types import Recall


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

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun
    ) -> list[Document]:
        return documents_of(self.store.recall(self.namespace, query, policy=self.policy))

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun
    ) -> list[Document]:
        return documents_of(await self.store.arecall(self.namespace, query, policy=self.policy))


def documents_of(recall: Recall) -> list[Document]:
    """The memories of a recall, best first, each with what it was chosen by."""
    return [
        Document(
            scored.memory.text,
            id="/".join((*scored.memory.namespace, scored.memory.key)),
            metadata={
                "namespace": list(scored.memory.namespace),
                "key": scored.memory.key,
                "kind": scored.memory.kind,
                "source": scored.memory.source,
                "written_at": written and written.isoformat(),
                "relevance": scored.signals.relevance,
                "score": scored.score,
            },
        )
        for scored in recall.chosen
        for written in [scored.memory.written_at]
    ]
