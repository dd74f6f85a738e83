"""What `setup` makes in a shared database: nothing that the table accepted before is refused."""

from __future__ import annotations

import random
import threading
from typing import Any

import psycopg
import pytest
from langgraph.store.postgres import PostgresStore

from langmem_recall.stores.postgres.schema import (
    VERSIONS_TABLE,
    WORDS,
    WORDS_INDEX,
    WORDS_REACH,
)
from langmem_recall.stores.recall_store import RecallStore

DOCS = ("docs", "x")
FORMER_INDEX = "langmem_recall_words"
FORMER_VERSIONS = 4
FORMER_WORDS = WORDS.replace("left(", "(").replace(f", {WORDS_REACH})", ")")


def long_text() -> str:
    draw = random.Random(1)
    return " ".join(f"w{draw.randrange(10**9)}" for _ in range(200_000))


def costly_text() -> str:
    """Pairs of four-byte letters, which take more room in a tsvector than any other text."""
    draw = random.Random(1)
    letters = [chr(place) for place in range(0x20000, 0x2A6D0)]
    pairs = (f"{draw.choice(letters)}-{draw.choice(letters)}" for _ in range(WORDS_REACH // 4))
    return " ".join(pairs)


def rows(uri: str, sql: str, *params: Any) -> list[Any]:
    with psycopg.connect(uri, autocommit=True) as connection:
        return connection.execute(sql, params).fetchall()


def indexes(uri: str) -> set[str]:
    found = rows(uri, "SELECT indexname FROM pg_indexes WHERE indexname LIKE 'langmem_recall%%'")
    return {name for (name,) in found if name in (WORDS_INDEX, FORMER_INDEX)}


def set_up_as_before(uri: str) -> None:
    """A database as an earlier version left it: an index over whole texts."""
    with PostgresStore.from_conn_string(uri) as inner:
        RecallStore(inner).setup()
    with psycopg.connect(uri, autocommit=True) as connection:
        connection.execute(f"DELETE FROM {VERSIONS_TABLE} WHERE version >= {FORMER_VERSIONS}")
        connection.execute(f"DROP INDEX {WORDS_INDEX}")
        connection.execute(f"CREATE INDEX {FORMER_INDEX} ON store USING gin (({FORMER_WORDS}))")


@pytest.mark.parametrize("text", [long_text(), costly_text()], ids=["long", "costly"])
def test_setup_leaves_the_table_as_accepting_as_it_was(postgres: str, text: str) -> None:
    with PostgresStore.from_conn_string(postgres) as inner:
        inner.setup()
        inner.put(DOCS, "before", {"content": text})
        RecallStore(inner).setup()
        inner.put(DOCS, "after", {"content": text})
        assert inner.get(DOCS, "after").value == {"content": text}


def test_an_index_over_whole_texts_is_replaced(postgres: str) -> None:
    set_up_as_before(postgres)
    assert indexes(postgres) == {FORMER_INDEX}
    with PostgresStore.from_conn_string(postgres) as inner:
        with pytest.raises(psycopg.errors.ProgramLimitExceeded):
            inner.put(DOCS, "long", {"content": long_text()})
        RecallStore(inner).setup()
        inner.put(DOCS, "long", {"content": long_text()})
    assert indexes(postgres) == {WORDS_INDEX}


def test_several_workers_may_replace_the_index_at_once(postgres: str) -> None:
    set_up_as_before(postgres)
    faults: list[Exception] = []

    def prepare() -> None:
        try:
            with PostgresStore.from_conn_string(postgres) as inner:
                RecallStore(inner).setup()
        except Exception as fault:
            faults.append(fault)

    threads = [threading.Thread(target=prepare) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
    assert indexes(postgres) == {WORDS_INDEX}


def test_readers_go_on_while_the_index_is_built(postgres: str) -> None:
    set_up_as_before(postgres)
    with (
        PostgresStore.from_conn_string(postgres) as inner,
        psycopg.connect(postgres) as reader,
    ):
        reader.execute("SELECT count(*) FROM store").fetchall()
        inner.conn.execute("SET lock_timeout = '50ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            RecallStore(inner).setup()
        # The new index is there; only the former one waits for the reader's transaction.
        assert indexes(postgres) == {WORDS_INDEX, FORMER_INDEX}
        reader.rollback()
        RecallStore(inner).setup()
    assert indexes(postgres) == {WORDS_INDEX}


def test_a_search_for_words_is_answered_by_the_index(postgres: str) -> None:
    with PostgresStore.from_conn_string(postgres) as inner:
        RecallStore(inner).setup()
        inner.conn.execute("SET enable_seqscan = off")
        sql = f"EXPLAIN SELECT key FROM store WHERE {WORDS} @@ phraseto_tsquery('simple', 'tea')"
        plan = [line for row in inner.conn.execute(sql).fetchall() for line in row.values()]
    assert any(WORDS_INDEX in line for line in plan)


def test_the_beginning_of_a_long_text_is_found_by_its_words(postgres: str) -> None:
    with PostgresStore.from_conn_string(postgres) as inner:
        RecallStore(inner).setup()
        inner.put(DOCS, "long", {"content": f"zebra {long_text()}"})
    sql = f"SELECT key FROM store WHERE {WORDS} @@ phraseto_tsquery('simple', %s)"
    assert rows(postgres, sql, "zebra") == [("long",)]
