from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langmem_recall.text import tokens as tokens_module
from langmem_recall.text.tokens import (
    LONGEST_READ,
    LONGEST_WORD,
    STOP_WORDS,
    is_identifier,
    near_spellings,
    read_once,
    tokens,
)


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("", []),
        ("The user is running marathons", ["user", "run", "marathon"]),
        ("cats and CATS and cat", ["cat", "cat", "cat"]),
        ("What is the name of my dog?", ["name", "dog"]),
        ("first and last", ["first", "last"]),
        ("I don't know, it's Anna's", ["know", "anna"]),
        ("She won, he won't", ["win"]),
        ("you\u2019re right", ["right"]),
        ("long-term memory", ["long", "term", "longterm", "memori"]),
        ("state-of-the-art", ["state", "art"]),
    ],
)
def test_prose_becomes_stems_in_order_with_repetition_and_without_stop_words(text, terms):
    assert tokens(text) == terms


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("ERR_SSL_VERSION", ["err_ssl_version", "err", "ssl", "version"]),
        ("snake_case", ["snake_case", "snake", "case"]),
        ("LangGraph", ["langgraph", "lang", "graph"]),
        ("HTTPServerError", ["httpservererror", "http", "server", "error"]),
        ("JIRA-1234", ["jira1234", "jira", "1234"]),
        ("E17", ["e17"]),
        ("E-17", ["e17", "e", "17"]),
        ("v1.2.3", ["v1.2.3", "1.2.3"]),
        ("1.2.3-rc1", ["1.2.3-rc1", "1.2.3", "rc1", "rc", "1"]),
        ("python3.11", ["python3.11", "python", "3.11"]),
        (
            "/etc/nginx/nginx.conf",
            ["etc/nginx/nginx.conf", "etc", "nginx", "nginx.conf", "nginx", "conf"],
        ),
        ("src/app/main.py", ["src/app/main.py", "src", "app", "main.py", "main", "py"]),
        (
            "a.b@example.com",
            ["a.b@example.com", "a.b", "b", "example.com", "exampl", "com"],
        ),
        (
            "https://www.example.com/docs",
            ["example.com/docs", "example.com", "exampl", "com", "doc"],
        ),
        ("a1b2c3d4", ["a1b2c3d4"]),
        ("C++", ["c++", "c"]),
        ("C#", ["c#", "c"]),
        (".NET", [".net", "net"]),
        ("AT&T", ["at&t"]),
        ("2023-05-14T10:30", ["2023-05-14t10:30", "2023-05-14", "2023", "05", "14", "10", "30"]),
        ("utf8", ["utf8", "utf", "8"]),
        ("PDFs", ["pdf"]),
    ],
)
def test_an_identifier_is_kept_whole_and_split(text, terms):
    assert tokens(text) == terms


def test_a_uuid_is_kept_whole_with_its_groups():
    assert tokens("550E8400-e29b-41d4-a716-446655440000") == [
        "550e8400-e29b-41d4-a716-446655440000",
        "550e8400",
        "e29b",
        "41d4",
        "a716",
        "446655440000",
    ]


@pytest.mark.parametrize(
    ("asked", "stored"),
    [
        ("iphone", "Her iPhone broke"),
        ("nginx.conf", "edit /etc/nginx/nginx.conf first"),
        ("example.com", "see https://example.com/docs"),
        ("1.2.3", "pinned to v1.2.3"),
        ("gpt-4", "runs on GPT-4."),
        ("cafe", "the Café downtown"),
        ("HTTP", "raises HTTPServerError"),
        ("URL", "the URLs"),
    ],
)
def test_what_people_type_meets_what_was_stored(asked, stored):
    assert set(tokens(asked)) & set(tokens(stored))


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("2023", ["2023"]),
        ("42 apples", ["42", "appl"]),
        ("3.5", ["3.5"]),
        ("$1,500", ["1500"]),
        ("10%", ["10"]),
        ("192.168.0.1", ["192.168.0.1"]),
    ],
)
def test_numbers_are_kept(text, terms):
    assert tokens(text) == terms


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("Café", ["cafe"]),
        ("Cafe\u0301", ["cafe"]),
        ("Łódź", ["lodz"]),
        ("\u0130stanbul", ["istanbul"]),
        ("\uff21\uff22\uff23", ["abc"]),
        ("ёлка й", ["ёлка", "й"]),
        ("がぎ", ["がぎ"]),
        ("हिन्दी किताब", ["हिन्दी", "किताब"]),
        ("ที่", ["ที่"]),
    ],
)
def test_accents_fold_on_latin_letters_and_marks_of_other_scripts_survive(text, terms):
    assert tokens(text) == terms


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("東京都", ["東京", "京都"]),
        ("犬", ["犬"]),
        ("タワー", ["タワ", "ワー"]),
        ("한국어 문장", ["한국", "국어", "문장"]),
        ("東京でNginx設定", ["東京", "京で", "nginx", "設定"]),
        ("2023年", ["2023", "年"]),
        ("nginx-設定", ["nginx", "設定"]),
    ],
)
def test_cjk_runs_become_overlapping_bigrams(text, terms):
    assert tokens(text) == terms


@pytest.mark.parametrize(
    "text", ["!!!", "...", "🎉🎉", "❤️", "👩‍👩‍👧", "— …", "\ud800", "\x00", "_"]
)
def test_a_text_without_words_has_no_terms(text):
    assert tokens(text) == []


def test_lone_surrogates_and_nul_only_separate_words():
    assert tokens("red\ud800green\x00blue") == ["red", "green", "blue"]


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("a" * 1_000_000, 1),
        ("y" * 1_000_000, 1),
        ("xB" * 500_000, 1),
        ("a" + "_" * 1_000_000, 0),
        ("x" + "\u0301\u0323" * 500_000, 1),
        ("東京" * 500_000, 999_999),
        ("http://" * 100_000, 100_000),
    ],
)
def test_a_hostile_megabyte_comes_back_whole(text, count):
    assert len(tokens(text)) == count


def test_a_blob_is_neither_stemmed_nor_cached():
    before = tokens_module._cached_terms.cache_info().currsize
    blob = "running" * LONGEST_WORD

    assert tokens(blob) == [blob]
    assert tokens_module._cached_terms.cache_info().currsize == before


def test_threads_get_the_same_stems_as_one_caller():
    texts = [f"{'walk' * (n % 5 + 1)}{chr(97 + n % 26)}{chr(97 + n // 26)}ing" for n in range(600)]
    with ThreadPoolExecutor(8) as pool:
        threaded = list(pool.map(tokens, texts))
    tokens_module._cached_terms.cache_clear()
    tokens_module._stem.cache_clear()

    assert threaded == [tokens(text) for text in texts]


def test_stop_words_are_folded_and_hold_question_words_and_contractions():
    assert {"what", "when", "not", "no", "would", "could", "s", "t", "ll", "don"} <= STOP_WORDS
    assert not {"first", "last", "may", "won"} & STOP_WORDS
    assert all(word == word.casefold() for word in STOP_WORDS)


@given(st.text(st.characters(codec=None)))
def test_any_text_gives_folded_terms_without_stop_words_or_spaces(text):
    found = tokens(text)

    assert all(term and not any(char.isspace() for char in term) for term in found)
    assert not any(char in "ABCDEFGHIJKLMNOPQRSTUVWXYZ" for term in found for char in term)


@given(st.text(), st.text())
def test_terms_of_two_lines_are_the_terms_of_each(first, second):
    assert tokens(first + "\n" + second) == tokens(first) + tokens(second)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("e-mail", "email"),
        ("check-up", "checkup"),
        ("went", "go"),
        ("children", "child"),
        ("she lives", "to live"),
        ("she leaves", "to leave"),
    ],
)
def test_forms_of_a_word_share_a_term(one, other):
    assert set(tokens(one)) & set(tokens(other))


@pytest.mark.parametrize(
    "term", ["qx-48213", "db-03", "a1234b", "2.14.3", "48213", "err_timeout", "src/core/client.py"]
)
def test_codes_versions_paths_and_long_numbers_are_identifiers(term):
    assert is_identifier(term)


@pytest.mark.parametrize("term", ["tea", "2019", "217", "3.5", "3pm", "2024-03-05", "node.js"])
def test_words_years_and_quantities_are_none(term):
    assert not is_identifier(term)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("penicilin", "penicillin"),
        ("pencillin", "penicillin"),
        ("accomod", "accommod"),
        ("recieve", "receive"),
        ("allerrg", "allerg"),
        ("definat", "definit"),
    ],
)
def test_a_slip_is_near_the_word_it_is_of(written: str, meant: str) -> None:
    assert meant in near_spellings(written)


@pytest.mark.parametrize(
    ("term", "other"), [("planet", "plant"), ("horse", "morse"), ("tea", "teas")]
)
def test_another_word_is_no_slip(term: str, other: str) -> None:
    assert other not in near_spellings(term)
    assert term not in near_spellings(term)


def test_a_cue_is_read_once_and_a_long_text_is_not_kept():
    read = []
    length = read_once(lambda text: read.append(text) or len(text))
    long = "x" * (LONGEST_READ + 1)

    assert [length(text) for text in ("tea", "tea", long, long)] == [3, 3, 1_001, 1_001]
    assert read == ["tea", long, long]
