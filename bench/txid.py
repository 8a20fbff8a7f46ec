"""Making txids against other ids, side by side in one run.

    python bench/txid.py [--count N] [--rounds N] [--json FILE]

`txid()` against `str(uuid.uuid4())`, `str(uuid_utils.uuid7())` (Rust), `str(ulid.ULID())` of python-ulid, and against a
bare `time.time_ns()`. They take turns within each round, and each round gives ratios of its own; the median of the
rounds counts, so a machine that is busy now and then does no harm. Wanted: `txid()` at least 5 x faster than uuid4, and
at most 1.6 x the time of uuid7.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import timeit
import uuid
from pathlib import Path
from time import time_ns

import uuid_utils

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from ulid import ULID  # noqa: E402

from resty_django.txid import MonotonicTxid, parse, txid, txid_min  # noqa: E402

PEERS = {
    "txid()": "txid()",
    "str(uuid.uuid4())": "str(uuid4())",
    "str(uuid_utils.uuid7())": "str(uuid7())",
    "str(ulid.ULID())": "str(ULID())",
    "MonotonicTxid()": "monotonic()",
    "txid(timestamp_ms)": "txid(1700000000123)",
    "parse(txid)": "parse(known)",
    "txid_min(timestamp_ms)": "txid_min(1700000000123)",
    "time.time_ns()": "time_ns()",
}
FASTER_THAN_UUID4 = 5.0
OF_UUID7 = 1.6


def measure(count: int, rounds: int) -> dict[str, list[float]]:
    """Seconds for one id, for each peer and round: the best of five runs, so that pauses do not count."""
    names = {
        "txid": txid,
        "uuid4": uuid.uuid4,
        "uuid7": uuid_utils.uuid7,
        "ULID": ULID,
        "monotonic": MonotonicTxid(),
        "parse": parse,
        "txid_min": txid_min,
        "known": txid(),
        "time_ns": time_ns,
    }
    timers = {name: timeit.Timer(statement, globals=names) for name, statement in PEERS.items()}
    times: dict[str, list[float]] = {name: [] for name in timers}
    for _ in range(rounds):
        best = dict.fromkeys(timers, float("inf"))
        for _ in range(5):
            for name, timer in timers.items():
                best[name] = min(best[name], timer.timeit(count) / count)
        for name, seconds in best.items():
            times[name].append(seconds)
    return times


def ratio(times: dict[str, list[float]], slower: str, faster: str) -> float:
    """How many times as long `one` takes as `other`: the median over the rounds."""
    return statistics.median(a / b for a, b in zip(times[slower], times[faster], strict=True))


def report(times: dict[str, list[float]]) -> None:
    for name, rounds in times.items():
        print(
            f"  {name:26s} {statistics.median(rounds) * 1e9:8,.0f} ns   "
            f"{ratio(times, name, 'str(uuid.uuid4())'):5.2f} x of uuid4   "
            f"{ratio(times, name, 'str(uuid_utils.uuid7())'):5.2f} x of uuid7"
        )
    faster = ratio(times, "str(uuid.uuid4())", "txid()")
    of_uuid7 = ratio(times, "txid()", "str(uuid_utils.uuid7())")
    enough, low = faster >= FASTER_THAN_UUID4, of_uuid7 <= OF_UUID7
    print(f"\n  str(uuid.uuid4()) / txid(): {faster:.1f} x (at least {FASTER_THAN_UUID4:g} x: {reached(enough)})")
    print(f"  txid() / str(uuid_utils.uuid7()): {of_uuid7:.2f} x (at most {OF_UUID7:g} x: {reached(low)})")


def reached(good: bool) -> str:
    return "reached" if good else "MISSED"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20_000, help="ids in a run")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", type=Path, help="also write the seconds for one id to this file")
    options = parser.parse_args()
    times = measure(options.count, options.rounds)
    print(f"One id, median of {options.rounds} rounds")
    report(times)
    if options.json:
        options.json.write_text(json.dumps(times, indent=1))


if __name__ == "__main__":
    main()
