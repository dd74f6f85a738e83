"""What `RecallStore` offers beyond a store: memories written, corrected, forgotten, tidied."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, TypedDict

from typing_extensions import Unpack

from langmem_recall.errors import described
from langmem_recall.flows.effects import Call, Host, Plan, arun, run
from langmem_recall.memory.sweep import STEPS, Forgotten, Step, SweepReport
from langmem_recall.policy import RecallPolicy
from langmem_recall.stores.sweep import Sweeper, SweepRequest
from langmem_recall.stores.writes import Writer
from langmem_recall.types import Kind, Memory, Namespace, Recall, Source

logger = logging.getLogger(__name__)


class MemoryFields(TypedDict, total=False):
    """Provenance that `remember` takes."""

    kind: Kind
    source: Source
    confidence: float
    salience: float
    written_at: datetime
    thread_id: str
    turn: int | str
    speaker: str
    entities: Sequence[str]
    tags: Sequence[str]
    valid_from: datetime
    valid_until: datetime
    supersedes: Sequence[str]
    derived_from: Sequence[str]
    pinned: bool


class MemoryMethods:
    """The writing half of a `RecallStore`, each method with its async twin."""

    _writer: Writer
    _host: Host
    _traces: Callable[[Recall], None] | None

    def remember(
        self,
        namespace: Namespace,
        text: str,
        *,
        key: str | None = None,
        ttl: timedelta | None = None,
        observation: str | None = None,
        **fields: Unpack[MemoryFields],
    ) -> Memory:
        """Store a memory with its provenance, or reinforce the one that says the same.

        NUL and lone surrogates in text and names are cleaned away; text beyond the store's
        `max_text` and what cannot be meant raise InputError. Where the embedder fails the memory is
        stored all the same, and indexed by a later `remember` or `sweep`.

        Args:
            namespace: Whose memory it is.
            text: The words to remember.
            key: Its name: stored under it whatever else is there. When absent a key is made up,
                unless a memory in force says the same; then that one is reinforced and returned.
            ttl: How long it is valid; reads never extend it.
            observation: What kind of observation it is; the write policy says whether such a one
                is stored and, without `ttl` or `valid_until`, for how long.
            **fields: Provenance: kind, source, salience, speaker and the like. `supersedes` names
                memories that this one takes the place of; they become its history.

        Returns:
            The memory as stored, with its key and status.

        Raises:
            RecallError: The guard rejects the text, which is then in the error's `text`; or the
                write policy rejects the observation.
        """
        plan = self._writer.remember(namespace, text, key, ttl, observation, fields)
        return run(plan, self._host)

    async def aremember(
        self,
        namespace: Namespace,
        text: str,
        *,
        key: str | None = None,
        ttl: timedelta | None = None,
        observation: str | None = None,
        **fields: Unpack[MemoryFields],
    ) -> Memory:
        """The async twin of `remember`."""
        plan = self._writer.remember(namespace, text, key, ttl, observation, fields)
        return await arun(plan, self._host)

    def correct(
        self, namespace: Namespace, key: str, text: str, *, source: Source = "user_correction"
    ) -> Memory:
        """Put a corrected text in a memory's place; the former one is kept as history.

        A source that is less trusted than the memory only proposes it: what is returned then has
        the status "quarantined" and a key of its own, and `confirm` carries it out.
        """
        return run(self._writer.correct(namespace, key, text, source), self._host)

    async def acorrect(
        self, namespace: Namespace, key: str, text: str, *, source: Source = "user_correction"
    ) -> Memory:
        """The async twin of `correct`."""
        return await arun(self._writer.correct(namespace, key, text, source), self._host)

    def confirm(self, namespace: Namespace, key: str) -> Memory:
        """Vouch for a memory: full confidence, and it no longer needs verification.

        What a less trusted source proposed (`quarantined` lists it) is carried out with this.
        """
        return run(self._writer.confirm(namespace, key), self._host)

    async def aconfirm(self, namespace: Namespace, key: str) -> Memory:
        """The async twin of `confirm`."""
        return await arun(self._writer.confirm(namespace, key), self._host)

    def approve(self, namespace: Namespace, key: str, *, text: str | None = None) -> Memory:
        """Let a quarantined memory be recalled, in the place of the one it waited beside.

        Args:
            namespace: Whose memory it is.
            key: Its key, as `quarantined` lists it.
            text: The words that were reviewed, where that happened in another process: others are
                not approved. What this process has listed it compares by itself.
        """
        return run(self._writer.approve(namespace, key, text), self._host)

    async def aapprove(self, namespace: Namespace, key: str, *, text: str | None = None) -> Memory:
        """The async twin of `approve`."""
        return await arun(self._writer.approve(namespace, key, text), self._host)

    def quarantined(self, namespace: Namespace) -> list[Memory]:
        """Memories at or below a namespace that wait for approval.

        The guard's reasons are in `memory.value["quarantine"]["reasons"]`.
        """
        return run(self._writer.quarantined(namespace), self._host)

    async def aquarantined(self, namespace: Namespace) -> list[Memory]:
        """The async twin of `quarantined`."""
        return await arun(self._writer.quarantined(namespace), self._host)

    def feedback(self, namespace: Namespace, key: str | Sequence[str], good: bool = True) -> None:
        """Tell what came of using a memory, or several: each step moves its score a little.

        Steps count from -5 to 5 in all; `RecallPolicy.feedback_step` says how much one is worth.
        Nothing is read or written here: outcomes are written behind, like uses, and handed to
        `traces` where that takes feedback.
        """
        self._writer.feedback(namespace, key, good)
        forward_feedback(self._traces, namespace, key, good)

    async def afeedback(
        self, namespace: Namespace, key: str | Sequence[str], good: bool = True
    ) -> None:
        """The async twin of `feedback`."""
        self._writer.feedback(namespace, key, good)
        forward_feedback(self._traces, namespace, key, good)

    def forget(self, namespace: Namespace, key: str, *, source: Source = "user_stated") -> bool:
        """Delete a memory with its history, vectors, words and usage.

        A store's file may keep deleted bytes until it is rewritten: `compact()` of a LocalStore.

        Args:
            namespace: Whose memory it is.
            key: Its key.
            source: Who wants it forgotten. One that is less trusted than the memory only proposes
                it: `quarantined` lists the proposal, and `confirm` carries it out.

        Returns:
            Whether it was deleted: False when there was none, or it was only proposed.
        """
        return run(self._forget(namespace, key, source), self._host)

    async def aforget(
        self, namespace: Namespace, key: str, *, source: Source = "user_stated"
    ) -> bool:
        """The async twin of `forget`."""
        return await arun(self._forget(namespace, key, source), self._host)

    def history(self, namespace: Namespace, key: str) -> list[Memory]:
        """A memory and the values it had before, newest first, each with its time and source."""
        return run(self._writer.history(namespace, key), self._host)

    async def ahistory(self, namespace: Namespace, key: str) -> list[Memory]:
        """The async twin of `history`."""
        return await arun(self._writer.history(namespace, key), self._host)

    def _forget(self, namespace: Namespace, key: str, source: Source) -> Plan[bool]:
        gone = yield from self._writer.forget(namespace, key, source)
        if gone is not None:
            yield from erased(self._traces, namespace, key)
        return bool(gone)


class UpkeepMethods:
    """The housekeeping half of a `RecallStore`, each method with its async twin."""

    _upkeep: Sweeper
    _host: Host
    _traces: Callable[[Recall], None] | None

    @abstractmethod
    def _policy_at(self, namespace: Namespace, given: RecallPolicy | None) -> Plan[RecallPolicy]:
        """The policy in force for a namespace."""

    def sweep(
        self,
        namespace: Namespace,
        *,
        apply: bool = False,
        steps: Sequence[Step] = STEPS,
        cold_after: timedelta | None = None,
        purge_history_before: datetime | None = None,
        limit: int = 1_000,
        after: int | None = None,
    ) -> SweepReport:
        """Say what is to become of the memories at or below a namespace, and do it if asked to.

        Args:
            namespace: Whose memories.
            apply: False: a dry run that changes nothing.
            steps: "expire" removes what is past `valid_until`; "decay" takes 0.05 off the
                confidence of unconfirmed inferences, which go below 0.3; "merge" makes one of
                near-duplicates and keeps the provenance of all.
            cold_after: List what was neither used nor written for so long, coldest first, by the
                signals that recall uses. It is never deleted.
            purge_history_before: Delete what was superseded before then.
            limit: Memories that one call looks at.
            after: The `next` of a report, to go on where it stopped.

        Returns:
            What was done, or would be, to which memory and why.
        """
        ask = SweepRequest(namespace, apply, steps, cold_after, purge_history_before, limit, after)
        return run(self._sweep(ask), self._host)

    async def asweep(
        self,
        namespace: Namespace,
        *,
        apply: bool = False,
        steps: Sequence[Step] = STEPS,
        cold_after: timedelta | None = None,
        purge_history_before: datetime | None = None,
        limit: int = 1_000,
        after: int | None = None,
    ) -> SweepReport:
        """The async twin of `sweep`."""
        ask = SweepRequest(namespace, apply, steps, cold_after, purge_history_before, limit, after)
        return await arun(self._sweep(ask), self._host)

    def forget_namespace(self, namespace: Namespace) -> Forgotten:
        """Delete everything at or below a namespace: memories, history, vectors, usage, verdicts.

        Whatever the side-car holds about it goes too. A LocalStore is then compacted, so that no
        byte of it is left in the file.
        """
        return run(self._forget_namespace(namespace), self._host)

    async def aforget_namespace(self, namespace: Namespace) -> Forgotten:
        """The async twin of `forget_namespace`."""
        return await arun(self._forget_namespace(namespace), self._host)

    def _sweep(self, ask: SweepRequest) -> Plan[SweepReport]:
        ask.check()
        policy = yield from self._policy_at(ask.namespace, None)
        return (yield from self._upkeep.sweep(ask, policy))

    def _forget_namespace(self, namespace: Namespace) -> Plan[Forgotten]:
        forgotten = yield from self._upkeep.forget_namespace(namespace)
        yield from erased(self._traces, namespace)
        return forgotten


def erased(traces: Any, *what: Any) -> Plan[None]:
    """Recorded traces forget too, where they can."""
    erase = getattr(traces, "erase", None)
    if erase is not None:
        yield Call(lambda: erase(*what))


def forward_feedback(
    traces: Any, namespace: Namespace, key: str | Sequence[str], good: bool
) -> None:
    """Whoever looks on learns of outcomes too, where he can; his faults are his own."""
    tell = getattr(traces, "feedback", None)
    if tell is None:
        return
    try:
        for name in [key] if isinstance(key, str) else key:
            tell(namespace, name, good)
    except Exception as fault:
        logger.warning("An outcome could not be handed to traces: %s", described(fault))
