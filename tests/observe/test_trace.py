from __future__ import annotations

import json
import math
from dataclasses import replace
from datetime import timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from recalls import HOME, NOW, candidate, recall_of, recalls

from langmem_recall.errors import InputError
from langmem_recall.observe.show import from_dict, html, recall_id, table, to_dict, to_json
from langmem_recall.policy import RecallPolicy
from langmem_recall.types import Cue, Recall, Scored, Temporal, Usage

ESCAPES = Path(__file__).resolve().parents[3] / "shared" / "data" / "escapes_dev.jsonl"
HOSTILE = "\x1b[2J\u202eevil\r\n</script><img src=x onerror=alert(1)>\ud800"


@pytest.fixture
def recall() -> Recall:
    """Two chosen, one below the floor, one expired."""
    return recall_of(
        [
            candidate("tea", 0.9, days=30, salience=0.7, source="user_stated"),
            candidate("dog", 0.6, usage=Usage(2, 1.5, NOW.timestamp() - 60, None)),
            candidate("cat", 0.1),
            candidate("old", 1.0, valid_until=NOW - timedelta(days=1)),
        ],
        "What does Ann drink?",
        budget_tokens=2000,
        tokens=42,
        searched=1234,
        degraded=("dense search failed (TimeoutError: x); lexical only",),
        compacted=((HOME, "dog"),),
        conflicts=(((HOME, "tea"), (HOME, "dog")),),
    )


def named(record: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {held["key"]: held for held in record["candidates"]}


def test_record_tells_what_was_asked_found_and_spent(recall: Recall) -> None:
    record = to_dict(recall)
    policy = RecallPolicy.default()

    assert record["version"] == 1
    assert record["kind"] == "recall"
    assert record["id"] == recall_id(recall)
    assert record["at"] == "2026-03-04T12:00:00+00:00"
    assert record["cue"]["text"] == "What does Ann drink?"
    assert record["namespaces"] == [["memories", "ann"]]
    assert record["policy"]["name"] == "default"
    assert record["policy"]["fingerprint"] == policy.fingerprint
    assert record["searched"] == 1234
    assert record["channels"] == {"dense": 4, "words": 0}
    assert (record["budget"], record["tokens"]) == (2000, 42)
    assert record["compacted"] == [[["memories", "ann"], "dog"]]
    assert record["conflicts"] == [[[["memories", "ann"], "tea"], [["memories", "ann"], "dog"]]]
    assert record["timings"] == {"find": 2.0, "rank": 1.0}
    assert record["degraded"] == ["dense search failed (TimeoutError: x); lexical only"]
    assert record["funnel"] == str(recall)


def test_every_candidate_has_its_place_or_its_gate_and_reason(recall: Recall) -> None:
    held = named(to_dict(recall))

    assert (held["tea"]["place"], held["tea"]["rank"]) == (1, 1)
    assert (held["dog"]["place"], held["dog"]["rank"]) == (2, 2)
    assert held["cat"]["gate"] == "floor"
    assert held["cat"]["reason"] == "relevance 0.10 is below the floor 0.3"
    assert held["cat"]["rank"] == 3
    assert (held["old"]["gate"], held["old"]["reason"]) == ("expired", "expired on 2026-03-03")
    assert held["old"]["rank"] is None
    assert "gate" not in held["tea"]
    assert "place" not in held["cat"]


def test_candidate_carries_memory_evidence_signals_and_usage_to_six_digits(recall: Recall) -> None:
    tea, dog = (named(to_dict(recall))[key] for key in ("tea", "dog"))

    assert tea["text"] == "memory tea"
    assert (tea["kind"], tea["source"], tea["status"]) == ("semantic", "user_stated", "active")
    assert tea["written_at"] == "2026-02-02T12:00:00+00:00"
    # One half-life of 30 days; 0.9 x (1 + 0.05 x 0.5 + 0.3 x 0.7 + 0.06 x 1.0) = 1.1655.
    assert tea["signals"]["recency"] == 0.5
    assert tea["signals"]["importance"] == 0.7
    assert tea["score"] == 1.1655
    assert tea["evidence"]["relevance"] == 0.9
    assert tea["usage"] == {"uses": 0}
    assert dog["usage"]["uses"] == 2
    assert dog["usage"]["last_used"] == NOW.timestamp() - 60
    # 1.5 / (1.5 + 3), the minute's fading being far below six digits.
    assert dog["signals"]["strength"] == pytest.approx(1 / 3, abs=1e-5)
    assert dog["signals"]["strength"] == round(dog["signals"]["strength"], 6)


def test_text_can_be_left_out(recall: Recall) -> None:
    told = dict.fromkeys(("entities", "tags"), ("secret",))
    labels = dict.fromkeys(("thread_id", "speaker", "turn"), "secret")
    held = candidate("a", 0.9, text="Ann's secret", supersedes=("b",), **told, **labels)
    held = held._replace(found_as="how to ask for the secret")
    other = candidate("c", 0.9)
    planning = RecallPolicy.planning()
    cue = Cue("the secret?", parts=("a secret",), task="secret")
    made = recall_of([held, other], cue, policy=planning)
    assert made.drop_counts() == {"task": 1}
    made = replace(made, trace=replace(made.trace, block="Ann's secret"))
    line = to_json(made, with_text=False)

    assert "secret" in to_json(made)
    assert "secret" not in line
    assert "block" not in json.loads(line)
    read = from_dict(json.loads(line))
    assert (read.trace.cue.words, read.memories[0].text) == ("", "")
    assert (read.memories[0].id, read.memories[0].supersedes) == (held.memory.id, ("b",))
    assert read.trace.namespaces == made.trace.namespaces


def test_block_and_knobs_are_recorded_and_read_back() -> None:
    policy = RecallPolicy.default(name="mine", floor=0.2)
    mine = recall_of([candidate("a", 0.9)], policy=policy)
    assert "knobs" not in to_dict(mine)["policy"]
    trace = replace(mine.trace, knobs=policy.to_dict(), block="<recalled-memories>")
    record = to_dict(replace(mine, trace=trace))
    assert record["policy"]["knobs"]["floor"] == 0.2
    assert record["block"] == "<recalled-memories>"
    assert to_dict(from_dict(record)) == record


def test_id_is_the_same_for_the_same_recall_and_another_for_another_cue(recall: Recall) -> None:
    again = from_dict(to_dict(recall))
    other = recall_of([candidate("tea", 0.9)], "Something else?")

    assert recall_id(again) == recall_id(recall)
    assert recall_id(other) != recall_id(recall)


def rounded(scored: Scored) -> tuple[Any, ...]:
    """The numbers of a candidate, to six digits."""
    _, evidence, usage, *rest = scored.candidate
    return (
        tuple(None if one is None else round(one, 6) for one in evidence),
        tuple(None if one is None else round(one, 6) for one in usage),
        tuple(round(one, 6) if isinstance(one, float) else one for one in rest),
        tuple(round(one, 6) for one in scored.signals),
        round(scored.score, 6),
    )


@settings(max_examples=25, deadline=None)
@given(recalls())
def test_record_read_back_gives_the_same_candidates_to_six_digits(recall: Recall) -> None:
    again = from_dict(json.loads(to_json(recall)))

    assert len(again.chosen) == len(recall.chosen)
    pairs = [*zip(again.chosen, recall.chosen, strict=True)]
    pairs += [
        (one.scored, other.scored) for one, other in zip(again.dropped, recall.dropped, strict=True)
    ]
    for one, other in pairs:
        assert rounded(one) == rounded(other)
        assert one.memory.id == other.memory.id
        assert one.memory.text == other.memory.text
        assert one.memory.written_at == other.memory.written_at
        assert one.memory.salience == round(other.memory.salience, 6)
        for name in ("kind", "source", "status", "turn", "tags", "entities", "pinned", "dated"):
            assert getattr(one.memory, name) == getattr(other.memory, name)
    assert [drop[1:] for drop in again.dropped] == [drop[1:] for drop in recall.dropped]
    assert again.trace.cue == recall.trace.cue
    assert again.trace.compacted == recall.trace.compacted
    assert str(again) == str(recall)
    assert to_dict(again) == to_dict(recall)


def test_how_a_memory_was_found_is_recorded_where_a_phrasing_found_it() -> None:
    phrased = candidate("tea", 0.9)._replace(found_as="what to serve")
    record = to_dict(recall_of([phrased, candidate("dog", 0.8)]))
    assert named(record)["tea"]["found_as"] == "what to serve"
    # As before there were phrasings: such a record is read as well.
    assert "found_as" not in named(record)["dog"]
    read = from_dict(record)
    assert [scored.candidate.found_as for scored in read.chosen] == ["what to serve", None]


def test_what_is_no_number_is_recorded_as_null() -> None:
    recall = recall_of([candidate("a", 0.9), candidate("b", 0.9)])
    odd = recall.chosen[0]._replace(score=math.nan)
    record = to_dict(Recall((odd,), recall.dropped, recall.trace))

    assert record["candidates"][0]["score"] is None
    assert math.isnan(from_dict(record).chosen[0].score)


def test_temporal_and_parts_of_a_cue_come_back() -> None:
    cue = Cue("now", ("goal", "words"), "trip", Temporal("window", NOW, None), NOW, NOW)
    assert from_dict(to_dict(recall_of([], cue))).trace.cue == cue


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"version": 2}, "has version 2, this langmem-recall reads 1"),
        ({"version": None}, "has version None"),
        ({"kind": "feedback"}, "is of kind 'feedback', expected 'recall'"),
        ({"candidates": 7}, "is damaged: TypeError"),
        ({"candidates": [{"place": 1}]}, "is damaged: KeyError"),
        ({"cue": None}, "is damaged"),
        ({"at": "yesterday"}, "is damaged: ValueError"),
        ({"policy": {}}, "is damaged: KeyError"),
        (
            {"namespaces": ["ann"]},
            r"is damaged: trace\.namespaces\.0: Input should be a valid tuple",
        ),
        ({"searched": "many"}, r"is damaged: trace\.searched: Input should be a valid integer"),
    ],
)
def test_damaged_record_is_refused_in_our_words(
    recall: Recall, change: dict[str, Any], said: str
) -> None:
    with pytest.raises(InputError, match=said):
        from_dict(to_dict(recall) | change)


@pytest.mark.parametrize("garbage", [None, [], "x", 7])
def test_what_is_no_object_is_refused(garbage: Any) -> None:
    with pytest.raises(InputError, match="A trace is a JSON object"):
        from_dict(garbage)


@pytest.mark.parametrize(
    ("name", "bad"),
    [("kind", "dream"), ("source", "oracle"), ("status", "asleep"), ("key", 7), ("salience", "x")],
)
def test_damaged_candidate_is_refused(recall: Recall, name: str, bad: Any) -> None:
    record = to_dict(recall)
    record["candidates"][0][name] = bad
    with pytest.raises(InputError, match="is damaged"):
        from_dict(record)


# --- tables ---------------------------------------------------------------------------------------


def test_table_begins_with_the_funnel_and_shows_chosen_and_dropped(recall: Recall) -> None:
    lines = table(recall).splitlines()

    assert lines[0] == str(recall)
    assert lines[1] == "cue: What does Ann drink?"
    assert lines[2].startswith("in memories/ann: 1,234 stored (4 by dense, 0 by words) · default")
    assert lines[2].endswith("3.0 ms")
    assert lines[3] == "#  score  relev  recent  import  source       key  text"
    assert lines[4] == "1  1.165  0.90   0.50    0.70    user_stated  tea  memory tea"
    assert lines[5].startswith("2  ")
    assert "dropped 1 expired: expired on 2026-03-03" in lines
    assert "dropped 1 below floor: relevance 0.10 is below the floor 0.3" in lines
    assert "  nearest cat: memory cat" in lines
    assert lines[-1].startswith("degraded: dense search failed")


def test_table_names_the_nearest_of_what_a_gate_dropped() -> None:
    far, near = candidate("far", 0.05), candidate("near", 0.2)
    assert "  nearest near: memory near" in table(recall_of([candidate("a", 0.9), far, near]))


def test_table_of_an_empty_recall_has_no_rows() -> None:
    empty = recall_of([], searched=0)
    assert table(empty).splitlines()[0] == "nothing stored -> 0 recalled"
    assert "score" not in table(empty)


@pytest.mark.parametrize("width", [60, 80, 100])
def test_table_stays_within_its_width_and_aligned(width: int) -> None:
    long = [candidate(f"key-{i}" * 9, 0.9, text="日本語の長い文章です " * 9) for i in range(3)]
    lines = table(recall_of(long, "word " * 50), width).splitlines()[1:]

    assert max(map(len, lines)) <= width
    head = next(line for line in lines if "score" in line)
    rows = [line for line in lines if line.lstrip().startswith(("1 ", "2 ", "3 "))]
    assert len({head.index("key"), *(row.index("key-") for row in rows)}) == 1


def test_hostile_text_moves_no_cursor_in_a_table() -> None:
    recall = recall_of(
        [candidate(HOSTILE, 0.9, text=HOSTILE), candidate("b", 0.1, text=HOSTILE)],
        HOSTILE,
        degraded=(HOSTILE,),
    )
    shown = table(recall)

    assert all(char.isprintable() for char in shown.replace("\n", ""))
    assert "�[2J�evil </script>" in shown


class Tags(HTMLParser):
    """All tags of a page, and its text."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)
        assert [name for name, _ in attrs] in ([], ["style"])

    def handle_data(self, data: str) -> None:
        self.text += data


def escapes() -> list[str]:
    if not ESCAPES.exists():
        return [HOSTILE]
    return [json.loads(line)["text"] for line in ESCAPES.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("text", [HOSTILE, *escapes()])
def test_hostile_text_adds_no_tag_to_a_notebook(text: str) -> None:
    def shown(held: str) -> Tags:
        page = Tags()
        chosen, dropped = candidate(held, 0.9, text=held), candidate("b", 0.1, text=held)
        page.feed(html(recall_of([chosen, dropped], held, degraded=(held,))))
        page.close()
        return page

    assert shown(text).tags == shown("harmless").tags


def test_notebook_fragment_shows_rows_and_reasons(recall: Recall) -> None:
    page = Tags()
    page.feed(html(recall))

    assert page.tags == ["pre"]
    assert "memory tea" in page.text
    assert "relevance 0.10 is below the floor 0.3" in page.text


def test_a_notebook_shows_a_recall_as_that_fragment(recall: Recall) -> None:
    assert recall._repr_html_() == html(recall)
