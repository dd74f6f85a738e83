"""Where in a conversation the recalled block stands, for the length of one model call."""

from __future__ import annotations

import hashlib
import json
import re
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal, NamedTuple

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    FunctionMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

from langmem_recall.cue import BLOCK_NAME, texts_of

Placement = Literal["before_turn", "end", "start", "in_turn"]


_OPENING = "<recalled-memories id="
_HANDLES = re.compile(r'^\{"id": "m(\d{1,3})"', re.MULTILINE)


class Block(NamedTuple):
    """A rendered recall and the messages it belongs to, by their keys."""

    text: str
    turn: str  # the human message that began its turn
    after: str | None = None
    """The message it comes after, for a second block in a turn; None: the placement decides."""
    unverified: tuple[str, ...] = ()  # its unverified memories
    tokens: int = 0  # how long its text is


def message_keys(messages: Sequence[BaseMessage]) -> list[str]:
    """The id of each message, else a digest that stays the same while the conversation grows."""
    keys: list[str] = []
    seen: Counter[str] = Counter()
    for message in messages:
        if message.id:
            keys.append(message.id)
            continue
        written = json.dumps([message.type, message.content], sort_keys=True, default=repr)
        body = hashlib.blake2b(written.encode(), digest_size=16).hexdigest()
        seen[body] += 1
        keys.append(f"{body}-{seen[body]}")
    return keys


def place(
    messages: Sequence[BaseMessage], blocks: Sequence[Block], placement: Placement
) -> list[BaseMessage]:
    """The messages with the blocks among them; tool calls stay next to their results.

    Blocks of turns that are no longer in the conversation are left out, those of the latest turn
    excepted. A block stands alone as a user message, except `in_turn`: there it ends the human
    message, whose own words then begin alike with and without it.
    """
    layout = _Layout(messages)
    index: dict[str | None, int] = {key: i for i, key in enumerate(message_keys(messages))}
    shown = [block for block in blocks if block.text.strip()]
    before: defaultdict[int, list[BaseMessage]] = defaultdict(list)
    inside: defaultdict[int, list[str]] = defaultdict(list)
    for block in shown:
        turn, after = index.get(block.turn), index.get(block.after)
        if turn is None and not (layout.has_lost_turn and block.turn == shown[-1].turn):
            continue
        is_human = turn is not None and isinstance(messages[turn], HumanMessage)
        if placement == "in_turn" and after is None and turn is not None and is_human:
            inside[turn].append(block.text)
        else:
            gap = layout.gap(turn, after, placement)
            before[gap].append(HumanMessage(content=block.text, name=BLOCK_NAME))
    placed: list[BaseMessage] = []
    for i, message in enumerate(messages):
        placed += before[i]
        if i in inside:
            own: Any = message.content
            if isinstance(own, str):
                # Some providers refuse an empty text block.
                own = [{"type": "text", "text": own}] if own else []
            ends = [{"type": "text", "text": text} for text in inside[i]]
            message = message.model_copy(update={"content": [*own, *ends]})
        placed.append(message)
    return placed + before[len(messages)]


def handles_shown(messages: Sequence[BaseMessage]) -> list[int]:
    """The numbers of handles in blocks that another middleware has placed already."""
    found = list[int]()
    for message in messages:
        if isinstance(message, HumanMessage):
            is_block = message.name == BLOCK_NAME
            blocks = [text for text in texts_of(message) if is_block or text.startswith(_OPENING)]
            found += [int(number) for text in blocks for number in _HANDLES.findall(text)]
    return found


def last_tool_result(messages: Sequence[BaseMessage], turn_index: int) -> str | None:
    """Key of the turn's last tool result after which every call made with it is answered."""
    for exchange in reversed(_exchanges(messages)):
        last = max(exchange.answers, default=-1)
        if last > turn_index and not exchange.open_calls:
            return message_keys(messages)[last]
    return None


class _Layout:
    """A conversation and the gaps in it: gap i lies before message i, the last one at the end."""

    def __init__(self, messages: Sequence[BaseMessage]) -> None:
        self._messages = messages
        is_head = (isinstance(message, SystemMessage) for message in messages)
        self._head = next((i for i, head in enumerate(is_head) if not head), len(messages))
        # No block stands between a tool call and a result that is there or may still come.
        results = ToolMessage | FunctionMessage
        unsafe = {
            i
            for i, (before, after) in enumerate(pairwise(messages), start=1)
            if isinstance(after, results) and isinstance(before, AIMessage | results)
        }
        speaks = (isinstance(said, AIMessage | HumanMessage) for said in messages)
        speakers = [i for i, is_speaker in enumerate(speaks) if is_speaker]
        # What was not answered before the next message of these is not waited for any more.
        following = dict(pairwise([*speakers, len(messages)]))
        for exchange in _exchanges(messages):
            until = max(exchange.answers, default=exchange.place)
            if exchange.open_calls:
                until = max(until, following[exchange.place])
            unsafe.update(range(exchange.place + 1, until + 1))
        self._safe = [i for i in range(self._head, len(messages) + 1) if i not in unsafe]
        humans = (i for i, said in enumerate(messages) if isinstance(said, HumanMessage))
        self._humans = [i for i in humans if messages[i].name != BLOCK_NAME]
        latest = messages[self._humans[-1]].additional_kwargs if self._humans else {}
        self.has_lost_turn = not self._humans or latest.get("lc_source") == "summarization"
        """Whether the latest human message was summarised or trimmed away."""

    def gap(self, turn: int | None, after: int | None, placement: Placement) -> int:
        """Where a block goes that belongs to this turn, or comes after this message."""
        if after is not None:
            later = bisect_left(self._safe, after + 1)
            if later < len(self._safe):
                return self._safe[later]
            latest = after + 1
        elif turn is None:
            latest = len(self._messages)
        elif placement == "end":
            # Where the conversation ended when the turn's last answer was asked for.
            said, end = self._messages, len(self._messages)
            latest = next((human for human in self._humans if human > turn), end)
            answers = [i for i in range(turn + 1, latest) if isinstance(said[i], AIMessage)]
            if answers and latest < end:
                latest = answers[-1]
        else:
            latest = self._head if placement == "start" else turn
        earlier = bisect_right(self._safe, latest)
        return self._safe[earlier - 1] if earlier else self._head


class _Exchange(NamedTuple):
    """An AI message with tool calls, and the results that answer them."""

    place: int
    open_calls: set[str]
    answers: list[int]


def _exchanges(messages: Sequence[BaseMessage]) -> list[_Exchange]:
    exchanges: list[_Exchange] = []
    # Some models number their calls anew in each message: a result belongs to the nearest.
    by_call: dict[str, _Exchange] = {}
    for i, message in enumerate(messages):
        if isinstance(message, AIMessage):
            # Calls that could not be parsed are sent and answered like the others.
            calls = (*message.tool_calls, *message.invalid_tool_calls)
            if ids := {call["id"] or "" for call in calls}:
                exchanges.append(_Exchange(i, ids, []))
                by_call |= dict.fromkeys(ids, exchanges[-1])
        elif isinstance(message, ToolMessage) and message.tool_call_id in by_call:
            exchange = by_call[message.tool_call_id]
            exchange.answers.append(i)
            exchange.open_calls.discard(message.tool_call_id)
    return exchanges
