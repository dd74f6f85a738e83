"""From a cue and a catalog to one absolute relevance per memory."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import NamedTuple, Protocol

import numpy as np

from langmem_recall.policy import RelevanceModel
from langmem_recall.ranking.arrays import BoolArray, Column, FloatArray, IntArray
from langmem_recall.ranking.calibration import NullDistribution
from langmem_recall.ranking.catalog import (
    NUMBERED,
    TIMED,
    Catalog,
    Links,
    ThreadOrder,
    make_links,
)
from langmem_recall.ranking.lexical import Scan
from langmem_recall.text.tokens import STOP_WORDS, tokens

FLAT = 60.0
COMMON_SHARE = 0.05
COMMON_COUNT = 20
"""A name in more memories than both says nothing about which one is meant."""

_WORD = re.compile(r"[^\W_]+(?:[-'\N{RIGHT SINGLE QUOTATION MARK}][^\W_]+)*")
_POSSESSIVE = re.compile("['\N{RIGHT SINGLE QUOTATION MARK}]s?$")
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


class Ground(Protocol):
    """The rows that evidence is weighed on: a whole catalog, or a window of one."""

    @property
    def rows(self) -> int:
        """How many there are, dead ones included."""

    @property
    def size(self) -> int:
        """Live memories that were searched."""

    @property
    def speaker(self) -> Column:
        """Who speaks in each; -1 where nobody knows."""

    @property
    def flags(self) -> Column:
        """TIMED, NUMBERED, PINNED of each."""

    def thread_order(self) -> ThreadOrder:
        """The rows by threads."""

    def links(self, previous: float, following: float) -> Links:
        """How much neighbours share when all are known."""


class EvidenceTable(NamedTuple):
    """Evidence for every row of a catalog, pooled over the parts of the cue."""

    dense: FloatArray
    coverage: FloatArray
    bm25: FloatArray
    matched: BoolArray
    entity: FloatArray
    episode: FloatArray
    relevance: FloatArray


class Word(NamedTuple):
    """One word of a cue."""

    text: str
    start: int
    folded: str
    """Without a possessive ending, case-folded."""
    is_capital: bool
    """Capitalised, and not only because a sentence begins there."""


def read_part(text: str, catalog: Catalog, model: RelevanceModel, strip_names: bool) -> Part:
    """Read one part of a cue: its terms, names, speaker and what kind of answer it wants."""
    words = [_read_word(match, text) for match in _WORD.finditer(text)]
    mentions = _speaker_mentions(words, catalog)
    named = {term for name in mentions.values() for term in tokens(name)}
    names = {term for word in words if word.is_capital for term in tokens(word.text)}
    terms = tokens(text)
    # A speaker's name says whose memory is meant, not what it is about.
    repeats = Counter(term for term in terms if term not in named) or Counter(terms)
    marked = {term for term in repeats if term in names or _has_digit(term)}
    speakers = set(mentions.values())
    return Part(
        text=text,
        dense_text=_without_common_names(text, words, mentions, catalog) if strip_names else text,
        repeats=repeats,
        weights={term: model.name_weight if term in marked else 1.0 for term in repeats},
        names=dict.fromkeys(marked, 1.0),
        speaker=catalog.speakers[speakers.pop()] if len(speakers) == 1 else None,
        flags=TIMED * bool(_WHEN.search(text)) | NUMBERED * bool(_COUNT.search(text)),
    )


def _read_word(match: re.Match[str], text: str) -> Word:
    word, start = match.group(), match.start()
    folded = (word if word.isalnum() else _POSSESSIVE.sub("", word)).casefold()
    return Word(word, start, folded, word[0].isupper() and not _begins_sentence(text, start))


def _begins_sentence(text: str, start: int) -> bool:
    before = text[max(start - 8, 0) : start].rstrip(" \t\n\"'([*-")
    return before[-1:] in ("", ".", "!", "?", ":", "\n")


def _speaker_mentions(words: Sequence[Word], catalog: Catalog) -> dict[str, str]:
    """Words of the cue that name a known speaker, and whom they name."""
    if not catalog.speakers:
        return {}
    firsts = {name.split(" ")[0]: name for name in catalog.speakers}
    lower = not any(word.text[0].isupper() for word in words)
    return {
        word.folded: firsts[word.folded]
        for word in words
        # "Will" may be a speaker, "will" is not; who writes without capitals is taken at the word.
        if word.folded in firsts
        and (
            word.is_capital or ((lower or word.text[0].isupper()) and word.folded not in STOP_WORDS)
        )
    }


def _has_digit(term: str) -> bool:
    return any(letter.isdigit() for letter in term)


def _without_common_names(
    text: str, words: Sequence[Word], mentions: Mapping[str, str], catalog: Catalog
) -> str:
    common = max(COMMON_SHARE * catalog.size, COMMON_COUNT)
    surnames = {part for name in mentions.values() for part in name.split(" ")[1:]}
    kept = text
    for word in reversed(words):
        if word.folded in mentions or (
            word.is_capital
            and (word.folded in surnames or _frequency(word.folded, catalog) > common)
        ):
            kept = kept[: word.start] + kept[word.start + len(word.text) :]
    if kept is text:
        return text
    kept = " ".join(kept.split())
    return kept if _WORD.search(kept) else text


def _frequency(word: str, catalog: Catalog) -> int:
    return min((catalog.lexical.document_frequency(term) for term in tokens(word)), default=0)


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
    found = lexical.scan(list(part.weights))
    nothing = _zeros(catalog.rows)
    if not len(found.rows) or total <= 0:
        return LexicalMatch(nothing, nothing, nothing, nothing)
    shares = masses / total
    own: FloatArray = np.bincount(found.rows, shares[found.term_of], catalog.rows)  # type: ignore[assignment]
    coverage = own
    if catalog.thread_order().has_neighbours:
        coverage = _thread_coverage(catalog, found, shares, model)
    if not detailed:
        return LexicalMatch(own, coverage, nothing, nothing)
    bm25 = lexical.bm25_of(found, idfs * np.array(list(part.repeats.values())))
    entity = lexical.coverage(part.names) if part.names else nothing
    return LexicalMatch(own, coverage, bm25, entity)


@lru_cache(maxsize=16)
def _zeros(count: int) -> FloatArray:
    """Shared and never written to: making a large array takes as long as filling it."""
    zeros = np.zeros(count)
    zeros.flags.writeable = False
    return zeros


def sigmoid(score: FloatArray) -> FloatArray:
    """Any number to (0, 1); far out it is flat, so nothing overflows."""
    return np.asarray(1.0 / (1.0 + np.exp(np.minimum(np.maximum(-score, -FLAT), FLAT))))


def _thread_coverage(
    catalog: Catalog, found: Scan, masses: FloatArray, model: RelevanceModel
) -> FloatArray:
    """IDF mass that each row has by its own words and, worth less, by those of its thread."""
    order = catalog.thread_order()
    shifts, worths = _reach(model)
    places = order.place[found.rows]
    targets = np.minimum(np.maximum(places + shifts, 0), catalog.rows - 1)
    near = order.thread[targets] == order.thread[places]
    cells = (found.term_of * catalog.rows + targets)[near]
    lent = np.zeros(len(masses) * catalog.rows)
    # The worths rise, so where several occurrences lend, the worthiest is written last.
    lent[cells] = worths.repeat(len(places)).reshape(targets.shape)[near]
    mass: FloatArray = masses @ lent.reshape(len(masses), -1)
    return mass[order.place]


def score_evidence(
    ground: Ground,
    parts: Sequence[Part],
    wordings: Sequence[LexicalMatch],
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
        _weigh_part(ground, part, wording, cosine, null, model, unseen_cosine)
        for part, wording, cosine in zip(parts, wordings, dense, strict=True)
    ]
    if len(tables) == 1:
        return tables[0]
    best = np.argmax([table.relevance for table in tables], axis=0)[None, :]
    columns = (
        np.take_along_axis(np.stack(held), best, axis=0)[0] for held in zip(*tables, strict=True)
    )
    pooled = EvidenceTable(*columns)
    return pooled if cosines is None else pooled._replace(dense=_nanmax(cosines))


def _nanmax(cosines: FloatArray) -> FloatArray:
    measured = np.where(np.isnan(cosines), -np.inf, cosines).max(axis=0)
    return np.where(np.isneginf(measured), np.nan, measured)


def _weigh_part(
    ground: Ground,
    part: Part,
    wording: LexicalMatch,
    cosine: FloatArray | None,
    null: NullDistribution,
    model: RelevanceModel,
    unseen_cosine: float | None,
) -> EvidenceTable:
    own_dense, dense = _dense_evidence(ground, cosine, null, model, unseen_cosine)
    own = own_dense + model.coverage * wording.own
    lent = model.thread * _best_in_thread(ground, own)
    score = dense + model.coverage * wording.coverage + lent
    chance = model.bias + model.crowding * np.log(max(ground.size, 1))
    return EvidenceTable(
        dense=np.full(ground.rows, np.nan) if cosine is None else cosine,
        coverage=wording.coverage,
        bm25=wording.bm25,
        matched=wording.own > 0,
        entity=wording.entity,
        episode=score - own,
        relevance=sigmoid((score - chance - _penalties(ground, part, model)) / model.softness),
    )


@cache
def _reach(model: RelevanceModel) -> tuple[IntArray, FloatArray]:
    """How far a word reaches in its thread and what it is worth there, weakest first."""
    lends = [(model.earlier**distance, distance) for distance in range(1, model.reach + 1)]
    lends += [(model.later**distance, -distance) for distance in range(1, model.reach + 1)]
    worths, shifts = zip(*sorted([*lends, (1.0, 0)]), strict=True)
    return np.array(shifts, np.int32)[:, None], np.array(worths)[:, None]


def _dense_evidence(
    ground: Ground,
    cosine: FloatArray | None,
    null: NullDistribution,
    model: RelevanceModel,
    unseen_cosine: float | None,
) -> tuple[FloatArray, FloatArray]:
    """Standardised cosine above the neutral point: a memory's own, and with its neighbours'."""
    if cosine is None or not ground.rows:
        return np.zeros(ground.rows), np.zeros(ground.rows)
    neutral = model.neutral * null.cap
    unseen = (
        neutral if unseen_cosine is None else min(neutral, (unseen_cosine - null.mean) / null.sd)
    )
    own = null.standardise(cosine)
    measured = ~np.isnan(own)
    own = np.where(measured, own, unseen)
    order = ground.thread_order()
    if not order.has_neighbours:
        alone = model.dense * (own - neutral)
        return alone, alone
    if unseen_cosine is not None or measured.all():
        # What a full pool leaves unseen is known to be low.
        links = ground.links(model.previous, model.following)
    else:
        known = measured[order.rows]
        links = make_links(order.follows, known, model.previous, model.following)
    z = _with_neighbours(own[order.rows], links)
    return model.dense * (own - neutral), model.dense * (z[order.place] - neutral)


def _with_neighbours(z: FloatArray, links: Links) -> FloatArray:
    """Each place's evidence with a share of what stands before and after it in its thread."""
    total = z.copy()
    total[1:] += links.before[1:] * z[:-1]
    total[:-1] += links.after[:-1] * z[1:]
    return np.asarray(total / links.scale)


def _best_in_thread(ground: Ground, evidence: FloatArray) -> FloatArray:
    if not ground.rows:
        return evidence
    order = ground.thread_order()
    if not order.has_neighbours:
        return evidence
    own = evidence[order.rows]
    best = np.maximum.reduceat(own, order.starts)[order.thread_at]
    # A stretch of writing has no bounds that mean anything: its best says nothing of the rest.
    return np.asarray(np.where(order.implied, own, best)[order.place])


def _penalties(ground: Ground, part: Part, model: RelevanceModel) -> FloatArray:
    """What is taken off for another speaker's words and for answers of the wrong kind."""
    taken = np.zeros(ground.rows)
    if part.speaker is not None:
        speaker = ground.speaker.values
        taken += model.other_speaker * ((speaker >= 0) & (speaker != part.speaker))
    if part.flags:
        taken += model.no_answer * ((ground.flags.values & part.flags) != part.flags)
    return taken
