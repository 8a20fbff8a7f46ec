"""The settings of caches: `RESTY_DJANGO["CACHES"]`."""

from __future__ import annotations

from dataclasses import dataclass

from resty_django.conf import validators
from resty_django.conf.schema import above, at_least, section, setting


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
    that a value and a cached None live (0: forever). `resurrect_ttl`: seconds that an expired value is served for
    when the source fails (None: not at all). `stale_while_revalidate`: seconds after its time in which a value is
    served while it is refreshed. `jitter`: the share of up to which times to live are shortened at random.
    `shm_set_tries`: attempts to store in L2. `ipc`: whether other processes are told by events. `serializer`,
    `l1_serializer`: dotted paths of an object with `encode` and `decode`, and of a function. `failures`: dotted paths
    of exceptions of callbacks that count as a failing source. `lock`: the lock of a callback.
    """

    shm: str = setting("default", check=validators.known_dict)
    shm_miss: str | None = setting(None, check=validators.known_dict)
    shm_locks: str | None = setting(None, check=validators.known_dict)
    shm_stats: str | None = setting(None, check=validators.known_dict)
    lru_size: int = setting(100, check=at_least(1))
    ttl: float = setting(30.0, check=at_least(0))
    neg_ttl: float = setting(5.0, check=at_least(0))
    resurrect_ttl: float | None = setting(None, check=at_least(0))
    stale_while_revalidate: float = setting(0.0, check=at_least(0))
    jitter: float = setting(0.0, check=validators.share)
    shm_set_tries: int = setting(3, check=at_least(1))
    ipc: bool = setting(True)
    serializer: str | None = setting(None, check=validators.dotted_path)
    l1_serializer: str | None = setting(None, check=validators.dotted_path)
    failures: tuple[str, ...] = setting((), check=validators.dotted_paths)
    lock: CacheLockSettings = section(CacheLockSettings)
