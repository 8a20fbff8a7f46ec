"""Compression of values in L2.

A compressed value consists of a mark, which names the algorithm, and the algorithm's own format. So reading does not
depend on the options of the reader, except for the bound on the size of a decompressed value. Pure.
"""

from __future__ import annotations

import importlib
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple, Protocol

from resty_django.text.suggestions import did_you_mean

COMPRESS_ABOVE_BYTES: Final = 1024
"""Default of `compress_above`."""
MAX_DECOMPRESSED_BYTES: Final = 64 * 1024 * 1024
"""Default of `decompress_limit`."""


class NotDecompressed(ValueError):
    """Bytes that cannot be decompressed; the message is the reason."""


class CompressionAlgorithm(NamedTuple):
    """An algorithm. `mark`: the first byte of its values. `decompress` returns at most `limit` bytes, or raises
    `NotDecompressed`. `modules`: the optional packages that it needs."""

    mark: int
    compress: Callable[[bytes], bytes]
    decompress: Callable[[memoryview, int], bytes]
    modules: tuple[str, ...] = ()


def _zlib_decompress(data: memoryview, limit: int) -> bytes:
    stream = zlib.decompressobj()
    try:
        body = stream.decompress(data, limit + 1)
    except zlib.error as error:
        raise NotDecompressed(str(error)) from None
    if len(body) > limit:
        raise NotDecompressed(f"it has more than {limit:,} bytes")
    if not stream.eof or stream.unused_data:
        raise NotDecompressed("it is incomplete, or something follows it")
    return body


def _zstd_compress(body: bytes) -> bytes:
    compressor: Any = importlib.import_module("zstandard").ZstdCompressor(write_checksum=True)
    smaller: bytes = compressor.compress(body)
    return smaller


def _zstd_decompress(data: memoryview, limit: int) -> bytes:
    try:
        zstandard: Any = importlib.import_module("zstandard")
    except ImportError:
        raise NotDecompressed("the package zstandard is not installed") from None
    try:
        size = zstandard.frame_content_size(data)
        if not 0 <= size <= limit:  # -1: unknown
            raise NotDecompressed(f"it does not state a size of at most {limit:,} bytes")
        body: bytes = zstandard.ZstdDecompressor().decompress(data, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise NotDecompressed(str(error)) from None
    if len(body) != size:
        raise NotDecompressed("it does not have the stated size")
    return body


ALGORITHMS: Final[Mapping[str, CompressionAlgorithm]] = {
    "zlib": CompressionAlgorithm(1, zlib.compress, _zlib_decompress),
    "zstd": CompressionAlgorithm(2, _zstd_compress, _zstd_decompress, ("zstandard",)),
}
"""The algorithms by the values of `compress`."""


class CompressionCounts(Protocol):
    """The counts that a compressor adds to: the size of the values before and after compression."""

    compressible_bytes: int
    compressed_bytes: int


class Compressor:
    """Compresses the values of one cache. `name`: the algorithm, whose packages are installed (None: do not compress).
    `above`: values of at most this number of bytes are not compressed. `limit`: the largest value that readers
    decompress. `counts`: of the process.
    """

    __slots__ = ("_algorithm", "_counts", "above", "limit")

    def __init__(self, name: str | None, above: int, limit: int, counts: CompressionCounts) -> None:
        self._algorithm = None if name is None else ALGORITHMS[name]
        self.above = limit if name is None else above
        """Values of at most this number of bytes need not be passed to `compressed`."""
        self._counts = counts
        self.limit = limit

    def compressed(self, body: bytes) -> bytes | None:
        """Return the mark and the compressed value; None if the value is to be stored as it is."""
        algorithm, size = self._algorithm, len(body)
        if algorithm is None or not self.above < size <= self.limit:
            return None
        smaller = bytes((algorithm.mark,)) + algorithm.compress(body)
        gains = len(smaller) < size
        counts = self._counts
        counts.compressible_bytes += size
        counts.compressed_bytes += len(smaller) if gains else size
        return smaller if gains else None


def decompressed(data: bytes, limit: int = MAX_DECOMPRESSED_BYTES) -> bytes:
    """Return a value that `Compressor.compressed` returned. Raise `NotDecompressed`, also for more than `limit` bytes,
    which are never in memory."""
    for algorithm in ALGORITHMS.values():
        if data and data[0] == algorithm.mark:
            return algorithm.decompress(memoryview(data)[1:], limit)
    raise NotDecompressed("its compression is unknown")


def option_faults(options: Mapping[str, object]) -> Iterator[str]:
    """Yield the faults of the options `compress`, `compress_above` and `decompress_limit`, in either case."""
    for name, value in options.items():
        kind = name.lower()
        if kind == "compress" and not (value is None or (isinstance(value, str) and value in ALGORITHMS)):
            hint = did_you_mean(value, ALGORITHMS) if isinstance(value, str) else ""
            yield f"{name} must be None, {' or '.join(map(repr, ALGORITHMS))}, not {value!r}.{' ' * bool(hint)}{hint}"
        elif kind == "compress_above" and (type(value) is not int or value < 0):
            yield f"{name} must be an integer of at least 0, not {value!r}."
        elif kind == "decompress_limit" and (type(value) is not int or value < 1):
            yield f"{name} must be an integer of at least 1, not {value!r}."
