"""`langmem-recall stats`."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import ADA, fill, run

from langmem_recall.stores.local.store import LocalStore
from langmem_recall.stores.recall_store import RecallStore


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return fill(tmp_path / "memory.db")


def test_memories_are_counted_by_what_they_are(store: Path) -> None:
    told = run("stats", store, "--json").json
    assert told["memories"] == 4
    assert told["namespaces"] == {"memories/ada": 3, "memories/bob": 1}
    assert told["kinds"] == {"semantic": 3, "episodic": 1}
    assert told["sources"] == {"user_stated": 2, "agent_inferred": 1, "unknown": 1}
    assert told["statuses"] == {"active": 4}


def test_a_namespace_narrows_the_count(store: Path) -> None:
    told = run("stats", store, "-n", "memories/bob", "--json").json
    assert (told["memories"], told["namespace"]) == (1, "memories/bob")
    assert run("stats", store, "-n", "memories/bo", "--json").json["memories"] == 0


def test_superseded_memories_are_told_apart(store: Path) -> None:
    with RecallStore(LocalStore(store)) as writer:
        writer.correct(ADA, "sister", "My sister Mia lives in Oslo now")
    assert run("stats", store, "--json").json["statuses"]["superseded"] == 1


def test_tables_are_shown_without_json(store: Path) -> None:
    shown = run("stats", store)
    assert shown.code == 0
    assert "memories/ada" in shown.stdout
    assert "user_stated" in shown.stdout
    assert " ".join(shown.stdout.split()).startswith("4 memories by")


def test_hostile_labels_cannot_steer_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "hostile.db"
    with LocalStore(path, index=False) as local:
        local.put(("[red]x\x1b[2J",), "k", {"content": "hello"})
    shown = run("stats", path).stdout
    assert "\x1b" not in shown
    assert "[red]x\\u001b[2J" in shown
