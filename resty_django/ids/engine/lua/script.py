"""Lua rules: id_server scripts, run unmodified in a sandbox.

A script is Lua 5.1 with four global functions: `min_counter()`, `max_counter()` and `reset_seconds()` return whole
numbers, `create_id(counter, now, salt)` returns the ID. It may call `counter:generate_counter()`, `now:year()`
(four digits), `now:month()`, `now:day()`, `now:hour()`, `now:minute()`, `now:second()`, and the libraries string,
table, math and most of the base library. The libraries os, io, debug, package and coroutine and all functions that load
code are missing.

sandbox.lua implements the sandbox and describes its restrictions. Each LuaRule has its own Lua state. Time limits are
in CPU time of the process, so that a rule does not fail on a busy machine; waiting for a number does not count. The
cost of a single instruction grows with the memory allowed: a malicious script exceeded its time by 6 ms at 2 MiB and by
50 ms at 16 MiB.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from threading import RLock
from typing import Any, NoReturn

from ...errors import BadRule, BadSalt, RuleFailed
from ..rule import MAX_ID_LENGTH, MAX_TAKES
from ..wall_clock import Moment
from .bytecode import MAX_NAMED, vararg_line

MAX_SCRIPT_BYTES = 32_768
"""This also limits the compile time: the worst case takes 35 ms."""
MAX_SALT_BYTES = 4096
MAX_EXACT = 10**14 - 1
"""The greatest number that Lua 5.1 converts to text with all its digits; greater ones would be rounded."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_LINE = re.compile(r"^script:(\d+): ")


class LuaRule:
    """One script in one sandbox. Thread-safe; calls run one after the other.

    `milliseconds` and `memory` (bytes) limit the load and each call. Raise BadRule if the script does not compile or
    lacks a function, if its bounds are not whole numbers with 0 <= min < max <= MAX_EXACT, or if lupa is not installed.

    The script's globals persist between calls, in this object only. After running out of memory, the Lua state is
    discarded and the next call reloads the script.
    """

    def __init__(
        self, source: str, *, name: str = "rule", milliseconds: int = 50, memory: int = 2 * 1024 * 1024
    ) -> None:
        if milliseconds < 1 or memory < 65_536:
            raise ValueError("A Lua rule needs milliseconds >= 1 and memory >= 65536 bytes.")
        self._name = name
        self._milliseconds = milliseconds
        self._memory = memory
        self._source = source
        self._lock = RLock()
        self.number_source = _NumberSource(name)
        self._run: Callable[..., Any] | None = None  # the Lua state cannot be trusted
        _, bound, has = self._build()
        self.min_counter = self._bound(bound, "min_counter")
        self.max_counter = self._bound(bound, "max_counter")
        self.reset_seconds = max(0, self._bound(bound, "reset_seconds"))
        if not 0 <= self.min_counter < self.max_counter <= MAX_EXACT:
            raise BadRule(
                f"The script's min_counter() is {self.min_counter} and max_counter() is {self.max_counter}. "
                f"A Lua rule needs 0 <= min < max <= {MAX_EXACT}."
            )
        if not has(b"create_id"):
            raise BadRule("The function create_id() is missing. Write function create_id(counter, now, salt).")

    def create_id(self, take: Callable[[], int], now: Moment, salt: str) -> str:
        """Return the script's text for one ID: 1 to 255 characters without control characters.

        `take` is called each time the script asks for a number. Its exceptions propagate unchanged, whatever the
        script does with them. Raise RuleFailed if the script raises an error, exceeds a limit or returns no valid text.
        """
        pushed = _pushable(salt)
        numbers = self.number_source
        with self._lock:
            if numbers.take is not None:
                raise RuleFailed(f"Lua rule {self._name} was called while it was taking a number.")
            run = self._run or self._built_again()
            numbers.take = take
            try:
                result = run(now.year, now.month, now.day, now.hour, now.minute, now.second, pushed)
                if type(result) is tuple and result[1] == self._too_big.encode():
                    self._run = None
            except Exception as error:
                self._run = None
                result = (False, self._reason(error).encode())
            finally:
                failure, numbers.take, numbers.taken, numbers.failure = numbers.failure, None, 0, None
        if failure is not None:
            raise failure
        if type(result) is not bytes:
            self._fail(_LINE.sub(r"line \1: ", _readable(result[1])))
        return self._checked(result)

    def _checked(self, result: bytes) -> str:
        try:
            text = result.decode()
        except UnicodeDecodeError:
            self._fail("Its create_id returned bytes that are not UTF-8 text.")
        if len(text) > MAX_ID_LENGTH:
            self._fail(f"Its create_id returned a text of more than {MAX_ID_LENGTH} characters.")
        if not text.isprintable() and _CONTROL.search(text):
            self._fail("Its create_id returned a text with a control character.")
        return text

    def _build(self) -> tuple[Callable[..., Any], Callable[[bytes], Any], Callable[[bytes], Any]]:
        """Load the script in a new Lua state and return the functions run, bound and has of sandbox.lua."""
        runtime = _lua51().LuaRuntime(
            encoding=None,
            source_encoding="utf-8",
            register_eval=False,
            register_builtins=False,
            attribute_filter=_no_attribute,
            max_memory=0,
        )
        compile_, start, bound, has, run = runtime.execute(
            read_lua("sandbox.lua"),
            self.number_source.next,
            read_lua("patterns.lua"),
            self._milliseconds / 1000,
            self._milliseconds * 10_000,  # the maximum number of instructions: 10 000 per millisecond
            self._memory / 1024,
            int.from_bytes(os.urandom(6)),
            self._too_long.encode(),
            self._too_big.encode(),
            name=b"=sandbox",
        )
        # lupa pushes arguments outside a protected call, where a failed allocation ends the process. So memory for them
        # must be available however much the script uses.
        headroom = 192 * 1024
        runtime.set_max_memory(runtime.get_memory_used(total=True) + self._memory + headroom, total=True)
        try:
            dump = compile_(_source(self._source))
            if type(dump) is not bytes:
                self._refuse(dump[1])
            line = vararg_line(dump)
            if line is not None:
                raise BadRule(
                    f"Line {line}: a function with ... may have at most {MAX_NAMED} named parameters.",
                    self._position(line),
                )
            started = start()
            if type(started) is tuple and started[0] is False:
                self._refuse(started[1])
        except BadRule:
            raise
        except Exception as error:
            raise BadRule(f"The script {self._reason(error)}") from None
        self._run = run
        return run, bound, has

    def _bound(self, bound: Callable[[bytes], Any], name: str) -> int:
        try:
            ok, value = bound(name.encode())
        except Exception as error:
            raise BadRule(f"{name}() {self._reason(error)}") from None
        if not ok:
            self._refuse(value, f"{name}(): ")
        if value != value or value in (float("inf"), float("-inf")) or value != int(value):
            raise BadRule(f"{name}() returned {value}, which is not a whole number.")
        if abs(value) > MAX_EXACT:
            raise BadRule(f"{name}() returned {value:.0f}. Lua keeps 14 digits, so return at most {MAX_EXACT}.")
        return int(value)

    def _built_again(self) -> Callable[..., Any]:
        try:
            return self._build()[0]
        except BadRule as error:
            self._fail(f"It could not be loaded again. {error}")

    @property
    def _too_long(self) -> str:
        return f"took longer than {self._milliseconds} ms"

    @property
    def _too_big(self) -> str:
        size = self._memory / 1024
        return "needed more than " + (f"{size / 1024:g} MiB" if size >= 1024 else f"{size:g} KiB")

    def _reason(self, error: Exception) -> str:
        """Return the meaning of a lupa exception: limits can also be exceeded outside the script's own code."""
        if isinstance(error, MemoryError):
            return self._too_big
        text = str(error)
        return next((reason for reason in (self._too_long, self._too_big) if reason in text), text)

    def _fail(self, reason: str) -> NoReturn:
        raise RuleFailed(f"Lua rule {self._name}: {reason}")

    def _refuse(self, problem: bytes, before: str = "") -> NoReturn:
        text = _readable(problem)
        match = _LINE.match(text)
        if match:
            line = int(match[1])
            raise BadRule(f"{before}Line {line}: {text[match.end() :]}.", self._position(line))
        if text in (self._too_long, self._too_big):
            text = f"the script {text}"
        raise BadRule(before + text)

    def _position(self, line: int) -> int | None:
        """Return the index at which a line of the source begins."""
        lines = self._source.split("\n")
        return sum(len(text) + 1 for text in lines[: line - 1]) if 1 <= line <= len(lines) else None


class _NumberSource:
    """Passes numbers from `take` to Lua. Never raises, because an exception would be visible to the script as a value.

    After a failure it returns no more numbers; create_id raises `failure`.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.take: Callable[[], int] | None = None
        self.taken = 0
        self.failure: BaseException | None = None

    def next(self) -> int | None:
        try:
            if self.take is None or self.failure is not None:
                return None
            self.taken += 1
            if self.taken > MAX_TAKES:
                raise RuleFailed(f"Lua rule {self.name} asked for more than {MAX_TAKES} numbers for one ID.")
            number = self.take()
            if abs(number) > MAX_EXACT:
                raise RuleFailed(
                    f"Lua rule {self.name} cannot use the number {number}: Lua keeps 14 digits. Lower max_counter."
                )
            return int(number)
        except BaseException as error:
            self.failure = error
            return None


def _lua51() -> Any:
    try:
        return import_module("lupa.lua51")
    except ImportError:
        from resty_django import extras

        raise BadRule(str(extras.MissingExtra("Lua rules need", "lupa"))) from None


@cache
def read_lua(name: str) -> bytes:
    return Path(__file__).with_name(name).read_bytes()


def _no_attribute(*_: object) -> NoReturn:
    raise AttributeError("Python objects have no attributes in Lua")


def _source(source: str) -> bytes:
    """Return the script's bytes; like Lua with a file, skip a first line that begins with #."""
    text = source.removeprefix("\ufeff")
    if text.startswith("#"):
        text = "--" + text
    try:
        data = text.encode()
    except UnicodeEncodeError:
        raise BadRule("The script contains characters that are not valid Unicode.") from None
    if len(data) > MAX_SCRIPT_BYTES:
        raise BadRule(f"The script has {len(data)} bytes. Use at most {MAX_SCRIPT_BYTES}.")
    return data


def _pushable(salt: str) -> bytes:
    try:
        data = salt.encode()
    except UnicodeEncodeError:
        raise BadSalt("The salt contains characters that are not valid Unicode.") from None
    if len(data) > MAX_SALT_BYTES:
        raise BadSalt(f"The salt has {len(data)} bytes. Use at most {MAX_SALT_BYTES}.")
    return data


def _readable(problem: bytes) -> str:
    """Return a Lua error message for people, without positions inside the sandbox's own code."""
    return re.sub(r"^(sandbox|patterns):\d+: ", "", _CONTROL.sub(" ", problem.decode(errors="replace"))[:300])
