"""`langmem-recall export` and `import`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from command_line import ADA, fill, run, write
from langgraph.store.base import PutOp

from langmem_recall.stores.local.store import LocalStore
from langmem_recall.stores.transfer import export_jsonl, import_jsonl


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return fill(tmp_path / "memory.db")


def exported(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_a_store_survives_the_way_out_and_back(store: Path, tmp_path: Path) -> None:
    out = run("export", store, "-o", tmp_path / "m.jsonl", "--json")
    assert out.json == {"store": str(store), "memories": 4, "output": str(tmp_path / "m.jsonl")}
    back = run("import", tmp_path / "m.jsonl", tmp_path / "new.db", "--create", "--json")
    assert back.json["memories"] == 4
    run("export", tmp_path / "new.db", "-o", tmp_path / "again.jsonl")
    assert exported(tmp_path / "again.jsonl") == exported(tmp_path / "m.jsonl")
    with LocalStore(tmp_path / "new.db") as local:
        assert local.search(ADA, query="aisle seat", limit=1)[0].key == "seat"


def test_without_a_file_the_lines_go_to_stdout_and_from_stdin(store: Path, tmp_path: Path) -> None:
    lines = run("export", store, "-n", "memories/bob").stdout
    assert [json.loads(line)["key"] for line in lines.splitlines()] == ["cello"]
    back = run("import", "-", tmp_path / "new.db", "--create", stdin=lines)
    assert back.code == 0
    assert "1 memories were imported" in back.stdout


def test_vectors_are_taken_along(store: Path, tmp_path: Path) -> None:
    run("export", store, "--vectors", "-o", tmp_path / "m.jsonl")
    header, *memories = exported(tmp_path / "m.jsonl")
    assert header["embedder"] == "wordllama-l2_supercat-a829d1d6-256"
    assert all("vectors" in memory for memory in memories)
    assert run("import", tmp_path / "m.jsonl", tmp_path / "new.db", "--create").code == 0
    refused = run("import", tmp_path / "m.jsonl", tmp_path / "bare.db", "--create", "-e", "none")
    assert refused.code == 2
    assert "export without vectors" in refused.stderr


def test_import_never_makes_a_store_unasked(store: Path, tmp_path: Path) -> None:
    run("export", store, "-o", tmp_path / "m.jsonl")
    ended = run("import", tmp_path / "m.jsonl", tmp_path / "typo.db")
    assert ended.code == 2
    assert not (tmp_path / "typo.db").exists()


def test_a_bad_line_stops_the_import_before_anything_is_stored(store: Path, tmp_path: Path) -> None:
    run("export", store, "-o", tmp_path / "m.jsonl")
    bad = write(tmp_path / "bad.jsonl", (tmp_path / "m.jsonl").read_text().strip(), "{nonsense")
    ended = run("import", bad, tmp_path / "new.db", "--create")
    assert ended.code == 2
    assert "Line 5 cannot be read" in ended.stderr
    assert run("stats", tmp_path / "new.db", "--json").json["memories"] == 0


def test_an_export_that_fails_leaves_the_old_file_and_nothing_beside_it(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "m.jsonl").write_text("precious")

    def failing(*args: object) -> int:
        raise OSError("disk full")

    monkeypatch.setattr("langmem_recall.stores.transfer.export_jsonl", failing)
    ended = run("export", store, "-o", folder / "m.jsonl")
    assert (ended.code, ended.stderr) == (2, "Error: disk full\n")
    assert [path.name for path in folder.iterdir()] == ["m.jsonl"]
    assert (folder / "m.jsonl").read_text() == "precious"


def test_a_file_that_cannot_be_read_is_refused(store: Path, tmp_path: Path) -> None:
    (tmp_path / "latin.jsonl").write_bytes(b"\xff\xfe\xfa")
    for source in ("no.jsonl", "latin.jsonl"):
        ended = run("import", tmp_path / source, store)
        assert ended.code == 2
        assert "cannot be read" in ended.stderr


def test_any_script_goes_through_a_pipe_whatever_the_locale(tmp_path: Path) -> None:
    text = "\u65e5\u672c\u8a9e\u2028\u0085 and one line"
    with LocalStore(tmp_path / "a.db", index=False) as local:
        local.put(ADA, "k", {"content": text})
    code = "from langmem_recall.cli import main; main()"
    ascii_only = os.environ | {"PYTHONIOENCODING": "ascii"}
    out = subprocess.run(
        [sys.executable, "-c", code, "export", str(tmp_path / "a.db")],
        capture_output=True,
        env=ascii_only,
        check=True,
    )
    subprocess.run(
        [sys.executable, "-c", code, "import", "-", str(tmp_path / "b.db"), "--create"],
        input=out.stdout,
        capture_output=True,
        env=ascii_only,
        check=True,
    )
    with LocalStore(tmp_path / "b.db", index=False) as local:
        assert local.get(ADA, "k").value == {"content": text}


def test_memories_of_another_system_are_taken_over(tmp_path: Path) -> None:
    record = {"id": "1", "memory": "Is allergic to peanuts", "user_id": "ada"}
    export = write(tmp_path / "mem0.json", {"results": [record]})
    store = tmp_path / "memory.db"
    command = ("import", export, store, "--create", "--from", "mem0")
    refused = run(*command)
    assert refused.code != 0
    assert "--from and --namespace go together" in refused.stderr
    ran = run(*command, "-n", "memories/{user_id}", "--source", "agent_inferred", "--json")
    assert ran.json["memories"] == 1
    with LocalStore(store) as local:
        item = local.get(("memories", "ada"), "1")
        assert item is not None
        assert (item.value["content"], item.value["source"]) == (
            "Is allergic to peanuts",
            "agent_inferred",
        )


# --- long imports ---


class SlowEmbedder(ThreadingHTTPServer):
    """An embedding service that stops answering after some requests until it is let go."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _SlowHandler)
        self.embedded: list[str] = []
        self.answered, self.reached = threading.Semaphore(2), threading.Event()


class _SlowHandler(BaseHTTPRequestHandler):
    server: SlowEmbedder

    def do_POST(self) -> None:
        texts = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["input"]
        if not self.server.answered.acquire(blocking=False):
            self.server.reached.set()
            self.server.answered.acquire()
        self.server.embedded += texts
        data = [
            {"object": "embedding", "index": place, "embedding": [1.0, float(len(text)), 0.5]}
            for place, text in enumerate(texts)
        ]
        usage = {"prompt_tokens": 1, "total_tokens": 1}
        body = json.dumps({"object": "list", "data": data, "model": "m", "usage": usage}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with suppress(OSError):
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


def test_a_long_import_can_be_stopped_and_goes_on(tmp_path: Path) -> None:
    count = 1_000
    times = dict.fromkeys(("created_at", "updated_at"), "2026-03-04T12:00:00+00:00")
    lines = [
        {"namespace": ["memories", "ada"], "key": f"k{i}", "value": {"content": f"note {i}"}}
        for i in range(count)
    ]
    write(tmp_path / "memories.jsonl", *(line | times for line in lines))
    server = SlowEmbedder()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    proxies = {f"{name}_proxy": "" for name in ("http", "https", "all")}
    env = {
        **{name: value for name, value in os.environ.items() if name.lower() not in proxies},
        "OPENAI_API_KEY": "none",
        "OPENAI_BASE_URL": f"http://127.0.0.1:{server.server_address[1]}/v1",
    }
    words = ["import", "memories.jsonl", "memory.db", "--create", "-e", "openai:small"]
    command = [sys.executable, "-m", "langmem_recall", *words]
    options: Any = {"cwd": tmp_path, "env": env, "text": True}
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(command, **options, **pipes)
    assert server.reached.wait(60), process.communicate(timeout=5)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=30)
    before = len(server.embedded)
    assert (process.returncode, stdout) == (1, "")
    assert "Stopped. All memories are stored; run the same command again to go on." in stderr
    assert f"{count - before:,} texts wait for the embedder" in stderr
    assert "Traceback" not in stderr
    assert before == 512
    for _ in range(100):
        server.answered.release()
    done = subprocess.run(command, capture_output=True, **options)
    assert (done.returncode, done.stdout) == (0, "1,000 memories were imported into memory.db.\n")
    # What the request that was given up asked for is asked for once more; nothing else is.
    again = [text for text, times in Counter(server.embedded).items() if times > 1]
    assert len(set(server.embedded)) == count
    assert len(again) <= 256
    server.shutdown()
    thread.join()
    server.server_close()


def test_progress_moves_while_an_import_reads_and_embeds(tmp_path: Path) -> None:
    with LocalStore(tmp_path / "a.db") as store:
        puts = [PutOp(("memories", "ada"), f"k{i}", {"content": f"note {i}"}) for i in range(600)]
        store.batch(puts)
        export_jsonl(store, tmp_path / "all.jsonl")
    read, embedded = list[tuple[int, int]](), list[tuple[int, int]]()
    with LocalStore(tmp_path / "b.db") as store:
        count = import_jsonl(
            store,
            tmp_path / "all.jsonl",
            reading=lambda *at: read.append(at),
            progress=lambda *at: embedded.append(at),
        )
        assert (count, store.waiting) == (600, 0)
    assert read == [(0, 600), (256, 600), (512, 600)]
    assert embedded == [(256, 600), (512, 600), (600, 600)]
