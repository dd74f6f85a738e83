"""OpenAI's own client against a server that takes its time, with default settings."""

import asyncio
from collections.abc import Iterator

import pytest
from remote import HOMES, Server, Turn, agent_of, turns, write

from langmem_recall import LocalStore, RecallMiddleware, RecallStore


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    running = Server()
    yield running
    running.process.terminate()
    running.process.join()


def taken(server: Server, delay: float, is_async: bool, count: int) -> list[Turn]:
    server.delay.value = 0.0
    inner = LocalStore(embeddings=server.embeddings())
    write(inner)
    agent = agent_of(RecallStore(inner), [RecallMiddleware(HOMES)])
    server.delay.value = delay
    return asyncio.run(turns(agent, server, count, is_async=is_async))


@pytest.mark.parametrize("is_async", [False, True])
def test_every_turn_has_its_memory_from_the_first_on_where_the_embedder_is_far_away(
    server: Server, is_async: bool
) -> None:
    found = taken(server, 0.3, is_async, count=6)
    assert [turn.found for turn in found] == [True] * 6
    assert [turn.requests for turn in found] == [2, 1, 1, 1, 1, 1]
    assert not any(turn.said_so for turn in found)


@pytest.mark.parametrize("is_async", [False, True])
def test_words_answer_alone_and_say_so_where_it_is_further_than_a_turn_waits(
    server: Server, is_async: bool
) -> None:
    found = taken(server, 2.0, is_async, count=4)
    assert [turn.found for turn in found] == [turn.by_words for turn in found]
    assert [turn.by_words for turn in found] == [True, False, True, False]
    assert all(turn.said_so for turn in found)
    assert max(turn.seconds for turn in found) < 2.0
