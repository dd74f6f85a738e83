from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from recalls import candidate, recall_of

from langmem_recall.errors import MissingExtraError
from langmem_recall.observe.show import recall_id
from langmem_recall.observe.telemetry import telemetry

RECALL = recall_of(
    [candidate("tea", 0.9, text="Ann drinks tea"), candidate("dog", 0.1)],
    "What does Ann drink?",
    degraded=("dense search failed (Error: Ann); lexical only",),
    budget_tokens=2000,
)


@pytest.fixture
def sdk() -> Any:
    reason = "opentelemetry-sdk is not installed: pip install opentelemetry-sdk"
    return pytest.importorskip("opentelemetry.sdk", reason=reason)


def recorded() -> tuple[list[Any], dict[str, Any]]:
    """The spans and the metrics of one recall."""
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
    tracers = TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    sink = telemetry(tracer_provider=tracers, meter_provider=MeterProvider([reader]))
    sink(RECALL)
    found = json.loads(reader.get_metrics_data().to_json())
    metrics = found["resource_metrics"][0]["scope_metrics"][0]["metrics"]
    return list(exporter.get_finished_spans()), {one["name"]: one["data"] for one in metrics}


@pytest.mark.usefixtures("sdk")
def test_a_recall_is_a_span_as_long_as_it_took() -> None:
    (span,), _ = recorded()

    assert span.name == "recall"
    # find 2 ms and rank 1 ms.
    assert (span.end_time - span.start_time) == pytest.approx(3e6, rel=1e-6)
    assert span.attributes["recall.id"] == recall_id(RECALL)
    assert span.attributes["recall.candidates"] == 2
    assert span.attributes["recall.memories"] == 1
    assert span.attributes["recall.dropped.floor"] == 1
    assert span.attributes["recall.budget_tokens"] == 2000
    assert span.attributes["recall.find_ms"] == pytest.approx(2.0)
    assert [event.attributes["recall.note"] for event in span.events] == ["dense search failed"]


@pytest.mark.usefixtures("sdk")
def test_a_recall_is_counted_in_metrics() -> None:
    _, metrics = recorded()

    assert metrics["recall.count"]["data_points"][0]["value"] == 1
    assert metrics["recall.count"]["data_points"][0]["attributes"] == {"recall.outcome": "recalled"}
    assert metrics["recall.duration"]["data_points"][0]["sum"] == pytest.approx(0.003)
    assert metrics["recall.memories"]["data_points"][0]["sum"] == 1
    assert metrics["recall.drops"]["data_points"][0]["attributes"] == {"recall.gate": "floor"}
    assert metrics["recall.degraded"]["data_points"][0]["value"] == 1


@pytest.mark.usefixtures("sdk")
def test_neither_words_nor_names_leave_the_process() -> None:
    (span,), metrics = recorded()
    told = f"{span.to_json()}{json.dumps(metrics)}"
    assert "Ann" not in told
    assert "ann" not in told.replace("channel", "")


def test_asking_for_telemetry_without_the_package_names_the_install(monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(MissingExtraError, match=r"langmem-recall\[otel\]"):
        telemetry()
