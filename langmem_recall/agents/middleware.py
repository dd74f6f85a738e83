"""`RecallMiddleware`: recall for agents made with LangChain's `create_agent`."""

from __future__ import annotations

import logging
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
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langgraph.config import get_config
from langgraph.types import Command
from typing_extensions import Unpack

from langmem_recall.agents.approval import approve, check_checkpointer, marked
from langmem_recall.agents.events import aannounce, announce, cited_memories, without_handles
from langmem_recall.agents.namespace import NamespaceTemplate, Template
from langmem_recall.agents.options import Options, RecallOptions
from langmem_recall.agents.records import RecallRecord, add_records, read_records
from langmem_recall.agents.session import Session
from langmem_recall.agents.tools import memory_tools
from langmem_recall.agents.turn import ModelCall, PreparedCall
from langmem_recall.errors import ConfigurationError, described
from langmem_recall.flows.effects import CALLS, Call, arun, run

logger = logging.getLogger(__name__)


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
        self._gate_tools = _names(gate_tools)
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
        scene = self._scene(request)
        prepared = run(self._session.plan(scene), CALLS)
        announce(prepared, scene.config, request.runtime.stream_writer)
        response = handler(_shown(request, prepared))
        run(self._learned(response, scene, prepared), CALLS)
        return self._answered(response, prepared)

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ExtendedModelResponse[Any]:
        """The async twin of `wrap_model_call`."""
        scene = self._scene(request)
        prepared = await arun(self._session.plan(scene), CALLS)
        await aannounce(prepared, scene.config, request.runtime.stream_writer)
        response = await handler(_shown(request, prepared))
        await arun(self._learned(response, scene, prepared), CALLS)
        return self._answered(response, prepared)

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
        """The async twin of `wrap_tool_call`."""
        refused = approve(request, self._gate_tools)
        return await handler(request) if refused is None else refused

    def _scene(self, request: ModelRequest[Any]) -> ModelCall:
        config = get_config()
        if self._gate_tools:
            check_checkpointer(config)
        records, damaged = read_records(request.state)
        return ModelCall(
            state=request.state,
            messages=request.messages,
            records=records,
            damaged=damaged,
            context=request.runtime.context,
            config=config,
            store=request.runtime.store,
            model=request.model,
        )

    def _learned(
        self, response: ModelResponse[Any], scene: ModelCall, prepared: PreparedCall
    ) -> Generator[Call, Any, None]:
        """Feedback from citations, and usage written at the end of the run."""
        store = self._session.store_of(scene)
        answers = _answers(response)
        cited = cited_memories(answers, prepared.handles)
        try:
            if self._feedback:
                for namespace, key in cited:
                    store.feedback(namespace, key)
            if not any(answer.tool_calls for answer in answers):
                yield from self._session.written(store, prepared)
        except Exception as fault:
            logger.warning("What a turn used could not be written: %s", described(fault))

    def _answered(
        self, response: ModelResponse[Any], prepared: PreparedCall
    ) -> ExtendedModelResponse[Any]:
        response.result = [marked(message, prepared.unverified) for message in response.result]
        if not self._keep_citations:
            response.result = [without_handles(message) for message in response.result]
        command: Command[Any] = Command(update={"recalls": prepared.update})
        return ExtendedModelResponse(response, command if prepared.update else None)


def _shown(request: ModelRequest[Any], prepared: PreparedCall) -> ModelRequest[Any]:
    return request.override(messages=prepared.messages)  # type: ignore[arg-type]


def _answers(response: ModelResponse[Any]) -> list[AIMessage]:
    messages: Sequence[BaseMessage] = response.result
    return [message for message in messages if isinstance(message, AIMessage)]


def _names(held: Collection[str]) -> tuple[str, ...]:
    if isinstance(held, str) or not all(isinstance(name, str) for name in held):
        raise ConfigurationError(
            f'gate_tools must be names of tools, got {held!r}. Write ("send_mail", "pay").'
        )
    return tuple(held)
