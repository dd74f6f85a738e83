"""Recalls as OpenTelemetry spans and metrics, where `opentelemetry-api` is installed."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from langmem_recall.errors import MissingExtraError
from langmem_recall.observe.show import recall_id
from langmem_recall.types import GuardEvent, Recall

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

SCOPE = "langmem_recall"


def telemetry(
    *, tracer_provider: TracerProvider | None = None, meter_provider: MeterProvider | None = None
) -> Callable[[Recall], None]:
    """A sink for `RecallStore(traces=...)` that records a span and metrics for every recall.

    Neither memories nor cues nor namespaces are recorded: they hold words and names of people. The
    span's `recall.id` finds the trace in a `TraceLog`.

    Args:
        tracer_provider: The global one when absent.
        meter_provider: The global one when absent.

    Raises:
        MissingExtraError: `opentelemetry-api` is not installed.
    """
    try:
        from opentelemetry import metrics, trace
    except ImportError as error:
        raise MissingExtraError(
            "telemetry() needs opentelemetry-api, which is not installed. "
            'Run: pip install "langmem-recall[otel]"'
        ) from error
    tracer = trace.get_tracer(SCOPE, tracer_provider=tracer_provider)
    meter = metrics.get_meter(SCOPE, meter_provider=meter_provider)
    recalls = meter.create_counter("recall.count", description="Recalls, by outcome")
    seconds = meter.create_histogram("recall.duration", "s", "Time that a recall took")
    chosen = meter.create_histogram("recall.memories", description="Memories that were recalled")
    drops = meter.create_counter("recall.drops", description="Candidates dropped, by gate")
    faults = meter.create_counter("recall.degraded", description="Recalls that ran degraded")
    verdicts = meter.create_counter("guard.verdicts", description="Texts judged, by verdict")

    def record(recall: Recall) -> None:
        happened, gates = recall.trace, recall.drop_counts()
        known: dict[str, Any] = {
            "id": recall_id(recall),
            "policy": happened.policy,
            "searched": happened.searched,
            "candidates": len(recall.chosen) + len(recall.dropped),
            "memories": len(recall.chosen),
            "tokens": happened.tokens,
            "compacted": len(happened.compacted),
            "budget_tokens": happened.budget_tokens,
            **{f"dropped.{gate}": count for gate, count in gates.items()},
            **{f"channel.{name}": count for name, count in happened.channels.items()},
            **{f"{stage}_ms": 1e3 * seconds for stage, seconds in happened.timings.items()},
        }
        attributes = {f"recall.{name}": it for name, it in known.items() if it is not None}
        took_s, end = sum(happened.timings.values()), time.time_ns()
        start = end - int(took_s * 1e9)
        span = tracer.start_span("recall", start_time=start, attributes=attributes)
        for note in happened.degraded:
            # What stands in brackets is an error's own words, which may quote anything.
            span.add_event("degraded", {"recall.note": note.partition(" (")[0]})
        span.end(end)
        recalls.add(1, {"recall.outcome": "recalled" if recall.chosen else "empty"})
        seconds.record(took_s)
        chosen.record(len(recall.chosen))
        for gate, count in gates.items():
            drops.add(count, {"recall.gate": gate})
        if happened.degraded:
            faults.add(1)

    def judged(event: GuardEvent) -> None:
        action = "failed" if event.has_failed else event.action
        verdicts.add(1, {"guard.action": action, "guard.source": event.source})
        if event.action != "allow":
            said: Any = {"guard.action": action, "guard.withheld_chars": event.withheld_chars}
            attributes = {**said, "guard.rules": list(event.rules)}
            tracer.start_span("guard.verdict", attributes=attributes).end()

    # Where `RecallStore` looks for it, as a Monitor has it.
    record.verdict = judged  # type: ignore[attr-defined]
    return record
