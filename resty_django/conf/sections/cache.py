"""Settings for caches: `RESTY_DJANGO["CACHES"]`."""

from __future__ import annotations

from dataclasses import dataclass

from .. import validators
from ..schema import above, at_least, duration, one_of, section, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheLockSettings:
    """The lock of a callback.

    Attributes:
        exptime: Seconds until the lock expires; must be longer than any callback takes.
        timeout: Maximum seconds that a call waits for another call's callback.
        step: First pause between tries in seconds.
        ratio: Factor by which each pause is longer than the previous one.
        max_step: Maximum pause in seconds.
    """

    exptime: float = duration(30.0, check=above(0))
    timeout: float = duration(5.0, check=at_least(0))
    step: float = setting(0.001, check=above(0))
    ratio: float = setting(2.0, check=above(0))
    max_step: float = duration(0.5, check=above(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheSettings:
    """One cache.

    Attributes:
        shm: The shared dictionary for L2.
        shm_miss: A separate dictionary for cached None, so that they do not evict values.
        shm_locks: A separate dictionary for locks; None: the L2 dictionary.
        shm_stats: A separate dictionary for statistics; None: the dictionary for locks.
        lru_size: Maximum number of values in L1, per process.
        ttl: Time to live of a value in seconds; 0: forever.
        neg_ttl: Time to live of a cached None in seconds; 0: forever.
        error_ttl: Seconds for which an error of a callback is raised again in all processes instead of calling it;
            0: not at all.
        resurrect_ttl: Seconds for which an expired value is served if the source fails; None: never. Do not use 0,
            which means forever.
        stale_while_revalidate: Seconds after expiry during which a value is still served while it is refreshed in
            the background; 0: never.
        jitter: Maximum share (less than 1) by which times to live are randomly shortened.
        shm_set_tries: Attempts to store in a full L2.
        ipc: Whether other processes are notified through events.
        serializer: Dotted path of an object with `encode` and `decode`, or of its class, for values of other types.
        l1_serializer: Dotted path of a function that converts a value to the object stored in L1.
        compress: Compresses values in L2: `"zlib"` or `"zstd"`; None: no compression.
        compress_above: Values of at most this number of bytes are not compressed.
        decompress_limit: Maximum bytes of a decompressed value; larger ones count as absent.
        failures: Dotted paths of callback exceptions that count as a failure of the source.
        on_error: What calls do while the store of L2 is down: `"source"` uses L1 and the callback, `"raise"` raises
            `Unavailable`.
        outage_ttl: Seconds for which L1 keeps a value that is stored while the store is down; at most the value's
            time to live.
        stale_if_outage: Seconds after its expiry during which a value in L1 is served while the store is down; 0:
            never.
        early: Factor of early recomputation, usually 1.0; 0 or None: never.
        lock: Options of the callback lock.
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
