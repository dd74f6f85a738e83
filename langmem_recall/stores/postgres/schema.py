"""What `RecallStore.setup` makes in a Postgres database, version by version."""

from __future__ import annotations

from langmem_recall.flows.effects import Plan
from langmem_recall.stores.postgres.database import Database, Statement
from langmem_recall.types import SIDECAR_ROOT

LOCK = 0x6C6D7265
"""Number of the advisory lock that lets one process at a time set up."""
USAGE_TABLE = f"{SIDECAR_ROOT}_usage"
LOTS_TABLE = f"{SIDECAR_ROOT}_lots"
VERSIONS_TABLE = f"{SIDECAR_ROOT}_versions"

_MAKE_USAGE = f"""
CREATE TABLE {USAGE_TABLE} (
    prefix text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    uses bigint NOT NULL,
    decayed double precision NOT NULL,
    last_used double precision,
    before double precision,
    merit integer NOT NULL,
    PRIMARY KEY (prefix, key)
);"""

_ROOT = f"{SIDECAR_ROOT}.usage"
_TAKE_OVER = f"""
IF to_regclass('store') IS NOT NULL THEN
    WITH moved AS (
        DELETE FROM store
        WHERE prefix ~>=~ '{_ROOT}.' AND prefix ~<~ '{_ROOT}/'
        RETURNING prefix, key, value
    )
    INSERT INTO {USAGE_TABLE}
    SELECT substr(prefix, {len(_ROOT) + 2}), key, (value->>'uses')::bigint,
        (value->>'decayed')::double precision, (value->>'last_used')::double precision,
        (value->>'before')::double precision, coalesce((value->>'merit')::integer, 0)
    FROM moved WHERE value ? 'uses';
END IF;"""

WORDS_INDEX = f"{SIDECAR_ROOT}_first_words"
WORDS_REACH = 100_000
"""Characters of a text whose words are indexed, so that no text is too long for the index.

A tsvector holds 1,048,575 bytes; a hyphenated pair of four-byte letters, with its parts and their
positions, takes eight for each of its characters, and nothing takes more.
"""
_TEXT = "coalesce(value->>'content', value->>'text', value->>'memory', '')"
WORDS = f"to_tsvector('simple', left({_TEXT}, {WORDS_REACH}))"
"""The words of an item, as the index has them."""
_INDEX_WORDS = f"""
IF to_regclass('store') IS NOT NULL THEN
    CREATE INDEX IF NOT EXISTS {WORDS_INDEX} ON store USING gin (({WORDS}));
END IF;"""

# Made by an earlier version over whole texts, so that the table refused large ones.
_DROP_FORMER_INDEX = f"DROP INDEX IF EXISTS {SIDECAR_ROOT}_words;"
_NOTHING = "NULL;"

_MAKE_LOTS = f"""
CREATE TABLE {LOTS_TABLE} (
    ledger text PRIMARY KEY,
    number bigint NOT NULL,
    written_at timestamptz NOT NULL DEFAULT now()
);"""

VERSIONS = (_MAKE_USAGE, _TAKE_OVER, _NOTHING, _MAKE_LOTS, _INDEX_WORDS, _DROP_FORMER_INDEX)
"""Applied in order, each once and as a whole; only ever added to."""


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
