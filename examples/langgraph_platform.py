"""LangGraph platform: `platform/langgraph.json` names a graph without a store and a custom store.

    python examples/langgraph_platform.py

plays the server's part here, offline: it imports what the configuration names, opens the store and
runs a copy of the graph with it. The server itself, with `pip install "langgraph-cli[inmem]"`:

    cd examples/platform && langgraph dev --no-browser
    curl localhost:2024/runs/wait -H 'content-type: application/json' -d '{"assistant_id": "agent",
        "config": {"configurable": {"user_id": "ada"}},
        "input": {"messages": [{"role": "user", "content": "I always book an aisle seat."}]}}'

(a) `langgraph dev --config own_store.json`: the platform's own store. A graph compiled with a store
    loses it when it is deployed, so the middleware wraps the store that each run brings.
(b) `langgraph.json`: a store of yours in its place, for what `RecallStore` takes as arguments
    (policy, traces, reranker) and for uses counted exactly by many servers at once.
    `./store.py:local_store` is a file, `./store.py:postgres_store` the database at MEMORY_URI.

Both configurations have `"http": {"disable_store": true}`: the server's /store routes would give
the memories of all to whoever reaches them. With OPENAI_API_KEY the model is `ChatOpenAI`.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import tempfile
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from langgraph.store.base import BaseStore, Op, Result
from langgraph.store.base.batch import AsyncBatchedBaseStore
from langgraph.store.memory import InMemoryStore
from screen import Screen

FOLDER = Path(__file__).with_name("platform")


def load(place: str) -> Any:
    """The object at a place such as ./store.py:local_store."""
    path, _, name = place.rpartition(":")
    spec = importlib.util.spec_from_file_location(f"deployed_{Path(path).stem}", FOLDER / path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{place} names no Python file in {FOLDER}.")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)


class OwnStore(AsyncBatchedBaseStore):
    """The platform's own store as a graph meets it: a queue on the event loop before another."""

    def __init__(self, behind: BaseStore) -> None:
        super().__init__()
        self._behind = behind

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """From another thread."""
        return self._behind.batch(ops)

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """From the queue."""
        return await self._behind.abatch(ops)


@asynccontextmanager
async def opened(configured: dict[str, Any]) -> AsyncIterator[BaseStore]:
    """The store that a configuration asks for."""
    if "path" in configured:
        async with load(configured["path"])() as store:
            yield store
    else:
        index: Any = {**configured["index"], "embed": load(configured["index"]["embed"])}
        yield OwnStore(InMemoryStore(index=index))


async def serve(name: str) -> None:
    """Two conversations of Ada's, as the server would run them."""
    configuration = json.loads((FOLDER / name).read_text())
    graph = load(configuration["graphs"]["agent"])
    async with opened(configuration["store"]) as store:
        deployed = graph.copy(update={"store": store})
        for said in (
            "I always book an aisle seat on flights.",
            "Which seat shall you book for me?",
        ):
            await Screen(deployed, user_id="ada").asay(said)


def main() -> None:
    """The same graph with both stores."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MEMORY_FILE"] = str(Path(folder) / "memory.db")
        print("(a) own_store.json: the platform's own store, which the middleware wraps.")
        asyncio.run(serve("own_store.json"))
        print("(b) langgraph.json: the custom store, a RecallStore over a file.")
        asyncio.run(serve("langgraph.json"))


if __name__ == "__main__":
    main()
