"""What `RecallStore` offers beyond a store: recalls, their reasons and their policies."""

from __future__ import annotations

import logging
import secrets
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import cast

from langgraph.store.base import GetOp, PutOp, SearchItem

from langmem_recall.errors import InputError, described
from langmem_recall.flows.effects import Host, Ops, Plan, arun, run
from langmem_recall.policy import RecallPolicy
from langmem_recall.stores.policies import PolicyStore
from langmem_recall.stores.quiet import is_quiet
from langmem_recall.stores.reads import Reader
from langmem_recall.types import (
    SIDECAR_ROOT,
    Cue,
    Explanation,
    Memory,
    MemoryId,
    Namespace,
    Recall,
    View,
)

logger = logging.getLogger(__name__)

Namespaces = Namespace | Sequence[Namespace]
SECRET = (SIDECAR_ROOT, "secret")


class RecallMethods:
    """The recalling half of a `RecallStore`, each method with its async twin."""

    policy: RecallPolicy
    _host: Host
    _reader: Reader
    _policies: PolicyStore
    _stored_policies: bool
    _traces: Callable[[Recall], None] | None
    _secret: bytes | None

    @abstractmethod
    def _note_use(
        self, used: Sequence[Memory | SearchItem], policy: RecallPolicy, refresh_ttl: bool
    ) -> None:
        """Count these as used."""

    def recall(
        self,
        namespace: Namespaces,
        cue: Cue | str,
        *,
        policy: RecallPolicy | None = None,
        view: View | None = None,
        record: bool = True,
    ) -> Recall:
        """The memories that belong in front of the model now, or none, with reasons.

        Args:
            namespace: Where to look; several namespaces (user and team) are ranked together.
            cue: What is going on: a text, or a `Cue` with several parts.
            policy: In place of the store's own.
            view: What the model sees already; that is not recalled again.
            record: False leaves it to `record_recall` to count what was really shown.

        Returns:
            What was chosen, what was dropped and why, and the trace.
        """
        return run(self._recall(namespace, cue, policy, view, record), self._host)

    async def arecall(
        self,
        namespace: Namespaces,
        cue: Cue | str,
        *,
        policy: RecallPolicy | None = None,
        view: View | None = None,
        record: bool = True,
    ) -> Recall:
        """The async twin of `recall`."""
        return await arun(self._recall(namespace, cue, policy, view, record), self._host)

    def set_policy(self, namespace: Namespace, policy: RecallPolicy | None) -> None:
        """Store a policy for a namespace and all below it; None takes it away.

        Stores made with `stored_policies=True` rank by it.
        """
        run(self._policies.put(namespace, policy), self._host)

    async def aset_policy(self, namespace: Namespace, policy: RecallPolicy | None) -> None:
        """The async twin of `set_policy`."""
        await arun(self._policies.put(namespace, policy), self._host)

    def policy_for(self, namespace: Namespace) -> RecallPolicy:
        """The policy in force for a namespace when a call names none."""
        return run(self._policy_at(namespace, None), self._host)

    async def apolicy_for(self, namespace: Namespace) -> RecallPolicy:
        """The async twin of `policy_for`."""
        return await arun(self._policy_at(namespace, None), self._host)

    def memories(self, ids: Sequence[MemoryId]) -> list[Memory | None]:
        """Memories by namespace and key, None for one that is gone or barred; leaves no trace."""
        return run(self._reader.memories(ids), self._host)

    async def amemories(self, ids: Sequence[MemoryId]) -> list[Memory | None]:
        """The async twin of `memories`."""
        return await arun(self._reader.memories(ids), self._host)

    def secret(self) -> bytes:
        """Random bytes that the side-car keeps, for nonces that no writer of memories can know."""
        if self._secret is None:
            self._secret = run(_kept_secret(), self._host)
        return self._secret

    async def asecret(self) -> bytes:
        """The async twin of `secret`."""
        if self._secret is None:
            self._secret = await arun(_kept_secret(), self._host)
        return self._secret

    def explain(
        self,
        namespace: Namespace,
        key: str,
        cue: Cue | str,
        *,
        policy: RecallPolicy | None = None,
    ) -> Explanation:
        """Why a memory is, or is not, recalled for a cue; leaves no trace."""
        return run(self._explain((namespace, key), _cue(cue), policy), self._host)

    async def aexplain(
        self,
        namespace: Namespace,
        key: str,
        cue: Cue | str,
        *,
        policy: RecallPolicy | None = None,
    ) -> Explanation:
        """The async twin of `explain`."""
        return await arun(self._explain((namespace, key), _cue(cue), policy), self._host)

    def record_recall(self, recall: Recall, policy: RecallPolicy | None = None) -> None:
        """Count what a recall chose as used, and hand the recall to `traces`."""
        self._note_use(recall.memories, policy or self.policy, refresh_ttl=True)
        if self._traces and not is_quiet():
            try:
                self._traces(recall)
            except Exception as fault:
                # Whoever looks on must not break what he looks at.
                logger.warning("A trace could not be handed on: %s", described(fault))

    def _policy_at(self, namespace: Namespace, given: RecallPolicy | None) -> Plan[RecallPolicy]:
        """The call's policy, else the one stored for the namespace, else the store's own."""
        if given is not None or not self._stored_policies:
            return given or self.policy
        return (yield from self._policies.at(namespace)) or self.policy

    def _explain(
        self, memory_id: MemoryId, cue: Cue, policy: RecallPolicy | None
    ) -> Plan[Explanation]:
        policy = yield from self._policy_at(memory_id[0], policy)
        return (yield from self._reader.explain(memory_id, cue, policy))

    def _recall(
        self,
        namespace: Namespaces,
        cue: Cue | str,
        policy: RecallPolicy | None,
        view: View | None,
        record: bool,
    ) -> Plan[Recall]:
        namespaces = _namespaces(namespace)
        policy = yield from self._policy_at(namespaces[0] if namespaces else (), policy)
        recall = yield from self._reader.recall(namespaces, _cue(cue), policy, view)
        if record:
            self.record_recall(recall, policy)
        return recall


def _kept_secret() -> Plan[bytes]:
    """The secret of the side-car, made when there is none; of two makers the last one wins."""
    get = GetOp(SECRET, "nonce", refresh_ttl=False)
    made = {"hex": secrets.token_hex(32)}
    for _ in range(2):
        (item,) = yield Ops([get], sidecar=True)
        if item is not None:
            return bytes.fromhex(item.value["hex"])
        try:
            yield Ops([PutOp(SECRET, "nonce", made, index=False)], sidecar=True)
        except Exception as fault:
            # What cannot be written can still be read; the secret is then this process's own.
            told = described(fault)
            logger.warning("The nonces' secret could not be kept in the store: %s", told)
            break
    return bytes.fromhex(made["hex"])


def _cue(cue: Cue | str) -> Cue:
    if isinstance(cue, Cue):
        return cue
    if isinstance(cue, str):
        return Cue(cue)
    raise InputError(f"A cue must be a text or a Cue, got {cue!r}.")


def _namespaces(namespace: Namespaces) -> list[Namespace]:
    """One namespace, or several."""
    if isinstance(namespace, tuple) and all(isinstance(label, str) for label in namespace):
        return [cast(Namespace, namespace)]
    if isinstance(namespace, str):
        raise InputError(f"A namespace must be a tuple of labels, got {namespace!r}.")
    return [tuple(each) if isinstance(each, list) else each for each in namespace]  # type: ignore[misc]
