"""What `doctor` looks at: facts gathered from a store, its embedder and recorded cues."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from langgraph.store.base import BaseStore

from langmem_recall.cli.inputs import RecordedCue
from langmem_recall.cli.stores import all_items, told_namespace
from langmem_recall.embeddings import embedder_identity
from langmem_recall.errors import InputError, RecallError, StoreError
from langmem_recall.evaluation.doctor import Answer, Calibration, Survey, answer_of
from langmem_recall.flows.calibrations import calibrate
from langmem_recall.flows.candidates import memory_of
from langmem_recall.flows.effects import Host, run
from langmem_recall.policy import RecallPolicy
from langmem_recall.ranking.panel import PANELS
from langmem_recall.stores.backend import backend_of
from langmem_recall.stores.recall_store import Caching, RecallStore
from langmem_recall.types import Namespace

PROBE = "a plain sentence about nothing in particular"
INDEX_LIMIT = Caching().index_limit
NAMED = 5
"""Namespaces that an error message lists."""


def policy_in_force(store: BaseStore, namespace: Namespace) -> RecallPolicy:
    """The policy stored for a namespace, else the default."""
    return RecallStore(store, stored_policies=True).policy_for(namespace)


def calibration_of(store: BaseStore) -> Calibration:
    """Measure the store's embedder in every language we have a panel for."""
    backend = backend_of(store)
    embeddings = backend.embeddings
    if embeddings is None:
        return Calibration()
    identity = embedder_identity(embeddings)
    try:
        embeddings.embed_query(PROBE)
    except Exception as error:
        what = error if isinstance(error, RecallError) else f"{type(error).__name__}: {error}"
        problem = f"{identity} cannot embed, so that recall rests on words alone: {what}"
        return Calibration(identity, {}, problem)
    host, as_documents = Host(store, store, embeddings), backend.queries_as_documents
    nulls = {language: run(calibrate(language, as_documents), host) for language in PANELS}
    return Calibration(identity, nulls)


def survey_of(store: BaseStore, namespace: Namespace) -> Survey:
    """Count what lies at or below a namespace."""
    items = all_items(store, namespace)
    sizes = Counter(item.namespace for item in items)
    searched = len(items) if namespace else max(sizes.values(), default=0)
    backend = backend_of(store)
    set_up = run(backend.is_set_up(), Host(store, store))
    return Survey(
        memories=len(items),
        searched=searched,
        saliences=frozenset(memory_of(item).salience for item in items),
        has_words=backend.holds_words or searched <= INDEX_LIMIT or bool(set_up),
        is_set_up=set_up,
    )


def with_vectors_counted(
    store: BaseStore, namespace: Namespace, calibration: Calibration, survey: Survey
) -> tuple[Calibration, Survey]:
    """Both with what the stored vectors tell, where the store lays them open."""
    backend = backend_of(store)
    if backend.embeddings is None or calibration.problem:
        return calibration, survey
    vector = backend.embeddings.embed_query(PROBE)
    try:
        bare = run(backend.without_vectors(namespace, vector), Host(store, store))
    except StoreError as error:
        return calibration._replace(problem=str(error)), survey
    return calibration, survey if bare is None else survey._replace(without_vectors=len(bare))


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
