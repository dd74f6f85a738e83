"""Auto-injection: before each model call, what fits the turn is shown to the model.

    python examples/auto_injection.py

With OPENAI_API_KEY the model is `ChatOpenAI`, else a scripted one.
"""

from __future__ import annotations

from langchain.agents import create_agent
from langgraph.checkpoint.memory import InMemorySaver
from screen import Screen
from scripted import chat_model

from langmem_recall import LocalStore, RecallMiddleware, RecallStore

ADA = ("memories", "ada")


def main() -> None:
    """Two questions about Ada, one that has nothing to do with her."""
    store = RecallStore(LocalStore())
    store.remember(ADA, "I always book an aisle seat on flights.", key="seat", source="user_stated")
    store.remember(ADA, "I am allergic to peanuts.", key="peanuts", source="user_stated")
    store.remember(ADA, "Ada flies from Zurich airport.", key="airport", source="agent_inferred")
    agent = create_agent(
        chat_model(),
        system_prompt="You are Ada's assistant.",
        checkpointer=InMemorySaver(),
        store=store,
        middleware=[RecallMiddleware(("memories", "{user_id}"), deadline=2.0)],
    )
    screen = Screen(agent, user_id="ada", thread_id="one")
    screen.say("From which airport do I fly, and in which seat?")
    screen.say("What am I allergic to?")
    screen.say("Who composed the opera Tosca?")
    kept = agent.get_state({"configurable": {"thread_id": "one"}}).values["messages"]
    print("The checkpoint keeps", ", ".join(message.type for message in kept), "and no block.")


if __name__ == "__main__":
    main()
