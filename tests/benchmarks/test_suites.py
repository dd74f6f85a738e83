from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from functools import cache

import numpy as np
import pytest
from langchain_core.embeddings import Embeddings
from langgraph.store.base import PutOp
from suites import (
    SUITES,
    TightBand,
    after_use,
    distinct_facts,
    large,
    redundancy,
    simulate_use,
    use,
)
from suites.backdrop import NOW, PEOPLE
from suites.importance import _STAKES

from langmem_recall.embeddings import LocalEmbeddings
from langmem_recall.evaluation.cases import CaseSet
from langmem_recall.evaluation.evaluate import NAMESPACE, Report, evaluate
from langmem_recall.policy import RecallPolicy
from langmem_recall.stores.local.store import LocalStore
from langmem_recall.stores.recall_store import RecallStore
from langmem_recall.text.temporal import read_temporal
from langmem_recall.text.tokens import tokens
from langmem_recall.types import Temporal

NAMES = sorted(SUITES)
POLICIES = [RecallPolicy.default(), RecallPolicy.similarity()]
SQUEEZED = "tight band"
NATURAL = "natural"


@cache
def suite(name: str) -> CaseSet:
    return large(memories=2_000) if name == "large" else SUITES[name]()


@cache
def report(name: str, band: str = NATURAL) -> Report:
    """The default and cosine on a suite, once per session."""
    cases = suite(name)
    store = after_use(cases) if name == "use" else None
    embeddings: Embeddings = LocalEmbeddings()
    if band == SQUEEZED:
        embeddings = TightBand(embeddings)
    return evaluate(cases, POLICIES, embeddings=embeddings, store=store)


def hits(name: str, band: str = NATURAL, category: str | None = None) -> list[float]:
    """Share of answerable cues whose best memory is the right one: the default's, cosine's."""
    cases = suite(name).cases
    asked = np.array([bool(case.relevant) and category in (None, case.category) for case in cases])
    return [float(np.mean(held.values["mrr"][asked] == 1.0)) for held in report(name, band).rows]


def injected(name: str, band: str = NATURAL, categories: frozenset[str] | None = None) -> float:
    """Share of the off-topic cues for which the default recalls something."""
    off_topic = np.array(
        [
            not case.relevant and (categories is None or case.category in categories)
            for case in suite(name).cases
        ]
    )
    return float(np.mean(report(name, band).rows[0].values["injected"][off_topic]))


# --- how they are made ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_suite_is_the_same_for_the_same_seed_and_another_for_another(name: str) -> None:
    make: Callable[..., CaseSet] = SUITES[name]
    assert make(seed=3) == make(seed=3)
    assert make(seed=3) != make(seed=4)
    assert make(seed=0) == make()


@pytest.mark.parametrize("name", NAMES)
def test_keys_are_unique_and_relevant_ones_exist(name: str) -> None:
    held = {each.name: each for each in suite(name).collections}
    for collection in held.values():
        assert len(dict(collection.memories)) == len(collection.memories)
    for case in suite(name).cases:
        assert case.relevant <= dict(held[case.collection].memories).keys()


@pytest.mark.parametrize("name", NAMES)
def test_no_memory_is_told_twice_and_no_cue_is_a_memory(name: str) -> None:
    for collection in suite(name).collections:
        texts = [value["content"] for _, value in collection.memories]
        assert len(set(texts)) == len(texts)
        cues = {case.cue.words for case in suite(name).cases if case.collection == collection.name}
        assert cues.isdisjoint(texts)


@pytest.mark.parametrize("name", NAMES)
def test_memories_are_dated_within_the_year_before_the_asking(name: str) -> None:
    assert {case.at for case in suite(name).cases} == {NOW}
    for collection in suite(name).collections:
        dates = [datetime.fromisoformat(value["written_at"]) for _, value in collection.memories]
        assert all(0 < (NOW - date).days <= 365 or (NOW - date).days == 0 for date in dates)
        assert dates == sorted(dates)


@pytest.mark.parametrize("name", NAMES)
def test_every_suite_asks_enough_to_tell_policies_apart(name: str) -> None:
    assert len(suite(name).cases) >= (30 if name == "large" else 40)


@pytest.mark.parametrize("memories", [100, 2_000])
def test_the_haystack_is_as_large_as_asked(memories: int) -> None:
    (collection,) = large(memories=memories).collections
    assert len(collection.memories) == memories


def test_fifty_thousand_memories_can_be_made() -> None:
    (collection,) = large(memories=50_000).collections
    assert len({value["content"] for _, value in collection.memories}) == 50_000


def test_each_window_holds_one_event_of_its_kind() -> None:
    cases = suite("temporal")
    for case in cases.cases:
        collection = next(each for each in cases.collections if each.name == case.collection)
        written = {
            key: datetime.fromisoformat(value["written_at"]) for key, value in collection.memories
        }
        window = read_temporal(case.cue.words, NOW)
        assert isinstance(window, Temporal), case.cue.words
        assert window.start is not None
        assert window.end is not None
        (key,) = case.relevant
        assert window.start <= written[key] < window.end, case.cue.words


def test_drift_wants_the_newest_or_the_first_of_three() -> None:
    cases = suite("drift")
    order = {each.name: [key for key, _ in each.memories] for each in cases.collections}
    groups = [cases.cases[i : i + 3] for i in range(0, len(cases.cases), 3)]
    for neutral, current, first in groups:
        assert neutral.relevant == current.relevant
        places = order[first.collection]
        (newest,), (oldest,) = neutral.relevant, first.relevant
        assert places.index(oldest) < places.index(newest)


def test_a_critical_fact_shares_no_word_but_the_name_with_its_cue() -> None:
    for stake in _STAKES:
        for cue in stake.cues:
            asked = set(tokens(cue.format(p=PEOPLE[0]))) - set(tokens(PEOPLE[0]))
            for text in (*stake.critical, *stake.trivial):
                assert asked.isdisjoint(tokens(text.format(p=PEOPLE[0]))), (cue, text)


def test_distinct_facts_counts_the_repeated_one_once() -> None:
    cases = redundancy()
    case = cases.cases[0]
    memories = dict(next(e for e in cases.collections if e.name == case.collection).memories)
    repeated = [key for key in case.relevant if memories[key]["tags"][0].endswith("repeated")]
    others = sorted(case.relevant - set(repeated))
    assert (len(repeated), len(others)) == (12, 5)
    assert distinct_facts(cases, case, repeated) == pytest.approx(1 / 6)
    assert distinct_facts(cases, case, [*repeated[:1], *others]) == 1.0
    assert distinct_facts(cases, case, ["elsewhere"]) == 0.0


def test_a_month_of_recalls_leaves_the_hot_used_and_the_cold_mostly_not() -> None:
    cases = use()
    inner = LocalStore()
    simulate_use(inner, cases, days=5)
    store = RecallStore(inner, record=False, clock=lambda: NOW)
    wanted = {case.category: case for case in cases.cases[:3]}
    strengths = {}
    for label, case in wanted.items():
        (key,) = case.relevant
        found = store.explain(NAMESPACE, key, replace(case.cue, at=NOW))
        assert found.scored is not None
        strengths[label] = found.scored.signals.strength
    assert strengths["hot"] > strengths["cold"]
    inner.close()


# --- the tight band -------------------------------------------------------------------------------


def test_tight_band_squeezes_every_cosine_to_a_line_above_its_base() -> None:
    plain, tight = LocalEmbeddings(), TightBand(LocalEmbeddings())
    texts = ["The cat eats salmon.", "A cat likes fish.", "Deploy the service on Friday.", "Why?"]
    cosines = np.array(plain.embed_documents(texts)) @ np.array(plain.embed_documents(texts)).T
    squeezed = np.array(tight.embed_documents(texts)) @ np.array(tight.embed_documents(texts)).T
    assert squeezed == pytest.approx(0.7 + 0.3 * cosines, abs=1e-5)
    apart = squeezed[~np.eye(len(texts), dtype=bool)]
    assert 0.64 < apart.min() <= apart.max() < 0.95
    assert tight.embed_query(texts[0]) == pytest.approx(tight.embed_documents(texts[:1])[0])


def test_tight_band_keeps_no_evidence_as_no_evidence() -> None:
    assert not any(TightBand(LocalEmbeddings()).embed_query(""))
    assert TightBand(LocalEmbeddings()).identity.startswith("tight-band-0.7(wordllama")


# --- what the default must not lose ---------------------------------------------------------------


@pytest.mark.parametrize("band", [NATURAL, SQUEEZED])
def test_identifiers_are_found_among_lookalikes(band: str) -> None:
    default, cosine = hits("identifiers", band)
    assert default >= 0.9
    assert default > cosine


@pytest.mark.parametrize("band", [NATURAL, SQUEEZED])
def test_off_topic_cues_recall_next_to_nothing(band: str) -> None:
    assert injected("off_topic", band) <= 0.1


def test_the_window_a_cue_names_decides_between_events() -> None:
    default, cosine = hits("temporal")
    assert default >= 0.7
    assert cosine <= 0.3


@pytest.mark.parametrize("category", ["neutral", "current", "first"])
def test_newer_statements_come_before_those_they_supersede(category: str) -> None:
    default, cosine = hits("drift", category=category)
    assert default >= 0.4
    assert default > cosine


def test_importance_lifts_the_critical_fact_above_what_cosine_makes_of_it() -> None:
    default, cosine = hits("importance")
    assert default > cosine


def test_what_is_used_daily_comes_first_and_what_is_not_is_still_found_by_name() -> None:
    assert hits("use", category="hot")[0] >= 0.7
    assert hits("use", category="cold")[0] >= 0.9


def test_other_languages_are_found() -> None:
    assert hits("languages")[0] >= 0.85


def test_off_topic_cues_in_latin_script_recall_little() -> None:
    assert injected("languages", categories=frozenset({"German", "French", "Spanish"})) <= 0.25


def test_off_topic_cues_in_other_scripts_recall_little() -> None:
    others = frozenset({"Chinese", "Japanese", "Russian", "Korean"})
    assert injected("languages", categories=others) <= 0.25


def test_a_needle_is_found_in_two_thousand() -> None:
    assert hits("large")[0] >= 0.9


def test_tiny_stores_answer_what_they_hold_and_nothing_else() -> None:
    answers = report("tiny").rows[0].values["injected"]
    right = [
        given == bool(case.relevant)
        for case, given in zip(suite("tiny").cases, answers, strict=True)
    ]
    assert np.mean(right) >= 0.9
    assert hits("tiny")[0] >= 0.9


def test_twelve_variants_of_one_preference_leave_room_for_other_facts() -> None:
    cases = suite("redundancy")
    shares = []
    for collection in cases.collections[:2]:
        store = RecallStore(LocalStore(), record=False)
        store.batch([PutOp(NAMESPACE, key, dict(value)) for key, value in collection.memories])
        for case in (each for each in cases.cases if each.collection == collection.name):
            found = store.recall(NAMESPACE, replace(case.cue, at=NOW))
            chosen = [memory.key for memory in found.memories]
            shares.append(distinct_facts(cases, case, chosen))
        store.inner.close()  # type: ignore[attr-defined]
    # A recall brings at most five of the six facts of a case.
    assert np.mean(shares) >= 0.55
