"""The options that node, middleware and tools take: budget and store of a run among them."""

from __future__ import annotations

import asyncio
import contextvars
import copy
import os
import re
import threading
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from functools import cache, partial
from typing import Any, Literal, TypedDict, cast, get_args

from langchain_core.language_models import BaseChatModel
from langchain_core.messages.utils import count_tokens_approximately
from langgraph.store.base import BaseStore

from langmem_recall.agents.learning.profile import Profile
from langmem_recall.agents.placement import Placement
from langmem_recall.cue import build_cue
from langmem_recall.deadline import Deadline
from langmem_recall.errors import ConfigurationError, StoreError
from langmem_recall.flows.effects import Call
from langmem_recall.models import named_chat_model
from langmem_recall.policy import RecallPolicy
from langmem_recall.rendering import Entry, render_block
from langmem_recall.stores.recall_store import RecallStore
from langmem_recall.types import Cue

Count = Callable[[str], int]
CueBuilder = Callable[[Any], Cue | str]
Renderer = Callable[[Sequence[Entry], str, datetime], str]
"""Makes the block from its lines, its nonce and the time of the recall."""
OnError = Literal["skip", "raise"]

DEFAULT_TOKENS = 2_000
DEFAULT_SHARE = 0.20
MOST_SHARE = 0.25
"""Of the model's context window; beyond it memories crowd out the conversation."""
_ALPHABETS = re.compile("[\x80-\u052f\u1e00-\u1fff]+")
_BEYOND_BASIC = re.compile("[\U00010000-\U0010ffff]+")


def count_tokens(text: str) -> int:
    """About how many tokens a text has; other scripts than Latin rather too many than too few."""
    if not text:
        return 0
    plain = text.encode("ascii", "ignore").decode()
    # What the usual tokenizers make of a character beyond ASCII, at most, in halves of tokens:
    # one for a letter of an alphabet, four beyond the basic plane, two for any other.
    halves = 2 * (len(text) - len(plain))
    if halves:
        halves -= sum(map(len, _ALPHABETS.findall(text)))
        halves += 2 * sum(map(len, _BEYOND_BASIC.findall(text)))
    return count_tokens_approximately([plain], extra_tokens_per_message=0) + -(-halves // 2)


def context_window(model: Any) -> int | None:
    """How many tokens a chat model reads, where its profile says so."""
    profile = getattr(model, "profile", None)
    window = profile.get("max_input_tokens") if isinstance(profile, Mapping) else None
    return window if isinstance(window, int) and window > 0 else None


def budget_tokens(budget: int | float | None, window: int | None) -> int:
    """Tokens that all memory in a call may use, where the context window may be unknown."""
    if isinstance(budget, int) and not isinstance(budget, bool) and budget > 0:
        return budget if window is None else min(budget, int(window * MOST_SHARE))
    if budget is None or (isinstance(budget, float) and 0 < budget <= MOST_SHARE):
        if window is None:
            return DEFAULT_TOKENS
        return int(window * budget) if budget else min(DEFAULT_TOKENS, int(window * DEFAULT_SHARE))
    raise ConfigurationError(
        "budget must be a whole number of tokens > 0, or a share of the model's context window in "
        f"(0, {MOST_SHARE}], got {budget!r}. Use None for the default: {DEFAULT_TOKENS} tokens, "
        f"at most {DEFAULT_SHARE:.0%} of the window."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Everything about recall in an agent that is no ranking number.

    Args:
        store: Where the memories are; the run's own store when absent.
        policy: How to rank; the store's own policy when absent.
        cue: Reads what is going on from the state.
        placement: Where the block stands among the messages.
        profile: Begin each thread with a small profile; without one only a cue about the user or
            the work as a whole ("where were we?") gets it.
        replay: Show the blocks of past turns in their old place again, so that the messages before
            the turn stay as they were and the provider's prompt cache holds; where the budget has
            no room for them the oldest give way, several at once.
        budget: Tokens that all memory in a call may use, past blocks included, or a share of the
            model's context window; when absent 2,000 or 20 % of the window, whichever is less.
        summarizer: A chat model that compacts what does not fit; sentences are picked without one.
        renderer: Makes the block, in place of ours.
        count: Counts tokens, in place of an estimate.
        secret: What the block's nonce is drawn from; kept in the store when absent.
        deadline: Seconds a turn waits for the store and the embedder. What is there by then
            answers: words alone where the embedder is late, nothing where the store is.
        queue: Seconds a turn waits for its place where this process has many at once; they do not
            count as the store's.
        first_load: Seconds a turn waits in all while a local model or an index is loaded for the
            first time.
        summarizer_limit: Seconds a turn waits for the summarizer.
        on_error: "raise" lets faults through, for tests.
        name: Tells two of them in one agent or graph apart that read the same namespace.
    """

    store: BaseStore | None = None
    policy: RecallPolicy | None = None
    cue: CueBuilder = build_cue
    placement: Placement = "before_turn"
    profile: Profile | None = None
    replay: bool = True
    budget: int | float | None = None
    summarizer: BaseChatModel | str | None = None
    renderer: Renderer = render_block
    count: Count = count_tokens
    secret: bytes | str | None = None
    deadline: float = 1.0
    queue: float = 2.0
    first_load: float = 5.0
    summarizer_limit: float = 10.0
    on_error: OnError = "skip"
    name: str = ""

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
        if self.profile is not None and not isinstance(self.profile, Profile):
            raise ConfigurationError(
                f"profile must be a Profile, got {self.profile!r:.80}. Write Profile(share=0.25)."
            )
        if not callable(self.cue):
            raise ConfigurationError(
                f"cue must be a function of the state, got {self.cue!r:.80}. Use build_cue."
            )
        budget_tokens(self.budget, None)
        if isinstance(self.summarizer, str):
            object.__setattr__(self, "summarizer", named_chat_model(self.summarizer))


class RecallOptions(TypedDict, total=False):
    """Each is explained in `Options`."""

    store: BaseStore | None
    policy: RecallPolicy | None
    cue: CueBuilder
    placement: Placement
    profile: Profile | None
    replay: bool
    budget: int | float | None
    summarizer: BaseChatModel | str | None
    renderer: Renderer
    count: Count
    secret: bytes | str | None
    deadline: float
    queue: float
    first_load: float
    summarizer_limit: float
    on_error: OnError
    name: str


def check_names(option: str, names: Collection[str], example: str) -> tuple[str, ...]:
    """Names of tools, of which a bare text is none."""
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise ConfigurationError(
            f"{option} must be names of tools, got {names!r}. Write {example}."
        )
    return tuple(names)


# --- The store of a run, wrapped once for as long as it lives ---


def recall_store(given: BaseStore | None, runtime_store: BaseStore | None) -> RecallStore:
    """The store that was given, else the run's own, as a `RecallStore`.

    Any other store is wrapped, with the same index, usage and caches for it in every run.
    """
    store = runtime_store if given is None else given
    if store is None:
        raise ConfigurationError(
            "Recall has no store. Compile the graph with store=..., or pass store=... to the "
            "middleware, node or tools."
        )
    if isinstance(store, RecallStore):
        return store
    if not isinstance(store, BaseStore):
        raise ConfigurationError(
            f"The store must be a LangGraph BaseStore, got {type(store).__name__}. "
            "Pass RecallStore(...), LocalStore(...) or any other BaseStore."
        )

    with _lock:
        inside = _wrappers.get(id(store))
        if inside is None:
            inside = _wrappers[id(store)] = RecallStore(cast(BaseStore, _WeakStore(store)))
            weakref.finalize(store, _wrappers.pop, id(store), None).atexit = False
    # What is inside refers to the store weakly, so that the cache keeps no store alive; what is
    # handed out refers to it strongly, so that a store lives while it is used.
    wrapper = copy.copy(inside)
    wrapper._inner = store
    return wrapper


_wrappers: dict[int, RecallStore] = {}
"""One wrapper for each living store, by identity: equal stores stay two."""
_lock = threading.RLock()


class _WeakStore:
    """Stands for a store in every respect and does not keep it alive."""

    __slots__ = ("__weakref__", "_hash", "_store")

    def __init__(self, store: BaseStore) -> None:
        object.__setattr__(self, "_store", weakref.ref(store))
        try:
            object.__setattr__(self, "_hash", hash(store))
        except TypeError:
            object.__setattr__(self, "_hash", id(store))

    def __getattribute__(self, name: str) -> Any:
        store = object.__getattribute__(self, "_store")()
        if store is None:
            raise StoreError("The store of an earlier run is gone. Keep a reference to the store.")
        return getattr(store, name)

    # Locks and caches by store must find the same entry through this one.
    def __hash__(self) -> int:
        return cast(int, object.__getattribute__(self, "_hash"))

    def __eq__(self, other: object) -> bool:
        store = object.__getattribute__(self, "_store")()
        if type(other) is _WeakStore:
            other = object.__getattribute__(other, "_store")()
        return store is not None and store is other


def store_call(
    store: RecallStore, method: str, *args: Any, limit: Deadline | None = None, **fields: Any
) -> Call:
    """A call of a store's method, which in a loop is its async form."""
    sync_form, async_form = getattr(store, method), getattr(store, f"a{method}")
    return Call(partial(sync_form, *args, **fields), partial(async_form, *args, **fields), limit)


def off_loop(function: Callable[..., Any], *args: Any) -> Call:
    """A call of our own that grows with a conversation or a text: in a loop, in a thread."""
    call = partial(function, *args)

    async def acall() -> Any:
        context = contextvars.copy_context()
        return await asyncio.get_running_loop().run_in_executor(_worker(), context.run, call)

    return Call(call, acall)


@cache
def _worker() -> ThreadPoolExecutor:
    # Of its own: a store that hangs in the loop's executor must not keep this waiting. And small:
    # each thread that computes takes its share of the interpreter from the loop.
    return ThreadPoolExecutor(2, "langmem-recall-text")


if hasattr(os, "register_at_fork"):
    # A forked process has none of its threads.
    os.register_at_fork(after_in_child=_worker.cache_clear)
