"""Pages as Sphinx reads them: anchors in HTML become targets, and links that leave the folder lead somewhere.

The sources stay plain Markdown, which hosts of repositories show as it is.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import Any, Final

from resty_django import address

DOCS: Final = Path(__file__).resolve().parents[1]
BLOCK_ANCHOR: Final = re.compile(r'^<a id="([^"]+)"></a>$', re.MULTILINE)
ANCHOR: Final = re.compile(r'<a id="([^"]+)"></a>')
LINK: Final = re.compile(r"(?<!!)\[([^\]]*)\]\(((?:\.\./)+[^)\s]*|[^):\s]*)\)")
FENCE: Final = re.compile(r"(^ *```.*?^ *```$)", re.MULTILINE | re.DOTALL)
INCLUDED: Final = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md", "SECURITY.md": "security.md"}
"""Files of the root that are pages of the site, with the name of the page that includes each."""


def as_site(text: str, folder: PurePosixPath) -> str:
    """Return a page's text for the site. `folder`: where the page is, from the root of the repository."""
    parts = FENCE.split(text)
    parts[::2] = [_prose(part, folder) for part in parts[::2]]
    return "".join(parts)


def _prose(text: str, folder: PurePosixPath) -> str:
    text = BLOCK_ANCHOR.sub(r"(\1)=", text)
    text = ANCHOR.sub(r"[]{#\1}", text)
    return LINK.sub(lambda match: _link(match, folder), text)


def _link(match: re.Match[str], folder: PurePosixPath) -> str:
    label, target = match.groups()
    path, mark, fragment = target.partition("#")
    if not path:
        return match[0]
    parts: list[str] = []
    for part in (folder / path).parts:
        if part == "..":
            parts.pop()
        else:
            parts.append(part)
    name = "/".join(parts)
    if parts[:1] == ["docs"]:
        return match[0] if folder.parts[:1] == ("docs",) else f"[{label}](/{'/'.join(parts[1:])}{mark}{fragment})"
    if name in INCLUDED:
        return f"[{label}](/{INCLUDED[name]}{mark}{fragment})"
    return f"[{label}]({address.SITE}/{name})" if address.SITE else label


def read(app: Any, docname: str, source: list[str]) -> None:
    source[0] = as_site(source[0], PurePosixPath("docs", docname).parent)


def read_included(app: Any, path: Path, docname: str, source: list[str]) -> None:
    source[0] = as_site(source[0], PurePosixPath())


def setup(app: Any) -> dict[str, bool]:
    app.connect("source-read", read)
    app.connect("include-read", read_included)
    return {"parallel_read_safe": True}
