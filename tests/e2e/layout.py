"""Pages of the admin for layout tests: a site with long names, and a crawl that finds its pages."""

from __future__ import annotations

import html
import json
import re
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urljoin, urlsplit

from django.http import HttpResponse
from django.test import Client as Browser
from django.urls import Resolver404, resolve

import resty_django
from resty_django.admin.statistics import KeyView
from resty_django.cache import mlcaches
from resty_django.ids.models import IdRule
from resty_django.limits import Decision, limit_window
from resty_django.limits.bans import registry as bans
from resty_django.limits.models import LimitOverride, QuotaUsage
from resty_django.limits.statistics.reporter import stats
from resty_django.qless import Client
from resty_django.qless.archive.writer import ArchiveWriter
from resty_django.qless.outbox.entries import Call
from resty_django.shdict import shdicts
from tests.integration.ids.admin_tools import LUA, make_counter, make_rule
from tests.integration.limits.policy_tools import make_policy
from tests.integration.qless.admin.tools import fill, path
from tests.integration.qless.conftest import pop

QUEUE: Final = "customer-notifications-europe-central-01"
KLASS: Final = "shop.notifications.jobs.SendCustomerInvoiceReminder"
GROUP: Final = f"{QUEUE}-ConnectionResetByPeerError"
POLICY: Final = "customer-invoice-reminders-europe-central"
KEY: Final = "2001:0db8:85a3:0000:0000:8a2e:0370:7334|/api/v2/customers/invoices/reminders/"
OURS: Final = re.compile(r"/admin/resty_\w+/")
PACKAGE: Final = Path(resty_django.__file__).parent
HREF: Final = re.compile(r'<a\s[^>]*?href="([^"#]*)')

WIDTHS: Final = (1280, 390)
SEEDS: Final = [
    "/admin/",
    "/admin/resty_django/overview/",
    path("job", "part-01-of-the-customer-import"),
    path("queue", QUEUE),
    path("job", "body"),
    path("failuregroup", GROUP),
    path("job", "never"),
    f"{path('archivedjob')}?state=canceled",
    f"{path('archivedjob')}?q=nightly-customer-run",
    path("outboxentry"),
    f"{path('job')}?{urlencode({'q': 'error:ConnectionReset'})}",
    "/admin/resty_cache/cache/pages/change/?find=",
    f"/admin/resty_cache/cache/pages/change/?{urlencode({'key': KEY})}",
    "/admin/resty_django/shareddictionary/default/change/?find=",
    f"/admin/resty_django/shareddictionary/default/change/?{urlencode({'key': KEY})}",
    f"/admin/resty_limits/limitpolicy/limits/key/?{urlencode({'key': KEY})}",
    f"/admin/resty_limits/limitpolicy/limits/key/reset/?{urlencode({'limit': POLICY, 'k': KeyView.of(KEY).token})}",
]
"""Pages where the crawl begins."""
CHECK: Final = Path(__file__).with_name("layout.js").read_text()


@dataclass(frozen=True)
class Page:
    url: str
    view: str
    templates: frozenset[str]
    """The names of our templates that it is made of."""
    content: str = field(default="", compare=False, repr=False)


def fill_site(client: Client) -> None:
    """Fill all apps with long names."""
    queue = client.queues[QUEUE]
    fill(client, QUEUE)
    for number in range(30):
        jid = queue.put(KLASS, {"customer": {"id": number, "address": KEY}}, tags=["nightly-customer-run", "eu"])
        if number < 6:
            job = pop(queue)
            group = GROUP if number % 2 else "mail-Timeout"
            job.fail(group, f'Traceback (most recent call last):\n  File "/srv/shop/{KLASS}.py", line 7, in run\n{KEY}')
        elif number < 9:
            queue.put(KLASS, jid=f"after-{number}", depends=[jid])
    queue.put(KLASS, jid="body")
    for number in range(60):
        queue.put(KLASS, {"part": number}, jid=f"part-{number:02d}-of-the-customer-import", depends=["body"])
    callback = ["import-7-done", QUEUE, KLASS, {"import": 7}]
    client.groups.open("import-7", "Import of the customers of central Europe", on_success=[callback])
    queue.put_many({"klass": KLASS, "delay": 3600, "outcome": {"group": "import-7"}} for _ in range(3))
    client.groups.close("import-7")
    queue.put(KLASS, {"customer": {"address": KEY}}, jid="archived", priority=1000, tags=["nightly-customer-run"])
    archived = pop(queue)
    assert archived.jid == "archived"
    archived.complete()
    queue.put(KLASS, {"customer": {"address": KEY}}, jid="deleted", priority=1000, tags=["nightly-customer-run"])
    pop(queue).fail(GROUP, f"ConnectionResetByPeerError: {KEY}")
    ArchiveWriter(client).run()
    client.jobs["deleted"].cancel()  # so that only the archive has it
    ArchiveWriter(client).run()
    put = ("put", "w", QUEUE, "outbox-invoice-reminder-0001", KLASS, json.dumps({"customer": {"address": KEY}}), 0)
    call = Call(commands=[put], jids=[put[3]], depends=["body"], klass=KLASS, queue=QUEUE)
    entry = call.entry(client.clock() - 300, None)
    entry.error = f"ConnectionResetByPeerError: {KEY}"
    entry.save()
    queue.put(KLASS, jid="loop", depends=["loop"])
    queue.pause(reason="until the new renderer of customer notifications is deployed everywhere", by="admin")
    client.call("pace", GROUP, 4)
    shdicts["default"].set(KEY, KEY)
    mlcaches["pages"].set(KEY, KEY)
    mlcaches["pages"].get(KEY)
    fill_limits()
    rule = make_rule("customer-invoice-numbers-europe-central")
    make_counter(rule, app="customer-notifications-europe")
    make_counter(rule, app="customer-reminders", step=2)  # another step than the site's: it has to be confirmed
    IdRule.objects.create(name="customer-reminders", source=LUA)


def fill_limits() -> None:
    row = make_policy(POLICY, key="ip")
    make_policy("customer-invoice-exports-per-customer-day", algorithm="leaky_bucket", rate="10/s", burst=20, key="ip")
    limit_window("60/m", name="customer_exports")(lambda request: HttpResponse())  # a name as wide as its column
    LimitOverride.objects.create(kind="key", key=KEY, limit=row.name, rate="60/m", reason="A customer of long standing")
    now = int(time.time())
    QuotaUsage.objects.create(quota=row.name, key=KEY, starts_at=now, ends_at=now + 86_400, used=3, limit=10_000)
    bans.add(KEY, 86_400, limit=row.name, reason="Too many requests for invoices of other customers")
    for _ in range(4):
        stats.record(row.name, KEY, Decision(allowed=False, limit=1, remaining=0, reset_after=1, retry_after=1))
    stats.flush()


def template_names() -> set[str]:
    """Return the names of all templates of our admin pages."""
    folders = (folder for folder in PACKAGE.rglob("templates") if folder.is_dir())
    return {str(file.relative_to(folder)) for folder in folders for file in folder.glob("admin/**/*.html")}


def ours(url: str) -> bool:
    return bool(OURS.match(url))


def crawl(browser: Browser, seeds: list[str], per_view: int, *, by_parameters: bool = True) -> Iterator[Page]:
    """Yield pages that the links from `seeds` lead to: `per_view` of a view, and one with each set of parameters."""
    todo, seen = list(seeds), set(seeds)
    visits: dict[tuple[str, ...], int] = defaultdict(int)
    while todo:
        url = todo.pop(0)
        try:
            view = resolve(urlsplit(url).path).view_name
        except Resolver404:
            continue
        names = {name for name, _ in parse_qsl(urlsplit(url).query)} if by_parameters else set()
        key = (view, *sorted(names))
        if url not in seeds and visits[key] >= (per_view if len(key) == 1 else 1):
            continue
        visits[key] += 1
        reply = browser.get(url)
        if reply.status_code != 200 or not reply.headers["Content-Type"].startswith("text/html"):
            continue
        templates = {str(template.name) for template in reply.templates}
        content = reply.content.decode()
        yield Page(url, view, frozenset(name for name in templates if name.startswith("admin/resty_")), content)
        for link in HREF.findall(content):
            target = urljoin(url, html.unescape(link))
            if ours(target) and target not in seen:
                seen.add(target)
                todo.append(target)


def our_pages(browser: Browser, per_view: int) -> list[Page]:
    """Return the pages that have a template of ours."""
    return [page for page in crawl(browser, SEEDS, per_view) if page.templates]


def page_problems(tab: Any) -> list[str]:
    """Return what is wrong with the layout of an open page at all widths."""
    problems = []
    for width in WIDTHS:
        tab.set_viewport_size({"width": width, "height": 900})
        problems += [f"{tab.url} at {width} px {problem}" for problem in tab.evaluate(CHECK)]
    return problems
