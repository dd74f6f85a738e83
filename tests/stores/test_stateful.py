"""Any sequence of operations, sync and async interleaved, against a model that is a few dicts.

SOAK=1 takes thousands of steps on each store.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import threading
from collections.abc import Awaitable, Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar, Protocol

import psycopg
import pytest
from conftest import Clock
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from langgraph.store.base import BaseStore, GetOp, PutOp, SearchItem, SearchOp
from langgraph.store.memory import InMemoryStore
from langgraph.store.postgres import AsyncPostgresStore, PostgresStore

from langmem_recall import Caching
from langmem_recall.embeddings import LocalEmbeddings
from langmem_recall.errors import InputError
from langmem_recall.flows.effects import run
from langmem_recall.guard.judge import Verdict
from langmem_recall.policy import RecallPolicy
from langmem_recall.stores.local.store import LocalStore
from langmem_recall.stores.postgres.schema import (
    BATCHES_TABLE,
    RECORDS_TABLE,
    SETTINGS_TABLE,
    USAGE_TABLE,
)
from langmem_recall.stores.recall_store import RecallStore
from langmem_recall.types import MemoryId, Namespace

SOAK = os.environ.get("SOAK") == "1"
EXAMPLES = {"memory": (20, 120), "local": (15, 120), "postgres": (5, 60), "async postgres": (5, 60)}
"""Runs of each store in `make test` and in `make soak`."""
STEPS = 80 if SOAK else 25
MOST_MERIT = 5
REFRESH_FLOOR_S = 60.0
INDEX: Any = {"dims": 256, "embed": LocalEmbeddings(), "fields": ["content"]}
OPEN = RecallPolicy.default(trigger=0.0, floor=0.0)

SPACES: tuple[Namespace, ...] = (
    *(("u", "1"), ("u", "10"), ("u_", "1"), ("U", "1")),
    *(("u",), ("u", "1", "work"), ("%", "1")),
)
KEYS = ("a", "b", "%", "é")
GOOD = (
    "I prefer aisle seats on long flights",
    "My sister Greta lives in Oslo",
    "The deploy script needs Python 3.11",
    "I drink green tea in the morning",
    "Error E4711 came from the billing service",
    "We meet every Tuesday at the harbour café ☕",
    "Jazz records are kept in the cellar",
    "x",
)
ODD = ("an odd order about tea", "another odd note on flights")
QUERIES = ("which seats on flights?", "tea", "E4711", "Where does Greta live?", "harbour café")

modes = st.sampled_from(("sync", "async"))
spaces = st.sampled_from(SPACES)
keys = st.sampled_from(KEYS)
texts = st.sampled_from(GOOD + ODD)
queries = st.sampled_from(QUERIES)
topics = st.integers(0, 2)
filters = st.none() | st.builds(lambda topic: {"topic": topic}, topics)


def quarantines_odd(text: str) -> Verdict:
    return Verdict("quarantine", ("odd",)) if "odd" in text else Verdict()


class Loop:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()

    def run(self, function: Callable[..., Awaitable[Any]], *args: Any, **kwargs: Any) -> Any:
        async def called() -> Any:
            return await function(*args, **kwargs)

        return asyncio.run_coroutine_threadsafe(called(), self.loop).result()

    def stop(self) -> None:
        async def cancel_rest() -> None:
            rest = asyncio.all_tasks() - {asyncio.current_task()}
            for task in rest:
                task.cancel()
            await asyncio.gather(*rest, return_exceptions=True)

        self.run(cancel_rest)
        self.run(self.loop.shutdown_default_executor)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


# --- the stores -------------------------------------------------------------------------------


class Backend(Protocol):
    """Opens one and the same place again and again."""

    def clear(self) -> None: ...

    def open(self) -> BaseStore: ...

    def close(self) -> None: ...


class Memory:
    """What is in memory stays as long as the object."""

    def clear(self) -> None:
        self.store = InMemoryStore(index=INDEX)

    def open(self) -> BaseStore:
        return self.store

    def close(self) -> None:
        pass


class Local:
    """A file, opened anew."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files = 0

    def clear(self) -> None:
        self.files += 1

    def open(self) -> BaseStore:
        self.store = LocalStore(self.folder / f"{self.files}.db", index=INDEX)
        return self.store

    def close(self) -> None:
        self.store.close()


class Postgres:
    """A database, connected to anew; sync or on the loop."""

    def __init__(self, uri: str, loop: Loop | None) -> None:
        self.uri = uri
        self.loop = loop
        self.pool: Any = {"min_size": 1, "max_size": 4}
        store = RecallStore(self.open())
        loop.run(store.asetup) if loop else store.setup()
        self.close()

    def clear(self) -> None:
        with psycopg.connect(self.uri) as connection:
            # What was decided about an example's memories must not be known in the next one.
            tables = USAGE_TABLE, BATCHES_TABLE, RECORDS_TABLE, SETTINGS_TABLE
            connection.execute(f"TRUNCATE store, store_vectors, {', '.join(tables)}")

    def open(self) -> BaseStore:
        if self.loop is None:
            self.opened: Any = PostgresStore.from_conn_string(
                self.uri, pool_config=self.pool, index=INDEX
            )
            return self.opened.__enter__()
        self.opened = AsyncPostgresStore.from_conn_string(
            self.uri, pool_config=self.pool, index=INDEX
        )
        return self.loop.run(self.opened.__aenter__)

    def close(self) -> None:
        nothing = (None, None, None)
        if self.loop is None:
            self.opened.__exit__(*nothing)
        else:
            self.loop.run(self.opened.__aexit__, *nothing)


# --- the model --------------------------------------------------------------------------------


class Model:
    """What a store with recall is, told as simply as possible."""

    def __init__(self) -> None:
        self.values: dict[MemoryId, dict[str, Any]] = {}
        self.indexed: set[MemoryId] = set()
        self.created: dict[MemoryId, datetime] = {}
        self.approved: dict[MemoryId, str] = {}
        self.formers: dict[MemoryId, str] = {}
        """Keys of the values that barred ones were put over."""
        self.uses: dict[MemoryId, int] = {}
        self.last_used: dict[MemoryId, float] = {}
        self.merits: dict[MemoryId, int] = {}
        self.outcomes: dict[MemoryId, int] = {}

    def put(self, memory_id: MemoryId, value: dict[str, Any], indexed: bool) -> None:
        self.values[memory_id] = value
        self.created.pop(memory_id, None)
        (self.indexed.add if indexed else self.indexed.discard)(memory_id)

    def is_barred(self, memory_id: MemoryId, text: str) -> bool:
        return "odd" in text and self.approved.get(memory_id) != text

    def stand_in(self, memory_id: MemoryId) -> MemoryId | None:
        """What is in force while the value under a key is barred."""
        held, former = self.values.get(memory_id), self.formers.get(memory_id)
        if held is None or former is None or not self.is_barred(memory_id, held["content"]):
            return None
        return memory_id[0], former

    def delete(self, memory_id: MemoryId) -> None:
        self.values.pop(memory_id, None)
        self.created.pop(memory_id, None)
        self.indexed.discard(memory_id)

    def forget(self, ids: set[MemoryId]) -> None:
        for memory_id in ids:
            self.delete(memory_id)
            for kept in (
                self.approved,
                self.formers,
                self.uses,
                self.last_used,
                self.merits,
                self.outcomes,
            ):
                kept.pop(memory_id, None)

    def below(self, prefix: Namespace) -> set[MemoryId]:
        return {one for one in self.values if one[0][: len(prefix)] == prefix}

    def known_below(self, prefix: Namespace) -> set[MemoryId]:
        known = {
            *self.values,
            *self.approved,
            *self.formers,
            *self.uses,
            *self.outcomes,
            *self.merits,
        }
        return {one for one in known if one[0][: len(prefix)] == prefix}

    def matching(self, prefix: Namespace, filter: dict[str, Any] | None) -> set[MemoryId]:
        wanted = (filter or {}).items()
        return {
            one
            for one in self.below(prefix)
            if all(self.values[one].get(name) == held for name, held in wanted)
        }

    def is_visible(self, memory_id: MemoryId, now: datetime) -> bool:
        value = self.values[memory_id]
        until = value.get("valid_until")
        return (
            value.get("status", "active") == "active"
            and (until is None or now < datetime.fromisoformat(until))
            and not self.is_barred(memory_id, value["content"])
        )

    def use(self, ids: set[MemoryId], now: float, floor: float = REFRESH_FLOOR_S) -> None:
        for memory_id in ids:
            last = self.last_used.get(memory_id)
            if last is None or now - last >= floor:
                self.uses[memory_id] = self.uses.get(memory_id, 0) + 1
                self.last_used[memory_id] = now

    def flush(self) -> None:
        for memory_id, steps in self.outcomes.items():
            merit = self.merits.get(memory_id, 0) + steps
            self.merits[memory_id] = max(-MOST_MERIT, min(merit, MOST_MERIT))
        self.outcomes = {}


# --- the machine ------------------------------------------------------------------------------


class Machine(RuleBasedStateMachine):
    """Every rule does the same to the store and to the model, and compares."""

    loop: ClassVar[Loop]
    backend: ClassVar[Backend]
    steps: ClassVar[int]

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.clock = Clock()
        self.backend.clear()
        self.open()

    def open(self) -> None:
        self.store = RecallStore(
            self.backend.open(),
            clock=self.clock,
            guard=quarantines_odd,
            allow_empty_namespace=True,
            caching=Caching(flush_interval=1_000),
        )

    def teardown(self) -> None:
        self.call("async", "close")
        self.backend.close()

    @property
    def now(self) -> float:
        return self.clock().timestamp()

    def call(self, mode: str, name: str, *args: Any, **kwargs: Any) -> Any:
        if mode == "sync":
            return getattr(self.store, name)(*args, **kwargs)
        return self.loop.run(getattr(self.store, f"a{name}"), *args, **kwargs)

    def visible(self, ids: set[MemoryId]) -> set[MemoryId]:
        return {one for one in ids if self.model.is_visible(one, self.clock())}

    def in_force(self, ids: set[MemoryId]) -> set[MemoryId]:
        """What a listing shows: neither barred nor superseded, expired or not."""
        return {
            one
            for one in ids
            if self.model.values[one].get("status", "active") == "active"
            and not self.model.is_barred(one, self.model.values[one]["content"])
        }

    def check_items(self, items: list[SearchItem]) -> set[MemoryId]:
        """No repeats, nothing altered; the ids."""
        ids = [(item.namespace, item.key) for item in items]
        assert len(set(ids)) == len(ids)
        for memory_id, item in zip(ids, items, strict=True):
            assert same(item.value, self.model.values[memory_id])
            assert item.created_at == self.model.created.setdefault(memory_id, item.created_at)
        return set(ids)

    # --- writing ------------------------------------------------------------------------------

    @rule(mode=modes, space=spaces, key=keys, text=texts, topic=topics, is_indexed=st.booleans())
    def put(
        self, mode: str, space: Namespace, key: str, text: str, topic: int, is_indexed: bool
    ) -> None:
        value = {"content": text, "topic": topic}
        before = self.model.values.get((space, key))
        stand_in = self.model.stand_in((space, key))
        self.call(mode, "put", space, key, value, None if is_indexed else False)
        self.check_former((space, key), text, before, stand_in)
        self.model.put((space, key), value, is_indexed)

    def check_former(
        self,
        memory_id: MemoryId,
        text: str,
        before: dict[str, Any] | None,
        stand_in: MemoryId | None,
    ) -> None:
        """A barred put leaves the former value in force, any other retires what stood in."""
        space, key = memory_id
        was_in_force = (
            before is not None
            and before.get("status", "active") == "active"
            and not self.model.is_barred(memory_id, before["content"])
        )
        if not self.model.is_barred(memory_id, text):
            self.retire(stand_in)
            return
        self.model.approved.pop(memory_id, None)
        if was_in_force:
            # Beyond what is noted as an older value, which may be gone.
            noted = {*before.get("supersedes", ()), self.model.formers.get(memory_id, "@0")}
            number = 1 + max(int(one.rpartition("@")[2]) for one in noted)
            while (space, f"{key}@{number}") in self.model.values:
                number += 1
            value = self.store.get(space, f"{key}@{number}").value
            assert value["content"] == before["content"]
            self.model.put((space, f"{key}@{number}"), value, True)
            self.model.approved.pop((space, f"{key}@{number}"), None)
            self.model.formers[memory_id] = f"{key}@{number}"

    def retire(self, stand_in: MemoryId | None) -> None:
        if stand_in is not None and stand_in in self.model.values:
            value = self.store.get(*stand_in).value
            assert value["status"] == "superseded"
            self.model.put(stand_in, value, False)

    @rule(mode=modes, space=spaces, key=keys)
    def delete(self, mode: str, space: Namespace, key: str) -> None:
        stand_in = self.model.stand_in((space, key))
        self.call(mode, "delete", space, key)
        self.forget_stand_in((space, key), stand_in)
        self.model.delete((space, key))

    def forget_stand_in(self, memory_id: MemoryId, stand_in: MemoryId | None) -> None:
        if stand_in is not None:
            assert self.store.get(*stand_in) is None
            self.model.forget({stand_in})

    @rule(
        mode=modes,
        space=spaces,
        key=keys,
        text=texts,
        ttl=st.none() | st.just(timedelta(hours=2, seconds=7)),
    )
    def remember(
        self, mode: str, space: Namespace, key: str, text: str, ttl: timedelta | None
    ) -> None:
        stand_in = self.model.stand_in((space, key))
        memory = self.call(mode, "remember", space, text, key=key, ttl=ttl)
        assert memory.value["content"] == text
        is_active = "odd" not in text
        assert memory.status == ("active" if is_active else "quarantined")
        if is_active or (space, key) not in self.model.values:
            assert memory.id == (space, key)
        else:
            # It waits beside what it would replace.
            assert memory.key.startswith(f"{key}?")
            assert memory.id not in self.model.values
        if is_active:
            self.retire(stand_in)
        self.model.put(memory.id, dict(memory.value), is_active)

    @rule(mode=modes, space=spaces, text=texts)
    def remember_under_any_key(self, mode: str, space: Namespace, text: str) -> None:
        memory = self.call(mode, "remember", space, text)
        assert memory.namespace == space
        assert memory.text == text
        if memory.id in self.model.values:
            assert self.model.values[memory.id]["content"] == text
            assert self.visible({memory.id})
            self.model.use({memory.id}, self.now, floor=0.0)
            if not same(memory.value, self.model.values[memory.id]):
                self.model.put(memory.id, dict(memory.value), True)
        else:
            self.model.put(memory.id, dict(memory.value), memory.status == "active")

    @rule(mode=modes, space=spaces, key=keys, text=texts)
    def correct(self, mode: str, space: Namespace, key: str, text: str) -> None:
        held = self.model.values.get((space, key))
        if held is None:
            with pytest.raises(InputError):
                self.call(mode, "correct", space, key, text)
            return
        stand_in = self.model.stand_in((space, key))
        memory = self.call(mode, "correct", space, key, text)
        if "odd" in text:
            assert memory.status == "quarantined"
            assert memory.id not in self.model.values
            self.model.put(memory.id, dict(memory.value), False)
            return
        self.retire(stand_in)
        (former,) = memory.supersedes
        assert (space, former) not in self.model.values
        value = self.store.get(space, former).value
        assert value["content"] == held["content"]
        assert value["status"] in ("superseded", held.get("status"))
        self.model.put((space, former), value, False)
        self.model.put((space, key), dict(memory.value), True)

    @rule(mode=modes, space=spaces, key=keys)
    def approve(self, mode: str, space: Namespace, key: str) -> None:
        memory_id = (space, key)
        if memory_id not in self.model.values:
            with pytest.raises(InputError):
                self.call(mode, "approve", space, key)
            return
        held, stand_in = self.model.values[memory_id], self.model.stand_in(memory_id)
        memory = self.call(mode, "approve", space, key)
        self.retire(stand_in)
        if "odd" in held["content"]:
            self.model.approved[memory_id] = held["content"]
        if held.get("status") == "quarantined":
            self.model.put(memory_id, dict(memory.value), True)

    @rule(mode=modes, space=spaces, key=keys)
    def forget(self, mode: str, space: Namespace, key: str) -> None:
        gone: set[MemoryId] = set()
        due = [key]
        while due:
            memory_id = (space, due.pop())
            if memory_id in self.model.values and memory_id not in gone:
                gone.add(memory_id)
                due += self.model.values[memory_id].get("supersedes", [])
                due += [self.model.formers[memory_id]] if memory_id in self.model.formers else []
        assert self.call(mode, "forget", space, key) is bool(gone)
        self.model.forget(gone)

    @rule(mode=modes, space=spaces)
    def forget_namespace(self, mode: str, space: Namespace) -> None:
        forgotten = self.call(mode, "forget_namespace", space)
        assert forgotten.count == len(self.model.below(space))
        self.model.forget(self.model.known_below(space))

    @rule(
        mode=modes,
        puts=st.lists(
            st.tuples(spaces, keys, texts), max_size=3, unique_by=lambda put: put[2]
        ).filter(lambda puts: len({put[:2] for put in puts}) == len(puts)),
        gone=st.tuples(spaces, keys),
        got=st.tuples(spaces, keys),
        prefix=spaces,
        query=queries,
    )
    def batch(
        self,
        mode: str,
        puts: list[tuple[Namespace, str, str]],
        gone: MemoryId,
        got: MemoryId,
        prefix: Namespace,
        query: str,
    ) -> None:
        """Reads see what was there before the batch."""
        writes = [PutOp(space, key, {"content": text, "topic": 1}) for space, key, text in puts]
        if gone not in {(op.namespace, op.key) for op in writes}:
            writes.append(PutOp(*gone, None))
        reads = [GetOp(*got), SearchOp(prefix, limit=100), SearchOp(prefix, query=query, limit=100)]
        item, listed, found = self.call(mode, "batch", [*writes, *reads])[len(writes) :]
        assert (item.value if item else None) == self.model.values.get(got)
        assert self.check_items(listed) == self.in_force(self.model.below(prefix))
        ids = self.check_items(found)
        assert ids <= self.visible(self.model.below(prefix))
        self.model.use(ids, self.now)
        for op in writes:
            memory_id = (op.namespace, op.key)
            before, stand_in = self.model.values.get(memory_id), self.model.stand_in(memory_id)
            if op.value is None:
                self.forget_stand_in(memory_id, stand_in)
                self.model.delete(memory_id)
            else:
                self.check_former(memory_id, op.value["content"], before, stand_in)
                self.model.put(memory_id, dict(op.value), True)

    # --- reading ------------------------------------------------------------------------------

    @rule(mode=modes, space=spaces, key=keys)
    def get(self, mode: str, space: Namespace, key: str) -> None:
        item = self.call(mode, "get", space, key)
        assert (item is None) == ((space, key) not in self.model.values)
        self.check_items([item] if item else [])

    @rule(mode=modes, prefix=spaces | st.just(()), query=queries, filter=filters)
    def search(
        self, mode: str, prefix: Namespace, query: str, filter: dict[str, Any] | None
    ) -> None:
        items = self.call(mode, "search", prefix, query=query, filter=filter, limit=100)
        ids = self.check_items(items)
        visible = self.visible(self.model.matching(prefix, filter))
        assert ids <= visible
        assert visible & self.model.indexed <= ids
        assert all(math.isfinite(item.score) for item in items if item.score is not None)
        self.model.use(ids, self.now)

    @rule(mode=modes, prefix=spaces, query=st.none() | queries, size=st.integers(1, 4))
    def read_pages(self, mode: str, prefix: Namespace, query: str | None, size: int) -> None:
        pages: list[SearchItem] = []
        if query is None and isinstance(self.store.inner, PostgresStore | AsyncPostgresStore):
            # Its listing leaves the order of what was written at one time open, so pages of it may
            # repeat a memory and miss another.
            size = 100
        with self.store.quiet():
            whole = self.check_items(self.store.search(prefix, query=query, limit=100))
            while True:
                page = self.call(mode, "search", prefix, query=query, limit=size, offset=len(pages))
                assert len(page) <= size
                pages += page
                if not page:
                    break
        ids = self.check_items(pages)
        assert ids == whole
        if query is None:
            assert ids == self.in_force(self.model.below(prefix))

    @rule(mode=modes, prefix=st.just(()) | spaces, depth=st.none() | st.integers(1, 3))
    def list_namespaces(self, mode: str, prefix: Namespace, depth: int | None) -> None:
        if "%" in prefix:
            return
        found = self.call(mode, "list_namespaces", prefix=prefix or None, max_depth=depth)
        assert len(set(found)) == len(found)
        # An InMemoryStore lists a namespace that was only asked for, too.
        asked = {space[:depth] for space in SPACES} if isinstance(self.backend, Memory) else set()
        held = {space[:depth] for space, _ in self.model.below(prefix)}
        assert held <= set(found) <= held | asked

    @rule(
        mode=modes,
        prefixes=st.lists(spaces, min_size=1, max_size=2, unique=True),
        query=queries,
        policy=st.sampled_from([None, OPEN]),
    )
    def recall(
        self, mode: str, prefixes: list[Namespace], query: str, policy: RecallPolicy | None
    ) -> None:
        recall = self.call(mode, "recall", prefixes, query, policy=policy)
        ids = {memory.id for memory in recall.memories}
        assert ids <= self.visible({one for prefix in prefixes for one in self.model.below(prefix)})
        assert all(math.isfinite(scored.score) for scored in recall.chosen)
        assert recall.trace.degraded == ()
        self.model.use(ids, self.now)

    @rule(mode=modes, prefix=spaces, query=queries)
    def read_quietly(self, mode: str, prefix: Namespace, query: str) -> None:
        """Neither counted nor seen by a later flush."""

        async def reads() -> None:
            with self.store.quiet():
                await self.store.asearch(prefix, query=query)
                await self.store.arecall(prefix, query, policy=OPEN)

        if mode == "async":
            self.loop.run(reads)
            return
        with self.store.quiet():
            self.store.search(prefix, query=query)
            self.store.recall(prefix, query, policy=OPEN)

    @rule(prefixes=st.lists(spaces, min_size=1, max_size=3), query=queries)
    def read_at_once(self, prefixes: list[Namespace], query: str) -> None:
        """Threads and tasks together: a memory counts once, whoever is first."""

        async def together() -> list[Any]:
            reads = [self.store.asearch(prefix, query=query) for prefix in prefixes]
            *found, _ = await asyncio.gather(*reads, self.store.aflush())
            return found

        pending = asyncio.run_coroutine_threadsafe(together(), self.loop.loop)
        found = [self.store.search(prefix, query=query) for prefix in prefixes]
        self.store.flush()
        found += pending.result()
        self.model.flush()
        for page in found:
            ids = self.check_items(page)
            assert ids <= self.visible(set(self.model.values))
            self.model.use(ids, self.now)

    @rule(mode=modes, space=spaces, key=keys, good=st.booleans())
    def feedback(self, mode: str, space: Namespace, key: str, good: bool) -> None:
        self.call(mode, "feedback", space, key, good)
        steps = self.model.outcomes.get((space, key), 0)
        self.model.outcomes[space, key] = steps + (1 if good else -1)

    # --- time and life ------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([1.0, 31.0, 61.0, 3_600.0, 8 * 86_400.0]))
    def wait(self, seconds: float) -> None:
        """Past the age of an index, past the refresh floor, past a memory's end."""
        self.clock.turn(seconds=seconds)

    @rule(mode=modes)
    def flush(self, mode: str) -> None:
        self.call(mode, "flush")
        self.model.flush()
        self.check_usage()

    @rule(mode=modes)
    @precondition(lambda self: self.model.values)
    def reopen(self, mode: str) -> None:
        self.call(mode, "close")
        self.backend.close()
        self.open()
        self.model.flush()
        self.check_usage()

    def check_usage(self) -> None:
        """What is kept is what was used, to the last count."""
        ids = sorted({*self.model.uses, *self.model.merits, *self.model.values})
        for memory_id, usage in zip(
            ids, run(self.store._sidecar.usage.read(ids), self.store._host), strict=True
        ):
            told = (usage.uses, usage.last_used, usage.merit)
            assert told == (
                self.model.uses.get(memory_id, 0),
                self.model.last_used.get(memory_id),
                self.model.merits.get(memory_id, 0),
            ), memory_id

    @invariant()
    def holds_what_the_model_holds(self) -> None:
        """And nothing of the side-car is seen from the root."""
        type(self).steps += 1
        found = self.check_items(self.store.search((), limit=1_000))
        assert found == self.in_force(set(self.model.values))
        every = ("quarantined", "superseded")
        found = self.check_items(self.store.search((), limit=1_000, include=every))
        assert found == set(self.model.values)


def same(value: Any, other: Any) -> bool:
    return json.dumps(value, sort_keys=True) == json.dumps(other, sort_keys=True)


@pytest.fixture(scope="module")
def loop() -> Iterator[Loop]:
    made = Loop()
    yield made
    made.stop()


@pytest.fixture(params=list(EXAMPLES))
def backend(request: pytest.FixtureRequest, loop: Loop, tmp_path: Path) -> Iterator[Backend]:
    if request.param == "memory":
        yield Memory()
    elif request.param == "local":
        yield Local(tmp_path)
    else:
        uri = request.getfixturevalue("postgres")
        yield Postgres(uri, loop if request.param == "async postgres" else None)


def test_the_store_does_what_the_model_says(
    backend: Backend, loop: Loop, request: pytest.FixtureRequest, pytestconfig: pytest.Config
) -> None:
    name = request.node.callspec.params["backend"]
    machine = type("Machine", (Machine,), {"backend": backend, "loop": loop, "steps": 0})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=EXAMPLES[name][SOAK],
            stateful_step_count=STEPS,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
    assert machine.steps > 100
    pytestconfig.get_terminal_writer().line(f"{name}: {machine.steps:,} steps")
