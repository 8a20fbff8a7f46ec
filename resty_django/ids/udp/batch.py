"""A server loop with batched system calls: Linux's `recvmmsg` and `sendmmsg`, called through ctypes.

A burst of datagrams takes two system calls instead of two per datagram. Plain calls are faster for requests that arrive
one by one, so the loop switches between the two depending on what it finds in the socket.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import struct
import time
from time import perf_counter_ns

from ..service.id_service import IdService
from .server import Address, UdpServer

_HEADER = struct.Struct(
    "PIxxxxPNPNixxxxIxxxx"
)  # struct mmsghdr: name, its length, iovec, count, control.., flags, length
_VECTOR = struct.Struct("PN")  # struct iovec: address, length
_ADDRESS_BYTES = 32


def available() -> bool:
    """Return whether this system has the two calls and the structure layout that this module expects."""
    return _HEADER.size == 64 and hasattr(ctypes.CDLL(None), "recvmmsg")


class BatchServer(UdpServer):
    """A `UdpServer` that receives up to `batch` datagrams per system call."""

    def __init__(self, sock: socket.socket, service: IdService, batch: int) -> None:
        super().__init__(sock, service)
        self._batch = batch
        libc = ctypes.CDLL(None, use_errno=True)
        self._recvmmsg, self._sendmmsg = libc.recvmmsg, libc.sendmmsg

    def _loop(self) -> None:
        batch, size, fd = self._batch, self._size + 1, self.sock.fileno()
        name_length = 28 if self.sock.family == socket.AF_INET6 else 16
        slot = max(2048, size)  # bytes for a reply
        came, names, gone = (ctypes.create_string_buffer(batch * n) for n in (size, _ADDRESS_BYTES, slot))
        vectors, out_vectors = (ctypes.create_string_buffer(batch * _VECTOR.size) for _ in range(2))
        headers, out_headers = (ctypes.create_string_buffer(batch * _HEADER.size) for _ in range(2))
        for i in range(batch):
            _VECTOR.pack_into(vectors, i * 16, ctypes.addressof(came) + i * size, size)
            _VECTOR.pack_into(out_vectors, i * 16, ctypes.addressof(gone) + i * slot, 0)
            for table, vector in ((headers, vectors), (out_headers, out_vectors)):
                name, at = ctypes.addressof(names) + i * _ADDRESS_BYTES, ctypes.addressof(vector) + i * 16
                _HEADER.pack_into(table, i * 64, name, name_length, at, 1, 0, 0, 0, 0)
        data, replies = memoryview(came).cast("B"), memoryview(gone).cast("B")
        lengths = memoryview(headers).cast("B").cast("I")
        out_names = memoryview(out_headers).cast("B").cast("Q")
        out_lengths = memoryview(out_vectors).cast("B").cast("Q")
        name_at = [ctypes.addressof(names) + i * _ADDRESS_BYTES for i in range(batch)]
        fast_path, access, stats, recvmmsg = self.handler.fast_path, self._access, self.stats, self._recvmmsg
        lonely = 0  # consecutive calls with one datagram each
        msg_waitforone = 0x10000
        while not self.stopping:
            if lonely >= 16:
                self._one_by_one(512)  # then check whether datagrams have queued up
            got = recvmmsg(fd, headers, batch, msg_waitforone, None)
            if got < 0:
                self._failed()
                continue
            lonely = lonely + 1 if got == 1 else 0
            began = perf_counter_ns()
            ready = 0
            for i in range(got):
                at = i * size
                datagram = bytes(data[at : at + lengths[i * 16 + 14]])
                try:
                    if access is None and (reply := fast_path(datagram)) is not None and len(reply) <= slot:
                        start = ready * slot
                        replies[start : start + len(reply)] = reply
                        out_lengths[ready * 2 + 1] = len(reply)
                        out_names[ready * 8] = name_at[i]
                        ready += 1
                    else:
                        self.handle(datagram, _address(names.raw[i * _ADDRESS_BYTES : (i + 1) * _ADDRESS_BYTES]))
                except Exception as error:
                    self._note("internal_error", error)
            if ready:
                self._send(fd, out_headers, ready)
            stats.took((perf_counter_ns() - began) // got)
            stats.requests += got

    def _send(self, fd: int, headers: ctypes.Array[ctypes.c_char], count: int) -> None:
        done = 0
        while done < count:
            sent = self._sendmmsg(fd, ctypes.byref(headers, done * 64), count - done, 0)
            if sent > 0:
                done += sent
            elif ctypes.get_errno() != errno.EINTR:
                self._note("socket_error", OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno())))
                done += 1

    def _failed(self) -> None:
        code = ctypes.get_errno()
        if code not in (errno.EAGAIN, errno.EINTR):
            self._note("socket_error", OSError(code, os.strerror(code)))
            time.sleep(0.001)


def _address(name: bytes) -> Address:
    """Return the (host, port, ...) tuple of a struct sockaddr."""
    family, port = struct.unpack_from("=H", name)[0], struct.unpack_from(">H", name, 2)[0]
    if family == socket.AF_INET6:
        scope = struct.unpack_from("=I", name, 24)[0]
        return socket.inet_ntop(socket.AF_INET6, name[8:24]), port, 0, scope
    return socket.inet_ntoa(name[4:8]), port
