"""`langmem-recall reindex`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import ADA, fill, run
from langchain_core.embeddings import DeterministicFakeEmbedding
from langgraph.store.base import PutOp

from langmem_recall.errors import StoreError
from langmem_recall.stores.local.store import LocalStore


class Tired(DeterministicFakeEmbedding):
    size: int = 8
    fails_on: str = "aisle"

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        if any(self.fails_on in text for text in texts):
            raise RuntimeError("enough for today")
        return super().embed_documents(texts)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store whose vectors another embedder made."""
    return fill(tmp_path / "memory.db", embeddings=DeterministicFakeEmbedding(size=8))


@pytest.fixture
def name(monkeypatch: pytest.MonkeyPatch) -> Callable[[Tired], str]:
    """Gives an embedder a name for the command line."""

    def given(embedder: Tired) -> str:
        monkeypatch.setattr("langmem_recall.cli.inputs.named_embeddings", lambda _: embedder)
        return "fake:tired"

    return given


def nearest(path: Path) -> str:
    with LocalStore(path) as local:
        return local.search(ADA, query="aisle seat", limit=1)[0].key


def test_everything_is_embedded_anew(store: Path) -> None:
    with pytest.raises(StoreError, match="made by"):
        nearest(store)
    ran = run("reindex", store, "-e", "wordllama", "--json")
    assert (ran.code, ran.stderr) == (0, "")
    assert ran.json == {
        "store": str(store),
        "embedder": "wordllama-l2_supercat-a829d1d6-256",
        "embedded": 4,
        "waiting": 0,
    }
    assert nearest(store) == "seat"


def test_the_result_is_a_sentence_without_json(store: Path, tmp_path: Path) -> None:
    told = f"4 texts of {store} were embedded by wordllama-l2_supercat-a829d1d6-256.\n"
    assert run("reindex", store, "-e", "wordllama").stdout == told
    run("reindex", store, "-e", "wordllama", "-o", tmp_path / "done.json")
    assert json.loads((tmp_path / "done.json").read_text())["embedded"] == 4


def test_an_embedder_that_is_down_changes_nothing(
    store: Path, name: Callable[[Tired], str]
) -> None:
    before = store.read_bytes()
    ended = run("reindex", store, "-e", name(Tired(fails_on="")))
    assert (ended.code, ended.stdout) == (2, "")
    assert "enough for today" in ended.stderr
    assert store.read_bytes() == before


@pytest.mark.parametrize("options", [(), ("-e", "none"), ("-e", "nonsense"), ("-e", "")])
def test_without_an_embedder_nothing_is_done(store: Path, options: tuple[str, ...]) -> None:
    before = store.read_bytes()
    assert run("reindex", store, *options).code == 2
    assert store.read_bytes() == before


def test_a_store_that_is_not_there_is_refused(tmp_path: Path) -> None:
    assert run("reindex", tmp_path / "no.db", "-e", "wordllama").code == 2
    assert not (tmp_path / "no.db").exists()


def test_texts_that_the_embedder_left_are_told_with_exit_code_1(
    tmp_path: Path, name: Callable[[Tired], str]
) -> None:
    path = tmp_path / "many.db"
    # More than one batch of 256, and the last text is the one that the embedder fails on.
    texts = [*(f"note {number}" for number in range(299)), "an aisle seat"]
    with LocalStore(path, embeddings=DeterministicFakeEmbedding(size=4)) as local:
        local.batch(PutOp(ADA, f"n{n:03}", {"content": text}) for n, text in enumerate(texts))
    ran = run("reindex", path, "-e", name(Tired()), "--json")
    assert ran.code == 1
    assert ran.json["waiting"] >= 1
    assert ran.json["embedded"] + ran.json["waiting"] == 300
    assert f"{ran.json['waiting']} texts still wait" in ran.stderr
