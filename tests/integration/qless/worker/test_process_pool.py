"""`manage.py runqless --pool processes`: one process for each job, which is killed if it does not end."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from resty_django.qless import Client
from resty_django.txid import bound
from tests.integration.qless.conftest import history, job_of, pop
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

pytestmark = [pytest.mark.redis, pytest.mark.timeout(180), pytest.mark.slow]


@pytest.fixture
def pool(workers: Start) -> Iterator[Start]:
    """Starts a worker with the pool "processes", which has to end well after the test if it still runs."""
    runs: list[Workers] = []

    def start(*arguments: str, interrupt: bool = False, modules: Sequence[str] = (), **worker: Any) -> Workers:
        section = {"WORKER": {"QUEUES": ["q"], "INTERRUPT": interrupt, "POOL": "processes", **worker}}
        runs.append(workers("--concurrency", "2", *arguments, qless={**section, "MODULES": [JOBS, *modules]}))
        return runs[-1]

    yield start
    for run in runs:
        if run.process.poll() is None:
            ends_well(run)


def ends_well(run: Workers) -> None:
    """It stops without an error, and leaves no process behind."""
    below = descendants(run.process.pid)
    assert run.stop() == 0, run.text()
    wait_for(lambda: not any(map(is_there, below)), "all processes are to end")
    assert "Traceback" not in run.text()


def test_jobs_one_after_another_share_a_process_and_jobs_at_once_do_not(pool: Start, client: Client) -> None:
    run = pool()
    for _ in range(3):
        with bound():
            jid = put(client, "whoami")
        until(client, jid, "complete")
    long = put(client, "long", 3.0)
    started(client)
    with bound():
        jid = put(client, "whoami")
    until(client, jid, "complete")
    lines = [line.split() for line in texts(client, "whoami")]
    pids, counts, txids = ([line[column] for line in lines] for column in range(3))
    assert pids[0] == pids[1] == pids[2] != pids[3]
    assert not {*map(int, pids)} & {*run.children(), run.process.pid}
    first = int(counts[0])
    assert [*map(int, counts)] == [first, first + 1, first + 2, first + 3]  # one dictionary for all processes
    assert len(set(txids)) == 4
    assert all(line[2] == line[3] for line in lines)  # a job runs under its own txid
    until(client, long, "complete")


def test_jobs_end_as_in_threads(pool: Start, client: Client) -> None:
    client.config.set("heartbeat", 2)
    run = pool()
    ended: dict[str, Any] = {}
    for name in ("aquick", "Answer", "hooked_quietly", "later", "again", "by_itself", "exits"):
        jid = put(client, name, {"n": 0} if name == "again" else 3, retries=1)
        if name == "by_itself":
            wait_for(lambda: client.queues["next"].counts().waiting == 1)
            client.queues["next"].pop().complete()  # type: ignore[union-attr]
        ended[name] = until(client, jid, "failed" if name in ("later", "exits") else "complete")
    groups = {name: job.failure["group"] for name, job in ended.items() if job.failure}
    assert groups == {"later": "mine", "exits": "q-SystemExit"}
    assert ended["Answer"].result().result == {"answer": 6}
    assert ended["again"].data == {"n": 3}
    assert texts(client, "hooks") == ["before", "after"]
    assert "too late" not in run.text()


def test_a_job_whose_thread_has_lost_its_database_connection(
    pool: Start, client: Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("RESTY_DB_NAME", str(tmp_path / "db.sqlite3"))
    pool("--concurrency", "1")
    for _ in range(2):
        until(client, put(client, "alose", "to_thread"), "complete")


def test_data_of_other_clients_pass_unchanged(pool: Start, client: Client) -> None:
    """Bytes that are not UTF-8, and a megabyte of them."""
    pool()
    data = b'{"a": "\xff\xfe", "b": "' + b"\xe4" * 1_000_000 + b'"}'
    jid = client.generate_jid()
    client.call("put", "", "q", jid, f"{JOBS}.idle", data, 0)
    until(client, jid, "complete")
    assert client.source.sync().hget(f"ql:j:{jid}", "data") == data


# --- processes that die ---


def test_a_job_whose_process_dies_fails_and_says_how(pool: Start, client: Client) -> None:
    run = pool()
    (worker,) = run.ready()
    for how, text in (
        (["signal", signal.SIGSEGV], "was killed by SIGSEGV."),
        (["signal", signal.SIGKILL], "was killed by SIGKILL. Perhaps the machine ran out of memory."),
        (["exit", 7], "ended with exit code 7 before the job had ended."),
        (["exit", 0], "ended with exit code 0 before the job had ended."),
    ):
        job = until(client, put(client, "dies", how, retries=0), "failed")
        assert job.failure["group"] == "q-ProcessDied"
        assert text in job.failure["message"]
        assert job.data == how
        until(client, put(client, "write", "next"), "complete")
    assert run.children() == [worker]
    assert len(written_lines(client)) == 8


def test_a_job_that_crashes_its_process_is_retried(pool: Start, client: Client) -> None:
    run = pool()
    jid = put(client, "dies_once", retries=1)
    until(client, jid, "complete")
    assert history(client, jid) == ["put", "popped", "popped", "done"]
    assert "was killed by SIGSEGV" in run.text()


def test_the_other_jobs_of_a_worker_do_not_notice_a_crash(pool: Start, client: Client) -> None:
    pool()
    long = put(client, "long", 2.0)
    started(client)
    crashing = put(client, "dies", ["signal", signal.SIGABRT], retries=0)
    until(client, crashing, "failed")
    until(client, long, "complete")
    assert history(client, long) == ["put", "popped", "done"]


def test_an_idle_process_that_is_killed_is_replaced(pool: Start, client: Client) -> None:
    """The job that it gets at that moment has not started, so it keeps its retries."""
    pool("--concurrency", "1")
    until(client, put(client, "whoami", retries=0), "complete")
    for count in range(1, 8):
        pid = int(texts(client, "whoami")[-1].split()[0])
        os.kill(pid, signal.SIGKILL)
        jid = put(client, "whoami", retries=0)
        until(client, jid, "complete")
        assert history(client, jid) == ["put", "popped", "done"]
        assert len(texts(client, "whoami")) == count + 1
        assert texts(client, "whoami")[-1].split()[0] != str(pid)


def test_a_worker_whose_fork_server_dies_is_replaced_and_its_jobs_keep_their_retries(
    pool: Start, client: Client
) -> None:
    run = pool()
    jid = put(client, "long", 2.0, retries=0)
    started(client)
    (worker,) = run.children()
    os.kill(next(pid for pid in descendants(worker) if descendants(pid)), signal.SIGKILL)
    job = until(client, jid, "complete")
    assert job.retries_left == 0
    assert len(written_lines(client)) == 2
    assert "the process that forks the processes of jobs died" in run.text()
    run.stop()


@pytest.mark.parametrize("whose", ["worker", "parent"])
def test_processes_of_jobs_end_with_their_worker(pool: Start, client: Client, whose: str) -> None:
    """Also one that holds the interpreter lock: no second worker runs the job at the same time."""
    run = pool("--grace", "0")
    put(client, "block_interpreter", retries=0)
    started(client)
    (worker,) = run.children()
    below = descendants(worker)
    assert len(below) >= 2
    os.kill(worker if whose == "worker" else run.process.pid, signal.SIGKILL)
    wait_for(lambda: not any(map(is_there, below)), "processes are to end")
    run.end()


def test_the_memory_limit_replaces_the_process_of_the_job_alone(pool: Start, client: Client) -> None:
    run = pool("--concurrency", "1", MIDDLEWARE=["tests.integration.qless.worker.jobs.tight"])
    for _ in range(2):
        until(client, put(client, "whoami"), "complete")
    first, second = (line.split()[0] for line in texts(client, "whoami"))
    assert first != second
    assert run.takes(run.children()) == 1
    wait_for(lambda: not is_there(int(first)))


# --- timeouts and lost jobs ---


def test_a_timeout_ends_c_code(pool: Start, client: Client) -> None:
    """It would run for ten minutes. test_stopping.py has Python code."""
    run = pool("--kill-after", "0.5")
    job = until(client, put(client, "blocks_timed", retries=0), "failed")
    assert job.failure["group"] == "q-JobTimeout"
    assert "JobTimeout: The job took longer than 0.3 s." in job.failure["message"]
    assert "killing its process" in run.text()
    assert texts(client, "ended") == []
    until(client, put(client, "write", "next"), "complete")


def test_a_killed_job_is_retried_as_its_middleware_says(pool: Start, client: Client) -> None:
    pool("--kill-after", "0")
    jid = put(client, "BlocksRetried", retries=1)
    job = until(client, jid, "failed")
    assert job.failure["group"] == "q-JobTimeout"
    assert history(client, jid) == ["put", "popped", "popped", "failed"]
    assert len(written_lines(client)) == 2


def test_a_timeout_waits_for_the_cleanup_as_long_as_it_may(pool: Start, client: Client) -> None:
    run = pool("--kill-after", "0.2")
    jid = put(client, "Cleans", retries=0)
    until(client, jid, "failed")
    assert texts(client, "done") == [jid]
    assert "killing" not in run.text()


@pytest.mark.parametrize(
    ("interrupt", "names"), [(True, ["block_interpreter"]), (False, ["sleeps", "block_interpreter"])]
)
def test_a_canceled_job_that_does_not_end_is_killed(
    pool: Start, client: Client, interrupt: bool, names: list[str]
) -> None:
    """It would run for ten minutes. test_stopping.py has jobs that end themselves."""
    run = pool(interrupt=interrupt)
    text = "was lost and did not end; killing its process"
    for number, name in enumerate(names):
        jid = put(client, name)
        started(client, 2 * number + 1)
        (worker,) = run.children()
        below = set(descendants(worker))
        job_of(client, jid).cancel()
        wait_for(lambda number=number: run.text().count(text) > number, run.text())  # type: ignore[misc]
        wait_for(lambda below=below: not below <= {*filter(is_there, below)}, "a process is to end")  # type: ignore[misc]
        assert texts(client, "ended") == []
        until(client, put(client, "write", "next"), "complete")
        assert client.jobs.get(jid) is None
    ends_well(run)
    assert f"'lost': {len(names)}" in run.text()


def test_a_job_that_another_worker_took_is_killed(pool: Start, client: Client) -> None:
    run = pool()
    jid = put(client, "block_interpreter")
    started(client)
    run.signal(signal.SIGUSR2)
    wait_for(lambda: "is paused" in run.text())
    job_of(client, jid).timeout()
    taken = pop(client.queues["q"])
    assert taken.jid == jid
    wait_for(lambda: "killing its process" in run.text(), run.text())
    assert state(client, jid) == "running"
    taken.complete()
    assert history(client, jid).count("done") == 1


def test_jobs_that_are_canceled_as_they_start_free_their_slots(pool: Start, client: Client) -> None:
    """Before, while and after their process starts."""
    run = pool("--kill-after", "0")
    for number in range(16):
        jid = put(client, "block_interpreter")
        wait_for(lambda jid=jid: state(client, jid) == "running")  # type: ignore[misc]
        time.sleep(number % 4 * 0.005)
        job_of(client, jid).cancel()
    until(client, put(client, "write", "next"), "complete")
    wait_for(lambda: client.queues["q"].counts().running == 0)
    ends_well(run)
    assert "'lost': 16" in run.text()


def test_programs_that_a_job_has_started_are_killed_with_it(pool: Start, client: Client) -> None:
    pool("--kill-after", "0")
    jid = put(client, "starts_program")
    started(client)
    program = int(texts(client, "program")[0])
    assert is_there(program)
    job_of(client, jid).cancel()
    wait_for(lambda: not is_there(program), "the program is to end")


def test_modules_that_start_threads_are_reported(pool: Start, client: Client) -> None:
    """Jobs run without these threads."""
    module = "tests.integration.qless.worker.threading_jobs"
    run = pool(modules=[module])
    jid = client.queues["q"].put(f"{module}.count_threads", None)
    until(client, jid, "complete")
    assert "jobs run without them: a thread of a module" in run.text()
    assert texts(client, "threads") == ["False"]


def test_a_job_that_holds_the_interpreter_keeps_its_lock_without_a_heartbeat_process(
    pool: Start, client: Client
) -> None:
    short_locks(client, 1.5, 0)
    run = pool()
    jid = put(client, "hold_interpreter", 4.0, retries=0)
    until(client, jid, "complete")
    assert history(client, jid) == ["put", "popped", "done"]
    assert "holds the interpreter" not in run.text()


def test_a_job_that_completed_itself_may_continue(pool: Start, client: Client) -> None:
    client.config.set("heartbeat", 0.6)
    run = pool("--kill-after", "0")
    jid = put(client, "ends_itself", 3.0)
    wait_for(lambda: texts(client, "done") == [jid])
    assert "killing" not in run.text()
    assert history(client, jid) == ["put", "popped", "done"]


def test_jobs_that_hold_the_interpreter_are_given_back_at_the_end(pool: Start, client: Client) -> None:
    """And only when their processes are dead."""
    run = pool("--grace", "0.2")
    jid = put(client, "block_interpreter", retries=2)
    started(client)
    below = descendants(run.process.pid)
    began = time.monotonic()
    assert run.stop() == 3
    assert not any(map(is_there, below))
    assert time.monotonic() - began < 60
    job = pop(client.queues["q"])
    assert (job.jid, job.retries_left) == (jid, 2)
