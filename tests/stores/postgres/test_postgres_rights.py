"""A Postgres that may only be read, lacks tables or refuses a right: errors are ours."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any

import psycopg
import pytest
from conftest import Call
from langchain.agents import create_agent
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.postgres import AsyncPostgresStore, PostgresStore
from postgres_server import PostgresServer

from langmem_recall import Caching
from langmem_recall.agents.middleware import RecallMiddleware
from langmem_recall.embeddings import LocalEmbeddings
from langmem_recall.errors import StoreError
from langmem_recall.stores.recall_store import RecallStore

NS = ("m", "ada")
CUE = "Is the car blue?"
INDEX: Any = {"dims": 256, "embed": LocalEmbeddings(), "fields": ["content"]}
Opened = Callable[..., RecallStore]


def read_only(uri: str) -> str:
    return f"{uri}&options=-cdefault_transaction_read_only%3Don"


def close(store: RecallStore) -> None:
    with suppress(StoreError):
        store.close()


@pytest.fixture
def opened() -> Iterator[Opened]:
    with ExitStack() as stack:

        def open_store(uri: str, index: Any = INDEX, **more: Any) -> RecallStore:
            inner = stack.enter_context(PostgresStore.from_conn_string(uri, index=index))
            store = RecallStore(inner, **{"record": False, **more})
            stack.callback(close, store)
            return store

        yield open_store


@pytest.fixture(params=["with our tables", "with theirs alone"])
def replica(request: pytest.FixtureRequest, postgres: str, opened: Opened) -> str:
    """The address of a database with one memory that may only be read."""
    store = opened(postgres)
    store.setup() if request.param == "with our tables" else store.inner.setup()
    store.put(NS, "car", {"content": "the car is blue"})
    return read_only(postgres)


@pytest.mark.parametrize("index", [INDEX, None], ids=["vectors", "words"])
def test_what_may_only_be_read_is_recalled(
    replica: str, opened: Opened, call: Call, index: Any
) -> None:
    store = opened(replica, index)
    recall = call(store, "recall", NS, CUE)
    assert [memory.key for memory in recall.memories] == ["car"]
    assert recall.trace.degraded == ()
    assert call(store, "explain", NS, "car", CUE).recalled
    with store.quiet():
        assert [item.key for item in call(store, "search", NS, query=CUE)] == ["car"]
    assert [item.key for item in call(store, "search", NS)] == ["car"]
    assert [memory.key for memory in call(store, "memories", [(NS, "car")])] == ["car"]
    assert call(store, "history", NS, "car")


def test_a_secret_that_cannot_be_kept_is_the_process_own(
    replica: str, opened: Opened, call: Call
) -> None:
    store = opened(replica)
    secret = call(store, "secret")
    assert len(secret) == 32
    assert call(store, "secret") == secret
    assert call(store, "recall", NS, CUE).memories


def test_a_secret_that_is_there_is_read(postgres: str, opened: Opened, call: Call) -> None:
    store = opened(postgres)
    store.setup()
    kept = call(store, "secret")
    assert call(opened(read_only(postgres)), "secret") == kept


def test_an_agent_over_what_may_only_be_read_recalls_and_replays(
    replica: str, opened: Opened
) -> None:
    saver = InMemorySaver()

    def turn(words: str) -> list[tuple[int, str]]:
        # Made anew for each turn, as another worker would be: it has no blocks in memory.
        agent = create_agent(
            GenericFakeChatModel(messages=itertools.repeat(AIMessage("Blue."))),
            store=opened(replica),
            middleware=[RecallMiddleware(("m", "{user_id}"), deadline=None)],
            checkpointer=saver,
        )
        config = {"configurable": {"user_id": "ada", "thread_id": "t"}}
        told = {"messages": [("user", words)]}
        events = agent.stream(told, config, stream_mode="custom")
        return [(len(event["memories"]), event["reason"]) for event in events]

    assert turn(CUE) == [(1, "1 recalled")]
    ((_, reason),) = turn("And is the car really blue?")
    assert "no memories" not in reason


def test_writing_to_what_may_only_be_read_is_refused_in_our_words(
    replica: str, opened: Opened, call: Call
) -> None:
    store = opened(replica, record=True, caching=Caching(flush_interval=10**6))
    for write in (
        lambda: call(store, "put", NS, "k", {"content": "x"}),
        lambda: call(store, "remember", NS, "Ada likes tea"),
        lambda: call(store, "setup"),
    ):
        with pytest.raises(StoreError, match="This Postgres may only be read"):
            write()
    call(store, "recall", NS, CUE)
    with pytest.raises(StoreError, match="This Postgres may only be read"):
        call(store, "flush")
    assert call(store, "recall", NS, CUE).memories


def test_setting_up_what_may_only_be_read_is_refused(
    postgres: str, opened: Opened, call: Call
) -> None:
    with pytest.raises(StoreError, match="This Postgres may only be read"):
        call(opened(read_only(postgres)), "setup")


def test_a_database_without_tables_asks_for_setup(
    postgres: str, opened: Opened, call: Call
) -> None:
    store = opened(postgres)
    for use in (
        lambda: call(store, "recall", NS, CUE),
        lambda: call(store, "search", NS, query=CUE),
        lambda: call(store, "search", NS),
        lambda: call(store, "put", NS, "k", {"content": "x"}),
        lambda: call(store, "remember", NS, "Ada likes tea"),
    ):
        with pytest.raises(StoreError, match=r"not set up: .*Call setup\(\)"):
            use()
    store.setup()
    call(store, "put", NS, "car", {"content": "the car is blue"})
    assert call(store, "recall", NS, CUE).memories


@pytest.fixture
def role(postgres: str, postgres_server: PostgresServer) -> Iterator[str]:
    """The address for a role that owns the database's schema but is no superuser."""
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("CREATE ROLE low LOGIN")
        connection.execute("GRANT ALL ON SCHEMA public TO low")
        yield postgres.replace("postgres@", "low@")
        connection.execute("DROP OWNED BY low")
        connection.execute("DROP ROLE low")


def test_a_role_that_may_not_make_the_extension_is_told_so(
    role: str, opened: Opened, call: Call
) -> None:
    with pytest.raises(StoreError, match="CREATE EXTENSION vector"):
        call(opened(role), "setup")


def test_a_role_that_may_only_select_recalls(
    role: str, postgres: str, opened: Opened, call: Call
) -> None:
    store = opened(postgres)
    store.setup()
    store.put(NS, "car", {"content": "the car is blue"})
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO low")
    reader = opened(role)
    assert call(reader, "recall", NS, CUE).memories
    assert call(reader, "memories", [(NS, "car")]) != [None]
    with pytest.raises(StoreError, match="lacks a right in Postgres: permission denied"):
        call(reader, "put", NS, "k", {"content": "x"})


def test_an_async_store_says_the_same(postgres: str, replica: str) -> None:
    async def use() -> None:
        async with AsyncPostgresStore.from_conn_string(replica, index=INDEX) as inner:
            store = RecallStore(inner, record=False)
            assert (await store.arecall(NS, CUE)).memories
            assert len(await store.asecret()) == 32
            assert await store.amemories([(NS, "car"), (NS, "gone")]) != [None, None]
            with pytest.raises(StoreError, match="This Postgres may only be read"):
                await store.aput(NS, "k", {"content": "x"})
            with pytest.raises(StoreError, match="This Postgres may only be read"):
                await store.setup()
            with pytest.raises(StoreError, match="This Postgres may only be read"):
                await store.asetup()

    asyncio.run(use())
