"""`langmem-recall eval`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import ADA, ON_TOPIC, TOLD, run, write, write_cases

from langmem_recall.observe.log import TraceLog
from langmem_recall.policy import RecallPolicy
from langmem_recall.stores.local.store import LocalStore
from langmem_recall.stores.recall_store import RecallStore


def test_policies_are_compared_in_one_table(tmp_path: Path) -> None:
    cases = write_cases(tmp_path / "cases.jsonl")
    shown = run("eval", cases, "-p", "default", "-p", "similarity")
    assert shown.code == 0
    assert "cases: 2 answerable, 1 off_topic" in shown.stdout
    header, first, second = shown.stdout.split("\n")[1:4]
    assert header.split()[:2] == ["policy", "R@10"]
    assert first.split()[0] == "default"
    assert second.split()[0] == "similarity"
    assert "in off-topic" in header
    assert "differs from default" in shown.stdout


def test_json_is_the_report_and_nothing_else_is_on_stdout(tmp_path: Path) -> None:
    cases = write_cases(tmp_path / "cases.jsonl")
    ended = run("eval", cases, "--json", "--k", "3")
    report = ended.json
    assert (report["cases"], report["k"]) == ("cases", 3)
    assert report["rows"][0]["recall@3"]["mean"] == 1.0
    assert report["rows"][0]["injected_off_topic"]["mean"] == 0.0
    assert ended.stderr == ""


def test_the_result_goes_to_a_file_as_table_or_as_json_by_its_name(tmp_path: Path) -> None:
    cases = write_cases(tmp_path / "cases.jsonl")
    ended = run("eval", cases, "-o", tmp_path / "report.txt")
    assert ended.stdout == ""
    assert "nDCG@10" in (tmp_path / "report.txt").read_text()
    run("eval", cases, "-o", tmp_path / "report.json")
    assert json.loads((tmp_path / "report.json").read_text())["cases"] == "cases"
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("cases.jsonl", "report.json", "report.txt")
    ]


def test_policy_files_are_compared_and_names_that_clash_get_a_number(tmp_path: Path) -> None:
    cases = write_cases(tmp_path / "cases.jsonl")
    RecallPolicy.default(trigger=0.0, floor=0.0).save(tmp_path / "open.toml")
    ended = run("eval", cases, "-p", "default", "-p", tmp_path / "open.toml", "--json")
    rows = ended.json["rows"]
    assert [row["policy"] for row in rows] == ["default", "default 2"]
    assert [row["injected_off_topic"]["mean"] for row in rows] == [0.0, 1.0]


def test_the_default_is_measured_when_no_policy_is_named(tmp_path: Path) -> None:
    rows = run("eval", write_cases(tmp_path / "cases.jsonl"), "--json").json["rows"]
    assert [row["policy"] for row in rows] == ["default"]


def test_presets_of_one_name_get_a_number(tmp_path: Path) -> None:
    cases = write_cases(tmp_path / "cases.jsonl")
    rows = run("eval", cases, "-p", "coding", "-p", "coding", "--json").json["rows"]
    assert [row["policy"] for row in rows] == ["coding", "coding 2"]


def test_without_an_embedder_words_alone_decide(tmp_path: Path) -> None:
    cases = write(
        tmp_path / "cases.jsonl",
        {"key": "seat", "content": "I always book an aisle seat on flights"},
        {"key": "car", "content": "The automobile is parked behind the house"},
        {"cue": "aisle seat", "relevant": ["seat"]},
    )
    rows = run("eval", cases, "-e", "none", "-p", "similarity", "-p", "default", "--json").json
    assert rows["rows"][1]["mrr"]["mean"] == 1.0


def test_a_log_of_traces_with_feedback_is_a_file_of_cases(tmp_path: Path) -> None:
    path = tmp_path / "traces.jsonl"
    with TraceLog(path) as log, RecallStore(LocalStore(), traces=log) as store:
        for key, text, *_ in TOLD:
            store.remember(ADA, text, key=key)
        for cue, key in zip(ON_TOPIC, ("seat", "peanuts", "sister"), strict=True):
            store.recall(ADA, cue)
            store.feedback(ADA, key)
    report = run("eval", path, "--json").json
    assert (report["cases"], report["counts"]) == ("traces", {"answerable": 3})
    assert report["rows"][0]["mrr"]["mean"] == 1.0
    assert "no significant gain" in run("tune", path).stdout


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "line 1"),
        ('{"cue": "x", "relevant": ["gone"]}', "no memories"),
        ("", "holds no cases"),
    ],
)
def test_bad_cases_are_refused_with_the_place(tmp_path: Path, line: str, problem: str) -> None:
    ended = run("eval", write(tmp_path / "bad.jsonl", line), "--json")
    assert (ended.code, ended.stdout) == (2, "")
    assert problem in ended.stderr
