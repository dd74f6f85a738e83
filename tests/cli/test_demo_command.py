"""`langmem-recall demo`."""

from __future__ import annotations

from command_line import run


def test_the_demo_recalls_three_times_and_keeps_silent_once() -> None:
    told = run("demo", "--json").json
    assert [one["recalled"] for one in told["recalls"]] == [["seat"], ["deploy"], ["sister"], []]
    assert all("candidates 5 ->" in one["trace"] for one in told["recalls"])
    assert told["recalls"][-1]["trace"].endswith("0 recalled")
    assert told["why_not"].startswith("gym: not recalled: floor")


def test_the_demo_shows_cue_memory_and_trace_line() -> None:
    shown = run("demo")
    assert shown.code == 0
    assert "> Which seat should you book on my flight?" in shown.stdout
    assert "I always book an aisle seat" in shown.stdout
    assert "-> 1 recalled" in shown.stdout
    assert "Why not the gym?" in shown.stdout
