"""`RecallMiddleware`: recall for agents made with LangChain's `create_agent`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Generator, Sequence
from typing import Annotated, Any, NotRequired

from langchain.agents.middleware.types import (
    AgentMiddleware,
    AgentState,
    ExtendedModelResponse,
    ModelRequest,
    ModelResponse,
    PrivateStateAttr,
)
from langchain.tools.tool_node import ToolCallRequest
from langchain_core.messages import ToolMessage
from langgraph.config import get_config
from langgraph.types import Command
from typing_extensions import Unpack

from langmem_recall.agents.approval import approve, check_checkpointer, with_mark
from langmem_recall.agents.events import without_handles
from langmem_recall.agents.namespace import NamespaceTemplate, Template
from langmem_recall.agents.options import Options, RecallOptions, check_names
from langmem_recall.agents.session import Session
from langmem_recall.agents.tools import memory_tools
from langmem_recall.agents.turn import PreparedCall, RecallRecord, add_records
from langmem_recall.flows.effects import CALLS, Call, arun, run


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
        keep_citations: Leave the citations in the answer.
        **options: See `langmem_recall.agents.options.Options`: store, policy, cue, placement,
            replay, budget, summarizer, renderer, count, secret, deadline, first_load,
            summarizer_limit, on_error.
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
        self._session = Session(namespace, Options(**options))
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

    def wrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], ModelResponse[Any]],
    ) -> ExtendedModelResponse[Any]:
        """Recall, show, call the model, learn from what it cites."""
        prepared = run(self._plan(request), CALLS)
        response = handler(request.override(messages=prepared.messages))  # type: ignore[arg-type]
        run(self._session.learn(prepared, response.result, self._feedback), CALLS)
        return self._finish(response, prepared)

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ExtendedModelResponse[Any]:
        """The async form of `wrap_model_call`."""
        prepared = await arun(self._plan(request), CALLS)
        response = await handler(request.override(messages=prepared.messages))  # type: ignore[arg-type]
        await arun(self._session.learn(prepared, response.result, self._feedback), CALLS)
        return self._finish(response, prepared)

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

    def _plan(self, request: ModelRequest[Any]) -> Generator[Call, Any, PreparedCall]:
        if self._gate_tools:
            check_checkpointer(get_config())
        return self._session.plan(request.state, request.messages, request.runtime, request.model)

    def _finish(
        self, response: ModelResponse[Any], prepared: PreparedCall
    ) -> ExtendedModelResponse[Any]:
        response.result = [with_mark(message, prepared.unverified) for message in response.result]
        if not self._keep_citations:
            response.result = [without_handles(message) for message in response.result]
        command: Command[Any] = Command(update={"recalls": prepared.update})
        return ExtendedModelResponse(response, command if prepared.update else None)
