"""What a guard is, the guard that judges by rules, and guards in a chain."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache, reduce
from operator import or_
from typing import Literal, NamedTuple, Protocol, get_args

from langmem_recall.errors import ConfigurationError
from langmem_recall.guard import matching
from langmem_recall.guard.matching import Scope, Severity, bits_of
from langmem_recall.guard.normalise import decodings, find_hidden, fold
from langmem_recall.text.invisible import strip_hidden
from langmem_recall.types import Source

Action = Literal["allow", "mask", "quarantine", "reject"]
ACTIONS: tuple[Action, ...] = get_args(Action)
"""What a guard may say, the mildest first."""
OWN_SOURCES: frozenset[str] = frozenset({"user_stated", "user_correction"})
"""The user's own words: only what cannot be the user's is looked for in them."""


class Span(NamedTuple):
    """A part of a text that a guard objects to, in the text without its hidden characters."""

    start: int
    end: int
    rule: str = ""
    severity: Severity = "medium"


class Verdict(NamedTuple):
    """What a guard says of a text."""

    action: Action = "allow"
    """allow; mask: the spans are withheld; quarantine: all of it; reject: as quarantine, and a
    store with `on_bad="reject"` refuses it. Such a store refuses what is masked, too."""
    reasons: tuple[str, ...] = ()
    text: str | None = None
    """The text without its hidden characters; None when it had none, or was not read."""
    spans: tuple[Span, ...] = ()


class Guard(Protocol):
    """Anything that judges a text before it is stored: rules, a model, another library.

    Called with the text and the source of it; a callable of one argument gets the text alone. It
    may be `async`, or return something to await.
    """

    def __call__(self, text: str, source: Source, /) -> Verdict | Awaitable[Verdict]:
        """The verdict on a text from a source."""


AnyGuard = Guard | Callable[[str], Verdict | Awaitable[Verdict]]
"""A guard, or a callable that judges by the text alone."""


def allow_all(_text: str, _source: Source = "external", /) -> Verdict:
    """The guard that lets every text pass."""
    return Verdict()


def ask(guard: AnyGuard, text: str, source: Source) -> Verdict | Awaitable[Verdict]:
    """What a guard says, whether or not it asks for the source."""
    # Reading a signature takes longer than judging a sentence.
    read = _takes_source if isinstance(guard, Hashable) else _takes_source.__wrapped__
    takes_source = read(guard)  # type: ignore[arg-type]
    return guard(text, source) if takes_source else guard(text)  # type: ignore[call-arg]


@lru_cache(maxsize=16)
def _takes_source(guard: AnyGuard) -> bool:
    try:
        inspect.signature(guard).bind("", "external")
    except TypeError:
        return False
    except ValueError:
        return True
    return True


def chain(*guards: AnyGuard) -> Guard:
    """Guards in turn, each on the text as the one before left it; the strictest verdict counts."""

    async def judge(text: str, source: Source = "external", /) -> Verdict:
        action, shown = ACTIONS[0], text
        reasons: dict[str, None] = {}
        spans: set[Span] = set()
        for guard in guards:
            verdict = ask(guard, shown, source)
            if inspect.isawaitable(verdict):
                verdict = await verdict
            action = max(action, verdict.action, key=ACTIONS.index)
            reasons |= dict.fromkeys(verdict.reasons)
            # Spans count in the text without hidden characters: stripping it moves none.
            spans |= set(verdict.spans)
            shown = shown if verdict.text is None else verdict.text
            if action == "reject":
                break
        cleaned = None if shown == text else shown
        return Verdict(action, tuple(reasons), cleaned, tuple(sorted(spans)))

    return judge


CHUNK_CHARS, EDGE_CHARS = 4_096, 1_024
"""A long text is read in chunks, cut at the last line or sentence that ends in a chunk's edge."""
NEAR_SENTENCES = 2
"""How far back a sentence may speak to the agent for the next ones to be about what it says."""
JOINED_CHARS = 80
"""What stands between two withheld parts and is shorter than this is withheld with them."""
PHRASE_CHARS = 60
"""Longest piece of the text quoted in a reason."""
_ADDRESSING = "addressed|agent_colon|agent_must|you_agent"
# A line that goes on in lower case is the same sentence; a new one begins otherwise.
_BREAK = re.compile(r"\n(?!\s*[a-z])|\n[ \t]*\n")
_BROKEN = "\n. "
_SENTENCE = re.compile(r"(?:[^.!?\u3002\n]|[.!?](?=\w)|\n(?=[ \t]*[a-z]))+[.!?\u3002]*\s*|\s+|.")
_PARAGRAPH = re.compile(r"(?:[^\n]|\n(?![ \t]*\n))+\s*|\s+")
_LETTER = re.compile(r"\w")


@dataclass(frozen=True, slots=True)
class RuleGuard:
    """Judges by what a text tries to do, in ten languages: no model, no network."""

    whole_share: float = 0.6
    """Share of a text's characters from which not the spans but all of it is withheld."""

    def __post_init__(self) -> None:
        """Check the knobs."""
        if not 0 < self.whole_share <= 1:
            raise ConfigurationError(
                f"RuleGuard.whole_share must be above 0 and up to 1, got {self.whole_share}. "
                "The default is 0.6."
            )

    def __call__(self, text: str, source: Source = "external", /) -> Verdict:
        """The verdict on a text; the user's own words are judged for what cannot be the user's."""
        hidden = find_hidden(text)
        clean = hidden.text
        scope: Scope = "own" if source in OWN_SOURCES else "others"
        shown = None if clean == text else clean
        if len(hidden.readable) != len(clean):
            # Gaps that are drawn but not kept: places in the two texts differ.
            rules = _rules_of(fold(hidden.readable), scope)
            found = [(0, len(clean), *rule) for rule in rules]
        else:
            found = list(_found(hidden.readable, scope))
        if hidden.is_concealing:
            found += _concealing_lines(text)
        if not found:
            return Verdict("allow", (), shown)
        spans = _joined(clean, [Span(*each) for each in found])
        withheld = sum(len(_LETTER.findall(clean[span.start : span.end])) for span in spans)
        is_whole = withheld >= self.whole_share * len(_LETTER.findall(clean))
        said = {span: " ".join(clean[span.start : span.end].split()) for span in spans}
        reasons = dict.fromkeys(
            f"{span.rule}: {text if len(text) <= PHRASE_CHARS else text[: PHRASE_CHARS - 1] + '…'}"
            for span, text in said.items()
        )
        return Verdict("quarantine" if is_whole else "mask", tuple(reasons), shown, spans)


default_guard: Guard = RuleGuard()
"""The guard with its default knobs."""

_Rule = tuple[str, Severity]
_Found = tuple[int, int, str, Severity]


def _found(text: str, scope: Scope) -> Iterator[_Found]:
    """The parts of a text that a rule objects to."""
    for start, chunk in _chunks(text):
        for begin, end, rule, severity in _found_in(chunk, scope):
            yield start + begin, start + end, rule, severity
    deep: Scope = "own" if scope == "own" else "encoded"
    for run in decodings(text):
        rules = _rules_of(fold(strip_hidden(run.plain)), deep)
        # An order is not said again by a name that says less.
        for rule, severity in [rule for rule in rules if rule[0] != "order"] or rules:
            yield run.start, run.end, f"{rule}, encoded as {run.encoding}", severity


def _chunks(text: str) -> Iterator[tuple[int, str]]:
    start = 0
    while start < len(text):
        end = start + CHUNK_CHARS
        if end < len(text):
            edge = end - EDGE_CHARS
            cuts = (text.rfind(sign, edge, end) for sign in ("\n\n", "\n", ". ", "\u3002", " "))
            end = next((cut + 1 for cut in cuts if cut > 0), end)
        yield start, text[start:end]
        start = end


def _found_in(chunk: str, scope: Scope) -> list[_Found]:
    """What the rules find in a chunk, sentence by sentence where they can be told apart."""

    def rules(text: str) -> list[_Rule]:
        return _rules_of(fold(_BREAK.sub(_BROKEN, text)), scope)

    whole = rules(chunk)
    if not whole:
        return []
    found = list[_Found]()
    parts = [part for part in _SENTENCE.finditer(chunk) if _LETTER.search(part.group())]
    signals = [_signals(fold(part.group())).values() for part in parts]
    together = [(place, reduce(or_, each, 0)) for place, each in enumerate(signals)]
    for part, broken in zip(parts, _broken(together, scope), strict=True):
        found += [(*part.span(), *rule) for rule in broken]
    for part in _PARAGRAPH.finditer(chunk):
        # Some need more than one sentence, such as a tag and its end.
        if not any(part.start() <= start < part.end() for start, *_ in found):
            found += [(*part.span(), *rule) for rule in rules(part.group())]
    return found or [(0, len(chunk), *rule) for rule in whole]


def _broken(signals: Iterable[tuple[int, int]], scope: Scope) -> Iterator[tuple[_Rule, ...]]:
    """The rules that each sentence breaks, from the places of sentences and their signals."""
    last = dict.fromkeys(matching.CARRIED, -NEAR_SENTENCES - 1)
    for place, own in signals:
        present = own
        for name, makers in matching.CARRIED.items():
            if place - last[name] <= NEAR_SENTENCES:
                present |= bits_of(name)
            if own & bits_of(makers):
                last[name] = place
        is_talk = present & bits_of("talk") and scope != "encoded"
        yield () if is_talk else matching.rules_of(present, scope)


def _rules_of(text: str, scope: Scope) -> list[_Rule]:
    """The rules that some sentence of a folded text breaks."""
    found = _broken(_signals(text, scope).items(), scope)
    return list(dict.fromkeys(rule for rules in found for rule in rules))


def _signals(text: str, scope: Scope | None = None) -> dict[int, int]:
    """The signals of the sentences of a folded text, by their place; with a scope, what adds up."""
    found = dict(matching.signals_of(matching.encode(matching.tokens_of(text)), scope))
    # A conversation names its speakers, and speaks to none of them by it.
    spoken = [place for place, bits in found.items() if bits & bits_of("dialogue")]
    for place in spoken if len(spoken) > 1 else ():
        found[place] &= ~bits_of(_ADDRESSING)
    return found


def _concealing_lines(text: str) -> Iterator[_Found]:
    """The lines in which hidden characters cover something up, in the text without them."""
    start = 0
    for line in text.split("\n"):
        hidden = find_hidden(line)
        if hidden.is_concealing:
            yield start, start + len(hidden.text), "hidden characters", "high"
        start += len(hidden.text) + 1


def _joined(text: str, spans: list[Span]) -> tuple[Span, ...]:
    """Spans without the space around them, those close to each other as one."""
    joined: list[Span] = []
    for span in sorted(spans):
        piece = text[span.start : span.end]
        start = span.start + len(piece) - len(piece.lstrip())
        span = span._replace(start=start, end=span.start + len(piece.rstrip()))
        last = joined[-1] if joined else None
        if last and start - last.end <= JOINED_CHARS and "\n\n" not in text[last.end : start]:
            is_worse = (span.severity, span.rule) != (last.severity, last.rule)
            rules = dict.fromkeys((*last.rule.split("; "), span.rule)) if is_worse else [last.rule]
            severity: Severity = "high" if "high" in (last.severity, span.severity) else "medium"
            end = max(last.end, span.end)
            joined[-1] = Span(last.start, end, "; ".join(rules), severity)
        elif span.end > span.start or not text:
            joined.append(span)
    return tuple(joined)
