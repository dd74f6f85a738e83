"""What `RecallStore.setup` makes in a Postgres database, version by version."""

from __future__ import annotations

from langmem_recall.drive import Plan
from langmem_recall.stores.postgres import Database, Statement
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

WORDS_INDEX = f"{SIDECAR_ROOT}_words"
WORDS = "to_tsvector('simple', coalesce(value->>'content', value->>'text', value->>'memory', ''))"
"""The words of an item, as the index has them."""
_INDEX_WORDS = f"""
IF to_regclass('store') IS NOT NULL THEN
    CREATE INDEX IF NOT EXISTS {WORDS_INDEX} ON store USING gin (({WORDS}));
END IF;"""

_MAKE_LOTS = f"""
CREATE TABLE {LOTS_TABLE} (
    ledger text PRIMARY KEY,
    number bigint NOT NULL,
    written_at timestamptz NOT NULL DEFAULT now()
);"""

VERSIONS = (_MAKE_USAGE, _TAKE_OVER, _INDEX_WORDS, _MAKE_LOTS)
"""Applied in order, each once and as a whole; only ever added to."""


def set_up(database: Database) -> Plan[None]:
    """Bring the database to the newest version; any number of processes may do so at once."""
    steps = [_step(number, sql) for number, sql in enumerate(VERSIONS)]
    yield database.ask(*(Statement(step, returns=False) for step in steps))


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
