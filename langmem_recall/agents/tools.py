"""Memory tools: with them a model remembers, recalls, corrects and forgets by itself."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

from langchain_core.runnables.config import ensure_config
from langchain_core.tools import BaseTool, StructuredTool, ToolException
from langgraph.errors import GraphBubbleUp
from langgraph.prebuilt import ToolRuntime
from langgraph.runtime import get_runtime
from langgraph.store.base import BaseStore
from pydantic import AfterValidator, BaseModel, Field

from langmem_recall.agents.conversation import Conversation, messages_of
from langmem_recall.agents.namespace import NamespaceTemplate, Template
from langmem_recall.agents.options import check_names, off_loop, recall_store, store_call
from langmem_recall.agents.turn import artifact, read_records, thread_of
from langmem_recall.cue import task_of
from langmem_recall.deadline import Deadline, TooLate
from langmem_recall.errors import ConfigurationError, MissingExtraError, RecallError, described
from langmem_recall.flows.effects import CALLS, Call, arun, run
from langmem_recall.memory.value import usable_phrasings
from langmem_recall.policy import RecallPolicy
from langmem_recall.rendering import Entry, line_of
from langmem_recall.stores.recall_store import RecallStore
from langmem_recall.text.tokens import word_lists
from langmem_recall.types import (
    ASKED,
    PHRASING_SOURCES,
    RELEVANCE_GATES,
    Kind,
    Memory,
    MemoryId,
    Recall,
    Scored,
    Source,
)

logger = logging.getLogger(__name__)

LONGEST_TEXT = 4_000  # characters of one memory; what is longer is a document
SHOWN_CHARS = 1_000  # characters of a memory that a result shows
LONGEST_QUERY = 1_000
LONGEST_KEY = 512
MOST_RECALLED, BEST_FEW = 20, 5
"""Memories that a recall may answer with, and that it does where the model names no number: the
prompt of its limit says so too."""
LIKELY, POSSIBLE, PLAUSIBLE = 0.6, 0.3, 0.05
"""Relevance from which a memory is a likely, a possible and a weak match; below it is none. An
answer is taken at its word, so that it takes more to be likely than to be shown unasked."""


def _bounded(longest: int) -> AfterValidator:
    """A check that no provider's schema dialect has to understand."""

    def check(text: str) -> str:
        if not text.strip():
            raise ValueError("is empty")
        if len(text) > longest:
            raise ValueError(f"has {len(text):,} characters, at most {longest:,} are possible")
        return text

    return AfterValidator(check)


_PROMPTS = word_lists("agents/prompts")
_EVIDENCE, _UNCHANGED, _WIDEN, _UNSURE, _SAME = _PROMPTS["results"].values()


def _told(tool: str, name: str, default: Any = ..., **limits: Any) -> Any:
    """An argument as the model reads of it."""
    return Field(default, description=_PROMPTS[tool][name], **limits)


# A memory is not to be lost for how it might be asked for: what cannot be stored is left out.
AskedAs = Annotated[list[str], AfterValidator(usable_phrasings), _told("remember", "asked_as")]
Key = Annotated[str, _bounded(LONGEST_KEY), _told("correct", "key")]
Statement = Annotated[str, _bounded(LONGEST_TEXT)]


class RememberArgs(BaseModel):
    """What `remember` takes."""

    text: Statement = _told("remember", "text")
    kind: Kind = _told("remember", "kind", "semantic")
    importance: int | None = _told("remember", "importance", None, ge=1, le=10)
    asked_as: AskedAs = []


class RecallArgs(BaseModel):
    """What `recall` takes."""

    query: Annotated[str, _bounded(LONGEST_QUERY)] = _told("recall", "query")
    limit: int | None = _told("recall", "limit", None, ge=1, le=MOST_RECALLED)


class CorrectArgs(BaseModel):
    """What `correct` takes."""

    key: Key
    text: Statement = _told("correct", "text")
    asked_as: AskedAs = []


class ForgetArgs(BaseModel):
    """What `forget` takes."""

    key: Key


def memory_tools(
    namespace: Template | NamespaceTemplate,
    *,
    store: BaseStore | None = None,
    policy: RecallPolicy | None = None,
    names: Collection[str] = ("remember", "recall", "correct", "forget"),
    trusted_tools: Collection[str] = (),
    deadline: float | None = 5.0,
) -> list[BaseTool]:
    """Tools for `create_agent`, a `ToolNode`, or any loop that calls tools.

    The model sees neither namespace nor source: these come from the run. What the user's own words
    carry is stored as user stated, what follows an untrusted tool's output as external, all else as
    inferred.

    Args:
        namespace: Where memories live, such as `("memories", "{user_id}")`. Of several namespaces
            all are searched, and the first alone is written to.
        store: Where to keep them; the store of the run when absent.
        policy: How `recall` ranks; the store's own when absent. Trigger and floor do not apply: a
            model that asks gets the best few, and how sure they are.
        names: Which of the four tools to make.
        trusted_tools: Tools whose output leaves what is remembered after it trustworthy.
        deadline: Seconds a call may take before the model is told so; None: as long as it takes.
    """
    own = frozenset(check_names("names", names, '("recall",)'))
    if unknown := [name for name in names if name not in _TOOLS]:
        raise ConfigurationError(
            f"There is no memory tool {unknown[0]!r}. Choose among {', '.join(_TOOLS)}."
        )
    trusted = own.union(check_names("trusted_tools", trusted_tools, '("recall",)'))
    given = None if store is None else recall_store(store, None)
    of_run = partial(_ToolCall, NamespaceTemplate.of(namespace), given, policy, trusted)
    limit = Deadline(deadline)
    return [_make_tool(name, of_run, limit) for name in _TOOLS if name in own]


class _ToolCall:
    """What one call knows of the run it is part of."""

    def __init__(
        self,
        template: NamespaceTemplate,
        store: RecallStore | None,
        policy: RecallPolicy | None,
        trusted: frozenset[str],
        runtime: Any,
    ) -> None:
        config: Mapping[str, Any]
        if isinstance(runtime, ToolRuntime):
            config, state = runtime.config, runtime.state
        else:
            # Outside of a tool node, the running graph knows of the run, if there is one.
            config, state, runtime = ensure_config(), None, None
            with suppress(RuntimeError):
                runtime = get_runtime()
        self.policy = policy
        self.store = recall_store(store, getattr(runtime, "store", None))
        self.ask = partial(store_call, self.store)
        self.namespaces = template.resolve(getattr(runtime, "context", None), config)
        self.thread_id = thread_of(config)
        self.conversation = Conversation(messages_of(state), read_records(state)[0], trusted)
        self.task = task_of(state)
        # What this call recalled; counted once the model gets it, not when it came too late.
        self.recall: Recall | None = None

    def find(self, name: str) -> Generator[Call, Any, MemoryId]:
        """The memory to change, under the key or the handle that the model gives."""
        namespace, key = self.conversation.memory_named(name, self.namespaces[0])
        if (yield self.ask("get", namespace, key, refresh_ttl=False)) is None:
            shared = "; shared memories cannot be changed" if len(self.namespaces) > 1 else ""
            raise ToolException(
                f"error: there is no memory with the key {name[:80]!r} to change. Call recall "
                f"first and use the key exactly as it is shown{shared}."
            )
        return namespace, key


# --- The four tools: each asks the store and says what came of it ---

_Steps = Generator[Call, Any, Any]


def _remember(
    call: _ToolCall, text: str, kind: Kind, importance: int | None, asked_as: list[str]
) -> _Steps:
    source: Source = yield off_loop(call.conversation.source_of, text)
    phrasings, left_out = _trusted_phrasings(source, asked_as)
    is_lesson = kind in ("procedural", "reflection") and source == "agent_inferred"
    observation = "task_completion_strategy" if is_lesson else "speculative_inference"
    if source == "user_stated":
        observation = "user_stated_preference"
    memory: Memory = yield call.ask(
        "remember",
        call.namespaces[0],
        text,
        # Where the store has no policy of its own, what a model asks to remember is stored.
        observation=call.store.write_policy and observation,
        source=source,
        kind=kind,
        salience=None if importance is None else importance / 10,
        asked_as=phrasings,
        thread_id=call.thread_id,
        turn=call.conversation.turn,
        # The task at hand, so that a policy with `task_filter` finds what was noted for it.
        tags=None if call.task is None else (call.task,),
    )
    label = f"{memory.key} ({memory.kind}, {memory.source.replace('_', ' ')})"
    if memory.status == "quarantined":
        return f"kept aside as {label}: quarantined, not recalled until a person approves it"
    if memory.status == "masked":
        left_out = f"{left_out}; a part looks like an instruction and is withheld"
    return f"remembered as {label}{left_out}"


def _trusted_phrasings(source: Source, asked_as: list[str]) -> tuple[list[str], str]:
    """The phrasings where the source may have any, and what the model is told where not."""
    if not asked_as or source in PHRASING_SOURCES:
        return asked_as, ""
    return [], "; asked_as was left out, as this source may not say how it will be asked for"


def _recall(call: _ToolCall, query: str, limit: int | None) -> _Steps:
    policy = call.policy or (yield call.ask("policy_for", call.namespaces[0]))
    most = limit or min(policy.top_k, BEST_FEW)
    # What is asked for is answered, with how sure that is; only what is injected must be certain.
    gates = {"trigger": 0.0, "floor": PLAUSIBLE, "composite_floor": 0.0}
    if most == 1 and policy.unverified_share:
        # No part of a single place is a place.
        gates["unverified_share"] = 1.0
    lenient = policy.replace(name=f"{ASKED}{policy.name}", top_k=most, **gates)
    recall: Recall = yield call.ask("recall", call.namespaces, query, policy=lenient, record=False)
    # Pinned memories come whatever is asked, and must not take the places of the answer.
    pinned = min(sum(memory.pinned for memory in recall.memories), most)
    answers = [drop for drop in recall.dropped if drop.gate == "top_k"][:pinned]
    recall = replace(
        recall,
        chosen=(*recall.chosen, *(drop.scored for drop in answers)),
        dropped=tuple(drop for drop in recall.dropped if not any(drop is one for one in answers)),
        trace=replace(recall.trace, thread_id=call.thread_id),
    )
    call.recall = recall
    lines = [_EVIDENCE] if recall.chosen else []
    for scored in recall.chosen:
        memory, notes, text = scored.memory, [sureness(scored.signals.relevance)], None
        if len(memory.text) > SHOWN_CHARS:
            notes, text = [*notes, "shortened"], memory.text[:SHOWN_CHARS] + "…"
        entry = Entry(memory, memory.key, text, tuple(notes))
        lines.append(line_of(entry, recall.trace.at, shared=len(call.namespaces) > 1))
    answer = "\n".join([*lines, _outcome(recall)])
    if any(message.text == answer for message in call.conversation.messages):
        answer = f"{answer} {_SAME}"
    return answer, artifact(recall.memories)


def sureness(relevance: float) -> str:
    """How sure it is, in a plain word and a number, that a memory is what was asked for."""
    if relevance < PLAUSIBLE:
        return "pinned"
    sure = "likely" if relevance >= LIKELY else "possible"
    return f"{sure if relevance >= POSSIBLE else 'weak match'} (relevance {relevance:.2f})"


def _outcome(recall: Recall) -> str:
    """How much was recalled, how sure it is or how near the rest came, and what to do about it."""
    trace = recall.trace

    def best(scores: Iterable[Scored]) -> float:
        return max((scored.signals.relevance for scored in scores), default=0.0)

    if recall.chosen:
        said = [f"{len(recall.chosen)} recalled."]
        said += [] if best(recall.chosen) >= LIKELY else [_UNSURE, _WIDEN]
    elif not (recall.dropped or trace.searched or trace.degraded):
        said = ["Nothing stored: there are no memories here yet."]
    elif not trace.searched:
        said = ["Nothing recalled: what is stored could not be read."]
    else:
        near = best(drop.scored for drop in recall.dropped if drop.gate in RELEVANCE_GATES)
        came = f"nothing plausible for this (best relevance {near:.2f})"
        said = [f"Nothing recalled: memories are stored, but {came}. {_WIDEN}"]
    left = (drop.scored for drop in recall.dropped if drop.gate in ("top_k", "authority"))
    if beyond := sum(scored.signals.relevance >= POSSIBLE for scored in left):
        said.append(f"{beyond} more are beyond the limit.")
    if trace.degraded:
        said.append("Part of the search was unavailable, so something may be missing.")
    return " ".join(said)


def _correct(call: _ToolCall, key: str, text: str, asked_as: list[str]) -> _Steps:
    namespace, name = yield from call.find(key)
    source: Source = yield off_loop(call.conversation.source_of, text)
    source = "user_correction" if source == "user_stated" else source
    phrasings, left_out = _trusted_phrasings(source, asked_as)
    memory = yield call.ask("correct", namespace, name, text, source=source, asked_as=phrasings)
    words = memory.source.replace("_", " ")
    if memory.status == "quarantined":
        return f"proposed as {memory.key} ({words}): {_UNCHANGED.format(name)}"
    return f"corrected {name} ({words}); the former value is kept as history{left_out}"


def _forget(call: _ToolCall, key: str) -> _Steps:
    namespace, name = yield from call.find(key)
    # A key does not say who wants it forgotten: words from outside may have asked the model to.
    is_untrusted = yield off_loop(lambda: call.conversation.is_untrusted)
    source = "external" if is_untrusted else "user_stated"
    if not (yield call.ask("forget", namespace, name, source=source)):
        return f"proposed to forget {name}: {_UNCHANGED.format(name)}"
    return f"forgot {name} and its history"


# --- From steps to tools ---

_TOOLS: dict[str, tuple[type[BaseModel], Callable[..., _Steps]]] = {
    "remember": (RememberArgs, _remember),
    "recall": (RecallArgs, _recall),
    "correct": (CorrectArgs, _correct),
    "forget": (ForgetArgs, _forget),
}


def _make_tool(name: str, of_run: Callable[[Any], _ToolCall], limit: Deadline) -> BaseTool:
    args_schema, steps = _TOOLS[name]

    def call(runtime: ToolRuntime[Any, Any] = None, **args: Any) -> Any:  # type: ignore[assignment]
        with _counted(name, of_run, runtime) as tool_call:
            return limit.run(lambda: run(steps(tool_call, **args), CALLS))

    async def acall(runtime: ToolRuntime[Any, Any] = None, **args: Any) -> Any:  # type: ignore[assignment]
        with _counted(name, of_run, runtime) as tool_call:
            return await limit.arun(lambda: arun(steps(tool_call, **args), CALLS))

    return StructuredTool.from_function(
        call,
        acall,
        name=name,
        description=_PROMPTS[name]["tool"],
        args_schema=args_schema,
        response_format="content_and_artifact" if name == "recall" else "content",
        handle_tool_error=str,
        handle_validation_error=_misuse,
    )


@contextmanager
def _counted(name: str, of_run: Callable[[Any], _ToolCall], runtime: Any) -> Iterator[_ToolCall]:
    """A call whose recall counts if all went well; faults but those of wiring reach the model."""
    try:
        call = of_run(runtime)
        yield call
        if call.recall is not None:
            call.store.record_recall(call.recall, call.policy)
    except (ToolException, ConfigurationError, MissingExtraError, GraphBubbleUp):
        raise
    except RecallError as fault:
        raise ToolException(f"error: {fault}") from fault
    except TooLate as fault:
        raise ToolException(
            f"error: the memory store gave {fault}; whether {name} took effect is not known. "
            "Go on without it."
        ) from fault
    # The model learns the kind of fault alone: a driver's message may hold hosts and passwords.
    except Exception as fault:
        logger.warning("The memory tool %s failed: %s", name, described(fault))
        raise ToolException(
            f"error: the memory store failed ({type(fault).__name__}); {name} did not work. "
            "Go on without it."
        ) from fault


def _misuse(fault: Any) -> str:
    """What is wrong with the arguments, without repeating them."""
    wrong = (
        f"{'.'.join(map(str, error['loc']))}: {error['msg'].removeprefix('Value error, ')}"
        for error in fault.errors()
    )
    return f"error: {'; '.join(wrong)}"
