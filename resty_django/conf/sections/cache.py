"""Settings for caches: `RESTY_DJANGO["CACHES"]`."""

from __future__ import annotations

from dataclasses import dataclass

from .. import validators
from ..schema import above, at_least, duration, one_of, section, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheLockSettings:
    """The lock of a callback. `exptime`: seconds until it expires. `timeout`: maximum wait in seconds. `step`: first
    pause between tries in seconds; each following pause is `ratio` times longer, up to `max_step`."""

    exptime: float = duration(30.0, check=above(0))
    timeout: float = duration(5.0, check=at_least(0))
    step: float = setting(0.001, check=above(0))
    ratio: float = setting(2.0, check=above(0))
    max_step: float = duration(0.5, check=above(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheSettings:
    """One cache.

    `shm`: the shared dictionary for L2; separate dictionaries for cached None (`shm_miss`), locks (`shm_locks`) and
    counts (`shm_stats`). `lru_size`: maximum number of items in L1. `ttl`, `neg_ttl`: time to live of a value and of a
    cached None in seconds (0: forever). `error_ttl`: seconds for which an error of a callback is raised again instead
    of calling it (0: not at all). `resurrect_ttl`: seconds for which an expired value is served if the source
    fails (None: never). `stale_while_revalidate`: seconds after expiry during which a value is served while it is
    refreshed. `jitter`: maximum share by which times to live are randomly shortened. `shm_set_tries`: attempts to store
    in L2. `ipc`: whether other processes are notified through events. `serializer`, `l1_serializer`: dotted paths of an
    object with `encode` and `decode`, and of a function. `compress`: "zlib" or "zstd" compresses values of more than
    `compress_above` bytes in L2; None: do not compress. `decompress_limit`: maximum bytes of a decompressed value.
    `failures`: dotted paths of callback exceptions that count as a failure of the source. `on_error`: what calls do
    while the store is down, "source" or "raise". `outage_ttl`: seconds for which L1 keeps a value that is stored
    meanwhile. `stale_if_outage`: seconds after its expiry during which a value in L1 is served meanwhile. `early`: the
    factor of probabilistic early recomputation. `lock`: the lock of a callback.
    """

    shm: str = setting("default", check=validators.known_dict)
    shm_miss: str | None = setting(None, check=validators.known_dict)
    shm_locks: str | None = setting(None, check=validators.known_dict)
    shm_stats: str | None = setting(None, check=validators.known_dict)
    lru_size: int = setting(100, check=at_least(1))
    ttl: float = duration(30.0, check=at_least(0))
    neg_ttl: float = duration(5.0, check=at_least(0))
    error_ttl: float = duration(0.0, check=at_least(0))
    resurrect_ttl: float | None = duration(None, check=at_least(0))
    stale_while_revalidate: float = duration(0.0, check=at_least(0))
    jitter: float = setting(0.0, check=validators.share)
    shm_set_tries: int = setting(3, check=at_least(1))
    ipc: bool = setting(True)
    serializer: str | None = setting(None, check=validators.dotted_path)
    l1_serializer: str | None = setting(None, check=validators.dotted_path)
    compress: str | None = setting(None, check=one_of("zlib", "zstd"))
    compress_above: int = setting(1024, check=at_least(0))
    decompress_limit: int = setting(64 * 1024 * 1024, check=at_least(1))
    failures: tuple[str, ...] = setting((), check=validators.dotted_paths)
    on_error: str = setting("source", check=one_of("source", "raise"))
    outage_ttl: float = duration(5.0, check=above(0))
    stale_if_outage: float = duration(60.0, check=at_least(0))
    early: float | None = setting(None, check=at_least(0))
    lock: CacheLockSettings = section(CacheLockSettings)
