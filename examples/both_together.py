"""Both together: what fits is injected, and the model can dig deeper with the tools.

    python examples/both_together.py

With OPENAI_API_KEY the model is `ChatOpenAI`, else a scripted one.
"""

from __future__ import annotations

from langchain.agents import create_agent
from langgraph.checkpoint.memory import InMemorySaver
from screen import Screen
from scripted import chat_model

from langmem_recall import LocalStore, RecallMiddleware, RecallStore

SCRIPTS = {"office": [("recall", {"query": "food allergies"})]}
"""Nothing in "missing for the office party" says allergy; the model thinks of it."""


def main() -> None:
    """Two conversations to tell, a third one to ask."""
    agent = create_agent(
        chat_model(SCRIPTS),
        system_prompt="You are Ada's assistant. Look up what may matter and was not shown to you.",
        checkpointer=InMemorySaver(),
        store=RecallStore(LocalStore()),
        middleware=[
            RecallMiddleware(("memories", "{user_id}"), tools=("remember", "recall"), deadline=2.0)
        ],
    )
    Screen(agent, user_id="ada", thread_id="monday").say("I have a food allergy: peanuts.")
    Screen(agent, user_id="ada", thread_id="tuesday").say("My brother Tom visits us on 2 May.")
    friday = Screen(agent, user_id="ada", thread_id="friday")
    friday.say("When does my brother Tom visit?")
    friday.say("What is still missing for the office party?")


if __name__ == "__main__":
    main()
