"""How long a turn with recall blocks the event loop, beside the same turn without it.

Run with `python benchmarks/loop.py`; `--size 0` leaves the store of 50,000 out. A task wakes up
each millisecond while an agent takes a turn: what it oversleeps by most is the longest block of
that turn. Shown is the median over some turns, each in a thread of its own, how long a turn takes,
and the memories in it. Gates on relevance are off: what is measured is the work, not the ranking.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import logging
import random
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from langchain.agents import create_agent
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.store.base import BaseStore, PutOp
from stores import text_of

from langmem_recall import LocalStore, RecallMiddleware, RecallPolicy, RecallStore

HOME, HOMES = ("memories", "ada"), ("memories", "{user_id}")
QUESTION = "Which seat do I book on flights, aisle or window?"
HAN_QUESTION = "我的航班座位是哪个"
CHAT = "So I told them that the quarterly numbers look fine and that Anna checks the seats again. "
HAN_CHAT = "所以我告诉他们季度数字看起来不错。安娜会再次检查座位。"
PAGE = (
    "Invoices were booked and seats were sent to Anna, and Bob checks the status of the project. "
)
CLAIM = (
    "Invoices were booked by Bob. Seats were sent to Anna. The status of the project is checked."
)
POLICY = RecallPolicy.default(name="all", trigger=0.0, floor=0.0)
MESSAGE_CHARS, MEMORY_CHARS = 10_000, 32_000


class Turn(NamedTuple):
    """What a turn cost, in milliseconds."""

    block: float
    took: float
    memories: int


def history(messages: int, text: str, chars: int = MESSAGE_CHARS) -> list[BaseMessage]:
    """A conversation of so many messages, all of that length."""
    said = [f"{i} {text * (chars // len(text) + 1)}"[:chars] for i in range(messages)]
    kinds = itertools.cycle((HumanMessage, AIMessage))
    return [kind(words) for kind, words in zip(kinds, said, strict=False)]


def long_memories(kind: str, count: int = 10) -> list[str]:
    """Memories of 32 kB that all bear on the question."""
    rng, han = random.Random(1), [chr(code) for code in range(0x4E00, 0x5E00)]
    texts = []
    for i in range(count):
        lines = [f"seat {rng.choice(('aisle', 'window'))} on flight {i}{n}" for n in range(1_400)]
        signs = ["".join(rng.choices(han, k=25)) for _ in range(1_250)]
        texts.append(
            {
                "lines": f"I book an aisle seat on flights {i}\n" + "\n".join(lines),
                "sentences": f"I book an aisle seat on flights {i}. " + ". ".join(lines),
                "han": f"航班座位靠走道{i}。" + "。".join(signs),
                "han, no full stop": f"航班座位靠走道{i}" + "".join(signs),
            }[kind][:MEMORY_CHARS]
        )
    return texts


def store_of(texts: Sequence[str]) -> RecallStore:
    """A store with these memories."""
    store = RecallStore(LocalStore())
    store.batch([PutOp(HOME, f"m{i}", {"content": text}) for i, text in enumerate(texts)])
    return store


def agent_of(store: BaseStore, middleware: Sequence[Any], answers: Sequence[Any] = ()) -> Any:
    """An agent whose model gives these answers, then says "ok"."""
    script = itertools.chain(answers, itertools.repeat(AIMessage("ok")))
    return create_agent(_Model(messages=script), store=store, middleware=middleware)


class _Model(GenericFakeChatModel):
    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self


@asynccontextmanager
async def heartbeat() -> AsyncIterator[list[float]]:
    """Milliseconds by which each beat of a task came late."""
    late: list[float] = []

    async def beat() -> None:
        while True:
            began = time.perf_counter()
            await asyncio.sleep(0.001)
            late.append(1e3 * (time.perf_counter() - began) - 1)

    task = asyncio.create_task(beat())
    await asyncio.sleep(0.01)
    late.clear()
    try:
        yield late
        await asyncio.sleep(0.005)
    finally:
        task.cancel()


async def turn(agent: Any, messages: Sequence[BaseMessage], thread: str) -> Turn:
    """Take a turn and watch the loop."""
    config = {"configurable": {"user_id": HOME[1], "thread_id": thread}}
    events = []
    async with heartbeat() as late:
        began = time.perf_counter()
        async for event in agent.astream({"messages": [*messages]}, config, stream_mode="custom"):
            events.append(event)
        took = 1e3 * (time.perf_counter() - began)
    return Turn(max(late), took, max((len(event["memories"]) for event in events), default=0))


async def show(
    name: str, store: BaseStore, messages: Sequence[BaseMessage], turns: int, *answers: AIMessage
) -> None:
    """Print one line: the same turns without and with recall, in turns."""
    bare, ours = list[Turn](), list[Turn]()
    tools = ("remember",) if answers else ()
    recall = RecallMiddleware(HOMES, tools=tools, policy=POLICY, deadline=30.0)
    # The first turn loads what later ones find.
    for number in range(turns + 1):
        bare.append(await turn(agent_of(store, []), messages, f"bare {number}"))
        ours.append(await turn(agent_of(store, [recall], answers), messages, f"recall {number}"))
    blocks = [statistics.median(one.block for one in some[1:]) for some in (bare, ours)]
    times = [statistics.median(one.took for one in some[1:]) for some in (bare, ours)]
    print(
        f"{name:<44} {blocks[0]:>7.1f} {blocks[1]:>7.1f} {blocks[1] - blocks[0]:>7.1f} "
        f"{times[0]:>9.1f} {times[1]:>9.1f} {ours[-1].memories:>9}",
        flush=True,
    )


async def first_load(size: int, folder: Path) -> None:
    """The first turn over a file with so many memories, in a store that has just been opened."""
    path = folder / "memory.db"
    with LocalStore(path) as store:
        for start in range(0, size, 1_000):
            rows = range(start, start + 1_000)
            store.batch([PutOp(HOME, f"m{n}", {"content": text_of(n)}) for n in rows])
        store.put(HOME, "seat", {"content": "I always book an aisle seat on flights"})
    recall = RecallMiddleware(HOMES, deadline=30.0, first_load=60.0)
    store = await asyncio.to_thread(LocalStore, path)
    first = await turn(agent_of(store, [recall]), [HumanMessage(QUESTION)], "first")
    name = f"first load of {size:,} memories"
    print(f"{name:<44} {'':>7} {first.block:>7.1f} {'':>17} {first.took:>9.1f} {first.memories:>9}")
    await asyncio.to_thread(store.close)


async def measure(turns: int, size: int) -> None:
    """Print the table."""
    print(f"{'':<44} {'longest block, ms':^23} {'turn, ms':^19}")
    heads = (f"{head:>7}" for head in ("bare", "recall", "more"))
    print(f"{'':<44} {' '.join(heads)} {'bare':>9} {'recall':>9} {'memories':>9}")
    short = store_of([f"I book an aisle seat on flights to city {i}" for i in range(40)])
    asks, han_asks = HumanMessage(QUESTION), HumanMessage(HAN_QUESTION)
    await show("a short turn", short, [asks], turns)
    for count in (100, 400):
        chat = history(count, CHAT)
        await show(f"{count} messages of 10 kB", short, [*chat, asks], turns)
    await show("the last message has 1 MB", short, history(1, CHAT, 1_000_000), turns)
    for kind in ("lines", "sentences", "han", "han, no full stop"):
        ask = han_asks if kind.startswith("han") else asks
        store = store_of(long_memories(kind))
        await show(f"10 memories of 32 kB, {kind}", store, [ask], turns)
    for kind, text, ask in (("lines", CHAT, asks), ("han", HAN_CHAT, han_asks)):
        store, chat = store_of(long_memories(kind)), history(400, text)
        await show(f"400 of 10 kB and 10 of 32 kB, {kind}", store, [*chat, ask], turns)
    seen: list[BaseMessage] = []
    for i in range(200):
        call = {"name": "web", "args": {}, "id": f"c{i}"}
        page = (PAGE * 200)[:20_000]
        seen += [AIMessage("", tool_calls=[call]), ToolMessage(page, tool_call_id=f"c{i}")]
    wants = AIMessage("", tool_calls=[{"name": "remember", "args": {"text": CLAIM}, "id": "r"}])
    await show("remember after 200 results of 20 kB", short, [*seen, asks], turns, wants)
    if size:
        with tempfile.TemporaryDirectory() as folder:
            await first_load(size, Path(folder))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=5, help="turns that each line is made from")
    parser.add_argument("--size", type=int, default=50_000, help="memories at the first load")
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    asyncio.run(measure(given.turns, given.size))


if __name__ == "__main__":
    main()
