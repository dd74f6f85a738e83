"""`RecallStore` over LangGraph's SqliteStore and AsyncSqliteStore."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import Clock, CountingEmbeddings
from langgraph.store.sqlite import AsyncSqliteStore, SqliteStore

from langmem_recall.flows.usage import USAGE
from langmem_recall.policy import RecallPolicy
from langmem_recall.stores.recall_store import RecallStore

NS = ("memories", "ada")
CODE = "ERR_SSL_VERSION"

with_vectors = pytest.mark.skipif(
    not hasattr(sqlite3.Connection, "enable_load_extension"),
    reason="this Python's sqlite3 cannot load extensions, so SqliteStore has no vectors",
)


def index() -> dict[str, Any]:
    return {"dims": 256, "embed": CountingEmbeddings(), "text_fields": ["content"]}


@pytest.mark.parametrize(
    "config",
    [pytest.param(None, id="words"), pytest.param("vectors", id="vectors", marks=with_vectors)],
)
def test_sqlite_store_recalls_pages_and_counts(
    tmp_path: Path, clock: Clock, config: str | None
) -> None:
    chosen = {"index": index()} if config else {}
    with SqliteStore.from_conn_string(str(tmp_path / "s.db"), **chosen) as inner:
        store = RecallStore(inner, clock=clock, policy=RecallPolicy.default(pool=5))
        assert store.setup() is None
        for i in range(30):
            store.put(NS, f"n{i}", {"content": f"note {i} about jazz"})
        store.put(NS, "ssl", {"content": f"the deploy ended with {CODE}"})
        assert store.recall(NS, f"why {CODE}?").memories[0].key == "ssl"
        assert store.recall(NS, "who composed Tosca?").chosen == ()
        store.flush()
        assert inner.get((*USAGE, *NS), "ssl").value["uses"] == 1
        assert store.list_namespaces() == [NS]
        with store.quiet():
            pages = [store.search(NS, query="jazz", limit=7, offset=o) for o in range(0, 35, 7)]
        found = [item.key for page in pages for item in page]
        assert sorted(found) == sorted(["ssl", *(f"n{i}" for i in range(30))])
        store.close()


def test_async_sqlite_store_recalls_and_counts(tmp_path: Path, clock: Clock) -> None:
    async def main() -> dict[str, Any]:
        async with AsyncSqliteStore.from_conn_string(str(tmp_path / "s.db")) as inner:
            store = RecallStore(inner, clock=clock)
            await store.setup()
            for i in range(10):
                await store.aput(NS, f"n{i}", {"content": f"note {i} about jazz"})
            await store.aput(NS, "ssl", {"content": f"the deploy ended with {CODE}"})
            recalls = await asyncio.gather(*(store.arecall(NS, f"why {CODE}?") for _ in range(20)))
            assert {recall.memories[0].key for recall in recalls} == {"ssl"}
            await store.aclose()
            usage = await inner.aget((*USAGE, *NS), "ssl")
            assert usage is not None
            return usage.value

    assert asyncio.run(main())["uses"] == 1


def test_a_process_ends_even_when_an_async_store_was_not_closed(tmp_path: Path) -> None:
    code = f"""
import asyncio
from langgraph.store.sqlite import AsyncSqliteStore
from langmem_recall import RecallStore

async def main():
    async with AsyncSqliteStore.from_conn_string({str(tmp_path / "s.db")!r}) as inner:
        store = RecallStore(inner)
        await store.setup()
        await store.aput(("a",), "k", {{"content": "I prefer aisle seats"}})
        return store, await store.arecall(("a",), "which seats do I prefer?")

store, recall = asyncio.run(main())
print(len(recall.chosen))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.returncode) == ("1\n", 0)


def test_sync_calls_on_the_store_of_a_running_loop_are_still_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncSqliteStore.from_conn_string(str(tmp_path / "s.db")) as inner:
            store = RecallStore(inner)
            await store.setup()
            with pytest.raises(asyncio.InvalidStateError):
                store.search(NS, query="jazz")

    asyncio.run(main())
