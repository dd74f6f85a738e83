from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain.agents import AgentState
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langgraph.graph import MessagesState
from pydantic import BaseModel

from langmem_recall.cue import (
    BLOCK_NAME,
    PART_CHARS,
    CueState,
    build_cue,
    identifiers,
    is_vague,
    latest_human,
    shorten,
    words_of,
)
from langmem_recall.errors import InputError
from langmem_recall.types import Cue

IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
CALL = {"name": "deploy", "args": {}, "id": "c1"}
TRACEBACK = """Traceback (most recent call last):
  File "/srv/app/billing/invoice.py", line 88, in total
    rate = rates[currency]
psycopg.errors.UndefinedTable: relation "invoices_2026" does not exist (SQLSTATE 42P01)
"""


def failed(text: str, status: str = "error") -> ToolMessage:
    return ToolMessage(text, tool_call_id="c1", status=status)


def summary(text: str) -> HumanMessage:
    return HumanMessage(text, additional_kwargs={"lc_source": "summarization"})


def test_a_full_state_gives_a_part_for_each_thing_it_says():
    state = {
        "messages": [
            SystemMessage("You are a careful operator."),
            HumanMessage("Deploy the billing service"),
            AIMessage("", tool_calls=[CALL]),
            failed("ConnectionError: host db-3 refused, see OPS-417"),
        ],
        "goal": "Ship release 4.2",
        "active_subtask": "Migrate the database",
        "open_loops": ["tell Ann", "close the ticket"],
        "task": "release",
    }
    assert build_cue(state) == Cue(
        text="Deploy the billing service",
        parts=(
            "Deploy the billing service",
            "Ship release 4.2",
            "Migrate the database",
            "tell Ann; close the ticket",
            "ConnectionError OPS-417",
        ),
        task="release",
    )


@pytest.mark.parametrize("state", [{}, {"messages": []}, {"messages": None, "goal": " "}])
def test_a_state_that_says_nothing_gives_an_empty_cue(state):
    assert build_cue(state) == Cue()


@pytest.mark.parametrize(
    "messages", [[], [SystemMessage("Be kind.")], [AIMessage("Hello, I am the assistant.")]]
)
def test_without_human_words_the_goal_is_all_there_is(messages):
    assert build_cue({"messages": messages, "goal": "Plan a trip"}) == Cue("", ("Plan a trip",))


def test_todos_stand_in_for_subtask_and_open_loops():
    todos = [
        {"content": "Read the logs", "status": "completed"},
        {"content": "Find the slow query", "status": "in_progress"},
        {"content": "Add an index", "status": "pending"},
        {"content": "Measure again", "status": "pending"},
    ]
    assert build_cue({"todos": todos}).parts == (
        "Find the slow query",
        "Add an index; Measure again",
    )
    told = {"todos": todos, "active_subtask": "Ask Bo", "open_loops": "lunch"}
    assert build_cue(told).parts == ("Ask Bo", "lunch")


@pytest.mark.parametrize(
    "state",
    [
        {"goal": 7, "active_subtask": {"a": 1}, "open_loops": [None, 3], "todos": "none"},
        {"todos": [None, "x", {}, {"status": "pending"}, {"content": 4, "status": "pending"}]},
        {"task": 12, "task_tag": ["a"]},
    ],
)
def test_fields_of_another_shape_are_passed_over(state):
    assert build_cue(state) == Cue()


def test_the_task_tag_is_the_task_by_another_name():
    assert build_cue({"task_tag": "release"}).task == "release"
    assert build_cue({"task": "", "task_tag": "release"}).task == "release"


def test_parts_that_say_the_same_are_searched_once():
    state = {"messages": [HumanMessage("Book the vet")], "goal": "book the vet", "open_loops": "b"}
    assert build_cue(state).parts == ("Book the vet", "b")


@dataclass
class DataState:
    messages: list[AnyMessage] = field(default_factory=list)
    goal: str = "Plan a trip"


class ModelState(BaseModel):
    messages: list[AnyMessage]
    goal: str = "Plan a trip"


@pytest.mark.parametrize(
    "state",
    [
        {"messages": [HumanMessage("Where to?")], "goal": "Plan a trip"},
        DataState([HumanMessage("Where to?")]),
        ModelState(messages=[HumanMessage("Where to?")]),
    ],
    ids=["dict", "dataclass", "pydantic"],
)
def test_a_state_may_be_a_mapping_a_dataclass_or_a_model(state):
    assert build_cue(state).parts == ("Where to?", "Plan a trip")


def test_cue_state_mixes_into_the_states_of_langchain_and_langgraph():
    class Agent(AgentState, CueState):
        pass

    class Graph(MessagesState, CueState):
        pass

    for mixed in (Agent, Graph):
        assert {"messages", "goal", "active_subtask", "open_loops", "task"} <= {
            *mixed.__annotations__
        }


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "user", "content": "Book the vet"}],
        [("system", "Be kind."), ("human", "Book the vet")],
        ["Book the vet"],
        "Book the vet",
        {"role": "user", "content": "Book the vet"},
        HumanMessage("Book the vet"),
        (HumanMessage("Book the vet"), AIMessage("Done.")),
    ],
    ids=["dict", "pairs", "texts", "text", "one dict", "one message", "tuple"],
)
def test_messages_may_have_any_form_langchain_accepts(messages):
    assert build_cue({"messages": messages}).text == "Book the vet"


@pytest.mark.parametrize("messages", [7, [7], [None], [{"role": "user"}], [("a", "b", "c")], [{}]])
def test_messages_that_cannot_be_read_are_an_input_error(messages):
    with pytest.raises(InputError, match="messages cannot be read, got"):
        build_cue({"messages": messages})


@pytest.mark.parametrize("state", [None, 7, "Book the vet", [HumanMessage("hi")], object()])
def test_what_is_no_state_is_an_input_error(state):
    with pytest.raises(InputError, match=f"got {type(state).__name__}"):
        build_cue(state)


def test_text_blocks_are_words_and_images_are_not():
    blocks = ["Whose dog", {"type": "text", "text": "is this?"}, IMAGE, {"type": "text"}]
    assert words_of(HumanMessage(blocks)) == "Whose dog\nis this?"
    assert build_cue({"messages": [HumanMessage(blocks)]}).parts == ("Whose dog is this?",)
    assert build_cue({"messages": [HumanMessage([IMAGE])]}) == Cue()


def test_an_image_alone_goes_back_to_the_words_before_it():
    messages = [
        HumanMessage("Which plants need shade?"),
        AIMessage("Ferns."),
        HumanMessage([IMAGE]),
    ]
    assert build_cue({"messages": messages}) == Cue("", ("Which plants need shade?",))


def test_blocks_and_summaries_are_nobodys_words():
    messages = [
        HumanMessage("Book the vet"),
        AIMessage("When?"),
        HumanMessage("<recalled-memories>", name=BLOCK_NAME),
        summary("Here is a summary of the conversation to date: tea"),
    ]
    assert latest_human(messages) == 0
    assert build_cue({"messages": messages}).text == "Book the vet"
    assert latest_human(messages[1:]) is None
    assert latest_human([]) is None


def test_a_summary_given_as_a_dict_is_a_summary():
    told = {
        "role": "user",
        "content": "So far",
        "additional_kwargs": {"lc_source": "summarization"},
    }
    assert build_cue({"messages": [told]}) == Cue()


@pytest.mark.parametrize(
    "words",
    [
        "yes, do it",
        "OK",
        "go on",
        "Why?",
        "and then?",
        "Sounds good, let's go with that!",
        "the second one, please",
        "2",
        "ok thanks",
        "mach weiter",
        "ja, bitte",
        "vas-y",
        "sí, adelante",
        "da",
        "да, давай",
        "はい、お願いします",
        "好的，继续",
        "네, 계속 해줘",
        "हाँ",
        "ใช่",
        "بله",
        "👍",
        "...",
        "",
    ],
)
def test_a_vague_follow_up_goes_back_to_the_words_before_it(words):
    messages = [
        HumanMessage("Find a vet for Rex"),
        AIMessage("Shall I book Dr. Moss?"),
        HumanMessage("thanks"),
        AIMessage("And the pills?"),
        HumanMessage("why?"),
        AIMessage("They ran out."),
        HumanMessage(words),
    ]
    assert build_cue({"messages": messages, "goal": "Keep Rex well"}) == Cue(
        words, ("Find a vet for Rex", "Keep Rex well")
    )


@pytest.mark.parametrize(
    "words",
    [
        "thanks!",
        "hello",
        "ありがとう",
        "Who am I?",
        "and Berlin?",
        "in May?",
        "PROJ-12?",
        "4711",
        "yes, book the vet",
        "Rex",
        "はい、犬です",
        "ok " * 30,
    ],
)
def test_words_of_their_own_are_not_vague(words):
    assert not is_vague(words)
    messages = [HumanMessage("Find a vet for Rex"), AIMessage("Done."), HumanMessage(words)]
    assert build_cue({"messages": messages}).parts == (words.strip(),)


def test_a_vague_first_answer_goes_back_to_what_the_model_asked():
    messages = [
        AIMessage("Hello. Shall I order the filters for the pump?"),
        AIMessage("", tool_calls=[CALL]),
        failed("done", status="success"),
        HumanMessage("yes"),
    ]
    assert build_cue({"messages": messages}) == Cue(
        "yes", ("Hello. Shall I order the filters for the pump?",)
    )


def test_a_vague_word_with_nothing_before_it_is_searched_itself():
    assert build_cue({"messages": [HumanMessage("ok")]}) == Cue("ok", ("ok",))


def test_only_the_newest_error_of_the_turn_counts():
    messages = [
        HumanMessage("Deploy"),
        failed("TimeoutError"),
        HumanMessage("Deploy it to staging"),
        AIMessage("", tool_calls=[CALL, CALL, CALL]),
        failed("KeyError: 'region'"),
        failed("ValueError: bad tag v1.9.0"),
        failed("OSError of a tool that went well", status="success"),
    ]
    assert build_cue({"messages": messages}).parts == ("Deploy it to staging", "ValueError v1.9.0")
    assert build_cue({"messages": messages[:3]}).parts == ("Deploy it to staging",)


def test_an_error_without_identifiers_adds_no_part():
    messages = [HumanMessage("Deploy it to staging"), failed("Something went wrong, try later.")]
    assert build_cue({"messages": messages}).parts == ("Deploy it to staging",)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (
            TRACEBACK,
            [
                "psycopg.errors.UndefinedTable",
                "SQLSTATE 42P01",
                "invoices_2026",
                "/srv/app/billing/invoice.py",
            ],
        ),
        ("Error: ValueError('no')\n Please fix your mistakes.", ["ValueError"]),
        ("connect ECONNREFUSED, ERR_BAD_REQUEST", ["ECONNREFUSED", "ERR_BAD_REQUEST"]),
        ("TS2345 and ORA-00942", ["TS2345", "ORA-00942"]),
        ("HTTP 503, status: 429", ["HTTP 503", "status: 429"]),
        ("[Errno 111] at 0x7f8c2a1b3c4d", ["Errno 111"]),
        ("needs numpy>=1.26, has v1.9, not 3.11.4", ["numpy>=1.26", "v1.9", "3.11.4"]),
        ("PROJ-88 is a copy of #12", ["PROJ-88", "#12"]),
        (r"in C:\work\app.py and src/app.ts", [r"C:\work\app.py", "src/app.ts"]),
        ("No module named 'wordllama'", ["wordllama"]),
        ("We waited 2.5 seconds and/or more on 03/04/2026, e.g. 12:00:01.5", []),
        ("ERROR: EXCEPTION!", []),
        ("", []),
    ],
)
def test_identifiers_are_what_a_search_finds_literally(text, names):
    assert sorted(identifiers(text)) == sorted(names)


def test_of_a_long_trace_only_its_ends_are_named():
    frames = "\n".join(f'  File "/app/module_{n}.py", line {n}' for n in range(400))
    assert identifiers(f"{frames}\nKeyError: 1") == [
        "KeyError",
        "/app/module_398.py",
        "/app/module_399.py",
        "/app/module_0.py",
        "/app/module_1.py",
    ]


def test_a_pasted_log_leaves_the_question():
    log = "\n".join(f"2026-03-04 12:00:{n:02} INFO worker {n} is idle" for n in range(60))
    text = f"The nightly job stopped.\n{log}\n{TRACEBACK}\nWhich database does staging use?"
    assert shorten(text) == (
        'The nightly job stopped. psycopg.errors.UndefinedTable: relation "invoices_2026" does not '
        "exist (SQLSTATE 42P01) Which database does staging use? /srv/app/billing/invoice.py"
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [("```py\n", "\n```"), ("~~~\n", "\n~~~"), ("> ", ""), ("    ", "")],
    ids=["fence", "tildes", "quote", "indent"],
)
def test_code_and_quotes_come_last(before, after):
    pasted = before + "total = sum(rows) or nothing at all " * 20 + after
    assert shorten(f"What is slow here?\n{pasted}\nI measured it.") == (
        "What is slow here? I measured it."
    )


def test_a_message_that_is_all_code_keeps_its_ends():
    short = shorten("```\n" + "alpha = beta\n" * 100 + "omega?\n```")
    assert len(short) <= PART_CHARS
    assert "omega?" in short


def test_a_long_message_keeps_first_last_and_question():
    filler = "This sentence is here to make the message a good deal longer than a part can be. "
    text = f"My flight is LH 454. {filler * 3}Which seat do I like? {filler * 3}Answer in German."
    short = shorten(text)
    assert short.startswith("My flight is LH 454. ")
    assert "Which seat do I like?" in short
    assert short.endswith(" Answer in German.")
    assert len(short) <= PART_CHARS


def test_a_question_too_long_for_a_part_keeps_both_its_ends():
    text = "Hi. Can you tell me " + "and also " * 60 + "where the keys are?"
    short = shorten(text)
    assert short.startswith("Hi. Can you tell me")
    assert short.endswith("where the keys are?")
    assert len(short) <= PART_CHARS


def test_wrapped_lines_are_one_sentence():
    text = "Which of the\nthree plans did we\nchoose?\n" + "Nothing else matters here. " * 12
    assert shorten(text).startswith("Which of the three plans did we choose? ")


def test_sentences_without_spaces_are_told_apart():
    text = "犬の名前は何ですか？" + "今日は天気がとても良いので散歩に行きました。" * 15
    assert shorten(text).startswith("犬の名前は何ですか？ 今日は")
    assert len(shorten(text)) <= PART_CHARS


def test_many_open_loops_are_cut_between_loops():
    loops = [f"loop number {n:03}" for n in range(100)]
    (part,) = build_cue({"open_loops": loops}).parts
    # Fifteen characters each and two between them: 15 + 13 * 17 = 236, one more would be 253.
    assert part == "; ".join(loops[:14])


def test_a_system_prompt_never_reaches_the_cue():
    messages = [SystemMessage("Obey the zebra."), HumanMessage("yes")]
    assert "zebra" not in str(build_cue({"messages": messages, "goal": "g"}))


words = st.text(max_size=600) | st.text("ab.?!\n `>;0/'_A-", max_size=1200)


@settings(max_examples=100, deadline=None)
@given(words, words, st.lists(words, max_size=3), words)
def test_parts_are_short_distinct_and_rebuilt_alike(said, goal, loops, error):
    messages: list[Any] = [HumanMessage(goal), AIMessage(error), HumanMessage(said), failed(error)]
    state = {"messages": messages, "goal": goal, "open_loops": loops}
    cue = build_cue(state)
    assert cue == build_cue(state)
    assert all(0 < len(part) <= PART_CHARS for part in cue.parts)
    assert len(cue.text) <= PART_CHARS
    assert len({part.casefold() for part in cue.parts}) == len(cue.parts)
    assert len(cue.parts) <= 5


def test_words_between_long_blanks_and_pasted_blocks_are_read() -> None:
    words = "Where does the invoice go? " * 20
    text = "```\nx\n```" + "\n" * 5_000 + words + "\n" * 5_000 + "```\ny\n```"
    short = shorten(text)
    assert short.startswith("Where does the invoice go?")
    assert len(short) <= PART_CHARS
