"""The sites of bench/site.py, each a WSGI application for gunicorn: `PARTS` names the parts of the package it uses."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from _table import STARTPROJECT, configure

PARTS = frozenset(os.environ["PARTS"].split(","))
APPS = ["django.contrib.contenttypes", "django.contrib.auth", "django.contrib.sessions", "django.contrib.messages"]

configure(
    ALLOWED_HOSTS=["*"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    INSTALLED_APPS=APPS + ["resty_django", "resty_django.cache", "resty_django.limits"] * ("bare" not in PARTS),
    MIDDLEWARE=["resty_django.txid.middleware.TxidMiddleware"] * ("txid" in PARTS) + STARTPROJECT,
    RESTY_DJANGO={"SHARED_DICTS": {name: {"PATH": os.environ["DICTS"]} for name in ("default", "events", "limits")}},
    ROOT_URLCONF=__name__,
)

from django.core.wsgi import get_wsgi_application  # noqa: E402 - after the settings
from django.http import HttpRequest, HttpResponse  # noqa: E402
from django.urls import path  # noqa: E402


def page(request: HttpRequest) -> HttpResponse:
    return HttpResponse(b"tea " * 1000)


def decorated(view: Any) -> Any:
    if "cache" in PARTS:
        from resty_django.cache import cache_view

        view = cache_view(3600)(view)
    if "limit" in PARTS:
        from resty_django.limits.decorators import limit_count

        view = limit_count(10**9, per="1h")(view)
    return view


urlpatterns = [path("", decorated(page))]
application = get_wsgi_application()
