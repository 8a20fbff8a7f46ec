"""Whom a limit counts together: by address, user, header, session, path, view, argument, and combinations.

    "ip"    "user"    "user_or_ip"    "header:X-Api-Key"    "session"    "path"    "view"    "arg:pk"    "all"
    "ip+path"          both together
    "user|session|ip"  the first that the request has
    callable, or the dotted path to one (a part may be one too, in a tuple: ("ip", tenant_of))

What a request does not have (a header, a logged-in user, an address) is counted as "-": all requests without it
share one key, so that leaving it out is no way around a limit. A callable gets the request and returns a text, None
for a request that the limit does not apply to. Texts that are long, or hold what is not plain, become a hash.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from django.utils.module_loading import import_string

from .site import site

Part: TypeAlias = Callable[[Any, Mapping[str, Any]], str | None]
KeySpec: TypeAlias = "Key | str | Callable[[Any], object] | Sequence[str | Callable[[Any], object]]"

MISSING: Final = "-"
LONGEST: Final = 64
"""Characters of a value that are kept as they are; of a longer one, a hash."""
_NOTHING: Final[Mapping[str, Any]] = {}


def plain(value: object) -> str:
    """The value as a part of a key: itself where it is short and plain, "-" where it is empty, else "~" and a hash."""
    text = value if type(value) is str else str(value)
    if not text:
        return MISSING
    if len(text) <= LONGEST and text.isprintable() and text != MISSING and text[0] != "~" and "|" not in text:
        return text
    return "~" + hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


class Key:
    """What a request is counted under.

    `text` says how, and `label` says it to clients. `needs_user`, `needs_session`: what the request must have loaded.
    """

    __slots__ = ("_parts", "label", "needs_session", "needs_user", "of", "text")

    def __init__(self, text: str, label: str, parts: Sequence[Part], words: frozenset[str]) -> None:
        self.text = text
        self.label = label
        self._parts = parts
        self.needs_user = bool(words & {"user", "user_or_ip"})
        self.needs_session = "session" in words
        self.of: Part = parts[0] if len(parts) == 1 else self._all
        """The key of a request and of the arguments of its view; None where the limit does not apply."""

    def __repr__(self) -> str:
        return f"<Key {self.text}>"

    def __call__(self, request: Any, kwargs: Mapping[str, Any] | None = None) -> str | None:
        """As `of`; without `kwargs`, those that the URL gave."""
        if kwargs is None:
            match = getattr(request, "resolver_match", None)
            kwargs = match.kwargs if match is not None else _NOTHING
        return self.of(request, kwargs)

    def _all(self, request: Any, kwargs: Mapping[str, Any]) -> str | None:
        found = []
        for part in self._parts:
            value = part(request, kwargs)
            if value is None:
                return None
            found.append(value)
        return "|".join(found)


def parse(text: str) -> Key:
    """The key of a text that is neither callable nor a dotted path: what operators may write. Raises `ValueError`."""
    return make(text, dotted=False)


def make(spec: KeySpec, dotted: bool = True) -> Key:
    """The key of a text, a callable, a dotted path (where `dotted`) or a sequence of these. Raises `ValueError`."""
    if isinstance(spec, Key):
        return spec
    if isinstance(spec, str):
        pieces: list[Any] = spec.split("+")
    elif callable(spec):
        pieces = [spec]
    else:
        pieces = list(spec)
    if not pieces:
        raise ValueError('The key of a limit is empty; "all" counts all requests together.')
    parts, texts, labels, words = [], [], [], set[str]()
    for piece in pieces:
        if isinstance(piece, str):
            parts.append(_choice(piece.strip(), dotted, words))
            texts.append(piece.strip())
            labels.append(texts[-1].rpartition(".")[2])
        elif callable(piece):
            parts.append(_called(piece))
            texts.append(_place(piece))
            labels.append(getattr(piece, "__name__", type(piece).__name__).replace("<lambda>", "own"))
        else:
            raise TypeError(f"The key of a limit is made of texts and callables, not of {piece!r}.")
    return Key("+".join(texts), "+".join(labels), parts, frozenset(words))


def _place(function: Any) -> str:
    """Where a callable is, the same in all processes."""
    if not hasattr(function, "__qualname__"):
        function = type(function)
    line = function.__code__.co_firstlineno if hasattr(function, "__code__") else ""
    return f"{function.__module__}.{function.__qualname__}:{line}"


def _choice(text: str, dotted: bool, words: set[str]) -> Part:
    """One of several, told apart by their names in the key: "user:7", "ip:192.0.2.1"."""
    names = [name.strip() for name in ("user|ip" if text == "user_or_ip" else text).split("|")]
    words.update(names)
    if len(names) == 1:
        return _single(names[0], dotted)
    choices = [(f"{name}:", _single(name, dotted)) for name in names]

    def first(request: Any, kwargs: Mapping[str, Any]) -> str | None:
        for name, part in choices:
            value = part(request, kwargs)
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
    if dotted and "." in text and all(part.isidentifier() for part in text.split(".")):
        return _imported(text)
    known = [*_PLAIN, "user_or_ip", *(f"{name}:NAME" for name in _WITH_ARGUMENT)]
    close = difflib.get_close_matches(text, known, n=1, cutoff=0.6)
    hint = f'Did you mean "{close[0]}"?' if close else f"There are {', '.join(known)}, joined by + or |."
    raise ValueError(f"{text!r} is not a key of a limit. {hint}")


def _called(function: Callable[[Any], object]) -> Part:
    def part(request: Any, kwargs: Mapping[str, Any]) -> str | None:
        value = function(request)
        return None if value is None else plain(value)

    return part


def _imported(path: str) -> Part:
    """Imported with the first request: the module that names it may be one that it needs."""
    found: list[Part] = []

    def part(request: Any, kwargs: Mapping[str, Any]) -> str | None:
        if not found:
            found.append(_called(import_string(path)))
        return found[0](request, kwargs)

    return part


def _ip(request: Any, kwargs: Mapping[str, Any]) -> str:
    return site().clients.name(request) or MISSING


def _user(request: Any, kwargs: Mapping[str, Any]) -> str:
    user = request.user
    return plain(user.pk) if user is not None and user.is_authenticated else MISSING


def _session(request: Any, kwargs: Mapping[str, Any]) -> str:
    session = request.session
    session.keys()  # loads it: a key that a client has made up is dropped by that
    return plain(session.session_key or "")


def _path(request: Any, kwargs: Mapping[str, Any]) -> str:
    return plain(request.path)


def _view(request: Any, kwargs: Mapping[str, Any]) -> str:
    match = request.resolver_match
    return plain(match.view_name or match._func_path) if match is not None else MISSING


def _everybody(request: Any, kwargs: Mapping[str, Any]) -> str:
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


async def load(request: Any, user: bool, session: bool) -> None:
    """Load what keys and permissions need of the request, so that reading it later asks no database."""
    if user and hasattr(request, "auser"):
        request.user = await request.auser()
    if session:
        await request.session.akeys()


__all__ = ["LONGEST", "MISSING", "Key", "KeySpec", "load", "make", "parse", "plain"]
