"""Template rules: `O{now:%y%m%d}{counter:06d}` and its like.

A template is plain text with fields in braces ({{ and }} stand for the braces themselves):

| field | what it writes |
|---|---|
| `{counter}` `{counter:06d}` | the number; width with zero fill; bases `d`, `x`, `X`, `b32` (Crockford), `b36` |
| `{counter:06d:scramble}` `{counter:scramble}` | the number's image under a keyed bijection of the rule's range |
| `{now:%y%m%d}` | shown time, see `shown` for the directives |
| `{salt}` `{salt:4}` | the caller's salt: letters and digits, of any length up to 32, or of exactly that length |
| `{app}` `{rule}` `{node}` | the application name, the rule's name, the site's NODE |
| `{rand:4}` `{rand:4b32}` | secure random digits, or characters of base 32 |
| `{luhn}` `{damm}` `{mod97}` | check digits over everything before them |

Nothing else is accepted: no attribute, no index, no conversion. A mistake is a BadRule with its position.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from ..errors import BadRule, BadSalt
from . import shown
from .checkdigit import CHECKS, WIDTHS
from .moment import moment_of
from .rule import MAX_ID_LENGTH, MAX_SALT, RuleSpec, Shape
from .scramble import Scrambler

BASE32 = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
BASE36 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"

_COUNTER = re.compile(r"(?:(?P<width>0[1-9][0-9]?))?(?P<base>d|x|X|b32|b36)?")
_RAND = re.compile(r"(?P<count>[1-9][0-9]?)(?P<base>b32)?")
_SALT = re.compile(r"[0-9A-Za-z]*")
_FIELDS = "counter, now, salt, app, rule, node, rand, luhn, damm, mod97"

Write = Callable[[int, str, str], str]
"""(number, salt, the text so far) to the text of one field."""


@dataclass(frozen=True, slots=True)
class _Part:
    """One field or stretch of text, parsed."""

    name: str
    position: int
    text: str = ""
    pieces: list[str] = field(default_factory=list)
    width: int = 0
    base: str = "d"
    scramble: bool = False


def in_base(number: int, alphabet: str) -> str:
    """A whole number of at least 0, written with `alphabet`."""
    base = len(alphabet)
    digits = ""
    while True:
        number, rest = divmod(number, base)
        digits = alphabet[rest] + digits
        if not number:
            return digits


def check_salt(salt: str, length: int | None) -> None:
    """BadSalt unless `salt` is letters and digits of exactly `length` characters (None: up to 32)."""
    if length is not None and len(salt) != length:
        raise BadSalt(f"salt has {len(salt)} characters, this rule takes exactly {length}")
    if len(salt) > MAX_SALT or not _SALT.fullmatch(salt):
        raise BadSalt(f"salt takes ASCII letters and digits, at most {MAX_SALT} of them")


class Template:
    """A compiled template rule (see `rule.Compiled`)."""

    scripted = False

    def __init__(self, spec: RuleSpec) -> None:
        self.spec = spec
        self._parts = _parse(spec.source)
        counters = [part for part in self._parts if part.name == "counter"]
        if len(counters) != 1:
            raise BadRule(
                "a template needs the field {counter} exactly once, for example {counter:06d}",
                counters[1].position if counters else len(spec.source),
            )
        self._counter = counters[0]
        if self._counter.scramble and not self._counter.width:
            self._counter = replace(self._counter, width=len(self._unpadded(spec.max_counter)))
        self._scrambler = (
            Scrambler(spec.min_counter, spec.max_counter, spec.scramble_key) if self._counter.scramble else None
        )
        self._check_counter()
        self._salt_length = self._check_salts()
        pieces = [piece for part in self._parts if part.name == "now" for piece in part.pieces]
        self.resolution = shown.resolution(pieces)
        missing = shown.missing_for(spec.reset, pieces)
        if missing:
            raise BadRule(
                f"IDs would come again after each reset: show {missing} in {{now:...}}, or never reset",
                next((part.position for part in self._parts if part.name == "now"), len(spec.source)),
            )
        self._check_length()

    def shape(self, wall: int, app: str) -> Shape:
        """How an ID of this rule looks at the wall second `wall` for `app`; good for `resolution` seconds at most."""
        writes: list[str | Write] = []
        for part in self._parts:
            write = self._writer(part, wall, app)
            if isinstance(write, str) and writes and isinstance(writes[-1], str):
                writes[-1] += write
            else:
                writes.append(write)
        return Shape(self._printf(writes), self._renderer(writes))

    def check_salt(self, salt: str) -> None:
        """BadSalt when the template shows the salt and cannot take this one; a salt not shown is not looked at."""
        if self._salt_length is not None:
            check_salt(salt, self._salt_length or None)

    @property
    def needs_salt(self) -> bool:
        return self._salt_length is not None

    def _writer(self, part: _Part, wall: int, app: str) -> str | Write:
        name = part.name
        if name == "text":
            return part.text
        if name == "now":
            return shown.show(part.pieces, moment_of(wall), wall)
        if name == "counter":
            return self._write_counter
        if name == "salt":
            return lambda number, salt, text: salt
        if name == "rand":
            alphabet, count = BASE32 if part.base == "b32" else BASE32[:10], part.width
            return lambda number, salt, text: "".join(secrets.choice(alphabet) for _ in range(count))
        if name in CHECKS:
            check = CHECKS[name]
            return lambda number, salt, text: check(text)
        return {"app": app, "rule": self.spec.name, "node": self.spec.node}[name]

    def _write_counter(self, number: int, salt: str = "", text: str = "") -> str:
        part = self._counter
        if self._scrambler is not None:
            number = self._scrambler.scramble(number)
        if part.base == "b32":
            return in_base(number, BASE32).rjust(part.width, "0")
        if part.base == "b36":
            return in_base(number, BASE36).rjust(part.width, "0")
        return f"{number:0{part.width}{part.base}}"

    def _printf(self, writes: list[str | Write]) -> str | None:
        """The whole shape as a %-format of the number, where nothing else varies: it is several times faster."""
        plain = self._scrambler is None and self._counter.base in ("d", "x", "X")
        if not plain or any(not isinstance(w, str) and w != self._write_counter for w in writes):
            return None
        width = f"0{self._counter.width}" if self._counter.width else ""
        return "".join(w.replace("%", "%%") if isinstance(w, str) else f"%{width}{self._counter.base}" for w in writes)

    @staticmethod
    def _renderer(writes: list[str | Write]) -> Callable[[int, str], str]:
        def render(number: int, salt: str) -> str:
            text = ""
            for write in writes:
                text += write if isinstance(write, str) else write(number, salt, text)
            return text

        return render

    def _check_counter(self) -> None:
        low, high, width = self.spec.min_counter, self.spec.max_counter, self._counter.width
        longest = len(self._unpadded(high))
        if width and longest > width:
            raise BadRule(
                f"max_counter {high} needs {longest} characters, the template gives it {width}: "
                "widen {counter} or lower max_counter",
                self._counter.position,
            )
        if low < 0:
            raise BadRule("min_counter is at least 0")

    def _unpadded(self, number: int) -> str:
        base = self._counter.base
        return in_base(number, {"d": BASE32[:10], "x": BASE32[:16], "X": BASE32[:16], "b32": BASE32}.get(base, BASE36))

    def _check_salts(self) -> int | None:
        """The salt's length: None when it is not shown, 0 when any length will do."""
        salts = [part for part in self._parts if part.name == "salt"]
        if not salts:
            return None
        lengths = {part.width for part in salts}
        if len(lengths) > 1:
            raise BadRule("{salt} has one length in a template", salts[1].position)
        if lengths == {0} and not self._counter.width:
            raise BadRule(
                "a salt of any length beside a counter of any length makes equal IDs of different pairs: "
                "give one of them a width, as in {salt:4} or {counter:06d}",
                salts[0].position,
            )
        if lengths == {0} and len(salts) > 1:
            raise BadRule("{salt} of any length can stand once", salts[1].position)
        return lengths.pop()

    def _check_length(self) -> None:
        app = "a" * 64 if any(part.name == "app" for part in self._parts) else ""
        salt = "0" * (MAX_SALT if self._salt_length == 0 else self._salt_length or 0)
        length = len(self.shape(0, app).render(self.spec.max_counter, salt))
        if length > MAX_ID_LENGTH:
            raise BadRule(f"IDs of this template can have {length} characters, more than {MAX_ID_LENGTH}")


def _parse(source: str) -> list[_Part]:
    parts: list[_Part] = []
    at = 0
    while at < len(source):
        char = source[at]
        if source[at : at + 2] in ("{{", "}}"):
            parts.append(_Part("text", at, char))
            at += 2
        elif char == "{":
            stop = source.find("}", at)
            if stop < 0:
                raise BadRule("a { without its }; write {{ for the brace itself", at)
            parts.append(_field(source[at + 1 : stop], at))
            at = stop + 1
        elif char == "}":
            raise BadRule("a } without its {; write }} for the brace itself", at)
        elif not char.isprintable():
            raise BadRule("a template takes printable characters only", at)
        else:
            parts.append(_Part("text", at, char))
            at += 1
    return parts


def _field(inside: str, at: int) -> _Part:
    name, colon, argument = inside.partition(":")
    start = at + 1 + len(name) + 1
    if colon and not argument:
        raise BadRule(f"nothing after the colon of {{{name}:}}", start)
    match name:
        case "counter":
            return _counter(argument, at, start)
        case "now":
            if not argument:
                raise BadRule("{now} needs directives, for example {now:%y%m%d}", at)
            pieces = shown.parse(argument, start)
            if not all(piece.isprintable() and "{" not in piece for piece in pieces):
                raise BadRule("{now} takes directives and printable text", start)
            return _Part("now", at, pieces=pieces)
        case "salt":
            if argument and not (argument.isascii() and argument.isdigit() and 1 <= int(argument) <= MAX_SALT):
                raise BadRule(f"{{salt:N}} takes a length of 1 to {MAX_SALT}", start)
            return _Part("salt", at, width=int(argument or 0))
        case "rand":
            found = _RAND.fullmatch(argument)
            if not found or int(found["count"]) > 64:
                raise BadRule(
                    "{rand:N} takes 1 to 64 digits, {rand:Nb32} as many characters of base 32", start if colon else at
                )
            return _Part("rand", at, width=int(found["count"]), base=found["base"] or "d")
        case "app" | "rule" | "node" | "luhn" | "damm" | "mod97":
            if colon:
                raise BadRule(f"{{{name}}} takes nothing after a colon", start)
            return _Part(name, at, width=WIDTHS.get(name, 0))
        case _:
            raise BadRule(f"{{{name}}} is not a field; a template knows {_FIELDS}", at)


def _counter(argument: str, at: int, start: int) -> _Part:
    alone = argument in ("", "scramble")
    spec = "" if alone else argument.removesuffix(":scramble")
    found = _COUNTER.fullmatch(spec)
    if not found or not (spec or alone):
        raise BadRule(
            f"{spec!r} is no form of a number: write a width with a zero before it and a base, "
            "for example 06d, 08x, 07b32 or 07b36",
            start,
        )
    width = int(found["width"] or 0)
    return _Part("counter", at, width=width, base=found["base"] or "d", scramble=argument.endswith("scramble"))
