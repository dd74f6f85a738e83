"""What a guard is, the guard that judges by rules, and guards in a chain."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, get_args

from langmem_recall.errors import ConfigurationError
from langmem_recall.guard import matching
from langmem_recall.guard.matching import END, QUOTE
from langmem_recall.guard.normalise import Hidden, decodings, find_hidden, fold, strip_hidden

Action = Literal["allow", "quarantine", "reject"]


class Verdict(NamedTuple):
    """What a guard says of a text."""

    action: Action = "allow"
    reasons: tuple[str, ...] = ()
    text: str | None = None
    """The text without its hidden characters; None when it had none, or was not read."""


class Guard(Protocol):
    """Anything that judges a text before it is stored: rules, a model, another library."""

    def __call__(self, text: str, /) -> Verdict:
        """The verdict on a text."""


def allow_all(_: str) -> Verdict:
    """The guard that lets every text pass."""
    return Verdict()


ACTIONS: tuple[Action, ...] = get_args(Action)
"""What a guard may say, the mildest first."""

CHUNK_CHARS, OVERLAP_CHARS = 4_096, 512
"""A long text is read in chunks that share an edge wider than any rule's reach."""
MOST_MATCHES = 32
"""Matches of one rule in one chunk that are weighed; more of the same adds nothing."""
NEAR_WORDS = 80
"""Findings further apart than this say nothing about each other."""
MENTION_WORDS = 16
"""How far before a finding a word may stand that shows it is only talked about."""
MENTIONED = 0.4
"""What is left of a finding that is only talked about."""
DISGUISED, CONCEALED = 1.0, 0.5
"""What an encoding, or hidden characters, add to findings: a preference needs no disguise."""
REPEATED = 0.5
"""What a second sign of the same kind counts."""
PHRASE_CHARS = 60
"""Longest piece of the text quoted in a reason."""


def chain(*guards: Guard) -> Guard:
    """Guards in turn, each on the text as the one before left it; the strictest verdict counts."""

    def judge(text: str, /) -> Verdict:
        action, shown = ACTIONS[0], text
        reasons: dict[str, None] = {}
        for guard in guards:
            verdict = guard(shown)
            action = max(action, verdict.action, key=ACTIONS.index)
            reasons |= dict.fromkeys(verdict.reasons)
            shown = shown if verdict.text is None else verdict.text
            if action == "reject":
                break
        return Verdict(action, tuple(reasons), None if shown == text else shown)

    return judge


@dataclass(frozen=True, slots=True)
class RuleGuard:
    """Judges by rules over normalised words: no model, no network, below a millisecond."""

    quarantine_at: float = 1.0
    """Score from which a text is stored but not shown until it is approved."""
    reject_at: float = 2.0
    """Score from which a text is not stored: several signs of an attack, or one in disguise."""
    longest_chars: int = 32_768
    """A longer text is not read, so that an attack can neither hide in it nor take up time: it is
    stored but not shown until it is approved."""

    def __post_init__(self) -> None:
        """Check the knobs."""
        if not 0 < self.quarantine_at <= self.reject_at:
            raise ConfigurationError(
                f"RuleGuard needs 0 < quarantine_at <= reject_at, got {self.quarantine_at} and "
                f"{self.reject_at}. The defaults are 1.0 and 2.0."
            )
        if self.longest_chars < 1:
            raise ConfigurationError(
                f"RuleGuard.longest_chars must be at least 1, got {self.longest_chars}. "
                "The default is 32,768."
            )

    def __call__(self, text: str, /) -> Verdict:
        """The verdict on a text; findings that stand near each other add up."""
        if len(text) > self.longest_chars:
            return Verdict("quarantine", (f"too much to judge: {len(text):,} characters",))
        hidden = find_hidden(text)
        shown = None if hidden.text == text else hidden.text
        case = _worst_case(hidden, self.reject_at)
        if case.score < self.quarantine_at:
            return Verdict("allow", (), shown)
        words = matching.pieces_of(case.tokens)
        reasons = [
            f"{found.reason}: {_shortened(' '.join(words[found.start : found.end]))}"
            for found in case.findings
        ]
        reasons += [case.disguise] if case.disguise else []
        is_rejected = case.score >= self.reject_at
        return Verdict("reject" if is_rejected else "quarantine", tuple(reasons), shown)


default_guard: Guard = RuleGuard()
"""The guard with its default knobs."""


class _Finding(NamedTuple):
    """One rule's match, from word to word."""

    reason: str
    weight: float
    start: int
    end: int


class _Case(NamedTuple):
    """What speaks against a text."""

    score: float = 0.0
    findings: Sequence[_Finding] = ()
    tokens: Sequence[str] = ()
    """The words the findings are found in."""
    disguise: str = ""


def _worst_case(hidden: Hidden, enough: float) -> _Case:
    """The strongest case that any part of the text makes, in plain or under a disguise."""
    worst, plain = _Case(), 0.0
    # Words in characters that cannot be seen, or backwards, are no mistake.
    if hidden.message:
        worst = _Case(1.0, disguise=f"hidden characters: {_shortened(hidden.message)}")
    elif hidden.reversed:
        worst = _Case(1.0, disguise=f"reversed text: {_shortened(hidden.reversed)}")
    for disguise, text in _readings(hidden):
        case = _strongest_case(text, enough)
        plain = plain if disguise else case.score
        if case.score <= (plain if disguise else 0.0):
            continue
        extra = (DISGUISED if disguise else 0.0) + (CONCEALED if hidden.is_concealing else 0.0)
        case = case._replace(score=case.score + extra, disguise=disguise)
        worst = max(worst, case, key=lambda case: case.score)
        if worst.score >= enough:
            break
    return worst


def _readings(hidden: Hidden) -> Iterator[tuple[str, str]]:
    """The text, what its hidden characters say and what is encoded in it, with the disguise."""
    disguises = ("", "hidden characters", "reversed text")
    texts = (hidden.readable, hidden.message, hidden.reversed)
    for disguise, text in zip(disguises, texts, strict=True):
        for start in range(0, len(text), CHUNK_CHARS - OVERLAP_CHARS):
            chunk = text[start : start + CHUNK_CHARS]
            yield disguise, fold(chunk)
            for encoding, plain in decodings(chunk):
                yield f"encoded: {encoding}", fold(strip_hidden(plain))


def _strongest_case(text: str, enough: float) -> _Case:
    """The strongest case made by findings of one neighbourhood."""
    tokens = matching.tokens_of(text)
    found = _findings(matching.encode(tokens))
    starts = [finding.start for finding in found]
    strongest = _Case()
    for place, start in enumerate(starts):
        near = _independent(found[place : bisect_left(starts, start + NEAR_WORDS)])
        total = sum(finding.weight for finding in near)
        if total > strongest.score:
            strongest = _Case(total, near, tokens)
        if strongest.score >= enough:
            break
    return strongest


def _independent(found: list[_Finding]) -> list[_Finding]:
    """Each reason's heaviest finding, and half of a second that stands elsewhere."""
    chosen: dict[str, list[_Finding]] = {}
    for finding in sorted(found, key=lambda finding: -finding.weight):
        known = chosen.setdefault(finding.reason, [])
        if not known:
            known.append(finding)
        elif len(known) == 1 and (finding.start >= known[0].end or known[0].start >= finding.end):
            known.append(finding._replace(weight=finding.weight * REPEATED))
    return [finding for known in chosen.values() for finding in known]


def _findings(codes: str) -> list[_Finding]:
    """What the rules find, in the order of the text."""
    talk = matching.compiled(f"[{matching.vocabulary().members['talk']}]")
    found = []
    for rule in matching.possible_rules(codes):
        # Counted apart, so that mentions cannot crowd out what is meant.
        meant: list[tuple[int, int]] = []
        mentions: list[tuple[int, int]] = []
        for match in matching.compiled(rule.pattern).finditer(codes):
            (mentions if _is_mention(match, talk) else meant).append(match.span())
        for weight, spans in ((rule.weight, meant), (rule.weight * MENTIONED, mentions)):
            found += [_Finding(rule.reason, weight, *span) for span in spans[:MOST_MATCHES]]
    return sorted(found, key=lambda finding: finding.start)


def _is_mention(match: re.Match[str], talk: re.Pattern[str]) -> bool:
    """Whether a sentence talks about the words instead of saying them."""
    codes, (start, end) = match.string, match.span()
    begin = codes.rfind(END, 0, start) + 1
    if talk.search(codes, max(begin, start - MENTION_WORDS), start):
        return True
    is_quoted = codes.count(QUOTE, begin, start) % 2 == 1
    return is_quoted and talk.search(codes, begin, end + MENTION_WORDS) is not None


def _shortened(text: str) -> str:
    return text if len(text) <= PHRASE_CHARS else text[: PHRASE_CHARS - 1] + "…"
