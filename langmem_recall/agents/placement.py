"""Where in a conversation the recalled block stands, for the length of one model call."""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple, TypeGuard

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    FunctionMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

Placement = Literal["before_turn", "end", "start", "in_turn"]
BLOCK_NAME = "recalled_memories"


class Block(NamedTuple):
    """A rendered recall and the messages it belongs to, by their keys."""

    text: str
    turn: str
    """The human message that began its turn."""
    after: str | None = None
    """The message it comes after, for a second block in a turn; None: the placement decides."""


def message_key(messages: Sequence[BaseMessage], index: int) -> str:
    """The message's id, else a digest that stays the same while the conversation grows."""
    return message_keys(messages)[index]


def place(
    messages: Sequence[BaseMessage], blocks: Sequence[Block], placement: Placement
) -> list[BaseMessage]:
    """The messages with the blocks among them; tool calls stay next to their results.

    Blocks of turns that are no longer in the conversation are left out, those of the latest turn
    excepted. A block stands alone as a user message, except `in_turn`: there it ends the human
    message, whose own words then begin alike with and without it.
    """
    layout = _Layout(messages)
    shown = [block for block in blocks if block.text.strip()]
    before: defaultdict[int, list[BaseMessage]] = defaultdict(list)
    inside: defaultdict[int, list[str]] = defaultdict(list)
    for block in shown:
        turn, after = layout.find(block.turn), layout.find(block.after)
        if turn is None and not (layout.has_lost_turn and block.turn == shown[-1].turn):
            continue
        if placement == "in_turn" and after is None and layout.is_human(turn):
            inside[turn].append(block.text)
        else:
            gap = layout.gap(turn, after, placement)
            before[gap].append(HumanMessage(content=block.text, name=BLOCK_NAME))
    placed: list[BaseMessage] = []
    for i, message in enumerate(messages):
        placed += before[i]
        placed.append(_with_texts(message, inside[i]) if i in inside else message)
    return placed + before[len(messages)]


def last_tool_result(messages: Sequence[BaseMessage], turn_index: int) -> str | None:
    """Key of the turn's last tool result after which every call made with it is answered."""
    for exchange in reversed(_exchanges(messages)):
        last = max(exchange.answers, default=-1)
        if last > turn_index and not exchange.open_calls:
            return message_key(messages, last)
    return None


class _Exchange(NamedTuple):
    """An AI message with tool calls, and the results that answer them."""

    asked: int
    open_calls: set[str]
    answers: list[int]


class _Layout:
    """A conversation and the gaps in it: gap i lies before message i, the last one at the end."""

    def __init__(self, messages: Sequence[BaseMessage]) -> None:
        self._messages = messages
        self._index = {key: i for i, key in enumerate(message_keys(messages))}
        self._head = next(
            (i for i, one in enumerate(messages) if not isinstance(one, SystemMessage)),
            len(messages),
        )
        self._unsafe = _unsafe_gaps(messages)
        self._humans = [i for i, message in enumerate(messages) if _is_human(message)]

    @property
    def has_lost_turn(self) -> bool:
        """Whether the latest human message was summarised or trimmed away."""
        if not self._humans:
            return True
        marks = self._messages[self._humans[-1]].additional_kwargs
        return marks.get("lc_source") == "summarization"

    def find(self, key: str | None) -> int | None:
        """Index of the message with this key."""
        return None if key is None else self._index.get(key)

    def is_human(self, index: int | None) -> TypeGuard[int]:
        """Whether this is a message of the user's."""
        return index is not None and isinstance(self._messages[index], HumanMessage)

    def gap(self, turn: int | None, after: int | None, placement: Placement) -> int:
        """Where a block goes that belongs to this turn, or comes after this message."""
        if after is not None:
            return self._safe_from(after + 1)
        if turn is None:
            return self._safe_until(len(self._messages))
        if placement == "start":
            return self._head
        return self._safe_until(self._end_of(turn) if placement == "end" else turn)

    def _end_of(self, turn: int) -> int:
        """Where the conversation ended when the turn's last answer was asked for."""
        following = next((human for human in self._humans if human > turn), None)
        if following is None:
            return len(self._messages)
        answers = (
            i for i in range(following - 1, turn, -1) if isinstance(self._messages[i], AIMessage)
        )
        return next(answers, following)

    def _safe_until(self, gap: int) -> int:
        """The last safe gap up to this one."""
        while gap > self._head and gap in self._unsafe:
            gap -= 1
        return max(gap, self._head)

    def _safe_from(self, gap: int) -> int:
        """The first safe gap from this one on; when there is none, the last before it."""
        gaps = range(max(gap, self._head), len(self._messages) + 1)
        return next((one for one in gaps if one not in self._unsafe), self._safe_until(gap))


def _unsafe_gaps(messages: Sequence[BaseMessage]) -> set[int]:
    """Gaps between a tool call and a result that is there or may still come."""
    unsafe = {
        i
        for i in range(1, len(messages))
        if _is_result(messages[i])
        and (isinstance(messages[i - 1], AIMessage) or _is_result(messages[i - 1]))
    }
    spoken = [i for i, one in enumerate(messages) if isinstance(one, AIMessage | HumanMessage)]
    # What was not answered before somebody spoke again is not waited for any more.
    again = dict(pairwise([*spoken, len(messages)]))
    for exchange in _exchanges(messages):
        until = max(exchange.answers, default=exchange.asked)
        if exchange.open_calls:
            until = max(until, again[exchange.asked])
        unsafe.update(range(exchange.asked + 1, until + 1))
    return unsafe


def _exchanges(messages: Sequence[BaseMessage]) -> list[_Exchange]:
    exchanges: list[_Exchange] = []
    # Some models number their calls anew in each message: a result belongs to the nearest.
    asked: dict[str, _Exchange] = {}
    for i, message in enumerate(messages):
        if isinstance(message, AIMessage) and (calls := _call_ids(message)):
            exchanges.append(_Exchange(i, set(calls), []))
            asked.update((call, exchanges[-1]) for call in calls)
        elif isinstance(message, ToolMessage) and message.tool_call_id in asked:
            exchange = asked[message.tool_call_id]
            exchange.answers.append(i)
            exchange.open_calls.discard(message.tool_call_id)
    return exchanges


def _call_ids(message: AIMessage) -> list[str]:
    """Ids of all calls, of those too that could not be parsed: they are sent and answered alike."""
    return [call["id"] or "" for call in (*message.tool_calls, *message.invalid_tool_calls)]


def _is_result(message: BaseMessage) -> bool:
    return isinstance(message, ToolMessage | FunctionMessage)


def _is_human(message: BaseMessage) -> bool:
    return isinstance(message, HumanMessage) and message.name != BLOCK_NAME


def _with_texts(message: BaseMessage, texts: Iterable[str]) -> BaseMessage:
    """A copy whose content ends in these texts."""
    said = message.content
    # Some providers refuse an empty text block.
    own = [_text_block(said)] if isinstance(said, str) and said else [*said]
    return message.model_copy(update={"content": [*own, *map(_text_block, texts)]})


def _text_block(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def message_keys(messages: Sequence[BaseMessage]) -> list[str]:
    """The key of every message."""
    seen: Counter[str] = Counter()
    return [message.id or _digest(message, seen) for message in messages]


def _digest(message: BaseMessage, seen: Counter[str]) -> str:
    """Type, content and how many alike came before."""
    written = json.dumps([message.type, message.content], sort_keys=True, default=repr)
    body = hashlib.blake2b(written.encode(), digest_size=16).hexdigest()
    seen[body] += 1
    return f"{body}-{seen[body]}"
