"""A personal assistant over months: preferences drift, corrections hold, history stays.

    python examples/personal_assistant.py

With OPENAI_API_KEY the model is `ChatOpenAI`, else a scripted one.
"""

from __future__ import annotations

from datetime import UTC, datetime

from langchain.agents import create_agent
from screen import Screen, show_row
from scripted import chat_model

from langmem_recall import Cue, LocalStore, RecallMiddleware, RecallStore

ADA = ("memories", "ada")
YEAR = (
    (1, "I take my coffee with milk and sugar. My rent is 1,400 francs a month."),
    (4, "Actually, I take my coffee black now."),
    (6, "My rent is 1,650 francs a month."),
    (7, "How do I take my coffee?"),
    (8, "How much is my rent now?"),
)
"""What Ada says in which month: something corrected, and something that changed by the way."""


class Calendar:
    """A clock that is turned by hand."""

    now = datetime(2026, 1, 15, tzinfo=UTC)

    def __call__(self) -> datetime:
        """The time."""
        return self.now


def main() -> None:
    """A year of short conversations, and what is left of them."""
    calendar = Calendar()
    store = RecallStore(LocalStore(), clock=calendar)
    agent = create_agent(
        chat_model(),
        system_prompt="You are Ada's assistant. Keep what she tells you, correct what changed.",
        store=store,
        middleware=[
            RecallMiddleware(
                ("memories", "{user_id}"), tools=("remember", "recall", "correct"), deadline=2.0
            )
        ],
    )
    for month, said in YEAR:
        calendar.now = calendar.now.replace(month=month)
        print(f"{calendar.now:%B}")
        Screen(agent, user_id="ada").say(said)

    coffee = Cue("How do I take my coffee?")
    print("What was ever said about coffee, newest first:")
    for memory in store.recall(ADA, coffee).memories[:1]:
        for version in store.history(ADA, memory.key):
            show_row(f"{version.written_at:%B}", f"{version.text} ({version.status})")
    print("The same cue as of March, before the correction:")
    march = Cue(coffee.text, as_of=datetime(2026, 3, 1, tzinfo=UTC))
    for memory in store.recall(ADA, march).memories:
        show_row(f"{memory.written_at:%B}", memory.text)


if __name__ == "__main__":
    main()
