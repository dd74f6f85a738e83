import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langmem_recall.agents.block import LONG_SENTENCE, fitting, join, ranked_sentences

STORY = (
    "We met at noon. The build failed with ERR_CONN_1042 on host db-3. "
    "Nobody knew why (v2.5.1 was new!). Then we had lunch. Ann likes green tea."
)


def shorten(text, cue, fits):
    return join(text, fitting(text, ranked_sentences(text, cue), fits))


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


def test_a_sentence_is_whole_or_not_there():
    text = "alpha beta gamma delta tea epsilon zeta eta theta. Ann likes iota."
    assert shorten(text, "tea", within(24)) == "… Ann likes iota."
    assert shorten(text, "tea", within(12)) == ""


def test_the_sentence_with_the_identifiers_of_the_cue_comes_first():
    text = (
        "The payments by card and the refunds to card holders failed. "
        "The reason was E17. So the payments by card and the refunds were slow."
    )
    cue = "E17: payments by card, refunds to card holders"
    assert shorten(text, cue, within(30)) == "… The reason was E17. …"


def test_a_text_without_sentences_is_cut_between_words_into_passages():
    text = "word " * 100 + "the tea is here " + "word " * 300
    short = shorten(text, "tea", within(320))
    assert "the tea is here" in short
    assert set(short.split()) == {"…", "word", "the", "tea", "is", "here"}
    assert 200 <= len(short) <= 320


def test_a_text_without_spaces_keeps_an_identifier_whole():
    text = "茶" * 295 + "ERR_1042" + "水" * LONG_SENTENCE
    assert "ERR_1042" in shorten(text, "ERR_1042", within(310))


def test_chinese_and_japanese_sentences_end_without_a_space():
    text = "我们中午见面。构建失败了！然后吃午饭。安喜欢绿茶。"
    assert shorten(text, "绿茶", within(10)) == "… 安喜欢绿茶。"
    assert shorten(text, "构建失败", within(12)) == "… 构建失败了！ …"


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


def looks(size):
    """How many characters are looked at to shorten a text of lines to 2,000."""
    seen = 0

    def fits(text):
        nonlocal seen
        seen += len(text)
        return len(text) <= 2_000

    shorten("\n".join(f"seat {i % 7}" for i in range(size // 7)), "seat 3", fits)
    return seen


def test_shortening_looks_at_a_text_a_few_times_however_many_lines_it_has():
    # All of it, then halves of it until 2,000 are left, and those some times more.
    assert looks(32_000) <= 3 * 32_000 + 24 * 2_000


words = st.sampled_from(
    ["tea", "Ann", "E-17", "v2.5", "noon.", "why?", "so!", "茶", "。", "\n", "x" * 70]
)
texts = st.lists(words, max_size=40).map(" ".join)
SENTENCES = ("We met.", "Tea is good!", "Ann likes E-17 more than v2.5.", "Why?", "安喜欢绿茶。")


@given(texts, st.lists(words, max_size=4).map(" ".join), st.integers(0, 120))
def test_a_shortened_text_fits_and_says_nothing_new(text, cue, most):
    short = shorten(text, cue, within(most))
    assert len(short) <= most
    place = 0
    for part in re.split(r"(?:^| )…(?: |$)", short):
        place = text.find(part.strip(), place)
        assert place >= 0


@given(
    st.lists(st.sampled_from(SENTENCES), min_size=1, max_size=20),
    st.sampled_from(["tea", "E-17", "绿茶", ""]),
    st.integers(0, 120),
)
def test_what_is_left_are_whole_sentences(sentences, cue, most):
    short = shorten(" ".join(sentences), cue, within(most))
    rest = short
    for sentence in sorted(SENTENCES, key=len, reverse=True):
        rest = rest.replace(sentence, "")
    assert rest.strip(" …") == ""
    assert short or most < max(map(len, sentences)) + len("…  …")
