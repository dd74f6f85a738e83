"""Null distributions of the embedder by language: measured once, shared where vectors take long."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Sequence
from contextlib import suppress
from importlib.resources import files
from time import perf_counter

from langchain_core.embeddings import Embeddings
from langgraph.store.base import GetOp, PutOp

from langmem_recall.deadline import loading
from langmem_recall.embeddings import embedder_identity
from langmem_recall.flows.backend import Backend
from langmem_recall.flows.effects import Embed, Ops, Plan
from langmem_recall.ranking.calibration import DEFAULT_NULL, PANELS, NullDistribution, measure
from langmem_recall.types import SIDECAR_ROOT

CALIBRATION = (SIDECAR_ROOT, "calibration")
SLOW_S = 0.02
"""An embedder that takes longer for one text is asked as little as possible: what another process
measured is read from the side-car. A quicker one is measured sooner than that is read."""
PROBE = 8
"""Numbers of one text's vector by which an embedder is known again, whatever it calls itself."""
PROBE_ERROR = 1e-3

_SCRIPTS = (
    ("ko", re.compile("[\u1100-\u11ff\uac00-\ud7af]")),
    ("ja", re.compile("[\u3041-\u3096\u30a1-\u30fa]")),
    ("zh", re.compile("[\u4e00-\u9fff\u3400-\u4dbf]")),
    ("ru", re.compile("[\u0400-\u04ff]")),
)
"""Kana before Han: Japanese uses both, Chinese only the latter."""

_WORD = re.compile(r"[^\W\d_]+")
_LINES = files(__package__).joinpath("function_words.txt").read_text("utf-8").splitlines()
_LANGUAGES = {line[:2]: frozenset(line[3:].split()) for line in _LINES}


class Calibrations:
    """Null distributions by language, of the embedder that a store has now."""

    def __init__(self) -> None:
        self._embeddings: Embeddings | None = None
        self._nulls: dict[str, NullDistribution] = {}

    def at(self, backend: Backend, text: str) -> Plan[NullDistribution]:
        """The one for a text's language; an assumed one where nothing can be measured."""
        embeddings, queries_as_documents = backend.embeddings, backend.queries_as_documents
        if embeddings is None:
            return DEFAULT_NULL
        language = language_of(text)
        if self._embeddings is not embeddings:
            self._embeddings, self._nulls = embeddings, {}
        null = self._nulls.get(language)
        if null is not None:
            return null
        try:
            probe, seconds = yield from _probe(language, as_queries=not queries_as_documents)
        except Exception:
            return DEFAULT_NULL
        is_slow = seconds >= SLOW_S
        # Another panel gives other numbers.
        parts = (embedder_identity(embeddings), queries_as_documents, PANELS[language], "asked")
        key = f"{language}-{hashlib.sha256(repr(parts).encode()).hexdigest()[:32]}"
        if is_slow:
            null = yield from _shared(key, probe)
        if null is None:
            null = yield from calibrate(language, queries_as_documents)
            if null is None:
                return DEFAULT_NULL
            null = null._replace(quick=not is_slow)
            if is_slow:
                start = [float(number) for number in probe[:PROBE]]
                value = {
                    "mean": null.mean,
                    "sd": null.sd,
                    "probe": start,
                    "center": list(null.center),
                    "asked": null.asked,
                }
                # A process that cannot share it has measured it all the same.
                with suppress(Exception):
                    yield Ops([PutOp(CALIBRATION, key, value, index=False)], sidecar=True)
        self._nulls[language] = null
        return null


def _probe(language: str, as_queries: bool) -> Plan[tuple[Sequence[float], float]]:
    """The vector of one text, and how long it took."""
    # Once more where the first takes long: then perhaps a model was loaded.
    for question, _ in PANELS[language][:2]:
        began = perf_counter()
        (probe,) = yield Embed([question], as_queries=as_queries)
        seconds = perf_counter() - began
        if seconds < SLOW_S:
            break
    return probe, seconds


def calibrate(language: str, queries_as_documents: bool) -> Plan[NullDistribution | None]:
    """Measure the embedder on a language's panel; None when it gives nothing usable."""
    questions, statements = zip(*PANELS[language], strict=True)
    as_queries = not queries_as_documents
    try:
        first = yield Embed(questions[:1], as_queries=as_queries)
        # An embedder that has answered once is measured, not hanging.
        with loading():
            rest = yield Embed(questions[1:], as_queries=as_queries)
            said = yield Embed(statements, as_queries=False)
    except Exception:
        return None
    return measure([*first, *rest], said)


def _shared(key: str, probe: Sequence[float]) -> Plan[NullDistribution | None]:
    """What another process measured with the same embedder, where it can be read."""
    with suppress(Exception):
        (item,) = yield Ops([GetOp(CALIBRATION, key, refresh_ttl=False)], sidecar=True)
        near = [] if item is None else zip(item.value["probe"], probe[:PROBE], strict=True)
        if item and all(math.isclose(one, other, abs_tol=PROBE_ERROR) for one, other in near):
            mean, sd, asked = (float(item.value[name]) for name in ("mean", "sd", "asked"))
            center = tuple(map(float, item.value["center"]))
            return NullDistribution(mean, sd, center=center, asked=asked)
    return None


def language_of(text: str) -> str:
    """The language with a panel of its own that a text is most likely in; English in doubt."""
    for name, script in _SCRIPTS:
        if script.search(text):
            return name
    said = _WORD.findall(text.casefold())
    # Of equals the first, which is English.
    return max(_LANGUAGES, key=lambda name: sum(word in _LANGUAGES[name] for word in said))
