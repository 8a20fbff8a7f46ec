"""`manage.py check` of a site with all apps, compared with the same site without them.

    python bench/check.py [--quick] [--rounds N] [--json FILE]

The site has the apps that `startproject` writes. Each check runs in a separate process; its time is the processor
time of that process, and its memory what the process had at most. The best of some turns is the figure of a round.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator

from _table import ROOT, Options, Row, Samples, compare, less, main, row

NONE, ALL = "check without our apps", "check with ALL_APPS"
SITE = """
import resource, sys
from django.conf import settings
import django
from django.core.management import call_command

apps = [f"django.contrib.{name}" for name in ("admin", "auth", "contenttypes", "sessions", "messages", "staticfiles")]
if "all" in sys.argv:
    import resty_django

    apps += resty_django.ALL_APPS
middleware = ("sessions.middleware.Session", "auth.middleware.Authentication", "messages.middleware.Message")
processors = ["django.template.context_processors.request"]
processors += [f"django.contrib.{name}.context_processors.{name}" for name in ("auth", "messages")]
engine = "django.template.backends.django.DjangoTemplates"
settings.configure(
    SECRET_KEY="bench", USE_TZ=True, STATIC_URL="static/", INSTALLED_APPS=apps,
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    MIDDLEWARE=[f"django.contrib.{name}Middleware" for name in middleware],
    TEMPLATES=[{"BACKEND": engine, "APP_DIRS": True, "OPTIONS": {"context_processors": processors}}],
)
django.setup()
call_command("check", verbosity=0)
usage = resource.getrusage(resource.RUSAGE_SELF)
print("\\n[%f, %f]" % ((usage.ru_utime + usage.ru_stime) * 1000, usage.ru_maxrss / 1024))
"""


def once(*arguments: str) -> tuple[float, float]:
    """Return milliseconds of processor time, and megabytes."""
    command = [sys.executable, "-c", SITE, *arguments]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    time, memory = json.loads(done.stdout.splitlines()[-1])
    return time, memory


def checks(options: Options) -> Iterator[Row]:
    times: Samples = {NONE: [], ALL: []}
    memory: Samples = {NONE: [], ALL: []}
    once("all")  # compiles the modules
    for _ in range(options.rounds):
        turns = [{NONE: once(), ALL: once("all")} for _ in range(1 if options.quick else 5)]
        for name in times:
            times[name].append(min(turn[name][0] for turn in turns))
            memory[name].append(min(turn[name][1] for turn in turns))
    yield from compare(times, ((ALL, NONE),), "ms")
    yield row(f"{ALL}, time added", less(times, ALL, NONE), None, "ms", "<= 200")
    yield row(f"{ALL}, memory added", less(memory, ALL, NONE), None, "MB", "<= 7")


if __name__ == "__main__":
    main({"checks": checks})
