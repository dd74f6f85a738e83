"""Lexical candidates from the database, for namespaces too large to index in process."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence

from langmem_recall.stores.postgres.database import Rows, Statement, below, bounds
from langmem_recall.stores.postgres.schema import WORDS
from langmem_recall.text.tokens import STOP_WORDS
from langmem_recall.types import Namespace

RARE = 50
"""A word that more memories of a namespace have does not tell them apart."""
MOST_MARKED, MOST_PLAIN = 9, 3
"""Words asked for: names, numbers and identifiers, and the longest of the rest."""
MOST_COMMON = 20_000
"""Common words that are remembered, so that they are not looked up again."""
COMMON_AGE_S = 600.0

_WORD = re.compile(r"\w[\w.@:/-]*\w|\w")
_ITEM = "s.prefix, s.key, s.value, s.created_at, s.updated_at"


class RareWords:
    """Asks for the memories that have a cue's rare words; common ones are pruned and remembered."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._common: dict[tuple[Namespace, str], float] = {}

    def pick(self, prefix: Namespace, texts: Iterable[str]) -> list[str]:
        """The words that may be rare, those with digits, marks and capitals first."""
        now = self._clock()
        found = [word for text in texts for word in _WORD.findall(text)]
        words = {word.casefold(): word for word in found if word.casefold() not in STOP_WORDS}
        unknown = [
            word
            for folded, word in words.items()
            if now - self._common.get((prefix, folded), -COMMON_AGE_S) >= COMMON_AGE_S
        ]
        plain = [word for word in unknown if word.isalpha() and word == word.casefold()]
        marked = [word for word in unknown if word not in plain]
        return [*marked[:MOST_MARKED], *sorted(plain, key=len, reverse=True)[:MOST_PLAIN]]

    def statement(self, prefix: Namespace, words: Sequence[str], most: int) -> Statement:
        """Items with the rarest of these words, and which words are too common to tell."""
        one = f"""(SELECT %s::integer AS word, prefix, key FROM store
        WHERE {WORDS} @@ phraseto_tsquery('simple', %s) AND {below("prefix")} LIMIT {RARE + 1})"""
        sql = f"""
WITH hits AS ({" UNION ALL ".join([one] * len(words))}),
counted AS (SELECT *, count(*) OVER (PARTITION BY word) AS frequency FROM hits)
SELECT NULL::integer, {_ITEM} FROM (
    SELECT prefix, key, sum(1.0 / frequency) AS worth FROM counted WHERE frequency <= {RARE}
    GROUP BY prefix, key ORDER BY worth DESC LIMIT %s
) found JOIN store s ON s.prefix = found.prefix AND s.key = found.key
UNION ALL
SELECT DISTINCT word, NULL, NULL, NULL::jsonb, NULL::timestamptz, NULL::timestamptz
FROM counted WHERE frequency > {RARE}"""
        params = [
            part for place, word in enumerate(words) for part in (place, word, *bounds(prefix))
        ]
        return Statement(sql, (*params, most))

    def items(self, prefix: Namespace, words: Sequence[str], rows: Rows) -> Rows:
        """The rows of items; the words that proved common are noted."""
        if len(self._common) > MOST_COMMON:
            self._common.clear()
        now = self._clock()
        for common, *_ in rows:
            if common is not None:
                self._common[prefix, words[common].casefold()] = now
        return [tuple(item) for common, *item in rows if common is None]
