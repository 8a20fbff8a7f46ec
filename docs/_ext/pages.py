"""Pages as Sphinx reads them: anchors in HTML become targets, and links that leave the folder lead somewhere.

The sources stay plain Markdown, which hosts of repositories show as it is.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import Any, Final

from bs4 import BeautifulSoup
from sphinx.util import logging

from resty_django import address

logger = logging.getLogger(__name__)

BLOCK_ANCHOR: Final = re.compile(r'^<a id="([^"]+)"></a>$', re.MULTILINE)
ANCHOR: Final = re.compile(r'<a id="([^"]+)"></a>')
LINK: Final = re.compile(r"(?<!!)\[([^\]]*)\]\(((?:\.\./)+[^)\s]*|[^):\s]*)\)")
FENCE: Final = re.compile(r"(^ *```.*?^ *```$)", re.MULTILINE | re.DOTALL)
INCLUDED: Final = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md", "SECURITY.md": "security.md"}
"""Files of the root that are pages of the site, with the name of the page that includes each."""

SHORT: Final = 28
"""Code of at most this length is not broken in a table."""

TITLE: Final = re.compile(r"^# .*$", re.MULTILINE)
SEARCHED: Final = {
    "coming-from/celery": "celery, beat, flower",
    "coming-from/django-axes": "brute force",
    "coming-from/django-ratelimit": "rate limit",
    "coming-from/drf-throttles": "throttle",
    "coming-from/request-ids": "X-Request-ID, correlation ID",
    "howto/different-limits-for-an-api": "throttle, 429",
    "howto/follow-a-request": "X-Request-ID, request ID, correlation ID",
    "howto/protect-the-log-in": "brute force, login",
    "howto/run-something-every-night": "cron, periodic task, schedule",
    "howto/send-mail-in-the-background": "background task, background job",
    "only/jobs": "task queue, background task, background job",
    "only/limits": "rate limit, throttle, 429",
    "only/request-ids": "X-Request-ID, request ID, correlation ID",
    "reference/jobs/celery": "celery",
    "reference/jobs/tasks": "cron, periodic task, schedule, retry, background task",
    "reference/limits/limiters": "rate limit, leaky bucket, token bucket, sliding window",
    "reference/limits/views": "rate limit, 429, Retry-After, X-Forwarded-For",
    "reference/request-ids/txid": "X-Request-ID, request ID, correlation ID, traceparent",
    "tutorial/2-limits": "429",
}
"""Words that people search for, by page: the site's search lists these pages first. It finds no numbers otherwise."""


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
    text = as_site(source[0], PurePosixPath("docs", docname).parent)
    if docname in SEARCHED:
        entries = SEARCHED[docname].replace(", ", ", ! ")
        text = TITLE.sub(lambda title: f"{title[0]}\n\n:::{{index}} ! {entries}\n:::", text, count=1)
    source[0] = text


def read_included(app: Any, path: Path, docname: str, source: list[str]) -> None:
    source[0] = as_site(source[0], PurePosixPath())


def label_cells(app: Any, pagename: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Write the heading of its column to each cell, for phones, which show a row's cells below each other."""
    if "<table" not in context.get("body", ""):
        return
    body = BeautifulSoup(context["body"], "html.parser")
    for table in body.select("table"):
        heads = [" ".join(head.get_text().split()) for head in table.select("thead th")]
        table["class"] = [*table.get("class", ()), "wide" if len(heads) > 2 else "narrow"]
        table["role"] = "table"  # else browsers drop the role of a table that style sheets show as blocks
        for row in table.select("tbody tr"):
            row["role"] = "row"
            for cell, head in zip(row.find_all("td"), heads, strict=False):
                cell["role"] = "cell"
                cell["data-label" if cell.get_text(strip=True) or cell.img else "data-empty"] = head
        for code in table.select("td code"):
            if len(code.get_text()) <= SHORT:
                code["class"] = [*code.get("class", ()), "short"]
    context["body"] = str(body)


def check_searched(app: Any, env: Any) -> None:
    for docname in sorted(SEARCHED.keys() - env.found_docs):
        logger.warning("SEARCHED names the page %s, which does not exist", docname)


def setup(app: Any) -> dict[str, bool]:
    app.connect("source-read", read)
    app.connect("include-read", read_included)
    app.connect("env-check-consistency", check_searched)
    app.connect("html-page-context", label_cells)
    return {"parallel_read_safe": True}
