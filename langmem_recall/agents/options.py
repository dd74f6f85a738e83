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
from dataclasses import dataclass, fields
from datetime import datetime
from difflib import get_close_matches
from functools import cache, partial
from typing import Any, Literal, TypedDict, cast, get_args

from langchain_core.language_models import BaseChatModel
from langchain_core.messages.utils import count_tokens_approximately
from langgraph.store.base import BaseStore

from langmem_recall.agents.placement import Placement
from langmem_recall.cue import build_cue
from langmem_recall.deadline import Deadline
from langmem_recall.errors import ConfigurationError, StoreError, check_whole
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
MOST_SHARE = 0.25  # of the context window; beyond it memories crowd out the conversation
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


def budget_tokens(budget: int | float | None, model: Any = None) -> int:
    """Tokens that all memory in a call may use; a model's profile may tell its context window."""
    profile = getattr(model, "profile", None)
    found = profile.get("max_input_tokens") if isinstance(profile, Mapping) else None
    window = found if isinstance(found, int) and found > 0 else None
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


@dataclass(frozen=True, slots=True)
class Profile:
    """A small profile in the first turn of a thread.

    Args:
        share: Of the budget for memory, what the profile may use.
        most: Memories that it has at most.
    """

    share: float = 0.25
    most: int = 12

    def __post_init__(self) -> None:
        if type(self.share) not in (int, float) or not 0 < self.share <= 1:
            raise ConfigurationError(
                f"Profile.share must be a number in (0, 1], got {self.share!r:.80}."
            )
        check_whole("Profile.most", self.most, 1, ConfigurationError)


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
        def check(name: str, is_right: bool, what: str) -> None:
            if not is_right:
                raise ConfigurationError(f"{name} must be {what}, got {getattr(self, name)!r:.80}.")

        placements, reactions = get_args(Placement), get_args(OnError)
        check("placement", self.placement in placements, f"one of {', '.join(placements)}")
        check("on_error", self.on_error in reactions, f"one of {', '.join(reactions)}")
        is_policy = isinstance(self.policy, RecallPolicy | None)
        check("policy", is_policy, "a RecallPolicy, as RecallPolicy.default()")
        is_profile = isinstance(self.profile, Profile | None)
        check("profile", is_profile, "a Profile, as Profile(share=0.25)")
        check("cue", callable(self.cue), "a function of the state, as build_cue")
        budget_tokens(self.budget)
        if isinstance(self.summarizer, str):
            object.__setattr__(self, "summarizer", named_chat_model(self.summarizer))


class RecallOptions(TypedDict, total=False):
    """`Options` for type checkers, which know no other way to name them."""

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


def options_of(owner: str, given: RecallOptions, *own: str) -> Options:
    """The options that an owner was given beside arguments of its own."""
    known = [*own, *(option.name for option in fields(Options))]
    if unknown := [name for name in given if name not in known]:
        nearest = get_close_matches(unknown[0], known, 1, cutoff=0.0)[0]
        raise ConfigurationError(
            f"{owner} has no argument {unknown[0]!r}; the nearest is {nearest!r}. "
            f"It takes {', '.join(known)}."
        )
    return Options(**given)


def check_names(option: str, names: Collection[str], example: str) -> tuple[str, ...]:
    """Names of tools, of which a bare text is none."""
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise ConfigurationError(
            f"{option} must be names of tools, got {names!r}. Write {example}."
        )
    return tuple(names)


# --- The store of a run, wrapped once for as long as it lives ---

_wrappers: dict[int, RecallStore] = {}  # by identity: stores that are equal stay two
_lock = threading.RLock()


def recall_store(given: BaseStore | None, runtime_store: BaseStore | None) -> RecallStore:
    """The store that was given, else the run's own, as a `RecallStore`.

    Any other store is wrapped, with the same index, usage and caches for it in every run.
    """
    store = runtime_store if given is None else given
    if isinstance(store, RecallStore):
        return store
    if store is None:
        raise ConfigurationError(
            "Recall has no store. Compile the graph with store=..., or pass store=... to the "
            "middleware, node or tools."
        )
    if not isinstance(store, BaseStore):
        raise ConfigurationError(
            f"The store must be a LangGraph BaseStore, got {type(store).__name__}. "
            "Pass RecallStore(...), LocalStore(...) or any other BaseStore."
        )
    with _lock:
        if id(store) not in _wrappers:
            _wrappers[id(store)] = RecallStore(cast(BaseStore, _WeakStore(store)))
            weakref.finalize(store, _wrappers.pop, id(store), None).atexit = False
        # What is inside refers to the store weakly, so that the cache keeps no store alive; what
        # is handed out refers to it strongly, so that a store lives while it is used.
        wrapper = copy.copy(_wrappers[id(store)])
    wrapper._inner = store
    return wrapper


class _WeakStore:
    """Stands for a store in every respect and does not keep it alive."""

    __slots__ = ("__weakref__", "_hash", "_store")

    def __init__(self, store: BaseStore) -> None:
        object.__setattr__(self, "_store", weakref.ref(store))
        is_hashable = type(store).__hash__ is not None
        object.__setattr__(self, "_hash", hash(store) if is_hashable else id(store))

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
    store: RecallStore, method: str, *args: Any, within: Deadline | None = None, **fields: Any
) -> Call:
    """A call of a store's method, which in a loop is its async form."""
    sync_form, async_form = getattr(store, method), getattr(store, f"a{method}")
    return Call(partial(sync_form, *args, **fields), partial(async_form, *args, **fields), within)


def off_loop(function: Callable[..., Any], *args: Any, limit: Deadline | None = None) -> Call:
    """A call that grows with a conversation or a text: in a loop, in a thread.

    A function that is not ours has a limit, and a thread of its own.
    """
    call = partial(function, *args)
    if limit is not None:
        return Call(call, limit=limit)

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
