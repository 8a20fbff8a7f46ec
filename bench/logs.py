"""The cost of one log record in the thread that logs it, against the handlers of Python's logging, in one run.

    python bench/logs.py [--quick] [--rounds N] [--json FILE]

Each handler gets four times 5,000 records of about 100 bytes (`--quick`: 2,000), formatted alike, and ships them to a
server on this machine that reads and throws away; `StreamHandler` writes to /dev/null, and `MemoryHandler` hands over
to one after 100 records. The best turn of each counts in a round. The figures are what a handler takes longer than one
that only formats; the `SocketHandler` of logging pickles instead. Ours stands there once more, with a server that
accepts and does not read, and with the record that only 1 in 1000 exceeds.
"""

from __future__ import annotations

import itertools
import logging
import logging.handlers
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator

from _table import Options, Row, Samples, compare, less, main

from resty_django.logs import SocketHandler

TEXT = "order %d of customer %d was paid by card, total 119.00 EUR"
FLOOR = "format only"
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
        FLOOR: FormatOnly,
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
    formatting = getattr(handler, "target", handler)  # a MemoryHandler leaves it to its target
    formatting.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
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


def handlers(options: Options) -> Iterator[Row]:
    logging.raiseExceptions = False
    logging.getLogger("resty_django.logs").setLevel(logging.CRITICAL)
    stream, datagrams, deaf = Server(), Server(datagrams=True), Server(reads=False)
    makers = subjects(stream, datagrams)
    silent, tcp = "SocketHandler, nobody reads", "SocketHandler, tcp"
    makers[silent] = lambda: ours(deaf, timeout=STUCK)
    records = 2_000 if options.quick else 5_000
    samples: Samples = {name: [] for name in makers}
    slowest: Samples = {f"{name}, p99.9": [] for name in makers}
    for _ in range(options.rounds):
        turns = [{name: once(make, records) for name, make in makers.items()} for _ in range(4)]
        for name in makers:
            samples[name].append(min(turn[name][0] for turn in turns))
            slowest[f"{name}, p99.9"].append(min(turn[name][1] for turn in turns))
    samples = {name: less(samples, name, FLOOR) for name in samples if name != FLOOR}
    yield from compare(samples, [(silent, tcp), *((name, tcp) for name in samples if name not in (silent, tcp))])
    yield from compare(slowest, [(f"{silent}, p99.9", f"{tcp}, p99.9"), (f"{tcp}, p99.9", f"{FLOOR}, p99.9")])


if __name__ == "__main__":
    main({"handlers": handlers})
