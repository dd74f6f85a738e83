"""Whoever fails and however: the turn ends in time, nothing is lost, and it is said what failed.

One cell for each part, way of failing, driver, way to reach the store, and store. A soak tries them
all, any other run a cover: every pair of two of these that occurs in all of them.
"""

from __future__ import annotations

import logging
import math
import os
import re
import threading
from collections.abc import Iterator
from contextlib import suppress
from itertools import combinations, product
from typing import Any, NamedTuple

import pytest
from bench import (
    ADA,
    LONG,
    MEAL,
    SEAT,
    SHORT_S,
    SLACK_S,
    TOLD,
    Bench,
    Outcome,
    hurry,
    threads_left,
)
from faulty import KINDS, SLOW_S, SUMMARY, Fault

from langmem_recall.flows import effects

PARTS = ("embedder", "reading", "writing", "lexical", "summarizer", "reranker", "feedback")
MODES = ("sync", "async")
SURFACES = ("middleware", "node", "tool", "store")
ANY = None
PASSPORT = "My passport expires in May"
Cell = tuple[str, ...]


class Left(NamedTuple):
    """Cells that mean nothing, and why."""

    part: str
    kind: str
    reason: str
    mode: str | None = ANY
    surface: str | None = ANY

    def covers(self, cell: tuple[str, ...]) -> bool:
        wanted = (self.part, self.kind, self.mode, self.surface)
        return all(told in (ANY, held) for told, held in zip(wanted, cell, strict=True))


UNBOUNDED = (
    "a direct call waits as long as the store does: deadlines belong to turns and tools. Whoever "
    "awaits its twin sets a limit himself, and that is a cell"
)
LEFT_OUT = (
    Left("writing", "nan", "a write answers with nothing, so with no number"),
    Left("writing", "dimensions", "the answers to writes are not read, whatever their number"),
    Left("lexical", "nan", "a listing has no scores; words are counted by ourselves"),
    Left("summarizer", "nan", "a summary is a text"),
    Left("summarizer", "dimensions", "a summary is one text"),
    Left("embedder", "hangs", UNBOUNDED, "sync", "store"),
    Left("reading", "hangs", UNBOUNDED, "sync", "store"),
    Left("writing", "hangs", UNBOUNDED, "sync", "store"),
    Left("lexical", "hangs", UNBOUNDED, "sync", "store"),
    Left("feedback", "hangs", UNBOUNDED, "sync", "store"),
)
ALL = list(product(PARTS, KINDS, MODES, SURFACES))
CELLS = [cell for cell in ALL if not any(left.covers(cell) for left in LEFT_OUT)]
IS_SOAK = os.environ.get("SOAK") == "1"
COVERS: list[tuple[list[Cell], list[Cell]]] = []
"""For each test all its cells, and those that hold every pair."""


def inners(part: str, kind: str) -> tuple[str, ...]:
    """The stores a cell is tried on."""
    if part in ("reranker", "summarizer"):
        return ("local",)
    # Our own store answers with what it has, or with an error.
    is_strange = part in ("reading", "lexical") and kind in ("garbage", "nan", "dimensions")
    return ("in memory",) if is_strange else ("local", "in memory")


def covering(cells: list[Cell]) -> list[Cell]:
    """Cells with every pair of values that occurs in all: always the one that adds the most."""
    pairs = {cell: set(combinations(enumerate(cell), 2)) for cell in cells}
    missing, chosen = set().union(*pairs.values()), []
    while missing:
        chosen.append(max(cells, key=lambda cell: len(pairs[cell] & missing)))
        missing -= pairs[chosen[-1]]
    return chosen


def cells(*parts: str, surfaces: tuple[str, ...] = SURFACES) -> Any:
    """The cells of these parts, on every store they are tried on: all in a soak, else a cover."""
    whole = [
        (*cell, inner)
        for cell in CELLS
        if cell[0] in parts and cell[3] in surfaces
        for inner in inners(cell[0], cell[1])
    ]
    cover = covering(whole)
    COVERS.append((whole, cover))
    found = [
        pytest.param(*cell, id="-".join(cell).replace(" ", "_"))
        for cell in (whole if IS_SOAK else cover)
    ]
    return pytest.mark.parametrize(("part", "kind", "mode", "surface", "inner"), found)


@pytest.fixture
def bench(
    part: str,
    kind: str,
    mode: str,
    surface: str,
    inner: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> Iterator[Bench]:
    fault = Fault(kind)
    if kind in ("hangs", "slow"):
        hurry(monkeypatch, fault)
    # The same cue again is the embedder's again.
    monkeypatch.setattr(effects, "TEXT_AGE_S", -1.0)
    caplog.set_level(logging.WARNING, logger="langmem_recall")
    before = threading.enumerate()
    bench = Bench(part, fault, mode, surface, inner)
    yield bench
    bench.close()
    assert threads_left(before) == []


# --- what every cell keeps ---


def check_in_time(bench: Bench, outcome: Outcome) -> None:
    """The turn ended, with the model's answer, no later than its limit allows."""
    # A direct call, or a tool, waits for each of several reads that are slow.
    limit_s = {"hangs": SHORT_S, "slow": 12 * SLOW_S}.get(bench.kind, 0.0)
    assert outcome.took_s < limit_s + SLACK_S
    assert bench.surface == "store" or outcome.answer == "Noted [m1]."


def check_finite(outcome: Outcome) -> None:
    """Nothing that is no number has reached a score."""
    if outcome.recall is not None:
        for scored in outcome.recall.chosen:
            numbers = [scored.score, *scored.signals, scored.evidence.dense or 0.0]
            assert all(math.isfinite(number) for number in numbers if number is not None)


def check_whole(bench: Bench, outcome: Outcome) -> None:
    """The recall has all that belongs to it, and says of nothing that it failed."""
    check_in_time(bench, outcome)
    check_finite(outcome)
    assert outcome.is_shown
    assert outcome.told == ""


def check_counts(bench: Bench, shown: int, outcomes: int = 0) -> None:
    """Each use and outcome is written once, whatever became of the flushes before."""
    bench.call("flush")
    # The middleware counts a citation as a good outcome.
    cited = shown if bench.surface == "middleware" else 0
    assert bench.inner.uses((ADA, "seat")) == (shown, outcomes + cited)


def fail_to_flush(bench: Bench) -> None:
    """Flush while nothing can be written; a direct call that hangs is left to the awaiting."""
    if bench.kind == "hangs" and bench.mode == "sync":
        return
    with suppress(Exception):
        bench.call("flush")


# --- parts that are read ---

LATE = r"no answer after [01]\.\d\d s, waiting for the (embedder|store)"
WITHOUT = {
    "embedder": rf"TooLate: {LATE}\); lexical only",
    "reading": LATE,
    "lexical": rf"words cannot be read \(TooLate: {LATE}\); dense only",
    "feedback": rf"usage cannot be read \(TooLate: {LATE}\); ranked without it",
}
"""What a turn goes on without when a part hangs, or takes as long as the turn waits."""
LEXICAL_ONLY = {
    "raises": r"OSError\); lexical only",
    "garbage": r"(embedder|dense search).*; lexical only",
    "nan": r"the embedder gave NaN",
    "dimensions": r"(embedder|dense search).*; lexical only",
    "limited": r"RateLimitError 429\); lexical only",
}
NOTHING = {
    "raises": r"OSError",
    "garbage": r"\w+Error",
    "dimensions": r"\w+Error",
    "limited": r"TooManyRequests",
}
DENSE_ONLY = {
    "raises": r"words cannot be read \(OSError\); dense only",
    "garbage": r"words cannot be read \(\w+Error.*\); dense only",
    "dimensions": r"words cannot be read \(\w+Error.*\); dense only",
    "limited": r"words cannot be read \(TooManyRequests\); dense only",
}
WITHOUT_USE = {
    "raises": r"usage cannot be read \(OSError\); ranked without it",
    "garbage": r"usage cannot be read \(StoreError: .* must hold numbers.*; ranked without it",
    "nan": r"usage cannot be read \(StoreError: .* must hold numbers.*; ranked without it",
    "dimensions": r"usage cannot be read \(\w+Error.*\); ranked without it",
    "limited": r"usage cannot be read \(TooManyRequests\); ranked without it",
}
AS_BLENDED = {
    "raises": r"reranker failed \(OSError\); blend as it is",
    "hangs": r"reranker failed \(TooLate: no answer after .*\); blend as it is",
    "slow": r"reranker failed \(TooLate: no answer after .*\); blend as it is",
    "garbage": r"reranker failed \(AttributeError\); blend as it is",
    "limited": r"reranker failed \(RateLimitError 429\); blend as it is",
    # Its order counts, its scores are not read; and a memory named twice comes once.
    "nan": r"",
    "dimensions": r"",
}
TOLD_OF = {
    "embedder": LEXICAL_ONLY,
    "reading": {**NOTHING, "nan": r"the embedder gave NaN"},
    "lexical": DENSE_ONLY,
    "feedback": WITHOUT_USE,
}


def is_lost(part: str, kind: str, surface: str) -> bool:
    """Whether the turn has to go on without memories."""
    if kind == "hangs" and surface == "store":
        return part != "reranker"
    if kind == "slow":
        return part == "reading" and surface in ("middleware", "node")
    return part == "reading" and (kind in NOTHING or kind == "hangs")


def told_of(bench: Bench) -> str:
    """How the fault has to be named; at the end of an awaited limit that is the caller's own."""
    if bench.part == "reranker":
        return AS_BLENDED[bench.kind]
    if bench.kind == "slow":
        return WITHOUT[bench.part] if bench.surface in ("middleware", "node") else r"^$"
    if bench.kind == "hangs":
        return r"TimeoutError" if bench.surface == "store" else WITHOUT[bench.part]
    return TOLD_OF[bench.part][bench.kind]


@cells("embedder", "reading", "lexical", "reranker", "feedback")
def test_a_part_that_is_read_fails(bench: Bench) -> None:
    check_whole(bench, bench.recalls())
    check_counts(bench, 1)
    bench.fault.strike()
    struck = bench.recalls()
    assert bench.fault.wait_for_hits(1)
    check_in_time(bench, struck)
    check_finite(struck)
    assert re.search(told_of(bench), struck.told), struck.told
    assert struck.is_shown != is_lost(bench.part, bench.kind, bench.surface)
    bench.call("feedback", ADA, "seat")
    fail_to_flush(bench)
    bench.fault.lift()
    check_whole(bench, bench.recalls())
    assert bench.stored() == {"seat": SEAT, "meal": MEAL}
    check_counts(bench, 2 + struck.is_shown, outcomes=1)


@cells("embedder", surfaces=("tool", "store"))
def test_the_embedder_fails_while_something_is_remembered(bench: Bench, inner: str) -> None:
    check_whole(bench, bench.recalls())
    bench.fault.strike()
    outcome = bench.remembers(PASSPORT)
    check_in_time(bench, outcome)
    bench.fault.lift()
    is_refused = bench.kind == "hangs" or (bench.kind, inner) == ("dimensions", "local")
    assert outcome.told.startswith("remembered as") != is_refused, outcome.told
    assert re.search(r"remembered|dimensions|no answer after|TimeoutError", outcome.told)
    check_all_or_nothing(bench, is_refused)
    again = bench.recalls()
    # LangGraph's in-memory store keeps whatever its embedder gave it; the words still find all.
    is_spoilt = bench.kind in ("garbage", "nan", "dimensions") and inner == "in memory"
    assert re.search(r"lexical only|NaN" if is_spoilt else r"^$", again.told), again.told
    assert again.is_shown
    check_finite(again)


# --- the part that writes ---


@cells("writing")
def test_the_part_that_writes_fails(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    if bench.surface in ("middleware", "node"):
        check_use_is_not_written(bench, caplog)
    else:
        check_memory_is_not_written(bench)


def check_use_is_not_written(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    check_whole(bench, bench.recalls())
    bench.fault.strike()
    check_whole(bench, bench.recalls())
    fail_to_flush(bench)
    bench.fault.lift()
    check_whole(bench, bench.recalls())
    check_counts(bench, 3)
    is_tried = bench.surface == "middleware" and bench.kind != "garbage"
    # What takes as long as is waited for may just be in time.
    if bench.kind != "slow":
        assert ("What a turn used could not be written" in caplog.text) == is_tried


def check_memory_is_not_written(bench: Bench) -> None:
    bench.fault.strike()
    outcome = bench.remembers(PASSPORT)
    check_in_time(bench, outcome)
    bench.fault.lift()
    is_kept = bench.kind in ("slow", "garbage")
    fault = r"OSError|TooManyRequests|no answer after|TimeoutError"
    assert re.search(r"^remembered as" if is_kept else fault, outcome.told), outcome.told
    check_all_or_nothing(bench, not is_kept)
    assert bench.remembers("My bicycle is green").told.startswith("remembered as")
    assert "My bicycle is green" in bench.stored().values()


def check_all_or_nothing(bench: Bench, is_refused: bool) -> None:
    """An acknowledged write is there; of one that was given up either all is there or nothing."""
    kept = [text for text in bench.stored().values() if text not in (SEAT, MEAL)]
    may_come_late = bench.kind == "hangs" and kept
    assert kept == ([] if is_refused and not may_come_late else [PASSPORT])


# --- the summarizer ---


@cells("summarizer")
def test_the_summarizer_fails(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    if bench.surface in ("middleware", "node"):
        check_sentences_are_picked(bench)
    else:
        check_text_is_stored_as_it_is(bench, caplog)


def check_sentences_are_picked(bench: Bench) -> None:
    check_whole(bench, bench.recalls())
    bench.fault.strike()
    struck = bench.recalls()
    check_in_time(bench, struck)
    assert struck.is_shown
    fault = r"summarizer failed \(\w+.*\); sentences were picked"
    assert re.search(r"^$" if bench.kind == "slow" else fault, struck.told), struck.told
    assert "aisle seat" in str(bench.model.seen[-1]) or bench.kind == "slow"
    bench.fault.lift()
    check_whole(bench, bench.recalls())
    assert bench.stored() == {"seat": LONG, "meal": MEAL}
    check_counts(bench, 3)


def check_text_is_stored_as_it_is(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.fault.strike()
    outcome = bench.remembers(TOLD, "external")
    check_in_time(bench, outcome)
    assert outcome.told.startswith("remembered as")
    bench.fault.lift()
    assert (SUMMARY if bench.kind == "slow" else TOLD) in bench.stored().values()
    assert ("There is no usable summary" in caplog.text) == (bench.kind != "slow")


# --- the matrix itself ---


def test_every_cell_is_tried_or_left_out_for_a_reason() -> None:
    assert len(ALL) == 7 * 7 * 2 * 4
    left = [cell for cell in ALL if cell not in CELLS]
    assert len(left) == 5 * 8 + 5
    for one in LEFT_OUT:
        assert one.reason
        assert any(one.covers(cell) for cell in ALL)


def test_what_is_tried_without_a_soak_holds_every_pair_of_the_whole() -> None:
    # No fewer can do: 5 parts by 7 kinds but one, 7 kinds by 2 stores, twice 5 kinds by 4 surfaces.
    assert [len(cover) for _, cover in COVERS] == [34, 14, 20, 20]
    assert [len(whole) for whole, _ in COVERS] == [440, 54, 78, 40]
    for whole, cover in COVERS:
        assert set(cover) < set(whole)
        for left, right in combinations(range(5), 2):
            tried = {(cell[left], cell[right]) for cell in cover}
            assert tried == {(cell[left], cell[right]) for cell in whole}
