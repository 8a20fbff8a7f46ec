"""Tasks against those of Celery, dramatiq and huey, and the bridge against Celery alone, in one run on one server.

    python bench/tasks.py [--jobs N] [--rounds N] [--only ours,celery] [--json FILE]

`delay`: one client puts tasks that do nothing, one by one. End to end: they are put first, then the workers start;
tasks a second from the first look at which some are done to the end. The bridge: `runqless --via celery` and workers of
Celery as in the row of Celery, broker and jobs on the same Valkey. Processes: `runqless --pool processes`, with as many
as Celery's prefork has, and with as many as threads. Peers and turns are those of `qless_worker.py`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from qless_worker import PLACE, ROOT, SUBJECTS, Peer, Subject, python_of, tell, version_of

RUNQLESS = ("-m", "django", "runqless", "--verbosity", "0")
CELERY = ("-m", "celery", "-A", "tasks_jobs", "worker", "-P", "prefork", "-c", "2")
QUIET = ("--without-gossip", "--without-mingle", "--without-heartbeat", "-l", "error")
OURS = (*RUNQLESS, "--processes", "2", "--concurrency", "16")
PROCESSES = (*RUNQLESS, "--pool", "processes", "--concurrency")


def _left(client: Any) -> int:
    return int(client.zcard("ql:q:default-work") + client.zcard("ql:q:default-locks"))


TASKS: Mapping[str, tuple[Peer, str]] = {
    "ours": (Peer("ours", (OURS,), _left), "noop"),
    "ours, results": (Peer("ours", (OURS,), _left), "result"),
    "ours, 2 processes": (Peer("ours", ((*PROCESSES, "2"),), _left), "noop"),
    "ours, 16 processes": (Peer("ours", ((*PROCESSES, "16"),), _left), "noop"),
    "bridge": (
        Peer("bridge", ((*RUNQLESS, "--via", "celery", "--concurrency", "200"), (*CELERY, *QUIET)), _left),
        "noop",
    ),
    **{name: (SUBJECTS[name], "noop") for name in ("Celery, prefork", "dramatiq", "huey, processes")},
}


class Tasks(Subject):
    """A peer; ours and the bridge put what `tasks_jobs` has."""

    def __init__(self, peer: Peer, url: str, what: str) -> None:
        is_ours = peer.package in ("ours", "bridge")
        super().__init__(Peer("ours", peer.workers, peer.left) if is_ours else peer, url)
        self.what = what
        self.module = "tasks_jobs" if is_ours else "qless_jobs"
        if is_ours:
            self.env["PEER"] = peer.package
            self.env["DJANGO_SETTINGS_MODULE"] = "tasks_site"
            self.env["PYTHONPATH"] = f"{PLACE}:{ROOT}"

    def put(self, what: str, count: int) -> float:
        return super().put(self.what, count)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="ours,bridge,celery,dramatiq,huey", help="packages")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    from tests.servers import Server, running

    subjects: dict[str, Tasks] = {}
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder))
        with running([server]):
            for name, (peer, what) in TASKS.items():
                if peer.name in options.only.split(","):
                    try:
                        subjects[name] = Tasks(peer, server.url, what)
                    except OSError as error:
                        print(f"{name} is left out: {error}", file=sys.stderr)
            rates: dict[str, list[tuple[float, float]]] = {name: [] for name in subjects}
            for _ in range(options.rounds):
                for name, subject in subjects.items():
                    rates[name].append(subject.drain(options.jobs))
    results = {
        name: {
            "version": version_of(subject.python, subject.peer.name),
            "delay": statistics.median(sample[0] for sample in rates[name]),
            "end_to_end": statistics.median(sample[1] for sample in rates[name]),
        }
        for name, subject in subjects.items()
    }
    report(results)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


def report(results: Mapping[str, Mapping[str, Any]]) -> None:
    print(f"{'':18s} {'delay/s':>9s} {'end to end/s':>13s}  version")
    for name, row in results.items():
        print(f"{name:18s} {row['delay']:9.0f} {row['end_to_end']:13.0f}  {row['version']}")
    celery = results.get("Celery, prefork")
    for name in ("ours, 2 processes", "ours, 16 processes"):
        for peer in ("ours", "Celery, prefork"):
            if name in results and peer in results:
                print(f"end to end, {name} / {peer}: {results[name]['end_to_end'] / results[peer]['end_to_end']:.2f} x")
    if celery is None:
        return
    if "ours" in results:
        ours = results["ours"]
        print(f"delay / Celery: {tell(ours['delay'] / celery['delay'], 2)}")
        print(f"end to end / Celery: {tell(ours['end_to_end'] / celery['end_to_end'], 3)}")
    if "bridge" in results:
        print(f"bridge / Celery: {tell(results['bridge']['end_to_end'] / celery['end_to_end'], 0.5)}")


__all__ = ["main", "python_of"]

if __name__ == "__main__":
    main()
