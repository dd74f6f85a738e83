"""Whose word a note is, what contradicts and what denies: both halves of our pairs.

    python benchmarks/learning.py

The pairs are in tests/data: attribution.jsonl, conflicts.jsonl, denials.jsonl. Half of each was
kept back while the rules were made.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langmem_recall.agents.conversation import Conversation
from langmem_recall.memory.conflicts import conflicts, denied
from langmem_recall.types import Memory

DATA = Path(__file__).parent.parent / "tests" / "data"
HALVES = ("seen", "unseen")
Pair = dict[str, Any]


def read_pairs(name: str, half: str) -> list[Pair]:
    """One half of a file of pairs."""
    lines = (DATA / f"{name}.jsonl").read_text("utf-8").splitlines()
    return [pair for pair in map(json.loads, lines) if pair["half"] == half]


def source_heard(pair: Pair) -> str:
    """The source that the note of a pair gets in a conversation."""
    said, by = pair["said"], pair["by"]
    messages: list[BaseMessage] = [HumanMessage("Hello"), AIMessage("Hi!"), HumanMessage(said)]
    if by == "assistant":
        messages = [HumanMessage("Go on"), AIMessage(said), HumanMessage("Yes, thanks")]
    elif by == "tool":
        call = {"name": "lookup", "args": {}, "id": "1"}
        messages = [
            HumanMessage("Look it up please"),
            AIMessage("", tool_calls=[call]),
            ToolMessage(said, tool_call_id="1"),
        ]
    return Conversation(messages, [], frozenset()).source_of(pair["text"])


def is_conflict(pair: Pair) -> bool:
    """Whether the two texts of a pair contradict each other."""
    return bool(conflicts([_memory(pair["one"]), _memory(pair["other"])]))


def is_denial(pair: Pair) -> bool:
    """Whether what was said denies the memory of a pair."""
    return denied([_memory(pair["memory"])], [pair["said"]]) == [True]


def _memory(text: str) -> Memory:
    return Memory(namespace=("memories",), key=text, text=text)


def precision_and_recall(
    name: str, wanted: str, judge: Callable[[Pair], bool], half: str
) -> tuple[float, float]:
    """How many of those found are wanted, and how many of those wanted are found."""
    found = Counter((pair[wanted], judge(pair)) for pair in read_pairs(name, half))
    both = found[True, True]
    return both / (both + found[False, True]), both / (both + found[True, False])


def main() -> None:
    """Print the tables of docs/learning.md."""
    for half in HALVES:
        heard = [(pair["by"], source_heard(pair)) for pair in read_pairs("attribution", half)]
        users = [source == "user_stated" for by, source in heard if by == "user"]
        others = [source == "user_stated" for by, source in heard if by != "user"]
        print(
            f"{half}: the user's facts kept {sum(users)} of {len(users)}, "
            f"others' as the user's {sum(others)} of {len(others)}"
        )
    for name, wanted, judge in (
        ("conflicts", "conflict", is_conflict),
        ("denials", "denied", is_denial),
    ):
        for half in HALVES:
            precision, recall = precision_and_recall(name, wanted, judge, half)
            print(f"{name}, {half}: precision {precision:.2f}, recall {recall:.2f}")


if __name__ == "__main__":
    main()
