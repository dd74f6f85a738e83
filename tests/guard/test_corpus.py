from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from pathlib import Path

import pytest

DATA = Path(__file__).parents[1] / "data" / "guard"
LANGUAGES = {"en", "de", "fr", "es", "it", "pt", "nl", "pl", "zh", "ja"}
FIELDS = {"text", "label", "source", "form", "template", "language", "kind"}

Row = dict[str, str]


def read(half: str) -> list[Row]:
    lines = (DATA / f"{half}.jsonl").read_text(encoding="utf-8").split("\n")
    return [json.loads(line) for line in lines if line]


SEEN, UNSEEN, BLIND = read("seen"), read("unseen"), read("blind")


def shingles(text: str) -> set[tuple[str, ...]]:
    """Runs of five words; of five characters where a script has no spaces."""
    words = re.findall(r"[぀-ヿ一-鿿]|[^\W぀-ヿ一-鿿]+", text.lower())
    return {tuple(words[i : i + 5]) for i in range(max(1, len(words) - 4))}


def values(rows: list[Row], field: str) -> set[str]:
    return {row[field] for row in rows}


@pytest.mark.parametrize("rows", [SEEN, UNSEEN], ids=["seen", "unseen"])
def test_every_text_has_all_fields_with_known_values_and_a_length_in_range(rows: list[Row]) -> None:
    for row in rows:
        assert set(row) == FIELDS, row
        assert all(row.values()), row
        assert row["label"] in {"attack", "benign"}, row
        assert row["source"] in {"user", "external", "inferred"}, row
        assert row["language"] in LANGUAGES, row
        assert len(row["text"]) >= 20, row
        assert len(row["text"].encode()) <= 16 * 1024, row
    assert len(values(rows, "text")) == len(values(rows, "template")) == len(rows)
    sizes = sorted(len(row["text"].encode()) for row in rows if row["label"] == "benign")
    assert sizes[0] < 40
    assert sizes[-1] > 15_000
    assert sum(size > 1_000 for size in sizes) >= 40


def test_no_user_is_an_attacker() -> None:
    assert not [r for r in SEEN + UNSEEN if r["label"] == "attack" and r["source"] == "user"]


def test_there_are_enough_texts_of_each_label_in_ten_languages_and_the_halves_are_alike() -> None:
    labels = [Counter(row["label"] for row in rows) for rows in (SEEN, UNSEEN)]
    assert sum(count["attack"] for count in labels) >= 320
    assert sum(count["benign"] for count in labels) >= 1_050
    for label in ("attack", "benign"):
        fewer, more = sorted(count[label] for count in labels)
        assert fewer >= 0.9 * more, labels
    for language in LANGUAGES:
        count = Counter(row["label"] for row in SEEN + UNSEEN if row["language"] == language)
        assert count["attack"] >= 15, (language, count)
        assert count["benign"] >= 40, (language, count)


def test_no_form_or_template_of_the_unseen_half_occurs_in_the_seen_half() -> None:
    assert not values(SEEN, "form") & values(UNSEEN, "form")
    assert not values(SEEN, "template") & values(UNSEEN, "template")


def test_attacks_in_at_least_three_languages_occur_only_in_the_unseen_half() -> None:
    seen, unseen = (
        values([row for row in rows if row["label"] == "attack"], "language")
        for rows in (SEEN, UNSEEN)
    )
    assert len(unseen - seen) >= 3, (seen, unseen)


def test_no_line_of_the_unseen_half_occurs_in_the_seen_half() -> None:
    seen, unseen = (
        {line.strip() for row in rows for line in row["text"].split("\n") if len(line.strip()) > 15}
        for rows in (SEEN, UNSEEN)
    )
    assert not seen & unseen


def test_no_line_of_the_unseen_half_occurs_in_the_blind_texts() -> None:
    unseen = {line.strip() for row in UNSEEN for line in row["text"].split("\n")}
    lines = {line.strip() for row in BLIND for line in row["text"].split("\n")}
    assert not {line for line in lines & unseen if len(line) > 15}


def test_blind_texts_have_no_text_twice_and_attacks_in_the_languages_of_the_seen_half() -> None:
    assert len(values(BLIND, "text")) == len(BLIND)
    attacks = [row for row in BLIND if row["label"] == "attack"]
    assert values(attacks, "language") <= {"en", "de", "fr", "es", "pt"}
    assert all(set(row) == FIELDS - {"template"} | {"writer"} for row in BLIND)


def test_no_other_text_nearly_repeats_in_the_unseen_half() -> None:
    others = SEEN + BLIND
    known = [shingles(row["text"]) for row in others]
    where: dict[tuple[str, ...], set[int]] = defaultdict(set)
    for number, parts in enumerate(known):
        for part in parts:
            where[part].add(number)
    for row in UNSEEN:
        parts = shingles(row["text"])
        for number in set[int]().union(*(where.get(part, ()) for part in parts)):
            likeness = len(parts & known[number]) / len(parts | known[number])
            assert likeness < 0.3, (likeness, row["text"], others[number]["text"])
