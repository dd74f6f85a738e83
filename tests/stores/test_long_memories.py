"""A long memory is found by what it says in one place: it is also embedded in pieces."""

import io

import pytest
from langgraph.store.memory import InMemoryStore
from langgraph.store.postgres import PostgresStore

from langmem_recall.guard.judge import Span, Verdict
from langmem_recall.memory.value import PIECES, windows_of
from langmem_recall.stores.local.store import LocalStore
from langmem_recall.stores.recall_store import RecallStore
from langmem_recall.stores.transfer import export_jsonl

ANN = ("users", "ann")
CUE = "Who takes care of the parrot while Ann is away?"
WHERE = "The parrot goes to Ivo in the holidays, he has the large cage already."
PADDING = [
    f"In paragraph {n} the minutes go on about the budget of the club, the new roof, who pays for "
    f"the coffee in week {n}, and whether the fence by the road should be painted green or brown."
    for n in range(16)
]
LONG = "\n".join([*PADDING[:8], WHERE, *PADDING[8:]])
SHORT = "The minutes were thrown away after the meeting in May."


def index(embeddings, **fields):
    return {"dims": 256, "embed": embeddings, **fields}


@pytest.fixture(params=["local", "memory", "memory, whole values", "postgres"])
def store(request, embeddings):
    if request.param == "local":
        yield RecallStore(LocalStore(embeddings=embeddings))
    elif request.param == "postgres":
        uri = request.getfixturevalue("postgres")
        config = index(embeddings, fields=["content"])
        with PostgresStore.from_conn_string(uri, index=config) as inner:
            store = RecallStore(inner)
            store.setup()
            yield store
    else:
        fields = {} if "whole" in request.param else {"fields": ["content"]}
        yield RecallStore(InMemoryStore(index=index(embeddings, **fields)))


def nearest(store):
    """The best cosine that a memory of the store has with the cue."""
    return max(item.similarity for item in store.search(ANN, query=CUE))


def test_one_sentence_of_a_long_memory_is_as_near_as_it_would_be_in_a_piece(store, embeddings):
    # 17 paragraphs of about 170 characters, two to a piece of at most 400.
    assert len(windows_of(LONG)) == 9
    store.remember(ANN, LONG, key="minutes", source="user_stated")

    def cosine(text):
        cue, vector = embeddings.inner.embed_documents([CUE, text])
        return sum(a * b for a, b in zip(cue, vector, strict=True))

    best = max(map(cosine, windows_of(LONG)))
    assert best > cosine(LONG) + 0.1
    assert nearest(store) == pytest.approx(best, abs=1e-4)


def test_pieces_of_a_former_text_are_not_found(store):
    store.remember(ANN, LONG, key="minutes", source="user_stated")
    before = nearest(store)
    store.remember(ANN, SHORT, key="minutes", source="user_stated")
    assert nearest(store) < before - 0.1
    (found,) = store.recall(ANN, "Which minutes were thrown away?").memories
    assert found.text == SHORT


def test_a_short_memory_has_no_pieces(store):
    store.remember(ANN, WHERE, key="parrot", source="user_stated")
    assert PIECES not in store.get(ANN, "parrot").value


def test_pieces_stay_in_the_store_they_were_made_for(store):
    store.remember(ANN, LONG, key="minutes", source="user_stated")
    lines = io.StringIO()
    export_jsonl(store, lines)
    assert lines.getvalue().count("parrot") == 1


def test_of_a_masked_memory_no_piece_shows_what_is_withheld(embeddings):
    start = LONG.index(WHERE)
    span = Span(start, start + len(WHERE), "test", "high")
    inner = InMemoryStore(index=index(embeddings, fields=["content"]))
    store = RecallStore(inner, guard=lambda text, source: Verdict("mask", spans=(span,)))
    store.remember(ANN, LONG, key="minutes", source="external")
    (item,) = store.search(ANN, query="the budget of the club")
    assert "parrot" not in str(item.value)


def test_more_vectors_ask_for_more_evidence(embeddings):
    plain = RecallStore(InMemoryStore(index=index(embeddings, fields=["content"])))
    parted = RecallStore(InMemoryStore(index=index(embeddings, fields=["content"])))
    for store in (plain, parted):
        store.remember(ANN, WHERE, key="parrot", source="user_stated")
    parted.remember(ANN, "\n".join(PADDING), key="minutes", source="user_stated")
    plain.remember(ANN, PADDING[0], key="minutes", source="user_stated")

    def relevance(store):
        scored = store.explain(ANN, "parrot", "Where is the bird in summer?").scored
        return scored.signals.relevance

    assert relevance(parted) < relevance(plain)
