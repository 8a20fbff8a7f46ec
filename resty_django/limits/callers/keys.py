"""Rate-limit keys: how requests are grouped, by address, user, header, session, path, view, argument or several.

    "ip"    "user"    "user_or_ip"    "header:X-Api-Key"    "session"    "path"    "view"    "arg:pk"    "all"
    "ip+path"          both together
    "user|session|ip"  the first that the request has
    callable, or the dotted path to one (also as a part, in a tuple: ("ip", tenant_of))

A missing part (a header, a logged-in user, an address) counts as "-": all requests without it share one key, so that
clients cannot evade a limit by omitting it. A callable receives the request and returns a string, or None if the limit
does not apply. Long values, and values with special characters, are replaced by a hash.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeVar

from django.http import HttpRequest
from django.utils.module_loading import import_string

from resty_django.callables import plain_function, plain_value
from resty_django.text.suggestions import did_you_mean
from resty_django.users import load_user, user_of

from . import request_settings

T = TypeVar("T")

RequestFunction: TypeAlias = Callable[[Any], T]
"""A function of a request: of an `HttpRequest`, or of the request that a framework such as DRF or Ninja passes on."""
Part: TypeAlias = Callable[[HttpRequest, Mapping[str, object]], str | None]
KeySpec: TypeAlias = "RequestKey | str | RequestFunction[object] | Sequence[str | RequestFunction[object]]"

MISSING: Final = "-"


def plain(value: object) -> str:
    """Return a value as part of a key: unchanged if short and plain, "-" if empty, else "~" and a hash."""
    text = value if type(value) is str else str(value)
    if not text:
        return MISSING
    if len(text) <= 64 and text.isprintable() and text != MISSING and text[0] != "~" and "|" not in text:
        return text
    return hashed(text)


def hashed(text: str) -> str:
    """Return "~" and a hash of a text."""
    return "~" + hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def digest(value: object) -> str:
    """Return 8 hexadecimal digits for the representation of a value, as a part of the name of a limit or its state."""
    return hashlib.blake2b(repr(value).encode(), digest_size=4).hexdigest()


class RequestKey:
    """A function of a request that returns its key.

    `text`: the definition. `label`: the definition as clients see it. `needs_user`, `needs_session`: whether the user
    or session must be loaded first. `roles`: what the value of each part is: the name of its definition, such as
    "user", "ip" or "header"; "choice" if it begins with that name; "" for a callable.
    """

    __slots__ = ("_parts", "label", "needs_session", "needs_user", "of", "roles", "text")

    def __init__(
        self, text: str, label: str, parts: Sequence[Part], names: frozenset[str], roles: tuple[str, ...] = ()
    ) -> None:
        self.text = text
        self.roles = roles
        self.label = label
        self._parts = parts
        self.needs_user = bool(names & {"user", "user_or_ip"})
        self.needs_session = "session" in names
        self.of: Part = parts[0] if len(parts) == 1 else self._all
        """Return the key for a request and the arguments of its view, or None if the limit does not apply."""

    def __repr__(self) -> str:
        return f"<RequestKey {self.text}>"

    def __call__(self, request: HttpRequest, kwargs: Mapping[str, object] | None = None) -> str | None:
        """Return the key like `of`; `kwargs` default to the arguments in the URL."""
        if kwargs is None:
            match = getattr(request, "resolver_match", None)
            kwargs = match.kwargs if match is not None else {}
        return self.of(request, kwargs)

    def _all(self, request: HttpRequest, kwargs: Mapping[str, object]) -> str | None:
        values = []
        for part_of in self._parts:
            value = part_of(request, kwargs)
            if value is None:
                return None
            values.append(value)
        return "|".join(values)


def parse(text: str) -> RequestKey:
    """Parse a key as entered by operators, without dotted paths. Raise `ValueError`."""
    return make(text, dotted=False)


def make(spec: KeySpec, dotted: bool = True) -> RequestKey:
    """Return the key for a string, a callable, a dotted path (if `dotted`) or a sequence of these.

    Raise `ValueError` or `TypeError` if `spec` is not a key.
    """
    if isinstance(spec, RequestKey):
        return spec
    if isinstance(spec, str):
        pieces: Sequence[str | RequestFunction[object]] = spec.split("+")
    elif callable(spec):
        pieces = [spec]
    else:
        pieces = list(spec)
    if not pieces:
        raise ValueError('The key of a limit is empty. Use "all" to count all requests together.')
    parts, texts, labels, roles, names = [], [], [], [], set[str]()
    for piece in pieces:
        if isinstance(piece, str):
            parts.append(_choice(piece.strip(), dotted, names))
            texts.append(piece.strip())
            labels.append(texts[-1].rpartition(".")[2])
            roles.append(_role(texts[-1]))
        elif callable(piece):
            parts.append(_called(piece))
            texts.append(_location(piece))
            labels.append(getattr(piece, "__name__", type(piece).__name__).replace("<lambda>", "own"))
            roles.append("")
        else:
            raise TypeError(f"The key of a limit must consist of strings and callables, not {piece!r}.")
    return RequestKey("+".join(texts), "+".join(labels), parts, frozenset(names), tuple(roles))


def _role(text: str) -> str:
    return "choice" if text == "user_or_ip" or "|" in text else text.partition(":")[0]


def _location(function: object) -> str:
    """Return module, name and line of a callable, which are the same in all processes."""
    if not hasattr(function, "__qualname__"):
        function = type(function)
    line = function.__code__.co_firstlineno if hasattr(function, "__code__") else ""
    return f"{function.__module__}.{function.__qualname__}:{line}"


def _choice(text: str, dotted: bool, used: set[str]) -> Part:
    """Return a part for the first alternative that the request has, with its name: "user:7", "ip:192.0.2.1"."""
    names = [name.strip() for name in ("user|ip" if text == "user_or_ip" else text).split("|")]
    used.update(names)
    if len(names) == 1:
        return _single(names[0], dotted)
    choices = [(f"{name}:", _single(name, dotted)) for name in names]

    def first(request: HttpRequest, kwargs: Mapping[str, object]) -> str | None:
        for name, part_of in choices:
            value = part_of(request, kwargs)
            if value is None or value != MISSING:
                return None if value is None else name + value
        return MISSING

    return first


def _single(text: str, dotted: bool) -> Part:
    name, colon, argument = text.partition(":")
    if colon and argument and name in _WITH_ARGUMENT:
        return _WITH_ARGUMENT[name](argument)
    if not colon and name in _PLAIN:
        return _PLAIN[name]
    if dotted and "." in text and all(name.isidentifier() for name in text.split(".")):
        return _imported(text)
    valid = [*_PLAIN, "user_or_ip", *(f"{name}:NAME" for name in _WITH_ARGUMENT)]
    hint = did_you_mean(text, valid, f"Use {', '.join(valid)}, joined by + or |.", quote='"')
    raise ValueError(f"{text!r} is not a key of a limit. {hint}")


def _called(function: RequestFunction[object]) -> Part:
    plain_function(function, "The key of a limit")

    def call(request: HttpRequest, kwargs: Mapping[str, object]) -> str | None:
        value = plain_value(function(request), "The key of a limit")
        return None if value is None else plain(value)

    return call


def _imported(path: str) -> Part:
    """Import the callable on the first request, to avoid a circular import."""
    imported: list[Part] = []

    def call(request: HttpRequest, kwargs: Mapping[str, object]) -> str | None:
        if not imported:
            imported.append(_called(import_string(path)))
        return imported[0](request, kwargs)

    return call


def _ip(request: HttpRequest, kwargs: Mapping[str, object]) -> str:
    clients = request_settings.current().clients
    direct_name_of = clients.direct_name_of
    if direct_name_of is None:
        return clients.name(request.META) or MISSING
    return direct_name_of(request.META.get("REMOTE_ADDR") or "") or MISSING


def client_address(source: HttpRequest | Mapping[str, Any]) -> str:
    """Return the IP address of the client that sent a request, or opened the connection of an ASGI scope.

    `source`: an `HttpRequest`, or a scope of the type "http" or "websocket", such as `self.scope` in a consumer of
    Channels. The settings PROXIES and PROXY_HEADER apply. The result is the value of the key "ip": an IPv4 address, the
    network of an IPv6 address with IPV6_PREFIX bits ("2001:db8::/64"), or "-" if the connection has no address.

        await limiter.ahit(client_address(self.scope))
    """
    clients = request_settings.current().clients
    return clients.name(clients.meta(source) if isinstance(source, Mapping) else source.META) or MISSING


def _user(request: HttpRequest, kwargs: Mapping[str, object]) -> str:
    user = user_of(request, 'The key "user" of a limit')
    return plain(user.pk) if user is not None and user.is_authenticated else MISSING


def _session(request: HttpRequest, kwargs: Mapping[str, object]) -> str:
    session = request.session
    session.keys()  # loads it, which discards a key invented by a client
    return plain(session.session_key or "")


def _path(request: HttpRequest, kwargs: Mapping[str, object]) -> str:
    return plain(request.path)


def _view(request: HttpRequest, kwargs: Mapping[str, object]) -> str:
    match = request.resolver_match
    return plain(match.view_name or match._func_path) if match is not None else MISSING


def _everybody(request: HttpRequest, kwargs: Mapping[str, object]) -> str:
    return "all"


def _header(name: str) -> Part:
    entry = name.upper().replace("-", "_")
    if entry not in {"CONTENT_TYPE", "CONTENT_LENGTH"}:
        entry = f"HTTP_{entry}"
    return lambda request, kwargs: plain(request.META.get(entry, ""))


def _argument(name: str) -> Part:
    return lambda request, kwargs: plain(kwargs.get(name, ""))


_PLAIN: Final[Mapping[str, Part]] = {
    "ip": _ip,
    "user": _user,
    "session": _session,
    "path": _path,
    "view": _view,
    "all": _everybody,
}
_WITH_ARGUMENT: Final[Mapping[str, Callable[[str], Part]]] = {"header": _header, "arg": _argument}


async def load(request: HttpRequest, user: bool, session: bool) -> None:
    """Load the user and the session, so that later reads need no query."""
    if user:
        await load_user(request)
    if session:
        await request.session.akeys()
