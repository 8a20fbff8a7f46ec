"""A log server that writes what it reads to a file, and can be killed and started again on its place.

    python tests/logserver.py KIND PLACE FILE [CERTIFICATE]

KIND is tcp, tls, udp, unix, or deaf: a TCP server that accepts and never reads. PLACE is a port or a path. Of a
connection that breaks in the middle of a line, that line is thrown away, and so is a line in the middle of which the
server was killed. One thread for all connections.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self


def free_port(kind: int = socket.SOCK_STREAM) -> int:
    with socket.socket(type=kind) as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def until(check: Callable[[], Any], seconds: float = 30.0) -> Any:
    """Return the result of `check` once it is true."""
    end = time.monotonic() + seconds
    while not (outcome := check()):
        assert time.monotonic() < end, f"not in {seconds} s: {outcome!r}"
        time.sleep(0.01)
    return outcome


def make_certificate(folder: Path, name: str = "localhost") -> Path:
    """A certificate for `name` and 127.0.0.1, with its key and the authority that signed it in the same file."""
    import trustme  # not by the server's process

    path = folder / "certificate.pem"
    authority = trustme.CA()
    leaf = authority.issue_cert(name, "127.0.0.1", common_name=name)
    path.write_bytes(leaf.private_key_and_cert_chain_pem.bytes() + authority.cert_pem.bytes())
    return path


class LogServer:
    """The server as a separate process."""

    def __init__(self, kind: str, folder: Path, certificate: Path | None = None) -> None:
        self.kind = kind
        self.file = folder / f"{kind}.log"
        self.file.touch()
        self.certificate = certificate
        self.port = 0 if kind == "unix" else free_port(socket.SOCK_DGRAM if kind == "udp" else socket.SOCK_STREAM)
        self.path = folder / "log.sock"
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def options(self) -> dict[str, Any]:
        """The arguments of a handler that ships here."""
        if self.kind == "unix":
            return {"path": self.path}
        address = {"host": "127.0.0.1", "port": self.port}
        if self.kind == "tls":
            return {**address, "ssl": True, "ca_file": self.certificate}
        return {**address, "sock_type": "udp"} if self.kind == "udp" else address

    def start(self) -> Self:
        address = str(self.path) if self.kind == "unix" else str(self.port)
        arguments = [self.kind, address, str(self.file), *([str(self.certificate)] if self.certificate else [])]
        self.process = subprocess.Popen([sys.executable, "-S", __file__, *arguments], stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"ready\n"
        return self

    def kill(self, how: int = signal.SIGKILL) -> None:
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(10)
            assert self.process.stdout is not None
            self.process.stdout.close()
            self.process = None

    def lines(self) -> list[str]:
        return self.file.read_text().splitlines()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.kill()


def listen(kind: str, address: str) -> socket.socket:
    if kind == "unix":
        Path(address).unlink(missing_ok=True)
        sock = socket.socket(socket.AF_UNIX)
        sock.bind(address)
    else:
        sock = socket.socket(type=socket.SOCK_DGRAM if kind == "udp" else socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if kind == "udp":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * 1024 * 1024)
        sock.bind(("127.0.0.1", int(address)))
    if kind != "udp":
        sock.listen(100)
    return sock


def serve(kind: str, address: str, file: str, certificate: str = "") -> None:
    output = os.open(file, os.O_WRONLY | os.O_APPEND)
    if kind != "udp":
        os.ftruncate(output, Path(file).read_bytes().rfind(b"\n") + 1)
    context = None
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
    listener = listen(kind, address)
    os.write(1, b"ready\n")
    if kind == "udp":
        while True:
            os.write(output, listener.recv(65535))
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    rests: dict[socket.socket, bytes] = {}
    while True:
        for key, _ in selector.select():
            sock = key.fileobj
            assert isinstance(sock, socket.socket)
            if sock is listener:
                client = accept(listener, context)
                if client is not None:
                    rests[client] = b""
                    if kind != "deaf":
                        selector.register(client, selectors.EVENT_READ)
            elif (data := read(sock)) is not None:
                complete, end, rests[sock] = (rests[sock] + data).rpartition(b"\n")
                os.write(output, complete + end)
                if not data:
                    selector.unregister(sock)
                    rests.pop(sock)
                    sock.close()


def accept(listener: socket.socket, context: ssl.SSLContext | None) -> socket.socket | None:
    sock, _ = listener.accept()
    try:
        sock = context.wrap_socket(sock, server_side=True) if context else sock
    except OSError:
        return None
    sock.setblocking(False)
    return sock


def read(sock: socket.socket) -> bytes | None:
    """Return the received bytes; empty at the end of the connection; None if none has arrived yet."""
    try:
        data = sock.recv(65536)
        while isinstance(sock, ssl.SSLSocket) and sock.pending():  # what the selector does not see
            data += sock.recv(65536)
    except (BlockingIOError, ssl.SSLWantReadError):
        return None
    except OSError:
        return b""
    return data


if __name__ == "__main__":
    serve(*sys.argv[1:])
