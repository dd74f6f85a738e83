"""`langmem-recall sweep`."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from command_line import ADA, fill, run
from langgraph.store.base import PutOp

from langmem_recall.policy import RecallPolicy
from langmem_recall.stores.local.store import LocalStore
from langmem_recall.stores.recall_store import RecallStore

DAY = timedelta(days=1)
SEAT = "I always book an aisle seat on flights"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Of Ada: one memory past its end, one inference, one twin and one correction."""
    path = fill(tmp_path / "memory.db")
    now = datetime.now(UTC)
    with RecallStore(LocalStore(path)) as writer:
        writer.remember(ADA, "The wifi code is 4711", key="wifi", valid_until=now - DAY)
        writer.remember(ADA, SEAT, key="twin", source="user_stated", written_at=now)
        writer.correct(ADA, "peanuts", "I am allergic to cashews")
    return path


def keys(path: Path) -> set[str]:
    with LocalStore(path) as local:
        return {item.key for item in local.search(("memories",), limit=100)}


def told(record: dict[str, Any]) -> dict[str, str]:
    return {row["key"]: row["action"] for row in record["rows"]}


def test_a_dry_run_says_what_and_why_and_changes_nothing(store: Path) -> None:
    before = keys(store)
    ran = run("sweep", store, "-n", "memories/ada", "--json")
    record = ran.json
    assert (record["applied"], record["examined"]) == (False, 6)
    assert (record["store"], record["namespace"]) == (str(store), "memories/ada")
    assert told(record) == {"wifi": "expire", "sister": "decay", "twin": "merge"}
    assert record["counts"] == {"expire": 1, "decay": 1, "merge": 1}
    reasons = {row["key"]: row["reason"] for row in record["rows"]}
    assert reasons["sister"].startswith("unconfirmed inference: confidence 0.60 -> ")
    assert reasons["twin"] == "says the same as seat"
    assert all(row["namespace"] == ["memories", "ada"] for row in record["rows"])
    assert "nothing was changed" in ran.stderr
    assert keys(store) == before
    assert run("sweep", store, "-n", "memories/ada", "--json").json == record


def test_an_applied_sweep_does_what_the_dry_run_said(store: Path) -> None:
    before = keys(store)
    dry = run("sweep", store, "-n", "memories/ada", "--json").json
    ran = run("sweep", store, "-n", "memories/ada", "--apply", "--json")
    assert ran.json == {**dry, "applied": True}
    assert ran.stderr == ""
    assert keys(store) == before - {"wifi", "twin"}
    with LocalStore(store) as local:
        sister = local.get(ADA, "sister")
        assert sister
        assert local.search(ADA, query="aisle seat", limit=1)[0].key == "seat"


def test_the_table_names_what_and_why(store: Path) -> None:
    shown = run("sweep", store, "-n", "memories/ada").stdout
    head = "dry run of memories/ada: 6 examined, 1 expire, 1 decay, 1 merge"
    assert head in " ".join(shown.split())
    (line,) = (line for line in shown.splitlines() if " twin:" in line)
    assert " ".join(line.split()) == "merge memories/ada twin: says the same as seat"


def test_a_namespace_with_nothing_to_do_is_told_so(store: Path) -> None:
    shown = run("sweep", store, "-n", "memories/bob")
    assert shown.stdout == "dry run of memories/bob: 1 examined, nothing to do\n"
    assert (shown.code, shown.stderr) == (0, "")
    assert run("sweep", store, "-n", "memories/nobody", "--json").json["examined"] == 0


@pytest.mark.parametrize(
    ("steps", "actions"),
    [("expire", {"expire"}), ("decay, merge", {"decay", "merge"}), ("", set())],
)
def test_steps_can_be_chosen(store: Path, steps: str, actions: set[str]) -> None:
    record = run("sweep", store, "-n", "memories/ada", "--steps", steps, "--json").json
    assert set(record["counts"]) == actions


def test_cold_memories_are_listed_and_stay(store: Path) -> None:
    options = ("-n", "memories", "--steps", "", "--cold-after", "5", "--apply")
    record = run("sweep", store, *options, "--json").json
    # What was written ten days ago; the correction, the twin and the wifi code are new.
    assert told(record) == {"seat": "cold", "sister": "cold"}
    assert {"seat", "sister"} <= keys(store)


def test_old_history_goes_when_asked_to(store: Path) -> None:
    history = {key for key in keys(store) if key.startswith("peanuts") and key != "peanuts"}
    assert len(history) == 1
    options = ("-n", "memories/ada", "--steps", "", "--purge-history-before")
    assert run("sweep", store, *options, "2020-01-01", "--json").json["rows"] == []
    tomorrow = f"{datetime.now(UTC) + DAY:%Y-%m-%d}"
    record = run("sweep", store, *options, tomorrow, "--apply", "--json").json
    assert told(record) == dict.fromkeys(history, "purge")
    assert not history & keys(store)


def test_a_sweep_goes_on_to_the_end_however_many_there_are(tmp_path: Path) -> None:
    path, ended = tmp_path / "many.db", (datetime.now(UTC) - DAY).isoformat()
    with LocalStore(path, index=False) as local:
        value = {"content": "a note", "source": "external", "valid_until": ended}
        local.batch(PutOp(ADA, f"k{number}", value) for number in range(1_001))
    ran = run("sweep", path, "-n", "memories/ada", "-e", "none", "--apply", "--json")
    assert ran.json["examined"] == 1_001
    assert keys(path) == set()


# --- policies, output and what is refused ---------------------------------------------------------


def test_the_policy_says_what_never_fades(store: Path, tmp_path: Path) -> None:
    durable = RecallPolicy.default(durable_kinds=("semantic",))
    durable.save(tmp_path / "durable.toml")
    options = ("-n", "memories/ada", "--steps", "decay", "--json")
    assert run("sweep", store, *options).json["counts"] == {"decay": 1}
    assert run("sweep", store, *options, "-p", tmp_path / "durable.toml").json["counts"] == {}
    with RecallStore(LocalStore(store)) as writer:
        writer.set_policy(ADA, durable)
    assert run("sweep", store, *options).json["counts"] == {}
    assert run("sweep", store, *options, "-p", "default").json["counts"] == {"decay": 1}


def test_the_report_can_go_to_a_file(store: Path, tmp_path: Path) -> None:
    shown = run("sweep", store, "-n", "memories/ada", "-o", tmp_path / "report.json")
    assert shown.stdout == ""
    assert json.loads((tmp_path / "report.json").read_text())["examined"] == 6


def test_hostile_keys_cannot_steer_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "hostile.db"
    with LocalStore(path, index=False) as local:
        value = {"content": "hello", "valid_until": "2020-01-01T00:00:00+00:00"}
        local.put(("a/b", "[red]"), "x\x1b[2J[bold]", value)
    shown = run("sweep", path, "-n", '["a/b"]').stdout
    assert "\x1b" not in shown
    assert "[2J[bold]" in shown
    assert "a/b/[red]" in shown


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "--namespace"),
        (("-n", ""), "A namespace is labels"),
        (("-n", "langmem_recall/usage"), "no root for memories"),
        (("-n", "memories", "--steps", "expire,polish"), "polish"),
        (("-n", "memories", "--cold-after", "0"), "--cold-after"),
        (("-n", "memories", "--purge-history-before", "yesterday"), "--purge-history-before"),
    ],
)
def test_wrong_usage_is_refused(store: Path, options: tuple[str, ...], message: str) -> None:
    before = keys(store)
    ended = run("sweep", store, "--apply", *options)
    assert (ended.code, ended.stdout) == (2, "")
    assert message in " ".join(ended.stderr.split())
    assert keys(store) == before


def test_a_store_that_is_not_there_is_refused(tmp_path: Path) -> None:
    assert run("sweep", tmp_path / "no.db", "-n", "memories").code == 2
    assert not (tmp_path / "no.db").exists()


def test_postgres_is_changed_only_with_its_embedder_named() -> None:
    ended = run("sweep", "postgresql://127.0.0.1:1/agent", "-n", "memories", "--apply")
    assert ended.code == 2
    assert "--embeddings none" in ended.stderr
