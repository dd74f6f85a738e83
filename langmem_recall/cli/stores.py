"""Opening the store a command names, and reading what it holds without leaving a trace."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import urlsplit

import typer

from langmem_recall.errors import InputError, MissingExtraError, StoreError
from langmem_recall.types import SIDECAR_ROOT, Memory, Namespace, Usage

if TYPE_CHECKING:
    from langchain_core.embeddings import Embeddings
    from langgraph.store.base import BaseStore, SearchItem

    EmbedderChoice = Embeddings | Literal[False] | None
    """An embedder, False for none at all, or None for the store's default."""

EVERYTHING = 2**31 - 1
"""One page: stores that sort by time alone lose and repeat memories between pages."""
_USAGES_PER_READ = 1_000

Target = Annotated[
    str,
    typer.Argument(metavar="STORE", help="File of a LocalStore, or a postgresql:// address."),
]
Within = Annotated[
    str | None,
    typer.Option(
        "--namespace",
        "-n",
        metavar="A/B",
        help="Only this namespace and below; a JSON list where a label has a slash in it.",
    ),
]


@contextmanager
def open_store(
    target: str, embedder: EmbedderChoice = None, create: bool = False
) -> Iterator[BaseStore]:
    """The store behind a path or an address, closed in the end; created only on demand.

    Without an embedder a LocalStore has its default one, and Postgres is read by words alone.
    """
    if is_postgres(target):
        with _open_postgres(target, embedder, create) as store:
            yield store
        return
    from langmem_recall.stores.local.store import LocalStore

    if not create:
        path = Path(target)
        if path.is_dir():
            raise InputError(f"{target} is a folder. Name the file of a LocalStore in it.")
        if not path.exists():
            raise InputError(
                f"{target} does not exist. Check the path; nothing is created unless you ask for "
                "it."
            )
        if not path.stat().st_size:
            raise InputError(f"{target} is empty and no LocalStore. Check the path.")
    index: Literal[False] | None = False if embedder is False else None
    with LocalStore(target, embeddings=embedder or None, index=index) as local:
        yield local


def is_postgres(target: str) -> bool:
    """Whether a target is an address rather than a file."""
    return target.startswith(("postgres://", "postgresql://"))


def shown(target: str) -> str:
    """The target without the user and password that an address may carry."""
    if not is_postgres(target):
        return target
    parts = urlsplit(target)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


@contextmanager
def _open_postgres(address: str, embedder: EmbedderChoice, create: bool) -> Iterator[BaseStore]:
    try:
        psycopg: Any = import_module("psycopg")
        postgres: Any = import_module("langgraph.store.postgres")
    except ImportError as error:
        raise MissingExtraError(
            f"A Postgres address needs a package that is not installed ({error}). Run "
            'pip install "langmem-recall[postgres]".'
        ) from error
    index = {"embed": embedder, "dims": len(embedder.embed_query("dims"))} if embedder else None
    try:
        with postgres.PostgresStore.from_conn_string(address, index=index) as store:
            if create:
                from langmem_recall.stores.recall_store import RecallStore

                RecallStore(store).setup()
            yield store
    except psycopg.errors.UndefinedTable as error:
        raise StoreError(
            f"{shown(address)} lacks a table of LangGraph's store ({_first_line(error)}). Nothing "
            "was changed; call setup() on the store, with the index your vectors need."
        ) from error
    except psycopg.Error as error:
        raise StoreError(
            f"{shown(address)} could not be used: {_first_line(error)}. Check that the server "
            "runs and the address is right."
        ) from error


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0].rstrip(".")


def parse_namespace(text: str | None) -> Namespace:
    """The labels of `a/b` or of a JSON list; the root for None."""
    if text is None:
        return ()
    try:
        labels: Any = json.loads(text) if text.startswith("[") else text.split("/")
    except ValueError as error:
        raise InputError(f"{text!r} is no JSON list of labels: {error}.") from error
    if not labels or not all(isinstance(label, str) and label for label in labels):
        raise InputError(
            f"A namespace is labels with slashes between them, got {text!r}. Write memories/ada."
        )
    return tuple(labels)


def told_namespace(namespace: Namespace) -> str:
    """A namespace as `parse_namespace` reads it."""
    text = "/".join(namespace)
    is_plain = text.count("/") < len(namespace) and not text.startswith("[")
    return text if is_plain or not namespace else json.dumps(namespace, ensure_ascii=False)


def all_items(store: BaseStore, namespace: Namespace = ()) -> list[SearchItem]:
    """Everything at or below a namespace but our own side-car; no time to live is refreshed."""
    found = store.search(namespace, limit=EVERYTHING, refresh_ttl=False)
    inside = (item for item in found if item.namespace[: len(namespace)] == namespace)
    return [item for item in inside if item.namespace[0] != SIDECAR_ROOT]


def all_memories(store: BaseStore, namespace: Namespace = ()) -> list[Memory]:
    """Everything at or below a namespace as recall reads it: what the guard bars is quarantined."""
    from langmem_recall.flows.candidates import memory_of
    from langmem_recall.flows.effects import Host, run
    from langmem_recall.flows.quarantine import Quarantine, withheld
    from langmem_recall.guard.judge import default_guard

    memories = [memory_of(item) for item in all_items(store, namespace)]
    barred = run(Quarantine(default_guard, 0.0).barred(memories, time()), Host(store, store))
    return [
        withheld(memory) if memory.id in barred or memory.status == "quarantined" else memory
        for memory in memories
    ]


def usages_of(store: BaseStore, memories: Sequence[Memory]) -> list[Usage]:
    """How each memory was used, in order."""
    from langmem_recall.flows.effects import Host, run
    from langmem_recall.stores.backend import backend_of

    usage, ids = backend_of(store).usage, [memory.id for memory in memories]
    found: list[Usage] = []
    for start in range(0, len(ids), _USAGES_PER_READ):
        found += run(usage.read(ids[start : start + _USAGES_PER_READ]), Host(store, store))
    return found
