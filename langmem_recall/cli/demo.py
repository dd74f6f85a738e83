"""`langmem-recall demo`: a few memories, a few cues, and why each memory was recalled or not."""

from __future__ import annotations

from rich.console import Console

from langmem_recall.cli.output import AsJson, Output, deliver
from langmem_recall.types import Source

NAMESPACE = ("memories", "ada")
MEMORIES: tuple[tuple[str, str, Source], ...] = (
    ("seat", "I always book an aisle seat on flights, near the front.", "user_stated"),
    ("peanuts", "I am allergic to peanuts, please never suggest satay.", "user_stated"),
    ("sister", "My sister Mia lives in Bergen.", "user_stated"),
    ("deploy", "Deploying the shop failed with ERR_SSL_VERSION_MISMATCH.", "tool_verified"),
    ("gym", "Ada seems to go to the gym on Tuesdays.", "agent_inferred"),
)
CUES = (
    "Which seat should you book on my flight?",
    "What was that ERR_SSL_VERSION_MISMATCH about?",
    "Where does my sister live?",
    "Who composed the opera Tosca?",
)


def demo_command(as_json: AsJson = False, output: Output = None) -> None:
    """Remember five things, ask four, and see what is recalled and why.

    All of it happens in memory: no key, no server, no file.
    """
    from langmem_recall.stores.local.store import LocalStore
    from langmem_recall.stores.recall_store import RecallStore

    with RecallStore(LocalStore()) as store:
        for key, text, source in MEMORIES:
            store.remember(NAMESPACE, text, key=key, source=source)
        recalls = [store.recall(NAMESPACE, cue) for cue in CUES]
        why_not = str(store.explain(NAMESPACE, "gym", CUES[0]))
    record = {
        "memories": [dict(zip(("key", "text", "source"), each, strict=True)) for each in MEMORIES],
        "recalls": [
            {
                "cue": recall.trace.cue.text,
                "recalled": [memory.key for memory in recall.memories],
                "trace": str(recall),
            }
            for recall in recalls
        ],
        "why_not": why_not,
    }

    def show(screen: Console) -> None:
        screen.print("Remembered:")
        for _, text, source in MEMORIES:
            screen.print(f"  {source:15} {text}")
        for recall in recalls:
            screen.print(f"\n> {recall.trace.cue.text}")
            for scored in recall.chosen:
                screen.print(f"  relevance {scored.signals.relevance:.2f}  {scored.memory.text}")
            screen.print(f"  {recall}")
        screen.print(f"\nWhy not the gym?  {why_not}\n")
        screen.print("Next: RecallStore(LocalStore('memory.db')) keeps it; langmem-recall --help.")

    deliver(record, show, as_json, output)
