"""Prometheus metrics of all apps. The view needs the extra `metrics`.

path("metrics", resty_django.metrics.view)

Apps register a source in `AppConfig.ready()`:

    metrics.register("jobs", families, app="resty_django.qless")
"""

from __future__ import annotations

from .families import Family, Kind, Sample, family
from .sources import MetricSource, collected, register
from .views import view

__all__ = ["Family", "Kind", "MetricSource", "Sample", "collected", "family", "register", "view"]
