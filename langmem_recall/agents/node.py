"""`recall_node`: recall for a plain StateGraph, as a node and as the messages for its model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.messages import BaseMessage, convert_to_messages
from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.config import get_config
from langgraph.runtime import get_runtime
from typing_extensions import Unpack

from langmem_recall.agents.events import aannounce, announce
from langmem_recall.agents.namespace import NamespaceTemplate, Template
from langmem_recall.agents.options import Options, RecallOptions
from langmem_recall.agents.records import read_records
from langmem_recall.agents.session import Session
from langmem_recall.agents.turn import ModelCall, PreparedCall
from langmem_recall.flows.effects import CALLS, arun, run


class RecallNode(Runnable[Any, dict[str, Any]]):
    """A node that recalls for the turn, and composes what the model is given.

    As a node it writes keys and scores to the state's `recalls`; `messages(state)` puts the block
    among the messages, which are never written back.
    """

    name = "recall"

    def __init__(self, session: Session) -> None:
        self._session = session

    def invoke(
        self, input: Any, config: RunnableConfig | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        """Recall for the state's turn; the update for its `recalls`."""
        return {"recalls": self._prepared(input, None).update}

    async def ainvoke(
        self, input: Any, config: RunnableConfig | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        """The async twin of `invoke`."""
        return {"recalls": (await self._aprepared(input, None)).update}

    def messages(self, state: Any, model: Any = None) -> list[BaseMessage]:
        """The state's messages with the block among them, for a model's `invoke`.

        Args:
            state: The graph's state. A turn without a recall, or with a new cue, recalls here.
            model: The chat model, whose context window bounds the budget where it is known.
        """
        return self._prepared(state, model).messages

    async def amessages(self, state: Any, model: Any = None) -> list[BaseMessage]:
        """The async twin of `messages`."""
        return (await self._aprepared(state, model)).messages

    def _prepared(self, state: Any, model: Any) -> PreparedCall:
        scene = self._scene(state, model)
        prepared = run(self._session.plan(scene), CALLS)
        announce(prepared, scene.config, get_runtime().stream_writer)
        return prepared

    async def _aprepared(self, state: Any, model: Any) -> PreparedCall:
        scene = self._scene(state, model)
        prepared = await arun(self._session.plan(scene), CALLS)
        await aannounce(prepared, scene.config, get_runtime().stream_writer)
        return prepared

    def _scene(self, state: Any, model: Any) -> ModelCall:
        runtime = get_runtime()
        records, damaged = read_records(state)
        return ModelCall(
            state=state,
            messages=_messages(state),
            records=records,
            damaged=damaged,
            context=runtime.context,
            config=get_config(),
            store=runtime.store,
            model=model,
        )


def recall_node(
    namespace: Template | NamespaceTemplate, **options: Unpack[RecallOptions]
) -> RecallNode:
    """Recall as a node of a StateGraph whose state mixes in `RecallState`.

    Args:
        namespace: Labels with variables, as ("memories", "{user_id}"), filled from the run's
            context, else from its configuration; several tuples are recalled together.
        **options: See `RecallMiddleware`.

    Returns:
        The node; `node.messages(state)` is what the model should be given.
    """
    return RecallNode(Session(namespace, Options(**options)))


def _messages(state: Any) -> Sequence[BaseMessage]:
    held = state.get("messages") if isinstance(state, dict) else getattr(state, "messages", None)
    return convert_to_messages(held or [])
