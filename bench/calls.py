"""The functions and modules of this package on the most frequent paths: their number, and their calls.

    python bench/calls.py [--only miss,allowed,refused,job,retry] [--list] [--json FILE]

- miss: `MLCache.get` of a key that no level has, with its loader, over a dictionary in memory (LMDB).
- allowed, refused: a request to a view under `@limit_req`, through the handler of Django's test client.
- job: a worker takes a task from its queue, runs it and completes it, while more of them wait.
- retry: the POST that retries a failed job in the admin, without the page that it leads to.

Each path first runs unmeasured, then under `sys.setprofile`. A function counts if most runs call it; periodic work (a
report, a check for new settings) does not count. Calls are the calls of these functions in one run; a generator or
coroutine counts each time it is resumed. `--list` prints the functions with their calls.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import CodeType, FrameType, ModuleType
from typing import Any

from _table import ROOT, Options, Row, configure, main, row

from resty_django.qless import task

PACKAGE = f"{ROOT / 'resty_django'}{os.sep}"
WARM, RUNS = 20, 40
SHARE = 0.75
"""Calls a run from which a function counts."""
ADDRESS = "192.0.2.1"

Calls = Mapping[CodeType, float]


class Profile:
    """Counts the calls of the package's functions in this thread, and in new threads that it is asked to follow."""

    def __init__(self) -> None:
        self._calls: Counter[CodeType] = Counter()
        self._active = False
        sys.setprofile(self._count)

    def _count(self, frame: FrameType, event: str, argument: object) -> None:
        if self._active and event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            self._calls[frame.f_code] += 1

    def follow_new_threads(self) -> None:
        threading.setprofile(self._count)

    def start(self) -> None:
        self._calls.clear()
        self._active = True

    def stop(self, runs: int = RUNS) -> Calls:
        """Return the calls of each function in a run, of those that count."""
        self._active = False
        return {code: calls / runs for code, calls in self._calls.items() if calls >= SHARE * runs}

    def of(self, path: Callable[[int], object]) -> Calls:
        """Run the path, given the number of the run."""
        for number in range(WARM):
            path(number)
        self.start()
        for number in range(WARM, WARM + RUNS):
            path(number)
        return self.stop()


def miss(profile: Profile) -> Calls:
    from resty_django.cache import MLCache

    cache = MLCache("calls", "limits", ttl=60)
    return profile.of(lambda number: cache.get(f"product:{number}", load, number))


def load(number: int) -> dict[str, int]:
    return {"id": number}


def request(profile: Profile, name: str, status: int) -> Calls:
    from django.test import RequestFactory
    from django.test.client import ClientHandler

    handler = ClientHandler(enforce_csrf_checks=False)
    environ = RequestFactory()._base_environ(PATH_INFO=f"/{name}/", REMOTE_ADDR=ADDRESS)
    handler(dict(environ))  # uses up the rate of the refused ones

    def ask(number: int) -> None:
        response = handler(dict(environ))
        assert response.status_code == status, response

    return profile.of(ask)


@task(ignore_result=True)
def counted() -> None:
    after_run()


after_run: Callable[[], None]


def job(profile: Profile) -> Calls:
    global after_run
    from resty_django.qless.clients.default import default_client
    from resty_django.qless.management.worker_process import build
    from resty_django.qless.worker.options import options

    calls: Calls = {}
    done = 0

    def count() -> None:
        nonlocal calls, done
        done += 1
        if done == WARM:
            profile.start()
        elif done == WARM + RUNS:
            calls = profile.stop()
            loop.inbox.put(partial(loop.stop, 0.0))

    after_run = count
    profile.follow_new_threads()
    for _ in range(WARM + 2 * RUNS):
        counted.delay()
    client = default_client()
    client.worker_name = "calls"
    loop, listener = build(client, options(queues=("default",), concurrency=1))
    loop.resize(1)
    listener.start()
    loop.run()
    listener.stop()
    return calls


def retry(profile: Profile) -> Calls:
    from django.contrib.auth.models import User
    from django.test import Client

    from resty_django.qless.admin.formatting import url
    from resty_django.qless.clients.default import default_client

    queue = default_client().queues["failing"]
    urls = [url("job", queue.put("Job", {}), "retry") for _ in range(WARM + RUNS)]
    for taken in queue.pop(len(urls)):
        taken.fail("calls", "failed to be retried")
    browser = Client()
    browser.force_login(User.objects.create_superuser("operator"))

    def post(number: int) -> None:
        response = browser.post(urls[number])
        assert response.status_code == 302, response

    return profile.of(post)


PATHS: Mapping[str, Callable[[Profile], Calls]] = {
    "miss": miss,
    "allowed": lambda profile: request(profile, "allowed", 200),
    "refused": lambda profile: request(profile, "refused", 429),
    "job": job,
    "retry": retry,
}


def empty(request: Any) -> Any:
    from django.http import HttpResponse

    return HttpResponse(b"")


def make_urls() -> None:
    """Set the URLs of the site."""
    from django.conf import settings
    from django.contrib import admin
    from django.urls import path

    from resty_django.limits.decorators import limit_req

    urls = ModuleType("calls_urls")
    urls.__dict__["urlpatterns"] = [
        path("admin/", admin.site.urls),
        path("allowed/", limit_req("1000000/s", burst=1000)(empty)),
        path("refused/", limit_req("1/h")(empty)),
    ]
    sys.modules[urls.__name__] = urls
    settings.ROOT_URLCONF = urls.__name__


def configure_site(options: Options) -> None:
    configure(
        ALLOWED_HOSTS=["*"],
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": str(options.folder / "calls.sqlite3")}},
        INSTALLED_APPS=[
            *("django.contrib.admin", "django.contrib.contenttypes", "django.contrib.auth", "django.contrib.sessions"),
            *("django.contrib.messages", "resty_django", "resty_django.limits", "resty_django.qless"),
        ],
        MIDDLEWARE=[
            "django.contrib.sessions.middleware.SessionMiddleware",
            "django.contrib.auth.middleware.AuthenticationMiddleware",
            "django.contrib.messages.middleware.MessageMiddleware",
        ],
        STATIC_URL="static/",
        TEMPLATES=[
            {
                "BACKEND": "django.template.backends.django.DjangoTemplates",
                "APP_DIRS": True,
                "OPTIONS": {
                    "context_processors": [
                        "django.template.context_processors.request",
                        "django.contrib.auth.context_processors.auth",
                        "django.contrib.messages.context_processors.messages",
                    ]
                },
            }
        ],
        RESTY_DJANGO={
            "SHARED_DICTS": {"limits": {"PATH": str(options.folder)}},
            "QLESS": {"URL": options.url, "MODULES": ["calls"]},
        },
        LOGGING_CONFIG=None,
    )
    logging.getLogger().addHandler(logging.NullHandler())
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    make_urls()


def rows(name: str, options: Options) -> Iterator[Row]:
    calls = PATHS[name](Profile())
    if options.list:
        for code, count in sorted(calls.items(), key=lambda item: (item[0].co_filename, item[0].co_firstlineno)):
            print(f"  {count:6.2f}  {code.co_filename.removeprefix(PACKAGE)}: {code.co_qualname}")
    modules = {code.co_filename for code in calls}
    for figure, value in (("functions", len(calls)), ("modules", len(modules)), ("calls", sum(calls.values()))):
        yield row(f"{name}, {figure}", [value], None, "")


def run() -> None:
    main(
        {name: partial(rows, name) for name in PATHS},
        configure_site,
        lambda parser: parser.add_argument("--list", action="store_true", help="print the functions"),
    )


if __name__ == "__main__":
    from calls import run as run_of_module  # a job comes from a module that a worker can import

    run_of_module()
