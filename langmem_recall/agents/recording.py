"""What a turn's recall leaves behind for the next: its record, and what the model has in view."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from langmem_recall.agents.block import SHORTENED, Draft, scores_of
from langmem_recall.agents.records import (
    RecallRecord,
    ShownMemory,
    digest,
    is_unchanged,
    shown_id,
)
from langmem_recall.agents.scene import ModelCall, Turn
from langmem_recall.cue import words_of
from langmem_recall.rendering import Entry
from langmem_recall.types import Memory, MemoryId, Recall, View


def view_of(
    scene: ModelCall,
    turn: Turn,
    shown: Sequence[RecallRecord],
    old: Sequence[RecallRecord],
    found: Sequence[Memory | None],
) -> View:
    """What the model sees before this turn's block: earlier messages and blocks that stand."""
    before = scene.messages[: max(turn.place, 0)]
    fetched = [one for record in old for one in record["memories"]]
    changed = {
        shown_id(one)
        for one, memory in zip(fetched, found, strict=True)
        if not is_unchanged(one, memory)
    }
    ids = {shown_id(one) for record in shown for one in record["memories"]}
    return View(
        texts=tuple(filter(None, map(words_of, before))),
        ids=frozenset(ids - changed),
        thread_id=turn.thread_id,
        turns=frozenset(turn.keys[: max(turn.place, 0)]),
    )


def record_of(
    turn: Turn, cue: str, after: str | None, recall: Recall, drafted: Draft
) -> RecallRecord:
    """The record of a recall, but for the tokens that its block turns out to use."""
    scores = scores_of(recall)
    at = recall.trace.at.isoformat()
    memories = [_shown_memory(entry, scores, drafted) for entry in drafted.entries]
    told = repr((turn.thread_id, turn.key, cue, after, at, [one["key"] for one in memories]))
    return RecallRecord(
        id=digest(told),
        turn=turn.key,
        cue=cue,
        after=after,
        at=at,
        memories=memories,
        dropped=recall.drop_counts(),
        reason=recall.reason,
        tokens=0,
        budget=0,
        degraded=list(recall.trace.degraded),
    )


def failed_record(turn: Turn, recall: Recall) -> RecallRecord:
    """One for each turn, the latest: an outage must not crowd out what was recalled before it."""
    record = record_of(turn, "", None, recall, Draft([], {}, []))
    return {**record, "id": digest(repr((turn.thread_id, turn.key, "failed")))}


def _shown_memory(entry: Entry, scores: Mapping[MemoryId, Any], drafted: Draft) -> ShownMemory:
    memory, scored = entry.memory, scores[entry.memory.id]
    return ShownMemory(
        handle=entry.handle,
        namespace=list(memory.namespace),
        key=memory.key,
        source=memory.source,
        score=round(scored.score, 6),
        relevance=round(scored.signals.relevance, 6),
        digest=digest(memory.text),
        notes=[note for note in entry.notes if note != SHORTENED],
        room=drafted.rooms.get(entry.handle),
        verified=not memory.needs_verification,
    )
