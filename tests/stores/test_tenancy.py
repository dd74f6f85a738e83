"""No tenant reads, sweeps or forgets what is another's, however alike their names are."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from langgraph.store.base import BaseStore, PutOp, SearchOp
from langgraph.store.memory import InMemoryStore

from langmem_recall.errors import InputError
from langmem_recall.guard.judge import Verdict
from langmem_recall.policy import RecallPolicy
from langmem_recall.stores.local.store import LocalStore
from langmem_recall.stores.recall_store import RecallStore
from langmem_recall.types import Namespace, Usage

PAIRS = 5_000 if os.environ.get("SOAK") == "1" else 60
ROOT = "memories"
ALIKE = (
    *("a", "A", "ab", "a b", "aa", "1", "10", "01", "%", "a%", "_", "a_", "*", "a*", "**", "?"),
    *("é", "e\u0301", "ß", "ss", "SS", "ı", "i", "İ", "a\u200b", "\u0430", "😀", " ", "a ", " a"),
    *(
        '"',
        '",',
        "a,b",
        "a/b",
        "a\\b",
        "'",
        "--",
        "verdict",
        "usage",
        "policy",
        "a\x01",
        "\U0010ffff",
    ),
)
labels = st.sampled_from(ALIKE) | st.text(
    st.characters(exclude_categories=("Cs",), exclude_characters=".\x00"), min_size=1, max_size=3
)
namespaces = st.lists(labels, min_size=0, max_size=3).map(lambda found: (ROOT, *found))
open_policy = RecallPolicy.default(trigger=0, floor=0, duplicate_similarity=2)


def quarantines_odd(text: str) -> Verdict:
    return Verdict("quarantine", ("odd",)) if "odd" in text else Verdict()


def lies_below(space: Namespace, prefix: Namespace) -> bool:
    return space[: len(prefix)] == prefix


def made(sort: str) -> BaseStore:
    return InMemoryStore() if sort == "words" else LocalStore(index=False)


def read_by(store: RecallStore, mine: Namespace) -> list[Any]:
    """All that a tenant can get to see, by every way there is."""
    text = "the secret tea of the tenant"
    ops = [SearchOp(mine, query=text), SearchOp(mine), SearchOp(mine, limit=50)]
    batched = [item for page in store.batch(ops) for item in page]
    with store.quiet():
        return [
            *store.search(mine, query=text, limit=50),
            *store.search(mine, query=text, limit=50, policy=RecallPolicy.similarity()),
            *store.search(mine, limit=50),
            *store.recall(mine, text, policy=open_policy).memories,
            *(drop.memory for drop in store.recall(mine, text).dropped),
            *store.quarantined(mine),
            *batched,
        ]


@pytest.mark.parametrize("sort", ["words", "local"])
@settings(max_examples=PAIRS, deadline=None, suppress_health_check=list(HealthCheck))
@given(mine=namespaces, theirs=namespaces)
def test_nothing_of_another_tenant_is_read_swept_or_forgotten(
    sort: str, mine: Namespace, theirs: Namespace
) -> None:
    assume(not lies_below(theirs, mine))
    base = made(sort)
    store = RecallStore(base, guard=quarantines_odd)
    for space in {mine, theirs}:
        store.remember(space, "the secret tea of the tenant", key="k")
        store.remember(space, "an odd secret tea of the tenant", key="odd")
        store.remember(space, "the tenant is said to like tea", key="i", source="agent_inferred")
        store.batch([PutOp(space, "b", {"content": "the tenant's own odd tea"})])
    found = read_by(store, mine)
    assert {item.namespace for item in found} == {mine}
    assert {item.key for item in found} == {"k", "odd", "i", "b"}
    if "*" not in mine:
        assert store.list_namespaces(prefix=mine) == [mine]
    before = {
        item.key: item.value for item in base.search(theirs, limit=50) if item.namespace == theirs
    }
    report = store.sweep(mine, apply=True)
    assert {row.id[0] for row in report.rows} <= {mine}
    assert report.examined == 4
    store.feedback(mine, "k")
    store.flush()
    assert store._ledger._current.get((theirs, "k"), Usage()).merit == 0
    assert store.forget(mine, "k")
    assert store.forget_namespace(mine).count == 3
    after = {
        item.key: item.value for item in base.search(theirs, limit=50) if item.namespace == theirs
    }
    assert after == before
    assert [m.key for m in store.quarantined(theirs) if m.namespace == theirs] == ["b", "odd"]
    assert not any(item.namespace == mine for item in base.search((), limit=50))


@pytest.mark.parametrize("sort", ["words", "local"])
@pytest.mark.parametrize("space", [("a.b",), ("memories", "ada.home"), (ROOT, ""), ()])
def test_labels_that_could_alias_another_namespace_are_refused(sort: str, space: Any) -> None:
    store = RecallStore(made(sort))
    for method, arguments in (
        ("remember", ("text",)),
        ("forget_namespace", ()),
        ("sweep", ()),
        ("quarantined", ()),
        ("correct", ("k", "text")),
        ("confirm", ("k",)),
        ("feedback", ("k",)),
    ):
        with pytest.raises(InputError):
            getattr(store, method)(space, *arguments)
    for op in (PutOp(("a.b",), "k", {"content": "x"}), SearchOp(("a.b",), query="x")):
        with pytest.raises(ValueError, match="cannot contain periods"):
            store.batch([op])
    assert store.inner.search((), limit=5) == []
