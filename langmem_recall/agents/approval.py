"""Side effects on the word of an untrusted memory need a human's approval."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain.tools.tool_node import ToolCallRequest
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langgraph.types import interrupt

from langmem_recall.agents.conversation import messages_of
from langmem_recall.errors import ConfigurationError

CHECKPOINTER = "__pregel_checkpointer"
CALL = "__pregel_call"
MARK = "langmem_recall_unverified"
"""Where a model's message tells what its call was shown; metadata is sent to no provider."""
UNKNOWN = "what the model was shown is not on record"


def check_checkpointer(config: Mapping[str, Any]) -> None:
    """Asking a human needs a checkpointer; without one the run could never go on."""
    if (config.get("configurable") or {}).get(CHECKPOINTER) is None:
        raise ConfigurationError(
            "gate_tools asks a human through an interrupt, and this agent has no checkpointer to "
            "wait with. Make it with create_agent(..., checkpointer=...), or leave gate_tools out."
        )


def with_mark(message: BaseMessage, unverified: Sequence[str]) -> BaseMessage:
    """A model's message with the unverified memories that its call was shown.

    The mark goes where the message goes: into checkpoints, other workers, replays and hand-offs. So
    approval reads what stood in this very call, whatever else the state has kept or lost.
    """
    if not isinstance(message, AIMessage):
        return message
    before = message.response_metadata.get(MARK)
    shown = list(dict.fromkeys((*(before if isinstance(before, list) else ()), *unverified)))
    metadata = {**message.response_metadata, MARK: shown}
    return message.model_copy(update={"response_metadata": metadata})


def approve(request: ToolCallRequest, gated: Collection[str]) -> ToolMessage | None:
    """Ask a human before a gated tool runs; a message in its place when the answer is no."""
    call = request.tool_call
    name = call["name"]
    if name not in gated:
        return None
    doubtful = _shown_unverified(request.state, call["id"])
    if not doubtful or _is_reviewed(request):
        return None
    reason = f"{name} would run in a turn that rests on unverified memories: {', '.join(doubtful)}"
    # In the form of LangChain's own requests for approval, so that the same pages show it.
    answer = interrupt(
        {
            "action_requests": [{"name": name, "args": dict(call["args"]), "description": reason}],
            "review_configs": [{"action_name": name, "allowed_decisions": ["approve", "reject"]}],
        }
    )
    if isinstance(answer, Mapping):
        decisions = answer.get("decisions") or [answer]
        is_yes = all(isinstance(one, Mapping) and one.get("type") == "approve" for one in decisions)
    else:
        is_yes = answer is True or answer == "approve"
    if is_yes:
        return None
    return ToolMessage(
        f"A human did not approve {name}: this turn rests on memories that nobody has "
        "verified. Do not call it again; tell the user what you wanted to do and why.",
        name=name,
        tool_call_id=call["id"],
        status="error",
    )


def _shown_unverified(state: Any, call_id: str | None) -> list[str]:
    """The unverified memories that the model was shown when it asked for this call."""
    for message in reversed(messages_of(state)):
        if isinstance(message, AIMessage) and any(
            call["id"] == call_id for call in message.tool_calls
        ):
            shown = message.response_metadata.get(MARK)
            return [*map(str, shown)] if isinstance(shown, list) else [UNKNOWN]
    return [UNKNOWN]


def _is_reviewed(request: ToolCallRequest) -> bool:
    """Whether LangChain's own middleware asks a human about this call, in this very agent.

    LangGraph does not tell a tool which agent it runs in, but its running loop has the agent's
    nodes. Where that cannot be found out, a human is asked by us as well.
    """
    configurable = request.runtime.config.get("configurable") or {}
    try:
        nodes = configurable[CALL].keywords["schedule_task"].__self__.nodes.values()
        hooks = [getattr(node.bound, name, None) for node in nodes for name in ("func", "afunc")]
        for owner in (getattr(hook, "__self__", None) for hook in hooks):
            if isinstance(owner, HumanInTheLoopMiddleware):
                config = owner.interrupt_on.get(request.tool_call["name"])
                if config is not None:
                    when = config.get("when")
                    if when is None or when(request):
                        return True
    except Exception:
        return False
    return False
