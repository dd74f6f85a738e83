"""`keep_citations=False` cleans the token stream, piece by piece, and still learns from it."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import Call
from hypothesis import example, given
from hypothesis import strategies as st
from langchain_core.language_models import BaseChatModel, GenericFakeChatModel
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.outputs import ChatGenerationChunk
from scripted import ADA, FLIGHT_WORDS, PATIENT, Chat, agent_of, facts, model_of

from langmem_recall import RecallMiddleware
from langmem_recall.agents.streaming import CitationFilter, with_clean_stream
from langmem_recall.agents.turn import handles_of
from langmem_recall.rendering import cited, without_citations

PIECES = st.lists(
    st.sampled_from(
        [
            *("[m1]", "[m2]", "[", "]", "(", ")", "m", "1", " ", "\t", ",", ";", "&", "and", "`"),
            *("```", "~~~", "\n", ".", "x", "word", "[m1, m2]", " ([m3])", "\u2028"),
            *("\n```py\n", "\n```\n"),
        ]
    ),
    max_size=14,
)


def streamed(text: str, pieces: list[str]) -> tuple[str, list[str]]:
    cleaner = CitationFilter()
    said = "".join(map(cleaner.feed, pieces))
    return said + cleaner.finish(), cleaner.handles


@given(PIECES)
@example(["Aisle ", "[", "m1", "]", "."])
@example(["see ", "`", "x[m1]", "`", " [m2]", "\n"])
@example(["```\n", "[m1]", "\n```", "\n", "[m2] ok"])
@example(["a ([m1] an", "d [m2])", " b"])
def test_a_stream_says_what_the_whole_answer_says_without_citations(pieces: list[str]) -> None:
    text = "".join(pieces)
    said, handles = streamed(text, pieces)
    assert said == without_citations(text)
    assert list(dict.fromkeys(handles)) == list(cited(text))
    letters = list(text)
    assert streamed(text, letters)[0] == said


def test_plain_words_are_not_kept_waiting() -> None:
    cleaner = CitationFilter()
    assert [cleaner.feed(piece) for piece in ("An ais", "le seat", " [", "m1", "]", ", then")] == [
        *("An ais", "le seat", "", "", "", ", then")
    ]
    assert cleaner.handles == []
    assert cleaner.finish() == ""
    assert cleaner.handles == ["m1"]


ANSWER = "Book an aisle seat [m1], as `seats[m1]` says [m1]."
CLEAN = "Book an aisle seat, as `seats[m1]` says."


@pytest.mark.parametrize("way", ["say", "stream"])
@pytest.mark.parametrize("cutting", ["first", "second", "both"])
def test_another_recall_learns_from_citations_that_one_takes_out(
    call: Call, cutting: str, way: str
) -> None:
    store, team = facts(), ("team", "shop")
    store.remember(team, "Flights are booked through Acme", key="acme", source="tool_verified")
    model = model_of(AIMessage("An aisle seat [m1], through Acme [m2]."))
    other = RecallMiddleware(team, keep_citations=cutting == "first", **PATIENT)
    chat = Chat(agent_of(model, store, middleware=[other], keep_citations=cutting == "second"))
    words = "Which seat should I book for my flight, and who books flights?"
    call(chat, way, words, *([["messages", "values"]] if way == "stream" else []))
    last = chat.graph.get_state(chat.config).values["messages"][-1]
    assert last.text == "An aisle seat, through Acme."
    store.flush()
    usages = store.inner.read_usage([(ADA, "seat"), (team, "acme"), (ADA, "peanuts")])
    assert [usage.merit for usage in usages] == [1, 1, 0]


@pytest.mark.parametrize("keep", [True, False])
def test_the_token_stream_has_citations_only_where_the_state_has_them(
    call: Call, keep: bool
) -> None:
    store = facts()
    chat = Chat(agent_of(model_of(AIMessage(ANSWER)), store, keep_citations=keep))
    parts = call(chat, "stream", FLIGHT_WORDS, ["messages", "values"])
    chunks = [part[0] for mode, part in parts if mode == "messages"]
    assert "".join(chunk.text for chunk in chunks) == (ANSWER if keep else CLEAN)
    assert len(chunks) > 5
    assert [part for mode, part in parts if mode == "values"][-1]["messages"][-1].text == (
        ANSWER if keep else CLEAN
    )
    store.flush()
    (usage,) = store.inner.read_usage([(ADA, "seat")])
    assert usage.merit == 1


def test_blocks_of_text_are_cleaned_each_by_itself() -> None:
    class Blocks(GenericFakeChatModel):
        def _stream(self, *args: Any, **kwargs: Any) -> Any:
            for block, text in ((0, "An aisle "), (1, "seat [m"), (0, "[m2] x"), (1, "1] y")):
                content = [{"type": "text", "text": text, "index": block}]
                yield ChatGenerationChunk(message=AIMessageChunk(content=content))

    whole = None
    for chunk in with_clean_stream(Blocks(messages=iter([]))).stream("hi"):
        whole = chunk if whole is None else whole + chunk
    assert [block["text"] for block in whole.content] == ["An aisle x", "seat y"]
    assert sorted(handles_of(whole)) == ["m1", "m2"]


def test_a_model_that_does_not_stream_is_left_alone() -> None:
    class Whole(model_of().__class__):  # type: ignore[misc]
        _stream = BaseChatModel._stream

    silent = Whole(script=["An aisle seat [m1]."], seen=[])
    assert with_clean_stream(silent) is silent
