"""Models by name: the real clients of LangChain against a server on this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Call
from langgraph.store.base import PutOp
from openai_server import OpenAIServer, openai_server

from langmem_recall import LocalEmbeddings, LocalStore, RecallMiddleware, RecallStore, Writing
from langmem_recall.errors import ConfigurationError, MissingExtraError
from langmem_recall.models import named_chat_model, named_embeddings

ADA = ("memories", "ada")
SMALL = "openai:text-embedding-3-small"
SCRIPTED = Path(__file__).parent.parent / "examples" / "scripted.py"


@pytest.fixture
def openai(monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenAIServer]:
    """OpenAI as its client finds it: by the environment alone."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    with openai_server(SCRIPTED) as server:
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        yield server


def run(*words: object, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "langmem_recall", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)


def test_a_store_takes_the_name_of_an_embedder(call: Call, openai: OpenAIServer) -> None:
    store = RecallStore(LocalStore(embeddings=SMALL))
    call(store, "remember", ADA, "I always book an aisle seat on flights", key="seat")
    recall = call(store, "recall", ADA, "an aisle seat on flights")
    assert [memory.key for memory in recall.memories] == ["seat"]
    assert {asked["model"] for asked in openai.embeddings} == {"text-embedding-3-small"}
    # The words themselves, not numbers of a tokenizer that only OpenAI's own servers know.
    sent = [text for asked in openai.embeddings for text in asked["input"]]
    assert "I always book an aisle seat on flights" in sent
    assert store.index_config["embed"].model == "text-embedding-3-small"


def test_the_name_may_stand_in_langgraph_s_index(openai: OpenAIServer) -> None:
    store = LocalStore(index={"embed": SMALL, "dims": 256})
    store.put(ADA, "tea", {"content": "green tea"})
    assert [item.key for item in store.search(ADA, query="green tea")] == ["tea"]
    assert openai.embeddings


def test_a_name_of_ours_needs_no_provider() -> None:
    made = named_embeddings("wordllama")
    assert isinstance(made, LocalEmbeddings)
    assert made.dims == 256
    assert named_embeddings("minilm").dims == 384


def test_external_text_is_condensed_by_a_model_that_is_named(
    call: Call, openai: OpenAIServer
) -> None:
    store = RecallStore(LocalStore(), writing=Writing(summarizer="openai:gpt-4.1-mini"))
    text = "Terms of delivery: parcels leave on Mondays."
    memory = call(store, "remember", ADA, text, source="external")
    (asked,) = openai.chats
    assert asked["model"] == "gpt-4.1-mini"
    assert text in json.dumps(asked["messages"])
    assert memory.source == "external"
    assert memory.text == openai.replies[0]["content"]


def test_the_middleware_takes_the_name_of_a_summarizer(openai: OpenAIServer) -> None:
    recall = RecallMiddleware(("memories", "{user_id}"), summarizer="openai:gpt-4.1-mini")
    assert recall._session.options.summarizer.model_name == "gpt-4.1-mini"


def test_the_command_line_takes_the_name_of_an_embedder(
    tmp_path: Path, openai: OpenAIServer
) -> None:
    line = {"namespace": list(ADA), "key": "tea", "value": {"content": "green tea"}}
    times = dict.fromkeys(("created_at", "updated_at"), "2026-03-04T12:00:00+00:00")
    (tmp_path / "memories.jsonl").write_text(json.dumps(line | times))
    words = ("import", "memories.jsonl", "memory.db", "--create", "-e", SMALL)
    done = run(*words, folder=tmp_path)
    assert (done.returncode, done.stdout) == (0, "1 memories were imported into memory.db.\n")
    assert "green tea" in [text for asked in openai.embeddings for text in asked["input"]]
    with LocalStore(tmp_path / "memory.db", embeddings=SMALL) as store:
        assert [item.key for item in store.search(ADA, query="green tea")] == ["tea"]


@pytest.mark.parametrize("make", [named_embeddings, named_chat_model])
def test_a_name_that_nobody_knows_is_refused_with_one_that_works(make: Any) -> None:
    with pytest.raises(ConfigurationError, match="as in openai:"):
        make("nobody:nothing")


@pytest.mark.parametrize("make", [named_embeddings, named_chat_model])
def test_a_provider_whose_package_is_missing_is_named_with_its_install(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "langchain_mistralai", None)
    with pytest.raises(MissingExtraError, match="pip install langchain-mistralai"):
        make("mistralai:some-model")


def test_a_missing_key_is_a_configuration_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(ConfigurationError, match="set the key"):
        LocalStore(embeddings=SMALL)


def test_a_text_that_the_provider_refuses_costs_the_others_nothing(openai: OpenAIServer) -> None:
    openai.longest = 1_000
    store = LocalStore(embeddings=SMALL)
    texts = {"a": "green tea", "long": "word " * 400, "b": "black coffee", "c": "red wine"}
    store.batch([PutOp(ADA, key, {"content": text}) for key, text in texts.items()])
    found = {item.key: item.score for item in store.search(ADA, query="green tea")}
    assert {key for key, score in found.items() if score is not None} == {"a", "b", "c"}
    assert store.get(ADA, "long").value["content"] == texts["long"]


def test_nothing_of_a_provider_is_loaded_before_it_is_named() -> None:
    code = (
        "import sys; from langmem_recall import LocalStore, RecallStore, Writing; "
        "import langmem_recall.models; RecallStore(LocalStore(), writing=Writing()); "
        "print('langchain_openai' in sys.modules); "
        f"LocalStore(embeddings={SMALL!r}); print('langchain_openai' in sys.modules)"
    )
    env = {**os.environ, "OPENAI_API_KEY": "none"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert done.stdout.split() == ["False", "True"]
