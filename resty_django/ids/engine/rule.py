"""Rules in the engine: the data of a rule, and the compiled form that turns numbers into IDs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import NamedTuple, Protocol
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from ..errors import BadName, BadRule, RuleFailed
from .cycle import Reset
from .wall_clock import Moment, moment_of

MAX_ID_LENGTH = 255
MAX_NAME_LENGTH = 64
MAX_NUMBER = 2**62
MAX_SALT = 32
MAX_TAKES = 100
"""The maximum count of numbers that a script may take for one ID."""
RULE_KINDS = ("template", "lua", "python")

# All bytes up to '#', and % & ' < >: id_server refuses them in an application name.
_FORBIDDEN = frozenset([*map(chr, range(36)), *"%&'<>"])


@dataclass(frozen=True, kw_only=True)
class RuleSpec:
    """Everything that determines the IDs of a rule.

    `anchor` determines which numbers belong to which node: node k of n issues the numbers equal to `anchor + k`
    modulo n. It is the `min_counter` with which the rule was created, so that a later edit does not move numbers
    between nodes. `scramble_key` is 16 to 64 bytes. `salt_length` and `fixed_length` are for Lua and Python rules,
    whose format is not known in advance. `python_rules` are the dotted paths that a Python rule may name.
    """

    name: str
    source: str
    max_counter: int
    kind: str = "template"
    min_counter: int = 0
    anchor: int = 0
    reset: Reset = Reset()
    timezone: str = "UTC"
    segment_size: int = 1000
    salt_length: int | None = None
    fixed_length: bool = True
    scramble_key: bytes = bytes(16)
    node: str = ""
    gapless: bool = False
    python_rules: Sequence[str] = ()
    lua_milliseconds: int = 50
    lua_memory: int = 2 * 1024 * 1024

    @cached_property
    def zone(self) -> ZoneInfo:
        """The time zone of the shown time. Raise BadRule if the system does not know it."""
        try:
            return ZoneInfo(self.timezone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise BadRule(f"{self.timezone!r} is not a time zone. Write one like Europe/Berlin.") from None


class Shape(NamedTuple):
    """The format of an ID during one period of shown time.

    `printf` is a %-format of the number, or None if the ID needs more; `render(number, salt)` always works.
    """

    printf: str | None
    render: Callable[[int, str], str]


class RuleScript(Protocol):
    """A Lua or Python rule, which takes its numbers itself."""

    def create_id(self, take: Callable[[], int], now: Moment, salt: str) -> str: ...


class Compiled(Protocol):
    """A compiled rule.

    `scripted`: whether `create` builds its IDs instead of `shape`. `resolution`: the maximum number of seconds of shown
    time for which a shape is valid.
    """

    spec: RuleSpec
    scripted: bool
    resolution: int

    @property
    def needs_salt(self) -> bool: ...

    def check_salt(self, salt: str) -> None: ...

    def shape(self, wall: int, app: str) -> Shape: ...


class ScriptRule:
    """A Lua or Python rule with the checks that a template does not need."""

    scripted = True
    resolution = 1
    needs_salt = True

    def __init__(self, spec: RuleSpec, script: RuleScript) -> None:
        self.spec = spec
        self._script = script
        if spec.salt_length is not None and not 0 <= spec.salt_length <= MAX_SALT:
            raise BadRule(f"The salt_length is {spec.salt_length}. A salt has at most {MAX_SALT} characters.")
        if spec.fixed_length:
            self._check_lengths()

    def check_salt(self, salt: str) -> None:
        from .template import check_salt

        check_salt(salt, self.spec.salt_length)

    def shape(self, wall: int, app: str) -> Shape:
        """Return a shape that renders one number; each time the script asks for a number, it gets this one."""
        return Shape(None, lambda number, salt: self.create(lambda: number, wall, salt))

    def create(self, take: Callable[[], int], wall: int, salt: str) -> str:
        """Return the script's ID. Raise RuleFailed if the script raises, or returns anything other than printable text
        of 1 to 255 characters.

        Exceptions of `take` propagate unchanged.
        """
        taking: list[Exception] = []
        takes = 0

        def taken() -> int:
            nonlocal takes
            takes += 1
            try:
                if takes > MAX_TAKES:
                    raise RuleFailed(f"Rule {self.spec.name} took more than {MAX_TAKES} numbers for one ID.")
                return take()
            except Exception as error:
                taking.append(error)
                raise

        try:
            text = self._script.create_id(taken, moment_of(wall), salt)
        except Exception as error:
            if taking:
                raise taking[0] from None
            if isinstance(error, RuleFailed):
                raise
            raise RuleFailed(f"Rule {self.spec.name} raised {type(error).__name__}: {error}") from error
        if taking:
            raise taking[0]
        if not isinstance(text, str) or not 1 <= len(text) <= MAX_ID_LENGTH or not text.isprintable():
            raise RuleFailed(
                f"Rule {self.spec.name} returned {text!r:.80}. "
                f"An ID is printable text of 1 to {MAX_ID_LENGTH} characters."
            )
        return text

    def _check_lengths(self) -> None:
        salt = "0" * (self.spec.salt_length or 0)
        render = self.shape(0, "").render
        try:
            low, high = (len(render(number, salt)) for number in (self.spec.min_counter, self.spec.max_counter))
        except RuleFailed as error:
            raise BadRule(f"The rule does not return an ID for min_counter or max_counter: {error}") from error
        if low != high:
            raise BadRule(
                f"IDs have {low} characters at min_counter and {high} at max_counter. "
                "Lower max_counter, write the number with more digits, or turn off fixed_length."
            )


def compile_rule(spec: RuleSpec) -> Compiled:
    """Return the compiled rule. Raise BadRule if it is not valid."""
    if spec.kind not in RULE_KINDS:
        raise BadRule(f"The kind is {spec.kind!r}. Choose one of {', '.join(RULE_KINDS)}.")
    if not 0 <= spec.min_counter < spec.max_counter <= MAX_NUMBER:
        raise BadRule("A rule needs 0 <= min_counter < max_counter <= 2**62.")
    _ = spec.zone
    if spec.kind == "template":
        from .template import Template

        try:
            return Template(spec)
        except (ValueError, ArithmeticError) as error:
            raise BadRule(f"The template cannot be used: {error}") from error
    if spec.kind == "lua":
        from .lua.script import LuaRule

        return ScriptRule(
            spec,
            LuaRule(spec.source, name=spec.name, milliseconds=spec.lua_milliseconds, memory=spec.lua_memory),
        )
    return ScriptRule(spec, _python_rule(spec))


def check_name(name: str, what: str = "app_name") -> None:
    """Raise BadName unless `name` is valid as an application or rule name: at most 64 characters, no forbidden ones.

    `what` names the field in the message.
    """
    if len(name) > MAX_NAME_LENGTH:
        raise BadName(f"The {what} has {len(name)} characters. Use at most {MAX_NAME_LENGTH}.")
    if not _FORBIDDEN.isdisjoint(name) or not name.isprintable():
        bad = next(c for c in name if c in _FORBIDDEN or not c.isprintable())
        raise BadName(f"The {what} has the forbidden character {bad!r}.")


def _python_rule(spec: RuleSpec) -> RuleScript:
    path = spec.source.strip()
    if path not in spec.python_rules:
        raise BadRule(f"{path!r} is not listed in RESTY_DJANGO['IDS']['PYTHON_RULES'].")
    module, _, name = path.rpartition(".")
    try:
        factory = getattr(import_module(module), name)
    except Exception as error:
        raise BadRule(f"{path!r} cannot be imported: {type(error).__name__}: {error}") from error
    try:
        script: RuleScript = factory()
    except Exception as error:
        raise BadRule(f"{path!r} cannot be instantiated: {type(error).__name__}: {error}") from error
    if not callable(getattr(script, "create_id", None)):
        raise BadRule(f"{path!r} has no method create_id(take, now, salt).")
    return script
