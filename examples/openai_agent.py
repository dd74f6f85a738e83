"""OpenAI for words and meaning: `ChatOpenAI` answers, `OpenAIEmbeddings` compares.

    OPENAI_API_KEY=... python examples/openai_agent.py

Without a key the model is a scripted one and the embeddings are those that come with the package.
"""

from __future__ import annotations

import os

from langchain.agents import create_agent
from langchain_core.embeddings import Embeddings
from screen import Screen
from scripted import chat_model

from langmem_recall import LocalEmbeddings, LocalStore, RecallMiddleware, RecallStore

ADA = ("memories", "ada")


def embeddings() -> Embeddings:
    """OpenAI's with a key, else those that come with the package."""
    if not os.environ.get("OPENAI_API_KEY"):
        return LocalEmbeddings()
    from langchain_openai import OpenAIEmbeddings

    # Memories are short: nothing is to be cut, so no tokenizer need be fetched.
    return OpenAIEmbeddings(model="text-embedding-3-small", check_embedding_ctx_length=False)


def main() -> None:
    """The same agent and the same gates, whoever embeds."""
    model, embedder = chat_model(), embeddings()
    print(f"Model: {type(model).__name__}; embeddings: {type(embedder).__name__}.")
    store = RecallStore(LocalStore(embeddings=embedder))
    store.remember(ADA, "I always book an aisle seat on flights.", key="seat", source="user_stated")
    store.remember(ADA, "I am allergic to peanuts.", key="peanuts", source="user_stated")
    agent = create_agent(
        model,
        system_prompt="You are Ada's assistant. Be brief, and cite the memories you use.",
        store=store,
        middleware=[RecallMiddleware(("memories", "{user_id}"))],
    )
    for said in ("Which seat should you book on my flight?", "Who composed the opera Tosca?"):
        Screen(agent, user_id="ada").say(said)


if __name__ == "__main__":
    main()
