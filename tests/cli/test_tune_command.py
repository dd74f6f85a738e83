"""`langmem-recall tune`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from command_line import OFF_TOPIC, fill, run, write, write_cases

from langmem_recall.policy import RecallPolicy
from langmem_recall.stores.local.store import LocalStore
from langmem_recall.stores.recall_store import RecallStore


def test_a_refusal_is_an_answer_and_leaves_the_policy_as_it_was(tmp_path: Path) -> None:
    cases = write_cases(tmp_path / "cases.jsonl")
    ended = run("tune", cases, "-o", tmp_path / "policy.toml")
    assert ended.code == 0
    assert "no significant gain over the default" in ended.stdout
    assert "fitted, held out" in ended.stdout
    assert RecallPolicy.load(tmp_path / "policy.toml") == RecallPolicy.default()
    assert "The policy default is in" in ended.stderr


def test_it_starts_from_the_policy_given(tmp_path: Path) -> None:
    cases = write_cases(tmp_path / "cases.jsonl")
    assert "no significant gain over coding" in run("tune", cases, "-p", "coding").stdout


def test_store_and_namespace_go_together(tmp_path: Path) -> None:
    cases = write_cases(tmp_path / "cases.jsonl")
    for half in (("--store", fill(tmp_path / "m.db")), ("--namespace", "a/b")):
        ended = run("tune", cases, *half)
        assert ended.code == 2
        assert "go together" in ended.stderr


def test_a_wrong_store_is_noticed_before_the_work(tmp_path: Path) -> None:
    cases = write_cases(tmp_path / "cases.jsonl")
    ended = run("tune", cases, "--store", tmp_path / "no.db", "--namespace", "a")
    assert (ended.code, ended.stdout) == (2, "")
    assert not (tmp_path / "no.db").exists()


def test_a_refusal_leaves_the_store_alone(tmp_path: Path) -> None:
    cases, store = write_cases(tmp_path / "cases.jsonl"), fill(tmp_path / "m.db")
    ended = run("tune", cases, "--store", store, "--namespace", "memories/ada")
    assert ended.code == 0
    assert "was left as it is" in ended.stderr


def test_a_fitted_policy_is_saved_for_its_namespace(tmp_path: Path) -> None:
    store, places = fill(tmp_path / "m.db"), ("bakery", "garage", "library", "dentist", "florist")
    lines: list[dict[str, Any]] = []
    for place in places:
        lines.append({"key": place, "content": f"Our {place} is found in the street by the river"})
        lines.append({"cue": f"In which street is our {place} found?", "relevant": [place]})
    others = ("Convert miles", "A haiku", "Sort a list in Rust", "Mix a green paint", "Tune a lute")
    lines += [{"cue": cue, "relevant": []} for cue in (*OFF_TOPIC, *others)]
    cases = write(tmp_path / "cases.jsonl", *lines)
    # Gates that let everything in are raised.
    RecallPolicy.default(trigger=0.0, floor=0.0).save(tmp_path / "open.toml")
    fitted = run(
        *("tune", cases, "-p", tmp_path / "open.toml", "--store", store, "-n", "memories/ada"),
        "--json",
    )
    assert fitted.code == 0
    assert "uses it for memories/ada" in fitted.stderr
    with RecallStore(LocalStore(store), stored_policies=True) as reader:
        held = reader.policy_for(("memories", "ada"))
    assert held.to_dict() == fitted.json["policy"]
    seen = run("doctor", store, "-n", "memories/ada", "--json").json
    assert seen["readings"]["policy"] == "tuned"
    assert [c["state"] for c in seen["checks"] if c["name"] == "recency chosen"] == ["pass"]
    assert run("stats", store, "--json").json["memories"] == 4


def test_cases_that_cannot_be_tuned_to_are_refused(tmp_path: Path) -> None:
    only_off_topic = write(tmp_path / "c.jsonl", {"collection": "c"}, *_off_topic())
    ended = run("tune", only_off_topic)
    assert ended.code == 2
    assert "no answerable case" in ended.stderr


def _off_topic() -> list[dict[str, object]]:
    return [{"collection": "c", "cue": f"cue {number}", "relevant": []} for number in range(3)]
