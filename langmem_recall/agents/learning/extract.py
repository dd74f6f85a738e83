"""What a chat model, or another extractor, observes in the messages of a session."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.constants import TAG_NOSTREAM
from pydantic import BaseModel, ConfigDict, Field

from langmem_recall.agents.block import as_data
from langmem_recall.cue import words_of
from langmem_recall.errors import ConfigurationError, RecallError
from langmem_recall.memory.value import text_of
from langmem_recall.models import named_chat_model
from langmem_recall.text.tokens import word_lists

MOST_CHARS = 48_000  # characters of a session that a model reads at a time, the latest first
MOST_OF_A_MESSAGE = 8_000
INSTRUCTIONS: str = word_lists("agents/prompts")["instructions"]["extract"]

Kind = Literal[
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
    observation: Kind = Field(
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


class ExtractionError(RecallError):
    """A model's answer cannot be used; the messages are learned from next time."""


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
        raise ExtractionError(f"The model's answer cannot be read: {fault!r:.200}.")
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
