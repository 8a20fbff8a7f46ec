"""One connection to a log server: TCP, TLS, UDP, or a Unix stream socket."""

from __future__ import annotations

import codecs
import fcntl
import socket
import ssl
import struct
import termios
from contextlib import suppress

from .options import BadOption, LogOptions

codecs.lookup("idna")
"""Host lookups import this codec: a forked child would hang if a thread of its parent was importing it."""


class Connection:
    """A connection for one thread at a time. Methods raise OSError; close the connection after an error."""

    def __init__(self, options: LogOptions) -> None:
        self._options = options
        self._timeout = options.timeout / 1000
        self._context = _context(options) if options.ssl else None
        self._session: ssl.SSLSession | None = None
        self._sock: socket.socket | None = None
        self.chunk = 1400 if options.is_udp else min(64 * 1024, options.drop_limit)
        """Maximum bytes per call of `send`. A datagram of this size is not fragmented."""

    @property
    def is_open(self) -> bool:
        return self._sock is not None

    def open(self) -> None:
        """Connect within `timeout`. The last TLS session is resumed."""
        try:
            self._sock = self._connect()
        except UnicodeError as error:  # from encoding the host name
            raise OSError(f"{self._options.host!r} is not a host name: {error}") from error

    def alive(self) -> bool:
        """Return whether the connection is open, as far as this machine knows.

        Data sent by the server is read and discarded.
        """
        sock = self._sock
        if sock is None:
            return False
        sock.settimeout(0)
        try:
            while sock.recv(65536):
                pass
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            sock.settimeout(self._timeout)
            return True
        except OSError:
            return False
        return False

    def settled(self) -> bool:
        """Return whether all sent data has left this machine; True if the kernel does not report it.

        The other machine then has all data; with a Unix socket, the server has read it.
        """
        if self._sock is None:
            return True
        try:
            waiting = fcntl.ioctl(self._sock.fileno(), termios.TIOCOUTQ, struct.pack("i", 0))
        except OSError:
            return True
        return struct.unpack("i", waiting) == (0,)

    def send(self, data: bytes) -> None:
        """Pass all data to the operating system; each step may take up to `timeout`. Over UDP this is one datagram."""
        if self._sock is None:
            raise ConnectionError("not connected")
        unsent = memoryview(data)
        while unsent:
            unsent = unsent[self._sock.send(unsent) :]

    def finish(self) -> None:
        """End the connection, and wait up to `timeout` until the server ends it too: it has then read everything."""
        sock = self._sock
        if sock is not None and not self._options.is_udp:
            with suppress(OSError):
                self.alive()  # reads the ticket of the session, which arrives after the handshake
                sock.settimeout(self._timeout)
                if isinstance(sock, ssl.SSLSocket):
                    self._session = sock.session
                    sock.unwrap()
                sock.shutdown(socket.SHUT_WR)
                while sock.recv(65536):
                    pass
        self.close()

    def close(self) -> None:
        """Close the connection without waiting; if another process shares it, without a TLS or TCP shutdown."""
        sock, self._sock = self._sock, None
        if sock is not None:
            if isinstance(sock, ssl.SSLSocket):
                self._session = sock.session or self._session
            sock.close()

    def _connect(self) -> socket.socket:
        options = self._options
        if options.host is None:
            return self._opened(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM), options.path or "")
        if options.is_udp:
            infos = socket.getaddrinfo(options.host, options.port, type=socket.SOCK_DGRAM)
            family, kind, protocol, _, address = infos[0]
            return self._opened(socket.socket(family, kind, protocol), address)
        sock = socket.create_connection((options.host, options.port or 0), self._timeout)
        try:
            # The system drops the connection after these milliseconds without an acknowledgement.
            milliseconds = max(5000, int(options.timeout) * (1 + options.max_retry_times))
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)
            return sock if self._context is None else self._wrapped(sock, self._context)
        except BaseException:
            sock.close()
            raise

    def _opened(self, sock: socket.socket, address: str | tuple[object, ...]) -> socket.socket:
        try:
            sock.settimeout(self._timeout)
            sock.connect(address)
        except BaseException:
            sock.close()
            raise
        return sock

    def _wrapped(self, sock: socket.socket, context: ssl.SSLContext) -> ssl.SSLSocket:
        name = self._options.sni_host or self._options.host
        return context.wrap_socket(sock, server_hostname=name, session=self._session)


def _context(options: LogOptions) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=options.ca_file)
    except OSError as error:
        raise BadOption(f"ca_file ({options.ca_file}) is not a readable file of certificates: {error}.") from error
    if not options.ssl_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
