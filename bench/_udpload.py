"""A UDP load client that costs less than the servers it measures: recvmmsg and sendmmsg through ctypes.

    python bench/_udpload.py PORT OUTSTANDING SECONDS [CPU]

prints one JSON object: requests, seconds, p50, p99 in microseconds (round trip). Linux only.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import struct
import sys
import time

REQUEST = b'{"action":"get","app_name":"bench","rule_name":"bench","seq":1}'
_HEADER = struct.Struct("PIxxxxPNPNixxxxIxxxx")


def one(sock: socket.socket, seconds: float) -> dict[str, float]:
    """One request at a time, with plain send and recv."""
    send, recv, clock = sock.send, sock.recv, time.perf_counter_ns
    times: list[int] = []
    until = clock() + int(seconds * 1e9)
    now = clock()
    while now < until:
        send(REQUEST)
        recv(2048)
        after = clock()
        times.append(after - now)
        now = after
    return figures(times, seconds)


def many(sock: socket.socket, outstanding: int, seconds: float) -> dict[str, float]:
    """Keep `outstanding` requests in flight; the time of a request is the time of a whole window."""
    libc = ctypes.CDLL(None, use_errno=True)
    size, n = 2048, outstanding
    buffer, request = ctypes.create_string_buffer(n * size), ctypes.create_string_buffer(REQUEST, len(REQUEST))
    vectors, out_vector = ctypes.create_string_buffer(n * 16), ctypes.create_string_buffer(16)
    headers, out_headers = ctypes.create_string_buffer(n * 64), ctypes.create_string_buffer(n * 64)
    struct.pack_into("PN", out_vector, 0, ctypes.addressof(request), len(REQUEST))
    for i in range(n):
        struct.pack_into("PN", vectors, i * 16, ctypes.addressof(buffer) + i * size, size)
        _HEADER.pack_into(headers, i * 64, 0, 0, ctypes.addressof(vectors) + i * 16, 1, 0, 0, 0, 0)
        _HEADER.pack_into(out_headers, i * 64, 0, 0, ctypes.addressof(out_vector), 1, 0, 0, 0, 0)
    fd, clock = sock.fileno(), time.perf_counter_ns
    done, times = 0, []
    began = clock()
    until = began + int(seconds * 1e9)
    marks = [began] * n  # when each of the last n requests was sent, as a ring
    libc.sendmmsg(fd, out_headers, n, 0)
    while (now := clock()) < until:
        got = libc.recvmmsg(fd, headers, n, 0x10000, None)
        if got <= 0:
            raise RuntimeError(f"the server went silent: {os.strerror(ctypes.get_errno())}")
        now = clock()
        for i in range(done, done + got):
            times.append(now - marks[i % n])
            marks[i % n] = now
        done += got
        unsent = got
        while unsent:
            unsent -= libc.sendmmsg(fd, out_headers, unsent, 0)
    return figures(times, (clock() - began) / 1e9)


def figures(times: list[int], seconds: float) -> dict[str, float]:
    times.sort()
    return {
        "requests": len(times),
        "seconds": seconds,
        "rate": len(times) / seconds,
        "p50": times[len(times) // 2] / 1000,
        "p99": times[len(times) * 99 // 100] / 1000,
    }


def main() -> None:
    port, outstanding, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    if len(sys.argv) > 4:
        os.sched_setaffinity(0, {int(sys.argv[4])})
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 2, 0))
    sock.connect(("127.0.0.1", port))
    print(json.dumps(one(sock, seconds) if outstanding == 1 else many(sock, outstanding, seconds)))


if __name__ == "__main__":
    main()
