"""The settings of the ID service: `RESTY_DJANGO["IDS"]`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .. import validators
from ..schema import Fault, Needs, above, at_least, between, duration, section, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class LuaSettings:
    """Limits for each call of a Lua rule: `milliseconds` of CPU time and `memory` in bytes for the script.

    Attributes:
        milliseconds: Maximum duration of one call of a rule, 1 to 10000.
        memory: Maximum memory of a Lua script in bytes; at most 16777216.
    """

    milliseconds: int = setting(50, check=between(1, 10_000))
    memory: int = setting(2 * 1024 * 1024, check=between(256 * 1024, 16 * 1024 * 1024))


@dataclass(frozen=True, slots=True, kw_only=True)
class UdpSettings:
    """The UDP ID server.

    Attributes:
        host: Address to bind.
        port: Port to bind.
        processes: Number of server processes that share the port.
        batch: Maximum number of datagrams per system call when they queue up; 0: one by one.
        max_datagram: Maximum size of a request in bytes; larger ones are dropped.
        networks: CIDR blocks of accepted clients; empty: all clients.
        rate: Maximum requests per second from one source; 0: unlimited.
        keys: Shared secrets that sign requests, each at least 16 bytes long; empty: requests are not signed.
    """

    host: str = setting("127.0.0.1", check=validators.not_blank)
    port: int = setting(1200, check=between(1, 65535))
    processes: int = setting(1, check=between(1, 256))
    batch: int = setting(64, check=between(0, 1024))
    max_datagram: int = setting(20_000, check=between(64, 65_507))
    networks: tuple[str, ...] = setting((), check=validators.networks)
    rate: int = setting(0, check=at_least(0))
    keys: tuple[str, ...] = setting((), check=validators.no_empty_texts)


@dataclass(frozen=True, slots=True, kw_only=True)
class IdsSettings:
    """The ID service.

    Attributes:
        step: Number of independent sites that share the numbers. Sites on one database need no step.
        offset: Index of this site: 0 to `STEP` - 1.
        node: The text of `{node}` in a rule.
        database: The alias in `DATABASES` that holds rules and counters; None: chosen by the database routers.
        database_timeout: Seconds, at least 1, after which the reservation thread aborts a database operation and
            opens a new connection.
        refresh: Seconds between checks for changed rules.
        wait: Maximum seconds that a request waits for a reservation.
        max_count: Maximum number of IDs per request.
        python_rules: Dotted paths of the classes that rules of the kind "python" may use.
        max_segment: Maximum number of numbers reserved at a time; a larger `segment_size` of a rule has no effect.
        new_names_per_second: Maximum number of new application names per second that get a counter; 0: unlimited.
        eager: For tests of your own site: no background thread, each ID is taken on the caller's connection.
        issue_log: A file to which every issued ID is appended.
        rules: Rules declared in code, each as a dict of its fields.
        stats: The shared dictionary that counts the issued IDs of all processes, for the overview and the metrics.
        runs_out_warning: `resty_check` warns of a rule whose numbers run out within this time at the present pace,
            before its cycle ends; 0: no warnings.
        lua: Limits for Lua rules, below. Setting it needs the extra `lua`.
        udp: The UDP server.
    """

    step: int = setting(1, check=at_least(1))
    offset: int = setting(0, check=at_least(0))
    node: str = setting("")
    database: str | None = setting(None, check=validators.known_database)
    database_timeout: float = setting(3.0, check=at_least(1))
    refresh: float = setting(1.0, check=above(0))
    wait: float = setting(2.0, check=at_least(0))
    max_count: int = setting(1000, check=at_least(1))
    python_rules: tuple[str, ...] = setting((), check=validators.dotted_paths)
    max_segment: int = setting(100_000, check=at_least(1))
    new_names_per_second: int = setting(50, check=at_least(0))
    eager: bool = setting(False)
    issue_log: str | None = setting(None, check=validators.not_blank)
    rules: tuple[dict[str, Any], ...] = setting(())
    stats: str = setting("default", check=validators.known_dict)
    runs_out_warning: float = duration(2 * 86_400.0, check=at_least(0))
    lua: LuaSettings = section(LuaSettings, needs=Needs(("lupa",)))
    udp: UdpSettings = section(UdpSettings)

    def faults(self) -> Iterator[Fault]:
        if self.offset >= self.step:
            yield Fault("offset", f"must be less than STEP ({self.step}), not {self.offset}")
