"""Reports of `manage.py runqless`, requests of operators, and stacks of running jobs."""

from __future__ import annotations

import json
import os
import platform
import signal
import socket
import time
from collections.abc import Callable
from io import StringIO
from typing import Any

import django
import pytest
from django.core.management import CommandError, call_command

import resty_django
from resty_django.qless import Client, InvalidArgument, QlessError
from resty_django.qless.clients.worker_reports import JobStack, WorkerReport, WorkerStacks
from resty_django.qless.worker.reports import liveness
from resty_django.qless.worker.reports.run_times import RunTimes, UsualTimes
from tests.integration.qless.conftest import job_of, pop
from tests.integration.qless.worker.conftest import (
    JOBS,
    Start,
    Workers,
    descendants,
    put,
    started,
    state,
    until,
    wait_for,
)

pytestmark = [pytest.mark.redis, pytest.mark.timeout(180)]

Reporting = Callable[..., tuple[Workers, WorkerReport]]
POOLS = ("threads", "processes")


def reports(client: Client, count: int = 1) -> list[WorkerReport]:
    """The reports of this number of workers, oldest process first."""
    wait_for(lambda: len(client.workers.reports()) == count, f"{count} workers are to report")
    return sorted(client.workers.reports(), key=lambda report: report.started)


@pytest.fixture
def reporting(workers: Start, client: Client) -> Reporting:
    """Starts a worker of one process; returns it and its report once it serves its queues."""

    def start(*arguments: str, **options: Any) -> tuple[Workers, WorkerReport]:
        run = workers(*arguments, **options)
        run.ready()
        (report,) = reports(client)
        return run, report

    return start


def the_report(client: Client, name: str) -> WorkerReport:
    (report,) = client.workers.reports(name)
    return report


def confirmed(client: Client, name: str) -> WorkerReport:
    """The report, once the worker has followed all requests."""
    return wait_for(  # type: ignore[no-any-return]
        lambda: (report := the_report(client, name)) and not report.requests and report, "requests are to be confirmed"
    )


def stacks(client: Client, name: str, seconds: float = 40.0) -> WorkerStacks:
    request = client.workers.request_stacks(name)

    def answer() -> WorkerStacks | None:
        answer = client.workers.stacks(name)
        return answer if answer is not None and answer.id == request else None

    return wait_for(answer, "stacks are to arrive", seconds)  # type: ignore[no-any-return]


def stacks_at(client: Client, name: str, last: list[str]) -> WorkerStacks:
    """Return the stacks once the jobs are in these functions: they report their start a moment before."""

    def answer() -> WorkerStacks | None:
        answer = stacks(client, name)
        return answer if sorted(functions(stack)[-1] for stack in answer.jobs if stack.frames) == last else None

    return wait_for(answer, f"the jobs are to be in {last}")  # type: ignore[no-any-return]


def functions(stack: JobStack) -> list[str]:
    return [frame.function.rpartition(".")[2] for frame in stack.frames]


# --- reports ---


def test_a_worker_reports_itself(reporting: Reporting, client: Client) -> None:
    before = time.time()
    run, report = reporting("--concurrency", "3", qless={"RELEASE": "abc123"})
    (pid,) = run.children()
    assert (report.name, report.pid) == (f"{socket.gethostname()}-{pid}", pid)
    assert report.host == socket.gethostname()
    assert (report.package, report.release) == (resty_django.__version__, "abc123")
    assert (report.python, report.django) == (platform.python_version(), django.get_version())
    assert (report.state, report.pool, report.slots, report.used) == ("running", "threads", 3, 0)
    assert report.max_slots == 64
    assert before < report.started < time.time()
    jid = put(client, "long", 0.5)
    started(client)
    client.workers.resume(report.name)  # a request makes it report at once
    busy = confirmed(client, report.name)
    assert (busy.used, busy.jobs[0].jid, busy.jobs[0].klass) == (1, jid, f"{JOBS}.long")
    until(client, jid, "complete")
    assert run.stop() == 0
    assert client.workers.reports(report.name) == []
    assert not client.source.sync().keys("ql:report:*")


def test_workers_of_other_clients_have_no_report(client: Client) -> None:
    client.queues["q"].pop()
    assert client.workers.reports() == client.workers.reports(client.worker_name) == []
    for request in (client.workers.quiet, client.workers.stop, client.workers.request_stacks):
        with pytest.raises(QlessError, match="does not report"):
            request(client.worker_name)
    with pytest.raises(QlessError, match="does not report"):
        client.workers.scale(client.worker_name, 2)
    assert client.workers.stacks(client.worker_name) is None


def test_a_killed_worker_leaves_a_report_that_expires(reporting: Reporting, client: Client) -> None:
    run, report = reporting()
    run.signal(signal.SIGSTOP)  # the parent replaces nothing
    os.kill(report.pid, signal.SIGKILL)
    client.workers.quiet(report.name)
    left = the_report(client, report.name)
    assert [request.action for request in left.requests] == ["quiet"]
    assert 0 < client.source.sync().ttl(f"ql:report:{report.name}") <= 600
    client.workers.deregister(report.name)
    assert client.workers.reports(report.name) == []


@pytest.mark.parametrize("runs", [2, 3])
def test_usual_times_come_from_all_workers_if_this_one_has_none(client: Client, runs: int) -> None:
    now = client.clock()
    own = RunTimes()
    usual_times = UsualTimes(client, own)
    for _ in range(runs):
        client.queues["q"].put("K")
        client.clock = lambda: now  # type: ignore[misc]
        job = pop(client.queues["q"])
        client.clock = lambda: now + 4  # type: ignore[misc]
        job.complete()
    client.clock = time.time  # type: ignore[misc]
    calls = client.source.sync().info("commandstats")["cmdstat_evalsha"]["calls"]
    assert usual_times.usual("K", 59) is None  # not requested
    usual = [usual_times.usual("K", 61) for _ in range(10)]
    assert usual == ([pytest.approx(4.0, rel=0.42)] * 10 if runs == 3 else [None] * 10)
    assert client.source.sync().info("commandstats")["cmdstat_evalsha"]["calls"] - calls == 1  # both days
    for _ in range(3):
        own.record("K", 30.0)
    assert usual_times.usual("K", 61) == 30.0


# --- quiet, resume, stop, scale ---


@pytest.mark.parametrize("pool", POOLS)
def test_a_quiet_worker_takes_no_jobs_until_it_is_resumed(reporting: Reporting, client: Client, pool: str) -> None:
    _, report = reporting("--pool", pool)
    client.workers.quiet(report.name)
    assert confirmed(client, report.name).state == "quiet"
    jid = put(client, "write", "later")
    client.workers.scale(report.name, 2)  # another round, in which it does not take the job
    assert confirmed(client, report.name).slots == 2
    assert state(client, jid) == "waiting"
    client.workers.resume(report.name)
    assert confirmed(client, report.name).state == "running"
    until(client, jid, "complete")


@pytest.mark.parametrize("pool", POOLS)
def test_slots_can_be_scaled(reporting: Reporting, client: Client, pool: str) -> None:
    _, report = reporting("--pool", pool, "--concurrency", "1")
    jids = [put(client, "long", 600) for _ in range(3)]
    started(client, 1)
    client.workers.scale(report.name, 3)
    started(client, 3)
    assert confirmed(client, report.name).slots == 3
    client.workers.scale(report.name, 1)
    assert confirmed(client, report.name).slots == 1
    assert [state(client, jid) for jid in jids] == ["running"] * 3  # they are not interrupted
    assert len(descendants(report.pid)) == (4 if pool == "processes" else 0)
    for slots in (0, 65):
        with pytest.raises(InvalidArgument, match="Use 1 to 64"):
            client.workers.scale(report.name, slots)


def test_processes_of_slots_that_are_no_longer_needed_end(reporting: Reporting, client: Client) -> None:
    _, report = reporting("--pool", "processes", "--concurrency", "3")
    jids = [put(client, "long", 0.5) for _ in range(3)]
    started(client, 3)
    processes = len(descendants(report.pid))
    for jid in jids:
        until(client, jid, "complete")
    client.workers.scale(report.name, 1)
    wait_for(lambda: len(descendants(report.pid)) == processes - 2, "two processes are to end")
    client.workers.scale(report.name, 3)
    for number in range(3):
        put(client, "long", 600 + number)
    started(client, 6)
    assert len(descendants(report.pid)) == processes


@pytest.mark.parametrize("pool", POOLS)
def test_a_stopped_process_is_not_replaced(workers: Start, client: Client, pool: str) -> None:
    """The other process continues; when the last one is stopped, `runqless` ends."""
    run = workers("--pool", pool, "--processes", "2", "--concurrency", "1")
    run.ready(2)
    first, second = reports(client, 2)
    jid = put(client, "long", 1)
    started(client)
    holder = job_of(client, jid).worker_name
    other = next(report.name for report in (first, second) if report.name != holder)
    client.workers.stop(holder)
    until(client, jid, "complete")  # a graceful end
    wait_for(lambda: "stopped by an operator" in run.text(), "the process is to end")
    reports(client, 1)
    again = put(client, "write", "again")
    until(client, again, "complete")
    assert len(run.children()) == 1
    client.workers.stop(other)
    assert run.wait() == 0
    assert client.workers.alive() == []


def test_a_replaced_process_stays_quiet_and_scaled(reporting: Reporting, client: Client) -> None:
    run, report = reporting("--concurrency", "2")
    client.workers.scale(report.name, 5)
    client.workers.quiet(report.name)
    confirmed(client, report.name)
    os.kill(report.pid, signal.SIGKILL)

    def successor() -> WorkerReport | None:
        return next((other for other in client.workers.reports() if other.pid != report.pid), None)

    replaced = wait_for(successor, "another process is to report")
    assert (replaced.state, replaced.slots) == ("quiet", 5)
    run.signal(signal.SIGCONT)  # resumes all
    jid = put(client, "write")
    until(client, jid, "complete")


def test_a_request_is_found_without_its_message(reporting: Reporting, client: Client) -> None:
    """The channel was broken when it was announced: the next report finds it."""
    _, report = reporting()
    request = json.dumps({"id": 1, "action": "quiet", "at": time.time()}, separators=(",", ":"))
    client.source.sync().hset(f"ql:report:{report.name}", "state", request)
    assert confirmed(client, report.name).state == "quiet"
    assert liveness.REPORT_SECONDS < 40  # which is how long `wait_for` waits


def test_forged_requests_change_nothing(reporting: Reporting, client: Client) -> None:
    _, report = reporting()
    server = client.source.sync()
    for forged in ("nonsense", '{"id":1,"action":"scale","at":1,"slots":9999}'):
        server.hset(f"ql:report:{report.name}", "slots", forged)
        for message in ("nonsense", "[]", '{"event":"request"}', "x" * 100_000, '{"event":"request","id":{}}'):
            server.publish(f"ql:w:{report.name}", message)
        client.workers.quiet(report.name)  # which it still follows
        wait_for(lambda: the_report(client, report.name).state == "quiet", "it is to be quiet")
        assert the_report(client, report.name).slots == report.slots, forged
        jid = put(client, "write")
        client.workers.resume(report.name)
        until(client, jid, "complete")


# --- stacks ---


@pytest.mark.parametrize("pool", POOLS)
def test_stacks_of_running_jobs(reporting: Reporting, client: Client, pool: str) -> None:
    _, report = reporting("--pool", pool)
    assert stacks(client, report.name).jobs == []
    jids = {name: put(client, name, 600) for name in ("long", "along", "deep_wait")}
    started(client, 3)
    answer = stacks_at(client, report.name, ["long", "sleep", "sleep"])
    by_jid = {stack.jid: stack for stack in answer.jobs}
    assert by_jid.keys() == set(jids.values())
    sync, task, deep = (by_jid[jids[name]] for name in ("long", "along", "deep_wait"))
    assert (sync.klass, sync.seconds < 60) == (f"{JOBS}.long", True)
    assert sync.frames[-1].source == "time.sleep(job.data)"
    assert sync.frames[-1].path.endswith("/worker/jobs.py")
    assert functions(task)[-2:] == ["along", "sleep"]
    assert functions(deep)[-4:] == ["deep_wait", "_first_level", "_second_level", "sleep"]
    assert "hunter2" not in str(answer)  # the value of a variable of these jobs
    assert 0 < client.source.sync().ttl(f"ql:stacks:{report.name}") <= 120


@pytest.mark.parametrize(
    ("pool", "name", "source"),
    [
        *((pool, "ablocks", "time.sleep(job.data)") for pool in POOLS),
        ("processes", "hold_interpreter", "ctypes.PyDLL(None).usleep(int(job.data * 1e6))"),
    ],
)
def test_the_stack_of_a_job_that_blocks_its_loop_or_its_process(
    reporting: Reporting, client: Client, pool: str, name: str, source: str
) -> None:
    _, report = reporting("--pool", pool)
    put(client, name, 600)
    started(client)
    (stack,) = stacks_at(client, report.name, [name]).jobs
    assert stack.frames[-1].source == source


def test_the_stack_of_a_worker_whose_interpreter_is_blocked(reporting: Reporting, client: Client, site: None) -> None:
    """The process that sends its heartbeats answers."""
    _, report = reporting()
    for count, name in enumerate(("long", "hold_interpreter"), 1):  # the second one stops all threads
        put(client, name, 600)
        started(client, count)
    answer = stacks(client, report.name, 90)
    assert [request.action for request in the_report(client, report.name).requests] == ["stacks"]
    assert {stack.jid for stack in answer.jobs} == {""}
    assert sorted(functions(stack)[-1] for stack in answer.jobs) == ["hold_interpreter", "long"]
    (blocking,) = (stack for stack in answer.jobs if functions(stack)[-1] == "hold_interpreter")
    assert blocking.frames[-1].source == "ctypes.PyDLL(None).usleep(int(job.data * 1e6))"
    assert "ctypes.PyDLL(None).usleep(int(job.data * 1e6))" in in_terminal("stacks", report.name, "--wait", "30")


def test_a_stopped_worker_does_not_answer(reporting: Reporting, client: Client) -> None:
    """Its request remains, and is not answered when nobody waits any more."""
    _, report = reporting()
    os.kill(report.pid, signal.SIGSTOP)
    client.workers.request_stacks(report.name)
    time.sleep(0.5)
    assert client.workers.stacks(report.name) is None
    assert [request.action for request in the_report(client, report.name).requests] == ["stacks"]
    old = json.dumps({"id": 1, "action": "stacks", "at": time.time() - 100}, separators=(",", ":"))
    client.source.sync().hset(f"ql:report:{report.name}", "stacks", old)
    os.kill(report.pid, signal.SIGCONT)
    confirmed(client, report.name)
    assert client.workers.stacks(report.name) is None


def test_a_loop_that_hangs_can_be_examined(reporting: Reporting, client: Client) -> None:
    """Requests are not confirmed, but stacks are sent: the thread that reports collects them."""
    _, report = reporting()
    jid = put(client, "hangs_the_loop", 600)
    started(client)
    client.workers.quiet(report.name)
    (stack,) = stacks(client, report.name).jobs
    assert stack.jid == jid
    wait_for(lambda: [request.action for request in the_report(client, report.name).requests] == ["quiet"])


def test_stacks_are_bounded(reporting: Reporting, client: Client) -> None:
    _, report = reporting("--concurrency", "60")
    for _ in range(59):
        put(client, "along", 600)
    put(client, "recurses", 600)
    started(client, 60)
    answer = stacks(client, report.name)
    assert (len(answer.jobs), answer.left_out) == (50, 10)
    assert max(len(stack.frames) for stack in answer.jobs) <= 60


# --- in the terminal ---


def in_terminal(*arguments: str) -> str:
    output = StringIO()
    call_command("qless_workers", *arguments, stdout=output, no_color=True)
    return output.getvalue()


@pytest.fixture
def site(client: Client, valkey_url: str, settings: Any) -> None:
    """The settings name the server of the tests."""
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "QLESS": {"URL": valkey_url}}


def test_workers_are_controlled_in_the_terminal(workers: Start, client: Client, site: None) -> None:
    assert in_terminal("list") == "No workers report.\n"
    run = workers("--name", "web1", "--processes", "2", "--concurrency", "2", qless={"RELEASE": "abc123"})
    run.ready(2)
    first, second = (report.name for report in reports(client, 2))
    put(client, "long", 600)
    started(client)
    assert "no worker" in refused("quiet", "web2-*").lower()
    assert in_terminal("quiet", "web1-*").count("quiet confirmed.") == 2
    listed = in_terminal("list")
    assert listed.count(" quiet ") == listed.count("abc123") == 2
    assert "1/2" in listed
    assert "long" in listed
    assert in_terminal("resume", first) == f"{first}: resume confirmed.\n"
    assert in_terminal("scale", second, "--slots", "5") == f"{second}: scale confirmed.\n"
    assert "Use 1 to 64" in refused("scale", second, "--slots", "65")
    assert sorted((report.state, report.slots) for report in reports(client, 2)) == [("quiet", 5), ("running", 2)]
    assert "time.sleep(job.data)" in in_terminal("stacks", first, second)
    holder = client.queues["q"].jobs.running()[0]
    name = job_of(client, holder).worker_name
    idle = first if name == second else second
    in_terminal("stop", idle)
    reports(client, 1)


def test_a_worker_that_does_not_confirm_is_named(reporting: Reporting, client: Client, site: None) -> None:
    _, report = reporting()
    os.kill(report.pid, signal.SIGSTOP)
    assert f"Not confirmed within 0.1 s: {report.name}" in refused("quiet", report.name, "--wait", "0.1")
    assert "quiet requested" in in_terminal("list")


def refused(*arguments: str) -> str:
    with pytest.raises(CommandError) as caught:
        in_terminal(*arguments)
    return str(caught.value)
