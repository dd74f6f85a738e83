"""A long-running planner: recall moves on with its to-do list, within the task at hand.

    python examples/planner.py

With OPENAI_API_KEY the model is `ChatOpenAI`, else a scripted one.
"""

from __future__ import annotations

from typing import Any

from langchain.agents import AgentState, create_agent
from langchain.agents.middleware import AgentMiddleware, TodoListMiddleware
from screen import Screen
from scripted import chat_model

from langmem_recall import LocalStore, RecallMiddleware, RecallPolicy, RecallState, RecallStore

PLANS = ("memories", "plans")
KNOWN = (
    ("The lease of the shop in Lyon begins on 1 March.", "expansion"),
    ("Dupont is a punctual moving company and lends boxes for free.", "expansion"),
    ("Internet providers need six weeks from order to connection.", "expansion"),
    ("The moving company for the trade fair charged by the kilometre.", "trade-fair"),
)


class PlannerState(AgentState[Any], RecallState):
    """An agent's state with a goal and the tag of a task."""


def todo(content: str, status: str) -> dict[str, str]:
    """An entry of LangChain's to-do list."""
    return {"content": content, "status": status}


SCRIPTS = {
    "Go ahead": [
        ("write_todos", {"todos": [todo("Hire a moving company", "in_progress")]}),
        ("write_todos", {"todos": [todo("Order internet from a provider", "in_progress")]}),
    ]
}


def main() -> None:
    """One turn, two sub-tasks: what each needs comes right after the last tool result."""
    store = RecallStore(LocalStore())
    for text, task in KNOWN:
        store.remember(PLANS, text, tags=[task], source="tool_verified")
    middleware: list[AgentMiddleware[Any, Any, Any]] = [
        TodoListMiddleware(),
        RecallMiddleware(PLANS, policy=RecallPolicy.planning(), deadline=2.0),
    ]
    agent = create_agent(
        chat_model(SCRIPTS),
        system_prompt="You open shops. Work with a to-do list of one entry: first the moving "
        "company, then the internet. Then sum up what you know.",
        state_schema=PlannerState,
        store=store,
        middleware=middleware,
    )
    Screen(agent).say("Go ahead.", goal="Open the shop in Lyon", task="expansion")
    print("The trade fair's moving company stayed out: another task, however alike the words.")


if __name__ == "__main__":
    main()
