"""The cost of one log record in the thread that logs it, against the handlers of Python's logging, in one run.

    python bench/logs.py [--records N] [--rounds N] [--json FILE]

Each handler gets RECORDS records of about 100 bytes, formatted alike, and ships them to a server on this machine that
reads and throws away; `StreamHandler` writes to /dev/null, and `MemoryHandler` hands over to one after 100 records.
What only formats is the floor; the `SocketHandler` of logging pickles instead. The subjects take turns, and the median
of the rounds counts. Ours comes last once more, with a server that accepts and does not read.
"""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import logging.handlers
import os
import socket
import statistics
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from resty_django.logs import SocketHandler

Figures = dict[str, dict[str, float]]
TEXT = "order %d of customer %d was paid by card, total 119.00 EUR"

STUCK = 600_000
"""Milliseconds that a handler waits whose server does not read."""


class FormatOnly(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        self.format(record)


class Server:
    """Reads everything from all who connect, or nothing; and datagrams."""

    def __init__(self, reads: bool = True, datagrams: bool = False) -> None:
        self.sock = socket.socket(type=socket.SOCK_DGRAM if datagrams else socket.SOCK_STREAM)
        if not reads:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.sock.bind(("127.0.0.1", 0))
        self.place: tuple[str, int] = self.sock.getsockname()
        if datagrams:
            threading.Thread(target=self._read, args=(self.sock,), daemon=True).start()
            return
        self.sock.listen()
        if reads:
            threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            threading.Thread(target=self._read, args=(self.sock.accept()[0],), daemon=True).start()

    def _read(self, sock: socket.socket) -> None:
        buffer = bytearray(1 << 20)
        while sock.recv_into(buffer):
            pass


def ours(server: Server, **options: object) -> SocketHandler:
    host, port = server.place
    return SocketHandler(host=host, port=port, **options)


def subjects(stream: Server, datagrams: Server) -> dict[str, Callable[[], logging.Handler]]:
    to_null = lambda: logging.StreamHandler(open(os.devnull, "w"))  # noqa: E731, SIM115
    return {
        "format only": FormatOnly,
        "SocketHandler, tcp": lambda: ours(stream),
        "SocketHandler, udp": lambda: ours(datagrams, sock_type="udp"),
        "logging StreamHandler, /dev/null": to_null,
        "logging MemoryHandler": lambda: logging.handlers.MemoryHandler(100, target=to_null()),
        "logging SocketHandler": lambda: logging.handlers.SocketHandler(*stream.place),
        "logging SysLogHandler, tcp": lambda: logging.handlers.SysLogHandler(stream.place, socktype=socket.SOCK_STREAM),
        "logging SysLogHandler, udp": lambda: logging.handlers.SysLogHandler(datagrams.place),
    }


def once(make: Callable[[], logging.Handler], records: int) -> tuple[float, float]:
    """Microseconds of one record, and of the one that only 1 in 1000 exceeds."""
    handler = make()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logger = logging.Logger("bench")
    logger.addHandler(handler)
    logger.info(TEXT, 0, 0)
    clock = time.perf_counter
    times = [clock()]
    for number in range(records):
        logger.info(TEXT, number, 4711)
        times.append(clock())
    costs = sorted(after - before for before, after in itertools.pairwise(times))
    if not isinstance(handler, SocketHandler):
        handler.close()
    elif handler.options.timeout < STUCK:
        handler.flush()
        figures = handler.stats()
        assert figures.sent + figures.dropped == records + 1, figures
        handler.close()
    return sum(costs) / records * 1e6, costs[-records // 1000] * 1e6


def measure(records: int, rounds: int) -> Figures:
    stream, datagrams, deaf = Server(), Server(datagrams=True), Server(reads=False)
    makers = subjects(stream, datagrams)
    makers["SocketHandler, nobody reads"] = lambda: ours(deaf, timeout=STUCK)
    samples: dict[str, list[tuple[float, float]]] = {name: [] for name in makers}
    for _ in range(rounds):
        for name, make in makers.items():
            samples[name].append(once(make, records))
    return {
        name: {
            "us": statistics.median(took for took, _ in times),
            "p999_us": statistics.median(worst for _, worst in times),
        }
        for name, times in samples.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    logging.raiseExceptions = False
    logging.getLogger("resty_django.logs").setLevel(logging.CRITICAL)
    results = measure(options.records, options.rounds)
    floor = results["format only"]["us"]
    tcp = results["SocketHandler, tcp"]["us"] - floor
    print(f"{'one record':34s} {'us':>8s} {'p99.9':>8s} {'more than formatting':>22s}")
    for name, row in results.items():
        overhead = row["us"] - floor
        print(f"{name:34s} {row['us']:8.2f} {row['p999_us']:8.1f} {overhead:14.2f} {overhead / tcp:5.1f} x")
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
