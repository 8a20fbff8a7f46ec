"""The settings of the ID service: `RESTY_DJANGO["IDS"]`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .. import validators
from ..schema import Fault, Needs, above, at_least, between, duration, section, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class LuaSettings:
    """Limits for each call of a Lua rule: `milliseconds` of CPU time and `memory` in bytes for the script."""

    milliseconds: int = setting(50, check=between(1, 10_000))
    memory: int = setting(2 * 1024 * 1024, check=between(256 * 1024, 16 * 1024 * 1024))


@dataclass(frozen=True, slots=True, kw_only=True)
class UdpSettings:
    """The UDP ID server.

    `batch`: maximum number of datagrams that a system call receives when they queue up (0: one). `max_datagram`:
    maximum size of a request in bytes. `networks`: CIDR blocks whose requests are accepted (empty: all). `rate`:
    maximum number of requests per second from one source (0: no limit). `keys`: shared secrets that sign requests
    (empty: requests are not signed).
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

    `step` and `offset`: this site issues the numbers with remainder `offset` modulo `step`, counted from the rule's
    first number. `node`: the text of `{node}` in a rule. `database`: the alias of the database with rules and counters
    (None: the router decides). `database_timeout`: seconds that the reservation thread waits for the database.
    `refresh`: seconds between two checks for changed rules. `wait`: seconds that a request waits for a reservation.
    `max_count`: maximum number of IDs in one request. `python_rules`: dotted paths allowed as rules of kind python.
    `max_segment`: maximum number of numbers reserved at a time. `new_names_per_second`: maximum number of new
    application names per second (0: no limit). `eager`: take each ID on the caller's connection, without a background
    thread, for tests of a site. `issue_log`: the file to which every issued ID is appended (None: no log). `rules`:
    rules declared in code, as dicts of their fields. `stats`: the shared dictionary for the counts of issued IDs.
    `runs_out_warning`: `resty_check` warns of a rule whose numbers run out within these seconds, before its cycle ends
    (0: never).
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
