"""Recency against use where the better balance changes: loops and scans by turns.

    python benchmarks/adaptive.py [--phases 4]

Notes of one desk, all about as relevant to what an agent is shown before each step: the best five.
Every eight hours it needs one note. Was it shown, that is a hit; in any case it is then looked up,
and that alone counts as a use.

- A scan: notes come in that nothing asks for again, while five standing ones are needed in turn,
  one after every two new ones. What is recent is of no use; what was used often is.
- A loop: five new notes are needed in turn, eight rounds long, and never again. What was used often
  is of no use; what is recent is.

Phases alternate. Every fixed balance (share of recency, the rest is use) goes through the same
steps as `RecallPolicy.adaptive`, which begins in the middle. Counted are needs of notes that were
asked for before, since the first phase of each kind began: hits in scans, in loops, in all.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import NamedTuple

from langmem_recall import LocalStore, RecallPolicy, RecallStore
from langmem_recall.policy import Weights

DESK = ("desk",)
CUE = "Which notes are on the desk?"
SHOWN, STANDING, BETWEEN, SCAN_ROUNDS, LOOP_NOTES, LOOP_ROUNDS = 5, 5, 2, 5, 5, 8
EVERY = timedelta(hours=8)
BALANCES = tuple(tenth / 10 for tenth in range(11))
FIRST = (
    *("amber", "basil", "cedar", "delta", "ember", "fennel", "garnet", "hazel", "indigo"),
    *("juniper", "kelp", "linden", "maple", "nettle", "olive", "pepper"),
)
SECOND = (
    *("anchor", "bridge", "candle", "drawer", "engine", "ferry", "gable", "harbour", "island"),
    *("jetty", "kettle", "ladder", "mirror", "needle", "oven", "pillar"),
)


class Need(NamedTuple):
    """One step: which note is needed, in which phase, and whether it was needed before."""

    note: int
    phase: str
    again: bool


def needs(phases: int) -> Iterator[Need]:
    """The steps of so many phases, scans and loops by turns; notes are numbered as they come."""
    fresh = count(STANDING)
    for phase in range(phases):
        if phase % 2 == 0:
            for place in range(SCAN_ROUNDS * STANDING):
                again = phase > 0 or place >= STANDING
                yield Need(place % STANDING, "scan", again)
                yield from (Need(next(fresh), "scan", False) for _ in range(BETWEEN))
        else:
            loop = [next(fresh) for _ in range(LOOP_NOTES)]
            for lap in range(LOOP_ROUNDS):
                yield from (Need(note, "loop", lap > 0) for note in loop)


def text_of(note: int) -> str:
    """What a note says: two words of its own in a sentence that all have."""
    second, first = divmod(note, len(FIRST))
    return f"Note on the desk about the {FIRST[first]} {SECOND[second]}"


def hits(policy: RecallPolicy, phases: int, is_adaptive: bool) -> dict[str, list[bool]]:
    """Of every need of a known note, by phase, whether it had been shown."""
    now = datetime(2026, 1, 1, tzinfo=UTC)
    store = RecallStore(LocalStore(), policy=policy, clock=lambda: now)
    found: dict[str, list[bool]] = {"scan": [], "loop": []}
    written: set[int] = set()
    for note, phase, again in needs(phases):
        now += EVERY
        if note not in written:
            store.remember(DESK, text_of(note), key=str(note))
            written.add(note)
        # What is merely shown is no use, neither here nor under the adaptive policy.
        shown = store.recall(DESK, CUE, record=is_adaptive).memories
        if again:
            found[phase].append(str(note) in {memory.key for memory in shown})
        text = text_of(note)
        store.search(DESK, query=text, filter={"content": text}, limit=1)
        store.flush()
    store.close()
    return found


def table(
    phases: int, balances: Sequence[float] = BALANCES
) -> dict[str, tuple[float, float, float]]:
    """The share of hits in scans, in loops and in all, by balance."""
    # Every note on the desk is relevant: what is shown is a matter of recency and use alone.
    is_open = {"trigger": 0.0, "floor": 0.0, "duplicate_similarity": 2.0}
    adaptive = RecallPolicy.adaptive(pool=500, top_k=SHOWN, **is_open)
    total = adaptive.weights.recency + adaptive.weights.strength
    policies = {"adaptive": adaptive}
    for share in balances:
        weights = Weights(
            recency=share * total,
            strength=(1 - share) * total,
            importance=adaptive.weights.importance,
            trust=adaptive.weights.trust,
        )
        policies[f"{share:.1f}"] = adaptive.replace(adapts=False, weights=weights)
    rows = {}
    for name, policy in policies.items():
        found = hits(policy, phases, policy.adapts)
        every = [*found["scan"], *found["loop"]]
        rows[name] = tuple(sum(some) / len(some) for some in (found["scan"], found["loop"], every))
    return rows


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--phases", type=int, default=4, help="scans and loops, by turns")
    rows = table(parser.parse_args().phases)
    print("balance   scans   loops     all")
    for name, shares in rows.items():
        print(f"{name:8}" + "".join(f"{share:8.3f}" for share in shares))


if __name__ == "__main__":
    main()
