"""What a placement of the recalled block costs where the provider caches prompt prefixes.

Run with `python benchmarks/cache.py`. No model is called: the prompts of a conversation that uses
tools are composed with the library's own `place`, and each is compared with all earlier ones. What
they have in common from the beginning on is cached, the rest is not.

A second table is of an agent in a window of 8,000 tokens, where past blocks have to give way to the
budget: 12 turns over notes of two lengths, and with every tenth recall late.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile
from typing import Any, NamedTuple, get_args

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.memory import InMemorySaver

from langmem_recall import LocalStore, Recall, RecallMiddleware, RecallStore
from langmem_recall.agents.options import count_tokens
from langmem_recall.agents.placement import Block, Placement, place
from langmem_recall.cue import BLOCK_NAME
from langmem_recall.deadline import TooLate

Prompt = list[str]


@dataclass(frozen=True, slots=True)
class Conversation:
    """How long everything is, in tokens; a token is a word here."""

    turns: int
    calls: int
    step_tokens: int
    block_tokens: int
    system_tokens: int
    human_tokens: int


@dataclass(frozen=True, slots=True)
class Reading:
    """Tokens that the model read over a whole conversation."""

    total: int
    uncached: int

    def cost(self, cached_price: float) -> float:
        """In tokens at full price."""
        return self.uncached + cached_price * (self.total - self.uncached)


def words(name: str, count: int) -> str:
    """A text of that many tokens, unlike every other text."""
    return " ".join(f"{name}.{i}" for i in range(count))


def growing(shape: Conversation) -> Iterator[tuple[int, list[BaseMessage]]]:
    """The messages at each model call, and the turn it belongs to."""
    messages: list[BaseMessage] = [SystemMessage(words("system", shape.system_tokens))]
    for turn in range(shape.turns):
        messages.append(HumanMessage(words(f"human{turn}", shape.human_tokens), id=f"h{turn}"))
        yield turn, list(messages)
        for step in range(1, shape.calls):
            messages += tool_step(f"{turn}.{step}", shape.step_tokens)
            yield turn, list(messages)
        # With the question before it, the answer makes up one more step.
        answer = words(f"answer{turn}", shape.step_tokens - shape.human_tokens)
        messages.append(AIMessage(answer))


def tool_step(name: str, tokens: int) -> list[BaseMessage]:
    """A tool call and its result."""
    asked = tokens // 5
    call = {"name": "look", "args": {}, "id": name}
    return [
        AIMessage(words(f"call{name}", asked), tool_calls=[call]),
        ToolMessage(words(f"result{name}", tokens - asked), tool_call_id=name),
    ]


def prompts(shape: Conversation, placement: Placement | None, replay: bool) -> Iterator[Prompt]:
    """What the model reads at each call, text by text."""
    blocks = [
        Block(words(f"block{turn}", shape.block_tokens), f"h{turn}") for turn in range(shape.turns)
    ]
    for turn, messages in growing(shape):
        shown = blocks[0 if replay else turn : turn + 1]
        placed = place(messages, shown, placement) if placement else messages
        yield [text for message in placed for text in texts(message)]


def texts(message: BaseMessage) -> list[str]:
    """The texts of a message, block by block."""
    if isinstance(message.content, str):
        return [message.content]
    return [part["text"] for part in message.content if isinstance(part, dict)]


def tokens(text: str) -> int:
    """How many tokens a text has."""
    return text.count(" ") + 1


def read(all_prompts: Iterator[Prompt], count: Callable[[str], int] = tokens) -> Reading:
    """Count tokens, cached ones by the longest prefix shared with any earlier prompt."""
    earlier: list[Prompt] = []
    total = uncached = 0
    for prompt in all_prompts:
        length = sum(map(count, prompt))
        total += length
        cached = (sum(map(count, shared(prompt, other))) for other in earlier)
        uncached += length - max(cached, default=0)
        earlier.append(prompt)
    return Reading(total, uncached)


def shared(prompt: Sequence[str], other: Sequence[str]) -> list[str]:
    """The common beginning; no two different texts here begin alike."""
    alike = takewhile(lambda pair: pair[0] == pair[1], zip(prompt, other, strict=False))
    return [text for text, _ in alike]


# --- an agent in a small window ---

WINDOW = 8_000
TOPICS = (
    *("harbour", "violin", "garden", "bakery", "glacier", "castle"),
    *("orchid", "tractor", "lantern", "compass", "meadow", "anchor"),
)
HOME = ("memories", "ada")
STEPS = 3
"""Model calls of a turn."""


class ToolUser(BaseChatModel):
    """Calls a tool in all calls of a turn but the last, and keeps what it was given."""

    seen: list[list[BaseMessage]]

    @property
    def _llm_type(self) -> str:
        return "tool user"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        """Itself."""
        return self

    def _generate(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> ChatResult:
        self.seen.append(list(messages))
        number = len(self.seen)
        call = {"name": "look", "args": {"number": number}, "id": f"call{number}"}
        is_last = number % STEPS == 0
        said = AIMessage(words(f"said{number}", 60), tool_calls=[] if is_last else [call])
        return ChatResult(generations=[ChatGeneration(message=said)])


class SometimesLate(RecallStore):
    """A store whose recalls are late in some turns."""

    late: frozenset[int] = frozenset()
    asked = 0

    def recall(self, *args: Any, **kwargs: Any) -> Recall:
        """The recall, or nothing in time."""
        self.asked += 1
        if self.asked in self.late:
            raise TooLate("no answer")
        return super().recall(*args, **kwargs)


class Outcome(NamedTuple):
    """What twelve turns came to, in tokens."""

    reading: Reading
    most: int
    budget: int
    breaks: int
    """Calls that did not begin with all of the call before."""


def look(number: int) -> str:
    """Look something up."""
    return words(f"found{number}", 60)


def twelve_turns(facts: int, late: Sequence[int] = (), **options: Any) -> Outcome:
    """Turns about twelve topics, with four notes of so many facts on each."""
    store = SometimesLate(LocalStore())
    store.late = frozenset(late)
    for topic in TOPICS:
        for i in range(4):
            rooms = (f"the {topic} fact {i}-{j} says item {j * 7 + i}." for j in range(facts))
            store.put(HOME, f"{topic}{i}", {"content": f"The {topic}, {i}: {' '.join(rooms)}"})
    model = ToolUser(seen=[], profile={"max_input_tokens": WINDOW})
    recall = [RecallMiddleware(("memories", "{user_id}"), **options)] if options else []
    agent = create_agent(
        model, [look], store=store, middleware=recall, checkpointer=InMemorySaver()
    )
    config: Any = {"configurable": {"user_id": "ada", "thread_id": "one"}}
    budget = 0
    for topic in TOPICS:
        asked = {"messages": [("user", f"Tell me all notes about the {topic}")]}
        for event in agent.stream(asked, config, stream_mode="custom"):
            budget = event["budget"]
    memory = [
        sum(count_tokens(said.text) for said in call if said.name == BLOCK_NAME)
        for call in model.seen
    ]
    sent = [[f"{said.type} {said.text}" for said in call] for call in model.seen]
    breaks = sum(after[: len(before)] != before for before, after in pairwise(sent))
    return Outcome(read(iter(sent), count_tokens), max(memory), budget, breaks)


def show_window(cached: float) -> None:
    """Print the table of the small window."""
    logging.disable(logging.WARNING)
    print(f"\n12 turns x {STEPS} calls in a window of {WINDOW:,} tokens")
    print(f"{'':<48} {'memory at most':>14} {'breaks':>7} {'uncached':>9} {'read':>10} {'':>7}")
    keep: dict[str, Any] = {"deadline": float("inf")}
    late = (5, 10)
    for name, facts in (("short", 4), ("long", 16)):
        bare = twelve_turns(facts)
        for past, knobs in (
            ("no memory", {}),
            ("past blocks gone", keep | {"replay": False}),
            ("past blocks replayed", keep),
            ("the same, every tenth recall late", keep | {"late": late}),
        ):
            came = twelve_turns(facts, **knobs)
            times = came.reading.cost(cached) / bare.reading.cost(cached)
            memory = f"{came.most:,} of {came.budget:,}" if knobs else ""
            print(
                f"{f'{name} notes, {past}':<48.48} {memory:>14} {came.breaks:>7} "
                f"{came.reading.uncached:>9,} {came.reading.total:>10,} {times:>6.2f}x"
            )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--calls", type=int, default=6, help="model calls in a turn")
    parser.add_argument("--step", type=int, default=1_500, help="tokens of a tool call and result")
    parser.add_argument("--block", type=int, default=500, help="tokens of the recalled block")
    parser.add_argument("--system", type=int, default=2_000, help="tokens of the system prompt")
    parser.add_argument("--human", type=int, default=100, help="tokens of a human message")
    parser.add_argument("--cached", type=float, default=0.1, help="price of a cached token")
    given = parser.parse_args()
    shape = Conversation(
        given.turns, given.calls, given.step, given.block, given.system, given.human
    )
    bare = read(prompts(shape, None, replay=False))
    print(
        f"{given.turns} turns x {given.calls} calls, {given.step:,} tokens a step, block of "
        f"{given.block:,}, cached tokens at {given.cached:.0%} of the price"
    )
    print(f"{'placement':<12} {'past blocks':<12} {'uncached':>9} {'read':>10} {'cost':>9} {'':>7}")
    show("no memory", "", bare, bare, given.cached)
    for placement in get_args(Placement):
        for replay in (False, True):
            reading = read(prompts(shape, placement, replay))
            show(placement, "replayed" if replay else "gone", reading, bare, given.cached)
    show_window(given.cached)


def show(placement: str, past: str, reading: Reading, bare: Reading, cached: float) -> None:
    """Print one line; the last figure compares its cost with that of no memory."""
    cost = reading.cost(cached)
    times = cost / bare.cost(cached)
    print(
        f"{placement:<12} {past:<12} {reading.uncached:>9,} {reading.total:>10,} {cost:>9,.0f} "
        f"{times:>6.2f}x"
    )


if __name__ == "__main__":
    main()
