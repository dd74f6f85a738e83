"""Several processes on one file. SOAK=1 runs the long versions."""

import inspect
import os
import random
import select
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from langchain_core.embeddings import Embeddings

from langmem_recall.ranking.catalog import DATE_TERMS
from langmem_recall.stores.local.store import LocalStore
from langmem_recall.text.tokens import tokens
from langmem_recall.types import UsageDelta

SOAK = os.environ.get("SOAK") == "1"
KILLS = 200 if SOAK else 5
ADDITIONS = 500 if SOAK else 50
ROOT = Path(__file__).parents[3]
NS = ("users", "ann")


class Lengths(Embeddings):
    """The same in every process, without a model to load."""

    identity = "lengths"

    def embed_documents(self, texts):
        return [[float(len(text)), float(sum(map(ord, text)) % 97), 1.0] for text in texts]

    def embed_query(self, text):
        return self.embed_documents([text])[0]


COMMON = f"""
import sys
from langchain_core.embeddings import Embeddings
from langgraph.store.base import PutOp
from langmem_recall.stores.local.store import LocalStore
from langmem_recall.types import UsageDelta

NS = {NS!r}

{inspect.getsource(Lengths)}
"""

# Each batch writes four memories, rewrites one and deletes one; it is acknowledged when durable.
WRITER = """
path, run = sys.argv[1], int(sys.argv[2])
with LocalStore(path, embeddings=Lengths()) as store:
    for batch in range(10**6):
        name = f"{run}-{batch}"
        puts = [PutOp(NS, f"{name}-{n}", {"content": f"word{n} of {name}"}) for n in range(4)]
        puts.append(PutOp(NS, "counter", {"content": f"counter {name}"}))
        puts.append(PutOp(NS, f"{run}-{batch - 1}-0", None))
        store.batch(puts)
        print(batch, flush=True)
"""

ADDER = """
path, count = sys.argv[1], int(sys.argv[2])
with LocalStore(path, embeddings=Lengths()) as store:
    sys.stdin.readline()
    for n in range(count):
        touches = {(NS, "shared"): UsageDelta(1, 1000.0 + n), (NS, sys.argv[3]): UsageDelta(2, 1.0)}
        store.add_usage(touches, fade_per_day=1.0)
        assert store.read_usage([(NS, "shared")])[0].uses > n
"""

# Obeys one line at a time and answers with one line.
PEER = """
with LocalStore(sys.argv[1], embeddings=Lengths()) as store:
    for line in sys.stdin:
        command, *words = line.split()
        if command == "put":
            store.put(NS, words[0], {"content": " ".join(words[1:])})
            print("done", flush=True)
        elif command == "delete":
            store.delete(NS, words[0])
            print("done", flush=True)
        else:
            found = store.search(NS, query="query", limit=100)
            scored = sorted(item.key for item in found if item.score is not None)
            print(" ".join(scored), flush=True)
"""


def start(script, *args):
    return subprocess.Popen(
        [sys.executable, "-c", COMMON + script, *map(str, args)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def ask(process, line):
    process.stdin.write(line + "\n")
    process.stdin.flush()
    return process.stdout.readline().strip()


def kill_at_random(writer, chance):
    """Let it acknowledge some batches, then kill it in the middle of a later one."""
    acknowledged = int(writer.stdout.readline())
    for _ in range(chance.randrange(8)):
        acknowledged = int(writer.stdout.readline())
    # The next acknowledgement is awaited for a random moment, which may end inside its write.
    select.select([writer.stdout], [], [], chance.random() * 0.01)
    writer.send_signal(signal.SIGKILL)
    rest = [int(line) for line in writer.communicate()[0].split()]
    return max([acknowledged, *rest])


def test_killed_writer_loses_no_acknowledged_batch_and_leaves_none_half_done(tmp_path):
    path, chance = tmp_path / "m.db", random.Random(11)
    for run in range(KILLS):
        last = kill_at_random(start(WRITER, path, run), chance)
        with LocalStore(path, embeddings=Lengths()) as store:
            found = {item.key: item.value["content"] for item in store.search(NS, limit=10**6)}
            whole = _whole_batches(found, run)
            assert set(range(last + 1)) <= whole
            assert max(whole) <= last + 1
            assert found["counter"] == f"counter {run}-{max(whole)}"
            _check_agreement(store, found)
            assert store._file._reader.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def _whole_batches(found, run):
    """The numbers of a run's batches; fails when one is there in part."""
    batches = {}
    for key in found:
        if key.startswith(f"{run}-"):
            _, batch, number = key.split("-")
            batches.setdefault(int(batch), set()).add(int(number))
    latest = max(batches)
    for batch, numbers in batches.items():
        # the batch after it deleted its first memory
        assert numbers == ({0, 1, 2, 3} if batch == latest else {1, 2, 3})
    return set(batches)


def _check_agreement(store, found):
    """Vectors and postings of the file belong to its items, one for one."""
    view = store.shelf(NS)
    with view.lock:
        catalog = view.catalog
        assert {key for _, key in catalog.ids()} == set(found)
        rows = [catalog.row((NS, key)) for key in found]
        for row, text in zip(rows, found.values(), strict=True):
            terms, _ = catalog.lexical.distinct_terms([row])
            words = {catalog.lexical.vocabulary[term] for term in terms}
            assert words == {
                *tokens(text),
                *(f"@{each}" for each in DATE_TERMS & set(tokens(text))),
            }
            assert len(terms) == len(words)
        for row, text in list(zip(rows, found.values(), strict=True))[-40:]:
            assert view.cosines(Lengths().embed_documents([text]))[0][row] > 0.99999
        assert not np.isnan(view.cosines([[1.0, 0.0, 0.0]])[0][rows]).any()
    with store._file.reading() as connection:
        for table in ("traits", "vectors"):
            count = connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
            assert count == len(found)


def test_counts_of_four_processes_are_exact(tmp_path):
    path = tmp_path / "m.db"
    LocalStore(path).close()
    adders = [start(ADDER, path, ADDITIONS, f"own{n}") for n in range(4)]
    for adder in adders:
        adder.stdin.write("go\n")
        adder.stdin.flush()
    for adder in adders:
        adder.communicate()
        assert adder.returncode == 0
    with LocalStore(path) as store:
        shared, *own = store.read_usage([(NS, "shared"), *((NS, f"own{n}") for n in range(4))])
    assert (shared.uses, shared.decayed) == (4 * ADDITIONS, 4.0 * ADDITIONS)
    assert shared.last_used == 1000.0 + ADDITIONS - 1
    assert [usage.uses for usage in own] == [2 * ADDITIONS] * 4


RECALLER = """
from langmem_recall.policy import RecallPolicy
from langmem_recall.stores.recall_store import Caching, RecallStore

path, recalls = sys.argv[1], int(sys.argv[2])
with LocalStore(path) as local:
    store = RecallStore(
        local,
        policy=RecallPolicy.default(refresh_floor=0),
        caching=Caching(flush_interval=0.05),
    )
    for _ in range(recalls):
        assert store.recall(NS, "which seats do I prefer on flights?").chosen
    store.close()
"""


def test_counts_of_recalls_in_four_processes_are_exact(tmp_path):
    path = tmp_path / "m.db"
    with LocalStore(path) as store:
        store.put(NS, "seat", {"content": "I prefer aisle seats on flights"})
        readers = [start(RECALLER, path, ADDITIONS) for _ in range(4)]
        for reader in readers:
            reader.communicate(timeout=300)
            assert reader.returncode == 0
        assert store.read_usage([(NS, "seat")])[0].uses == 4 * ADDITIONS


def test_two_processes_see_each_others_writes_and_deletes(tmp_path):
    path = tmp_path / "m.db"
    peer = start(PEER, path)
    with LocalStore(path, embeddings=Lengths()) as store:

        def seen_here():
            return " ".join(sorted(item.key for item in store.search(NS, query="query")))

        assert ask(peer, "search") == seen_here() == ""
        store.put(NS, "mine", {"content": "written here"})
        assert ask(peer, "put theirs written there") == "done"
        assert ask(peer, "search") == seen_here() == "mine theirs"
        assert ask(peer, "put mine changed there") == "done"
        view = store.shelf(NS)
        with view.lock:
            assert view.catalog.lexical.document_frequency("chang") == 1
            assert view.catalog.lexical.document_frequency("here") == 0
        assert store.search(NS, query="changed there")[0].key == "mine"
        assert ask(peer, "delete mine") == "done"
        assert ask(peer, "search") == seen_here() == "theirs"
        store.delete(NS, "theirs")
        assert ask(peer, "search") == ""
    peer.communicate()
    assert peer.returncode == 0


def test_many_processes_may_create_the_same_file_at_once(tmp_path):
    path = tmp_path / "m.db"
    peers = [start(PEER, path) for _ in range(4)]
    for number, peer in enumerate(peers):
        peer.stdin.write(f"put k{number} some words\n")
        peer.stdin.flush()
    assert [peer.stdout.readline().strip() for peer in peers] == ["done"] * 4
    assert ask(peers[0], "search") == "k0 k1 k2 k3"
    for peer in peers:
        peer.communicate()


@pytest.mark.parametrize("fade_per_day", [1.0, 0.5])
def test_usage_of_a_reopened_file_is_what_was_added(tmp_path, fade_per_day):
    path = tmp_path / "m.db"
    with LocalStore(path) as store:
        store.add_usage({(NS, "k"): UsageDelta(4, 0.0)}, fade_per_day)
    with LocalStore(path) as store:
        store.add_usage({(NS, "k"): UsageDelta(1, 86_400.0)}, fade_per_day)
        assert store.read_usage([(NS, "k")])[0].decayed == 4 * fade_per_day + 1
