from __future__ import annotations

from typing import Any

from langchain_core.tools import BaseTool
from langchain_tests.unit_tests import ToolsUnitTests
from langgraph.store.memory import InMemoryStore

from langmem_recall.agents.tools import memory_tools


def made(name: str) -> BaseTool:
    (tool,) = memory_tools(("memories", "{user_id}"), store=InMemoryStore(), names=[name])
    return tool


class TestRemember(ToolsUnitTests):
    @property
    def tool_constructor(self) -> BaseTool:
        return made("remember")

    @property
    def tool_invoke_params_example(self) -> dict[str, Any]:
        return {"text": "The user likes tea", "kind": "semantic", "importance": 4}


class TestRecall(ToolsUnitTests):
    @property
    def tool_constructor(self) -> BaseTool:
        return made("recall")

    @property
    def tool_invoke_params_example(self) -> dict[str, Any]:
        return {"query": "tea", "limit": 3}


class TestCorrect(ToolsUnitTests):
    @property
    def tool_constructor(self) -> BaseTool:
        return made("correct")

    @property
    def tool_invoke_params_example(self) -> dict[str, Any]:
        return {"key": "k1", "text": "The user likes coffee"}


class TestForget(ToolsUnitTests):
    @property
    def tool_constructor(self) -> BaseTool:
        return made("forget")

    @property
    def tool_invoke_params_example(self) -> dict[str, Any]:
        return {"key": "k1"}
