"""From a cue and a catalog to one absolute relevance per memory."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np

from langmem_recall.policy import RelevanceModel
from langmem_recall.ranking.arrays import BoolArray, Column, FloatArray, IntArray
from langmem_recall.ranking.calibration import NullDistribution
from langmem_recall.ranking.catalog import NUMBERED, TIMED, Catalog
from langmem_recall.ranking.threads import Links, ThreadOrder, make_links
from langmem_recall.text.tokens import STOP_WORDS, Word, read_words, tokens

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
    relevance: FloatArray


class Window:
    """A few rows of a catalog with their whole threads: all that their evidence depends on.

    Stands in for the catalog, so that thirty memories do not pay for the other hundred thousand.
    """

    def __init__(self, catalog: Catalog, rows: Sequence[int]) -> None:
        whole = catalog.thread_order()
        places = np.unique(whole.place[np.array(rows, np.int32)])
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


def read_part(text: str, catalog: Catalog, model: RelevanceModel, strip_names: bool) -> Part:
    """Read one part of a cue: its terms, names, speaker and what kind of answer it wants."""
    words = read_words(text)
    mentions = _speaker_mentions(words, catalog) if catalog.speakers else {}
    speaker_terms = {term for name in mentions.values() for term in tokens(name)}
    name_terms = {term for word in words if word.is_capital for term in tokens(word.text)}
    terms = tokens(text)
    # A speaker's name says whose memory is meant, not what it is about.
    repeats = Counter(term for term in terms if term not in speaker_terms) or Counter(terms)
    names = [term for term in repeats if term in name_terms or any(map(str.isdigit, term))]
    speakers = set(mentions.values())
    return Part(
        text=text,
        dense_text=_without_common_names(text, words, mentions, catalog) if strip_names else text,
        repeats=repeats,
        weights=dict.fromkeys(repeats, 1.0) | dict.fromkeys(names, model.name_weight),
        names=dict.fromkeys(names, 1.0),
        speaker=catalog.speakers[speakers.pop()] if len(speakers) == 1 else None,
        flags=TIMED * bool(_WHEN.search(text)) | NUMBERED * bool(_COUNT.search(text)),
    )


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


def match_words(
    catalog: Catalog, part: Part, model: RelevanceModel, detailed: bool = True
) -> LexicalMatch:
    """Lexical evidence of every row for one part of a cue.

    Relevance does without BM25 and the entity share: `detailed` is for traces and rank fusion.
    """
    lexical = catalog.lexical
    idfs = np.array([lexical.idf(term) for term in part.weights])
    masses = idfs * np.array(list(part.weights.values()))
    total = masses.sum()
    found = lexical.scan(part.weights)
    nothing = _zeros(catalog.rows)
    if not len(found.rows) or total <= 0:
        return LexicalMatch(nothing, nothing, nothing, nothing)
    shares = masses / total
    own: FloatArray = np.bincount(found.rows, shares[found.term_of], catalog.rows)  # type: ignore[assignment]
    coverage = own
    order = catalog.thread_order()
    if order.has_neighbours:
        shifts, worths = _reach(model)
        places = order.place[found.rows]
        targets = np.minimum(np.maximum(places + shifts, 0), catalog.rows - 1)
        near = order.thread[targets] == order.thread[places]
        lent = np.zeros(len(shares) * catalog.rows)
        # The worths rise, so where several occurrences lend, the worthiest is written last.
        cells = (found.term_of * catalog.rows + targets)[near]
        lent[cells] = worths.repeat(len(places)).reshape(targets.shape)[near]
        coverage = (shares @ lent.reshape(len(shares), -1))[order.place]
    if not detailed:
        return LexicalMatch(own, coverage, nothing, nothing)
    bm25 = lexical.bm25(found, idfs * np.array(list(part.repeats.values())))
    entity = lexical.coverage(part.names) if part.names else nothing
    return LexicalMatch(own, coverage, bm25, entity)


@lru_cache(maxsize=16)
def _zeros(count: int) -> FloatArray:
    """Shared and never written to: making a large array takes as long as filling it."""
    zeros = np.zeros(count)
    zeros.flags.writeable = False
    return zeros


@cache
def _reach(model: RelevanceModel) -> tuple[IntArray, FloatArray]:
    """How far a word reaches in its thread and what it is worth there, weakest first."""
    distances = range(1, model.reach + 1)
    lends = [(model.earlier**distance, distance) for distance in distances]
    lends += [(model.later**distance, -distance) for distance in distances]
    worths, shifts = zip(*sorted([*lends, (1.0, 0)]), strict=True)
    return np.array(shifts, np.int32)[:, None], np.array(worths)[:, None]


def score_evidence(
    view: Catalog | Window,
    parts: Sequence[Part],
    matches: Sequence[LexicalMatch],
    cosines: FloatArray | None,
    null: NullDistribution,
    model: RelevanceModel,
    unseen_cosine: float | None = None,
) -> EvidenceTable:
    """Evidence and relevance of every row; a row's best part speaks for it.

    `cosines` has a row per part, NaN where a memory was not measured; None when there is no
    dense channel at all. `unseen_cosine` is the most that an unmeasured memory can have.
    """
    dense = [None] * len(parts) if cosines is None else list(cosines)
    tables = [
        _score_part(view, part, match, cosine, null, model, unseen_cosine)
        for part, match, cosine in zip(parts, matches, dense, strict=True)
    ]
    if len(tables) == 1:
        return tables[0]
    best = np.argmax([table.relevance for table in tables], axis=0)[None, :]
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
    cosine: FloatArray | None,
    null: NullDistribution,
    model: RelevanceModel,
    unseen_cosine: float | None,
) -> EvidenceTable:
    """The formula: from the evidence for one part of a cue to relevance."""
    own_dense, dense = _dense_evidence(view, cosine, null, model, unseen_cosine)
    own = own_dense + model.coverage * match.own
    best = own
    order = view.thread_order()
    if order.has_neighbours:
        by_place = own[order.rows]
        best = np.maximum.reduceat(by_place, order.starts)[order.thread_at]
        # A stretch of writing has no bounds that mean anything: its best says nothing of the rest.
        best = np.where(order.implied, by_place, best)[order.place]
    score = dense + model.coverage * match.coverage + model.thread * best
    penalty: FloatArray | float = 0.0
    if part.speaker is not None:
        speaker = view.speaker.values
        penalty = model.other_speaker * ((speaker >= 0) & (speaker != part.speaker))
    if part.flags:
        # An answer of the wrong kind: no time, or no number, where one is asked for.
        penalty = penalty + model.no_answer * ((view.flags.values & part.flags) != part.flags)
    chance = model.bias + model.crowding * np.log(max(view.size, 1))
    logit = (score - chance - penalty) / model.softness
    return EvidenceTable(
        dense=np.full(view.rows, np.nan) if cosine is None else cosine,
        coverage=match.coverage,
        bm25=match.bm25,
        matched=match.own > 0,
        entity=match.entity,
        episode=score - own,
        relevance=1.0 / (1.0 + np.exp(np.minimum(np.maximum(-logit, -FLAT), FLAT))),
    )


def _dense_evidence(
    view: Catalog | Window,
    cosine: FloatArray | None,
    null: NullDistribution,
    model: RelevanceModel,
    unseen_cosine: float | None,
) -> tuple[FloatArray, FloatArray]:
    """Standardised cosine above the neutral point: a memory's own, and with its neighbours'."""
    if cosine is None or not view.rows:
        return _zeros(view.rows), _zeros(view.rows)
    neutral = model.neutral * null.cap
    unseen = neutral
    if unseen_cosine is not None:
        unseen = min(neutral, (unseen_cosine - null.mean) / null.sd)
    own = (cosine - null.mean) / null.sd
    measured = ~np.isnan(own)
    own = np.where(measured, own, unseen)
    own_evidence = model.dense * (own - neutral)
    order = view.thread_order()
    if not order.has_neighbours:
        return own_evidence, own_evidence
    if unseen_cosine is not None or measured.all():
        # What a full pool leaves unseen is known to be low.
        links = view.links(model.previous, model.following)
    else:
        known = measured[order.rows]
        links = make_links(order.follows, known, model.previous, model.following)
    # Each place's evidence with a share of what stands before and after it in its thread.
    by_place = own[order.rows]
    shared = by_place.copy()
    shared[1:] += links.before[1:] * by_place[:-1]
    shared[:-1] += links.after[:-1] * by_place[1:]
    shared = (shared / links.scale)[order.place]
    return own_evidence, model.dense * (shared - neutral)
