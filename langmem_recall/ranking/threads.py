"""Memories as neighbours: which threads they stand in, and what neighbours share."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from langmem_recall.ranking.arrays import BoolArray, FloatArray, IntArray
from langmem_recall.ranking.lexical import LexicalIndex

EPISODE_GAP_S = 3600.0
"""Memories without a thread that were written further apart are no neighbours."""
COHERENT_FROM = 30
"""Fewer pairs of neighbours do not show whether their order means anything."""
COHERENCE_SAMPLE = 5_000
COHERENT_SIGMAS = 5.0
COHERENT_SURPLUS = 0.5
"""Neighbours must share a word so much more often than chance: conversations do two to five times
as often and by 7 sigmas and more, unrelated notes about as often and within 3 sigmas."""
COHERENT_SHARE = 0.5
"""And so many of them must: 54 to 79 % do in conversations, at most 43 % of notes sorted by
subject, which are asked for in other words and must not be taken for a conversation. Long texts
share some word with any other; a few of them do not make notes a conversation."""
COMMON_WORD = 0.3
"""A word that more of the memories have says nothing about neighbours."""
SPOKEN_FROM, SPOKEN_SHARE = 10, 0.3
"""Threads with speakers are conversations, unless of so many pairs of neighbours fewer share words:
of notes that carry a thread and who said them at most 13 % do."""


class ThreadOrder(NamedTuple):
    """Live and dead rows laid out thread by thread, in the order of their turns."""

    rows: IntArray
    """Row at each place."""
    place: IntArray
    """Place of each row."""
    thread: IntArray
    """Thread number at each place; memories without a thread have one of their own."""
    starts: IntArray
    """Place where each thread begins."""
    thread_at: IntArray
    """Index into `starts` of the thread at each place."""
    follows: BoolArray
    """Whether the place before belongs to the same thread."""
    implied: BoolArray
    """Whether the place's thread is only known from the order of writing."""
    alone: BoolArray
    """Whether each row is the only one of its thread."""
    has_neighbours: bool = True
    """Whether any thread has more than one memory."""


class Links(NamedTuple):
    """What each place takes from the one before and the one after it, and what to divide by."""

    before: FloatArray
    after: FloatArray
    scale: FloatArray


def make_links(
    follows: BoolArray, known: BoolArray | None, previous: float, following: float
) -> Links:
    """Links between neighbours of a thread, where they are known."""
    linked = follows[1:]
    before, after = np.zeros(len(follows)), np.zeros(len(follows))
    before[1:] = previous * (linked if known is None else linked & known[:-1])
    after[:-1] = following * (linked if known is None else linked & known[1:])
    # Neighbours agree by a quarter even when nothing is asked, so their sum is scaled down by more.
    scale = np.sqrt(1 + before**2 + after**2 + 0.5 * (before + after + before * after))
    return Links(before, after, scale)


def lay_out(
    thread: IntArray,
    home: IntArray,
    position: FloatArray,
    speaker: IntArray,
    phrased: BoolArray,
    lexical: LexicalIndex,
    coherence: dict[str, tuple[int, bool]],
) -> ThreadOrder:
    """The rows by threads, and without one by stretches of writing where that order tells.

    A note that says how it will be asked for (`phrased`) stands alone. `coherence` remembers what
    was found for how many rows; it is judged anew as memories come.
    """

    def in_order(chosen: BoolArray, groups: IntArray) -> IntArray:
        rows = np.flatnonzero(chosen & lexical.alive).astype(np.int32)
        return rows[np.lexsort((position[rows], groups[rows]))]

    def order_tells(sort: str, rows: IntArray, runs: IntArray) -> bool:
        judged_at, tells = coherence.get(sort, (0, False))
        if not judged_at or not 0.9 * judged_at < len(rows) < 1.1 * judged_at:
            sample = slice(-COHERENCE_SAMPLE, None)
            tells = is_coherent(lexical, rows[sample], runs[sample], sort == "spoken")
            coherence[sort] = len(rows), tells
        return tells

    loose = in_order((thread < 0) & ~phrased, home)
    thread = np.where(phrased, -1, thread)
    for sort, is_spoken in (("noted", False), ("spoken", True)):
        group = in_order((thread >= 0) & ((speaker >= 0) == is_spoken), thread)
        if not order_tells(sort, group, thread[group]):
            thread[group] = -1
    count, first = len(thread), int(thread.max(initial=-1)) + 1
    # A memory without a thread is a thread of one, numbered past the real ones and the stretches.
    numbers = np.where(thread < 0, np.arange(count) + first + len(loose), thread)
    implied = np.zeros(count, np.bool_)
    breaks = (np.diff(home[loose]) != 0) | (np.diff(position[loose]) > EPISODE_GAP_S)
    stretches = np.concatenate([[0] * len(loose[:1]), np.cumsum(breaks)]).astype(np.int32)
    if order_tells("loose", loose, stretches):
        numbers[loose] = first + stretches
        implied[loose] = True
    rows = np.lexsort((position, numbers)).astype(np.int32)
    place = np.empty(count, np.int32)
    place[rows] = np.arange(count, dtype=np.int32)
    ordered = numbers[rows].astype(np.int32)
    follows = np.diff(ordered, prepend=-1) == 0
    thread_at = np.cumsum(~follows, dtype=np.int32) - 1
    starts = np.flatnonzero(~follows).astype(np.int32)
    alone = (np.bincount(thread_at)[thread_at] == 1)[place]
    return ThreadOrder(
        rows, place, ordered, starts, thread_at, follows, implied[rows], alone, not alone.all()
    )


def is_coherent(
    lexical: LexicalIndex, rows: IntArray, runs: IntArray, is_spoken: bool = False
) -> bool:
    """Whether neighbours in this order share words as in a conversation, not as notes do.

    Neighbours are rows of one run. What has speakers is a conversation unless it shows otherwise.
    Dates do not count: neighbours in time share that of writing, whatever they speak of. Nor does a
    tag or a name that many rows have.
    """
    linked = np.diff(runs) == 0
    if linked.sum() < (SPOKEN_FROM if is_spoken else COHERENT_FROM):
        return is_spoken
    terms, places = lexical.distinct_terms(rows)
    words = enumerate(lexical.vocabulary)
    dates = [term_id for term_id, word in words if word.startswith("@")]
    is_common = np.bincount(terms) > COMMON_WORD * len(rows)
    telling = ~(np.isin(terms, np.array(dates, np.int32)) | is_common[terms])
    terms, places = terms[telling], places[telling]
    order = np.lexsort((places, terms))
    terms, places = terms[order], places[order]
    shared = (np.diff(terms) == 0) & (np.diff(places) == 1) & linked[places[1:] - 1]
    share = len(np.unique(places[1:][shared])) / linked.sum()
    if is_spoken:
        return bool(share >= SPOKEN_SHARE)
    counts = np.bincount(terms).astype(np.float64)
    by_chance = float((counts * (counts - 1)).sum() / len(rows) * linked.mean())
    surplus = float(shared.sum()) - by_chance
    needed = max(COHERENT_SIGMAS * by_chance**0.5, COHERENT_SURPLUS * by_chance)
    return bool(surplus > needed and share >= COHERENT_SHARE)
