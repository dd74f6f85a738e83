"""What commands read: stores, cases, policies, embedders and cues, by the names users give."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from importlib import import_module
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Any, Literal, cast
from urllib.parse import urlsplit

from langmem_recall.errors import InputError, MissingExtraError, StoreError
from langmem_recall.models import named_embeddings
from langmem_recall.policy import PRESETS, RecallPolicy
from langmem_recall.types import SIDECAR_ROOT, Memory, Namespace, Trace, Usage

if TYPE_CHECKING:
    from langchain_core.embeddings import Embeddings
    from langgraph.store.base import BaseStore, SearchItem

    from langmem_recall.evaluation.cases import CaseSet
    from langmem_recall.stores.recall_store import RecallStore

EVERYTHING = 2**31 - 1
"""One page: stores that sort by time alone lose and repeat memories between pages."""
_USAGES_PER_READ = 1_000


# --- stores ---------------------------------------------------------------------------------------


def open_store(
    target: str, embeddings: str | None = None, create: bool = False
) -> AbstractContextManager[BaseStore]:
    """The store behind a path or an address, closed in the end; created only on demand.

    Without an embedder a LocalStore has its default one, and Postgres is read by words alone.
    """
    embedder = load_embedder(embeddings)
    if is_postgres(target):
        return _open_postgres(target, embedder or None, create)
    scheme, is_address, _ = target.partition("://")
    if is_address:
        raise InputError(
            f"{scheme}:// addresses cannot be opened from the command line: a STORE is the file of "
            "a LocalStore or a postgresql:// address. Of any other store, call export_jsonl(store, "
            '"memories.jsonl") in Python, and langmem-recall import memories.jsonl memory.db '
            "--create reads what it wrote."
        )
    from langmem_recall.stores.local.store import LocalStore

    path = Path(target)
    if not create and not (path.is_file() and path.stat().st_size):
        problem = "is no file of a LocalStore" if path.exists() else "does not exist"
        advice = "Check the path; nothing is created unless you ask for it."
        raise InputError(f"{target} {problem}. {advice}")
    index: Literal[False] | None = False if embedder is False else None
    return LocalStore(target, embeddings=embedder or None, index=index)


@contextmanager
def open_recall_store(
    target: str,
    embeddings: str | None,
    policy: str | None = None,
    *,
    create: bool = False,
    writes: str | None = None,
    **knobs: Any,
) -> Iterator[RecallStore]:
    """A RecallStore over the store behind a path or an address, all by the names users give.

    Without a policy those stored in it apply. Where something writes, Postgres needs the embedder
    that made its vectors: they would be left as they were by mistake.
    """
    chosen = load_policy(policy) if policy else None
    if writes and embeddings is None and is_postgres(target):
        raise InputError(
            f"{writes} on Postgres needs the embedder that made its vectors. Name it with "
            "--embeddings, or pass --embeddings none where the store keeps no vectors."
        )
    with open_store(target, embeddings, create) as inner:
        from langmem_recall.stores.recall_store import RecallStore

        knobs |= {"policy": chosen, "stored_policies": chosen is None}
        with closing(RecallStore(inner, **knobs)) as opened:
            yield opened


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
def _open_postgres(address: str, embedder: Embeddings | None, create: bool) -> Iterator[BaseStore]:
    try:
        psycopg: Any = import_module("psycopg")
        import_module("langgraph.store.postgres")
    except ImportError as error:
        raise MissingExtraError(
            f"A Postgres address needs a package that is not installed ({error}). Run "
            'pip install "langmem-recall[postgres]".'
        ) from error
    index = {"embed": embedder, "dims": len(embedder.embed_query("dims"))} if embedder else None
    # Its statements mean the same on one server.
    from langmem_recall.stores.postgres.citus import CitusStore

    try:
        with CitusStore.from_conn_string(address, index=cast(Any, index)) as store:
            if create:
                from langmem_recall.stores.recall_store import RecallStore

                RecallStore(store).setup()
            yield store
    except psycopg.Error as error:
        reason = str(error).strip().split("\n")[0].rstrip(".")
        advice = (
            f"could not be used: {reason}. Check that the server runs and the address is right."
        )
        if isinstance(error, psycopg.errors.UndefinedTable):
            advice = (
                f"lacks a table of LangGraph's store ({reason}). Nothing was changed; call setup() "
                "on the store, with the index your vectors need."
            )
        raise StoreError(f"{shown(address)} {advice}") from error


def parse_namespace(text: str | None) -> Namespace:
    """The labels of `a/b` or of a JSON list; the root for None."""
    if text is None:
        return ()
    try:
        labels: Any = json.loads(text) if text.startswith("[") else text.split("/")
    except ValueError as error:
        raise InputError(f"{text!r} is no JSON list of labels: {error}.") from error
    if not labels or not all(isinstance(one, str) and one and "." not in one for one in labels):
        raise InputError(
            "A namespace is labels without dots and with slashes between them, "
            f"got {text!r}. Write memories/ada."
        )
    return tuple(labels)


def namespace_text(namespace: Namespace) -> str:
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
    from langmem_recall.flows.effects import run
    from langmem_recall.flows.quarantine import Quarantine, as_shown, withheld
    from langmem_recall.guard.judge import default_guard
    from langmem_recall.stores.backend import opened

    memories = [memory_of(item) for item in all_items(store, namespace)]
    _, host = opened(store)
    barred = run(Quarantine(default_guard, 0.0).barred(memories, time()), host)
    bars = {memory_id for memory_id, decision in barred.items() if decision.bars}
    return [
        withheld(memory)
        if memory.id in bars or memory.status == "quarantined"
        else as_shown(memory, barred.get(memory.id))
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


# --- embedders, policies, cases and cues ----------------------------------------------------------


def load_embedder(name: str | None) -> Embeddings | Literal[False] | None:
    """The embedder of that name; False for none at all, None when nothing was named."""
    if name is None:
        return None
    return False if name == "none" else named_embeddings(name)


def load_policy(name: str) -> RecallPolicy:
    """A preset by its name, or a policy file."""
    if name in PRESETS:
        preset: RecallPolicy = getattr(RecallPolicy, name)()
        return preset
    if not Path(name).is_file():
        raise InputError(
            f"{name!r} is neither a policy file nor a preset. Presets: {', '.join(PRESETS)}."
        )
    return RecallPolicy.load(name)


def load_case_set(source: str, cues: Path | None = None) -> CaseSet:
    """The cases of a file, of an export and cues for it, or of a log of traces."""
    try:
        with Path(source).open(encoding="utf-8-sig") as lines:
            record = json.loads(next(filter(str.strip, lines), ""))
    except (OSError, ValueError):
        # What is wrong with it, `load_cases` says.
        record = None
    from langmem_recall.evaluation.cases import cases_from_traces, load_cases
    from langmem_recall.observe.log import read_log

    if isinstance(record, dict) and record.keys() >= {"version", "kind"}:
        return cases_from_traces(read_log(source), name=Path(source).stem)
    return load_cases(source, cues)


def read_traces(path: Path) -> list[Trace]:
    """The traces of a log that tell what was asked."""
    from langmem_recall.observe.log import read_log
    from langmem_recall.observe.show import RECALL, from_dict

    # A log holds feedback as well.
    records = (each for each in read_log(path) if each.get("kind", RECALL) == RECALL)
    traces = [trace for trace in (from_dict(each).trace for each in records) if trace.cue.words]
    if not traces:
        raise InputError(f"{path} holds no cues. Pass what TraceLog recorded, with texts.")
    return traces
