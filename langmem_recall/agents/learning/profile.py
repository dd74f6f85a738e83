"""What a session starts with: a few memories about the user and the work as a whole."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from math import isnan

from langmem_recall.errors import ConfigurationError
from langmem_recall.memory.upkeep import is_in_force
from langmem_recall.types import VERIFIED_TRUST, Memory

SUMMARY_TAG = "session_summary"
"""Marks the summary that a session has left."""
SURE = 0.8
"""Confidence from which a memory is part of a profile."""
MOST_LISTED = 500
"""Memories of a namespace that a profile is chosen from, the latest first."""
# A question about all that is known, or about where things were left; in six languages.
_ABOUT_ALL = re.compile(
    r"""(?ix)
    \b(?:what|tell\ me|show\ me|list|summari[sz]e)\b[^.?!]{0,40}
        \b(?:know|have|remember|got|stored|recall|learned)\b[^.?!]{0,20}
        \b(?:about|on|of)\ (?:me|us)\b
    |\bwho\ am\ i\b|\bwhere\ (?:were|was|did)\ (?:we|i)\b(?:\ (?:leave|stop|left)\b|[^\w]*$)
    |\b(?:where|what)\ (?:we|i)\ left\ off\b|\bleft\ off\b
    |\bwhat\ (?:did|were|have)\ we\ (?:do|talk|discuss|work|been)\w*\b[^.?!]{0,30}
        \b(?:last|before|earlier|yesterday|so\ far)\b
    |\bpick\ up\ where\b|\bcatch\ me\ up\b|\bwhat\ is\ (?:open|left|pending)\W*$
    |\bwas\ wei(?:ß|ss)t\ du\ (?:alles\ )?(?:über|von)\ (?:mich|mir|uns)\b
    |\bwo\ waren\ wir\b|\bwo\ sind\ wir\ stehen\s?geblieben\b
    |\bque\ sais-tu\ (?:de|sur)\ (?:moi|nous)\b|\boù\ en\ (?:étions|sommes)-nous\b
    |\bqué\ sabes\ (?:de|sobre)\ (?:mí|mi|nosotros)\b
    |\b(?:por\ )?dónde\ (?:íbamos|estábamos|quedamos)\b
    |\b(?:che\ )?cosa\ sai\ (?:di|su)\ (?:me|noi)\b|\bdove\ eravamo\b
    |\bo\ que\ (?:você\ )?sabe(?:s)?\ (?:de|sobre)\ (?:mim|nós)\b
    |\bonde\ (?:é\ que\ )?(?:parámos|paramos|estávamos)\b
    """
)


@dataclass(frozen=True, slots=True)
class Profile:
    """A small profile in the first turn of a thread.

    Args:
        share: Of the budget for memory, what the profile may use.
        most: Memories that it has at most.
    """

    share: float = 0.25
    most: int = 12

    def __post_init__(self) -> None:
        if isinstance(self.share, bool) or not isinstance(self.share, int | float):
            raise ConfigurationError(f"Profile.share must be a number, got {self.share!r:.80}.")
        if not 0 < self.share <= 1:
            raise ConfigurationError(f"Profile.share must be in (0, 1], got {self.share!r:.80}.")
        if isinstance(self.most, bool) or not isinstance(self.most, int) or self.most < 1:
            raise ConfigurationError(f"Profile.most must be a count from 1, got {self.most!r:.80}.")


def asks_for_all(words: str) -> bool:
    """Whether words ask about the user or the work as a whole."""
    return _ABOUT_ALL.search(words[:1_000]) is not None


def profile_of(memories: Iterable[Memory], now: datetime, most: int) -> list[Memory]:
    """Pinned memories, then the salient and sure ones, then the newest summary of a session."""
    in_force = [memory for memory in memories if is_in_force(memory, now)]
    summaries = [memory for memory in in_force if SUMMARY_TAG in memory.tags]
    lasting = [
        memory
        for memory in in_force
        if memory.pinned
        or (
            memory.kind != "episodic"
            and memory.confidence_at(now) >= SURE
            and memory.authority >= VERIFIED_TRUST
        )
    ]
    # What somebody confirmed was asked about again, so it matters more than what was said once.
    lasting.sort(
        key=lambda one: (one.pinned, one.salience, one.confirmed_at is not None, _age(one))
    )
    newest = sorted(summaries, key=_age)[-1:]
    return [*lasting[::-1][: most - len(newest)], *newest]


def _age(memory: Memory) -> float:
    return float("-inf") if isnan(memory.written_ts) else memory.written_ts
