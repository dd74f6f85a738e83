"""What a placement of the recalled block costs where the provider caches prompt prefixes.

Run with `python benchmarks/cache.py`. No model is called: the prompts of a conversation that uses
tools are composed with the library's own `place`, and each is compared with all earlier ones. What
they have in common from the beginning on is cached, the rest is not.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import get_args

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

from langmem_recall.agents.placement import Block, Placement, place

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


def read(all_prompts: Iterator[Prompt]) -> Reading:
    """Count tokens, cached ones by the longest prefix shared with any earlier prompt."""
    earlier: list[Prompt] = []
    total = uncached = 0
    for prompt in all_prompts:
        length = sum(map(tokens, prompt))
        total += length
        uncached += length - max((shared(prompt, other) for other in earlier), default=0)
        earlier.append(prompt)
    return Reading(total, uncached)


def shared(prompt: Sequence[str], other: Sequence[str]) -> int:
    """Tokens of the common beginning; no two different texts here begin alike."""
    alike = takewhile(lambda pair: pair[0] == pair[1], zip(prompt, other, strict=False))
    return sum(tokens(text) for text, _ in alike)


def tokens(text: str) -> int:
    """How many tokens a text has."""
    return text.count(" ") + 1


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
