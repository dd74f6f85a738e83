"""Sweeps and forgetting a namespace: what they decide, what they do, and that they say so."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest
from conftest import START, Call, Clock, CountingEmbeddings
from langgraph.store.base import BaseStore, PutOp
from langgraph.store.memory import InMemoryStore
from langgraph.store.postgres import PostgresStore
from langgraph.store.sqlite import SqliteStore

from langmem_recall import Caching, Writing
from langmem_recall.errors import ConfigurationError, InputError, StoreError
from langmem_recall.flows.usage import USAGE
from langmem_recall.guard.judge import Verdict
from langmem_recall.policy import RecallPolicy
from langmem_recall.stores.local.store import LocalStore
from langmem_recall.stores.recall_store import RecallStore
from langmem_recall.types import SIDECAR_ROOT, Usage

NS = ("memories", "ada")
DAY = timedelta(days=1)
SEATS = "I prefer aisle seats on flights"


@pytest.fixture(params=["vectors", "words", "local"])
def base(request: pytest.FixtureRequest, embeddings: CountingEmbeddings) -> BaseStore:
    index: Any = {"dims": 256, "embed": embeddings, "fields": ["content"]}
    makers: dict[str, Callable[[], BaseStore]] = {
        "vectors": lambda: InMemoryStore(index=index),
        "words": InMemoryStore,
        "local": lambda: LocalStore(embeddings=embeddings),
    }
    return makers[request.param]()


@pytest.fixture
def store(base: BaseStore, clock: Clock) -> RecallStore:
    return RecallStore(base, clock=clock)


def contents(store: RecallStore) -> dict[str, dict[str, Any]]:
    return {item.key: item.value for item in store.inner.search(NS[:1], limit=1_000)}


def told(report: Any) -> list[tuple[str, str]]:
    return [(row.action, row.id[1]) for row in report.rows]


# --- what a sweep decides ---------------------------------------------------------------------


def test_a_dry_run_says_what_it_would_do_and_changes_nothing(
    store: RecallStore, call: Call, clock: Clock
) -> None:
    store.remember(NS, "The wifi code is kept until Friday", key="wifi", ttl=DAY)
    store.remember(NS, "The user seems to like jazz", key="jazz", source="agent_inferred")
    store.remember(NS, SEATS, key="a")
    store.remember(NS, SEATS, key="b")
    clock.turn(days=8)
    before = contents(store)
    report = call(store, "sweep", NS)
    assert not report.applied
    assert (report.examined, report.next) == (4, None)
    assert sorted(told(report)) == [("decay", "jazz"), ("expire", "wifi"), ("merge", "a")]
    assert str(report).startswith("dry run of memories/ada: 4 examined, ")
    assert contents(store) == before
    assert call(store, "sweep", NS).rows == report.rows


def test_an_applied_sweep_does_what_it_says(store: RecallStore, call: Call, clock: Clock) -> None:
    store.remember(NS, "The wifi code is kept until Friday", key="wifi", ttl=DAY)
    store.remember(NS, "The user seems to like jazz", key="jazz", source="agent_inferred")
    text = "The user may own a boat"
    store.remember(NS, text, key="boat", source="agent_inferred", confidence=0.3)
    clock.turn(days=8)
    report = call(store, "sweep", NS, apply=True)
    assert report.applied
    assert sorted(told(report)) == [("decay", "jazz"), ("expire", "wifi"), ("remove", "boat")]
    reasons = {row.id[1]: row.reason for row in report.rows}
    assert reasons["wifi"] == "valid until 2026-03-05 12:00"
    assert reasons["jazz"] == "unconfirmed inference: confidence 0.60 -> 0.55"
    assert reasons["boat"] == "unconfirmed inference: confidence 0.30 -> 0.25, below 0.3"
    # What it was when it was written; time is counted anew by every reader.
    assert {key: value["confidence"] for key, value in contents(store).items()} == {"jazz": 0.6}
    assert {memory_id[1] for memory_id in report.removed} == {"wifi", "boat"}


def test_steps_can_be_chosen(store: RecallStore, call: Call, clock: Clock) -> None:
    store.remember(NS, "The wifi code is kept until Friday", key="wifi", ttl=DAY)
    store.remember(NS, "The user seems to like jazz", key="jazz", source="agent_inferred")
    clock.turn(days=8)
    assert told(call(store, "sweep", NS, steps=())) == []
    assert told(call(store, "sweep", NS, steps=("expire",))) == [("expire", "wifi")]
    assert told(call(store, "sweep", NS, steps=["decay"], apply=True)) == [("decay", "jazz")]
    assert set(contents(store)) == {"wifi", "jazz"}


def test_an_inference_that_nobody_confirms_or_uses_is_gone_after_seven_weeks(
    store: RecallStore, call: Call, clock: Clock
) -> None:
    store.remember(NS, "The user seems to like jazz", key="jazz", source="agent_inferred")
    store.remember(NS, "The user is said to sail", key="sail", source="agent_inferred")
    store.confirm(NS, "sail")
    nights = 0
    while "jazz" in contents(store):
        clock.turn(days=1)
        call(store, "sweep", NS, apply=True)
        nights += 1
    assert nights == 49
    assert contents(store)["sail"]["confidence"] == 1.0


def test_what_is_used_within_its_half_life_is_never_swept_away(
    store: RecallStore, call: Call, clock: Clock
) -> None:
    store.remember(NS, "The user works as a nurse at UMC", key="job", source="agent_inferred")
    for _ in range(120):
        clock.turn(days=1)
        assert call(store, "recall", NS, "Where does the user work as a nurse?").memories
        call(store, "sweep", NS, apply=True)
    assert set(contents(store)) == {"job"}
    # The half-life is thirty days; after it nothing speaks for what nobody confirmed.
    clock.turn(days=31)
    report = call(store, "sweep", NS, apply=True)
    assert told(report) == [("remove", "job")]


def test_the_users_own_words_are_proposed_and_not_removed(
    store: RecallStore, call: Call, clock: Clock
) -> None:
    store.remember(NS, "I am away until Friday", key="away", source="user_stated", ttl=DAY)
    clock.turn(days=2)
    report = call(store, "sweep", NS, apply=True)
    assert told(report) == [("propose", "away")]
    assert report.rows[0].reason.startswith("valid until 2026-03-05 12:00; the user's own words")
    assert report.removed == ()
    assert set(contents(store)) == {"away"}


def test_confidence_begins_with_the_source_and_moves_with_what_others_say(
    store: RecallStore, call: Call
) -> None:
    guess = {"source": "agent_inferred"}
    text = "The user lives in a quiet part of Ghent"
    first = call(store, "remember", NS, text, thread_id="one", **guess)
    assert first.confidence == 0.6
    # Again in the same thread it is no second opinion; in another it is: 1 - 0.4 x 0.7 = 0.72.
    assert call(store, "remember", NS, text, thread_id="one", **guess).confidence == 0.6
    assert call(store, "remember", NS, text, thread_id="two", **guess).confidence == 0.72
    assert call(store, "remember", NS, text, thread_id="six", **guess).confidence == 0.75
    # Being recalled says nothing.
    call(store, "recall", NS, "Which part of Ghent does the user live in?")
    assert call(store, "remember", NS, text, source="recalled").confidence == 0.75
    stated = call(store, "remember", NS, text, source="user_stated")
    assert (stated.key, stated.source, stated.confidence) == (first.key, "user_stated", 1.0)


def test_a_contradiction_halves_the_confidence_of_the_older_one(clock: Clock, call: Call) -> None:
    store = RecallStore(LocalStore(), clock=clock)
    store.remember(NS, "The daily standup of the team is at 9:45", key="old", source="user_stated")
    call(
        store, "remember", NS, "The daily standup of the team is at 10:30", source="agent_inferred"
    )
    assert contents(store)["old"]["confidence"] == 1.0
    call(store, "remember", NS, "The daily standup of the team is at 10:15", source="user_stated")
    assert contents(store)["old"]["confidence"] == 0.5


def test_a_policy_may_ask_for_confidence(store: RecallStore, call: Call, clock: Clock) -> None:
    text = "The user works as a nurse at UMC"
    store.remember(NS, text, key="job", source="agent_inferred")
    asked = "Where does the user work as a nurse?"
    sure = RecallPolicy.default(min_confidence=0.5)
    assert [one.key for one in call(store, "recall", NS, asked, policy=sure).memories] == ["job"]
    clock.turn(days=21)
    recall = call(store, "recall", NS, asked, policy=sure)
    assert [(drop.gate, drop.reason) for drop in recall.dropped] == [
        ("confidence", "confidence 0.45 is below 0.5")
    ]
    store.confirm(NS, "job")
    assert call(store, "recall", NS, asked, policy=sure).memories


def test_several_memories_are_confirmed_at_once_or_none(store: RecallStore, call: Call) -> None:
    for key in ("a", "b"):
        store.remember(NS, f"The user may like tea {key}", key=key, source="agent_inferred")
    with pytest.raises(InputError, match="No memory 'c'"):
        call(store, "confirm", NS, ["a", "c"])
    assert contents(store)["a"]["confidence"] == 0.6
    confirmed = call(store, "confirm", NS, ["a", "b", "a"])
    assert [(one.key, one.confidence) for one in confirmed] == [("a", 1.0), ("b", 1.0)]


def test_what_is_put_without_a_source_gets_the_one_that_was_chosen(
    base: BaseStore, call: Call
) -> None:
    store = RecallStore(base, writing=Writing(default_source="agent_inferred"))
    call(store, "put", NS, "a", {"content": "The user likes tea"})
    call(store, "batch", [PutOp(NS, "b", {"kind": "Memory", "content": {"content": "Likes jazz"}})])
    call(store, "put", NS, "c", {"content": "I like rain", "source": "user_stated"})
    call(store, "put", NS, "d", {"count": 3})
    found = {key: value.get("source") for key, value in contents(store).items()}
    assert found == {"a": "agent_inferred", "b": "agent_inferred", "c": "user_stated", "d": None}
    assert call(store, "remember", NS, "The user owns a kayak").source == "agent_inferred"
    with pytest.raises(ConfigurationError, match="default_source must be one of"):
        Writing(default_source="gossip")  # type: ignore[arg-type]


def test_near_duplicates_become_one_with_the_provenance_of_both(
    store: RecallStore, call: Call, clock: Clock
) -> None:
    store.remember(NS, SEATS, key="inferred", source="agent_inferred", tags=["a"])
    clock.turn(days=1)
    store.remember(NS, f"{SEATS}.", key="stated", source="user_stated", tags=["b"], confidence=0.9)
    store.remember((*NS, "work"), SEATS, key="elsewhere")
    store.feedback(NS, "inferred")
    for _ in range(2):
        clock.turn(minutes=5)
        call(store, "recall", NS, "aisle seats on flights?", record=True)
    uses = sum(
        store._ledger._current.get((NS, key), Usage()).uses for key in ("inferred", "stated")
    )
    report = call(store, "sweep", NS, apply=True)
    assert told(report)[-1] == ("merge", "inferred")
    assert report.rows[-1].reason == "says the same as stated"
    assert set(contents(store)) == {"stated", "elsewhere"}
    kept = contents(store)["stated"]
    assert (kept["source"], kept["confidence"], kept["tags"]) == ("user_stated", 0.9, ["b", "a"])
    assert kept["written_at"] == START.isoformat()
    usage = store._ledger._current.get((NS, "stated"), Usage())
    assert (usage.uses, usage.merit) == (uses, 1)
    assert store._ledger._current.get((NS, "inferred"), Usage()) == Usage()


def test_many_copies_become_one(store: RecallStore, call: Call) -> None:
    for i in range(6):
        store.remember(NS, SEATS, key=str(i), tags=[str(i)])
    report = call(store, "sweep", NS, apply=True)
    assert [action for action, _ in told(report)] == ["merge"] * 5
    (kept,) = contents(store).values()
    assert sorted(kept["tags"]) == ["0", "1", "2", "3", "4", "5"]
    assert call(store, "sweep", NS, apply=True).rows == ()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({}, {"text": "I prefer window seats on flights"}),
        ({}, {"speaker": "Bob"}),
        ({}, {"kind": "episodic"}),
        ({}, {"valid_from": START + 9 * DAY}),
        ({"text": "Ada owes Bob 5 euros"}, {"text": "Bob owes Ada 5 euros"}),
        ({"text": "I like tea"}, {"text": "I don't like tea"}),
    ],
    ids=repr,
)
def test_what_differs_is_not_merged(
    store: RecallStore, one: dict[str, Any], other: dict[str, Any]
) -> None:
    for key, fields in (("a", one), ("b", other)):
        given = {"text": SEATS, **fields}
        store.remember(NS, given.pop("text"), key=key, **given)
    assert store.sweep(NS, steps=["merge"]).rows == ()


def test_what_is_out_of_force_is_neither_merged_nor_kept_for_it(
    base: BaseStore, clock: Clock, call: Call
) -> None:
    def guard(text: str) -> Verdict:
        return Verdict("quarantine", ("odd",)) if "odd" in text else Verdict()

    store = RecallStore(base, guard=guard, clock=clock)
    store.remember(NS, "We meet in Oslo", key="old")
    store.remember(NS, "We meet in Rome", key="rome", supersedes=["old"])
    store.put(NS, "older", {"content": "We meet in Oslo", "source": "user_stated"})
    store.put(
        NS,
        "claims",
        {"content": "We meet in Ulm", "supersedes": ["older"], "source": "user_stated"},
    )
    store.remember(NS, "We meet in Oslo", key="again")
    store.put(NS, "odd1", {"content": "odd plans"})
    store.put(NS, "odd2", {"content": "odd plans"})
    assert call(store, "sweep", NS, steps=["merge"]).rows == ()
    assert "again" in {m.key for m in call(store, "recall", NS, "where do we meet?").memories}


def test_a_namespace_is_swept_with_all_below_it_and_nothing_beside_it(
    store: RecallStore, call: Call, clock: Clock
) -> None:
    for namespace in (NS, (*NS, "work"), ("memories", "adam"), ("memories",)):
        store.remember(namespace, "a note that expires", key="-".join(namespace), ttl=DAY)
    clock.turn(days=2)
    call(store, "sweep", NS, apply=True)
    assert set(contents(store)) == {"memories-adam", "memories"}


# --- cold memories and history ----------------------------------------------------------------


def test_cold_memories_are_listed_weakest_first_and_never_deleted(
    base: BaseStore, clock: Clock, call: Call
) -> None:
    policy = RecallPolicy.default(durable_kinds=("procedural",))
    store = RecallStore(base, clock=clock, policy=policy)
    store.remember(NS, "I play jazz records", key="jazz")
    store.remember(NS, SEATS, key="seat")
    store.remember(NS, "Always run the tests", key="rule", kind="procedural")
    store.remember(NS, "Answer in British English", key="style", pinned=True)
    clock.turn(days=10)
    call(store, "search", NS, query="which seats on flights?", limit=1)
    clock.turn(days=40)
    store.remember(NS, "My cat is called Minka", key="new")
    report = call(store, "sweep", NS, apply=True, cold_after=timedelta(days=30))
    assert told(report) == [("cold", "jazz"), ("cold", "seat")]
    # 50 days at a half-life of 30: 0.5^(5/3) = 0.31; the other was used 40 days ago: 0.40.
    assert report.rows[0].reason == "unused for 50 days (strength 0.00, recency 0.31)"
    assert report.rows[1].reason == "unused for 40 days (strength 0.18, recency 0.40)"
    assert len(contents(store)) == 5
    assert report.removed == ()


def test_history_is_purged_as_far_back_as_asked(
    store: RecallStore, call: Call, clock: Clock
) -> None:
    store.remember(NS, "one", key="s")
    for text in ("two", "three"):
        clock.turn(days=10)
        store.correct(NS, "s", text)
    assert call(store, "sweep", NS, apply=True).rows == ()
    report = call(store, "sweep", NS, apply=True, purge_history_before=START + 15 * DAY)
    assert [(row.action, row.id[1], row.reason) for row in report.rows] == [
        ("purge", "s@1", "superseded on 2026-03-14")
    ]
    assert [memory.text for memory in call(store, "history", NS, "s")] == ["three", "two"]
    naive = datetime(2027, 1, 1)
    assert told(call(store, "sweep", NS, purge_history_before=naive)) == [("purge", "s@2")]


# --- bounded, resumable, safe -----------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 3, 7, 100])
def test_a_sweep_in_parts_does_what_one_sweep_does(
    store: RecallStore, call: Call, clock: Clock, limit: int
) -> None:
    names = ["Ada", "Bob", "Cyd", "Dan", "Eve", "Fay", "Gus", "Hal", "Ivy", "Jo"]
    for i, name in enumerate(names):
        source = "agent_inferred" if i % 2 else "user_stated"
        ttl = DAY if i % 3 == 0 else None
        text = f"the desk of {name} is by the window"
        store.remember(NS, text, key=name, source=source, ttl=ttl)
    clock.turn(days=2)
    dry = call(store, "sweep", NS)
    after, rows = None, []
    for _ in range(40):
        report = call(store, "sweep", NS, apply=True, limit=limit, after=after)
        rows += report.rows
        assert report.examined <= limit
        after = report.next
        if after is None:
            break
    assert after is None
    assert sorted(rows) == sorted(dry.rows)
    # What the user said is proposed and stays.
    assert set(contents(store)) == set(names) - {"Dan", "Jo"}


def test_parts_of_a_sweep_neither_repeat_nor_skip_what_was_written_at_the_same_time(
    postgres: str, clock: Clock, embeddings: CountingEmbeddings
) -> None:
    """On Postgres, where a batch has one time and what is written anew is listed first."""
    stated = {f"{n:02}": f"desk {n} is free" for n in range(24)}
    # Every other guess says what was stated, and what was stated is written anew with its tag.
    guessed = {f"{n:02} too": f"desk {n if n % 2 else n + 50} is free" for n in range(12)}
    written = (clock() - timedelta(days=8)).isoformat()
    guess = {
        "source": "agent_inferred",
        "confidence": 0.9,
        "tags": ["guess"],
        "written_at": written,
    }
    index: Any = {"dims": 256, "embed": embeddings, "fields": ["content"]}
    with PostgresStore.from_conn_string(postgres, index=index) as base:
        store = RecallStore(base, clock=clock)
        store.setup()
        for lot, fields in ((stated, {"source": "user_stated"}), (guessed, guess)):
            base.batch([PutOp(NS, key, {"content": lot[key], **fields}) for key in lot])
        after, rows, examined = 0, [], 0
        while after is not None:
            report = store.sweep(NS, apply=True, limit=5, after=after)
            rows += report.rows
            examined += report.examined
            after = report.next
        store.close()
        kept = {item.key: item.value for item in base.search(NS, limit=100)}
    assert examined == 36
    assert sorted(row.id[1] for row in rows if row.action == "decay") == sorted(guessed)
    assert sorted(row.id[1] for row in rows if row.action == "merge") == sorted(guessed)[1::2]
    assert kept.keys() == {*stated, *sorted(guessed)[::2]}
    assert {kept[key]["confidence"] for key in sorted(guessed)[::2]} == {0.9}


def test_a_sweep_that_stops_half_way_loses_nothing(
    store: RecallStore, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.remember(NS, SEATS, key="a", tags=["one"])
    store.remember(NS, SEATS, key="b", tags=["two"])

    def crash(*_: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(type(store._upkeep._keeper), "remove", crash)
        with pytest.raises(KeyboardInterrupt):
            call(store, "sweep", NS, apply=True)
    assert set(contents(store)) == {"a", "b"}
    call(store, "sweep", NS, apply=True)
    (kept,) = contents(store).values()
    assert sorted(kept["tags"]) == ["one", "two"]


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"namespace": ()}, "A namespace must be"),
        ({"namespace": (SIDECAR_ROOT,)}, "is no root for memories"),
        ({"steps": ("explode",)}, "got 'explode'"),
        ({"limit": 0}, "limit must be a whole number of at least 1, got 0"),
        ({"limit": True}, "limit must be"),
        ({"after": -1}, "after must be a whole number of at least 0, got -1"),
        ({"after": "x"}, "after must be"),
        ({"cold_after": 30}, "cold_after must be a timedelta"),
        ({"purge_history_before": "2026"}, "purge_history_before must be a datetime"),
    ],
    ids=repr,
)
def test_a_sweep_refuses_what_cannot_be_meant(
    call: Call, how: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        call(RecallStore(InMemoryStore()), "sweep", **{"namespace": NS, **how})


def test_a_sweep_embeds_nothing_to_find_duplicates(
    base: BaseStore, embeddings: CountingEmbeddings, clock: Clock, call: Call
) -> None:
    store = RecallStore(base, clock=clock)
    for i in range(10):
        store.remember(NS, f"note {i} about tea", key=str(i))
    embeddings.documents.clear()
    embeddings.queries.clear()
    call(store, "sweep", NS)
    assert (embeddings.documents, embeddings.queries) == ([], [])


# --- forgetting a namespace -------------------------------------------------------------------


def test_forgetting_a_namespace_leaves_nothing_of_it_anywhere(
    base: BaseStore, clock: Clock, call: Call
) -> None:
    def guard(text: str) -> Verdict:
        return Verdict("quarantine", ("odd",)) if "odd" in text else Verdict()

    store = RecallStore(base, guard=guard, clock=clock, stored_policies=True)
    for namespace in (NS, (*NS, "work"), ("memories", "adam"), ("memories",)):
        store.remember(namespace, SEATS, key="a")
        store.put(namespace, "odd", {"content": "odd words"})
        store.set_policy(namespace, RecallPolicy.default())
    store.correct(NS, "a", "I prefer window seats on flights")
    call(store, "recall", ("memories",), "which seats on flights?")
    call(store, "flush")
    call(store, "feedback", NS, "a")
    forgotten = call(store, "forget_namespace", NS)
    assert forgotten.namespace == NS
    # Two items in each of the two namespaces, and one of history.
    assert forgotten.count == 5
    assert forgotten.traces >= 4
    assert forgotten.compacted is isinstance(base, LocalStore)
    left = {item.namespace for item in base.search((), limit=1_000)}
    assert left
    assert not any(space[at : at + 2] == NS for space in left for at in range(len(space)))
    assert call(store, "flush") == 0
    assert call(store, "recall", NS, "which seats on flights?").reason == "nothing stored"
    assert call(store, "quarantined", NS) == []
    assert len(call(store, "search", ("memories",), query="seats", limit=10)) == 2
    again = call(store, "forget_namespace", NS)
    assert (again.count, again.traces) == (0, 0)


def test_usage_of_what_was_deleted_long_ago_goes_too(
    base: BaseStore, clock: Clock, call: Call
) -> None:
    store = RecallStore(base, clock=clock)
    store.put(NS, "a", {"content": SEATS})
    call(store, "search", NS, query="seats")
    call(store, "flush")
    call(store, "delete", NS, "a")
    forgotten = call(store, "forget_namespace", NS)
    assert (forgotten.count, forgotten.traces) == (0, 1)
    if isinstance(base, LocalStore):
        assert base.read_usage([(NS, "a")]) == [Usage()]
    else:
        assert base.search((*USAGE, *NS)) == []


def test_usage_in_a_store_of_its_own_is_forgotten_as_well(
    base: BaseStore, clock: Clock, call: Call
) -> None:
    beside = InMemoryStore()
    store = RecallStore(base, clock=clock, caching=Caching(usage_store=beside))
    store.put(NS, "a", {"content": SEATS})
    call(store, "search", NS, query="seats")
    call(store, "flush")
    assert call(store, "forget_namespace", NS).traces == 1
    assert beside.search((), limit=10) == []


def test_more_than_a_page_is_forgotten(call: Call) -> None:
    base = InMemoryStore()
    store = RecallStore(base)
    for i in range(2_100):
        base.put((*NS, str(i % 3)), str(i), {"content": "x"})
    assert call(store, "forget_namespace", NS).count == 2_100
    assert base.search((), limit=10) == []


def test_a_store_that_does_not_delete_is_found_out(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = InMemoryStore()
    base.put(NS, "a", {"content": "x"})
    monkeypatch.setattr(InMemoryStore, "_apply_put_ops", lambda *_: None)
    with pytest.raises(StoreError, match="keeps 1 items"):
        call(RecallStore(base), "forget_namespace", NS)


@pytest.mark.parametrize("namespace", [(), "memories", ("",), (SIDECAR_ROOT, "usage"), ("a.b",)])
def test_only_a_namespace_of_memories_can_be_forgotten(call: Call, namespace: Any) -> None:
    with pytest.raises(InputError):
        call(RecallStore(InMemoryStore()), "forget_namespace", namespace)


def test_sqlite_store_forgets_and_sweeps_too(clock: Clock) -> None:
    with SqliteStore.from_conn_string(":memory:") as base:
        store = RecallStore(base, clock=clock)
        store.setup()
        store.remember(NS, SEATS, key="a", ttl=DAY)
        store.remember(("memories", "ad"), SEATS, key="b")
        clock.turn(days=2)
        assert told(store.sweep(NS, apply=True)) == [("expire", "a")]
        store.remember(NS, SEATS, key="c")
        store.recall(NS, "which seats on flights?")
        store.flush()
        assert store.forget_namespace(NS).count == 1
        assert {item.key for item in base.search((), limit=10)} == {"b"}


def test_no_table_of_postgres_holds_anything_of_a_forgotten_tenant(
    postgres: str, clock: Clock, embeddings: CountingEmbeddings
) -> None:
    def guard(text: str) -> Verdict:
        return Verdict("quarantine", ("odd",)) if "odd" in text else Verdict()

    index: Any = {"dims": 256, "embed": embeddings, "fields": ["content"]}
    with PostgresStore.from_conn_string(postgres, index=index) as base:
        store = RecallStore(base, guard=guard, clock=clock)
        store.setup()
        for tenant in ("zanzibarquux", "other"):
            space = ("memories", tenant)
            store.remember(space, f"{SEATS}, says {tenant}", key=tenant)
            store.put(space, "odd", {"content": f"odd words of {tenant}"})
            store.correct(space, tenant, f"I prefer window seats, says {tenant}")
            store.set_policy(space, RecallPolicy.default())
            assert store.recall(space, "which seats do I prefer?").chosen
        store.flush()
        forgotten = store.forget_namespace(("memories", "zanzibarquux"))
        assert forgotten.count == 3
        with psycopg.connect(postgres) as connection:
            tables = connection.execute(
                "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'"
            ).fetchall()
            dump = "".join(
                str(connection.execute(f'SELECT * FROM "{name}"').fetchall()) for (name,) in tables
            )
        assert "zanzibarquux" not in dump
        assert "other" in dump
        assert store.recall(("memories", "other"), "which seats do I prefer?").chosen


# --- what hangs together ------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["correct", "supersede", "forget"])
def test_what_is_derived_loses_force_with_its_source(clock: Clock, call: Call, way: str) -> None:
    store = RecallStore(LocalStore(), clock=clock)
    asked = "Does the user know the Lyon metro?"
    store.remember(NS, "The user moved to Lyon in May", key="move", source="user_stated")
    clock.turn(minutes=1)
    text = "The user knows the Lyon metro"
    store.remember(NS, text, key="metro", source="agent_inferred", derived_from=["move"])
    assert "metro" in [one.key for one in store.recall(NS, asked).memories]
    clock.turn(minutes=1)
    if way == "correct":
        call(store, "correct", NS, "move", "The user moved to Nice in May")
    elif way == "supersede":
        new = "The user moved to Nice in May"
        call(store, "remember", NS, new, source="user_stated", supersedes=["move"])
    else:
        call(store, "forget", NS, "move")
    assert "metro" not in [one.key for one in call(store, "recall", NS, asked).memories]
    if way == "correct":
        reason = call(store, "explain", NS, "metro", asked).reason
        assert reason == "status: derived from move, which was corrected since"
    # What is derived anew from the corrected one counts.
    if way == "correct":
        clock.turn(minutes=1)
        text = "The user knows the trams of Nice"
        store.remember(NS, text, key="trams", source="agent_inferred", derived_from=["move"])
        found = call(store, "recall", NS, "Does the user know the trams of Nice?").memories
        assert "trams" in [one.key for one in found]


@pytest.mark.parametrize("salience", [0.1, 0.9])
def test_a_copy_of_a_pinned_memory_is_not_shown_beside_it(call: Call, salience: float) -> None:
    store = RecallStore(LocalStore(), writing=Writing(merge_similarity=2))
    name = "The user's name is Ada Lovelace"
    store.remember(NS, f"{name}.", key="copy", salience=salience, source="user_stated")
    store.remember(NS, name, key="pinned", pinned=True, salience=0.5, source="user_stated")
    recall = call(store, "recall", NS, "What is the user's name?")
    assert [one.key for one in recall.memories] == ["pinned"]
    assert [(drop.gate, drop.memory.key) for drop in recall.dropped] == [("duplicate", "copy")]
