"""Unverified memories never lead over a trusted one of equal relevance, nor fill a block."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pytest

from langmem_recall.policy import RecallPolicy
from langmem_recall.ranking.pipeline import rank, select
from langmem_recall.types import Candidate, Cue, Evidence, Memory, Scored, Signals

NOW = datetime(2026, 3, 4, tzinfo=UTC)
NS = ("u",)


def candidate(key: str, source: str, relevance: float, **fields: object) -> Candidate:
    memory = Memory(namespace=NS, key=key, text=key, source=source, **fields)  # type: ignore[arg-type]
    return Candidate(memory, Evidence(dense=relevance, relevance=relevance))


def keys(candidates: list[Candidate], policy: RecallPolicy) -> list[str]:
    return [one.memory.key for one in rank(Cue("cue"), candidates, policy, NOW, (NS,)).ranked]


@pytest.mark.parametrize("source", ["external", "agent_inferred"])
def test_an_important_unverified_memory_does_not_lead_over_an_equally_relevant_trusted_one(
    source: str,
) -> None:
    # Its salience alone would put it first: 0.8 x (1 + 0.3) against 0.8 x (1 + 0.3 x 0.1 + 0.06).
    loud = candidate("loud", source, 0.8, salience=1.0)
    quiet = candidate("quiet", "user_stated", 0.8, salience=0.1)
    assert keys([loud, quiet], RecallPolicy.default()) == ["quiet", "loud"]


def test_it_leads_where_it_is_more_relevant_or_was_confirmed() -> None:
    told = candidate("told", "user_stated", 0.7, salience=0.1)
    better = candidate("better", "external", 0.8, salience=1.0)
    confirmed = candidate("confirmed", "agent_inferred", 0.7, salience=1.0, confirmed_at=NOW)
    assert keys([told, better], RecallPolicy.default()) == ["better", "told"]
    assert keys([told, confirmed], RecallPolicy.default()) == ["confirmed", "told"]


def test_similarity_keeps_the_order_of_the_store() -> None:
    pair = [candidate("a", "external", 0.8), candidate("b", "user_stated", 0.8)]
    assert keys(pair, RecallPolicy.similarity()) == ["a", "b"]


def chosen(sources: list[str], policy: RecallPolicy) -> tuple[list[str], list[tuple[str, str]]]:
    ranked = [
        Scored(candidate(str(n), source, 0.9), Signals(0.9, 0.9, 0, 0, 0, 0), 1.0 - n / 100)
        for n, source in enumerate(sources)
    ]
    kept, dropped = select(ranked, policy, lambda ids: np.eye(len(ids)))
    return [one.memory.key for one in kept], [(drop.memory.key, drop.gate) for drop in dropped]


def test_unverified_memories_take_half_of_the_places_at_most() -> None:
    kept, dropped = chosen(["external"] * 4 + ["user_stated"] * 2, RecallPolicy.default(top_k=4))
    assert kept == ["0", "1", "4", "5"]
    assert dropped == [("2", "authority"), ("3", "authority")]


def test_the_share_is_a_knob() -> None:
    policy = RecallPolicy.default(top_k=4, unverified_share=1.0)
    kept, dropped = chosen(["external"] * 4 + ["user_stated"] * 2, policy)
    assert kept == ["0", "1", "2", "3"]
    assert dropped == [("4", "top_k"), ("5", "top_k")]
