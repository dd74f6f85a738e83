import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langmem_recall.agents.block import shorten

STORY = (
    "We met at noon. The build failed with ERR_CONN_1042 on host db-3. "
    "Nobody knew why (v2.5.1 was new!). Then we had lunch. Ann likes green tea."
)


def within(most):
    return lambda text: len(text) <= most


@pytest.mark.parametrize(
    ("cue", "most", "expected"),
    [
        ("anything", 200, STORY),
        ("what tea does Ann like?", 30, "… Ann likes green tea."),
        ("lunch and tea", 50, "… Then we had lunch. Ann likes green tea."),
        ("noon tea", 45, "We met at noon. … Ann likes green tea."),
        ("why did the build fail?", 55, "… The build failed with ERR_CONN_1042 on host db-3. …"),
        ("", 20, "We met at noon. …"),
    ],
)
def test_the_sentences_with_the_cues_words_are_kept_in_their_order(cue, most, expected):
    assert shorten(STORY, cue, within(most)) == expected


def test_of_equal_sentences_the_earlier_is_kept():
    assert shorten("Tea one. Tea two. Tea three.", "tea", within(12)) == "Tea one. …"


def test_a_sentence_that_is_too_long_is_cut_at_words_around_its_evidence():
    text = "alpha beta gamma delta tea epsilon zeta eta theta iota kappa"
    assert shorten(text, "tea", within(24)) == "… delta tea epsilon …"


def test_without_evidence_the_beginning_is_kept():
    assert shorten("alpha beta gamma delta", "tea", within(14)) == "alpha beta …"


@pytest.mark.parametrize("most", range(17, 60))
def test_an_identifier_of_the_cue_is_never_cut_off(most):
    short = shorten(STORY, "does err_conn_1042 mean that Ann, tea and lunch fail?", within(most))
    assert "ERR_CONN_1042" in short
    assert len(short) <= most


def test_identifiers_of_several_sentences_are_all_kept():
    text = (
        "The first of the two problems was E17 in the module for payments by card. "
        "The second of the problems was E99 in the module for refunds to card holders."
    )
    short = shorten(text, "E17 or E99 in payments", within(40))
    assert "E17" in short
    assert "E99" in short
    assert len(short) <= 40


def test_an_identifier_that_cannot_fit_does_not_keep_the_other_words_out():
    address = "https://example.org/" + "a" * 80
    short = shorten(f"Deployed to {address} by Ann on Monday", address, within(20))
    assert short == "Deployed to … by …"


def test_an_identifier_said_often_is_kept_once_and_the_room_used_for_words():
    text = "E17 E17 E17 E17 E17 E17 E17 E17 broke the cart"
    assert shorten(text, "E17", within(15)) == "E17 E17 E17 …"


def test_chinese_and_japanese_sentences_end_without_a_space():
    text = "我们中午见面。构建失败了！然后吃午饭。安喜欢绿茶。"
    assert shorten(text, "绿茶", within(10)) == "… 安喜欢绿茶。"
    assert shorten(text, "构建失败", within(12)) == "… 构建失败了！ …"


def test_an_identifier_among_chinese_characters_is_kept_whole():
    text = "昨天晚上很晚的时候构建失败错误ERR_1042发生在主机上然后大家都回家了"
    assert shorten(text, "ERR_1042", within(14)) == "… 误ERR_1042发 …"


def test_points_inside_numbers_and_names_end_no_sentence():
    text = "Set it to 3.5 in app.yaml for now. Leave the rest."
    assert shorten(text, "3.5", within(40)) == "Set it to 3.5 in app.yaml for now. …"


def test_nothing_comes_back_when_nothing_fits():
    assert shorten(STORY, "tea", lambda _: False) == ""
    assert shorten("   ", "tea", lambda _: False) == ""
    assert shorten("", "tea", lambda _: False) == ""


@pytest.mark.parametrize(
    "text",
    ["." * 50_000 + "x", '."' * 20_000, "\n" * 50_000 + "x", "a" * 50_000, " " * 50_000 + "x"],
)
def test_texts_made_to_be_slow_come_back_short(text):
    assert len(shorten(text, "tea", within(100))) <= 100


words = st.sampled_from(
    ["tea", "Ann", "E-17", "v2.5", "noon.", "why?", "so!", "茶", "。", "\n", "x" * 70]
)
texts = st.lists(words, max_size=40).map(" ".join)


@given(texts, st.lists(words, max_size=4).map(" ".join), st.integers(0, 120))
def test_a_shortened_text_fits_and_says_nothing_new(text, cue, most):
    short = shorten(text, cue, within(most))
    assert len(short) <= most
    place = 0
    for part in re.split(r"(?:^| )…(?: |$)", short):
        place = text.find(part.strip(), place)
        assert place >= 0


@given(texts, st.integers(20, 120))
def test_a_cues_identifier_survives_wherever_it_stands(text, most):
    assert "E-17" not in text or "E-17" in shorten(text, "E-17", within(most))
