from __future__ import annotations

import json
import math
import threading
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recalls import HOME, NOW, candidate, recall_of, recalls

from langmem_recall.errors import ConfigurationError
from langmem_recall.observe.monitor import Finding, Monitor, MonitorReport
from langmem_recall.policy import RecallPolicy
from langmem_recall.types import ASKED, Drop, Recall, Scored

CHOSEN = recall_of([candidate("a", 0.9), candidate("b", 0.8, salience=0.9)], "first words")
BELOW = recall_of([candidate("a", 0.4)], "other words")
EMPTY = recall_of([], "anything", searched=0, channels={})
LOST = recall_of([], "anything", searched=0, channels={}, degraded=("store timed out",))
UNFOUND = recall_of([], "anything", searched=50)
HELD_BACK = recall_of([candidate("a", 0.9, status="quarantined")], "anything")


def watched(*recalls: Recall, **settings: Any) -> Monitor:
    monitor = Monitor(**settings)
    for recall in recalls:
        monitor(recall)
    return monitor


def mixed(injected: int, blind: int, nothing: int = 0) -> MonitorReport:
    return watched(*[CHOSEN] * injected, *[BELOW] * blind, *[EMPTY] * nothing).report()


def warning(report: MonitorReport, name: str) -> Finding | None:
    found = [one for one in report.warnings if one.name == name]
    assert len(found) <= 1
    return found[0] if found else None


def test_nothing_watched_has_no_numbers_and_no_warnings() -> None:
    report = Monitor().report()
    assert report.recalls == 0
    assert math.isnan(report.injection_rate)
    assert math.isnan(report.latency_ms["p50"])
    assert report.warnings == ()
    assert str(report).startswith("0 recalls in all namespaces")


def test_outcomes_tell_nothing_stored_from_nothing_cleared() -> None:
    report = watched(CHOSEN, BELOW, BELOW, EMPTY, UNFOUND, HELD_BACK).report()

    assert report.outcomes == {
        "nothing cleared the floor": 2,
        "recalled": 1,
        "nothing stored": 1,
        "no candidate found": 1,
        "dropped by other gates": 1,
    }
    # One of six brought something; of the five with memories to look at, four were empty.
    assert report.injection_rate == pytest.approx(1 / 6)
    assert report.blindness_rate == pytest.approx(4 / 5)


@pytest.mark.parametrize(
    ("injected", "blind", "level"),
    [
        (141, 59, "warn"),
        (161, 39, "alarm"),
        (140, 60, None),
        (100, 100, None),
        (40, 160, None),
        (39, 161, "warn"),
        (199, 0, None),
        (0, 199, None),
    ],
)
def test_injection_is_judged_from_two_hundred_recalls(
    injected: int, blind: int, level: str | None
) -> None:
    found = warning(mixed(injected, blind), "injection")
    assert (found and found.level) == level


def test_injection_warnings_say_which_way_to_move_the_floor() -> None:
    policy = RecallPolicy.default(floor=0.3, trigger=0.5)
    high = watched(*[CHOSEN] * 200, policy=policy).report()
    low = watched(*[BELOW] * 200, policy=policy).report()

    assert (
        "Raise floor and trigger by 0.05, to RecallPolicy.replace(floor=0.35, trigger=0.55)"
        in str(warning(high, "injection"))
    )
    assert (
        "Lower floor and trigger by 0.05, to RecallPolicy.replace(floor=0.25, trigger=0.45)"
        in str(warning(low, "injection"))
    )


def test_a_recall_that_failed_says_nothing_about_what_is_stored() -> None:
    report = watched(CHOSEN, LOST).report()
    assert report.outcomes == {"recalled": 1, "recall failed": 1}
    assert report.blindness_rate == 0.0


def test_an_empty_store_is_no_reason_to_lower_the_floor() -> None:
    report = mixed(0, 0, nothing=300)
    assert report.injection_rate == 0
    assert math.isnan(report.blindness_rate)
    assert report.warnings == ()


@pytest.mark.parametrize(
    ("injected", "blind", "level"),
    [(79, 21, "warn"), (80, 20, None), (50, 50, "warn"), (49, 51, "alarm"), (0, 19, None)],
)
def test_blindness_warns_above_a_fifth_and_alarms_above_half(
    injected: int, blind: int, level: str | None
) -> None:
    found = warning(mixed(injected, blind), "blindness")
    assert (found and found.level) == level


def test_blindness_names_all_four_causes_the_likeliest_first() -> None:
    def causes(**trace: Any) -> list[str]:
        report = watched(*[recall_of([candidate("a", 0.1)], "x", **trace)] * 30).report()
        told = str(warning(report, "blindness")).partition("likeliest first: ")[2]
        return [cause.split(" (")[0].split(":")[0] for cause in told.split("; ")]

    every = {"floor too high", "lexical arm off", "embedder missing", "store sparse"}
    likely = {
        "lexical arm off": {"searched": 500, "channels": {"dense": 40, "words": 0}},
        "embedder missing": {"searched": 500, "channels": {"dense": 0, "words": 5}},
        "store sparse": {"searched": 3, "channels": {"dense": 3, "words": 2}},
    }
    for cause, trace in likely.items():
        assert causes(**trace)[0] == cause
        assert set(causes(**trace)) == every


def test_near_misses_speak_for_a_floor_too_high() -> None:
    # 0.4 is over three quarters of the trigger 0.5.
    near = recall_of([candidate("a", 0.4)], searched=500, channels={"dense": 40, "words": 5})
    told = str(warning(watched(*[near] * 30).report(), "blindness"))
    assert "likeliest first: floor too high (30 of 30 came near)" in told


def test_blindness_without_a_sign_of_any_cause_says_so() -> None:
    far = recall_of([candidate("a", 0.1)], searched=500, channels={"dense": 40, "words": 5})
    told = str(warning(watched(*[far] * 30).report(), "blindness"))
    assert "No cause shows in the traces: if those cues were off topic, all is well." in told
    assert "floor too high (0 of 30 came near)" in told


def test_healthy_injection_is_said_beside_blindness() -> None:
    told = str(warning(mixed(50, 50), "blindness"))
    assert "injection rate is healthy" in told


def about(words: str, *keys: str, searched: int = 500, **fields: Any) -> Recall:
    return recall_of([candidate(key, 0.9, **fields) for key in keys], words, searched=searched)


def test_drift_is_the_same_memories_for_clearly_different_cues() -> None:
    stuck = [about("tea and cake", "a", "b"), about("rockets to mars", "a", "b")]
    report = watched(*stuck * 15).report()

    assert report.drift == 1.0
    assert "In 100 % of 29 changes of topic" in str(warning(report, "drift"))


@pytest.mark.parametrize(
    "pair",
    [
        [about("tea and cake", "a", "b"), about("rockets to mars", "c", "d")],
        [about("tea and cake", "a", "b"), about("cake and tea", "a", "b")],
        [about("tea and cake", "a", pinned=True), about("rockets to mars", "a", pinned=True)],
        [about("tea and cake", "a", searched=2), about("rockets to mars", "a", searched=2)],
    ],
    ids=["other memories", "same cue", "only pinned", "no others stored"],
)
def test_no_drift_where_memories_move_with_the_cue_or_cannot(pair: list[Recall]) -> None:
    report = watched(*pair * 15).report()
    assert warning(report, "drift") is None
    assert not report.drift > 0


def test_drift_is_followed_in_each_namespace_apart() -> None:
    ann = about("tea and cake", "a")
    bob = recall_of(
        [candidate("a", 0.9, namespace=("memories", "bob"))],
        "rockets to mars",
        namespaces=(("memories", "bob"),),
        searched=500,
    )
    assert math.isnan(watched(*[ann, bob] * 5).report().drift)


def test_drift_is_seen_in_scripts_without_spaces() -> None:
    stuck = [about("お茶とケーキ", "a"), about("火星へのロケット", "a")]
    assert watched(*stuck * 5).report().drift == 1.0
    same = [about("お茶とケーキを", "a"), about("お茶とケーキが", "a")]
    assert math.isnan(watched(*same * 5).report().drift)


SUBJECTS = ("tea and cake", "rockets to mars", "my sister in Bergen", "the staging database")


def a_turn(minute: int, words: str) -> Recall:
    return recall_of([candidate("a", 0.9)], words, at=NOW + timedelta(minutes=minute), searched=500)


def test_a_cue_built_once_over_thirty_two_turns_is_drift() -> None:
    monitor = watched(*(a_turn(turn, "Plan the  trip") for turn in range(32)))
    for report in (monitor.report(), monitor.report(HOME)):
        text = str(warning(report, "drift"))
        assert "32 of the latest 32 recalls of a namespace searched by 'plan the trip'" in text
        assert "Build it from the state of each model call" in text


@pytest.mark.parametrize(("same", "is_warned"), [(23, False), (24, True)])
def test_a_cue_that_three_quarters_of_the_latest_recalls_share_is_drift(
    same: int, is_warned: bool
) -> None:
    turns = [a_turn(turn, "Plan" if turn < same else f"turn {turn}") for turn in range(32)]
    assert (warning(watched(*turns).report(), "drift") is not None) == is_warned


def test_a_conversation_on_four_subjects_is_no_drift() -> None:
    turns = [a_turn(turn, f"{SUBJECTS[turn // 8]}, question {turn}") for turn in range(32)]
    assert warning(watched(*turns).report(), "drift") is None


def test_one_cue_within_a_turn_or_by_tool_is_no_drift() -> None:
    loop = [a_turn(0, "Plan the trip") for _ in range(32)]
    by_tool = RecallPolicy.default(name=f"{ASKED}default")
    tool = [replace_policy(a_turn(turn, "Plan the trip"), by_tool) for turn in range(32)]
    assert warning(watched(*loop, *tool).report(), "drift") is None


def test_users_who_all_say_the_same_are_no_drift() -> None:
    names = [("memories", str(number)) for number in range(32)]
    greetings = [recall_of([], "hello", searched=9, namespaces=(name,)) for name in names]
    assert warning(watched(*greetings).report(), "drift") is None


def replace_policy(recall: Recall, policy: RecallPolicy) -> Recall:
    trace = replace(recall.trace, policy=f"{policy.name} {policy.fingerprint}")
    return replace(recall, trace=trace)


def test_what_is_already_in_the_prompt_is_neither_blindness_nor_a_missed_injection() -> None:
    visible = Recall((), (*_dropped(CHOSEN.chosen, "visible"), *BELOW.dropped), CHOSEN.trace)
    report = watched(CHOSEN, BELOW, *[visible] * 30).report()
    assert report.outcomes["already in the prompt"] == 30
    assert (report.injection_rate, report.blindness_rate) == (0.5, 0.5)
    assert warning(report, "blindness") is None
    assert visible.reason == "already in the prompt: beyond the budget"


def test_what_a_model_asked_for_by_tool_is_no_injection() -> None:
    by_tool = replace_policy(CHOSEN, RecallPolicy.default(name=f"{ASKED}default"))
    report = watched(CHOSEN, BELOW, *[by_tool] * 300).report()
    assert report.outcomes["asked for by tool"] == 300
    assert report.injection_rate == 0.5
    assert warning(report, "injection") is None


def test_the_injection_rate_has_its_interval_from_two_hundred_recalls() -> None:
    # Wilson for 100 of 200: 0.5 -+ 1.96 sqrt(0.25 / 200 + 1.96^2 / 160,000) / (1 + 1.96^2 / 200).
    report = mixed(100, 100)
    assert report.injection_interval == pytest.approx((0.4314, 0.5686), abs=1e-4)
    assert "injected 50 % [43 %, 57 %]" in str(report)
    assert report.to_dict()["injection_interval"] == pytest.approx([0.4314, 0.5686], abs=1e-4)
    assert mixed(99, 100).injection_interval is None
    assert mixed(0, 200).injection_interval == pytest.approx((0.0, 0.0188), abs=1e-4)


def test_redundancy_counts_duplicates_dropped_and_those_that_stayed() -> None:
    alike = recall_of(
        [candidate("a", 0.9, text="Ann drinks tea"), candidate("b", 0.8, text="Ann drinks tea")],
        likeness=lambda ids: np.ones((2, 2)),
    )
    stayed = recall_of(
        [candidate("a", 0.9, text="Ann drinks tea"), candidate("b", 0.8, text="ann drinks TEA")]
    )
    assert (len(alike.chosen), len(stayed.chosen)) == (1, 2)
    assert watched(alike).report().redundancy == 0.5
    assert watched(stayed).report().redundancy == 0.5
    assert watched(CHOSEN).report().redundancy == 0.0
    assert "Run sweep" in str(warning(watched(*[alike] * 20).report(), "redundancy"))


def test_budget_pressure_counts_compaction_and_drops() -> None:
    compacted = recall_of([candidate("a", 0.9)], compacted=((HOME, "a"),))
    dropped = Recall(CHOSEN.chosen[:1], (*_dropped(CHOSEN.chosen[1:], "budget"),), CHOSEN.trace)
    report = watched(compacted, dropped, CHOSEN, CHOSEN).report()
    assert report.budget_pressure == 0.5
    assert "Raise budget" in str(warning(watched(*[compacted] * 20).report(), "budget"))


def _dropped(chosen: tuple[Scored, ...], gate: str) -> list[Drop]:
    return [Drop(scored, gate, "beyond the budget") for scored in chosen]


def test_latency_percentiles_are_by_nearest_rank() -> None:
    slow = [recall_of([], timings={"find": ms / 1e3}) for ms in range(1, 101)]
    report = watched(*slow, recall_of([], timings={})).report()
    assert report.latency_ms == pytest.approx({"p50": 50.0, "p95": 95.0, "p99": 99.0})


def test_slow_recalls_are_warned_of() -> None:
    slow = recall_of([candidate("a", 0.9)], timings={"find": 0.2, "rank": 0.1})
    assert "takes over 300 ms" in str(warning(watched(*[slow] * 20).report(), "latency"))


def test_degradations_are_counted_without_the_words_of_the_error() -> None:
    hurt = [
        recall_of([], degraded=(f"dense search failed (Error: {number}); lexical only",))
        for number in range(3)
    ]
    report = watched(*hurt, *[CHOSEN] * 20).report()
    assert report.degraded == {"dense search failed": 3}
    assert "3 of 23 recalls ran degraded" in str(warning(report, "degradation"))


def test_feedback_is_balanced_in_all_and_for_a_namespace() -> None:
    monitor = watched(CHOSEN)
    for _ in range(15):
        monitor.feedback(("memories", "bob"), "a", False)
    for _ in range(5):
        monitor.feedback(HOME, "a", True)
    report = monitor.report()

    assert (report.good, report.bad) == (5, 15)
    assert (monitor.report(HOME).good, monitor.report(HOME).bad) == (5, 0)
    assert "Only 5 of 20 outcomes were good" in str(warning(report, "feedback"))


def test_window_slides() -> None:
    report = watched(*[BELOW] * 10, *[CHOSEN] * 5, window=5).report()
    assert report.recalls == 5
    assert report.injection_rate == 1.0


def test_namespaces_are_watched_apart_and_the_longest_unused_makes_room() -> None:
    def at(name: str) -> Recall:
        one = candidate("a", 0.9, namespace=("memories", name))
        return recall_of([one], namespaces=(("memories", name),))

    monitor = watched(at("ann"), at("bob"), at("ann"), at("cem"), namespaces=2)
    assert monitor.report(("memories", "ann")).recalls == 2
    assert monitor.report(("memories", "bob")).recalls == 0
    assert monitor.report().recalls == 4


def test_a_recall_in_several_namespaces_counts_in_each() -> None:
    monitor = watched(recall_of([candidate("a", 0.9)], namespaces=(HOME, ("team",))))
    assert monitor.report(HOME).recalls == monitor.report(("team",)).recalls == 1
    assert monitor.report().recalls == 1


def test_an_erased_namespace_is_watched_no_more() -> None:
    monitor = watched(CHOSEN)
    assert monitor.erase(("memories",)) == 1
    assert monitor.report(HOME).recalls == 0


def test_erasing_one_memory_forgets_that_it_was_recalled() -> None:
    monitor = watched(about("tea and cake", "a"))
    assert monitor.erase(HOME, "a") == 1
    monitor(about("rockets to mars", "a"))
    assert math.isnan(monitor.report().drift)


@pytest.mark.parametrize("bad", [0, -1, True, 1.5])
def test_settings_that_cannot_work_are_refused(bad: Any) -> None:
    with pytest.raises(ConfigurationError, match="window must be a whole number"):
        Monitor(bad)
    with pytest.raises(ConfigurationError, match="namespaces must be a whole number"):
        Monitor(namespaces=bad)


def test_report_reads_well_and_is_plain_json() -> None:
    report = watched(*[CHOSEN] * 20, *[BELOW] * 20).report(HOME)
    record = json.loads(json.dumps(report.to_dict(), allow_nan=False))

    assert record["namespace"] == ["memories", "ann"]
    assert record["injection_rate"] == 0.5
    assert record["drift"] is None
    assert record["outcomes"] == {"recalled": 20, "nothing cleared the floor": 20}
    assert record["warnings"][0]["name"] == "blindness"
    assert json.dumps(Monitor().report().to_dict(), allow_nan=False)
    assert str(report).splitlines()[0] == (
        "40 recalls in memories/ann: 20 recalled, 20 nothing cleared the floor"
    )
    assert "injected 50 %, blind 50 %" in str(report)


def test_threads_may_share_a_monitor() -> None:
    monitor = Monitor(window=10_000)
    threads = [
        threading.Thread(target=lambda: [monitor(CHOSEN) for _ in range(200)]) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert monitor.report().recalls == 800


@settings(max_examples=10, deadline=None)
@given(st.lists(recalls(), max_size=3))
def test_shares_stay_between_none_and_all(some: list[Recall]) -> None:
    report = watched(*some).report()
    shares = (
        *(report.injection_rate, report.blindness_rate, report.drift),
        *(report.redundancy, report.budget_pressure),
    )
    assert all(math.isnan(share) or 0 <= share <= 1 for share in shares)
    assert sum(report.outcomes.values()) == len(some)
