"""Null distributions of the embedder: measured once, shared where vectors take long."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from time import perf_counter
from typing import Any

from langchain_core.embeddings import Embeddings
from langgraph.store.base import GetOp, Item, PutOp

from langmem_recall.embeddings import embedder_identity
from langmem_recall.flows.candidates import calibrate
from langmem_recall.flows.effects import Embed, Ops, Plan
from langmem_recall.ranking.calibration import DEFAULT_NULL, PANELS, NullDistribution
from langmem_recall.types import SIDECAR_ROOT

CALIBRATION = (SIDECAR_ROOT, "calibration")
SLOW_S = 0.02
"""An embedder that takes longer for one text is asked as little as possible: what another process
measured is read from the side-car. A quicker one is measured sooner than that is read."""
PROBE = 8
"""Numbers of one text's vector by which an embedder is known again, whatever it calls itself."""
PROBE_ERROR = 1e-3


class Calibrations:
    """Null distributions by language, of the embedder that a store has now."""

    def __init__(self) -> None:
        self._embeddings: Embeddings | None = None
        self._nulls: dict[str, NullDistribution] = {}

    def at(
        self, embeddings: Embeddings | None, language: str, queries_as_documents: bool
    ) -> Plan[NullDistribution]:
        """The null distribution in a language; an assumed one where nothing can be measured."""
        if embeddings is None:
            return DEFAULT_NULL
        if self._embeddings is not embeddings:
            self._embeddings, self._nulls = embeddings, {}
        null = self._nulls.get(language)
        if null is None:
            null = yield from _measured(embeddings, language, queries_as_documents)
            if null is None:
                return DEFAULT_NULL
            self._nulls[language] = null
        return null


def _measured(
    embeddings: Embeddings, language: str, queries_as_documents: bool
) -> Plan[NullDistribution | None]:
    as_queries = not queries_as_documents
    # Once more where the first takes long: then perhaps a model was loaded.
    for question, _ in PANELS[language][:2]:
        began = perf_counter()
        try:
            (probe,) = yield Embed([question], as_queries=as_queries)
        except Exception:
            return None
        if perf_counter() - began < SLOW_S:
            return (yield from calibrate(language, queries_as_documents))
    key = _key(embeddings, language, queries_as_documents)
    shared = yield from _shared(key, probe)
    if shared is not None:
        return shared
    null = yield from calibrate(language, queries_as_documents)
    if null is not None:
        yield from _share(key, probe, null)
    return null


def _key(embeddings: Embeddings, language: str, queries_as_documents: bool) -> str:
    # Another panel gives other numbers.
    told = (embedder_identity(embeddings), queries_as_documents, PANELS[language])
    return f"{language}-{hashlib.sha256(repr(told).encode()).hexdigest()[:32]}"


def _shared(key: str, probe: Sequence[float]) -> Plan[NullDistribution | None]:
    """What another process measured with the same embedder, where it can be read."""
    try:
        (item,) = yield Ops([GetOp(CALIBRATION, key, refresh_ttl=False)], sidecar=True)
        return None if item is None else _null_of(item, probe)
    except Exception:
        return None


def _null_of(item: Item, probe: Sequence[float]) -> NullDistribution | None:
    held: dict[str, Any] = item.value
    near = zip(held["probe"], probe[:PROBE], strict=True)
    is_same = all(math.isclose(one, other, abs_tol=PROBE_ERROR) for one, other in near)
    return NullDistribution(float(held["mean"]), float(held["sd"])) if is_same else None


def _share(key: str, probe: Sequence[float], null: NullDistribution) -> Plan[None]:
    value = {"mean": null.mean, "sd": null.sd, "probe": [float(x) for x in probe[:PROBE]]}
    try:
        yield Ops([PutOp(CALIBRATION, key, value, index=False)], sidecar=True)
    except Exception:
        # A process that cannot share it has measured it all the same.
        return
