"""The real clients: OpenAI's against a loopback server, Anthropic's conversion without a call."""

import base64
import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from conftest import Call
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import AIMessage
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore
from scripted import (
    ADA,
    FLIGHT_WORDS,
    OFF_TOPIC,
    PEANUT_WORDS,
    PEANUTS,
    SEAT,
    Chat,
    agent_of,
    calls,
    facts,
    model_of,
)

from langmem_recall import LocalEmbeddings, LocalStore, Recall, RecallStore

PLACEMENTS = ["before_turn", "end", "start", "in_turn"]
ROLES = {"system", "developer", "user", "assistant", "tool"}
OPENING = "<recalled-memories id="


class Provider(ThreadingHTTPServer):
    """Speaks as much of the OpenAI protocol as an agent uses, and refuses what is against it."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.chats: list[dict[str, Any]] = []
        self.embedded: list[str] = []
        self.answers: list[dict[str, Any]] = []
        self.embeddings = LocalEmbeddings()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class Handler(BaseHTTPRequestHandler):
    """One request."""

    server: Provider

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/v1/embeddings":
            self._send(embedding_answer(asked, self.server))
        elif self.path == "/v1/chat/completions":
            self._chat(asked)
        else:
            self._send({"error": {"message": self.path}}, 404)

    def _chat(self, asked: dict[str, Any]) -> None:
        self.server.chats.append(asked)
        fault = fault_of(asked["messages"])
        if fault:
            self._send({"error": {"message": fault, "type": "invalid_request_error"}}, 400)
        elif asked.get("stream"):
            chunk = chat_answer("chat.completion.chunk", "delta", self.server.answers.pop(0))
            self._send(f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n", kind="text/event-stream")
        else:
            self._send(chat_answer("chat.completion", "message", self.server.answers.pop(0)))

    def _send(self, body: Any, status: int = 200, kind: str = "application/json") -> None:
        sent = (body if isinstance(body, str) else json.dumps(body)).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(sent)))
        self.end_headers()
        self.wfile.write(sent)

    def log_message(self, *args: Any) -> None:
        """Nothing to say."""


def chat_answer(kind: str, part: str, message: dict[str, Any]) -> dict[str, Any]:
    ended = "tool_calls" if message.get("tool_calls") else "stop"
    choice = {"index": 0, part: message, "finish_reason": ended}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    return {
        "id": "c",
        "object": kind,
        "created": 0,
        "model": "m",
        "choices": [choice],
        "usage": usage,
    }


def embedding_answer(asked: dict[str, Any], provider: Provider) -> dict[str, Any]:
    given = asked["input"]
    wanted = [given] if isinstance(given, str) else given
    provider.embedded += wanted
    vectors = provider.embeddings.embed_documents(wanted)
    if asked.get("encoding_format") == "base64":
        vectors = [
            base64.b64encode(np.asarray(one, dtype="<f4").tobytes()).decode() for one in vectors
        ]
    told = [
        {"object": "embedding", "index": place, "embedding": one}
        for place, one in enumerate(vectors)
    ]
    usage = {"prompt_tokens": 1, "total_tokens": 1}
    return {"object": "list", "data": told, "model": "e", "usage": usage}


def fault_of(messages: list[dict[str, Any]]) -> str | None:
    """What the provider would refuse these messages for."""
    waiting: list[str] = []
    for place, message in enumerate(messages):
        if message["role"] not in ROLES:
            return f"messages[{place}]: unknown role {message['role']}"
        if not re.fullmatch("[a-zA-Z0-9_-]{1,64}", message.get("name", "none")):
            return f"messages[{place}]: bad name"
        if message["role"] == "tool":
            if message["tool_call_id"] not in waiting:
                return f"messages[{place}]: a tool result without its call"
            waiting.remove(message["tool_call_id"])
        elif waiting:
            return f"messages[{place}]: tool calls {waiting} are not answered"
        elif not message.get("content") and not message.get("tool_calls"):
            return f"messages[{place}]: no content"
        waiting += [one["id"] for one in message.get("tool_calls") or ()]
    return f"tool calls {waiting} are not answered" if waiting else None


@pytest.fixture(scope="module")
def served() -> Iterator[Provider]:
    server = Provider()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    with pytest.MonkeyPatch.context() as environment:
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            environment.delenv(name, raising=False)
            environment.delenv(name.lower(), raising=False)
        yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def provider(served: Provider) -> Provider:
    """The server, with nothing asked and nothing to answer."""
    served.chats.clear()
    served.answers.clear()
    return served


@pytest.fixture(scope="module")
def stores(served: Provider) -> dict[str, RecallStore]:
    """Kept for all tests, because an embedder is measured on 64 questions, one request each."""
    return {kind: facts(inner=store_of(kind, served)) for kind in ("local", "in memory")}


def chat_model(provider: Provider) -> ChatOpenAI:
    return ChatOpenAI(model="gpt-4o-mini", base_url=provider.url, api_key="none", max_retries=0)


def embedder(provider: Provider) -> OpenAIEmbeddings:
    return OpenAIEmbeddings(
        model="text-embedding-3-small",
        base_url=provider.url,
        api_key="none",
        max_retries=0,
        # Tokens are counted with a file from the network.
        check_embedding_ctx_length=False,
    )


def store_of(kind: str, provider: Provider) -> BaseStore:
    if kind == "local":
        return LocalStore(embeddings=embedder(provider))
    return InMemoryStore(index={"dims": 256, "embed": embedder(provider), "fields": ["content"]})


def said(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def looked(named: str) -> dict[str, Any]:
    function = {"name": "look", "arguments": '{"what": "it"}'}
    wanted = {"index": 0, "id": named, "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [wanted]}


def parts_of(message: dict[str, Any]) -> list[str]:
    held = message.get("content") or ""
    return [held] if isinstance(held, str) else [part["text"] for part in held]


@pytest.mark.parametrize("kind", ["local", "in memory"])
@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("way", ["say", "stream"])
def test_openai_s_clients_send_valid_payloads_with_the_block_as_the_user_s(
    call: Call,
    provider: Provider,
    stores: dict[str, RecallStore],
    placement: Any,
    kind: str,
    way: str,
) -> None:
    store = stores[kind]
    provider.answers += [looked("c1"), said("Aisle [m1]."), said("Yes [m2]."), said("Puccini.")]
    chat = Chat(agent_of(chat_model(provider), store, placement=placement))
    more = [["messages", "values"]] if way == "stream" else []
    for words in (FLIGHT_WORDS, PEANUT_WORDS, OFF_TOPIC):
        out = call(chat, way, words, *more)
        assert "recalled-memories" not in str(out)
    shown = [
        [
            (message["role"], part)
            for message in asked["messages"]
            for part in parts_of(message)
            if OPENING in part
        ]
        for asked in provider.chats
    ]
    assert [len(found) for found in shown] == [1, 1, 2, 2]
    assert {role for found in shown for role, _ in found} == {"user"}
    assert SEAT in shown[0][0][1]
    assert [PEANUTS in part for _, part in sorted(shown[3])].count(True) == 1
    assert {json.dumps(asked["messages"][0]) for asked in provider.chats} == {
        '{"content": "Be kind.", "role": "system"}'
    }
    assert FLIGHT_WORDS in provider.embedded


def test_a_refusing_provider_shows_that_the_server_checks(provider: Provider) -> None:
    """The server would have told a split pair from a whole one."""
    call_, result = looked("c1"), {"role": "tool", "tool_call_id": "c1", "content": "found"}
    block = {"role": "user", "content": f'{OPENING}"x">', "name": "recalled_memories"}
    assert fault_of([call_, result, block]) is None
    assert fault_of([call_, block, result]) == "messages[1]: tool calls ['c1'] are not answered"


def test_an_embedding_service_that_is_down_leaves_the_words(call: Call, provider: Provider) -> None:
    traces: list[Recall] = []
    provider.answers += [said("Aisle.")]
    dead = OpenAIEmbeddings(
        base_url="http://127.0.0.1:9/v1",
        api_key="none",
        max_retries=0,
        check_embedding_ctx_length=False,
    )
    index = {"dims": 256, "embed": dead, "fields": ["content"]}
    silent = RecallStore(InMemoryStore(index=index), traces=traces.append)
    silent.put(ADA, "seat", {"content": SEAT}, index=False)
    call(Chat(agent_of(chat_model(provider), silent)), "say", "Do I book an aisle seat on flights?")
    assert SEAT in str(provider.chats[0]["messages"])
    assert traces[0].trace.degraded


# --- Anthropic ---


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_anthropic_s_conversion_is_valid_with_the_block_as_the_user_s(
    call: Call, placement: Any
) -> None:
    script = [calls("t1"), calls("t2", "t3"), AIMessage("Aisle."), AIMessage("Yes.")]
    model = model_of(*script)
    chat = Chat(agent_of(model, facts(), placement=placement))
    call(chat, "say", FLIGHT_WORDS)
    call(chat, "say", PEANUT_WORDS)
    anthropic = ChatAnthropic(model_name="claude-sonnet-4-5", api_key="none")
    assert len(model.seen) == 4
    for number, messages in enumerate(model.seen):
        payload = anthropic._get_request_payload(messages)
        assert payload["system"] == "Be kind."
        assert_alternates(payload["messages"])
        shown = [
            message["role"]
            for message in payload["messages"]
            for part in parts_of_anthropic(message)
            if part.get("text", "").startswith(OPENING)
        ]
        assert shown == ["user"] * (2 if number == 3 else 1)


def parts_of_anthropic(message: dict[str, Any]) -> list[dict[str, Any]]:
    held = message["content"]
    return [{"type": "text", "text": held}] if isinstance(held, str) else held


def assert_alternates(messages: list[dict[str, Any]]) -> None:
    """User and assistant take turns; the results of a message's calls begin the next one."""
    assert [one["role"] for one in messages] == [
        ("user", "assistant")[place % 2] for place in range(len(messages))
    ]
    for asking, answering in pairwise([*messages, {"role": "user", "content": []}]):
        wanted = [one["id"] for one in parts_of_anthropic(asking) if one["type"] == "tool_use"]
        given = [one.get("tool_use_id") for one in parts_of_anthropic(answering)[: len(wanted)]]
        assert sorted(given) == sorted(wanted)
    for message in messages:
        assert all(part.get("text", "x").strip() for part in parts_of_anthropic(message))
