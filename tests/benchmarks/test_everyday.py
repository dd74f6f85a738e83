"""The everyday benchmark: what its data must hold to mean what the table says."""

from __future__ import annotations

from argparse import Namespace
from collections import Counter

import pytest
from everyday import PERSONAS, lines, questions, store_of

from langmem_recall.embeddings import LocalEmbeddings


def test_tool_questions_name_notes_of_their_persona_and_five_ask_for_what_is_not_stored() -> None:
    asked = lines("tool_questions.jsonl")
    assert Counter(one["half"] for one in asked) == {"seen": 12, "unseen": 13}
    assert sum(not one["relevant"] for one in asked) == 5
    homes = {persona.partition("_")[2]: persona for some in PERSONAS.values() for persona in some}
    for one in asked:
        notes = {note["key"] for note in lines(f"{homes[one['persona']]}_memories.jsonl")}
        assert notes.issuperset(one["relevant"]), one


@pytest.mark.parametrize("is_test", [False, True])
def test_questions_are_asked_of_the_real_tool(is_test: bool) -> None:
    chosen = Namespace(store="local", asked_as=True, test=is_test)
    rows = []
    for persona in PERSONAS[is_test]:
        store = store_of(persona, chosen, LocalEmbeddings())
        rows += questions(store, persona)
        store.close()
    half = "unseen" if is_test else "seen"
    stored = [is_right for name, is_right, _ in rows if name == f"tool ({half})"]
    assert (len(rows), len(stored)) == ((13, 10) if is_test else (12, 10))
    assert sum(stored) >= 7
