"""The page without a browser: what it holds, and that it needs nothing from elsewhere."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import math
import re
from typing import Any

import numpy as np
from hypothesis import given, settings
from recalls import HOME, NOW, candidate, recall_of, recalls

from langmem_recall.observe.inspector.page import PageData, page, text_tokens
from langmem_recall.observe.show import recall_id, to_dict
from langmem_recall.policy import RecallPolicy
from langmem_recall.types import Memory, Recall, Usage

TEA = recall_of(
    [candidate("tea", 0.9, text="Ann drinks tea"), candidate("dog", 0.1, text="A dog")], "drink?"
)
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>"


def held(html: str) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    """What the page's script finds in it, and the columns of that."""
    match = re.search(r'id="traces">([A-Za-z0-9+/=]*)</script>', html)
    assert match
    head = json.loads(gzip.decompress(base64.b64decode(match.group(1))))
    return head, head["columns"]


def rows(head: dict[str, Any], name: str) -> list[dict[str, Any]]:
    fields = head["memoryFields" if name == "memories" else "turnFields"]
    return [dict(zip(fields, row, strict=True)) for row in head[name]]


def test_a_page_holds_turns_candidates_and_memories() -> None:
    head, columns = held(page([(to_dict(TEA) | {"block": "the block"})]))

    (turn,) = rows(head, "turns")
    assert (turn["id"], turn["text"], turn["count"]) == (recall_id(TEA), "drink?", 2)
    assert turn["at"] == NOW.timestamp()
    assert turn["block"] == "the block"
    assert [one["key"] for one in rows(head, "memories")] == ["tea", "dog"]
    assert columns["relevance"] == [0.9, 0.1]
    assert columns["place"] == [1, 0]
    assert [head["gates"][number] for number in columns["gate"]] == ["", "floor"]
    assert head["policies"][0]["knobs"] == RecallPolicy.default().to_dict()
    assert head["health"]["injection_rate"] == 1.0


def test_an_answer_stands_with_every_recall_of_its_turn() -> None:
    here = {"thread_id": "t", "turn": "a"}
    answer = {"version": 1, "kind": "answer", "text": "Tea.", **here}
    records = [to_dict(TEA) | here, to_dict(TEA) | here, to_dict(TEA) | here | {"turn": "b"}]
    head, _ = held(page([*records, to_dict(TEA), answer]))
    turns = rows(head, "turns")
    assert [turn["answer"] for turn in turns] == ["Tea.", "Tea.", None, None]
    assert [turn["thread"] for turn in turns] == ["t", "t", "t", None]
    assert head["unreadable"] == 0


def test_a_memory_is_kept_once_however_often_it_was_a_candidate() -> None:
    head, columns = held(page([to_dict(TEA)] * 5))
    assert len(head["memories"]) == 2
    assert columns["memory"] == [0, 1] * 5


def test_shortened_and_contradicting_memories_are_named_by_their_place() -> None:
    recall = recall_of(
        [candidate("tea", 0.9), candidate("dog", 0.8)],
        compacted=((HOME, "dog"), (HOME, "gone")),
        conflicts=(((HOME, "tea"), (HOME, "dog")), ((HOME, "tea"), (HOME, "gone"))),
    )
    (turn,) = rows(held(page([to_dict(recall)]))[0], "turns")
    assert turn["compacted"] == [1]
    assert turn["conflicts"] == [[0, 1], [0, -1]]


def test_a_duplicate_names_the_place_of_what_it_repeats() -> None:
    recall = recall_of(
        [candidate("tea", 0.9, namespace=("team",)), candidate("tea", 0.8), candidate("too", 0.7)],
        namespaces=(("team",), HOME),
        likeness=lambda ids: np.array([[1, 0, 0.95], [0, 1, 0], [0.95, 0, 1.0]]),
    )
    record = to_dict(recall)
    assert record["candidates"][2]["twin"] == [["team"], "tea"]
    assert held(page([record]))[1]["twin"] == [None, None, 0]


def test_a_changed_memory_is_kept_in_both_versions() -> None:
    changed = recall_of([candidate("tea", 0.9, text="Ann drinks coffee")])
    head, _ = held(page([to_dict(TEA), to_dict(changed)]))
    assert [one["text"] for one in rows(head, "memories") if one["key"] == "tea"] == [
        "Ann drinks tea",
        "Ann drinks coffee",
    ]


def test_memories_of_a_store_come_with_their_usage() -> None:
    memory = Memory(namespace=HOME, key="stored", text="Ann swims", written_at=NOW)
    plain = Memory(namespace=HOME, key="plain", text="日本", written_at=NOW)
    data = PageData()
    data.add_memory(memory, Usage(3, 2.5, 1.7e9))
    data.add_memory(plain, Usage())
    head, _ = held(data.html())

    assert [one["key"] for one in rows(head, "memories")] == ["stored", "plain"]
    assert head["usages"][head["stored"][0][1]] == [3, 2.5, 1.7e9, None, 0]
    assert head["usages"][head["stored"][1][1]][0] == 0


def test_tokens_are_estimated_by_four_letters_and_by_other_characters() -> None:
    assert text_tokens("abcdefgh") == 2
    assert text_tokens("abc") == 1
    assert text_tokens("日本 ab") == 3
    assert text_tokens("") == 0


def test_knobs_are_those_of_the_record_or_of_a_preset() -> None:
    policy = RecallPolicy.default(name="mine", floor=0.2)
    record = to_dict(recall_of([candidate("a", 0.9)], policy=policy))
    assert held(page([record]))[0]["policies"][0]["knobs"] is None
    record["policy"]["knobs"] = policy.to_dict()
    assert held(page([record]))[0]["policies"][0]["knobs"]["floor"] == 0.2
    preset = to_dict(recall_of([candidate("a", 0.9)], policy=RecallPolicy.coding()))
    assert held(page([preset]))[0]["policies"][0]["knobs"] == RecallPolicy.coding().to_dict()


def test_what_cannot_be_read_is_left_out_and_counted() -> None:
    good = to_dict(TEA)
    damaged = [
        {"version": 9},
        {**good, "candidates": [{"key": "x"}]},
        {**good, "at": "soon"},
        {**good, "policy": {"name": "x", "fingerprint": "y", "knobs": {"floor": "high"}}},
        {"version": 1, "kind": "feedback"},
        {**good, "timings": {"find": math.inf}},
        {**good, "candidates": [{**good["candidates"][0], "salience": math.inf}]},
        {**good, "candidates": [{**good["candidates"][0], "score": -math.inf}]},
        None,
    ]
    head, columns = held(page([*damaged, good]))
    assert head["unreadable"] == 9
    assert len(head["turns"]) == 1
    assert len(columns["relevance"]) == 2


def test_a_page_without_traces_is_a_page() -> None:
    head, _ = held(page([]))
    assert head["turns"] == []


def test_the_same_traces_give_the_same_page() -> None:
    assert page([to_dict(TEA)]) == page([to_dict(TEA)])


def test_a_page_loads_nothing_and_runs_only_its_own_script() -> None:
    html = page([to_dict(TEA)])
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', html)
    assert policy
    assert "default-src 'none'" in policy.group(1)
    assert "unsafe" not in policy.group(1)
    for tag in ("script", "style"):
        (inline,) = re.findall(rf"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inline.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy.group(1)
    assert not re.search(r"<(?:link|img|iframe|object|embed)\b|\ssrc=|@import|url\(", html)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", html)


def test_hostile_texts_are_nowhere_in_the_markup() -> None:
    recall = recall_of([candidate(HOSTILE, 0.9, text=HOSTILE)], HOSTILE, degraded=(HOSTILE,))
    html = page([(to_dict(recall) | {"block": HOSTILE})])
    assert HOSTILE not in html
    assert html.count("<script") == page([to_dict(TEA)]).count("<script") == 2


@settings(max_examples=10, deadline=None)
@given(recalls())
def test_any_recall_can_be_put_on_a_page(recall: Recall) -> None:
    head, columns = held(page([to_dict(recall)]))
    record = to_dict(recall)

    assert head["unreadable"] == 0
    memories = rows(head, "memories")
    for row, one in enumerate(record["candidates"]):
        memory = memories[columns["memory"][row]]
        assert (memory["key"], memory["text"]) == (one["key"], one["text"])
        for name in ("relevance", "importance"):
            assert columns[name][row] == one["signals"][name]
