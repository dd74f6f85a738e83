from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langmem_recall.policy import RecallPolicy
from langmem_recall.ranking.gates import HARD_GATES, Moment, hard_drop, recall_gates
from langmem_recall.types import Candidate, Evidence, Memory, Scored, Signals

NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)
HERE = Moment(NOW, (("memories", "ann"),))


def candidate(standing: str | None = None, **fields: Any) -> Candidate:
    held = {"namespace": ("memories", "ann"), "key": "k", "text": "t", **fields}
    return Candidate(Memory(**held), Evidence(), standing=standing)


def scored(relevance: float, score: float | None = None, *, pinned: bool = False) -> Scored:
    signals = Signals(relevance, 0.0, 0.0, 0.0, 0.0, 0.0)
    return Scored(candidate(pinned=pinned), signals, relevance if score is None else score)


def test_hard_gates_stand_in_the_order_of_the_design():
    assert [gate for gate, _ in HARD_GATES] == ["tenant", "status", "validity", "expired", "task"]


@pytest.mark.parametrize(
    ("namespace", "boundaries", "inside"),
    [
        (("memories", "ann"), (("memories", "ann"),), True),
        (("memories", "ann", "work"), (("memories", "ann"),), True),
        (("memories", "anna"), (("memories", "ann"),), False),
        (("memories",), (("memories", "ann"),), False),
        (("other", "ann"), (("memories", "ann"),), False),
        (("team",), (("memories", "ann"), ("team",)), True),
        (("memories", "bob"), (("memories", "ann"), ("team",)), False),
        (("anything",), ((),), True),
        (("anything",), (), False),
    ],
)
def test_tenant_is_compared_element_by_element(namespace, boundaries, inside):
    found = hard_drop(candidate(namespace=namespace), Moment(NOW, boundaries))

    assert found == (None if inside else ("tenant", "outside the namespace asked for"))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, None),
        ({"status": "quarantined"}, ("status", "quarantined")),
        ({"status": "superseded"}, ("status", "superseded")),
        ({"standing": "derived from k0"}, ("status", "derived from k0")),
        ({"valid_from": NOW + timedelta(seconds=1)}, ("validity", "valid from 2026-03-04")),
        ({"valid_from": NOW}, None),
        ({"valid_until": NOW + timedelta(seconds=1)}, None),
        ({"valid_until": NOW}, ("expired", "expired on 2026-03-04")),
        ({"valid_until": NOW - timedelta(days=3)}, ("expired", "expired on 2026-03-01")),
    ],
    ids=repr,
)
def test_hard_gate_says_why(fields, expected):
    assert hard_drop(candidate(**fields), HERE) == expected


def test_pinned_memory_does_not_pass_a_hard_gate():
    assert hard_drop(candidate(pinned=True, valid_until=NOW), HERE) is not None


@pytest.mark.parametrize(
    ("task", "tags", "expected"),
    [
        (None, (), None),
        ("move", ("move", "flat"), None),
        ("move", (), ("task", "not tagged 'move'")),
        ("move", ("moveable",), ("task", "not tagged 'move'")),
    ],
)
def test_task_gate_wants_the_tag(task, tags, expected):
    assert hard_drop(candidate(tags=tags), HERE._replace(task=task)) == expected


def test_first_gate_that_rejects_gives_the_reason():
    everything_wrong = {
        "namespace": ("elsewhere",),
        "status": "quarantined",
        "valid_from": NOW + timedelta(days=2),
        "valid_until": NOW - timedelta(days=2),
        "tags": (),
    }
    moment = HERE._replace(task="move")
    gates = []
    for mended in [{}, *({name: None} for name in everything_wrong)]:
        everything_wrong |= mended
        held = {name: part for name, part in everything_wrong.items() if part is not None}
        found = hard_drop(candidate(**held), moment)
        gates.append(found and found[0])

    assert gates == ["tenant", "status", "validity", "expired", "task", "task"]


def drops(ranked: list[Scored], **knobs: Any) -> list[tuple[int, str, str]]:
    _, dropped = recall_gates(ranked, RecallPolicy(**knobs))
    return [(ranked.index(drop.scored), drop.gate, drop.reason) for drop in dropped]


def test_nothing_passes_when_the_best_is_below_the_trigger():
    reason = "best relevance 0.49 is below the trigger 0.5"

    assert drops([scored(0.49), scored(0.2)], trigger=0.5, floor=0.15) == [
        (0, "trigger", reason),
        (1, "trigger", reason),
    ]


def test_memory_below_the_floor_is_dropped_alone():
    assert drops([scored(0.5), scored(0.15), scored(0.149)], trigger=0.5, floor=0.15) == [
        (2, "floor", "relevance 0.15 is below the floor 0.15")
    ]


def test_trigger_looks_at_relevance_wherever_it_ranks():
    assert drops([scored(0.2, score=9.0), scored(0.6, score=0.1)], trigger=0.5, floor=0.0) == []


def test_composite_floor_reads_the_score():
    found = drops(
        [scored(0.0, score=0.36), scored(0.9, score=0.34)],
        trigger=0.0,
        floor=0.0,
        composite_floor=0.35,
    )

    assert found == [(1, "composite", "score 0.34 is below 0.35")]


def test_gates_at_zero_let_everything_pass():
    ranked = [scored(0.0), scored(0.0)]
    kept, dropped = recall_gates(ranked, RecallPolicy(trigger=0.0, floor=0.0))

    assert (kept, dropped) == (ranked, [])


def test_pinned_memory_passes_trigger_and_floor():
    ranked = [scored(0.3), scored(0.01, pinned=True)]
    kept, dropped = recall_gates(ranked, RecallPolicy(trigger=0.5, floor=0.15))

    assert kept == [ranked[1]]
    assert [drop.gate for drop in dropped] == ["trigger"]


def test_nothing_ranked_is_nothing_dropped():
    assert recall_gates([], RecallPolicy()) == ([], [])


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), max_size=8), st.floats(0, 1))
def test_each_memory_is_either_kept_or_dropped_and_order_is_kept(held, bar):
    ranked = [scored(relevance, pinned=pinned) for relevance, pinned in held]
    kept, dropped = recall_gates(ranked, RecallPolicy(trigger=bar, floor=bar / 2))
    places = [[id(one) for one in ranked].index(id(one)) for one in kept]

    assert len(kept) + len(dropped) == len(ranked)
    assert places == sorted(places)
    assert not any(drop.memory.pinned for drop in dropped)
