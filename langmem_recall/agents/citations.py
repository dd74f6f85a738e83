"""Handles that an answer cites: which memories they stand for, and answers without them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage

from langmem_recall.agents.records import RecallRecord, shown_id
from langmem_recall.rendering import cited, without_citations
from langmem_recall.types import MemoryId


def cited_memories(answers: Sequence[AIMessage], records: Sequence[RecallRecord]) -> list[MemoryId]:
    """The memories that the answers cite, each once; a handle that nobody was shown is none."""
    shown = {one["handle"]: shown_id(one) for record in records for one in record["memories"]}
    handles = [handle for answer in answers for handle in cited(answer.text)]
    return list(dict.fromkeys(shown[handle] for handle in handles if handle in shown))


def without_handles(message: BaseMessage) -> BaseMessage:
    """An answer without its citations; other messages as they are."""
    if not isinstance(message, AIMessage):
        return message
    content = message.content
    if isinstance(content, str):
        return message.model_copy(update={"content": without_citations(content)})
    return message.model_copy(update={"content": [_without(block) for block in content]})


def _without(block: Any) -> Any:
    if isinstance(block, str):
        return without_citations(block)
    if isinstance(block, dict) and isinstance(block.get("text"), str):
        return {**block, "text": without_citations(block["text"])}
    return block
