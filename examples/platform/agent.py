"""The graph that the platform serves: it has no store of its own, the platform brings one.

How to start it, and with which store: see `../langgraph_platform.py`.
"""

from __future__ import annotations

from langchain.agents import create_agent
from scripted import chat_model

from langmem_recall import RecallMiddleware

agent = create_agent(
    chat_model(),
    system_prompt="You are the user's assistant. Store what you are told with remember.",
    # With authentication, "{langgraph_auth_user_id}": the server sets it, no client can.
    middleware=[
        RecallMiddleware(("memories", "{user_id}"), tools=("remember", "recall"), deadline=2.0)
    ],
)
