"""Reports and requests as texts that any program may have written, late jobs, and stacks that were dumped."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from typing import Any

import pytest

from resty_django.qless.clients.worker_reports import (
    Frame,
    JobStack,
    ReportedJob,
    WorkerReport,
    encode_report,
    is_late,
    reports_of,
    request_of,
    stacks_of,
)
from resty_django.qless.worker.reports import stacks
from resty_django.qless.worker.reports.blocked_stacks import StackDump
from resty_django.qless.worker.reports.run_times import MAX_CLASSES, RunTimes

FIELDS: dict[str, Any] = {
    **{"host": "web1", "pid": 7, "started": 1000.0, "state": "running", "slots": 8, "max_slots": 64, "used": 1},
    **{"pool": "threads", "package": "1.0", "python": "3.13", "django": "6.1"},
}


def reply(report: str, requests: Any = ("", "", "")) -> bytes:
    return json.dumps([{"name": "w", "age": 3, "report": report, "requests": requests}]).encode()


def report_with(*jobs: ReportedJob) -> WorkerReport:
    (report,) = reports_of(reply(encode_report({**FIELDS, "jobs": jobs}).decode()))
    return report


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        "[]",
        "{}",
        "\udcff",
        json.dumps({**FIELDS, "pid": "7"}),
        json.dumps({**FIELDS, "jobs": [{"jid": 1}]}),
        json.dumps({**FIELDS, "started": float("nan")}),
        "[" * 10_000,
    ],
)
def test_malformed_reports_are_left_out(text: str) -> None:
    assert reports_of(reply(text)) == []


def test_a_report_is_read_with_its_requests() -> None:
    request = '{"id":3,"action":"scale","at":5.5,"slots":4}'
    (report,) = reports_of(reply(encode_report(FIELDS).decode(), ["", request, "nonsense"]))
    assert (report.name, report.age, report.slots, report.release) == ("w", 3, 8, "")
    assert [(request.id, request.action, request.slots) for request in report.requests] == [(3, "scale", 4)]
    assert reports_of(b"{}") == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        "[]",
        '{"id":1,"action":"rm","at":1}',
        '{"id":"1","action":"stop","at":1}',
        '{"id":1,"action":"scale","at":1}',
        '{"id":1,"action":"scale","at":1,"slots":0}',
        '{"id":1,"action":"scale","at":1,"slots":10001}',
        '{"id":1,"action":"stop","at":1,"more":"' + 1000 * "x" + '"}',
    ],
)
def test_malformed_requests_are_left_out(text: str) -> None:
    assert request_of(text) is None


def test_malformed_stacks_are_left_out() -> None:
    assert stacks_of(None) is stacks_of(b"nonsense") is stacks_of(b'{"id":1,"at":1,"jobs":[{"jid":1}]}') is None


@pytest.mark.parametrize(
    ("seconds", "usual", "late"),
    [
        (59, 0.1, False),
        (61, 0.1, True),
        (61, 7, False),
        (71, 7, True),
        (3599, None, False),
        (3600, None, True),
    ],
)
def test_a_job_is_late_by_its_usual_time_or_after_an_hour(seconds: float, usual: float | None, late: bool) -> None:
    assert is_late(seconds, usual) == late


def test_the_late_job_of_a_report_is_the_one_that_runs_longest() -> None:
    slow = ReportedJob(jid="slow", klass="Export", seconds=3000, usual=2000)
    late = ReportedJob(jid="late", klass="Mail", seconds=100, usual=1)
    later = ReportedJob(jid="later", klass="Mail", seconds=200, usual=1)
    assert report_with(slow).late_job is None
    job = report_with(late, slow, later).late_job
    assert job is not None
    assert job.jid == "later"


def test_run_times_are_known_after_some_runs_and_follow_changes() -> None:
    times = RunTimes()
    for seconds in (1.0, 2.0, 3.0):
        assert times.usual("K") is None
        times.record("K", seconds)
    assert times.usual("K") == pytest.approx(2.0)
    for _ in range(100):
        times.record("K", 50.0)
    assert times.usual("K") == pytest.approx(50.0, abs=1)
    for number in range(2 * MAX_CLASSES):
        for _ in range(3):
            times.record(f"K{number}", 1.0)
    assert times.usual("K1") == 1.0
    assert times.usual(f"K{2 * MAX_CLASSES - 1}") is None


# --- stacks ---


def test_a_dump_is_read_outermost_frame_first() -> None:
    dump = (
        "Current thread 0x00007f0000000001 (most recent call first):\n"
        f'  File "{__file__}", line 1 in inner\n'
        '  File "/srv/shop/ta"sks.py", line 12 in send\n'
        "  ...\n"
    )
    frames = stacks.of_dump(dump)
    assert [(frame.path, frame.line, frame.function) for frame in frames] == [
        ('/srv/shop/ta"sks.py', 12, "send"),
        (__file__, 1, "inner"),
    ]
    assert frames[1].source == __doc__.join(('"""', '"""'))
    assert stacks.of_dump("") == stacks.of_dump("nonsense") == []


def test_the_stack_of_a_task_comes_after_the_dump_of_its_thread() -> None:
    frames = [Frame("/a.py", 1, "outer"), Frame("/b.py", 2, "inner")]
    thread = '  File "/selectors.py", line 9 in select\n'
    assert stacks.of_dump(thread + stacks.dump_of(frames).decode()) == frames


def test_only_threads_that_run_jobs_are_taken_from_a_blocked_worker() -> None:
    executor = stacks.__file__.replace("reports/stacks.py", "executor.py")
    runs = [f'  File "{executor}", line 5 in run', f'  File "{executor}", line 1 in _work']
    threads = [
        ["Thread 0x01 (most recent call first):", '  File "/shop/tasks.py", line 12 in send', *runs],
        ["Thread 0x02 (most recent call first):", runs[1]],
        ["Thread 0x03 (most recent call first):", '  File "/lib/selectors.py", line 1 in select', *runs],
        ["Current thread 0x04 (most recent call first):", '  File "/manage.py", line 12 in main'],
    ]
    (stack,) = stacks.of_blocked_worker("\n\n".join("\n".join(lines) for lines in threads))
    assert [frame.function for frame in stack.frames] == ["_work", "run", "send"]
    assert stack.jid == ""
    assert stacks.of_blocked_worker("") == []


def test_a_thread_that_has_ended_has_no_stack() -> None:
    thread = threading.Thread(target=lambda: None)
    thread.start()
    thread.join()
    assert stacks.of_thread(thread.ident or 0) == []
    assert stacks.of_task(None, 0) == []


def test_the_stack_of_a_running_task_is_the_stack_of_its_thread() -> None:
    async def job() -> list[Frame]:
        return deeper(asyncio.current_task())

    def deeper(task: Any) -> list[Frame]:
        return stacks.of_task(task, threading.get_ident())

    functions = [frame.function.rpartition(".")[2] for frame in asyncio.run(job())]
    assert functions[functions.index("job") :][:3] == ["job", "deeper", "of_task"]


def test_the_text_of_a_stack_file_is_bounded() -> None:
    for file, max_bytes in ((stacks.StackFile(), 100_000), (StackDump(), 1_000_000)):
        os.write(file.descriptor, b"x" * (max_bytes + 1))
        assert len(file.text()) == max_bytes
        os.close(file.descriptor)


def test_stacks_are_bounded() -> None:
    frame = Frame("p" * 10_000, 1, "f" * 10_000)
    long = [JobStack(jid=str(n), klass="K", seconds=1.0, frames=[frame] * 3) for n in range(10)]
    answer = stacks_of(stacks.encode_stacks(1, 2.0, long))
    assert answer is not None
    assert 0 < len(answer.jobs) < 10
    assert len(answer.jobs) + answer.left_out == 10
    assert len(stacks.encode_stacks(1, 2.0, long)) <= stacks.MAX_ANSWER_BYTES

    def recurse(depth: int) -> list[Frame]:
        return recurse(depth - 1) if depth else stacks.of_thread(threading.get_ident())

    frames = recurse(min(200, sys.getrecursionlimit() // 2))
    assert len(frames) == stacks.MAX_FRAMES
    assert frames[-1].function == "of_thread"
