from __future__ import annotations

from collections.abc import Sequence
from math import exp, inf, log, nan, sqrt
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langmem_recall.policy import RelevanceModel
from langmem_recall.ranking.calibration import DEFAULT_NULL, NullDistribution
from langmem_recall.ranking.catalog import NUMBERED, TIMED, Catalog, traits_of
from langmem_recall.ranking.evidence import (
    EvidenceTable,
    Part,
    Window,
    match_words,
    read_part,
    score_evidence,
)
from langmem_recall.types import Memory

PINNED = {"name_weight": 2.0, "no_answer": 1.25, "softness": 1.0}
"""Round numbers for working out by hand, whatever the defaults are tuned to."""
MODEL = RelevanceModel(**PINNED)
NULL = NullDistribution(mean=0.1, sd=0.1)
# cap = (1 - 0.1) / 0.1 = 9, so a cosine says nothing at z0 = 9 / 4 = 2.25.
NEUTRAL = 2.25


def memory(key: str, text: str, **fields: Any) -> Memory:
    # Who speaks in a thread takes part in a conversation, whose words lend each other context.
    spoken = {"speaker": "Ann"} if fields.get("thread_id") else {}
    return Memory(**{"namespace": ("u",), "key": key, "text": text, **spoken, **fields})


def catalog_of(*memories: Memory | str) -> Catalog:
    catalog = Catalog()
    for place, held in enumerate(memories):
        one = memory(str(place), held) if isinstance(held, str) else held
        catalog.put(one.id, traits_of(one))
    return catalog


def thread(*texts: str, name: str = "t", **fields: Any) -> list[Memory]:
    return [
        memory(f"{name}{turn}", text, thread_id=name, turn=turn, **fields)
        for turn, text in enumerate(texts)
    ]


def part(text: str, catalog: Catalog, strip: bool = True) -> Part:
    return read_part(text, catalog, MODEL, strip)


def evidence(
    catalog: Catalog,
    cue: str | Sequence[str],
    cosines: Sequence[float] | Sequence[Sequence[float]] | None = None,
    null: NullDistribution = NULL,
    model: RelevanceModel = MODEL,
    unseen_cosine: float | None = None,
) -> EvidenceTable:
    parts = [part(text, catalog) for text in ([cue] if isinstance(cue, str) else cue)]
    wordings = [match_words(catalog, one, model) for one in parts]
    dense = None if cosines is None else np.array(cosines, float).reshape(len(parts), -1)
    return score_evidence(catalog, parts, wordings, dense, null, model, unseen_cosine)


def sigmoid(score: float) -> float:
    return 1 / (1 + exp(-score))


def logit(relevance: np.ndarray) -> np.ndarray:
    return np.log(relevance / (1 - relevance))


# The formula, worked out


def test_relevance_in_a_store_of_one():
    found = evidence(catalog_of("green tea"), "green tea", [0.5])

    # z0 = (0.5 - 0.1) / 0.1 = 4; e0 = 0.5 (4 - 2.25) + 5 x 1 = 5.875. A memory without a thread is
    # a thread of one: score 5.875 + 0.45 x 5.875 = 8.51875; minus 0.4 + 0.5 ln 1.
    assert found.coverage == pytest.approx([1.0])
    assert found.relevance == pytest.approx([sigmoid(8.51875 - 0.4)])
    assert found.episode == pytest.approx([0.45 * 5.875])


def test_relevance_in_a_store_of_two_without_threads():
    found = evidence(catalog_of("green tea", "red wine"), "green wine", [0.5, 0.2])

    # Each term is in one of two memories: ln(3 / 1) each, so either covers one half.
    # e0 = 0.5 (4 - 2.25) + 2.5 = 3.375 and 0.5 (1 - 2.25) + 2.5 = 1.875.
    chance = 0.4 + 0.5 * log(2)
    assert found.coverage == pytest.approx([0.5, 0.5])
    assert found.relevance == pytest.approx(
        [sigmoid(1.45 * 3.375 - chance), sigmoid(1.45 * 1.875 - chance)]
    )


def test_unseen_term_counts_at_top_idf():
    # green: in 2 of 3 memories, ln(4 / 2); banana: in none, as if in one, ln 4.
    found = evidence(catalog_of("green tea", "green sea", "red wine"), "green banana")

    assert found.coverage == pytest.approx([log(2) / (log(2) + log(4))] * 2 + [0.0])
    # = 1/3, so 1.45 x 5 / 3 - 0.4 - 0.5 ln 3
    assert found.relevance[0] == pytest.approx(sigmoid(1.45 * 5 / 3 - 0.4 - 0.5 * log(3)))


def test_names_and_things_with_digits_count_double():
    # drink (1), Paris (2) and 2019 (2): 1 : 2 : 2 at equal IDF.
    found = evidence(catalog_of("drink", "Paris", "2019"), "drink in Paris 2019")

    assert found.coverage == pytest.approx([0.2, 0.4, 0.4])
    # Of names and numbers alone either is one half.
    assert found.entity == pytest.approx([0.0, 0.5, 0.5])


def test_first_word_of_a_cue_is_no_name_for_its_capital():
    assert evidence(catalog_of("paris", "tea"), "Paris tea").coverage == pytest.approx([0.5, 0.5])


def test_more_memories_searched_lower_relevance_by_half_the_log():
    cosines = [0.5] + [0.1] * 7
    alone = logit(evidence(catalog_of("tea"), "banana", [0.5]).relevance)
    crowd = logit(evidence(catalog_of(*["tea"] * 8), "banana", cosines).relevance)

    assert alone[0] - crowd[0] == pytest.approx(0.5 * log(8))


def test_removed_memories_do_not_crowd():
    catalog = catalog_of("tea", "wine", "beer")
    catalog.remove((("u",), "1"))
    catalog.remove((("u",), "2"))

    assert evidence(catalog, "tea").relevance[0] == pytest.approx(
        evidence(catalog_of("tea"), "tea").relevance[0]
    )


# Threads


def test_words_are_lent_along_the_thread_and_fade():
    texts = [f"w{turn}" for turn in range(10)]
    texts[2] = "zebra"
    catalog = catalog_of(*thread(*texts), memory("x", "other", thread_id="elsewhere"))
    found = evidence(catalog, "zebra").coverage

    # Said at turn 2: later turns have it 0.75^d, earlier ones 0.6^d, none beyond six.
    forward = [0.75**distance for distance in range(1, 7)]
    assert found == pytest.approx([0.6**2, 0.6, 1.0, *forward, 0.0, 0.0])


def test_word_said_twice_is_lent_by_the_nearer_one():
    found = evidence(catalog_of(*thread("zebra", "a1", "a2", "zebra", "a4")), "zebra").coverage

    # turn 1: 0.75 from turn 0 against 0.36 from turn 3; turn 2: 0.6 from turn 3 against 0.5625.
    assert found == pytest.approx([1.0, 0.75, 0.6, 1.0, 0.75])


def test_own_words_are_worth_more_than_borrowed_ones():
    catalog = catalog_of(*thread("green tea", "red wine"))
    wording = match_words(catalog, part("green wine", catalog), MODEL)

    assert wording.own == pytest.approx([0.5, 0.5])
    # 0.5 + 0.5 x 0.6 (said later) and 0.5 + 0.5 x 0.75 (said earlier)
    assert wording.coverage == pytest.approx([0.8, 0.875])


def test_words_are_lent_past_a_removed_memory():
    catalog = catalog_of(*thread("zebra", "gone", "near"))
    catalog.remove((("u",), "t1"))

    assert evidence(catalog, "zebra").coverage[2] == pytest.approx(0.75)


def test_memory_on_the_edge_of_the_store_borrows_from_its_own_thread_only():
    catalog = catalog_of(*thread("zebra", "b", name="s"), *thread("c", "d", name="t"))

    assert evidence(catalog, "zebra").coverage == pytest.approx([1.0, 0.75, 0.0, 0.0])


def test_reach_of_zero_lends_nothing():
    model = RelevanceModel(reach=0, **PINNED)
    catalog = catalog_of(*thread("zebra", "b"))

    assert evidence(catalog, "zebra", model=model).coverage == pytest.approx([1.0, 0.0])


def test_cosines_of_neighbours_are_shared():
    # z0 = 1, 4, 2.
    found = evidence(catalog_of(*thread("a1", "b1", "c1")), "banana", [0.2, 0.5, 0.3])

    # The middle: (4 + 0.5 x 1 + 0.25 x 2) / sqrt(1 + 0.25 + 0.0625 + 0.5 (0.5 + 0.25 + 0.125)).
    z = [
        (1 + 0.25 * 4) / sqrt(1 + 0.0625 + 0.5 * 0.25),
        5 / sqrt(1.75),
        (2 + 0.5 * 4) / sqrt(1 + 0.25 + 0.5 * 0.5),
    ]
    # The best of the thread has e0 = 0.5 (4 - 2.25) = 0.875.
    chance = 0.4 + 0.5 * log(3)
    assert found.relevance == pytest.approx(
        [sigmoid(0.5 * (each - NEUTRAL) + 0.45 * 0.875 - chance) for each in z]
    )


def test_best_of_the_thread_speaks_for_all_of_it():
    model = RelevanceModel(previous=0.0, following=0.0, reach=0, **PINNED)
    catalog = catalog_of(*thread("zebra", "b", name="s"), *thread("c", "d", name="t"))
    found = logit(evidence(catalog, "zebra", model=model).relevance)

    # 5 x 1 in the first thread, 0.45 of it lent; nothing in the second.
    chance = 0.4 + 0.5 * log(4)
    assert found == pytest.approx([7.25 - chance, 2.25 - chance, -chance, -chance])


# Penalties


def test_memory_of_another_speaker_loses_two_and_a_half():
    catalog = catalog_of(
        memory("a", "likes tea", speaker="Anna"),
        memory("b", "likes tea", speaker="Bob"),
        memory("c", "likes tea"),
    )
    for cue in ("Which tea does Anna like?", "which tea is anna's?", "Anna\u2019s tea"):
        hers, his, nobodys = logit(evidence(catalog, cue).relevance)
        assert hers - his == pytest.approx(2.5)
        assert hers == pytest.approx(nobodys)


@pytest.mark.parametrize("cue", ["Which tea?", "Do Anna and Bob like tea?", "Does Zoe like tea?"])
def test_speakers_are_alike_unless_the_cue_names_exactly_one(cue):
    catalog = catalog_of(
        memory("a", "likes tea", speaker="Anna"), memory("b", "likes tea", speaker="Bob")
    )
    found = evidence(catalog, cue).relevance

    assert found[0] == pytest.approx(found[1])


def test_first_name_is_enough_to_name_a_speaker():
    catalog = catalog_of(
        memory("a", "tea", speaker="Anna Karenina"), memory("b", "tea", speaker="Bob")
    )
    hers, his = logit(evidence(catalog, "the tea of Anna").relevance)

    assert hers - his == pytest.approx(2.5)


@pytest.mark.parametrize(
    ("cue", "with_it", "without"),
    [
        ("When does the shop open?", "shop open since 8:00", "shop open"),
        ("What day is the shop open?", "shop open Monday", "shop open"),
        ("How many are in the shop?", "3 in the shop", "some in the shop"),
        ("How much is the shop?", "shop for a million", "shop for a song"),
    ],
)
def test_memory_without_the_time_or_number_asked_for_loses_one_and_a_quarter(cue, with_it, without):
    found = evidence(catalog_of(with_it, without), cue)

    assert found.coverage[0] == pytest.approx(found.coverage[1])
    assert np.subtract(*logit(found.relevance)) == pytest.approx(1.25)


@pytest.mark.parametrize(
    ("cue", "flags"),
    [
        ("when was it", TIMED),
        ("how long ago was it", TIMED | NUMBERED),
        ("How old is he", NUMBERED),
        ("where was it", 0),
        ("whenever", 0),
    ],
)
def test_cue_asks_for_a_time_or_a_number(cue, flags):
    assert part(cue, catalog_of("tea")).flags == flags


# What is embedded


def test_name_of_a_speaker_is_not_embedded():
    catalog = catalog_of(memory("a", "tea", speaker="Anna"))

    assert part("Which tea does Anna like?", catalog).dense_text == "Which tea does like?"
    assert part("Anna's favourite tea", catalog).dense_text == "favourite tea"


def test_speaker_is_not_a_term_of_the_cue():
    catalog = catalog_of(memory("a", "tea", speaker="Anna"))

    assert set(part("Anna likes tea", catalog).repeats) == {"like", "tea"}
    assert set(part("Anna", catalog).repeats) == {"anna"}


def test_word_that_is_also_part_of_a_speakers_surname_is_embedded():
    catalog = catalog_of(memory("a", "tea", speaker="Anna van Dyke"))

    assert "van" in part("Did Anna buy a van?", catalog).dense_text.split("?")[0].split()


def test_auxiliary_verb_does_not_name_a_speaker():
    catalog = catalog_of(memory("a", "tea", speaker="Will"))

    assert part("When will the train leave?", catalog).speaker is None


@pytest.mark.parametrize(
    ("having", "others", "stripped"),
    [(20, 0, False), (21, 0, True), (21, 379, True), (25, 475, False), (26, 474, True)],
    ids=["20 of 20", "21 of 21", "21 of 400", "25 of 500", "26 of 500"],
)
def test_name_is_over_common_above_a_twentieth_and_above_twenty(having, others, stripped):
    # 5 % of 400 is 20, of 500 is 25: more than both is over-common.
    catalog = catalog_of(*["trip to Paris"] * having, *["walk at home"] * others)
    text = part("what did we see in Paris", catalog).dense_text

    assert text == ("what did we see in" if stripped else "what did we see in Paris")


def test_common_word_in_lower_case_or_in_front_is_embedded():
    catalog = catalog_of(*["paris trip"] * 30)

    assert part("Paris trip", catalog).dense_text == "Paris trip"
    assert part("a trip to paris", catalog).dense_text == "a trip to paris"


@pytest.mark.parametrize("cue", ["Anna", "Anna?", "Anna Anna", "  Anna's "])
def test_stripping_never_leaves_nothing(cue):
    catalog = catalog_of(memory("a", "tea", speaker="Anna"))

    assert part(cue, catalog).dense_text == cue


def test_names_are_embedded_where_the_policy_says_so():
    catalog = catalog_of(memory("a", "tea", speaker="Anna"))

    assert part("tea of Anna", catalog, strip=False).dense_text == "tea of Anna"


# Missing evidence, small stores, several parts


def test_missing_cosine_is_neutral_and_not_zero():
    catalog = catalog_of("green tea", "red wine", "white milk")
    low, missing, neutral = evidence(catalog, "banana", [0.0, nan, 0.1 + 0.225]).relevance

    # Neutral: z0 = 2.25 at cosine 0.1 + 2.25 x 0.1.
    assert missing == pytest.approx(neutral)
    assert missing > low
    assert missing == pytest.approx(evidence(catalog, "banana").relevance[1])


def test_unmeasured_memory_has_at_most_what_the_pool_left():
    catalog = catalog_of("green tea", "red wine")

    # The last of a full pool had 0.2, so z0 <= 1: e0 = 0.5 (1 - 2.25) = -0.625.
    found = evidence(catalog, "banana", [0.5, nan], unseen_cosine=0.2).relevance
    assert found[1] == pytest.approx(sigmoid(1.45 * -0.625 - 0.4 - 0.5 * log(2)))
    # A pool that ended above the neutral point says nothing against a memory.
    found = evidence(catalog, "banana", [0.9, nan], unseen_cosine=0.8).relevance
    assert found[1] == pytest.approx(sigmoid(-0.4 - 0.5 * log(2)))


def test_missing_neighbour_is_left_out_of_the_sharing():
    catalog = catalog_of(*thread("a1", "b1"))
    model = RelevanceModel(thread=0.0, **PINNED)
    found = evidence(catalog, "banana", [nan, 0.5], model=model).relevance

    # As if it had no neighbour: z = z0 = 4.
    assert found[1] == pytest.approx(sigmoid(0.5 * (4 - NEUTRAL) - 0.4 - 0.5 * log(2)))


def test_evidence_without_any_cosine_is_nan_there():
    assert np.isnan(evidence(catalog_of("tea"), "tea").dense).all()


def test_best_part_speaks_for_a_memory():
    catalog = catalog_of("green tea", "red wine", "blue sky")
    cosines = [[0.6, 0.1, nan], [0.2, 0.7, nan]]
    parts = ["green tea", "red wine"]
    alone = [evidence(catalog, *each) for each in zip(parts, cosines, strict=True)]
    both = evidence(catalog, parts, cosines)

    assert both.relevance == pytest.approx(
        np.maximum(alone[0].relevance, alone[1].relevance), rel=1e-12
    )
    assert both.dense[:2] == pytest.approx([0.6, 0.7])
    assert np.isnan(both.dense[2])
    assert both.coverage == pytest.approx([1.0, 1.0, 0.0])


def test_cosine_shown_is_the_highest_even_where_another_part_wins():
    # Words decide for the first part; the second has the better cosine.
    found = evidence(catalog_of("green tea"), ["green tea", "banana"], [[0.3], [0.4]])

    assert found.dense == pytest.approx([0.4])


@pytest.mark.parametrize("count", [0, 1, 2, 5])
@pytest.mark.parametrize("cue", ["", "tea", "日本", "🎉", "?!"])
def test_small_stores_work(count, cue):
    catalog = catalog_of(*["green tea"] * count)
    for cosines in (None, [0.3] * count):
        relevance = evidence(catalog, cue, cosines).relevance
        assert relevance.shape == (count,)
        assert ((relevance >= 0) & (relevance <= 1)).all()


def test_empty_cue_finds_no_words():
    found = evidence(catalog_of("tea", ""), "")

    assert not found.matched.any()
    assert found.coverage == pytest.approx([0, 0])
    assert found.bm25 == pytest.approx([0, 0])


def test_term_match_is_what_makes_a_lexical_match():
    found = evidence(catalog_of("green tea", "red wine"), "tea")

    assert found.matched.tolist() == [True, False]


# Embedders


TIGHT = NullDistribution(mean=0.75, sd=0.02)
"""All cosines above 0.7: cap (1 - 0.75) / 0.02 = 12.5, neutral at 0.75 + 3.125 x 0.02 = 0.8125."""


def test_tight_embedder_keeps_the_order():
    catalog = catalog_of(*"abcde")
    found = evidence(catalog, "banana", [0.9, 0.85, 0.8, 0.75, 0.7], null=TIGHT).relevance

    assert (np.diff(found) < 0).all()
    # z0 = 7.5: 1.45 x 0.5 (7.5 - 3.125) - 0.4 - 0.5 ln 5 = 1.967
    assert found[0] == pytest.approx(sigmoid(1.45 * 0.5 * 4.375 - 0.4 - 0.5 * log(5)))
    assert found[0] > 0.5


def test_tight_embedder_abstains_for_an_unrelated_cue():
    catalog = catalog_of(*"abcde")
    unrelated = [0.73, 0.76, 0.75, 0.74, 0.77]

    assert evidence(catalog, "banana", unrelated, null=TIGHT).relevance.max() < 0.5
    # Against a wide embedder's null the same cosines would all pass.
    assert evidence(catalog, "banana", unrelated, null=DEFAULT_NULL).relevance.min() > 0.5


def test_cosine_far_below_a_tiny_null_is_no_relevance_and_no_warning():
    # sd 0.0002 is the least but one that `measure` accepts; z0 = (0.5 - 0.99) / 0.0002 = -2450.
    found = evidence(catalog_of("tea"), "banana", [0.5], null=NullDistribution(0.99, 0.0002))

    assert found.relevance == pytest.approx([0.0])


texts = st.one_of(
    st.sampled_from(
        ["", "green tea", "When was Anna in Paris?", "how many 2019", "日本語の本", "🎉"]
    ),
    st.text(max_size=30),
)
shelves = st.lists(
    st.tuples(texts, st.none() | st.sampled_from("st"), st.none() | st.sampled_from("AB")),
    max_size=6,
)
cosine = st.floats(-1, 1)


def shelf(held: list[tuple[str, str | None, str | None]]) -> Catalog:
    return catalog_of(
        *(
            memory(str(i), text, thread_id=name, turn=i, speaker=speaker)
            for i, (text, name, speaker) in enumerate(held)
        )
    )


@settings(deadline=None)
@given(shelves, st.lists(texts, min_size=1, max_size=3), st.data())
def test_relevance_lies_between_zero_and_one_for_anything(held, cues, data):
    catalog = shelf(held)
    row = st.lists(cosine | st.just(nan), min_size=len(held), max_size=len(held))
    dense = data.draw(st.none() | st.lists(row, min_size=len(cues), max_size=len(cues)))
    null = NullDistribution(data.draw(st.floats(-0.5, 0.95)), data.draw(st.floats(0.01, 0.3)))
    unseen = data.draw(st.none() | cosine)
    found = evidence(catalog, cues, dense, null, unseen_cosine=unseen)

    assert ((found.relevance >= 0) & (found.relevance <= 1)).all()
    assert ((found.coverage >= 0) & (found.coverage <= 1 + 1e-9)).all()
    assert ((found.entity >= 0) & (found.entity <= 1)).all()
    assert np.isfinite(found.bm25).all()
    assert np.isfinite(found.episode).all()


@settings(deadline=None)
@given(shelves, texts, st.floats(0.01, 3.0), st.data())
def test_relevance_is_invariant_to_the_scale_of_an_embedder(held, cue, scale, data):
    # cos' = a cos + b; identity stays at 1, so b = 1 - a, and the null moves along.
    catalog = shelf(held)
    cosines = np.array(
        data.draw(st.lists(cosine | st.just(nan), min_size=len(held), max_size=len(held)))
    )
    shift = 1 - scale
    moved = NullDistribution(scale * NULL.mean + shift, scale * NULL.sd)

    assert evidence(catalog, cue, scale * cosines + shift, moved).relevance == pytest.approx(
        evidence(catalog, cue, cosines).relevance, rel=1e-6, abs=1e-9
    )


@settings(deadline=None)
@given(shelves.filter(len), texts, st.data())
def test_higher_cosine_never_lowers_relevance(held, cue, data):
    catalog = shelf(held)
    cosines = data.draw(st.lists(cosine, min_size=len(held), max_size=len(held)))
    place = data.draw(st.integers(0, len(held) - 1))
    raised = [*cosines]
    raised[place] = data.draw(st.floats(cosines[place], 1.0))
    before, after = (evidence(catalog, cue, each).relevance for each in (cosines, raised))

    assert (after >= before - 1e-12).all()


@settings(deadline=None)
@given(shelves, st.text(max_size=60))
def test_reading_a_cue_never_fails_and_embeds_some_text(held, cue):
    catalog = shelf(held)
    read = part(cue, catalog)

    assert bool(read.dense_text.strip()) == bool(cue.strip())
    assert all(1.0 <= weight < inf for weight in read.weights.values())
    assert set(read.names) <= set(read.weights) == set(read.repeats)


# A window of a catalog

DEFAULT_MODEL = RelevanceModel()
WORDS = ("tea", "Oslo", "tram", "Ann", "2019", "seven", "ERR_7", "yesterday")

drawn_memories = st.builds(
    lambda words, thread, speaker, turn: {
        "text": " ".join(words),
        "thread_id": thread,
        "speaker": speaker,
        "turn": turn,
    },
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=4),
    st.sampled_from(["t1", "t2", None]),
    st.sampled_from(["Ann", "Bob", None]),
    st.integers(0, 9),
)


@st.composite
def scenes(draw: st.DrawFn) -> tuple[Catalog, list[int], list[str], np.ndarray]:
    """A catalog with some dead rows, rows that are wanted, a cue, and the cosines of those rows."""
    held = draw(st.lists(drawn_memories, min_size=4, max_size=14))
    catalog = Catalog()
    for key, fields in enumerate(held):
        one = Memory(namespace=("u",), key=str(key), **fields)
        catalog.put(one.id, traits_of(one))
    for key in draw(st.sets(st.integers(0, len(held) - 1), max_size=2)):
        catalog.remove((("u",), str(key)))
    live = [catalog.row(memory_id) for memory_id in catalog.ids()]
    rows = draw(st.lists(st.sampled_from(live), unique=True, min_size=1))
    cue = draw(st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(" ".join))
    parts = [cue, *draw(st.sampled_from([[], ["When did Bob take the tram?"]]))]
    drawn = draw(st.lists(st.none() | cosine, min_size=len(rows), max_size=len(rows)))
    cosines = np.full((len(parts), catalog.rows), np.nan)
    cosines[:, rows] = [np.nan if one is None else one for one in drawn]
    return catalog, rows, parts, cosines


@pytest.mark.parametrize("unseen", [None, 0.05])
@pytest.mark.parametrize("is_dense", [True, False])
@given(scenes())
def test_a_window_weighs_its_rows_as_the_whole_catalog_does(unseen, is_dense, scene):
    catalog, rows, cue, drawn = scene
    cosines = drawn if is_dense else None
    parts = [read_part(text, catalog, DEFAULT_MODEL, True) for text in cue]
    wordings = [match_words(catalog, each, DEFAULT_MODEL) for each in parts]
    whole = score_evidence(catalog, parts, wordings, cosines, NULL, DEFAULT_MODEL, unseen)

    window = Window(catalog, rows)
    seen = None if cosines is None else cosines[:, window.catalog_rows]
    cut = [window.wording(wording) for wording in wordings]
    table = score_evidence(window, parts, cut, seen, NULL, DEFAULT_MODEL, unseen)

    places = [window.row(row) for row in rows]
    for name, column in whole._asdict().items():
        np.testing.assert_allclose(getattr(table, name)[places], column[rows], err_msg=name)
