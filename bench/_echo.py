"""Bare UDP echo servers, the limit that bench/ids.py measures against.

python bench/_echo.py loop|uvloop PORT [CPU]
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from typing import Any


def loop(port: int) -> None:
    """recvfrom and sendto, nothing else."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * 1024 * 1024)
    sock.bind(("127.0.0.1", port))
    recvfrom, sendto = sock.recvfrom, sock.sendto
    while True:
        datagram, address = recvfrom(20_001)
        sendto(datagram, address)


class Echo(asyncio.DatagramProtocol):
    def connection_made(self, transport: Any) -> None:
        self.send = transport.sendto

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self.send(data, addr)


async def forever(port: int) -> None:
    await asyncio.get_running_loop().create_datagram_endpoint(Echo, local_addr=("127.0.0.1", port))
    await asyncio.Event().wait()


if __name__ == "__main__":
    if len(sys.argv) > 3:
        os.sched_setaffinity(0, {int(sys.argv[3])})
    if sys.argv[1] == "loop":
        loop(int(sys.argv[2]))
    else:
        import uvloop

        uvloop.run(forever(int(sys.argv[2])))
