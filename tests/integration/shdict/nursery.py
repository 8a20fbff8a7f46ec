"""A process that forks others, which use a dictionary until they are killed.

Started with the folder of the dictionary, its size, and the file of the tallies. Reads lines from standard input, a
part and a number ("write 0"), and answers each with the id of the process that it forked. What goes wrong in one of
them is written to standard error.
"""

from __future__ import annotations

import contextlib
import gc
import mmap
import os
import random
import signal
import sys
import traceback
from collections.abc import Callable

import django

from resty_django.shdict import Keep, NoMemory, Update, WrongKind
from resty_django.shdict.lmdb import LmdbDict

WRITERS = 4
KEYS = 3000


def contents(key: str, chance: random.Random) -> str:
    """Return a text of some length that consists of its key."""
    return f"{key}/" * int(2 ** chance.uniform(0, 11.5))


def look(dictionary: LmdbDict, key: str) -> None:
    text = dictionary.get(key)
    assert text is None or (set(text.split("/")) == {key, ""} and text.endswith("/")), (key, text[:100])


class Tally:
    """The counts that a writer has begun and has finished; kept when the writer ends."""

    def __init__(self, path: str, number: int) -> None:
        with open(path, "r+b") as file:
            self.numbers = memoryview(mmap.mmap(file.fileno(), 0)).cast("Q")
        self.at = 2 * number

    @property
    def begun(self) -> int:
        return self.numbers[self.at]

    @begun.setter
    def begun(self, value: int) -> None:
        self.numbers[self.at] = value

    @property
    def done(self) -> int:
        return self.numbers[self.at + 1]

    @done.setter
    def done(self, value: int) -> None:
        self.numbers[self.at + 1] = value


def write(dictionary: LmdbDict, tallies: str, number: int) -> None:
    """Count exactly, and keep the dictionary full."""
    chance = random.Random()
    tally = Tally(tallies, number)
    total = dictionary.incr(f"count{number}", 0, init=0)
    assert total in {tally.begun, tally.done}, (total, tally.begun, tally.done)
    tally.begun = tally.done = total
    while True:
        tally.begun += 1
        assert dictionary.incr(f"count{number}", 1) == tally.begun
        tally.done += 1
        for writer in range(WRITERS):
            dictionary.get(f"count{writer}")
        with contextlib.suppress(NoMemory):
            disturb(dictionary, f"k{chance.randrange(KEYS)}", f"list{number}", chance)


def disturb(dictionary: LmdbDict, key: str, own_list: str, chance: random.Random) -> None:
    """Make one write of any kind."""

    def make_if_gone(old: str | None) -> Update | Keep:
        assert old is None or old.startswith(f"{key}/")
        return Keep() if old else Update(contents(key, chance), 5)

    what = chance.randrange(3000)
    if what == 0:
        dictionary.flush_expired(100)
    elif what < 200:
        dictionary.update(key, make_if_gone)
    elif what < 400:
        dictionary.delete(key)
    elif what < 600:
        dictionary.rpush(own_list, key * 9)
    elif what < 700:
        dictionary.lpop(f"list{chance.randrange(WRITERS)}")
    elif what < 900:
        dictionary.expire(key, 0.1)
    else:
        dictionary.set(key, contents(key, chance), chance.choice((0, 0, 0, 0, 0.05, 9)))


def read(dictionary: LmdbDict, tallies: str, number: int) -> None:
    """Assert that each value is complete, and that no counter decreases."""
    chance = random.Random()
    counts = [0] * WRITERS
    while True:
        for _ in range(100):
            look(dictionary, f"k{chance.randrange(KEYS)}")
        for writer in range(WRITERS):
            count = dictionary.get(f"count{writer}", 0)
            assert count >= counts[writer], (count, counts)
            counts[writer] = count
        for key in dictionary.get_keys(chance.choice((1, 50, 0))):
            try:
                dictionary.get_stale(key)
            except WrongKind:
                assert key.startswith("list")
        dictionary.stats()


PARTS: dict[str, Callable[[LmdbDict, str, int], None]] = {"write": write, "read": read}


def main(folder: str, size: str, tallies: str) -> None:
    django.setup()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    dictionary = LmdbDict("nursery", int(size), folder)
    gc.freeze()
    for line in sys.stdin:
        role, number = line.split()
        dictionary.get("here too")  # so that it is open when it forks
        pid = os.fork()
        if not pid:
            try:
                PARTS[role](dictionary, tallies, int(number))
            except BaseException:
                sys.stderr.write(f"{role} {number}: {traceback.format_exc()}\n")
                sys.stderr.flush()
            finally:
                os._exit(1)
        print(pid, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
