"""`make demo`: what one process remembers, another recalls, and says why.

Two processes share one file. No key, no server. The full agent comes in the other examples.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from langmem_recall import LocalStore, Recall, RecallStore

NAMESPACE = ("memories", "ada")

TOLD = (
    ("seat", "I always book an aisle seat on flights, near the front.", "user_stated"),
    ("peanuts", "I am allergic to peanuts, please never suggest satay.", "user_stated"),
    ("city", "My sister Mia lives in Oslo.", "user_stated"),
    (
        "deploy",
        "Deploying the shop failed with ERR_SSL_VERSION_OR_CIPHER_MISMATCH.",
        "tool_verified",
    ),
    ("coffee", "Ada seems to drink coffee only before noon.", "agent_inferred"),
    ("gym", "I go to the gym on Tuesdays and Fridays.", "user_stated"),
    ("garden", "The tomatoes in the garden need water every second day.", "user_stated"),
)

ASKED = (
    "Which seat should you book on my flight?",
    "What was that ERR_SSL_VERSION_OR_CIPHER_MISMATCH about?",
    "Where does my sister live now?",
    "Who composed the opera Tosca?",
)


def session_a(path: Path) -> None:
    """Remember some things, correct one, and end."""
    with RecallStore(LocalStore(path)) as store:
        for key, text, source in TOLD:
            store.remember(NAMESPACE, text, key=key, source=source)
            print(f"  remembered {key:8}  {text}")
        store.correct(NAMESPACE, "city", "My sister Mia has moved, she lives in Bergen now.")
        print("  corrected  city      My sister Mia has moved, she lives in Bergen now.")


def session_b(path: Path) -> None:
    """Ask in a new process."""
    with RecallStore(LocalStore(path)) as store:
        for question in ASKED:
            print(f"\n  > {question}")
            show(store.recall(NAMESPACE, question))
        print(f"\n  Why not the gym?  {store.explain(NAMESPACE, 'gym', ASKED[0])}")
        print("  What was it before?")
        for memory in store.history(NAMESPACE, "city"):
            print(f"    {memory.status:10}  {memory.source:15}  {memory.text}")


def show(recall: Recall) -> None:
    """What was recalled and why, as a short table."""
    if recall.chosen:
        print("    score  relevance  cosine  words  source           memory")
    for scored in recall.chosen:
        evidence, memory = scored.evidence, scored.memory
        cosine = "-" if evidence.dense is None else f"{evidence.dense:.2f}"
        print(
            f"    {scored.score:5.2f}  {evidence.relevance:9.2f}  {cosine:>6}  "
            f"{evidence.coverage:5.0%}  {memory.source:15}  {memory.text}"
        )
    if not recall.chosen:
        print(f"    nothing: {recall.reason}")
    print(f"    {recall}")


def main() -> None:
    """Run both sessions, each in a process of its own."""
    if len(sys.argv) == 3:
        {"a": session_a, "b": session_b}[sys.argv[1]](Path(sys.argv[2]))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "memory.db"
        print("Session A tells the agent things; then its process ends.")
        subprocess.run([sys.executable, __file__, "a", str(path)], check=True)
        print("\nSession B asks in a new process.")
        subprocess.run([sys.executable, __file__, "b", str(path)], check=True)


if __name__ == "__main__":
    main()
