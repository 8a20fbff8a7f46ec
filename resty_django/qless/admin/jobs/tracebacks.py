"""Parser of failure messages: the error, the line of the site's own code that raised it, and the lines of libraries.

A worker stores the exception's text, an empty line, and the traceback, whose beginning may be missing. Other clients
may store any text.
"""

from __future__ import annotations

import re
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Final

import resty_django

_HEADER: Final = "Traceback (most recent call last):"
_FRAME: Final = re.compile(
    r'^(?P<indent>[\s|+-]*)File "(?P<path>[^"]+)", line (?P<number>\d+)(?:, in (?P<function>.+))?$'
)


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a message. `library`: whether it belongs to a frame of a library."""

    text: str
    library: bool = False


@dataclass(frozen=True, slots=True)
class Location:
    """A frame of a traceback. `source`: its line of code, empty if unknown. `library`: whether it is a library's."""

    path: str
    number: int
    function: str
    source: str
    library: bool

    @property
    def short_path(self) -> str:
        """The path relative to the import path of this process, if it is below it."""
        roots = [root.rstrip("/") for root in sys.path if root and self.path.startswith(f"{root.rstrip('/')}/")]
        return self.path[len(max(roots, key=len)) + 1 :] if roots else self.path


@dataclass(frozen=True, slots=True)
class FailureReport:
    """A failure. `error`: one line. `location`: the last frame of the site's code; if there is none, the last frame."""

    error: str
    location: Location | None
    lines: Sequence[Line]


def report_of(message: str) -> FailureReport:
    """Return the error, the location and the lines of a message."""
    texts = message.strip("\n").split("\n")
    lines: list[Line] = []
    locations: list[tuple[int, Location]] = []
    last_header = 0
    depth: int | None = None
    for index, text in enumerate(texts):
        frame = _FRAME.match(text)
        if frame is not None:
            depth = _depth(text)
            location = _location(frame)
            locations.append((index, location))
            lines.append(Line(text, location.library))
            continue
        if _HEADER in text:
            last_header, depth = index, None
        elif depth is not None and not _is_of_frame(text, depth):
            depth = None
        in_library = depth is not None and locations[-1][1].library
        if depth is not None and locations[-1][0] == index - 1 and _depth(text) > depth:
            locations[-1] = (index - 1, replace(locations[-1][1], source=_unnested(text)))
        lines.append(Line(text, in_library))
    return FailureReport(_error_of(texts), _last_own(locations, last_header), lines)


def is_library(path: str) -> bool:
    """Return whether a file is a library's: the standard library, an installed package or `resty_django`."""
    normal = path.replace("\\", "/")
    library = r"""
        /(?:site|dist)-packages/       # installed packages
        | /lib(?:64)?/python\d[\d.]*/  # the standard library
        | /python\d[\d.]*/lib/         # the same on Windows
        | \.zip/                       # the same in a file
        | ^<                           # frozen modules, generated code
    """
    is_found = re.search(library, normal, re.VERBOSE | re.IGNORECASE) is not None
    return is_found or normal.startswith(_standard_library()) or _is_ours(normal)


def _last_own(locations: Sequence[tuple[int, Location]], last_header: int) -> Location | None:
    """Return the last frame of the site's code, preferably of the last traceback, else the last frame."""
    own = [(index, location) for index, location in locations if not location.library]
    last = [location for index, location in own if index >= last_header]
    candidates = last or [location for _, location in own] or [location for _, location in locations]
    return candidates[-1] if candidates else None


def _location(frame: re.Match[str]) -> Location:
    path = frame["path"]
    return Location(path, int(frame["number"][:9]), (frame["function"] or "").strip(), "", is_library(path))


def _error_of(texts: Sequence[str]) -> str:
    """Return the line of a message that names the error, at most 500 characters.

    It is the first line or, if a traceback comes first, the line after its last frame.
    """
    first = next((index for index, text in enumerate(texts) if text.strip()), None)
    if first is None:
        return ""
    if _HEADER not in texts[first] and not _FRAME.match(texts[first]):
        return texts[first].strip()[:500]
    return next(_after_last_frame(texts), texts[first]).strip()[:500]


def _after_last_frame(texts: Sequence[str]) -> Iterator[str]:
    """Yield the lines after the last frame of a message, without the frame's code."""
    last = max((index for index, text in enumerate(texts) if _FRAME.match(text)), default=0)
    depth = _depth(texts[last])
    for text in texts[last + 1 :]:
        if text.strip() and not _is_of_frame(text, depth):
            yield _unnested(text)


def _is_of_frame(text: str, depth: int) -> bool:
    """Return whether a line belongs to the frame above it, whose line is indented by `depth`."""
    return bool(text.strip()) and (_depth(text) > depth or _unnested(text).startswith("[Previous line repeated "))


def _depth(text: str) -> int:
    """Return the length of the beginning of a line: spaces, and the bars of an exception group."""
    match = re.match(r"[\s|+]*", text)
    return 0 if match is None else match.end()


def _unnested(text: str) -> str:
    return text[_depth(text) :].strip()


@cache
def _standard_library() -> tuple[str, ...]:
    paths = (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"))
    return tuple({f"{path}/".replace("\\", "/") for path in paths if path})


@cache
def _our_names() -> frozenset[str]:
    """Return the names of the modules at the top of `resty_django`."""
    return frozenset(path.name for path in Path(resty_django.__file__).parent.iterdir())


def _is_ours(path: str) -> bool:
    """Return whether a file belongs to `resty_django`, also on another machine, where it may be in another folder."""
    _, folder, inner = path.rpartition("/resty_django/")
    return bool(folder) and inner.partition("/")[0] in _our_names()
