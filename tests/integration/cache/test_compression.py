"""Compression of values in L2: in caches and in Django's cache backend, on both engines, sync and async."""

from __future__ import annotations

import logging
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.cache import caches
from django.core.exceptions import ImproperlyConfigured

from resty_django import extras
from resty_django.cache import MLCache
from resty_django.cache.admin.statistics import CacheFigures
from resty_django.cache.backend import entries
from resty_django.cache.backend.entries import Foreign
from resty_django.cache.backend_options import faults
from resty_django.cache.errors import BadOption
from resty_django.cache.facts import CacheFacts
from resty_django.cache.inventory import CacheInfo
from resty_django.cache.statistics.counts import CacheStats, added, history
from resty_django.cache.storage import records
from resty_django.cache.storage.compression import (
    ALGORITHMS,
    MAX_DECOMPRESSED_BYTES,
    Compressor,
    NotDecompressed,
    decompressed,
)
from resty_django.extras import MissingExtra
from tests.integration.cache.backends import OURS, install

LONG = "the same words again and again; " * 1000
NAMES = [
    "zlib",
    pytest.param("zstd", marks=pytest.mark.skipif(not extras.is_installed("zstandard"), reason="no zstandard")),
]


def compressor(name: str | None = "zlib", above: int = 1024, limit: int = MAX_DECOMPRESSED_BYTES) -> Compressor:
    stats = CacheStats()
    return Compressor(name, above, limit, stats)


def record(value: Any, **options: Any) -> bytes:
    return records.encode(value, 1.0, 60.0, False, None, compressor(**options))


@pytest.mark.parametrize("name", NAMES)
async def test_a_long_value_is_smaller_in_l2_and_equal_for_every_reader(make, name):
    process = make(compress=name)
    await process.do("set", "k", LONG)
    raw = process.cache.dictionaries[0].get("c:k")
    assert len(raw) < len(LONG) / 10
    other = make("B")  # compresses nothing itself
    assert await other.do("get", "k") == LONG
    process.cache.lru.flush_all()
    assert await process.do("get", "k") == LONG
    counts = process.cache.counter.now
    assert counts.compressible_bytes > len(LONG)
    assert counts.compression > 0.9


async def test_short_values_and_those_that_do_not_shrink_are_stored_as_they_are(make):
    process = make(compress="zlib", compress_above=100)
    await process.do("set", "short", "x" * 50)
    assert process.cache.counter.now.compressible_bytes == 0
    noise = bytes((number * number * 7919 >> 5) & 255 for number in range(120))
    await process.do("set", "noise", zlib.compress(noise))
    counts = process.cache.counter.now
    assert counts.compressible_bytes == counts.compressed_bytes > 100
    assert counts.compression == 0
    process.cache.lru.flush_all()
    assert await process.do("get_many", ["short", "noise"]) == {"short": "x" * 50, "noise": zlib.compress(noise)}


async def test_compression_can_be_switched_on_and_off(make, shared):
    off, on = make("A"), make("B", compress="zlib")
    await off.do("set", "k", LONG)
    assert await on.do("get", "k") == LONG
    await on.do("set", "k", LONG + "!")
    off.cache.lru.flush_all()
    assert await off.do("get", "k") == LONG + "!"
    assert await off.do("peek", "k") is not None


async def test_tags_and_stale_values_are_compressed_too(make, clock):
    process = make(compress="zlib", tags=("words",), ttl=10, resurrect_ttl=10)
    assert (await process.lookup("k", lambda: LONG))[2] == 3
    process.cache.lru.flush_all()
    assert (await process.lookup("k", lambda: ""))[::2] == (LONG, 2)
    await process.do("invalidate_tags", "words")
    assert (await process.lookup("k", lambda: "new"))[::2] == ("new", 3)


async def test_a_bomb_counts_as_absent_and_is_replaced(make, clock, caplog):
    process = make(compress="zlib", decompress_limit=10_000)
    bomb = record("0" * 1_000_000)
    assert len(bomb) < 10_000
    process.cache.dictionaries[0].set("c:k", bomb)
    with caplog.at_level(logging.WARNING, "resty_django.cache"):
        assert await process.do("get", "k") is None
    assert "counts as absent" in caplog.text
    assert (await process.lookup("k", lambda: "new"))[::2] == ("new", 3)
    process.cache.lru.flush_all()
    assert (await process.lookup("k"))[::2] == ("new", 2)


async def test_a_value_above_the_limit_is_not_compressed_and_remains_readable(make):
    process = make(compress="zlib", decompress_limit=10_000)
    await process.do("set", "k", LONG)
    process.cache.lru.flush_all()
    assert await process.do("get", "k") == LONG


@pytest.mark.parametrize("name", NAMES)
def test_damaged_bytes_are_never_a_value(name):
    raw = record(LONG, name=name)
    assert records.decode(raw).value == LONG
    assert records.decode(raw, limit=len(LONG) + 3).value == LONG
    assert records.decode(raw, limit=len(LONG)) is None  # the value has a head of 3 bytes
    for end in range(len(raw)):
        assert records.decode(raw[:end]) is None
    assert records.decode(raw + b"0") is None
    for position in range(19, len(raw)):
        damaged = bytearray(raw)
        damaged[position] ^= 255
        result = records.decode(bytes(damaged))
        assert result is None or result.value == LONG


def test_an_unknown_algorithm_counts_as_absent():
    raw = bytearray(record(LONG))
    assert raw[18] == ALGORITHMS["zlib"].mark
    raw[18] = 77
    assert records.decode(bytes(raw)) is None
    for data in (b"", b"\x4dabc"):
        with pytest.raises(NotDecompressed, match="unknown"):
            decompressed(data)


def test_records_without_compression_keep_their_bytes():
    assert records.encode(LONG, 1.0, 60.0, False) == record(LONG, name=None)
    assert len(record("short")) == len("short") + 19


def test_a_missing_package_is_named(monkeypatch, shared):
    monkeypatch.setitem(sys.modules, "zstandard", None)
    monkeypatch.setattr(extras, "is_installed", lambda module: module != "zstandard")
    with pytest.raises(MissingExtra, match="zstandard"):
        MLCache("c", shared("values"), ipc=None, compress="zstd")
    assert "zstd" in next(faults("default", {"COMPRESS": "zstd"}))
    with pytest.raises(NotDecompressed, match="not installed"):
        decompressed(b"\x02abc")


BAD_OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"compress": "zlip"}, "compress must be None, 'zlib' or 'zstd', not 'zlip'. Did you mean 'zlib'"),
    ({"compress": ["zlib"]}, "compress must be None"),
    ({"compress_above": -1}, "compress_above must be an integer of at least 0, not -1."),
    ({"compress_above": True}, "compress_above must be"),
    ({"decompress_limit": 0}, "decompress_limit must be an integer of at least 1, not 0."),
]


def test_bad_options_are_refused(shared):
    for option, message in BAD_OPTIONS:
        with pytest.raises(BadOption) as refused:
            MLCache("c", shared("values"), ipc=None, **option)
        assert message in str(refused.value)
        assert next(faults("default", {name.upper(): value for name, value in option.items()}))


# --- Django's cache backend ---


@pytest.fixture(params=["lmdb", pytest.param("redis", marks=pytest.mark.redis)])
def backend(request: Any, settings: Any, tmp_path: Path) -> Callable[..., Any]:
    """Make the default cache of CACHES with these OPTIONS."""

    def make(**options: Any) -> Any:
        url = request.getfixturevalue("valkey_url") if request.param == "redis" else ""
        install(settings, request.param, tmp_path, url, LRU_SIZE=0, **options)
        return caches["default"]

    return make


@pytest.mark.parametrize("name", NAMES)
async def test_the_backend_compresses_plain_values_and_pickles(backend, name):
    for value in (LONG, [LONG], {LONG}, (LONG, 1)):
        cache = backend(COMPRESS=name)
        cache.set("k", value)
        await cache.aset("a", value)
        assert cache.get("k") == await cache.aget("a") == value
        assert cache.touch("k", 100)
        assert cache.get_many(["k", "a"]) == {"k": value, "a": value}
        cache.set("t", value, tags=["words"])
        assert cache.get("t") == value
        cache.invalidate_tags("words")
        assert cache.get("t") is None
        cache = backend()
        assert cache.get("k") == value, "reading does not depend on the option"


def test_a_compressed_pickle_is_verified_before_it_is_decompressed(monkeypatch):
    raw = entries.encode(b"context", {LONG}, 0.0, 60.0, compressor=compressor())
    assert len(raw) < len(LONG) / 10
    assert entries.decode(b"context", raw, 1.0).value == {LONG}
    assert entries.inspect(raw).pickled
    with pytest.raises(Foreign, match="decompressed"):
        entries.decode(b"context", raw, 1.0, limit=100)

    def never(*args: Any) -> bytes:
        raise AssertionError("decompressed before the signature was verified")

    monkeypatch.setattr(entries, "decompressed", never)
    with pytest.raises(Foreign, match="signature"):
        entries.decode(b"other", raw, 1.0)
    for position in range(1, len(raw)):
        damaged = bytearray(raw)
        damaged[position] ^= 1
        with pytest.raises(Foreign):
            entries.decode(b"context", bytes(damaged), 1.0)


def test_the_mark_cannot_be_exchanged():
    raw = entries.encode(b"context", {LONG}, 0.0, 60.0, compressor=compressor())
    with pytest.raises(Foreign, match="signature"):
        entries.decode(b"context", bytes((raw[0], raw[1] ^ records.COMPRESSED)) + raw[2:], 1.0)


def test_renewed_entries_stay_compressed_and_signed():
    for value in (LONG, {LONG}):
        raw = entries.encode(b"context", value, 0.0, 60.0, compressor=compressor())
        renewed = entries.renewed(b"context", raw, 5.0, 90.0)
        assert len(renewed) == len(raw)
        decoded = entries.decode(b"context", renewed, 100.0)
        assert (decoded.value, decoded.ttl) == (value, 90.0)
    raw = entries.encode(b"context", {LONG}, 0.0, 60.0, {"x": 1}, compressor())
    decoded = entries.decode(b"context", entries.renewed(b"context", raw, 5.0, 90.0), 6.0)
    assert (decoded.value, decoded.tags) == ({LONG}, {"x": 1})


def test_a_bomb_in_the_backend_counts_as_absent(backend, caplog):
    cache = backend(COMPRESS="zlib")
    cache.set("k", LONG)
    cache = backend(COMPRESS="zlib", DECOMPRESS_LIMIT=5000)
    with caplog.at_level(logging.WARNING, "resty_django.cache"):
        assert cache.get("k", "absent") == "absent"
    assert "more than 5,000 bytes" in caplog.text


def test_the_backend_refuses_bad_options(settings):
    settings.CACHES = {"default": {"BACKEND": OURS, "LOCATION": "default", "OPTIONS": {"COMPRESS": "zlip"}}}
    with pytest.raises(ImproperlyConfigured, match="Did you mean 'zlib'"):
        caches["default"].get("k")


def test_the_admin_shows_the_share_saved():
    record = None
    for hour, size in enumerate((63, 37)):
        stats = CacheStats(compressible_bytes=100, compressed_bytes=size)
        record = added(record, tuple(stats), hour * 3600)
    info = CacheInfo("c")
    assert CacheFigures(CacheFacts(info, history(record, 3600))).compression == "63 % in the last hour, 50 % in total"
    assert CacheFigures(CacheFacts(info)).compression == ""
