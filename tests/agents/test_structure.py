"""What holds without a guard: where text of others may stand, and what it may set off."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from langchain_core.messages import AIMessage
from langgraph.store.memory import InMemoryStore
from scripted import ADA, Chat, agent_of, blocks, calls, lines, model_of, texts

from langmem_recall import RecallStore
from langmem_recall.guard.judge import allow_all
from langmem_recall.text.invisible import strip_hidden
from langmem_recall.types import Source

DATA = Path(__file__).parents[1] / "data" / "guard"
SAID = "What is there to know before my flight?"
SOURCES: dict[str, Source] = {"external": "external", "inferred": "agent_inferred"}


def attacks(half: str) -> list[tuple[str, Source]]:
    rows = (DATA / f"{half}.jsonl").read_text("utf-8").split("\n")
    found = [json.loads(row) for row in rows if row]
    return [(row["text"], SOURCES[row["source"]]) for row in found if row["label"] == "attack"]


@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("half", ["seen", "unseen"])
def test_no_attack_acts_unasked_or_stands_outside_its_labelled_line(half: str, part: int) -> None:
    some = attacks(half)[part::4]
    assert len(some) >= 60
    for text, source in some:
        store = RecallStore(InMemoryStore(), guard=allow_all)
        # Pinned, so that it is shown whatever is asked.
        store.remember(ADA, text, key="k", source=source, pinned=True)
        model = model_of(calls("1", name="pay"), AIMessage("Done."))
        out = Chat(agent_of(model, store, gate_tools=("pay",), budget=20_000)).say(SAID)

        # A gated tool asks first.
        assert "__interrupt__" in out, text
        assert [message for message in out["messages"] if message.type == "tool"] == []
        (seen,) = model.seen
        # The system prompt and the user's message are as they were.
        (block,) = blocks(seen)
        assert [one for one in texts(seen) if one != block] == ["Be kind.", SAID]
        assert seen[0].type == "system"
        # One line of JSON within the delimiters has all of it, labelled by who said it.
        (line,) = lines(block)
        words = "external" if source == "external" else "inferred"
        assert words in line["label"], line["label"]
        assert "user stated" not in line["label"]
        assert line["text"].split() == strip_hidden(text).split(), text
