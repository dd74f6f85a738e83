import pytest
from hypothesis import given
from hypothesis import strategies as st

from langmem_recall.ranking.calibration import PANELS
from langmem_recall.text.tokens import language_of


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Which seat should I book?", "en"),
        ("Welchen Sitzplatz soll ich buchen?", "de"),
        ("Quelle place dois-je réserver ?", "fr"),
        ("¿Qué asiento debo reservar?", "es"),
        ("Какое место мне забронировать?", "ru"),
        ("我应该订哪个座位？", "zh"),
        ("どの席を予約すればいいですか。", "ja"),
        ("어느 좌석을 예약할까요?", "ko"),
        ("ERR_SSL_VERSION", "en"),
        ("", "en"),
        ("¯\\_(ツ)_/¯ what is this", "ja"),  # one letter of a script decides: kana are no English
    ],
)
def test_the_language_of_a_cue(text: str, language: str) -> None:
    assert language_of(text) == language


@pytest.mark.parametrize("language", PANELS)
def test_every_question_of_a_panel_is_taken_for_its_language(language: str) -> None:
    assert {language_of(question) for question, _ in PANELS[language]} == {language}


@pytest.mark.parametrize("language", PANELS)
def test_no_text_of_a_panel_stands_twice(language: str) -> None:
    texts = [text for pair in PANELS[language] for text in pair]
    assert len(set(texts)) == len(texts) >= 24


@given(st.text())
def test_any_text_has_a_language_with_a_panel(text: str) -> None:
    assert language_of(text) in PANELS
