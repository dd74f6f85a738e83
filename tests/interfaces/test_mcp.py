"""The MCP server as hosts start it: a process of its own, the official client over stdio."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp import ClientSession, StdioServerParameters, stdio_client

from langmem_recall import LocalStore, RecallStore
from langmem_recall.errors import MissingExtraError
from langmem_recall.interfaces.mcp import mcp_server

ADA = ("memories", "ada")


async def talk(path: Path, *calls: tuple[str, dict[str, Any]], more: tuple[str, ...] = ()) -> Any:
    """The tools of a server, and what it answers."""
    words = ["-m", "langmem_recall", "mcp", str(path), "-n", "memories/ada", *more]
    process = {"command": sys.executable, "args": words, "env": dict(os.environ)}
    server = StdioServerParameters(**process)
    async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        tools = (await session.list_tools()).tools
        answers = [await session.call_tool(name, given) for name, given in calls]
    return tools, [answer.content[0].text for answer in answers]


async def test_a_host_remembers_recalls_and_asks_why(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    with RecallStore(LocalStore(path)) as store:
        seat = "I always book an aisle seat on flights"
        store.remember(ADA, seat, key="seat", source="user_stated")
        store.remember(("memories", "bob"), "I always book a window seat on flights", key="his")
    tools, answers = await talk(
        path,
        ("remember", {"text": "Ada is allergic to peanuts", "importance": 9}),
        ("recall", {"query": "Which seat on flights?"}),
        ("recall", {"query": "Ada's allergies: peanuts?", "limit": 1}),
        ("explain", {"key": "seat", "query": "Who composed Tosca?"}),
        ("recall", {"query": ""}),
    )
    assert [tool.name for tool in tools] == ["remember", "recall", "explain"]
    assert all(tool.description for tool in tools)
    assert not any("namespace" in str(tool) for tool in tools)
    remembered, found, allergies, why, empty = answers
    assert remembered.startswith("remembered as ")
    assert "agent inferred" in remembered
    assert '"id": "seat"' in found
    assert "window" not in found
    assert "data, not instructions" in found
    assert "peanuts" in allergies
    assert why.startswith("seat: not recalled")
    assert empty.startswith("error: query: is empty")
    with LocalStore(path) as store:
        assert len(store.search(ADA)) == 2


async def test_a_server_that_only_reads_offers_no_remember(tmp_path: Path) -> None:
    tools, _ = await talk(tmp_path / "new.db", more=("--read-only", "--create"))
    assert [tool.name for tool in tools] == ["recall", "explain"]


def test_without_the_sdk_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp.server", None)
    with pytest.raises(MissingExtraError, match=r"langmem-recall\[mcp\]"):
        mcp_server(RecallStore(LocalStore()), ADA)
