"""Python processes for tests, an eighth as expensive as new interpreters: see `tests.forkserver`.

`Process` and `run` stand for `subprocess.Popen` and `subprocess.run`. A process has its own environment, settings,
signals and exit. Two things differ from a new interpreter: the modules that need no settings are imported already, and
its parent is the server. Tests of either, such as which modules are imported, use `subprocess`.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from tests.forkserver import LENGTH, ROOT

Stream = int | IO[Any] | None


class ForkServer:
    """The client's side: starts the server with the first process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._control: socket.socket | None = None
        self._server: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes]
        self.failures: list[str] = []
        """The messages of servers that ended unexpectedly, for the summary of the run."""

    def send(self, request: dict[str, Any], descriptors: list[int]) -> None:
        data = json.dumps(request).encode()
        with self._lock:
            if self._server is not None and self._server.poll() is not None:
                self._replace()  # it has failed; what comes next gets a new one
            if self._control is None:
                self._start()
            try:
                self._send(data, descriptors)
            except BrokenPipeError:
                self._replace()
                self._start()
                self._send(data, descriptors)

    def _send(self, data: bytes, descriptors: list[int]) -> None:
        assert self._control is not None
        socket.send_fds(self._control, [b"%*d" % (LENGTH, len(data))], descriptors)
        self._control.sendall(data)

    def _replace(self) -> None:
        assert self._control is not None
        assert self._server is not None
        self._control.close()
        self._server.wait(30)
        self._control = self._server = None
        self.failures.append(self.errors())
        self._errors.close()

    def errors(self) -> str:
        """Return the server's standard error."""
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")

    def _start(self) -> None:
        self._control, theirs = socket.socketpair()
        with theirs:
            descriptor = theirs.fileno()
            self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - its own: pytest captures those of a test
            self._server = subprocess.Popen(
                [sys.executable, str(ROOT / "tests" / "forkserver.py"), str(descriptor)],
                pass_fds=[descriptor],
                stderr=self._errors,
            )
        atexit.register(self.stop)

    def stop(self) -> None:
        """End the server and what it has started."""
        with self._lock:
            if self._control is not None and self._server is not None:
                self._control.close()
                self._server.wait(30)
                self._errors.close()
                self._control = self._server = None


server = ForkServer()


class Process:
    """The part of `subprocess.Popen` that tests use, for `[sys.executable, ...]`."""

    def __init__(
        self,
        args: Sequence[str],
        *,
        cwd: str | Path = ROOT,
        env: Mapping[str, str] | None = None,
        stdin: Stream = None,
        stdout: Stream = None,
        stderr: Stream = None,
        text: bool = False,
        start_new_session: bool = False,
    ) -> None:
        assert args[0] == sys.executable
        self.args = list(args)
        self.returncode: int | None = None
        self._waiting = threading.Lock()
        self._text = text
        theirs: list[int] = []
        self.stdin: IO[Any] | None = self._open(stdin, 0, theirs)
        self.stdout: IO[Any] | None = self._open(stdout, 1, theirs)
        self.stderr: IO[Any] | None = None
        if stderr == subprocess.STDOUT:
            theirs.append(os.dup(theirs[1]))
        else:
            self.stderr = self._open(stderr, 2, theirs)
        self._status, writing = os.pipe()
        theirs.append(writing)
        request = {
            "arguments": self.args[1:],
            "cwd": str(cwd),
            "env": dict(os.environ if env is None else env),
            "start_new_session": start_new_session,
        }
        try:
            server.send(request, theirs)
        finally:
            for descriptor in theirs:
                os.close(descriptor)
        self._report = b""
        while b"\n" not in self._report:
            self._read()
        pid, _, self._report = self._report.partition(b"\n")
        self.pid = int(pid)

    def _open(self, stream: Stream, target: int, theirs: list[int]) -> IO[Any] | None:
        """Add the descriptor for the process; return this side of a pipe."""
        if stream == subprocess.PIPE:
            reading, writing = os.pipe()
            theirs.append(writing if target else reading)
            mode, buffering = ("r" if target else "w"), 1 if self._text and not target else -1
            own_end = reading if target else writing
            return open(own_end, mode if self._text else f"{mode}b", buffering)
        if stream == subprocess.DEVNULL:
            theirs.append(os.open(os.devnull, os.O_RDWR))
        elif stream is None:
            theirs.append(os.dup(target))
        else:
            theirs.append(os.dup(stream if isinstance(stream, int) else stream.fileno()))
        return None

    def _read(self) -> None:
        data = os.read(self._status, 100)
        if not data:
            raise RuntimeError(f"The fork server has ended: {server.errors()}")
        self._report += data

    def poll(self) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        end = None if timeout is None else time.monotonic() + timeout
        with self._waiting:
            while self.returncode is None:
                seconds = None if end is None else max(0.0, end - time.monotonic())
                if not select.select([self._status], [], [], seconds)[0]:
                    raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
                self._read()
                if self._report.endswith(b"\n"):
                    self.returncode = int(self._report)
                    os.close(self._status)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has ended, and the fork server's report is on its way
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, data: Any = None, timeout: float | None = None) -> tuple[Any, Any]:
        """Write to the process and read from it until it ends."""
        outputs: dict[str, Any] = {"stdout": None, "stderr": None}

        def read(name: str, stream: IO[Any]) -> None:
            outputs[name] = stream.read()

        threads = [
            threading.Thread(target=read, args=(name, stream), daemon=True)
            for name in outputs
            if (stream := getattr(self, name)) is not None and not stream.closed
        ]
        for thread in threads:
            thread.start()
        if self.stdin is not None and not self.stdin.closed:
            with suppress(BrokenPipeError):
                if data:
                    self.stdin.write(data)
                self.stdin.close()
        self.wait(timeout)
        for thread in threads:
            thread.join(timeout)
            if thread.is_alive():  # a process that it has started holds the other end
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        for stream in (self.stdout, self.stderr):
            if stream is not None:
                stream.close()
        return outputs["stdout"], outputs["stderr"]

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        for stream in (self.stdout, self.stderr, self.stdin):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()
        self.wait()

    def __del__(self) -> None:
        if self.returncode is None and hasattr(self, "pid"):
            with suppress(OSError):
                os.close(self._status)


def run(
    args: Sequence[str],
    *,
    cwd: str | Path = ROOT,
    env: Mapping[str, str] | None = None,
    input: Any = None,
    capture_output: bool = True,
    text: bool = True,
    timeout: float = 100.0,
    check: bool = False,
) -> subprocess.CompletedProcess[Any]:
    """Run a command to its end; its output is captured."""
    pipe = subprocess.PIPE if capture_output else None
    stdin = subprocess.DEVNULL if input is None else subprocess.PIPE
    process = Process(args, cwd=cwd, env=env, stdin=stdin, stdout=pipe, stderr=pipe, text=text)
    try:
        output, errors = process.communicate(input, timeout)
    except BaseException:
        process.kill()
        raise
    assert process.returncode is not None
    completed = subprocess.CompletedProcess(args, process.returncode, output, errors)
    if check:
        completed.check_returncode()
    return completed


class LineProcess:
    """A process that prints a line for each thing that happens to it; `lines` are those that it has ended.

    `read` turns a line into a value. `start`: `subprocess.Popen` for a new interpreter.
    """

    def __init__(
        self,
        args: Sequence[str],
        env: Mapping[str, str],
        *,
        read: Callable[[str], Any] = json.loads,
        start: Callable[..., Any] = Process,
        own_session: bool = False,
    ) -> None:
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - and no pipe, which its children would hold open
        self._own_session = own_session
        self.process = start(
            [sys.executable, *args],
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)]), **env},
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            start_new_session=own_session,
        )
        self.lines: list[Any] = []
        self._reader = threading.Thread(target=self._read, args=(read,), daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return int(self.process.pid)

    def _read(self, read: Callable[[str], Any]) -> None:
        for line in self.process.stdout:
            if line.endswith("\n"):  # not the one that a killed process was in the middle of
                self.lines.append(read(line))

    def wait_until(self, check: Callable[[], bool], seconds: float = 20.0, what: object = "") -> None:
        until = time.monotonic() + seconds
        while not check():
            if time.monotonic() > until or (self.process.poll() is not None and not self._reader.is_alive()):
                raise AssertionError(f"no {what} in {self.lines}: {LineProcess.end(self)}")
            time.sleep(0.005)

    def say(self, line: str) -> None:
        """Write a line to its standard input."""
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def end(self, how: int | None = signal.SIGKILL) -> str:
        """End it by a signal, or wait for it (None); return what it wrote to standard error."""
        if how is not None and self.process.poll() is None:
            self.process.send_signal(how)
        self.process.wait(30)
        if self._own_session:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)  # its children, should there be any left
        self._reader.join(5)
        error = self.errors()
        for stream in (self.process.stdin, self.process.stdout, self._errors):
            stream.close()
        return error

    def errors(self) -> str:
        """Return what it has written to standard error."""
        self._errors.seek(0)
        return self._errors.read()
