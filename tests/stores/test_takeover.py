"""Memories of other systems come in with text, time, tags and a namespace of their own."""

from __future__ import annotations

import json
from typing import Any

import pytest

from langmem_recall import LocalStore, RecallStore, import_jsonl
from langmem_recall.errors import InputError
from langmem_recall.stores.takeover import converted

ADA = ("memories", "ada")
HOME = ("memories", "{user_id}")
MEM0 = {
    "results": [
        {
            "id": "892db2ae-06d9-49e5-8b3e-585ef9b85b8e",
            "memory": "Is allergic to peanuts",
            "hash": "0f1e",
            "metadata": {"category": "health", "importance": 9},
            "categories": ["health", "food"],
            "created_at": "2026-01-04T09:12:11.151Z",
            "updated_at": None,
            "user_id": "ada",
            "run_id": "trip-1",
        },
        {"id": "2", "memory": "Lives in Ghent", "created_at": "2026-01-05", "user_id": "ada"},
    ]
}
RECORDS = [
    {"text": "Prefers tea", "timestamp": 1767225600, "importance": 0.7, "user_id": "ada"},
    {"content": "Met Tom in Rome", "type": "episodic", "date": "2026-02-01", "user_id": "ada"},
    {"page_content": "Ship on Tuesdays", "metadata": {"type": "procedural", "user_id": "ada"}},
    {"fact": "Speaks Dutch", "tags": ["language", "dutch"], "user_id": "ada", "source": "external"},
]


def taken(text: str, **options: Any) -> dict[str, dict[str, Any]]:
    with LocalStore() as local:
        lines = converted(text, HOME, **options)
        import_jsonl(local, iter(lines))  # type: ignore[arg-type]
        found = RecallStore(local).search(ADA)
        return {item.value["content"]: item.value | {"key": item.key} for item in found}


def test_an_export_of_mem0_is_taken_over() -> None:
    found = taken(json.dumps(MEM0), source="agent_inferred")
    nuts = found["Is allergic to peanuts"]
    assert nuts["key"] == "892db2ae-06d9-49e5-8b3e-585ef9b85b8e"
    assert (nuts["source"], nuts["salience"], nuts["thread_id"]) == (
        "agent_inferred",
        0.9,
        "trip-1",
    )
    assert nuts["tags"] == ["food", "health"]
    assert nuts["written_at"] == "2026-01-04T09:12:11.151000+00:00"
    assert found["Lives in Ghent"]["written_at"] == "2026-01-05T00:00:00+00:00"


@pytest.mark.parametrize("shape", ["lines", "list"])
def test_records_of_any_shape_are_taken_over(shape: str) -> None:
    text = "\n".join(map(json.dumps, RECORDS)) if shape == "lines" else json.dumps(RECORDS)
    found = taken(text)
    assert {text: value["kind"] for text, value in found.items()} == {
        "Prefers tea": "semantic",
        "Met Tom in Rome": "episodic",
        "Ship on Tuesdays": "procedural",
        "Speaks Dutch": "semantic",
    }
    assert found["Prefers tea"]["written_at"] == "2026-01-01T00:00:00+00:00"
    assert (found["Prefers tea"]["salience"], found["Prefers tea"]["source"]) == (0.7, "unknown")
    assert found["Speaks Dutch"]["tags"] == ["dutch", "language"]
    assert found["Speaks Dutch"]["source"] == "external"
    assert taken(text.replace("external", "user_stated"))["Speaks Dutch"]["source"] == ("unknown")
    # The same file again replaces: keys are drawn from the words.
    assert taken(text).keys() == found.keys()


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("no JSON", "neither JSON nor JSON lines"),
        ("3", "list of objects"),
        ('[{"user_id": "ada", "size": 3}]', "Record 1 has no text"),
        ('[{"text": "tea"}]', "Record 1 has no 'user_id'"),
        ("[4]", "must be an object"),
    ],
)
def test_what_cannot_be_taken_over_says_why(text: str, wrong: str) -> None:
    with pytest.raises(InputError, match=wrong):
        taken(text)


def test_sources_are_checked() -> None:
    with pytest.raises(InputError, match="source must be one of"):
        taken("[]", source="gossip")
