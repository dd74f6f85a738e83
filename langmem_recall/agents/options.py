"""The options that node and middleware take, as their callers spell them."""

from __future__ import annotations

from typing import TypedDict

from langchain_core.language_models import BaseChatModel
from langgraph.store.base import BaseStore

from langmem_recall.agents.block import Count, Renderer
from langmem_recall.agents.placement import Placement
from langmem_recall.agents.session import CueBuilder, OnError
from langmem_recall.policy import RecallPolicy


class RecallOptions(TypedDict, total=False):
    """Each is explained in `langmem_recall.agents.session.Options`."""

    store: BaseStore | None
    policy: RecallPolicy | None
    cue: CueBuilder
    placement: Placement
    replay: bool
    budget: int | float | None
    summarizer: BaseChatModel | None
    renderer: Renderer
    count: Count
    secret: bytes | str | None
    deadline: float
    first_load: float
    summarizer_limit: float
    on_error: OnError
