"""Null distributions of the embedder by language: measured once, shared where vectors take long."""

from __future__ import annotations

import hashlib
import math
import threading
from array import array
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Any

from langchain_core.embeddings import Embeddings
from langgraph.store.base import GetOp, PutOp

from langmem_recall.deadline import Pending, at_most, watching
from langmem_recall.embeddings import embedder_identity, names_model
from langmem_recall.flows.backend import ENOUGH, Backend, Null
from langmem_recall.flows.effects import Await, Detach, Embed, Ops, Plan
from langmem_recall.ranking.calibration import (
    CUES,
    DEFAULT_NULL,
    PANELS,
    NullDistribution,
    assumed_null,
    measure,
    measure_need,
)
from langmem_recall.text.tokens import language_of
from langmem_recall.types import SIDECAR_ROOT

CALIBRATION = (SIDECAR_ROOT, "calibration")
SLOW_S = 0.1
"""An embedder that takes longer for a panel is asked as little as possible: what another process
measured is read from the side-car. A quicker one is measured sooner than that is read."""
AGAIN_S = 30.0
"""Seconds after which an embedder that could not be measured is tried again."""
PROBE = 8
"""Numbers of one text's vector by which an embedder is known again that does not name its model."""
PROBE_ERROR = 1e-3
NUMBERS, LISTS = ("mean", "sd", "asked", "apart"), ("center", "need")
"""What of a null distribution is kept."""


class Calibrations:
    """Null distributions by language, of the embedder that a store has now."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._embeddings: Embeddings | None = None
        self._nulls: dict[str, NullDistribution] = {}
        self._begun: dict[str, float] = {}
        """When the measuring of a language began."""
        self._pending: dict[str, Pending] = {}

    def begin(self, backend: Backend, text: str) -> Plan[Null]:
        """Have the one for a text's language measured, in the background, if nobody has yet."""
        embeddings, language = backend.embeddings, language_of(text)
        found = partial(self._at, embeddings, language)
        if embeddings is None or (embeddings is self._embeddings and language in self._nulls):
            return found
        now = monotonic()
        with self._lock:
            if self._embeddings is not embeddings:
                self._embeddings, self._nulls, self._begun = embeddings, {}, {}
            begun_at = self._begun.get(language, -math.inf)
            pending = self._pending.get(language)
            is_under_way = now - begun_at < AGAIN_S or (pending and not pending.done())
            if language in self._nulls or is_under_way:
                return found
            self._begun[language] = now
        self._pending[language] = yield Detach(self._measure(backend, embeddings, language))
        return found

    def _at(self, embeddings: Embeddings | None, language: str) -> Plan[NullDistribution]:
        """The one for a language; an assumed one where it is late or cannot be measured."""
        null, pending = self._nulls.get(language), self._pending.get(language)
        if embeddings is None or embeddings is not self._embeddings:
            return DEFAULT_NULL
        if null is None and pending is not None:
            with suppress(Exception), at_most(ENOUGH):
                yield Await(pending)
            null = self._nulls.get(language)
        return null or assumed_null(embedder_identity(embeddings))

    def breadth(self, text: str) -> float:
        """How far a recall for a text reaches, by what is known of the embedder now."""
        return self._nulls.get(language_of(text), DEFAULT_NULL).breadth

    def _measure(self, backend: Backend, embeddings: Embeddings, language: str) -> Plan[None]:
        """One request, and none where another process has made it for a model that has a name."""
        pairs = PANELS[language]
        need: Sequence[float] = array("d", getattr(embeddings, "need", ()))
        # In English, where the embedder does not know itself what cues are for.
        cues = [] if language != "en" or need else [*CUES["wanted"], *CUES["idle"]]
        # Another panel gives other numbers.
        parts = embedder_identity(embeddings), backend.queries_as_documents, pairs, cues
        key = f"{language}-{hashlib.sha256(repr(parts).encode()).hexdigest()[:32]}"
        stored = yield from _stored(key)
        null: NullDistribution | None = None
        if stored is not None:
            null, probe = stored
            if not names_model(embeddings):
                (vector,) = yield Embed([pairs[0][0]], as_queries=False)
                near = zip(probe, vector, strict=False)
                if not all(math.isclose(*pair, abs_tol=PROBE_ERROR) for pair in near):
                    null = None
        if null is None:
            questions, statements = zip(*pairs, strict=True)
            with watching() as progress:
                began = monotonic()
                vectors = yield Embed([*questions, *statements, *cues], as_queries=False)
                seconds = monotonic() - began - progress.load_seconds
            null = measure(vectors[: len(pairs)], vectors[len(pairs) : 2 * len(pairs)])
            if null is None:
                return
            if cues:
                of_cues, half = vectors[2 * len(pairs) :], len(cues) // 2
                need = measure_need(of_cues[:half], of_cues[half:])
            null = null._replace(quick=seconds < SLOW_S, need=need if language == "en" else ())
            if not null.quick:
                value: dict[str, Any] = {name: getattr(null, name) for name in NUMBERS}
                value |= {name: list(getattr(null, name)) for name in LISTS}
                value["probe"] = [float(number) for number in vectors[0][:PROBE]]
                # A process that cannot share it has measured it all the same.
                with suppress(Exception):
                    yield Ops([PutOp(CALIBRATION, key, value, index=False)], sidecar=True)
        with self._lock:
            if self._embeddings is embeddings:
                self._nulls[language] = null


def _stored(key: str) -> Plan[tuple[NullDistribution, list[float]] | None]:
    """What a process measured with an embedder of the same name, where it can be read."""
    with suppress(Exception):
        (item,) = yield Ops([GetOp(CALIBRATION, key, refresh_ttl=False)], sidecar=True)
        if item is not None:
            fields: dict[str, Any] = {name: float(item.value[name]) for name in NUMBERS}
            fields |= {name: array("d", item.value[name]) for name in LISTS}
            return NullDistribution(**fields), list(map(float, item.value["probe"]))
    return None


def calibrate(language: str, queries_as_documents: bool) -> Plan[NullDistribution | None]:
    """Measure the embedder on a language's panel; None when it gives nothing usable."""
    questions, statements = zip(*PANELS[language], strict=True)
    as_queries = not queries_as_documents
    try:
        asked = yield Embed(questions, as_queries=as_queries)
        said = yield Embed(statements, as_queries=False)
    except Exception:
        return None
    return measure(asked, said)
