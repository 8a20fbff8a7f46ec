"""A chord: the server's time for its jobs, and for the release of its body.

    python bench/chord.py [--members N] [--rounds N]

The script enqueues a group with a body and ends its members itself, without workers, so that only the core and the
client count. Times are the CPU times of the server, or wall clock; the median of the rounds.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BATCH = 100


def server_ms(store: Any) -> float:
    """The CPU time that the server's main thread has spent since its start, in ms."""
    cpu = store.info("cpu")
    return float(1000 * (cpu["used_cpu_user_main_thread"] + cpu["used_cpu_sys_main_thread"]))


class Stopwatch:
    """Measures parts of a round, on the server and by the wall clock."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self.figures: dict[str, float] = {}
        self.start()

    def start(self) -> None:
        self.wall, self.cpu = time.perf_counter(), server_ms(self.store)

    def stop(self, part: str) -> None:
        self.figures[f"{part}, wall clock"] = (time.perf_counter() - self.wall) * 1000
        self.figures[part] = server_ms(self.store) - self.cpu
        self.start()


def popped(client: Any, count: int) -> list[str]:
    return [job.jid for job in client.queues["default"].pop(count)]


def end(client: Any, jids: list[str]) -> None:
    for first in range(0, len(jids), BATCH):
        replies = client.call_many(
            [
                ("complete", jid, client.worker_name, "default", '{"args":[],"kwargs":{}}', "result", "1")
                for jid in jids[first : first + BATCH]
            ]
        )
        errors = [reply for reply in replies if isinstance(reply, Exception)]
        if errors:
            raise errors[0]


def one_round(members: int, store: Any) -> dict[str, float]:
    from tasks_jobs import member, total  # type: ignore[import-not-found]

    from resty_django.qless import chord
    from resty_django.qless.clients.default import default_client
    from resty_django.qless.tasks.message import call_of

    client = default_client()
    store.flushall()
    header = [member.s() for _ in range(members)]
    watch = Stopwatch(store)
    body = chord(header, total.s()).delay()
    client.tidy()
    watch.stop("enqueue")
    jids = popped(client, members)
    watch.start()
    end(client, jids[:-1])
    watch.stop("ends of all members but one")
    end(client, jids[-1:])
    client.tidy()
    watch.stop("release of the body")
    (job,) = client.queues["default"].pop(1)
    assert job.jid == body.id
    watch.start()
    call = client.run(call_of(job))
    watch.stop("results for the body")
    assert call.args[0] == [1] * members
    return watch.figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    sys.path[:0] = [str(ROOT), str(ROOT / "bench" / "peers")]
    os.environ.setdefault("PEER", "ours")
    import django
    import redis
    from django.conf import settings

    from tests.servers import Server, running

    server = Server(Path(tempfile.mkdtemp()))
    with running([server]):
        settings.configure(RESTY_DJANGO={"QLESS": {"URL": server.url, "MODULES": ["tasks_jobs"]}})
        django.setup()
        store = redis.Redis.from_url(server.url)
        rounds = [one_round(options.members, store) for _ in range(options.rounds)]
    for name in rounds[0]:
        print(f"{name:34s} {statistics.median(figures[name] for figures in rounds):10.2f} ms")


if __name__ == "__main__":
    main()
