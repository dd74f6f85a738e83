"""deepagents: recall in a deep agent, and the files of its StoreBackend read as memories."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import Call
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langgraph.checkpoint.memory import InMemorySaver

from langmem_recall import LocalStore, RecallMiddleware, RecallStore

deepagents = pytest.importorskip("deepagents")

FILES = ("files", "ada")
STYLE = "Reports are written in British English and never longer than two pages."


class Model(GenericFakeChatModel):
    """Says its lines and keeps what it was given."""

    seen: list[list[BaseMessage]]

    def bind_tools(self, *_: Any, **__: Any) -> Any:
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> Any:
        self.seen.append(list(messages))
        return super()._generate(messages, *args, **kwargs)


def writing(path: str, text: str) -> AIMessage:
    arguments = {"file_path": path, "content": text}
    return AIMessage("", tool_calls=[{"name": "write_file", "args": arguments, "id": "c1"}])


def agent_of(model: Model, store: RecallStore) -> Any:
    from deepagents.backends import StoreBackend

    return deepagents.create_deep_agent(
        model=model,
        store=store,
        backend=StoreBackend(namespace=lambda runtime: FILES),
        middleware=[RecallMiddleware(("files", "{user_id}"), deadline=float("inf"))],
        checkpointer=InMemorySaver(),
    )


def test_a_file_that_one_thread_writes_is_recalled_in_another(call: Call) -> None:
    store = RecallStore(LocalStore())
    lines = [writing("/style.md", STYLE), AIMessage("Noted."), AIMessage("British English [m1].")]
    model = Model(messages=iter(lines), seen=[])
    agent = agent_of(model, store)

    def say(words: str, thread: str) -> Any:
        config = {"configurable": {"user_id": "ada", "thread_id": thread}}
        return call(agent, "invoke", {"messages": [("user", words)]}, config)

    say("Keep a note of how reports are written.", "1")
    assert "recalled-memories" not in str(model.seen[0])
    say("In which English are reports written, and how long are they?", "2")
    (block,) = [each for each in model.seen[-1] if "<recalled-memories" in each.text]
    assert block.type == "human"
    assert STYLE in block.text
    (item,) = store.search(FILES)
    assert item.key == "/style.md"
    assert item.value["content"] == STYLE
    store.flush()
    assert [usage.merit for usage in store.inner.read_usage([(FILES, "/style.md")])] == [1]


def test_files_of_earlier_versions_are_lists_of_lines(call: Call) -> None:
    store = RecallStore(LocalStore())
    store.put(FILES, "/style.md", {"content": STYLE.split(" and "), "created_at": "2026-01-01"})
    (memory,) = call(store, "recall", FILES, "In which English are reports written?").memories
    assert memory.text == STYLE.replace(" and ", "\n")
