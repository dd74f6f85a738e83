"""Recalls for the tests of `observe`, made by the real pipeline from candidates of any kind."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
from hypothesis import strategies as st

from langmem_recall.policy import RecallPolicy
from langmem_recall.ranking.pipeline import rank, select
from langmem_recall.types import (
    KINDS,
    STATUSES,
    TRUST,
    Candidate,
    Cue,
    Evidence,
    Memory,
    MemoryId,
    Namespace,
    Recall,
    Temporal,
    Trace,
    Usage,
)

NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)
HOME: Namespace = ("memories", "ann")


def candidate(
    key: str,
    relevance: float = 0.5,
    *,
    dense: float | None = 0.5,
    days: float = 0.0,
    usage: Usage = Usage(),  # noqa: B008
    **fields: Any,
) -> Candidate:
    """A candidate with so much relevance, written so many days ago."""
    held = {"namespace": HOME, "text": f"memory {key}", **fields}
    memory = Memory(key=key, written_at=NOW - timedelta(days=days), **held)
    return Candidate(memory, Evidence(dense=dense, relevance=relevance), usage)


def strangers(ids: Sequence[MemoryId]) -> np.ndarray:
    """No two memories are alike."""
    return np.eye(len(ids))


def recall_of(
    candidates: Sequence[Candidate],
    cue: Cue | str = "what is it?",
    policy: RecallPolicy | None = None,
    likeness: Any = strangers,
    **trace: Any,
) -> Recall:
    """What the pipeline makes of the candidates."""
    policy = policy or RecallPolicy.default()
    asked = Cue(cue) if isinstance(cue, str) else cue
    told = {
        "namespaces": (HOME,),
        "policy": f"{policy.name} {policy.fingerprint}",
        "at": NOW,
        "searched": len(candidates),
        "channels": {"dense": len(candidates), "words": 0},
        "timings": {"find": 0.002, "rank": 0.001},
        **trace,
    }
    ranking = rank(asked, candidates, policy, told["at"], told["namespaces"])
    chosen, dropped = select(ranking.ranked, policy, likeness)
    return Recall(tuple(chosen), (*ranking.dropped, *dropped), Trace(cue=asked, **told))


# --- any recall -----------------------------------------------------------------------------------

SHARES = st.floats(0, 1)
TEXTS = st.text(max_size=40) | st.sampled_from(
    [
        "</script><img src=x onerror=alert(1)>",
        "\x1b[2J\u202e",
        "日本語のテキスト",
        "\ud800",
        "__proto__",
    ]
)
MOMENTS = st.datetimes(datetime(2020, 1, 1), datetime(2027, 1, 1), timezones=st.just(UTC))


@st.composite
def usages(draw: st.DrawFn) -> Usage:
    uses = draw(st.integers(0, 9))
    if not uses:
        return Usage()
    last = draw(st.floats(1.6e9, 1.8e9))
    before = draw(st.none() | st.floats(0, 1e6).map(lambda gap: last - gap))
    return Usage(uses, draw(st.floats(0, uses)), last, before, draw(st.integers(-5, 5)))


@st.composite
def memories(draw: st.DrawFn, key: str) -> Memory:
    return Memory(
        namespace=draw(st.sampled_from([HOME, (*HOME, "work"), ("memories", "bob")])),
        key=key,
        text=draw(TEXTS),
        kind=draw(st.sampled_from(KINDS)),
        source=draw(st.sampled_from(list(TRUST))),
        confidence=draw(SHARES),
        salience=draw(SHARES),
        written_at=draw(st.none() | MOMENTS),
        thread_id=draw(st.none() | TEXTS),
        turn=draw(st.none() | st.integers(0, 99) | TEXTS),
        speaker=draw(st.none() | TEXTS),
        entities=tuple(draw(st.lists(TEXTS, max_size=2))),
        tags=tuple(draw(st.lists(TEXTS, max_size=2))),
        valid_from=draw(st.none() | MOMENTS),
        valid_until=draw(st.none() | MOMENTS),
        supersedes=tuple(draw(st.lists(TEXTS, max_size=2))),
        pinned=draw(st.booleans()),
        status=draw(st.sampled_from([*STATUSES, "active", "active"])),
        dated=draw(st.booleans()),
    )


@st.composite
def candidates(draw: st.DrawFn) -> list[Candidate]:
    keys = draw(st.lists(TEXTS, unique=True, max_size=12))
    return [
        Candidate(
            draw(memories(key)),
            Evidence(
                dense=draw(st.none() | st.floats(-1, 1)),
                coverage=draw(SHARES),
                bm25=draw(st.none() | st.floats(0, 50)),
                entity=draw(SHARES),
                episode=draw(st.floats(0, 5)),
                relevance=draw(SHARES),
            ),
            draw(usages()),
            draw(st.none() | st.integers(1, 50)),
            draw(st.none() | st.integers(1, 50)),
            draw(st.none() | st.floats(-1, 1)),
            draw(st.none() | TEXTS),
            found_as=draw(st.none() | TEXTS),
        )
        for key in keys
    ]


TEMPORALS = st.none() | st.builds(
    Temporal,
    st.sampled_from(["current", "past", "first", "window"]),
    st.none() | MOMENTS,
    st.none() | MOMENTS,
)
CUES = st.builds(Cue, TEXTS, st.lists(TEXTS, max_size=3).map(tuple), st.none() | TEXTS, TEMPORALS)


@st.composite
def recalls(draw: st.DrawFn) -> Recall:
    """Any recall that the pipeline can make."""
    policy = RecallPolicy.default(
        trigger=draw(SHARES), floor=draw(SHARES), top_k=draw(st.integers(1, 6))
    )
    return recall_of(
        draw(candidates()),
        draw(CUES),
        policy,
        budget_tokens=draw(st.none() | st.integers(0, 4000)),
        tokens=draw(st.integers(0, 4000)),
        degraded=tuple(draw(st.lists(TEXTS, max_size=2))),
        compacted=tuple((HOME, key) for key in draw(st.lists(TEXTS, max_size=2))),
        timings=draw(st.dictionaries(TEXTS, st.floats(0, 10), max_size=3)),
        searched=draw(st.integers(0, 10**6)),
    )
