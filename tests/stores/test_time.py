"""Times in a cue, through `RecallStore`: what is of a time, and what a date belongs to."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from conftest import Call, Clock
from langgraph.store.memory import InMemoryStore

from langmem_recall import Cue, LocalStore, RecallPolicy, RecallStore
from langmem_recall.policy import PRESETS
from langmem_recall.types import Recall

NS = ("memories", "ada")


@pytest.fixture(params=["local", "memory"])
def store(request: pytest.FixtureRequest, inner: InMemoryStore, clock: Clock) -> Any:
    """The clock says Wednesday, 4 March 2026, noon."""
    with RecallStore(LocalStore() if request.param == "local" else inner, clock=clock) as store:
        yield store


def remember(store: RecallStore, **notes: tuple[str, str]) -> None:
    for key, (written, text) in notes.items():
        when = datetime.fromisoformat(written)
        store.remember(NS, text, key=key, source="user_stated", written_at=when)


def keys(recall: Recall) -> set[str]:
    return {memory.key for memory in recall.memories}


PRICES = {
    "old": ("2026-02-10T10:00+00:00", "Pricing stays flat until the audit."),
    "new": ("2026-03-03T15:00+00:00", "Pricing moves to usage tiers."),
    "cat": ("2026-03-03T18:00+00:00", "The cat only eats tuna."),
}


@pytest.mark.parametrize("preset", PRESETS)
def test_under_every_preset_only_what_was_written_then_is_recalled(
    store: RecallStore, call: Call, preset: str
) -> None:
    remember(store, **PRICES)
    policy: RecallPolicy = getattr(RecallPolicy, preset)()

    recall = call(store, "recall", NS, "What did we say about pricing yesterday?", policy=policy)

    assert "new" in keys(recall)
    assert "old" not in keys(recall)
    dropped = {drop.memory.key: (drop.gate, drop.reason) for drop in recall.dropped}
    assert dropped["old"] == ("time", "written on 2026-02-10, outside the time asked for")


def test_nothing_of_then_leaves_what_was_written_at_another_time(store: RecallStore) -> None:
    remember(store, **PRICES)

    found = store.recall(NS, "What did we say about pricing a year ago?")
    assert found.memories
    assert "time" not in {drop.gate for drop in found.dropped}


def test_a_question_for_a_time_alone_brings_what_was_written_then(
    store: RecallStore, call: Call
) -> None:
    remember(store, **PRICES)

    recall = call(store, "recall", NS, "What did I tell you yesterday?")

    assert keys(recall) == {"new", "cat"}
    assert recall.trace.cue.parts == ("3 march 2026",)
    assert keys(call(store, "recall", NS, "What did I tell you on Friday?")) == set()


def test_the_day_is_that_of_the_zone_in_which_is_asked(store: RecallStore) -> None:
    # Half past eleven on Monday in New York is half past four on Tuesday at Greenwich.
    remember(
        store,
        monday=("2026-03-02T23:30-05:00", "The landlord wants to sell the flat."),
        tuesday=("2026-03-03T23:30-05:00", "Mia broke her wrist."),
    )
    cue = "What did I tell you yesterday?"

    there = datetime.fromisoformat("2026-03-04T08:00-05:00")
    assert keys(store.recall(NS, Cue(cue, at=there))) == {"tuesday"}
    here = datetime.fromisoformat("2026-03-04T08:00+00:00")
    assert keys(store.recall(NS, Cue(cue, at=here))) <= {"monday"}


def test_a_second_question_without_a_time_is_answered_too(store: RecallStore) -> None:
    remember(store, **PRICES, shoes=("2026-01-10T10:00+00:00", "My shoe size is 44."))
    parts = ("What did we say about pricing yesterday?", "What is my shoe size?")

    recall = store.recall(NS, Cue("\n".join(parts), parts=parts))

    assert keys(recall) >= {"new", "shoes"}


def test_what_is_due_in_march_is_not_all_that_was_written_in_march(
    store: RecallStore, call: Call
) -> None:
    remember(
        store,
        due=("2026-01-08T10:00+00:00", "The VAT return is due on 31 March."),
        cat=("2026-03-02T10:00+00:00", "The cat only eats tuna."),
        ben=("2026-03-03T10:00+00:00", "Ben is afraid of dogs."),
    )

    recall = call(store, "recall", NS, "What is due in March?")
    found = call(store, "search", NS, query="What is due in March?", limit=3)

    assert keys(recall) == {"due"}
    assert recall.trace.cue.temporal is None
    assert found[0].key == "due"
    # Asked for what was written then, the date of writing counts as a word again.
    assert keys(call(store, "recall", NS, "What did I note in March?")) >= {"cat", "ben"}


def test_search_prefers_a_time_and_leaves_nothing_out(store: RecallStore, call: Call) -> None:
    remember(store, **PRICES)

    found = call(store, "search", NS, query="What did we say about pricing yesterday?", limit=3)

    assert found[0].key == "new"
    assert len(found) == 3
