"""What `doctor` looks at: facts gathered from a store, its embedder and recorded cues."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
from langgraph.store.base import BaseStore

from langmem_recall.cli.inputs import RecordedCue
from langmem_recall.cli.stores import all_items, told_namespace
from langmem_recall.embeddings import embedder_identity
from langmem_recall.errors import InputError, RecallError, StoreError
from langmem_recall.evaluation.doctor import Answer, Calibration, Survey, answer_of
from langmem_recall.flows.candidates import calibrate, memory_of
from langmem_recall.flows.effects import Host, run
from langmem_recall.policy import RecallPolicy
from langmem_recall.ranking.calibration import PANELS
from langmem_recall.sources import EvidenceSource
from langmem_recall.stores.postgres.database import database_of
from langmem_recall.stores.postgres.schema import is_set_up
from langmem_recall.stores.reads import embeddings_of, queries_as_documents
from langmem_recall.stores.recall_store import Caching, RecallStore
from langmem_recall.types import SIDECAR_ROOT, Namespace

PROBE = "a plain sentence about nothing in particular"
INDEX_LIMIT = Caching().index_limit
NAMED = 5
"""Namespaces that an error message lists."""


def policy_in_force(store: BaseStore, namespace: Namespace) -> RecallPolicy:
    """The policy stored for a namespace, else the default."""
    return RecallStore(store, stored_policies=True).policy_for(namespace)


def calibration_of(store: BaseStore) -> Calibration:
    """Measure the store's embedder in every language we have a panel for."""
    embeddings = embeddings_of(store)
    if embeddings is None:
        return Calibration()
    identity = embedder_identity(embeddings)
    try:
        embeddings.embed_query(PROBE)
    except Exception as error:
        what = error if isinstance(error, RecallError) else f"{type(error).__name__}: {error}"
        problem = f"{identity} cannot embed, so that recall rests on words alone: {what}"
        return Calibration(identity, {}, problem)
    host, as_documents = Host(store, store, embeddings), queries_as_documents(store)
    nulls = {language: run(calibrate(language, as_documents), host) for language in PANELS}
    return Calibration(identity, nulls)


def survey_of(store: BaseStore, namespace: Namespace) -> Survey:
    """Count what lies at or below a namespace."""
    items = all_items(store, namespace)
    sizes = Counter(item.namespace for item in items)
    searched = len(items) if namespace else max(sizes.values(), default=0)
    database = database_of(store)
    set_up = None if database is None else run(is_set_up(database), Host(store, store))
    return Survey(
        memories=len(items),
        searched=searched,
        saliences=frozenset(memory_of(item).salience for item in items),
        has_words=isinstance(store, EvidenceSource) or searched <= INDEX_LIMIT or bool(set_up),
        is_set_up=set_up,
    )


def with_vectors_counted(
    store: BaseStore, namespace: Namespace, calibration: Calibration, survey: Survey
) -> tuple[Calibration, Survey]:
    """Both with what the stored vectors tell, where the store lays them open."""
    embeddings = embeddings_of(store)
    if embeddings is None or calibration.problem or not isinstance(store, EvidenceSource):
        return calibration, survey
    vector = embeddings.embed_query(PROBE)
    shelf = store.shelf(namespace)
    try:
        with shelf.lock:
            bare = np.flatnonzero(shelf.catalog.alive & np.isnan(shelf.cosines([vector])[0]))
            owners = [shelf.catalog.id(row)[0] for row in bare.tolist()]
    except StoreError as error:
        return calibration._replace(problem=str(error)), survey
    lacking = sum(owner[0] != SIDECAR_ROOT for owner in owners)
    return calibration, survey._replace(without_vectors=lacking)


def ask_cues(
    store: BaseStore, cues: Sequence[RecordedCue], namespace: Namespace, policy: RecallPolicy
) -> Iterator[Answer]:
    """Recall for every cue, one at a time, without leaving a trace.

    Each is asked of the namespace given, else of where its trace was made, else of the only one.
    """
    default = namespace or _only_namespace(store, cues)
    reader = RecallStore(store, policy=policy, record=False)
    with reader.quiet():
        for recorded in cues:
            places = recorded.namespaces if recorded.namespaces and not namespace else (default,)
            yield answer_of(reader.recall(places, recorded.cue))


def _only_namespace(store: BaseStore, cues: Sequence[RecordedCue]) -> Namespace:
    if all(recorded.namespaces for recorded in cues):
        return ()
    found = sorted({item.namespace for item in all_items(store)})
    if len(found) == 1:
        return found[0]
    if not found:
        raise InputError("The store holds no memories, so no cue can find one. Add some first.")
    named = ", ".join(map(told_namespace, found[:NAMED])) + (" ..." if found[NAMED:] else "")
    raise InputError(
        f"The cues do not say which of {len(found)} namespaces they are asked of. Name one with "
        f"--namespace: {named}"
    )
