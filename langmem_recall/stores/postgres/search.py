"""Reading a Postgres store in few round trips, with dense pools that no ANN index thins out."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import chain
from time import monotonic
from typing import Any, Literal, NamedTuple

from langgraph.store.base import GetOp, Item, SearchItem, SearchOp

from langmem_recall.deadline import loading
from langmem_recall.errors import described
from langmem_recall.flows.candidates import id_of
from langmem_recall.flows.effects import Embed, Plan
from langmem_recall.stores.backend import Fetched
from langmem_recall.stores.postgres.database import (
    HAS_CITUS,
    IS_PARTED,
    Database,
    Homes,
    Rows,
    Statement,
    below,
    keys_by_path,
    namespace_of,
    path_of,
    within,
)
from langmem_recall.stores.postgres.schema import SETTINGS_TABLE, WORDS, WORDS_INDEX
from langmem_recall.stores.postgres.vectors import WHOSE, check_identity, identity_of
from langmem_recall.text.tokens import STOP_WORDS
from langmem_recall.types import Memory, MemoryId, Namespace

EXACT_UP_TO = 1_000
"""Memories that are compared one by one in about the time an ANN index takes."""
LEAST_LIST, FILTERED_LIST, MOST_LIST = 40, 200, 1_000
"""Candidates that an HNSW index may hold while it searches."""
SURVEY_AGE_S = 600.0
"""Seconds after which sizes of table and namespace, and common words, are looked up again."""
MOST_COUNTED = 100_000
"""Memories of a namespace beyond which its size does not matter."""
MOST_SIZES, MOST_COMMON, MOST_VERSIONS = 10_000, 20_000, 500_000
"""Namespaces whose size, words that proved common, and items whose version is remembered."""
OVERLAP = timedelta(seconds=60)
"""A transaction may end so long after the time that its rows carry."""
RARE = 50
"""A word that more memories of a namespace have does not tell them apart."""
MOST_MARKED, MOST_PLAIN = 9, 3
"""Words asked for: names, numbers and identifiers, and the longest of the rest."""
ROW_BYTES = 150
"""What a vector takes besides its numbers."""

_WORD = re.compile(r"\w[\w.@:/-]*\w|\w")

_ITEM = "s.prefix, s.key, s.value, s.created_at, s.updated_at"
_VERSION = "jsonb_hash_extended(s.value, 0)"
"""Tells a value from any other that the same time was noted for, by whatever means it came."""
_WHOLE = f"{_ITEM}, {_VERSION}"
_STAMP = f"s.prefix, s.key, NULL::jsonb, s.created_at, s.updated_at, {_VERSION}"
"""An item without its value, for a caller that holds that already."""
_JOINED = "store s JOIN store_vectors sv ON s.prefix = sv.prefix AND s.key = sv.key"
_HOMES = f"sv.prefix = ANY(ARRAY(SELECT DISTINCT prefix FROM store WHERE {below('prefix')}))"
_BY_NAME = ', sv.prefix COLLATE "C", sv.key COLLATE "C"'
"""Where distances are equal, or a page would have what another one has."""
_SURVEY = Statement(
    f"""
SELECT coalesce((SELECT reltuples FROM pg_class WHERE oid = to_regclass('store_vectors')), 0),
    coalesce((SELECT extversion FROM pg_extension WHERE extname = 'vector'), '0'),
    to_regclass(%s) IS NOT NULL, to_regclass(%s) IS NOT NULL, {HAS_CITUS}, {IS_PARTED}""",
    (WORDS_INDEX, SETTINGS_TABLE),
)
_SHARD_BYTES = "SELECT pg_table_size(tableoid) FROM store_vectors WHERE prefix = %s LIMIT 1"
"""Evaluated where the row is: what the planner believes of a split table says nothing of a part."""

_BELOW = "{below}"
"""Stands in a statement for the condition that an item lies at or below a namespace."""
Scan = Literal["index", "rows", "memories"]
"""The nearest that the ANN index finds, of all vectors, or of all memories by their best one."""
Known = Callable[[MemoryId], Memory | None]
"""What a process knows of a memory without reading it."""


class Survey(NamedTuple):
    """What the choice between comparing all and asking the index depends on."""

    vectors: float | None
    """In the table, as the planner believes; of a split one in a part, None before it is known."""
    can_iterate: bool
    """Whether an index scan can go on until enough rows pass the filter."""
    has_words: bool
    """Whether the words of items are indexed."""
    at: float
    has_settings: bool = True
    """Whether there is a table in which it is noted whose the vectors are."""

    def exact_up_to(self, count: int) -> float:
        """Size of a namespace up to which all its vectors are compared.

        To meet `count` of them an index passes by count * vectors / size others, so below the
        root of count * vectors it has more to do.
        """
        return max(EXACT_UP_TO, math.sqrt(count * max(self.vectors or 0, 0)))


class RareWords:
    """Asks for the memories that have a cue's rare words; common ones are pruned and remembered."""

    def __init__(self) -> None:
        self._common: dict[tuple[Namespace, str], float] = {}

    def pick(self, prefix: Namespace, texts: Iterable[str]) -> list[str]:
        """The words that may be rare, those with digits, marks and capitals first."""
        oldest = monotonic() - SURVEY_AGE_S
        found = {word.casefold(): word for text in texts for word in _WORD.findall(text)}
        words = [
            word
            for folded, word in found.items()
            if folded not in STOP_WORDS and self._common.get((prefix, folded), oldest) <= oldest
        ]
        plain = [word for word in words if word.isalpha() and word == word.casefold()]
        marked = [word for word in words if word not in plain]
        return [*marked[:MOST_MARKED], *sorted(plain, key=len, reverse=True)[:MOST_PLAIN]]

    def statement(
        self, prefix: Namespace, words: Sequence[str], most: int, homes: Homes | None = None
    ) -> Statement:
        """Items with the rarest of these words, and which words are too common to tell."""
        here, params_here = within("prefix", prefix, homes)
        one = f"""(SELECT %s::integer AS word, prefix, key FROM store
        WHERE {WORDS} @@ phraseto_tsquery('simple', %s) AND {here} LIMIT {RARE + 1})"""
        place, params_place = _beside(prefix, homes)
        sql = f"""
WITH hits AS ({" UNION ALL ".join([one] * len(words))}),
counted AS (SELECT *, count(*) OVER (PARTITION BY word) AS frequency FROM hits)
SELECT NULL::integer, {_ITEM} FROM (
    SELECT prefix, key, sum(1.0 / frequency) AS worth FROM counted WHERE frequency <= {RARE}
    GROUP BY prefix, key ORDER BY worth DESC LIMIT %s
) found JOIN store s ON s.prefix = found.prefix AND s.key = found.key{place}
UNION ALL
SELECT DISTINCT word, NULL, NULL, NULL::jsonb, NULL::timestamptz, NULL::timestamptz
FROM counted WHERE frequency > {RARE}"""
        asked = [part for nth, word in enumerate(words) for part in (nth, word, *params_here)]
        return Statement(sql, (*asked, most, *params_place))

    def items(self, prefix: Namespace, words: Sequence[str], rows: Rows) -> Rows:
        """The rows of items; the words that proved common are noted."""
        if len(self._common) > MOST_COMMON:
            self._common.clear()
        common = [words[row[0]].casefold() for row in rows if row[0] is not None]
        self._common |= dict.fromkeys(((prefix, word) for word in common), monotonic())
        return [tuple(item) for nth, *item in rows if nth is None]


class PostgresReads:
    """Reads of one Postgres store, as plans.

    Values that this process holds in their latest version are not sent again.
    """

    def __init__(self, database: Database) -> None:
        self._database, self._homes = database, database.homes
        self._store = database.store
        self._survey: Survey | None = None
        self._identity = identity_of(self._store)
        self._rare = RareWords()
        self._sizes: dict[tuple[Namespace, bool], tuple[int, float]] = {}
        self._versions: dict[tuple[str, str], int] = {}
        config = self._store.index_config or {}
        ann = config.get("ann_index_config") or {}
        self._has_cosines = bool(config) and config.get("distance_type", "cosine") == "cosine"
        self._type = ann.get("vector_type", "vector")
        self._is_hnsw = ann.get("kind", "hnsw") == "hnsw"
        self._per_memory: int = max(1, config.get("__estimated_num_vectors", 1))
        self._row_bytes = config.get("dims", 0) * (2 if self._type == "halfvec" else 4) + ROW_BYTES

    def can_search(self, searches: Sequence[SearchOp]) -> bool:
        """Whether statements of our own can say the same as the store's, and better."""
        return self._has_cosines and all(op.namespace_prefix for op in searches)

    def fetch(
        self,
        searches: Sequence[SearchOp],
        gets: Sequence[GetOp],
        texts: Sequence[str] = (),
        *,
        most: int = RARE,
        size: int | None = None,
        known: Known | None = None,
        exact: bool = False,
    ) -> Plan[Fetched]:
        """Pages, items, and the `most` items with rare words of the texts, in one round trip.

        A page is full whenever its namespace, which has `size` memories, can fill it: where an
        index has lost some, a second round trip compares all the vectors. Values that are `known`
        are not sent; those that turn out to have changed are fetched in another one. `exact` leaves
        out what lies below the namespace.
        """
        ask, prefix, limit = self._database.ask, searches[0].namespace_prefix, searches[0].limit
        vectors = yield Embed([op.query or "" for op in searches], as_queries=False)
        survey = self._survey
        if survey is None or survey.vectors is None or monotonic() - survey.at > SURVEY_AGE_S:
            survey = yield from self._surveyed(prefix)
        if size is None:
            size = yield from self._size(prefix, exact)
        homes = (path_of(prefix),) if exact else self._homes.of(prefix)
        scan: Scan = "rows" if size <= survey.exact_up_to(limit) else "index"
        is_tuned = scan == "index" and self._is_hnsw
        settings = self._settings(searches[0], survey) if is_tuned else []
        fields = _WHOLE if known is None else _STAMP
        asks = list(zip(searches, map(_literal, vectors), strict=True))
        looks = [self._nearest(scan, homes, *one, fields) for one in asks]
        ids = [(op.namespace, op.key) for op in gets]
        reads = self._get_all(ids, fields)
        parts = len(looks) + len(reads)
        is_one = homes is not None and len(homes) == 1 and len(reads) < 2
        statements = [_as_one(looks, reads)] if is_one else [*looks, *reads]
        words = self._rare.pick(prefix, texts) if survey.has_words else []
        if words:
            statements.append(self._rare.statement(prefix, words, most, homes))
        answers: list[Rows] = yield ask(*settings, *statements, together=len(settings) > 1)
        answers = answers[len(settings) :]
        worded = self._rare.items(prefix, words, answers.pop()) if words else []
        if is_one:
            answers = [[tuple(row) for at, *row in answers[0] if at == nth] for nth in range(parts)]
        if known is not None:
            values, missing = self._known_values(answers, known)
            if missing:
                rows = list(chain(*(yield ask(*self._get_all(missing, _WHOLE)))))
                self._note_versions(rows)
                values |= {(path, key): tuple(value) for path, key, *value, _ in rows}
            # What vanished meanwhile is left out.
            answers = [
                [(*row[:2], *values[row[:2]], *row[5:]) for row in rows if row[:2] in values]
                for rows in answers
            ]
        pages = [self._page(rows) for rows in answers[: len(searches)]]
        # Compare all vectors where a page is short of what the namespace may hold.
        thin = [
            place
            for place, (op, _) in enumerate(asks)
            if len(pages[place]) < op.limit
            and (scan == "index" or len(answers[place]) >= op.limit * self._per_memory)
        ]
        if thin:
            again = [self._nearest("memories", homes, *asks[place], _WHOLE) for place in thin]
            for place, rows in zip(thin, (yield ask(*again)), strict=True):
                pages[place] = self._page(rows)
        for op, page in zip(searches, pages, strict=True):
            del page[op.limit :]
        items = _by_id(ids, chain(*answers[len(searches) :]))
        return Fetched(pages, items | {id_of(item): item for item in _items(worded)}, vectors)

    def worded(self, prefix: Namespace, texts: Sequence[str], most: int) -> Plan[list[Item]]:
        """The items with rare words of the texts, where there are no vectors to search by."""
        survey = yield from self._surveyed(None)
        words = self._rare.pick(prefix, texts) if survey.has_words else []
        if not words:
            return []
        statement = self._rare.statement(prefix, words, most, self._homes.of(prefix))
        (rows,) = yield self._database.ask(statement)
        return _items(self._rare.items(prefix, words, rows))

    def items(self, gets: Sequence[GetOp]) -> Plan[dict[MemoryId, Item | None]]:
        """Items by namespace and key, None for one that is not there, without touching them."""
        ids = [(op.namespace, op.key) for op in gets]
        rows = chain(*(yield self._database.ask(*self._get_all(ids, _WHOLE)))) if ids else ()
        return _by_id(ids, rows)

    def listing(self, prefix: Namespace, most: int) -> Plan[list[Item]]:
        """Every item below a namespace, one more than `most` at most; and the survey."""
        sql = f"SELECT {_WHOLE} FROM store s WHERE {_BELOW}{self._unexpired()} LIMIT %s"
        with loading():
            rows, survey = yield from self._look_below(prefix, Statement(sql, (most + 1,)), _SURVEY)
        self._take_survey(survey)
        self._note_versions(rows)
        if len(rows) <= most:
            self._note_homes(prefix, rows)
        return _items(rows)

    def ordered(self, op: SearchOp, order: str) -> Plan[list[Any]]:
        """Items at or below a namespace in some order, as the store itself lists them."""
        place, params = within("s.prefix", op.namespace_prefix, self._homes.of(op.namespace_prefix))
        clauses, operands = self._filter(op.filter)
        sql = f"""
SELECT {_ITEM} FROM store s WHERE {place}{clauses}{self._unexpired()}
ORDER BY {order} LIMIT %s OFFSET %s"""
        params = (*params, *operands, op.limit, op.offset)
        (rows,) = yield self._database.ask(Statement(sql, params))
        return _items(rows)

    def changes(self, prefix: Namespace, since: datetime) -> Plan[tuple[list[Item], int]]:
        """What was written below a namespace since then, and how many items it has."""
        home, group = ("s.prefix", "GROUP BY s.prefix") if self._homes.is_split else ("NULL", "")
        place = f"FROM store s WHERE {_BELOW}{self._unexpired()}"
        recent = f"SELECT {_WHOLE} {place} AND s.updated_at >= %s"
        counted = Statement(f"SELECT {home}, count(*) {place} {group}")
        rows, counts = yield from self._look_below(
            prefix, Statement(recent, (since - OVERLAP,)), counted
        )
        self._note_versions(rows)
        self._note_homes(prefix, counts)
        return _items(rows), sum(count for _, count in counts)

    def _look_below(self, prefix: Namespace, *statements: Statement) -> Plan[list[Rows]]:
        """What statements find everywhere below a namespace, or where that is known to be enough.

        Where a server of a cluster is down, what lies on the others need not wait for it.
        """

        def placed(homes: Homes | None) -> list[Statement]:
            place, params = within("s.prefix", prefix, homes)
            return [
                Statement(sql.replace(_BELOW, place), (*params, *rest) if _BELOW in sql else rest)
                for sql, rest in statements
            ]

        homes = None if self._homes.is_due(prefix) else self._homes.of(prefix)
        try:
            answers: list[Rows] = yield self._database.ask(*placed(homes))
        except Exception as error:
            if homes is not None or not (yield from self._database.is_sharded()):
                raise
            known = self._homes.of(prefix) or (path_of(prefix),)
            answers = yield self._database.ask(*placed(known))
            self._homes.note(prefix, known, described(error))
        return answers

    def _note_homes(self, prefix: Namespace, rows: Rows) -> None:
        if self._homes.is_split and self._homes.is_due(prefix):
            self._homes.note(prefix, (row[0] for row in rows))

    def _note_versions(self, rows: Rows) -> None:
        if len(self._versions) > MOST_VERSIONS:
            self._versions.clear()
        self._versions.update({(path, key): version for path, key, _, _, _, version in rows})

    def _known_values(
        self, answers: Sequence[Rows], known: Known
    ) -> tuple[dict[tuple[str, str], tuple[Any, ...]], list[MemoryId]]:
        """Values of rows that came without them, and those of which none is known."""
        values: dict[tuple[str, str], tuple[Any, ...]] = {}
        missing: list[MemoryId] = []
        for path, key, _, created_at, updated_at, version, *_ in chain(*answers):
            memory = known((namespace_of(path), key))
            is_latest = self._versions.get((path, key)) == version
            if is_latest and memory is not None and memory.updated_at == updated_at:
                # The very time object that is known says that nothing has to be compared.
                values[path, key] = memory.value, created_at, memory.updated_at
            else:
                missing.append((namespace_of(path), key))
        return values, missing

    def _size(self, prefix: Namespace, exact: bool = False) -> Plan[int]:
        """How many memories a namespace has, up to a number; and where they lie."""
        is_due = not exact and self._homes.is_split and self._homes.is_due(prefix)
        size, counted_at = self._sizes.get((prefix, exact), (0, -math.inf))
        if is_due or monotonic() - counted_at > SURVEY_AGE_S:
            place, params = ("s.prefix = %s", (path_of(prefix),)) if exact else (_BELOW, ())
            some = f"SELECT 1 FROM store s WHERE {place} LIMIT {MOST_COUNTED}"
            looks = [Statement(f"SELECT count(*) FROM ({some}) AS counted", params)]
            if is_due:
                looks.append(Statement(f"SELECT DISTINCT s.prefix FROM store s WHERE {_BELOW}"))
            ((size,),), *paths = yield from self._look_below(prefix, *looks)
            if is_due:
                self._note_homes(prefix, paths[0])
            if len(self._sizes) >= MOST_SIZES:
                self._sizes.clear()
            self._sizes[prefix, exact] = size, monotonic()
        return size

    def _surveyed(self, prefix: Namespace | None) -> Plan[Survey]:
        """The survey, taken anew when it is old; of a namespace with the size of its vectors."""
        survey = self._survey
        if survey is None or monotonic() - survey.at > SURVEY_AGE_S:
            (rows,) = yield self._database.ask(_SURVEY)
            survey = self._take_survey(rows)
        if prefix is not None and survey.vectors is None:
            home = (self._homes.of(prefix) or (path_of(prefix),))[0]
            taken = 0
            # Without it a namespace is compared whole up to the least number.
            with suppress(Exception):
                (sizes,) = yield self._database.ask(Statement(_SHARD_BYTES, (home,)))
                taken = sizes[0][0] if sizes else 0
            self._survey = survey = survey._replace(vectors=taken / self._row_bytes)
        return survey

    def _take_survey(self, rows: Rows) -> Survey:
        ((vectors, version, has_words, has_settings, has_citus, is_parted),) = rows
        self._homes.learn(has_citus, is_parted)
        known = None if self._homes.is_split else vectors
        can_iterate = [int(part) for part in version.split(".")] >= [0, 8]
        self._survey = Survey(known, can_iterate, has_words, monotonic(), has_settings)
        return self._survey

    def _settings(self, op: SearchOp, survey: Survey) -> list[Statement]:
        """Enough candidates for the page, which 40 as they come may not be."""
        wanted = FILTERED_LIST if op.filter else op.limit * self._per_memory
        names = {"hnsw.ef_search": str(max(LEAST_LIST, min(wanted, MOST_LIST)))}
        # Few may pass a filter: then comparing those is quicker than scanning on for them.
        if survey.can_iterate and not op.filter:
            # The strict order drops what a scan that goes on finds too late; we sort ourselves.
            names["hnsw.iterative_scan"] = "relaxed_order"
        if self._homes.has_citus:
            # To its servers only such statements go, and only if it is told to send them.
            names = {"citus.propagate_set_commands": "local", **names}
            return [Statement(f"SET LOCAL {one} = '{names[one]}'") for one in names]
        # In a block they need no BEGIN, which is quicker.
        sets = " ".join(f"SET LOCAL {name} = '{value}';" for name, value in names.items())
        return [Statement(f"DO $$ BEGIN {sets} END $$")]

    def _nearest(
        self, scan: Scan, homes: Homes | None, op: SearchOp, vector: str, fields: str
    ) -> Statement:
        """The items of the nearest vectors, read after the rest was left out, and whose vectors."""
        prefix, most = op.namespace_prefix, op.limit * self._per_memory
        score, group, ties = f"(sv.embedding <=> %s::{self._type})", "", _BY_NAME
        # No index can serve a sum or a minimum.
        if scan == "index":
            ties = ""
        elif scan == "rows":
            score = f"{score} + 0"
        else:
            score, group, most = f"min({score})", "GROUP BY sv.prefix, sv.key", op.limit
        unexpired = self._unexpired()
        if op.filter or unexpired:
            clauses, operands = self._filter(op.filter)
            here, params = within("s.prefix", prefix, homes)
            also, more = within("sv.prefix", prefix, homes) if homes else ("true", ())
            source, place = _JOINED, f"{here} AND {also}{clauses}{unexpired}"
            params = (*params, *more, *operands)
        else:
            source, (place, params) = "store_vectors sv", within("sv.prefix", prefix, homes)
            place = _HOMES if homes is None and scan != "index" else place
        whose = WHOSE if self._survey is None or self._survey.has_settings else "NULL"
        beside, params_beside = _beside(prefix, homes)
        sql = f"""
SELECT {fields}, found.distance, {whose} AS whose FROM (
    SELECT sv.prefix, sv.key, {score} AS distance FROM {source} WHERE {place} {group}
    ORDER BY distance{ties} LIMIT %s
) found JOIN store s ON s.prefix = found.prefix AND s.key = found.key{beside}
ORDER BY found.distance"""
        return Statement(sql, (vector, *params, most, *params_beside))

    def _filter(self, filter: Mapping[str, Any] | None) -> tuple[str, list[Any]]:
        """Further conditions as the store itself writes them, so that they mean the same."""
        sql, params = "", []
        for field, wanted in (filter or {}).items():
            tests = wanted.items() if isinstance(wanted, dict) else [("$eq", wanted)]
            for operator, operand in tests:
                clause, operands = self._store._get_filter_condition(field, operator, operand)
                sql += f" AND {clause}"
                params += operands
        return sql, params

    def _get_all(self, ids: Sequence[MemoryId], fields: str) -> list[Statement]:
        sql = f"SELECT {fields} FROM store s WHERE s.prefix = %s AND s.key = ANY(%s)"
        return [Statement(sql + self._unexpired(), one) for one in keys_by_path(ids).items()]

    def _unexpired(self) -> str:
        omits = self._store._omit_expired
        return " AND (s.expires_at IS NULL OR s.expires_at > now())" if omits else ""

    def _page(self, rows: Rows) -> list[SearchItem]:
        """Rows as items, of several vectors of a memory the nearest."""
        if rows:
            check_identity(rows[0][-1], self._identity)
        nearest: dict[tuple[str, str], tuple[Any, ...]] = {}
        # By name where distances are equal; the server would read the whole table for that.
        for row in sorted(rows, key=lambda row: (math.isnan(row[-2]), row[-2], *row[:2])):
            nearest.setdefault(row[:2], row)
        page = _items(nearest.values())
        for item, row in zip(page, nearest.values(), strict=True):
            item.score = 1.0 - row[-2]
        return page


def _items(rows: Iterable[tuple[Any, ...]]) -> list[Any]:
    return [SearchItem(namespace_of(path), *item[:4]) for path, *item in rows]


def _by_id(ids: Iterable[MemoryId], rows: Iterable[tuple[Any, ...]]) -> dict[MemoryId, Item | None]:
    return dict.fromkeys(ids) | {id_of(item): item for item in _items(rows)}


def _as_one(searches: Sequence[Statement], gets: Sequence[Statement]) -> Statement:
    """Searches and reads of one home as one statement, which is one command to its shard."""
    parts = [f"SELECT {nth} AS nth, part.* FROM ({it.sql}) part" for nth, it in enumerate(searches)]
    parts += [
        f"SELECT {nth}, part.*, NULL::double precision, NULL::text FROM ({one.sql}) part"
        for nth, one in enumerate(gets, len(searches))
    ]
    params = chain.from_iterable(one.params for one in (*searches, *gets))
    return Statement(" UNION ALL ".join(parts), tuple(params))


def _beside(prefix: Namespace, homes: Homes | None) -> tuple[str, tuple[Any, ...]]:
    """What to add to a join with the items, so that it leads to the shards of known homes alone."""
    if homes is None:
        return "", ()
    place, params = within("s.prefix", prefix, homes)
    return f" AND {place}", params


def _literal(vector: Sequence[float]) -> str:
    # Nine digits tell all the numbers apart that a vector's four bytes can hold.
    return f"[{('%.9g,' * len(vector) % tuple(vector))[:-1]}]"
