"""Files of version 0.1 are still read, and say what they said."""

from __future__ import annotations

import json
import sqlite3
from datetime import UTC, datetime
from pathlib import Path

from langmem_recall import LocalStore, RecallPolicy, RecallStore
from langmem_recall.observe.show import from_dict, to_dict
from langmem_recall.stores.transfer import import_jsonl

V1 = Path(__file__).parent / "data" / "golden" / "v1"
ADA = ("memories", "ada")
LATER = datetime(2026, 3, 5, 15, tzinfo=UTC)


def check_memories(local: LocalStore) -> None:
    store = RecallStore(local, clock=lambda: LATER)
    (seat,) = store.recall(ADA, "Which seat for my flight?").memories
    assert (seat.key, seat.source, seat.salience, seat.tags) == (
        "seat",
        "user_stated",
        0.8,
        ("travel",),
    )
    told = [(one.key, one.text, one.status) for one in store.history(ADA, "city")]
    assert told == [
        ("city", "My sister Mia lives in Bergen", "active"),
        ("city@1", "My sister Mia lives in Oslo", "superseded"),
    ]
    # What was barred stays so, what was approved too.
    assert [one.key for one in store.quarantined(ADA)] == ["odd"]
    assert {item.key for item in store.search(ADA)} == {"seat", "city", "fine"}
    stored = RecallStore(local, stored_policies=True).policy_for(ADA)
    assert stored == RecallPolicy.default(top_k=3)


def test_a_file_of_a_store_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    with sqlite3.connect(path) as database:
        database.executescript((V1 / "memory.sql").read_text())
    database.close()
    with LocalStore(path) as local:
        check_memories(local)
        (usage,) = local.read_usage([(ADA, "seat")])
        assert (usage.uses, usage.merit) == (1, 1)


def test_an_export_is_imported() -> None:
    with LocalStore() as local:
        assert import_jsonl(local, V1 / "memories.jsonl") == 5
        check_memories(local)


def test_traces_are_read() -> None:
    lines = [json.loads(line) for line in (V1 / "trace.jsonl").read_text().splitlines()]
    records = [line for line in lines if line["kind"] == "recall"]
    recalls = [from_dict(record) for record in records]
    assert [[memory.key for memory in recall.memories] for recall in recalls] == [["seat"], []]
    assert recalls[0].chosen[0].memory.text == "I always book an aisle seat on flights"
    assert recalls[0].trace.searched == 5
    assert recalls[1].reason.startswith("best relevance")
    # And written as they were; knobs and the block are not read back.
    for record, recall in zip(records, recalls, strict=True):
        again = to_dict(recall)
        for name in record.keys() - {"policy", "block"}:
            assert again[name] == record[name]


def test_policies_are_loaded() -> None:
    assert RecallPolicy.load(V1 / "policy.toml") == RecallPolicy.default(top_k=3)
    assert RecallPolicy.load(V1 / "policy.json") == RecallPolicy.weighted()
