"""Whose vectors a Postgres store holds, and making them anew with another embedder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langgraph.store.base import get_text_at_path, tokenize_path

from langmem_recall.embeddings import embedder_identity
from langmem_recall.errors import StoreError
from langmem_recall.flows.backend import OnProgress
from langmem_recall.flows.effects import Embed, Plan
from langmem_recall.stores.postgres.citus import follow_store, one_by_one
from langmem_recall.stores.postgres.database import Database, Rows, Statement
from langmem_recall.stores.postgres.records import write_records
from langmem_recall.stores.postgres.schema import SETTINGS_TABLE, set_up
from langmem_recall.types import SIDECAR_ROOT

NEW = f"{SIDECAR_ROOT}_vectors"
ANN, NEW_ANN = "store_vectors_embedding_idx", f"{NEW}_embedding_idx"
OWNER, NEXT_OWNER = "embedder", "next_embedder"
"""Settings that name whose vectors the table holds, and whose those are that are being made."""
CHANGED = "40001"
_ID = "prefix, key, field_name"
_WAITING = f"""
FROM store_vectors old JOIN store s USING (prefix, key) LEFT JOIN {NEW} new USING ({_ID})
WHERE new.embedding IS NULL OR new.updated_at < s.updated_at"""
_NEXT = f"SELECT {_ID}, s.value, s.updated_at {_WAITING} ORDER BY {_ID} LIMIT %s"
_COUNT_ALL = "SELECT count(*) FROM store_vectors"
_COUNT = f"SELECT count(*) {_WAITING}"
_DROP_STALE = "DELETE FROM store_vectors WHERE prefix = %s AND key = %s AND field_name = %s"
_OWNERS = f"SELECT name, value #>> '{{}}' FROM {SETTINGS_TABLE} WHERE name = ANY(%s)"
WHOSE = f"(SELECT value #>> '{{}}' FROM {SETTINGS_TABLE} WHERE name = '{OWNER}')"
"""Whose vectors the table holds; NULL where that was not noted."""
FORMER_WHOSE = f"""
substring(
    obj_description('store_vectors'::regclass, 'pg_class') from '^{SIDECAR_ROOT} embedder: (.*)$'
)"""
"""The same where the setup of an earlier version has noted it: a comment, which no shard has."""
# Each on its own, because Citus overlooks tables that a block makes. In order: nothing is written
# from the lock on, and what was written before ends it.
_SWAP = (
    f"LOCK TABLE store, store_vectors, {NEW} IN SHARE ROW EXCLUSIVE MODE",
    f"""
DO $$ BEGIN
    IF EXISTS (SELECT 1 {_WAITING}) THEN
        RAISE EXCEPTION 'vectors are missing' USING ERRCODE = '{CHANGED}';
    END IF;
END $$""",
    "DROP TABLE store_vectors",
    f"ALTER TABLE {NEW} RENAME TO store_vectors",
    f"ALTER INDEX {NEW}_pkey RENAME TO store_vectors_pkey",
    f"ALTER INDEX IF EXISTS {NEW_ANN} RENAME TO {ANN}",
)


def identity_of(store: Any) -> str | None:
    """How the settings name the embedder of a store."""
    if store.embeddings is None:
        return None
    return embedder_identity(store.embeddings).replace("\0", "")


def check_identity(owner: str | None, own: str | None) -> None:
    """Refuse to compare vectors of one embedder with queries of another."""
    if owner and own and owner != own:
        raise StoreError(
            f"The stored vectors were made by {owner}, the configured embedder is {own}. "
            "Configure the former one, or run reindex to embed everything anew."
        )


def check_owner(database: Database, claim: bool = False) -> Plan[None]:
    """Refuse vectors of another embedder; `claim` notes whose they are where that is not known."""
    own = identity_of(database.store)
    if own is not None:
        owner, _ = yield from _owners(database)
        check_identity(owner, own)
        if claim and owner is None:
            yield database.ask(*write_records([((None, "", OWNER), own)]))


def _owners(database: Database) -> Plan[tuple[str | None, str | None]]:
    """Whose vectors the table holds, and whose those are that are being made."""
    exists = "SELECT to_regclass(%s) IS NOT NULL, to_regclass('store_vectors') IS NOT NULL"
    (((has_settings, has_vectors),),) = yield database.ask(Statement(exists, (SETTINGS_TABLE,)))
    if has_settings:
        (rows,) = yield database.ask(Statement(_OWNERS, ([OWNER, NEXT_OWNER],)))
        found = dict(rows)
        return found.get(OWNER), found.get(NEXT_OWNER)
    if not has_vectors:
        return None, None
    (((owner,),),) = yield database.ask(Statement(f"SELECT {FORMER_WHOSE}"))
    return owner, None


def embed_anew(database: Database, progress: OnProgress | None, batch: int) -> Plan[int]:
    """Make all vectors with the configured embedder beside the old ones, then put them in place.

    Until then the old ones serve their own embedder. Stopped at any point, it goes on from there
    when it is called again with the same embedder. Returns how many vectors were made.
    """
    own = identity_of(database.store) or ""
    yield from set_up(database)
    yield from _begin(database, own)
    made = 0
    is_indexed = False
    while True:
        rows, ((total,),), ((waiting,),) = yield database.ask(
            Statement(_NEXT, (batch,)), Statement(_COUNT_ALL), Statement(_COUNT)
        )
        if rows:
            made += yield from _embed(database, rows)
            if progress:
                progress(total - waiting + len(rows), total)
        elif not is_indexed:
            yield from _index(database)
            is_indexed = True
        else:
            owners = write_records([((None, "", OWNER), own), ((None, "", NEXT_OWNER), None)])
            swap = [Statement(sql, returns=False) for sql in _SWAP]
            try:
                yield database.ask(
                    *(yield from one_by_one(database)), *swap, *owners, together=True
                )
                return made
            except Exception as error:
                # Something was written meanwhile.
                if getattr(error, "sqlstate", None) != CHANGED:
                    raise


def _begin(database: Database, own: str) -> Plan[None]:
    """A table for the new vectors, beside the items that they are of; then whose they will be."""
    _, next_owner = yield from _owners(database)
    if next_owner == own:
        return
    (vector,) = yield Embed(["reindex"], as_queries=False)
    config = database.store.index_config
    if len(vector) != config["dims"]:
        raise StoreError(
            f"The embedder gives {len(vector)} dimensions, the store is configured for "
            f"{config['dims']}. Set dims to {len(vector)}; nothing was changed."
        )
    kind = (config.get("ann_index_config") or {}).get("vector_type", "vector")
    make = f"""
CREATE TABLE {NEW} (
    prefix text NOT NULL, key text NOT NULL, field_name text NOT NULL,
    embedding {kind}({len(vector)}),
    created_at timestamptz DEFAULT CURRENT_TIMESTAMP,
    updated_at timestamptz DEFAULT CURRENT_TIMESTAMP,
    PRIMARY KEY ({_ID})
)"""
    cascade = f"""
ALTER TABLE {NEW} ADD CONSTRAINT {NEW}_of_items
FOREIGN KEY (prefix, key) REFERENCES store (prefix, key) ON DELETE CASCADE"""
    yield database.ask(Statement(f"DROP TABLE IF EXISTS {NEW}", returns=False))
    yield database.ask(Statement(make, returns=False))
    # Distributed while it is empty, and only then bound to the items: both are on the same shards.
    yield from follow_store(database, [NEW])
    yield database.ask(Statement(cascade, returns=False))
    yield database.ask(*write_records([((None, "", NEXT_OWNER), own)]))


def _embed(database: Database, rows: Rows) -> Plan[int]:
    """Make these vectors; one whose text is no longer in the value goes."""
    texts = [_text_at(value, field) for _, _, field, value, _ in rows]
    known = [(row, text) for row, text in zip(rows, texts, strict=True) if text]
    gone = [row[:3] for row, text in zip(rows, texts, strict=True) if not text]
    vectors: Sequence[Sequence[float]] = []
    if known:
        vectors = yield Embed([text for _, text in known], as_queries=False)
    statements = [
        Statement(
            f"""INSERT INTO {NEW} ({_ID}, embedding, updated_at) VALUES (%s, %s, %s, %s, %s)
            ON CONFLICT ({_ID}) DO UPDATE
            SET embedding = excluded.embedding, updated_at = excluded.updated_at""",
            (*row[:3], str([float(x) for x in vector]), row[4]),
            returns=False,
        )
        for (row, _), vector in zip(known, vectors, strict=True)
    ]
    statements += [Statement(_DROP_STALE, tuple(row), returns=False) for row in gone]
    yield database.ask(*statements)
    return len(known)


def _index(database: Database) -> Plan[None]:
    """The same ANN index as the old vectors have, before a reader waits for it."""
    names = "SELECT pg_get_indexdef(to_regclass(%s)), to_regclass(%s)::text"
    (((definition, existing),),) = yield database.ask(Statement(names, (ANN, NEW_ANN)))
    if definition and not existing:
        _, _, how = definition.partition(" USING ")
        sql = f"CREATE INDEX {NEW_ANN} ON {NEW} USING {how}"
        yield database.ask(Statement(sql, returns=False))


def _text_at(value: Any, field: str) -> str | None:
    """The text that LangGraph embedded under that name: a path, and its place among several."""
    texts = get_text_at_path(value, field if field == "$" else tokenize_path(field))
    if len(texts) == 1:
        return texts[0]
    path, _, place = field.rpartition(".")
    texts = get_text_at_path(value, tokenize_path(path)) if path and place.isdigit() else []
    return texts[int(place)] if texts and int(place) < len(texts) else None
