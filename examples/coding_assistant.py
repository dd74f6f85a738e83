"""A coding assistant: the identifiers of a failing tool find the fix that worked before.

    python examples/coding_assistant.py

With OPENAI_API_KEY the model is `ChatOpenAI`, else a scripted one.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from langchain.agents import create_agent
from langchain_core.tools import ToolException, tool
from screen import Screen
from scripted import chat_model

from langmem_recall import LocalStore, RecallMiddleware, RecallPolicy, RecallStore

REPO = ("repositories", "shop")
LAST_SPRING = datetime.now(UTC) - timedelta(days=200)


@tool
def run_tests(path: str) -> str:
    """Run the tests under a path."""
    raise ToolException(f"{path}::test_pay FAILED: OperationalError: ER_LOCK_DEADLOCK (1213)")


run_tests.handle_tool_error = True


def main() -> None:
    """The first block answers the words, the second the error that came up on the way."""
    store = RecallStore(LocalStore(), policy=RecallPolicy.coding())
    for text in (
        "Checkout tests need the database container: run make db-up first.",
        "ER_LOCK_DEADLOCK (1213) went away when orders were updated sorted by id.",
        "The search page flickered until its images got fixed heights.",
        "Release notes are written in CHANGES.rst.",
    ):
        store.remember(
            REPO, text, kind="procedural", source="tool_verified", written_at=LAST_SPRING
        )
    agent = create_agent(
        chat_model({"checkout": [("run_tests", {"path": "tests/checkout"})]}),
        [run_tests],
        system_prompt="You are a coding assistant. Run the tests, then say what to do.",
        store=store,
        middleware=[RecallMiddleware(("repositories", "{repository}"), deadline=2.0)],
    )
    Screen(agent, repository="shop").say("Please make the checkout tests pass.")


if __name__ == "__main__":
    main()
