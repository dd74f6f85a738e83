"""The options that node and middleware take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypedDict, get_args

from langchain_core.language_models import BaseChatModel
from langgraph.store.base import BaseStore

from langmem_recall.agents.block import Count, Renderer
from langmem_recall.agents.compaction import budget_tokens, count_tokens
from langmem_recall.agents.placement import Placement
from langmem_recall.cue import build_cue
from langmem_recall.errors import ConfigurationError
from langmem_recall.policy import RecallPolicy
from langmem_recall.rendering import render_block
from langmem_recall.types import Cue

CueBuilder = Callable[[Any], Cue | str]
OnError = Literal["skip", "raise"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Everything about recall in an agent that is no ranking number.

    Args:
        store: Where the memories are; the run's own store when absent.
        policy: How to rank; the store's own policy when absent.
        cue: Reads what is going on from the state.
        placement: Where the block stands among the messages.
        replay: Show the blocks of past turns in their old place again, so that the messages before
            the turn stay as they were and the provider's prompt cache holds.
        budget: Tokens a block may use, or a share of the model's context window; when absent 2,000
            or 20 % of the window, whichever is less.
        summarizer: A chat model that compacts what does not fit; sentences are picked without one.
        renderer: Makes the block, in place of ours.
        count: Counts tokens, in place of an estimate.
        secret: What the block's nonce is drawn from; kept in the store when absent.
        deadline: Seconds a turn waits for memories.
        first_load: Seconds a turn waits while a model or an index is loaded for the first time.
        summarizer_limit: Seconds a turn waits for the summarizer.
        on_error: "raise" lets faults through, for tests.
    """

    store: BaseStore | None = None
    policy: RecallPolicy | None = None
    cue: CueBuilder = build_cue
    placement: Placement = "before_turn"
    replay: bool = True
    budget: int | float | None = None
    summarizer: BaseChatModel | None = None
    renderer: Renderer = render_block
    count: Count = count_tokens
    secret: bytes | str | None = None
    deadline: float = 0.25
    first_load: float = 5.0
    summarizer_limit: float = 10.0
    on_error: OnError = "skip"

    def __post_init__(self) -> None:
        for name, allowed in (("placement", Placement), ("on_error", OnError)):
            if getattr(self, name) not in get_args(allowed):
                raise ConfigurationError(
                    f"{name} must be one of {', '.join(get_args(allowed))}, "
                    f"got {getattr(self, name)!r}."
                )
        if self.policy is not None and not isinstance(self.policy, RecallPolicy):
            raise ConfigurationError(
                f"policy must be a RecallPolicy, got {self.policy!r:.80}. "
                "Use RecallPolicy.default() or load one with RecallPolicy.load(path)."
            )
        if not callable(self.cue):
            raise ConfigurationError(
                f"cue must be a function of the state, got {self.cue!r:.80}. Use build_cue."
            )
        budget_tokens(self.budget, None)


class RecallOptions(TypedDict, total=False):
    """Each is explained in `Options`."""

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
