"""Values of every shape: stored and read back whole, or refused with nothing changed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from conftest import Call
from langgraph.store.base import BaseStore, PutOp
from langgraph.store.memory import InMemoryStore
from langgraph.store.postgres import PostgresStore

from langmem_recall.embeddings import LocalEmbeddings
from langmem_recall.errors import InputError
from langmem_recall.flows.effects import run
from langmem_recall.memory.value import DEEPEST
from langmem_recall.stores.local.store import LocalStore
from langmem_recall.stores.recall_store import RecallStore

NS = ("m", "ada")
CUE = "What about the car?"
INDEX: Any = {"dims": 256, "embed": LocalEmbeddings(), "fields": ["content"]}


def nested(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels - 1):
        value = {"a": value}
    return value


def listed(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


def circular() -> dict[str, Any]:
    value: dict[str, Any] = {"content": "car"}
    value["self"] = value["twin"] = value
    return value


HELD: dict[str, dict[str, Any]] = {
    "deepest": {"content": "car", "a": nested(DEEPEST - 1)},
    "deepest without text": nested(DEEPEST),
    "large number": {"content": "car", "i": 10**400},
    "nothing": {},
    "no content": {"content": None},
    "a list as content": {"content": ["a car", "b"]},
    "a number as content": {"content": 5},
    "a huge turn": {"content": "car", "turn": 10**400},
    "the last moment": {"content": "car", "written_at": "9999-12-31T23:59:59-23:59"},
    "the first moment": {"content": "car", "written_at": "0001-01-01T00:00:00+23:59"},
    "entities that are none": {"content": "car", "entities": [{"a": nested(20)}]},
    "many tags": {"content": "car", "tags": ["t"] * 10_000},
    "labels that are none": {
        **{"content": "car", "kind": ["x"], "status": ["active"], "source": {"a": 1}},
        **{"thread_id": {"a": 1}, "pinned": "yes"},
    },
}
REFUSED: dict[str, Any] = {
    "no mapping": ["car"],
    "NaN": {"content": "car", "x": math.nan},
    "infinity": {"content": "car", "confidence": -math.inf},
    "keys that are no texts": {"content": "car", "x": {1: 2}},
    "a set": {"content": "car", "x": {1}},
    "a time": {"content": "car", "x": [datetime(2026, 1, 1, tzinfo=UTC)]},
    "bytes": {"content": "car", "x": b"x"},
    "one level too deep": nested(DEEPEST + 1),
    "a list too deep": {"content": "car", "x": listed(900)},
    "far too deep": nested(100_000),
    "circular": circular(),
    "too large a number": {"content": "car", "i": 10**5000},
    "a lone surrogate": {"content": "car \ud800"},
    "NUL": {"content": "car", "x": "a\x00b"},
    "a key with NUL": {"content": "car", "a\x00b": 1},
}


@pytest.fixture(params=["memory", "local", "postgres"])
def bare(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BaseStore]:
    with ExitStack() as stack:
        if request.param == "memory":
            yield InMemoryStore(index=INDEX)
        elif request.param == "local":
            yield LocalStore(tmp_path / "m.db", index=INDEX)
        else:
            uri = request.getfixturevalue("postgres")
            store = stack.enter_context(PostgresStore.from_conn_string(uri, index=INDEX))
            RecallStore(store).setup()
            yield store


def read_all(store: RecallStore, call: Call, namespace: tuple[str, ...]) -> Any:
    """Every way of reading; the value, as get, search and listing all have it."""
    with store.quiet():
        call(store, "recall", namespace, CUE)
        call(store, "quarantined", namespace)
        found = call(store, "search", namespace, query="the car")
        (listed_item,) = call(store, "search", namespace)
        call(store, "memories", [(namespace, "k")])
        value = call(store, "get", namespace, "k").value
    assert listed_item.value == value
    assert [item.value for item in found] in ([], [value])
    return value


def test_what_plain_json_holds_is_stored_and_read_back(bare: BaseStore, call: Call) -> None:
    with RecallStore(bare, record=False) as store:
        for i, value in enumerate(HELD.values()):
            namespace = (*NS, str(i))
            call(store, "put", namespace, "k", value)
            assert read_all(store, call, namespace) == value


@pytest.mark.parametrize("way", ["put", "batch"])
def test_what_no_store_can_hold_is_refused_and_changes_nothing(
    bare: BaseStore, call: Call, way: str
) -> None:
    with RecallStore(bare, record=False) as store:
        for value in REFUSED.values():
            ops = [PutOp(NS, "first", {"content": "car"}), PutOp(NS, "k", value)]
            args = (ops,) if way == "batch" else (NS, "k", value)
            with pytest.raises(InputError, match=r"A value (must|may)"):
                call(store, way, *args)
        assert bare.search((), limit=10) == []
        assert call(store, "recall", NS, CUE).memories == ()


def test_a_deep_value_that_another_program_put_is_read(call: Call, postgres: str) -> None:
    deep: Any = {"content": "the car is blue", "a": nested(400)}
    entities: Any = {"content": "the car is red", "entities": [nested(400)]}
    with PostgresStore.from_conn_string(postgres, index=INDEX) as shared:
        shared.setup()
        for bare in (InMemoryStore(index=INDEX), shared):
            with RecallStore(bare, record=False) as store:
                for key, value in (("a", deep), ("b", nested(400)), ("c", entities)):
                    bare.put((*NS, key), "k", value)
                    read_all(store, call, (*NS, key))


def test_ten_megabytes_are_read_by_their_beginning(call: Call) -> None:
    with RecallStore(InMemoryStore(), record=False) as store:
        call(store, "put", NS, "k", {"content": f"zebra {'x ' * 5_000_000} quagga"})
        call(store, "search", NS, query="zebra")
        terms = run(store._backend.view(NS), store._host).catalog.lexical
        assert terms.coverage({"zebra": 1.0}).tolist() == [1.0]
        assert terms.coverage({"quagga": 1.0}).tolist() == [0.0]
