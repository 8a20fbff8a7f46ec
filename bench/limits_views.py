"""The time that a limit adds to a request, compared with a bare transaction and other packages.

    python bench/limits_views.py [--quick] [--rounds N] [--only without,startproject] [--json FILE]

Every subject is one URL of a site, asked through the handler of Django's test client. The view is empty, and nothing is
refused. A subject adds the time of its request minus the time of the same view without it. The site is measured
without middleware, and with the middleware that `startproject` writes.

The time is the CPU time of the thread, so that other work on the machine cannot be mistaken for a cost; only
comparisons on Redis, an embedded Valkey on this machine over TCP, use elapsed time. Peers are left out where they
cannot be installed: django-ratelimit, django-smart-ratelimit with the algorithm of `@limit_req`, and django-guid.
"""

from __future__ import annotations

import gc
import importlib.util
import itertools
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import perf_counter, thread_time
from typing import Any, NamedTuple

from _dictwriter import NUMBER, bare_environment
from _table import STARTPROJECT, Options, Row, compare, configure, importable, less, main, measure, row

TURNS = 30
WARM = 8
"""Requests before each measurement, because the subjects evict each other from the caches of the CPU."""
POLICIES = "resty_django.limits.middleware.LimitMiddleware"
PLENTY = "100000000/s"
EMPTY, PASS_ON, BARE, HIT, LIMIT_REQ = "empty view", "middleware that passes on", "bare LMDB", "hit()", "@limit_req"
POLICY, OTHER_POLICIES = "a policy", "10 policies, none matches"
TIERED = "a policy, tiers, exemptions"
THREE, SLOT, LIMIT_CONN = "combine() of three", "hit() and leaving() of a slot", "@limit_conn"
TXID, OURS, SEVEN = "TxidMiddleware", "five middlewares of ours", "the seven of startproject"
MIDDLEWARES = (
    "resty_django.txid.middleware.TxidMiddleware",
    "resty_django.events.middleware.PollMiddleware",
    "resty_django.cache.middleware.UpdateMiddleware",
    "resty_django.limits.login.LoginGuardMiddleware",
    POLICIES,
)
DRF, DRF_OURS, DRF_THEIRS = "DRF, empty view", "DRF, our throttle", "DRF, its throttle, locmem"
THEIRS_LOCMEM, THEIRS_REDIS = "django-ratelimit, locmem", "django-ratelimit, Redis"
SMART_REDIS, GUID = "django-smart-ratelimit, leaky bucket, Redis", "django-guid"
LIMIT_REQ_REDIS = "@limit_req, Redis"
TARGETS = (
    (LIMIT_REQ, HIT, "<= 1.3"),
    (LIMIT_REQ, BARE, "<= 2"),
    (POLICY, HIT, "<= 1.3"),
    (POLICY, BARE, "<= 2"),
    (TIERED, POLICY),
    ("@limit_count", HIT),
    ("@limit_req, three rates", LIMIT_REQ),
    (DRF_OURS, DRF_THEIRS, "<= 1"),
    (THREE, HIT, "<= 1.5"),
    (SLOT, BARE, "<= 4"),
    (LIMIT_CONN, BARE, "<= 4"),
    (TXID, SEVEN, "<= 0.18"),
    (OURS, SEVEN, "<= 0.45"),
    (THEIRS_LOCMEM, LIMIT_REQ),
    (THEIRS_REDIS, LIMIT_REQ_REDIS),
    (SMART_REDIS, LIMIT_REQ_REDIS),
    (GUID, TXID),
)
"""The time that a subject adds to a request, compared with another subject."""


class Subject(NamedTuple):
    """A URL. `middleware`: its own, after the site's middleware. `policies`: in force for its requests."""

    view: Any
    middleware: tuple[str, ...] = ()
    policies: Mapping[str, dict[str, Any]] = types.MappingProxyType({})


class PassOn:
    """A middleware that only passes the request on."""

    def __init__(self, get_response: Callable[[Any], Any]) -> None:
        self.get_response = get_response

    def __call__(self, request: Any) -> Any:
        return self.get_response(request)


def configure_site(options: Options) -> None:
    importable(options, "django-ratelimit", "django-smart-ratelimit", "django-guid")
    guid = ["django_guid"] if importlib.util.find_spec("django_guid") else []
    dictionaries: dict[str, Any] = {name: {"PATH": str(options.folder)} for name in ("default", "events", "limits")}
    configure(
        ALLOWED_HOSTS=["*"],
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": str(options.folder / "bench.sqlite3")}},
        INSTALLED_APPS=[
            *("django.contrib.contenttypes", "django.contrib.auth", "django.contrib.sessions"),
            *("django.contrib.messages", "rest_framework"),
            *("resty_django", "resty_django.cache", "resty_django.limits"),
            *guid,
        ],
        MIDDLEWARE=[],
        CACHES={
            "default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
            "redis": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": options.url},
            "django-redis": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": options.url},
        },
        RATELIMIT_USE_CACHE="default",
        RATELIMIT_BACKEND="redis",
        RATELIMIT_REDIS={"url": options.url},
        REST_FRAMEWORK={"DEFAULT_AUTHENTICATION_CLASSES": [], "DEFAULT_PERMISSION_CLASSES": []},
        RESTY_DJANGO={
            "SHARED_DICTS": dictionaries | {"shared": {"ENGINE": "redis", "ALIAS": "django-redis"}},
            "LIMITS": {"TIER": f"{tier_of.__module__}.tier_of"},
        },
        LOGGING_CONFIG=None,
    )
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    options.subjects = dict([*lmdb_subjects(options.folder), *drf_subjects(), *peer_subjects()])


def tier_of(request: Any) -> str:
    return "pro"


def empty(request: Any) -> Any:
    from django.http import HttpResponse

    return HttpResponse(b"")


def calling(function: Callable[[], object]) -> Callable[[Any], Any]:
    """An empty view that calls the function first."""

    def view(request: Any) -> Any:
        function()
        return empty(request)

    return view


def bare_transaction(folder: Path) -> Callable[[], None]:
    """A read-modify-write of py-lmdb."""
    env, db = bare_environment(folder)
    begin, pack, unpack = env.begin, NUMBER.pack, NUMBER.unpack
    with begin(db, write=True) as txn:
        txn.put(b"n", pack(0))

    def add() -> None:
        with begin(db, None, True) as txn:
            txn.put(b"n", pack(unpack(txn.get(b"n"))[0] + 1))

    return add


def lmdb_subjects(folder: Path) -> Iterator[tuple[str, Subject]]:
    from resty_django.limits import Concurrency, FixedWindow, LeakyBucket, combine
    from resty_django.limits.decorators import limit_conn, limit_count, limit_req

    hit = LeakyBucket(1e8, 100_000, prefix="hit:").hit
    slots = Concurrency(100, prefix="slots:")
    three = [
        LeakyBucket(1e8, 100_000, prefix="three:a:"),
        FixedWindow(10**9, 3600, prefix="three:b:"),
        LeakyBucket(1e8, 100_000, prefix="three:c:"),
    ]
    address = "127.0.0.1"
    policy = {"algorithm": "leaky_bucket", "rate": PLENTY, "burst": 100_000}
    yield EMPTY, Subject(empty)
    yield PASS_ON, Subject(empty, (f"{PassOn.__module__}.PassOn",))
    yield TXID, Subject(empty, MIDDLEWARES[:1])
    yield OURS, Subject(empty, MIDDLEWARES)
    yield SEVEN, Subject(empty, tuple(STARTPROJECT))
    yield BARE, Subject(calling(bare_transaction(folder)))
    yield HIT, Subject(calling(lambda: hit(address)))
    yield LIMIT_REQ, Subject(limit_req(PLENTY, burst=100_000)(empty))
    yield "@limit_count", Subject(limit_count(10**9, per="1h")(empty))
    yield "@limit_req, three rates", Subject(limit_req("100000000/s;5000000000/m;200000000000/h", burst=100_000)(empty))
    yield POLICY, Subject(empty, (POLICIES,), {"bench": {**policy, "path": "/v/*"}})
    tiered = {
        "tiers": {"pro": f"{PLENTY} burst=100000"},
        "exempt_networks": ["10.0.0.0/8"],
        "exempt_paths": ["/status/*"],
    }
    yield TIERED, Subject(empty, (POLICIES,), {"bench": {**policy, **tiered, "path": "/v/*"}})
    yield OTHER_POLICIES, Subject(empty, (POLICIES,), {f"p{n}": {**policy, "path": f"/shop/{n}/*"} for n in range(10)})
    yield THREE, Subject(calling(lambda: combine(three, [address, address, address])))
    yield SLOT, Subject(calling(lambda: slots.leaving(address, None, slots.hit(address).token)))
    yield LIMIT_CONN, Subject(limit_conn(100)(empty))


def drf_subjects() -> Iterator[tuple[str, Subject]]:
    from rest_framework.response import Response
    from rest_framework.throttling import AnonRateThrottle
    from rest_framework.views import APIView

    from resty_django.limits.throttling import LeakyBucketThrottle

    class Empty(APIView):
        def get(self, request: Any) -> Response:
            return Response(b"")

    class Theirs(AnonRateThrottle):
        rate = "1000/day"

        def throttle_success(self) -> bool:
            self.history = self.history[:9]  # else it grows with the run, and is measured instead of the throttle
            return bool(super().throttle_success())

    class Ours(LeakyBucketThrottle):
        rate = f"{PLENTY} burst=100000"

    yield DRF, Subject(Empty.as_view())
    yield DRF_OURS, Subject(Empty.as_view(throttle_classes=[Ours]))
    yield DRF_THEIRS, Subject(Empty.as_view(throttle_classes=[Theirs]))


def peer_subjects() -> Iterator[tuple[str, Subject]]:
    """django-ratelimit, where it can be installed, and everything on Redis."""
    from resty_django.limits.decorators import limit_req

    yield LIMIT_REQ_REDIS, Subject(limit_req(PLENTY, burst=100_000, store="shared")(empty))
    try:
        from django_ratelimit.decorators import ratelimit
    except ImportError:
        return
    theirs = ratelimit(key="ip", rate=PLENTY)
    yield THEIRS_LOCMEM, Subject(theirs(empty))
    yield THEIRS_REDIS, Subject(theirs(empty))
    if importlib.util.find_spec("django_guid"):
        yield GUID, Subject(empty, ("django_guid.middleware.guid_middleware",))
    if importlib.util.find_spec("django_smart_ratelimit"):
        from django_smart_ratelimit import ratelimit as smart

        yield SMART_REDIS, Subject(smart(key="ip", rate=PLENTY, algorithm="leaky_bucket")(empty))


_numbers = itertools.count()


class Runner:
    """Asks for the URL of one subject."""

    def __init__(self, name: str, subject: Subject, middleware: list[str]) -> None:
        from django.conf import settings
        from django.test import RequestFactory
        from django.test.client import ClientHandler
        from django.urls import path

        self.name = name
        self.subject = subject
        module = types.ModuleType(f"urls_{next(_numbers)}")  # Django caches resolvers by this name
        module.urlpatterns = [path("v/", subject.view)]  # type: ignore[attr-defined]
        sys.modules[module.__name__] = module
        self._urls = module.__name__
        settings.MIDDLEWARE = [*middleware, *subject.middleware]
        self._handler = ClientHandler(enforce_csrf_checks=False)
        self._handler.load_middleware()
        self._environ = RequestFactory()._base_environ(PATH_INFO="/v/")

    @contextmanager
    def _in_force(self) -> Iterator[None]:
        from django.conf import settings

        settings.ROOT_URLCONF = self._urls
        settings.RATELIMIT_USE_CACHE = "redis" if self.name == THEIRS_REDIS else "default"
        policies = self.subject.policies
        if not policies:
            yield
            return
        from resty_django.limits.policies.registry import declare_policy, withdraw_policy

        for name, values in policies.items():
            declare_policy(name, **values)
        yield
        for name in policies:
            withdraw_policy(name)

    def run(self, clock: Callable[[], float], count: int) -> float:
        """Return the seconds that this number of requests takes."""
        handler, environ = self._handler, self._environ
        with self._in_force():
            gc.collect(0)
            for _ in range(WARM):
                response = handler(dict(environ))
            assert response.status_code == 200, (self.name, response.status_code)
            began = clock()
            for _ in range(count):
                handler(dict(environ))
            return clock() - began


def added(middleware: list[str], prefix: str, options: Options) -> Iterator[Row]:
    """Compare what subjects add to the request of their base."""
    runners = {name: Runner(name, subject, middleware) for name, subject in options.subjects.items()}
    on_redis = {name for name in runners if name.endswith("Redis")}
    gc.collect()
    gc.freeze()
    gc.disable()  # a collection would fall on the same subject in each turn
    for names, clock in ((runners.keys() - on_redis, thread_time), ({EMPTY} | on_redis, perf_counter)):
        subjects = {name: partial(runners[name].run, clock) for name in runners if name in names}
        samples = measure(subjects, options, TURNS // (2 if options.quick else 1))
        samples = {name: less(samples, name, DRF if name.startswith("DRF") else EMPTY) for name in samples}
        yield from compare(samples, TARGETS, prefix=prefix)
        if PASS_ON in samples:
            more = less(samples, OTHER_POLICIES, PASS_ON)
            yield row(f"{prefix}{OTHER_POLICIES}, more than a {PASS_ON}", more, None, "us", "<= 3")
    gc.enable()


if __name__ == "__main__":
    parts = {"without": partial(added, [], ""), "startproject": partial(added, STARTPROJECT, "startproject: ")}
    main(parts, configure_site)
