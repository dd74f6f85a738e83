"""Checks and small parts of LangGraph's store operations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from langgraph.store.base import (
    GetOp,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    SearchOp,
    validate_op_namespace,
)

from langmem_recall.errors import InputError
from langmem_recall.filters import check_filter
from langmem_recall.stores.local.rows import check_key, decode_namespace
from langmem_recall.types import MemoryId, Namespace


def check_op(op: Any) -> None:
    """Refuse what cannot be run, before anything of its batch is."""
    if not isinstance(op, GetOp | SearchOp | PutOp | ListNamespacesOp):
        raise InputError(
            f"Unknown operation {type(op).__name__}. "
            "Use GetOp, SearchOp, PutOp or ListNamespacesOp."
        )
    validate_op_namespace(op)
    for label in _labels(op):
        check_key(label)
    if isinstance(op, GetOp | PutOp):
        check_key(op.key)
    if isinstance(op, SearchOp | ListNamespacesOp):
        _check_count("limit", op.limit)
        _check_count("offset", op.offset)
    if isinstance(op, SearchOp):
        check_filter(op.filter)


def last_puts(ops: Iterable[PutOp]) -> dict[MemoryId, PutOp]:
    """The last write of each memory in a batch."""
    return {(tuple(op.namespace), op.key): op for op in ops}


def list_namespaces(op: ListNamespacesOp, codes: Sequence[str]) -> list[Namespace]:
    """One page of the namespaces that match, cut to a depth."""
    conditions = op.match_conditions or ()
    found = {
        namespace[: op.max_depth]
        for namespace in map(decode_namespace, codes)
        if all(_matches(condition, namespace) for condition in conditions)
    }
    return sorted(found)[op.offset : op.offset + op.limit]


def _labels(op: Op) -> Sequence[str]:
    if isinstance(op, GetOp | PutOp):
        return op.namespace
    return op.namespace_prefix if isinstance(op, SearchOp) else ()


def _check_count(name: str, count: Any) -> None:
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise InputError(f"{name} must be a whole number from 0, got {count!r:.80}.")


def _matches(condition: MatchCondition, namespace: Namespace) -> bool:
    """Label by label from the start or the end; "*" stands for any one label."""
    path = tuple(condition.path)
    if condition.match_type == "suffix":
        namespace, path = namespace[::-1], path[::-1]
    elif condition.match_type != "prefix":
        raise InputError(f"Unknown match type {condition.match_type!r}. Use 'prefix' or 'suffix'.")
    pairs = zip(path, namespace, strict=False)
    return len(path) <= len(namespace) and all(one in ("*", other) for one, other in pairs)
