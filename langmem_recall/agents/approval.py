"""Side effects on the word of an untrusted memory need a human's approval."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from langchain.tools.tool_node import ToolCallRequest
from langchain_core.messages import BaseMessage, ToolMessage
from langgraph.types import interrupt

from langmem_recall.agents.placement import message_keys
from langmem_recall.agents.records import RecallRecord, records_of
from langmem_recall.agents.thread import artifact_of
from langmem_recall.cue import latest_human
from langmem_recall.errors import ConfigurationError
from langmem_recall.types import TRUST, VERIFIED_TRUST

CHECKPOINTER = "__pregel_checkpointer"


def check_checkpointer(config: Mapping[str, Any]) -> None:
    """Asking a human needs a checkpointer; without one the run could never go on."""
    if (config.get("configurable") or {}).get(CHECKPOINTER) is None:
        raise ConfigurationError(
            "gate_tools asks a human through an interrupt, and this agent has no checkpointer to "
            "wait with. Make it with create_agent(..., checkpointer=...), or leave gate_tools out."
        )


def approve(request: ToolCallRequest, gated: Collection[str], replay: bool) -> ToolMessage | None:
    """Ask a human where it is needed; a message in the tool's place when the answer is no.

    Args:
        request: The call that is about to be made.
        gated: Names of the tools that need approval.
        replay: Whether the model sees the blocks of past turns too.
    """
    call = request.tool_call
    if call["name"] not in gated:
        return None
    doubtful = _doubtful(request.state, replay)
    if not doubtful:
        return None
    answer = interrupt(_question(call["name"], call["args"], doubtful))
    if _is_yes(answer):
        return None
    return ToolMessage(
        f"A human did not approve {call['name']}: this turn rests on memories that nobody has "
        "verified. Do not call it again; tell the user what you wanted to do and why.",
        name=call["name"],
        tool_call_id=call["id"],
        status="error",
    )


def _doubtful(state: Any, replay: bool) -> list[str]:
    """Memories the model sees, in blocks or from the recall tool, that nobody vouches for."""
    messages = _messages(state)
    shown: list[Mapping[str, Any]] = [
        memory
        for record in _in_view(records_of(state), messages, replay)
        for memory in record["memories"]
    ]
    shown += [memory for message in messages for memory in artifact_of(message)]
    told = [
        f"{memory['key']} ({memory['source']})"
        for memory in shown
        if TRUST.get(memory["source"], 0.0) < VERIFIED_TRUST
    ]
    return list(dict.fromkeys(told))


def _in_view(
    records: Sequence[RecallRecord], messages: Sequence[BaseMessage], replay: bool
) -> list[RecallRecord]:
    place = latest_human(messages)
    keys = message_keys(messages)
    # Where the turn's beginning was summarised away, the latest record tells which turn this is.
    latest = [record["turn"] for record in records[-1:]] if place is None else [keys[place]]
    turns = {*latest, *(keys if replay else ())}
    return [record for record in records if record["turn"] in turns]


def _messages(state: Any) -> Sequence[BaseMessage]:
    held = state.get("messages") if isinstance(state, Mapping) else getattr(state, "messages", ())
    return held or ()


def _question(name: str, args: Mapping[str, Any], doubtful: Sequence[str]) -> Any:
    """In the form of LangChain's own requests for approval, so that the same pages show it."""
    told = ", ".join(doubtful)
    description = f"{name} would run in a turn that rests on unverified memories: {told}"
    return {
        "action_requests": [{"name": name, "args": dict(args), "description": description}],
        "review_configs": [{"action_name": name, "allowed_decisions": ["approve", "reject"]}],
    }


def _is_yes(answer: Any) -> bool:
    if isinstance(answer, Mapping):
        decisions = answer.get("decisions") or [answer]
        return all(isinstance(one, Mapping) and one.get("type") == "approve" for one in decisions)
    return answer is True or answer == "approve"
