"""Suites of our own, generated with fixed seeds: what public question sets do not reward."""

from collections.abc import Callable, Mapping

from langmem_recall.evaluation.cases import CaseSet
from langmem_recall.evaluation.suites.changing import drift
from langmem_recall.evaluation.suites.crowded import distinct_facts, large, redundancy
from langmem_recall.evaluation.suites.dated import temporal
from langmem_recall.evaluation.suites.exact import identifiers
from langmem_recall.evaluation.suites.silence import off_topic, tiny
from langmem_recall.evaluation.suites.tight_band import TightBand
from langmem_recall.evaluation.suites.tongues import languages
from langmem_recall.evaluation.suites.weighty import after_use, importance, simulate_use, use

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
