"""Template rules, such as `O{now:%y%m%d}{counter:06d}`.

A template is plain text with fields in braces ({{ and }} are literal braces):

| field | output |
|---|---|
| `{counter}` `{counter:06d}` | the number; width with zero fill; bases `d`, `x`, `X`, `b32` (Crockford), `b36` |
| `{counter:06d:scramble}` `{counter:scramble}` | the number's image under a keyed bijection of the rule's range |
| `{now:%y%m%d}` | shown time, see `strftime` for the directives |
| `{salt}` `{salt:4}` | the caller's salt: letters and digits, up to 32, or exactly that many |
| `{app}` `{rule}` `{node}` | the application name, the rule's name, the site's NODE |
| `{rand:4}` `{rand:4b32}` | secure random digits, or characters of base 32 |
| `{luhn}` `{damm}` `{mod97}` | check digits over everything before them |

Attributes, indexes and conversions are not supported. A mistake raises BadRule with its position.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field

from resty_django.text.suggestions import did_you_mean

from ..errors import BadRule, BadSalt
from . import strftime
from .checkdigit import CHECKS, WIDTHS
from .rule import MAX_ID_LENGTH, MAX_NAME_LENGTH, MAX_SALT, RuleSpec, Shape
from .scramble import Scrambler
from .wall_clock import moment_of

BASE32 = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
BASE36 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"

MAX_SOURCE_CHARS = 2048
MAX_FIELDS = 64

_SALT = re.compile("[0-9A-Za-z]*")
TEMPLATE_FIELDS = "counter, now, salt, app, rule, node, rand, luhn, damm, mod97"

Write = Callable[[int, str, str], str]
"""A function that returns the text of one field from (number, salt, the text so far)."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A parsed field or piece of text."""

    name: str
    position: int
    text: str = ""
    pieces: list[str] = dataclass_field(default_factory=list)
    width: int = 0
    base: str = "d"
    scramble: bool = False


def in_base(number: int, alphabet: str) -> str:
    """Return a non-negative whole number, written with the digits in `alphabet`."""
    base = len(alphabet)
    digits = ""
    while True:
        number, digit = divmod(number, base)
        digits = alphabet[digit] + digits
        if not number:
            return digits


def check_salt(salt: str, length: int | None) -> None:
    """Raise BadSalt unless `salt` consists of exactly `length` letters and digits (None: up to 32)."""
    if length is not None and len(salt) != length:
        raise BadSalt(f"The salt has {len(salt)} characters. This rule requires exactly {length}.")
    if len(salt) > MAX_SALT or not _SALT.fullmatch(salt):
        raise BadSalt(f"The salt is not valid. Use ASCII letters and digits, at most {MAX_SALT} of them.")


class Template:
    """A compiled template rule (see `rule.Compiled`)."""

    scripted = False

    def __init__(self, spec: RuleSpec) -> None:
        self.spec = spec
        self._parts = _parse(spec.source)
        counters = [field for field in self._parts if field.name == "counter"]
        if len(counters) != 1:
            raise BadRule(
                "A template needs the field {counter} exactly once, for example {counter:06d}.",
                counters[1].position if counters else len(spec.source),
            )
        self._counter = counters[0]
        self._check_length()
        if self._counter.scramble and not self._counter.width:
            self._counter = replace(self._counter, width=len(self._unpadded(spec.max_counter)))
        self._scrambler = (
            Scrambler(spec.min_counter, spec.max_counter, spec.scramble_key) if self._counter.scramble else None
        )
        self._check_counter()
        self._salt_length = self._check_salts()
        pieces = [piece for field in self._parts if field.name == "now" for piece in field.pieces]
        self.resolution = strftime.resolution(pieces)
        missing = strftime.missing_for(spec.reset, pieces)
        if missing:
            raise BadRule(
                f"IDs would repeat after each reset. Show {missing} in {{now:...}}, or never reset.",
                next((field.position for field in self._parts if field.name == "now"), len(spec.source)),
            )

    def shape(self, wall: int, app: str) -> Shape:
        """Return the format of this rule's IDs for `app` at the wall second `wall`.

        It is valid for `resolution` seconds at most.
        """
        writes: list[str | Write] = []
        for field in self._parts:
            write = self._writer(field, wall, app)
            if isinstance(write, str) and writes and isinstance(writes[-1], str):
                writes[-1] += write
            else:
                writes.append(write)
        return Shape(self._printf(writes), self._renderer(writes))

    def check_salt(self, salt: str) -> None:
        """Raise BadSalt if the template shows the salt and this one does not fit.

        If the template does not show the salt, it is not checked.
        """
        if self._salt_length is not None:
            check_salt(salt, self._salt_length or None)

    @property
    def needs_salt(self) -> bool:
        return self._salt_length is not None

    def _writer(self, field: _Part, wall: int, app: str) -> str | Write:
        name = field.name
        if name == "text":
            return field.text
        if name == "now":
            return strftime.show(field.pieces, moment_of(wall), wall)
        if name == "counter":
            return self._write_counter
        if name == "salt":
            return lambda number, salt, text: salt
        if name == "rand":
            alphabet, count = BASE32 if field.base == "b32" else BASE32[:10], field.width
            return lambda number, salt, text: "".join(secrets.choice(alphabet) for _ in range(count))
        if name in CHECKS:
            check = CHECKS[name]
            return lambda number, salt, text: check(text)
        return {"app": app, "rule": self.spec.name, "node": self.spec.node}[name]

    def _write_counter(self, number: int, salt: str = "", text: str = "") -> str:
        field = self._counter
        if self._scrambler is not None:
            number = self._scrambler.scramble(number)
        if field.base == "b32":
            return in_base(number, BASE32).rjust(field.width, "0")
        if field.base == "b36":
            return in_base(number, BASE36).rjust(field.width, "0")
        return f"{number:0{field.width}{field.base}}"

    def _printf(self, writes: list[str | Write]) -> str | None:
        """Return the shape as a %-format of the number, which is several times faster; None if anything else varies."""
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
                f"The max_counter {high} needs {longest} characters, but the template has {width} for it. "
                "Widen {counter} or lower max_counter.",
                self._counter.position,
            )
        if low < 0:
            raise BadRule("The min_counter must be at least 0.")

    def _unpadded(self, number: int) -> str:
        base = self._counter.base
        return in_base(number, {"d": BASE32[:10], "x": BASE32[:16], "X": BASE32[:16], "b32": BASE32}.get(base, BASE36))

    def _check_salts(self) -> int | None:
        """Return the salt's length: None if it is not shown, 0 if any length is valid."""
        salts = [field for field in self._parts if field.name == "salt"]
        if not salts:
            return None
        lengths = {field.width for field in salts}
        if len(lengths) > 1:
            raise BadRule("The template shows {salt} with different lengths. Use one length.", salts[1].position)
        if lengths == {0} and not self._counter.width:
            raise BadRule(
                "A salt of any length next to a counter of any length can make equal IDs from different pairs. "
                "Add a width to one of them, as in {salt:4} or {counter:06d}.",
                salts[0].position,
            )
        if lengths == {0} and len(salts) > 1:
            raise BadRule(
                "The template has {salt} without a length more than once. Use it once or add a length, as in {salt:4}.",
                salts[1].position,
            )
        return lengths.pop()

    def _check_length(self) -> None:
        length = sum(map(self._longest, self._parts))
        if length > MAX_ID_LENGTH:
            raise BadRule(
                f"IDs of this template can have {length} characters. Shorten it to get at most {MAX_ID_LENGTH}."
            )

    def _longest(self, field: _Part) -> int:
        """Return the maximum length of a part's text."""
        match field.name:
            case "text":
                return len(field.text)
            case "now":
                return len(strftime.show(field.pieces, moment_of(0), 0))
            case "counter":
                return max(field.width, len(self._unpadded(self.spec.max_counter)))
            case "salt":
                return field.width or MAX_SALT
            case "app":
                return MAX_NAME_LENGTH
            case "rule" | "node":
                return len(self.spec.name if field.name == "rule" else self.spec.node)
            case _:
                return field.width


def _parse(source: str) -> list[_Part]:
    if len(source) > MAX_SOURCE_CHARS:
        raise BadRule(f"The template has {len(source)} characters. Use at most {MAX_SOURCE_CHARS}.", MAX_SOURCE_CHARS)
    parts: list[_Part] = []
    fields = at = 0
    while at < len(source):
        char = source[at]
        if source[at : at + 2] in ("{{", "}}"):
            parts.append(_Part("text", at, char))
            at += 2
        elif char == "{":
            stop = source.find("}", at)
            if stop < 0:
                raise BadRule("A { has no matching }. Write {{ for a literal brace.", at)
            fields += 1
            if fields > MAX_FIELDS:
                raise BadRule(f"The template has too many fields. Use at most {MAX_FIELDS}.", at)
            parts.append(parse_field(source[at + 1 : stop], at))
            at = stop + 1
        elif char == "}":
            raise BadRule("A } has no matching {. Write }} for a literal brace.", at)
        elif not char.isprintable():
            raise BadRule("The character is not printable. Use printable characters only.", at)
        else:
            parts.append(_Part("text", at, char))
            at += 1
    return parts


def parse_field(inside: str, at: int) -> _Part:
    name, colon, argument = inside.partition(":")
    start = at + 1 + len(name) + 1
    if colon and not argument:
        raise BadRule(f"The colon in {{{name}:}} has nothing after it. Add a format or remove the colon.", start)
    match name:
        case "counter":
            return _counter(argument, at, start)
        case "now":
            if not argument:
                raise BadRule("{now} has no directives. Add them, for example {now:%y%m%d}.", at)
            pieces = strftime.parse(argument, start)
            if not all(piece.isprintable() and "{" not in piece for piece in pieces):
                raise BadRule("{now} contains other characters than directives and printable text. Remove them.", start)
            return _Part("now", at, pieces=pieces)
        case "salt":
            if argument and not (argument.isascii() and argument.isdigit() and 1 <= int(argument) <= MAX_SALT):
                raise BadRule(f"The length in {{salt:N}} is not valid. Use 1 to {MAX_SALT}.", start)
            return _Part("salt", at, width=int(argument or 0))
        case "rand":
            match = re.fullmatch("(?P<count>[1-9][0-9]?)(?P<base>b32)?", argument)
            if not match or int(match["count"]) > 64:
                raise BadRule(
                    "The format of {rand} is not valid. Use {rand:N} or {rand:Nb32}, with N from 1 to 64.",
                    start if colon else at,
                )
            return _Part("rand", at, width=int(match["count"]), base=match["base"] or "d")
        case "app" | "rule" | "node" | "luhn" | "damm" | "mod97":
            if colon:
                raise BadRule(f"{{{name}}} does not accept a format. Remove the colon and the text after it.", start)
            return _Part(name, at, width=WIDTHS.get(name, 0))
        case _:
            hint = did_you_mean(name, TEMPLATE_FIELDS.split(", "))
            raise BadRule(f"{{{name}}} is not a field. {hint}{' ' if hint else ''}Use {TEMPLATE_FIELDS}.", at)


def _counter(argument: str, at: int, start: int) -> _Part:
    alone = argument in ("", "scramble")
    spec = "" if alone else argument.removesuffix(":scramble")
    match = re.fullmatch("(?P<width>0[1-9][0-9]?)?(?P<base>d|x|X|b32|b36)?", spec)
    if not match or not (spec or alone):
        raise BadRule(
            f"{spec!r} is not a number format. Write a width with a leading zero and a base, "
            "for example 06d, 08x, 07b32 or 07b36.",
            start,
        )
    width = int(match["width"] or 0)
    return _Part("counter", at, width=width, base=match["base"] or "d", scramble=argument.endswith("scramble"))
