from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langmem_recall.policy import RecallPolicy
from langmem_recall.ranking.gates import (
    GateContext,
    as_believed_at,
    hard_drop,
    recall_gates,
    time_drops,
)
from langmem_recall.types import (
    HARD_GATES,
    Candidate,
    Evidence,
    Memory,
    Scored,
    Signals,
    Temporal,
    View,
)

NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)
HERE = GateContext(NOW, (("memories", "ann"),))


def candidate(standing: str | None = None, **fields: Any) -> Candidate:
    held = {"namespace": ("memories", "ann"), "key": "k", "text": "t", **fields}
    return Candidate(Memory(**held), Evidence(), standing=standing)


def scored(relevance: float, score: float | None = None, *, pinned: bool = False) -> Scored:
    signals = Signals(relevance, 0.0, 0.0, 0.0, 0.0, 0.0)
    return Scored(candidate(pinned=pinned), signals, relevance if score is None else score)


def test_hard_gates_stand_in_the_order_of_the_design():
    assert HARD_GATES == ("tenant", "status", "validity", "expired", "confidence", "task", "time")


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
    found = hard_drop(candidate(namespace=namespace), GateContext(NOW, boundaries))

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


YESTERDAY = Temporal(
    "window", datetime(2026, 3, 3, tzinfo=UTC), datetime(2026, 3, 4, tzinfo=UTC), asked=True
)


def of(key: str, relevance: float, **fields: Any) -> Candidate:
    return candidate(key=key, **fields)._replace(evidence=Evidence(relevance=relevance))


def test_what_is_not_of_the_time_asked_for_is_left_out_with_its_date():
    candidates = [
        of("then", 0.5, written_at=datetime(2026, 3, 3, 23, 59, tzinfo=UTC)),
        of("now", 0.9, written_at=NOW),
        of("pinned", 0.9, written_at=NOW, pinned=True),
        of("undated", 0.9),
        of("told later", 0.2, written_at=NOW, text="Yesterday the boiler broke"),
        of("told before", 0.2, written_at=NOW - timedelta(days=9), text="Dentist on 3 March"),
    ]

    drops = time_drops(candidates, YESTERDAY, 0.5)

    reason = "written on 2026-03-04, outside the time asked for"
    assert drops == {(("memories", "ann"), "now"): reason}


def test_time_leaves_nothing_out_where_nothing_of_then_is_relevant():
    then = datetime(2026, 3, 3, 8, tzinfo=UTC)
    candidates = [of("then", 0.49, written_at=then), of("now", 0.9, written_at=NOW)]

    assert time_drops(candidates, YESTERDAY, 0.5) == {}
    assert len(time_drops(candidates, YESTERDAY, 0.49)) == 1
    # Without a trigger it takes half of the best: 0.45 of 0.9, which 0.44 is not.
    chance = [of("then", 0.44, written_at=then), of("now", 0.9, written_at=NOW)]
    assert time_drops(chance, YESTERDAY, 0.0) == {}
    assert len(time_drops(candidates, YESTERDAY, 0.0)) == 1
    # Asked for nothing but the time, nothing else answers.
    assert len(time_drops(chance, replace(YESTERDAY, alone=True), 0.5)) == 1


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


# --- what the model sees already ------------------------------------------------------------------


def seen(view: View, **fields: Any) -> str | None:
    """The reason why a relevant memory is not shown again, or None."""
    held = Scored(candidate(**fields), Signals(0.9, 0.0, 0.0, 0.0, 0.0, 0.0), 0.9)
    kept, dropped = recall_gates([held], RecallPolicy(), view)
    assert len(kept) + len(dropped) == 1
    assert all(drop.gate == "visible" for drop in dropped)
    return dropped[0].reason if dropped else None


@pytest.mark.parametrize(
    ("said", "is_seen"),
    [
        ("I live in Oslo.", True),
        ("Well: i  LIVE in\nOslo, you know", True),
        ("I live in Oslofjord", False),
        ("Ali live in Oslo", False),
        ("I live in", False),
    ],
)
def test_a_memory_whose_words_stand_in_a_message_is_visible(said, is_seen):
    reason = seen(View(texts=("Hello", said)), text="I live in Oslo")

    assert reason == ("said in this conversation" if is_seen else None)


def test_words_are_not_put_together_from_two_messages():
    assert seen(View(texts=("I live", "in Oslo")), text="I live in Oslo") is None


def test_a_memory_in_a_block_still_in_view_is_visible():
    view = View(ids=frozenset({(("memories", "ann"), "k")}))

    assert seen(view) == "in a block that is still in view"
    assert seen(view, key="other") is None


def test_a_memory_noted_in_a_turn_of_this_thread_is_visible():
    view = View(thread_id="t", turns=frozenset({"msg-1", "2"}))

    assert seen(view, thread_id="t", turn="msg-1") == "noted in this conversation"
    assert seen(view, thread_id="t", turn=2) == "noted in this conversation"
    assert seen(view, thread_id="t", turn="msg-9") is None
    assert seen(view, thread_id="other", turn="msg-1") is None
    assert seen(View(turns=frozenset({"None"}))) is None


def test_a_pinned_memory_is_not_shown_twice_either():
    assert seen(View(texts=("tea",)), text="Tea", pinned=True) == "said in this conversation"


def test_a_memory_without_words_is_never_visible():
    assert seen(View(texts=("...",)), text="!!!") is None


# --- what was believed then -----------------------------------------------------------------------

MARCH, APRIL, MAY = (datetime(2026, month, 1, tzinfo=UTC) for month in (3, 4, 5))


def stood(as_of: datetime, *held: Candidate) -> dict[str, str | None]:
    """Why each candidate is out of force at a time, or None."""
    drops = [hard_drop(one, HERE._replace(now=as_of)) for one in as_believed_at(held, as_of)]
    return {
        one.memory.key: drop[1] if drop else None for one, drop in zip(held, drops, strict=True)
    }


def test_what_was_written_later_was_not_believed_then():
    held = candidate(key="new", written_at=APRIL), candidate(key="undated")

    assert stood(MARCH, *held) == {"new": "written later", "undated": None}
    assert stood(APRIL, *held) == {"new": None, "undated": None}


def test_a_superseded_memory_was_believed_until_it_was_superseded():
    former = candidate(key="k@1", written_at=MARCH, status="superseded", superseded_at=APRIL)

    assert stood(MARCH, former) == {"k@1": None}
    assert stood(APRIL, former) == {"k@1": "superseded"}


def test_the_superseding_candidate_tells_when():
    new = candidate(key="new", written_at=APRIL, supersedes=("old",))
    old = candidate("superseded", key="old", written_at=MARCH)

    assert stood(MARCH, new, old) == {"new": "written later", "old": None}
    assert stood(MAY, new, old) == {"new": None, "old": "superseded"}


def test_what_nobody_can_date_counts_as_superseded_all_along():
    assert stood(MARCH, candidate("superseded", key="old", written_at=MARCH)) == {
        "old": "superseded"
    }


def test_what_was_derived_falls_with_its_parent_and_not_before():
    child = candidate(
        "derived from old, which is superseded", key="c", written_at=MARCH, derived_from=("old",)
    )
    new = candidate(key="new", written_at=APRIL, supersedes=("old",))

    assert stood(MARCH, child, new)["c"] is None
    assert stood(MAY, child, new)["c"] == "derived from old, which is superseded"


def test_a_quarantined_memory_was_never_believed():
    held = candidate(key="k", written_at=MARCH, status="quarantined", superseded_at=MAY)

    assert stood(APRIL, held) == {"k": "quarantined"}


def test_the_earliest_of_several_superseders_counts():
    held = (
        candidate("superseded", key="old", written_at=MARCH),
        candidate(key="a", written_at=MAY, supersedes=("old",)),
        candidate(key="b", written_at=APRIL, supersedes=("old",)),
    )

    assert stood(MARCH, *held)["old"] is None
    assert stood(APRIL, *held)["old"] == "superseded"


# --- memories that stand alone --------------------------------------------------------------------


def lone(relevance: float, part: int = 1) -> Scored:
    one = candidate()._replace(evidence=Evidence(relevance=relevance, alone=part))
    return Scored(one, Signals(relevance, 0.0, 0.0, 0.0, 0.0, 0.0), relevance)


def passing(*ranked: Scored, policy: RecallPolicy | None = None) -> list[float]:
    passed, _ = recall_gates(ranked, policy or RecallPolicy.default())
    return [one.signals.relevance for one in passed]


def test_a_lone_memory_has_at_least_a_part_of_the_odds_of_the_best():
    # Odds of 0.85 are 5.67: over 0.8 x 3 - 0.6 = 1.8 that is 3.148, those of 0.7589.
    assert passing(lone(0.85), lone(0.76), lone(0.75)) == [0.85, 0.76]
    _, (drop,) = recall_gates([lone(0.85), lone(0.75)], RecallPolicy.default())
    assert (drop.gate, drop.reason) == ("floor", "relevance 0.75 is far behind the best, 0.85")


def test_a_policy_and_an_embedder_say_how_broad_a_recall_is():
    ranked = [lone(0.85), lone(0.69), lone(0.68)]
    # Over 0.8 x 4 - 0.6 = 2.6 it is 2.179, the odds of 0.6855.
    four = RecallPolicy.default(breadth=4.0)
    assert passing(*ranked, policy=four) == [0.85, 0.69]
    passed, _ = recall_gates(ranked, RecallPolicy.default(), breadth=4.0)
    assert [one.signals.relevance for one in passed] == [0.85, 0.69]
    # What a policy says counts before what the embedder is good for.
    passed, _ = recall_gates(ranked, four.replace(breadth=1.0), breadth=4.0)
    assert [one.signals.relevance for one in passed] == [0.85]


def test_a_lone_memory_that_is_sure_itself_is_not_behind():
    assert passing(lone(0.999), lone(0.9), lone(0.89)) == [0.999, 0.9]


def test_each_part_of_a_cue_has_its_own_best():
    # Far behind the other part's best, and the best of its own; the third part has none.
    assert passing(lone(0.98), lone(0.6, 2), lone(0.46, 2), lone(0.4, 3)) == [0.98, 0.6, 0.46]


def test_memories_of_a_conversation_are_not_behind_each_other():
    assert passing(lone(0.98, 0), lone(0.35, 0)) == [0.98, 0.35]


def test_without_a_trigger_none_is_behind():
    assert passing(lone(0.98), lone(0.35), policy=RecallPolicy.default(trigger=0.0)) == [0.98, 0.35]
