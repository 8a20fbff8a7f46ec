"""`manage.py runqless` from outside: signals, exit codes, what dies is started again."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import signal
import statistics
import time
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from resty_django.qless import Client
from resty_django.qless.management.supervisor import KILL_AFTER_SECONDS
from resty_django.txid import is_txid
from tests.integration.qless.conftest import history, job_of
from tests.integration.qless.worker.conftest import (
    JOBS,
    Start,
    Workers,
    descendants,
    is_there,
    put,
    short_locks,
    started,
    state,
    texts,
    until,
    wait_for,
    written_lines,
)
from tests.servers import Server, running

pytestmark = [pytest.mark.redis, pytest.mark.timeout(180)]


@pytest.fixture(params=["threads", "processes"])
def either(workers: Start, request: pytest.FixtureRequest) -> Start:
    """Starts workers with each pool."""

    def start(*arguments: str, **options: Any) -> Workers:
        return workers("--pool", request.param, *arguments, **options)

    return start


def test_term_waits_for_the_jobs_that_run(either: Start, client: Client) -> None:
    jids = [put(client, name, 1.0) for name in ("long", "along")]
    run = either()
    started(client, 2)
    assert run.stop() == 0
    assert [state(client, jid) for jid in jids] == ["complete", "complete"]
    assert client.workers.counts() == []


def test_jobs_are_given_back_when_the_grace_time_is_over(either: Start, client: Client) -> None:
    jids = [put(client, name, 60.0, retries=2) for name in ("long", "along")]
    run = either("--grace", "0.5")
    started(client, 2)
    assert run.stop() == 3
    for jid in jids:
        entries = [entry for entry in job_of(client, jid).raw_queue_history if "worker" in entry]
        assert [entry["what"] for entry in entries] == ["popped", "worker stopped"]
        assert len({entry["worker"] for entry in entries}) == 1
    assert {(job.jid, job.retries_left) for job in client.queues["q"].pop(2)} == {(jid, 2) for jid in jids}
    assert client.source.sync().lrange("cancelled", 0, -1) == [jids[1].encode()]


def test_a_second_term_ends_at_once(either: Start, client: Client) -> None:
    jid = put(client, "long", 60.0)
    run = either("--grace", "60")
    started(client)
    run.signal(signal.SIGTERM)
    wait_for(lambda: "is stopping" in run.text())
    assert run.stop() == 3
    assert client.queues["q"].pop().jid == jid  # type: ignore[union-attr]


def test_a_term_to_the_whole_group_counts_once(either: Start, client: Client) -> None:
    """As service managers send it."""
    jid = put(client, "long", 1.0)
    run = either()
    started(client)
    for pid in descendants(run.process.pid):
        os.kill(pid, signal.SIGTERM)
        os.kill(pid, signal.SIGINT)
    assert run.stop() == 0
    assert state(client, jid) == "complete"


def test_quit_waits_without_a_bound(either: Start, client: Client) -> None:
    jid = put(client, "long", 1.5)
    run = either("--grace", "0")
    started(client)
    run.signal(signal.SIGQUIT)
    assert run.wait() == 0
    assert state(client, jid) == "complete"


def test_a_paused_worker_takes_no_jobs_until_it_is_resumed(workers: Start, client: Client) -> None:
    run = workers("--interval", "0.1")
    (pid,) = run.ready()
    run.signal(signal.SIGUSR2)
    wait_for(lambda: "is paused" in run.text())
    jid = put(client, "write", "first")
    os.kill(pid, signal.SIGKILL)  # the next one pauses too
    wait_for(lambda: run.children() not in ([], [pid]) and run.takes(run.children()))
    time.sleep(0.5)
    assert state(client, jid) == "waiting"
    run.signal(signal.SIGCONT)
    until(client, jid, "complete")


def test_usr1_replaces_all_processes_and_returns_the_jobs(either: Start, client: Client) -> None:
    jid = put(client, "long", 3.0)
    run = either("--processes", "2")
    before = run.ready(2)
    started(client)
    began = time.monotonic()
    run.signal(signal.SIGUSR1)
    wait_for(lambda: len(after := run.children()) == 2 and not set(after) & set(before), run.text())
    after = run.children()
    wait_for(
        lambda: any(f"-{pid} " in line for pid in after for line in written_lines(client)),
        "a new process is to take it",
    )
    until(client, jid, "complete")
    assert job_of(client, jid).retries_left == 5
    time.sleep(max(0.0, began + KILL_AFTER_SECONDS + 1 - time.monotonic()))
    assert run.children() == after


def test_a_process_that_dies_is_started_again(either: Start, client: Client) -> None:
    short_locks(client, 1, 0)
    jid = put(client, "long", 2.0, retries=1)
    run = either()
    (first,) = run.ready()
    started(client)
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: run.children() not in ([], [first]), run.text())
    job = until(client, jid, "complete")
    assert job.original_retries == 1
    assert re.search(r"worker process \d+ died; restarting it in 0.1 s", run.text())


def test_the_workers_end_with_their_parent(workers: Start, client: Client) -> None:
    run = workers("--processes", "2", "--grace", "1")
    pids = run.ready(2)
    run.process.kill()
    run.process.wait(10)
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "processes are to end")


def test_the_memory_limit_replaces_the_process(workers: Start, client: Client) -> None:
    run = workers(qless={"WORKER": {"QUEUES": ["q"], "MIDDLEWARE": ["tests.integration.qless.worker.jobs.tight"]}})
    (first,) = run.ready()
    jid = put(client, "write", "fat")
    until(client, jid, "complete")
    wait_for(lambda: run.children() not in ([], [first]), run.text())
    assert "ended with exit code 72" in run.text()


def test_a_limit_holds_over_all_processes(workers: Start, client: Client) -> None:
    """Three a second and customer, of two customers."""
    run = workers("--processes", "2")
    run.ready(2)
    jids = [put(client, "Limited", {"customer": customer}) for customer in ("a", "b") * 5]
    began = time.monotonic()
    for jid in jids:
        assert until(client, jid, "complete").retries_left == 5
    assert time.monotonic() - began > 0.9
    assert len(written_lines(client)) == 10


def test_the_live_display_shows_jobs_and_counts(workers: Start, client: Client, tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="terminal"):
        call_command("runqless", "--live")
    jid = put(client, "long", 3.0)
    master, slave = pty.openpty()
    run = workers("--live", terminal=slave)
    os.close(slave)
    screen = b""

    def read() -> bool:
        nonlocal screen
        screen += os.read(master, 65536)
        return jid.encode() in screen and b"waiting" in screen and b"completed 0" in screen

    wait_for(read, "the display is to show the job")
    assert run.stop() == 0
    os.close(master)


def test_a_paused_terminal_does_not_block_the_workers(workers: Start, client: Client) -> None:
    master, slave = pty.openpty()
    full = os.open(os.ttyname(slave), os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
    for _ in range(5):  # the kernel makes room once more, a little later
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(full, b"." * 1024)
        time.sleep(0.1)
    run = workers("--live", terminal=slave)
    run.ready()
    jid = put(client, "write", "done")
    until(client, jid, "complete")
    time.sleep(1)
    assert run.stop() == 0
    for descriptor in (full, slave, master):
        os.close(descriptor)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--queues", " , "], "queues is empty"),
        (["--processes", "0"], "--processes must be at least 1."),
        (["--concurrency", "0"], "--concurrency must be at least 1."),
        (["--grace", "-1"], "--grace must be at least 0."),
        (["--interval", "0"], "--interval must be greater than 0."),
        (["--interval", "inf"], "--interval must be greater than 0, and finite."),
        (["--reserver", "backwards"], "Use one of ordered, round_robin, shuffled"),
        (["--kill-after", "-1"], "--kill-after must be at least 0."),
        (["--pool", "process"], r"--pool process is not a pool. Did you mean processes\?"),
        (["--pool", "eventlet"], "--pool eventlet is not a pool. Use threads or processes."),
        (["--pool", "processes", "--via", "celery"], "Remove --pool processes, or POOL."),
    ],
)
def test_wrong_options_are_refused(arguments: list[str], word: str, settings: Any) -> None:
    with pytest.raises(CommandError, match=word):
        call_command("runqless", *arguments)


def test_a_site_without_redis_gets_an_error_that_names_caches(settings: Any) -> None:
    settings.RESTY_DJANGO = {}
    settings.CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
    with pytest.raises(CommandError, match="CACHES"):
        call_command("runqless")


def test_workers_wait_for_a_server_that_starts_later(workers: Start, tmp_path: Path) -> None:
    server = Server(tmp_path / "server")
    run = workers(url=server.url)
    wait_for(lambda: "cannot be used" in run.text(), "the worker is to try")
    with running([server]), contextlib.closing(Client(server.url)) as client:
        jid = put(client, "write", "late")
        until(client, jid, "complete")
        assert run.stop() == 0


def test_puts_to_idle_workers_start_at_once(workers: Start, client: Client) -> None:
    """Not after the interval, which is a minute. How long it takes is measured in bench/."""
    run = workers("--processes", "2", "--interval", "60")
    run.ready(2)
    server = client.source.sync()
    wait_for(lambda: server.pubsub_numsub(b"ql:wake:q")[0][1] == 2)
    for count in range(100):
        client.queues["q"].put(f"{JOBS}.stamp", time.time())
        wait_for(lambda count=count: server.llen("took") == count + 1)  # type: ignore[misc]
    assert statistics.median(float(seconds) for seconds in server.lrange("took", 0, -1)) < 0.2


def test_a_signal_reaches_a_process_that_a_job_has_just_forked(either: Start, client: Client) -> None:
    """Between the fork and its first step, too: its exit code reports SIGTERM, and `Pool.terminate` ends."""
    either().ready()
    jid = put(client, "ends_forks_at_once")
    until(client, jid, "complete")
    assert texts(client, "codes") == [str(-signal.SIGTERM)] * 20


def test_forks_of_a_job_without_a_txid_share_the_one_that_it_gets(either: Start, client: Client) -> None:
    either().ready()
    jid = put(client, "txids_of_forks")
    until(client, jid, "complete")
    txid, *others = texts(client, "txids")
    assert is_txid(txid)
    assert others == [txid] * 2


@pytest.mark.parametrize(("name", "number"), [("forks", signal.SIGTERM), ("aforks", signal.SIGKILL)])
def test_what_a_job_forks_ends_with_its_process(
    either: Start, client: Client, tmp_path: Path, name: str, number: signal.Signals
) -> None:
    """A fork that returns from the job's function ends there, and neither ends the job nor takes others."""
    run = either("--grace", "1")
    run.ready()
    path = tmp_path / "pids"
    jid = put(client, name, str(path))
    wait_for(lambda: path.exists() and path.read_text().endswith("\n"), run.text())
    returns, sleeps, process = map(int, path.read_text().split())
    try:
        until(client, jid, "complete")
        assert history(client, jid) == ["put", "popped", "done"]
        wait_for(lambda: not is_there(returns), "the fork that returned")
        assert is_there(sleeps)
        if number == signal.SIGTERM:
            run.signal(number)
            assert run.wait() == 0
        else:
            os.kill(process, number)
        wait_for(lambda: not is_there(sleeps), "the fork that sleeps")
    finally:
        for pid in (returns, sleeps):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
