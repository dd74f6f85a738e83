"""From a cue and a catalog to one absolute relevance per memory.

    relevance = sigmoid(score)
    a memory that stands alone:  score = f + WORDS * min(c^3, surprise / WORDS) - STRAY * c
                                 f     = DENSE * (z - chance(N) + SUPPORT * support)
    one in a conversation:       score = g(z and c with its neighbours') + THREAD * best g of the
                                         thread
                                 g     = DENSE * (z - chance(N)) + WORDS * (c - EXPECTED)
    both:  + LENGTH * ln((1 + terms) / 4), fewer terms than four; - OTHER, - UNNAMED, - NO_ANSWER

z is the cosine in standard deviations above what the cue has with unrelated statements, c the
share of the cue's IDF mass that the memory contains. In a conversation the words of a question are
expected in what answers it, and missing ones count against a memory. A note is asked for in any
words: missing ones say nothing, and only a match that chance does not explain counts.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from langmem_recall.ranking.arrays import BoolArray, Column, FloatArray, IntArray, largest
from langmem_recall.ranking.calibration import NullDistribution
from langmem_recall.ranking.catalog import CODED, NUMBERED, PHRASED, TIMED, Catalog
from langmem_recall.ranking.threads import Links, ThreadOrder
from langmem_recall.text.tokens import (
    STOP_WORDS,
    Word,
    is_identifier,
    language_of,
    near_spellings,
    read_words,
    tokens,
)

DENSE = 0.5
"""Log-odds of a standard deviation of similarity."""
WORDS = 5.0
"""Log-odds of all of the cue's words; 5 to 1 against `DENSE` ranks best in conversations."""
EXPECTED = 0.46
"""Share of a question's words that says neither yes nor no in a conversation."""
STRAY = 0.5
"""Taken off for a word or two in common: most memories of a large store have that by chance."""
WHOLE = 0.99
"""Share of a cue's words from which a memory has all of them."""
BACKGROUND = 50
"""Memories that a store is thought to have besides its own: else a lone one has no rare words."""
SUPPORT, SUPPORTERS = 0.6, 5
"""Weight of what the next best memories reach beyond chance, and how many of them. It tells a cue
on the store's subjects from a stray one, and needs no more of a store than its best few."""
TAIL = 1.25
"""How much further out the best of many unrelated memories lies than under a normal distribution;
with less, far cues bring something more often the more is stored."""
NO_DENSE = -0.6
"""Dense evidence of a memory that was not measured: words alone must cover nearly all of a cue."""
LENGTH, TERMS = 0.3, 4
"""Fewer terms than these say less of what is meant."""
NAME_WEIGHT, CODE_WEIGHT = 2.0, 6.0
"""How much more a name or number, and an identifier, counts among a cue's words."""
LONG_TERMS, USUAL_TERMS = 150, 40
"""A text of more terms than the first has as many chances to have a word as it is usual texts long:
the word counts by the chance that none of the others has it."""
PREVIOUS, FOLLOWING = 0.5, 0.25
"""Share of the neighbours' cosines in a memory's own: an answer follows its question."""
EARLIER, LATER, REACH = 0.75, 0.6, 6
"""What a word said one memory earlier or later in the thread is worth, its powers further away."""
THREAD = 0.3
"""Weight of the best evidence anywhere in the thread."""
OTHER = 2.5
"""Taken off when the cue names one known speaker and the memory is another's, or identifiers and it
has only others: texts that differ in a code are alike to embedders."""
UNNAMED = 0.4
"""Taken off when the cue names something and the memory, which stands alone, has none of its names:
"Who painted the Mona Lisa?" is not about just any painting."""
NO_ANSWER = 1.0
"""Taken off when the cue asks when or how many and the memory has no time or number."""
NOTHING_ASKED = -9.0
"""The score where there is nothing to go by: no terms in the cue, or no evidence at all."""
FLAT = 60.0
"""Evidence beyond which relevance no longer changes, so that no exponential overflows."""
COMMON_SHARE = 0.05
COMMON_COUNT = 20
"""A name in more memories than both says nothing about which one is meant."""

_WHEN = re.compile(r"\b(?:when|what (?:time|date|day|month|year)|how long ago)\b", re.IGNORECASE)
_COUNT = re.compile(r"\bhow (?:many|much|often|old|long|far|tall|big)\b", re.IGNORECASE)


class Part(NamedTuple):
    """One part of a cue, read against the memories it will be matched with."""

    text: str
    dense_text: str
    """What is embedded: the text without names that most memories share."""
    repeats: dict[str, int]
    """Its terms and how often it has each."""
    weights: dict[str, float]
    """How much each of them counts."""
    names: dict[str, float]
    """The terms that are names, identifiers or numbers."""
    is_naming: bool
    """Whether a memory that is meant should have one of them."""
    speaker: int | None
    """The only known speaker the part names."""
    flags: int
    """TIMED and NUMBERED: whether it asks for a time, for a number."""


class LexicalMatch(NamedTuple):
    """What the words of one part find, for every row of a catalog."""

    own: FloatArray
    """Share of the part's IDF mass that a memory has by its own words."""
    coverage: FloatArray
    """The same with the words of its thread."""
    rarity: FloatArray
    """How unlikely it is, in natural units, that an unrelated memory has these words."""
    misnamed: FloatArray
    """1.0 where a memory has identifiers, and none of the part's."""
    bm25: FloatArray
    entity: FloatArray


class EvidenceTable(NamedTuple):
    """Evidence for every row of a catalog, pooled over the parts of the cue."""

    dense: FloatArray
    coverage: FloatArray
    bm25: FloatArray
    matched: BoolArray
    entity: FloatArray
    episode: FloatArray
    score: FloatArray
    """Relevance in log-odds."""
    alone: IntArray
    """Of rows without neighbours the part, from 1; 0 of others."""

    @property
    def relevance(self) -> FloatArray:
        """All of it as one absolute number in [0, 1]."""
        return 1.0 / (1.0 + np.exp(np.minimum(np.maximum(-self.score, -FLAT), FLAT)))

    def at(self, rows: IntArray) -> EvidenceTable:
        """The evidence of some rows."""
        return EvidenceTable._make(column[rows] for column in self)


class Window:
    """A few rows of a catalog with their whole threads: all that their evidence depends on.

    Stands in for the catalog, so that thirty memories do not pay for the other hundred thousand.
    """

    def __init__(self, catalog: Catalog, rows: Sequence[int]) -> None:
        whole = catalog.thread_order()
        # The rows are distinct, so there is nothing to unite.
        places = np.sort(whole.place[np.array(rows, np.int32)])
        if whole.has_neighbours:
            threads = np.unique(whole.thread_at[places])
            ends = np.append(whole.starts, len(whole.rows))
            spans = [np.arange(ends[thread], ends[thread + 1]) for thread in threads.tolist()]
            places = np.concatenate([*spans, np.zeros(0, np.int64)]).astype(np.int32)
        self.catalog_rows: IntArray = whole.rows[places]
        """The row of the catalog at each row of the window."""
        self.rows = len(places)
        self.size = catalog.size
        self.speaker, self.flags = Column(np.int32), Column(np.uint8)
        self.speaker.extend(catalog.speaker.values[self.catalog_rows])
        self.flags.extend(catalog.flags.values[self.catalog_rows])
        self._row_of = {row: place for place, row in enumerate(self.catalog_rows.tolist())}
        own, follows = np.arange(len(places), dtype=np.int32), whole.follows[places]
        self._order = ThreadOrder(
            rows=own,
            place=own,
            thread=whole.thread[places],
            starts=np.flatnonzero(~follows).astype(np.int32),
            thread_at=np.cumsum(~follows, dtype=np.int32) - 1,
            follows=follows,
            implied=whole.implied[places],
        )
        self._places = places
        self._catalog = catalog

    def row(self, row: int) -> int:
        """The window's row of a row of the catalog that it was made for."""
        return self._row_of[row]

    def wording(self, match: LexicalMatch) -> LexicalMatch:
        """What words find, for these rows."""
        return LexicalMatch._make(column[self.catalog_rows] for column in match)

    def thread_order(self) -> ThreadOrder:
        """The layout of the rows, which the window has in the order of their threads."""
        return self._order

    def links(self, previous: float, following: float) -> Links:
        """How much neighbours share when all are known."""
        whole = self._catalog.links(previous, following)
        return Links._make(column[self._places] for column in whole)


def read_part(text: str, catalog: Catalog, strip_names: bool) -> Part:
    """Read one part of a cue: its terms, names, speaker and what kind of answer it wants."""
    words = read_words(text)
    mentions = _speaker_mentions(words, catalog) if catalog.speakers else {}
    speaker_terms = {term for name in mentions.values() for term in tokens(name)}
    name_terms = {term for word in words if word.is_capital for term in tokens(word.text)}
    terms = [_as_known(term, catalog) for term in tokens(text)]
    name_terms |= {_as_known(term, catalog) for term in name_terms}
    # A speaker's name says whose memory is meant, not what it is about.
    repeats = Counter(term for term in terms if term not in speaker_terms) or Counter(terms)
    names = [term for term in repeats if term in name_terms or any(map(str.isdigit, term))]
    speakers = set(mentions.values())
    return Part(
        text=text,
        dense_text=_without_common_names(text, words, mentions, catalog) if strip_names else text,
        repeats=repeats,
        weights=dict.fromkeys(repeats, 1.0)
        | dict.fromkeys(names, NAME_WEIGHT)
        | dict.fromkeys(filter(is_identifier, repeats), CODE_WEIGHT),
        names=dict.fromkeys(names, 1.0),
        # German writes every noun like a name, and some write everything in capitals.
        is_naming=bool(names) and not text.isupper() and language_of(text) != "de",
        speaker=catalog.speakers[speakers.pop()] if len(speakers) == 1 else None,
        flags=TIMED * bool(_WHEN.search(text)) | NUMBERED * bool(_COUNT.search(text)),
    )


def _as_known(term: str, catalog: Catalog) -> str:
    """A term that no memory has as the likeliest of those that it may be misspelt for."""
    lexical = catalog.lexical
    if lexical.document_frequency(term):
        return term
    return lexical.most_frequent(near_spellings(term)) or term


def _speaker_mentions(words: Sequence[Word], catalog: Catalog) -> dict[str, str]:
    """Words of the cue that name a known speaker, and the speaker they name."""
    firsts = {name.split(" ")[0]: name for name in catalog.speakers}
    lower = not any(word.text[0].isupper() for word in words)
    return {
        word.folded: firsts[word.folded]
        for word in words
        # "Will" may be a speaker, "will" is not; a cue without capitals is taken at its word.
        if word.folded in firsts
        and (
            word.is_capital or ((lower or word.text[0].isupper()) and word.folded not in STOP_WORDS)
        )
    }


def _without_common_names(
    text: str, words: Sequence[Word], mentions: Mapping[str, str], catalog: Catalog
) -> str:
    """The text without speakers' names and names that too many memories share."""
    common = max(COMMON_SHARE * catalog.size, COMMON_COUNT)
    surnames = {part for name in mentions.values() for part in name.split(" ")[1:]}
    frequency = catalog.lexical.document_frequency
    stripped = text
    for word in reversed(words):
        is_common = word.is_capital and (
            word.folded in surnames or min(map(frequency, tokens(word.folded)), default=0) > common
        )
        if is_common or word.folded in mentions:
            stripped = stripped[: word.start] + stripped[word.start + len(word.text) :]
    if stripped is text:
        return text
    stripped = " ".join(stripped.split())
    return stripped if any(map(str.isalnum, stripped)) else text


def match_words(catalog: Catalog, part: Part, detailed: bool = True) -> LexicalMatch:
    """Lexical evidence of every row for one part of a cue.

    Relevance does without BM25: `detailed` is for traces and rank fusion.
    """
    lexical, size = catalog.lexical, catalog.size
    idfs, weights = np.array(lexical.idfs(part.weights)), list(part.weights.values())
    masses = idfs * weights
    total = masses.sum()
    found = lexical.scan(part.weights)
    nothing = misnamed = _filled(catalog.rows, 0.0)
    if CODE_WEIGHT in weights:
        codes = np.flatnonzero(np.array(weights) == CODE_WEIGHT)
        misnamed = (catalog.flags.values & CODED > 0).astype(np.float64)
        misnamed[found.rows[np.isin(found.term_of, codes)]] = 0.0
    if not len(found.rows) or total <= 0:
        return LexicalMatch(nothing, nothing, nothing, misnamed, nothing, nothing)
    shares = masses / total
    # ln(1 / chance that an unrelated memory has the word).
    rarities = idfs + math.log((size + BACKGROUND) / (size + 1))
    mass, rareness = shares.take(found.term_of), rarities.take(found.term_of)
    lengths = lexical.lengths[found.rows]
    is_long = lengths > LONG_TERMS
    if is_long.any():
        absent = 1.0 - np.exp(-idfs.take(found.term_of[is_long]))
        worth = absent ** (lengths[is_long] / USUAL_TERMS - 1.0)
        mass[is_long] *= worth
        rareness[is_long] *= worth
    own: FloatArray = np.bincount(found.rows, mass, catalog.rows)  # type: ignore[assignment]
    rarity: FloatArray = np.bincount(found.rows, rareness, catalog.rows)  # type: ignore[assignment]
    coverage = own
    order = catalog.thread_order()
    if order.has_neighbours:
        shifts, worths = _LENDING
        places = order.place[found.rows]
        targets = np.minimum(np.maximum(places + shifts, 0), catalog.rows - 1)
        near = order.thread[targets] == order.thread[places]
        lent = np.zeros(len(shares) * catalog.rows)
        # The worths rise, so where several occurrences lend, the worthiest is written last.
        cells = (found.term_of * catalog.rows + targets)[near]
        lent[cells] = worths.repeat(len(places)).reshape(targets.shape)[near]
        coverage = (shares @ lent.reshape(len(shares), -1))[order.place]
    bm25, entity = lexical.bm25(part.repeats, found) if detailed else nothing, nothing
    named = np.where([term in part.names for term in part.weights], idfs, 0.0)
    if named.any():
        masses = named.take(found.term_of)
        entity = np.bincount(found.rows, masses, catalog.rows)
        # Sums in two orders may differ in the last bit.
        rows = found.rows[masses > 0]
        entity[rows] = np.minimum(entity[rows] / sum(named), 1.0)
    return LexicalMatch(own, coverage, rarity, misnamed, bm25, entity)


@lru_cache(maxsize=64, typed=True)
def _filled(count: int, value: float) -> Any:
    """Shared and never written to: making a large array takes as long as filling it."""
    filled = np.full(count, value)
    filled.flags.writeable = False
    return filled


def _lending() -> tuple[IntArray, FloatArray]:
    """How far a word reaches in its thread and what it is worth there, weakest first."""
    distances = range(1, REACH + 1)
    lends = [(EARLIER**distance, distance) for distance in distances]
    lends += [(LATER**distance, -distance) for distance in distances]
    worths, shifts = zip(*sorted([*lends, (1.0, 0)]), strict=True)
    return np.array(shifts, np.int32)[:, None], np.array(worths)[:, None]


_LENDING = _lending()


@lru_cache(maxsize=1024)
def chance(count: int, rank: int = 1) -> float:
    """What the best of so many unrelated memories reaches, or the one of another rank.

    In standard deviations: Blom's approximation of normal order statistics, a little softer, with a
    heavier tail. It is the only thing that the size of a store changes.
    """
    return TAIL * NormalDist().inv_cdf(1.0 - min((rank - 0.44) / (count + 3), 0.98))


def support(z: FloatArray, count: int) -> float:
    """How far the next best memories are above what chance gives them, none if they are not."""
    most = min(SUPPORTERS + 1, len(z))
    if most < 2:
        return 0.0
    best = np.sort(largest(z, most))[-2::-1]
    surplus = sum(value - chance(count, rank) for rank, value in enumerate(best.tolist(), 2))
    return max(float(surplus) / SUPPORTERS, 0.0)


def score_evidence(
    view: Catalog | Window,
    parts: Sequence[Part],
    matches: Sequence[LexicalMatch],
    cosines: FloatArray | None,
    null: NullDistribution,
    unseen_cosine: float | None = None,
    vectors: Sequence[Sequence[float]] | FloatArray | None = None,
    among: int | None = None,
) -> EvidenceTable:
    """Evidence and relevance of every row; a row's best part speaks for it.

    Args:
        view: The rows.
        parts: The parts of the cue.
        matches: What the words of each part find.
        cosines: A row per part, NaN where a memory was not measured; None: no dense channel.
        null: What unrelated texts have under this embedder.
        unseen_cosine: The most that an unmeasured memory can have.
        vectors: Of each part, where they are known; then each part has a mean of its own.
        among: How many vectors could be near by chance, where a memory may have several.
    """
    tables, phrased = [], view.flags.values & PHRASED
    has_phrased = phrased.any()
    for place, (part, match) in enumerate(zip(parts, matches, strict=True)):
        cosine = None if cosines is None else cosines[place]
        mean = null.mean if vectors is None else null.mean_of(vectors[place])
        z = None if cosine is None else cosine - mean
        if z is not None:
            if has_phrased:
                # Phrasings are near to any question, as questions are to each other.
                z -= (phrased > 0) * null.asked
            z /= null.sd
        unseen = None if unseen_cosine is None else (unseen_cosine - mean) / null.sd
        number, matched = _filled(view.rows, place + 1), match.own > 0
        score, episode, alone = _score_part(
            view, part, match, np.flatnonzero(matched), z, unseen, (among or view.size) * len(parts)
        )
        tables.append(
            EvidenceTable(
                dense=np.full(view.rows, np.nan) if cosine is None else cosine,
                coverage=match.coverage,
                bm25=match.bm25,
                matched=matched,
                entity=match.entity,
                episode=episode,
                score=score,
                alone=number if alone is None else number * alone,
            )
        )
    if len(tables) == 1:
        return tables[0]
    best = np.argmax([table.score for table in tables], axis=0)[None, :]
    pooled = EvidenceTable._make(
        np.take_along_axis(np.stack(column), best, axis=0)[0]
        for column in zip(*tables, strict=True)
    )
    if cosines is None:
        return pooled
    highest = np.where(np.isnan(cosines), -np.inf, cosines).max(axis=0)
    return pooled._replace(dense=np.where(np.isneginf(highest), np.nan, highest))


def _score_part(
    view: Catalog | Window,
    part: Part,
    match: LexicalMatch,
    worded: NDArray[np.intp],
    z: FloatArray | None,
    unseen: float | None,
    count: int,
) -> tuple[FloatArray, FloatArray, BoolArray | None]:
    """The formula: log-odds of every row, what its thread adds, which have none (None: all).

    `worded` are the rows with a word of the cue, few of many. `z` is NaN where a memory was not
    measured, `unseen` the most that such a one can have, `count` how many memories could have been
    near by chance.
    """
    if not part.repeats or not view.rows:
        return np.full(view.rows, NOTHING_ASKED), _filled(view.rows, 0.0), None
    luck = chance(count)
    unknown = NO_DENSE / DENSE + luck
    if unseen is not None:
        unknown = min(unseen, unknown)
    length = LENGTH * math.log((1 + min(len(part.repeats), TERMS)) / TERMS)
    supported = 0.0
    # No powers, which numpy takes row by row, and few new arrays: of many rows both take long.
    own = match.own[worded]
    words = own * own
    words *= own
    words *= WORDS
    blind = None
    if z is None:
        near, blind = np.full(view.rows, unknown), match.coverage <= 0
    else:
        near, missing = z, np.isnan(z)
        if missing.any():
            near, blind = np.where(missing, unknown, z), missing & (match.coverage <= 0)
            z = z[~missing]
        supported = DENSE * SUPPORT * support(z, count)
        # A memory that happens to be near and to share a word is not meant by either; one that has
        # all of several words is.
        is_stray = own <= WHOLE if len(part.repeats) > 1 else True
        # Any of the memories could have them: ln of how many.
        surprise = np.maximum(match.rarity[worded] - math.log(view.size + 1), 0.0)
        np.minimum(words, surprise, out=words, where=is_stray)
    episode, alone = _filled(view.rows, 0.0), None
    order = view.thread_order()
    dense = np.subtract(near, luck, out=None if order.has_neighbours else near)
    dense *= DENSE
    words += own * -STRAY
    words += dense[worded]
    score = dense.copy() if order.has_neighbours else dense
    score[worded] = words
    score += length + supported
    if order.has_neighbours:
        context = near if z is None else _with_neighbours(view, near)
        together = _score_threads(view, dense, DENSE * (context - luck), match) + length
        alone = np.bincount(order.thread_at)[order.thread_at][order.place] == 1
        score = np.where(alone, score, together)
        episode = np.where(alone, 0.0, together - length - dense - WORDS * (match.own - EXPECTED))
    if part.speaker is not None:
        speaker = view.speaker.values
        score = score - OTHER * ((speaker >= 0) & (speaker != part.speaker))
    if part.is_naming:
        is_unnamed = match.entity <= 0
        score = score - UNNAMED * (is_unnamed if alone is None else is_unnamed & alone)
    if CODE_WEIGHT in part.weights.values():
        score = score - OTHER * match.misnamed
    if part.flags:
        # An answer of the wrong kind: no time, or no number, where one is asked for.
        score = score - NO_ANSWER * ((view.flags.values & part.flags) != part.flags)
    return score if blind is None else np.where(blind, NOTHING_ASKED, score), episode, alone


def _with_neighbours(view: Catalog | Window, z: FloatArray) -> FloatArray:
    """Each row's similarity with a share of what stands before and after it in its thread."""
    order, links = view.thread_order(), view.links(PREVIOUS, FOLLOWING)
    by_place = z[order.rows]
    shared = by_place.copy()
    shared[1:] += links.before[1:] * by_place[:-1]
    shared[:-1] += links.after[:-1] * by_place[1:]
    return np.asarray((shared / links.scale)[order.place])


def _score_threads(
    view: Catalog | Window, dense: FloatArray, context: FloatArray, match: LexicalMatch
) -> FloatArray:
    """Evidence as in a conversation: a row's in its context, and the best of its thread."""
    order = view.thread_order()
    own = (dense + WORDS * (match.own - EXPECTED))[order.rows]
    best = np.maximum.reduceat(own, order.starts)[order.thread_at]
    # A stretch of writing has no bounds that mean anything: its best says nothing of the rest.
    best = np.where(order.implied, 0.0, best)[order.place]
    return np.asarray(context + WORDS * (match.coverage - EXPECTED) + THREAD * best)
