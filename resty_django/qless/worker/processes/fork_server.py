"""The fork server: forks, signals, kills and reaps the processes of jobs.

A worker has threads, so it must not fork: a child would inherit locks that threads held at that moment. The worker
therefore forks this process while it has no threads yet, after it has imported the tasks of the site. This process
stays as it is: it starts no threads, opens no connections, and forks a process whenever the worker asks for one.

It is also the one process that knows which pids are still its own: it kills a process only before it has reaped it, so
that no signal can hit another program that got the same pid.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import selectors
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from resty_django.processes.forks import fork
from resty_django.processes.supervisor import end_with_parent, noted_signals
from resty_django.text import logger

log = logger("resty_django.qless.worker")

DUMP_STACK: Final = signal.SIGWINCH
"""The signal that makes the process of a job write its stack. By default it is ignored, too."""
INTERRUPT: Final = signal.SIGURG
"""The signal that interrupts a job. By default it is ignored, so that a late one does no harm, and other programs and
service managers do not send it."""
FORK, SIGNAL, KILL, DUMP = b"F", b"S", b"K", b"D"
_REQUEST: Final = struct.Struct("=cI")
"""The action and the slot."""
_EXIT: Final = struct.Struct("=Iii")
"""The slot, the pid (0: it could not be forked), and the exit code: negative for a signal, or the `errno`."""


class ForkServer:
    """The worker's side. `on_exit(slot, pid, code)` and `on_gone()` are called in a thread, once `listen` was called.

    `on_gone`: the fork server is dead, and so are its processes.
    """

    def __init__(self, work: Callable[[int, socket.socket, int], None]) -> None:
        """Start the process. This process must have no threads. `work(slot, connection, dump)` runs in each child."""
        if threading.active_count() > 1:
            names = ", ".join(thread.name for thread in threading.enumerate()[1:])
            log.warning("modules have started threads when they were imported; jobs run without them: %s", names)
        self._control, theirs = socket.socketpair()
        self._sending = threading.Lock()

        def serve() -> None:
            self._control.close()
            _Server(theirs, work).run()

        self.pid = fork(serve, partial(log.exception, "the process that forks the processes of jobs failed"))
        theirs.close()

    def listen(self, on_exit: Callable[[int, int, int], object], on_gone: Callable[[], object]) -> None:
        """Receive reports in a new thread."""
        threading.Thread(target=self._read, args=(on_exit, on_gone), name="qless-fork-server", daemon=True).start()

    def fork(self, slot: int, dump: int) -> socket.socket:
        """Start a process for the slot, whose last process is dead. Return the connection to it. Raises `OSError`.

        `dump`: file descriptor to which the process writes its stack on request.
        """
        ours, theirs = socket.socketpair()
        with theirs, self._sending:
            socket.send_fds(self._control, [_REQUEST.pack(FORK, slot)], [theirs.fileno(), dump])
        return ours

    def interrupt(self, slot: int) -> None:
        """Send the slot's process the signal that makes it read its slot memory."""
        self._send(SIGNAL, slot)

    def dump_stack(self, slot: int) -> None:
        """Send the slot's process the signal that makes it write its stack."""
        self._send(DUMP, slot)

    def kill(self, slot: int) -> None:
        """Kill the slot's process and the programs that it has started, unless they have left its process group."""
        self._send(KILL, slot)

    def stop(self) -> None:
        """End the fork server. It kills the processes that are left."""
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)

    def _send(self, action: bytes, slot: int) -> None:
        with contextlib.suppress(OSError), self._sending:  # the fork server is dead, and its processes with it
            self._control.sendall(_REQUEST.pack(action, slot))

    def _read(self, on_exit: Callable[[int, int, int], object], on_gone: Callable[[], object]) -> None:
        with self._control.makefile("rb") as reports, contextlib.suppress(OSError):
            while len(report := reports.read(_EXIT.size)) == _EXIT.size:
                on_exit(*_EXIT.unpack(report))
        on_gone()


class _Server:
    """The process itself."""

    def __init__(self, control: socket.socket, work: Callable[[int, socket.socket, int], None]) -> None:
        self._control = control
        self._work = work
        self._slots: dict[int, int] = {}
        """The slots of the living processes, by pid."""

    def run(self) -> None:
        """Serve until the worker closes its end, or dies."""
        # service managers and terminals send these to all processes; this one ends with the worker
        ignored = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)
        gc.collect()
        gc.freeze()  # so that collections in the children do not copy all pages
        with noted_signals(signal.SIGCHLD, note=lambda number: None) as wake:
            self._selector = selectors.DefaultSelector()
            self._selector.register(self._control, selectors.EVENT_READ)
            self._selector.register(wake, selectors.EVENT_READ)
            while True:
                for key, _ in self._selector.select():
                    if key.fd == wake:
                        with contextlib.suppress(BlockingIOError):
                            os.read(wake, 4096)
                        self._reap()
                    elif not self._serve_request():
                        self._end()
                        return

    def _serve_request(self) -> bool:
        """Do what the worker asks for. Return False if it is gone."""
        try:
            request, descriptors, _, _ = socket.recv_fds(self._control, _REQUEST.size, 2)
        except OSError:
            return False
        if len(request) < _REQUEST.size:
            return False
        action, slot = _REQUEST.unpack(request)
        if action == FORK:
            with socket.socket(fileno=descriptors[0]) as connection:
                self._fork(slot, connection, descriptors[1])
            os.close(descriptors[1])
            return True
        for pid, of_pid in self._slots.items():
            if of_pid == slot and action == KILL:
                _kill_group(pid)
            elif of_pid == slot:
                os.kill(pid, DUMP_STACK if action == DUMP else INTERRUPT)
        return True

    def _fork(self, slot: int, connection: socket.socket, dump: int) -> None:
        end_with_me = end_with_parent(signal.SIGKILL)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, (INTERRUPT,))

        def serve() -> None:
            os.setpgid(0, 0)
            end_with_me()
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self._selector.close()
            self._control.close()
            self._work(slot, connection, dump)

        try:
            pid = fork(serve, partial(log.exception, "a process of jobs failed"))
        except OSError as error:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            self._report(slot, 0, error.errno or errno.EAGAIN)
            return
        with contextlib.suppress(OSError):  # the child has done it, or is dead
            os.setpgid(pid, pid)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        self._slots[pid] = slot

    def _reap(self) -> None:
        for pid, slot in list(self._slots.items()):
            reaped, status = os.waitpid(pid, os.WNOHANG)
            if reaped:
                del self._slots[pid]
                self._report(slot, pid, os.waitstatus_to_exitcode(status))

    def _report(self, slot: int, pid: int, code: int) -> None:
        with contextlib.suppress(OSError):  # the worker is gone, which the next read notices
            self._control.sendall(_EXIT.pack(slot, pid, code))

    def _end(self) -> None:
        """Kill the remaining processes, and wait up to 2 seconds until they have ended."""
        for pid in self._slots:
            _kill_group(pid)
        until = time.monotonic() + 2.0
        while self._slots and time.monotonic() < until:
            self._reap()
            time.sleep(0.01)


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except OSError:  # it has died before it had a group
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
