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
    """What `check` gives once it is true."""
    end = time.monotonic() + seconds
    while not (found := check()):
        assert time.monotonic() < end, f"not in {seconds} s: {found!r}"
        time.sleep(0.01)
    return found


def make_certificate(folder: Path, name: str = "localhost") -> Path:
    """A certificate for `name` and 127.0.0.1, signed by itself, with its key in the same file."""
    path = folder / "certificate.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    names = ["-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name},IP:127.0.0.1", "-days", "2"]
    subprocess.run([*command, *names, "-keyout", path, "-out", folder / "public.pem"], check=True, capture_output=True)
    path.write_bytes(path.read_bytes() + (folder / "public.pem").read_bytes())
    return path


class LogServer:
    """The server as a process of its own."""

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
        place = {"host": "127.0.0.1", "port": self.port}
        if self.kind == "tls":
            return {**place, "ssl": True, "ca_file": self.certificate}
        return {**place, "sock_type": "udp"} if self.kind == "udp" else place

    def start(self) -> Self:
        place = str(self.path) if self.kind == "unix" else str(self.port)
        words = [self.kind, place, str(self.file), *([str(self.certificate)] if self.certificate else [])]
        self.process = subprocess.Popen([sys.executable, "-S", __file__, *words], stdout=subprocess.PIPE)
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


def listen(kind: str, place: str) -> socket.socket:
    if kind == "unix":
        Path(place).unlink(missing_ok=True)
        sock = socket.socket(socket.AF_UNIX)
        sock.bind(place)
    else:
        sock = socket.socket(type=socket.SOCK_DGRAM if kind == "udp" else socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if kind == "udp":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * 1024 * 1024)
        sock.bind(("127.0.0.1", int(place)))
    if kind != "udp":
        sock.listen(100)
    return sock


def serve(kind: str, place: str, file: str, certificate: str = "") -> None:
    out = os.open(file, os.O_WRONLY | os.O_APPEND)
    if kind != "udp":
        os.ftruncate(out, Path(file).read_bytes().rfind(b"\n") + 1)
    context = None
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
    listener = listen(kind, place)
    os.write(1, b"ready\n")
    if kind == "udp":
        while True:
            os.write(out, listener.recv(65535))
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    rests: dict[socket.socket, bytes] = {}
    while True:
        for key, _ in selector.select():
            sock = key.fileobj
            assert isinstance(sock, socket.socket)
            if sock is listener:
                made = accept(listener, context)
                if made is not None:
                    rests[made] = b""
                    if kind != "deaf":
                        selector.register(made, selectors.EVENT_READ)
            elif (data := read(sock)) is not None:
                whole, end, rests[sock] = (rests[sock] + data).rpartition(b"\n")
                os.write(out, whole + end)
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
    """What there is; nothing at the end of the connection; None where there is nothing yet."""
    try:
        found = sock.recv(65536)
        while isinstance(sock, ssl.SSLSocket) and sock.pending():  # what the selector does not see
            found += sock.recv(65536)
    except (BlockingIOError, ssl.SSLWantReadError):
        return None
    except OSError:
        return b""
    return found


if __name__ == "__main__":
    serve(*sys.argv[1:])
