"""`RecallMiddleware`: recall for agents made with LangChain's `create_agent`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Generator, Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, NotRequired

from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain.agents.middleware.types import (
    AgentMiddleware,
    AgentState,
    ExtendedModelResponse,
    ModelRequest,
    ModelResponse,
    PrivateStateAttr,
)
from langchain.tools.tool_node import ToolCallRequest
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langgraph.config import get_config
from langgraph.types import Command, interrupt
from typing_extensions import Unpack

from langmem_recall.agents.conversation import messages_of
from langmem_recall.agents.namespace import NamespaceTemplate, Template
from langmem_recall.agents.options import RecallOptions, check_names, options_of
from langmem_recall.agents.session import Session
from langmem_recall.agents.streaming import with_clean_stream, without_handles
from langmem_recall.agents.tools import memory_tools
from langmem_recall.agents.turn import ModelCall, RecallRecord, add_records
from langmem_recall.errors import ConfigurationError
from langmem_recall.flows.effects import CALLS, Call, arun, run

CHECKPOINTER = "__pregel_checkpointer"
CALL = "__pregel_call"
MARK = "langmem_recall_unverified"
"""Where a model's message tells what its call was shown; metadata is sent to no provider."""
UNKNOWN = "what the model was shown is not on record"


class RecallAgentState(AgentState[Any]):
    """The state of an agent with recall: what was recalled, private to the middleware."""

    recalls: NotRequired[Annotated[list[RecallRecord], PrivateStateAttr, add_records]]


class RecallMiddleware(AgentMiddleware[RecallAgentState, Any, Any]):
    """Recalls before each model call and shows the model what fits, outside the system prompt.

    The block is in the messages of the call alone: no checkpoint, history or stream mode has it.
    List this before retry and fallback middleware, or every retry searches again.

    Args:
        namespace: Labels with variables, as ("memories", "{user_id}"), filled from the run's
            context, else from its configuration; several tuples are recalled together.
        tools: Memory tools for the agent, as ("remember", "recall").
        trusted_tools: Tools whose output leaves what is remembered after it trustworthy.
        gate_tools: Names of tools with side effects: where the model call that asks for one was
            shown a memory that no trusted source vouches for, a human is asked before it runs;
            once, where LangChain's HumanInTheLoopMiddleware asks about the same tool.
        feedback: Count a memory that an answer cites as [m1] as useful.
        keep_citations: Leave the citations in the answer; without them, the token stream has none
            either.
        **options: See `langmem_recall.agents.options.Options`: store, policy, cue, placement,
            profile, replay, budget, summarizer, renderer, count, secret, deadline, queue,
            first_load, summarizer_limit, on_error, name.
    """

    state_schema = RecallAgentState

    def __init__(
        self,
        namespace: Template | NamespaceTemplate,
        *,
        tools: Sequence[str] = (),
        trusted_tools: Collection[str] = (),
        gate_tools: Collection[str] = (),
        feedback: bool = True,
        keep_citations: bool = True,
        **options: Unpack[RecallOptions],
    ) -> None:
        super().__init__()
        own = ("namespace", "tools", "trusted_tools", "gate_tools", "feedback", "keep_citations")
        self._session = Session(namespace, options_of("RecallMiddleware", options, *own))
        self._gate_tools = check_names("gate_tools", gate_tools, '("send_mail", "pay")')
        self._feedback = feedback
        self._keep_citations = keep_citations
        self.tools = memory_tools(
            self._session.template,
            store=options.get("store"),
            policy=options.get("policy"),
            names=tools,
            trusted_tools=trusted_tools,
        )

    @property
    def name(self) -> str:
        """What tells two of them in one agent apart: a name of its own, else what it reads."""
        spaces = ", ".join("/".join(space) for space in self._session.template.template)
        return self._session.options.name or f"{super().name}({spaces})"

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ExtendedModelResponse[Any]:
        """Recall, show, call the model, learn from what it cites."""
        call, prompted = run(self._before(request), CALLS)
        return run(self._after(call, handler(prompted)), CALLS)

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ExtendedModelResponse[Any]:
        """The async form of `wrap_model_call`."""
        call, prompted = await arun(self._before(request), CALLS)
        return await arun(self._after(call, await handler(prompted)), CALLS)

    def wrap_tool_call(
        self,
        request: ToolCallRequest,
        handler: Callable[[ToolCallRequest], ToolMessage | Command[Any]],
    ) -> ToolMessage | Command[Any]:
        """Ask a human before a gated tool runs on the word of an untrusted memory."""
        refused = approve(request, self._gate_tools)
        return handler(request) if refused is None else refused

    async def awrap_tool_call(
        self,
        request: ToolCallRequest,
        handler: Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]],
    ) -> ToolMessage | Command[Any]:
        """The async form of `wrap_tool_call`."""
        refused = approve(request, self._gate_tools)
        return await handler(request) if refused is None else refused

    def _before(
        self, request: ModelRequest[Any]
    ) -> Generator[Call, Any, tuple[ModelCall, ModelRequest[Any]]]:
        """Recall for a call, and put what was recalled into its request."""
        configurable = get_config().get("configurable") or {}
        if self._gate_tools and configurable.get(CHECKPOINTER) is None:
            # Without one the run could never go on.
            raise ConfigurationError(
                "gate_tools asks a human through an interrupt, and this agent has no checkpointer "
                "to wait with. Make it with create_agent(..., checkpointer=...), or leave "
                "gate_tools out."
            )
        given = (request.state, request.messages, request.runtime, request.model)
        call = yield from self._session.plan(*given)
        model = request.model if self._keep_citations else with_clean_stream(request.model)
        return call, request.override(messages=call.prompt, model=model)  # type: ignore[arg-type]

    def _after(
        self, call: ModelCall, response: ModelResponse[Any]
    ) -> Generator[Call, Any, ExtendedModelResponse[Any]]:
        """Learn from an answer, mark what its call was shown, and keep that in the state."""
        yield from self._session.learn(call, response.result, self._feedback)
        response.result = [with_mark(message, call.unverified) for message in response.result]
        if not self._keep_citations:
            response.result = [without_handles(message) for message in response.result]
        command: Command[Any] = Command(update={"recalls": call.update})
        return ExtendedModelResponse(response, command if call.update else None)


# --- side effects on the word of an untrusted memory need a human's approval ---


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
    answers = (said for said in messages_of(state) if isinstance(said, AIMessage))
    asking = [said for said in answers if call_id in [call["id"] for call in said.tool_calls]]
    shown = asking[-1].response_metadata.get(MARK) if asking else None
    return [*map(str, shown)] if isinstance(shown, list) else [UNKNOWN]


def _is_reviewed(request: ToolCallRequest) -> bool:
    """Whether LangChain's own middleware asks a human about this call, in this very agent.

    LangGraph does not tell a tool which agent it runs in, but its running loop has the agent's
    nodes. Where that cannot be found out, a human is asked by us as well.
    """
    configurable = request.runtime.config.get("configurable") or {}
    with suppress(Exception):
        nodes = configurable[CALL].keywords["schedule_task"].__self__.nodes.values()
        hooks = [getattr(node.bound, name, None) for node in nodes for name in ("func", "afunc")]
        for owner in (getattr(hook, "__self__", None) for hook in hooks):
            if isinstance(owner, HumanInTheLoopMiddleware):
                config = owner.interrupt_on.get(request.tool_call["name"])
                when = None if config is None else config.get("when")
                if config is not None and (when is None or when(request)):
                    return True
    return False
