"""`Monitor`: the health of recall, always on; what a window of recalls says, and what to change."""

from __future__ import annotations

import json
import math
import threading
import tomllib
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from importlib.resources import files
from itertools import chain, pairwise
from operator import itemgetter
from typing import Any, Literal, NamedTuple, TypeVar

from langmem_recall.errors import ConfigurationError, check_whole
from langmem_recall.policy import RecallPolicy
from langmem_recall.types import ASKED, RELEVANCE_GATES, GuardEvent, MemoryId, Namespace, Recall

RECALLED = "recalled"
NOTHING_STORED = "nothing stored"
FAILED = "recall failed"
NO_CANDIDATE = "no candidate found"
NOT_CLEARED = "nothing cleared the floor"
OTHERWISE_DROPPED = "dropped by other gates"
IN_PROMPT = "already in the prompt"
BY_TOOL = "asked for by tool"
BLIND = (NO_CANDIDATE, NOT_CLEARED, OTHERWISE_DROPPED)
"""Empty with memories to look at that the prompt does not show."""

GATES = ("floor", "trigger", "composite_floor")
HEALTHY_INJECTION = (0.40, 0.55)
LEAST_INJECTION, MOST_INJECTION, FAR_TOO_MUCH_INJECTION = 0.20, 0.70, 0.80
ENOUGH_RECALLS, SOME_RECALLS = 200, 20  # recalls it takes to judge the injection rate, the rest
LIMITS = {
    "blindness": 0.20,  # of what could bring a memory
    "drift: same memories": 0.50,  # of changes of topic
    "redundancy": 0.30,  # of what is fit to be recalled
    "budget": 0.25,
    "degradation": 0.02,
    "feedback": 0.50,  # bad outcomes among those reported
}
"""Shares beyond which a sign is warned of."""
FAR_TOO_MUCH_BLINDNESS = 0.50
SLOW_MS = 250  # the deadline of a recall in an agent's turn
LATEST_CUES, SAME_CUES = 32, 24
"""A cue that so many of so many recalls in a namespace have does not follow the conversation."""
Z_95 = 1.959964  # standard deviations on either side that hold 95 % of a normal distribution
STEP = 0.05  # how far to move a floor at a time
SPARSE = 10  # fewer memories than this leave little to recall
NEAR_MISS = 0.75  # share of the trigger that a best relevance must reach to be a near miss
MOVED_BELOW, SAME_FROM = 0.2, 0.8
"""Cues that share less of their words are about something else; sets that share more are alike."""
LONGEST_TEXT, LONGEST_NOTE = 1_000, 100  # characters that are compared, and repeated

_ADVICE = tomllib.loads(files(__package__).joinpath("advice.toml").read_text("utf-8"))
Level = Literal["warn", "alarm", "pass", "unknown"]
_Element = TypeVar("_Element")


class Finding(NamedTuple):
    """Something out of its healthy range, and what to change; or that it is as it should be."""

    name: str
    level: Level
    message: str

    def __str__(self) -> str:
        return f"{self.level}: {self.message}"


def advise(advice: str, level: Level = "warn", **facts: Any) -> Finding:
    """The warning of that name in advice.toml, with what is known of the case."""
    return Finding(advice.partition(":")[0], level, _ADVICE[advice].format(**facts))


@dataclass(frozen=True, slots=True)
class MonitorReport:
    """The health of recall over a window; shares are in [0, 1] and NaN where nothing tells."""

    namespace: Namespace | None  # None for all namespaces together
    recalls: int
    outcomes: Mapping[str, int]  # how often each outcome came: recalled, or why nothing was
    # Neither counts what the prompt has already.
    injection_rate: float  # recalls that brought a memory, but for those by tool
    injection_interval: tuple[float, float] | None  # of it at 95 % (Wilson), from 200 recalls on
    blindness_rate: float  # empty recalls among those with memories to look at
    drift: float  # clearly new cues that brought the same memories as the cue before
    redundancy: float  # near-duplicates, dropped or not, among the memories fit to be recalled
    budget_pressure: float  # recalls in which the budget dropped or shortened memories
    latency_ms: Mapping[str, float]  # p50, p95 and p99
    degraded: Mapping[str, int]  # how often each thing did not work
    good: int
    bad: int  # outcomes reported through `feedback`
    warnings: tuple[Finding, ...] = ()
    verdicts: Mapping[str, int] = field(default_factory=dict)
    """How often the guard said what of a text: allow, mask, quarantine, and failed."""

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain JSON types; null for what nothing tells."""
        plain = json.loads(json.dumps(asdict(self)), parse_constant=lambda _: None)
        return {**plain, "warnings": [warning._asdict() for warning in self.warnings]}

    def __str__(self) -> str:
        where = "all namespaces" if self.namespace is None else "/".join(self.namespace)
        outcomes = ", ".join(f"{count:,} {name}" for name, count in self.outcomes.items())
        latency = ", ".join(f"{name} {ms:.1f} ms" for name, ms in self.latency_ms.items())
        verdicts = ", ".join(f"{count:,} {name}" for name, count in self.verdicts.items())
        lines = [
            f"{self.recalls:,} recalls in {where}" + (f": {outcomes}" if outcomes else ""),
            f"injected {rate_text(self)}, blind {_share(self.blindness_rate)}, "
            f"drift {_share(self.drift)}, redundant {_share(self.redundancy)}, "
            f"budget pressed {_share(self.budget_pressure)}",
            f"latency {latency.replace('nan', '-')}; feedback {self.good} good, {self.bad} bad",
            *(f"degraded {count:,} times: {note}" for note, count in self.degraded.items()),
            *([f"guard: {verdicts}"] if verdicts else []),
            *map(str, self.warnings),
        ]
        return "\n".join(lines)


def _share(number: float) -> str:
    return "-" if math.isnan(number) else f"{100 * number:.0f} %"


def rate_text(report: MonitorReport) -> str:
    """The injection rate, with its interval where there is one."""
    rate, interval = _share(report.injection_rate), report.injection_interval
    return f"{rate} [{', '.join(map(_share, interval))}]" if interval else rate


class RecallStats(NamedTuple):
    """What is kept of one recall."""

    outcome: str
    best: float  # relevance of the best memory of an empty recall
    searched: int
    channels: Mapping[str, int]
    fit: int  # memories that were fit to be recalled
    duplicates: int  # near-duplicates among them, dropped or not
    is_pressed: bool
    ms: float | None
    degraded: tuple[str, ...]
    has_moved: bool  # whether the cue is clearly another than that of the recall before
    is_stuck: bool  # whether the same memories came all the same


class _WindowState:
    """A window of recalls, and what the next one is compared with."""

    def __init__(self, window: int) -> None:
        self.stats: deque[RecallStats] = deque(maxlen=window)
        self.feedback: deque[bool] = deque(maxlen=window)
        self.verdicts: deque[str] = deque(maxlen=window)
        self.cue: frozenset[str] = frozenset()
        self.recalled: frozenset[MemoryId] = frozenset()
        self.cues: deque[str] = deque(maxlen=LATEST_CUES)  # their words, a turn each
        self.latest_cue: tuple[datetime, str] | None = None


class Monitor:
    """A sink for `RecallStore(traces=...)` that keeps the vital signs of the latest recalls.

    Args:
        window: Recalls that a report looks back on, in all and for each namespace.
        namespaces: Namespaces that are watched one by one; the longest unused makes room.
        policy: The policy in force, for the numbers that warnings advise.
    """

    def __init__(
        self, window: int = 1000, *, namespaces: int = 100, policy: RecallPolicy | None = None
    ) -> None:
        check_whole("window", window, 1, ConfigurationError)
        check_whole("namespaces", namespaces, 1, ConfigurationError)
        self._window, self._most = window, namespaces
        self._policy = policy or RecallPolicy.default()
        self._lock = threading.Lock()
        self._all = _WindowState(window)
        self._states: dict[Namespace, _WindowState] = {}

    def __call__(self, recall: Recall) -> None:
        """Take note of a recall."""
        with self._lock:
            states = [self._state(namespace) for namespace in recall.trace.namespaces]
            stats = _stats_of(recall, states[0] if states else self._all)
            for state in (self._all, *states):
                state.stats.append(stats)
            words = " ".join(recall.trace.cue.words[:LONGEST_TEXT].casefold().split())
            for state in states if words and stats.outcome != BY_TOOL else ():
                # An agent recalls once a turn for a cue; the same at the same time is one turn.
                if (recall.trace.at, words) != state.latest_cue:
                    state.cues.append(words)
                state.latest_cue = recall.trace.at, words

    def feedback(self, namespace: Namespace, key: str, good: bool) -> None:
        """Take note of what came of a memory that was recalled; `RecallStore.feedback` calls it."""
        with self._lock:
            for state in (self._all, self._state(namespace)):
                state.feedback.append(good)

    def verdict(self, event: GuardEvent) -> None:
        """Take note of what the guard said of a text; a `RecallStore` calls it."""
        with self._lock:
            for state in (self._all, self._state(event.namespace)):
                state.verdicts.append("failed" if event.has_failed else event.action)

    def report(self, namespace: Namespace | None = None) -> MonitorReport:
        """The health of all recalls in the window, or of one namespace's."""
        with self._lock:
            state, states = self._all, list(self._states.values())
            if namespace is not None:
                states = [state := self._states.get(namespace) or _WindowState(1)]
            window, feedback, verdicts = list(state.stats), list(state.feedback), state.verdicts
            said = Counter(verdicts).most_common()
            cues = chain.from_iterable(Counter(each.cues).most_common(1) for each in states)
            commonest = max(cues, key=itemgetter(1), default=("", 0))

        def total(count: str) -> int:
            return sum(getattr(stats, count) for stats in window)

        outcomes = Counter(stats.outcome for stats in window)
        injected, blind = outcomes[RECALLED], sum(outcomes[name] for name in BLIND)
        judged = len(window) - outcomes[IN_PROMPT] - outcomes[BY_TOOL]
        notes = Counter(chain.from_iterable(stats.degraded for stats in window))
        signs = {
            "blindness": (blind, injected + blind),
            "drift: same memories": (total("is_stuck"), total("has_moved")),
            "redundancy": (total("duplicates"), total("fit")),
            "budget": (total("is_pressed"), len(window)),
            "degradation": (sum(bool(stats.degraded) for stats in window), len(window)),
            "feedback": (feedback.count(False), len(feedback)),
        }
        sorted_ms = sorted(stats.ms for stats in window if stats.ms is not None) or [math.nan]
        report = MonitorReport(
            namespace=namespace,
            recalls=len(window),
            outcomes=dict(outcomes.most_common()),
            injection_rate=_ratio(injected, judged),
            injection_interval=_wilson(injected, judged),
            blindness_rate=_ratio(*signs["blindness"]),
            drift=_ratio(*signs["drift: same memories"]),
            redundancy=_ratio(*signs["redundancy"]),
            budget_pressure=_ratio(*signs["budget"]),
            latency_ms={
                # By nearest rank.
                f"p{percent}": sorted_ms[math.ceil(percent / 100 * len(sorted_ms)) - 1]
                for percent in (50, 95, 99)
            },
            degraded=dict(notes.most_common()),
            good=feedback.count(True),
            bad=feedback.count(False),
            verdicts=dict(said),
        )
        warnings = _warnings(report, window, signs, self._policy, *commonest)
        return replace(report, warnings=tuple(warnings))

    def erase(self, namespace: Namespace, key: str | None = None) -> int:
        """Forget a namespace and all below it, or that a memory was recalled."""
        with self._lock:
            below = [place for place in self._states if place[: len(namespace)] == namespace]
            for place in below:
                if key is None:
                    del self._states[place]
                else:
                    self._states[place].recalled = frozenset()
        return len(below)

    def _state(self, namespace: Namespace) -> _WindowState:
        """The window of a namespace, which is now the latest used."""
        state = self._states.pop(namespace, None) or _WindowState(self._window)
        self._states[namespace] = state
        if len(self._states) > self._most:
            del self._states[next(iter(self._states))]
        return state


def _stats_of(recall: Recall, state: _WindowState) -> RecallStats:
    """What is kept of a recall; the state remembers it for the next one."""
    trace, chosen = recall.trace, recall.chosen
    gates = [drop.gate for drop in recall.dropped]
    relevances = [drop.scored.signals.relevance for drop in recall.dropped]
    words = [_words(scored.memory.text) for scored in chosen]
    # Like texts have like scores: neighbours tell.
    alike = sum(_overlap(first, second) >= SAME_FROM for first, second in pairwise(words))
    dropped = gates.count("duplicate")
    has_moved = is_stuck = False
    # What is pinned comes whatever is asked.
    recalled = frozenset(memory.id for memory in recall.memories if not memory.pinned)
    if recalled and not trace.policy.startswith(ASKED):
        cue, has_choice = _words(trace.cue.words), not 0 < trace.searched <= 2 * len(recalled)
        is_other = bool(state.recalled) and _overlap(cue, state.cue) < MOVED_BELOW
        has_moved = has_choice and is_other
        is_stuck = has_moved and _overlap(recalled, state.recalled) >= SAME_FROM
        state.recalled, state.cue = recalled, cue
    return RecallStats(
        outcome=_outcome(recall, gates),
        best=0.0 if chosen else max(relevances, default=0.0),
        searched=trace.searched,
        channels=trace.channels,
        fit=len(chosen) + dropped,
        duplicates=dropped + alike,
        is_pressed=bool(trace.compacted) or "budget" in gates,
        ms=1e3 * sum(trace.timings.values()) if trace.timings else None,
        degraded=tuple(note.partition(" (")[0][:LONGEST_NOTE] for note in trace.degraded),
        has_moved=has_moved,
        is_stuck=is_stuck,
    )


def _outcome(recall: Recall, gates: Sequence[str]) -> str:
    trace = recall.trace
    if trace.policy.startswith(ASKED):
        return BY_TOOL
    if recall.chosen:
        return RECALLED
    if "visible" in gates or trace.profile:
        return IN_PROMPT
    if gates:
        return OTHERWISE_DROPPED if set(gates).isdisjoint(RELEVANCE_GATES) else NOT_CLEARED
    # Where nothing could be read, it is not known what is stored.
    empty = FAILED if trace.degraded else NOTHING_STORED
    return NO_CANDIDATE if trace.searched else empty


def _words(text: str) -> frozenset[str]:
    """The words of a text; pairs of letters where the script may have no spaces."""
    folded = text[:LONGEST_TEXT].casefold()
    return frozenset(folded.split() if folded.isascii() else map("".join, pairwise(folded)))


def _overlap(first: frozenset[_Element], second: frozenset[_Element]) -> float:
    return len(first & second) / len(first | second) if first or second else 1.0


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else math.nan


def _wilson(part: int, whole: int) -> tuple[float, float] | None:
    """The 95 % interval of a share (Wilson), once there are enough recalls to judge it."""
    if whole < ENOUGH_RECALLS:
        return None
    share, extra = part / whole, Z_95**2 / whole
    middle = share + extra / 2
    reach = math.sqrt(extra * (share * (1 - share) + extra / 4))
    return max((middle - reach) / (1 + extra), 0.0), min((middle + reach) / (1 + extra), 1.0)


# --- warnings -------------------------------------------------------------------------------------


def _warnings(
    report: MonitorReport,
    window: Sequence[RecallStats],
    signs: Mapping[str, tuple[int, int]],
    policy: RecallPolicy,
    cue: str,
    cue_count: int,
) -> Iterator[Finding]:
    """All that is out of its healthy range; the cue is the commonest of the latest ones."""
    # A floor is not too high because there is nothing to lift over it.
    injected, (_, stored) = report.outcomes.get(RECALLED, 0), signs["blindness"]
    is_judged, rate = report.injection_interval is not None, report.injection_rate
    checks = {
        "drift: one cue": cue_count >= SAME_CUES,
        "injection: high": is_judged and rate > MOST_INJECTION,
        "injection: low": stored >= ENOUGH_RECALLS and injected < LEAST_INJECTION * stored,
        **{
            name: whole >= SOME_RECALLS and part > LIMITS[name] * whole
            for name, (part, whole) in signs.items()
        },
        "latency": report.recalls >= SOME_RECALLS and report.latency_ms["p95"] > SLOW_MS,
    }
    alarms = {
        "injection: high": rate > FAR_TOO_MUCH_INJECTION,
        "blindness": report.blindness_rate > FAR_TOO_MUCH_BLINDNESS,
    }
    facts: dict[str, Any] = {
        "report": report,
        "policy": policy,
        **{"cue": cue[:LONGEST_NOTE], "cue_count": cue_count, "latest_cues": LATEST_CUES},
        "rate": rate_text(report),
        "healthy": "healthy is {:.0%} to {:.0%}".format(*HEALTHY_INJECTION),
        "raised": _moved_gates(policy, STEP),
        "lowered": _moved_gates(policy, -STEP),
        "not_cleared": report.outcomes.get(NOT_CLEARED, 0),
        "mostly": next(iter(report.degraded), ""),
    }
    if checks["blindness"]:
        facts |= _blindness_causes(window, policy, facts["lowered"], is_healthy(rate))
    for name, is_bad in checks.items():
        if is_bad:
            part, whole = signs.get(name, (0, 0))
            facts |= {"part": part, "whole": whole, "share": _share(_ratio(part, whole))}
            yield advise(name, "alarm" if alarms.get(name) else "warn", **facts)


def _moved_gates(policy: RecallPolicy, step: float) -> str:
    names = [name for name in GATES if getattr(policy, name)] or ["floor", "trigger"]
    levels = ((name, getattr(policy, name)) for name in names)
    moved = ", ".join(
        f"{name}={min(max(level + step, 0.0), max(level, 1.0)):.2f}" for name, level in levels
    )
    return f"{' and '.join(names)} by {abs(step):g}, to RecallPolicy.replace({moved})"


def _blindness_causes(
    window: Sequence[RecallStats], policy: RecallPolicy, lowered: str, is_calm: bool
) -> dict[str, str]:
    """What may be the cause, by how much speaks for it, and whether it is one at all."""
    blind = [stats for stats in window if stats.outcome in BLIND]
    near = sum(stats.best >= NEAR_MISS * policy.trigger for stats in blind)
    size = sorted(stats.searched for stats in blind)[len(blind) // 2]
    # A channel is off only when it never brought anything.
    has_words, has_dense = (
        any(stats.channels.get(channel) != 0 for stats in window) for channel in ("words", "dense")
    )
    causes = {
        f"floor too high ({near} of {len(blind)} came near): lower {lowered}": near / len(blind),
        "lexical arm off: make the store with a larger Caching(index_limit=...)": not has_words,
        "embedder missing: give the inner store an index with embeddings, or use LocalStore": (
            not has_dense
        ),
        f"store sparse ({size:,} memories): remember more before recalling": size < SPARSE,
    }
    sign = "The injection rate is healthy" if is_calm else "No cause shows in the traces"
    is_fine = is_calm or not any(causes.values())
    return {
        "causes": "; ".join(sorted(causes, key=causes.__getitem__, reverse=True)),
        "aside": f" {sign}: if those cues were off topic, all is well." if is_fine else "",
    }


def is_healthy(injection_rate: float) -> bool:
    """Whether memories come neither too often nor too seldom."""
    return HEALTHY_INJECTION[0] <= injection_rate <= HEALTHY_INJECTION[1]
