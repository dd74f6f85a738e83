"""What `RecallStore` offers beyond a store: memories written, corrected, forgotten."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TypedDict

from typing_extensions import Unpack

from langmem_recall.drive import Host, arun, run
from langmem_recall.stores.writes import Writer
from langmem_recall.types import Kind, Memory, Namespace, Source


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
    derived_from: Sequence[str]
    pinned: bool


class MemoryMethods:
    """The memory half of a `RecallStore`, each method with its async twin."""

    _writer: Writer
    _host: Host

    def remember(
        self,
        namespace: Namespace,
        text: str,
        *,
        key: str | None = None,
        ttl: timedelta | None = None,
        **fields: Unpack[MemoryFields],
    ) -> Memory:
        """Store a memory with its provenance.

        Args:
            namespace: Whose memory it is.
            text: The words to remember.
            key: Its name; generated when absent.
            ttl: How long it is valid; reads never extend it.
            **fields: Provenance: kind, source, salience, speaker and the like.

        Returns:
            The memory as stored, with its key and status.
        """
        return run(self._writer.remember(namespace, text, key, ttl, fields), self._host)

    async def aremember(
        self,
        namespace: Namespace,
        text: str,
        *,
        key: str | None = None,
        ttl: timedelta | None = None,
        **fields: Unpack[MemoryFields],
    ) -> Memory:
        """The async twin of `remember`."""
        return await arun(self._writer.remember(namespace, text, key, ttl, fields), self._host)

    def correct(self, namespace: Namespace, key: str, text: str) -> Memory:
        """Put a corrected text in a memory's place; the former one is kept as history."""
        return run(self._writer.correct(namespace, key, text), self._host)

    async def acorrect(self, namespace: Namespace, key: str, text: str) -> Memory:
        """The async twin of `correct`."""
        return await arun(self._writer.correct(namespace, key, text), self._host)

    def forget(self, namespace: Namespace, key: str) -> bool:
        """Delete a memory with its history and usage; False when there was none."""
        return run(self._writer.forget(namespace, key), self._host)

    async def aforget(self, namespace: Namespace, key: str) -> bool:
        """The async twin of `forget`."""
        return await arun(self._writer.forget(namespace, key), self._host)

    def history(self, namespace: Namespace, key: str) -> list[Memory]:
        """A memory and the values it had before, newest first."""
        return run(self._writer.history(namespace, key), self._host)

    async def ahistory(self, namespace: Namespace, key: str) -> list[Memory]:
        """The async twin of `history`."""
        return await arun(self._writer.history(namespace, key), self._host)
