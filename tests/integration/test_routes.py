"""All routes of the admin, the API and the metrics, taken from the URL resolver.

Each needs its permissions, changes something only by a POST with its token, answers with valid pages without inline
code whatever names objects have, and explains that a store is down.

A route that neither `PAGES` nor `ACTIONS` names fails `test_every_route_is_crawled`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import pytest
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.models import User
from django.db import Error as DatabaseError
from django.db import connection, connections, transaction
from django.test import Client as Browser
from django.test import override_settings
from django.urls import URLResolver, get_resolver, resolve

from resty_django.ids import stop
from resty_django.qless.admin import LISTED
from resty_django.qless.admin.base import nav_items
from resty_django.shdict import shdicts
from tests.integration.html_pages import Html
from tests.integration.ids.admin_tools import rule_data
from tests.integration.routes_site import (
    HOSTILE,
    HTML,
    LABELS,
    STORABLE,
    TASKS,
    RoutesSite,
    models,
    settings_of,
)
from tests.integration.routes_site import filled_site as filled_site
from tests.integration.routes_site import site as site
from tests.servers import free_port

pytestmark = [pytest.mark.django_db, pytest.mark.redis]

PREFIXES: Final = (*(f"admin/{label}/" for label in LABELS), "api/", "metrics")
NOT_OURS: Final = {"api/prices/", "api/schema/"}
"""Routes of the demo site."""
VIEW_JOB: Final = "resty_qless.view_job"
"""The permission to see all pages of the job queue; in other apps each model has its own."""


@dataclass(frozen=True)
class Page:
    """A page: the permissions that it needs, each of them, and the status of a reply to those who have them."""

    url: str
    needs: tuple[str, ...]
    status: int = 200

    def __str__(self) -> str:
        return self.url


@dataclass(frozen=True)
class Action(Page):
    """A request that changes something, and what it sends."""

    data: dict[str, Any] = field(default_factory=dict)
    method: str = "post"
    status: int = 302
    effect: bool | None = True
    """Whether it changes something; None if it cannot be done in the transaction of a test."""
    logged: bool = True
    """Whether Django's history has it."""

    def __str__(self) -> str:
        return f"{self.method} {self.url} {self.data.get('verb', '')}".strip()


EDITED: Final = ("idrule", "idcounter", "limitpolicy", "limitoverride")
"""Models whose pages are also shown to those who may change them."""


def view_of(url: str) -> str:
    label, model = url.split("/")[1:3]
    if label == "resty_qless":
        return VIEW_JOB
    view = f"{label}.view_{model}"
    return f"{view}|{label}.change_{model}" if model in EDITED else view


def pages_of(model: str, sample: str, *names: str) -> Iterator[Page]:
    """Yield the list of a model, and the pages of an object."""
    base = f"admin/{model}/"
    yield Page(base, (view_of(base),))
    for name in names or ("change", "history"):
        yield Page(f"{base}{{{sample}}}/{name}/", (view_of(base),))


def acts(url: str, codename: str, effect: bool | None = True, **data: Any) -> Iterator[Page]:
    """Yield the form of an action, whose URL is below the model's URL, and the action."""
    address = f"admin/{url}"
    view, needed = view_of(address), f"{address.split('/')[1]}.{codename}"
    yield Page(address, (view, needed))
    yield Action(address, (view, needed), data=data, effect=effect)


def bulk(model: str, verb: str, pick: str, codename: str, **data: Any) -> Iterator[Page]:
    """Yield a bulk operation on a list of jobs, queues, etc.: a GET of its URL leads back to the list."""
    url = f"admin/resty_qless/{model}/bulk/"
    sent = {"verb": verb, "pick": f"{{token_{pick}}}", "confirmed": "yes", **data}
    yield Page(url, (VIEW_JOB,), 302)
    yield Action(url, (VIEW_JOB, f"resty_qless.{codename}"), data=sent)


def asks(url: str, permission: str) -> Page:
    return Page(f"api/{url}", (permission,))


def sends(method: str, url: str, permission: str, status: int = 200, effect: bool | None = True, **data: Any) -> Action:
    return Action(f"api/{url}", (permission,), data=data, method=method, status=status, effect=effect, logged=False)


def model_pages(
    path: str, sample: str, add: dict[str, Any], change: dict[str, Any], delete: dict[str, Any]
) -> Iterator[Page]:
    """Yield the pages of a `ModelAdmin`: a change requires its own permission, but its form is shown without it."""
    label, model = path.split("/")
    base = f"admin/{path}/"
    either = (view_of(base),)
    yield Page(base, either)
    for name in ("change/", "history/"):
        yield Page(f"{base}{{{sample}}}/{name}", either)
    yield Page(f"{base}{{{sample}}}/", (), 302)
    yield Page(f"{base}add/", (f"{label}.add_{model}",))
    yield Action(f"{base}add/", (f"{label}.add_{model}",), data=add)
    yield Action(f"{base}{{{sample}}}/change/", (f"{label}.change_{model}",), data=change)
    yield Page(f"{base}{{{sample}}}/delete/", (f"{label}.delete_{model}",))
    yield Action(f"{base}{{{sample}}}/delete/", (f"{label}.delete_{model}",), data=delete)


RULE: Final = {"source": "N{now:%y%m%d}{counter:06d}", "max_counter": 999_999}
POLICY: Final = {
    **dict.fromkeys(
        ("rate", "burst", "limit", "window", "interval", "capacity", "quantum", "max_wait", "default_delay", "lease"),
        "",
    ),
    **dict.fromkeys(("description", "path", "route", "view", "methods", "on_error", "status"), ""),
    **{"name": "new", "algorithm": "leaky_bucket", "rate": "200/s", "burst": "100", "key": "ip", "cost": "1"},
    **{"mode": "enforce", "order": "0"},
}
TABS: Final = ("stats", "running", "waiting", "scheduled", "stalled", "depends", "recurring")
OVERRIDE: Final = {"kind": "address", "key": "192.0.2.1", "limit": "", "rate": "60/m", "reason": ""}
JOB_FORM: Final = {"queue": "idle", "arguments": "{}", "priority": "0", "retries": "5", "delay": "0"}
TASK_FORM: Final = JOB_FORM | {"arguments": '{"args": [1], "kwargs": {}}'}
RECURRING_FORM: Final = {
    "queue": "idle",
    **{"interval": "70", "priority": "0", "retries": "5", "backlog": "0", "arguments": "{}"},
}

ROUTES: Final[list[Page]] = [
    # core
    Page("admin/resty_django/overview/", ("resty_django.view_overview",)),
    *pages_of("resty_django/shareddictionary", "dictionary"),
    *acts("resty_django/shareddictionary/{dictionary}/delete-key/?k={key}", "delete_dictionary_item"),
    *acts("resty_django/shareddictionary/{dictionary}/delete-key/?k={not_utf8}", "delete_dictionary_item"),
    *acts("resty_django/shareddictionary/{dictionary}/flush-expired/", "flush_expired_items"),
    *acts("resty_django/shareddictionary/{dictionary}/flush-all/", "flush_dictionary", confirmation="default"),
    *(
        Page(f"admin/resty_django/shareddictionary/{{dictionary}}/change/?{query}", needed)
        for needed in [("resty_django.view_shareddictionary", "resty_django.view_dictionary_items")]
        for query in ("k={key}", "k={not_utf8}", "find=")
    ),
    Page("metrics", ("resty_django.view_metrics",)),
    # caches
    *pages_of("resty_cache/cache", "cache"),
    *acts("resty_cache/cache/{cache}/delete-key/?k={key}", "delete_cache_item"),
    *acts("resty_cache/cache/{cache}/invalidate-tag/?k={key}", "delete_cache_item", tag="vip"),
    *acts("resty_cache/cache/{cache}/purge/", "purge_cache", confirmation="pages"),
    *(
        Page(
            f"admin/resty_cache/cache/{{cache}}/change/?{query}",
            ("resty_cache.view_cache", "resty_cache.view_cache_items"),
        )
        for query in ("k={key}", "find=")
    ),
    # IDs
    *model_pages(
        "resty_ids/idrule",
        "rule",
        rule_data(name="new"),
        rule_data(description="new", confirm_risks="on"),
        {"post": "yes", "confirmation": STORABLE[:60]},
    ),
    *pages_of("resty_ids/idcounter", "counter"),
    Page("admin/resty_ids/idcounter/{counter}/", (), 302),
    Page("admin/resty_ids/idcounter/{counter}/delete/", (), 403),
    Page("admin/resty_ids/idcounter/add/", (), 403),
    Action(
        "admin/resty_ids/idrule/preview/?rule={rule}",
        (view_of("admin/resty_ids/idrule/"),),
        data=rule_data(),
        status=200,
        effect=False,
    ),
    *acts("resty_ids/idrule/{rule}/issue/", "issue_id", None, app="", salt=""),
    *acts("resty_ids/idcounter/{counter}/issue/", "issue_id", None, salt=""),
    *acts("resty_ids/idcounter/{counter}/raise/", "raise_idcounter", to="900"),
    *acts(
        "resty_ids/idcounter/{counter}/lower/",
        "lower_idcounter",
        to="500",
        confirmation=f"{STORABLE[:59]}/{STORABLE[:60]} 500",
    ),
    *acts(
        "resty_ids/idcounter/{other_step}/confirm-step/",
        "confirm_step",
        to="700",
        confirmation=f"{STORABLE[:59]}/other 700",
    ),
    asks("ids/rules/", "resty_ids.view_idrule"),
    sends("post", "ids/rules/", "resty_ids.add_idrule", 201, **RULE, name="new"),
    asks("ids/rules/{orders}/", "resty_ids.view_idrule"),
    sends("put", "ids/rules/{spare}/", "resty_ids.change_idrule", **RULE, name="spare"),
    sends("patch", "ids/rules/{spare}/", "resty_ids.change_idrule", description="new"),
    sends("delete", "ids/rules/{spare}/", "resty_ids.delete_idrule", 204),
    sends("post", "ids/rules/{orders}/ids/", "resty_ids.issue_id", effect=None),
    asks("ids/rules/{orders}/counters/?app=", "resty_ids.view_idcounter"),
    sends("post", "ids/rules/{orders}/preview/", "resty_ids.view_idrule", effect=False),
    asks("ids/counters/", "resty_ids.view_idcounter"),
    Page("api/ids/^.*$", (), 404),
    # limits
    *model_pages("resty_limits/limitpolicy", "policy", POLICY, POLICY, {"post": "yes"}),
    *model_pages("resty_limits/limitoverride", "override", OVERRIDE, OVERRIDE, {"post": "yes"}),
    *(
        Page(f"admin/resty_limits/limitpolicy/{page}", (view_of("admin/resty_limits/limitpolicy/"),))
        for page in (
            "limits/figures/?limit={series}",
            "limits/key/?key={hostile}",
            "{policy}/figures/",
            "{policy}/try/",
        )
    ),
    *acts("resty_limits/limitpolicy/{pay}/reset-key/?k={key}", "reset_key"),
    *acts("resty_limits/limitpolicy/limits/key/reset/?limit=pay&k={key}", "reset_key"),
    *pages_of("resty_limits/keyban", "ban"),
    Page("admin/resty_limits/keyban/lift/", ("resty_limits.view_keyban",), 302),
    Action(
        "admin/resty_limits/keyban/lift/",
        ("resty_limits.view_keyban", "resty_limits.lift_keyban"),
        data={"verb": "lift", "pick": "{ban_token}", "confirmed": "yes"},
    ),
    *acts("resty_limits/keyban/{ban}/lift/", "lift_keyban"),
    *pages_of("resty_limits/quotausage", "usage"),
    *acts("resty_limits/quotausage/{usage}/grant/", "grant_quotausage", units="5", reason="bought"),
    *acts("resty_limits/quotausage/{usage}/reset/", "reset_quotausage", reason="bought"),
    Page("admin/resty_limits/quotausage/grant/", ("resty_limits.view_quotausage", "resty_limits.grant_quotausage")),
    # jobs
    *pages_of("resty_qless/queue", "queue"),
    *(
        Page(f"admin/resty_qless/{page}", (VIEW_JOB,))
        for page in (
            *(f"queue/{{queue}}/change/?tab={tab}" for tab in TABS),
            *(f"queue/{{queue}}/change/?tab=stats&period={period}" for period in ("hour", "day", "week", "month")),
            *(f"job/?state={state}" for state in ("failed", "complete", "stalled", "scheduled")),
            "job/?tracked=1",
        )
    ),
    *acts("resty_qless/queue/{idle}/pause/", "pause_queue", reason=HTML),
    *acts("resty_qless/queue/{queue}/unpause/", "pause_queue"),
    *acts("resty_qless/queue/{idle}/forget/", "configure_jobs"),
    *pages_of("resty_qless/job", "running"),
    *(
        Page(f"admin/resty_qless/job/{{{job}}}/change/", (VIEW_JOB,))
        for job in ("dependent", "failed", "scheduled", "waiting", "complete", "loop")
    ),
    *acts("resty_qless/job/{failed}/retry/", "retry_job"),
    *acts("resty_qless/job/{scheduled}/run-now/", "retry_job"),
    *acts("resty_qless/job/{waiting}/move/", "retry_job", queue="idle"),
    *acts("resty_qless/job/{running}/timeout/", "retry_job"),
    *acts("resty_qless/job/{waiting}/priority/", "edit_job", priority="9"),
    *acts("resty_qless/job/{waiting}/tag/", "edit_job", tag="new"),
    *acts("resty_qless/job/{waiting}/untag/", "edit_job", tag="vip"),
    *acts("resty_qless/job/{waiting}/track/", "edit_job"),
    *acts("resty_qless/job/{running}/untrack/", "edit_job"),
    *acts("resty_qless/job/{dependent}/release/", "edit_job"),
    *acts("resty_qless/job/{dependent}/undepend/?on={token_running}", "edit_job"),
    *acts("resty_qless/job/{scheduled}/cancel/", "cancel_job"),
    *acts("resty_qless/job/{waiting}/clone/", "start_job", **JOB_FORM),
    *acts("resty_qless/job/{failed}/retry-graph/", "retry_job"),
    *acts("resty_qless/job/{dependent}/cancel-graph/", "cancel_job"),
    Page("admin/resty_qless/job/stuck/?queue={token_queue}", (VIEW_JOB,)),
    *acts(f"resty_qless/job/start/?task={TASKS}.add", "start_job", **TASK_FORM),
    *bulk("job", "cancel", "waiting", "cancel_job"),
    *bulk("job", "retry", "failed", "retry_job"),
    *bulk("job", "move", "waiting", "retry_job", queue="idle"),
    *bulk("job", "tag", "waiting", "edit_job", tag="new"),
    *bulk("job", "priority", "waiting", "edit_job", priority="1"),
    *pages_of("resty_qless/failuregroup", "failure"),
    *bulk("failuregroup", "retry", "failure", "retry_job"),
    *acts("resty_qless/failuregroup/{failure}/pace/", "retry_job", rate="4"),
    *acts("resty_qless/failuregroup/{failure}/stop-pace/", "retry_job"),
    *bulk("failuregroup", "pace", "failure", "retry_job", rate="4"),
    *bulk("failuregroup", "move", "failure", "retry_job", queue="idle"),
    *bulk("failuregroup", "cancel", "failure", "cancel_job"),
    *pages_of("resty_qless/jobgroup", "group"),
    *acts("resty_qless/jobgroup/{group}/retry/", "retry_job"),
    *acts("resty_qless/jobgroup/{group}/cancel/", "cancel_job"),
    *pages_of("resty_qless/jobclass", "class"),
    *pages_of("resty_qless/worker", "worker"),
    *acts("resty_qless/worker/{worker}/deregister/", "configure_jobs"),
    *(
        page
        for verb in ("quiet", "resume", "stop", "stacks")
        for page in acts(f"resty_qless/worker/{{worker}}/{verb}/", "control_worker")
    ),
    *acts("resty_qless/worker/{worker}/scale/", "control_worker", slots="3"),
    *bulk("worker", "resume", "worker", "control_worker"),
    *bulk("worker", "stop", "worker", "control_worker"),
    *bulk("worker", "deregister", "worker", "configure_jobs"),
    *pages_of("resty_qless/tag", "tag", "history"),
    Page("admin/resty_qless/tag/{tag}/change/", (VIEW_JOB,), 302),
    *pages_of("resty_qless/recurringjob", "recurring"),
    *acts("resty_qless/recurringjob/{recurring}/run-now/", "retry_job"),
    *acts("resty_qless/recurringjob/{recurring}/pause/", "edit_job"),
    *acts("resty_qless/recurringjob/{recurring}/resume/", "edit_job"),
    *acts("resty_qless/recurringjob/{cron}/run-now/", "retry_job"),
    *acts("resty_qless/recurringjob/{cron}/pause/", "edit_job"),
    *acts("resty_qless/recurringjob/{recurring}/edit/", "edit_job", **RECURRING_FORM),
    *acts("resty_qless/recurringjob/{recurring}/cancel/", "cancel_job"),
    *acts("resty_qless/recurringjob/{recurring}/tag/", "edit_job", tag="new"),
    *acts("resty_qless/recurringjob/{recurring}/untag/", "edit_job", tag="vip"),
    *bulk("recurringjob", "run_now", "recurring", "retry_job"),
    *bulk("recurringjob", "pause", "recurring", "edit_job"),
    *bulk("recurringjob", "cancel", "recurring", "cancel_job"),
    *bulk("queue", "pause", "idle", "pause_queue"),
    *bulk("queue", "unpause", "queue", "pause_queue"),
    *bulk("queue", "forget", "idle", "configure_jobs"),
    *pages_of("resty_qless/option", "option"),
    Action("admin/resty_qless/option/{option}/change/", (VIEW_JOB, "resty_qless.configure_jobs"), data={"value": "30"}),
    *acts("resty_qless/option/{option}/unset/", "configure_jobs"),
    *bulk("option", "unset", "option", "configure_jobs"),
    *pages_of("resty_qless/archivedjob", "row"),
    *pages_of("resty_qless/outboxentry", "entry"),
    *acts("resty_qless/outboxentry/{entry}/deliver/", "retry_job"),
    *acts("resty_qless/outboxentry/{entry}/discard/", "cancel_job"),
    *bulk("outboxentry", "deliver", "entry", "retry_job"),
    *bulk("outboxentry", "discard", "entry", "cancel_job"),
    *(
        asks(f"jobs/{path}", VIEW_JOB)
        for path in (
            *("queues/", "queues/{api_queue}/", "queues/{api_queue}/stats/", "jobs/", "jobs/{api_running}/"),
            *("failed/", "workers/", "recurring/"),
        )
    ),
    sends(
        *("post", "jobs/jobs/", "resty_qless.start_job", 201),
        **{"klass": f"{TASKS}.add", "data": {"args": [1], "kwargs": {}}},
    ),
    sends("post", "jobs/queues/{api_idle}/pause/", "resty_qless.pause_queue"),
    sends("post", "jobs/queues/{api_queue}/unpause/", "resty_qless.pause_queue"),
    sends("delete", "jobs/jobs/{api_waiting}/", "resty_qless.cancel_job"),
    sends("post", "jobs/jobs/{api_failed}/retry/", "resty_qless.retry_job"),
    sends("post", "jobs/failed/{api_failure}/retry/", "resty_qless.retry_job"),
]

PAGES: Final = [route for route in ROUTES if not isinstance(route, Action)]
ACTIONS: Final = [route for route in ROUTES if isinstance(route, Action)]


def routes_of_resolver(resolver: Any = None, route: str = "") -> Iterator[str]:
    for entry in (resolver or get_resolver()).url_patterns:
        path = route + str(entry.pattern)
        if isinstance(entry, URLResolver):
            yield from routes_of_resolver(entry, path)
        elif path.startswith(PREFIXES) and path not in NOT_OURS:
            yield re.sub(r"<[^>]+>", "*", path)


def test_every_route_is_crawled() -> None:
    known = {re.sub(r"\{\w+\}", "*", route.url.partition("?")[0]) for route in ROUTES}
    routes = set(routes_of_resolver())
    assert sorted(routes - known) == [], "add each of these to PAGES or ACTIONS"
    assert sorted(known - routes) == [], "these no longer exist"


# --- pages ----------------------------------------------------------------------------------------------------------

PARAMETERS: Final = (
    "at",
    "q",
    "name",
    "key",
    "find",
    "tag",
    "queue",
    "klass",
    "on",
    "t",
    "state",
    "cursor",
    "page",
    "sort",
)


def text_of(reply: Any) -> str:
    content: bytes = b"".join(reply) if reply.streaming else reply.content
    return content.decode()


def assert_sound(reply: Any, url: str) -> None:
    """Check that a page is valid, has no inline code, and shows no text as something else."""
    kind, text = reply.headers.get("Content-Type", ""), text_of(reply)
    if "json" in kind or "yaml" in kind:
        assert "\x1b" not in text
        return  # data for programs: the text of a store is escaped as JSON
    if kind.startswith("text/html"):
        assert Html(text).wrong == [], url
        assert "alert(1)" in text or "<script>alert(1)" not in text
        assert "<script>alert(1)" not in text, url
        # The typed text comes back in the field unchanged.
        text = re.sub(r' value="[^"]*"', "", text).replace("\xa0", " ")
    for line in text.split("\n"):
        assert not [char for char in line if not char.isprintable() and char not in "\t\r"], (url, ascii(line)[:300])


def address(site: RoutesSite, route: Page) -> str:
    return "/" + route.url.format(**site.objects)


def needed_by(route: Page) -> list[list[str]]:
    """Return the permissions that a route needs, each of them as a list of alternatives."""
    return [names.split("|") for names in route.needs]


def just_enough(site: RoutesSite, route: Page) -> Browser:
    return site.browser(*(names[0] for names in needed_by(route)))


def refused(reply: Any) -> bool:
    """Whether the reply sends an anonymous user to the page for signing in, or refuses."""
    if reply.status_code == 302:
        return reply.headers["Location"].startswith("/admin/login/")
    return reply.status_code in (401, 403)


@pytest.fixture(scope="module")
def people() -> list[list[list[str]]]:
    """The permissions that routes need, for people who have them or lack one."""
    return [needed_by(route) for route in ROUTES]


CONFIRMATIONS: Final = {"confirmed", "confirmation", "post"}
"""Fields without which an action asks first."""
each_page = pytest.mark.parametrize("page", PAGES, ids=str)
each_action = pytest.mark.parametrize("action", ACTIONS, ids=str)


@each_page
def test_a_page_needs_its_permissions_and_is_sound_and_changes_nothing(site: RoutesSite, page: Page) -> None:
    url, before = address(site, page), site.state()
    assert refused(Browser().get(url))
    for names in needed_by(page):
        for address_of_page in (url, f"{url}{'&' if '?' in url else '?'}export=csv"):
            assert site.browser_without(*names).get(address_of_page).status_code == 403, names
    reply = just_enough(site, page).get(url)
    assert reply.status_code == page.status
    assert_sound(reply, url)
    boss = site.boss()
    path = url.partition("?")[0]
    for query in (dict.fromkeys(PARAMETERS, HOSTILE), {"export": "csv"}):
        reply = boss.get(path, query)
        assert reply.status_code < 500
        assert_sound(reply, path)
    acting = {action.url.partition("?")[0] for action in ACTIONS}
    is_form = page.url.partition("?")[0] in acting
    for method in ("head", "options", *(() if is_form else ("post", "put", "patch", "delete"))):
        assert getattr(boss, method)(url).status_code < 500
    assert site.changed(before) == []


def send(site: RoutesSite, browser: Browser, action: Action) -> Any:
    url = address(site, action)
    if url.startswith("/api/"):
        return getattr(browser, action.method)(url, json.dumps(action.data).encode(), "application/json")
    return browser.post(url, filled(site, action))


def filled(site: RoutesSite, action: Action) -> dict[str, Any]:
    """Return what the form sends, with the names of objects in place of the placeholders."""
    return {
        name: re.sub(r"\{(\w+)\}", lambda match: site.objects.get(match[1], match[0]), str(value))
        for name, value in action.data.items()
    }


def refusal(reply: Any) -> list[str]:
    """Return the errors of a form or of the API."""
    text = text_of(reply)
    return re.findall(r"(?s)errorlist.*?</ul>", text) if "<html" in text else [text]


@each_action
def test_an_action_needs_its_permissions_its_token_and_a_post(site: RoutesSite, action: Action) -> None:
    before, entries = site.state(), LogEntry.objects.count()
    assert refused(send(site, Browser(), action))
    assert send(site, site.boss(strict=True), action).status_code == 403
    for names in needed_by(action):
        assert send(site, site.browser_without(*names), action).status_code == 403, names
    if action.url.startswith("admin/"):
        for method in ("get", "put", "delete"):
            getattr(site.boss(), method)(address(site, action), filled(site, action))
        if action.data.keys() & CONFIRMATIONS:
            data = {name: value for name, value in action.data.items() if name not in CONFIRMATIONS}
            assert send(site, site.boss(), replace(action, data=data)).status_code == 200
    assert site.changed(before) == []
    if action.effect is None:
        return
    reply = send(site, just_enough(site, action), action)
    assert reply.status_code == action.status, refusal(reply)
    assert bool(site.changed(before)) is action.effect
    if action.logged and action.effect:
        assert LogEntry.objects.count() > entries
        texts = LogEntry.objects.values_list("object_id", "object_repr", "change_message")
        assert not [text for entry in texts for text in entry if "\x00" in text]
        message = site.boss().get(reply.headers["Location"])
        if message.status_code == 200:
            assert_sound(message, reply.headers["Location"])


OBJECT_ACTION: Final = re.compile(r"(admin/\w+/\w+/\{\w+\}/)(?!change|history|delete)[\w-]+/")


STATE_OFFERS_NO_LINK: Final = {
    "admin/resty_qless/job/{dependent}/release/",
    "admin/resty_qless/job/{failed}/retry-graph/",
    "admin/resty_qless/jobgroup/{group}/retry/",
    "admin/resty_qless/recurringjob/{recurring}/resume/",
}
LINKED: Final = [
    page
    for page in PAGES
    if OBJECT_ACTION.match(page.url) and len(page.needs) > 1 and page.url not in STATE_OFFERS_NO_LINK
]


@pytest.mark.parametrize("page", LINKED, ids=str)
def test_links_to_actions_are_shown_to_those_who_may_follow_them(site: RoutesSite, page: Page) -> None:
    match = OBJECT_ACTION.match(page.url)
    assert match
    view, *others = needed_by(page)
    link = f'="/{match[0].format(**site.objects)}'
    change_page = f"/{match[1].format(**site.objects)}change/"
    assert link in text_of(site.boss().get(change_page))
    for names in others:
        assert link not in text_of(site.browser_without(*names).get(change_page)), names
    assert link not in text_of(site.browser(view[0]).get(change_page))


# --- stores that are down ---------------------------------------------------------------------------------------------


NEEDS_STORE: Final = re.compile(
    r"admin/resty_(django|cache|qless)/(?!archived|outbox|tag/\{)\w+/(stuck/.*|\{\w+\}/change/.*)?$"
    r"|admin/resty_limits/(keyban/|limitpolicy/(limits/(figures|key)/[?].*)?)$"
)
"""Pages that show what is in a store."""
EXPLAINED: Final = re.compile(r'class="errornote"|<li class="error">|Unavailable|cannot be read')


@pytest.mark.parametrize("prefix", [*(f"admin/{label}/" for label in LABELS), "api/", "metrics"])
def test_no_route_fails_while_the_stores_are_down(site: RoutesSite, tmp_path: Path, prefix: str) -> None:
    """A page explains what it cannot show, and an action says that it was not done."""
    (tmp_path / "file").touch()
    routes = [route for route in (*PAGES, *ACTIONS) if route.url.startswith(prefix)]
    assert routes
    before, boss, wrong = site.state(), site.boss(), []
    shdicts.close_all()
    with override_settings(**settings_of(f"redis://127.0.0.1:{free_port()}/0", tmp_path / "file")):
        for route in routes:
            is_action = isinstance(route, Action)
            reply = send(site, boss, route) if isinstance(route, Action) else boss.get(address(site, route))
            needs_store = bool(NEEDS_STORE.match(route.url)) or (
                is_action and reply.status_code == 200 and route.status == 302
            )
            if reply.status_code != 503 and needs_store and not EXPLAINED.search(text_of(reply)):
                wrong.append((str(route), reply.status_code))
            if prefix == "api/" and reply.status_code == 503:
                assert reply.json()["code"] in ("unavailable", "database_unavailable")
                assert "127.0.0.1" not in text_of(reply)
        shdicts.close_all()
    stop(0.0)  # it waits for the write lock of this test's transaction, which would delay a later test
    assert wrong == []
    assert set(site.changed(before)) <= {model.__name__ for model in models()}


# --- a database that rejects changes ----------------------------------------------------------------------------------

IN_STORES: Final = re.compile("resty_(django|cache|qless)/|api/jobs/|resty_limits/(keyban/|.*reset/|.*reset-key/)")
"""Actions on stores, which do not need the database. Quotas are in the database."""
NOT_SHOWN: Final = re.compile(
    "group}/retry/|{recurring}/resume/"  # nothing to do: they change the history only
    # an UPDATE on its own, whose error would break the test's transaction
    "|{counter}/raise/|{usage}/(grant|reset)/|outboxentry/"
)
DONE_ACTIONS: Final = [action for action in ACTIONS if action.effect and not NOT_SHOWN.search(action.url)]


@contextmanager
def rejecting(fault: str) -> Iterator[None]:
    """Make the SQLite database read-only, or leave no space in its file."""
    connection.ensure_connection()
    raw: Any = connection.connection
    if fault == "full":
        raw.execute(f"PRAGMA max_page_count = {raw.execute('PRAGMA page_count').fetchone()[0]}")
        user = User.objects.get(username="user0")
        for size in (3000, 300, 1):
            with suppress(DatabaseError):
                while True:
                    with transaction.atomic():
                        LogEntry.objects.log_actions(user.pk, [user] * 9, CHANGE, "x" * size)
    else:
        raw.execute("PRAGMA query_only = 1")
    try:
        yield
    finally:
        raw.execute("PRAGMA max_page_count = 1073741823")
        raw.execute("PRAGMA query_only = 0")
        stop()  # the service of IDs would pause, for a later test as well


@pytest.mark.skipif(connection.vendor != "sqlite", reason="makes an SQLite database read-only or full")
@pytest.mark.parametrize("fault", ["read-only", "full"])
@pytest.mark.parametrize("action", DONE_ACTIONS, ids=str)
def test_a_page_reports_an_action_while_the_database_rejects_changes(
    site: RoutesSite, settings: Any, monkeypatch: Any, caplog: Any, action: Action, fault: str
) -> None:
    """Operations on stores are done; without an entry in the history, the page says so, and the log has the entry."""
    settings.MESSAGE_STORAGE = "django.contrib.messages.storage.cookie.CookieStorage"
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)
    boss, in_store = site.boss(), bool(IN_STORES.search(action.url))
    boss.cookies.pop("messages", None)  # of earlier tests
    with rejecting(fault):
        before = site.state()
        reply = send(site, boss, action)
        page = boss.get(reply.headers["Location"]) if reply.status_code == 302 else reply
        changed = set(site.changed(before))
    text, done = text_of(page), bool(changed - {"LogEntry"})
    lines = [record.getMessage() for record in caplog.records if record.name == "resty_django.admin"]
    assert done or not in_store
    assert ("Not done" not in text and reply.status_code == action.status) is done, text
    assert not (done and fault == "read-only") or in_store
    if done and action.url.startswith("admin/"):
        assert ("Not recorded in the history" in text) is ("LogEntry" not in changed) is bool(lines)
    if in_store:
        assert resolve(address(site, action).partition("?")[0]).func._non_atomic_requests == set(connections)
        assert fault == "full" or [line for line in lines if "By user0." in line and "readonly database" in line]


def test_the_index_lists_the_pages_that_a_user_may_see(site: RoutesSite) -> None:
    """Each permission to view shows the lists that it opens, and no others; tabs lead to further lists of jobs."""
    tabs = "|".join({*nav_items()} - {str(listed._meta.model_name) for listed in LISTED})
    entry = re.compile(rf"admin/\w+/(?!(?:{tabs})/)\w+/")
    lists = {page.url: page.needs[0].split("|")[0] for page in PAGES if entry.fullmatch(page.url)}
    assert len(lists) > 10
    for permission in sorted(set(lists.values())):
        text = text_of(site.browser(permission).get("/admin/"))
        assert {url for url in lists if f'href="/{url}"' in text} == {
            url for url, needed in lists.items() if needed == permission
        }
    for label in LABELS:
        assert f"/admin/{label}/" not in text_of(site.browser("resty_django.view_metrics").get("/admin/"))
