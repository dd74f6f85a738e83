"""`WritePolicy`: which observations may become memories, and for how long."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from types import MappingProxyType
from typing import Any

from langmem_recall.errors import InputError, PolicyError, RecallError

ALLOWED: Mapping[str, timedelta | None] = MappingProxyType(
    {
        "user_stated_preference": None,
        "tool_result_verified": timedelta(days=7),
        "task_completion_strategy": timedelta(days=90),
        "session_summary": timedelta(days=30),
    }
)
"""What is worth remembering unless said otherwise, and how long it is valid; None: for good.

Everything else is refused: intermediate reasoning, failed tool calls, speculative inference and
whatever has no name here.
"""


@dataclass(frozen=True, slots=True)
class WritePolicy:
    """Consulted when `remember` is told what kind of observation a text is; default deny."""

    allow: Mapping[str, timedelta | None] = field(default_factory=lambda: ALLOWED, hash=False)
    """Observations that may be stored, with the time they stay valid; None: for good."""

    def __post_init__(self) -> None:
        if not isinstance(self.allow, Mapping):
            raise PolicyError(
                f"WritePolicy.allow must map observations to times, got {self.allow!r:.80}. "
                'Write {"session_summary": timedelta(days=30)}.'
            )
        for observation, ttl in self.allow.items():
            if not isinstance(observation, str) or not observation.strip():
                raise PolicyError(f"An observation must be a name, got {observation!r:.80}.")
            if ttl is not None and not (isinstance(ttl, timedelta) and ttl > timedelta()):
                raise PolicyError(
                    f"WritePolicy.allow[{observation!r}] must be a timedelta above 0 or None, got "
                    f"{ttl!r:.80}."
                )
        object.__setattr__(self, "allow", MappingProxyType(dict(self.allow)))

    def __reduce__(self) -> tuple[Any, ...]:
        """Copied and pickled by its table, because a read-only mapping cannot be."""
        return WritePolicy, (dict(self.allow),)

    def ttl_of(self, observation: str) -> timedelta | None:
        """How long such an observation stays valid; RecallError where it may not be stored."""
        if not isinstance(observation, str):
            raise InputError(f"observation must be a name, got {observation!r:.80}.")
        if observation not in self.allow:
            raise RecallError(
                f"The write policy does not store {observation!r}; it stores "
                f"{', '.join(self.allow) or 'nothing'}. Nothing was stored; to allow it, pass "
                "Writing(write_policy=WritePolicy(allow={**WritePolicy().allow, "
                f"{observation!r}: None}})), or leave observation out."
            )
        return self.allow[observation]
