from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from locomo_cases import load_locomo

from langmem_recall.errors import InputError
from langmem_recall.evaluation.cases import (
    Case,
    Collection,
    load_cases,
)
from langmem_recall.types import Cue

DEV_FILE = Path(__file__).resolve().parents[3] / "shared" / "data" / "locomo_dev.json"
TEA = {"collection": "ann", "key": "tea", "content": "Ann drinks green tea", "salience": 0.8}
DOG = {"collection": "ann", "key": "dog", "content": "Ann has a dog"}
ASKED = {"collection": "ann", "cue": "What does Ann drink?", "relevant": ["tea"]}


@pytest.fixture
def write(tmp_path: Path) -> Any:
    def written(*records: Any) -> Path:
        path = tmp_path / "mine.jsonl"
        lines = [one if isinstance(one, str) else json.dumps(one) for one in records]
        path.write_text("\n".join(lines), encoding="utf-8")
        return path

    return written


def test_memories_and_cases_are_read_from_one_file(write: Any) -> None:
    asked = {**ASKED, "at": "2026-03-04T10:00:00", "category": "drinks"}
    cases = load_cases(write(TEA, DOG, asked))
    value = {"content": "Ann drinks green tea", "salience": 0.8}
    assert cases.name == "mine"
    assert cases.collections[0].memories == (("tea", value), ("dog", {"content": "Ann has a dog"}))
    (case,) = cases.cases
    assert case.cue == Cue("What does Ann drink?")
    assert case.relevant == {"tea"}
    assert case.at == datetime(2026, 3, 4, 10, tzinfo=UTC)
    assert (case.group, case.category) == ("answerable", "drinks")


def test_a_case_may_stand_before_its_memories_and_blank_lines_are_skipped(write: Any) -> None:
    assert len(load_cases(write(ASKED, "", TEA, "  ")).cases) == 1


def test_a_line_without_a_collection_belongs_to_the_default_one(write: Any) -> None:
    cases = load_cases(write({"key": "a", "content": "x"}, {"cue": "x?", "relevant": ["a"]}))
    assert cases.collections[0].name == cases.cases[0].collection == "default"


def test_a_case_without_relevant_keys_is_off_topic(write: Any) -> None:
    cases = load_cases(write(TEA, {"collection": "ann", "cue": "Boil an egg?"}))
    assert cases.cases[0].group == "off_topic"


def test_a_line_with_only_a_collection_declares_an_empty_one(write: Any) -> None:
    cases = load_cases(write({"collection": "none"}, {"collection": "none", "cue": "Anything?"}))
    assert cases.collections == (Collection("none", ()),)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{not json", "line 2: This is not JSON"),
        ("[1]", "line 2: A line is one JSON object"),
        ({"content": "no key"}, "line 2: A line needs a key"),
        ({"collection": "ann", "key": "tea", "content": "again"}, "line 2: The key 'tea' is used"),
        ({"key": "x", "kind": "semantic"}, "line 2: The memory 'x' has no text"),
        ({"key": 7, "content": "x"}, "line 2: A line needs a key .* got the key 7"),
        ({**ASKED, "relevant": "tea"}, "line 2: relevant: Input should be a valid frozenset"),
        ({**ASKED, "at": "yesterday"}, "line 2: at: Input should be a valid datetime"),
        ({**ASKED, "relvant": []}, "line 2: relvant: Unexpected keyword argument"),
        ({**ASKED, "cue": ""}, "line 2: A cue must be a text"),
        ({**ASKED, "cue": {"words": "x"}}, "line 2: cue.words: Unexpected keyword argument"),
        ({**ASKED, "relevant": [], "group": "answerable"}, "line 2: An answerable case needs"),
    ],
)
def test_a_bad_line_is_named_with_its_file_and_number(write: Any, line: Any, said: str) -> None:
    with pytest.raises(InputError, match=f"mine.jsonl, {said}"):
        load_cases(write(TEA, line, ASKED))


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"relevant": ["coffee"]}, "The cue 'What does Ann drink\\?' names .* hold: coffee"),
        (
            {"collection": "bob"},
            "'What does Ann drink\\?' is asked of .*'bob', which has no memories",
        ),
    ],
)
def test_a_cue_that_asks_for_what_is_not_there_is_named(
    write: Any, asked: dict[str, Any], said: str
) -> None:
    with pytest.raises(InputError, match=said):
        load_cases(write(TEA, {**ASKED, **asked}))


def test_a_file_without_cases_is_refused(write: Any) -> None:
    with pytest.raises(InputError, match=r"mine holds no cases"):
        load_cases(write(TEA))


def test_a_missing_file_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        load_cases(tmp_path / "absent.jsonl")


def test_a_cue_may_be_given_with_parts_and_a_task(write: Any) -> None:
    cue = {"text": "What to drink?", "parts": ["Ann", "tea"], "task": "order"}
    (case,) = load_cases(write(TEA, {**ASKED, "cue": cue})).cases
    assert case.cue == Cue("What to drink?", ("Ann", "tea"), "order")


def test_a_text_is_taken_as_a_cue() -> None:
    assert Case("a", "words", {"k"}).cue == Cue("words")  # type: ignore[arg-type]


# --- LoCoMo ---------------------------------------------------------------------------------------


def turn(dia_id: str, speaker: str, text: str, **more: str) -> dict[str, str]:
    return {"dia_id": dia_id, "speaker": speaker, "text": text, **more}


def question(text: str, evidence: list[str], category: int = 4) -> dict[str, Any]:
    return {"question": text, "answer": "?", "evidence": evidence, "category": category}


TALKS = [
    {
        "sample_id": "conv-1",
        "conversation": {
            "speaker_a": "Ada",
            "speaker_b": "Ben",
            "session_1_date_time": "1:56 pm on 8 May, 2023",
            "session_1": [
                turn("D1:1", "Ada", "My kettle broke."),
                turn("D1:2", "Ben", "Look at mine!", blip_caption="a red kettle"),
            ],
            "session_2_date_time": "9:05 am on 2 June, 2023",
            "session_2": [turn("D2:1", "Ada", "I bought a blue one.")],
            "session_3_date_time": "9:05 am on 2 July, 2023",
        },
        "observation": {
            "session_1_observation": {
                "Ada": [["Ada's kettle broke.", "D1:1"]],
                "Ben": [["Ben owns a red kettle.", ["D1:2", "D1:1"]]],
            },
            "session_2_observation": {"Ada": [["Ada bought a blue kettle.", "D2:1"]]},
        },
        "qa": [
            question("What broke for Ada?", ["D1:1"]),
            question("When did Ada buy one?", ["D1:2; D2:01"], category=2),
            question("What is Ben's hat?", ["D"], category=1),
            question("Nothing?", []),
            question("A trick?", ["D1:1"], category=5),
        ],
    },
    {
        "sample_id": "conv-2",
        "conversation": {
            "speaker_a": "Ben",
            "speaker_b": "Cy",
            "session_1_date_time": "12:10 am on 1 January, 2024",
            "session_1": [turn("D1:1", "Cy", "I row.")],
        },
        "observation": {},
        "qa": [question("Did Ben see Cy row? Benny did.", ["D:1:1"])],
    },
]


@pytest.fixture
def talks(tmp_path: Path) -> Path:
    path = tmp_path / "talks.json"
    path.write_text(json.dumps(TALKS), encoding="utf-8")
    return path


def test_a_turn_is_a_memory_with_caption_speaker_session_and_date(talks: Path) -> None:
    first = load_locomo(talks).collections[0]
    assert [key for key, _ in first.memories] == ["D1:1", "D1:2", "D2:1"]
    assert first.memories[1][1] == {
        "content": "Look at mine! a red kettle",
        "speaker": "Ben",
        "thread_id": "session_1",
        "turn": 1,
        "written_at": "2023-05-08T13:56:00+00:00",
    }


def test_questions_are_asked_an_hour_after_the_last_session_that_took_place(talks: Path) -> None:
    case = load_locomo(talks).cases[0]
    assert case.at == datetime(2023, 6, 2, 10, 5, tzinfo=UTC)


def test_evidence_is_repaired_or_skipped_and_both_are_counted(talks: Path) -> None:
    cases = load_locomo(talks, off_topic=False)
    assert [(case.cue.text, case.relevant, case.category) for case in cases.cases] == [
        ("What broke for Ada?", {"D1:1"}, "single-hop"),
        ("When did Ada buy one?", {"D1:2", "D2:1"}, "temporal"),
        ("Did Ben see Cy row? Benny did.", {"D1:1"}, "single-hop"),
    ]
    assert cases.notes == (
        "2 evidence ids repaired",
        "1 evidence ids skipped",
        "2 questions without evidence left out",
    )


def test_facts_are_gold_when_they_rest_on_the_evidence(talks: Path) -> None:
    cases = load_locomo(talks, unit="facts", off_topic=False)
    assert [case.relevant for case in cases.cases] == [{"F1:0", "F1:1"}, {"F1:1", "F2:0"}]
    assert dict(cases.collections[0].memories)["F2:0"]["content"] == "Ada bought a blue kettle."


def test_hard_questions_are_the_next_talks_with_whole_names_swapped_at_once(talks: Path) -> None:
    hard = [case for case in load_locomo(talks).cases if case.group == "hard"]
    assert [(case.collection, case.cue.text) for case in hard] == [
        ("conv-1", "Did Ada see Ben row? Benny did."),
        ("conv-2", "What broke for Ben?"),
        ("conv-2", "When did Ben buy one?"),
    ]
    assert not any(case.relevant for case in hard)


def test_another_kind_of_file_is_refused(tmp_path: Path, talks: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text('[{"id": 1}]', encoding="utf-8")
    with pytest.raises(InputError, match="cannot be read as LoCoMo"):
        load_locomo(path)
    with pytest.raises(InputError, match="unit must be"):
        load_locomo(talks, unit="words")  # type: ignore[arg-type]


def test_the_dev_file_has_the_questions_it_should() -> None:
    if not DEV_FILE.exists():
        pytest.skip(f"LoCoMo is not at {DEV_FILE}")
    cases = load_locomo(DEV_FILE)
    assert sum(bool(case.relevant) for case in cases.cases) == 760
    assert sum(case.group == "hard" for case in cases.cases) == 760
    assert "1 evidence ids skipped" in cases.notes
