from collections import Counter
from math import log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rank_bm25 import BM25Plus

from langmem_recall.ranking.lexical import LexicalIndex, PoolIndex

DOCUMENTS = [
    ["cat", "sat", "mat"],
    ["cat", "cat", "dog"],
    ["dog", "ran", "far", "away", "home", "late"],
    [],
]
# Four documents, 12 tokens, average length 3. idf = log(5 / df): log 2.5 for cat and dog, log 5
# for every other term.
CAT, RARE = log(2.5), log(5.0)

words = st.sampled_from("abcdefgh")
documents = st.lists(st.lists(words, max_size=8), max_size=12)


def int32(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int32)


@pytest.fixture(params=["bulk", "one by one", "pool"])
def index(request) -> LexicalIndex:
    return built(DOCUMENTS, request.param)


def built(texts: list[list[str]], how: str) -> LexicalIndex:
    if how == "bulk":
        return LexicalIndex.from_documents(texts)
    if how == "pool":
        return PoolIndex.from_documents(texts)
    grown = LexicalIndex()
    for terms in texts:
        grown.add(terms)
    return grown


def bm25(index: LexicalIndex, query: list[str]) -> np.ndarray:
    repeats = Counter(query)
    return index.bm25(repeats, index.scan(repeats))


def matches(index: LexicalIndex, query: list[str]) -> list[bool]:
    found = index.scan(set(query)).rows.tolist()
    return [row in found for row in range(index.rows)]


def terms_of(index: LexicalIndex, row: int) -> dict[str, int]:
    terms = [index.vocabulary[term_id] for term_id in index.distinct_terms([row])[0]]
    found = [index.scan([term]) for term in terms]
    return {
        term: int(scan.counts[scan.rows == row][0]) for term, scan in zip(terms, found, strict=True)
    }


def reference(live: list[list[str]], query: list[str]) -> np.ndarray:
    # Without a single token the reference divides by its average length of zero.
    return np.array(BM25Plus(live).get_scores(query)) if any(live) else np.zeros(len(live))


def test_rows_are_handed_out_in_order():
    grown = LexicalIndex()

    assert [grown.add(terms) for terms in DOCUMENTS] == [0, 1, 2, 3]
    assert (grown.rows, grown.size) == (4, 4)


@pytest.mark.parametrize(
    ("term", "frequency", "idf"),
    [("cat", 2, CAT), ("mat", 1, RARE), ("unicorn", 0, RARE)],
)
def test_idf_is_log_of_size_plus_one_over_frequency(index, term, frequency, idf):
    assert index.document_frequency(term) == frequency
    assert index.idfs([term]) == pytest.approx([idf])


def test_idf_of_an_empty_index_is_zero():
    assert LexicalIndex().idfs(["cat"]) == [0.0]


def test_postings_are_ascending_rows_with_frequencies(index):
    rows, counts, *_ = index.scan(["cat"])

    assert rows.tolist() == [0, 1]
    assert counts.tolist() == [1, 2]
    assert [part.tolist() for part in index.scan(["unicorn"])[:3]] == [[], [], []]


def test_bm25_is_what_the_formula_gives_by_hand(index):
    # Row 0: length 3 is average, norm = 1.5; 1 * 2.5 / (1.5 + 1) = 1, plus delta 1.
    # Row 1: 2 * 2.5 / (1.5 + 2) = 10 / 7, plus 1.  Rows 2 and 3 lack the term: delta alone.
    expected = [CAT * 2.0, CAT * (1.0 + 10.0 / 7.0), CAT, CAT]

    np.testing.assert_allclose(bm25(index, ["cat"]), expected, rtol=1e-12)


def test_a_long_document_is_damped(index):
    # Row 2: length 6, norm = 1.5 * (0.25 + 0.75 * 2) = 2.625; 2.5 / 3.625, plus delta 1.
    assert bm25(index, ["ran"])[2] == pytest.approx(RARE * (1.0 + 2.5 / 3.625))


def test_a_repeated_query_term_counts_twice_and_an_unknown_one_not_at_all(index):
    once = bm25(index, ["cat"])

    np.testing.assert_allclose(bm25(index, ["cat", "unicorn", "cat"]), 2.0 * once, rtol=1e-12)
    assert bm25(index, ["unicorn"]).tolist() == [0.0, 0.0, 0.0, 0.0]


def test_matches_tells_which_rows_have_any_term(index):
    assert matches(index, ["cat", "ran"]) == [True, True, True, False]
    assert matches(index, ["unicorn"]) == [False, False, False, False]
    assert matches(index, []) == [False, False, False, False]


def test_coverage_is_the_share_of_weighted_idf_that_a_row_has(index):
    total = 2.0 * CAT + RARE + 0.5 * RARE
    weights = {"cat": 2.0, "mat": 1.0, "unicorn": 0.5}

    np.testing.assert_allclose(
        index.coverage(weights), [(2.0 * CAT + RARE) / total, 2.0 * CAT / total, 0.0, 0.0]
    )


@pytest.mark.parametrize("weights", [{}, {"cat": 0.0}, {"unicorn": 1.0}])
def test_coverage_is_zero_where_nothing_matches_or_nothing_weighs(index, weights):
    assert index.coverage(weights).tolist() == [0.0, 0.0, 0.0, 0.0]


def test_overlap_is_idf_weighted_jaccard(index):
    # Rows 0 and 1 share cat; together they have cat, dog (log 2.5) and sat, mat (log 5).
    zero_one = CAT / (2.0 * CAT + 2.0 * RARE)
    # Rows 1 and 2 share dog; together cat, dog and five rare terms.
    one_two = CAT / (2.0 * CAT + 5.0 * RARE)

    np.testing.assert_allclose(
        index.overlap([0, 1, 2, 3]),
        [[1, zero_one, 0, 0], [zero_one, 1, one_two, 0], [0, one_two, 1, 0], [0, 0, 0, 1]],
    )


def test_overlap_of_nothing_and_of_empty_documents():
    bare = LexicalIndex.from_documents([[], []])

    assert bare.overlap([]).shape == (0, 0)
    assert bare.overlap([0, 1]).tolist() == [[1.0, 0.0], [0.0, 1.0]]


def test_terms_of_a_row_come_with_their_frequencies(index):
    assert terms_of(index, 1) == {"cat": 2, "dog": 1}
    assert terms_of(index, 3) == {}


def test_distinct_terms_of_rows_are_named_by_id(index):
    ids, places = index.distinct_terms([2, 1])

    assert [index.vocabulary[term_id] for term_id in ids] == [*DOCUMENTS[2], "cat", "dog"]
    assert places.tolist() == [0] * 6 + [1] * 2


def test_a_removed_row_leaves_every_statistic(index):
    index.remove(1)

    assert (index.rows, index.size) == (4, 3)
    assert index.alive.tolist() == [True, False, True, True]
    assert index.document_frequency("cat") == 1
    assert index.idfs(["cat"]) == pytest.approx([log(4.0)])
    assert index.scan(["cat"]).rows.tolist() == [0]
    assert matches(index, ["cat", "dog"]) == [True, False, True, False]
    assert bm25(index, ["cat"])[1] == 0.0
    assert index.coverage({"cat": 1.0}).tolist() == [1.0, 0.0, 0.0, 0.0]
    assert index.add(["new"]) == 4


def test_a_term_whose_last_document_went_scores_nothing_and_is_rare_again(index):
    index.remove(0)

    assert bm25(index, ["mat"]).tolist() == [0.0, 0.0, 0.0, 0.0]
    assert index.idfs(["mat"]) == pytest.approx([log(4.0)])


@pytest.mark.parametrize("row", [-1, 4, 2])
def test_a_dead_or_unknown_row_is_a_key_error(index, row):
    index.remove(2)

    for ask in (index.remove, lambda r: index.overlap([0, r])):
        with pytest.raises(KeyError, match=f"Row {row} is not live"):
            ask(row)
    assert index.size == 3


def test_an_empty_index_answers_with_empty_arrays():
    empty = LexicalIndex.from_documents([])

    assert bm25(empty, ["cat"]).shape == (0,)
    assert matches(empty, ["cat"]) == []
    assert empty.coverage({"cat": 1.0}).shape == (0,)
    assert (empty.rows, empty.size) == (0, 0)


def test_an_emptied_index_scores_zero(index):
    for row in range(4):
        index.remove(row)

    assert bm25(index, ["cat"]).tolist() == [0.0, 0.0, 0.0, 0.0]
    assert index.coverage({"cat": 1.0}).tolist() == [0.0, 0.0, 0.0, 0.0]


def test_alive_cannot_be_written_through(index):
    with pytest.raises(ValueError, match="read-only"):
        index.alive[0] = False
    assert index.add(["new"]) == 4


@pytest.mark.parametrize(
    ("lengths", "starts", "term_ids", "counts", "message"),
    [
        ([1], [0], [0], [1], "Columns disagree"),
        ([1], [0, 2], [0], [1], "Columns disagree"),
        ([1], [0, 1], [0], [1, 1], "Columns disagree"),
        ([1], [], [0], [1], "Columns disagree"),
        ([1], [0, 1], [7], [1], "Term ids must lie"),
        ([1], [0, 1], [-1], [1], "Term ids must lie"),
    ],
)
def test_columns_that_cannot_be_an_index_are_refused(lengths, starts, term_ids, counts, message):
    columns = [int32(*column) for column in (lengths, starts, term_ids, counts)]

    with pytest.raises(ValueError, match=message):
        LexicalIndex.from_counts(["cat"], *columns)


def test_a_bulk_load_does_not_share_memory_with_its_columns():
    counts = int32(1)
    loaded = LexicalIndex.from_counts(["cat"], int32(1), int32(0, 1), int32(0), counts)
    counts[0] = 9

    assert terms_of(loaded, 0) == {"cat": 1}
    assert loaded.scan(["cat"]).counts.tolist() == [1]


@given(
    st.lists(st.lists(words, max_size=8), max_size=6),
    st.lists(st.one_of(st.lists(words, max_size=8), st.integers(0, 30)), max_size=20),
    st.lists(words, max_size=6),
)
def test_any_history_of_changes_scores_like_rank_bm25(loaded, changes, query):
    changed = LexicalIndex.from_documents(loaded)
    live = dict(enumerate(loaded))
    for change in changes:
        if isinstance(change, list):
            live[changed.add(change)] = change
        elif live:
            row = sorted(live)[change % len(live)]
            changed.remove(row)
            del live[row]
    scores = bm25(changed, query)

    expected = np.zeros(changed.rows)
    expected[list(live)] = reference(list(live.values()), query)
    np.testing.assert_allclose(scores, expected, rtol=1e-12)
    hits = [row in live and bool(set(live[row]) & set(query)) for row in range(changed.rows)]
    assert matches(changed, query) == hits


@given(documents, st.lists(words, max_size=6), st.sets(st.integers(0, 11)))
def test_a_pool_that_rank_bm25_scores_equals_the_index(texts, query, removed):
    pool, kept = built(texts, "pool"), built(texts, "bulk")
    for row in removed & set(range(len(texts))):
        pool.remove(row)
        kept.remove(row)
    np.testing.assert_allclose(bm25(pool, query), bm25(kept, query), rtol=1e-12)
    weights = dict.fromkeys(query, 1.0)
    np.testing.assert_array_equal(pool.coverage(weights), kept.coverage(weights))


@given(documents)
def test_a_bulk_load_equals_adding_one_by_one(texts):
    bulk, grown = built(texts, "bulk"), built(texts, "one by one")

    assert list(bulk.vocabulary) == list(grown.vocabulary)
    assert [terms_of(bulk, row) for row in range(bulk.rows)] == [
        terms_of(grown, row) for row in range(grown.rows)
    ]
    for term in "abcdefgh":
        for left, right in zip(bulk.scan([term]), grown.scan([term]), strict=True):
            np.testing.assert_array_equal(left, right)
    np.testing.assert_array_equal(bm25(bulk, list("abca")), bm25(grown, list("abca")))


@given(documents)
def test_persisted_counts_bring_the_index_back(texts):
    saved = built(texts, "one by one")
    ids = {term: term_id for term_id, term in enumerate(saved.vocabulary)}
    counts = [terms_of(saved, row) for row in range(saved.rows)]
    loaded = LexicalIndex.from_counts(
        saved.vocabulary,
        int32(*[len(terms) for terms in texts]),
        int32(0, *np.cumsum([len(terms) for terms in counts])),
        int32(*[ids[term] for terms in counts for term in terms]),
        int32(*[count for terms in counts for count in terms.values()]),
    )

    np.testing.assert_array_equal(bm25(loaded, list("abc")), bm25(saved, list("abc")))
    assert loaded.size == saved.size


@given(documents, st.dictionaries(words, st.floats(0.0, 10.0)))
def test_coverage_stays_between_zero_and_one(texts, weights):
    shares = built(texts, "bulk").coverage(weights)

    assert shares.shape == (len(texts),)
    assert np.all((shares >= 0.0) & (shares <= 1.0))


@given(documents)
def test_overlap_is_symmetric_between_zero_and_one_and_full_for_equal_term_sets(texts):
    alike = built(texts, "bulk").overlap(range(len(texts)))

    np.testing.assert_array_equal(alike, alike.T)
    assert np.all((alike >= 0.0) & (alike <= 1.0))
    assert np.all(np.diag(alike) == 1.0)
    for left, first in enumerate(texts):
        for right, second in enumerate(texts):
            if first and set(first) == set(second):
                assert alike[left, right] == pytest.approx(1.0)


def test_of_equally_frequent_terms_the_first_by_name_is_meant(index):
    # As often as each other, in one document each; a set has another order in each process.
    assert index.most_frequent({"sat", "ran", "mat", "unicorn"}) == "mat"
    assert index.most_frequent({"sat", "cat"}) == "cat"
    assert index.most_frequent({"unicorn"}) is None
