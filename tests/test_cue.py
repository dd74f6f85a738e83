from __future__ import annotations

from dataclasses import dataclass, field, replace
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
    MOST_PARTS,
    PART_CHARS,
    CueState,
    as_cue,
    build_cue,
    identifiers,
    is_small_talk,
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
        "same as before",
        "Great, thanks! Go ahead.",
        "yes, thanks",
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
        "Who am I?",
        "and Berlin?",
        "in May?",
        "PROJ-12?",
        "4711",
        "yes, book the vet",
        "Rex",
        "はい、犬です",
    ],
)
def test_words_of_their_own_are_not_vague(words):
    assert not is_vague(words)
    messages = [HumanMessage("Find a vet for Rex"), AIMessage("Done."), HumanMessage(words)]
    assert build_cue({"messages": messages}).parts[0] == words


@pytest.mark.parametrize("words", ["Who am I?", "Am I allergic to peanuts?", "book the vet"])
def test_a_short_message_with_a_subject_of_its_own_does_not_bring_the_last_one_back(words):
    messages = [HumanMessage("Which seat on my flight?"), AIMessage("Aisle."), HumanMessage(words)]
    assert build_cue({"messages": messages}).parts == (words,)


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
        HumanMessage("Deploy the billing service to staging"),
        AIMessage("", tool_calls=[CALL, CALL, CALL]),
        failed("KeyError: 'region'"),
        failed("ValueError: bad tag v1.9.0"),
        failed("OSError of a tool that went well", status="success"),
    ]
    words = "Deploy the billing service to staging"
    assert build_cue({"messages": messages}).parts == (words, "ValueError v1.9.0")
    assert build_cue({"messages": messages[:3]}).parts == (words,)


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
    assert len(cue.reasons) == len(cue.parts)
    # The words, what they follow up, goal, loops and error.
    assert len(cue.parts) <= MOST_PARTS + 1 + 3


def test_words_between_long_blanks_and_pasted_blocks_are_read() -> None:
    words = "Where does the invoice go? " * 20
    text = "```\nx\n```" + "\n" * 5_000 + words + "\n" * 5_000 + "```\ny\n```"
    short = shorten(text)
    assert short.startswith("Where does the invoice go?")
    assert len(short) <= PART_CHARS


@pytest.mark.parametrize(
    "words",
    [
        "thanks!",
        "Ok, thanks a lot",
        "Hello",
        "Good morning! How are you today?",
        "lol that's funny",
        "haha",
        "never mind",
        "Sounds good, see you tomorrow!",
        "Thank you so much, that helps a lot.",
        "Sorry to bother you. Bye!",
        "Vielen Dank für die Hilfe!",
        "Guten Morgen",
        "Merci beaucoup pour votre aide",
        "¡Muchas gracias! Hasta mañana.",
        "ありがとう",
        "Thanks, Tom!",
        "Good night Maria",
    ],
)
def test_small_talk_asks_for_nothing(words):
    messages = [HumanMessage("Find a vet for Rex"), AIMessage("Done."), HumanMessage(words)]
    assert is_small_talk(words)
    assert build_cue({"messages": messages}) == Cue()
    assert build_cue({"messages": words, "goal": "Keep Rex well"}) == Cue("", ("Keep Rex well",))


def test_a_builders_words_ask_for_nothing_where_they_are_courtesies_alone():
    assert as_cue("Thanks a lot!") == Cue("Thanks a lot!", parts=("",))
    assert as_cue("Hello there").reasons == ("small talk",)
    assert as_cue("Hello Kitty") == Cue("Hello Kitty")
    assert as_cue("Thanks, where is my passport?") == Cue("Thanks, where is my passport?")


@pytest.mark.parametrize(
    "words",
    [
        "Where is my boat?\n\nBest regards,\nAnna",
        "Where is my boat? Yours gratefully, Desmond Clarke",
        "Hi Claude, Where is my boat?\nCheers\nTom",
        "Dear Claude,\nWhere is my boat? With kind regards, Mrs. Smith",
        "Good morning Claude! Where is my boat? Viele Grüße, Jana",
    ],
)
def test_who_is_greeted_and_who_signs_is_not_searched_for(words):
    assert build_cue({"messages": words}).parts == ("Where is my boat?",)


@pytest.mark.parametrize(
    "words",
    [
        "",
        "👍",
        "yes",
        "Sorry, is it today?",
        "hello world in Rust",
        "Thanks for the vet's number",
        "Hi, table 4",
        "Thanks, tomato soup",
    ],
)
def test_words_beside_a_courtesy_are_no_small_talk(words):
    assert not is_small_talk(words)


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ("Hi! Could you please remind me where Mia lives? Thanks!", "where Mia lives?"),
        ("Hello, would you mind telling me what Rex eats?", "what Rex eats?"),
        ("Good day. May I ask you, please, who owns the car? Kind regards", "who owns the car?"),
        ("I'd be very grateful if you could let me know my shoe size.", "my shoe size."),
        ("ok so anyway, where does Mia live, please?", "where does Mia live?"),
        ("Quick question: where does Mia live?", "where does Mia live?"),
        ("Hallo, könntest du mir bitte sagen, wo Mia wohnt? Danke!", "wo Mia wohnt?"),
        ("Bonjour ! Pourriez-vous me dire où habite Mia ?", "où habite Mia ?"),
        ("Hola, ¿podrías decirme dónde vive Mia? Gracias.", "dónde vive Mia?"),
        ("Please?", "Please?"),
    ],
)
def test_politeness_does_not_dilute_the_question(words, part):
    assert build_cue({"messages": words}).parts == (part,)


def test_each_sentence_is_a_part_and_the_question_comes_first():
    cue = build_cue(
        {
            "messages": "Haha, the train was late. Phew. I met Dr. Moss on the 3. floor. "
            "When does the book club meet? Nobody told me."
        }
    )
    assert cue.parts == (
        "When does the book club meet?",
        "the train was late. I met Dr. Moss on the 3. floor.",
        "Nobody told me.",
    )
    assert cue.reasons == ("question", "latest words", "latest words")


def test_of_a_long_message_the_questions_and_its_ends_are_searched():
    told = [
        f"Number {n} of the things that I wanted to say takes {'many ' * 20}words."
        for n in range(9)
    ]
    parts = build_cue({"messages": " ".join([*told, "Where are the keys?"])}).parts
    assert parts == ("Where are the keys?", told[0], told[8], told[1])
    asked = [f"Where is the key of door {n}00?" for n in range(1, 8)]
    assert build_cue({"messages": " ".join(asked)}).parts == (*asked[:3], asked[6])


@pytest.mark.parametrize(
    "pasted",
    [
        "```diff\n- timeout = 5\n+ timeout = 10\n```",
        "- timeout = 5\n+ timeout = 10",
        "| name | value |\n|---|---|\n| retries | 3 |",
        "> you said that it works",
        "2026-03-04 12:00:01 INFO worker is idle",
        "$ make test",
    ],
    ids=["fence", "diff", "table", "quote", "log", "shell"],
)
def test_pasted_text_is_no_part_beside_other_text(pasted):
    assert build_cue({"messages": f"{pasted}\nWhy does the job fail?"}).parts == (
        "Why does the job fail?",
    )
    assert build_cue({"messages": pasted}).parts == (" ".join(pasted.split()),)


def test_identifiers_of_pasted_text_are_one_part():
    cue = build_cue({"messages": f"What did we do about it last time?\n```\n{TRACEBACK}```"})
    assert cue.parts == (
        "What did we do about it last time?",
        "psycopg.errors.UndefinedTable SQLSTATE 42P01 invoices_2026 /srv/app/billing/invoice.py",
    )
    assert cue.reasons == ("question", "pasted text")


@pytest.mark.parametrize(
    ("before", "words", "parts"),
    [
        ("Where does Mia live?", "And what is her job?", None),
        ("My blood pressure worries me.", "What was it last time?", None),
        ("Wo wohnt Mia?", "Und was ist ihr Beruf?", None),
        ("Où habite Mia ?", "Quel est son métier ?", None),
        ("¿Dónde vive Mia?", "¿Y cuál es su trabajo?", None),
        ("I need feature flags.", "Under which project?", None),
        ("The search index looks stale.", "where does that run?", ("joined",)),
        ("Where does Mia live?", "Which tyres did we choose for the Volvo?", ("own",)),
    ],
)
def test_a_follow_up_is_searched_with_what_it_refers_to(before, words, parts):
    cue = build_cue({"messages": [("user", before), ("assistant", "Well."), ("user", words)]})
    texts = {"own": words, "joined": f"{before} {words}"}
    assert cue.parts == tuple(texts[name] for name in parts or texts)


def test_a_follow_up_to_a_follow_up_goes_back_to_both():
    messages = [("user", "Where does my sister Mia live?"), ("user", "And her job?")]
    cue = build_cue({"messages": [*messages, ("user", "thanks"), ("user", "Since when?")]})
    assert cue.parts[-1] == "Where does my sister Mia live? And her job? Since when?"
    assert cue.reasons[-1] == "follow-up to the previous words"


@pytest.mark.parametrize(
    "text",
    [
        "Error: ERR_CERT_DATE_INVALID while deploying",
        "deploying ...\nERROR: ERR_CERT_DATE_INVALID",
        "Traceback (most recent call last):\n  ERR_CERT_DATE_INVALID",
        "ssl.SSLError: ERR_CERT_DATE_INVALID",
        "The deploy failed with ERR_CERT_DATE_INVALID",
        "HTTP 503 ERR_CERT_DATE_INVALID",
        '{"status": 502, "detail": "ERR_CERT_DATE_INVALID"}',
        '{"error": "ERR_CERT_DATE_INVALID"}',
        "ERR_CERT_DATE_INVALID\nexit code 1",
    ],
)
def test_a_tool_that_says_it_failed_has_failed(text):
    messages = [HumanMessage("Ship the billing service today"), failed(text, status="success")]
    cue = build_cue({"messages": messages})
    assert "ERR_CERT_DATE_INVALID" in cue.parts[1]
    assert cue.reasons == ("latest words", "tool error")


@pytest.mark.parametrize(
    "text",
    [
        "HTTP 200, ERR_CERT_DATE_INVALID is documented here",
        "12 passed, 0 failed: ERR_CERT_DATE_INVALID",
        '{"error": null, "name": "ERR_CERT_DATE_INVALID"}',
        "ERR_CERT_DATE_INVALID\nexit code 0",
    ],
)
def test_a_tool_that_went_well_adds_no_part(text):
    messages = [HumanMessage("Ship the billing service today"), failed(text, status="success")]
    assert build_cue({"messages": messages}).reasons == ("latest words",)


def test_what_is_remembered_of_a_failure_is_no_failure():
    text = "The deploy failed with ERR_CERT_DATE_INVALID"
    recalled = ToolMessage(text, tool_call_id="c1", name="recall")
    messages = [HumanMessage("Ship the billing service today"), recalled]
    assert build_cue({"messages": messages}).reasons == ("latest words",)


def test_a_todo_of_one_word_is_no_part():
    todos = [
        {"content": "Research", "status": "in_progress"},
        {"content": "test", "status": "pending"},
        {"content": "OPS-417", "status": "pending"},
    ]
    assert build_cue({"todos": todos}).parts == ("OPS-417",)


def test_the_reasons_follow_the_parts_and_say_nothing_of_what_is_searched():
    state = {"messages": "Where does Mia live?", "goal": "Plan a trip", "open_loops": ["a visa"]}
    cue = build_cue(state)
    assert cue.reasons == ("question", "goal", "open loop")
    assert replace(cue, task="trip").reasons == cue.reasons
    assert cue == replace(cue, reasons=())


@pytest.mark.parametrize(
    ("sentence", "parts"),
    [
        (
            "When is my dentist appointment and where did I park the car?",
            ("When is my dentist appointment?", "where did I park the car?"),
        ),
        (
            "What is the wifi password, and also which plan are we on?",
            ("What is the wifi password?", "which plan are we on?"),
        ),
        (
            "Wann ist der Zahnarzt und wo steht das Auto?",
            ("Wann ist der Zahnarzt?", "wo steht das Auto?"),
        ),
        (
            "Quand est le dentiste et où est la voiture de Paul?",
            ("Quand est le dentiste?", "où est la voiture de Paul?"),
        ),
        (
            "¿Cuándo es la cita y dónde está el coche?",
            ("¿Cuándo es la cita?", "dónde está el coche?"),
        ),
    ],
)
def test_two_questions_in_one_sentence_are_two_parts(sentence, parts):
    cue = build_cue({"messages": [HumanMessage(sentence)]})
    assert (cue.text, cue.parts) == (sentence, parts)
    assert cue.reasons == ("question", "question")


@pytest.mark.parametrize(
    "sentence",
    [
        "Who is my dentist and when do they open?",
        "Who is my sister's husband and when is her birthday?",
        "Which bread and butter should we buy?",
        "What is new and when was that?",
    ],
)
def test_a_question_about_what_the_first_one_names_stays_with_it(sentence):
    assert build_cue({"messages": [HumanMessage(sentence)]}).parts == (sentence,)


@pytest.mark.parametrize(
    ("words", "refers"),
    [
        ("No no. My sort of thing", True),
        ("ok done. and Delyth, how did she want hers sent?", True),
        ("Thanks. Which wine goes with the roast lamb on Sunday?", False),
    ],
)
def test_a_message_that_begins_by_answering_leans_on_what_was_said(words, refers):
    before = [HumanMessage("Put twenty songs together for me"), AIMessage("Gladly: ...")]
    cue = build_cue({"messages": [*before, HumanMessage(words)]})
    assert any("twenty songs" in part for part in cue.searched) is refers


def test_no_ends_a_sentence_unless_a_number_follows():
    cue = build_cue({"messages": [HumanMessage("No. The boiler of flat no. 7 leaks again.")]})
    assert cue.searched[0] == "The boiler of flat no. 7 leaks again."


def test_excuses_for_a_long_message_are_no_part_of_it():
    words = "Hiya, sorry this is long. I have two questions. Where does the tent pole go?"
    cue = build_cue({"messages": [HumanMessage(words)]})
    assert cue.searched == ("Where does the tent pole go?",)
