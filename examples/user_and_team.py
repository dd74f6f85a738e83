"""Two namespaces in one recall: a user's own memories and those of the team, each labelled.

    python examples/user_and_team.py

With OPENAI_API_KEY the model is `ChatOpenAI`, else a scripted one.
"""

from __future__ import annotations

from dataclasses import dataclass

from langchain.agents import create_agent
from screen import Screen
from scripted import chat_model

from langmem_recall import LocalStore, RecallMiddleware, RecallStore

USER_AND_TEAM = (("users", "{user_id}"), ("teams", "{team_id}"))
"""Both are read; what an agent remembers goes to the first."""


@dataclass
class Who:
    """Who is asking: the context of a run."""

    user_id: str
    team_id: str


def main() -> None:
    """The same question from two colleagues and from someone of another team."""
    store = RecallStore(LocalStore())
    store.remember(("teams", "web"), "We deploy on Tuesdays.", source="tool_verified")
    store.remember(("users", "ada"), "I deploy with the canary flag on.", source="user_stated")
    store.remember(("users", "ben"), "I deploy straight to all servers.", source="user_stated")
    agent = create_agent(
        chat_model(),
        system_prompt="You are the web team's assistant.",
        context_schema=Who,
        store=store,
        middleware=[RecallMiddleware(USER_AND_TEAM, tools=("remember",), deadline=2.0)],
    )
    for user in ("ada", "ben"):
        print(f"{user} asks:")
        Screen(agent, Who(user, "web")).say("When and how do I deploy?")
    print("eve, of another team, asks:")
    Screen(agent, Who("eve", "ops")).say("When and how do I deploy?")


if __name__ == "__main__":
    main()
