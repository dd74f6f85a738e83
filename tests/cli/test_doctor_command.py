"""`langmem-recall doctor`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_line import ADA, BOB, OFF_TOPIC, ON_TOPIC, fill, log_cues, run, write
from langchain_core.embeddings import Embeddings

from langmem_recall.observe.show import to_dict
from langmem_recall.policy import RecallPolicy
from langmem_recall.ranking.calibration import PANELS
from langmem_recall.stores.local.store import LocalStore
from langmem_recall.stores.recall_store import RecallStore
from langmem_recall.types import Cue


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return fill(tmp_path / "memory.db")


def states(told: dict[str, Any]) -> dict[str, str]:
    return {check["name"]: check["state"] for check in told["checks"]}


def about(told: dict[str, Any]) -> list[tuple[str, str]]:
    return [(finding["level"], finding["about"]) for finding in told["warnings"]]


class Broken(Embeddings):
    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        raise ConnectionError("no route")

    def embed_query(self, text: str) -> list[float]:
        raise ConnectionError("no route")


def test_the_null_by_language_is_in_the_record(store: Path) -> None:
    panels = run("doctor", store, "--json").json["panels"]
    assert [panel["language"] for panel in panels] == list(PANELS)
    english = panels[0]
    assert english["measured"] is True
    assert 0.0 < english["sd"] < 0.5


def test_a_store_is_surveyed(store: Path) -> None:
    told = run("doctor", store, "--json").json
    readings = told["readings"]
    assert (readings["memories"], readings["searched"]) == (4, 3)
    assert readings["without_vectors"] == 0
    assert readings["lexical_arm"] is True
    assert states(told)["lexical arm active"] == "pass"
    narrowed = run("doctor", store, "-n", "memories/bob", "--json").json["readings"]
    assert (narrowed["memories"], narrowed["searched"]) == (1, 1)


def test_cues_give_the_injection_rate_to_expect(store: Path, tmp_path: Path) -> None:
    cues = log_cues(store, tmp_path / "cues.jsonl", *ON_TOPIC, *OFF_TOPIC)
    told = run("doctor", store, "-n", "memories/ada", "--cues", cues, "--json").json
    assert told["readings"]["cues"] == 6
    assert told["readings"]["injection_rate"] == pytest.approx(0.5)
    assert told["readings"]["blindness_rate"] == pytest.approx(0.5)
    assert about(told) == []
    assert states(told)["blindness baseline"] == "pass"
    shown = run("doctor", store, "-n", "memories/ada", "--cues", cues)
    assert "from only 6 recalls (200 are needed)" in shown.stdout


def test_asking_leaves_no_trace_in_the_store(store: Path, tmp_path: Path) -> None:
    cues = log_cues(store, tmp_path / "cues.jsonl", *ON_TOPIC)
    run("doctor", store, "-n", "memories/ada", "--cues", cues)
    with LocalStore(store) as local:
        assert local.read_usage([(ADA, "seat")])[0].uses == 0


def test_blindness_is_an_alarm_and_exits_with_1(store: Path, tmp_path: Path) -> None:
    cues = log_cues(store, tmp_path / "cues.jsonl", *ON_TOPIC * 7)
    RecallPolicy.default(trigger=1.0, floor=1.0).save(tmp_path / "shut.toml")
    ended = run(
        *("doctor", store, "-n", "memories/ada", "--cues", cues, "-p", tmp_path / "shut.toml"),
        "--json",
    )
    assert ended.code == 1
    assert about(ended.json) == [("alarm", "blindness")]
    text = ended.json["warnings"][0]["text"]
    for cause in ("floor too high", "lexical arm off", "embedder missing", "store sparse"):
        assert cause in text


def test_over_injection_is_warned_of(store: Path, tmp_path: Path) -> None:
    cues = log_cues(store, tmp_path / "cues.jsonl", *(*ON_TOPIC, *OFF_TOPIC) * 34)
    args = ("doctor", store, "-n", "memories/ada", "--cues", cues, "-p", "similarity", "--json")
    ended = run(*args)
    assert ended.code == 1
    assert ("alarm", "injection") in about(ended.json)
    assert ("warn", "lexical arm") in about(ended.json)


def test_a_target_rate_sets_the_gates_and_writes_the_policy(store: Path, tmp_path: Path) -> None:
    cues = log_cues(store, tmp_path / "cues.jsonl", *ON_TOPIC, *OFF_TOPIC)
    args = ("doctor", store, "-n", "memories/ada", "--cues", cues, "--target-rate", "0.65")
    ended = run(*args, "-o", tmp_path / "policy.toml", "--json")
    target = ended.json["target"]
    # Four of six is the nearest there is to 65 %.
    assert target["expected"] == pytest.approx(4 / 6)
    saved = RecallPolicy.load(tmp_path / "policy.toml")
    assert saved.to_dict() == target["policy"]
    again = run(
        "doctor",
        store,
        "-n",
        "memories/ada",
        "--cues",
        cues,
        "-p",
        tmp_path / "policy.toml",
        "--json",
    )
    assert again.json["readings"]["injection_rate"] == pytest.approx(4 / 6)
    assert "For a rate of 65%" in run(*args).stdout


def test_recorded_traces_tell_where_they_were_asked_and_with_which_budget(
    store: Path, tmp_path: Path
) -> None:
    recalls = []
    with RecallStore(LocalStore(store), record=False) as reader:
        for namespace, cue in ((ADA, ON_TOPIC[0]), (BOB, Cue(parts=("cello",)))):
            recall = reader.recall(namespace, cue)
            recalls.append(replace(recall, trace=replace(recall.trace, budget_tokens=2000)))
    traces = write(tmp_path / "traces.jsonl", *map(to_dict, recalls), {"kind": "feedback"})
    told = run("doctor", store, "--cues", traces, "--json").json
    assert told["readings"]["cues"] == 2
    assert told["readings"]["injection_rate"] == 1.0
    assert states(told)["budget enforced"] == "pass"
    unbudgeted = write(tmp_path / "other.jsonl", to_dict(recalls[0]) | {"budget": None})
    told = run("doctor", store, "--cues", unbudgeted, "--json").json
    assert states(told)["budget enforced"] == "warn"


def test_an_embedder_that_fails_is_an_alarm(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("langmem_recall.cli.inputs.load_embedder", lambda name: Broken())
    ended = run("doctor", store, "--json")
    assert ended.code == 1
    assert ("alarm", "embedder") in about(ended.json)
    assert "ConnectionError: no route" in ended.json["warnings"][0]["text"]


def test_vectors_of_another_embedder_are_an_alarm_and_no_cue_is_asked(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from suites import TightBand

    from langmem_recall.embeddings import LocalEmbeddings

    monkeypatch.setattr(
        "langmem_recall.cli.inputs.load_embedder", lambda name: TightBand(LocalEmbeddings())
    )
    cues = log_cues(store, tmp_path / "cues.jsonl", *ON_TOPIC)
    ended = run("doctor", store, "-n", "memories/ada", "--cues", cues, "--json")
    assert ended.code == 1
    assert "The stored vectors were made by wordllama" in ended.json["warnings"][0]["text"]
    assert "cues" not in ended.json["readings"]


def test_memories_without_vectors_are_counted(tmp_path: Path) -> None:
    path = fill(tmp_path / "bare.db", index=False)
    told = run("doctor", path, "--json").json
    assert told["readings"]["without_vectors"] == 4
    assert ("warn", "vectors") in about(told)
    assert run("doctor", path, "-e", "none", "--json").json["readings"]["embedder"] is None


def test_a_policy_file_without_a_target_rate_is_refused(store: Path, tmp_path: Path) -> None:
    ended = run("doctor", store, "-o", tmp_path / "policy.toml")
    assert (ended.code, ended.stdout) == (2, "")
    assert not (tmp_path / "policy.toml").exists()


def test_a_target_rate_without_cues_is_refused(store: Path) -> None:
    ended = run("doctor", store, "--target-rate", "0.5")
    assert ended.code == 2
    assert "--target-rate needs recorded cues" in ended.stderr


def test_an_empty_store_says_so(tmp_path: Path) -> None:
    LocalStore(tmp_path / "empty.db").close()
    told = run("doctor", tmp_path / "empty.db", "--json").json
    assert about(told) == [("warn", "store")]
