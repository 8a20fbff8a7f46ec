"""The settings of a site: one dict, `RESTY_DJANGO`, read lazily and typed.

    RESTY_DJANGO = {"IDS": {"STEP": 2, "OFFSET": 1, "UDP": {"PORT": 1201}}}

    from resty_django.conf import conf
    conf.ids.udp.port   # 1201

A section is read when it is first used and kept until a setting changes, so `override_settings` works. A wrong
key, type or value raises `ImproperlyConfigured` on use, and is reported by `manage.py check` before that. All
durations are seconds, all sizes bytes. To add a section: one dataclass here and one line in `Conf`.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar, overload

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed

from resty_django.schema import (
    SETTING,
    Fault,
    Name,
    Needs,
    Problem,
    above,
    at_least,
    between,
    decode,
    decode_named,
    missing_modules,
    one_of,
    paths,
    section,
    setting,
    unknown_key,
    wrong_type,
)

T = TypeVar("T")

ALWAYS_DICTS: Final[Mapping[str, Mapping[str, object]]] = {
    "default": {},
    "events": {"SIZE": 4 * 1024 * 1024},
    "limits": {"SIZE": 24 * 1024 * 1024},
}
"""The shared dictionaries that every site has, and what they have where the site says nothing else."""

ALWAYS_CACHES: Final[Mapping[str, Mapping[str, object]]] = {"default": {}}
"""The caches that every site has."""


def _known_database(alias: str) -> str | None:
    if alias in settings.DATABASES:
        return None
    return f"names the database {alias!r}, which DATABASES does not have (it has {', '.join(settings.DATABASES)})"


def _known_cache(alias: str) -> str | None:
    if alias in settings.CACHES:
        return None
    return f"names the cache {alias!r}, which CACHES does not have (it has {', '.join(settings.CACHES)})"


def _known_dict(name: str) -> str | None:
    raw = raw_section("SHARED_DICTS")
    known = dict.fromkeys((*ALWAYS_DICTS, *(raw if isinstance(raw, Mapping) else ())))
    if name in known:
        return None
    return f"names the shared dictionary {name!r}, which SHARED_DICTS does not have (it has {', '.join(known)})"


def _networks(values: tuple[str, ...]) -> str | None:
    for value in values:
        try:
            ipaddress.ip_network(value)
        except ValueError as error:
            return f'holds {value!r}, which is not a network such as "10.0.0.0/8" ({error})'
    return None


def _proxies(values: tuple[str, ...]) -> str | None:
    return _networks(tuple(value for value in values if value != "unix"))


def _header(value: str) -> str | None:
    return None if re.fullmatch("[A-Za-z0-9-]+", value) else f"must be letters, digits and hyphens, not {value!r}"


def _dotted_path(value: str) -> str | None:
    return _dotted((value,)) and f'must be a dotted path such as "shop.caches.to_product", not {value!r}'


def _dotted(values: tuple[str, ...]) -> str | None:
    for value in values:
        if not all(part.isidentifier() for part in value.split(".")) or "." not in value:
            return f'holds {value!r}, which is not a dotted path to a class such as "shop.ids.OrderRule"'
    return None


def _no_empty(values: tuple[str, ...]) -> str | None:
    return None if all(values) else "holds an empty text"


def _queues(values: tuple[str, ...]) -> str | None:
    return _no_empty(values) if values else "must name a queue"


def _share(value: float) -> str | None:
    return None if 0 <= value < 1 else f"must be at least 0 and less than 1, not {value}"


def _tokens(values: tuple[str, ...]) -> str | None:
    short = any(len(value) < 16 for value in values)
    return "holds a token of less than 16 characters; make one with `secrets.token_urlsafe()`" if short else None


def _not_blank(value: str) -> str | None:
    return None if value.strip() else "must not be empty"


@dataclass(frozen=True, slots=True, kw_only=True)
class LuaSettings:
    """Bounds of one call of a Lua rule: `milliseconds` of time and `memory` bytes for the script's share."""

    milliseconds: int = setting(50, check=between(1, 10_000))
    memory: int = setting(2 * 1024 * 1024, check=between(256 * 1024, 16 * 1024 * 1024))


@dataclass(frozen=True, slots=True, kw_only=True)
class UdpSettings:
    """The UDP ID server.

    `batch` is how many datagrams at most a system call receives when they queue up (0: one), `max_datagram` the
    longest request, `networks` the CIDR blocks that may ask (none listed: all), `rate` the requests a second of
    one source (0: no bound), `keys` the shared secrets that sign requests (none listed: requests are not signed).
    """

    host: str = setting("127.0.0.1", check=_not_blank)
    port: int = setting(1200, check=between(1, 65535))
    processes: int = setting(1, check=between(1, 256))
    batch: int = setting(64, check=between(0, 1024))
    max_datagram: int = setting(20_000, check=between(64, 65_507))
    networks: tuple[str, ...] = setting((), check=_networks)
    rate: int = setting(0, check=at_least(0))
    keys: tuple[str, ...] = setting((), check=_no_empty)


@dataclass(frozen=True, slots=True, kw_only=True)
class IdsSettings:
    """The ID service.

    `step` and `offset`: this site's numbers are those with remainder `offset` modulo `step` of the counter.
    `node`: the text of `{node}` in a rule. `database`: the alias that holds rules and counters (None: the router
    decides). `refresh`: seconds between two looks for changed rules. `wait`: seconds that a request waits for a
    reservation. `max_count`: IDs in one request. `python_rules`: dotted paths allowed as rules of kind python.
    `max_segment`: the most numbers reserved at a time. `new_names_per_second`: new application names a second
    (0: no bound). `eager`: no background thread, each ID is taken on the caller's connection, for tests of a site.
    `issue_log`: file that every ID given out is appended to (None: no log). `stats`: the shared dictionary that sums up
    how many were given out.
    """

    step: int = setting(1, check=at_least(1))
    offset: int = setting(0, check=at_least(0))
    node: str = setting("")
    database: str | None = setting(None, check=_known_database)
    refresh: float = setting(1.0, check=above(0))
    wait: float = setting(2.0, check=at_least(0))
    max_count: int = setting(1000, check=at_least(1))
    python_rules: tuple[str, ...] = setting((), check=_dotted)
    max_segment: int = setting(100_000, check=at_least(1))
    new_names_per_second: int = setting(50, check=at_least(0))
    eager: bool = setting(False)
    issue_log: str | None = setting(None, check=_not_blank)
    stats: str = setting("default", check=_known_dict)
    lua: LuaSettings = section(LuaSettings, needs=Needs(("lupa",), "lua"))
    udp: UdpSettings = section(UdpSettings)

    def faults(self) -> Iterator[Fault]:
        if self.offset >= self.step:
            yield "offset", f"must be less than STEP ({self.step}), not {self.offset}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedDictSettings:
    """One shared dictionary.

    `engine`: "lmdb", one machine and no server, or "redis". For lmdb, `size` is the bytes of memory that it takes and
    `path` the folder of its files (None: memory where there is room, else the folder for temporary files). For redis,
    `alias` is the cache of django-redis whose connection it uses, `prefix` what its keys begin with (None: made
    of its name), and `stale` the seconds that an expired item stays readable for `get_stale`.
    """

    engine: str = setting(
        "lmdb", check=one_of("lmdb", "redis"), needs={"redis": Needs(("redis", "django_redis"), "redis")}
    )
    size: int = setting(32 * 1024 * 1024, check=at_least(1024 * 1024))
    path: str | None = setting(None, check=_not_blank)
    alias: str = setting("default", check=_known_cache)
    prefix: str | None = setting(None, check=_not_blank)
    stale: float = setting(60.0, check=at_least(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class EventsSettings:
    """Events between processes.

    `dict`: the shared dictionary that carries them. `interval`: seconds between two looks for events (0: none in the
    background); Redis tells of them by itself. `timeout`: seconds for which a unique value is taken. `wait_interval`
    and `wait_max`: seconds between two looks for an event whose data is missing, and until it is dropped. `retries`:
    further attempts to post where the dictionary is full. `keep`: about how many events a stream in Redis holds.
    `autostart`: the first request of a web worker starts it.
    """

    dict: str = setting("events", check=_known_dict)
    interval: float = setting(0.05, check=at_least(0))
    timeout: float = setting(2.0, check=above(0))
    wait_interval: float = setting(0.01, check=at_least(0))
    wait_max: float = setting(0.5, check=at_least(0))
    retries: int = setting(999, check=at_least(0))
    keep: int = setting(10_000, check=at_least(100))
    autostart: bool = setting(True)


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsSettings:
    """Limits of requests.

    `store`: the shared dictionary that keeps them. `on_error`: what happens while it cannot be used: "open", "closed",
    "local" or "raise". `status`: of a refusal. `headers`: whether responses tell of their limits. `template`: of the
    page of a refusal. `max_delay`: the seconds that a sync view may sleep for its turn. `proxies`: networks whose
    word about the client's address is trusted, `proxy_header` where they say it; `ipv6_prefix`: bits of an IPv6
    address that are one client; `exempt_networks`: clients without limits. `rules`: policies, as dicts of their fields.
    `refresh`: seconds between two looks for changed policies where no event tells of them.
    """

    store: str = setting("limits", check=_known_dict)
    on_error: str = setting("open", check=one_of("open", "closed", "local", "raise"))
    status: int = setting(429, check=between(400, 599))
    headers: bool = setting(True)
    template: str = setting("resty_limits/429.html", check=_not_blank)
    max_delay: float = setting(0.0, check=at_least(0))
    proxies: tuple[str, ...] = setting((), check=_proxies)
    proxy_header: str = setting("X-Forwarded-For", check=_not_blank)
    ipv6_prefix: int = setting(64, check=between(1, 128))
    exempt_networks: tuple[str, ...] = setting((), check=_networks)
    rules: tuple[dict[str, Any], ...] = setting(())
    refresh: float = setting(10.0, check=above(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class TxidSettings:
    """Transaction ids.

    `header`: the header that brings and tells the txid of a request. `proxies`: the CIDR blocks of those whose ids are
    taken over, "unix" for callers over a Unix socket (none listed: from nobody). `traceparent`: W3C Trace Context, in
    and out. `commands`: ends of the paths of the programs whose runs have one txid each.
    """

    header: str = setting("X-Request-Id", check=_header)
    proxies: tuple[str, ...] = setting((), check=_proxies)
    traceparent: bool = setting(True)
    commands: tuple[str, ...] = setting(("manage.py", "django-admin", "django/__main__.py"), check=_no_empty)


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheLockSettings:
    """The lock of a callback: `exptime` is when it frees itself, `timeout` the longest wait, both in seconds; tries are
    `step` seconds apart at first, then `ratio` times longer each, up to `max_step`."""

    exptime: float = setting(30.0, check=above(0))
    timeout: float = setting(5.0, check=at_least(0))
    step: float = setting(0.001, check=above(0))
    ratio: float = setting(2.0, check=above(0))
    max_step: float = setting(0.5, check=above(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheSettings:
    """One cache.

    `shm`: the shared dictionary of L2; `shm_miss`: another for cached None; `shm_locks`: another for the locks;
    `shm_stats`: another for the counts. `lru_size`: items in the memory of each process. `ttl`, `neg_ttl`: seconds
    that a value and a cached None live (0: for ever). `resurrect_ttl`: seconds that an expired value is served for
    when the source fails (None: not at all). `stale_while_revalidate`: seconds after its time in which a value is
    served while it is refreshed. `jitter`: the share of up to which times to live are shortened at random.
    `shm_set_tries`: attempts to store in L2. `ipc`: whether other processes are told by events; `ipc_shm`: the
    dictionary of a channel of its own. `serializer`, `l1_serializer`: dotted paths of an object with `encode` and
    `decode`, and of a function. `failures`: dotted paths of exceptions of callbacks that count as a failing source.
    `lock`: the lock of a callback.
    """

    shm: str = setting("default", check=_known_dict)
    shm_miss: str | None = setting(None, check=_known_dict)
    shm_locks: str | None = setting(None, check=_known_dict)
    shm_stats: str | None = setting(None, check=_known_dict)
    lru_size: int = setting(100, check=at_least(1))
    ttl: float = setting(30.0, check=at_least(0))
    neg_ttl: float = setting(5.0, check=at_least(0))
    resurrect_ttl: float | None = setting(None, check=at_least(0))
    stale_while_revalidate: float = setting(0.0, check=at_least(0))
    jitter: float = setting(0.0, check=_share)
    shm_set_tries: int = setting(3, check=at_least(1))
    ipc: bool = setting(True)
    ipc_shm: str | None = setting(None, check=_known_dict)
    serializer: str | None = setting(None, check=_dotted_path)
    l1_serializer: str | None = setting(None, check=_dotted_path)
    failures: tuple[str, ...] = setting((), check=_dotted)
    lock: CacheLockSettings = section(CacheLockSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSettings:
    """Who may see the metrics besides users with the permission, and how many there are at most.

    `tokens`: bearer tokens, each of which opens them. `networks`: CIDR blocks whose connections need none.
    `max_labels`: the most samples of one metric.
    """

    tokens: tuple[str, ...] = setting((), check=_tokens)
    networks: tuple[str, ...] = setting((), check=_networks)
    max_labels: int = setting(100, check=at_least(2))


def _url(value: str) -> str | None:
    if re.match(r"(rediss?|unix)://", value):
        return None
    return 'must be a URL such as "redis://10.0.0.1:6379/0"'


def _prefix(value: str) -> str | None:
    if re.fullmatch(r"[\w.:{}-]+", value, re.ASCII):
        return None
    return f"must be letters, digits and _.:{{}}- alone, not {value!r}"


def _modules(values: tuple[str, ...]) -> str | None:
    for value in values:
        if not all(part.isidentifier() for part in value.split(".")):
            return f'holds {value!r}, which is not a module such as "shop.background"'
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """Worker processes of the job queue, where `manage.py runqless` is told nothing else.

    `queues`: their names, the first one first. `reserver`: "ordered", "round_robin", "shuffled" or the dotted path of a
    class. `concurrency`: jobs that a process runs at once; `processes`: how many there are. `interval`: seconds between
    two looks for jobs that nobody told of. `grace`: seconds that jobs have to end after SIGTERM. `middleware`: dotted
    paths of what is around each job, outermost first. `interrupt`: sync jobs get an exception when they lose their lock
    or the grace time is over.
    """

    queues: tuple[str, ...] = setting(("default",), check=_queues)
    reserver: str = setting("ordered", check=_not_blank)
    concurrency: int = setting(8, check=between(1, 10_000))
    processes: int = setting(1, check=between(1, 256))
    interval: float = setting(1.0, check=above(0))
    grace: float = setting(30.0, check=at_least(0))
    middleware: tuple[str, ...] = setting((), check=_dotted)
    interrupt: bool = setting(False)


@dataclass(frozen=True, slots=True, kw_only=True)
class QlessSettings:
    """The job queue.

    `alias`: the cache in `CACHES` whose Redis has the jobs; `url`: a Redis of its own in place of it. `prefix`: what
    all keys begin with. `worker_name`: what jobs say of their worker (None: host and process). `modules`: modules and
    packages from which jobs may come, beside `jobs` and `tasks` of installed apps. `result_ttl`: seconds that results
    of tasks are kept (None: as long as the jobs). `eager`: tasks run where they are called, for tests. `redact`: words;
    what is under a name with one of them in it is shown to nobody; `redactor`: dotted path of a function that is given
    the arguments of a job and gives what may be shown; `links`: one that is given a job and gives pairs of text and URL
    for its page.
    """

    alias: str = setting("default", check=_known_cache)
    url: str | None = setting(None, check=_url)
    prefix: str = setting("ql:", check=_prefix)
    worker_name: str | None = setting(None, check=_not_blank)
    modules: tuple[str, ...] = setting((), check=_modules)
    result_ttl: float | None = setting(86_400.0, check=above(0))
    eager: bool = setting(False)
    worker: WorkerSettings = section(WorkerSettings)
    redact: tuple[str, ...] = setting(
        ("password", "passwd", "secret", "token", "api_key", "apikey", "authorization", "cookie", "card_number", "cvv"),
        check=_no_empty,
    )
    redactor: str | None = setting(None, check=_dotted_path)
    links: str | None = setting(None, check=_dotted_path)


class Section(Generic[T]):
    """One line of the table of sections: its key, its dataclass, the app that it configures."""

    def __init__(self, key: str, cls: type[Any], app: str) -> None:
        self.key = key
        self.cls = cls
        self.app = app

    @overload
    def __get__(self, instance: None, owner: type[Any]) -> Section[T]: ...
    @overload
    def __get__(self, instance: Conf, owner: type[Any]) -> T: ...
    def __get__(self, instance: Conf | None, owner: type[Any]) -> Section[T] | T:
        if instance is None:
            return self
        try:
            return instance.cache[self.key]  # type: ignore[no-any-return]
        except KeyError:
            return instance.load(self)

    def decode(self, raw: object) -> tuple[T | None, list[Problem]]:
        return decode(self.cls, raw, (self.key,))

    def paths(self) -> Iterator[tuple[str, ...]]:
        """The way to every key of this section."""
        return paths(self.cls, (self.key,))

    def missing(self, raw: object) -> list[Problem]:
        """The parts of it whose package is not installed."""
        return missing_modules(self.cls, raw, (self.key,))


class NamedSections(Section[Mapping[str, T]]):
    """A dict of sections under names that the site chooses, as in `CACHES`.

    Those in `always` are never missing; it gives what they have where the site says nothing else.
    """

    def __init__(self, key: str, cls: type[T], app: str, always: Mapping[str, Mapping[str, object]]) -> None:
        super().__init__(key, cls, app)
        self.always = always

    def decode(self, raw: object) -> tuple[Mapping[str, T] | None, list[Problem]]:
        return decode_named(self.cls, raw, (self.key,), self.always)

    def paths(self) -> Iterator[tuple[str, ...]]:
        return paths(self.cls, (self.key, Name("name")))

    def missing(self, raw: object) -> list[Problem]:
        if not isinstance(raw, Mapping):
            return []
        return [
            problem for name, one in raw.items() for problem in missing_modules(self.cls, one, (self.key, Name(name)))
        ]


class Conf:
    """The typed settings. Each attribute is a section; reading one may raise `ImproperlyConfigured`."""

    ids = Section[IdsSettings]("IDS", IdsSettings, "resty_django.ids")
    shared_dicts = NamedSections("SHARED_DICTS", SharedDictSettings, "resty_django", ALWAYS_DICTS)
    events = Section[EventsSettings]("EVENTS", EventsSettings, "resty_django")
    limits = Section[LimitsSettings]("LIMITS", LimitsSettings, "resty_django.limits")
    txid = Section[TxidSettings]("TXID", TxidSettings, "resty_django")
    caches = NamedSections("CACHES", CacheSettings, "resty_django.cache", ALWAYS_CACHES)
    qless = Section[QlessSettings]("QLESS", QlessSettings, "resty_django.qless")
    metrics = Section[MetricsSettings]("METRICS", MetricsSettings, "resty_django")

    def __init__(self) -> None:
        self.cache: dict[str, Any] = {}

    def load(self, entry: Section[T]) -> T:
        """Read a section from Django's settings and keep it."""
        problems = top_problems()
        value, found = entry.decode(raw_section(entry.key))
        problems += found
        if value is None or problems:
            first = problems[0]
            raise ImproperlyConfigured(f"{first.message} See {first.anchor}.")
        self.cache[entry.key] = value
        return value

    def clear(self) -> None:
        """Forget what was read; the next use reads the settings again."""
        self.cache.clear()


SECTIONS: Final[Mapping[str, Section[Any]]] = {
    entry.key: entry for entry in vars(Conf).values() if isinstance(entry, Section)
}

conf: Final = Conf()


def raw_settings() -> object:
    return getattr(settings, SETTING, {})


def raw_section(key: str) -> object:
    raw = raw_settings()
    return raw.get(key, {}) if isinstance(raw, Mapping) else {}


def top_problems() -> list[Problem]:
    """What is wrong with the dict itself, apart from its sections."""
    raw = raw_settings()
    if not isinstance(raw, Mapping):
        return [wrong_type(raw, (), "a dict")]
    return [unknown_key(key, (), SECTIONS) for key in raw if key not in SECTIONS]


def all_problems() -> list[Problem]:
    """Everything wrong with the settings, section after section."""
    problems = top_problems()
    for key, entry in SECTIONS.items():
        problems += entry.decode(raw_section(key))[1]
        problems += entry.missing(raw_section(key))
    return problems


def _forget(*, setting: str, **kwargs: object) -> None:
    if setting in {SETTING, "DATABASES", "CACHES"}:
        conf.clear()


setting_changed.connect(_forget, dispatch_uid="resty_django.conf")

__all__ = [
    "SECTIONS",
    "CacheLockSettings",
    "CacheSettings",
    "Conf",
    "EventsSettings",
    "IdsSettings",
    "LimitsSettings",
    "LuaSettings",
    "MetricsSettings",
    "QlessSettings",
    "SharedDictSettings",
    "TxidSettings",
    "UdpSettings",
    "WorkerSettings",
    "all_problems",
    "conf",
]
