"""Workers without jobs: memory and processor time of ours and of Celery, dramatiq and huey, with one job at a time.

    python bench/idle.py [--seconds S] [--rounds N] [--json FILE]

Memory is the proportional set size of all processes of the worker (`smaps_rollup`), processor time and wake-ups are
those of all their threads (`schedstat`), counted from 8 seconds after the start. The peers take turns on one embedded
Valkey; the median of the rounds counts. Their environments are those of `tasks.py`. Linux only.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from tasks import ROOT, RUNQLESS, Peer, Subject, _celery

START_SECONDS = 8.0
ONE = ("--concurrency", "1")
AIMS: Mapping[str, float] = {"pss_mb": 45.0, "cpu_ms": 3.0}
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
        return {
            "processes": len(pids),
            "pss_mb": pss_mb(pids),
            "cpu_ms": nanoseconds / 1e6 / seconds,
            "wakes": turns / seconds,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    from tests.servers import Server, running

    samples: dict[str, list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder))
        with running([server]):
            subjects: dict[str, Subject] = {}
            for name, peer in SUBJECTS.items():
                try:
                    subjects[name] = Subject(peer, server.url)
                except OSError as error:
                    print(f"{name} is left out: {error}", file=sys.stderr)
            for _ in range(options.rounds):
                for name, subject in subjects.items():
                    samples.setdefault(name, []).append(measure(subject, options.seconds))
    median: Callable[[str, str], float] = lambda name, key: statistics.median(sample[key] for sample in samples[name])  # noqa: E731
    results = {name: {key: median(name, key) for key in rows[0]} for name, rows in samples.items()}
    print(f"{'':18s} {'processes':>9s} {'PSS MB':>8s} {'ms/s':>8s} {'wakes/s':>8s}")
    for name, row in results.items():
        print(f"{name:18s} {row['processes']:9.0f} {row['pss_mb']:8.1f} {row['cpu_ms']:8.2f} {row['wakes']:8.1f}")
    for key, bound in AIMS.items():
        value = results["ours"][key]
        print(f"{key}: {value:.2f} (at most {bound:g}: {'reached' if value <= bound else 'MISSED'})")
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
