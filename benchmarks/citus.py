"""Recall on a cluster against one Postgres: equal answers, cost, a stopped worker, a reindex.

Run `python benchmarks/citus.py URI` with the address of an empty database on the coordinator, where
CREATE EXTENSION citus and CREATE EXTENSION vector have been run. The same memories go there and to
a Postgres of our own (or `--single URI`); both sides take turns with the same cues. With
`--stop COMMAND --start COMMAND` a worker is stopped and started again in between; the commands are
run by a shell. Where there is no Citus, or no URI, it says so and compares two plain Postgres
databases: then only that it runs to its end means anything.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import psycopg
from postgres import DIMS, Vectors, cue, fill, server, timed
from stores import use_one_thread

from langmem_recall import Caching, RecallPolicy, RecallStore
from langmem_recall.flows.effects import Host, run
from langmem_recall.stores.backend import backend_of, reindex
from langmem_recall.stores.postgres.citus import CitusStore
from langmem_recall.stores.postgres.database import HAS_CITUS
from langmem_recall.stores.postgres.schema import USAGE_TABLE

POLICY = RecallPolicy.default().replace(refresh_floor=0.0)
PATIENCE_S = 120.0
"""Seconds that a worker may take to come back."""
MOST_PROBED = 20
"""Tenants of a dead worker that are tried: a host that is gone may take seconds to say so."""


class OtherVectors(Vectors):
    """The same vectors under another name, for a reindex."""

    identity = "other vectors"


def home_of(tenant: int) -> tuple[str, str]:
    """The namespace of a tenant."""
    return "bench", f"user{tenant}"


@contextmanager
def opened(uri: str, vectors: Vectors) -> Iterator[RecallStore]:
    """A store whose uses are written only when it is told so."""
    index: Any = {"dims": DIMS, "embed": vectors, "fields": ["content"]}
    with CitusStore.from_conn_string(uri, index=index) as inner:
        yield anew(inner)


def anew(inner: Any) -> RecallStore:
    """As a process that has read nothing yet has it."""
    return RecallStore(inner, policy=POLICY, caching=Caching(flush_interval=10**6, nested=False))


def misplaced(store: RecallStore) -> list[str]:
    """What is wrong with where the tables lie."""
    inner = store.inner
    found = run(backend_of(inner).misplaced(), Host(inner, inner))
    return ["store is not distributed"] if found is None else found


def seen(store: RecallStore, tenant: int, text: str) -> tuple[list[str], list[float]]:
    """What a search and a recall answer: names, and scores."""
    page = store.search(home_of(tenant), query=text, limit=10)
    recall = store.recall(home_of(tenant), text)
    names = [*(item.key for item in page), *(one.memory.key for one in recall.chosen)]
    scores = [*(item.score or 0.0 for item in page), *(one.score for one in recall.chosen)]
    return [*names, *recall.trace.degraded], scores


def is_alike(one: tuple[list[str], list[float]], other: tuple[list[str], list[float]]) -> bool:
    """Whether answers are the same; the memories were written seconds apart, so scores nearly."""
    return one[0] == other[0] and bool(np.allclose(one[1], other[1], atol=1e-4))


def compare(cluster: RecallStore, single: RecallStore, tenants: int, rounds: int) -> None:
    """Print whether both answer alike, and what the cluster costs against the one server."""
    unequal = 0
    for n in range(rounds):
        tenant, text = 7 * n % tenants, cue(n % 500)
        unequal += not is_alike(seen(cluster, tenant, text), seen(single, tenant, text))
    for store in (cluster, single):
        store.flush()
    print(f"answers that differ from those of one Postgres: {unequal} of {rounds}")

    def flush(store: RecallStore, tenant: int, n: int) -> float:
        keys = [f"m{tenant * EACH + i}" for i in range(5)]
        store.feedback(home_of(tenant), keys, good=n % 2 == 0)
        return timed(store.flush)

    works: dict[str, Callable[[RecallStore, int, int], float]] = {
        "warm search": lambda store, tenant, n: timed(
            lambda: store.search(home_of(tenant), query=cue(n % 500), limit=10)
        ),
        "warm recall": lambda store, tenant, n: timed(
            lambda: store.recall(home_of(tenant), cue(n % 500), record=False)
        ),
        "first recall": lambda store, tenant, n: timed(
            lambda: anew(store.inner).recall(home_of(tenant), cue(n % 500), record=False)
        ),
        "flush of one tenant": flush,
    }
    print(f"{'ms, p50':>20} {'cluster':>9} {'single':>9} {'ratio':>7} {'paired':>7}")
    for name, work in works.items():
        took: dict[str, list[float]] = {"cluster": [], "single": []}
        sides = {"cluster": cluster, "single": single}
        for n in range(-5, rounds):
            tenant = 7 * n % tenants
            for side in sorted(sides, reverse=n % 2 == 0):
                took[side].append(work(sides[side], tenant, n))
        ours, theirs = took["cluster"][5:], took["single"][5:]
        paired = statistics.median(o / t for o, t in zip(ours, theirs, strict=True))
        middle = [statistics.median(ours), statistics.median(theirs)]
        ratio = f"{middle[0] / middle[1]:>6.2f}x {paired:>6.2f}x"
        print(f"{name:>20} {middle[0]:>9.2f} {middle[1]:>9.2f} {ratio}")
        for store in (cluster, single):
            store.flush()


def count_commands(cluster: RecallStore) -> None:
    """Print how many commands the coordinator sends for one warm look."""
    said: list[str] = []
    connection: Any = cluster.inner.conn  # type: ignore[attr-defined]
    cluster.recall(home_of(1), cue(1), record=False)
    connection.add_notice_handler(lambda notice: said.append(notice.message_primary or ""))
    connection.execute("SET citus.log_remote_commands = on")
    connection.execute("SET client_min_messages = notice")
    cluster.recall(home_of(1), cue(2), record=False)
    connection.execute("SET citus.log_remote_commands = off")
    sent = [line for line in said if line.startswith("issuing")]
    print(f"remote commands of one warm recall: {len(sent)}")
    for line in sent[1:]:
        print(f"    {' '.join(line.split())[:110]}")


def servers_of(uri: str, tenants: int) -> dict[int, tuple[str, int]]:
    """The worker that each tenant's shard is on."""
    sql = """
SELECT n.nodename, n.nodeport FROM pg_dist_placement p JOIN pg_dist_node n USING (groupid)
WHERE n.noderole = 'primary'
AND p.shardid = get_shard_id_for_distribution_column('store', %s::text)"""
    with psycopg.connect(uri, autocommit=True) as database:
        found = {}
        for tenant in range(tenants):
            row = database.execute(sql, (".".join(home_of(tenant)),)).fetchone()
            if row is not None:
                found[tenant] = (str(row[0]), int(row[1]))
    return found


def down_of(uri: str, addresses: set[tuple[str, int]]) -> set[tuple[str, int]]:
    """The workers that the coordinator cannot reach; only it may know their names."""
    sql = "SELECT citus_check_connection_to_node(%s::text, %s::integer)"
    with psycopg.connect(uri, autocommit=True) as database:
        answers = {one: database.execute(sql, one).fetchone() for one in addresses}
    return {one for one, answer in answers.items() if answer is None or not answer[0]}


def uses_of(uri: str) -> int:
    """All uses that were counted."""
    with psycopg.connect(uri, autocommit=True) as database:
        row = database.execute(
            f"SELECT coalesce(sum(uses), 0)::bigint FROM {USAGE_TABLE}"
        ).fetchone()
    return int(row[0]) if row else 0


def fine(store: RecallStore, tenants: Sequence[int]) -> tuple[int, int]:
    """How many turns of these tenants went well, and how many uses that makes."""
    good = used = 0
    for n, tenant in enumerate(tenants):
        try:
            recall = store.recall(home_of(tenant), cue(n % 500))
        except Exception:
            continue
        good += not recall.trace.degraded
        used += len(recall.chosen)
    return good, used


def lose_a_worker(uri: str, store: RecallStore, tenants: int, stop: str, start: str) -> None:
    """Print what becomes of tenants on living and on dead shards, then and afterwards."""
    homes = servers_of(uri, tenants)
    before = uses_of(uri)
    _, used = fine(store, range(tenants))
    store.flush()
    subprocess.run(stop, shell=True, check=True)
    down = down_of(uri, set(homes.values()))
    dead = [tenant for tenant in homes if homes[tenant] in down]
    living = [tenant for tenant in homes if homes[tenant] not in down]
    print(f"stopped {len(down)} of {len(set(homes.values()))} workers: {len(dead)} tenants on them")
    dead = dead[:MOST_PROBED]
    good, more = fine(store, living)
    used += more
    print(f"turns of living shards that went well: {good} of {len(living)}")
    good, more = fine(anew(store.inner), living)
    print(f"the same in a process that starts now: {good} of {len(living)}")
    good, more = fine(store, dead)
    used += more
    print(f"turns of dead shards that went well: {good} of {len(dead)}")
    for tenant in dead:
        store.feedback(home_of(tenant), f"m{tenant * EACH}")
    try:
        store.flush()
        print("a flush did not notice that a worker is gone")
    except Exception as fault:
        print(f"a flush says {type(fault).__name__}; the rest was written")
    subprocess.run(start, shell=True, check=True)
    began = time.monotonic()
    while time.monotonic() - began < PATIENCE_S:
        good, more = fine(store, dead)
        used += more
        if good == len(dead):
            break
        time.sleep(1.0)
    took = time.monotonic() - began
    print(f"back by themselves: {good} of {len(dead)}, {took:.1f} s after the start")
    store.flush()
    counted = uses_of(uri) - before
    print(f"uses counted: {counted} of {used} of recalls that gave an answer")


def embed_again(uri: str, vectors: Vectors) -> None:
    """Print whether a reindex leaves every table where it was."""
    other = OtherVectors(len(vectors.matrix))
    with opened(uri, other) as store:
        began = time.monotonic()
        made = reindex(store, batch=2_000)
        print(f"reindex: {made:,} vectors in {time.monotonic() - began:.0f} s", end="; ")
        print(f"tables out of place: {misplaced(store) or 'none'}")
        store.forget(home_of(0), "m0")
        with psycopg.connect(uri, autocommit=True) as database:
            left = database.execute(
                "SELECT count(*) FROM store_vectors WHERE key = 'm0'"
            ).fetchone()
        print(f"vectors of a forgotten memory: {left[0] if left else '?'}")
        store.close()


EACH = 500


def main() -> None:
    """Parse the command line and print the report."""
    use_one_thread()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("uri", nargs="?", help="an empty database on the coordinator")
    parser.add_argument("--single", help="an empty database of one Postgres; else one of our own")
    parser.add_argument("--tenants", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--stop", help="a command that stops one worker")
    parser.add_argument("--start", help="the command that starts it again")
    chosen = parser.parse_args()
    vectors = Vectors(chosen.tenants * EACH)
    homes = [".".join(home_of(n)) for n in range(chosen.tenants)]
    with ExitStack() as stack:
        fresh = None if chosen.uri and chosen.single else stack.enter_context(server())
        cluster_uri = chosen.uri or (fresh and fresh("no_cluster"))
        single_uri = chosen.single or (fresh and fresh("single"))
        with psycopg.connect(cluster_uri, autocommit=True) as database:
            row = database.execute(f"SELECT {HAS_CITUS}").fetchone()
        has_citus = bool(row and row[0])
        if not has_citus:
            print("NO CITUS HERE: both sides are plain Postgres, ratios say nothing of a cluster")
        with opened(cluster_uri, vectors) as store:
            took = timed(lambda: store.setup(distribute=has_citus or None)) / 1_000
            again = timed(lambda: store.setup(distribute=has_citus or None)) / 1_000
            print(f"set up in {took:.1f} s, again in {again:.2f} s", end="; ")
            print(f"tables out of place: {misplaced(store) or 'none'}")
        for uri in (cluster_uri, single_uri):
            fill(uri, vectors, homes, EACH)
        print(f"{chosen.tenants} tenants x {EACH} memories, {DIMS} dimensions")
        cluster = stack.enter_context(opened(cluster_uri, vectors))
        single = stack.enter_context(opened(single_uri, vectors))
        compare(cluster, single, chosen.tenants, chosen.rounds)
        if has_citus:
            count_commands(cluster)
        if has_citus and chosen.stop and chosen.start:
            lose_a_worker(cluster_uri, cluster, chosen.tenants, chosen.stop, chosen.start)
        else:
            print("no worker was stopped: that needs Citus, --stop and --start")
        cluster.close()
        single.close()
        embed_again(cluster_uri, vectors)


if __name__ == "__main__":
    main()
