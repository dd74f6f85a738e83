"""The two sessions of `make demo`: one tells the agent things, the other one asks."""

from __future__ import annotations

import os
import sys
import textwrap
from pathlib import Path

from langchain.agents import create_agent
from langchain_core.messages import BaseMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from screen import WIDTH, Watcher, show_message, show_rule
from scripted import chat_model

from langmem_recall import LocalStore, Recall, RecallMiddleware, RecallStore
from langmem_recall.observe.show import table

ADA = ("memories", "ada")
PROMPT = (
    "You are Ada's assistant. When she tells you something, store each statement with remember, "
    "word for word; when something changed, find it with recall and use correct. "
    "Answer briefly, and cite the memories you use."
)
TOLD = (
    "I always book an aisle seat on flights. I am allergic to peanuts.",
    "The shop's deploy failed with ERR_CERT_DATE_INVALID until I renewed the certificate.",
    "I go to the gym on Tuesdays and Fridays. My sister Mia lives in Oslo.",
    "Actually, my sister Mia has moved, she lives in Bergen now.",
)
ASKED = (
    (
        "The memory that fits is shown to the model, right before the question.",
        "Which seat should you book on my flight?",
    ),
    (
        "An exact identifier is found to the letter.",
        "Have we met ERR_CERT_DATE_INVALID before?",
    ),
    (
        "A corrected fact shows as corrected; its former value is history.",
        "Where does my sister live?",
    ),
    (
        "Off topic, nothing is shown to the model, and the trace says why.",
        "Who composed the opera Tosca?",
    ),
)


class Assistant:
    """Ada's agent over a file of memories, and what it recalled in its latest turn."""

    def __init__(self, path: Path, *tools: str) -> None:
        self.recalls: list[Recall] = []
        self.store = RecallStore(LocalStore(path), traces=self.recalls.append)
        self._watcher = Watcher()
        self._agent = create_agent(
            chat_model(),
            system_prompt=PROMPT,
            store=self.store,
            middleware=[RecallMiddleware(("memories", "{user_id}"), tools=tools, deadline=2.0)],
        )

    def hear(self, words: str) -> list[BaseMessage]:
        """A conversation of one turn: what the model was given, and its answer."""
        self.recalls.clear()
        config: RunnableConfig = {
            "configurable": {"user_id": "ada"},
            "callbacks": [self._watcher],
        }
        reached = self._agent.invoke({"messages": [HumanMessage(words)]}, config)
        return self._watcher.news(reached["messages"][-1])


def tell(path: Path) -> None:
    """Session A: tell the agent things, correct one, and end."""
    show_rule(f"Session A, process {os.getpid()}: Ada tells her assistant things")
    assistant = Assistant(path, "remember", "recall", "correct")
    for words in TOLD:
        for message in assistant.hear(words):
            if message.type in ("human", "ai") and not is_block(message):
                show_message(message)
        print()
    assistant.store.close()


def ask(path: Path) -> None:
    """Session B: ask, and show what the model saw and why."""
    show_rule(f"Session B, process {os.getpid()}: Ada asks")
    assistant = Assistant(path)
    for place, (title, words) in enumerate(ASKED, start=1):
        print(f"\n{place}. {title}\n")
        for message in assistant.hear(words):
            if message.type != "system":
                show_message(in_brief(message) if place > 1 else message)
        recall = assistant.recalls[0]
        print(f"\n{textwrap.indent(table(recall, WIDTH - 2), '  ')}")
        for memory in recall.memories:
            for former in assistant.store.history(ADA, memory.key)[1:]:
                print(f"  formerly ({former.status}): {former.text}")
    assistant.store.close()


def in_brief(message: BaseMessage) -> BaseMessage:
    """A block without its frame, which was shown once; other messages as they are."""
    if not is_block(message):
        return message
    lines = [line for line in message.text.splitlines() if line.startswith("{")]
    return HumanMessage("\n".join(["<recalled-memories ...>", *lines]))


def is_block(message: BaseMessage) -> bool:
    """Whether this is what recall put among the messages."""
    return message.name == "recalled_memories"


if __name__ == "__main__":
    {"a": tell, "b": ask}[sys.argv[1]](Path(sys.argv[2]))
