"""Pages that update themselves by `live.js`: an unchanged page is answered by 304, without its content."""

from __future__ import annotations

import hashlib
import re
from typing import Final

from django.http import HttpRequest, HttpResponse, HttpResponseNotModified
from django.template.response import SimpleTemplateResponse

PER_RESPONSE: Final = re.compile(rb"""(name="csrfmiddlewaretoken" value=|\bnonce=)"[^"]*\"""")
"""Values that differ between two responses with the same content: masked CSRF tokens, and nonces of the CSP."""


def answer_unchanged(request: HttpRequest, response: HttpResponse) -> HttpResponse:
    """Let a response to `live.js` have an ETag, and become a 304 if the script already shows that content.

    Requests without the header `X-Resty-Live` are answered as before.
    """
    if "X-Resty-Live" in request.headers and isinstance(response, SimpleTemplateResponse):
        response.add_post_render_callback(lambda rendered: _finish(request, rendered))
    return response


def _finish(request: HttpRequest, response: HttpResponse) -> HttpResponse | None:
    if response.status_code != 200:
        return None
    digest = hashlib.blake2b(PER_RESPONSE.sub(b"", response.content), digest_size=16).hexdigest()
    etag = f'"{digest}"'
    response["ETag"] = etag
    # Middleware that compresses responses makes the tag weak.
    if request.headers.get("If-None-Match", "").removeprefix("W/") != etag:
        return None
    unchanged = HttpResponseNotModified()
    for name in ("ETag", "Cache-Control", "Expires", "Vary"):
        if name in response:
            unchanged[name] = response[name]
    return unchanged
