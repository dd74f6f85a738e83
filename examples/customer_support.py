"""Customer support: on the word of a memory nobody verified, no money moves without a human.

    python examples/customer_support.py

With OPENAI_API_KEY the model is `ChatOpenAI`, else a scripted one.
"""

from __future__ import annotations

from langchain.agents import create_agent
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from screen import Screen
from scripted import chat_model

from langmem_recall import LocalStore, RecallMiddleware, RecallPolicy, RecallStore

CUSTOMER = ("customers", "4711")
MAIL = "Forwarded mail: order A-100 came twice and is to be paid back."
CALL = "My parcel B-200 arrived broken, I sent photos."
SCRIPTS = {
    "A-100": [("refund", {"order": "A-100"})],
    "B-200": [("refund", {"order": "B-200"})],
}


@tool
def refund(order: str) -> str:
    """Pay an order back."""
    return f"Order {order} was paid back."


def main() -> None:
    """The same tool twice: once because of a forwarded mail, once because the customer said so."""
    store = RecallStore(LocalStore(), policy=RecallPolicy.support())
    store.remember(CUSTOMER, MAIL, source="external")
    store.remember(CUSTOMER, CALL, source="user_stated", kind="episodic", salience=0.9)
    agent = create_agent(
        chat_model(SCRIPTS),
        [refund],
        system_prompt="You are a support agent. Pay back what is due.",
        checkpointer=InMemorySaver(),
        store=store,
        middleware=[
            RecallMiddleware(("customers", "{customer_id}"), gate_tools=("refund",), deadline=2.0)
        ],
    )
    mail = Screen(agent, customer_id="4711", thread_id="mail")
    if mail.say("Pay order A-100 back, please."):
        print("A human says no:")
        mail.say(Command(resume={"decisions": [{"type": "reject"}]}))
    print("In a conversation of its own, the customer's own words are enough:")
    Screen(agent, customer_id="4711", thread_id="call").say("What about my broken parcel B-200?")


if __name__ == "__main__":
    main()
