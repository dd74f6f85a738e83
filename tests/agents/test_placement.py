import itertools
from typing import get_args

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    FunctionMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

from langmem_recall.agents.placement import (
    BLOCK_NAME,
    Block,
    Placement,
    last_tool_result,
    message_keys,
    place,
)

PLACEMENTS = get_args(Placement)
STABLE = ("before_turn", "start", "in_turn")


def human(text, id=None, **more):
    return HumanMessage(text, id=id, **more)


def ai(text="", calls=(), id=None):
    made = [{"name": "look", "args": {}, "id": call} for call in calls]
    return AIMessage(text, tool_calls=made, id=id)


def result(call, text="found", id=None):
    return ToolMessage(text, tool_call_id=call, id=id)


def message_key(messages, index):
    return message_keys(messages)[index]


def told(messages):
    """A conversation in short: what each message says, blocks in angle brackets."""
    return [shown(message) for message in messages]


def shown(message):
    if message.name == BLOCK_NAME:
        return f"<{message.content}>"
    calls = ",".join(call["id"] for call in getattr(message, "tool_calls", ()))
    return f"{message.content}({calls})" if calls else message.content


SYSTEM = SystemMessage("system")
TURN_1 = [human("one", "h1"), ai("a1", id="a1")]
TURN_2 = [human("two", "h2"), ai("", ["x"], "a2"), result("x", id="r2"), ai("a3", id="a3")]
TURN_3 = [human("three", "h3"), ai("", ["x", "y"], "a4"), result("x"), result("y", id="r4")]
THREE_TURNS = [SYSTEM, *TURN_1, *TURN_2, *TURN_3]
NOW = Block("now", "h3")
PAST = [Block("past 1", "h1"), Block("past 2", "h2")]


@pytest.mark.parametrize(
    ("placement", "expected"),
    [
        (
            "before_turn",
            "system one a1 two (x) found a3 <now> three (x,y) found found",
        ),
        ("end", "system one a1 two (x) found a3 three (x,y) found found <now>"),
        ("start", "system <now> one a1 two (x) found a3 three (x,y) found found"),
    ],
)
def test_a_block_alone_stands_where_its_placement_says(placement, expected):
    assert " ".join(told(place(THREE_TURNS, [NOW], placement))) == expected


@pytest.mark.parametrize(
    ("placement", "expected"),
    [
        (
            "before_turn",
            "system <past 1> one a1 <past 2> two (x) found a3 <now> three (x,y) found found",
        ),
        (
            "end",
            "system one <past 1> a1 two (x) found <past 2> a3 three (x,y) found found <now>",
        ),
        (
            "start",
            "system <past 1> <past 2> <now> one a1 two (x) found a3 three (x,y) found found",
        ),
    ],
)
def test_past_blocks_stand_where_they_stood_when_their_turn_was_answered(placement, expected):
    assert " ".join(told(place(THREE_TURNS, [*PAST, NOW], placement))) == expected


def test_a_block_is_a_user_message_with_a_name():
    (block,) = place([], [Block("now", "gone")], "end")
    assert isinstance(block, HumanMessage)
    assert (block.content, block.name) == ("now", BLOCK_NAME)


def test_in_turn_the_block_ends_a_copy_of_the_human_message():
    message = human("three", "h3", name="ann", additional_kwargs={"mark": 1})
    (copy,) = place([message], [NOW, Block("more", "h3")], "in_turn")
    assert copy.content == [
        {"type": "text", "text": "three"},
        {"type": "text", "text": "now"},
        {"type": "text", "text": "more"},
    ]
    assert (copy.id, copy.name, copy.additional_kwargs) == ("h3", "ann", {"mark": 1})
    assert message.content == "three"


def test_in_turn_keeps_the_content_blocks_of_the_human_message():
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    content = ["look", picture]
    message = human(content, "h3")
    (copy,) = place([message], [NOW], "in_turn")
    assert copy.content == ["look", picture, {"type": "text", "text": "now"}]
    assert message.content == ["look", picture]


def test_in_turn_adds_no_empty_text_to_a_message_without_words():
    (copy,) = place([human("", "h3")], [NOW], "in_turn")
    assert copy.content == [{"type": "text", "text": "now"}]


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_a_second_block_comes_after_the_tool_result_and_the_first_stays(placement):
    messages = [human("three", "h3"), ai("", ["x"]), result("x", id="r")]
    first = place(messages, [NOW], placement)
    both = place(messages, [NOW, Block("then", "h3", after="r")], placement)
    assert shown(both[-1]) == "<then>"
    assert both[:-1] == first
    grown = place([*messages, ai("done")], [NOW, Block("then", "h3", after="r")], placement)
    assert told(grown)[-2:] == (["done", "<now>"] if placement == "end" else ["<then>", "done"])


def test_a_block_after_one_of_several_results_waits_for_the_others():
    messages = [human("go", "h"), ai("", ["x", "y"]), result("x", id="rx"), result("y"), ai("ok")]
    placed = place(messages, [Block("then", "h", after="rx")], "before_turn")
    assert told(placed) == ["go", "(x,y)", "found", "found", "<then>", "ok"]


def test_a_block_after_a_message_that_is_gone_goes_to_its_turn():
    placed = place([human("go", "h"), ai("ok")], [Block("then", "h", after="gone")], "before_turn")
    assert told(placed) == ["<then>", "go", "ok"]


def test_at_the_end_a_call_without_its_results_comes_after_the_block():
    messages = [human("go", "h"), ai("", ["x", "y"]), result("x")]
    assert told(place(messages, [Block("now", "h")], "end")) == ["go", "<now>", "(x,y)", "found"]


def test_a_human_message_between_call_and_result_does_not_split_them():
    messages = [human("go", "h"), ai("", ["x"]), human("wait", "h2"), result("x"), ai("ok")]
    placed = place(messages, [Block("now", "h2")], "before_turn")
    assert told(placed) == ["go", "<now>", "(x)", "wait", "found", "ok"]


def test_a_call_that_was_never_answered_binds_nothing_after_the_next_answer():
    messages = [human("go", "h"), ai("", ["x"]), human("stop", "h2"), ai("ok"), human("on", "h3")]
    assert told(place(messages, [NOW], "before_turn"))[-2:] == ["<now>", "on"]
    assert told(place(messages, [NOW], "end"))[-1] == "<now>"


def test_models_that_number_their_calls_anew_do_not_tie_up_the_conversation():
    messages = [
        *(human("one", "h1"), ai("", ["0"]), result("0"), ai("a1")),
        *(human("two", "h2"), ai("", ["0"]), result("0"), ai("a2")),
    ]
    placed = place(messages, [Block("now", "h2")], "before_turn")
    assert told(placed) == ["one", "(0)", "found", "a1", "<now>", "two", "(0)", "found", "a2"]


def test_calls_that_could_not_be_parsed_are_calls():
    broken = {"name": "look", "args": "{", "id": "x", "error": None, "type": "invalid_tool_call"}
    messages = [human("go", "h"), AIMessage("?", invalid_tool_calls=[broken])]
    assert told(place(messages, [Block("now", "h")], "end")) == ["go", "<now>", "?"]


def test_a_function_result_stays_with_its_call():
    messages = [human("go", "h"), ai("call", id="a"), FunctionMessage("found", name="look")]
    placed = place(messages, [Block("now", "h", after="a")], "before_turn")
    assert told(placed) == ["go", "call", "found", "<now>"]


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_blocks_of_turns_that_were_summarised_away_are_left_out(placement):
    messages = [SYSTEM, human("so far", "s"), *TURN_3]
    placed = place(messages, [*PAST, NOW], placement)
    texts = [text for text in map(str, told(placed)) if "past" in text]
    assert texts == []
    assert any("now" in text for text in map(str, told(placed)))


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize(
    "head", [[], [human("so far", "s", additional_kwargs={"lc_source": "summarization"})]]
)
def test_the_latest_block_survives_the_summary_of_its_own_turn(placement, head):
    messages = [SYSTEM, *head, ai("", ["x"]), result("x")]
    placed = place(messages, [*PAST, NOW], placement)
    assert told(placed) == [*told(messages), "<now>"]


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_a_past_block_is_not_taken_for_the_latest_when_this_turn_has_none(placement):
    assert place(TURN_3, PAST, placement) == TURN_3


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_empty_blocks_are_skipped(placement):
    assert place(THREE_TURNS, [Block("", "h3"), Block(" \n", "h2")], placement) == THREE_TURNS


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_only_system_messages_stay_in_front(placement):
    messages = [SYSTEM, SystemMessage("more rules")]
    assert told(place(messages, [NOW], placement)) == ["system", "more rules", "<now>"]


def test_a_block_of_another_recall_is_not_the_latest_human_message():
    other = HumanMessage("other", name=BLOCK_NAME, id="b")
    messages = [human("one", "h1"), ai("a1"), other, human("two", "h2"), ai("a2")]
    placed = place(messages, [Block("past", "h1"), Block("now", "h2")], "end")
    assert told(placed) == ["one", "<past>", "a1", "<other>", "two", "a2", "<now>"]


def test_the_key_of_a_message_is_its_id():
    assert message_key(THREE_TURNS, 1) == "h1"


def test_messages_without_ids_are_told_apart_by_type_content_and_place_among_their_likes():
    messages = [human("yes"), ai("yes"), human("no"), human("yes"), human([{"type": "text"}])]
    keys = [message_key(messages, i) for i in range(5)]
    assert len(set(keys)) == 5
    assert keys == [message_key([*messages, human("yes")], i) for i in range(5)]
    assert keys[3] == message_key([human("yes"), ai("?"), human("yes")], 2)


def test_the_key_of_odd_content_is_a_key():
    messages = [human("\ud800"), human([{"type": "x", "data": {"b": 1, "a": "\x00"}}])]
    assert message_key(messages, 0) != message_key(messages, 1)


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        (TURN_1, None),
        (TURN_2, "r2"),
        (TURN_3, "r4"),
        (TURN_3[:3], None),
        ([*TURN_2[:3], ai("", ["z"])], "r2"),
        ([*TURN_2[:3], ai("", ["y", "z"]), result("y")], "r2"),
        ([human("h", "h"), result("orphan", id="o")], None),
        ([], None),
    ],
)
def test_the_last_tool_result_is_the_last_of_a_complete_set(messages, expected):
    assert last_tool_result(messages, 0) == expected


def test_tool_results_of_earlier_turns_do_not_count():
    messages = [*TURN_2, human("three", "h3"), ai("", ["y"])]
    assert last_tool_result(messages, 4) is None


# --- any history ----------------------------------------------------------------------------


@st.composite
def exchange(draw):
    """A model's answer: plain, or with tool calls of which any number is answered, in any order."""
    calls = draw(st.lists(st.sampled_from("uvwxyz"), max_size=3, unique=True))
    answered = draw(st.permutations(calls))[: draw(st.integers(0, len(calls)))]
    results = [result(call, draw(st.sampled_from(["found", "nothing"]))) for call in answered]
    if results and draw(st.integers(0, 5)) == 0:
        results.insert(draw(st.integers(0, len(results))), human("wait"))
    return [ai(draw(st.sampled_from(["", "well", "so"])), calls), *results]


@st.composite
def histories(draw):
    system = draw(st.lists(st.just(SystemMessage("rules")), max_size=2))
    said = st.sampled_from(["yes", "no", "and then?"]).map(lambda text: [human(text)])
    orphan = st.just([result("lost")])
    parts = draw(st.lists(st.one_of(said, exchange(), exchange(), orphan), max_size=12))
    messages = [*system, *itertools.chain.from_iterable(parts)]
    if draw(st.booleans()):
        messages = [one.model_copy(update={"id": f"m{i}"}) for i, one in enumerate(messages)]
    return messages


def indices(messages, kind):
    return [i for i, message in enumerate(messages) if isinstance(message, kind)]


@st.composite
def scenes(draw):
    """A history, and blocks for some of its turns, some of them second blocks, some lost."""
    messages = draw(histories())
    turns = [message_key(messages, i) for i in indices(messages, HumanMessage)] + ["gone"]
    results = [message_key(messages, i) for i in indices(messages, ToolMessage)] + [None, "gone"]
    made = st.builds(
        Block,
        text=st.sampled_from(["", "block one", "block two"]),
        turn=st.sampled_from(turns),
        after=st.sampled_from(results),
    )
    return messages, draw(st.lists(made, max_size=4)), draw(st.sampled_from(PLACEMENTS))


def is_block(message):
    return message.name == BLOCK_NAME


def pairs(messages):
    """Indices of each call's message and of each of its results: the nearest with that id."""
    asked = {}
    for i, message in enumerate(messages):
        for call in getattr(message, "tool_calls", ()):
            asked[call["id"]] = i
        if isinstance(message, ToolMessage) and message.tool_call_id in asked:
            yield asked[message.tool_call_id], i


def dumped(messages):
    return [message.model_dump_json() for message in messages]


@given(scenes())
def test_every_message_is_there_in_its_order_and_untouched_and_always_alike(scene):
    messages, blocks, placement = scene
    before = dumped(messages)
    placed = place(messages, blocks, placement)
    assert dumped(messages) == before
    assert dumped(placed) == dumped(place(messages, blocks, placement))
    own = [one for one in placed if not is_block(one)]
    assert [one.id for one in own] == [one.id for one in messages]
    for original, one in zip(messages, own, strict=True):
        assert one is original or (placement == "in_turn" and isinstance(one, HumanMessage))


@given(scenes())
def test_no_block_stands_between_a_call_and_its_results_or_before_the_system_messages(scene):
    messages, blocks, placement = scene
    placed = place(messages, blocks, placement)
    for asked, answered in pairs(placed):
        assert not any(map(is_block, placed[asked:answered]))
    leading = len(list(itertools.takewhile(lambda one: one.type == "system", messages)))
    assert placed[:leading] == messages[:leading]
    if placed and is_block(placed[-1]):
        assert not waiting_calls(messages)


def waiting_calls(messages):
    """Calls of the last answer that have no result yet, if nobody has spoken since."""
    spoken = indices(messages, AIMessage | HumanMessage)
    if not spoken:
        return set()
    answered = {one.tool_call_id for one in messages[spoken[-1] :] if one.type == "tool"}
    return {call["id"] for call in getattr(messages[spoken[-1]], "tool_calls", ())} - answered


@given(scenes())
def test_each_block_of_a_turn_that_is_there_is_shown_once(scene):
    messages, blocks, placement = scene
    keys = {message_key(messages, i) for i in range(len(messages))}
    wanted = sorted(one.text for one in blocks if one.text and one.turn in keys)
    placed = place(messages, [one for one in blocks if one.turn in keys], placement)
    alone = [one.content for one in placed if is_block(one)]
    within = [
        part["text"] for one in placed if isinstance(one.content, list) for part in one.content[1:]
    ]
    assert sorted(alone + within) == wanted


@given(histories(), st.sampled_from(STABLE), st.booleans(), st.data())
def test_the_prefix_keeps_its_bytes_through_a_tool_loop(messages, placement, replays, data):
    humans = indices(messages, HumanMessage)
    assume(humans)
    turn = data.draw(st.sampled_from(humans))
    end = next((i for i in humans if i > turn), len(messages))
    shorter, longer = sorted(data.draw(st.integers(turn + 1, end)) for _ in range(2))
    turns = [i for i in humans if i <= turn] if replays else [turn]
    blocks = [Block(f"block {i}", message_key(messages, i)) for i in turns]
    first = dumped(place(messages[:shorter], blocks, placement))
    second = dumped(place(messages[:longer], blocks, placement))
    assert second[: len(first)] == first


@given(histories(), st.lists(exchange(), min_size=1), st.sampled_from(STABLE), st.data())
def test_a_second_block_keeps_its_place_while_the_loop_goes_on(past, loop, placement, data):
    turn = len(past)
    steps = [one for one in itertools.chain.from_iterable(loop) if one.type != "human"]
    messages = [*past, human("now", "now"), *steps]
    ends = st.integers(turn + 1, len(messages))
    shorter, longer = sorted((data.draw(ends), data.draw(ends)))
    after = last_tool_result(messages[:shorter], turn)
    blocks = [Block("first", "now"), Block("second", "now", after)]
    first = dumped(place(messages[:shorter], blocks, placement))
    second = dumped(place(messages[:longer], blocks, placement))
    assert second[: len(first)] == first
