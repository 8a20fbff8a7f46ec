"""Exposition of the metrics with prometheus-client; the only module that imports it.

A site with its own registry can register the collector there:

    from prometheus_client import REGISTRY
    from resty_django.metrics.exposition import RestyCollector

    REGISTRY.register(RestyCollector())
"""

from __future__ import annotations

from collections.abc import Iterator

from resty_django import extras

with extras.needed("The metrics need"):
    from prometheus_client import CollectorRegistry
    from prometheus_client.exposition import choose_encoder
    from prometheus_client.metrics_core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        Metric,
        SummaryMetricFamily,
    )
    from prometheus_client.registry import Collector

from resty_django.text import printable

from .families import Family, Sample
from .sources import collected


class RestyCollector(Collector):
    """A collector that queries all sources at each scrape and keeps no state between scrapes."""

    def describe(self) -> list[Metric]:
        """Return nothing, so that registration does not query any store."""
        return []

    def collect(self) -> Iterator[Metric]:
        return map(_metric, collected())


def exposed(accept: str) -> tuple[bytes, str]:
    """Return all metrics as text, and the content type."""
    registry = CollectorRegistry()
    registry.register(RestyCollector())
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type


def _metric(family: Family) -> Metric:
    if family.kind == "summary":
        summary = SummaryMetricFamily(family.name, family.help, labels=family.labels)
        for sample in family.samples:
            summary.add_metric(_sendable(sample), count_value=int(sample.count), sum_value=sample.value)
        return summary
    metric: CounterMetricFamily | GaugeMetricFamily = (
        CounterMetricFamily(family.name, family.help, labels=family.labels)
        if family.kind == "counter"
        else GaugeMetricFamily(family.name, family.help, labels=family.labels)
    )
    for sample in family.samples:
        metric.add_metric(_sendable(sample), sample.value)
    return metric


def _sendable(sample: Sample) -> list[str]:
    """Escape control characters in labels, and replace lone surrogates by question marks.

    The maximum length is longer than any name, so that no two names collide.
    """
    return [printable(label.encode("utf-8", "replace").decode(), longest=10_000) for label in sample.labels]
