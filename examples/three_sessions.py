"""From session to session: the first talks, the second starts with it, the third knows better.

    python examples/three_sessions.py
    OPENAI_API_KEY=... python examples/three_sessions.py

Without a key a server on this machine speaks OpenAI's protocol, with scripted answers. After each
session everything that was written of it is printed, and the tokens that the writing took.
"""

from __future__ import annotations

import json
import os
import textwrap
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from langchain.agents import create_agent
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver

from langmem_recall import LocalStore, MemoryWriter, Profile, RecallMiddleware, RecallStore

NAMESPACE = ("memories", "{user_id}")
SESSIONS = {
    "monday": ("Hi, I'm a potter. We moved to Ghent last spring.", "Please keep answers short."),
    "tuesday": ("Hello again!", "Actually, we live in Bruges. The kiln is at 12 Canal Street."),
    "friday": ("Where were we?", "Which city do we live in?"),
}


def main() -> None:
    """Three threads of one user, each with its end."""
    with chat_model() as model:
        store = RecallStore(LocalStore())
        writer = MemoryWriter(
            NAMESPACE, model=model, debounce=60, on_learned=lambda learned: show(str(learned))
        )
        recall = RecallMiddleware(NAMESPACE, profile=Profile(share=0.25), deadline=3.0)
        agent: Any = create_agent(
            model, store=store, middleware=[recall, writer], checkpointer=InMemorySaver()
        )
        for thread, messages in SESSIONS.items():
            print(f"--- {thread} ---")
            before = dict(writer.tokens)
            for said in messages:
                talk(agent, thread, said)
            # The session is over: learn from it now and not in a minute.
            writer.flush()
            spent = {name: writer.tokens[name] - before.get(name, 0) for name in writer.tokens}
            print(f"  tokens of this session's writing: {spent}")
        for item in store.search(("memories", "ada"), query="Which city does the family live in?"):
            for past in store.history(("memories", "ada"), item.key)[1:]:
                print(f"{item.value['content']!r} took the place of {past.text!r}")


def talk(agent: Any, thread: str, said: str) -> None:
    """One turn, with what the model was shown of earlier sessions."""
    config = {"configurable": {"thread_id": thread, "user_id": "ada"}}
    show(f"user: {said}")
    state = {"messages": [("user", said)]}
    for mode, part in agent.stream(state, config, stream_mode=["custom", "values"]):
        if mode == "custom":
            print(f"  profile {len(part.get('profile', ()))}, recalled {len(part['memories'])}")
    show(f"assistant: {part['messages'][-1].text}")


def show(text: str) -> None:
    """Print a text in lines that fit the screen."""
    for line in text.splitlines():
        print(textwrap.fill(line, 96, subsequent_indent="    "))


# --- a model: OpenAI's, or a server here that speaks its protocol -------------------------------


@contextmanager
def chat_model() -> Iterator[ChatOpenAI]:
    """`ChatOpenAI`, asking OpenAI with a key and this machine without."""
    if os.environ.get("OPENAI_API_KEY"):
        yield ChatOpenAI(model=os.environ.get("OPENAI_MODEL", "gpt-4.1-mini"))
        return
    server = ThreadingHTTPServer(("127.0.0.1", 0), Scripted)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}/v1"
    try:
        yield ChatOpenAI(model="scripted", base_url=address, api_key="none")  # type: ignore[arg-type]
    finally:
        server.shutdown()
        server.server_close()


def observed(text: str, quote: str, asked_as: str) -> dict[str, Any]:
    """An observation as the model reports it."""
    fields = {"observation": "user_stated_preference", "confidence": 1.0, "corrects": ""}
    return {"text": text, "quote": quote, "asked_as": [asked_as], **fields}


NOTES = {
    "moved to Ghent": (
        "Ada, a potter, told of a move to Ghent.",
        observed("The user is a potter", "I'm a potter", "What is the user's job?"),
        observed(
            "The user's family lives in Ghent", "We moved to Ghent last spring", "Where do we live?"
        ),
        observed("The user wants short answers", "Please keep answers short", "How to answer?"),
        # Nobody said so: the quote is not in the messages, and the write policy refuses a guess.
        observed("The user is rich", "I am rich", "Is the user rich?"),
    ),
    "live in Bruges": (
        "Ada corrected where the family lives and told where the kiln is.",
        observed("The user's family lives in Bruges", "we live in Bruges", "Where do we live?"),
        observed(
            "The kiln is at 12 Canal Street", "The kiln is at 12 Canal Street", "Where is the kiln?"
        ),
    ),
}


def reply_to(request: dict[str, Any]) -> str:
    """What the scripted model says: notes where a schema is asked for, else its memories."""
    texts = [str(message["content"]) for message in request["messages"]]
    if "response_format" in request:
        said = next((notes for word, notes in NOTES.items() if word in texts[-1]), ("",))
        return json.dumps({"summary": said[0], "observations": said[1:]})
    lines = [line for text in texts for line in text.splitlines() if line.startswith('{"id"')]
    memories = [json.loads(line) for line in lines]
    known = "; ".join(f"{memory['text']} [{memory['id']}]" for memory in memories)
    return f"I know: {known}" if memories else "Noted."


class Scripted(BaseHTTPRequestHandler):
    """Answers like OpenAI's chat completions; a word counts as a token."""

    def do_POST(self) -> None:
        """One completion."""
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        reply, asked = reply_to(request), json.dumps(request["messages"])
        counts = {"prompt_tokens": len(asked.split()), "completion_tokens": len(reply.split())}
        usage = {**counts, "total_tokens": sum(counts.values())}
        message = {"role": "assistant", "content": reply}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        fields = {"id": "1", "object": "chat.completion", "created": 0, "model": request["model"]}
        body = json.dumps({**fields, "choices": [choice], "usage": usage}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nothing: the example prints what matters."""


if __name__ == "__main__":
    main()
