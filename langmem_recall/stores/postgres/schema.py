"""What `RecallStore.setup` makes in a Postgres database, version by version."""

from __future__ import annotations

import re
from importlib.resources import files

from langmem_recall.flows.effects import Plan
from langmem_recall.stores.postgres.database import TAKEN, Database, Statement
from langmem_recall.types import SIDECAR_ROOT

USAGE_TABLE = f"{SIDECAR_ROOT}_usage"
BATCHES_TABLE = f"{SIDECAR_ROOT}_batches"
RECORDS_TABLE = f"{SIDECAR_ROOT}_records"
SETTINGS_TABLE = f"{SIDECAR_ROOT}_settings"
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
_STEPS = re.split(r"^-- version \d+(?: if (.*))?\n", _SCHEMA, flags=re.MULTILINE)[1:]
VERSIONS = [
    # A % is doubled, because the driver looks for parameters.
    ((condition or "true").replace("%", "%%"), [sql for sql in body.split(";\n") if sql.strip()])
    for condition, body in zip(_STEPS[::2], _STEPS[1::2], strict=True)
]
"""What is made, step by step: a condition, without which there is nothing to do, and statements."""
_NOTE = f"INSERT INTO {VERSIONS_TABLE} (version) VALUES (%s)"
_MAKE = f"""
CREATE TABLE IF NOT EXISTS {VERSIONS_TABLE} (
    version integer PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT now()
)"""


def set_up(database: Database) -> Plan[None]:
    """Bring the database to the newest version; any number of processes may do so at once.

    Nothing is written where it is there already.
    """
    applied = yield from _applied(database)
    if applied is None:
        try:
            yield database.ask(Statement(_MAKE))
        except Exception:
            # Of those who make it at once Postgres lets one through.
            if (yield from _applied(database)) is None:
                raise
    for number, (condition, statements) in enumerate(VERSIONS):
        if number in (applied or ()):
            continue
        (((fits,),),) = yield database.ask(Statement(f"SELECT {condition}", ()))
        steps = [Statement(sql.strip()) for sql in statements if fits]
        try:
            # Its own row bars others from the same step until it is done.
            yield database.ask(Statement(_NOTE, (number,)), *steps, together=True)
        except Exception as error:
            if getattr(error, "sqlstate", None) != TAKEN:
                raise


def is_set_up(database: Database) -> Plan[bool]:
    """Whether the database has the newest version."""
    applied = yield from _applied(database)
    return applied is not None and applied.issuperset(range(len(VERSIONS)))


def _applied(database: Database) -> Plan[set[int] | None]:
    """The versions that were applied; None where there is not even a table of them."""
    if not (yield from database.has_table(VERSIONS_TABLE)):
        return None
    (rows,) = yield database.ask(Statement(f"SELECT version FROM {VERSIONS_TABLE}"))
    return {version for (version,) in rows}
