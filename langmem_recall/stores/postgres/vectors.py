"""Whose vectors a Postgres store holds, and making them anew with another embedder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langgraph.store.base import get_text_at_path, tokenize_path

from langmem_recall.embeddings import embedder_identity
from langmem_recall.errors import StoreError
from langmem_recall.flows.backend import OnProgress
from langmem_recall.flows.effects import Embed, Plan
from langmem_recall.stores.postgres.database import Database, Rows, Statement
from langmem_recall.types import SIDECAR_ROOT

MARK = f"{SIDECAR_ROOT} embedder: "
"""What the comment on a table of vectors begins with; the table and its maker change as one."""
NEW = f"{SIDECAR_ROOT}_vectors"
ANN, NEW_ANN = "store_vectors_embedding_idx", f"{NEW}_embedding_idx"
_ID = "prefix, key, field_name"
_WAITING = f"""
FROM store_vectors old JOIN store s USING (prefix, key) LEFT JOIN {NEW} new USING ({_ID})
WHERE new.embedding IS NULL OR new.updated_at < s.updated_at"""
_NEXT = f"SELECT {_ID}, s.value, s.updated_at {_WAITING} ORDER BY {_ID} LIMIT %s"
_COUNT = f"SELECT (SELECT count(*) FROM store_vectors), (SELECT count(*) {_WAITING})"
_DROP_STALE = f"""
DELETE FROM store_vectors USING unnest(%s::text[], %s::text[], %s::text[]) AS stale ({_ID})
WHERE (store_vectors.prefix, store_vectors.key, store_vectors.field_name)
    = (stale.prefix, stale.key, stale.field_name)"""
_MARKS = f"""
SELECT obj_description(to_regclass('store_vectors'), 'pg_class'),
    obj_description(to_regclass('{NEW}'), 'pg_class')"""
WHOSE = "(SELECT obj_description('store_vectors'::regclass, 'pg_class'))"
"""Whose vectors the table holds; NULL where that was not noted."""
_SWAP = f"""
DO $$ BEGIN
    LOCK TABLE store, store_vectors, {NEW} IN SHARE ROW EXCLUSIVE MODE;
    IF EXISTS (SELECT 1 {_WAITING}) THEN RETURN; END IF;
    DROP TABLE store_vectors;
    ALTER TABLE {NEW} RENAME TO store_vectors;
    ALTER INDEX {NEW}_pkey RENAME TO store_vectors_pkey;
    IF to_regclass('{NEW_ANN}') IS NOT NULL THEN ALTER INDEX {NEW_ANN} RENAME TO {ANN}; END IF;
END $$"""


def mark_of(store: Any) -> str | None:
    """How a table of vectors names the embedder of a store."""
    if store.embeddings is None:
        return None
    return f"{MARK}{embedder_identity(store.embeddings)}"


def check_mark(mark: str | None, own: str | None) -> None:
    """Refuse to compare vectors of one embedder with queries of another."""
    if mark and own and mark.startswith(MARK) and mark != own:
        raise StoreError(
            f"The stored vectors were made by {mark.removeprefix(MARK)}, the configured embedder "
            f"is {own.removeprefix(MARK)}. Configure the former one, or run reindex to embed "
            "everything anew."
        )


def check_owner(database: Database, claim: bool = False) -> Plan[None]:
    """Refuse vectors of another embedder; `claim` notes whose they are where that is not known."""
    own = mark_of(database.store)
    if own is not None:
        (((mark, _),),) = yield database.ask(Statement(_MARKS))
        check_mark(mark, own)
        if claim and mark is None:
            yield database.ask(_comment("store_vectors", own))


def embed_anew(database: Database, progress: OnProgress | None, batch: int) -> Plan[int]:
    """Make all vectors with the configured embedder beside the old ones, then put them in place.

    Until then the old ones serve their own embedder. Stopped at any point, it goes on from there
    when it is called again with the same embedder. Returns how many vectors were made.
    """
    own = mark_of(database.store) or ""
    yield from _begin(database, own)
    made = 0
    is_indexed = False
    while True:
        following = Statement(_NEXT, (batch,))
        rows, ((total, waiting),) = yield database.ask(following, Statement(_COUNT))
        if rows:
            made += yield from _embed(database, rows)
            if progress:
                progress(total - waiting + len(rows), total)
        elif not is_indexed:
            yield from _index(database)
            is_indexed = True
        else:
            # Put in place, unless something was written meanwhile.
            *_, marks = yield database.ask(Statement(_SWAP, returns=False), Statement(_MARKS))
            if marks[0] == (own, None):
                return made


def _begin(database: Database, own: str) -> Plan[None]:
    (((_, mark),),) = yield database.ask(Statement(_MARKS))
    if mark == own:
        return
    (vector,) = yield Embed(["reindex"], as_queries=False)
    config = database.store.index_config
    if len(vector) != config["dims"]:
        raise StoreError(
            f"The embedder gives {len(vector)} dimensions, the store is configured for "
            f"{config['dims']}. Set dims to {len(vector)}; nothing was changed."
        )
    kind = (config.get("ann_index_config") or {}).get("vector_type", "vector")
    # In a block: the driver forgets its prepared statements over a DROP that it sees.
    make = f"""
DO $$ BEGIN
    DROP TABLE IF EXISTS {NEW};
    CREATE TABLE {NEW} (
        prefix text NOT NULL, key text NOT NULL, field_name text NOT NULL,
        embedding {kind}({len(vector)}),
        created_at timestamptz DEFAULT CURRENT_TIMESTAMP,
        updated_at timestamptz DEFAULT CURRENT_TIMESTAMP,
        PRIMARY KEY ({_ID}),
        FOREIGN KEY (prefix, key) REFERENCES store (prefix, key) ON DELETE CASCADE
    );
END $$"""
    yield database.ask(Statement(make, returns=False), _comment(NEW, own))


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
    if gone:
        columns = tuple(list(column) for column in zip(*gone, strict=True))
        statements.append(Statement(_DROP_STALE, columns, returns=False))
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


def _comment(table: str, mark: str) -> Statement:
    # No parameters in such a statement.
    quoted = mark.replace("'", "''").replace("\\", "/").replace("%", "%%").replace("\0", "")
    return Statement(f"COMMENT ON TABLE {table} IS '{quoted}'", returns=False)
