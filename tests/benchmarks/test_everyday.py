"""The everyday benchmark: what its data must hold to mean what the table says."""

from __future__ import annotations

from argparse import Namespace
from collections import Counter

import numpy as np
import pytest
from everyday import DATA, ME, PERSONAS, lines, questions, store_of

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


@pytest.mark.parametrize("persona", PERSONAS[False])
def test_notes_sorted_by_subject_are_recalled_like_notes_in_any_order(persona: str) -> None:
    chosen, embeddings = Namespace(store="local", asked_as=False, test=False), LocalEmbeddings()
    notes = lines(f"{persona}_memories.jsonl")
    vectors = np.array(embeddings.embed_documents([note["text"] for note in notes]))
    nearness, chain = vectors @ vectors.T, [0]
    while len(chain) < len(notes):
        nearness[:, chain[-1]] = -1.0
        chain.append(int(np.argmax(nearness[chain[-1]])))
    given = store_of(persona, chosen, embeddings, notes)
    by_subject = store_of(persona, chosen, embeddings, [notes[place] for place in chain])
    for cue in lines(f"{persona}_cues.jsonl"):
        some, others = (store.recall(ME, cue["cue"]).memories for store in (given, by_subject))
        assert {memory.key for memory in some} == {memory.key for memory in others}, cue
    given.close()
    by_subject.close()


def test_what_the_adapters_were_learned_from_is_in_no_set_that_is_measured_on() -> None:
    def runs(text: str) -> set[tuple[str, ...]]:
        words = text.lower().split()
        return {tuple(words[place : place + 5]) for place in range(len(words) - 4)}

    personas = [persona for both in PERSONAS.values() for persona in both]
    cues = [row["cue"] for persona in personas for row in lines(f"{persona}_cues.jsonl")]
    cues += [row["cue"] for row in lines("far_first_person.jsonl")]
    notes = [row["text"] for persona in personas for row in lines(f"{persona}_memories.jsonl")]
    measured = set[tuple[str, ...]]().union(*map(runs, [*cues, *notes]))
    learned = lines("asked.jsonl")
    assert len(learned) > 1_000
    for row in learned:
        assert all(map(measured.isdisjoint, map(runs, [row["note"], *row["asks"]])))
    off_topic = (DATA / "off_topic.txt").read_text("utf-8").splitlines()
    assert {cue.lower().strip("?.! ") for cue in cues}.isdisjoint(
        cue.lower().strip("?.! ") for cue in off_topic
    )
