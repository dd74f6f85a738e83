"""Suites of our own, generated with fixed seeds: what public question sets do not reward."""

from collections.abc import Callable, Mapping

from langmem_recall.evaluation.cases import CaseSet
from suites.crowded import distinct_facts, large, redundancy
from suites.dated import temporal
from suites.drift import drift
from suites.exact import identifiers
from suites.importance import after_use, importance, simulate_use, use
from suites.languages import languages
from suites.silence import off_topic, tiny
from suites.tight_band import TightBand

SUITES: Mapping[str, Callable[[], CaseSet]] = {
    "drift": drift,
    "temporal": temporal,
    "importance": importance,
    "use": use,
    "redundancy": redundancy,
    "identifiers": identifiers,
    "off_topic": off_topic,
    "tiny": tiny,
    "languages": languages,
    "large": large,
}
"""Every suite by its name; `use` is to be run over the stores that `after_use` makes."""

__all__ = [
    "SUITES",
    "TightBand",
    "after_use",
    "distinct_facts",
    "drift",
    "identifiers",
    "importance",
    "languages",
    "large",
    "off_topic",
    "redundancy",
    "simulate_use",
    "temporal",
    "tiny",
    "use",
]
