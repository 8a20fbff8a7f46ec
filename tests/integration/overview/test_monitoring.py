"""Prometheus rules and the Grafana dashboard use only metrics, labels and label values that a real site exposes."""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Iterator, Mapping, Set
from datetime import timedelta
from io import StringIO
from typing import Any, Final

import pytest
import yaml
from django.core.management import CommandError, call_command
from django.test import Client, override_settings
from django.utils import timezone
from prometheus_client.parser import text_string_to_metric_families as parse
from redis import Redis

from resty_django.cache import MLCache
from resty_django.ids.models import IdCounter, IdRule
from resty_django.ids.overview import runs_out
from resty_django.limits.decision import Decision
from resty_django.limits.statistics import reporter as limit_stats
from resty_django.logs import SocketHandler
from resty_django.qless.clients.default import default_client
from resty_django.shdict import shdicts

pytestmark = pytest.mark.django_db

WORD: Final = r"[a-zA-Z_][\w:]*"
TEXT: Final = re.compile(r'"(?:[^"\\]|\\.)*"')
SELECTOR: Final = re.compile(r"\b(resty[_:]\w[\w:]*)(?:\{([^}]*)\})?")
MATCHER: Final = re.compile(rf'({WORD})\s*(=~|!~|!=|=)\s*"((?:[^"\\]|\\.)*)"')
GROUPING: Final = re.compile(r"\b(?:by|on|without|ignoring|group_left|group_right)\s*\(([^)]*)\)")
FUNCTIONS: Final = {"rate", "increase", "sum", "min", "max", "and", "unless", "on", "by", "offset", "label_values"}
SCRAPED: Final = {"job", "instance"}
"""Labels that Prometheus adds."""

Labels = dict[str, dict[str, set[str]]]
"""Label values, by metric and label."""


def option(name: str) -> str:
    output = StringIO()
    call_command("resty_metrics", name, stdout=output)
    return output.getvalue()


def rules() -> list[dict[str, Any]]:
    document = yaml.safe_load(option("--rules"))
    return [rule for group in document["groups"] for rule in group["rules"]]


def targets() -> list[tuple[str, str]]:
    """Return the expressions and legends of the dashboard."""
    panels = json.loads(option("--dashboard"))["panels"]
    return [(target["expr"], target["legendFormat"]) for panel in panels for target in panel.get("targets", ())]


def exposed(text: str) -> Labels:
    labels: Labels = {}
    for family in parse(text):
        for sample in family.samples:
            values = labels.setdefault(sample.name, {})
            for name, value in sample.labels.items():
                values.setdefault(name, set()).add(value)
    return labels


def problems(expression: str, known: Labels, recorded: Mapping[str, Set[str]]) -> list[str]:
    """Return what an expression uses that the site does not have."""
    faults: list[str] = []
    usable: set[str] = set(SCRAPED)
    selectors = SELECTOR.findall(expression)
    for name, matchers in selectors:
        if name not in known and name not in recorded:
            faults.append(f"metric {name}")
            continue
        labels = known.get(name, {label: set() for label in recorded.get(name, ())})
        usable |= labels.keys()
        for label, operator, value in MATCHER.findall(matchers):
            if label in SCRAPED:
                continue
            if label not in labels:
                faults.append(f"label {label} of {name}")
            for part in value.split("|") if operator == "=~" else [value]:
                if part not in labels.get(label, ()):
                    faults.append(f"value {part} of {label} of {name}")
    for listed in GROUPING.findall(expression):
        faults += [f"grouping {label}" for label in re.findall(WORD, listed) if label not in usable]
    plain = GROUPING.sub(" ", SELECTOR.sub(" ", TEXT.sub(" ", expression)))
    words = set(re.findall(rf"(?<![\d$])\b{WORD}", re.sub(r"\[\w+\]|\b\d+[smhd]\b|\$aggregate", " ", plain)))
    faults += [f"word {word}" for word in words - FUNCTIONS]
    return faults if selectors else [*faults, "no metric"]


def make_counter(rule: IdRule, *, bound: int, ends_in: float = 1e7) -> None:
    """Create a counter that began an hour ago with the number 1."""
    now = int(time.time())
    IdCounter.objects.create(
        rule=rule,
        app_name=f"app{bound}",
        bound=bound,
        shown=now - 60,
        cycle_start=now - 86_400,
        cycle_end=now + int(ends_in),
        cycle_first=1,
        cycle_began=timezone.now(),
        window_began=timezone.now() - timedelta(hours=1, seconds=1),
        window_issued=bound - 1,
    )


@pytest.fixture
def busy_site(valkey: Redis, valkey_url: str, settings: Any, empty_cache: MLCache) -> Iterator[None]:
    """A site on which each component has figures."""
    log_handler = SocketHandler(host="127.0.0.1", port=9)
    logging.getLogger("tests.monitoring").addHandler(log_handler)
    plain = {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}
    jobs_cache = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": valkey_url}
    config = {**settings.RESTY_DJANGO, "QLESS": {"ALIAS": "jobs", "WORKER_NAME": "w1", "OUTBOX": True}}
    with override_settings(CACHES={"default": plain, "jobs": jobs_cache}, RESTY_DJANGO=config):
        client = default_client()
        for _ in range(3):
            client.queues["mail"].put("shop.jobs.Mail")
        done, failed = client.queues["mail"].pop(2)
        done.complete()
        failed.fail("mail-OSError", "OSError: full")
        make_counter(IdRule.objects.create(name="order", source="{counter}", max_counter=100), bound=81)
        limit_stats.stats.record("prices", "key", Decision(False))
        limit_stats.stats.record("prices", "key", Decision(False, failed=True))
        empty_cache.get("key", lambda: 5)
        yield
    logging.getLogger("tests.monitoring").removeHandler(log_handler)
    log_handler.close()


@pytest.mark.redis
def test_rules_and_dashboard_use_exposed_metrics(busy_site: None, admin_client: Client) -> None:
    known = exposed(admin_client.get("/metrics").content.decode())
    recorded: dict[str, set[str]] = {}
    for rule in rules():
        assert problems(rule["expr"], known, recorded) == [], rule
        labels = set(re.findall(r"\$labels\.(\w+)", json.dumps(rule.get("annotations", {}))))
        grouped = {label for listed in GROUPING.findall(rule["expr"]) for label in re.findall(WORD, listed)}
        if "record" in rule:
            recorded[rule["record"]] = grouped
        else:
            assert labels <= grouped | {label for name in recorded if name in rule["expr"] for label in recorded[name]}
    for expression, legend in targets():
        assert problems(expression, known, recorded) == [], expression
        grouped = {label for listed in GROUPING.findall(expression) for label in re.findall(WORD, listed)}
        assert set(re.findall(r"\{\{(\w+)\}\}", legend)) <= grouped, (expression, legend)


def test_the_check_of_expressions_finds_mistakes() -> None:
    known: Labels = {"resty_jobs": {"queue": {"mail"}, "state": {"stalled"}}}
    assert problems('max by (queue) (resty_jobs{state="stalled"}) > 0', known, {}) == []
    assert problems("resty_job > 0", known, {}) == ["metric resty_job"]
    assert problems('resty_jobs{status="stalled"}', known, {}) == [
        "label status of resty_jobs",
        "value stalled of status of resty_jobs",
    ]
    assert problems('resty_jobs{state=~"stalled|lost"}', known, {}) == ["value lost of state of resty_jobs"]
    assert problems("max by (group) (resty_jobs)", known, {}) == ["grouping group"]
    assert problems("irate(resty_jobs[5m])", known, {}) == ["word irate"]
    assert problems("1 > 0", known, {}) == ["no metric"]


def test_each_alert_is_complete_and_has_its_own_name() -> None:
    alerts = [rule for rule in rules() if "alert" in rule]
    names = [rule["alert"] for rule in alerts]
    assert len(names) == len(set(names))
    for rule in alerts:
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"].keys() == {"summary", "description"}


def test_the_dashboard_can_be_imported() -> None:
    dashboard = json.loads(option("--dashboard"))
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert {variable["name"] for variable in dashboard["templating"]["list"]} == {"datasource", "job", "aggregate"}
    titles = {panel["title"] for panel in panels if panel["type"] == "row"}
    assert titles == {"Site", "Jobs", "IDs", "Limits", "Caches", "Shared dictionaries"}
    for panel in panels:
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24
        for target in panel.get("targets", ()):
            assert target["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


def test_without_an_option_the_command_prints_the_metrics() -> None:
    output = StringIO()
    call_command("resty_metrics", stdout=output)
    assert 'resty_source_up{source="dictionaries"} 1.0' in output.getvalue()
    with pytest.raises(CommandError):
        call_command("resty_metrics", "--rules", "--dashboard")


def test_a_dictionary_that_cannot_be_used_is_down(admin_client: Client, settings: Any) -> None:
    up = exposed_values(admin_client)
    assert up["default"] == up["limits"] == 1
    names = settings.RESTY_DJANGO["SHARED_DICTS"]
    shdicts.close_all()
    broken = {"PATH": "/proc/resty-is-not-writable"}
    with override_settings(RESTY_DJANGO={"SHARED_DICTS": {**names, "default": broken}}):
        up = exposed_values(admin_client)
        shdicts.close_all()
    assert (up["default"], up["limits"]) == (0, 1)


def exposed_values(client: Client) -> dict[str, float]:
    text = client.get("/metrics").content.decode()
    return {name: float(value) for name, value in re.findall(r'resty_dict_up\{dict="(\w+)"\} (\S+)', text)}


@pytest.mark.db
def test_the_first_counter_to_run_out_is_the_forecast_of_its_rule() -> None:
    assert runs_out() == []
    later, soon = 10 * 86_400, 60
    for name, ends_in, bounds in (("order", later, (51, 81)), ("daily", soon, (51,)), ("idle", soon, (1,))):
        rule = IdRule.objects.create(name=name, source="{counter}", max_counter=100)
        for bound in bounds:
            make_counter(rule, bound=bound, ends_in=ends_in)
    ((name, seconds),) = runs_out()  # 80 numbers an hour, 20 left
    assert name == "order"
    assert 800 < seconds < 1100
