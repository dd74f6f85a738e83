"""Whose vectors a Postgres store holds, and making them anew with another embedder."""

from __future__ import annotations

from typing import Any

from langgraph.store.base import get_text_at_path, tokenize_path

from langmem_recall.embeddings import embedder_identity
from langmem_recall.errors import StoreError
from langmem_recall.flows.backend import OnProgress
from langmem_recall.flows.effects import Embed, Plan
from langmem_recall.stores.postgres.citus import distribute, one_by_one
from langmem_recall.stores.postgres.database import Database, Rows, Statement
from langmem_recall.stores.postgres.schema import SETTINGS_TABLE, set_up
from langmem_recall.stores.postgres.sidecar import write_records
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
_COUNT_ALL = Statement("SELECT count(*) FROM store_vectors")
_COUNT = Statement(f"SELECT count(*) {_WAITING}")
_KEEP = f"""
INSERT INTO {NEW} ({_ID}, embedding, updated_at) VALUES (%s, %s, %s, %s, %s)
ON CONFLICT ({_ID})
DO UPDATE SET embedding = excluded.embedding, updated_at = excluded.updated_at"""
_DROP_STALE = "DELETE FROM store_vectors WHERE prefix = %s AND key = %s AND field_name = %s"
WHOSE = f"(SELECT value #>> '{{}}' FROM {SETTINGS_TABLE} WHERE name = '{OWNER}')"
"""Whose vectors the table holds; NULL where that was not noted."""
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
    if own is not None and (yield from database.has_table(SETTINGS_TABLE)):
        owner = (yield from _settings(database)).get(OWNER)
        check_identity(owner, own)
        if claim and owner is None:
            yield database.ask(*_noted(OWNER, own))


def _settings(database: Database) -> Plan[dict[str, str]]:
    (rows,) = yield database.ask(Statement(f"SELECT name, value #>> '{{}}' FROM {SETTINGS_TABLE}"))
    return dict(rows)


def _noted(name: str, owner: str | None) -> list[Statement]:
    return write_records([((None, "", name), owner)])


def embed_anew(database: Database, progress: OnProgress | None, batch: int) -> Plan[int]:
    """Make all vectors with the configured embedder beside the old ones, then put them in place.

    Until then the old ones serve their own embedder. Stopped at any point, it goes on from there
    when it is called again with the same embedder. Returns how many vectors were made.
    """
    own = identity_of(database.store) or ""
    yield from set_up(database)
    if (yield from _settings(database)).get(NEXT_OWNER) != own:
        yield from _begin(database, own)
    made, is_indexed = 0, False
    while True:
        rows, ((total,),), ((waiting,),) = yield database.ask(
            Statement(_NEXT, (batch,)), _COUNT_ALL, _COUNT
        )
        if rows:
            made += yield from _embed(database, rows)
            if progress:
                progress(total - waiting + len(rows), total)
        elif not is_indexed:
            yield from _index(database)
            is_indexed = True
        else:
            swap = [Statement(sql) for sql in _SWAP]
            swap += [*_noted(OWNER, own), *_noted(NEXT_OWNER, None)]
            try:
                yield database.ask(*(yield from one_by_one(database)), *swap, together=True)
                return made
            except Exception as error:
                # Something was written meanwhile.
                if getattr(error, "sqlstate", None) != CHANGED:
                    raise


def _begin(database: Database, own: str) -> Plan[None]:
    """A table for the new vectors, beside the items that they are of; then whose they will be."""
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
    yield database.ask(Statement(f"DROP TABLE IF EXISTS {NEW}"))
    yield database.ask(Statement(make))
    # Distributed while it is empty, and only then bound to the items: both are on the same shards.
    yield from distribute(database, None, [NEW])
    yield database.ask(Statement(cascade))
    yield database.ask(*_noted(NEXT_OWNER, own))


def _embed(database: Database, rows: Rows) -> Plan[int]:
    """Make these vectors; one whose text is no longer in the value goes."""
    texts = [_text_at(value, field) for _, _, field, value, _ in rows]
    known = [text for text in texts if text]
    made = iter((yield Embed(known, as_queries=False)) if known else ())
    statements = []
    for (*name, _, updated_at), text in zip(rows, texts, strict=True):
        sql, params = _DROP_STALE, (*name,)
        if text:
            sql, params = _KEEP, (*name, str([float(x) for x in next(made)]), updated_at)
        statements.append(Statement(sql, params))
    yield database.ask(*statements)
    return len(known)


def _index(database: Database) -> Plan[None]:
    """The same ANN index as the old vectors have, before a reader waits for it."""
    names = "SELECT pg_get_indexdef(to_regclass(%s)), to_regclass(%s)::text"
    (((definition, existing),),) = yield database.ask(Statement(names, (ANN, NEW_ANN)))
    if definition and not existing:
        _, _, how = definition.partition(" USING ")
        sql = f"CREATE INDEX {NEW_ANN} ON {NEW} USING {how}"
        yield database.ask(Statement(sql))


def _text_at(value: Any, field: str) -> str | None:
    """The text that LangGraph embedded under that name: a path, and its place among several."""
    texts = get_text_at_path(value, field if field == "$" else tokenize_path(field))
    if len(texts) == 1:
        return texts[0]
    path, _, place = field.rpartition(".")
    texts = get_text_at_path(value, tokenize_path(path)) if path and place.isdigit() else []
    return texts[int(place)] if texts and int(place) < len(texts) else None
