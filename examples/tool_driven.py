"""Tool-driven: nothing is injected; the model remembers, recalls, corrects, forgets by itself.

    python examples/tool_driven.py

With OPENAI_API_KEY the model is `ChatOpenAI`, else a scripted one.
"""

from __future__ import annotations

from langchain.agents import create_agent
from screen import Screen
from scripted import chat_model

from langmem_recall import LocalStore, RecallStore, memory_tools


def main() -> None:
    """Each turn is a conversation of its own, so that all it knows comes from the tools."""
    agent = create_agent(
        chat_model(),
        memory_tools(("memories", "{user_id}")),
        system_prompt="You are Ada's assistant. Look things up and keep them with your tools.",
        store=RecallStore(LocalStore()),
    )
    for said in (
        "I take the 7:40 train to work. My brother's birthday is on 9 May.",
        "Which train do I take to work?",
        "Actually, I take the 8:10 train to work since the new timetable.",
        "Which train do I take to work?",
        "Forget my brother's birthday.",
        "When is my brother's birthday?",
    ):
        Screen(agent, user_id="ada").say(said)


if __name__ == "__main__":
    main()
