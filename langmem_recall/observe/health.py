"""What a window of recalls says about the health of recall, and what to change."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, NamedTuple

from langmem_recall.policy import HOURS_PER_DAY, RecallPolicy
from langmem_recall.types import Namespace

RECALLED = "recalled"
NOTHING_STORED = "nothing stored"
FAILED = "recall failed"
NO_CANDIDATE = "no candidate found"
NOT_CLEARED = "nothing cleared the floor"
OTHERWISE_DROPPED = "dropped by other gates"
NOT_LOOKED_AT = (NOTHING_STORED, FAILED)
"""Outcomes without memories to look at."""

HEALTHY_INJECTION = (0.40, 0.55)
LEAST_INJECTION, MOST_INJECTION, FAR_TOO_MUCH_INJECTION = 0.20, 0.70, 0.80
ENOUGH_RECALLS = 200
"""Recalls it takes to judge the injection rate."""
BLIND, VERY_BLIND = 0.20, 0.50
SOME_RECALLS = 20
"""Recalls, or pairs of them, it takes to judge anything else."""
STEP = 0.05
"""How far to move a floor at a time."""
MUCH_DRIFT = 0.50
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


class HealthWarning(NamedTuple):
    """Something out of its healthy range, and what to change."""

    name: str
    level: Literal["warn", "alarm"]
    message: str

    def __str__(self) -> str:
        return f"{self.level}: {self.message}"


@dataclass(frozen=True, slots=True)
class MonitorReport:
    """The health of recall over a window; shares are in [0, 1] and NaN where nothing tells."""

    namespace: Namespace | None
    """None for all namespaces together."""
    recalls: int
    outcomes: Mapping[str, int]
    """How often each outcome came: recalled, or why nothing was."""
    injection_rate: float
    """Recalls that brought a memory."""
    blindness_rate: float
    """Empty recalls among those with memories to look at."""
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
    warnings: tuple[HealthWarning, ...] = field(default=())

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain JSON types; null for what nothing tells."""
        record = asdict(self)
        latency = {name: _plain(ms) for name, ms in self.latency_ms.items()}
        warnings = [warning._asdict() for warning in self.warnings]
        told = {name: _plain(held) for name, held in record.items()}
        return {**told, "latency_ms": latency, "warnings": warnings}

    def __str__(self) -> str:
        where = "all namespaces" if self.namespace is None else "/".join(self.namespace)
        outcomes = ", ".join(f"{count:,} {name}" for name, count in self.outcomes.items())
        p50, p95, p99 = (_shown(self.latency_ms[name], "{:.1f}") for name in ("p50", "p95", "p99"))
        lines = [
            f"{self.recalls:,} recalls in {where}" + (f": {outcomes}" if outcomes else ""),
            f"injected {_share(self.injection_rate)}, blind {_share(self.blindness_rate)}, "
            f"drift {_share(self.drift)}, redundant {_share(self.redundancy)}, "
            f"budget pressed {_share(self.budget_pressure)}",
            f"latency p50 {p50} ms, p95 {p95} ms, p99 {p99} ms; "
            f"feedback {self.good} good, {self.bad} bad",
            *(f"degraded {count:,} times: {note}" for note, count in self.degraded.items()),
            *map(str, self.warnings),
        ]
        return "\n".join(lines)


def _plain(held: Any) -> Any:
    if isinstance(held, float):
        return round(held, 6) if math.isfinite(held) else None
    return list(held) if isinstance(held, tuple) else held


def _shown(number: float, pattern: str) -> str:
    return pattern.format(number) if math.isfinite(number) else "-"


def _share(number: float) -> str:
    return _shown(100 * number, "{:.0f} %")


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else math.nan


def report_of(
    glances: Sequence[RecallStats],
    feedback: Sequence[bool],
    policy: RecallPolicy,
    namespace: Namespace | None,
) -> MonitorReport:
    """What a window of recalls comes to under a policy."""
    count, window = len(glances), Window(glances)
    good = sum(feedback)
    notes = Counter(note for glance in glances for note in glance.degraded)
    report = MonitorReport(
        namespace=namespace,
        recalls=count,
        outcomes=dict(Counter(glance.outcome for glance in glances).most_common()),
        injection_rate=_ratio(window.injected, count),
        blindness_rate=_ratio(window.stored - window.injected, window.stored),
        drift=_ratio(sum(glance.is_stuck for glance in glances), window.moved),
        redundancy=_ratio(window.doubles, window.fit),
        budget_pressure=_ratio(sum(glance.is_pressed for glance in glances), count),
        latency_ms=_latency([1e3 * glance.seconds for glance in glances]),
        degraded=dict(notes.most_common()),
        good=good,
        bad=len(feedback) - good,
    )
    warnings = (warning for check in _CHECKS for warning in check(report, window, policy))
    return replace(report, warnings=tuple(warnings))


class Window:
    """Counts over some recalls that several checks read."""

    def __init__(self, glances: Sequence[RecallStats]) -> None:
        self.glances = glances
        self.injected = sum(glance.outcome == RECALLED for glance in glances)
        self.stored = sum(glance.outcome not in NOT_LOOKED_AT for glance in glances)
        self.moved = sum(glance.has_moved for glance in glances)
        self.doubles = sum(glance.duplicates + glance.alike for glance in glances)
        self.fit = sum(glance.duplicates + glance.chosen for glance in glances)

    @property
    def blind(self) -> list[RecallStats]:
        """Empty recalls with memories to look at."""
        told = (*NOT_LOOKED_AT, RECALLED)
        return [glance for glance in self.glances if glance.outcome not in told]


def _latency(milliseconds: Sequence[float]) -> dict[str, float]:
    """Percentiles by nearest rank."""
    known = sorted(ms for ms in milliseconds if math.isfinite(ms))
    return {
        f"p{percent}": known[math.ceil(percent / 100 * len(known)) - 1] if known else math.nan
        for percent in (50, 95, 99)
    }


# --- checks ---------------------------------------------------------------------------------------

_Check = Callable[[MonitorReport, Window, RecallPolicy], Iterator[HealthWarning]]


def _injection(
    report: MonitorReport, window: Window, policy: RecallPolicy
) -> Iterator[HealthWarning]:
    healthy = "healthy is {:.0%} to {:.0%}".format(*HEALTHY_INJECTION)
    share = f"Memories are injected in {_share(report.injection_rate)} of recalls ({healthy})"
    if report.recalls >= ENOUGH_RECALLS and report.injection_rate > MOST_INJECTION:
        is_far = report.injection_rate > FAR_TOO_MUCH_INJECTION
        yield HealthWarning(
            "injection",
            "alarm" if is_far else "warn",
            f"{share}: noise gets through. Raise {_gates(policy, STEP)}.",
        )
    # A floor is not too high because there is nothing to lift over it.
    if window.stored >= ENOUGH_RECALLS and window.injected < LEAST_INJECTION * window.stored:
        yield HealthWarning(
            "injection",
            "warn",
            f"{share}: memories are kept from the model. Lower {_gates(policy, -STEP)}.",
        )


def _gates(policy: RecallPolicy, step: float) -> str:
    floor, trigger = (min(max(held + step, 0.0), 1.0) for held in (policy.floor, policy.trigger))
    return (
        f"floor and trigger by {abs(step):g}, to RecallPolicy.but(floor={floor:.2f}, "
        f"trigger={trigger:.2f})"
    )


def _blindness(
    report: MonitorReport, window: Window, policy: RecallPolicy
) -> Iterator[HealthWarning]:
    if window.stored < SOME_RECALLS or not report.blindness_rate > BLIND:
        return
    blind = window.blind
    off_topic = sum(glance.outcome == NOT_CLEARED for glance in blind)
    low, high = HEALTHY_INJECTION
    causes = _causes(window, policy)
    aside = ""
    if low <= report.injection_rate <= high:
        aside = " The injection rate is healthy: if those cues were off topic, all is well."
    elif not any(likelihood for likelihood, _ in causes):
        aside = " No cause shows in the traces: if those cues were off topic, all is well."
    yield HealthWarning(
        "blindness",
        "alarm" if report.blindness_rate > VERY_BLIND else "warn",
        f"Memories are stored, yet {_share(report.blindness_rate)} of recalls were empty (nothing "
        f"cleared the floor in {off_topic} of {len(blind)}).{aside} Causes, likeliest first: "
        f"{'; '.join(cause for _, cause in causes)}.",
    )


def _causes(window: Window, policy: RecallPolicy) -> list[tuple[float, str]]:
    """The four causes of blindness and how much speaks for each, the likeliest first."""
    glances, blind = window.glances, window.blind
    near = sum(glance.best >= NEAR_MISS * policy.trigger for glance in blind)
    sizes = sorted(glance.searched for glance in blind)
    causes = [
        (
            near / len(blind),
            f"floor too high ({near} of {len(blind)} came near): lower {_gates(policy, -STEP)}",
        ),
        (
            _share_of(glance.words == 0 for glance in glances),
            "lexical arm off: make the store with a larger Caching(index_limit=...)",
        ),
        (
            _share_of(glance.dense == 0 for glance in glances),
            "embedder missing: give the inner store an index with embeddings, or use LocalStore",
        ),
        (
            float(sizes[len(sizes) // 2] < SPARSE),
            f"store sparse ({sizes[len(sizes) // 2]:,} memories): remember more before recalling",
        ),
    ]
    return sorted(causes, key=lambda cause: -cause[0])


def _share_of(claims: Iterable[bool]) -> float:
    """1 where all claims hold, else 0: a channel is off only when it never brought anything."""
    return float(all(claims))


def _drift(report: MonitorReport, window: Window, _: RecallPolicy) -> Iterator[HealthWarning]:
    if window.moved >= SOME_RECALLS and report.drift > MUCH_DRIFT:
        yield HealthWarning(
            "drift",
            "warn",
            f"In {_share(report.drift)} of {window.moved} changes of topic the same memories came. "
            "Raise the floor, lower the weights of recency, importance and strength, and check "
            "that the cue is built from the current turn.",
        )


def _redundancy(report: MonitorReport, window: Window, _: RecallPolicy) -> Iterator[HealthWarning]:
    if window.fit >= SOME_RECALLS and report.redundancy > MUCH_REDUNDANCY:
        yield HealthWarning(
            "redundancy",
            "warn",
            f"{_share(report.redundancy)} of what is fit to be recalled says the same twice. Run "
            "sweep to merge near-duplicates; lower duplicate_similarity to drop more of them.",
        )


def _budget(report: MonitorReport, _: Window, policy: RecallPolicy) -> Iterator[HealthWarning]:
    if report.recalls >= SOME_RECALLS and report.budget_pressure > MUCH_PRESSURE:
        yield HealthWarning(
            "budget",
            "warn",
            f"The budget shortened or dropped memories in {_share(report.budget_pressure)} of "
            f"recalls. Raise budget, lower top_k (now {policy.top_k}), or store shorter memories.",
        )


def _slowness(report: MonitorReport, _: Window, __: RecallPolicy) -> Iterator[HealthWarning]:
    p95 = report.latency_ms["p95"]
    if report.recalls >= SOME_RECALLS and p95 > 1e3 * SLOW_S:
        yield HealthWarning(
            "latency",
            "warn",
            f"One recall in twenty takes over {p95:.0f} ms; a turn waits {1e3 * SLOW_S:.0f} ms. "
            "Use LocalStore or an HNSW index, or a nearer embedder.",
        )


def _degradation(report: MonitorReport, window: Window, _: RecallPolicy) -> Iterator[HealthWarning]:
    hurt = sum(bool(glance.degraded) for glance in window.glances)
    if report.recalls >= SOME_RECALLS and hurt > MUCH_DEGRADATION * report.recalls:
        yield HealthWarning(
            "degradation",
            "warn",
            f"{hurt:,} of {report.recalls:,} recalls ran degraded, mostly: "
            f"{next(iter(report.degraded))}. Check the embedder and the store.",
        )


def _feedback(report: MonitorReport, _: Window, policy: RecallPolicy) -> Iterator[HealthWarning]:
    told = report.good + report.bad
    if told >= SOME_RECALLS and report.good < LEAST_GOOD * told:
        yield HealthWarning(
            "feedback",
            "warn",
            f"Only {report.good} of {told} outcomes were good. Raise {_gates(policy, STEP)}, and "
            "tune on the recorded traces.",
        )


def _salience(_: MonitorReport, window: Window, policy: RecallPolicy) -> Iterator[HealthWarning]:
    seen = [glance.salience for glance in window.glances if glance.salience is not None]
    if len(seen) < SOME_RECALLS or not policy.weights.importance:
        return
    low, high = min(low for low, _ in seen), max(high for _, high in seen)
    if high - low < 1e-6:
        yield HealthWarning(
            "salience",
            "warn",
            f"Every memory has salience {low:g}, so that importance tells nothing apart. Pass "
            "salience to remember(), or set the weight of importance to 0.",
        )


def _half_life(report: MonitorReport, _: Window, policy: RecallPolicy) -> Iterator[HealthWarning]:
    days, (low, high) = policy.half_life_hours / HOURS_PER_DAY, HALF_LIFE_DAYS
    if report.recalls and policy.weights.recency and not low <= days <= high:
        yield HealthWarning(
            "half_life",
            "warn",
            f"The half-life is {days:.3g} days; {low:g} to {high:g} suit most agents. Set "
            "half_life_hours, unless this was measured.",
        )


_CHECKS: tuple[_Check, ...] = (
    *(_injection, _blindness, _drift, _redundancy, _budget, _slowness),
    *(_degradation, _feedback, _salience, _half_life),
)
