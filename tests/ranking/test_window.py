from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from langmem_recall.policy import RelevanceModel
from langmem_recall.ranking.calibration import NullDistribution
from langmem_recall.ranking.catalog import Catalog, traits_of
from langmem_recall.ranking.evidence import Window, match_words, read_part, score_evidence
from langmem_recall.types import Memory

MODEL = RelevanceModel()
NULL = NullDistribution(mean=0.1, sd=0.1)
WORDS = ("tea", "Oslo", "tram", "Ann", "2019", "seven", "ERR_7", "yesterday")

memories = st.builds(
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
    held = draw(st.lists(memories, min_size=4, max_size=14))
    catalog = Catalog()
    for key, fields in enumerate(held):
        memory = Memory(namespace=("u",), key=str(key), **fields)
        catalog.put(memory.id, traits_of(memory))
    for key in draw(st.sets(st.integers(0, len(held) - 1), max_size=2)):
        catalog.remove((("u",), str(key)))
    live = [catalog.row(memory_id) for memory_id in catalog.ids()]
    rows = draw(st.lists(st.sampled_from(live), unique=True, min_size=1))
    cue = draw(st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(" ".join))
    parts = [cue, *draw(st.sampled_from([[], ["When did Bob take the tram?"]]))]
    cosine = st.one_of(st.none(), st.floats(-1, 1))
    drawn = draw(st.lists(cosine, min_size=len(rows), max_size=len(rows)))
    cosines = np.full((len(parts), catalog.rows), np.nan)
    cosines[:, rows] = [np.nan if one is None else one for one in drawn]
    return catalog, rows, parts, cosines


@pytest.mark.parametrize("unseen", [None, 0.05])
@pytest.mark.parametrize("is_dense", [True, False])
@given(scenes())
def test_a_window_weighs_its_rows_as_the_whole_catalog_does(unseen, is_dense, scene):
    catalog, rows, cue, drawn = scene
    cosines = drawn if is_dense else None
    parts = [read_part(text, catalog, MODEL, True) for text in cue]
    wordings = [match_words(catalog, part, MODEL) for part in parts]
    whole = score_evidence(catalog, parts, wordings, cosines, NULL, MODEL, unseen)

    window = Window(catalog, rows)
    seen = None if cosines is None else cosines[:, window.catalog_rows]
    cut = [window.wording(wording) for wording in wordings]
    table = score_evidence(window, parts, cut, seen, NULL, MODEL, unseen)

    places = [window.row(row) for row in rows]
    for name, column in whole._asdict().items():
        np.testing.assert_allclose(getattr(table, name)[places], column[rows], err_msg=name)
