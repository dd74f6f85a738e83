"""Policies that a store keeps for its namespaces: tuned once, in force for every reader there."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple

from langgraph.store.base import GetOp, PutOp, validate_op_namespace

from langmem_recall.flows.effects import Ops, Plan
from langmem_recall.policy import RecallPolicy
from langmem_recall.types import SIDECAR_ROOT, Namespace

POLICIES = (SIDECAR_ROOT, "policy")
KEY = "policy"
MOST_KEPT = 10_000
"""Namespaces whose policy is held in memory before the reading starts afresh."""


class Kept(NamedTuple):
    """The policy read for a namespace, None where none is stored, and when it was read."""

    policy: RecallPolicy | None
    read_at: float


class PolicyStore:
    """Reads and writes the policies stored for namespaces; plans only."""

    def __init__(self, clock: Callable[[], datetime], max_age_s: float) -> None:
        self._clock = clock
        self._max_age_s = max_age_s
        self._kept: dict[Namespace, Kept] = {}

    def at(self, namespace: Namespace) -> Plan[RecallPolicy | None]:
        """The policy of a namespace, or of the nearest one above it that has one."""
        now = self._clock().timestamp()
        kept = self._kept.get(namespace)
        if kept is None or not 0 <= now - kept.read_at < self._max_age_s:
            kept = Kept((yield from self._read(namespace)), now)
            if len(self._kept) >= MOST_KEPT:
                self._kept.clear()
            self._kept[namespace] = kept
        return kept.policy

    def put(self, namespace: Namespace, policy: RecallPolicy | None) -> Plan[None]:
        """Store a policy for a namespace and all below it; None takes it away."""
        value = None if policy is None else policy.to_dict()
        op = PutOp((*POLICIES, *namespace), KEY, value, index=False)
        validate_op_namespace(op._replace(namespace=namespace))
        yield Ops([op], sidecar=True)
        self._kept.clear()

    def _read(self, namespace: Namespace) -> Plan[RecallPolicy | None]:
        above = [namespace[:depth] for depth in range(len(namespace), 0, -1)]
        items = yield Ops(
            [GetOp((*POLICIES, *each), KEY, refresh_ttl=False) for each in above], sidecar=True
        )
        nearest = next((item for item in items if item is not None), None)
        return None if nearest is None else RecallPolicy.from_dict(nearest.value)
