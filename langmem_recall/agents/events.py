"""How a run learns of its recalls, and which memories its answers cite; no text, no block."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, cast

from langchain_core.callbacks import adispatch_custom_event, dispatch_custom_event
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import RunnableConfig
from langsmith.run_helpers import get_current_run_tree

from langmem_recall.agents.turn import RecallRecord, memories_in, shown_id
from langmem_recall.flows.effects import Call
from langmem_recall.observe.show import recall_id
from langmem_recall.rendering import cited, without_citations
from langmem_recall.types import MemoryId, Recall

EVENT = "recall"
"""The type of the stream event and the name of the callback event."""


def announce(
    recall: Recall, record: RecallRecord, config: Mapping[str, Any], write: Callable[[Any], None]
) -> Call:
    """Write a new recall to the stream and the run's LangSmith metadata; the call: to callbacks."""
    # The id under which a `TraceLog` has all of it.
    event = {"type": EVENT, "trace": recall_id(recall), **record}
    write(event)
    run = get_current_run_tree()
    if run is not None:
        keys = [shown["key"] for shown in record["memories"]]
        run.add_metadata(
            {
                "recall_trace": event["trace"],
                "recall_reason": record["reason"],
                "recall_memories": len(keys),
                "recall_keys": ", ".join(keys),
                "recall_tokens": record["tokens"],
                "recall_degraded": "; ".join(record["degraded"]),
            }
        )
    run_config = cast(RunnableConfig, config)
    return Call(
        partial(dispatch_custom_event, EVENT, event, config=run_config),
        partial(adispatch_custom_event, EVENT, event, config=run_config),
    )


def cited_memories(answers: Sequence[AIMessage], records: Sequence[RecallRecord]) -> list[MemoryId]:
    """The memories that the answers cite, each once; a handle that was never shown is none."""
    shown = {memory["handle"]: shown_id(memory) for memory in memories_in(records)}
    handles = [handle for answer in answers for handle in cited(answer.text)]
    return list(dict.fromkeys(shown[handle] for handle in handles if handle in shown))


def without_handles(message: BaseMessage) -> BaseMessage:
    """An answer without its citations; other messages as they are."""
    if not isinstance(message, AIMessage):
        return message

    def strip(block: Any) -> Any:
        if isinstance(block, str):
            return without_citations(block)
        if isinstance(block, dict) and isinstance(block.get("text"), str):
            return {**block, "text": without_citations(block["text"])}
        return block

    content = message.content
    stripped = strip(content) if isinstance(content, str) else [strip(block) for block in content]
    return message.model_copy(update={"content": stripped})
