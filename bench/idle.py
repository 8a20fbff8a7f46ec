"""Workers without jobs: memory and processor time of our workers, Celery, dramatiq and huey, with one job at a time.

    python bench/idle.py [--quick] [--seconds S] [--rounds N] [--json FILE]

Memory is the proportional set size of all processes of the worker (`smaps_rollup`). Processor time and wake-ups are
sums over all their threads (`schedstat`), counted from 8 seconds after the start. The peers take turns on one embedded
Valkey. Linux only.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from _table import Options, Row, Samples, compare, main, row
from tasks import RUNQLESS, Peer, Subject, _celery

START_SECONDS = 8.0
ONE = ("--concurrency", "1")
FIGURES = {"memory (PSS)": ("MB", "<= 45"), "processor time": ("ms/s", "<= 3"), "wake-ups": ("a second", "")}
SUBJECTS: Mapping[str, Peer] = {
    "ours": Peer("ours", ((*RUNQLESS, *ONE),), lambda client: 0),
    "ours, processes": Peer("ours", ((*RUNQLESS, *ONE, "--pool", "processes"),), lambda client: 0),
    "dramatiq": Peer(
        "dramatiq[redis]", (("-m", "dramatiq", "tasks_jobs", "--processes", "1", "--threads", "1"),), lambda client: 0
    ),
    "huey, threads": Peer(
        "huey[redis]",
        (("-m", "huey.bin.huey_consumer", "tasks_jobs.huey", "-k", "thread", "-w", "1", "-q"),),
        lambda client: 0,
    ),
    "Celery, threads": Peer("celery[redis]", _celery("-P", "threads", "-c", "1"), lambda client: 0),
    "Celery, prefork": Peer("celery[redis]", _celery("-P", "prefork", "-c", "1"), lambda client: 0),
}


def tree(pid: int) -> list[int]:
    """The process and all below it."""
    children = [path.read_text().split() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    return [pid, *(below for pids in children for child in pids for below in tree(int(child)))]


def pss_mb(pids: list[int]) -> float:
    rollups = [Path(f"/proc/{pid}/smaps_rollup").read_text() for pid in pids]
    return sum(int(line.split()[1]) for text in rollups for line in text.splitlines() if line.startswith("Pss:")) / 1024


def scheduled(pids: list[int]) -> dict[Path, tuple[int, int]]:
    """Nanoseconds of processor time, and how often it was given any, by thread."""
    paths = [path for pid in pids for path in Path(f"/proc/{pid}/task").glob("*/schedstat")]
    fields = {path: path.read_text().split() for path in paths}
    return {path: (int(nanoseconds), int(turns)) for path, (nanoseconds, _, turns) in fields.items()}


def measure(subject: Subject, seconds: float) -> dict[str, float]:
    subject.client.flushall()
    with subject.working() as running:
        time.sleep(START_SECONDS)
        (process,) = running
        pids = tree(process.pid)
        before = scheduled(pids)
        time.sleep(seconds)
        after = scheduled(tree(process.pid))
        spent = [(a - b for a, b in zip(after[path], before.get(path, (0, 0)), strict=True)) for path in after]
        nanoseconds, turns = map(sum, zip(*spent, strict=True))
        figures = (pss_mb(pids), nanoseconds / 1e6 / seconds, turns / seconds)
        return dict(zip(FIGURES, figures, strict=True))


def workers(options: Options) -> Iterator[Row]:
    subjects: dict[str, Subject] = {}
    for name, peer in SUBJECTS.items():
        try:
            subjects[name] = Subject(peer, options)
        except OSError as error:
            print(error, file=sys.stderr)
    samples: dict[str, Samples] = {figure: {name: [] for name in subjects} for figure in FIGURES}
    for _ in range(1 if options.quick else options.rounds):
        for name, subject in subjects.items():
            for figure, value in measure(subject, options.seconds).items():
                samples[figure][name].append(value)
    for figure, (unit, target) in FIGURES.items():
        yield row(f"{figure}, ours", samples[figure]["ours"], None, unit, target)
        yield from compare(
            samples[figure], [("ours", name) for name in subjects if name != "ours"], unit, f"{figure}, "
        )


if __name__ == "__main__":
    main({"workers": workers}, seconds=20)
