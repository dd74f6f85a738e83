"""A month of use: reads, corrections, outcomes, sweeps, and nothing lost that no report names."""

from __future__ import annotations

import os
import random
from datetime import timedelta
from typing import Any

import pytest
from conftest import Clock, CountingEmbeddings
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore

from langmem_recall import Caching
from langmem_recall.flows.usage import USAGE
from langmem_recall.stores.local.store import LocalStore
from langmem_recall.stores.recall_store import RecallStore
from langmem_recall.types import Memory, MemoryId

TURNS = 1_000 if os.environ.get("SOAK") == "1" else 240
DAYS = 30
NS = ("memories", "ada")
TOPICS = ("tea", "the garden", "the budget", "the deploy", "jazz", "the move", "Oslo", "the cat")
KEPT_HISTORY = timedelta(days=7)


class Life:
    """Plays an agent's turns and keeps its own books of what must be in the store."""

    def __init__(self, base: BaseStore, clock: Clock) -> None:
        self.base = base
        self.clock = clock
        self.store = RecallStore(base, clock=clock, caching=Caching(flush_interval=1_000))
        self.chance = random.Random(7)
        self.written: set[MemoryId] = set()
        self.removed: set[MemoryId] = set()
        self.sweeps = 0

    def turn(self, number: int) -> None:
        topic = self.chance.choice(TOPICS)
        self.note(self.remembered(number, topic))
        recall = self.store.recall(NS, f"what do we know about {topic}?")
        for memory in recall.memories[:2]:
            self.store.feedback(NS, memory.key, good=self.chance.random() < 0.7)
        if recall.memories and self.chance.random() < 0.15:
            self.correct(recall.memories[0], number)
        if recall.memories and self.chance.random() < 0.05:
            self.forget(self.chance.choice(recall.memories))

    def remembered(self, number: int, topic: str) -> Memory:
        """Something new, something said before, an inference, or a note that expires."""
        draw = self.chance.random()
        if draw < 0.4:
            return self.store.remember(NS, f"Ada cares about {topic}", source="user_stated")
        if draw < 0.6:
            text = f"Ada may think of {topic} in week {number % 5}"
            return self.store.remember(NS, text, source="agent_inferred")
        if draw < 0.8:
            text = f"step {number} for {topic} went well"
            return self.store.remember(NS, text, observation="tool_result_verified")
        text = f"copy of a page on {topic}"
        return self.store.remember(NS, text, key=f"page-{number}", source="external")

    def correct(self, memory: Memory, number: int) -> None:
        self.note(self.store.correct(NS, memory.key, f"{memory.text}, as of turn {number}"))
        for former in self.store.history(NS, memory.key):
            self.note(former)

    def forget(self, memory: Memory) -> None:
        gone = [one.id for one in self.store.history(NS, memory.key)]
        assert self.store.forget(NS, memory.key)
        self.removed.update(gone)

    def note(self, memory: Memory) -> None:
        self.written.add(memory.id)
        self.removed.discard(memory.id)

    def sweep(self) -> None:
        """A whole pass in parts, first as a dry run."""
        self.sweeps += 1
        how: dict[str, Any] = {
            "cold_after": timedelta(days=14),
            "purge_history_before": self.clock.now - KEPT_HISTORY,
            "limit": 50,
        }
        before = self.contents()
        self.store.sweep(NS, **how)
        assert self.contents() == before
        after = None
        while True:
            report = self.store.sweep(NS, apply=True, after=after, **how)
            assert set(report.removed) <= before
            self.removed.update(report.removed)
            after = report.next
            if after is None:
                return

    def contents(self) -> set[MemoryId]:
        return {(item.namespace, item.key) for item in self.base.search(NS, limit=10_000)}

    def usage_records(self) -> set[MemoryId]:
        self.store.flush()
        if isinstance(self.base, LocalStore):
            rows = self.base._file._reader.execute("SELECT key FROM usage")
            return {(NS, key) for (key,) in rows}
        return {(NS, item.key) for item in self.base.search((*USAGE, *NS), limit=10_000)}


@pytest.mark.parametrize("sort", ["local", "vectors"])
def test_a_month_of_use_stays_bounded_and_loses_only_what_reports_name(
    sort: str, clock: Clock, embeddings: CountingEmbeddings
) -> None:
    index: Any = {"dims": 256, "embed": embeddings, "fields": ["content"]}
    base = LocalStore(embeddings=embeddings) if sort == "local" else InMemoryStore(index=index)
    life = Life(base, clock)
    largest = 0
    for number in range(TURNS):
        clock.turn(days=DAYS / TURNS)
        life.turn(number)
        if number % (TURNS // DAYS) == 0:
            life.sweep()
            assert life.contents() == life.written - life.removed
            largest = max(largest, len(life.contents()))
    assert life.sweeps >= DAYS
    assert life.contents() == life.written - life.removed
    assert len(life.removed) > TURNS / 4
    # A week of notes and of history, a month of inferences that fade, a fact or two for a topic.
    assert largest < 10 * len(TOPICS) + TURNS * 0.5
    assert life.usage_records() <= life.contents()
