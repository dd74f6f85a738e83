from __future__ import annotations

from collections.abc import Sequence
from math import exp, inf, log, nan, sqrt
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langmem_recall.ranking.calibration import DEFAULT_NULL, NullDistribution
from langmem_recall.ranking.catalog import Catalog, traits_of
from langmem_recall.ranking.evidence import (
    EvidenceTable,
    Part,
    Window,
    match_words,
    read_part,
    rows_in_reach,
    score_evidence,
)
from langmem_recall.types import Memory

NULL = NullDistribution(mean=0.1, sd=0.1)
ONE, TWO = 0.3 * log(2 / 4), 0.3 * log(3 / 4)
"""What a cue of one term, of two, says less than one of three: 0.3 ln((1 + terms) / 4)."""


def luck(count: int, rank: int = 1) -> float:
    """The best of so many by chance: 1.25 x 1.08 for one, 1.25 x 2.55 for a hundred."""
    return 1.25 * NormalDist().inv_cdf(1 - (rank - 0.44) / (count + 3))


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
    return read_part(text, catalog, strip)


def evidence(
    catalog: Catalog,
    cue: str | Sequence[str],
    cosines: Sequence[float] | Sequence[Sequence[float]] | None = None,
    null: NullDistribution = NULL,
    unseen_cosine: float | None = None,
) -> EvidenceTable:
    parts = [part(text, catalog) for text in ([cue] if isinstance(cue, str) else cue)]
    wordings = [match_words(catalog, one) for one in parts]
    dense = None if cosines is None else np.array(cosines, float).reshape(len(parts), -1)
    return score_evidence(Window(catalog), parts, wordings, dense, null, unseen_cosine)


def sigmoid(score: float) -> float:
    return 1 / (1 + exp(-score))


def logit(relevance: np.ndarray) -> np.ndarray:
    return np.log(relevance / (1 - relevance))


# The formula, worked out


def test_relevance_in_a_store_of_one():
    found = evidence(catalog_of("green tea"), "green tea", [0.5])

    # z = (0.5 - 0.1) / 0.1 = 4, all words: 0.5 (4 - 1.350) + 5 - 0.5, less 0.086 for two terms.
    assert found.coverage == pytest.approx([1.0])
    assert found.relevance == pytest.approx([sigmoid(0.5 * (4 - luck(1)) + 4.5 + TWO)])
    assert found.episode.tolist() == [0.0]
    assert found.alone.tolist() == [1]


def test_relevance_in_a_store_of_two_without_threads():
    found = evidence(catalog_of("green tea", "red wine"), "green wine", [0.5, 0.1])

    # Each term is in one of two memories: ln(3 / 1) each, so either covers one half: 5 / 8 - 0.25,
    # below its surprise of ln(52) - ln(3). The next best has z = 0, below chance: no support.
    words = 5 / 8 - 0.25 + TWO
    assert found.coverage == pytest.approx([0.5, 0.5])
    assert found.relevance == pytest.approx([sigmoid(0.5 * (z - luck(2)) + words) for z in (4, 0)])


def test_support_of_the_next_best_lifts_them_all():
    found = logit(evidence(catalog_of(*"abc"), "banana", [0.5, 0.4, 0.4]).relevance)

    # Ranks 2 and 3 have z = 3 each; what chance gives them is taken off, a fifth of the rest each.
    support = (3 - luck(3, 2) + 3 - luck(3, 3)) / 5
    assert found == pytest.approx([0.5 * (z - luck(3) + 0.6 * support) + ONE for z in (4, 3, 3)])


def test_a_word_that_many_have_adds_no_more_than_it_surprises():
    catalog = catalog_of(*["tea"] * 9, "wine")
    found = logit(evidence(catalog, "tea", [0.5] + [nan] * 9).relevance)

    # ln(60 / 9) - ln(11) < 0: by chance. All of a single word's cue is 1, so 0.5 is taken off.
    assert found[0] == pytest.approx(0.5 * (4 - luck(10)) - 0.5 + ONE)


def test_all_of_several_words_count_in_full_however_common():
    catalog = catalog_of(*["green tea"] * 9, "wine")
    found = logit(evidence(catalog, "green tea", [0.1] + [nan] * 9).relevance)

    assert found[0] == pytest.approx(0.5 * (0 - luck(10)) + 4.5 + TWO)


def test_a_word_of_a_long_text_counts_by_the_chance_that_the_rest_of_it_has_none():
    def word(number: int) -> str:
        return "z" + "".join("bcdfghjklm"[int(digit)] + "u" for digit in str(number))

    long, usual = " ".join(map(word, range(199))), " ".join(map(word, range(300, 449)))
    catalog = catalog_of(f"{long} kettle", f"{usual} kettle", "tea", "milk")
    found = match_words(catalog, part("kettle", catalog))
    # Two of four have it, so a text has none by 1 - 2 / 5; 200 terms are four usual texts more.
    assert found.own.tolist() == pytest.approx([0.6**4, 1.0, 0.0, 0.0])
    rarity = np.log(54 / 2)
    assert found.rarity.tolist() == pytest.approx([rarity * 0.6**4, rarity, 0.0, 0.0])


def test_a_note_without_any_name_of_the_cue_loses_three_fifths(monkeypatch):
    catalog = catalog_of("a painting of autumn", "a print of the Mona Lisa", "tea")
    with_it = evidence(catalog, "who painted the Mona Lisa?", [0.5, 0.5, 0.1]).score
    monkeypatch.setattr("langmem_recall.ranking.evidence.UNNAMED", 0.0)
    without = evidence(catalog, "who painted the Mona Lisa?", [0.5, 0.5, 0.1]).score
    assert (with_it - without).tolist() == pytest.approx([-0.6, 0.0, -0.6])


@pytest.mark.parametrize(
    ("cue", "is_naming"),
    [
        ("who painted the Mona Lisa?", True),
        ("what happened in 1998?", True),
        ("which seat do I like?", False),
        ("Welchen Sitz mag ich im Flugzeug?", False),
        ("WHICH SEAT DO I LIKE", False),
    ],
)
def test_nouns_of_german_and_shouted_words_are_no_names(cue, is_naming):
    assert part(cue, catalog_of("tea")).is_naming is is_naming


def test_memory_with_another_identifier_loses_two_and_a_half():
    catalog = catalog_of("ticket QX-17", "ticket QX-18", "ticket of old")
    right, wrong, without = logit(evidence(catalog, "ticket QX-17", [0.5] * 3).relevance)

    assert right > without > wrong
    # They have the same words of the cue but "qx", which is worth nothing alone among others.
    other = logit(evidence(catalog, "ticket QX-19", [0.5] * 3).relevance)
    assert other[2] - other[0] > 1.8


@pytest.mark.parametrize(
    ("cue", "taken_off"),
    [
        # The first has the identifier and most of the words: the second differs in that alone.
        ("what does E-17 on the dishwasher mean?", [0, 8, 0]),
        ("what does E17 on the dishwasher mean?", [0, 8, 0]),
        ("what does E19 on the dishwasher mean?", [2.5, 2.5, 0]),
        ("what does bus 17 on the dishwasher mean?", [0, 0, 0]),
    ],
)
def test_memories_that_differ_in_the_identifier_alone_lose_eight(cue, taken_off, monkeypatch):
    catalog = catalog_of(
        "E-17 on the dishwasher means a closed tap",
        "E-18 on the dishwasher means a full filter",
        "the dishwasher is from 2019",
    )
    after = evidence(catalog, cue, [0.5] * 3).score
    monkeypatch.setattr("langmem_recall.ranking.evidence.OTHER", 0.0)
    monkeypatch.setattr("langmem_recall.ranking.evidence.SIBLING", 0.0)
    before = evidence(catalog, cue, [0.5] * 3).score
    assert (before - after).tolist() == pytest.approx(taken_off)


@pytest.mark.parametrize(
    ("cue", "taken_off"),
    [
        ("where does bus 12 stop?", [0, 8, 0, 0]),
        ("where does bus 14 stop?", [8, 0, 0, 0]),
        # No memory has it, so none is a sibling of the one that is meant.
        ("where does bus 15 stop?", [0, 0, 0, 0]),
        # How many there are, and a year.
        ("do 12 buses stop at the harbour?", [0, 0, 0, 0]),
        ("where did the bus stop in May 2012?", [0, 0, 0, 0]),
    ],
)
def test_a_number_after_a_noun_tells_one_of_several_apart(cue, taken_off, monkeypatch):
    catalog = catalog_of(
        "bus 12 stops at the harbour",
        "bus 14 stops at the mill",
        "the bus costs nothing here",
        "3 dogs and two cats at the mill",
    )
    after = evidence(catalog, cue, [0.5] * 4).score
    monkeypatch.setattr("langmem_recall.ranking.evidence.SIBLING", 0.0)
    before = evidence(catalog, cue, [0.5] * 4).score
    assert (before - after).tolist() == pytest.approx(taken_off)


def test_a_slip_is_read_anew_when_what_it_may_mean_is_written():
    catalog = catalog_of(memory("a", "The tram is late"))
    assert list(part("gardan", catalog).repeats) == ["gardan"]

    later = memory("b", "A new garden")
    catalog.put(later.id, traits_of(later))

    assert list(part("gardan", catalog).repeats) == ["garden"]


def test_a_cue_is_measured_by_its_own_mean_where_its_vector_is_known():
    catalog, null = catalog_of("tea"), NullDistribution(0.1, 0.1, center=(0.3, 0.0))
    one = part("banana", catalog)
    wording = match_words(catalog, one)
    cosines = np.array([[0.5]])
    found = score_evidence(Window(catalog), [one], [wording], cosines, null, vectors=[[2.0, 0.0]])

    # Its cosine with the mean of unrelated statements is 0.3: z = 2 and not 4.
    assert found.relevance == pytest.approx([sigmoid(0.5 * (2 - luck(1)) + ONE)])


def test_a_memory_with_phrasings_is_measured_by_what_phrasings_have_with_any_cue():
    memories = [
        Memory(namespace=("notes",), key=str(place), text="tea", asked_as=phrasings)
        for place, phrasings in enumerate(((), ("coffee",)))
    ]
    catalog = Catalog.of({memory.id: traits_of(memory) for memory in memories})
    null = NullDistribution(0.1, 0.1, asked=0.2)
    plain, phrased = logit(evidence(catalog, "banana", [0.5, 0.5], null=null).relevance)

    # 0.2 nearer by chance is two standard deviations, worth 0.5 each.
    assert plain - phrased == pytest.approx(1.0)


def test_unseen_term_counts_at_top_idf():
    # green: in 2 of 3 memories, ln(4 / 2); banana: in none, as if in one, ln 4.
    found = evidence(catalog_of("green tea", "green sea", "red wine"), "green banana")

    assert found.coverage == pytest.approx([log(2) / (log(2) + log(4))] * 2 + [0.0])
    # = 1/3; without vectors words start at -0.6, and a memory without any has nothing.
    assert found.relevance[0] == pytest.approx(sigmoid(5 / 27 - 0.5 / 3 - 0.6 + TWO))
    assert found.relevance[2] == pytest.approx(sigmoid(-9))


def test_a_word_that_no_memory_has_is_read_as_the_one_it_is_a_slip_of():
    catalog = catalog_of("allergic to penicillin", "a penicilium culture")

    assert evidence(catalog, "penicilin").coverage == pytest.approx([1.0, 0.0])
    # A word that some memory has is meant as it stands.
    assert evidence(catalog, "penicilium").coverage == pytest.approx([0.0, 1.0])


def test_names_and_things_with_digits_count_double():
    # drink (1), Paris (2) and 2019 (2): 1 : 2 : 2 at equal IDF.
    found = evidence(catalog_of("drink", "Paris", "2019"), "drink in Paris 2019")

    assert found.coverage == pytest.approx([0.2, 0.4, 0.4])
    # Of names and numbers alone either is one half.
    assert found.entity == pytest.approx([0.0, 0.5, 0.5])


def test_first_word_of_a_cue_is_no_name_for_its_capital():
    assert evidence(catalog_of("paris", "tea"), "Paris tea").coverage == pytest.approx([0.5, 0.5])


def test_more_memories_lower_relevance_by_what_the_best_of_them_reaches_by_chance():
    cosines = [0.5] + [0.1] * 7
    alone = logit(evidence(catalog_of("tea"), "banana", [0.5]).relevance)
    crowd = logit(evidence(catalog_of(*["tea"] * 8), "banana", cosines).relevance)

    assert alone[0] - crowd[0] == pytest.approx(0.5 * (luck(8) - luck(1)))


def test_cosines_of_neighbours_are_shared():
    # z = 1, 4, 2.
    found = evidence(catalog_of(*thread("a1", "b1", "c1")), "banana", [0.2, 0.5, 0.3])

    # The middle: (4 + 0.5 x 1 + 0.25 x 2) / sqrt(1 + 0.25 + 0.0625 + 0.5 (0.5 + 0.25 + 0.125)).
    z = [
        (1 + 0.25 * 4) / sqrt(1 + 0.0625 + 0.5 * 0.25),
        5 / sqrt(1.75),
        (2 + 0.5 * 4) / sqrt(1 + 0.25 + 0.5 * 0.5),
    ]
    # No word of the cue where 0.46 of them are expected; 0.3 of the best of the thread.
    best = 0.5 * (4 - luck(3)) - 5 * 0.46
    assert found.relevance == pytest.approx(
        [sigmoid(0.5 * (each - luck(3)) - 5 * 0.46 + 0.3 * best + ONE) for each in z]
    )
    assert found.alone.tolist() == [0, 0, 0]


def test_best_of_the_thread_speaks_for_all_of_it():
    catalog = catalog_of(*thread("zebra", "b", name="s"), *thread("c", "d", name="t"))
    found = evidence(catalog, "zebra", [0.1] * 4)

    # 5 (1 - 0.46) in the first thread, 0.75 of the word lent to the next turn; -5 x 0.46 in the
    # second; 0.3 of the best of each.
    neighbours = np.array([0.0, 0.0])
    dense = 0.5 * (neighbours - luck(4)) + ONE
    first = dense + 5 * (np.array([1.0, 0.75]) - 0.46) + 0.3 * (0.5 * -luck(4) + 5 * 0.54)
    second = dense - 5 * 0.46 + 0.3 * (0.5 * -luck(4) - 5 * 0.46)
    assert logit(found.relevance) == pytest.approx([*first, *second])


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


def test_evidence_without_any_cosine_is_nan_there():
    assert np.isnan(evidence(catalog_of("tea"), "tea").dense).all()


def test_best_part_speaks_for_a_memory():
    catalog = catalog_of("green tea", "red wine", "blue sky")
    cosines = [[0.6, 0.1, nan], [0.2, 0.7, nan]]
    both = evidence(catalog, ["green tea", "red wine"], cosines)

    # Two parts can be near to three memories by chance in six ways.
    assert logit(both.relevance[:2]) == pytest.approx(
        [0.5 * (z - luck(6)) + 4.5 + TWO for z in (5, 6)]
    )
    assert both.alone[:2].tolist() == [1, 2]
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

    assert found.coverage == pytest.approx([0, 0])
    assert np.isnan(found.bm25).all()


def test_term_match_is_what_makes_a_lexical_match():
    found = evidence(catalog_of("green tea", "red wine"), "tea")

    assert np.isnan(found.bm25).tolist() == [False, True]


# Embedders


TIGHT = NullDistribution(mean=0.75, sd=0.02)
"""All cosines above 0.7."""


def test_tight_embedder_keeps_the_order():
    catalog = catalog_of(*"abcde")
    found = evidence(catalog, "banana", [0.9, 0.85, 0.8, 0.75, 0.7], null=TIGHT).relevance

    assert (np.diff(found) < 0).all()
    # z = 7.5, 5, 2.5, 0, -2.5; the next four have support.
    support = sum(z - luck(5, rank) for rank, z in enumerate((5, 2.5, 0, -2.5), 2)) / 5
    assert found[0] == pytest.approx(sigmoid(0.5 * (7.5 - luck(5) + 0.6 * support) + ONE))
    assert found[0] > 0.5


def test_tight_embedder_abstains_for_an_unrelated_cue():
    catalog = catalog_of(*"abcde")
    unrelated = [0.73, 0.76, 0.75, 0.74, 0.77]

    assert evidence(catalog, "banana", unrelated, null=TIGHT).relevance.max() < 0.5
    # Against a wide embedder's null the same cosines would pass.
    assert evidence(catalog, "banana", unrelated, null=DEFAULT_NULL).relevance.max() > 0.5


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
    assert not np.isinf(found.bm25).any()
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
    parts = [read_part(text, catalog, True) for text in cue]
    wordings = [match_words(catalog, each) for each in parts]
    whole = score_evidence(Window(catalog), parts, wordings, cosines, NULL, unseen)

    window = Window(catalog, rows)
    seen = None if cosines is None else cosines[:, window.rows]
    table = score_evidence(window, parts, wordings, seen, NULL, unseen)

    places = [window.rows.tolist().index(row) for row in rows]
    for name, column in whole._asdict().items():
        np.testing.assert_allclose(getattr(table, name)[places], column[rows], err_msg=name)


LONE = st.sampled_from(
    [
        "kettle",
        "tram 7",
        "tram 8 to town",
        "blue tea pot",
        "ERR_42 in May",
        "ERR_43 in May",
        "lemon",
        "Bob's tea",
    ]
)


@given(
    texts=st.lists(LONE, min_size=1, max_size=30),
    cue=st.sampled_from(
        ["blue tea", "When did Bob see ERR_42?", "How many lemons?", "Kettle Tram", "tram 7"]
    ),
    count=st.integers(1, 12),
    seed=st.integers(0, 99),
)
def test_the_best_of_those_that_stand_alone_are_all_in_reach(texts, cue, count, seed):
    asked = [{"asked_as": ("who?",)} if place % 4 == 1 else {} for place in range(len(texts))]
    catalog = catalog_of(*(memory(str(i), text, **asked[i]) for i, text in enumerate(texts)))
    parts = [read_part(text, catalog, True) for text in (cue, "green kettle")]
    wordings = [match_words(catalog, each) for each in parts]
    drawn = np.random.default_rng(seed)
    cosines = drawn.uniform(-0.2, 0.6, (2, len(texts))).astype(np.float32)
    visible = drawn.random(len(texts)) < 0.7
    null = NULL._replace(asked=0.1)
    whole = score_evidence(Window(catalog), parts, wordings, cosines.astype(float), null)

    rows = rows_in_reach(catalog, parts, wordings, cosines, null, visible, count)
    table = score_evidence(
        Window(catalog, rows), parts, wordings, cosines[:, rows].astype(float), null
    )

    best = [row for row in np.argsort(-whole.score, kind="stable") if visible[row]][:count]
    assert set(best) <= set(rows.tolist())
    assert table.score.tolist() == whole.score[rows].tolist()
