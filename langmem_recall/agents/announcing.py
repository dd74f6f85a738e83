"""How a run learns of its recalls: stream, LangChain callbacks and LangSmith; no text, no block."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

from langchain_core.callbacks import adispatch_custom_event, dispatch_custom_event
from langchain_core.runnables import RunnableConfig
from langsmith.run_helpers import get_current_run_tree

from langmem_recall.agents.scene import PreparedCall
from langmem_recall.errors import described
from langmem_recall.observe.records import recall_id

logger = logging.getLogger(__name__)

EVENT = "recall"
"""The type of the stream event and the name of the callback event."""
FAULT = "A recall could not be announced"
"""Whoever listens must not break the turn that he listens to."""

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
