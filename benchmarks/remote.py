"""Whether an agent has its memories from its first turn on, however far away its embedder is.

Run with `python benchmarks/remote.py`. An agent with default settings asks for memories that were
embedded by OpenAI's client, which asks a server on this machine that answers after 0, 100, 300 or
2,000 ms. Half of the cues share no word with their memory: after 2 s only the others can be found.
Each store is new and has seen no turn before. Shown is the share of turns with their memory, by
words and by meaning, the first turn's, requests to the embedder in the first turn and the most in
a later one, and what recall adds to a turn of the same agent without it, median and 95th
percentile. The last lines are a local MiniLM in processes that have just begun.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import logging
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from langchain.agents import create_agent
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_openai import OpenAIEmbeddings
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore
from langgraph.store.postgres import PostgresStore
from langgraph.store.postgres.aio import AsyncPostgresStore
from minilm import lay_out
from postgres import server as postgres_server

from langmem_recall import LocalEmbeddings, LocalStore, RecallMiddleware, RecallStore

DIMS = 256
HOME, HOMES = ("memories", "ada"), ("memories", "{user_id}")
TOPICS = (
    (
        "I always book an aisle seat on flights",
        "Which seat do I book on flights?",
        "Where should they put me aboard the plane?",
    ),
    (
        "I am allergic to penicillin",
        "Am I allergic to penicillin?",
        "Which medicine must doctors keep away?",
    ),
    (
        "My sister Lena lives in Rotterdam",
        "Where does my sister Lena live?",
        "In what city is my sibling at home?",
    ),
    (
        "Our staging database runs Postgres 16",
        "Which Postgres does the staging database run?",
        "What do we test our queries against?",
    ),
    (
        "The invoice template is in the finance folder",
        "In which folder is the invoice template?",
        "How do I find the form for billing?",
    ),
    (
        "I stopped drinking alcohol in January",
        "When did I stop drinking alcohol?",
        "Would a wine tasting suit me?",
    ),
    (
        "Deploys are frozen on Fridays",
        "Are deploys frozen on Fridays?",
        "May we release before the weekend?",
    ),
    (
        "My dog Rex needs his tablets at eight",
        "When does my dog Rex need his tablets?",
        "Should the pet get anything this evening?",
    ),
    (
        "The team stands up at half past nine",
        "When does the team stand up?",
        "What is the first meeting of a day?",
    ),
    (
        "I prefer answers in bullet points",
        "Do I prefer answers in bullet points?",
        "How shall you write it for me?",
    ),
)
"""A memory, a cue with its words, and one with none of them."""


class Turn(NamedTuple):
    """What a turn came to."""

    by_words: bool
    found: bool
    said_so: bool
    requests: int
    seconds: float


def vector(text: str) -> list[float]:
    """A topic's texts lie close together, any other is somewhere else."""
    rng = np.random.default_rng(zlib.crc32(text.encode()))
    drawn = rng.standard_normal(DIMS) / DIMS**0.5
    for number, texts in enumerate(TOPICS):
        if text in texts:
            drawn = 0.6 * drawn
            drawn[number] += 1.0
    return [round(float(part), 6) for part in drawn]


def serve(port: Any, delay: Any, asked: Any) -> None:
    """Answer as OpenAI does, after a while."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # Else the body waits 40 ms for the acknowledgement of the headers.
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with asked.get_lock():
                asked.value += 1
            time.sleep(delay.value)
            data = [
                {"object": "embedding", "index": place, "embedding": vector(text)}
                for place, text in enumerate(request["input"])
            ]
            usage = {"prompt_tokens": 1, "total_tokens": 1}
            answer = {"object": "list", "data": data, "model": request["model"], "usage": usage}
            body = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    # A client that has gone does not matter here.
    http.handle_error = lambda *_: None  # type: ignore[method-assign]
    port.value = http.server_port
    http.serve_forever()


class Server:
    """The embedder's server, in a process of its own."""

    def __init__(self) -> None:
        self._port = multiprocessing.Value("i", 0)
        self.delay = multiprocessing.Value("d", 0.0)
        self.asked = multiprocessing.Value("i", 0)
        values = (self._port, self.delay, self.asked)
        self.process = multiprocessing.Process(target=serve, args=values, daemon=True)
        self.process.start()
        while not self._port.value:
            time.sleep(0.01)

    def embeddings(self) -> OpenAIEmbeddings:
        """OpenAI's client, as anyone makes it."""
        return OpenAIEmbeddings(
            model="text-embedding-3-small",
            dimensions=DIMS,
            base_url=f"http://127.0.0.1:{self._port.value}/v1",
            api_key="none",
            # Else it downloads a tokenizer.
            check_embedding_ctx_length=False,
        )


def agent_of(store: BaseStore, middleware: Sequence[Any]) -> Any:
    """An agent whose model says "ok"."""
    model = GenericFakeChatModel(messages=itertools.repeat(AIMessage("ok")))
    return create_agent(model, store=store, middleware=middleware)


def write(store: BaseStore) -> None:
    """The memories."""
    for number, (text, *_) in enumerate(TOPICS):
        store.put(HOME, f"m{number}", {"content": text, "source": "user_stated"})


def cues(count: int) -> Iterator[tuple[str, str, bool]]:
    """A cue, the memory it is for and whether they share words, each topic in both ways."""
    for number in range(count):
        topic, by_words = number // 2 % len(TOPICS), number % 2 == 0
        yield TOPICS[topic][1 if by_words else 2], f"m{topic}", by_words


async def turns(agent: Any, server: Server, count: int, *, is_async: bool) -> list[Turn]:
    """Take so many turns, one after the other, each in a thread of its own."""
    taken = []
    for number, (cue, key, by_words) in enumerate(cues(count)):
        asked, began = server.asked.value, time.perf_counter()
        config = {"configurable": {"user_id": HOME[1], "thread_id": f"t{number}"}}
        said = {"messages": [("user", cue)]}
        if is_async:
            stream = agent.astream(said, config, stream_mode="custom")
            events = [event async for event in stream]
        else:
            events = list(agent.stream(said, config, stream_mode="custom"))
        seconds = time.perf_counter() - began
        keys = [shown["key"] for event in events for shown in event["memories"]]
        is_told = any(event["degraded"] for event in events)
        made = server.asked.value - asked
        taken.append(Turn(by_words, key in keys, is_told, made, seconds))
    return taken


def show(name: str, taken: Sequence[Turn], bare: Sequence[Turn]) -> None:
    """One line of the table."""
    shares = [
        f"{statistics.mean(turn.found for turn in taken if turn.by_words is kind):>6.0%}"
        for kind in (True, False)
    ]
    usual = statistics.median(turn.seconds for turn in bare)
    more = sorted(1e3 * (turn.seconds - usual) for turn in taken)
    most = max(turn.requests for turn in taken[1:])
    late = statistics.mean(turn.said_so for turn in taken)
    print(
        f"{name:<34} {' '.join(shares)} {'yes' if taken[0].found else 'no':>6} {late:>6.0%} "
        f"{taken[0].requests:>6} {most:>6} {statistics.median(more):>8.0f} "
        f"{more[int(0.95 * (len(more) - 1))]:>8.0f}",
        flush=True,
    )


def index_of(server: Server) -> Any:
    """LangGraph's configuration of an index."""
    return {"dims": DIMS, "embed": server.embeddings(), "fields": ["content"]}


@contextmanager
def stores(kind: str, server: Server, uri: str) -> Iterator[BaseStore]:
    """A new store with the memories in it."""
    server.delay.value = 0.0
    if kind == "Postgres":
        with PostgresStore.from_conn_string(
            uri, index=index_of(server), pool_config={"min_size": 1, "max_size": 4}
        ) as inner:
            store = RecallStore(inner)
            store.setup()
            write(inner)
            yield store
        return
    inner_store: BaseStore = (
        LocalStore(embeddings=server.embeddings())
        if kind == "LocalStore"
        else InMemoryStore(index=index_of(server))
    )
    write(inner_store)
    yield RecallStore(inner_store)


async def measure(kind: str, server: Server, uri: str, delay: float, count: int) -> None:
    """Two lines of the table: sync and async."""
    for is_async in (False, True):
        mode = "async" if is_async else "sync"
        with stores(kind, server, f"{uri}") as store:
            bare = await turns(agent_of(store, []), server, 20, is_async=is_async)
            server.delay.value = delay
            name = f"{kind}, {mode}, {1e3 * delay:.0f} ms"
            if kind == "Postgres" and is_async:
                async with AsyncPostgresStore.from_conn_string(
                    uri, index=index_of(server), pool_config={"min_size": 1, "max_size": 4}
                ) as inner:
                    # Measured by another process already, which is what the sync line shows.
                    agent = agent_of(RecallStore(inner), [RecallMiddleware(HOMES)])
                    show(name, await turns(agent, server, count, is_async=True), bare)
                continue
            agent = agent_of(store, [RecallMiddleware(HOMES)])
            show(name, await turns(agent, server, count, is_async=is_async), bare)


def fresh(path: str, model: str) -> None:
    """The first turns of a process over a file that another has written."""
    store = RecallStore(LocalStore(path, embeddings=LocalEmbeddings("minilm", path=model)))
    agent = agent_of(store, [RecallMiddleware(HOMES)])
    for cue, key, _ in itertools.islice(cues(20), 0, 10, 2):
        began = time.perf_counter()
        config = {"configurable": {"user_id": HOME[1]}}
        events = list(agent.stream({"messages": [("user", cue)]}, config, stream_mode="custom"))
        found = key in [shown["key"] for event in events for shown in event["memories"]]
        print(f"{'yes' if found else 'no'} {time.perf_counter() - began:.2f}", flush=True)


def measure_minilm(processes: int) -> None:
    """Whether the first turns of new processes have their memories, with a model of their own."""
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "minilm"
        model.mkdir()
        lay_out(model)
        path = str(Path(folder) / "memory.db")
        with LocalStore(path, embeddings=LocalEmbeddings("minilm", path=model)) as store:
            write(store)
        lines = []
        for _ in range(processes):
            command = [sys.executable, __file__, "--fresh", path, str(model)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            lines.append([line.split() for line in done.stdout.splitlines()])
    firsts = [line[0] for line in lines]
    found = statistics.mean(word == "yes" for line in lines for word, _ in line)
    seconds = statistics.median(float(took) for _, took in firsts)
    print(
        f"MiniLM, {processes} new processes of 5 turns: {found:.0%} with their memory, first turns "
        f"{sum(word == 'yes' for word, _ in firsts)} of {processes}, {seconds:.2f} s each"
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=40, help="turns a line")
    parser.add_argument("--slow-turns", type=int, default=10, help="turns a line after 2 s")
    parser.add_argument("--delays", type=float, nargs="*", default=[0.0, 0.1, 0.3, 2.0])
    parser.add_argument("--processes", type=int, default=5, help="of MiniLM")
    parser.add_argument("--fresh", nargs=2, metavar=("FILE", "MODEL"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    os.environ["LANGSMITH_TRACING"] = "false"
    if given.fresh:
        fresh(*given.fresh)
        return
    server = Server()
    heads = ("words", "other", "first", "said", "1st", "most")
    print(f"{'':<34} {'with memory':^13} {'turn':>6} {'so':>6} {'requests':>13} {'adds, ms':>17}")
    print(f"{'':<34} {' '.join(f'{head:>6}' for head in heads)} {'median':>8} {'95 %':>8}")

    async def measure_all() -> None:
        with postgres_server() as database:
            for number, delay in enumerate(given.delays):
                for kind in ("LocalStore", "InMemoryStore", "Postgres"):
                    count = given.slow_turns if delay >= 1 else given.turns
                    uri = database(f"remote{number}") if kind == "Postgres" else ""
                    await measure(kind, server, uri, delay, count)
        # Answers that are still on their way.
        await asyncio.sleep(2.5)

    # One loop for all: a client's connections belong to the loop that made them.
    asyncio.run(measure_all())
    server.process.terminate()
    measure_minilm(given.processes)


if __name__ == "__main__":
    main()
