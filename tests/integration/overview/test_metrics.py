"""Metrics: access, content, and sources that fail."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import Client
from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open
from prometheus_client.parser import text_string_to_metric_families as parse

from resty_django import metrics
from resty_django.cache import MLCache
from resty_django.conf import conf
from resty_django.ids.models import IdRule
from resty_django.limits.decision import Decision
from resty_django.limits.statistics import reporter as limit_stats
from resty_django.metrics import Family, Sample
from resty_django.metrics.exposition import RestyCollector
from tests.docs_reader import ROOT
from tests.integration.ids.admin_tools import add_issued

pytestmark = pytest.mark.django_db

TOKEN = "a-token-of-a-good-length"
Values = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def configure(settings: Any, **options: Any) -> None:
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "METRICS": options}


def scrape(client: Client) -> Values:
    """Return all samples by name and labels, as Prometheus's parser reads them."""
    response = client.get("/metrics")
    assert response.status_code == 200
    assert response.headers["Content-Type"].startswith("text/plain; version=")
    families = parse(response.content.decode())
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def value(values: Values, metric: str, **labels: str) -> float:
    return values[metric, tuple(sorted(labels.items()))]


def test_metrics_need_the_permission_by_default(person: Callable[..., Client], admin_client: Client) -> None:
    refused = Client().get("/metrics")
    assert refused.status_code == 401
    assert refused.headers["WWW-Authenticate"].startswith("Bearer")
    assert Client().get("/metrics", headers={"Authorization": "Bearer "}).status_code == 401
    assert person("resty_django.view_overview").get("/metrics").status_code == 403
    assert person("resty_django.view_metrics").get("/metrics").status_code == 200
    assert admin_client.get("/metrics").status_code == 200
    assert admin_client.post("/metrics").status_code == 405


@pytest.mark.parametrize(
    ("header", "status"),
    [
        (f"Bearer {TOKEN}", 200),
        (f"bearer {TOKEN}", 200),
        (f"Bearer {TOKEN}x", 401),
        (f"Basic {TOKEN}", 401),
        ("Bearer ünïcode", 401),
        ("", 401),
    ],
)
def test_metrics_accept_a_token(settings: Any, header: str, status: int) -> None:
    configure(settings, TOKENS=["another-token-of-some-length", TOKEN])
    assert Client().get("/metrics", headers={"Authorization": header}).status_code == status


@pytest.mark.parametrize(
    ("address", "status"),
    [
        ("10.1.2.3", 200),
        ("::ffff:10.1.2.3", 200),
        ("fd00::1", 200),
        ("11.0.0.1", 401),
        ("", 401),
    ],
)
def test_metrics_accept_networks_by_the_connection_address(settings: Any, address: str, status: int) -> None:
    configure(settings, NETWORKS=["10.0.0.0/8", "fd00::/8"])
    assert Client(REMOTE_ADDR=address).get("/metrics").status_code == status
    forged = {"X-Forwarded-For": "10.1.2.3"}
    assert Client(REMOTE_ADDR="11.0.0.1").get("/metrics", headers=forged).status_code == 401


def test_wrong_settings_are_errors(settings: Any) -> None:
    configure(settings, TOKENS=["short"])
    with pytest.raises(ImproperlyConfigured, match="TOKENS"):
        conf.metrics  # noqa: B018


def test_every_source_has_samples(admin_client: Client, empty_cache: MLCache) -> None:
    IdRule.objects.create(name="order", source="{counter}")
    add_issued("order", 12, time.time())
    limit_stats.stats.record("prices", "key", Decision(False, 0.0, 1, 0, 1.0))
    for _ in range(3):
        empty_cache.get("key", lambda: 5)
    values = scrape(admin_client)
    assert value(values, "resty_ids_issued_total", rule="order") == 12
    assert value(values, "resty_limits_decisions_total", kind="policy", limit="prices", outcome="refused") == 1
    assert value(values, "resty_cache_calls_total", cache="default", level="l1") == 2
    assert value(values, "resty_cache_calls_total", cache="default", level="l3") == 1
    assert value(values, "resty_cache_callback_seconds_count", cache="default") == 1
    assert value(values, "resty_dict_capacity_bytes", dict="limits") == pytest.approx(18 * 2**20, rel=0.01)
    for source in ("ids", "limits", "cache", "dictionaries", "events", "logs"):
        assert value(values, "resty_source_up", source=source) == 1


def test_failing_source_is_down_and_the_others_are_up(admin_client: Client) -> None:
    def fails() -> Iterator[Family]:
        yield Family("resty_half", "gauge", "Half of it.", (), [Sample((), 1)])
        raise OSError("down")

    metrics.register("broken", fails)
    metrics.register("absent", fails, app="resty_django.nowhere")
    values = scrape(admin_client)
    assert value(values, "resty_source_up", source="broken") == 0
    assert value(values, "resty_source_up", source="ids") == 1
    assert ("resty_half", ()) not in values
    assert ("resty_source_up", (("source", "absent"),)) not in values


def test_hostile_labels_are_escaped(admin_client: Client) -> None:
    name = 'a"b\\c\nresty_ids_issued_total 99\ud800'
    metrics.register("hostile", lambda: [Family("resty_hostile", "gauge", "Text.", ("name",), [Sample((name,), 1)])])
    values = scrape(admin_client)
    assert value(values, "resty_hostile", name=name.replace("\ud800", "?")) == 1


@pytest.mark.parametrize(
    ("labels", "values", "samples"),
    [
        ("", 7, [Sample((), 7)]),
        ("", None, []),
        ("city", [("Berlin", 7), ("Wien", 0), ("Bern", None)], [Sample(("Berlin",), 7), Sample(("Wien",), 0)]),
        ("city state", [(("Berlin", "open"), 7)], [Sample(("Berlin", "open"), 7)]),
    ],
)
def test_a_family_has_one_number_or_numbers_by_label(labels: str, values: Any, samples: list[Sample]) -> None:
    family = metrics.family("orders", "gauge", "Orders.", labels, values)
    assert family == Family("orders", "gauge", "Orders.", tuple(labels.split()), samples)


def test_labels_are_bounded(settings: Any) -> None:
    samples = [Sample((str(n),), n) for n in range(50)]
    adding = Family("a", "counter", "Text.", ("n",), samples).bounded(10)
    assert len(adding.samples) == 10
    assert sum(sample.value for sample in adding.samples) == sum(range(50))
    assert adding.samples[-1].labels == ("(others)",)
    lowest = Family("b", "gauge", "Text.", ("n",), samples, adds=False).bounded(10)
    assert [sample.value for sample in lowest.samples] == list(range(10))
    configure(settings, MAX_LABELS=10)
    metrics.register("many", lambda: [Family("resty_many", "counter", "Text.", ("n",), samples)])
    many = next(family for family in metrics.collected() if family.name == "resty_many")
    assert len(many.samples) == 10


def test_openmetrics_by_accept_header(admin_client: Client) -> None:
    IdRule.objects.create(name="order", source="{counter}")
    response = admin_client.get("/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
    assert response.headers["Content-Type"].startswith("application/openmetrics-text")
    assert "resty_ids_issued" in {family.name for family in parse_open(response.content.decode())}


def test_metrics_can_be_added_to_another_registry() -> None:
    registry = CollectorRegistry(auto_describe=True)
    registry.register(RestyCollector())
    assert registry.get_sample_value("resty_source_up", {"source": "dictionaries"}) == 1


def test_missing_extra_is_named() -> None:
    code = """
import sys
sys.modules["prometheus_client"] = None
import django
django.setup()
from django.core.exceptions import ImproperlyConfigured
from resty_django import metrics
assert metrics.collected is not None
try:
    import resty_django.metrics.exposition
except ImproperlyConfigured as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=100, check=True
    )
    assert re.search(r"resty-django\[metrics\]", done.stdout)
