"""Recalls as OpenTelemetry spans and metrics, where `opentelemetry-api` is installed."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from langmem_recall.errors import MissingExtraError
from langmem_recall.observe.records import recall_id
from langmem_recall.types import Recall

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

    def record(recall: Recall) -> None:
        took_s = sum(recall.trace.timings.values())
        end = time.time_ns()
        span = tracer.start_span(
            "recall", start_time=end - int(took_s * 1e9), attributes=_attributes(recall)
        )
        for note in recall.trace.degraded:
            # What stands in brackets is an error's own words, which may quote anything.
            span.add_event("degraded", {"recall.note": note.partition(" (")[0]})
        span.end(end)
        recalls.add(1, {"recall.outcome": "recalled" if recall.chosen else "empty"})
        seconds.record(took_s)
        chosen.record(len(recall.chosen))
        for gate, count in recall.drop_counts().items():
            drops.add(count, {"recall.gate": gate})
        if recall.trace.degraded:
            faults.add(1)

    return record


def _attributes(recall: Recall) -> dict[str, Any]:
    trace = recall.trace
    attributes: dict[str, Any] = {
        "recall.id": recall_id(recall),
        "recall.policy": trace.policy,
        "recall.searched": trace.searched,
        "recall.candidates": len(recall.chosen) + len(recall.dropped),
        "recall.memories": len(recall.chosen),
        "recall.tokens": trace.tokens,
        "recall.compacted": len(trace.compacted),
    }
    if trace.budget_tokens is not None:
        attributes["recall.budget_tokens"] = trace.budget_tokens
    attributes |= {f"recall.dropped.{gate}": count for gate, count in recall.drop_counts().items()}
    attributes |= {f"recall.channel.{name}": count for name, count in trace.channels.items()}
    return attributes | {f"recall.{stage}_ms": 1e3 * s for stage, s in trace.timings.items()}
