"""`langmem-recall stats`."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from command_line import ADA, fill, run

from langmem_recall.cli.doctor import AGES, USES, in_ranges
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
    assert told["ages"] == {"under 1 day": 1, "7 to 30 days": 3}
    assert told["uses"] == {"never used": 4}
    assert told["bytes"] > 4_096


def test_use_is_counted_and_counting_is_no_use(store: Path) -> None:
    with RecallStore(LocalStore(store)) as reader:
        reader.recall(ADA, "Which seat for my flight?")
    for _ in range(2):
        told = run("stats", store, "--json").json
        assert told["uses"] == {"never used": 3, "1 to 4 times": 1}
        assert told["last_used"] == {"under 1 day": 1}


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
    assert "never used" in shown.stdout
    assert str(store) in shown.stdout


def test_many_namespaces_are_summed_up(tmp_path: Path) -> None:
    path = tmp_path / "many.db"
    with LocalStore(path, index=False) as local:
        for number in range(25):
            local.put((f"user{number:02}",), "k", {"content": "hello"})
    shown = run("stats", path).stdout
    assert "5 others" in shown
    assert "user19" in shown
    assert "user20" not in shown
    assert len(run("stats", path, "--json").json["namespaces"]) == 25


def test_hostile_labels_cannot_steer_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "hostile.db"
    with LocalStore(path, index=False) as local:
        local.put(("[red]x\x1b[2J",), "k", {"content": "hello"})
    shown = run("stats", path).stdout
    assert "\x1b" not in shown
    assert "[red]x\\u001b[2J" in shown


@pytest.mark.parametrize(
    ("days", "label"),
    [
        (-1, "under 1 day"),
        (0.5, "under 1 day"),
        (1, "1 to 7 days"),
        (90, "over 90 days"),
        (math.nan, "unknown"),
    ],
)
def test_ages_fall_into_half_open_ranges(days: float, label: str) -> None:
    assert in_ranges([days], AGES) == {label: 1}


@pytest.mark.parametrize(
    ("uses", "label"),
    [(0, "never used"), (1, "1 to 4 times"), (5, "5 to 19 times"), (20, "20 times or more")],
)
def test_uses_fall_into_ranges(uses: int, label: str) -> None:
    assert in_ranges([uses], USES) == {label: 1}
