"""From a cue and a catalog to one absolute relevance per memory.

    relevance = sigmoid(score)
    a memory that stands alone:  score = f + WORDS * min(c^3, surprise / WORDS) - STRAY * c
                                 f     = DENSE * (z - chance(N) + SUPPORT * support)
    one in a conversation:       score = g(z and c with its neighbours') + THREAD * best g of the
                                         thread
                                 g     = DENSE * (z - chance(N)) + WORDS * (c - EXPECTED)
    both:  + LENGTH * ln((1 + terms) / 4), fewer terms than four; - OTHER or SIBLING, - UNNAMED,
           - NO_ANSWER
    the first: + what the cue is for (`NullDistribution.of_cue`)

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
from numpy.typing import ArrayLike, NDArray

from langmem_recall.ranking.arrays import BoolArray, FloatArray, IntArray, top_rows
from langmem_recall.ranking.calibration import NullDistribution
from langmem_recall.ranking.catalog import CODED, NUMBERED, PHRASED, TIMED, Catalog
from langmem_recall.ranking.lexical import Scan
from langmem_recall.ranking.threads import Links, ThreadOrder
from langmem_recall.text.tokens import (
    STOP_WORDS,
    Word,
    is_identifier,
    language_of,
    near_spellings,
    read_once,
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
OTHER, SIBLING, MEANT = 2.5, 8.0, 0.5
"""Taken off when the cue names one known speaker and the memory is another's, or identifiers and it
has only others; the second where some memory has the cue's identifier or number and over this share
of its words. Texts that differ in a code or a number alone ("flat 3") are alike to embedders."""
UNNAMED = 0.6
"""Taken off when the cue names something and the memory, which stands alone, has none of its names:
"Who painted the Mona Lisa?" is not about just any painting."""
NO_ANSWER = 1.0
"""Taken off when the cue asks when or how many and the memory has no time or number."""
NOTHING_ASKED = -9.0
"""The score where there is nothing to go by: no terms in the cue, or no evidence at all."""
FLAT = 60.0
"""Evidence beyond which relevance no longer changes, so that no exponential overflows."""
ROUGHLY = 1e-5
"""Cosines that differ by less may change places when they are scored exactly."""
MOST_SPELLINGS = 256
"""Terms that no memory has of which it is kept what they may be misspelt for."""
COMMON_SHARE = 0.05
COMMON_COUNT = 20
"""A name in more memories than both says nothing about which one is meant."""

_WHEN = re.compile(r"\b(?:when|what (?:time|date|day|month|year)|how long ago)\b", re.IGNORECASE)
_COUNT = re.compile(r"\bhow (?:many|much|often|old|long|far|tall|big)\b", re.IGNORECASE)
# A number after a noun tells one of several apart, as in "bus 14"; "3 dogs" and a year do not.
_NUMBERED_NOUN = re.compile(
    r"\b([^\W\d_]{2,}) (?:no\.? ?|#)?(?!(?:19|20)\d\d\b)(\d+(?:\.\d+)?)\b(?! \w+s\b)(?![-:,.]?\w)"
)


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
    codes: frozenset[str]
    """Its identifiers; where it has none, the numbers that tell one of several things apart."""
    numbered: frozenset[str]
    """In the latter case the nouns that they stand after."""
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
    worded: NDArray[np.intp]
    """The rows with a word of the part, few of many."""
    found: Scan
    idfs: FloatArray
    """Of each of the part's terms."""
    is_named: BoolArray
    """Which of them are names."""


class EvidenceTable(NamedTuple):
    """Evidence for every row of a catalog, pooled over the parts of the cue."""

    dense: FloatArray
    coverage: FloatArray
    bm25: FloatArray
    """NaN where no word is in common."""
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


class Window:
    """Some rows of a catalog with their whole threads: all that their evidence depends on.

    With it thirty memories do not pay for the other hundred thousand. None: all rows.
    """

    def __init__(self, catalog: Catalog, rows: ArrayLike | None = None) -> None:
        order = catalog.thread_order()
        self.catalog = catalog
        self.rows: Any = slice(None)
        """The rows of the catalog, in the order of the window."""
        self.count = catalog.rows
        self.is_whole = rows is None
        self.order = order if order.has_neighbours else None
        """The layout by threads; None where every memory stands alone."""
        self._places: Any = slice(None)
        if rows is not None:
            self.rows = np.asarray(rows, np.int32)
            if self.order is not None:
                self._take_threads(order)
            self.count = len(self.rows)

    def _take_threads(self, whole: ThreadOrder) -> None:
        threads = np.unique(whole.thread_at[whole.place[self.rows]])
        ends = np.append(whole.starts, len(whole.rows))
        spans = [np.arange(ends[thread], ends[thread + 1]) for thread in threads.tolist()]
        places = np.concatenate([*spans, np.zeros(0, np.int64)]).astype(np.int32)
        own, follows = np.arange(len(places), dtype=np.int32), whole.follows[places]
        self.order = ThreadOrder(
            rows=own,
            place=own,
            thread=whole.thread[places],
            starts=np.flatnonzero(~follows).astype(np.int32),
            thread_at=np.cumsum(~follows, dtype=np.int32) - 1,
            follows=follows,
            implied=whole.implied[places],
            alone=whole.alone[whole.rows[places]],
        )
        self._places, self.rows = places, whole.rows[places]

    @property
    def flags(self) -> Any:
        """What `Traits.flags` says of each row."""
        return self.catalog.flags.values[self.rows]

    @property
    def speaker(self) -> Any:
        """The number of who speaks in each row."""
        return self.catalog.speaker.values[self.rows]

    @property
    def links(self) -> Links:
        """How much neighbours share when all are known."""
        whole = self.catalog.links(PREVIOUS, FOLLOWING)
        return Links._make(column[self._places] for column in whole)

    def postings(self, match: LexicalMatch) -> Scan:
        """What the words of a part find in these rows."""
        if self.is_whole:
            return match.found
        return self.catalog.lexical.cut(match.found, self.rows)


def read_part(text: str, catalog: Catalog, strip_names: bool) -> Part:
    """Read one part of a cue: its terms, names, speaker and what kind of answer it wants."""
    words, terms, name_terms, numbers, may_name, flags = _read(text)
    mentions = _speaker_mentions(words, catalog) if catalog.speakers else {}
    frequency = catalog.lexical.document_frequency
    if unknown := [term for term in (*terms, *name_terms) if not frequency(term)]:
        meant = {term: _as_known(term, catalog) for term in unknown}
        terms = [meant.get(term, term) for term in terms]
        name_terms = name_terms.union(meant.get(term, term) for term in name_terms)
    if mentions:
        # A speaker's name says whose memory is meant, not what it is about.
        spoken = {term for name in mentions.values() for term in tokens(name)}
        terms = [term for term in terms if term not in spoken] or terms
    repeats, weights, names, identifiers = _weighed(tuple(terms), name_terms)
    speakers, dense_text = set(mentions.values()), text
    if strip_names and (mentions or name_terms):
        dense_text = _without_common_names(text, words, mentions, catalog)
    return Part(
        text=text,
        dense_text=dense_text,
        repeats=repeats,
        weights=weights,
        names=names,
        is_naming=bool(names) and may_name,
        codes=identifiers or frozenset(numbers),
        numbered=frozenset() if identifiers else frozenset(numbers.values()),
        speaker=catalog.speakers[speakers.pop()] if len(speakers) == 1 else None,
        flags=flags,
    )


@read_once
def _read(text: str) -> tuple[list[Word], list[str], frozenset[str], dict[str, str], bool, int]:
    """What a text says by itself: words, terms, those of names, numbers, if names count, its wants.

    The numbers are those that tell one of several things apart, each with the noun before it.
    """
    words = read_words(text)
    name_terms = frozenset(term for word in words if word.is_capital for term in tokens(word.text))
    nouns = {number: tokens(noun) for noun, number in _NUMBERED_NOUN.findall(text)}
    numbers = {number: terms[0] for number, terms in nouns.items() if terms}
    # German writes every noun like a name, and some write everything in capitals.
    may_name = not text.isupper() and language_of(text) != "de"
    flags = TIMED * bool(_WHEN.search(text)) | NUMBERED * bool(_COUNT.search(text))
    return words, tokens(text), name_terms, numbers, may_name, flags


@lru_cache(maxsize=4_096)
def _weighed(
    terms: tuple[str, ...], name_terms: frozenset[str]
) -> tuple[dict[str, int], dict[str, float], dict[str, float], frozenset[str]]:
    """How often there is each term, how much it counts, which are names, and which identifiers."""
    repeats = Counter(terms)
    names = [term for term in repeats if term in name_terms or any(map(str.isdigit, term))]
    identifiers = frozenset(filter(is_identifier, repeats))
    weights = dict.fromkeys(repeats, 1.0) | dict.fromkeys(names, NAME_WEIGHT)
    weights |= dict.fromkeys(identifiers, CODE_WEIGHT)
    return repeats, weights, dict.fromkeys(names, 1.0), identifiers


def _as_known(term: str, catalog: Catalog) -> str:
    """A term that no memory has as the likeliest of those that it may be misspelt for."""
    known = catalog.spellings
    if term not in known:
        if len(known) >= MOST_SPELLINGS:
            known.clear()
        known[term] = catalog.lexical.most_frequent(near_spellings(term)) or term
    return known[term]


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


def match_words(catalog: Catalog, part: Part) -> LexicalMatch:
    """Lexical evidence of every row for one part of a cue."""
    lexical, size = catalog.lexical, catalog.size
    idfs = np.array(lexical.idfs(part.weights))
    is_named = np.array([term in part.names for term in part.weights], np.bool_)
    masses = idfs * list(part.weights.values())
    total = masses.sum()
    found = lexical.scan(part.weights)
    if not len(found.rows) or total <= 0:
        nothing = _filled(catalog.rows, 0.0)
        return LexicalMatch(nothing, nothing, nothing, np.empty(0, np.intp), found, idfs, is_named)
    shares = masses / total
    # ln(1 / chance that an unrelated memory has the word).
    rarities = idfs + math.log((size + BACKGROUND) / (size + 1))
    mass, rareness = shares.repeat(found.sizes), rarities.repeat(found.sizes)
    if lexical.longest > LONG_TERMS:
        lengths = lexical.lengths[found.rows]
        is_long = lengths > LONG_TERMS
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
    # Of truth values, which numpy finds ten times as fast as of numbers.
    return LexicalMatch(own, coverage, rarity, (own > 0).nonzero()[0], found, idfs, is_named)


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
_NO_ROWS: IntArray = np.empty(0, np.int32)


@lru_cache(maxsize=1024)
def chance(count: int, rank: int = 1) -> float:
    """What the best of so many unrelated memories reaches, or the one of another rank.

    In standard deviations: Blom's approximation of normal order statistics, a little softer, with a
    heavier tail. It is the only thing that the size of a store changes.
    """
    return TAIL * NormalDist().inv_cdf(1.0 - min((rank - 0.44) / (count + 3), 0.98))


def support(dense: FloatArray, count: int) -> float:
    """How far the next best memories are above what chance gives them, none if they are not."""
    most = min(SUPPORTERS + 1, len(dense))
    if most < 2:
        return 0.0
    best: list[float] = sorted(dense[top_rows(dense, most)].tolist(), reverse=True)[1:most]
    return max((sum(best) - DENSE * _chances(count, most)) / SUPPORTERS, 0.0)


@lru_cache(maxsize=1024)
def _chances(count: int, most: int) -> float:
    """What chance gives to the next best of so many, taken together."""
    return sum(chance(count, rank) for rank in range(2, most + 1))


def rows_in_reach(
    catalog: Catalog,
    parts: Sequence[Part],
    matches: Sequence[LexicalMatch],
    cosines: NDArray[np.float32],
    null: NullDistribution,
    visible: BoolArray,
    count: int,
) -> NDArray[np.intp]:
    """Rows that may be among so many with the highest scores, and those that support them.

    For memories that stand alone and whose cosines are all known: there the order of the scores is
    that of the cosines, but for the few that share words with a part. So a store of any size is
    ranked in one pass, roughly, and only these rows are scored.
    """
    near: list[NDArray[np.intp]] = []
    is_whole = visible.all()
    for part, match, cosine in zip(parts, matches, cosines, strict=True):
        # Everything in units of a cosine.
        unit = null.sd / DENSE
        if catalog.flags_seen & PHRASED:
            cosine = cosine - null.asked * (catalog.flags.values & PHRASED > 0).astype(np.float32)
        near.append(top_rows(cosine, SUPPORTERS + 1))
        key = cosine.copy()
        own, worded = match.own[match.worded], match.worded
        key[worded] += unit * _worth_of_words(part, own, match.rarity[worded], catalog.size)
        if part.is_naming:
            named = match.is_named[match.found.term_of]
            # Not added up: a row with several of them is written several times.
            key[match.found.rows[named]] += unit * UNNAMED
        if part.speaker is not None or part.codes or part.flags:
            window = Window(catalog)
            off = _mismatch(window, part, match, window.postings(match))
            key -= unit * off.astype(np.float32)
        if is_whole:
            near.append(top_rows(key, count, ROUGHLY))
        else:
            rows = np.flatnonzero(visible)
            near.append(rows[top_rows(key[rows], count, ROUGHLY)])
    return np.unique(np.concatenate(near))


def score_evidence(
    window: Window,
    parts: Sequence[Part],
    matches: Sequence[LexicalMatch],
    cosines: FloatArray | None,
    null: NullDistribution,
    unseen_cosine: float | None = None,
    vectors: Sequence[Sequence[float]] | FloatArray | None = None,
    among: int | None = None,
    detailed: bool = True,
) -> EvidenceTable:
    """Evidence and relevance of the rows of a window; a row's best part speaks for it.

    Args:
        window: The rows.
        parts: The parts of the cue.
        matches: What the words of each part find in the catalog.
        cosines: A row per part, NaN where a memory was not measured; None: no dense channel.
        null: What unrelated texts have under this embedder.
        unseen_cosine: The most that an unmeasured memory can have.
        vectors: Of each part, where they are known; then each part has a mean of its own.
        among: How many vectors could be near by chance, where a memory may have several.
        detailed: Whether BM25 and names are wanted, which relevance does without.
    """
    tables: list[EvidenceTable] = []
    count = (among or window.catalog.size) * len(parts)
    for place, (part, match) in enumerate(zip(parts, matches, strict=True)):
        cosine = None if cosines is None else cosines[place]
        vector = () if vectors is None else vectors[place]
        mean, need = null.of_cue(vector)
        dense = None
        if cosine is not None:
            dense = cosine - mean
            if window.catalog.flags_seen & PHRASED:
                # Phrasings are near to any question, as questions are to each other.
                dense -= (window.flags & PHRASED > 0) * null.asked
            dense *= DENSE / null.sd
        unseen = None if unseen_cosine is None else (unseen_cosine - mean) / null.sd
        found, nothing = window.postings(match), _filled(window.count, 0.0)
        own, coverage = match.own[window.rows], match.coverage[window.rows]
        bm25, entity, named_at = _filled(window.count, math.nan), nothing, _NO_ROWS
        if part.names:
            named = match.is_named[found.term_of].nonzero()[0]
            named_at = found.places[named]
        if detailed:
            bm25 = np.where(own > 0, window.catalog.lexical.bm25(part.repeats, found), math.nan)
        if detailed and len(named_at):
            entity = np.bincount(named_at, match.idfs[found.term_of[named]], window.count)
            # Sums in two orders may differ in the last bit.
            total = sum(match.idfs[match.is_named])
            entity[named_at] = np.minimum(entity[named_at] / total, 1.0)
        episode, score = nothing, _filled(window.count, NOTHING_ASKED)
        alone = _filled(window.count, place + 1)
        if part.repeats and window.count:
            scored = window, part, match, own, coverage, found, named_at, dense, unseen, count, need
            score, episode = _score_part(*scored)
            alone = alone if window.order is None else alone * window.order.alone
        measured = _filled(window.count, math.nan) if cosine is None else cosine
        tables.append(EvidenceTable(measured, coverage, bm25, entity, episode, score, alone))
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
    window: Window,
    part: Part,
    match: LexicalMatch,
    own: FloatArray,
    coverage: FloatArray,
    found: Scan,
    named_at: IntArray,
    dense: FloatArray | None,
    unseen: float | None,
    count: int,
    need: float,
) -> tuple[FloatArray, FloatArray]:
    """The formula: log-odds of every row, and what its thread adds.

    `dense` is DENSE * z, NaN where a memory was not measured, `unseen` the most that the z of such
    a one can be, `count` how many memories could have been near by chance. `named_at` are places
    with a name of the part, `need` is what the cue is for.
    """
    luck = chance(count)
    unknown = NO_DENSE / DENSE + luck
    if unseen is not None:
        unknown = min(unseen, unknown)
    length = LENGTH * math.log((1 + min(len(part.repeats), TERMS)) / TERMS)
    supported, blind, rarity = 0.0, None, None
    # Of many rows few share a word, and making an array of all takes as long as filling it.
    worded = match.worded if window.is_whole else own.nonzero()[0]
    order, episode, is_measured = window.order, _filled(window.count, 0.0), dense is not None
    if dense is None:
        dense, blind = np.full(window.count, DENSE * unknown), coverage <= 0
    else:
        measured = dense
        # The least of all is NaN where any is.
        if math.isnan(dense.min()):
            missing = np.isnan(dense)
            measured, blind = dense[~missing], missing & (coverage <= 0)
            dense = np.where(missing, DENSE * unknown, dense)
        supported = SUPPORT * support(measured, count)
        rarity = match.rarity[window.rows][worded]
    score = dense if order is None else dense.copy()
    worth = _worth_of_words(part, own[worded], rarity, window.catalog.size)
    score[worded] = score[worded] + worth
    score += length + supported + need - DENSE * luck
    if order is not None:
        context = _with_neighbours(window, order, dense) if is_measured else dense
        dense = dense - DENSE * luck
        words = WORDS * (own - EXPECTED)
        together = context - DENSE * luck + WORDS * (coverage - EXPECTED)
        together = together + THREAD * _best_of_thread(order, dense + words) + length
        alone = order.alone
        score = np.where(alone, score, together)
        episode = np.where(alone, 0.0, together - length - dense - words)
    if part.speaker is not None or part.codes or part.flags:
        score = score - _mismatch(window, part, match, found)
    if part.is_naming:
        exempt = named_at
        if order is not None:
            exempt = np.append(named_at, np.flatnonzero(~order.alone))
        kept = score[exempt]
        score -= UNNAMED
        score[exempt] = kept
    return score if blind is None else np.where(blind, NOTHING_ASKED, score), episode


def _worth_of_words(
    part: Part, own: FloatArray, rarity: FloatArray | None, size: int
) -> FloatArray:
    """What shares of the words say of memories that stand alone, in log-odds.

    `rarity` is None where words are all there is.
    """
    # No powers, which numpy takes row by row.
    worth = own * own * own * WORDS
    if rarity is not None:
        # A memory that happens to be near and to share a word is not meant by either; one that has
        # all of several words is.
        # Any of the memories could have them: ln of how many.
        surprise = np.maximum(rarity - math.log(size + 1), 0.0)
        if len(part.repeats) > 1:
            surprise[own > WHOLE] = math.inf
        np.minimum(worth, surprise, out=worth)
    worth -= STRAY * own
    return worth


def _mismatch(window: Window, part: Part, match: LexicalMatch, found: Scan) -> FloatArray:
    """Taken off of what is another's, has other identifiers, or answers another question."""
    off = np.zeros(window.count)
    if part.speaker is not None:
        speaker = window.speaker
        off += OTHER * ((speaker >= 0) & (speaker != part.speaker))
    if part.codes:
        is_code = _is_among(part.codes, part)
        # Of all memories, wherever the window is. Where one has it and most of the cue's words,
        # more than any without it, that is the one that is meant.
        own = match.own[match.worded]
        with_it = np.isin(match.worded, match.found.rows[is_code[match.found.term_of]])
        is_meant = own.max(where=with_it, initial=MEANT) > own.max(where=~with_it, initial=MEANT)
        kind, has_other = CODED, np.ones(window.count, np.bool_)
        if part.numbered:
            is_noun = _is_among(part.numbered, part)[found.term_of]
            kind, has_other = NUMBERED, np.zeros(window.count, np.bool_)
            has_other[found.places[is_noun]] = is_meant
        has_other &= window.flags & kind > 0
        has_other[found.places[is_code[found.term_of]]] = False
        off += (SIBLING if is_meant else OTHER) * has_other
    if part.flags:
        # An answer of the wrong kind: no time, or no number, where one is asked for.
        off += NO_ANSWER * ((window.flags & part.flags) != part.flags)
    return off


def _is_among(terms: frozenset[str], part: Part) -> BoolArray:
    """Which terms of a part are among some."""
    return np.array([term in terms for term in part.weights], np.bool_)


def _with_neighbours(window: Window, order: ThreadOrder, dense: FloatArray) -> FloatArray:
    """Each row's similarity with a share of what stands before and after it in its thread."""
    links = window.links
    by_place = dense[order.rows]
    shared = by_place.copy()
    shared[1:] += links.before[1:] * by_place[:-1]
    shared[:-1] += links.after[:-1] * by_place[1:]
    return np.asarray((shared / links.scale)[order.place])


def _best_of_thread(order: ThreadOrder, words: FloatArray) -> FloatArray:
    """The best evidence anywhere in each row's thread."""
    best = np.maximum.reduceat(words[order.rows], order.starts)[order.thread_at]
    # A stretch of writing has no bounds that mean anything: its best says nothing of the rest.
    return np.asarray(np.where(order.implied, 0.0, best)[order.place])
