"""The tables of the admin pages, exported as CSV and JSON by the links below them: columns, filters, hidden values.

`tests/unit/test_export.py` tests the files themselves.
"""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from html import unescape
from typing import Any

import pytest
from django.contrib import admin
from django.test import Client as Browser
from django.urls import reverse
from redis import Redis

from resty_django.admin.tables import PAGE_SIZE
from resty_django.cache import mlcaches
from resty_django.limits import Decision, bans
from resty_django.limits.models import LimitOverride, QuotaUsage
from resty_django.limits.statistics.reporter import stats
from resty_django.qless import Client
from resty_django.qless.clients.default import default_client
from tests.integration.ids.admin_tools import make_counter, make_rule
from tests.integration.limits.policy_tools import make_policy
from tests.integration.qless.admin.tools import failed, fill, path

pytestmark = [pytest.mark.django_db, pytest.mark.redis]


@dataclass(frozen=True)
class Table:
    """A table of a page. `query`: a filter that leaves only rows with `row`; `cell`: such a row's cell in CSV."""

    url: str
    name: str
    columns: str
    query: str
    row: dict[str, Any]
    cell: str


JOBS = (
    "jid class state queue priority tags retries_left worker txid put changed failure_group failure_message arguments"
)
RECURRING = "jid klass queue interval next count by tags"
FAILED = {"jid": "=failed", "queue": "=queue", "failure_group": "=group", "tags": ["=tag"]}
TABLES = {
    "dictionaries": Table(
        "/admin/resty_django/shareddictionary/",
        "dictionaries",
        "name engine capacity free keys forcible",
        "find=bans",
        {"name": "bans", "keys": 2},
        "bans",
    ),
    "rules": Table(
        "/admin/resty_ids/idrule/",
        "idrule",
        "name kind example reset numbers names enabled",
        "q=bills",
        {"name": "=bills", "enabled": True},
        "'=bills",
    ),
    "counters": Table(
        "/admin/resty_ids/idcounter/",
        "idcounter",
        "app rule node step position numbers_left used_share forecast runs_out numbers_per_second cycle updated",
        "q=shop",
        {"app": "=shop", "rule": "orders", "position": 99, "numbers_left": 999_900, "forecast": "unknown"},
        "'=shop",
    ),
    "limits": Table(
        "/admin/resty_limits/limitpolicy/",
        "limits",
        "name kind rate passed delayed refused shadowed mode key",
        "q=sms",
        {"name": "=sms", "kind": "Function", "passed": 0, "refused": 1},
        "'=sms",
    ),
    "overrides": Table(
        "/admin/resty_limits/limitoverride/",
        "limitoverride",
        "key kind limit rate state starts_at ends_at reason",
        "q=cmd",
        {"key": "=cmd", "rate": "9/s", "state": "in force", "reason": "a customer"},
        "'=cmd",
    ),
    "bans": Table(
        "/admin/resty_limits/keyban/",
        "bans",
        "key limit since until number reason",
        "find=cmd",
        {"key": "=cmd", "limit": "", "number": 1, "reason": "scans"},
        "'=cmd",
    ),
    "quotas": Table(
        "/admin/resty_limits/quotausage/",
        "quotausage",
        "key quota used limit granted start resets",
        "q=%3Dcmd",
        {"key": "=cmd", "used": 5, "limit": 10, "granted": 1, "resets": "2038-01-19T03:14:08+00:00"},
        "'=cmd",
    ),
    "caches": Table(
        "/admin/resty_cache/cache/",
        "caches",
        "name kind calls hits l1 l2 stale l3 misses errors error",
        "find=prices",
        {"name": "=prices", "calls": 1, "errors": 0},
        "'=prices",
    ),
    "queues": Table(
        path("queue"),
        "queues",
        "name running waiting scheduled stalled depends recurring failed latency hour status",
        "name=%3D",
        {"name": "=queue", "depends": 1, "recurring": 1},
        "'=queue",
    ),
    "jobs": Table(path("job"), "jobs", JOBS, "state=failed&queue=%3Dqueue", FAILED, "'=failed"),
    "a search": Table(path("job"), "jobs", JOBS, "q=state:failed+error:Timeout+tag:%3Dtag", FAILED, "'=group"),
    "jobs of a queue": Table(
        path("queue", "mail"),
        "jobs",
        JOBS,
        "tab=waiting",
        {
            "jid": "waiting-1",
            "priority": 5,
            "tags": ["vip", "eu"],
            "arguments": {"order": 2, "password": "[redacted]"},
        },
        '{"order": 2, "password": "[redacted]"}',
    ),
    "jobs of a failure group": Table(path("failuregroup", "=group"), "jobs", JOBS, "", FAILED, "'=group"),
    "jobs of a worker": Table(
        path("worker", "here-1"), "jobs", JOBS, "", {"jid": "running-1", "state": "running"}, "running-1"
    ),
    "members of a group": Table(path("jobgroup", "=import"), "jobs", JOBS, "", {"jid": "=member"}, "'=member"),
    "failure groups": Table(
        path("failuregroup"),
        "failure-groups",
        "group count first last says",
        "name=%3D",
        {"group": "=group", "count": 1, "says": "Timeout: the server said nothing"},
        "'=group",
    ),
    "failure groups of a class": Table(
        path("jobclass", "shop.jobs.Send"), "failure-groups", "group count", "", {"count": 1}, "'=group"
    ),
    "groups": Table(
        path("jobgroup"),
        "groups",
        "name id state progress failed left created",
        "",
        {"name": "=group-1", "id": "=import", "state": "open", "left": 1},
        "'=import",
    ),
    "classes": Table(
        path("jobclass"),
        "classes",
        "klass completed failed waited_p50 waited_p95 ran_p50 ran_p95",
        "period=hour&name=Send",
        {"klass": "shop.jobs.Send", "completed": 1, "failed": 2},
        "shop.jobs.Send",
    ),
    "workers": Table(
        path("worker"),
        "workers",
        "name state process version queues slots jobs stalled longest uptime seen",
        "name=here",
        {"name": "here-1", "jobs": 1, "stalled": 0},
        "here-1",
    ),
    "tags": Table(path("tag"), "tags", "name count", "name=%3D", {"name": "=tag", "count": 2}, "'=tag"),
    "recurring jobs": Table(
        path("recurringjob"), "recurring", RECURRING, "name=%3D", {"jid": "=recurring", "interval": 60}, "'=recurring"
    ),
    "recurring jobs of a queue": Table(
        path("queue", "=queue"),
        "recurring",
        RECURRING,
        "tab=recurring",
        {"jid": "=recurring", "count": 0},
        "'=recurring",
    ),
    "options": Table(
        path("option"),
        "options",
        "option value default meaning",
        "name=%3D",
        {"option": "=option", "value": 7, "default": ""},
        "'=option",
    ),
    "stuck jobs": Table(
        f"{path('job')}stuck/",
        "stuck",
        "job klass queue reason other",
        "queue=%3Dqueue",
        {"job": "=waiting", "klass": "=shop.Task", "reason": "itself", "other": "=waiting"},
        "'=waiting",
    ),
}


@pytest.fixture
def site(limits_site: dict[str, Any], settings: Any, valkey: Redis, valkey_url: str) -> Client:
    """A site whose tables have several rows, one of which begins with "="."""
    settings.RESTY_DJANGO = {
        **limits_site,
        "QLESS": {"URL": valkey_url, "WORKER_NAME": "here-1"},
        "CACHES": {"pages": {}, "=prices": {}},
    }
    rule = make_rule("orders")
    make_rule("=bills")
    make_counter(rule, app="=shop")
    make_counter(rule, app="kiosk")
    make_policy("search", key="ip")
    make_policy("pay", key="ip", description="=pay")
    for series in ("search", "function:=sms"):
        stats.record(series, "192.0.2.1", Decision(False))
    stats.flush()
    for key in ("192.0.2.7", "=cmd"):
        bans.add(key, for_="1h", reason="scans")
        LimitOverride.objects.create(kind="key", key=key, limit="", rate="9/s", reason="a customer")
        QuotaUsage.objects.create(quota="mails", key=key, used=5, limit=9, granted=1, starts_at=0, ends_at=2**31)
    mlcaches["=prices"].get("key", lambda: 1)
    client = default_client()
    fill(client)
    fill_hostile(client)
    return client


def fill_hostile(client: Client) -> None:
    failed(client, "=failed", "=group", queue="=queue", tags=["=tag"])
    client.queues["=queue"].put("=shop.Task", {"order": 3}, jid="=waiting", tags=["=tag"], depends=["=waiting"])
    client.queues["=queue"].recur("=shop.Task", {}, 60, jid="=recurring", offset=60)
    client.groups.open("=import", "=group-1")
    client.queues["other"].put("shop.Other", {}, jid="=member", outcome={"group": "=import"})
    client.config.set("=option", "7")


def exported(browser: Browser, url: str) -> Any:
    response = browser.get(url)
    assert response.status_code == 200, url
    return json.loads(response.getvalue())


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_the_links_below_a_table_export_its_rows_and_columns(site: Client, admin_client: Browser, table: Table) -> None:
    text = unescape(admin_client.get(f"{table.url}?{table.query}").content.decode())
    links = {
        format: f"{table.url}?{table.query}{'&' * bool(table.query)}export={format}&of={table.name}"
        for format in ("csv", "json")
    }
    sheet = exported(admin_client, links["json"])
    assert (sheet["name"], sheet["columns"], sheet["complete"]) == (table.name, table.columns.split(), True)
    assert sheet["rows"]
    assert all(row | table.row == row for row in sheet["rows"]), sheet["rows"]
    heads, *rows = csv.reader(admin_client.get(links["csv"]).getvalue().decode().splitlines())
    assert heads == table.columns.split()
    assert len(rows) == len(sheet["rows"])
    cells = {cell for row in rows for cell in row}
    assert table.cell in cells
    assert not [cell for cell in cells if cell.startswith("=")]
    for link in links.values():
        assert f'href="{link.removeprefix(table.url)}"' in text.replace("%3A", ":")


def test_each_list_of_the_admin_has_an_export(site: Client, admin_client: Browser) -> None:
    for model in admin.site._registry:
        options = model._meta
        tested_elsewhere = options.model_name in ("overview", "archivedjob", "outboxentry")
        if options.app_label.startswith("resty_") and not tested_elsewhere:
            url = reverse(f"admin:{options.app_label}_{options.model_name}_changelist")
            assert url in {table.url for table in TABLES.values()}, options.label


def test_all_rows_of_a_model_are_read_in_parts(admin_client: Browser, django_assert_max_num_queries: Any) -> None:
    rows = [QuotaUsage(quota="mails", key=f"{n:05}", used=n, limit=9999, starts_at=0, ends_at=9) for n in range(1203)]
    QuotaUsage.objects.bulk_create(rows)
    with django_assert_max_num_queries(20):
        sheet = exported(admin_client, "/admin/resty_limits/quotausage/?export=json&quota=mails&p=3")
    assert [row["used"] for row in sheet["rows"]] == list(range(1203))


@pytest.mark.parametrize("page", [f"{path('queue', 'long')}?tab=depends&p=2", f"{path('job')}?klass=Long&queue=long"])
def test_all_pages_of_a_list_of_jobs_are_exported(site: Client, admin_client: Browser, page: str) -> None:
    jids = [f"long-{number:03}" for number in range(2 * PAGE_SIZE)]
    for jid in jids:
        site.queues["long"].put("Long", {}, jid=jid, depends=[jid])
    assert sorted(row["jid"] for row in exported(admin_client, f"{page}&export=json")["rows"]) == jids


@pytest.mark.parametrize("query", ["queue=long&", ""])
def test_all_stuck_jobs_are_exported(site: Client, admin_client: Browser, query: str) -> None:
    jids = {f"long-{number:03}" for number in range(130)}
    for jid in jids:
        site.queues["long"].put("Long", {}, jid=jid, depends=[jid])
    rows = exported(admin_client, f"{path('job')}stuck/?{query}export=json")["rows"]
    assert {row["job"] for row in rows} == jids | (set() if query else {"=waiting"})


def test_the_rows_have_the_order_of_the_page(site: Client, admin_client: Browser) -> None:
    for number in range(PAGE_SIZE + 1):
        failed(site, f"other-{number}", f"group-{number:02}")
    groups = ["=group", *(f"group-{number:02}" for number in range(PAGE_SIZE + 1)), "mail-Timeout"]
    for order, expected in (("group", groups), ("-group", groups[::-1])):
        rows = exported(admin_client, f"{path('failuregroup')}?o={order}&export=json")["rows"]
        assert [row["group"] for row in rows] == expected
