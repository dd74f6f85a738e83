"""Beside langmem: its tools work over the wrapped store, and recall reads what they wrote.

    python examples/langmem_side_by_side.py

Needs `pip install langmem`. With OPENAI_API_KEY the model is `ChatOpenAI`, else a scripted one.
"""

from __future__ import annotations

from langchain.agents import create_agent
from langmem import create_manage_memory_tool, create_search_memory_tool
from screen import Screen
from scripted import Call, chat_model

from langmem_recall import LocalStore, RecallMiddleware, RecallStore

MINE = ("memories", "{user_id}")
SCRIPTS: dict[str, list[Call]] = {
    "aisle": [("manage_memory", {"content": "Ada always books an aisle seat on flights."})],
    "Mia": [("manage_memory", {"content": "Ada's sister Mia lives in Bergen."})],
    "Where": [("search_memory", {"query": "where Ada's sister lives", "limit": 1})],
}


def main() -> None:
    """Langmem's tools unchanged; only the store is wrapped and the middleware added."""
    store = RecallStore(LocalStore())
    tools = [create_manage_memory_tool(MINE), create_search_memory_tool(MINE)]
    agent = create_agent(
        chat_model(SCRIPTS),
        tools,
        system_prompt="You are Ada's assistant. Keep what she tells you.",
        store=store,
        middleware=[RecallMiddleware(MINE, deadline=2.0)],
    )
    for said in (
        "Please note: I always take an aisle seat on flights.",
        "My sister Mia has settled in Bergen.",
        "Which seat should you book on my flight?",
        "Where does my sister live?",
        "Who composed the opera Tosca?",
    ):
        Screen(agent, user_id="ada").say(said)


if __name__ == "__main__":
    main()
