"""langmem's own tools over our store, and its memories in our recalls."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.store.memory import InMemoryStore
from langmem import create_manage_memory_tool, create_search_memory_tool

from langmem_recall.agents.tools import memory_tools
from langmem_recall.rendering import render
from langmem_recall.stores.recall_store import RecallStore

TEMPLATE = ("memories", "{langgraph_user_id}")
ALICE = ("memories", "alice")
CONFIG: dict[str, Any] = {"configurable": {"langgraph_user_id": "alice"}}
BOBS: dict[str, Any] = {"configurable": {"langgraph_user_id": "bob"}}
Invoke = Callable[..., Any]


@pytest.fixture(params=["sync", "async"])
def invoke(request: pytest.FixtureRequest) -> Iterator[Invoke]:
    """Runs a tool inside a graph, as langmem's tools need it, directly or on an event loop."""

    def graph_of(tool: Any, store: Any, told: list[Any]) -> Any:
        def node(state: MessagesState) -> None:
            told.append(tool.invoke(state["messages"][0].additional_kwargs))

        async def anode(state: MessagesState) -> None:
            told.append(await tool.ainvoke(state["messages"][0].additional_kwargs))

        builder = StateGraph(MessagesState)
        builder.add_node("call", node if request.param == "sync" else anode)
        builder.add_edge(START, "call")
        return builder.compile(store=store)

    with asyncio.Runner() as runner:

        def go(tool: Any, store: Any, config: Any = CONFIG, **args: Any) -> Any:
            told: list[Any] = []
            graph = graph_of(tool, store, told)
            given = {"messages": [{"role": "user", "content": "", "additional_kwargs": args}]}
            if request.param == "sync":
                graph.invoke(given, config)
            else:
                runner.run(graph.ainvoke(given, config))
            return told[0]

        yield go


@pytest.fixture
def store(inner: InMemoryStore) -> RecallStore:
    return RecallStore(inner)


def test_langmems_manage_tool_creates_updates_and_deletes(
    invoke: Invoke, store: RecallStore
) -> None:
    manage = create_manage_memory_tool(TEMPLATE)
    told = invoke(manage, store, content="The deploy key is AB-12")
    key = told.removeprefix("created memory ")
    assert store.get(ALICE, key).value == {"content": "The deploy key is AB-12"}
    invoke(manage, store, content="The deploy key is CD-34", action="update", id=key)
    assert store.get(ALICE, key).value == {"content": "The deploy key is CD-34"}
    invoke(manage, store, action="delete", id=key)
    assert store.get(ALICE, key) is None


def test_langmems_search_tool_finds_what_ours_remembered(
    invoke: Invoke, store: RecallStore
) -> None:
    remember, *_ = memory_tools(TEMPLATE)
    invoke(remember, store, text="The deploy key is AB-12")
    found = json.loads(
        invoke(create_search_memory_tool(TEMPLATE), store, query="deploy key AB-12", limit=3)
    )
    assert [item["value"]["content"] for item in found] == ["The deploy key is AB-12"]
    assert found[0]["namespace"] == ["memories", "alice"]


def test_our_recall_finds_what_langmem_stored_and_no_other_users(
    invoke: Invoke, store: RecallStore
) -> None:
    manage = create_manage_memory_tool(TEMPLATE)
    _, recall, *_ = memory_tools(TEMPLATE)
    invoke(manage, store, content="The deploy key is AB-12")
    invoke(manage, store, config=BOBS, content="The deploy key is EF-56")
    told = invoke(recall, store, query="deploy key AB-12")
    assert '"text": "The deploy key is AB-12"' in told
    assert "EF-56" not in told


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"content": "The deploy key is AB-12"}, "The deploy key is AB-12"),
        (
            {"kind": "Memory", "content": {"content": "The deploy key is AB-12"}},
            "The deploy key is AB-12",
        ),
        (
            {"kind": "Profile", "content": {"name": "Ann", "deploy_key": "AB-12"}},
            "name: Ann. deploy_key: AB-12",
        ),
    ],
    ids=["tool", "manager", "schema"],
)
def test_every_shape_langmem_stores_is_recalled_and_rendered(
    call: Callable[..., Any], store: RecallStore, value: dict[str, Any], text: str
) -> None:
    call(store, "put", ALICE, "k1", value)
    recall = call(store, "recall", ALICE, "deploy key AB-12")
    assert [memory.text for memory in recall.memories] == [text]
    assert text in render(recall)
    assert store.get(ALICE, "k1").value == value


def test_one_of_langmems_memories_can_be_corrected_and_forgotten_by_ours(
    invoke: Invoke, store: RecallStore
) -> None:
    store.put(ALICE, "k1", {"content": "The deploy key is AB-12"})
    _, recall, correct, forget = memory_tools(TEMPLATE)
    invoke(correct, store, key="k1", text="The deploy key is CD-34")
    assert '"text": "The deploy key is CD-34"' in invoke(recall, store, query="deploy key CD-34")
    invoke(forget, store, key="k1")
    assert store.search(ALICE) == []
