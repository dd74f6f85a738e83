"""A server on this machine that speaks OpenAI's protocol, with the examples' rules for a model."""

from __future__ import annotations

import importlib.util
import json
import sys
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from langchain_core.messages import convert_to_messages

DIMENSIONS = 256
Reply = Callable[[dict[str, Any]], str]
"""What a model says to a request; an exception is an error of the server."""


class OpenAIServer:
    """What was asked of it, and the address to ask at."""

    def __init__(self, scripted: Any, reply: Reply | None = None) -> None:
        self.chats: list[dict[str, Any]] = []
        self.replies: list[dict[str, Any]] = []
        self.embeddings: list[dict[str, Any]] = []
        self.longest = 10**9
        """Characters of a text that is embedded; a longer one is refused with its batch."""
        self._scripted = scripted
        self._given_reply = reply
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http.server_port}/v1"

    def answer(self, path: str, request: dict[str, Any]) -> dict[str, Any]:
        if path.endswith("/embeddings"):
            self.embeddings.append(request)
            if any(len(text) > self.longest for text in request["input"]):
                return {"error": {"message": "maximum context length exceeded"}}
            data = [
                {"object": "embedding", "index": place, "embedding": _vector(text)}
                for place, text in enumerate(request["input"])
            ]
            return {"object": "list", "data": data, "model": request["model"], "usage": _USAGE}
        self.chats.append(request)
        self.replies.append(self._reply(request))
        choice = {"index": 0, "finish_reason": "stop", "message": self.replies[-1]}
        return {
            "id": f"chat-{len(self.chats)}",
            "object": "chat.completion",
            "created": 0,
            "model": request["model"],
            "choices": [choice],
            "usage": _USAGE,
        }

    def _reply(self, request: dict[str, Any]) -> dict[str, Any]:
        if self._given_reply is not None:
            return {"role": "assistant", "content": self._given_reply(request)}
        model = self._scripted.ScriptedModel()
        if request.get("tools"):
            model = model.bind_tools(request["tools"])
        said = model.invoke(convert_to_messages(request["messages"]))
        calls = [
            {
                "id": call["id"],
                "type": "function",
                "function": {"name": call["name"], "arguments": json.dumps(call["args"])},
            }
            for call in said.tool_calls
        ]
        reply = {"role": "assistant", "content": said.text or None}
        return {**reply, "tool_calls": calls} if calls else reply


_USAGE = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}


@contextmanager
def replying_server(reply: Reply) -> Iterator[OpenAIServer]:
    """A running server whose model says what a function of the request does."""
    with _running(OpenAIServer(None, reply)) as server:
        yield server


@contextmanager
def openai_server(scripted: Path) -> Iterator[OpenAIServer]:
    """A running server whose model goes by the rules in this file."""
    # By its path, because the tests have a module of that name themselves.
    spec = importlib.util.spec_from_file_location("examples_scripted", scripted)
    assert spec is not None
    assert spec.loader is not None
    rules = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(rules)
    with _running(OpenAIServer(rules)) as server:
        yield server


@contextmanager
def _running(server: OpenAIServer) -> Iterator[OpenAIServer]:
    thread = threading.Thread(target=server.http.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.http.shutdown()
        server.http.server_close()
        thread.join()


def _vector(text: str) -> list[float]:
    """Words hashed into a vector: texts that share words are alike."""
    vector = [0.01] * DIMENSIONS
    for word in text.casefold().split():
        vector[zlib.crc32(word.strip(".,?!").encode()) % DIMENSIONS] += 1.0
    return vector


def _handler(server: OpenAIServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            try:
                answer = server.answer(self.path, request)
                status = 400 if "error" in answer else 200
            except Exception as fault:
                status, answer = 500, {"error": {"message": str(fault)}}
            body = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    return Handler
