"""Making txids against other ids, side by side in one run.

    python bench/txid.py [--quick] [--seconds S] [--rounds N] [--json FILE]

`txid()` against `str(uuid.uuid4())`, `str(uuid_utils.uuid7())` (Rust), `str(ulid.ULID())` of python-ulid, and against a
bare `time.time_ns()`; and the other functions against `txid()`.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from time import time_ns

import uuid_utils
from _table import Options, Row, compare, main, measure, timed
from ulid import ULID

from resty_django.txid import MonotonicTxid, parse, txid, txid_min


def txids(options: Options) -> Iterator[Row]:
    subjects = {
        "txid()": timed("txid()", txid=txid),
        "str(uuid.uuid4())": timed("str(uuid4())", uuid4=uuid.uuid4),
        "str(uuid_utils.uuid7())": timed("str(uuid7())", uuid7=uuid_utils.uuid7),
        "str(ulid.ULID())": timed("str(ULID())", ULID=ULID),
        "time.time_ns()": timed("time_ns()", time_ns=time_ns),
        "MonotonicTxid()": timed("monotonic()", monotonic=MonotonicTxid()),
        "txid(timestamp_ms)": timed("txid(1700000000123)", txid=txid),
        "txid_min(timestamp_ms)": timed("txid_min(1700000000123)", txid_min=txid_min),
        "parse(txid)": timed("parse(known)", parse=parse, known=txid()),
    }
    others = ("MonotonicTxid()", "txid(timestamp_ms)", "txid_min(timestamp_ms)", "parse(txid)")
    comparisons = (
        ("str(uuid.uuid4())", "txid()", ">= 5"),
        ("txid()", "str(uuid_utils.uuid7())", "<= 1.6"),
        ("str(ulid.ULID())", "txid()"),
        ("txid()", "time.time_ns()"),
        *((name, "txid()") for name in others),
    )
    yield from compare(measure(subjects, options), comparisons)


if __name__ == "__main__":
    main({"txids": txids})
