"""What a model call is made from and what comes of it; how agent plans are carried out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

from langchain_core.messages import BaseMessage
from langgraph.store.base import BaseStore

from langmem_recall.agents.records import RecallRecord
from langmem_recall.deadline import Deadline
from langmem_recall.types import Namespace, Recall


class Step(NamedTuple):
    """A call with a time limit, in both its ways."""

    call: Callable[[], Any]
    acall: Callable[[], Awaitable[Any]]
    limit: Deadline


class Steps:
    """Carries steps out; the host that `run` and `arun` drive agent plans with."""

    @staticmethod
    def perform(step: Step) -> Any:
        """Carry one step out within its limit."""
        return step.limit.run(step.call)

    @staticmethod
    async def aperform(step: Step) -> Any:
        """The same on the event loop."""
        return await step.limit.arun(step.acall)


STEPS = Steps()


class ModelCall(NamedTuple):
    """All that a model call is made from."""

    state: Any
    messages: Sequence[BaseMessage]
    records: Sequence[RecallRecord]
    context: Any
    config: Mapping[str, Any]
    store: BaseStore | None
    model: Any = None
    damaged: Sequence[str] = ()
    """Entries of the state's records that cannot be read."""


class PreparedCall(NamedTuple):
    """The messages a model is given, and what is new about them."""

    messages: list[BaseMessage]
    records: list[RecallRecord]
    """New ones, to be added to the state."""
    recall: Recall | None
    """The recall that was made for this call, if one was."""
    handles: list[RecallRecord]
    """All records that an answer may cite."""
    update: list[RecallRecord]
    """Records of the blocks in the messages that the state does not have yet."""
    unverified: list[str]
    """What these messages show, in blocks or results of tools, that nobody vouches for."""


class Turn(NamedTuple):
    """Where in a conversation a model call stands."""

    key: str
    place: int
    """Index of the message that began it; -1 when no human has spoken."""
    thread_id: str | None
    namespaces: tuple[Namespace, ...]
    keys: tuple[str, ...]
    """Keys of all messages."""
