"""A plain StateGraph: a recall node, and `recall.messages(state)` for the model's input.

    python examples/state_graph.py

With OPENAI_API_KEY the model is `ChatOpenAI`, else a scripted one.
"""

from __future__ import annotations

from typing import Any

from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from screen import Screen
from scripted import chat_model

from langmem_recall import LocalStore, RecallState, RecallStore, recall_node

ADA = ("memories", "ada")


class State(MessagesState, RecallState):
    """Messages, and the keys and scores of what was recalled; never the block itself."""


@tool
def find_flights(city: str) -> str:
    """Flights to a city."""
    return f"LX 1210 to {city} at 9:15, LX 1214 at 17:40."


def main() -> None:
    """The model sees the same block, byte for byte, before and after it calls a tool."""
    model = chat_model({"flight": [("find_flights", {"city": "Bergen"})]}).bind_tools(
        [find_flights]
    )
    recall = recall_node(("memories", "{user_id}"), deadline=2.0)

    def call_model(state: State) -> dict[str, Any]:
        return {"messages": [model.invoke(recall.messages(state))]}

    builder = StateGraph(State)
    builder.add_node("recall", recall)
    builder.add_node("model", call_model)
    builder.add_node("tools", ToolNode([find_flights]))
    builder.add_edge(START, "recall")
    builder.add_edge("recall", "model")
    builder.add_conditional_edges("model", tools_condition)
    builder.add_edge("tools", "model")

    store = RecallStore(LocalStore())
    store.remember(ADA, "I only take flights that leave after noon.", source="user_stated")
    store.remember(ADA, "I am allergic to peanuts.", source="user_stated")
    screen = Screen(builder.compile(store=store), user_id="ada")
    screen.say("Which flight to Bergen shall I take?")
    screen.say("Who painted the Night Watch?")


if __name__ == "__main__":
    main()
