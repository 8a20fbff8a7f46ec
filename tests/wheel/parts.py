"""Run in a startproject site: call each part of resty_django once, and print what came of it as JSON.

A value is "works", or the error of a part whose extra is missing.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any, Final

from django.core.exceptions import ImproperlyConfigured, ValidationError

PARTS: Final[dict[str, Callable[[], None]]] = {}


def part(function: Callable[[], None]) -> Callable[[], None]:
    PARTS[function.__name__] = function
    return function


def unavailable(status: int, text: str) -> bool:
    """Raise the error that a response contains."""
    if status == 503 and "pip install" in text:
        raise ImproperlyConfigured(text)
    return False


@part
def ids() -> None:
    from resty_django.ids import anext_id, next_id
    from resty_django.ids.models import IdRule

    rule = IdRule(name="order", source="O{counter:06d}", max_counter=999_999)
    rule.full_clean()
    rule.save()
    assert next_id("order") == "O000000"
    assert asyncio.run(anext_id("order")) == "O000001"


@part
def ids_by_lua() -> None:
    from resty_django.ids import next_id
    from resty_django.ids.models import IdRule

    source = """
        function min_counter() return 0 end
        function max_counter() return 999 end
        function reset_seconds() return 0 end
        function create_id(counter, now, salt) return string.format("T%03d", counter:generate_counter()) end
    """
    rule = IdRule(name="ticket", kind="lua", source=source, max_counter=999)
    rule.full_clean()
    rule.save()
    assert next_id("ticket") == "T000"


@part
def limits() -> None:
    from django.http import HttpRequest, HttpResponse
    from django.test import RequestFactory

    from resty_django.limits import LeakyBucket, limit_count

    @limit_count(1, per="1h")
    def view(request: HttpRequest) -> HttpResponse:
        return HttpResponse("passed")

    page = RequestFactory().get("/", headers={"accept": "text/html"})
    assert view(page).status_code == 200
    refused = view(page)
    assert refused.status_code == 429
    assert b"<html" in refused.content
    assert LeakyBucket(1, burst=1).hit("key").allowed


@part
def dictionaries() -> None:
    from resty_django.lock import lock
    from resty_django.shdict import shdicts

    assert shdicts["default"].incr("visits", 1, init=0) == 1
    with lock("report"):
        pass


@part
def events() -> None:
    from resty_django import events

    heard: list[Any] = []
    names = events.event_list("orders", "placed")
    events.on_event("orders", names.placed)(lambda data, event, source, pid: heard.append(data))
    events.start()
    try:
        events.post("orders", names.placed, 7)
        events.poll()
    finally:
        events.stop()
    assert heard == [7]


@part
def cache() -> None:
    from resty_django.cache import cached, mlcaches

    @cached(ttl=60, name="price")
    def price(item: str) -> int:
        return len(item)

    assert (price("tea"), price("tea")) == (3, 3)
    assert mlcaches["default"].get("product", lambda: 7) == 7


@part
def compression() -> None:
    from resty_django.cache import MLCache

    compressed = MLCache("compressed", "default", compress="zstd", compress_above=100)
    compressed.set("page", "tea" * 1000)
    assert compressed.get("page") == "tea" * 1000


@part
def cache_backend() -> None:
    from django.core.cache import caches
    from django.test import override_settings

    backend = {"BACKEND": "resty_django.cache.backend.MLCacheBackend", "LOCATION": "default"}
    with override_settings(CACHES={"default": backend}):
        caches["default"].set("key", {"a": 1})
        assert caches["default"].get("key") == {"a": 1}


@part
def txids() -> None:
    from resty_django.txid import parse, txid

    assert len(txid()) == 20
    assert parse(txid()).time


@part
def admin() -> None:
    """Every page that the index and the lists of our apps link to answers, whatever is missing."""
    import re

    from django.contrib.auth.models import User
    from django.test import Client

    person = Client()
    person.force_login(User.objects.create_superuser("boss"))
    index = person.get("/admin/")
    pages = set(re.findall(r'href="(/admin/resty_[^"]*)"', index.content.decode()))
    assert len(pages) >= 6, pages
    for page in sorted(pages):
        response = person.get(page)
        text = response.content.decode()
        assert response.status_code == 200 or 'pip install "resty-django[' in text.replace("&quot;", '"'), (page, text)


@part
def health() -> None:
    from django.core.management import CommandError, call_command

    output = io.StringIO()
    with contextlib.suppress(CommandError):
        call_command("resty_check", stdout=output)
    assert "Traceback" not in output.getvalue()
    assert "database" in output.getvalue()


@part
def metrics() -> None:
    from django.contrib.auth.models import User
    from django.test import RequestFactory

    from resty_django.metrics import view

    request = RequestFactory().get("/metrics")
    request.user = User(is_superuser=True, is_active=True)
    response = view(request)
    text = b"".join(response) if response.streaming else response.content
    assert b"resty_source_up" in text or unavailable(response.status_code, text.decode())


@part
def http_api() -> None:
    from django.test import Client, override_settings
    from django.urls import include, path

    class Urls:
        urlpatterns = [path("ids/", include("resty_django.ids.api.urls"))]

    with override_settings(ROOT_URLCONF=Urls):
        from django.contrib.auth.models import User

        client = Client()
        client.force_login(User.objects.create_superuser("clerk"))
        assert client.post("/ids/rules/order/ids/", {}, content_type="application/json").status_code == 200


@part
def throttles() -> None:
    from resty_django.limits import throttling

    assert throttling


@part
def jobs() -> None:
    from parts_jobs import double

    result = double.delay(4)
    worker = subprocess.Popen([sys.executable, "manage.py", "runqless", "--queues", "default"])
    try:
        assert result.get(timeout=60) == 8
    finally:
        worker.terminate()
        assert worker.wait(30) == 0


@part
def redis_dictionary() -> None:
    from django.test import override_settings

    from resty_django.shdict import shdicts

    with override_settings(RESTY_DJANGO={"SHARED_DICTS": {"far": {"ENGINE": "redis", "ALIAS": "default"}}}):
        assert shdicts["far"].incr("parts", 1, init=0) >= 1


@part
def cron() -> None:
    import parts_cron

    assert parts_cron


@part
def celery_txids() -> None:
    from resty_django.txid.celery import connect

    connect()


@part
def celery_bridge() -> None:
    from resty_django.qless.integrations.celery import connect

    connect()


@part
def django_tasks() -> None:
    from resty_django.qless.integrations.django_tasks import QlessBackend

    QlessBackend("default", {"QUEUES": ["default"], "OPTIONS": {}})


def main() -> None:
    import django

    sys.path.insert(0, os.getcwd())
    os.environ["DJANGO_SETTINGS_MODULE"] = "mysite.settings"
    django.setup()
    outcomes = {}
    for name, call in PARTS.items():
        try:
            call()
        except (ImproperlyConfigured, ValidationError) as error:
            outcomes[name] = str(error)
        else:
            outcomes[name] = "works"
    print(json.dumps(outcomes))


if __name__ == "__main__":
    main()
