"""What a LangGraph server demands of `examples/platform`, without the server."""

from __future__ import annotations

import importlib.util
import json
import sys
import threading
from contextlib import AsyncExitStack
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from conftest import PlatformStore
from langchain_core.callbacks import BaseCallbackHandler
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore

from langmem_recall.stores.recall_store import RecallStore

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
FOLDER = EXAMPLES / "platform"
CONFIGURATIONS = ("langgraph.json", "own_store.json")
TOLD = "I always book an aisle seat on flights."
ASKED = "Which seat should you book on my flight?"
RECALLED = f'You told me: "{TOLD}" [m1]'
NOTHING = "I remember nothing about that."


class Given(BaseCallbackHandler):
    """What the model was given."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def on_chat_model_start(self, serialized: Any, messages: Any, **_: Any) -> None:
        self.texts = [message.text for message in messages[0]]


def module_at(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"platform_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def named(place: str) -> Any:
    """The object at a place such as ./store.py:local_store, beside the configuration."""
    path, _, name = place.rpartition(":")
    assert (FOLDER / path).is_file()
    return getattr(module_at(FOLDER / path), name)


def configuration(name: str) -> dict[str, Any]:
    found = json.loads((FOLDER / name).read_text())
    assert isinstance(found, dict)
    return found


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No key, a file of its own, and the examples' model under the name that they import it by."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("MEMORY_FILE", str(tmp_path / "memory.db"))
    scripted = module_at(EXAMPLES / "scripted.py")
    # A model's fields are looked up by the name of the module that declares them.
    monkeypatch.setitem(sys.modules, scripted.__name__, scripted)
    monkeypatch.setitem(sys.modules, "scripted", scripted)
    scripted.ScriptedModel.model_rebuild()


@pytest.fixture
def graph() -> Any:
    return named(configuration("langgraph.json")["graphs"]["agent"])


async def said(graph: Any, store: BaseStore, words: str, user: str = "ada") -> str:
    """The answer of a run as a server starts it: a copy of the graph with the server's store."""
    reached = await graph.copy(update={"store": store}).ainvoke(
        {"messages": [("user", words)]}, {"configurable": {"user_id": user}}
    )
    return str(reached["messages"][-1].text)


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_a_configuration_names_what_is_there(name: str) -> None:
    told = configuration(name)
    assert set(told) == {"dependencies", "graphs", "store", "http"}
    local = [one for one in told["dependencies"] if one.startswith(".")]
    assert (FOLDER / "agent.py").parent in [(FOLDER / one).resolve() for one in local]
    assert (EXAMPLES / "scripted.py").parent in [(FOLDER / one).resolve() for one in local]
    assert callable(named(told["graphs"]["agent"]).ainvoke)
    assert told["http"] == {"disable_store": True}


def test_the_graph_leaves_store_and_checkpointer_to_the_server(graph: Any) -> None:
    assert graph.store is None
    assert graph.checkpointer is None


def test_both_configurations_serve_the_same_graph() -> None:
    custom, own = map(configuration, CONFIGURATIONS)
    assert custom | {"store": None} == own | {"store": None}
    assert set(custom["store"]) == {"path"}
    assert set(own["store"]) == {"index"}


async def test_the_custom_store_recalls_after_the_server_was_started_anew(graph: Any) -> None:
    open_store = named(configuration("langgraph.json")["store"]["path"])
    async with open_store() as store:
        assert isinstance(store, RecallStore)
        assert await said(graph, store, TOLD) == "Noted."
    async with open_store() as store:
        assert await said(graph, store, ASKED) == RECALLED
        assert await said(graph, store, ASKED, user="ben") == NOTHING
    async with open_store() as store:
        (chosen,) = (await store.arecall(("memories", "ada"), ASKED)).chosen
        assert chosen.candidate.usage.uses == 1


async def test_each_of_a_server_s_threads_may_open_the_custom_store(graph: Any) -> None:
    open_store = named(configuration("langgraph.json")["store"]["path"])
    async with AsyncExitStack() as stack:
        one, other = [await stack.enter_async_context(open_store()) for _ in range(2)]
        assert await said(graph, one, TOLD) == "Noted."
        assert await said(graph, other, ASKED) == RECALLED


async def test_the_file_is_not_opened_on_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    module = module_at(FOLDER / "store.py")
    local_store, threads = module.LocalStore, list[threading.Thread]()

    def noted(*args: Any, **kwargs: Any) -> Any:
        threads.append(threading.current_thread())
        return local_store(*args, **kwargs)

    monkeypatch.setattr(module, "LocalStore", noted)
    async with module.local_store() as store:
        assert await store.alist_namespaces() == []
    assert len(threads) == 1
    assert threads[0] is not threading.current_thread()


async def test_the_store_over_postgres_recalls_after_a_restart(
    graph: Any, postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMORY_URI", postgres)
    open_store = named("./store.py:postgres_store")
    async with open_store() as store:
        assert await said(graph, store, TOLD) == "Noted."
    async with open_store() as store:
        assert await said(graph, store, ASKED) == RECALLED


async def test_the_platform_s_own_store_is_wrapped_as_a_run_brings_it(graph: Any) -> None:
    index = configuration("own_store.json")["store"]["index"]
    embeddings = named(index["embed"])
    assert len(embeddings.embed_query("seat")) == index["dims"]
    platform = PlatformStore(InMemoryStore(index={**index, "embed": embeddings}))
    assert await said(graph, platform, TOLD) == "Noted."
    assert await said(graph, platform, ASKED) == RECALLED
    assert await said(graph, platform, ASKED, user="ben") == NOTHING


async def test_the_model_is_shown_the_block_and_the_state_is_not(graph: Any) -> None:
    store, given = PlatformStore(InMemoryStore()), Given()
    await said(graph, store, TOLD)
    reached = await graph.copy(update={"store": store}).ainvoke(
        {"messages": [("user", ASKED)]},
        {"configurable": {"user_id": "ada"}, "callbacks": [given]},
    )
    assert [text for text in given.texts if text.startswith("<recalled-memories")]
    assert [message.type for message in reached["messages"]] == ["human", "ai"]
    assert ASKED in given.texts
