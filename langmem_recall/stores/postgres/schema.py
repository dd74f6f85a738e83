"""What `RecallStore.setup` makes in a Postgres database, version by version."""

from __future__ import annotations

import re
from importlib.resources import files

from langmem_recall.flows.effects import Plan
from langmem_recall.stores.postgres.database import Database, Statement
from langmem_recall.types import SIDECAR_ROOT

LOCK = 0x6C6D7265
"""Number of the advisory lock that lets one process at a time set up."""
USAGE_TABLE = f"{SIDECAR_ROOT}_usage"
LOTS_TABLE = f"{SIDECAR_ROOT}_lots"
VERSIONS_TABLE = f"{SIDECAR_ROOT}_versions"

WORDS_INDEX = f"{SIDECAR_ROOT}_first_words"
WORDS_REACH = 100_000
"""Characters of a text whose words are indexed, so that no text is too long for the index.

A tsvector holds 1,048,575 bytes; a hyphenated pair of four-byte letters, with its parts and their
positions, takes eight for each of its characters, and nothing takes more.
"""
_TEXT = "coalesce(value->>'content', value->>'text', value->>'memory', '')"
WORDS = f"to_tsvector('simple', left({_TEXT}, {WORDS_REACH}))"
"""The words of an item, as the index has them."""
_SCHEMA = files(__package__).joinpath("schema.sql").read_text("utf-8").replace("{WORDS}", WORDS)
VERSIONS = tuple(re.split(r"^-- version \d+\n", _SCHEMA, flags=re.MULTILINE)[1:])
"""What is made, step by step."""


def set_up(database: Database) -> Plan[None]:
    """Bring the database to the newest version; any number of processes may do so at once."""
    *steps, last = (
        Statement(_step(number, sql), returns=False) for number, sql in enumerate(VERSIONS)
    )
    yield database.ask(*steps)
    # Dropping an index bars readers too: not for as long as another one takes to be built.
    yield database.ask(last)


def is_set_up(database: Database) -> Plan[bool]:
    """Whether the database has the newest version."""
    known = Statement("SELECT to_regclass(%s) IS NOT NULL", (VERSIONS_TABLE,))
    (((exists,),),) = yield database.ask(known)
    if not exists:
        return False
    (((count,),),) = yield database.ask(Statement(f"SELECT count(*) FROM {VERSIONS_TABLE}"))
    return bool(count >= len(VERSIONS))


def _step(number: int, sql: str) -> str:
    return f"""
DO $$ BEGIN
    PERFORM pg_advisory_xact_lock({LOCK});
    CREATE TABLE IF NOT EXISTS {VERSIONS_TABLE} (
        version integer PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT now()
    );
    IF NOT EXISTS (SELECT 1 FROM {VERSIONS_TABLE} WHERE version = {number}) THEN
        {sql}
        INSERT INTO {VERSIONS_TABLE} (version) VALUES ({number});
    END IF;
END $$"""
