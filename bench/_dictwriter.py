"""A process that adds to a counter: `FOLDER KEY START TURNS SECONDS`, and prints how often it did, turn by turn.

The kinds take turns: `bare`, a read-modify-write on py-lmdb, and two calls of the shared dictionary, `incr` and
`update`. START is the moment of the first turn, so that two of them write at the same time in the same way.
"""

from __future__ import annotations

import json
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _table import configure

SIZE = 32 * 1024 * 1024
KINDS = ("bare", "incr", "update")
PAUSE = 0.01
"""Seconds between two turns."""
NUMBER = struct.Struct("<q")


def bare_environment(folder: Path) -> tuple[Any, Any]:
    """An LMDB with the flags of our engine and nothing else."""
    import lmdb

    env = lmdb.open(
        str(folder / "bare.mdb"),
        map_size=SIZE,
        subdir=False,
        metasync=False,
        sync=False,
        map_async=True,
        writemap=True,
        readahead=False,
        max_dbs=1,
        max_spare_txns=1,
    )
    return env, env.open_db(b"items")


def shared_dictionary(folder: Path) -> Any:
    from resty_django.shdict.lmdb import LmdbDict

    return LmdbDict("bench", SIZE, str(folder))


def adders(folder: Path, key: str) -> dict[str, Callable[[], Any]]:
    env, db = bare_environment(folder)
    begin, name, pack, unpack = env.begin, key.encode(), NUMBER.pack, NUMBER.unpack

    def bare() -> None:
        with begin(db, None, True) as txn:
            txn.put(name, pack(unpack(txn.get(name, b"\0" * 8))[0] + 1))

    configure()
    from resty_django.shdict import Update

    dictionary = shared_dictionary(folder)
    return {
        "bare": bare,
        "incr": lambda: dictionary.incr(key, 1, 0),
        "update": lambda: dictionary.update(key, lambda value: Update((value or 0) + 1)),
    }


def main() -> None:
    folder, key, start, turns, seconds = sys.argv[1:]
    calls = adders(Path(folder), key)
    for call in calls.values():
        call()
    done: dict[str, list[int]] = {kind: [] for kind in KINDS}
    moment = float(start)
    for _ in range(int(turns)):
        for kind in KINDS:
            call, count, until = calls[kind], 0, moment + float(seconds)
            time.sleep(max(0, moment - time.time()))
            while not count or time.time() < until:
                for _ in range(20):
                    call()
                count += 20
            done[kind].append(count)
            moment = until + PAUSE
    print(json.dumps(done))


if __name__ == "__main__":
    main()
