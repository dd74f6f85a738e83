"""How a run learns of its recalls, and which memories its answers cite; no text, no block."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

from langchain_core.callbacks import adispatch_custom_event, dispatch_custom_event
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import RunnableConfig
from langsmith.run_helpers import get_current_run_tree

from langmem_recall.agents.records import RecallRecord, shown_id
from langmem_recall.agents.turn import PreparedCall
from langmem_recall.errors import described
from langmem_recall.observe.records import recall_id
from langmem_recall.rendering import cited, without_citations
from langmem_recall.types import MemoryId

logger = logging.getLogger(__name__)

EVENT = "recall"
"""The type of the stream event and the name of the callback event."""
FAULT = "A recall could not be announced"
"""A listener must not break the turn that it listens to."""

Write = Callable[[Any], None]


def announce(prepared: PreparedCall, config: Mapping[str, Any], write: Write) -> None:
    """Tell a new recall to the stream, to the run's callbacks and to its LangSmith metadata."""
    try:
        for event in _events(prepared, write):
            dispatch_custom_event(EVENT, event, config=cast(RunnableConfig, config))
    except Exception as fault:
        logger.warning("%s: %s", FAULT, described(fault))


async def aannounce(prepared: PreparedCall, config: Mapping[str, Any], write: Write) -> None:
    """The async twin of `announce`."""
    try:
        for event in _events(prepared, write):
            await adispatch_custom_event(EVENT, event, config=cast(RunnableConfig, config))
    except Exception as fault:
        logger.warning("%s: %s", FAULT, described(fault))


def _events(prepared: PreparedCall, write: Write) -> Iterator[dict[str, Any]]:
    if prepared.recall is None:
        return
    # The id under which a `TraceLog` has all of it.
    trace = recall_id(prepared.recall)
    for record in prepared.records:
        event = {"type": EVENT, "trace": trace, **record}
        write(event)
        _note_on_run(event)
        yield event


def _note_on_run(event: Mapping[str, Any]) -> None:
    """Metadata that LangSmith shows and filters by, on the run in which the recall was made."""
    run = get_current_run_tree()
    if run is None:
        return
    run.add_metadata(
        {
            "recall_trace": event["trace"],
            "recall_reason": event["reason"],
            "recall_memories": len(event["memories"]),
            "recall_keys": ", ".join(shown["key"] for shown in event["memories"]),
            "recall_tokens": event["tokens"],
            "recall_degraded": "; ".join(event["degraded"]),
        }
    )


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
