"""`Monitor`: the health of recall, always on; what a window of recalls says, and what to change."""

from __future__ import annotations

import math
import threading
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from itertools import chain, pairwise
from operator import itemgetter
from typing import Any, Literal, NamedTuple, TypeVar

from langmem_recall.errors import ConfigurationError, check_whole
from langmem_recall.policy import HOURS_PER_DAY, RecallPolicy
from langmem_recall.types import ASKED, RELEVANCE_GATES, GuardEvent, MemoryId, Namespace, Recall

RECALLED = "recalled"
NOTHING_STORED = "nothing stored"
FAILED = "recall failed"
NO_CANDIDATE = "no candidate found"
NOT_CLEARED = "nothing cleared the floor"
OTHERWISE_DROPPED = "dropped by other gates"
IN_PROMPT = "already in the prompt"
BY_TOOL = "asked for by tool"

GATES = ("floor", "trigger", "composite_floor")
HEALTHY_INJECTION = (0.40, 0.55)
LEAST_INJECTION, MOST_INJECTION, FAR_TOO_MUCH_INJECTION = 0.20, 0.70, 0.80
ENOUGH_RECALLS = 200
"""Recalls it takes to judge the injection rate."""
BLIND, VERY_BLIND = 0.20, 0.50
SOME_RECALLS = 20
"""Recalls, or pairs of them, it takes to judge anything else."""
Z_95 = 1.959964
"""Standard deviations on either side that hold 95 % of a normal distribution."""
STEP = 0.05
"""How far to move a floor at a time."""
MUCH_DRIFT = 0.50
LATEST_CUES, SAME_CUES = 32, 24
"""A cue that so many of so many recalls in a namespace have does not follow the conversation."""
MUCH_REDUNDANCY = 0.30
MUCH_PRESSURE = 0.25
MUCH_DEGRADATION = 0.02
SLOW_S = 0.25
"""The deadline of a recall in an agent's turn."""
LEAST_GOOD = 0.50
SPARSE = 10
"""Fewer memories than this leave little to recall."""
HALF_LIFE_DAYS = (7.0, 30.0)
NEAR_MISS = 0.75
"""Share of the trigger that a best relevance must reach to count as nearly recalled."""
MOVED_BELOW = 0.2
"""Cues that share less of their words than this are about something else."""
SAME_FROM = 0.8
"""Sets of memories, or the words of two texts, that share this much are the same."""
LONGEST_TEXT = 1_000
"""Characters of a cue or a memory that are compared."""
LONGEST_NOTE = 100

Level = Literal["warn", "alarm"]
_Element = TypeVar("_Element")


class HealthWarning(NamedTuple):
    """Something out of its healthy range, and what to change."""

    name: str
    level: Level
    message: str

    def __str__(self) -> str:
        return f"{self.level}: {self.message}"


Warnings = Iterator[HealthWarning]


def warn(name: str, message: str) -> HealthWarning:
    """A warning that is no alarm."""
    return HealthWarning(name, "warn", message)


@dataclass(frozen=True, slots=True)
class MonitorReport:
    """The health of recall over a window; shares are in [0, 1] and NaN where nothing tells."""

    namespace: Namespace | None
    """None for all namespaces together."""
    recalls: int
    outcomes: Mapping[str, int]
    """How often each outcome came: recalled, or why nothing was."""
    injection_rate: float
    """Recalls that brought a memory, but for those by tool and what the prompt has already."""
    injection_interval: tuple[float, float] | None
    """Where that rate lies at 95 % (Wilson); None under 200 recalls."""
    blindness_rate: float
    """Empty recalls among those with memories to look at, but for what the prompt has already."""
    drift: float
    """Clearly new cues that brought the same memories as the cue before."""
    redundancy: float
    """Near-duplicates, dropped or not, among the memories fit to be recalled."""
    budget_pressure: float
    """Recalls in which the budget dropped or shortened memories."""
    latency_ms: Mapping[str, float]
    """p50, p95 and p99."""
    degraded: Mapping[str, int]
    """How often each thing did not work."""
    good: int
    bad: int
    """Outcomes reported through `feedback`."""
    warnings: tuple[HealthWarning, ...] = ()
    verdicts: Mapping[str, int] = field(default_factory=dict)
    """How often the guard said what of a text: allow, mask, quarantine, and failed."""

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain JSON types; null for what nothing tells."""
        warnings = [warning._asdict() for warning in self.warnings]
        return {**_plain(asdict(self)), "warnings": warnings}

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
            *([f"guard: {verdicts}"] if self.verdicts else []),
            *map(str, self.warnings),
        ]
        return "\n".join(lines)


def _plain(field: Any) -> Any:
    if isinstance(field, float):
        return round(field, 6) if math.isfinite(field) else None
    if isinstance(field, dict):
        return {name: _plain(part) for name, part in field.items()}
    return [*map(_plain, field)] if isinstance(field, tuple) else field


def _share(number: float) -> str:
    return "-" if math.isnan(number) else f"{100 * number:.0f} %"


def rate_text(report: MonitorReport) -> str:
    """The injection rate, with its interval where there is one."""
    rate, interval = _share(report.injection_rate), report.injection_interval
    return f"{rate} [{', '.join(map(_share, interval))}]" if interval else rate


class RecallStats(NamedTuple):
    """What is kept of one recall."""

    outcome: str
    best: float
    """Relevance of the best memory of an empty recall."""
    searched: int
    dense: int | None
    """Candidates that came by meaning; None where the trace does not tell."""
    words: int | None
    """Candidates that came by their words."""
    chosen: int
    duplicates: int
    """Near-duplicates that were dropped."""
    alike: int
    """Near-duplicates that were not."""
    is_pressed: bool
    """Whether the budget dropped or shortened anything."""
    seconds: float
    """NaN where the trace has no timings."""
    degraded: tuple[str, ...]
    has_moved: bool
    """Whether the cue is clearly another than that of the recall before."""
    is_stuck: bool
    """Whether the same memories came all the same."""
    salience: tuple[float, float] | None
    """Least and greatest salience of the candidates; None without any."""

    @property
    def fit(self) -> int:
        """Memories that were fit to be recalled."""
        return self.duplicates + self.chosen

    @property
    def is_blind(self) -> bool:
        """Whether it was empty with memories to look at that the prompt does not show."""
        return self.outcome in (NO_CANDIDATE, NOT_CLEARED, OTHERWISE_DROPPED)


Window = Sequence[RecallStats]


class _WindowState:
    """A window of recalls, and what the next one is compared with."""

    def __init__(self, window: int) -> None:
        self.stats: deque[RecallStats] = deque(maxlen=window)
        self.feedback: deque[bool] = deque(maxlen=window)
        self.verdicts: deque[str] = deque(maxlen=window)
        self.cue: frozenset[str] = frozenset()
        self.recalled: frozenset[MemoryId] = frozenset()
        self.cues: deque[str] = deque(maxlen=LATEST_CUES)
        """The words of the latest cues, a turn each."""
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
        self._window = window
        self._most = namespaces
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
            state = self._all if namespace is None else self._states.get(namespace)
            window = list(state.stats) if state else []
            feedback = list(state.feedback) if state else []
            verdicts = Counter(state.verdicts if state else ())
            states = self._states.values() if namespace is None else [state] if state else []
            commonest = [Counter(each.cues).most_common(1) for each in states]
        outcomes = Counter(stats.outcome for stats in window)
        blind = sum(stats.is_blind for stats in window)
        judged = len(window) - outcomes[IN_PROMPT] - outcomes[BY_TOOL]
        moved = sum(stats.has_moved for stats in window)
        doubles = sum(stats.duplicates + stats.alike for stats in window)
        notes = Counter(note for stats in window for note in stats.degraded)
        timed = (1e3 * stats.seconds for stats in window if math.isfinite(stats.seconds))
        sorted_ms = sorted(timed) or [math.nan]
        report = MonitorReport(
            namespace=namespace,
            recalls=len(window),
            outcomes=dict(outcomes.most_common()),
            injection_rate=_ratio(outcomes[RECALLED], judged),
            injection_interval=_wilson(outcomes[RECALLED], judged),
            blindness_rate=_ratio(blind, outcomes[RECALLED] + blind),
            drift=_ratio(sum(stats.is_stuck for stats in window), moved),
            redundancy=_ratio(doubles, sum(stats.fit for stats in window)),
            budget_pressure=_ratio(sum(stats.is_pressed for stats in window), len(window)),
            latency_ms={
                # By nearest rank.
                f"p{percent}": sorted_ms[math.ceil(percent / 100 * len(sorted_ms)) - 1]
                for percent in (50, 95, 99)
            },
            degraded=dict(notes.most_common()),
            good=sum(feedback),
            bad=len(feedback) - sum(feedback),
            verdicts=dict(verdicts.most_common()),
        )
        judges = (_injection_warnings, _blindness_warnings, _quality_warnings, _policy_warnings)
        found = (judge(report, window, self._policy) for judge in judges)
        stuck = max(chain.from_iterable(commonest), key=itemgetter(1), default=("", 0))
        return replace(report, warnings=(*_cue_warnings(*stuck), *chain.from_iterable(found)))

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
    salience = [scored.memory.salience for scored in chosen]
    salience += [drop.memory.salience for drop in recall.dropped]
    words = [_words(scored.memory.text) for scored in chosen]
    has_moved, is_stuck = _compare(recall, state)
    return RecallStats(
        outcome=_outcome(recall, gates),
        best=0.0 if chosen else max(relevances, default=0.0),
        searched=trace.searched,
        dense=trace.channels.get("dense"),
        words=trace.channels.get("words"),
        chosen=len(chosen),
        duplicates=gates.count("duplicate"),
        # Like texts have like scores: neighbours tell.
        alike=sum(_overlap(first, second) >= SAME_FROM for first, second in pairwise(words)),
        is_pressed=bool(trace.compacted) or "budget" in gates,
        seconds=sum(trace.timings.values()) if trace.timings else math.nan,
        degraded=tuple(note.partition(" (")[0][:LONGEST_NOTE] for note in trace.degraded),
        has_moved=has_moved,
        is_stuck=is_stuck,
        salience=(min(salience), max(salience)) if salience else None,
    )


def _outcome(recall: Recall, gates: Sequence[str]) -> str:
    if recall.trace.policy.startswith(ASKED):
        return BY_TOOL
    if recall.chosen:
        return RECALLED
    if "visible" in gates or recall.trace.profile:
        return IN_PROMPT
    if not gates:
        if recall.trace.searched:
            return NO_CANDIDATE
        # Where nothing could be read, it is not known what is stored.
        return FAILED if recall.trace.degraded else NOTHING_STORED
    return OTHERWISE_DROPPED if set(gates).isdisjoint(RELEVANCE_GATES) else NOT_CLEARED


def _compare(recall: Recall, state: _WindowState) -> tuple[bool, bool]:
    """Whether the cue moved since the last recall that brought something, and the memories not."""
    # What is pinned comes whatever is asked.
    recalled = frozenset(memory.id for memory in recall.memories if not memory.pinned)
    if not recalled or recall.trace.policy.startswith(ASKED):
        return False, False
    cue, before, last_cue = _words(recall.trace.cue.words), state.recalled, state.cue
    state.recalled, state.cue = recalled, cue
    has_choice = not 0 < recall.trace.searched <= 2 * len(recalled)
    has_moved = bool(before) and has_choice and _overlap(cue, last_cue) < MOVED_BELOW
    return has_moved, has_moved and _overlap(recalled, before) >= SAME_FROM


def _words(text: str) -> frozenset[str]:
    """The words of a text; pairs of letters where the script may have no spaces."""
    folded = text[:LONGEST_TEXT].casefold()
    if folded.isascii():
        return frozenset(folded.split())
    return frozenset(map("".join, pairwise(folded)))


def _overlap(first: frozenset[_Element], second: frozenset[_Element]) -> float:
    return len(first & second) / len(first | second) if first or second else 1.0


# --- warnings -------------------------------------------------------------------------------------


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


def _cue_warnings(cue: str, count: int) -> Warnings:
    if count >= SAME_CUES:
        yield warn(
            "drift",
            f"The cue does not follow the conversation: {count} of the latest {LATEST_CUES} "
            f"recalls of a namespace searched by {cue[:LONGEST_NOTE]!r}. Build it from the state "
            "of each model call, as build_cue does, not once for the task; if every turn asks "
            "the same, all is well.",
        )


def _injection_warnings(report: MonitorReport, window: Window, policy: RecallPolicy) -> Warnings:
    injected = report.outcomes.get(RECALLED, 0)
    healthy = "healthy is {:.0%} to {:.0%}".format(*HEALTHY_INJECTION)
    share = f"Memories are injected in {rate_text(report)} of recalls ({healthy})"
    if report.injection_interval and report.injection_rate > MOST_INJECTION:
        level: Level = "alarm" if report.injection_rate > FAR_TOO_MUCH_INJECTION else "warn"
        advice = f"noise gets through. Raise {_moved_gates(policy, STEP)}."
        yield HealthWarning("injection", level, f"{share}: {advice}")
    # A floor is not too high because there is nothing to lift over it.
    stored = injected + sum(stats.is_blind for stats in window)
    if stored >= ENOUGH_RECALLS and injected < LEAST_INJECTION * stored:
        advice = f"memories are kept from the model. Lower {_moved_gates(policy, -STEP)}."
        yield warn("injection", f"{share}: {advice}")


def _moved_gates(policy: RecallPolicy, step: float) -> str:
    names = [name for name in GATES if getattr(policy, name)] or ["floor", "trigger"]
    levels = {name: getattr(policy, name) for name in names}
    moved = ", ".join(
        f"{name}={min(max(level + step, 0.0), max(level, 1.0)):.2f}"
        for name, level in levels.items()
    )
    return f"{' and '.join(names)} by {abs(step):g}, to RecallPolicy.replace({moved})"


def _blindness_warnings(report: MonitorReport, window: Window, policy: RecallPolicy) -> Warnings:
    blind = [stats for stats in window if stats.is_blind]
    stored = len(blind) + report.outcomes.get(RECALLED, 0)
    if stored < SOME_RECALLS or not report.blindness_rate > BLIND:
        return
    near = sum(stats.best >= NEAR_MISS * policy.trigger for stats in blind)
    size = sorted(stats.searched for stats in blind)[len(blind) // 2]
    came_near = f"{near} of {len(blind)} came near"
    # How much speaks for each: a channel is off only when it never brought anything.
    causes = {
        f"floor too high ({came_near}): lower {_moved_gates(policy, -STEP)}": near / len(blind),
        "lexical arm off: make the store with a larger Caching(index_limit=...)": all(
            stats.words == 0 for stats in window
        ),
        "embedder missing: give the inner store an index with embeddings, or use LocalStore": all(
            stats.dense == 0 for stats in window
        ),
        f"store sparse ({size:,} memories): remember more before recalling": size < SPARSE,
    }
    aside = ""
    if is_healthy(report.injection_rate):
        aside = " The injection rate is healthy: if those cues were off topic, all is well."
    elif not any(causes.values()):
        aside = " No cause shows in the traces: if those cues were off topic, all is well."
    off_topic = sum(stats.outcome == NOT_CLEARED for stats in blind)
    yield HealthWarning(
        "blindness",
        "alarm" if report.blindness_rate > VERY_BLIND else "warn",
        f"Memories are stored, yet {_share(report.blindness_rate)} of recalls were empty (nothing "
        f"cleared the floor in {off_topic} of {len(blind)}).{aside} Causes, likeliest first: "
        f"{'; '.join(sorted(causes, key=causes.__getitem__, reverse=True))}.",
    )


def _quality_warnings(report: MonitorReport, window: Window, policy: RecallPolicy) -> Warnings:
    moved = sum(stats.has_moved for stats in window)
    count, p95, outcomes = report.recalls, report.latency_ms["p95"], report.good + report.bad
    degraded = sum(bool(stats.degraded) for stats in window)
    checks = {
        "drift": (
            moved >= SOME_RECALLS and report.drift > MUCH_DRIFT,
            f"In {_share(report.drift)} of {moved} changes of topic the same memories came. "
            "Raise the floor, lower the weights of recency, importance and strength, and check "
            "that the cue is built from the current turn.",
        ),
        "redundancy": (
            sum(stats.fit for stats in window) >= SOME_RECALLS
            and report.redundancy > MUCH_REDUNDANCY,
            f"{_share(report.redundancy)} of what is fit to be recalled says the same twice. Run "
            "sweep to merge near-duplicates; lower duplicate_similarity to drop more of them.",
        ),
        "budget": (
            count >= SOME_RECALLS and report.budget_pressure > MUCH_PRESSURE,
            f"The budget shortened or dropped memories in {_share(report.budget_pressure)} of "
            f"recalls. Raise budget, lower top_k (now {policy.top_k}), or store shorter memories.",
        ),
        "latency": (
            count >= SOME_RECALLS and p95 > 1e3 * SLOW_S,
            f"One recall in twenty takes over {p95:.0f} ms; a turn waits {1e3 * SLOW_S:.0f} ms. "
            "Use LocalStore or an HNSW index, or a nearer embedder.",
        ),
        "degradation": (
            count >= SOME_RECALLS and degraded > MUCH_DEGRADATION * count,
            f"{degraded:,} of {count:,} recalls ran degraded, mostly: "
            f"{next(iter(report.degraded), '')}. Check the embedder and the store.",
        ),
        "feedback": (
            outcomes >= SOME_RECALLS and report.good < LEAST_GOOD * outcomes,
            f"Only {report.good} of {outcomes} outcomes were good. Raise "
            f"{_moved_gates(policy, STEP)}, and tune on the recorded traces.",
        ),
    }
    for name, (is_bad, message) in checks.items():
        if is_bad:
            yield warn(name, message)


def _policy_warnings(report: MonitorReport, window: Window, policy: RecallPolicy) -> Warnings:
    ranges = [stats.salience for stats in window if stats.salience is not None]
    extremes = list(chain.from_iterable(ranges))
    if len(ranges) >= SOME_RECALLS and max(extremes) - min(extremes) < 1e-6:
        yield from salience_warnings("Every memory has", min(extremes), policy)
    if window:
        yield from half_life_warnings(policy)


# --- checks that `doctor` shares ------------------------------------------------------------------


def is_healthy(injection_rate: float) -> bool:
    """Whether memories come neither too often nor too seldom."""
    low, high = HEALTHY_INJECTION
    return low <= injection_rate <= high


def salience_warnings(subject: str, salience: float, policy: RecallPolicy) -> Warnings:
    """Warn of one salience for all memories, where the policy reads it."""
    if _reads(policy, "importance"):
        yield warn(
            "salience",
            f"{subject} salience {salience:g}, so importance tells none apart. Pass salience= to "
            "remember, or set weights.importance to 0.",
        )


def half_life_warnings(policy: RecallPolicy) -> Warnings:
    """Warn of a half-life that is unusual, where the policy reads it."""
    days, (low, high) = policy.half_life_hours / HOURS_PER_DAY, HALF_LIFE_DAYS
    if not low <= days <= high and _reads(policy, "recency"):
        yield warn(
            "half_life",
            f"A half-life of {days:.3g} days lies outside {low:g} to {high:g}: recency "
            "forgets too soon, or tells too little apart. Set half_life_hours between "
            f"{low * HOURS_PER_DAY:g} and {high * HOURS_PER_DAY:g}, or let langmem-recall eval "
            "decide.",
        )


def _reads(policy: RecallPolicy, signal: str) -> bool:
    """Whether the policy's formula reads a signal, recency by its half-life."""
    if policy.blend in ("bounded", "linear", "minmax"):
        weights = (policy.weights, *policy.tiers.values())
        return any(getattr(tier, signal) for tier in weights)
    if policy.blend == "interpolated":
        return signal == "importance"
    return policy.blend == "product"
