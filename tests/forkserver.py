"""The server of `tests.processes`: imports every module once, then forks a process for each command.

Started with the descriptor of its end of a socket. A request is a JSON object of the command's arguments, working
directory and environment, with its standard streams and a pipe for its status as passed descriptors. Settings are not
read here: each process reads them from its own environment, as a new interpreter does.
"""

from __future__ import annotations

import array
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import runpy
import signal
import socket
import sys
import types
import warnings
from pathlib import Path
from typing import Any

LENGTH = 8
"""Bytes of the decimal number before each request."""

ROOT = Path(__file__).resolve().parents[1]
LATE = (
    "celery.bin.celery",
    "celery.concurrency.prefork",
    "celery.apps.worker",
    "celery.worker.consumer",
    "django.contrib.auth.management",
    "django.core.management.commands.migrate",
    "django.core.management.commands.runserver",
    "django.core.management.commands.shell",
    "django.test",
    "gunicorn.app.wsgiapp",
    "gunicorn.workers.sync",
    "kombu.transport.redis",
    "redis.cluster",
    "uvicorn.workers",
    "uvicorn.protocols.http.auto",
    "uvloop",
)
"""The modules that processes import after the start."""


def _names_of_modules() -> list[str]:
    """Return the modules that a process of the demo site and the whole package import, in this order.

    A child finds out: some modules configure Django when they are imported, and the server has to stay without.
    """
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(reading)
        os.environ["DJANGO_SETTINGS_MODULE"] = "project.settings"
        import django

        import resty_django

        django.setup()
        every = [module.name for module in pkgutil.walk_packages(resty_django.__path__, "resty_django.")]
        for name in (*every, *LATE):
            if "migrations" not in name and "testing" not in name:  # the latter import pytest and Django's test tools
                with contextlib.suppress(ImportError):
                    importlib.import_module(name)
        with open(writing, "w") as pipe:
            pipe.write("\n".join(name for name in sys.modules if not name.startswith(("project", "tests"))))
        os._exit(0)
    os.close(writing)
    with open(reading) as pipe:
        names = pipe.read().split("\n")
    os.waitpid(pid, 0)
    return names


def preload() -> None:
    """Import what can be imported without settings."""
    os.environ.pop("DJANGO_SETTINGS_MODULE", None)
    from django.conf import settings
    from django.core.exceptions import AppRegistryNotReady, ImproperlyConfigured

    for name in _names_of_modules():
        with contextlib.suppress(ImportError, ImproperlyConfigured, AppRegistryNotReady), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            importlib.import_module(name)
    assert not settings.configured
    gc.collect()
    gc.freeze()  # so that the children's collections leave the shared pages alone


class Server:
    def __init__(self, control: socket.socket) -> None:
        self.control = control
        self.children: dict[int, int] = {}
        """Of each process the pipe for its status."""

    def serve(self) -> dict[str, Any] | None:
        """Fork for each request. Return in a child with its request, in the server at the end with None."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # which a terminal sends to all; the tests end the processes
        signal.signal(signal.SIGCHLD, lambda *_: self.reap())
        while True:
            length, descriptors = self.receive()
            if not length:
                break
            request = json.loads(self.receive_exactly(int(length)))
            *streams, status = descriptors
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
            pid = os.fork()
            if not pid:
                self.become(request, streams, status)
                return dict(request)
            self.children[pid] = status
            with contextlib.suppress(BrokenPipeError):
                os.write(status, b"%d\n" % pid)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
            for descriptor in streams:
                os.close(descriptor)
        for pid in list(self.children):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return None

    def receive(self) -> tuple[bytes, list[int]]:
        """The begin of a request; nothing at the end."""
        descriptors = array.array("i")
        data, ancillary, _, _ = self.control.recvmsg(LENGTH, socket.CMSG_SPACE(4 * descriptors.itemsize))
        for _, _, packed in ancillary:
            descriptors.frombytes(packed)
        if data:
            data += self.receive_exactly(LENGTH - len(data))
        return data, list(descriptors)

    def receive_exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            data += self.control.recv(count - len(data))
        return data

    def reap(self) -> None:
        """Report the status of each process that has ended.

        A further signal may call this before it is through, and that call may report what this one has listed.
        """
        for pid, pipe in list(self.children.items()):
            try:
                ended, status = os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                continue
            if ended:
                del self.children[pid]
                with contextlib.suppress(BrokenPipeError):
                    os.write(pipe, b"%d\n" % os.waitstatus_to_exitcode(status))
                os.close(pipe)

    def become(self, request: dict[str, Any], streams: list[int], status: int) -> None:
        """Turn a child into what the request asks for."""
        for number in (signal.SIGINT, signal.SIGCHLD):
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        self.control.close()
        for pipe in (status, *self.children.values()):
            os.close(pipe)
        if request["start_new_session"]:
            os.setsid()
        for target, descriptor in enumerate(streams):
            os.dup2(descriptor, target)
        for descriptor in streams:
            os.close(descriptor)
        os.chdir(request["cwd"])
        os.environ.clear()
        os.environ.update(request["env"])


def run(arguments: list[str]) -> None:
    """As `python ...`: a script, `-m` with a module, or `-c` with code; before it `-W` with a filter."""
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    filters = [option for option in os.environ.get("PYTHONWARNINGS", "").split(",") if option]
    while arguments[0] == "-W":
        filters.append(arguments[1])
        arguments = arguments[2:]
    for option in filters:
        warnings._setoption(option)  # type: ignore[attr-defined]
    if arguments[0] == "-m":
        sys.path[:0] = [os.getcwd(), *paths]
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        return
    if arguments[0] == "-c":
        source, file = arguments[1], "<string>"
        sys.argv = ["-c", *arguments[2:]]
        sys.path[:0] = [os.getcwd(), *paths]
    else:
        file = arguments[0]
        source = Path(file).read_text()
        sys.argv = arguments
        sys.path[:0] = [str(Path(file).resolve().parent), *paths]
    main = types.ModuleType("__main__")
    if file != "<string>":
        main.__file__ = file
    sys.modules["__main__"] = main
    exec(compile(source, file, "exec"), main.__dict__)  # noqa: S102 (what the tests ask for)


if __name__ == "__main__":
    sys.path[:] = [path for path in sys.path if path not in {"", str(Path(__file__).parent)}]
    sys.path.insert(0, str(ROOT))
    preload()
    sys.path.remove(str(ROOT))
    request = Server(socket.socket(fileno=int(sys.argv[1]))).serve()
    if request is not None:
        run(request["arguments"])
