"""What a model call is made from and what comes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from langchain_core.messages import BaseMessage
from langgraph.store.base import BaseStore

from langmem_recall.agents.records import RecallRecord
from langmem_recall.types import Namespace, Recall


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
