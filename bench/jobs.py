"""The cost of jobs, compared with an older commit, and of the list of queues with many jobs.

    python bench/jobs.py [--quick] [--rounds N] [--only against,queues] [--against COMMIT] [--json FILE]

Against: 4000 tasks that do nothing (`--quick`: 1000), put with `delay`, then run by one worker process with 16 threads;
by this version and by the commit, whose package is taken from git. Server time is the elapsed time that the server
spends in scripts, server CPU its processor time for everything. Commands include the commands that scripts call; calls
are the calls of scripts. The figures of a run begin when the first jobs are done. Counts do not depend on the load of
the machine.

Queues: the admin's list of queues with 100,000 jobs, compared with 100 jobs in as many queues.
"""

from __future__ import annotations

import argparse
import io
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import redis
from _table import ROOT, VAR, Options, Row, Samples, compare, cpu_seconds, main
from calls import configure_site
from tasks import RUNQLESS, Peer, Subject

BASE = "a63205b"
ONE_PROCESS = (*RUNQLESS, "--processes", "1", "--concurrency", "16")
SCRIPTS = ("cmdstat_evalsha", "cmdstat_eval", "cmdstat_fcall")
UNITS = {"server time": "us", "server CPU": "us", "commands": "", "calls": "", "worker CPU": "us"}
QUEUES = 5
Figures = dict[str, float]


def package_of(commit: str) -> Path:
    """Return a folder with the package as it was. Raise `CalledProcessError` if git does not know the commit."""
    folder = VAR / f"bench-{commit}"
    if not folder.exists():
        command = ["git", "-C", str(ROOT), "archive", commit, "resty_django"]
        archive = subprocess.run(command, check=True, capture_output=True).stdout
        with tarfile.open(fileobj=io.BytesIO(archive)) as members:
            members.extractall(folder, filter="data")
    return folder


def server_figures(client: redis.Redis) -> Figures:
    """Return the figures of the server since its start."""
    stats = client.info("commandstats")
    scripts = [stats[name] for name in SCRIPTS if name in stats]
    return {
        "server time": sum(script["usec"] for script in scripts),
        "server CPU": cpu_seconds(client.info("server")["process_id"]) * 1e6,
        "commands": sum(command["calls"] for command in stats.values()),
        "calls": sum(script["calls"] for script in scripts),
    }


def tree(pid: int) -> list[int]:
    """Return a process and those that it has started."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(process for child in children for process in tree(int(child)))]


def since(before: Figures, after: Figures, jobs: int, ours: int = 0) -> Figures:
    """Return the figures of a job, without `ours`, commands of this process."""
    after = {**after, "commands": after["commands"] - ours}
    return {name: (after[name] - before[name]) / jobs for name in before}


def put(subject: Subject, jobs: int) -> Figures:
    subject.client.flushall()
    before = server_figures(subject.client)
    subject.put("noop", jobs)
    return since(before, server_figures(subject.client), jobs, ours=2)


def run(subject: Subject, jobs: int) -> Figures:
    client, polls = subject.client, 0
    with subject.working() as running:

        def snapshot() -> Figures:
            workers = tree(running[0].pid)
            return server_figures(client) | {"worker CPU": sum(map(cpu_seconds, workers)) * 1e6}

        end = time.monotonic() + 60
        while not (first := int(client.zcard("ql:completed"))):
            time.sleep(0.005)
            assert time.monotonic() < end, "no job was done in a minute"
        before = snapshot()
        while (done := int(client.zcard("ql:completed"))) < jobs:
            polls += 1
            time.sleep(0.005)
            assert time.monotonic() < end, f"{done} of {jobs} jobs were done in a minute"
        return since(before, snapshot(), jobs - first, ours=polls + 3)


def against(options: Options) -> Iterator[Row]:
    try:
        older = package_of(options.against)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"{options.against} is left out: {error}", file=sys.stderr)
        return
    jobs = 1000 if options.quick else 4000
    peer = Peer("ours", (ONE_PROCESS,), lambda client: 0)
    subjects = {"now": Subject(peer, options), options.against: Subject(peer, options, older)}
    samples: dict[tuple[str, str], Samples] = {}
    for _ in range(options.rounds):
        for name, subject in subjects.items():
            for step, figures in (("delay", put(subject, jobs)), ("a job", run(subject, jobs))):
                for figure, value in figures.items():
                    samples.setdefault((step, figure), {}).setdefault(name, []).append(value)
    for (step, figure), of_subjects in samples.items():
        target = "<= 0.95" if step == "a job" else "<= 1"
        yield from compare(of_subjects, (("now", options.against, target),), UNITS[figure], f"{step}, {figure}: ")


def queues(options: Options) -> Iterator[Row]:
    """Compare the page with the jobs of one database and the page with the jobs of the other."""
    configure_site(options)
    from django.contrib.auth.models import User
    from django.test import Client
    from django.urls import reverse

    from resty_django.qless.clients.default import default_client

    client, server = default_client(), redis.Redis.from_url(options.url)
    for jobs in (100, 100_000):  # the next ones go to the other database
        server.swapdb(0, 1)
        for number in range(QUEUES):
            many: Sequence[Any] = [{"klass": "Job", "data": {}}] * (jobs // QUEUES)
            client.queues[f"queue-{number}"].put_many(many)
    browser = Client()
    browser.force_login(User.objects.create_superuser("operator-of-queues"))
    url = reverse("admin:resty_qless_queue_changelist")
    samples: dict[str, Samples] = {}
    for _ in range(options.rounds):
        turns: dict[str, list[Figures]] = {}
        for name in ("100 jobs", "100,000 jobs") * 10:
            server.swapdb(0, 1)
            browser.get(url)
            before, began = server_figures(server), time.perf_counter()
            response = browser.get(url)
            took = (time.perf_counter() - began) * 1e3
            assert response.status_code == 200, response
            figures = since(before, server_figures(server), 1, ours=2)
            turns.setdefault(name, []).append({"time": took, **figures})
        for name, of_name in turns.items():
            for figure in of_name[0]:
                best = min(figures[figure] for figures in of_name)
                samples.setdefault(figure, {}).setdefault(name, []).append(best)
    for figure, unit in {"time": "ms", **UNITS}.items():
        yield from compare(
            samples.get(figure, {}), (("100,000 jobs", "100 jobs", "<= 1.5"),), unit, f"list of queues, {figure}: "
        )


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--against", default=BASE, metavar="COMMIT", help=f"to compare with (default: {BASE})")


if __name__ == "__main__":
    main({"against": against, "queues": queues}, arguments=arguments)
