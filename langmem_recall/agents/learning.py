"""What a session leaves behind: `learn` once, or `MemoryWriter` behind an agent."""

from __future__ import annotations

import asyncio
import logging
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from langchain.agents.middleware.types import AgentMiddleware
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    convert_to_messages,
)
from langgraph.config import get_config
from langgraph.constants import TAG_NOSTREAM
from langgraph.runtime import Runtime, get_runtime
from langgraph.store.base import BaseStore
from pydantic import BaseModel, ConfigDict, Field

from langmem_recall.agents.block import SUMMARY_TAG, as_data
from langmem_recall.agents.conversation import Conversation, messages_of
from langmem_recall.agents.namespace import NamespaceTemplate, Template
from langmem_recall.agents.options import check_names, recall_store
from langmem_recall.agents.placement import message_keys
from langmem_recall.agents.turn import RecallRecord, digest, read_records, thread_of
from langmem_recall.cue import human_words, latest_human, words_of
from langmem_recall.errors import ConfigurationError, RecallError, described
from langmem_recall.memory.conflicts import conflicts, share_subject
from langmem_recall.memory.restating import plain
from langmem_recall.memory.value import text_of, usable_phrasings
from langmem_recall.models import named_chat_model
from langmem_recall.stores.recall_store import RecallStore
from langmem_recall.text.tokens import word_lists
from langmem_recall.types import PHRASING_SOURCES, TRUST, Cue, Memory, Namespace, Source

logger = logging.getLogger(__name__)

MOST_PARTS, LONGEST_PART = 12, 250
"""Messages of the user, and characters of one, that known memories are looked up by."""
MOST_KNOWN = 12  # memories that are shown beside a session
MOST_THREADS = 10_000  # of which a process remembers how far they were read; the store knows all
MOST_AT_ONCE = 4  # sessions that are learned from at the same time
SUMMARY, GUESS = "session_summary", "speculative_inference"
MEMORY_KINDS = {"task_completion_strategy": "procedural", SUMMARY: "episodic"}
MOST_CHARS = 48_000  # characters of a session that a model reads at a time, the latest first
MOST_OF_A_MESSAGE = 8_000
INSTRUCTIONS: str = word_lists("agents/prompts")["instructions"]["extract"]

ObservationKind = Literal[
    "user_stated_preference",
    "tool_result_verified",
    "task_completion_strategy",
    "intermediate_reasoning",
    "failed_tool_call",
    "speculative_inference",
]


class Observation(BaseModel):
    """One thing that is worth knowing later."""

    model_config = ConfigDict(extra="forbid")

    text: str = Field(description="One self-contained statement.")
    observation: ObservationKind = Field(
        description="user_stated_preference: a preference, fact, decision or rule that the user "
        "states; tool_result_verified: what a tool found; task_completion_strategy: what worked "
        "and is worth doing again; the others: what only helped to think, what failed, a guess."
    )
    quote: str = Field(description="The words of one message that say so, letter by letter.")
    confidence: float = Field(description="From 0 to 1.")
    asked_as: list[str] = Field(
        description="How it will be asked for later, in other words: two to four short phrasings, "
        "one of them the situation in which it matters."
    )
    corrects: str = Field(description="Id of the known memory that it changes; empty for none.")


class Notes(BaseModel):
    """What a session is worth."""

    model_config = ConfigDict(extra="forbid")

    observations: list[Observation] = Field(description="None for most conversations.")
    summary: str = Field(description="Two or three sentences; empty where nothing happened.")


class Extracted(NamedTuple):
    """What was observed, and the tokens that it cost."""

    notes: Notes
    input_tokens: int = 0
    output_tokens: int = 0


class Written(NamedTuple):
    """What became of one observation."""

    action: str
    """remembered, reinforced, corrected, kept aside or refused."""
    text: str
    source: Source
    observation: str
    key: str | None = None
    reason: str = ""

    def __str__(self) -> str:
        where = f" as {self.key}" if self.key else ""
        why = f": {self.reason}" if self.reason else ""
        return f"{self.action}{where} ({self.observation}, {self.source}): {self.text}{why}"


@dataclass(frozen=True, slots=True)
class Learned:
    """What was learned from a session, and what it cost."""

    writes: tuple[Written, ...] = ()
    input_tokens: int = 0
    output_tokens: int = 0
    messages: int = 0
    """Messages that were read; those of earlier times are not read again."""
    upto: str | None = None
    """Key of the last of them."""

    def __str__(self) -> str:
        if not self.messages:
            return "nothing new to learn from"
        head = (
            f"learned from {self.messages} messages: {self.input_tokens} tokens in, "
            f"{self.output_tokens} out"
        )
        return "\n".join([head, *(f"  {written}" for written in self.writes)])


def learn(
    store: BaseStore,
    namespace: Namespace,
    messages: Sequence[Any],
    *,
    model: str | BaseChatModel | None = None,
    extractor: Any = None,
    thread_id: str | None = None,
    trusted_tools: Collection[str] = (),
) -> Learned:
    """Learn from the messages of a session; what was learned before is only reinforced.

    The store's write policy decides what is stored, its guard judges it. What the user's own words
    carry is user stated, what a trusted tool said is tool verified; the rest is inferred, or
    external where untrusted output is behind it. A correction by the user supersedes what it
    contradicts, with history. It waits for the model: on an event loop, give it to a thread.

    Args:
        store: Where the memories are kept.
        namespace: Whose memories, such as ("memories", "ada").
        messages: The session, as LangChain's messages or what converts to them.
        model: A chat model with structured output, or its name for `init_chat_model`.
        extractor: In place of a model: a function of messages, or langmem's memory managers. It
            gives texts, langmem's memories or `Notes`.
        thread_id: Names the session: its summary is kept under it, and only messages that are new
            since the last time are read.
        trusted_tools: Tools whose output is as good as verified.

    Returns:
        What became of each observation, and the tokens that the model used.

    Raises:
        Exception: What the model raised. Nothing is stored then, and nothing is lost: the same
            messages are new the next time.
    """
    trusted = frozenset(check_names("trusted_tools", trusted_tools, '("lookup",)'))
    read = convert_to_messages(messages)
    session = _Session(recall_store(store, None), namespace, read, thread_id, (), trusted)
    return session.learn(extractor_of(model, extractor))


@dataclass(slots=True)
class _Session:
    """Messages to learn from, and where what is learned goes."""

    store: RecallStore
    namespace: Namespace
    messages: list[BaseMessage]
    thread_id: str | None
    records: Sequence[RecallRecord]
    trusted: frozenset[str]
    since: str | None = None  # key of the last message that was learned from, where that is known
    timer: threading.Timer | None = None
    is_cancelled: bool = False

    def cancel(self) -> None:
        """Write nothing more."""
        self.is_cancelled = True
        if self.timer is not None:
            self.timer.cancel()

    def learn(self, extract: Extractor) -> Learned:
        """Read what is new, let it be observed, and write what the policy allows."""
        store, home, since, keys = (
            self.store,
            self.namespace,
            self.since,
            message_keys(self.messages),
        )
        summary_key, previous = None, None
        if self.thread_id is not None:
            summary_key = f"session-{digest(self.thread_id)}"
            (previous,) = store.memories([(home, summary_key)])
        if since is None and previous is not None:
            since = str(previous.turn)
        new = self.messages[keys.index(since) + 1 if since in keys else 0 :]
        if latest_human(new) is None:
            return Learned()
        words = [words[:LONGEST_PART] for words in human_words(new)[-MOST_PARTS:]]
        cue = Cue(parts=tuple(filter(str.strip, words)))
        # Whatever comes near: what is not shown to the model as known it would note as new.
        gates = {"trigger": 0.0, "floor": 0.0, "composite_floor": 0.0, "unverified_share": 1.0}
        lenient = store.policy_for(home).replace(top_k=MOST_KNOWN, **gates)
        recall = store.recall((home,), cue, policy=lenient, record=False)
        known = {f"k{place}": memory for place, memory in enumerate(recall.memories, 1)}
        shown = [(name, memory.text) for name, memory in known.items()]
        if previous is not None:
            shown.append(("earlier summary", previous.text))
        found = extract(new, shown)
        conversation = Conversation(self.messages, self.records, self.trusted)
        writes = list[Written]()
        for observation in found.notes.observations:
            if self.is_cancelled:
                break
            written = self._note(observation, conversation, known, keys[-1])
            writes.append(written)
            if written.key is not None:
                # A later statement of the same session may be about this one.
                memory = Memory(namespace=home, key=written.key, text=written.text)
                known[f"new {len(writes)}"] = memory
        if found.notes.summary.strip() and not self.is_cancelled:
            source: Source = "external" if conversation.saw_untrusted() else "agent_inferred"
            fields = {"key": summary_key, "turn": keys[-1], "tags": [SUMMARY_TAG]}
            writes.append(self._remember(found.notes.summary, SUMMARY, source, **fields))
        upto = None if self.is_cancelled else keys[-1]
        return Learned(tuple(writes), found.input_tokens, found.output_tokens, len(new), upto)

    def _note(
        self, seen: Observation, conversation: Conversation, known: Mapping[str, Memory], turn: str
    ) -> Written:
        """One observation: who said it, what it corrects, and what the store says."""
        text, observation = seen.text.strip(), str(seen.observation)
        source, is_users = conversation.attributed(text, seen.quote)
        is_claimed = observation == "user_stated_preference" and not is_users
        if is_claimed or (observation == "tool_result_verified" and source != "tool_verified"):
            # The model says that somebody said so, and nobody did.
            observation = GUESS
        corrected, doubt = list[Memory](), ""
        if source == "user_stated":
            named = known.get(seen.corrects)
            # By their words alone, whatever else is known of them.
            stated, *bare = (
                Memory(namespace=(), key="", text=words)
                for words in (text, *(old.text for old in known.values()))
            )
            pairs = zip(known.values(), bare, strict=True)
            corrected = [old for old, words in pairs if conflicts([stated, words])]
            if not corrected and named is not None and named.kind != "episodic":
                if share_subject(text, named.text):
                    corrected = [named]
                else:
                    doubt = f"{named.key} is about something else, so both are kept"
        for memory in corrected:
            past = self.store.history(self.namespace, memory.key)
            is_ours = bool(self.thread_id and past) and past[0].thread_id == self.thread_id
            if is_ours and plain(text) in [plain(each.text) for each in past[1:]]:
                # The session has corrected it since, and was read again.
                reason = f"an earlier value of {memory.key}, said before it in this session"
                return Written("refused", text, source, observation, None, reason)
        written = self._remember(
            text,
            observation,
            "user_correction" if corrected else source,
            turn=turn,
            confidence=min(max(seen.confidence, 0.0), TRUST[source]),
            supersedes=[memory.key for memory in corrected],
            asked_as=usable_phrasings(seen.asked_as) if source in PHRASING_SOURCES else None,
        )
        if corrected and written.action == "remembered":
            written = written._replace(action="corrected")
        return written._replace(reason=written.reason or doubt)

    def _remember(self, text: str, observation: str, source: Source, **fields: Any) -> Written:
        """What the store makes of it; a refusal is an outcome."""
        kind: Any = MEMORY_KINDS.get(observation, "semantic")
        given = {"observation": observation, "kind": kind, "source": source, **fields}
        given["thread_id"] = self.thread_id
        try:
            memory = self.store.remember(self.namespace, text, **given)
        except RecallError as refusal:
            reason = str(refusal).split(". ")[0]
            return Written("refused", text, source, observation, None, reason)
        action = "remembered" if memory.created_at is None else "reinforced"
        if memory.status == "quarantined":
            action = "kept aside"
        return Written(action, memory.text, memory.source, observation, memory.key)


class MemoryWriter(AgentMiddleware[Any, Any, Any]):
    """Learns from each session in the background, some seconds after its last turn.

    As middleware of `create_agent` it is an `after_agent` hook; `graph.add_node("learn", writer)`
    makes it a node. A session is learned from by one run at a time, and by none while turns follow
    each other closely. A run that fails is logged; its messages are learned from the next time.

    Args:
        namespace: As for `RecallMiddleware`; of several the first is written to.
        model: A chat model with structured output, or its name, as "openai:gpt-4.1-mini".
        extractor: In place of a model; see `learn`.
        store: Where the memories are; the run's own store when absent.
        debounce: Seconds without another turn before a session is learned from.
        trusted_tools: Tools whose output is as good as verified.
        on_learned: Called with each `Learned`, in the background.
    """

    def __init__(
        self,
        namespace: Template | NamespaceTemplate,
        *,
        model: str | BaseChatModel | None = None,
        extractor: Any = None,
        store: BaseStore | None = None,
        debounce: float = 10.0,
        trusted_tools: Collection[str] = (),
        on_learned: Callable[[Learned], None] | None = None,
    ) -> None:
        super().__init__()
        if isinstance(debounce, bool) or not isinstance(debounce, int | float) or debounce < 0:
            raise ConfigurationError(f"debounce must be seconds from 0 on, got {debounce!r:.80}.")
        self._template = NamespaceTemplate.of(namespace)
        self._extract = extractor_of(model, extractor)
        self._store = store
        self._debounce = debounce
        self._trusted = frozenset(check_names("trusted_tools", trusted_tools, '("lookup",)'))
        self._on_learned = on_learned
        self._changes = threading.Condition()
        self._slots = threading.BoundedSemaphore(MOST_AT_ONCE)
        self._waiting: dict[Any, _Session] = {}
        self._running: dict[Any, _Session] = {}
        self._learned_upto: dict[Any, str] = {}
        self.tokens: Counter[str] = Counter()
        """Tokens that all runs have used: input_tokens and output_tokens."""

    def after_agent(self, state: Any, runtime: Runtime[Any]) -> None:
        """Have the session learned from, in a while."""
        config = get_config()
        store = recall_store(self._store, runtime.store)
        namespace = self._template.resolve(runtime.context, config)[0]
        thread_id, records = thread_of(config), read_records(state)[0]
        session = _Session(store, namespace, messages_of(state), thread_id, records, self._trusted)
        # Runs without a thread have nothing in common.
        place = (id(store.inner), namespace, thread_id or uuid.uuid4().hex)
        session.timer = threading.Timer(self._debounce, self._run, (place, session))
        session.timer.daemon = True
        with self._changes:
            if earlier := self._waiting.get(place):
                earlier.cancel()
            self._waiting[place] = session
        session.timer.start()

    def __call__(self, state: Any) -> dict[str, Any]:
        """The node: have the session learned from, in a while; the state stays as it is."""
        self.after_agent(state, get_runtime())
        return {}

    def flush(self) -> None:
        """Learn now from what waits, and wait for what runs."""
        with self._changes:
            places = [*self._waiting, *self._running]
        for place in places:
            self._run(place)

    async def aflush(self) -> None:
        """The async form of `flush`."""
        await asyncio.to_thread(self.flush)

    def cancel(self, thread_id: str | None = None) -> None:
        """Drop what waits and stop what runs, of one thread or of all; nothing more is written."""
        with self._changes:
            for session in (*self._waiting.values(), *self._running.values()):
                if thread_id in (None, session.thread_id):
                    session.cancel()
            waiting = self._waiting.items()
            self._waiting = {place: each for place, each in waiting if not each.is_cancelled}

    def _run(self, place: Any, due: _Session | None = None) -> None:
        """Learn from the session that waits there; after the run that is under way, if any."""
        with self._changes:
            self._changes.wait_for(lambda: place not in self._running)
            session = self._waiting.get(place)
            if session is None or (due is not None and due is not session):
                return
            self._running[place] = self._waiting.pop(place)
            session.since = self._learned_upto.get(place)
        if session.timer is not None:
            session.timer.cancel()
        try:
            with self._slots:
                learned = session.learn(self._extract)
            with self._changes:
                self.tokens["input_tokens"] += learned.input_tokens
                self.tokens["output_tokens"] += learned.output_tokens
                if learned.upto is not None and session.thread_id is not None:
                    self._learned_upto[place] = learned.upto
                    while len(self._learned_upto) > MOST_THREADS:
                        self._learned_upto.pop(next(iter(self._learned_upto)))
            if self._on_learned is not None:
                self._on_learned(learned)
        except Exception as fault:
            # The messages stay new: the next run reads them too.
            logger.warning("A session could not be learned from: %s", described(fault))
        finally:
            with self._changes:
                del self._running[place]
                self._changes.notify_all()


# --- What a chat model, or another extractor, observes in messages ---


Extractor = Callable[[Sequence[BaseMessage], Sequence[tuple[str, str]]], Extracted]
"""Reads messages, beside known memories as (id, text)."""


def extractor_of(model: Any, extractor: Any) -> Extractor:
    """What reads a session: a chat model, its name, or an extractor such as langmem's managers."""
    if extractor is not None:
        read = getattr(extractor, "invoke", extractor)
        if not callable(read):
            raise ConfigurationError(
                f"extractor must be a function of messages or have `invoke`, got {extractor!r:.80}."
            )
        is_manager = read is not extractor
        return lambda messages, known: _extracted(
            read({"messages": list(messages)} if is_manager else messages)
        )
    if isinstance(model, str):
        model = named_chat_model(model)
    if not isinstance(model, BaseChatModel):
        raise ConfigurationError(
            f"model must be a chat model or its name, got {model!r:.80}. Write "
            'model="openai:gpt-4.1-mini", or pass extractor=...'
        )
    try:
        structured = model.with_structured_output(Notes, include_raw=True)
    except NotImplementedError as error:
        raise ConfigurationError(
            f"{type(model).__name__} has no structured output. Choose a model that has, or pass "
            "extractor=..."
        ) from error
    return lambda messages, known: _observed(structured, messages, known)


def _observed(
    model: Any, messages: Sequence[BaseMessage], known: Sequence[tuple[str, str]]
) -> Extracted:
    """What a model observes in messages, of which it reads the latest."""
    lines, left = list[str](), MOST_CHARS
    for message in reversed(messages):
        text = words_of(message)[: min(MOST_OF_A_MESSAGE, left)]
        left -= len(text)
        if text.strip():
            lines.append(as_data({"from": _speaker(message), "text": text}))
    memories = [as_data({"known": name, "text": text}) for name, text in known]
    request = [SystemMessage(INSTRUCTIONS), HumanMessage("\n".join([*memories, *reversed(lines)]))]
    answer = model.invoke(request, {"tags": [TAG_NOSTREAM], "run_name": "memory_writer"})
    notes, usage = answer.get("parsed"), getattr(answer.get("raw"), "usage_metadata", None) or {}
    if not isinstance(notes, Notes):
        fault = answer.get("parsing_error") or "no observations"
        raise RecallError(f"The model's answer cannot be read: {fault!r:.200}.")
    return Extracted(notes, usage.get("input_tokens", 0), usage.get("output_tokens", 0))


def _speaker(message: BaseMessage) -> str:
    if isinstance(message, HumanMessage):
        return "user"
    if isinstance(message, AIMessage):
        return "assistant"
    return f"tool {message.name or ''}".strip() if isinstance(message, ToolMessage) else "system"


def _extracted(found: Any) -> Extracted:
    """Another extractor's texts as observations without a quote: content tells who said them."""
    if isinstance(found, Notes):
        return Extracted(found)
    observations = list[Observation]()
    for each in found or ():
        if isinstance(each, Observation):
            observations.append(each)
            continue
        content = getattr(each, "content", each)
        if isinstance(content, BaseModel):
            content = content.model_dump(mode="json")
        observation = Observation(
            text=text_of({"content": content}),
            observation="user_stated_preference",
            quote="",
            confidence=1.0,
            asked_as=[],
            corrects="",
        )
        observations.append(observation)
    return Extracted(Notes(observations=observations, summary=""))
