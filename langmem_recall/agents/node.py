"""`recall_node`: recall for a plain StateGraph, as a node and as the messages for its model."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from langchain_core.messages import BaseMessage, convert_to_messages
from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.runtime import get_runtime
from typing_extensions import Unpack

from langmem_recall.agents.namespace import NamespaceTemplate, Template
from langmem_recall.agents.options import RecallOptions, options_of
from langmem_recall.agents.session import Session
from langmem_recall.agents.turn import ModelCall
from langmem_recall.flows.effects import CALLS, Call, arun, run


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
        return {"recalls": run(self._plan(input), CALLS).update}

    async def ainvoke(
        self, input: Any, config: RunnableConfig | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        """The async form of `invoke`."""
        return {"recalls": (await arun(self._plan(input), CALLS)).update}

    def messages(self, state: Any, model: Any = None) -> list[BaseMessage]:
        """The state's messages with the block among them, for a model's `invoke`.

        Args:
            state: The graph's state. A turn without a recall, or with a new cue, recalls here.
            model: The chat model, whose context window bounds the budget where it is known.
        """
        return run(self._plan(state, model), CALLS).prompt

    async def amessages(self, state: Any, model: Any = None) -> list[BaseMessage]:
        """The async form of `messages`."""
        return (await arun(self._plan(state, model), CALLS)).prompt

    def _plan(self, state: Any, model: Any = None) -> Generator[Call, Any, ModelCall]:
        is_mapping = isinstance(state, dict)
        found = state.get("messages") if is_mapping else getattr(state, "messages", None)
        return self._session.plan(state, convert_to_messages(found or []), get_runtime(), model)


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
    return RecallNode(Session(namespace, options_of("recall_node", options, "namespace")))
